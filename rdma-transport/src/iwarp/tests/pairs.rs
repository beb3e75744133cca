//! Tests two ends of this implementation against each other.

use super::*;

/// Sizes around every threshold: words, the prediction, the MSS of Ethernet, pages, the largest FPDU, several of them.
#[rustfmt::skip]
const SIZES: &[usize] = &[
    0, 1, 2, 3, 4, 5, 127, 128, 255, 256, 257, 1023, 1024, 1424, 1428, 1429, 4095, 4096, 4097, 8191, 8192, 8193,
    16_383, 16_384, 32_743, 32_744, 32_748, 32_749, 64_747, 64_748, 64_749, 64_752, 64_753, 65_535, 65_536, 65_537,
    131_072, 1_000_003, 1 << 20,
];

/// Like `assert_eq!`, but prints only the position of the first difference.
fn same(got: &[u8], want: &[u8]) {
    let at = got.iter().zip(want).position(|(a, b)| a != b);
    assert_eq!((at, got.len()), (None, want.len()), "of {} bytes", want.len());
}

fn kinds() -> Vec<IwarpConfig> {
    let mut out = Vec::new();
    for crc in [false, true] {
        for large_fpdus in [false, true] {
            out.push(IwarpConfig { crc, large_fpdus, ..IwarpConfig::default() });
        }
    }
    out
}

#[tokio::test]
async fn private_data_reaches_both_ends() {
    let c = IwarpConfig::default();
    let rp = ConnectParams { private_data: Bytes::from_static(b"welcome"), ..params() };
    let (i, r) = pair_of(c.clone(), c, params(), rp).await;
    assert_eq!(i.private_data, &b"welcome"[..]);
    assert_eq!(r.private_data, &b"hello"[..]);
    assert_eq!((i.peer, i.local), (r.local, r.peer));
    assert_eq!(i.qp.limits().reads_in_flight_max, 8);
}

#[tokio::test]
async fn sends_of_every_size_arrive_whole() {
    for c in kinds() {
        let (i, r) = pair_of(c.clone(), c, params(), params()).await;
        let (mut a, mut b) = (i.qp, r.qp);
        for (n, &size) in SIZES.iter().enumerate() {
            b.post(vec![recv(n as u64, size)]).unwrap();
            let bytes = pattern(n, size);
            let (head, tail) = bytes.split_at(size / 3);
            let from = vec![buf(head.to_vec()), Buf::empty(), buf(tail.to_vec())];
            a.post(vec![Work::Send { id: WorkId(7), from, invalidate: None }]).unwrap();
            let (sent, got) = both(&mut a, 1, &mut b, 1).await;
            assert_eq!(
                (sent[0].id, sent[0].kind, sent[0].result),
                (WorkId(7), WorkKind::Send, Ok(size))
            );
            assert_eq!((got[0].id, got[0].result), (WorkId(n as u64), Ok(size)));
            assert!(got[0].buf.as_ref().unwrap().filled() == bytes, "size {size}");
        }
        assert_eq!(a.counters().send_bytes, SIZES.iter().sum::<usize>() as u64);
        assert_eq!(b.counters().recvs, SIZES.len() as u64);
    }
}

#[tokio::test]
async fn burst_of_sends_keeps_order() {
    for c in kinds() {
        let (i, r) = pair_of(c.clone(), c, params(), params()).await;
        let (mut a, mut b) = (i.qp, r.qp);
        b.post((0..64).map(|n| recv(n, 4096)).collect()).unwrap();
        let sizes: Vec<usize> = (0..64).map(|n| [0, 3, 150, 4096, 1300, 4000][n % 6]).collect();
        a.post(sizes.iter().enumerate().map(|(n, &s)| send(n as u64, pattern(n, s))).collect())
            .unwrap();
        let (sent, got) = both(&mut a, 64, &mut b, 64).await;
        for (n, (s, g)) in sent.iter().zip(&got).enumerate() {
            assert_eq!((s.id, g.id), (WorkId(n as u64), WorkId(n as u64)));
            assert!(g.buf.as_ref().unwrap().filled() == pattern(n, sizes[n]));
        }
    }
}

#[tokio::test]
async fn writes_of_all_sizes_arrive() {
    for c in kinds() {
        let (i, r) = pair_of(c.clone(), c, params(), params()).await;
        let (mut a, mut b) = (i.qp, r.qp);
        for (n, &size) in SIZES.iter().enumerate() {
            let mut room = BufMut::heap(size + 20);
            room.whole_mut().fill(0xee);
            let seg = a.register(Region::Writable(room)).unwrap();
            assert_eq!(seg.len as usize, size + 20);
            a.post(vec![recv(1, 16)]).unwrap();
            // The responder may not send first.
            b.post(vec![recv(2, 16)]).unwrap();
            a.post(vec![send(3, vec![1])]).unwrap();
            let bytes = pattern(n, size);
            let to = part(seg, 10, size);
            b.post(vec![
                Work::Write { id: WorkId(4), from: buf(bytes.clone()), to },
                Work::Send {
                    id: WorkId(5),
                    from: vec![buf(vec![9])],
                    invalidate: Some(seg.handle),
                },
            ])
            .unwrap();
            let (at_a, at_b) = both(&mut a, 2, &mut b, 3).await;
            let got = at_a.iter().find(|c| c.kind == WorkKind::Recv).unwrap();
            assert_eq!(got.invalidated, Some(seg.handle));
            let order: Vec<_> =
                at_b.iter().filter(|c| c.kind != WorkKind::Recv).map(|c| c.id.0).collect();
            assert_eq!(order, [4, 5]);
            let mut room = writable(a.release(seg.handle));
            let whole = room.whole_mut();
            assert!(whole[..10].iter().all(|b| *b == 0xee), "size {size}");
            same(&whole[10..10 + size], &bytes);
        }
        assert_eq!(b.counters().writes, SIZES.len() as u64);
        assert_eq!(b.counters().sends_invalidate, SIZES.len() as u64);
    }
}

#[tokio::test]
async fn reads_of_all_sizes_arrive() {
    for c in kinds() {
        let (i, r) = pair_of(c.clone(), c, params(), params()).await;
        let (mut a, mut b) = (i.qp, r.qp);
        for (n, &size) in SIZES.iter().enumerate() {
            let bytes = pattern(n, size);
            let seg = a.register(Region::Readable(buf(bytes.clone()))).unwrap();
            b.post(vec![recv(2, 16)]).unwrap();
            a.post(vec![send(3, vec![1])]).unwrap();
            // Three segments out of memory order, after five bytes already in the buffer.
            let (x, y) = (size / 3, size / 2);
            let from = vec![part(seg, y, size - y), part(seg, 0, x), part(seg, x, y - x)];
            let mut into = BufMut::heap(size + 5);
            into.append(b"12345");
            b.post(vec![Work::Read { id: WorkId(4), from, into }, send(5, vec![])]).unwrap();
            a.post(vec![recv(1, 16)]).unwrap();
            let (_, at_b) = both(&mut a, 2, &mut b, 3).await;
            let order: Vec<_> =
                at_b.iter().filter(|c| c.kind != WorkKind::Recv).map(|c| c.id.0).collect();
            assert_eq!(order, [4, 5]);
            let read = at_b.iter().find(|c| c.kind == WorkKind::Read).unwrap();
            assert_eq!(read.result, Ok(size));
            let want = [b"12345", &bytes[y..], &bytes[..x], &bytes[x..y]].concat();
            same(read.buf.as_ref().unwrap().filled(), &want);
            assert!(a.release(seg.handle).is_some());
        }
    }
}

#[tokio::test]
async fn reads_beyond_depth_are_delayed() {
    let c = IwarpConfig::default();
    let few = ConnectParams { reads_in: 2, ..params() };
    let (i, r) = pair_of(c.clone(), c, few, params()).await;
    let (mut a, mut b) = (i.qp, r.qp);
    assert_eq!(b.limits().reads_in_flight_max, 2);
    let bytes = pattern(1, 200_000);
    let seg = a.register(Region::Readable(buf(bytes.clone()))).unwrap();
    b.post(vec![recv(99, 16)]).unwrap();
    a.post(vec![send(3, vec![1])]).unwrap();
    let works = (0..20)
        .map(|n| {
            let from = (0..4).map(|k| part(seg, (n * 4 + k) * 2500, 2500)).collect();
            Work::Read { id: WorkId(n as u64), from, into: BufMut::heap(10_000) }
        })
        .collect();
    b.post(works).unwrap();
    let (_, at_b) = both(&mut a, 1, &mut b, 21).await;
    let reads: Vec<_> = at_b.iter().filter(|c| c.kind == WorkKind::Read).collect();
    for (n, c) in reads.iter().enumerate() {
        assert_eq!(c.id, WorkId(n as u64));
        assert!(c.buf.as_ref().unwrap().filled() == &bytes[n * 10_000..][..10_000]);
    }
}

#[tokio::test]
async fn both_ends_work_concurrently() {
    for c in kinds() {
        let (i, r) = pair_of(c.clone(), c, params(), params()).await;
        let (mut a, mut b) = (i.qp, r.qp);
        let size = 300_000;
        let (ra, rb) = (pattern(1, size), pattern(2, size));
        let sa = a.register(Region::Readable(buf(ra.clone()))).unwrap();
        let sb = b.register(Region::Readable(buf(rb.clone()))).unwrap();
        let wa = a.register(Region::Writable(BufMut::heap(size))).unwrap();
        let wb = b.register(Region::Writable(BufMut::heap(size))).unwrap();
        for (qp, read, write, data) in [(&mut a, sb, wb, &ra), (&mut b, sa, wa, &rb)] {
            qp.post((0..3).map(|n| recv(n, 5000)).collect()).unwrap();
            qp.post(vec![
                send(10, pattern(3, 5000)),
                Work::Read { id: WorkId(11), from: vec![read], into: BufMut::heap(size) },
                Work::Write { id: WorkId(12), from: buf(data.clone()), to: write },
                send(13, pattern(4, 1)),
                send(14, pattern(5, 4999)),
            ])
            .unwrap();
        }
        let (at_a, at_b) = both(&mut a, 8, &mut b, 8).await;
        for (got, theirs) in [(&at_a, &rb), (&at_b, &ra)] {
            assert!(got.iter().all(|c| c.result.is_ok()));
            let read = got.iter().find(|c| c.kind == WorkKind::Read).unwrap();
            assert!(read.buf.as_ref().unwrap().filled() == theirs);
            let recvs: Vec<_> = got.iter().filter(|c| c.kind == WorkKind::Recv).collect();
            for (c, (seed, len)) in recvs.iter().zip([(3, 5000), (4, 1), (5, 4999)]) {
                assert!(c.buf.as_ref().unwrap().filled() == pattern(seed, len));
            }
        }
        assert!(writable(a.release(wa.handle)).whole_mut() == rb);
        assert!(writable(b.release(wb.handle)).whole_mut() == ra);
    }
}

#[tokio::test]
async fn rtr_lets_the_responder_speak_first() {
    let i = IwarpConfig { peer_to_peer: true, ..IwarpConfig::default() };
    let (i, r) = pair_of(i, IwarpConfig::default(), params(), params()).await;
    let (mut a, mut b) = (i.qp, r.qp);
    a.post(vec![recv(1, 16)]).unwrap();
    b.post(vec![send(2, vec![5; 3])]).unwrap();
    let (got, _) = both(&mut a, 1, &mut b, 1).await;
    assert_eq!(got[0].buf.as_ref().unwrap().filled(), [5; 3]);
}

#[tokio::test]
async fn peers_without_enhanced_mode() {
    let i = IwarpConfig { enhanced: false, ..IwarpConfig::default() };
    let (i, r) = pair_of(i, IwarpConfig::default(), params(), params()).await;
    let (mut a, mut b) = (i.qp, r.qp);
    b.post(vec![recv(1, 16)]).unwrap();
    a.post(vec![send(2, vec![5; 3])]).unwrap();
    let (_, got) = both(&mut a, 1, &mut b, 1).await;
    assert_eq!(got[0].buf.as_ref().unwrap().filled(), [5; 3]);
}

#[tokio::test]
async fn disconnect_sends_posted_work() {
    let (mut a, mut b) = pair().await;
    b.post((0..3).map(|n| recv(n, 1 << 20)).collect()).unwrap();
    a.post(vec![recv(9, 16), send(1, pattern(1, 1 << 20)), send(2, pattern(2, 1 << 20))]).unwrap();
    a.disconnect();
    let refused = a.post(vec![send(3, vec![1])]).unwrap_err();
    assert_eq!((refused.why, refused.chain.len()), (Refused::Down, 1));
    let (at_a, at_b) = both(&mut a, 3, &mut b, 2).await;
    for c in at_a {
        let want = if c.id == WorkId(9) { Err(WorkError::Flushed) } else { Ok(1 << 20) };
        assert_eq!(c.result, want);
    }
    assert!(at_b[1].buf.as_ref().unwrap().filled() == pattern(2, 1 << 20));
    // The peer sees the end of the stream, and its last Receive is returned.
    let (down_a, rest_b) = tokio::join!(next(&mut a), next(&mut b));
    assert_eq!(down_a.unwrap_err().reason, "closed by this side");
    assert_eq!(rest_b.unwrap()[0].result, Err(WorkError::Flushed));
    let down = next(&mut b).await.unwrap_err();
    assert_eq!(down, Down { reason: "closed by peer".into(), violation: None });
    assert_eq!(next(&mut b).await.unwrap_err(), down);
}

#[tokio::test]
async fn lost_peer_flushes_all_work() {
    let (mut a, b) = pair().await;
    let into = BufMut::heap(64);
    let seg = RemoteSeg { handle: 5, len: 64, offset: 0 };
    a.post(vec![recv(1, 16), Work::Read { id: WorkId(2), from: vec![seg], into }, send(3, vec![])])
        .unwrap();
    drop(b);
    let mut out = Vec::new();
    while out.len() < 3 {
        out.extend(next(&mut a).await.unwrap());
    }
    let read = out.iter().find(|c| c.id == WorkId(2)).unwrap();
    assert_eq!(read.result, Err(WorkError::Flushed));
    assert!(read.buf.is_some());
    assert!(next(&mut a).await.is_err());
    assert_eq!(a.post(vec![recv(1, 1)]).unwrap_err().why, Refused::Down);
    assert!(a.register(Region::Writable(BufMut::heap(1))).is_err());
}

#[tokio::test]
async fn full_queue_refuses_whole_chain() {
    let c = IwarpConfig::default();
    let small = ConnectParams { recvs: 2, sends: 2, reads_out: 0, ..params() };
    let (i, _r) = pair_of(c.clone(), c, small, params()).await;
    let mut a = i.qp;
    let why = |r: Result<(), Rejected>| {
        let r = r.unwrap_err();
        (r.why, r.chain.len())
    };
    assert_eq!(why(a.post((0..3).map(|n| recv(n, 1)).collect())), (Refused::Full, 3));
    assert_eq!(why(a.post((0..3).map(|n| send(n, vec![])).collect())), (Refused::Full, 3));
    let seg = RemoteSeg { handle: 1, len: 3, offset: 0 };
    let write = Work::Write { id: WorkId(1), from: buf(vec![0; 4]), to: seg };
    assert_eq!(why(a.post(vec![write])), (Refused::Invalid, 1));
    // RDMA Reads were not negotiated.
    let read = Work::Read { id: WorkId(1), from: vec![seg], into: BufMut::heap(3) };
    assert_eq!(why(a.post(vec![read])), (Refused::Invalid, 1));
    let pieces = vec![buf(vec![1]); a.limits().send_pieces_max + 1];
    let long = Work::Send { id: WorkId(1), from: pieces, invalidate: None };
    assert_eq!(why(a.post(vec![long])), (Refused::Invalid, 1));
    let mut regions = 0;
    while a.register(Region::Writable(BufMut::heap(1))).is_ok() {
        regions += 1;
    }
    assert_eq!(regions, a.limits().regions_max);
}

#[tokio::test]
async fn refusal_carries_private_data() {
    let (mut listener, at) = listen(&IwarpConfig::default()).await;
    let provider = Iwarp::new(IwarpConfig::default());
    let refuse = async {
        let incoming = listener.accept().await.unwrap();
        incoming.reject(Bytes::from_static(b"not today")).await;
    };
    let (c, ()) = in_time(async { tokio::join!(provider.connect(at, params()), refuse) }).await;
    let e = c.err().unwrap();
    assert_eq!(e.kind(), std::io::ErrorKind::ConnectionRefused);
    assert!(e.to_string().contains("not today"));
}

/// Checks an end after a round of [`random_mix_of_operations`]: data read from the other's source, and Sends received.
fn all_as_sent(got: &[Completion], round: usize, reads: &[(usize, usize)], source: &[u8]) {
    assert!(got.iter().all(|c| c.result.is_ok()), "{got:?}");
    let of = |kind| got.iter().filter(move |c| c.kind == kind);
    for (c, (from, n)) in of(WorkKind::Read).zip(reads) {
        same(c.buf.as_ref().unwrap().filled(), &source[*from..from + n]);
    }
    for (k, c) in of(WorkKind::Recv).enumerate() {
        let filled = c.buf.as_ref().unwrap().filled();
        same(filled, &pattern(k + round, filled.len()));
    }
}

/// Every kind of work in random order and size from both ends, compared byte by byte.
#[tokio::test]
async fn random_mix_of_operations() {
    for seed in 0..8u64 {
        let kinds = kinds();
        let c = kinds[usize::try_from(seed).unwrap() % kinds.len()].clone();
        let (i, r) = pair_of(c.clone(), c, params(), params()).await;
        let (mut a, mut b) = (i.qp, r.qp);
        let mut state = seed * 2 + 1;
        let mut random = move |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(state >> 33).unwrap() % n
        };
        let len = 400_000;
        let sources = [pattern(1, len), pattern(2, len)];
        // Each end offers a source to read and a sink to write, in disjoint slices.
        let ra = a.register(Region::Readable(buf(sources[0].clone()))).unwrap();
        let rb = b.register(Region::Readable(buf(sources[1].clone()))).unwrap();
        let wa = a.register(Region::Writable(BufMut::heap(len))).unwrap();
        let wb = b.register(Region::Writable(BufMut::heap(len))).unwrap();
        let mut written = [vec![0u8; len], vec![0u8; len]];
        let mut at = [0, 0];
        // The initiator sends first.
        b.post(vec![recv(0, 8)]).unwrap();
        a.post(vec![send(0, vec![1])]).unwrap();
        both(&mut a, 1, &mut b, 1).await;
        for round in 0..12 {
            let mut sends = [0; 2];
            let mut works: [Vec<Work>; 2] = [Vec::new(), Vec::new()];
            let mut reads: [Vec<(usize, usize)>; 2] = [Vec::new(), Vec::new()];
            for end in 0..2 {
                let (read, write) = [(rb, wb), (ra, wa)][end];
                for _ in 0..random(8) {
                    match random(3) {
                        0 => {
                            let bytes = pattern(sends[end] + round, random(4096));
                            works[end].push(send(0, bytes));
                            sends[end] += 1;
                        }
                        1 => {
                            let (from, n) = (random(len / 2), random(len / 2));
                            let into = BufMut::heap(n);
                            let from_seg = vec![part(read, from, n)];
                            works[end].push(Work::Read { id: WorkId(1), from: from_seg, into });
                            reads[end].push((from, n));
                        }
                        _ => {
                            let n = random(len / 40).min(len - at[end]);
                            let data = pattern(round, n);
                            written[1 - end][at[end]..at[end] + n].copy_from_slice(&data);
                            let to = part(write, at[end], n);
                            works[end].push(Work::Write { id: WorkId(2), from: buf(data), to });
                            at[end] += n;
                        }
                    }
                }
                // A final Send tells the other end that the round is complete.
                works[end].push(send(3, pattern(sends[end] + round, 9)));
                sends[end] += 1;
            }
            let [for_a, for_b] = works;
            let expect = [for_a.len() + sends[1], for_b.len() + sends[0]];
            a.post((0..sends[1]).map(|_| recv(9, 4096)).collect()).unwrap();
            b.post((0..sends[0]).map(|_| recv(9, 4096)).collect()).unwrap();
            a.post(for_a).unwrap();
            b.post(for_b).unwrap();
            let (at_a, at_b) = both(&mut a, expect[0], &mut b, expect[1]).await;
            for (end, got) in [(0, at_a), (1, at_b)] {
                all_as_sent(&got, round, &reads[end], &sources[1 - end]);
            }
        }
        same(&writable(a.release(wa.handle)).whole_mut()[..at[1]], &written[0][..at[1]]);
        same(&writable(b.release(wb.handle)).whole_mut()[..at[0]], &written[1][..at[0]]);
    }
}
