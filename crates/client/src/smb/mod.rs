//! An SMB client: dialects 2.0.2 to 3.1.1, over TCP and over SMB Direct.
//!
//! *Operation.* [`Smb::connect`] negotiates, logs on with NTLMv2 and connects to one share. Every operation is one request and its
//! response; any number may be in progress.
//!
//! *Memory.* Payload above [`DIRECT_MIN`] bytes is placed through RDMA if the connection supports it and the payload can be signed
//! or encrypted like the messages (MS-SMB2 sections 3.2.4.6 and 3.2.4.7); otherwise it is sent inside messages.
//!
//! *Errors.* [`Error::Smb`] has the status that the server returned.

mod caching;
mod channels;
mod compressed;
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
use smb_proto::smb2::{Command, HEADER_LEN, Header, compression, read, transform};

pub use caching::{Break, Caching, OpenHow};
pub use channels::Channels;
pub use files::{Entry, SmbFile};

use crate::connect::{self, CONNECT_SECONDS_MAX, Local};
use crate::error::{Error, Result};
use link::{Answer, Link, Request, RequestBody};
use logon::Binding;

/// Payload of fewer bytes is sent inside the message.
pub const DIRECT_MIN: u32 = 4096;

/// The user that logs on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    /// May be empty.
    pub domain: String,
    pub password: String,
}

/// The settings of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The newest dialect to offer.
    pub dialect: Dialect,
    /// Sign every message.
    pub sign: bool,
    /// Encrypt every message.
    pub seal: bool,
    /// Signing algorithms to offer, the best first (dialect 3.1.1).
    pub signing: &'static [Algorithm],
    /// Ciphers to offer, the best first (dialect 3.1.1).
    pub ciphers: &'static [Cipher],
    /// Offer to sign or encrypt RDMA payload separately; otherwise the payload of signed and encrypted messages is sent inside
    /// them.
    pub rdma_transforms: bool,
    /// Offer compression: READs ask for compressed data, and data of WRITEs is compressed where that makes it shorter. Never over
    /// RDMA.
    pub compression: Option<Compression>,
    /// Announce support of several connections, like clients that look for RDMA.
    pub multichannel: bool,
    /// Identifies this client's machine, so that another connection can reconnect its handles; `None`: a new machine for each
    /// connection.
    pub machine: Option<[u8; 16]>,
    /// The session of this user on a lost connection, or 0: the server ends it first, so that its handles can be reconnected
    /// (MS-SMB2 section 3.3.5.5.3).
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
            compression: None,
            multichannel: false,
            machine: None,
            previous_session: 0,
        }
    }
}

/// How a client offers to compress (dialect 3.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// Numbers of the algorithms, the best first (MS-SMB2 section 2.2.3.1.3).
    pub algorithms: &'static [u16],
    /// Messages may be chains of payloads.
    pub chained: bool,
}

/// The result of the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    pub dialect: Dialect,
    /// Maximum length of one READ, in bytes.
    pub read_max: u32,
    /// Maximum length of one WRITE, in bytes.
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
    /// The settings, with the machine identifier and the negotiated dialect.
    options: Options,
    /// Number of connections that the session has lost, shared by all its users.
    sequence: Arc<AtomicU16>,
    /// Requests through this handle were sent before on a lost connection.
    replays: bool,
}

/// Finds the data of a READ's answer, the ciphertext of an encrypted message, the streams of a compressed one.
struct Answers;

impl PayloadLocator for Answers {
    fn bulk(&self, head: &[u8], total: usize) -> Option<(usize, usize)> {
        let id = head.first_chunk::<4>()?;
        if *id == transform::PROTOCOL_ID {
            return Some((transform::LEN, total.checked_sub(transform::LEN)?));
        }
        if *id == compression::PROTOCOL_ID {
            return Some((compression::LEN, total.checked_sub(compression::LEN)?));
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
    /// Connects, logs on, and connects to a share of the server with the name `server`.
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

    /// Binds a further connection to the same session (MS-SMB2 section 3.2.4.2.3): files opened on one can be used on the other.
    /// The server with the name `server` must have learned of several connections ([`Options::multichannel`]).
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
        let bound = Binding { session: self.session, secure };
        let logon = logon::run(&link, server, user, self.options, Some(bound)).await?;
        let Agreed { read_max, write_max, .. } = logon.agreed;
        let agreed = Agreed { read_max, write_max, ..self.agreed };
        Ok(Self { link, agreed, is_rdma: rdma, ..self.clone() })
    }

    /// Returns information about the connection.
    pub fn info(&self) -> &Arc<Info> {
        self.link.info()
    }

    /// Returns the session number.
    #[must_use]
    pub fn session(&self) -> u64 {
        self.session
    }

    /// Returns the user's maximal access to the share (MS-SMB2 section 2.2.10).
    #[must_use]
    pub fn maximal_access(&self) -> u32 {
        self.maximal_access
    }

    /// Returns the result of the negotiation.
    pub fn agreed(&self) -> Agreed {
        self.agreed
    }

    /// Checks whether payload of this size is placed through RDMA.
    fn is_direct(&self, len: u32) -> bool {
        self.is_rdma && len >= DIRECT_MIN && !self.link.is_inline_only()
    }

    /// Sends a request in this session and share. Fails if the response's status is an error.
    async fn ask(&self, command: Command, charge: u16, ask: RequestBody) -> Result<Answer> {
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
        self.ask(command, 1, RequestBody::Plain(body, Vec::new())).await
    }
}
