//! The path of a file in a snapshot, and the file that has it in the share today.
//!
//! *Operation.* A path is a chain of names; each part remembers for a moment the file that the last caller reached by it today,
//! so that a walk down a tree looks up each name once.

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use mutex::locked;

use crate::error::{VfsError, VfsResult};
use crate::local::node::LocalNode;
use crate::types::Cred;

/// How long it is assumed that a caller reaches the same file by a path: like the boundary of a share.
const FRESH: Duration = Duration::from_secs(1);
/// Longest path in bytes (PATH_MAX).
const LEN_MAX: usize = 4096;

/// A path below the root of a snapshot; the root has none.
pub(super) struct Way {
    name: Box<[u8]>,
    above: Option<Arc<Way>>,
    len: usize,
    seen: Mutex<Option<Seen>>,
}

/// A file that a caller reached today.
struct Seen {
    cred: Cred,
    at: Instant,
    /// `None`: there is no such file.
    node: Option<Weak<LocalNode>>,
}

impl Way {
    /// Adds a name to a path.
    pub(super) fn to(above: Option<&Arc<Self>>, name: &[u8]) -> VfsResult<Arc<Self>> {
        let len = above.map_or(0, |above| above.len).saturating_add(name.len()).saturating_add(1);
        if len > LEN_MAX {
            return Err(VfsError::NameTooLong);
        }
        let (name, above, seen) = (name.into(), above.cloned(), Mutex::default());
        Ok(Arc::new(Self { name, above, len, seen }))
    }

    /// Returns the path of these names, which `/` joins.
    pub(super) fn of(path: &[u8]) -> VfsResult<Option<Arc<Self>>> {
        let mut names = path.split(|b| *b == b'/').filter(|name| !name.is_empty());
        names.try_fold(None, |above, name| Self::to(above.as_ref(), name).map(Some))
    }

    pub(super) fn above(&self) -> Option<&Arc<Self>> {
        self.above.as_ref()
    }

    /// Appends the path to another one.
    pub(super) fn append_to(&self, path: &mut Vec<u8>) {
        let (mut names, mut at) = (vec![&*self.name], self);
        while let Some(above) = &at.above {
            names.push(&above.name);
            at = above;
        }
        for name in names.into_iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
    }

    /// The file that this caller reached a moment ago.
    fn known(&self, cred: &Cred) -> Option<Option<Arc<LocalNode>>> {
        let seen = locked(&self.seen);
        let seen = seen.as_ref().filter(|s| s.at.elapsed() < FRESH && s.cred == *cred)?;
        match &seen.node {
            None => Some(None),
            Some(node) => node.upgrade().map(Some),
        }
    }

    fn note(&self, cred: &Cred, node: Option<&Arc<LocalNode>>) {
        let node = node.map(Arc::downgrade);
        *locked(&self.seen) = Some(Seen { cred: cred.clone(), at: Instant::now(), node });
    }

    /// Returns the file that the caller reaches by this path below `live`; `None` if there is none.
    pub(super) fn today(
        &self,
        live: &Arc<LocalNode>,
        cred: &Cred,
    ) -> VfsResult<Option<Arc<LocalNode>>> {
        // Walks from the last name upward, to the first known part.
        let (mut parts, mut at, mut from) = (Vec::new(), Some(self), Some(live.clone()));
        while let Some(part) = at {
            if let Some(known) = part.known(cred) {
                from = known;
                break;
            }
            parts.push(part);
            at = part.above.as_deref();
        }
        for part in parts.into_iter().rev() {
            let Some(dir) = from else {
                part.note(cred, None);
                continue;
            };
            from = match dir.do_lookup(cred, &part.name) {
                Ok((node, _)) => Some(node),
                Err(VfsError::NotFound | VfsError::NotDir | VfsError::Symlink) => None,
                Err(e) => return Err(e),
            };
            part.note(cred, from.as_ref());
        }
        Ok(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_joined_and_bounded() {
        let way = Way::of(b"/a//b/c").unwrap().unwrap();
        let mut path = b"x".to_vec();
        way.append_to(&mut path);
        assert_eq!(path, b"x/a/b/c");
        assert!(Way::of(b"").unwrap().is_none());
        assert!(Way::of(&b"x/".repeat(2048)).is_ok());
        assert_eq!(Way::of(&b"x/".repeat(2049)).err(), Some(VfsError::NameTooLong));
    }
}
