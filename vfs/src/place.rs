//! The place of a backend's folder among the folders of other backends, by which overlapping shares are found.

/// The place of a backend's folder among the folders of other backends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The tree that the path belongs to: this host's, or a file system's of a cluster.
    pub tree: u64,
    /// The path from the top of the tree, without a slash at its end.
    pub path: Vec<u8>,
}

impl Place {
    /// The tree of this host's folders.
    pub const HOST: u64 = 0;

    /// Returns the names on the path, each ended by NUL: so sorted, a folder directly precedes those inside.
    pub(crate) fn names(&self) -> Vec<u8> {
        let mut names = Vec::with_capacity(self.path.len() + 1);
        for name in self.path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            names.extend_from_slice(name);
            names.push(0);
        }
        names
    }
}
