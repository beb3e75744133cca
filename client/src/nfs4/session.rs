//! A client id and a session (RFC 8881 sections 2.4 and 2.10).
//!
//! *Operation.* [`Nfs4::connect`] does EXCHANGE_ID, CREATE_SESSION and RECLAIM_COMPLETE. Each call takes a slot, waits in
//! line when all are taken, and numbers it.
//!
//! *Errors.* A call that got no answer leaves its slot with a number that the server may or may not have seen; the session is
//! of no further use then, as the connection is gone too.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nfs_proto::nfs4::op;
use nfsrdma::xdr::{Reader, Writer, XdrResult};
use rdma_transport::caller::Answer;
use tokio::sync::Semaphore;

use super::callback::CB_PROGRAM;
use super::compound::{Compound, Results};
use crate::error::Result;
use crate::rpc::{Credential, Rpc};

/// Which minor version a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Minor {
    /// 4.1
    One = 1,
    /// 4.2
    Two = 2,
}

/// Slots asked for.
const SLOTS_WANTED: u32 = 64;
/// Largest request and reply asked for: 1 MiB of data and what surrounds it.
const MESSAGE_MAX: u32 = (1 << 20) + 4096;

/// `channel_attrs4`
struct ChannelAttrs {
    requests: u32,
}

fn put_channel(w: &mut Writer, message: u32, cached: u32, operations: u32, requests: u32) {
    // No header padding, no RDMA IRD.
    for word in [0, message, message, cached, operations, requests, 0] {
        w.u32(word);
    }
}

fn read_channel(r: &mut Reader<'_>) -> XdrResult<ChannelAttrs> {
    let (_pad, _request, _reply, _cached, _operations) =
        (r.u32()?, r.u32()?, r.u32()?, r.u32()?, r.u32()?);
    let requests = r.u32()?;
    for _ in 0..r.count(1)? {
        r.u32()?;
    }
    Ok(ChannelAttrs { requests })
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
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session. Clones share it.
#[derive(Clone)]
pub struct Nfs4(Arc<Inner>);

impl Nfs4 {
    /// A new client id for `owner`, and a session on this connection with a backchannel. A second call with the same owner
    /// and another `verifier` is a client that has restarted. It has nothing to reclaim.
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

    /// As [`Nfs4::connect`], for a client that may have held something of a server that has restarted. It reclaims that, and then
    /// says [`Nfs4::reclaim_complete`].
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

    /// The connection.
    pub fn rpc(&self) -> &Rpc {
        &self.0.rpc
    }

    /// The client id.
    pub fn clientid(&self) -> u64 {
        self.0.clientid
    }

    /// The session id.
    pub fn session_id(&self) -> [u8; 16] {
        self.0.session
    }

    /// A COMPOUND that begins with SEQUENCE.
    pub fn compound(&self) -> Compound {
        Compound::new(&self.0.cred, self.0.minor as u32).sequence(&self.0.session, false)
    }

    /// Calls with the next number of a free slot.
    pub async fn call(&self, mut compound: Compound) -> Result<Answer> {
        // The semaphore is never closed; were it, the call would go on without a turn and find no slot.
        let _turn = self.0.turns.acquire().await;
        let (slot, sequence, highest) = {
            let mut slots = self.0.slots();
            let slot = slots.free.pop().unwrap_or(0);
            let index = usize::try_from(slot).unwrap_or(0);
            let sequence = slots.next[index];
            slots.next[index] = sequence.wrapping_add(1);
            (slot, sequence, u32::try_from(slots.next.len() - 1).unwrap_or(0))
        };
        compound.patch_sequence(sequence, slot, highest);
        let (args, place) = compound.finish();
        let answer = self.0.rpc.call(args, place).await;
        self.0.slots().free.push(slot);
        answer
    }

    /// A COMPOUND of operations without results that are of interest.
    pub(super) async fn plain(&self, compound: Compound, ops: &[u32]) -> Result<()> {
        let answer = self.call(compound).await?;
        let mut results = Results::new(&answer)?;
        results.sequence()?;
        for op in ops {
            results.next(*op)?;
        }
        Ok(())
    }

    /// RECLAIM_COMPLETE
    pub async fn reclaim_complete(&self) -> Result<()> {
        let mut c = self.compound();
        // Of the whole server, not of one file system.
        c.op(op::RECLAIM_COMPLETE).bool(false);
        self.plain(c, &[op::RECLAIM_COMPLETE]).await
    }

    /// DESTROY_SESSION, then DESTROY_CLIENTID.
    pub async fn destroy(self) -> Result<()> {
        let mut c = Compound::new(&self.0.cred, self.0.minor as u32);
        c.op(op::DESTROY_SESSION).fixed(&self.0.session);
        let (args, place) = c.finish();
        let answer = self.0.rpc.call(args, place).await?;
        Results::new(&answer)?.next(op::DESTROY_SESSION)?;
        let mut c = Compound::new(&self.0.cred, self.0.minor as u32);
        c.op(op::DESTROY_CLIENTID).u64(self.0.clientid);
        let (args, place) = c.finish();
        let answer = self.0.rpc.call(args, place).await?;
        Results::new(&answer)?.next(op::DESTROY_CLIENTID)?;
        Ok(())
    }
}

async fn exchange_id(
    rpc: &Rpc,
    cred: &Credential,
    minor: Minor,
    owner: &[u8],
    verifier: [u8; 8],
) -> Result<(u64, u32)> {
    let mut c = Compound::new(cred, minor as u32);
    let w = c.op(op::EXCHANGE_ID);
    w.fixed(&verifier);
    w.opaque(owner);
    // No flags, SP4_NONE, no implementation id.
    (0..3).for_each(|_| w.u32(0));
    let (args, place) = c.finish();
    let answer = rpc.call(args, place).await?;
    let mut results = Results::new(&answer)?;
    let r = results.next(op::EXCHANGE_ID)?;
    Ok((r.u64()?, r.u32()?))
}

async fn create_session(
    rpc: &Rpc,
    cred: &Credential,
    minor: Minor,
    clientid: u64,
    sequence: u32,
) -> Result<([u8; 16], u32)> {
    const CONN_BACK_CHAN: u32 = 2;
    let mut c = Compound::new(cred, minor as u32);
    let w = c.op(op::CREATE_SESSION);
    w.u64(clientid);
    w.u32(sequence);
    w.u32(CONN_BACK_CHAN);
    put_channel(w, MESSAGE_MAX, 4096, 16, SLOTS_WANTED);
    put_channel(w, 4096, 4096, 8, 1);
    w.u32(CB_PROGRAM);
    // One kind of security for callbacks: AUTH_NONE.
    w.u32(1);
    w.u32(0);
    let (args, place) = c.finish();
    let answer = rpc.call(args, place).await?;
    let mut results = Results::new(&answer)?;
    let r = results.next(op::CREATE_SESSION)?;
    let session = r.fixed()?;
    let (_sequence, _flags) = (r.u32()?, r.u32()?);
    let slots = read_channel(r)?.requests.clamp(1, SLOTS_WANTED);
    Ok((session, slots))
}
