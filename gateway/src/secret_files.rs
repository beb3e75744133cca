//! Reads files with passwords and keys, whose file system may not respond.

use std::path::Path;

use config::in_time::{self, LOOK_MAX};

/// Runs `read` on a file of users, a password or keys with a time limit, since its file system may not respond.
pub(crate) fn in_time<T: Send + 'static>(
    path: &Path,
    read: impl FnOnce(&Path) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let its = path.to_owned();
    let read = in_time::ask(path, LOOK_MAX, move || read(&its));
    read.unwrap_or_else(|_| Err(format!("{}: its file system does not respond", path.display())))
}
