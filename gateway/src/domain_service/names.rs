//! Names, SIDs and numbers of domain identities.
//!
//! *Operation.* Answers are kept; while the service does not answer, all kept answers are valid. The gateway asks again in the
//! background about names that it uses, so that a renamed user has the new name within minutes. Questions about names use at
//! most [`QUESTIONS_MAX`] threads, half of them for one client, until the library returns: passwords have the others. That a
//! name does not exist counts only if a controller of the machine's domain answers afterwards, since the service finds no name
//! either without one; for names of a trusted domain with a silent controller it counts only for seconds, in which that
//! controller is not asked again, and for names of a domain that the service does not list as well: it may be a trusted one.
//! After silence of the service or the controller, questions pause for [`REST`].
//!
//! *Memory.* [`NAMED_MAX`] names by SID, and as many SIDs by name and by number. Names are at most [`NAME_MAX`] bytes.
//!
//! *Errors.* [`Why::Away`] about a name or SID that is not kept.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use domain_sys::{Context, DomainNames, Error, Kind, Name, Number};
use mutex::locked;
use rdma_transport::parts::{Limit, Parts};
use smbd_core::domain_engine::{Lookup, Named, NamedKind};
use vfs::CallerNumber;
use vfs::acl::Sid;

use super::kept::Kept;
use super::{ANSWER_MAX, About, Asker, DomainService, NAMES_MAX, QUESTIONS_TIME, away};

/// Most questions about names at the same time; one client has half of them.
const QUESTIONS_MAX: usize = 8;
pub(crate) const LIMIT: &str = "domain-names";
pub(crate) const LIMIT_OF_ADDRESS: &str = "domain-names-of-address";
/// Most names, and most SIDs and numbers, that are kept; clients invent them.
const NAMED_MAX: usize = 16_384;
/// Most names, and most SIDs of names, of one renewal: the gateway renews all that it keeps in the time before they are too old.
const RENEWED_MAX: usize = 1024;
/// Bytes of a name or domain. The library cuts longer ones to 255 bytes, and would find another account.
const NAME_MAX: usize = 254;
/// Stands for questions that no client caused.
pub(super) const OWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Answers about names.
pub(super) struct Names {
    asking: Arc<Parts>,
    by_sid: Mutex<Kept<Sid, Arc<Named>>>,
    /// Keys are domain, backslash and name in lower case.
    by_name: Mutex<Kept<String, Arc<Named>>>,
    by_number: Mutex<Kept<(bool, u32), Sid>>,
    /// Trusted domains, in lower case, whose controllers did not answer; all have negative answers.
    silent: Mutex<Kept<String, ()>>,
    /// Questions about owners.
    rest: Rest,
    /// Questions about names.
    rest_of_names: Rest,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            asking: Parts::new([
                Limit::new(LIMIT, QUESTIONS_MAX),
                Limit::new(LIMIT_OF_ADDRESS, QUESTIONS_MAX / 2),
            ]),
            by_sid: Mutex::new(Kept::of_names()),
            by_name: Mutex::new(Kept::of_names()),
            by_number: Mutex::default(),
            silent: Mutex::default(),
            rest: Rest::default(),
            rest_of_names: Rest::default(),
        }
    }
}

/// Pause after a question that was not answered: each file of a listing may ask another.
const REST: Duration = Duration::from_secs(10);

/// A pause until a time.
#[derive(Default)]
struct Rest(Mutex<Option<Instant>>);

impl Rest {
    /// Asks, except in a pause. It begins if the service or a controller of the machine's domain was silent. A question that takes
    /// too long counts only if `is_own`: others wait for domains that any client may name.
    fn ask<T>(&self, is_own: bool, ask: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let is_resting = locked(&self.0).is_some_and(|until| Instant::now() < until);
        if is_resting {
            return Err(Error::NotAvailable);
        }
        let answer = ask();
        let is_silent = match &answer {
            Err(Error::NoController) => true,
            Err(Error::NotAvailable) => is_own,
            _ => false,
        };
        if is_silent {
            *locked(&self.0) = Some(Instant::now() + REST);
        }
        answer
    }
}

/// Returns whether it is a group, and its number.
fn number_key(number: &Number) -> (bool, u32) {
    match number {
        Number::Uid(id) | Number::Both(id) => (false, *id),
        Number::Gid(id) => (true, *id),
    }
}

/// Returns whether an identity of this kind is a user or computer, or a group.
pub(super) fn is_of_kind(kind: NamedKind, is_group: bool) -> bool {
    match kind {
        NamedKind::User | NamedKind::Computer => !is_group,
        NamedKind::Group | NamedKind::Alias => is_group,
        NamedKind::Domain | NamedKind::WellKnown => false,
    }
}

fn key(domain: &str, name: &str) -> String {
    format!("{domain}\\{name}").to_lowercase()
}

fn is_short(text: &str) -> bool {
    text.len() <= NAME_MAX && !text.contains('\0')
}

/// Converts a name, if an account may have it.
fn named(sid: &Sid, name: Name) -> Option<Named> {
    let kind = match name.kind {
        Kind::User => NamedKind::User,
        Kind::Group => NamedKind::Group,
        Kind::Domain => NamedKind::Domain,
        Kind::Alias => NamedKind::Alias,
        Kind::WellKnown => NamedKind::WellKnown,
        Kind::Computer => NamedKind::Computer,
        Kind::Other => return None,
    };
    let is_sound = |text: &str| is_short(text) && !text.contains(char::is_control);
    let is_named = !name.name.is_empty() || kind == NamedKind::Domain;
    (is_named && is_sound(&name.name) && is_sound(&name.domain)).then(|| Named {
        sid: sid.clone(),
        kind,
        domain: name.domain,
        name: name.name,
    })
}

impl DomainService {
    /// Asks about owners on a thread of those for names, except in a pause.
    pub(super) fn ask_owners<T: Send + 'static>(
        self: &Arc<Self>,
        limit: Duration,
        ask: impl FnOnce(&mut Context) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.names.rest.ask(true, || self.ask_names(limit, ask))
    }

    /// Asks on a thread of those for names.
    pub(super) fn ask_names<T: Send + 'static>(
        self: &Arc<Self>,
        limit: Duration,
        ask: impl FnOnce(&mut Context) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let from = iobuf::current_client().unwrap_or(OWN);
        let turn = self.names.asking.take(from).map_err(|limit| {
            rdma_transport::count::limit_met(limit.name);
            Error::Busy
        })?;
        self.call(About::Other, limit, move |context| {
            // The turn ends when the library returns.
            let _turn = turn;
            ask(context)
        })
    }

    /// Returns the names of these SIDs in their order.
    pub(super) fn names_of(self: &Arc<Self>, sids: &[Sid]) -> Vec<Lookup> {
        let missing: Vec<Sid> = {
            let known = locked(&self.names.by_sid);
            sids.iter().filter(|sid| known.fresh(sid).is_none()).cloned().collect()
        };
        let why = self.ask_names_of(missing).err();
        let known = locked(&self.names.by_sid);
        let of = |sid: &Sid| match (known.any(sid), &why) {
            (Some(found), _) => Ok(found.map(|found| Named::clone(&found))),
            (None, Some(error)) => Err(away(error)),
            (None, None) => Ok(None),
        };
        sids.iter().map(of).collect()
    }

    /// Asks for the names of these SIDs, and keeps them.
    fn ask_names_of(self: &Arc<Self>, sids: Vec<Sid>) -> Result<(), Error> {
        if sids.is_empty() {
            return Ok(());
        }
        let (its, until) = (self.clone(), Instant::now() + QUESTIONS_TIME);
        let ask = move |context: &mut Context| {
            let mut none = Vec::new();
            let done = context.names_of(&sids, until, |sid, name| match name {
                Some(name) => its.keep(sid, named(sid, name)),
                None => none.push(sid.clone()),
            });
            let none = none.iter().map(|sid| (its.whose_sid(sid), sid)).collect();
            reach_controllers(context, &its.names.silent, none, until, |sid, is_sure| {
                if is_sure { its.keep(sid, None) } else { its.keep_unsure(sid) }
            })?;
            done
        };
        self.names.rest_of_names.ask(false, || self.ask_names(ANSWER_MAX, ask))
    }

    /// Asks again about names, and about SIDs of names, that are used and will soon be too old.
    pub(super) fn renew_names(self: &Arc<Self>) {
        let now = Instant::now();
        let sids = locked(&self.names.by_sid).due(now, RENEWED_MAX);
        // The next turn repeats a question without an answer.
        let _ = self.ask_names_of(sids);
        let names = locked(&self.names.by_name).due(now, RENEWED_MAX);
        let names = names.iter().filter_map(|key| key.split_once('\\'));
        let names = names.map(|(domain, name)| (domain.to_owned(), name.to_owned())).collect();
        let _ = self.ask_identities_of(names);
    }

    /// Keeps what was answered about a SID. An earlier name stays: it may be of a trusted domain whose controller is silent.
    fn keep(&self, sid: &Sid, found: Option<Named>) {
        let found = found.map(|found| self.spelled(found));
        let mut known = locked(&self.names.by_sid);
        let found = found.map(Arc::new).or_else(|| known.any(sid).flatten());
        known.keep(sid.clone(), found, NAMED_MAX);
    }

    /// Keeps for seconds that a SID has no name; an earlier name stays.
    fn keep_unsure(&self, sid: &Sid) {
        locked(&self.names.by_sid).keep_unsure(sid.clone(), NAMED_MAX);
    }

    /// Returns the domain of a SID.
    pub(super) fn whose_sid(&self, sid: &Sid) -> Whose {
        let state = locked(&self.state);
        let own = state.machine.as_ref().and_then(|(_, identity)| identity.as_ref());
        let of = |domain: &Sid| sid == domain || sid.rid_in(domain).is_some();
        let is_domain = |sid: &Sid| sid.authority() == 5 && sid.subs().first() == Some(&21);
        if !is_domain(sid) || own.is_none_or(|own| of(&own.sid)) {
            return Whose::Own;
        }
        let is_machine = |one: &DomainNames| {
            state
                .machine
                .as_ref()
                .is_some_and(|(own, _)| own.machine.eq_ignore_ascii_case(&one.name))
        };
        match state.domains.iter().flatten().find(|one| of(&one.sid)) {
            Some(one) if is_machine(one) => Whose::Own,
            Some(one) => Whose::trusted(one),
            None => Whose::Unlisted,
        }
    }

    /// Returns the domain of this NetBIOS or DNS name; an empty one is that of the machine.
    fn whose_domain(&self, domain: &str) -> Whose {
        let state = locked(&self.state);
        let is = |one: &str| !one.is_empty() && one.eq_ignore_ascii_case(domain);
        let is_own = state
            .machine
            .as_ref()
            .is_some_and(|(own, _)| is(&own.domain) || is(&own.dns_domain) || is(&own.machine));
        if domain.is_empty() || is_own {
            return Whose::Own;
        }
        match state.domains.iter().flatten().find(|one| is(&one.name) || is(&one.dns)) {
            // The machine's aliases.
            Some(one) if one.sid.subs().first() != Some(&21) => Whose::Own,
            Some(one) => Whose::trusted(one),
            None => Whose::Unlisted,
        }
    }

    /// Returns whether a name may exist, because no controller of its trusted domain answers.
    fn may_exist(&self, domain: &str, name: &str) -> bool {
        let is_unsure = locked(&self.names.by_name).is_unsure(&key(domain, name));
        is_unsure && matches!(self.whose_domain(domain), Whose::Trusted(_))
    }

    /// Returns the identities of these names, each with its domain, in their order.
    pub(super) fn identities_of(self: &Arc<Self>, names: &[(&str, &str)]) -> Vec<Lookup> {
        let missing: Vec<(String, String)> = {
            let known = locked(&self.names.by_name);
            let is_asked = |(domain, name): &&(&str, &str)| {
                is_short(domain) && is_short(name) && known.fresh(&key(domain, name)).is_none()
            };
            let owned = |(domain, name): &(&str, &str)| ((*domain).to_owned(), (*name).to_owned());
            names.iter().filter(is_asked).map(owned).collect()
        };
        let why = self.ask_identities_of(missing).err();
        let of = |(domain, name): &(&str, &str)| {
            let found = locked(&self.names.by_name).any(&key(domain, name));
            match (found, &why) {
                (Some(None), _) if self.may_exist(domain, name) => Err(away(&Error::NoController)),
                (Some(found), _) => Ok(found.map(|found| Named::clone(&found))),
                (None, Some(error)) if is_short(domain) && is_short(name) => Err(away(error)),
                _ => Ok(None),
            }
        };
        names.iter().map(of).collect()
    }

    /// Asks for the identities of these names, each with its domain, and keeps them.
    fn ask_identities_of(self: &Arc<Self>, names: Vec<(String, String)>) -> Result<(), Error> {
        if names.is_empty() {
            return Ok(());
        }
        let own = locked(&self.state).machine.as_ref().map(|(own, _)| own.clone());
        let is_own = |domain: &str| {
            own.as_ref().is_some_and(|own| {
                [&own.domain, &own.dns_domain].iter().any(|one| one.eq_ignore_ascii_case(domain))
            })
        };
        let are_own = names.iter().all(|(domain, _)| !domain.is_empty() && is_own(domain));
        let own = own.map(|own| own.domain).unwrap_or_default();
        let (its, until) = (self.clone(), Instant::now() + QUESTIONS_TIME);
        let ask = move |context: &mut Context| {
            let whose = |domain: &str| its.whose_domain(domain);
            let of = Of { own: &own, whose: &whose, silent: &its.names.silent };
            find_all(context, &of, &names, until, |(domain, name), told| match told {
                Told::Unsure => its.keep_name_unsure(domain, name),
                Told::None => its.keep_name(domain, name, None),
                Told::Some(found) => its.keep_name(domain, name, Some(found)),
            })
        };
        self.names.rest_of_names.ask(are_own, || self.ask_names(ANSWER_MAX, ask))
    }

    /// Gives a domain its NetBIOS name: the service may answer with the DNS name by which a client asked before.
    fn spelled(&self, mut named: Named) -> Named {
        let state = locked(&self.state);
        let own = state.machine.as_ref().and_then(|(_, identity)| identity.as_ref());
        let own = own.map(|own| (&own.sid, &own.name));
        let listed = state.domains.iter().flatten().map(|one| (&one.sid, &one.name));
        let is = |sid: &Sid| named.sid == *sid || named.sid.rid_in(sid).is_some();
        if let Some((_, name)) = own.into_iter().chain(listed).find(|(sid, _)| is(sid)) {
            named.domain.clone_from(name);
        }
        named
    }

    fn keep_name(&self, domain: &str, name: &str, found: Option<Named>) {
        let found = found.map(|found| Arc::new(self.spelled(found)));
        if let Some(found) = &found {
            locked(&self.names.by_sid).keep(found.sid.clone(), Some(found.clone()), NAMED_MAX);
        }
        let mut known = locked(&self.names.by_name);
        known.keep(key(domain, name), found, NAMED_MAX);
    }

    /// Keeps for seconds that a name does not exist; an earlier identity stays.
    fn keep_name_unsure(&self, domain: &str, name: &str) {
        locked(&self.names.by_name).keep_unsure(key(domain, name), NAMED_MAX);
    }

    /// Lets the next question about a name reach the service. Forgets that the name does not exist.
    pub(super) fn age_name(&self, domain: &str, name: &str) {
        locked(&self.names.by_name).age(&key(domain, name));
    }

    /// Returns how many of these names have no answer that is still valid.
    pub(super) fn count_unanswered(&self, names: &[(&str, &str)]) -> usize {
        let known = locked(&self.names.by_name);
        names.iter().filter(|(domain, name)| known.fresh(&key(domain, name)).is_none()).count()
    }

    /// Returns whether a name, and the number of its SID, need no question.
    #[cfg(test)]
    pub(super) fn knows_afresh(&self, (domain, name): (&str, &str), sid: &Sid) -> [bool; 2] {
        let is_known = locked(&self.names.by_name).fresh(&key(domain, name)).is_some();
        [is_known, locked(&self.numbers).fresh(sid).is_some()]
    }

    /// Returns the SIDs of these users and groups in their order, and tells the domain of this gateway.
    pub(super) fn sids_of(self: &Arc<Self>, numbers: &[Number]) -> Vec<Result<Option<Sid>, Error>> {
        let missing: Vec<Number> = {
            let known = locked(&self.names.by_number);
            numbers
                .iter()
                .filter(|number| known.fresh(&number_key(number)).is_none())
                .copied()
                .collect()
        };
        let mut why = None;
        if !missing.is_empty() {
            let asked = missing.clone();
            let until = Instant::now() + QUESTIONS_TIME;
            let answer = self.ask_owners(ANSWER_MAX, move |context| context.sids_of(&asked, until));
            match answer {
                Ok(sids) => {
                    let is_sure = self.source.tells_of_controllers();
                    let mut known = locked(&self.names.by_number);
                    for (number, sid) in missing.iter().zip(sids) {
                        match sid {
                            None if !is_sure => known.keep_unsure(number_key(number), NAMED_MAX),
                            sid => known.keep(number_key(number), sid, NAMED_MAX),
                        }
                    }
                }
                Err(error) => why = Some(error),
            }
        }
        let known = locked(&self.names.by_number);
        let of = |number: &Number| match (known.any(&number_key(number)), &why) {
            (Some(found), _) => Ok(found),
            (None, Some(error)) => Err(error.clone()),
            (None, None) => Ok(None),
        };
        let found: Vec<_> = numbers.iter().map(of).collect();
        drop(known);
        self.tell_owners(numbers, &found);
        found
    }

    /// Keeps an answer about an identity.
    #[cfg(test)]
    pub(super) fn say(&self, (domain, name): (&str, &str), named: Named, number: Number) {
        locked(&self.numbers).keep(named.sid.clone(), Some(number), NAMED_MAX);
        let numbers = match number {
            Number::Both(id) => vec![Number::Uid(id), Number::Gid(id)],
            of_one => vec![of_one],
        };
        for number in numbers {
            let sid = Some(named.sid.clone());
            locked(&self.names.by_number).keep(number_key(&number), sid, NAMED_MAX);
        }
        self.keep_name(domain, name, Some(named));
    }

    /// Keeps an answer about an identity without a number.
    #[cfg(test)]
    pub(super) fn say_unnumbered(&self, (domain, name): (&str, &str), named: Named) {
        locked(&self.numbers).keep(named.sid.clone(), None, NAMED_MAX);
        self.keep_name(domain, name, Some(named));
    }

    /// Keeps negative answers about a name and these numbers.
    #[cfg(test)]
    pub(super) fn say_none(&self, (domain, name): (&str, &str), numbers: &[Number]) {
        self.keep_name(domain, name, None);
        for number in numbers {
            locked(&self.names.by_number).keep(number_key(number), None, NAMED_MAX);
        }
    }

    /// Returns whether answers about all these users and groups are kept.
    pub(super) fn knows_owners(&self, numbers: &[Number]) -> bool {
        let known = locked(&self.names.by_number);
        numbers.iter().all(|number| known.fresh(&number_key(number)).is_some())
    }

    /// Tells the domain of this gateway the numbers of a user and of a group, if the directory has such a user and such a group:
    /// The service may make a number of any SID, which clients invent, and one number for both kinds. Returns whether the service
    /// has answered about both.
    pub(super) fn learn_numbers(self: &Arc<Self>, user: Option<&Sid>, group: Option<&Sid>) -> bool {
        let Some(domain) = locked(&self.state).domain.clone() else { return false };
        let asked: Vec<(bool, Sid)> = [(false, user), (true, group)]
            .into_iter()
            .filter_map(|(is_group, sid)| Some((is_group, sid?.clone())))
            .collect();
        let sids = |of: &[(bool, Sid)]| of.iter().map(|(_, sid)| sid.clone()).collect::<Vec<_>>();
        let named = self.names_of(&sids(&asked));
        let exists = |((is_group, _), found): &((bool, Sid), Lookup)| {
            let kind = found.as_ref().ok().and_then(|found| Some(found.as_ref()?.kind));
            kind.is_some_and(|kind| is_of_kind(kind, *is_group))
        };
        let mut are_answered = asked.iter().zip(&named).all(|((_, sid), found)| match found {
            Ok(None) => !self.is_silent_about(sid),
            found => found.is_ok(),
        });
        let exist: Vec<(bool, Sid)> =
            asked.into_iter().zip(named).filter(exists).map(|(one, _)| one).collect();
        let Ok(numbers) = self.numbers_for(Asker::Owner, &sids(&exist)) else { return false };
        are_answered &= !self.has_open_number(&sids(&exist), &numbers);
        for ((is_group, sid), number) in exist.iter().zip(numbers) {
            match (is_group, number) {
                (false, Some(Number::Uid(uid) | Number::Both(uid))) => domain.know_uid(uid, sid),
                (true, Some(Number::Gid(gid) | Number::Both(gid))) => domain.know_group(gid, sid),
                _ => false,
            };
        }
        are_answered
    }

    /// Returns whether a SID has no name only because controllers are silent, as far as the service says so.
    fn is_silent_about(&self, sid: &Sid) -> bool {
        self.source.tells_of_controllers() && locked(&self.names.by_sid).is_unsure(sid)
    }

    /// Returns whether each of these identities is of the kind of its number: the service may give users and groups each number as
    /// uid and as gid. `None` if the service has not said so, or there is no identity.
    pub(super) fn kinds(
        self: &Arc<Self>,
        numbers: &[Number],
        sids: &[Option<Sid>],
    ) -> Vec<Option<bool>> {
        let asked: Vec<Sid> = sids.iter().flatten().cloned().collect();
        let mut named = self.names_of(&asked).into_iter();
        let kind = |(number, sid): (&Number, &Option<Sid>)| {
            sid.as_ref()?;
            let named = named.next()?.ok()?;
            // A deleted identity has no kind.
            if named.is_none() && self.is_silent_about(sid.as_ref()?) {
                return None;
            }
            let is_group = matches!(number, Number::Gid(_));
            Some(named.is_some_and(|named| is_of_kind(named.kind, is_group)))
        };
        numbers.iter().zip(sids).map(kind).collect()
    }

    fn tell_owners(self: &Arc<Self>, numbers: &[Number], found: &[Result<Option<Sid>, Error>]) {
        let Some(domain) = locked(&self.state).domain.clone() else { return };
        let is_new = |number: &Number, sid: &Sid| {
            // The service of a controller gives users of the host SIDs of their numbers.
            let is_of_domain = sid.authority() == 5 && sid.subs().first() == Some(&21);
            let is_known = match number {
                Number::Uid(uid) => {
                    domain.sid_of_user(*uid).as_ref() == Some(sid) && domain.uid(sid) == Some(*uid)
                }
                Number::Gid(gid) => {
                    domain.sid_of_group(*gid).as_ref() == Some(sid) && domain.gid(sid) == Some(*gid)
                }
                // Whether it is a user's or a group's is not known here.
                Number::Both(_) => true,
            };
            is_of_domain && !is_known
        };
        let new = numbers.iter().zip(found).filter_map(|(number, sid)| {
            let sid = sid.as_ref().ok()?.as_ref()?;
            is_new(number, sid).then(|| (*number, Some(sid.clone())))
        });
        let (numbers, sids): (Vec<Number>, Vec<Option<Sid>>) = new.unzip();
        let kinds = self.kinds(&numbers, &sids);
        for ((number, sid), kind) in numbers.iter().zip(sids.into_iter().flatten()).zip(kinds) {
            match (number, kind) {
                (Number::Uid(uid), Some(true)) => drop(domain.know_uid(*uid, &sid)),
                (Number::Gid(gid), Some(true)) => drop(domain.know_group(*gid, &sid)),
                (Number::Uid(uid), _) => {
                    domain.know_shown(CallerNumber::User(*uid), &sid, kind.is_none());
                }
                (Number::Gid(gid), _) => {
                    domain.know_shown(CallerNumber::Group(*gid), &sid, kind.is_none());
                }
                (Number::Both(_), _) => {}
            }
            if kind.is_none() {
                // The next listing asks again.
                locked(&self.names.by_number).age(&number_key(number));
            }
        }
    }
}

impl Names {
    /// Ends the pauses: the service answers again.
    pub(super) fn end_rests(&self) {
        *locked(&self.rest.0) = None;
        *locked(&self.rest_of_names.0) = None;
    }
}

/// The questions about one name or user.
pub(super) trait Asked {
    fn sids_of_user(&mut self, user: &Sid) -> Result<Option<Vec<Sid>>, Error>;
    fn sid_of(&mut self, domain: &str, name: &str) -> Result<Option<Sid>, Error>;
    fn name_of(&mut self, sid: &Sid) -> Result<Option<Name>, Error>;
    fn reach_controller(&mut self, domain: Option<&str>) -> Result<(), Error>;
}

impl Asked for Context {
    fn sids_of_user(&mut self, user: &Sid) -> Result<Option<Vec<Sid>>, Error> {
        self.sids_of_user(user)
    }

    fn sid_of(&mut self, domain: &str, name: &str) -> Result<Option<Sid>, Error> {
        Ok(self.sid_of(domain, name)?.map(|(sid, _)| sid))
    }

    fn name_of(&mut self, sid: &Sid) -> Result<Option<Name>, Error> {
        self.name_of(sid)
    }

    fn reach_controller(&mut self, domain: Option<&str>) -> Result<(), Error> {
        self.reach_controller(domain)
    }
}

/// The answer about a name.
enum Told {
    Some(Named),
    None,
    /// Not found, while the controller of the domain is silent.
    Unsure,
}

/// The domain of a name or SID.
pub(super) enum Whose {
    /// That of the machine, or one without controllers.
    Own,
    /// A trusted one, by its DNS name if that is known.
    Trusted(String),
    /// One that the service does not list: it may be a trusted one of which no user has logged on.
    Unlisted,
}

impl Whose {
    fn trusted(listed: &DomainNames) -> Self {
        let name = if listed.dns.is_empty() { &listed.name } else { &listed.dns };
        Self::Trusted(name.to_lowercase())
    }
}

/// Hands over the things that were not found, and whether that is sure: a controller of the domain answers. Things of a trusted
/// domain are unsure first, since its controller may hold the question for long: it is not asked after this time, nor while
/// `silent` has its domain. All are unsure where the service tells of no controller.
///
/// # Errors
/// No controller of the machine's domain answers.
fn reach_controllers<T: Copy>(
    asked: &mut impl Asked,
    silent: &Mutex<Kept<String, ()>>,
    none: Vec<(Whose, T)>,
    until: Instant,
    mut tell: impl FnMut(T, bool),
) -> Result<(), Error> {
    if none.is_empty() {
        return Ok(());
    }
    match asked.reach_controller(None) {
        Err(Error::NotTold) => {
            none.into_iter().for_each(|(_, thing)| tell(thing, false));
            return Ok(());
        }
        answer => answer?,
    }
    let mut trusted = HashMap::<String, Vec<T>>::new();
    for (whose, thing) in none {
        tell(thing, matches!(whose, Whose::Own));
        if let Whose::Trusted(domain) = whose {
            trusted.entry(domain).or_default().push(thing);
        }
    }
    for (domain, things) in trusted {
        if Instant::now() >= until {
            break;
        }
        if locked(silent).fresh(&domain).is_some() {
            continue;
        }
        // Other questions do not wait for the same controller.
        locked(silent).keep_unsure(domain.clone(), NAMES_MAX);
        if asked.reach_controller(Some(&domain)).is_ok() {
            locked(silent).age(&domain);
            things.into_iter().for_each(|thing| tell(thing, true));
        }
    }
    Ok(())
}

/// The domains of names.
struct Of<'a> {
    own: &'a str,
    whose: &'a dyn Fn(&str) -> Whose,
    silent: &'a Mutex<Kept<String, ()>>,
}

/// Asks for these names, each with its domain, until this time, and hands over the answers; the last one about a name counts.
fn find_all(
    asked: &mut impl Asked,
    of: &Of<'_>,
    names: &[(String, String)],
    until: Instant,
    mut tell: impl FnMut((&str, &str), Told),
) -> Result<(), Error> {
    let (mut none, mut result) = (Vec::new(), Ok(()));
    for (domain, name) in names {
        if Instant::now() >= until {
            result = Err(Error::Unfinished);
            break;
        }
        match find(asked, (domain, of.own), name) {
            Ok(None) => none.push((&**domain, &**name)),
            Ok(Some(found)) => tell((domain, name), Told::Some(found)),
            Err(Error::NotAvailable) => return Err(Error::NotAvailable),
            Err(error) => result = Err(error),
        }
    }
    // `alice@other.test` without a domain may be of a trusted one.
    let whose = |(domain, name): (&str, &str)| match (domain, name.rsplit_once('@')) {
        ("", Some((_, domain))) | (domain, _) => (of.whose)(domain),
    };
    let none = none.into_iter().map(|name| (whose(name), name)).collect();
    reach_controllers(asked, of.silent, none, until, |name, is_sure| {
        tell(name, if is_sure { Told::None } else { Told::Unsure });
    })?;
    result
}

/// Asks for a name, and for its spelling in the directory. An empty domain means that of the machine. `None` may also mean that no
/// controller answers.
fn find(
    asked: &mut impl Asked,
    (domain, own): (&str, &str),
    name: &str,
) -> Result<Option<Named>, Error> {
    let mut found = match (domain, name.rsplit_once('@')) {
        ("", Some((plain, of))) if !plain.is_empty() => asked.sid_of(of, plain)?,
        _ => None,
    };
    if found.is_none() {
        found = asked.sid_of(if domain.is_empty() { own } else { domain }, name)?;
    }
    let Some(sid) = found else { return Ok(None) };
    // The domain has the name, even if its spelling is not known.
    let name = asked.name_of(&sid)?.and_then(|name| named(&sid, name));
    name.map(Some).ok_or(Error::Unfinished)
}

#[cfg(test)]
mod tests;
