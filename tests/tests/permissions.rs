//! One access control list for every protocol, whichever protocol sets or checks it.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use client::connect::Local;
use client::nfs3::{CreateHow, Nfs3, SetAttr};
use client::nfs4::{Ace, Fh, Minor, Nfs4, OpenHow, Stateid};
use client::smb::{Options, Smb, SmbFile, User};
use client::{Credential, Error, NoCallbacks, mount};
use config::Identity;
use headgate_tests::world::World;
use headgate_tests::world::smb::{alice, with_alice};
use smb_proto::NtStatus;
use smb_proto::smb2::create::{Disposition, option};
use smb_proto::smb2::query_info::security_information as part;
use smbd_core::dtyp::descriptor::{control, flag};
use smbd_core::dtyp::{self, Acl, SecurityDescriptor, Sid, mask};

const BOB: u32 = 1001;
const CARL: u32 = 1002;
const RW: u32 = mask::READ_DATA | mask::WRITE_DATA | mask::APPEND_DATA;
/// Equal in NFS 4 and SMB: inherited by files and directories.
const PASSED_ON: u8 = flag::OBJECT_INHERIT | flag::CONTAINER_INHERIT;
const NFSERR_ACCES: u32 = 13;
const NFSERR_BADOWNER: u32 = 10_039;
/// OPEN4_SHARE_ACCESS_WANT_NO_DELEG
const WANT_NO_DELEG: u32 = 0x400;

/// Two SMB users: alice, who is root, and bob.
async fn world() -> (World, tempfile::TempDir) {
    world_with(|_| {}).await
}

/// Starts a gateway with changed settings.
async fn world_with(change: impl FnOnce(&mut config::Settings)) -> (World, tempfile::TempDir) {
    with_alice(|settings| {
        change(settings);
        let mut bob = settings.users[0].clone();
        bob.name = "bob".into();
        bob.identity = Identity { uid: Some(BOB), gid: Some(BOB), groups: Some(Vec::new()) };
        settings.users.push(bob);
    })
    .await
}

async fn smb(world: &World, user: &User) -> Smb {
    let share = ("127.0.0.1", "data");
    let local = Local::default();
    Smb::connect(world.running.smb[0], false, share, user, Options::default(), &local)
        .await
        .unwrap()
}

fn bob() -> User {
    User { name: "bob".into(), ..alice() }
}

/// A user's clients of both versions of NFS, and the root of the share.
struct Nfs {
    v4: Nfs4,
    root4: Fh,
    v3: Nfs3,
    root3: Fh,
}

async fn nfs(world: &World, uid: u32) -> Nfs {
    let (at, local) = (world.running.nfs[0], Local::default());
    let cred = Credential::sys(uid, uid, &[]);
    let rpc = || client::connect::tcp(at, &local, Arc::new(NoCallbacks));
    let name = uid.to_be_bytes();
    let number = u64::from(uid).to_be_bytes();
    let v4 = Nfs4::connect(rpc().await.unwrap(), cred.clone(), Minor::Two, &name, number).await;
    let v4 = v4.unwrap();
    let root4 = v4.walk("/data").await.unwrap();
    let root3 = mount::mount(&rpc().await.unwrap(), &cred, "/data").await.unwrap();
    Nfs { v4, root4, v3: Nfs3::new(rpc().await.unwrap(), cred), root3 }
}

impl Nfs {
    /// Creates a file over version 3.
    async fn make(&self, dir: &Fh, name: &str, mode: u32) -> Fh {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.v3.create(dir, name.as_bytes(), CreateHow::Guarded(set)).await.unwrap();
        self.v3.lookup(dir, name.as_bytes()).await.unwrap().0
    }

    async fn find(&self, path: &str) -> Fh {
        self.v4.walk(&format!("/data/{path}")).await.unwrap()
    }

    /// True if the user may open a file in the root for reading; all versions must agree.
    async fn reads(&self, name: &str) -> bool {
        let found = self.v3.lookup(&self.root3, name.as_bytes()).await.unwrap().0;
        let v3 = self.v3.read(&found, 0, 1).await;
        let access = self.v3.access(&found, 1).await.unwrap();
        // A delegation would be recalled before a change of the list.
        let how = OpenHow { want: WANT_NO_DELEG, ..OpenHow::READ };
        let opened = self.v4.open(&self.root4, name.as_bytes(), b"o", how).await;
        match opened {
            Ok(file) => {
                self.v4.close(&file).await.unwrap();
                assert_eq!((v3.is_ok(), access), (true, 1), "{name}");
                true
            }
            Err(Error::Nfs4(_, NFSERR_ACCES)) => {
                assert!(matches!(v3, Err(Error::Nfs3(NFSERR_ACCES))), "{name}");
                assert_eq!(access, 0, "{name}");
                false
            }
            Err(other) => panic!("{name}: {other}"),
        }
    }
}

async fn open(smb: &Smb, name: &str, access: u32) -> Result<SmbFile, NtStatus> {
    match smb.open(name, access, Disposition::Open, 0).await {
        Ok(file) => Ok(file),
        Err(Error::Smb(_, status)) => Err(status),
        Err(other) => panic!("{name}: {other}"),
    }
}

async fn descriptor(smb: &Smb, name: &str) -> SecurityDescriptor {
    let file = open(smb, name, mask::READ_CONTROL).await.unwrap();
    let bytes = smb.security(&file, part::OWNER | part::GROUP | part::DACL).await.unwrap();
    smb.close(file).await.unwrap();
    SecurityDescriptor::parse(&bytes).unwrap()
}

async fn set_list(smb: &Smb, name: &str, aces: Vec<dtyp::Ace>) {
    let sd = SecurityDescriptor {
        control: control::DACL_PRESENT,
        dacl: Some(Acl::new(aces)),
        ..SecurityDescriptor::default()
    };
    let file = open(smb, name, mask::WRITE_DAC).await.unwrap();
    smb.set_security(&file, part::DACL, sd.emit()).await.unwrap();
    smb.close(file).await.unwrap();
}

fn deny(sid: Sid, mask: u32) -> dtyp::Ace {
    dtyp::Ace::Simple { kind: 1, flags: 0, mask, sid }
}

fn allow(who: &str, flags: u8, mask: u32) -> Ace {
    Ace { kind: 0, flags: flags.into(), mask, who: who.into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn smb_list_binds_nfs() {
    let (world, _dir) = world().await;
    let (root, bob_4, carl) =
        (nfs(&world, 0).await, nfs(&world, BOB).await, nfs(&world, CARL).await);
    let (alice, bob_s) = (smb(&world, &alice()).await, smb(&world, &bob()).await);
    let f = root.make(&root.root3, "f", 0o666).await;
    assert!(bob_4.reads("f").await && carl.reads("f").await);
    let everyone = dtyp::Ace::allow(Sid::everyone(), mask::FILE_ALL, 0);
    set_list(&alice, "f", vec![deny(Sid::unix_user(BOB), RW), everyone]).await;
    assert!(!bob_4.reads("f").await);
    assert!(carl.reads("f").await);
    assert!(root.reads("f").await);
    assert_eq!(open(&bob_s, "f", mask::READ_DATA).await.map(drop), Err(NtStatus::ACCESS_DENIED));
    let shown = carl.v4.acl(&carl.find("f").await).await.unwrap().unwrap();
    let denied = Ace { kind: 1, flags: 0, mask: RW, who: BOB.to_string() };
    assert_eq!(shown, [denied, allow("EVERYONE@", 0, mask::FILE_ALL)]);
    assert_eq!(root.v3.getattr(&f).await.unwrap().mode & 0o777, 0o666, "what a mode can say of it");
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nfs_list_binds_smb() {
    let (world, _dir) = world().await;
    let (root, bob_4, carl) =
        (nfs(&world, 0).await, nfs(&world, BOB).await, nfs(&world, CARL).await);
    let (alice, bob_s) = (smb(&world, &alice()).await, smb(&world, &bob()).await);
    root.make(&root.root3, "f", 0o666).await;
    let f = root.find("f").await;
    let plain = root.v4.acl(&f).await.unwrap().unwrap();
    assert_eq!(plain.len(), 3, "mode bits: {plain:?}");
    let list = [
        allow(&BOB.to_string(), 0, mask::READ_DATA | mask::READ_ATTRIBUTES | mask::READ_CONTROL),
        allow("OWNER@", 0, mask::FILE_ALL),
    ];
    root.v4.set_acl(&f, &list).await.unwrap();
    assert_eq!(root.v4.acl(&f).await.unwrap().unwrap(), list);
    assert_eq!(root.v4.getattr(&f).await.unwrap().mode & 0o777, 0o700);
    let denied = carl.v4.set_acl(&f, &list).await;
    assert!(matches!(denied, Err(Error::Nfs4(_, 1))), "nobody but the owner: {denied:?}");
    assert!(bob_4.reads("f").await);
    assert!(!carl.reads("f").await);
    let hidden = carl.v4.acl(&f).await;
    assert!(matches!(hidden, Err(Error::Nfs4(_, NFSERR_ACCES))), "{hidden:?}");
    let file = open(&bob_s, "f", mask::READ_DATA).await.unwrap();
    bob_s.close(file).await.unwrap();
    assert_eq!(open(&bob_s, "f", mask::WRITE_DATA).await.map(drop), Err(NtStatus::ACCESS_DENIED));
    let sd = descriptor(&alice, "f").await;
    let sids: Vec<Sid> = sd
        .dacl
        .unwrap()
        .aces
        .into_iter()
        .filter_map(|a| match a {
            dtyp::Ace::Simple { sid, .. } => Some(sid),
            dtyp::Ace::Other { .. } => None,
        })
        .collect();
    assert_eq!(sids, [Sid::unix_user(BOB), Sid::unix_user(0)]);
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mode_change_binds_all_protocols() {
    use std::os::unix::fs::PermissionsExt;
    let (world, _dir) = world().await;
    let (root, bob_4) = (nfs(&world, 0).await, nfs(&world, BOB).await);
    let bob_s = smb(&world, &bob()).await;
    let f3 = root.make(&root.root3, "f", 0o640).await;
    let f = root.find("f").await;
    let list = [
        allow(&BOB.to_string(), 0, RW | mask::READ_CONTROL | mask::READ_ATTRIBUTES),
        allow("OWNER@", 0, RW),
        allow("GROUP@", 0, RW),
    ];
    root.v4.set_acl(&f, &list).await.unwrap();
    assert!(bob_4.reads("f").await);
    let mode = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    let on_host = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(world.folder().join("f"), mode).unwrap();
    };
    on_host(0o600);
    assert!(!bob_4.reads("f").await, "no more than the group");
    on_host(0o660);
    assert!(bob_4.reads("f").await);
    assert_eq!(root.v4.acl(&f).await.unwrap().unwrap(), list, "as it was set");
    // A client's SETATTR of the mode changes the list even if the number stays the same (RFC 8881 section 6.4.1.1).
    root.v3.setattr(&f3, &mode(0o600)).await.unwrap();
    assert!(!bob_4.reads("f").await, "no more than the group");
    assert_eq!(open(&bob_s, "f", mask::READ_DATA).await.map(drop), Err(NtStatus::ACCESS_DENIED));
    on_host(0o660);
    assert!(!bob_4.reads("f").await, "the list has changed");
    let own = [allow(&BOB.to_string(), 0, RW), allow("OWNER@", 0, RW)];
    root.v4.set_acl(&f, &own).await.unwrap();
    assert_eq!(root.v4.getattr(&f).await.unwrap().mode & 0o777, 0o600);
    assert!(bob_4.reads("f").await);
    root.v4.setattr(&f, Stateid::ANONYMOUS, Some(0o600), None).await.unwrap();
    assert!(!bob_4.reads("f").await, "the same number revokes");
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inheritance_works_across_protocols() {
    let (world, _dir) = world().await;
    let (root, bob_4, carl) =
        (nfs(&world, 0).await, nfs(&world, BOB).await, nfs(&world, CARL).await);
    let (alice, bob_s) = (smb(&world, &alice()).await, smb(&world, &bob()).await);
    // Set over NFS, inherited over SMB.
    let d = root.v4.mkdir(&root.root4, b"nfs", 0o755).await.unwrap();
    let all = [
        allow(&BOB.to_string(), PASSED_ON, mask::FILE_ALL),
        allow("OWNER@", PASSED_ON, mask::FILE_ALL),
    ];
    root.v4.set_acl(&d, &all).await.unwrap();
    let made = bob_s.create("nfs\\of-smb").await.unwrap();
    bob_s.close(made).await.unwrap();
    let found = bob_4.find("nfs/of-smb").await;
    let attr = bob_4.v4.getattr(&found).await.unwrap();
    assert_eq!((attr.owner, attr.mode & 0o777), (BOB.to_string().into_bytes(), 0o600));
    let inherited =
        [allow(&BOB.to_string(), 0, mask::FILE_ALL), allow("OWNER@", 0, mask::FILE_ALL)];
    assert_eq!(bob_4.v4.acl(&found).await.unwrap().unwrap(), inherited);
    let outside = carl.v4.lookup(&d, b"of-smb").await;
    assert!(matches!(outside, Err(Error::Nfs4(_, NFSERR_ACCES))), "{outside:?}");
    // Set over SMB, inherited over NFS.
    let dir = alice.open("smb", mask::FILE_ALL, Disposition::Create, option::DIRECTORY_FILE).await;
    alice.close(dir.unwrap()).await.unwrap();
    let ace = |sid| dtyp::Ace::allow(sid, mask::FILE_ALL, PASSED_ON);
    set_list(&alice, "smb", vec![ace(Sid::unix_user(BOB)), ace(Sid::creator_owner())]).await;
    let dir3 = bob_4.v3.lookup(&bob_4.root3, b"smb").await.unwrap().0;
    bob_4.make(&dir3, "of-nfs", 0o664).await;
    let sd = descriptor(&bob_s, "smb\\of-nfs").await;
    assert_eq!(sd.owner, Some(Sid::unix_user(BOB)));
    let aces = sd.dacl.unwrap().aces;
    assert_eq!(aces[0], dtyp::Ace::allow(Sid::unix_user(BOB), mask::FILE_ALL, 0), "{aces:?}");
    let denied = carl.v4.lookup(&carl.find("smb").await, b"of-nfs").await;
    assert!(matches!(denied, Err(Error::Nfs4(_, NFSERR_ACCES))), "{denied:?}");
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn domain_name_is_equal_across_protocols() {
    let (world, _dir) = world_with(|settings| {
        settings.domain = Some("example.org".parse().unwrap());
        settings.names = config::Names::Own;
    })
    .await;
    let (root, bob_4) = (nfs(&world, 0).await, nfs(&world, BOB).await);
    let bob_s = smb(&world, &bob()).await;
    root.make(&root.root3, "f", 0o600).await;
    let f = root.find("f").await;
    let list = [
        allow("bob@example.org", 0, mask::FILE_ALL),
        allow(&CARL.to_string(), 0, mask::READ_DATA),
        allow("OWNER@", 0, mask::FILE_ALL),
    ];
    root.v4.set_acl(&f, &list).await.unwrap();
    assert_eq!(root.v4.acl(&f).await.unwrap().unwrap(), list, "carl has no name here");
    assert!(bob_4.reads("f").await);
    let aces = descriptor(&bob_s, "f").await.dacl.unwrap().aces;
    assert_eq!(aces[0], dtyp::Ace::allow(Sid::unix_user(BOB), mask::FILE_ALL, 0), "{aces:?}");
    let attr = root.v4.getattr(&f).await.unwrap();
    assert_eq!((&attr.owner[..], &attr.owner_group[..]), (&b"alice@example.org"[..], &b"0"[..]));
    for nobody in ["carl@example.org", "bob@example.com", "bob"] {
        let refused = root.v4.set_acl(&f, &[allow(nobody, 0, 1)]).await;
        assert!(matches!(refused, Err(Error::Nfs4(_, NFSERR_BADOWNER))), "{nobody}: {refused:?}");
    }
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v3_sets_and_shows_host_lists() {
    let (world, _dir) = world().await;
    let (root, bob_4, carl) =
        (nfs(&world, 0).await, nfs(&world, BOB).await, nfs(&world, CARL).await);
    let f3 = root.make(&root.root3, "f", 0o640).await;
    let f = root.find("f").await;
    let plain = [[1, 0, 6], [4, 0, 4], [0x10, 0, 4], [0x20, 0, 0]];
    assert_eq!(root.v3.acl(&f3).await.unwrap(), (plain.to_vec(), vec![]));
    // A list of NFSv4 that version 3 can represent.
    let list = [allow(&BOB.to_string(), 0, RW), allow("OWNER@", 0, RW)];
    root.v4.set_acl(&f, &list).await.unwrap();
    let shown = [[1, 0, 6], [2, BOB, 6], [4, 0, 0], [0x10, 0, 6], [0x20, 0, 0]];
    let hidden = carl.v3.acl(&f3).await;
    assert!(matches!(hidden, Err(Error::Nfs3(NFSERR_ACCES))), "{hidden:?}");
    assert_eq!(root.v3.acl(&f3).await.unwrap().0, shown);
    // A POSIX list in its place.
    let own = [[1, 0, 6], [2, CARL, 4], [4, 0, 0], [0x10, 0, 4], [0x20, 0, 0]];
    let denied = bob_4.v3.set_acl(&f3, &own, &[]).await;
    assert!(matches!(denied, Err(Error::Nfs3(1))), "nobody but the owner: {denied:?}");
    root.v3.set_acl(&f3, &own, &[]).await.unwrap();
    assert_eq!(root.v3.acl(&f3).await.unwrap().0, own);
    assert!(carl.reads("f").await && !bob_4.reads("f").await);
    let seen = root.v4.acl(&f).await.unwrap().unwrap();
    assert!(seen.iter().any(|a| a.kind == 0 && a.who == CARL.to_string()), "{seen:?}");
    assert_eq!(root.v4.getattr(&f).await.unwrap().mode & 0o777, 0o640, "the mask");
    root.v3.set_acl(&f3, &plain, &[]).await.unwrap();
    assert_eq!(root.v3.acl(&f3).await.unwrap().0, plain);
    assert!(!carl.reads("f").await && !bob_4.reads("f").await, "the list of NFSv4 is gone");
    // A folder's default list, and an invalid list.
    let d = root.v4.mkdir(&root.root4, b"d", 0o755).await.unwrap();
    let d3 = root.v3.lookup(&root.root3, b"d").await.unwrap().0;
    let dir = [[1, 0, 7], [4, 0, 5], [0x10, 0, 5], [0x20, 0, 5]];
    let gives = own.map(|[tag, id, bits]| [tag | 0x1000, id, bits]);
    root.v3.set_acl(&d3, &dir, &gives).await.unwrap();
    assert_eq!(root.v3.acl(&d3).await.unwrap(), (dir.to_vec(), gives.to_vec()));
    let made = root.make(&d3, "made", 0o640).await;
    assert_eq!(root.v3.acl(&made).await.unwrap().0, own);
    assert_eq!(root.v4.getattr(&d).await.unwrap().mode & 0o777, 0o755);
    for (list, default) in [(&own[..4], &[][..]), (&own[..], &own[..])] {
        let refused = root.v3.set_acl(&f3, list, default).await;
        assert!(matches!(refused, Err(Error::Nfs3(22))), "{refused:?}");
    }
    world.running.stop().await;
}
