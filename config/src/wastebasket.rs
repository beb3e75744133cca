//! The wastebasket of a share: how long, how much, and what not.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::keys::WASTEBASKET;
use crate::reader::{Group, Report, parse_list, shown};
use crate::tree::Node;
use crate::units::Size;

/// Maximum number of patterns of a share: each removal is compared with all.
const EXCLUDE_MAX: usize = 64;
/// Longest pattern in bytes.
const PATTERN_MAX: usize = 1024;
/// Longest time that files are kept.
const KEEP_MAX: Duration = Duration::from_secs(3650 * 86_400);

/// How removed files are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wastebasket {
    pub keep: Age,
    /// Storage of all kept files; `None`: no limit.
    pub most: Option<Size>,
    /// Paths and patterns of names that are not kept.
    pub exclude: Vec<Excluded>,
}

impl Default for Wastebasket {
    fn default() -> Self {
        Self { keep: Age(Duration::from_secs(30 * 86_400)), most: None, exclude: Vec::new() }
    }
}

/// How long a file is kept, written `30d`, `12h`, `10m` or `30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age(pub Duration);

const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)];

impl FromStr for Age {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let unit = text.chars().last()?;
            let factor = UNITS.iter().find(|(name, _)| *name == unit)?.1;
            let number = text.strip_suffix(unit)?.trim_end();
            let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            let seconds = number.parse::<u64>().ok().filter(|_| is_number)?.checked_mul(factor)?;
            let age = Duration::from_secs(seconds);
            (1..=KEEP_MAX.as_secs()).contains(&seconds).then_some(Self(age))
        };
        parse().ok_or_else(|| {
            format!(
                "`{}` is not a time for which files are kept; write days, hours, minutes or seconds, like `30d`, at most `3650d`",
                shown(text)
            )
        })
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let unit =
            UNITS.iter().find(|(_, factor)| seconds >= *factor && seconds.is_multiple_of(*factor));
        let (name, factor) = unit.copied().unwrap_or(('s', 1));
        write!(f, "{}{name}", seconds / factor)
    }
}

/// A path in the share, or one name with `*` or `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excluded(pub String);

impl FromStr for Excluded {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let path = text.trim_matches('/');
        let is_bad = |name: &str| name.is_empty() || name == "." || name == "..";
        if path.len() > PATTERN_MAX || path.contains('\0') || path.split('/').any(is_bad) {
            return Err(format!(
                "`{}` selects no files of the share; write a path in it, like `scratch/tmp`, or a name with `*`, like `*.tmp`",
                shown(text)
            ));
        }
        Ok(Self(path.to_owned()))
    }
}

impl fmt::Display for Excluded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads the group of a share.
pub(crate) fn wastebasket(share: &Group<'_>, report: &mut Report) -> Option<Wastebasket> {
    let node = share.get("wastebasket")?;
    let group = Group::read(node, "`wastebasket`", &WASTEBASKET, report)?;
    let default = Wastebasket::default();
    Some(Wastebasket {
        keep: group.parse::<Age>("keep", report).map_or(default.keep, |keep| keep.value),
        most: group.parse::<Size>("most", report).map(|most| most.value),
        exclude: group.get("exclude").map_or(Vec::new(), |node| excluded(node, report)),
    })
}

fn excluded(node: &Node, report: &mut Report) -> Vec<Excluded> {
    let mut all = parse_list::<Excluded>(node, report);
    if let Some(first) = all.get(EXCLUDE_MAX) {
        report.add(first.origin, format!("a wastebasket has at most {EXCLUDE_MAX} exceptions"));
        all.truncate(EXCLUDE_MAX);
    }
    all.into_iter().map(|one| one.value).collect()
}
