//! Access control lists at `FileOps`: what is set, and what something new inherits.
//!
//! *Operation.* Backends judge callers by the list of each node. Here is what takes two nodes, or somebody who watches: something
//! new gets what its directory passes on (RFC 8881 section 6.4.3), whoever makes it and by whatever protocol; mode bits that came
//! with it take away from that and give nothing. Whatever gets a list is made for its owner alone, and opened to others by the
//! list: nobody else opens it in between, and what a crash leaves without its list is closed. It has its list before anybody is
//! told of it and before it is made durable.
//!
//! *Errors.* Something new that cannot be given its list is not made: it would be open to others than the directory says.

use std::sync::Arc;

use crate::acl::{Acl, Owner, posix};
use crate::authority::unmake;
use crate::backend::{BoxFuture, Made, NodeRef};
use crate::error::VfsResult;
use crate::namespace::{FileOps, Share};
use crate::share::NewMode;
use crate::types::*;
use crate::watch::what;

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
    list: ListOfNew,
}

/// The bits of a mode that are the owner's alone. Of a file that its group may run the set-group-ID bit goes as well: whether the
/// maker may give it is judged by both bits together (Linux, `mode_strip_sgid`), and the one for the group comes later.
fn closed(mode: u32, kind: Kind) -> u32 {
    let as_group = kind != Kind::Dir && mode & 0o2010 == 0o2010;
    mode & if as_group { 0o5700 } else { 0o7700 }
}

/// Looks at the list of a directory in which something is about to be made.
pub(crate) async fn heritage(dir: &NodeRef, list: ListOfNew) -> VfsResult<InheritedAcl> {
    let attr = dir.getattr().await?;
    let acl = dir.acl(&attr).await?;
    // Whether a file or a directory is asked about makes no difference to whether there is anything.
    let owner = Owner::of(&attr);
    let passes =
        |acl: &Arc<Acl>| acl.inherited(true, owner).or(acl.inherited(false, owner)).is_some();
    Ok(InheritedAcl { passed: acl.filter(passes), list })
}

impl InheritedAcl {
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

    /// The attributes that something new is made with.
    pub(crate) fn masked(&self, mut set: SetAttr, kind: Kind) -> SetAttr {
        let umask = std::mem::take(&mut set.umask) & 0o777;
        if self.passed.is_none() {
            set.mode = set.mode.map(|mode| mode & !umask);
        }
        // Who the owner will be makes no difference to whether there is anything.
        let owner = Owner { uid: 0, gid: 0 };
        if self.list != ListOfNew::Inherited || self.of(kind, owner).is_some() {
            set.mode = set.mode.map(|mode| closed(mode, kind));
        }
        set
    }

    /// Gives it what it inherits, of which `most` is left; `None`: all.
    pub(crate) async fn give(&self, made: &mut Made, most: Option<u32>) -> VfsResult<()> {
        let owner = Owner::of(&made.attr);
        let Some(acl) = self.of(made.attr.kind, owner) else { return Ok(()) };
        let is_dir = made.attr.kind == Kind::Dir;
        let (acl, mode) = acl.limited(most.unwrap_or(0o777), owner, is_dir);
        made.node.acl_set(&acl, mode).await?;
        made.attr = made.node.getattr().await?;
        Ok(())
    }

    /// As [`InheritedAcl::give`], for a file that is to stand in the directory.
    pub(crate) async fn give_to(&self, node: &NodeRef, attr: &Attr, mode: u32) -> VfsResult<()> {
        let (set, owner) = (SetAttr { mode: Some(mode), ..SetAttr::default() }, Owner::of(attr));
        node.setattr(&Cred::root(), set, false).await?;
        let Some(acl) = self.of(Kind::File, owner) else { return Ok(()) };
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

impl<'a> FileOps<'a> {
    /// What is made is to get this list, from this giver where it is not inherited. Until then nobody but the owner is let in.
    #[must_use]
    pub fn with_list(self, list: ListOfNew, giver: &'a dyn GiveList) -> Self {
        Self { list, giver: Some(giver), ..self }
    }
}

impl FileOps<'_> {
    /// Gives something new its list. What cannot have it is not made.
    pub(crate) async fn give_list(
        &self,
        heritage: &InheritedAcl,
        (dir, cred, name): (&NodeRef, &Cred, &[u8]),
        made: &mut Made,
        new: &NewMode,
    ) -> VfsResult<()> {
        let done = async {
            heritage.give(made, new.inherited_max).await?;
            if let Some(giver) = self.giver.filter(|_| self.list != ListOfNew::Inherited) {
                giver.give(made, new.given_max).await?;
                made.attr = made.node.getattr().await?;
            }
            Ok(())
        };
        let done = done.await;
        if done.is_err() {
            unmake(dir, cred, name, made).await;
        }
        done
    }

    /// Keeps a list with a node, and with it the mode bits that stand for it. The caller's right to do so was checked.
    pub(crate) async fn do_acl_set(
        &self,
        share: &Share,
        node: &NodeRef,
        acl: &Acl,
        mode: u32,
    ) -> VfsResult<()> {
        self.writable(share)?;
        self.check_attributes(node).await?;
        node.acl_set(acl, mode).await?;
        self.watches.post_node(share.id, node, what::SECURITY).await;
        self.make_durable(share, &[node]).await
    }

    /// As [`FileOps::acl_set`], for a caller who must have the right to: the one to change the mode.
    pub(crate) async fn do_acl_change(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
        acl: &Acl,
    ) -> VfsResult<()> {
        let attr = self.may_set_list(share, node, cred).await?;
        self.do_acl_set(share, node, acl, acl.mode(Owner::of(&attr))).await
    }

    /// Gives a node lists of the host's own, for a caller who must have the right to.
    pub(crate) async fn do_posix_change(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
        change: &posix::Change,
    ) -> VfsResult<()> {
        self.may_set_list(share, node, cred).await?;
        self.check_attributes(node).await?;
        node.posix_set(change).await?;
        self.watches.post_node(share.id, node, what::SECURITY).await;
        self.make_durable(share, &[node]).await
    }

    /// What is in the way of a new mode is in the way of a new list: ownership, or the right by the list that there is.
    async fn may_set_list(&self, share: &Share, node: &NodeRef, cred: &Cred) -> VfsResult<Attr> {
        let attr = node.getattr().await?;
        let set = SetAttr { mode: Some(attr.mode), ..SetAttr::default() };
        self.do_setattr(share, node, cred, set, false).await?;
        Ok(attr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::{Ace, Who, flag, mask};
    use crate::backend::Backend;
    use crate::mem::MemBackend;
    use crate::namespace::{Enforce, Masks, Namespace, Protocols, Rules, Squash};

    /// With which mode something is made that the client gave `mode`.
    async fn made_with(dir: &NodeRef, list: ListOfNew, kind: Kind, mode: u32) -> u32 {
        let set = SetAttr { mode: Some(mode), umask: 0o022, ..SetAttr::default() };
        heritage(dir, list).await.unwrap().masked(set, kind).mode.unwrap()
    }

    #[tokio::test]
    async fn what_gets_a_list_is_made_for_its_owner_alone() {
        use ListOfNew::*;
        let backend = MemBackend::new(1 << 20).unwrap();
        let dir = backend.root();
        assert_eq!(made_with(&dir, Inherited, Kind::File, 0o666).await, 0o644);
        for list in [InheritedOrGiven, Given] {
            assert_eq!(made_with(&dir, list, Kind::File, 0o666).await, 0o600);
            assert_eq!(made_with(&dir, list, Kind::Fifo, 0o666).await, 0o600);
        }
        let ace =
            Ace::allow(Who::Everyone, mask::FILE_READ, flag::OBJECT_INHERIT | flag::NO_PROPAGATE);
        dir.acl_set(&Acl::new(vec![ace]), 0o755).await.unwrap();
        for list in [Inherited, InheritedOrGiven, Given] {
            assert_eq!(made_with(&dir, list, Kind::File, 0o666).await, 0o600);
            assert_eq!(made_with(&dir, list, Kind::File, 0o4755).await, 0o4700);
        }
        assert_eq!(
            made_with(&dir, Inherited, Kind::Dir, 0o777).await,
            0o777,
            "it inherits nothing"
        );
        assert_eq!(made_with(&dir, Given, Kind::Dir, 0o2775).await, 0o2700);
        assert_eq!(made_with(&dir, Given, Kind::File, 0o2755).await, 0o700);
        assert_eq!(made_with(&dir, Given, Kind::File, 0o2644).await, 0o2600);
    }

    /// A share in memory that masks files so.
    fn masked(file: u32) -> Namespace {
        let name = "data".to_owned();
        let masks = Masks { file: Some(file), folder: None };
        Namespace::new(vec![Share {
            id: Share::id_of(&name),
            name,
            backend: MemBackend::new(1 << 20).unwrap(),
            protocols: Protocols::Both,
            read_only: false,
            squash: Squash::None,
            nfs_locks: Enforce::Smb,
            clients: None,
            rules: Rules { masks, ..Rules::default() },
        }])
    }

    /// An exclusive create asks for no mode (RFC 1813 section 3.3.8), so that none limits what its directory passes on for good.
    #[tokio::test]
    async fn where_no_mode_is_asked_for_the_mask_alone_limits_what_is_inherited() {
        let namespace = masked(0o640);
        let share = namespace.shares()[0].clone();
        let dir = share.backend.root();
        let inherits = flag::OBJECT_INHERIT | flag::NO_PROPAGATE;
        let both = mask::FILE_READ | mask::FILE_WRITE;
        let entry = Ace::allow(Who::Members(50), both, inherits);
        dir.acl_set(&Acl::new(vec![entry]), 0o755).await.unwrap();
        let member = Cred { uid: 9, gid: 50, groups: Arc::new([]) };
        for (name, mode) in [(&b"none"[..], None), (b"all", Some(0o666)), (b"own", Some(0o600))] {
            let set = SetAttr { mode, ..SetAttr::default() };
            let how = CreateHow::Exclusive([1; 8]);
            let made = namespace.create(&share, &dir, &Cred::root(), name, how, set).await.unwrap();
            let acl = made.node.acl(&made.attr).await.unwrap().unwrap();
            let may = acl.allowed(&member, Owner::of(&made.attr));
            let reads = mode != Some(0o600);
            assert_eq!(may & mask::READ_DATA != 0, reads, "{mode:?}");
            assert_eq!(may & mask::WRITE_DATA, 0, "{mode:?}: the mask lets the group not write");
        }
        dir.acl_set(&Acl::default(), 0o755).await.unwrap();
        let set = SetAttr::default();
        let how = CreateHow::Guarded;
        let made = namespace.create(&share, &dir, &Cred::root(), b"bare", how, set).await.unwrap();
        assert_eq!(made.attr.mode & 0o777, 0o600, "without a list it is its owner's alone");
    }

    /// Keeps what it was told to leave of a list.
    #[derive(Default)]
    struct Told(std::sync::Mutex<Option<Option<u32>>>);

    impl GiveList for Told {
        fn give<'a>(&'a self, _: &'a Made, most: Option<u32>) -> BoxFuture<'a, VfsResult<()>> {
            *self.0.lock().unwrap() = Some(most);
            Box::pin(async { Ok(()) })
        }
    }

    #[tokio::test]
    async fn who_gives_a_list_is_told_what_the_mask_leaves_of_it() {
        let namespace = masked(0o640);
        let share = namespace.shares()[0].clone();
        let dir = share.backend.root();
        // The list counts in place of the mode, so the mode does not limit it.
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let giver = Told::default();
        let file_ops = namespace.by(None).with_list(ListOfNew::Given, &giver);
        file_ops.create(&share, &dir, &Cred::root(), b"f", CreateHow::Guarded, set).await.unwrap();
        assert_eq!(giver.0.lock().unwrap().take(), Some(Some(0o640)));
        file_ops.mkdir(&share, &dir, &Cred::root(), b"d", set).await.unwrap();
        assert_eq!(giver.0.lock().unwrap().take(), Some(None), "folders have no mask here");
    }
}
