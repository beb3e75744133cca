//! READ, WRITE and COMMIT.

use iobuf::Buf;
use nfs_proto::nfs4::Nfsstat4;
use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::{Stateid, attr, op};
use rdma_transport::channel::ReadChunkData;
use rdma_transport::xdr::Writer;

use crate::harness::Harness;

#[tokio::test]
async fn read_returns_written_data_and_eof() {
    let harness = Harness::new();
    let (_, file) = harness.with_file(b"f", b"").await;
    let mut r = harness
        .run(|c| c.putfh(&file).write(0, 2, b"hello world").read(6, 3).read(6, 100).read(50, 1))
        .await;
    r.ok(&[op::PUTFH]).expect(op::WRITE, Status::Ok);
    assert_eq!((r.u32(), r.u32()), (11, 2));
    assert_eq!(r.fixed(8), [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
    for (eof, data) in [(false, &b"wor"[..]), (true, b"world"), (true, b"")] {
        r.expect(op::READ, Status::Ok);
        assert_eq!((r.bool(), &r.opaque()[..]), (eof, data));
    }
    assert_eq!(r.payloads, 3, "the transport may move them");
    r.end(Status::Ok);
}

#[tokio::test]
async fn write_takes_data_outside_message() {
    let harness = Harness::new();
    let (_, file) = harness.with_file(b"f", b"").await;
    let mut w = Writer::new();
    w.opaque(b"tag");
    w.u32(0);
    w.count(2);
    w.u32(op::PUTFH);
    w.opaque(&file);
    w.u32(op::WRITE);
    w.value(&Stateid::ANONYMOUS);
    w.u64(1);
    w.u32(0);
    w.u32(5);
    let read_chunks = ReadChunkData {
        at: w.len(),
        data: vec![Buf::from(b"abc".to_vec()), Buf::from(b"de".to_vec())],
    };
    let mut r = harness.raw(w.into_reply().head, &[read_chunks]).await.unwrap();
    r.ok(&[op::PUTFH]).expect(op::WRITE, Status::Ok);
    assert_eq!(r.u32(), 5);
    r.u32();
    r.fixed(8);
    r.end(Status::Ok);
    let mut r = harness.run(|c| c.putfh(&file).read(0, 10)).await;
    r.ok(&[op::PUTFH]).expect(op::READ, Status::Ok);
    assert_eq!((r.bool(), r.opaque()), (true, b"\0abcde".to_vec()));
}

/// The transport had no memory for the data: operations before the WRITE are executed, and the client must retry.
#[tokio::test]
async fn missing_data_is_answered_delay() {
    let harness = Harness::new();
    let (_, file) = harness.with_file(b"f", b"before").await;
    let mut w = Writer::new();
    w.opaque(b"tag");
    w.u32(0);
    w.count(3);
    w.u32(op::PUTFH);
    w.opaque(&file);
    w.u32(op::WRITE);
    w.value(&Stateid::ANONYMOUS);
    w.u64(0);
    w.u32(0);
    w.u32(5);
    let missing = ReadChunkData { at: w.len(), data: Vec::new() };
    w.u32(op::GETATTR);
    w.u32(0);
    let mut r = harness.raw(w.into_reply().head, &[missing]).await.unwrap();
    r.ok(&[op::PUTFH]).expect(op::WRITE, Status::Delay).end(Status::Delay);
    let mut r = harness.run(|c| c.putfh(&file).read(0, 10)).await;
    r.ok(&[op::PUTFH]).expect(op::READ, Status::Ok);
    assert_eq!((r.bool(), r.opaque()), (true, b"before".to_vec()));
}

#[tokio::test]
async fn only_regular_files_have_data() {
    let harness = Harness::new();
    let mut r = harness.run(|c| c.data().read(0, 1)).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::READ, Status::IsDir).end(Status::IsDir);
    let mut r = harness.run(|c| c.root().write(0, 0, b"x")).await;
    r.ok(&[op::PUTROOTFH]).expect(op::WRITE, Status::IsDir).end(Status::IsDir);
    let fifo = |w: &mut Writer| {
        w.u32(7);
        w.opaque(b"p");
        w.u32(0);
        w.u32(0);
    };
    let mut r = harness.run(|c| c.data().op(op::CREATE, fifo).read(0, 1)).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::CREATE, Status::Ok).fixed(20);
    r.bitmap();
    r.expect(op::READ, Status::Inval).end(Status::Inval);
}

#[tokio::test]
async fn invented_stateid_is_refused() {
    let harness = Harness::new();
    let (_, file) = harness.with_file(b"f", b"x").await;
    let made_up = Stateid { seqid: 1, other: [9; 12] };
    let args = |w: &mut Writer| {
        w.value(&made_up);
        w.u64(0);
        w.u32(1);
    };
    let mut r = harness.run(|c| c.putfh(&file).op(op::READ, args)).await;
    r.ok(&[op::PUTFH]);
    r.left -= 1;
    assert_eq!(r.u32(), op::READ);
    let status = Nfsstat4::from_u32(r.u32()).map(Status).unwrap();
    assert!(matches!(status, Status::BadStateId | Status::StaleStateId), "{status:?}");
    r.end(status);
}

#[tokio::test]
async fn permission_is_checked_without_an_open() {
    let mut harness = Harness::new();
    let (_, file) = harness.with_file(b"f", b"secret").await;
    harness.cred = vfs::Cred { uid: 1000, gid: 1000, groups: [].into(), token: vfs::Token::NONE };
    let mut r = harness.run(|c| c.putfh(&file).read(0, 9).write(0, 0, b"x")).await;
    r.ok(&[op::PUTFH]).expect(op::READ, Status::Ok);
    assert_eq!((r.bool(), r.opaque()), (true, b"secret".to_vec()));
    r.expect(op::WRITE, Status::Access).end(Status::Access);
}

#[tokio::test]
async fn read_is_cut_to_reply_size() {
    let harness = Harness::new();
    let size = 1 << 20;
    let (_, file) = harness.with_file(b"f", &vec![7; size]).await;
    // The second READ does not fit.
    let mut r = harness.run(|c| c.putfh(&file).read(0, u32::MAX).read(0, u32::MAX)).await;
    r.ok(&[op::PUTFH]).expect(op::READ, Status::Ok);
    assert_eq!((r.bool(), r.opaque().len()), (true, size));
    r.expect(op::READ, Status::Ok);
    let (eof, len) = (r.bool(), r.opaque().len());
    assert!(!eof && len > 0 && len < size, "{len}");
    r.end(Status::Ok);
}

#[tokio::test]
async fn commit_and_write_share_verifier() {
    let harness = Harness::new();
    let (_, file) = harness.with_file(b"f", b"").await;
    let commit = |w: &mut Writer| {
        w.u64(0);
        w.u32(0);
    };
    let mut r = harness.run(|c| c.putfh(&file).write(0, 0, b"x").op(op::COMMIT, commit)).await;
    r.ok(&[op::PUTFH]).expect(op::WRITE, Status::Ok);
    r.u64();
    let verifier = r.u64();
    r.expect(op::COMMIT, Status::Ok);
    assert_eq!(r.u64(), verifier);
    r.end(Status::Ok);
}

#[tokio::test]
async fn truncation_needs_write_permission() {
    let mut harness = Harness::new();
    let (_, file) = harness.with_file(b"f", b"secret").await;
    harness.cred = vfs::Cred { uid: 1000, gid: 1000, groups: [].into(), token: vfs::Token::NONE };
    let set = |w: &mut Writer| {
        w.value(&Stateid::ANONYMOUS);
        crate::harness::fattr(w, &[attr::SIZE], |v| v.u64(0));
    };
    let mut r = harness.run(|c| c.putfh(&file).op(op::SETATTR, set)).await;
    r.ok(&[op::PUTFH]).expect(op::SETATTR, Status::Access);
    assert!(r.bitmap().is_empty());
    r.end(Status::Access);
}

/// RFC 8881 section 18.32.3: the server may write less than requested, and returns the count.
#[tokio::test]
async fn long_write_is_cut_off() {
    let harness = Harness::new();
    let (_, file) = harness.with_file(b"f", b"").await;
    let data: Vec<u8> = (0..(1_u32 << 20) + 5).map(|i| (i % 251) as u8).collect();
    let mut r = harness.run(|c| c.putfh(&file).write(0, 2, &data).read(0, 1 << 20)).await;
    r.ok(&[op::PUTFH]).expect(op::WRITE, Status::Ok);
    assert_eq!((r.u32(), r.u32()), (1 << 20, 2));
    r.fixed(8);
    r.expect(op::READ, Status::Ok);
    assert!(r.bool(), "nothing is behind them");
    assert!(r.opaque() == data[..1 << 20]);
    r.end(Status::Ok);
}
