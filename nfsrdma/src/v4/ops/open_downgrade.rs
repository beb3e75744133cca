//! OPEN_DOWNGRADE (RFC 8881 section 18.18, RFC 7530 section 16.19).

use nfs_proto::nfs4::ops::OpenDowngrade;
use state::{Rights, Share};

use crate::v4::compound::Compound;
use crate::v4::open_owner_seqid::{self, Begun, Owner};
use crate::v4::opens::Entry;
use crate::v4::resolve::{ResolvedStateid, resolve};
use crate::v4::status::Status;
use crate::v4::wire::op;

/// Delegation wants in `share_access`, which OPEN_DOWNGRADE ignores.
const WANT_MASK: u32 = 0x0003_ff00;

pub(in crate::v4) async fn open_downgrade(cx: &mut Compound<'_>) -> Result<(), Status> {
    let asked: OpenDowngrade = cx.args.value()?;
    cx.proves_enough()?;
    let (stateid, seqid) = (asked.open_stateid, asked.seqid);
    let (access, deny) = (asked.share_access, asked.share_deny);
    let wishes = if cx.minor > 0 { WANT_MASK } else { 0 };
    let to = Rights::from_bits(access & !wishes)
        .filter(|a| !a.is_none())
        .zip(Rights::from_bits(deny))
        .map(|(access, deny)| Share::new(access, deny));
    let named = resolve(cx, stateid)?;
    let owner = {
        let held = named.client.held();
        held.open(named.number).map(|o| o.owner.clone()).ok_or(Status::BadStateId)?
    };
    match open_owner_seqid::begin(cx, op::OPEN_DOWNGRADE, &named.client, Owner::Open(owner), seqid)
        .await?
    {
        Begun::Done(done) => done,
        Begun::Do(ticket) => {
            let done = to.ok_or(Status::Inval).and_then(|to| downgrade(cx, &named, to));
            ticket.end(cx, done)
        }
    }
}

fn downgrade(cx: &mut Compound<'_>, named: &ResolvedStateid, to: Share) -> Result<(), Status> {
    let file = cx.given_back()?.file();
    let arbiter = cx.nfs.core.namespace.arbiter();
    let mut held = named.client.held();
    let Entry::Open(open) = named.entry(&mut held, file, cx.minor)? else {
        return Err(Status::BadStateId);
    };
    let owner = open.owner.clone();
    if cx.minor == 0 && !held.open_owners.get(&owner).is_some_and(|o| o.confirmed) {
        return Err(Status::BadStateId);
    }
    let (id, node, holder) = held.downgrade(named.client.id, named.number, to)?;
    arbiter.state().narrow(node, holder, to);
    arbiter.released();
    cx.out.value(&id);
    cx.current_stateid = Some(id);
    Ok(())
}
