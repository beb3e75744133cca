//! Initial messages and values of SMB: a valid one of each kind.

use smb_auth::ntlm::Credentials;
use smb_auth::{Acceptor, Account, Identity, Initiator, Mechs, NtHash, Policy, Secrets, Step};
use smb_proto::fscc::dir::Level;
use smb_proto::fscc::ea::FullEa;
use smb_proto::fscc::file::FileInfo;
use smb_proto::fscc::mac;
use smb_proto::fscc::quota;
use smb_proto::smb2::create::Context;
use smb_proto::smb2::negotiate_context::NegotiateContext;
use smb_proto::smb2::rdma::{Channel, Protection, Transform};
use smb_proto::smb2::reparse::{Buffer, Reparse};
use smb_proto::smb2::{self, FileId, dfs, fsctl, negotiate};
use smb_proto::{ndr, rpce};
use smbd_core::dtyp::SecurityDescriptor;
use smbd_core::dtyp::{Ace, Acl, FileTime, Sid};

use rdma_transport::verbs::RemoteSeg;

use super::smb::fresh;
use crate::raw::le_words;

const FILE: FileId = FileId { persistent: 1, volatile: 2 };

fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// NEGOTIATE with every context.
pub(super) fn negotiate_311() -> negotiate::Request<'static> {
    negotiate::Request {
        security_mode: 1,
        capabilities: 0x7f,
        client_guid: [9; 16],
        dialects: vec![0x202, 0x210, 0x300, 0x302, 0x311],
        contexts: vec![
            NegotiateContext::Preauth { algorithms: vec![1], salt: &[5; 32] },
            NegotiateContext::Encryption(vec![2, 1, 4, 3]),
            NegotiateContext::Compression { flags: 0, algorithms: vec![1, 2] },
            NegotiateContext::Netname("gateway".into()),
            NegotiateContext::Transport(1),
            NegotiateContext::RdmaTransform(vec![1, 2]),
            NegotiateContext::Signing(vec![2, 1, 0]),
            NegotiateContext::Posix,
        ],
    }
}

/// CREATE of this name, with every context that a client may send.
pub(super) fn create(name: &str) -> Vec<u8> {
    let lease = [&[7; 16][..], &le_words(&[7, 0, 0, 0])].concat();
    let durable = [&le_words(&[0, 0, 0, 0]), &[8; 16][..]].concat();
    let request = smb2::create::Request {
        oplock_level: 0xff,
        impersonation: 2,
        access: 0x0012_019f,
        attributes: 0x80,
        share: 7,
        disposition: 3,
        options: 0x40,
        name: wide(name).into(),
        contexts: vec![
            Context::new(b"RqLs", lease),
            Context::new(b"DH2Q", durable),
            Context::new(b"MxAc", vec![]),
            Context::new(b"QFid", vec![]),
            Context::new(b"AlSi", vec![0, 0, 1, 0, 0, 0, 0, 0]),
            Context::new(b"ExtA", ea()),
            Context::new(b"SecD", descriptor().emit()),
            smb2::aapl::Query { parts: 7, client: 0x3f }.context(),
        ],
    };
    request.emit()
}

fn ea() -> Vec<u8> {
    let one = |name: &[u8]| FullEa { flags: 0, name: name.to_vec(), value: b"value".to_vec() };
    FullEa::emit_list(&[one(b"ONE"), one(b"ANOTHER")])
}

fn descriptor() -> SecurityDescriptor {
    let user = Sid::unix_user(1000);
    SecurityDescriptor {
        owner: Some(user.clone()),
        group: Some(Sid::unix_group(1000)),
        dacl: Some(Acl::new(vec![Ace::allow(user, 0x001f_01ff, 3)])),
        ..SecurityDescriptor::default()
    }
}

fn read() -> smb2::read::Request {
    smb2::read::Request {
        padding: 0x50,
        flags: 0,
        length: 4096,
        offset: 0,
        file: FILE,
        minimum_count: 0,
        channel: Some(Channel::None),
        remaining: 0,
        descriptors: vec![],
    }
}

fn write() -> smb2::write::Request {
    smb2::write::Request {
        data_offset: 0x70,
        length: 5,
        offset: 0,
        file: FILE,
        channel: Some(Channel::None),
        remaining: 0,
        flags: 0,
        descriptors: vec![],
        transform: None,
    }
}

/// Command number, and the body of a valid request.
pub(super) fn bodies() -> Vec<(u8, Vec<u8>)> {
    let path = smb2::tree_connect::Request { flags: 0, path: "\\\\gateway\\d".into() };
    let setup = |token| smb2::session_setup::Request {
        flags: 0,
        security_mode: 1,
        capabilities: 1,
        previous_session: 0,
        token,
    };
    let list = |class| smb2::query_directory::Request {
        class,
        flags: 1,
        file_index: 0,
        file: FILE,
        output_len: 65_536,
        pattern: "*".into(),
    };
    let query = |info_type, class| smb2::query_info::Request {
        info_type,
        class,
        output_len: 1024,
        additional: 7,
        flags: 0,
        file: FILE,
        input: vec![],
    };
    let set = |info_type, class, buffer| smb2::set_info::Request {
        info_type,
        class,
        additional: 4,
        file: FILE,
        buffer,
    };
    let rename = [&le_words(&[1, 0, 0, 0, 6])[..], &wide("new")].concat();
    let change =
        smb2::change_notify::Request { flags: 1, output_len: 4096, file: FILE, filter: 0xfff };
    let element = smb2::lock::Element { offset: 4096, length: 10, flags: 0x12 };
    let lock = smb2::lock::Request {
        sequence_number: 1,
        sequence_index: 2,
        file: FILE,
        locks: vec![element; 2],
    };
    let control = smb2::ioctl::Request {
        code: smb2::fsctl::code::QUERY_ALLOCATED_RANGES,
        file: FILE,
        input: &[0; 16],
        input_max: 0,
        output_max: 4096,
        flags: 1,
    };
    let oplock = smb2::oplock_break::Oplock { level: 1, file: FILE };
    let lease = smb2::oplock_break::Lease { key: [7; 16], state: 1 };
    let mut all = vec![
        (0, negotiate_311().emit()),
        (1, setup(&first_token()).emit()),
        (3, path.emit()),
        (5, create("folder\\file:stream")),
        (6, smb2::close::Request { flags: 1, file: FILE }.emit()),
        (7, smb2::flush::Request::of(FILE).emit()),
        (8, read().emit()),
        (9, [write().emit(), b"hello".to_vec()].concat()),
        (13, smb2::simple::BODY.to_vec()),
        (14, list(37).emit()),
        (14, list(100).emit()),
        (15, change.emit()),
        (16, query(1, 18).emit()),
        (16, query(2, 1).emit()),
        (16, query(3, 0).emit()),
        (17, set(1, 10, rename).emit()),
        (17, set(1, 13, vec![1]).emit()),
        (17, set(3, 0, descriptor().emit()).emit()),
        (10, lock.emit()),
        (11, control.emit()),
        (18, oplock.emit()),
        (18, lease.emit()),
    ];
    all.extend(by_rdma());
    all
}

/// Requests of READ and WRITE whose data is transferred by RDMA.
fn by_rdma() -> [(u8, Vec<u8>); 3] {
    let direct = |segs: usize| vec![RemoteSeg { handle: 7, len: 4096, offset: 0x1000 }; segs];
    let read = smb2::read::Request {
        channel: Some(Channel::RdmaV1Invalidate),
        descriptors: direct(3),
        ..read()
    };
    let write = smb2::write::Request {
        channel: Some(Channel::RdmaV1),
        remaining: 8192,
        length: 0,
        data_offset: 0,
        descriptors: direct(2),
        ..write()
    };
    let transform = Transform {
        channel: Channel::RdmaV1,
        protection: Protection::Signing,
        signature: vec![7; 16],
        nonce: vec![8; 12],
    };
    let signed = smb2::write::Request {
        channel: Some(Channel::RdmaTransform),
        transform: Some(transform),
        ..write.clone()
    };
    [(8, read.emit()), (9, write.emit()), (9, signed.emit())]
}

/// Requests by their commands' numbers.
pub(super) fn messages() -> Vec<Vec<u8>> {
    bodies().into_iter().map(|(command, body)| [vec![command], body].concat()).collect()
}

fn initiator() -> Initiator {
    let account = Account { user: "user".into(), domain: String::new(), workstation: "w".into() };
    let hash = NtHash::of("wrong");
    Initiator::new(Credentials { account, hash, target_name: "cifs/gateway".into() }, fresh())
}

fn first_token() -> Vec<u8> {
    initiator().first()
}

struct Nobody;

impl Secrets for Nobody {
    fn nt_hash(&self, _domain: &str, _user: &str) -> Option<NtHash> {
        None
    }
}

/// The client's two tokens, and the server's challenge.
fn tokens() -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let mut initiator = initiator();
    let mut acceptor: Acceptor<()> =
        Acceptor::new(Identity::standalone("gateway"), fresh(), Policy::default(), Mechs::NTLM);
    let first = initiator.first();
    let Step::Continue(challenge) = acceptor.step(&first, &Nobody) else {
        return Default::default();
    };
    let second = initiator.second(&challenge).map(|(token, _)| token).unwrap_or_default();
    (first, challenge, second)
}

/// Buffers of IOCTL by their kind.
fn controls() -> Vec<(u8, Vec<u8>)> {
    let validate = fsctl::ValidateNegotiate {
        capabilities: 0x7f,
        guid: [9; 16],
        security_mode: 1,
        dialects: vec![0x202, 0x302],
    };
    let chunk = fsctl::Chunk { from: 0, to: 4096, len: 512 };
    let key = fsctl::ResumeKey::of(FILE);
    let copy = fsctl::CopyChunks { key, count: 2, chunks: vec![chunk; 2] };
    let span = fsctl::Span { at: 4096, other: 8192 };
    let interface = |index, addr| fsctl::Interface {
        index,
        addr,
        link_speed: 10_000_000_000,
        rss: true,
        rdma: false,
    };
    let list = [interface(1, [10, 0, 0, 1].into()), interface(2, [0xfd; 16].into())];
    let context = rpce::Context { id: 0, interface: rpce::NDR, transfer: vec![rpce::NDR; 2] };
    let bind = rpce::Bind { xmit_max: 4280, recv_max: 4280, group: 0, contexts: vec![context] };
    let results = vec![rpce::Outcome { result: 0, reason: 0, syntax: rpce::NDR }];
    let address = b"\\pipe\\srvsvc\0";
    let ack = rpce::BindAck { xmit_max: 4280, recv_max: 4280, group: 1, address, results };
    let mut stub = ndr::Writer::default();
    stub.pointer();
    stub.later(vec![ndr::Later::Text("server".into())]);
    stub.string_head("name");
    stub.later(vec![ndr::Later::Sid(Sid::unix_user(1000))]);
    vec![
        (0, validate.emit()),
        (1, vec![1; 24]),
        (2, copy.emit()),
        (3, fsctl::Copied { chunks: 1, chunk_bytes: 0, total: 512 }.emit()),
        (4, vec![0; 40]),
        (5, span.emit().to_vec()),
        (6, fsctl::Trim { ranges: vec![span; 3] }.emit()),
        (7, fsctl::PipeWait { timeout: Some(1000), name: "srvsvc".into() }.emit()),
        (8, fsctl::Resiliency { timeout_ms: 1000 }.emit()),
        (9, fsctl::emit_interfaces(&list)),
        (10, Reparse::Symlink { target: "a\\b".into(), relative: true }.emit()),
        (10, Reparse::NfsLink("a/b".into()).emit()),
        (10, Reparse::NfsChar(1, 3).emit()),
        (10, Reparse::MountPoint("\\??\\C:\\a".into()).emit()),
        (10, Reparse::LxLink("a/b".into()).emit()),
        (10, Buffer { tag: 0x8000_0013, guid: None, data: &[1; 9] }.emit()),
        (10, Buffer { tag: 0x1234, guid: Some([7; 16]), data: &[1; 9] }.emit()),
        (10, Buffer { tag: 0x1234, guid: Some([7; 16]), data: &[] }.emit()),
        (
            11,
            rpce::Pdu {
                version: (5, 0),
                kind: 11,
                flags: 3,
                call_id: 1,
                auth_len: 0,
                body: &bind.emit(),
            }
            .emit(),
        ),
        (12, bind.emit()),
        (13, ack.emit()),
        (14, rpce::FaultBody { context: 0, status: 5 }.emit()),
        (15, stub.finish()),
    ]
}

/// Values, prefixed with the byte that selects their kind.
pub(super) fn values() -> Vec<Vec<u8>> {
    let (first, challenge, second) = tokens();
    let sized = |token: &[u8]| {
        let len = u16::try_from(token.len()).unwrap_or_default();
        [&len.to_le_bytes()[..], token].concat()
    };
    let of = |kind: u8, bytes: Vec<u8>| [vec![kind], bytes].concat();
    let rename = [&[10][..], &le_words(&[0, 0, 0, 0, 6]), &wide("new")].concat();
    vec![
        of(0, descriptor().emit()),
        of(1, Sid::unix_user(1000).emit()),
        of(2, ea()),
        of(6, rename),
        of(6, [&[4][..], &le_words(&[0; 10])].concat()),
        of(8, [sized(&first), sized(&second)].concat()),
        of(10, challenge),
        of(12, le_words(&[0x1000, 0, 7, 4096])),
        of(13, mac::AfpInfo::default().emit()),
        of(13, for_macos()),
        of(13, smb2::aapl::Query { parts: 7, client: 0x3f }.context().data.into_owned()),
        of(13, told_macos().context().data.into_owned()),
        of(14, quota_query()),
        of(15, quotas()),
    ]
    .into_iter()
    .chain(controls().into_iter().map(|(kind, bytes)| of(0x10 | kind, bytes)))
    .chain(referrals().into_iter().map(|(kind, bytes)| of(0x20 | kind, bytes)))
    .collect()
}

/// A directory entry with what Finder shows.
fn for_macos() -> Vec<u8> {
    let entry = mac::Entry { access: 0x1f_01ff, resource: 3, finder: [7; 16], mode: 0o100_644 };
    let facts = FileInfo { mac: Some(entry), file_id: 7, ..FileInfo::default() };
    Level::IdBothDirectory.entry("name", 0, &facts)
}

fn told_macos() -> smb2::aapl::Told {
    smb2::aapl::Told { server: Some(15), volume: Some(4), model: Some("RackMac".into()) }
}

/// A request for the quotas of two users.
fn quota_query() -> Vec<u8> {
    let asked = quota::Asked::Of(vec![Sid::unix_user(1000), Sid::unix_user(1001)]);
    quota::Query { single: false, restarts: true, asked }.emit()
}

fn quotas() -> Vec<u8> {
    let one = |uid| quota::Quota {
        changed: FileTime(0),
        used: 5 << 20,
        threshold: quota::NO_LIMIT,
        limit: 1 << 30,
        sid: Sid::unix_user(uid),
    };
    quota::Quota::emit_list(&[one(1000), one(1001)])
}

/// Requests and responses of DFS by their kind.
fn referrals() -> [(u8, Vec<u8>); 3] {
    let site = Some("Berlin".to_owned());
    let asked = dfs::ReferralRequest { max_level: 4, path: r"\gw\archive".into(), site };
    let told = dfs::ReferralResponse {
        version: dfs::Version::V4,
        path_consumed: 22,
        flags: dfs::STORAGE_SERVERS,
        is_root: false,
        ttl: 300,
        dfs_path: r"\gw\archive".into(),
        targets: vec![r"\gw2\archive".into(), r"\gw3\archive".into()],
    };
    [(0, asked.emit()), (1, asked.emit_ex()), (2, told.emit(4096).unwrap_or_default())]
}
