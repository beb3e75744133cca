//! The text of a configuration file: reading, parsing into nodes, and positions of faults.

use std::fs;
use std::io::Read;
use std::path::Path;

use crate::fault::{Fault, Faults, Location};
use crate::reader::{Finding, Origin, Report};
use crate::tree::{self, TEXT_MAX};
use crate::units::Size;

/// Maximum number of faults in one report; fixing these may reveal more.
pub(crate) const FAULTS_MAX: usize = 20;
/// Maximum length of a line in a message, in characters.
const SHOWN_MAX: usize = 160;

/// Reads a file.
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

/// Example configuration that packages install in the configuration folder.
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

/// Parses a text into nodes.
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

/// Resolves the position of a finding in the text.
pub(crate) fn located(file: &Path, text: &str, f: Finding) -> Fault {
    Fault { place: place_of(file, text, f.at), what: f.what, help: f.help }
}

/// Resolves a position in the text.
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

/// Returns the findings in the order of the file, followed by those about options.
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
    // Replace tabs by one space, so that the mark below the line is in the right column.
    let text =
        text.replace('\t', " ").chars().filter(|c| !c.is_control()).take(SHOWN_MAX).collect();
    Location::File { file: file.to_owned(), line, column: column.min(SHOWN_MAX), text }
}
