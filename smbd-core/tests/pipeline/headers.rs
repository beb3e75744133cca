//! Headers, message ids, credits.

use smb_proto::smb2::negotiate::Dialect;
use smb_proto::smb2::{Command, Flags, Header, simple};
use smbd_core::status::Status;

use crate::peer::{Offer, Peer, answers, server};

#[tokio::test]
async fn what_is_no_message_ends_the_connection() {
    let server = server(|_| {});
    let header = |change: fn(&mut Vec<u8>)| {
        let mut bytes = Peer::connect(&server).message(Command::Echo, &simple::BODY);
        change(&mut bytes);
        bytes
    };
    let wrong: [Vec<u8>; 8] = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0; 4],
        header(|b| b.truncate(63)),
        header(|b| b[4] = 65),
        header(|b| b[16] = 1),
        b"\xfcSMB0123456789".to_vec(),
        b"\xfdSMB0123456789".to_vec(),
        b"\xffSMB".to_vec(),
    ];
    for bytes in wrong {
        let mut peer = Peer::connect(&server);
        assert_eq!(peer.raw(&bytes).await, None, "{bytes:02x?}");
        assert!(peer.ended(), "{bytes:02x?}");
    }
}

#[tokio::test]
async fn every_command_waits_for_negotiate() {
    let server = server(|_| {});
    for command in Command::ALL {
        if matches!(command, Command::Negotiate | Command::Cancel) {
            continue;
        }
        let mut peer = Peer::connect(&server);
        let message = peer.message(command, &[0; 64]);
        assert_eq!(peer.raw(&message).await, None, "{command:?}");
        assert!(peer.ended(), "{command:?}");
    }
}

#[tokio::test]
async fn every_command_needs_its_session_and_tree() {
    let server = server(|s| s.signing_required = false);
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    for command in Command::ALL {
        if matches!(
            command,
            Command::Negotiate | Command::Cancel | Command::Echo | Command::SessionSetup
        ) {
            continue;
        }
        let mut header = peer.header(command);
        header.session_id ^= 1;
        let bytes = peer.sign(header, &[0; 64]);
        let answer = answers(&peer.raw(&bytes).await.unwrap()).remove(0);
        assert_eq!(answer.status(), Status::USER_SESSION_DELETED, "{command:?}");
        // Windows sends back the signature of the request, since there is no key.
        assert_eq!(answer.header.signature, Header::parse(&bytes).unwrap().signature);
        if matches!(command, Command::Logoff | Command::TreeConnect) {
            continue;
        }
        let mut header = peer.header(command);
        header.tree_or_async = Header::of_tree(peer.tree + 99);
        let bytes = peer.sign(header, &[0; 64]);
        let bytes = peer.raw(&bytes).await.unwrap();
        assert_eq!(peer.check(&bytes).status(), Status::NETWORK_NAME_DELETED, "{command:?}");
    }
}

#[tokio::test]
async fn bodies_of_any_length_and_size_are_answered() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    for command in Command::ALL {
        // These end the session, the tree or the connection, or get no answer.
        if matches!(
            command,
            Command::Negotiate | Command::Cancel | Command::Logoff | Command::TreeDisconnect
        ) {
            continue;
        }
        for len in [0, 1, 2, 3, 8, 16, 23, 24, 33, 48, 49, 64] {
            for fill in [0, 0xff] {
                let answer = peer.ask(command, &vec![fill; len]).await;
                assert!(answer.status().is_error(), "{command:?} {len} {fill}");
            }
        }
        let answer = peer.ask(command, &[]).await;
        if command != Command::SessionSetup {
            assert_eq!(answer.status(), Status::INVALID_PARAMETER, "{command:?}");
        }
        assert_eq!(peer.ask(Command::Echo, &simple::BODY).await.status(), Status::SUCCESS);
    }
}

#[tokio::test]
async fn unknown_commands_are_refused_and_the_connection_goes_on() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    for number in [19, 0x100, u16::MAX] {
        let mut header = peer.header(Command::Echo);
        header.command = number;
        let bytes = peer.sign(header, &simple::BODY);
        let answer = answers(&peer.raw(&bytes).await.unwrap()).remove(0);
        assert_eq!(answer.status(), Status::INVALID_PARAMETER);
        assert_eq!(answer.header.command, number);
    }
    assert_eq!(peer.ask(Command::Echo, &simple::BODY).await.status(), Status::SUCCESS);
}

#[tokio::test]
async fn a_message_id_counts_once_and_only_when_it_was_granted() {
    let server = server(|_| {});
    let ids: [fn(u64) -> u64; 4] = [|next| next - 1, |_| 0, |next| next + 100_000, |_| u64::MAX];
    for wrong in ids {
        let mut peer = Peer::ready(&server, &Offer::default()).await;
        let mut header = peer.header(Command::Echo);
        header.message_id = wrong(header.message_id);
        let bytes = peer.sign(header, &simple::BODY);
        assert_eq!(peer.raw(&bytes).await, None);
        assert!(peer.ended());
    }
}

#[tokio::test]
async fn a_charge_takes_as_many_ids() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let mut header = peer.header(Command::Echo);
    header.credit_charge = 4;
    peer.next_id += 3;
    let bytes = peer.sign(header, &simple::BODY);
    assert!(peer.raw(&bytes).await.is_some());
    assert_eq!(peer.ask(Command::Echo, &simple::BODY).await.status(), Status::SUCCESS);
    // The next one would use an id that was used before.
    let mut header = peer.header(Command::Echo);
    header.message_id -= 2;
    header.credit_charge = 4;
    let bytes = peer.sign(header, &simple::BODY);
    assert_eq!(peer.raw(&bytes).await, None);
    assert!(peer.ended());
}

#[tokio::test]
async fn ids_in_any_order_and_credits_to_the_limit() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let mut granted = u64::from(u16::MAX);
    // Request the most credits.
    let mut header = peer.header(Command::Echo);
    header.credits = u16::MAX;
    let bytes = peer.sign(header, &simple::BODY);
    let answer = peer.raw(&bytes).await.unwrap();
    granted = granted.min(u64::from(peer.check(&answer).header.credits));
    assert!(granted > 8000 && granted <= 8192, "{granted}");
    let first = peer.next_id;
    // Use the ids in reverse: while the first one is unused, the window is full and no more credits are granted.
    let mut last_credits = 1;
    for id in (first + 1..first + 64).rev() {
        let mut header = peer.header(Command::Echo);
        header.message_id = id;
        header.credits = u16::MAX;
        let bytes = peer.sign(header, &simple::BODY);
        let answer = peer.raw(&bytes).await.unwrap();
        last_credits = peer.check(&answer).header.credits;
    }
    assert_eq!(last_credits, 0, "the window is as wide as it may be");
    let mut header = peer.header(Command::Echo);
    header.message_id = first;
    header.credits = u16::MAX;
    let bytes = peer.sign(header, &simple::BODY);
    let answer = peer.raw(&bytes).await.unwrap();
    assert_eq!(peer.check(&answer).header.credits, 64);
}

#[tokio::test]
async fn whoever_asks_for_nothing_still_gets_one() {
    let server = server(|_| {});
    let mut peer = Peer::connect(&server);
    let mut header = peer.header(Command::Negotiate);
    header.credits = 0;
    let bytes = peer.sign(header, &Offer::default().emit());
    let bytes = peer.raw(&bytes).await.unwrap();
    assert_eq!(Header::parse(&bytes).unwrap().credits, 1);
}

#[tokio::test]
async fn before_anybody_is_logged_on_few_credits_are_granted() {
    let server = server(|_| {});
    let mut peer = Peer::connect(&server);
    let mut header = peer.header(Command::Negotiate);
    header.credits = u16::MAX;
    let bytes = peer.sign(header, &Offer::default().emit());
    let bytes = peer.raw(&bytes).await.unwrap();
    assert!(Header::parse(&bytes).unwrap().credits <= 64);
}

#[tokio::test]
async fn the_first_dialect_knows_no_charge() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::of(Dialect::V202)).await;
    let mut header = peer.header(Command::Echo);
    header.credit_charge = 100;
    let bytes = peer.sign(header, &simple::BODY);
    assert!(peer.raw(&bytes).await.is_some());
    assert_eq!(peer.ask(Command::Echo, &simple::BODY).await.status(), Status::SUCCESS);
}

#[tokio::test]
async fn answers_repeat_what_the_request_says() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let mut header = peer.header(Command::Echo);
    header.flags.0 |= 0x30;
    let bytes = peer.sign(header, &simple::BODY);
    let bytes = peer.raw(&bytes).await.unwrap();
    let answer = peer.check(&bytes).header;
    assert_eq!(answer.flags.0, Flags::RESPONSE | Flags::SIGNED | 0x30);
    assert_eq!((answer.session_id, answer.tree_id()), (peer.session, peer.tree));
    assert_eq!((answer.message_id, answer.credit_charge), (header.message_id, 1));
}
