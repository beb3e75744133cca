//! The traffic class of `rdma: {dscp: N}` in the packets that the gateway sends, as a raw socket reads them.

#![allow(clippy::unwrap_used)]
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use client::connect::Local;
use client::smb::{Options, Smb, User};
use client::target::{Transport, Version};
use config::{Dscp, Identity, Settings, Signing};
use headgate_tests::world::{World, pattern, read_all, write_all};
use rdma_transport::iwarp::{Iwarp, IwarpConfig};
use socket2::{Domain, Protocol, Socket, Type};

/// Traffic classes of data packets, without the bits of ECN, by the ports at both ends.
type Seen = BTreeMap<(u16, u16), BTreeSet<u8>>;

/// Returns ports and class of an IPv4 packet of TCP (RFC 791 section 3.1, RFC 9293 section 3.1) if it carries data.
fn parse(packet: &[u8]) -> Option<((u16, u16), u8)> {
    let of_ip = usize::from(packet.first()? & 0xf) * 4;
    let segment = packet.get(of_ip..)?;
    let port = |at| Some(u16::from_be_bytes(segment.get(at..at + 2)?.try_into().ok()?));
    let of_tcp = usize::from(segment.get(12)? >> 4) * 4;
    (segment.len() > of_tcp).then_some(((port(0)?, port(2)?), packet.get(1)? & 0xfc))
}

/// Reads packets until it is stopped.
struct Reader {
    stop: Arc<AtomicBool>,
    seen: mpsc::Receiver<Seen>,
}

impl Reader {
    fn start() -> Self {
        let mut socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::TCP)).unwrap();
        socket.set_recv_buffer_size(8 << 20).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, seen) = mpsc::channel();
        let stops = stop.clone();
        std::thread::spawn(move || {
            let (mut all, mut room) = (Seen::new(), vec![0; 1 << 16]);
            while !stops.load(Ordering::Relaxed) {
                let Ok(n) = socket.read(&mut room) else { continue };
                if let Some((ports, class)) = parse(&room[..n]) {
                    all.entry(ports).or_default().insert(class);
                }
            }
            tell.send(all).unwrap();
        });
        Self { stop, seen }
    }

    fn stop(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.seen.recv().unwrap()
    }
}

/// Connects by every transport of NFS and SMB and moves data; returns what a reader saw from the gateway's ports.
async fn traffic(world: &World, round: &str) -> Seen {
    let reader = Reader::start();
    let data = pattern(round, 300_000);
    for transport in [Transport::Tcp, Transport::Rdma] {
        let nfs = world.client("mem", (Version::V41, transport)).await.unwrap();
        write_all(&nfs, round, &data).await.unwrap();
        assert!(read_all(&nfs, round).await.unwrap() == data);
    }
    for rdma in [false, true] {
        let iwarp = Arc::new(Iwarp::new(IwarpConfig::default()));
        let local = Local { rdma: Some(iwarp), ..Local::default() };
        let at = if rdma { world.running.smb_direct[0] } else { world.running.smb[0] };
        let user =
            User { name: "alice".into(), domain: String::new(), password: "correct horse".into() };
        let smb = Smb::connect(at, rdma, ("127.0.0.1", "mem"), &user, Options::default(), &local);
        let volume = client::Volume::Smb(smb.await.unwrap());
        assert!(read_all(&volume, round).await.unwrap() == data);
    }
    let ports = ports(world);
    let mut seen = reader.stop();
    seen.retain(|(from, _), _| ports.contains(from));
    seen
}

fn ports(world: &World) -> [u16; 4] {
    let r = &world.running;
    [r.nfs[0], r.nfs_rdma[0], r.smb[0], r.smb_direct[0]].map(|at| at.port())
}

/// The classes of each port of the gateway.
fn by_port(seen: &Seen) -> BTreeMap<u16, BTreeSet<u8>> {
    let mut all = BTreeMap::<u16, BTreeSet<u8>>::new();
    for ((from, _), classes) in seen {
        all.entry(*from).or_default().extend(classes);
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_carry_configured_class_and_reload_changes_it() {
    // Only root reads packets.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("alice");
    std::fs::write(&file, "correct horse\n").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let identity = Identity { uid: Some(0), gid: Some(0), groups: Some(Vec::new()) };
    let mut settings = Settings::default();
    let mut world = World::with(|s| {
        let limits = config::Rates::default();
        s.users = vec![config::User {
            name: "alice".into(),
            password_file: Some(file),
            identity,
            limits,
        }];
        (s.smb.port, s.smb.direct_port, s.smb.signing) = (0, 0, Signing::Offered);
        s.rdma_dscp = Some(Dscp(26));
        settings = s.clone();
    })
    .await;
    let all = |class: u8| ports(&world).map(|port| (port, BTreeSet::from([class]))).into();
    let (first, then, none) = (all(26 << 2), all(10 << 2), all(0));
    assert_eq!(by_port(&traffic(&world, "first").await), first);
    // A connection keeps the class with which it began.
    let old = world.client("mem", (Version::V41, Transport::Tcp)).await.unwrap();
    settings.rdma_dscp = Some(Dscp(10));
    let changes = world.running.reload(settings.clone()).await.unwrap();
    assert!(
        changes.values.iter().any(|v| v == "rdma.dscp of new connections 10 (was 26)"),
        "{changes}"
    );
    assert_eq!(by_port(&traffic(&world, "then").await), then);
    let reader = Reader::start();
    read_all(&old, "then").await.unwrap();
    let nfs = ports(&world)[0];
    assert_eq!(by_port(&reader.stop()).get(&nfs), Some(&BTreeSet::from([26 << 2])));
    settings.rdma_dscp = None;
    world.running.reload(settings).await.unwrap();
    assert_eq!(by_port(&traffic(&world, "none").await), none);
    assert!(world.running.stop().await);
}
