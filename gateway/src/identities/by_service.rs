//! Users and groups of the configuration that the service knows.
//!
//! *Operation.* The reader of a configuration asks about names with a domain and about groups, and keeps SIDs. Access checks ask
//! nothing.
//!
//! *Errors.* One line for the user if the service does not answer, or if an entry for a user names a group or the reverse.

use std::collections::BTreeMap;

use config::{Settings, Who};
use domain_sys::Number;
use smbd_core::domain_engine::{Lookup, NamedKind};
use vfs::Domain;
use vfs::acl::Sid;

use crate::domain_service;

/// Answers of the service about names.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByService {
    /// Its name.
    by: &'static str,
    answers: BTreeMap<Who, (Lookup, Option<Number>)>,
}

/// The meaning of a name for the service.
pub(super) enum Meaning {
    /// The service decides nothing about the name.
    Nothing,
    /// The service knows no such name.
    Missing,
    Identity(Sid, Option<Number>),
}

/// Splits a name for the service into domain and rest.
fn parts(who: &Who) -> Option<(&str, &str)> {
    if who.sid().is_some() || who.number().is_some() {
        return None;
    }
    match (who, who.in_domain()) {
        (_, Some((name, of))) => Some((of, name)),
        // The group may be of the machine's domain.
        (Who::Group(name), None) => Some(("", name)),
        _ => None,
    }
}

impl ByService {
    /// Asks about all names of these settings, and this one. Blocks for some seconds at most.
    pub(super) fn of(settings: &Settings, one: Option<&Who>) -> Self {
        let Some(service) = domain_service::of(settings) else { return Self::default() };
        let shares = settings.shares.iter().filter_map(|share| share.access.as_ref());
        let named = shares.flat_map(config::Access::principals);
        let named = named.chain(settings.privileges.principals()).chain(one);
        let asked: Vec<&Who> = named.filter(|who| parts(who).is_some()).collect();
        let names: Vec<(&str, &str)> = asked.iter().filter_map(|who| parts(who)).collect();
        let found = service.resolve(&names);
        Self { by: service.name(), answers: asked.into_iter().cloned().zip(found).collect() }
    }

    /// Stores the numbers of these identities, by which callers without a ticket match.
    pub(super) fn tell(&self, domain: &Domain) {
        for (answer, number) in self.answers.values() {
            let (Ok(Some(named)), Some(number)) = (answer, number) else { continue };
            if let Number::Uid(uid) | Number::Both(uid) = number
                && named.kind == NamedKind::User
            {
                domain.know_uid(*uid, &named.sid);
            }
            if let Number::Gid(gid) | Number::Both(gid) = number
                && named.kind != NamedKind::User
            {
                domain.know_group(*gid, &named.sid);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn answering(answers: impl IntoIterator<Item = (Who, Lookup)>) -> Self {
        let answers = answers.into_iter().map(|(who, answer)| (who, (answer, None))).collect();
        Self { by: "winbind", answers }
    }

    /// Says that the service knows no such name.
    pub(super) fn unknown(&self, who: &Who) -> String {
        format!("{} knows no `{}`", self.by, who.name())
    }

    /// Says that the service knows neither this name nor its domain.
    pub(super) fn unknown_domain(&self, who: &Who) -> Option<String> {
        let (name, (_, of)) = (who.name(), who.in_domain()?);
        if !matches!(self.meaning(who), Ok(Meaning::Missing)) {
            return None;
        }
        let by = self.by;
        Some(format!(
            "{by} knows no `{name}`; if `{of}` is no domain but the suffix of a principal name, write the name that the user has \
             in its domain, as in `EXAMPLE\\alice`, or the SID"
        ))
    }

    /// Returns what the service said about this name.
    pub(super) fn meaning(&self, who: &Who) -> Result<Meaning, String> {
        let found = match self.answers.get(who) {
            None => return Ok(Meaning::Nothing),
            Some((Ok(None), _)) => return Ok(Meaning::Missing),
            Some((Err(why), _)) => {
                let (name, by) = (who.name(), self.by);
                return Err(format!("`{name}` cannot be looked up by {by}: {}", why.detail));
            }
            Some((Ok(Some(found)), number)) => (found, *number),
        };
        let (named, number) = found;
        let full = format!(r"{}\{}", named.domain, named.name);
        match (who, named.kind) {
            (Who::User(_), NamedKind::User | NamedKind::Computer)
            | (Who::Group(_), NamedKind::Group | NamedKind::Alias | NamedKind::WellKnown) => {
                Ok(Meaning::Identity(named.sid.clone(), number))
            }
            (Who::User(name), NamedKind::Group | NamedKind::Alias | NamedKind::WellKnown) => {
                Err(format!("`{name}` is the group `{full}`; write it as `\"@{name}\"`"))
            }
            (Who::Group(name), NamedKind::User | NamedKind::Computer) => {
                Err(format!("`@{name}` is the user `{full}`; write it as `{name}`"))
            }
            _ => Err(format!(
                "`{}` is neither a user nor a group, but the domain `{full}`",
                who.name()
            )),
        }
    }
}
