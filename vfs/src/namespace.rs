//! The only interface to files: joins shares to backends. Every access by any protocol passes through this module, so that all
//! other clients respect the open files, locks and delegations of one client.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use iobuf::Buf;
use mutex::{reading, writing};
pub use policy::{Cidr, Flavor, Protocols, Squash, gmt_name, gmt_time};
pub use state::Enforce;
use state::{ClientId, Operation, Range, Requester};

use crate::acl::mask;
use crate::actor::Actor;
use crate::arbiter::{Arbiter, WaitPolicy};
use crate::authority::Grant;
use crate::backend::{Made, NodeRef, ReadInto};
use crate::dos::Dos;
use crate::error::{VfsError, VfsResult};
pub use crate::inherited_acl::{GiveList, ListOfNew};
use crate::links::Change;
use crate::names::Names;
use crate::overlap::Overlaps;
pub use crate::share::{
    By, ClientRule, Entered, Flavors, Force, Granted, LOOKS_AT_ONCE, Listed, Masks, Protection,
    Refusal, Rules, Share, Whom,
};
pub use crate::share_access::{OfDomain, PrincipalSet, Right, ShareAccess};
use crate::types::*;
use crate::waste_record::Id;
use crate::watch::{Hub, what};
use crate::watch_event::kinds;

/// Shares in the order of the configuration.
pub type Shares = Arc<[Arc<Share>]>;

/// All shares, and the state that their clients share.
///
/// The shares can be replaced while requests are under way: a request that has found its share continues with it.
pub struct Namespace {
    shares: RwLock<Shares>,
    changes: AtomicU64,
    arbiter: Arbiter,
    names: Names,
    watches: Arc<Hub>,
    overlaps: Arc<Overlaps>,
    /// The rates of shares, users and clients. Protocols ask once for each request, after the rights of its caller are known.
    pub limits: rates::Limits,
}

impl Namespace {
    /// Creates a namespace of these shares; names and numbers are different.
    pub fn new(shares: Vec<Share>) -> Self {
        Self::with_arbiter(shares, Arbiter::default())
    }

    /// Creates a namespace of these shares, with an arbiter that has other time limits.
    pub fn with_arbiter(shares: Vec<Share>, arbiter: Arbiter) -> Self {
        let shares: Shares = shares.into_iter().map(Arc::new).collect();
        let overlaps = Arc::<Overlaps>::default();
        overlaps.set(&shares);
        Self {
            shares: RwLock::new(shares),
            changes: AtomicU64::new(0),
            arbiter,
            names: Names::default(),
            watches: Hub::of(overlaps.clone()),
            overlaps,
            limits: rates::Limits::default(),
        }
    }

    fn find(&self, which: impl Fn(&Share) -> bool) -> Option<Arc<Share>> {
        let shares = reading(&self.shares);
        shares.iter().find(|s| which(s)).cloned()
    }

    /// Returns all current shares, in the order of the configuration.
    pub fn shares(&self) -> Shares {
        reading(&self.shares).clone()
    }

    /// Returns the share of this number.
    pub fn share(&self, id: u32) -> Option<Arc<Share>> {
        self.find(|s| s.id == id)
    }

    /// Returns the share of this name.
    pub fn share_named(&self, name: &[u8]) -> Option<Arc<Share>> {
        self.find(|s| s.name.as_bytes() == name)
    }

    /// Replaces the shares; names and numbers are different. A share that stays keeps its backend, and with it the state that
    /// clients hold.
    pub fn set_shares(&self, shares: Shares) {
        self.overlaps.set(&shares);
        *writing(&self.shares) = shares;
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Returns how often the shares were replaced: a listing that spans calls detects by this number that the list has changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Returns the arbiter, which tracks and recalls the state of clients.
    pub fn arbiter(&self) -> &Arbiter {
        &self.arbiter
    }

    /// Returns the index of names in any case.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Returns which shares overlap.
    pub fn overlaps(&self) -> &Overlaps {
        &self.overlaps
    }

    /// Returns the subscribers to changes.
    pub fn watches(&self) -> &Arc<Hub> {
        &self.watches
    }

    /// Returns operations for `requester`, whose own opens and cached rights never conflict.
    pub fn by(&self, requester: Option<Requester>) -> FileOps<'_> {
        FileOps {
            arbiter: &self.arbiter,
            names: &self.names,
            watches: &self.watches,
            requester,
            parent: None,
            wait_policy: None,
            grants: [None; 4],
            opener: None,
            deletes: false,
            smb: false,
            list: ListOfNew::default(),
            giver: None,
            changes_list: true,
            folder: None,
            actor: None,
        }
    }

    /// Like [`Namespace::by`], for an SMB client.
    pub fn by_smb(&self, requester: Option<Requester>) -> FileOps<'_> {
        FileOps { smb: true, ..self.by(requester) }
    }

    /// Reads without a known requester. `cred: None` when an open of the caller was checked before.
    pub async fn read(
        &self,
        node: &NodeRef,
        cred: Option<&Cred>,
        at: u64,
        count: usize,
        into: &ReadInto,
    ) -> VfsResult<ReadData> {
        self.by(None).read(node, cred, at, count, into).await
    }

    /// Writes without a known requester.
    pub async fn write(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: Option<&Cred>,
        at: u64,
        data: Vec<Buf>,
        stable: Stable,
    ) -> VfsResult<Written> {
        self.by(None).write(share, node, cred, at, data, stable).await
    }

    /// Changes attributes without a known requester.
    pub async fn setattr(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
        set: SetAttr,
        open_write: bool,
    ) -> VfsResult<(Attr, Attr)> {
        self.by(None).setattr(share, node, cred, set, open_write).await
    }

    /// Creates or opens a regular file without a known requester.
    pub async fn create(
        &self,
        share: &Share,
        dir: &NodeRef,
        cred: &Cred,
        name: &[u8],
        how: CreateHow,
        set: SetAttr,
    ) -> VfsResult<Made> {
        self.by(None).create(share, dir, cred, name, how, set).await
    }

    /// Removes a name that is not a directory's, without a known requester.
    pub async fn unlink(
        &self,
        share: &Share,
        dir: &NodeRef,
        cred: &Cred,
        name: &[u8],
    ) -> VfsResult<DirChange> {
        self.by(None).unlink(share, dir, cred, name).await
    }

    /// Moves a name, without a known requester.
    pub async fn rename(
        &self,
        share: &Share,
        from_dir: &NodeRef,
        cred: &Cred,
        from: &[u8],
        to_dir: &NodeRef,
        to: &[u8],
    ) -> VfsResult<(DirChange, DirChange)> {
        self.by(None).rename(share, from_dir, cred, from, to_dir, to).await
    }

    /// Gives a node a further name, without a known requester.
    pub async fn link(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
        dir: &NodeRef,
        name: &[u8],
    ) -> VfsResult<(Attr, DirChange)> {
        self.by(None).link(share, node, cred, dir, name).await
    }

    /// Fails with [`VfsError::ReadOnly`] for a read-only share.
    pub fn writable(&self, share: &Share) -> VfsResult<()> {
        writable(share)
    }
}

fn writable(share: &Share) -> VfsResult<()> {
    if share.read_only { Err(VfsError::ReadOnly) } else { Ok(()) }
}

/// Returns the result of a create on a read-only share, like open(2) with `O_CREAT` on a read-only file system: an existing file
/// that need not be truncated. [`VfsError::ReadOnly`] for a missing file, or one that would be truncated.
async fn found_read_only(
    dir: &NodeRef,
    cred: &Cred,
    name: &[u8],
    (how, set): (CreateHow, &SetAttr),
) -> VfsResult<Made> {
    let (node, attr) = match dir.lookup(cred, name).await {
        Err(VfsError::NotFound) => return Err(VfsError::ReadOnly),
        found => found?,
    };
    match how {
        CreateHow::Unchecked if set.size.is_none() => {}
        CreateHow::Unchecked => return Err(VfsError::ReadOnly),
        CreateHow::Guarded | CreateHow::Exclusive(_) => return Err(VfsError::Exists),
    }
    let now = dir.getattr().await?;
    let change = DirChange { before: now, after: now, atomic: false };
    Ok(Made { node, attr, dir: change, created: false })
}

/// Operations on files for one requester: each asks `state` for conflicts first, then acts on the backend.
#[derive(Clone, Copy)]
pub struct FileOps<'a> {
    pub(crate) arbiter: &'a Arbiter,
    pub(crate) names: &'a Names,
    pub(crate) watches: &'a Arc<Hub>,
    pub(crate) requester: Option<Requester>,
    pub(crate) parent: Option<ClientId>,
    pub(crate) wait_policy: Option<&'a dyn WaitPolicy>,
    /// The rights that access control lists granted the requester.
    pub(crate) grants: [Option<&'a Grant>; 4],
    /// The caller whose open is used for writing data.
    pub(crate) opener: Option<&'a Cred>,
    /// True if its protocol has pending deletes and checks them itself.
    pub(crate) deletes: bool,
    /// True for SMB, whose changes are durable before the answer on fewer shares than NFS changes.
    pub(crate) smb: bool,
    /// The source of new nodes' lists.
    pub(crate) list: ListOfNew,
    /// Provides a list that is not inherited.
    pub(crate) giver: Option<&'a dyn GiveList>,
    /// The actor named in the audit trail.
    pub(crate) actor: Option<&'a dyn Actor>,
    /// True if setting the mode changes the list of the file (RFC 8881 section 6.4.1.1).
    pub(crate) changes_list: bool,
    /// Attributes of the folder of a new name, which the request has just read.
    pub(crate) folder: Option<Attr>,
}

impl<'a> FileOps<'a> {
    /// Makes a change of the mode leave the file's list: all nine bits stay unchanged.
    #[must_use]
    pub fn keeping_list(self) -> Self {
        Self { changes_list: false, ..self }
    }

    /// Fails with [`VfsError::ReadOnly`] for a read-only share.
    pub(crate) fn writable(&self, share: &Share) -> VfsResult<()> {
        writable(share)
    }

    /// Waits for holders without a time limit.
    pub fn waiting(self, wait_policy: &'a dyn WaitPolicy) -> Self {
        Self { wait_policy: Some(wait_policy), ..self }
    }

    pub(crate) async fn check_conflicts(
        &self,
        node: &NodeRef,
        op: Operation,
        range: Range,
    ) -> VfsResult<()> {
        self.arbiter
            .check_conflicts_waiting(node.id(), self.requester, op, range, self.wait_policy)
            .await
    }

    /// Called before attributes are changed other than by [`FileOps::setattr`].
    pub(crate) async fn check_attributes(&self, node: &NodeRef) -> VfsResult<()> {
        self.check_conflicts(node, Operation::Attributes, Range::ALL).await
    }

    /// Reports that the listing of a directory changed. Sent after the change, so that a client that lists again sees it.
    fn listing_changed(&self, dir: &NodeRef) {
        let requester = self.parent.map(|client| Requester { client, via: 0, holder: None });
        self.arbiter.tell(dir.id(), requester.or(self.requester), Operation::Contents);
    }

    /// Breaks conflicting rights before the file of a name is removed or replaced. Looks the name up only while clients hold state;
    /// a caller without the right to remove breaks no rights.
    async fn check_name(&self, dir: &NodeRef, cred: &Cred, name: &[u8]) -> VfsResult<()> {
        let state = self.arbiter.state();
        if !state.is_used() {
            return Ok(());
        }
        // If there is no node, the operation itself reports the error of the name.
        let Some(node) = self.node_to_remove(dir, cred, name).await else { return Ok(()) };
        if !state.is_free(node.id(), self.requester, Operation::Names, Range::ALL) {
            self.check_removal(dir, cred, &node).await?;
        }
        self.check_conflicts(&node, Operation::Names, Range::ALL).await
    }

    /// Breaks conflicting rights before a node is renamed; for a directory, also those on files below it.
    async fn check_moved(
        &self,
        share: &Share,
        dir: &NodeRef,
        cred: &Cred,
        name: &[u8],
    ) -> VfsResult<()> {
        self.check_name(dir, cred, name).await?;
        if self.arbiter.state().grants() == 0 {
            return Ok(());
        }
        match dir.lookup(cred, name).await {
            Ok((node, _)) if node.kind() == Kind::Dir => {
                self.arbiter.check_moved(share.id, &node, self.requester, self.wait_policy).await
            }
            _ => Ok(()),
        }
    }

    /// Returns the watched node if this is its last name.
    async fn externally_watched(&self, dir: &NodeRef, name: &[u8]) -> Option<NodeId> {
        if self.arbiter.has_no_external_watch() {
            return None;
        }
        let (node, attr) = dir.lookup(&Cred::root(), name).await.ok()?;
        (attr.nlink <= 1 && node.kind() != Kind::Dir).then(|| node.id())
    }

    /// Returns the attributes for any client, including data that a client with a write delegation has not yet written (RFC 8881
    /// section 10.4.3). In that case the file gets the times from that client, or the current time, so that a client that has read
    /// these attributes notices a later change as well.
    pub async fn getattr(&self, node: &NodeRef) -> VfsResult<Attr> {
        let kept =
            self.arbiter.delegated_attrs(node.id(), self.requester, self.wait_policy).await?;
        let attr = node.getattr().await?;
        let Some(kept) = kept else { return Ok(attr) };
        let times = kept.times.until(Time::now());
        let moved = times.mtime.is_some_and(|t| t != attr.mtime);
        if !kept.modified && !moved {
            return Ok(Attr { atime: times.atime.unwrap_or(attr.atime), ..attr });
        }
        let set = SetAttr {
            mtime: Some(times.mtime.map_or(SetTime::Now, SetTime::At)),
            atime: times.atime.map(SetTime::At),
            ..SetAttr::default()
        };
        let (_, attr) = node.setattr(&Cred::root(), set, true).await?;
        Ok(Attr { size: if kept.modified { kept.size } else { attr.size }, ..attr })
    }

    /// Sets the times that the holder of the file's write delegation reported: no other client can conflict.
    pub async fn set_delegated_times(
        &self,
        share: &Share,
        node: &NodeRef,
        times: DelegatedTimes,
    ) -> VfsResult<()> {
        writable(share)?;
        let (attr, times) = (node.getattr().await?, times.until(Time::now()));
        let set = SetAttr {
            atime: times.atime.filter(|t| *t != attr.atime).map(SetTime::At),
            mtime: times.mtime.filter(|t| *t != attr.mtime).map(SetTime::At),
            ..SetAttr::default()
        };
        if set != SetAttr::default() {
            node.setattr(&Cred::root(), set, true).await?;
            self.watches.post_node(share.id, node, kinds(&set)).await;
            self.make_durable(share, &[node]).await?;
        }
        Ok(())
    }

    /// Returns true if the server's size and times of this node are current: no client has newer ones.
    pub fn is_known(&self, node: &NodeRef) -> bool {
        self.arbiter.state().keeps_back(node.id(), self.requester.map(|w| w.key())).is_none()
    }

    /// Reads. `cred: None` when an open of the caller was checked before.
    pub async fn read(
        &self,
        node: &NodeRef,
        cred: Option<&Cred>,
        at: u64,
        count: usize,
        into: &ReadInto,
    ) -> VfsResult<ReadData> {
        // A read of zero bytes has no conflicts.
        if count > 0 {
            let by = (cred, Intent::Read);
            self.check_judged(node, by, Operation::Read, range(at, count as u64)).await?;
        }
        node.read(cred, at, count, into).await
    }

    pub async fn write(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: Option<&Cred>,
        at: u64,
        data: Vec<Buf>,
        stable: Stable,
    ) -> VfsResult<Written> {
        writable(share)?;
        let count: usize = data.iter().map(Buf::len).sum();
        let _announced = self.arbiter.state().writing(node.id());
        if count > 0 {
            self.check_data(node).await?;
            let by = (cred, Intent::Write);
            self.check_judged(node, by, Operation::Write, range(at, count as u64)).await?;
        }
        let by = cred.map_or(WriteBy::Open(self.opener), WriteBy::Caller);
        let done = node.write(by, at, data, stable).await?;
        self.watches.post_node(share.id, node, what::SIZE | what::LAST_WRITE).await;
        Ok(done)
    }

    pub(crate) async fn do_setattr(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
        set: SetAttr,
        open_write: bool,
    ) -> VfsResult<(Attr, Attr)> {
        writable(share)?;
        self.guard_link_attributes(share, node.id())?;
        let op = match set.size {
            None => Operation::Attributes,
            Some(_) if self.requester.is_some_and(|w| w.client.is_key()) => Operation::Resize,
            Some(_) => Operation::Write,
        };
        let _announced = self.arbiter.state().writing(node.id());
        if set.size.is_some() {
            self.check_data(node).await?;
        }
        let actor = self.setting(node, cred, &set);
        let intent = Intent::Set { set: &set, open_write };
        self.check_judged(node, (Some(actor.cred()), intent), op, Range::ALL).await?;
        let mut done = node.setattr(actor.cred(), set, open_write).await?;
        if set.mode.is_some() && self.changes_list {
            done.1 = self.chmod_list(node, &done).await?;
        }
        self.watches.post_node(share.id, node, kinds(&set)).await;
        self.make_durable(share, &[node]).await?;
        Ok(done)
    }

    /// Truncates a file for an open that overwrites it: the open itself has broken the caching of other clients, and their locks do
    /// not prevent an open that the share modes allow (MS-FSA section 2.1.5.1.2).
    pub async fn empty(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
    ) -> VfsResult<(Attr, Attr)> {
        writable(share)?;
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        let _announced = self.arbiter.state().writing(node.id());
        let done = node.setattr(cred, set, true).await?;
        self.watches.post_node(share.id, node, kinds(&set)).await;
        self.make_durable(share, &[node]).await?;
        Ok(done)
    }

    /// Creates or opens a regular file. An existing file that would be truncated is checked for conflicts like a write.
    pub(crate) async fn do_create(
        &self,
        share: &Share,
        dir: &NodeRef,
        cred: &Cred,
        name: &[u8],
        how: CreateHow,
        set: SetAttr,
    ) -> VfsResult<Made> {
        if writable(share).is_err() {
            return found_read_only(dir, cred, name, (how, &set)).await;
        }
        self.guard_links(share, dir.id(), name, Change::Add)?;
        let new = share.rules.masks.of_new(set, Kind::File, self.smb);
        let set = new.set;
        self.check_create(dir, cred, name, how).await?;
        let cuts = how == CreateHow::Unchecked && set.size.is_some();
        let state = self.arbiter.state();
        let _announced = state.writing(dir.id());
        let by = self.requester.map(|w| w.key());
        if cuts && state.is_used() || state.would_break(dir.id(), by, Operation::Entries) {
            match dir.lookup(cred, name).await {
                Ok((node, attr)) if cuts => self.check_cut(&node, cred, &attr).await?,
                Ok(_) => {}
                Err(_) => drop(self.check_added(dir, cred, name, Kind::File).await?),
            }
        }
        let inherited = self.inherited(dir, set.umask).await?;
        let by = self
            .acting(cred, mask::WRITE_DATA)
            .having_seen(inherited.folder(self.names.has_indexes()));
        let made = dir.create(by, name, how, inherited.masked(set, Kind::File)).await;
        let mut made = match made {
            // A volume that takes no changes, such as a snapshot.
            Err(VfsError::ReadOnly) => return found_read_only(dir, cred, name, (how, &set)).await,
            made => made?,
        };
        if made.created {
            self.give_list(&inherited, (share, dir, cred, name), &mut made, &new).await?;
            self.made(share, dir, name, &made, what::FILE_NAME).await;
            self.make_durable(share, &[dir, &made.node]).await?;
        } else if cuts {
            self.watches.post_node(share.id, &made.node, what::SIZE | what::LAST_WRITE).await;
            self.make_durable(share, &[&made.node]).await?;
        }
        Ok(made)
    }

    /// Reports a new name to subscribers and the index.
    async fn made(&self, share: &Share, dir: &NodeRef, name: &[u8], made: &Made, kind: u32) {
        self.names.made(dir.id(), name, &made.dir);
        self.listing_changed(dir);
        self.watches.post(share.id, dir, name, Action::Added, kind).await;
    }

    /// Reports a removed name to subscribers and the index.
    async fn gone(&self, share: &Share, dir: &NodeRef, name: &[u8], change: &DirChange, kind: u32) {
        self.names.gone(dir.id(), name, change);
        self.listing_changed(dir);
        self.watches.post(share.id, dir, name, Action::Removed, kind).await;
    }

    pub(crate) async fn do_mkdir(
        &self,
        share: &Share,
        dir: &NodeRef,
        cred: &Cred,
        name: &[u8],
        set: SetAttr,
    ) -> VfsResult<Made> {
        writable(share)?;
        self.guard_links(share, dir.id(), name, Change::Add)?;
        self.check_new_entry(dir).await?;
        let _announced = self.check_added(dir, cred, name, Kind::Dir).await?;
        let new = share.rules.masks.of_new(set, Kind::Dir, self.smb);
        let inherited = self.inherited(dir, new.set.umask).await?;
        let by = self
            .acting(cred, mask::APPEND_DATA)
            .having_seen(inherited.folder(self.names.has_indexes()));
        let mut made = dir.mkdir(by, name, inherited.masked(new.set, Kind::Dir)).await?;
        self.give_list(&inherited, (share, dir, cred, name), &mut made, &new).await?;
        self.made(share, dir, name, &made, what::DIR_NAME).await;
        self.make_durable(share, &[dir, &made.node]).await?;
        Ok(made)
    }

    pub(crate) async fn do_symlink(
        &self,
        share: &Share,
        dir: &NodeRef,
        cred: &Cred,
        name: &[u8],
        target: &[u8],
        set: SetAttr,
    ) -> VfsResult<Made> {
        writable(share)?;
        self.guard_links(share, dir.id(), name, Change::Add)?;
        self.guard_link_text(share, target)?;
        self.check_new_entry(dir).await?;
        let _announced = self.check_added(dir, cred, name, Kind::Symlink).await?;
        let made = dir.symlink(cred, name, target, set).await?;
        self.made(share, dir, name, &made, what::FILE_NAME).await;
        self.make_durable(share, &[dir, &made.node]).await?;
        Ok(made)
    }

    pub(crate) async fn do_mknod(
        &self,
        share: &Share,
        dir: &NodeRef,
        cred: &Cred,
        name: &[u8],
        special: Special,
        set: SetAttr,
    ) -> VfsResult<Made> {
        writable(share)?;
        self.guard_links(share, dir.id(), name, Change::Add)?;
        self.check_new_entry(dir).await?;
        let _announced = self.check_added(dir, cred, name, special.kind()).await?;
        let new = share.rules.masks.of_new(set, special.kind(), self.smb);
        let inherited = self.inherited(dir, new.set.umask).await?;
        let set = inherited.masked(new.set, special.kind());
        let mut made = dir.mknod(cred, name, special, set).await?;
        self.give_list(&inherited, (share, dir, cred, name), &mut made, &new).await?;
        self.made(share, dir, name, &made, what::FILE_NAME).await;
        self.make_durable(share, &[dir, &made.node]).await?;
        Ok(made)
    }

    pub(crate) async fn do_rmdir(
        &self,
        share: &Share,
        dir: &NodeRef,
        cred: &Cred,
        name: &[u8],
    ) -> VfsResult<DirChange> {
        writable(share)?;
        self.guard_links(share, dir.id(), name, Change::Take)?;
        let _announced = self.check_taken(dir, cred, name).await?;
        if self.arbiter.state().is_used()
            && let Some(node) = self.node_to_remove(dir, cred, name).await
            && !self.arbiter.passes(node.id(), self.requester, Operation::Entries, Range::ALL)
        {
            self.check_removal(dir, cred, &node).await?;
            self.check_conflicts(&node, Operation::Entries, Range::ALL).await?;
        }
        let victim = self.with_streams(share, dir, name).await;
        let change = dir.rmdir(self.acting(cred, REMOVES), name).await?;
        self.lost_a_name(share, victim).await;
        self.gone(share, dir, name, &change, what::DIR_NAME).await;
        self.make_durable(share, &[dir]).await?;
        Ok(change)
    }

    pub(crate) async fn do_unlink(
        &self,
        share: &Share,
        dir: &NodeRef,
        cred: &Cred,
        name: &[u8],
    ) -> VfsResult<(DirChange, Option<Id>)> {
        writable(share)?;
        self.guard_links(share, dir.id(), name, Change::Take)?;
        self.check_name(dir, cred, name).await?;
        let _announced = self.check_taken(dir, cred, name).await?;
        let victim = self.with_streams(share, dir, name).await;
        let watched = self.externally_watched(dir, name).await;
        let (change, kept) = self.unlink_or_keep(share, (dir, name), cred, REMOVES).await?;
        watched.into_iter().for_each(|node| self.arbiter.end_external_watch(node));
        // A file in the wastebasket keeps its streams.
        self.lost_a_name(share, victim.filter(|_| kept.is_none())).await;
        self.gone(share, dir, name, &change, what::FILE_NAME).await;
        self.make_durable(share, &[dir]).await?;
        Ok((change, kept))
    }

    /// Breaks conflicting rights before another node replaces this one.
    pub(crate) async fn check_change(&self, node: &NodeRef) -> VfsResult<()> {
        self.check_conflicts(node, Operation::Names, Range::ALL).await
    }

    /// Reports that a name now belongs to another node.
    pub(crate) async fn took_its_place(
        &self,
        share: &Share,
        (dir, name): (&NodeRef, &[u8]),
        old: &NodeRef,
        change: &DirChange,
    ) {
        self.arbiter.end_external_watch(old.id());
        self.names.made(dir.id(), name, change);
        self.listing_changed(dir);
        // Subscribers see the same file.
        self.watches.post(share.id, dir, name, Action::Modified, what::ATTRIBUTES).await;
    }

    /// Moves a name, and replaces an existing one.
    pub async fn rename(
        &self,
        share: &Share,
        from_dir: &NodeRef,
        cred: &Cred,
        from: &[u8],
        to_dir: &NodeRef,
        to: &[u8],
    ) -> VfsResult<(DirChange, DirChange)> {
        self.rename_with(share, from_dir, cred, from, to_dir, to, true).await
    }

    /// Moves a name; without `replace` the new name must be free.
    #[allow(clippy::too_many_arguments)] // Two names in two directories, with the caller and the options.
    pub(crate) async fn do_rename(
        &self,
        share: &Share,
        from_dir: &NodeRef,
        cred: &Cred,
        from: &[u8],
        to_dir: &NodeRef,
        to: &[u8],
        replace: bool,
    ) -> VfsResult<((DirChange, DirChange), Option<Id>)> {
        writable(share)?;
        self.guard_links(share, from_dir.id(), from, Change::Take)?;
        self.guard_links(share, to_dir.id(), to, Change::Take)?;
        self.check_moved(share, from_dir, cred, from).await?;
        if replace {
            self.check_name(to_dir, cred, to).await?;
        }
        self.check_new_entry(to_dir).await?;
        let _from = self.check_taken(from_dir, cred, from).await?;
        let _to = self.check_arriving((from_dir, from), to_dir, cred).await?;
        let victim = if replace { self.with_streams(share, to_dir, to).await } else { None };
        let watched = if replace { self.externally_watched(to_dir, to).await } else { None };
        let followed = self.followed((from_dir, from), cred, (to_dir, to)).await;
        let (old, new, by) = ((from_dir, from), (to_dir, to), (cred, REMOVES | ADDS));
        let (done, kept) = self.rename_or_keep(share, old, new, by, replace).await?;
        if done.0.is_none() && done.1.is_none() {
            return Ok((done, None));
        }
        if let Some(node) = followed {
            self.arbiter.renamed(node, (from_dir, from), (to_dir, to)).await;
        }
        watched.into_iter().for_each(|node| self.arbiter.end_external_watch(node));
        self.lost_a_name(share, victim.filter(|_| kept.is_none())).await;
        self.names.gone(from_dir.id(), from, &done.0);
        self.names.made(to_dir.id(), to, &done.1);
        self.listing_changed(from_dir);
        self.listing_changed(to_dir);
        if self.watches.is_watched(share.id) {
            let moved = to_dir.lookup(&Cred::root(), to).await;
            let is_dir = moved.is_ok_and(|(node, _)| node.kind() == Kind::Dir);
            self.watches.post_rename(share.id, (from_dir, from), (to_dir, to), is_dir).await;
        }
        self.make_durable(share, &[from_dir, to_dir]).await?;
        Ok((done, kept))
    }

    pub(crate) async fn do_link(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
        dir: &NodeRef,
        name: &[u8],
    ) -> VfsResult<(Attr, DirChange)> {
        writable(share)?;
        self.guard_links(share, dir.id(), name, Change::Add)?;
        self.check_new_entry(dir).await?;
        if !self.arbiter.passes(node.id(), self.requester, Operation::Names, Range::ALL) {
            node.may(cred, Intent::Link).await?;
            self.check_named(node, dir, cred).await?;
        }
        let _announced = self.check_added(dir, cred, name, node.kind()).await?;
        let by = self.acting(cred, mask::WRITE_DATA);
        let done = node.link(by, dir.as_ref(), name).await?;
        self.arbiter.linked(node.id());
        self.names.made(dir.id(), name, &done.1);
        self.listing_changed(dir);
        self.watches.post(share.id, dir, name, Action::Added, what::FILE_NAME).await;
        self.make_durable(share, &[dir, node]).await?;
        Ok(done)
    }

    /// Reserves storage. The caller holds the file open for writing.
    pub async fn allocate(
        &self,
        share: &Share,
        node: &NodeRef,
        at: u64,
        count: u64,
    ) -> VfsResult<()> {
        writable(share)?;
        let _announced = self.arbiter.state().writing(node.id());
        self.check_data(node).await?;
        self.check_conflicts(node, Operation::Write, range(at, count)).await?;
        node.allocate(self.opener, at, count).await?;
        self.watches.post_node(share.id, node, what::SIZE | what::LAST_WRITE).await;
        self.make_durable(share, &[node]).await?;
        Ok(())
    }

    /// Makes a hole. The caller holds the file open for writing.
    pub async fn deallocate(
        &self,
        share: &Share,
        node: &NodeRef,
        at: u64,
        count: u64,
    ) -> VfsResult<()> {
        self.trim(share, node, at, count).await?;
        self.make_durable(share, &[node]).await
    }

    /// Makes a hole for data that is no longer needed: the data may reappear after a power failure, so that no caller waits for a
    /// sync of each of many ranges.
    pub async fn trim(&self, share: &Share, node: &NodeRef, at: u64, count: u64) -> VfsResult<()> {
        writable(share)?;
        let _announced = self.arbiter.state().writing(node.id());
        self.check_data(node).await?;
        self.check_conflicts(node, Operation::Write, range(at, count)).await?;
        node.deallocate(self.opener, at, count).await?;
        self.watches.post_node(share.id, node, what::SIZE | what::LAST_WRITE).await;
        Ok(())
    }

    /// Copies a range; `count` 0 means to the end. The caller holds both files open.
    pub async fn copy_range(
        &self,
        share: &Share,
        node: &NodeRef,
        from: &NodeRef,
        from_at: u64,
        at: u64,
        count: u64,
    ) -> VfsResult<u64> {
        self.copy_range_from(share, node, (from, self), from_at, at, count).await
    }

    /// Like [`FileOps::copy_range`], from a file that another client holds open.
    pub async fn copy_range_from(
        &self,
        share: &Share,
        node: &NodeRef,
        (from, reader): (&NodeRef, &FileOps<'_>),
        from_at: u64,
        at: u64,
        count: u64,
    ) -> VfsResult<u64> {
        writable(share)?;
        let _announced = self.arbiter.state().writing(node.id());
        self.check_data(node).await?;
        reader.check_conflicts(from, Operation::Read, range(from_at, count)).await?;
        self.check_conflicts(node, Operation::Write, range(at, count)).await?;
        let done = node.copy_range(self.opener, from.as_ref(), from_at, at, count).await?;
        self.watches.post_node(share.id, node, what::SIZE | what::LAST_WRITE).await;
        Ok(done)
    }

    /// Shares storage; `count` 0 means to the end. The caller holds both files open.
    pub async fn clone_range(
        &self,
        share: &Share,
        node: &NodeRef,
        from: &NodeRef,
        from_at: u64,
        at: u64,
        count: u64,
    ) -> VfsResult<()> {
        writable(share)?;
        self.check_conflicts(from, Operation::Read, range(from_at, count)).await?;
        self.check_conflicts(node, Operation::Write, range(at, count)).await?;
        self.clone_range_unlocked(share, node, (from, self), from_at, at, count).await
    }

    /// Like [`FileOps::clone_range`], from a file that another client holds open, and without a check of locks, which Windows does
    /// not make either (MS-FSA section 2.1.5.10.4).
    pub async fn clone_range_unlocked(
        &self,
        share: &Share,
        node: &NodeRef,
        (from, reader): (&NodeRef, &FileOps<'_>),
        from_at: u64,
        at: u64,
        count: u64,
    ) -> VfsResult<()> {
        writable(share)?;
        let _announced = self.arbiter.state().writing(node.id());
        self.check_data(node).await?;
        reader.check_conflicts(from, Operation::Read, BEYOND).await?;
        self.check_conflicts(node, Operation::Write, BEYOND).await?;
        node.clone_range(self.opener, from.as_ref(), from_at, at, count).await?;
        self.watches.post_node(share.id, node, what::SIZE | what::LAST_WRITE).await;
        self.make_durable(share, &[node]).await?;
        Ok(())
    }

    /// Stores the attributes that Windows clients set on a file.
    pub(crate) async fn do_dos_set(
        &self,
        share: &Share,
        node: &NodeRef,
        dos: Dos,
    ) -> VfsResult<()> {
        writable(share)?;
        node.dos_set(dos).await?;
        self.watches.post_node(share.id, node, what::ATTRIBUTES | what::CREATION).await;
        self.make_durable(share, &[node]).await?;
        Ok(())
    }

    /// Sets the creation time that every protocol shows, for a caller who may set any time of the node.
    pub async fn created_set(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
        created: Time,
    ) -> VfsResult<()> {
        writable(share)?;
        let attr = node.getattr().await?;
        if !self.may_date(node, &attr, cred).await? {
            return Err(VfsError::Perm);
        }
        self.check_attributes(node).await?;
        let kept = node.dos(&attr).await?;
        if kept.created == Some(created) {
            return Ok(());
        }
        self.dos_set(share, node, Dos { created: Some(created), ..kept }).await
    }

    pub(crate) async fn do_xattr_set(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> VfsResult<(Attr, Attr)> {
        writable(share)?;
        let actor = self.actor(node, cred, mask::WRITE_EA);
        let by = (Some(actor.cred()), Intent::SetXattr);
        self.check_judged(node, by, Operation::Attributes, Range::ALL).await?;
        let done = node.xattr_set(actor.cred(), name, value, how).await?;
        self.watches.post_node(share.id, node, what::EA).await;
        self.make_durable(share, &[node]).await?;
        Ok(done)
    }

    pub(crate) async fn do_xattr_remove(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
        name: &[u8],
    ) -> VfsResult<(Attr, Attr)> {
        writable(share)?;
        let actor = self.actor(node, cred, mask::WRITE_EA);
        let by = (Some(actor.cred()), Intent::SetXattr);
        self.check_judged(node, by, Operation::Attributes, Range::ALL).await?;
        let done = node.xattr_remove(actor.cred(), name).await?;
        self.watches.post_node(share.id, node, what::EA).await;
        self.make_durable(share, &[node]).await?;
        Ok(done)
    }
}

const REMOVES: u32 = mask::DELETE | mask::DELETE_CHILD;
const ADDS: u32 = mask::WRITE_DATA | mask::APPEND_DATA;

/// A range that no lock covers: conflicts only with cached rights.
const BEYOND: Range = Range { first: u64::MAX, last: u64::MAX };

/// Returns the bytes that an access touches. `count` 0 means to the end.
pub(crate) fn range(at: u64, count: u64) -> Range {
    Range { first: at, last: if count == 0 { u64::MAX } else { at.saturating_add(count - 1) } }
}
