//! Names and SIDs of one call about which winbind is asked, all at once.

use std::collections::{HashMap, HashSet};

use super::{Found, Host, UNIX_GROUP, UNIX_USER, Use, WELL_KNOWN, parts_of, told};
use crate::domain_engine::{Lookup, Named, NamedKind};
use crate::dtyp::Sid;

/// What winbind knows about the names and SIDs of a call. While it does not answer, what it said before.
#[derive(Default)]
pub(super) struct DomainNames {
    by_sid: HashMap<Sid, Named>,
    by_name: HashMap<String, Named>,
    /// Names that no identity of a domain has.
    unknown: HashSet<String>,
}

impl DomainNames {
    /// Asks about those SIDs that are of a domain. May block.
    pub(super) fn of_sids<'s>(host: &dyn Host, sids: impl Iterator<Item = &'s Sid>) -> Self {
        let Some(engine) = host.engine() else { return Self::default() };
        let machine = host.machine();
        let is_asked = |sid: &&Sid| {
            let is_of_domain = sid.authority() == 5 && sid.subs().first() == Some(&21);
            is_of_domain && **sid != machine && sid.rid_in(&machine).is_none()
        };
        let mut asked: Vec<Sid> = sids.filter(is_asked).cloned().collect();
        asked.sort_unstable();
        asked.dedup();
        let found = engine.names(&asked);
        let by_sid =
            asked.into_iter().zip(found).filter_map(|(sid, found)| Some((sid, known(found)?)));
        Self { by_sid: by_sid.collect(), ..Self::default() }
    }

    /// Asks about those names that may be of a domain. May block.
    pub(super) fn of_names(host: &dyn Host, names: &[String]) -> Self {
        let Some(engine) = host.engine() else { return Self::default() };
        let computer = host.computer();
        let same = |a: &str, b: &str| a.to_lowercase() == b.to_lowercase();
        let is_here = |domain: &str| {
            let well_known = || WELL_KNOWN.iter().any(|(_, _, _, known, _)| same(domain, known));
            [&*computer, UNIX_USER, UNIX_GROUP].iter().any(|known| same(domain, known))
                || well_known()
        };
        let is_asked = |name: &&String| {
            let (domain, plain) = parts_of(name);
            !plain.is_empty() && (domain.is_empty() || !is_here(domain))
        };
        let asked: Vec<&String> = names.iter().filter(is_asked).collect();
        let parts: Vec<(&str, &str)> = asked.iter().map(|name| parts_of(name)).collect();
        let found = engine.identities(&parts);
        let is_unknown =
            |(name, found): (&&String, &Lookup)| matches!(found, Ok(None)).then(|| (*name).clone());
        let unknown = asked.iter().zip(&found).filter_map(is_unknown).collect();
        // Names of the gateway itself, and BUILTIN, are not for winbind to say.
        let is_of_domain =
            |named: &Named| named.sid.authority() == 5 && named.sid.subs().first() == Some(&21);
        let by_name = asked.into_iter().zip(found);
        let by_name = by_name.filter_map(|(name, found)| Some((name.clone(), known(found)?)));
        Self {
            by_name: by_name.filter(|(_, named)| is_of_domain(named)).collect(),
            unknown,
            ..Self::default()
        }
    }

    pub(super) fn name_of(&self, sid: &Sid) -> Option<Found> {
        // The SID of a name is among the answers about names.
        let by_name = || self.by_name.values().find(|named| named.sid == *sid);
        found(self.by_sid.get(sid).or_else(by_name)?)
    }

    /// Returns whether the service has said that no identity of a domain has this name: a user may have another name than in its
    /// last ticket.
    pub(super) fn is_unknown(&self, name: &str) -> bool {
        self.unknown.contains(name)
    }

    pub(super) fn sid_of(&self, name: &str) -> Option<Found> {
        found(self.by_name.get(name)?)
    }
}

fn known(answer: Lookup) -> Option<Named> {
    answer.ok().flatten()
}

fn found(named: &Named) -> Option<Found> {
    let kind = match named.kind {
        NamedKind::User => Use::User,
        NamedKind::Group => Use::Group,
        NamedKind::Domain => Use::Domain,
        NamedKind::Alias => Use::Alias,
        NamedKind::WellKnown => Use::WellKnown,
        NamedKind::Computer => Use::Computer,
    };
    let above = match named.kind {
        NamedKind::Domain => named.sid.clone(),
        _ => named.sid.split()?.0,
    };
    // A domain is its own name.
    let name = match named.kind {
        NamedKind::Domain => named.domain.clone(),
        _ => named.name.clone(),
    };
    Some(Found {
        kind,
        name: told(name)?,
        domain: (told(named.domain.clone())?, above),
        sid: named.sid.clone(),
    })
}
