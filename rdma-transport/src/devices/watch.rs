//! Reads devices repeatedly, at low cost.
//!
//! *Operation.* A port's GID table is a thousand files, which rarely change. It is read again after a change that affects tables,
//! for some rounds after that (because the kernel fills tables later), and periodically. All other properties are read in every
//! round.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::read::{Tables, read_with};
use super::{Devices, read};

/// Rounds after a change in which tables are still read.
const SETTLING: u32 = 2;
/// Without a change, tables are read once in this many rounds.
const TABLES_EVERY: u32 = 15;

/// Number of changes that devices have reported.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Has the next round read all tables, because a device reported that its addresses or ports may have changed.
pub fn note_change() {
    CHANGES.fetch_add(1, Ordering::Relaxed);
}

/// The last result. `K` is other input that affects tables: the addresses of the host.
#[derive(Debug)]
pub struct Watch<K> {
    before: Option<(K, Devices)>,
    /// Rounds since the last change.
    calm: u32,
    /// Changes reported before the last round.
    changes: u64,
}

impl<K> Default for Watch<K> {
    fn default() -> Self {
        Self { before: None, calm: 0, changes: 0 }
    }
}

impl<K: PartialEq> Watch<K> {
    /// Reads the devices below this folder, which is `/sys` outside of tests.
    pub fn look(&mut self, sys: &Path, beside: K) -> Devices {
        self.look_after(CHANGES.load(Ordering::Relaxed), sys, beside)
    }

    /// Reads the devices after this many reported changes.
    fn look_after(&mut self, changes: u64, sys: &Path, beside: K) -> Devices {
        if changes != self.changes {
            (self.changes, self.calm) = (changes, 0);
        }
        let devices = self.devices(sys, &beside);
        let same = self.before.as_ref().is_some_and(|(k, d)| *k == beside && *d == devices);
        self.calm = if same { self.calm.saturating_add(1) } else { 0 };
        self.before = Some((beside, devices.clone()));
        devices
    }

    fn devices(&self, sys: &Path, beside: &K) -> Devices {
        let rests = self.calm >= SETTLING && !self.calm.is_multiple_of(TABLES_EVERY);
        if let Some((before, known)) = self.before.as_ref().filter(|_| rests)
            && before == beside
        {
            let devices = read_with(sys, Tables::As(known));
            if devices == *known {
                return devices;
            }
        }
        read(sys)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::{ROCE, device};
    use super::*;

    const FIRST: (&str, &str, &str) = ("::ffff:192.0.2.1", "RoCE v2", "eth1");
    const SECOND: (&str, &str, &str) = ("::ffff:192.0.2.2", "RoCE v2", "eth1");

    fn entries(devices: &Devices) -> usize {
        devices.list[0].ports[0].gids.len()
    }

    #[test]
    fn tables_are_reread_after_changes() {
        let root = tempfile::tempdir().unwrap();
        let sys = root.path();
        device(sys, "rxe0", ROCE, &[FIRST]);
        let mut watch = Watch::default();
        for _ in 0..=SETTLING {
            assert_eq!(entries(&watch.look_after(0, sys, 1)), 1);
        }
        // This change has no sign outside the table.
        device(sys, "rxe0", ROCE, &[FIRST, SECOND]);
        let looks = (1..100).find(|_| entries(&watch.look_after(0, sys, 1)) == 2);
        assert_eq!(looks, Some(TABLES_EVERY - SETTLING + 1));
        // After it was noticed, the next changes are noticed at once.
        device(sys, "rxe0", ROCE, &[FIRST]);
        fs::remove_file(sys.join("class/infiniband/rxe0/ports/1/gids/1")).unwrap();
        assert_eq!(entries(&watch.look_after(0, sys, 1)), 1);
    }

    #[test]
    fn reported_change_reads_tables() {
        let root = tempfile::tempdir().unwrap();
        let sys = root.path();
        device(sys, "rxe0", ROCE, &[FIRST]);
        let mut watch = Watch::default();
        (0..=SETTLING + 1).for_each(|_| drop(watch.look_after(0, sys, 1)));
        device(sys, "rxe0", ROCE, &[FIRST, SECOND]);
        assert_eq!(entries(&watch.look_after(0, sys, 1)), 1);
        assert_eq!(entries(&watch.look_after(1, sys, 1)), 2);
        let before = CHANGES.load(Ordering::Relaxed);
        note_change();
        assert!(CHANGES.load(Ordering::Relaxed) > before);
    }

    #[test]
    fn address_change_rereads_tables() {
        let root = tempfile::tempdir().unwrap();
        let sys = root.path();
        device(sys, "rxe0", ROCE, &[FIRST]);
        let mut watch = Watch::default();
        let rest = |watch: &mut Watch<u32>, beside| {
            (0..=SETTLING).for_each(|_| drop(watch.look_after(0, sys, beside)));
        };
        rest(&mut watch, 1);
        device(sys, "rxe0", ROCE, &[FIRST, SECOND]);
        assert_eq!(entries(&watch.look_after(0, sys, 2)), 2, "an address came");
        rest(&mut watch, 2);
        let down = ["1: CA", "Ethernet", "1: DOWN"];
        device(sys, "rxe0", down, &[FIRST, SECOND, FIRST]);
        assert_eq!(entries(&watch.look_after(0, sys, 2)), 3, "the port went down");
        rest(&mut watch, 2);
        fs::remove_dir_all(sys.join("class/infiniband/rxe0")).unwrap();
        assert!(watch.look_after(0, sys, 2).list.is_empty(), "the device went");
    }
}
