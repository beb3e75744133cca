//! The session in the header of a break notification and in answers of encrypted chains (MS-SMB2 sections 3.2.5.1.1.1, 3.3.4.6 and
//! 3.3.4.7): every dialect, protection, transport and kind of caching, with one connection and with a second one.

use rdma_transport::channel::Transport;
use smb_proto::smb2::context::{Lease, LeaseV2};
use smb_proto::smb2::create::{self, Disposition, access, oplock, option, share};
use smb_proto::smb2::negotiate::Dialect;
use smb_proto::smb2::session_setup::BINDING;
use smb_proto::smb2::{Command, Flags, Header, transform, tree_connect};
use smbd_core::server::Server;
use smbd_core::settings::Encryption;
use smbd_core::status::Status;

use crate::peer::{Answer, Offer, Peer, answers, chain, create, server};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caching {
    Oplock,
    Lease,
    LeaseV2,
    FolderLease,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    dialect: Dialect,
    encrypted: bool,
    transport: Transport,
    caching: Caching,
    /// True if the holder's session gets a second connection and loses the first.
    moves: bool,
}

impl Case {
    /// Returns whether the protocol allows this combination.
    fn exists(&self) -> bool {
        let is_3 = self.dialect.is_3();
        let caches = match self.caching {
            Caching::Oplock => true,
            Caching::Lease => self.dialect != Dialect::V202,
            Caching::LeaseV2 | Caching::FolderLease => is_3,
        };
        caches && (is_3 || !self.encrypted && !self.moves && self.transport == Transport::Tcp)
    }

    /// Returns the session that the notification must name.
    fn named(&self, session: u64) -> u64 {
        if self.caching == Caching::Oplock || self.encrypted { session } else { 0 }
    }
}

fn every_case() -> Vec<Case> {
    let mut all = Vec::new();
    for dialect in Dialect::ALL {
        for encrypted in [false, true] {
            for transport in [Transport::Tcp, Transport::Rdma("test")] {
                for caching in
                    [Caching::Oplock, Caching::Lease, Caching::LeaseV2, Caching::FolderLease]
                {
                    for moves in [false, true] {
                        all.push(Case { dialect, encrypted, transport, caching, moves });
                    }
                }
            }
        }
    }
    all.retain(Case::exists);
    all
}

/// Builds a CREATE that requests this caching.
fn cached(caching: Caching, name: &str) -> Vec<u8> {
    let is_folder = caching == Caching::FolderLease;
    let v2 = (caching != Caching::Lease).then_some(LeaseV2 { parent: [0; 16], epoch: 1 });
    // READ and HANDLE of a folder, READ, HANDLE and WRITE of a file.
    let state = if is_folder { 3 } else { 7 };
    let lease = Lease { key: [9; 16], state, flags: 0, v2 };
    let is_oplock = caching == Caching::Oplock;
    create::Request {
        oplock_level: if is_oplock { oplock::BATCH } else { oplock::LEASE },
        impersonation: 2,
        access: access::MAXIMUM_ALLOWED,
        attributes: 0,
        share: share::READ | share::WRITE | share::DELETE,
        disposition: Disposition::OpenIf as u32,
        options: if is_folder { option::DIRECTORY_FILE } else { 0 },
        name: name.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        contexts: if is_oplock { vec![] } else { vec![lease.context()] },
    }
    .emit()
}

/// Sends one command, encrypted if the server requires that.
async fn ask(peer: &mut Peer, encrypted: bool, command: Command, body: &[u8]) -> Answer {
    match encrypted {
        true => peer.ask_sealed(command, body).await,
        false => peer.ask(command, body).await,
    }
}

async fn connected(server: &Server, case: &Case, guid: u8, transport: Transport) -> Peer {
    let mut peer = Peer::connect_by(server, transport);
    peer.negotiate(&Offer { guid: [guid; 16], ..Offer::of(case.dialect) }).await;
    assert_eq!(peer.log_on("alice", "pw").await, Status::SUCCESS, "{case:?}");
    let body = tree_connect::Request { flags: 0, path: r"\\here\data".into() }.emit();
    let answer = ask(&mut peer, case.encrypted, Command::TreeConnect, &body).await;
    assert_eq!(answer.status(), Status::SUCCESS, "{case:?}");
    peer.tree = answer.header.tree_id();
    peer
}

/// Adds a connection to the holder's session, then ends the first one.
async fn moved(server: &Server, case: &Case, first: Peer) -> Peer {
    let mut second = Peer::connect_by(server, case.transport);
    second.negotiate(&Offer { guid: [1; 16], ..Offer::of(case.dialect) }).await;
    (second.session, second.tree) = (first.session, first.tree);
    second.secrets = first.secrets.clone();
    assert_eq!(second.set_up("alice", "pw", BINDING, 0).await, Status::SUCCESS, "{case:?}");
    first.connection.end().await;
    second
}

#[tokio::test]
async fn notices_name_the_session_of_windows() {
    for case in every_case() {
        let required = if case.encrypted { Encryption::Required } else { Encryption::Offered };
        let server = server(|s| s.encryption = required);
        let mut holder = connected(&server, &case, 1, case.transport).await;
        let answer =
            ask(&mut holder, case.encrypted, Command::Create, &cached(case.caching, "held")).await;
        assert_eq!(answer.status(), Status::SUCCESS, "{case:?}");
        if case.moves {
            holder = moved(&server, &case, holder).await;
        }
        let mut other = connected(&server, &case, 2, Transport::Tcp).await;
        let is_folder = case.caching == Caching::FolderLease;
        let breaks = create(if is_folder { r"held\new" } else { "held" }, 0);
        ask(&mut other, case.encrypted, Command::Create, &breaks).await;

        let mut notice = holder.pushed().await;
        assert_eq!(notice.starts_with(&transform::PROTOCOL_ID), case.encrypted, "{case:?}");
        if case.encrypted {
            notice = holder.open(&notice);
        }
        let header = Header::parse(&notice).unwrap();
        assert_eq!(header.command(), Some(Command::OplockBreak), "{case:?}");
        assert_eq!((header.message_id, header.tree_or_async), (u64::MAX, 0), "{case:?}");
        assert_eq!(header.session_id, case.named(holder.session), "{case:?}");
    }
}

/// Related commands may name any session, and those after a lost tree belong to no session themselves.
#[tokio::test]
async fn encrypted_chains_are_answered_for_one_session() {
    let server = server(|s| s.encryption = Encryption::Required);
    let case = every_case().into_iter().find(|c| c.encrypted).unwrap();
    let mut peer = connected(&server, &case, 1, Transport::Tcp).await;
    for lost_tree in [false, true] {
        for named in [0, 5, u64::MAX] {
            let mut first = peer.header(Command::Create);
            first.tree_or_async = Header::of_tree(peer.tree + u32::from(lost_tree));
            let mut messages = vec![[&first.emit()[..], &create("f", 0)].concat()];
            for _ in 0..2 {
                let mut header = peer.header(Command::Flush);
                (header.session_id, header.tree_or_async) = (named, Header::of_tree(u32::MAX));
                header.flags.0 |= Flags::RELATED;
                let body = [&[24, 0, 0, 0, 0, 0, 0, 0][..], &[0xff; 16]].concat();
                messages.push([&header.emit()[..], &body].concat());
            }
            let sealed = peer.seal(&chain(messages));
            let reply = peer.raw(&sealed).await.expect("an answer");
            let all = answers(&peer.open(&reply));
            let sessions: Vec<u64> = all.iter().map(|a| a.header.session_id).collect();
            assert_eq!(sessions, [peer.session; 3], "{named:#x}, lost: {lost_tree}");
            assert_eq!(all[2].status().is_error(), lost_tree);
        }
    }
}
