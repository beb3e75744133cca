//! The decisions that give grants, and the calls that use them.
//!
//! *Errors.* Those of reading a list.

use super::{Acting, Actor, Grant};
use crate::acl::{Owner, mask};
use crate::backend::{Made, Node, NodeRef};
use crate::error::VfsResult;
use crate::types::{Attr, Cred, Kind};

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
