//! Reparse points that an SMB client sets, as clients of NFS 3 and 4 see them, on a folder of the host and in memory, before and
//! after a restart.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use client::connect::Local;
use client::nfs3::Nfs3;
use client::nfs4::{Minor, Nfs4, Results, op};
use client::smb::{Options, Smb, SmbFile};
use client::{Credential, Error, NoCallbacks, mount};
use config::{Settings, Share, Source, Squash};
use headgate_tests::world::smb::{alice, with_alice};
use headgate_tests::world::{World, buf};
use nfs_proto::nfs4::ops::Component4;
use smb_proto::NtStatus;
use smb_proto::smb2::create::{Disposition, access, option};
use smb_proto::smb2::fsctl::code::{DELETE_REPARSE_POINT, GET_REPARSE_POINT, SET_REPARSE_POINT};
use smb_proto::smb2::reparse::{Buffer, Reparse};

/// The numbers of `ftype3` and `nfs_ftype4` are the same for these (RFC 1813 section 2.6, RFC 8881 section 3.3.13).
const REGULAR: u32 = 1;
const DIRECTORY: u32 = 2;
const LINK: u32 = 5;

const ABSOLUTE: &str = "\\??\\C:\\data\\x";
const DATA: &[u8] = b"contents";

/// A file with a reparse point.
struct Case {
    name: &'static str,
    is_dir: bool,
    bytes: Vec<u8>,
    /// What NFS clients see: the type and the text of a link.
    seen: (u32, &'static [u8]),
}

fn cases() -> Vec<Case> {
    let link = |target: &str, relative| Reparse::Symlink { target: target.into(), relative }.emit();
    let of = |tag, guid, data: &[u8]| Buffer { tag, guid, data }.emit();
    let case = |name, is_dir, bytes, kind, text| Case { name, is_dir, bytes, seen: (kind, text) };
    vec![
        case("relative", false, link("a\\b", true), LINK, b"a/b"),
        case("absolute", false, link(ABSOLUTE, false), LINK, ABSOLUTE.as_bytes()),
        case("absolute-dir", true, link(ABSOLUTE, false), LINK, ABSOLUTE.as_bytes()),
        case(
            "junction",
            true,
            Reparse::MountPoint(ABSOLUTE.into()).emit(),
            LINK,
            ABSOLUTE.as_bytes(),
        ),
        case("wsl", false, Reparse::LxLink("/mnt/c".into()).emit(), LINK, b"/mnt/c"),
        case("wsl-pipe", false, of(0x8000_0024, None, &[]), REGULAR, b""),
        case("dedup", false, of(0x8000_0013, None, &[1; 124]), REGULAR, b""),
        case("cloud-dir", true, of(0x9000_101a, None, &[2; 300]), DIRECTORY, b""),
        case("third", false, of(0x1234, Some([7; 16]), &[3; 3000]), REGULAR, b""),
        case("third-dir", true, of(0x1234, Some([7; 16]), &[]), DIRECTORY, b""),
    ]
}

async fn smb(world: &World, share: &str) -> Smb {
    let at = world.running.smb[0];
    let to = ("127.0.0.1", share);
    Smb::connect(at, false, to, &alice(), Options::default(), &Local::default()).await.unwrap()
}

async fn open(smb: &Smb, name: &str, how: Disposition, options: u32) -> client::Result<SmbFile> {
    let all = access::READ_DATA | access::WRITE_DATA | access::READ_ATTRIBUTES | access::DELETE;
    smb.open(name, all, how, options).await
}

async fn itself(smb: &Smb, name: &str) -> SmbFile {
    open(smb, name, Disposition::Open, option::OPEN_REPARSE_POINT).await.unwrap()
}

/// Compares what clients of NFS 3 and 4 see.
async fn seen_by_nfs(world: &World, share: &str, cases: &[Case]) {
    let cred = Credential::sys(0, 0, &[]);
    let rpc = || async {
        let local = Local::default();
        client::connect::tcp(world.running.nfs[0], &local, Arc::new(NoCallbacks)).await.unwrap()
    };
    let top = mount::mount(&rpc().await, &cred, &format!("/{share}")).await.unwrap();
    let v3 = Nfs3::new(rpc().await, cred.clone());
    let v4 = Nfs4::connect(rpc().await, cred, Minor::Two, share.as_bytes(), [9; 8]).await.unwrap();
    let top4 = v4.walk(&format!("/{share}")).await.unwrap();
    for Case { name, seen: (kind, text), is_dir, .. } in cases {
        let (fh, _) = v3.lookup(&top, name.as_bytes()).await.unwrap();
        let attr = v3.getattr(&fh).await.unwrap();
        let (fh4, attr4) = v4.lookup(&top4, name.as_bytes()).await.unwrap();
        assert_eq!((attr.kind, attr4.kind), (*kind, *kind), "{share} {name}");
        match *kind {
            LINK => {
                assert_eq!(v3.readlink(&fh).await.unwrap(), *text, "{share} {name}");
                let asked = v4.compound().putfh(&fh4).op(op::READLINK, &());
                let answer = v4.call(asked).await.unwrap();
                let mut results = Results::new(&answer).unwrap();
                results.sequence().unwrap();
                results.next::<()>(op::PUTFH).unwrap();
                let read = results.next::<Component4<'_>>(op::READLINK).unwrap();
                assert_eq!(read.name, *text, "{share} {name}");
            }
            REGULAR if !is_dir => assert_eq!(attr.size, DATA.len() as u64, "{share} {name}"),
            _ => {}
        }
    }
}

/// Compares what an SMB client reads.
async fn read_by_smb(smb: &Smb, cases: &[Case]) {
    for Case { name, bytes, .. } in cases {
        let f = itself(smb, name).await;
        let read = smb.control(&f, GET_REPARSE_POINT, &[]).await.unwrap();
        assert_eq!(&read, bytes, "{name}");
        smb.close(f).await.unwrap();
    }
}

async fn world_of(folder: &Path) -> (World, tempfile::TempDir) {
    let share = |name: &str, source| Share { squash: Squash::None, ..Share::new(name, source) };
    with_alice(|settings: &mut Settings| {
        let source = Source::Folder(folder.to_owned());
        settings.shares = vec![share("data", source), share("mem", Source::Memory)];
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn nfs_clients_read_links_and_see_other_tags_as_files() {
    let folder = tempfile::tempdir().unwrap();
    let (world, _dir) = world_of(folder.path()).await;
    for share in ["data", "mem"] {
        let smb = smb(&world, share).await;
        for case in cases() {
            let options = if case.is_dir { option::DIRECTORY_FILE } else { 0 };
            let f = open(&smb, case.name, Disposition::Create, options).await.unwrap();
            smb.control(&f, SET_REPARSE_POINT, &case.bytes).await.unwrap();
            if case.seen.0 == REGULAR {
                smb.write(&f, 0, vec![buf(DATA)]).await.unwrap();
            }
            smb.close(f).await.unwrap();
        }
        read_by_smb(&smb, &cases()).await;
        seen_by_nfs(&world, share, &cases()).await;
    }
    world.running.stop().await;
    let (world, _dir) = world_of(folder.path()).await;
    let smb = smb(&world, "data").await;
    read_by_smb(&smb, &cases()).await;
    seen_by_nfs(&world, "data", &cases()).await;
    let refused = open(&smb, "third", Disposition::Open, 0).await;
    let not_handled = NtStatus::IO_REPARSE_TAG_NOT_HANDLED;
    assert!(matches!(refused, Err(Error::Smb(_, s)) if s == not_handled), "{refused:?}");
    for case in cases() {
        let f = itself(&smb, case.name).await;
        let head = if case.bytes[3] >= 0x80 { 8 } else { 24 };
        let mut owner = case.bytes[..head].to_vec();
        owner[4..8].fill(0);
        smb.control(&f, DELETE_REPARSE_POINT, &owner).await.unwrap();
        smb.close(f).await.unwrap();
        let plain = open(&smb, case.name, Disposition::Open, 0).await.unwrap();
        let wanted = if case.seen.0 == REGULAR { DATA } else { b"" };
        assert_eq!(plain.size, wanted.len() as u64, "{}", case.name);
        smb.close(plain).await.unwrap();
    }
    world.running.stop().await;
}

/// A share, a part of it as another share, and a folder of it that is the root of a third.
async fn overlapping(folder: &Path) -> (World, tempfile::TempDir) {
    with_alice(|settings: &mut Settings| {
        let shares = [
            ("outer", folder.to_owned()),
            ("inner", folder.join("in")),
            ("leaf", folder.join("leaf")),
        ];
        settings.shares = Vec::new();
        for (name, path) in shares {
            std::fs::create_dir_all(&path).unwrap();
            let share = Share::new(name, Source::Folder(path));
            settings.shares.push(Share { squash: Squash::None, ..share });
        }
    })
    .await
}

/// A link takes the place of its file in shares that overlap as well, unless the file has streams, whichever share keeps them, or
/// is the root of a share.
#[tokio::test(flavor = "multi_thread")]
async fn links_in_overlapping_shares_lose_nothing_of_another_share() {
    let folder = tempfile::tempdir().unwrap();
    let (world, _dir) = overlapping(folder.path()).await;
    let (outer, inner) = (smb(&world, "outer").await, smb(&world, "inner").await);
    let bytes = Reparse::Symlink { target: ABSOLUTE.into(), relative: false }.emit();
    let on_host = |path: &str| std::fs::symlink_metadata(folder.path().join(path)).unwrap();
    for (name, stream_by, becomes_link) in [
        ("plain", None, true),
        ("by-inner", Some(&inner), false),
        ("by-outer", Some(&outer), false),
    ] {
        for (by, setter) in [("inner", &inner), ("outer", &outer)] {
            let name = format!("{name}-{by}");
            let path = |smb: &Smb| {
                if std::ptr::eq(smb, &raw const outer) {
                    format!("in\\{name}")
                } else {
                    name.clone()
                }
            };
            let made = open(&inner, &name, Disposition::Create, 0).await.unwrap();
            inner.close(made).await.unwrap();
            if let Some(keeper) = stream_by {
                let stream = format!("{}:kept", path(keeper));
                let stream = open(keeper, &stream, Disposition::Create, 0).await.unwrap();
                keeper.write(&stream, 0, vec![buf(DATA)]).await.unwrap();
                keeper.close(stream).await.unwrap();
            }
            // The other share's client has the file open, too.
            let other = if by == "inner" { &outer } else { &inner };
            let held = open(other, &path(other), Disposition::Open, 0).await.unwrap();
            let f = open(setter, &path(setter), Disposition::Open, 0).await.unwrap();
            setter.control(&f, SET_REPARSE_POINT, &bytes).await.unwrap();
            for (smb, file) in [(setter, &f), (other, &held)] {
                let read = smb.control(file, GET_REPARSE_POINT, &[]).await.unwrap();
                assert_eq!(read, bytes, "{name}");
            }
            other.close(held).await.unwrap();
            setter.close(f).await.unwrap();
            assert_eq!(on_host(&format!("in/{name}")).is_symlink(), becomes_link, "{name}");
            if let Some(keeper) = stream_by {
                let stream = format!("{}:kept", path(keeper));
                let stream = itself(keeper, &stream).await;
                let kept = keeper.read(&stream, 0, 100).await.unwrap();
                assert_eq!(
                    kept.iter().flat_map(|b| b.to_vec()).collect::<Vec<_>>(),
                    DATA,
                    "{name}"
                );
                keeper.close(stream).await.unwrap();
            }
        }
    }
    let junction = Reparse::MountPoint(ABSOLUTE.into()).emit();
    let root = open(&outer, "leaf", Disposition::Open, option::DIRECTORY_FILE).await.unwrap();
    outer.control(&root, SET_REPARSE_POINT, &junction).await.unwrap();
    outer.close(root).await.unwrap();
    assert!(on_host("leaf").is_dir(), "the root of a share stays");
    world.running.stop().await;
}
