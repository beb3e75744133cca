//! The contract of queue pairs, which every RDMA provider implements: loopback, user-space iWARP, hardware verbs.
//!
//! *Operation.* A [`QueuePair`] belongs to one task. [`QueuePair::post`] queues work; [`QueuePair::poll`] moves bytes in both
//! directions and yields completions. All activity happens in polls. Work requests of one queue pair complete in the order of
//! posting, with Receives ordered separately from all others; so the Send at the end of a chain proves the Writes before it.
//!
//! *Memory.* A work request owns its memory until its completion returns it, also when it fails, is flushed or is refused. Memory
//! accessible to the peer belongs to the queue pair between [`QueuePair::register`] and [`QueuePair::release`].
//!
//! *Errors.* The first error ends the connection: all posted work is returned with [`WorkError::Flushed`], then `poll` returns
//! [`Down`]. A refused chain is returned whole in [`Rejected`].

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use bytes::Bytes;
use iobuf::{Buf, BufMut};
pub use wire::RemoteSeg;

/// A boxed future that may be sent to another thread.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Builds a future in its allocation. `Box::pin` would build it first and then move its kilobytes there, for each request.
#[inline]
pub fn boxed<F>(make: impl FnOnce() -> F) -> std::pin::Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}

/// Chosen by the poster and returned in the completion. Providers do not interpret it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkId(pub u64);

/// A work request. It owns its memory until its completion returns it.
#[derive(Debug)]
pub enum Work {
    /// Receives one Send; the message is stored at the start of `into`.
    Recv {
        /// Returned in the completion.
        id: WorkId,
        /// The buffer; its capacity is the largest accepted message.
        into: BufMut,
    },
    /// Sends one message to a Receive of the peer.
    Send {
        /// Returned in the completion.
        id: WorkId,
        /// The message, in pieces.
        from: Vec<Buf>,
        /// The peer's handle to invalidate (Send with Invalidate).
        invalidate: Option<u32>,
    },
    /// RDMA Write of `from` to the start of `to`; `from` is at most `to.len` bytes.
    Write {
        /// Returned in the completion.
        id: WorkId,
        from: Buf,
        to: RemoteSeg,
    },
    /// RDMA Read of all of `from`, in order, appended to what `into` holds.
    Read {
        /// Returned in the completion.
        id: WorkId,
        /// The regions to fetch; together they fit the spare part of `into`.
        from: Vec<RemoteSeg>,
        into: BufMut,
    },
}

impl Work {
    /// The id chosen by the poster.
    pub fn id(&self) -> WorkId {
        match self {
            Self::Recv { id, .. }
            | Self::Send { id, .. }
            | Self::Write { id, .. }
            | Self::Read { id, .. } => *id,
        }
    }
}

/// The kind of work that a completion belongs to.
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

/// Reports a finished work request.
#[derive(Debug)]
pub struct Completion {
    /// As posted.
    pub id: WorkId,
    /// As posted.
    pub kind: WorkKind,
    /// The number of bytes transferred, or the error.
    pub result: Result<usize, WorkError>,
    /// The buffer of a Receive or Read, with the received data.
    pub buf: Option<BufMut>,
    /// The handle that the peer's Send has invalidated; the region waits for [`QueuePair::release`]. Some devices do not report it
    /// (siw's library).
    pub invalidated: Option<u32>,
}

/// The reason why a work request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkError {
    /// The connection ended before.
    Flushed,
    /// The message did not fit the Receive, or the data did not fit the region.
    Length,
    /// The peer refused access to the region.
    RemoteAccess,
    /// The peer violated the transport's protocol.
    Protocol,
}

/// A refused chain with its memory.
#[derive(Debug)]
pub struct Rejected {
    pub why: Refused,
    /// The whole chain, unchanged.
    pub chain: Vec<Work>,
}

/// The reason why a chain or a registration was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The queue or table is full; retry after completions.
    Full,
    /// The connection is down.
    Down,
    /// The request exceeds a limit of this queue pair.
    Invalid,
}

/// The connection has ended; all posted work was returned before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Down {
    /// The reason, as one line for the log.
    pub reason: String,
    /// The stable name of the rule that the peer violated, if that was the reason and the provider knows it: InfiniBand informs
    /// only the violating side, and tells the other one just that the connection ended.
    pub violation: Option<&'static str>,
}

impl fmt::Display for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Down {}

/// The limits of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum posted Receives.
    pub recvs_max: usize,
    /// Maximum posted Sends, Writes and Reads.
    pub sends_max: usize,
    pub send_pieces_max: usize,
    /// Maximum outstanding RDMA Reads; the provider queues further ones.
    pub reads_in_flight_max: usize,
    /// Maximum registered regions.
    pub regions_max: usize,
    /// Bytes of Sends and Writes that keep it busy: preparing more before some have completed has no benefit.
    pub backlog_useful: usize,
}

/// The peer's access to a registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteAccess {
    /// The peer may write into it.
    Write,
    /// The peer may read from it.
    Read,
}

/// Memory accessible to the peer.
#[derive(Debug)]
pub enum Region {
    /// The peer may write anywhere in the capacity; `filled` is meaningless, and the protocol tells which bytes were written.
    Writable(BufMut),
    /// The peer may read it.
    Readable(Buf),
}

/// A reliable connection with one-sided operations. See the module's text for the rules.
pub trait QueuePair: Send {
    /// The limits of this queue pair, which never change.
    fn limits(&self) -> Limits;

    /// Queues a chain completely or not at all. [`QueuePair::poll`] transmits it.
    fn post(&mut self, chain: Vec<Work>) -> Result<(), Rejected>;

    /// Moves bytes in both directions and appends completions to `out`. Ready(Ok) if at least one was appended; Ready(Err) when the
    /// connection has ended and no completion is left.
    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Vec<Completion>) -> Poll<Result<(), Down>>;

    /// Gives the peer access to this memory until it is released, invalidated, or the connection ends. The returned segment covers
    /// all of it (the capacity of a writable, the length of a readable region).
    fn register(&mut self, region: Region) -> Result<RemoteSeg, (Refused, Region)>;

    /// Returns a region to its owner. `None` if no region has this handle.
    fn release(&mut self, handle: u32) -> Option<Region>;

    /// Ends the connection: posted work is still sent if possible, the rest is flushed.
    fn disconnect(&mut self);

    /// Statistics of the connection.
    fn counters(&self) -> Counters;
}

/// Bytes and operations of one queue pair, from this side's point of view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub sends: u64,
    pub send_bytes: u64,
    /// Sends with an invalidation.
    pub sends_invalidate: u64,
    /// Sends received from the peer.
    pub recvs: u64,
    /// Bytes of Sends received.
    pub recv_bytes: u64,
    /// Number of RDMA Writes.
    pub writes: u64,
    /// Bytes of RDMA Writes.
    pub write_bytes: u64,
    /// Number of RDMA Reads.
    pub reads: u64,
    /// Bytes of RDMA Reads.
    pub read_bytes: u64,
}

/// Parameters for connecting or accepting.
#[derive(Clone, Debug)]
pub struct ConnectParams {
    /// Private data of the protocol above, without the transport's own part (MPA's IRD and ORD).
    pub private_data: Bytes,
    /// Maximum Receives that the protocol keeps posted; determines the size of the receive queue.
    pub recvs: usize,
    /// Maximum posted Sends, Writes and Reads of the protocol.
    pub sends: usize,
    /// Outstanding RDMA Reads that this side wants.
    pub reads_out: u16,
    /// Outstanding RDMA Reads of the peer that this side accepts.
    pub reads_in: u16,
    /// Largest message received by a Send, in bytes.
    pub recv_size: usize,
}

/// An established connection with the peer's private data.
pub struct Connected {
    /// The queue pair, ready for posting.
    pub qp: Box<dyn QueuePair>,
    /// Private data of the peer's request or reply. InfiniBand's fields have a fixed size: zeros may follow.
    pub private_data: Bytes,
    pub peer: SocketAddr,
    pub local: SocketAddr,
}

/// An incoming connection that was not answered yet.
pub trait Incoming: Send {
    fn peer(&self) -> SocketAddr;
    /// Reads the connection request and returns its private data. The provider limits the time.
    fn request(&mut self) -> BoxFuture<'_, io::Result<Bytes>>;
    /// Accepts the connection with these parameters.
    fn accept(self: Box<Self>, params: ConnectParams) -> BoxFuture<'static, io::Result<Connected>>;
    /// Refuses the connection with private data.
    fn reject(self: Box<Self>, private_data: Bytes) -> BoxFuture<'static, ()>;
}

/// Waits for connections on an address.
pub trait Listener: Send {
    fn local_addr(&self) -> SocketAddr;
    /// Returns the next connection, without waiting for the peer's first bytes: that is [`Incoming::request`].
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Incoming>>>;
}

/// Creates queue pairs.
pub trait Provider: Send + Sync {
    /// Name in logs and in `status`: `iwarp`, `verbs`, `loopback`.
    fn name(&self) -> &'static str;
    /// Listens on an address.
    fn listen(&self, at: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>>;
    /// Connects to an address.
    fn connect(
        &self,
        to: SocketAddr,
        params: ConnectParams,
    ) -> BoxFuture<'_, io::Result<Connected>>;
    /// True if connections to an address use TCP ports, as iWARP does; RoCE and InfiniBand have a separate port space.
    fn shares_tcp_ports(&self, _to: SocketAddr) -> BoxFuture<'_, io::Result<bool>> {
        Box::pin(async { Ok(true) })
    }
}
