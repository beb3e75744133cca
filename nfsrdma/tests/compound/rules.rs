//! Rules for every COMPOUND (RFC 7530 section 15.2, RFC 8881 section 16.2).

use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::op;
use proptest::prelude::*;
use rdma_transport::xdr::Writer;

use crate::harness::{Args, Harness};

#[tokio::test]
async fn empty_compound_is_answered() {
    Harness::new().run(|c| c).await.end(Status::Ok);
}

#[tokio::test]
async fn first_error_ends_compound() {
    let mut r = Harness::new().run(|c| c.root().lookup(b"nothing").getfh()).await;
    r.ok(&[op::PUTROOTFH]).expect(op::LOOKUP, Status::NoEnt);
    r.end(Status::NoEnt);
}

#[tokio::test]
async fn unknown_minor_version_is_refused() {
    let mut r = Harness::new().run_minor(3, |c| c.root()).await;
    r.end(Status::MinorVersMismatch);
}

#[tokio::test]
async fn undefined_opcodes_are_illegal() {
    let harness = Harness::new();
    for number in [0, 2, 40, 59, 76, 10_044, u32::MAX] {
        let mut r = harness.run(|c| c.op(number, |_| {})).await;
        r.expect(op::ILLEGAL, Status::OpIllegal);
        r.end(Status::OpIllegal);
    }
    let mut r = harness.run_minor(1, |c| c.op(op::SEEK, |_| {})).await;
    r.expect(op::ILLEGAL, Status::OpIllegal);
    r.end(Status::OpIllegal);
}

#[tokio::test]
async fn sessionless_operations_must_be_single() {
    let harness = Harness::new();
    for minor in [1, 2] {
        let mut r = harness.run_minor(minor, |c| c.root()).await;
        r.expect(op::PUTROOTFH, Status::OpNotInSession);
        r.end(Status::OpNotInSession);
        for number in [op::EXCHANGE_ID, op::CREATE_SESSION, op::DESTROY_SESSION] {
            let mut r = harness.run_minor(minor, |c| c.op(number, |_| {}).root()).await;
            r.expect(number, Status::NotOnlyOp);
            r.end(Status::NotOnlyOp);
        }
    }
}

#[tokio::test]
async fn too_many_operations_are_refused() {
    let mut r = Harness::new().run(|c| (0..129).fold(c, |c, _| c.root())).await;
    r.end(Status::Resource);
    let mut r = Harness::new().run(|c| (0..128).fold(c, |c, _| c.root())).await;
    r.ok(&[op::PUTROOTFH; 128]).end(Status::Ok);
}

#[tokio::test]
async fn impossible_count_is_garbage() {
    let mut w = Writer::new();
    w.opaque(b"");
    w.u32(0);
    w.u32(u32::MAX);
    assert!(Harness::new().raw(w.into_reply().head, &[]).await.is_none());
    let mut w = Writer::new();
    w.u32(1025);
    w.fixed(&[0; 1020]);
    assert!(
        Harness::new().raw(w.into_reply().head, &[]).await.is_none(),
        "a tag that is not there"
    );
}

/// RFC 8881 section 16.2.3: the client chooses the tag, and the reply repeats it.
#[tokio::test]
async fn long_tag_is_repeated() {
    for (length, status) in
        [(1_025, Status::Ok), (100_000, Status::Ok), (1_120_000, Status::Resource)]
    {
        let mut w = Writer::new();
        w.opaque(&vec![b't'; length]);
        w.u32(0);
        w.u32(1);
        w.u32(op::PUTROOTFH);
        let mut r = Harness::new().raw(w.into_reply().head, &[]).await.unwrap();
        assert!(r.tag == vec![b't'; length], "{length}");
        r.expect(op::PUTROOTFH, status).end(status);
    }
}

#[tokio::test]
async fn truncated_arguments_return_badxdr() {
    let mut r = Harness::new().run(|c| c.root().op(op::LOOKUP, |w| w.u32(9))).await;
    r.ok(&[op::PUTROOTFH]).expect(op::LOOKUP, Status::BadXdr);
    r.end(Status::BadXdr);
}

#[tokio::test]
async fn missing_file_handle_is_reported() {
    let harness = Harness::new();
    for (number, words) in [
        (op::GETFH, 0),
        (op::SAVEFH, 0),
        (op::LOOKUPP, 0),
        (op::READLINK, 0),
        (op::ACCESS, 1),
        (op::COMMIT, 3),
        (op::GETATTR, 1),
        (op::READ, 7),
        (op::READDIR, 7),
    ] {
        let args = |w: &mut Writer| (0..words).for_each(|_| w.u32(0));
        let mut r = harness.run(|c| c.op(number, args)).await;
        r.expect(number, Status::NoFileHandle);
        r.end(Status::NoFileHandle);
    }
    let mut r = harness.run(|c| c.op(op::RESTOREFH, |_| {})).await;
    r.expect(op::RESTOREFH, Status::RestoreFh);
    r.end(Status::RestoreFh);
}

#[tokio::test]
async fn saved_and_current_handles_are_exchanged() {
    let harness = Harness::new();
    let restore = |_: &mut Writer| {};
    let mut r = harness
        .run(|c| {
            c.root().getfh().savefh().lookup(b"data").getfh().op(op::RESTOREFH, restore).getfh()
        })
        .await;
    r.ok(&[op::PUTROOTFH]).expect(op::GETFH, Status::Ok);
    let root = r.opaque();
    r.ok(&[op::SAVEFH, op::LOOKUP]).expect(op::GETFH, Status::Ok);
    let data = r.opaque();
    r.ok(&[op::RESTOREFH]).expect(op::GETFH, Status::Ok);
    assert_eq!(r.opaque(), root);
    assert_ne!(data, root);
    r.end(Status::Ok);
}

#[tokio::test]
async fn forged_handles_are_refused() {
    let harness = Harness::new();
    for fh in [&b""[..], &[0; 64], &[1; 33]] {
        let mut r = harness.run(|c| c.putfh(fh)).await;
        r.expect(op::PUTFH, Status::BadHandle);
        r.end(Status::BadHandle);
    }
    let mut r = harness.run(|c| c.putfh(&[0; 129])).await;
    r.expect(op::PUTFH, Status::BadXdr);
    r.end(Status::BadXdr);
}

#[tokio::test]
async fn unlisted_client_cannot_use_share() {
    let harness = Harness::new();
    let mut r = harness.run(|c| c.root().lookup(b"hidden")).await;
    r.ok(&[op::PUTROOTFH]).expect(op::LOOKUP, Status::NoEnt);
    r.end(Status::NoEnt);
    // A handle obtained by another client does not help.
    let core = &harness.nfs.core;
    let share = &core.namespace.share_named(b"hidden").unwrap();
    let fh = core.handles.of_node(share, &share.backend.root().handle());
    // PUTFH succeeds, because the client may have state from before a reload and must be able to release it. All other operations
    // fail, even on the root's attributes.
    type Ask = fn(Args) -> Args;
    let asks: [(u32, Ask); 6] = [
        (op::GETATTR, |c| c.getattr(&[1])),
        (op::GETFH, Args::getfh),
        (op::SAVEFH, Args::savefh),
        (op::LOOKUP, |c| c.lookup(b"f")),
        (op::LOOKUPP, |c| c.op(op::LOOKUPP, |_| {})),
        (op::READDIR, |c| c.readdir(0, 1000, 1000, &[])),
    ];
    for (opcode, ask) in asks {
        let mut r = harness.run(|c| ask(c.putfh(fh.as_bytes()))).await;
        r.ok(&[op::PUTFH]).expect(opcode, Status::Access).end(Status::Access);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_bytes_do_not_panic(
        minor in 0u32..3,
        ops in prop::collection::vec((0u32..76, prop::collection::vec(any::<u8>(), 0..80)), 1..6),
    ) {
        let mut w = Writer::new();
        w.opaque(b"");
        w.u32(minor);
        w.count(ops.len() + 1);
        w.u32(op::PUTROOTFH);
        for (number, args) in ops {
            w.u32(number);
            w.fixed(&args);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Harness::new().raw(w.into_reply().head, &[]));
    }
}
