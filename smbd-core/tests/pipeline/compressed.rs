//! Compressed messages of clients that have not logged on, or have agreed on no compression (MS-SMB2 section 3.3.5.2.1.2).

use iobuf::Buf;
use rdma_transport::channel::ReadChunkData;
use smb_compress::message::{Agreed, shrink};
use smb_proto::smb2::Command;
use smb_proto::smb2::compression::{self, Compression, Payload};
use smb_proto::smb2::negotiate::Dialect;
use smbd_core::status::Status;
use tokio::time::Instant;

use crate::peer::{Offer, Peer, answers, server};

/// Most bytes that a message may expand to before a logon.
const BEFORE_LOGON_MAX: u32 = 64 << 10;

fn offer(algorithms: &[u16]) -> Offer {
    let dialects = vec![Dialect::V311.number()];
    Offer { dialects, compression: algorithms.to_vec(), ..Offer::default() }
}

/// A chained message of this length, all of it one run.
fn run(len: u32) -> Vec<u8> {
    let mut message = Vec::new();
    Compression::Chained { original_len: len }.put(&mut message);
    Payload::Pattern { pattern: 0xfe, repetitions: len }.put(true, &mut message);
    message
}

/// An unchained LZ77 message of this length.
fn stream(len: u32) -> Vec<u8> {
    let mut message = Vec::new();
    Compression::Unchained { original_len: len, algorithm: 2, offset: 0 }.put(&mut message);
    message.extend([0xff; 40]);
    message
}

/// Compresses a message but for its header.
fn compressed(message: &[u8], agreed: &Agreed) -> Vec<u8> {
    let (head, body) = message.split_at(64);
    shrink(head, &[body], agreed).expect("it shrinks")
}

/// An ECHO with zeros behind it, which a server ignores.
fn echo(peer: &mut Peer, padding: usize) -> Vec<u8> {
    let body = [&[4, 0, 0, 0][..], &vec![0; padding]].concat();
    peer.message(Command::Echo, &body)
}

/// Fills the memory of the connection, so that what asks for memory waits.
fn fill(peer: &Peer) -> impl Sized + use<> {
    let pool = &peer.connection.conn().info.pool;
    pool.set_heap(1 << 20, 1 << 20);
    pool.pay_now(1 << 20)
}

/// Sends a message that must end the connection before it waits for memory, and without an answer.
async fn ends_at_once(peer: &mut Peer, message: &[u8], case: &str) {
    let waits = |peer: &Peer| peer.connection.conn().info.pool.heap_stats().waits;
    let (began, before) = (Instant::now(), waits(peer));
    assert_eq!(peer.raw(message).await, None, "{case}");
    assert!(peer.ended(), "{case}: the connection goes on");
    assert_eq!((waits(peer), began.elapsed().as_millis()), (before, 0), "{case}: it waited");
}

#[tokio::test(start_paused = true)]
async fn message_without_agreed_compression_ends_the_connection() {
    let server = server(|_| {});
    let off = server_without();
    for (kind, message) in [("run", run(100)), ("stream", stream(100)), ("large", run(1 << 20))] {
        let mut peer = Peer::connect(&server);
        let _all = fill(&peer);
        ends_at_once(&mut peer, &message, &format!("{kind} before NEGOTIATE")).await;
        // Every dialect below 3.1.1, and 3.1.1 without the context, without a common algorithm, and where it is off.
        let below = Dialect::ALL.into_iter().filter(|d| *d != Dialect::V311);
        let below = below.map(|d| (format!("{d:?}"), &server, Offer::of(d)));
        let none = ("no context".to_string(), &server, offer(&[]));
        let unknown = ("no common algorithm".to_string(), &server, offer(&[9]));
        let off = ("switched off".to_string(), &off, offer(&[4, 2]));
        for (case, server, offer) in below.chain([none, unknown, off]) {
            for logged_on in [false, true] {
                let mut peer = Peer::connect(server);
                assert_eq!(peer.negotiate(&offer).await.status(), Status::SUCCESS);
                if logged_on {
                    assert_eq!(peer.log_on("alice", "pw").await, Status::SUCCESS);
                }
                let _all = fill(&peer);
                let case = format!("{kind}, {case}, logged on: {logged_on}");
                ends_at_once(&mut peer, &message, &case).await;
            }
        }
    }
}

fn server_without() -> smbd_core::server::Server {
    server(|s| s.compression = false)
}

/// Clients without an account can send messages before a logon: a few bytes must not take megabytes.
#[tokio::test(start_paused = true)]
async fn large_message_before_logon_takes_no_memory() {
    let server = server(|_| {});
    let largest = 8 << 20;
    for len in [BEFORE_LOGON_MAX + 1, 1 << 20, largest, largest + 1000, u32::MAX] {
        for (kind, message) in [("run", run(len)), ("stream", stream(len))] {
            let mut peer = Peer::connect(&server);
            peer.negotiate(&offer(&[4, 2])).await;
            let _all = fill(&peer);
            ends_at_once(&mut peer, &message, &format!("{kind} of {len}")).await;
        }
    }
    // A message can also be large as it comes.
    let mut peer = Peer::connect(&server);
    peer.negotiate(&offer(&[4, 2])).await;
    let message = stream(100);
    let at = compression::LEN;
    let data = vec![Buf::from(vec![0; 100_000])];
    let rest = vec![ReadChunkData { at, data }];
    assert_eq!(peer.raw_with(&message[..at], rest).await, None);
    assert!(peer.ended());
    let in_use = peer.connection.conn().info.pool.heap_stats().in_use;
    assert_eq!(in_use, 0, "all memory is returned");
}

/// A message that is allowed before a logon pays for what it expands to, and so waits while no memory is free.
#[tokio::test(start_paused = true)]
async fn small_message_before_logon_is_paid_for() {
    let server = server(|_| {});
    for algorithms in [&[4, 2][..], &[2], &[3], &[5], &[1]] {
        let agreed = Agreed::of_offer(algorithms, true);
        let mut peer = Peer::connect(&server);
        peer.negotiate(&offer(algorithms)).await;
        let message = compressed(&echo(&mut peer, 5000), &agreed);
        let bytes = peer.raw(&message).await.expect("an answer");
        let answer = answers(&bytes).remove(0);
        assert_eq!(answer.header.command, Command::Echo as u16);
        let all = fill(&peer);
        let message = compressed(&echo(&mut peer, 5000), &agreed);
        let asked = peer.next_id - 1;
        let began = Instant::now();
        let freed = async {
            tokio::time::sleep(std::time::Duration::from_secs(5)).await;
            drop(all);
        };
        let (bytes, ()) = tokio::join!(peer.raw(&message), freed);
        assert!(began.elapsed().as_secs() >= 5, "{algorithms:?}: it did not wait");
        let answer = answers(&bytes.expect("an answer")).remove(0);
        assert_eq!(answer.header.message_id, asked);
    }
}
