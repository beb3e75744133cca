//! Measures on this machine what it costs a change of a name to find those that watch its folder: `cargo run --release -p vfs
//! --example watch_cost`.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use vfs::authority::Acting;
use vfs::mem::MemBackend;
use vfs::namespace::{Enforce, Protocols, Rules, Share, Squash};
use vfs::watch::{Hub, Watch, what};
use vfs::*;

const ROUNDS: u32 = 100;

/// Returns the nanoseconds of CPU time of this thread, so that other load on the machine does not count.
fn on_cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0.0)
}

fn block_on<T>(f: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(f)
}

fn share(id: u32) -> Arc<Share> {
    Arc::new(Share {
        name: format!("s{id}"),
        id,
        backend: MemBackend::new(1 << 30).unwrap(),
        protocols: Protocols::Both,
        read_only: false,
        squash: Squash::None,
        nfs_locks: Enforce::Smb,
        clients: None,
        rules: Rules::default(),
    })
}

async fn folder(at: &NodeRef, name: &str) -> NodeRef {
    let c = Cred::root();
    at.mkdir(Acting::caller(&c), name.as_bytes(), SetAttr::default()).await.unwrap().node
}

async fn watch(hub: &Arc<Hub>, share: &Arc<Share>, dir: &NodeRef) -> Watch {
    hub.watch((share, &Cred::root()), dir.clone(), 0xfff, true).await.unwrap()
}

/// Prints what one change in this folder costs.
async fn cost(case: &str, hub: &Hub, share: u32, dir: &NodeRef) {
    let before = on_cpu();
    for _ in 0..ROUNDS {
        hub.post(share, dir, b"name", Action::Added, what::FILE_NAME).await;
    }
    println!("{case:56} {:10.0} ns", (on_cpu() - before) / f64::from(ROUNDS));
}

async fn all() {
    let (one, another) = (share(1), share(2));
    let hub = Arc::new(Hub::default());
    let root = one.backend.root();
    let dir = folder(&folder(&folder(&root, "a").await, "b").await, "c").await;
    let _own = watch(&hub, &one, &dir).await;
    cost("its folder is watched once", &hub, 1, &dir).await;
    let mut kept = Vec::new();
    for n in 0..8_000 {
        let far = folder(&another.backend.root(), &format!("d{n}")).await;
        kept.push(watch(&hub, &another, &far).await);
    }
    cost("and 8,000 folders of another share", &hub, 1, &dir).await;
    for n in 0..8_000 {
        let far = folder(&root, &format!("d{n}")).await;
        kept.push(watch(&hub, &one, &far).await);
    }
    cost("and 8,000 other folders of the share", &hub, 1, &dir).await;
    for _ in 0..8_000 {
        kept.push(watch(&hub, &one, &root).await);
    }
    cost("and the root of the share 8,000 times", &hub, 1, &dir).await;
}

fn main() {
    block_on(all());
}
