//! The groups of a user of the domain that need no logon, for `check`.
//!
//! *Operation.* The service asks a controller, or answers from what it has kept of the user's last logon. A ticket may have further
//! groups: of another domain, or added by the controller for the way of the logon.
//!
//! *Errors.* One line for the user.

use std::sync::Arc;
use std::time::Duration;

use domain_sys::{Context, Error};
use smb_auth::relay::{Refused, Why};
use smbd_core::domain_engine::{Engine, Numbers};
use vfs::acl::Sid;

use super::names::{Asked, Whose};
use super::{About, DomainService, OfHost};

/// Time limit of the question: a controller far away may answer it.
const GROUPS_MAX: Duration = Duration::from_secs(9);

/// A group of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) sid: Sid,
    /// `DOMAIN\group`, if the service knows the name.
    pub(crate) name: Option<String>,
}

/// The groups and numbers of a user, as the service knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    /// The primary group is the first.
    pub(crate) all: Vec<Group>,
    pub(crate) numbers: Numbers,
    /// A controller of the user's domain tells the groups now.
    pub(crate) are_new: bool,
}

/// Asks for the SIDs of a user's groups, and whether a controller of its domain told them now. The winbindd of a member has groups
/// of users of other domains only from their logons.
fn ask(asked: &mut impl Asked, user: &Sid, whose: &Whose) -> Result<(Vec<Sid>, bool), Error> {
    let found = asked.sids_of_user(user)?;
    let reached = match whose {
        Whose::Own => asked.reach_controller(None),
        Whose::Trusted(domain) if found.is_none() => asked.reach_controller(Some(domain)),
        Whose::Trusted(_) | Whose::Unlisted => Err(Error::NoController),
    };
    match (found, reached) {
        (None, Err(Error::NotTold)) => Ok((Vec::new(), false)),
        (None, Err(silent)) => Err(silent),
        (None, Ok(())) => Ok((Vec::new(), true)),
        (Some(mut sids), reached) => {
            sids.retain(|sid| sid != user);
            Ok((sids, reached.is_ok()))
        }
    }
}

/// Says why a logon of the user would be refused, or why that is not known.
fn why(refused: &Refused, by: &str) -> String {
    match refused.why {
        Why::NoNumber => {
            format!("{by} has no number for {}, without which logons are refused", refused.detail)
        }
        _ => refused.detail.clone(),
    }
}

impl DomainService {
    /// Asks for the groups of a user. Blocks for some seconds at most.
    pub(crate) fn groups_of(self: &Arc<Self>, user: &Sid) -> Result<Groups, String> {
        let (asked, whose) = (user.clone(), self.whose_sid(user));
        let question = move |context: &mut Context| ask(context, &asked, &whose);
        let answer = self.call(About::Other, GROUPS_MAX, question);
        let (sids, are_new) = answer.map_err(|error| error.to_string())?;
        self.with_numbers(user, sids, are_new)
    }

    fn with_numbers(
        self: &Arc<Self>,
        user: &Sid,
        sids: Vec<Sid>,
        are_new: bool,
    ) -> Result<Groups, String> {
        let Some((primary, others)) = sids.split_first() else {
            return Err(format!("{} knows no groups of this user", self.name()));
        };
        let numbers = OfHost(self.clone()).numbers(user, primary, others);
        let numbers = numbers.map_err(|refused| why(&refused, self.name()))?;
        let names = self.names_of(&sids).into_iter().map(|found| {
            let named = found.ok()??;
            Some(format!(r"{}\{}", named.domain, named.name))
        });
        let all = sids.iter().cloned().zip(names).map(|(sid, name)| Group { sid, name }).collect();
        Ok(Groups { all, numbers, are_new })
    }
}

#[cfg(test)]
mod tests {
    use domain_sys::{Name, Number};
    use mutex::locked;
    use smbd_core::domain_engine::{Named, NamedKind};

    use super::*;

    fn lab(rid: u32) -> Sid {
        Sid::new(5, &[21, 1, 2, 3, rid]).unwrap()
    }

    const ALICE: u32 = 1103;

    /// A directory with these groups of alice, whose controller may be silent.
    struct Lab {
        groups: Result<Option<Vec<u32>>, Error>,
        reached: Result<(), Error>,
    }

    impl Asked for Lab {
        fn sids_of_user(&mut self, user: &Sid) -> Result<Option<Vec<Sid>>, Error> {
            let of = |groups: Vec<u32>| {
                std::iter::once(user.clone()).chain(groups.into_iter().map(lab)).collect()
            };
            Ok(self.groups.clone()?.map(of))
        }

        fn sid_of(&mut self, _: &str, _: &str) -> Result<Option<Sid>, Error> {
            panic!("no name is asked about")
        }

        fn name_of(&mut self, _: &Sid) -> Result<Option<Name>, Error> {
            panic!("no SID is asked about")
        }

        fn reach_controller(&mut self, domain: Option<&str>) -> Result<(), Error> {
            assert_eq!(domain, Some("OTHER"));
            self.reached.clone()
        }
    }

    /// Each line: what the service says, what it says of the controller, and what is known.
    #[test]
    fn silent_controller_makes_groups_old_and_takes_none() {
        let some = || Ok(Some(vec![513, 1200]));
        let sids = || vec![lab(513), lab(1200)];
        let silent = || Err(Error::NoController);
        let not_told = || Err(Error::NotTold);
        for (groups, reached, wanted) in [
            (some(), Ok(()), Ok((sids(), false))),
            (some(), silent(), Ok((sids(), false))),
            (some(), not_told(), Ok((sids(), false))),
            (Ok(None), Ok(()), Ok((vec![], true))),
            (Ok(None), silent(), Err(Error::NoController)),
            (Ok(None), not_told(), Ok((vec![], false))),
            (Err(Error::NotAvailable), Ok(()), Err(Error::NotAvailable)),
        ] {
            let mut lab = Lab { groups, reached };
            assert_eq!(ask(&mut lab, &self::lab(ALICE), &Whose::Trusted("OTHER".into())), wanted);
        }
        let mut lab = Lab { groups: some(), reached: Ok(()) };
        assert_eq!(ask(&mut lab, &self::lab(ALICE), &Whose::Unlisted), Ok((sids(), false)));
    }

    #[test]
    fn groups_have_names_and_numbers() {
        let service = Arc::<DomainService>::default();
        locked(&service.state).away = Some("silent".into());
        let named = |rid, kind, name: &str| Named {
            sid: lab(rid),
            kind,
            domain: "LAB".into(),
            name: name.into(),
        };
        let alice = lab(ALICE);
        let silent = || Err("the service of the domain does not answer".to_owned());
        assert_eq!(service.groups_of(&alice).map(drop), silent());
        let none = service.with_numbers(&alice, vec![], true);
        assert_eq!(none, Err("winbind knows no groups of this user".to_owned()));

        service.say(("LAB", "alice"), named(ALICE, NamedKind::User, "alice"), Number::Uid(3001));
        service.say(("LAB", "users"), named(513, NamedKind::Group, "users"), Number::Gid(3513));
        let sids = vec![lab(513), lab(1200)];
        let told = service.with_numbers(&alice, sids.clone(), true);
        assert_eq!(told.map(drop), silent(), "a number is missing");
        service.say(("LAB", "sales"), named(1200, NamedKind::Group, "sales"), Number::Gid(4200));
        let told = service.with_numbers(&alice, sids, false).unwrap();
        let group = |rid, name: &str| Group { sid: lab(rid), name: Some(name.into()) };
        assert_eq!(told.all, [group(513, r"LAB\users"), group(1200, r"LAB\sales")]);
        assert_eq!(told.numbers, Numbers { uid: 3001, gid: 3513, groups: vec![4200] });
        assert!(!told.are_new);
    }

    #[test]
    fn user_without_number_is_refused() {
        let of =
            |why: Why| super::why(&Refused { why, detail: "S-1-5-21-1-2-3-513".into() }, "winbind");
        assert!(of(Why::NoNumber).starts_with("winbind has no number for S-1-5-21-1-2-3-513"));
        assert_eq!(of(Why::Away), "S-1-5-21-1-2-3-513");
    }
}
