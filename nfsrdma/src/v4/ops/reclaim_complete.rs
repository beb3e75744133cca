//! RECLAIM_COMPLETE (RFC 8881 section 18.51): the client has finished reclaiming.

use std::sync::atomic::Ordering;

use crate::v4::compound::Compound;
use crate::v4::status::Status;

pub(in crate::v4) async fn reclaim_complete(cx: &mut Compound<'_>) -> Result<(), Status> {
    let one_fs: bool = cx.args.value()?;
    if one_fs {
        // The form for one file system is only needed for migration, which is not supported; it is accepted.
        return cx.object().map(|_| ());
    }
    let client = cx.client.clone().ok_or(Status::OpNotInSession)?;
    if client.reclaimed.load(Ordering::Acquire) {
        return Err(Status::CompleteAlready);
    }
    // From now on the client may take new state, so it needs a record. If that cannot be written now, its first OPEN tries again
    // and returns a final error; an error here would make the client wait for the end of a grace period.
    let _tried_again = cx.nfs.clients.enter(&client).await;
    client.reclaimed.store(true, Ordering::Release);
    cx.nfs.clients.grace().complete(client.name.as_bytes());
    Ok(())
}
