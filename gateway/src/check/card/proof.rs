//! Proves that a provider places data: one RDMA Write to this host itself.

use std::io::{self, Error};
use std::net::IpAddr;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use iobuf::{Buf, BufMut};
use rdma_transport::verbs::{
    Completion, ConnectParams, Provider, QueuePair, Region, RemoteSeg, Work, WorkId, WorkKind,
};

/// Limit of the whole attempt.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes of the Write.
const LEN: usize = 1 << 20;

/// Connects the provider to itself at this address and transfers [`LEN`] bytes; returns the time that it took.
pub(super) async fn write_once(provider: &dyn Provider, at: IpAddr) -> io::Result<Duration> {
    let began = Instant::now();
    match tokio::time::timeout(TIME_MAX, attempt(provider, at)).await {
        Ok(done) => done.map(|()| began.elapsed()),
        Err(_) => Err(Error::new(
            io::ErrorKind::TimedOut,
            format!("no result after {} s", TIME_MAX.as_secs()),
        )),
    }
}

async fn attempt(provider: &dyn Provider, at: IpAddr) -> io::Result<()> {
    let mut listener = provider.listen((at, 0).into()).await?;
    let to = listener.local_addr();
    let params = || ConnectParams {
        private_data: Default::default(),
        recvs: 4,
        sends: 4,
        reads_out: 1,
        reads_in: 1,
        recv_size: 64,
    };
    let accept = async {
        let mut incoming = listener.accept().await?;
        incoming.request().await?;
        incoming.accept(params()).await
    };
    let (client, server) = tokio::try_join!(provider.connect(to, params()), accept)?;
    let mut ends = Ends { client: client.qp, server: server.qp, to: None };
    let region = ends.begin()?;
    std::future::poll_fn(|cx| ends.poll(cx)).await?;
    let Some(Region::Writable(mut placed)) = ends.client.release(region.handle) else {
        return Err(Error::other("the region is lost"));
    };
    let is_same = placed.whole_mut()[..LEN] == pattern()[..];
    ends.client.disconnect();
    ends.server.disconnect();
    if is_same { Ok(()) } else { Err(Error::other("the memory has other bytes than were written")) }
}

/// Bytes of which each page differs.
fn pattern() -> Vec<u8> {
    (0..LEN).map(|i| u8::try_from((i * 31 + i / 4093) % 251).unwrap_or(0)).collect()
}

/// Both ends of the connection.
struct Ends {
    client: Box<dyn QueuePair>,
    server: Box<dyn QueuePair>,
    /// Where the server writes.
    to: Option<RemoteSeg>,
}

impl Ends {
    /// Posts the client's work: its Send tells the server that the region can be written.
    fn begin(&mut self) -> io::Result<RemoteSeg> {
        let full = |_| Error::other("the queue pair takes no work");
        let recv = || Work::Recv { id: WorkId(1), into: BufMut::heap(64) };
        let region = self.client.register(Region::Writable(BufMut::heap(LEN)));
        let region = region.map_err(|_| Error::other("the device registers no memory"))?;
        self.server.post(vec![recv()]).map_err(full)?;
        let hello = Work::Send { id: WorkId(2), from: vec![Buf::from(vec![1])], invalidate: None };
        self.client.post(vec![recv(), hello]).map_err(full)?;
        self.to = Some(region);
        Ok(region)
    }

    /// Ready when the client has received the Send that follows the Write.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut out = Vec::new();
            let at_server = self.server.poll(cx, &mut out);
            let is_asked = received(&out)?;
            if is_asked && let Some(to) = self.to.take() {
                let write = Work::Write { id: WorkId(3), from: Buf::from(pattern()), to };
                let bye =
                    Work::Send { id: WorkId(4), from: vec![Buf::from(vec![2])], invalidate: None };
                let full = |_| Error::other("the queue pair takes no work");
                self.server.post(vec![write, bye]).map_err(full)?;
            }
            let progressed = !out.is_empty();
            out.clear();
            let at_client = self.client.poll(cx, &mut out);
            if received(&out)? {
                return Poll::Ready(Ok(()));
            }
            for end in [at_server, at_client] {
                if let Poll::Ready(Err(down)) = end {
                    return Poll::Ready(Err(Error::other(down)));
                }
            }
            if !progressed && out.is_empty() {
                return Poll::Pending;
            }
        }
    }
}

/// Returns true if a Receive completed.
fn received(all: &[Completion]) -> io::Result<bool> {
    for c in all {
        c.result.map_err(|e| Error::other(format!("{:?} failed: {e:?}", c.kind)))?;
    }
    Ok(all.iter().any(|c| c.kind == WorkKind::Recv))
}
