//! A server behind an SMB Direct acceptor, and an initiator whose messages the test builds itself.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use iobuf::{Buf, BufMut, Pool, PoolLimits};
use rdma_transport::channel::{
    BoxFuture, Channel, ChannelError, Handle, Info, Payload, PayloadLocator, Place, ReadChunkData,
    RemoteSeg, Reply, Service, Transport,
};
use rdma_transport::iwarp::{Iwarp, IwarpConfig};
use rdma_transport::loopback;
use rdma_transport::serve::serve;
use rdma_transport::smbdirect::wire::{
    DATA_OFFSET, DataTransfer, NegotiateRequest, NegotiateResponse, VERSION,
};
use rdma_transport::smbdirect::{SmbDirectCaller, SmbDirectChannel};
use rdma_transport::verbs::{
    Completion, Down, Provider, QueuePair, Refused, Region, Work, WorkId, WorkKind,
};
use tokio::task::JoinHandle;

pub(crate) use crate::common::{bytes, run};

pub(crate) fn info(pool: &Pool) -> Arc<Info> {
    let nowhere = "127.0.0.1:0".parse().unwrap();
    Arc::new(Info::new(nowhere, nowhere, Transport::Rdma("loopback"), pool.clone()))
}

/// A request of the test protocol.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask {
    /// 0: echo the rest. 1: `len` bytes, into `segs` if present. 2: pull `segs` and return them. 3: push the rest, then echo it. 4:
    /// no reply.
    pub(crate) op: u8,
    pub(crate) invalidate: Option<u32>,
    pub(crate) segs: Vec<RemoteSeg>,
    pub(crate) len: u32,
    pub(crate) rest: Vec<u8>,
}

impl Ask {
    pub(crate) fn echo(rest: Vec<u8>) -> Self {
        Self { rest, ..Self::default() }
    }

    pub(crate) fn read(len: usize, segs: Vec<RemoteSeg>) -> Self {
        Self { op: 1, len: len as u32, segs, ..Self::default() }
    }

    pub(crate) fn pull(segs: Vec<RemoteSeg>) -> Self {
        Self { op: 2, segs, ..Self::default() }
    }

    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut out = vec![self.op, u8::from(self.invalidate.is_some()), 0, 0];
        out.extend(self.invalidate.unwrap_or(0).to_le_bytes());
        out.extend(self.len.to_le_bytes());
        out.extend((self.segs.len() as u32).to_le_bytes());
        for seg in &self.segs {
            out.extend(seg.offset.to_le_bytes());
            out.extend(seg.handle.to_le_bytes());
            out.extend(seg.len.to_le_bytes());
        }
        out.extend(&self.rest);
        out
    }

    fn parse(b: &[u8]) -> Self {
        let word = |at: usize| u32::from_le_bytes(b[at..at + 4].try_into().unwrap());
        let seg = |at: usize| RemoteSeg {
            offset: u64::from_le_bytes(b[at..at + 8].try_into().unwrap()),
            handle: word(at + 8),
            len: word(at + 12),
        };
        let n = word(12) as usize;
        Self {
            op: b[0],
            invalidate: (b[1] == 1).then(|| word(4)),
            len: word(8),
            segs: (0..n).map(|i| seg(16 + 16 * i)).collect(),
            rest: b[16 + 16 * n..].to_vec(),
        }
    }
}

/// The bytes returned by op 1.
pub(crate) fn content(len: usize) -> Vec<u8> {
    bytes(len, 0x3c)
}

/// Finds what an echo is to send back. One whose third byte is set is sealed.
struct Locate;

impl PayloadLocator for Locate {
    fn bulk(&self, head: &[u8], total: usize) -> Option<(usize, usize)> {
        (head.len() >= 16 && head[0] == 0).then(|| (16, total - 16))
    }

    fn is_sealed(&self, head: &[u8]) -> bool {
        head[2] != 0
    }
}

/// Executes [`Ask`].
#[derive(Default)]
pub(crate) struct Serving {
    handle: OnceLock<Handle>,
}

impl Service for Serving {
    fn call(&self, body: Buf, pulled: Vec<ReadChunkData>) -> BoxFuture<'static, Option<Reply>> {
        if pulled.iter().any(ReadChunkData::is_missing) {
            return Box::pin(async { Some(Reply::of(b"missing".to_vec())) });
        }
        let handle = self.handle.get().unwrap().clone();
        Box::pin(async move {
            let ask = Ask::parse(&body);
            let mut reply = Reply { invalidate: ask.invalidate, ..Reply::default() };
            let inline = |data| Payload { at: 0, data, pages: None, pad: 0, place: Place::Inline };
            match ask.op {
                0 => reply.head = ask.rest,
                1 if ask.segs.is_empty() => reply.head = content(ask.len as usize),
                1 => {
                    reply.head = b"read".to_vec();
                    let data = content(ask.len as usize);
                    let data = data.chunks(1 << 20).map(|c| Buf::from(c.to_vec())).collect();
                    let place = Place::Remote(ask.segs);
                    reply.payloads.push(Payload { at: 4, data, pages: None, pad: 0, place });
                }
                2 => reply.payloads.push(inline(handle.pull(ask.segs).await.ok()?)),
                3 => {
                    handle.push(Reply::of(ask.rest.clone())).await.ok()?;
                    reply.head = ask.rest;
                }
                _ => return None,
            }
            Some(reply)
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Loopback,
    Iwarp,
}

/// A task that serves one connection.
pub(crate) struct Served {
    pub(crate) end: JoinHandle<ChannelError>,
    pub(crate) info: Arc<Info>,
    pub(crate) handle: Handle,
    pub(crate) recvs: Pool,
    pub(crate) payload: Pool,
}

/// Creates both ends of a connection.
pub(crate) async fn queue_pairs(over: Over) -> (Box<dyn QueuePair>, Box<dyn QueuePair>) {
    let (mine, theirs) = (SmbDirectCaller::connect_params(), SmbDirectChannel::accept_params(&[]));
    match over {
        Over::Loopback => {
            let [client, server] = loopback::pair(&mine, &theirs);
            (client, server)
        }
        Over::Iwarp => {
            let iwarp = Iwarp::new(IwarpConfig::default());
            let mut listener = iwarp.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
            let at = listener.local_addr();
            let accept = async {
                let mut incoming = listener.accept().await.unwrap();
                let private = incoming.request().await.unwrap();
                let params = SmbDirectChannel::accept_params(&private);
                incoming.accept(params).await.unwrap()
            };
            let (server, client) = tokio::join!(accept, iwarp.connect(at, mine));
            (client.unwrap().qp, server.qp)
        }
    }
}

pub(crate) fn serve_on(qp: Box<dyn QueuePair>, payload: Pool) -> Served {
    let info = info(&payload);
    serve_as(qp, info, payload)
}

pub(crate) fn serve_as(qp: Box<dyn QueuePair>, info: Arc<Info>, payload: Pool) -> Served {
    let recvs = Pool::new(PoolLimits { buffers_max: [300, 1, 1] });
    let channel = SmbDirectChannel::new(qp, info.clone(), recvs.clone()).unwrap();
    let channel = channel.locating(Arc::new(Locate));
    let handle = channel.handle();
    let service = Serving::default();
    service.handle.set(handle.clone()).unwrap();
    let end = tokio::spawn(serve(Box::new(channel), Arc::new(service)));
    Served { end, info, handle, recvs, payload }
}

pub(crate) async fn server(over: Over) -> (Raw, Served) {
    let (client, server) = queue_pairs(over).await;
    (Raw::new(client), serve_on(server, crate::common::pool(64)))
}

/// An initiator controlled by the test.
pub(crate) struct Raw {
    pub(crate) qp: Box<dyn QueuePair>,
    inbox: VecDeque<(Vec<u8>, Option<u32>)>,
    posted: usize,
    pub(crate) invalidated: Vec<u32>,
    down: Option<Down>,
    pub(crate) agreed: Option<NegotiateResponse>,
    /// Credits requested by every message.
    wants: u16,
    /// Messages that may be sent, and fragments received without a new grant.
    pub(crate) credits: usize,
    owed: u16,
}

pub(crate) const REQUEST: NegotiateRequest = NegotiateRequest {
    min_version: VERSION,
    max_version: VERSION,
    credits_requested: 10,
    preferred_send_size: 1024,
    max_receive_size: 1024,
    max_fragmented_size: 131_072,
};

/// A received message.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    pub(crate) header: DataTransfer,
    pub(crate) data: Vec<u8>,
    /// Bytes of the whole message.
    pub(crate) len: usize,
}

impl Raw {
    pub(crate) fn new(qp: Box<dyn QueuePair>) -> Self {
        Self {
            qp,
            inbox: VecDeque::new(),
            posted: 0,
            invalidated: Vec::new(),
            down: None,
            agreed: None,
            wants: 10,
            credits: 0,
            owed: 0,
        }
    }

    /// Posts Receives, as many as fit of `n`; none on a closed connection.
    pub(crate) fn recvs(&mut self, n: usize) -> u16 {
        let n = n.min(200_usize.saturating_sub(self.posted));
        let recv = |_| Work::Recv { id: WorkId(0), into: BufMut::heap(8192) };
        if let Err(r) = self.qp.post((0..n).map(recv).collect()) {
            assert_eq!(r.why, Refused::Down);
        }
        self.posted += n;
        n as u16
    }

    fn take(&mut self, out: Vec<Completion>) -> usize {
        let mut sent = 0;
        for done in out {
            match (done.kind, done.result, done.buf) {
                (WorkKind::Recv, Ok(_), Some(buf)) => {
                    self.posted -= 1;
                    self.inbox.push_back((buf.filled().to_vec(), done.invalidated));
                }
                (WorkKind::Send, _, _) => sent += 1,
                _ => {}
            }
        }
        sent
    }

    /// Sends one raw message, and waits until it was sent or the connection has ended.
    pub(crate) async fn send(&mut self, message: Vec<u8>) {
        let from = vec![Buf::from(message)];
        if self.qp.post(vec![Work::Send { id: WorkId(0), from, invalidate: None }]).is_err() {
            return;
        }
        poll_fn(|cx| {
            loop {
                let mut out = Vec::new();
                match self.qp.poll(cx, &mut out) {
                    Poll::Ready(Ok(())) if self.take(out) > 0 => return Poll::Ready(()),
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(down)) => {
                        self.down = Some(down);
                        return Poll::Ready(());
                    }
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
    }

    /// The next message; `None` at the end of the connection.
    pub(crate) async fn recv(&mut self) -> Option<Vec<u8>> {
        poll_fn(|cx| {
            loop {
                if let Some((message, invalidated)) = self.inbox.pop_front() {
                    self.invalidated.extend(invalidated);
                    return Poll::Ready(Some(message));
                }
                if self.down.is_some() {
                    return Poll::Ready(None);
                }
                let mut out = Vec::new();
                match self.qp.poll(cx, &mut out) {
                    Poll::Ready(Ok(())) => {
                        self.take(out);
                    }
                    Poll::Ready(Err(down)) => self.down = Some(down),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }

    /// True if no message arrives in this time.
    pub(crate) async fn is_silent(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.recv()).await.is_err()
    }

    /// True if the connection ends before another message arrives.
    pub(crate) async fn has_ended(&mut self) -> bool {
        self.recv().await.is_none()
    }

    /// Negotiates; `None` if the connection ends instead.
    pub(crate) async fn negotiate(&mut self, asked: NegotiateRequest) -> Option<NegotiateResponse> {
        self.recvs(1);
        self.wants = asked.credits_requested.max(1);
        self.send(asked.emit()).await;
        let answer = self.recv().await?;
        self.agreed = Some(NegotiateResponse::parse(&answer).unwrap().1);
        self.credits = self.agreed.map_or(0, |a| a.credits_granted.into());
        self.agreed
    }

    /// Sends one fragment that grants the posted Receives.
    pub(crate) async fn fragment(&mut self, granted: u16, remaining: usize, data: &[u8]) {
        let credits_granted = self.recvs(granted.into());
        let header = DataTransfer {
            credits_requested: self.wants,
            credits_granted,
            remaining: remaining as u32,
            offset: DATA_OFFSET as u32,
            len: data.len() as u32,
            ..DataTransfer::default()
        };
        self.message(header, data).await;
    }

    /// Sends a raw header and the data after it.
    pub(crate) async fn message(&mut self, header: DataTransfer, data: &[u8]) {
        self.credits = self.credits.saturating_sub(1);
        let mut message = header.emit();
        message.resize(DATA_OFFSET, 0);
        message.extend_from_slice(data);
        self.send(message).await;
    }

    /// The next data transfer message.
    pub(crate) async fn data(&mut self) -> Option<Data> {
        let message = self.recv().await?;
        let header = DataTransfer::parse(&message, 8192, 1 << 24).unwrap();
        assert!(header.credits_requested > 0);
        self.credits += usize::from(header.credits_granted);
        self.owed += 1;
        let data = message[header.offset as usize..][..header.len as usize].to_vec();
        Some(Data { header, data, len: message.len() })
    }

    /// The next whole message with data; grants one credit for each fragment.
    pub(crate) async fn answer(&mut self) -> Option<Vec<u8>> {
        let mut whole = Vec::new();
        loop {
            let d = self.data().await?;
            whole.extend_from_slice(&d.data);
            if d.header.len > 0 && d.header.remaining == 0 {
                return Some(whole);
            }
            if self.credits > 0 {
                let owed = std::mem::take(&mut self.owed);
                self.grant(owed).await;
            }
        }
    }

    /// Sends an empty message that grants credits.
    pub(crate) async fn grant(&mut self, granted: u16) {
        let credits_granted = self.recvs(granted.into());
        let header = DataTransfer {
            credits_requested: self.wants,
            credits_granted,
            ..DataTransfer::default()
        };
        self.credits = self.credits.saturating_sub(1);
        self.send(header.emit()).await;
    }

    /// Sends a message in fragments of these sizes, cyclically, each of which grants one credit.
    pub(crate) async fn fragments(&mut self, message: &[u8], sizes: &[usize]) {
        let (mut rest, mut sizes) = (message, sizes.iter().cycle());
        while !rest.is_empty() {
            if self.credits <= 1 {
                // Only grants arrive between fragments.
                let Some(grant) = self.data().await else { return };
                assert!(grant.data.is_empty());
                continue;
            }
            let (now, later) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
            self.fragment(1, later.len(), now).await;
            rest = later;
        }
    }

    pub(crate) fn writable(&mut self, len: usize) -> RemoteSeg {
        let mut seg = self.qp.register(Region::Writable(BufMut::heap(len))).unwrap();
        seg.len = len as u32;
        seg
    }

    pub(crate) fn readable(&mut self, data: &[u8]) -> RemoteSeg {
        self.qp.register(Region::Readable(Buf::from(data.to_vec()))).unwrap()
    }

    pub(crate) fn written(&mut self, seg: RemoteSeg) -> Vec<u8> {
        match self.qp.release(seg.handle).unwrap() {
            Region::Writable(mut b) => b.whole_mut()[..seg.len as usize].to_vec(),
            Region::Readable(_) => panic!("it was writable"),
        }
    }
}

/// Checks that the server ended because its peer violated this rule.
pub(crate) async fn ended_by(served: Served, rule: &str) {
    match served.end.await.unwrap() {
        ChannelError::Violation(name, detail) => assert_eq!(name, rule, "{detail}"),
        other => panic!("{other}"),
    }
    crate::common::nobody_holds(&served.recvs);
    crate::common::nobody_holds(&served.payload);
}
