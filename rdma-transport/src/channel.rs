//! What protocols see of a connection: requests with their bulk data, replies with theirs, whatever moves them.
//!
//! *Operation.* One task owns a [`Channel`] and polls it; [`Channel::poll_recv`] drives both directions and yields whole
//! requests. Replies are queued by [`Channel::reply`] and leave at the next poll that finds no further request, so
//! small replies share a system call. Other tasks reach the connection through its [`Handle`].
//!
//! *Memory.* Bulk data never stands in [`Request::body`]: whether it came by RDMA Read or by TCP, it is in
//! [`Request::read_chunks`], each piece with the offset in the body where it belongs. A [`Reply`] is the encoded stream
//! without its bulk data, plus the bulk data and where it belongs; whoever sends it writes it straight from there.
//!
//! *Errors.* A peer that breaks a rule gets its protocol's error and the channel ends with
//! [`ChannelError::Violation`]; a reply to a connection that is gone vanishes.

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
pub use crate::verbs::{BoxFuture, RemoteSeg};

/// XDR rounds up to four bytes with zeros (RFC 4506 section 4.9).
pub(crate) static XDR_PAD: [u8; 3] = [0; 3];

/// Where a payload of a reply may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Inside the message.
    Inline,
    /// Into the next Write chunk if the client offered one (NFS: RFC 8267), else inside the message.
    Eligible,
    /// Into these regions of the peer (SMB: the request named them).
    Remote(Vec<RemoteSeg>),
}

/// Bulk data of a reply.
#[derive(Clone, Debug)]
pub struct Payload {
    /// Offset in [`Reply::head`] where an inline copy stands.
    pub at: usize,
    /// The bytes, in pieces.
    pub data: Vec<Buf>,
    /// Bytes behind those of `data`, for a connection that [takes them so](Info::takes_pages).
    pub pages: Option<Pages>,
    /// Zero bytes that follow an inline copy, and only that (XDR round-up, 0 to 3).
    pub pad: u8,
    /// Where it may go.
    pub place: Place,
}

impl Payload {
    /// Bytes of data, without padding.
    pub fn len(&self) -> usize {
        let pages = self.pages.as_ref().map_or(0, Pages::len);
        self.data.iter().map(Buf::len).sum::<usize>() + pages
    }

    /// No data.
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

/// Something that is to last until a message has left. Its last clone is dropped once the last byte of the message has been handed
/// to the socket or the last Send has completed, and also when the message is never sent: the connection is gone.
#[derive(Clone)]
pub struct UntilLeft {
    _kept: Arc<dyn Any + Send + Sync>,
}

impl UntilLeft {
    /// Keeps this.
    pub fn new(kept: impl Any + Send + Sync) -> Self {
        Self { _kept: Arc::new(kept) }
    }
}

impl fmt::Debug for UntilLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UntilLeft")
    }
}

/// A reply: the encoded stream without its bulk data, and the bulk data in order of `at`.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// The stream.
    pub head: Vec<u8>,
    /// Its bulk data, `at` ascending.
    pub payloads: Vec<Payload>,
    /// A token of the peer that the Send of this reply may invalidate: the first descriptor of a request of channel
    /// `SMB2_CHANNEL_RDMA_V1_INVALIDATE` (MS-SMB2 section 3.3.5.12). Transports without Send with Invalidate leave it alone, and
    /// so does RPC-over-RDMA, which finds its own in the chunk lists.
    pub invalidate: Option<u32>,
    /// Dropped when the reply has left: what must come after it, by whatever connection, waits for that.
    pub until_left: Option<UntilLeft>,
    /// The last reply in clear: TLS begins behind it (RFC 9289 section 4.1). Only where [`Tls::is_offered`] said so.
    pub starts_tls: bool,
}

impl Reply {
    /// A reply without bulk data.
    pub fn of(head: Vec<u8>) -> Self {
        Self { head, ..Self::default() }
    }

    /// Bytes on a transport that moves nothing by RDMA.
    pub fn inline_len(&self) -> usize {
        self.head.len() + self.payloads.iter().map(|p| p.len() + usize::from(p.pad)).sum::<usize>()
    }

    /// The bytes of the inline form in order, piece by piece, without pages; no piece is empty. A payload whose `at` is out of
    /// order or beyond the head stands where the stream has come to.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.all_pieces().filter_map(|piece| match piece {
            Piece::Bytes(bytes) => Some(bytes),
            Piece::Pages(_) => None,
        })
    }

    /// As [`Reply::pieces`], with pages.
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

/// Bulk data of a request that stands outside its body.
#[derive(Clone, Debug)]
pub struct ReadChunkData {
    /// Offset in [`Request::body`] where an inline copy would have stood: directly behind its length word.
    pub at: usize,
    /// The bytes, in pieces; without XDR padding. No piece at all where the data is [missing](Self::is_missing).
    pub data: Vec<Buf>,
}

impl ReadChunkData {
    /// Data that was not taken from the peer, because no memory came for it in time.
    pub(crate) fn missing(at: usize) -> Self {
        Self { at, data: Vec::new() }
    }

    /// The data was not taken from the peer, because no memory came for it in time: the request is to be
    /// refused as one that the client may repeat. The rest of the request is there.
    pub fn is_missing(&self) -> bool {
        self.data.is_empty()
    }
}

/// A whole request.
#[derive(Debug)]
pub struct Request {
    /// The message without bulk data and without the padding of bulk data.
    pub body: Buf,
    /// Its bulk data, `at` ascending.
    pub read_chunks: Vec<ReadChunkData>,
    /// Names the request when its reply is given back.
    pub reply_to: ReplyTo,
}

/// Names a request of a channel. Opaque to protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplyTo(pub(crate) u64);

/// Why a channel ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelError {
    /// The peer closed it, or the network did.
    Closed(String),
    /// The peer broke this rule (stable name, then detail for the log).
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

/// Why [`Handle::pull`] fetched nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullError {
    /// No memory came for it in time. The connection goes on.
    NoMemory,
    /// The connection cannot fetch it, or has ended.
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
    /// What was asked for does not exist on this kind of connection, which goes on.
    pub(crate) fn unsupported(what: &str) -> Self {
        Self::Closed(format!("{what} is not available on this connection"))
    }
}

/// How a connection moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A byte stream.
    Tcp,
    /// RPC-over-RDMA by this provider.
    Rdma(&'static str),
}

impl Transport {
    /// One-sided operations are available.
    pub fn is_rdma(self) -> bool {
        matches!(self, Self::Rdma(_))
    }
}

/// What is known of a connection; shared with `status`.
#[derive(Debug)]
pub struct Info {
    pub peer: SocketAddr,
    /// This side.
    pub local: SocketAddr,
    /// How bytes move.
    pub transport: Transport,
    /// The peer is a user of this host without privileges: it may be itself, and nobody else by its word alone.
    pub is_local_user: bool,
    /// Whose turn it is when buffers are scarce.
    pub account: Account,
    /// The pool that its payload comes from.
    pub pool: Pool,
    /// Holds reads back while the peer takes none of its answers; told by the channel.
    pub backpressure: Arc<Backpressure>,
    /// Largest message that the peer takes, in bytes without what goes by RDMA Write; set by the channel when the
    /// connection is set up. Zero: nothing limits it but the protocol.
    pub message_out_max: AtomicUsize,
    /// Payload may be [`Pages`]: what leaves is neither looked at nor changed on its way. Set by the channel when the connection is
    /// set up.
    pub takes_pages: AtomicBool,
    /// What went which way.
    pub traffic: Traffic,
    /// Whether its peer has asked for something that it may have.
    pub introduction: Introduction,
    /// How many RDMA Receives it may have posted; `None`: as many as its protocol uses.
    pub receives: Option<Box<dyn ReceiveBudget>>,
    /// Where its operations are counted.
    pub meter: Meter,
    /// What protects it below its protocol.
    pub tls: Tls,
    /// What else there is to know.
    pub facts: Facts,
}

/// IPv4 as IPv4, also where a socket of IPv6 took the connection and has it as `::ffff:a.b.c.d`.
pub fn canonical(at: SocketAddr) -> SocketAddr {
    match at.ip().to_canonical() {
        ip @ std::net::IpAddr::V4(_) => SocketAddr::new(ip, at.port()),
        // As it is, with its zone.
        std::net::IpAddr::V6(_) => at,
    }
}

/// The host that an address counts for, wherever one client is given a share of something: IPv4 by the address, IPv6 by its /64,
/// the smallest network that one host is given (RFC 4291 section 2.5.4), any of whose addresses it may take.
pub fn host_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => IpAddr::V4(ip),
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() >> 64 << 64).into()),
    }
}

impl Info {
    /// Of a new connection, which has a turn of its own at the pool.
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
    /// How many RDMA Receives it may have posted now: `few`, or up to `most`.
    pub(crate) fn receives_allowed(&self, few: u16, most: u16) -> u16 {
        let is_known = self.introduction.is_done();
        self.receives.as_ref().map_or(most, |budget| budget.allowed(is_known, few, most))
    }

    /// Its client has not introduced itself, and may have little until then.
    pub(crate) fn is_stranger(&self) -> bool {
        self.receives.is_some() && !self.introduction.is_done()
    }
}

/// What bounds the RDMA Receives of a connection.
pub trait ReceiveBudget: fmt::Debug + Send + Sync {
    /// How many it may have now: `few` before its client has introduced itself, then up to `most` where there is room.
    fn allowed(&self, is_known: bool, few: u16, most: u16) -> u16;
}

/// Whether the peer of a connection has asked for something that it may have: the protocol says when that is so.
#[derive(Debug, Default)]
pub struct Introduction {
    is_done: AtomicBool,
    done: Notify,
}

impl Introduction {
    /// It has.
    pub fn note(&self) {
        if !self.is_done.swap(true, Ordering::Relaxed) {
            self.done.notify_one();
        }
    }

    /// It had before.
    pub fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Relaxed)
    }

    /// Waits until it has. For one task.
    pub async fn wait(&self) {
        self.done.notified().await;
    }
}

/// What the values of a fact are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactKind {
    /// Any text.
    Text,
    /// A whole number in decimal digits.
    Number,
    /// One of these words.
    One(&'static [&'static str]),
}

impl FactKind {
    /// This is such a value.
    pub fn fits(self, value: &str) -> bool {
        match self {
            Self::Text => true,
            Self::Number => value.parse::<u64>().is_ok(),
            Self::One(words) => words.contains(&value),
        }
    }
}

/// What the layers of a connection have found out about it and its peer, for people: sizes that were agreed on, dialect, user,
/// why something is not as it could be. One value for each name; the names are constants of this program.
#[derive(Debug, Default)]
pub struct Facts(Mutex<Vec<(&'static str, String)>>);

impl Facts {
    /// The dialect of SMB.
    pub const DIALECT: &str = "dialect";
    /// Whether the client of SMB may use several connections: `yes` or `no`.
    pub const MULTICHANNEL: &str = "multichannel";
    /// How many addresses with RDMA the client of SMB was told of, when it asked.
    pub const RDMA_TOLD: &str = "RDMA addresses told";
    /// What protects messages of SMB: `encrypted`, `signed` or `none`.
    pub const PROTECTION: &str = "protection";
    /// How data of SMB that travels by RDMA may be protected: `none`, or what client and server can both do.
    pub const RDMA_TRANSFORMS: &str = "RDMA transforms";
    /// The name by which a client is known on all its connections: `ClientGuid` of SMB.
    pub const CLIENT_ID: &str = "client id";
    /// What the client seems to be.
    pub const CLIENT: &str = "client";

    /// Every name there is, in no order, with what its values are and what they say. docs/status.md is made of it.
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

    /// The name is one of [`Facts::ALL`], and its value is of that kind.
    fn is_known(name: &str, value: &str) -> bool {
        Self::ALL.iter().any(|(known, kind, _)| *known == name && kind.fits(value))
    }

    /// Notes a fact, in place of what was known under this name.
    pub fn note(&self, name: &'static str, value: impl Into<String>) {
        let value = value.into();
        debug_assert!(Self::is_known(name, &value), "{name}: {value}");
        let mut facts = locked(&self.0);
        match facts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => facts.push((name, value)),
        }
    }

    /// What is known under this name.
    pub fn get(&self, name: &str) -> Option<String> {
        let facts = locked(&self.0);
        facts.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    }

    /// All of them, in the order in which they were first noted.
    pub fn list(&self) -> Vec<(&'static str, String)> {
        locked(&self.0).clone()
    }
}

/// Bytes by the way they went. Server's view: `write` is what clients read.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Payload and message bytes by RDMA Write.
    pub rdma_write: AtomicU64,
    /// Payload and message bytes by RDMA Read.
    pub rdma_read: AtomicU64,
    /// Message bytes received inside messages (Sends, or the byte stream).
    pub inline_in: AtomicU64,
    /// Message bytes sent inside messages.
    pub inline_out: AtomicU64,
    /// Sends with Invalidate: made by a server, received by a client.
    pub invalidations: AtomicU64,
    /// Requests received.
    pub requests: AtomicU64,
    /// Messages that wait now because the peer granted no credit for them.
    pub credits_waiting: AtomicU64,
    /// How often messages began to wait for that.
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
    /// What is known of it.
    fn info(&self) -> &Arc<Info>;

    /// Drives both directions; the next whole request. After an error it must not be polled again.
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Request, ChannelError>>;

    /// Drives replies out and what is under way forward, but takes no new request. `Ready(Ok)` once nothing waits to be
    /// sent. For the one who has as many requests in work as it may have.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>>;

    /// Queues the reply to a request. `None` for a request that gets no answer (a dropped duplicate): its credit returns
    /// with the next reply.
    fn reply(&mut self, to: ReplyTo, reply: Option<Reply>);

    /// Reaches this connection from other tasks.
    fn handle(&self) -> Handle;

    /// Answers what can be answered, then closes. `poll_recv` says when it is done.
    fn shutdown(&mut self);
}

/// What other tasks may ask of a connection.
#[derive(Debug)]
pub enum Command {
    /// Send this RPC call to the peer (a callback) and give its reply, the whole RPC message from its xid on. The channel
    /// replaces the first four bytes of `head` by an xid of its own.
    Call {
        /// The call, without bulk data.
        head: Vec<u8>,
        /// Gets the answer.
        answer: oneshot::Sender<Result<Buf, ChannelError>>,
    },
    /// Send this message, which answers no request that waits.
    Push {
        message: Reply,
        /// Told when it has its place among the messages to be sent.
        taken: oneshot::Sender<Result<(), ChannelError>>,
    },
    /// Fetch this memory of the peer by RDMA Read.
    Pull {
        /// What to fetch, in order.
        from: Vec<RemoteSeg>,
        /// Gets the bytes.
        fetched: oneshot::Sender<Result<Vec<Buf>, PullError>>,
    },
    /// Tell how the peer acknowledges what it is sent.
    Silence {
        /// Gets the answer.
        answer: oneshot::Sender<Result<Silence, ChannelError>>,
    },
    /// Close the connection in order.
    Shutdown,
    /// Close the connection at once, whatever was not answered or sent.
    Abort {
        /// The reason, for the log.
        why: String,
    },
}

/// How the peer of a connection acknowledges what it is sent, as the transport beneath the messages sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Silence {
    /// Something was sent that it has not acknowledged.
    pub owes: bool,
    /// Time since its last acknowledgement of anything.
    pub lasts: Duration,
    /// How often in a row the same was sent again because no acknowledgement came.
    pub repeats: u32,
}

/// Reaches a connection from other tasks. Clones are equal; it does not keep the connection alive.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(crate) commands: mpsc::Sender<Command>,
}

impl Handle {
    /// Of a connection that is gone: for servers that are driven without one.
    pub fn detached() -> Self {
        Self { commands: mpsc::channel(1).0 }
    }

    /// Of a connection that somebody else plays: what it is asked to do comes out of the receiver.
    pub fn played() -> (Self, mpsc::Receiver<Command>) {
        let (commands, asked) = mpsc::channel(16);
        (Self { commands }, asked)
    }

    /// Calls the peer over this connection (NFSv4.1 backchannel, RFC 8167 on RDMA) and waits for its reply, at most as long
    /// as the connection lives: the caller sets the deadline.
    pub async fn call(&self, head: Vec<u8>) -> Result<Buf, ChannelError> {
        let (answer, wait) = oneshot::channel();
        self.ask(Command::Call { head, answer }, wait).await
    }

    /// Sends a message that answers no request that waits: an oplock break, or the final answer of a request whose own
    /// reply was the interim one. It goes behind every reply and push that the connection was given before. Ready when it
    /// has its place among the messages to be sent; while the peer does not take what it was sent, that waits. An RPC
    /// channel has no such messages and answers an error.
    ///
    /// A final answer keeps behind its interim one when the task that pushes it begins last: nothing may be awaited between
    /// its start and the return of the interim reply.
    pub async fn push(&self, message: Reply) -> Result<(), ChannelError> {
        let (taken, wait) = oneshot::channel();
        self.ask(Command::Push { message, taken }, wait).await
    }

    /// Fetches all of `from` from the peer's memory by RDMA Read, in order, into buffers of the connection's pool: up to
    /// [`SMB_PAYLOAD_MAX`](crate::limits::SMB_PAYLOAD_MAX) bytes, several buffers when that is more than the largest
    /// holds. Whoever calls holds no other buffer of the pool meanwhile. Memory that the peer does not let us read ends the
    /// connection. An error where no memory comes in time, on a connection without RDMA, and on RPC channels, which fetch what
    /// calls name themselves.
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

    /// Asks the connection to end.
    pub async fn shutdown(&self) {
        // A connection that is gone already needs no telling.
        let _ = self.commands.send(Command::Shutdown).await;
    }

    /// How the peer acknowledges what it is sent. An error where the transport ends the connection by itself when its peer is
    /// silent (RDMA), and on RPC channels.
    pub async fn silence(&self) -> Result<Silence, ChannelError> {
        let (answer, wait) = oneshot::channel();
        self.ask(Command::Silence { answer }, wait).await
    }

    /// Asks the connection to end without a word: its peer hears nothing. Over RDMA as [`Handle::shutdown`].
    pub async fn abort(&self, why: &str) {
        // A connection that is gone already needs no telling.
        let _ = self.commands.send(Command::Abort { why: why.to_owned() }).await;
    }

    /// Waits until the connection has ended.
    pub async fn closed(&self) {
        self.commands.closed().await;
    }

    /// The connection has ended.
    pub fn is_closed(&self) -> bool {
        self.commands.is_closed()
    }
}

/// Finds the bulk data of a message from its first bytes, so that a byte stream can be read straight into place.
/// Implemented by the protocol; pure.
pub trait PayloadLocator: Send + Sync {
    /// `head` is the start of a message of `total` bytes. Says where bulk data begins and how many bytes it has, or `None`
    /// when there is none or `head` is too short to tell: the message is then read as a whole.
    fn bulk(&self, head: &[u8], total: usize) -> Option<(usize, usize)>;

    /// The message of which `head` is the start cannot be answered without its bulk data: without all of it, it cannot be
    /// decrypted, or its arguments cannot be verified. It waits for memory without a limit.
    fn is_sealed(&self, _head: &[u8]) -> bool {
        false
    }
}

/// Answers requests. The serve loop polls the future in place first, and keeps it only if it has to wait.
pub trait Service: Send + Sync + 'static {
    /// One request in, one reply out; `None` drops the request without an answer.
    fn call(&self, body: Buf, read_chunks: Vec<ReadChunkData>)
    -> BoxFuture<'static, Option<Reply>>;
}
