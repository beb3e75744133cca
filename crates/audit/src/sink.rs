//! Where records go: a file, or the journal of systemd.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The journal's socket (systemd.journal-fields(7), "Native Journal Protocol").
pub const JOURNAL: &str = "/run/systemd/journal/socket";
/// For so long the journal may take no record.
const JOURNAL_WAIT: Duration = Duration::from_secs(2);

/// Where records go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sink {
    /// To the end of this file, which is made for its owner alone (0600).
    File(PathBuf),
    /// To the journal that listens at this socket.
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
    /// Opens it, which makes the file where it is not there.
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

/// A file whose last line is whole: an earlier run may have been killed in the middle of one.
fn file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).append(true).create(true).mode(0o600).open(path)?;
    if !file.metadata()?.is_file() {
        // A pipe or a device has no lines of an earlier run.
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

/// A sink that can be written.
#[derive(Debug)]
pub enum Open {
    /// A file.
    File(File),
    /// The journal.
    Journal(UnixDatagram),
}

impl Open {
    /// Writes a part of one line, whose last byte is its end; how much of it was taken.
    ///
    /// # Errors
    /// Nothing was taken.
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

/// One record in the journal's native protocol: JSON has no line ends inside.
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
    fn a_file_is_private_and_a_torn_line_is_ended() {
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
    fn the_journal_gets_one_entry_for_each_record() {
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
