//! What `FileOps` finds out before anybody has to give something back: nobody does for what the volume would refuse.
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
    /// Takes back what the caller made a moment ago and others have been told of, and nothing that has come under its name since.
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

    /// The same with the grants of another, which may end sooner.
    fn granted_to<'b>(self, open: Option<&'b Grant>) -> FileOps<'b>
    where
        'a: 'b,
    {
        let file_ops: FileOps<'b> = self;
        file_ops.granted(open, None)
    }

    /// The node of a name that is to go: one that the caller finds, or that one of its grants is about.
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

    /// Refuses what the volume would refuse as well: to take a name of this node out of a directory where neither a grant, nor the
    /// node's own list, nor the list or mode of the directory lets the caller ([`VfsError::Access`]), or where that is sticky and
    /// the caller owns neither (inode(7): [`VfsError::Perm`]). What cannot be found out beforehand is left to the volume.
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

    /// With what the lists of an open, and of a folder, have granted. Each helps with its own node alone.
    #[must_use]
    pub fn granted(mut self, open: Option<&'a Grant>, folder: Option<&'a Grant>) -> Self {
        self.grants = [open, folder, None];
        self
    }

    /// With what the list of the folder has granted out of which a name is moved.
    #[must_use]
    pub fn leaving(mut self, folder: Option<&'a Grant>) -> Self {
        self.grants[2] = folder;
        self
    }

    /// For an open of this caller, which was judged when it was opened: as it storage is taken.
    #[must_use]
    pub fn opened_by(mut self, opener: &'a Cred) -> Self {
        self.opener = Some(opener);
        self
    }

    /// The caller, with powers for one change of names.
    pub(crate) fn acting<'c>(&self, cred: &'c Cred, rights: u32) -> Acting<'c> {
        Acting::with(cred, self.grants.map(|grant| grant.and_then(|g| g.power(rights))))
    }

    /// As whom one call on this node is made.
    pub(crate) fn actor<'c>(&self, node: &NodeRef, cred: &'c Cred, right: u32) -> Actor<'c> {
        let [open, ..] = self.grants;
        Actor::on(node.as_ref(), cred, open, right)
    }

    /// The caller, or the open, may give the node whatever times it likes. Others who may write set them to now at most, and get
    /// no other times by a way round.
    pub async fn may_date(&self, node: &NodeRef, attr: &Attr, cred: &Cred) -> VfsResult<bool> {
        match self.actor(node, cred, mask::WRITE_ATTRIBUTES) {
            Actor::Process(..) => Ok(true),
            Actor::Caller(cred) => node.may_date(cred, attr).await,
        }
    }

    /// As whom attributes are set: an open that may write attributes sets times. All else is the caller's own to set.
    pub(crate) fn setting<'c>(&self, node: &NodeRef, cred: &'c Cred, set: &SetAttr) -> Actor<'c> {
        let others = SetAttr { atime: None, mtime: None, ..*set };
        if others == SetAttr::default() {
            self.actor(node, cred, mask::WRITE_ATTRIBUTES)
        } else {
            Actor::Caller(cred)
        }
    }
}

/// Where no lock is.
const NO_LOCK: Range = Range { first: u64::MAX, last: u64::MAX };

/// Nobody gives anything back, or is waited for, for what the volume would refuse. Callers are judged here only while somebody
/// would have to: else the operation judges them, once.
impl<'a> FileOps<'a> {
    /// As `FileOps::check_conflicts`, for what this caller is about to do. Without one it was judged when it opened the node.
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

    /// Before somebody who has no open looks at a file by other ways than [`FileOps::read`]: at its size, at its holes.
    pub async fn check_look(&self, node: &NodeRef, cred: &Cred) -> VfsResult<()> {
        self.check_judged(node, (Some(cred), Intent::Read), Operation::Read, NO_LOCK).await
    }

    /// Before a file that was found is cut by a create. An empty one is not cut, and takes no right for that: whoever may have made
    /// it longer is asked only for those who may write.
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

    /// Before a node gets a name in this directory, another one or a further one.
    pub async fn check_named(&self, node: &NodeRef, dir: &NodeRef, cred: &Cred) -> VfsResult<()> {
        if self.arbiter.passes(node.id(), self.requester, Operation::Names, Range::ALL) {
            return Ok(());
        }
        self.check_adding(dir, cred, node.kind()).await?;
        self.check_conflicts(node, Operation::Names, Range::ALL).await
    }

    /// Before another node takes the name of this one, in this directory.
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

    /// Before a name comes into a directory: clients of NFS to whom it is delegated give that back, and none gets it anew while the
    /// answer lives. Of a name that is taken the operation says so.
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

    /// The same, before a name is taken away. Where there is none the operation says so.
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

    /// The same, before a name of another directory comes into this one.
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

    /// Refuses what the volume would refuse as well: to add a node of this kind to a directory where neither a grant nor its list
    /// or mode lets the caller.
    pub async fn check_adding(&self, dir: &NodeRef, cred: &Cred, kind: Kind) -> VfsResult<()> {
        let rights = perm::adding(kind).rights & !mask::EXECUTE;
        if self.acting(cred, rights).has(dir.id(), rights) {
            return Ok(());
        }
        dir.may(cred, Intent::Add(kind)).await
    }
}
