//! OPEN_CONFIRM (RFC 7530 section 16.18).

use crate::v4::compound::Compound;
use crate::v4::open_owner_seqid::{self, Begun, Owner};
use crate::v4::opens::Entry;
use crate::v4::resolve::{ResolvedStateid, resolve};
use crate::v4::stateid::{self, compose};
use crate::v4::status::Status;
use crate::v4::wire::op;
use nfs_proto::nfs4::ops::OpenConfirm;

pub(in crate::v4) async fn open_confirm(cx: &mut Compound<'_>) -> Result<(), Status> {
    let OpenConfirm { open_stateid: stateid, seqid } = cx.args.value()?;
    let named = resolve(cx, stateid)?;
    let owner = {
        let held = named.client.held();
        held.open(named.number).map(|o| o.owner.clone()).ok_or(Status::BadStateId)?
    };
    match open_owner_seqid::begin(cx, op::OPEN_CONFIRM, &named.client, Owner::Open(owner), seqid)
        .await?
    {
        Begun::Done(done) => done,
        Begun::Do(ticket) => {
            let done = confirm(cx, &named);
            ticket.end(cx, done)
        }
    }
}

fn confirm(cx: &mut Compound<'_>, named: &ResolvedStateid) -> Result<(), Status> {
    let file = cx.node()?.file();
    let mut held = named.client.held();
    let Entry::Open(open) = named.entry(&mut held, file, cx.minor)? else {
        return Err(Status::BadStateId);
    };
    let owner = open.owner.clone();
    let owner = held.open_owners.get_mut(&owner).ok_or(Status::BadStateId)?;
    if owner.confirmed {
        return Err(Status::BadStateId);
    }
    owner.confirmed = true;
    let open = held.open_mut(named.number).ok_or(Status::BadStateId)?;
    open.seqid = stateid::next(open.seqid);
    cx.out.value(&compose(named.client.id, named.number, open.seqid));
    Ok(())
}
