//! Paths of folders and files, and what stands for a user in one.

use std::fs;
use std::path::{Path, PathBuf};

use crate::in_time::{self, LOOK_MAX};

/// What stands for the name of the user at the end of a path.
pub(crate) const USER: &str = "{user}";

/// [`real`] of a folder whose file system may give no answer: then the path as it was written.
pub(crate) fn real_in_time(path: &Path) -> PathBuf {
    let its = path.to_owned();
    in_time::ask(path, LOOK_MAX, move || real(&its)).unwrap_or_else(|_| path.to_owned())
}

/// The path without symbolic links, as far as it exists.
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
