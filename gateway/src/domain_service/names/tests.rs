//! Names, SIDs and numbers without a service.

use std::collections::BTreeMap;

use vfs::{ANONYMOUS, Domain};

use super::*;

fn named_as(rid: u32, domain: &str, name: &str) -> Named {
    let sid = Sid::new(5, &[21, 1, 2, 3, rid]).unwrap();
    Named { sid, kind: NamedKind::User, domain: domain.into(), name: name.into() }
}

fn silent() -> Arc<DomainService> {
    let service = Arc::<DomainService>::default();
    locked(&service.state).away = Some("silent".into());
    service
}

#[test]
fn names_stay_while_service_is_silent() {
    let service = silent();
    let alice = named_as(1103, "LAB", "alice");
    service.keep_name("lab.test", "ALICE", Some(alice.clone()));
    service.keep_name("LAB", "nobody", None);
    let asked = [("LAB.TEST", "alice"), ("LAB", "nobody"), ("LAB", "bob")];
    let [one, none, unknown] = &service.identities_of(&asked)[..] else { panic!("not three") };
    assert_eq!((one, none), (&Ok(Some(alice.clone())), &Ok(None)));
    assert_eq!(unknown.as_ref().unwrap_err().detail, "the service of the domain does not answer");
    let bob = named_as(1104, "LAB", "bob").sid;
    let told = service.names_of(&[alice.sid.clone(), bob]);
    assert_eq!(told[0], Ok(Some(alice.clone())), "the SID of a name has this name");
    assert!(told[1].is_err());
    // A controller that is away is no reason to forget.
    service.keep(&alice.sid, None);
    assert_eq!(service.names_of(std::slice::from_ref(&alice.sid)), [Ok(Some(alice))]);
    service.age_name("LAB", "nobody");
    assert!(service.identities_of(&[("LAB", "nobody")])[0].is_err(), "it is asked about again");
}

#[test]
fn names_that_no_account_has_are_left_out() {
    let service = silent();
    let long = "x".repeat(NAME_MAX + 1);
    assert_eq!(service.identities_of(&[("LAB", &long), ("LAB", "a\0b")]), [Ok(None), Ok(None)]);
    let of = |name: &str, kind| {
        let name = Name { domain: "LAB".into(), name: name.into(), kind };
        named(&named_as(1, "", "").sid, name)
    };
    assert!(of("alice", Kind::User).is_some() && of("", Kind::Domain).is_some());
    for (name, kind) in [
        (&*long, Kind::User),
        ("", Kind::User),
        ("two\nlines", Kind::Group),
        ("deleted", Kind::Other),
    ] {
        assert!(of(name, kind).is_none(), "{name:?}");
    }
}

#[test]
fn domains_have_their_short_names() {
    let service = silent();
    let sid = Sid::new(5, &[21, 1, 2, 3]).unwrap();
    let lab = domain_sys::DomainNames { name: "LAB".into(), dns: "lab.test".into(), sid };
    locked(&service.state).domains = Some(vec![lab]);
    service.keep_name("lab.test", "bob", Some(named_as(1104, "LAB.TEST", "bob")));
    let told = service.identities_of(&[("lab.test", "bob")]);
    assert_eq!(told, [Ok(Some(named_as(1104, "LAB", "bob")))]);
}

#[test]
fn owners_become_known_to_the_domain() {
    let service = silent();
    let domain = Domain::by_service();
    locked(&service.state).domain = Some(domain.clone());
    let (alice, group) = (named_as(1103, "", "").sid, named_as(1200, "", "").sid);
    let asked = [Number::Uid(3001), Number::Gid(3001), Number::Uid(7), Number::Uid(8)];
    assert!(!service.knows_owners(&asked));
    for (number, sid) in
        asked.iter().zip([Some(alice.clone()), Some(group.clone()), Some(Sid::unix_user(7)), None])
    {
        locked(&service.names.by_number).keep(number_key(number), sid, NAMED_MAX);
    }
    assert!(service.knows_owners(&asked) && !service.knows_owners(&[Number::Gid(7)]));
    // NFS asks in this way.
    service.sids_of(&asked);
    // The service has not said of which kinds they are, and will be asked again.
    assert_eq!(domain.sid_of_user(3001), Some(alice.clone()));
    assert_eq!((domain.uid(&alice), domain.gid(&group)), (None, None));
    let of_alice = CallerNumber::User(3001);
    assert_eq!(
        (domain.is_settled(of_alice), domain.unanswered([of_alice])),
        (false, vec![of_alice])
    );
    assert!(!service.knows_owners(&asked[..1]) && !service.knows_owners(&asked[1..2]));
    service.names.end_rests();
    service.keep(&alice, Some(named_as(1103, "LAB", "alice")));
    let sales = Named { kind: NamedKind::Group, ..named_as(1200, "LAB", "sales") };
    service.keep(&group, Some(sales));
    service.sids_of(&asked);
    assert_eq!(domain.sid_of_user(3001), Some(alice.clone()));
    assert_eq!(domain.sid_of_group(3001), Some(group.clone()));
    assert_eq!((domain.gid(&group), domain.is_settled(of_alice)), (Some(3001), true));
    assert_eq!((domain.sid_of_user(7), domain.sid_of_user(8)), (None, None));
    assert_eq!(domain.uid(&alice), Some(3001));
    // Other owners are not asked about at once after silence.
    assert_eq!(service.sids_of(&[Number::Uid(9)]), [Err(Error::NotAvailable)]);
    assert!(locked(&service.names.rest.0).is_some_and(|until| until > Instant::now()));
    service.names.end_rests();
    assert!(locked(&service.names.rest.0).is_none());
}

/// Where each number is that of a user and of a group, the kind of the SID decides who may be an owner.
#[test]
fn new_owners_become_known_to_the_domain() {
    let service = silent();
    let domain = Domain::by_service();
    locked(&service.state).domain = Some(domain.clone());
    let alice = named_as(1103, "LAB", "alice");
    let sales = Named { kind: NamedKind::Group, ..named_as(1200, "LAB", "sales") };
    service.say(("LAB", "alice"), alice.clone(), Number::Both(3001));
    service.say(("LAB", "sales"), sales.clone(), Number::Both(3002));
    service.learn_numbers(Some(&sales.sid), Some(&alice.sid));
    assert_eq!((domain.uid(&sales.sid), domain.gid(&alice.sid)), (None, None));
    service.learn_numbers(Some(&alice.sid), Some(&sales.sid));
    assert_eq!((domain.uid(&alice.sid), domain.gid(&sales.sid)), (Some(3001), Some(3002)));
    // The number of this one is unknown.
    let bob = named_as(1104, "LAB", "bob").sid;
    service.learn_numbers(Some(&bob), None);
    assert_eq!(domain.uid(&bob), None);
    // The directory does not have this one, although the service makes a number of its RID.
    let invented = named_as(9999, "LAB", "").sid;
    service.keep(&invented, None);
    locked(&service.numbers).keep(invented.clone(), Some(Number::Both(9999)), NAMED_MAX);
    service.learn_numbers(Some(&invented), Some(&invented));
    assert_eq!((domain.uid(&invented), domain.gid(&invented)), (None, None));
    // The number of anonymous callers is that of no other.
    let carol = named_as(1105, "LAB", "carol");
    let staff = Named { kind: NamedKind::Group, ..named_as(1201, "LAB", "staff") };
    service.say(("LAB", "carol"), carol.clone(), Number::Uid(ANONYMOUS));
    service.say(("LAB", "staff"), staff.clone(), Number::Gid(ANONYMOUS));
    service.learn_numbers(Some(&carol.sid), Some(&staff.sid));
    assert_eq!((domain.uid(&carol.sid), domain.gid(&staff.sid)), (None, None));
}

/// Owners that clients set take no place of logons.
#[test]
fn numbers_of_owners_are_asked_in_places_for_names() {
    let service = Arc::<DomainService>::default();
    let at = [192, 0, 2, 1].into();
    let _held: Vec<_> =
        (0..QUESTIONS_MAX).map_while(|_| service.names.asking.take(at).ok()).collect();
    let _client = iobuf::ClientWork::begin(at);
    let alice = named_as(1103, "LAB", "alice").sid;
    assert_eq!(service.numbers_for(Asker::Owner, &[alice]), Err(Error::Busy));
}

#[test]
fn client_leaves_questions_to_others() {
    let service = Arc::<DomainService>::default();
    let take = |n: u8| service.names.asking.take([192, 0, 2, n].into());
    let held: Vec<_> = (0..QUESTIONS_MAX).map_while(|_| take(1).ok()).collect();
    assert_eq!(held.len(), QUESTIONS_MAX / 2);
    let _client = iobuf::ClientWork::begin([192, 0, 2, 1].into());
    let asked =
        service.ask_names(ANSWER_MAX, |_| -> Result<(), Error> { panic!("it has its part") });
    assert_eq!(asked, Err(Error::Busy));
    assert_eq!(service.sids_of(&[Number::Uid(9)]), [Err(Error::Busy)]);
    assert!(service.identities_of(&[("LAB", "bob")])[0].is_err());
    let rests = [&service.names.rest, &service.names.rest_of_names];
    assert!(rests.iter().all(|rest| locked(&rest.0).is_none()), "others may ask");
    assert!(take(2).is_ok());
}

/// A directory whose controller may be silent.
struct Lab {
    is_silent: bool,
    has_names: bool,
    pings: usize,
    tells_of_controllers: bool,
}

fn lab(is_silent: bool, has_names: bool) -> Lab {
    Lab { is_silent, has_names, pings: 0, tells_of_controllers: true }
}

impl Asked for Lab {
    fn sids_of_user(&mut self, _: &Sid) -> Result<Option<Vec<Sid>>, Error> {
        panic!("no user is asked about")
    }

    fn sid_of(&mut self, _: &str, name: &str) -> Result<Option<Sid>, Error> {
        Ok((!self.is_silent && name == "alice").then(|| named_as(1103, "", "").sid))
    }

    fn name_of(&mut self, _: &Sid) -> Result<Option<Name>, Error> {
        let alice = Name { domain: "LAB".into(), name: "alice".into(), kind: Kind::User };
        Ok(self.has_names.then_some(alice))
    }

    fn reach_controller(&mut self, domain: Option<&str>) -> Result<(), Error> {
        self.pings += 1;
        if !self.tells_of_controllers {
            return Err(Error::NotTold);
        }
        let is_silent = domain.map_or(self.is_silent, |domain| domain == "silent");
        if is_silent { Err(Error::NoController) } else { Ok(()) }
    }
}

#[test]
fn silent_controller_denies_no_name() {
    let names = ["alice", "bob", "carol"].map(|name| ("LAB".to_owned(), name.to_owned()));
    let ask = |is_silent, has_names, time| {
        let (mut lab, mut told) = (lab(is_silent, has_names), Vec::new());
        let until = Instant::now() + Duration::from_secs(time);
        let tell = |(_, name): (&str, &str), answer: Told| {
            assert!(!matches!(answer, Told::Unsure), "{name} is of the machine's domain");
            told.push((name.to_owned(), matches!(answer, Told::Some(_))));
        };
        let of = Of { own: "LAB", whose: &|_| Whose::Own, silent: &Mutex::default() };
        (find_all(&mut lab, &of, &names, until, tell), told)
    };
    let of = |name: &str, is_found| (name.to_owned(), is_found);
    let (alice, others) = (of("alice", true), [of("bob", false), of("carol", false)]);
    assert_eq!(ask(true, true, 60), (Err(Error::NoController), vec![]), "nothing is kept");
    // Silent between two questions.
    assert_eq!(ask(false, false, 60), (Err(Error::Unfinished), others.to_vec()));
    assert_eq!(ask(false, true, 60), (Ok(()), [&[alice][..], &others].concat()));
    assert_eq!(ask(false, true, 0), (Err(Error::Unfinished), vec![]));
}

/// That a name does not exist is sure where a controller of its domain answers.
#[test]
fn silent_controller_of_trusted_domain_leaves_names_unsure() {
    let whose = |domain: &str| match domain {
        "SILENT" | "OTHER" => Whose::Trusted(domain.to_lowercase()),
        "NONE" => Whose::Unlisted,
        _ => Whose::Own,
    };
    let names =
        [("SILENT", "bob"), ("OTHER", "bob"), ("NONE", "bob"), ("LAB", "bob"), ("", "bob@SILENT")];
    let names = names.map(|(domain, name)| (domain.to_owned(), name.to_owned()));
    let (silent, until) = (Mutex::default(), Instant::now() + Duration::from_secs(60));
    let ask = |lab: &mut Lab| {
        let mut told = BTreeMap::new();
        let tell = |(domain, _): (&str, &str), answer: Told| {
            told.insert(domain.to_owned(), matches!(answer, Told::Unsure));
        };
        let of = Of { own: "LAB", whose: &whose, silent: &silent };
        assert_eq!(find_all(lab, &of, &names, until, tell), Ok(()));
        told
    };
    let wanted = [("SILENT", true), ("OTHER", false), ("NONE", true), ("LAB", false), ("", true)];
    let wanted: BTreeMap<_, _> = wanted.map(|(name, is)| (name.to_owned(), is)).into();
    let mut lab = self::lab(false, true);
    assert_eq!((ask(&mut lab), lab.pings), (wanted.clone(), 3));
    // The silent controller is left alone for seconds.
    assert_eq!((ask(&mut lab), lab.pings), (wanted.clone(), 5));
    // SSSD tells of no controller.
    let mut lab = Lab { tells_of_controllers: false, ..self::lab(false, true) };
    let wanted = wanted.into_keys().map(|name| (name, true)).collect();
    assert_eq!((ask(&mut lab), lab.pings), (wanted, 1));
    // An earlier name stays.
    let service = Arc::<DomainService>::default();
    let alice = named_as(1103, "LAB", "alice");
    service.keep(&alice.sid, Some(alice.clone()));
    service.keep_unsure(&alice.sid);
    assert_eq!(service.names_of(std::slice::from_ref(&alice.sid)), [Ok(Some(alice.clone()))]);
    service.keep_name("LAB", "alice", Some(alice.clone()));
    service.keep_name_unsure("LAB", "alice");
    assert_eq!(service.identities_of(&[("LAB", "alice")]), [Ok(Some(alice))]);
}

/// Only SIDs and names of trusted domains need their controllers.
#[test]
fn trusted_domains_are_told_apart() {
    let service = silent();
    let listed = |name: &str, sid: &str| domain_sys::DomainNames {
        name: name.into(),
        dns: format!("{}.test", name.to_lowercase()),
        sid: sid.parse().unwrap(),
    };
    let details = domain_sys::Details {
        machine: "GW".into(),
        domain: "LAB".into(),
        dns_domain: "lab.test".into(),
        version: String::new(),
    };
    let (sid, name, dns) = ("S-1-5-21-1-2-3".parse().unwrap(), "LAB".into(), "lab.test".into());
    let own = vfs::DomainIdentity { sid, name, dns };
    {
        let mut state = locked(&service.state);
        state.machine = Some((details, Some(own)));
        state.domains = Some(vec![
            listed("BUILTIN", "S-1-5-32"),
            listed("LAB", "S-1-5-21-1-2-3"),
            listed("GW", "S-1-5-21-9-9-9"),
            listed("OTHER", "S-1-5-21-4-5-6"),
        ]);
    }
    let told = |whose: Whose| match whose {
        Whose::Own => "own".to_owned(),
        Whose::Trusted(domain) => domain,
        Whose::Unlisted => "unlisted".to_owned(),
    };
    for (sid, wanted) in [
        ("S-1-5-21-4-5-6-1103", "other.test"),
        ("S-1-5-21-4-5-6", "other.test"),
        ("S-1-5-21-1-2-3-1103", "own"),
        ("S-1-5-21-9-9-9-1103", "own"),
        ("S-1-5-21-7-8-9-1103", "unlisted"),
        ("S-1-5-32-544", "own"),
    ] {
        assert_eq!(told(service.whose_sid(&sid.parse().unwrap())), wanted, "{sid}");
    }
    for (name, wanted) in [
        ("OTHER", "other.test"),
        ("other.TEST", "other.test"),
        ("LAB", "own"),
        ("lab.test", "own"),
        ("gw", "own"),
        ("BUILTIN", "own"),
        ("", "own"),
        ("NONE", "unlisted"),
    ] {
        assert_eq!(told(service.whose_domain(name)), wanted, "{name}");
    }
    // Only a silent controller of a trusted domain makes an answer unknown.
    let asked = [("OTHER", "bob"), ("NONE", "bob")];
    asked.iter().for_each(|(domain, name)| service.keep_name_unsure(domain, name));
    let found = service.identities_of(&asked);
    assert!(found[0].is_err() && found[1] == Ok(None), "{found:?}");
}

#[test]
fn pause_follows_silence_only() {
    for (is_own, error, pauses) in [
        (true, Error::NotAvailable, true),
        (false, Error::NotAvailable, false),
        (false, Error::NoController, true),
        (true, Error::Busy, false),
        (true, Error::Unfinished, false),
    ] {
        let rest = Rest::default();
        assert_eq!(rest.ask(is_own, || Err::<(), _>(error.clone())), Err(error.clone()));
        let next = rest.ask(is_own, || Ok(7));
        assert_eq!(next.is_err(), pauses, "{error:?}");
    }
}
