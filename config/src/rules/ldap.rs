//! Rules for `users_from`.

use super::{Known, check_password_file};
use crate::file::Draft;
use crate::ldap::{FILTER, KEEP, KEEP_MAX, SERVERS_MAX, UsersFrom};
use crate::paths::real;
use crate::reader::Report;
use crate::settings::{Ntlm, Source};
use crate::units::Span;

/// Checks that the servers and the base are named, and that the password of the gateway is a file outside of every share.
pub(super) fn check(draft: &Draft, known: Known, report: &mut Report) -> Option<UsersFrom> {
    let from = &draft.users_from;
    let at = from.at?;
    if let Some(fifth) = from.ldap.get(SERVERS_MAX) {
        report.add(fifth.origin, format!("`ldap` has more than {SERVERS_MAX} servers"));
    }
    if !from.ldap_said && from.all_known {
        let help = "add `ldap: ldaps://ldap.example.org`";
        report.add_help(at, "`users_from` names no server of a directory", help);
    } else if from.ldap_said && from.ldap.is_empty() && report.0.is_empty() {
        let help = "write `ldap: ldaps://ldap.example.org`";
        report.add_help(at, "the list of servers is empty", help);
    }
    if from.base.is_none() && from.all_known && report.0.is_empty() {
        let help = "add `base: \"dc=example,dc=org\"`";
        report.add_help(at, "`users_from` does not say where users and groups are", help);
    }
    if let (Some(dn), None) = (&from.bind_dn, &from.bind_password_file) {
        let what = "`bind_dn` needs a password";
        report.add_help(dn.origin, what, "add `bind_password_file: FILE`");
    }
    if let (None, Some(file)) = (&from.bind_dn, &from.bind_password_file) {
        let what = "`bind_password_file` needs the name that it is the password of";
        report.add_help(file.origin, what, "add `bind_dn: \"cn=headgate,dc=example,dc=org\"`");
    }
    if let Some(ntlm) = draft.ntlm.as_ref().filter(|ntlm| ntlm.value == Ntlm::Off) {
        let what = "users of `users_from` log on with passwords, and NTLM is off";
        report.add_help(ntlm.origin, what, "remove `users_from`, or set `ntlm: on`");
    }
    if let Some(file) = &from.bind_password_file {
        let path = &file.value;
        let is_inside = |folder| real(path).starts_with(real(folder));
        let share = draft.shares.iter().find(|s| match &s.share.source {
            Source::Folder(folder) => is_inside(folder),
            Source::Memory | Source::Ceph(_) | Source::Refer(_) => false,
        });
        if let Some(share) = share {
            let what = format!(
                "the password file {} is inside the share `{}`, where clients could read it",
                path.display(),
                share.share.name
            );
            report.add_help(file.origin, what, "choose a file outside of every share");
        } else {
            let help = "write the password of `bind_dn` into its first line and `chmod 600` it";
            check_password_file(path, file.origin, (known, help), report);
        }
    }
    let keep = from.keep.as_ref();
    if let Some(keep) = keep.filter(|keep| keep.value.0 > KEEP_MAX) {
        let what = format!("`keep: {}` is out of range", keep.value);
        report.add_help(keep.origin, what, format!("choose at most {}", Span(KEEP_MAX)));
    }
    let bind = from.bind_dn.as_ref().zip(from.bind_password_file.as_ref());
    Some(UsersFrom {
        ldap: from.ldap.iter().map(|server| server.value.clone()).collect(),
        base: from.base.as_ref()?.value.clone(),
        bind: bind.map(|(dn, file)| (dn.value.clone(), file.value.clone())),
        ca: from.ca.as_ref().map(|ca| ca.value.clone()),
        filter: from.filter.as_ref().map_or(FILTER.to_owned(), |filter| filter.value.clone()),
        keep: keep.map_or(KEEP, |keep| keep.value.0),
    })
}
