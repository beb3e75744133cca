//! Users and groups by name: `name@domain` (RFC 8881 section 5.9).
//!
//! *Operation.* Without a [`Domain`], users and groups are numbers in both directions, as with AUTH_SYS. With one, a user is sent
//! by name if a look-up of that name returns the same user, and names of the domain are accepted. Numbers are always accepted.
//! Entries of lists may be for Windows identifiers: they have names by the same rule, else they are sent as identifiers.
//! Attributes with unknown names are decoded twice: the first pass collects the names, then they are looked up together.
//!
//! *Memory.* [`KNOWN_MAX`] cached answers of the directory in each direction, for [`KNOWN_FOR`].
//!
//! *Errors.* BADOWNER for an unknown name. Without an answer of the directory, users are sent as numbers, and requests that set a
//! name get DELAY; that is not cached. A directory that times out is not queried for [`REST`].

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use iobuf::{ClientWork, current_client};
use mutex::locked;
use rdma_transport::parts::Limit;
use rdma_transport::turns::Turns;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use vfs::acl::{Ace, Acl, Sid, Who};

use super::limits::{NAME_QUERIES_MAX, NAME_QUERIES_OF_ADDRESS_MAX, OWNER_MAX};
use super::status::Status;

/// Cached answers of the directory in each direction.
const KNOWN_MAX: usize = 16_384;
/// Lifetime of a cached answer; renamed users are detected after it.
const KNOWN_FOR: Duration = Duration::from_secs(60);
/// Limit on an answer of the directory, in seconds.
pub(super) const PATIENCE_S: usize = 5;
const PATIENCE: Duration = Duration::from_secs(PATIENCE_S as u64);
/// Pause before the directory is queried again after a timeout.
const REST: Duration = Duration::from_secs(10);

/// Stands for queries that no client caused.
const OWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The directory knows no answer now: another machine is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered;

/// The name, without a domain, of the user or group of a Windows identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameOfSid {
    pub name: String,
    pub is_group: bool,
}

/// Maps names of owners, without their domain, to numbers and back. Calls may wait.
pub trait OwnerNames: Send + Sync + 'static {
    /// Returns the number of the user of this name.
    fn uid(&self, name: &str) -> Result<Option<u32>, Unanswered>;
    /// Returns the number of the group of this name.
    fn gid(&self, name: &str) -> Result<Option<u32>, Unanswered>;
    /// Returns the name of a user.
    fn user(&self, uid: u32) -> Result<Option<String>, Unanswered>;
    /// Returns the name of a group.
    fn group(&self, gid: u32) -> Result<Option<String>, Unanswered>;
    /// Returns the names of these Windows identifiers in their order: of users and groups to which the name leads back, by its
    /// number or by [`Self::sid`].
    fn names_in_lists(&self, sids: &[Sid]) -> Vec<Result<Option<NameOfSid>, Unanswered>> {
        vec![Ok(None); sids.len()]
    }
    /// Returns the Windows identifier of a user or group of this name without a number here.
    fn sid(&self, _name: &str, _is_group: bool) -> Result<Option<Sid>, Unanswered> {
        Ok(None)
    }
}

/// A user or group with a number here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Id {
    User(u32),
    Group(u32),
}

impl Id {
    /// The user or group of a list entry, if it has a number.
    fn of(ace: &Ace) -> Option<Self> {
        match ace {
            Ace::Simple { who: Who::User(uid), .. } => Some(Self::User(*uid)),
            Ace::Simple { who: Who::Members(gid), .. } => Some(Self::Group(*gid)),
            _ => None,
        }
    }

    /// All users and groups in a list.
    fn all_of(acl: &Acl) -> impl Iterator<Item = Self> {
        acl.entries().iter().filter_map(Self::of)
    }

    fn number(self) -> u32 {
        match self {
            Self::User(n) | Self::Group(n) => n,
        }
    }

    /// The name of this user or group, if a look-up of the name leads back to it.
    fn name(self, directory: &dyn OwnerNames) -> Result<Option<String>, Unanswered> {
        let name = match self {
            Self::User(uid) => directory.user(uid)?,
            Self::Group(gid) => directory.group(gid)?,
        };
        let Some(name) = name else { return Ok(None) };
        let is_same = find(directory, self, &name)? == Some(Meant::Number(self.number()));
        Ok(is_same.then_some(name))
    }
}

/// The user or group of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meant {
    Number(u32),
    /// It has no number here.
    Sid(Sid),
}

/// The user or group of this name.
fn find(directory: &dyn OwnerNames, kind: Id, name: &str) -> Result<Option<Meant>, Unanswered> {
    let (number, is_group) = match kind {
        Id::User(_) => (directory.uid(name)?, false),
        Id::Group(_) => (directory.gid(name)?, true),
    };
    match number {
        Some(number) => Ok(Some(Meant::Number(number))),
        None => Ok(directory.sid(name, is_group)?.map(Meant::Sid)),
    }
}

/// The users and groups of one reply that may have names.
#[derive(Debug, Default)]
pub(super) struct Mentioned {
    pub(super) ids: BTreeSet<Id>,
    pub(super) sids: BTreeSet<Sid>,
}

impl Mentioned {
    /// Adds all users and groups in a list. Only identifiers of domains have names of a domain.
    pub(super) fn add_list(&mut self, acl: &Acl) {
        const NT: u64 = 5;
        const DOMAIN: u32 = 21;
        self.ids.extend(Id::all_of(acl));
        for ace in acl.entries() {
            if let Ace::Simple { who: Who::Sid(sid), .. } = ace
                && sid.authority() == NT
                && sid.subs().first() == Some(&DOMAIN)
            {
                self.sids.insert(sid.clone());
            }
        }
    }
}

/// A name from a client, without its domain. The number in `kind` is ignored.
type Asked = (Id, String);

/// The directory timed out or knows no answer now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Late;

/// Questions with their answers.
type Answers<K, V> = Vec<(K, Option<V>)>;

/// Separates answers from questions without one.
fn answered<K, V>(
    told: Vec<(K, Result<Option<V>, Unanswered>)>,
) -> (Answers<K, V>, Result<(), Late>) {
    let asked = told.len();
    let told: Vec<_> =
        told.into_iter().filter_map(|(key, value)| Some((key, value.ok()?))).collect();
    let result = if told.len() == asked { Ok(()) } else { Err(Late) };
    (told, result)
}

/// Cached answers of the directory.
struct Known<K, V>(Mutex<HashMap<K, (Duration, Option<V>)>>);

impl<K: Eq + Hash + Clone, V: Clone> Known<K, V> {
    fn new() -> Self {
        Self(Mutex::default())
    }

    /// Splits the keys into cached answers and keys that must be looked up.
    fn split(&self, keys: impl Iterator<Item = K>, now: Duration) -> (Vec<(K, Option<V>)>, Vec<K>) {
        let known = locked(&self.0);
        let (mut there, mut missing) = (Vec::new(), Vec::new());
        for key in keys {
            match known.get(&key) {
                Some((until, value)) if now < *until => there.push((key, value.clone())),
                _ => missing.push(key),
            }
        }
        (there, missing)
    }

    fn put(&self, told: &[(K, Option<V>)], until: Duration, now: Duration) {
        let mut known = locked(&self.0);
        if known.len() + told.len() > KNOWN_MAX {
            known.retain(|_, (until, _)| now < *until);
        }
        if known.len() + told.len() > KNOWN_MAX {
            known.clear();
        }
        known.extend(told.iter().map(|(key, value)| (key.clone(), (until, value.clone()))));
    }
}

/// The domain of user and group names.
pub struct Domain {
    name: String,
    directory: Arc<dyn OwnerNames>,
    names: Known<Id, Arc<str>>,
    numbers: Known<Asked, Meant>,
    names_of_sids: Known<Sid, (Arc<str>, bool)>,
    asking: Arc<Turns>,
    wait_policy: Duration,
    /// The directory is not queried before this time.
    rests_until: Mutex<Duration>,
}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Domain({})", self.name)
    }
}

impl Domain {
    /// Creates a domain with this name and directory.
    pub fn new(name: &str, directory: Arc<dyn OwnerNames>) -> Self {
        Self {
            name: name.to_owned(),
            directory,
            names: Known::new(),
            numbers: Known::new(),
            names_of_sids: Known::new(),
            asking: Turns::new([
                Limit::new("name-queries", NAME_QUERIES_MAX),
                Limit::new("name-queries-of-address", NAME_QUERIES_OF_ADDRESS_MAX),
            ]),
            wait_policy: PATIENCE,
            rests_until: Mutex::default(),
        }
    }

    /// Looks up the names of these users and groups. Those without one are omitted.
    pub(super) async fn id_map(
        &self,
        mentioned: Mentioned,
        now: Duration,
    ) -> (IdMap, Result<(), Late>) {
        let (there, missing) = self.names.split(mentioned.ids.into_iter(), now);
        let (sids_there, sids) = self.names_of_sids.split(mentioned.sids.into_iter(), now);
        let mut id_map = IdMap::default();
        id_map.extend(there, sids_there);
        if missing.is_empty() && sids.is_empty() {
            return (id_map, Ok(()));
        }
        let domain = self.name.clone();
        let asked = self.ask(now, move |directory| {
            let shown = |name: String| shown(&name, &domain).map(Arc::<str>::from);
            let of_id = |id: Id| Ok(id.name(directory)?.and_then(shown));
            let ids = missing.into_iter().map(|id| (id, of_id(id))).collect::<Vec<_>>();
            let named = if sids.is_empty() { Vec::new() } else { directory.names_in_lists(&sids) };
            let of_sid = |found: Result<Option<NameOfSid>, Unanswered>| {
                Ok(found?.and_then(|one| Some((shown(one.name)?, one.is_group))))
            };
            (ids, sids.into_iter().zip(named.into_iter().map(of_sid)).collect::<Vec<_>>())
        });
        match asked.await {
            Ok((ids, sids)) => {
                let ((ids, ids_done), (sids, sids_done)) = (answered(ids), answered(sids));
                self.names.put(&ids, now + KNOWN_FOR, now);
                self.names_of_sids.put(&sids, now + KNOWN_FOR, now);
                id_map.extend(ids, sids);
                (id_map, ids_done.and(sids_done))
            }
            Err(late) => (id_map, Err(late)),
        }
    }

    /// Looks up these names; `None` for unknown ones.
    async fn find(&self, asked: Vec<Asked>, now: Duration) -> Result<Answers<Asked, Meant>, Late> {
        let (mut there, missing) = self.numbers.split(asked.into_iter(), now);
        if missing.is_empty() {
            return Ok(there);
        }
        let told = self.ask(now, |directory| {
            let told = missing.into_iter().map(|asked| {
                let found = find(directory, asked.0, &asked.1);
                (asked, found)
            });
            told.collect::<Vec<_>>()
        });
        let (told, result) = answered(told.await?);
        self.numbers.put(&told, now + KNOWN_FOR, now);
        result?;
        there.extend(told);
        Ok(there)
    }

    /// Queries the directory on a separate thread, because it may wait for another machine.
    async fn ask<T: Send + 'static>(
        &self,
        now: Duration,
        work: impl FnOnce(&dyn OwnerNames) -> T + Send + 'static,
    ) -> Result<T, Late> {
        let rests_until = || locked(&self.rests_until);
        if now < *rests_until() {
            return Err(Late);
        }
        let directory = self.directory.clone();
        let at = current_client().unwrap_or(OWN);
        // Without a turn the directory is not at fault: queries of the same client may have all of its threads.
        let turn = self.asking.take(at, 1, self.wait_policy).await.ok_or(Late)?;
        // A thread whose query timed out still runs, so it keeps its turn.
        let ask = spawn_blocking(move || {
            let _client = ClientWork::begin(at);
            (work(&*directory), turn).0
        });
        // A wait for the turn takes nothing of the directory's own time.
        match timeout(self.wait_policy, ask).await {
            Ok(Ok(answer)) => Ok(answer),
            _ => {
                *rests_until() = now + REST;
                Err(Late)
            }
        }
    }
}

/// The name in wire form; `None` if it would be read as a number, or is too long.
fn shown(name: &str, domain: &str) -> Option<String> {
    let is_number = name.bytes().all(|b| b.is_ascii_digit());
    let shown = format!("{name}@{domain}");
    (!is_number && shown.len() <= OWNER_MAX).then_some(shown)
}

/// Names of users and groups for one reply; those that it lacks are sent as numbers or identifiers.
#[derive(Debug, Default)]
pub(super) struct IdMap {
    names: BTreeMap<Id, Arc<str>>,
    /// Each with whether it is a group.
    names_of_sids: BTreeMap<Sid, (Arc<str>, bool)>,
}

impl IdMap {
    fn extend(&mut self, ids: Answers<Id, Arc<str>>, sids: Answers<Sid, (Arc<str>, bool)>) {
        self.names.extend(ids.into_iter().filter_map(|(id, name)| Some((id, name?))));
        self.names_of_sids.extend(sids.into_iter().filter_map(|(sid, found)| Some((sid, found?))));
    }

    /// The name of the user or group of this identifier, and whether it is a group.
    pub(super) fn name_of_sid(&self, sid: &Sid) -> Option<(&str, bool)> {
        self.names_of_sids.get(sid).map(|(name, is_group)| (&**name, *is_group))
    }

    /// The string for a user or group. `digits` is the buffer for a number.
    pub(super) fn text<'t>(&'t self, id: Id, digits: &'t mut Digits) -> &'t [u8] {
        match self.names.get(&id) {
            Some(name) => name.as_bytes(),
            None => number(id.number(), digits),
        }
    }

    /// Like [`IdMap::text`], for entries of a list.
    pub(super) fn shown(&self, id: Id) -> Cow<'_, [u8]> {
        match self.names.get(&id) {
            Some(name) => Cow::Borrowed(name.as_bytes()),
            None => Cow::Owned(number(id.number(), &mut Digits::default()).to_vec()),
        }
    }
}

/// Buffer for the digits of a number.
pub(super) type Digits = [u8; 10];

/// Formats a number as string.
fn number(mut number: u32, digits: &mut Digits) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        // Invariant: the remainder is one digit.
        #[allow(clippy::cast_possible_truncation)]
        let digit = (number % 10) as u8;
        digits[at] = b'0' + digit;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    &digits[at..]
}

/// The names in a client's request, with the numbers known so far.
#[derive(Debug, Default)]
pub(in crate::v4) struct Names<'a> {
    domain: Option<&'a Domain>,
    found: BTreeMap<Asked, Option<Meant>>,
    missing: BTreeSet<Asked>,
}

impl<'a> Names<'a> {
    /// Uses this domain; without one only numbers are accepted.
    pub(super) fn of(domain: Option<&'a Domain>) -> Self {
        Self { domain, ..Self::default() }
    }

    /// Returns the number of the user that this text names.
    pub(super) fn user(&mut self, text: &[u8]) -> Result<u32, Status> {
        numbered(self.meant(text, false)?)
    }

    pub(super) fn group(&mut self, text: &[u8]) -> Result<u32, Status> {
        numbered(self.meant(text, true)?)
    }

    /// Decodes a number, with or without a domain, or a name of the domain. An unknown name is collected for the look-up, and 0 is
    /// returned for now.
    pub(super) fn meant(&mut self, text: &[u8], is_group: bool) -> Result<Meant, Status> {
        if text.is_empty() {
            return Err(Status::Inval);
        }
        let text = std::str::from_utf8(text).map_err(|_| Status::BadOwner)?;
        let digits = text.split('@').next().unwrap_or_default();
        if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
            // Numbers above 32 bits are not valid.
            return digits.parse().map(Meant::Number).map_err(|_| Status::BadOwner);
        }
        // A name without a domain means that the sender could not translate it.
        let (name, domain) = text.rsplit_once('@').ok_or(Status::BadOwner)?;
        if name.is_empty() || !self.domain.is_some_and(|d| d.name.eq_ignore_ascii_case(domain)) {
            return Err(Status::BadOwner);
        }
        let kind = if is_group { Id::Group(0) } else { Id::User(0) };
        let asked = (kind, name.to_owned());
        match self.found.get(&asked) {
            Some(found) => found.clone().ok_or(Status::BadOwner),
            None => {
                self.missing.insert(asked);
                Ok(Meant::Number(0))
            }
        }
    }

    /// Looks up the collected names; true if there were any, so that the request must be decoded again.
    pub(super) async fn learn(&mut self, now: Duration) -> Result<bool, Late> {
        let missing: Vec<Asked> = std::mem::take(&mut self.missing).into_iter().collect();
        match self.domain {
            Some(domain) if !missing.is_empty() => {
                self.found.extend(domain.find(missing, now).await?);
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

/// A file's owner has a number.
fn numbered(meant: Meant) -> Result<u32, Status> {
    match meant {
        Meant::Number(number) => Ok(number),
        Meant::Sid(_) => Err(Status::BadOwner),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    /// Three users, one with the name of another and one with a numeric name, and a group; counts queries.
    #[derive(Default)]
    struct Small(AtomicUsize);

    impl OwnerNames for Small {
        fn uid(&self, name: &str) -> Result<Option<u32>, Unanswered> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let found = [("alice", 1000), ("1002", 1002)].iter().find(|(n, _)| *n == name);
            Ok(found.map(|(_, uid)| *uid))
        }
        fn gid(&self, name: &str) -> Result<Option<u32>, Unanswered> {
            Ok((name == "staff").then_some(50))
        }
        fn user(&self, uid: u32) -> Result<Option<String>, Unanswered> {
            let known = [(1000, "alice"), (1001, "alice"), (1002, "1002")];
            Ok(known.iter().find(|(n, _)| *n == uid).map(|(_, name)| (*name).to_owned()))
        }
        fn group(&self, gid: u32) -> Result<Option<String>, Unanswered> {
            Ok((gid == 50).then(|| "staff".into()))
        }
    }

    const NOW: Duration = Duration::from_secs(100);

    fn of<const N: usize>(ids: [Id; N]) -> Mentioned {
        Mentioned { ids: ids.into(), ..Mentioned::default() }
    }

    fn told(id_map: &IdMap, id: Id) -> Vec<u8> {
        id_map.text(id, &mut Digits::default()).to_vec()
    }

    #[tokio::test]
    async fn users_are_shown_by_unique_name() {
        let domain = Domain::new("example.org", Arc::new(Small::default()));
        let ids = [Id::User(1000), Id::User(1001), Id::User(1002), Id::User(7), Id::Group(50)];
        let (id_map, late) = domain.id_map(of(ids), NOW).await;
        assert_eq!(late, Ok(()));
        let shown = ids.map(|id| String::from_utf8(told(&id_map, id)).unwrap());
        assert_eq!(shown, ["alice@example.org", "1001", "1002", "7", "staff@example.org"]);
        assert_eq!(told(&IdMap::default(), Id::User(u32::MAX)), b"4294967295");
    }

    #[tokio::test]
    async fn domain_names_and_numbers_are_accepted() {
        let domain = Domain::new("example.org", Arc::new(Small::default()));
        let mut names = Names::of(Some(&domain));
        assert_eq!(
            (names.user(b"alice@EXAMPLE.org"), names.user(b"bob@example.org")),
            (Ok(0), Ok(0))
        );
        assert_eq!(names.group(b"staff@example.org"), Ok(0));
        assert_eq!(names.learn(NOW).await, Ok(true));
        assert_eq!(names.user(b"alice@EXAMPLE.org"), Ok(1000));
        assert_eq!(names.user(b"bob@example.org"), Err(Status::BadOwner));
        assert_eq!(names.group(b"staff@example.org"), Ok(50));
        assert_eq!(names.learn(NOW).await, Ok(false), "all are known");
        for mut names in [names, Names::default()] {
            assert_eq!(names.user(b"4294967295"), Ok(u32::MAX));
            assert_eq!(names.group(b"100@elsewhere"), Ok(100));
            assert_eq!(names.user(b""), Err(Status::Inval));
            for bad in [
                &b"4294967296"[..],
                b"alice",
                b"@example.org",
                b"alice@elsewhere",
                b"\xff@example.org",
            ] {
                assert_eq!(names.user(bad), Err(Status::BadOwner), "{bad:?}");
            }
            assert_eq!(names.learn(NOW).await, Ok(false));
        }
    }

    #[tokio::test]
    async fn cached_names_expire() {
        let small = Arc::new(Small::default());
        let domain = Domain::new("d", small.clone());
        let mut asked = Vec::new();
        for now in [NOW, NOW, NOW + KNOWN_FOR] {
            let (id_map, _) = domain.id_map(of([Id::User(1000)]), now).await;
            assert_eq!(told(&id_map, Id::User(1000)), b"alice@d");
            asked.push(small.0.load(Ordering::Relaxed));
        }
        assert_eq!(asked, [1, 1, 2]);
        let one = |n| (Id::User(n), Some("x".into()));
        let known = Known::<Id, Arc<str>>::new();
        known.put(&(0..16_384).map(one).collect::<Vec<_>>(), NOW, NOW);
        known.put(&[one(16_384)], NOW + KNOWN_FOR, NOW);
        assert_eq!(known.0.lock().unwrap().len(), 1, "what is over makes room");
    }

    /// Answers only when the test permits it.
    struct Stuck(Mutex<mpsc::Receiver<()>>);

    impl OwnerNames for Stuck {
        fn uid(&self, _: &str) -> Result<Option<u32>, Unanswered> {
            let _ = self.0.lock().unwrap().recv();
            Ok(Some(5))
        }
        fn gid(&self, _: &str) -> Result<Option<u32>, Unanswered> {
            Ok(None)
        }
        fn user(&self, _: u32) -> Result<Option<String>, Unanswered> {
            Ok(Some("late".into()))
        }
        fn group(&self, _: u32) -> Result<Option<String>, Unanswered> {
            Ok(None)
        }
        fn names_in_lists(&self, sids: &[Sid]) -> Vec<Result<Option<NameOfSid>, Unanswered>> {
            let _ = self.0.lock().unwrap().recv();
            let one = NameOfSid { name: "late".into(), is_group: true };
            vec![Ok(Some(one)); sids.len()]
        }
    }

    /// Answers about alice; about others from the second question on.
    #[derive(Default)]
    struct Waking(AtomicUsize);

    impl OwnerNames for Waking {
        fn uid(&self, name: &str) -> Result<Option<u32>, Unanswered> {
            match name {
                "alice" => Ok(Some(1000)),
                _ if self.0.fetch_add(1, Ordering::Relaxed) == 0 => Err(Unanswered),
                _ => Ok(Some(1001)),
            }
        }
        fn gid(&self, _: &str) -> Result<Option<u32>, Unanswered> {
            Ok(None)
        }
        fn user(&self, uid: u32) -> Result<Option<String>, Unanswered> {
            Ok(Some(if uid == 1000 { "alice" } else { "bob" }.into()))
        }
        fn group(&self, _: u32) -> Result<Option<String>, Unanswered> {
            Err(Unanswered)
        }
    }

    #[tokio::test]
    async fn silence_is_not_cached() {
        let domain = Domain::new("d", Arc::new(Waking::default()));
        let mut names = Names::of(Some(&domain));
        for text in [b"alice@d", &b"bob@d"[..]] {
            names.user(text).unwrap();
        }
        assert_eq!(names.learn(NOW).await, Err(Late));
        for text in [b"alice@d", &b"bob@d"[..]] {
            names.user(text).unwrap();
        }
        assert_eq!(names.learn(NOW).await, Ok(true), "it is asked at once");
        assert_eq!((names.user(b"alice@d"), names.user(b"bob@d")), (Ok(1000), Ok(1001)));

        let domain = Domain::new("d", Arc::new(Waking::default()));
        let ids = [Id::User(1000), Id::User(1001), Id::Group(7)];
        for (wanted, late) in
            [(["alice@d", "1001", "7"], Err(Late)), (["alice@d", "bob@d", "7"], Err(Late))]
        {
            let (id_map, done) = domain.id_map(of(ids), NOW).await;
            let shown = ids.map(|id| String::from_utf8(told(&id_map, id)).unwrap());
            assert_eq!((shown, done), (wanted.map(str::to_owned), late));
        }
    }

    #[tokio::test]
    async fn stuck_directory_falls_back_to_numbers() {
        let (let_it, waits) = mpsc::channel();
        let mut domain = Domain::new("d", Arc::new(Stuck(waits.into())));
        domain.wait_policy = Duration::from_millis(1);
        let (id_map, late) = domain.id_map(of([Id::User(5)]), NOW).await;
        assert_eq!((told(&id_map, Id::User(5)), late), (b"5".to_vec(), Err(Late)));
        drop(let_it);
        domain.wait_policy = PATIENCE;
        let mut names = Names::of(Some(&domain));
        names.user(b"late@d").unwrap();
        assert_eq!(names.learn(NOW).await, Err(Late), "it rests");
        names.user(b"late@d").unwrap();
        assert_eq!(names.learn(NOW + REST).await, Ok(true));
        assert_eq!(names.user(b"late@d"), Ok(5));
    }

    #[tokio::test]
    async fn stuck_directory_falls_back_to_identifiers() {
        let (let_it, waits) = mpsc::channel();
        let mut domain = Domain::new("d", Arc::new(Stuck(waits.into())));
        domain.wait_policy = Duration::from_millis(1);
        let sid = Sid::new(5, &[21, 1, 2, 3, 1200]).unwrap();
        let of = || Mentioned { sids: [sid.clone()].into(), ..Mentioned::default() };
        let (id_map, late) = domain.id_map(of(), NOW).await;
        assert_eq!((id_map.name_of_sid(&sid), late), (None, Err(Late)));
        drop(let_it);
        domain.wait_policy = PATIENCE;
        let (id_map, late) = domain.id_map(of(), NOW).await;
        assert_eq!((id_map.name_of_sid(&sid), late), (None, Err(Late)), "it rests");
        let (id_map, late) = domain.id_map(of(), NOW + REST).await;
        assert_eq!((id_map.name_of_sid(&sid), late), (Some(("late@d", true)), Ok(())));
    }

    /// One address whose queries hang leaves threads, and the directory, to others.
    #[tokio::test]
    async fn hanging_queries_of_address_leave_threads_to_others() {
        let (let_it, waits) = mpsc::channel();
        let mut domain = Domain::new("d", Arc::new(Stuck(waits.into())));
        domain.wait_policy = Duration::from_secs(1);
        let domain = Arc::new(domain);
        let query = |n: u8| {
            let (domain, at) = (domain.clone(), IpAddr::from([192, 0, 2, n]));
            async move {
                // Only to take the turn: the rest after a time-out is not under test.
                domain.asking.take(at, 1, Duration::from_millis(50)).await
            }
        };
        let mut held = Vec::new();
        while let Some(turn) = query(1).await {
            held.push(turn);
        }
        assert_eq!(held.len(), NAME_QUERIES_OF_ADDRESS_MAX);
        assert!(query(2).await.is_some(), "another address");
        let _work = iobuf::ClientWork::begin([192, 0, 2, 1].into());
        let mut names = Names::of(Some(&*domain));
        names.user(b"late@d").unwrap();
        assert_eq!(names.learn(NOW).await, Err(Late), "no turn");
        assert_eq!(*domain.rests_until.lock().unwrap(), Duration::ZERO, "others may ask");
        drop(let_it);
    }
}
