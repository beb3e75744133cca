//! The identities of a caller beside its numbers: security identifiers of a domain.
//!
//! *Operation.* A ticket of Active Directory contains the identifiers of its user: [`Token::of_ticket`]. Other callers (AUTH_SYS, a
//! password, a ticket without a PAC) have numbers only. A gateway in a domain gives them [`Token::of_host`]: an identifier with a
//! number matches if the number does; for any other identifier the gateway cannot tell. Then an entry that allows does not apply,
//! and an entry that denies does. In a gateway outside a domain ([`Token::NONE`]) no caller has an identifier.
//!
//! *Memory.* Each logon allocates its token once; all its requests share it. A check takes no lock and asks no name service.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock, RwLock};

use mutex::{reading, writing};
use wire::Sid;

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
/// Other Organization, S-1-5-1000: the domain restricts the caller.
const OTHER_ORGANIZATION: u32 = 1000;

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
    users: RwLock<Users>,
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
    /// Names by identifiers.
    names: HashMap<Sid, String>,
    /// Identifiers of this domain by names in lower case, as Active Directory ignores case.
    by_name: HashMap<String, Sid>,
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
                users.uids.remove(&before);
            }
            users.uids.insert(sid.clone(), uid);
        }
        // Users of other domains may have the same names.
        users.name(sid, name, self.sid().is_some_and(|domain| sid.rid_in(domain).is_some()));
        true
    }

    /// Stores the number of a user whose name is not needed, except those of the superuser and of anonymous callers. Returns
    /// whether it was unknown.
    pub fn know_uid(&self, uid: u32, sid: &Sid) -> bool {
        let is_known = |users: &Users| users.by_uid.get(&uid) == Some(sid);
        let has_number = [0, ANONYMOUS].contains(&uid) || self.number(sid) == Some(uid);
        if has_number || is_known(&reading(&self.users)) {
            return false;
        }
        let mut users = writing(&self.users);
        if users.by_uid.len() >= USERS_MAX && !users.by_uid.contains_key(&uid) {
            return false;
        }
        if let Some(before) = users.by_uid.insert(uid, sid.clone()) {
            users.uids.remove(&before);
        }
        users.uids.insert(sid.clone(), uid);
        true
    }

    /// Stores the number of a group, except those of the superuser's group and of anonymous callers. Returns whether it was
    /// unknown.
    pub fn know_group(&self, gid: u32, sid: &Sid) -> bool {
        let is_known = |users: &Users| users.by_gid.get(&gid) == Some(sid);
        let has_number = [0, ANONYMOUS].contains(&gid) || self.number(sid) == Some(gid);
        if has_number || is_known(&reading(&self.users)) {
            return false;
        }
        let mut users = writing(&self.users);
        if users.by_gid.len() >= GROUPS_MAX && !users.by_gid.contains_key(&gid) {
            return false;
        }
        if let Some(before) = users.by_gid.insert(gid, sid.clone()) {
            users.gids.remove(&before);
        }
        users.gids.insert(sid.clone(), gid);
        true
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
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Domain({:?}, {:?})", self.identity.get(), self.base)
    }
}

/// Identifiers of one caller.
struct Identities {
    domain: Arc<Domain>,
    /// The identifiers are those of a ticket, and complete.
    by_ticket: bool,
    /// Identifier of the user.
    user: Option<Sid>,
    /// All identifiers, sorted.
    sids: Box<[Sid]>,
    /// Numbers of the identifiers that have one, sorted.
    numbers: Box<[u32]>,
    /// The caller is a member of Domain Admins.
    is_admin: bool,
}

/// The identifiers of a caller; cheap to clone.
#[derive(Clone, Default)]
pub struct Token(Option<Arc<Identities>>);

impl Token {
    /// Token of callers of a gateway outside a domain.
    pub const NONE: Self = Self(None);

    /// Creates the token of callers with numbers only, in a gateway in this domain.
    pub fn of_host(domain: &Arc<Domain>) -> Self {
        Self(Some(Arc::new(Identities {
            domain: domain.clone(),
            by_ticket: false,
            user: None,
            sids: Box::new([]),
            numbers: Box::new([]),
            is_admin: false,
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
        let is_admins =
            |sid: &Sid| domain.sid().is_some_and(|d| sid.rid_in(d) == Some(DOMAIN_ADMINS));
        Self(Some(Arc::new(Identities {
            domain: domain.clone(),
            by_ticket: true,
            is_admin: sids.iter().any(is_admins),
            user: Some(user),
            sids: sids.into(),
            numbers: numbers.into(),
        })))
    }

    /// Checks whether the gateway is outside a domain.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Checks whether the identifiers are those of a ticket.
    pub fn is_by_ticket(&self) -> bool {
        self.0.as_ref().is_some_and(|ids| ids.by_ticket)
    }

    /// Returns the domain of the gateway.
    pub fn domain(&self) -> Option<&Domain> {
        self.0.as_ref().map(|ids| &*ids.domain)
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

/// Checks whether an identifier is one of the caller. Well-known identifiers and numbers of this host are checked before.
pub(crate) fn meant_by_sid(sid: &Sid, cred: &Cred) -> Meant {
    let Some(ids) = &cred.token.0 else { return Meant::No };
    if ids.sids.binary_search(sid).is_ok() {
        return Meant::Yes;
    }
    let number = ids.domain.number(sid);
    if number.is_some_and(|n| cred.uid == n || cred.in_group(n)) {
        return Meant::Yes;
    }
    // All groups of a ticket are identifiers.
    if !ids.by_ticket && ids.domain.by_service && ids.domain.has_number_of(sid, cred) {
        return Meant::Yes;
    }
    unknown(ids, cred, number.is_some())
}

/// Checks whether the caller is a member of `BUILTIN\Administrators` through Domain Admins.
pub(crate) fn meant_as_administrator(cred: &Cred) -> Meant {
    let Some(ids) = &cred.token.0 else { return Meant::No };
    let number = ids.domain.number_of_rid(DOMAIN_ADMINS);
    if ids.is_admin || number.is_some_and(|n| cred.in_group(n)) {
        return Meant::Yes;
    }
    unknown(ids, cred, number.is_some())
}

/// Checks whether a name of the domain is the caller's. The name is unknown before the first ticket of its user.
pub(crate) fn meant_by_name(name: &str, cred: &Cred) -> Meant {
    let Some(ids) = &cred.token.0 else { return Meant::No };
    if let Some(sid) = ids.domain.user_named(name) {
        return meant_by_sid(&sid, cred);
    }
    // A caller with a ticket has another name, which was stored at the logon.
    let is_named = |user: &Sid| ids.domain.user_name(user).is_some();
    match ids.user.as_ref().is_some_and(is_named) {
        true => Meant::No,
        false if cred.uid == ANONYMOUS => Meant::No,
        false => Meant::Maybe,
    }
}

/// Checks whether the user or group with this RID of the domain is one of the caller's.
pub(crate) fn meant_by_rid(rid: u32, cred: &Cred) -> Meant {
    let Some(ids) = &cred.token.0 else { return Meant::No };
    if let Some(sid) = ids.domain.sid().and_then(|domain| domain.child(rid)) {
        return meant_by_sid(&sid, cred);
    }
    // No user of the domain has logged on yet, so no caller has a ticket.
    let number = ids.domain.number_of_rid(rid);
    if number.is_some_and(|n| cred.uid == n || cred.in_group(n)) {
        return Meant::Yes;
    }
    unknown(ids, cred, number.is_some())
}

/// Decides about an identifier that matches neither by itself nor by its number. A mismatch of numbers is conclusive only for a
/// caller whose own number is made of a RID: an account with another number may belong to a user of the domain. Anonymous callers
/// have no identifiers.
fn unknown(ids: &Identities, cred: &Cred, has_number: bool) -> Meant {
    let is_of_domain = || ids.domain.rid(cred.uid).is_some();
    let is_known = ids.by_ticket || cred.uid == ANONYMOUS || has_number && is_of_domain();
    if is_known { Meant::known(false) } else { Meant::Maybe }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(a), Some(b)) => {
                Arc::ptr_eq(a, b)
                    || Arc::ptr_eq(&a.domain, &b.domain)
                        && (a.by_ticket, &a.user, &a.sids) == (b.by_ticket, &b.user, &b.sids)
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
            Some(ids) if ids.by_ticket => f.debug_list().entries(ids.sids.iter()).finish(),
            Some(_) => f.write_str("host"),
        }
    }
}
