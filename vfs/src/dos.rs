//! Data that Windows stores with a file and Linux cannot store: attribute bits and a creation time that can be set.
//!
//! *Operation.* One small record of side data ([`crate::Node::side_get`], name [`NAME`]): a version byte, a byte that tells which
//! fields are valid, the attributes (32 bits), seconds (64 bits) and nanoseconds (32 bits) of the creation time, little-endian; if
//! a change time was set, that time and the time until which it is valid follow in the same form. A file without a record has
//! neither; where Samba served the folder before, its record in `user.DOSATTRIB` is read until the gateway writes one.
//!
//! *Errors.* An unreadable record counts as missing: attributes are hints, and no reason to refuse a file.

use crate::reparse::Tagged;
use crate::types::{Attr, Time};

/// The name of the record among a node's side data.
pub const NAME: &str = "dos";

/// Length of the record in bytes, without a change time.
pub const LEN: usize = 18;
/// Length of one time in bytes.
const TIME: usize = 12;

const VERSION: u8 = 1;
const HAS_ATTRIBUTES: u8 = 1;
const HAS_CREATED: u8 = 2;
const HAS_CHANGED: u8 = 4;

/// The values that a client has set; `None` for values that no client has set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dos {
    /// File attributes as MS-FSCC section 2.6 numbers them. `DIRECTORY` and `NORMAL` are never stored.
    pub attributes: Option<u32>,
    pub created: Option<Time>,
    /// A change time that a client has set.
    pub changed: Option<Changed>,
    /// The reparse point of the node. It is not in this record: [`crate::reparse`].
    pub reparse: Option<Tagged>,
}

/// A change time that a client set. The host's change time cannot be set, so clients see this one until the file is changed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The time that the client set.
    pub shown: Time,
    /// Valid while the host's own change time is not later than this.
    pub until: Time,
}

impl Dos {
    pub const READONLY: u32 = 0x1;
    pub const HIDDEN: u32 = 0x2;
    pub const SYSTEM: u32 = 0x4;
    pub const DIRECTORY: u32 = 0x10;
    pub const ARCHIVE: u32 = 0x20;
    pub const NORMAL: u32 = 0x80;
    pub const SPARSE: u32 = 0x200;

    /// Returns true if the record has no value.
    pub fn is_empty(&self) -> bool {
        Self { reparse: None, ..*self } == Self::default()
    }

    /// Returns the change time to show for a file whose own is `ctime`.
    pub fn change_time(&self, ctime: Time) -> Time {
        self.changed.filter(|c| ctime <= c.until).map_or(ctime, |c| c.shown)
    }

    /// Returns the creation time to show for a file with these attributes: the one that was set, else the host's. A volume without
    /// creation times shows the earlier one of the change time and the last write.
    pub fn creation_time(&self, attr: &Attr) -> Time {
        self.created.or(attr.btime).unwrap_or(attr.mtime.min(attr.ctime))
    }

    /// Encodes the record for side data.
    pub fn encode(&self) -> Vec<u8> {
        let has = |is: bool, bit: u8| if is { bit } else { 0 };
        let mut out = Vec::with_capacity(LEN + 2 * TIME);
        let put = |t: Time, out: &mut Vec<u8>| {
            out.extend(t.sec.to_le_bytes());
            out.extend(t.nsec.to_le_bytes());
        };
        out.push(VERSION);
        out.push(
            has(self.attributes.is_some(), HAS_ATTRIBUTES)
                | has(self.created.is_some(), HAS_CREATED)
                | has(self.changed.is_some(), HAS_CHANGED),
        );
        let attributes = self.attributes.unwrap_or(0) & !(Self::DIRECTORY | Self::NORMAL);
        out.extend(attributes.to_le_bytes());
        put(self.created.unwrap_or_default(), &mut out);
        if let Some(changed) = self.changed {
            put(changed.shown, &mut out);
            put(changed.until, &mut out);
        }
        out
    }

    /// Reads a record. One of a later version may be longer; the fields known here have the same meaning in it.
    pub fn decode(record: &[u8]) -> Self {
        let time = |at: usize| {
            let [sec @ .., n0, n1, n2, n3] = *record.get(at..)?.first_chunk::<TIME>()?;
            let (sec, nsec) = (i64::from_le_bytes(sec), u32::from_le_bytes([n0, n1, n2, n3]));
            (nsec < 1_000_000_000).then_some(Time { sec, nsec })
        };
        let (Some([version, has, a0, a1, a2, a3]), Some(created)) =
            (record.first_chunk(), time(LEN - TIME))
        else {
            return Self::default();
        };
        if *version == 0 {
            return Self::default();
        }
        let attributes = u32::from_le_bytes([*a0, *a1, *a2, *a3]);
        let changed = time(LEN).zip(time(LEN + TIME));
        let changed = changed.map(|(shown, until)| Changed { shown, until });
        Self {
            attributes: (has & HAS_ATTRIBUTES != 0).then_some(attributes),
            created: (has & HAS_CREATED != 0).then_some(created),
            changed: changed.filter(|_| has & HAS_CHANGED != 0),
            reparse: None,
        }
    }

    /// Reads Samba's record in `user.DOSATTRIB`, versions 3 to 5: an empty string, the version twice (16 bits), and from offset 8
    /// the valid fields, the attributes, and further on a creation time in 100 ns since 1601.
    pub fn decode_samba(record: &[u8]) -> Self {
        const VALID_ATTRIBUTES: u32 = 0x1;
        const VALID_CREATED: u32 = 0x10;
        let word = |at: usize| {
            let bytes = record.get(at..)?.first_chunk::<4>()?;
            Some(u32::from_le_bytes(*bytes))
        };
        let (Some(head), Some(valid), Some(attributes)) = (word(0), word(8), word(12)) else {
            return Self::default();
        };
        let created_at = match head {
            0x0003_0000 => 36,
            0x0004_0000 => 24,
            0x0005_0000 => 16,
            _ => return Self::default(),
        };
        let created = record
            .get(created_at..)
            .and_then(|r| r.first_chunk::<8>())
            .and_then(|t| from_filetime(u64::from_le_bytes(*t)));
        let attributes = attributes & !(Self::DIRECTORY | Self::NORMAL);
        Self {
            attributes: (valid & VALID_ATTRIBUTES != 0).then_some(attributes),
            created: created.filter(|_| valid & VALID_CREATED != 0),
            changed: None,
            reparse: None,
        }
    }
}

/// Converts a time in 100 ns since 1601 (MS-DTYP section 2.3.3); `None` for 0 and for times after the year 30828.
fn from_filetime(ticks: u64) -> Option<Time> {
    const TO_1970: i64 = 11_644_473_600;
    let ticks = i64::try_from(ticks).ok().filter(|t| *t != 0)?;
    let nsec = u32::try_from(ticks % 10_000_000 * 100).ok()?;
    Some(Time { sec: ticks / 10_000_000 - TO_1970, nsec })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        let time = Time { sec: -5, nsec: 999_999_999 };
        for attributes in [None, Some(0), Some(0x27)] {
            for created in [None, Some(time)] {
                for changed in [None, Some(Changed { shown: time, until: Time::default() })] {
                    let d = Dos { attributes, created, changed, reparse: None };
                    assert_eq!(Dos::decode(&d.encode()), d);
                }
            }
        }
        let d = Dos { attributes: Some(Dos::DIRECTORY | Dos::HIDDEN), ..Dos::default() };
        assert_eq!(Dos::decode(&d.encode()).attributes, Some(Dos::HIDDEN));
    }

    #[test]
    fn set_change_time_valid_until_change() {
        let t = |sec| Time { sec, nsec: 0 };
        let changed = Some(Changed { shown: t(5), until: t(100) });
        let d = Dos { changed, ..Dos::default() };
        assert_eq!((d.change_time(t(99)), d.change_time(t(100))), (t(5), t(5)));
        assert_eq!(d.change_time(Time { sec: 100, nsec: 1 }), Time { sec: 100, nsec: 1 });
        assert_eq!(Dos::default().change_time(t(7)), t(7));
    }

    #[test]
    fn invalid_record_is_ignored() {
        let good = Dos { attributes: Some(1), ..Dos::default() }.encode();
        for n in 0..LEN {
            assert!(Dos::decode(&good[..n]).is_empty());
        }
        assert!(Dos::decode(&[0; LEN]).is_empty());
        let mut bad = good.clone();
        bad[14..].copy_from_slice(&1_000_000_000_u32.to_le_bytes());
        assert!(Dos::decode(&bad).is_empty());
        let longer = [&good[..], b"more"].concat();
        assert_eq!(Dos::decode(&longer).attributes, Some(1));
    }

    #[test]
    fn samba_s_records_are_read() {
        // Archive and hidden, created 2020-01-01 00:00:00 UTC.
        let created = 132_223_104_000_000_000_u64.to_le_bytes();
        let head = |v: u8| [0, 0, v, 0, v, 0, 0, 0, 0x11, 0, 0, 0, 0x22, 0, 0, 0];
        let want = Dos {
            attributes: Some(0x22),
            created: Some(Time { sec: 1_577_836_800, nsec: 0 }),
            changed: None,
            reparse: None,
        };
        let v5 = [&head(5)[..], &created].concat();
        let v4 = [&head(4)[..], &[0; 8], &created].concat();
        let v3 = [&head(3)[..], &[0; 20], &created, &[0; 8]].concat();
        for record in [&v3, &v4, &v5] {
            assert_eq!(Dos::decode_samba(record), want);
        }
        assert_eq!(Dos::decode_samba(&v5[..20]).created, None);
        assert!(Dos::decode_samba(&head(2)).is_empty());
        assert!(Dos::decode_samba(b"0x20\0").is_empty());
    }
}
