//! An SMB client: dialects 2.0.2 to 3.1.1, over TCP and over SMB Direct.
//!
//! *Operation.* [`Smb::connect`] negotiates, logs on by NTLMv2 and connects to one share. Every operation is one request and its
//! answer; any number may be under way.
//!
//! *Memory.* Payload above [`DIRECT_MIN`] bytes travels by RDMA where the connection has it and payload can be signed or sealed
//! as the messages are (MS-SMB2 sections 3.2.4.6 and 3.2.4.7); else inside the messages.
//!
//! *Errors.* [`Error::Smb`] is what the server answered.

mod caching;
mod channels;
mod files;
mod link;
mod logon;
mod persistent;
mod secure;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rdma_transport::channel::{Info, PayloadLocator, Transport};
use rdma_transport::smbdirect::SmbDirectCaller;
use rdma_transport::tcp::TcpMessages;
use smb_crypto::seal::Cipher;
use smb_crypto::sign::Algorithm;
use smb_proto::NtStatus;
use smb_proto::smb2::negotiate::Dialect;
use smb_proto::smb2::{Command, HEADER_LEN, Header, read, transform};

pub use caching::{Break, Caching, OpenHow};
pub use channels::Channels;
pub use files::{Entry, SmbFile};

use crate::connect::{self, CONNECT_SECONDS_MAX, Local};
use crate::error::{Error, Result};
use link::{Answer, Ask, Link, Request};
use logon::Bound;

/// Payload of fewer bytes travels inside the message.
pub const DIRECT_MIN: u32 = 4096;

/// Who logs on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub name: String,
    /// Domain; may be empty.
    pub domain: String,
    /// Password.
    pub password: String,
}

/// What a client insists on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The newest dialect that is offered.
    pub dialect: Dialect,
    /// Sign every message.
    pub sign: bool,
    /// Encrypt every message.
    pub seal: bool,
    /// Signing algorithms that are offered, the best first (dialect 3.1.1).
    pub signing: &'static [Algorithm],
    /// Ciphers that are offered, the best first (dialect 3.1.1).
    pub ciphers: &'static [Cipher],
    /// Offer to sign or encrypt payload that goes by RDMA by itself; without it payload of signed and encrypted messages travels
    /// inside them.
    pub rdma_transforms: bool,
    /// Say that there may be several connections, as clients do that look for RDMA.
    pub multichannel: bool,
    /// Names this client's machine, so that handles can be taken up again by another connection; without it the connection is of a
    /// machine of its own.
    pub machine: Option<[u8; 16]>,
    /// The session that this user had by a connection that was lost, or 0: the server ends it first, so that its handles can be
    /// taken up (MS-SMB2 section 3.3.5.5.3).
    pub previous_session: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dialect: Dialect::V311,
            sign: false,
            seal: false,
            signing: &[Algorithm::AesGmac, Algorithm::AesCmac, Algorithm::HmacSha256],
            ciphers: &[Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Aes128Ccm, Cipher::Aes256Ccm],
            rdma_transforms: true,
            multichannel: false,
            machine: None,
            previous_session: 0,
        }
    }
}

/// What was negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The dialect.
    pub dialect: Dialect,
    /// Most bytes of one READ.
    pub read_max: u32,
    /// Most bytes of one WRITE.
    pub write_max: u32,
    /// Messages are signed.
    pub signed: bool,
    /// Messages are encrypted.
    pub sealed: bool,
}

/// A share of a server.
#[derive(Clone)]
pub struct Smb {
    link: Link,
    session: u64,
    tree: u32,
    maximal_access: u32,
    agreed: Agreed,
    is_rdma: bool,
    /// With the name of this machine and the dialect that was agreed on.
    options: Options,
    /// How often the session has lost a connection, to all who use it.
    sequence: Arc<AtomicU16>,
    /// What is asked by this handle was sent before, by a connection that was lost.
    replays: bool,
}

/// Finds the data of a READ's answer, and the ciphertext of an encrypted message.
struct Answers;

impl PayloadLocator for Answers {
    fn bulk(&self, head: &[u8], total: usize) -> Option<(usize, usize)> {
        let id = head.first_chunk::<4>()?;
        if *id == transform::PROTOCOL_ID {
            return Some((transform::LEN, total.checked_sub(transform::LEN)?));
        }
        let header = Header::parse(head).ok()?;
        if header.command() != Some(Command::Read) || header.status != 0 || header.next != 0 {
            return None;
        }
        let answer = read::Response::parse(head.get(..HEADER_LEN + read::Response::LEN)?).ok()?;
        let at = usize::from(answer.data_offset);
        let len = usize::try_from(answer.data_length).ok().filter(|n| *n > 0)?;
        (at >= HEADER_LEN + read::Response::LEN).then_some((at, len))
    }
}

async fn in_time<T>(what: impl Future<Output = std::io::Result<T>>, to: SocketAddr) -> Result<T> {
    tokio::time::timeout(Duration::from_secs(CONNECT_SECONDS_MAX), what)
        .await
        .map_err(|_| Error::Connect(format!("{to} does not answer")))?
        .map_err(|e| Error::Connect(format!("{to}: {e}")))
}

async fn dial(to: SocketAddr, rdma: bool, local: &Local) -> Result<Link> {
    if !rdma {
        let stream = in_time(connect::plain(to, local), to).await?;
        let from = stream.local_addr().map_err(|e| Error::Connect(e.to_string()))?;
        let info = Arc::new(Info::new(to, from, Transport::Tcp, local.pool.clone()));
        let messages = TcpMessages::new(stream, info, local.recvs.clone(), Arc::new(Answers))
            .map_err(|e| Error::Connect(e.to_string()))?;
        return Ok(Link::over(Box::new(messages)));
    }
    let none = || Error::Connect("this client has no RDMA provider".into());
    let provider = local.rdma.as_ref().ok_or_else(none)?;
    let done = in_time(provider.connect(to, SmbDirectCaller::connect_params()), to).await?;
    let transport = Transport::Rdma(provider.name());
    let info = Arc::new(Info::new(to, done.local, transport, local.pool.clone()));
    let messages = SmbDirectCaller::new(done.qp, info, local.recvs.clone())?;
    Ok(Link::over(Box::new(messages)))
}

impl Smb {
    /// Connects, logs on, and connects to a share of the server that is called `server`.
    pub async fn connect(
        to: SocketAddr,
        rdma: bool,
        (server, share): (&str, &str),
        user: &User,
        options: Options,
        local: &Local,
    ) -> Result<Self> {
        let link = dial(to, rdma, local).await?;
        let machine = match options.machine {
            Some(guid) => guid,
            None => logon::random()?,
        };
        let options = Options { machine: Some(machine), ..options };
        let logon = logon::run(&link, server, user, options, None).await?;
        let smb = Self {
            link,
            session: logon.session,
            tree: 0,
            maximal_access: 0,
            agreed: logon.agreed,
            is_rdma: rdma,
            options: Options { dialect: logon.agreed.dialect, ..options },
            sequence: Arc::default(),
            replays: false,
        };
        smb.tree_connect(server, share).await
    }

    /// Uses a further connection for the same session (MS-SMB2 section 3.2.4.2.3): what is opened by one is open by the other. The
    /// server, which is called `server`, must know of several connections ([`Options::multichannel`]).
    pub async fn bind(
        &self,
        to: SocketAddr,
        rdma: bool,
        server: &str,
        user: &User,
        local: &Local,
    ) -> Result<Self> {
        let link = dial(to, rdma, local).await?;
        let none = || Error::Connect("a session without keys has one connection".into());
        let secure = self.link.secured().ok_or_else(none)?;
        let bound = Bound { session: self.session, secure };
        let logon = logon::run(&link, server, user, self.options, Some(bound)).await?;
        let Agreed { read_max, write_max, .. } = logon.agreed;
        let agreed = Agreed { read_max, write_max, ..self.agreed };
        Ok(Self { link, agreed, is_rdma: rdma, ..self.clone() })
    }

    /// What is known of the connection.
    pub fn info(&self) -> &Arc<Info> {
        self.link.info()
    }

    /// The number of its session.
    #[must_use]
    pub fn session(&self) -> u64 {
        self.session
    }

    /// Most that the user is granted in the share (MS-SMB2 section 2.2.10).
    #[must_use]
    pub fn maximal_access(&self) -> u32 {
        self.maximal_access
    }

    /// What was negotiated.
    pub fn agreed(&self) -> Agreed {
        self.agreed
    }

    /// Payload of this many bytes travels by RDMA.
    fn is_direct(&self, len: u32) -> bool {
        self.is_rdma && len >= DIRECT_MIN && !self.link.is_inline_only()
    }

    /// Asks, of this session and share. The answer is an error if its status says so.
    async fn ask(&self, command: Command, charge: u16, ask: Ask) -> Result<Answer> {
        let request = Request {
            command,
            tree: self.tree,
            session: self.session,
            charge,
            sequence: self.sequence.load(Ordering::Relaxed),
            replays: self.replays,
            signer: None,
            ask,
        };
        let answer = self.link.ask(request).await?;
        match NtStatus::of(&answer.header) {
            NtStatus::SUCCESS => Ok(answer),
            status => Err(Error::Smb(command, status)),
        }
    }

    async fn plain(&self, command: Command, body: Vec<u8>) -> Result<Answer> {
        self.ask(command, 1, Ask::Plain(body, Vec::new())).await
    }
}
