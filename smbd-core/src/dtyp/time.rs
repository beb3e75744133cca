//! Times of files as FILETIME, and back.

use smb_proto::dtyp::FileTime;
use vfs::types::Time;

/// Cut to 100 ns and to what FILETIME can hold.
pub fn file_time(t: Time) -> FileTime {
    FileTime::of_unix(t.sec, t.nsec)
}

/// The neutral time; `None` when the sign bit is set, which no time has.
pub fn time(t: FileTime) -> Option<Time> {
    t.to_unix().map(|(sec, nsec)| Time { sec, nsec })
}
