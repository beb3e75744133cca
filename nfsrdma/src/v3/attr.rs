//! Attributes of `vfs` as those of version 3, and back (RFC 1813 section 2.6).

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

/// `nfstime3` has 32 bits of unsigned seconds; what lies outside is shown at the edge.
fn wire_time(t: Time) -> Nfstime3 {
    Nfstime3 { seconds: u32::try_from(t.sec.max(0)).unwrap_or(u32::MAX), nseconds: t.nsec }
}

/// A time of the client.
pub(super) fn time(t: Nfstime3) -> Time {
    Time { sec: i64::from(t.seconds), nsec: t.nseconds }
}

/// Two shares can be on one volume, and volumes in memory number their files alike; a client must not take a file of one
/// share for a file of another.
fn fsid(share: &Share, attr: &Attr) -> u64 {
    attr.fsid ^ (u64::from(share.id) << 32) ^ u64::from(share.id)
}

/// `fattr3`.
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

/// `post_op_attr` as a result by itself.
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

/// `wcc_data` of a directory whose names were changed. RFC 1813 section 1.6 wants the two sides to be of one operation:
/// where something may have come between, the side before is left out.
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

/// What `sattr3` sets.
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
