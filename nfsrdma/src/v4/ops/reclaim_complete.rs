//! RECLAIM_COMPLETE (RFC 8881 section 18.51): the client has taken back what it wants.

use std::sync::atomic::Ordering;

use crate::v4::compound::Compound;
use crate::v4::status::Status;

pub(in crate::v4) async fn reclaim_complete(cx: &mut Compound<'_>) -> Result<(), Status> {
    let one_fs: bool = cx.args.value()?;
    if one_fs {
        // State moves between file systems only with migration, which there is none of; the client may say so all the same.
        return cx.object().map(|_| ());
    }
    let client = cx.client.clone().ok_or(Status::OpNotInSession)?;
    if client.reclaimed.load(Ordering::Acquire) {
        return Err(Status::CompleteAlready);
    }
    // From now on it may take what is new, so after a restart it must be known. Where that cannot be written now, its first OPEN
    // tries again, and fails by an error that ends; an error here would have it wait for the end of a grace period.
    let _tried_again = cx.nfs.clients.enter(&client).await;
    client.reclaimed.store(true, Ordering::Release);
    cx.nfs.clients.grace().complete(client.name.as_bytes());
    Ok(())
}
