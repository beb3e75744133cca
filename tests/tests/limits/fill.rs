//! Fills limits: one client takes all that it can get, until the limit is counted.

use std::any::Any;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use client::connect::{Local, tcp};
use client::mount as mountd;
use client::nfs3::{Fh, Nfs3};
use client::nfs4::{LockType4, Minor, Nfs4, OpenHow, Recalls};
use client::nlm::Nlm;
use client::smb::{Options, Smb, SmbFile};
use client::{Credential, NoCallbacks, Rpc};
use config::Settings;
use headgate_tests::world::World;
use headgate_tests::world::smb::alice;
use tokio::task::JoinSet;

use super::{GREEDY, OTHER, dial, met, mount};

/// What a client holds while others are served.
pub type Held = Box<dyn Any + Send>;

/// More than any limit that this test lowers.
const MANY: usize = 1500;
/// Open files of one session or client, so that the limits on them are soon reached.
const OPENS: usize = 16;

/// Number of watches that together reach the limit of their address before one of them reaches its limit.
const WATCHES: usize = 200;

/// Limits that one client fills here.
pub const FILLED: [&str; 13] = [
    "connections-of-address",
    "newcomers-of-address",
    "first-request",
    "logon",
    "opens-of-session",
    "connections-of-session",
    "waiting-requests",
    "watch-events-of-address",
    "opens-of-client",
    "locks-of-client",
    "nfs-opens-of-address",
    "nfs-clients-of-address",
    "nlm-hosts-of-address",
];

/// Connections in all. An address may have all of fewer than 64, and then the limit `connections` refuses the next one.
const CONNECTIONS: usize = 128;

/// Lowers limits so that this one is soon reached.
pub fn lower(name: &str, s: &mut Settings) {
    match name {
        "connections-of-address" | "newcomers-of-address" => s.connections = CONNECTIONS,
        "first-request" | "logon" => s.limits.introduction = Duration::from_secs(1),
        "nfs-clients-of-address" => s.limits.nfs_clients = 200,
        "watch-events-of-address" => s.limits.client_opens = 3 * WATCHES,
        _ => s.limits.client_opens = OPENS,
    }
}

/// Fills this limit.
pub async fn fill(name: &str, world: &World) -> Held {
    match name {
        "connections-of-address" => connections(name, world, true).await,
        "newcomers-of-address" => connections(name, world, false).await,
        "first-request" => silent(name, world, 1, false).await,
        "logon" => silent(name, world, 1, true).await,
        "opens-of-session" => opens_of_session(world).await,
        "connections-of-session" => connections_of_session(world).await,
        "waiting-requests" => waiting_requests(name, world).await,
        "watch-events-of-address" => watch_events(name, world).await,
        "opens-of-client" => opens_of_client(name, world).await,
        "locks-of-client" => locks_of_client(name, world).await,
        "nfs-opens-of-address" => opens_of_clients(name, world).await,
        "nfs-clients-of-address" => clients(name, world).await,
        "nlm-hosts-of-address" => hosts(name, world).await,
        _ => panic!("{name}: no client fills it"),
    }
}

fn local(from: IpAddr) -> Local {
    Local { reserved_port: false, from: Some(from), ..Local::default() }
}

fn root() -> Credential {
    Credential::sys(0, 0, &[])
}

/// Repeats `one` until the limit was met, and returns what it returned.
async fn until_met<T: Send + 'static>(
    name: &str,
    most: usize,
    mut one: impl AsyncFnMut(usize) -> Option<T>,
) -> Held {
    let before = met(name);
    let mut held = Vec::new();
    for n in 0..most {
        held.extend(one(n).await);
        if met(name) > before {
            return Box::new(held);
        }
    }
    panic!("{name}: not reached by {most}");
}

/// Opens connections of one address, whose clients mount or stay silent.
async fn connections(name: &str, world: &World, mounts: bool) -> Held {
    until_met(name, CONNECTIONS, async |_| {
        let mut stream = dial(GREEDY, world.running.nfs[0]).await;
        // The gateway may have closed this one.
        let answers = |stream: &mut TcpStream| {
            stream.write_all(&mount()).is_ok() && stream.read(&mut [0; 256]).is_ok_and(|n| n > 0)
        };
        if !mounts {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        (!mounts || answers(&mut stream)).then_some(stream)
    })
    .await
}

/// Connections that say nothing; the limit may be met some time after the last one.
async fn silent(name: &str, world: &World, most: usize, by_smb: bool) -> Held {
    let to = if by_smb { world.running.smb[0] } else { world.running.nfs[0] };
    let before = met(name);
    let mut held = Vec::new();
    for _ in 0..200 {
        if held.len() < most {
            held.push(dial(GREEDY, to).await);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        if met(name) > before {
            return Box::new(held);
        }
    }
    panic!("{name}: not reached by {}", held.len());
}

async fn smb(world: &World, from: IpAddr) -> Smb {
    let options = Options { multichannel: true, ..Options::default() };
    let (at, server) = (world.running.smb[0], ("127.0.0.1", "data"));
    Smb::connect(at, false, server, &alice(), options, &local(from)).await.unwrap()
}

async fn opens_of_session(world: &World) -> Held {
    let smb = smb(world, GREEDY).await;
    let held = until_met("opens-of-session", OPENS + 1, async |_| smb.create("f").await.ok());
    Box::new((held.await, smb.clone()))
}

async fn connections_of_session(world: &World) -> Held {
    let (smb, at) = (smb(world, GREEDY).await, world.running.smb[0]);
    let held = until_met("connections-of-session", 64, async |_| {
        smb.bind(at, false, "127.0.0.1", &alice(), &local(GREEDY)).await.ok()
    });
    Box::new((held.await, smb.clone()))
}

async fn top(smb: &Smb) -> SmbFile {
    const READ: u32 = 0x0012_0089;
    let (open, directory) = (smb_proto::smb2::create::Disposition::Open, 1);
    smb.open("", READ, open, directory).await.unwrap()
}

/// Requests that wait for changes of a folder in which nothing changes.
async fn waiting_requests(name: &str, world: &World) -> Held {
    let smb = smb(world, GREEDY).await;
    let dir = Arc::new(top(&smb).await);
    let mut waiting = JoinSet::new();
    let before = met(name);
    while met(name) == before {
        assert!(waiting.len() < MANY, "{name}: not reached");
        for _ in 0..32 {
            let (smb, dir) = (smb.clone(), dir.clone());
            waiting.spawn(async move { drop(smb.notify(&dir, false, 1).await) });
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Box::new((waiting, smb))
}

/// Watches of a folder in which much changes: their client asks for the first change only, and the rest waits.
async fn watch_events(name: &str, world: &World) -> Held {
    let smb = smb(world, GREEDY).await;
    let mut dirs = Vec::new();
    for _ in 0..WATCHES {
        dirs.push(top(&smb).await);
    }
    let told = futures_util::future::join_all(dirs.iter().map(|dir| smb.notify(dir, false, 1)));
    let held = until_met(name, MANY, async |n| smb.create(&format!("{n:0>200}")).await.ok());
    let (told, held) = tokio::join!(told, held);
    assert!(told.iter().all(Result::is_ok), "{told:?}");
    Box::new((held, dirs, smb.clone()))
}

async fn nfs4(world: &World, from: IpAddr, owner: &[u8]) -> client::Result<Nfs4> {
    let rpc = tcp(world.running.nfs[0], &local(from), Arc::new(Recalls::new().0)).await?;
    Nfs4::connect(rpc, root(), Minor::Two, owner, [7; 8]).await
}

fn create() -> OpenHow {
    OpenHow { want: OpenHow::WANT_NO_DELEG, ..OpenHow::create(0o600) }
}

async fn opens_of_client(name: &str, world: &World) -> Held {
    let nfs = nfs4(world, GREEDY, b"greedy").await.unwrap();
    let dir = nfs.walk("/data").await.unwrap();
    let held = until_met(name, MANY, async |n| {
        nfs.open(&dir, format!("o{n}").as_bytes(), b"owner", create()).await.ok()
    });
    Box::new((held.await, nfs.clone()))
}

async fn locks_of_client(name: &str, world: &World) -> Held {
    let nfs = nfs4(world, GREEDY, b"greedy").await.unwrap();
    let dir = nfs.walk("/data").await.unwrap();
    let file = nfs.open(&dir, b"locked", b"owner", create()).await.unwrap();
    let held = until_met(name, MANY, async |n| {
        let (owner, range) = (format!("owner {n}"), (n as u64, 1));
        nfs.lock(&file, owner.as_bytes(), LockType4::Write, range).await.ok()
    });
    Box::new((held.await, nfs.clone()))
}

/// Several clients at one address, each within its own limit.
async fn opens_of_clients(name: &str, world: &World) -> Held {
    let own = 4 * OPENS - 4;
    until_met(name, 4, async |client| {
        let nfs = nfs4(world, GREEDY, format!("greedy {client}").as_bytes()).await.ok()?;
        let dir = nfs.walk("/data").await.ok()?;
        for n in 0..own {
            let file = format!("c{client}-{n}");
            let _ = nfs.open(&dir, file.as_bytes(), b"owner", create()).await;
        }
        Some(nfs)
    })
    .await
}

async fn clients(name: &str, world: &World) -> Held {
    until_met(name, 100, async |n| nfs4(world, GREEDY, format!("greedy {n}").as_bytes()).await.ok())
        .await
}

/// One connection whose client gives itself one name after the other.
async fn hosts(name: &str, world: &World) -> Held {
    let (rpc, fh): (Rpc, Fh) = file_of_version_3(world).await;
    until_met(name, MANY, async |n| {
        let nlm = Nlm::new(rpc.clone(), root(), &format!("host{n}"));
        nlm.lock(&fh, (n as u64, 1), true).await.ok()
    })
    .await
}

async fn file_of_version_3(world: &World) -> (Rpc, Fh) {
    std::fs::write(world.folder().join("n"), b"n").unwrap();
    let to = world.running.nfs[0];
    let rpc = tcp(to, &local(GREEDY), Arc::new(NoCallbacks)).await.unwrap();
    let root_of_share = mountd::mount(&rpc, &root(), "/data").await.unwrap();
    let (fh, _) = Nfs3::new(rpc.clone(), root()).lookup(&root_of_share, b"n").await.unwrap();
    (rpc, fh)
}

/// The client that must be served: it has logged on before.
pub struct Other {
    smb: Smb,
    nfs: Nfs4,
    dir: Fh,
}

impl Other {
    pub async fn new(world: &World) -> Self {
        let nfs = nfs4(world, OTHER, b"other").await.unwrap();
        let dir = nfs.walk("/data").await.unwrap();
        Self { smb: smb(world, OTHER).await, nfs, dir }
    }

    /// Makes a file by SMB.
    pub async fn by_smb(&self) {
        let file = self.smb.create("other").await.unwrap();
        self.smb.close(file).await.unwrap();
    }

    /// Makes and locks a file by NFS 4.
    pub async fn by_nfs(&self) {
        let file = self.nfs.open(&self.dir, b"another", b"owner", create()).await.unwrap();
        self.nfs.lock(&file, b"other", LockType4::Write, (0, 1)).await.unwrap();
        self.nfs.close(&file).await.unwrap();
    }
}
