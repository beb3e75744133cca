//! The head of the store's file: every byte of it may be damaged, and what was acknowledged is there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

use recovery::{COPY, Change, FILE, Kind, MADE, Store};
use tempfile::TempDir;

/// Bytes of redb's head, and of the page that it stands in.
const HEAD: usize = 320;
const PAGE: usize = 4096;
/// The byte of flags.
const FLAGS: usize = 9;

fn put(store: &Store, key: &[u8]) {
    store.commit_blocking(vec![Change::put(Kind::NlmMonitor, key, &[7; 500])]).unwrap();
}

fn keys(store: &Store) -> Vec<Box<[u8]>> {
    store.read(Kind::NlmMonitor).unwrap().into_iter().map(|(key, _)| key).collect()
}

/// What a folder has that two records were committed to, the last of them just now.
struct Saved {
    file: Vec<u8>,
    copy: Vec<u8>,
}

impl Saved {
    fn of(folder: &Path) -> Self {
        let read = |name| fs::read(folder.join(name)).unwrap();
        Self { file: read(FILE), copy: read(COPY) }
    }

    /// As a kill leaves it, and as a regular end does.
    fn both() -> [(&'static str, Self); 2] {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        put(&store, b"first");
        put(&store, b"last");
        let killed = Self::of(folder.path());
        drop(store);
        [("killed", killed), ("closed", Self::of(folder.path()))]
    }

    fn put_back(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), &self.file).unwrap();
        fs::write(folder.path().join(COPY), &self.copy).unwrap();
        fs::write(folder.path().join(MADE), b"").unwrap();
        folder
    }

    /// Both records are there, now and when the copy has gone.
    fn is_whole(&self, what: &str) {
        let folder = self.put_back();
        for _ in 0..2 {
            let store = Store::open(folder.path()).unwrap_or_else(|why| panic!("{what}: {why}"));
            assert_eq!(keys(&store), [Box::from(&b"first"[..]), Box::from(&b"last"[..])], "{what}");
            drop(store);
            fs::remove_file(folder.path().join(COPY)).unwrap();
        }
    }
}

#[test]
fn a_flipped_bit_of_the_first_page_loses_nothing() {
    for (state, mut saved) in Saved::both() {
        // All of what is fixed, and of the rest as much as a test has time for.
        let slots = (24..HEAD).step_by(5);
        for at in (0..24).chain(slots).chain((HEAD..PAGE).step_by(701)) {
            let bit = 1 << (at % 8);
            saved.file[at] ^= bit;
            saved.is_whole(&format!("{state}, byte {at}"));
            saved.file[at] ^= bit;
        }
    }
}

#[test]
fn flags_of_any_value_lose_nothing() {
    for (state, mut saved) in Saved::both() {
        let flags = saved.file[FLAGS];
        for bit in 0..8 {
            saved.file[FLAGS] = flags ^ 1 << bit;
            saved.is_whole(&format!("{state}, flag {bit}"));
        }
    }
}

#[test]
fn a_head_that_is_gone_is_put_back() {
    for (state, mut saved) in Saved::both() {
        for filled in [0, 0xff] {
            saved.file[..HEAD].fill(filled);
            saved.is_whole(state);
        }
    }
}

#[test]
fn a_copy_that_is_damaged_or_of_another_store_is_not_believed() {
    let [_, (_, other)] = Saved::both();
    for (state, mut saved) in Saved::both() {
        for at in (0..HEAD).step_by(11) {
            saved.copy[at] ^= 1 << (at % 8);
            saved.is_whole(&format!("{state}, byte {at} of the copy"));
            saved.copy[at] ^= 1 << (at % 8);
        }
        for copy in [vec![], vec![0; HEAD], vec![0xff; HEAD], other.copy[..100].to_vec()] {
            saved.copy = copy;
            saved.is_whole(state);
        }
    }
}

/// A loss of power may leave an older copy, since nobody waits for it.
#[test]
fn an_older_copy_rolls_nothing_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    put(&store, b"first");
    let older = Saved::of(folder.path()).copy;
    put(&store, b"last");
    let killed = Saved { copy: older.clone(), ..Saved::of(folder.path()) };
    killed.is_whole("killed");
    drop(store);
    Saved { copy: older, ..Saved::of(folder.path()) }.is_whole("closed");
}

/// A sound older file that an administrator puts back is the one that counts, whatever stands beside it.
#[test]
fn a_file_that_is_put_back_is_taken_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    put(&store, b"first");
    drop(store);
    let older = fs::read(folder.path().join(FILE)).unwrap();
    let store = Store::open(folder.path()).unwrap();
    (0..50_u8).for_each(|n| put(&store, &[n]));
    drop(store);
    fs::write(folder.path().join(FILE), older).unwrap();
    assert_eq!(keys(&Store::open(folder.path()).unwrap()), [Box::from(&b"first"[..])]);
}

/// What is beyond the head has no copy: it is told, and nothing is made up.
#[test]
fn damage_of_other_pages_is_told_and_left_alone() {
    for (state, mut saved) in Saved::both() {
        let at = saved.file.windows(500).position(|w| w == [7; 500]).expect("a record");
        saved.file.iter_mut().skip(at).for_each(|b| *b ^= 1);
        let folder = saved.put_back();
        let why = Store::open(folder.path()).map(drop).unwrap_err().to_string();
        assert!(
            why.contains("is damaged") && why.contains("put a sound copy back"),
            "{state}: {why}"
        );
        assert_eq!(fs::read(folder.path().join(FILE)).unwrap(), saved.file, "{state}");
    }
}
