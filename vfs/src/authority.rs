//! Rights that an access control list has granted, from the decision to the one call that uses them.
//!
//! *Operation.* Every operation runs with the credentials of its caller. Where a file's own list grants a right that the kernel
//! knows nothing of, the decision about that file gives a [`Grant`], which an open keeps. For one call it gives a [`Power`]: of one
//! node, consumed by the call. No code turns a caller into the superuser for a whole operation.

mod grants;

use crate::types::{Cred, NodeId};

pub(crate) use grants::{still_has, unmake};

/// What the list of one node grants one caller. Decided once, for as long as an open lasts.
#[derive(Debug)]
pub struct Grant {
    node: NodeId,
    rights: u32,
}

impl Grant {
    /// It is about this node.
    pub(crate) fn is_about(&self, node: NodeId) -> bool {
        self.node == node
    }

    /// The rights: bits of [`mask`](crate::acl::mask).
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
