//! Lines for the journal of systemd, if it reads standard error: each begins with its priority, as sd-daemon(3) describes it.
//!
//! The journal splits a program's output at line breaks, and adds a time to each line, and priority 6 to lines without one.

use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::LazyLock;

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Returns whether the journal reads standard error: `JOURNAL_STREAM` names its device and inode (systemd.exec(5)).
pub fn is_standard_error() -> bool {
    static IS_JOURNAL: LazyLock<bool> = LazyLock::new(|| {
        let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
        let about = std::fs::metadata("/proc/self/fd/2");
        about.is_ok_and(|about| is_stream(&named, about.dev(), about.ino()))
    });
    *IS_JOURNAL
}

fn is_stream(named: &str, device: u64, inode: u64) -> bool {
    named
        .split_once(':')
        .is_some_and(|(dev, ino)| (dev.parse(), ino.parse()) == (Ok(device), Ok(inode)))
}

/// Returns the priority of a level (syslog(3)).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// Returns the text of a command with the priority before each line: that of an error, a warning, or a note.
pub fn prefixed(text: &str) -> String {
    let priority = match text {
        error if error.starts_with("error: ") => 3,
        warning if warning.starts_with("warning: ") => 4,
        _ => 6,
    };
    text.split_inclusive('\n').map(|line| format!("<{priority}>{line}")).collect()
}

/// Writes lines of the log to standard error, with their priorities.
#[derive(Clone, Copy, Debug)]
pub struct Lines;

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(priority(Level::INFO))
    }

    fn make_writer_for(&'a self, of: &Metadata<'_>) -> Line {
        Line(priority(*of.level()))
    }
}

/// Writes one line.
#[derive(Debug)]
pub struct Line(u8);

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let whole = [format!("<{}>", self.0).as_bytes(), line].concat();
        io::stderr().write_all(&whole)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_its_priority() {
        assert_eq!(prefixed("error: a\n  | b\n"), "<3>error: a\n<3>  | b\n");
        assert_eq!(prefixed("warning: a\n"), "<4>warning: a\n");
        assert_eq!(prefixed("a\n"), "<6>a\n");
        let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG];
        assert_eq!(levels.map(priority), [3, 4, 6, 7]);
    }

    #[test]
    fn the_journal_is_known_by_its_stream() {
        assert!(is_stream("8:42", 8, 42));
        for other in ["", "8", "8:43", "9:42", "x:y"] {
            assert!(!is_stream(other, 8, 42), "{other}");
        }
    }
}
