//! Findings of `check` about users and groups that this host and the domain both have: the same number is one identity, the same
//! name is two.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::{OnHost, Settings, Who};
use domain_sys::Number;
use smbd_core::domain_engine::{Named, NamedKind};
use vfs::ANONYMOUS;

use super::Remarks;
use crate::domain_service::twins::Twin;
use crate::domain_service::{self, DomainService};
use crate::identities::{self, Found};
use crate::users::{self, Accounts};

/// Asks the service of the domain, if the configuration names one. Blocks for some seconds at most.
pub(super) fn facts(settings: &Settings, remarks: &mut Remarks) {
    let Some(service) = domain_service::of(settings) else { return };
    // Other checks report these faults.
    let Ok(accounts) = users::accounts(settings) else { return };
    let account = |name: &str| accounts.get(&name.to_lowercase()).cloned();
    let found = identities::on_host(settings, &account).unwrap_or_default();
    of_numbers(&service, &accounts).into_iter().for_each(|why| remarks.warn(why));
    of_names(&service, settings, (&accounts, &found)).into_iter().for_each(|why| remarks.warn(why));
}

fn full(named: &Named) -> String {
    format!(r"{}\{}", named.domain, named.name)
}

/// Returns the accounts whose numbers the service gives to identities of a domain.
fn of_numbers(service: &Arc<DomainService>, accounts: &Accounts) -> Vec<String> {
    let mut all: Vec<(&str, u32)> = accounts
        .iter()
        .map(|(name, (cred, _))| (&**name, cred.uid))
        .filter(|(_, uid)| ![0, ANONYMOUS].contains(uid))
        .collect();
    all.sort_unstable();
    let uids: Vec<u32> = all.iter().map(|(_, uid)| *uid).collect();
    let owners = service.owners_of(&uids).into_iter();
    let by = service.name();
    let told = all.iter().zip(owners).filter_map(|(one, owner)| Some((one, owner?)));
    told.map(|((name, uid), owner)| same_number(by, (name, *uid), &owner)).collect()
}

fn same_number(by: &str, (name, uid): (&str, u32), owner: &Twin) -> String {
    let whom = match &owner.named {
        Some(named) if matches!(named.kind, NamedKind::User | NamedKind::Computer) => {
            format!("the user {}", full(named))
        }
        Some(named) => format!("the group {}", full(named)),
        None => format!("the identity {} of a domain", owner.sid),
    };
    format!(
        "the account `{name}` has the uid {uid}, which {by} gives to {whom}: both are the same owner of files, with the same \
         rights. Unless they are one person, give the account a uid that {by} gives to none (`uid` in `users`, `headgate user add \
         {name} --uid NUMBER`, `usermod -u` on this host)"
    )
}

/// Returns the names of access lists and privileges that both this host and the domain have.
fn of_names(
    service: &Arc<DomainService>,
    settings: &Settings,
    (accounts, found): (&Accounts, &Found),
) -> Vec<String> {
    let mut places: BTreeMap<&Who, Vec<String>> = BTreeMap::new();
    for share in &settings.shares {
        for who in share.access.iter().flat_map(config::Access::principals) {
            let place = format!("`access` of share `{}`", share.name);
            let places = places.entry(who).or_default();
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    for who in settings.privileges.principals() {
        let place = "`privileges`".to_owned();
        let places = places.entry(who).or_default();
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let here = places
        .into_iter()
        .filter_map(|(who, places)| Some((who, OfHost::of(who, accounts, found)?, places)));
    let here: Vec<(&Who, OfHost, Vec<String>)> = here.collect();
    let asked: Vec<(bool, &str)> =
        here.iter().map(|(who, ..)| (matches!(who, Who::Group(_)), who.name())).collect();
    let twins = service.of_names(&asked).into_iter();
    let told = here.iter().zip(twins).filter_map(|((who, of_host, places), twin)| {
        let (named, number) = twin?;
        (!of_host.is(number)).then(|| same_name(who, of_host, &named, &places.join(", ")))
    });
    told.collect()
}

/// The meaning of a name without a domain on this host.
enum OfHost {
    Account(u32),
    User(u32),
    Group(u32),
}

impl OfHost {
    /// Returns the meaning, unless this host lacks the name, or the entry is a number, a SID or has a domain.
    fn of(who: &Who, accounts: &Accounts, found: &Found) -> Option<Self> {
        if who.sid().is_some() || who.number().is_some() || who.in_domain().is_some() {
            return None;
        }
        let account = || accounts.get(&who.name().to_lowercase()).map(|(cred, _)| cred.uid);
        match (who, found.get(who)) {
            (Who::User(_), of_host) => match (account(), of_host) {
                (Some(uid), _) => Some(Self::Account(uid)),
                // The name means the members of a group of the domain.
                (None, Some(Some(OnHost::User { uid, shows_group: false, .. }))) => {
                    Some(Self::User(*uid))
                }
                _ => None,
            },
            (Who::Group(_), Some(Some(OnHost::Group { gid, .. }))) => Some(Self::Group(*gid)),
            _ => None,
        }
    }

    /// Returns whether this host has the identity from the service, by its name service.
    fn is(&self, of_domain: Option<Number>) -> bool {
        match (self, of_domain) {
            (Self::Account(uid) | Self::User(uid), Some(Number::Uid(n) | Number::Both(n))) => {
                *uid == n
            }
            (Self::Group(gid), Some(Number::Gid(n) | Number::Both(n))) => *gid == n,
            _ => false,
        }
    }
}

fn same_name(who: &Who, of_host: &OfHost, named: &Named, places: &str) -> String {
    let (name, other) = (who.name(), full(named));
    let (meant, at, number) = match of_host {
        OfHost::Account(uid) => (format!("the account `{name}` (uid {uid})"), "", uid),
        OfHost::User(uid) => (format!("the user `{name}` of this host (uid {uid})"), "", uid),
        OfHost::Group(gid) => (format!("the group `{name}` of this host (gid {gid})"), "@", gid),
    };
    format!(
        "`{who}` in {places} means {meant}, and not {other} of the domain: write `'{at}{other}'` for the one of the domain, or \
         `\"{at}{number}\"` to say that it is that of this host"
    )
}

#[cfg(test)]
mod tests {
    use config::{Access, Privileges, Share, Source};
    use vfs::{Cred, Token};

    use super::*;
    use crate::domain_service::twins::tests::lab;

    fn accounts(all: &[(&str, u32)]) -> Accounts {
        let account = |(name, uid): &(&str, u32)| {
            let cred = Cred { uid: *uid, gid: *uid, groups: [].into(), token: Token::NONE };
            ((*name).to_owned(), (cred, true))
        };
        all.iter().map(account).collect()
    }

    #[test]
    fn numbers_of_domain_are_named() {
        let all = [("bob", 3001), ("carol", 1000), ("dan", 3002), ("eve", 3004), ("root", 0)];
        let told = of_numbers(&lab(), &accounts(&all));
        let [bob, dan] = &told[..] else { panic!("{told:#?}") };
        assert!(
            bob.contains(
                r"the account `bob` has the uid 3001, which winbind gives to the user LAB\alice"
            ),
            "{bob}"
        );
        assert!(bob.contains("headgate user add bob --uid NUMBER"), "{bob}");
        assert!(dan.contains(r"the uid 3002, which winbind gives to the group LAB\sales"), "{dan}");
        // A backend that computes numbers gives them to SIDs that no user has yet.
        let owner = Twin { sid: "S-1-5-21-1-2-3-1999".parse().unwrap(), named: None };
        let told = same_number("sssd", ("bob", 3900), &owner);
        assert!(told.contains("which sssd gives to the identity S-1-5-21-1-2-3-1999"), "{told}");
    }

    #[test]
    fn names_of_both_are_explained() {
        let who = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
        let user = |uid| Some(OnHost::User { uid, gid: 1, groups: vec![], shows_group: false });
        let group = |gid| Some(OnHost::Group { gid, members: vec![] });
        let mut share = Share::new("team", Source::Memory);
        share.access = Some(Access {
            admin: who(&["alice", "@sales", "@users", "carol", "@none"]),
            write: who(&["alice", r"LAB\alice", "1000", "same", "local"]),
            deny: who(&["@alice", "sales", "*"]),
            ..Access::default()
        });
        let privileges = Privileges { backup: who(&["@sales"]), ..Privileges::default() };
        let settings = Settings { shares: vec![share], privileges, ..Settings::default() };
        let found: Found = [
            (Who::Group("sales".into()), group(50)),
            (Who::Group("users".into()), group(100)),
            (Who::Group("alice".into()), group(51)),
            (Who::Group("none".into()), group(52)),
            (Who::User("sales".into()), user(1001)),
            // The name service of this host has the user from the domain.
            (Who::User("same".into()), user(3003)),
            (Who::User("local".into()), user(1002)),
        ]
        .into();
        let told =
            of_names(&lab(), &settings, (&accounts(&[("alice", 1000), ("carol", 7)]), &found));
        let wanted = |begin: &str, other: &str, number: &str| {
            format!(
                "{begin} of the domain: write `'{other}'` for the one of the domain, or `\"{number}\"` to say that it is that of \
                 this host"
            )
        };
        let alice = r"`alice` in `access` of share `team` means the account `alice` (uid 1000), and not LAB\alice";
        let sales = "`@sales` in `access` of share `team`, `privileges` means the group `sales` of this host (gid 50), and not \
                     LAB\\sales";
        let wanted = [wanted(alice, r"LAB\alice", "1000"), wanted(sales, r"@LAB\sales", "@50")];
        assert_eq!(told, wanted);
    }

    #[test]
    fn user_of_host_that_differs_is_named() {
        let of_host = OfHost::User(1000);
        assert!(of_host.is(Some(Number::Both(1000))) && !of_host.is(Some(Number::Gid(1000))));
        assert!(!of_host.is(None) && !OfHost::Account(5).is(Some(Number::Uid(6))));
    }
}
