//! Looking at devices again and again, at little cost.
//!
//! *Operation.* A port's table of addresses is a thousand files, and hardly ever another one. It is read again where something has
//! changed that changes tables, for some looks after that, because the kernel fills them behind it, and now and then in any
//! case. What else there is to know is read at each look.

use std::path::Path;

use super::read::{Tables, read_with};
use super::{Devices, read};

/// Looks after a change in which tables are read, too.
const SETTLING: u32 = 2;
/// Without a change tables are read once in so many looks.
const TABLES_EVERY: u32 = 15;

/// What was seen last. `K` is what tables follow besides: the addresses of the host.
#[derive(Debug)]
pub struct Watch<K> {
    before: Option<(K, Devices)>,
    /// Looks since something was another one.
    calm: u32,
}

impl<K> Default for Watch<K> {
    fn default() -> Self {
        Self { before: None, calm: 0 }
    }
}

impl<K: PartialEq> Watch<K> {
    /// What is known now below this folder, which is `/sys` outside of tests.
    pub fn look(&mut self, sys: &Path, beside: K) -> Devices {
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
    fn tables_are_read_after_changes_and_now_and_then() {
        let root = tempfile::tempdir().unwrap();
        let sys = root.path();
        device(sys, "rxe0", ROCE, &[FIRST]);
        let mut watch = Watch::default();
        for _ in 0..=SETTLING {
            assert_eq!(entries(&watch.look(sys, 1)), 1);
        }
        // Nothing tells of this one.
        device(sys, "rxe0", ROCE, &[FIRST, SECOND]);
        let looks = (1..100).find(|_| entries(&watch.look(sys, 1)) == 2);
        assert_eq!(looks, Some(TABLES_EVERY - SETTLING + 1));
        // Then the next ones are looked at for a while.
        device(sys, "rxe0", ROCE, &[FIRST]);
        fs::remove_file(sys.join("class/infiniband/rxe0/ports/1/gids/1")).unwrap();
        assert_eq!(entries(&watch.look(sys, 1)), 1);
    }

    #[test]
    fn what_tables_follow_is_seen_at_once() {
        let root = tempfile::tempdir().unwrap();
        let sys = root.path();
        device(sys, "rxe0", ROCE, &[FIRST]);
        let mut watch = Watch::default();
        let rest = |watch: &mut Watch<u32>, beside| {
            (0..=SETTLING).for_each(|_| drop(watch.look(sys, beside)));
        };
        rest(&mut watch, 1);
        device(sys, "rxe0", ROCE, &[FIRST, SECOND]);
        assert_eq!(entries(&watch.look(sys, 2)), 2, "an address came");
        rest(&mut watch, 2);
        let down = ["1: CA", "Ethernet", "1: DOWN"];
        device(sys, "rxe0", down, &[FIRST, SECOND, FIRST]);
        assert_eq!(entries(&watch.look(sys, 2)), 3, "the port went down");
        rest(&mut watch, 2);
        fs::remove_dir_all(sys.join("class/infiniband/rxe0")).unwrap();
        assert!(watch.look(sys, 2).list.is_empty(), "the device went");
    }
}
