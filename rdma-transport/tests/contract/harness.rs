//! Tests of the contract of [`rdma_transport::verbs`], for every provider.
//!
//! `main.rs` runs them for providers that need only this process, `tests/verbs` for RDMA devices.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, unreachable_pub)]

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::common::{bytes, nobody_holds, pool, run};
use iobuf::{Buf, BufMut, Pool};
use rdma_transport::verbs::{
    Completion, ConnectParams, Connected, Down, Provider, QueuePair, Refused, Region, RemoteSeg,
    Work, WorkError, WorkId, WorkKind,
};

pub type Maker = fn() -> Arc<dyn Provider>;

const MESSAGE_MAX: usize = 4096;

fn params(private_data: &'static [u8]) -> ConnectParams {
    ConnectParams {
        private_data: private_data.into(),
        recvs: 16,
        sends: 32,
        reads_out: 8,
        reads_in: 8,
        recv_size: MESSAGE_MAX,
    }
}

/// One end of a connection, with its completions.
pub struct End {
    pub qp: Box<dyn QueuePair>,
    done: Vec<Completion>,
    down: Option<Down>,
}

impl End {
    fn new(c: Connected) -> Self {
        Self { qp: c.qp, done: Vec::new(), down: None }
    }

    /// Polls until no progress is made. True if there was any.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while self.down.is_none() {
            match self.qp.poll(cx, &mut self.done) {
                Poll::Ready(Ok(())) => moved = true,
                Poll::Ready(Err(down)) => {
                    self.down = Some(down);
                    moved = true;
                }
                Poll::Pending => break,
            }
        }
        moved
    }

    fn of(&self, kind: WorkKind) -> Vec<&Completion> {
        self.done.iter().filter(|c| c.kind == kind).collect()
    }

    fn ids(&self, recvs: bool) -> Vec<u64> {
        let of_kind = |c: &&Completion| (c.kind == WorkKind::Recv) == recvs;
        self.done.iter().filter(of_kind).map(|c| c.id.0).collect()
    }

    fn recv(&mut self, id: u64, into: BufMut) {
        self.qp.post(vec![Work::Recv { id: WorkId(id), into }]).unwrap();
    }

    /// True if the connection ended and, for providers that report it, the violated rule is known.
    fn knows_the_rule(&self) -> bool {
        self.down.as_ref().is_some_and(|d| d.violation.is_some() || !crate::TELLS_ALL)
    }

    fn register(&mut self, region: Region) -> RemoteSeg {
        self.qp.register(region).unwrap()
    }
}

fn send(id: u64, from: &[u8]) -> Work {
    Work::Send { id: WorkId(id), from: vec![from.to_vec().into()], invalidate: None }
}

fn write(id: u64, from: &[u8], to: RemoteSeg) -> Work {
    Work::Write { id: WorkId(id), from: from.to_vec().into(), to }
}

fn part(of: RemoteSeg, at: u64, len: u32) -> RemoteSeg {
    RemoteSeg { handle: of.handle, len, offset: of.offset + at }
}

pub async fn connected(provider: &dyn Provider) -> (End, End) {
    let mut listener = provider.listen(crate::listen_at()).await.unwrap();
    let at = listener.local_addr();
    let accept = async {
        let mut incoming = listener.accept().await.unwrap();
        assert!(is_followed_by_zeros(&incoming.request().await.unwrap(), b"from the client"));
        incoming.accept(params(b"from the server")).await.unwrap()
    };
    let dial = provider.connect(at, params(b"from the client"));
    let (server, client) = tokio::join!(accept, dial);
    let client = client.unwrap();
    assert!(is_followed_by_zeros(&client.private_data, b"from the server"));
    assert!(is_followed_by_zeros(&server.private_data, b"from the client"));
    assert_eq!((client.peer, server.local), (at, at));
    assert_eq!(client.local, server.peer);
    let (mut client, mut server) = (End::new(client), End::new(server));
    // The dialling side sends first (RFC 5044 section 7.1).
    server.recv(0, BufMut::heap(8));
    client.qp.post(vec![send(0, b"hello")]).unwrap();
    // Also waits for the Send's own completion, because tests count later ones.
    both(&mut client, &mut server, |c, s| !c.done.is_empty() && !s.done.is_empty()).await;
    client.done.clear();
    server.done.clear();
    (client, server)
}

/// InfiniBand's messages have a field of fixed size for it.
fn is_followed_by_zeros(found: &[u8], sent: &[u8]) -> bool {
    found.strip_prefix(sent).is_some_and(|rest| rest.iter().all(|b| *b == 0))
}

/// Polls both ends until `until` is true.
async fn both(a: &mut End, b: &mut End, until: impl Fn(&End, &End) -> bool) {
    poll_fn(|cx| {
        while a.poll(cx) | b.poll(cx) {}
        if until(a, b) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

pub async fn until_down(a: &mut End, b: &mut End) {
    both(a, b, |a, b| a.down.is_some() && b.down.is_some()).await;
}

pub fn sends_land_in_order(make: Maker) {
    run(async {
        let (mut a, mut b) = connected(&*make()).await;
        let sizes = [0, 1, 7, 1000, MESSAGE_MAX];
        for (i, _) in sizes.iter().enumerate() {
            b.recv(100 + i as u64, BufMut::heap(MESSAGE_MAX));
        }
        let message = |i: usize| bytes(sizes[i], i as u8);
        for i in 0..sizes.len() {
            // The message is sent in pieces.
            let whole = Buf::from(message(i));
            let cut = whole.len() / 3;
            let from = vec![whole.slice(0..cut), whole.slice(cut..whole.len())];
            a.qp.post(vec![Work::Send { id: WorkId(i as u64), from, invalidate: None }]).unwrap();
        }
        both(&mut a, &mut b, |a, b| a.done.len() == 5 && b.done.len() == 5).await;
        assert_eq!(a.ids(false), [0, 1, 2, 3, 4]);
        assert_eq!(b.ids(true), [100, 101, 102, 103, 104]);
        for (i, c) in b.done.iter().enumerate() {
            assert_eq!(c.result, Ok(sizes[i]));
            assert_eq!(c.buf.as_ref().unwrap().filled(), message(i));
            assert_eq!(c.invalidated, None);
        }
        let counted = a.qp.counters();
        assert_eq!((counted.sends, counted.recvs), (6, 0));
        assert_eq!(b.qp.counters().recv_bytes, counted.send_bytes);
    });
}

pub fn writes_are_there_when_the_send_is(make: Maker) {
    run(async {
        let (mut a, mut b) = connected(&*make()).await;
        let region = b.register(Region::Writable(BufMut::heap(200_000)));
        assert!(region.len >= 200_000);
        let data = bytes(150_000, 3);
        b.recv(1, BufMut::heap(16));
        let chain = vec![
            write(1, &data[..100_000], part(region, 10, 100_000)),
            write(2, &[], part(region, 10, 0)),
            // Shorter than its region.
            write(3, &data[100_000..], part(region, 100_010, 90_000)),
            send(4, b"done"),
        ];
        a.qp.post(chain).unwrap();
        both(&mut a, &mut b, |_, b| !b.done.is_empty()).await;
        let Some(Region::Writable(mut memory)) = b.qp.release(region.handle) else { panic!() };
        assert!(memory.whole_mut()[10..150_010] == data);
        // The provider may write stray bytes after the written range, but not before it.
        assert!(memory.whole_mut()[..10] == [0; 10]);
        both(&mut a, &mut b, |a, _| a.done.len() == 4).await;
        assert_eq!(a.ids(false), [1, 2, 3, 4]);
        assert_eq!(a.qp.counters().write_bytes, 150_000);
    });
}

pub fn reads_append_all_their_segments(make: Maker) {
    run(async {
        let (mut a, mut b) = connected(&*make()).await;
        let (x, y) = (bytes(70_000, 1), bytes(300, 2));
        let first = b.register(Region::Readable(x.clone().into()));
        let second = b.register(Region::Readable(y.clone().into()));
        assert_eq!((first.len, second.len), (70_000, 300));
        let mut into = BufMut::heap(80_000);
        into.append(b"before");
        let from = vec![part(second, 100, 50), part(first, 5, 60_000), part(second, 0, 1)];
        let mut chain = vec![Work::Read { id: WorkId(1), from, into }];
        for i in 2..20 {
            chain.push(Work::Read { id: WorkId(i), from: vec![second], into: BufMut::heap(300) });
        }
        // More segments than outstanding Reads are allowed: waiting ones must not be forgotten.
        let many: Vec<RemoteSeg> = (0..100).map(|i| part(second, i, 2)).collect();
        chain.push(Work::Read { id: WorkId(20), from: many, into: BufMut::heap(300) });
        a.qp.post(chain).unwrap();
        both(&mut a, &mut b, |a, _| a.done.len() == 20).await;
        assert_eq!(a.ids(false), (1..21).collect::<Vec<_>>());
        let last = a.done.pop().and_then(|c| c.buf).unwrap();
        assert!(last.filled() == (0..100).flat_map(|i| [y[i], y[i + 1]]).collect::<Vec<_>>());
        let got = a.done[0].buf.as_ref().unwrap().filled();
        assert_eq!(a.done[0].result, Ok(60_051));
        assert!(got == [&b"before"[..], &y[100..150], &x[5..60_005], &y[..1]].concat());
        assert!(a.done[1..].iter().all(|c| c.buf.as_ref().unwrap().filled() == y));
        assert!(matches!(b.qp.release(first.handle), Some(Region::Readable(_))));
        assert!(b.qp.release(first.handle).is_none());
    });
}

/// A Send after a Read is not delayed forever, and both sides can perform all operations concurrently.
pub fn both_directions_at_once(make: Maker) {
    run(async {
        let (mut a, mut b) = connected(&*make()).await;
        let data = [bytes(90_000, 1), bytes(90_000, 2)];
        let mut written = Vec::new();
        let mut read = Vec::new();
        for (end, data) in [(&mut a, &data[0]), (&mut b, &data[1])] {
            written.push(end.register(Region::Writable(BufMut::heap(90_000))));
            read.push(end.register(Region::Readable(data.clone().into())));
            for i in 0..8 {
                end.recv(i, BufMut::heap(64));
            }
        }
        for (end, other) in [(&mut a, 1), (&mut b, 0)] {
            let mut chain = Vec::new();
            for i in 0..8u64 {
                let into = BufMut::heap(90_000);
                chain.push(write(10 * i, &data[1 - other], written[other]));
                chain.push(Work::Read { id: WorkId(10 * i + 1), from: vec![read[other]], into });
                chain.push(send(10 * i + 2, &i.to_be_bytes()));
            }
            end.qp.post(chain).unwrap();
        }
        both(&mut a, &mut b, |a, b| a.done.len() == 32 && b.done.len() == 32).await;
        let expected: Vec<u64> = (0..8).flat_map(|i| [10 * i, 10 * i + 1, 10 * i + 2]).collect();
        for (end, theirs, mine) in [(&a, &data[1], written[0]), (&b, &data[0], written[1])] {
            assert_eq!(end.ids(false), expected);
            assert_eq!(end.ids(true), (0..8).collect::<Vec<_>>());
            let reads = end.of(WorkKind::Read);
            assert!(reads.iter().all(|c| c.buf.as_ref().unwrap().filled() == theirs));
            assert!(mine.len >= 90_000);
        }
        for (end, region, theirs) in
            [(&mut a, written[0], &data[1]), (&mut b, written[1], &data[0])]
        {
            let Some(Region::Writable(mut m)) = end.qp.release(region.handle) else { panic!() };
            assert!(&m.whole_mut()[..90_000] == theirs);
        }
    });
}

pub fn invalidated_memory_is_closed(make: Maker) {
    run(async {
        let (mut a, mut b) = connected(&*make()).await;
        let region = b.register(Region::Writable(BufMut::heap(100)));
        b.recv(1, BufMut::heap(16));
        let from = vec![Buf::from(b"bye".to_vec())];
        let invalidate = Some(region.handle);
        a.qp.post(vec![Work::Send { id: WorkId(1), from, invalidate }]).unwrap();
        both(&mut a, &mut b, |_, b| !b.done.is_empty()).await;
        let told = b.done[0].invalidated;
        assert!(told == Some(region.handle) || (told.is_none() && !crate::TELLS_ALL));
        // The memory still belongs to the queue pair, but the peer may not access it any more.
        a.qp.post(vec![write(2, b"late", region)]).unwrap();
        until_down(&mut a, &mut b).await;
        let Some(Region::Writable(mut m)) = b.qp.release(region.handle) else { panic!() };
        assert!(m.whole_mut()[..4] != *b"late");
        assert_eq!(a.qp.counters().sends_invalidate, 1);
    });
}

/// Forbidden accesses of a peer leave the memory unchanged; both sides learn of the end, the side whose rule was violated knows the
/// rule, and all posted work is returned.
pub fn memory_is_guarded(make: Maker) {
    type Crime = fn(RemoteSeg, RemoteSeg) -> Work;
    fn read(from: RemoteSeg) -> Work {
        Work::Read { id: WorkId(9), from: vec![from], into: BufMut::heap(4096) }
    }
    let crimes: [(&str, Crime); 9] = [
        ("write before", |w, _| {
            write(9, b"x", RemoteSeg { offset: w.offset.wrapping_sub(1), ..w })
        }),
        ("write beyond", |w, _| write(9, b"xy", part(w, 999, 2))),
        ("write far", |w, _| write(9, b"x", RemoteSeg { offset: u64::MAX, ..w })),
        ("write elsewhere", |w, _| write(9, b"x", RemoteSeg { handle: w.handle ^ 0x100, ..w })),
        ("write what may be read", |_, r| write(9, b"x", r)),
        ("read what may be written", |w, _| read(part(w, 0, 8))),
        ("read beyond", |_, r| read(part(r, 995, 6))),
        ("read elsewhere", |_, r| read(RemoteSeg { handle: r.handle ^ 0x100, len: 8, ..r })),
        ("invalidate elsewhere", |w, _| Work::Send {
            id: WorkId(9),
            from: vec![],
            invalidate: Some(w.handle ^ 0x100),
        }),
    ];
    for (what, crime) in crimes.into_iter().filter(|(what, _)| !crate::is_lax(what)) {
        run(async {
            let (mut a, mut b) = connected(&*make()).await;
            let mine = pool(8);
            let writable = b.register(Region::Writable(BufMut::heap(1000)));
            let readable = b.register(Region::Readable(bytes(1000, 1).into()));
            for i in 0..3 {
                a.recv(i, mine.try_get(64).unwrap());
                b.recv(i, mine.try_get(64).unwrap());
            }
            a.qp.post(vec![crime(writable, readable)]).unwrap();
            until_down(&mut a, &mut b).await;
            assert!(b.knows_the_rule(), "{what}: {:?}", b.down);
            for end in [&a, &b] {
                let back = end.of(WorkKind::Recv);
                assert_eq!(back.len(), 3, "{what}");
                assert!(back.iter().all(|c| c.result.is_err() && c.buf.is_some()), "{what}");
            }
            // The end is permanent.
            let refused = a.qp.post(vec![send(1, b"")]).unwrap_err();
            assert_eq!((refused.why, refused.chain.len()), (Refused::Down, 1), "{what}");
            let Some(Region::Writable(mut m)) = b.qp.release(writable.handle) else { panic!() };
            assert!(m.whole_mut().iter().all(|x| *x == 0), "{what}");
            drop((a, b));
            nobody_holds(&mine);
        });
    }
}

pub fn a_send_needs_a_receive_that_holds_it(make: Maker) {
    for recvs in [0, 1] {
        run(async {
            let (mut a, mut b) = connected(&*make()).await;
            if recvs == 1 {
                b.recv(1, BufMut::heap(100));
            }
            a.qp.post(vec![send(1, &[1; 101]), send(2, b"behind")]).unwrap();
            until_down(&mut a, &mut b).await;
            assert!(b.knows_the_rule(), "{:?}", b.down);
            assert_eq!(b.done.len(), recvs);
            assert!(b.done.iter().all(|c| c.result.is_err() && c.buf.is_some()));
            assert_eq!(a.ids(false), [1, 2]);
        });
    }
}

pub fn refused_chains_come_back_whole(make: Maker) {
    run(async {
        let (mut a, mut b) = connected(&*make()).await;
        let limits = a.qp.limits();
        assert!(limits.sends_max >= 32 && limits.recvs_max >= 16);
        let too_many = (0..=limits.sends_max as u64).map(|i| send(i, b"")).collect();
        let refused = a.qp.post(too_many).unwrap_err();
        assert_eq!((refused.why, refused.chain.len()), (Refused::Full, limits.sends_max + 1));
        assert_eq!(refused.chain[7].id(), WorkId(7));
        let recv = |id| Work::Recv { id: WorkId(id), into: BufMut::heap(8) };
        let refused = a.qp.post((0..=limits.recvs_max as u64).map(recv).collect()).unwrap_err();
        assert_eq!((refused.why, refused.chain.len()), (Refused::Full, limits.recvs_max + 1));
        let region = RemoteSeg { handle: 1, len: 2, offset: 0 };
        let refused = a.qp.post(vec![send(1, b""), write(2, b"abc", region)]).unwrap_err();
        assert_eq!((refused.why, refused.chain.len()), (Refused::Invalid, 2));
        let read = Work::Read { id: WorkId(3), from: vec![region], into: BufMut::heap(1) };
        assert_eq!(a.qp.post(vec![read]).unwrap_err().why, Refused::Invalid);
        let pieces = vec![Buf::from_static(b"x"); limits.send_pieces_max + 1];
        let long = Work::Send { id: WorkId(4), from: pieces, invalidate: None };
        assert_eq!(a.qp.post(vec![long]).unwrap_err().why, Refused::Invalid);
        // No part of the chain was posted.
        b.recv(1, BufMut::heap(8));
        a.qp.post(vec![send(5, b"good")]).unwrap();
        both(&mut a, &mut b, |a, b| !a.done.is_empty() && !b.done.is_empty()).await;
        assert_eq!(a.ids(false), [5]);
        assert_eq!(b.done[0].buf.as_ref().unwrap().filled(), b"good");
    });
}

pub fn disconnect_sends_what_was_posted(make: Maker) {
    run(async {
        let (mut a, mut b) = connected(&*make()).await;
        let mine = pool(8);
        let region = b.register(Region::Writable(BufMut::heap(100_000)));
        b.recv(1, mine.try_get(64).unwrap());
        b.recv(2, mine.try_get(64).unwrap());
        a.recv(3, mine.try_get(64).unwrap());
        let data = bytes(100_000, 9);
        a.qp.post(vec![write(1, &data, part(region, 0, 100_000)), send(2, b"last")]).unwrap();
        a.qp.disconnect();
        until_down(&mut a, &mut b).await;
        assert_eq!(b.done[0].buf.as_ref().unwrap().filled(), b"last");
        assert_eq!(b.done[1].result, Err(WorkError::Flushed));
        let Some(Region::Writable(mut m)) = b.qp.release(region.handle) else { panic!() };
        assert!(m.whole_mut()[..100_000] == data);
        assert_eq!(a.of(WorkKind::Recv)[0].result, Err(WorkError::Flushed));
        assert_eq!(a.down.as_ref().unwrap().violation, None);
        assert_eq!(b.down.as_ref().unwrap().violation, None);
        drop((a, b));
        nobody_holds(&mine);
    });
}

/// A vanished connection returns all memory of both sides, including memory under a Read and in regions.
pub fn a_dropped_end_is_noticed(make: Maker) {
    run(async {
        let (mut a, mut b) = connected(&*make()).await;
        let mine: Pool = pool(8);
        a.register(Region::Writable(mine.try_get(4096).unwrap()));
        let mut full = mine.try_get(4096).unwrap();
        full.set_filled(4096);
        let readable = b.register(Region::Readable(full.freeze()));
        a.recv(1, mine.try_get(64).unwrap());
        b.recv(1, mine.try_get(64).unwrap());
        let into = mine.try_get(4096).unwrap();
        a.qp.post(vec![Work::Read { id: WorkId(2), from: vec![readable], into }]).unwrap();
        drop(b);
        poll_fn(|cx| {
            a.poll(cx);
            if a.down.is_some() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        assert_eq!(a.done.len(), 2);
        drop(a);
        nobody_holds(&mine);
    });
}

/// Data that was requested but did not arrive must not count as received.
pub fn a_read_that_was_cut_off_brings_nothing(make: Maker) {
    const LEN: usize = 64 << 10;
    for peer_breaks_a_rule in [false, true] {
        run(async {
            let (mut a, mut b) = connected(&*make()).await;
            let data = bytes(LEN, 3);
            let readable = b.register(Region::Readable(data.clone().into()));
            a.recv(1, BufMut::heap(16));
            let reads = (0..6).map(|i| {
                let mut into = BufMut::heap(LEN);
                into.whole_mut().fill(0xEE);
                let halves = [
                    part(readable, 0, LEN as u32 / 2),
                    part(readable, LEN as u64 / 2, LEN as u32 / 2),
                ];
                Work::Read { id: WorkId(10 + i), from: halves.to_vec(), into }
            });
            a.qp.post(reads.collect()).unwrap();
            poll_fn(|cx| Poll::Ready(a.poll(cx))).await;
            if peer_breaks_a_rule {
                b.qp.post(vec![send(2, &[0; 17])]).unwrap();
                until_down(&mut a, &mut b).await;
            } else {
                drop(b);
                poll_fn(|cx| {
                    a.poll(cx);
                    if a.down.is_some() { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
            }
            let back = a.of(WorkKind::Read);
            assert_eq!(back.len(), 6);
            for c in back.into_iter().filter(|c| c.result.is_ok()) {
                assert!(
                    c.buf.as_ref().unwrap().filled() == data,
                    "{:?} came without its data",
                    c.id
                );
            }
        });
    }
}

pub fn refusals_reach_the_one_who_dialled(make: Maker) {
    run(async {
        let provider = make();
        let mut listener = provider.listen(crate::listen_at()).await.unwrap();
        let at = listener.local_addr();
        let reject = async {
            let mut incoming = listener.accept().await.unwrap();
            incoming.request().await.unwrap();
            incoming.reject(b"no"[..].into()).await;
        };
        let ((), dialled) = tokio::join!(reject, provider.connect(at, params(b"")));
        assert_eq!(dialled.err().unwrap().kind(), std::io::ErrorKind::ConnectionRefused);
        drop(listener);
        assert!(provider.connect(at, params(b"")).await.is_err());
    });
}

pub fn tables_have_limits(make: Maker) {
    run(async {
        let (mut a, _b) = connected(&*make()).await;
        let max = a.qp.limits().regions_max;
        let data = Buf::from(vec![0u8; 8]);
        let mut handles = std::collections::HashSet::new();
        for _ in 0..max {
            handles.insert(a.register(Region::Readable(data.clone())).handle);
        }
        assert_eq!(handles.len(), max, "each has its own handle");
        let (why, region) = a.qp.register(Region::Readable(data.clone())).unwrap_err();
        assert_eq!(why, Refused::Full);
        assert!(matches!(region, Region::Readable(_)));
        let any = *handles.iter().next().unwrap();
        a.qp.release(any).unwrap();
        a.register(Region::Readable(data));
    });
}

/// Generates all tests for the providers that `$make` creates.
#[macro_export]
macro_rules! contract {
    ($provider:ident, $make:expr, [$($test:ident),* $(,)?]) => {
        mod $provider {
            use std::sync::Arc;
            $(#[test] fn $test() { $crate::harness::$test(|| Arc::new($make)); })*
        }
    };
    ($provider:ident, $make:expr) => {
        contract!($provider, $make, [
            sends_land_in_order,
            writes_are_there_when_the_send_is,
            reads_append_all_their_segments,
            both_directions_at_once,
            invalidated_memory_is_closed,
            memory_is_guarded,
            a_send_needs_a_receive_that_holds_it,
            refused_chains_come_back_whole,
            disconnect_sends_what_was_posted,
            a_dropped_end_is_noticed,
            a_read_that_was_cut_off_brings_nothing,
            refusals_reach_the_one_who_dialled,
            tables_have_limits,
        ]);
    };
}
