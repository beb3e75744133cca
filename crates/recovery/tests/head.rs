//! Damages every byte of the file's head and checks that acknowledged records survive.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

use recovery::{COPY, Change, FILE, Kind, MADE, Store};
use tempfile::TempDir;

/// Length of redb's head and of the page that contains it.
const HEAD: usize = 320;
const PAGE: usize = 4096;
/// Offset of the flags.
const FLAGS: usize = 9;

fn put(store: &Store, key: &[u8]) {
    store.commit_blocking(vec![Change::put(Kind::NlmMonitor, key, &[7; 500])]).unwrap();
}

fn keys(store: &Store) -> Vec<Box<[u8]>> {
    store.read(Kind::NlmMonitor).unwrap().into_iter().map(|(key, _)| key).collect()
}

/// Files of a folder after two commits, the last one recent.
struct SavedFiles {
    file: Vec<u8>,
    copy: Vec<u8>,
}

impl SavedFiles {
    fn of(folder: &Path) -> Self {
        let read = |name| fs::read(folder.join(name)).unwrap();
        Self { file: read(FILE), copy: read(COPY) }
    }

    /// The files after a kill and after a regular exit.
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

    /// Checks that both records exist, with the copy and without it.
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
fn flipped_bit_in_first_page_recovers() {
    for (state, mut saved) in SavedFiles::both() {
        // Test all constant fields, and a sample of the rest to limit the time.
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
fn arbitrary_flags_recover() {
    for (state, mut saved) in SavedFiles::both() {
        let flags = saved.file[FLAGS];
        for bit in 0..8 {
            saved.file[FLAGS] = flags ^ 1 << bit;
            saved.is_whole(&format!("{state}, flag {bit}"));
        }
    }
}

#[test]
fn missing_head_is_restored() {
    for (state, mut saved) in SavedFiles::both() {
        for filled in [0, 0xff] {
            saved.file[..HEAD].fill(filled);
            saved.is_whole(state);
        }
    }
}

#[test]
fn wrong_copy_is_ignored() {
    let [_, (_, other)] = SavedFiles::both();
    for (state, mut saved) in SavedFiles::both() {
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

/// A power loss may leave an older copy, because the copy is not synced.
#[test]
fn older_copy_never_reverts_commits() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    put(&store, b"first");
    let older = SavedFiles::of(folder.path()).copy;
    put(&store, b"last");
    let killed = SavedFiles { copy: older.clone(), ..SavedFiles::of(folder.path()) };
    killed.is_whole("killed");
    drop(store);
    SavedFiles { copy: older, ..SavedFiles::of(folder.path()) }.is_whole("closed");
}

/// An intact older file that an administrator restores is used, regardless of the copy.
#[test]
fn restored_older_file_is_used() {
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

/// Pages after the head have no copy: their damage is reported, and the file is left unchanged.
#[test]
fn damage_of_other_pages_is_reported() {
    for (state, mut saved) in SavedFiles::both() {
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
