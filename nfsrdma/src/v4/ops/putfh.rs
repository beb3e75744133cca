//! PUTFH (RFC 8881 section 18.19).

use crate::fh::Named;
use crate::v4::above::Above;
use crate::v4::attrs::Bitmap;
use crate::v4::compound::Compound;
use crate::v4::links;
use crate::v4::object::Object;
use crate::v4::status::Status;
use crate::v4::wire::op;
use nfs_proto::nfs4::ops::NfsFh4;

/// RFC 8881 section 2.6.3.1.1: the next operation may check the flavor itself, or may be SECINFO.
fn leaves_flavor_to_next(cx: &Compound<'_>) -> bool {
    if cx.index + 1 >= cx.count {
        return true;
    }
    matches!(
        cx.args.clone().value::<u32>(),
        Ok(op::LOOKUP
            | op::LOOKUPP
            | op::OPEN
            | op::SECINFO
            | op::SECINFO_NO_NAME
            | op::PUTFH
            | op::PUTPUBFH
            | op::PUTROOTFH
            | op::SAVEFH
            | op::RESTOREFH)
    )
}

/// True if the client's machine releases a user's state, for which its own flavor suffices. Linux sends GETATTR just before.
fn gives_back_for_user(cx: &Compound<'_>) -> bool {
    let mut args = cx.args.clone();
    if matches!(args.clone().value(), Ok(op::GETATTR)) {
        let read = args.value::<u32>().and_then(|_| args.value::<Bitmap>());
        return read.is_ok() && cx.is_for_user_next(&mut args);
    }
    cx.is_for_user_next(&mut args)
}

pub(in crate::v4) async fn putfh(cx: &mut Compound<'_>) -> Result<(), Status> {
    let NfsFh4 { object: wire } = cx.args.value()?;
    let core = &cx.nfs.core;
    let object = match core.handles.open(&core.namespace, wire)? {
        Named::Above(number) => Object::Above(Above::numbered(cx, number).ok_or(Status::Stale)?),
        // A handle from before the share moved to another server: the next operation returns MOVED.
        Named::Node(share, _) if share.is_elsewhere() => cx.root_of(share),
        Named::Node(share, handle) => {
            let node = share.backend.resolve(&handle).await?;
            links::across(cx.enter(share, node), None).await?
        }
    };
    let wants_flavor = object.wants_flavor();
    cx.set_current(object);
    if wants_flavor && !leaves_flavor_to_next(cx) && !gives_back_for_user(cx) {
        cx.object()?;
        return Err(Status::WrongSec);
    }
    cx.found_at = Some(cx.index);
    Ok(())
}
