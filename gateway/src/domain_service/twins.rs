//! Users and groups of a domain whose numbers or names this host has as well, for `check`.
//!
//! *Errors.* Only identities that the service tells now are found.

use std::sync::Arc;

use domain_sys::Number;
use mutex::locked;
use smbd_core::domain_engine::{Lookup, Named};
use vfs::acl::Sid;

use super::DomainService;
use super::names::is_of_kind;

/// Most numbers in one question.
const NUMBERS_MAX: usize = 1024;

/// An identity of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Twin {
    pub(crate) sid: Sid,
    /// Its name, if the service tells it.
    pub(crate) named: Option<Named>,
}

impl DomainService {
    /// Returns whether this is a user or group of a domain, and not of the machine.
    fn is_of_domain(&self, sid: &Sid) -> bool {
        let state = locked(&self.state);
        let machine = state.machine.as_ref().map(|(own, _)| own.machine.as_str());
        let of_machine =
            state.domains.iter().flatten().filter(|one| {
                machine.is_some_and(|machine| machine.eq_ignore_ascii_case(&one.name))
            });
        sid.authority() == 5
            && sid.subs().first() == Some(&21)
            && !of_machine.into_iter().any(|one| sid.rid_in(&one.sid).is_some())
    }

    /// Returns the identities of a domain to which the service gives these numbers of users, in their order. Blocks for some
    /// seconds for each [`NUMBERS_MAX`].
    pub(crate) fn owners_of(self: &Arc<Self>, uids: &[u32]) -> Vec<Option<Twin>> {
        let mut owners = Vec::new();
        for some in uids.chunks(NUMBERS_MAX) {
            let numbers: Vec<Number> = some.iter().map(|uid| Number::Uid(*uid)).collect();
            let found = self.sids_of(&numbers).into_iter().map(|sid| sid.ok().flatten());
            let found: Vec<Option<Sid>> =
                found.map(|sid| sid.filter(|sid| self.is_of_domain(sid))).collect();
            let sids: Vec<Sid> = found.iter().flatten().cloned().collect();
            let mut names = self.names_of(&sids).into_iter();
            let mut twin = |sid| {
                let named = names.next().and_then(|named| named.ok().flatten());
                Twin { sid, named }
            };
            owners.extend(found.into_iter().map(|sid| sid.map(&mut twin)));
        }
        owners
    }

    /// Returns the users, or where so marked the groups, that the machine's domain has by these names, with their numbers, in
    /// their order. Blocks for some seconds at most.
    pub(crate) fn of_names(
        self: &Arc<Self>,
        names: &[(bool, &str)],
    ) -> Vec<Option<(Named, Option<Number>)>> {
        let asked: Vec<(&str, &str)> = names.iter().map(|(_, name)| ("", *name)).collect();
        let found = self.resolve(&asked).into_iter().zip(names);
        let is_it = |named: &Named, is_group: bool| {
            is_of_kind(named.kind, is_group) && self.is_of_domain(&named.sid)
        };
        let of = |((found, number), (is_group, _)): ((Lookup, _), &(bool, &str))| {
            let named = found.ok().flatten()?;
            is_it(&named, *is_group).then_some((named, number))
        };
        found.map(of).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use domain_sys::{Details, DomainNames};
    use smbd_core::domain_engine::NamedKind;

    use super::*;

    /// A service that does not answer any more, and what it has said: about alice and `sales` of the domain, and about an account
    /// of the machine. It gave a number to a SID without a name.
    pub(crate) fn lab() -> Arc<DomainService> {
        let service = Arc::<DomainService>::default();
        let domain = |name: &str, sid: &str| DomainNames {
            name: name.into(),
            dns: String::new(),
            sid: sid.parse().unwrap(),
        };
        {
            let mut state = locked(&service.state);
            state.away = Some("silent".into());
            let [machine, domain_name] = ["GW", "LAB"].map(str::to_owned);
            let version = String::new();
            let details =
                Details { machine, domain: domain_name, dns_domain: "lab.test".into(), version };
            state.machine = Some((details, None));
            state.domains =
                Some(vec![domain("GW", "S-1-5-21-9-9-9"), domain("LAB", "S-1-5-21-1-2-3")]);
        }
        for (sid, of, name, kind, number) in [
            ("S-1-5-21-1-2-3-1103", "LAB", "alice", NamedKind::User, Number::Uid(3001)),
            ("S-1-5-21-1-2-3-1200", "LAB", "sales", NamedKind::Group, Number::Both(3002)),
            ("S-1-5-21-1-2-3-1104", "LAB", "same", NamedKind::User, Number::Uid(3003)),
            ("S-1-5-21-9-9-9-1000", "GW", "local", NamedKind::User, Number::Uid(3004)),
            ("S-1-22-1-3005", "Unix User", "host", NamedKind::User, Number::Uid(3005)),
            ("S-1-5-32-545", "BUILTIN", "users", NamedKind::Alias, Number::Gid(3006)),
        ] {
            let sid = sid.parse().unwrap();
            let named = Named { sid, kind, domain: of.into(), name: name.into() };
            service.say(("", name), named, number);
        }
        service.say_none(("", "none"), &[Number::Uid(3100)]);
        service
    }

    #[test]
    fn owners_are_of_domains_only() {
        let uids = [3001, 3002, 3004, 3005, 3100, 3101];
        let told = lab().owners_of(&uids);
        let names = told.iter().map(|twin| Some(twin.as_ref()?.named.as_ref()?.name.as_str()));
        assert_eq!(
            names.collect::<Vec<_>>(),
            [Some("alice"), Some("sales"), None, None, None, None]
        );
        assert_eq!(told[2..], [const { None }; 4]);
    }

    #[test]
    fn names_are_of_one_kind_and_domain() {
        let service = lab();
        let asked = [
            (false, "alice"),
            (true, "alice"),
            (true, "SALES"),
            (false, "sales"),
            (false, "local"),
            (true, "users"),
            (true, "none"),
            (true, "unknown"),
        ];
        let told = service.of_names(&asked);
        let numbers: Vec<_> = told.iter().map(|twin| twin.as_ref()?.1).collect();
        let wanted = [Some(Number::Uid(3001)), None, Some(Number::Both(3002))];
        assert_eq!(numbers, [&wanted[..], &[None; 5]].concat());
        assert!(told[3..].iter().all(Option::is_none));
    }
}
