//! Lists the folders of the host that are snapshots.

use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use policy::{SnapshotPattern, snapper_time};
use rustix::fs::{CWD, FileType, Mode, OFlags, RawDir};

use super::{TOLD_MAX, open_below};
use crate::engine::limits::LISTING;
use crate::error::{VfsError, VfsResult};
use crate::local::{Volume, cross, stat};

/// Entries of the folder that are examined.
const ENTRIES_MAX: usize = 1 << 16;
/// Bytes of snapper's `info.xml` that are read.
const INFO_MAX: u64 = 16 << 10;

/// Reasons not to use a folder of snapshots, and what to do.
const WRITABLE: &str = "others than root and the gateway's user own this folder or may write it, and could show clients any files \
                        as those of a time past; give it to root with mode 0755";
const VISIBLE: &str = "clients see this folder among the files of the share, so they could read there what was closed since; keep \
                       the snapshots outside of the share, or below one folder in it that has nothing else";
const FAR: &str = "another machine or program serves this folder's file system, and a share on a local disk does not wait for it; \
                   keep the snapshots on a local disk";

const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The folder of snapshots.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::local) struct Base {
    pattern: SnapshotPattern,
    /// Its path below the share, if it is there.
    inside: Option<PathBuf>,
    /// The path of the share, as the kernel reports it.
    share: PathBuf,
}

/// Snapshots by time, the latest first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::local) struct Listed(Vec<(i64, Box<str>)>);

impl Listed {
    /// The times in seconds since 1970, the latest first.
    pub(in crate::local) fn times(&self) -> impl Iterator<Item = i64> {
        self.0.iter().map(|(sec, _)| *sec)
    }

    /// The name of the snapshot of this time.
    pub(super) fn name(&self, sec: i64) -> Option<&str> {
        let at = self.0.binary_search_by(|(its, _)| sec.cmp(its)).ok()?;
        self.0.get(at).map(|(_, name)| &**name)
    }

    fn of(mut all: Vec<(i64, Box<str>)>) -> Self {
        // Clients know snapshots by their second: of two, they see the first by name.
        all.sort_by(|(a, first), (b, second)| b.cmp(a).then_with(|| first.cmp(second)));
        all.dedup_by_key(|(sec, _)| *sec);
        all.truncate(TOLD_MAX);
        Self(all)
    }
}

impl Base {
    pub(super) fn of(share: &[u8], pattern: &SnapshotPattern) -> Self {
        let share = PathBuf::from(OsStr::from_bytes(share));
        let inside = match pattern.base() {
            path if path.is_relative() => Some(path.to_owned()),
            path => {
                let real = std::fs::canonicalize(path);
                let real = real.as_deref().unwrap_or(path);
                real.strip_prefix(&share).ok().map(Path::to_owned)
            }
        };
        // The share's own folder has no name to hide.
        let inside = inside.filter(|path| !path.as_os_str().is_empty());
        Self { pattern: pattern.clone(), inside, share }
    }

    /// True if clients reach the folder by names that the share cannot hide. They could read files there by rights of the past, and
    /// change them. The share hides the first name of the path, which must have nothing but snapshots.
    fn is_visible(&self) -> bool {
        let Some(inside) = &self.inside else {
            return self.pattern.base().is_absolute()
                && self.share.starts_with(self.pattern.base())
                || self.pattern.base().as_os_str().is_empty();
        };
        let mut names = inside.iter();
        let is_dotted = names.next().is_some_and(|first| first.as_bytes().starts_with(b"."));
        !is_dotted && names.next().is_some()
    }

    /// True if a path below the share is in the folder.
    pub(super) fn holds(&self, path: &[u8]) -> bool {
        let inside = self.inside.as_ref().map(|inside| inside.as_os_str().as_bytes());
        let rest = inside.and_then(|inside| path.strip_prefix(inside));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }

    /// True for the first name of its path below the share.
    pub(super) fn is_first(&self, name: &[u8]) -> bool {
        let first = self.inside.as_ref().and_then(|path| path.iter().next());
        first.is_some_and(|first| first.as_bytes() == name)
    }

    /// The path of a snapshot, for messages.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.share.join(self.pattern.base()).join(name).join(self.pattern.inner())
    }

    fn folder(&self, live: &Volume) -> VfsResult<OwnedFd> {
        match &self.inside {
            // A client may have put a link there.
            Some(path) => open_below(&live.border.root, path, DIR),
            None => Ok(rustix::fs::openat(CWD, self.pattern.base(), DIR, Mode::empty())?),
        }
    }

    /// Opens the folder of a snapshot.
    pub(super) fn open(&self, live: &Volume, name: &str) -> VfsResult<OwnedFd> {
        let path = Path::new(name).join(self.pattern.inner());
        open_below(self.folder(live)?, &path, DIR)
    }

    /// Returns the snapshots that there are. An absent folder gives an empty list.
    pub(super) fn list(&self, live: &Volume) -> VfsResult<Listed> {
        let distrust = |why| {
            live.border.snapshots.distrust(&self.path(""), why);
            Ok(Listed::default())
        };
        if self.is_visible() {
            return distrust(VISIBLE);
        }
        // Work on a local share is done in place: it must not wait for another machine.
        if live.turns.is_none() && cross::may_fall_silent(&self.path("")) {
            return distrust(FAR);
        }
        let folder = match self.folder(live) {
            Err(VfsError::NotFound) => return Ok(Listed::default()),
            folder => folder?,
        };
        if !is_trusted(&folder)? {
            return distrust(WRITABLE);
        }
        live.border.snapshots.trust();
        let mut room: Vec<u8> = Vec::with_capacity(LISTING);
        let mut raw = RawDir::new(&folder, room.spare_capacity_mut());
        let mut found = Vec::new();
        for _ in 0..ENTRIES_MAX {
            let Some(entry) = raw.next() else { break };
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            let may_be_folder =
                matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
            if !may_be_folder || !self.pattern.matches(name) {
                continue;
            }
            let time = match self.pattern.is_numbered() {
                true => time_of_number(&folder, name),
                false => self.pattern.time_of(name),
            };
            // Handles have room for these times.
            if let Some(sec) = time.filter(|sec| u32::try_from(*sec).is_ok()) {
                found.push((sec, name.into()));
            }
        }
        Ok(Listed::of(found))
    }
}

/// True if only root and this process can add snapshots.
fn is_trusted(folder: &OwnedFd) -> VfsResult<bool> {
    let attr = stat::of_fd(folder.as_fd())?.attr;
    let own = rustix::process::geteuid().as_raw();
    Ok([0, own].contains(&attr.uid) && attr.mode & 0o022 == 0)
}

fn time_of_number(folder: &OwnedFd, name: &str) -> Option<i64> {
    let path = Path::new(name).join("info.xml");
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let info = std::fs::File::from(open_below(folder, &path, flags).ok()?);
    if !info.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    info.take(INFO_MAX).read_to_string(&mut text).ok()?;
    snapper_time(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_come_first_and_one_of_a_second_is_told() {
        let all = [(5, "e"), (9, "y"), (7, "g"), (9, "x")].map(|(sec, name)| (sec, name.into()));
        let listed = Listed::of(all.to_vec());
        assert_eq!(listed.times().collect::<Vec<_>>(), [9, 7, 5]);
        assert_eq!((listed.name(9), listed.name(5), listed.name(6)), (Some("x"), Some("e"), None));
        let many = (0..2 * TOLD_MAX).map(|n| (i64::try_from(n).unwrap(), n.to_string().into()));
        let listed = Listed::of(many.collect());
        assert_eq!(listed.times().count(), TOLD_MAX);
        assert!(listed.name(0).is_none() && listed.name(2047).is_some());
    }
}
