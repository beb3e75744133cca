//! The pattern of the folders that are snapshots of a share: a path with one part that varies.
//!
//! *Operation.* `{time:FORMAT}` is a time in UTC in a format of strftime(3), `{local:FORMAT}` one in the time zone of the host; the
//! part may begin and end with further text, and with `*` for any. `{number}` is a snapshot of snapper, whose time is in `info.xml`
//! in its folder. The parts after the one that varies are folders inside of it. A pattern that begins with `/` is a path of
//! the host, any other one begins at the folder of the share.
//!
//! *Errors.* A pattern that cannot name a time is refused with one line.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::date;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::{Offset, TimeZone};

/// Longest name of a file on Linux, in bytes.
const NAME_MAX: usize = 255;

/// Folders that are snapshots of a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotPattern {
    text: String,
    base: PathBuf,
    varies: Varies,
    inner: PathBuf,
}

/// The part that differs from snapshot to snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Varies {
    Time { before: Around, format: String, is_local: bool, after: Around },
    Number,
}

/// Text around the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Around {
    text: String,
    /// Any text precedes it, or for text after the time: follows it.
    is_open: bool,
}

impl SnapshotPattern {
    /// Returns the folder in which the snapshots are; a relative path begins at the folder of the share.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// Returns the path from the folder that varies to the snapshot; often empty.
    pub fn inner(&self) -> &Path {
        &self.inner
    }

    /// Returns true if snapper numbers the snapshots: [`snapper_time`] reads their times.
    pub fn is_numbered(&self) -> bool {
        self.varies == Varies::Number
    }

    /// Returns true if a folder of this name may be a snapshot.
    pub fn matches(&self, name: &str) -> bool {
        match self.varies {
            Varies::Number => !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit()),
            Varies::Time { .. } => self.time_of(name).is_some(),
        }
    }

    /// Returns the time in the name of a snapshot, in seconds since 1970, if the name matches.
    pub fn time_of(&self, name: &str) -> Option<i64> {
        let Varies::Time { before, format, is_local, after } = &self.varies else { return None };
        let from = |at: usize| {
            let rest = name.get(at..)?.strip_prefix(before.text.as_str())?;
            let (time, read) = BrokenDownTime::parse_prefix(format, rest).ok()?;
            let rest = rest.get(read..)?.strip_prefix(after.text.as_str())?;
            if !after.is_open && !rest.is_empty() {
                return None;
            }
            // A hyphen before a year or a number of seconds is no sign: the time begins behind it.
            seconds(&time, *is_local).filter(|sec| *sec >= 0)
        };
        let starts = if before.is_open { name.len().min(NAME_MAX) } else { 0 };
        (0..=starts).find_map(from)
    }
}

/// Returns the time of a snapshot by the content of snapper's `info.xml`, in seconds since 1970. Snapper writes UTC.
pub fn snapper_time(info: &str) -> Option<i64> {
    let (_, rest) = info.split_once("<date>")?;
    let (text, _) = rest.split_once("</date>")?;
    let time = BrokenDownTime::parse("%Y-%m-%d %H:%M:%S", text.trim()).ok()?;
    seconds(&time, false)
}

/// The names by which clients know snapshots (MS-SMB2 section 2.2.32.2), in UTC.
const GMT: &str = "@GMT-%Y.%m.%d-%H.%M.%S";

/// Returns the name by which clients know a snapshot of this time, in seconds since 1970, if a name can have it.
pub fn gmt_name(sec: i64) -> Option<String> {
    let stamp = Timestamp::from_second(sec).ok()?;
    BrokenDownTime::from(&stamp.to_zoned_datetime(TimeZone::UTC)).to_string(GMT).ok()
}

/// Returns the time in such a name, if it is one.
pub fn gmt_time(name: &str) -> Option<i64> {
    let sec = seconds(&BrokenDownTime::parse(GMT, name).ok()?, false)?;
    (gmt_name(sec)? == name).then_some(sec)
}

fn seconds(time: &BrokenDownTime, is_local: bool) -> Option<i64> {
    if let Ok(stamp) = time.to_timestamp() {
        return Some(stamp.as_second());
    }
    let civil = time.to_datetime().ok()?;
    let stamp = match is_local {
        true => TimeZone::system().to_timestamp(civil),
        false => Offset::UTC.to_timestamp(civil),
    };
    stamp.ok().map(|stamp| stamp.as_second())
}

impl FromStr for SnapshotPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const HELP: &str = "write a path like `/srv/.snapshots/{time:%Y-%m-%d_%H%M%S}`, with `{local:...}` for times of the host's \
                            zone, or `.snapshots/{number}/snapshot` for snapper";
        let wrong = |why: &str| format!("the pattern of snapshots {why}; {HELP}");
        let (mut base, mut inner, mut varies) = (PathBuf::new(), PathBuf::new(), None);
        if text.starts_with('/') {
            base.push("/");
        }
        for part in parts(text) {
            if matches!(part, "." | "..") {
                return Err(wrong("has a part `.` or `..`"));
            }
            match (part.contains(['{', '}']), &varies) {
                (true, None) => varies = Some(Varies::parse(part).map_err(|why| wrong(&why))?),
                (true, Some(_)) => return Err(wrong("has more than one part in braces")),
                (false, None) => base.push(part),
                (false, Some(_)) => inner.push(part),
            }
        }
        let varies = varies.ok_or_else(|| wrong("has no time"))?;
        let is_share = base.as_os_str().is_empty();
        if is_share || base == Path::new("/") {
            return Err(wrong("needs a folder before the time"));
        }
        Ok(Self { text: text.to_owned(), base, varies, inner })
    }
}

/// Splits at `/` outside of braces, so that a format may contain one only by mistake, which [`Varies::parse`] finds.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    let split = move |c: char| {
        match c {
            '{' => depth = depth.saturating_add(1),
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == '/' && depth == 0
    };
    text.split(split).filter(|part| !part.is_empty())
}

impl Varies {
    fn parse(part: &str) -> Result<Self, String> {
        if part == "{number}" {
            return Ok(Self::Number);
        }
        let odd = || format!("has `{part}`, which is neither `{{time:FORMAT}}` nor `{{number}}`");
        let (before, rest) = part.split_once('{').ok_or_else(odd)?;
        let (inside, after) = rest.split_once('}').ok_or_else(odd)?;
        let (word, format) = inside.split_once(':').ok_or_else(odd)?;
        let is_local = match word {
            "time" => false,
            "local" => true,
            _ => return Err(odd()),
        };
        if format.contains(['/', '{']) || after.contains(['{', '}']) || before.contains('}') {
            return Err(odd());
        }
        let before = match before.strip_prefix('*') {
            Some(text) => Around { text: text.into(), is_open: true },
            None => Around { text: before.into(), is_open: false },
        };
        let after = match after.strip_suffix('*') {
            Some(text) => Around { text: text.into(), is_open: true },
            None => Around { text: after.into(), is_open: false },
        };
        if before.text.contains('*') || after.text.contains('*') {
            return Err("has `*` elsewhere than at the start or the end of the name".into());
        }
        check_format(format)?;
        Ok(Self::Time { before, format: format.into(), is_local, after })
    }
}

/// Checks that a time written in this format can be read, and that it names a day.
fn check_format(format: &str) -> Result<(), String> {
    let bad = |why: String| format!("has the format `{format}`, {why}");
    let sample = date(2023, 11, 28).at(13, 46, 57, 0);
    let Ok(stamp) = Offset::UTC.to_timestamp(sample) else {
        return Err(bad("which cannot be tried".into()));
    };
    let text = BrokenDownTime::from(&stamp.to_zoned_datetime(TimeZone::UTC)).to_string(format);
    let text = text.map_err(|e| bad(format!("which is not one of strftime(3): {e}")))?;
    let read = BrokenDownTime::parse(format, &text).ok().and_then(|time| seconds(&time, false));
    let day = |at: i64| at.div_euclid(86_400);
    match read {
        Some(at) if day(at) == day(stamp.as_second()) => Ok(()),
        _ => Err(bad("from which year, month and day cannot be read".into())),
    }
}

impl fmt::Display for SnapshotPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> SnapshotPattern {
        text.parse().unwrap()
    }

    #[test]
    fn pattern_is_split_around_its_time() {
        let of = |text: &str| {
            let p = pattern(text);
            assert_eq!(p.to_string(), text);
            let path = |p: &Path| p.to_str().unwrap().to_owned();
            (path(p.base()), path(p.inner()))
        };
        let both = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(of("/srv/.snapshots/{time:%Y-%m-%d_%H%M%S}"), both("/srv/.snapshots", ""));
        assert_eq!(of(".zfs/snapshot/auto-{time:%Y-%m-%d}"), both(".zfs/snapshot", ""));
        assert_eq!(of(".snapshots/{number}/snapshot"), both(".snapshots", "snapshot"));
        assert_eq!(of("/a/{local:%Y%m%d}/b/c"), both("/a", "b/c"));
        assert!(pattern(".snapshots/{number}/snapshot").is_numbered());
    }

    #[test]
    fn times_are_read_from_names() {
        let plain = pattern("/s/{time:%Y-%m-%d_%H%M%S}");
        let day = pattern("/s/daily-{time:%Y%m%d}");
        let gmt = pattern("/s/@GMT-{time:%Y.%m.%d-%H.%M.%S}");
        let any = pattern(".zfs/snapshot/*_{time:%Y-%m-%d_%H:%M:%S}_*");
        let stamp = pattern("/s/{time:%s}");
        let cases: [(&SnapshotPattern, &str, Option<i64>); 15] = [
            (&plain, "2023-11-28_134657", Some(1_701_179_217)),
            (&plain, "2023-11-28_134657x", None),
            (&plain, "x2023-11-28_134657", None),
            (&plain, "2023-13-28_134657", None),
            (&plain, "2023-02-30_000000", None),
            (&plain, "", None),
            (&day, "daily-20231128", Some(1_701_129_600)),
            (&day, "daily-2023", None),
            (&gmt, "@GMT-2023.11.28-13.46.57", Some(1_701_179_217)),
            (&any, "autosnap_2023-11-28_13:46:57_hourly", Some(1_701_179_217)),
            (&any, "é_é_2023-11-28_13:46:57_", Some(1_701_179_217)),
            (&any, "2023-11-28_13:46:57_hourly", None),
            (&stamp, "1701179217", Some(1_701_179_217)),
            (&stamp, "9999999999999999999999", None),
            (&pattern(".snapshots/{number}/snapshot"), "12", None),
        ];
        for (pattern, name, want) in cases {
            assert_eq!(pattern.time_of(name), want, "{pattern} {name}");
        }
        let numbered = pattern(".snapshots/{number}/snapshot");
        assert!(numbered.matches("12") && !numbered.matches("") && !numbered.matches("1a"));
        assert!(plain.matches("2023-11-28_134657") && !plain.matches("lost+found"));
    }

    #[test]
    fn hyphen_before_a_time_is_no_sign() {
        let zfs = pattern(".zfs/snapshot/*{time:%Y-%m-%d-%H%M}");
        let time = zfs.time_of("zfs-auto-snap_daily-2023-11-28-1346");
        assert_eq!(time, Some(1_701_179_160));
        assert_eq!(pattern("/s/*{time:%s}").time_of("snap-1701179217"), Some(1_701_179_217));
    }

    #[test]
    fn names_of_clients_are_times() {
        assert_eq!(gmt_name(951_786_123).as_deref(), Some("@GMT-2000.02.29-01.02.03"));
        assert_eq!(gmt_time("@GMT-2000.02.29-01.02.03"), Some(951_786_123));
        for bad in
            ["", "@GMT-2000.02.30-01.02.03", "@GMT-2000.2.29-01.02.03", "@GMT-2000.02.29-01.02.03 "]
        {
            assert_eq!(gmt_time(bad), None, "{bad}");
        }
    }

    #[test]
    fn snapper_tells_its_time() {
        let info = "<?xml version=\"1.0\"?>\n<snapshot>\n <num>7</num>\n <date>2023-11-28 13:46:57</date>\n</snapshot>\n";
        assert_eq!(snapper_time(info), Some(1_701_179_217));
        for bad in ["", "<date>", "<date>yesterday</date>", "<date>2023-11-28</date>"] {
            assert_eq!(snapper_time(bad), None, "{bad}");
        }
    }

    #[test]
    fn pattern_without_a_time_is_refused() {
        for (bad, why) in [
            ("", "has no time"),
            ("/srv/.snapshots", "has no time"),
            ("/srv/{time}", "neither"),
            ("/srv/{when:%Y}", "neither"),
            ("/srv/{time:%Y", "neither"),
            ("/srv/{time:%Y}}", "neither"),
            ("/srv/{time:%H%M}", "year, month and day"),
            ("/srv/{time:%Y/%m/%d}", "neither"),
            ("/srv/{time:%!}", "strftime"),
            ("/srv/a*b{time:%Y%m%d}", "`*`"),
            ("{time:%Y%m%d}", "needs a folder"),
            ("/{time:%Y%m%d}", "needs a folder"),
            ("../s/{time:%Y%m%d}", "`..`"),
            ("/s/{time:%Y%m%d}/{number}", "more than one"),
        ] {
            let said = bad.parse::<SnapshotPattern>().unwrap_err();
            assert!(said.contains(why), "{bad}: {said}");
        }
    }
}
