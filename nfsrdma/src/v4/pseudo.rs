//! The root above all shares: a directory that holds the name of every share that the client may use
//! (RFC 8881 section 7.3).

use std::sync::Arc;

use vfs::namespace::{Refusal, Share};
use vfs::{Attr, Capabilities, Kind, Time};

use super::compound::Compound;

/// `fsid4` of the root.
pub(super) const FSID: (u64, u64) = (0, 0);

/// What the root can do: nothing but be listed.
pub(super) const CAPABILITIES: Capabilities = Capabilities {
    name_max: 255,
    size_max: i64::MAX as u64,
    link_max: 1,
    xattr: false,
    reflink: false,
    clone_block: 0,
    block: 4096,
    handles_persist: true,
    read_only: true,
};

const FILEID: u64 = 1;

/// `fsid4` of a volume below a share: never that of the root.
pub(super) fn fsid_of(share: &Share, volume: u64) -> (u64, u64) {
    (u64::from(share.id) + 1, volume)
}

/// The number of the share's name in the root.
pub(super) fn fileid_of(share: &Share) -> u64 {
    u64::from(share.id) + FILEID + 1
}

/// The share behind a name, if the client may use it. It is told that there is none where it may not, and why is kept for the
/// administrator; but not of names with a dot in front, which desktops look for in every folder and no client mounts.
pub(super) fn find(cx: &Compound<'_>, name: &[u8]) -> Option<Arc<Share>> {
    let core = &cx.nfs.core;
    match core.namespace.share_named(name).filter(|s| s.protocols.nfs()) {
        Some(share) if core.may_use(cx.conn, &share) => return Some(share),
        Some(share) => core.refused(cx.conn, cx.call, &share, Refusal::Address),
        None if name.starts_with(b".") => {}
        None => core.unknown_share(cx.conn, cx.call, name),
    }
    None
}

/// The shares that the client may use and is shown, in the order of the configuration. Which of its users a share lets in is not
/// asked: the client keeps one list for all of them, and lists as its root to mount.
pub(super) fn visible(cx: &Compound<'_>) -> Vec<Arc<Share>> {
    let core = &cx.nfs.core;
    let shown = |s: &&Arc<Share>| !s.rules.hidden && core.may_use(cx.conn, s);
    core.namespace.shares().iter().filter(shown).cloned().collect()
}

/// The attributes of the root. It changes when the server starts anew, and with the configuration.
pub(super) fn attr_of_root(cx: &Compound<'_>) -> Attr {
    let shares = u32::try_from(visible(cx).len()).unwrap_or(u32::MAX);
    let root = directory(cx, FILEID, shares.saturating_add(2));
    Attr { change: root.change.wrapping_add(cx.nfs.core.namespace.changes()), ..root }
}

/// Attributes of the place where a share's root is mounted, for questions that do not concern the node itself.
pub(super) fn attr_of_share(cx: &Compound<'_>, share: &Share) -> Attr {
    directory(cx, fileid_of(share), 2)
}

/// An empty directory at the beginning of time.
pub(super) const NOTHING: Attr = {
    let time = Time { sec: 0, nsec: 0 };
    Attr {
        kind: Kind::Dir,
        mode: 0o555,
        nlink: 2,
        uid: 0,
        gid: 0,
        size: 4096,
        used: 0,
        rdev: (0, 0),
        fsid: 0,
        fileid: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: None,
        change: 0,
        sealed: false,
    }
};

fn directory(cx: &Compound<'_>, fileid: u64, nlink: u32) -> Attr {
    let started = cx.nfs.core.boot.write_verifier;
    let time = Time {
        sec: i64::try_from(started / 1_000_000_000).unwrap_or(i64::MAX),
        // Invariant: a remainder below 10^9.
        #[allow(clippy::cast_possible_truncation)]
        nsec: (started % 1_000_000_000) as u32,
    };
    Attr { nlink, fileid, atime: time, mtime: time, ctime: time, change: started, ..NOTHING }
}
