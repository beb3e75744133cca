//! Measures how much the CephFS backend adds to the cost of the cluster's library, on this machine and the cluster of `CEPH_CONF`:
//! `cargo run --release -p vfs --example ceph_cost`. Arguments name the loads to run, by default all; `plain` leaves on the
//! library's in-memory log of its calls, which the backend switches off, in the runs of the library without the backend.
//!
//! Both have the same settings, threads and files, a mount and a folder each, and run alternately; the figure shown is the median
//! of the rounds. In one common folder each side would make the MDS recall what the other has cached, which does not happen between
//! two gateways. Both make data durable by the library's means: the one call that waits until the MDS has written its journal.
#![allow(clippy::unwrap_used)]

use std::io::{IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ceph_sys::{File, Inode, Mount, Name, Options, Perm};
use iobuf::{Account, Buf, Pool, PoolLimits};
use vfs::Acting;
use vfs::WriteBy;
use vfs::backend::ReadInto;
use vfs::ceph::{CephBackend, CephConfig};
use vfs::{Backend, CreateHow, Cred, NodeRef, SetAttr, Stable};

const MIB: usize = 1 << 20;
const FILE_MIB: u64 = 64;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(2);
/// The settings that the backend gives the library.
const SETTINGS: [(&str, &str); 3] =
    [("client_oc", "false"), ("client_acl_type", "posix_acl"), ("client_permissions", "true")];
const DEFAULTS: [(&str, &str, &str); 1] = [("debug_client", "0/5", "0/0")];
/// Argument that leaves the library its default in-memory log of calls.
const PLAIN: &str = "plain";

/// The kind of operation and how many run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Write,
    Read,
    Random,
    Create,
    Remake,
    Durable,
}

const LOADS: [(&str, Load, u64); 10] = [
    ("write 1 MiB, one at a time", Load::Write, 1),
    ("write 1 MiB, 8 at once", Load::Write, 8),
    ("read 1 MiB, one at a time", Load::Read, 1),
    ("read 1 MiB, 8 at once", Load::Read, 8),
    ("random read 4 KiB, one at a time", Load::Random, 1),
    ("random read 4 KiB, 8 at once", Load::Random, 8),
    ("create, one at a time", Load::Create, 1),
    ("create and remove, one at a time", Load::Remake, 1),
    ("create and make durable, one at a time", Load::Durable, 1),
    ("create and make durable, 8 at once", Load::Durable, 8),
];

impl Load {
    /// Returns offset and length of the `n`th read or write.
    fn place(self, n: u64) -> (u64, usize) {
        match self {
            Self::Random => {
                let random = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
                ((random % (FILE_MIB << 8)) << 12, 4096)
            }
            _ => ((n % FILE_MIB) << 20, MIB),
        }
    }
}

/// Operations in a second; microseconds of this process's CPU for each, and how often its threads waited for another.
type Figure = [f64; 3];

/// Returns the seconds of CPU time of this process, in steps of 10 ms.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2);
    fields.map(|ticks| ticks.parse::<f64>().unwrap() / 100.0).sum()
}

/// Returns how often threads of this process gave up the processor to wait.
fn waits() -> f64 {
    let of = |task: std::io::Result<std::fs::DirEntry>| {
        // A thread that has ended meanwhile is missed; the threads of the library and the backend stay.
        let status = std::fs::read_to_string(task.unwrap().path().join("status"));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
        line.map_or(0.0, |n| n.trim().parse::<f64>().unwrap())
    };
    std::fs::read_dir("/proc/self/task").unwrap().map(of).sum()
}

fn measured(run: impl FnOnce(Instant) -> u64) -> Figure {
    let (began, before, waited) = (Instant::now(), cpu(), waits());
    #[allow(clippy::cast_precision_loss)] // The counts cover a few seconds.
    let done = run(began + ROUND) as f64;
    let took = began.elapsed().as_secs_f64();
    [done / took, (cpu() - before) * 1e6 / done, (waits() - waited).max(0.0) / done]
}

/// Calls the library without the backend.
struct Library {
    dir: Inode,
    file: Arc<File>,
    perm: Perm,
}

impl Library {
    fn open(conf: &Path, folder: &str) -> Self {
        let is_plain = std::env::args().any(|word| word == PLAIN);
        let mount = Mount::open(&Options {
            conf: Some(conf),
            settings: &SETTINGS,
            defaults: if is_plain { &[] } else { &DEFAULTS },
            fs: "fs",
            root: folder,
            ..Options::default()
        });
        let mount = mount.unwrap();
        let perm = Perm::new(&mount, 0, 0, &[]).unwrap();
        let dir = mount.root().unwrap();
        let (_, file, _) = dir.create(&Name::new(b"library").unwrap(), 0o644, &perm).unwrap();
        let data = vec![7; MIB];
        for at in 0..FILE_MIB {
            assert_eq!(file.write(at << 20, &[IoSlice::new(&data)]), Ok(MIB));
        }
        Self { dir, file: Arc::new(file), perm }
    }

    fn run(&self, load: Load, at_once: u64, next: &AtomicU64, end: Instant) -> u64 {
        let one = || {
            let (mut room, mut done) = (vec![7_u8; MIB], 0);
            while Instant::now() < end {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let (at, count) = load.place(n);
                let moved = match load {
                    Load::Write => self.file.write(at, &[IoSlice::new(&room)]),
                    Load::Read | Load::Random => {
                        self.file.read(at, &mut [IoSliceMut::new(&mut room[..count])])
                    }
                    Load::Create => {
                        let name = Name::new(format!("l{n}").as_bytes()).unwrap();
                        self.dir.create(&name, 0o644, &self.perm).map(|_| count)
                    }
                    // The same operation as in `headgate bench`.
                    Load::Remake => {
                        let name = Name::new(format!("l{n}").as_bytes()).unwrap();
                        let made = self.dir.create(&name, 0o644, &self.perm).map(drop);
                        made.and_then(|()| self.dir.unlink(&name, &self.perm)).map(|()| count)
                    }
                    Load::Durable => {
                        let name = Name::new(format!("l{n}").as_bytes()).unwrap();
                        let made = self.dir.create(&name, 0o644, &self.perm);
                        made.and_then(|_| self.dir.sync()).map(|()| count)
                    }
                };
                assert_eq!(moved, Ok(count));
                done += 1;
            }
            done
        };
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..at_once).map(|_| scope.spawn(one)).collect();
            all.into_iter().map(|one| one.join().unwrap()).sum()
        })
    }
}

/// Calls the backend the way the protocols do.
struct Served {
    root: NodeRef,
    file: NodeRef,
    into: ReadInto,
    _backend: Arc<CephBackend>,
}

impl Served {
    async fn open(conf: PathBuf, folder: &str) -> Self {
        let config = CephConfig { conf: Some(conf), ..CephConfig::new("fs", folder) };
        let backend = CephBackend::open(&config).unwrap();
        let root = backend.root();
        let (by, set) = (Cred::root(), SetAttr::default());
        let file = root
            .create(Acting::caller(&by), b"backend", CreateHow::Guarded, set)
            .await
            .unwrap()
            .node;
        for at in 0..FILE_MIB {
            let data = vec![Buf::from(vec![7; MIB])];
            file.write(WriteBy::Open(None), at << 20, data, Stable::Unstable).await.unwrap();
        }
        let pool = Pool::new(PoolLimits { buffers_max: [64; 3] });
        let account = Account::new();
        let into = ReadInto { pool, account, backpressure: None, pages: false, attributes: false };
        Self { root, file, into, _backend: backend }
    }

    async fn one(&self, load: Load, n: u64, data: &Buf) {
        let (at, count) = load.place(n);
        match load {
            Load::Write => {
                let data = vec![data.clone()];
                let written =
                    self.file.write(WriteBy::Open(None), at, data, Stable::Unstable).await.unwrap();
                assert_eq!(written.count, count);
            }
            Load::Read | Load::Random => {
                let read = self.file.read(None, at, count, &self.into).await.unwrap();
                assert_eq!(read.len(), count);
            }
            Load::Create | Load::Remake | Load::Durable => {
                let (name, set) = (format!("b{n}"), SetAttr::default());
                let by = Cred::root();
                let made =
                    self.root.create(Acting::caller(&by), name.as_bytes(), CreateHow::Guarded, set);
                let made = made.await.unwrap();
                assert!(made.created);
                if load == Load::Remake {
                    drop(made.node);
                    self.root.unlink(Acting::caller(&by), name.as_bytes()).await.unwrap();
                } else if load == Load::Durable {
                    // The same sync as `FileOps` requests for a strict share.
                    made.node.sync_with(&[&self.root]).unwrap().await.unwrap();
                }
            }
        }
    }

    async fn run(
        self: &Arc<Self>,
        load: Load,
        at_once: u64,
        next: &Arc<AtomicU64>,
        end: Instant,
    ) -> u64 {
        let one = |me: Arc<Self>, next: Arc<AtomicU64>| async move {
            let (data, mut done) = (Buf::from(vec![7; MIB]), 0);
            while Instant::now() < end {
                me.one(load, next.fetch_add(1, Ordering::Relaxed), &data).await;
                done += 1;
            }
            done
        };
        let all: Vec<_> =
            (0..at_once).map(|_| tokio::spawn(one(self.clone(), next.clone()))).collect();
        let mut done = 0;
        for one in all {
            done += one.await.unwrap();
        }
        done
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() {
    let conf: PathBuf = std::env::var_os("CEPH_CONF").unwrap().into();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let names = ["library", "backend"].map(|of| format!("cost-{}-{of}", std::process::id()));
    let whole = CephConfig { conf: Some(conf.clone()), ..CephConfig::new("fs", "/") };
    let top = CephBackend::open(&whole).unwrap();
    let (root, by) = (top.root(), Cred::root());
    for name in &names {
        let made = root.mkdir(Acting::caller(&by), name.as_bytes(), SetAttr::default());
        drop(runtime.block_on(made).unwrap().node);
    }
    drop((root, top));
    let [its, ours] = names.map(|name| format!("/{name}"));
    let library = Library::open(&conf, &its);
    let served = Arc::new(runtime.block_on(Served::open(conf, &ours)));
    let next = Arc::new(AtomicU64::new(0));
    println!(
        "| load | backend | library | ratio | CPU us: backend | library | ratio | waits: backend | library |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    let asked: Vec<_> = std::env::args().skip(1).filter(|word| word != PLAIN).collect();
    let is_asked = |name: &str| asked.is_empty() || asked.iter().any(|word| name.contains(word));
    for (name, load, at_once) in LOADS.into_iter().filter(|(name, ..)| is_asked(name)) {
        let (mut ours, mut theirs): ([Vec<f64>; 3], [Vec<f64>; 3]) = Default::default();
        for _ in 0..ROUNDS {
            let figure = measured(|end| library.run(load, at_once, &next, end));
            theirs.iter_mut().zip(figure).for_each(|(all, one)| all.push(one));
            let by = |end| served.run(load, at_once, &next, end);
            let figure = measured(|end| runtime.block_on(by(end)));
            ours.iter_mut().zip(figure).for_each(|(all, one)| all.push(one));
        }
        let ([a, x, v], [b, y, w]) = (ours.map(median), theirs.map(median));
        println!(
            "| {name} | {a:.0} | {b:.0} | **{:.2}** | {x:.0} | {y:.0} | **{:.2}** | {v:.1} | {w:.1} |",
            a / b,
            x / y
        );
    }
}
