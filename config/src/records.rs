//! `records`: the share whose CephFS folder stores the state that moves with a service.

use std::path::Path;

use crate::ceph::Ceph;
use crate::file::{Draft, DraftShare};
use crate::reader::{Report, Set, shown};
use crate::settings::Source;
use crate::text::read_text;
use crate::tree;

fn share<'a>(draft: &'a Draft, name: &str) -> Option<&'a DraftShare> {
    draft.shares.iter().find(|s| s.share.name == name)
}

/// Returns the folder of the records, if the draft has a valid one.
pub(crate) fn of(draft: &Draft) -> Option<&Ceph> {
    match &share(draft, &draft.records.as_ref()?.value)?.share.source {
        Source::Ceph(ceph) => Some(ceph),
        _ => None,
    }
}

/// Returns the CephFS folder of the records that a file names, even if the rest of the file is invalid; for commands that read
/// state which moves with the service. `None`: the records are in the state folder.
pub fn records_of(file: &Path) -> Option<Ceph> {
    let root = tree::read(&read_text(file).ok()?).ok()?;
    of(&crate::file::draft(&root, &mut Report::default())).cloned()
}

/// Checks that `records` names a share of this file that is in CephFS.
pub(crate) fn check(draft: &Draft, report: &mut Report) -> Option<Ceph> {
    let Set { value: name, origin } = draft.records.as_ref()?;
    let Some(found) = share(draft, name) else {
        report.add_help(
            *origin,
            format!("`records` names the share `{}`, which does not exist", shown(name)),
            "name a share in CephFS",
        );
        return None;
    };
    match &found.share.source {
        Source::Ceph(ceph) => Some(ceph.clone()),
        _ => {
            report.add_help(
                *origin,
                format!("`records` names the share `{}`, which is not in CephFS", shown(name)),
                "name a share in CephFS, or remove `records` to keep the records in the folder `state`",
            );
            None
        }
    }
}
