//! Warnings about shares with overlapping folders.
//!
//! *Operation.* Compares folders after resolving symbolic links. Reports each pair once, at the later share, with the line of the
//! other. This is a warning, because overlapping shares of read-only data may be intended.

use std::path::{Path, PathBuf};

use crate::file::DraftShare;
use crate::reader::{Finding, Origin};
use crate::settings::Source;

/// The consequence, as shown to the user.
const HELP: &str = "a share does not know the locks, opens and cached files of another one, so clients of both can corrupt each \
                    other's data; serve each folder by one share";

fn of_folders(path: &Path, before: &Path) -> Option<&'static str> {
    match (path.starts_with(before), before.starts_with(path)) {
        (true, true) => Some("is the same as that of"),
        (true, false) => Some("lies inside that of"),
        (false, true) => Some("contains that of"),
        (false, false) => None,
    }
}

/// Returns every share whose folder equals, contains or is inside an earlier share's folder; `line` returns the position of a
/// setting.
pub(crate) fn overlaps(
    shares: &[DraftShare],
    real: impl Fn(&Path) -> PathBuf,
    line: impl Fn(Origin) -> Option<usize>,
) -> Vec<Finding> {
    let folder = |s: &DraftShare| match &s.share.source {
        Source::Folder(path) => Some(real(path)),
        Source::Memory | Source::Ceph(_) | Source::Refer(_) => None,
    };
    let folders: Vec<Option<PathBuf>> = shares.iter().map(folder).collect();
    let mut found = Vec::new();
    for (n, s) in shares.iter().enumerate() {
        for (other, before) in shares[..n].iter().zip(&folders) {
            let how = match (&s.share.source, &other.share.source, &folders[n], before) {
                (Source::Ceph(its), Source::Ceph(before), ..) => its.overlap(before),
                (_, _, Some(path), Some(before)) => of_folders(path, before),
                _ => None,
            };
            let Some(how) = how else { continue };
            let at = line(other.source_at).map(|n| format!(", line {n}")).unwrap_or_default();
            found.push(Finding {
                at: s.source_at,
                what: format!(
                    "the folder of the share `{}` {how} the share `{}`{at}",
                    s.share.name, other.share.name
                ),
                help: Some(HELP.to_owned()),
            });
        }
    }
    found
}
