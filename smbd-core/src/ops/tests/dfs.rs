//! Shares that reside on other servers: referrals, and responses in their trees (MS-SMB2 section 3.3.5.15.2, MS-DFSC).

use std::sync::Arc;

use iobuf::{Buf, Pool, PoolLimits};
use rdma_transport::channel::{Handle, Info, Transport};
use vfs::mem::MemBackend;
use vfs::namespace::{Enforce, Protocols, Rules, Share, Squash};
use vfs::refer::{Referral, Server};

use crate::conn::Conn;
use crate::harness::{Answered, Client, Harness, create_request};
use crate::open::FileId;
use crate::status::Status;
use crate::wire::dfs::{ReferralRequest, ReferralResponse, STORAGE_SERVERS, Version};
use crate::wire::fsctl::code;
use crate::wire::ioctl::{IS_FSCTL, Request, Response};
use crate::wire::negotiate::{self, CAP_DFS, Dialect};
use crate::wire::negotiate_context::{NegotiateContext, SHA_512};
use crate::wire::{Command, Flags, Header, tree_connect};

/// Returns a share that resides on two servers.
fn archive(backend: Arc<MemBackend>) -> Share {
    let at = |server, smb_path: &str| Referral {
        server,
        nfs_path: "archive".into(),
        smb_path: smb_path.into(),
        rdma: false,
        namespace: false,
    };
    let refers_to = [
        at(Server::Name("gw2.example.org".into()), "archive"),
        at(Server::Ip("192.0.2.3".parse().unwrap()), r"old\archive"),
    ];
    Share {
        name: "Archive".into(),
        id: Share::id_of("Archive"),
        backend,
        read_only: false,
        protocols: Protocols::Both,
        squash: Squash::None,
        nfs_locks: Enforce::Smb,
        clients: None,
        rules: Rules { refers_to: refers_to.into(), ..Rules::default() },
    }
}

/// Adds or changes the share in addition to `data`.
fn with(harness: &Harness, change: impl FnOnce(&mut Share)) {
    let before = harness.core.namespace.shares();
    let old = before.iter().find(|share| share.name == "Archive").cloned();
    let mut share = archive(MemBackend::new(1 << 20).unwrap());
    if let Some(old) = old {
        share.backend = old.backend.clone();
    }
    change(&mut share);
    harness.core.namespace.set_shares(vec![before[0].clone(), Arc::new(share)].into());
}

fn harness() -> Harness {
    let harness = Harness::new();
    with(&harness, |_| {});
    harness
}

pub(super) async fn ask(c: &Client, code: u32, input: &[u8], output_max: u32) -> (Status, Vec<u8>) {
    let file = FileId::PREVIOUS;
    let r = Request { code, file, input, input_max: 0, output_max, flags: IS_FSCTL };
    let a = c.ask(Command::Ioctl, &r.emit()).await;
    let told = Response::parse(&a.message);
    (a.status(), told.map(|r| r.output.to_vec()).unwrap_or_default())
}

fn asking(path: &str) -> ReferralRequest {
    ReferralRequest { max_level: 4, path: path.into(), site: None }
}

async fn why(c: &Client, path: &str) -> Status {
    ask(c, code::DFS_GET_REFERRALS, &asking(path).emit(), 4096).await.0
}

#[tokio::test]
async fn a_path_is_told_with_its_servers_in_their_order() {
    let harness = harness();
    let c = harness.client();
    for (code, input) in [
        (code::DFS_GET_REFERRALS, asking(r"\gw\aRCHIVE\x\y").emit()),
        (code::DFS_GET_REFERRALS_EX, asking(r"\gw\aRCHIVE\x\y").emit_ex()),
    ] {
        let (status, output) = ask(&c, code, &input, 4096).await;
        assert_eq!(status, Status::SUCCESS);
        let told = ReferralResponse::parse(&output).unwrap();
        let wanted = ReferralResponse {
            version: Version::V4,
            path_consumed: 22,
            flags: STORAGE_SERVERS,
            is_root: false,
            ttl: 300,
            dfs_path: r"\gw\aRCHIVE".into(),
            targets: vec![r"\gw2.example.org\archive".into(), r"\192.0.2.3\old\archive".into()],
        };
        assert_eq!(told, wanted);
    }
    let third = ReferralRequest { max_level: 3, ..asking(r"\gw\archive") };
    let (_, output) = ask(&c, code::DFS_GET_REFERRALS, &third.emit(), 4096).await;
    assert_eq!(ReferralResponse::parse(&output).unwrap().version, Version::V3);
    for level in [1, 2] {
        let early = ReferralRequest { max_level: level, ..asking(r"\gw\archive") };
        let (status, output) = ask(&c, code::DFS_GET_REFERRALS, &early.emit(), 4096).await;
        let number = output.get(8).copied().map(u16::from);
        assert_eq!((status, number), (Status::SUCCESS, Some(level)));
    }
    // Room for one referral, then for no referral.
    let one = ask(&c, code::DFS_GET_REFERRALS, &third.emit(), 150).await;
    assert_eq!(ReferralResponse::parse(&one.1).unwrap().targets.len(), 1);
    let none = ask(&c, code::DFS_GET_REFERRALS, &third.emit(), 60).await;
    assert_eq!(none.0, Status::BUFFER_OVERFLOW);
}

#[tokio::test]
async fn nothing_else_is_told() {
    let harness = harness();
    let c = harness.client();
    // These are requests to a domain controller.
    for domain in ["", r"\example.org", "example.org"] {
        assert_eq!(why(&c, domain).await, Status::INVALID_PARAMETER, "{domain}");
    }
    for other in [r"\gw\data", r"\gw\none", r"\example.org\SYSVOL", r"\gw\IPC$"] {
        assert_eq!(why(&c, other).await, Status::NOT_FOUND, "{other}");
    }
    let none = ReferralRequest { max_level: 0, ..asking(r"\gw\archive") };
    let (status, _) = ask(&c, code::DFS_GET_REFERRALS, &none.emit(), 4096).await;
    assert_eq!(status, Status::INVALID_PARAMETER);
    assert_eq!(ask(&c, code::DFS_GET_REFERRALS, &[4], 4096).await.0, Status::INVALID_PARAMETER);
    with(&harness, |share| share.clients = Some(Vec::new()));
    assert_eq!(why(&c, r"\gw\archive").await, Status::NOT_FOUND, "not for this address");
    with(&harness, |share| share.protocols = Protocols::Nfs);
    assert_eq!(why(&c, r"\gw\archive").await, Status::FS_DRIVER_REQUIRED);
}

/// Dialect 3.1.1 requires a signed TREE_CONNECT, so use 3.0.2.
fn client(harness: &Harness) -> Client {
    harness.client_by(0, Dialect::V302, Transport::Tcp)
}

async fn connect(c: &mut Client) -> Answered {
    let request = tree_connect::Request { flags: 0, path: r"\\gw\archive".into() };
    let answer = c.ask(Command::TreeConnect, &request.emit()).await;
    c.tree_id = u32::try_from(answer.header.tree_or_async >> 32).unwrap();
    answer
}

#[tokio::test]
async fn its_tree_says_that_it_is_of_dfs_and_holds_nothing() {
    use tree_connect::{CAP_DFS, DFS, DFS_ROOT};
    let harness = harness();
    let mut c = client(&harness);
    let file = c.open("f").await;
    let told = connect(&mut c).await;
    assert_eq!(told.status(), Status::SUCCESS);
    let response = tree_connect::Response::parse(&told.message).unwrap();
    assert_eq!((response.flags, response.capabilities), (DFS | DFS_ROOT, CAP_DFS));
    for name in ["", "x", r"gw\archive\x", "srvsvc"] {
        let body = create_request(name, |_| {}).emit();
        let mut header = c.header(Command::Create, 1);
        for flags in [0, Flags::DFS] {
            header.flags = Flags(flags);
            let answer = c.send(&header, &body).await;
            assert_eq!(answer.status(), Status::PATH_NOT_COVERED, "{name}");
            header = c.header(Command::Create, 1);
        }
    }
    // A file identifier of another tree is invalid here.
    assert_ne!(c.close(file).await, Status::SUCCESS);
    let pipe_wait = crate::wire::fsctl::PipeWait { timeout: None, name: "srvsvc".into() };
    let (status, _) = ask(&c, code::PIPE_WAIT, &pipe_wait.emit(), 16).await;
    assert_eq!(status, Status::INVALID_DEVICE_REQUEST, "and no pipe");
}

#[tokio::test]
async fn its_tree_ends_with_what_made_it() {
    let connected = async |harness: &Harness| {
        let mut c = client(harness);
        assert_eq!(connect(&mut c).await.status(), Status::SUCCESS);
        c
    };
    let changes: [fn(&mut Share); 3] = [
        |share| share.rules.refers_to = Arc::new([]),
        |share| share.clients = Some(Vec::new()),
        |share| share.protocols = Protocols::Nfs,
    ];
    for change in changes {
        let harness = harness();
        let _c = connected(&harness).await;
        assert_eq!(crate::reauthorize::reauthorize(&harness.core).await.trees, 0);
        with(&harness, change);
        assert_eq!(crate::reauthorize::reauthorize(&harness.core).await.trees, 1);
    }
    let harness = harness();
    with(&harness, |share| share.clients = Some(Vec::new()));
    assert_eq!(connect(&mut client(&harness)).await.status(), Status::ACCESS_DENIED);
}

async fn negotiated(harness: &Harness, dialect: Dialect) -> u32 {
    let anywhere = std::net::SocketAddr::from(([127, 0, 0, 1], 445));
    let pool = Pool::new(PoolLimits::of_bytes(1 << 20));
    let info = Info::new(anywhere, anywhere, Transport::Tcp, pool);
    let conn = Arc::new(Conn::new(Arc::new(info), Handle::detached()));
    let preauth = NegotiateContext::Preauth { algorithms: vec![SHA_512], salt: &[1; 32] };
    let contexts = if dialect == Dialect::V311 { vec![preauth] } else { Vec::new() };
    let dialects = vec![dialect.number()];
    let request = negotiate::Request { dialects, contexts, ..Default::default() };
    let header =
        Header { session_id: 0, message_id: 0, ..harness.client().header(Command::Negotiate, 1) };
    let mut message = Header { tree_or_async: 0, ..header }.emit().to_vec();
    message.extend(request.emit());
    let reply = crate::compound::call(harness.core.clone(), conn, Buf::from(message), Vec::new());
    let answer = Answered::of(reply.await.expect("an answer"));
    assert_eq!(answer.status(), Status::SUCCESS);
    negotiate::Response::parse(&answer.message).unwrap().capabilities
}

#[tokio::test]
async fn clients_are_told_where_there_is_something_to_ask() {
    for dialect in [Dialect::V202, Dialect::V302, Dialect::V311] {
        assert_ne!(negotiated(&harness(), dialect).await & CAP_DFS, 0, "{dialect:?}");
        assert_eq!(negotiated(&Harness::new(), dialect).await & CAP_DFS, 0, "{dialect:?}");
    }
}
