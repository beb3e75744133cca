//! Clients that request much and take no replies must not delay another client of the same address: each occupies about one reply,
//! or as much as it has earned by taking data before.

#![allow(clippy::unwrap_used)] // A test that cannot continue fails.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::connect::Local;
use client::smb::{Options, Smb};
use client::target::{Transport, Version};
use client::{Credential, File, Volume};
use config::{Admin, PrivilegedPorts};
use gateway::admin::show;
use gateway::admin::snapshot::Snapshot;
use headgate_tests::relay::Relay;
use headgate_tests::world::smb::{alice, with_alice};
use headgate_tests::world::{World, pattern, write_all};
use tokio::task::JoinSet;

/// Connections that take no replies.
const DEAF: usize = 64;
/// Large replies that each of them requests: more than sockets buffer.
const ASKED: usize = 10;
const MIB: u32 = 1 << 20;
const LARGE: usize = ASKED << 20;
/// Large replies requested by a client that has taken data before.
const EARNED_ASKED: usize = 64;
/// How often it read as much before: the earned amount is an eighth of that.
const EARNED_BY: usize = 3;
/// Large replies that it may occupy then: those read at once, plus the earned ones. Usually it is half of this; reads delayed by a
/// busy machine are counted additionally.
const EARNED_HELD: u64 = 16;
/// Limit on a READ of the other client: after 5 s the stalled clients would be disconnected for its sake.
const SOON: Duration = Duration::from_secs(4);

/// Protocol and transport of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Nfs(Version, Transport),
    Smb,
    SmbDirect,
}

const WAYS: [Way; 5] = [
    Way::Nfs(Version::V3, Transport::Tcp),
    Way::Nfs(Version::V42, Transport::Tcp),
    Way::Nfs(Version::V3, Transport::Rdma),
    Way::Smb,
    Way::SmbDirect,
];

impl Way {
    fn server(self, world: &World) -> SocketAddr {
        let to = &world.running;
        match self {
            Self::Nfs(_, Transport::Tcp) => to.nfs[0],
            Self::Nfs(_, Transport::Rdma) => to.nfs_rdma[0],
            Self::Smb => to.smb[0],
            Self::SmbDirect => to.smb_direct[0],
        }
    }

    async fn open(self, world: &World, at: SocketAddr) -> Volume {
        let local = Local { reserved_port: false, ..Local::default() };
        match self {
            Self::Nfs(version, transport) => {
                let mut target = world.target("data", (version, transport));
                target.port = at.port();
                Volume::open(&target, &local, Credential::sys(0, 0, &[])).await.unwrap()
            }
            Self::Smb | Self::SmbDirect => {
                let (share, direct) = (("127.0.0.1", "data"), self == Self::SmbDirect);
                let smb =
                    Smb::connect(at, direct, share, &alice(), Options::default(), &local).await;
                Volume::Smb(smb.unwrap())
            }
        }
    }
}

async fn world() -> (World, tempfile::TempDir) {
    with_alice(|s| {
        s.admin = Admin::At(([127, 0, 0, 1], 0).into());
        s.privileged_ports = PrivilegedPorts::Off;
        // One address may use 81 large buffers, more than there are stalled connections.
        s.memory = 432 << 20;
    })
    .await
}

async fn look(world: &World) -> Snapshot {
    show::snapshot(world.running.admin.unwrap()).await.unwrap()
}

fn ended(s: &Snapshot) -> u64 {
    let limits = ["no-progress-while-others-wait", "no-progress"];
    limits.iter().filter_map(|name| s.limits.get(*name)).sum()
}

/// Starts a client that has requested the whole file and takes no data.
async fn deaf(way: Way, world: &World) -> (Relay, JoinSet<()>) {
    let relay = Relay::to(way.server(world)).await.unwrap();
    let volume = Arc::new(way.open(world, relay.at).await);
    let file: Arc<File> = Arc::new(volume.find("large").await.unwrap());
    let asking = be_deaf(&relay, &volume, &file, ASKED);
    (relay, asking)
}

/// Makes this client stop taking data and request this many large replies.
fn be_deaf(relay: &Relay, volume: &Arc<Volume>, file: &Arc<File>, asked: usize) -> JoinSet<()> {
    relay.be_deaf();
    let mut asking = JoinSet::new();
    for n in 0..asked as u64 {
        let (volume, file) = (volume.clone(), file.clone());
        asking.spawn(async move {
            let answer = volume.read(&file, n << 20, MIB).await;
            assert!(answer.is_err(), "it was read by somebody who reads nothing");
        });
    }
    asking
}

/// Starts a client that has read this file this often, all of it at once, before it stops taking data.
async fn worked(way: Way, world: &World, times: usize) -> (Relay, JoinSet<()>) {
    let relay = Relay::to(way.server(world)).await.unwrap();
    let volume = Arc::new(way.open(world, relay.at).await);
    let file: Arc<File> = Arc::new(volume.find("earned").await.unwrap());
    for _ in 0..times {
        let mut reading = JoinSet::new();
        for n in 0..EARNED_ASKED as u64 {
            let (volume, file) = (volume.clone(), file.clone());
            reading.spawn(async move {
                let (data, _) = volume.read(&file, n << 20, MIB).await.unwrap();
                data.iter().map(|b| b.len()).sum::<usize>()
            });
        }
        assert!(reading.join_all().await.into_iter().all(|n| n == MIB as usize));
    }
    // Storage then delivers all data at once, later than the time at which the first replies would have been noticed as untaken.
    let on_disk = fs::File::open(world.folder().join("earned")).unwrap();
    on_disk.sync_all().unwrap();
    rustix::fs::fadvise(&on_disk, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let asking = be_deaf(&relay, &volume, &file, EARNED_ASKED);
    (relay, asking)
}

/// Waits until the stalled clients occupy their maximum.
async fn settled(world: &World) -> u64 {
    let mut last = (0, Instant::now());
    loop {
        let used = look(world).await.pool.last().unwrap().used;
        if used != last.0 {
            last = (used, Instant::now());
        } else if used > 0 && last.1.elapsed() > Duration::from_millis(500) {
            return used;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_clients_do_not_delay_address() {
    let (world, _dir) = world().await;
    let wanted = pattern("large", LARGE);
    let writer = world.client("data", (Version::V42, Transport::Tcp)).await.unwrap();
    write_all(&writer, "large", &wanted).await.unwrap();
    for way in WAYS {
        let before = ended(&look(&world).await);
        let good = way.open(&world, way.server(&world)).await;
        let file = good.find("large").await.unwrap();
        let mut all = Vec::new();
        for _ in 0..DEAF {
            all.push(deaf(way, &world).await);
        }
        let held = settled(&world).await;
        let mut longest = Duration::ZERO;
        for (n, piece) in wanted.chunks(MIB as usize).enumerate() {
            let asked = Instant::now();
            let answer = tokio::time::timeout(SOON, good.read(&file, (n as u64) << 20, MIB)).await;
            let (data, _) =
                answer.unwrap_or_else(|_| panic!("{way:?}: it waits; {held} are held")).unwrap();
            longest = longest.max(asked.elapsed());
            let data: Vec<u8> = data.iter().flat_map(|b| b.iter().copied()).collect();
            assert!(data == piece, "{way:?}, piece {n}");
        }
        println!("{way:?}: {held} large buffers held, longest read {longest:?}");
        assert_eq!(ended(&look(&world).await), before, "{way:?}: nobody had to be ended for it");
        for (_, asking) in &mut all {
            asking.abort_all();
        }
        drop(all);
        good.close(file).await.unwrap();
    }
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_client_holds_earned_amount() {
    let (world, _dir) = world().await;
    let writer = world.client("data", (Version::V42, Transport::Tcp)).await.unwrap();
    write_all(&writer, "earned", &pattern("earned", EARNED_ASKED << 20)).await.unwrap();
    for way in WAYS {
        let (relay, mut asking) = worked(way, &world, EARNED_BY).await;
        let held = settled(&world).await;
        println!("{way:?}: {held} large buffers held");
        assert!((1..=EARNED_HELD).contains(&held), "{way:?}: {held} are held");
        asking.abort_all();
        drop((relay, asking));
        let none = async {
            while look(&world).await.pool.last().unwrap().used > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), none).await.expect("its buffers come back");
    }
    world.running.stop().await;
}
