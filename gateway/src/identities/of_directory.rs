//! Users and groups of the configuration that the LDAP directory knows.
//!
//! *Operation.* A user of the directory takes precedence over a user of this host with the same name, as it does at logons; a group
//! of this host over one of the directory. Both mean their numbers.
//!
//! *Errors.* While the directory is silent, the earlier answer about a name serves. A name without one means the user of this host.
//! If this host has none either, or the entry is unusable, the name cannot be resolved.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use config::{Names, OnHost, Settings, Who};

use super::{Accounts, Found, Service, look_up, named, within};
use crate::ldap::{self, Ldap, Meant, Name, Unresolved};

/// Time for the question to the directory that is under way at the end of the time for all.
const LAST_QUESTION: Duration = Duration::from_secs(8);

/// Names without an answer, and why.
#[derive(Debug, Default)]
pub(super) struct Unanswered(BTreeMap<Who, Unresolved>);

impl Unanswered {
    /// Returns why one of these names cannot be resolved, also by what this host has said.
    pub(super) fn of<'a>(
        &self,
        names: impl IntoIterator<Item = &'a Who>,
        found: &Found,
    ) -> Option<String> {
        let is_of_host = |who: &Who| matches!(found.get(who), Some(Some(_)));
        let cannot = |who: &'a Who| match self.0.get(who)? {
            Unresolved::Silent(_) if is_of_host(who) => None,
            why => Some(format!("`{who}`: {why}")),
        };
        names.into_iter().find_map(cannot)
    }
}

/// Returns what the directory and the earlier answer of this host say about the names in these settings. Blocks for a limited time.
pub(super) fn known(
    settings: &Settings,
    accounts: Accounts<'_>,
    host: Service,
) -> (Found, Unanswered) {
    let mut found = settings.on_host.clone();
    if settings.users_from.is_none() {
        return (found, Unanswered::default());
    }
    let shares = settings.shares.iter().flat_map(named);
    let all: BTreeSet<Who> = shares.chain(settings.privileges.principals()).cloned().collect();
    if settings.names == Names::Host {
        add_groups(&mut found, &all, host);
    }
    let is_asked = |who: &Who| is_asked(who, &found, settings.names, accounts);
    let asked: BTreeSet<Who> = all.into_iter().filter(is_asked).collect();
    match ldap::of(settings) {
        Ok(None) => (found, Unanswered::default()),
        Ok(Some(directory)) => take(found, ask(&directory, asked.into_iter().collect())),
        Err(why) => {
            let why = Unresolved::Unusable(why);
            (found, Unanswered(asked.into_iter().map(|who| (who, why.clone())).collect()))
        }
    }
}

type Answer = Result<Option<OnHost>, Unresolved>;

/// Adds what this host says about the groups that are not among those found: the directory must not decide about them. Adds none if
/// the name service fails, as the look-up of the other names does after it.
fn add_groups(found: &mut Found, all: &BTreeSet<Who>, host: Service) {
    let is_new =
        |who: &&Who| matches!(who, Who::Group(_)) && is_plain(who) && !found.contains_key(*who);
    let new: Vec<Who> = all.iter().filter(is_new).cloned().collect();
    if new.is_empty() {
        return;
    }
    let look_up = move || {
        let one = |who: Who| look_up(&who, host).map(|answer| (who, answer));
        new.into_iter().map(one).collect::<Result<Vec<_>, String>>()
    };
    if let Ok(Ok(answers)) = within(look_up) {
        found.extend(answers);
    }
}

fn take(mut found: Found, answers: Vec<(Who, Answer)>) -> (Found, Unanswered) {
    let mut unanswered = BTreeMap::new();
    for (who, answer) in answers {
        match answer {
            Ok(Some(it)) => drop(found.insert(who, Some(it))),
            Ok(None) => {}
            Err(why) => drop(unanswered.insert(who, why)),
        }
    }
    (found, Unanswered(unanswered))
}

/// Returns whether this is a name without a domain.
fn is_plain(who: &Who) -> bool {
    who.sid().is_none() && who.number().is_none() && who.in_domain().is_none()
}

/// Returns whether a name may be one of the directory.
fn is_asked(who: &Who, found: &Found, names: Names, accounts: Accounts<'_>) -> bool {
    match who {
        _ if !is_plain(who) => false,
        Who::Everyone => false,
        Who::User(name) => accounts(name).is_none(),
        Who::Group(_) => match found.get(who) {
            Some(Some(OnHost::Group { .. })) => false,
            Some(_) => true,
            // The host has not said that it has no such group.
            None => names == Names::Own,
        },
    }
}

/// Asks the directory on a separate thread, because the caller may be one that serves. A name whose answer comes too late has none.
fn ask(directory: &Arc<Ldap>, asked: Vec<Who>) -> Vec<(Who, Answer)> {
    if asked.is_empty() {
        return Vec::new();
    }
    let limit = ldap::time_for(asked.len());
    let (tell, told) = mpsc::channel();
    let (its, names) = (directory.clone(), asked.clone());
    let work = move || {
        let names: Vec<Name<'_>> = names.iter().filter_map(name).collect();
        drop(tell.send(its.for_settings(&names, limit)));
    };
    let begun = thread::Builder::new().name("ldap-names".into()).spawn(work);
    let answers = begun.ok().and_then(|_| told.recv_timeout(limit + LAST_QUESTION).ok());
    let mut answers = answers.unwrap_or_default().into_iter();
    let silent = || Err(directory.silent());
    let of = |who| (who, answers.next().map_or_else(silent, |answer| Ok(answer?.map(on_host))));
    asked.into_iter().filter(|who| name(who).is_some()).map(of).collect()
}

fn name(who: &Who) -> Option<Name<'_>> {
    match who {
        Who::User(name) => Some(Name::User(name)),
        Who::Group(name) => Some(Name::Group(name)),
        Who::Everyone => None,
    }
}

fn on_host(meant: Meant) -> OnHost {
    match meant {
        Meant::User(cred) => OnHost::User {
            uid: cred.uid,
            gid: cred.gid,
            groups: cred.groups.to_vec(),
            shows_group: false,
        },
        // Callers carry the numbers of their groups.
        Meant::Group(gid) => OnHost::Group { gid, members: Vec::new() },
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::super::Group;
    use super::*;

    fn who(text: &str) -> Who {
        text.parse().unwrap()
    }

    #[test]
    fn only_plain_names_of_others_are_asked() {
        let group = Some(OnHost::Group { gid: 7, members: Vec::new() });
        let user = Some(OnHost::User { uid: 7, gid: 7, groups: vec![], shows_group: false });
        let found: Found =
            [(who("@host"), group), (who("dana"), user), (who("@crew"), None)].into();
        let cred = vfs::Cred { uid: 5, gid: 5, groups: [].into(), token: vfs::Token::NONE };
        let accounts = |name: &str| (name == "alice").then(|| (cred.clone(), true));
        for (name, by_host, by_own) in [
            ("dana", true, true),
            ("@crew", true, true),
            ("@unknown", false, true),
            ("alice", false, false),
            ("@host", false, false),
            ("7", false, false),
            ("@7", false, false),
            ("dana@example.org", false, false),
            ("S-1-5-21-1-2-3-1103", false, false),
        ] {
            let of = |names| is_asked(&who(name), &found, names, &accounts);
            assert_eq!((of(Names::Host), of(Names::Own)), (by_host, by_own), "{name}");
        }
    }

    /// A host with the group `staff`, whose name service fails for `away`.
    fn host() -> Service {
        let group = |name: &str| -> io::Result<Option<Group>> {
            match name {
                "staff" => Ok(Some((50, Vec::new()))),
                "away" => Err(io::ErrorKind::TimedOut.into()),
                _ => Ok(None),
            }
        };
        Service {
            user: |_| Ok(None),
            uid: |_| Ok(None),
            name: |_| Ok(None),
            group,
            group_of: |gid| panic!("asked of {gid}"),
            shows_group: |_| false,
        }
    }

    /// Each reload because of a user begins without the answers of the host.
    #[test]
    fn group_of_host_stays_its_own_without_earlier_answers() {
        let is_asked =
            |name: &str, found: &Found| is_asked(&who(name), found, Names::Host, &|_| None);
        let all = |names: &[&str]| names.iter().map(|name| who(name)).collect::<BTreeSet<Who>>();
        let mut found = Found::new();
        add_groups(&mut found, &all(&["@staff", "@crew", "@7", "dana"]), host());
        let staff = Some(OnHost::Group { gid: 50, members: Vec::new() });
        let wanted: Found = [(who("@staff"), staff), (who("@crew"), None)].into();
        assert_eq!(found, wanted);
        assert!(!is_asked("@staff", &found) && is_asked("@crew", &found));
        // A host that does not answer may have the group.
        let mut found = Found::new();
        add_groups(&mut found, &all(&["@staff", "@away"]), host());
        assert!(!is_asked("@staff", &found) && !is_asked("@away", &found));
    }

    #[test]
    fn directory_decides_before_the_host_and_silence_is_told() {
        let user = |uid| Some(OnHost::User { uid, gid: 7, groups: vec![], shows_group: false });
        let found: Found =
            [(who("dana"), user(1000)), (who("bob"), user(1001)), (who("erin"), user(1002))].into();
        let silent = || Err(Unresolved::Silent("it is silent".into()));
        let (found, unanswered) = take(
            found,
            vec![
                (who("dana"), Ok(user(5001))),
                (who("bob"), Ok(None)),
                (who("@crew"), silent()),
                (who("erin"), silent()),
                (who("kim"), Err(Unresolved::Unusable("it has two".into()))),
            ],
        );
        assert_eq!(found[&who("dana")], user(5001));
        assert_eq!(found[&who("bob")], user(1001));
        let names = [who("dana"), who("erin"), who("@crew")];
        assert_eq!(unanswered.of(&names, &found).unwrap(), "`@crew`: it is silent");
        assert_eq!(unanswered.of(&names[..2], &found), None, "the host knows erin");
        let mut without = found.clone();
        without.insert(who("erin"), None);
        assert_eq!(unanswered.of(&names, &without).unwrap(), "`erin`: it is silent");
        // An entry that is there is never replaced by the host's user.
        let mut with = found;
        with.insert(who("kim"), user(1003));
        assert_eq!(unanswered.of(&[who("kim")], &with).unwrap(), "`kim`: it has two");
    }
}
