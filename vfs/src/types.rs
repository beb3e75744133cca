//! Neutral values: attributes, credentials, handles, directory entries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::{VfsError, VfsResult};

/// The user and group that squashed callers become.
pub const ANONYMOUS: u32 = 65534;

/// Names a node while this process runs; the key of all shared state. Hard links of one file have one id; an id is
/// never used again for another file.
pub use state::NodeId;

/// An id that no other node of this process has or had: backends share one sequence.
pub fn next_node_id() -> NodeId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NodeId(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// How much the extended attributes of a node are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XattrSizes {
    /// How many there are.
    pub count: usize,
    /// Bytes of all names, without their prefix, and of all values.
    pub bytes: usize,
}

impl XattrSizes {
    /// One more.
    pub fn add(&mut self, name: usize, value: usize) {
        self.count += 1;
        self.bytes += name + value;
    }
}

/// Names a node for ever, within its backend: survives restart and rename. At most [`Handle::MAX`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Handle(Box<[u8]>);

impl Handle {
    /// Largest handle a backend may give, in bytes. With the front end's share number and check value it must fit the 64
    /// bytes of NFSv3 (RFC 1813 section 2.4).
    pub const MAX: usize = 48;

    /// A handle of these bytes; `None` when there are too many.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= Self::MAX).then(|| Self(bytes.into()))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// On whose behalf an operation is done, after squashing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cred {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
}

impl Cred {
    /// The superuser.
    pub fn root() -> Self {
        Self { uid: 0, gid: 0, groups: Arc::new([]) }
    }

    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// The same user with this as the first group: what it makes belongs to that one. It stays in the group that was the first.
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

/// What a node is.
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
    /// What it is.
    pub kind: Kind,
    /// Permission bits with set-id and sticky: 0o7777 at most.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
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
    /// Last change of anything.
    pub ctime: Time,
    /// Birth, where the volume knows it.
    pub btime: Option<Time>,
    /// A number that differs after every change of data or attributes (RFC 8881 section 5.8.1.4).
    pub change: u64,
    /// Immutable or append-only (FS_IOC_SETFLAGS(2const)): the mode does not tell who may write, and nobody removes it or, of a
    /// directory, a name in it.
    pub sealed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's clock.
    Now,
    At(Time),
}

/// Times of a file as the holder of its write delegation has them; `None` where it does not say (RFC 9754 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelegatedTimes {
    /// Last read.
    pub atime: Option<Time>,
    /// Last change of data.
    pub mtime: Option<Time>,
}

impl DelegatedTimes {
    /// None of them lies in the future: a clock that is fast is put right.
    pub fn until(self, now: Time) -> Self {
        let before = |t: Time| if (t.sec, t.nsec) > (now.sec, now.nsec) { now } else { t };
        Self { atime: self.atime.map(before), mtime: self.mtime.map(before) }
    }

    /// Those that lie at this time, if there is one, or behind it.
    ///
    /// RFC 9754 has times ignored that lie before the delegation. But a time that a user sets is kept by the holder like any other
    /// (Linux, for `utimensat`), and would be lost; so of a user who may set times an earlier one is taken.
    #[must_use]
    pub fn since(self, start: Option<Time>) -> Self {
        let behind = |t: &Time| start.is_none_or(|s| (t.sec, t.nsec) >= (s.sec, s.nsec));
        Self { atime: self.atime.filter(behind), mtime: self.mtime.filter(behind) }
    }
}

impl Time {
    /// By the clock of this machine.
    pub fn now() -> Self {
        let t = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX), nsec: t.subsec_nanos() }
    }
}

/// Attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Of something new: permission bits that `mode` loses unless its directory passes an access control list on (RFC 8275
    /// section 5). Of what exists: nothing.
    pub umask: u32,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes: cut or extended by a hole.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<SetTime>,
    /// Last change of data.
    pub mtime: Option<SetTime>,
}

/// What a caller may do with a node. A set of bits.
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
    /// Data and what is needed to read it back.
    Data,
    /// Data and all attributes.
    File,
}

/// Data that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadData {
    /// The bytes, in pieces.
    pub data: Vec<iobuf::Buf>,
    /// Bytes behind those, for a reader that [takes them so](crate::backend::ReadInto::pages).
    pub pages: Option<iobuf::Pages>,
    /// The read reached the end of the file. Where no attributes were wanted, a file that was cut on the host just before may make
    /// this `false` at its new end; the next read says it.
    pub eof: bool,
    /// The attributes after it, if they were wanted or found anyway.
    pub attr: Option<Attr>,
}

impl ReadData {
    /// Bytes that were read.
    pub fn len(&self) -> usize {
        let pages = self.pages.as_ref().map_or(0, iobuf::Pages::len);
        self.data.iter().map(iobuf::Buf::len).sum::<usize>() + pages
    }

    /// Nothing was read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where data goes that is only ever added to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendAt {
    /// Behind the last byte, wherever that is.
    End,
    /// Here, if the file has no byte here or behind.
    Offset(u64),
    /// Here, if the file ends here; [`VfsError::Delay`](crate::VfsError::Delay) where it does not.
    Exactly(u64),
}

/// Data was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of its first byte.
    pub at: u64,
    pub written: Written,
}

/// What a volume failed to keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Syncs and writes that failed.
    pub count: u64,
    /// The path of the last file or folder concerned, on the host.
    pub last: Option<String>,
}

impl Losses {
    /// These and others.
    #[must_use]
    pub fn with(self, others: Self) -> Self {
        Self { count: self.count + others.count, last: others.last.or(self.last) }
    }
}

/// What happened to a name; the numbers are those of MS-FSCC section 2.7.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Action {
    /// It came.
    Added = 1,
    /// It went.
    Removed = 2,
    /// What it names was changed.
    Modified = 3,
    /// It was renamed within its directory: the old name, followed by the new one.
    RenamedOld = 4,
    /// The new name.
    RenamedNew = 5,
    /// A stream came.
    AddedStream = 6,
    /// A stream went.
    RemovedStream = 7,
    /// A stream was changed.
    ModifiedStream = 8,
}

/// Who answers for a write.
#[derive(Clone, Copy, Debug)]
pub enum WriteBy<'a> {
    /// A caller without an open, whom the node judges.
    Caller(&'a Cred),
    /// An open, which was checked, of this caller: storage is taken as the caller, so that root's reserve and quotas hold. `None`:
    /// as the process.
    Open(Option<&'a Cred>),
}

impl<'a> WriteBy<'a> {
    /// The caller that the node judges; `None` for an open.
    pub fn judged(self) -> Option<&'a Cred> {
        match self {
            Self::Caller(cred) => Some(cred),
            Self::Open(_) => None,
        }
    }

    /// As whom storage is taken; `None`: as the process.
    pub fn owner(self) -> Option<&'a Cred> {
        match self {
            Self::Caller(cred) => Some(cred),
            Self::Open(opener) => opener,
        }
    }
}

/// Data was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes that were taken, from the front.
    pub count: usize,
    /// How durable they are.
    pub stable: Stable,
    /// Attributes just before, where they are cheap to have (weak cache consistency data of NFSv3).
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
    /// No other change can have come between the two.
    pub atomic: bool,
}

impl DirChange {
    /// Nothing happened: both names of a rename were of one file.
    pub fn is_none(&self) -> bool {
        self.before.change == self.after.change
    }
}

/// How a file is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// Opens what exists, and truncates it if `SetAttr::size` is 0 (RFC 1813 UNCHECKED).
    Unchecked,
    /// The name must be free (GUARDED).
    Guarded,
    /// The name must be free, or hold the file that the same verifier made (EXCLUSIVE). The verifier is kept with the file.
    Exclusive([u8; 8]),
}

/// What kind of special node to make.
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
    /// What it is.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Block(..) => Kind::Block,
            Self::Char(..) => Kind::Char,
            Self::Fifo => Kind::Fifo,
            Self::Socket => Kind::Socket,
        }
    }

    /// Linux keeps 12 bits of a device's major number and 20 of its minor number: a greater one would become another device.
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
    /// Continue behind this entry with this cookie; at least [`DirEntry::COOKIE_MIN`], and stable while other names come
    /// and go.
    pub cookie: u64,
    /// What it is, where the listing tells.
    pub kind: Option<Kind>,
}

impl DirEntry {
    /// Smaller cookies are reserved: 0 is the start, 1 and 2 stand for `.` and `..` (RFC 8881 section 18.23.3).
    pub const COOKIE_MIN: u64 = 3;
}

/// Room on a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsStat {
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// Bytes free for ordinary users.
    pub avail_bytes: u64,
    /// Nodes in all.
    pub total_files: u64,
    /// Nodes free.
    pub free_files: u64,
    /// Nodes free for ordinary users.
    pub avail_files: u64,
}

/// What a volume can do. Fixed while it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Longest name, in bytes.
    pub name_max: u32,
    /// Largest file, in bytes.
    pub size_max: u64,
    /// Most links to a file.
    pub link_max: u32,
    /// Extended attributes in the `user.` space.
    pub xattr: bool,
    /// Clone by reference ([`crate::Node::clone_range`]).
    pub reflink: bool,
    /// Bytes to which the ends of a cloned range must be aligned.
    pub clone_block: u32,
    /// Gives back the storage of a range ([`crate::Node::deallocate`]).
    pub deallocate: bool,
    /// Preferred and smallest sensible transfer, in bytes.
    pub block: u32,
    /// Handles survive a restart of the gateway.
    pub handles_persist: bool,
    pub read_only: bool,
}

/// What to look for from an offset (RFC 7862 SEEK).
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
    /// Make or replace.
    Either,
    /// The name must be free.
    Create,
    /// The name must exist.
    Replace,
}

/// What a caller is about to do to a node, to be judged before others give anything back for it.
#[derive(Clone, Copy, Debug)]
pub enum Intent<'a> {
    /// [`Node::read`](crate::backend::Node::read)
    Read,
    /// [`Node::write`](crate::backend::Node::write)
    Write,
    /// [`Node::setattr`](crate::backend::Node::setattr)
    Set {
        /// What is set.
        set: &'a SetAttr,
        /// As there.
        open_write: bool,
    },
    /// [`Node::xattr_set`](crate::backend::Node::xattr_set), [`Node::xattr_remove`](crate::backend::Node::xattr_remove)
    SetXattr,
    /// Adds a name to this directory, of a node of this kind.
    Add(Kind),
    /// [`Node::link`](crate::backend::Node::link), as far as the node itself is asked.
    Link,
}
