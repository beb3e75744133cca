//! The decisions that yield grants, and the calls that use them.
//!
//! *Errors.* Those of reading a list.

use super::{Acting, Actor, Grant};
use crate::acl::{Acl, Owner, mask};
use crate::backend::{Made, Node, NodeRef};
use crate::error::VfsResult;
use crate::types::{Attr, Cred, Kind};

impl Grant {
    /// Evaluates the list stored with this node; `None` if it has none, so that the kernel checks each call. `attr` was just read.
    pub async fn decide(node: &NodeRef, attr: &Attr, cred: &Cred) -> VfsResult<Option<Self>> {
        match node.acl(attr).await? {
            None => Ok(None),
            Some(acl) => Self::by_list(node, (&acl, attr), cred).await.map(Some),
        }
    }

    /// Evaluates the list of this node, which was read just before with these attributes.
    pub async fn by_list(
        node: &NodeRef,
        (acl, attr): (&Acl, &Attr),
        cred: &Cred,
    ) -> VfsResult<Self> {
        let rights = acl.allowed(cred, Owner::of(attr)) & node.bounds(cred).await?;
        Ok(Self { node: node.id(), rights })
    }

    /// Returns the grant for an open of a new file: the creator gets the access that it asks for. `None` for a file that existed.
    pub fn of_maker(made: &Made, access: u32) -> Option<Self> {
        made.created.then(|| Self { node: made.node.id(), rights: access & mask::FILE_ALL })
    }

    /// Returns the grant for an open that got DELETE on this file, from the file's own list or from its folder at that time. It
    /// allows the gateway to carry out a delete already confirmed to the client, wherever the file was moved since (MS-FSA section
    /// 2.1.5.5).
    pub fn of_deleter(node: &NodeRef, access: u32) -> Option<Self> {
        let rights = access & mask::DELETE;
        (rights != 0).then(|| Self { node: node.id(), rights })
    }

    /// Returns the grant of an open whose user has used a privilege for these rights, in addition to those by the list. The caller
    /// has checked the privilege.
    pub fn of_privilege(node: &NodeRef, by_list: Option<Self>, rights: u32) -> Option<Self> {
        match by_list {
            own if rights == 0 => own,
            Some(own) => Some(Self { rights: own.rights | rights & mask::FILE_ALL, ..own }),
            None => Some(Self { node: node.id(), rights: rights & mask::FILE_ALL }),
        }
    }

    /// Returns the grant of the configuration for a share of home folders: to create the folder of a user in its top folder, by one
    /// call.
    pub(crate) fn of_homes(top: &NodeRef) -> Self {
        Self { node: top.id(), rights: mask::APPEND_DATA }
    }

    /// Returns the rights that an earlier run of the program granted this caller, according to its record. `None` if the node has
    /// no list. The record does not tell whether DELETE came from the node's own list or from its folder: only the current list
    /// counts.
    pub async fn recorded(
        node: &NodeRef,
        attr: &Attr,
        cred: &Cred,
        access: u32,
    ) -> VfsResult<Option<Self>> {
        let Some(acl) = node.acl(attr).await? else { return Ok(None) };
        let now = acl.allowed(cred, Owner::of(attr));
        let rights = access & mask::FILE_ALL & (now | !mask::DELETE) & node.bounds(cred).await?;
        Ok(Some(Self { node: node.id(), rights }))
    }
}

impl<'a> Actor<'a> {
    /// Acts as the process if this grant is for this node and includes this right.
    pub fn on(node: &dyn Node, cred: &'a Cred, grant: Option<&Grant>, right: u32) -> Self {
        let power = grant.filter(|g| g.node == node.id()).and_then(|g| g.power(right));
        match power {
            Some(power) if power.rights == right => Self::by(power),
            _ => Self::Caller(cred),
        }
    }
}

/// Removes a node that the caller just created, if the name still belongs to that node. A failure is ignored, because no caller is
/// left to report it to.
pub(crate) async fn unmake(dir: &NodeRef, cred: &Cred, name: &[u8], made: &Made) {
    if still_has(dir, name, made).await {
        let maker = Grant::of_maker(made, mask::DELETE).and_then(|grant| grant.power(mask::DELETE));
        let is_dir = made.attr.kind == Kind::Dir;
        let _ = dir.remove(Acting::with(cred, [maker, None, None, None]), name, is_dir).await;
    }
}

/// Returns true if the name still belongs to that node.
pub(crate) async fn still_has(dir: &NodeRef, name: &[u8], made: &Made) -> bool {
    // The process looks the name up, because a user who may create names in a folder need not be allowed to look them up.
    let there = dir.lookup(&Cred::root(), name).await;
    made.created && there.is_ok_and(|(node, _)| node.id() == made.node.id())
}
