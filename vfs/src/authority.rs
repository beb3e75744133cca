//! Rights that an access control list has granted, from the decision to the one call that uses them.
//!
//! *Operation.* Every operation runs with the credentials of its caller. Where a file's own list grants a right that the kernel
//! does not know of, the decision about that file yields a [`Grant`], which an open keeps. For one call the grant yields a
//! [`Power`]: a right to one node, consumed by the call. No code turns a caller into the superuser for a whole operation.

mod grants;

use crate::types::{Attr, Cred, NodeId};

pub(crate) use grants::{still_has, unmake};

/// The rights that the list of one node grants one caller. Decided once, for the lifetime of an open.
#[derive(Debug)]
pub struct Grant {
    node: NodeId,
    rights: u32,
}

impl Grant {
    /// Returns true if the grant is for this node.
    pub(crate) fn is_about(&self, node: NodeId) -> bool {
        self.node == node
    }

    /// Returns the rights: bits of [`mask`](crate::acl::mask).
    pub fn rights(&self) -> u32 {
        self.rights
    }

    /// Limits the grant to these rights.
    #[must_use]
    pub fn limited(self, to: u32) -> Self {
        Self { rights: self.rights & to, ..self }
    }

    /// Returns the granted part of `rights`, for one call.
    pub fn power(&self, rights: u32) -> Option<Power> {
        let rights = self.rights & rights;
        (rights != 0).then_some(Power { node: self.node, rights })
    }
}

/// Rights to one node for one call. It cannot be copied, and only a [`Grant`] makes it.
#[derive(Debug)]
pub struct Power {
    node: NodeId,
    rights: u32,
}

/// The caller of one change of names, with additional powers.
#[derive(Debug)]
pub struct Acting<'a> {
    /// The caller whose own rights count.
    pub cred: &'a Cred,
    powers: Powers,
    folder: Option<FolderSeen>,
}

/// What a request has read of the directory just before it makes a node there, so that the backend need not ask again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FolderSeen {
    /// `None`: the backend reads them just before the call, because an index of names must learn of each change in between.
    pub(crate) attr: Option<Attr>,
    /// True if the directory has a stored list.
    pub(crate) is_listed: bool,
}

/// Rights for one change of names: to the node that has the name, to the folder where a name is added, to the folder where a
/// name is removed, and to the file that is replaced.
pub type Powers = [Option<Power>; 4];

impl<'a> Acting<'a> {
    /// Acts with the caller's own rights.
    pub fn caller(cred: &'a Cred) -> Self {
        Self { cred, powers: Powers::default(), folder: None }
    }

    /// Acts with further rights, each to its own node.
    pub fn with(cred: &'a Cred, powers: Powers) -> Self {
        Self { cred, powers, folder: None }
    }

    /// Adds what was just read of the directory in which the call makes a node. A backend that waits before the call reads it
    /// again.
    pub(crate) fn having_seen(self, folder: FolderSeen) -> Self {
        Self { folder: Some(folder), ..self }
    }

    /// Returns what the request has just read of the directory.
    pub(crate) fn folder(&self) -> Option<FolderSeen> {
        self.folder
    }

    pub(crate) fn into_parts(self) -> (&'a Cred, Powers) {
        (self.cred, self.powers)
    }

    /// Returns true if it has all of these rights to this node.
    pub(crate) fn has(&self, node: NodeId, rights: u32) -> bool {
        let of = |p: &Power| p.node == node && p.rights & rights == rights;
        self.powers.iter().flatten().any(of)
    }

    /// Returns true if a grant adds rights to the caller's own.
    pub(crate) fn is_helped(&self) -> bool {
        self.powers.iter().any(Option::is_some)
    }
}

/// The credentials for one call that reaches its node directly and by no name.
#[derive(Debug)]
pub enum Actor<'a> {
    /// Acts as the caller; the node checks permission.
    Caller(&'a Cred),
    /// Acts as the process, by this right.
    Process(Power, Cred),
}

impl<'a> Actor<'a> {
    /// Acts as the process, by a right that a decision granted for this call.
    pub fn by(power: Power) -> Self {
        Self::Process(power, Cred::root())
    }

    /// Returns the credentials for the call.
    pub fn cred(&self) -> &Cred {
        match self {
            Self::Caller(cred) => cred,
            Self::Process(_, process) => process,
        }
    }
}
