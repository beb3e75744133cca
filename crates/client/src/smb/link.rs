//! Requests and responses of SMB2 over one connection.
//!
//! *Operation.* One task drives the connection. A request waits for its credits, is numbered, signed or encrypted, and sent;
//! requests that are queued before the driver runs are sent together. An interim response only grants credits.
//!
//! *Memory.* A request owns its payload until the response arrives. Payload for RDMA is registered while the request is in
//! progress; data that is read arrives in pool buffers.
//!
//! *Errors.* The end of the connection ends every request in progress, and every later one, with the same error. A server that
//! sends no response for a minute while requests wait counts as lost.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use iobuf::{Buf, BufMut};
use mutex::locked;
use rdma_transport::channel::{
    ChannelError, Info, Payload, PayloadLocator, Place, RemoteSeg, Reply, Traffic,
};
use rdma_transport::messages::{Message, Messages};
use rdma_transport::verbs::Region;
use smb_crypto::sign::Signer;
use smb_proto::smb2::rdma::Channel;
use smb_proto::smb2::{
    Command, Flags, HEADER_LEN, Header, compression, oplock_break, read, transform, write,
};
use smb_proto::wire::Fault;
use tokio::sync::{mpsc, oneshot};

use super::Answers;
use super::compressed::Compressing;
use super::secure::{self, Secure};
use crate::error::{Error, Result};
use crate::rpc::SilenceTimer;

/// Maximum number of requests in progress per connection.
const REQUESTS_MAX: usize = 4096;
/// Number of messages handled before the driver yields to other tasks.
const EVENTS_PER_TURN: usize = 64;
/// Number of credits that the client tries to obtain.
const CREDITS_GOAL: u32 = 512;
const STATUS_PENDING: u32 = 0x0000_0103;
/// Maximum number of unprocessed breaks.
const BREAKS_MAX: usize = 256;

/// Returns the error for a malformed response.
pub(super) fn malformed(fault: Fault) -> Error {
    Error::Protocol(format!("the answer: {fault}"))
}

/// The contents of a request.
pub(super) enum RequestBody {
    /// A body followed by payload.
    Plain(Vec<u8>, Vec<Buf>),
    /// A READ whose data the server writes into these buffers.
    Read(read::Request, Vec<BufMut>),
    /// A WRITE whose data the server reads from these buffers.
    Write(write::Request, Vec<Buf>),
}

/// A request.
pub(super) struct Request {
    pub(super) command: Command,
    pub(super) tree: u32,
    pub(super) session: u64,
    /// Credit charge.
    pub(super) charge: u16,
    /// Number of connections that the session has lost (`ChannelSequence`).
    pub(super) sequence: u16,
    /// The request was sent before on a lost connection (`SMB2_FLAGS_REPLAY_OPERATION`).
    pub(super) replays: bool,
    /// Signs a request that binds the connection to a session, before the connection has its own key.
    pub(super) signer: Option<Arc<Signer>>,
    pub(super) ask: RequestBody,
}

/// A response.
pub(super) struct Answer {
    pub(super) header: Header,
    /// The message from its header on, without bulk data.
    pub(super) message: Buf,
    /// Bulk data from the message.
    pub(super) bulk: Vec<Buf>,
    /// The buffers of [`RequestBody::Read`].
    pub(super) into: Vec<BufMut>,
    /// The request as sent, without payload.
    pub(super) sent: Vec<u8>,
}

struct Waiting {
    answer: oneshot::Sender<Result<Answer>>,
    /// Memory that the request refers to.
    regions: Vec<RemoteSeg>,
    sent: Vec<u8>,
}

type QueuedRequest = (Request, oneshot::Sender<Result<Answer>>);

struct Queue {
    requests: VecDeque<QueuedRequest>,
    under_way: usize,
    ended: Option<ChannelError>,
}

struct Shared {
    queue: Mutex<Queue>,
    driver: AtomicWaker,
    info: Arc<Info>,
    secure: OnceLock<Secure>,
    /// The receiver of breaks, if one was requested.
    breaks: OnceLock<mpsc::Sender<oplock_break::Response>>,
    /// Number of interim responses.
    interims: AtomicU64,
    /// The dialect charges several credits for large requests.
    multi_credit: OnceLock<bool>,
    /// How messages may be compressed, where they may.
    compression: OnceLock<Compressing>,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        locked(&self.queue)
    }
}

/// Ends the driver when the last handle is dropped.
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.queue().ended.get_or_insert(ChannelError::Closed("by this side".into()));
        self.0.driver.wake();
    }
}

/// One connection. Clones share it; dropping the last one closes it.
#[derive(Clone)]
pub(super) struct Link(Arc<Handle>);

impl Link {
    /// Starts a task on the current runtime that drives the connection.
    pub(super) fn over(messages: Box<dyn Messages>) -> Self {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue { requests: VecDeque::new(), under_way: 0, ended: None }),
            driver: AtomicWaker::new(),
            info: messages.info().clone(),
            secure: OnceLock::new(),
            breaks: OnceLock::new(),
            interims: AtomicU64::new(0),
            multi_credit: OnceLock::new(),
            compression: OnceLock::new(),
        });
        let mut driver = Driver {
            shared: shared.clone(),
            messages,
            waiting: HashMap::new(),
            next: 0,
            credits: 1,
            quiet: SilenceTimer::default(),
        };
        tokio::spawn(async move {
            let why = poll_fn(|cx| driver.poll(cx)).await;
            driver.end(why);
        });
        Self(Arc::new(Handle(shared)))
    }

    /// Returns information about the connection.
    pub(super) fn info(&self) -> &Arc<Info> {
        &self.0.0.info
    }

    /// Returns the receiver for breaks of oplocks and leases, which buffers [`BREAKS_MAX`] of them; `None` after the first call.
    pub(super) fn breaks(&self) -> Option<mpsc::Receiver<oplock_break::Response>> {
        let (sender, receiver) = mpsc::channel(BREAKS_MAX);
        self.0.0.breaks.set(sender).is_ok().then_some(receiver)
    }

    /// Returns the number of interim responses (STATUS_PENDING).
    pub(super) fn interims(&self) -> u64 {
        self.0.0.interims.load(Ordering::Relaxed)
    }

    /// Signs or encrypts subsequent messages with these keys.
    pub(super) fn secure(&self, keys: Secure) {
        // A connection of this client has only one session.
        let _ = self.0.0.secure.set(keys);
    }

    /// Returns the message protection, once it is known.
    pub(super) fn secured(&self) -> Option<&Secure> {
        self.0.0.secure.get()
    }

    /// Sets whether large requests may be sent at a charge of several credits.
    pub(super) fn multi_credit(&self, yes: bool) {
        let _ = self.0.0.multi_credit.set(yes);
    }

    /// Messages may be compressed from now on as was agreed.
    pub(super) fn compresses(&self, how: Compressing) {
        if !how.agreed.algorithms.is_empty() {
            let _ = self.0.0.compression.set(how);
        }
    }

    /// How messages may be compressed, where they may.
    pub(super) fn compression(&self) -> Option<&Compressing> {
        self.0.0.compression.get()
    }

    /// Checks whether payload must be sent inside messages.
    pub(super) fn is_inline_only(&self) -> bool {
        self.0.0.secure.get().is_some_and(Secure::is_inline_only)
    }

    /// Sends a request and waits for the response.
    pub(super) async fn ask(&self, request: Request) -> Result<Answer> {
        let (answer, wait) = oneshot::channel();
        {
            let mut queue = self.0.0.queue();
            if let Some(why) = &queue.ended {
                return Err(why.clone().into());
            }
            if queue.under_way >= REQUESTS_MAX {
                return Err(Error::Protocol(format!("{REQUESTS_MAX} requests are under way")));
            }
            queue.under_way += 1;
            queue.requests.push_back((request, answer));
        }
        self.0.0.driver.wake();
        let gone = ChannelError::Closed("the connection is gone".into());
        wait.await.unwrap_or(Err(Error::Down(gone)))
    }
}

struct Driver {
    shared: Arc<Shared>,
    messages: Box<dyn Messages>,
    waiting: HashMap<u64, Waiting>,
    /// Number of the next message.
    next: u64,
    credits: u32,
    quiet: SilenceTimer,
}

impl Driver {
    /// Ready when the connection has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ChannelError> {
        self.shared.driver.register(cx.waker());
        for _ in 0..EVENTS_PER_TURN {
            if let Some(why) = self.send_queued() {
                return Poll::Ready(why);
            }
            match self.messages.poll_message(cx) {
                Poll::Ready(Ok(message)) => {
                    self.quiet.heard = true;
                    if let Err(e) = self.on_message(message) {
                        return Poll::Ready(ChannelError::Closed(e.to_string()));
                    }
                }
                Poll::Ready(Err(why)) => return Poll::Ready(why),
                Poll::Pending => {
                    let quiet = self.quiet.poll(!self.waiting.is_empty(), cx);
                    return quiet.map(|()| ChannelError::Closed("no answer for a minute".into()));
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Sends the requests that credits allow; returns an error if the connection has ended.
    fn send_queued(&mut self) -> Option<ChannelError> {
        loop {
            let shared = self.shared.clone();
            let mut queue = shared.queue();
            if let Some(why) = &queue.ended {
                return Some(why.clone());
            }
            let (first, _) = queue.requests.front()?;
            let charge = u32::from(first.charge.max(1));
            if charge > self.credits && !self.waiting.is_empty() {
                return None;
            }
            let (request, answer) = queue.requests.pop_front()?;
            drop(queue);
            let result = if charge > self.credits {
                Err(Error::Protocol(format!("{charge} credits are never granted")))
            } else {
                self.credits -= charge;
                self.send(request)
            };
            match result {
                Ok((id, regions, sent)) => {
                    self.waiting.insert(id, Waiting { answer, regions, sent });
                }
                Err(e) => self.answer(answer, Err(e)),
            }
        }
    }

    fn answer(&self, to: oneshot::Sender<Result<Answer>>, with: Result<Answer>) {
        self.shared.queue().under_way -= 1;
        // The caller may have given up.
        let _ = to.send(with);
    }

    fn send(&mut self, request: Request) -> Result<(u64, Vec<RemoteSeg>, Vec<u8>)> {
        let id = self.next;
        let (body, data, regions) = self.body(request.ask, id)?;
        self.next += u64::from(request.charge.max(1));
        let multi = self.shared.multi_credit.get().copied().unwrap_or(false);
        let header = Header {
            credit_charge: if multi { request.charge } else { 0 },
            // `ChannelSequence` is in the status field of a request (MS-SMB2 section 2.2.1.2).
            status: u32::from(request.sequence),
            command: request.command as u16,
            credits: u16::try_from(CREDITS_GOAL.saturating_sub(self.credits).max(1)).unwrap_or(1),
            message_id: id,
            tree_or_async: Header::of_tree(request.tree),
            session_id: request.session,
            flags: Flags(if request.replays { Flags::REPLAY } else { 0 }),
            next: 0,
            signature: [0; 16],
        };
        let mut head = header.emit().to_vec();
        head.extend_from_slice(&body);
        let always = request.command == Command::TreeConnect;
        let shrinks = request.command == Command::Write;
        let (head, data) =
            match self.protect(head, data, (always, shrinks), request.signer.as_deref()) {
                Ok(protected) => protected,
                Err(e) => {
                    self.release(&regions);
                    return Err(e);
                }
            };
        let is_hashed = request.session == 0 || request.command == Command::SessionSetup;
        let sent = if is_hashed { head.clone() } else { Vec::new() };
        let at = head.len();
        let payload = Payload { at, data, pages: None, pad: 0, place: Place::Inline };
        let payloads = if payload.is_empty() { Vec::new() } else { vec![payload] };
        let message = Reply { head, payloads, ..Reply::default() };
        Traffic::add(&self.shared.info.traffic.requests, 1);
        self.messages.send(message);
        Ok((id, regions, sent))
    }

    /// Signs a message, compresses it where it `shrinks` and that was agreed on, and seals it; with the session's keys, or with
    /// `signer`.
    fn protect(
        &self,
        mut head: Vec<u8>,
        data: Vec<Buf>,
        (always, shrinks): (bool, bool),
        signer: Option<&Signer>,
    ) -> Result<(Vec<u8>, Vec<Buf>)> {
        let compression = self.shared.compression.get().filter(|_| shrinks);
        let shrink = |(head, data)| match compression {
            Some(compression) => compression.shrink(head, data),
            None => (head, data),
        };
        let pool = &self.shared.info.pool;
        match (self.shared.secure.get(), signer) {
            (Some(secure), _) if secure.seals() => {
                let (head, data) = shrink((head, data));
                secure.seal(pool, head, data, always)
            }
            // A server ends the connection when this one is not signed (MS-SMB2 section 3.3.5.2.4).
            (Some(secure), _) => secure.seal(pool, head, data, always).map(shrink),
            (None, Some(signer)) => {
                let slices: Vec<&[u8]> = data.iter().map(Buf::as_slice).collect();
                secure::sign(signer, &mut head, &slices)?;
                Ok((head, data))
            }
            (None, None) => Ok((head, data)),
        }
    }

    /// Returns the body, the payload that follows it, and the memory that it refers to.
    fn body(&mut self, ask: RequestBody, id: u64) -> Result<(Vec<u8>, Vec<Buf>, Vec<RemoteSeg>)> {
        match ask {
            RequestBody::Plain(body, data) => Ok((body, data, Vec::new())),
            RequestBody::Read(mut read, into) => {
                let mut left = read.length;
                let regions = into.into_iter().map(Region::Writable).collect();
                let mut regions = self.register(regions)?;
                for region in &mut regions {
                    region.len = region.len.min(left);
                    left -= region.len;
                }
                read.descriptors.clone_from(&regions);
                Ok((read.emit(), Vec::new(), regions))
            }
            RequestBody::Write(mut write, mut data) => {
                if let Some(secure) = self.shared.secure.get() {
                    let (pool, inner) = (&self.shared.info.pool, write.channel.unwrap_or_default());
                    (data, write.transform) = secure.protect(pool, id, inner, data)?;
                }
                if write.transform.is_some() {
                    write.channel = Some(Channel::RdmaTransform);
                }
                let regions = data.into_iter().map(Region::Readable).collect();
                let regions = self.register(regions)?;
                write.descriptors.clone_from(&regions);
                Ok((write.emit(), Vec::new(), regions))
            }
        }
    }

    fn register(&mut self, memory: Vec<Region>) -> Result<Vec<RemoteSeg>> {
        let mut regions: Vec<RemoteSeg> = Vec::with_capacity(memory.len());
        for region in memory {
            match self.messages.register(region) {
                Ok(seg) => regions.push(seg),
                Err((why, _)) => {
                    self.release(&regions);
                    return Err(Error::Protocol(format!("memory is not taken: {why:?}")));
                }
            }
        }
        Ok(regions)
    }

    fn release(&mut self, regions: &[RemoteSeg]) {
        regions.iter().for_each(|r| drop(self.messages.release(r.handle)));
    }

    fn on_message(&mut self, message: Message) -> Result<()> {
        let Message { body, read_chunks } = message;
        let mut bulk: Vec<Buf> = read_chunks.into_iter().flat_map(|p| p.data).collect();
        let mut body = body;
        let secure = self.shared.secure.get();
        let was_sealed = body.starts_with(&transform::PROTOCOL_ID);
        if was_sealed {
            let none = || Error::Protocol("an encrypted answer before there are keys".into());
            let inside = std::iter::once(body.slice(transform::LEN.min(body.len())..body.len()));
            let inside = inside.chain(bulk).filter(|p| !p.is_empty()).collect();
            let secure = secure.ok_or_else(none)?;
            (body, bulk) = cut(secure.open(&body, inside)?);
        }
        if body.starts_with(&compression::PROTOCOL_ID) {
            (body, bulk) = self.expand(body, bulk)?;
        }
        if was_sealed && !secure.is_some_and(|secure| secure.is_of_session(&body)) {
            return Ok(());
        }
        let header = Header::parse(&body).map_err(malformed)?;
        if header.message_id == u64::MAX {
            let told = oplock_break::Response::parse(&body).map_err(malformed)?;
            let full = || Error::Protocol(format!("{BREAKS_MAX} breaks wait for an answer"));
            return match self.shared.breaks.get() {
                // The receiver is gone, so the client does not answer breaks.
                Some(to) => match to.try_send(told) {
                    Err(mpsc::error::TrySendError::Full(_)) => Err(full()),
                    _ => Ok(()),
                },
                None => Ok(()),
            };
        }
        let of_session = header.command != Command::SessionSetup as u16;
        let in_clear = secure.filter(|_| !was_sealed && of_session);
        if let Some(secure) = in_clear {
            secure.may_be_in_clear(&header)?;
        }
        self.credits = self.credits.saturating_add(u32::from(header.credits));
        if header.flags.has(Flags::ASYNC) && header.status == STATUS_PENDING {
            self.shared.interims.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        if let Some(secure) = in_clear {
            let bulk = bulk.iter().map(Buf::as_slice);
            secure.check(&header, &std::iter::once(&body[..]).chain(bulk).collect::<Vec<_>>())?;
        }
        let stray = || Error::Protocol(format!("an answer to message {}", header.message_id));
        let waiting = self.waiting.remove(&header.message_id).ok_or_else(stray)?;
        let mut into = self.take_back(&waiting.regions, &header, &body);
        let checked = self.check_placed(&header, &body, &mut bulk, was_sealed, &mut into);
        let answer = checked.map(|()| {
            let sent = waiting.sent;
            Answer { header, message: body, bulk, into, sent }
        });
        self.answer(waiting.answer, answer);
        Ok(())
    }

    /// Expands a compressed answer.
    fn expand(&self, body: Buf, bulk: Vec<Buf>) -> Result<(Buf, Vec<Buf>)> {
        let none = || Error::Protocol("a compressed answer that was not agreed on".into());
        let compression = self.shared.compression.get().ok_or_else(none)?;
        let pieces: Vec<Buf> = std::iter::once(body).chain(bulk).collect();
        Ok(cut(vec![compression.expand(secure::joined(&pieces).filled())?]))
    }

    /// Verifies or decrypts data that was placed through RDMA; the response's transform is not data.
    fn check_placed(
        &self,
        header: &Header,
        body: &Buf,
        bulk: &mut Vec<Buf>,
        was_sealed: bool,
        into: &mut [BufMut],
    ) -> Result<()> {
        let Some(secure) = self.shared.secure.get().filter(|_| !into.is_empty()) else {
            return Ok(());
        };
        if header.command != Command::Read as u16 || header.status != 0 {
            return Ok(());
        }
        let told = read::Response::parse(body).map_err(malformed)?;
        if told.flags & read::RESPONSE_TRANSFORM == 0 {
            return secure.unprotect(was_sealed, None, into);
        }
        let read_chunks = secure::joined(&std::mem::take(bulk));
        let described = match read_chunks.filled() {
            [] => told.data(body).map_err(malformed)?,
            read_chunks => read_chunks,
        };
        secure.unprotect(was_sealed, Some(described), into)
    }

    /// Deregisters the memory of a request, and sets its length according to the response.
    fn take_back(&mut self, regions: &[RemoteSeg], header: &Header, body: &Buf) -> Vec<BufMut> {
        let is_read = header.command == Command::Read as u16 && header.status == 0;
        let got = read::Response::parse(body).ok().filter(|_| is_read);
        let mut left = got.map_or(0, |r| usize::try_from(r.data_remaining).unwrap_or(0));
        let mut moved = 0;
        let mut into = Vec::with_capacity(regions.len());
        for region in regions {
            let len = usize::try_from(region.len).unwrap_or(usize::MAX);
            match self.messages.release(region.handle) {
                Some(Region::Writable(mut buffer)) => {
                    buffer.set_filled(len.min(left));
                    left -= buffer.len();
                    Traffic::add(&self.shared.info.traffic.rdma_write, buffer.len() as u64);
                    into.push(buffer);
                }
                Some(Region::Readable(_)) => moved += u64::from(region.len),
                None => {}
            }
        }
        Traffic::add(&self.shared.info.traffic.rdma_read, moved);
        into
    }

    fn end(&mut self, why: ChannelError) {
        let queued = {
            let mut queue = self.shared.queue();
            queue.ended = Some(why.clone());
            std::mem::take(&mut queue.requests)
        };
        let waiting = std::mem::take(&mut self.waiting);
        let waiting = waiting.into_values().map(|w| w.answer);
        for answer in waiting.chain(queued.into_iter().map(|(_, answer)| answer)) {
            let _ = answer.send(Err(why.clone().into()));
        }
    }
}

/// Maximum length of a message before its payload, in bytes, for clients that must fit all of it into one message.
pub(super) const HEAD_MAX: usize = transform::LEN + HEADER_LEN + 64;

/// Splits a message that arrived in pieces from the data of a READ after it.
fn cut(mut pieces: Vec<Buf>) -> (Buf, Vec<Buf>) {
    let total = pieces.iter().map(Buf::len).sum();
    if let Some(first) = pieces.first_mut()
        && let Some((at, len)) = Answers.bulk(first, total)
        && at <= first.len()
        && at.checked_add(len) == Some(total)
    {
        let message = first.split_to(at);
        return (message, pieces);
    }
    match <[Buf; 1]>::try_from(pieces) {
        Ok([one]) => (one, Vec::new()),
        Err(several) => (secure::joined(&several).freeze(), Vec::new()),
    }
}
