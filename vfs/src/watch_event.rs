//! The events for a watcher of a directory: kinds of change, and one change.

use crate::types::{Action, SetAttr};

/// Kinds of change, as MS-SMB2 section 2.2.35 numbers them: a set of bits.
#[allow(missing_docs)] // The names are the specification's.
pub mod what {
    pub const FILE_NAME: u32 = 0x001;
    pub const DIR_NAME: u32 = 0x002;
    pub const ATTRIBUTES: u32 = 0x004;
    pub const SIZE: u32 = 0x008;
    pub const LAST_WRITE: u32 = 0x010;
    pub const LAST_ACCESS: u32 = 0x020;
    pub const CREATION: u32 = 0x040;
    pub const EA: u32 = 0x080;
    pub const SECURITY: u32 = 0x100;
    pub const STREAM_NAME: u32 = 0x200;
    pub const STREAM_SIZE: u32 = 0x400;
    pub const STREAM_WRITE: u32 = 0x800;
}

/// One change, as a watcher sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The kind of change.
    pub action: Action,
    /// The path from the watched directory, names joined by `/`.
    pub path: Vec<u8>,
}

impl Event {
    /// Returns the memory of the event while it waits.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.path.len()
    }
}

/// Returns the kinds of change that subscribers see for these attributes.
pub(crate) fn kinds(set: &SetAttr) -> u32 {
    let when = |set: bool, kinds| if set { kinds } else { 0 };
    when(set.mode.is_some(), what::ATTRIBUTES | what::SECURITY)
        | when(set.uid.is_some() || set.gid.is_some(), what::SECURITY)
        | when(set.size.is_some(), what::SIZE | what::LAST_WRITE)
        | when(set.mtime.is_some(), what::LAST_WRITE)
        | when(set.atime.is_some(), what::LAST_ACCESS)
}
