//! Rights that an access control list has granted, from the decision to the one call that uses them.
//!
//! *Operation.* Every operation runs with the credentials of its caller. Where a file's own list grants a right that the kernel
//! knows nothing of, the decision about that file gives a [`Grant`], which an open keeps. For one call it gives a [`Power`]: of one
//! node, consumed by the call. No code turns a caller into the superuser for a whole operation.
//!
//! *Errors.* Those of reading a list.

use crate::acl::{Owner, mask};
use crate::backend::{Made, Node, NodeRef};
use crate::error::VfsResult;
use crate::types::{Attr, Cred, Kind, NodeId};

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

    /// It is about this node.
    pub(crate) fn is_about(&self, node: NodeId) -> bool {
        self.node == node
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

/// The name still is that node's.
pub(crate) async fn still_has(dir: &NodeRef, name: &[u8], made: &Made) -> bool {
    // The process looks; whoever makes names in a folder need not be allowed to look them up.
    let there = dir.lookup(&Cred::root(), name).await;
    made.created && there.is_ok_and(|(node, _)| node.id() == made.node.id())
}
