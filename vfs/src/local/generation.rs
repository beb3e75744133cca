//! Tells files apart that a file system gives one inode number, one after the other.
//!
//! *Operation.* A file system of this host keeps the number of an inode that a record holds. One that a program or another machine
//! serves ([`super::silent`]) may give it to another file at once. Then files differ by the kernel's handle, which contains a
//! generation, or by their time of birth, both of which are at hand. Where each name may have an inode, handles belong to names,
//! and few such file systems tell times of birth: the records of other shares are asked whether their file is still there.
//!
//! *Errors.* None: a file that cannot be told apart is taken for the one that had the number.

use std::sync::{Arc, Weak};

use mutex::locked;

use crate::error::VfsError;
use crate::shared_file::{FileKey, Generation, Holder, Likeness, SharedFile};
use crate::types::{Attr, Handle};

use super::node::LocalNode;
use super::stat::Stat;
use super::{Volume, handle};

impl Volume {
    /// Returns the generation of a file, as far as its attributes tell it.
    fn generation(&self, stat: &Stat, handle: Option<&Handle>) -> Generation {
        let kind = stat.attr.kind;
        if !self.reuses_numbers {
            return Generation::only(kind);
        }
        let handle = handle.filter(|_| !self.inode_per_name).and_then(handle::digest);
        Generation { kind, handle, born: stat.attr.btime }
    }

    /// Returns what all shares have in common for a file that was just opened.
    pub(super) fn shared(&self, stat: &Stat, handle: &Handle) -> Arc<SharedFile> {
        let key = FileKey::Host(stat.dev, stat.ino);
        let generation = self.generation(stat, Some(handle));
        if self.reuses_numbers {
            for file in SharedFile::known(key) {
                let (is_it, is_gone) = match file.compare(&generation) {
                    Likeness::Unknown if self.inode_per_name => {
                        let is_still = file.is_still(&stat.attr) != Some(false);
                        (is_still, !is_still)
                    }
                    Likeness::BornApart => (file.is_still(&stat.attr) == Some(true), false),
                    Likeness::Same | Likeness::Unknown | Likeness::Other => (false, false),
                };
                if is_it {
                    file.learn(&generation);
                    return file;
                }
                if is_gone {
                    file.displace();
                }
            }
        }
        SharedFile::of(key, generation)
    }

    /// Returns false if the record's inode number belongs to another file now.
    pub(super) fn is_still(&self, node: &LocalNode, stat: &Stat) -> bool {
        if !self.reuses_numbers {
            return true;
        }
        let generation = self.generation(stat, None);
        match node.shared.compare(&generation) {
            Likeness::Same | Likeness::Unknown => true,
            Likeness::Other => false,
            Likeness::BornApart => {
                let is_still = Holder::is_still(node, &stat.attr);
                if is_still {
                    node.shared.learn(&generation);
                }
                is_still
            }
        }
    }

    /// Lets records of other shares ask this one.
    pub(super) fn hold(&self, node: &Arc<LocalNode>) {
        if self.reuses_numbers {
            let holder: Weak<LocalNode> = Arc::downgrade(node);
            node.shared.hold(holder);
        }
    }
}

impl Holder for LocalNode {
    fn is_still(&self, found: &Attr) -> bool {
        match self.stat() {
            Ok(own) => {
                let born = own.attr.btime.zip(found.btime);
                own.ino == self.ino
                    && own.attr.kind == found.kind
                    && born.is_none_or(|(own, found)| own == found)
            }
            // The names by which it is known do not lead to it any more; another name may.
            Err(VfsError::Stale | VfsError::NotFound) => {
                locked(&self.seen).is_none_or(|seen| seen.may_be(found))
            }
            Err(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::fs::{Mode, OFlags};

    use super::super::{LocalBackend, LocalConfig, stat};
    use super::*;
    use crate::backend::Backend;
    use crate::types::{Cred, Time};

    fn share(folder: &std::path::Path, inode_per_name: bool) -> Arc<LocalBackend> {
        let served_elsewhere = |found: &mut super::super::Found| {
            (found.reuses_numbers, found.inode_per_name) = (true, inode_per_name);
        };
        LocalBackend::open_with(LocalConfig::new(folder), served_elsewhere).unwrap()
    }

    fn opened(path: &std::path::Path) -> (OwnedFd, Stat) {
        let fd = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).unwrap();
        let stat = stat::of_fd(fd.as_fd()).unwrap();
        (fd, stat)
    }

    async fn look(share: &Arc<LocalBackend>, name: &str) -> crate::NodeRef {
        share.root().lookup(&Cred::root(), name.as_bytes()).await.unwrap().0
    }

    /// Another machine gives a file's number to a new file, which two shares find while one of them has a record of the old one.
    #[tokio::test]
    async fn file_with_a_reused_number_is_another_one_in_all_shares() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two] = [(); 2].map(|()| share(dir.path(), false));
        for (old, new) in [("f", "g"), ("sub", "h")] {
            match old {
                "f" => std::fs::write(dir.path().join(old), b"old").unwrap(),
                _ => std::fs::create_dir(dir.path().join(old)).unwrap(),
            }
            std::fs::write(dir.path().join(new), b"new").unwrap();
            let ((old, seen), number) =
                (opened(&dir.path().join(old)), opened(&dir.path().join(new)).1.ino);
            let mut seen = Stat { ino: number, ..seen };
            seen.attr.btime = Some(Time { sec: 1, nsec: 0 });
            let before = one.volume.adopt(old, &seen).unwrap();
            let (here, there) = (look(&one, new).await, look(&two, new).await);
            assert_ne!(before.shared.id, here.id(), "{new}: two files have one identity");
            assert_eq!(here.id(), there.id(), "{new}: one file has two identities");
            assert_eq!(look(&one, new).await.id(), here.id());
            assert_eq!(here.kind(), crate::Kind::File);
        }
    }

    /// A time of birth that a program sets makes no other file of it.
    #[tokio::test]
    async fn file_keeps_its_identity_when_its_birth_is_set() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), b"").unwrap();
        for inode_per_name in [false, true] {
            let [one, two] = [(); 2].map(|()| share(dir.path(), inode_per_name));
            let (fd, seen) = opened(&dir.path().join("f"));
            let mut earlier = seen;
            earlier.attr.btime = Some(Time { sec: 1, nsec: 0 });
            let handle =
                handle::make(fd.as_fd(), &seen, one.volume.tag, handle::Form::Birth).unwrap();
            let shared = SharedFile::of(
                FileKey::Host(seen.dev, seen.ino),
                Generation { kind: seen.attr.kind, handle: None, born: earlier.attr.btime },
            );
            let node = LocalNode::new(one.volume.clone(), fd, &earlier, (handle, shared));
            let node = one.volume.cache.enter(node);
            one.volume.hold(&node);
            assert_eq!(look(&two, "f").await.id(), node.shared.id, "another share");
            assert_eq!(look(&one, "f").await.id(), node.shared.id);
        }
    }

    /// As on FUSE: the old file is gone, and the new one of its number is found by another share first.
    #[tokio::test]
    async fn file_of_a_stale_record_gives_its_number_away() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("g"), b"new").unwrap();
        let (_, seen) = opened(&dir.path().join("g"));
        struct Gone;
        impl Holder for Gone {
            fn is_still(&self, _: &Attr) -> bool {
                false
            }
        }
        let unknown = Generation { kind: seen.attr.kind, handle: None, born: None };
        let old = SharedFile::of(FileKey::Host(seen.dev, seen.ino), unknown);
        let gone: Weak<Gone> = Arc::downgrade(&Arc::new(Gone));
        let kept = Arc::new(Gone);
        let holder: Weak<Gone> = Arc::downgrade(&kept);
        old.hold(gone);
        old.hold(holder);
        let [one, two] = [(); 2].map(|()| share(dir.path(), true));
        let (here, there) = (look(&two, "g").await, look(&one, "g").await);
        assert_ne!(here.id(), old.id);
        assert_eq!(here.id(), there.id());
    }
}
