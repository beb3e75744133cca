//! The contract between the gateway and a place where files live.
//!
//! A further backend writes what has no body here, sixteen methods of [`Node`] and four of [`Backend`], as
//! `vfs/examples/backend.rs` does. What has one is a layer above those: permission by lists and mode bits ([`Judge`]), lists and
//! attributes of Windows in side data; or it answers [`VfsError::NotSupported`], which every protocol can tell its clients. A
//! backend overrides what it can do better, or at all.
//!
//! *Operation.* A [`Backend`] gives its root and finds nodes by handle; a [`Node`] does the rest. Operations with two nodes
//! take the other as `&dyn Node` and answer [`VfsError::CrossDevice`] if it is not of the same backend. An operation that
//! can be answered at once (cached attributes and data) returns a future that is ready at its first poll; what may block
//! runs on the backend's own threads. Names are single components of bytes, never empty, `.`, `..` or with `/` or NUL:
//! backends refuse such names themselves ([`VfsError::BadName`], [`VfsError::Invalid`]).
//!
//! *Memory.* Data moves in pool buffers with one owner. The backend takes the buffers for a read itself, from the pool and
//! account that it is given, so that a backend that already holds the bytes (`mem`) hands out views and copies nothing.
//!
//! *Errors.* [`VfsError`], the same for every backend.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

use iobuf::{Account, Backpressure, Buf, Pool};

use crate::acl::posix::{Change, Lists, Posix};
use crate::acl::{self, Acl, Kept, Owner};
use crate::authority::Acting;
use crate::dos::{self, Dos};
use crate::error::{VfsError, VfsResult};
use crate::external_change;
use crate::judge::{Judge, regular};
use crate::types::*;

/// A boxed future that may be sent to another thread.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A node that someone holds. While one reference lives, the backend keeps the node's [`NodeId`].
pub type NodeRef = Arc<dyn Node>;

/// A place where files live.
pub trait Backend: Send + Sync + 'static {
    /// The top of it.
    fn root(&self) -> NodeRef;
    /// Finds a node by its handle: [`VfsError::Stale`] when it is gone, [`VfsError::BadHandle`] when the bytes make no
    /// sense here.
    fn resolve<'a>(&'a self, handle: &'a Handle) -> BoxFuture<'a, VfsResult<NodeRef>>;
    /// What it can do.
    fn capabilities(&self) -> Capabilities;
    /// Room on the volume.
    fn statfs(&self) -> BoxFuture<'_, VfsResult<FsStat>>;
    /// Names and attributes are to be on stable storage before a change of them is answered
    /// ([`FileOps::make_durable`](crate::namespace::FileOps::make_durable)). Never where files live in memory.
    fn is_strict(&self, by_smb: bool) -> bool {
        let _ = by_smb;
        false
    }
    /// Says whether they are to be, for clients of NFS and of SMB.
    fn set_strict(&self, nfs: bool, smb: bool) {
        let _ = (nfs, smb);
    }
    /// Serves file systems that are mounted below the folder too, or not, but those in which folders of other shares are: each
    /// file has one record. Where that can be.
    fn set_cross(&self, crosses: bool, others: Vec<PathBuf>) {
        let _ = (crosses, others);
    }
    /// What the volume of this node can do.
    fn capabilities_of(&self, node: &NodeRef) -> Capabilities {
        let _ = node;
        self.capabilities()
    }
    /// Room on the volume of this node.
    fn statfs_of<'a>(&'a self, node: &'a NodeRef) -> BoxFuture<'a, VfsResult<FsStat>> {
        let _ = node;
        self.statfs()
    }
    /// Why nothing will work here until the volume is opened anew, in words; `None` while something may.
    fn ended(&self) -> Option<&'static str> {
        None
    }
    /// What the volume failed to keep since it was opened.
    fn losses(&self) -> Losses {
        Losses::default()
    }
    /// The handle as it is written on the volume itself, where it stays the same when another folder of the volume is served;
    /// [`Backend::served`] is the way back.
    fn stored(&self, handle: &Handle) -> Handle {
        handle.clone()
    }
    /// The handle that was written as this one ([`Backend::stored`]).
    fn served(&self, stored: &Handle) -> Handle {
        stored.clone()
    }
    /// A file of this handle that is not found is gone. Not so where an earlier run, with other privileges, gave handles that this
    /// one cannot use.
    fn knows(&self, handle: &Handle) -> bool {
        let _ = handle;
        true
    }
    /// The file of this handle is certainly removed: what belongs to it can go. An error says that it cannot be known now.
    fn is_gone<'a>(&'a self, handle: &'a Handle) -> BoxFuture<'a, VfsResult<bool>> {
        Box::pin(async move {
            if !self.knows(handle) {
                return Ok(false);
            }
            match self.resolve(handle).await {
                Err(VfsError::Stale | VfsError::BadHandle) => Ok(true),
                other => other.map(|_| false),
            }
        })
    }
    /// The gateway's own folder on the volume: in no listing, and found under no name. With `make` it is made when it is not
    /// there yet. `None` where the volume has none.
    fn hidden(&self, make: bool) -> BoxFuture<'_, VfsResult<Option<NodeRef>>> {
        let _ = make;
        ready(Ok(None))
    }
    /// That folder as it was with this node, and the handle that the node has in there: of a node in a snapshot the one of today.
    fn hidden_of<'a>(
        &'a self,
        node: &'a NodeRef,
    ) -> BoxFuture<'a, VfsResult<(Option<NodeRef>, Handle)>> {
        Box::pin(async move { Ok((self.hidden(false).await?, node.handle())) })
    }
}

/// Where the buffers for a read come from.
#[derive(Clone, Debug)]
pub struct ReadInto {
    /// The pool.
    pub pool: Pool,
    /// Whose turn it is when the pool is empty.
    pub account: Account,
    /// Holds the read back while answers wait to be taken; `None` for a reader that keeps up by itself.
    pub backpressure: Option<Arc<Backpressure>>,
    /// The data may come as [`ReadData::pages`], with buffers that only pay for them.
    pub pages: bool,
    /// [`ReadData::attr`] is wanted. Without it a backend may spare itself the look.
    pub attributes: bool,
}

/// A new or found node and what its directory looked like around the change.
pub struct Made {
    /// The node.
    pub node: NodeRef,
    /// Its attributes.
    pub attr: Attr,
    /// The directory.
    pub dir: DirChange,
    /// It was made by this call, not found.
    pub created: bool,
}

/// A directory as it was when a snapshot was taken.
pub struct Snapshot {
    /// When that was.
    pub taken: Time,
    /// The directory in it. Nothing below it can be changed.
    pub node: NodeRef,
}

/// A file, directory, link or special node. All checks of permission are the node's, by the credentials given.
pub trait Node: Send + Sync + 'static {
    /// Key of shared state.
    fn id(&self) -> NodeId;
    /// The durable name.
    fn handle(&self) -> Handle;
    /// What it is; it never changes.
    fn kind(&self) -> Kind;
    /// For two-node operations: the backend's own type.
    fn as_any(&self) -> &(dyn Any + Send + Sync);
    /// Both are of one backend.
    fn is_beside(&self, other: &dyn Node) -> bool;
    /// It is the top of a file system that is mounted below the share's folder: the inode number of the folder that it covers.
    fn mounted_on(&self) -> Option<u64> {
        None
    }
    /// Clients may cache it: nobody changes it but by this process, or others do and [`Node::watch_external`] tells of it.
    fn is_cacheable(&self) -> bool {
        true
    }

    /// The attributes. Needs no permission.
    fn getattr(&self) -> BoxFuture<'_, VfsResult<Attr>>;
    /// Changes attributes and gives them before and after.
    /// `open_write`: the caller holds the file open for writing, so truncation needs no further permission.
    fn setattr<'a>(
        &'a self,
        cred: &'a Cred,
        set: SetAttr,
        open_write: bool,
    ) -> BoxFuture<'a, VfsResult<(Attr, Attr)>>;
    /// Which of `wanted` the caller may do. `attr`: the node's own, just seen.
    fn access<'a>(
        &'a self,
        cred: &'a Cred,
        wanted: Access,
        attr: &'a Attr,
    ) -> BoxFuture<'a, VfsResult<Access>> {
        Box::pin(async move { Ok(judge(self, attr, cred).await?.access(wanted)) })
    }

    /// The caller may give the node whatever times it likes: it is the owner, or a list of the node's own lets it. Unlike
    /// [`Node::may`], what is not known is not so. `attr`: the node's own, just seen.
    fn may_date<'a>(&'a self, cred: &'a Cred, attr: &'a Attr) -> BoxFuture<'a, VfsResult<bool>> {
        Box::pin(async move {
            if [0, attr.uid].contains(&cred.uid) {
                return Ok(true);
            }
            let allowed = self.acl(attr).await?.map(|acl| acl.allowed(cred, Owner::of(attr)));
            Ok(allowed.is_some_and(|rights| rights & acl::mask::WRITE_ATTRIBUTES != 0))
        })
    }

    /// What the operation would refuse this caller for want of rights, with the same error, and without doing anything. What a
    /// volume finds out only by doing it is allowed here.
    fn may<'a>(&'a self, cred: &'a Cred, intent: Intent<'a>) -> BoxFuture<'a, VfsResult<()>> {
        Box::pin(async move {
            let attr = self.getattr().await?;
            let judge = judge(self, &attr, cred).await?;
            match intent {
                Intent::Read => judge.data(false),
                Intent::Write => judge.data(true),
                Intent::Set { set, open_write } => judge.set(set, open_write),
                Intent::SetXattr => judge.set_xattr(),
                Intent::Link => Ok(()),
                Intent::Add(kind) => judge.add(&Acting::caller(cred), kind),
            }
        })
    }

    /// Finds a name in this directory; `..` is answered here too (the root's parent is the root itself).
    fn lookup<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(NodeRef, Attr)>>;
    /// Lists names behind `cookie` (0: from the start), at most `entries_max`. True when the listing is at its end.
    fn readdir<'a>(
        &'a self,
        cred: &'a Cred,
        cookie: u64,
        entries_max: usize,
    ) -> BoxFuture<'a, VfsResult<(Vec<DirEntry>, bool)>>;
    /// The target of a symbolic link.
    fn readlink<'a>(&'a self, cred: &'a Cred) -> BoxFuture<'a, VfsResult<Vec<u8>>> {
        let _ = cred;
        ready(Err(VfsError::Invalid))
    }

    /// Makes or opens a regular file. Attributes in `set` apply to a new file; `size: Some(0)` also to a found one.
    fn create<'a>(
        &'a self,
        by: Acting<'a>,
        name: &'a [u8],
        how: CreateHow,
        set: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>>;
    /// Makes a directory.
    fn mkdir<'a>(
        &'a self,
        by: Acting<'a>,
        name: &'a [u8],
        set: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>>;
    /// Makes a symbolic link.
    fn symlink<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
        target: &'a [u8],
        set: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>> {
        let _ = (cred, name, target, set);
        ready(Err(VfsError::NotSupported))
    }
    /// Makes a device, pipe or socket.
    fn mknod<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
        what: Special,
        set: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>> {
        let _ = (cred, name, what, set);
        ready(Err(VfsError::NotSupported))
    }
    /// Removes a name: with `dir` that of an empty directory, without it one that is no directory's.
    fn remove<'a>(
        &'a self,
        by: Acting<'a>,
        name: &'a [u8],
        dir: bool,
    ) -> BoxFuture<'a, VfsResult<DirChange>>;
    /// [`Node::remove`] of a name that is not a directory's.
    fn unlink<'a>(&'a self, by: Acting<'a>, name: &'a [u8]) -> BoxFuture<'a, VfsResult<DirChange>> {
        self.remove(by, name, false)
    }
    /// [`Node::remove`] of an empty directory.
    fn rmdir<'a>(&'a self, by: Acting<'a>, name: &'a [u8]) -> BoxFuture<'a, VfsResult<DirChange>> {
        self.remove(by, name, true)
    }
    /// Moves `from` in this directory to `to` in `to_dir`. What is there is replaced, or without `replace` in the way
    /// ([`VfsError::Exists`], decided in the same step as the move). Gives both directories.
    fn rename<'a>(
        &'a self,
        by: Acting<'a>,
        from: &'a [u8],
        to_dir: &'a dyn Node,
        to: &'a [u8],
        replace: bool,
    ) -> BoxFuture<'a, VfsResult<(DirChange, DirChange)>>;
    /// What `here` in this directory and `there` in `other` name change places, in one step. [`VfsError::NotSupported`] where the
    /// volume cannot do that.
    fn exchange<'a>(
        &'a self,
        by: Acting<'a>,
        here: &'a [u8],
        other: &'a dyn Node,
        there: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(DirChange, DirChange)>> {
        let _ = (by, here, other, there);
        ready(Err(VfsError::NotSupported))
    }
    /// Gives this node a further name in `dir`, which must be free. Gives the node's attributes and the directory.
    fn link<'a>(
        &'a self,
        by: Acting<'a>,
        dir: &'a dyn Node,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(Attr, DirChange)>> {
        let _ = (by, dir, name);
        ready(Err(VfsError::NotSupported))
    }

    /// Checks once that the caller may read (and write) this file, for an open that later reads and writes rely on.
    fn open<'a>(
        &'a self,
        cred: &'a Cred,
        read: bool,
        write: bool,
    ) -> BoxFuture<'a, VfsResult<Attr>> {
        Box::pin(async move {
            let attr = self.getattr().await?;
            judge(self, &attr, cred).await?.open(read, write)?;
            Ok(attr)
        })
    }
    /// Reads `count` bytes, fewer at the end of the file, or where the pool has no more memory for it. `cred: None` when an open
    /// has been checked already.
    fn read<'a>(
        &'a self,
        cred: Option<&'a Cred>,
        at: u64,
        count: usize,
        into: &'a ReadInto,
    ) -> BoxFuture<'a, VfsResult<ReadData>>;
    /// Writes all of `data` or fails; a short count only when the volume filled up half-way.
    fn write<'a>(
        &'a self,
        by: WriteBy<'a>,
        at: u64,
        data: Vec<Buf>,
        stable: Stable,
    ) -> BoxFuture<'a, VfsResult<Written>>;
    /// Adds data for an open, which was checked, by this caller. No two additions overlap, and none replaces a byte that the file
    /// has: [`VfsError::Access`] where the offset is no longer behind all of them.
    fn append<'a>(
        &'a self,
        opener: Option<&'a Cred>,
        at: AppendAt,
        data: Vec<Buf>,
        stable: Stable,
    ) -> BoxFuture<'a, VfsResult<Appended>> {
        let _ = (opener, at, data, stable);
        ready(Err(VfsError::NotSupported))
    }
    /// How often the storage failed to keep something of this file that it had taken. Who has written without a commit keeps
    /// the count from before its first write: another count later means that data may be gone.
    fn losses(&self) -> u64 {
        0
    }
    /// The volume's part of a write verifier (RFC 1813 section 3.3.7). It has moved, to a value that it never had, before a
    /// failure to keep any file of the volume is answered to anybody.
    fn verifier(&self) -> u64 {
        0
    }
    /// Makes this node durable with all that was done to it before the call: data, attributes, and the names in a directory.
    /// It is under way when this returns. Calls for one node share a sync that begins after them.
    /// Errors: [`VfsError::Io`] and others of the storage; [`VfsError::Delay`] where too many wait.
    fn sync(&self) -> BoxFuture<'_, VfsResult<()>> {
        ready(Ok(()))
    }
    /// Makes this node and the others, all of one operation, durable as [`Node::sync`] does with each, where the volume does that
    /// in one step; `None` where they are better asked for at once.
    fn sync_with(&self, others: &[&NodeRef]) -> Option<BoxFuture<'_, VfsResult<()>>> {
        let _ = others;
        None
    }
    /// Makes written data and attributes durable.
    fn commit(&self, at: u64, count: u64) -> BoxFuture<'_, VfsResult<Attr>> {
        let _ = (at, count);
        Box::pin(async move {
            self.sync().await?;
            self.getattr().await
        })
    }

    /// Next data or hole from `at`; [`VfsError::NoMoreData`] when `at` is beyond the end.
    fn seek(&self, at: u64, what: Seek) -> BoxFuture<'_, VfsResult<u64>> {
        Box::pin(async move {
            let attr = self.getattr().await?;
            regular(attr.kind)?;
            match what {
                _ if at >= attr.size => Err(VfsError::NoMoreData),
                Seek::Data => Ok(at),
                Seek::Hole => Ok(attr.size),
            }
        })
    }
    /// Reserves storage, as the caller whose open it is; extends the file when the range goes beyond it.
    fn allocate<'a>(
        &'a self,
        opener: Option<&'a Cred>,
        at: u64,
        count: u64,
    ) -> BoxFuture<'a, VfsResult<()>> {
        let _ = (opener, at, count);
        ready(Err(VfsError::NotSupported))
    }
    /// Makes a hole, as the caller whose open it is: set-id bits go as they do when it writes. The size stays.
    fn deallocate<'a>(
        &'a self,
        opener: Option<&'a Cred>,
        at: u64,
        count: u64,
    ) -> BoxFuture<'a, VfsResult<()>> {
        let _ = (opener, at, count);
        ready(Err(VfsError::NotSupported))
    }
    /// Copies `count` bytes (0: to the end) of `from` into this file by the volume's own means; may copy less. Storage is taken as
    /// the caller whose open it is.
    fn copy_range<'a>(
        &'a self,
        opener: Option<&'a Cred>,
        from: &'a dyn Node,
        from_at: u64,
        at: u64,
        count: u64,
    ) -> BoxFuture<'a, VfsResult<u64>> {
        let _ = (opener, from, from_at, at, count);
        ready(Err(VfsError::NotSupported))
    }
    /// Shares storage of `from` with this file, all or nothing, as the caller whose open it is; `count` 0 means to the end.
    fn clone_range<'a>(
        &'a self,
        opener: Option<&'a Cred>,
        from: &'a dyn Node,
        from_at: u64,
        at: u64,
        count: u64,
    ) -> BoxFuture<'a, VfsResult<()>> {
        let _ = (opener, from, from_at, at, count);
        ready(Err(VfsError::NotSupported))
    }

    /// The value of an extended attribute of the `user.` space, named without that prefix (RFC 8276 section 8.2).
    fn xattr_get<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<Vec<u8>>> {
        let _ = (cred, name);
        ready(Err(VfsError::NotSupported))
    }
    /// Sets one; gives the attributes before and after.
    fn xattr_set<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
        value: &'a [u8],
        how: XattrHow,
    ) -> BoxFuture<'a, VfsResult<(Attr, Attr)>> {
        let _ = (cred, name, value, how);
        ready(Err(VfsError::NotSupported))
    }
    /// Removes one; gives the attributes before and after.
    fn xattr_remove<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(Attr, Attr)>> {
        let _ = (cred, name);
        ready(Err(VfsError::NotSupported))
    }
    /// The names, without the prefix.
    fn xattr_list<'a>(&'a self, cred: &'a Cred) -> BoxFuture<'a, VfsResult<Vec<Vec<u8>>>> {
        let _ = cred;
        ready(Err(VfsError::NotSupported))
    }

    /// A value that is kept with the node and that no client sees as an extended attribute, by any protocol. `None`: there
    /// is none. Nobody is asked for permission: that is the caller's part.
    fn side_get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, VfsResult<Option<Vec<u8>>>> {
        let _ = name;
        ready(Ok(None))
    }
    /// Keeps a value, or with `None` drops it. The change attribute moves. [`VfsError::Invalid`] for a name that
    /// [`check_side_name`] refuses, [`VfsError::XattrTooBig`] above [`SIDE_MAX`](crate::engine::limits::SIDE_MAX) bytes,
    /// [`VfsError::NoSpace`] where the file system holds less for one file (ext4: about 4,000 bytes in all),
    /// [`VfsError::NotSupported`] where it holds nothing for such a node.
    fn side_set<'a>(
        &'a self,
        name: &'a str,
        value: Option<&'a [u8]>,
    ) -> BoxFuture<'a, VfsResult<()>> {
        let _ = (name, value);
        ready(Err(VfsError::NotSupported))
    }
    /// The access control list that is kept with the node, as mode bits leave it; `None` where none is, or the host was given one
    /// of its own since. By it the node judges every caller. `attr` was just seen.
    fn acl<'a>(&'a self, attr: &'a Attr) -> BoxFuture<'a, VfsResult<Option<Arc<Acl>>>> {
        Box::pin(async move {
            let record = self.side_get(acl::NAME).await?;
            let kept = record.and_then(|record| Kept::decode(&record));
            let is_dir = attr.kind == Kind::Dir;
            let now = |kept: Kept| kept.now(Owner::of(attr), attr.mode, is_dir).into_owned();
            Ok(kept.map(|kept| Arc::new(now(kept))))
        })
    }
    /// As clients are shown it: the one that is kept, the host's own, or what mode bits say.
    fn acl_shown<'a>(&'a self, attr: &'a Attr) -> BoxFuture<'a, VfsResult<Arc<Acl>>> {
        Box::pin(async move {
            let of_mode = || Arc::new(Acl::of_mode(attr.mode, attr.kind == Kind::Dir));
            Ok(self.acl(attr).await?.unwrap_or_else(of_mode))
        })
    }
    /// Keeps a list, and sets the nine mode bits that stand for it where nobody knows of lists. It replaces a list of the host's
    /// own. Nobody is asked for permission. Errors as [`Node::side_set`].
    fn acl_set<'a>(&'a self, acl: &'a Acl, mode: u32) -> BoxFuture<'a, VfsResult<()>> {
        Box::pin(async move {
            let attr = self.getattr().await?;
            let mode = mode & 0o777;
            let kept = Kept { mode, owner: Owner::of(&attr), acl: acl.clone() }.encode();
            // What both lists allow, then the list, then what it allows: wherever this ends, the bits open to nobody whom neither
            // the old list nor the new one lets in.
            let narrow = attr.mode & (0o7000 | mode);
            set_mode(self, narrow).await?;
            if let Err(why) = self.side_set(acl::NAME, Some(&kept)).await {
                set_mode(self, attr.mode).await?;
                return Err(why);
            }
            set_mode(self, attr.mode & 0o7000 | mode).await
        })
    }
    /// The lists that programs of a POSIX host would be shown: its own, what the one that is kept gives each, or mode bits. What
    /// a kept list passes on is not among them: clients would give it themselves to what they make.
    fn posix<'a>(&'a self, attr: &'a Attr) -> BoxFuture<'a, VfsResult<Lists>> {
        Box::pin(async move {
            let acl = self.acl(attr).await?;
            let of_mode = || Posix::of_mode(attr.mode);
            let access = acl.map_or_else(of_mode, |acl| acl.posix(Owner::of(attr)));
            Ok(Lists { access, default: None })
        })
    }
    /// Gives the node lists of the host's own; one for itself takes the place of the one that is kept. Nobody is asked for
    /// permission. [`VfsError::NotSupported`] where the host has none for such a node.
    fn posix_set<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, VfsResult<()>> {
        let _ = change;
        ready(Err(VfsError::NotSupported))
    }
    /// What Windows clients have set on the node. `attr` was just seen: by its change time a backend knows whether it has the
    /// record still.
    fn dos<'a>(&'a self, attr: &'a Attr) -> BoxFuture<'a, VfsResult<Dos>> {
        let _ = attr;
        Box::pin(async move {
            let record = self.side_get(dos::NAME).await?;
            Ok(record.map_or(Dos::default(), |r| Dos::decode(&r)))
        })
    }
    /// The snapshots that have this directory, in any order, for a caller who may look names up here. None in a snapshot itself.
    fn snapshots<'a>(&'a self, cred: &'a Cred) -> BoxFuture<'a, VfsResult<Vec<Snapshot>>> {
        let _ = cred;
        ready(Ok(Vec::new()))
    }

    /// How much the extended attributes of the node are, those that clients see. `attr` was just seen, as for [`Node::dos`]. Nobody
    /// is asked for permission.
    fn xattr_sizes<'a>(&'a self, attr: &'a Attr) -> BoxFuture<'a, VfsResult<XattrSizes>> {
        let _ = attr;
        ready(Ok(XattrSizes::default()))
    }
    /// Keeps it.
    fn dos_set<'a>(&'a self, dos: Dos) -> BoxFuture<'a, VfsResult<()>> {
        Box::pin(async move {
            let record = dos.encode();
            self.side_set(dos::NAME, (!dos.is_empty()).then_some(&record[..])).await
        })
    }

    /// Where the node is now, from the root of the backend: names joined by `/`, empty for the root. Of a file with several
    /// names it tells one that it has or had; [`VfsError::Stale`] when it has none or is not below the root.
    fn path(&self) -> BoxFuture<'_, VfsResult<Vec<u8>>>;

    /// Tells of changes by others than this process, as long as what this gives lives; `None` where nobody can know, or nobody
    /// else has the files.
    fn watch_external(
        &self,
        listener: external_change::Listener,
    ) -> Option<external_change::Watched> {
        let _ = listener;
        None
    }
}

/// What the caller may do with a node whose attributes were just seen, by the list that is kept with it ([`Node::acl`]) or by its
/// mode bits.
pub async fn judge<'a, N: Node + ?Sized>(
    node: &N,
    attr: &'a Attr,
    cred: &'a Cred,
) -> VfsResult<Judge<'a>> {
    let list = if cred.uid == 0 { None } else { node.acl(attr).await? };
    Ok(Judge::new(node.id(), attr, cred, list))
}

/// As the process, whom no list keeps from it.
async fn set_mode<N: Node + ?Sized>(node: &N, mode: u32) -> VfsResult<()> {
    let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
    node.setattr(&Cred::root(), set, false).await.map(drop)
}

/// A name of side data: 1 to 64 characters of `a-z`, `0-9`, `.` and `-`.
pub fn check_side_name(name: &str) -> VfsResult<()> {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'-';
    if name.is_empty() || name.len() > 64 || !name.bytes().all(good) {
        return Err(VfsError::Invalid);
    }
    Ok(())
}

/// The future of an answer that is there already.
pub fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

/// Checks a name that a client sent for one component of a path.
pub fn check_name(name: &[u8], name_max: u32) -> VfsResult<()> {
    if name.is_empty() || name == b"." || name == b".." {
        return Err(VfsError::Invalid);
    }
    if name.contains(&b'/') || name.contains(&0) {
        return Err(VfsError::BadName);
    }
    if name.len() as u64 > u64::from(name_max) {
        return Err(VfsError::NameTooLong);
    }
    Ok(())
}
