//! A client id and a session (RFC 8881 sections 2.4 and 2.10).
//!
//! *Operation.* [`Nfs4::connect`] sends EXCHANGE_ID, CREATE_SESSION and RECLAIM_COMPLETE. Each call takes a slot, queued while all
//! are in use, and gets its sequence number.
//!
//! *Errors.* A call without a reply leaves its slot with a number that the server may or may not have seen. The session is then
//! useless, but so is the connection.

use std::sync::{Arc, Mutex, MutexGuard};

use mutex::locked;
use nfs_proto::nfs4::op;
use nfs_proto::nfs4::ops::{
    CallbackSecParms4, ChannelAttrs4, CreateSession, ExchangeId, Exchanged, SessionCreated,
    StateProtect4,
};
use rdma_transport::caller::Answer;
use tokio::sync::Semaphore;

use super::callback::CB_PROGRAM;
use super::compound::{Compound, Results};
use crate::error::Result;
use crate::rpc::{Credential, Rpc};

/// The minor version of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Minor {
    /// 4.1
    One = 1,
    /// 4.2
    Two = 2,
}

/// Number of slots requested.
const SLOTS_WANTED: u32 = 64;
/// Maximum request and reply size requested: 1 MiB of data and its framing.
const MESSAGE_MAX: u32 = (1 << 20) + 4096;

/// Builds `channel_attrs4` without header padding and without an RDMA read depth.
fn channel(message: u32, cached: u32, operations: u32, requests: u32) -> ChannelAttrs4 {
    ChannelAttrs4 {
        headerpadsize: 0,
        maxrequestsize: message,
        maxresponsesize: message,
        maxresponsesize_cached: cached,
        maxoperations: operations,
        maxrequests: requests,
        rdma_ird: Vec::new(),
    }
}

struct Slots {
    free: Vec<u32>,
    /// The next sequence number of each slot.
    next: Vec<u32>,
}

struct Inner {
    rpc: Rpc,
    cred: Credential,
    minor: Minor,
    clientid: u64,
    session: [u8; 16],
    slots: Mutex<Slots>,
    turns: Semaphore,
}

impl Inner {
    fn slots(&self) -> MutexGuard<'_, Slots> {
        locked(&self.slots)
    }
}

/// A session. Clones share it.
#[derive(Clone)]
pub struct Nfs4(Arc<Inner>);

impl Nfs4 {
    /// Creates a client id for `owner`, and a session on this connection with a backchannel. A second call with the same owner and
    /// another `verifier` denotes a restarted client. The client reclaims no state.
    pub async fn connect(
        rpc: Rpc,
        cred: Credential,
        minor: Minor,
        owner: &[u8],
        verifier: [u8; 8],
    ) -> Result<Self> {
        let this = Self::to_reclaim(rpc, cred, minor, owner, verifier).await?;
        this.reclaim_complete().await?;
        Ok(this)
    }

    /// Like [`Nfs4::connect`], for a client that may have had state when the server restarted. It should reclaim the state and then
    /// call [`Nfs4::reclaim_complete`].
    pub async fn to_reclaim(
        rpc: Rpc,
        cred: Credential,
        minor: Minor,
        owner: &[u8],
        verifier: [u8; 8],
    ) -> Result<Self> {
        let (clientid, sequence) = exchange_id(&rpc, &cred, minor, owner, verifier).await?;
        let (session, slots) = create_session(&rpc, &cred, minor, clientid, sequence).await?;
        Ok(Self(Arc::new(Inner {
            rpc,
            cred,
            minor,
            clientid,
            session,
            turns: Semaphore::new(usize::try_from(slots).unwrap_or(1)),
            slots: Mutex::new(Slots {
                free: (0..slots).rev().collect(),
                next: (0..slots).map(|_| 1).collect(),
            }),
        })))
    }

    pub fn rpc(&self) -> &Rpc {
        &self.0.rpc
    }

    pub(crate) fn cred(&self) -> &Credential {
        &self.0.cred
    }

    pub fn clientid(&self) -> u64 {
        self.0.clientid
    }

    pub fn session_id(&self) -> [u8; 16] {
        self.0.session
    }

    /// Starts a COMPOUND with SEQUENCE.
    pub fn compound(&self) -> Compound {
        self.compound_of(&self.0.cred)
    }

    /// Like [`Nfs4::compound`], as another user of the same client.
    pub fn compound_of(&self, cred: &Credential) -> Compound {
        Compound::new(cred, self.0.minor as u32).sequence(self.0.session, false)
    }

    /// Sends a COMPOUND in a free slot with its next number.
    pub async fn call(&self, mut compound: Compound) -> Result<Answer> {
        // The semaphore is never closed; otherwise the call would find no free slot.
        let _turn = self.0.turns.acquire().await;
        let (slot, sequence, highest) = {
            let mut slots = self.0.slots();
            let slot = slots.free.pop().unwrap_or(0);
            let index = usize::try_from(slot).unwrap_or(0);
            let sequence = slots.next[index];
            slots.next[index] = sequence.wrapping_add(1);
            (slot, sequence, u32::try_from(slots.next.len() - 1).unwrap_or(0))
        };
        compound.number(sequence, slot, highest);
        let (args, place) = compound.finish();
        let answer = self.0.rpc.call(args, place).await;
        self.0.slots().free.push(slot);
        answer
    }

    /// Sends a COMPOUND whose results do not matter.
    pub(super) async fn plain(&self, compound: Compound, ops: &[u32]) -> Result<()> {
        let answer = self.call(compound).await?;
        let mut results = Results::new(&answer)?;
        results.sequence()?;
        for op in ops {
            results.next::<()>(*op)?;
        }
        Ok(())
    }

    /// RECLAIM_COMPLETE
    pub async fn reclaim_complete(&self) -> Result<()> {
        // For the whole server, not a single file system.
        let c = self.compound().op(op::RECLAIM_COMPLETE, &false);
        self.plain(c, &[op::RECLAIM_COMPLETE]).await
    }

    /// DESTROY_SESSION, then DESTROY_CLIENTID.
    pub async fn destroy(self) -> Result<()> {
        let head = || Compound::new(&self.0.cred, self.0.minor as u32);
        let (args, place) = head().op(op::DESTROY_SESSION, &self.0.session).finish();
        let answer = self.0.rpc.call(args, place).await?;
        Results::new(&answer)?.next::<()>(op::DESTROY_SESSION)?;
        let (args, place) = head().op(op::DESTROY_CLIENTID, &self.0.clientid).finish();
        let answer = self.0.rpc.call(args, place).await?;
        Results::new(&answer)?.next(op::DESTROY_CLIENTID)
    }
}

async fn exchange_id(
    rpc: &Rpc,
    cred: &Credential,
    minor: Minor,
    owner: &[u8],
    verifier: [u8; 8],
) -> Result<(u64, u32)> {
    let asked = ExchangeId {
        verifier,
        ownerid: owner,
        flags: 0,
        state_protect: StateProtect4::None,
        client_impl_id: Vec::new(),
    };
    let (args, place) = Compound::new(cred, minor as u32).op(op::EXCHANGE_ID, &asked).finish();
    let answer = rpc.call(args, place).await?;
    let done: Exchanged<'_> = Results::new(&answer)?.next(op::EXCHANGE_ID)?;
    Ok((done.clientid, done.sequenceid))
}

async fn create_session(
    rpc: &Rpc,
    cred: &Credential,
    minor: Minor,
    clientid: u64,
    sequence: u32,
) -> Result<([u8; 16], u32)> {
    const CONN_BACK_CHAN: u32 = 2;
    let asked = CreateSession {
        clientid,
        sequence,
        flags: CONN_BACK_CHAN,
        fore_chan_attrs: channel(MESSAGE_MAX, 4096, 16, SLOTS_WANTED),
        back_chan_attrs: channel(4096, 4096, 8, 1),
        cb_program: CB_PROGRAM,
        sec_parms: vec![CallbackSecParms4::None],
    };
    let (args, place) = Compound::new(cred, minor as u32).op(op::CREATE_SESSION, &asked).finish();
    let answer = rpc.call(args, place).await?;
    let done: SessionCreated = Results::new(&answer)?.next(op::CREATE_SESSION)?;
    Ok((done.sessionid, done.fore_chan_attrs.maxrequests.clamp(1, SLOTS_WANTED)))
}
