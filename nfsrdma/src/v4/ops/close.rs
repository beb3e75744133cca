//! CLOSE (RFC 8881 section 18.2, RFC 7530 section 16.2). Closing an open also releases its locks.

use crate::v4::compound::Compound;
use crate::v4::open_owner_seqid::{self, Begun, Owner};
use crate::v4::opens::Entry;
use crate::v4::resolve::{ResolvedStateid, resolve};
use crate::v4::stateid::{self, compose};
use crate::v4::status::Status;
use crate::v4::wire::{Stateid, op};
use nfs_proto::nfs4::ops::Close;

pub(in crate::v4) async fn close(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Close { seqid, open_stateid: stateid } = cx.args.value()?;
    cx.proves_enough()?;
    let named = resolve(cx, stateid)?;
    let owner = {
        let held = named.client.held();
        match held.get(named.number) {
            Some(Entry::Open(o)) => o.owner.clone(),
            Some(Entry::Closed(owner)) => owner.clone(),
            _ => return Err(Status::BadStateId),
        }
    };
    match open_owner_seqid::begin(cx, op::CLOSE, &named.client, Owner::Open(owner), seqid).await? {
        Begun::Done(done) => done,
        Begun::Do(ticket) => {
            let done = close_now(cx, &named);
            ticket.end(cx, done)
        }
    }
}

fn close_now(cx: &mut Compound<'_>, named: &ResolvedStateid) -> Result<(), Status> {
    let file = cx.given_back()?.file();
    let arbiter = cx.nfs.core.namespace.arbiter();
    let last = {
        let mut held = named.client.held();
        named.entry(&mut held, file, cx.minor)?;
        held.close(named.number, cx.minor, arbiter.state())?
    };
    arbiter.released();
    let id = if cx.minor == 0 {
        compose(named.client.id, named.number, stateid::next(last))
    } else {
        // RFC 8881 section 18.2.4: the returned stateid must not be usable.
        Stateid::INVALID
    };
    cx.out.value(&id);
    cx.current_stateid = None;
    Ok(())
}
