//! Names of NFS 4 owners (RFC 8881 section 5.9) where `nfs.domain` is the Active Directory domain.
//!
//! *Operation.* `alice@example.org` is the user of the domain, and an account or a user of this host only if the service says that
//! the domain has no such user. While the service or its controller does not answer and has not answered before, users are shown by
//! number and names are not taken: a name of the domain always means the same user.
//!
//! Lists of Windows clients name users and groups of the domain by SID. These are shown by name; a name that comes back means the
//! number, or the SID of an identity for which the service has none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use domain_sys::{Error, Number};
use mutex::locked;
use nfsrdma::v4::{NameOfSid, OwnerNames, Unanswered};
use smbd_core::domain_engine::{Lookup, Named};
use vfs::accounts::Directory;
use vfs::acl::Sid;

use super::names::is_of_kind;
use super::{Asker, DomainService};
use crate::users::UserDb;

/// Time after which no further question for one answer begins: what was answered is kept, and NFS waits a few seconds in all.
const GOES_ON_MAX: Duration = Duration::from_secs(1);

/// The directory of names at NFS.
pub(crate) struct NfsNames {
    users: Arc<UserDb>,
    /// `nfs.domain`.
    domain: String,
}

/// The source of names.
enum Knows {
    Host,
    Domain(Arc<DomainService>),
    /// The domain of this machine is unknown until the service answers.
    Unknown,
}

impl NfsNames {
    pub(crate) fn new(users: Arc<UserDb>, domain: &str) -> Self {
        Self { users, domain: domain.to_owned() }
    }

    fn knows(&self) -> Knows {
        let Some(service) = self.users.service() else { return Knows::Host };
        match service.dns_domain() {
            Some(dns) if dns.eq_ignore_ascii_case(&self.domain) => Knows::Domain(service),
            Some(_) => Knows::Host,
            None => Knows::Unknown,
        }
    }

    fn number(&self, name: &str, is_group: bool) -> Result<Option<u32>, Unanswered> {
        let of_host = || match is_group {
            true => self.users.gid(name),
            false => self.users.uid(name),
        };
        match self.knows() {
            Knows::Host => Ok(of_host()),
            Knows::Unknown => Err(Unanswered),
            Knows::Domain(service) => {
                let found = service.number_named((&self.domain, name), is_group);
                found.map_err(|_| Unanswered).map(|found| found.or_of(of_host))
            }
        }
    }

    fn name(&self, number: Number) -> Result<Option<String>, Unanswered> {
        let of_host = || match number {
            Number::Gid(gid) => self.users.group(gid),
            Number::Uid(uid) | Number::Both(uid) => self.users.user(uid),
        };
        match self.knows() {
            Knows::Host => Ok(of_host()),
            Knows::Unknown => Err(Unanswered),
            Knows::Domain(service) => {
                let found = service.name_numbered(number);
                found.map_err(|_| Unanswered).map(|found| found.or_of(of_host))
            }
        }
    }
}

impl OwnerNames for NfsNames {
    fn uid(&self, name: &str) -> Result<Option<u32>, Unanswered> {
        self.number(name, false)
    }

    fn gid(&self, name: &str) -> Result<Option<u32>, Unanswered> {
        self.number(name, true)
    }

    fn user(&self, uid: u32) -> Result<Option<String>, Unanswered> {
        self.name(Number::Uid(uid))
    }

    fn group(&self, gid: u32) -> Result<Option<String>, Unanswered> {
        self.name(Number::Gid(gid))
    }

    fn names_in_lists(&self, sids: &[Sid]) -> Vec<Result<Option<NameOfSid>, Unanswered>> {
        match self.knows() {
            Knows::Host => vec![Ok(None); sids.len()],
            Knows::Unknown => vec![Err(Unanswered); sids.len()],
            Knows::Domain(service) => service.names_in_lists(&self.domain, sids),
        }
    }

    fn sid(&self, name: &str, is_group: bool) -> Result<Option<Sid>, Unanswered> {
        match self.knows() {
            Knows::Host => Ok(None),
            Knows::Unknown => Err(Unanswered),
            Knows::Domain(service) => {
                let asked = [(self.domain.as_str(), name)];
                let found = service.numbered(&asked, Instant::now()).pop().unwrap_or(Ok(None))?;
                let is_it = |(named, number): &(Named, Option<Number>)| {
                    number.is_none() && is_of_kind(named.kind, is_group)
                };
                Ok(found.filter(is_it).map(|(named, _)| named.sid))
            }
        }
    }
}

/// The identity of a name, and its number.
type Numbered = Result<Option<(Named, Option<Number>)>, Unanswered>;

/// Returns whether users, or groups, may have this number.
fn has_kind(number: Number, is_group: bool) -> bool {
    match number {
        Number::Uid(_) => !is_group,
        Number::Gid(_) => is_group,
        Number::Both(_) => true,
    }
}

/// Returns the number of a user, or of a group: the library finds no SID of one that may be either.
fn as_one_kind(number: Number, is_group: bool) -> Number {
    match number {
        Number::Both(gid) if is_group => Number::Gid(gid),
        Number::Both(uid) => Number::Uid(uid),
        of_one => of_one,
    }
}

/// What the domain says about a name or number.
enum Found<T> {
    Known(T),
    /// The domain has it, but NFS cannot show or take it.
    Hidden,
    /// The domain does not have it.
    Absent,
}

impl<T> Found<T> {
    /// Returns the answer of this host where the domain has none.
    fn or_of(self, host: impl FnOnce() -> Option<T>) -> Option<T> {
        match self {
            Self::Known(found) => Some(found),
            Self::Hidden => None,
            Self::Absent => host(),
        }
    }
}

impl DomainService {
    /// Returns the DNS name of the machine's domain, if it is known.
    fn dns_domain(&self) -> Option<String> {
        let state = locked(&self.state);
        if let Some((own, _)) = &state.machine {
            return Some(own.dns_domain.clone());
        }
        state.domain.as_ref()?.identity().map(|kept| kept.dns.clone())
    }

    /// Returns the number of a user or group of this name.
    fn number_named(
        self: &Arc<Self>,
        name: (&str, &str),
        is_group: bool,
    ) -> Result<Found<u32>, Error> {
        let found = self.identities_of(&[name]).pop().unwrap_or(Ok(None));
        let Some(named) = found.map_err(|_| Error::NotAvailable)? else {
            return Ok(Found::Absent);
        };
        // The name service of this host may show a group as a user.
        if !is_of_kind(named.kind, is_group) {
            return Ok(Found::Hidden);
        }
        let number = self.numbers_for(Asker::Owner, &[named.sid])?.pop().flatten();
        Ok(match number.filter(|number| has_kind(*number, is_group)) {
            Some(Number::Uid(number) | Number::Gid(number) | Number::Both(number)) => {
                Found::Known(number)
            }
            None => Found::Hidden,
        })
    }

    /// Returns the identities of these names with their numbers, in their order. `began`: when the first question for this answer
    /// began.
    fn numbered(self: &Arc<Self>, names: &[(&str, &str)], began: Instant) -> Vec<Numbered> {
        if began.elapsed() > GOES_ON_MAX {
            return vec![Err(Unanswered); names.len()];
        }
        let found: Vec<Lookup> = self.identities_of(names);
        if began.elapsed() > GOES_ON_MAX {
            return vec![Err(Unanswered); names.len()];
        }
        let sids: Vec<Sid> = found.iter().flatten().flatten().map(|one| one.sid.clone()).collect();
        let numbers: Vec<Result<Option<Number>, Unanswered>> =
            match self.numbers_for(Asker::Owner, &sids) {
                Ok(numbers) => numbers.into_iter().map(Ok).collect(),
                Err(_) => vec![Err(Unanswered); sids.len()],
            };
        let mut numbers = numbers.into_iter();
        let of = |found: Lookup| {
            let Some(named) = found.map_err(|_| Unanswered)? else { return Ok(None) };
            let number = numbers.next().unwrap_or(Err(Unanswered))?;
            let kept = locked(&self.numbers);
            // Where the controller is silent, a number may exist. SSSD never tells that.
            let is_none = kept.is_surely_none(&named.sid)
                || !self.source.tells_of_controllers() && kept.is_unsure(&named.sid);
            if number.is_none() && !is_none {
                return Err(Unanswered);
            }
            Ok(Some((named, number)))
        };
        found.into_iter().map(of).collect()
    }

    /// Returns the names of these SIDs in their order: of users and groups of the machine's domain. The name in `domain`, or the
    /// number that it means, leads back to the SID.
    fn names_in_lists(
        self: &Arc<Self>,
        domain: &str,
        sids: &[Sid],
    ) -> Vec<Result<Option<NameOfSid>, Unanswered>> {
        let own = locked(&self.state).domain.as_ref().and_then(|domain| domain.sid().cloned());
        let Some(own) = own else { return vec![Err(Unanswered); sids.len()] };
        // Clients would take a user of a trusted domain for one of this domain.
        let asked: Vec<Sid> =
            sids.iter().filter(|sid| sid.rid_in(&own).is_some()).cloned().collect();
        let began = Instant::now();
        let names = self.names_of(&asked);
        let texts: Vec<(&str, &str)> =
            names.iter().flatten().flatten().map(|named| (domain, named.name.as_str())).collect();
        let meant = self.numbered(&texts, began);
        let number_of = |(named, number): &(Named, Option<Number>)| {
            number.map(|number| as_one_kind(number, is_of_kind(named.kind, true)))
        };
        let numbers: Vec<Number> = meant.iter().flatten().flatten().filter_map(number_of).collect();
        let sids_of_numbers = match began.elapsed() > GOES_ON_MAX {
            true => vec![Err(Error::NotAvailable); numbers.len()],
            false => self.sids_of(&numbers),
        };
        let (mut meant, mut sids_of_numbers) = (meant.into_iter(), sids_of_numbers.into_iter());
        let mut of = |(sid, found): (&Sid, &Lookup)| {
            let Some(named) = found.as_ref().map_err(|_| Unanswered)? else { return Ok(None) };
            let Some((back, number)) = meant.next().unwrap_or(Err(Unanswered))? else {
                return Ok(None);
            };
            // Written back, the name becomes the number, which SMB clients see as its SID.
            let sid_back = match number {
                None => Some(back.sid),
                Some(_) => {
                    let found = sids_of_numbers.next().unwrap_or(Err(Error::NotAvailable));
                    found.map_err(|_| Unanswered)?.filter(|_| back.sid == *sid)
                }
            };
            if sid_back.as_ref() != Some(sid) {
                return Ok(None);
            }
            let is_of = |is_group: &bool| {
                is_of_kind(back.kind, *is_group)
                    && number.is_none_or(|number| has_kind(number, *is_group))
            };
            let is_group = [false, true].into_iter().find(is_of);
            Ok(is_group.map(|is_group| NameOfSid { name: named.name.clone(), is_group }))
        };
        let mut told = asked.iter().zip(&names).map(&mut of).collect::<Vec<_>>().into_iter();
        let of = |sid: &Sid| match sid.rid_in(&own) {
            Some(_) => told.next().unwrap_or(Err(Unanswered)),
            None => Ok(None),
        };
        sids.iter().map(of).collect()
    }

    /// Returns the name of a user or group of the machine's domain.
    fn name_numbered(self: &Arc<Self>, number: Number) -> Result<Found<String>, Error> {
        let sid = self.sids_of(&[number]).pop().unwrap_or(Ok(None))?;
        let is_of_domain =
            |sid: &vfs::acl::Sid| sid.authority() == 5 && sid.subs().first() == Some(&21);
        let Some(sid) = sid.filter(is_of_domain) else { return Ok(Found::Absent) };
        let own = locked(&self.state).domain.clone();
        let own = own.as_ref().and_then(|domain| domain.sid()).ok_or(Error::NotAvailable)?;
        // Clients would take a user of a trusted domain for one of this domain.
        if sid.rid_in(own).is_none() {
            return Ok(Found::Hidden);
        }
        let named = self.names_of(&[sid]).pop().unwrap_or(Ok(None));
        let named = named.map_err(|_| Error::NotAvailable)?;
        Ok(named.map_or(Found::Hidden, |named| Found::Known(named.name)))
    }
}

#[cfg(test)]
mod tests {
    use config::{Names, Settings};
    use domain_sys::Details;
    use smbd_core::domain_engine::NamedKind;
    use vfs::{Domain, DomainIdentity};

    use super::*;

    /// A service that does not answer any more, and what it has said about alice, a group `sales` and a user `root`.
    fn known() -> Arc<DomainService> {
        let service = Arc::<DomainService>::default();
        let of: Sid = "S-1-5-21-1-2-3".parse().unwrap();
        let domain = Domain::by_service();
        domain.know(DomainIdentity { sid: of.clone(), name: "LAB".into(), dns: "lab.test".into() });
        {
            let mut state = locked(&service.state);
            state.away = Some("silent".into());
            state.domain = Some(domain);
            let details = Details {
                machine: "GW".into(),
                domain: "LAB".into(),
                dns_domain: "lab.test".into(),
                version: String::new(),
            };
            state.machine = Some((details, None));
        }
        for (rid, name, kind, number) in [
            (1103, "alice", NamedKind::User, Number::Uid(3001)),
            (1200, "sales", NamedKind::Group, Number::Gid(3002)),
            (1104, "root", NamedKind::User, Number::Both(3003)),
        ] {
            let sid = of.child(rid).unwrap();
            let named = Named { sid: sid.clone(), kind, domain: "LAB".into(), name: name.into() };
            service.say(("lab.test", name), named, number);
        }
        service.say_none(("lab.test", "daemon"), &[Number::Uid(1), Number::Gid(0)]);
        service
    }

    #[test]
    fn identities_in_lists_have_names() {
        let settings = Settings { names: Names::Host, ..Settings::default() };
        let users = Arc::new(UserDb::open(&settings, None).unwrap());
        let service = known();
        let of: Sid = "S-1-5-21-1-2-3".parse().unwrap();
        let sid = |rid| of.child(rid).unwrap();
        let identity = |rid, name: &str, kind| Named {
            sid: sid(rid),
            kind,
            domain: "LAB".into(),
            name: name.into(),
        };
        for (rid, name, kind) in [
            (1300, "writers", NamedKind::Group),
            (1301, "carol", NamedKind::User),
            (1302, "admins", NamedKind::WellKnown),
            // Another account has got the name.
            (1303, "moved", NamedKind::Group),
            (1304, "moved", NamedKind::Group),
        ] {
            service.say_unnumbered(("lab.test", name), identity(rid, name, kind));
        }
        // `shared` has the number of alice, which means her.
        let users_with_number = [
            (1305, "shared", Number::Uid(3001)),
            (1306, "odd", Number::Gid(3009)),
            (1307, "dana", Number::Both(3010)),
            (1103, "alice", Number::Uid(3001)),
        ];
        for (rid, name, number) in users_with_number {
            service.say(("lab.test", name), identity(rid, name, NamedKind::User), number);
        }
        // `idmap_rid` gives numbers that are of users and of groups.
        let team = identity(1308, "team", NamedKind::Group);
        service.say(("lab.test", "team"), team, Number::Both(3011));
        let other: Sid = "S-1-5-21-9-9-9-1300".parse().unwrap();
        users.set_service(service.clone());
        let lab = NfsNames::new(users.clone(), "lab.test");
        let one = |name: &str, is_group| Ok(Some(NameOfSid { name: name.into(), is_group }));
        let (asked, wanted): (Vec<_>, Vec<_>) = [
            (sid(1300), one("writers", true)),
            (other, Ok(None)),
            (sid(1301), one("carol", false)),
            (sid(1302), Ok(None)),
            (sid(1303), Ok(None)),
            (sid(1200), one("sales", true)),
            (sid(1103), one("alice", false)),
            (sid(1305), Ok(None)),
            (sid(1306), Ok(None)),
            (sid(1307), one("dana", false)),
            (sid(1308), one("team", true)),
            // The service is silent about this one.
            (sid(1999), Err(Unanswered)),
        ]
        .into_iter()
        .unzip();
        assert_eq!(lab.names_in_lists(&asked), wanted);
        for (name, is_group, wanted) in [
            ("writers", true, Ok(Some(sid(1300)))),
            ("WRITERS", true, Ok(Some(sid(1300)))),
            ("writers", false, Ok(None)),
            ("carol", false, Ok(Some(sid(1301)))),
            ("moved", true, Ok(Some(sid(1304)))),
            ("sales", true, Ok(None)),
            ("daemon", true, Ok(None)),
            ("bin", true, Err(Unanswered)),
        ] {
            assert_eq!(lab.sid(name, is_group), wanted, "{name}");
        }
        assert_eq!(lab.gid("writers"), Ok(None), "it has no number");
        locked(&service.numbers).keep_unsure(sid(1301), crate::domain_service::NUMBERS_MAX);
        assert_eq!(lab.sid("carol", false), Err(Unanswered), "it may have a number");
        let elsewhere = NfsNames::new(users.clone(), "other.test");
        assert_eq!(elsewhere.names_in_lists(&[sid(1300)]), [Ok(None)]);
        assert_eq!(elsewhere.sid("writers", true), Ok(None));
        users.set_service(Arc::default());
        assert_eq!(lab.names_in_lists(&[sid(1300)]), [Err(Unanswered)]);
    }

    #[test]
    fn names_of_domain_come_before_those_of_host() {
        let settings = Settings { names: Names::Host, ..Settings::default() };
        let users = Arc::new(UserDb::open(&settings, None).unwrap());
        let names = |domain: &str| NfsNames::new(users.clone(), domain);
        assert_eq!(
            (names("lab.test").uid("root"), names("x").user(0)),
            (Ok(Some(0)), Ok(Some("root".into())))
        );
        users.set_service(known());
        let lab = names("LAB.test");
        for (name, uid, gid) in [
            ("alice", Ok(Some(3001)), Ok(None)),
            ("sales", Ok(None), Ok(Some(3002))),
            // The user of the domain, and no group of this host.
            ("root", Ok(Some(3003)), Ok(None)),
            // The service has said that it knows no such user.
            ("daemon", Ok(Some(1)), Ok(Some(1))),
            // The service is silent about this one.
            ("bin", Err(Unanswered), Err(Unanswered)),
        ] {
            assert_eq!((lab.uid(name), lab.gid(name)), (uid, gid), "{name}");
        }
        let shown = [3001, 3003, 1, 7].map(|uid| lab.user(uid));
        assert_eq!(
            shown,
            [Ok("alice"), Ok("root"), Ok("daemon"), Err(Unanswered)]
                .map(|name| name.map(|name| Some(name.to_owned())))
        );
        assert_eq!(
            (lab.group(3002), lab.group(0)),
            (Ok(Some("sales".into())), Ok(Some("root".into())))
        );
        // Another NFS domain has the names of this host.
        assert_eq!(
            (names("other.test").uid("root"), names("other.test").uid("alice")),
            (Ok(Some(0)), Ok(None))
        );
        // Before the first answer it is not known which domain it is.
        users.set_service(Arc::default());
        assert_eq!((lab.uid("root"), lab.user(0)), (Err(Unanswered), Err(Unanswered)));
    }
}
