use std::io::{Read, Write};
use std::os::unix::net::UnixStream as Blocking;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use iobuf::{Buf, Pool, PoolLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

use super::*;
use crate::channel::{Handle, Info, ReadChunkData, Request, Transport};
use crate::watchdog;

/// Duration of one request.
const REQUEST: Duration = Duration::from_millis(5);
/// Limit for serving another client, on a machine busy with other tests. Turns of 64 such requests took longer.
const SOON: Duration = Duration::from_secs(2);

/// A peer that always has another request.
struct Endless(Arc<Info>);

impl Endless {
    fn new() -> Self {
        let at = ([127, 0, 0, 1], 1).into();
        let pool = Pool::new(PoolLimits { buffers_max: [1; 3] });
        Self(Arc::new(Info::new(at, at, Transport::Tcp, pool)))
    }
}

impl Channel for Endless {
    fn info(&self) -> &Arc<Info> {
        &self.0
    }

    fn poll_recv(&mut self, _cx: &mut Context<'_>) -> Poll<Result<Request, ChannelError>> {
        let (body, read_chunks) = (Buf::empty(), Vec::new());
        Poll::Ready(Ok(Request { body, read_chunks, reply_to: ReplyTo(0) }))
    }

    fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
        Poll::Ready(Ok(()))
    }

    fn reply(&mut self, _to: ReplyTo, _reply: Option<Reply>) {}

    fn handle(&self) -> Handle {
        Handle::detached()
    }

    fn shutdown(&mut self) {}
}

fn work(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {}
}

/// Each request blocks the thread for its duration.
struct InOnePiece;

impl Service for InOnePiece {
    fn call(&self, _: Buf, _: Vec<ReadChunkData>) -> BoxFuture<'static, Option<Reply>> {
        Box::pin(async {
            work(REQUEST);
            None
        })
    }
}

/// Each request is long, and pauses in between.
struct Pausing;

impl Service for Pausing {
    fn call(&self, _: Buf, _: Vec<ReadChunkData>) -> BoxFuture<'static, Option<Reply>> {
        Box::pin(async {
            for _ in 0..40 {
                work(REQUEST);
                turn::pause().await;
            }
            None
        })
    }
}

/// Each request waits, and none is answered.
struct Waiting;

impl Service for Waiting {
    fn call(&self, _: Buf, _: Vec<ReadChunkData>) -> BoxFuture<'static, Option<Reply>> {
        STARTED.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::pending())
    }
}

/// Requests that were started.
static STARTED: AtomicUsize = AtomicUsize::new(0);

/// A request that names itself for the watchdog, and uses too much processor time.
struct Named;

impl Service for Named {
    fn call(&self, _: Buf, _: Vec<ReadChunkData>) -> BoxFuture<'static, Option<Reply>> {
        Box::pin(async {
            watchdog::operation("the long one");
            watchdog::spin(watchdog::HELD_MAX);
            None
        })
    }
}

/// Counts the parts of its requests, each of which takes a turn, after all have begun.
struct Counting {
    parts: Arc<AtomicUsize>,
    begin: Arc<Semaphore>,
}

impl Service for Counting {
    fn call(&self, _: Buf, _: Vec<ReadChunkData>) -> BoxFuture<'static, Option<Reply>> {
        let (parts, begin) = (self.parts.clone(), self.begin.clone());
        Box::pin(async move {
            begin.acquire().await.unwrap().forget();
            for _ in 0..4 {
                parts.fetch_add(1, Ordering::Relaxed);
                work(crate::limits::TURN_MAX);
                turn::pause().await;
            }
            None
        })
    }
}

/// Requests that wait for their next turn take nothing of this one.
#[test]
fn turn_has_one_part_however_many_requests_are_in_work() {
    let (parts, begin) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let service = Arc::new(Counting { parts: parts.clone(), begin: begin.clone() });
    let (channel, in_work) = (Box::new(Endless::new()), FuturesUnordered::new());
    let mut serving = Serving { channel, service, in_work, is_full: false };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut polls, mut most) = (0, 0);
    runtime.block_on(poll_fn(|cx| {
        let before = parts.load(Ordering::Relaxed);
        assert!(serving.poll(cx).is_pending());
        most = most.max(parts.load(Ordering::Relaxed) - before);
        polls += 1;
        if serving.in_work.len() == crate::limits::REQUESTS_IN_WORK_MAX {
            begin.add_permits(1000);
        }
        if polls < 300 { Poll::Pending } else { Poll::Ready(()) }
    }));
    assert_eq!(most, 1);
}

/// The longest of ten replies to a client while these peers of this service always have another request.
fn longest_beside(peers: usize, service: Arc<dyn Service>) -> Duration {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (mut near, far) = Blocking::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    runtime.spawn(async move {
        let mut far = UnixStream::from_std(far).unwrap();
        while let Ok(byte) = far.read_u8().await {
            far.write_u8(byte).await.unwrap();
        }
    });
    for _ in 0..peers {
        runtime.spawn(serve(Box::new(Endless::new()), service.clone()));
    }
    let mut longest = Duration::ZERO;
    for _ in 0..10 {
        let asked = Instant::now();
        near.write_all(b"x").unwrap();
        near.read_exact(&mut [0]).unwrap();
        longest = longest.max(asked.elapsed());
    }
    runtime.shutdown_background();
    longest
}

#[test]
fn slow_requests_do_not_delay_others() {
    let longest = longest_beside(4, Arc::new(InOnePiece));
    assert!(longest < SOON, "{longest:?}");
}

#[test]
fn requests_beyond_the_limit_wait() {
    let longest = longest_beside(1, Arc::new(Waiting));
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    assert_eq!(STARTED.load(Ordering::Relaxed), limits::REQUESTS_IN_WORK_MAX);
    let met = count::limits_met();
    assert!(met.iter().any(|(limit, n)| *limit == limits::REQUESTS_IN_WORK && *n > 0));
}

#[test]
fn paused_long_requests_delay_no_others() {
    let longest = longest_beside(4, Arc::new(Pausing));
    assert!(longest < SOON, "{longest:?}");
}

#[test]
fn watchdog_names_the_operation() {
    watchdog::turn_on();
    let is_named = || watchdog::slow().iter().any(|(name, _)| *name == "the long one");
    while !is_named() {
        longest_beside(1, Arc::new(Named));
    }
}
