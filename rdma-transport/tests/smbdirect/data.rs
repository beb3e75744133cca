//! Data transfer: fragments in both directions, rules of headers, timers.

use std::sync::Arc;
use std::time::Duration;

use rdma_transport::channel::{ChannelError, Info, Transport};
use rdma_transport::limits;
use rdma_transport::receives::{Receives, parts};
use rdma_transport::smbdirect::wire::{
    DATA_OFFSET, DataTransfer, NegotiateRequest, RESPONSE_REQUESTED,
};

use crate::common::{exhausted, run_by_virtual_time};
use crate::harness::*;

const BOTH: [Over; 2] = [Over::Loopback, Over::Iwarp];

async fn negotiated(over: Over) -> (Raw, Served) {
    let (mut raw, served) = server(over).await;
    raw.negotiate(REQUEST).await.unwrap();
    (raw, served)
}

/// BVT_SmbdDataTransfer_Basic_SendSmallBytesOfData
#[test]
fn small_message_is_one_fragment() {
    for over in BOTH {
        run(async {
            let (mut raw, _served) = negotiated(over).await;
            raw.fragment(10, 0, &Ask::echo(bytes(200, 1)).emit()).await;
            let d = raw.data().await.unwrap();
            assert_eq!((d.header.remaining, d.header.offset, d.header.len), (0, 24, 200));
            assert_eq!(d.data, bytes(200, 1));
        });
    }
}

/// BVT_SmbdDataTransfer_Basic_SendModerateBytesData, SmbdDataTransfer_VariableLengthSegment: fragments of any size, with empty ones
/// at the start and in between.
#[test]
fn fragments_are_joined() {
    for over in BOTH {
        run(async {
            for sizes in [&[1000][..], &[128, 127, 0, 1, 64, 63], &[0, 1000, 1], &[3, 0, 0, 999]] {
                let (mut raw, _served) = negotiated(over).await;
                let message = Ask::echo(bytes(64 << 10, 2)).emit();
                raw.fragments(&message, sizes).await;
                assert_eq!(raw.answer().await.unwrap(), bytes(64 << 10, 2), "{sizes:?}");
            }
        });
    }
}

/// Microsoft's case begins a message with an empty fragment that announces the size.
#[test]
fn empty_first_fragment_begins_message() {
    run(async {
        let (mut raw, _served) = negotiated(Over::Iwarp).await;
        let message = Ask::echo(bytes(100, 3)).emit();
        raw.fragment(5, message.len(), &[]).await;
        raw.fragment(1, message.len() - 1, &message[..1]).await;
        // A grant between fragments does not count as a fragment.
        raw.grant(1).await;
        raw.fragment(1, 0, &message[1..]).await;
        assert_eq!(raw.answer().await.unwrap(), bytes(100, 3));
    });
}

/// SmbdDataTransfer_SmallLengthSegment: the largest message in fragments of one byte.
#[test]
fn one_byte_fragments_are_joined() {
    run(async {
        let (mut raw, served) = negotiated(Over::Loopback).await;
        let rest = bytes(30_000, 4);
        raw.fragments(&Ask { op: 4, rest, ..Ask::default() }.emit(), &[1]).await;
        let after = Ask::echo(b"after".to_vec()).emit();
        raw.fragment(3, 0, &after).await;
        assert_eq!(raw.answer().await.unwrap(), b"after");
        let requests = &served.info.traffic.requests;
        assert_eq!(requests.load(std::sync::atomic::Ordering::Relaxed), 2);
    });
}

/// SmbdDataTransfer_Redundancy
#[test]
fn bytes_after_data_are_ignored() {
    for over in BOTH {
        run(async {
            let (mut raw, _served) = negotiated(over).await;
            let message = Ask::echo(bytes(50, 5)).emit();
            let header = DataTransfer {
                credits_requested: 10,
                credits_granted: 5,
                offset: 24,
                len: message.len() as u32,
                ..DataTransfer::default()
            };
            raw.recvs(5);
            let mut padded = message;
            padded.resize(1000, 0xaa);
            raw.message(header, &padded).await;
            assert_eq!(raw.answer().await.unwrap(), bytes(50, 5));
        });
    }
}

/// SmbdDataTransfer_ReceiveMaxReceiveSize
#[test]
fn answer_is_split_above_limit() {
    for over in BOTH {
        run(async {
            for (len, messages) in [(1000, vec![(1024, 0)]), (1001, vec![(1024, 1), (25, 0)])] {
                let (mut raw, _served) = negotiated(over).await;
                raw.fragment(10, 0, &Ask::read(len, vec![]).emit()).await;
                for (size, remaining) in messages {
                    let d = raw.data().await.unwrap();
                    assert!(d.header.offset.is_multiple_of(8));
                    assert_eq!((d.len, d.header.remaining), (size, remaining));
                }
            }
        });
    }
}

/// SmbdDataTransfer_UncompletedMessage
#[test]
fn short_message_ends_connection() {
    for over in BOTH {
        run(async {
            let (mut raw, served) = negotiated(over).await;
            raw.send(vec![1; 19]).await;
            assert!(raw.has_ended().await);
            ended_by(served, "smbd.data.short").await;
        });
    }
}

async fn broken_by(over: Over, header: DataTransfer, len: usize, rule: &str) {
    let (mut raw, served) = negotiated(over).await;
    raw.message(header, &bytes(len, 6)).await;
    assert!(raw.has_ended().await, "{header:?}");
    ended_by(served, rule).await;
}

/// SmbdDataTransfer_NegativeParameter_DataOffset_Against8ByteAligned,
/// SmbdDataTransfer_NegativeParameter_DataOffset_AgainstMessageLength,
/// SmbdDataTransfer_NegativeParameter_DataLength_AgainstMessageLength,
/// SmbdDataTransfer_NegativeParameter_DataLength_AgainstMaxReceiveSize,
/// SmbdDataTransfer_NegativeParameter_RemainingDataLength_AgainstMaxFragmentedSize
#[test]
fn invalid_headers_end_connection() {
    let good = DataTransfer {
        credits_requested: 10,
        credits_granted: 0,
        flags: 0,
        remaining: 0,
        offset: 24,
        len: 100,
    };
    let most = limits::SMBD_FRAGMENTED_RECV_MAX as u32;
    let (align, bounds) = ("smbd.data.alignment", "smbd.data.bounds");
    for over in BOTH {
        run(async {
            for (offset, rule) in [(23, align), (25, align), (32, bounds), (u32::MAX - 7, bounds)] {
                broken_by(over, DataTransfer { offset, ..good }, 100, rule).await;
            }
            for (len, there) in [(101, 100), (1001, 1000), (u32::MAX, 100)] {
                broken_by(over, DataTransfer { len, ..good }, there, bounds).await;
            }
            broken_by(over, DataTransfer { len: 1001, ..good }, 1001, "smbd.data.too-long").await;
            for remaining in [most + 1, u32::MAX] {
                let header = DataTransfer { remaining, len: 0, ..good };
                broken_by(over, header, 0, "smbd.data.fragmented").await;
            }
            let header = DataTransfer { credits_requested: 0, ..good };
            broken_by(over, header, 100, "smbd.data.credits").await;
        });
    }
}

/// SmbdDataTransfer_NegativeParameter_AgainstMaxFragmentedSize
#[test]
fn largest_message_is_accepted() {
    run(async {
        let (mut raw, _served) = negotiated(Over::Loopback).await;
        let head = Ask { op: 4, ..Ask::default() }.emit().len();
        let rest = bytes(limits::SMBD_FRAGMENTED_RECV_MAX - head, 7);
        raw.fragments(&Ask { op: 4, rest, ..Ask::default() }.emit(), &[1000]).await;
        raw.fragment(3, 0, &Ask::echo(b"after".to_vec()).emit()).await;
        assert_eq!(raw.answer().await.unwrap(), b"after");

        let (mut raw, served) = negotiated(Over::Loopback).await;
        let most = limits::SMBD_FRAGMENTED_RECV_MAX;
        raw.fragment(1, most + 1 - 1000, &bytes(1000, 8)).await;
        assert!(raw.has_ended().await);
        ended_by(served, "smbd.data.fragmented").await;
    });
}

/// SmbdDataTransfer_NegativeParameter_RemainingDataLength_Zero,
/// SmbdDataTransfer_NegativeParameter_RemainingDataLength_AgainstFragmentReassemblyRemaining
#[test]
fn wrong_remaining_length_ends_connection() {
    for over in BOTH {
        run(async {
            let message = Ask::echo(bytes(5000, 9)).emit();
            let left = message.len() - 1000;
            for remaining in [0, left - 1000 + 1, left - 1000 - 1] {
                let (mut raw, served) = negotiated(over).await;
                raw.fragment(1, left, &message[..1000]).await;
                raw.fragment(1, remaining, &message[1000..2000]).await;
                assert!(raw.has_ended().await);
                ended_by(served, "smbd.data.remaining").await;
            }
        });
    }
}

/// A message takes memory as its fragments arrive, and has a short time limit while other connections wait for memory.
#[test]
fn half_message_keeps_received_bytes() {
    run_by_virtual_time(async {
        let (mut raw, served) = negotiated(Over::Loopback).await;
        let message = Ask::echo(bytes(1_000_000, 9)).emit();
        raw.fragment(10, message.len() - 1000, &message[..1000]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let in_use = |served: &Served| served.payload.stats().map(|class| class.in_use);
        assert_eq!(in_use(&served), [1, 0, 0]);
        let _others = exhausted(&served.payload);
        let began = tokio::time::Instant::now();
        assert!(raw.has_ended().await);
        let ChannelError::Closed(why) = served.end.await.unwrap() else { panic!("a violation") };
        assert!(why.contains("others wait"), "{why}");
        assert!(began.elapsed() <= Duration::from_secs(7), "{:?}", began.elapsed());
    });
}

/// A client that waits for memory of this side is not at fault: it is served when memory comes, and without it the connection ends
/// in time.
#[test]
fn message_waiting_for_memory_is_kept_for_a_while() {
    for comes in [true, false] {
        waits_for_memory(comes);
    }
}

fn waits_for_memory(comes: bool) {
    run_by_virtual_time(async {
        let (mut raw, served) = negotiated(Over::Loopback).await;
        let small: Vec<_> = std::iter::from_fn(|| served.payload.try_get(1)).collect();
        let mut message = Ask::echo(bytes(2000, 9)).emit();
        // It is sealed, so that it cannot be answered without its data.
        message[2] = 1;
        raw.fragment(10, message.len() - 1000, &message[..1000]).await;
        raw.fragment(10, message.len() - 1500, &message[1000..1500]).await;
        let began = tokio::time::Instant::now();
        tokio::time::sleep(limits::MESSAGE_WAIT_MAX - Duration::from_secs(1)).await;
        assert!(!served.end.is_finished());
        if !comes {
            let ChannelError::Closed(why) = served.end.await.unwrap() else {
                panic!("a violation")
            };
            assert!(why.contains("the gateway had no memory"), "{why}");
            let took = began.elapsed();
            assert!(took < limits::MESSAGE_WAIT_MAX + Duration::from_secs(1), "{took:?}");
            return;
        }
        drop(small);
        raw.fragment(10, 0, &message[1500..]).await;
        assert_eq!(raw.answer().await.unwrap(), bytes(2000, 9));
    });
}

/// Before logon a client gets few credits, and may not send large messages.
#[test]
fn stranger_takes_little() {
    for is_known in [false, true] {
        run(async {
            let (client, server) = queue_pairs(Over::Loopback).await;
            let payload = crate::common::pool(8);
            let at: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
            let mut info = Info::new(at, at, Transport::Rdma("loopback"), payload.clone());
            info.receives = Some(Box::new(Receives::counted(parts(1000, 1000).of(at.ip()))));
            if is_known {
                info.introduction.note();
            }
            let served = serve_as(server, Arc::new(info), payload);
            let mut raw = Raw::new(client);
            let asked = NegotiateRequest { credits_requested: 255, ..REQUEST };
            let granted = raw.negotiate(asked).await.unwrap().credits_granted;
            assert_eq!(granted, if is_known { 255 } else { limits::SMBD_CREDITS_MIN });
            let total = limits::SMBD_FRAGMENTED_STRANGER_MAX + 1;
            raw.fragment(10, total - 1000, &bytes(1000, 1)).await;
            if is_known {
                raw.fragment(10, total - 2000, &bytes(1000, 1)).await;
                assert!(!served.end.is_finished());
            } else {
                assert!(raw.has_ended().await);
                ended_by(served, "smbd.fragmented-before-logon").await;
            }
        });
    }
}

/// SmbdDataTransfer_IdleConnection_Client
#[tokio::test(start_paused = true)]
async fn keepalive_request_is_answered() {
    let (mut raw, _served) = negotiated(Over::Loopback).await;
    tokio::time::sleep(Duration::from_secs(119)).await;
    raw.recvs(10);
    let header = DataTransfer {
        credits_requested: 10,
        credits_granted: 10,
        flags: RESPONSE_REQUESTED,
        ..DataTransfer::default()
    };
    raw.send(header.emit()).await;
    let began = tokio::time::Instant::now();
    let d = raw.data().await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(d.data.is_empty());
    assert_eq!(d.header.flags, 0, "an answer that asks would be answered for ever");
}

/// SmbdDataTransfer_IdleConnection_Server, SmbdDataTransfer_IdleConnection_Server_Timeout
#[tokio::test(start_paused = true)]
async fn silent_peer_is_probed_and_disconnected() {
    let (mut raw, served) = negotiated(Over::Loopback).await;
    raw.grant(10).await;
    let ask = async |raw: &mut Raw| {
        let began = tokio::time::Instant::now();
        let d = raw.data().await.unwrap();
        assert_eq!((d.header.flags, d.data.len()), (RESPONSE_REQUESTED, 0));
        assert_eq!(began.elapsed().as_secs(), limits::SMBD_IDLE_SECONDS);
    };
    ask(&mut raw).await;
    raw.grant(1).await;
    ask(&mut raw).await;
    let began = tokio::time::Instant::now();
    assert!(raw.has_ended().await);
    assert_eq!(began.elapsed().as_secs(), limits::SMBD_RESPONSE_SECONDS);
    match served.end.await.unwrap() {
        ChannelError::Closed(why) => assert!(why.contains("keep-alive"), "{why}"),
        other => panic!("{other}"),
    }
}

#[test]
fn random_data_messages_are_handled() {
    use proptest::prelude::*;
    proptest!(ProptestConfig::with_cases(200), |(
        first in proptest::collection::vec(any::<u8>(), 0..100),
        second in proptest::collection::vec(any::<u8>(), 20..100),
    )| {
        run(async {
            let (mut raw, served) = negotiated(Over::Loopback).await;
            let mut second = second.clone();
            // Plausible enough to pass the first rules.
            second[12..16].copy_from_slice(&(DATA_OFFSET as u32).to_le_bytes());
            second[17..20].fill(0);
            second[8..12].copy_from_slice(&[4, 0, 0, 0]);
            raw.send(second).await;
            raw.send(first.clone()).await;
            drop(raw);
            served.end.await.unwrap();
            crate::common::nobody_holds(&served.recvs);
            crate::common::nobody_holds(&served.payload);
        });
    });
}
