//! Paths of folders and files, and the placeholder for a user in them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::in_time::{self, LOOK_MAX};

/// Placeholder for the user name at the end of a path.
pub(crate) const USER: &str = "{user}";

/// Resolves a folder with [`real`]; returns the path unchanged if the file system does not answer in time.
pub(crate) fn real_in_time(path: &Path) -> PathBuf {
    let its = path.to_owned();
    in_time::ask(path, LOOK_MAX, move || real(&its)).unwrap_or_else(|_| path.to_owned())
}

/// Resolves the symbolic links in the part of the path that exists.
pub(crate) fn real(path: &Path) -> PathBuf {
    let mut rest = Vec::new();
    let mut at = path;
    loop {
        if let Ok(mut whole) = fs::canonicalize(at) {
            whole.extend(rest.iter().rev());
            return whole;
        }
        match (at.parent(), at.file_name()) {
            (Some(parent), Some(name)) => {
                rest.push(name.to_owned());
                at = parent;
            }
            _ => return path.to_owned(),
        }
    }
}
