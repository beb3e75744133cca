//! Users of this host cannot pose as other users over NFS: calls that claim a user, a host or a lock must come from a port below
//! 1024.

#![allow(clippy::unwrap_used)]
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;

use client::connect::{self, Local};
use client::nlm::Nlm;
use client::target::{Target, Transport, Version};
use client::{Credential, Error, NoCallbacks, Result, Volume, mount};
use config::{PrivilegedPorts, Settings};
use headgate_tests::world::World;
use rustix::fs::Uid;
use rustix::thread::set_thread_res_uid;

const TCP: [(Version, Transport); 3] =
    [(Version::V3, Transport::Tcp), (Version::V41, Transport::Tcp), (Version::V42, Transport::Tcp)];

/// A client as any user of this host could run it.
fn unprivileged() -> Local {
    Local { reserved_port: false, ..Local::default() }
}

async fn open(world: &World, way: (Version, Transport), cred: Credential) -> Result<Volume> {
    Volume::open(&world.target("data", way), &unprivileged(), cred).await
}

async fn started(whom: PrivilegedPorts) -> (World, Settings) {
    let mut kept = Settings::default();
    let world = World::with(|settings| {
        settings.privileged_ports = whom;
        kept = settings.clone();
    })
    .await;
    (world, kept)
}

fn is_refused(error: &Error) -> bool {
    match error {
        Error::Mount(status) => *status == 13,
        Error::Rpc(why) => why.contains("AUTH_TOOWEAK"),
        _ => false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_user_cannot_pose_as_another() {
    let (mut world, settings) = started(PrivilegedPorts::Local).await;
    std::fs::write(world.folder().join("secret"), "of 1234").unwrap();
    let path = world.folder().join("secret");
    std::os::unix::fs::chown(&path, Some(1234), Some(1234)).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    for way in TCP {
        for uid in [0, 1234] {
            let why = open(&world, way, Credential::sys(uid, uid, &[])).await.err().unwrap();
            assert!(is_refused(&why), "{way:?}: {why}");
        }
        // Client ids and stateids of version 4 can be guessed.
        if way.0 != Version::V3 {
            let why = open(&world, way, Credential::none()).await.err().unwrap();
            assert!(is_refused(&why), "{way:?}: {why}");
        }
        // The same call from root's port is answered.
        if rustix::process::geteuid().is_root() {
            let volume = world.client("data", way).await.unwrap();
            volume.find("secret").await.unwrap();
        }
    }
    // Version 3 works without a mount: a handle obtained elsewhere must not help.
    let rpc = connect::tcp(world.running.nfs[0], &unprivileged(), Arc::new(NoCallbacks)).await;
    let rpc = rpc.unwrap();
    let root = mount::mount(&rpc, &Credential::none(), "/data").await.unwrap();
    let as_owner = client::nfs3::Nfs3::new(rpc.clone(), Credential::sys(1234, 1234, &[]));
    assert!(is_refused(&as_owner.lookup(&root, b"secret").await.err().unwrap()));
    // A user of this host may act as the anonymous user.
    let anonymous = client::nfs3::Nfs3::new(rpc.clone(), Credential::none());
    let (file, _) = anonymous.lookup(&root, b"secret").await.unwrap();
    assert_eq!(anonymous.read(&file, 0, 10).await.err(), Some(Error::Nfs3(13)));
    // Locks are claimed by names in the arguments.
    for cred in [Credential::none(), Credential::sys(1234, 1234, &[])] {
        let locks = Nlm::new(rpc.clone(), cred, "host");
        assert!(is_refused(&locks.unlock(&file, (0, 1)).await.err().unwrap()));
    }
    assert_eq!(std::fs::metadata(&path).unwrap().uid(), 1234);
    let counted = rdma_transport::refused::counts();
    assert!(counted.iter().any(|(rule, n)| *rule == "rpc-source-port" && *n >= 9), "{counted:?}");

    let off = Settings { privileged_ports: PrivilegedPorts::Off, ..settings };
    let changes = world.running.reload(off).await.unwrap();
    assert_eq!(changes.values, ["privileged_ports off (was local)"]);
    for way in TCP {
        open(&world, way, Credential::sys(1234, 1234, &[])).await.unwrap();
    }
}

/// Opens a volume as an ordinary user of this host, in a separate thread.
async fn open_as(uid: u32, target: Target) -> Result<()> {
    let work = move || {
        let uid = Uid::from_raw(uid);
        set_thread_res_uid(uid, uid, uid).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let root = Credential::sys(0, 0, &[]);
        runtime.block_on(Volume::open(&target, &Local::default(), root)).map(drop)
    };
    tokio::task::spawn_blocking(|| std::thread::spawn(work).join().unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_iwarp_user_cannot_pose() {
    // Only root can switch to another user.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (mut world, settings) = started(PrivilegedPorts::Local).await;
    let way = (Version::V41, Transport::Rdma);
    // Root of this host may, from any port.
    world.client("data", way).await.unwrap();
    let why = open_as(1234, world.target("data", way)).await.unwrap_err();
    assert!(is_refused(&why), "{why}");
    let off = Settings { privileged_ports: PrivilegedPorts::Off, ..settings };
    world.running.reload(off).await.unwrap();
    open_as(1234, world.target("data", way)).await.unwrap();
}
