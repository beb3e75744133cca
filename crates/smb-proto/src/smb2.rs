//! The formats of MS-SMB2 section 2, pure: one file per command, with its request and its response.
//!
//! *Operation.* `parse(message)` parses a `Request` or `Response`; `message` starts at the 64-byte header and ends with this
//! message of a chain, because SMB2 offsets count from the header. `emit()` returns the body that follows the header, with offsets
//! counted from the header. Parsing borrows from the message and copies only fixed fields.
//!
//! *Errors.* [`wire::Fault`]: the field, the rule that it breaks, and its offset from the header. A server replies
//! `STATUS_INVALID_PARAMETER`. Every offset and length is checked against the message before use, and the `StructureSize` of each
//! body against its value.

pub mod aapl;
#[cfg(test)]
mod buffer_places;
pub mod change_notify;
pub mod close;
pub mod compression;
pub mod context;
pub mod create;
pub mod dfs;
pub mod error;
pub mod file_id;
pub mod flush;
pub mod fsctl;
pub mod header;
pub mod ioctl;
pub mod lock;
pub mod negotiate;
pub mod negotiate_context;
pub mod oplock_break;
pub mod query_directory;
pub mod query_info;
pub mod rdma;
pub mod read;
pub mod reparse;
pub mod session_setup;
pub mod set_info;
pub mod simple;
pub mod smb1;
#[cfg(test)]
pub(crate) mod test_harness;
pub mod transform;
pub mod tree_connect;
pub mod write;

pub use file_id::FileId;
pub use header::{Command, Flags, Header};

pub use crate::parse::{HEADER_LEN, Parsed, put_utf16, utf16};
