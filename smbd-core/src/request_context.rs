//! One command being answered: what it came with, whom it is for, how it waits.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use audit::Party;
use iobuf::Buf;
use rdma_transport::channel::{ReadChunkData, host_of};
use rdma_transport::count;
use smb_proto::wire::Fault;

use vfs::arbiter::WaitPolicy;
use vfs::audited::Acting;
use vfs::backend::ReadInto;
use vfs::namespace::FileOps;
use vfs::{BoxFuture, VfsError, VfsResult};

use crate::answer::{ERROR_BODY, Message, Seal};
use crate::conn::{Conn, Pending};
use crate::crypto::Failed;
use crate::in_flight::Guard;
use crate::limits::{
    ASYNC_MAX, CREDIT_BYTES, LOCKS_OF_FILE_PER_ADDRESS_MAX, LOCKS_OF_FILE_PER_SESSION_MAX,
    OPENS_OF_FILE_PER_ADDRESS_MAX, OPENS_OF_FILE_PER_SESSION_MAX, SILENT_WAITS_MAX,
    STORAGE_SILENT_MAX, STORAGE_USUAL_MAX,
};
use crate::open::{File, Open};
use crate::parts::Part;
use crate::sequence::Counted;
use crate::server_state::ServerState;
use crate::session::{Channel, Session};
use crate::slot::Slot;
use crate::status::Status;
use crate::tree::Tree;
use crate::violation::Violation;
use crate::wire::file_id::FileId;
use crate::wire::negotiate::Dialect;
use crate::wire::{Command, Flags, HEADER_LEN, Header};

/// One command being answered.
pub struct RequestContext {
    /// What all connections share.
    pub server: Arc<ServerState>,
    /// The connection that it came by.
    pub conn: Arc<Conn>,
    /// Its header.
    pub header: Header,
    /// The message from its header on; bulk data that stands in `read_chunks` is not inside.
    pub message: Buf,
    /// Bulk data that was read into place: offsets count from the header.
    pub read_chunks: Vec<ReadChunkData>,
    /// It came encrypted.
    pub encrypted: bool,
    pub(crate) channel: Option<Arc<Channel>>,
    pub(crate) tree: Option<Arc<Tree>>,
    /// The file of the command before it in a related chain.
    pub(crate) previous: Option<FileId>,
    /// The file that this command turned out to mean.
    pub(crate) meant: OnceLock<FileId>,
    pub(crate) pending: OnceLock<Arc<Pending>>,
    /// The open that the command works with, which counts it until it is answered.
    pub(crate) counted: OnceLock<(Arc<Open>, Counted)>,
    /// Its place among the waiting requests of its client's address.
    waiting: OnceLock<Part>,
    /// See [`RequestContext::outlives_connection`].
    pub(crate) survives: AtomicBool,
    /// See [`RequestContext::waits_silently`].
    silent: AtomicBool,
    /// It has changed bytes through a handle that writes through, and no sync has covered them
    /// ([`crate::ops::bytes::settle`]).
    pub(crate) unsettled: AtomicBool,
    /// Bytes of file data that it moved.
    pub(crate) moved: AtomicU64,
    /// Its answer is to be compressed.
    pub(crate) compresses: AtomicBool,
    pub(crate) slot: Arc<Slot>,
}

impl RequestContext {
    /// The address that what the client takes is counted for.
    pub(crate) fn host(&self) -> Option<IpAddr> {
        Some(host_of(self.conn.info.peer.ip()))
    }

    /// A command that came in clear with all its data inside, of nobody yet.
    pub(crate) fn new(
        server: Arc<ServerState>,
        conn: Arc<Conn>,
        slot: Arc<Slot>,
        header: Header,
        message: Buf,
    ) -> Self {
        Self {
            server,
            conn,
            header,
            message,
            read_chunks: Vec::new(),
            encrypted: false,
            channel: None,
            tree: None,
            previous: None,
            meant: OnceLock::new(),
            waiting: OnceLock::new(),
            pending: OnceLock::new(),
            counted: OnceLock::new(),
            survives: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            unsettled: AtomicBool::new(false),
            moved: AtomicU64::new(0),
            compresses: AtomicBool::new(false),
            slot,
        }
    }

    /// So many bytes of file data were moved.
    pub(crate) fn moved(&self, bytes: u32) {
        self.moved.store(bytes.into(), Ordering::Relaxed);
    }

    /// The client has reached a limit that is no error of its own: counted, named in the log, and told as what it is.
    pub(crate) fn limited(&self, limit: &'static str, most: usize) -> Status {
        count::limited(limit, most, self.conn.info.peer);
        Status::INSUFFICIENT_RESOURCES
    }

    /// The session, and its address, may have one more file open; asked before anything is changed for that.
    pub(crate) fn room_for_an_open(&self) -> Result<(), Status> {
        let most = self.server.settings().opens_per_session;
        if self.server.opens.count_of(self.session()?.id) < most {
            return self.part_of_opens().map(drop);
        }
        count::limited("opens-of-session", most, self.conn.info.peer);
        Err(Status::TOO_MANY_OPENED_FILES)
    }

    /// A place among the opens of the client's address.
    pub(crate) fn part_of_opens(&self) -> Result<Part, Status> {
        let mut part = self.server.opens_by_address.of(self.conn.info.peer);
        part.set(1)?;
        Ok(part)
    }

    /// The session on this connection.
    pub(crate) fn channel(&self) -> Result<&Arc<Channel>, Status> {
        self.channel.as_ref().ok_or(Status::USER_SESSION_DELETED)
    }

    /// The session, and all sessions of its address, may open this file once more; asked before anybody gives way for that.
    pub(crate) fn room_for_an_open_of(&self, file: &File) -> Result<(), Status> {
        let whose = (self.session()?.id, self.conn.info.peer.ip());
        let many = OPENS_OF_FILE_PER_SESSION_MAX;
        let (own, near) = self.server.opens.share_of(file.base().id(), whose, many, |_| 1);
        let met = match () {
            () if own >= OPENS_OF_FILE_PER_SESSION_MAX => {
                ("opens-of-file-by-session", OPENS_OF_FILE_PER_SESSION_MAX)
            }
            () if near >= OPENS_OF_FILE_PER_ADDRESS_MAX => {
                ("opens-of-file-by-address", OPENS_OF_FILE_PER_ADDRESS_MAX)
            }
            () => return Ok(()),
        };
        count::limited(met.0, met.1, self.conn.info.peer);
        Err(Status::TOO_MANY_OPENED_FILES)
    }

    /// The same for one more byte range that this open locks. Counted only where the file has as many locks as one session may.
    pub(crate) fn room_for_a_lock(&self, open: &Open) -> Result<(), Status> {
        let (file, node) = (open.file()?, open.node()?.id());
        let state = self.server.namespace.arbiter().state();
        if state.locks_on(node) < LOCKS_OF_FILE_PER_SESSION_MAX {
            return Ok(());
        }
        let whose = (self.session()?.id, self.conn.info.peer.ip());
        let locks = |o: &Open| o.locks.load(Ordering::Relaxed);
        let (own, near) = self.server.opens.share_of(file.base().id(), whose, 0, locks);
        if own >= LOCKS_OF_FILE_PER_SESSION_MAX {
            return Err(self.limited("locks-of-file-by-session", LOCKS_OF_FILE_PER_SESSION_MAX));
        }
        if near >= LOCKS_OF_FILE_PER_ADDRESS_MAX {
            return Err(self.limited("locks-of-file-by-address", LOCKS_OF_FILE_PER_ADDRESS_MAX));
        }
        Ok(())
    }

    /// The session.
    pub fn session(&self) -> Result<&Arc<Session>, Status> {
        self.channel.as_ref().map(|c| &c.session).ok_or(Status::USER_SESSION_DELETED)
    }

    /// The tree.
    pub fn tree(&self) -> Result<&Arc<Tree>, Status> {
        self.tree.as_ref().ok_or(Status::NETWORK_NAME_DELETED)
    }

    /// Which file a command means: in a related chain that of the command before, whatever the command itself says
    /// (MS-SMB2 section 3.3.5.2.7.2).
    pub fn file_id(&self, id: FileId) -> Result<FileId, Status> {
        let related = self.header.flags.has(Flags::RELATED);
        let id = if related { self.previous.ok_or(Status::INVALID_HANDLE)? } else { id };
        // A command means one file; who asks again means the same.
        let _ = self.meant.set(id);
        Ok(id)
    }

    /// The open that a command means, if it is of this session and tree.
    pub fn open(&self, id: FileId) -> Result<Arc<Open>, Status> {
        let id = self.file_id(id)?;
        let (session, tree) = (self.session()?, self.tree()?);
        let open = self.server.opens.get(id).ok_or(Status::FILE_CLOSED)?;
        if !open.belongs_to(session.id, tree.id) {
            return Err(Status::FILE_CLOSED);
        }
        open.durable.not_replayable();
        self.count(&open)?;
        Ok(open)
    }

    /// What this command waits for is worth waiting for when its connection is lost and its session is not: the client asks for
    /// the outcome by another connection.
    pub(crate) fn outlives_connection(&self) {
        self.survives.store(true, Ordering::Relaxed);
    }

    /// How often the client has lost a connection, as it says.
    pub(crate) fn channel_sequence(&self) -> u16 {
        let b = self.header.status.to_le_bytes();
        if self.conn.dialect().is_3() { u16::from_le_bytes([b[0], b[1]]) } else { 0 }
    }

    /// MS-SMB2 section 3.3.5.2.10.
    fn count(&self, open: &Arc<Open>) -> Result<(), Status> {
        if !self.conn.dialect().is_3() || self.counted.get().is_some() {
            return Ok(());
        }
        let command = self.header.command();
        let changes = matches!(command, Some(Command::Write | Command::SetInfo | Command::Ioctl));
        let replay = self.header.flags.has(Flags::REPLAY);
        let counted = open.sequence.begin(self.channel_sequence(), replay, changes)?;
        // Looked for just above, by the one task that answers this command.
        let _ = self.counted.set((open.clone(), counted));
        Ok(())
    }

    /// `FileOps` for what is done through an open: it waits for holders, and the open's own caching is not in its way.
    pub fn file_ops<'a>(&'a self, open: &'a Open) -> FileOps<'a> {
        let file_ops = self.server.namespace.by_smb(Some(open.party.requester()));
        // READ and WRITE change no listing before the close.
        let data = matches!(self.header.command(), Some(Command::Read | Command::Write));
        let parent = if data { None } else { self.server.leases.parent_of(open) };
        let file_ops = file_ops.waiting(self).from_parent(parent).audited(self);
        file_ops.granted(open.by_list.as_ref(), None).opened_by(&open.cred)
    }

    /// `len` bytes of bulk data at `offset` from the header, wherever they came by. No copy.
    pub fn bulk(&self, offset: usize, len: usize) -> Result<Vec<Buf>, Status> {
        if let Some(read_chunks) = self.read_chunks.iter().find(|p| p.at == offset) {
            if read_chunks.is_missing() {
                return Err(Status::INSUFFICIENT_RESOURCES);
            }
            let have: usize = read_chunks.data.iter().map(Buf::len).sum();
            return if have == len {
                Ok(read_chunks.data.clone())
            } else {
                Err(Status::INVALID_PARAMETER)
            };
        }
        let end = offset.checked_add(len).ok_or(Status::INVALID_PARAMETER)?;
        if offset < HEADER_LEN || end > self.message.len() {
            return Err(Status::INVALID_PARAMETER);
        }
        Ok(vec![self.message.slice(offset..end)])
    }

    /// The bytes of the message in their order, bulk data in its place.
    pub(crate) fn with_pieces<T>(&self, f: impl FnOnce(&[&[u8]]) -> T) -> T {
        if self.read_chunks.is_empty() {
            return f(&[&self.message]);
        }
        let mut pieces = Vec::with_capacity(8);
        let mut from = 0;
        for p in &self.read_chunks {
            let at = p.at.clamp(from, self.message.len());
            pieces.push(&self.message[from..at]);
            pieces.extend(p.data.iter().map(Buf::as_slice));
            from = at;
        }
        pieces.push(&self.message[from..]);
        f(&pieces)
    }

    /// The answer is signed with the connection's key (MS-SMB2 section 3.3.4.1.1).
    pub(crate) fn signs(&self) -> bool {
        let asked = self.header.flags.has(Flags::SIGNED);
        self.channel.as_ref().is_some_and(|c| asked || c.session.signing_required())
    }

    /// Where data is read to that leaves inside the answer: nobody looks at it there unless the answer is signed or encrypted.
    pub(crate) fn unseen(&self) -> &ReadInto {
        if self.encrypted || self.signs() { &self.conn.read_into } else { &self.conn.paged }
    }

    /// Data may go to or come from the peer's memory in clear: when neither the session nor the share encrypts and this message
    /// did not come encrypted.
    pub fn may_place_clear(&self) -> bool {
        let session = self.channel.as_ref().is_some_and(|c| c.session.encrypts());
        let share = self.tree.as_ref().is_some_and(|t| t.settings.encrypt);
        !self.encrypted && !session && !share
    }

    /// Checks that the credits of this request pay for `bytes` of payload, the larger of what it sends and what it may get
    /// (MS-SMB2 section 3.3.5.2.5).
    pub fn check_charge(&self, bytes: u32) -> Result<(), Status> {
        if self.conn.dialect() == Dialect::V202 {
            return Ok(());
        }
        let needed = bytes.saturating_sub(1) / CREDIT_BYTES + 1;
        if needed > u32::from(self.header.credit_charge.max(1)) {
            Violation::CreditCharge.note(&self.conn, &format!("{bytes} bytes"));
            return Err(Status::INVALID_PARAMETER);
        }
        Ok(())
    }

    /// Keeps `guard` until the answer of this command has left.
    pub(crate) fn until_answered(&self, guard: Guard) {
        self.slot.until_left(guard);
    }

    /// This command waits, whether its client is told so or not: CANCEL finds it from now on.
    pub(crate) fn wait(&self) -> &Pending {
        self.pending.get_or_init(|| {
            if let Some(queue) = self.slot.waiting() {
                self.conn.note_chain(queue);
            }
            let survives = self.survives.load(Ordering::Relaxed);
            self.conn.begin_wait(self.header.message_id, self.header.session_id, survives)
        })
    }

    /// It has waited: what it found before may be old.
    pub(crate) fn has_waited(&self) -> bool {
        self.pending.get().is_some()
    }

    /// Its wait, when its client was told of that.
    pub(crate) fn gone_async(&self) -> Option<&Pending> {
        self.pending.get().map(|p| &**p).filter(|p| p.is_async())
    }

    /// Holders that have to answer in time are waited for without an interim answer. Windows makes none for a rename, and clients
    /// that send it in a chain expect the answers together.
    pub(crate) fn waits_silently(&self) {
        self.silent.store(true, Ordering::Relaxed);
    }

    /// It may have an interim answer: in the middle of a chain that is CREATE alone.
    pub(crate) fn may_go_async(&self) -> bool {
        self.header.next == 0 || self.header.command() == Some(Command::Create)
    }

    /// Waits until this request is to be given up, and gives the status to answer: the client cancelled it, its session or tree
    /// ended, the connection is gone. Only after [`RequestContext::wait`] or [`RequestContext::pend`]; waits for ever before.
    pub async fn cancelled(&self) -> Status {
        match self.pending.get() {
            Some(pending) if pending.is_async() => pending.ended().await,
            // The serve loop goes on with this one when its connection has ended, before anybody else is told of that.
            Some(pending) => tokio::select! {
                biased;
                why = pending.ended() => why,
                () = self.conn.handle.closed() => Status::CANCELLED,
            },
            None => std::future::pending().await,
        }
    }
}

impl RequestContext {
    /// The header of an answer (MS-SMB2 section 3.3.4.1).
    pub(crate) fn answer_header(&self, status: Status, credits: u16) -> Header {
        let keep = Flags::RELATED | Flags::PRIORITY | Flags::REPLAY;
        let mut header = Header {
            status: status.0,
            credits,
            flags: Flags(Flags::RESPONSE | self.header.flags.0 & keep),
            next: 0,
            signature: [0; 16],
            ..self.header
        };
        if let Some(pending) = self.gone_async() {
            header.flags.0 |= Flags::ASYNC;
            header.tree_or_async = pending.async_id;
        }
        header
    }

    /// Says to the client that the answer will take a while (STATUS_PENDING), once; to be called just before a wait that may
    /// last. An error when too many requests of this connection wait.
    pub async fn pend(&self) -> Result<(), Status> {
        if self.gone_async().is_some() {
            return Ok(());
        }
        if !self.may_go_async() {
            // MS-SMB2 section 3.3.5.2.7, note on Windows.
            return Err(Status::INTERNAL_ERROR);
        }
        let is_apart = self.slot.is_apart();
        if !is_apart {
            let permit = self.conn.apart.clone().try_acquire_owned();
            let permit = permit.map_err(|_| self.limited("waiting-requests", ASYNC_MAX))?;
            self.slot.go_apart(permit);
        }
        self.wait().go_async();
        let header = self.answer_header(Status::PENDING, self.conn.grant(self.header.credits));
        let mut head = header.emit().to_vec();
        head.extend_from_slice(&ERROR_BODY);
        // Never signed: a signature by AES-GMAC may be made only once for a message id.
        let (seal, compresses) = (Seal::None, false);
        let message = Message { head, bulk: None, invalidate: None, seal, hash: None, compresses };
        self.conn.notices_placed().await;
        let first = self.slot.finish_with(&self.conn, message);
        let first = first.map_err(|Failed| Status::INTERNAL_ERROR)?;
        if is_apart {
            for reply in first {
                // A wait that begins after the connection has ended its waits is told so here.
                if self.conn.push(reply).await.is_err() && !self.wait().survives {
                    self.wait().end(Status::CANCELLED);
                }
            }
        } else {
            self.slot.leave_first(first);
            yield_once().await;
        }
        Ok(())
    }
}

/// Lets the one who polls the message look at its slot.
async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|_| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        Poll::Pending
    })
    .await;
}

impl RequestContext {
    /// Does something that may wait, until it is done or this request is to be given up.
    pub async fn or_cancelled<T>(&self, work: impl Future<Output = T>) -> Result<T, Status> {
        let mut work = std::pin::pin!(work);
        let mut ended = std::pin::pin!(None);
        std::future::poll_fn(|task| {
            if let Poll::Ready(done) = work.as_mut().poll(task) {
                return Poll::Ready(Ok(done));
            }
            // The work has called `wait` or `pend` by now, if it does.
            if self.pending.get().is_none() {
                return Poll::Pending;
            }
            if ended.is_none() {
                ended.set(Some(self.cancelled()));
            }
            match ended.as_mut().as_pin_mut() {
                Some(ended) => ended.poll(task).map(Err),
                None => Poll::Pending,
            }
        })
        .await
    }
}

impl RequestContext {
    /// Does what storage may take long for. The client may cancel it, and when it takes long is told so; not where
    /// [it may not have](Self::may_go_async) an interim answer, or too many requests of the connection wait.
    pub(crate) async fn by_storage<T>(&self, work: impl Future<Output = T>) -> Result<T, Status> {
        let mut work = std::pin::pin!(work);
        if let Poll::Ready(done) = at_once(work.as_mut()).await {
            return Ok(done);
        }
        // What a disk does in its usual time ends before anybody would name it.
        if let Ok(done) = tokio::time::timeout(STORAGE_USUAL_MAX, work.as_mut()).await {
            return Ok(done);
        }
        self.wait();
        let soon = tokio::time::timeout(STORAGE_SILENT_MAX - STORAGE_USUAL_MAX, work.as_mut());
        if let Ok(done) = self.or_cancelled(soon).await? {
            return Ok(done);
        }
        self.tell_if_possible().await;
        self.or_cancelled(work).await
    }

    /// The same for what is done to its end: nobody could say how much of it was done.
    pub(crate) async fn wholly_by_storage<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        if let Poll::Ready(done) = at_once(work.as_mut()).await {
            return done;
        }
        if let Ok(done) = tokio::time::timeout(STORAGE_SILENT_MAX, work.as_mut()).await {
            return done;
        }
        self.tell_if_possible().await;
        work.await
    }

    async fn tell_if_possible(&self) {
        // Nor where what it waits for is its own client, which takes no answers: this one would stand behind them.
        if self.may_go_async() && !self.conn.info.backpressure.is_blocked() {
            // Where it cannot be said, it is so all the same.
            let _ = self.pend().await;
        }
    }
}

/// The first poll of something that mostly need not wait.
async fn at_once<T>(mut work: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    std::future::poll_fn(|task| Poll::Ready(work.as_mut().poll(task))).await
}

/// For the audit trail.
impl vfs::audited::Actor for RequestContext {
    fn acting(&self) -> Acting {
        let party = self.channel.as_ref().map_or_else(Party::default, |c| c.session.party());
        Acting { peer: self.conn.info.peer.ip(), protocol: "smb", party }
    }
}

impl WaitPolicy for RequestContext {
    /// In the middle of a chain there is no interim answer but that of CREATE. Linux renames and links by chains and holds leases
    /// of its own meanwhile, so such a command waits without one: holders have a deadline.
    fn begin(&self) -> BoxFuture<'_, VfsResult<()>> {
        Box::pin(async {
            if self.waiting.get().is_none() {
                let mut part = self.server.waits_by_address.of(self.conn.info.peer);
                part.set(1).map_err(|_| VfsError::Resources)?;
                let _ = self.waiting.set(part);
            }
            // Who waits silently keeps its place in the serve loop, which must go on to read acknowledgements.
            let silent =
                self.silent.load(Ordering::Relaxed) && self.conn.waits() < SILENT_WAITS_MAX;
            if silent || !self.may_go_async() {
                self.wait();
                return Ok(());
            }
            self.pend().await.map_err(|_| VfsError::Cancelled)
        })
    }

    fn ended(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.cancelled().await;
        })
    }
}

impl RequestContext {
    /// The body, by its parser.
    ///
    /// # Errors
    ///
    /// STATUS_INVALID_PARAMETER (MS-SMB2 section 3.3.5); counted and logged with field, rule and offset.
    pub(crate) fn parse<'a, T>(
        &'a self,
        parser: impl FnOnce(&'a [u8]) -> Result<T, Fault>,
    ) -> Result<T, Status> {
        self.parse_part(&self.message, parser)
    }

    /// A part of the body, such as the buffer of SET_INFO, by its parser.
    ///
    /// # Errors
    ///
    /// As of [`Self::parse`]; the offset counts from the start of the part.
    pub(crate) fn parse_part<'a, T>(
        &self,
        part: &'a [u8],
        parser: impl FnOnce(&'a [u8]) -> Result<T, Fault>,
    ) -> Result<T, Status> {
        parser(part).map_err(|fault| self.malformed(fault))
    }

    /// Counts a fault of the format, and logs it. Gives STATUS_INVALID_PARAMETER.
    pub(crate) fn malformed(&self, fault: Fault) -> Status {
        Violation::Format.note(&self.conn, &fault.to_string());
        Status::INVALID_PARAMETER
    }
}

impl Drop for RequestContext {
    fn drop(&mut self) {
        if let Some((open, counted)) = self.counted.get() {
            open.sequence.end(*counted);
        }
        if let Some(pending) = self.pending.get() {
            self.conn.end_wait(pending);
        }
    }
}
