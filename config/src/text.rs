//! The text of a file: read, taken apart into nodes, and shown where a fault is in it.

use std::fs;
use std::io::Read;
use std::path::Path;

use crate::fault::{Fault, Faults, Location};
use crate::reader::{Finding, Origin, Report};
use crate::tree::{self, TEXT_MAX};
use crate::units::Size;

/// Faults that are told at most; who has more fixes these first.
pub(crate) const FAULTS_MAX: usize = 20;
/// Longest line of the file that a message shows, in characters.
const SHOWN_MAX: usize = 160;

/// The text of a file.
pub(crate) fn text_of(path: &Path) -> Result<String, Faults> {
    read_text(path).map_err(|what| {
        let file = path.to_owned();
        let example = Path::new(EXAMPLE);
        let is_missing = *path == *example.with_extension("") && !path.exists();
        let help = is_missing.then(|| match example.exists() {
            true => format!("copy {EXAMPLE} there, and change it"),
            false => "write one: docs/first-share.md has an example".to_owned(),
        });
        let place = Location::File { file, line: 0, column: 0, text: String::new() };
        Faults(vec![Fault { place, what, help }])
    })
}

/// The example that packages put beside the place of the configuration.
const EXAMPLE: &str = "/etc/headgate/headgate.yaml.example";

pub(crate) fn read_text(path: &Path) -> Result<String, String> {
    let cannot = |e: std::io::Error| format!("cannot read the configuration: {e}");
    let mut text = String::new();
    let most = TEXT_MAX as u64 + 1;
    fs::File::open(path).map_err(cannot)?.take(most).read_to_string(&mut text).map_err(cannot)?;
    if text.len() > TEXT_MAX {
        return Err(format!("the configuration is larger than {}", Size(TEXT_MAX as u64)));
    }
    Ok(text)
}

/// The nodes of a text.
pub(crate) fn root(file: &Path, text: &str) -> Result<tree::Node, Faults> {
    tree::read(text).map_err(|s| {
        let what = format!("this is not YAML: {}", s.message);
        let line = text.lines().nth(s.line.saturating_sub(1)).unwrap_or_default();
        let indent = line.chars().take_while(|c| c.is_whitespace());
        let help = indent.into_iter().any(|c| c == '\t');
        let help = help.then(|| "indent with spaces: YAML does not allow tabs there".to_owned());
        Faults(vec![Fault { place: place(file, text, s.line, s.column), what, help }])
    })
}

/// A finding with its place in the text.
pub(crate) fn located(file: &Path, text: &str, f: Finding) -> Fault {
    Fault { place: place_of(file, text, f.at), what: f.what, help: f.help }
}

/// Where that stands in the text.
pub(crate) fn place_of(file: &Path, text: &str, at: Origin) -> Location {
    match at {
        Origin::Node(number) => {
            let (line, column) = tree::locate(text, number);
            place(file, text, line, column)
        }
        Origin::Option(name) => Location::Option(name),
        Origin::Nowhere => Location::Nowhere,
    }
}

/// What was found, from the top of the file to its end, then the options.
pub(crate) fn faults(file: &Path, text: &str, report: Report) -> Faults {
    let findings = report.0.into_iter().take(FAULTS_MAX);
    let mut faults: Vec<Fault> = findings.map(|f| located(file, text, f)).collect();
    faults.sort_by_key(|f| match &f.place {
        Location::File { line, column, .. } => (0, *line, *column),
        Location::Option(_) => (1, 0, 0),
        Location::Nowhere => (2, 0, 0),
    });
    Faults(faults)
}

fn place(file: &Path, text: &str, line: usize, column: usize) -> Location {
    let text = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    // A tab would move the mark under the line; one space keeps it in place.
    let text =
        text.replace('\t', " ").chars().filter(|c| !c.is_control()).take(SHOWN_MAX).collect();
    Location::File { file: file.to_owned(), line, column: column.min(SHOWN_MAX), text }
}
