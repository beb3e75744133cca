//! The identities of a caller beside its numbers: security identifiers of a domain.
//!
//! *Operation.* A ticket of Active Directory names the identifiers of its user: [`Token::of_ticket`]. Callers who come in another
//! way (AUTH_SYS, a password, a ticket without a PAC) have numbers alone. A gateway of a domain gives them [`Token::of_host`]: an
//! identifier with a number is theirs if the number is, and of any other one it is unknown whether it is theirs. What is unknown
//! gives nothing, and denies what an entry denies. In a gateway without a domain ([`Token::NONE`]) no caller has an identifier.
//!
//! *Memory.* One allocation for each logon, shared by all that is done by it. A check takes no lock and looks nothing up.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock, RwLock};

use mutex::{reading, writing};

use crate::acl::Sid;
use crate::types::{ANONYMOUS, Cred};

/// RIDs that a domain gives out are below this number (MS-ADTS section 3.1.1.5.2.4).
const RIDS_END: u32 = 1 << 30;
/// Numbers from here on are not those of a domain.
const NUMBERS_END: u32 = 0x7800_0000;
/// Users whose identifiers are known by their numbers.
const USERS_MAX: usize = 65_536;
/// Domain Admins, who are members of Administrators of each computer of the domain (MS-DTYP section 2.4.2.4).
const DOMAIN_ADMINS: u32 = 512;
/// Identifiers of callers whose way into the domain is restricted: S-1-5-1000.
const OTHER_ORGANIZATION: u32 = 1000;

/// The domain whose tickets the gateway takes, and how its identifiers and numbers of this host correspond.
#[derive(Default)]
pub struct Domain {
    /// The number of RID 0, where numbers are made of RIDs.
    base: Option<u32>,
    /// Who the domain is, once a ticket has told it.
    identity: OnceLock<DomainIdentity>,
    users: RwLock<Users>,
}

/// How a domain is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainIdentity {
    /// Its identifier.
    pub sid: Sid,
    /// Its NetBIOS name.
    pub name: String,
    /// Its name in DNS.
    pub dns: String,
}

/// Users as tickets have told them.
#[derive(Default)]
struct Users {
    /// Identifiers by numbers, where these are not made of RIDs.
    by_uid: HashMap<u32, Sid>,
    /// Names by identifiers.
    names: HashMap<Sid, String>,
}

impl Domain {
    /// A domain whose numbers begin here; `None`: its users have numbers by their names.
    pub fn new(base: Option<u32>) -> Arc<Self> {
        Arc::new(Self { base, ..Self::default() })
    }

    /// The number of RID 0, where numbers are made of RIDs.
    pub fn base(&self) -> Option<u32> {
        self.base
    }

    /// The identifier of the domain.
    pub fn sid(&self) -> Option<&Sid> {
        self.identity.get().map(|identity| &identity.sid)
    }

    /// How the domain is known.
    pub fn identity(&self) -> Option<&DomainIdentity> {
        self.identity.get()
    }

    /// Takes how the domain is known. Returns whether that was unknown before.
    pub fn know(&self, identity: DomainIdentity) -> bool {
        self.identity.set(identity).is_ok()
    }

    /// Keeps the number and the name of a user, as a ticket has told.
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
            users.by_uid.insert(uid, sid.clone());
        }
        if users.names.len() < USERS_MAX || users.names.contains_key(sid) {
            users.names.insert(sid.clone(), name.to_owned());
        }
    }

    /// The name of a user who has come by a ticket.
    pub fn user_name(&self, sid: &Sid) -> Option<String> {
        reading(&self.users).names.get(sid).cloned()
    }

    /// The identifier of a user of the domain who has come by a ticket. Active Directory does not tell case apart.
    pub fn user_named(&self, name: &str) -> Option<Sid> {
        let (name, domain) = (name.to_lowercase(), self.sid()?);
        let users = reading(&self.users);
        let mut named = users.names.iter().filter(|(_, known)| known.to_lowercase() == name);
        named.find(|(sid, _)| sid.rid_in(domain).is_some()).map(|(sid, _)| sid.clone())
    }

    /// The number of an identifier of this domain, a user or a group.
    pub fn number(&self, sid: &Sid) -> Option<u32> {
        self.number_of_rid(sid.rid_in(self.sid()?)?)
    }

    fn number_of_rid(&self, rid: u32) -> Option<u32> {
        let number = self.base?.checked_add(rid)?;
        (rid < RIDS_END && number < NUMBERS_END && number != ANONYMOUS).then_some(number)
    }

    /// The RID that this number is made of.
    fn rid(&self, number: u32) -> Option<u32> {
        let rid = number.checked_sub(self.base?)?;
        self.number_of_rid(rid).map(|_| rid)
    }

    fn by_number(&self, number: u32) -> Option<Sid> {
        self.sid()?.child(self.rid(number)?)
    }

    /// The identifier of the user of this number.
    pub fn sid_of_user(&self, uid: u32) -> Option<Sid> {
        self.by_number(uid).or_else(|| reading(&self.users).by_uid.get(&uid).cloned())
    }

    /// The identifier of the group of this number.
    pub fn sid_of_group(&self, gid: u32) -> Option<Sid> {
        self.by_number(gid)
    }

    /// The number of the user of this identifier.
    pub fn uid(&self, sid: &Sid) -> Option<u32> {
        let known = || {
            let users = reading(&self.users);
            users.by_uid.iter().find(|(_, known)| *known == sid).map(|(uid, _)| *uid)
        };
        self.number(sid).or_else(known)
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
    /// All identifiers of the caller are known: a ticket has named them.
    by_ticket: bool,
    /// The one of the user.
    user: Option<Sid>,
    /// All of them, sorted.
    sids: Box<[Sid]>,
    /// The numbers of those that have one, sorted.
    numbers: Box<[u32]>,
    /// A member of Administrators by membership in the domain.
    is_admin: bool,
}

/// The identifiers of a caller, in a form that is cheap to copy.
#[derive(Clone, Default)]
pub struct Token(Option<Arc<Identities>>);

impl Token {
    /// Of callers of a gateway without a domain.
    pub const NONE: Self = Self(None);

    /// Of callers of whom a gateway of this domain knows numbers alone.
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

    /// Of a user whose ticket names these identifiers beside its own: primary group, groups, extra identifiers and resource groups
    /// (MS-PAC section 2.5). Those of aliases of BUILTIN are of another computer, and are left out.
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

    /// No domain is known.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// A ticket has named all identifiers.
    pub fn is_by_ticket(&self) -> bool {
        self.0.as_ref().is_some_and(|ids| ids.by_ticket)
    }

    /// The domain of the gateway.
    pub fn domain(&self) -> Option<&Domain> {
        self.0.as_ref().map(|ids| &*ids.domain)
    }

    /// The identifier of the user.
    pub fn user(&self) -> Option<&Sid> {
        self.0.as_ref()?.user.as_ref()
    }

    /// All identifiers that a ticket has named.
    pub fn sids(&self) -> &[Sid] {
        self.0.as_ref().map_or(&[], |ids| &ids.sids)
    }

    /// A ticket has named this identifier.
    pub fn has(&self, sid: &Sid) -> bool {
        self.sids().binary_search(sid).is_ok()
    }

    /// A ticket has named an identifier that has this number.
    pub(crate) fn has_number(&self, number: u32) -> bool {
        self.0.as_ref().is_some_and(|ids| ids.numbers.binary_search(&number).is_ok())
    }

    /// The caller came by a way that its domain restricts (S-1-5-1000).
    pub(crate) fn is_of_other_organization(&self) -> bool {
        let is = |sid: &Sid| sid.authority() == 5 && *sid.subs() == [OTHER_ORGANIZATION];
        self.sids().iter().any(is)
    }
}

/// An entry is about a caller, is not, or may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meant {
    No,
    /// The gateway does not know all identifiers of the caller.
    Maybe,
    Yes,
}

impl Meant {
    fn known(is: bool) -> Self {
        if is { Self::Yes } else { Self::No }
    }

    /// For an entry that denies, or for one that allows.
    pub(crate) fn counts(self, denies: bool) -> bool {
        self == Self::Yes || denies && self == Self::Maybe
    }
}

/// Asks an identifier that is no number of this host and none that stands for callers of a kind.
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

/// Asks for members of Administrators beside the superuser.
pub(crate) fn meant_as_administrator(cred: &Cred) -> Meant {
    let Some(ids) = &cred.token.0 else { return Meant::No };
    let number = ids.domain.number_of_rid(DOMAIN_ADMINS);
    if ids.is_admin || number.is_some_and(|n| cred.in_group(n)) {
        return Meant::Yes;
    }
    unknown(ids, cred, number.is_some())
}

/// What an identifier is that was found neither by itself nor by its number. Numbers tell all only of a caller whose own number is
/// made of a RID: an account of another number may be that of a user of the domain. Anonymous callers have no identifiers.
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

/// Equal tokens have equal hashes; callers are told apart by their numbers first.
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
