//! Sequence numbers of owners in minor version 0: requests of an owner are executed in order, and a retransmission gets the
//! original reply (RFC 7530 section 9.1.7).

use std::sync::Arc;

use super::client::Client;
use super::compound::Compound;
use super::object::Object;
use super::opens::{Held, OwnerName};
use super::owner::{Kept, OpenOwnerSeqid, SeqidCheck};
use super::status::Status;
use super::wire::op;
use vfs::Handle;

/// The owner whose seqid this request uses.
#[derive(Clone, Debug)]
pub(super) enum Owner {
    Open(OwnerName),
    Lock(OwnerName),
}

impl Owner {
    fn order<'h>(&self, held: &'h mut Held) -> Option<&'h mut OpenOwnerSeqid> {
        match self {
            Self::Open(name) => held.open_owners.get_mut(name).map(|o| &mut o.order),
            Self::Lock(name) => held.lock_owners.get_mut(name).map(|o| &mut o.order),
        }
    }
}

/// The decision about a request.
pub(super) enum Begun {
    /// Execute it, then call [`Ticket::end`].
    Do(Ticket),
    /// The call is a retransmission; the value is the original result.
    Done(Result<(), Status>),
}

/// A request that is next in sequence.
pub(super) struct Ticket {
    client: Arc<Client>,
    owner: Option<Owner>,
    opcode: u32,
    mark: usize,
}

/// Waits until the request is next in its owner's sequence. Minor versions with sessions have no such sequence.
pub(super) async fn begin(
    cx: &mut Compound<'_>,
    opcode: u32,
    client: &Arc<Client>,
    owner: Owner,
    seqid: u32,
) -> Result<Begun, Status> {
    let mark = cx.out.len();
    if cx.minor > 0 {
        return Ok(Begun::Do(Ticket { client: client.clone(), owner: None, opcode, mark }));
    }
    let turn = {
        let mut held = client.held();
        let order = owner.order(&mut held).ok_or(Status::BadStateId)?;
        order.begin(seqid, opcode)?
    };
    match turn {
        SeqidCheck::Next => {
            Ok(Begun::Do(Ticket { client: client.clone(), owner: Some(owner), opcode, mark }))
        }
        SeqidCheck::Again(kept) => {
            if let Some(file) = kept.current {
                let found = found_again(cx, file).await?;
                cx.set_current(found);
            }
            cx.out.head().extend_from_slice(&kept.body);
            Ok(Begun::Done(match kept.status {
                Status::Ok => Ok(()),
                status => Err(status),
            }))
        }
    }
}

/// Finds the file of a retransmitted OPEN, with the current rights of the caller, as PUTFH does.
async fn found_again(cx: &Compound<'_>, (share, handle): (u32, Handle)) -> Result<Object, Status> {
    let share = cx.nfs.core.namespace.share(share).filter(|share| share.protocols.nfs());
    let share = share.ok_or(Status::Stale)?;
    let node = share.backend.resolve(&handle).await?;
    Ok(cx.enter(share, node))
}

impl Ticket {
    /// Ends a request with its result; minor version 0 caches the reply.
    pub(super) fn end(self, cx: &Compound<'_>, done: Result<(), Status>) -> Result<(), Status> {
        let Some(owner) = self.owner else { return done };
        let status = done.err().unwrap_or(Status::Ok);
        let has_body = matches!(status, Status::Ok | Status::Denied);
        let body = if has_body { cx.out.copy_from(self.mark) } else { Vec::new() };
        let opcode = self.opcode;
        let current = match &cx.current {
            Some(Object::Node(at)) if opcode == op::OPEN && status == Status::Ok => {
                Some((at.share.id, at.node.handle()))
            }
            _ => None,
        };
        let mut held = self.client.held();
        if let Some(order) = owner.order(&mut held) {
            order.finish(Kept { opcode, status, body: body.into(), current });
        }
        done
    }
}
