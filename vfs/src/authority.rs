//! Rights that an access control list has granted, from the decision to the one call that uses them.
//!
//! *Operation.* Every operation runs with the credentials of its caller. Where a file's own list grants a right that the kernel
//! knows nothing of, the decision about that file gives a [`Grant`], which an open keeps. For one call it gives a [`Power`]: of one
//! node, consumed by the call. No code turns a caller into the superuser for a whole operation.
//!
//! *Errors.* Those of reading a list.

use state::{Operation, Range, Writing};

use crate::acl::{Owner, mask};
use crate::backend::{Made, Node, NodeRef};
use crate::error::{VfsError, VfsResult};
use crate::namespace::{FileOps, Share};
use crate::perm;
use crate::types::{Access, Attr, Cred, Intent, Kind, NodeId, SetAttr};

/// What the list of one node grants one caller. Decided once, for as long as an open lasts.
#[derive(Debug)]
pub struct Grant {
    node: NodeId,
    rights: u32,
}

impl Grant {
    /// Asks the list that is kept with this node; `None` where there is none, so that the kernel judges each call. `attr` was just
    /// seen.
    pub async fn decide(node: &NodeRef, attr: &Attr, cred: &Cred) -> VfsResult<Option<Self>> {
        let acl = node.acl(attr).await?;
        Ok(acl.map(|acl| Self { node: node.id(), rights: acl.allowed(cred, Owner::of(attr)) }))
    }

    /// What an open of something new has: its maker gets what it asks for. `None` for a node that was found.
    pub fn of_maker(made: &Made, access: u32) -> Option<Self> {
        made.created.then(|| Self { node: made.node.id(), rights: access & mask::FILE_ALL })
    }

    /// Of an open that was given DELETE of this file, by the file's own list or by the folder in which it lay then: to carry out
    /// the delete that its client was told is done, wherever another has moved the file (MS-FSA section 2.1.5.5).
    pub fn of_deleter(node: &NodeRef, access: u32) -> Option<Self> {
        let rights = access & mask::DELETE;
        (rights != 0).then(|| Self { node: node.id(), rights })
    }

    /// What the configuration grants in a share of homes, for the one call that makes the folder of a user: a folder in its top.
    pub(crate) fn of_homes(top: &NodeRef) -> Self {
        Self { node: top.id(), rights: mask::APPEND_DATA }
    }

    /// The rights that an earlier run of the program granted this caller, as its record says. `None` where the node keeps no list.
    /// The record does not tell whether the node's own list gave DELETE or its folder: only the list counts, as it is now.
    pub async fn recorded(
        node: &NodeRef,
        attr: &Attr,
        cred: &Cred,
        access: u32,
    ) -> VfsResult<Option<Self>> {
        let acl = node.acl(attr).await?;
        Ok(acl.map(|acl| {
            let now = acl.allowed(cred, Owner::of(attr));
            let rights = access & mask::FILE_ALL & (now | !mask::DELETE);
            Self { node: node.id(), rights }
        }))
    }

    /// The rights: bits of [`mask`].
    pub fn rights(&self) -> u32 {
        self.rights
    }

    /// Of these rights alone.
    #[must_use]
    pub fn limited(self, to: u32) -> Self {
        Self { rights: self.rights & to, ..self }
    }

    /// Those of `rights` that were granted, for one call.
    pub fn power(&self, rights: u32) -> Option<Power> {
        let rights = self.rights & rights;
        (rights != 0).then_some(Power { node: self.node, rights })
    }
}

/// Rights to one node for one call. It can be neither copied nor made but by a [`Grant`].
#[derive(Debug)]
pub struct Power {
    node: NodeId,
    rights: u32,
}

/// Who makes one change of names, and what helps.
#[derive(Debug)]
pub struct Acting<'a> {
    /// The caller.
    pub cred: &'a Cred,
    powers: Powers,
}

/// Rights for one change of names: to the node that has the name, to the folder of a name that comes, and to that of one that goes.
pub type Powers = [Option<Power>; 3];

impl<'a> Acting<'a> {
    /// A caller with its own rights.
    pub fn caller(cred: &'a Cred) -> Self {
        Self { cred, powers: Powers::default() }
    }

    /// With further rights, each to its own node.
    pub fn with(cred: &'a Cred, powers: Powers) -> Self {
        Self { cred, powers }
    }

    pub(crate) fn into_parts(self) -> (&'a Cred, Powers) {
        (self.cred, self.powers)
    }

    /// Has all of these rights to this node.
    pub(crate) fn has(&self, node: NodeId, rights: u32) -> bool {
        let of = |p: &Power| p.node == node && p.rights & rights == rights;
        self.powers.iter().flatten().any(of)
    }

    /// Has some right to some node beside the caller's own.
    pub(crate) fn is_helped(&self) -> bool {
        self.powers.iter().any(Option::is_some)
    }
}

/// As whom one call is made that reaches its node by the node itself and by no name.
#[derive(Debug)]
pub enum Actor<'a> {
    /// As the caller, judged by the node.
    Caller(&'a Cred),
    /// As the process, by this right.
    Process(Power, Cred),
}

impl<'a> Actor<'a> {
    /// As the process where this grant is about this node and has this right.
    pub fn on(node: &dyn Node, cred: &'a Cred, grant: Option<&Grant>, right: u32) -> Self {
        let power = grant.filter(|g| g.node == node.id()).and_then(|g| g.power(right));
        match power {
            Some(power) if power.rights == right => Self::by(power),
            _ => Self::Caller(cred),
        }
    }

    /// As the process, by a right that a decision gave for this call.
    pub fn by(power: Power) -> Self {
        Self::Process(power, Cred::root())
    }

    /// For the call.
    pub fn cred(&self) -> &Cred {
        match self {
            Self::Caller(cred) => cred,
            Self::Process(_, process) => process,
        }
    }
}

/// Takes back what the caller made a moment ago, if the name still is that one's. What cannot be taken back stays: nobody is left
/// to be told.
pub(crate) async fn unmake(dir: &NodeRef, cred: &Cred, name: &[u8], made: &Made) {
    if still_has(dir, name, made).await {
        let maker = Grant::of_maker(made, mask::DELETE).and_then(|grant| grant.power(mask::DELETE));
        let is_dir = made.attr.kind == Kind::Dir;
        let _ = dir.remove(Acting::with(cred, [maker, None, None]), name, is_dir).await;
    }
}

async fn still_has(dir: &NodeRef, name: &[u8], made: &Made) -> bool {
    // The process looks; whoever makes names in a folder need not be allowed to look them up.
    let there = dir.lookup(&Cred::root(), name).await;
    made.created && there.is_ok_and(|(node, _)| node.id() == made.node.id())
}

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
        self.grants.iter().flatten().any(|grant| grant.node == node.id()).then_some(node)
    }

    /// Refuses what the volume would refuse as well: to take a name of this node out of a directory where neither a grant, nor the
    /// node's own list, nor the list or mode of the directory lets the caller ([`VfsError::Access`]), or where that is sticky and
    /// the caller owns neither (inode(7): [`VfsError::Perm`]). What cannot be found out beforehand is left to the volume.
    pub(crate) async fn check_removal(
        &self,
        dir: &NodeRef,
        cred: &Cred,
        node: &NodeRef,
    ) -> VfsResult<()> {
        const STICKY: u32 = 0o1000;
        let is_granted = |grant: &&Grant| {
            let is_of = |node: &NodeRef| grant.node == node.id();
            (is_of(dir) || is_of(node)) && grant.rights & (mask::DELETE | mask::DELETE_CHILD) != 0
        };
        if self.grants.iter().flatten().any(is_granted) {
            return Ok(());
        }
        let (Ok(here), Ok(attr)) = (dir.getattr().await, node.getattr().await) else {
            return Ok(());
        };
        let Ok(own) = Grant::decide(node, &attr, cred).await else { return Ok(()) };
        if own.is_some_and(|own| own.rights & mask::DELETE != 0) {
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
    pub(crate) async fn check_adding(
        &self,
        dir: &NodeRef,
        cred: &Cred,
        kind: Kind,
    ) -> VfsResult<()> {
        let rights = perm::adding(kind).rights & !mask::EXECUTE;
        if self.acting(cred, rights).has(dir.id(), rights) {
            return Ok(());
        }
        dir.may(cred, Intent::Add(kind)).await
    }
}
