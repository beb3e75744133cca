//! Tests against rdma-core's `rping`. Its protocol: the client advertises memory that the server fetches by RDMA Read, then memory
//! that the server fills by RDMA Write; each advertisement and each acknowledgement is a Send of an address, a key and a length, in
//! big-endian order.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::task::Poll;
use std::time::{Duration, Instant};

use iobuf::{Buf, BufMut};
use rdma_transport::verbs::{
    Completion, ConnectParams, Connected, Provider, QueuePair, Region, RemoteSeg, Work, WorkId,
    WorkKind,
};

use crate::common::run;
use crate::{listen_at, verbs};

const ADVERT: usize = 16;
const PINGS: usize = 5;
/// More than one packet on every path.
const SIZE: u32 = 60_000;
/// The default port of `rping`.
const PORT: u16 = 7174;

fn rping(role: &str, at: SocketAddr) -> Child {
    let (ip, port) = (at.ip().to_string(), at.port().to_string());
    let (pings, size) = (PINGS.to_string(), SIZE.to_string());
    // `-V`: the client compares the returned data with the original.
    Command::new("timeout")
        .args(["20", "rping", role, "-V", "-a", &ip, "-p", &port, "-C", &pings, "-S", &size])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("rping, of Debian's rdmacm-utils")
}

fn ends_well(rping: Child) {
    let done = rping.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && !said.contains("mismatch"), "{}: {said}", done.status);
}

fn params() -> ConnectParams {
    ConnectParams {
        private_data: b"".as_slice().into(),
        recvs: 4,
        sends: 8,
        reads_out: 1,
        reads_in: 1,
        recv_size: ADVERT,
    }
}

struct End {
    qp: Box<dyn QueuePair>,
    done: Vec<Completion>,
}

impl End {
    fn new(c: Connected) -> Self {
        let mut end = Self { qp: c.qp, done: Vec::new() };
        end.expect();
        end
    }

    fn expect(&mut self) {
        self.qp.post(vec![Work::Recv { id: WorkId(0), into: BufMut::heap(ADVERT) }]).unwrap();
    }

    async fn next(&mut self, kind: WorkKind) -> Completion {
        poll_fn(|cx| {
            loop {
                if let Some(i) = self.done.iter().position(|c| c.kind == kind) {
                    return Poll::Ready(self.done.remove(i));
                }
                match self.qp.poll(cx, &mut self.done) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(down)) => panic!("{down}, before {kind:?}"),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }

    async fn finish(&mut self, work: Work, kind: WorkKind) -> Completion {
        self.qp.post(vec![work]).unwrap();
        let done = self.next(kind).await;
        assert!(done.result.is_ok(), "{done:?}");
        done
    }

    async fn hear(&mut self) -> RemoteSeg {
        let heard = self.next(WorkKind::Recv).await;
        assert_eq!(heard.result, Ok(ADVERT));
        assert!(self.done.iter().all(|sent| sent.result.is_ok()), "{:?}", self.done);
        self.expect();
        let buf = heard.buf.unwrap();
        let (offset, rest) = buf.filled().split_first_chunk::<8>().unwrap();
        let (handle, len) = rest.split_first_chunk::<4>().unwrap();
        RemoteSeg {
            handle: u32::from_be_bytes(*handle),
            len: u32::from_be_bytes(len.try_into().unwrap()),
            offset: u64::from_be_bytes(*offset),
        }
    }

    /// Does not wait for its completion: a peer that has received the last message may disconnect before the device has its
    /// acknowledgement, and the Send is then flushed. `hear` checks all completions.
    fn say(&mut self, what: RemoteSeg) {
        let mut advert = what.offset.to_be_bytes().to_vec();
        advert.extend(what.handle.to_be_bytes());
        advert.extend(what.len.to_be_bytes());
        let work = Work::Send { id: WorkId(0), from: vec![advert.into()], invalidate: None };
        self.qp.post(vec![work]).unwrap();
    }

    async fn until_down(&mut self) {
        poll_fn(|cx| {
            while let Poll::Ready(moved) = self.qp.poll(cx, &mut self.done) {
                if moved.is_err() {
                    return Poll::Ready(());
                }
            }
            Poll::Pending
        })
        .await;
    }
}

#[test]
fn rping_is_served() {
    run(async {
        let provider = verbs();
        let mut listener = provider.listen(listen_at()).await.unwrap();
        let client = rping("-c", listener.local_addr());
        let incoming = listener.accept().await.unwrap();
        let mut end = End::new(incoming.accept(params()).await.unwrap());
        for _ in 0..PINGS {
            let from = end.hear().await;
            assert_eq!(from.len, SIZE);
            let into = BufMut::heap(from.len as usize);
            let read = Work::Read { id: WorkId(0), from: vec![from], into };
            let fetched = end.finish(read, WorkKind::Read).await.buf.unwrap();
            assert!(fetched.filled().starts_with(b"rdma-ping-"));
            end.say(from);
            let to = end.hear().await;
            let write = Work::Write { id: WorkId(0), from: fetched.freeze(), to };
            end.finish(write, WorkKind::Write).await;
            end.say(to);
        }
        end.until_down().await;
        drop(end);
        ends_well(client);
    });
}

#[test]
fn rping_serves_us() {
    run(async {
        let at = (listen_at().ip(), PORT).into();
        let server = rping("-s", at);
        let provider = verbs();
        // `rping` listens some time after its start, without reporting that.
        let limit = Instant::now() + Duration::from_secs(10);
        let connected = loop {
            match provider.connect(at, params()).await {
                Ok(connected) => break connected,
                Err(e) => assert!(Instant::now() < limit, "{e}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let mut end = End::new(connected);
        for n in 0..PINGS {
            // `rping` returns a C string with its terminator.
            let mut text = vec![b'a' + u8::try_from(n).unwrap(); SIZE as usize];
            text[SIZE as usize - 1] = 0;
            let from = end.qp.register(Region::Readable(Buf::from(text.clone()))).unwrap();
            end.say(from);
            end.hear().await;
            let room = Region::Writable(BufMut::heap(text.len()));
            let to = end.qp.register(room).unwrap();
            end.say(to);
            end.hear().await;
            assert!(end.qp.release(from.handle).is_some());
            let Some(Region::Writable(mut came)) = end.qp.release(to.handle) else { panic!() };
            came.set_filled(text.len());
            assert!(came.filled() == text, "ping {n} came back changed");
        }
        end.qp.disconnect();
        end.until_down().await;
        drop(end);
        ends_well(server);
    });
}
