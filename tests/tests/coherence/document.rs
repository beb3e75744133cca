//! Writes the observed results to `table.md` in this folder, and compares them with it.

use std::fmt::Write;
use std::path::PathBuf;

use crate::Cell;
use crate::cell::Seen;
use crate::kinds::{ALL, Kind};
use crate::rules::rule;

const BEGIN: &str = "<!-- Written by tests/tests/coherence: do not edit below. -->\n";

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/coherence/table.md")
}

/// The table as the document contains it now.
pub(crate) struct Known {
    pub(crate) text: String,
}

fn row(pair: (Kind, Kind), seen: &Seen) -> String {
    let (rule, source) = rule(pair.0, pair.1);
    format!("| {} | {} | {} | {rule} ({source}) |\n", pair.1.name(), seen.told, seen.got)
}

fn heading(first: Kind) -> String {
    format!(
        "\n### {}\n\n| then | notice to the first | the second | rule |\n|---|---|---|---|\n",
        first.name()
    )
}

impl Known {
    /// Reads the document; empty if it does not exist yet.
    pub(crate) fn read() -> Self {
        let whole = std::fs::read_to_string(path()).unwrap_or_default();
        let text = whole.split_once(BEGIN).map(|(_, text)| text.to_owned()).unwrap_or_default();
        Self { text }
    }

    /// True if the document has this row under its heading.
    pub(crate) fn agrees(&self, pair: (Kind, Kind), seen: &Seen) -> bool {
        let Some((_, section)) = self.text.split_once(&heading(pair.0)) else { return false };
        let section = section.split("\n### ").next().unwrap_or_default();
        section.contains(&row(pair, seen))
    }
}

/// The text below the mark.
pub(crate) fn text(cells: &[Cell]) -> String {
    let mut out = String::new();
    for first in ALL {
        out += &heading(first);
        for (pair, seen) in cells.iter().filter(|(pair, _)| pair.0 == first) {
            let _ = write!(out, "{}", row(*pair, seen));
        }
    }
    out
}

/// Rewrites the document; the text above the mark is kept.
pub(crate) fn write(cells: &[Cell]) {
    let whole = std::fs::read_to_string(path()).unwrap_or_default();
    let head = whole.split_once(BEGIN).map_or(whole.as_str(), |(head, _)| head);
    std::fs::write(path(), format!("{head}{BEGIN}{}", text(cells))).unwrap();
}
