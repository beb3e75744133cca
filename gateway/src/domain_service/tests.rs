use smbd_core::domain_engine::{Named, NamedKind};

use super::*;

/// MS-ERREF section 2.3.1.
#[test]
fn status_of_controller_is_told_apart() {
    for (status, wanted) in [
        (0xc000_006a, Why::WrongPassword),
        (0xc000_0064, Why::WrongPassword),
        // STATUS_ACCOUNT_DISABLED, STATUS_ACCOUNT_LOCKED_OUT, STATUS_PASSWORD_EXPIRED
        (0xc000_0072, Why::Account),
        (0xc000_0234, Why::Account),
        (0xc000_0071, Why::Account),
        // STATUS_NO_LOGON_SERVERS
        (0xc000_005e, Why::Away),
    ] {
        assert_eq!(why(status), wanted, "{status:#x}");
    }
}

#[test]
fn own_names_are_those_of_the_account() {
    let of = OfHost(Arc::default());
    assert!(of.machine().is_none());
    assert_eq!(of.knows_domain("LAB"), None, "before the first answer");
    let details = Details {
        machine: "GW".into(),
        domain: "LAB".into(),
        dns_domain: "lab.test".into(),
        version: String::new(),
    };
    locked(&of.0.state).machine = Some((details, None));
    let identity = of.machine().unwrap();
    assert_eq!((&*identity.computer, &*identity.domain), ("GW", "LAB"));
    assert_eq!((&*identity.dns_computer, &*identity.dns_domain), ("gw.lab.test", "lab.test"));
    let knows = |name: &str| of.knows_domain(name);
    assert_eq!([knows("lab"), knows("LAB.TEST"), knows("OTHER")], [Some(true), Some(true), None]);
    let listed = |name: &str, sid: &str| DomainNames {
        name: name.into(),
        dns: format!("{}.test", name.to_lowercase()),
        sid: sid.parse().unwrap(),
    };
    locked(&of.0.state).domains = Some(vec![
        listed("BUILTIN", "S-1-5-32"),
        listed("GW", "S-1-5-21-9-9-9"),
        listed("OTHER", "S-1-5-21-4-5-6"),
    ]);
    let told = ["OTHER", "other.test", "BUILTIN", "GW", "WORKGROUP"].map(knows);
    assert_eq!(told, [true, true, false, false, false].map(Some));
    // The list stays valid during silence.
    locked(&of.0.state).away = Some("silent".into());
    assert_eq!([knows("OTHER"), knows("WORKGROUP")], [Some(true), Some(false)]);
    assert_eq!(of.is_domain("WORKGROUP"), Ok(false));
}

fn sssd() -> Arc<DomainService> {
    let member = Member { machine: "GW".into(), domain: "lab.test".into() };
    Arc::new(DomainService { source: Source::Sssd(member), ..DomainService::default() })
}

#[test]
fn each_thread_that_did_not_start_is_started_again() {
    let (service, begun) = (sssd(), Mutex::new(Vec::new()));
    let watch = |fails: &[&str]| {
        service.watch_by(&|name, _| match fails.contains(&name) {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => {
                locked(&begun).push(name);
                Ok(())
            }
        });
        std::mem::take(&mut *locked(&begun))
    };
    assert_eq!(watch(&["domain-renew"]), ["domain-watch"]);
    assert_eq!(watch(&[]), ["domain-renew"]);
    assert!(watch(&[]).is_empty());
    let (service, begun) = (sssd(), Mutex::new(Vec::new()));
    service.watch_by(&|name, _| match name {
        "domain-watch" => Err(io::ErrorKind::WouldBlock.into()),
        name => {
            locked(&begun).push(name);
            Ok(())
        }
    });
    assert_eq!(*locked(&begun), ["domain-renew"]);
}

fn in_lab(domain: &str) -> Details {
    let [machine, dns_domain] = ["GW", "lab.test"].map(str::to_owned);
    Details { machine, domain: domain.into(), dns_domain, version: String::new() }
}

#[test]
fn passwords_of_domain_need_winbind() {
    let of = OfHost(sssd());
    let told = |of: &OfHost| ["lab.test", "LAB", "OTHER"].map(|name| of.knows_domain(name));
    assert_eq!(told(&of), [None; 3], "before the first answer");
    // The NetBIOS name is unknown.
    locked(&of.0.state).machine = Some((in_lab(""), None));
    assert_eq!(told(&of), [Some(true), None, None]);
    assert!(of.machine().is_none());
    locked(&of.0.state).away = Some("silent".into());
    let is_domain = ["lab.test", "LAB", "WORKGROUP"].map(|name| of.is_domain(name));
    assert_eq!(is_domain, [Ok(true), Ok(false), Ok(false)], "accounts of the gateway log on");
    locked(&of.0.state).machine = Some((in_lab("LAB"), None));
    assert_eq!(told(&of), [Some(true), Some(true), Some(false)]);
    assert_eq!(&*of.machine().unwrap().dns_computer, "gw.lab.test");
    for (domain, user, is_refused) in [
        ("LAB", "alice", true),
        ("", "alice@lab.test", true),
        ("", "alice@other.test", false),
        ("", "alice", false),
        ("OTHER", "alice", false),
    ] {
        let [user, domain] = [user, domain].map(str::to_owned);
        let account = smb_auth::Account { user, domain, workstation: String::new() };
        let verdict = of.ask(&Question {
            account,
            account_here: smb_auth::relay::AccountHere::Unknown,
            challenge: [0; 8],
            nt: vec![],
        });
        match &verdict {
            Verdict::Refused(refused) => assert_eq!(refused.why, Why::NoPasswords),
            Verdict::NoDomain => assert!(!is_refused),
            Verdict::Confirmed(_) => panic!("nothing checks the password"),
        }
        assert_eq!(matches!(verdict, Verdict::Refused(_)), is_refused);
    }
    let seen = of.0.seen();
    assert_eq!((seen.by, seen.checks_passwords), ("sssd", false));
}

/// SSSD may tell neither the identifier nor the NetBIOS name of its domain; a ticket has both.
#[test]
fn names_of_domain_come_from_tickets() {
    let of = |sid: &str, name: &str, dns: &str| DomainIdentity {
        sid: sid.parse().unwrap(),
        name: name.into(),
        dns: dns.into(),
    };
    let found = |name: &str| DomainNames {
        name: name.into(),
        dns: "LAB.test".into(),
        sid: "S-1-5-21-1-2-3".parse().unwrap(),
    };
    let kept = of("S-1-5-21-1-2-3", "BERLIN", "lab.test");
    let other = of("S-1-5-21-4-5-6", "BERLIN", "lab.test");
    let elsewhere = of("S-1-5-21-1-2-3", "BERLIN", "other.test");
    let named = |name: &str| Some(of("S-1-5-21-1-2-3", name, "lab.test"));
    for (told, found, kept, name, wanted) in [
        ("LAB", Some(found("LAB")), None, "LAB", named("LAB")),
        ("LAB", Some(found("LAB")), Some(&kept), "LAB", named("LAB")),
        ("", Some(found("")), None, "", None),
        ("", Some(found("")), Some(&kept), "BERLIN", named("BERLIN")),
        ("", Some(found("")), Some(&other), "", None),
        ("", Some(found("")), Some(&elsewhere), "", None),
        ("", None, Some(&kept), "BERLIN", named("BERLIN")),
        ("", None, None, "", None),
    ] {
        let (details, identity) = with_names(in_lab(told), found, kept);
        assert_eq!((&*details.domain, identity), (name, wanted));
    }
}

#[test]
fn settings_name_their_service() {
    let mut settings = Settings::default();
    assert!(super::of(&settings).is_none());
    settings.domain_by = Some(DomainBy::Rid);
    assert!(super::of(&settings).is_none());
    settings.domain_by = Some(DomainBy::Winbind);
    let winbind = super::of(&settings).unwrap();
    assert!(Arc::ptr_eq(&winbind, &super::of(&settings).unwrap()));
    settings.domain_by = Some(DomainBy::Sssd);
    let mut kerberos = config::Kerberos::new("keytab");
    kerberos.realm = Some("LAB.TEST".parse().unwrap());
    settings.kerberos = Some(kerberos.clone());
    let lab = super::of(&settings).unwrap();
    assert!(matches!(&lab.source, Source::Sssd(member) if member.domain == "lab.test"));
    assert!(!Arc::ptr_eq(&winbind, &lab));
    // Numbers of another domain are others.
    kerberos.realm = Some("OTHER.TEST".parse().unwrap());
    settings.kerberos = Some(kerberos);
    assert!(!Arc::ptr_eq(&lab, &super::of(&settings).unwrap()));
}

/// A logon that names no domain, and the watch, do not wait for the questions of others.
#[test]
fn questions_hold_no_lock() {
    let of = OfHost(Arc::default());
    let its = of.0.clone();
    let ask = move |_: &mut Context| Ok(locked(&its.state).away.is_none());
    match of.0.call(About::Other, ANSWER_MAX, ask) {
        Ok(is_read) => assert!(is_read),
        // The library is not installed.
        Err(error) => assert!(matches!(error, Error::NoLibrary(_)), "{error}"),
    }
}

/// A reload asks about all names of the configuration again.
#[test]
fn kept_names_resolve_only_in_silence() {
    let service = Arc::<DomainService>::default();
    locked(&service.state).away = Some("silent".into());
    let sid = Sid::new(5, &[21, 1, 2, 3, 1103]).unwrap();
    let (domain, name) = ("LAB".to_owned(), "alice".to_owned());
    let kind = smbd_core::domain_engine::NamedKind::User;
    let alice = smbd_core::domain_engine::Named { sid: sid.clone(), kind, domain, name };
    service.say(("LAB", "alice"), alice.clone(), Number::Uid(3001));
    assert_eq!(service.knows_afresh(("LAB", "alice"), &sid), [true; 2]);
    let told = service.resolve_now(&[("LAB", "alice")]);
    assert_eq!(told, [(Ok(Some(alice.clone())), Some(Number::Uid(3001)))]);
    assert_eq!(service.knows_afresh(("LAB", "alice"), &sid), [false; 2], "it is asked again");
    service.say(("LAB", "alice"), alice, Number::Uid(3001));
    assert_eq!(service.count_unanswered(&[("lab", "ALICE"), ("LAB", "bob")]), 1);
}

/// Questions that never return take no place of others, and their threads have limits as well.
#[test]
fn late_questions_leave_their_places() {
    let service = Arc::<DomainService>::default();
    let begin = |about, at: u8| {
        let _client = iobuf::ClientWork::begin([192, 0, 2, at].into());
        Call::begin(&service, about)
    };
    let all: Vec<_> = (0..CALLS_MAX).map(|_| begin(About::Password, 1).unwrap()).collect();
    assert!(begin(About::Password, 2).is_err() && begin(About::Other, 2).is_err());
    // The watch has places of its own.
    drop(begin(About::Watch, 1).unwrap());
    all.iter().for_each(|call| call.is_over());
    all[0].is_over();
    let counts = || {
        let calls = locked(&service.calls);
        (calls.in_time, calls.late)
    };
    assert_eq!(counts(), (0, [CALLS_MAX, 0, 0]));
    // This client has its part; others have theirs.
    assert_eq!(all.len(), HELD_MAX / 2);
    assert!(begin(About::Password, 1).is_err());
    drop(begin(About::Other, 1).unwrap());
    let mut late = all;
    while let Ok(call) = begin(About::Password, 2) {
        assert_eq!(service.seen().away, None);
        call.is_over();
        late.push(call);
    }
    assert_eq!(late.len(), HELD_MAX);
    let why = service.seen().away.unwrap();
    assert_eq!(why, "32 questions about passwords have not returned");
    drop(begin(About::Other, 3).unwrap());
    drop(late);
    assert_eq!((counts(), service.seen().away), ((0, [0; 3]), None));
    // The watch does not ask again at once.
    let asked = begin(About::Watch, 1).unwrap();
    *locked(&service.looking) = Some((Arc::downgrade(&asked), Instant::now()));
    let none = |_: &mut Context| -> Result<(), Error> { panic!("it has asked") };
    assert_eq!(service.call_of_watch(none), Err(Error::NotAvailable));
    // It says so if none of its questions returns.
    *locked(&service.looking) = None;
    let stuck: Vec<_> = (1..WATCH_MAX).map(|_| begin(About::Watch, 1).unwrap()).collect();
    service.look();
    assert_eq!(service.seen().away.unwrap(), "4 questions have not returned");
    drop(stuck);
}

/// winbind gives a group its number as uid, too.
#[test]
fn group_that_owns_a_file_is_no_user() {
    let of = OfHost(Arc::default());
    let domain = vfs::Domain::by_service();
    locked(&of.0.state).domain = Some(domain.clone());
    let sid = |rid| Sid::new(5, &[21, 1, 2, 3, rid]).unwrap();
    let say = |name: &str, rid, kind| {
        let named = Named { sid: sid(rid), domain: "LAB".into(), name: name.into(), kind };
        of.0.say(("LAB", name), named, Number::Both(100_000 + rid));
    };
    say("alice", 1103, NamedKind::User);
    say("sales", 1200, NamedKind::Group);
    of.0.sids_of(&[1103, 1200].map(|rid| Number::Uid(100_000 + rid)));
    let shown = |rid: u32| domain.sid_of_user(100_000 + rid);
    assert_eq!([shown(1103), shown(1200)], [Some(sid(1103)), Some(sid(1200))]);
    assert_eq!((domain.uid(&sid(1103)), domain.uid(&sid(1200))), (Some(101_103), None));
    of.0.sids_of(&[1103, 1200].map(|rid| Number::Gid(100_000 + rid)));
    assert_eq!((domain.gid(&sid(1103)), domain.gid(&sid(1200))), (None, Some(101_200)));
}

/// While the service is silent, no thread waits for it, and kept numbers serve.
#[test]
fn silence_fails_at_once() {
    let of = OfHost(Arc::default());
    locked(&of.0.state).away = Some("silent".into());
    let sid = |rid| Sid::new(5, &[21, 1, 2, 3, rid]).unwrap();
    let (user, group) = (sid(1103), sid(513));
    let refused = of.numbers(&user, &group, &[]).unwrap_err();
    assert_eq!(refused.why, Why::Away);
    locked(&of.0.numbers).keep(user.clone(), Some(Number::Both(1001)), 10);
    locked(&of.0.numbers).keep(group.clone(), Some(Number::Gid(100)), 10);
    let numbers = of.numbers(&user, &group, &[]).unwrap();
    assert_eq!((numbers.uid, numbers.gid), (1001, 100));
    let unknown = of.numbers(&user, &group, &[sid(1200)]).unwrap_err();
    assert_eq!(unknown.why, Why::Away, "mode bits would decide without this group");
    // So they would if the service answered, but not its controller.
    locked(&of.0.numbers).keep_unsure(sid(1200), 10);
    assert_eq!(of.numbers(&user, &group, &[sid(1200)]).unwrap_err().why, Why::Away);
    locked(&of.0.numbers).keep(sid(1200), None, 10);
    assert!(of.numbers(&user, &group, &[sid(1200)]).is_ok(), "it has none");
    assert_eq!(locked(&of.0.calls).in_time, 0);
}
