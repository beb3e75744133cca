//! Sessions (RFC 8881 section 2.10): slots of the fore channel, and connections of the backchannel.
//!
//! # States of a session
//!
//! ```text
//!   CREATE_SESSION             DESTROY_SESSION, or the client is dissolved
//!   --------------> ACTIVE -----------------------------------------------> DEAD
//! ```
//!
//! | event | function | effect |
//! |---|---|---|
//! | CREATE_SESSION | `ops::create_session::make` | ACTIVE; this connection is bound for calls, and for callbacks if requested |
//! | BIND_CONN_TO_SESSION | [`Session::bind_fore`], [`Back::bind`] | one more connection for calls, callbacks or both |
//! | a connection closes | [`Session::unbind_fore`], [`Back::unbind`] | the session stays |
//! | SEQUENCE with a new number | [`SlotUse::new`] | its slot is in use, and the client's lease cannot lapse |
//! | the COMPOUND ends | [`SlotUse::finish`] | the slot is free, with or without a cached reply ([`super::slots`]) |
//! | DESTROY_SESSION, no other slot in use | [`Session::kill`] | DEAD |
//! | the client is dissolved | [`Session::kill`] | DEAD |
//! | SEQUENCE after that, or after the client's lease has ended | `ops::sequence` | NFS4ERR_BADSESSION |
//!
//! ```text
//!   backchannel:          bind                           closed, no answer
//!              NO CONNECTION ----> WORKS ---------------------------------> NO CONNECTION
//!                                   | ^
//!        answer against the protocol| | bind
//!                                   v |
//!                                  FAULT
//! ```
//!
//! If the client wanted a backchannel, SEQUENCE reports NO CONNECTION as SEQ4_STATUS_CB_PATH_DOWN_SESSION. It reports FAULT as
//! SEQ4_STATUS_BACKCHANNEL_FAULT.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use mutex::locked;
use nfs_proto::nfs4::SESSIONID_SIZE;
use nfs_proto::nfs4::ops::CallbackSecParms4;
use nfs_proto::oncrpc::{AUTH_SYS, OpaqueAuth};
use nfs_proto::xdr::encode;
use rdma_transport::channel::Handle;

use super::channel_attrs::ChannelAttrs;
use super::client::Client;
use super::limits;
use super::room::Pinned;
use super::slots::Slots;
use crate::context::Conn;
use crate::pace::Waits;
use rdma_transport::xdr::Writer;
use state::Millis;

pub(super) type SessionId = [u8; SESSIONID_SIZE];

/// The credential of callbacks (`callback_sec_parms4`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallbackCred {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS, with the credential's body as the client sent it.
    Sys(Vec<u8>),
}

impl CallbackCred {
    /// The first usable entry of the client's list; `None` if all are RPCSEC_GSS.
    pub(super) fn first_of(list: &[CallbackSecParms4<'_>]) -> Option<Self> {
        list.iter().find_map(|parms| match parms {
            CallbackSecParms4::None => Some(Self::None),
            CallbackSecParms4::Sys(body) => Some(Self::Sys(encode(body))),
            CallbackSecParms4::Gss(_) => None,
        })
    }

    /// Converts to the credential of a call.
    pub(super) fn as_auth(&self) -> OpaqueAuth<'_> {
        match self {
            Self::None => OpaqueAuth::NONE,
            Self::Sys(body) => OpaqueAuth { flavor: AUTH_SYS, body },
        }
    }
}

/// A connection that carries callbacks.
#[derive(Clone, Debug)]
pub(super) struct BackConn {
    pub(super) id: u64,
    pub(super) handle: Handle,
}

#[derive(Debug)]
pub(super) struct Back {
    /// The client requested a backchannel at CREATE_SESSION.
    pub(super) wanted: bool,
    pub(super) program: u32,
    pub(super) cred: Option<CallbackCred>,
    pub(super) conns: Vec<BackConn>,
    /// For each slot, the number of the last request, and whether it waits for an answer.
    pub(super) slots: Vec<(u32, bool)>,
    /// The answer to a callback violated the protocol.
    pub(super) fault: bool,
}

impl Back {
    /// The newest open connection.
    pub(super) fn conn(&mut self) -> Option<BackConn> {
        self.conns.retain(|c| !c.handle.is_closed());
        self.conns.last().cloned()
    }

    /// True if callbacks are possible.
    pub(super) fn works(&mut self) -> bool {
        self.cred.is_some() && !self.slots.is_empty() && !self.fault && self.conn().is_some()
    }

    /// Binds a connection. At the limit the oldest is removed.
    pub(super) fn bind(&mut self, conn: &Conn) {
        self.unbind(conn.id);
        if self.conns.len() >= limits::BACK_CONNS_MAX {
            self.conns.remove(0);
        }
        self.conns.push(BackConn { id: conn.id, handle: conn.handle.clone() });
        self.fault = false;
    }

    /// True if this connection is bound for callbacks.
    pub(super) fn has(&self, id: u64) -> bool {
        self.conns.iter().any(|c| c.id == id)
    }

    /// Removes a connection from the session.
    pub(super) fn unbind(&mut self, id: u64) {
        self.conns.retain(|c| c.id != id);
    }
}

pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) client: Arc<Client>,
    /// The minor version of CREATE_SESSION, which callbacks use.
    pub(super) minor: u32,
    pub(super) fore: ChannelAttrs,
    pub(super) back_attrs: ChannelAttrs,
    /// The memory reserved for cached replies.
    _pinned: Pinned,
    slots: Mutex<Slots>,
    back: Mutex<Back>,
    /// Connections that may carry calls, if the client is bound to its machine's credential; otherwise any connection may.
    fore_conns: Mutex<VecDeque<u64>>,
    dead: AtomicBool,
    /// Calls that wait for a rate.
    rate_waits: AtomicUsize,
}

impl Session {
    pub(super) fn new(
        id: SessionId,
        client: Arc<Client>,
        minor: u32,
        (fore, pinned): (ChannelAttrs, Pinned),
        back_attrs: ChannelAttrs,
        back: Back,
    ) -> Self {
        let slots = Mutex::new(Slots::new(fore.slots));
        Self {
            id,
            client,
            minor,
            fore,
            back_attrs,
            _pinned: pinned,
            slots,
            back: Mutex::new(back),
            fore_conns: Mutex::default(),
            dead: false.into(),
            rate_waits: AtomicUsize::new(0),
        }
    }

    /// Returns the calls that wait for a rate: a quarter of the slots is left to others.
    pub(super) fn rate_waits(&self) -> Waits<'_> {
        let slots = usize::try_from(self.fore.slots).unwrap_or(usize::MAX);
        Waits { now: &self.rate_waits, most: (slots.saturating_mul(3) / 4).max(1) }
    }

    pub(super) fn slots(&self) -> MutexGuard<'_, Slots> {
        locked(&self.slots)
    }

    pub(super) fn back(&self) -> MutexGuard<'_, Back> {
        locked(&self.back)
    }

    fn fore_conns(&self) -> MutexGuard<'_, VecDeque<u64>> {
        locked(&self.fore_conns)
    }

    /// Binds a connection for calls. At the limit the oldest is removed, and its client binds it again.
    pub(super) fn bind_fore(&self, conn: u64) {
        if self.client.bound.is_none() {
            return;
        }
        let mut conns = self.fore_conns();
        conns.retain(|&id| id != conn);
        if conns.len() >= limits::FORE_CONNS_MAX {
            conns.pop_front();
        }
        conns.push_back(conn);
    }

    /// Removes a closed connection.
    pub(super) fn unbind_fore(&self, conn: u64) {
        if self.client.bound.is_some() {
            self.fore_conns().retain(|&id| id != conn);
        }
    }

    /// True if the connection may carry calls (RFC 8881 section 2.10.3.1): any connection, unless binding is enforced.
    pub(super) fn takes_calls_of(&self, conn: u64) -> bool {
        self.client.bound.is_none() || self.fore_conns().contains(&conn)
    }

    /// True after DESTROY_SESSION; requests in progress complete.
    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    pub(super) fn kill(&self) {
        self.dead.store(true, Ordering::Release);
    }
}

/// A slot occupied by a COMPOUND. The client's lease cannot lapse meanwhile.
pub(super) struct SlotUse {
    pub(super) session: Arc<Session>,
    slot: u32,
    /// The reply must be cached.
    keep: bool,
    /// Time of the client's last request.
    heard: Millis,
}

impl SlotUse {
    /// Occupies a slot; `None` if the client's lease has ended.
    pub(super) fn new(session: Arc<Session>, slot: u32, keep: bool, now: Millis) -> Option<Self> {
        session.client.lease.begin_request(now).then_some(Self { session, slot, keep, heard: now })
    }

    /// Ends the COMPOUND; its reply begins at `start`.
    pub(super) fn finish(mut self, out: &Writer, start: usize, now: Millis) {
        let reply = self.keep.then(|| Arc::from(out.copy_from(start)));
        self.session.slots().finish(self.slot, reply);
        self.heard = now;
    }
}

impl Drop for SlotUse {
    fn drop(&mut self) {
        self.session.client.lease.end_request(self.heard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs_proto::nfs4::ops::GssCbHandles4;
    use nfs_proto::oncrpc::AuthSys;

    #[test]
    fn first_usable_callback_credential_is_taken() {
        let gss = || {
            let (service, handle_from_server, handle_from_client) = (1, &[][..], &[][..]);
            CallbackSecParms4::Gss(GssCbHandles4 {
                service,
                handle_from_server,
                handle_from_client,
            })
        };
        let sys = AuthSys { stamp: 7, machinename: b"me", uid: 1, gid: 2, gids: vec![3] };
        let cred = CallbackCred::first_of(&[gss(), CallbackSecParms4::Sys(sys.clone())]).unwrap();
        let auth = cred.as_auth();
        assert_eq!((auth.flavor, auth.body), (1, &encode(&sys)[..]));
        let none = [gss(), CallbackSecParms4::None, CallbackSecParms4::Sys(sys)];
        assert_eq!(CallbackCred::first_of(&none).map(|c| c.as_auth().flavor), Some(0));
        assert_eq!(CallbackCred::first_of(&[gss()]), None);
    }
}
