//! Measures how long clients wait when one of two servers of a CephFS fails, compared with NFS-Ganesha.

use std::fmt::Write as _;
use std::fs;

use crate::lab::{self, gateway};
use crate::packages;
use crate::sh::{Outcome, Result};

const DOCUMENT: &str = "docs/dev/takeovers.md";
const HEAD: &str = "Ganesha dies | Headgate dies | Ganesha stopped | Headgate stopped |\n";
const COLUMNS: usize = 4;

/// Lines of a run, which of their figures to use (`None`: the greatest), and the text of the row.
const ROWS: [(&str, Option<usize>, &str); 11] = [
    ("after", Some(0), "A: writes"),
    ("after", Some(1), "A: reads"),
    ("after", Some(2), "A: new files"),
    ("after", Some(3), "A: opens and locks"),
    ("after", Some(4), "B, which has nothing to do with it: writes"),
    ("after", Some(5), "B: reads"),
    ("after", Some(6), "B: new files"),
    ("after", Some(7), "B: opens and locks"),
    ("address", None, "address is there again after"),
    ("before", None, "longest of all before anything went"),
    ("load", None, "load of the machine then"),
];

/// `cargo xtask bench failover`.
pub(super) fn command(args: &[String]) -> Result<Outcome> {
    let runs = match args {
        [] => 3,
        [option, n] if option == "--runs" => n.parse().map_err(|e| format!("--runs {n}: {e}"))?,
        _ => return Err("usage: cargo xtask bench failover [--runs N]".into()),
    };
    packages::install(&["lab", "failover"])?;
    gateway::build()?;
    let measured = lab::failovers(runs)?;
    let table = table(&measured);
    print!("{table}");
    let old = fs::read_to_string(DOCUMENT).map_err(|e| format!("{DOCUMENT}: {e}"))?;
    fs::write(DOCUMENT, replaced(&old, &table)?).map_err(|e| format!("{DOCUMENT}: {e}"))?;
    println!("written to {DOCUMENT}");
    let all = measured.len() == runs as usize * COLUMNS;
    Ok(if all { Outcome::Passed } else { Outcome::Failed })
}

fn table(measured: &[(usize, Vec<String>)]) -> String {
    let mut text = format!("| | {HEAD}|---|{}\n", "---|".repeat(COLUMNS));
    let cells =
        |row: &dyn Fn(usize) -> String| (0..COLUMNS).map(row).collect::<Vec<_>>().join(" | ");
    let of = |column| measured.iter().filter(move |(n, _)| *n == column).map(|(_, lines)| lines);
    // Writing to a string does not fail.
    let _ = writeln!(text, "| runs | {} |", cells(&|column| of(column).count().to_string()));
    for (what, n, says) in ROWS {
        let figure = |lines: &Vec<String>| {
            let rest = lines.iter().find_map(|l| l.strip_prefix(what)?.strip_prefix(" | "))?;
            let all: Vec<f64> = rest.split(" | ").filter_map(|text| text.parse().ok()).collect();
            n.map_or_else(|| all.iter().copied().max_by(f64::total_cmp), |n| all.get(n).copied())
        };
        let range = |column| range(of(column).filter_map(figure).collect());
        let _ = writeln!(text, "| {says} | {} |", cells(&range));
    }
    text
}

fn range(mut figures: Vec<f64>) -> String {
    figures.sort_by(f64::total_cmp);
    match (figures.first(), figures.last()) {
        (Some(least), Some(most)) => format!("{least:.1} to {most:.1}"),
        _ => "not measured".into(),
    }
}

/// Returns the document with a new table in place of the one with the same head.
fn replaced(document: &str, table: &str) -> Result<String> {
    let head = document.find(HEAD).ok_or("the table is not there")?;
    let begins = document[..head].rfind('\n').map_or(0, |at| at + 1);
    let ends = document[head..].find("\n\n").map_or(document.len(), |at| head + at + 1);
    Ok([&document[..begins], table, &document[ends..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_table_replaces_old() {
        let run = |column, after: &str| {
            let lines = ["load | 1.50", "before | 0.10 | 0.20", after, "address | 4.00"];
            (column, lines.map(str::to_owned).to_vec())
        };
        let measured = [run(0, "after | 1.00 | 2.00"), run(0, "after | 3.00 | 0.50")];
        let made = table(&measured);
        assert!(made.contains("| runs | 2 | 0 | 0 | 0 |"), "{made}");
        assert!(made.contains("| A: reads | 0.5 to 2.0 | not measured |"), "{made}");
        assert!(made.contains("before anything went | 0.2 to 0.2 |"), "{made}");
        let document = format!("before\n\n| | {HEAD}|---|\n| old |\n\nafterwards\n");
        let new = replaced(&document, &made).unwrap();
        assert_eq!(new, format!("before\n\n{made}\nafterwards\n"));
    }
}
