//! The context of one command: its request, its connection, session and tree, and its wait.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use audit::Party;
use iobuf::Buf;
use rates::Admitted;
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
    OPENS_OF_FILE_PER_ADDRESS_MAX, OPENS_OF_FILE_PER_SESSION_MAX, PATH_BYTES_OF_OPEN,
    SILENT_WAITS_MAX, STORAGE_SILENT_MAX, STORAGE_USUAL_MAX,
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

/// The context of one command.
pub struct RequestContext {
    /// State shared by all connections.
    pub server: Arc<ServerState>,
    pub conn: Arc<Conn>,
    pub header: Header,
    /// The message from its header on, without the bulk data in `read_chunks`.
    pub message: Buf,
    /// Bulk data that was read into its final place: offsets count from the header.
    pub read_chunks: Vec<ReadChunkData>,
    /// Bytes of the message from this command on, if others follow.
    pub(crate) behind: usize,
    /// True if the request came encrypted.
    pub encrypted: bool,
    pub(crate) channel: Option<Arc<Channel>>,
    pub(crate) tree: Option<Arc<Tree>>,
    /// The file of the previous command in a related chain.
    pub(crate) previous: Option<FileId>,
    /// The file that this command refers to, once known.
    pub(crate) meant: OnceLock<FileId>,
    pub(crate) pending: OnceLock<Arc<Pending>>,
    /// The open that the command uses, which counts the command until it is answered.
    pub(crate) counted: OnceLock<(Arc<Open>, Counted)>,
    /// Its slot in the quota of waiting requests of the client's address.
    waiting: OnceLock<Part>,
    /// See [`RequestContext::outlives_connection`].
    pub(crate) survives: AtomicBool,
    /// See [`RequestContext::waits_silently`].
    silent: AtomicBool,
    /// True if it changed bytes through a write-through handle and no sync has covered them yet ([`crate::ops::bytes::settle`]).
    pub(crate) unsettled: AtomicBool,
    /// Bytes of file data that it transferred.
    pub(crate) moved: AtomicU64,
    /// Bytes of file data that it copied within the server.
    pub(crate) copied: AtomicU64,
    /// Its pass by the rates, if it asked for one.
    pub(crate) admitted: OnceLock<Admitted>,
    /// True if its answer should be compressed.
    pub(crate) compresses: AtomicBool,
    pub(crate) slot: Arc<Slot>,
}

impl RequestContext {
    /// Returns whether the user of the request has proved who it is.
    pub(crate) fn is_proven(&self) -> bool {
        let user = self.channel.as_ref().and_then(|c| c.session.user());
        user.is_some_and(|user| user.is_proven())
    }

    /// Returns the address whose quota pays for the client's memory.
    pub(crate) fn host(&self) -> Option<IpAddr> {
        Some(host_of(self.conn.info.peer.ip()))
    }

    /// Builds the context of an unencrypted command with all its data inline and no session yet.
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
            behind: 0,
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
            copied: AtomicU64::new(0),
            admitted: OnceLock::new(),
            compresses: AtomicBool::new(false),
            slot,
        }
    }

    /// Notes how many bytes of file data were transferred.
    pub(crate) fn moved(&self, bytes: u32) {
        self.moved.store(bytes.into(), Ordering::Relaxed);
    }

    /// Counts and logs a reached limit that is not an error of the client, and returns the status to answer.
    pub(crate) fn limited(&self, limit: &'static str, most: usize) -> Status {
        count::limited(limit, most, self.conn.info.peer);
        Status::INSUFFICIENT_RESOURCES
    }

    /// Checks that the session and its address may have one more open, with a name of so many bytes. Call it before the command
    /// changes anything.
    pub(crate) fn room_for_an_open(&self, name: usize) -> Result<(), Status> {
        let most = self.server.settings().opens_per_session;
        if self.server.opens.count_of(self.session()?.id) < most {
            return self.part_of_opens(name).map(drop);
        }
        count::limited("opens-of-session", most, self.conn.info.peer);
        Err(Status::TOO_MANY_OPENED_FILES)
    }

    /// Reserves the part of an open with a name of so many bytes in the quota of the client's address.
    pub(crate) fn part_of_opens(&self, name: usize) -> Result<Part, Status> {
        let mut part = self.server.opens_by_address.of(self.conn.info.peer);
        part.set(1 + name / PATH_BYTES_OF_OPEN)?;
        Ok(part)
    }

    /// Returns the session's channel on this connection.
    pub(crate) fn channel(&self) -> Result<&Arc<Channel>, Status> {
        self.channel.as_ref().ok_or(Status::USER_SESSION_DELETED)
    }

    /// Checks that the session, and all sessions of its address, may open this file once more. Call it before any caching is broken
    /// for the command.
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

    /// As [`Self::room_for_an_open_of`], for one more byte range that this open locks. Counts only if the file has as many locks as
    /// one session may hold.
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

    /// Returns the session of the command.
    pub fn session(&self) -> Result<&Arc<Session>, Status> {
        self.channel.as_ref().map(|c| &c.session).ok_or(Status::USER_SESSION_DELETED)
    }

    /// Returns the tree of the command.
    pub fn tree(&self) -> Result<&Arc<Tree>, Status> {
        self.tree.as_ref().ok_or(Status::NETWORK_NAME_DELETED)
    }

    /// Returns the file that a command refers to: in a related chain the file of the previous command, whatever id the command
    /// gives (MS-SMB2 section 3.3.5.2.7.2).
    pub fn file_id(&self, id: FileId) -> Result<FileId, Status> {
        let related = self.header.flags.has(Flags::RELATED);
        let id = if related { self.previous.ok_or(Status::INVALID_HANDLE)? } else { id };
        // A command refers to one file, so later calls set the same value.
        let _ = self.meant.set(id);
        Ok(id)
    }

    /// Returns the open that a command refers to, if it belongs to this session and tree.
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

    /// Lets the wait of this command continue when its connection is lost but its session is not: the client asks for the outcome
    /// over another connection.
    pub(crate) fn outlives_connection(&self) {
        self.survives.store(true, Ordering::Relaxed);
    }

    /// Returns how many lost connections the client reports.
    pub(crate) fn channel_sequence(&self) -> u16 {
        let b = self.header.status.to_le_bytes();
        if self.conn.dialect().is_3() { u16::from_le_bytes([b[0], b[1]]) } else { 0 }
    }

    /// Counts the command on its open (MS-SMB2 section 3.3.5.2.10).
    fn count(&self, open: &Arc<Open>) -> Result<(), Status> {
        if !self.conn.dialect().is_3() || self.counted.get().is_some() {
            return Ok(());
        }
        let command = self.header.command();
        let changes = matches!(command, Some(Command::Write | Command::SetInfo | Command::Ioctl));
        let replay = self.header.flags.has(Flags::REPLAY);
        let counted = open.sequence.begin(self.channel_sequence(), replay, changes)?;
        // It was unset just above, and only one task answers this command.
        let _ = self.counted.set((open.clone(), counted));
        Ok(())
    }

    /// Returns a `FileOps` for work through an open: it waits for conflicting holders, and the open's own caching never conflicts.
    pub fn file_ops<'a>(&'a self, open: &'a Open) -> FileOps<'a> {
        let file_ops = self.server.namespace.by_smb(Some(open.party.requester()));
        // READ and WRITE change no listing before the close.
        let data = matches!(self.header.command(), Some(Command::Read | Command::Write));
        let parent = if data { None } else { self.server.leases.parent_of(open) };
        let file_ops = file_ops.waiting(self).from_parent(parent).audited(self);
        file_ops.granted(open.by_list.as_ref(), None).opened_by(&open.cred)
    }

    /// Returns `len` bytes of bulk data at `offset` from the header, inline or read separately, without a copy.
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

    /// Calls `f` with the bytes of the message in order, bulk data included.
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

    /// Returns whether the answer is signed with the connection's key (MS-SMB2 section 3.3.4.1.1).
    pub(crate) fn signs(&self) -> bool {
        let asked = self.header.flags.has(Flags::SIGNED);
        self.channel.as_ref().is_some_and(|c| asked || c.session.signing_required())
    }

    /// Returns the allocator for data inside the answer. Pages are possible only if the server does not access the data again, that
    /// is, if the answer is neither signed nor encrypted.
    pub(crate) fn unseen(&self) -> &ReadInto {
        if self.encrypted || self.signs() { &self.conn.read_into } else { &self.conn.paged }
    }

    /// Returns whether data may be transferred unencrypted to or from the peer's memory: if neither the session nor the share
    /// encrypts and this message was not encrypted.
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

    /// Registers the wait of this command, with or without an interim answer: from now on CANCEL finds it.
    pub(crate) fn wait(&self) -> &Pending {
        self.pending.get_or_init(|| {
            if let Some(queue) = self.slot.waiting() {
                self.conn.note_chain(queue);
            }
            let survives = self.survives.load(Ordering::Relaxed);
            self.conn.begin_wait(self.header.message_id, self.header.session_id, survives)
        })
    }

    /// Returns whether it has waited, so that earlier results may be stale.
    pub(crate) fn has_waited(&self) -> bool {
        self.pending.get().is_some()
    }

    /// Returns its wait if an interim answer was sent.
    pub(crate) fn gone_async(&self) -> Option<&Pending> {
        self.pending.get().map(|p| &**p).filter(|p| p.is_async())
    }

    /// Waits for holders that must answer in time without an interim answer. Windows sends no interim answer for a rename, and
    /// clients that rename in a chain expect all answers together.
    pub(crate) fn waits_silently(&self) {
        self.silent.store(true, Ordering::Relaxed);
    }

    /// Returns whether it may have an interim answer: in the middle of a chain only CREATE may.
    pub(crate) fn may_go_async(&self) -> bool {
        self.header.next == 0 || self.header.command() == Some(Command::Create)
    }

    /// Waits until this request must be given up, and returns the status to answer: the client cancelled it, its session or tree
    /// ended, or the connection is gone. Call it after [`RequestContext::wait`] or [`RequestContext::pend`]; before that it waits
    /// forever.
    pub async fn cancelled(&self) -> Status {
        match self.pending.get() {
            Some(pending) if pending.is_async() => pending.ended().await,
            // When the connection has ended, the serve loop continues with this request before other waiters are notified.
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
    /// Builds the header of an answer (MS-SMB2 section 3.3.4.1).
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

    /// Sends an interim answer (STATUS_PENDING), once. Call it just before a wait that may be long. Fails if too many requests of
    /// this connection wait.
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
        // Never signed: AES-GMAC allows only one signature per message id.
        let (seal, compresses) = (Seal::None, false);
        let message = Message { head, bulk: None, invalidate: None, seal, hash: None, compresses };
        self.conn.notices_placed().await;
        let first = self.slot.finish_with(&self.conn, message);
        let first = first.map_err(|Failed| Status::INTERNAL_ERROR)?;
        if is_apart {
            for reply in first {
                // A wait that begins after the connection has ended its waits is ended here.
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

/// Lets the task that polls the message check its slot.
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
    /// Runs `work`, which may wait, until it is done or this request must be given up.
    pub async fn or_cancelled<T>(&self, work: impl Future<Output = T>) -> Result<T, Status> {
        let mut work = std::pin::pin!(work);
        let mut ended = std::pin::pin!(None);
        std::future::poll_fn(|task| {
            if let Poll::Ready(done) = work.as_mut().poll(task) {
                return Poll::Ready(Ok(done));
            }
            // If the work waits, it has called `wait` or `pend` by now.
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
    /// Runs work that storage may delay. The client may cancel it and gets an interim answer if it takes long, unless the command
    /// [may not have one](Self::may_go_async) or too many requests of the connection wait.
    pub(crate) async fn by_storage<T>(&self, work: impl Future<Output = T>) -> Result<T, Status> {
        let mut work = std::pin::pin!(work);
        if let Poll::Ready(done) = at_once(work.as_mut()).await {
            return Ok(done);
        }
        // Do not register a wait for work that storage finishes in its usual time.
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

    /// As [`Self::by_storage`], for work that cannot be cancelled because its progress would be unknown.
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
        // Send no interim answer to a client whose connection takes no data either: the answer would queue behind the others.
        if self.may_go_async() && !self.conn.info.backpressure.is_blocked() {
            // If the interim answer fails, the work continues without it.
            let _ = self.pend().await;
        }
    }
}

/// Polls once work that rarely needs to wait.
async fn at_once<T>(mut work: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    std::future::poll_fn(|task| Poll::Ready(work.as_mut().poll(task))).await
}

/// Names the peer and the user for the audit trail.
impl vfs::audited::Actor for RequestContext {
    fn acting(&self) -> Acting {
        let user = self.channel.as_ref().and_then(|c| c.session.user());
        let is_proven = user.as_ref().is_some_and(|user| user.is_proven());
        let party = user.map_or_else(Party::default, |user| user.party());
        Acting { peer: self.conn.info.peer.ip(), protocol: "smb", party, is_proven }
    }
}

impl WaitPolicy for RequestContext {
    /// In the middle of a chain only CREATE has an interim answer. Linux renames and links with chains while it holds leases
    /// itself, so such a command waits without one; the holders have a deadline.
    fn begin(&self) -> BoxFuture<'_, VfsResult<()>> {
        Box::pin(async {
            if self.waiting.get().is_none() {
                let mut part = self.server.waits_by_address.of(self.conn.info.peer);
                part.set(1).map_err(|_| VfsError::Resources)?;
                let _ = self.waiting.set(part);
            }
            // A command that waits silently remains in the serve loop, which must continue to read acknowledgements.
            let silent =
                self.silent.load(Ordering::Relaxed) && self.conn.waits() < SILENT_WAITS_MAX;
            if silent || !self.may_go_async() {
                self.wait();
                return Ok(());
            }
            self.pend().await.map_err(|_| VfsError::Cancelled)
        })
    }

    fn has_waited(&self) -> bool {
        RequestContext::has_waited(self)
    }

    fn ended(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.cancelled().await;
        })
    }
}

impl RequestContext {
    /// Parses the body with `parser`.
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

    /// Parses a part of the body, such as the buffer of SET_INFO.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`]; the offset counts from the start of the part.
    pub(crate) fn parse_part<'a, T>(
        &self,
        part: &'a [u8],
        parser: impl FnOnce(&'a [u8]) -> Result<T, Fault>,
    ) -> Result<T, Status> {
        parser(part).map_err(|fault| self.malformed(fault))
    }

    /// Counts and logs a format error. Returns STATUS_INVALID_PARAMETER.
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
