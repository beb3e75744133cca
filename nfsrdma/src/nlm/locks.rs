//! TEST, LOCK, CANCEL, UNLOCK (RFC 1813 sections 6.3.1 to 6.3.4).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nfs_proto::nlm::Lock;
use rdma_transport::count;
use rdma_transport::parts::Limit;
use state::{
    Enforce, HolderId, LockKind, LockVerdict, NodeId, Operation, Range, Rights, Share as Opened,
};
use tokio::time::{Instant, timeout};
use vfs::arbiter::WAIT_MS;
use vfs::namespace::Share;
use vfs::{Access, Cred, Kind, NodeRef, VfsError};

use super::answers::{Answer, Holder};
use super::blocked::{Blocked, BlockedState, Wanted};
use super::hosts::{Host, Key, Owner, Sort};
use super::monitors::Monitored;
use super::{Nlm, Stat, limits};
use crate::context::{CallContext, Conn};
use crate::fh::Fh;

/// A number that no holder has: numbering begins at 1.
const NOBODY: HolderId = HolderId(0);
/// How often one request removes conflicting clients whose lease has lapsed.
const ROUNDS_MAX: usize = 4;

/// The options of a lock request.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) block: bool,
    pub(super) exclusive: bool,
    pub(super) reclaim: bool,
    pub(super) monitored: bool,
    /// The number of the host's status monitor.
    pub(super) state: i32,
}

/// The result of an attempt to take a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Given,
    /// Another lock conflicts.
    Busy,
    /// A recall of caching rights, or the release of a lapsed client, is still in progress.
    NotYet,
    Full(Limit),
}

/// The file of a handle, and the caller's identity in its share.
pub(super) struct Target {
    pub(super) share: Arc<Share>,
    pub(super) node: NodeRef,
    pub(super) cred: Cred,
    pub(super) fh: Fh,
}

/// The key of the calling host.
pub(super) fn key_of(conn: &Conn, caller: &[u8]) -> Key {
    Key { name: caller.into(), ip: conn.info.peer.ip() }
}

fn owner_of(lock: &Lock<'_>) -> Owner {
    Owner { sort: Sort::Lock, svid: lock.svid, oh: lock.oh.into() }
}

/// Converts the range. [`Stat::Fbig`] if it ends beyond 64 bits.
fn range_of(lock: &Lock<'_>) -> Result<Range, Stat> {
    match lock.l_len {
        0 => Ok(Range { first: lock.l_offset, last: u64::MAX }),
        length => Range::new(lock.l_offset, length).ok_or(Stat::Fbig),
    }
}

fn kind_of(exclusive: bool) -> LockKind {
    if exclusive { LockKind::Exclusive } else { LockKind::Shared }
}

impl Nlm {
    /// Finds the regular file of a handle, if the caller may use its share.
    pub(super) async fn target(
        &self,
        conn: &Conn,
        call: &CallContext,
        wire: &[u8],
    ) -> Result<Target, Stat> {
        let found = self.core().handles.resolve(&self.core().namespace, wire).await;
        let (share, node) = found.map_err(|e| match e {
            VfsError::Stale | VfsError::BadHandle => Stat::StaleFh,
            _ => Stat::Failed,
        })?;
        let fh = Fh::from_wire(wire).ok_or(Stat::StaleFh)?;
        if node.kind() != Kind::File {
            return Err(Stat::Failed);
        }
        let entered = self.core().enter_by_any(conn, call, share).map_err(|_| Stat::Failed)?;
        Ok(Target { share: entered.share, node, cred: entered.cred, fh })
    }

    /// A caller that may read or write a file may lock it. The owner of the file has access too, because he may have opened it
    /// before a chmod.
    pub(super) async fn may_lock(&self, t: &Target) -> Result<(), Stat> {
        let wanted = Access(Access::READ | Access::MODIFY | Access::EXTEND);
        let attr = t.node.getattr().await.map_err(|_| Stat::Failed)?;
        let granted = t.node.access(&t.cred, wanted, &attr).await.map_err(|_| Stat::Failed)?;
        if granted.0 == 0 && attr.uid != t.cred.uid { Err(Stat::Failed) } else { Ok(()) }
    }

    pub(super) async fn test(
        &self,
        conn: &Conn,
        call: &CallContext,
        exclusive: bool,
        lock: &Lock<'_>,
    ) -> Answer {
        let (t, range) = match (self.target(conn, call, lock.fh).await, range_of(lock)) {
            (Ok(t), Ok(range)) => (t, range),
            (Err(stat), _) | (_, Err(stat)) => return Answer::Stat(stat),
        };
        if self.in_grace() {
            return Answer::Stat(self.note_grace());
        }
        let host = self.hosts.find(&key_of(conn, lock.caller_name));
        let node = t.node.id();
        let mine = host.and_then(|host| {
            host.held().get(&(owner_of(lock), node)).map(|held| held.party.holder)
        });
        let arbiter = self.core().namespace.arbiter();
        let holder = mine.unwrap_or(NOBODY);
        if arbiter.locks_known(node, None).await.is_err() {
            return Answer::Stat(Stat::DeniedGracePeriod);
        }
        match arbiter.state().test(node, holder, range, kind_of(exclusive), arbiter.now()) {
            LockVerdict::Denied(held) => {
                let owner = self.hosts.owner_of(held.owner.client(), held.owner.holder);
                let (svid, oh) = owner.unwrap_or_default();
                Answer::Held(Holder { kind: held.kind, svid, oh, range: held.range })
            }
            // Holders whose lease has lapsed would be released.
            LockVerdict::Go | LockVerdict::Lapsed(_) | LockVerdict::Full(_) => {
                Answer::Stat(Stat::Granted)
            }
        }
    }

    pub(super) async fn lock(
        &self,
        conn: &Conn,
        call: &CallContext,
        how: How,
        lock: &Lock<'_>,
    ) -> Stat {
        match self.try_lock(conn, call, how, lock).await {
            Ok(stat) | Err(stat) => stat,
        }
    }

    async fn try_lock(
        &self,
        conn: &Conn,
        call: &CallContext,
        how: How,
        lock: &Lock<'_>,
    ) -> Result<Stat, Stat> {
        let t = self.target(conn, call, lock.fh).await?;
        let range = range_of(lock)?;
        if how.exclusive && t.share.read_only {
            return Err(Stat::Rofs);
        }
        self.may_lock(&t).await?;
        let key = key_of(conn, lock.caller_name);
        self.check_grace(&key, how.reclaim)?;
        let local = conn.info.local.ip();
        let host = self.hosts.heard(&key, local, self.now());
        let host = host.map_err(|limit| self.note_limit(conn, limit))?;
        self.note_state(&host, how.state);
        if how.monitored {
            self.monitor(&host).await?;
        }
        let (owner, kind) = (owner_of(lock), kind_of(how.exclusive));
        let wanted = Wanted {
            host: &key,
            owner: &owner,
            fh: &t.fh,
            kind,
            offset: lock.l_offset,
            length: lock.l_len,
        };
        match self.queue.state_of(&wanted) {
            // The client repeats its request before GRANTED has reached it.
            Some(BlockedState::Telling) if self.queue.cancel(&wanted).is_some() => {
                return Ok(Stat::Granted);
            }
            Some(BlockedState::Waiting) if how.block => return Ok(Stat::Blocked),
            _ => {}
        }
        match self.take_patiently(&host, &owner, &t.node, &t.fh, kind, range).await {
            Taken::Given => {
                self.counters.granted.fetch_add(1, Ordering::Relaxed);
                if how.reclaim {
                    self.counters.reclaimed.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Stat::Granted)
            }
            Taken::Busy if how.block && !how.reclaim => {
                let (offset, length) = (lock.l_offset, lock.l_len);
                let (fh, node, cred) = (t.fh, t.node, call.cred.clone());
                let begin = self.queue.join(key.ip, |number| Blocked {
                    number,
                    host,
                    owner: owner.clone(),
                    cred,
                    fh,
                    node,
                    kind,
                    range,
                    offset,
                    length,
                });
                let begin = begin.map_err(|limit| self.note_limit(conn, limit))?;
                self.counters.blocked.fetch_add(1, Ordering::Relaxed);
                if begin {
                    self.drive();
                }
                Ok(Stat::Blocked)
            }
            Taken::Busy => {
                self.counters.denied.fetch_add(1, Ordering::Relaxed);
                Ok(Stat::Denied)
            }
            // NLM has no status for "retry later"; clients retry after this one.
            Taken::NotYet => Ok(Stat::DeniedGracePeriod),
            Taken::Full(limit) => Ok(self.note_limit(conn, limit)),
        }
    }

    /// Refuses new locks during the grace period, and reclaims outside of it.
    pub(super) fn check_grace(&self, key: &Key, reclaim: bool) -> Result<(), Stat> {
        match (reclaim, self.in_grace()) {
            (false, false) => Ok(()),
            (false, true) => Err(self.note_grace()),
            (true, true) if self.reclaims(key) => Ok(()),
            // Another client may have taken the lock since.
            (true, _) => Err(Stat::Denied),
        }
    }

    pub(super) fn note_grace(&self) -> Stat {
        self.counters.grace.fetch_add(1, Ordering::Relaxed);
        // Clients retry after a grace-period status until it ends.
        if self.grace_is_stuck() { Stat::DeniedNolocks } else { Stat::DeniedGracePeriod }
    }

    pub(super) fn note_limit(&self, conn: &Conn, limit: Limit) -> Stat {
        self.counters.limited.fetch_add(1, Ordering::Relaxed);
        match conn.is_datagram() {
            // A datagram's sender address may be forged, so the log names no peer.
            true => count::limit_met(limit.name),
            false => count::limited(limit.name, limit.most, conn.info.peer),
        }
        Stat::DeniedNolocks
    }

    /// Ensures that the host is in the durable list before it gets its first lock.
    pub(super) async fn monitor(&self, host: &Host) -> Result<(), Stat> {
        if host.monitored.load(Ordering::Acquire) {
            return Ok(());
        }
        let entry = Monitored { key: host.key.clone(), local: host.route.from() };
        self.monitors.enter(&entry).await.map_err(|e| {
            tracing::error!(error = %e, "a host's record cannot be written");
            Stat::DeniedNolocks
        })?;
        host.monitored.store(true, Ordering::Release);
        Ok(())
    }

    /// Like [`Nlm::take`], but waits a little for recalls in progress. If too many requests wait already, makes a single attempt.
    async fn take_patiently(
        &self,
        host: &Host,
        owner: &Owner,
        node: &NodeRef,
        fh: &Fh,
        kind: LockKind,
        range: Range,
    ) -> Taken {
        let until = Instant::now() + Duration::from_secs(limits::RECALL_SECONDS_MAX);
        let place = self.patient.take(host.key.ip);
        let arbiter = self.core().namespace.arbiter();
        loop {
            // Enabled before the attempt, so that a return between attempt and wait is not missed.
            let mut returned = std::pin::pin!(arbiter.returned());
            returned.as_mut().enable();
            match self.take(host, owner, node, fh, kind, range).await {
                Taken::NotYet if Instant::now() < until => {}
                done => return done,
            }
            if let Err(limit) = place {
                count::limit_met(limit.name);
                return Taken::NotYet;
            }
            // The attempt itself did not wait if all of the arbiter's waiting places were taken.
            let _ = timeout(Duration::from_millis(WAIT_MS), returned).await;
        }
    }

    /// Opens the file for the owner with the access that the lock needs, and locks.
    pub(super) async fn take(
        &self,
        host: &Host,
        owner: &Owner,
        node: &NodeRef,
        fh: &Fh,
        kind: LockKind,
        range: Range,
    ) -> Taken {
        let arbiter = self.core().namespace.arbiter();
        let table = arbiter.state();
        let party = match host.holder(owner, node, fh, || table.holder()) {
            Ok(party) => party,
            Err(limit) => return Taken::Full(limit),
        };
        let id = node.id();
        let access = if kind == LockKind::Exclusive { Rights::WRITE } else { Rights::READ };
        let opened = match host.has_share(id) {
            true => Ok(()),
            false => arbiter.open(id, &party, Opened::new(access, Rights::NONE)).await,
        };
        // Same rule as for a lock of NFSv4: SMB clients must not read from their caches a range that they may not read from the
        // file.
        let who = Some(party.requester());
        let opened = match opened {
            Ok(()) => arbiter.check_conflicts(id, who, Operation::Advise, Range::ALL).await,
            refused => refused,
        };
        let done = match opened {
            Ok(()) => {
                self.take_range(host, owner, id, party.holder, (kind, self.enforced(fh)), range)
                    .await
            }
            Err(VfsError::ShareDenied) => Taken::Busy,
            Err(VfsError::Delay) => Taken::NotYet,
            Err(_) => Taken::Full(limits::HOLDERS_OF_FILE),
        };
        match done {
            Taken::Given => arbiter.tell(id, who, Operation::Advise),
            _ if host.keep(owner, id, party.holder, table) => host.prune(owner, id, table),
            _ => {}
        }
        done
    }

    /// Returns which protocols must respect a lock in the share of this handle.
    fn enforced(&self, fh: &Fh) -> Enforce {
        self.core().namespace.share(fh.share()).map_or(Enforce::Smb, |s| s.nfs_locks)
    }

    async fn take_range(
        &self,
        host: &Host,
        owner: &Owner,
        node: NodeId,
        holder: HolderId,
        (kind, enforce): (LockKind, Enforce),
        range: Range,
    ) -> Taken {
        let arbiter = self.core().namespace.arbiter();
        for _ in 0..ROUNDS_MAX {
            let verdict = {
                // Runs under the host's lock, so that a holder that a restart of the host has just ended gets no lock.
                let held = host.held();
                let Some(mine) = held.get(&(owner.clone(), node)) else { return Taken::NotYet };
                if mine.party.holder != holder {
                    return Taken::NotYet;
                }
                let table = arbiter.state();
                table.lock(node, &mine.party, range, kind, enforce, arbiter.now())
            };
            match verdict {
                LockVerdict::Go => {
                    if kind == LockKind::Shared {
                        // The previous lock may have been exclusive, so waiting requests are retried.
                        arbiter.released();
                    }
                    return Taken::Given;
                }
                LockVerdict::Denied(_) => return Taken::Busy,
                LockVerdict::Full("locks_per_host") => {
                    return Taken::Full(limits::LOCKS_OF_FILE_BY_ADDRESS);
                }
                LockVerdict::Full(_) => return Taken::Full(limits::LOCKS_OF_FILE),
                LockVerdict::Lapsed(lapsed) => arbiter.release(&lapsed).await,
            }
        }
        Taken::NotYet
    }

    pub(super) async fn cancel(&self, conn: &Conn, exclusive: bool, lock: &Lock<'_>) -> Stat {
        let (key, owner) = (key_of(conn, lock.caller_name), owner_of(lock));
        let Some(fh) = Fh::from_wire(lock.fh) else { return Stat::StaleFh };
        let wanted = Wanted {
            host: &key,
            owner: &owner,
            fh: &fh,
            kind: kind_of(exclusive),
            offset: lock.l_offset,
            length: lock.l_len,
        };
        // A cancel of a granted lock whose notice is still in progress unlocks it. A request that never waited needs no cancel.
        if self.queue.cancel(&wanted) == Some(BlockedState::Telling) {
            return self.unlock(conn, lock).await;
        }
        Stat::Granted
    }

    pub(super) async fn unlock(&self, conn: &Conn, lock: &Lock<'_>) -> Stat {
        let range = match range_of(lock) {
            Ok(range) => range,
            Err(stat) => return stat,
        };
        let Some(host) = self.hosts.find(&key_of(conn, lock.caller_name)) else {
            return Stat::Granted;
        };
        let Some(fh) = Fh::from_wire(lock.fh) else { return Stat::StaleFh };
        let found = self.core().handles.resolve(&self.core().namespace, lock.fh).await;
        let node = found.ok().map(|(_, node)| node.id());
        match self.give_back(&host, &owner_of(lock), node, &fh, range) {
            true => Stat::Granted,
            false => self.note_limit(conn, limits::LOCKS_OF_FILE),
        }
    }

    /// Releases a range of an owner. False if too many separate ranges would remain.
    pub(super) fn give_back(
        &self,
        host: &Host,
        owner: &Owner,
        node: Option<NodeId>,
        fh: &Fh,
        range: Range,
    ) -> bool {
        let arbiter = self.core().namespace.arbiter();
        let done = host.unlock(owner, node, fh, range, arbiter.state());
        arbiter.released();
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_length_reaches_end_of_file() {
        let range = |l_offset, l_len| {
            range_of(&Lock { caller_name: b"", fh: b"", oh: b"", svid: 0, l_offset, l_len })
        };
        assert_eq!(range(5, 0), Ok(Range { first: 5, last: u64::MAX }));
        assert_eq!(range(5, 1), Ok(Range { first: 5, last: 5 }));
        assert_eq!(range(u64::MAX, 2), Err(Stat::Fbig));
        assert_eq!(range(0, u64::MAX), Ok(Range::ALL));
    }
}
