//! Values without protocol details: attributes, credentials, handles, directory entries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::{Token, VfsError, VfsResult};

/// The user and group that squashed callers become.
pub const ANONYMOUS: u32 = 65534;

/// Identifies a node while this process runs; the key of all shared state. Hard links of one file have one id; an id is never used
/// again for another file.
pub use state::NodeId;

/// Returns an id that no other node of this process has or had: backends share one sequence.
pub fn next_node_id() -> NodeId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NodeId(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Number and size of a node's extended attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XattrSizes {
    /// Number of attributes.
    pub count: usize,
    /// Bytes of all names, without their prefix, and of all values.
    pub bytes: usize,
}

impl XattrSizes {
    /// Adds one attribute.
    pub fn add(&mut self, name: usize, value: usize) {
        self.count += 1;
        self.bytes += name + value;
    }
}

/// Identifies a node permanently within its backend: survives restart and rename. At most [`Handle::MAX`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Handle(Box<[u8]>);

impl Handle {
    /// Largest handle of a backend, in bytes. With the front end's share number and check value it must fit the 64 bytes of NFSv3
    /// (RFC 1813 section 2.4).
    pub const MAX: usize = 48;

    /// Creates a handle from these bytes; `None` if there are too many.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= Self::MAX).then(|| Self(bytes.into()))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The credentials of an operation, after squashing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cred {
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
    /// Identities of a domain.
    pub token: Token,
}

impl Cred {
    /// Returns the superuser's credentials.
    pub fn root() -> Self {
        Self { uid: 0, gid: 0, groups: Arc::new([]), token: Token::NONE }
    }

    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Checks whether both have the same numbers, whatever their tokens are.
    pub fn has_numbers_of(&self, other: &Self) -> bool {
        (self.uid, self.gid, &self.groups) == (other.uid, other.gid, &other.groups)
    }

    /// Checks whether both are the same caller: they have the same numbers and, if both came by a ticket, the same identities.
    pub fn is_same(&self, other: &Self) -> bool {
        let is_known = self.token.is_by_ticket() && other.token.is_by_ticket();
        self.has_numbers_of(other) && (!is_known || self.token == other.token)
    }

    /// Returns the same user with this as the first group, to which new files belong. The previous first group remains in the list.
    #[must_use]
    pub fn with_first_group(self, gid: u32) -> Self {
        if gid == self.gid {
            return self;
        }
        let others = self.groups.iter().copied().filter(|g| *g != gid && *g != self.gid);
        let groups = std::iter::once(self.gid).chain(others).collect();
        Self { gid, groups, ..self }
    }
}

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Regular file.
    File,
    Dir,
    /// Symbolic link.
    Symlink,
    /// Block device.
    Block,
    /// Character device.
    Char,
    /// Named pipe.
    Fifo,
    Socket,
}

/// A point in time since 1970, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    pub sec: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nsec: u32,
}

/// The attributes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    pub kind: Kind,
    /// Permission bits with set-id and sticky: 0o7777 at most.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of storage used.
    pub used: u64,
    /// Device numbers of a device node.
    pub rdev: (u32, u32),
    /// The volume: equal for all nodes of one file system, different for others below the same share.
    pub fsid: u64,
    /// Number of the node on its volume.
    pub fileid: u64,
    /// Last read.
    pub atime: Time,
    /// Last change of data.
    pub mtime: Time,
    /// Last change of data or attributes.
    pub ctime: Time,
    /// Time of birth, if the volume stores it.
    pub btime: Option<Time>,
    /// A number that differs after every change of data or attributes (RFC 8881 section 5.8.1.4).
    pub change: u64,
    /// Immutable or append-only (FS_IOC_SETFLAGS(2const)): then the mode does not tell which callers may write, and neither the
    /// node nor, for a directory, a name in it can be removed.
    pub sealed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's clock.
    Now,
    At(Time),
}

/// Times of a file from the holder of its write delegation; `None` for times that it did not report (RFC 9754 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelegatedTimes {
    /// Last read.
    pub atime: Option<Time>,
    /// Last change of data.
    pub mtime: Option<Time>,
}

impl DelegatedTimes {
    /// Limits the times to `now`, to correct a clock that is ahead.
    pub fn until(self, now: Time) -> Self {
        let before = |t: Time| if (t.sec, t.nsec) > (now.sec, now.nsec) { now } else { t };
        Self { atime: self.atime.map(before), mtime: self.mtime.map(before) }
    }

    /// Returns the times at or after this time, if it is given.
    ///
    /// RFC 9754 says to ignore times before the delegation. But the holder also keeps a time that a user sets (Linux, for
    /// `utimensat`), which would be lost; so an earlier time is accepted from a user with permission to set times.
    #[must_use]
    pub fn since(self, start: Option<Time>) -> Self {
        let behind = |t: &Time| start.is_none_or(|s| (t.sec, t.nsec) >= (s.sec, s.nsec));
        Self { atime: self.atime.filter(behind), mtime: self.mtime.filter(behind) }
    }
}

impl Time {
    /// Reads the clock of this machine.
    pub fn now() -> Self {
        let t = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX), nsec: t.subsec_nanos() }
    }
}

/// Attributes to change; `None` leaves an attribute unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// For a new node: permission bits that `mode` loses unless its directory passes on an access control list (RFC 8275 section
    /// 5). Ignored for an existing node.
    pub umask: u32,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Size in bytes: truncates, or extends by a hole.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<SetTime>,
    /// Last change of data.
    pub mtime: Option<SetTime>,
}

/// The rights of a caller to a node, as a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(pub u32);

impl Access {
    /// Read data or list names.
    pub const READ: u32 = 1;
    /// Look names up in a directory.
    pub const LOOKUP: u32 = 2;
    /// Change existing data.
    pub const MODIFY: u32 = 4;
    /// Add data or names.
    pub const EXTEND: u32 = 8;
    /// Remove names.
    pub const DELETE: u32 = 16;
    pub const EXECUTE: u32 = 32;
    /// Read extended attributes (RFC 8276).
    pub const XATTR_READ: u32 = 64;
    /// Change extended attributes.
    pub const XATTR_WRITE: u32 = 128;
    /// List extended attributes.
    pub const XATTR_LIST: u32 = 256;
}

/// How durable written data must be before the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stable {
    /// May be lost until a commit.
    Unstable,
    /// Data, and the metadata needed to read it back.
    Data,
    /// Data and all attributes.
    File,
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadData {
    /// The bytes, in pieces.
    pub data: Vec<iobuf::Buf>,
    /// The bytes after `data`, for a reader that [accepts pages](crate::backend::ReadInto::pages).
    pub pages: Option<iobuf::Pages>,
    /// True if the read reached the end of the file. If no attributes were requested, and the file was truncated on the host just
    /// before, this may be `false` at its new end; the next read reports the end.
    pub eof: bool,
    /// The attributes after the read, if they were requested or known anyway.
    pub attr: Option<Attr>,
}

impl ReadData {
    /// Returns the number of bytes that were read.
    pub fn len(&self) -> usize {
        let pages = self.pages.as_ref().map_or(0, iobuf::Pages::len);
        self.data.iter().map(iobuf::Buf::len).sum::<usize>() + pages
    }

    /// Returns true if no bytes were read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The position of data that is appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendAt {
    /// At the end of the file, wherever that is.
    End,
    /// At this offset, if the file has no byte there or later.
    Offset(u64),
    /// At this offset, if the file ends there; [`VfsError::Delay`](crate::VfsError::Delay) otherwise.
    Exactly(u64),
}

/// The result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of its first byte.
    pub at: u64,
    pub written: Written,
}

/// The data that a volume failed to store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Syncs and writes that failed.
    pub count: u64,
    /// The path of the last file or folder concerned, on the host.
    pub last: Option<String>,
}

impl Losses {
    /// Returns the sum of both.
    #[must_use]
    pub fn with(self, others: Self) -> Self {
        Self { count: self.count + others.count, last: others.last.or(self.last) }
    }
}

/// The kind of change to a name; with the numbers of MS-FSCC section 2.7.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Action {
    /// The name was added.
    Added = 1,
    /// The name was removed.
    Removed = 2,
    /// The node of the name was changed.
    Modified = 3,
    /// The name was changed within its directory: the old name, followed by the new one.
    RenamedOld = 4,
    /// The new name.
    RenamedNew = 5,
    /// A stream was added.
    AddedStream = 6,
    /// A stream was removed.
    RemovedStream = 7,
    /// A stream was changed.
    ModifiedStream = 8,
}

/// The credentials of a write.
#[derive(Clone, Copy, Debug)]
pub enum WriteBy<'a> {
    /// A caller without an open; the node checks its permission.
    Caller(&'a Cred),
    /// An open of this caller, which was checked: storage is charged to the caller, so that the blocks reserved for root and quotas
    /// apply. `None`: charged to the process.
    Open(Option<&'a Cred>),
}

impl<'a> WriteBy<'a> {
    /// Returns the caller whose permission the node checks; `None` for an open.
    pub fn judged(self) -> Option<&'a Cred> {
        match self {
            Self::Caller(cred) => Some(cred),
            Self::Open(_) => None,
        }
    }

    /// Returns the caller that pays for storage; `None`: the process.
    pub fn owner(self) -> Option<&'a Cred> {
        match self {
            Self::Caller(cred) => Some(cred),
            Self::Open(opener) => opener,
        }
    }
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes that were written, from the front.
    pub count: usize,
    /// How durable they are.
    pub stable: Stable,
    /// Attributes just before, if they cost little (weak cache consistency data of NFSv3).
    pub before: Option<Attr>,
    pub after: Attr,
    /// [`Node::verifier`](crate::Node::verifier) from before the write.
    pub verifier: u64,
}

/// A directory before and after a change of its names (RFC 1813 `wcc_data`, RFC 8881 `change_info4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirChange {
    pub before: Attr,
    pub after: Attr,
    /// True if no other change can have happened between the two.
    pub atomic: bool,
}

impl DirChange {
    /// Returns true if the directory did not change: both names of a rename belonged to one file.
    pub fn is_none(&self) -> bool {
        self.before.change == self.after.change
    }
}

/// How a file is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// Opens an existing file, and truncates it if `SetAttr::size` is 0 (RFC 1813 UNCHECKED).
    Unchecked,
    /// The name must be free (GUARDED).
    Guarded,
    /// The name must be free, or belong to the file that the same verifier created (EXCLUSIVE). The verifier is stored with the
    /// file.
    Exclusive([u8; 8]),
}

/// The kind of special node to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// Block device.
    Block(u32, u32),
    /// Character device.
    Char(u32, u32),
    /// Named pipe.
    Fifo,
    Socket,
}

impl Special {
    /// Returns the kind of the node.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Block(..) => Kind::Block,
            Self::Char(..) => Kind::Char,
            Self::Fifo => Kind::Fifo,
            Self::Socket => Kind::Socket,
        }
    }

    /// Refuses device numbers that Linux cannot store: it keeps 12 bits of the major number and 20 of the minor number, so a
    /// greater one would become another device.
    pub(crate) fn check(self) -> VfsResult<()> {
        match self {
            Self::Block(major, minor) | Self::Char(major, minor)
                if major >> 12 != 0 || minor >> 20 != 0 =>
            {
                Err(VfsError::Invalid)
            }
            _ => Ok(()),
        }
    }
}

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name's bytes; never `.` or `..`.
    pub name: Box<[u8]>,
    /// Number of the node.
    pub fileid: u64,
    /// A listing continues after this entry with this cookie; at least [`DirEntry::COOKIE_MIN`], and stable while other names are
    /// added and removed.
    pub cookie: u64,
    /// The kind of the node, if the listing tells.
    pub kind: Option<Kind>,
}

impl DirEntry {
    /// Smaller cookies are reserved: 0 is the start, 1 and 2 mean `.` and `..` (RFC 8881 section 18.23.3).
    pub const COOKIE_MIN: u64 = 3;
}

/// Total and free space of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsStat {
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// Bytes free for ordinary users.
    pub avail_bytes: u64,
    /// Total number of nodes.
    pub total_files: u64,
    /// Number of free nodes.
    pub free_files: u64,
    /// Nodes free for ordinary users.
    pub avail_files: u64,
}

/// The features of a volume, which stay the same while it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Longest name, in bytes.
    pub name_max: u32,
    /// Largest file, in bytes.
    pub size_max: u64,
    /// Largest number of links to a file.
    pub link_max: u32,
    /// Extended attributes in the `user.` namespace.
    pub xattr: bool,
    /// Clone by reference ([`crate::Node::clone_range`]).
    pub reflink: bool,
    /// Bytes to which the ends of a cloned range must be aligned.
    pub clone_block: u32,
    /// Frees the storage of a range ([`crate::Node::deallocate`]).
    pub deallocate: bool,
    /// Preferred and smallest sensible transfer, in bytes.
    pub block: u32,
    /// Handles survive a restart of the gateway.
    pub handles_persist: bool,
    pub read_only: bool,
    /// The volume counted the use of users when it was opened ([`crate::quota`]).
    pub quotas: bool,
}

/// The target of a search from an offset (RFC 7862 SEEK).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// Next data.
    Data,
    /// Next hole; the end of the file counts as one.
    Hole,
}

/// How an extended attribute is set (RFC 8276).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrHow {
    /// Create or replace.
    Either,
    /// The name must be free.
    Create,
    /// The name must exist.
    Replace,
}

/// The operation that a caller intends on a node, to be checked before other clients return rights for it.
#[derive(Clone, Copy, Debug)]
pub enum Intent<'a> {
    /// [`Node::read`](crate::backend::Node::read)
    Read,
    /// [`Node::write`](crate::backend::Node::write)
    Write,
    /// [`Node::setattr`](crate::backend::Node::setattr)
    Set {
        /// The attributes to set.
        set: &'a SetAttr,
        /// As in [`Node::setattr`](crate::backend::Node::setattr).
        open_write: bool,
    },
    /// [`Node::xattr_set`](crate::backend::Node::xattr_set), [`Node::xattr_remove`](crate::backend::Node::xattr_remove)
    SetXattr,
    /// Adds a name of a node of this kind to this directory.
    Add(Kind),
    /// [`Node::link`](crate::backend::Node::link), the check on the node itself.
    Link,
}
