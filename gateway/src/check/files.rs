//! Describes the file system below a share, from the kernel's table of mounts and the names in its folder. Writes no files.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use vfs::local::is_kernels_own;

/// Entries of a folder that are searched for a name with letters.
const NAMES_TRIED: usize = 200;

/// A mount on, above or below a share's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(super) at: PathBuf,
    /// `ext4`, `xfs`, ...
    pub(super) kind: String,
    pub(super) read_only: bool,
}

/// Returns all mounts that this process sees, in the order in which they were made.
pub(crate) fn mounts() -> Vec<Mount> {
    parse(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

/// Parses lines of proc(5)'s mountinfo: `ID PARENT DEV ROOT AT OPTIONS [TAGS] - KIND SOURCE OPTIONS`.
fn parse(text: &str) -> Vec<Mount> {
    let one = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(4);
        let (at, options) = (fields.next()?, fields.next()?);
        let mut after = after.split(' ');
        let (kind, of_all) = (after.next()?, after.nth(1).unwrap_or_default());
        let is_ro = |list: &str| list.split(',').any(|o| o == "ro");
        Some(Mount {
            at: unescaped(at),
            kind: kind.to_owned(),
            read_only: is_ro(options) || is_ro(of_all),
        })
    };
    text.lines().filter_map(one).collect()
}

/// Decodes the octal escapes that mountinfo uses for blanks and backslashes.
fn unescaped(text: &str) -> PathBuf {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|d| std::str::from_utf8(d).ok());
        match octal.and_then(|d| u8::from_str_radix(d, 8).ok()).filter(|_| *first == b'\\') {
            Some(byte) => {
                out.push(byte);
                rest = &after[3..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

/// Returns the mount that contains a folder; a later mount covers earlier ones.
pub(super) fn mount_of<'a>(mounts: &'a [Mount], folder: &Path) -> Option<&'a Mount> {
    let above = mounts.iter().filter(|m| folder.starts_with(&m.at));
    above.max_by_key(|m| m.at.as_os_str().len())
}

impl Mount {
    /// Returns why clients do not see this mount inside a share with this `cross` setting, or `None` if they see it.
    pub(crate) fn hidden(&self, crosses: bool) -> Option<&'static str> {
        if is_kernels_own(self.kind.split('.').next().unwrap_or_default()) {
            return Some("the kernel's own, which clients never see");
        }
        let why = "which clients are refused: remove `cross: false`, or add a share for it";
        (!crosses).then_some(why)
    }
}

/// Logs the file systems that are mounted inside a share's folder, and whether clients see them.
pub(crate) fn log_inside(share: &str, folder: &Path, crosses: bool) {
    for inner in inside(&mounts(), folder) {
        let (at, kind) = (inner.at.display(), &inner.kind);
        match inner.hidden(crosses) {
            None => tracing::info!(share, %at, kind, "another file system is part of a share"),
            Some(why) => {
                tracing::warn!(share, %at, kind, "another file system is inside a share: {why}")
            }
        }
    }
}

/// Returns the mounts inside a folder.
pub(crate) fn inside<'a>(mounts: &'a [Mount], folder: &Path) -> Vec<&'a Mount> {
    mounts.iter().filter(|m| m.at != folder && m.at.starts_with(folder)).collect()
}

/// Returns whether the file system distinguishes names that differ only in case, or `None` if no name shows it.
pub(super) fn tells_case_apart(folder: &Path) -> Option<bool> {
    let names = fs::read_dir(folder).ok()?.flatten().take(NAMES_TRIED).map(|e| e.file_name());
    // The folder's own name shows how its parent behaves, which is usually the same.
    let own = Some((folder.parent()?, folder.file_name()?.to_owned()));
    let mut all = names.map(|n| (folder, n)).chain(own);
    all.find_map(|(dir, name)| {
        let other = swapped(&name)?;
        let (a, b) = (fs::symlink_metadata(dir.join(&name)), fs::symlink_metadata(dir.join(other)));
        let a = a.ok()?;
        Some(!b.is_ok_and(|b| (a.dev(), a.ino()) == (b.dev(), b.ino())))
    })
}

/// Swaps the case of the name's ASCII letters, if it has letters.
fn swapped(name: &OsStr) -> Option<OsString> {
    let other: Vec<u8> =
        name.as_bytes()
            .iter()
            .map(|b| {
                if b.is_ascii_lowercase() { b.to_ascii_uppercase() } else { b.to_ascii_lowercase() }
            })
            .collect();
    (other != name.as_bytes()).then(|| OsString::from_vec(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
        30 22 8:2 / /srv/my\\040data ro,relatime - xfs /dev/sdb1 rw\n\
        31 30 0:5 / /srv/my\\040data/inner rw - tmpfs tmpfs rw\n\
        32 22 0:6 / /srvx rw shared:2 master:3 - nfs4 h:/ ro\nbroken\n";

    #[test]
    fn the_mount_of_a_share_and_those_inside() {
        let all = parse(TABLE);
        assert_eq!(all.len(), 4);
        let of = |path: &str| mount_of(&all, Path::new(path)).unwrap().clone();
        assert_eq!((of("/srv").kind.as_str(), of("/srv").read_only), ("ext4", false));
        assert_eq!(of("/srv/my data/x").kind, "xfs");
        assert!(of("/srv/my data").read_only && of("/srvx/y").read_only);
        let inner = inside(&all, Path::new("/srv/my data"));
        assert_eq!(inner.iter().map(|m| m.kind.as_str()).collect::<Vec<_>>(), ["tmpfs"]);
        assert!(inside(&all, Path::new("/srv/my data/inner")).is_empty());
        assert!(inner[0].hidden(true).is_none() && inner[0].hidden(false).is_some());
        let proc = Mount { kind: "proc".into(), ..inner[0].clone() };
        assert!(proc.hidden(true).is_some(), "it is the kernel's");
    }

    #[test]
    fn case_is_told_from_names_that_are_there() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("Name"), "").unwrap();
        assert_eq!(tells_case_apart(folder.path()), Some(true));
        // A second file with the swapped name is a different file.
        fs::write(folder.path().join("nAME"), "").unwrap();
        assert_eq!(tells_case_apart(folder.path()), Some(true));
        // A hard link under the swapped name looks like a file system that ignores case.
        fs::remove_file(folder.path().join("nAME")).unwrap();
        fs::hard_link(folder.path().join("Name"), folder.path().join("nAME")).unwrap();
        assert_eq!(tells_case_apart(folder.path()), Some(false));
        assert_eq!(swapped(OsStr::new("123")), None);
    }
}
