//! Checks of `FileOps` before a holder must return rights: no holder does for an operation that the volume would refuse.
//!
//! *Errors.* Those that the volume would give.

use state::{Operation, Range, Writing};

use crate::acl::mask;
use crate::authority::{Acting, Actor, Grant, still_has};
use crate::backend::{Made, NodeRef};
use crate::error::{VfsError, VfsResult};
use crate::namespace::{FileOps, Share};
use crate::perm;
use crate::types::{Access, Attr, Cred, Intent, Kind, SetAttr};

impl<'a> FileOps<'a> {
    /// Removes a file that the caller just created and that was reported to others, unless another node has its name since.
    pub async fn unmake(
        &self,
        share: &Share,
        dir: &NodeRef,
        cred: &Cred,
        name: &[u8],
        made: &Made,
    ) {
        if !still_has(dir, name, made).await {
            return;
        }
        let maker = Grant::of_maker(made, mask::DELETE);
        let file_ops = (*self).granted_to(maker.as_ref());
        let _ = match made.attr.kind {
            Kind::Dir => file_ops.rmdir(share, dir, cred, name).await,
            _ => file_ops.unlink(share, dir, cred, name).await,
        };
    }

    /// Like [`Self::granted`], with the grants of another open, which may have a shorter lifetime.
    fn granted_to<'b>(self, open: Option<&'b Grant>) -> FileOps<'b>
    where
        'a: 'b,
    {
        let file_ops: FileOps<'b> = self;
        file_ops.granted(open, None)
    }

    /// Returns the node of a name that will be removed: one that the caller can look up, or the node of one of its grants.
    pub(crate) async fn node_to_remove(
        &self,
        dir: &NodeRef,
        cred: &Cred,
        name: &[u8],
    ) -> Option<NodeRef> {
        if let Ok((node, _)) = dir.lookup(cred, name).await {
            return Some(node);
        }
        if self.grants.iter().all(Option::is_none) {
            return None;
        }
        let (node, _) = dir.lookup(&Cred::root(), name).await.ok()?;
        self.grants.iter().flatten().any(|grant| grant.is_about(node.id())).then_some(node)
    }

    /// Refuses a removal that the volume would refuse as well: the caller may not take a name of this node out of the directory if
    /// neither a grant, nor the node's own list, nor the list or mode of the directory allows it ([`VfsError::Access`]), or if the
    /// directory is sticky and the caller owns neither (inode(7): [`VfsError::Perm`]). Conditions that cannot be checked in advance
    /// are left to the volume.
    pub async fn check_removal(&self, dir: &NodeRef, cred: &Cred, node: &NodeRef) -> VfsResult<()> {
        const STICKY: u32 = 0o1000;
        let is_granted = |grant: &&Grant| {
            let is_of = |node: &NodeRef| grant.is_about(node.id());
            (is_of(dir) || is_of(node)) && grant.rights() & (mask::DELETE | mask::DELETE_CHILD) != 0
        };
        if self.grants.iter().flatten().any(is_granted) {
            return Ok(());
        }
        let (Ok(here), Ok(attr)) = (dir.getattr().await, node.getattr().await) else {
            return Ok(());
        };
        let Ok(own) = Grant::decide(node, &attr, cred).await else { return Ok(()) };
        if own.is_some_and(|own| own.rights() & mask::DELETE != 0) {
            return Ok(());
        }
        let by_dir = dir.access(cred, Access(Access::DELETE), &here).await;
        if by_dir.is_ok_and(|granted| granted.0 & Access::DELETE == 0) {
            return Err(VfsError::Access);
        }
        let is_owner = [0, here.uid, attr.uid].contains(&cred.uid);
        if here.mode & STICKY != 0 && !is_owner { Err(VfsError::Perm) } else { Ok(()) }
    }

    /// Adds the grants of an open and of a folder. Each applies only to its node.
    #[must_use]
    pub fn granted(mut self, open: Option<&'a Grant>, folder: Option<&'a Grant>) -> Self {
        self.grants = [open, folder, None, None];
        self
    }

    /// Adds the grant of the folder from which a name is moved.
    #[must_use]
    pub fn leaving(mut self, folder: Option<&'a Grant>) -> Self {
        self.grants[2] = folder;
        self
    }

    /// Adds the grant of the file whose name is replaced.
    #[must_use]
    pub fn replacing(mut self, victim: Option<&'a Grant>) -> Self {
        self.grants[3] = victim;
        self
    }

    /// Sets the caller whose open was checked, so that storage is charged to that caller.
    #[must_use]
    pub fn opened_by(mut self, opener: &'a Cred) -> Self {
        self.opener = Some(opener);
        self
    }

    /// Returns the caller, with powers for one change of names.
    pub(crate) fn acting<'c>(&self, cred: &'c Cred, rights: u32) -> Acting<'c> {
        Acting::with(cred, self.grants.map(|grant| grant.and_then(|g| g.power(rights))))
    }

    /// Returns the credentials for one call on this node.
    pub(crate) fn actor<'c>(&self, node: &NodeRef, cred: &'c Cred, right: u32) -> Actor<'c> {
        let [open, ..] = self.grants;
        Actor::on(node.as_ref(), cred, open, right)
    }

    /// Returns true if the caller, or the open, may set any times on the node. Other callers with write access can only set the
    /// times to now, also by indirect ways.
    pub async fn may_date(&self, node: &NodeRef, attr: &Attr, cred: &Cred) -> VfsResult<bool> {
        match self.actor(node, cred, mask::WRITE_ATTRIBUTES) {
            Actor::Process(..) => Ok(true),
            Actor::Caller(cred) => node.may_date(cred, attr).await,
        }
    }

    /// Returns the credentials for setting attributes: an open with the right to write attributes sets times. All other attributes
    /// need the caller's own right.
    pub(crate) fn setting<'c>(&self, node: &NodeRef, cred: &'c Cred, set: &SetAttr) -> Actor<'c> {
        let others = SetAttr { atime: None, mtime: None, ..*set };
        if others == SetAttr::default() {
            self.actor(node, cred, mask::WRITE_ATTRIBUTES)
        } else {
            Actor::Caller(cred)
        }
    }
}

/// A range that no lock covers.
const NO_LOCK: Range = Range { first: u64::MAX, last: u64::MAX };

/// No holder returns rights, and no caller waits, for an operation that the volume would refuse. Callers are checked here only
/// while a holder would have to return rights; otherwise the operation checks them, once.
impl<'a> FileOps<'a> {
    /// Like `FileOps::check_conflicts`, for an operation that this caller is about to do. If no caller is given, permission was
    /// checked when the node was opened.
    pub(crate) async fn check_judged(
        &self,
        node: &NodeRef,
        (cred, intent): (Option<&Cred>, Intent<'_>),
        op: Operation,
        range: Range,
    ) -> VfsResult<()> {
        if self.arbiter.passes(node.id(), self.requester, op, range) {
            return Ok(());
        }
        if let Some(cred) = cred {
            node.may(cred, intent).await?;
        }
        self.check_conflicts(node, op, range).await
    }

    /// Called before a caller without an open learns of a file's size or holes other than by [`FileOps::read`].
    pub async fn check_look(&self, node: &NodeRef, cred: &Cred) -> VfsResult<()> {
        self.check_judged(node, (Some(cred), Intent::Read), Operation::Read, NO_LOCK).await
    }

    /// Called before a file is replaced if it is empty: a holder may have data that it has not written yet.
    pub async fn check_unwritten(&self, node: &NodeRef) -> VfsResult<()> {
        self.check_conflicts(node, Operation::Read, NO_LOCK).await
    }

    /// Called before a create truncates an existing file. An empty file needs no truncation and no right for it: a holder that may
    /// have extended the file must return rights only for callers with write permission.
    pub(crate) async fn check_cut(
        &self,
        node: &NodeRef,
        cred: &Cred,
        attr: &Attr,
    ) -> VfsResult<()> {
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        let by = (Some(cred), Intent::Set { set: &set, open_write: false });
        match self.check_judged(node, by, Operation::Write, Range::ALL).await {
            Err(VfsError::Access | VfsError::Perm) if attr.size == 0 => Ok(()),
            other => other,
        }
    }

    /// Called before a node gets another or a further name in this directory.
    pub async fn check_named(&self, node: &NodeRef, dir: &NodeRef, cred: &Cred) -> VfsResult<()> {
        if self.arbiter.passes(node.id(), self.requester, Operation::Names, Range::ALL) {
            return Ok(());
        }
        self.check_adding(dir, cred, node.kind()).await?;
        self.check_conflicts(node, Operation::Names, Range::ALL).await
    }

    /// Called before another node takes the name of this one in this directory.
    pub async fn check_replaced(
        &self,
        node: &NodeRef,
        dir: &NodeRef,
        cred: &Cred,
    ) -> VfsResult<()> {
        if self.arbiter.passes(node.id(), self.requester, Operation::Names, Range::ALL) {
            return Ok(());
        }
        self.check_removal(dir, cred, node).await?;
        self.check_conflicts(node, Operation::Names, Range::ALL).await
    }

    /// Called before a name is added to a directory: NFS clients with a delegation of it return that, and no client gets a new one
    /// while the result lives. The operation itself reports that the name exists.
    pub(crate) async fn check_added(
        &self,
        dir: &NodeRef,
        cred: &Cred,
        name: &[u8],
        kind: Kind,
    ) -> VfsResult<Writing<'a>> {
        let announced = self.arbiter.state().writing(dir.id());
        if self.arbiter.passes(dir.id(), self.requester, Operation::Entries, Range::ALL) {
            return Ok(announced);
        }
        if let Err(why) = self.check_adding(dir, cred, kind).await {
            let is_taken = dir.lookup(cred, name).await.is_ok();
            return if is_taken { Ok(announced) } else { Err(why) };
        }
        self.check_conflicts(dir, Operation::Entries, Range::ALL).await?;
        Ok(announced)
    }

    /// Like [`Self::check_added`], before a name is removed. The operation itself reports a missing name.
    pub(crate) async fn check_taken(
        &self,
        dir: &NodeRef,
        cred: &Cred,
        name: &[u8],
    ) -> VfsResult<Writing<'a>> {
        let announced = self.arbiter.state().writing(dir.id());
        if self.arbiter.passes(dir.id(), self.requester, Operation::Entries, Range::ALL) {
            return Ok(announced);
        }
        match self.node_to_remove(dir, cred, name).await {
            Some(node) => self.check_removal(dir, cred, &node).await?,
            None => {
                let here = dir.getattr().await?;
                let may = dir.access(cred, Access(Access::DELETE), &here).await?;
                if may.0 & Access::DELETE == 0 {
                    return Ok(announced);
                }
            }
        }
        self.check_conflicts(dir, Operation::Entries, Range::ALL).await?;
        Ok(announced)
    }

    /// Like [`Self::check_added`], before a name is moved from another directory into this one.
    pub(crate) async fn check_arriving(
        &self,
        (from_dir, from): (&NodeRef, &[u8]),
        dir: &NodeRef,
        cred: &Cred,
    ) -> VfsResult<Writing<'a>> {
        let announced = self.arbiter.state().writing(dir.id());
        if self.arbiter.passes(dir.id(), self.requester, Operation::Entries, Range::ALL) {
            return Ok(announced);
        }
        if let Some(node) = self.node_to_remove(from_dir, cred, from).await {
            self.check_adding(dir, cred, node.kind()).await?;
        }
        self.check_conflicts(dir, Operation::Entries, Range::ALL).await?;
        Ok(announced)
    }

    /// Refuses an addition that the volume would refuse as well: a node of this kind in a directory where neither a grant nor the
    /// directory's list or mode allows the caller to add it.
    pub async fn check_adding(&self, dir: &NodeRef, cred: &Cred, kind: Kind) -> VfsResult<()> {
        let rights = perm::adding(kind).rights & !mask::EXECUTE;
        if self.acting(cred, rights).has(dir.id(), rights) {
            return Ok(());
        }
        dir.may(cred, Intent::Add(kind)).await
    }
}
