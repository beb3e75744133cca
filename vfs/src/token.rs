//! The identities of a caller beside its numbers: security identifiers of a domain.
//!
//! *Operation.* A ticket of Active Directory contains the identifiers of its user: [`Token::of_ticket`]. Other callers have
//! numbers only: accounts of the gateway, whose groups are complete ([`Token::of_account`]), and those that state their numbers
//! (AUTH_SYS, a ticket without a PAC), to which a gateway in a domain gives [`Token::of_host`]. An identifier with a number
//! matches if the number does. Other identifiers do not match a caller whose numbers are unmapped ([`crate::callers`]).
//! Otherwise the gateway cannot tell: an entry that allows does not apply, and an entry that denies does. In a gateway outside
//! a domain no caller has an identifier of one.
//!
//! *Memory.* Each logon allocates its token once; all its requests share it. A check asks no name service.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Instant;

use mutex::{reading, writing};
use wire::Sid;

use crate::callers::{AskService, Asking, CallerNumber, Callers};
use crate::types::{ANONYMOUS, Cred};

/// RIDs of a domain are below this number (MS-ADTS section 3.1.1.5.2.4).
const RIDS_END: u32 = 1 << 30;
/// Numbers of a domain are below this number.
const NUMBERS_END: u32 = 0x7800_0000;
/// Most users whose identifiers and names are kept.
const USERS_MAX: usize = 65_536;
/// Most groups whose identifiers are kept.
const GROUPS_MAX: usize = 65_536;
/// Domain Admins, who are members of Administrators of each computer of the domain (MS-DTYP section 2.4.2.4).
const DOMAIN_ADMINS: u32 = 512;
/// Domain Guests, who are members of Guests of each computer of the domain.
const DOMAIN_GUESTS: u32 = 514;
/// The Guest account of a domain or of a computer.
const GUEST: u32 = 501;
/// Other Organization, S-1-5-1000: the domain restricts the caller.
const OTHER_ORGANIZATION: u32 = 1000;
/// Most groups in a call with AUTH_SYS (RFC 5531 appendix A): a caller with as many may have more.
const SYS_GROUPS_MAX: usize = 16;

/// Groups of every domain (MS-DTYP section 2.4.2.4), with their English names.
pub const DOMAIN_GROUPS: [(u32, &str); 8] = [
    (DOMAIN_ADMINS, "Domain Admins"),
    (513, "Domain Users"),
    (514, "Domain Guests"),
    (515, "Domain Computers"),
    (516, "Domain Controllers"),
    (518, "Schema Admins"),
    (519, "Enterprise Admins"),
    (520, "Group Policy Creator Owners"),
];

/// The domain whose tickets the gateway accepts, and the mapping between its identifiers and numbers of this host.
#[derive(Default)]
pub struct Domain {
    /// The number of RID 0, where numbers are made of RIDs.
    base: Option<u32>,
    /// A service of this host gives each identifier a number of its own.
    by_service: bool,
    /// Identifier and names of the domain, after the first ticket.
    identity: OnceLock<DomainIdentity>,
    /// Identifier of this computer, whose accounts winbind knows as well.
    machine: OnceLock<Sid>,
    users: RwLock<Users>,
    callers: Callers,
}

/// Identifier and names of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainIdentity {
    /// Its identifier.
    pub sid: Sid,
    /// Its NetBIOS name.
    pub name: String,
    /// Its name in DNS.
    pub dns: String,
}

/// Users of accepted tickets.
#[derive(Default)]
struct Users {
    /// Identifiers by numbers, where these are not made of RIDs.
    by_uid: HashMap<u32, Sid>,
    /// The same, by identifiers.
    uids: HashMap<Sid, u32>,
    /// Identifiers of groups by numbers, and numbers by identifiers, where these are not made of RIDs.
    by_gid: HashMap<u32, Sid>,
    gids: HashMap<Sid, u32>,
    /// Numbers with an identifier of which the service has not said whether it is of the number's kind.
    open: HashSet<CallerNumber>,
    /// Names by identifiers.
    names: HashMap<Sid, String>,
    /// Identifiers of this domain by names in lower case, as Active Directory ignores case.
    by_name: HashMap<String, Sid>,
}

/// Removes the number of an identity that another one has now. The identity may have a further number, which stays.
fn forget_number(numbers: &mut HashMap<Sid, u32>, sid: &Sid, number: u32) {
    if numbers.get(sid) == Some(&number) {
        numbers.remove(sid);
    }
}

impl Users {
    /// Stores a name. A name belongs to the user with the latest ticket: an account may be renamed, and another one made anew.
    fn name(&mut self, sid: &Sid, name: &str, is_of_domain: bool) {
        if self.names.len() >= USERS_MAX && !self.names.contains_key(sid) {
            return;
        }
        let before = self.names.insert(sid.clone(), name.to_owned());
        if let Some(before) = before.map(|before| before.to_lowercase())
            && self.by_name.get(&before) == Some(sid)
        {
            self.by_name.remove(&before);
        }
        if is_of_domain {
            self.by_name.insert(name.to_lowercase(), sid.clone());
        }
    }
}

impl Domain {
    /// Creates a domain whose numbers start at `base`; `None` if its users have numbers by their names.
    pub fn new(base: Option<u32>) -> Arc<Self> {
        Arc::new(Self { base, ..Self::default() })
    }

    /// Creates a domain whose identifiers have numbers by a service of this host, winbind.
    pub fn by_service() -> Arc<Self> {
        Arc::new(Self { by_service: true, ..Self::default() })
    }

    /// Returns the number of RID 0, if numbers are made of RIDs.
    pub fn base(&self) -> Option<u32> {
        self.base
    }

    /// Returns the identifier of the domain.
    pub fn sid(&self) -> Option<&Sid> {
        self.identity.get().map(|identity| &identity.sid)
    }

    /// Returns identifier and names of the domain.
    pub fn identity(&self) -> Option<&DomainIdentity> {
        self.identity.get()
    }

    /// Sets identifier and names of the domain once. Returns whether they were unset.
    pub fn know(&self, identity: DomainIdentity) -> bool {
        self.identity.set(identity).is_ok()
    }

    /// Sets the identifier of this computer once: its accounts are of no domain.
    pub fn know_machine(&self, sid: &Sid) {
        self.machine.get_or_init(|| sid.clone());
    }

    /// Stores the number and the name of a user with a ticket. Returns whether they were unknown.
    pub fn know_user(&self, uid: u32, sid: &Sid, name: &str) -> bool {
        let has_number = uid == 0 || self.number(sid) == Some(uid);
        let is_known = |users: &Users| {
            (has_number || users.by_uid.get(&uid) == Some(sid))
                && users.names.get(sid).is_some_and(|known| known == name)
        };
        if is_known(&reading(&self.users)) {
            return false;
        }
        let mut users = writing(&self.users);
        if !has_number && (users.by_uid.len() < USERS_MAX || users.by_uid.contains_key(&uid)) {
            if let Some(before) = users.by_uid.insert(uid, sid.clone()) {
                forget_number(&mut users.uids, &before, uid);
            }
            users.uids.insert(sid.clone(), uid);
            users.open.remove(&CallerNumber::User(uid));
        }
        self.callers.forget(CallerNumber::User(uid));
        // Users of other domains may have the same names.
        users.name(sid, name, self.sid().is_some_and(|domain| sid.rid_in(domain).is_some()));
        true
    }

    /// Stores the number of a user whose name is not needed, except those of the superuser and of anonymous callers. Returns
    /// whether it was unknown.
    pub fn know_uid(&self, uid: u32, sid: &Sid) -> bool {
        let is_known = |users: &Users| {
            users.by_uid.get(&uid) == Some(sid) && users.uids.get(sid) == Some(&uid)
        };
        let has_number = [0, ANONYMOUS].contains(&uid) || self.number(sid) == Some(uid);
        if has_number || is_known(&reading(&self.users)) {
            return false;
        }
        let mut users = writing(&self.users);
        if users.by_uid.len() >= USERS_MAX && !users.by_uid.contains_key(&uid) {
            self.callers.forget(CallerNumber::User(uid));
            return false;
        }
        if let Some(before) = users.by_uid.insert(uid, sid.clone()) {
            forget_number(&mut users.uids, &before, uid);
        }
        users.uids.insert(sid.clone(), uid);
        users.open.remove(&CallerNumber::User(uid));
        self.callers.forget(CallerNumber::User(uid));
        true
    }

    /// Stores the number of a group, except those of the superuser's group and of anonymous callers. Returns whether it was
    /// unknown.
    pub fn know_group(&self, gid: u32, sid: &Sid) -> bool {
        let is_known = |users: &Users| {
            users.by_gid.get(&gid) == Some(sid) && users.gids.get(sid) == Some(&gid)
        };
        let has_number = [0, ANONYMOUS].contains(&gid) || self.number(sid) == Some(gid);
        if has_number || is_known(&reading(&self.users)) {
            return false;
        }
        let mut users = writing(&self.users);
        if users.by_gid.len() >= GROUPS_MAX && !users.by_gid.contains_key(&gid) {
            self.callers.forget(CallerNumber::Group(gid));
            return false;
        }
        if let Some(before) = users.by_gid.insert(gid, sid.clone()) {
            forget_number(&mut users.gids, &before, gid);
        }
        users.gids.insert(sid.clone(), gid);
        users.open.remove(&CallerNumber::Group(gid));
        self.callers.forget(CallerNumber::Group(gid));
        true
    }

    /// Stores that owners of files with this number show this identity, which is not of the number's kind, or may not be
    /// (`is_open`): a service may give users and groups each number as uid and as gid. Entries of lists keep the identity.
    pub fn know_shown(&self, number: CallerNumber, sid: &Sid, is_open: bool) {
        let mut users = writing(&self.users);
        let Users { by_uid, by_gid, uids, gids, open, .. } = &mut *users;
        let (by_number, numbers, n, most) = match number {
            CallerNumber::User(uid) => (by_uid, uids, uid, USERS_MAX),
            CallerNumber::Group(gid) => (by_gid, gids, gid, GROUPS_MAX),
        };
        let has_place = by_number.len() < most || by_number.contains_key(&n);
        if ![0, ANONYMOUS].contains(&n) && has_place {
            if let Some(before) = by_number.insert(n, sid.clone()) {
                forget_number(numbers, &before, n);
            }
            match is_open {
                true => open.insert(number),
                false => open.remove(&number),
            };
        }
        self.callers.forget(number);
    }

    /// Stores the identity of a number that a caller has stated; `is_of_kind`: it is a user, or a group, as the number is. Such
    /// callers invent numbers, of which a service may make an identity each: half of the tables is for users that log on and owners
    /// of files.
    pub fn know_caller(&self, number: CallerNumber, sid: &Sid, is_of_kind: bool) {
        let users = reading(&self.users);
        let has_place = match number {
            CallerNumber::User(uid) => {
                users.by_uid.len() < USERS_MAX / 2 || users.by_uid.contains_key(&uid)
            }
            CallerNumber::Group(gid) => {
                users.by_gid.len() < GROUPS_MAX / 2 || users.by_gid.contains_key(&gid)
            }
        };
        drop(users);
        // An earlier answer is wrong now, also where the table has no place for the identity.
        self.callers.forget(number);
        match number {
            _ if !has_place => {}
            _ if !is_of_kind => self.know_shown(number, sid, false),
            CallerNumber::User(uid) => drop(self.know_uid(uid, sid)),
            CallerNumber::Group(gid) => drop(self.know_group(gid, sid)),
        }
    }

    /// Returns number, identifier and name of each known user, in the order of identifiers.
    pub fn known_users(&self) -> Vec<(u32, Sid, String)> {
        let users = reading(&self.users);
        let number = |sid: &Sid| self.number(sid).or_else(|| users.uids.get(sid).copied());
        let of = |(sid, name): (&Sid, &String)| Some((number(sid)?, sid.clone(), name.clone()));
        let mut all: Vec<_> = users.names.iter().filter_map(of).collect();
        all.sort_unstable_by(|(_, a, _), (_, b, _)| a.cmp(b));
        all
    }

    /// Returns the name of a user whose ticket was accepted.
    pub fn user_name(&self, sid: &Sid) -> Option<String> {
        reading(&self.users).names.get(sid).cloned()
    }

    /// Returns the identifier of a user of the domain whose ticket was accepted. Active Directory ignores case.
    pub fn user_named(&self, name: &str) -> Option<Sid> {
        reading(&self.users).by_name.get(&name.to_lowercase()).cloned()
    }

    /// Returns the number of an identifier of this domain, a user or a group.
    pub fn number(&self, sid: &Sid) -> Option<u32> {
        self.number_of_rid(sid.rid_in(self.sid()?)?)
    }

    fn number_of_rid(&self, rid: u32) -> Option<u32> {
        let number = self.base?.checked_add(rid)?;
        (rid < RIDS_END && number < NUMBERS_END && number != ANONYMOUS).then_some(number)
    }

    /// Returns the RID of this number.
    fn rid(&self, number: u32) -> Option<u32> {
        let rid = number.checked_sub(self.base?)?;
        self.number_of_rid(rid).map(|_| rid)
    }

    fn by_number(&self, number: u32) -> Option<Sid> {
        self.sid()?.child(self.rid(number)?)
    }

    /// Returns the identifier of the user with this number.
    pub fn sid_of_user(&self, uid: u32) -> Option<Sid> {
        self.by_number(uid).or_else(|| reading(&self.users).by_uid.get(&uid).cloned())
    }

    /// Returns the identifier of the group with this number.
    pub fn sid_of_group(&self, gid: u32) -> Option<Sid> {
        self.by_number(gid).or_else(|| reading(&self.users).by_gid.get(&gid).cloned())
    }

    /// Returns the number of the group with this identifier.
    pub fn gid(&self, sid: &Sid) -> Option<u32> {
        self.number(sid).or_else(|| reading(&self.users).gids.get(sid).copied())
    }

    /// Checks whether the user or group with this identifier has a number of the caller.
    fn has_number_of(&self, sid: &Sid, cred: &Cred) -> bool {
        self.uid(sid) == Some(cred.uid) || self.gid(sid).is_some_and(|gid| cred.in_group(gid))
    }

    /// Returns the number of the user with this identifier.
    pub fn uid(&self, sid: &Sid) -> Option<u32> {
        self.number(sid).or_else(|| reading(&self.users).uids.get(sid).copied())
    }

    /// Returns the answers of the service about numbers of callers.
    pub fn callers(&self) -> &Callers {
        &self.callers
    }

    /// Sets what asks the service about numbers of callers.
    pub fn set_asker(&self, asker: Arc<dyn AskService>) {
        self.callers.set_asker(asker);
    }

    /// Asks, for a client at this address, about the numbers of a caller for which the service has not answered. Returns `None` if
    /// it has answered about all. Ends after some seconds at most.
    pub fn learn(&self, from: IpAddr, cred: &Cred) -> Option<Asking> {
        let needs_none = cred.uid == ANONYMOUS || cred.token.is_by_ticket();
        // A question would wait for nothing while the service is silent.
        if !self.by_service || needs_none || self.callers.is_silent() {
            return None;
        }
        let (mut numbers, now) = (self.unanswered(CallerNumber::all_of(cred)), Instant::now());
        // Callers that take turns on one connection would each wait for every call.
        numbers.retain(|number| !self.callers.is_asked(*number, now));
        if numbers.is_empty() { None } else { self.callers.ask(from, numbers) }
    }

    /// Returns whether the identity of a number is known, and whether that is a user or a group.
    pub fn is_settled(&self, number: CallerNumber) -> bool {
        let has_sid = match number {
            CallerNumber::User(uid) => self.sid_of_user(uid).is_some(),
            CallerNumber::Group(gid) => self.sid_of_group(gid).is_some(),
        };
        has_sid && !reading(&self.users).open.contains(&number)
    }

    /// Returns the numbers among these whose identity is unknown and about which the gateway keeps no answer that counts.
    pub fn unanswered(&self, numbers: impl IntoIterator<Item = CallerNumber>) -> Vec<CallerNumber> {
        let now = Instant::now();
        let is_open =
            |number: &CallerNumber| !self.is_settled(*number) && !self.callers.has(*number, now);
        numbers.into_iter().filter(is_open).collect()
    }

    /// Returns the relation of a caller without a ticket to the domain.
    fn standing(&self, cred: &Cred, proof: Proof) -> Standing {
        if !self.by_service {
            return Standing::NoService;
        }
        let is_of_machine =
            |sid: &Sid| self.machine.get().is_some_and(|machine| sid.rid_in(machine).is_some());
        let user = self.sid_of_user(cred.uid);
        let is_own = user.as_ref().is_some_and(is_of_machine);
        if user.is_some() && !is_own {
            return Standing::Member;
        }
        let now = Instant::now();
        let is_unmapped = |number| self.callers.is_unmapped(number, proof == Proof::Account, now);
        let are_complete = proof == Proof::Account || cred.groups.len() < SYS_GROUPS_MAX;
        let is_outside = are_complete
            && CallerNumber::all_of(cred).all(|number| match number {
                // A group of the domain matches by its number.
                CallerNumber::Group(gid) => is_unmapped(number) || self.sid_of_group(gid).is_some(),
                CallerNumber::User(_) => is_own || is_unmapped(number),
            });
        if is_outside { Standing::Outside } else { Standing::Unknown }
    }
}

/// How the identities of a caller are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// A ticket, or a controller that has checked a password, shows all of them.
    Ticket,
    /// A password of the gateway shows the numbers of user and groups.
    Account,
    /// The caller states its numbers.
    None,
}

/// The relation of a caller without a ticket to the domain, as far as the gateway knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The numbers of the caller are unmapped, except for groups of the domain, which match by number.
    Outside,
    /// The caller has the number of a user of a domain.
    Member,
    /// The service has not said.
    Unknown,
    /// No service knows the numbers of users of the domain.
    NoService,
}

/// Why the gateway cannot tell whether a caller has an identity of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsure {
    /// It has the number of a user of the domain, whose groups only a logon shows.
    Member,
    /// The service has not said whether identities of the domain have its numbers.
    Unanswered,
    /// No service knows that.
    NoService,
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Domain({:?}, {:?})", self.identity.get(), self.base)
    }
}

/// Identifiers of one caller.
struct Identities {
    /// The domain of the gateway.
    domain: Option<Arc<Domain>>,
    proof: Proof,
    /// The caller has logged on by NTLM.
    by_ntlm: bool,
    /// Identifier of the user.
    user: Option<Sid>,
    /// All identifiers, sorted.
    sids: Box<[Sid]>,
    /// Numbers of the identifiers that have one, sorted.
    numbers: Box<[u32]>,
    /// The caller is a member of Domain Admins.
    is_admin: bool,
    /// The caller is a member of Domain Guests.
    is_in_guests: bool,
}

/// The identifiers of a caller; cheap to clone.
#[derive(Clone, Default)]
pub struct Token(Option<Arc<Identities>>);

impl Token {
    /// Token of callers of a gateway outside a domain.
    pub const NONE: Self = Self(None);

    /// Creates the token of callers with numbers only, in a gateway in this domain.
    pub fn of_host(domain: &Arc<Domain>) -> Self {
        Self::of_numbers(Some(domain), Proof::None)
    }

    /// Creates the token of accounts of the gateway, and of guests, which log on by NTLM; `domain` is the domain of the gateway.
    pub fn of_account(domain: Option<&Arc<Domain>>) -> Self {
        Self::of_numbers(domain, Proof::Account)
    }

    /// Returns the token of an account in the same domain.
    pub(crate) fn for_account(&self) -> Self {
        Self::of_account(self.0.as_ref().and_then(|ids| ids.domain.as_ref()))
    }

    fn of_numbers(domain: Option<&Arc<Domain>>, proof: Proof) -> Self {
        Self(Some(Arc::new(Identities {
            domain: domain.cloned(),
            proof,
            by_ntlm: proof == Proof::Account,
            user: None,
            sids: Box::new([]),
            numbers: Box::new([]),
            is_admin: false,
            is_in_guests: false,
        })))
    }

    /// Creates the token of a user with a ticket: `others` are primary group, groups, extra identifiers and resource groups (MS-PAC
    /// section 2.5). Omits aliases of `BUILTIN`, because those are of another computer.
    pub fn of_ticket(
        domain: &Arc<Domain>,
        user: Sid,
        others: impl IntoIterator<Item = Sid>,
    ) -> Self {
        let is_builtin = |sid: &Sid| sid.authority() == 5 && sid.subs().first() == Some(&32);
        let others = others.into_iter().filter(|sid| !is_builtin(sid));
        let mut sids: Vec<Sid> = std::iter::once(user.clone()).chain(others).collect();
        sids.sort_unstable();
        sids.dedup();
        let mut numbers: Vec<u32> = sids.iter().filter_map(|sid| domain.number(sid)).collect();
        numbers.sort_unstable();
        let has = |rid: u32| {
            let is_it = |sid: &Sid| domain.sid().is_some_and(|d| sid.rid_in(d) == Some(rid));
            sids.iter().any(is_it)
        };
        Self(Some(Arc::new(Identities {
            domain: Some(domain.clone()),
            proof: Proof::Ticket,
            by_ntlm: sids.contains(&Sid::ntlm()),
            is_admin: has(DOMAIN_ADMINS),
            is_in_guests: has(DOMAIN_GUESTS),
            user: Some(user),
            sids: sids.into(),
            numbers: numbers.into(),
        })))
    }

    /// Checks whether the caller has no token yet, or the gateway is outside a domain.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Checks whether the identifiers are those of a ticket.
    pub fn is_by_ticket(&self) -> bool {
        self.0.as_ref().is_some_and(|ids| ids.proof == Proof::Ticket)
    }

    /// Returns the domain of the gateway.
    pub fn domain(&self) -> Option<&Domain> {
        self.0.as_ref().and_then(|ids| ids.domain.as_deref())
    }

    /// Checks whether the caller has logged on by NTLM.
    pub fn is_by_ntlm(&self) -> bool {
        self.0.as_ref().is_some_and(|ids| ids.by_ntlm)
    }

    /// Checks whether the caller is the Guest account of a domain or of a computer, which may be neither of Authenticated Users nor
    /// of Users.
    pub fn is_guest_account(&self) -> bool {
        let is_it = |sid: &Sid| sid.authority() == 5 && matches!(sid.subs(), [21, _, _, _, GUEST]);
        self.user().is_some_and(is_it)
    }

    /// Checks whether the caller is a member of `BUILTIN\Guests` through a domain.
    pub(crate) fn is_in_guests(&self) -> bool {
        self.is_guest_account() || self.0.as_ref().is_some_and(|ids| ids.is_in_guests)
    }

    /// Returns the identifier of the user.
    pub fn user(&self) -> Option<&Sid> {
        self.0.as_ref()?.user.as_ref()
    }

    /// Returns all identifiers of the ticket.
    pub fn sids(&self) -> &[Sid] {
        self.0.as_ref().map_or(&[], |ids| &ids.sids)
    }

    /// Checks whether the ticket contains this identifier.
    pub fn has(&self, sid: &Sid) -> bool {
        self.sids().binary_search(sid).is_ok()
    }

    /// Checks whether the ticket contains an identifier with this number.
    pub(crate) fn has_number(&self, number: u32) -> bool {
        self.0.as_ref().is_some_and(|ids| ids.numbers.binary_search(&number).is_ok())
    }

    fn parts(&self) -> Option<(&Identities, &Domain)> {
        let ids = self.0.as_deref()?;
        Some((ids, ids.domain.as_deref()?))
    }

    /// Checks whether the ticket contains Other Organization.
    pub(crate) fn is_of_other_organization(&self) -> bool {
        let is = |sid: &Sid| sid.authority() == 5 && *sid.subs() == [OTHER_ORGANIZATION];
        self.sids().iter().any(is)
    }
}

/// Whether an entry applies to a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meant {
    No,
    /// The gateway does not know all identifiers of the caller, and this may be one.
    Maybe,
    Yes,
}

impl Meant {
    fn known(is: bool) -> Self {
        if is { Self::Yes } else { Self::No }
    }

    /// Checks whether an entry that denies, or one that allows, applies.
    pub(crate) fn counts(self, denies: bool) -> bool {
        self == Self::Yes || denies && self == Self::Maybe
    }
}

/// A caller during one check of a list or a set, which may have thousands of entries for identities of a domain: what is the same
/// for all of them is looked up once.
pub(crate) struct CheckedCaller<'a> {
    cred: &'a Cred,
    is_outside: OnceCell<bool>,
}

impl<'a> CheckedCaller<'a> {
    pub(crate) fn of(cred: &'a Cred) -> Self {
        Self { cred, is_outside: OnceCell::new() }
    }
}

impl Deref for CheckedCaller<'_> {
    type Target = Cred;

    fn deref(&self) -> &Cred {
        self.cred
    }
}

/// Checks whether an identifier is one of the caller. Well-known identifiers and numbers of this host are checked before.
pub(crate) fn meant_by_sid(sid: &Sid, cred: &CheckedCaller<'_>) -> Meant {
    let Some(ids) = &cred.token.0 else { return Meant::No };
    if ids.sids.binary_search(sid).is_ok() {
        return Meant::Yes;
    }
    let Some(domain) = &ids.domain else { return Meant::No };
    let number = domain.number(sid);
    if number.is_some_and(|n| cred.uid == n || cred.in_group(n)) {
        return Meant::Yes;
    }
    // All groups of a ticket are identifiers.
    if ids.proof != Proof::Ticket && domain.by_service && domain.has_number_of(sid, cred) {
        return Meant::Yes;
    }
    unknown(ids, domain, cred, number.is_some())
}

/// Checks whether the caller is a member of `BUILTIN\Administrators` through Domain Admins.
pub(crate) fn meant_as_administrator(cred: &CheckedCaller<'_>) -> Meant {
    let Some((ids, domain)) = cred.token.parts() else { return Meant::No };
    let number = domain.number_of_rid(DOMAIN_ADMINS);
    if ids.is_admin || number.is_some_and(|n| cred.in_group(n)) {
        return Meant::Yes;
    }
    unknown(ids, domain, cred, number.is_some())
}

/// Checks whether a name of the domain is the caller's. The name is unknown before the first ticket of its user.
pub(crate) fn meant_by_name(name: &str, cred: &CheckedCaller<'_>) -> Meant {
    let Some((ids, domain)) = cred.token.parts() else { return Meant::No };
    if let Some(sid) = domain.user_named(name) {
        return meant_by_sid(&sid, cred);
    }
    // A caller with a ticket has another name, which was stored at the logon.
    let is_named = |user: &Sid| domain.user_name(user).is_some();
    match &ids.user {
        Some(user) if is_named(user) || cred.uid == ANONYMOUS => Meant::No,
        Some(_) => Meant::Maybe,
        None => unknown(ids, domain, cred, false),
    }
}

/// Checks whether the user or group with this RID of the domain is one of the caller's.
pub(crate) fn meant_by_rid(rid: u32, cred: &CheckedCaller<'_>) -> Meant {
    let Some((ids, domain)) = cred.token.parts() else { return Meant::No };
    if let Some(sid) = domain.sid().and_then(|domain| domain.child(rid)) {
        return meant_by_sid(&sid, cred);
    }
    // No user of the domain has logged on yet, so no caller has a ticket.
    let number = domain.number_of_rid(rid);
    if number.is_some_and(|n| cred.uid == n || cred.in_group(n)) {
        return Meant::Yes;
    }
    unknown(ids, domain, cred, number.is_some())
}

/// Decides about an identifier that matches neither by itself nor by its number. A mismatch of numbers is conclusive only for a
/// caller whose own number is made of a RID: an account with another number may belong to a user of the domain, unless its numbers
/// are unmapped. Anonymous callers have no identifiers.
fn unknown(ids: &Identities, domain: &Domain, cred: &CheckedCaller<'_>, has_number: bool) -> Meant {
    let is_of_domain = || domain.rid(cred.uid).is_some();
    let is_outside = || domain.standing(cred, ids.proof) == Standing::Outside;
    let is_known = ids.proof == Proof::Ticket
        || cred.uid == ANONYMOUS
        || has_number && is_of_domain()
        || *cred.is_outside.get_or_init(is_outside);
    if is_known { Meant::known(false) } else { Meant::Maybe }
}

/// Returns why the gateway cannot tell which identities of a domain this caller has.
pub(crate) fn why_unsure(cred: &Cred) -> Unsure {
    let Some((ids, domain)) = cred.token.parts() else { return Unsure::NoService };
    match domain.standing(cred, ids.proof) {
        Standing::Member => Unsure::Member,
        Standing::NoService => Unsure::NoService,
        Standing::Unknown | Standing::Outside => Unsure::Unanswered,
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(a), Some(b)) => {
                Arc::ptr_eq(a, b)
                    || a.domain.as_ref().map(Arc::as_ptr) == b.domain.as_ref().map(Arc::as_ptr)
                        && (a.proof, &a.user, &a.sids) == (b.proof, &b.user, &b.sids)
            }
            _ => false,
        }
    }
}

impl Eq for Token {}

/// Equal tokens have equal hashes; the numbers of callers spread them.
impl Hash for Token {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.is_by_ticket().hash(state);
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("none"),
            Some(ids) => match ids.proof {
                Proof::Ticket => f.debug_list().entries(ids.sids.iter()).finish(),
                Proof::Account => f.write_str("account"),
                Proof::None => f.write_str("host"),
            },
        }
    }
}
