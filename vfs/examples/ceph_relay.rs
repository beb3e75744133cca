//! Measures the limit on this machine for any gateway that is a separate process, with the cluster of `CEPH_CONF`: `cargo run
//! --release -p vfs --example ceph_relay`. Arguments name the loads to run, by default all, and the number of rounds.
//!
//! For each load, runs alternate between the cluster's library within one process and the simplest possible relay in front of the
//! same calls: a client process, TCP over 127.0.0.1, one connection for each concurrent operation, and one thread for each
//! connection that receives 24 bytes and data, calls the library, and answers. The relay has no protocol, no users, no cache and no
//! checks.
//!
//! The figure shown is the median of the rounds. A durable load has each change in the MDS's journal before the answer, as NFS
//! requires.
#![allow(clippy::unwrap_used)]

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ceph_sys::{File, Inode, Mount, Name, Options, Perm};

const MIB: usize = 1 << 20;
const FILE_MIB: u64 = 64;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(2);
/// The settings that the gateway gives the library.
const SETTINGS: [(&str, &str); 3] =
    [("client_oc", "false"), ("client_acl_type", "posix_acl"), ("client_permissions", "true")];
const DEFAULTS: [(&str, &str, &str); 1] = [("debug_client", "0/5", "0/0")];

const WRITE: u64 = 0;
const READ: u64 = 1;
const RANDOM: u64 = 2;
const REMAKE: u64 = 3;
const REMAKE_DURABLE: u64 = 4;

const LOADS: [(&str, u64, u64); 6] = [
    ("write 1 MiB, 8 at once", WRITE, 8),
    ("read 1 MiB, 8 at once", READ, 8),
    ("random read 4 KiB, one at a time", RANDOM, 1),
    ("random read 4 KiB, 8 at once", RANDOM, 8),
    ("create and remove, one at a time", REMAKE, 1),
    ("create and remove, durable, one at a time", REMAKE_DURABLE, 1),
];

/// The library calls of an operation.
struct Library {
    dir: Inode,
    file: File,
    perm: Perm,
}

/// A step of the `n`th operation of this kind, of `room` bytes.
fn bytes(kind: u64) -> usize {
    if kind == RANDOM { 4096 } else { MIB }
}

/// Returns the number of calls by a client in one operation: a name is made by one call and removed by another.
fn steps(kind: u64) -> u64 {
    if kind >= REMAKE { 2 } else { 1 }
}

impl Library {
    fn open(folder: &str) -> Self {
        let mount = Mount::open(&Options {
            settings: &SETTINGS,
            defaults: &DEFAULTS,
            fs: "fs",
            root: "/",
            ..Options::default()
        });
        let mount = mount.unwrap();
        let perm = Perm::new(&mount, 0, 0, &[]).unwrap();
        let name = Name::new(folder.as_bytes()).unwrap();
        let (dir, _) = mount.root().unwrap().mkdir(&name, 0o755, &perm).unwrap();
        let (_, file, _) = dir.create(&Name::new(b"file").unwrap(), 0o644, &perm).unwrap();
        let data = vec![7; MIB];
        for at in 0..FILE_MIB {
            assert_eq!(file.write(at << 20, &[IoSlice::new(&data)]), Ok(MIB));
        }
        Self { dir, file, perm }
    }

    fn step(&self, [kind, n, step]: [u64; 3], room: &mut [u8]) {
        let name = || Name::new(format!("f{n}").as_bytes()).unwrap();
        let random = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % (FILE_MIB << 8);
        match (kind, step) {
            (WRITE, _) => {
                let done = self.file.write((n % FILE_MIB) << 20, &[IoSlice::new(room)]);
                assert_eq!(done, Ok(MIB));
            }
            (READ | RANDOM, _) => {
                let at = if kind == READ { (n % FILE_MIB) << 20 } else { random << 12 };
                let count = room.len();
                assert_eq!(self.file.read(at, &mut [IoSliceMut::new(room)]), Ok(count));
            }
            (_, 0) => drop(self.dir.create(&name(), 0o644, &self.perm).unwrap()),
            _ => self.dir.unlink(&name(), &self.perm).unwrap(),
        }
        if kind == REMAKE_DURABLE {
            self.dir.sync().unwrap();
        }
    }

    /// Answers a client until it disconnects.
    fn relay(&self, mut client: TcpStream) {
        client.set_nodelay(true).unwrap();
        let (mut head, mut room) = ([0; 24], vec![7; MIB]);
        while client.read_exact(&mut head).is_ok() {
            let asked = std::array::from_fn(|i| {
                u64::from_le_bytes(head[8 * i..8 * i + 8].try_into().unwrap())
            });
            let room = &mut room[..bytes(asked[0])];
            if asked[0] == WRITE {
                client.read_exact(room).unwrap();
            }
            self.step(asked, room);
            let answer: &[u8] = if matches!(asked[0], READ | RANDOM) { room } else { &[0; 8] };
            client.write_all(answer).unwrap();
        }
    }
}

/// Sends a relay one step and waits for the answer.
fn ask(server: &mut TcpStream, asked: [u64; 3], room: &mut [u8]) {
    let head: Vec<u8> = asked.iter().flat_map(|n| n.to_le_bytes()).collect();
    server.write_all(&head).unwrap();
    if asked[0] == WRITE {
        server.write_all(room).unwrap();
    }
    let answer = if matches!(asked[0], READ | RANDOM) { room } else { &mut [0; 8] };
    server.read_exact(answer).unwrap();
}

/// Returns the operations in a second, with this many at once, numbered from `from`. `one` builds the function that performs a
/// step.
fn rate<F: FnMut([u64; 3], &mut [u8])>(
    [kind, at_once, from]: [u64; 3],
    one: impl Fn() -> F + Sync,
) -> f64 {
    let (next, began) = (AtomicU64::new(from), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                let (mut step, mut room) = (one(), vec![7; bytes(kind)]);
                while began.elapsed() < ROUND {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    (0..steps(kind)).for_each(|i| step([kind, n, i], &mut room));
                }
            });
        }
    });
    #[allow(clippy::cast_precision_loss)] // The counts cover a few seconds.
    let done = (next.into_inner() - from) as f64;
    done / began.elapsed().as_secs_f64()
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [at, kind, at_once, from] = &words[..] {
        let connected = || {
            let mut server = TcpStream::connect(at).unwrap();
            server.set_nodelay(true).unwrap();
            move |asked, room: &mut [u8]| ask(&mut server, asked, room)
        };
        let [kind, at_once, from] = [kind, at_once, from].map(|n| n.parse().unwrap());
        print!("{}", rate([kind, at_once, from], connected));
        return;
    }
    let library = Arc::new(Library::open(&format!("relay-{}", std::process::id())));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let relay = library.clone();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let relay = relay.clone();
            std::thread::spawn(move || relay.relay(client.unwrap()));
        }
    });
    println!("| load | relay | library | ratio |");
    println!("|---|---:|---:|---:|");
    let mut from = 0;
    let rounds = words.iter().find_map(|word| word.parse().ok()).unwrap_or(ROUNDS);
    let asked: Vec<_> = words.iter().filter(|word| word.parse::<usize>().is_err()).collect();
    let is_asked = |name: &str| asked.is_empty() || asked.iter().any(|word| name.contains(*word));
    for (name, kind, at_once) in LOADS.into_iter().filter(|(name, ..)| is_asked(name)) {
        let (mut relayed, mut alone) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let by_itself = || |asked, room: &mut [u8]| library.step(asked, room);
            alone.push(rate([kind, at_once, from], by_itself));
            from += 1 << 32;
            let numbers = [kind, at_once, from].map(|n| n.to_string());
            let mut client = Command::new(std::env::current_exe().unwrap());
            let said = client.arg(&at).args(numbers).output().unwrap();
            relayed.push(String::from_utf8(said.stdout).unwrap().parse().unwrap());
            from += 1 << 32;
        }
        let (a, b) = (median(relayed), median(alone));
        println!("| {name} | {a:.0} | {b:.0} | **{:.2}** |", a / b);
    }
}
