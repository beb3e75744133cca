//! Access control lists at `FileOps`: sets lists, and applies inheritance to new nodes.
//!
//! *Operation.* Backends check callers by the list of each node. This module contains the steps with two nodes or with subscribers:
//! a new node gets the list that its directory passes on (RFC 8881 section 6.4.3), for every creator and protocol; mode bits from
//! its creator only remove rights. A node that gets a list is created with access for its owner only, and the list then grants
//! access to others: so no other user opens it in between, and after a crash a node without its list stays closed. It gets its list
//! before any client learns of it and before it is durable.
//!
//! *Errors.* A new node that cannot get its list is removed: otherwise it would admit callers that the directory's list does not.

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
    /// Gives new nodes this list, from this giver if it is not inherited. Only the owner has access before that.
    #[must_use]
    pub fn with_list(self, list: ListOfNew, giver: &'a dyn GiveList) -> Self {
        Self { list, giver: Some(giver), ..self }
    }
}

impl FileOps<'_> {
    /// Sets the list of a new node. Removes the node if that fails.
    pub(crate) async fn give_list(
        &self,
        inherited: &InheritedAcl,
        (share, dir, cred, name): (&Share, &NodeRef, &Cred, &[u8]),
        made: &mut Made,
        new: &NewMode,
    ) -> VfsResult<()> {
        let done = async {
            inherited.give(share, made, (new.inherited_max, self.smb)).await?;
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

    /// Stores a list with a node, and sets the equivalent mode bits. The caller's permission was checked before.
    pub(crate) async fn do_acl_set(
        &self,
        share: &Share,
        node: &NodeRef,
        acl: &Acl,
        mode: u32,
    ) -> VfsResult<()> {
        self.writable(share)?;
        self.guard_link_attributes(share, node.id())?;
        self.check_attributes(node).await?;
        node.acl_set(acl, mode).await?;
        self.watches.post_node(share.id, node, what::SECURITY).await;
        self.make_durable(share, &[node]).await
    }

    /// Like [`FileOps::acl_set`], for a caller who needs the right to change the mode.
    pub(crate) async fn do_acl_change(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
        acl: &Acl,
    ) -> VfsResult<()> {
        let owner = Owner::of(&self.may_set_list(share, node, cred).await?);
        let acl = acl.clone().with_owner_known(owner, share.rules.host.domain());
        self.do_acl_set(share, node, &acl, acl.mode(owner)).await
    }

    /// Sets the host's own lists on a node, for a caller who needs the right to change the mode.
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

    /// Updates the list of a file whose mode was set, also if the bits are the same as before: users and groups that the list names
    /// then have at most the group's bits (RFC 8881 section 6.4.1.1).
    pub(crate) async fn chmod_list(
        &self,
        node: &NodeRef,
        (before, now): &(Attr, Attr),
    ) -> VfsResult<Attr> {
        let is_dir = now.kind == Kind::Dir;
        let Some(acl) = node.acl(now).await? else { return Ok(*now) };
        let new = acl.chmod(Owner::of(now), is_dir, before.mode, now.mode);
        if new == *acl && (before.mode ^ now.mode) & 0o777 == 0 {
            return Ok(*now);
        }
        node.acl_set(&new, now.mode & 0o777).await?;
        node.getattr().await
    }

    /// Checks permission to set a list, with the same rule as for a new mode: ownership, or the right in the present list.
    async fn may_set_list(&self, share: &Share, node: &NodeRef, cred: &Cred) -> VfsResult<Attr> {
        let attr = node.getattr().await?;
        let set = SetAttr { mode: Some(attr.mode), ..SetAttr::default() };
        self.keeping_list().do_setattr(share, node, cred, set, false).await?;
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
    use crate::{Domain, Token};

    /// Returns the mode with which a node is created for which the client asked for `mode`.
    async fn made_with(dir: &NodeRef, list: ListOfNew, kind: Kind, mode: u32) -> u32 {
        let set = SetAttr { mode: Some(mode), umask: 0o022, ..SetAttr::default() };
        let place = (dir, dir.getattr().await.unwrap());
        let inherited = InheritedAcl::of_dir(place, list, set.umask).await.unwrap();
        inherited.masked(set, kind).mode.unwrap()
    }

    #[tokio::test]
    async fn node_with_list_created_owner_only() {
        use ListOfNew::*;
        let backend = MemBackend::new(4 << 20).unwrap();
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
            assert_eq!(made_with(&dir, list, Kind::Fifo, 0o666).await & 0o022, 0);
        }
        assert_eq!(
            made_with(&dir, Inherited, Kind::Dir, 0o777).await,
            0o755,
            "it inherits nothing, so that the umask counts"
        );
        assert_eq!(made_with(&dir, Given, Kind::Dir, 0o2775).await, 0o2700);
        assert_eq!(made_with(&dir, Given, Kind::File, 0o2755).await, 0o700);
        assert_eq!(made_with(&dir, Given, Kind::File, 0o2644).await, 0o2600);
    }

    /// Returns a share in memory with this mask for files.
    fn masked(file: u32) -> Namespace {
        let masks = Masks { file: Some(file), folder: None };
        of_rules(Rules { masks, ..Rules::default() })
    }

    /// Returns a share in memory with these rules.
    fn of_rules(rules: Rules) -> Namespace {
        let name = "data".to_owned();
        Namespace::new(vec![Share {
            id: Share::id_of(&name),
            name,
            backend: MemBackend::new(4 << 20).unwrap(),
            protocols: Protocols::Both,
            read_only: false,
            squash: Squash::None,
            nfs_locks: Enforce::Smb,
            clients: None,
            rules,
        }])
    }

    /// An exclusive create asks for no mode (RFC 1813 section 3.3.8), so no mode permanently limits the inherited rights.
    #[tokio::test]
    async fn mask_limits_inheritance_without_mode() {
        let namespace = masked(0o640);
        let share = namespace.shares()[0].clone();
        let dir = share.backend.root();
        let inherits = flag::OBJECT_INHERIT | flag::NO_PROPAGATE;
        let both = mask::FILE_READ | mask::FILE_WRITE;
        let entry = Ace::allow(Who::Members(50), both, inherits);
        dir.acl_set(&Acl::new(vec![entry]), 0o755).await.unwrap();
        let member = Cred { uid: 9, gid: 50, groups: Arc::new([]), token: crate::Token::NONE };
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

    /// RFC 8881 section 6.4.1.1: a list changes even if the mode stays the same. Each line: the modes that are set one after the
    /// other.
    #[tokio::test]
    async fn repeated_mode_revokes_rights() {
        let namespace = of_rules(Rules::default());
        let share = namespace.shares()[0].clone();
        let (dir, root) = (share.backend.root(), Cred::root());
        let owner = Cred { uid: 1500, gid: 1500, groups: Arc::new([]), token: crate::Token::NONE };
        let named = Cred { uid: 1000, gid: 1000, groups: Arc::new([]), token: crate::Token::NONE };
        let all =
            SetAttr { mode: Some(0o600), uid: Some(1500), gid: Some(1500), ..SetAttr::default() };
        let how = CreateHow::Guarded;
        let file = namespace.create(&share, &dir, &root, b"f", how, all).await.unwrap().node;
        let rights = mask::READ_DATA | mask::WRITE_DATA | mask::APPEND_DATA | mask::EXECUTE;
        let list = |owner| {
            let entries = [(owner, rights & !mask::EXECUTE), (Who::User(1000), rights)];
            Acl::new(entries.map(|(who, rights)| Ace::allow(who, rights, 0)).into())
        };
        let may = async || {
            let attr = file.getattr().await.unwrap();
            file.acl(&attr).await.unwrap().unwrap().allowed(&named, Owner::of(&attr)) & rights
        };
        let set = |mode, uid| SetAttr { mode: Some(mode), uid, ..SetAttr::default() };
        for who in [Who::Owner, Who::User(1500)] {
            for modes in [&[0o600][..], &[0o700, 0o600], &[0o640, 0o600], &[0o4600], &[0o1600]] {
                let file_ops = namespace.by(None);
                file_ops.acl_change(&share, &file, &owner, &list(who.clone())).await.unwrap();
                assert_eq!(may().await, rights, "{modes:?}");
                for mode in modes {
                    let (_, now) = file_ops
                        .setattr(&share, &file, &owner, set(*mode, None), false)
                        .await
                        .unwrap();
                    assert_eq!(now, file.getattr().await.unwrap(), "what is told is what is there");
                }
                assert_eq!(may().await, 0, "{modes:?} {who:?}");
                assert_eq!(file.getattr().await.unwrap().mode & 0o777, 0o600);
            }
            let file_ops = namespace.by(None);
            for (change, wanted) in [
                (set(0o640, None), mask::READ_DATA),
                (set(0o660, None), rights & !mask::EXECUTE),
                (SetAttr { uid: Some(1500), ..SetAttr::default() }, rights),
                (SetAttr { gid: Some(1500), ..SetAttr::default() }, rights),
            ] {
                file_ops.acl_change(&share, &file, &owner, &list(who.clone())).await.unwrap();
                file_ops.setattr(&share, &file, &owner, change, false).await.unwrap();
                assert_eq!(may().await & !mask::EXECUTE, wanted & !mask::EXECUTE, "{change:?}");
            }
            // A request with `mode_set_masked` may exclude all nine bits.
            file_ops.acl_change(&share, &file, &owner, &list(who)).await.unwrap();
            let keeping = file_ops.keeping_list();
            keeping.setattr(&share, &file, &owner, set(0o4600, None), false).await.unwrap();
            assert_eq!(may().await, rights);
        }
    }

    /// Returns the rights of three mode bits of a folder.
    fn rights_of(bits: u32) -> u32 {
        let has = |bit, rights| if bits & bit != 0 { rights } else { 0 };
        let write = mask::FILE_WRITE | mask::DELETE_CHILD;
        has(4, mask::FILE_READ) | has(2, write) | has(1, mask::FILE_EXECUTE)
    }

    /// Returns the list of a folder of this mode, which passes on an entry for each of these principals.
    fn list_of(of_nfs: bool, mode: u32, passed: &[Who]) -> Acl {
        let (owner, group) = match of_nfs {
            true => (Who::Owner, Who::Group),
            false => (Who::User(1500), Who::Members(50)),
        };
        let own = [(owner, 6), (group, 3), (Who::Everyone, 0)];
        let own = own.map(|(who, shift)| Ace::allow(who, rights_of(mode >> shift), 0));
        let both = flag::OBJECT_INHERIT | flag::CONTAINER_INHERIT;
        let rights = mask::FILE_READ | mask::EXECUTE;
        let more = passed.iter().map(|who| Ace::allow(who.clone(), rights, both));
        Acl::new(own.into_iter().chain(more).collect())
    }

    /// Each line: the entries that the folder passes on. The creator of a node has access within the mode, by either protocol;
    /// group and others have the rights of the folder's own list if no entry for them is passed on; a group other than the folder's
    /// counts as others.
    #[tokio::test]
    async fn creator_can_use_new_file() {
        let namespace = of_rules(Rules::default());
        let share = namespace.shares()[0].clone();
        let top = share.backend.root();
        let other = Cred { uid: 4, gid: 4, groups: Arc::new([]), token: crate::Token::NONE };
        let passed: [&[Who]; 7] = [
            &[Who::User(1000)],
            &[Who::User(1000), Who::Owner],
            &[Who::User(1000), Who::Group],
            &[Who::User(1000), Who::Everyone],
            &[Who::Group, Who::Everyone],
            &[Who::Members(77), Who::Owner, Who::Group],
            &[Who::Sid(crate::acl::Sid::system())],
        ];
        let mut n = 0;
        for (of_nfs, gid, folder_mode, passed) in [(true, 50), (true, 60), (false, 50), (false, 60)]
            .into_iter()
            .flat_map(|(form, gid)| [0o755, 0o775, 0o700, 0o750].map(|mode| (form, gid, mode)))
            .flat_map(|(form, gid, mode)| passed.map(|who| (form, gid, mode, who)))
        {
            n += 1;
            let maker = Cred { uid: 1500, gid, groups: Arc::new([50]), token: crate::Token::NONE };
            let member = Cred { uid: 3, gid, groups: Arc::new([]), token: crate::Token::NONE };
            let of_group = if gid == 50 { 3 } else { 0 };
            let set =
                SetAttr { uid: Some(1500), gid: Some(50), mode: Some(0o777), ..SetAttr::default() };
            let name = format!("d{n}");
            let (file_ops, root) = (namespace.by(None), Cred::root());
            let made = file_ops.mkdir(&share, &top, &root, name.as_bytes(), set).await;
            let dir = made.unwrap().node;
            let bits = |shift: u32| rights_of(folder_mode >> shift);
            dir.acl_set(&list_of(of_nfs, folder_mode, passed), folder_mode).await.unwrap();
            for (smb, mode) in [(false, 0o644), (false, 0o600), (false, 0o755), (true, 0o666)] {
                let set = SetAttr { mode: Some(mode), umask: 0o022, ..SetAttr::default() };
                let file_ops = if smb { namespace.by_smb(None) } else { namespace.by(None) };
                let (how, name) = (CreateHow::Guarded, format!("f{smb}{mode:o}"));
                let made = file_ops.create(&share, &dir, &maker, name.as_bytes(), how, set).await;
                let file = made.unwrap();
                let name = format!("d{smb}{mode:o}");
                let folder = SetAttr { mode: Some(mode | 0o111), ..set };
                let folder = file_ops.mkdir(&share, &dir, &maker, name.as_bytes(), folder).await;
                for (made, mode) in [(file, mode), (folder.unwrap(), mode | 0o111)] {
                    let case = format!("{of_nfs} {gid} {folder_mode:o} {passed:?} {smb} {mode:o}");
                    let acl = made.node.acl(&made.attr).await.unwrap().unwrap();
                    let may = |cred: &Cred| acl.allowed(cred, Owner::of(&made.attr));
                    let data = mask::READ_DATA | mask::WRITE_DATA | mask::APPEND_DATA;
                    let names_owner = passed.contains(&Who::Owner);
                    let wanted = if names_owner { mask::READ_DATA } else { data };
                    assert_eq!(may(&maker) & wanted, wanted, "{case}: maker");
                    if made.attr.kind == Kind::Dir && !names_owner {
                        assert_ne!(may(&maker) & mask::EXECUTE, 0, "{case}: maker");
                    }
                    for (cred, who, shift, in_folder) in
                        [(&member, Who::Group, 3, of_group), (&other, Who::Everyone, 0, 0)]
                    {
                        let by_folder = (folder_mode >> in_folder & mode >> shift) & 4 != 0;
                        let to_all = passed.contains(&Who::Everyone);
                        let is_passed = passed.contains(&who) || to_all;
                        let by_folder = by_folder && !(to_all && in_folder != shift);
                        let by_list = is_passed && mode >> shift & 4 != 0;
                        let reads = may(cred) & mask::READ_DATA != 0;
                        assert_eq!(
                            reads,
                            by_folder && !passed.contains(&who) || by_list,
                            "{case}: {who:?}"
                        );
                        assert_eq!(
                            may(cred) & mask::WRITE_DATA & !bits(in_folder),
                            0,
                            "{case}: {who:?}"
                        );
                    }
                    let named = Cred { uid: 1000, gid: 1000, ..Cred::root() };
                    let reads = may(&named) & mask::READ_DATA != 0;
                    let is_named = passed.contains(&Who::User(1000)) && mode & 0o040 != 0;
                    assert!(reads || !is_named, "{case}: named");
                }
            }
        }
    }

    /// A folder may pass on an entry that was stored before the gateway accepted tickets of a domain.
    #[tokio::test]
    async fn unenforceable_inherited_entries_refuse_creates() {
        let sid: crate::acl::Sid = "S-1-5-32-551".parse().unwrap();
        let flags = flag::OBJECT_INHERIT | flag::NO_PROPAGATE;
        let denies = Ace::deny(Who::Sid(sid), mask::READ_DATA, flags);
        let all = Ace::allow(Who::Everyone, mask::FILE_ALL, 3);
        for has_domain in [false, true] {
            let domain = has_domain.then(|| Domain::new(None));
            let host = domain.map(|domain| Token::of_host(&domain)).unwrap_or_default();
            let namespace = of_rules(Rules { host, ..Rules::default() });
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

    /// Records the limit that it was given for a list.
    #[derive(Default)]
    struct Told(std::sync::Mutex<Option<Option<u32>>>);

    impl GiveList for Told {
        fn give<'a>(&'a self, _: &'a Made, most: Option<u32>) -> BoxFuture<'a, VfsResult<()>> {
            *self.0.lock().unwrap() = Some(most);
            Box::pin(async { Ok(()) })
        }
    }

    #[tokio::test]
    async fn list_giver_gets_mask_limit() {
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
