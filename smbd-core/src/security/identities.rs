//! Owners, groups and entries with SIDs of a domain, as clients set and read them.

use vfs::mem::MemBackend;
use vfs::{Domain, DomainIdentity, Token};

use super::tests::{World, block_on, list, now, world_with};
use super::*;
use crate::dtyp::Ace;

/// As [`super::granted`], without privileges.
pub(super) async fn granted(
    tree: &Tree,
    node: &NodeRef,
    attr: &Attr,
    parent: Option<&NodeRef>,
    desired: u32,
) -> Result<Granted, Status> {
    super::granted(tree, node, attr, parent.map(Parent::of), (desired, &Asked::nothing())).await
}

/// As [`super::inherit`], without privileges.
pub(super) async fn inherit(
    at: (&Tree, &Share),
    is_listed: bool,
    made: (&NodeRef, &Attr),
    modes: (u32, Option<u32>),
    given: Option<&SecurityDescriptor>,
) -> Result<(), Status> {
    super::inherit(at, is_listed, made, modes, (given, &Asked::nothing())).await
}

/// As [`super::may_own`], without privileges.
pub(super) fn may_own(cred: &Cred, sd: &SecurityDescriptor) -> Result<(), Status> {
    super::may_own(cred, sd, &Asked::nothing())
}

/// As [`super::may_group`], without privileges.
pub(super) fn may_group(cred: &Cred, sd: &SecurityDescriptor, attr: &Attr) -> Result<(), Status> {
    super::may_group(cred, sd, attr, &Asked::nothing())
}

/// As [`super::set`], without privileges.
pub(super) async fn set(
    tree: &Tree,
    file_ops: &FileOps<'_>,
    share: &Share,
    node: &NodeRef,
    parts: u32,
    sd: SecurityDescriptor,
) -> Result<(), Status> {
    super::set(tree, file_ops, share, node, (parts, &Asked::nothing()), sd).await
}

const BASE: u32 = 100_000;
const ALICE: u32 = 1103;
const BOB: u32 = 1104;
const SALES: u32 = 1114;
const USERS: u32 = 513;

fn sid(rid: u32) -> Sid {
    Sid::new(5, &[21, 1, 2, 3, rid]).unwrap()
}

/// A share of a gateway that maps the domain's RIDs to these uids.
struct Served {
    domain: std::sync::Arc<Domain>,
    world: World,
}

impl Served {
    fn new(base: Option<u32>) -> Self {
        let domain = Domain::new(base);
        let sid = Sid::new(5, &[21, 1, 2, 3]).unwrap();
        domain.know(DomainIdentity { sid, name: "LAB".into(), dns: "lab.test".into() });
        let rules = vfs::namespace::Rules { host: Token::of_host(&domain), ..Default::default() };
        Self { world: world_with(MemBackend::new(1 << 20).unwrap(), rules), domain }
    }

    /// A tree connect of a user that logged on with a ticket.
    fn tree(&self, rid: u32, groups: &[u32]) -> Tree {
        let token = Token::of_ticket(&self.domain, sid(rid), groups.iter().map(|one| sid(*one)));
        let numbers = groups.iter().map(|one| BASE + one).collect();
        let cred = Cred { uid: BASE + rid, gid: BASE + USERS, groups: numbers, token };
        Tree { cred, ..self.world.tree(0) }
    }

    /// A folder and a file of alice.
    async fn file(&self) -> (NodeRef, NodeRef) {
        let (dir, file) = self.world.file().await;
        let own =
            SetAttr { uid: Some(BASE + ALICE), gid: Some(BASE + USERS), ..SetAttr::default() };
        file.setattr(&Cred::root(), own, false).await.unwrap();
        (dir, file)
    }

    async fn set(
        &self,
        tree: &Tree,
        node: &NodeRef,
        parts: u32,
        sd: SecurityDescriptor,
    ) -> Result<(), Status> {
        let (file_ops, share) = (self.world.namespace.by_smb(None), &self.world.share);
        set(tree, &file_ops, share, node, parts, sd).await
    }

    async fn shown(&self, node: &NodeRef) -> SecurityDescriptor {
        let attr = node.getattr().await.unwrap();
        descriptor(node, &attr, Some(&self.domain)).await.unwrap()
    }
}

async fn may(tree: &Tree, n: &(NodeRef, NodeRef), wanted: u32) -> Result<u32, Status> {
    let attr = n.1.getattr().await.unwrap();
    granted(tree, &n.1, &attr, Some(&n.0), wanted).await.map(|g| g.access)
}

fn of_owner(owner: Sid) -> SecurityDescriptor {
    SecurityDescriptor { owner: Some(owner), ..Default::default() }
}

/// A caller by numbers alone matches them also after the gateway has forgotten whose they are.
#[test]
fn list_keeps_numbers_that_are_shown_as_identities() {
    block_on(async {
        let served = Served::new(None);
        let n = served.file().await;
        let admin = Tree { cred: Cred::root(), ..served.tree(ALICE, &[]) };
        let admin = Tree {
            cred: Cred { token: served.tree(ALICE, &[]).cred.token, ..admin.cred },
            ..admin
        };
        let allow = |sid: Sid| Ace::allow(sid, mask::READ_DATA, 0);
        let aces = vec![allow(Sid::unix_user(3001)), allow(Sid::unix_group(3002))];
        let sd = |aces| SecurityDescriptor {
            control: control::DACL_PRESENT,
            dacl: Some(dtyp::Acl::new(aces)),
            ..Default::default()
        };
        served.set(&admin, &n.1, part::DACL, sd(aces)).await.unwrap();
        assert!(served.domain.know_uid(3001, &sid(BOB)));
        assert!(served.domain.know_group(3002, &sid(SALES)));
        let shown = served.shown(&n.1).await.dacl.unwrap();
        assert_eq!(shown.aces, [allow(sid(BOB)), allow(sid(SALES))]);
        // Sent back with an entry more, for a group whose number was not in the list.
        assert!(served.domain.know_group(3003, &sid(USERS)));
        let aces = [&shown.aces[..], &[allow(sid(USERS))]].concat();
        served.set(&admin, &n.1, part::DACL, sd(aces)).await.unwrap();
        let attr = n.1.getattr().await.unwrap();
        let kept = n.1.acl(&attr).await.unwrap().unwrap();
        let whom: Vec<_> = kept
            .entries()
            .iter()
            .map(|ace| match ace {
                vfs::acl::Ace::Simple { who, .. } => who.clone(),
                vfs::acl::Ace::Other { .. } => panic!("{ace:?}"),
            })
            .collect();
        assert_eq!(whom, [Who::User(3001), Who::Members(3002), Who::Sid(sid(USERS))]);
    });
}

#[test]
fn owners_and_groups_show_domain_identities() {
    block_on(async {
        let served = Served::new(Some(BASE));
        let n = served.file().await;
        let shown = served.shown(&n.1).await;
        assert_eq!((shown.owner, shown.group), (Some(sid(ALICE)), Some(sid(USERS))));
        let whom: Vec<_> = shown
            .dacl
            .unwrap()
            .aces
            .into_iter()
            .map(|ace| match ace {
                Ace::Simple { sid, .. } => sid,
                Ace::Other { .. } => unreachable!(),
            })
            .collect();
        assert_eq!(whom, [sid(ALICE), sid(USERS), Sid::everyone()]);
        let (_, without) = now(&n.1).await;
        assert_eq!(without.owner, Some(sid_of_uid(BASE + ALICE)), "in no domain");
    });
}

/// A client may write back the descriptor that it read, and a list with only domain SIDs does not change the owner's rights in it.
#[test]
fn lists_of_domain_identities_keep_their_owner() {
    block_on(async {
        let served = Served::new(Some(BASE));
        let n = served.file().await;
        let (alice, bob) = (served.tree(ALICE, &[USERS, SALES]), served.tree(BOB, &[USERS]));
        let aces = vec![
            Ace::allow(sid(ALICE), mask::FILE_ALL, 0),
            Ace::allow(sid(SALES), mask::FILE_READ, 0),
        ];
        let mut given = list(aces.clone());
        (given.owner, given.group) = (Some(sid(ALICE)), Some(sid(USERS)));
        let parts = part::OWNER | part::GROUP | part::DACL;
        for _ in 0..2 {
            served.set(&alice, &n.1, parts, given).await.unwrap();
            given = served.shown(&n.1).await;
            assert_eq!(given.dacl.as_ref().unwrap().aces, aces);
        }
        assert_eq!(n.1.getattr().await.unwrap().mode, 0o600);
        assert_eq!(may(&alice, &n, mask::FILE_ALL).await, Ok(mask::FILE_ALL));
        assert_eq!(may(&bob, &n, mask::READ_DATA).await, Err(Status::ACCESS_DENIED));
        let seller = served.tree(BOB, &[USERS, SALES]);
        assert_eq!(may(&seller, &n, mask::READ_DATA).await, Ok(mask::READ_DATA));
        let denied = vec![
            Ace::Simple { kind: kind::DENIED, flags: 0, mask: mask::FILE_ALL, sid: sid(SALES) },
            Ace::allow(Sid::everyone(), mask::FILE_ALL, 0),
        ];
        served.set(&alice, &n.1, part::DACL, list(denied)).await.unwrap();
        assert_eq!(may(&bob, &n, mask::READ_DATA).await, Ok(mask::READ_DATA));
        assert_eq!(may(&seller, &n, mask::READ_DATA).await, Err(Status::ACCESS_DENIED));
        // A logon with a password or AUTH_SYS, which gives only numbers.
        let host = |uid, groups: &[u32]| Tree {
            cred: served.world.share.identified(Cred {
                uid,
                gid: uid,
                groups: groups.into(),
                token: Token::NONE,
            }),
            ..served.world.tree(0)
        };
        let bob = host(BASE + BOB, &[]);
        assert_eq!(may(&bob, &n, mask::READ_DATA).await, Ok(mask::READ_DATA));
        for unsure in [host(BASE + BOB, &[BASE + SALES]), host(1001, &[])] {
            let may = may(&unsure, &n, mask::READ_DATA).await;
            assert_eq!(may, Err(Status::ACCESS_DENIED), "{:?}", unsure.cred);
        }
    });
}

/// MS-FSA section 2.1.5.17.
#[test]
fn owners_are_set_by_domain_identities() {
    block_on(async {
        for base in [Some(BASE), None] {
            let served = Served::new(base);
            let n = served.file().await;
            let (alice, bob) = (served.tree(ALICE, &[USERS]), served.tree(BOB, &[USERS, SALES]));
            served.domain.know_user(BASE + ALICE, &sid(ALICE), "alice");
            let foreign = served.set(&alice, &n.1, part::OWNER, of_owner(sid(BOB))).await;
            assert_eq!(foreign, Err(Status::INVALID_OWNER));
            served.set(&bob, &n.1, part::OWNER, of_owner(sid(BOB))).await.unwrap();
            assert_eq!(n.1.getattr().await.unwrap().uid, BASE + BOB);
            // An owner that is one of the caller's groups is shown as owner, but has no uid.
            served.set(&bob, &n.1, part::OWNER, of_owner(sid(SALES))).await.unwrap();
            assert_eq!(n.1.getattr().await.unwrap().uid, BASE + BOB);
            assert_eq!(served.shown(&n.1).await.owner, Some(sid(SALES)));
            // Another user that writes the list does not change the owner.
            let all = list(vec![Ace::allow(Sid::everyone(), mask::FILE_ALL, 0)]);
            served.set(&alice, &n.1, part::DACL, all).await.unwrap();
            assert_eq!(n.1.getattr().await.unwrap().uid, BASE + BOB);
            assert_eq!(served.shown(&n.1).await.owner, Some(sid(SALES)));
            let root =
                Tree { cred: served.world.share.identified(Cred::root()), ..served.world.tree(0) };
            served.set(&root, &n.1, part::OWNER, of_owner(sid(ALICE))).await.unwrap();
            assert_eq!(n.1.getattr().await.unwrap().uid, BASE + ALICE);
            // A SID of another domain is stored and shown unchanged.
            let other = Sid::new(5, &[21, 9, 9, 9, 1500]).unwrap();
            served.set(&root, &n.1, part::OWNER, of_owner(other.clone())).await.unwrap();
            assert_eq!(served.shown(&n.1).await.owner, Some(other));
        }
    });
}

/// Domain SIDs that a folder passes on apply to a new owner as well.
#[test]
fn inherited_domain_identities_keep_their_owner() {
    block_on(async {
        let served = Served::new(Some(BASE));
        let (dir, _) = served.file().await;
        let alice = served.tree(ALICE, &[USERS]);
        let flags = vfs::acl::flag::OBJECT_INHERIT | vfs::acl::flag::CONTAINER_INHERIT;
        let passed = vfs::acl::Acl::new(vec![vfs::acl::Ace::allow(
            Who::of_sid(sid(ALICE)),
            mask::FILE_ALL,
            flags,
        )]);
        dir.acl_set(&passed, 0o700).await.unwrap();
        let share = &served.world.share;
        let how = vfs::types::CreateHow::Guarded;
        let set = SetAttr { mode: Some(0o666), ..SetAttr::default() };
        let made = served.world.namespace.create(share, &dir, &alice.cred, b"new", how, set).await;
        let made = made.unwrap();
        assert_eq!((made.attr.uid, made.attr.mode), (BASE + ALICE, 0o600));
        let n = (dir, made.node);
        assert_eq!(may(&alice, &n, mask::READ_DATA).await, Ok(mask::READ_DATA));
    });
}
