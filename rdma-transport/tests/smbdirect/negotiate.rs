//! Negotiation. Rules are annotated with the case of Microsoft's MS-SMBD test suite, if there is one.

use std::time::Duration;

use rdma_transport::limits;
use rdma_transport::smbdirect::SmbDirectChannel;
use rdma_transport::smbdirect::wire::{NegotiateRequest, STATUS_NOT_SUPPORTED, VERSION};

use crate::harness::*;

const BOTH: [Over; 2] = [Over::Loopback, Over::Iwarp];

/// BVT_SmbdNegotiate_Basic
#[test]
fn valid_request_gets_valid_response() {
    for over in BOTH {
        run(async {
            let (mut raw, _served) = server(over).await;
            let r = raw.negotiate(REQUEST).await.unwrap();
            assert_eq!((r.min_version, r.max_version), (VERSION, VERSION));
            assert_eq!((r.negotiated_version, r.status), (VERSION, 0));
            assert!(r.credits_requested > 0);
            assert_eq!(r.credits_granted, 10);
            assert!(r.max_read_write_size >= 1 << 20);
            assert_eq!((r.preferred_send_size, r.max_receive_size), (1024, 1024));
            assert!(r.max_fragmented_size >= 131_072);
        });
    }
}

/// S1_SmbdNegotiate_PreferredSendSizeWithZero, S1_SmbdNegotiate_PreferredSendSizeLessThan128,
/// S1_SmbdNegotiate_PreferredSendSizeMaxValue
#[test]
fn small_send_size_is_raised() {
    for (preferred_send_size, granted) in
        [(0, 128), (127, 128), (128, 128), (u32::MAX, limits::SMBD_RECV_SIZE as u32)]
    {
        run(async {
            let (mut raw, _served) = server(Over::Loopback).await;
            let asked = NegotiateRequest { preferred_send_size, ..REQUEST };
            let r = raw.negotiate(asked).await.unwrap();
            assert_eq!((r.status, r.max_receive_size), (0, granted));
        });
    }
}

/// S1_SmbdNegotiate_Redundancy
#[test]
fn bytes_after_request_are_ignored() {
    for over in BOTH {
        run(async {
            let (mut raw, _served) = server(over).await;
            let mut message = REQUEST.emit();
            message.resize(512, 0xee);
            raw.recvs(1);
            raw.send(message).await;
            assert_eq!(raw.recv().await.unwrap()[12..16], [0; 4]);
        });
    }
}

/// SmbdNegotiate_DisconnectAfterNegotiate
#[test]
fn early_disconnect_is_harmless() {
    for over in BOTH {
        run(async {
            let (mut raw, served) = server(over).await;
            raw.negotiate(REQUEST).await.unwrap();
            drop(raw);
            served.end.await.unwrap();
            crate::common::nobody_holds(&served.recvs);
            let (mut raw, _served) = server(over).await;
            raw.negotiate(REQUEST).await.unwrap();
        });
    }
}

/// SmbdNegotiate_UncompletedMessage
#[test]
fn short_request_ends_connection() {
    for over in BOTH {
        run(async {
            let (mut raw, served) = server(over).await;
            raw.recvs(1);
            raw.send(REQUEST.emit()[..19].to_vec()).await;
            assert!(raw.has_ended().await);
            ended_by(served, "smbd.negotiate.short").await;
        });
    }
}

/// SmbdNegotiate_NegativeParameter_MinVersion, SmbdNegotiate_NegativeParameter_MaxVersion
#[test]
fn unknown_versions_are_refused() {
    for over in BOTH {
        for (min_version, max_version) in
            [(0, VERSION), (u16::MAX, VERSION), (VERSION, 0), (VERSION, u16::MAX)]
        {
            run(async {
                let (mut raw, served) = server(over).await;
                let asked = NegotiateRequest { min_version, max_version, ..REQUEST };
                let r = raw.negotiate(asked).await.unwrap();
                assert_eq!(r.status, STATUS_NOT_SUPPORTED);
                assert_eq!((r.credits_granted, r.max_receive_size), (0, 0));
                raw.fragment(1, 0, &Ask::echo(b"anyone?".to_vec()).emit()).await;
                assert!(raw.has_ended().await);
                ended_by(served, "smbd.negotiate.version").await;
            });
        }
    }
}

/// SmbdNegotiate_NegativeParameter_CreditsRequested, SmbdCreditMgmt_NegativeParameter_CreditRequested
#[test]
fn zero_credits_end_connection() {
    for over in BOTH {
        run(async {
            let (mut raw, served) = server(over).await;
            let asked = NegotiateRequest { credits_requested: 0, ..REQUEST };
            assert_eq!(raw.negotiate(asked).await, None);
            ended_by(served, "smbd.negotiate.credits").await;
            for (credits_requested, granted) in [(1, 1), (u16::MAX, 255)] {
                let (mut raw, _served) = server(over).await;
                let asked = NegotiateRequest { credits_requested, ..REQUEST };
                assert_eq!(raw.negotiate(asked).await.unwrap().credits_granted, granted);
            }
        });
    }
}

/// SmbdNegotiate_NegativeParameter_MaxReceiveSize
#[test]
fn small_receive_size_ends_connection() {
    run(async {
        let (mut raw, served) = server(Over::Iwarp).await;
        let asked = NegotiateRequest { max_receive_size: 127, ..REQUEST };
        assert_eq!(raw.negotiate(asked).await, None);
        ended_by(served, "smbd.negotiate.receive-size").await;
        for (max_receive_size, sent) in [(128, 128), (u32::MAX, limits::SMBD_SEND_SIZE as u32)] {
            let (mut raw, _served) = server(Over::Iwarp).await;
            let asked = NegotiateRequest { max_receive_size, ..REQUEST };
            assert_eq!(raw.negotiate(asked).await.unwrap().preferred_send_size, sent);
        }
    });
}

/// SmbdNegotiate_NegativeParameter_MaxFragmentedSize
#[test]
fn small_fragmented_size_ends_connection() {
    run(async {
        let (mut raw, served) = server(Over::Iwarp).await;
        let asked = NegotiateRequest { max_fragmented_size: 131_071, ..REQUEST };
        assert_eq!(raw.negotiate(asked).await, None);
        ended_by(served, "smbd.negotiate.fragmented-size").await;
        for max_fragmented_size in [131_072, u32::MAX] {
            let (mut raw, _served) = server(Over::Iwarp).await;
            let asked = NegotiateRequest { max_fragmented_size, ..REQUEST };
            assert_eq!(raw.negotiate(asked).await.unwrap().status, 0);
        }
    });
}

/// SmbdNegotiate_NegotiationTimer, SmbdNegotiate_NegotiationTimer_Timeout
#[tokio::test(start_paused = true)]
async fn negotiation_may_take_five_seconds() {
    let (mut raw, _served) = server(Over::Loopback).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    raw.negotiate(REQUEST).await.unwrap();

    let (mut raw, served) = server(Over::Loopback).await;
    let began = tokio::time::Instant::now();
    assert!(raw.has_ended().await);
    assert_eq!(began.elapsed().as_secs(), 5);
    served.end.await.unwrap();
}

/// Linux' iWARP initiators send their depths in private data, and read the reply from there.
#[test]
fn private_data_depths_are_answered() {
    let linux = [0x20, 0, 0, 0, 1, 0, 0, 0];
    let answer = SmbDirectChannel::accept_params(&linux).private_data;
    assert_eq!(answer[..], [0, 0, 0, 1, 0, 0, 0, 32]);
    assert!(SmbDirectChannel::accept_params(&[]).private_data.is_empty());
    assert!(SmbDirectChannel::accept_params(&[0; 12]).private_data.is_empty());
}
