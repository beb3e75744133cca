//! The operations of minor version 2 and of RFC 8276.

use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::{Stateid, attr, op};
use rdma_transport::xdr::Writer;
use vfs::Cred;

use crate::harness::{Args, Harness, Session};

/// Appends an operation whose arguments are a stateid and numbers.
fn with_id(c: Args, opcode: u32, numbers: &[u64]) -> Args {
    c.op(opcode, |w| {
        w.value(&Stateid::ANONYMOUS);
        numbers.iter().for_each(|&n| w.u64(n));
    })
}

fn seek(c: Args, at: u64, what: u32) -> Args {
    c.op(op::SEEK, |w| {
        w.value(&Stateid::ANONYMOUS);
        w.u64(at);
        w.u32(what);
    })
}

fn read_plus(c: Args, at: u64, count: u32) -> Args {
    c.op(op::READ_PLUS, |w| {
        w.value(&Stateid::ANONYMOUS);
        w.u64(at);
        w.u32(count);
    })
}

async fn size(s: &Session<'_>, file: &[u8]) -> u64 {
    let mut r = s.run(|c| c.putfh(file).getattr(&[attr::SIZE])).await;
    r.ok(&[op::PUTFH]).expect(op::GETATTR, Status::Ok);
    r.bitmap();
    r.u32();
    r.u64()
}

/// Bytes of data in the sparse file: the unit of storage of a memory volume.
const DATA: u64 = 1 << 16;

/// Creates a sparse file of 1 MiB with [`DATA`] bytes in the middle.
async fn sparse(harness: &Harness, s: &Session<'_>) -> Vec<u8> {
    let (_, file) = harness.with_file(b"sparse", b"").await;
    let data = vec![7; 1 << 16];
    let mut r = s.run(|c| c.putfh(&file).write(1 << 19, 2, &data)).await;
    r.ok(&[op::PUTFH]).expect(op::WRITE, Status::Ok);
    let grow = |w: &mut Writer| {
        w.value(&Stateid::ANONYMOUS);
        crate::harness::fattr(w, &[attr::SIZE], |v| v.u64(1 << 20));
    };
    let mut r = s.run(|c| c.putfh(&file).op(op::SETATTR, grow)).await;
    r.ok(&[op::PUTFH]).expect(op::SETATTR, Status::Ok);
    file
}

#[tokio::test]
async fn seek_finds_data_and_holes() {
    let harness = Harness::new();
    let s = harness.session().await;
    let file = sparse(&harness, &s).await;
    for (at, what, eof, found) in [
        (0, 0, false, 1 << 19),
        (0, 1, false, 0),
        (1 << 19, 0, false, 1 << 19),
        (1 << 19, 1, false, (1 << 19) + DATA),
        // No more data: OK with eof (RFC 7862 section 15.11.3).
        ((1 << 19) + DATA, 0, true, 1 << 20),
    ] {
        let mut r = s.run(|c| seek(c.putfh(&file), at, what)).await;
        r.ok(&[op::PUTFH]).expect(op::SEEK, Status::Ok);
        assert_eq!((r.bool(), r.u64()), (eof, found), "{at} {what}");
        r.end(Status::Ok);
    }
    let mut r = s.run(|c| seek(c.putfh(&file), 1 << 20, 0)).await;
    r.ok(&[op::PUTFH]).expect(op::SEEK, Status::Nxio).end(Status::Nxio);
    let mut r = s.run(|c| seek(c.putfh(&file), 0, 2)).await;
    r.ok(&[op::PUTFH]).expect(op::SEEK, Status::UnionNotSupp).end(Status::UnionNotSupp);
}

#[tokio::test]
async fn every_file_ends_with_a_hole() {
    let harness = Harness::new();
    let s = harness.session().await;
    let (_, file) = harness.with_file(b"f", b"hello").await;
    let mut r = s.run(|c| seek(c.putfh(&file), 0, 1)).await;
    r.ok(&[op::PUTFH]).expect(op::SEEK, Status::Ok);
    assert_eq!((r.bool(), r.u64()), (true, 5));
    r.end(Status::Ok);
}

#[tokio::test]
async fn read_plus_tells_holes_from_data() {
    let harness = Harness::new();
    let s = harness.session().await;
    let file = sparse(&harness, &s).await;
    let mut r = s.run(|c| read_plus(c.putfh(&file), 4096, 1 << 20)).await;
    r.ok(&[op::PUTFH]).expect(op::READ_PLUS, Status::Ok);
    assert!(r.bool(), "eof");
    assert_eq!(r.u32(), 3);
    assert_eq!((r.u32(), r.u64(), r.u64()), (1, 4096, (1 << 19) - 4096));
    assert_eq!((r.u32(), r.u64()), (0, 1 << 19));
    assert!(r.opaque() == vec![7; 1 << 16]);
    assert_eq!((r.u32(), r.u64(), r.u64()), (1, (1 << 19) + DATA, (1 << 19) - DATA));
    r.end(Status::Ok);
    for at in [1 << 20, u64::MAX] {
        let mut r = s.run(|c| read_plus(c.putfh(&file), at, 10)).await;
        r.ok(&[op::PUTFH]).expect(op::READ_PLUS, Status::Ok);
        assert_eq!((r.bool(), r.u32()), (true, 0));
        r.end(Status::Ok);
    }
}

/// A client that requests a whole payload gets it in one reply, as with READ.
#[tokio::test]
async fn read_plus_gives_a_whole_payload() {
    let harness = Harness::new();
    let s = harness.session().await;
    let (_, file) = harness.with_file(b"f", &vec![9; 1 << 20]).await;
    let mut r = s.run(|c| read_plus(c.putfh(&file), 0, 1 << 20)).await;
    r.ok(&[op::PUTFH]).expect(op::READ_PLUS, Status::Ok);
    assert_eq!((r.bool(), r.u32()), (true, 1));
    assert_eq!((r.u32(), r.u64()), (0, 0));
    assert_eq!(r.opaque().len(), 1 << 20);
    r.end(Status::Ok);
}

#[tokio::test]
async fn only_allocate_changes_size() {
    let harness = Harness::new();
    let s = harness.session().await;
    let (_, file) = harness.with_file(b"f", &[1; 12288]).await;
    let mut r = s.run(|c| with_id(c.putfh(&file), op::ALLOCATE, &[8192, 8192])).await;
    r.ok(&[op::PUTFH, op::ALLOCATE]).end(Status::Ok);
    assert_eq!(size(&s, &file).await, 16384);
    let mut r =
        s.run(|c| with_id(c.putfh(&file), op::DEALLOCATE, &[4096, 4096]).read(4095, 4098)).await;
    r.ok(&[op::PUTFH, op::DEALLOCATE]).expect(op::READ, Status::Ok);
    r.bool();
    let data = r.opaque();
    assert_eq!((data[0], data[4097]), (1, 1));
    assert!(data[1..4097].iter().all(|&b| b == 0));
    r.end(Status::Ok);
    assert_eq!(size(&s, &file).await, 16384);
    for opcode in [op::ALLOCATE, op::DEALLOCATE] {
        let mut r = s.run(|c| with_id(c.putfh(&file), opcode, &[0, 0])).await;
        r.ok(&[op::PUTFH]).expect(opcode, Status::Inval).end(Status::Inval);
    }
    let mut r = s.run(|c| with_id(c.putfh(&file), op::ALLOCATE, &[u64::MAX, 2])).await;
    r.ok(&[op::PUTFH]).expect(op::ALLOCATE, Status::FBig).end(Status::FBig);
    let mut r = s.run(|c| with_id(c.putfh(&file), op::DEALLOCATE, &[u64::MAX - 1, 9])).await;
    r.ok(&[op::PUTFH, op::DEALLOCATE]).end(Status::Ok);
}

fn copy(c: Args, from: u64, to: u64, count: u64, servers: u32) -> Args {
    c.op(op::COPY, |w| {
        w.value(&Stateid::ANONYMOUS);
        w.value(&Stateid::ANONYMOUS);
        [from, to, count].iter().for_each(|&n| w.u64(n));
        w.bool(true);
        w.bool(false);
        w.u32(servers);
        for _ in 0..servers {
            // NL4_NAME
            w.u32(1);
            w.opaque(b"elsewhere");
        }
    })
}

#[tokio::test]
async fn copy_completes_synchronously() {
    let harness = Harness::new();
    let s = harness.session().await;
    let (_, from) = harness.with_file(b"from", b"hello world").await;
    let (_, to) = harness.with_file(b"to", b"").await;
    // Count 0 means up to the end.
    for (at, count, expected) in [(6, 0, 5), (0, 5, 5), (8, 3, 3), (11, 0, 0)] {
        let mut r = s.run(|c| copy(c.putfh(&from).savefh().putfh(&to), at, 2, count, 0)).await;
        r.ok(&[op::PUTFH, op::SAVEFH, op::PUTFH]).expect(op::COPY, Status::Ok);
        assert_eq!((r.u32(), r.u64(), r.u32()), (0, expected, 0));
        assert_eq!(r.fixed(8), harness.nfs.core.write_verifier(0));
        assert!(r.bool() && r.bool());
        r.end(Status::Ok);
    }
    let mut r = s.run(|c| c.putfh(&to).read(0, 100)).await;
    r.ok(&[op::PUTFH]).expect(op::READ, Status::Ok);
    assert_eq!((r.bool(), r.opaque()), (true, b"\0\0rldlo".to_vec()));

    for (at, count) in [(12, 0), (12, 1), (8, 4), (11, 1), (0, u64::MAX)] {
        let beyond = s.run(|c| copy(c.putfh(&from).savefh().putfh(&to), at, 0, count, 0)).await;
        assert_eq!(beyond.status, Status::Inval, "{count} bytes from {at}, of 11");
    }
    let elsewhere = s.run(|c| copy(c.putfh(&from).savefh().putfh(&to), 0, 0, 1, 1)).await;
    assert_eq!(elsewhere.status, Status::NotSupp);
    let onto_itself = s.run(|c| copy(c.putfh(&from).savefh().putfh(&from), 0, 4, 5, 0)).await;
    assert_eq!(onto_itself.status, Status::Inval);
    let beside_itself = s.run(|c| copy(c.putfh(&from).savefh().putfh(&from), 0, 5, 5, 0)).await;
    assert_eq!(beside_itself.status, Status::Ok);
    let no_source = s.run(|c| copy(c.putfh(&to), 0, 0, 1, 0)).await;
    assert_eq!(no_source.status, Status::NoFileHandle);
}

fn clone(c: Args, from: u64, to: u64, count: u64) -> Args {
    c.op(op::CLONE, |w| {
        w.value(&Stateid::ANONYMOUS);
        w.value(&Stateid::ANONYMOUS);
        [from, to, count].iter().for_each(|&n| w.u64(n));
    })
}

#[tokio::test]
async fn clone_needs_alignment() {
    let harness = Harness::new();
    let s = harness.session().await;
    let mut content = vec![1; 1 << 16];
    content.extend([2; 100]);
    let (_, from) = harness.with_file(b"from", &content).await;
    let (_, to) = harness.with_file(b"to", b"").await;
    let mut r = s.run(|c| c.putfh(&from).getattr(&[attr::CLONE_BLKSIZE])).await;
    r.ok(&[op::PUTFH]).expect(op::GETATTR, Status::Ok);
    r.bitmap();
    r.u32();
    let block = u64::from(r.u32());
    // Up to the end, which need not be aligned.
    let mut r = s.run(|c| clone(c.putfh(&from).savefh().putfh(&to), 0, 0, 0)).await;
    r.ok(&[op::PUTFH, op::SAVEFH, op::PUTFH, op::CLONE]).end(Status::Ok);
    let mut r = s.run(|c| c.putfh(&to).read(0, 1 << 20)).await;
    r.ok(&[op::PUTFH]).expect(op::READ, Status::Ok);
    assert!(r.bool() && r.opaque() == content);
    for (from_at, to_at, count) in [(1, 0, block), (0, 1, block), (0, 0, 1), (0, 0, 1 << 20)] {
        let r = s.run(|c| clone(c.putfh(&from).savefh().putfh(&to), from_at, to_at, count)).await;
        assert_eq!(r.status, Status::Inval, "{from_at} {to_at} {count}");
    }
    let r = s.run(|c| clone(c.putfh(&from).savefh().putfh(&from), 0, 0, block)).await;
    assert_eq!(r.status, Status::Inval);
}

#[tokio::test]
async fn copies_under_way_are_never_found() {
    let harness = Harness::new();
    let s = harness.session().await;
    let (_, file) = harness.with_file(b"f", b"").await;
    for opcode in [op::OFFLOAD_CANCEL, op::OFFLOAD_STATUS] {
        let mut r = s.run(|c| with_id(c.putfh(&file), opcode, &[])).await;
        r.ok(&[op::PUTFH]).expect(opcode, Status::BadStateId).end(Status::BadStateId);
    }
}

#[tokio::test]
async fn unimplemented_operation_returns_notsupp() {
    let harness = Harness::new();
    let s = harness.session().await;
    for opcode in [op::LAYOUTGET, op::COPY_NOTIFY, op::WRITE_SAME, op::WANT_DELEGATION] {
        let mut r = s.run(|c| c.data().op(opcode, |_| {})).await;
        r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(opcode, Status::NotSupp).end(Status::NotSupp);
    }
    for opcode in [op::SETCLIENTID, op::RENEW, op::OPEN_CONFIRM, op::RELEASE_LOCKOWNER] {
        let mut r = s.run(|c| c.op(opcode, |_| {})).await;
        r.expect(opcode, Status::NotSupp).end(Status::NotSupp);
    }
}

#[tokio::test]
async fn io_advise_accepts_hints() {
    let harness = Harness::new();
    let s = harness.session().await;
    let (_, file) = harness.with_file(b"f", b"").await;
    let advise = |w: &mut Writer| {
        w.value(&Stateid::ANONYMOUS);
        w.u64(0);
        w.u64(0);
        w.u32(1);
        w.u32(1 << 4);
    };
    let mut r = s.run(|c| c.putfh(&file).op(op::IO_ADVISE, advise)).await;
    r.ok(&[op::PUTFH]).expect(op::IO_ADVISE, Status::Ok);
    assert!(r.bitmap().is_empty());
    r.end(Status::Ok);
}

fn set(c: Args, how: u32, name: &[u8], value: &[u8]) -> Args {
    c.op(op::SETXATTR, |w| {
        w.u32(how);
        w.opaque(name);
        w.opaque(value);
    })
}

#[tokio::test]
async fn extended_attributes_round_trip() {
    let harness = Harness::new();
    let s = harness.session().await;
    let (_, file) = harness.with_file(b"f", b"").await;
    let get = |c: Args, name: &'static [u8]| c.op(op::GETXATTR, |w| w.opaque(name));
    for name in [&b"b"[..], b"a", b"c"] {
        let mut r = s.run(|c| set(c.putfh(&file), 1, name, b"value")).await;
        r.ok(&[op::PUTFH]).expect(op::SETXATTR, Status::Ok).fixed(20);
        r.end(Status::Ok);
    }
    // SETXATTR4_CREATE fails because it exists, SETXATTR4_REPLACE because it does not.
    assert_eq!(s.run(|c| set(c.putfh(&file), 1, b"a", b"")).await.status, Status::Exist);
    assert_eq!(s.run(|c| set(c.putfh(&file), 2, b"x", b"")).await.status, Status::NoXattr);
    let mut r = s.run(|c| get(get(c.putfh(&file), b"a"), b"x")).await;
    r.ok(&[op::PUTFH]).expect(op::GETXATTR, Status::Ok);
    assert_eq!(r.opaque(), b"value");
    r.expect(op::GETXATTR, Status::NoXattr).end(Status::NoXattr);

    let list = |c: Args, cookie: u64, max: u32| {
        c.op(op::LISTXATTRS, |w| {
            w.u64(cookie);
            w.u32(max);
        })
    };
    // 16 bytes of overhead, 8 for each name: two fit.
    let mut r = s.run(|c| list(c.putfh(&file), 0, 39)).await;
    r.ok(&[op::PUTFH]).expect(op::LISTXATTRS, Status::Ok);
    let cookie = r.u64();
    assert_eq!((r.u32(), r.opaque(), r.opaque()), (2, b"a".to_vec(), b"b".to_vec()));
    assert!(!r.bool());
    let mut r = s.run(|c| list(c.putfh(&file), cookie, 39)).await;
    r.ok(&[op::PUTFH]).expect(op::LISTXATTRS, Status::Ok);
    r.u64();
    assert_eq!((r.u32(), r.opaque(), r.bool()), (1, b"c".to_vec(), true));
    r.end(Status::Ok);
    assert_eq!(s.run(|c| list(c.putfh(&file), 0, 23)).await.status, Status::TooSmall);
    assert_eq!(s.run(|c| list(c.putfh(&file), 9, 99)).await.status, Status::BadCookie);

    let remove = |c: Args| c.op(op::REMOVEXATTR, |w| w.opaque(b"a"));
    let mut r = s.run(|c| remove(remove(c.putfh(&file)))).await;
    r.ok(&[op::PUTFH]).expect(op::REMOVEXATTR, Status::Ok).fixed(20);
    r.expect(op::REMOVEXATTR, Status::NoXattr).end(Status::NoXattr);
}

#[tokio::test]
async fn minor_version_2_attributes_are_supported() {
    let harness = Harness::new();
    let s = harness.session().await;
    let want = [attr::SUPPATTR_EXCLCREAT, attr::CHANGE_ATTR_TYPE, attr::XATTR_SUPPORT];
    let mut r = s.run(|c| c.data().getattr(&want)).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::GETATTR, Status::Ok);
    assert_eq!(r.bitmap(), want);
    r.u32();
    assert!(r.bitmap().contains(&attr::MODE_UMASK));
    r.u32();
    assert!(r.bool());
    r.end(Status::Ok);
}

#[tokio::test]
async fn open_arguments_are_reported() {
    let harness = Harness::new();
    let s = harness.session().await;
    let mut r = s.run(|c| c.data().getattr(&[attr::OPEN_ARGUMENTS])).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::GETATTR, Status::Ok);
    assert_eq!((r.bitmap(), r.u32()), (vec![attr::OPEN_ARGUMENTS], 40));
    // Access, deny, wants, claims, create modes.
    for set in [0b1110, 0b1111, 0b11_1000 | 3 << 20, 0b11_0111, 0b1111] {
        assert_eq!((r.u32(), r.u32()), (1, set));
    }
    r.end(Status::Ok);
}

#[tokio::test]
async fn server_applies_umask_to_directory() {
    let harness = Harness::new();
    let s = harness.session().await;
    let mkdir = |w: &mut Writer| {
        w.u32(2);
        w.opaque(b"d");
        crate::harness::fattr(w, &[attr::MODE_UMASK], |v| {
            v.u32(0o777);
            v.u32(0o027);
        });
    };
    let mut r = s.run(|c| c.data().op(op::CREATE, mkdir).getattr(&[attr::MODE])).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::CREATE, Status::Ok).fixed(20);
    assert_eq!(r.bitmap(), [attr::MODE_UMASK]);
    r.expect(op::GETATTR, Status::Ok);
    r.bitmap();
    r.u32();
    assert_eq!(r.u32(), 0o750);
}

#[tokio::test]
async fn reply_obeys_session_limits() {
    let harness = Harness::new();
    let (_, file) = harness.with_file(b"f", &[7; 8192]).await;
    let s = harness.session_of(1024, 512).await;
    // READ is shortened, LOOKUP and GETFH end the COMPOUND, and operations that are not idempotent are refused before execution.
    let mut r = s.run(|c| c.putfh(&file).read(0, 8192)).await;
    r.ok(&[op::PUTFH]).expect(op::READ, Status::Ok);
    let (eof, len) = (r.bool(), r.opaque().len());
    assert!(!eof && len > 700 && len < 1024, "{len}");
    let mut r = s.run(|c| (0..14).fold(c.root(), |c, _| c.getfh().getattr(&[0, 36, 37]))).await;
    assert_eq!(r.status, Status::RepTooBig);
    r.ok(&[op::PUTROOTFH]);
    let mut r =
        s.run_cached(true, |c| (0..14).fold(c.data(), |c, _| c.getattr(&[0, 36, 37]))).await;
    assert_eq!(r.status, Status::RepTooBigToCache);
    r.ok(&[op::PUTROOTFH, op::LOOKUP]);
}

/// A set-id file runs with the rights of its owner, so changed content must not keep the bits.
#[tokio::test]
async fn data_change_clears_set_id_bits() {
    let content = vec![1; 1 << 17];
    let eve = Cred { uid: 7003, gid: 7003, groups: [].into(), token: vfs::Token::NONE };
    for (caller, kept) in [(Cred::root(), 0o6777), (eve, 0o777)] {
        let mut harness = Harness::new();
        let (_, from) = harness.with_file(b"from", &content).await;
        let (_, file) = harness.with_file(b"file", &content).await;
        let root = harness.nfs.core.namespace.share_named(b"data").unwrap().backend.root();
        let (node, _) = root.lookup(&Cred::root(), b"file").await.unwrap();
        harness.cred = caller;
        let s = harness.session().await;
        for opcode in [op::ALLOCATE, op::DEALLOCATE, op::COPY, op::CLONE] {
            let mode = vfs::SetAttr { mode: Some(0o6777), ..Default::default() };
            node.setattr(&Cred::root(), mode, false).await.unwrap();
            let r = s
                .run(|c| match opcode {
                    op::COPY => copy(c.putfh(&from).savefh().putfh(&file), 0, 0, 0, 0),
                    op::CLONE => clone(c.putfh(&from).savefh().putfh(&file), 0, 0, 0),
                    _ => with_id(c.putfh(&file), opcode, &[0, 1 << 16]),
                })
                .await;
            assert_eq!(r.status, Status::Ok, "{opcode}");
            assert_eq!(node.getattr().await.unwrap().mode, kept, "{opcode}");
        }
    }
}
