//! Reads files with passwords and keys, whose file system may not respond.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use config::in_time::{self, LOOK_MAX};
use zeroize::Zeroizing;

/// Maximum size of a password file in bytes.
const PASSWORD_BYTES_MAX: u64 = 4096;
/// Maximum length of a password in characters; Windows has the same limit.
pub(crate) const PASSWORD_CHARS_MAX: usize = 256;
/// Runs `read` on a file of users, a password or keys with a time limit, since its file system may not respond.
pub(crate) fn in_time<T: Send + 'static>(
    path: &Path,
    read: impl FnOnce(&Path) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let its = path.to_owned();
    let read = in_time::ask(path, LOOK_MAX, move || read(&its));
    read.unwrap_or_else(|_| Err(format!("{}: its file system does not respond", path.display())))
}

/// Returns the first line of a password file.
pub(crate) fn read_password(path: &Path) -> Result<Zeroizing<String>, String> {
    let at = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let file = File::open(path).map_err(|e| at(&e))?;
    first_line(file).map_err(|e| at(&e))
}

/// Returns the first line of the input as a password.
pub(crate) fn first_line(from: impl Read) -> Result<Zeroizing<String>, String> {
    let mut text = Zeroizing::new(String::new());
    from.take(PASSWORD_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|e| format!("cannot read the password: {e}"))?;
    let line = Zeroizing::new(text.lines().next().unwrap_or_default().to_owned());
    if line.is_empty() {
        return Err("the first line, the password, is empty".into());
    }
    if line.chars().count() > PASSWORD_CHARS_MAX {
        return Err(format!("a password has at most {PASSWORD_CHARS_MAX} characters"));
    }
    Ok(line)
}
