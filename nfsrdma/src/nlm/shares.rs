//! SHARE and UNSHARE (RFC 1813 sections 6.3.6 and 6.3.7): opens with access and deny modes, for DOS and Windows clients of NFS
//! version 3. `state` treats them as opens of NFSv4 and SMB.

use std::net::IpAddr;

use nfs_proto::nlm::Share as Wanted;
use state::{Holder, HolderId, NodeId, Rights, Share};
use vfs::VfsError;

use super::hosts::{Host, Owner, Sort};
use super::locks::key_of;
use super::{Nlm, Stat, limits};
use crate::context::{CallContext, Conn};
use crate::fh::Fh;

/// Converts `fsh4_access` and `fsh4_mode`, whose values (none, read, write, both) equal the access and deny bits of NFSv4.
fn modes(share: &Wanted<'_>) -> Share {
    let rights = |bits| Rights::from_bits(bits).unwrap_or(Rights::NONE);
    Share::new(rights(share.access as u32), rights(share.mode as u32))
}

fn owner_of(share: &Wanted<'_>) -> Owner {
    Owner { sort: Sort::Share, svid: 0, oh: share.oh.into() }
}

impl Nlm {
    pub(super) async fn share(
        &self,
        conn: &Conn,
        call: &CallContext,
        share: &Wanted<'_>,
        reclaim: bool,
    ) -> Stat {
        match self.try_share(conn, call, share, reclaim).await {
            Ok(()) => Stat::Granted,
            Err(stat) => stat,
        }
    }

    async fn try_share(
        &self,
        conn: &Conn,
        call: &CallContext,
        share: &Wanted<'_>,
        reclaim: bool,
    ) -> Result<(), Stat> {
        let t = self.target(conn, call, share.fh).await?;
        self.may_lock(&t).await?;
        let key = key_of(conn, share.caller_name);
        self.check_grace(&key, reclaim)?;
        let local = conn.info.local.ip();
        let host = self.hosts.heard(&key, local, self.now());
        let host = host.map_err(|limit| self.note_limit(conn, limit))?;
        self.monitor(&host).await?;
        let arbiter = self.core().namespace.arbiter();
        let (owner, wanted) = (owner_of(share), modes(share));
        let party = host.holder(&owner, &t.node, &t.fh, || arbiter.state().holder());
        let party = party.map_err(|limit| self.note_limit(conn, limit))?;
        let id = t.node.id();
        // The reservation's open replaces the opens of this host's own locks.
        let lockers = host.lockers(id);
        for own in &lockers {
            arbiter.state().narrow(id, own.holder, Share::default());
        }
        let opened = arbiter.open(id, &party, wanted).await;
        if opened.is_ok() {
            let held = host.held();
            // An UNSHARE, or a restart of the host, may have ended the holder while the open waited.
            if held.get(&(owner.clone(), id)).is_some_and(|h| h.party.holder == party.holder) {
                // A second SHARE of the same owner replaces the first.
                arbiter.state().narrow(id, party.holder, wanted);
                self.core().reservations.set(key.ip, id, &party, wanted.access);
                return Ok(());
            }
            arbiter.state().release(id, party.holder);
        } else {
            self.forget(&host, (owner, id), party.holder, key.ip);
        }
        self.reopen(&host, &lockers, id);
        Err(match opened {
            Err(VfsError::ShareDenied) => Stat::Denied,
            Ok(()) | Err(VfsError::Delay) => Stat::DeniedGracePeriod,
            Err(_) => self.note_limit(conn, limits::HOLDERS_OF_FILE),
        })
    }

    /// Removes a holder whose open failed, unless another SHARE of the same owner succeeded meanwhile.
    fn forget(&self, host: &Host, at: (Owner, NodeId), holder: HolderId, ip: IpAddr) {
        let mut held = host.held();
        let core = self.core();
        let is_used = core.reservations.access(ip, at.1, holder).is_some()
            || core.namespace.arbiter().state().holds_lock(at.1, holder);
        if !is_used && held.get(&at).is_some_and(|h| h.party.holder == holder) {
            held.remove(&at);
        }
    }

    /// Restores the opens of the host's locks, for locks that are still held.
    fn reopen(&self, host: &Host, lockers: &[Holder], node: NodeId) {
        let held = host.held();
        let still = |p: &&Holder| held.values().any(|h| h.party.holder == p.holder);
        for own in lockers.iter().filter(still) {
            let share = Share::new(Rights::BOTH, Rights::NONE);
            self.core().namespace.arbiter().state().open(node, own, share, self.now());
        }
    }

    pub(super) async fn unshare(&self, conn: &Conn, share: &Wanted<'_>) -> Stat {
        let key = key_of(conn, share.caller_name);
        let Some(host) = self.hosts.find(&key) else { return Stat::Granted };
        let Some(fh) = Fh::from_wire(share.fh) else { return Stat::StaleFh };
        let owner = owner_of(share);
        let arbiter = self.core().namespace.arbiter();
        let mut held = host.held();
        let found = held.iter().find(|((o, _), h)| *o == owner && h.fh == fh);
        let Some(at) = found.map(|(at, _)| at.clone()) else { return Stat::Granted };
        if let Some(gone) = held.remove(&at) {
            arbiter.close(at.1, gone.party.holder);
            self.core().reservations.remove(key.ip, at.1, gone.party.holder);
        }
        Stat::Granted
    }
}
