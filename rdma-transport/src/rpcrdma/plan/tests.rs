use proptest::prelude::*;

use super::*;
use crate::rpcrdma::wire::Prefix;

fn seg(handle: u32, len: u32, offset: u64) -> RemoteSeg {
    RemoteSeg { handle, len, offset }
}

/// Different bytes for each seed; slices of one pattern, which is fast even without optimization.
fn bytes(n: usize, seed: usize) -> Vec<u8> {
    static PATTERN: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    let word = |i: u32| i.wrapping_mul(0x9e37_79b9).to_be_bytes();
    let pattern = PATTERN.get_or_init(|| (0..4096).flat_map(word).collect());
    let from = seed * 13;
    pattern[from..from + n].to_vec()
}

fn payload(at: usize, n: usize, place: Place) -> Payload {
    let pad = u8::try_from(n.wrapping_neg() % 4).unwrap();
    Payload { at, data: vec![bytes(n, at).into()], pages: None, pad, place }
}

fn parts(p: &Plan) -> (Prefix, Lists, Vec<u8>) {
    let message: Vec<u8> = p.send.iter().flat_map(|b| b.to_vec()).collect();
    let (rest, prefix) = Prefix::parse(&message).unwrap();
    let (payload, lists) = Lists::parse(rest).unwrap();
    (prefix, lists, payload.to_vec())
}

#[test]
fn moved_payload_loses_padding() {
    let offer = ReplyChunks {
        writes: vec![vec![seg(9, 8, 100), seg(9, 8, 300)]],
        ..ReplyChunks::default()
    };
    let reply = Reply {
        head: bytes(40, 1),
        payloads: vec![payload(36, 11, Place::Eligible)],
        ..Reply::default()
    };
    let p = plan(7, 64, offer, reply, 4096).unwrap();
    let moved: Vec<_> = p.writes.iter().map(|w| (w.from.to_vec(), w.to)).collect();
    let data = bytes(11, 36);
    assert_eq!(moved, [(data[..8].to_vec(), seg(9, 8, 100)), (data[8..].to_vec(), seg(9, 3, 300))]);
    let (prefix, lists, inline) = parts(&p);
    assert_eq!(prefix, Prefix { xid: 7, vers: 1, credits: 64, proc: RDMA_MSG });
    assert_eq!(lists.writes, [[seg(9, 8, 100), seg(9, 3, 300)]]);
    assert_eq!(inline, bytes(40, 1));
}

#[test]
fn unused_chunks_come_back_empty() {
    let writes = vec![vec![seg(1, 8, 0)], vec![seg(2, 8, 0), seg(3, 8, 0)]];
    let offer = ReplyChunks { writes, reply: Some(vec![seg(4, 100, 0)]), invalidate: None };
    let reply = Reply {
        head: bytes(8, 0),
        payloads: vec![payload(8, 0, Place::Eligible)],
        ..Reply::default()
    };
    let (_, lists, _) = parts(&plan(1, 1, offer, reply, 4096).unwrap());
    assert_eq!(lists.writes, [vec![seg(1, 0, 0)], vec![seg(2, 0, 0), seg(3, 0, 0)]]);
    assert_eq!(lists.reply, Some(vec![seg(4, 0, 0)]));
}

#[test]
fn empty_chunk_keeps_payload_inline() {
    let offer = ReplyChunks { writes: vec![vec![], vec![seg(2, 8, 0)]], ..ReplyChunks::default() };
    let payloads = vec![payload(4, 5, Place::Eligible), payload(8, 6, Place::Eligible)];
    let p =
        plan(1, 1, offer, Reply { head: bytes(8, 0), payloads, ..Reply::default() }, 4096).unwrap();
    let (_, lists, inline) = parts(&p);
    let head = bytes(8, 0);
    assert_eq!(inline, [&head[..4], &bytes(5, 4)[..], &[0; 3], &head[4..]].concat());
    assert_eq!(lists.writes, [vec![], vec![seg(2, 6, 0)]]);
}

#[test]
fn oversized_reply_is_refused() {
    let big = || Reply {
        head: bytes(100, 0),
        payloads: vec![payload(50, 10, Place::Eligible)],
        ..Reply::default()
    };
    let short = ReplyChunks { writes: vec![vec![seg(1, 9, 0)]], ..ReplyChunks::default() };
    assert_eq!(plan(1, 1, short, big(), 4096).unwrap_err(), TooBig::WriteChunk);
    assert_eq!(plan(1, 1, ReplyChunks::default(), big(), 139).unwrap_err(), TooBig::Message);
    assert!(plan(1, 1, ReplyChunks::default(), big(), 140).is_ok());
    let short = ReplyChunks {
        reply: Some(vec![seg(1, 100, 0), seg(1, 11, 200)]),
        ..ReplyChunks::default()
    };
    assert_eq!(plan(1, 1, short, big(), 139).unwrap_err(), TooBig::Message);
    let right = ReplyChunks {
        reply: Some(vec![seg(1, 100, 0), seg(1, 12, 200)]),
        ..ReplyChunks::default()
    };
    let p = plan(1, 1, right.clone(), big(), 139).unwrap();
    assert_eq!(parts(&p).0.proc, RDMA_NOMSG);
    assert!(parts(&p).2.is_empty());
    assert_eq!(plan(1, 1, right, big(), 20).unwrap_err(), TooBig::Message, "not even the header");
}

#[derive(Clone, Debug)]
struct Case {
    reply: Reply,
    offer: ReplyChunks,
    inline_max: usize,
}

fn chunk() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(prop_oneof![Just(0u32), 1u32..40, 1u32..3000], 0..5)
}

fn case() -> impl Strategy<Value = Case> {
    let piece = prop_oneof![Just(0usize), 1usize..20, 1usize..1500];
    let place = prop_oneof![3 => Just(Place::Eligible), 1 => Just(Place::Inline)];
    let payload = (0usize..=1000, proptest::collection::vec(piece, 0..4), place);
    let payloads = proptest::collection::vec(payload, 0..4);
    let writes = proptest::collection::vec(chunk(), 0..4);
    let reply = proptest::option::of(chunk());
    let case = (0usize..600, payloads, writes, reply, 100usize..4096);
    case.prop_map(|(head, mut payloads, writes, reply, inline_max)| {
        let mut handle = 0;
        let mut place = |lens: Vec<u32>| {
            let segment = |len| {
                handle += 1;
                seg(handle, len, u64::from(handle) * 1000)
            };
            lens.into_iter().map(segment).collect::<Vec<_>>()
        };
        let writes = writes.into_iter().map(&mut place).collect();
        let reply_chunk = reply.map(&mut place);
        payloads.sort_by_key(|p| p.0);
        let payloads = payloads.into_iter().enumerate().map(|(i, (at, pieces, place))| {
            let len: usize = pieces.iter().sum();
            let data = pieces.iter().enumerate().map(|(j, &n)| bytes(n, 10 * i + j).into());
            let pad = u8::try_from(len.wrapping_neg() % 4).unwrap();
            Payload { at: at * head / 1000, data: data.collect(), pages: None, pad, place }
        });
        let reply =
            Reply { head: bytes(head, 5), payloads: payloads.collect(), ..Reply::default() };
        Case {
            reply,
            offer: ReplyChunks { writes, reply: reply_chunk, invalidate: None },
            inline_max,
        }
    })
}

/// Reassembles a reply as the client does.
fn rebuilt(case: &Case, plan: &Plan) -> Vec<u8> {
    let (prefix, lists, inline) = parts(plan);
    // Data received in each segment, by handle; every Write must continue where the last one ended.
    let mut memory = std::collections::HashMap::<u32, Vec<u8>>::new();
    for w in &plan.writes {
        assert_eq!(w.from.len(), w.to.len as usize);
        assert!(!w.from.is_empty());
        let there = memory.entry(w.to.handle).or_default();
        assert_eq!(w.to.offset, u64::from(w.to.handle) * 1000 + there.len() as u64);
        there.extend_from_slice(&w.from);
    }
    let mut taken = 0;
    let mut chunk = |segments: &[RemoteSeg], offered: &[RemoteSeg]| {
        assert_eq!(segments.len(), offered.len());
        let mut out = Vec::new();
        let mut short = false;
        for (s, o) in segments.iter().zip(offered) {
            assert_eq!((s.handle, s.offset), (o.handle, o.offset));
            assert!(s.len <= o.len);
            assert!(!short || s.len == 0, "segments fill in order");
            short = s.len < o.len;
            let there = memory.get(&s.handle).map_or(&[][..], |m| m);
            assert_eq!(there.len(), s.len as usize);
            out.extend_from_slice(there);
        }
        taken += out.len();
        out
    };
    assert_eq!(lists.writes.len(), case.offer.writes.len());
    let moved: Vec<_> = lists
        .writes
        .iter()
        .zip(&case.offer.writes)
        .map(|(s, o)| (chunk(s, o), o.is_empty()))
        .collect();
    assert_eq!(lists.reply.is_some(), case.offer.reply.is_some());
    let long = match (&lists.reply, &case.offer.reply) {
        (Some(s), Some(o)) => chunk(s, o),
        _ => Vec::new(),
    };
    let stream = match prefix.proc {
        RDMA_MSG => {
            assert!(long.is_empty());
            inline
        }
        _ => {
            assert!(inline.is_empty());
            long
        }
    };
    assert_eq!(taken, plan.writes.iter().map(|w| w.from.len()).sum::<usize>());
    // Moved payloads return to their positions, with their padding.
    let mut moved = moved.into_iter();
    let (mut out, mut stream, mut head_done) = (Vec::new(), &stream[..], 0);
    for p in &case.reply.payloads {
        let (before, rest) = stream.split_at(p.at - head_done);
        out.extend_from_slice(before);
        head_done = p.at;
        stream = rest;
        let chunk = if p.place == Place::Eligible { moved.next() } else { None };
        match chunk.filter(|(_, empty)| !empty) {
            Some((data, _)) => {
                out.extend_from_slice(&data);
                out.resize(out.len() + usize::from(p.pad), 0);
            }
            None => {
                let (there, rest) = stream.split_at(p.len() + usize::from(p.pad));
                out.extend_from_slice(there);
                stream = rest;
            }
        }
    }
    out.extend_from_slice(stream);
    out
}

fn spread(chunk: &[RemoteSeg]) -> usize {
    chunk.iter().map(|s| s.len as usize).sum()
}

#[test]
fn bytes_are_transferred_once_in_order() {
    // The default generator takes half of the time without optimization.
    let rng_algorithm = proptest::test_runner::RngAlgorithm::XorShift;
    let config = ProptestConfig { cases: 20_000, rng_algorithm, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let (planned, refused) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    runner
        .run(&case(), |case| {
            match plan(3, 5, case.offer.clone(), case.reply.clone(), case.inline_max) {
                Ok(p) => {
                    planned.set(planned.get() + 1);
                    assert!(p.send.iter().map(Buf::len).sum::<usize>() <= case.inline_max);
                    let whole: Vec<u8> = case.reply.pieces().flatten().copied().collect();
                    assert_eq!(whole.len(), case.reply.inline_len());
                    assert!(rebuilt(&case, &p) == whole);
                }
                Err(why) => {
                    refused.set(refused.get() + 1);
                    let eligible =
                        case.reply.payloads.iter().filter(|p| p.place == Place::Eligible);
                    let too_short = eligible
                        .zip(&case.offer.writes)
                        .any(|(p, c)| !c.is_empty() && p.len() > spread(c));
                    assert_eq!(too_short, why == TooBig::WriteChunk);
                }
            }
            Ok(())
        })
        .unwrap();
    let (planned, refused) = (planned.get(), refused.get());
    assert!(planned > 5_000 && refused > 1_000, "{planned} planned, {refused} refused");
}
