//! Grants waiting locks: retries them and notifies their hosts (GRANTED, RFC 1813 section 6.3.5).
//!
//! *Operation.* While requests wait, one task tries all of them, oldest first, after each release. A granted lock gets its own
//! task, which calls the host until it answers.
//!
//! *Memory.* One small task for each granted lock whose host has not answered.
//!
//! *Errors.* A host that lost access to the share while it waited is not granted the lock; its repeated request is refused. A host
//! that no longer wants the lock, or is unreachable for [`limits::GRANT_SECONDS_MAX`], loses it. A host that may have received the
//! notice keeps it: perhaps only its answer was lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nfs_proto::nlm::{Lock, Res, Testargs};
use nfs_proto::xdr::{decode, encode};
use state::LockKind;
use tokio::time::sleep;

use super::blocked::Blocked;
use super::locks::Taken;
use super::patience::Patience;
use super::{Nlm, Stat, VERSION, limits, procedure};
use crate::rpc::callee::Callee;
use crate::rpc::outgoing::CallFailed;
use crate::rpc::program;

impl Nlm {
    /// Starts the task that retries waiting requests until the queue is empty.
    pub(super) fn drive(&self) {
        let Some(me) = self.me.upgrade() else { return };
        tokio::spawn(async move { me.try_all_until_none().await });
    }

    async fn try_all_until_none(self: Arc<Self>) {
        let arbiter = self.core().namespace.arbiter();
        loop {
            // Enabled before the attempts, so that a release between attempt and wait is not missed.
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
        // Test first: a lock that conflicts must not leave even a brief open of the file behind.
        let arbiter = self.core().namespace.arbiter();
        let mine = b.host.held().get(&(b.owner.clone(), b.node.id())).map(|h| h.party.holder);
        let holder = mine.unwrap_or(state::HolderId(0));
        let verdict = arbiter.state().test(b.node.id(), holder, b.range, b.kind, arbiter.now());
        if matches!(verdict, state::LockVerdict::Denied(_)) {
            return;
        }
        if !self.may_still(&b) {
            // GRANTED has no way to report a refusal: the client repeats its LOCK, and that call is refused.
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

    /// True if the share would still grant the lock to a new request: a reload may have changed its rules.
    fn may_still(&self, b: &Blocked) -> bool {
        let core = self.core();
        let Some(share) = core.namespace.share(b.fh.share()) else { return false };
        let addresses = (b.host.key.ip, b.host.route.from());
        let entered = core.enter_later(addresses, &b.cred, share);
        entered.is_ok_and(|e| b.kind == LockKind::Shared || !e.share.read_only)
    }

    async fn tell_until_answered(&self, b: &Blocked) {
        let mut patience = Patience::new(limits::GRANT_SECONDS_MAX);
        let mut may_have_heard = false;
        // A cancel, a repetition or a restart of the host removes the entry, and the notice is no longer needed.
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
                    patience.failed(&e);
                    tracing::debug!(host = %b.host.key.ip, error = %e, "GRANTED");
                }
            }
            let Some(pause) = patience.pause() else {
                self.counters.untold.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    host = %b.host.key.ip, kept = may_have_heard,
                    "a client could not be notified of a granted lock; {}", patience.advice()
                );
                if may_have_heard {
                    self.queue.leave(b.number);
                } else {
                    self.take_back(b);
                }
                return;
            };
            sleep(pause).await;
        }
    }

    fn take_back(&self, b: &Blocked) {
        if self.queue.leave(b.number) {
            self.give_back(&b.host, &b.owner, Some(b.node.id()), &b.fh, b.range);
        }
    }

    /// Sends one GRANTED and returns the host's status.
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
