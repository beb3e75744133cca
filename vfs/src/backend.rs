//! The contract between the gateway and a store of files.
//!
//! A new backend implements the methods without a body, sixteen of [`Node`] and four of [`Backend`], as `vfs/examples/backend.rs`
//! does. The methods with a body either add a layer above those (permission by lists and mode bits ([`Judge`]), lists and Windows
//! attributes in side data) or answer [`VfsError::NotSupported`], which every protocol can report to its clients. A backend
//! overrides a method that it can implement better, or that has no default implementation.
//!
//! *Operation.* A [`Backend`] returns its root and finds nodes by handle; a [`Node`] does the rest. Operations with two nodes take
//! the other as `&dyn Node` and answer [`VfsError::CrossDevice`] if it is not of the same backend. An operation that can be
//! answered at once (cached attributes and data) returns a future that is ready at its first poll; blocking work runs on the
//! backend's own threads. Names are single components of bytes, never empty, `.`, `..` or with `/` or NUL: backends refuse such
//! names themselves ([`VfsError::BadName`], [`VfsError::Invalid`]).
//!
//! *Memory.* Data is passed in pool buffers with one owner. The backend takes the buffers for a read from the given pool and
//! account, so that a backend that already holds the bytes (`mem`) returns views without a copy.
//!
//! *Errors.* [`VfsError`], the same for every backend.

use std::any::Any;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use iobuf::{Account, Backpressure, Buf, Pool};
use policy::SnapshotPattern;

use crate::acl::posix::{Change, Lists, Posix};
use crate::acl::{self, Acl, Kept, Owner};
use crate::authority::Acting;
use crate::dos::{self, Dos};
use crate::error::{VfsError, VfsResult};
use crate::external_change;
use crate::judge::{Judge, regular};
use crate::place::Place;
use crate::quota::{Quota, QuotaKind, QuotaLimits, QuotaState};
use crate::reparse::{self, Tagged};
use crate::types::*;
use crate::wastebasket::{Basket, NotKept, Outcome, Waste};

/// A boxed future that may be sent to another thread.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A reference to a node. While one reference exists, the backend keeps the node's [`NodeId`].
pub type NodeRef = Arc<dyn Node>;

/// A store of files.
pub trait Backend: Send + Sync + 'static {
    /// Returns the root of the backend.
    fn root(&self) -> NodeRef;
    /// Finds a node by its handle: [`VfsError::Stale`] when the node no longer exists, [`VfsError::BadHandle`] when the bytes are
    /// not a handle of this backend.
    fn resolve<'a>(&'a self, handle: &'a Handle) -> BoxFuture<'a, VfsResult<NodeRef>>;
    /// Returns this backend's node for a node of any backend, if both are one file and it is in this backend's folder: shares may
    /// overlap, and have a backend each. Their nodes of one file have one [`NodeId`].
    fn counterpart<'a>(&'a self, node: &'a NodeRef) -> BoxFuture<'a, VfsResult<Option<NodeRef>>> {
        let is_own = self.root().is_beside(node.as_ref());
        ready(Ok(is_own.then(|| node.clone())))
    }
    /// Returns where its folder is, to detect shares that overlap; `None` if no other backend can have its files.
    fn place(&self) -> Option<Place> {
        None
    }
    /// Returns the features of the backend.
    fn capabilities(&self) -> Capabilities;
    /// Returns total and free space of the volume.
    fn statfs(&self) -> BoxFuture<'_, VfsResult<FsStat>>;
    /// Returns true if a change of names and attributes must be on stable storage before its answer
    /// ([`FileOps::make_durable`](crate::namespace::FileOps::make_durable)). Always false for files in memory.
    fn is_strict(&self, by_smb: bool) -> bool {
        let _ = by_smb;
        false
    }
    /// Sets whether changes must be durable before the answer, for clients of NFS and of SMB.
    fn set_strict(&self, nfs: bool, smb: bool) {
        let _ = (nfs, smb);
    }
    /// Sets whether file systems mounted below the folder are served too. File systems that contain the folders of `others`, the
    /// other shares, are left out, because each file has one record. No effect on backends without mounts.
    fn set_cross(&self, crosses: bool, others: Vec<PathBuf>) {
        let _ = (crosses, others);
    }
    /// Sets which folders of the host are snapshots of the folder. No effect on backends that have snapshots of their own.
    fn set_snapshots(&self, pattern: Option<&SnapshotPattern>) {
        let _ = pattern;
    }
    /// Returns true if the share may have snapshots, so that clients may name one in a path.
    fn has_snapshots(&self) -> bool {
        false
    }
    /// Returns what there is of snapshots; `None` without a pattern.
    fn snapshots_told(&self) -> BoxFuture<'_, VfsResult<Option<SnapshotsTold>>> {
        ready(Ok(None))
    }
    /// Returns true if the handle belongs to a file system that is mounted below the folder, so that it may be silent while the
    /// folder itself is served.
    fn is_of_inner_mount(&self, handle: &Handle) -> bool {
        let _ = handle;
        false
    }
    /// Returns the features of the volume of this node.
    fn capabilities_of(&self, node: &NodeRef) -> Capabilities {
        let _ = node;
        self.capabilities()
    }
    /// Returns total and free space of the volume of this node.
    fn statfs_of<'a>(&'a self, node: &'a NodeRef) -> BoxFuture<'a, VfsResult<FsStat>> {
        let _ = node;
        self.statfs()
    }
    /// Returns how the volume of this node treats quotas of this kind; [`VfsError::NotSupported`] if it does not count.
    fn quota_state<'a>(
        &'a self,
        node: &'a NodeRef,
        kind: QuotaKind,
    ) -> BoxFuture<'a, VfsResult<QuotaState>> {
        let _ = (node, kind);
        ready(Err(VfsError::NotSupported))
    }
    /// Returns the quota of one user, group or project on the volume of this node. The caller checks permission.
    fn quota<'a>(
        &'a self,
        node: &'a NodeRef,
        kind: QuotaKind,
        id: u32,
    ) -> BoxFuture<'a, VfsResult<Quota>> {
        let _ = (node, kind, id);
        ready(Err(VfsError::NotSupported))
    }
    /// Returns at most `entries_max` quotas of this kind, in the order of their numbers, from this number on. The caller checks
    /// permission. [`VfsError::Perm`] if the process may ask for single ones only.
    fn quotas<'a>(
        &'a self,
        node: &'a NodeRef,
        kind: QuotaKind,
        from: u32,
        entries_max: usize,
    ) -> BoxFuture<'a, VfsResult<Vec<Quota>>> {
        let _ = (node, kind, from, entries_max);
        ready(Err(VfsError::NotSupported))
    }
    /// Sets the limits of storage of one user, group or project. The caller checks permission. [`VfsError::Perm`] if the process
    /// may not.
    fn quota_set<'a>(
        &'a self,
        node: &'a NodeRef,
        kind: QuotaKind,
        id: u32,
        limits: QuotaLimits,
    ) -> BoxFuture<'a, VfsResult<()>> {
        let _ = (node, kind, id, limits);
        ready(Err(VfsError::NotSupported))
    }
    /// Limits the storage of the folder to this many bytes, which clients then see as the size of the volume; if `sets` is false,
    /// only checks whether that is possible. The error says what is wrong and what to do. Blocks.
    fn limit_size(&self, bytes: u64, sets: bool) -> Result<(), String> {
        let _ = (bytes, sets);
        Err("`size` needs a folder of this host".into())
    }
    /// Returns a text that explains why no operation works until the volume is opened again; `None` while the volume works.
    fn ended(&self) -> Option<&'static str> {
        None
    }
    /// Returns what the volume failed to store since it was opened.
    fn losses(&self) -> Losses {
        Losses::default()
    }
    /// Returns the form of the handle that is written on the volume, which stays the same when another folder of the volume is
    /// served; [`Backend::served`] converts it back.
    fn stored(&self, handle: &Handle) -> Handle {
        handle.clone()
    }
    /// Returns the handle that was written in this form ([`Backend::stored`]).
    fn served(&self, stored: &Handle) -> Handle {
        stored.clone()
    }
    /// Returns true if a file of this handle that is not found no longer exists. False where an earlier run, with other privileges,
    /// issued handles that this run cannot use.
    fn knows(&self, handle: &Handle) -> bool {
        let _ = handle;
        true
    }
    /// Returns true if the file of this handle is certainly removed, so that its data can be deleted. An error means that the
    /// backend cannot tell now.
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
    /// Returns its wastebasket; `None` if it cannot have one.
    fn basket(&self) -> Option<Arc<dyn Basket>> {
        None
    }
    /// Returns the gateway's own folder on the volume, which appears in no listing and under no name. `make` creates it if missing.
    /// `None` if the volume has no such folder.
    fn hidden(&self, make: bool) -> BoxFuture<'_, VfsResult<Option<NodeRef>>> {
        let _ = make;
        ready(Ok(None))
    }
    /// Returns the gateway's folder in the state that belongs to this node, and the handle of the node in that folder: for a node
    /// in a snapshot the handle of the current file.
    fn hidden_of<'a>(
        &'a self,
        node: &'a NodeRef,
    ) -> BoxFuture<'a, VfsResult<(Option<NodeRef>, Handle)>> {
        Box::pin(async move { Ok((self.hidden(false).await?, node.handle())) })
    }
}

/// The source of the buffers for a read.
#[derive(Clone, Debug)]
pub struct ReadInto {
    /// The pool that provides the buffers.
    pub pool: Pool,
    /// The account that queues for memory when the pool is empty.
    pub account: Account,
    /// Delays the read while the client has not yet received earlier answers; `None` for a reader that always keeps up.
    pub backpressure: Option<Arc<Backpressure>>,
    /// The data may come as [`ReadData::pages`], with buffers that only pay for them.
    pub pages: bool,
    /// The caller wants [`ReadData::attr`]. If false, a backend may skip reading the attributes.
    pub attributes: bool,
}

/// The result of looking a name up.
pub enum FoundOrFolder {
    /// The node with its attributes.
    Found(NodeRef, Attr),
    /// The name does not exist; contains the attributes of the directory.
    Missing(Attr),
}

/// A new or existing node, and the attributes of its directory before and after the call.
pub struct Made {
    /// The new or existing node.
    pub node: NodeRef,
    /// Attributes of the node after the call.
    pub attr: Attr,
    /// The directory before and after the call.
    pub dir: DirChange,
    /// True if this call created the node.
    pub created: bool,
}

/// A directory in its state at the time of a snapshot.
pub struct Snapshot {
    /// Time of the snapshot.
    pub taken: Time,
    /// The directory in the snapshot, which is read-only with everything below it.
    pub node: NodeRef,
}

/// What there is of snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotsTold {
    /// The number that clients are told of.
    pub told: usize,
    /// The time of the first, in seconds since 1970.
    pub first: Option<i64>,
    /// The time of the last.
    pub last: Option<i64>,
    /// The number that is open now.
    pub open: usize,
    /// Why no snapshot is told although the folder may have some, and what to do.
    pub distrusted: Option<&'static str>,
}

/// A file, directory, link or special node. The node does all checks of permission, by the given credentials.
pub trait Node: Send + Sync + 'static {
    /// Returns the key of shared state.
    fn id(&self) -> NodeId;
    /// Returns the durable handle.
    fn handle(&self) -> Handle;
    /// Returns the kind of the node, which never changes.
    fn kind(&self) -> Kind;
    /// Returns the backend's own type, for operations on two nodes.
    fn as_any(&self) -> &(dyn Any + Send + Sync);
    /// Returns true if both nodes belong to one backend.
    fn is_beside(&self, other: &dyn Node) -> bool;
    /// Returns the inode number of the folder that this node covers, if it is the root of a file system mounted below the share's
    /// folder.
    fn mounted_on(&self) -> Option<u64> {
        None
    }
    /// Returns true if clients may cache the node: only this process changes it, or [`Node::watch_external`] reports other changes.
    fn is_cacheable(&self) -> bool {
        true
    }

    /// Returns the attributes. Needs no permission.
    fn getattr(&self) -> BoxFuture<'_, VfsResult<Attr>>;
    /// Changes attributes and returns them before and after. `open_write`: the caller holds the file open for writing, so
    /// truncation needs no further permission.
    fn setattr<'a>(
        &'a self,
        cred: &'a Cred,
        set: SetAttr,
        open_write: bool,
    ) -> BoxFuture<'a, VfsResult<(Attr, Attr)>>;
    /// Returns the rights of `wanted` that the caller has. `attr`: the node's own, just read.
    fn access<'a>(
        &'a self,
        cred: &'a Cred,
        wanted: Access,
        attr: &'a Attr,
    ) -> BoxFuture<'a, VfsResult<Access>> {
        Box::pin(async move { Ok(judge(self, attr, cred).await?.access(wanted)) })
    }

    /// Returns true if the caller may set any times on the node: it is the owner, or the node's own list allows it. Unlike
    /// [`Node::may`], an unknown answer counts as no. `attr`: the node's own, just read.
    fn may_date<'a>(&'a self, cred: &'a Cred, attr: &'a Attr) -> BoxFuture<'a, VfsResult<bool>> {
        Box::pin(async move {
            if [0, attr.uid].contains(&cred.uid) {
                return Ok(true);
            }
            let allowed = self.acl(attr).await?.map(|acl| acl.allowed(cred, Owner::of(attr)));
            Ok(allowed.is_some_and(|rights| rights & acl::mask::WRITE_ATTRIBUTES != 0))
        })
    }

    /// Fails with the same error with which the operation would refuse this caller for lack of permission, without making any
    /// change. A refusal that a volume detects only during the operation itself is not found here.
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

    /// Finds a name in this directory, also `..` (the root's parent is the root itself).
    fn lookup<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(NodeRef, Attr)>>;
    /// Finds a name, as [`Node::lookup`] does; if it does not exist, returns the attributes that the directory had at that time.
    fn lookup_or_folder<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<FoundOrFolder>> {
        Box::pin(lookup_or_folder(self, cred, name))
    }
    /// Lists at most `entries_max` names after `cookie` (0: from the start). True when the listing is at its end.
    fn readdir<'a>(
        &'a self,
        cred: &'a Cred,
        cookie: u64,
        entries_max: usize,
    ) -> BoxFuture<'a, VfsResult<(Vec<DirEntry>, bool)>>;
    /// Returns the target of a symbolic link.
    fn readlink<'a>(&'a self, cred: &'a Cred) -> BoxFuture<'a, VfsResult<Vec<u8>>> {
        let _ = cred;
        ready(Err(VfsError::Invalid))
    }

    /// Creates or opens a regular file. Attributes in `set` apply to a new file; `size: Some(0)` also to an existing one.
    fn create<'a>(
        &'a self,
        by: Acting<'a>,
        name: &'a [u8],
        how: CreateHow,
        set: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>>;
    /// Creates a directory.
    fn mkdir<'a>(
        &'a self,
        by: Acting<'a>,
        name: &'a [u8],
        set: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>>;
    /// Creates a symbolic link.
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
    /// Creates a device, pipe or socket.
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
    /// Removes a name: with `dir` the name of an empty directory, without it the name of any other node.
    fn remove<'a>(
        &'a self,
        by: Acting<'a>,
        name: &'a [u8],
        dir: bool,
    ) -> BoxFuture<'a, VfsResult<DirChange>>;
    /// Removes a name that is not a directory's, by [`Node::remove`].
    fn unlink<'a>(&'a self, by: Acting<'a>, name: &'a [u8]) -> BoxFuture<'a, VfsResult<DirChange>> {
        self.remove(by, name, false)
    }
    /// Removes an empty directory, by [`Node::remove`].
    fn rmdir<'a>(&'a self, by: Acting<'a>, name: &'a [u8]) -> BoxFuture<'a, VfsResult<DirChange>> {
        self.remove(by, name, true)
    }
    /// Moves `from` in this directory to `to` in `to_dir`. An existing node of that name is replaced; without `replace` the call
    /// fails with [`VfsError::Exists`], decided in the same step as the move. Returns both directories before and after.
    fn rename<'a>(
        &'a self,
        by: Acting<'a>,
        from: &'a [u8],
        to_dir: &'a dyn Node,
        to: &'a [u8],
        replace: bool,
    ) -> BoxFuture<'a, VfsResult<(DirChange, DirChange)>>;
    /// Removes a name like [`Node::unlink`], and keeps the file in the wastebasket if it was its last name.
    fn unlink_kept<'a>(
        &'a self,
        by: Acting<'a>,
        name: &'a [u8],
        waste: &'a Waste,
    ) -> BoxFuture<'a, VfsResult<Outcome<DirChange>>> {
        let _ = (by, name, waste);
        ready(Ok(Outcome::No(NotKept::NotSupported)))
    }
    /// Moves a name like [`Node::rename`], and keeps the file that it replaces in the wastebasket.
    fn rename_kept<'a>(
        &'a self,
        by: Acting<'a>,
        from: &'a [u8],
        to_dir: &'a dyn Node,
        to: &'a [u8],
        waste: &'a Waste,
    ) -> BoxFuture<'a, VfsResult<Outcome<(DirChange, DirChange)>>> {
        let _ = (by, from, to_dir, to, waste);
        ready(Ok(Outcome::No(NotKept::NotSupported)))
    }
    /// Exchanges the nodes of `here` in this directory and `there` in `other`, in one step. [`VfsError::NotSupported`] if the
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
    /// Gives this node a further name in `dir`, which must be free. Returns the node's attributes and the directory before and
    /// after.
    fn link<'a>(
        &'a self,
        by: Acting<'a>,
        dir: &'a dyn Node,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(Attr, DirChange)>> {
        let _ = (by, dir, name);
        ready(Err(VfsError::NotSupported))
    }

    /// Checks once that the caller may read (and write) this file, for an open on which later reads and writes rely.
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
    /// Reads `count` bytes; fewer at the end of the file, or when the pool has no more memory. `cred: None` when an open was
    /// checked before.
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
    /// Appends data for an open of this caller, which was checked. Two appends never overlap, and existing bytes are never
    /// overwritten: [`VfsError::Access`] if the offset is no longer at or after the end.
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
    /// Returns how often the storage failed to keep accepted data of this file. A caller that wrote without a commit remembers the
    /// count from before its first write: a different count later means that data may be lost.
    fn losses(&self) -> u64 {
        0
    }
    /// Returns the volume's part of a write verifier (RFC 1813 section 3.3.7). Before a failure to store any file of the volume is
    /// reported to a caller, the verifier changes to a value that it never had.
    fn verifier(&self) -> u64 {
        0
    }
    /// Makes this node durable with every change before the call: data, attributes, and the names in a directory. The sync is
    /// already under way when this returns. Calls for one node share a sync that begins after them. Errors: [`VfsError::Io`] and
    /// others of the storage; [`VfsError::Delay`] when too many callers wait.
    fn sync(&self) -> BoxFuture<'_, VfsResult<()>> {
        ready(Ok(()))
    }
    /// Makes this node and the others, all of one operation, durable in one step, like [`Node::sync`] for each; `None` if the
    /// volume cannot do so and the caller should sync them at the same time.
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

    /// Returns the next data or hole from `at`; [`VfsError::NoMoreData`] when `at` is beyond the end.
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
    /// Reserves storage with the credentials of the caller that opened the file; extends the file when the range goes beyond its
    /// end.
    fn allocate<'a>(
        &'a self,
        opener: Option<&'a Cred>,
        at: u64,
        count: u64,
    ) -> BoxFuture<'a, VfsResult<()>> {
        let _ = (opener, at, count);
        ready(Err(VfsError::NotSupported))
    }
    /// Makes a hole with the credentials of the caller that opened the file: set-id bits are cleared as by a write. The size stays.
    fn deallocate<'a>(
        &'a self,
        opener: Option<&'a Cred>,
        at: u64,
        count: u64,
    ) -> BoxFuture<'a, VfsResult<()>> {
        let _ = (opener, at, count);
        ready(Err(VfsError::NotSupported))
    }
    /// Copies `count` bytes (0: to the end) of `from` into this file by the volume's own means; may copy less. Storage is charged
    /// to the caller that opened the file.
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
    /// Shares storage of `from` with this file, all or nothing, with the credentials of the caller that opened it; `count` 0 means
    /// to the end.
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

    /// Returns the value of an extended attribute of the `user.` namespace, named without that prefix (RFC 8276 section 8.2).
    fn xattr_get<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<Vec<u8>>> {
        let _ = (cred, name);
        ready(Err(VfsError::NotSupported))
    }
    /// Sets an extended attribute; returns the attributes before and after.
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
    /// Removes an extended attribute; returns the attributes before and after.
    fn xattr_remove<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(Attr, Attr)>> {
        let _ = (cred, name);
        ready(Err(VfsError::NotSupported))
    }
    /// Returns the names of the extended attributes, without the prefix.
    fn xattr_list<'a>(&'a self, cred: &'a Cred) -> BoxFuture<'a, VfsResult<Vec<Vec<u8>>>> {
        let _ = cred;
        ready(Err(VfsError::NotSupported))
    }

    /// Returns a value that is stored with the node and that no protocol shows as an extended attribute; `None` if it does not
    /// exist. The caller checks permission.
    fn side_get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, VfsResult<Option<Vec<u8>>>> {
        let _ = name;
        ready(Ok(None))
    }
    /// Stores a value, or with `None` removes it. The change attribute moves. [`VfsError::Invalid`] for a name that
    /// [`check_side_name`] refuses, [`VfsError::XattrTooBig`] above [`SIDE_MAX`](crate::engine::limits::SIDE_MAX) bytes,
    /// [`VfsError::NoSpace`] where the file system holds less for one file (ext4: about 4,000 bytes in all),
    /// [`VfsError::NotSupported`] where it cannot store side data for such a node.
    fn side_set<'a>(
        &'a self,
        name: &'a str,
        value: Option<&'a [u8]>,
    ) -> BoxFuture<'a, VfsResult<()>> {
        let _ = (name, value);
        ready(Err(VfsError::NotSupported))
    }
    /// Returns the stored access control list as limited by the mode bits; `None` if the node has none, or if a list of the host
    /// was set since. The node checks every caller by it. `attr` was just read.
    fn acl<'a>(&'a self, attr: &'a Attr) -> BoxFuture<'a, VfsResult<Option<Arc<Acl>>>> {
        Box::pin(async move {
            let record = self.side_get(acl::NAME).await?;
            let kept = record.and_then(|record| Kept::decode(&record));
            let is_dir = attr.kind == Kind::Dir;
            let now = |kept: Kept| kept.now(Owner::of(attr), attr.mode, is_dir).into_owned();
            Ok(kept.map(|kept| Arc::new(now(kept))))
        })
    }
    /// Returns the stored list, as [`Node::acl`] does, with the rights of `wanted` that the caller has: one question to a backend
    /// that decides by both. `attr` was just read.
    fn acl_access<'a>(
        &'a self,
        cred: &'a Cred,
        wanted: Access,
        attr: &'a Attr,
    ) -> BoxFuture<'a, VfsResult<(Option<Arc<Acl>>, Access)>> {
        Box::pin(async move {
            let acl = self.acl(attr).await?;
            Ok((acl, self.access(cred, wanted, attr).await?))
        })
    }
    /// Returns what new nodes in this directory may inherit: its stored list, and without one whether the host has a default list
    /// for them. `attr` was just read.
    fn passed_on<'a>(
        &'a self,
        attr: &'a Attr,
    ) -> BoxFuture<'a, VfsResult<(Option<Arc<Acl>>, bool)>> {
        Box::pin(async move {
            let acl = self.acl(attr).await?;
            let has_default = acl.is_none() && self.posix(attr).await?.default.is_some();
            Ok((acl, has_default))
        })
    }
    /// Returns the list that clients see: the stored one, the host's own, or the equivalent of the mode bits.
    fn acl_shown<'a>(&'a self, attr: &'a Attr) -> BoxFuture<'a, VfsResult<Arc<Acl>>> {
        Box::pin(async move {
            let of_mode = || Arc::new(Acl::of_mode(attr.mode, attr.kind == Kind::Dir));
            Ok(self.acl(attr).await?.unwrap_or_else(of_mode))
        })
    }
    /// Stores a list, and sets the nine equivalent mode bits for programs that do not know of lists. It replaces a list of the
    /// host. The caller checks permission. Errors as for [`Node::side_set`].
    fn acl_set<'a>(&'a self, acl: &'a Acl, mode: u32) -> BoxFuture<'a, VfsResult<()>> {
        Box::pin(async move {
            let attr = self.getattr().await?;
            let mode = mode & 0o777;
            let kept = Kept { mode, owner: Owner::of(&attr), acl: acl.clone() }.encode();
            // First sets the bits that both lists allow, then stores the list, then sets its bits: after a failure at any step, the
            // bits admit no caller that neither the old list nor the new one admits.
            let narrow = attr.mode & (0o7000 | mode);
            set_mode(self, narrow).await?;
            if let Err(why) = self.side_set(acl::NAME, Some(&kept)).await {
                set_mode(self, attr.mode).await?;
                return Err(why);
            }
            set_mode(self, attr.mode & 0o7000 | mode).await
        })
    }
    /// Returns the lists that programs of a POSIX host would see: the host's own, the equivalent of the stored one, or the mode
    /// bits. Inherited entries of a stored list are left out: clients would apply them to new files themselves.
    fn posix<'a>(&'a self, attr: &'a Attr) -> BoxFuture<'a, VfsResult<Lists>> {
        Box::pin(async move {
            let acl = self.acl(attr).await?;
            let of_mode = || Posix::of_mode(attr.mode);
            let access = acl.map_or_else(of_mode, |acl| acl.posix(Owner::of(attr)));
            Ok(Lists { access, default: None })
        })
    }
    /// Sets the host's own lists; one for the node itself replaces the stored list. The caller checks permission.
    /// [`VfsError::NotSupported`] if the host cannot store lists for such a node.
    fn posix_set<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, VfsResult<()>> {
        let _ = change;
        ready(Err(VfsError::NotSupported))
    }
    /// Returns what Windows clients have set on the node, with the tag of its reparse point. `attr` was just read: by its change
    /// time a backend can tell whether a cached record is current.
    fn dos<'a>(&'a self, attr: &'a Attr) -> BoxFuture<'a, VfsResult<Dos>> {
        let _ = attr;
        Box::pin(async move {
            let record = self.side_get(dos::NAME).await?;
            let reparse = self.side_get(reparse::NAME).await?;
            let reparse = reparse.and_then(|record| Tagged::decode(&record));
            Ok(Dos { reparse, ..record.map_or(Dos::default(), |r| Dos::decode(&r)) })
        })
    }
    /// Returns the snapshots that contain this directory, in any order, for a caller who may look names up here. Empty inside a
    /// snapshot.
    fn snapshots<'a>(&'a self, cred: &'a Cred) -> BoxFuture<'a, VfsResult<Vec<Snapshot>>> {
        let _ = cred;
        ready(Ok(Vec::new()))
    }

    /// Returns this directory in the snapshot of this second since 1970; `None` if no such snapshot has it.
    fn snapshot_at<'a>(
        &'a self,
        cred: &'a Cred,
        sec: i64,
    ) -> BoxFuture<'a, VfsResult<Option<NodeRef>>> {
        Box::pin(async move {
            let all = self.snapshots(cred).await?;
            Ok(all.into_iter().find(|one| one.taken.sec == sec).map(|one| one.node))
        })
    }
    /// Returns the seconds of the snapshots that have this directory, or this name in it, as far as the caller may see that.
    fn snapshot_times<'a>(
        &'a self,
        cred: &'a Cred,
        name: Option<&'a [u8]>,
    ) -> BoxFuture<'a, VfsResult<BTreeSet<i64>>> {
        Box::pin(async move {
            let mut times = BTreeSet::new();
            for one in self.snapshots(cred).await? {
                let Some(name) = name else {
                    times.insert(one.taken.sec);
                    continue;
                };
                match one.node.lookup(cred, name).await {
                    Ok(_) => drop(times.insert(one.taken.sec)),
                    Err(VfsError::NotFound | VfsError::Access) => {}
                    Err(e) => return Err(e),
                }
            }
            Ok(times)
        })
    }
    /// Returns the most rights, as a mask of Windows, that the node's own list may give the caller. All, except for a node in a
    /// snapshot: what the file of today gives.
    fn bounds<'a>(&'a self, cred: &'a Cred) -> BoxFuture<'a, VfsResult<u32>> {
        let _ = cred;
        ready(Ok(u32::MAX))
    }

    /// Returns the total size of the node's extended attributes that clients see. `attr` was just read, as for [`Node::dos`]. Needs
    /// no permission.
    fn xattr_sizes<'a>(&'a self, attr: &'a Attr) -> BoxFuture<'a, VfsResult<XattrSizes>> {
        let _ = attr;
        ready(Ok(XattrSizes::default()))
    }
    /// Stores what Windows clients have set, except the reparse point.
    fn dos_set<'a>(&'a self, dos: Dos) -> BoxFuture<'a, VfsResult<()>> {
        Box::pin(async move {
            let record = dos.encode();
            self.side_set(dos::NAME, (!dos.is_empty()).then_some(&record[..])).await
        })
    }

    /// Returns the current path of the node from the root of the backend: names joined by `/`, empty for the root. For a file with
    /// several names it is one that the file has or had; [`VfsError::Stale`] when the node has no name or is not below the root.
    fn path(&self) -> BoxFuture<'_, VfsResult<Vec<u8>>>;

    /// Reports changes by other processes to `listener`, as long as the result lives; `None` if the backend cannot detect them, or
    /// no other process can access the files.
    fn watch_external(
        &self,
        listener: external_change::Listener,
    ) -> Option<external_change::Watched> {
        let _ = listener;
        None
    }
}

/// Returns the rights of the caller to a node whose attributes were just read, by its stored list ([`Node::acl`]) or by its mode
/// bits.
pub async fn judge<'a, N: Node + ?Sized>(
    node: &N,
    attr: &'a Attr,
    cred: &'a Cred,
) -> VfsResult<Judge<'a>> {
    let list = if cred.uid == 0 { None } else { node.acl(attr).await? };
    Ok(Judge::new(node.id(), attr, cred, list))
}

/// Finds a name by [`Node::lookup`]; if it does not exist, reads the attributes of the directory.
pub(crate) async fn lookup_or_folder<N: Node + ?Sized>(
    dir: &N,
    cred: &Cred,
    name: &[u8],
) -> VfsResult<FoundOrFolder> {
    match dir.lookup(cred, name).await {
        Ok((node, attr)) => Ok(FoundOrFolder::Found(node, attr)),
        Err(VfsError::NotFound) => Ok(FoundOrFolder::Missing(dir.getattr().await?)),
        Err(e) => Err(e),
    }
}

/// Sets the mode with the credentials of the process, which no list restricts.
async fn set_mode<N: Node + ?Sized>(node: &N, mode: u32) -> VfsResult<()> {
    let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
    node.setattr(&Cred::root(), set, false).await.map(drop)
}

/// Checks a name of side data: 1 to 64 characters of `a-z`, `0-9`, `.` and `-`.
pub fn check_side_name(name: &str) -> VfsResult<()> {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'-';
    if name.is_empty() || name.len() > 64 || !name.bytes().all(good) {
        return Err(VfsError::Invalid);
    }
    Ok(())
}

/// Returns a future that is ready with this value.
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
