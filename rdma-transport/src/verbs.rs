//! The queue-pair contract that every RDMA provider serves: loopback, iWARP in user space, hardware verbs.
//!
//! *Operation.* A [`QueuePair`] belongs to one task. [`QueuePair::post`] queues work; [`QueuePair::poll`] moves bytes in
//! both directions and yields completions. Nothing happens between polls. Work requests of one queue pair complete in
//! the order in which they were posted, Receives among themselves, everything else among itself; so the Send at the
//! end of a chain proves the Writes before it.
//!
//! *Memory.* A work request owns its memory until its completion gives it back, also when it fails, is flushed or is
//! refused. Memory that the peer may touch is owned by the queue pair between [`QueuePair::register`] and
//! [`QueuePair::release`].
//!
//! *Errors.* The first error ends the connection: whatever was posted comes back with [`WorkError::Flushed`], then
//! `poll` answers [`Down`]. A refused chain comes back whole in [`Rejected`].

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use bytes::Bytes;
use iobuf::{Buf, BufMut};
pub use wire::RemoteSeg;

/// A boxed future that may be sent to another thread.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Chosen by the one who posts; comes back in the completion. Not interpreted by providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkId(pub u64);

/// A work request. It owns its memory until its completion gives it back.
#[derive(Debug)]
pub enum Work {
    /// Room for one incoming Send; the message lands at the start of `into`.
    Recv {
        /// Comes back in the completion.
        id: WorkId,
        /// Where the message goes; its capacity is the largest message taken.
        into: BufMut,
    },
    /// One message to a Receive of the peer.
    Send {
        /// Comes back in the completion.
        id: WorkId,
        /// The message, in pieces.
        from: Vec<Buf>,
        /// Send with Invalidate of this handle of the peer.
        invalidate: Option<u32>,
    },
    /// RDMA Write of `from` to the start of `to`; `from` is at most `to.len` bytes.
    Write {
        /// Comes back in the completion.
        id: WorkId,
        /// The data.
        from: Buf,
        /// Where it goes.
        to: RemoteSeg,
    },
    /// RDMA Read of all of `from`, in order, appended to what `into` holds.
    Read {
        /// Comes back in the completion.
        id: WorkId,
        /// What to fetch; the sum of lengths fits the spare part of `into`.
        from: Vec<RemoteSeg>,
        /// Where it goes.
        into: BufMut,
    },
}

impl Work {
    /// The id it was posted with.
    pub fn id(&self) -> WorkId {
        match self {
            Self::Recv { id, .. }
            | Self::Send { id, .. }
            | Self::Write { id, .. }
            | Self::Read { id, .. } => *id,
        }
    }
}

/// Which kind of work a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// [`Work::Recv`]
    Recv,
    /// [`Work::Send`]
    Send,
    /// [`Work::Write`]
    Write,
    /// [`Work::Read`]
    Read,
}

/// A work request is over.
#[derive(Debug)]
pub struct Completion {
    /// As posted.
    pub id: WorkId,
    /// As posted.
    pub kind: WorkKind,
    /// Bytes moved.
    pub result: Result<usize, WorkError>,
    /// The buffer of a Receive or Read, filled as far as data came.
    pub buf: Option<BufMut>,
    /// The peer's Send asked for this handle of ours to be invalidated, which has been done; the region waits for
    /// [`QueuePair::release`]. Some devices do it without a word (siw's library).
    pub invalidated: Option<u32>,
}

/// Why one work request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkError {
    /// The connection ended before it was done.
    Flushed,
    /// The message did not fit the Receive, or the data did not fit the region.
    Length,
    /// The peer refused access to the region.
    RemoteAccess,
    /// The peer broke the transport's protocol.
    Protocol,
}

/// A chain that was not posted, with its memory.
#[derive(Debug)]
pub struct Rejected {
    pub why: Refused,
    /// The whole chain, untouched.
    pub chain: Vec<Work>,
}

/// Why a chain or a registration was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The queue or table is full; try again after completions.
    Full,
    /// The connection is down.
    Down,
    /// The request breaks a limit of this queue pair.
    Invalid,
}

/// The connection is over; everything posted has come back before this is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Down {
    /// One line for the log: who ended it and why.
    pub reason: String,
    /// The rule that the peer broke, by its stable name, if that was the reason and the provider was told: InfiniBand tells
    /// the side that broke it, and the other one only that it is over.
    pub violation: Option<&'static str>,
}

impl fmt::Display for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Down {}

/// What a queue pair can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Receives that may be posted at once.
    pub recvs_max: usize,
    /// Sends, Writes and Reads that may be posted at once.
    pub sends_max: usize,
    pub send_pieces_max: usize,
    /// RDMA Reads on the wire at once; more are queued by the provider.
    pub reads_in_flight_max: usize,
    /// Regions registered at once.
    pub regions_max: usize,
    /// Bytes of Sends and Writes that keep it busy: more than that need not be got ready before some have completed.
    pub backlog_useful: usize,
}

/// What the peer may do with a registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteAccess {
    /// RDMA Write into it.
    Write,
    /// RDMA Read from it.
    Read,
}

/// Memory that the peer may touch.
#[derive(Debug)]
pub enum Region {
    /// The peer may write anywhere in the capacity; `filled` says nothing, the protocol tells what came.
    Writable(BufMut),
    /// The peer may read it.
    Readable(Buf),
}

/// One reliable connection with one-sided operations. See the module's text for the rules.
pub trait QueuePair: Send {
    /// What this queue pair can do; fixed for its life.
    fn limits(&self) -> Limits;

    /// Queues a chain, all or nothing. It is put on the wire by [`QueuePair::poll`].
    fn post(&mut self, chain: Vec<Work>) -> Result<(), Rejected>;

    /// Moves bytes both ways and appends completions to `out`. Ready(Ok) when at least one was appended; Ready(Err)
    /// when the connection is over and no completion is left.
    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Vec<Completion>) -> Poll<Result<(), Down>>;

    /// Lets the peer touch this memory until it is released, invalidated, or the connection ends. The answer names the
    /// whole of it (capacity of a writable, length of a readable region).
    fn register(&mut self, region: Region) -> Result<RemoteSeg, (Refused, Region)>;

    /// Takes a region back. `None` if there is none of this handle.
    fn release(&mut self, handle: u32) -> Option<Region>;

    /// Ends the connection: posted work that can still be sent is sent, the rest is flushed.
    fn disconnect(&mut self);

    /// What the connection has moved so far.
    fn counters(&self) -> Counters;
}

/// Bytes and operations of one queue pair, from this side's point of view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sends made and their bytes.
    pub sends: u64,
    /// Bytes of Sends made.
    pub send_bytes: u64,
    /// Sends that carried an invalidation.
    pub sends_invalidate: u64,
    /// Sends received.
    pub recvs: u64,
    /// Bytes of Sends received.
    pub recv_bytes: u64,
    /// RDMA Writes made.
    pub writes: u64,
    /// Bytes of RDMA Writes made.
    pub write_bytes: u64,
    /// RDMA Reads made.
    pub reads: u64,
    /// Bytes of RDMA Reads made.
    pub read_bytes: u64,
}

/// What a connecting side asks for, and what an accepting side answers with.
#[derive(Clone, Debug)]
pub struct ConnectParams {
    /// Private data of the protocol above, without the transport's own part (MPA's IRD and ORD).
    pub private_data: Bytes,
    /// Receives that the protocol will keep posted; sizes the receive queue.
    pub recvs: usize,
    /// Sends, Writes and Reads that the protocol will have posted at most.
    pub sends: usize,
    /// RDMA Reads that this side wants to have on the wire at once.
    pub reads_out: u16,
    /// RDMA Reads of the peer that this side will answer at once.
    pub reads_in: u16,
    /// Largest message this side will receive by a Send, in bytes.
    pub recv_size: usize,
}

/// An accepted or dialled connection and the peer's private data.
pub struct Connected {
    /// The queue pair, ready for posts.
    pub qp: Box<dyn QueuePair>,
    /// What the peer sent with its request or answer. InfiniBand's fields are of fixed size: zeros may follow.
    pub private_data: Bytes,
    pub peer: SocketAddr,
    /// This side's address.
    pub local: SocketAddr,
}

/// An incoming connection that has not been answered.
pub trait Incoming: Send {
    /// The peer's address.
    fn peer(&self) -> SocketAddr;
    /// Reads the connection request and gives its private data. Bounded in time by the provider.
    fn request(&mut self) -> BoxFuture<'_, io::Result<Bytes>>;
    /// Answers it.
    fn accept(self: Box<Self>, params: ConnectParams) -> BoxFuture<'static, io::Result<Connected>>;
    /// Refuses it with private data.
    fn reject(self: Box<Self>, private_data: Bytes) -> BoxFuture<'static, ()>;
}

/// Waits for connections on one address.
pub trait Listener: Send {
    /// Where it listens.
    fn local_addr(&self) -> SocketAddr;
    /// The next connection. It does not wait for the peer's first bytes: that is [`Incoming::request`].
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Incoming>>>;
}

/// Makes queue pairs.
pub trait Provider: Send + Sync {
    /// Name in logs and in `status`: `iwarp`, `verbs`, `loopback`.
    fn name(&self) -> &'static str;
    /// Listens on an address.
    fn listen(&self, at: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>>;
    /// Dials an address.
    fn connect(
        &self,
        to: SocketAddr,
        params: ConnectParams,
    ) -> BoxFuture<'_, io::Result<Connected>>;
    /// Whether the way to an address takes its ports from TCP, as iWARP does; RoCE and InfiniBand have ports of their own.
    fn shares_tcp_ports(&self, _to: SocketAddr) -> BoxFuture<'_, io::Result<bool>> {
        Box::pin(async { Ok(true) })
    }
}
