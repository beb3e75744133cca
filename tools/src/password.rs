//! Passwords from files, standard input and the terminal.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

/// Maximum size of a password file in bytes.
const BYTES_MAX: u64 = 4096;
/// Maximum length of a password in characters; Windows has the same limit.
pub const CHARS_MAX: usize = 256;

/// Returns the first line of a password file.
pub fn read_password(path: &Path) -> Result<Zeroizing<String>, String> {
    let at = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let file = File::open(path).map_err(|e| at(&e))?;
    first_line(file).map_err(|e| at(&e))
}

/// Returns the first line of the input as a password.
pub fn first_line(from: impl Read) -> Result<Zeroizing<String>, String> {
    let mut text = Zeroizing::new(String::new());
    from.take(BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|e| format!("cannot read the password: {e}"))?;
    let line = Zeroizing::new(text.lines().next().unwrap_or_default().to_owned());
    if line.is_empty() {
        return Err("the first line, the password, is empty".into());
    }
    if line.chars().count() > CHARS_MAX {
        return Err(format!("a password has at most {CHARS_MAX} characters"));
    }
    Ok(line)
}

/// Reads the password from the first line of a file; `-` is standard input.
pub fn given(path: &Path) -> Result<Zeroizing<String>, String> {
    if path.as_os_str() == "-" { first_line(io::stdin().lock()) } else { read_password(path) }
}

/// Prompts on the terminal, without echo.
pub fn prompt(words: &str) -> Result<Zeroizing<String>, String> {
    let cannot = |e: &dyn std::fmt::Display| format!("cannot ask for a password: {e}");
    let input = io::stdin();
    io::stderr()
        .write_all(words.as_bytes())
        .and_then(|()| io::stderr().flush())
        .map_err(|e| cannot(&e))?;
    let before = tcgetattr(&input).map_err(|e| cannot(&e))?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&input, OptionalActions::Flush, &silent).map_err(|e| cannot(&e))?;
    let line = read_line();
    let restored = tcsetattr(&input, OptionalActions::Flush, &before);
    complain!("");
    restored.map_err(|e| cannot(&e))?;
    first_line(line.map_err(|e| cannot(&e))?.as_bytes())
}

/// Reads a line byte by byte, so that no buffer keeps a copy of more than the line.
fn read_line() -> io::Result<Zeroizing<String>> {
    let mut line = Zeroizing::new(Vec::new());
    for byte in io::stdin().lock().bytes() {
        match byte? {
            b'\n' => break,
            byte => line.push(byte),
        }
    }
    let text = std::str::from_utf8(&line).map_err(io::Error::other)?;
    Ok(Zeroizing::new(text.to_owned()))
}
