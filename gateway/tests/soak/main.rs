//! Soak test: clients of every protocol connect, work and leave, half of them abruptly. Afterwards the gateway must hold the
//! same resources as before.
//!
//! Each worker runs one client after the other, over NFS 3, 4.1, 4.2 and SMB, over TCP and RDMA, on folders and in memory.
//! They check the data that they write, and compete for a few files with opens, locks, leases, oplocks, delegations and
//! renames. Half of them are cut off with a reset of their connection. Storms of other clients are cut off while they
//! connect, and the configuration is reloaded meanwhile. Then the clients stop, and descriptors, memory and state of clients
//! must return to their values after a short initial phase.
//!
//! `HEADGATE_SOAK_SECONDS` sets the duration, `HEADGATE_SOAK_SEED` the choices; `cargo xtask soak` sets both.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod daemon;
mod life;
mod line;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::connect::Local;

use daemon::{Daemon, Figures};

const SECONDS: u64 = 12;
const WORKERS: u64 = 6;
/// Clients of a storm, and the time between two storms.
const STORM: usize = 40;
const LULL: Duration = Duration::from_secs(1);
/// Maximum of the initial phase, which is a fifth of the duration: caches and the allocator are filled after it.
const FIRST_MAX: Duration = Duration::from_secs(120);
/// Time in which leftovers of clients must expire: twice the times of the configuration, on a machine that is busy with other
/// tests.
const SETTLE_MAX: Duration = Duration::from_secs(60);
/// Descriptors that the budget reserves for the gateway itself, its shares and a few administrators.
const UNCOUNTED_MAX: u64 = 48 + 4 * 4 + 8;
/// Maximum number of printed faults.
const FAULTS_SHOWN: usize = 10;

/// A small generator, so that a run can be repeated.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15 | 1)
    }

    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    pub fn small(&mut self, sides: u8) -> u8 {
        u8::try_from(self.roll(u64::from(sides))).unwrap()
    }

    pub fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.roll(all.len() as u64)).unwrap()]
    }

    pub fn own(&mut self) -> Self {
        Self::new(self.roll(u64::MAX))
    }
}

/// Results of the clients.
#[derive(Default)]
pub struct Tally {
    /// Clients that left, and clients that were cut off, by protocol and transport.
    lives: Mutex<BTreeMap<String, (u64, u64)>>,
    faults: Mutex<Vec<String>>,
    storms: AtomicU64,
    reloads: AtomicU64,
}

impl Tally {
    pub fn left(&self, way: &str) {
        self.lives.lock().unwrap().entry(way.to_owned()).or_default().0 += 1;
    }

    pub fn cut(&self, way: &str) {
        self.lives.lock().unwrap().entry(way.to_owned()).or_default().1 += 1;
    }

    pub fn fault(&self, what: String) {
        self.faults.lock().unwrap().push(what);
    }
}

/// Runs the whole load for this time.
async fn storm_and_stress(
    daemon: &Arc<Daemon>,
    dice: &mut Dice,
    length: Duration,
    tally: &Arc<Tally>,
) {
    let local = Local::default();
    let over = Arc::new(AtomicBool::new(false));
    let is_over = |over: &Arc<AtomicBool>| over.load(Ordering::Relaxed);
    let mut tasks = Vec::new();
    for me in 0..WORKERS {
        let (daemon, local, over, tally) =
            (daemon.clone(), local.clone(), over.clone(), tally.clone());
        let mut dice = dice.own();
        tasks.push(tokio::spawn(async move {
            let mut turn = 0;
            while !is_over(&over) {
                life::live(&daemon, &local, me, turn, &mut dice, &tally).await;
                turn += 1;
            }
        }));
    }
    let (for_storms, for_tally, until) = (daemon.clone(), tally.clone(), over.clone());
    let mut storm_dice = dice.own();
    tasks.push(tokio::spawn(async move {
        while !is_over(&until) {
            life::storm(&for_storms, &local, &mut storm_dice, STORM).await;
            for_tally.storms.fetch_add(1, Ordering::Relaxed);
            for_storms.reload(storm_dice.roll(2) == 0).await;
            for_tally.reloads.fetch_add(1, Ordering::Relaxed);
            let uncounted = for_storms.uncounted().await;
            if uncounted > UNCOUNTED_MAX {
                for_tally.fault(format!("{uncounted} descriptors are not counted by the budget"));
            }
            tokio::time::sleep(LULL).await;
        }
    }));
    tokio::time::sleep(length).await;
    over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()));
    }
    daemon.reload(false).await;
}

/// Returns the figures after the leftovers of clients have expired, or at the time limit.
async fn settled(daemon: &Daemon, dice: &mut Dice, start: Option<&Figures>) -> Figures {
    let begun = Instant::now();
    life::tidy(daemon, &Local::default(), dice).await;
    loop {
        let now = daemon.figures().await;
        let is_back = match start {
            Some(start) => now.above(start).is_empty(),
            None => now.is_quiet(),
        };
        if is_back || begun.elapsed() > SETTLE_MAX {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_soak_leaves_nothing_behind() {
    let given = |name| std::env::var(name).ok().map(|n| n.parse::<u64>().unwrap());
    let length = Duration::from_secs(given("HEADGATE_SOAK_SECONDS").unwrap_or(SECONDS));
    let seed = given("HEADGATE_SOAK_SEED").unwrap_or(1);
    println!("seed {seed}, {length:?}");
    let mut dice = Dice::new(seed);
    let (daemon, tally) = (Arc::new(Daemon::start()), Arc::new(Tally::default()));
    storm_and_stress(&daemon, &mut dice, FIRST_MAX.min(length / 5), &tally).await;
    let start = settled(&daemon, &mut dice, None).await;
    assert!(start.is_quiet(), "something stays behind at once:\n{}", start.table(&start));
    storm_and_stress(&daemon, &mut dice, length, &tally).await;
    let end = settled(&daemon, &mut dice, Some(&start)).await;

    for (way, (left, cut)) in &*tally.lives.lock().unwrap() {
        println!("{way:20} {left:8} left, {cut:8} cut off");
    }
    let (storms, reloads) = (&tally.storms, &tally.reloads);
    println!("{storms:?} storms of {STORM}, {reloads:?} reloads\n\n{}", end.table(&start));
    daemon.slow().iter().for_each(|line| println!("{line}"));
    let mut faults = std::mem::take(&mut *tally.faults.lock().unwrap());
    faults.extend(daemon.faults());
    // Slow operations in a debug build do not matter for the release.
    if !cfg!(debug_assertions) {
        faults.extend(daemon.slow());
    }
    faults
        .extend(end.above(&start).into_iter().map(|what| format!("{what}: not back at the start")));
    let lives: u64 = tally.lives.lock().unwrap().values().map(|(left, cut)| left + cut).sum();
    assert!(lives > WORKERS, "no work was done");
    let number = faults.len();
    faults.truncate(FAULTS_SHOWN);
    assert!(number == 0, "{number} faults, the first:\n{}", faults.join("\n"));
}
