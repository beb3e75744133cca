//! LOCKU (RFC 8881 section 18.12).

use nfs_proto::nfs4::ops::Locku;
use state::Range;

use crate::v4::compound::Compound;
use crate::v4::locks::range_of;
use crate::v4::object::Object;
use crate::v4::open_owner_seqid::{self, Begun};
use crate::v4::opens::Entry;
use crate::v4::resolve::{ResolvedStateid, resolve};
use crate::v4::stateid::{self, compose};
use crate::v4::status::Status;
use crate::v4::wire::op;

pub(in crate::v4) async fn locku(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Locku { seqid, lock_stateid, offset, length, .. } = cx.args.value()?;
    cx.proves_enough()?;
    let range = range_of(offset, length);
    let named = resolve(cx, lock_stateid)?;
    match open_owner_seqid::begin(cx, op::LOCKU, &named.client, named.lock_owner()?, seqid).await? {
        Begun::Done(done) => done,
        Begun::Do(ticket) => {
            let done = range.and_then(|range| unlock(cx, &named, range));
            ticket.end(cx, done)
        }
    }
}

fn unlock(cx: &mut Compound<'_>, named: &ResolvedStateid, range: Range) -> Result<(), Status> {
    // A client that has lost its rights to the share may still unlock.
    let at = cx.regular(&Object::Node(cx.given_back()?.clone()))?;
    let arbiter = cx.nfs.core.namespace.arbiter();
    let mut held = named.client.held();
    let Entry::Lock(lock) = named.entry(&mut held, at.file(), cx.minor)? else {
        return Err(Status::BadStateId);
    };
    if !arbiter.state().unlock(at.node.id(), &lock.party, range) {
        return Err(cx.limited("locks-of-file", state::Limits::default().locks_per_client));
    }
    // Clients of other protocols may wait for the range.
    arbiter.released();
    lock.seqid = stateid::next(lock.seqid);
    let id = compose(named.client.id, named.number, lock.seqid);
    cx.out.value(&id);
    cx.current_stateid = Some(id);
    Ok(())
}
