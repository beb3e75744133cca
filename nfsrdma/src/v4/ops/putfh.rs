//! PUTFH (RFC 8881 section 18.19).

use crate::fh::Named;
use crate::v4::compound::{Compound, Object};
use crate::v4::pseudo::Above;
use crate::v4::status::Status;
use nfs_proto::nfs4::ops::NfsFh4;

pub(in crate::v4) async fn putfh(cx: &mut Compound<'_>) -> Result<(), Status> {
    let NfsFh4 { object: wire } = cx.args.value()?;
    let core = &cx.nfs.core;
    let object = match core.handles.open(&core.namespace, wire)? {
        Named::Above(number) => Object::Above(Above::numbered(cx, number).ok_or(Status::Stale)?),
        Named::Node(share, handle) => {
            let node = share.backend.resolve(&handle).await?;
            cx.enter(share, node)
        }
    };
    cx.set_current(object);
    cx.found_at = Some(cx.index);
    Ok(())
}
