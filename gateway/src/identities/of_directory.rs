//! Users and groups of the configuration that the LDAP directory knows.
//!
//! *Operation.* A user of the directory takes precedence over a user of this host with the same name, as it does at logons; a group
//! of this host over one of the directory. Both mean their numbers.
//!
//! *Errors.* A name about which the directory does not answer, and of which no earlier answer is kept, cannot be resolved.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::{OnHost, Settings, Who};

use super::{Accounts, Found, named, within};
use crate::ldap::{self, Ldap};

/// Names without an answer, and why.
#[derive(Debug, Default)]
pub(super) struct Unanswered(BTreeMap<Who, String>);

impl Unanswered {
    /// Returns why one of these names cannot be resolved.
    pub(super) fn of<'a>(&self, names: impl IntoIterator<Item = &'a Who>) -> Option<String> {
        let first = names.into_iter().find_map(|who| self.0.get_key_value(who));
        first.map(|(who, why)| format!("`{who}`: {why}"))
    }
}

/// Returns what the directory and the earlier answer of this host say about the names in these settings. Blocks for a limited time.
pub(super) fn known(settings: &Settings, accounts: Accounts<'_>) -> (Found, Unanswered) {
    let found = settings.on_host.clone();
    if settings.users_from.is_none() {
        return (found, Unanswered::default());
    }
    let shares = settings.shares.iter().flat_map(named);
    let all = shares.chain(settings.privileges.principals());
    let asked: BTreeSet<Who> = all.filter(|who| is_asked(who, &found, accounts)).cloned().collect();
    let names = asked.clone();
    let answers = ldap::of(settings).and_then(|directory| {
        let Some(directory) = directory else { return Ok(Vec::new()) };
        within(move || names.into_iter().map(|who| (who.clone(), ask(&directory, &who))).collect())
    });
    match answers {
        Ok(answers) => take(found, answers),
        Err(why) => (found, Unanswered(asked.into_iter().map(|who| (who, why.clone())).collect())),
    }
}

type Answer = Result<Option<OnHost>, String>;

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

/// Returns whether a name may be one of the directory.
fn is_asked(who: &Who, found: &Found, accounts: Accounts<'_>) -> bool {
    if who.sid().is_some() || who.number().is_some() || who.in_domain().is_some() {
        return false;
    }
    match who {
        Who::Everyone => false,
        Who::User(name) => accounts(name).is_none(),
        Who::Group(_) => !matches!(found.get(who), Some(Some(OnHost::Group { .. }))),
    }
}

fn ask(directory: &Arc<Ldap>, who: &Who) -> Answer {
    match who {
        Who::User(name) => {
            let user = directory.user_for_settings(name)?;
            Ok(user.map(|cred| OnHost::User {
                uid: cred.uid,
                gid: cred.gid,
                groups: cred.groups.to_vec(),
                shows_group: false,
            }))
        }
        Who::Group(name) => {
            let gid = directory.group_for_settings(name)?;
            // Callers carry the numbers of their groups.
            Ok(gid.map(|gid| OnHost::Group { gid, members: Vec::new() }))
        }
        Who::Everyone => Ok(None),
    }
}

#[cfg(test)]
mod tests {
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
        for (name, wanted) in [
            ("dana", true),
            ("@crew", true),
            ("@other", true),
            ("alice", false),
            ("@host", false),
            ("7", false),
            ("@7", false),
            ("dana@example.org", false),
            ("S-1-5-21-1-2-3-1103", false),
        ] {
            assert_eq!(is_asked(&who(name), &found, &accounts), wanted, "{name}");
        }
    }

    #[test]
    fn directory_decides_before_the_host_and_silence_is_told() {
        let user = |uid| Some(OnHost::User { uid, gid: 7, groups: vec![], shows_group: false });
        let found: Found = [(who("dana"), user(1000)), (who("bob"), user(1001))].into();
        let (found, unanswered) = take(
            found,
            vec![
                (who("dana"), Ok(user(5001))),
                (who("bob"), Ok(None)),
                (who("@crew"), Err("it is silent".into())),
            ],
        );
        assert_eq!(found[&who("dana")], user(5001));
        assert_eq!(found[&who("bob")], user(1001));
        let names = [who("dana"), who("@crew")];
        assert_eq!(unanswered.of(&names).unwrap(), "`@crew`: it is silent");
        assert_eq!(unanswered.of(&names[..1]), None);
    }
}
