//! Permission for changes of names, and the single call that a folder's list permits.
//!
//! *Operation.* The kernel ignores stored lists. So a change of names that a list permits is made as the caller, in a thread with
//! `CAP_DAC_OVERRIDE` for that call only: the kernel skips the folder's mode bits and checks all other rules for the caller. A new
//! file belongs to the caller from the start, sticky bits apply, only the superuser creates devices, quotas apply. [`Override`]
//! represents the permission: created by a decision on one folder, consumed by one call, which uses the folder's descriptor. If a
//! file's own list permits its removal, the backend looks the name up again just before the call, which it makes only if it still
//! refers to that file.
//!
//! *Errors.* [`VfsError::Access`] if a list denies, [`VfsError::Perm`] if a sticky folder does.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, LazyLock};

use crate::authority::Acting;
use crate::error::{VfsError, VfsResult};
use crate::folder::{By, Folder, Taking};
use crate::perm::{self, Need};
use crate::types::*;

use super::cred::Past;
use super::node::LocalNode;
use super::stat;

/// The authority that decides on a change of names in a folder.
pub(super) enum Judge<'a> {
    /// The kernel, because the folder has no stored list: mode bits, POSIX lists.
    Kernel,
    /// The folder's list, which has permitted it.
    List(Override<'a>),
}

/// Permission for one call that changes names in one or two folders. It can be neither copied nor reused.
pub(super) struct Override<'a> {
    folder: &'a LocalNode,
    past: Past,
    /// The only file that this name may be removed from.
    exact: Option<(&'a [u8], File)>,
}

/// Identifies a file of the host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct File {
    dev: u64,
    ino: u64,
}

impl<'a> Override<'a> {
    /// Restricts the permission to the file that was found under the name.
    pub(super) fn of_exactly(mut self, name: &'a [u8], seen: &stat::Stat) -> Self {
        self.exact.get_or_insert((name, File { dev: seen.dev, ino: seen.ino }));
        self
    }

    /// Makes the call as the caller, with the folder's descriptor.
    pub(super) fn run<T: Send>(
        self,
        cred: &Cred,
        call: impl FnOnce(BorrowedFd<'_>) -> VfsResult<T> + Send,
    ) -> VfsResult<T> {
        self.verify()?;
        let fd = self.folder.fd();
        self.folder.volume.identity.run_past(cred, self.past, || call(fd))
    }

    /// Makes a call that changes names in two folders, with a permission for each.
    pub(super) fn run_both<T: Send>(
        self,
        other: Override<'_>,
        cred: &Cred,
        call: impl FnOnce(BorrowedFd<'_>, BorrowedFd<'_>) -> VfsResult<T> + Send,
    ) -> VfsResult<T> {
        self.verify()?;
        other.verify()?;
        let (a, b) = (self.folder.fd(), other.folder.fd());
        let past = self.past.max(other.past);
        self.folder.volume.identity.run_past(cred, past, || call(a, b))
    }

    /// Checks that the name still refers to the file whose own list was checked.
    fn verify(&self) -> VfsResult<()> {
        let Some((name, file)) = &self.exact else { return Ok(()) };
        let now = self.folder.volume.stat_of(self.folder.fd(), name)?;
        let same = File { dev: now.dev, ino: now.ino } == *file;
        if same { Ok(()) } else { Err(VfsError::NotFound) }
    }
}

impl Folder for LocalNode {
    fn rights_by_list(&self, cred: &Cred, attr: &Attr) -> VfsResult<Option<u32>> {
        self.by_list(cred, attr)
    }

    fn permits(&self, cred: &Cred, need: Need, attr: &Attr) -> VfsResult<()> {
        self.permitted(cred, need, attr)
    }

    fn named(&self, name: &[u8]) -> VfsResult<(Arc<Self>, Attr)> {
        self.find(&Cred::root(), self.fd(), name)
    }

    fn owner_of(&self, name: &[u8]) -> VfsResult<u32> {
        Ok(self.volume.stat_of(self.fd(), name)?.attr.uid)
    }
}

impl LocalNode {
    fn override_here(&self) -> Override<'_> {
        Override { folder: self, past: Past::Modes, exact: None }
    }

    /// Permission to remove this name of this file only.
    fn override_of<'a>(&'a self, name: &'a [u8], file: &Self) -> Override<'a> {
        let file = File { dev: file.dev, ino: file.ino };
        Override { folder: self, past: Past::Sticky, exact: Some((name, file)) }
    }

    /// Decides which authority checks this need for names here; `attr` was read just before.
    pub(super) fn decide(&self, by: &Acting<'_>, need: Need, attr: &Attr) -> VfsResult<Judge<'_>> {
        Ok(match self.judged_by(by, need, attr)? {
            By::Host => Judge::Kernel,
            By::List => Judge::List(self.override_here()),
        })
    }

    /// Checks that the caller may change names here, by the folder's list or by the kernel's rules.
    pub(super) fn allows_names(
        &self,
        by: &Acting<'_>,
        need: Need,
        attr: &Attr,
    ) -> VfsResult<Override<'_>> {
        self.permits_names(by, need, attr)?;
        Ok(self.override_here())
    }

    /// Checks that the caller may remove this name; if only the file's own list permits it, the permission is restricted to this
    /// file.
    pub(super) fn may_take<'a>(
        &'a self,
        by: &Acting<'_>,
        name: &'a [u8],
        attr: &Attr,
    ) -> VfsResult<Override<'a>> {
        Ok(match self.permits_taking(by, name, attr)? {
            Taking::Folder => self.override_here(),
            Taking::File(file) => self.override_of(name, &file),
        })
    }

    /// Like [`LocalNode::may_take`], using only the file's own list.
    pub(super) fn may_delete_itself<'a>(
        &'a self,
        by: &Acting<'_>,
        name: &'a [u8],
        attr: &Attr,
    ) -> VfsResult<Override<'a>> {
        let file = self.permits_taking_itself(by, name, attr)?;
        Ok(self.override_of(name, &file))
    }

    /// The kernel's rule for linking a file of another owner (proc(5), `protected_hardlinks`), as far as a call permitted by a list
    /// bypasses it: the caller may read and write the file. The kernel itself still checks that it is a regular file without set-id
    /// bits.
    pub(super) fn may_be_linked(&self, cred: &Cred, attr: &Attr) -> VfsResult<()> {
        static PROTECTED: LazyLock<bool> = LazyLock::new(|| {
            let set = std::fs::read("/proc/sys/fs/protected_hardlinks");
            set.is_ok_and(|s| s.first() != Some(&b'0'))
        });
        if !*PROTECTED || [0, attr.uid].contains(&cred.uid) {
            return Ok(());
        }
        self.permitted(cred, perm::BOTH, attr).map_err(|_| VfsError::Perm)
    }

    /// Removes an object created just before under this name, if the name still refers to it.
    pub(super) fn unmake(&self, name: &[u8], made: &stat::Stat) {
        let file = File { dev: made.dev, ino: made.ino };
        let power = Override { folder: self, past: Past::Sticky, exact: Some((name, file)) };
        let how = match made.attr.kind {
            Kind::Dir => rustix::fs::AtFlags::REMOVEDIR,
            _ => rustix::fs::AtFlags::empty(),
        };
        // The result does not matter: the caller already returns an error.
        let _ = power.run(&Cred::root(), |dir| Ok(rustix::fs::unlinkat(dir, name, how)?));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustix::fs::{AtFlags, unlinkat};

    use super::*;
    use crate::local::{LocalBackend, LocalConfig};

    /// Puts another file under a name, as a client or a program on the host does.
    fn exchange(dir: &Path, name: &str) {
        std::fs::write(dir.join("other"), b"other").unwrap();
        std::fs::rename(dir.join("other"), dir.join(name)).unwrap();
    }

    /// Between the decision and the call another file may get the name. That file must stay.
    #[test]
    fn permission_is_bound_to_file() {
        let dir = tempfile::tempdir().unwrap();
        let backend = LocalBackend::open(LocalConfig::new(dir.path())).unwrap();
        let (folder, cred) = (&backend.root, Cred::root());
        let attr = folder.attr().unwrap();
        let permit = |name: &'static str| {
            std::fs::write(dir.path().join(name), b"seen").unwrap();
            let seen = stat::of_name(folder.fd(), name.as_bytes()).unwrap();
            let by = Acting::caller(&cred);
            let power = folder.may_take(&by, name.as_bytes(), &attr).unwrap();
            (power.of_exactly(name.as_bytes(), &seen), seen)
        };
        let remove = |fd: BorrowedFd<'_>| Ok(unlinkat(fd, "f", AtFlags::empty())?);
        let is_there = |name: &str| dir.path().join(name).exists();

        let (power, _) = permit("f");
        exchange(dir.path(), "f");
        assert_eq!(power.run(&cred, remove), Err(VfsError::NotFound));
        assert!(is_there("f"));
        let (power, _) = permit("f");
        power.run(&cred, remove).unwrap();
        assert!(!is_there("f"));

        // Each of the two names may belong to another file by now.
        for exchanged in ["f", "g"] {
            let ((one, _), (two, _)) = (permit("f"), permit("g"));
            exchange(dir.path(), exchanged);
            let done = one.run_both(two, &cred, |fd, _| remove(fd));
            assert_eq!(done, Err(VfsError::NotFound), "{exchanged}");
            assert!(is_there("f"));
        }
        let ((one, _), (two, _)) = (permit("f"), permit("g"));
        one.run_both(two, &cred, |fd, _| remove(fd)).unwrap();
        assert!(!is_there("f"));

        let (_, made) = permit("f");
        exchange(dir.path(), "f");
        folder.unmake(b"f", &made);
        assert!(is_there("f"), "what was made is gone, and this is not it");
        let (_, made) = permit("f");
        folder.unmake(b"f", &made);
        assert!(!is_there("f"));
    }
}
