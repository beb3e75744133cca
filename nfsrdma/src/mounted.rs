//! Audit records of mounts. A client may request the root of a share any number of times, with MNT or with LOOKUP of version 4
//! (some clients do so for each path), and with AUTH_SYS it chooses the user id itself.
//!
//! *Operation.* The first mount of a share by a user of an address is recorded, repetitions within [`SILENCE`] are only counted,
//! and the next record gives their number. After [`USERS_MAX`] records for one address (IPv6: /64) in that time, all its further
//! users share one record.
//!
//! *Memory.* [`MOUNTS_MAX`] mounts. Beyond that the table is cleared, so some mounts are recorded again.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use mutex::locked;
use rdma_transport::channel::host_of;

/// The same mount, or change of a file by the same user, is recorded at most once in this time.
pub(crate) const SILENCE: Duration = Duration::from_secs(600);
const MOUNTS_MAX: usize = 4096;
/// Mounts of one address that get a separate record.
const USERS_MAX: u32 = 256;

/// The key of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mount {
    pub(crate) peer: IpAddr,
    /// User id and fingerprint of the principal.
    pub(crate) user: (u32, u128),
    pub(crate) share: u32,
    /// Protocol version, as recorded.
    pub(crate) version: &'static str,
}

/// The subject of a record: one user, or all further users of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Subject {
    One(Mount),
    Further { host: IpAddr, share: u32, version: &'static str },
}

/// A record that the caller must write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct News {
    /// Mounts since the previous record, which were only counted.
    pub(crate) repeats: Option<u64>,
    /// The record names a single user.
    pub(crate) is_of_one: bool,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    at: Duration,
    repeats: u64,
}

#[derive(Debug, Default)]
struct Table {
    told: HashMap<Subject, Told>,
    /// For each address, the start of the counting period and the number of records in it.
    hosts: HashMap<IpAddr, (Duration, u32)>,
}

impl Table {
    /// Counts a repetition if the subject was recorded within [`SILENCE`].
    fn is_repeat(&mut self, subject: &Subject, now: Duration) -> bool {
        match self.told.get_mut(subject).filter(|told| now.saturating_sub(told.at) < SILENCE) {
            Some(told) => {
                told.repeats = told.repeats.saturating_add(1);
                true
            }
            None => false,
        }
    }

    /// Counts one more record of the address. True if its limit of separate records is reached.
    fn is_crowded(&mut self, host: IpAddr, now: Duration) -> bool {
        let (since, count) = self.hosts.entry(host).or_insert((now, 0));
        if now.saturating_sub(*since) >= SILENCE {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        *count > USERS_MAX
    }
}

/// The mounts recorded recently.
#[derive(Debug, Default)]
pub(crate) struct Mounts(Mutex<Table>);

impl Mounts {
    /// Returns the record to write for a mount, or `None` if it is only counted. `now` is the server's time.
    pub(crate) fn news(&self, mount: Mount, now: Duration) -> Option<News> {
        let mut table = locked(&self.0);
        let mut subject = Subject::One(mount);
        if table.is_repeat(&subject, now) {
            return None;
        }
        let host = host_of(mount.peer);
        if table.is_crowded(host, now) {
            let Mount { share, version, .. } = mount;
            subject = Subject::Further { host, share, version };
            if table.is_repeat(&subject, now) {
                return None;
            }
        }
        if table.told.len() >= MOUNTS_MAX && !table.told.contains_key(&subject) {
            *table = Table::default();
        }
        let before = table.told.insert(subject, Told { at: now, repeats: 0 });
        let repeats = before.map(|told| told.repeats).filter(|n| *n > 0);
        Some(News { repeats, is_of_one: matches!(subject, Subject::One(_)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(peer: [u8; 4], uid: u32) -> Mount {
        Mount { peer: peer.into(), user: (uid, 0), share: 1, version: "4" }
    }

    const A: [u8; 4] = [192, 0, 2, 1];
    const FIRST: Option<News> = Some(News { repeats: None, is_of_one: true });

    #[test]
    fn next_record_reports_repetitions() {
        let mounts = Mounts::default();
        let at = Duration::from_secs;
        assert_eq!(mounts.news(by(A, 7), at(0)), FIRST);
        for second in 1..600 {
            assert_eq!(mounts.news(by(A, 7), at(second)), None);
        }
        let told = Some(News { repeats: Some(599), is_of_one: true });
        assert_eq!(mounts.news(by(A, 7), at(600)), told);
        assert_eq!(mounts.news(by(A, 7), at(601)), None);
        // Each of these differs in one part of the key, so it gets its own record.
        for other in [
            by([192, 0, 2, 2], 7),
            by(A, 8),
            Mount { user: (7, 1), ..by(A, 7) },
            Mount { share: 2, ..by(A, 7) },
            Mount { version: "3", ..by(A, 7) },
        ] {
            assert_eq!(mounts.news(other, at(602)), FIRST, "{other:?}");
            assert_eq!(mounts.news(other, at(603)), None, "{other:?}");
        }
    }

    /// A client that claims a different user with each mount.
    #[test]
    fn many_users_share_one_record() {
        let (mounts, now) = (Mounts::default(), Duration::from_secs(5));
        let records: Vec<News> = (0..100_000).filter_map(|n| mounts.news(by(A, n), now)).collect();
        let (ones, further): (Vec<News>, Vec<News>) = records.iter().partition(|n| n.is_of_one);
        assert_eq!((ones.len(), further.len()), (USERS_MAX as usize, 1));
        assert_eq!(mounts.news(by([192, 0, 2, 9], 1), now), FIRST, "others are told of");
        let later = now + SILENCE;
        assert_eq!(mounts.news(by(A, 500_000), later), FIRST);
    }

    #[test]
    fn remembered_mounts_are_bounded() {
        let mounts = Mounts::default();
        for n in 0..100_000u32 {
            let [_, a, b, c] = n.to_be_bytes();
            mounts.news(by([10, a, b, c], 7), Duration::from_secs(1));
            let table = mounts.0.lock().unwrap();
            assert!(table.told.len() <= MOUNTS_MAX && table.hosts.len() <= MOUNTS_MAX + 1);
        }
    }
}
