//! Credits: few, none, and a peer that never grants any.

use std::time::Duration;

use rdma_transport::channel::{ChannelError, Reply, UntilLeft};
use rdma_transport::limits;
use rdma_transport::smbdirect::wire::NegotiateRequest;

use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::harness::*;

const BOTH: [Over; 2] = [Over::Loopback, Over::Iwarp];

/// BVT_SmbdCreditMgmt_OperationWithMinimumCredits, SmbdCreditMgmt_OperationWithLimitedCredits
#[test]
fn one_credit_is_enough() {
    for over in BOTH {
        for credits_requested in [1, 2, 3, 5, 10] {
            run(async {
                let (mut raw, _served) = server(over).await;
                let asked = NegotiateRequest { credits_requested, ..REQUEST };
                let r = raw.negotiate(asked).await.unwrap();
                assert_eq!(r.credits_granted, credits_requested);
                let message = Ask::echo(bytes(20_000, 1)).emit();
                let mut rest = &message[..];
                while !rest.is_empty() {
                    // The last credit is used only with a grant, which is always possible here.
                    let (now, later) = rest.split_at(rest.len().min(1000));
                    raw.fragment(1, later.len(), now).await;
                    rest = later;
                    while raw.credits == 0 && !rest.is_empty() {
                        let d = raw.data().await.unwrap();
                        assert!(d.data.is_empty());
                    }
                }
                assert_eq!(raw.answer().await.unwrap(), bytes(20_000, 1));
            });
        }
    }
}

/// SmbdCreditMgmt_ConsumeAllSendCredits: in the middle of a message the server has no reply to send, but grants credits anyway.
#[test]
fn used_credits_are_replenished_unasked() {
    for over in BOTH {
        run(async {
            let (mut raw, _served) = server(over).await;
            raw.negotiate(REQUEST).await.unwrap();
            let message = Ask::echo(bytes(60_000, 2)).emit();
            for i in 0..10 {
                let (from, to) = (i * 1000, (i + 1) * 1000);
                raw.fragment(1, message.len() - to, &message[from..to]).await;
            }
            let mut granted = 0;
            while granted < 5 {
                let d = raw.data().await.unwrap();
                assert!(d.data.is_empty() && d.header.credits_granted > 0);
                granted += d.header.credits_granted;
            }
            assert!(granted <= 10 + 245, "never more than are posted");
        });
    }
}

/// SmbdCreditMgmt_ConsumeAllReceiveCredits
#[test]
fn no_messages_sent_without_credits() {
    for over in BOTH {
        run(async {
            let (mut raw, _served) = server(over).await;
            raw.negotiate(REQUEST).await.unwrap();
            raw.fragment(10, 0, &Ask::read(50_000, vec![]).emit()).await;
            let mut whole = Vec::new();
            let mut held = 10;
            while whole.len() < 50_000 {
                // The server uses its last credit only with a grant.
                for _ in 0..held {
                    let d = raw.data().await.unwrap();
                    whole.extend_from_slice(&d.data);
                    assert_eq!(whole.len() + d.header.remaining as usize, 50_000);
                    if whole.len() == 50_000 {
                        break;
                    }
                }
                if whole.len() < 50_000 {
                    assert!(raw.is_silent(Duration::from_millis(20)).await);
                    raw.grant(10).await;
                    held = 10;
                }
            }
            assert_eq!(whole, content(50_000));
        });
    }
}

/// A message with more fragments than credits is not sent completely before the peer grants more.
#[test]
fn until_left_ends_with_last_fragment() {
    for over in BOTH {
        run(async {
            let (mut raw, served) = server(over).await;
            raw.negotiate(REQUEST).await.unwrap();
            raw.fragment(10, 0, &Ask::echo(vec![1]).emit()).await;
            assert_eq!(raw.answer().await.unwrap(), [1]);
            let (kept, mut left) = oneshot::channel::<()>();
            let until_left = Some(UntilLeft::new(kept));
            let message = Reply { until_left, ..Reply::of(content(50_000)) };
            served.handle.push(message).await.unwrap();
            let mut d = raw.data().await.unwrap();
            while d.header.remaining > 0 {
                // The server never has more than twelve credits, and does not exceed them.
                let may_have_left = d.header.remaining <= 12 * 1024;
                assert!(may_have_left || left.try_recv() == Err(TryRecvError::Empty));
                raw.grant(1).await;
                d = raw.data().await.unwrap();
            }
            assert!(left.await.is_err(), "dropped");
        });
    }
}

/// SmbdCreditMgmt_ConsumeAllCreditServer_Timeout
#[tokio::test(start_paused = true)]
async fn peer_without_grants_is_disconnected() {
    let (mut raw, served) = server(Over::Loopback).await;
    raw.negotiate(REQUEST).await.unwrap();
    raw.fragment(10, 0, &Ask::read(50_000, vec![]).emit()).await;
    for _ in 0..10 {
        raw.data().await.unwrap();
    }
    let began = tokio::time::Instant::now();
    assert!(raw.has_ended().await);
    assert_eq!(began.elapsed().as_secs(), limits::SMBD_CREDIT_SECONDS);
    match served.end.await.unwrap() {
        ChannelError::Closed(why) => assert!(why.contains("no credits"), "{why}"),
        other => panic!("{other}"),
    }
    crate::common::nobody_holds(&served.payload);
}

/// A deadlock of other implementations: both sides keep their last credit for a grant, and neither has credits to grant.
#[test]
fn last_credit_always_carries_grant() {
    for over in BOTH {
        run(async {
            let (mut raw, _served) = server(over).await;
            raw.negotiate(REQUEST).await.unwrap();
            // The server holds one credit and has granted all requested ones.
            raw.fragment(1, 0, &Ask::echo(b"one".to_vec()).emit()).await;
            let d = raw.data().await.unwrap();
            assert_eq!(d.data, b"one");
            assert!(d.header.credits_granted > 0);
        });
    }
}

/// A peer never gets so many credits that a message would lack a Receive.
#[test]
fn grants_are_backed_by_receives() {
    for over in BOTH {
        run(async {
            let (mut raw, served) = server(over).await;
            let asked = NegotiateRequest { credits_requested: u16::MAX, ..REQUEST };
            let mut credits = u32::from(raw.negotiate(asked).await.unwrap().credits_granted);
            let nothing = Ask { op: 4, ..Ask::default() }.emit();
            raw.recvs(200);
            for _ in 0..1000 {
                while credits == 0 {
                    credits += u32::from(raw.data().await.unwrap().header.credits_granted);
                    assert!(credits <= 255);
                }
                let header = rdma_transport::smbdirect::wire::DataTransfer {
                    credits_requested: u16::MAX,
                    credits_granted: 1,
                    offset: 24,
                    len: nothing.len() as u32,
                    ..Default::default()
                };
                raw.message(header, &nothing).await;
                credits -= 1;
            }
            raw.fragment(0, 0, &Ask::echo(b"still here".to_vec()).emit()).await;
            assert_eq!(raw.answer().await.unwrap(), b"still here");
            drop(served);
        });
    }
}
