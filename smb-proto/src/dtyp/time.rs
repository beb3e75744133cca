//! FILETIME (MS-DTYP section 2.3.3): 100-nanosecond steps since 1601, UTC.

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

    /// Of seconds since 1970 and nanoseconds, cut to 100 ns and to what FILETIME can hold.
    pub fn of_unix(sec: i64, nsec: u32) -> Self {
        let ticks = sec
            .saturating_add(EPOCH_S)
            .saturating_mul(TICKS_PER_S)
            .saturating_add(i64::from(nsec / 100));
        Self(u64::try_from(ticks).unwrap_or(0))
    }

    /// Seconds since 1970, and nanoseconds; `None` when the sign bit is set, which no time has.
    pub fn to_unix(self) -> Option<(i64, u32)> {
        let ticks = i64::try_from(self.0).ok()?;
        let nsec = u32::try_from(ticks % TICKS_PER_S).ok()? * 100;
        Some((ticks / TICKS_PER_S - EPOCH_S, nsec))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_times() {
        assert_eq!(FileTime::of_unix(0, 0), FileTime(0x019d_b1de_d53e_8000));
        assert_eq!(FileTime::of_unix(-1, 999_999_900).0, 0x019d_b1de_d53e_7fff);
        assert_eq!(FileTime::of_unix(i64::MIN, 0), FileTime(0), "before 1601");
        assert_eq!(FileTime::FREEZE.to_unix(), None);
        assert_eq!(FileTime::THAW.to_unix(), None);
    }

    proptest! {
        #[test]
        fn times_round_trip(ticks in 0..=i64::MAX.cast_unsigned()) {
            let (sec, nsec) = FileTime(ticks).to_unix().unwrap();
            prop_assert!(nsec < 1_000_000_000);
            prop_assert_eq!(FileTime::of_unix(sec, nsec), FileTime(ticks));
        }
    }
}
