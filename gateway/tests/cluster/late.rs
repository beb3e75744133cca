//! A gateway that is stopped with writes of clients in its sockets, and continues after its lease ended.

use std::fs;
use std::time::{Duration, Instant};

use iobuf::Buf;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::load::{BLOCK, block, connect};
use crate::watch::Watch;
use crate::world::{World, sh};
use crate::{TTL, until};

const FILES: [&str; 2] = ["nfs", "smb"];

/// The stopped gateway of node 0.
pub struct Late {
    /// NFS address of the share, on whichever node serves it.
    pub nfs: String,
    gateway: String,
    stopped: Instant,
    /// Whether each write was acknowledged.
    writes: Vec<JoinHandle<bool>>,
}

impl Late {
    /// Writes a file over each protocol, stops the node, and writes again.
    pub async fn stopped(world: &World) -> Self {
        let vip = world.vip();
        let nfs = format!("nfs://{vip}/data?version=3&mountport=2049");
        let smb = format!("smb://alice:moves-with-it@{vip}/data");
        let mut mounts = Vec::new();
        for (name, target) in FILES.into_iter().zip([&nfs, &smb]) {
            let volume = connect(target).await.unwrap();
            let file = volume.create(name).await.unwrap();
            volume.write(&file, 0, vec![Buf::from(block("before", 1))]).await.unwrap();
            volume.commit(&file).await.unwrap();
            mounts.push((volume, file));
        }
        until("all requests are read", || world.unread(0).is_empty()).await;
        let gateway = world.gateway(0);
        world.signal(0, "-STOP");
        let stopped = Instant::now();
        until("the gateway stands still", || has_stopped(&gateway)).await;
        let late = |(volume, file): (client::Volume, client::File)| {
            tokio::spawn(async move {
                volume.write(&file, 0, vec![Buf::from(block("late", 2))]).await.is_ok()
            })
        };
        let writes = mounts.into_iter().map(late).collect();
        until("both writes are in the sockets of the node", || {
            world.unread(0).iter().filter(|n| **n > BLOCK as u64).count() == 2
        })
        .await;
        Self { nfs, gateway, stopped, writes }
    }

    /// Continues the gateway and checks that `after`, which other clients wrote meanwhile, remains.
    pub async fn wakes(self, world: &World) {
        sleep(Duration::from_secs(2 * TTL).saturating_sub(self.stopped.elapsed())).await;
        // The kernel has removed the address meanwhile, which would also stop the packets.
        sh(&format!("ip -n {} address replace {}/24 dev eth0", world.space(0), world.vip()));
        let watch = Watch::start(&world.device(0), &world.vip());
        // Only the gateway continues: the processes that would kill it stay stopped.
        sh(&format!("kill -CONT {}", self.gateway));
        until("the gateway has ended by itself", || has_ended(&self.gateway)).await;
        let nothing_happened = || {
            assert_eq!(watch.seen(), 0, "packets with data left the node");
            let read = world.reader();
            for name in FILES {
                assert!(read(name) == block("after", 3), "a write of {name} landed after its time");
            }
        };
        nothing_happened();
        world.signal(0, "-CONT");
        until("the runner lets go of the address", || !world.has_address(0)).await;
        nothing_happened();
        for late in self.writes {
            // The write failed, or waits forever.
            assert!(!late.is_finished() || !late.await.unwrap(), "a late write was acknowledged");
        }
    }
}

/// Returns true if the process has ended, or is a zombie.
pub fn has_ended(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

/// Returns true if all of its threads are stopped, which takes longer than sending the signal.
pub fn has_stopped(pid: &str) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let state = |task: fs::DirEntry| fs::read_to_string(task.path().join("stat"));
    tasks.flatten().all(|task| state(task).is_ok_and(|stat| stat.contains(") T ")))
}
