//! Operations that minor version 0 counts for an owner: each waits for its turn, and a repetition gets the reply of the
//! original (RFC 7530 section 9.1.7).

use std::sync::Arc;

use super::client::Client;
use super::compound::Compound;
use super::object::Object;
use super::opens::{Held, OwnerName};
use super::owner::{Kept, OpenOwnerSeqid, SeqidCheck};
use super::status::Status;
use super::wire::op;
use vfs::Handle;

/// Whose order a request is counted in.
#[derive(Clone, Debug)]
pub(super) enum Owner {
    /// An open owner.
    Open(OwnerName),
    /// A lock owner.
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

/// What to do with a request.
pub(super) enum Begun {
    /// Do it, then [`Ticket::end`].
    Do(Ticket),
    /// It was a repetition, and this is how it ended.
    Done(Result<(), Status>),
}

/// A request whose turn it is.
pub(super) struct Ticket {
    client: Arc<Client>,
    owner: Option<Owner>,
    opcode: u32,
    mark: usize,
}

/// Asks whether it is this request's turn. Minor versions with sessions have no such order.
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

/// The file of an OPEN that is repeated, for the caller of the repetition: its rights are judged as PUTFH judges them.
async fn found_again(cx: &Compound<'_>, (share, handle): (u32, Handle)) -> Result<Object, Status> {
    let share = cx.nfs.core.namespace.share(share).filter(|share| share.protocols.nfs());
    let share = share.ok_or(Status::Stale)?;
    let node = share.backend.resolve(&handle).await?;
    Ok(cx.enter(share, node))
}

impl Ticket {
    /// The operation has ended like this; minor version 0 keeps the reply.
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
