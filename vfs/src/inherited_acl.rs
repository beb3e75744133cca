//! Chooses the access control list of a new node: the inherited one (RFC 8881 section 6.4.3), or the one from its creator.
//!
//! *Errors.* Those of reading and of storing a list, and [`VfsError::Access`] for a list that the gateway could not enforce.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::acl::{Acl, Owner};
use crate::authority::FolderSeen;
use crate::backend::{BoxFuture, Made, NodeRef};
use crate::error::{VfsError, VfsResult};
use crate::share::Share;
use crate::types::*;

/// The source of a new node's access control list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListOfNew {
    /// The list inherited from its directory, if any.
    #[default]
    Inherited,
    /// The list inherited from its directory, or else the one from its creator.
    InheritedOrGiven,
    /// The list from its creator, whatever its directory passes on.
    Given,
}

/// The list for new nodes in one directory.
pub(crate) struct InheritedAcl {
    /// The directory's list, if a file or a directory inherits from it.
    passed: Option<Arc<Acl>>,
    /// The directory's attributes, read just before.
    folder: Attr,
    /// True if the directory has a list.
    is_listed: bool,
    /// The host gives new files here a default list; not checked where no umask would count.
    has_default: bool,
    list: ListOfNew,
}

/// Returns the owner's bits of a mode. A file with group execute loses the set-group-ID bit as well: Linux decides by both bits
/// together whether the creator may set it (`mode_strip_sgid`), and the bit for the group is added later.
fn closed(mode: u32, kind: Kind) -> u32 {
    let as_group = kind != Kind::Dir && mode & 0o2010 == 0o2010;
    mode & if as_group { 0o5700 } else { 0o7700 }
}

impl InheritedAcl {
    /// Reads the list of a directory with these attributes before a client with this umask creates a node in it.
    pub(crate) async fn of_dir(
        (dir, attr): (&NodeRef, Attr),
        list: ListOfNew,
        umask: u32,
    ) -> VfsResult<Self> {
        let (acl, has_default) = match umask {
            0 => (dir.acl(&attr).await?, false),
            _ => dir.passed_on(&attr).await?,
        };
        // One entry is enough, whether files or directories inherit it.
        let owner = Owner::of(&attr);
        let passes =
            |acl: &Arc<Acl>| acl.inherited(true, owner).or(acl.inherited(false, owner)).is_some();
        let is_listed = acl.is_some();
        Ok(Self { passed: acl.filter(passes), folder: attr, is_listed, has_default, list })
    }

    /// Returns what was just read of the directory, for the call that creates the node. `is_indexed`: an index of names follows the
    /// directory's changes.
    pub(crate) fn folder(&self, is_indexed: bool) -> FolderSeen {
        let attr = (!is_indexed).then_some(self.folder);
        FolderSeen { attr, is_listed: self.is_listed }
    }

    /// Returns the list that a node of this kind inherits.
    fn of(&self, kind: Kind, owner: Owner) -> Option<Acl> {
        let is_dir = match kind {
            Kind::Dir => true,
            Kind::File => false,
            _ => return None,
        };
        let passed = self.passed.as_ref().filter(|_| self.list != ListOfNew::Given)?;
        passed.inherited(is_dir, owner)
    }

    /// Returns the attributes for the creation of a node. The umask applies only if the node inherits neither from the gateway's
    /// list nor from the host's default list (RFC 8275 section 5).
    pub(crate) fn masked(&self, mut set: SetAttr, kind: Kind) -> SetAttr {
        let umask = std::mem::take(&mut set.umask) & 0o777;
        // The later owner does not affect whether an entry is inherited.
        let inherits = self.of(kind, Owner { uid: 0, gid: 0 }).is_some();
        if !inherits && !self.has_default {
            set.mode = set.mode.map(|mode| mode & !umask);
        }
        if self.list != ListOfNew::Inherited || inherits {
            set.mode = set.mode.map(|mode| closed(mode, kind));
        }
        set
    }

    /// Returns the list of a node of this kind in this share, for the mode bits that its creator asked for. Refuses a list that the
    /// gateway could not enforce.
    fn of_new(
        &self,
        share: &Share,
        kind: Kind,
        owner: Owner,
        asked: Option<u32>,
    ) -> VfsResult<Option<Acl>> {
        let Some(passed) = self.of(kind, owner).and(self.passed.as_ref()) else { return Ok(None) };
        let is_dir = kind == Kind::Dir;
        let most = asked.unwrap_or(if is_dir { 0o777 } else { 0o666 });
        let domain = share.rules.host.domain();
        let acl = passed.of_new(is_dir, Owner::of(&self.folder), owner, most);
        let acl = acl.map(|acl| acl.with_owner_known(owner, domain));
        let unknown = acl.as_ref().filter(|_| domain.is_some()).and_then(Acl::unknown_denied);
        if let Some(sid) = unknown {
            static LOGGED: AtomicBool = AtomicBool::new(false);
            if !LOGGED.swap(true, Ordering::Relaxed) {
                let (share, sid) = (&share.name, sid.to_string());
                tracing::warn!(
                    share,
                    sid,
                    "a folder passes on an entry that denies an alias whose members are not known: clients cannot make files in \
                     it; `headgate check --lists SHARE` names all such folders"
                );
            }
            return Err(VfsError::Access);
        }
        Ok(acl)
    }

    /// Sets the inherited list, limited to `most`; `None`: without a limit. An SMB client does not ask for execute bits, so their
    /// absence removes no right.
    pub(crate) async fn give(
        &self,
        share: &Share,
        made: &mut Made,
        (most, is_smb): (Option<u32>, bool),
    ) -> VfsResult<()> {
        let owner = Owner::of(&made.attr);
        let Some(acl) = self.of_new(share, made.attr.kind, owner, most)? else { return Ok(()) };
        let is_dir = made.attr.kind == Kind::Dir;
        let most = most.unwrap_or(0o777);
        let run = if is_smb && !is_dir { 0o111 } else { 0 };
        let (acl, mode) = acl.limited(most | run, owner, is_dir);
        made.node.acl_set(&acl, mode & most).await?;
        made.attr = made.node.getattr().await?;
        Ok(())
    }

    /// Like [`InheritedAcl::give`], for a file that will be moved into the directory.
    pub(crate) async fn give_to(
        &self,
        share: &Share,
        (node, attr): (&NodeRef, &Attr),
        mode: u32,
    ) -> VfsResult<()> {
        let (set, owner) = (SetAttr { mode: Some(mode), ..SetAttr::default() }, Owner::of(attr));
        let acl = self.of_new(share, Kind::File, owner, Some(mode))?;
        node.setattr(&Cred::root(), set, false).await?;
        let Some(acl) = acl else { return Ok(()) };
        let (acl, mode) = acl.limited(mode, owner, false);
        node.acl_set(&acl, mode).await
    }
}

/// Sets the creator's list on a new node, before other clients learn of the node and before it is durable.
pub trait GiveList: Send + Sync {
    /// Sets the list with the right of the node's creator. Also called for a file found by a repeated exclusive create. `most`: the
    /// rights that the share permits owner, group and others ([`Acl::limited`]); `None`: all.
    fn give<'a>(&'a self, made: &'a Made, most: Option<u32>) -> BoxFuture<'a, VfsResult<()>>;
}
