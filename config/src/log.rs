//! Log filter: a level, and levels for parts of the program.

use std::fmt;
use std::str::FromStr;

use policy::words;

use crate::suggest::nearest;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// Crates of this workspace, as named in log lines.
const PARTS: [&str; 8] =
    ["gateway", "nfsrdma", "smbd_core", "vfs", "state", "rdma_transport", "rdma_sys", "iobuf"];
/// Maximum length of a filter, in characters.
const FILTER_MAX: usize = 1000;

/// Selects the lines of the log: `info`, or `info,nfsrdma=debug,gateway::accept=warn`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter(String);

impl Default for LogFilter {
    fn default() -> Self {
        Self("info".into())
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > FILTER_MAX {
            return Err(format!("a log filter has at most {FILTER_MAX} characters"));
        }
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        parts.iter().try_for_each(|part| match part.split_once('=') {
            Some((target, level)) => part_of_the_program(target).and_then(|()| is_level(level)),
            None => is_level(part),
        })?;
        if parts.iter().filter(|p| !p.contains('=')).count() > 1 {
            return Err(format!(
                "`{text}` sets two levels for the whole program; write one of them"
            ));
        }
        Ok(Self(parts.join(",")))
    }
}

fn is_level(word: &str) -> Result<(), String> {
    if LEVELS.contains(&word) {
        return Ok(());
    }
    let near = nearest(word, &LEVELS).map(|l| format!("did you mean `{l}`? "));
    Err(format!(
        "`{}` is not a log level; {}the levels are `off`, `error`, `warn`, `info`, `debug` and `trace`, and `PART=LEVEL` sets \
         one for a part of the program",
        word.escape_debug(),
        near.unwrap_or_default()
    ))
}

/// Checks the name of a crate or module: `nfsrdma`, `gateway::accept`.
fn part_of_the_program(target: &str) -> Result<(), String> {
    let first = target.split("::").next().unwrap_or_default();
    let spelt = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    if PARTS.contains(&first) && target.chars().all(spelt) {
        return Ok(());
    }
    let near = nearest(first, &PARTS).map(|p| format!("did you mean `{p}`? "));
    Err(format!(
        "the program has no part `{}`; {}the parts are {}",
        target.escape_debug(),
        near.unwrap_or_default(),
        PARTS.map(|p| format!("`{p}`")).join(", ")
    ))
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For human readers.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

words!(LogFormat, "is not a log format", "text" => Text, "json" => Json);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_filter_parses_levels() {
        for text in ["info", "off", "warn,nfsrdma=debug", "gateway::accept=trace", "info, vfs=off"]
        {
            let filter: LogFilter = text.parse().unwrap();
            assert_eq!(filter.to_string(), text.replace(' ', ""));
        }
        for (text, told) in [
            ("inof", "did you mean `info`?"),
            ("", "the levels are"),
            ("info,warn", "two levels"),
            ("nfsrdm=debug", "did you mean `nfsrdma`?"),
            ("vfs=loud", "`loud` is not a log level"),
            ("vfs[{span}]=info", "the program has no part"),
            (&"x".repeat(2000), "at most 1000"),
        ] {
            let why = text.parse::<LogFilter>().unwrap_err();
            assert!(why.contains(told), "{text}: {why}");
        }
        assert!("xml".parse::<LogFormat>().unwrap_err().contains("`text` or `json`"));
    }
}
