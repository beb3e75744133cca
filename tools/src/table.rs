//! Tables for people: aligned columns, a rule under the head, colour only on a terminal.

use std::fmt::Write;

use audit::PeerText;

/// A table under construction.
#[derive(Debug)]
pub struct Table {
    head: Vec<&'static str>,
    /// Columns from this one on are numbers, aligned to the right.
    numbers_from: usize,
    rows: Vec<Row>,
    colour: bool,
}

#[derive(Debug)]
enum Row {
    Cells(Vec<String>, Tone),
    Rule,
}

/// Style of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    /// Marks an error.
    Bad,
}

impl Table {
    /// Creates a table with these columns; those from `numbers_from` on are aligned to the right.
    pub fn new(head: &[&'static str], numbers_from: usize, colour: bool) -> Self {
        Self { head: head.to_vec(), numbers_from, rows: Vec::new(), colour }
    }

    /// Appends a row.
    pub fn row(&mut self, cells: Vec<String>, tone: Tone) {
        let cells = cells.into_iter().map(|cell| PeerText::from(cell).into_string()).collect();
        self.rows.push(Row::Cells(cells, tone));
    }

    /// Appends a line between groups of rows.
    pub fn rule(&mut self) {
        if matches!(self.rows.last(), Some(Row::Cells(..))) {
            self.rows.push(Row::Rule);
        }
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.head.iter().map(|h| h.chars().count()).collect();
        for row in &self.rows {
            if let Row::Cells(cells, _) = row {
                for (width, cell) in widths.iter_mut().zip(cells) {
                    *width = (*width).max(cell.chars().count());
                }
            }
        }
        widths
    }

    fn line<'a>(&self, cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
        let mut line = String::from(" ");
        for (i, (cell, width)) in cells.zip(widths).enumerate() {
            let gap = " ".repeat(width.saturating_sub(cell.chars().count()));
            match i >= self.numbers_from {
                true => line.extend([" ", &gap, cell, " "]),
                false => line.extend([" ", cell, &gap, " "]),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }

    /// Returns the table as lines of text.
    pub fn render(&self) -> String {
        let widths = self.widths();
        let rule = format!("  {}", "─".repeat(widths.iter().sum::<usize>() + 2 * widths.len() - 2));
        let (bold, dim, bad, off) = match self.colour {
            true => ("\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[0m"),
            false => ("", "", "", ""),
        };
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = writeln!(out, "{bold}{}{off}", self.line(self.head.iter().copied(), &widths));
        let _ = writeln!(out, "{dim}{rule}{off}");
        for row in &self.rows {
            let _ = match row {
                Row::Rule => writeln!(out, "{dim}{rule}{off}"),
                Row::Cells(cells, tone) => {
                    let line = self.line(cells.iter().map(String::as_str), &widths);
                    match tone {
                        Tone::Plain => writeln!(out, "{line}"),
                        Tone::Bad => writeln!(out, "{bad}{line}{off}"),
                    }
                }
            };
        }
        out
    }
}

/// Returns a number of bytes for people: `1.5 GiB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    // Rounding is acceptable in text for people.
    #[allow(clippy::cast_precision_loss)]
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match (unit, value) {
        (0, _) => format!("{n} B"),
        (_, v) if v < 10.0 => format!("{v:.1} {}", UNITS[unit]),
        (_, v) => format!("{v:.0} {}", UNITS[unit]),
    }
}

/// Returns a count for people: `12.3k`.
pub fn count(n: f64) -> String {
    match n {
        n if n >= 1e6 => format!("{:.2}M", n / 1e6),
        n if n >= 1e5 => format!("{:.0}k", n / 1e3),
        n if n >= 1e3 => format!("{:.1}k", n / 1e3),
        n => format!("{n:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut t = Table::new(&["what", "rate"], 1, false);
        t.row(vec!["read".into(), "10".into()], Tone::Plain);
        t.rule();
        t.row(vec!["größer".into(), "1234".into()], Tone::Bad);
        let expected =
            "  what    rate\n  ────────────\n  read      10\n  ────────────\n  größer  1234\n";
        assert_eq!(t.render(), expected);
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(256 << 20), "256 MiB");
        assert_eq!(bytes(u64::MAX), "16777216 TiB");
        assert_eq!(count(999.4), "999");
        assert_eq!(count(12_345.0), "12.3k");
        assert_eq!(count(2_500_000.0), "2.50M");
    }
}
