//! The pseudo file system above the shares: a root, and the folders on the path to each share that the client may use (RFC 8881
//! section 7.3).
//!
//! *Operation.* Pseudo folders are derived from the paths of shares ([`Share::nfs_path`]). A folder's number in handles is computed
//! from its path: the handle survives a restart, and becomes stale when no share is below it any more.

use std::sync::Arc;

use vfs::namespace::{Refusal, Share};
use vfs::{Attr, Time};

use super::above::{Above, Child, NOTHING, below, fileid_of};
use super::compound::Compound;

impl Above {
    /// Finds the folder of this number, if it is on the path to a share that the client may use.
    pub(super) fn numbered(cx: &Compound<'_>, number: u32) -> Option<Self> {
        if number == 0 {
            return Some(Self::root());
        }
        let core = &cx.nfs.core;
        let shares = core.namespace.shares();
        let usable = shares.iter().filter(|share| core.may_use(cx.conn, share));
        let mut folders = usable.flat_map(|share| {
            let path = share.nfs_path();
            path.match_indices('/').map(|(end, _)| Self::of(&path[..end]))
        });
        folders.find(|folder| folder.number() == number)
    }

    /// Finds an entry by name. Returns ENOENT to clients without access and records the refusal for `status`, except for dot names,
    /// which desktops probe in every directory.
    pub(super) fn find(&self, cx: &Compound<'_>, name: &[u8]) -> Option<Child> {
        let core = &cx.nfs.core;
        let shares = core.namespace.shares();
        let by_nfs = || shares.iter().filter(|share| share.protocols.nfs());
        let path = std::str::from_utf8(name).ok().filter(|name| !name.contains('/'));
        let path = path.map(|name| match &*self.path {
            "" => name.to_owned(),
            folder => format!("{folder}/{name}"),
        });
        let leads = |share: &&Arc<Share>| {
            path.as_ref().is_some_and(|path| below(share.nfs_path(), path).is_some())
        };
        let share = by_nfs().find(|share| path.as_deref() == Some(share.nfs_path()));
        match share {
            Some(share) if core.may_use(cx.conn, share) => {
                return Some(Child::Share(share.clone()));
            }
            None => {
                if by_nfs().filter(leads).any(|share| core.may_use(cx.conn, share)) {
                    return path.map(|path| Child::Folder(Self::of(&path)));
                }
            }
            Some(_) => {}
        }
        match share.or_else(|| by_nfs().find(leads)) {
            Some(share) => {
                let why = core.why_not(cx.conn, share).unwrap_or(Refusal::Address);
                core.refused(cx.conn, cx.call, share, why);
            }
            None if name.starts_with(b".") => {}
            None => {
                core.unknown_share(cx.conn, cx.call, path.as_deref().map_or(name, str::as_bytes))
            }
        }
        None
    }

    /// Lists the entries that the client may use, with their names, in the order of the configuration. A share's rules on users are
    /// ignored: a client caches one listing for all its users, and lists as its root user when it mounts.
    pub(super) fn visible(&self, cx: &Compound<'_>) -> Vec<(String, Child)> {
        let core = &cx.nfs.core;
        let shares = core.namespace.shares();
        let mut seen: Vec<(String, Child)> = Vec::new();
        for share in shares.iter().filter(|s| !s.rules.hidden && core.may_use(cx.conn, s)) {
            let Some(rest) = below(share.nfs_path(), &self.path) else { continue };
            let (name, child) = match rest.split_once('/') {
                None => (rest, Child::Share(share.clone())),
                Some((name, _)) => {
                    let end = share.nfs_path().len() - rest.len() + name.len();
                    (name, Child::Folder(Self::of(&share.nfs_path()[..end])))
                }
            };
            if seen.iter().all(|(other, _)| other != name) {
                seen.push((name.to_owned(), child));
            }
        }
        seen
    }

    /// The folder's attributes. They change when the server restarts, and with the configuration.
    pub(super) fn attr(&self, cx: &Compound<'_>) -> Attr {
        let children = u32::try_from(self.visible(cx).len()).unwrap_or(u32::MAX);
        let attr = directory(cx, self.fileid(), children.saturating_add(2));
        Attr { change: attr.change.wrapping_add(cx.nfs.core.namespace.changes()), ..attr }
    }
}

/// Attributes of the mount point of a share's root, for requests that do not concern the file system itself.
pub(super) fn attr_of_share(cx: &Compound<'_>, share: &Share) -> Attr {
    directory(cx, fileid_of(share), 2)
}

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
