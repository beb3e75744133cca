//! The access control list of something new: what its directory passes on (RFC 8881 section 6.4.3), or what its maker gives it.
//!
//! *Errors.* Those of reading and of keeping a list, and [`VfsError::Access`] for one that the gateway would not obey.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::acl::{Acl, Owner};
use crate::backend::{BoxFuture, Made, NodeRef};
use crate::error::{VfsError, VfsResult};
use crate::share::Share;
use crate::types::*;

/// Which access control list something new gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListOfNew {
    /// What its directory passes on, if that is anything.
    #[default]
    Inherited,
    /// What its directory passes on, or else one that whoever makes it gives it.
    InheritedOrGiven,
    /// One that whoever makes it gives it, whatever its directory passes on.
    Given,
}

/// What something new gets.
pub(crate) struct InheritedAcl {
    /// What the directory passes on, to something of one kind or the other.
    passed: Option<Arc<Acl>>,
    /// Owner and group of the directory.
    folder: Owner,
    /// The host gives what is made here a list; not looked for where no umask would count.
    has_default: bool,
    list: ListOfNew,
}

/// The bits of a mode that are the owner's alone. Of a file that its group may run the set-group-ID bit goes as well: whether the
/// maker may give it is judged by both bits together (Linux, `mode_strip_sgid`), and the one for the group comes later.
fn closed(mode: u32, kind: Kind) -> u32 {
    let as_group = kind != Kind::Dir && mode & 0o2010 == 0o2010;
    mode & if as_group { 0o5700 } else { 0o7700 }
}

impl InheritedAcl {
    /// Looks at the list of a directory in which something is about to be made by a client with this umask.
    pub(crate) async fn of_dir(dir: &NodeRef, list: ListOfNew, umask: u32) -> VfsResult<Self> {
        let attr = dir.getattr().await?;
        let acl = dir.acl(&attr).await?;
        // Whether a file or a directory is asked about makes no difference to whether there is anything.
        let owner = Owner::of(&attr);
        let passes =
            |acl: &Arc<Acl>| acl.inherited(true, owner).or(acl.inherited(false, owner)).is_some();
        let has_default = acl.is_none() && umask != 0 && dir.posix(&attr).await?.default.is_some();
        Ok(Self { passed: acl.filter(passes), folder: owner, has_default, list })
    }

    /// What something of this kind inherits.
    fn of(&self, kind: Kind, owner: Owner) -> Option<Acl> {
        let is_dir = match kind {
            Kind::Dir => true,
            Kind::File => false,
            _ => return None,
        };
        let passed = self.passed.as_ref().filter(|_| self.list != ListOfNew::Given)?;
        passed.inherited(is_dir, owner)
    }

    /// The attributes that something new is made with. The umask counts where a list is inherited neither from ours nor from the
    /// default list of the host (RFC 8275 section 5).
    pub(crate) fn masked(&self, mut set: SetAttr, kind: Kind) -> SetAttr {
        let umask = std::mem::take(&mut set.umask) & 0o777;
        // Who the owner will be makes no difference to whether there is anything.
        let inherits = self.of(kind, Owner { uid: 0, gid: 0 }).is_some();
        if !inherits && !self.has_default {
            set.mode = set.mode.map(|mode| mode & !umask);
        }
        if self.list != ListOfNew::Inherited || inherits {
            set.mode = set.mode.map(|mode| closed(mode, kind));
        }
        set
    }

    /// The list of something of this kind in this share, of the mode bits that its maker asked for. Refuses what the share's
    /// gateway would not obey.
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
        let acl = passed.of_new(is_dir, self.folder, owner, most);
        let unknown = acl.as_ref().filter(|_| share.rules.has_domain).and_then(Acl::unknown_denied);
        if let Some(sid) = unknown {
            static LOGGED: AtomicBool = AtomicBool::new(false);
            if !LOGGED.swap(true, Ordering::Relaxed) {
                let (share, sid) = (&share.name, sid.to_string());
                tracing::warn!(
                    share,
                    sid,
                    "a folder passes on an entry that denies an identity of the domain: clients cannot make files in it; \
                     `headgate check --lists SHARE` names all such folders"
                );
            }
            return Err(VfsError::Access);
        }
        Ok(acl)
    }

    /// Gives it what it inherits, of which `most` is left; `None`: all. A client of SMB asks for no bit to run a file, and takes
    /// none away.
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

    /// As [`InheritedAcl::give`], for a file that is to stand in the directory.
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

/// Gives something new the list that its maker has for it: before others are told that it came, and before it is durable.
pub trait GiveList: Send + Sync {
    /// Its caller may do so: it has made it. Also called for what is found by the repetition of an exclusive create. `most`: what
    /// the share lets owner, group and others have of it ([`Acl::limited`]); `None`: all.
    fn give<'a>(&'a self, made: &'a Made, most: Option<u32>) -> BoxFuture<'a, VfsResult<()>>;
}
