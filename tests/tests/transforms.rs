//! SMB Direct data that is signed or encrypted separately: with every algorithm and size, in any number of pieces, and with a bit
//! flipped in transit.

#![allow(clippy::unwrap_used)]
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use client::Error;
use client::connect::Local;
use client::smb::{Channels, Options, Smb};
use futures_util::future::join_all;
use headgate_tests::record::Recording;
use headgate_tests::sizes::{DIRECT, every_size, joined, ways};
use headgate_tests::world::smb::{alice, with_alice};
use headgate_tests::world::{buf, pattern};
use iobuf::{Pool, PoolLimits};
use rdma_transport::channel::{Channel, Info, Transport};
use rdma_transport::count::broken_rules;
use rdma_transport::fault::{Faults, Faulty};
use rdma_transport::iwarp::{Iwarp, IwarpConfig};
use rdma_transport::serve::serve;
use rdma_transport::smbdirect::SmbDirectChannel;
use rdma_transport::verbs::{BoxFuture, ConnectParams, Connected, Listener, Provider};
use smb_auth::NtHash;
use smb_proto::NtStatus;
use smb_proto::smb2::transform::Transform;
use smbd_core::server::Server;
use smbd_core::server_state::ServerState;
use smbd_core::settings::Settings;
use smbd_core::users::{Account, Users};
use vfs::Cred;
use vfs::local::{LocalBackend, LocalConfig};
use vfs::namespace::{Enforce, Namespace, Protocols, Share, Squash};

/// Flips a bit in half of the data received by RDMA.
const HALF: Faults = Faults { delay: 0, refuse: 0, lose: 0, flip: 500 };
const NONE: Faults = Faults { flip: 0, ..HALF };
const LEN: u32 = 65_536;

/// User-space iWARP with faults in received data.
struct Flipping(Iwarp, Faults);

impl Provider for Flipping {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn listen(&self, at: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        self.0.listen(at)
    }

    fn connect(
        &self,
        to: SocketAddr,
        params: ConnectParams,
    ) -> BoxFuture<'_, io::Result<Connected>> {
        Box::pin(async move {
            let c = self.0.connect(to, params).await?;
            Ok(Connected { qp: Box::new(Faulty::new(c.qp, 0xf11b, self.1)), ..c })
        })
    }
}

fn local(faults: Faults) -> Local {
    let iwarp = Iwarp::new(IwarpConfig::default());
    Local { rdma: Some(Arc::new(Flipping(iwarp, faults))), ..Local::default() }
}

async fn connect(at: SocketAddr, options: Options, local: &Local) -> Smb {
    Smb::connect(at, true, ("127.0.0.1", "data"), &alice(), options, local).await.unwrap()
}

struct Alice;

impl Users for Alice {
    fn find(&self, name: &str) -> Option<Account> {
        let (name, nt_hash) = (name.to_owned(), NtHash::of(&alice().password).0);
        Some(Account { name, nt_hash, cred: Cred::root(), rid: 1000 })
    }

    fn guest(&self) -> Cred {
        Cred { uid: 65534, gid: 65534, groups: Arc::new([]), token: vfs::Token::NONE }
    }
}

/// Serves this folder over SMB Direct with faults in the queue pairs.
async fn serve_folder(folder: &Path, faults: Faults) -> SocketAddr {
    let share = Share {
        name: "data".into(),
        id: Share::id_of("data"),
        backend: LocalBackend::open(LocalConfig::new(folder)).unwrap(),
        read_only: false,
        protocols: Protocols::Both,
        squash: Squash::None,
        nfs_locks: Enforce::Smb,
        clients: None,
        rules: vfs::namespace::Rules::default(),
    };
    let namespace = Arc::new(Namespace::new(vec![share]));
    let server = Server::new(ServerState::new(namespace, Settings::default(), Arc::new(Alice)));
    let iwarp = Iwarp::new(IwarpConfig::default());
    let mut listener = iwarp.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let at = listener.local_addr();
    tokio::spawn(async move {
        loop {
            let mut incoming = listener.accept().await.unwrap();
            let params = SmbDirectChannel::accept_params(&incoming.request().await.unwrap());
            let c = incoming.accept(params).await.unwrap();
            let pool = Pool::new(PoolLimits { buffers_max: [256, 64, 16] });
            let info = Info::new(c.peer, c.local, Transport::Rdma("iwarp"), pool.clone());
            let faulty = Box::new(Faulty::new(c.qp, 0xbad, faults));
            let channel = SmbDirectChannel::new(faulty, info.into(), pool).unwrap();
            let connection = server.connection(channel.info().clone(), channel.handle());
            tokio::spawn(async move {
                serve(Box::new(channel), connection.clone()).await;
                connection.end().await;
            });
        }
    });
    at
}

fn payloads_refused() -> u64 {
    broken_rules()
        .into_iter()
        .find_map(|(rule, n)| (rule == "smb-payload").then_some(n))
        .unwrap_or(0)
}

/// A flip between the RDMA Read of a WRITE's data and its verification: the data is refused, the file is unchanged, the connection
/// continues.
#[tokio::test(flavor = "multi_thread")]
async fn flipped_write_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = serve_folder(dir.path(), HALF).await;
    let before = payloads_refused();
    let mut all = 0;
    for (options, sealed) in ways() {
        let smb = connect(at, options, &local(NONE)).await;
        let file = smb.create("f").await.unwrap();
        let expected =
            if sealed { NtStatus::AUTH_TAG_MISMATCH } else { NtStatus::INVALID_SIGNATURE };
        let mut holds = Vec::new();
        let mut refused = 0;
        for round in 0..40 {
            let data = pattern(&format!("{round}"), LEN as usize);
            match smb.write(&file, 0, vec![buf(&data)]).await {
                Ok(n) => {
                    assert_eq!(n, LEN);
                    holds = data;
                }
                Err(Error::Smb(_, status)) => {
                    assert_eq!(status, expected, "{options:?}");
                    refused += 1;
                }
                Err(e) => panic!("the connection lives: {e}"),
            }
            assert!(fs::read(dir.path().join("f")).unwrap() == holds, "round {round}");
        }
        assert!((1..40).contains(&refused), "{refused} of 40, {options:?}");
        all += refused;
        smb.leave().await.unwrap();
    }
    assert_eq!(payloads_refused() - before, all, "each is counted");
}

/// A flip between the server's RDMA Write of a READ's data and the client's verification.
#[tokio::test(flavor = "multi_thread")]
async fn flipped_read_is_detected() {
    let (world, _dir) = with_alice(|_| ()).await;
    let wanted = pattern("f", LEN as usize);
    fs::write(world.folder().join("f"), &wanted).unwrap();
    for (options, sealed) in ways() {
        let smb = connect(world.running.smb_direct[0], options, &local(HALF)).await;
        let file = smb.find("f").await.unwrap();
        let why = if sealed { "cannot be decrypted" } else { "signature is wrong" };
        let mut refused = 0;
        for _ in 0..40 {
            match smb.read(&file, 0, LEN).await {
                Ok(data) => assert!(joined(&data) == wanted, "{options:?}"),
                Err(Error::Protocol(told)) => {
                    assert!(told.contains(why), "{told}");
                    refused += 1;
                }
                Err(e) => panic!("the connection lives: {e}"),
            }
        }
        assert!((1..40).contains(&refused), "{refused} of 40, {options:?}");
        smb.leave().await.unwrap();
    }
    world.running.stop().await;
}

/// MS-SMB2 section 2.2.41: messages of one direction and RDMA data are encrypted with one key, on four connections concurrently.
/// Nonces of messages are visible; nonces of data are inside them, and account for the gaps in the counter.
#[tokio::test(flavor = "multi_thread")]
async fn session_nonces_are_unique() {
    const CONNECTIONS: usize = 4;
    const EACH: usize = 1000;
    let (world, _dir) = with_alice(|_| ()).await;
    let recording = Arc::new(Recording::new(Iwarp::new(IwarpConfig::default())));
    let local = Local { rdma: Some(recording.clone()), ..Local::default() };
    let options = Options { seal: true, multichannel: true, ..Options::default() };
    let at = world.running.smb_direct[0];
    let smb = connect(at, options, &local).await;
    let channels = Channels::new(smb.clone());
    for _ in 1..CONNECTIONS {
        channels.add(smb.bind(at, true, "127.0.0.1", &alice(), &local).await.unwrap());
    }
    let file = smb.create("f").await.unwrap();
    let data = [buf(&pattern("f", DIRECT))];
    for _ in 0..EACH / 50 {
        let writes = (0..50).map(|_| channels.write(&file, 0, &data));
        join_all(writes).await.into_iter().for_each(|taken| assert_eq!(taken, Ok(4096)));
        let reads = (0..50).map(|_| channels.read(&file, 0, 4096));
        join_all(reads).await.into_iter().for_each(|found| assert!(found.unwrap() == data));
    }
    let tapes = recording.tapes();
    assert_eq!(tapes.len(), CONNECTIONS);
    for direction in [0, 1] {
        let mut used = Vec::new();
        for tape in &tapes {
            let messages = &tape.messages()[direction];
            let sealed: Vec<u64> = messages.iter().filter_map(|m| nonce(m)).collect();
            assert!(sealed.len() >= EACH / 4, "{} on one connection", sealed.len());
            used.extend(sealed);
        }
        used.sort_unstable();
        let messages = used.len();
        used.dedup();
        assert_eq!(used.len(), messages, "a nonce came twice");
        let drawn = used[messages - 1] - used[0] + 1;
        assert_eq!(drawn, (messages + EACH) as u64, "{messages} messages, {EACH} payloads");
    }
    world.running.stop().await;
}

/// The counter in the nonce of an encrypted message.
fn nonce(message: &[u8]) -> Option<u64> {
    let header = Transform::parse(message).ok()?;
    assert_eq!(header.nonce[8..], [0; 8]);
    header.nonce.first_chunk().copied().map(u64::from_le_bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn algorithms_transfer_all_sizes() {
    let (world, _dir) = with_alice(|_| ()).await;
    for (nth, (options, _)) in ways().into_iter().enumerate() {
        let smb = connect(world.running.smb_direct[0], options, &local(NONE)).await;
        every_size(smb, &world.folder(), nth).await;
    }
    world.running.stop().await;
}
