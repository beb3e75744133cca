//! Rules for Kerberos.

use std::path::Path;

use crate::file::{Draft, DraftShare};
use crate::kerberos::{Kerberos, KerberosMap, NAMES_MAX, RID_BASE, RID_BASES};
use crate::paths::real;
use crate::reader::Report;
use crate::settings::{Ntlm, Source};

/// Checks that the keytab is valid and not reachable through a share, and that a logon method remains if NTLM is off.
pub(crate) fn check(
    draft: &Draft,
    proven: fn(&Path) -> Result<(), String>,
    report: &mut Report,
) -> Option<Kerberos> {
    let kerberos = &draft.kerberos;
    if let Some(ntlm) = draft.ntlm.as_ref().filter(|ntlm| ntlm.value == Ntlm::Off)
        && kerberos.keytab.is_none()
    {
        report.add_help(
            ntlm.origin,
            "no user could log on over SMB: NTLM is off, and Kerberos has no keytab",
            "set `kerberos: {keytab: FILE}`, or `ntlm: on`",
        );
    }
    let Some(keytab) = &kerberos.keytab else {
        if let Some(at) = kerberos.at {
            report.add_help(
                at,
                "Kerberos needs a keytab with the keys of this server",
                "add `keytab: /etc/headgate/krb5.keytab`",
            );
        }
        return None;
    };
    if let Some(second) = kerberos.names.get(NAMES_MAX) {
        report.add(second.origin, format!("`names` has more than {NAMES_MAX} entries"));
    }
    let path = &keytab.value;
    let inside = |s: &&DraftShare| match &s.share.source {
        Source::Folder(folder) => real(path).starts_with(real(folder)),
        Source::Memory | Source::Ceph(_) | Source::Refer(_) => false,
    };
    if let Some(share) = draft.shares.iter().find(inside) {
        let what = format!(
            "the keytab {} is inside the share `{}`, where clients could read it",
            path.display(),
            share.share.name
        );
        report.add_help(keytab.origin, what, "choose a file outside of every share");
    } else if let Err(what) = proven(path) {
        report.add(keytab.origin, what);
    }
    let map = kerberos.map.as_ref().map(|map| map.value).unwrap_or_default();
    if let Some(said) = kerberos.map.as_ref().filter(|map| map.value == KerberosMap::Rid)
        && kerberos.realm.is_none()
    {
        report.add_help(
            said.origin,
            "`map: rid` numbers the users of one domain, and `realm` does not say which",
            "add `realm: EXAMPLE.ORG`",
        );
    }
    let rid_base = kerberos.rid_base.as_ref().map_or(RID_BASE, |base| base.value);
    if let Some(base) = kerberos.rid_base.as_ref().filter(|b| !RID_BASES.contains(&b.value)) {
        let (least, most) = (RID_BASES.start(), RID_BASES.end());
        let what = format!("`rid_base: {}` is out of range", base.value);
        report.add_help(base.origin, what, format!("choose one from {least} to {most}"));
    }
    Some(Kerberos {
        map,
        rid_base,
        keytab: path.clone(),
        realm: kerberos.realm.as_ref().map(|r| r.value.clone()),
        names: kerberos.names.iter().map(|n| n.value.clone()).collect(),
    })
}
