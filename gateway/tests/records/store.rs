//! Tests of the store on a folder of CephFS: killed at every step and at random moments, cut off, and full.

use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use gateway::records::ceph::{CephFolder, Options};
use recovery::{Folder, StorageBackend, Store};

use crate::world::{
    Told, alone, at, cluster, conf, contents, expected, folder, judge, open, transaction,
};

/// Number of transactions in a run that is killed at every step.
const TRANSACTIONS: u32 = 6;
/// Environment variable for the child: its folder, and the number of steps until it is killed, where a negative number means
/// never.
const CHILD: &str = "HEADGATE_RECORDS_CHILD";

/// Counts the operations that change the folder, and kills this process before the last one.
#[derive(Debug)]
struct Steps(AtomicI64);

impl Steps {
    fn step(&self) {
        if self.0.fetch_sub(1, Ordering::SeqCst) == 0 {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
                .unwrap();
            std::thread::sleep(Duration::from_secs(60));
        }
    }
}

#[derive(Debug)]
struct Counted(Arc<CephFolder>, Arc<Steps>);

struct CountedFile(Box<dyn StorageBackend>, Arc<Steps>);

impl fmt::Debug for CountedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Folder for Counted {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn is_there(&self, name: &str) -> io::Result<bool> {
        self.0.is_there(name)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StorageBackend>> {
        Ok(Box::new(CountedFile(self.0.open(name)?, self.1.clone())))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StorageBackend>> {
        self.1.step();
        Ok(Box::new(CountedFile(self.0.create(name)?, self.1.clone())))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.1.step();
        self.0.rename(from, to)
    }

    fn sync(&self) -> io::Result<()> {
        self.1.step();
        Folder::sync(&*self.0)
    }

    fn free(&self) -> Option<u64> {
        self.0.free()
    }
}

impl StorageBackend for CountedFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.1.step();
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.1.step();
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.1.step();
        self.0.write(offset, data)
    }
}

/// Run as the child that is killed: prints each durable transaction. Without its environment it returns at once.
#[test]
fn child() {
    let Ok(said) = std::env::var(CHILD) else { return };
    let [path, steps, first, end] = said.split(' ').collect::<Vec<_>>()[..] else { panic!() };
    let steps = Arc::new(Steps(AtomicI64::new(steps.parse().unwrap())));
    let folder = Arc::new(Counted(open(&at(&conf(), path)), steps));
    let store = Store::open_in(folder).unwrap();
    for n in first.parse().unwrap()..end.parse::<u32>().unwrap() {
        store.commit_blocking(transaction(n)).unwrap();
        println!("\ndurable {n}");
    }
    println!("\nfinished");
}

fn start(path: &str, steps: i64, transactions: std::ops::Range<u32>) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "store::child", "--nocapture", "--test-threads=1"]);
    child.env(CHILD, format!("{path} {steps} {} {}", transactions.start, transactions.end));
    child.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
}

/// Returns the number of transactions that it reported as durable, and whether it finished.
fn acknowledged(child: &mut Child, first: u32) -> (u32, bool) {
    let (mut done, mut has_finished) = (first, false);
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
        if let Some(n) = line.strip_prefix("durable ") {
            done = n.parse::<u32>().unwrap() + 1;
        }
        has_finished |= line == "finished";
    }
    child.wait().unwrap();
    (done, has_finished)
}

/// Returns the number of steps between kills. Each takes two mounts and some seconds; `HEADGATE_EVERY_STEP=1` kills at each
/// of the hundred steps instead of every nineteenth.
fn between_kills() -> usize {
    if std::env::var_os("HEADGATE_EVERY_STEP").is_some() { 1 } else { 19 }
}

#[test]
fn a_kill_at_any_step_loses_nothing_that_was_acknowledged() {
    let _alone = alone();
    let began = Instant::now();
    let mut kills = 0;
    for steps in (0..).step_by(between_kills()) {
        let ceph = folder();
        let mut child = start(&ceph.path, steps, 0..TRANSACTIONS);
        let (done, has_finished) = acknowledged(&mut child, 0);
        let store = Store::open_in(open(&ceph));
        let store = store.unwrap_or_else(|e| panic!("step {steps}: {e}"));
        let there = judge(&store, done, &format!("step {steps}"));
        // The store remains usable.
        store.commit_blocking(transaction(there)).unwrap();
        assert!(contents(&store) == expected(there + 1), "step {steps}");
        if has_finished {
            assert_eq!(done, TRANSACTIONS);
            break;
        }
        kills += 1;
    }
    assert!(kills * between_kills() > 40, "{kills} kills");
    println!("{kills} kills in {:?}", began.elapsed());
}

/// Number of kills at random moments; more and later ones if the machine is so slow that no transaction was done before.
const ROUNDS: u32 = 3;
const ROUNDS_MAX: u32 = 5 * ROUNDS;

#[test]
fn a_kill_at_any_moment_loses_nothing_that_was_acknowledged() {
    let _alone = alone();
    let ceph = folder();
    let (mut there, mut seed, mut round) = (0, 0x9e37_79b9_u64, 0);
    while round < ROUNDS || there <= ROUNDS {
        assert!(round < ROUNDS_MAX, "{there} transactions in all");
        let mut child = start(&ceph.path, -1, there..1_000_000);
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // The moments range from before the store is open to after many commits.
        let moment = Duration::from_millis(50 + (seed >> 33) % 700) * (1 << (round / ROUNDS));
        let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(moment);
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        });
        let (done, _) = acknowledged(&mut child, there);
        killer.join().unwrap();
        let store = Store::open_in(open(&ceph)).unwrap_or_else(|e| panic!("round {round}: {e}"));
        there = judge(&store, done, &format!("round {round}, killed after {moment:?}"));
        round += 1;
    }
}

#[test]
fn whoever_opens_the_records_cuts_the_one_before_off() {
    let _alone = alone();
    let (ceph, told) = (folder(), Told::default());
    let first = CephFolder::open(&ceph, Options::alone(&ceph, "serves", told.lost())).unwrap();
    let before = Store::open_in(first).unwrap();
    before.commit_blocking(transaction(0)).unwrap();
    let second = Store::open_in(open(&ceph)).unwrap();
    assert!(contents(&second) == expected(1));
    let why = before.commit_blocking(transaction(1)).unwrap_err().to_string();
    assert!(why.contains("shutdown") || why.contains("endpoint"), "{why}");
    assert_eq!(told.count(), 1, "and is told once");
    assert!(before.commit_blocking(transaction(1)).is_err());
    second.commit_blocking(transaction(1)).unwrap();
    assert!(contents(&second) == expected(2));
    assert_eq!(told.count(), 1);
}

#[test]
fn one_that_is_cut_off_notices_although_it_keeps_nothing() {
    let _alone = alone();
    let (ceph, told) = (folder(), Told::default());
    let first = CephFolder::open(&ceph, Options::alone(&ceph, "serves", told.lost())).unwrap();
    let _second = open(&ceph);
    let began = Instant::now();
    while told.count() == 0 {
        assert!(began.elapsed() < Duration::from_secs(30), "it does not notice");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(first);
}

#[test]
fn a_full_pool_is_told_and_loses_nothing() {
    let _alone = alone();
    let ceph = folder();
    let store = Store::open_in(open(&ceph)).unwrap();
    store.commit_blocking(transaction(0)).unwrap();
    cluster(&["ceph", "osd", "pool", "set-quota", "data", "max_bytes", "1"]);
    let began = Instant::now();
    let mut there = 1;
    let why = loop {
        // The monitors notice some seconds later.
        match store.commit_blocking(transaction(there)) {
            Ok(()) => there += 1,
            Err(why) => break why,
        }
        assert!(began.elapsed() < Duration::from_secs(60), "the pool is never full");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(why.is_full() && why.to_string().contains("make space"), "{why}");
    assert!(store.health().is_some(), "and whoever watches is told");
    cluster(&["ceph", "osd", "pool", "set-quota", "data", "max_bytes", "0"]);
    while store.health().is_some() {
        assert!(began.elapsed() < Duration::from_secs(90), "it does not come back by itself");
        std::thread::sleep(Duration::from_millis(100));
    }
    let there = judge(&store, there, "after the pool was full");
    store.commit_blocking(transaction(there)).unwrap();
    drop(store);
    assert!(contents(&Store::open_in(open(&ceph)).unwrap()) == expected(there + 1));
}
