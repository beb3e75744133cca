//! TEST_STATEID (RFC 8881 section 18.48).

use crate::v4::compound::Compound;
use crate::v4::limits::TEST_STATEIDS_AT_ONCE;
use crate::v4::opens::Entry;
use crate::v4::resolve::resolve;
use crate::v4::stateid::check_seqid;
use crate::v4::status::Status;
use crate::v4::wire::Stateid;
use nfs_proto::nfs4::Nfsstat4;
use nfs_proto::nfs4::ops::{TestStateid, Tested};

pub(in crate::v4) async fn test_stateid(cx: &mut Compound<'_>) -> Result<(), Status> {
    // Only the size of the message limits the array.
    let TestStateid { stateids } = cx.args.value()?;
    let mut status_codes = Vec::with_capacity(stateids.len());
    for part in stateids.chunks(TEST_STATEIDS_AT_ONCE) {
        if !status_codes.is_empty() {
            tokio::task::yield_now().await;
        }
        let status = |id: &Stateid| test(cx, *id).err().map_or(Nfsstat4::Ok, Into::into);
        status_codes.extend(part.iter().map(status));
    }
    cx.out.value(&Tested { status_codes });
    Ok(())
}

fn test(cx: &Compound<'_>, stateid: Stateid) -> Result<(), Status> {
    let named = resolve(cx, stateid)?;
    let held = named.client.held();
    match held.get(named.number) {
        None | Some(Entry::Closed(_)) => Err(Status::BadStateId),
        Some(Entry::Delegation(d)) if d.revoked => Err(Status::DelegRevoked),
        Some(entry) => check_seqid(named.seqid, entry.seqid(), cx.minor),
    }
}
