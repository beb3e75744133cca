//! The destination of records: a file, or the systemd journal.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The journal's socket (systemd.journal-fields(7), "Native Journal Protocol").
pub const JOURNAL: &str = "/run/systemd/journal/socket";
/// Time limit for the journal to accept a record.
const JOURNAL_WAIT: Duration = Duration::from_secs(2);

/// The destination of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sink {
    /// Appends to this file, which is created with mode 0600.
    File(PathBuf),
    /// Sends to the journal that listens on this socket.
    Journal(PathBuf),
}

impl fmt::Display for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Journal(_) => f.write_str("the journal"),
        }
    }
}

impl Sink {
    /// Opens the sink, and creates its file if necessary.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open(&self) -> io::Result<Open> {
        match self {
            Self::File(path) => file(path).map(Open::File),
            Self::Journal(at) => {
                let socket = UnixDatagram::unbound()?;
                socket.set_write_timeout(Some(JOURNAL_WAIT))?;
                socket.connect(at)?;
                Ok(Open::Journal(socket))
            }
        }
    }
}

/// Opens a file, and completes its last line if an earlier run was killed while writing it.
fn file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).append(true).create(true).mode(0o600).open(path)?;
    if !file.metadata()?.is_file() {
        // A pipe or a device has no lines from an earlier run.
        return Ok(file);
    }
    if file.seek(SeekFrom::End(0))? > 0 {
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    Ok(file)
}

/// An open sink.
#[derive(Debug)]
pub enum Open {
    File(File),
    Journal(UnixDatagram),
}

impl Open {
    /// Writes part of a line, up to its last byte; returns the number of bytes written.
    ///
    /// # Errors
    /// No bytes were written.
    pub(crate) fn write(&mut self, rest: &[u8], is_whole: bool) -> io::Result<usize> {
        match self {
            Self::File(file) => loop {
                match file.write(rest) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    done => return done,
                }
            },
            Self::Journal(socket) => {
                debug_assert!(is_whole, "a datagram is taken whole or not at all");
                socket.send(&journal_entry(rest)).map(|_| rest.len())
            }
        }
    }
}

/// Formats a record in the journal's native protocol. JSON contains no line breaks.
fn journal_entry(line: &[u8]) -> Vec<u8> {
    let message = line.strip_suffix(b"\n").unwrap_or(line);
    let mut entry = b"PRIORITY=5\nSYSLOG_IDENTIFIER=headgate-audit\nMESSAGE=".to_vec();
    entry.extend_from_slice(message);
    entry.push(b'\n');
    entry
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn audit_file_is_private_and_repaired() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let sink = Sink::File(path.clone());
        sink.open().unwrap().write(b"{\"a\":", true).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        sink.open().unwrap().write(b"{}\n", true).unwrap();
        sink.open().unwrap().write(b"{}\n", true).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"a\":\n{}\n{}\n");
        assert!(Sink::File(dir.path().to_owned()).open().is_err(), "a folder");
    }

    #[test]
    fn journal_gets_one_entry_per_record() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("socket");
        let sink = Sink::Journal(at.clone());
        assert!(sink.open().is_err(), "nobody listens");
        let journal = UnixDatagram::bind(&at).unwrap();
        sink.open().unwrap().write(b"{\"event\":\"stop\"}\n", true).unwrap();
        let mut entry = [0; 256];
        let len = journal.recv(&mut entry).unwrap();
        let text = std::str::from_utf8(&entry[..len]).unwrap();
        assert!(text.ends_with("\nMESSAGE={\"event\":\"stop\"}\n"), "{text}");
        assert!(text.contains("SYSLOG_IDENTIFIER=headgate-audit\n"));
    }
}
