//! Rules for Kerberos.

use std::path::Path;

use crate::file::{Draft, DraftShare};
use crate::kerberos::{DomainBy, Kerberos, KerberosMap, NAMES_MAX, RID_BASE, RID_BASES};
use crate::paths::real;
use crate::reader::Report;
use crate::settings::{Ntlm, Source};

/// Returns how tickets are mapped in such a domain.
fn map_of(by: DomainBy) -> KerberosMap {
    match by {
        DomainBy::Winbind => KerberosMap::Winbind,
        DomainBy::Rid => KerberosMap::Rid,
        DomainBy::Sssd => KerberosMap::Sssd,
    }
}

/// Returns who maps identities of the domain; `kerberos: {map: winbind}` says the same as `domain: {by: winbind}`.
pub(crate) fn domain_by(draft: &Draft) -> Option<DomainBy> {
    let by_map = || match draft.kerberos.map.as_ref()?.value {
        KerberosMap::Winbind => Some(DomainBy::Winbind),
        KerberosMap::Sssd => Some(DomainBy::Sssd),
        KerberosMap::Rid | KerberosMap::Names => None,
    };
    draft.domain_by.as_ref().map(|by| by.value).or_else(by_map)
}

/// Returns how tickets are mapped, and checks that `kerberos.map` and `domain.by` say the same.
fn map(draft: &Draft, report: &mut Report) -> KerberosMap {
    let kerberos = &draft.kerberos;
    let by = draft.domain_by.as_ref();
    let by_domain = by.map(|by| (map_of(by.value), by.origin));
    let by_map = kerberos.map.as_ref().map(|map| (map.value, map.origin));
    let map = by_map.or(by_domain).map(|(map, _)| map).unwrap_or_default();
    if let (Some((own, at)), Some((other, _))) = (by_map, by_domain)
        && own != other
    {
        let what = format!("`kerberos.map` is `{own}`, and `domain.by` is `{other}`");
        report.add_help(at, what, "remove `map`: `domain.by` says it");
    }
    if let Some((map @ (KerberosMap::Rid | KerberosMap::Sssd), origin)) = by_map.or(by_domain)
        && kerberos.realm.is_none()
    {
        let what = format!(
            "numbers by `{map}` are of the users of one domain, and `kerberos.realm` does not say which"
        );
        report.add_help(origin, what, "add `realm: EXAMPLE.ORG`");
    }
    map
}

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
        if let Some(by) = draft.domain_by.as_ref().filter(|by| by.value != DomainBy::Winbind) {
            report.add_help(
                by.origin,
                format!(
                    "with `domain: {{by: {}}}` users log on with tickets, and there is no keytab",
                    by.value
                ),
                "set `kerberos: {keytab: FILE, realm: EXAMPLE.ORG}`, or `domain: {by: winbind}`",
            );
        }
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
    let map = map(draft, report);
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
