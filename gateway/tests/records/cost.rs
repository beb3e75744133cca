//! Prints the time of a commit next to one on the local disk, without judging it.

use std::time::{Duration, Instant};

use recovery::Store;

use crate::world::{alone, folder, open, transaction};

const COMMITS: u32 = 200;

fn spread(store: &Store) -> [Duration; 4] {
    let one = |n| {
        let began = Instant::now();
        store.commit_blocking(transaction(n)).unwrap();
        began.elapsed()
    };
    let mut took: Vec<_> = (0..COMMITS).map(one).collect();
    took.sort_unstable();
    let at = |part: usize| took[(took.len() - 1) * part / 100];
    [at(0), at(50), at(95), at(100)]
}

#[test]
fn commits_are_measured() {
    let _alone = alone();
    let local = tempfile::tempdir_in("/var/tmp").unwrap();
    println!("local: {:?}", spread(&Store::open(local.path()).unwrap()));
    let ceph = folder();
    let store = Store::open_in(open(&ceph)).unwrap();
    println!("CephFS: {:?}", spread(&store));
    assert!(store.counters().commits.load(std::sync::atomic::Ordering::Relaxed) >= COMMITS.into());
}
