//! Users and groups of the directory that a configuration names.
//!
//! *Operation.* A connection has the questions about several names, as many as are answered in the time of a turn; the next one has
//! the others. An answer that is fresh needs no question.
//!
//! *Errors.* While no server answers, and for names without an answer after the time limit, the last answer serves.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ldap3::Scope;
use mutex::locked;
use vfs::Cred;

use super::ask::{Fault, Session};
use super::cache::{Lack, Now, cred};
use super::{Ldap, Named, Told, entry, is_askable};

/// Time for the names of a configuration, in addition to [`NAME_TIME`] for each, and the most.
const NAMES_TIME: Duration = Duration::from_secs(10);
const NAME_TIME: Duration = Duration::from_millis(250);
const NAMES_TIME_MAX: Duration = Duration::from_secs(30);

/// Returns the time limit for so many names. The last question may end some seconds later.
pub(crate) fn time_for(names: usize) -> Duration {
    let each = NAME_TIME.saturating_mul(u32::try_from(names).unwrap_or(u32::MAX));
    NAMES_TIME.saturating_add(each).min(NAMES_TIME_MAX)
}

/// Why a name of a configuration has no answer, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unresolved {
    /// No server answers in time, and no earlier answer serves.
    Silent(String),
    /// The entry is unusable, or the directory cannot be used with these settings.
    Unusable(String),
}

impl std::fmt::Display for Unresolved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Silent(why) | Self::Unusable(why)) = self;
        f.write_str(why)
    }
}

/// A name in a configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Name<'a> {
    User(&'a str),
    Group(&'a str),
}

/// What a name means: a user, who may be one who cannot log on, or the number of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meant {
    User(Cred),
    Group(u32),
}

/// `Ok(None)`: the directory has no such entry.
pub(crate) type Answer = Result<Option<Meant>, Unresolved>;

/// The answer of a server about a name.
enum Asked {
    User(Told, Named),
    /// The user is there, and its groups cannot be read now.
    WithoutGroups(String),
    Group(Result<Option<u32>, String>),
}

impl Ldap {
    /// Returns what these names mean, in the same order. Blocks for `limit`, and then some seconds at most.
    pub(crate) fn for_settings(
        self: &Arc<Self>,
        names: &[Name<'_>],
        limit: Duration,
    ) -> Vec<Answer> {
        let until = Instant::now() + limit;
        let mut all: Vec<(Name<'_>, Option<Answer>)> =
            names.iter().map(|name| (*name, self.without_question(*name))).collect();
        loop {
            let mut open: Vec<_> = all.iter_mut().filter(|(_, answer)| answer.is_none()).collect();
            if open.is_empty() || self.is_known_away() || Instant::now() >= until {
                break;
            }
            let asked: Vec<Name<'_>> = open.iter().map(|(name, _)| *name).collect();
            let told = self.ask_some(&asked, async |session: &mut Session, name: &Name<'_>| {
                self.name_in(session, *name).await
            });
            // The first one keeps no other from its turn.
            if told.is_empty()
                && let Some((name, answer)) = open.first_mut()
            {
                *answer = Some(self.by_earlier(*name));
            }
            for ((name, answer), (told, began)) in open.into_iter().zip(told) {
                *answer = Some(self.told(*name, told, began));
            }
        }
        let earlier =
            |(name, answer): (_, Option<_>)| answer.unwrap_or_else(|| self.by_earlier(name));
        all.into_iter().map(earlier).collect()
    }

    /// Returns what a name means by an answer that needs no other one.
    fn without_question(&self, name: Name<'_>) -> Option<Answer> {
        let now = Now::real();
        match name {
            Name::User(name) | Name::Group(name) if !is_askable(name) => Some(Ok(None)),
            Name::User(name) => {
                let (fresh, lack) = {
                    let cache = locked(&self.cache);
                    (cache.fresh(name, now).map(cred), cache.lack(name, now))
                };
                // An unusable entry may have numbers, and the reason is not kept.
                if fresh.is_none() && lack != Some(Lack::NoEntry) {
                    return None;
                }
                self.note_meant(name, fresh.as_ref());
                Some(Ok(fresh.map(Meant::User)))
            }
            Name::Group(name) => {
                let gid = locked(&self.cache).fresh_group(name, now)?;
                Some(Ok(Some(Meant::Group(gid))))
            }
        }
    }

    /// Asks about a name on a connection.
    async fn name_in(&self, session: &mut Session, name: Name<'_>) -> Result<Asked, Fault> {
        let name = match name {
            Name::User(name) => {
                return match self.user_in(session, name).await {
                    Ok((told, named)) => Ok(Asked::User(told, named)),
                    Err(fault @ Fault::Loaded(_)) => Ok(Asked::WithoutGroups(fault.to_string())),
                    Err(fault) => Err(fault),
                };
            }
            Name::Group(name) => name,
        };
        let (base, filter) = (&self.from.base, entry::group_filter(name));
        let attributes = &entry::GROUP_ATTRIBUTES;
        match session.search(base, Scope::Subtree, &filter, attributes, 1).await {
            Err(Fault::TooLarge(why)) => {
                Ok(Asked::Group(Err(format!("the group `{name}`: {why}"))))
            }
            rows => Ok(Asked::Group(entry::group(&rows.map_err(Fault::of_all)?, name))),
        }
    }

    /// Keeps an answer about a name to a question that began at this time, and returns what the name means.
    fn told(self: &Arc<Self>, name: Name<'_>, asked: Asked, began: Now) -> Answer {
        let whole = name;
        let (Name::User(name) | Name::Group(name)) = name;
        match asked {
            // Without an earlier answer the user of this host with the name is not the one that is meant.
            Asked::WithoutGroups(why) => match self.by_earlier(whole) {
                Err(Unresolved::Silent(_)) => Err(Unresolved::Unusable(why)),
                answer => answer,
            },
            Asked::User(told, named) => {
                if let Ok(named) = &named {
                    self.note_meant(name, named.as_ref());
                }
                self.take(name, told, began);
                let named = named.map_err(Unresolved::Unusable)?;
                locked(&self.cache).keep_named(name, named.clone(), began);
                Ok(named.map(Meant::User))
            }
            Asked::Group(told) => {
                let gid = told.map_err(Unresolved::Unusable)?;
                locked(&self.cache).keep_group(name, gid, began);
                self.write_later();
                Ok(gid.map(Meant::Group))
            }
        }
    }

    /// Returns what a name means by the last answer.
    fn by_earlier(&self, name: Name<'_>) -> Answer {
        let found = match name {
            Name::User(name) => {
                let kept = self.account(name).map(|account| account.cred);
                let named = || locked(&self.cache).named(name, self.from.keep, Now::real());
                let found = kept.or_else(named);
                if found.is_some() {
                    self.note_meant(name, found.as_ref());
                }
                found.map(Meant::User)
            }
            Name::Group(name) => {
                locked(&self.cache).group(name, self.from.keep, Now::real()).map(Meant::Group)
            }
        };
        found.map_or_else(|| Err(self.silent()), |found| Ok(Some(found)))
    }

    /// Notes what a configuration is told about a name. The one in force may have been told something else.
    fn note_meant(&self, name: &str, cred: Option<&Cred>) {
        if locked(&self.cache).note_meant(name, cred) {
            self.must_resolve.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that a name of a configuration has no answer.
    pub(crate) fn silent(&self) -> Unresolved {
        self.has_unresolved.store(true, Ordering::Relaxed);
        let why = locked(&self.state).away.clone();
        let why = why.unwrap_or_else(|| "it has no time for this name".into());
        Unresolved::Silent(format!("the directory of users does not answer: {why}"))
    }

    #[cfg(test)]
    pub(super) fn user_for_settings(
        self: &Arc<Self>,
        name: &str,
    ) -> Result<Option<Cred>, Unresolved> {
        match self.for_settings(&[Name::User(name)], time_for(1)).remove(0)? {
            Some(Meant::User(cred)) => Ok(Some(cred)),
            _ => Ok(None),
        }
    }

    #[cfg(test)]
    pub(super) fn group_for_settings(
        self: &Arc<Self>,
        name: &str,
    ) -> Result<Option<u32>, Unresolved> {
        match self.for_settings(&[Name::Group(name)], time_for(1)).remove(0)? {
            Some(Meant::Group(gid)) => Ok(Some(gid)),
            _ => Ok(None),
        }
    }
}
