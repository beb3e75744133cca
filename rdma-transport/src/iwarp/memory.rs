//! STags: unguessable names of memory, and the peer's access rights to it (RFC 5041 section 5, RFC 5040 section 8).

use std::collections::HashMap;

use iobuf::Buf;

use super::violation::Violation;
use crate::verbs::{Refused, Region, RemoteSeg};

/// Random numbers are fetched in batches, so that a registration needs no system call.
const DRAWS: usize = 32;

/// Draws STags. A peer guesses an unknown one with a chance of one in four billion per try, and the first wrong try ends the
/// connection.
pub(crate) struct Stags {
    drawn: [u32; DRAWS],
    left: usize,
}

impl Stags {
    pub(crate) fn new() -> Self {
        Self { drawn: [0; DRAWS], left: 0 }
    }

    /// Draws an STag for which `taken` is false. `None` only if the system has no random numbers.
    pub(crate) fn draw(&mut self, taken: impl Fn(u32) -> bool) -> Option<u32> {
        loop {
            if self.left == 0 {
                let mut bytes = [0; 4 * DRAWS];
                getrandom::fill(&mut bytes).ok()?;
                for (stag, b) in self.drawn.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *stag = u32::from_ne_bytes(*b);
                }
                self.left = DRAWS;
            }
            self.left -= 1;
            let stag = self.drawn[self.left];
            if stag != 0 && !taken(stag) {
                return Some(stag);
            }
        }
    }
}

struct Entry {
    region: Region,
    /// Tagged offset of the first byte. Never 0, so that peers cannot come to rely on that.
    base: u64,
    /// False after the peer has invalidated it; its owner will release it.
    valid: bool,
    /// No data was placed at or after this position.
    fresh_from: usize,
}

impl Entry {
    fn len(&self) -> usize {
        match &self.region {
            Region::Writable(b) => b.capacity(),
            Region::Readable(b) => b.len(),
        }
    }
}

/// How an access exceeds a region.
enum Miss {
    Wrap,
    Bounds,
}

/// The regions of one connection.
pub(crate) struct Memory {
    regions: HashMap<u32, Entry>,
    regions_max: usize,
}

impl Memory {
    pub(crate) fn new(regions_max: usize) -> Self {
        Self { regions: HashMap::new(), regions_max }
    }

    pub(crate) fn contains(&self, stag: u32) -> bool {
        self.regions.contains_key(&stag)
    }

    /// Adds a region under an unused STag.
    pub(crate) fn insert(
        &mut self,
        stag: Option<u32>,
        region: Region,
    ) -> Result<RemoteSeg, (Refused, Region)> {
        let Some(stag) = stag.filter(|_| self.regions.len() < self.regions_max) else {
            return Err((Refused::Full, region));
        };
        let base = u64::from(!stag | 1) << 12;
        let entry = Entry { region, base, valid: true, fresh_from: 0 };
        let Ok(len) = u32::try_from(entry.len()) else {
            return Err((Refused::Invalid, entry.region));
        };
        self.regions.insert(stag, entry);
        Ok(RemoteSeg { handle: stag, len, offset: base })
    }

    pub(crate) fn release(&mut self, stag: u32) -> Option<Region> {
        self.regions.remove(&stag).map(|e| e.region)
    }

    /// Invalidates a region for the peer.
    pub(crate) fn invalidate(&mut self, stag: u32) -> Result<(), Violation> {
        let entry = self.valid(stag).ok_or(Violation::InvalidateStag)?;
        entry.valid = false;
        Ok(())
    }

    fn valid(&mut self, stag: u32) -> Option<&mut Entry> {
        self.regions.get_mut(&stag).filter(|e| e.valid)
    }

    fn position(entry: &Entry, to: u64, len: usize) -> Result<usize, Miss> {
        // Memory sizes fit 64 bits.
        let end = to.checked_add(len as u64).ok_or(Miss::Wrap)?;
        if to < entry.base || end - entry.base > entry.len() as u64 {
            return Err(Miss::Bounds);
        }
        usize::try_from(to - entry.base).map_err(|_| Miss::Bounds)
    }

    /// The position for `len` bytes of an RDMA Write to `to`, which count as placed from now on.
    pub(crate) fn write_at(&mut self, stag: u32, to: u64, len: usize) -> Result<usize, Violation> {
        let entry = self.valid(stag).ok_or(Violation::WriteStag)?;
        if !matches!(entry.region, Region::Writable(_)) {
            return Err(Violation::WriteAccess);
        }
        let at = Self::position(entry, to, len).map_err(|miss| match miss {
            Miss::Wrap => Violation::WriteWrap,
            Miss::Bounds => Violation::WriteBounds,
        })?;
        entry.fresh_from = entry.fresh_from.max(at + len);
        Ok(at)
    }

    /// The data for an RDMA Read.
    pub(crate) fn read_at(&mut self, stag: u32, to: u64, len: usize) -> Result<Buf, Violation> {
        let entry = self.valid(stag).ok_or(Violation::ReadRequestStag)?;
        let Region::Readable(data) = &entry.region else {
            return Err(Violation::ReadRequestAccess);
        };
        let at = Self::position(entry, to, len).map_err(|miss| match miss {
            Miss::Wrap => Violation::ReadRequestWrap,
            Miss::Bounds => Violation::ReadRequestBounds,
        })?;
        Ok(data.slice(at..at + len))
    }

    /// The memory of a writable region.
    pub(crate) fn window(&mut self, stag: u32) -> Option<&mut [u8]> {
        match &mut self.valid(stag)?.region {
            Region::Writable(b) => Some(b.whole_mut()),
            Region::Readable(_) => None,
        }
    }

    /// Number of bytes from `at` to the end of a region, if no byte was ever placed there: only such bytes may be overwritten with
    /// data that is not identified yet.
    pub(crate) fn fresh(&self, stag: u32, at: usize) -> usize {
        match self.regions.get(&stag) {
            Some(e) if e.valid && at >= e.fresh_from => e.len().saturating_sub(at),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use iobuf::BufMut;

    use super::*;

    fn memory() -> (Memory, RemoteSeg, RemoteSeg) {
        let mut m = Memory::new(2);
        let w = m.insert(Some(7), Region::Writable(BufMut::heap(100))).unwrap();
        let r = m.insert(Some(9), Region::Readable(Buf::from(vec![5; 50]))).unwrap();
        (m, w, r)
    }

    #[test]
    fn full_table_returns_region() {
        let (mut m, ..) = memory();
        let (why, region) = m.insert(Some(11), Region::Writable(BufMut::heap(1))).unwrap_err();
        assert_eq!(why, Refused::Full);
        assert!(matches!(region, Region::Writable(_)));
        assert!(m.release(7).is_some() && m.release(7).is_none());
        assert!(m.insert(Some(11), region).is_ok());
    }

    #[test]
    fn writes_are_bounded() {
        let (mut m, w, r) = memory();
        assert_eq!(m.write_at(7, w.offset, 100), Ok(0));
        assert_eq!(m.write_at(7, w.offset + 99, 1), Ok(99));
        assert_eq!(m.write_at(7, w.offset + 99, 2), Err(Violation::WriteBounds));
        assert_eq!(m.write_at(7, w.offset - 1, 1), Err(Violation::WriteBounds));
        assert_eq!(m.write_at(7, u64::MAX, 1), Err(Violation::WriteWrap));
        assert_eq!(m.write_at(8, w.offset, 1), Err(Violation::WriteStag));
        assert_eq!(m.write_at(9, r.offset, 1), Err(Violation::WriteAccess));
    }

    #[test]
    fn reads_are_bounded() {
        let (mut m, w, r) = memory();
        assert_eq!(m.read_at(9, r.offset + 10, 40).unwrap().len(), 40);
        assert_eq!(m.read_at(9, r.offset + 10, 41), Err(Violation::ReadRequestBounds));
        assert_eq!(m.read_at(9, u64::MAX - 2, 4), Err(Violation::ReadRequestWrap));
        assert_eq!(m.read_at(1, r.offset, 1), Err(Violation::ReadRequestStag));
        assert_eq!(m.read_at(7, w.offset, 1), Err(Violation::ReadRequestAccess));
    }

    #[test]
    fn invalidated_region_stays_owned() {
        let (mut m, w, _) = memory();
        assert_eq!(m.invalidate(7), Ok(()));
        assert_eq!(m.invalidate(7), Err(Violation::InvalidateStag));
        assert_eq!(m.write_at(7, w.offset, 1), Err(Violation::WriteStag));
        assert!(m.window(7).is_none());
        assert!(m.release(7).is_some());
    }

    #[test]
    fn only_untouched_memory_is_fresh() {
        let (mut m, w, _) = memory();
        assert_eq!(m.fresh(7, 0), 100);
        m.write_at(7, w.offset + 40, 10).unwrap();
        assert_eq!(m.fresh(7, 0), 0);
        assert_eq!(m.fresh(7, 50), 50);
        assert_eq!(m.fresh(7, 100), 0);
    }

    #[test]
    fn stags_differ() {
        let mut s = Stags::new();
        let a = s.draw(|_| false).unwrap();
        let b = s.draw(|x| x == a).unwrap();
        assert!(a != b && a != 0 && b != 0);
    }
}
