//! TEST_STATEID (RFC 8881 section 18.48).

use crate::v4::compound::Compound;
use crate::v4::limits::TEST_STATEIDS_AT_ONCE;
use crate::v4::opens::Entry;
use crate::v4::resolve::resolve;
use crate::v4::stateid::check_seqid;
use crate::v4::status::Status;
use crate::v4::wire::{STATEID_SIZE, Stateid};

pub(in crate::v4) async fn test_stateid(cx: &mut Compound<'_>) -> Result<(), Status> {
    // The array has no limit but that of the message.
    let n = cx.args.count(cx.args.remaining() / STATEID_SIZE)?;
    cx.out.count(n);
    for i in 0..n {
        if i > 0 && i % TEST_STATEIDS_AT_ONCE == 0 {
            tokio::task::yield_now().await;
        }
        let stateid = cx.args.value::<Stateid>()?;
        let status = test(cx, stateid).err().unwrap_or(Status::Ok);
        cx.out.u32(status.to_u32());
    }
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
