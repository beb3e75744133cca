//! FILETIME (MS-DTYP section 2.3.3): 100-nanosecond steps since 1601, UTC.

/// Seconds from 1601 to 1970.
const EPOCH_S: i64 = 11_644_473_600;
const TICKS_PER_S: i64 = 10_000_000;

/// A point in time as SMB sends it, or one of the special values of SET_INFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileTime(pub u64);

impl FileTime {
    /// Do not change the time (MS-FSCC section 2.4.7).
    pub const OMIT: Self = Self(0);
    /// Do not update the time for further operations on this open (-1).
    pub const FREEZE: Self = Self(u64::MAX);
    /// Update the time again for operations on this open (-2).
    pub const THAW: Self = Self(u64::MAX - 1);

    /// Converts seconds since 1970 and nanoseconds; truncates to 100 ns and to the range of FILETIME.
    pub fn of_unix(sec: i64, nsec: u32) -> Self {
        let ticks = sec
            .saturating_add(EPOCH_S)
            .saturating_mul(TICKS_PER_S)
            .saturating_add(i64::from(nsec / 100));
        Self(u64::try_from(ticks).unwrap_or(0))
    }

    /// Converts to seconds since 1970 and nanoseconds; `None` if the sign bit is set, since such a time is invalid.
    pub fn to_unix(self) -> Option<(i64, u32)> {
        let ticks = i64::try_from(self.0).ok()?;
        let nsec = u32::try_from(ticks % TICKS_PER_S).ok()? * 100;
        Some((ticks / TICKS_PER_S - EPOCH_S, nsec))
    }
}

/// Converts days since 1970 to year, month and day of the Gregorian calendar.
pub fn civil(days: u64) -> (u32, u32, u32) {
    // Count from March 1 of the year 0, so that a leap day ends a year.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let low = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    (low(year), low(month), low(day))
}

/// Returns the name of a snapshot taken at this time in seconds since 1970 (MS-SMB2 section 2.2.32.2).
pub fn gmt(sec: i64) -> String {
    let sec = u64::try_from(sec).unwrap_or(0);
    let (year, month, day) = civil(sec / 86_400);
    let (hour, minute, second) = (sec / 3600 % 24, sec / 60 % 60, sec % 60);
    format!("@GMT-{year:04}.{month:02}.{day:02}-{hour:02}.{minute:02}.{second:02}")
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

    #[test]
    fn civil_matches_the_calendar() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(11_017), (2000, 3, 1));
        assert_eq!(civil(19_722), (2023, 12, 31));
        assert_eq!(civil(47_541), (2100, 3, 1));
    }

    #[test]
    fn snapshot_time_is_in_gmt() {
        assert_eq!(gmt(951_782_400 + 3_723), "@GMT-2000.02.29-01.02.03");
        assert_eq!(gmt(-1), "@GMT-1970.01.01-00.00.00", "no snapshot is older");
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
