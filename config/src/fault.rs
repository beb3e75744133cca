//! What is wrong with a configuration, where, and what to write instead.

use std::fmt;
use std::path::PathBuf;

/// Where a fault is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In a file.
    File {
        /// The file.
        file: PathBuf,
        /// Line, from 1; 0 when the fault is the file itself.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// The line's text, cut to what fits a terminal.
        text: String,
    },
    /// In this option of the command line.
    Option(&'static str),
    /// In something that is missing on both.
    Nowhere,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub place: Location,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Location::File { file, line: 0, .. } => write!(f, "{}: {}", file.display(), self.what)?,
            Location::File { file, line, column, text } => {
                let number = line.to_string();
                let gutter = " ".repeat(number.len());
                let caret = " ".repeat(column.saturating_sub(1));
                writeln!(f, "{}:{line}:{column}: {}", file.display(), self.what)?;
                write!(f, "{gutter} |\n{number} | {text}\n{gutter} | {caret}^")?;
            }
            Location::Option(option) => write!(f, "{option}: {}", self.what)?,
            Location::Nowhere => f.write_str(&self.what)?,
        }
        match &self.help {
            Some(help) => write!(f, "\n  = {help}"),
            None => Ok(()),
        }
    }
}

/// Everything that is wrong; at least one fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "error: {fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}
