//! REMOVE (RFC 8881 section 18.25): removes a file or directory.

use nfs_proto::nfs4::ops::Component4;
use vfs::VfsError;

use crate::v4::compound::{Compound, change_info, component};
use crate::v4::status::Status;

pub(in crate::v4) async fn remove(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Component4 { name } = cx.args.value()?;
    let name = component(name)?;
    let at = cx.directory()?;
    if cx.nfs.clients.may_reclaim(cx.nfs.clients.now()) {
        // As in the kernel's server: another client may be about to reclaim the file.
        return Err(Status::Grace);
    }
    // The volume reports the type; a separate check would leave a gap in which it can change.
    let dir = match cx.file_ops().unlink(&at.share, &at.node, &at.cred, name).await {
        Err(VfsError::IsDir) => cx.file_ops().rmdir(&at.share, &at.node, &at.cred, name).await?,
        done => done?,
    };
    cx.out.value(&change_info(&dir));
    Ok(())
}
