//! Whom the configuration names: users and groups become numbers.
//!
//! *Operation.* An account of the gateway stands before the host's user of its name. A group is its number, which calls of NFS
//! bring and logons of SMB find, and the users that the host's group database lists as its members: a call of NFS brings 16 groups
//! at most (RFC 5531 section 8.2), so that the members are not left to what it brings. Everything is looked up when the
//! configuration is read, and again at a reload; no call waits for a name.
//!
//! *Errors.* A line for the user: a name that is not known, an account that is nobody of its own, a name service that does not
//! answer within [`PATIENCE`].

use std::collections::{BTreeSet, HashMap};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use config::{Access, Names, Settings, Who};
use rdma_transport::count;
use vfs::accounts::{self, Directory, Host};
use vfs::namespace::{People, ShareAccess};

/// How long the host's name service has for all names of a configuration.
const PATIENCE: Duration = Duration::from_secs(10);

/// An account's user, and whether the host or the configuration says that it is this one.
pub(crate) type Accounts<'a> = &'a dyn Fn(&str) -> Option<(u32, bool)>;

/// The number of a user, or of a group with its members.
#[derive(Clone, Debug, Default)]
struct Found {
    number: u32,
    members: Vec<u32>,
}

/// Which of these the host has, in the same order. Blocks, for a time that has an end.
pub(crate) fn of_host(names: &[Who]) -> Result<Vec<bool>, String> {
    let names = names.to_vec();
    within(move || names.iter().map(|who| look_up(who).is_some()).collect())
}

/// What each share's `access` says, in the order of the shares. Blocks, for a time that has an end.
pub(crate) fn access(
    settings: &Settings,
    accounts: Accounts<'_>,
) -> Result<Vec<Option<ShareAccess>>, String> {
    let is_asked = |who: &&Who| match who {
        Who::Everyone => false,
        Who::User(name) => who.number().is_none() && accounts(name).is_none(),
        Who::Group(_) => true,
    };
    let named = settings.shares.iter().filter_map(|s| s.access.as_ref()).flat_map(Access::people);
    let asked: BTreeSet<Who> = named.filter(is_asked).cloned().collect();
    let found = match settings.names {
        Names::Host if !asked.is_empty() => within(move || {
            let found = |who: Who| look_up(&who).map(|found| (who, found));
            asked.into_iter().filter_map(found).collect()
        })?,
        _ => HashMap::new(),
    };
    let of_share = |s: &config::Share| {
        let told = |why| format!("share {}: access: {why}", s.name);
        s.access.as_ref().map(|a| share_access(a, accounts, &found).map_err(told)).transpose()
    };
    settings.shares.iter().map(of_share).collect()
}

fn share_access(
    access: &Access,
    accounts: Accounts<'_>,
    found: &HashMap<Who, Found>,
) -> Result<ShareAccess, String> {
    let people = |list: &[Who]| people(list, accounts, found);
    let write = if access.only_denies() { People::everyone() } else { people(&access.write)? };
    Ok(ShareAccess { read: people(&access.read)?, write, deny: people(&access.deny)? })
}

fn people(
    list: &[Who],
    accounts: Accounts<'_>,
    found: &HashMap<Who, Found>,
) -> Result<People, String> {
    let (mut users, mut groups) = (Vec::new(), Vec::new());
    for who in list {
        match (who, who.number()) {
            (Who::Everyone, _) => return Ok(People::everyone()),
            (Who::User(_), Some(number)) => users.push(number),
            (Who::User(name), None) => users.push(user(name, accounts, found.get(who))?),
            (Who::Group(name), number) => match (found.get(who), number) {
                (Some(group), _) => {
                    groups.push(group.number);
                    users.extend(&group.members);
                }
                (None, Some(number)) => groups.push(number),
                (None, None) => return Err(format!("there is no group `{name}`")),
            },
        }
    }
    Ok(People::new(users, groups))
}

fn user(name: &str, accounts: Accounts<'_>, host: Option<&Found>) -> Result<u32, String> {
    match (accounts(name), host) {
        (Some((uid, true)), _) => Ok(uid),
        // It shares its number with everybody of whom nothing is known: whom it lets in would be anybody.
        (Some((_, false)), _) => Err(format!(
            "the account `{name}` is no user of its own; give it a `uid`, as in `headgate user add {name} --uid 1000`"
        )),
        (None, Some(found)) => Ok(found.number),
        (None, None) => Err(format!("there is no user `{name}`")),
    }
}

/// What the host knows of a name. May wait.
fn look_up(who: &Who) -> Option<Found> {
    match who {
        Who::Everyone => None,
        Who::User(name) => Some(Found { number: Host.uid(name)?, members: Vec::new() }),
        Who::Group(name) => {
            let (number, members) = match who.number() {
                Some(gid) => (gid, accounts::members_of_gid(gid)?),
                None => (Host.gid(name)?, accounts::members_of(name)?),
            };
            let members = members.iter().filter_map(|name| Host.uid(name));
            Some(Found { number, members: members.collect() })
        }
    }
}

/// Asks by a thread of its own, which is left behind when it takes too long.
fn within<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let (tell, told) = mpsc::channel();
    let asking = thread::Builder::new().name("names".into()).spawn(move || drop(tell.send(work())));
    asking.map_err(|e| format!("cannot look up users and groups: {e}"))?;
    told.recv_timeout(PATIENCE).map_err(|_| {
        count::limit_met("name-service");
        let seconds = PATIENCE.as_secs();
        format!("this host's name service (passwd, group) did not answer within {seconds} s")
    })
}

#[cfg(test)]
mod tests {
    use vfs::Cred;
    use vfs::namespace::Right;

    use super::*;

    fn resolved(access: Access, names: Names) -> Result<ShareAccess, String> {
        let mut share = config::Share::new("team", config::Source::Memory);
        share.access = Some(access);
        let settings = Settings { shares: vec![share], names, ..Settings::default() };
        let accounts = |name: &str| match name {
            "alice" => Some((5, true)),
            "root" => Some((6, true)),
            "stranger" => Some((65_534, false)),
            _ => None,
        };
        super::access(&settings, &accounts).map(|mut all| all.remove(0).unwrap())
    }

    fn who(names: &[&str]) -> Vec<Who> {
        names.iter().map(|n| n.parse().unwrap()).collect()
    }

    fn right(access: &ShareAccess, uid: u32, groups: &[u32]) -> Option<Right> {
        access.right(&Cred { uid, gid: 70_000, groups: groups.into() }).ok()
    }

    #[test]
    fn an_account_stands_before_the_hosts_user_and_numbers_are_numbers() {
        let access = Access {
            read: who(&["alice", "7", "@0"]),
            write: who(&["root", "@12"]),
            deny: who(&["9"]),
        };
        let access = resolved(access, Names::Host).unwrap();
        assert_eq!([5, 7, 6, 9].map(|uid| right(&access, uid, &[])), {
            use Right::{Read, Write};
            [Some(Read), Some(Read), Some(Write), None]
        });
        assert_eq!(right(&access, 8, &[0]), Some(Right::Read));
        assert_eq!(right(&access, 8, &[12]), Some(Right::Write));
        assert_eq!(right(&access, 0, &[]), None, "the account has another number than the host's");
    }

    #[test]
    fn the_hosts_users_and_groups_are_found_by_name() {
        let access = Access { read: who(&["nobody", "@root"]), ..Access::default() };
        let found = resolved(access, Names::Host).unwrap();
        assert_eq!(right(&found, 65_534, &[]), Some(Right::Read));
        assert_eq!(right(&found, 8, &[0]), Some(Right::Read));
        for name in ["nobody-has-this-name", "@nobody-has-this-name"] {
            let access = Access { deny: who(&[name]), ..Access::default() };
            let why = resolved(access, Names::Host).unwrap_err();
            assert!(why.starts_with("share team: access: there is no "), "{why}");
        }
        let access = Access { deny: who(&["@root"]), ..Access::default() };
        assert!(resolved(access, Names::Own).is_err(), "the host is not asked");
        let there = of_host(&who(&["root", "@root", "nobody-has-this-name", "@0"])).unwrap();
        assert_eq!(there, [true, true, false, true]);
    }

    #[test]
    fn an_account_that_is_anybody_cannot_be_named() {
        for access in [
            Access { read: who(&["stranger"]), ..Access::default() },
            Access { deny: who(&["stranger"]), ..Access::default() },
        ] {
            let why = resolved(access, Names::Host).unwrap_err();
            assert!(why.contains("`stranger` is no user of its own"), "{why}");
        }
    }

    #[test]
    fn where_only_some_are_denied_all_others_may_write() {
        let access = Access { deny: who(&["alice"]), ..Access::default() };
        let found = resolved(access, Names::Host).unwrap();
        assert_eq!((right(&found, 5, &[]), right(&found, 8, &[])), (None, Some(Right::Write)));
    }
}
