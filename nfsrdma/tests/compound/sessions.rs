//! Clients and sessions of minor version 1 (RFC 8881 sections 2.10, 18.34 to 18.37, 18.46, 18.50).

use std::sync::atomic::Ordering;

use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::op;
use rdma_transport::channel::Handle;
use rdma_transport::xdr::Writer;
use vfs::Cred;

use crate::client::{BACK_CHAN, Client, FORE, R, conn_of, create, exchange};
use crate::harness::{Harness, conn_from};

const UPDATE: u32 = 0x4000_0000;
const CONFIRMED: u32 = 0x8000_0000;
const NON_PNFS: u32 = 0x0001_0000;

/// EXCHANGE_ID; returns the client's number, sequence number and flags.
async fn introduce(
    harness: &Harness,
    uid: u32,
    args: impl FnOnce(&mut Writer),
) -> Result<(u64, u32, u32), Status> {
    let cred = Cred { uid, ..Cred::root() };
    let mut r = harness.run_on(&harness.conn, &cred, 1, |c| c.op(op::EXCHANGE_ID, args)).await;
    r.expect(op::EXCHANGE_ID, r.status);
    if r.status == Status::Ok { Ok((r.u64(), r.u32(), r.u32())) } else { Err(r.status) }
}

/// CREATE_SESSION as this user.
async fn make(
    harness: &Harness,
    uid: u32,
    args: impl FnOnce(&mut Writer),
) -> Result<Vec<u8>, Status> {
    let cred = Cred { uid, ..Cred::root() };
    let mut r = harness.run_on(&harness.conn, &cred, 1, |c| c.op(op::CREATE_SESSION, args)).await;
    r.expect(op::CREATE_SESSION, r.status);
    if r.status == Status::Ok { Ok(r.fixed(16)) } else { Err(r.status) }
}

/// The nine cases of RFC 8881 section 18.35.4.
#[tokio::test]
async fn every_case_of_exchange_id() {
    let harness = Harness::new();
    let (a, seq, flags) = introduce(&harness, 0, exchange(b"x", 1, 0)).await.unwrap();
    assert_eq!((seq, flags), (1, NON_PNFS), "1: new, unconfirmed");
    let (b, ..) = introduce(&harness, 0, exchange(b"x", 1, 0)).await.unwrap();
    assert_ne!(a, b, "4: an unconfirmed record is replaced");
    assert_eq!(make(&harness, 0, create(a, 1, 0, FORE)).await, Err(Status::StaleClientId));
    assert_eq!(introduce(&harness, 0, exchange(b"x", 1, UPDATE)).await, Err(Status::NoEnt), "7");
    make(&harness, 0, create(b, 1, 0, FORE)).await.unwrap();
    let again = introduce(&harness, 0, exchange(b"x", 1, 0)).await.unwrap();
    assert_eq!(again, (b, 2, NON_PNFS | CONFIRMED), "2: the same client");
    let again = introduce(&harness, 0, exchange(b"x", 1, UPDATE)).await.unwrap();
    assert_eq!(again, (b, 2, NON_PNFS | CONFIRMED), "6: update");
    assert_eq!(introduce(&harness, 0, exchange(b"x", 2, UPDATE)).await, Err(Status::NotSame), "8");
    assert_eq!(introduce(&harness, 5, exchange(b"x", 1, UPDATE)).await, Err(Status::Perm), "9");
    let (c, ..) = introduce(&harness, 0, exchange(b"x", 2, 0)).await.unwrap();
    assert_ne!(c, b, "5: the client started again");
    let still = introduce(&harness, 0, exchange(b"x", 1, UPDATE)).await.unwrap();
    assert_eq!(still.0, b, "what is confirmed stays until the new one is");
    make(&harness, 0, create(c, 1, 0, FORE)).await.unwrap();
    assert_eq!(make(&harness, 0, create(b, 2, 0, FORE)).await, Err(Status::StaleClientId));
}

#[tokio::test]
async fn client_with_state_keeps_name() {
    let harness = Harness::new();
    let c = Client::new(&harness, b"x").await;
    let refused = Err(Status::ClidInUse);
    assert_eq!(introduce(&harness, 5, exchange(b"x", 1, 0)).await, refused, "3: it has a session");
    c.open(b"o", b"f", R).await.unwrap();
    assert_eq!(introduce(&harness, 5, exchange(b"x", 1, 0)).await, refused, "3: and an open");
    harness.at_ms(90_001);
    assert!(introduce(&harness, 5, exchange(b"x", 1, 0)).await.is_ok(), "3: its lease has lapsed");
    assert_eq!(
        make(&harness, 0, create(c.id, 2, 0, FORE)).await,
        Err(Status::StaleClientId),
        "gone"
    );
}

/// RFC 7862 section 14.1 defines a bit that the server must refuse in RFC 8881 section 18.35.3; pynfs' EID4 tests that in every
/// version.
#[tokio::test]
async fn minor_version_1_refuses_fence_flag() {
    const FENCE_OPS: u32 = 0x4;
    let harness = Harness::new();
    for (minor, status) in [(1, Status::Inval), (2, Status::Ok)] {
        let args = exchange(b"x", 1, FENCE_OPS);
        let r = harness.run_minor(minor, |c| c.op(op::EXCHANGE_ID, args)).await;
        assert_eq!(r.status, status, "4.{minor}");
    }
}

#[tokio::test]
async fn unsupported_flags_are_refused() {
    let harness = Harness::new();
    for flags in [CONFIRMED, 0x4, 0x8, 0x0100_0000] {
        assert_eq!(introduce(&harness, 0, exchange(b"x", 1, flags)).await, Err(Status::Inval));
    }
    let protected = |how: u32| {
        move |w: &mut Writer| {
            w.u64(1);
            w.opaque(b"x");
            w.u32(0);
            w.u32(how);
            if how > 0 {
                w.count(0);
                w.count(0);
            }
            if how > 1 {
                for _ in 0..4 {
                    w.u32(0);
                }
            }
            w.count(0);
        }
    };
    assert!(introduce(&harness, 0, protected(0)).await.is_ok());
    assert_eq!(introduce(&harness, 0, protected(1)).await, Err(Status::Inval));
    assert_eq!(introduce(&harness, 0, protected(2)).await, Err(Status::EncrAlgUnsupp));
    assert_eq!(introduce(&harness, 0, protected(3)).await, Err(Status::BadXdr));
}

#[tokio::test]
async fn create_session_caches_reply() {
    let harness = Harness::new();
    let (id, seq, _) = introduce(&harness, 0, exchange(b"x", 1, 0)).await.unwrap();
    assert_eq!(make(&harness, 0, create(id, seq + 1, 0, FORE)).await, Err(Status::SeqMisordered));
    assert_eq!(make(&harness, 0, create(id, seq - 1, 0, FORE)).await, Err(Status::SeqMisordered));
    assert_eq!(make(&harness, 5, create(id, seq, 0, FORE)).await, Err(Status::ClidInUse));
    // A failed request advances the sequence; some clients count it and some do not.
    let small = [9, 9, 9, 9, 9];
    assert_eq!(make(&harness, 0, create(id, seq, 0x10, FORE)).await, Err(Status::Inval));
    assert_eq!(make(&harness, 0, create(id, seq + 1, 0, small)).await, Err(Status::TooSmall));
    let seq = seq + 2;
    assert_eq!(make(&harness, 0, create(id + 1, seq, 0, FORE)).await, Err(Status::StaleClientId));
    let first = make(&harness, 0, create(id, seq, 0, FORE)).await.unwrap();
    assert_eq!(
        make(&harness, 0, create(id, seq, 0, FORE)).await,
        Ok(first.clone()),
        "a repetition"
    );
    for seq in [seq, seq + 1] {
        let stolen = make(&harness, 5, create(id, seq, 0, FORE)).await;
        assert_eq!(stolen, Err(Status::ClidInUse), "another's client, by its number");
    }
    let second = make(&harness, 0, create(id, seq + 1, 0, FORE)).await.unwrap();
    assert_ne!(first, second);
}

#[tokio::test]
async fn channel_limits_are_negotiated_down() {
    let harness = Harness::new();
    let (id, seq, _) = introduce(&harness, 0, exchange(b"x", 1, 0)).await.unwrap();
    let args = create(id, seq, BACK_CHAN, [u32::MAX, 5_000, u32::MAX, u32::MAX, u32::MAX]);
    let mut r = harness.run_minor(1, |c| c.op(op::CREATE_SESSION, args)).await;
    r.expect(op::CREATE_SESSION, Status::Ok).fixed(16);
    assert_eq!((r.u32(), r.u32()), (seq, BACK_CHAN));
    let fore: Vec<u32> = (0..7).map(|_| r.u32()).collect();
    assert_eq!(fore, [0, (1 << 20) + (64 << 10), 5_000, 8 << 10, 128, 128, 0]);
    let back: Vec<u32> = (0..7).map(|_| r.u32()).collect();
    assert_eq!(back, [0, 4096, 4096, 0, 2, 4, 0]);
    r.end(Status::Ok);
}

#[tokio::test]
async fn retransmission_works_on_other_connection() {
    let harness = Harness::new();
    let c = Client::new(&harness, b"x").await;
    let (_, dir) = (0, harness.with_file(b"f", b"").await.0);
    let make = |c: crate::harness::Args| c.putfh(&dir).mkdir(b"d");
    let mut first = c.send(1, 1, true, make).await;
    assert_eq!(first.status, Status::Ok);
    let other = conn_of(Handle::detached());
    let mut again = c.send_on(&other, 1, 1, true, make).await;
    assert_eq!(again.body, first.body, "byte for byte");
    c.read_sequence(&mut first);
    c.read_sequence(&mut again);
    let mut anew = c.send(1, 2, true, make).await;
    c.read_sequence(&mut anew);
    anew.ok(&[op::PUTFH]).expect(op::CREATE, Status::Exist).end(Status::Exist);
    assert_eq!(c.send(1, 2, true, make).await.body, anew.body, "errors are kept as well");
}

#[tokio::test]
async fn uncached_retransmission_is_reported() {
    let harness = Harness::new();
    let c = Client::new(&harness, b"x").await;
    assert_eq!(c.send(1, 1, false, |c| c.root().getfh()).await.status, Status::Ok);
    let mut r = c.send(1, 1, false, |c| c.root().getfh()).await;
    c.read_sequence(&mut r);
    r.expect(op::PUTROOTFH, Status::RetryUncachedRep).end(Status::RetryUncachedRep);
}

#[tokio::test]
async fn slot_sequence_is_checked() {
    let harness = Harness::new();
    let c = Client::new(&harness, b"x").await;
    let refused = |slot, sequence, count: usize| {
        let c = &c;
        async move {
            let mut r =
                c.send(slot, sequence, false, |a| (0..count).fold(a, |a, _| a.root())).await;
            let status = r.status;
            if status != Status::Ok {
                r.expect(op::SEQUENCE, status).end(status);
            }
            status
        }
    };
    assert_eq!(refused(4, 1, 1).await, Status::BadSlot);
    assert_eq!(refused(1, 0, 1).await, Status::SeqMisordered);
    assert_eq!(refused(1, 2, 1).await, Status::SeqMisordered);
    assert_eq!(refused(1, 1, 32).await, Status::TooManyOps);
    assert_eq!(refused(1, 1, 31).await, Status::Ok, "what is refused does not use the number up");
    assert_eq!(refused(1, 3, 1).await, Status::SeqMisordered);
    let roots =
        |slot, sequence, keep| c.send(slot, sequence, keep, |a| (0..30).fold(a, |a, _| a.root()));
    let mut r = roots(1, 1, false).await;
    c.read_sequence(&mut r);
    r.expect(op::PUTROOTFH, Status::RetryUncachedRep).end(Status::RetryUncachedRep);
    assert_eq!(c.send(1, 2, true, |a| a.root()).await.status, Status::Ok, "the slot goes on");
    assert_eq!(roots(1, 2, true).await.status, Status::SeqFalseRetry, "its reply is kept");
    let head = |w: &mut Writer| {
        w.fixed(&c.session);
        [1, 1, 4, 0].iter().for_each(|v| w.u32(*v));
    };
    let r = harness.run_minor(1, |a| a.op(op::SEQUENCE, head)).await;
    assert_eq!(r.status, Status::BadHighSlot);
    let big = vec![0; 1 << 20];
    let mut r = c.send(1, 3, false, |a| a.root().lookup(&big)).await;
    r.expect(op::SEQUENCE, Status::ReqTooBig).end(Status::ReqTooBig);
}

#[tokio::test]
async fn reply_limits_are_enforced() {
    let harness = Harness::new();
    let c = Client::with(&harness, b"x", Handle::detached(), [4096, 512, 300, 32, 4]).await;
    let look = |a: crate::harness::Args| (0..12).fold(a.root(), |a, _| a.getfh());
    let mut r = c.send(0, 1, true, look).await;
    assert_eq!(r.status, Status::RepTooBigToCache);
    c.read_sequence(&mut r);
    let r = c.send(0, 2, false, |a| look(look(a))).await;
    assert_eq!(r.status, Status::RepTooBig);
    assert!(r.body.len() <= 512);
}

#[tokio::test]
async fn sessions_and_clients_end_in_order() {
    let harness = Harness::new();
    let c = Client::new(&harness, b"x").await;
    let destroy_client = |id: u64| move |w: &mut Writer| w.u64(id);
    let alone = |opcode, args: Vec<u8>| {
        let harness = &harness;
        async move { harness.run_minor(1, |c| c.op(opcode, |w| w.fixed(&args))).await.status }
    };
    let id = c.id.to_be_bytes().to_vec();
    assert_eq!(alone(op::DESTROY_CLIENTID, id.clone()).await, Status::ClientIdBusy);
    let mut r = c.run(|a| a.op(op::DESTROY_CLIENTID, destroy_client(c.id))).await;
    r.expect(op::DESTROY_CLIENTID, Status::ClientIdBusy);
    let session = c.session.clone();
    let mut r = c.run(|a| a.op(op::DESTROY_SESSION, |w| w.fixed(&session)).root()).await;
    r.expect(op::DESTROY_SESSION, Status::NotOnlyOp);
    let mut r = c.run(|a| a.root().op(op::DESTROY_SESSION, |w| w.fixed(&session))).await;
    r.ok(&[op::PUTROOTFH, op::DESTROY_SESSION]).end(Status::Ok);
    let mut r = c.send(0, 99, false, |a| a.root()).await;
    r.expect(op::SEQUENCE, Status::BadSession).end(Status::BadSession);
    assert_eq!(alone(op::DESTROY_SESSION, session).await, Status::BadSession);
    assert_eq!(alone(op::DESTROY_CLIENTID, id.clone()).await, Status::Ok);
    assert_eq!(alone(op::DESTROY_CLIENTID, id).await, Status::StaleClientId);
    assert!(harness.nfs.clients.is_empty());
}

#[tokio::test]
async fn restarted_client_loses_state() {
    let harness = Harness::new();
    let c = Client::new(&harness, b"x").await;
    let opened = c.open(b"o", b"f", (3, 3)).await.unwrap();
    let other = Client::new(&harness, b"y").await;
    assert_eq!(other.open(b"o", b"f", R).await.unwrap_err(), Status::ShareDenied);
    let (id, seq, _) = introduce(&harness, 0, exchange(b"x", 2, 0)).await.unwrap();
    assert_eq!(other.open(b"o", b"f", R).await.unwrap_err(), Status::ShareDenied, "not yet");
    make(&harness, 0, create(id, seq, 0, FORE)).await.unwrap();
    let r = c.send(0, 99, false, |a| a.putfh(&opened.fh)).await;
    assert_eq!(r.status, Status::BadSession);
    other.open(b"o", b"f", R).await.unwrap();
}

#[tokio::test]
async fn backchannel_connections_bind_and_close() {
    const PATH_DOWN: u32 = 1;
    const PATH_DOWN_SESSION: u32 = 0x200;
    let harness = Harness::new();
    let (handle, asked) = Handle::played();
    let c = Client::called_by(&harness, b"x", handle).await;
    c.run(|a| a.root()).await;
    assert_eq!(c.flags.get(), 0);
    drop(asked);
    c.run(|a| a.root()).await;
    assert_eq!(c.flags.get(), PATH_DOWN | PATH_DOWN_SESSION);
    let (handle, _asked) = Handle::played();
    let other = conn_of(handle);
    let bind = |direction: u32| {
        let session = c.session.clone();
        move |w: &mut Writer| {
            w.fixed(&session);
            w.u32(direction);
            w.bool(true);
        }
    };
    let bound = |direction| {
        let (harness, c, other, bind) = (&harness, &c, &other, &bind);
        async move {
            let args = bind(direction);
            let mut r =
                harness.run_on(other, &c.cred, 1, |a| a.op(op::BIND_CONN_TO_SESSION, args)).await;
            r.expect(op::BIND_CONN_TO_SESSION, r.status);
            if r.status != Status::Ok {
                return Err(r.status);
            }
            assert_eq!(r.fixed(16), c.session);
            let direction = r.u32();
            assert!(!r.bool(), "no step-up to RDMA");
            Ok(direction)
        }
    };
    assert_eq!(bound(9).await, Err(Status::Inval));
    assert_eq!(bound(1).await, Ok(1));
    c.run(|a| a.root()).await;
    assert_eq!(c.flags.get(), PATH_DOWN | PATH_DOWN_SESSION, "the fore channel alone");
    assert_eq!(bound(2).await, Ok(2));
    assert_eq!(bound(7).await, Ok(3));
    assert_eq!(bound(1).await, Err(Status::Inval), "out of the other channel");
    c.run(|a| a.root()).await;
    assert_eq!(c.flags.get(), 0);
    harness.nfs.connection_closed(&other);
    c.run(|a| a.root()).await;
    assert_eq!(c.flags.get(), PATH_DOWN | PATH_DOWN_SESSION);
}

/// A client that accepts callbacks only with RPCSEC_GSS.
#[tokio::test]
async fn callbacks_by_kerberos_are_not_promised() {
    let harness = Harness::new();
    let (id, seq, _) = introduce(&harness, 0, exchange(b"x", 1, 0)).await.unwrap();
    let args = |w: &mut Writer| {
        w.u64(id);
        w.u32(seq);
        w.u32(BACK_CHAN);
        for channel in [FORE, [4096, 4096, 0, 2, 4]] {
            w.u32(0);
            channel.iter().for_each(|n| w.u32(*n));
            w.u32(0);
        }
        w.u32(0x4000_0000);
        // One entry of RPCSEC_GSS: its service and two handles.
        for n in [1, 6, 3, 0, 0] {
            w.u32(n);
        }
    };
    let (handle, _asked) = Handle::played();
    let conn = conn_of(handle);
    let mut r = harness.run_on(&conn, &Cred::root(), 1, |c| c.op(op::CREATE_SESSION, args)).await;
    let session = r.expect(op::CREATE_SESSION, Status::Ok).fixed(16);
    assert_eq!((r.u32(), r.u32()), (seq, 0), "no backchannel");
    let (sequence, flags) = (0.into(), 0.into());
    let cred = Cred::root();
    let c = Client { harness: &harness, minor: 1, id, session, conn, cred, sequence, flags };
    c.run(|a| a.op(op::RECLAIM_COMPLETE, |w| w.bool(false))).await.ok(&[op::RECLAIM_COMPLETE]);
    assert_eq!(c.flags.get(), 0, "nothing is broken that was not promised");
    let opened = c.open(b"o", b"f", R).await.unwrap();
    assert_eq!(opened.delegation, (0, None));
}

#[tokio::test]
async fn reclaim_complete_precedes_new_state() {
    let harness = Harness::new();
    let c = Client::unreclaimed(&harness, b"x", Handle::detached()).await;
    assert_eq!(c.open(b"o", b"f", R).await.unwrap_err(), Status::Grace);
    let complete = |w: &mut Writer| w.bool(false);
    c.run(|a| a.op(op::RECLAIM_COMPLETE, complete)).await.ok(&[op::RECLAIM_COMPLETE]);
    let mut r = c.run(|a| a.op(op::RECLAIM_COMPLETE, complete)).await;
    r.expect(op::RECLAIM_COMPLETE, Status::CompleteAlready);
    c.open(b"o", b"f", R).await.unwrap();
}

#[tokio::test]
async fn sessions_per_client_are_limited() {
    let harness = Harness::new();
    let (id, seq, _) = introduce(&harness, 0, exchange(b"x", 1, 0)).await.unwrap();
    for n in 0..64 {
        make(&harness, 0, create(id, seq + n, 0, FORE)).await.unwrap();
    }
    // The status is final, because a retry would not help.
    assert_eq!(make(&harness, 0, create(id, seq + 64, 0, FORE)).await, Err(Status::NoSpc));
}

#[tokio::test]
async fn unconfirmed_clients_are_evicted() {
    let harness = Harness::new();
    let confirmed = Client::new(&harness, b"x").await;
    let first = introduce(&harness, 0, exchange(b"first", 1, 0)).await.unwrap();
    // One address gets an eighth of the limit.
    for n in 0..2_048_u32 {
        introduce(&harness, 0, exchange(&n.to_be_bytes(), 1, 0)).await.unwrap();
    }
    assert_eq!(harness.nfs.clients.len(), 2_048);
    confirmed.run(|a| a.root()).await.ok(&[op::PUTROOTFH]);
    let last = introduce(&harness, 0, exchange(b"last", 1, 0)).await.unwrap();
    make(&harness, 0, create(last.0, last.1, 0, FORE)).await.unwrap();
    harness.at_ms(91_500);
    introduce(&harness, 0, exchange(b"late", 1, 0)).await.unwrap();
    assert_eq!(harness.nfs.clients.len(), 1, "who holds nothing ends with its lease");
    assert_eq!(make(&harness, 0, create(first.0, 1, 0, FORE)).await, Err(Status::StaleClientId));
}

#[tokio::test]
async fn oversized_arguments_are_refused() {
    let harness = Harness::new();
    assert_eq!(introduce(&harness, 0, exchange(&[0; 1025], 1, 0)).await, Err(Status::BadXdr));
    let c = Client::new(&harness, b"x").await;
    for count in [1_025, u32::MAX] {
        let r = c.run(|a| a.op(op::TEST_STATEID, |w| w.u32(count))).await;
        assert_eq!(r.status, Status::BadXdr);
    }
    let many = |w: &mut Writer| {
        w.count(5_000);
        w.fixed(&[7; 5_000 * 16]);
    };
    let mut r = c.run(|a| a.op(op::TEST_STATEID, many)).await;
    r.expect(op::TEST_STATEID, Status::Ok);
    assert_eq!(r.u32(), 5_000, "as many as the message has");
    assert!((0..5_000).all(|_| r.u32() == Status::BadStateId.to_u32()));
    r.end(Status::Ok);
    let back = |flavor: u32| {
        move |w: &mut Writer| {
            w.u32(1);
            w.u32(1);
            w.u32(flavor);
            for _ in 0..3 {
                w.u32(0);
            }
        }
    };
    let control = |flavor| c.run(move |a| a.op(op::BACKCHANNEL_CTL, back(flavor)));
    assert_eq!(control(0).await.status, Status::Ok);
    assert_eq!(control(6).await.status, Status::Inval, "no callbacks by RPCSEC_GSS");
    assert_eq!(control(9).await.status, Status::BadXdr);
}

/// With AUTH_SYS a client that moved cannot be told from another with its name: the last one wins (RFC 8881 section 18.35.4, case
/// 5), and the log reports it.
#[tokio::test]
async fn moved_client_is_logged() {
    let harness = Harness::new();
    let moved = || harness.nfs.clients.counters.moved.load(Ordering::Relaxed);
    let cred = Cred::root();
    let begin = async |ip: [u8; 4], verifier: u64| {
        let conn = conn_from(ip, Handle::detached());
        let args = exchange(b"x", verifier, 0);
        let mut r = harness.run_on(&conn, &cred, 1, |c| c.op(op::EXCHANGE_ID, args)).await;
        r.expect(op::EXCHANGE_ID, Status::Ok);
        let args = create(r.u64(), r.u32(), 0, FORE);
        let r = harness.run_on(&conn, &cred, 1, |c| c.op(op::CREATE_SESSION, args)).await;
        assert_eq!(r.status, Status::Ok);
    };
    begin([10, 0, 0, 9], 1).await;
    begin([10, 0, 0, 9], 2).await;
    assert_eq!(moved(), 0, "it was restarted");
    begin([10, 0, 0, 8], 3).await;
    assert_eq!(moved(), 1);
    harness.at_ms(90_001);
    begin([10, 0, 0, 7], 4).await;
    assert_eq!(moved(), 1, "it had been silent for longer than its lease");
}
