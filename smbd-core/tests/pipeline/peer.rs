//! A client that builds every message by hand, so that it can send wrong ones.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use iobuf::{Buf, Pool, PoolLimits};
use rdma_transport::channel::{
    Command as Asked, Handle, Info, ReadChunkData, Reply, Service, Transport,
};
use smb_auth::ntlm::Credentials;
use smb_auth::{self as auth, Fresh, Initiator, NtHash};
use smb_crypto::kdf::{self, Context, Keys};
use smb_crypto::preauth::Preauth;
use smb_crypto::seal::{Cipher, Opener, Sealer};
use smb_crypto::sign::{Algorithm, Sender, Signer};
use smb_proto::smb2::compression::CAPABILITY_CHAINED;
use smb_proto::smb2::create::{self, Disposition, access, share};
use smb_proto::smb2::negotiate::{self, Dialect};
use smb_proto::smb2::negotiate_context::{NegotiateContext, SHA_512};
use smb_proto::smb2::transform::{self, Transform};
use smb_proto::smb2::{Command, FileId, Flags, HEADER_LEN, Header, session_setup, tree_connect};
use smbd_core::server::{Connection, Server};
use smbd_core::server_state::ServerState;
use smbd_core::settings::Settings;
use smbd_core::status::Status;
use smbd_core::users::{Account, Users};
use tokio::sync::mpsc;
use vfs::Cred;
use vfs::mem::MemBackend;
use vfs::namespace::{Enforce, Namespace, Protocols, Share, Squash};

/// `alice` and `bob`, both with this identity for files: a later logon may find them in other groups.
pub(crate) struct Two(pub(crate) Mutex<Cred>);

impl Users for Two {
    fn find(&self, name: &str) -> Option<Account> {
        let name = name.to_lowercase();
        let rid = ["alice", "bob"].iter().position(|n| *n == name)? + 1000;
        Some(Account {
            name,
            nt_hash: NtHash::of("pw").0,
            cred: self.0.lock().unwrap().clone(),
            rid: u32::try_from(rid).unwrap(),
        })
    }

    fn guest(&self) -> Cred {
        Cred { uid: 65534, gid: 65534, groups: Arc::new([]), token: vfs::Token::NONE }
    }
}

/// Starts a server with `data`, in memory, and `secret`, which requires encryption.
pub(crate) fn server(change: impl FnOnce(&mut Settings)) -> Server {
    server_of(Arc::new(Two(Cred::root().into())), change)
}

/// As [`server`], with these users.
pub(crate) fn server_of(users: Arc<dyn Users>, change: impl FnOnce(&mut Settings)) -> Server {
    let share = |name: &str| Share {
        name: name.into(),
        id: Share::id_of(name),
        backend: MemBackend::new(64 << 20).unwrap(),
        read_only: false,
        protocols: Protocols::Both,
        squash: Squash::None,
        nfs_locks: Enforce::Smb,
        clients: None,
        rules: vfs::namespace::Rules::default(),
    };
    let namespace = Namespace::new(vec![share("data"), share("secret")]);
    let mut settings = Settings::default();
    settings.shares.entry("secret".into()).or_default().encrypt = true;
    change(&mut settings);
    Server::new(ServerState::new(Arc::new(namespace), settings, users))
}

/// The offer of a client in NEGOTIATE.
#[derive(Clone)]
pub(crate) struct Offer {
    pub(crate) dialects: Vec<u16>,
    pub(crate) signing: Vec<u16>,
    pub(crate) ciphers: Vec<u16>,
    pub(crate) guid: [u8; 16],
    pub(crate) capabilities: u32,
    /// RDMA transforms; `None`: no context.
    pub(crate) transforms: Option<Vec<u16>>,
    /// Compression algorithms, with chaining; empty: no context.
    pub(crate) compression: Vec<u16>,
}

impl Default for Offer {
    fn default() -> Self {
        Self {
            dialects: Dialect::ALL.iter().map(|d| d.number()).collect(),
            signing: vec![2, 1, 0],
            ciphers: vec![2, 1],
            guid: [7; 16],
            capabilities: 0x7f,
            transforms: None,
            compression: Vec::new(),
        }
    }
}

impl Offer {
    /// Offers only this dialect, as a client that supports no other.
    pub(crate) fn of(dialect: Dialect) -> Self {
        let guid = [dialect.number().to_le_bytes(); 8].as_flattened().try_into().unwrap();
        Self { dialects: vec![dialect.number()], guid, ..Self::default() }
    }

    pub(crate) fn contexts(&self) -> Vec<NegotiateContext<'static>> {
        let mut all = vec![NegotiateContext::Preauth { algorithms: vec![SHA_512], salt: b"salt" }];
        if !self.ciphers.is_empty() {
            all.push(NegotiateContext::Encryption(self.ciphers.clone()));
        }
        if !self.signing.is_empty() {
            all.push(NegotiateContext::Signing(self.signing.clone()));
        }
        if let Some(transforms) = &self.transforms {
            all.push(NegotiateContext::RdmaTransform(transforms.clone()));
        }
        if !self.compression.is_empty() {
            let (flags, algorithms) = (CAPABILITY_CHAINED, self.compression.clone());
            all.push(NegotiateContext::Compression { flags, algorithms });
        }
        all
    }

    pub(crate) fn emit(&self) -> Vec<u8> {
        let is_311 = self.dialects.contains(&Dialect::V311.number());
        negotiate::Request {
            security_mode: negotiate::SIGNING_ENABLED,
            capabilities: self.capabilities,
            client_guid: self.guid,
            dialects: self.dialects.clone(),
            contexts: if is_311 { self.contexts() } else { Vec::new() },
        }
        .emit()
    }
}

#[derive(Clone)]
pub(crate) struct Secrets {
    pub(crate) signer: Arc<Signer>,
    pub(crate) sealer: Option<Arc<Sealer>>,
    pub(crate) opener: Option<Arc<Opener>>,
}

pub(crate) struct Peer {
    pub(crate) connection: Arc<Connection>,
    pub(crate) asked: mpsc::Receiver<Asked>,
    pub(crate) next_id: u64,
    pub(crate) preauth: Preauth,
    pub(crate) dialect: Dialect,
    pub(crate) signing: Algorithm,
    pub(crate) cipher: Option<Cipher>,
    pub(crate) session: u64,
    pub(crate) tree: u32,
    pub(crate) secrets: Option<Secrets>,
    /// Number of RDMA Reads that the server requested.
    pub(crate) pulls: usize,
}

/// One answer as sent.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) header: Header,
    /// The message from its header on.
    pub(crate) bytes: Vec<u8>,
}

impl Answer {
    pub(crate) fn status(&self) -> Status {
        Status::of(&self.header)
    }
}

fn flat(reply: &Reply) -> Vec<u8> {
    reply.pieces().flatten().copied().collect()
}

/// Splits a chain.
pub(crate) fn answers(mut bytes: &[u8]) -> Vec<Answer> {
    let mut all = Vec::new();
    loop {
        let header = Header::parse(bytes).unwrap();
        let next = usize::try_from(header.next).unwrap();
        let len = if next == 0 { bytes.len() } else { next };
        all.push(Answer { header, bytes: bytes[..len].to_vec() });
        if next == 0 {
            return all;
        }
        bytes = &bytes[next..];
    }
}

impl Peer {
    pub(crate) fn connect(server: &Server) -> Self {
        Self::connect_by(server, Transport::Tcp)
    }

    pub(crate) fn connect_by(server: &Server, transport: Transport) -> Self {
        let (handle, asked) = Handle::played();
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 445));
        let pool = Pool::new(PoolLimits::of_bytes(64 << 20));
        let info = Arc::new(Info::new(here, here, transport, pool));
        Self {
            connection: server.connection(info, handle),
            asked,
            next_id: 0,
            preauth: Preauth::new(),
            dialect: Dialect::V202,
            signing: Algorithm::HmacSha256,
            cipher: None,
            session: 0,
            tree: 0,
            secrets: None,
            pulls: 0,
        }
    }

    /// Returns a peer that has negotiated, logged on as alice and connected to `data`.
    pub(crate) async fn ready(server: &Server, offer: &Offer) -> Self {
        let mut peer = Self::connect(server);
        peer.negotiate(offer).await;
        assert_eq!(peer.log_on("alice", "pw").await, Status::SUCCESS);
        assert_eq!(peer.connect_tree("data").await, Status::SUCCESS);
        peer
    }

    /// Sends bytes and returns the bytes of the answer.
    pub(crate) async fn raw(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.raw_with(bytes, Vec::new()).await
    }

    /// Sends bytes, serves reads of client memory, and returns the answer as the transport gets it.
    pub(crate) async fn raw_reply(&mut self, bytes: &[u8], memory: &[u8]) -> Option<Reply> {
        let call = self.connection.call(Buf::from(bytes.to_vec()), Vec::new());
        let mut call = std::pin::pin!(call);
        loop {
            tokio::select! {
                biased;
                reply = &mut call => return reply,
                Some(asked) = self.asked.recv() => match asked {
                    Asked::Pull { from, fetched } => {
                        self.pulls += 1;
                        let len: usize = from.iter().map(|s| s.len as usize).sum();
                        let pieces = memory[..len].chunks(5000).map(|c| Buf::from(c.to_vec()));
                        fetched.send(Ok(pieces.collect())).unwrap();
                    }
                    other => panic!("{other:?}"),
                },
            }
        }
    }

    pub(crate) async fn raw_with(
        &mut self,
        bytes: &[u8],
        read_chunks: Vec<ReadChunkData>,
    ) -> Option<Vec<u8>> {
        let call = self.connection.call(Buf::from(bytes.to_vec()), read_chunks);
        call.await.map(|reply| flat(&reply))
    }

    /// Returns whether the server requested the end of the connection.
    pub(crate) fn ended(&mut self) -> bool {
        matches!(self.asked.try_recv(), Ok(Asked::Shutdown))
    }

    /// Returns the next message that the server sends without a request.
    pub(crate) async fn pushed(&mut self) -> Vec<u8> {
        match self.asked.recv().await.unwrap() {
            Asked::Push { message, taken } => {
                let _ = taken.send(Ok(()));
                flat(&message)
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn header(&mut self, command: Command) -> Header {
        let message_id = self.next_id;
        self.next_id += 1;
        Header {
            credit_charge: u16::from(self.dialect != Dialect::V202),
            status: 0,
            command: command as u16,
            credits: 32,
            flags: Flags::default(),
            next: 0,
            message_id,
            tree_or_async: Header::of_tree(self.tree),
            session_id: self.session,
            signature: [0; 16],
        }
    }

    /// Builds a message, signed if there is a key.
    pub(crate) fn message(&mut self, command: Command, body: &[u8]) -> Vec<u8> {
        let header = self.header(command);
        self.sign(header, body)
    }

    pub(crate) fn sign(&self, mut header: Header, body: &[u8]) -> Vec<u8> {
        if self.secrets.is_some() {
            header.flags.0 |= Flags::SIGNED;
        }
        let mut bytes = [&header.emit()[..], body].concat();
        if let Some(secrets) = &self.secrets {
            let signature = secrets.signer.sign(Sender::Client, &[&bytes]).unwrap();
            bytes[Header::SIGNATURE].copy_from_slice(&signature);
        }
        bytes
    }

    /// Sends one command and returns its answer; checks the signature if there is one.
    pub(crate) async fn ask(&mut self, command: Command, body: &[u8]) -> Answer {
        let message = self.message(command, body);
        let bytes = self.raw(&message).await.expect("an answer");
        self.check(&bytes)
    }

    pub(crate) fn check(&self, bytes: &[u8]) -> Answer {
        let answer = answers(bytes).remove(0);
        if answer.header.flags.has(Flags::SIGNED) {
            let signer = &self.secrets.as_ref().unwrap().signer;
            signer.verify(Sender::Server, &[&answer.bytes]).unwrap();
        }
        answer
    }

    pub(crate) async fn negotiate(&mut self, offer: &Offer) -> Answer {
        let message = self.message(Command::Negotiate, &offer.emit());
        let bytes = self.raw(&message).await.expect("an answer");
        let answer = answers(&bytes).remove(0);
        if answer.status() != Status::SUCCESS {
            return answer;
        }
        self.preauth.update(&[&message]);
        self.preauth.update(&[&bytes]);
        let told = negotiate::Response::parse(&answer.bytes).unwrap();
        self.dialect = Dialect::from_number(told.dialect).unwrap();
        self.signing = if self.dialect.is_3() { Algorithm::AesCmac } else { Algorithm::HmacSha256 };
        let says = told.capabilities & negotiate::CAP_ENCRYPTION != 0;
        self.cipher = says.then_some(Cipher::Aes128Ccm);
        for context in &told.contexts {
            match context {
                NegotiateContext::Signing(s) => {
                    self.signing = Algorithm::from_number(s[0]).unwrap()
                }
                NegotiateContext::Encryption(c) => self.cipher = Cipher::from_number(c[0]),
                _ => {}
            }
        }
        answer
    }

    pub(crate) async fn log_on(&mut self, user: &str, password: &str) -> Status {
        self.set_up(user, password, 0, 0).await
    }

    /// Runs SESSION_SETUP to its end, for any purpose.
    pub(crate) async fn set_up(
        &mut self,
        user: &str,
        password: &str,
        flags: u8,
        previous: u64,
    ) -> Status {
        let credentials = Credentials {
            account: auth::Account {
                user: user.into(),
                domain: String::new(),
                workstation: "PEER".into(),
            },
            hash: NtHash::of(password),
            target_name: "cifs/here".into(),
        };
        let time = 133_000_000_000_000_000;
        let fresh = Fresh { challenge: [3; 8], key: [5; 16], time };
        let mut initiator = Initiator::new(credentials, fresh);
        let mut preauth = self.preauth;
        let body = |token: &[u8]| {
            let r = session_setup::Request {
                flags,
                security_mode: 1,
                capabilities: 0,
                previous_session: previous,
                token,
            };
            r.emit()
        };
        let message = self.message(Command::SessionSetup, &body(&initiator.first()));
        let bytes = self.raw(&message).await.expect("an answer");
        let answer = answers(&bytes).remove(0);
        if answer.status() != Status::MORE_PROCESSING_REQUIRED {
            return answer.status();
        }
        preauth.update(&[&message]);
        preauth.update(&[&bytes]);
        self.session = answer.header.session_id;
        let told = session_setup::Response::parse(&answer.bytes).unwrap();
        let (token, key) = initiator.second(told.token).unwrap();
        let message = self.message(Command::SessionSetup, &body(&token));
        preauth.update(&[&message]);
        let bytes = self.raw(&message).await.expect("an answer");
        let answer = answers(&bytes).remove(0);
        if answer.status() != Status::SUCCESS {
            return answer.status();
        }
        if self.secrets.is_none() || flags & session_setup::BINDING != 0 {
            self.keys(&key, &preauth);
        }
        // The last answer is signed, whatever the request was (MS-SMB2 section 3.3.5.5.3).
        assert!(answer.header.flags.has(Flags::SIGNED));
        self.check(&bytes).status()
    }

    fn keys(&mut self, key: &[u8], preauth: &Preauth) {
        let context = match self.dialect {
            Dialect::V311 => Context::V311(preauth.value()),
            _ => Context::V30,
        };
        let keys = Keys::derive(key, context, self.cipher.unwrap_or(Cipher::Aes128Gcm));
        let signing = if self.dialect.is_3() { keys.signing } else { kdf::session_key(key) };
        let old = self.secrets.take();
        let cipher = self.cipher;
        let seals = |key: &[u8]| cipher.map(|c| Arc::new(Sealer::new(c, key, 1).unwrap()));
        let opens = |key: &[u8]| cipher.map(|c| Arc::new(Opener::new(c, key).unwrap()));
        // A further connection signs with its own key, and encrypts with the session's keys.
        let (sealer, opener) = match old {
            Some(old) => (old.sealer, old.opener),
            None => (seals(&keys.client_to_server), opens(&keys.server_to_client)),
        };
        self.secrets = Some(Secrets {
            signer: Arc::new(Signer::new(self.signing, &signing).unwrap()),
            sealer,
            opener,
        });
    }

    pub(crate) async fn connect_tree(&mut self, share: &str) -> Status {
        let path = format!(r"\\here\{share}");
        let body = tree_connect::Request { flags: 0, path }.emit();
        let answer = self.ask(Command::TreeConnect, &body).await;
        if answer.status() == Status::SUCCESS {
            self.tree = answer.header.tree_id();
        }
        answer.status()
    }

    /// Encrypts a message that is not signed.
    pub(crate) fn seal(&self, message: &[u8]) -> Vec<u8> {
        let sealer = self.secrets.as_ref().unwrap().sealer.as_ref().unwrap();
        let mut header = Transform {
            signature: [0; 16],
            nonce: sealer.nonce(),
            original_len: u32::try_from(message.len()).unwrap(),
            session_id: self.session,
        };
        let mut body = message.to_vec();
        let aad = header.emit();
        header.signature =
            sealer.seal_in_place(&header.nonce, &aad[transform::AAD], &mut [&mut body]).unwrap();
        [&header.emit()[..], &body].concat()
    }

    pub(crate) fn open(&self, bytes: &[u8]) -> Vec<u8> {
        let header = Transform::parse(bytes).unwrap();
        assert_eq!(header.session_id, self.session);
        let opener = self.secrets.as_ref().unwrap().opener.as_ref().unwrap();
        let mut body = bytes[transform::LEN..].to_vec();
        opener
            .open_in_place(
                &header.nonce,
                &bytes[transform::AAD],
                &mut [&mut body],
                &header.signature,
            )
            .unwrap();
        body
    }

    /// Sends one command, encrypted both ways.
    pub(crate) async fn ask_sealed(&mut self, command: Command, body: &[u8]) -> Answer {
        let header = self.header(command);
        let message = self.seal(&[&header.emit()[..], body].concat());
        let bytes = self.raw(&message).await.expect("an answer");
        answers(&self.open(&bytes)).remove(0)
    }
}

/// Builds a CREATE that opens or makes a file with all rights.
pub(crate) fn create(name: &str, options: u32) -> Vec<u8> {
    let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    create::Request {
        oplock_level: 0,
        impersonation: 2,
        access: access::MAXIMUM_ALLOWED,
        attributes: 0,
        share: share::READ | share::WRITE | share::DELETE,
        disposition: Disposition::OpenIf as u32,
        options,
        name: name.into(),
        contexts: Vec::new(),
    }
    .emit()
}

/// Returns the file of a CREATE's answer.
pub(crate) fn file(answer: &Answer) -> FileId {
    assert_eq!(answer.status(), Status::SUCCESS);
    create::Response::parse(&answer.bytes).unwrap().file
}

/// Joins messages to one chain: each but the last padded, with its `NextCommand`.
pub(crate) fn chain(messages: Vec<Vec<u8>>) -> Vec<u8> {
    let last = messages.len() - 1;
    let mut out = Vec::new();
    for (i, mut m) in messages.into_iter().enumerate() {
        if i < last {
            m.resize(m.len().next_multiple_of(8), 0);
            let next = u32::try_from(m.len()).unwrap();
            m[Header::NEXT].copy_from_slice(&next.to_le_bytes());
        }
        out.extend(m);
    }
    assert!(out.len() >= HEADER_LEN);
    out
}
