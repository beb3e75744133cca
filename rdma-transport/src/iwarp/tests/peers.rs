//! Peers as their specifications describe them, made by hand: of revision 1, with markers, with and without checksums.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::receiver::Receiver;
use super::*;
use crate::iwarp::wire::mpa::Crc;

const M: u8 = 0x80;
const C: u8 = 0x40;
const R: u8 = 0x20;
const S: u8 = 0x10;

fn start(key: &[u8; 16], flags: u8, revision: u8, private: &[u8]) -> Vec<u8> {
    let len = u16::try_from(private.len()).unwrap().to_be_bytes();
    [&key[..], &[flags, revision], &len, private].concat()
}

/// A Send of one segment without markers, which the peer need not use in its direction.
fn a_send(data: &[u8], crc: bool) -> Vec<u8> {
    let header = [0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    let ulpdu = [&header[..], data].concat();
    let mut b = [&u16::try_from(ulpdu.len()).unwrap().to_be_bytes()[..], &ulpdu].concat();
    b.resize(b.len().next_multiple_of(4), 0);
    let mut c = Crc::new(crc);
    c.start();
    c.update(&b);
    [&b[..], &c.field()].concat()
}

/// Reads FPDUs until one is the last of a Send, and returns the data of its segments.
async fn read_send(peer: &mut TcpStream, receiver: Receiver) -> Vec<u8> {
    let (mut stream, mut room) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let n = in_time(peer.read(&mut room)).await.unwrap();
        assert!(n > 0, "the connection ended");
        stream.extend_from_slice(&room[..n]);
        let (found, rest) = receiver.read(&stream);
        // T, L and the opcode of a Send (RFC 5041 section 4.2, RFC 5040 section 4.1).
        let is_last = |ulpdu: &Vec<u8>| ulpdu[0] & 0xc0 == 0x40 && ulpdu[1] & 0xf == 3;
        if rest == 0 && found.last().is_some_and(is_last) {
            let data =
                |ulpdu: &Vec<u8>| ulpdu[if ulpdu[0] & 0x80 == 0 { 18 } else { 14 }..].to_vec();
            return found.iter().flat_map(data).collect();
        }
    }
}

/// A Write of many FPDUs and the Send after it.
fn much(qp: &mut Box<dyn QueuePair>) -> Vec<u8> {
    let data = pattern(3, 200_001);
    let to = RemoteSeg { handle: 9, len: 1 << 20, offset: 0 };
    let write = Work::Write { id: WorkId(1), from: buf(data.clone()), to };
    qp.post(vec![write, send(2, pattern(4, 3000))]).unwrap();
    [data, pattern(4, 3000)].concat()
}

/// Polls until both completions are there.
async fn until_sent(qp: &mut Box<dyn QueuePair>) {
    let mut done = 0;
    while done < 2 {
        let kinds = next(qp).await.unwrap();
        done += kinds.iter().filter(|c| c.kind != WorkKind::Recv).count();
        assert!(kinds.iter().all(|c| c.result.is_ok()), "{kinds:?}");
    }
}

/// The private data of a Windows client of revision 1: IRD and ORD in 32 bits each (MS-SMBD section 6).
const DEPTHS: [u8; 8] = [0, 0, 0, 16, 0, 0, 0, 16];

#[tokio::test]
async fn initiators_get_what_they_ask_for() {
    for flags in [0, M, C, M | C, R, S, S | M, S | C, S | M | C] {
        for own_crc in [false, true] {
            let revision = if flags & S == 0 { 1 } else { 2 };
            let config = IwarpConfig { crc: own_crc, ..IwarpConfig::default() };
            let (mut listener, at) = listen(&config).await;
            let accept = async {
                let mut incoming = listener.accept().await.unwrap();
                let private = incoming.request().await.unwrap();
                assert_eq!(private, &(if revision == 1 { &DEPTHS[..] } else { &DEPTHS[4..] }));
                incoming.accept(params()).await.unwrap().qp
            };
            let crc = own_crc || flags & C != 0;
            let dial = async {
                let mut peer = TcpStream::connect(at).await.unwrap();
                let private = if revision == 1 { DEPTHS } else { [0, 8, 0, 8, 0, 0, 0, 16] };
                peer.write_all(&start(b"MPA ID Req Frame", flags, revision, &private))
                    .await
                    .unwrap();
                let of_mode = if revision == 1 { 0 } else { 4 };
                let mut b = vec![0; 20 + of_mode + 5];
                peer.read_exact(&mut b).await.unwrap();
                let want = if crc { C } else { 0 } | flags & S;
                assert_eq!(b[..16], *b"MPA ID Rep Frame");
                assert_eq!(
                    (b[16], b[17], &b[20 + of_mode..]),
                    (want, revision, &b"hello"[..]),
                    "{flags:x}"
                );
                peer
            };
            let (mut qp, mut peer) = in_time(async { tokio::join!(accept, dial) }).await;
            let data = much(&mut qp);
            qp.post(vec![recv(3, 16)]).unwrap();
            // The responder waits for the first FPDU (RFC 5044 section 7.1.2).
            let mut out = Vec::new();
            let waits = tokio::time::timeout(
                Duration::from_millis(20),
                poll_fn(|cx| qp.poll(cx, &mut out)),
            );
            assert!(waits.await.is_err(), "{flags:x}");
            let quiet = peer.try_read(&mut [0; 1]).unwrap_err();
            assert_eq!(quiet.kind(), std::io::ErrorKind::WouldBlock, "{flags:x}");
            peer.write_all(&a_send(&[7; 5], crc)).await.unwrap();
            let receiver = Receiver { crc, markers: flags & M != 0 };
            let (got, ()) = tokio::join!(read_send(&mut peer, receiver), until_sent(&mut qp));
            assert!(got == data, "{flags:x}");
        }
    }
}

#[tokio::test]
async fn responders_get_what_they_ask_for() {
    for (flags, revision) in
        [(0, 1), (M, 1), (C, 1), (M | C, 1), (S, 2), (S | M, 2), (S | C, 2), (S | M | C, 2)]
    {
        for own_crc in [false, true] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let at = listener.local_addr().unwrap();
            let is_new = revision == 2;
            let accept = async {
                let (mut peer, _) = listener.accept().await.unwrap();
                let mut b = vec![0; if is_new { 29 } else { 25 }];
                peer.read_exact(&mut b).await.unwrap();
                assert_eq!((b[17], b[16] & M), (revision, 0), "no markers are wanted");
                let private: &[u8] = if is_new { &[0, 8, 0, 8] } else { &[] };
                peer.write_all(&start(b"MPA ID Rep Frame", flags, revision, private))
                    .await
                    .unwrap();
                peer
            };
            let config = IwarpConfig { crc: own_crc, enhanced: is_new, ..IwarpConfig::default() };
            let provider = Iwarp::new(config);
            let (c, mut peer) =
                in_time(async { tokio::join!(provider.connect(at, params()), accept) }).await;
            let mut qp = c.unwrap().qp;
            let data = much(&mut qp);
            let receiver = Receiver { crc: own_crc || flags & C != 0, markers: flags & M != 0 };
            let (got, ()) = tokio::join!(read_send(&mut peer, receiver), until_sent(&mut qp));
            assert!(got == data, "{flags:x}");
        }
    }
}

/// A peer that wants markers gets them in a Terminate as well.
#[tokio::test]
async fn terminate_has_markers_if_peer_wants_them() {
    let (mut listener, at) = listen(&IwarpConfig { crc: false, ..IwarpConfig::default() }).await;
    let accept = async { listener.accept().await.unwrap().accept(params()).await.unwrap().qp };
    let dial = async {
        let mut peer = TcpStream::connect(at).await.unwrap();
        peer.write_all(&start(b"MPA ID Req Frame", S | M, 2, &[0, 1, 0, 1])).await.unwrap();
        peer.read_exact(&mut [0; 29]).await.unwrap();
        // No Receive is posted for it.
        peer.write_all(&a_send(&[7; 5], false)).await.unwrap();
        let mut b = Vec::new();
        peer.read_to_end(&mut b).await.unwrap();
        b
    };
    let end = async {
        let mut qp = accept.await;
        next(&mut qp).await.unwrap_err()
    };
    let (down, stream) = in_time(async { tokio::join!(end, dial) }).await;
    assert_eq!(down.violation, Some("iwarp_no_receive"));
    let found = Receiver { crc: false, markers: true }.all(&stream);
    assert_eq!((found.len(), found[0][1] & 0xf), (1, 7));
}
