//! Locks that waited and are given: who tries them, and how their hosts are told (GRANTED, RFC 1813 section 6.3.5).
//!
//! *Operation.* While somebody waits, one task tries all that wait, the longest-waiting first, whenever something was released. A
//! lock that was given has a task of its own that calls the host until it has answered.
//!
//! *Memory.* One small task per lock that was given and whose host has not answered.
//!
//! *Errors.* Who lost the right to the share while it waited is given nothing; when it asks again it is refused. A host that does
//! not want the lock any more, or that cannot be reached for [`limits::GRANT_SECONDS_MAX`], loses it. One that may have heard of it
//! keeps it: the answer alone may have been lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nfs_proto::nlm::{Lock, Res, Testargs};
use nfs_proto::xdr::{decode, encode};
use state::LockKind;
use tokio::time::{Instant, sleep};

use super::blocked::Blocked;
use super::locks::Taken;
use super::{Nlm, Stat, VERSION, limits, procedure};
use crate::rpc::callee::Callee;
use crate::rpc::outgoing::CallFailed;
use crate::rpc::program;

impl Nlm {
    /// Begins to try those that wait, until nobody does.
    pub(super) fn drive(&self) {
        let Some(me) = self.me.upgrade() else { return };
        tokio::spawn(async move { me.try_all_until_none().await });
    }

    async fn try_all_until_none(self: Arc<Self>) {
        let arbiter = self.core().namespace.arbiter();
        loop {
            // Enabled before the attempts, so that what is released between the two is not missed.
            let mut returned = std::pin::pin!(arbiter.returned());
            returned.as_mut().enable();
            let Some(waiting) = self.queue.waiting() else { return };
            for blocked in waiting {
                self.try_one(blocked).await;
            }
            tokio::select! {
                () = returned => {}
                () = self.queue.joined.notified() => {}
                () = sleep(Duration::from_secs(limits::RECHECK_SECONDS)) => {}
            }
        }
    }

    async fn try_one(self: &Arc<Self>, b: Arc<Blocked>) {
        // A lock that cannot be had for the time being leaves nothing behind, not even a moment's open of the file.
        let arbiter = self.core().namespace.arbiter();
        let mine = b.host.held().get(&(b.owner.clone(), b.node.id())).map(|h| h.party.holder);
        let holder = mine.unwrap_or(state::HolderId(0));
        let verdict = arbiter.state().test(b.node.id(), holder, b.range, b.kind, arbiter.now());
        if matches!(verdict, state::LockVerdict::Denied(_)) {
            return;
        }
        if !self.may_still(&b) {
            // There is no answer that says so: a client asks again, and that call is refused.
            self.counters.denied.fetch_add(1, Ordering::Relaxed);
            self.queue.leave(b.number);
            return;
        }
        if self.take(&b.host, &b.owner, &b.node, &b.fh, b.kind, b.range).await != Taken::Given {
            return;
        }
        if !self.queue.given(b.number) {
            // Canceled at the same moment.
            self.give_back(&b.host, &b.owner, Some(b.node.id()), &b.fh, b.range);
            return;
        }
        self.counters.granted.fetch_add(1, Ordering::Relaxed);
        let me = self.clone();
        tokio::spawn(async move { me.tell_until_answered(&b).await });
    }

    /// The lock would be given to somebody who asks for it now: a reload may have come since it was asked for.
    fn may_still(&self, b: &Blocked) -> bool {
        let core = self.core();
        let Some(share) = core.namespace.share(b.fh.share()) else { return false };
        let addresses = (b.host.key.ip, b.host.route.from());
        let entered = core.enter_later(addresses, &b.cred, share);
        entered.is_ok_and(|e| b.kind == LockKind::Shared || !e.share.read_only)
    }

    async fn tell_until_answered(&self, b: &Blocked) {
        let until = Instant::now() + Duration::from_secs(limits::GRANT_SECONDS_MAX);
        let mut pause = limits::AGAIN_MS;
        let mut may_have_heard = false;
        // Whoever cancels, asks again or was restarted takes it out of the queue, and with it the need to be told.
        while self.queue.has(b.number) {
            match self.tell(b).await {
                Ok(Stat::Granted) => {
                    self.queue.leave(b.number);
                    return;
                }
                Ok(Stat::DeniedGracePeriod) => {}
                Ok(stat) => {
                    tracing::debug!(host = %b.host.key.ip, ?stat, "the client no longer waits for a lock");
                    return self.take_back(b);
                }
                Err(e) => {
                    may_have_heard |= matches!(e, CallFailed::Unanswered(_));
                    tracing::debug!(host = %b.host.key.ip, error = %e, "GRANTED");
                }
            }
            if Instant::now() + Duration::from_millis(pause) > until {
                self.counters.untold.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    host = %b.host.key.ip, kept = may_have_heard,
                    "a client could not be notified of a granted lock; is its rpcbind reachable?"
                );
                if may_have_heard {
                    self.queue.leave(b.number);
                } else {
                    self.take_back(b);
                }
                return;
            }
            sleep(Duration::from_millis(pause)).await;
            pause = (pause * 2).min(limits::AGAIN_MS_MAX);
        }
    }

    fn take_back(&self, b: &Blocked) {
        if self.queue.leave(b.number) {
            self.give_back(&b.host, &b.owner, Some(b.node.id()), &b.fh, b.range);
        }
    }

    /// One GRANTED, and what the host says to it.
    async fn tell(&self, b: &Blocked) -> Result<Stat, CallFailed> {
        let alock = Lock {
            caller_name: &b.host.key.name,
            fh: b.fh.as_bytes(),
            oh: &b.owner.oh,
            svid: b.owner.svid,
            l_offset: b.offset,
            l_len: b.length,
        };
        let cookie = b.number.to_be_bytes();
        let exclusive = b.kind == LockKind::Exclusive;
        let args = encode(&Testargs { cookie: &cookie, exclusive, alock });
        let callee =
            Callee { program: program::NLM, version: VERSION, procedure: procedure::GRANTED };
        let answer = b.host.route.call(self.options.rpcbind_port, callee, &args).await?;
        let answered = decode::<Res<'_>>(&answer);
        answered.map(|(_, res)| res.stat).map_err(|e| CallFailed::Unanswered(e.to_string()))
    }
}
