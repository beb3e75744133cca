//! A server in memory and logged-on clients, for the tests of commands.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use iobuf::{Buf, Pool, PoolLimits};
use rdma_transport::channel::{
    Command as Asked, Handle, Info, Payload, PullError, ReadChunkData, RemoteSeg, Reply, Silence,
    Transport,
};
use recovery::Store;
use smb_compress::message::Agreed;
use tokio::sync::mpsc;
use vfs::Backend;
use vfs::Cred;
use vfs::mem::MemBackend;
use vfs::namespace::{Enforce, Namespace, Protocols, Share, Squash};

use crate::compound;
use crate::conn::{Conn, Negotiated};
use crate::crypto::sign::Algorithm;
use crate::dtyp::mask;
use crate::limits::STORAGE_USUAL_MAX;
use crate::open::FileId;
use crate::server::Server;
use crate::server_state::ServerState;
use crate::session::{Channel, Kind, LogonWay, Terms, User};
use crate::settings::{Settings, ShareSettings};
use crate::status::Status;
use crate::tree::{LastTakeUp, Target, Tree};
use crate::wire::create::{self, Disposition, option, share};
use crate::wire::negotiate::{CAP_PERSISTENT_HANDLES, Dialect};
use crate::wire::{Command, Flags, HEADER_LEN, Header, close, put_utf16};

/// Accounts with a single user, `user` with the password `pw`.
struct One;

impl crate::users::Users for One {
    fn find(&self, name: &str) -> Option<crate::users::Account> {
        let cred = Cred { uid: 0, gid: 0, groups: Arc::new([]), token: vfs::Token::NONE };
        let (nt_hash, name) = (crate::auth::NtHash::of("pw").0, name.to_owned());
        (name == "user").then_some(crate::users::Account { name, nt_hash, rid: 1000, cred })
    }
    fn guest(&self) -> Cred {
        Cred::root()
    }
}

fn continuous(continuous: bool) -> ShareSettings {
    ShareSettings { continuous, ..ShareSettings::default() }
}

/// A server with one share, `data`, in memory.
pub(crate) struct Harness {
    pub(crate) core: Arc<ServerState>,
    /// The compression that later clients negotiate.
    pub(crate) compression: Agreed,
    /// The identities of later clients beside their numbers.
    pub(crate) token: vfs::Token,
}

impl Harness {
    pub(crate) fn new() -> Self {
        Self::on(MemBackend::new(64 << 20).unwrap(), None)
    }

    /// Starts a server over this volume; with a store its share is continuously available.
    pub(crate) fn on(backend: Arc<dyn Backend>, store: Option<Store>) -> Self {
        Self::with_users(backend, store, Arc::new(One))
    }

    /// As [`Harness::on`], with other users.
    pub(crate) fn with_users(
        backend: Arc<dyn Backend>,
        store: Option<Store>,
        users: Arc<dyn crate::users::Users>,
    ) -> Self {
        let share = Share {
            name: "data".into(),
            id: Share::id_of("data"),
            backend,
            read_only: false,
            protocols: Protocols::Both,
            squash: Squash::None,
            nfs_locks: Enforce::Smb,
            clients: None,
            rules: vfs::namespace::Rules::default(),
        };
        let namespace = Arc::new(Namespace::new(vec![share]));
        // The clients here have no signing keys.
        let mut settings = Settings { signing_required: false, ..Settings::default() };
        settings.shares.insert("data".into(), continuous(store.is_some()));
        let core = ServerState::new(namespace, settings, users).with_store(store);
        let core = Server::new(core).core().clone();
        Self { core, compression: Agreed::default(), token: vfs::Token::NONE }
    }

    /// Connects a client of this user over TCP with dialect 3.1.1.
    pub(crate) fn client_as(&self, uid: u32) -> Client {
        self.client_by(uid, Dialect::V311, Transport::Tcp)
    }

    /// Connects a client of the superuser over TCP with dialect 3.1.1.
    pub(crate) fn client(&self) -> Client {
        self.client_as(0)
    }

    pub(crate) fn client_by(&self, uid: u32, dialect: Dialect, transport: Transport) -> Client {
        self.machine(1, uid, dialect, transport)
    }

    /// As [`Harness::client_by`], on the machine with this number.
    pub(crate) fn machine(
        &self,
        guid: u8,
        uid: u32,
        dialect: Dialect,
        transport: Transport,
    ) -> Client {
        self.negotiated(guid, ("user", uid), dialect, transport, false)
    }

    /// Connects a client of the superuser over TCP with dialect 3.1.1, logged on by this name, on the same machine as
    /// [`Harness::client`].
    pub(crate) fn user(&self, name: &str) -> Client {
        self.negotiated(1, (name, 0), Dialect::V311, Transport::Tcp, false)
    }

    /// Connects a client of the superuser over TCP with the POSIX extensions.
    pub(crate) fn posix_client(&self) -> Client {
        self.posix_client_as(0)
    }

    /// As [`Harness::posix_client`], for another user.
    pub(crate) fn posix_client_as(&self, uid: u32) -> Client {
        self.negotiated(1, ("user", uid), Dialect::V311, Transport::Tcp, true)
    }

    fn negotiated(
        &self,
        guid: u8,
        (user, uid): (&str, u32),
        dialect: Dialect,
        transport: Transport,
        posix: bool,
    ) -> Client {
        let (handle, asked) = Handle::played();
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 445));
        let pool = Pool::new(PoolLimits::of_bytes(64 << 20));
        let info = Info::new(anywhere, anywhere, transport, pool);
        let conn = Arc::new(Conn::new(Arc::new(info), handle));
        let io = 8 << 20;
        let persistent = dialect.is_3() && self.core.store.is_some();
        let negotiated = Negotiated {
            dialect,
            client_guid: [guid; 16],
            client_capabilities: 0,
            client_security_mode: 1,
            client_dialects: vec![0x202, dialect.number()],
            capabilities: if persistent { CAP_PERSISTENT_HANDLES } else { 0 },
            security_mode: 1,
            read_max: io,
            write_max: io,
            transact_max: io,
            signing: Algorithm::AesCmac,
            cipher: None,
            transforms: Vec::new(),
            compression: self.compression.clone(),
            posix,
        };
        conn.negotiated.set(negotiated).unwrap();
        conn.window.lock().unwrap().grant(8000, 8000);
        let terms =
            Terms { dialect, client_guid: [guid; 16], signing: Algorithm::AesCmac, cipher: None };
        let session = self.core.sessions.begin(terms).unwrap();
        let cred = Cred { uid, gid: uid, groups: Arc::new([]), token: self.token.clone() };
        let user = User {
            name: user.into(),
            kind: Kind::User,
            cred: cred.clone(),
            rid: 1000,
            way: LogonWay::Account,
        };
        session.log_on(user, None);
        let (session_id, share) = (session.id, self.core.namespace.shares()[0].clone());
        let tree = session.add_tree(|id| Tree {
            last_take_up: LastTakeUp::default(),
            is_dfs: crate::links::is_root(&share),
            home: None,
            id,
            session_id,
            name: "data".into(),
            target: Target::Files(share),
            cred,
            maximal_access: mask::FILE_ALL,
            settings: self.core.settings().share("data"),
        });
        let channel = Arc::new(Channel {
            session: session.clone(),
            conn: Arc::downgrade(&conn),
            signer: None,
        });
        session.add_channel(channel.clone());
        conn.add_channel(channel);
        Client {
            core: self.core.clone(),
            conn,
            session_id,
            tree_id: tree.unwrap().id,
            next_id: AtomicU64::new(0),
            replays: AtomicBool::new(false),
            sequence: AtomicU16::new(0),
            asked: Mutex::new(asked),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) header: Header,
    /// The message from its header on, without bulk data.
    pub(crate) message: Vec<u8>,
    pub(crate) payloads: Vec<Payload>,
    pub(crate) invalidate: Option<u32>,
}

impl Answered {
    pub(crate) fn of(reply: Reply) -> Self {
        Self {
            header: Header::parse(&reply.head).unwrap(),
            message: reply.head,
            payloads: reply.payloads,
            invalidate: reply.invalidate,
        }
    }

    /// Splits a reply into the answers of a chain, none of which has bulk data.
    pub(crate) fn all(reply: &Reply) -> Vec<Self> {
        let (mut all, mut rest) = (Vec::new(), reply.head.as_slice());
        loop {
            let header = Header::parse(rest).unwrap();
            let len = if header.next == 0 { rest.len() } else { header.next as usize };
            let (message, more) = rest.split_at(len);
            all.push(Self::of(Reply::of(message.to_vec())));
            if header.next == 0 {
                return all;
            }
            rest = more;
        }
    }

    pub(crate) fn status(&self) -> Status {
        Status::of(&self.header)
    }

    /// Returns the message with the bulk data that it carries inline.
    pub(crate) fn whole(&self) -> Vec<u8> {
        [&self.message[..], &self.data()].concat()
    }

    pub(crate) fn data(&self) -> Vec<u8> {
        self.payloads.iter().flat_map(|p| &p.data).flat_map(|b| b.to_vec()).collect()
    }

    pub(crate) fn ok(self) -> Result<Self, Status> {
        match self.status() {
            s @ (Status::PENDING | Status::STOPPED_ON_SYMLINK) => Err(s),
            s if s.is_error() => Err(s),
            _ => Ok(self),
        }
    }
}

/// A client that is logged on and connected to the share.
pub(crate) struct Client {
    pub(crate) core: Arc<ServerState>,
    pub(crate) conn: Arc<Conn>,
    pub(crate) session_id: u64,
    pub(crate) tree_id: u32,
    next_id: AtomicU64,
    /// Marks later requests as replays (`SMB2_FLAGS_REPLAY_OPERATION`).
    pub(crate) replays: AtomicBool,
    /// How many lost connections the client reports (`ChannelSequence`).
    pub(crate) sequence: AtomicU16,
    /// Requests of the server to the connection.
    pub(crate) asked: Mutex<mpsc::Receiver<Asked>>,
}

impl Client {
    pub(crate) fn header(&self, command: Command, charge: u16) -> Header {
        Header {
            credit_charge: charge,
            status: u32::from(self.sequence.load(Ordering::Relaxed)),
            command: command as u16,
            credits: charge,
            flags: Flags(if self.replays.load(Ordering::Relaxed) { Flags::REPLAY } else { 0 }),
            next: 0,
            message_id: self.next_id.fetch_add(u64::from(charge), Ordering::Relaxed),
            tree_or_async: Header::of_tree(self.tree_id),
            session_id: self.session_id,
            signature: [0; 16],
        }
    }

    /// Sends one command and returns the first answer, which may be the interim one.
    pub(crate) async fn ask(&self, command: Command, body: &[u8]) -> Answered {
        self.ask_with(command, body, &[]).await
    }

    /// Sends one command with the given header.
    pub(crate) async fn send(&self, header: &Header, body: &[u8]) -> Answered {
        let message = [&header.emit()[..], body].concat();
        let (core, conn) = (self.core.clone(), self.conn.clone());
        let reply = compound::call(core, conn, Buf::from(message), Vec::new()).await;
        Answered::of(reply.expect("an answer"))
    }

    /// Sends one command with bulk data after its body, as in a byte stream.
    pub(crate) async fn ask_with(&self, command: Command, body: &[u8], bulk: &[u8]) -> Answered {
        Answered::of(self.reply(command, body, bulk).await)
    }

    /// As [`Client::ask_with`], but returns the raw reply. The reply counts as not sent until it is dropped.
    pub(crate) async fn reply(&self, command: Command, body: &[u8], bulk: &[u8]) -> Reply {
        let mut message = self.header(command, 128).emit().to_vec();
        message.extend(body);
        let read_chunks = match bulk {
            [] => Vec::new(),
            bulk => vec![ReadChunkData { at: message.len(), data: vec![Buf::from(bulk.to_vec())] }],
        };
        let (core, conn) = (self.core.clone(), self.conn.clone());
        let reply = compound::call(core, conn, Buf::from(message), read_chunks).await;
        reply.expect("an answer")
    }

    /// Sends these commands as one related chain. Returns the first answers to it and the message id of the first command.
    pub(crate) async fn chain(&self, commands: &[(Command, Vec<u8>)]) -> (Vec<Answered>, u64) {
        let mut message = Vec::new();
        let mut first = None;
        for (i, (command, body)) in commands.iter().enumerate() {
            let mut header = self.header(*command, 1);
            let len = (HEADER_LEN + body.len()).next_multiple_of(8);
            header.next = if i + 1 < commands.len() { u32::try_from(len).unwrap() } else { 0 };
            header.flags.0 |= if i > 0 { Flags::RELATED } else { 0 };
            first.get_or_insert(header.message_id);
            let from = message.len();
            message.extend(header.emit());
            message.extend(body);
            message.resize(from + len, 0);
        }
        let (core, conn) = (self.core.clone(), self.conn.clone());
        let reply = compound::call(core, conn, Buf::from(message), Vec::new()).await;
        (Answered::all(&reply.expect("an answer")), first.unwrap())
    }

    /// Cancels the request with this message id or `AsyncId`.
    pub(crate) async fn cancel(&self, message_id: u64, async_id: Option<u64>) {
        let mut header = Header { message_id, ..self.header(Command::Cancel, 0) };
        if let Some(id) = async_id {
            header.flags.0 |= Flags::ASYNC;
            header.tree_or_async = id;
        }
        let mut message = header.emit().to_vec();
        message.extend([4, 0, 0, 0]);
        let (core, conn) = (self.core.clone(), self.conn.clone());
        assert!(compound::call(core, conn, Buf::from(message), Vec::new()).await.is_none());
    }

    /// Cancels the next request once storage has delayed it for longer than usual. Has no effect on a request that does not wait.
    pub(crate) fn cancels_next(&self) -> impl Future<Output = ()> {
        let message_id = self.next_id.load(Ordering::Relaxed);
        async move {
            tokio::time::advance(STORAGE_USUAL_MAX).await;
            for _ in 0..100 {
                if self.conn.waits() > 0 {
                    break;
                }
                tokio::task::yield_now().await;
            }
            self.cancel(message_id, None).await;
        }
    }

    /// Returns the next message that the server sends without a request.
    pub(crate) async fn pushed(&self) -> Answered {
        Answered::of(self.pushed_reply().await)
    }

    /// As [`Client::pushed`], for the answers of a chain.
    pub(crate) async fn pushed_chain(&self) -> Vec<Answered> {
        Answered::all(&self.pushed_reply().await)
    }

    async fn pushed_reply(&self) -> Reply {
        loop {
            let asked = std::future::poll_fn(|cx| self.asked.lock().unwrap().poll_recv(cx)).await;
            match asked.expect("the server holds its handle") {
                Asked::Push { message, taken } => {
                    let _ = taken.send(Ok(()));
                    return message;
                }
                // Report a peer that acknowledges all data.
                Asked::Silence { answer } => drop(answer.send(Ok(Silence::default()))),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Answers the next RDMA Read with these bytes, and returns the segments to read.
    pub(crate) async fn pull_gets(&self, bytes: &[u8]) -> Vec<RemoteSeg> {
        match std::future::poll_fn(|cx| self.asked.lock().unwrap().poll_recv(cx)).await {
            Some(Asked::Pull { from, fetched }) => {
                let _ = fetched.send(Ok(vec![Buf::from(bytes.to_vec())]));
                from
            }
            other => panic!("{other:?}"),
        }
    }

    /// Answers the next RDMA Read without memory.
    pub(crate) async fn pull_gets_no_memory(&self) {
        match std::future::poll_fn(|cx| self.asked.lock().unwrap().poll_recv(cx)).await {
            Some(Asked::Pull { fetched, .. }) => fetched.send(Err(PullError::NoMemory)).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn create(
        &self,
        name: &str,
        change: impl FnOnce(&mut create::Request<'static>),
    ) -> Result<create::Response<'static>, Status> {
        let request = create_request(name, change);
        let answered = self.ask(Command::Create, &request.emit()).await.ok()?;
        let told = create::Response::parse(&answered.message).unwrap();
        let own = |c: &create::Context<'_>| create::Context {
            name: c.name.to_vec().into(),
            data: c.data.to_vec().into(),
        };
        let contexts = told.contexts.iter().map(own).collect();
        Ok(create::Response { contexts, ..told })
    }

    /// Opens or makes a file with all rights.
    pub(crate) async fn open(&self, name: &str) -> FileId {
        self.create(name, |_| {}).await.unwrap().file
    }

    pub(crate) async fn close(&self, file: FileId) -> Status {
        self.ask(Command::Close, &close::Request { flags: 0, file }.emit()).await.status()
    }
}

/// Builds the request of [`Client::create`].
pub(crate) fn create_request(
    name: &str,
    change: impl FnOnce(&mut create::Request<'static>),
) -> create::Request<'static> {
    let mut utf16 = Vec::new();
    put_utf16(&mut utf16, name);
    let mut request = create::Request {
        oplock_level: 0,
        impersonation: 2,
        access: mask::MAXIMUM_ALLOWED,
        attributes: 0,
        share: share::READ | share::WRITE | share::DELETE,
        disposition: Disposition::OpenIf as u32,
        options: 0,
        name: utf16.into(),
        contexts: Vec::new(),
    };
    change(&mut request);
    request
}

/// Makes the open delete its file when it closes.
pub(crate) fn doom(r: &mut create::Request<'static>) {
    r.options |= option::DELETE_ON_CLOSE;
    r.access |= mask::DELETE;
}
