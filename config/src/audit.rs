//! `audit`: the destination of the audit trail, and the file operations that it records.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use policy::words;

use crate::reader::{Origin, Set, shown};

/// The settings of the audit trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    pub to: AuditTo,
    /// Refuse operations that cannot be recorded.
    pub required: bool,
}

/// The destination of the audit trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditTo {
    /// Appends to this file.
    File(PathBuf),
    Journal,
}

impl fmt::Display for AuditTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Journal => f.write_str(JOURNAL),
        }
    }
}

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.to, if self.required { ", required" } else { "" })
    }
}

const JOURNAL: &str = "journald";

impl FromStr for AuditTo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = PathBuf::from(text);
        match text {
            JOURNAL => Ok(Self::Journal),
            _ if path.is_absolute() => Ok(Self::File(path)),
            _ => Err(format!(
                "`{}` is neither `{JOURNAL}` nor an absolute path; begin it with `/`",
                shown(text)
            )),
        }
    }
}

/// A class of recorded file operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audited {
    /// Operations that change names and permissions.
    Changes,
    /// Opens for reading.
    Reads,
    /// Opens for writing.
    Writes,
}

words!(
    Audited,
    "is not an audit level of a share",
    "changes" => Changes, "reads" => Reads, "writes" => Writes
);

/// Audit settings from the file and the options, before checking.
#[derive(Clone, Debug, Default)]
pub(crate) struct DraftAudit {
    /// Position of the group if it lacks `to`.
    pub(crate) at: Option<Origin>,
    pub(crate) to: Option<Set<AuditTo>>,
    pub(crate) required: Option<Set<bool>>,
}
