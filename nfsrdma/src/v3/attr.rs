//! Converts between `vfs` attributes and those of NFSv3 (RFC 1813 section 2.6).

use nfs_proto::nfs3::{
    Fattr3, Ftype3, Nfstime3, PostOpAttr, Sattr3, SetTime as WireTime, Specdata3, WccAttr, WccData,
};
use vfs::namespace::Share;
use vfs::{Attr, DirChange, Kind, SetAttr, SetTime, Time};

fn ftype(kind: Kind) -> Ftype3 {
    match kind {
        Kind::File => Ftype3::Reg,
        Kind::Dir => Ftype3::Dir,
        Kind::Block => Ftype3::Blk,
        Kind::Char => Ftype3::Chr,
        Kind::Symlink => Ftype3::Lnk,
        Kind::Socket => Ftype3::Sock,
        Kind::Fifo => Ftype3::Fifo,
    }
}

/// `nfstime3` has 32 unsigned bits of seconds; times outside are clamped.
fn wire_time(t: Time) -> Nfstime3 {
    Nfstime3 { seconds: u32::try_from(t.sec.max(0)).unwrap_or(u32::MAX), nseconds: t.nsec }
}

/// Converts a client's time.
pub(super) fn time(t: Nfstime3) -> Time {
    Time { sec: i64::from(t.seconds), nsec: t.nseconds }
}

/// The file system id. Two shares can be on one volume, and memory volumes number their files alike, so it includes the share: a
/// client must not mistake a file of one share for a file of another.
fn fsid(share: &Share, attr: &Attr) -> u64 {
    attr.fsid ^ (u64::from(share.id) << 32) ^ u64::from(share.id)
}

pub(super) fn fattr(share: &Share, a: &Attr) -> Fattr3 {
    Fattr3 {
        ftype: ftype(a.kind),
        mode: a.mode & 0o7777,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        size: a.size,
        used: a.used,
        rdev: Specdata3 { specdata1: a.rdev.0, specdata2: a.rdev.1 },
        fsid: fsid(share, a),
        fileid: a.fileid,
        atime: wire_time(a.atime),
        mtime: wire_time(a.mtime),
        ctime: wire_time(a.ctime),
    }
}

/// `post_op_attr`.
pub(super) fn post(share: &Share, after: Option<&Attr>) -> Option<Fattr3> {
    after.map(|a| fattr(share, a))
}

/// A separate `post_op_attr` result.
pub(super) fn post_op(share: &Share, after: Option<&Attr>) -> PostOpAttr {
    PostOpAttr { attributes: post(share, after) }
}

/// `wcc_data`.
pub(super) fn wcc(share: &Share, before: Option<&Attr>, after: Option<&Attr>) -> WccData {
    let before = before.map(|b| WccAttr {
        size: b.size,
        mtime: wire_time(b.mtime),
        ctime: wire_time(b.ctime),
    });
    WccData { before, after: post(share, after) }
}

/// `wcc_data` of a directory after a change of names. RFC 1813 section 1.6 requires both sides to belong to one operation: if
/// another change may have intervened, the side before is omitted.
pub(super) fn dir_wcc(share: &Share, dir: &DirChange) -> WccData {
    wcc(share, dir.atomic.then_some(&dir.before), Some(&dir.after))
}

fn set_time(t: WireTime) -> Option<SetTime> {
    match t {
        WireTime::DontChange => None,
        WireTime::SetToServerTime => Some(SetTime::Now),
        WireTime::SetToClientTime(t) => Some(SetTime::At(time(t))),
    }
}

/// The attributes that `sattr3` sets.
pub(super) fn set_attr(s: &Sattr3) -> SetAttr {
    SetAttr {
        mode: s.mode.map(|m| m & 0o7777),
        umask: 0,
        uid: s.uid,
        gid: s.gid,
        size: s.size,
        atime: set_time(s.atime),
        mtime: set_time(s.mtime),
    }
}
