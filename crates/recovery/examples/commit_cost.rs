//! Measures a commit of the store on this machine's disk: `cargo run --release -p recovery --example commit_cost -- FOLDER`.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use recovery::{Change, Kind, Store};

const ROUNDS: u64 = 1_000;
/// About the size of the record of a handle with a name, a lease and a lock.
const RECORD: [u8; 300] = [7; 300];

fn show(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1e6;
    println!("{what:44} middle {:6.0} us, 99 of 100 within {:6.0} us", at(50), at(99));
}

fn timed(mut work: impl FnMut(u64)) -> Vec<Duration> {
    let one = |n| {
        let began = Instant::now();
        work(n);
        began.elapsed()
    };
    (0..ROUNDS).map(one).collect()
}

/// Alternates between adding and removing a record.
fn change(n: u64) -> Vec<Change> {
    let key = (n % 64).to_be_bytes();
    vec![match n % 2 {
        0 => Change::put(Kind::SmbOpen, &key, &RECORD),
        _ => Change::remove(Kind::SmbOpen, &key),
    }]
}

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let folder = Path::new(&folder).join("commit-cost");
    std::fs::create_dir_all(&folder).unwrap();
    let plain = File::create(folder.join("plain")).unwrap();
    let write = |n: u64| {
        plain.write_all_at(&[7; 4096], n % 64 * 4096).unwrap();
        plain.sync_data().unwrap();
    };
    (0..64).for_each(write);
    show("4 KiB written in place and fdatasync", timed(write));
    let store = Store::open(&folder).unwrap();
    show("one commit after the other", timed(|n| store.commit_blocking(change(n)).unwrap()));
    for crowd in [8, 64] {
        let (requests, commits) = (&store.counters().requests, &store.counters().commits);
        let count = || (requests.load(Ordering::Relaxed), commits.load(Ordering::Relaxed));
        let before = count();
        let began = Instant::now();
        let work = |_| {
            let store = store.clone();
            thread::spawn(move || timed(|n| store.commit_blocking(change(n)).unwrap()))
        };
        let threads: Vec<_> = (0..crowd).map(work).collect();
        let times = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
        let after = count();
        let rate = |n: u64| n as f64 / began.elapsed().as_secs_f64();
        show(&format!("{crowd} at once"), times);
        println!(
            "{:44} {:.0} requests/s in {:.0} commits/s",
            "",
            rate(after.0 - before.0),
            rate(after.1 - before.1)
        );
    }
    drop(store);
    std::fs::remove_dir_all(&folder).unwrap();
}
