//! FILETIME (MS-DTYP section 2.3.3): 100-nanosecond steps since 1601, UTC.

use vfs::types::Time;

/// Seconds from 1601 to 1970.
const EPOCH_S: i64 = 11_644_473_600;
const TICKS_PER_S: i64 = 10_000_000;

/// A point in time as SMB sends it, or one of the values that a SET_INFO gives a meaning to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileTime(pub u64);

impl FileTime {
    /// Leave as it is (MS-FSCC section 2.4.7).
    pub const OMIT: Self = Self(0);
    /// Do not change it any more for operations on this open (-1).
    pub const FREEZE: Self = Self(u64::MAX);
    /// Change it again for operations on this open (-2).
    pub const THAW: Self = Self(u64::MAX - 1);

    /// Of a neutral time, cut to 100 ns and to what FILETIME can hold.
    pub fn of(t: Time) -> Self {
        let ticks = t
            .sec
            .saturating_add(EPOCH_S)
            .saturating_mul(TICKS_PER_S)
            .saturating_add(i64::from(t.nsec / 100));
        Self(u64::try_from(ticks).unwrap_or(0))
    }

    /// The neutral time; `None` when the sign bit is set, which no time has.
    pub fn time(self) -> Option<Time> {
        let ticks = i64::try_from(self.0).ok()?;
        let nsec = u32::try_from(ticks % TICKS_PER_S).ok()? * 100;
        Some(Time { sec: ticks / TICKS_PER_S - EPOCH_S, nsec })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_times() {
        assert_eq!(FileTime::of(Time { sec: 0, nsec: 0 }), FileTime(0x019d_b1de_d53e_8000));
        assert_eq!(FileTime::of(Time { sec: -1, nsec: 999_999_900 }).0, 0x019d_b1de_d53e_7fff);
        assert_eq!(FileTime::of(Time { sec: i64::MIN, nsec: 0 }), FileTime(0), "before 1601");
        assert_eq!(FileTime::FREEZE.time(), None);
        assert_eq!(FileTime::THAW.time(), None);
    }

    proptest! {
        #[test]
        fn times_round_trip(ticks in 0..=i64::MAX.cast_unsigned()) {
            let t = FileTime(ticks).time().unwrap();
            prop_assert!(t.nsec < 1_000_000_000);
            prop_assert_eq!(FileTime::of(t), FileTime(ticks));
        }
    }
}
