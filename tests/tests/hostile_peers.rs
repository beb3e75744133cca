//! Peers that violate the rules of every layer. Each loses its connection, or gets its protocol's error; another client, connected
//! all the time, is not affected; the gateway never panics.

// Helpers may panic, which fails the test.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use client::target::{Transport, Version};
use config::PrivilegedPorts;
use headgate_tests::fuzz::seeds;
use headgate_tests::raw::{self, MPA_REQUEST, RawIwarp, fpdu, rpcrdma, tagged, untagged, words};
use headgate_tests::world::{World, pattern, read_all, write_all};

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// A panic of a task in the gateway ends only that task, so panics are counted.
fn count_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        before(info);
    }));
}

/// Runs attacks on a gateway while a valid client works on it, and checks that client's results afterwards.
async fn attacked(attacks: impl FnOnce(SocketAddr, SocketAddr) + Send + 'static) {
    count_panics();
    // The raw clients use ports above 1023.
    let world = World::with(|s| s.privileged_ports = PrivilegedPorts::Off).await;
    let wanted = pattern("kept", 300_000);
    let mut clients = Vec::new();
    for transport in [Transport::Tcp, Transport::Rdma] {
        let client = world.client("data", (Version::V41, transport)).await.unwrap();
        write_all(&client, &format!("kept-{transport}"), &wanted).await.unwrap();
        clients.push((transport, client));
    }
    let (tcp, rdma) = (world.running.nfs[0], world.running.nfs_rdma[0]);
    let attack = tokio::task::spawn_blocking(move || attacks(tcp, rdma));
    while !attack.is_finished() {
        for (transport, client) in &clients {
            let found = read_all(client, &format!("kept-{transport}")).await.unwrap();
            assert!(found == wanted, "{transport}: content differs");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let ended = attack.await;
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "panics");
    ended.unwrap();
    for way in headgate_tests::world::WAYS {
        let late =
            world.client("data", way).await.unwrap_or_else(|e| panic!("{way:?} afterwards: {e}"));
        assert!(read_all(&late, "kept-tcp").await.unwrap() == wanted);
    }
    world.running.stop().await;
}

/// Sends these bytes on a new connection; the gateway must end it, possibly after a reply.
fn refused(to: SocketAddr, what: &str, bytes: &[u8]) {
    let mut stream = RawIwarp::dial(to).unwrap();
    // The server may have ended the connection before reading everything.
    let _ = stream.write_all(bytes);
    raw::wait_for_end(&mut stream)
        .unwrap_or_else(|e| panic!("{what}: the connection is kept ({e})"));
}

/// Sends a segment after a valid handshake; the gateway must end the connection.
fn refused_segment(to: SocketAddr, what: &str, segment: &[u8]) {
    let mut peer = RawIwarp::connect(to).unwrap_or_else(|e| panic!("{what}: {e}"));
    peer.null(1).unwrap_or_else(|e| panic!("{what}: {e}"));
    let _ = peer.fpdu(segment);
    peer.wait_for_end().unwrap_or_else(|e| panic!("{what}: the connection is kept ({e})"));
}

#[tokio::test(flavor = "multi_thread")]
async fn mpa_is_checked() {
    attacked(|_, rdma| {
        let with = |at: usize, byte: u8| {
            let mut request = MPA_REQUEST;
            request[at] = byte;
            request
        };
        refused(rdma, "another protocol", b"GET / HTTP/1.1\r\nHost: gateway\r\n\r\n");
        refused(rdma, "a wrong key", &with(3, b'x'));
        refused(rdma, "a reply instead of a request", b"MPA ID Rep Frame\x10\x02\x00\x00");
        refused(rdma, "revision 9", &with(17, 9));
        refused(rdma, "private data above the limit", &with(18, 0xff));
        refused_segment(rdma, "an empty FPDU", b"");
        refused_segment(rdma, "an FPDU too short for DDP", &[0x41]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ddp_and_rdmap_are_checked() {
    attacked(|_, rdma| {
        let null = [rpcrdma(1, 1), words(&[1, 0, 2, 100_003, 3, 0, 0, 0, 0, 0])].concat();
        let read = words(&[7, 0, 0, 4096, 7, 0, 0]);
        let cases: [(&str, Vec<u8>); 12] = [
            ("DDP version 3", untagged(0x4343, 0, 2, 0, &null)),
            ("RDMAP version 3", untagged(0x41c3, 0, 2, 0, &null)),
            ("RDMAP opcode 15", untagged(0x414f, 0, 2, 0, &null)),
            ("queue 9", untagged(raw::SEND, 9, 2, 0, &null)),
            ("a message number that was used", untagged(raw::SEND, 0, 1, 0, &null)),
            ("a message number far ahead", untagged(raw::SEND, 0, 77_777, 0, &null)),
            ("a message that does not begin at 0", untagged(raw::SEND, 0, 2, 4000, &null)),
            (
                "a message above every receive buffer",
                untagged(raw::SEND, 0, 2, 0, &vec![0; 60_000]),
            ),
            ("a Write to memory that is nobody's", tagged(raw::WRITE, 0x1234_5678, 0, &null)),
            (
                "a Write at the end of all addresses",
                tagged(raw::WRITE, 0x1234_5678, u64::MAX - 3, &null),
            ),
            ("a Read Response to no Read", tagged(raw::READ_RESPONSE, 0x1234_5678, 0, &null)),
            ("a Read of memory that is nobody's", untagged(raw::READ_REQUEST, 1, 1, 0, &read)),
        ];
        for (what, segment) in cases {
            refused_segment(rdma, what, &segment);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rpc_over_rdma_is_checked() {
    attacked(|_, rdma| {
        let call = words(&[2, 0, 2, 100_003, 3, 0, 0, 0, 0, 0]);
        let message = |header: &[u32]| [words(header), call.clone()].concat();
        let endless: Vec<u32> =
            [2, 1, 32, 0].into_iter().chain([1, 4, 9, 9, 0, 0].repeat(150)).collect();
        // RFC 8166 section 4.5: the server answers with RDMA_ERROR or ends the connection, and never stays silent.
        let cases: [(&str, Vec<u8>); 9] = [
            ("version 2", message(&[2, 2, 32, 0, 0, 0, 0])),
            ("procedure 9", message(&[2, 1, 32, 9, 0, 0, 0])),
            ("a list that does not end", words(&endless)),
            ("a list that ends in the middle", words(&[2, 1, 32, 0, 1, 4, 9])),
            ("a Read chunk of 4 GiB", message(&[2, 1, 32, 0, 1, 40, 9, u32::MAX, 0, 0, 0, 0, 0])),
            ("a position that is not aligned", message(&[2, 1, 32, 0, 1, 39, 9, 8, 0, 0, 0, 0, 0])),
            (
                "a Write chunk of a million segments",
                message(&[2, 1, 32, 0, 0, 1, 1_000_000, 1, 2, 3, 4]),
            ),
            ("RDMA_NOMSG with nothing to fetch", words(&[2, 1, 32, 1, 0, 0, 0])),
            ("three words", words(&[2, 1, 32])),
        ];
        for (what, message) in cases {
            let mut peer = RawIwarp::connect(rdma).unwrap();
            peer.null(1).unwrap();
            peer.send(&message).unwrap();
            // A reply, or the end; a silent peer causes a timeout of the read.
            match peer.receive() {
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => panic!("{what}: silence"),
                Err(_) => {}
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn record_marks_are_checked() {
    attacked(|tcp, _| {
        refused(tcp, "a record of 2 GiB", &words(&[0xffff_ffff, 1, 2, 3]));
        refused(tcp, "another protocol", b"GET / HTTP/1.1\r\nHost: gateway\r\n\r\n");
        let endless = words(&[0x0000_0004, 7]).repeat(1 << 20);
        refused(tcp, "fragments without end", &endless);
        let nothing = words(&[0]).repeat(1 << 20);
        refused(tcp, "empty fragments without end", &nothing);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_checked() {
    attacked(|tcp, _| {
        let mut stream = RawIwarp::dial(tcp).unwrap();
        let mut ask = |call: &[u8]| {
            let mark = 0x8000_0000 | u32::try_from(call.len()).unwrap();
            stream.write_all(&[&words(&[mark]), call].concat()).unwrap();
            let mut mark = [0; 4];
            stream.read_exact(&mut mark).unwrap();
            let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
            stream.read_exact(&mut reply).unwrap();
            reply
                .chunks_exact(4)
                .map(|w| u32::from_be_bytes([w[0], w[1], w[2], w[3]]))
                .collect::<Vec<_>>()
        };
        let none = [0, 0, 0, 0];
        let mut call = |head: [u32; 5], rest: &[u32]| {
            ask(&words(&[&[9, 0][..], &head[1..], &none, rest].concat()))
        };
        // RFC 5531 section 9: reply, accepted, no verifier, then the status.
        assert_eq!(call([0, 2, 100_003, 3, 99], &[])[5..], [3], "PROC_UNAVAIL");
        assert_eq!(call([0, 2, 100_003, 9, 0], &[])[5..], [2, 3, 4], "PROG_MISMATCH");
        assert_eq!(call([0, 2, 555_555, 3, 0], &[])[5..], [1], "PROG_UNAVAIL");
        assert_eq!(call([0, 2, 100_003, 3, 1], &[u32::MAX, 1])[5..], [4], "GARBAGE_ARGS");
        assert_eq!(call([0, 2, 100_003, 3, 1], &[])[5..], [4], "GARBAGE_ARGS");
        assert_eq!(
            call([0, 2, 100_003, 4, 1], &[0, 1, u32::MAX])[5..6],
            [4],
            "a COMPOUND of 4 G operations"
        );
        assert_eq!(call([0, 7, 100_003, 3, 0], &[])[2..], [1, 0, 2, 2], "RPC_MISMATCH");
        // The connection is still usable.
        assert_eq!(call([0, 2, 100_003, 3, 0], &[])[5..], [0], "NULL");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_survives_damaged_messages() {
    attacked(|tcp, rdma| {
        let mut x = 88_172_645_463_325_252_u64;
        let mut below = move |n: usize| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            usize::try_from(x % n.max(1) as u64).unwrap()
        };
        for target in ["rpcrdma_header", "rpc"] {
            for seed in seeds::of(target).iter().cycle().take(150) {
                let mut message = seed.clone();
                for _ in 0..=below(3) {
                    let at = below(message.len());
                    message[at] = u8::try_from(below(256)).unwrap();
                }
                if target == "rpc" {
                    let mark = 0x8000_0000 | u32::try_from(message.len()).unwrap();
                    let mut stream = RawIwarp::dial(tcp).unwrap();
                    let _ = stream.write_all(&[words(&[mark]), message].concat());
                } else {
                    let mut peer = RawIwarp::connect(rdma).unwrap();
                    let _ = peer.send(&message);
                    // A frame with one flipped bit.
                    let mut frame = fpdu(&untagged(raw::SEND, 0, 2, 0, &message), false);
                    let at = below(frame.len());
                    frame[at] ^= 1 << below(8);
                    let _ = peer.bytes(&frame);
                }
            }
        }
    })
    .await;
}
