//! Users and groups of a domain in the configuration.

use super::*;

fn who(names: &[&str]) -> Vec<Who> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

/// Settings of a gateway that knows the domain LAB and its user Alice.
fn in_lab(folder: &std::path::Path, map: config::KerberosMap, share: config::Share) -> Settings {
    std::fs::write(folder.join("domain"), "S-1-5-21-1-2-3 LAB lab.test\n").unwrap();
    std::fs::write(folder.join("domain-users"), "101103 S-1-5-21-1-2-3-1103 Alice\n").unwrap();
    let mut kerberos = config::Kerberos::new("keytab");
    kerberos.realm = Some("LAB.TEST".parse().unwrap());
    kerberos.map = map;
    let (state, kerberos) = (folder.to_owned(), Some(kerberos));
    Settings { state, kerberos, shares: vec![share], ..Settings::default() }
}

/// Each line: an entry of `access`, and what it is: users and groups by number, SIDs, names of the domain.
#[test]
fn names_of_domain_become_identities() {
    use config::KerberosMap::{Names as ByName, Rid};
    let sid = |text: &str| text.parse::<Sid>().unwrap();
    let lab = |rid| sid(&format!("S-1-5-21-1-2-3-{rid}"));
    let (alice, admins) = (OfDomain::User("alice".into()), OfDomain::Rid(512));
    for (map, entry, wanted) in [
        (Rid, "alice@lab.test", (vec![], vec![], vec![], vec![alice.clone()])),
        (Rid, "ALICE@LAB.TEST", (vec![], vec![], vec![], vec![alice.clone()])),
        (Rid, r"LAB\alice", (vec![], vec![], vec![], vec![alice.clone()])),
        // The account `alice`, and users with a ticket of alice.
        (ByName, "alice@lab.test", (vec![5], vec![], vec![], vec![alice])),
        (Rid, "@Domain Admins", (vec![], vec![], vec![], vec![admins.clone()])),
        (Rid, r"@lab\domain admins", (vec![], vec![], vec![], vec![admins])),
        (Rid, "S-1-5-21-1-2-3-1104", (vec![], vec![], vec![lab(1104)], vec![])),
        (ByName, "@S-1-5-21-1-2-3-1114", (vec![], vec![], vec![lab(1114)], vec![])),
        (Rid, "S-1-22-1-7", (vec![7], vec![], vec![], vec![])),
        (Rid, "@S-1-22-2-8", (vec![], vec![8], vec![], vec![])),
        (Rid, "@S-1-5-32-544", (vec![], vec![], vec![sid("S-1-5-32-544")], vec![])),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut share = config::Share::new("team", config::Source::Memory);
        share.access = Some(Access { deny: who(&[entry]), ..Access::default() });
        let settings = in_lab(dir.path(), map, share);
        let cred = Cred { uid: 5, gid: 5, ..Cred::root() };
        let accounts = |name: &str| (name == "alice").then(|| (cred.clone(), true));
        let deny = super::rights(&settings, &accounts).unwrap().remove(0).access.unwrap().deny;
        let (users, groups, sids, of_domain) = deny.parts();
        let told = (users.to_vec(), groups.to_vec(), sids.to_vec(), of_domain.to_vec());
        assert_eq!(told, wanted, "{map:?} {entry}");
    }
}

/// Each line: an entry of `access`, and the SIDs and groups that it is; or why it is refused.
#[test]
fn service_says_what_names_of_domain_mean() {
    use smb_auth::relay::{Refused, Why};
    use smbd_core::domain_engine::{Lookup, Named, NamedKind};
    let lab = |rid: u32| format!("S-1-5-21-1-2-3-{rid}");
    let named = |rid: u32, kind, name: &str| -> Lookup {
        let sid = lab(rid).parse().unwrap();
        Ok(Some(Named { sid, kind, domain: "LAB".into(), name: name.into() }))
    };
    let away = || Err(Refused { why: Why::Away, detail: "silent".into() });
    let answers = [
        ("alice@lab.test", named(1103, NamedKind::User, "alice")),
        (r"LAB\sales", named(1114, NamedKind::Group, "sales")),
        (r"@LAB\sales", named(1114, NamedKind::Group, "sales")),
        ("@Sales Team", named(1115, NamedKind::Alias, "Sales Team")),
        ("@LAB\\alice", named(1103, NamedKind::User, "alice")),
        ("bob@lab.test", Ok(None)),
        ("eve@corp.example", Ok(None)),
        ("@staff", away()),
        ("@gone", away()),
        ("carol@lab.test", away()),
        (r"LAB\LAB", named(0, NamedKind::Domain, "")),
    ];
    let by_service =
        ByService::answering(answers.map(|(who, found)| (who.parse().unwrap(), found)));
    let staff = (who(&["@staff"]).remove(0), Some(OnHost::Group { gid: 50, members: vec![] }));
    // The name service shows a group of the domain as a user.
    let user =
        Some(OnHost::User { uid: 101_114, gid: 101_114, groups: vec![], shows_group: false });
    let found: Found = [staff, (who(&[r"LAB\sales"]).remove(0), user)].into();
    let domain =
        InDomain { realm: Some("LAB.TEST".into()), identity: None, by_names: false, by_service };
    let of = |entry: &str| {
        let set = principals(&who(&[entry]), Resolver::new(&|_| None, &found, Some(&domain)))?;
        let (users, groups, sids, of_domain) = set.parts();
        assert!(users.is_empty() && of_domain.is_empty(), "{entry}");
        let sids: Vec<String> = sids.iter().map(ToString::to_string).collect();
        Ok::<_, String>((sids, groups.to_vec()))
    };
    for (entry, wanted) in [
        ("alice@lab.test", Ok((vec![lab(1103)], vec![]))),
        (r"@LAB\sales", Ok((vec![lab(1114)], vec![]))),
        ("@Sales Team", Ok((vec![lab(1115)], vec![]))),
        ("@staff", Ok((vec![], vec![50]))),
        (r"LAB\sales", Err("is the group `LAB\\sales`")),
        (r"@LAB\alice", Err("is the user `LAB\\alice`")),
        ("bob@lab.test", Err("winbind knows no `bob@lab.test`")),
        ("eve@corp.example", Err("`corp.example` is no domain but the suffix of a principal name")),
        ("@gone", Err("cannot be looked up by winbind: silent")),
        ("carol@lab.test", Err("cannot be looked up by winbind: silent")),
        (r"LAB\LAB", Err("neither a user nor a group")),
    ] {
        match (of(entry), wanted) {
            (Ok(told), Ok(wanted)) => assert_eq!(told, wanted, "{entry}"),
            (Err(told), Err(wanted)) => assert!(told.contains(wanted), "{entry}: {told}"),
            (told, wanted) => panic!("{entry}: {told:?}, not {wanted:?}"),
        }
    }
}

#[test]
fn names_that_mean_no_user_are_refused() {
    for (entry, why) in [
        ("alice@other.test", "there is no user"),
        (r"OTHER\alice", "there is no user"),
        ("@Sales Team of Lab", "written by its SID"),
        ("S-1-5-32-551", "does not know the members"),
        ("S-1-3-4", "does not know the members"),
        ("S-1-x", "is not a SID"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut share = config::Share::new("team", config::Source::Memory);
        share.access = Some(Access { deny: who(&[entry]), ..Access::default() });
        let settings = in_lab(dir.path(), config::KerberosMap::Rid, share.clone());
        let told = super::rights(&settings, &|_| None).unwrap_err();
        assert!(told.contains(why), "{entry}: {told}");
        let without = Settings { shares: vec![share], ..Settings::default() };
        assert!(super::rights(&without, &|_| None).is_err(), "{entry}");
    }
    let mut share = config::Share::new("team", config::Source::Memory);
    share.access = Some(Access { deny: who(&["S-1-5-21-1-2-3-7"]), ..Access::default() });
    let without = Settings { shares: vec![share], ..Settings::default() };
    let told = super::rights(&without, &|_| None).unwrap_err();
    assert!(told.contains("`kerberos` is not set"), "{told}");
}

/// Rights that `check --user` evaluates for users of the domain.
#[test]
fn tickets_make_users_of_domain_callers() {
    use config::KerberosMap::{Names as ByName, Rid};
    let cred = Cred { uid: 5, gid: 5, ..Cred::root() };
    let account = |name: &str| (name == "alice").then(|| (cred.clone(), true));
    let none = |_: &str| None;
    for (map, name, has_account, uid) in [
        (Rid, "alice@lab.test", false, Some(101_103)),
        (Rid, "alice@lab.test", true, Some(5)),
        (Rid, "S-1-5-21-1-2-3-1104", false, Some(101_104)),
        (Rid, "bob@lab.test", false, None),
        (Rid, "alice@other.test", false, None),
        (ByName, "alice@lab.test", true, Some(5)),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let share = config::Share::new("team", config::Source::Memory);
        let settings = in_lab(dir.path(), map, share);
        let accounts: Accounts<'_> = if has_account { &account } else { &none };
        let cred = by_ticket(&settings, name, accounts);
        assert_eq!(cred.as_ref().map(|cred| cred.uid), uid, "{map:?} {name}");
        assert!(cred.is_none_or(|cred| cred.token.is_by_ticket()), "{map:?} {name}");
    }
    assert!(by_ticket(&Settings::default(), "alice", &account).is_none());
}
