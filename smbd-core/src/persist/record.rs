//! Encodes a persistent handle: everything that another run of the server needs to reopen it. Pure.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use smb_proto::dtyp::Sid;
use state::{Caching, LockKind, SmbLockRange};

use crate::caching::{from_state, to_state};
use crate::open::{FileId, LOCK_SEQUENCES};

type Guid = [u8; 16];

/// First byte of a record; other values than these mark unknown versions.
const VERSION: u8 = 4;
/// The version without [`Record::sids`].
const WITHOUT_SIDS: u8 = 3;
/// The version without [`Record::order`].
const WITHOUT_ORDER: u8 = 2;
/// The version without [`Record::next`] as well.
const WITHOUT_NEXT: u8 = 1;

/// Caching of the handle, and its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caches {
    Oplock { rights: Caching },
    Lease { rights: Caching, key: Guid, version_2: bool, epoch: u16, parent: Option<Guid> },
}

/// A persistent handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) id: FileId,
    // The file.
    pub(crate) share: String,
    pub(crate) base: Vec<u8>,
    pub(crate) stream: Option<String>,
    pub(crate) dir: Vec<u8>,
    pub(crate) name: Vec<u8>,
    pub(crate) path: String,
    // The user.
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    /// SIDs of the user's ticket, the user's own first.
    pub(crate) sids: Vec<Sid>,
    pub(crate) owner: String,
    pub(crate) client: Guid,
    // The access.
    pub(crate) granted: u32,
    pub(crate) shared: u32,
    pub(crate) options: u32,
    pub(crate) posix: bool,
    pub(crate) delete_on_close: bool,
    pub(crate) delete_pending: bool,
    // Facts for the reconnect.
    pub(crate) create: Guid,
    pub(crate) action: u32,
    pub(crate) timeout_ms: u32,
    pub(crate) app_instance: Option<Guid>,
    pub(crate) app_version: Option<(u64, u64)>,
    // State that it holds.
    pub(crate) caches: Option<Caches>,
    pub(crate) locks: Vec<(SmbLockRange, LockKind)>,
    pub(crate) sequences: [Option<u8>; LOCK_SEQUENCES],
    /// The node that is about to replace `base` under its name, or already has.
    pub(crate) next: Option<Vec<u8>>,
    /// Number in the order of writing; 0 from a version without numbers.
    pub(crate) order: u64,
}

struct Out(Vec<u8>);

impl Out {
    fn u8(&mut self, n: u8) {
        self.0.push(n);
    }

    fn bool(&mut self, b: bool) {
        self.u8(u8::from(b));
    }

    fn u16(&mut self, n: u16) {
        self.0.extend(n.to_le_bytes());
    }

    fn u32(&mut self, n: u32) {
        self.0.extend(n.to_le_bytes());
    }

    fn u64(&mut self, n: u64) {
        self.0.extend(n.to_le_bytes());
    }

    fn count(&mut self, n: usize) {
        // Invariant: no field of an open is this long.
        self.u32(u32::try_from(n).unwrap_or(u32::MAX));
    }

    fn bytes(&mut self, b: &[u8]) {
        self.count(b.len());
        self.0.extend(b);
    }

    fn option<T>(&mut self, o: Option<&T>, put: impl FnOnce(&mut Self, &T)) {
        self.bool(o.is_some());
        if let Some(value) = o {
            put(self, value);
        }
    }

    fn guid(&mut self, g: &Guid) {
        self.0.extend(g);
    }
}

struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(|[n]| n)
    }

    fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a count of elements of at least `size` bytes each, which must fit into the remaining bytes.
    fn count(&mut self, size: usize) -> Option<usize> {
        let n = usize::try_from(self.u32()?).ok()?;
        (n <= self.0.len() / size).then_some(n)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = self.count(1)?;
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    fn option<T>(&mut self, get: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.bool()? { get(self).map(Some) } else { Some(None) }
    }
}

const OPLOCK: u8 = 1;
const LEASE: u8 = 2;

fn put_caches(out: &mut Out, caches: &Caches) {
    match caches {
        Caches::Oplock { rights } => {
            out.u8(OPLOCK);
            out.u32(to_state(*rights));
        }
        Caches::Lease { rights, key, version_2, epoch, parent } => {
            out.u8(LEASE);
            out.u32(to_state(*rights));
            out.guid(key);
            out.bool(*version_2);
            out.u16(*epoch);
            out.option(parent.as_ref(), Out::guid);
        }
    }
}

fn caches(r: &mut In<'_>) -> Option<Caches> {
    let sort = r.u8()?;
    let rights = from_state(r.u32()?);
    match sort {
        OPLOCK => Some(Caches::Oplock { rights }),
        LEASE => Some(Caches::Lease {
            rights,
            key: r.array()?,
            version_2: r.bool()?,
            epoch: r.u16()?,
            parent: r.option(In::array)?,
        }),
        _ => None,
    }
}

impl Record {
    /// Returns a number that differs for records with other content. The key is random, so clients cannot construct a collision.
    pub(crate) fn digest(&self) -> u64 {
        static KEY: OnceLock<RandomState> = OnceLock::new();
        KEY.get_or_init(RandomState::new).hash_one(self.encode())
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Out(Vec::with_capacity(512));
        out.u8(VERSION);
        out.u64(self.id.persistent);
        out.u64(self.id.volatile);
        out.bytes(self.share.as_bytes());
        out.bytes(&self.base);
        out.option(self.stream.as_ref(), |o, s| o.bytes(s.as_bytes()));
        out.bytes(&self.dir);
        out.bytes(&self.name);
        out.bytes(self.path.as_bytes());
        out.u32(self.uid);
        out.u32(self.gid);
        out.count(self.groups.len());
        self.groups.iter().for_each(|g| out.u32(*g));
        out.bytes(self.owner.as_bytes());
        out.guid(&self.client);
        for n in [self.granted, self.shared, self.options] {
            out.u32(n);
        }
        for b in [self.posix, self.delete_on_close, self.delete_pending] {
            out.bool(b);
        }
        out.guid(&self.create);
        out.u32(self.action);
        out.u32(self.timeout_ms);
        out.option(self.app_instance.as_ref(), Out::guid);
        out.option(self.app_version.as_ref(), |o, (high, low)| {
            o.u64(*high);
            o.u64(*low);
        });
        out.option(self.caches.as_ref(), put_caches);
        out.count(self.locks.len());
        for (lock_range, kind) in &self.locks {
            out.u64(lock_range.offset);
            out.u64(lock_range.length);
            out.bool(*kind == LockKind::Exclusive);
        }
        for number in &self.sequences {
            out.option(number.as_ref(), |o, n| o.u8(*n));
        }
        out.option(self.next.as_ref(), |o, n| o.bytes(n));
        out.u64(self.order);
        out.count(self.sids.len());
        self.sids.iter().for_each(|sid| out.bytes(&sid.emit()));
        out.0
    }

    /// Decodes a record; `None` for bytes that [`Record::encode`] cannot have produced.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut r = In(bytes);
        let version = r.u8()?;
        if !(WITHOUT_NEXT..=VERSION).contains(&version) {
            return None;
        }
        let record = Self {
            id: FileId { persistent: r.u64()?, volatile: r.u64()? },
            share: r.text()?,
            base: r.bytes()?.to_vec(),
            stream: r.option(In::text)?,
            dir: r.bytes()?.to_vec(),
            name: r.bytes()?.to_vec(),
            path: r.text()?,
            uid: r.u32()?,
            gid: r.u32()?,
            groups: (0..r.count(4)?).map(|_| r.u32()).collect::<Option<_>>()?,
            owner: r.text()?,
            client: r.array()?,
            granted: r.u32()?,
            shared: r.u32()?,
            options: r.u32()?,
            posix: r.bool()?,
            delete_on_close: r.bool()?,
            delete_pending: r.bool()?,
            create: r.array()?,
            action: r.u32()?,
            timeout_ms: r.u32()?,
            app_instance: r.option(In::array)?,
            app_version: r.option(|r| Some((r.u64()?, r.u64()?)))?,
            caches: r.option(caches)?,
            locks: locks(&mut r)?,
            sequences: sequences(&mut r)?,
            next: match version {
                WITHOUT_NEXT => None,
                _ => r.option(|r| r.bytes().map(<[u8]>::to_vec))?,
            },
            order: match version {
                WITHOUT_NEXT | WITHOUT_ORDER => 0,
                _ => r.u64()?,
            },
            sids: match version {
                WITHOUT_NEXT..=WITHOUT_SIDS => Vec::new(),
                _ => sids(&mut r)?,
            },
        };
        r.0.is_empty().then_some(record)
    }
}

fn locks(r: &mut In<'_>) -> Option<Vec<(SmbLockRange, LockKind)>> {
    const LOCK_LEN: usize = 17;
    (0..r.count(LOCK_LEN)?)
        .map(|_| {
            let lock_range = SmbLockRange::new(r.u64()?, r.u64()?)?;
            Some((lock_range, if r.bool()? { LockKind::Exclusive } else { LockKind::Shared }))
        })
        .collect()
}

fn sids(r: &mut In<'_>) -> Option<Vec<Sid>> {
    const LEAST: usize = 8;
    (0..r.count(LEAST)?).map(|_| Sid::parse(r.bytes()?).ok()).collect()
}

fn sequences(r: &mut In<'_>) -> Option<[Option<u8>; LOCK_SEQUENCES]> {
    let mut all = [None; LOCK_SEQUENCES];
    for number in &mut all {
        *number = r.option(In::u8)?;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Record {
        let mut sequences = [None; LOCK_SEQUENCES];
        sequences[3] = Some(9);
        Record {
            id: FileId { persistent: 1, volatile: 2 },
            share: "data".into(),
            base: vec![1; 40],
            stream: Some("s".into()),
            dir: vec![2; 40],
            name: b"f".to_vec(),
            path: r"d\f".into(),
            uid: 1000,
            gid: 100,
            groups: vec![1, 2, 3],
            sids: ["S-1-5-21-1-2-3-1103", "S-1-5-21-1-2-3-513"].map(|s| s.parse().unwrap()).into(),
            owner: "alice".into(),
            client: [3; 16],
            granted: 0x12_0089,
            shared: 7,
            options: 0x40,
            posix: false,
            delete_on_close: true,
            delete_pending: false,
            create: [4; 16],
            action: 2,
            timeout_ms: 60_000,
            app_instance: Some([5; 16]),
            app_version: Some((1, 2)),
            caches: Some(Caches::Lease {
                rights: Caching::ALL,
                key: [6; 16],
                version_2: true,
                epoch: 7,
                parent: Some([8; 16]),
            }),
            locks: vec![
                (SmbLockRange { offset: 0, length: 10 }, LockKind::Exclusive),
                (SmbLockRange { offset: 20, length: 0 }, LockKind::Shared),
            ],
            sequences,
            next: Some(vec![7; 40]),
            order: 11,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let full = sample();
        assert_eq!(Record::decode(&full.encode()), Some(full.clone()));
        let bare = Record {
            stream: None,
            groups: vec![],
            sids: vec![],
            app_instance: None,
            app_version: None,
            caches: None,
            locks: vec![],
            next: None,
            ..full.clone()
        };
        assert_eq!(Record::decode(&bare.encode()), Some(bare.clone()));
        const COUNT_LEN: usize = 4;
        let unnumbered = Record { order: 0, ..bare.clone() };
        let mut older = unnumbered.encode();
        assert_eq!(older[0], VERSION);
        // The number of SIDs.
        older.truncate(older.len() - COUNT_LEN);
        older[0] = WITHOUT_SIDS;
        assert_eq!(Record::decode(&older), Some(unnumbered.clone()));
        older.truncate(older.len() - 8);
        older[0] = WITHOUT_ORDER;
        assert_eq!(Record::decode(&older), Some(unnumbered.clone()));
        assert_eq!(older.pop(), Some(0));
        older[0] = WITHOUT_NEXT;
        assert_eq!(Record::decode(&older), Some(unnumbered));
        let oplock = Record { caches: Some(Caches::Oplock { rights: Caching::ALL }), ..bare };
        assert_eq!(Record::decode(&oplock.encode()), Some(oplock));
    }

    #[test]
    fn what_is_cut_or_longer_or_newer_is_refused() {
        let good = sample().encode();
        for len in 0..good.len() {
            assert_eq!(Record::decode(&good[..len]), None, "{len} bytes");
        }
        let mut longer = good.clone();
        longer.push(0);
        assert_eq!(Record::decode(&longer), None);
        let mut newer = good;
        newer[0] = VERSION + 1;
        assert_eq!(Record::decode(&newer), None);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(at in 0_usize..400, to in any::<u8>()) {
            let mut bytes = sample().encode();
            let at = at % bytes.len();
            bytes[at] = to;
            let _ = Record::decode(&bytes);
        }
    }
}
