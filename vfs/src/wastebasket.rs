//! The wastebasket of a share: removed and replaced files stay in a folder that no client sees, until they are too old or too many.
//!
//! *Operation.* A backend with a wastebasket gives the file a name in the gateway's own folder of the share
//! (`.headgate/wastebasket/UID/DAY/NAME`) and a [`Record`](crate::waste_record::Record), and then takes the client's name away. The
//! file keeps owner, group, mode, lists, streams and storage: it counts to its owner's quota as before. For clients it is removed:
//! its handles are stale, and holders of an open see a link count of 0. A file is in the wastebasket only while the name there is
//! its only one: a crash between the steps leaves a file with two names, of which [`Basket::repair`] removes the one here.
//!
//! *Errors.* What cannot be kept for a reason in [`NotKept`] is removed as asked, counted, and reported once for each share. Any
//! other error fails the removal, and the file stays.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::error::VfsResult;
use crate::types::Handle;
use crate::waste_record::{Id, Record};

/// Largest number of files in the wastebasket of one share; above it, the oldest files are removed.
pub const FILES_MAX: usize = 1_000_000;

/// The rules of one share.
#[derive(Debug)]
pub struct Wastebasket {
    /// How long a file is kept.
    pub keep: Duration,
    /// The storage that all kept files may have, in bytes; `None`: no limit.
    pub most: Option<u64>,
    /// Files that are removed at once.
    pub exclude: Vec<Pattern>,
    /// Set when a file was not kept, for each reason: the log has one line for each.
    pub told: [AtomicBool; NotKept::ALL.len()],
    /// Files and bytes that the last turn left.
    pub files: AtomicU64,
    pub bytes: AtomicU64,
}

impl Clone for Wastebasket {
    fn clone(&self) -> Self {
        Self::new(self.keep, self.most, self.exclude.clone())
    }
}

/// What was logged and counted is no part of the rules.
impl PartialEq for Wastebasket {
    fn eq(&self, other: &Self) -> bool {
        (self.keep, self.most, &self.exclude) == (other.keep, other.most, &other.exclude)
    }
}

impl Eq for Wastebasket {}

impl Wastebasket {
    /// Creates rules.
    pub fn new(keep: Duration, most: Option<u64>, exclude: Vec<Pattern>) -> Self {
        let (told, files, bytes) = Default::default();
        Self { keep, most, exclude, told, files, bytes }
    }

    /// Returns true if the file at this path of the share is removed at once.
    pub fn excludes(&self, path: &[u8]) -> bool {
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
        is_silly(name) || self.exclude.iter().any(|pattern| pattern.matches(path))
    }
}

/// Returns true for a name that Linux gives a removed file which a program of the client still has open (`.nfs` and hexadecimal
/// digits): the client removes that name at the last close.
fn is_silly(name: &[u8]) -> bool {
    let digits = name.strip_prefix(b".nfs").unwrap_or_default();
    digits.len() >= 8 && digits.iter().all(u8::is_ascii_hexdigit)
}

/// Selects files by their path in the share, or by their name. `*` stands for any characters of one name, `?` for one byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Creates a pattern: one name with `*` or `?` selects files of such names in every folder; all others are paths from the
    /// share's folder, or with `**/` in front from any folder, and select the file or folder there, with everything below it.
    pub fn new(text: &str) -> Self {
        Self(text.trim_matches('/').to_owned())
    }

    fn matches(&self, path: &[u8]) -> bool {
        let by_name = !self.0.contains('/') && self.0.contains(['*', '?']);
        if by_name {
            let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
            return fits(self.0.as_bytes(), name);
        }
        let Some(below) = self.0.strip_prefix("**/") else { return is_at(&self.0, path) };
        let starts = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at + 1);
        let mut folders = std::iter::once(0).chain(starts).filter_map(|at| path.get(at..));
        folders.any(|path| is_at(below, path))
    }
}

/// Returns true if the path is that of the pattern, or below it.
fn is_at(pattern: &str, path: &[u8]) -> bool {
    let mut names = path.split(|b| *b == b'/');
    pattern.split('/').all(|part| names.next().is_some_and(|name| fits(part.as_bytes(), name)))
}

/// Compares a name with a pattern, in steps of at most the product of their lengths.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n, mut last) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                last = Some((p, n));
                p += 1;
            }
            Some(c) if *c == b'?' || Some(c) == name.get(n) => {
                p += 1;
                n += 1;
            }
            // The last star takes one byte more.
            _ => match last.as_mut() {
                Some((star, from)) => {
                    *from += 1;
                    (p, n) = (*star + 1, *from);
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).is_some_and(|rest| rest.iter().all(|b| *b == b'*'))
}

/// A file that is to be kept: its place in the wastebasket, and its record.
#[derive(Clone, Debug)]
pub struct Waste {
    /// Its name there.
    pub id: Id,
    /// Stored with it.
    pub record: Record,
}

/// Reasons why a file that lost its last name was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKept {
    /// It is on another file system than the share's folder, or in another subvolume or project.
    Elsewhere,
    /// The file system has no room for its name or record, or a quota is used up.
    NoSpace,
    /// The file system has no hard links or no attributes for such a file.
    NotSupported,
}

impl NotKept {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Elsewhere, Self::NoSpace, Self::NotSupported];

    /// Returns its name in metrics; these names are stable.
    pub fn name(self) -> &'static str {
        match self {
            Self::Elsewhere => "other_file_system",
            Self::NoSpace => "no_space",
            Self::NotSupported => "not_supported",
        }
    }

    /// Returns the explanation for the log.
    pub fn why(self) -> &'static str {
        match self {
            Self::Elsewhere => "it is on another file system than the share's folder",
            Self::NoSpace => "there is no room for its name and record, or a quota is used up",
            Self::NotSupported => "the file system has no hard links or attributes for it",
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// The result of a change of names on a share with a wastebasket.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<T> {
    /// The file that lost its name is in the wastebasket.
    Yes(T),
    /// No file lost its last name.
    None(T),
    /// Nothing was changed: the file cannot be kept.
    No(NotKept),
}

/// Counts of this process for all shares.
#[derive(Debug, Default)]
pub struct Counters {
    /// Files that came into a wastebasket.
    pub kept: AtomicU64,
    /// Files that were removed at once, by [`NotKept`].
    pub not_kept: [AtomicU64; NotKept::ALL.len()],
    /// Files that were removed because they were too old.
    pub expired: AtomicU64,
    /// Files that were removed because there were too many.
    pub displaced: AtomicU64,
    /// Files that were given back.
    pub restored: AtomicU64,
}

impl Counters {
    /// Returns each count with its name; the names are stable.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        let own = [
            ("kept", &self.kept),
            ("restored", &self.restored),
            ("expired", &self.expired),
            ("displaced", &self.displaced),
        ];
        let not = NotKept::ALL.into_iter().zip(&self.not_kept).map(|(why, n)| (why.name(), n));
        own.into_iter().chain(not).map(|(name, n)| (name, n.load(Ordering::Relaxed))).collect()
    }
}

static COUNTERS: Counters = Counters {
    kept: AtomicU64::new(0),
    not_kept: [const { AtomicU64::new(0) }; NotKept::ALL.len()],
    expired: AtomicU64::new(0),
    displaced: AtomicU64::new(0),
    restored: AtomicU64::new(0),
};

/// Returns the counters of this process.
pub fn counters() -> &'static Counters {
    &COUNTERS
}

/// Counts a file that was not kept; returns true for the first of these rules and this reason.
pub(crate) fn count_not_kept(rules: &Wastebasket, why: NotKept) -> bool {
    if let Some(count) = COUNTERS.not_kept.get(why.index()) {
        count.fetch_add(1, Ordering::Relaxed);
    }
    rules.told.get(why.index()).is_some_and(|told| !told.swap(true, Ordering::Relaxed))
}

/// A file in a wastebasket.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name there.
    pub id: Id,
    /// Size in bytes.
    pub size: u64,
    /// Storage in bytes.
    pub used: u64,
    /// Its owner.
    pub owner: u32,
    /// Whence it came; `None` if that cannot be read.
    pub record: Option<Record>,
}

/// The storage and count of one file, for [`crate::waste_due`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    /// Its name in the wastebasket.
    pub id: Id,
    /// Storage in bytes.
    pub used: u64,
}

/// The wastebasket of a backend, for the gateway itself: no method checks a caller's rights. All methods block; those of one
/// wastebasket may run at the same time.
pub trait Basket: Send + Sync {
    /// Calls `each` for every file in it, in no order, until that returns false.
    fn weights(&self, each: &mut dyn FnMut(Weight) -> bool) -> VfsResult<()>;
    /// Returns a file in it.
    fn entry(&self, id: Id) -> VfsResult<Entry>;
    /// Gives a file back at this path of the share, and creates missing folders, with owner, group and mode of the folder above.
    /// [`crate::VfsError::Exists`] if a file has that name and `replace` is false.
    fn restore(&self, id: Id, to: &[u8], replace: bool) -> VfsResult<()>;
    /// Removes a file for good, and returns its handle: its streams are the caller's to remove.
    /// `None` if the file has another name.
    fn remove(&self, id: Id) -> VfsResult<Option<Handle>>;
    /// Completes what an interrupted run left: removes names of files that have another one. Returns how many.
    fn repair(&self) -> VfsResult<usize>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_select_paths_and_names() {
        let rules = |exclude: &[&str]| {
            let exclude = exclude.iter().map(|text| Pattern::new(text)).collect();
            Wastebasket::new(Duration::from_secs(1), None, exclude)
        };
        let tests: [(&str, &[&str], &[&str]); 8] = [
            ("tmp", &["tmp", "tmp/a", "tmp/a/b"], &["tmpx", "a/tmp", "a/tmp/b", "t"]),
            ("/a/b/", &["a/b", "a/b/c"], &["a", "b", "a/bc", "x/a/b"]),
            ("*.tmp", &["x.tmp", "a/b/.tmp", "a/x.tmp"], &["x.tmp/a", "x.tm", "tmp"]),
            ("~?*", &["~$x", "a/~ab"], &["~", "a~b"]),
            ("a/*/c", &["a/b/c", "a/x/c/d"], &["a/c", "a/b/d", "b/a/x/c"]),
            ("**/tmp", &["tmp", "a/tmp", "a/tmp/b", "a/b/tmp"], &["tmpx", "a/xtmp", "a"]),
            ("**/a/b", &["a/b", "x/a/b/c", "a/a/b"], &["a/x/b", "xa/b"]),
            ("*a*b*", &["ab", "xaxbx", "aab", "abab"], &["ba", "a", "b"]),
        ];
        for (pattern, hits, misses) in tests {
            let rules = rules(&[pattern]);
            for path in hits {
                assert!(rules.excludes(path.as_bytes()), "{pattern} {path}");
            }
            for path in misses {
                assert!(!rules.excludes(path.as_bytes()), "{pattern} {path}");
            }
        }
        let none = rules(&[]);
        assert!(none.excludes(b"a/.nfs00000000012f002300000001"));
        for name in ["a/.nfs", ".nfs1234", ".nfsnotes-from-today", "nfs00000000012f0023"] {
            assert!(!none.excludes(name.as_bytes()), "{name}");
        }
    }
}
