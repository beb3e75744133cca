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
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use config::{Access, Names, Settings, Who};
use rdma_transport::count;
use vfs::Cred;
use vfs::accounts::{self, Directory, Host};
use vfs::namespace::{Force, People, ShareAccess};

/// How long the host's name service has for all names of a configuration.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who an account is, and whether the host or the configuration says that it is this one.
pub(crate) type Accounts<'a> = &'a dyn Fn(&str) -> Option<(Cred, bool)>;

/// What the host knows of a name.
#[derive(Clone, Debug)]
enum Found {
    /// A user with its groups.
    User(Cred),
    /// A group with its members.
    Group(u32, Vec<u32>),
}

/// What a share says of people, in numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rights {
    pub(crate) access: Option<ShareAccess>,
    pub(crate) force: Option<Force>,
}

/// Which of these the host has, in the same order. Blocks, for a time that has an end.
pub(crate) fn of_host(names: &[Who]) -> Result<Vec<bool>, String> {
    let names = names.to_vec();
    within(move || names.iter().map(|who| look_up(who).is_some()).collect())
}

/// What each share says of people, in the order of the shares. Blocks, for a time that has an end.
pub(crate) fn rights(settings: &Settings, accounts: Accounts<'_>) -> Result<Vec<Rights>, String> {
    let found = found(settings, accounts)?;
    let shares = || settings.shares.iter();
    let of_share = |s: &config::Share| {
        let told = |key: &'static str| move |why| format!("share {}: {key}: {why}", s.name);
        let access = s.access.as_ref().map(|a| share_access(a, accounts, &found));
        let access = access.transpose().map_err(told("access"))?;
        let force = force(&s.force, accounts, &found).map_err(told("force"))?;
        Ok(Rights { access, force })
    };
    shares().map(of_share).collect()
}

/// What the host knows of whom these settings name.
fn found(settings: &Settings, accounts: Accounts<'_>) -> Result<HashMap<Who, Found>, String> {
    let is_asked = |who: &&Who| match who {
        Who::Everyone => false,
        Who::User(name) => accounts(name).is_none(),
        Who::Group(_) => true,
    };
    let shares = || settings.shares.iter();
    let named = shares().filter_map(|s| s.access.as_ref()).flat_map(Access::people);
    let forced = shares().flat_map(|s| [&s.force.user, &s.force.group]).flatten();
    let asked: BTreeSet<Who> = named.chain(forced).filter(is_asked).cloned().collect();
    if settings.names == Names::Own || asked.is_empty() {
        return Ok(HashMap::new());
    }
    within(move || {
        let found = |who: Who| look_up(&who).map(|found| (who, found));
        asked.into_iter().filter_map(found).collect()
    })
}

/// Which part of `access` decides about somebody.
pub(crate) struct Reason {
    /// The list: `deny`, `write` or `read`.
    pub(crate) list: &'static str,
    /// The entry of it.
    pub(crate) who: Who,
}

/// Which part of each share's `access` decides about this caller; `None` where none names it.
pub(crate) fn reasons(
    settings: &Settings,
    accounts: Accounts<'_>,
    cred: &Cred,
) -> Result<Vec<Option<Reason>>, String> {
    let found = found(settings, accounts)?;
    let of_share = |s: &config::Share| {
        let Some(access) = &s.access else { return Ok(None) };
        let lists = [("deny", &access.deny), ("write", &access.write), ("read", &access.read)];
        for (list, who) in
            lists.into_iter().flat_map(|(list, all)| all.iter().map(move |w| (list, w)))
        {
            if people(std::slice::from_ref(who), accounts, &found)?.has(cred) {
                return Ok(Some(Reason { list, who: who.clone() }));
            }
        }
        Ok(None)
    };
    settings.shares.iter().map(of_share).collect()
}

/// Who a user is: an account, the host's, or a number.
pub(crate) fn user_of(
    name: &str,
    settings: &Settings,
    accounts: Accounts<'_>,
) -> Result<Cred, String> {
    if let Some((cred, _)) = accounts(name) {
        return Ok(cred);
    }
    let who = Who::User(name.to_owned());
    let known = match settings.names {
        Names::Host => within(move || look_up(&who))?,
        Names::Own => None,
    };
    match (known, name.parse()) {
        (Some(Found::User(cred)), _) => Ok(cred),
        (_, Ok(uid)) => Ok(Cred { uid, gid: uid, groups: Arc::new([]) }),
        _ => Err(format!("there is no user `{name}`, here or by `headgate user add`")),
    }
}

/// As whom everything is done. A user that is a number alone has no group but the one that is said.
fn force(
    force: &config::Force,
    accounts: Accounts<'_>,
    found: &HashMap<Who, Found>,
) -> Result<Option<Force>, String> {
    let group = match &force.group {
        None => None,
        Some(who) => match (found.get(who), who.number()) {
            (Some(Found::Group(number, _)), _) => Some(*number),
            (_, Some(number)) => Some(number),
            _ => return Err(format!("there is no group `{who}`")),
        },
    };
    let Some(user) = &force.user else { return Ok(group.map(Force::Group)) };
    let known = match user {
        Who::User(name) => accounts(name),
        _ => None,
    };
    let cred = match (known, found.get(user), user.number()) {
        (Some((cred, true)), ..) => cred,
        (Some((_, false)), ..) => return Err(stranger(&user.to_string())),
        (None, Some(Found::User(cred)), _) => cred.clone(),
        (None, _, Some(uid)) => {
            let gid = group.ok_or_else(|| {
                format!("nobody knows the groups of the user {uid}; say `group` too")
            })?;
            Cred { uid, gid, groups: Arc::new([]) }
        }
        _ => return Err(format!("there is no user `{user}`")),
    };
    Ok(Some(Force::User(match group {
        Some(gid) => Cred { gid, ..cred },
        None => cred,
    })))
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
                (Some(Found::Group(number, members)), _) => {
                    groups.push(*number);
                    users.extend(members);
                }
                (_, Some(number)) => groups.push(number),
                (_, None) => return Err(format!("there is no group `{name}`")),
            },
        }
    }
    Ok(People::new(users, groups))
}

fn user(name: &str, accounts: Accounts<'_>, host: Option<&Found>) -> Result<u32, String> {
    match (accounts(name), host) {
        (Some((cred, true)), _) => Ok(cred.uid),
        (Some((_, false)), _) => Err(stranger(name)),
        (None, Some(Found::User(cred))) => Ok(cred.uid),
        (None, _) => Err(format!("there is no user `{name}`")),
    }
}

/// It shares its number with everybody of whom nothing is known: whom it lets in would be anybody.
fn stranger(name: &str) -> String {
    format!(
        "the account `{name}` is no user of its own; give it a `uid`, as in `headgate user add {name} --uid 1000`"
    )
}

/// What the host knows of a name. May wait.
fn look_up(who: &Who) -> Option<Found> {
    match who {
        Who::Everyone => None,
        Who::User(name) => {
            let by_number = who.number().and_then(|uid| Host.user(uid));
            accounts::by_name(by_number.as_deref().unwrap_or(name)).map(Found::User)
        }
        Who::Group(name) => {
            let (number, members) = match who.number() {
                Some(gid) => (gid, accounts::members_of_gid(gid)?),
                None => (Host.gid(name)?, accounts::members_of(name)?),
            };
            let members = members.iter().filter_map(|name| Host.uid(name));
            Some(Found::Group(number, members.collect()))
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
    use vfs::namespace::Right;

    use super::*;

    fn rights(share: config::Share, names: Names) -> Result<Rights, String> {
        let settings = Settings { shares: vec![share], names, ..Settings::default() };
        let cred = |uid, groups: &[u32]| Cred { uid, gid: uid, groups: groups.into() };
        let accounts = |name: &str| match name {
            "alice" => Some((cred(5, &[50]), true)),
            "root" => Some((cred(6, &[]), true)),
            "stranger" => Some((cred(65_534, &[]), false)),
            _ => None,
        };
        super::rights(&settings, &accounts).map(|mut all| all.remove(0))
    }

    fn resolved(access: Access, names: Names) -> Result<ShareAccess, String> {
        let mut share = config::Share::new("team", config::Source::Memory);
        share.access = Some(access);
        rights(share, names).map(|rights| rights.access.unwrap())
    }

    fn forced(user: Option<&str>, group: Option<&str>) -> Result<Option<Force>, String> {
        let mut share = config::Share::new("team", config::Source::Memory);
        let group = group.map(|name| Who::Group(name.into()));
        share.force = config::Force { user: user.map(|name| name.parse().unwrap()), group };
        rights(share, Names::Host).map(|rights| rights.force)
    }

    #[test]
    fn a_forced_user_has_its_groups_and_the_group_that_is_said() {
        let user = |uid, gid, groups: &[u32]| {
            Ok(Some(Force::User(Cred { uid, gid, groups: groups.into() })))
        };
        assert_eq!(forced(None, None), Ok(None));
        assert_eq!(forced(Some("alice"), None), user(5, 5, &[50]));
        assert_eq!(forced(Some("alice"), Some("12")), user(5, 12, &[50]));
        assert_eq!(forced(Some("4294967000"), Some("12")), user(4_294_967_000, 12, &[]));
        assert!(forced(Some("4294967000"), None).unwrap_err().contains("say `group` too"));
        assert_eq!(forced(None, Some("root")), Ok(Some(Force::Group(0))));
        let nobody = vfs::accounts::by_name("nobody").unwrap();
        assert_eq!(forced(Some("nobody"), None), Ok(Some(Force::User(nobody))));
        for (user, group) in [(Some("stranger"), None), (Some("nobody-has-this-name"), None)] {
            assert!(forced(user, group).unwrap_err().starts_with("share team: force: "));
        }
        assert!(forced(None, Some("nobody-has-this-name")).is_err());
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
