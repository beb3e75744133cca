//! Attributes, exact to the byte where the specification fixes them.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::{Stateid, attr, op};
use nfsrdma::v4::{Domain, NameOfSid, Options, OwnerNames, Unanswered};
use proptest::prelude::*;
use rdma_transport::xdr::Writer;
use vfs::Cred;
use vfs::acl::{Ace, Acl, Sid, Who, mask};

use crate::harness::{Args, Harness, fattr};

/// The attributes that RFC 7530 section 5.6 requires.
const REQUIRED: [u32; 13] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 19];

fn setattr(c: Args, named: &[u32], values: impl FnOnce(&mut Writer)) -> Args {
    c.op(op::SETATTR, |w| {
        w.value(&Stateid::ANONYMOUS);
        fattr(w, named, values);
    })
}

#[tokio::test]
async fn all_required_attributes_are_present() {
    let harness = Harness::new();
    let (_, file) = harness.with_file(b"f", b"hello").await;
    for fh in [harness.nfs.core.handles.above(0).as_bytes(), &file] {
        let mut r = harness.run(|c| c.putfh(fh).getattr(&REQUIRED)).await;
        r.ok(&[op::PUTFH]).expect(op::GETATTR, Status::Ok);
        assert_eq!(r.bitmap(), REQUIRED);
        r.opaque();
        r.end(Status::Ok);
    }
}

#[tokio::test]
async fn minor_version_selects_attributes() {
    let harness = Harness::new();
    let mut r = harness.run(|c| c.data().getattr(&[attr::SUPPORTED_ATTRS])).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::GETATTR, Status::Ok);
    assert_eq!(r.bitmap(), [attr::SUPPORTED_ATTRS]);
    let length = r.u32();
    assert_eq!(length, 12);
    let all = r.bitmap();
    assert!(all.iter().all(|&a| a <= attr::MOUNTED_ON_FILEID));
    assert!(REQUIRED.iter().all(|a| all.contains(a)));
    assert!(all.contains(&attr::ACL) && !all.contains(&attr::FS_LOCATIONS));
    r.end(Status::Ok);
}

#[tokio::test]
async fn values_are_encoded_by_number() {
    let harness = Harness::new();
    let (_, file) = harness.with_file(b"f", b"hello").await;
    let want = [attr::TYPE, attr::SIZE, attr::MODE, attr::NUMLINKS, attr::OWNER, attr::OWNER_GROUP];
    let mut r = harness.run(|c| c.putfh(&file).getattr(&want)).await;
    r.ok(&[op::PUTFH]).expect(op::GETATTR, Status::Ok);
    assert_eq!(r.bitmap(), want);
    assert_eq!(r.u32(), 36);
    assert_eq!((r.u32(), r.u64(), r.u32(), r.u32()), (1, 5, 0o644, 1));
    assert_eq!((r.opaque(), r.opaque()), (b"0".to_vec(), b"0".to_vec()));
    r.end(Status::Ok);
}

#[tokio::test]
async fn share_has_separate_fsid() {
    let harness = Harness::new();
    let want = [attr::FSID, attr::FILEID, attr::MOUNTED_ON_FILEID];
    let mut seen = vec![];
    for path in [vec![], vec![&b"data"[..]], vec![&b"more"[..]]] {
        let mut r = harness
            .run(|c| path.iter().fold(c.root(), |c, name| c.lookup(name)).getattr(&want))
            .await;
        r.ok(&[op::PUTROOTFH]).ok(&vec![op::LOOKUP; path.len()]).expect(op::GETATTR, Status::Ok);
        r.bitmap();
        r.u32();
        seen.push(((r.u64(), r.u64()), r.u64(), r.u64()));
        r.end(Status::Ok);
    }
    assert_eq!(seen[0].0, (0, 0));
    assert_eq!(seen[0].1, seen[0].2, "the root is mounted on nothing");
    assert_ne!(seen[0].0, seen[1].0);
    assert_ne!(seen[1].0, seen[2].0);
    assert_ne!(seen[1].2, seen[2].2);
    assert_ne!(seen[1].2, seen[0].2);
}

#[tokio::test]
async fn reading_write_only_attributes_fails() {
    let harness = Harness::new();
    for a in [attr::TIME_ACCESS_SET, attr::TIME_MODIFY_SET] {
        let mut r = harness.run(|c| c.data().getattr(&[a])).await;
        r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::GETATTR, Status::Inval);
        r.end(Status::Inval);
    }
}

#[tokio::test]
async fn unknown_attributes_are_omitted() {
    let harness = Harness::new();
    let mut r = harness.run(|c| c.data().getattr(&[attr::TYPE, attr::FS_LOCATIONS, 90])).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::GETATTR, Status::Ok);
    assert_eq!(r.bitmap(), [attr::TYPE]);
    assert_eq!((r.u32(), r.u32()), (4, 2));
    r.end(Status::Ok);
}

/// In NFSv4 the owner of a read-only file truncates it only through an open's stateid.
#[tokio::test]
async fn size_without_open_needs_mode() {
    let harness = Harness::new();
    let (_, file) = harness.with_file(b"f", b"hello").await;
    let cred =
        |uid| vfs::Cred { uid, gid: uid, groups: std::sync::Arc::new([]), token: vfs::Token::NONE };
    for (mode, uid, wanted) in [
        (0o477, 1000, Status::Access),
        (0o600, 1000, Status::Ok),
        (0o477, 3000, Status::Ok),
        (0o644, 3000, Status::Access),
        (0o400, 0, Status::Ok),
    ] {
        let set = [attr::MODE, attr::OWNER];
        let values = |w: &mut Writer| {
            w.u32(mode);
            w.opaque(b"1000");
        };
        let done = harness.run(|c| setattr(c.putfh(&file), &set, values)).await;
        assert_eq!(done.status, Status::Ok);
        let cut = |c: Args| setattr(c.putfh(&file), &[attr::SIZE], |w| w.u64(0));
        let got = harness.run_on(&harness.conn, &cred(uid), 0, cut).await.status;
        assert_eq!(got, wanted, "{mode:o} {uid}");
    }
}

/// A snapshot takes no changes, whatever the caller may do to the file today.
#[tokio::test]
async fn size_in_snapshot_is_on_read_only_file_system() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, old) = (dir.path().join("share"), dir.path().join("old/2023-11-27_080000"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::create_dir_all(&old).unwrap();
    for file in [folder.join("f"), old.join("f")] {
        std::fs::write(&file, "text").unwrap();
        std::fs::set_permissions(file, PermissionsExt::from_mode(0o644)).unwrap();
    }
    for folder in [dir.path(), &folder, &dir.path().join("old"), &old] {
        std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut harness = Harness::over_folder(&folder);
    let pattern = format!("{}/old/{{time:%Y-%m-%d_%H%M%S}}", dir.path().display());
    let backend = harness.nfs.core.namespace.share_named(b"data").unwrap().backend.clone();
    backend.set_snapshots(Some(&pattern.parse().unwrap()));
    let zero = |w: &mut Writer| w.u64(0);
    for uid in [0, 1000] {
        harness.cred = vfs::Cred { uid, gid: uid, ..vfs::Cred::root() };
        let then = |c: Args| {
            c.data().lookup(b".snapshot").lookup(b"@GMT-2023.11.27-08.00.00").lookup(b"f")
        };
        for named in [&[attr::SIZE][..], &[attr::SIZE, attr::MODE]] {
            let values = |w: &mut Writer| {
                w.u64(0);
                if named.len() > 1 {
                    w.u32(0o600);
                }
            };
            let r = harness.run(|c| setattr(then(c), named, values)).await;
            assert_eq!(r.status, Status::RoFs, "{uid} {named:?}");
        }
        let wanted = if uid == 0 { Status::Ok } else { Status::Access };
        let r = harness.run(|c| setattr(c.data().lookup(b"f"), &[attr::SIZE], zero)).await;
        assert_eq!(r.status, wanted, "today");
        harness.reload("data", |share| share.read_only = true);
        let r = harness.run(|c| setattr(c.data().lookup(b"f"), &[attr::SIZE], zero)).await;
        assert_eq!(r.status, Status::RoFs, "a read-only share");
        harness.reload("data", |share| share.read_only = false);
    }
}

#[tokio::test]
async fn setattr_returns_set_attributes() {
    let harness = Harness::new();
    let (_, file) = harness.with_file(b"f", b"hello").await;
    let named = [attr::SIZE, attr::MODE, attr::OWNER, attr::TIME_MODIFY_SET];
    let mut r = harness
        .run(|c| {
            let c = setattr(c.putfh(&file), &named, |v| {
                v.u64(3);
                v.u32(0o600);
                v.opaque(b"1000");
                v.u32(1);
                v.i64(77);
                v.u32(5);
            });
            c.getattr(&[attr::SIZE, attr::MODE, attr::OWNER, attr::TIME_MODIFY])
        })
        .await;
    r.ok(&[op::PUTFH]).expect(op::SETATTR, Status::Ok);
    assert_eq!(r.bitmap(), named);
    r.expect(op::GETATTR, Status::Ok);
    r.bitmap();
    r.u32();
    assert_eq!((r.u64(), r.u32(), r.opaque()), (3, 0o600, b"1000".to_vec()));
    assert_eq!((r.u64(), r.u32()), (77, 5));
    r.end(Status::Ok);
}

/// RFC 8881 section 18.30.4.
#[tokio::test]
async fn partial_setattr_reports_attributes_set() {
    let mut harness = Harness::new();
    let (_, file) = harness.with_file(b"f", b"hello").await;
    harness.run(|c| setattr(c.putfh(&file), &[attr::MODE], |w| w.u32(0o666))).await;
    harness.cred = Cred { uid: 7, gid: 7, groups: Arc::new([]), token: vfs::Token::NONE };
    let cut = |w: &mut Writer| {
        w.u64(2);
        w.count(0);
    };
    let mut r = harness.run(|c| setattr(c.putfh(&file), &[attr::SIZE, attr::ACL], cut)).await;
    r.ok(&[op::PUTFH]).expect(op::SETATTR, Status::Perm);
    assert_eq!(r.bitmap(), [attr::SIZE]);
    r.end(Status::Perm);
}

/// RFC 8881 section 18.30.4, for a failure of the volume: it sets the size last, and no file system here supports files of this
/// size.
#[tokio::test]
async fn volume_failure_reports_attributes_set() {
    let folder = tempfile::tempdir().unwrap();
    let harness = Harness::over_folder(folder.path());
    let (_, file) = harness.with_file(b"f", b"hello").await;
    let both = [attr::SIZE, attr::MODE];
    let values = |mode: u32| {
        move |w: &mut Writer| {
            w.u64(i64::MAX as u64 + 1);
            w.u32(mode);
        }
    };
    let mut r = harness.run(|c| setattr(c.putfh(&file), &both, values(0o600))).await;
    r.ok(&[op::PUTFH]).expect(op::SETATTR, Status::FBig);
    assert_eq!(r.bitmap(), [attr::MODE]);
    r.end(Status::FBig);
    let mut r = harness.run(|c| c.putfh(&file).getattr(&both)).await;
    r.ok(&[op::PUTFH]).expect(op::GETATTR, Status::Ok);
    assert_eq!((r.bitmap(), r.u32(), r.u64(), r.u32()), (both.to_vec(), 12, 5, 0o600));
    // An attribute that had the value already does not count as set.
    let mut r = harness.run(|c| setattr(c.putfh(&file), &both, values(0o600))).await;
    r.ok(&[op::PUTFH]).expect(op::SETATTR, Status::FBig);
    assert!(r.bitmap().is_empty());
    r.end(Status::FBig);
}

#[tokio::test]
async fn oversized_list_gets_nospc() {
    let harness = Harness::new();
    let (_, file) = harness.with_file(b"f", b"hello").await;
    // The values together exceed 64 KiB.
    let name = format!("7@{}", "x".repeat(80));
    for (entries, status) in [(1_024, Status::Ok), (1_025, Status::NoSpc)] {
        let values = |w: &mut Writer| {
            w.count(entries);
            for _ in 0..entries {
                [0, 0, 1].into_iter().for_each(|n| w.u32(n));
                w.opaque(name.as_bytes());
            }
        };
        let mut r = harness.run(|c| setattr(c.putfh(&file), &[attr::ACL], values)).await;
        r.ok(&[op::PUTFH]).expect(op::SETATTR, status);
        let set = if status == Status::Ok { vec![attr::ACL] } else { vec![] };
        assert_eq!(r.bitmap(), set);
        r.end(status);
    }
}

#[tokio::test]
async fn failed_setattr_has_empty_bitmap() {
    let harness = Harness::new();
    let mut r = harness.run(|c| setattr(c.data(), &[attr::FS_LOCATIONS], |v| v.u32(0))).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::SETATTR, Status::AttrNotSupp);
    assert!(r.bitmap().is_empty());
    r.end(Status::AttrNotSupp);
    let mut r = harness.run(|c| setattr(c.data(), &[attr::SIZE], |v| v.u64(0))).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::SETATTR, Status::IsDir);
    assert!(r.bitmap().is_empty());
    r.end(Status::IsDir);
}

#[tokio::test]
async fn verify_and_nverify_are_opposites() {
    let harness = Harness::new();
    let (_, file) = harness.with_file(b"f", b"hello").await;
    for (size, same) in [(5, true), (6, false)] {
        let values = |w: &mut Writer| fattr(w, &[attr::SIZE], |v| v.u64(size));
        let (on_verify, on_nverify) =
            if same { (Status::Ok, Status::Same) } else { (Status::NotSame, Status::Ok) };
        let mut r = harness.run(|c| c.putfh(&file).op(op::VERIFY, values)).await;
        r.ok(&[op::PUTFH]).expect(op::VERIFY, on_verify).end(on_verify);
        let mut r = harness.run(|c| c.putfh(&file).op(op::NVERIFY, values)).await;
        r.ok(&[op::PUTFH]).expect(op::NVERIFY, on_nverify).end(on_nverify);
    }
    let unsupported = |w: &mut Writer| fattr(w, &[attr::FS_LOCATIONS], |v| v.u32(0));
    let mut r = harness.run(|c| c.putfh(&file).op(op::VERIFY, unsupported)).await;
    r.ok(&[op::PUTFH]).expect(op::VERIFY, Status::AttrNotSupp).end(Status::AttrNotSupp);
}

#[tokio::test]
async fn frozen_share_refuses_changes() {
    let harness = Harness::new();
    let mut r =
        harness.run(|c| setattr(c.root().lookup(b"frozen"), &[attr::MODE], |v| v.u32(0o700))).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::SETATTR, Status::RoFs);
    assert!(r.bitmap().is_empty());
    r.end(Status::RoFs);
    let mut r = harness.run(|c| c.root().lookup(b"frozen").mkdir(b"d")).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::CREATE, Status::RoFs).end(Status::RoFs);
    let mut r = harness.run(|c| c.root().mkdir(b"d")).await;
    r.ok(&[op::PUTROOTFH]).expect(op::CREATE, Status::RoFs).end(Status::RoFs);
    let mut r = harness.run(|c| c.root().lookup(b"frozen").op(op::ACCESS, |w| w.u32(0x3f))).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::ACCESS, Status::Ok);
    assert_eq!((r.u32(), r.u32()), (0x1f, 0x03));
    r.end(Status::Ok);
}

#[tokio::test]
async fn root_counts_visible_shares() {
    let harness = Harness::new();
    let mut r = harness.run(|c| c.root().getattr(&[attr::NUMLINKS])).await;
    r.ok(&[op::PUTROOTFH]).expect(op::GETATTR, Status::Ok);
    r.bitmap();
    assert_eq!((r.u32(), r.u32()), (4, 2 + 3));
    r.end(Status::Ok);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn verify_confirms_getattr_result(want in prop::collection::btree_set(0u32..83, 0..40)) {
        // These attributes cannot be read or compared.
        let none = [attr::RDATTR_ERROR, attr::TIME_ACCESS_SET, attr::TIME_MODIFY_SET, 74, 81];
        let want: Vec<u32> = want.into_iter().filter(|a| !none.contains(a)).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let harness = Harness::new();
            let (_, file) = harness.with_file(b"f", b"hello").await;
            let s = harness.session().await;
            let mut r = s.run(|c| c.putfh(&file).getattr(&want)).await;
            r.ok(&[op::PUTFH]).expect(op::GETATTR, Status::Ok);
            let have = r.bitmap();
            let values = r.opaque();
            assert_eq!(values.len() % 4, 0);
            r.end(Status::Ok);
            let again = |w: &mut Writer| fattr(w, &have, |v| v.fixed(&values));
            let r = s.run(|c| c.putfh(&file).op(op::VERIFY, again)).await;
            assert_eq!(r.status, Status::Ok, "{have:?}");
            let r = s.run(|c| c.putfh(&file).op(op::NVERIFY, again)).await;
            assert_eq!(r.status, Status::Same, "{have:?}");
        });
    }
}

/// One user and one group.
struct Alice;

impl OwnerNames for Alice {
    fn uid(&self, name: &str) -> Result<Option<u32>, Unanswered> {
        Ok((name == "alice").then_some(1000))
    }
    fn gid(&self, name: &str) -> Result<Option<u32>, Unanswered> {
        Ok((name == "staff").then_some(50))
    }
    fn user(&self, uid: u32) -> Result<Option<String>, Unanswered> {
        Ok((uid == 1000).then(|| "alice".into()))
    }
    fn group(&self, gid: u32) -> Result<Option<String>, Unanswered> {
        Ok((gid == 50).then(|| "staff".into()))
    }
}

#[tokio::test]
async fn domain_gives_names_to_ids() {
    let domain = Some(Arc::new(Domain::new("example.org", Arc::new(Alice))));
    let harness = Harness::with(Options { domain, ..Options::default() });
    let (_, file) = harness.with_file(b"f", b"hello").await;
    let set = |owner: &'static [u8], group: &'static [u8], who: &'static [u8]| {
        let (harness, file) = (&harness, &file);
        async move {
            let named = [attr::ACL, attr::OWNER, attr::OWNER_GROUP];
            let values = |w: &mut Writer| {
                w.count(1);
                [0, 0, 1].into_iter().for_each(|n| w.u32(n));
                [who, owner, group].into_iter().for_each(|name| w.opaque(name));
            };
            harness.run(|c| setattr(c.putfh(file), &named, values)).await
        }
    };
    set(b"alice@example.org", b"staff@example.org", b"alice@example.org")
        .await
        .ok(&[op::PUTFH])
        .expect(op::SETATTR, Status::Ok);
    let shown = || async {
        let mut r = harness
            .run(|c| c.putfh(&file).getattr(&[attr::ACL, attr::OWNER, attr::OWNER_GROUP]))
            .await;
        r.ok(&[op::PUTFH]).expect(op::GETATTR, Status::Ok);
        let _head = (r.bitmap(), r.u32(), [r.u32(), r.u32(), r.u32(), r.u32()]);
        [r.opaque(), r.opaque(), r.opaque()].map(|name| String::from_utf8(name).unwrap())
    };
    let (alice, staff) = ("alice@example.org", "staff@example.org");
    assert_eq!(shown().await, [alice, alice, staff]);
    const LONG: &[u8] = &[b'a'; 300];
    for (owner, group, who) in [
        (LONG, &b"50"[..], &b"1000"[..]),
        (b"1000", b"50", LONG),
        (b"bob@example.org", b"50", b"1000"),
        (b"1000", b"alice@example.org", b"1000"),
        (b"1000", b"50", b"alice@elsewhere"),
    ] {
        let mut r = set(owner, group, who).await;
        r.ok(&[op::PUTFH]).expect(op::SETATTR, Status::BadOwner);
    }
    assert_eq!(shown().await, [alice, alice, staff], "a name that nobody has changes nothing");
    set(b"1001", b"50", b"7").await.ok(&[op::PUTFH]).expect(op::SETATTR, Status::Ok);
    assert_eq!(shown().await, ["7", "1001", staff], "numbers always");
}

/// A directory of users and groups without numbers, which may be silent; counts its questions.
#[derive(Default)]
struct Lab {
    is_silent: AtomicBool,
    asked: AtomicUsize,
}

impl Lab {
    const NAMED: [(u32, &str, bool); 2] = [(1200, "writers", true), (1103, "carol", false)];

    fn sid(rid: u32) -> Sid {
        Sid::new(5, &[21, 1, 2, 3, rid]).unwrap()
    }

    fn find<T>(
        &self,
        found: impl Fn(u32, &str, bool) -> Option<T>,
    ) -> Result<Option<T>, Unanswered> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.is_silent.load(Ordering::Relaxed) {
            return Err(Unanswered);
        }
        Ok(Self::NAMED.iter().find_map(|(rid, name, is_group)| found(*rid, name, *is_group)))
    }
}

impl OwnerNames for Lab {
    fn uid(&self, _: &str) -> Result<Option<u32>, Unanswered> {
        Ok(None)
    }
    fn gid(&self, _: &str) -> Result<Option<u32>, Unanswered> {
        Ok(None)
    }
    fn user(&self, _: u32) -> Result<Option<String>, Unanswered> {
        Ok(None)
    }
    fn group(&self, _: u32) -> Result<Option<String>, Unanswered> {
        Ok(None)
    }
    fn names_in_lists(&self, sids: &[Sid]) -> Vec<Result<Option<NameOfSid>, Unanswered>> {
        let of = |sid: &Sid| {
            self.find(|rid, name, is_group| {
                (Self::sid(rid) == *sid).then(|| NameOfSid { name: name.into(), is_group })
            })
        };
        sids.iter().map(of).collect()
    }
    fn sid(&self, name: &str, is_group: bool) -> Result<Option<Sid>, Unanswered> {
        self.find(|rid, known, of| (known == name && of == is_group).then(|| Self::sid(rid)))
    }
}

/// A list of an SMB client keeps its SIDs when an NFS client writes back what it was shown, whatever the directory answers.
#[tokio::test]
async fn identities_without_number_have_names_in_lists() {
    const GROUP: u32 = 0x40;
    let lab = Arc::new(Lab::default());
    let domain = Some(Arc::new(Domain::new("example.org", lab.clone())));
    let harness = Harness::with(Options { domain, ..Options::default() });
    let (_, file) = harness.with_file(b"f", b"hello").await;
    let share = harness.nfs.core.namespace.share_named(b"data").unwrap();
    let (node, _) = share.backend.root().lookup(&Cred::root(), b"f").await.unwrap();
    // Two have names; the others are a deleted account, one of another domain, and a group of every computer.
    let other = Sid::new(5, &[21, 9, 9, 9, 1200]).unwrap();
    let sids = [Lab::sid(1200), Lab::sid(1103), Lab::sid(1999), other, Sid::administrators()];
    let entries: Vec<Ace> =
        sids.iter().map(|sid| Ace::allow(Who::Sid(sid.clone()), mask::READ_DATA, 0)).collect();
    node.acl_set(&Acl::new(entries.clone()), 0o444).await.unwrap();
    let shown = || async {
        let mut r = harness.run(|c| c.putfh(&file).getattr(&[attr::ACL])).await;
        r.ok(&[op::PUTFH]).expect(op::GETATTR, Status::Ok);
        let _head = (r.bitmap(), r.u32(), r.u32());
        let one = |_: u32| {
            let [_kind, flags, _mask] = [r.u32(), r.u32(), r.u32()];
            (flags, String::from_utf8(r.opaque()).unwrap())
        };
        (0..5).map(one).collect::<Vec<_>>()
    };
    let set = |list: Vec<(u32, String)>| {
        let (harness, file) = (&harness, &file);
        async move {
            let values = |w: &mut Writer| {
                w.count(list.len());
                for (flags, name) in &list {
                    [0, *flags, mask::READ_DATA].into_iter().for_each(|n| w.u32(n));
                    w.opaque(name.as_bytes());
                }
            };
            harness.run(|c| setattr(c.putfh(file), &[attr::ACL], values)).await
        }
    };
    let kept = || async {
        let attr = node.getattr().await.unwrap();
        node.acl(&attr).await.unwrap().unwrap().entries().to_vec()
    };
    let by_sid: Vec<(u32, String)> = sids.iter().map(|sid| (0, sid.to_string())).collect();
    let mut by_name = by_sid.clone();
    by_name[0] = (GROUP, "writers@example.org".into());
    by_name[1] = (0, "carol@example.org".into());

    lab.is_silent.store(true, Ordering::Relaxed);
    let list = shown().await;
    assert_eq!(list, by_sid, "silence is no name");
    set(list).await.ok(&[op::PUTFH]).expect(op::SETATTR, Status::Ok);
    assert_eq!(kept().await, entries);
    set(by_name.clone()).await.ok(&[op::PUTFH]).expect(op::SETATTR, Status::Delay);

    lab.is_silent.store(false, Ordering::Relaxed);
    let list = shown().await;
    assert_eq!(list, by_name);
    set(list).await.ok(&[op::PUTFH]).expect(op::SETATTR, Status::Ok);
    assert_eq!(kept().await, entries);
    let asked = lab.asked.load(Ordering::Relaxed);
    assert_eq!(shown().await, by_name);
    assert_eq!(lab.asked.load(Ordering::Relaxed), asked, "answers are kept");
    // A name of the other kind is none, and an owner needs a number.
    let wrong = vec![(0, "writers@example.org".to_owned())];
    set(wrong).await.ok(&[op::PUTFH]).expect(op::SETATTR, Status::BadOwner);
    let owner = |w: &mut Writer| w.opaque(b"carol@example.org");
    let mut r = harness.run(|c| setattr(c.putfh(&file), &[attr::OWNER], owner)).await;
    r.ok(&[op::PUTFH]).expect(op::SETATTR, Status::BadOwner);
    assert_eq!(kept().await, entries);
}
