//! Access control lists at `FileOps`: what is set, and what something new inherits.
//!
//! *Operation.* Backends judge callers by the list of each node. Here is what takes two nodes, or somebody who watches: something
//! new gets what its directory passes on (RFC 8881 section 6.4.3), whoever makes it and by whatever protocol; mode bits that came
//! with it take away from that and give nothing. Whatever gets a list is made for its owner alone, and opened to others by the
//! list: nobody else opens it in between, and what a crash leaves without its list is closed. It has its list before anybody is
//! told of it and before it is made durable.
//!
//! *Errors.* Something new that cannot be given its list is not made: it would be open to others than the directory says.

use crate::acl::{Acl, Owner, posix};
use crate::authority::unmake;
use crate::backend::{Made, NodeRef};
use crate::error::VfsResult;
use crate::inherited_acl::{GiveList, InheritedAcl, ListOfNew};
use crate::namespace::{FileOps, Share};
use crate::share::NewMode;
use crate::types::*;
use crate::watch::what;

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
        inherited: &InheritedAcl,
        (share, dir, cred, name): (&Share, &NodeRef, &Cred, &[u8]),
        made: &mut Made,
        new: &NewMode,
    ) -> VfsResult<()> {
        let done = async {
            inherited.give(share, made, new.inherited_max).await?;
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
    use std::sync::Arc;

    use super::*;
    use crate::acl::{Ace, Who, flag, mask};
    use crate::backend::{Backend, BoxFuture};
    use crate::error::VfsError;
    use crate::mem::MemBackend;
    use crate::namespace::{Enforce, Masks, Namespace, Protocols, Rules, Squash};

    /// With which mode something is made that the client gave `mode`.
    async fn made_with(dir: &NodeRef, list: ListOfNew, kind: Kind, mode: u32) -> u32 {
        let set = SetAttr { mode: Some(mode), umask: 0o022, ..SetAttr::default() };
        InheritedAcl::of_dir(dir, list).await.unwrap().masked(set, kind).mode.unwrap()
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
        let masks = Masks { file: Some(file), folder: None };
        of_rules(Rules { masks, ..Rules::default() })
    }

    /// A share in memory with these rules.
    fn of_rules(rules: Rules) -> Namespace {
        let name = "data".to_owned();
        Namespace::new(vec![Share {
            id: Share::id_of(&name),
            name,
            backend: MemBackend::new(1 << 20).unwrap(),
            protocols: Protocols::Both,
            read_only: false,
            squash: Squash::None,
            nfs_locks: Enforce::Smb,
            clients: None,
            rules,
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

    /// A folder may pass an entry on that was stored before the gateway took tickets of a domain.
    #[tokio::test]
    async fn inherited_entries_that_would_not_be_obeyed_refuse_creates() {
        let sid: crate::acl::Sid = "S-1-5-21-1-2-3-1114".parse().unwrap();
        let flags = flag::OBJECT_INHERIT | flag::NO_PROPAGATE;
        let denies = Ace::deny(Who::Sid(sid), mask::READ_DATA, flags);
        let all = Ace::allow(Who::Everyone, mask::FILE_ALL, 3);
        for has_domain in [false, true] {
            let namespace = of_rules(Rules { has_domain, ..Rules::default() });
            let share = namespace.shares()[0].clone();
            let dir = share.backend.root();
            let (set, root) = (SetAttr::default(), Cred::root());
            let make = async |name: &'static [u8]| {
                let how = CreateHow::Unchecked;
                namespace.create(&share, &dir, &root, name, how, set).await.map(|made| made.created)
            };
            assert_eq!(make(b"before").await, Ok(true));
            dir.acl_set(&Acl::new(vec![denies.clone(), all.clone()]), 0o777).await.unwrap();
            let wanted = if has_domain { Err(VfsError::Access) } else { Ok(true) };
            assert_eq!(make(b"f").await, wanted, "{has_domain}");
            assert_eq!(dir.lookup(&root, b"f").await.is_ok(), !has_domain, "no file is left");
            assert_eq!(make(b"before").await, Ok(false), "a file that is there opens");
            let file_ops = namespace.by(None);
            let made = file_ops.mkdir(&share, &dir, &root, b"d", set).await;
            assert!(made.is_ok(), "a folder inherits no such entry");
        }
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
