//! A thousand runs with seeded faults: late completions, refused posts, lost connections. A client writes, reconnects when its
//! connection is lost, and continues. At the end every acknowledged write is present, and every buffer was returned.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use client::connect::{self, Local};
use client::nfs3::{CreateHow, Fh, Nfs3, SetAttr, Stable};
use client::{Credential, Error, NoCallbacks, mount};
use headgate_tests::world::{buf, pattern};
use iobuf::{Pool, PoolLimits};
use nfsrdma::clock::Clock;
use nfsrdma::fh::Handles;
use nfsrdma::server::Server;
use nfsrdma::server_state::{Boot, ServerState};
use rdma_transport::channel::{Channel, Info, Transport};
use rdma_transport::fault::{Faults, Faulty};
use rdma_transport::loopback::Loopback;
use rdma_transport::rpcrdma::RdmaChannel;
use rdma_transport::serve::serve;
use rdma_transport::verbs::{Incoming, Listener, Provider};
use tokio::task::JoinSet;
use vfs::mem::MemBackend;
use vfs::namespace::{Enforce, Namespace, Protocols, Share, Squash};

const RUNS: u64 = 1000;
const WRITES: usize = 14;
const AT_ONCE: usize = 6;
/// Space for one write in the file.
const ROOM: usize = 48 << 10;
const FAULTS: Faults = Faults { delay: 200, refuse: 100, lose: 16, flip: 0 };

/// The server's side of one run.
struct Side {
    server: Arc<Server>,
    payload: Pool,
    recvs: Pool,
    seed: u64,
    calm: AtomicBool,
    connections: AtomicU64,
}

fn pool() -> Pool {
    Pool::new(PoolLimits { buffers_max: [512, 64, 4] })
}

fn server() -> Arc<Server> {
    let share = Share {
        name: "mem".into(),
        id: Share::id_of("mem"),
        backend: MemBackend::new(64 << 20).unwrap_or_else(|e| panic!("a volume: {e}")),
        read_only: false,
        protocols: Protocols::Both,
        squash: Squash::None,
        nfs_locks: Enforce::Smb,
        clients: Some(vec![vfs::namespace::Cidr { addr: [127, 0, 0, 1].into(), bits: 8 }.into()]),
        rules: vfs::namespace::Rules::default(),
    };
    let namespace = Arc::new(Namespace::new(vec![share]));
    let core = ServerState::new(namespace, Handles::new([7; 16]), Boot::now(), Clock::real());
    Server::new(core, [9; 16])
}

/// Serves connections until the listener's task is ended; then open ones continue to their ends.
async fn accept(
    mut listener: Box<dyn Listener>,
    side: Arc<Side>,
    ended: tokio::sync::mpsc::Sender<()>,
) {
    while let Ok(incoming) = listener.accept().await {
        tokio::spawn(connection(incoming, side.clone(), ended.clone()));
    }
}

async fn connection(
    mut incoming: Box<dyn Incoming>,
    side: Arc<Side>,
    _ended: tokio::sync::mpsc::Sender<()>,
) {
    let Ok(_) = incoming.request().await else { return };
    let Ok(c) = incoming.accept(RdmaChannel::accept_params()).await else { return };
    let n = side.connections.fetch_add(1, Ordering::Relaxed);
    let qp = match side.calm.load(Ordering::Relaxed) {
        true => c.qp,
        false => Box::new(Faulty::new(c.qp, side.seed * 1000 + n, FAULTS)),
    };
    let info =
        Arc::new(Info::new(c.peer, c.local, Transport::Rdma("loopback"), side.payload.clone()));
    let Ok(channel) = RdmaChannel::new(qp, info, side.recvs.clone(), &c.private_data) else {
        return;
    };
    let session = side.server.session(channel.info().clone(), channel.handle());
    serve(Box::new(channel), Arc::new(session)).await;
}

/// Connects and mounts the share, and retries until a connection lasts long enough.
async fn connected(to: SocketAddr, local: &Local) -> (Nfs3, Fh) {
    let cred = Credential::sys(0, 0, &[]);
    for _ in 0..1000 {
        let Ok(rpc) = connect::rdma(to, local, Arc::new(NoCallbacks)).await else { continue };
        match mount::mount(&rpc, &cred, "/mem").await {
            Ok(root) => return (Nfs3::new(rpc, cred), root),
            Err(Error::Down(_)) => {}
            Err(e) => panic!("MOUNT: {e}"),
        }
    }
    panic!("no connection lived long enough for a MOUNT");
}

/// The bytes of write `n`: sizes on both sides of the inline threshold.
fn piece(seed: u64, n: usize) -> Vec<u8> {
    let sizes = [1, 500, 3000, 4096, 9000, 33_001];
    pattern(&format!("{seed}-{n}"), sizes[(n + usize::try_from(seed).unwrap_or(0)) % sizes.len()])
}

/// Writes every piece until it is acknowledged, several concurrently; returns how often the connection was lost.
async fn write_all(seed: u64, to: SocketAddr, local: &Local) -> usize {
    let mut open: Vec<usize> = (0..WRITES).collect();
    let mut losses = 0;
    while !open.is_empty() {
        let (nfs, root) = connected(to, local).await;
        let Ok(fh) = make(&nfs, &root).await else {
            losses += 1;
            continue;
        };
        while !open.is_empty() {
            let now: Vec<usize> = open.iter().copied().take(AT_ONCE).collect();
            let writes = now.iter().map(|n| {
                let data = vec![buf(&piece(seed, *n))];
                nfs.write(&fh, (n * ROOM) as u64, data, Stable::File)
            });
            let results = futures_util::future::join_all(writes).await;
            let mut lost = false;
            for (n, result) in now.into_iter().zip(results) {
                match result {
                    Ok(written) => {
                        assert_eq!(
                            written.count as usize,
                            piece(seed, n).len(),
                            "seed {seed}: a short WRITE"
                        );
                        open.retain(|m| *m != n);
                    }
                    Err(Error::Down(_)) => lost = true,
                    Err(e) => panic!("seed {seed}: WRITE: {e}"),
                }
            }
            if lost {
                losses += 1;
                break;
            }
        }
    }
    losses
}

async fn make(nfs: &Nfs3, root: &Fh) -> client::Result<Fh> {
    let how = CreateHow::Unchecked(SetAttr { mode: Some(0o644), ..SetAttr::default() });
    match nfs.create(root, b"file", how).await {
        Ok((fh, _)) => Ok(fh),
        Err(Error::Down(e)) => Err(Error::Down(e)),
        Err(e) => panic!("CREATE: {e}"),
    }
}

/// Checks without faults that every piece is present.
async fn compare(seed: u64, to: SocketAddr, local: &Local) {
    let (nfs, root) = connected(to, local).await;
    let (fh, _) =
        nfs.lookup(&root, b"file").await.unwrap_or_else(|e| panic!("seed {seed}: LOOKUP: {e}"));
    for n in 0..WRITES {
        let wanted = piece(seed, n);
        let count = u32::try_from(wanted.len()).unwrap_or(u32::MAX);
        let read = nfs.read(&fh, (n * ROOM) as u64, count).await;
        let read = read.unwrap_or_else(|e| panic!("seed {seed}: READ: {e}"));
        let found: Vec<u8> = read.data.iter().flat_map(|p| p.as_slice()).copied().collect();
        assert!(found == wanted, "seed {seed}: write {n} was acknowledged and is not there");
    }
}

async fn run(seed: u64) -> usize {
    let side = Arc::new(Side {
        server: server(),
        payload: pool(),
        recvs: pool(),
        seed,
        calm: AtomicBool::new(false),
        connections: AtomicU64::new(0),
    });
    let listener = Loopback.listen(([127, 0, 0, 1], 0).into()).await;
    let listener = listener.unwrap_or_else(|e| panic!("loopback: {e}"));
    let to = listener.local_addr();
    let (ended, mut all_ended) = tokio::sync::mpsc::channel(1);
    let mut tasks = JoinSet::new();
    tasks.spawn(accept(listener, side.clone(), ended));
    let local = Local {
        pool: pool(),
        recvs: pool(),
        rdma: Some(Arc::new(Loopback)),
        reserved_port: false,
        from: None,
    };
    let losses = write_all(seed, to, &local).await;
    side.calm.store(true, Ordering::Relaxed);
    compare(seed, to, &local).await;
    tasks.shutdown().await;
    // The client's connections are closed; each of the server's drops its sender when it has ended.
    let gone = tokio::time::timeout(Duration::from_secs(60), all_ended.recv()).await;
    assert!(gone == Ok(None), "seed {seed}: a connection did not end");
    let Ok(side) = Arc::try_unwrap(side) else { panic!("seed {seed}: somebody holds the server") };
    drop(side.server);
    for (whose, pool) in [
        ("payload", side.payload),
        ("receive", side.recvs),
        ("client's", local.pool),
        ("client's receive", local.recvs),
    ] {
        let held: usize = pool.stats().iter().map(|class| class.in_use).sum();
        assert_eq!(held, 0, "seed {seed}: {whose} buffers are lost");
    }
    losses
}

#[tokio::test]
async fn thousand_faulty_runs_lose_no_data() {
    let mut losses = 0;
    for seed in 1..=RUNS {
        let limit = Duration::from_secs(60);
        let run = tokio::time::timeout(limit, run(seed)).await;
        losses += run.unwrap_or_else(|_| panic!("seed {seed}: not done within {limit:?}"));
    }
    // Ensures that faults occurred, since an inactive wrapper would prove no property.
    println!("{losses} connections lost");
    assert!(losses > 200, "only {losses} connections were lost");
}
