//! Faults of a configuration: the position, the error and the suggested correction.

use std::fmt;
use std::path::PathBuf;

/// The position of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    File {
        file: PathBuf,
        /// Line, from 1; 0 if the fault concerns the file as a whole.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// Text of the line, shortened to fit a terminal.
        text: String,
    },
    /// An option of the command line.
    Option(&'static str),
    /// A setting that is missing from both the file and the command line.
    Nowhere,
}

/// One fault of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub place: Location,
    /// Describes the error.
    pub what: String,
    /// Suggests a correction.
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

/// All faults of a configuration; at least one.
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
