//! `audit`: where the audit trail goes, and which operations on the files of a share are in it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use policy::words;

use crate::reader::{Origin, Set, shown};

/// The audit trail, where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Where it goes.
    pub to: AuditTo,
    /// What must be recorded and cannot be is refused.
    pub required: bool,
}

/// Where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditTo {
    /// To the end of this file.
    File(PathBuf),
    /// To the journal of systemd.
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

/// Which operations on the files of a share are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audited {
    /// What changes names and permissions.
    Changes,
    /// Opens to read.
    Reads,
    /// Opens to write.
    Writes,
}

words!(
    Audited,
    "is not an audit level of a share",
    "changes" => Changes, "reads" => Reads, "writes" => Writes
);

/// What file and options say of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct DraftAudit {
    /// The group is there, without `to`.
    pub(crate) at: Option<Origin>,
    pub(crate) to: Option<Set<AuditTo>>,
    pub(crate) required: Option<Set<bool>>,
}
