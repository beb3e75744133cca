//! Tests the store in a folder: first starts, restarts, and damage.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use recovery::faults::{Disk, Fault};
use recovery::{Change, Error, FILE, Kind, MADE, Store, StoreTrouble};

fn put(store: &Store, key: &[u8]) {
    store.commit_blocking(vec![Change::put(Kind::NlmMonitor, key, b"v")]).unwrap();
}

fn keys(store: &Store) -> Vec<Box<[u8]>> {
    store.read(Kind::NlmMonitor).unwrap().into_iter().map(|(key, _)| key).collect()
}

fn used(folder: &Path) {
    put(&Store::open(folder).unwrap(), b"kept");
}

#[test]
fn records_survive_restart_and_are_private() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    put(&store, b"b");
    put(&store, b"a");
    put(&store, b"c");
    store.commit_blocking(vec![Change::remove(Kind::NlmMonitor, b"c")]).unwrap();
    assert!(store.read(Kind::SmbOpen).unwrap().is_empty(), "sorts are apart");
    drop(store);
    let store = Store::open(folder.path()).unwrap();
    assert_eq!(keys(&store), [Box::from(&b"a"[..]), Box::from(&b"b"[..])]);
    let mode = fs::metadata(folder.path().join(FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn missing_store_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    used(folder.path());
    fs::remove_file(folder.path().join(FILE)).unwrap();
    let why = Store::open(folder.path()).unwrap_err();
    assert!(matches!(why, Error::Missing(_)), "{why}");
    let text = why.to_string();
    assert!(text.contains("put a sound copy back") && text.contains(MADE), "{text}");
    assert!(!folder.path().join(FILE).exists(), "nothing is made up");
    // The documented remedy.
    fs::remove_file(folder.path().join(MADE)).unwrap();
    assert!(keys(&Store::open(folder.path()).unwrap()).is_empty());
}

#[test]
fn damaged_store_is_reported_and_unchanged() {
    type Harm = (&'static str, fn(&mut Vec<u8>));
    let damage: [Harm; 4] = [
        ("empty", Vec::clear),
        ("cut in half", |b| b.truncate(b.len() / 2)),
        ("no database", |b| b.iter_mut().for_each(|x| *x = 0x5a)),
        ("zeros", |b| b.fill(0)),
    ];
    for (what, harm) in damage {
        let folder = tempfile::tempdir().unwrap();
        used(folder.path());
        let path = folder.path().join(FILE);
        let mut bytes = fs::read(&path).unwrap();
        harm(&mut bytes);
        fs::write(&path, &bytes).unwrap();
        let why = Store::open(folder.path()).unwrap_err();
        assert!(matches!(why, Error::Damaged { .. }), "{what}: {why:?}");
        assert!(why.to_string().contains("is damaged"), "{what}: {why}");
        assert_eq!(fs::read(&path).unwrap(), bytes, "{what}");
    }
}

#[test]
fn crash_at_first_start_is_harmless() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("recovery.new"), b"half of a database").unwrap();
    used(folder.path());
    // Simulates a crash before the marker was created.
    fs::remove_file(folder.path().join(MADE)).unwrap();
    assert_eq!(keys(&Store::open(folder.path()).unwrap()).len(), 1);
    assert!(folder.path().join(MADE).exists());
}

/// Waits until a probe ends the trouble; a small commit does not.
fn wait_for_probe(store: &Store) {
    let until = Instant::now() + 6 * recovery::limits::PROBE;
    while store.health().is_some() {
        assert!(Instant::now() < until, "no probe has ended the trouble");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn unwritable_store_suggests_remedy() {
    let disk = Disk::default();
    let store = disk.store().unwrap();
    put(&store, b"before");
    assert_eq!(store.health(), None);
    for (fault, word) in [(Fault::Full, "make space"), (Fault::Broken, "see to the file system")] {
        disk.set(fault);
        let record = vec![Change::put(Kind::NlmMonitor, b"lost", b"v")];
        let why = store.commit_blocking(record).unwrap_err();
        assert_eq!(why.is_full(), fault == Fault::Full);
        let told = store.health().expect("trouble");
        assert_eq!(told.folder, Path::new("backend"));
        assert!(told.what.contains("state folder backend") && told.what.contains(word), "{told}");
        assert!(told.to_string().contains(StoreTrouble::CONSEQUENCE), "{told}");
        disk.set(Fault::None);
        put(&store, b"after");
        wait_for_probe(&store);
    }
    assert_eq!(keys(&store), [Box::from(&b"after"[..]), Box::from(&b"before"[..])]);
}

#[test]
fn probe_detects_recovered_disk() {
    let disk = Disk::default();
    let store = disk.store().unwrap();
    disk.set(Fault::Full);
    store.commit_blocking(vec![Change::put(Kind::NlmMonitor, b"lost", b"v")]).unwrap_err();
    // No client requests a commit from now on; the store's own probe hangs.
    disk.set(Fault::Hangs);
    disk.wait_for_hanging();
    assert!(store.health().is_some());
    disk.set(Fault::None);
    // This read is queued after the probe.
    assert!(keys(&store).is_empty());
    assert_eq!(store.health(), None);
}

#[test]
fn start_on_full_disk_suggests_remedy() {
    let disk = Disk::default();
    drop(disk.store().unwrap());
    disk.set(Fault::Full);
    let why = disk.store().map(drop).unwrap_err().to_string();
    assert!(why.contains("backend") && why.contains("make space"), "{why}");
    disk.set(Fault::None);
    assert!(disk.store().is_ok());
}

#[test]
fn second_process_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let _first = Store::open(folder.path()).unwrap();
    assert!(matches!(Store::open(folder.path()).unwrap_err(), Error::InUse(_)));
}

#[test]
fn foreign_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(redb::Database::create(folder.path().join(FILE)).unwrap());
    let why = Store::open(folder.path()).unwrap_err().to_string();
    assert!(why.contains("no store of headgate"), "{why}");
}

#[test]
fn oversized_record_fails_only_itself() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let long = vec![0; recovery::limits::VALUE_MAX + 1];
    let put = |key: &[u8], value: &[u8]| {
        store.commit_blocking(vec![Change::put(Kind::SmbOpen, key, value)])
    };
    assert!(matches!(put(b"k", &long), Err(Error::TooBig(_))));
    assert!(matches!(put(&long[..recovery::limits::KEY_MAX + 1], b"v"), Err(Error::TooBig(_))));
    assert!(put(b"k", &long[1..]).is_ok());
}

#[tokio::test]
async fn queued_changes_share_commit_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let pending: Vec<_> = (0..1_000_u32)
        .map(|n| store.submit(vec![Change::put(Kind::SmbOpen, b"last", &n.to_be_bytes())]))
        .collect();
    for one in pending {
        one.await.unwrap();
    }
    let found = store.read(Kind::SmbOpen).unwrap();
    assert_eq!(&*found[0].1, 999_u32.to_be_bytes());
    let counters = store.counters();
    let commits = counters.commits.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(counters.requests.load(std::sync::atomic::Ordering::Relaxed), 1_000);
    assert!(commits < 500, "{commits} commits for 1,000 requests");
}

#[test]
fn newer_store_is_refused_and_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    used(folder.path());
    let say = |version: u64| {
        let format: redb::TableDefinition<'static, &str, u64> =
            redb::TableDefinition::new("format");
        let db = redb::Database::open(folder.path().join(FILE)).unwrap();
        let work = db.begin_write().unwrap();
        work.open_table(format).unwrap().insert("version", version).unwrap();
        work.commit().unwrap();
    };
    say(2);
    for _ in 0..2 {
        let why = Store::open(folder.path()).unwrap_err();
        assert!(matches!(why, Error::Newer { format: 2, .. }), "{why}");
        assert!(why.to_string().contains("run the newer version"), "{why}");
    }
    say(1);
    assert_eq!(keys(&Store::open(folder.path()).unwrap()), [Box::from(&b"kept"[..])]);
}
