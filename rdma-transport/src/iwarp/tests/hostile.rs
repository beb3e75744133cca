//! Peers on raw sockets that violate the rules: each gets the right Terminate, and the violation is named and counted.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::wire::mpa::Crc;
use super::*;

/// A queue pair with two Receives, a writable and a readable region of 100 bytes each, one RDMA Read in each direction; and the raw
/// socket of its peer.
struct Scene {
    qp: Box<dyn QueuePair>,
    peer: TcpStream,
    crc: bool,
    w: RemoteSeg,
    r: RemoteSeg,
}

fn request(flags: u8, revision: u8, private: &[u8]) -> Vec<u8> {
    let len = u16::try_from(private.len()).unwrap().to_be_bytes();
    [b"MPA ID Req Frame", &[flags, revision][..], &len, private].concat()
}

fn reply(flags: u8, revision: u8, private: &[u8]) -> Vec<u8> {
    let len = u16::try_from(private.len()).unwrap().to_be_bytes();
    [b"MPA ID Rep Frame", &[flags, revision][..], &len, private].concat()
}

async fn scene(crc: bool) -> Scene {
    let config = IwarpConfig { crc, ..IwarpConfig::default() };
    let (mut listener, at) = listen(&config).await;
    let params = ConnectParams { reads_in: 4, reads_out: 4, ..params() };
    let accept = async { listener.accept().await.unwrap().accept(params).await.unwrap().qp };
    let dial = async {
        let mut peer = TcpStream::connect(at).await.unwrap();
        peer.write_all(&request(0x10, 2, &[0, 1, 0, 1])).await.unwrap();
        let mut b = [0; 29];
        peer.read_exact(&mut b).await.unwrap();
        assert_eq!(b[16..24], [if crc { 0x50 } else { 0x10 }, 2, 0, 9, 0, 1, 0, 1]);
        peer
    };
    let (mut qp, peer) = in_time(async { tokio::join!(accept, dial) }).await;
    qp.post(vec![recv(1, 100), recv(2, 100)]).unwrap();
    let w = qp.register(Region::Writable(BufMut::heap(100))).unwrap();
    let r = qp.register(Region::Readable(buf(pattern(1, 100)))).unwrap();
    Scene { qp, peer, crc, w, r }
}

fn frame(ulpdu: &[u8], crc: bool) -> Vec<u8> {
    let mut b = u16::try_from(ulpdu.len()).unwrap().to_be_bytes().to_vec();
    b.extend(ulpdu);
    b.resize(b.len().next_multiple_of(4), 0);
    let mut c = Crc::new(crc);
    c.start();
    c.update(&b);
    b.extend(c.field());
    b
}

const LAST: u8 = 0x40;

fn untagged(control: u8, opcode: u8, words: [u32; 4], data: &[u8]) -> Vec<u8> {
    let words: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
    [&[control, opcode], &words[..], data].concat()
}

/// A Send with this MSN and MO.
fn a_send(msn: u32, mo: u32, last: u8, data: &[u8]) -> Vec<u8> {
    untagged(1 | last, 0x43, [0, 0, msn, mo], data)
}

fn tagged(control: u8, opcode: u8, stag: u32, to: u64, data: &[u8]) -> Vec<u8> {
    [&[0x80 | control, opcode], &stag.to_be_bytes()[..], &to.to_be_bytes(), data].concat()
}

fn a_write(stag: u32, to: u64, len: usize) -> Vec<u8> {
    tagged(1 | LAST, 0x40, stag, to, &vec![6; len])
}

fn a_read(msn: u32, len: u32, stag: u32, to: u64) -> Vec<u8> {
    let mut b = [0; 28];
    b[..4].copy_from_slice(&77u32.to_be_bytes());
    b[12..16].copy_from_slice(&len.to_be_bytes());
    b[16..20].copy_from_slice(&stag.to_be_bytes());
    b[20..].copy_from_slice(&to.to_be_bytes());
    untagged(1 | LAST, 0x41, [0, 1, msn, 0], &b)
}

impl Scene {
    async fn say(&mut self, ulpdus: &[Vec<u8>]) {
        let all: Vec<u8> = ulpdus.iter().flat_map(|u| frame(u, self.crc)).collect();
        self.peer.write_all(&all).await.unwrap();
    }

    /// Starts a Read of 50 bytes; returns the STag of its buffer.
    async fn reading(&mut self) -> u32 {
        self.say(&[a_send(1, 0, LAST, b"go")]).await;
        let from = vec![RemoteSeg { handle: 5, len: 50, offset: 9 }];
        let into = BufMut::heap(50);
        self.qp.post(vec![Work::Read { id: WorkId(3), from, into }]).unwrap();
        assert_eq!(next(&mut self.qp).await.unwrap()[0].id, WorkId(1));
        let mut b = [0; 2 + 18 + 28 + 4];
        let mut out = Vec::new();
        let read = in_time(self.peer.read_exact(&mut b));
        let poll = poll_fn(|cx| self.qp.poll(cx, &mut out));
        tokio::select! { n = read => n.map(|_| ()).unwrap(), _ = poll => panic!("an event") };
        assert_eq!(b[..4], [0, 46, 0x41, 0x41]);
        assert_eq!(b[32..36], [0, 0, 0, 50]);
        u32::from_be_bytes(*b[20..].first_chunk().unwrap())
    }

    /// Checks that the connection ends by this rule and that the Terminate quotes the header of `guilty`. Returns the completions.
    async fn ends(self, v: Violation, guilty: &[u8]) -> Vec<Completion> {
        let Self { mut qp, mut peer, .. } = self;
        let count = || violations().into_iter().find(|(n, _)| *n == v.name()).unwrap().1;
        let before = count();
        let mut out = Vec::new();
        let victim = async {
            loop {
                match next(&mut qp).await {
                    Ok(more) => out.extend(more),
                    Err(down) => break down,
                }
            }
        };
        let mut bytes = Vec::new();
        let listener = async {
            peer.read_to_end(&mut bytes).await.unwrap();
            drop(peer);
        };
        let (down, ()) = in_time(async { tokio::join!(victim, listener) }).await;
        assert_eq!(down.violation, Some(v.name()), "{}", down.reason);
        assert!(down.reason.contains(v.name()));
        assert!(count() > before);
        // The last FPDU is the Terminate.
        let mut rest = &bytes[..];
        let mut last = rest;
        while !rest.is_empty() {
            last = rest;
            let n = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
            rest = &rest[(2 + n).next_multiple_of(4) + 4..];
        }
        let cause = v.cause();
        assert_eq!(last[2..4], [0x41, 0x47]);
        assert_eq!(last[4..20], [0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(last[20..22], [cause.layer << 4 | cause.etype, cause.code]);
        if cause.layer < 2 {
            let n = if guilty[0] & 0x80 != 0 { 14 } else { 18 };
            assert_eq!(last[22] & 0xc0, 0xc0);
            assert_eq!(last[24..26], u16::try_from(guilty.len()).unwrap().to_be_bytes());
            assert_eq!(last[26..26 + n], guilty[..n]);
            if (cause.layer, cause.etype, guilty[1]) == (0, 1, 0x41) {
                assert_eq!(last[22], 0xe0);
                assert_eq!(last[44..72], guilty[18..46]);
            }
        } else {
            assert_eq!(last[22], 0);
        }
        assert!(qp.post(vec![recv(9, 1)]).is_err());
        out
    }
}

/// Sends messages of which the last violates this rule.
async fn breaks(v: Violation, say: impl FnOnce(&Scene) -> Vec<Vec<u8>>) -> Vec<Completion> {
    let mut s = scene(true).await;
    let ulpdus = say(&s);
    s.say(&ulpdus).await;
    s.ends(v, &ulpdus[ulpdus.len() - 1]).await
}

#[tokio::test]
async fn crc_mismatch() {
    let mut s = scene(true).await;
    let mut b = frame(&a_send(1, 0, LAST, &[1, 2, 3]), true);
    let n = b.len();
    b[n - 1] ^= 1;
    s.peer.write_all(&b).await.unwrap();
    let out = s.ends(Violation::CrcMismatch, &[]).await;
    assert!(out.iter().all(|c| c.result == Err(WorkError::Flushed)));
    assert_eq!(out.len(), 2);
}

#[tokio::test]
async fn versions() {
    let send = |control, opcode| vec![untagged(control, opcode, [0, 0, 1, 0], &[])];
    breaks(Violation::DdpVersionUntagged, |_| send(LAST, 0x43)).await;
    breaks(Violation::DdpVersionUntagged, |_| send(LAST | 2, 0x43)).await;
    breaks(Violation::DdpVersionTagged, |s| {
        vec![tagged(LAST | 3, 0x40, s.w.handle, s.w.offset, &[1])]
    })
    .await;
    breaks(Violation::RdmapVersion, |_| send(LAST | 1, 0x03)).await;
    breaks(Violation::RdmapVersion, |_| send(LAST | 1, 0x83)).await;
}

#[tokio::test]
async fn opcodes() {
    breaks(Violation::OpcodeUnexpected, |_| vec![untagged(1 | LAST, 0x48, [0, 0, 1, 0], &[])])
        .await;
    // A Send with Solicited Event in the middle of a Send.
    breaks(Violation::OpcodeUnexpected, |_| {
        vec![a_send(1, 0, 0, &[1; 8]), untagged(1 | LAST, 0x45, [0, 0, 1, 8], &[1; 8])]
    })
    .await;
    breaks(Violation::OpcodeTagging, |s| {
        vec![tagged(1 | LAST, 0x43, s.w.handle, s.w.offset, &[1])]
    })
    .await;
    breaks(Violation::OpcodeTagging, |_| vec![untagged(1 | LAST, 0x40, [0, 0, 1, 0], &[])]).await;
}

#[tokio::test]
async fn queues_and_numbers() {
    breaks(Violation::QueueNumber, |_| vec![untagged(1 | LAST, 0x43, [0, 1, 1, 0], &[])]).await;
    breaks(Violation::QueueNumber, |_| vec![untagged(1 | LAST, 0x43, [0, 3, 1, 0], &[])]).await;
    breaks(Violation::QueueNumber, |_| vec![untagged(1 | LAST, 0x41, [0, 0, 1, 0], &[0; 28])])
        .await;
    for msn in [0, 2, u32::MAX] {
        breaks(Violation::MsnInvalid, |_| vec![a_send(msn, 0, LAST, &[1])]).await;
    }
    breaks(Violation::MsnInvalid, |_| vec![a_send(1, 0, LAST, &[1]), a_send(1, 0, LAST, &[1])])
        .await;
    breaks(Violation::MsnInvalid, |s| vec![a_read(2, 1, s.r.handle, s.r.offset)]).await;
    breaks(Violation::MoInvalid, |_| vec![a_send(1, 4, LAST, &[1])]).await;
    breaks(Violation::MoInvalid, |_| vec![a_send(1, 0, 0, &[1; 8]), a_send(1, 4, LAST, &[1; 4])])
        .await;
}

#[tokio::test]
async fn sends_larger_than_their_receive() {
    let out = breaks(Violation::MessageTooLong, |_| vec![a_send(1, 0, LAST, &[1; 101])]).await;
    assert_eq!((out[0].id, out[0].result), (WorkId(1), Err(WorkError::Length)));
    assert_eq!(out[1].result, Err(WorkError::Flushed));
    breaks(Violation::MessageTooLong, |_| {
        vec![a_send(1, 0, 0, &[1; 60]), a_send(1, 60, LAST, &[1; 41])]
    })
    .await;
    let out =
        breaks(Violation::NoReceive, |_| (1..=3).map(|msn| a_send(msn, 0, LAST, &[1])).collect())
            .await;
    // Data before the violation is delivered.
    assert_eq!(out.iter().filter(|c| c.result == Ok(1)).count(), 2);
}

#[tokio::test]
async fn invalidations() {
    for control in [0x44, 0x46] {
        breaks(Violation::InvalidateStag, |s| {
            vec![untagged(1 | LAST, control, [s.w.handle ^ 1, 0, 1, 0], &[1])]
        })
        .await;
    }
    breaks(Violation::InvalidateStag, |s| {
        let twice = |msn| untagged(1 | LAST, 0x44, [s.w.handle, 0, msn, 0], &[1]);
        vec![twice(1), twice(2)]
    })
    .await;
    // The region is inaccessible after that.
    breaks(Violation::WriteStag, |s| {
        let inv = untagged(1 | LAST, 0x44, [s.w.handle, 0, 1, 0], &[1]);
        vec![inv, a_write(s.w.handle, s.w.offset, 1)]
    })
    .await;
    breaks(Violation::ReadRequestStag, |s| {
        let inv = untagged(1 | LAST, 0x44, [s.r.handle, 0, 1, 0], &[1]);
        vec![inv, a_read(1, 1, s.r.handle, s.r.offset)]
    })
    .await;
}

#[tokio::test]
async fn writes_out_of_bounds() {
    breaks(Violation::WriteStag, |s| vec![a_write(s.w.handle ^ 1, s.w.offset, 1)]).await;
    breaks(Violation::WriteAccess, |s| vec![a_write(s.r.handle, s.r.offset, 1)]).await;
    breaks(Violation::WriteBounds, |s| vec![a_write(s.w.handle, s.w.offset, 101)]).await;
    breaks(Violation::WriteBounds, |s| vec![a_write(s.w.handle, s.w.offset + 100, 1)]).await;
    breaks(Violation::WriteBounds, |s| vec![a_write(s.w.handle, s.w.offset - 1, 1)]).await;
    breaks(Violation::WriteBounds, |s| vec![a_write(s.w.handle, 0, 1)]).await;
    breaks(Violation::WriteWrap, |s| vec![a_write(s.w.handle, u64::MAX, 2)]).await;
    // The buffer of a Read is not a region: the peer knows its STag but may not write to it.
    let mut s = scene(false).await;
    let stag = s.reading().await;
    let guilty = a_write(stag, 0, 10);
    s.say(std::slice::from_ref(&guilty)).await;
    let out = s.ends(Violation::WriteStag, &guilty).await;
    let read = out.iter().find(|c| c.kind == WorkKind::Read).unwrap();
    assert_eq!(read.result, Err(WorkError::Flushed));
    assert_eq!(read.buf.as_ref().unwrap().len(), 0);
}

#[tokio::test]
async fn read_requests_out_of_bounds() {
    use Violation as V;
    breaks(V::ReadRequestStag, |s| vec![a_read(1, 1, s.r.handle ^ 1, s.r.offset)]).await;
    breaks(V::ReadRequestAccess, |s| vec![a_read(1, 1, s.w.handle, s.w.offset)]).await;
    breaks(V::ReadRequestBounds, |s| vec![a_read(1, 101, s.r.handle, s.r.offset)]).await;
    breaks(V::ReadRequestBounds, |s| vec![a_read(1, u32::MAX, s.r.handle, s.r.offset)]).await;
    breaks(V::ReadRequestBounds, |s| vec![a_read(1, 1, s.r.handle, s.r.offset - 1)]).await;
    breaks(V::ReadRequestWrap, |s| vec![a_read(1, 9, s.r.handle, u64::MAX - 3)]).await;
    // The IRD is 1, so two outstanding Reads violate it.
    breaks(V::ReadRequestLimit, |s| {
        vec![a_read(1, 9, s.r.handle, s.r.offset), a_read(2, 9, s.r.handle, s.r.offset)]
    })
    .await;
    for (control, mo, len) in [(LAST, 0, 27), (LAST, 0, 29), (0, 0, 28), (LAST, 4, 28)] {
        breaks(V::ReadRequestSize, |_| {
            vec![untagged(1 | control, 0x41, [0, 1, 1, mo], &vec![0; len])]
        })
        .await;
    }
}

#[tokio::test]
async fn unrequested_read_responses() {
    use Violation as V;
    breaks(V::ReadResponseUnexpected, |s| {
        vec![tagged(1 | LAST, 0x42, s.w.handle, s.w.offset, &[1])]
    })
    .await;
    type Say = fn(u32) -> Vec<Vec<u8>>;
    let cases: [(V, Say); 7] = [
        (V::ReadResponseStag, |stag| vec![tagged(1, 0x42, stag ^ 1, 0, &[1])]),
        (V::ReadResponseBounds, |stag| vec![tagged(1, 0x42, stag, 1, &[1])]),
        (V::ReadResponseBounds, |stag| {
            vec![tagged(1, 0x42, stag, 0, &[1; 8]), tagged(1 | LAST, 0x42, stag, 0, &[1; 42])]
        }),
        (V::ReadResponseLength, |stag| vec![tagged(1 | LAST, 0x42, stag, 0, &[1; 51])]),
        (V::ReadResponseLength, |stag| vec![tagged(1 | LAST, 0x42, stag, 0, &[1; 49])]),
        (V::ReadResponseLength, |stag| vec![tagged(1, 0x42, stag, 0, &[1; 50])]),
        (V::ReadResponseUnexpected, |stag| {
            let whole = tagged(1 | LAST, 0x42, stag, 0, &[1; 50]);
            vec![whole, tagged(1 | LAST, 0x42, stag, 50, &[])]
        }),
    ];
    for (v, say) in cases {
        let mut s = scene(true).await;
        let ulpdus = say(s.reading().await);
        s.say(&ulpdus).await;
        s.ends(v, &ulpdus[ulpdus.len() - 1]).await;
    }
}

#[tokio::test]
async fn frames_too_short_for_their_headers() {
    for len in [0, 1, 13] {
        breaks(Violation::UlpduLength, |_| vec![vec![0xc1; len]]).await;
    }
    breaks(Violation::UlpduLength, |_| vec![vec![0x41; 17]]).await;
}

#[tokio::test]
async fn terminates() {
    // Flags that announce more data than the message has.
    breaks(Violation::TerminateMalformed, |_| {
        vec![untagged(1 | LAST, 0x47, [0, 2, 1, 0], &[0x11, 0, 0xc0, 0, 0, 9])]
    })
    .await;
    breaks(Violation::TerminateMalformed, |_| {
        vec![untagged(1 | LAST, 0x47, [0, 2, 1, 0], &[0; 53])]
    })
    .await;
    // A valid Terminate is not answered; it may report a refused Read.
    let mut s = scene(true).await;
    s.reading().await;
    s.say(&[untagged(1 | LAST, 0x47, [0, 2, 1, 0], &[0x01, 0, 0, 0])]).await;
    let out = next(&mut s.qp).await.unwrap();
    let of = |kind| out.iter().find(|c| c.kind == kind).unwrap().result;
    assert_eq!(of(WorkKind::Read), Err(WorkError::RemoteAccess));
    assert_eq!(of(WorkKind::Recv), Err(WorkError::Flushed));
    let down = next(&mut s.qp).await.unwrap_err();
    assert_eq!(down.violation, None);
    assert!(down.reason.contains("invalid STag"), "{}", down.reason);
    drop(s.qp);
    let mut rest = Vec::new();
    s.peer.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty());
}

/// All four forms of Send are accepted, and a Read is answered; then a refused Read Request is quoted completely.
#[tokio::test]
async fn all_send_forms_and_read() {
    let mut s = scene(true).await;
    s.say(&[
        untagged(1, 0x44, [s.w.handle, 0, 1, 0], &[1; 8]),
        untagged(1 | LAST, 0x44, [s.w.handle, 0, 1, 8], &[2; 8]),
        untagged(1 | LAST, 0x45, [9, 0, 2, 0], &[3; 4]),
    ])
    .await;
    let mut got = Vec::new();
    while got.len() < 2 {
        got.extend(next(&mut s.qp).await.unwrap());
    }
    assert_eq!((got[0].result, got[0].invalidated), (Ok(16), Some(s.w.handle)));
    assert_eq!((got[1].result, got[1].invalidated), (Ok(4), None));
    s.qp.post(vec![recv(3, 100), recv(4, 100)]).unwrap();
    let refused = a_read(2, 1, s.r.handle, s.r.offset);
    s.say(&[
        a_read(1, 70, s.r.handle, s.r.offset + 30),
        untagged(1 | LAST, 0x43, [0, 0, 3, 0], &[4; 4]),
        untagged(1 | LAST, 0x46, [s.r.handle, 0, 4, 0], &[5; 4]),
    ])
    .await;
    got.clear();
    while got.len() < 2 {
        got.extend(next(&mut s.qp).await.unwrap());
    }
    assert_eq!(got[1].invalidated, Some(s.r.handle));
    // The Read was requested before the region was released, so it is answered.
    let mut response = [0; 2 + 14 + 70 + 2 + 4];
    let mut none = Vec::new();
    let read = in_time(s.peer.read_exact(&mut response));
    let poll = poll_fn(|cx| s.qp.poll(cx, &mut none));
    tokio::select! { n = read => n.map(|_| ()).unwrap(), _ = poll => panic!("an event") };
    let want = tagged(1 | LAST, 0x42, 77, 0, &pattern(1, 100)[30..]);
    assert_eq!(response[..], frame(&want, true));
    s.say(std::slice::from_ref(&refused)).await;
    s.ends(Violation::ReadRequestStag, &refused).await;
}

#[tokio::test]
async fn stream_end_in_message_is_reported() {
    let whole = frame(&a_send(1, 0, LAST, &[1; 8]), true);
    for n in [1, 3, 25, whole.len() - 1] {
        let mut s = scene(true).await;
        s.peer.write_all(&whole[..n]).await.unwrap();
        s.peer.shutdown().await.unwrap();
        assert_eq!(next(&mut s.qp).await.unwrap().len(), 2);
        let down = next(&mut s.qp).await.unwrap_err();
        assert!(down.reason.contains("middle"), "{n}: {}", down.reason);
    }
}

#[tokio::test]
async fn hostile_peer_does_not_affect_others() {
    let (mut a, mut b) = pair().await;
    breaks(Violation::WriteStag, |s| vec![a_write(s.w.handle ^ 1, s.w.offset, 1)]).await;
    b.post(vec![recv(1, 16)]).unwrap();
    a.post(vec![send(2, vec![1, 2, 3])]).unwrap();
    let (_, got) = both(&mut a, 1, &mut b, 1).await;
    assert_eq!(got[0].buf.as_ref().unwrap().filled(), [1, 2, 3]);
}

#[tokio::test]
async fn endless_peer_is_closed_in_time() {
    let config =
        IwarpConfig { close_time_max: Duration::from_millis(50), ..IwarpConfig::default() };
    let (mut listener, at) = listen(&config).await;
    let accept = async { listener.accept().await.unwrap().accept(params()).await.unwrap().qp };
    let dial = async {
        let mut peer = TcpStream::connect(at).await.unwrap();
        peer.write_all(&request(0x10, 2, &[0, 1, 0, 1])).await.unwrap();
        peer
    };
    let (mut qp, mut peer) = in_time(async { tokio::join!(accept, dial) }).await;
    let talk = tokio::spawn(async move { while peer.write_all(&[0xff; 4096]).await.is_ok() {} });
    assert_eq!(next(&mut qp).await.unwrap_err().violation, Some("iwarp_ddp_version_tagged"));
    drop(qp);
    in_time(talk).await.unwrap();
}

/// A short limit for the timeout rule; otherwise one that even a busy machine does not reach before the violation.
fn limit_for(v: Violation) -> IwarpConfig {
    let soon = if v == Violation::MpaTimeout { 50 } else { 60_000 };
    IwarpConfig { handshake_time_max: Duration::from_millis(soon), ..IwarpConfig::default() }
}

/// Returns the responder's reply to this request, and its error.
async fn asked(config: IwarpConfig, request: &[u8]) -> (Vec<u8>, std::io::Error) {
    let (mut listener, at) = listen(&config).await;
    let accept = async {
        let mut incoming = listener.accept().await.unwrap();
        match incoming.request().await {
            Ok(_) => incoming.accept(params()).await.err().unwrap(),
            Err(e) => e,
        }
    };
    let dial = async {
        let mut peer = TcpStream::connect(at).await.unwrap();
        peer.write_all(request).await.unwrap();
        let mut b = Vec::new();
        // A peer that is disconnected may get a reset.
        let _ = peer.read_to_end(&mut b).await;
        b
    };
    let (e, b) = in_time(async { tokio::join!(accept, dial) }).await;
    (b, e)
}

#[tokio::test]
async fn refused_connection_requests() {
    let rejected = reply(0x30, 2, &[0; 4]);
    let mut long = request(0x10, 2, &[]);
    long[18] = 2;
    long[19] = 1;
    let cases = [
        (Violation::MpaKey, b"GET / HTTP/1.1\r\n\r\n    ".to_vec(), vec![]),
        (Violation::MpaKey, reply(0x10, 2, &[0; 4]), vec![]),
        (Violation::MpaRevision, request(0x10, 0, &[0; 4]), vec![]),
        (Violation::MpaRevision, request(0x10, 3, &[0; 4]), vec![]),
        (Violation::MpaPrivateData, long, vec![]),
        (Violation::MpaPrivateData, request(0x10, 2, &[0; 3]), vec![]),
        (Violation::MpaRtrUnmatched, request(0x10, 2, &[0x80, 0, 0, 0]), rejected),
        (Violation::MpaTimeout, request(0x10, 2, &[0; 4])[..22].to_vec(), vec![]),
        (Violation::MpaTimeout, vec![], vec![]),
    ];
    for (v, request, answer) in cases {
        let (got, e) = asked(limit_for(v), &request).await;
        assert_eq!(e.to_string(), v.name());
        assert_eq!(got, answer, "{v}");
    }
}

/// Returns the initiator's reaction to this reply, and its error.
async fn answered(config: IwarpConfig, reply: &[u8]) -> (Vec<u8>, std::io::Error) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let accept = async {
        let (mut peer, _) = listener.accept().await.unwrap();
        let mut request = [0; 29];
        peer.read_exact(&mut request).await.unwrap();
        peer.write_all(reply).await.unwrap();
        let mut b = Vec::new();
        let _ = peer.read_to_end(&mut b).await;
        b
    };
    let provider = Iwarp::new(config);
    let (c, b) = in_time(async { tokio::join!(provider.connect(at, params()), accept) }).await;
    (b, c.err().unwrap())
}

#[tokio::test]
async fn refused_connection_replies() {
    let crc = false;
    let terminate = |code| frame(&untagged(1 | LAST, 0x47, [0, 2, 1, 0], &[0x20, code, 0, 0]), crc);
    let cases = [
        (Violation::MpaKey, request(0x10, 2, &[0; 4]), None),
        (Violation::MpaRevision, reply(0x00, 1, &[]), Some(4)),
        (Violation::MpaIrdInsufficient, reply(0x10, 2, &[0, 8, 0, 9]), Some(6)),
        (Violation::MpaRtrUnmatched, reply(0x10, 2, &[0x80, 8, 0, 8]), Some(7)),
        (Violation::MpaTimeout, reply(0x10, 2, &[0; 4])[..10].to_vec(), None),
    ];
    for (v, reply, code) in cases {
        let (got, e) = answered(IwarpConfig { crc, ..limit_for(v) }, &reply).await;
        assert_eq!(e.to_string(), v.name());
        assert_eq!(got, code.map_or(vec![], terminate), "{v}");
    }
}

/// Each kind of RTR frame from a foreign initiator lets the responder send first, and uses no Receive.
#[tokio::test]
async fn rtr_frames_of_others() {
    let none = frame(&[], true);
    let empty_send = frame(&a_send(1, 0, LAST, &[]), true);
    let empty_write = frame(&tagged(1 | LAST, 0x40, 0, 0, &[]), true);
    let empty_read = frame(&a_read(1, 0, 0, 0), true);
    let cases = [
        ([0xc0, 1, 0, 1], [0xc0, 1, 0, 1], none, 0),
        ([0xc0, 1, 0, 1], [0xc0, 1, 0, 1], empty_send, 1),
        ([0x80, 1, 0x80, 1], [0x80, 1, 0x80, 1], empty_write, 0),
        ([0x80, 1, 0x40, 1], [0x80, 1, 0x40, 1], empty_read, 0),
    ];
    for (ask, answer, rtr, sends) in cases {
        let (mut listener, at) = listen(&IwarpConfig::default()).await;
        let accept = async { listener.accept().await.unwrap().accept(params()).await.unwrap().qp };
        let dial = async {
            let mut peer = TcpStream::connect(at).await.unwrap();
            peer.write_all(&request(0x10, 2, &ask)).await.unwrap();
            let mut b = [0; 29];
            peer.read_exact(&mut b).await.unwrap();
            assert_eq!(b[20..24], answer);
            peer.write_all(&rtr).await.unwrap();
            peer
        };
        let (mut qp, mut peer) = in_time(async { tokio::join!(accept, dial) }).await;
        qp.post(vec![recv(1, 16), send(2, vec![7; 4])]).unwrap();
        assert_eq!(next(&mut qp).await.unwrap()[0].id, WorkId(2));
        let mut b = vec![0; 2 + 18 + 4 + 4];
        if rtr.len() > 30 {
            // The response to the Read is first or second; the total length is the same.
            b.resize(b.len() + 2 + 14 + 4, 0);
        }
        in_time(peer.read_exact(&mut b)).await.unwrap();
        // The Receive is still available, for the next number.
        peer.write_all(&frame(&a_send(sends + 1, 0, LAST, &[3]), true)).await.unwrap();
        let got = next(&mut qp).await.unwrap();
        assert_eq!((got[0].id, got[0].result), (WorkId(1), Ok(1)));
    }
}

#[tokio::test]
async fn every_rule_has_a_test() {
    let here = include_str!("hostile.rs");
    for v in Violation::ALL {
        let name = format!("{v:?}");
        assert!(here.contains(&format!("::{name}")), "{name}");
    }
}
