//! Access control lists at the door: what is set, and what something new inherits.
//!
//! *Operation.* Backends judge callers by the list of each node. Here is what takes two nodes, or somebody who watches: something
//! new gets what its directory passes on (RFC 8881 section 6.4.3), whoever makes it and by whatever protocol; mode bits that came
//! with it take away from that and give nothing.
//!
//! *Errors.* Something new that cannot be given its list is not made: it would be open to others than the directory says.

use std::sync::Arc;

use crate::acl::{Acl, Owner, posix};
use crate::backend::{Made, NodeRef};
use crate::error::VfsResult;
use crate::namespace::{Door, Share};
use crate::types::*;
use crate::watch::what;

/// What a directory passes on.
pub(crate) struct Heritage(Option<Arc<Acl>>);

/// Looks at the list of a directory in which something is about to be made.
pub(crate) async fn heritage(dir: &NodeRef) -> VfsResult<Heritage> {
    let attr = dir.getattr().await?;
    let acl = dir.acl(&attr).await?;
    // Whether a file or a directory is asked about makes no difference to whether there is anything.
    let owner = Owner::of(&attr);
    let passes =
        |acl: &Arc<Acl>| acl.inherited(true, owner).or(acl.inherited(false, owner)).is_some();
    Ok(Heritage(acl.filter(passes)))
}

impl Heritage {
    /// The attributes that something new is made with.
    pub(crate) fn masked(&self, mut set: SetAttr) -> SetAttr {
        let umask = std::mem::take(&mut set.umask) & 0o777;
        if self.0.is_none() {
            set.mode = set.mode.map(|mode| mode & !umask);
        }
        set
    }

    /// Gives it what it inherits. `mode`: what its maker said.
    pub(crate) async fn give(&self, made: &mut Made, mode: Option<u32>) -> VfsResult<()> {
        let is_dir = match made.attr.kind {
            Kind::Dir => true,
            Kind::File => false,
            _ => return Ok(()),
        };
        let owner = Owner::of(&made.attr);
        let inherited = self.0.as_ref().and_then(|acl| acl.inherited(is_dir, owner));
        let Some(acl) = inherited else { return Ok(()) };
        let (acl, mode) = acl.limited(mode.unwrap_or(0o777), owner, is_dir);
        made.node.acl_set(&acl, mode).await?;
        made.attr = made.node.getattr().await?;
        Ok(())
    }

    /// As [`Heritage::give`], for a file that is to stand in the directory.
    pub(crate) async fn give_to(&self, node: &NodeRef, attr: &Attr, mode: u32) -> VfsResult<()> {
        let (set, owner) = (SetAttr { mode: Some(mode), ..SetAttr::default() }, Owner::of(attr));
        node.setattr(&Cred::root(), set, false).await?;
        let Some(acl) = self.0.as_ref().and_then(|acl| acl.inherited(false, owner)) else {
            return Ok(());
        };
        let (acl, mode) = acl.limited(mode, owner, false);
        node.acl_set(&acl, mode).await
    }
}

impl Door<'_> {
    /// Keeps a list with a node, and with it the mode bits that stand for it. The caller's right to do so was checked.
    pub async fn acl_set(
        &self,
        share: &Share,
        node: &NodeRef,
        acl: &Acl,
        mode: u32,
    ) -> VfsResult<()> {
        self.writable(share)?;
        self.before_attributes(node).await?;
        node.acl_set(acl, mode).await?;
        self.watches.post_node(share.id, node, what::SECURITY).await;
        self.make_durable(share, &[node]).await
    }

    /// As [`Door::acl_set`], for a caller who must have the right to: the one to change the mode.
    pub async fn acl_change(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
        acl: &Acl,
    ) -> VfsResult<()> {
        let attr = self.may_set_list(share, node, cred).await?;
        self.acl_set(share, node, acl, acl.mode(Owner::of(&attr))).await
    }

    /// Gives a node lists of the host's own, for a caller who must have the right to.
    pub async fn posix_change(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
        change: &posix::Change,
    ) -> VfsResult<()> {
        self.may_set_list(share, node, cred).await?;
        self.before_attributes(node).await?;
        node.posix_set(change).await?;
        self.watches.post_node(share.id, node, what::SECURITY).await;
        self.make_durable(share, &[node]).await
    }

    /// What is in the way of a new mode is in the way of a new list: ownership, or the right by the list that there is.
    async fn may_set_list(&self, share: &Share, node: &NodeRef, cred: &Cred) -> VfsResult<Attr> {
        let attr = node.getattr().await?;
        let set = SetAttr { mode: Some(attr.mode), ..SetAttr::default() };
        self.setattr(share, node, cred, set, false).await?;
        Ok(attr)
    }
}
