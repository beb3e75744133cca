//! Rules for the audit trail.

use crate::audit::{Audit, AuditTo};
use crate::file::{Draft, DraftShare};
use crate::paths::real;
use crate::reader::Report;
use crate::settings::Source;

/// Checks that the trail has a destination that clients cannot change, and that shares request recording only if a trail exists.
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
        let inside = |s: &&DraftShare| match &s.share.source {
            Source::Folder(folder) => real(path).starts_with(real(folder)),
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
