//! Attributes in wire form: `fattr3`, `sattr3`, `wcc_data` (RFC 1813 section 2.6).

use vfs::namespace::Share;
use vfs::{Attr, DirChange, Kind, SetAttr, SetTime, Time};

use crate::xdr::{Reader, Writer, XdrError, XdrResult};

/// `ftype3`.
fn ftype(kind: Kind) -> u32 {
    match kind {
        Kind::File => 1,
        Kind::Dir => 2,
        Kind::Block => 3,
        Kind::Char => 4,
        Kind::Symlink => 5,
        Kind::Socket => 6,
        Kind::Fifo => 7,
    }
}

/// `nfstime3` has 32 bits of unsigned seconds; what lies outside is shown at the edge.
fn put_time(w: &mut Writer, t: Time) {
    w.u32(u32::try_from(t.sec.max(0)).unwrap_or(u32::MAX));
    w.u32(t.nsec);
}

/// Reads `nfstime3`.
pub(super) fn decode_time(r: &mut Reader<'_>) -> XdrResult<Time> {
    let (sec, nsec) = (i64::from(r.u32()?), r.u32()?);
    if nsec > 999_999_999 {
        return Err(XdrError::BadValue);
    }
    Ok(Time { sec, nsec })
}

/// Two shares can be on one volume, and volumes in memory number their files alike; a client must not take a file of one
/// share for a file of another.
fn fsid(share: &Share, attr: &Attr) -> u64 {
    attr.fsid ^ (u64::from(share.id) << 32) ^ u64::from(share.id)
}

/// `fattr3`.
pub(super) fn put_attr(w: &mut Writer, share: &Share, a: &Attr) {
    w.u32(ftype(a.kind));
    w.u32(a.mode & 0o7777);
    w.u32(a.nlink);
    w.u32(a.uid);
    w.u32(a.gid);
    w.u64(a.size);
    w.u64(a.used);
    w.u32(a.rdev.0);
    w.u32(a.rdev.1);
    w.u64(fsid(share, a));
    w.u64(a.fileid);
    put_time(w, a.atime);
    put_time(w, a.mtime);
    put_time(w, a.ctime);
}

/// `post_op_attr`.
pub(super) fn put_post(w: &mut Writer, share: &Share, after: Option<&Attr>) {
    w.bool(after.is_some());
    if let Some(a) = after {
        put_attr(w, share, a);
    }
}

/// `wcc_data`.
pub(super) fn put_wcc(w: &mut Writer, share: &Share, before: Option<&Attr>, after: Option<&Attr>) {
    w.bool(before.is_some());
    if let Some(b) = before {
        w.u64(b.size);
        put_time(w, b.mtime);
        put_time(w, b.ctime);
    }
    put_post(w, share, after);
}

/// `wcc_data` of a directory whose names were changed. RFC 1813 section 1.6 wants the two sides to be of one operation:
/// where something may have come between, the side before is left out.
pub(super) fn put_dir_wcc(w: &mut Writer, share: &Share, dir: &DirChange) {
    put_wcc(w, share, dir.atomic.then_some(&dir.before), Some(&dir.after));
}

fn set_time(r: &mut Reader<'_>) -> XdrResult<Option<SetTime>> {
    match r.u32()? {
        0 => Ok(None),
        1 => Ok(Some(SetTime::Now)),
        2 => Ok(Some(SetTime::At(decode_time(r)?))),
        _ => Err(XdrError::BadValue),
    }
}

/// `sattr3`.
pub(super) fn decode_sattr(r: &mut Reader<'_>) -> XdrResult<SetAttr> {
    fn opt<'a, T>(
        r: &mut Reader<'a>,
        f: impl FnOnce(&mut Reader<'a>) -> XdrResult<T>,
    ) -> XdrResult<Option<T>> {
        if r.bool()? { f(r).map(Some) } else { Ok(None) }
    }
    Ok(SetAttr {
        mode: opt(r, Reader::u32)?.map(|m| m & 0o7777),
        umask: 0,
        uid: opt(r, Reader::u32)?,
        gid: opt(r, Reader::u32)?,
        size: opt(r, Reader::u64)?,
        atime: set_time(r)?,
        mtime: set_time(r)?,
    })
}
