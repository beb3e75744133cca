//! Whole connections to an SMB server with memory volumes, before and after logon.

use std::sync::Arc;
use std::time::Duration;

use iobuf::{Buf, Pool, PoolLimits};
use rdma_transport::channel::{Handle, Info, ReadChunkData, Service, Transport};
use smb_auth::ntlm::Credentials;
use smb_auth::{self as auth, Initiator, NtHash};
use smb_proto::smb2::header::Flags;
use smb_proto::smb2::{HEADER_LEN, Header};
use smb_proto::smb2::{negotiate, session_setup, tree_connect};
use smbd_core::server::{Connection, Server};
use smbd_core::server_state::ServerState;
use smbd_core::settings::Settings;
use smbd_core::users::{self, Users};
use vfs::Cred;
use vfs::namespace::Namespace;

use super::share;
use super::smb::fresh;
use super::smb_seeds;

/// A command without a response within this time waits for another client, and there is none.
const WAIT_MAX: Duration = Duration::from_millis(20);
const MESSAGES_MAX: usize = 32;
/// Placeholder in seeds for the file opened last.
const FILE: [u8; 16] = [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];

/// Input: raw messages before logon, each after a 16-bit length.
pub fn smb2_connection(data: &[u8]) {
    let client = Client::new();
    for message in pieces(data) {
        if client.call(message).is_none() {
            return;
        }
    }
}

/// Input: commands of a user on a connection of the dialect that the first byte chooses: command, then a 16-bit length, then the
/// body. The other fields of the header are valid unless the command's highest bit is set; then the body is the whole message.
pub fn smb2_session(data: &[u8]) {
    let Some((dialect, mut rest)) = data.split_first() else { return };
    let dialects = [0x202, 0x210, 0x300, 0x302];
    let mut client = Client::new();
    client.log_on(dialects[usize::from(dialect % 4)]);
    for _ in 0..MESSAGES_MAX {
        let Some(([command, len @ ..], more)) = rest.split_first_chunk::<3>() else { return };
        let len = usize::from(u16::from_le_bytes(*len)).min(more.len());
        let (body, more) = more.split_at(len);
        rest = more;
        let body = client.with_open_file(body);
        let done = match command & 0x80 {
            0 => client.command(u16::from(command & 0x1f), &body),
            _ => client.call(&body),
        };
        if done.is_none() {
            return;
        }
    }
}

fn pieces(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (len, more) = data.split_first_chunk()?;
        let len = usize::from(u16::from_le_bytes(*len)).min(more.len());
        let (piece, more) = more.split_at(len);
        data = more;
        Some(piece)
    })
    .take(MESSAGES_MAX)
}

thread_local! {
    #[allow(clippy::expect_used)]
    static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
}

struct OneUser;

impl Users for OneUser {
    fn find(&self, name: &str) -> Option<users::Account> {
        let nt_hash = NtHash::of("pass").0;
        let name = (name == "user").then(|| name.to_owned())?;
        Some(users::Account { name, nt_hash, cred: Cred::root(), rid: 1000 })
    }

    fn guest(&self) -> Cred {
        Cred::root()
    }
}

struct Client {
    connection: Arc<Connection>,
    next_message: u64,
    session: u64,
    tree: u32,
    /// The file opened last.
    open: Option<[u8; 16]>,
}

impl Drop for Client {
    /// As in the gateway when a connection ends: a session and its channels refer to each other until then.
    fn drop(&mut self) {
        RUNTIME.with(|r| r.block_on(self.connection.end()));
    }
}

impl Client {
    fn new() -> Self {
        let (share, _) = RUNTIME.with(|r| share(1 << 22, r));
        let settings = Settings { signing_required: false, ..Settings::default() };
        let namespace = Arc::new(Namespace::new(vec![share]));
        let server = Server::new(ServerState::new(namespace, settings, Arc::new(OneUser)));
        let info = Info::new(
            ([192, 0, 2, 9], 700).into(),
            ([192, 0, 2, 1], 445).into(),
            Transport::Tcp,
            Pool::new(PoolLimits { buffers_max: [16, 4, 4] }),
        );
        let connection = server.connection(Arc::new(info), Handle::detached());
        Self { connection, next_message: 0, session: 0, tree: 0, open: None }
    }

    /// The response to a message; `None` if the server ended the connection.
    fn call(&self, message: &[u8]) -> Option<Vec<u8>> {
        let call = self.connection.call(Buf::from(message.to_vec()), Vec::<ReadChunkData>::new());
        let done =
            RUNTIME.with(|r| r.block_on(async { tokio::time::timeout(WAIT_MAX, call).await }));
        let Ok(reply) = done else { return Some(Vec::new()) };
        let answer: Vec<u8> = reply?.pieces().flatten().copied().collect();
        let marks = [&b"\xfeSMB"[..], b"\xfdSMB"];
        assert!(answer.is_empty() || marks.iter().any(|m| answer.starts_with(m)), "{answer:02x?}");
        Some(answer)
    }

    fn command(&mut self, command: u16, body: &[u8]) -> Option<Vec<u8>> {
        let header = Header {
            credit_charge: 1,
            status: 0,
            command,
            credits: 8,
            flags: Flags(0),
            next: 0,
            message_id: self.next_message,
            tree_or_async: Header::of_tree(self.tree),
            session_id: self.session,
            signature: [0; 16],
        };
        self.next_message += 1;
        let answer = self.call(&[&header.emit()[..], body].concat())?;
        if command == 5
            && Header::parse(&answer).is_ok_and(|h| h.status == 0)
            && let Some(id) = answer.get(HEADER_LEN + 64..HEADER_LEN + 80)
        {
            self.open = id.try_into().ok();
        }
        Some(answer)
    }

    /// Replaces the placeholder in seeds by the open file.
    fn with_open_file(&self, body: &[u8]) -> Vec<u8> {
        let mut body = body.to_vec();
        if let (Some(open), Some(at)) = (self.open, body.windows(16).position(|w| w == FILE)) {
            body[at..at + 16].copy_from_slice(&open);
        }
        body
    }

    #[allow(clippy::expect_used)]
    fn log_on(&mut self, dialect: u16) {
        let offer = negotiate::Request {
            security_mode: 1,
            capabilities: 0x7f,
            client_guid: [7; 16],
            dialects: vec![dialect],
            contexts: vec![],
        };
        let answer = self.command(0, &offer.emit()).expect("an answer to NEGOTIATE");
        let agreed = negotiate::Response::parse(&answer).expect("an answer to NEGOTIATE");
        assert_eq!(agreed.dialect, dialect);
        let account =
            auth::Account { user: "user".into(), domain: String::new(), workstation: "w".into() };
        let credentials =
            Credentials { account, hash: NtHash::of("pass"), target_name: "cifs/gateway".into() };
        let mut initiator = Initiator::new(credentials, fresh());
        let challenge = self.set_up(&initiator.first());
        let (second, _) = initiator.second(&challenge).expect("a challenge");
        self.set_up(&second);
        let path = tree_connect::Request { flags: 0, path: "\\\\gateway\\d".into() };
        let answer = self.command(3, &path.emit()).expect("an answer to TREE_CONNECT");
        let header = Header::parse(&answer).expect("a header");
        assert_eq!(header.status, 0, "TREE_CONNECT");
        self.tree = header.tree_id();
    }

    #[allow(clippy::expect_used)]
    fn set_up(&mut self, token: &[u8]) -> Vec<u8> {
        let request = session_setup::Request {
            flags: 0,
            security_mode: 1,
            capabilities: 1,
            previous_session: 0,
            token,
        };
        let answer = self.command(1, &request.emit()).expect("an answer to SESSION_SETUP");
        let header = Header::parse(&answer).expect("a header");
        assert!([0, 0xc000_0016].contains(&header.status), "SESSION_SETUP: {:#x}", header.status);
        self.session = header.session_id;
        session_setup::Response::parse(&answer).expect("a token").token.to_vec()
    }
}

/// Every request after a header, before logon; and an SMB 1 negotiation.
pub(super) fn connection_seeds() -> Vec<Vec<u8>> {
    let message = |n: u64, command: u8, body: &[u8]| {
        let mut header = [0; HEADER_LEN];
        header[..6].copy_from_slice(b"\xfeSMB\x40\x00");
        header[12] = command;
        header[24..32].copy_from_slice(&n.to_le_bytes());
        let message = [&header[..], body].concat();
        let len = u16::try_from(message.len()).unwrap_or_default();
        [&len.to_le_bytes()[..], &message].concat()
    };
    let bodies = smb_seeds::bodies();
    let hello = message(0, 0, &smb_seeds::negotiate_311().emit());
    let each =
        bodies.iter().map(|(command, body)| [hello.clone(), message(1, *command, body)].concat());
    let smb1 =
        [&b"\x22\x00\xffSMB\x72\0\0\0\0\x18\x53\xc8"[..], &[0; 18], b"\0\x0c\0\x02SMB 2.???\0"]
            .concat();
    each.chain([smb1]).collect()
}

/// Opens a file, then runs each command on it.
pub(super) fn session_seeds() -> Vec<Vec<u8>> {
    let command = |number: u8, body: &[u8]| {
        let len = u16::try_from(body.len()).unwrap_or_default();
        [&[number][..], &len.to_le_bytes(), body].concat()
    };
    let open = command(5, &smb_seeds::create("f"));
    let each = |(number, body): &(u8, Vec<u8>)| {
        [&[*number % 4][..], &open, &command(*number, body), &command(*number, body)].concat()
    };
    smb_seeds::bodies().iter().map(each).collect()
}

#[cfg(test)]
mod tests {
    use smb_proto::smb2::FileId;

    use super::*;

    #[test]
    fn target_client_opens_file() {
        for dialect in [0x202, 0x210, 0x300, 0x302] {
            let mut client = Client::new();
            client.log_on(dialect);
            let answer = client.command(5, &smb_seeds::create("f")).expect("an answer to CREATE");
            let status = Header::parse(&answer).expect("a header").status;
            assert_eq!(status, 0, "CREATE by {dialect:#x}: {status:#x}");
            assert!(client.open.is_some_and(|id| id != FILE));
            assert_eq!(FileId { persistent: 1, volatile: 2 }.emit(), FILE);
        }
    }
}
