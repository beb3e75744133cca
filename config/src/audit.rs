//! `audit`: where the audit trail goes, and which operations on the files of a share are in it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::file::Draft;
use crate::reader::{Origin, Report, Set, shown};
use crate::settings::Source;
use crate::words::words;

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

/// The trail goes somewhere, to no place where clients could change it, and shares ask for none that is not kept.
pub(crate) fn check(draft: &Draft, report: &mut Report) -> Option<Audit> {
    let audit = &draft.audit;
    if let Some(at) = audit.at {
        let help = "add `to: /var/log/headgate/audit.jsonl`, or `to: journald`";
        report.add_help(at, "the audit trail has no destination", help);
    }
    for share in draft.shares.iter().filter(|s| !s.share.audit.is_empty()) {
        if audit.to.is_none() && audit.at.is_none() {
            let what = format!(
                "the share `{}` sets `audit`, but there is no audit trail",
                share.share.name
            );
            let help = "set `audit: {to: FILE}` at the top of the file, or give `--audit FILE`";
            report.add_help(share.audit_at.unwrap_or(share.name_at), what, help);
        }
    }
    let to = audit.to.as_ref()?;
    if let AuditTo::File(path) = &to.value {
        let inside = |s: &&crate::file::DraftShare| match &s.share.source {
            Source::Folder(folder) => {
                crate::paths::real(path).starts_with(crate::paths::real(folder))
            }
            Source::Memory | Source::Ceph(_) | Source::Refer(_) => false,
        };
        if let Some(share) = draft.shares.iter().find(inside) {
            let what = format!(
                "the audit trail {} is inside the share `{}`, where clients could change it",
                path.display(),
                share.share.name
            );
            report.add_help(to.origin, what, "choose a file outside of every share");
        } else if path.is_dir() {
            let what = format!("{} is a folder; the audit trail needs a file", path.display());
            report.add_help(
                to.origin,
                what,
                format!("name a file in it: `{}/audit.jsonl`", path.display()),
            );
        } else if let Some(folder) = path.parent().filter(|folder| !folder.is_dir()) {
            let what = format!("there is no folder {} for the audit trail", folder.display());
            report.add_help(
                to.origin,
                what,
                format!("create it (`mkdir -p -m 700 {}`), or name another one", folder.display()),
            );
        }
    }
    let required = audit.required.as_ref().is_some_and(|required| required.value);
    Some(Audit { to: to.value.clone(), required })
}
