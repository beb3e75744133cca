//! A connection as protocols see it: requests and replies with their bulk data, whatever the transport.
//!
//! *Operation.* One task owns a [`Channel`] and polls it; [`Channel::poll_recv`] drives both directions and yields whole requests.
//! [`Channel::reply`] queues replies, which are sent by the next poll that finds no further request, so that small replies share a
//! system call. Other tasks use the connection through its [`Handle`].
//!
//! *Memory.* Bulk data is never in [`Request::body`]: whether it came by RDMA Read or TCP, it is in [`Request::read_chunks`], each
//! piece with its offset in the body. A [`Reply`] is the encoded stream without bulk data, plus the bulk data with its offsets; the
//! transport sends it from its buffers.
//!
//! *Errors.* A peer that violates a rule gets its protocol's error, and the channel ends with [`ChannelError::Violation`]. A reply
//! to a closed connection is dropped.

use std::any::Any;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use iobuf::{Account, Backpressure, Buf, Pages, Pool};
use mutex::locked;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::meter::Meter;
use crate::tls::Tls;
pub use crate::verbs::{BoxFuture, RemoteSeg, boxed};

/// XDR rounds up to four bytes with zeros (RFC 4506 section 4.9).
pub(crate) static XDR_PAD: [u8; 3] = [0; 3];

/// Where a reply's payload may be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The data is inside the message.
    Inline,
    /// In the next Write chunk if the client offered one (NFS: RFC 8267), else inside the message.
    Eligible,
    /// In these memory regions of the peer (SMB: named by the request).
    Remote(Vec<RemoteSeg>),
}

/// Bulk data of a reply.
#[derive(Clone, Debug)]
pub struct Payload {
    /// Offset in [`Reply::head`] for an inline copy.
    pub at: usize,
    /// The bytes, in pieces.
    pub data: Vec<Buf>,
    /// Bytes after `data`, for a connection that [accepts pages](Info::takes_pages).
    pub pages: Option<Pages>,
    /// Zero bytes after an inline copy only (XDR padding, 0 to 3).
    pub pad: u8,
    /// Where it may be placed.
    pub place: Place,
}

impl Payload {
    /// Bytes of data, without padding.
    pub fn len(&self) -> usize {
        let pages = self.pages.as_ref().map_or(0, Pages::len);
        self.data.iter().map(Buf::len).sum::<usize>() + pages
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A part of a message in its inline form.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Piece<'a> {
    Bytes(&'a [u8]),
    Pages(&'a Pages),
}

/// A value kept until a message was sent. Its last clone is dropped when the last byte of the message was passed to the socket or
/// the last Send has completed, or when the connection ended without sending it.
#[derive(Clone)]
pub struct UntilLeft {
    _kept: Arc<dyn Any + Send + Sync>,
}

impl UntilLeft {
    /// Wraps a value that is kept until the reply was sent.
    pub fn new(kept: impl Any + Send + Sync) -> Self {
        Self { _kept: Arc::new(kept) }
    }
}

impl fmt::Debug for UntilLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UntilLeft")
    }
}

/// A reply: the encoded stream without bulk data, and the bulk data in ascending order of `at`.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// The encoded reply without its bulk data.
    pub head: Vec<u8>,
    /// Bulk data in ascending order of `at`.
    pub payloads: Vec<Payload>,
    /// A token of the peer that this reply's Send may invalidate: the first descriptor of a request of channel
    /// `SMB2_CHANNEL_RDMA_V1_INVALIDATE` (MS-SMB2 section 3.3.5.12). Ignored by transports without Send with Invalidate, and by
    /// RPC-over-RDMA, which finds tokens in the chunk lists.
    pub invalidate: Option<u32>,
    /// Dropped when the reply was sent: messages that must follow it, on any connection, wait for that.
    pub until_left: Option<UntilLeft>,
    /// This is the last reply in clear: TLS begins after it (RFC 9289 section 4.1). Allowed only if [`Tls::is_offered`].
    pub starts_tls: bool,
}

impl Reply {
    /// Builds a reply without bulk data.
    pub fn of(head: Vec<u8>) -> Self {
        Self { head, ..Self::default() }
    }

    /// Size in bytes with all bulk data inline.
    pub fn inline_len(&self) -> usize {
        self.head.len() + self.payloads.iter().map(|p| p.len() + usize::from(p.pad)).sum::<usize>()
    }

    /// The bytes of the inline form in order, as pieces without pages; no piece is empty. A payload whose `at` is out of order or
    /// beyond the head follows at the current position.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.all_pieces().filter_map(|piece| match piece {
            Piece::Bytes(bytes) => Some(bytes),
            Piece::Pages(_) => None,
        })
    }

    /// Like [`Reply::pieces`], with pages.
    pub(crate) fn all_pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let mut from = 0;
        let body = self.payloads.iter().flat_map(move |p| {
            let at = p.at.clamp(from, self.head.len());
            let before = &self.head[from..at];
            from = at;
            let pad = &XDR_PAD[..usize::from(p.pad).min(XDR_PAD.len())];
            std::iter::once(Piece::Bytes(before))
                .chain(p.data.iter().map(|data| Piece::Bytes(data)))
                .chain(p.pages.as_ref().map(Piece::Pages))
                .chain(std::iter::once(Piece::Bytes(pad)))
        });
        let last = self.payloads.iter().map(|p| p.at).max().unwrap_or(0).min(self.head.len());
        body.chain(std::iter::once(Piece::Bytes(&self.head[last..])))
            .filter(|piece| !matches!(piece, Piece::Bytes([])))
    }
}

/// Bulk data of a request, separate from its body.
#[derive(Clone, Debug)]
pub struct ReadChunkData {
    /// Offset in [`Request::body`] at which an inline copy would be: directly after its length word.
    pub at: usize,
    /// The bytes in pieces, without XDR padding. Empty if the data is [missing](Self::is_missing).
    pub data: Vec<Buf>,
}

impl ReadChunkData {
    /// Marks data that was not taken from the peer, because no memory became available in time.
    pub(crate) fn missing(at: usize) -> Self {
        Self { at, data: Vec::new() }
    }

    /// True if the data was not taken from the peer, because no memory became available in time: the request must be refused with
    /// an error after which the client retries. The rest of the request is complete.
    pub fn is_missing(&self) -> bool {
        self.data.is_empty()
    }
}

/// A whole request.
#[derive(Debug)]
pub struct Request {
    /// The message without bulk data and its padding.
    pub body: Buf,
    /// Bulk data in ascending order of `at`.
    pub read_chunks: Vec<ReadChunkData>,
    /// Identifies the request when its reply is queued.
    pub reply_to: ReplyTo,
}

/// Identifies a request of a channel. Opaque to protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplyTo(pub(crate) u64);

/// The reason why a channel ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelError {
    /// The peer closed it, or the network did.
    Closed(String),
    /// The peer violated this rule (stable name, and details for the log).
    Violation(&'static str, String),
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(why) => write!(f, "connection closed: {why}"),
            Self::Violation(rule, detail) => write!(f, "peer broke rule {rule}: {detail}"),
        }
    }
}

impl std::error::Error for ChannelError {}

/// The reason why [`Handle::pull`] fetched no data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullError {
    /// No memory became available in time. The connection continues.
    NoMemory,
    /// The connection does not support it, or has ended.
    Channel(ChannelError),
}

impl fmt::Display for PullError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMemory => f.write_str("no memory came in time"),
            Self::Channel(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for PullError {}

impl From<ChannelError> for PullError {
    fn from(why: ChannelError) -> Self {
        Self::Channel(why)
    }
}

impl ChannelError {
    /// The error for an operation that this kind of connection lacks; the connection continues.
    pub(crate) fn unsupported(what: &str) -> Self {
        Self::Closed(format!("{what} is not available on this connection"))
    }
}

/// The transport of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A TCP connection.
    Tcp,
    /// RPC-over-RDMA or SMB Direct, with the name of the RDMA provider.
    Rdma(&'static str),
}

impl Transport {
    /// True if one-sided operations are available.
    pub fn is_rdma(self) -> bool {
        matches!(self, Self::Rdma(_))
    }
}

/// Properties of a connection; shared with `status`.
#[derive(Debug)]
pub struct Info {
    pub peer: SocketAddr,
    pub local: SocketAddr,
    pub transport: Transport,
    /// The peer is an unprivileged user of this host, whose claims about its identity must not be trusted.
    pub is_local_user: bool,
    /// Its account in the fair queue for buffers.
    pub account: Account,
    /// The pool for its payload.
    pub pool: Pool,
    /// Pauses reads while the peer does not take replies; updated by the channel.
    pub backpressure: Arc<Backpressure>,
    /// Largest message that the peer accepts, in bytes without data sent by RDMA Write; set by the channel during setup. Zero: only
    /// the protocol limits it.
    pub message_out_max: AtomicUsize,
    /// Payload may be [`Pages`], because it is sent unmodified and unread. Set by the channel during setup.
    pub takes_pages: AtomicBool,
    /// Bytes transferred, by direction and method.
    pub traffic: Traffic,
    /// Whether the peer has completed a request that it was entitled to.
    pub introduction: Introduction,
    /// Limits the posted RDMA Receives; `None`: as many as the protocol uses.
    pub receives: Option<Box<dyn ReceiveBudget>>,
    /// Statistics of its operations.
    pub meter: Meter,
    /// TLS state of the connection.
    pub tls: Tls,
    /// Other facts for display.
    pub facts: Facts,
}

/// Converts an IPv4-mapped address (`::ffff:a.b.c.d`, as an IPv6 socket reports it) to IPv4.
pub fn canonical(at: SocketAddr) -> SocketAddr {
    match at.ip().to_canonical() {
        ip @ std::net::IpAddr::V4(_) => SocketAddr::new(ip, at.port()),
        // Kept with its zone.
        std::net::IpAddr::V6(_) => at,
    }
}

/// The host to which an address belongs in limits per client: the address for IPv4, the /64 for IPv6, which is the smallest network
/// assigned to one host (RFC 4291 section 2.5.4), and in which it may use any address.
pub fn host_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => IpAddr::V4(ip),
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() >> 64 << 64).into()),
    }
}

impl Info {
    /// Builds the properties of a new connection, with a new account at the pool.
    pub fn new(peer: SocketAddr, local: SocketAddr, transport: Transport, pool: Pool) -> Self {
        Self {
            peer: canonical(peer),
            local: canonical(local),
            transport,
            is_local_user: false,
            account: Account::new(),
            pool,
            backpressure: Arc::default(),
            message_out_max: AtomicUsize::new(0),
            takes_pages: AtomicBool::new(false),
            traffic: Traffic::default(),
            introduction: Introduction::default(),
            receives: None,
            meter: Meter::default(),
            tls: Tls::default(),
            facts: Facts::default(),
        }
    }
}

impl Info {
    /// The number of RDMA Receives that may be posted now: `few`, or up to `most`.
    pub(crate) fn receives_allowed(&self, few: u16, most: u16) -> u16 {
        let is_known = self.introduction.is_done();
        self.receives.as_ref().map_or(most, |budget| budget.allowed(is_known, few, most))
    }

    /// True if the client has not introduced itself, which limits its resources.
    pub(crate) fn is_stranger(&self) -> bool {
        self.receives.is_some() && !self.introduction.is_done()
    }
}

/// Limits the RDMA Receives of a connection.
pub trait ReceiveBudget: fmt::Debug + Send + Sync {
    /// The number allowed now: `few` until the client has introduced itself, then up to `most` if available.
    fn allowed(&self, is_known: bool, few: u16, most: u16) -> u16;
}

/// Whether the peer of a connection has completed a request that it was entitled to; the protocol decides when.
#[derive(Debug, Default)]
pub struct Introduction {
    is_done: AtomicBool,
    done: Notify,
}

impl Introduction {
    /// Marks the client as introduced.
    pub fn note(&self) {
        if !self.is_done.swap(true, Ordering::Relaxed) {
            self.done.notify_one();
        }
    }

    pub fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Relaxed)
    }

    /// Waits for the introduction. Supports one waiting task.
    pub async fn wait(&self) {
        self.done.notified().await;
    }
}

/// The type of a fact's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactKind {
    /// The value may be any text.
    Text,
    /// A whole number in decimal digits.
    Number,
    /// The value must be one of these words.
    One(&'static [&'static str]),
}

impl FactKind {
    /// True if the value has this type.
    pub fn fits(self, value: &str) -> bool {
        match self {
            Self::Text => true,
            Self::Number => value.parse::<u64>().is_ok(),
            Self::One(words) => words.contains(&value),
        }
    }
}

/// Facts that the layers of a connection report about it and its peer, for display: negotiated sizes, dialect, user, reasons for a
/// fallback. One value for each name; names are constants of this program.
#[derive(Debug, Default)]
pub struct Facts(Mutex<Vec<(&'static str, String)>>);

impl Facts {
    /// The dialect of SMB.
    pub const DIALECT: &str = "dialect";
    /// Whether the client of SMB may use several connections: `yes` or `no`.
    pub const MULTICHANNEL: &str = "multichannel";
    /// Number of RDMA addresses reported to the SMB client.
    pub const RDMA_TOLD: &str = "RDMA addresses told";
    /// Protection of SMB messages: `encrypted`, `signed` or `none`.
    pub const PROTECTION: &str = "protection";
    /// Protection available for SMB data over RDMA: `none`, or the methods that client and server share.
    pub const RDMA_TRANSFORMS: &str = "RDMA transforms";
    /// The name by which a client is known on all its connections: `ClientGuid` of SMB.
    pub const CLIENT_ID: &str = "client id";
    /// The client implementation, as far as it can be recognized.
    pub const CLIENT: &str = "client";

    /// All names, in no order, with the type and meaning of their values. docs/status.md is generated from it.
    pub const ALL: &[(&str, FactKind, &str)] = &[
        (Self::DIALECT, FactKind::Text, "SMB: the dialect, `3.1.1`"),
        (
            Self::MULTICHANNEL,
            FactKind::One(&["yes", "no"]),
            "SMB: the client may use several connections",
        ),
        (
            "addresses told",
            FactKind::Number,
            "SMB: addresses that the client was told of, when it asked",
        ),
        (Self::RDMA_TOLD, FactKind::Number, "of these, with RDMA"),
        (
            Self::PROTECTION,
            FactKind::Text,
            "what protects messages: by SMB `encrypted`, `signed` or `none`, by NFS `TLS 1.3` with the name of the certificate; \
             `protection` of the connection is made of it",
        ),
        (
            Self::RDMA_TRANSFORMS,
            FactKind::Text,
            "SMB: how data by RDMA may be protected; `none`: not at all",
        ),
        (Self::CLIENT_ID, FactKind::Text, "SMB: the client's GUID, in 32 hexadecimal digits"),
        (Self::CLIENT, FactKind::Text, "what the client seems to be"),
        ("signing algorithm", FactKind::Text, "SMB: what signs"),
        ("cipher", FactKind::Text, "SMB: what would encrypt; `none`: nothing"),
        ("user", FactKind::Text, "SMB: who logged on last; empty: one without a name"),
        ("NFS", FactKind::Text, "the versions of NFS that were spoken, `3, 4.2`"),
        ("device", FactKind::Text, "the RDMA device"),
        ("SMB Direct", FactKind::Text, "what was agreed on: sizes and credits"),
        ("inline", FactKind::Text, "RPC-over-RDMA: bytes that fit into a message, each way"),
        ("credits", FactKind::Number, "RPC-over-RDMA: calls that the client may have under way"),
        (
            "remote invalidation",
            FactKind::One(&["yes", "no"]),
            "RPC-over-RDMA: the client lets the server take its memory back",
        ),
    ];

    /// True if the name is in [`Facts::ALL`] and its value has the declared type.
    fn is_known(name: &str, value: &str) -> bool {
        Self::ALL.iter().any(|(known, kind, _)| *known == name && kind.fits(value))
    }

    /// Sets a fact, replacing an earlier value.
    pub fn note(&self, name: &'static str, value: impl Into<String>) {
        let value = value.into();
        debug_assert!(Self::is_known(name, &value), "{name}: {value}");
        let mut facts = locked(&self.0);
        match facts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => facts.push((name, value)),
        }
    }

    /// The value of a fact.
    pub fn get(&self, name: &str) -> Option<String> {
        let facts = locked(&self.0);
        facts.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    }

    /// All facts, in the order in which they were first set.
    pub fn list(&self) -> Vec<(&'static str, String)> {
        locked(&self.0).clone()
    }
}

/// Bytes transferred, by method. Server's view: `write` counts data that clients read.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Payload and message bytes sent by RDMA Write.
    pub rdma_write: AtomicU64,
    /// Payload and message bytes fetched by RDMA Read.
    pub rdma_read: AtomicU64,
    /// Message bytes received inside messages (Sends, or the byte stream).
    pub inline_in: AtomicU64,
    /// Message bytes sent inside messages.
    pub inline_out: AtomicU64,
    /// Sends with Invalidate: sent by a server, received by a client.
    pub invalidations: AtomicU64,
    /// Requests received.
    pub requests: AtomicU64,
    /// Messages waiting for the peer's credits now.
    pub credits_waiting: AtomicU64,
    /// How often messages had to wait for credits.
    pub credit_waits: AtomicU64,
}

impl Traffic {
    /// Adds to one of the counters.
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

/// One connection, owned by the task that polls it.
pub trait Channel: Send {
    /// Properties of the connection.
    fn info(&self) -> &Arc<Info>;

    /// Drives both directions; yields the next whole request. Must not be polled again after an error.
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Request, ChannelError>>;

    /// Sends replies and advances operations in progress, but accepts no new request. `Ready(Ok)` when the send queue is empty. For
    /// a server that has reached its limit of requests in progress.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>>;

    /// Queues the reply to a request. `None` for a request without a reply (a dropped duplicate): its credit returns with the next
    /// reply.
    fn reply(&mut self, to: ReplyTo, reply: Option<Reply>);

    /// Gives other tasks access to this connection.
    fn handle(&self) -> Handle;

    /// Completes pending replies, then closes. `poll_recv` reports the end.
    fn shutdown(&mut self);
}

/// A command of another task to a connection.
#[derive(Debug)]
pub enum Command {
    /// Sends this RPC call to the peer (a callback) and returns its reply, the whole RPC message beginning with the xid. The
    /// channel overwrites the first four bytes of `head` with an xid.
    Call {
        /// The call, without bulk data.
        head: Vec<u8>,
        answer: oneshot::Sender<Result<Buf, ChannelError>>,
    },
    /// Sends this message, which is not the reply to a pending request.
    Push {
        message: Reply,
        /// Signaled when the message is in the send queue.
        taken: oneshot::Sender<Result<(), ChannelError>>,
    },
    /// Fetches this memory of the peer by RDMA Read.
    Pull {
        /// The regions to fetch, in order.
        from: Vec<RemoteSeg>,
        fetched: oneshot::Sender<Result<Vec<Buf>, PullError>>,
    },
    /// Reports how the peer acknowledges data.
    Silence { answer: oneshot::Sender<Result<Silence, ChannelError>> },
    /// Closes the connection in order.
    Shutdown,
    /// Closes the connection at once, discarding unsent replies.
    Abort {
        /// The reason, for the log.
        why: String,
    },
}

/// How the peer acknowledges data, according to the transport below the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Silence {
    /// Some sent data is not acknowledged.
    pub owes: bool,
    /// Time since the last acknowledgement.
    pub lasts: Duration,
    /// Number of consecutive retransmissions without acknowledgement.
    pub repeats: u32,
}

/// Gives other tasks access to a connection. Clones are equivalent; a handle does not keep the connection open.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(crate) commands: mpsc::Sender<Command>,
}

impl Handle {
    /// A handle of a closed connection, for servers that run without one.
    pub fn detached() -> Self {
        Self { commands: mpsc::channel(1).0 }
    }

    /// A handle for tests: commands arrive at the returned receiver.
    pub fn played() -> (Self, mpsc::Receiver<Command>) {
        let (commands, asked) = mpsc::channel(16);
        (Self { commands }, asked)
    }

    /// Calls the peer over this connection (NFSv4.1 backchannel, RFC 8167 over RDMA) and waits for its reply, at most until the
    /// connection ends: the caller sets a deadline.
    pub async fn call(&self, head: Vec<u8>) -> Result<Buf, ChannelError> {
        let (answer, wait) = oneshot::channel();
        self.ask(Command::Call { head, answer }, wait).await
    }

    /// Sends a message that is not the reply to a pending request: an oplock break, or the final reply to a request that got an
    /// interim one. It follows all replies and pushes queued before. Completes when the message is in the send queue, which may
    /// take as long as the peer does not take data. RPC channels do not support it.
    ///
    /// A final reply follows its interim reply if the task that pushes it is started last, without an await between its start and
    /// the return of the interim reply.
    pub async fn push(&self, message: Reply) -> Result<(), ChannelError> {
        let (taken, wait) = oneshot::channel();
        self.ask(Command::Push { message, taken }, wait).await
    }

    /// Fetches all of `from` from the peer's memory by RDMA Read, in order, into buffers of the connection's pool: up to
    /// [`SMB_PAYLOAD_MAX`](crate::limits::SMB_PAYLOAD_MAX) bytes, in several buffers if they exceed the largest one. The caller
    /// must hold no other buffer of the pool meanwhile. If the peer denies access to its memory, the connection ends. Fails if no
    /// memory becomes available in time, without RDMA, and on RPC channels, which fetch the chunks of calls themselves.
    pub async fn pull(&self, from: Vec<RemoteSeg>) -> Result<Vec<Buf>, PullError> {
        let (fetched, wait) = oneshot::channel();
        self.ask(Command::Pull { from, fetched }, wait).await
    }

    async fn ask<T, E: From<ChannelError>>(
        &self,
        command: Command,
        answer: oneshot::Receiver<Result<T, E>>,
    ) -> Result<T, E> {
        let gone = || ChannelError::Closed("the connection is gone".into());
        self.commands.send(command).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Requests an orderly end of the connection.
    pub async fn shutdown(&self) {
        // The connection may have ended already.
        let _ = self.commands.send(Command::Shutdown).await;
    }

    /// Reports how the peer acknowledges data. Fails on transports that end silent connections themselves (RDMA), and on RPC
    /// channels.
    pub async fn silence(&self) -> Result<Silence, ChannelError> {
        let (answer, wait) = oneshot::channel();
        self.ask(Command::Silence { answer }, wait).await
    }

    /// Ends the connection at once, without sending anything to the peer. Over RDMA like [`Handle::shutdown`].
    pub async fn abort(&self, why: &str) {
        // The connection may have ended already.
        let _ = self.commands.send(Command::Abort { why: why.to_owned() }).await;
    }

    /// Waits until the connection has ended.
    pub async fn closed(&self) {
        self.commands.closed().await;
    }

    pub fn is_closed(&self) -> bool {
        self.commands.is_closed()
    }
}

/// Locates the bulk data of a message from its first bytes, so that a byte stream can be read directly into a buffer. Implemented
/// by the protocol; no side effects.
pub trait PayloadLocator: Send + Sync {
    /// `head` is the beginning of a message of `total` bytes. Returns offset and length of the bulk data, or `None` if there is
    /// none or `head` is too short to tell: then the message is read as one piece.
    fn bulk(&self, head: &[u8], total: usize) -> Option<(usize, usize)>;

    /// True if the message that begins with `head` cannot be processed without its bulk data, because it is encrypted or signed as
    /// a whole. The transport then waits for memory without limit.
    fn is_sealed(&self, _head: &[u8]) -> bool {
        false
    }
}

/// Executes requests. The serve loop first polls the future in place, and stores it only if it has to wait.
pub trait Service: Send + Sync + 'static {
    /// Executes one request and returns its reply; `None` drops the request without a reply.
    fn call(&self, body: Buf, read_chunks: Vec<ReadChunkData>)
    -> BoxFuture<'static, Option<Reply>>;
}
