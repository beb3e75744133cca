//! Checks users, passwords, and the users and groups that shares and privileges name.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;

use super::Known;
use crate::access::{OnHost, Who};
use crate::file::Draft;
use crate::reader::{Origin, Report, Set, shown};
use crate::settings::{Names, Settings};

/// Maximum number of users and groups that one share, or `privileges`, names.
const NAMED_MAX: usize = 1024;

/// Checks that the users and groups in shares exist: an unknown name would allow or deny no user. Returns the name service's answer
/// for all of them, so that a configuration costs one query.
pub(super) fn check(
    draft: &Draft,
    known: Known,
    report: &mut Report,
) -> BTreeMap<Who, Option<OnHost>> {
    let named = || draft.shares.iter().flat_map(|s| &s.principals).chain(&draft.privileged);
    if let Some(first) = draft.privileged.get(NAMED_MAX) {
        let what = format!("`privileges` names more than {NAMED_MAX} users and groups");
        report.add_help(first.origin, what, "name a group that they are in");
        return BTreeMap::new();
    }
    for share in &draft.shares {
        if let Some(first) = share.principals.get(NAMED_MAX) {
            let what = format!(
                "the share `{}` names more than {NAMED_MAX} users and groups",
                share.share.name
            );
            report.add_help(first.origin, what, "name a group that they are in");
            return BTreeMap::new();
        }
    }
    let (accounts, unread) = accounts(draft, known);
    let is_account = |name: &String| accounts.contains(&name.to_lowercase());
    let is_asked = |who: &Who| match who {
        Who::Everyone => false,
        _ if who.sid().is_some() => false,
        Who::User(name) => who.number().is_some() || !is_account(name),
        Who::Group(_) => true,
    };
    // The gateway resolves names of the domain, and well-known groups such as Domain Admins.
    let has_domain = draft.kerberos.realm.is_some();
    let is_of_domain =
        |who: &Who| has_domain && (who.in_domain().is_some() || matches!(who, Who::Group(_)));
    // The gateway asks the directory about these as well.
    let has_directory = draft.users_from.at.is_some();
    let is_of_directory = |who: &Who| has_directory && who.in_domain().is_none();
    let asked: BTreeSet<&Who> = named().map(|s| &s.value).filter(|who| is_asked(who)).collect();
    let of_host = draft.names.as_ref().is_none_or(|names| names.value == Names::Host);
    let names: Vec<Who> = asked.into_iter().cloned().collect();
    let found = match names.is_empty() || !of_host {
        true => Ok(Vec::new()),
        false => (known.host)(&names),
    };
    let found: BTreeMap<Who, Option<OnHost>> = match found {
        Ok(found) => names.into_iter().zip(found).collect(),
        Err(why) => {
            let first = named().find(|s| is_asked(&s.value));
            report.add(first.map_or(Origin::Nowhere, |s| s.origin), why);
            return BTreeMap::new();
        }
    };
    let is_known = |who: &Who| {
        let by_host = !is_asked(who) || found.get(who).is_some_and(Option::is_some);
        let is_unread = unread && matches!(who, Who::User(_));
        let is_elsewhere = is_of_domain(who) || is_of_directory(who);
        by_host || who.number().is_some() || is_unread || is_elsewhere
    };
    for one in named().filter(|s| !is_known(&s.value)) {
        unknown(one, of_host, report);
    }
    found
}

/// Returns the names of all accounts in lower case, and whether the list may be incomplete: a database that cannot be read now is
/// checked when it is opened.
fn accounts(draft: &Draft, known: Known) -> (HashSet<String>, bool) {
    let own = draft.users.iter().map(|u| u.user.name.to_lowercase());
    let mut accounts: HashSet<String> = own.collect();
    let mut named = draft.shares.iter().flat_map(|s| &s.principals).chain(&draft.privileged);
    if !named.any(|s| matches!(s.value, Who::User(_))) {
        return (accounts, false);
    }
    let (_, users) = database(draft, known);
    let unread = users.is_none();
    accounts.extend(users.iter().flatten().map(|name| name.to_lowercase()));
    (accounts, unread)
}

/// Returns the state folder and the users in its database. Does not open a database in CephFS, because until the start the session
/// of a gateway that died may still lock it.
fn database(draft: &Draft, known: Known) -> (PathBuf, Option<Vec<String>>) {
    let state = draft.state.as_ref().map_or(Settings::default().state, |s| s.value.clone());
    let users = if draft.records.is_some() { None } else { (known.users)(&state) };
    (state, users)
}

fn unknown(one: &Set<Who>, of_host: bool, report: &mut Report) {
    let (what, help) = match (&one.value, of_host) {
        (Who::Group(name), true) => (
            format!("this host has no group `{}`", shown(name)),
            "create it, write another one, or its number as in `\"@1000\"`",
        ),
        (Who::Group(name), false) => (
            format!(
                "the group `{}` is not known: with `names: own` the gateway does not ask this host",
                shown(name)
            ),
            "write its number as in `\"@1000\"`, or set `names: host`",
        ),
        (who, true) => (
            format!("there is no user `{}`", shown(&who.to_string())),
            "write a user of this host, of `users` or of `headgate user add`, or a number; groups begin with `@`",
        ),
        (who, false) => (
            format!(
                "the user `{}` is not known: with `names: own` the gateway does not ask this host",
                shown(&who.to_string())
            ),
            "write a user of `users` or of `headgate user add`, a number, or set `names: host`",
        ),
    };
    report.add_help(one.origin, what, help);
}

/// Checks that users without a password file have a password in the database.
pub(super) fn check_passwords(draft: &Draft, known: Known, report: &mut Report) {
    let mut without = draft.users.iter().filter(|u| u.user.password_file.is_none()).peekable();
    if without.peek().is_none() {
        return;
    }
    let (state, Some(users)) = database(draft, known) else { return };
    let users: HashSet<String> = users.iter().map(|name| name.to_lowercase()).collect();
    for u in without.filter(|u| !users.contains(&u.user.name.to_lowercase())) {
        let name = &u.user.name;
        // The host may have no user of this name.
        let uid = u.user.identity.uid.map_or(String::new(), |uid| format!(" --uid {uid}"));
        let help = match u.name_at {
            Origin::Option(_) => {
                format!("write `{name}=FILE`, with the password in the first line of FILE")
            }
            _ => "add `password_file: FILE`, with the password in its first line".to_owned(),
        };
        report.add_help(
            u.name_at,
            format!("user `{name}` has no password"),
            format!("{help}, or use `headgate user add {name}{uid} --state {}`", state.display()),
        );
    }
}
