//! Every kind of caller before entries for every kind of identity, beside a model that compares texts.

use std::sync::Arc;

use proptest::prelude::*;

use super::check::is_meant_by_sid;
use super::*;
use crate::callers::CallerNumber::{self, Group, User};
use crate::token::{CheckedCaller, DomainIdentity, Meant, Token};
use crate::types::{ANONYMOUS, Cred};

const OWNER: Owner = Owner { uid: 7, gid: 7 };
const DOMAIN: &str = "S-1-5-21-1-2-3";
const BASE: u32 = 100_000;

fn sid(text: &str) -> Sid {
    text.parse().unwrap()
}

/// Entries are for these.
const ENTRIES: [&str; 26] = [
    "S-1-5-21-1-2-3-1103",
    "S-1-5-21-1-2-3-1104",
    "S-1-5-21-1-2-3-1114",
    "S-1-5-21-1-2-3-513",
    "S-1-5-21-1-2-3-512",
    "S-1-5-21-9-9-9-1500",
    "S-1-5-21-9-9-9-1501",
    "S-1-5-21-8-8-8-4",
    "S-1-18-1",
    "S-1-12-1-1-2-3-4",
    "S-1-5-32-544",
    "S-1-5-32-545",
    "S-1-5-32-546",
    "S-1-5-32-551",
    "S-1-1-0",
    "S-1-5-2",
    "S-1-5-7",
    "S-1-5-11",
    "S-1-5-15",
    "S-1-5-18",
    "S-1-5-64-10",
    "S-1-5-64-14",
    "S-1-22-1-101103",
    "S-1-22-2-101114",
    "S-1-22-1-1001",
    "S-1-5-19",
];

/// A caller, in texts: the identities that it has, and the beginnings of those that nobody knows whether it has.
struct Caller {
    name: &'static str,
    cred: Cred,
    has: &'static [&'static str],
    may_have: &'static [&'static str],
}

const KNOWN: [&str; 5] = ["S-1-1-0", "S-1-5-2", "S-1-5-11", "S-1-5-15", "S-1-5-32-545"];
const UNKNOWN: [&str; 3] = ["S-1-5-21-", "S-1-18-", "S-1-12-"];
const OTHER_DOMAINS: [&str; 4] = ["S-1-5-21-9", "S-1-5-21-8", "S-1-18-", "S-1-12-"];

/// A user whose way into the domain is restricted, and who is not of this organization.
const OTHER_ORGANIZATION: &str = "another organization";

impl Caller {
    fn meant(&self, entry: &str, denies: bool) -> bool {
        let is_other = self.name == OTHER_ORGANIZATION && entry == "S-1-5-15";
        let is_known = self.cred.uid != ANONYMOUS && KNOWN.contains(&entry) && !is_other;
        let has = is_known || self.has.contains(&entry);
        has || denies && self.may_have.iter().any(|start| entry.starts_with(start))
    }
}

fn identity() -> DomainIdentity {
    DomainIdentity { sid: sid(DOMAIN), name: "LAB".into(), dns: "lab.test".into() }
}

fn domain(is_known: bool, base: Option<u32>) -> Arc<Domain> {
    let domain = Domain::new(base);
    if is_known {
        assert!(domain.know(identity()));
    }
    domain
}

fn cred(uid: u32, groups: &[u32], token: Token) -> Cred {
    Cred { uid, gid: uid, groups: groups.into(), token }
}

fn ticket(domain: &Arc<Domain>, user: &str, groups: &[&str]) -> Token {
    Token::of_ticket(domain, sid(user), groups.iter().map(|one| sid(one)))
}

fn by_ticket() -> Vec<Caller> {
    let rid = domain(true, Some(BASE));
    let names = domain(true, None);
    let of_alice = [
        "S-1-5-21-1-2-3-513",
        "S-1-5-21-1-2-3-1114",
        "S-1-5-21-9-9-9-1500",
        "S-1-5-21-8-8-8-4",
        "S-1-18-1",
        "S-1-5-32-551",
    ];
    let has: &[&str] = &[
        "S-1-5-21-1-2-3-1103",
        "S-1-5-21-1-2-3-513",
        "S-1-5-21-1-2-3-1114",
        "S-1-5-21-9-9-9-1500",
        "S-1-5-21-8-8-8-4",
        "S-1-18-1",
        "S-1-22-1-101103",
        "S-1-22-2-101114",
    ];
    let alice = |domain| ticket(domain, "S-1-5-21-1-2-3-1103", &of_alice);
    let one = |name, cred, has| Caller { name, cred, has, may_have: &[] };
    vec![
        one("numbers of RIDs", cred(101_103, &[100_513, 101_114], alice(&rid)), has),
        one(
            "an account of another number",
            cred(1001, &[], alice(&rid)),
            &[
                "S-1-5-21-1-2-3-1103",
                "S-1-5-21-1-2-3-513",
                "S-1-5-21-1-2-3-1114",
                "S-1-5-21-9-9-9-1500",
                "S-1-5-21-8-8-8-4",
                "S-1-18-1",
                "S-1-22-1-101103",
                "S-1-22-2-101114",
                "S-1-22-1-1001",
            ],
        ),
        one(
            "numbers of names",
            cred(1001, &[101_114], alice(&names)),
            &[
                "S-1-5-21-1-2-3-1103",
                "S-1-5-21-1-2-3-513",
                "S-1-5-21-1-2-3-1114",
                "S-1-5-21-9-9-9-1500",
                "S-1-5-21-8-8-8-4",
                "S-1-18-1",
                "S-1-22-1-1001",
                "S-1-22-2-101114",
            ],
        ),
        one(
            "Domain Admins",
            cred(100_500, &[100_512], ticket(&rid, "S-1-5-21-1-2-3-500", &["S-1-5-21-1-2-3-512"])),
            &["S-1-5-21-1-2-3-512", "S-1-5-32-544"],
        ),
        one(
            "Domain Admins of another domain",
            cred(1002, &[], ticket(&names, "S-1-5-21-9-9-9-500", &["S-1-5-21-9-9-9-512"])),
            &[],
        ),
        one(
            OTHER_ORGANIZATION,
            cred(101_104, &[], ticket(&rid, "S-1-5-21-1-2-3-1104", &["S-1-5-1000"])),
            &["S-1-5-21-1-2-3-1104"],
        ),
    ]
}

fn by_numbers() -> Vec<Caller> {
    let host = |is_known, base| Token::of_host(&domain(is_known, base));
    let rid = || host(true, Some(BASE));
    let one = |name, cred, has, may_have| Caller { name, cred, has, may_have };
    let of_domain: &[&str] =
        &["S-1-5-21-1-2-3-1103", "S-1-5-21-1-2-3-1114", "S-1-22-1-101103", "S-1-22-2-101114"];
    vec![
        one(
            "AUTH_SYS with the number of a RID",
            cred(101_103, &[101_114], rid()),
            of_domain,
            &OTHER_DOMAINS,
        ),
        one(
            "AUTH_SYS as an administrator",
            cred(101_104, &[100_512], rid()),
            &["S-1-5-21-1-2-3-1104", "S-1-5-21-1-2-3-512", "S-1-5-32-544"],
            &OTHER_DOMAINS,
        ),
        one(
            "AUTH_SYS with another number",
            cred(1001, &[101_114], rid()),
            &["S-1-5-21-1-2-3-1114", "S-1-22-1-1001", "S-1-22-2-101114"],
            &["S-1-5-21-", "S-1-18-", "S-1-12-", "S-1-5-32-544"],
        ),
        one(
            "before the first ticket",
            cred(101_103, &[101_114], host(false, Some(BASE))),
            &["S-1-22-1-101103", "S-1-22-2-101114"],
            &UNKNOWN,
        ),
        one(
            "AUTH_SYS where numbers are of names",
            cred(1001, &[], host(true, None)),
            &["S-1-22-1-1001"],
            &["S-1-5-21-", "S-1-18-", "S-1-12-", "S-1-5-32-544"],
        ),
        one(
            "a guest",
            cred(ANONYMOUS, &[], rid()),
            &["S-1-1-0", "S-1-5-2", "S-1-5-7", "S-1-5-32-546"],
            &[],
        ),
        one(
            "a gateway without a domain",
            cred(101_103, &[101_114], Token::NONE),
            &["S-1-22-1-101103", "S-1-22-2-101114"],
            &[],
        ),
    ]
}

fn callers() -> Vec<Caller> {
    by_ticket().into_iter().chain(by_numbers()).collect()
}

/// MS-DTYP section 2.5.3.2: one entry that allows, and one that denies before another that allows all.
#[test]
fn each_entry_is_about_its_callers() {
    for caller in callers() {
        for entry in ENTRIES {
            let who = Who::of_sid(sid(entry));
            let of = |entries: Vec<Ace>| Acl::new(entries).allowed(&caller.cred, OWNER);
            let allowed = of(vec![Ace::allow(who.clone(), mask::READ_DATA, 0)]);
            let is_allowed = allowed == mask::READ_DATA;
            assert_eq!(is_allowed, caller.meant(entry, false), "{} {entry} allowed", caller.name);
            let all = Ace::allow(Who::Everyone, mask::FILE_ALL, 0);
            let left = of(vec![Ace::deny(who, mask::READ_DATA, 0), all]);
            let is_denied = left & mask::READ_DATA == 0;
            assert_eq!(is_denied, caller.meant(entry, true), "{} {entry} denied", caller.name);
        }
    }
}

proptest! {
    /// The first entry about a caller that names a right decides, for any list of these entries.
    #[test]
    fn lists_of_identities_decide_as_the_model(
        list in proptest::collection::vec((any::<bool>(), 0..ENTRIES.len(), 1..16_u32), 0..8),
        n in 0..13_usize,
    ) {
        let caller = &callers()[n];
        let (mut granted, mut denied) = (0, 0);
        for (denies, entry, rights) in &list {
            match (caller.meant(ENTRIES[*entry], *denies), denies) {
                (true, true) => denied |= rights & !granted,
                (true, false) => granted |= rights & !denied,
                (false, _) => {}
            }
        }
        let entries = list.iter().map(|(denies, entry, rights)| {
            let who = Who::of_sid(sid(ENTRIES[*entry]));
            if *denies { Ace::deny(who, *rights, 0) } else { Ace::allow(who, *rights, 0) }
        });
        let acl = Acl::new(entries.collect());
        prop_assert_eq!(acl.allowed(&caller.cred, OWNER), granted, "{}", caller.name);
        prop_assert_eq!(acl.denied(&caller.cred, OWNER), denied, "{}", caller.name);
    }
}

/// Identities of a domain are shown as they were set, and owner and group count as those of the file.
#[test]
fn owners_by_identity_have_their_mode() {
    let domain = domain(true, Some(BASE));
    let owner = Owner { uid: 101_103, gid: 100_513 };
    let texts = ["S-1-5-21-1-2-3-1103", "S-1-5-21-1-2-3-513", "S-1-5-21-1-2-3-1114"];
    let rights = [mask::FILE_ALL, mask::FILE_READ, mask::FILE_READ];
    let entries = texts.iter().zip(rights).map(|(one, m)| Ace::allow(Who::of_sid(sid(one)), m, 0));
    let acl = Acl::new(entries.collect());
    assert_eq!(acl.mode(owner), 0, "without the domain");
    let acl = acl.with_owner_known(owner, Some(&domain));
    assert_eq!(acl.mode(owner), 0o740);
    let shown = acl.entries().iter().map(|ace| match ace {
        Ace::Simple { who, .. } => who.to_sid(owner, Some(&domain)).to_string(),
        Ace::Other { .. } => String::new(),
    });
    assert_eq!(shown.collect::<Vec<_>>(), texts);
}

#[test]
fn numbers_of_a_domain_have_bounds() {
    let domain = domain(true, Some(BASE));
    for (rid, number) in [
        (0, Some(100_000)),
        (1103, Some(101_103)),
        ((1 << 30) - 1, Some(100_000 + (1 << 30) - 1)),
        (1 << 30, None),
        (u32::MAX, None),
    ] {
        let sid = sid(&format!("{DOMAIN}-{rid}"));
        assert_eq!(domain.number(&sid), number, "{rid}");
        if let Some(number) = number {
            assert_eq!(domain.sid_of_user(number), Some(sid.clone()));
            assert_eq!(domain.sid_of_group(number), Some(sid));
        }
    }
    assert_eq!(domain.sid_of_user(BASE - 1), None);
    assert_eq!(domain.number(&sid(DOMAIN)), None, "the domain is no user of it");
    let low = Domain::new(Some(1000));
    low.know(identity());
    assert_eq!(low.sid_of_user(ANONYMOUS), None, "guests are no user of the domain");
}

#[test]
fn users_by_name_are_known_by_their_tickets() {
    let domain = domain(true, None);
    let alice = sid("S-1-5-21-1-2-3-1103");
    assert_eq!((domain.sid_of_user(1001), domain.uid(&alice)), (None, None));
    assert!(domain.know_user(1001, &alice, "Alice") && !domain.know_user(1001, &alice, "Alice"));
    domain.know_user(0, &sid("S-1-5-21-1-2-3-500"), "Administrator");
    domain.know_user(1002, &sid("S-1-5-21-9-9-9-7"), "guest of another domain");
    assert_eq!(domain.user_name(&alice).as_deref(), Some("Alice"));
    assert_eq!(domain.user_named("aLICE"), Some(alice.clone()));
    assert_eq!(domain.user_named("guest of another domain"), None);
    assert_eq!(domain.sid_of_user(1001), Some(alice.clone()));
    assert_eq!(domain.uid(&alice), Some(1001));
    assert_eq!(domain.sid_of_user(0), None, "the superuser is no user of a domain");
    assert_eq!(domain.sid_of_group(1001), None);
}

/// A slow model beside the index of names: the last user with a ticket that has the name.
#[test]
fn names_lead_to_latest_user() {
    let domain = Domain::new(Some(BASE));
    let of = sid("S-1-5-21-1-2-3");
    domain.know(crate::DomainIdentity { sid: of.clone(), name: "LAB".into(), dns: "lab".into() });
    let mut tickets: Vec<(u32, &'static str)> = Vec::new();
    let names = ["ann", "Ann", "bob", "BOB", "eve"];
    for step in 0..200_u32 {
        // Users are renamed, and take names of others.
        let (rid, name) = (1100 + step * 7 % 5, names[usize::try_from(step * 3 % 11 % 5).unwrap()]);
        let now = |tickets: &[(u32, &'static str)], rid: u32| {
            tickets.iter().rev().find(|(of, _)| *of == rid).map(|(_, name)| *name)
        };
        let is_new = now(&tickets, rid) != Some(name);
        assert_eq!(domain.know_user(BASE + rid, &of.child(rid).unwrap(), name), is_new);
        if is_new {
            tickets.push((rid, name));
        }
        for name in names {
            let same = |one: &str| one.eq_ignore_ascii_case(name);
            let last = tickets.iter().rev().find(|(_, one)| same(one)).map(|(rid, _)| *rid);
            let wanted = last.filter(|rid| now(&tickets, *rid).is_some_and(same));
            let wanted = wanted.and_then(|rid| of.child(rid));
            assert_eq!(domain.user_named(name), wanted, "{step} {name}");
        }
    }
    assert_eq!(domain.known_users().len(), 5);
}

#[test]
fn written_identifiers_become_numbers_where_certain() {
    let owner = Owner { uid: 1001, gid: BASE + 513 };
    let list = |entries: [(u8, &str); 3]| {
        let entry = |(kind, who): (u8, &str)| Ace::Simple {
            kind,
            flags: 0,
            mask: mask::READ_DATA,
            who: Who::Sid(sid(who)),
        };
        Acl::new(entries.map(entry).to_vec())
    };
    let who = |acl: Acl| -> Vec<Who> {
        let of = |ace: &Ace| match ace {
            Ace::Simple { who, .. } => who.clone(),
            Ace::Other { .. } => unreachable!(),
        };
        acl.entries().iter().map(of).collect()
    };
    let (alice, group) = (format!("{DOMAIN}-1103"), format!("{DOMAIN}-513"));
    let entries = list([(kind::ALLOWED, &alice), (kind::DENIED, &group), (kind::ALLOWED, &group)]);
    // Numbers by names: an entry that was made by number, shown by identifier and written back, is about the same user.
    let by_name = domain(true, None);
    by_name.know_user(1001, &sid(&alice), "alice");
    let kept = who(entries.clone().with_owner_known(owner, Some(&by_name)));
    assert_eq!(kept, [Who::User(1001), Who::Sid(sid(&group)), Who::Sid(sid(&group))]);
    // Numbers by RIDs: an entry that denies stays uncertain for callers without a ticket, so that it denies them.
    let by_rid = domain(true, Some(BASE));
    let kept = who(entries.with_owner_known(owner, Some(&by_rid)));
    assert_eq!(kept, [Who::Sid(sid(&alice)), Who::Sid(sid(&group)), Who::Members(BASE + 513)]);
}

/// winbind may give a user and a group the same number.
#[test]
fn numbers_of_service_match_by_kind() {
    use crate::token::meant_by_sid;
    let domain = Domain::by_service();
    let (alice, group) = (sid("S-1-5-21-1-2-3-1103"), sid("S-1-5-21-1-2-3-1200"));
    assert!(domain.know_user(3001, &alice, "alice"));
    assert!(domain.know_group(3001, &group) && !domain.know_group(3001, &group));
    assert_eq!((domain.gid(&group), domain.uid(&group)), (Some(3001), None));
    assert_eq!(
        (domain.sid_of_user(3001), domain.sid_of_group(3001)),
        (Some(alice.clone()), Some(group.clone()))
    );
    let caller = |uid, gid| Cred { uid, gid, groups: [].into(), token: Token::of_host(&domain) };
    for (cred, of_alice, of_group) in
        [(caller(3001, 5), Meant::Yes, Meant::Maybe), (caller(5, 3001), Meant::Maybe, Meant::Yes)]
    {
        assert_eq!(
            (
                meant_by_sid(&alice, &CheckedCaller::of(&cred)),
                meant_by_sid(&group, &CheckedCaller::of(&cred))
            ),
            (of_alice, of_group)
        );
    }
}

/// An answer of the service about a number.
#[derive(Clone, Copy, Debug)]
enum Said {
    Sid(&'static str),
    /// It is unmapped; a controller answered, or not.
    Unmapped {
        is_sure: bool,
    },
}

fn domain_that_said(said: &[(CallerNumber, Said)]) -> Arc<Domain> {
    let domain = Domain::by_service();
    domain.know(identity());
    domain.know_machine(&sid("S-1-5-21-7-7-7"));
    for (number, said) in said {
        match (number, said) {
            (User(uid), Said::Sid(text)) => assert!(domain.know_uid(*uid, &sid(text))),
            (Group(gid), Said::Sid(text)) => assert!(domain.know_group(*gid, &sid(text))),
            (number, Said::Unmapped { is_sure }) => {
                domain.callers().keep_unmapped(*number, *is_sure, std::time::Instant::now());
            }
        }
    }
    domain
}

/// What entries mean for an account of the gateway, a caller by AUTH_SYS, and one by AUTH_SYS with 16 groups.
type Meanings = [Meant; 3];

const ALICE: &str = "S-1-5-21-1-2-3-1103";
const READERS: &str = "S-1-5-21-1-2-3-1200";

/// Answers of the service about the user 1000 in the groups 50 and 60, and what entries for alice, for the group readers and for
/// others mean then.
type Standing = (Vec<(CallerNumber, Said)>, [Meanings; 3]);

fn standings() -> Vec<Standing> {
    use Meant::{Maybe, No, Yes};
    let unmapped = |is_sure| Said::Unmapped { is_sure };
    let (sure, unsure) = (unmapped(true), unmapped(false));
    let (user, groups) = ((User(1000), sure), [(Group(50), sure), (Group(60), sure)]);
    let is_alice = (User(1000), Said::Sid(ALICE));
    let (sys, hers) = ([No, No, Maybe], [[Yes; 3], [Maybe; 3], [Maybe; 3]]);
    vec![
        // The service has not answered, or not about all numbers.
        (vec![], [[Maybe; 3]; 3]),
        (vec![user, groups[0]], [[Maybe; 3]; 3]),
        (groups.to_vec(), [[Maybe; 3]; 3]),
        // All numbers are unmapped.
        (vec![user, groups[0], groups[1]], [sys; 3]),
        // SSSD says so, or a controller is silent.
        (vec![(User(1000), unsure), groups[0], (Group(60), unsure)], [[No, Maybe, Maybe]; 3]),
        // A user of the domain, whose groups are unknown, has the number.
        (vec![is_alice, groups[0], groups[1]], hers),
        // It is an account of this computer, which winbind knows as well.
        (vec![(User(1000), Said::Sid("S-1-5-21-7-7-7-1000")), groups[0], groups[1]], [sys; 3]),
        // A group of the host is one of the domain.
        (vec![user, groups[0], (Group(60), Said::Sid(READERS))], [sys, [Yes; 3], sys]),
        // The number was unmapped, and a user of the domain has it now.
        (vec![user, groups[0], groups[1], is_alice], hers),
    ]
}

/// Kinds of callers without a ticket, answers of the service, and kinds of entries. `Maybe` counts only in entries that deny.
#[test]
fn callers_without_ticket_are_of_domain_as_service_says() {
    const OTHERS: [&str; 5] = [
        "S-1-5-21-1-2-3-1114",
        "S-1-5-21-1-2-3-513",
        "S-1-5-21-9-9-9-1500",
        "S-1-18-1",
        "S-1-5-32-544",
    ];
    for (said, [alice, readers, others]) in standings() {
        let domain = domain_that_said(&said);
        let many: Vec<u32> = [60; 16].to_vec();
        let of = |groups: &[u32], token| Cred { uid: 1000, gid: 50, groups: groups.into(), token };
        let callers = [
            of(&[60], Token::of_account(Some(&domain))),
            of(&[60], Token::of_host(&domain)),
            of(&many, Token::of_host(&domain)),
        ];
        let entries = [(ALICE, alice), (READERS, readers)].into_iter();
        for (entry, wanted) in entries.chain(OTHERS.map(|entry| (entry, others))) {
            for (n, (cred, wanted)) in callers.iter().zip(wanted).enumerate() {
                let meant = is_meant_by_sid(&sid(entry), &CheckedCaller::of(cred), OWNER);
                assert_eq!(meant, wanted, "caller {n}, {entry}, {said:?}");
                let all = Ace::allow(Who::Everyone, mask::FILE_ALL, 0);
                let denies = Ace::deny(Who::of_sid(sid(entry)), mask::READ_DATA, 0);
                let left = Acl::new(vec![denies, all]).allowed(cred, OWNER);
                assert_eq!(
                    left & mask::READ_DATA == 0,
                    wanted != Meant::No,
                    "{n} {entry} {said:?}"
                );
            }
        }
    }
}

/// Without a service a ticket may mean the account of its name.
#[test]
fn callers_are_uncertain_where_no_service_knows_the_domain() {
    use Meant::{Maybe, No};
    let by_names = domain(true, None);
    for (token, wanted) in [
        (Token::of_account(Some(&by_names)), Maybe),
        (Token::of_host(&by_names), Maybe),
        (Token::of_account(None), No),
        (Token::NONE, No),
    ] {
        let caller = cred(1000, &[], token.clone());
        let meant = is_meant_by_sid(&sid(READERS), &CheckedCaller::of(&caller), OWNER);
        assert_eq!(meant, wanted, "{token:?}");
    }
}

/// NTLM Authentication, S-1-5-64-10, for each way to come (MS-DTYP section 2.4.2.4).
#[test]
fn ntlm_identity_follows_way_of_logon() {
    use Meant::{Maybe, No, Yes};
    let domain = domain_that_said(&[]);
    let by_controller = ["S-1-5-21-1-2-3-513", "S-1-5-64-10"];
    let by_ticket = ["S-1-5-21-1-2-3-513", "S-1-18-1"];
    let guest = cred(ANONYMOUS, &[], Token::of_account(Some(&domain)));
    let alice = |groups: &[&str]| cred(3001, &[], ticket(&domain, "S-1-5-21-1-2-3-1103", groups));
    for (way, cred, wanted) in [
        ("a password of the gateway", cred(5, &[], Token::of_account(Some(&domain))), Yes),
        ("the same without a domain", cred(5, &[], Token::of_account(None)), Yes),
        ("a password of the domain", alice(&by_controller), Yes),
        ("a ticket", alice(&by_ticket), No),
        ("a guest, or anonymous", guest, Maybe),
        ("AUTH_SYS", cred(5, &[], Token::of_host(&domain)), No),
        ("AUTH_SYS without a domain", cred(5, &[], Token::NONE), No),
        ("a squashed caller", cred(ANONYMOUS, &[], Token::of_host(&domain)), No),
    ] {
        assert_eq!(
            is_meant_by_sid(&Sid::ntlm(), &CheckedCaller::of(&cred), OWNER),
            wanted,
            "{way}"
        );
    }
}

/// The Guest account of a domain is in Guests and Everyone. Members of Domain Guests are in Authenticated Users and Users as well.
#[test]
fn guest_account_is_no_authenticated_user() {
    let domain = domain_that_said(&[]);
    let guests = "S-1-5-21-1-2-3-514";
    for (user, groups, [everyone, authenticated, users, in_guests]) in [
        ("S-1-5-21-1-2-3-501", &[guests][..], [true, false, false, true]),
        ("S-1-5-21-9-9-9-501", &[], [true, false, false, true]),
        ("S-1-5-21-1-2-3-1103", &[guests], [true, true, true, true]),
        ("S-1-5-21-1-2-3-1103", &["S-1-5-21-9-9-9-514"], [true, true, true, false]),
        ("S-1-5-21-1-2-3-1103", &["S-1-5-21-1-2-3-501"], [true, true, true, false]),
    ] {
        let cred = cred(3001, &[], ticket(&domain, user, groups));
        for (entry, wanted) in [
            ("S-1-1-0", everyone),
            ("S-1-5-11", authenticated),
            ("S-1-5-32-545", users),
            ("S-1-5-32-546", in_guests),
            (user, true),
        ] {
            let allow = Ace::allow(Who::of_sid(sid(entry)), mask::READ_DATA, 0);
            let is_allowed = Acl::new(vec![allow]).allowed(&cred, OWNER) == mask::READ_DATA;
            assert_eq!(is_allowed, wanted, "{user} {groups:?} {entry}");
        }
    }
}

/// Why a share's `deny` refuses a caller: the remedies differ.
#[test]
fn refusals_say_why_caller_may_be_denied() {
    use crate::namespace::{PrincipalSet, Refusal, ShareAccess};
    use crate::token::Unsure;
    let sure = Said::Unmapped { is_sure: true };
    let alice = Said::Sid("S-1-5-21-1-2-3-1103");
    let deny = |text: &str| ShareAccess {
        write: PrincipalSet::everyone(),
        deny: PrincipalSet::default().with_identities(vec![sid(text)], vec![]),
        ..ShareAccess::default()
    };
    let (hers, group) = ("S-1-5-21-1-2-3-1103", "S-1-5-21-1-2-3-1114");
    for (said, entry, wanted) in [
        (&[][..], group, Some(Refusal::Unsure(Unsure::Unanswered))),
        (&[(User(1000), alice)], group, Some(Refusal::Unsure(Unsure::Member))),
        (&[(User(1000), alice)], hers, Some(Refusal::Denied)),
        (&[(User(1000), sure), (Group(1000), sure)], group, None),
        (&[(User(1000), sure), (Group(1000), sure)], hers, None),
    ] {
        let domain = domain_that_said(said);
        for token in [Token::of_account(Some(&domain)), Token::of_host(&domain)] {
            let told = deny(entry).right(&cred(1000, &[], token)).err();
            assert_eq!(told, wanted, "{said:?} {entry}");
        }
    }
    let unsure = [Unsure::Unanswered, Unsure::Member, Unsure::NoService].map(Refusal::Unsure);
    assert_eq!(unsure.map(Refusal::name), ["share-access-deny-unsure"; 3]);
    let remedies: std::collections::BTreeSet<_> = unsure.iter().map(|why| why.remedy()).collect();
    assert_eq!(remedies.len(), 3);
    let by_names = Token::of_account(Some(&domain(true, None)));
    let told = deny(group).right(&cred(1000, &[], by_names)).err();
    assert_eq!(told, Some(Refusal::Unsure(Unsure::NoService)));
    assert_eq!(deny(group).right(&cred(1000, &[], Token::of_account(None))).err(), None);
}

/// Callers by AUTH_SYS can fill their part of the table.
#[test]
fn number_of_identity_without_place_is_not_unmapped() {
    let (domain, now) = (Domain::by_service(), std::time::Instant::now());
    let user = |rid| Sid::new(5, &[21, 1, 2, 3, rid]).unwrap();
    let ours = CallerNumber::User(7);
    domain.callers().keep_unmapped(ours, true, now);
    assert_eq!(domain.unanswered([ours]), []);
    let mut uids = 100_000..;
    let invent = |uid| domain.know_caller(CallerNumber::User(uid), &user(uid), true);
    while uids.next().is_some_and(|uid| {
        invent(uid);
        domain.sid_of_user(uid).is_some()
    }) {}
    domain.know_caller(ours, &user(1103), true);
    assert_eq!((domain.sid_of_user(7), domain.unanswered([ours])), (None, vec![ours]));
}

/// winbind may give each number as uid and as gid. A caller or an owner with the number of a group makes no user of the group: an
/// entry that denies the group would deny nobody.
#[test]
fn numbers_of_other_kind_are_only_shown() {
    let deny = |sid: &Sid| Ace::deny(Who::Sid(sid.clone()), mask::READ_DATA, 0);
    let all = Ace::allow(Who::Everyone, mask::FILE_ALL, 0);
    for number in [CallerNumber::User(3001), CallerNumber::Group(3001)] {
        let domain = Domain::by_service();
        let it = sid("S-1-5-21-1-2-3-1200");
        domain.know_caller(number, &it, false);
        let shown = (domain.sid_of_user(3001), domain.sid_of_group(3001));
        match number {
            CallerNumber::User(_) => assert_eq!(shown, (Some(it.clone()), None)),
            CallerNumber::Group(_) => assert_eq!(shown, (None, Some(it.clone()))),
        }
        assert_eq!((domain.uid(&it), domain.gid(&it)), (None, None));
        let acl = Acl::new(vec![deny(&it), all.clone()]);
        let kept = acl.with_owner_known(OWNER, Some(&domain));
        let member =
            cred(1000, &[], ticket(&domain, "S-1-5-21-1-2-3-1103", &["S-1-5-21-1-2-3-1200"]));
        assert_eq!(kept.allowed(&member, OWNER) & mask::READ_DATA, 0, "{number:?}");
        // The number may get another identity, of which it is not the only one.
        let other = sid("S-1-5-21-1-2-3-1201");
        assert!(domain.know_uid(7001, &other) && domain.know_group(7001, &other));
        for shown in [&other, &it] {
            domain.know_caller(number, shown, false);
        }
        assert_eq!((domain.uid(&other), domain.gid(&other)), (Some(7001), Some(7001)));
        // The kind may be known later.
        match number {
            CallerNumber::User(_) => assert!(domain.know_uid(3001, &it)),
            CallerNumber::Group(_) => assert!(domain.know_group(3001, &it)),
        }
        assert_eq!(domain.uid(&it).or(domain.gid(&it)), Some(3001));
    }
}
