//! Folders of the cluster, and transactions of a store in them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use ceph_sys::{Mount, Name, Perm};
use config::Ceph;
use gateway::records::ceph::{CephFolder, Lost, Options};
use recovery::{Change, Kind, Store};
use tokio::sync::{Mutex, MutexGuard};

/// All tests share one cluster, so each must hold this lock.
pub static CLUSTER: Mutex<()> = Mutex::const_new(());

/// Takes the lock and ends the sessions of killed processes, which would block their parent folder for a minute.
pub fn alone() -> MutexGuard<'static, ()> {
    let alone = CLUSTER.blocking_lock();
    cluster(&["evict"]);
    alone
}

pub fn conf() -> String {
    std::env::var("CEPH_CONF").unwrap_or("/var/tmp/headgate-ceph/ceph.conf".into())
}

pub fn script() -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/ceph/cluster"))
}

pub fn cluster(args: &[&str]) {
    let done = script().args(args).output().unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Creates a folder of the cluster with this configuration.
pub fn folder_of(conf: &str) -> Ceph {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("r{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let mount = Mount::open(&ceph_sys::Options {
        conf: Some(Path::new(conf)),
        fs: "fs",
        root: "/",
        ..ceph_sys::Options::default()
    });
    let mount = mount.unwrap();
    let perm = Perm::new(&mount, 0, 0, &[]).unwrap();
    mount.root().unwrap().mkdir(&Name::new(name.as_bytes()).unwrap(), 0o777, &perm).unwrap();
    at(conf, &format!("/{name}"))
}

/// Returns an existing folder.
pub fn at(conf: &str, path: &str) -> Ceph {
    Ceph { config: Some(conf.into()), ..format!("fs{path}").parse().unwrap() }
}

pub fn folder() -> Ceph {
    folder_of(&conf())
}

/// Counts the notifications of an opener that it is cut off.
#[derive(Clone, Default)]
pub struct Told(Arc<AtomicUsize>);

impl Told {
    pub fn lost(&self) -> Lost {
        let told = self.0.clone();
        Box::new(move |_| {
            told.fetch_add(1, Ordering::Relaxed);
        })
    }

    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Opens the folder as a gateway does.
pub fn open(ceph: &Ceph) -> Arc<CephFolder> {
    CephFolder::open(ceph, Options::alone(ceph, "serves", Box::new(|_| ()))).unwrap()
}

pub type Contents = BTreeMap<Box<[u8]>, Box<[u8]>>;

pub fn contents(store: &Store) -> Contents {
    [Kind::SmbOpen, Kind::NfsClient].iter().flat_map(|k| store.read(*k).unwrap()).collect()
}

/// Returns the `n`th transaction of every run: records of two kinds are added, changed and removed.
pub fn transaction(n: u32) -> Vec<Change> {
    let open = [b'o', u8::try_from(n % 5).unwrap()];
    let value = vec![u8::try_from(n % 251).unwrap(); 40 * usize::try_from(n % 40).unwrap()];
    let name = |n: u32| [&b"n"[..], &n.to_be_bytes()].concat();
    let mut changes = vec![Change::put(Kind::SmbOpen, &open, &value)];
    changes.push(Change::put(Kind::NfsClient, &name(n), b"client"));
    if n > 2 {
        changes.push(Change::remove(Kind::NfsClient, &name(n - 3)));
    }
    changes
}

pub fn expected(n: u32) -> Contents {
    let mut all = Contents::new();
    for change in (0..n).flat_map(transaction) {
        match change {
            Change::Put(_, key, value) => drop(all.insert(key, value)),
            Change::Remove(_, key) => drop(all.remove(&key)),
        }
    }
    all
}

/// Checks that the store has the acknowledged transactions, or those and the unanswered one; returns their number.
pub fn judge(store: &Store, acknowledged: u32, what: &str) -> u32 {
    let found = contents(store);
    for n in [acknowledged, acknowledged + 1] {
        if found == expected(n) {
            return n;
        }
    }
    panic!("{what}: {acknowledged} were acknowledged, and neither these nor one more are there");
}
