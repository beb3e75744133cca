//! GETXATTR, SETXATTR, LISTXATTRS and REMOVEXATTR (RFC 8276 section 8.4).

use nfs_proto::nfs4::ChangeInfo4;
use nfs_proto::nfs4::ops::{Component4, Listxattrs, Setxattr, Xattr, Xattrs};
use vfs::{Attr, XattrHow};
use wire::pad;

use crate::v4::compound::Compound;
use crate::v4::limits::{NAME_MAX, XATTR_VALUE_MAX};
use crate::v4::object::{Located, Object};
use crate::v4::status::Status;

pub(in crate::v4) async fn getxattr(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Component4 { name } = cx.args.value()?;
    let name = key(name)?;
    let at = node(cx)?;
    let value = at.node.xattr_get(&at.cred, name).await?;
    if value.len() > cx.room_for_data(8) {
        return Err(Status::Xattr2Big);
    }
    cx.out.value(&Xattr { value: &value });
    Ok(())
}

pub(in crate::v4) async fn setxattr(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Setxattr { option, key: name, value } = cx.args.value()?;
    let how = match option {
        0 => XattrHow::Either,
        1 => XattrHow::Create,
        2 => XattrHow::Replace,
        _ => return Err(Status::BadXdr),
    };
    let name = key(name)?;
    if value.len() > XATTR_VALUE_MAX {
        return Err(Status::Xattr2Big);
    }
    let at = node(cx)?;
    let done = cx.file_ops().xattr_set(&at.share, &at.node, &at.cred, name, value, how).await?;
    change(cx, &done);
    Ok(())
}

pub(in crate::v4) async fn removexattr(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Component4 { name } = cx.args.value()?;
    let name = key(name)?;
    let at = node(cx)?;
    let done = cx.file_ops().xattr_remove(&at.share, &at.node, &at.cred, name).await?;
    change(cx, &done);
    Ok(())
}

/// The cookie is the number of names before it, in byte order.
pub(in crate::v4) async fn listxattrs(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Listxattrs { cookie, maxcount } = cx.args.value()?;
    let at = node(cx)?;
    let mut names = at.node.xattr_list(&at.cred).await?;
    names.sort_unstable();
    let skip = usize::try_from(cookie).unwrap_or(usize::MAX);
    let Some(rest) = names.get(skip..) else { return Err(Status::BadCookie) };
    // LISTXATTRS4resok: the cookie, the count of names, the names, eof.
    let max = usize::try_from(maxcount).unwrap_or(usize::MAX).min(cx.room_for_data(0));
    let mut room = max.checked_sub(8 + 4 + 4).ok_or(Status::TooSmall)?;
    let fits = |name: &&Vec<u8>| {
        let left = room.checked_sub(4 + name.len() + pad(name.len()));
        room = left.unwrap_or(room);
        left.is_some()
    };
    let listed = rest.iter().take_while(fits);
    let listed: Vec<Component4<'_>> = listed.map(|name| Component4 { name }).collect();
    let eof = listed.len() == rest.len();
    if listed.is_empty() && !eof {
        return Err(Status::TooSmall);
    }
    let cookie = cookie + listed.len() as u64;
    cx.out.value(&Xattrs { cookie, names: listed, eof });
    Ok(())
}

/// Checks an `xattrkey4`, which lacks the prefix `user.` (RFC 8276 section 8.2).
fn key(name: &[u8]) -> Result<&[u8], Status> {
    match name {
        b"" => Err(Status::Inval),
        _ if name.len() > NAME_MAX => Err(Status::NameTooLong),
        _ if name.contains(&0) => Err(Status::BadChar),
        _ => Ok(name),
    }
}

/// The file of the current handle, if its volume supports extended attributes.
fn node(cx: &Compound<'_>) -> Result<Located, Status> {
    match cx.object()? {
        Object::Node(at) if at.share.backend.capabilities_of(&at.node).xattr => Ok(at.clone()),
        _ => Err(Status::NotSupp),
    }
}

/// `change_info4` of the file. Not atomic: other clients may have changed it in between.
fn change(cx: &mut Compound<'_>, (before, after): &(Attr, Attr)) {
    let (before, after) = (before.change, after.change);
    cx.out.value(&ChangeInfo4 { atomic: false, before, after });
}
