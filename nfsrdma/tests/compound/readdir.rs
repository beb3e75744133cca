//! READDIR: sizes, cookies, and errors of single entries.

use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::{attr, op};

use crate::harness::{Harness, Results};

const ENOUGH: u32 = 1 << 16;

struct Listing {
    entries: Vec<(u64, Vec<u8>)>,
    eof: bool,
    bytes: usize,
}

/// Decodes READDIR4resok, skipping attributes.
fn listing(r: &mut Results) -> Listing {
    let before = r.remaining();
    assert_eq!(r.fixed(8), [0; 8]);
    let mut entries = vec![];
    while r.bool() {
        let cookie = r.u64();
        let name = r.opaque();
        r.bitmap();
        r.opaque();
        entries.push((cookie, name));
    }
    let eof = r.bool();
    Listing { entries, eof, bytes: before - r.remaining() }
}

async fn list(
    harness: &Harness,
    cookie: u64,
    dircount: u32,
    maxcount: u32,
    attrs: &[u32],
) -> Listing {
    let mut r = harness.run(|c| c.data().readdir(cookie, dircount, maxcount, attrs)).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::READDIR, Status::Ok);
    let l = listing(&mut r);
    r.end(Status::Ok);
    l
}

async fn filled(n: usize) -> Harness {
    let harness = Harness::new();
    for i in 0..n {
        harness.with_file(format!("file-{i:04}").as_bytes(), b"").await;
    }
    harness
}

#[tokio::test]
async fn root_lists_usable_shares() {
    let harness = Harness::new();
    let mut r = harness.run(|c| c.root().readdir(0, 0, ENOUGH, &[attr::TYPE, attr::FSID])).await;
    r.ok(&[op::PUTROOTFH]).expect(op::READDIR, Status::Ok);
    let l = listing(&mut r);
    let names: Vec<_> = l.entries.iter().map(|e| &e.1[..]).collect();
    // The cookies are the numbers of the shares, which a reload does not change.
    assert_eq!(names, [&b"frozen"[..], b"data", b"more"]);
    assert!(l.eof);
    r.end(Status::Ok);
    let cookie = l.entries[0].0;
    let mut r = harness.run(|c| c.root().readdir(cookie, 0, ENOUGH, &[])).await;
    r.ok(&[op::PUTROOTFH]).expect(op::READDIR, Status::Ok);
    assert_eq!(listing(&mut r).entries, l.entries[1..]);
    // A hidden share is found by name.
    let mut r = harness.run(|c| c.root().lookup(b"unlisted")).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).end(Status::Ok);
}

#[tokio::test]
async fn partial_listings_cover_all_names() {
    let harness = filled(300).await;
    let all = [attr::TYPE, attr::FILEHANDLE, attr::FILEID, attr::MODE, attr::OWNER];
    for attrs in [&[][..], &[attr::TYPE, attr::FILEID], &all] {
        for maxcount in [600, 4096, ENOUGH] {
            let (mut cookie, mut names) = (0, vec![]);
            loop {
                let l = list(&harness, cookie, 0, maxcount, attrs).await;
                assert!(l.bytes <= maxcount as usize, "{} of {maxcount}", l.bytes);
                cookie = l.entries.last().map_or(cookie, |e| e.0);
                names.extend(l.entries.into_iter().map(|e| e.1));
                if l.eof {
                    break;
                }
            }
            names.sort();
            let expected: Vec<_> = (0..300).map(|i| format!("file-{i:04}").into_bytes()).collect();
            assert_eq!(names, expected);
        }
    }
}

#[tokio::test]
async fn dircount_allows_first_name() {
    let harness = filled(10).await;
    // 4 + 8 + 4 + 12 bytes each.
    let l = list(&harness, 0, 28 * 3, ENOUGH, &[]).await;
    assert_eq!((l.entries.len(), l.eof), (3, false));
    assert_eq!(list(&harness, 0, 1, ENOUGH, &[]).await.entries.len(), 1);
}

#[tokio::test]
async fn no_room_for_entry_is_toosmall() {
    let harness = filled(1).await;
    for maxcount in [0, 15, 40] {
        let mut r = harness.run(|c| c.data().readdir(0, 0, maxcount, &[attr::TYPE])).await;
        r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::READDIR, Status::TooSmall);
        r.end(Status::TooSmall);
    }
}

#[tokio::test]
async fn empty_directory_returns_eof() {
    let l = list(&Harness::new(), 0, 0, 16, &[attr::TYPE]).await;
    assert_eq!((l.entries.len(), l.eof), (0, true));
}

#[tokio::test]
async fn reserved_cookies_are_bad() {
    let harness = Harness::new();
    for cookie in [1, 2] {
        let mut r = harness.run(|c| c.data().readdir(cookie, 0, ENOUGH, &[])).await;
        r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::READDIR, Status::BadCookie);
        r.end(Status::BadCookie);
    }
}

#[tokio::test]
async fn listing_a_file_is_refused() {
    let harness = Harness::new();
    let (_, file) = harness.with_file(b"f", b"").await;
    let mut r = harness.run(|c| c.putfh(&file).readdir(0, 0, ENOUGH, &[])).await;
    r.ok(&[op::PUTFH]).expect(op::READDIR, Status::NotDir).end(Status::NotDir);
}

#[tokio::test]
async fn entry_error_is_in_rdattr_error() {
    let mut harness = filled(1).await;
    // The directory may be listed but not searched.
    let share = &harness.nfs.core.namespace.share_named(b"data").unwrap();
    let set = vfs::SetAttr { mode: Some(0o744), ..Default::default() };
    share.backend.root().setattr(&vfs::Cred::root(), set, false).await.unwrap();
    harness.cred = vfs::Cred { uid: 1000, gid: 1000, groups: [].into(), token: vfs::Token::NONE };
    let mut r =
        harness.run(|c| c.data().readdir(0, 0, ENOUGH, &[attr::RDATTR_ERROR, attr::SIZE])).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::READDIR, Status::Ok);
    r.fixed(8);
    assert!(r.bool());
    r.u64();
    assert_eq!(r.opaque(), b"file-0000");
    assert_eq!(r.bitmap(), [attr::RDATTR_ERROR]);
    assert_eq!((r.u32(), r.u32()), (4, Status::Access.to_u32()));
    assert!(!r.bool() && r.bool());
    r.end(Status::Ok);
    let mut r = harness.run(|c| c.data().readdir(0, 0, ENOUGH, &[attr::SIZE])).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::READDIR, Status::Access).end(Status::Access);
}
