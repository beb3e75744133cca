//! SEQUENCE (RFC 8881 section 18.46): takes the slot, renews the lease, and reports the status of the client's state. Only a
//! successful SEQUENCE renews the lease (section 18.46.3).

use nfs_proto::nfs4::ops::{Sequence, Sequenced};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::v4::clients::ms;
use crate::v4::compound::{Compound, ReplyLimits};
use crate::v4::limits::REPLY_MAX;
use crate::v4::session::{Session, SlotUse};
use crate::v4::slots::{Begin, SlotError, fingerprint};
use crate::v4::status::Status;

const CB_PATH_DOWN: u32 = 0x0000_0001;
const ADMIN_STATE_REVOKED: u32 = 0x0000_0020;
const RECALLABLE_STATE_REVOKED: u32 = 0x0000_0040;
const CB_PATH_DOWN_SESSION: u32 = 0x0000_0200;
const BACKCHANNEL_FAULT: u32 = 0x0000_0400;

/// Bytes after the SEQUENCE that identify a request. No more: they may be followed by data, which is inside or outside the message,
/// depending on the transport.
const TOLD_BY: usize = 56;

pub(in crate::v4) async fn sequence(cx: &mut Compound<'_>) -> Result<(), Status> {
    let asked: Sequence = cx.args.value()?;
    let (id, sequence, slot) = (asked.sessionid, asked.sequenceid, asked.slotid);
    let (highest_used, keep) = (asked.highest_slotid, asked.cachethis);
    let clients = &cx.nfs.clients;
    let session = clients.sessions.get(&id).map(|s| s.clone()).ok_or(Status::BadSession)?;
    // The time at which the call arrived is exact enough, so the clock is not read again.
    let now = ms(cx.call.now);
    if session.is_dead() || session.client.lease.has_ended() {
        return Err(Status::BadSession);
    }
    let fits = |n: usize, max: u32| u32::try_from(n).is_ok_and(|n| n <= max);
    if !fits(cx.count, session.fore.ops_max) {
        return Err(Status::TooManyOps);
    }
    if !fits(cx.args.position() + cx.args.remaining(), session.fore.request_max) {
        return Err(Status::ReqTooBig);
    }
    let highest = session.fore.slots - 1;
    if slot <= highest && highest_used > highest {
        return Err(Status::BadHighSlot);
    }
    let rest = cx.args.rest();
    let seed = u64::from(cx.call.cred.uid) << 32 | (cx.count as u64) << 1 | u64::from(keep);
    // The principal is part of the key: two principals may map to the same user, but must not get each other's cached replies.
    #[allow(clippy::cast_possible_truncation)] // Part of a fingerprint is a valid fingerprint.
    let principal = cx.call.principal as u64;
    let mark = fingerprint(&rest[..rest.len().min(TOLD_BY)], seed ^ principal);
    let begun = {
        let mut slots = session.slots();
        // A cached reply is returned over any connection, as by Linux' server: a client whose connection broke would otherwise take
        // an executed request for refused. New requests need a bound connection.
        if slots.is_next(slot, sequence) && !session.takes_calls_of(cx.conn.id) {
            return Err(Status::ConnNotBoundToSession);
        }
        slots.begin(slot, sequence, mark)
    };
    match begun {
        Ok(Begin::New) => {
            // The reply to a lone SEQUENCE is small, so it is always cached.
            let kept = keep || cx.count == 1;
            let used = SlotUse::new(session.clone(), slot, kept, now);
            cx.slot = Some(used.ok_or(Status::BadSession)?);
        }
        Ok(Begin::Replay(reply)) => {
            session.client.lease.renew(now);
            clients.counters.replays.fetch_add(1, Ordering::Relaxed);
            cx.replay = Some(reply);
            return Ok(());
        }
        Ok(Begin::Uncached) => {
            session.client.lease.renew(now);
            cx.refuse_rest = Some(Status::RetryUncachedRep);
        }
        Err(SlotError::BadSlot) => return Err(Status::BadSlot),
        Err(SlotError::Misordered) => return Err(Status::SeqMisordered),
        Err(SlotError::Busy) => return Err(Status::Delay),
        Err(SlotError::FalseRetry) => return Err(Status::SeqFalseRetry),
    }
    clients.tidy(now);
    cx.client = Some(session.client.clone());
    let size = |n: u32| usize::try_from(n).unwrap_or(REPLY_MAX);
    cx.limits = ReplyLimits {
        reply_max: size(session.fore.response_max).min(REPLY_MAX),
        cached_max: keep.then(|| size(session.fore.cached_max)),
    };
    cx.out.value(&Sequenced {
        sessionid: id,
        sequenceid: sequence,
        slotid: slot,
        highest_slotid: highest,
        target_highest_slotid: highest,
        status_flags: status_flags(&session),
    });
    Ok(())
}

fn status_flags(session: &Arc<Session>) -> u32 {
    let mut flags = 0;
    {
        let mut back = session.back();
        if back.fault {
            flags |= BACKCHANNEL_FAULT;
        }
        if back.wanted && back.conn().is_none() {
            // RFC 8881 section 18.46.3: the second flag is about this session, the first about all sessions of the client.
            flags |= CB_PATH_DOWN_SESSION | CB_PATH_DOWN;
        }
    }
    if flags & CB_PATH_DOWN != 0
        && session.client.sessions().iter().any(|s| s.id != session.id && s.back().works())
    {
        flags &= !CB_PATH_DOWN;
    }
    if session.client.revoked.load(Ordering::Acquire) > 0 {
        flags |= RECALLABLE_STATE_REVOKED;
    }
    if session.client.admin_revoked.load(Ordering::Acquire) > 0 {
        flags |= ADMIN_STATE_REVOKED;
    }
    flags
}
