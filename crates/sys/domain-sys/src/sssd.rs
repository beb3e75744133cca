//! SSSD's `libsss_nss_idmap.so.0`, which asks sssd.
//!
//! *Operation.* The library returns `ENOENT` for names that do not exist, but also while sssd does not run. After such an answer
//! the context asks about `BUILTIN\Administrators`, a name that sssd knows without a controller. SSSD does not tell the machine's
//! domain; [`Member`] has its DNS name, which is the realm of the machine's keytab. The identifier of an account which every domain
//! has, without its RID, is the identifier of the domain.
//!
//! SSSD writes names as its configuration says (`full_name_format`, `use_fully_qualified_names`, `case_sensitive`): with the name
//! of the domain in front or behind, or without it.

mod asked;
mod ffi;

use std::ffi::{CStr, CString};
use std::time::{Duration, Instant};

use wire::Sid;

use crate::error::Error;
use crate::text::given;
use crate::types::{Details, DomainNames, Kind, Name, Number};
use asked::Asked;
use ffi::Installed;

/// `BUILTIN\Administrators`.
const PROOF: &CStr = c"S-1-5-32-544";
/// Time limit of the question whether sssd answers.
const PROOF_MAX: Duration = Duration::from_secs(1);
/// Time limit of another question: sssd may ask a controller.
const QUESTION_MAX: Duration = Duration::from_secs(2);
/// The same about a domain.
const OWN_MAX: Duration = Duration::from_millis(1500);
/// The same about all groups of a user.
const GROUPS_MAX: Duration = Duration::from_secs(8);
/// The account of the controllers' tickets: each domain has it, and its name is the same in all languages.
const KRBTGT: &str = "krbtgt";
/// Bytes of a NetBIOS name.
const NETBIOS_MAX: usize = 15;
/// First subauthority of an identifier in a domain.
const OF_DOMAIN: u32 = 21;
/// First subauthority of `BUILTIN`.
const OF_BUILTIN: u32 = 32;

/// The machine as a member of its domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// NetBIOS name, whose account is the name and `$`.
    pub machine: String,
    /// DNS name of the domain, in lower case.
    pub domain: String,
}

/// The questions to sssd.
#[derive(Debug)]
pub(crate) struct Context<L = Installed> {
    member: Member,
    /// The machine's domain, once SSSD has told all of it.
    own: Option<DomainNames>,
    library: L,
}

impl Context {
    /// # Errors
    /// [`Error::NoLibrary`].
    pub(crate) fn new(member: &Member) -> Result<Self, Error> {
        Ok(Self { member: member.clone(), own: None, library: Installed::new()? })
    }
}

/// Returns the time for the next of many questions.
fn rest(until: Instant) -> Result<Duration, Error> {
    let rest = until.saturating_duration_since(Instant::now()).min(QUESTION_MAX);
    if rest.is_zero() { Err(Error::Unfinished) } else { Ok(rest) }
}

/// Returns the NetBIOS name that a domain has, unless its administrator has chosen another.
fn usual_name(dns: &str) -> String {
    let label = dns.split('.').next().unwrap_or_default();
    label.chars().take(NETBIOS_MAX).collect::<String>().to_uppercase()
}

/// Splits a name that sssd has written into rest and domain, if the name has one.
fn split(text: &str) -> (Option<&str>, &str) {
    if let Some((domain, name)) = text.split_once('\\') {
        return (Some(domain), name);
    }
    match text.rsplit_once('@') {
        Some((name, domain)) if !name.is_empty() && !domain.is_empty() => (Some(domain), name),
        _ => (None, text),
    }
}

/// Makes a C string of an identifier.
fn text_of(sid: &Sid) -> Result<CString, Error> {
    given(&sid.to_string())
}

fn is_of_domain(sid: &Sid) -> bool {
    sid.authority() == 5 && sid.subs().first() == Some(&OF_DOMAIN)
}

impl<L: Asked> Context<L> {
    /// Checks that sssd answers.
    fn prove(&mut self) -> Result<(), Error> {
        match self.library.name_of_sid(PROOF, PROOF_MAX)? {
            Some(_) => Ok(()),
            None => Err(Error::NotAvailable),
        }
    }

    /// Returns an empty answer only if sssd gave it.
    fn proved<T>(&mut self, found: Option<T>) -> Result<Option<T>, Error> {
        if found.is_none() {
            self.prove()?;
        }
        Ok(found)
    }

    /// Asks whether sssd answers, and for the machine's domain, which it may not tell while a controller is slow.
    pub(crate) fn own(&mut self) -> Result<(Details, Option<DomainNames>), Error> {
        self.prove()?;
        let Member { machine, domain: dns } = self.member.clone();
        let names = match &self.own {
            Some(known) => Some(known.clone()),
            None => self.find_own(&dns, Instant::now() + OWN_MAX).unwrap_or_default(),
        };
        let domain = names.as_ref().map(|names| names.name.clone()).unwrap_or_default();
        if !domain.is_empty() {
            self.own.clone_from(&names);
        }
        Ok((Details { machine, domain, dns_domain: dns, version: String::new() }, names))
    }

    fn find_own(&mut self, dns: &str, until: Instant) -> Result<Option<DomainNames>, Error> {
        let Some(sid) = self.sid_of_domain(dns, until)? else { return Ok(None) };
        let usual = usual_name(dns);
        let of_usual = self.sid_of_domain(&usual, until).unwrap_or_default();
        let name = if of_usual.as_ref() == Some(&sid) { usual } else { String::new() };
        Ok(Some(DomainNames { name, dns: dns.to_owned(), sid }))
    }

    /// Asks for the identifier of a domain: the SID of the machine's account in it, or of `krbtgt`, without the RID.
    fn sid_of_domain(&mut self, domain: &str, until: Instant) -> Result<Option<Sid>, Error> {
        for account in [format!("{}$", self.member.machine), KRBTGT.to_owned()] {
            let found = self.sid_within(domain, &account, rest(until)?)?;
            let above = found.filter(|(sid, _)| is_of_domain(sid)).and_then(|(sid, _)| sid.split());
            if let Some((above, _)) = above {
                return Ok(Some(above));
            }
        }
        Ok(None)
    }

    pub(crate) fn domain(&mut self, name: &str) -> Result<Option<DomainNames>, Error> {
        let sid = self.sid_of_domain(name, Instant::now() + OWN_MAX)?;
        Ok(sid.map(|sid| DomainNames { name: name.to_owned(), dns: String::new(), sid }))
    }

    /// Asks about one identifier after the other. A user may have hundreds of groups, about each of which sssd asks a controller at
    /// first.
    pub(crate) fn numbers(
        &mut self,
        sids: &[Sid],
        until: Instant,
        mut tell: impl FnMut(&Sid, Option<Number>),
    ) -> Result<Vec<Option<Number>>, Error> {
        let mut numbers = Vec::new();
        for sid in sids {
            let number = self.library.number_of_sid(&text_of(sid)?, rest(until)?)?;
            // chown(2) and setfsuid(2) read all ones as "no change".
            let number = number.filter(|number| {
                let (Number::Uid(id) | Number::Gid(id) | Number::Both(id)) = number;
                *id != u32::MAX
            });
            let number = self.proved(number)?;
            tell(sid, number);
            numbers.push(number);
        }
        Ok(numbers)
    }

    pub(crate) fn sids_of(
        &mut self,
        numbers: &[Number],
        until: Instant,
    ) -> Result<Vec<Option<Sid>>, Error> {
        let mut sids = Vec::new();
        for number in numbers {
            let found = match number {
                Number::Uid(uid) | Number::Both(uid) => {
                    self.library.sid_of_uid(*uid, rest(until)?)?
                }
                Number::Gid(_) => None,
            };
            let found = match (found, number) {
                (None, Number::Gid(gid) | Number::Both(gid)) => {
                    self.library.sid_of_gid(*gid, rest(until)?)?
                }
                (found, _) => found,
            };
            sids.push(found.and_then(|(text, _)| text.parse().ok()));
        }
        if sids.contains(&None) {
            self.prove()?;
        }
        Ok(sids)
    }

    fn name_in(&mut self, sid: &Sid, limit: Duration) -> Result<Option<Name>, Error> {
        let found = self.library.name_of_sid(&text_of(sid)?, limit)?;
        Ok(found.map(|(text, kind)| self.named(sid, &text, kind)))
    }

    /// Reads a name that sssd has written.
    fn named(&self, sid: &Sid, text: &str, kind: Kind) -> Name {
        let (domain, name) = split(text);
        let kind = match (kind, sid.subs().first()) {
            (Kind::Group, Some(&OF_BUILTIN)) => Kind::Alias,
            (Kind::Group, _) if !is_of_domain(sid) => Kind::WellKnown,
            (kind, _) => kind,
        };
        // SSSD leaves out the name of the domain that completes names.
        let domain = match domain {
            Some(domain) => domain,
            None if is_of_domain(sid) => &self.member.domain,
            None => "",
        };
        Name { domain: domain.to_owned(), name: name.to_owned(), kind }
    }

    pub(crate) fn name_of(&mut self, sid: &Sid) -> Result<Option<Name>, Error> {
        let found = self.name_in(sid, QUESTION_MAX)?;
        self.proved(found)
    }

    pub(crate) fn names_of(
        &mut self,
        sids: &[Sid],
        until: Instant,
        mut tell: impl FnMut(&Sid, Option<Name>),
    ) -> Result<(), Error> {
        let (mut none, mut done) = (Vec::new(), Ok(()));
        for sid in sids {
            let Ok(limit) = rest(until) else {
                done = Err(Error::Unfinished);
                break;
            };
            match self.name_in(sid, limit)? {
                Some(name) if name.kind != Kind::Other => tell(sid, Some(name)),
                _ => none.push(sid),
            }
        }
        if !none.is_empty() {
            self.prove()?;
        }
        none.into_iter().for_each(|sid| tell(sid, None));
        done
    }

    pub(crate) fn sid_of(
        &mut self,
        domain: &str,
        name: &str,
    ) -> Result<Option<(Sid, Kind)>, Error> {
        self.sid_within(domain, name, QUESTION_MAX)
    }

    fn sid_within(
        &mut self,
        domain: &str,
        name: &str,
        limit: Duration,
    ) -> Result<Option<(Sid, Kind)>, Error> {
        let domain = if domain.is_empty() { &self.member.domain } else { domain };
        // SSSD would read a second domain out of it, or complete it.
        if name.is_empty() || name.contains('\\') || domain.contains(['\\', '@']) {
            return Ok(None);
        }
        let asked = given(&format!("{name}@{domain}"))?;
        let found = self.library.sid_of_name(&asked, limit)?;
        let found = self.proved(found)?;
        Ok(found.and_then(|(text, kind)| Some((text.parse().ok()?, kind))))
    }

    /// Asks for the identifiers of a user, of its primary group, and of its other groups. SSSD knows groups by number, so that a
    /// group without one is missing.
    pub(crate) fn sids_of_user(&mut self, user: &Sid) -> Result<Option<Vec<Sid>>, Error> {
        let until = Instant::now() + GROUPS_MAX;
        let found = self.library.name_of_sid(&text_of(user)?, QUESTION_MAX)?;
        let Some((text, Kind::User)) = self.proved(found)? else { return Ok(None) };
        let name = given(&text)?;
        let primary = self.library.primary_group(&name, QUESTION_MAX)?;
        let Some(primary) = self.proved(primary)? else { return Ok(None) };
        let limit = until.saturating_duration_since(Instant::now());
        let groups = self.library.groups(&name, primary, limit)?;
        let Some(mut groups) = self.proved(groups)? else { return Ok(None) };
        groups.retain(|gid| *gid != primary);
        groups.insert(0, primary);
        let numbers: Vec<Number> = groups.into_iter().map(Number::Gid).collect();
        let sids = self.sids_of(&numbers, until)?;
        if sids.first().is_none_or(Option::is_none) {
            return Err(Error::Unfinished);
        }
        Ok(Some([user.clone()].into_iter().chain(sids.into_iter().flatten()).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An sssd with these accounts: name, SID, and number.
    struct Lab {
        known: Vec<(&'static str, &'static str, Number)>,
        /// Whether sssd runs.
        is_there: bool,
        questions: usize,
    }

    const KNOWN: [(&str, &str, Number); 7] = [
        ("gw$@lab.test", "S-1-5-21-1-2-3-1105", Number::Uid(201_105)),
        ("krbtgt@lab.test", "S-1-5-21-1-2-3-502", Number::Uid(200_502)),
        ("krbtgt@LAB", "S-1-5-21-1-2-3-502", Number::Uid(200_502)),
        ("krbtgt@other.test", "S-1-5-21-4-5-6-502", Number::Uid(300_502)),
        ("alice@lab.test", "S-1-5-21-1-2-3-1103", Number::Uid(201_103)),
        ("domain users@lab.test", "S-1-5-21-1-2-3-513", Number::Gid(200_513)),
        ("writers@lab.test", "S-1-5-21-1-2-3-1200", Number::Gid(201_200)),
    ];

    fn lab() -> Context<Lab> {
        let member = Member { machine: "GW".into(), domain: "lab.test".into() };
        let library = Lab { known: KNOWN.to_vec(), is_there: true, questions: 0 };
        Context { member, own: None, library }
    }

    fn kind(number: Number) -> Kind {
        if matches!(number, Number::Gid(_)) { Kind::Group } else { Kind::User }
    }

    impl Lab {
        fn find(
            &mut self,
            is: impl Fn(&(&str, &str, Number)) -> bool,
        ) -> Option<(&'static str, &'static str, Number)> {
            self.questions += 1;
            self.known.iter().find(|one| self.is_there && is(one)).copied()
        }
    }

    impl Asked for Lab {
        fn sid_of_name(
            &mut self,
            name: &CStr,
            _: Duration,
        ) -> Result<Option<(String, Kind)>, Error> {
            let name = name.to_str().unwrap().to_owned();
            let is = |one: &(&str, &str, Number)| {
                let (asked, of) = name.rsplit_once('@').unwrap();
                one.0.rsplit_once('@') == Some((&asked.to_lowercase(), of))
            };
            Ok(self.find(is).map(|(_, sid, number)| (sid.into(), kind(number))))
        }

        fn sid_of_uid(&mut self, uid: u32, _: Duration) -> Result<Option<(String, Kind)>, Error> {
            let found = self.find(|one| one.2 == Number::Uid(uid));
            Ok(found.map(|(_, sid, number)| (sid.into(), kind(number))))
        }

        fn sid_of_gid(&mut self, gid: u32, _: Duration) -> Result<Option<(String, Kind)>, Error> {
            let found = self.find(|one| one.2 == Number::Gid(gid));
            Ok(found.map(|(_, sid, number)| (sid.into(), kind(number))))
        }

        fn name_of_sid(
            &mut self,
            sid: &CStr,
            _: Duration,
        ) -> Result<Option<(String, Kind)>, Error> {
            if sid == PROOF {
                self.questions += 1;
                let name = || ("Administrators@BUILTIN".to_owned(), Kind::Group);
                return Ok(self.is_there.then(name));
            }
            let sid = sid.to_str().unwrap().to_owned();
            let found = self.find(|one| one.1 == sid);
            Ok(found.map(|(name, _, number)| (name.into(), kind(number))))
        }

        fn number_of_sid(&mut self, sid: &CStr, _: Duration) -> Result<Option<Number>, Error> {
            let sid = sid.to_str().unwrap().to_owned();
            Ok(self.find(|one| one.1 == sid).map(|(_, _, number)| number))
        }

        fn primary_group(&mut self, user: &CStr, _: Duration) -> Result<Option<u32>, Error> {
            Ok((user == c"alice@lab.test").then_some(200_513))
        }

        fn groups(
            &mut self,
            _: &CStr,
            primary: u32,
            _: Duration,
        ) -> Result<Option<Vec<u32>>, Error> {
            // The last one has no SID.
            Ok(Some(vec![primary, 201_200, primary, 7]))
        }
    }

    fn sid(text: &str) -> Sid {
        text.parse().unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn machine_and_domain_are_found() {
        let mut lab = lab();
        let first = lab.own().unwrap();
        let (details, names) = first.clone();
        assert_eq!((&*details.machine, &*details.domain), ("GW", "LAB"));
        let names = names.unwrap();
        assert_eq!((names.sid, &*names.dns), (sid("S-1-5-21-1-2-3"), "lab.test"));
        // It stays so, and costs one question.
        let before = lab.library.questions;
        assert_eq!((lab.own(), lab.library.questions), (Ok(first), before + 1));
        lab.own = None;
        // A domain whose NetBIOS name is another, or not known to sssd yet.
        lab.library.known.retain(|one| one.0 != "krbtgt@LAB");
        let (details, names) = lab.own().unwrap();
        assert_eq!((&*details.domain, &*names.unwrap().name), ("", ""));
        // A domain of this name that is another.
        lab.library.known.push(("krbtgt@LAB", "S-1-5-21-7-8-9-502", Number::Uid(1)));
        assert_eq!(lab.own().unwrap().0.domain, "");
        // SSSD takes numbers from attributes, which these accounts do not have.
        lab.library.known.retain(|one| !one.0.starts_with(['g', 'k']));
        let (details, names) = lab.own().unwrap();
        assert_eq!((names, &*details.dns_domain), (None, "lab.test"));
        lab.library.is_there = false;
        assert_eq!(lab.own(), Err(Error::NotAvailable));
    }

    #[test]
    fn domains_are_told_apart() {
        let mut lab = lab();
        let mut of = |name: &str| lab.domain(name).unwrap().map(|found| found.sid);
        assert_eq!(of("other.test"), Some(sid("S-1-5-21-4-5-6")));
        assert_eq!(of("WORKGROUP"), None);
    }

    /// The library says the same of a name that does not exist and of an sssd that does not run.
    #[test]
    fn what_is_missing_is_proved() {
        let mut lab = lab();
        let alice = (sid("S-1-5-21-1-2-3-1103"), Kind::User);
        assert_eq!(lab.sid_of("lab.test", "Alice"), Ok(Some(alice.clone())));
        assert_eq!(lab.library.questions, 1);
        assert_eq!(lab.sid_of("", "alice"), Ok(Some(alice.clone())));
        assert_eq!(lab.sid_of("lab.test", "bob"), Ok(None));
        let no_name = [("lab.test", ""), ("lab.test", r"LAB\alice"), ("a@b", "alice")];
        for (domain, name) in no_name {
            assert_eq!(lab.sid_of(domain, name), Ok(None), "{name}");
        }
        assert_eq!(lab.sid_of("lab.test", "a\0b"), Err(Error::Invalid));
        let (bob, root) = (sid("S-1-5-21-1-2-3-9"), [Number::Uid(0), Number::Gid(201_200)]);
        let writers = sid("S-1-5-21-1-2-3-1200");
        assert_eq!(lab.name_of(&bob), Ok(None));
        assert_eq!(lab.sids_of(&root, soon()), Ok(vec![None, Some(writers)]));
        assert_eq!(lab.sids_of_user(&bob), Ok(None));
        let mut told = Vec::new();
        let asked = [bob.clone(), alice.0.clone()];
        let numbers = lab.numbers(&asked, soon(), |sid, number| told.push((sid.clone(), number)));
        assert_eq!(numbers, Ok(vec![None, Some(Number::Uid(201_103))]));
        assert_eq!(told, [(bob.clone(), None), (alice.0.clone(), Some(Number::Uid(201_103)))]);

        lab.library.is_there = false;
        let silent = Error::NotAvailable;
        assert_eq!(lab.sid_of("lab.test", "alice"), Err(silent.clone()));
        assert_eq!(lab.name_of(&bob), Err(silent.clone()));
        assert_eq!(lab.sids_of(&root, soon()), Err(silent.clone()));
        assert_eq!(lab.numbers(&asked, soon(), |_, _| {}), Err(silent.clone()));
        assert_eq!(lab.sids_of_user(&alice.0), Err(silent.clone()));
        let done = lab.names_of(&[bob], soon(), |_, _| panic!("nothing is known"));
        assert_eq!(done, Err(silent));
    }

    #[test]
    fn answers_end_in_time() {
        let mut lab = lab();
        let alice = [sid("S-1-5-21-1-2-3-1103")];
        let over = Instant::now();
        assert_eq!(lab.numbers(&alice, over, |_, _| {}), Err(Error::Unfinished));
        assert_eq!(lab.names_of(&alice, over, |_, _| {}), Err(Error::Unfinished));
        assert_eq!(lab.sids_of(&[Number::Uid(1)], over), Err(Error::Unfinished));
        assert_eq!(lab.library.questions, 0);
    }

    #[test]
    fn groups_begin_with_the_primary_one() {
        let mut lab = lab();
        let alice = sid("S-1-5-21-1-2-3-1103");
        let groups = [sid("S-1-5-21-1-2-3-513"), sid("S-1-5-21-1-2-3-1200")];
        let wanted = [&[alice.clone()][..], &groups].concat();
        assert_eq!(lab.sids_of_user(&alice), Ok(Some(wanted)));
        // The accounts of groups are no users.
        assert_eq!(lab.sids_of_user(&groups[1]), Ok(None));
    }

    /// `full_name_format` and `use_fully_qualified_names` of sssd.conf.
    #[test]
    fn names_are_read_in_all_forms() {
        let lab = lab();
        let (alice, well) = (sid("S-1-5-21-1-2-3-1103"), sid("S-1-5-11"));
        let other = sid("S-1-5-21-4-5-6-1104");
        let admins = sid("S-1-5-32-544");
        for (sid, text, kind, wanted) in [
            (&alice, "alice@lab.test", Kind::User, ("lab.test", "alice", Kind::User)),
            (&alice, r"LAB\alice", Kind::User, ("LAB", "alice", Kind::User)),
            (&alice, "alice", Kind::User, ("lab.test", "alice", Kind::User)),
            (&alice, "domain users", Kind::Group, ("lab.test", "domain users", Kind::Group)),
            (&other, "bob@home@other.test", Kind::User, ("other.test", "bob@home", Kind::User)),
            (
                &admins,
                "Administrators@BUILTIN",
                Kind::Group,
                ("BUILTIN", "Administrators", Kind::Alias),
            ),
            (
                &well,
                "Authenticated Users",
                Kind::Group,
                ("", "Authenticated Users", Kind::WellKnown),
            ),
        ] {
            let (domain, name, of) = wanted;
            let wanted = Name { domain: domain.into(), name: name.into(), kind: of };
            assert_eq!(lab.named(sid, text, kind), wanted, "{text}");
        }
    }

    #[test]
    fn usual_names_are_short() {
        let names = ["lab.test", "a-very-long-name-of-a-domain.example", ""].map(usual_name);
        assert_eq!(names, ["LAB", "A-VERY-LONG-NAM", ""]);
    }
}
