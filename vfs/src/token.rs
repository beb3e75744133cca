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
/// Domain Admins, who are members of Administrators of each computer of the domain (MS-DTYP section 2.4.2.4).
const DOMAIN_ADMINS: u32 = 512;
/// Other Organization, S-1-5-1000: the domain restricts the caller.
const OTHER_ORGANIZATION: u32 = 1000;

/// The domain whose tickets the gateway accepts, and the mapping between its identifiers and numbers of this host.
#[derive(Default)]
pub struct Domain {
    /// The number of RID 0, where numbers are made of RIDs.
    base: Option<u32>,
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
    /// Names by identifiers.
    names: HashMap<Sid, String>,
}

impl Domain {
    /// Creates a domain whose numbers start at `base`; `None` if its users have numbers by their names.
    pub fn new(base: Option<u32>) -> Arc<Self> {
        Arc::new(Self { base, ..Self::default() })
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

    /// Stores the number and the name of a user with a ticket.
    pub fn know_user(&self, uid: u32, sid: &Sid, name: &str) {
        let has_number = uid == 0 || self.number(sid) == Some(uid);
        let is_known = |users: &Users| {
            (has_number || users.by_uid.get(&uid) == Some(sid))
                && users.names.get(sid).is_some_and(|known| known == name)
        };
        if is_known(&reading(&self.users)) {
            return;
        }
        let mut users = writing(&self.users);
        if !has_number && (users.by_uid.len() < USERS_MAX || users.by_uid.contains_key(&uid)) {
            if let Some(before) = users.by_uid.insert(uid, sid.clone()) {
                users.uids.remove(&before);
            }
            users.uids.insert(sid.clone(), uid);
        }
        if users.names.len() < USERS_MAX || users.names.contains_key(sid) {
            users.names.insert(sid.clone(), name.to_owned());
        }
    }

    /// Returns the name of a user whose ticket was accepted.
    pub fn user_name(&self, sid: &Sid) -> Option<String> {
        reading(&self.users).names.get(sid).cloned()
    }

    /// Returns the identifier of a user of the domain whose ticket was accepted. Active Directory ignores case.
    pub fn user_named(&self, name: &str) -> Option<Sid> {
        let (name, domain) = (name.to_lowercase(), self.sid()?);
        let users = reading(&self.users);
        let mut named = users.names.iter().filter(|(_, known)| known.to_lowercase() == name);
        named.find(|(sid, _)| sid.rid_in(domain).is_some()).map(|(sid, _)| sid.clone())
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
        self.by_number(gid)
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
