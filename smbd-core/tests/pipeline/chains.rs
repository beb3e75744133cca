//! Chains of messages, answers that come later, and CANCEL.

use smb_crypto::sign::Sender;
use smb_proto::smb2::change_notify::{self, filter};
use smb_proto::smb2::{Command, FileId, Flags, Header, close, flush, simple};
use smbd_core::status::Status;

use crate::peer::{Answer, Offer, Peer, answers, chain, create, file, server};

/// FILE_DIRECTORY_FILE
const DIRECTORY: u32 = 1;

/// One message of a chain, and how it differs from the default.
type Part = (Command, Vec<u8>, fn(&mut Header));

fn usual(_: &mut Header) {}

fn related(h: &mut Header) {
    h.flags.0 |= Flags::RELATED;
    (h.session_id, h.tree_or_async) = (u64::MAX, u64::MAX);
}

fn close_previous() -> Vec<u8> {
    close::Request { flags: 0, file: FileId::PREVIOUS }.emit()
}

/// Signs each message with its padding, as required in a chain.
async fn send(peer: &mut Peer, parts: Vec<Part>) -> Vec<Answer> {
    let bytes = build(peer, parts);
    let bytes = peer.raw(&bytes).await.expect("answers");
    let all = answers(&bytes);
    for a in all.iter().filter(|a| a.header.flags.has(Flags::SIGNED)) {
        // Without a session there is no key: such an answer repeats the signature of its request.
        if a.header.session_id == peer.session && a.status() != Status::USER_SESSION_DELETED {
            let signer = &peer.secrets.as_ref().unwrap().signer;
            signer.verify(Sender::Server, &[&a.bytes]).unwrap();
        }
    }
    all
}

fn build(peer: &mut Peer, parts: Vec<Part>) -> Vec<u8> {
    let messages = parts.into_iter().map(|(command, body, change)| {
        let mut header = peer.header(command);
        header.flags.0 |= Flags::SIGNED;
        change(&mut header);
        [&header.emit()[..], &body].concat()
    });
    let messages: Vec<_> = messages.collect();
    let mut bytes = chain(messages);
    let mut at = 0;
    loop {
        let header = Header::parse(&bytes[at..]).unwrap();
        let next = usize::try_from(header.next).unwrap();
        let end = if next == 0 { bytes.len() } else { at + next };
        let signer = &peer.secrets.as_ref().unwrap().signer;
        let signature = signer.sign(Sender::Client, &[&bytes[at..end]]).unwrap();
        bytes[at..][Header::SIGNATURE].copy_from_slice(&signature);
        if next == 0 {
            return bytes;
        }
        at = end;
    }
}

fn statuses(all: &[Answer]) -> Vec<Status> {
    all.iter().map(Answer::status).collect()
}

#[tokio::test]
async fn related_commands_mean_the_file_before_them() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let flush = flush::Request::of(FileId::PREVIOUS).emit();
    let all = send(
        &mut peer,
        vec![
            (Command::Create, create("a", 0), usual),
            (Command::Flush, flush, related),
            (Command::Close, close_previous(), related),
        ],
    )
    .await;
    assert_eq!(statuses(&all), [Status::SUCCESS; 3]);
    assert!(all.iter().all(|a| a.header.session_id == peer.session));
    assert!(all.iter().all(|a| a.header.tree_id() == peer.tree));
    assert!(all.iter().all(|a| a.bytes.len().is_multiple_of(8)));
    assert_eq!(server.core().opens.count(), 0);
}

#[tokio::test]
async fn a_command_with_a_file_of_its_own_gives_it_to_the_next() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let id = file(&peer.ask(Command::Create, &create("a", 0)).await);
    let flush = flush::Request::of(id).emit();
    let all = send(
        &mut peer,
        vec![(Command::Flush, flush, usual), (Command::Close, close_previous(), related)],
    )
    .await;
    assert_eq!(statuses(&all), [Status::SUCCESS; 2]);
}

/// MS-SMB2 section 3.3.5.2.7.2: the file id of a related command itself is ignored.
#[tokio::test]
async fn a_related_command_means_the_file_before_it_whatever_it_says() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let old = file(&peer.ask(Command::Create, &create("a", 0)).await);
    let close_old = close::Request { flags: 0, file: old }.emit();
    assert_eq!(peer.ask(Command::Close, &close_old).await.status(), Status::SUCCESS);
    let all = send(
        &mut peer,
        vec![
            (Command::Create, create("a", 0), usual),
            (Command::Flush, flush::Request::of(old).emit(), related),
            (Command::Close, close_old, related),
        ],
    )
    .await;
    assert_eq!(statuses(&all), [Status::SUCCESS; 3]);
    assert_eq!(server.core().opens.count(), 0);
}

/// MS-SMB2 section 3.3.5.2.7.2: the operation before neither contains nor generates a FileId.
#[tokio::test]
async fn a_related_command_has_no_file_where_the_one_before_has_none() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let id = file(&peer.ask(Command::Create, &create("a", 0)).await);
    let close = close::Request { flags: 0, file: id }.emit();
    let all = send(
        &mut peer,
        vec![
            (Command::Echo, simple::BODY.to_vec(), usual),
            (Command::Close, close, related),
            (Command::Close, close_previous(), related),
        ],
    )
    .await;
    let none = Status::INVALID_HANDLE;
    assert_eq!(statuses(&all), [Status::SUCCESS, none, none]);
    assert_eq!(server.core().opens.count(), 1);
}

#[tokio::test]
async fn what_follows_a_failed_create_fails_alike() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let all = send(
        &mut peer,
        vec![
            (Command::Create, create("no/such/file", 0), usual),
            (Command::Close, close_previous(), related),
            (Command::Close, close_previous(), related),
        ],
    )
    .await;
    let first = all[0].status();
    assert!(first.is_error());
    assert_eq!(statuses(&all), [first; 3]);
    // A failure of another command is its own: the file is still open.
    let all = send(
        &mut peer,
        vec![
            (Command::Create, create("b", 0), usual),
            (Command::QueryDirectory, vec![0; 40], related),
            (Command::Close, close_previous(), related),
        ],
    )
    .await;
    assert_eq!(all[0].status(), Status::SUCCESS);
    assert!(all[1].status().is_error());
    assert_eq!(all[2].status(), Status::SUCCESS);
}

#[tokio::test]
async fn unrelated_commands_stand_alone() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let all = send(
        &mut peer,
        vec![
            (Command::Create, create("no/such/file", 0), usual),
            (Command::Echo, simple::BODY.to_vec(), usual),
            (Command::Close, close_previous(), usual),
            (Command::Echo, simple::BODY.to_vec(), usual),
        ],
    )
    .await;
    assert!(all[0].status().is_error());
    assert_eq!(all[1].status(), Status::SUCCESS);
    assert_eq!(all[2].status(), Status::FILE_CLOSED);
    assert_eq!(all[3].status(), Status::SUCCESS);
}

#[tokio::test]
async fn nothing_is_related_to_nothing() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let all = send(
        &mut peer,
        vec![
            (Command::Close, close_previous(), related),
            (Command::Close, close_previous(), related),
        ],
    )
    .await;
    assert_eq!(statuses(&all), [Status::INVALID_PARAMETER; 2]);
    let strange: fn(&mut Header) = |h| h.session_id ^= 1;
    let all = send(
        &mut peer,
        vec![
            (Command::Create, create("a", 0), strange),
            (Command::Close, close_previous(), related),
        ],
    )
    .await;
    assert_eq!(statuses(&all), [Status::USER_SESSION_DELETED, Status::INVALID_PARAMETER]);
}

#[tokio::test]
async fn offsets_of_a_chain_are_checked() {
    let server = server(|_| {});
    for next in [1, 4, 63, 65, 8, 56, 1000, u32::MAX, u32::MAX - 7] {
        let mut peer = Peer::ready(&server, &Offer::default()).await;
        let mut bytes = peer.message(Command::Echo, &simple::BODY);
        bytes.resize(160, 0);
        bytes[Header::NEXT].copy_from_slice(&next.to_le_bytes());
        assert_eq!(peer.raw(&bytes).await, None, "{next}");
        assert!(peer.ended(), "{next}");
    }
    // No message follows the valid one.
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let mut bytes = peer.message(Command::Echo, &simple::BODY);
    bytes.resize(200, 0);
    bytes[Header::NEXT].copy_from_slice(&72_u32.to_le_bytes());
    assert_eq!(peer.raw(&bytes).await, None);
    assert!(peer.ended());
}

#[tokio::test]
async fn a_chain_has_its_length() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let mut header = peer.header(Command::Echo);
    header.credits = 1000;
    let bytes = peer.sign(header, &simple::BODY);
    peer.raw(&bytes).await.unwrap();
    let echo = || (Command::Echo, simple::BODY.to_vec(), usual as fn(&mut Header));
    let all = send(&mut peer, (0..64).map(|_| echo()).collect()).await;
    assert_eq!(statuses(&all), [Status::SUCCESS; 64]);
    let bytes = build(&mut peer, (0..65).map(|_| echo()).collect());
    assert_eq!(peer.raw(&bytes).await, None);
    assert!(peer.ended());
}

async fn watched(peer: &mut Peer) -> (FileId, Vec<u8>) {
    let dir = file(&peer.ask(Command::Create, &create("dir", DIRECTORY)).await);
    let request =
        change_notify::Request { flags: 0, output_len: 4096, file: dir, filter: filter::ALL };
    (dir, request.emit())
}

#[tokio::test]
async fn what_waits_is_answered_twice() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let (dir, notify) = watched(&mut peer).await;
    let id = peer.next_id;
    let interim = peer.ask(Command::ChangeNotify, &notify).await;
    assert_eq!(interim.status(), Status::PENDING);
    assert!(interim.header.flags.has(Flags::ASYNC | Flags::RESPONSE));
    assert!(!interim.header.flags.has(Flags::SIGNED), "a nonce serves once");
    assert!(interim.header.credits > 0);
    let close = close::Request { flags: 0, file: dir }.emit();
    assert_eq!(peer.ask(Command::Close, &close).await.status(), Status::SUCCESS);
    let pushed = peer.pushed().await;
    let last = peer.check(&pushed);
    assert_eq!(last.status(), Status::NOTIFY_CLEANUP);
    assert!(last.header.flags.has(Flags::ASYNC | Flags::SIGNED));
    assert_eq!(last.header.tree_or_async, interim.header.tree_or_async);
    assert_eq!((last.header.message_id, last.header.credits), (id, 0));
}

#[tokio::test]
async fn what_waits_is_cancelled_by_either_number() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let (_, notify) = watched(&mut peer).await;
    for by_async in [true, false] {
        let id = peer.next_id;
        let interim = peer.ask(Command::ChangeNotify, &notify).await;
        let mut header = peer.header(Command::Cancel);
        peer.next_id -= 1;
        if by_async {
            header.flags.0 |= Flags::ASYNC;
            header.tree_or_async = interim.header.tree_or_async;
            header.message_id = 0;
        } else {
            header.message_id = id;
        }
        // A CANCEL with another session's number or a wrong signature is ignored.
        let mut bytes = peer.sign(header, &simple::BODY);
        bytes[50] ^= 1;
        assert_eq!(peer.raw(&bytes).await, None);
        let bytes = peer.sign(header, &simple::BODY);
        assert_eq!(peer.raw(&bytes).await, None, "never answered");
        let pushed = peer.pushed().await;
        let last = peer.check(&pushed);
        assert_eq!((last.status(), last.header.message_id), (Status::CANCELLED, id));
    }
    assert_eq!(peer.ask(Command::Echo, &simple::BODY).await.status(), Status::SUCCESS);
}

#[tokio::test]
async fn what_waits_ends_with_its_session() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let (_, notify) = watched(&mut peer).await;
    assert_eq!(peer.ask(Command::ChangeNotify, &notify).await.status(), Status::PENDING);
    let logoff = peer.message(Command::Logoff, &simple::BODY);
    let answer = peer.raw(&logoff);
    assert_eq!(answers(&answer.await.unwrap())[0].status(), Status::SUCCESS);
    let last = peer.pushed().await;
    assert!(answers(&last)[0].header.flags.has(Flags::ASYNC));
}

#[tokio::test]
async fn what_waits_ends_with_its_connection() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let (_, notify) = watched(&mut peer).await;
    assert_eq!(peer.ask(Command::ChangeNotify, &notify).await.status(), Status::PENDING);
    peer.connection.end().await;
    let last = peer.pushed().await;
    assert!(answers(&last)[0].header.flags.has(Flags::ASYNC));
}

#[tokio::test]
async fn only_the_last_of_a_chain_waits() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let (_, notify) = watched(&mut peer).await;
    let echo = || (Command::Echo, simple::BODY.to_vec(), usual as fn(&mut Header));
    let all = send(&mut peer, vec![(Command::ChangeNotify, notify.clone(), usual), echo()]).await;
    assert_eq!(statuses(&all), [Status::INTERNAL_ERROR, Status::SUCCESS]);
    let all = send(&mut peer, vec![echo(), (Command::ChangeNotify, notify, usual)]).await;
    assert_eq!(statuses(&all), [Status::SUCCESS], "what was answered before leaves first");
    let interim = answers(&peer.pushed().await);
    assert_eq!(statuses(&interim), [Status::PENDING]);
    assert!(interim[0].header.flags.has(Flags::ASYNC));
}

#[tokio::test]
async fn so_many_wait_and_no_more() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let (_, notify) = watched(&mut peer).await;
    let mut last = Status::PENDING;
    let mut waiting = 0;
    while last == Status::PENDING && waiting < 1000 {
        last = peer.ask(Command::ChangeNotify, &notify).await.status();
        waiting += 1;
    }
    assert_eq!((last, waiting), (Status::INSUFFICIENT_RESOURCES, 512));
}

#[tokio::test]
async fn answers_to_encrypted_requests_that_wait_are_encrypted() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let (dir, notify) = watched(&mut peer).await;
    let interim = peer.ask_sealed(Command::ChangeNotify, &notify).await;
    assert_eq!(interim.status(), Status::PENDING);
    let close = close::Request { flags: 0, file: dir }.emit();
    peer.ask_sealed(Command::Close, &close).await;
    let last = peer.pushed().await;
    assert_eq!(answers(&peer.open(&last))[0].status(), Status::NOTIFY_CLEANUP);
}
