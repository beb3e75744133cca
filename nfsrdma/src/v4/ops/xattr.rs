//! GETXATTR, SETXATTR, LISTXATTRS and REMOVEXATTR (RFC 8276 section 8.4).

use vfs::{Attr, XattrHow};

use crate::v4::compound::{Compound, Located, Object};
use crate::v4::limits::{NAME_MAX, XATTR_VALUE_MAX};
use crate::v4::status::Status;
use rdma_transport::xdr::XdrError;

pub(in crate::v4) async fn getxattr(cx: &mut Compound<'_>) -> Result<(), Status> {
    let name = name(cx)?;
    let at = node(cx)?;
    let value = at.node.xattr_get(&at.cred, name).await?;
    if value.len() > cx.room_for_data(8) {
        return Err(Status::Xattr2Big);
    }
    cx.out.opaque(&value);
    Ok(())
}

pub(in crate::v4) async fn setxattr(cx: &mut Compound<'_>) -> Result<(), Status> {
    let how = match cx.args.u32()? {
        0 => XattrHow::Either,
        1 => XattrHow::Create,
        2 => XattrHow::Replace,
        _ => return Err(Status::BadXdr),
    };
    let name = name(cx)?;
    let value = match cx.args.opaque(XATTR_VALUE_MAX) {
        Ok(value) => value,
        Err(XdrError::TooLong) => return Err(Status::Xattr2Big),
        Err(_) => return Err(Status::BadXdr),
    };
    let at = node(cx)?;
    let done = cx.door().xattr_set(&at.share, &at.node, &at.cred, name, value, how).await?;
    change(cx, &done);
    Ok(())
}

pub(in crate::v4) async fn removexattr(cx: &mut Compound<'_>) -> Result<(), Status> {
    let name = name(cx)?;
    let at = node(cx)?;
    let done = cx.door().xattr_remove(&at.share, &at.node, &at.cred, name).await?;
    change(cx, &done);
    Ok(())
}

/// The cookie counts the names before it, in the order of their bytes.
pub(in crate::v4) async fn listxattrs(cx: &mut Compound<'_>) -> Result<(), Status> {
    let (cookie, maxcount) = (cx.args.u64()?, cx.args.u32()?);
    let at = node(cx)?;
    let mut names = at.node.xattr_list(&at.cred).await?;
    names.sort_unstable();
    let skip = usize::try_from(cookie).unwrap_or(usize::MAX);
    if skip > names.len() {
        return Err(Status::BadCookie);
    }
    // LISTXATTRS4resok: the cookie, the count of names, the names, eof.
    let max = usize::try_from(maxcount).unwrap_or(usize::MAX).min(cx.room_for_data(0));
    let end = cx.out.total_len() + max.checked_sub(8 + 4 + 4).ok_or(Status::TooSmall)?;
    let cookie_at = cx.out.len();
    cx.out.u64(0);
    cx.out.u32(0);
    let mut listed = 0u32;
    for name in &names[skip..] {
        let mark = cx.out.len();
        cx.out.opaque(name);
        if cx.out.total_len() > end + 8 + 4 {
            cx.out.truncate(mark);
            break;
        }
        listed += 1;
    }
    let next = cookie + u64::from(listed);
    let eof = next == names.len() as u64;
    if listed == 0 && !eof {
        return Err(Status::TooSmall);
    }
    // Invariant: the halves of a 64-bit number.
    #[allow(clippy::cast_possible_truncation)]
    let halves = ((next >> 32) as u32, next as u32);
    cx.out.patch_u32(cookie_at, halves.0);
    cx.out.patch_u32(cookie_at + 4, halves.1);
    cx.out.patch_u32(cookie_at + 8, listed);
    cx.out.bool(eof);
    Ok(())
}

/// `xattrkey4`: without the prefix `user.` (RFC 8276 section 8.2).
fn name<'a>(cx: &mut Compound<'a>) -> Result<&'a [u8], Status> {
    match cx.args.opaque(NAME_MAX) {
        Ok(b"") => Err(Status::Inval),
        Ok(name) if name.contains(&0) => Err(Status::BadChar),
        Ok(name) => Ok(name),
        Err(XdrError::TooLong) => Err(Status::NameTooLong),
        Err(_) => Err(Status::BadXdr),
    }
}

/// The object, on a volume that has extended attributes.
fn node(cx: &Compound<'_>) -> Result<Located, Status> {
    match cx.object()? {
        Object::Node(at) if at.share.backend.capabilities().xattr => Ok(at.clone()),
        _ => Err(Status::NotSupp),
    }
}

/// `change_info4` of the object. Others may have changed it between the two looks.
fn change(cx: &mut Compound<'_>, (before, after): &(Attr, Attr)) {
    cx.out.bool(false);
    cx.out.u64(before.change);
    cx.out.u64(after.change);
}
