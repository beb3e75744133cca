//! Finds the path of a node.
//!
//! *Operation.* The library reports the parent of a directory, but no names. A record therefore remembers where its node was last
//! found, and checks that place first; a directory found by its handle is searched for among the names in its parent. A directory
//! is below the share if one of its ancestors is the share's folder; that is checked again periodically.
//!
//! *Errors.* [`VfsError::Stale`] for a file that was found by its handle only: its name is unknown.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ceph_sys::ffi::CEPH_NOSNAP;
use ceph_sys::{Name, Vino};
use mutex::locked;

use crate::engine::limits::DEPTH_MAX;
use crate::error::{VfsError, VfsResult};
use crate::types::*;

use super::held::Home;
use super::node::CephNode;
use super::{HIDDEN, ROOT_INO};

/// How long a directory found below the share is assumed to be still there, in milliseconds.
const RECHECK_MS: u64 = 1000;

/// A special snapshot number: the directory that contains all snapshots (`CEPH_SNAPDIR`).
pub(super) const SNAPDIR: u64 = u64::MAX;

/// A held directory, and a name in it.
type Found = (Arc<CephNode>, Box<[u8]>);

/// The ascent from a directory. If other clients move its ancestors meanwhile, the steps may form a loop.
#[derive(Debug)]
struct Climb {
    /// The position at the last power of two of steps: a loop returns to one of them (Brent's algorithm).
    seen: Vino,
    steps: usize,
}

impl Climb {
    fn from(at: Vino) -> Self {
        Self { seen: at, steps: 0 }
    }

    /// Goes one directory up. [`VfsError::Delay`] in a loop, which the next attempt does not find; [`VfsError::NameTooLong`] for a
    /// directory deeper than any path.
    fn reaches(&mut self, at: Vino) -> VfsResult<()> {
        self.steps += 1;
        if at == self.seen {
            return Err(VfsError::Delay);
        }
        if self.steps > DEPTH_MAX {
            return Err(VfsError::NameTooLong);
        }
        if self.steps.is_power_of_two() {
            self.seen = at;
        }
        Ok(())
    }
}

impl CephNode {
    /// Remembers that it was found under this name.
    pub(super) fn is_at(&self, dir: &CephNode, name: &[u8]) {
        // The directory of snapshots has a name, but no other path leads to it.
        *locked(&self.home) = Some(Home { dir: dir.vino, name: name.into() });
    }

    /// The parent of this directory. A directory of snapshots, and the share's folder in a snapshot, have the original folder as
    /// parent.
    ///
    /// The library remembers where it last saw a directory, even if another client has moved it since. Looking up the name there
    /// makes the library forget that.
    pub(super) fn above(&self) -> VfsResult<Arc<CephNode>> {
        let is_top = self.vino.ino == self.volume.root.ino;
        if self.vino.snap == SNAPDIR || is_top && self.vino.snap != self.volume.root.snap {
            return self.volume.hold(Vino { ino: self.vino.ino, snap: CEPH_NOSNAP });
        }
        let home = locked(&self.home).clone();
        if let Some(home) = home.clone()
            && let Some((above, _)) = self.still_at(home)?
        {
            return Ok(above);
        }
        let dots = self.volume.done(Name::new(b".."))?;
        let found = self.inode().lookup(&dots, &self.volume.process);
        let (inode, stat) = self.volume.done(found)?;
        let above = self.volume.adopt(inode, &stat)?;
        match home {
            // The look-up has just shown that this one is not there.
            Some(home) if home.dir == above.vino => Err(VfsError::Stale),
            _ => Ok(above),
        }
    }

    /// [`VfsError::Stale`] for a directory that is no longer below the share.
    pub(super) fn inside(&self) -> VfsResult<()> {
        if self.is_root() || self.volume.is_whole {
            return Ok(());
        }
        let (now, last) = (self.volume.now(), self.inside_at.load(Ordering::Relaxed));
        if last != 0 && now.saturating_sub(last) < RECHECK_MS {
            return Ok(());
        }
        self.inside_now()?;
        self.inside_at.store(now, Ordering::Relaxed);
        Ok(())
    }

    /// Like [`CephNode::inside`], without using an earlier result.
    pub(super) fn inside_now(&self) -> VfsResult<()> {
        if self.vino.ino == self.volume.root.ino || self.volume.is_whole {
            return Ok(());
        }
        let mut climb = Climb::from(self.vino);
        let mut at = self.above()?;
        loop {
            // In a snapshot this is the share's own folder at that time.
            if at.vino.ino == self.volume.root.ino {
                return Ok(());
            }
            if at.vino.ino == ROOT_INO {
                return Err(VfsError::Stale);
            }
            climb.reaches(at.vino)?;
            at = at.above()?;
        }
    }

    pub(super) fn do_path(&self) -> VfsResult<Vec<u8>> {
        let mut names: Vec<Box<[u8]>> = Vec::new();
        let mut climb = Climb::from(self.vino);
        let mut at = self.strong()?;
        while !at.is_root() {
            let known = locked(&at.home).clone();
            let here = match known {
                Some(home) => at.still_at(home)?,
                None => None,
            };
            let (above, name) = match here {
                Some(found) => found,
                None => at.sought()?,
            };
            names.push(name);
            at = above;
            climb.reaches(at.vino)?;
        }
        if names.iter().any(|name| **name == *HIDDEN) {
            return Err(VfsError::Stale);
        }
        names.reverse();
        Ok(names.join(&b'/'))
    }

    /// The directory and the name, if the node still has it.
    fn still_at(&self, home: Home) -> VfsResult<Option<Found>> {
        let above = match self.volume.hold(home.dir) {
            Ok(node) => node,
            Err(VfsError::Stale) => return Ok(None),
            Err(e) => return Err(e),
        };
        match above.seen(&home.name) {
            Ok((vino, _)) if vino == self.vino => Ok(Some((above, home.name))),
            Ok(_) | Err(VfsError::NotFound | VfsError::Stale) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Searches for this directory among the names in its parent.
    fn sought(&self) -> VfsResult<Found> {
        if self.kind != Kind::Dir {
            return Err(VfsError::Stale);
        }
        let above = self.above()?;
        let mut list = self.volume.done(above.inode().opendir(&self.volume.process))?;
        while let Some(entry) = self.volume.done(list.read())? {
            let dots = *entry.name == *b"." || *entry.name == *b"..";
            if entry.ino == self.vino.ino && !dots {
                self.is_at(&above, &entry.name);
                return Ok((above, entry.name));
            }
        }
        Err(VfsError::Stale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ino: u64) -> Vino {
        Vino { ino, snap: CEPH_NOSNAP }
    }

    #[test]
    fn loop_of_ancestors_is_detected() {
        for line in 0..40 {
            for circle in 1..40 {
                let mut climb = Climb::from(at(0));
                let step = |n: u64| if n < line { n } else { line + (n - line) % circle };
                let met = (1..).map(step).find_map(|n| climb.reaches(at(n)).err());
                assert_eq!(met, Some(VfsError::Delay), "{line} {circle}");
                assert!(climb.steps < 300, "{line} {circle}: {} steps", climb.steps);
            }
        }
    }

    #[test]
    fn deep_path_is_no_cycle() {
        let mut climb = Climb::from(at(0));
        for n in 1..=DEPTH_MAX as u64 {
            climb.reaches(at(n)).unwrap();
        }
        assert_eq!(climb.reaches(at(u64::MAX)), Err(VfsError::NameTooLong));
    }
}
