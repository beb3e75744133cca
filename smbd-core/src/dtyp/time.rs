//! Times of files as FILETIME, and back.

use smb_proto::dtyp::FileTime;
use vfs::types::Time;

/// Rounds down to 100 ns and clamps to the range of FILETIME.
pub fn file_time(t: Time) -> FileTime {
    FileTime::of_unix(t.sec, t.nsec)
}

/// Converts to a neutral time; `None` if the sign bit is set, which is invalid.
pub fn time(t: FileTime) -> Option<Time> {
    t.to_unix().map(|(sec, nsec)| Time { sec, nsec })
}
