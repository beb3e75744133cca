//! Granted access, and storage of descriptors.

use std::sync::Arc;
use vfs::Acting;

use vfs::Backend;
use vfs::mem::MemBackend;
use vfs::namespace::{Enforce, Namespace, Protocols, Squash};
use vfs::types::CreateHow;

use super::identities::{granted, inherit, may_group, may_own, set};
use super::*;
use crate::dtyp::{Ace, Acl};
use crate::tree::{LastTakeUp, Target};

/// A SID picked from the list of accounts becomes the account's uid on the host; other SIDs of the machine do not change.
#[test]
fn identifiers_of_accounts_become_those_of_files() {
    let machine = Sid::new(5, &[21, 1, 2, 3]).unwrap();
    let of = |rid| machine.child(rid).unwrap();
    let other = Sid::new(5, &[21, 1, 2, 4, 3000]).unwrap();
    for (picked, want) in [
        (of(1000), Sid::unix_user(0)),
        (of(3000), Sid::unix_user(1000)),
        (of(1101), Sid::unix_group(50)),
        (of(513), of(513)),
        (other.clone(), other),
        (Sid::everyone(), Sid::everyone()),
        (machine.clone(), machine.clone()),
    ] {
        let with = |sid: &Sid| SecurityDescriptor {
            owner: Some(sid.clone()),
            group: Some(sid.clone()),
            dacl: Some(Acl::new(vec![Ace::allow(sid.clone(), 1, 0)])),
            ..SecurityDescriptor::default()
        };
        let mut sd = with(&picked);
        know_accounts(&mut sd, &machine);
        assert_eq!(sd, with(&want), "{picked}");
    }
}

pub(super) struct World {
    pub(super) namespace: Namespace,
    pub(super) share: Arc<Share>,
    root: NodeRef,
}

fn world() -> World {
    world_of(MemBackend::new(1 << 20).unwrap())
}

fn world_of(backend: Arc<dyn Backend>) -> World {
    world_with(backend, vfs::namespace::Rules::default())
}

pub(super) fn world_with(backend: Arc<dyn Backend>, rules: vfs::namespace::Rules) -> World {
    let root = backend.root();
    let name = "data".to_owned();
    let share = Share {
        id: Share::id_of(&name),
        name,
        backend,
        read_only: false,
        protocols: Protocols::Both,
        squash: Squash::None,
        nfs_locks: Enforce::Smb,
        clients: None,
        rules,
    };
    let namespace = Namespace::new(vec![share]);
    let share = namespace.shares()[0].clone();
    World { namespace, share, root }
}

impl World {
    pub(super) fn tree(&self, uid: u32) -> Tree {
        Tree {
            last_take_up: LastTakeUp::default(),
            is_dfs: false,
            home: None,
            id: 1,
            session_id: 1,
            name: "data".into(),
            target: Target::Files(self.share.clone()),
            cred: Cred { uid, gid: uid, groups: Arc::new([]), token: vfs::Token::NONE },
            maximal_access: mask::FILE_ALL,
            settings: Default::default(),
        }
    }

    /// A directory and a file in it, both of user 1000.
    pub(super) async fn file(&self) -> (NodeRef, NodeRef) {
        let root = Cred::root();
        let own = |mode| SetAttr {
            mode: Some(mode),
            uid: Some(1000),
            gid: Some(1000),
            ..SetAttr::default()
        };
        let dir = self.root.mkdir(Acting::caller(&root), b"d", own(0o755)).await.unwrap().node;
        let file = dir
            .create(Acting::caller(&root), b"f", CreateHow::Guarded, own(0o640))
            .await
            .unwrap()
            .node;
        (dir, file)
    }

    async fn may(&self, uid: u32, n: &(NodeRef, NodeRef), desired: u32) -> Result<u32, Status> {
        self.may_as(self.tree(uid).cred, n, desired).await
    }

    async fn may_as(
        &self,
        cred: Cred,
        n: &(NodeRef, NodeRef),
        desired: u32,
    ) -> Result<u32, Status> {
        let attr = n.1.getattr().await.unwrap();
        let tree = Tree { cred, ..self.tree(0) };
        granted(&tree, &n.1, &attr, Some(&n.0), desired).await.map(|g| g.access)
    }

    async fn set(
        &self,
        uid: u32,
        node: &NodeRef,
        parts: u32,
        sd: SecurityDescriptor,
    ) -> Result<(), Status> {
        set(&self.tree(uid), &self.namespace.by_smb(None), &self.share, node, parts, sd).await
    }
}

pub(super) fn list(aces: Vec<Ace>) -> SecurityDescriptor {
    SecurityDescriptor {
        control: control::DACL_PRESENT,
        dacl: Some(Acl::new(aces)),
        ..Default::default()
    }
}

pub(super) fn block_on<T>(f: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(f)
}

#[test]
fn without_a_descriptor_mode_bits_decide() {
    block_on(async {
        let w = world();
        let n = w.file().await;
        assert_eq!(w.may(1000, &n, mask::MAXIMUM_ALLOWED).await, Ok(mask::FILE_ALL));
        assert_eq!(w.may(1000, &n, mask::GENERIC_WRITE).await, Ok(mask::FILE_WRITE));
        assert_eq!(w.may(2000, &n, mask::READ_DATA).await, Err(Status::ACCESS_DENIED));
        assert_eq!(w.may(2000, &n, mask::READ_ATTRIBUTES).await, Ok(mask::READ_ATTRIBUTES));
        assert_eq!(w.may(2000, &n, mask::DELETE).await, Err(Status::ACCESS_DENIED));
        assert_eq!(w.may(2000, &n, 1 << 9).await, Err(Status::ACCESS_DENIED), "no such bit");
        let sacl = w.may(1000, &n, mask::ACCESS_SYSTEM_SECURITY).await;
        assert_eq!(sacl, Err(Status::PRIVILEGE_NOT_HELD));
    });
}

#[test]
fn a_descriptor_decides_until_somebody_changes_the_mode() {
    block_on(async {
        let w = world();
        let n = w.file().await;
        let bob = Ace::allow(sid_of_uid(2000), mask::FILE_READ, 0);
        w.set(1000, &n.1, part::DACL, list(vec![bob])).await.unwrap();
        let attr = n.1.getattr().await.unwrap();
        assert_eq!(attr.mode, 0, "nobody's class has what only one user has");
        assert_eq!(w.may(2000, &n, mask::GENERIC_READ).await, Ok(mask::FILE_READ));
        assert_eq!(w.may(2000, &n, mask::WRITE_DATA).await, Err(Status::ACCESS_DENIED));
        let owner = w.may(1000, &n, mask::READ_DATA).await;
        assert_eq!(owner, Err(Status::ACCESS_DENIED), "not even the owner, by SMB");
        let read = w.may(1000, &n, mask::WRITE_DAC).await;
        assert_eq!(read, Ok(mask::WRITE_DAC), "who may give himself the right");
        let deleted = w.may(1000, &n, mask::DELETE).await;
        assert_eq!(deleted, Ok(mask::DELETE), "by the directory");
        let set = SetAttr { mode: Some(0o644), ..SetAttr::default() };
        n.1.setattr(&Cred::root(), set, false).await.unwrap();
        assert_eq!(w.may(2000, &n, mask::READ_DATA).await, Ok(mask::READ_DATA));
        assert_eq!(w.may(1000, &n, mask::READ_DATA).await, Ok(mask::READ_DATA));
    });
}

#[test]
fn a_list_that_is_a_mode_changes_the_mode() {
    block_on(async {
        let w = world();
        let n = w.file().await;
        let mode = |mode| Ace::allow(Sid::unix_mode(mode), 0, 0);
        let bob = Ace::allow(sid_of_uid(2000), mask::FILE_READ | mask::WRITE_DAC, 0);
        w.set(1000, &n.1, part::DACL, list(vec![bob])).await.unwrap();
        w.set(2000, &n.1, part::DACL, list(vec![mode(0o4755)])).await.unwrap();
        assert_eq!(n.1.getattr().await.unwrap().mode, 0o755, "who is not the owner");
        w.set(1000, &n.1, part::DACL, list(vec![mode(0o4755)])).await.unwrap();
        assert_eq!(n.1.getattr().await.unwrap().mode, 0o4755, "the owner");
        w.set(1000, &n.1, part::DACL, list(vec![mode(0o100_640)])).await.unwrap();
        let attr = n.1.getattr().await.unwrap();
        assert_eq!(attr.mode, 0o640);
        assert_eq!(w.may(1000, &n, mask::WRITE_DATA).await, Ok(mask::WRITE_DATA));
        // Next to other entries it grants no access: this is how clients store a mode on servers that do not know it.
        let everyone = Ace::allow(Sid::everyone(), mask::FILE_READ, 0);
        w.set(1000, &n.1, part::DACL, list(vec![mode(0o777), everyone])).await.unwrap();
        let attr = n.1.getattr().await.unwrap();
        assert_eq!(attr.mode, 0o444);
        assert!(n.1.acl(&attr).await.unwrap().is_some());
        // It is not a mode either if the request sets more than the list.
        let mut both = list(vec![mode(0o777)]);
        both.group = Some(sid_of_gid(1000));
        w.set(1000, &n.1, part::DACL | part::GROUP, both).await.unwrap();
        assert_eq!(n.1.getattr().await.unwrap().mode & 0o777, 0);
    });
}

#[test]
fn parts_are_set_and_shown_by_themselves() {
    block_on(async {
        let w = world();
        let n = w.file().await;
        let mut sd = list(vec![]);
        sd.owner = Some(sid_of_uid(2000));
        let foreign = w.set(1000, &n.1, part::OWNER, sd.clone()).await;
        assert_eq!(foreign, Err(Status::INVALID_OWNER), "an owner cannot give a file away");
        w.set(1000, &n.1, part::DACL, sd.clone()).await.unwrap();
        let attr = n.1.getattr().await.unwrap();
        let now = descriptor(&n.1, &attr, None).await.unwrap();
        assert_eq!(
            (now.owner.clone(), now.dacl.clone()),
            (Some(sid_of_uid(1000)), Some(Acl::new(vec![])))
        );
        let owner = only(now, part::OWNER);
        assert_eq!((owner.dacl, owner.group, owner.owner.is_some()), (None, None, true));
        w.set(2000, &n.1, part::OWNER, sd).await.unwrap();
        assert_eq!(n.1.getattr().await.unwrap().uid, 2000, "whoever may, makes itself the owner");
    });
}

#[test]
fn new_files_inherit_what_the_directory_has() {
    use vfs::acl::flag::{CONTAINER_INHERIT, OBJECT_INHERIT};
    block_on(async {
        let w = world();
        let (dir, file) = w.file().await;
        let tree = w.tree(1000);
        let attr = file.getattr().await.unwrap();
        inherit((&tree, &w.share), false, (&file, &attr), (0o666, None), None).await.unwrap();
        assert_eq!(file.acl(&attr).await.unwrap(), None, "nothing to inherit");
        let all = Ace::allow(Sid::everyone(), mask::FILE_READ, OBJECT_INHERIT | CONTAINER_INHERIT);
        w.set(1000, &dir, part::DACL, list(vec![all])).await.unwrap();
        let set = SetAttr { mode: Some(0o666), umask: 0o022, ..SetAttr::default() };
        let file_ops = w.namespace.by_smb(None);
        let root = Cred::root();
        let made = file_ops.create(&w.share, &dir, &root, b"g", CreateHow::Guarded, set).await;
        let (node, attr) = made.map(|m| (m.node, m.attr)).unwrap();
        inherit((&tree, &w.share), true, (&node, &attr), (0o666, None), None).await.unwrap();
        assert_eq!(attr.mode & 0o777, 0o444);
        let sd = descriptor(&node, &attr, None).await.unwrap();
        assert_eq!(sd.dacl.unwrap().aces, [Ace::allow(Sid::everyone(), mask::FILE_READ, 0)]);
        assert_eq!(
            may_add(&tree, &dir, &dir.getattr().await.unwrap(), false).await.map(drop),
            Err(Status::ACCESS_DENIED)
        );
    });
}

#[test]
fn where_a_list_passes_nothing_on_owner_and_system_have_all() {
    block_on(async {
        let w = world();
        let (dir, file) = w.file().await;
        w.set(1000, &dir, part::DACL, list(vec![])).await.unwrap();
        let attr = file.getattr().await.unwrap();
        inherit((&w.tree(1000), &w.share), true, (&file, &attr), (0o666, None), None)
            .await
            .unwrap();
        let attr = file.getattr().await.unwrap();
        let sd = descriptor(&file, &attr, None).await.unwrap();
        let all = |sid| Ace::allow(sid, mask::FILE_ALL, 0);
        assert_eq!(sd.dacl.unwrap().aces, [all(sid_of_uid(1000)), all(Sid::system())]);
        assert_eq!(attr.mode & 0o777, 0o600);
    });
}

#[test]
fn list_of_new_file_obeys_masks() {
    block_on(async {
        let w = world();
        let (dir, file) = w.file().await;
        let all = list(vec![Ace::allow(Sid::everyone(), mask::FILE_ALL, 0)]);
        // Both if the client sent a list and if the directory's list has no inheritable entries.
        for (given, node) in [(None, &file), (Some(&all), &file), (Some(&all), &dir)] {
            let attr = node.getattr().await.unwrap();
            let (made, modes) = ((node, &attr), (0o777, Some(0o640)));
            inherit((&w.tree(1000), &w.share), true, made, modes, given).await.unwrap();
            let attr = node.getattr().await.unwrap();
            assert_eq!(attr.mode & 0o777 & !0o640, 0, "{:o}", attr.mode);
            let acl = node.acl(&attr).await.unwrap().unwrap();
            let stranger = Cred { uid: 5, gid: 5, groups: Arc::new([]), token: vfs::Token::NONE };
            let may = acl.allowed(&stranger, Owner::of(&attr));
            assert_eq!(may & (mask::READ_DATA | mask::WRITE_DATA), 0);
            // Windows runs a program without an execute bit; traversing a directory needs one.
            let is_run = given.is_some() && attr.kind != Kind::Dir;
            let runs = if is_run { mask::EXECUTE } else { 0 };
            assert_eq!(may & mask::EXECUTE, runs);
        }
    });
}

/// A list with only these rights for one user.
fn bob(rights: u32) -> SecurityDescriptor {
    list(vec![Ace::allow(sid_of_uid(2000), rights, 0)])
}

pub(super) async fn now(node: &NodeRef) -> (Attr, SecurityDescriptor) {
    let attr = node.getattr().await.unwrap();
    (attr, descriptor(node, &attr, None).await.unwrap())
}

fn mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

#[test]
fn each_class_may_what_its_mode_bits_say() {
    block_on(async {
        let w = world();
        let (dir, file) = w.file().await;
        for (node, bits) in
            [&dir, &file].into_iter().flat_map(|node| (0..8).map(move |b| (node, b)))
        {
            for (uid, mode_of) in [(1000, bits << 6), (2000, bits)] {
                let set = mode(mode_of);
                node.setattr(&Cred::root(), set, false).await.unwrap();
                let attr = node.getattr().await.unwrap();
                let is_dir = attr.kind == Kind::Dir;
                // Changing names in a directory needs the right to look them up.
                let has = if is_dir && bits & 1 == 0 { bits & !2 } else { bits };
                let said = check::rights_of_class(has, is_dir, uid == 1000);
                let may = maximal(&w.tree(uid), node, &attr, None).await;
                let wanted = said & !mask::DELETE | mask::READ_ATTRIBUTES;
                assert_eq!(may, Ok(wanted), "{uid} {mode_of:o} {:?}", attr.kind);
            }
        }
    });
}

#[test]
fn the_root_of_a_share_is_nobodys_to_delete_and_gives_no_more_than_it_has() {
    block_on(async {
        let w = world();
        w.root.setattr(&Cred::root(), mode(0o755), false).await.unwrap();
        let attr = w.root.getattr().await.unwrap();
        for (uid, right, may) in [
            (2000, mask::READ_DATA, true),
            (2000, mask::WRITE_DATA, false),
            (2000, mask::DELETE, false),
            (0, mask::WRITE_DATA, true),
            (0, mask::ACCESS_SYSTEM_SECURITY, true),
            (0, mask::DELETE, false),
        ] {
            let got = granted(&w.tree(uid), &w.root, &attr, None, right).await.map(|g| g.access);
            let wanted = if may { Ok(right) } else { Err(Status::ACCESS_DENIED) };
            assert_eq!(got, wanted, "{uid} {right:x}");
        }
    });
}

#[test]
fn a_directory_gives_the_right_to_delete_by_its_list_alone() {
    block_on(async {
        let w = world();
        let n = w.file().await;
        w.set(1000, &n.0, part::DACL, bob(mask::FILE_READ)).await.unwrap();
        assert_eq!(w.may(2000, &n, mask::DELETE).await, Err(Status::ACCESS_DENIED));
        let all = w.may(2000, &n, mask::MAXIMUM_ALLOWED).await.unwrap();
        assert_eq!(all & mask::DELETE, 0);
        w.set(1000, &n.0, part::DACL, bob(mask::DELETE_CHILD)).await.unwrap();
        assert_eq!(w.may(2000, &n, mask::DELETE).await, Ok(mask::DELETE));
        // The share's own limits come last.
        let tree = Tree { maximal_access: mask::FILE_READ, ..w.tree(2000) };
        let attr = n.1.getattr().await.unwrap();
        let got = granted(&tree, &n.1, &attr, Some(&n.0), mask::DELETE).await;
        assert_eq!(got.err(), Some(Status::ACCESS_DENIED));
    });
}

#[test]
fn what_is_made_needs_the_right_of_its_kind_by_list_and_share() {
    const BOTH: u32 = mask::WRITE_DATA | mask::APPEND_DATA;
    block_on(async {
        let denied = Err(Status::ACCESS_DENIED);
        for (is_dir, right) in [(false, mask::WRITE_DATA), (true, mask::APPEND_DATA)] {
            let w = world();
            let (dir, _) = w.file().await;
            let attr = dir.getattr().await.unwrap();
            let may = async |maximal_access: u32, attr: &Attr| {
                let tree = Tree { maximal_access, ..w.tree(2000) };
                may_add(&tree, &dir, attr, is_dir).await.map(|g| g.map(|g| g.rights()))
            };
            assert_eq!(may(mask::FILE_ALL, &attr).await, Ok(None), "the kernel decides");
            assert_eq!(may(mask::FILE_ALL & !right, &attr).await, denied, "the share");
            w.set(1000, &dir, part::DACL, bob(BOTH ^ right)).await.unwrap();
            let attr = dir.getattr().await.unwrap();
            assert_eq!(may(mask::FILE_ALL, &attr).await, denied, "the list");
            w.set(1000, &dir, part::DACL, bob(mask::FILE_ALL)).await.unwrap();
            let attr = dir.getattr().await.unwrap();
            let with_child = right | mask::DELETE_CHILD;
            assert_eq!(may(mask::FILE_ALL, &attr).await, Ok(Some(with_child)));
            assert_eq!(may(right, &attr).await, Ok(Some(right)));
        }
    });
}

#[test]
fn whoever_may_list_or_change_a_directory_passes_through_it() {
    block_on(async {
        let w = world();
        let (dir, _) = w.file().await;
        let someone = w.tree(2000).cred;
        for right in (0..21).map(|bit| 1 << bit).filter(|right| right & mask::FILE_ALL != 0) {
            w.set(1000, &dir, part::DACL, bob(right)).await.unwrap();
            let passes = [mask::READ_DATA, mask::WRITE_DATA, mask::APPEND_DATA, mask::EXECUTE]
                .contains(&right);
            assert_eq!(may_pass(&someone, &dir).await.unwrap().is_some(), passes, "{right:x}");
            let takes = may_take_from(&someone, &dir).await.unwrap().unwrap().rights();
            assert_eq!(takes, right & mask::DELETE_CHILD);
        }
    });
}

#[test]
fn which_list_something_new_gets() {
    use ListOfNew::{Given, Inherited, InheritedOrGiven};
    let (dacl, owner) = (list(vec![]), SecurityDescriptor::default());
    for (is_listed, given, which) in [
        (false, None, Inherited),
        (true, None, InheritedOrGiven),
        (false, Some(&dacl), Given),
        (true, Some(&dacl), Given),
        (false, Some(&owner), InheritedOrGiven),
        (true, Some(&owner), InheritedOrGiven),
    ] {
        assert_eq!(list_of_new(is_listed, given), which, "{is_listed} {given:?}");
    }
}

#[test]
fn something_new_keeps_what_came_with_it_and_nothing_else() {
    use control::*;
    block_on(async {
        let w = world();
        let (_, file) = w.file().await;
        let everyone = || Ace::allow(Sid::everyone(), mask::FILE_ALL, 0);
        // An inherited list without a client's list remains unchanged, whatever the share's masks would leave of it.
        w.set(1000, &file, part::DACL, list(vec![everyone()])).await.unwrap();
        let (attr, before) = now(&file).await;
        let modes = (0o600, Some(0o600));
        inherit((&w.tree(1000), &w.share), true, (&file, &attr), modes, None).await.unwrap();
        assert_eq!(now(&file).await, (attr, before));
        // A list from the client replaces the inherited one; of its control bits those about inheritance are kept.
        let mut given = list(vec![Ace::allow(sid_of_uid(2000), mask::FILE_READ, 0)]);
        given.control |=
            DACL_PROTECTED | DACL_DEFAULTED | DACL_AUTO_INHERIT_REQ | DACL_AUTO_INHERITED;
        inherit((&w.tree(1000), &w.share), true, (&file, &attr), (0o666, None), Some(&given))
            .await
            .unwrap();
        let (_, sd) = now(&file).await;
        let said = SELF_RELATIVE | DACL_PRESENT | DACL_PROTECTED | DACL_AUTO_INHERITED;
        assert_eq!((sd.control, sd.dacl), (said, given.dacl));
        // A descriptor without a list keeps the inherited one.
        let audit = Acl::new(vec![Ace::allow(Sid::everyone(), mask::FILE_READ, 0)]);
        let (attr, before) = now(&file).await;
        let mut given = SecurityDescriptor { sacl: Some(audit.clone()), ..Default::default() };
        given.control = SACL_PRESENT | SACL_PROTECTED | SACL_DEFAULTED;
        inherit((&w.tree(1000), &w.share), true, (&file, &attr), (0o666, None), Some(&given))
            .await
            .unwrap();
        let (_, sd) = now(&file).await;
        let said = said | SACL_PRESENT | SACL_PROTECTED;
        assert_eq!((sd.control, sd.dacl, sd.sacl), (said, before.dacl, Some(audit)));
    });
}

#[test]
fn something_new_is_run_where_its_maker_said_so() {
    block_on(async {
        let w = world();
        let (_, file) = w.file().await;
        let all = list(vec![Ace::allow(Sid::everyone(), mask::FILE_ALL, 0)]);
        for (has, asked, left) in [
            (0o640, 0o666, 0o666),
            (0o640, 0o766, 0o766),
            (0o651, 0o666, 0o677),
            (0o651, 0o777, 0o777),
        ] {
            file.setattr(&Cred::root(), mode(has), false).await.unwrap();
            let attr = file.getattr().await.unwrap();
            inherit((&w.tree(1000), &w.share), false, (&file, &attr), (asked, None), Some(&all))
                .await
                .unwrap();
            assert_eq!(now(&file).await.0.mode & 0o777, left, "{has:o} {asked:o}");
        }
    });
}

#[test]
fn who_may_be_named_as_owner_and_as_group() {
    let cred = |uid| Cred { uid, gid: uid, groups: Arc::new([50]), token: vfs::Token::NONE };
    let attr = block_on(async { world().root.getattr().await.unwrap() });
    let attr = Attr { gid: 70, ..attr };
    let of_all = [Sid::everyone(), Sid::network(), Sid::authenticated_users()];
    let own = [sid_of_uid(7), sid_of_gid(7), sid_of_gid(50)];
    let others =
        [sid_of_uid(8), sid_of_gid(8), sid_of_gid(70), Sid::system(), Sid::administrators()];
    for (sid, may) in
        of_all.into_iter().chain(own).map(|sid| (sid, true)).chain(others.map(|sid| (sid, false)))
    {
        let sd = SecurityDescriptor { owner: Some(sid), ..Default::default() };
        let wanted = if may { Ok(()) } else { Err(Status::INVALID_OWNER) };
        assert_eq!(may_own(&cred(7), &sd), wanted, "{:?}", sd.owner);
        assert_eq!(may_own(&cred(0), &sd), Ok(()));
    }
    // Groups that this host does not know cannot be assigned.
    for (sid, may) in [
        (sid_of_gid(70), true),
        (sid_of_gid(7), true),
        (sid_of_gid(50), true),
        (sid_of_gid(8), false),
        (Sid::everyone(), true),
    ] {
        let sd = SecurityDescriptor { group: Some(sid), ..Default::default() };
        let wanted = if may { Ok(()) } else { Err(Status::ACCESS_DENIED) };
        assert_eq!(may_group(&cred(7), &sd, &attr), wanted, "{:?}", sd.group);
        assert_eq!(may_group(&cred(0), &sd, &attr), Ok(()));
    }
    let nothing = SecurityDescriptor::default();
    assert_eq!(
        (may_own(&cred(7), &nothing), may_group(&cred(7), &nothing, &attr)),
        (Ok(()), Ok(()))
    );
}

#[test]
fn without_a_list_the_mode_is_shown_by_its_kind() {
    block_on(async {
        let w = world();
        let (dir, file) = w.file().await;
        for (node, is_dir) in [(dir, true), (file, false)] {
            let (attr, sd) = now(&node).await;
            let (owner, group) = (sid_of_uid(1000), sid_of_gid(1000));
            assert_eq!(sd, check::of_mode(attr.mode, is_dir, &owner, &group));
        }
    });
}

#[test]
fn each_part_needs_its_right_and_is_shown_alone() {
    use control::*;
    use mask::{ACCESS_SYSTEM_SECURITY as SECURITY, READ_CONTROL, WRITE_DAC, WRITE_OWNER};
    let rights = [
        (part::OWNER, READ_CONTROL, WRITE_OWNER),
        (part::GROUP, READ_CONTROL, WRITE_OWNER),
        (part::LABEL, READ_CONTROL, WRITE_OWNER),
        (part::DACL, READ_CONTROL, WRITE_DAC),
        (part::ATTRIBUTE, READ_CONTROL, WRITE_DAC),
        (part::SCOPE, READ_CONTROL, SECURITY),
        (part::SACL, SECURITY, SECURITY),
        (part::BACKUP, 0, WRITE_DAC | WRITE_OWNER | SECURITY),
    ];
    for (one, reads, writes) in rights {
        for (other, reads_too, writes_too) in rights {
            assert_eq!(needs(one | other, false), reads | reads_too, "{one:x} {other:x}");
            assert_eq!(needs(one | other, true), writes | writes_too, "{one:x} {other:x}");
        }
    }
    let dacl = DACL_PRESENT | DACL_DEFAULTED | DACL_AUTO_INHERITED | DACL_PROTECTED;
    let sacl = SACL_PRESENT | SACL_DEFAULTED | SACL_AUTO_INHERITED | SACL_PROTECTED;
    let whole = SecurityDescriptor {
        control: SELF_RELATIVE | dacl | sacl,
        owner: Some(sid_of_uid(1)),
        group: Some(sid_of_gid(2)),
        sacl: Some(Acl::new(vec![])),
        dacl: Some(Acl::new(vec![])),
    };
    for parts in 0..16 {
        let has = |one| parts & one != 0;
        let left = only(whole.clone(), parts);
        let controls =
            if has(part::DACL) { dacl } else { 0 } | if has(part::SACL) { sacl } else { 0 };
        assert_eq!(left.control, SELF_RELATIVE | controls, "{parts:x}");
        let there =
            (left.owner.is_some(), left.group.is_some(), left.dacl.is_some(), left.sacl.is_some());
        let wanted = (has(part::OWNER), has(part::GROUP), has(part::DACL), has(part::SACL));
        assert_eq!(there, wanted);
    }
}

#[test]
fn only_the_parts_that_are_set_change() {
    use control::*;
    let dacl_bits = DACL_AUTO_INHERITED | DACL_PROTECTED | DACL_DEFAULTED;
    let sacl_bits = SACL_AUTO_INHERITED | SACL_PROTECTED | SACL_PRESENT;
    let requests = DACL_AUTO_INHERIT_REQ | SACL_AUTO_INHERIT_REQ;
    let one = |rights| Some(Acl::new(vec![Ace::allow(sid_of_uid(2000), rights, 0)]));
    let whole = |control, uid, rights| SecurityDescriptor {
        control,
        owner: Some(sid_of_uid(uid)),
        group: Some(sid_of_gid(uid)),
        sacl: one(rights),
        dacl: one(rights),
    };
    let said = |bits: u16| bits & !requests | SELF_RELATIVE | DACL_PRESENT;
    let bits = DACL_PRESENT | dacl_bits | sacl_bits | requests;
    block_on(async {
        let w = world();
        let (_, file) = w.file().await;
        let all = part::OWNER | part::GROUP | part::DACL | part::SACL;
        // As root, which may set every part; other tests check the rights for each part.
        for parts in 0..16 {
            for (first, second) in [(bits, DACL_PRESENT), (DACL_PRESENT, bits)] {
                let (old, new) =
                    (whole(first, 1000, mask::FILE_READ), whole(second, 3000, mask::FILE_ALL));
                w.set(0, &file, all, old.clone()).await.unwrap();
                w.set(0, &file, parts, new.clone()).await.unwrap();
                let (attr, sd) = now(&file).await;
                let has = |one| parts & one != 0;
                let of = |one| if has(one) { &new } else { &old };
                let owners = (of(part::OWNER).owner.clone(), of(part::GROUP).group.clone());
                assert_eq!((sd.owner, sd.group), owners, "{parts:x}");
                let uid_of = |one| if has(one) { 3000 } else { 1000 };
                assert_eq!((attr.uid, attr.gid), (uid_of(part::OWNER), uid_of(part::GROUP)));
                let lists = (of(part::DACL).dacl.clone(), of(part::SACL).sacl.clone());
                assert_eq!((sd.dacl, sd.sacl), lists, "{parts:x}");
                let dacl = of(part::DACL).control & dacl_bits;
                let sacl = of(part::SACL).control & sacl_bits;
                assert_eq!(sd.control, said(dacl | sacl), "{parts:x} {first:x}");
            }
        }
    });
}

#[test]
fn nothing_changes_where_no_part_is_named_that_is_kept() {
    block_on(async {
        let w = world();
        let (dir, file) = w.file().await;
        w.set(1000, &dir, part::DACL, bob(mask::FILE_READ)).await.unwrap();
        for node in [&file, &dir] {
            let attr = node.getattr().await.unwrap();
            let before = (attr, node.acl(&attr).await.unwrap());
            assert_eq!(before.1.is_some(), attr.kind == Kind::Dir);
            for parts in [0, part::LABEL, part::ATTRIBUTE, part::SCOPE, 1 << 31, 1 << 30, 1 << 12] {
                for new in [SecurityDescriptor::default(), bob(mask::FILE_ALL)] {
                    w.set(2000, node, parts, new).await.unwrap();
                    let attr = node.getattr().await.unwrap();
                    assert_eq!((attr, node.acl(&attr).await.unwrap()), before, "{parts:x}");
                }
            }
        }
    });
}

/// The right to set the owner does not include the right to set the list.
#[test]
fn an_owner_alone_leaves_the_mode_to_decide() {
    block_on(async {
        let w = world();
        let n = w.file().await;
        let given = SecurityDescriptor {
            owner: Some(sid_of_uid(2000)),
            group: Some(sid_of_gid(3000)),
            ..SecurityDescriptor::default()
        };
        w.set(0, &n.1, part::OWNER | part::GROUP, given).await.unwrap();
        let attr = n.1.getattr().await.unwrap();
        assert_eq!((attr.uid, attr.gid, attr.mode & 0o777), (2000, 3000, 0o640));
        assert_eq!(n.1.acl(&attr).await.unwrap(), None);
        // An owner unknown to the host is stored in a list that grants what the mode did.
        let all = SecurityDescriptor { owner: Some(Sid::everyone()), ..Default::default() };
        w.set(2000, &n.1, part::OWNER, all).await.unwrap();
        let (attr, sd) = now(&n.1).await;
        assert_eq!((attr.uid, attr.mode & 0o777, sd.owner), (2000, 0o640, Some(Sid::everyone())));
    });
}

/// A descriptor that a client read and writes back, in part or whole, grants no more than the file does.
#[test]
fn what_is_shown_gives_nobody_more_than_the_mode() {
    block_on(async {
        let w = world();
        let n = w.file().await;
        for bits in 0..0o1000 {
            n.1.setattr(&Cred::root(), mode(bits), false).await.unwrap();
            let (attr, sd) = now(&n.1).await;
            let list = acl::of_descriptor(&sd);
            let of = |uid, gid| Cred { uid, gid, groups: Arc::new([]), token: vfs::Token::NONE };
            for (who, shift) in [(of(1000, 1000), 6), (of(2000, 1000), 3), (of(2000, 2000), 0)] {
                let has = bits >> shift & 7;
                let gives = list.allowed(&who, Owner::of(&attr));
                assert!(has & 4 != 0 || gives & mask::READ_DATA == 0, "{bits:o} {who:?}");
                assert!(has & 2 != 0 || gives & mask::WRITE_DATA == 0, "{bits:o} {who:?}");
            }
        }
    });
}

#[test]
fn a_list_of_the_host_is_shown_and_outlives_a_new_owner() {
    use vfs::acl::posix::{Posix, tag};
    use vfs::local::{LocalBackend, LocalConfig};
    let dir = tempfile::tempdir().unwrap();
    if !rustix::process::geteuid().is_root() {
        println!("skipped: to give files away needs root");
        return;
    }
    block_on(async {
        let w = world_of(LocalBackend::open(LocalConfig::new(dir.path())).unwrap());
        let n = w.file().await;
        // The group has no rights, whatever the mode suggests: its bits are the mask.
        let none = u32::MAX;
        let entries = [
            (tag::USER_OBJ, 6, none),
            (tag::USER, 6, 2000),
            (tag::GROUP_OBJ, 0, none),
            (tag::MASK, 6, none),
            (tag::OTHER, 0, none),
        ];
        let list = Posix::new(entries).unwrap().encode();
        let (path, name) = (dir.path().join("d/f"), "system.posix_acl_access");
        let flags = rustix::fs::XattrFlags::empty();
        if let Err(e) = rustix::fs::setxattr(&path, name, &list, flags) {
            println!("skipped: no access control lists here: {e}");
            return;
        }
        let of = |uid, gid| Cred { uid, gid, groups: Arc::new([]), token: vfs::Token::NONE };
        let may = |sd: &SecurityDescriptor, attr: &Attr| {
            let acl = acl::of_descriptor(sd);
            let may = |who: Cred| acl.allowed(&who, Owner::of(attr)) & mask::READ_DATA != 0;
            (may(of(2000, 2000)), may(of(3000, 1000)))
        };
        let (attr, sd) = now(&n.1).await;
        assert_eq!(attr.mode & 0o777, 0o660);
        assert_eq!(may(&sd, &attr), (true, false), "{sd:?}");
        let group = SecurityDescriptor { group: Some(sid_of_gid(1000)), ..Default::default() };
        w.set(1000, &n.1, part::GROUP, group).await.unwrap();
        let mut room = vec![0; list.len() + 1];
        let len = rustix::fs::getxattr(&path, name, &mut room[..]).unwrap();
        assert_eq!(room[..len], list);
        // An audit entry is stored in a list of the gateway, in place of the host's.
        let audit = SecurityDescriptor { sacl: Some(Acl::new(vec![])), ..Default::default() };
        w.set(0, &n.1, part::SACL, audit).await.unwrap();
        let (attr, sd) = now(&n.1).await;
        assert_eq!(may(&sd, &attr), (true, false), "{sd:?}");
        let got = w.may_as(of(3000, 1000), &n, mask::READ_DATA).await;
        assert_eq!(got, Err(Status::ACCESS_DENIED));
    });
}

#[test]
fn a_list_that_denies_in_ways_that_are_not_obeyed_is_not_kept() {
    block_on(async {
        let w = world();
        let (_, file) = w.file().await;
        for (kind, is_kept) in
            [(5, true), (6, false), (9, true), (10, false), (11, true), (12, false)]
        {
            let other = Ace::Other { kind, flags: 0, body: vec![0; 16] };
            let new = list(vec![other, Ace::allow(Sid::everyone(), mask::FILE_READ, 0)]);
            let wanted = if is_kept { Ok(()) } else { Err(Status::INVALID_ACL) };
            assert_eq!(w.set(1000, &file, part::DACL, new.clone()).await, wanted, "{kind}");
            let attr = file.getattr().await.unwrap();
            let made = (&file, &attr);
            let came =
                inherit((&w.tree(1000), &w.share), false, made, (0o666, None), Some(&new)).await;
            assert_eq!(came, wanted, "{kind}");
        }
    });
}

/// A gateway without a domain stores each of these: there no caller has such a SID.
#[test]
fn denied_aliases_without_members_are_refused() {
    block_on(async {
        let sid = |text: &str| text.parse::<Sid>().unwrap();
        for has_domain in [false, true] {
            let domain = vfs::Domain::new(None);
            let host = if has_domain { vfs::Token::of_host(&domain) } else { vfs::Token::NONE };
            let rules = vfs::namespace::Rules { host, ..Default::default() };
            let w = world_with(MemBackend::new(1 << 20).unwrap(), rules);
            let (_, file) = w.file().await;
            let attr = file.getattr().await.unwrap();
            for (who, flags, is_obeyed) in [
                ("S-1-5-32-551", 0, false),
                ("S-1-5-32-551", vfs::acl::flag::INHERITED, false),
                ("S-1-5-32-551", vfs::acl::flag::PASSING_ON, false),
                ("S-1-5-21-1-2-3-1114", 0, true),
                ("S-1-5-32-545", 0, true),
                ("S-1-1-0", 0, true),
                ("S-1-5-11", 0, true),
                ("S-1-22-1-3000", 0, true),
            ] {
                let denied =
                    Ace::Simple { kind: kind::DENIED, flags, mask: mask::READ_DATA, sid: sid(who) };
                let new = list(vec![denied, Ace::allow(Sid::everyone(), mask::FILE_READ, 0)]);
                let is_kept = is_obeyed || !has_domain;
                let wanted = if is_kept { Ok(()) } else { Err(Status::INVALID_ACL) };
                assert_eq!(w.set(1000, &file, part::DACL, new.clone()).await, wanted, "{who}");
                let at = (&w.tree(1000), &*w.share);
                let came = inherit(at, false, (&file, &attr), (0o666, None), Some(&new)).await;
                assert_eq!(came, wanted, "{who}");
            }
            let allowed = Ace::allow(sid("S-1-5-21-1-2-3-1114"), mask::FILE_READ, 0);
            assert_eq!(w.set(1000, &file, part::DACL, list(vec![allowed])).await, Ok(()));
        }
    });
}

/// MS-DTYP section 2.4.4.16: ignoring a policy would grant what it denies.
#[test]
fn a_central_access_policy_is_refused() {
    block_on(async {
        let w = world();
        let (_, file) = w.file().await;
        let attr = file.getattr().await.unwrap();
        let sacl = |kind| SecurityDescriptor {
            control: control::SACL_PRESENT,
            sacl: Some(Acl::new(vec![Ace::Other { kind, flags: 0, body: vec![0; 16] }])),
            ..Default::default()
        };
        const ATTRIBUTE: u8 = 0x12;
        const POLICY: u8 = 0x13;
        for (kind, wanted) in [(ATTRIBUTE, Ok(())), (POLICY, Err(Status::INVALID_ACL))] {
            for parts in [part::SACL, part::SCOPE, part::BACKUP, part::SCOPE | part::SACL] {
                assert_eq!(
                    w.set(0, &file, parts, sacl(kind)).await,
                    wanted,
                    "{kind:#x} {parts:#x}"
                );
            }
            let (at, new) = ((&w.tree(0), &*w.share), sacl(kind));
            let came = inherit(at, false, (&file, &attr), (0o666, None), Some(&new)).await;
            assert_eq!(came, wanted, "{kind:#x}");
        }
        let none = SecurityDescriptor { sacl: Some(Acl::new(vec![])), ..sacl(ATTRIBUTE) };
        assert_eq!(w.set(0, &file, part::SCOPE, none).await, Ok(()), "the policy is taken away");
    });
}

/// Returns the rights of a file's owner, a member of its group, another user and one more.
async fn all_may(w: &World, n: &(NodeRef, NodeRef)) -> [u32; 4] {
    let of = |uid, gid| Cred { uid, gid, groups: Arc::new([]), token: vfs::Token::NONE };
    let mut rights = [0; 4];
    for (has, cred) in rights.iter_mut().zip([of(1000, 1), of(2, 1000), of(3, 3), of(7, 7)]) {
        *has = w.may_as(cred, n, mask::MAXIMUM_ALLOWED).await.unwrap();
    }
    rights
}

/// An NFS 4 or SMB client sets a list that it read, unchanged or with one more entry: the entry's user gets its rights, and all
/// others keep theirs.
#[test]
fn an_entry_more_takes_from_no_other() {
    block_on(async {
        let w = world();
        let (top, file) = w.file().await;
        let root = Cred::root();
        let dir = top.mkdir(Acting::caller(&root), b"d", mode(0o700)).await.unwrap().node;
        let ids = SetAttr { uid: Some(1000), gid: Some(1000), ..SetAttr::default() };
        let read = mask::FILE_READ;
        for node in [file, dir] {
            node.setattr(&Cred::root(), ids, false).await.unwrap();
            let n = (top.clone(), node.clone());
            for bits in 0..=0o777_u32 {
                // By mode bits, a user that may write a folder but not search it cannot change it; by a list it can add to it.
                if node.kind() == Kind::Dir && bits >> 1 & !bits & 0o111 != 0 {
                    continue;
                }
                for more in [None, Some(read)] {
                    let fresh = async || {
                        node.side_set(vfs::acl::NAME, None).await.unwrap();
                        node.setattr(&Cred::root(), mode(bits), false).await.unwrap();
                        (all_may(&w, &n).await, node.getattr().await.unwrap())
                    };
                    let check = async |before: [u32; 4], by: &str| {
                        let after = all_may(&w, &n).await;
                        assert_eq!(
                            after[..3],
                            before[..3],
                            "{by} {bits:o} {more:?} {:?}",
                            node.kind()
                        );
                        let wanted = before[3] | more.unwrap_or(0);
                        assert_eq!(after[3] & wanted, wanted, "{by} {bits:o}");
                        let grown = after[3] & !wanted & !mask::EXECUTE;
                        assert_eq!(grown, 0, "{by} {bits:o} {more:?}");
                    };
                    let (before, attr) = fresh().await;
                    let mut list = vfs::acl::Acl::clone(&*node.acl_shown(&attr).await.unwrap());
                    let entry = |m| vfs::acl::Ace::allow(Who::User(7), m, 0);
                    list.entries
                        .iter_mut()
                        .for_each(|all| all.splice(0..0, more.map(entry)).for_each(drop));
                    let file_ops = w.namespace.by(None);
                    file_ops.acl_change(&w.share, &node, &Cred::root(), &list).await.unwrap();
                    check(before, "NFS").await;
                    let (before, attr) = fresh().await;
                    let mut sd = descriptor(&node, &attr, None).await.unwrap();
                    if let Some(more) = more {
                        sd.dacl
                            .as_mut()
                            .unwrap()
                            .aces
                            .insert(0, Ace::allow(sid_of_uid(7), more, 0));
                    }
                    w.set(0, &node, part::DACL, sd).await.unwrap();
                    check(before, "SMB").await;
                }
            }
        }
    });
}

/// A POSIX ACL as Windows clients see it: each entry has the rights of its three bits.
#[test]
fn a_shown_list_of_the_host_gives_what_its_bits_mean() {
    use vfs::acl::posix::{self, tag};
    let value = |entries: [(u16, u32, u32); 6]| {
        let mut out = 2_u32.to_le_bytes().to_vec();
        for (tag, bits, id) in entries {
            out.extend(tag.to_le_bytes());
            out.extend(u16::try_from(bits).unwrap().to_le_bytes());
            out.extend(id.to_le_bytes());
        }
        out
    };
    let attr = block_on(async { now(&world().file().await.1).await.0 });
    let owner = Owner { uid: 1000, gid: 50 };
    let attr = Attr { uid: 1000, gid: 50, ..attr };
    for all in 0..0o100_0000_u32 {
        // Each list takes microseconds; every seventh one still covers every pair of bits.
        if all % 7 != 0 {
            continue;
        }
        let [own, user, group, members, limit, other] =
            [15, 12, 9, 6, 3, 0].map(|shift| all >> shift & 7);
        let none = u32::MAX;
        let list = posix::list(
            0,
            Some(&value([
                (tag::USER_OBJ, own, none),
                (tag::USER, user, 1001),
                (tag::GROUP_OBJ, group, none),
                (tag::GROUP, members, 51),
                (tag::MASK, limit, none),
                (tag::OTHER, other, none),
            ])),
            None,
            false,
        );
        let shown = check::as_windows(&list.unwrap(), &attr);
        for (uid, gid, bits) in [
            (1000, 9, own),
            (1001, 9, user & limit),
            (9, 50, group & limit),
            (9, 51, members & limit),
            (9, 9, other),
        ] {
            let cred = Cred { uid, gid, groups: Arc::new([]), token: vfs::Token::NONE };
            let has = shown.allowed(&cred, owner);
            let wanted = check::rights_of_class(bits, false, uid == 1000) & !mask::DELETE;
            let data = mask::READ_DATA | mask::WRITE_DATA | mask::APPEND_DATA;
            assert_eq!((has ^ wanted) & data, 0, "{all:o} {uid} {gid} {has:x} {wanted:x}");
            assert_eq!(wanted & !has, 0, "{all:o} {uid} {gid}: less");
        }
    }
}
