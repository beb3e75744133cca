//! Shares: a folder under a name, with the rules for its clients and users.
//!
//! *Operation.* Every protocol asks [`Share::enter_nfs`] or [`Share::enter_smb`] for a caller's credentials and the share to use. A
//! caller with read permission only gets the share's [`Share::reader`], so that the checks which refuse changes on a read-only
//! share also refuse that caller's.
//!
//! *Errors.* [`Refusal`]: the rule that refused the caller.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

use policy::{Cidr, Flavor, Protocols, Squash};
use state::Enforce;

use crate::acl::{Owner, mask};
use crate::backend::{Backend, NodeRef};
use crate::client_names::{HostName, NameKind};
use crate::error::{VfsError, VfsResult};
use crate::links::Links;
use crate::refer::Referral;
pub use crate::refusal::Refusal;
use crate::share_access::{Right, ShareAccess};
use crate::token::Token;
use crate::types::{ANONYMOUS, Access, Attr, Cred, DirEntry, Kind, SetAttr};
use crate::wastebasket::Wastebasket;

/// Shared, so that squashing a caller allocates no memory.
static NO_GROUPS: LazyLock<Arc<[u32]>> = LazyLock::new(|| Arc::new([]));

/// A folder that is served under a name.
pub struct Share {
    /// The share's name: clients see `/NAME`.
    pub name: String,
    /// Number in file handles; derived from the name, so that it survives restarts and reordering.
    pub id: u32,
    /// The store of its files.
    pub backend: Arc<dyn Backend>,
    /// The protocols that serve the share; it does not exist for others.
    pub protocols: Protocols,
    /// True if changes are refused.
    pub read_only: bool,
    /// NFS: rule for mapping users to the anonymous user.
    pub squash: Squash,
    /// Clients that must respect locks of NFS clients.
    pub nfs_locks: Enforce,
    /// The admitted clients; `None`: directly attached networks and this host, which the front end checks.
    pub clients: Option<Vec<ClientRule>>,
    /// Further rules for clients and users.
    pub rules: Rules,
}

/// The protocol of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Nfs,
    Smb,
}

/// The clients that an entry of `clients` applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    /// Clients with these addresses.
    Range(Cidr),
    /// Clients with a name.
    Name(HostName),
}

impl Whom {
    /// Returns whether the client is one of them; `None` if that is unknown.
    fn has(&self, ip: IpAddr, now: &mut Option<Instant>) -> Option<bool> {
        match self {
            Self::Range(range) => Some(range.contains(ip)),
            // The time is read once for all entries, and only if one has a name.
            Self::Name(name) => name.has(ip, *now.get_or_insert_with(Instant::now)),
        }
    }

    /// Returns the precedence when several entries match a client; the highest counts. The order is similar to exports(5): a host
    /// by its name or whole address comes first, then ranges, here the longest prefix first, then patterns of names, then
    /// netgroups, then the entry for all clients.
    fn rank(&self) -> u16 {
        const HOST: u16 = 200;
        match self {
            Self::Range(Cidr { bits: 0, .. }) => 0,
            Self::Range(range) if range.bits == if range.addr.is_ipv4() { 32 } else { 128 } => HOST,
            Self::Range(range) => 2 + u16::from(range.bits),
            Self::Name(name) => match name.kind {
                NameKind::Netgroup => 1,
                NameKind::Pattern => 2,
                NameKind::Host => HOST,
            },
        }
    }
}

impl std::fmt::Display for Whom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Range(range) => write!(f, "{}/{}", range.addr, range.bits),
            Self::Name(name) => name.fmt(f),
        }
    }
}

/// The rules for some clients of a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRule {
    /// The clients that the rule applies to.
    pub from: Whom,
    /// The protocols that the rule applies to. Clients of other protocols ignore the rule.
    pub protocols: Protocols,
    /// True if changes from these clients are refused.
    pub read_only: bool,
    /// NFS: which users become the anonymous one; `None`: the share's rule.
    pub squash: Option<Squash>,
    /// NFS: user and group of the anonymous user.
    pub anonymous: (u32, u32),
}

impl From<Cidr> for ClientRule {
    fn from(from: Cidr) -> Self {
        Self {
            from: Whom::Range(from),
            protocols: Protocols::Both,
            read_only: false,
            squash: None,
            anonymous: (ANONYMOUS, ANONYMOUS),
        }
    }
}

/// A share's rules for its users; empty by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// True if the share is in no list of shares: clients must know its name.
    pub hidden: bool,
    /// The path that NFS clients mount, without the first slash; `None`: its name.
    pub export: Option<Box<str>>,
    /// The rights of users; `None`: all users have all rights.
    pub access: Option<ShareAccess>,
    /// True if a user or group of `access` or `force` cannot be resolved: no caller is admitted.
    pub unresolved: bool,
    /// The credentials that replace the users' own; `None`: their own.
    pub force: Option<Force>,
    /// Mode bits that a new node may have.
    pub masks: Masks,
    /// True if listings of folders leave out nodes that the user can neither read nor enter.
    pub only_visible: bool,
    /// NFS: the permitted flavors of RPC.
    pub sec: Flavors,
    /// SMB: each user has a folder of its name in the share, and sees only that
    /// ([`FileOps::home`](crate::namespace::FileOps::home)).
    pub homes: bool,
    /// NFS: the protection required of clients.
    pub tls: Protection,
    /// The operations on its files that the audit trail records.
    pub audit: audit::Files,
    /// The token of callers without a ticket ([`Token::of_host`]), if the gateway accepts tickets of a domain. Lists that deny
    /// rights to aliases without known members are then refused ([`Acl::unknown_denied`](crate::acl::Acl::unknown_denied)).
    pub host: Token,
    /// The servers that have the share; empty if it is served here.
    pub refers_to: Arc<[Referral]>,
    /// The folders that are on other servers.
    pub links: Arc<Links>,
    /// How removed and replaced files are kept; `None`: not at all.
    pub wastebasket: Option<Arc<Wastebasket>>,
    /// The same share for callers with read permission only.
    pub reader: Reader,
}

/// A set of flavors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flavors(u8);

impl Default for Flavors {
    fn default() -> Self {
        Self(Flavor::Sys as u8)
    }
}

impl FromIterator<Flavor> for Flavors {
    fn from_iter<I: IntoIterator<Item = Flavor>>(flavors: I) -> Self {
        Self(flavors.into_iter().fold(0, |all, one| all | one as u8))
    }
}

impl Flavors {
    /// Returns true if the set contains this flavor.
    pub fn has(self, flavor: Flavor) -> bool {
        self.0 & flavor as u8 != 0
    }

    /// Iterates over the flavors in the set, the one with the most protection first.
    pub fn iter(self) -> impl Iterator<Item = Flavor> {
        Flavor::ALL.into_iter().filter(move |flavor| self.has(*flavor))
    }
}

/// The protection of a client's calls in transit (RFC 9289), or the protection that a share requires; by default not required.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protection {
    /// No protection.
    #[default]
    None,
    /// TLS: the server is authenticated.
    Tls,
    /// TLS, and the client is authenticated by a certificate.
    Mutual,
}

/// The credentials for all operations on a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Force {
    User(Cred),
    /// The user's own credentials, with this group first.
    Group(u32),
}

impl Force {
    fn on(&self, cred: Cred) -> Cred {
        match self {
            Self::User(user) => user.clone(),
            Self::Group(gid) => cred.with_first_group(*gid),
        }
    }
}

/// Mode bits that a new node may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Masks {
    /// Bits for nodes other than directories and symbolic links.
    pub file: Option<u32>,
    /// Bits for directories. Set-group-id and the sticky bit, if in the mask, are always set.
    pub folder: Option<u32>,
}

impl Masks {
    /// Returns the mode for the creation of a node. SMB asks for no mode: its nodes get all permitted bits, without a reduction by
    /// the umask that replaces a missing mode elsewhere. An NFS client that asks for no mode gets a file for its owner only, unless
    /// the directory passes on a list, which only the mask limits.
    pub(crate) fn of_new(&self, set: SetAttr, kind: Kind, smb: bool) -> NewMode {
        const ALWAYS: u32 = 0o3000;
        let is_dir = kind == Kind::Dir;
        let mask = if is_dir { self.folder } else { self.file };
        let Some(mask) = mask.filter(|_| kind != Kind::Symlink) else {
            return NewMode { set, inherited_max: set.mode, given_max: None };
        };
        let of = |asked: u32| asked & mask | if is_dir { mask & ALWAYS } else { 0 };
        let mode = of(set.mode.unwrap_or(if is_dir { 0o700 } else { 0o600 }));
        NewMode {
            set: SetAttr { mode: Some(mode), umask: if smb { 0 } else { set.umask }, ..set },
            inherited_max: Some(set.mode.map_or(mask, of)),
            given_max: Some(mask),
        }
    }
}

/// The mode of a new node, and the limits for its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewMode {
    /// The attributes with which it is created.
    pub(crate) set: SetAttr,
    /// Limits the rights of owner, group and others in an inherited list; `None`: no limit.
    pub(crate) inherited_max: Option<u32>,
    /// Limits their rights in a list from the creator, which counts in place of the mode that came with it (RFC 8881 section
    /// 6.4.1.3); `None`: no limit.
    pub(crate) given_max: Option<u32>,
}

/// A read-only version of a share, made at its first use. It does not affect comparisons: all values are equal, and a copy starts
/// empty.
#[derive(Default)]
pub struct Reader(OnceLock<Arc<Share>>);

impl Clone for Reader {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reader")
    }
}

impl PartialEq for Reader {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Reader {}

/// A name of a listing.
pub struct Listed {
    /// The directory's entry.
    pub entry: DirEntry,
    /// The file, if the listing has looked it up.
    pub found: Option<(NodeRef, Attr)>,
}

/// Number of names that a listing looks up before it yields to others, and of files that it holds at a time.
pub const LOOKS_AT_ONCE: usize = 64;

/// Time that a listing looks up names before it yields to others.
const LOOKS_TIME: Duration = Duration::from_millis(2);

/// A share as one caller uses it.
pub struct Entered {
    /// The share, or its [`Share::reader`].
    pub share: Arc<Share>,
    /// The caller's credentials.
    pub cred: Cred,
}

/// The rights of a caller to a share.
pub struct Granted {
    may_change: bool,
    cred: Cred,
}

impl Share {
    /// Returns true if it is on other servers, and has no files here.
    pub fn is_elsewhere(&self) -> bool {
        !self.rules.refers_to.is_empty()
    }

    /// Checks that an NFS client with this protection may use it.
    pub fn check_protection(&self, has: Protection) -> Result<(), Refusal> {
        match self.rules.tls {
            demanded if has >= demanded => Ok(()),
            Protection::Mutual if has == Protection::Tls => Err(Refusal::Certificate),
            _ => Err(Refusal::Tls),
        }
    }

    /// Returns the number of a share of this name (FNV-1a, 32 bits). The configuration refuses two names with one number.
    pub fn id_of(name: &str) -> u32 {
        name.bytes().fold(0x811c_9dc5, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
    }

    /// Returns the path that NFS clients mount, without the first slash.
    pub fn nfs_path(&self) -> &str {
        self.rules.export.as_deref().unwrap_or(&self.name)
    }

    /// Returns the rule for a client of this address and protocol, the one with the highest precedence ([`Whom`]); `None`: the
    /// share has no `clients`. If it is unknown whether a name is the client's, the client is refused, unless the rule that applies
    /// without that name grants no more than the name's rule.
    pub fn client(&self, ip: IpAddr, by: By) -> Result<Option<&ClientRule>, Refusal> {
        let Some(rules) = self.clients.as_deref() else { return Ok(None) };
        let is_meant = |rule: &&ClientRule| match by {
            By::Nfs => rule.protocols.nfs(),
            By::Smb => rule.protocols.smb(),
        };
        let (mut best, mut unknown): (Option<&ClientRule>, Vec<&ClientRule>) = (None, Vec::new());
        let mut now = None;
        for rule in rules.iter().filter(is_meant) {
            // The first of two equal rules counts.
            if best.is_some_and(|best| best.from.rank() >= rule.from.rank()) {
                continue;
            }
            match rule.from.has(ip, &mut now) {
                Some(true) => best = Some(rule),
                Some(false) => {}
                None => unknown.push(rule),
            }
        }
        match best {
            Some(best) => {
                let more = |rule: &&ClientRule| {
                    rule.from.rank() >= best.from.rank() && !self.is_within(best, rule)
                };
                let is_safe = !unknown.iter().any(more);
                is_safe.then_some(Some(best)).ok_or(Refusal::NameUnknown)
            }
            None if unknown.is_empty() => Err(Refusal::Address),
            None => Err(Refusal::NameUnknown),
        }
    }

    /// Returns true if the other rule grants at least as much as this one.
    fn is_within(&self, rule: &ClientRule, other: &ClientRule) -> bool {
        let squash = |rule: &ClientRule| rule.squash.unwrap_or(self.squash) as u8;
        (rule.read_only || !other.read_only)
            && squash(rule) >= squash(other)
            && rule.anonymous == other.anonymous
    }

    /// Applies the share's own squash rule to a user.
    pub fn squash(&self, cred: Cred) -> Cred {
        self.identified(squashed(self.squash, (ANONYMOUS, ANONYMOUS), cred))
    }

    /// Returns the credentials of an NFS caller from this address.
    pub fn squash_from(&self, peer: IpAddr, cred: Cred) -> Cred {
        self.squash_by(self.client(peer, By::Nfs).ok().flatten(), cred)
    }

    fn squash_by(&self, rule: Option<&ClientRule>, cred: Cred) -> Cred {
        match rule {
            Some(rule) => {
                let squash = rule.squash.unwrap_or(self.squash);
                self.identified(squashed(squash, rule.anonymous, cred))
            }
            None => self.squash(cred),
        }
    }

    /// Returns the share for an NFS caller, who must be near if the share has no `clients`: `access` is checked after squashing,
    /// because a share that squashes does not trust the client's claim.
    pub fn enter_nfs(self: &Arc<Self>, peer: IpAddr, cred: &Cred) -> Result<Entered, Refusal> {
        Ok(self.clone().granted(self.right_nfs(self.client(peer, By::Nfs)?, cred)?))
    }

    /// Like [`Share::enter_nfs`], after a call of [`Share::client`].
    pub fn right_nfs(&self, rule: Option<&ClientRule>, cred: &Cred) -> Result<Granted, Refusal> {
        let cred = self.squash_by(rule, cred.clone());
        Ok(Granted { may_change: self.lets_change(rule, &cred)?, cred: self.forced(cred) })
    }

    /// Returns the share for use with these rights.
    pub fn granted(self: Arc<Self>, granted: Granted) -> Entered {
        let Granted { may_change, cred } = granted;
        Entered { share: if may_change { self } else { self.reader() }, cred }
    }

    /// Returns the share for an SMB user, from an address if that is known: `access` is checked for the user that logged on. An
    /// administrator of the share acts as root.
    pub fn enter_smb(
        self: &Arc<Self>,
        peer: Option<IpAddr>,
        cred: &Cred,
    ) -> Result<Entered, Refusal> {
        let rule = peer.map(|ip| self.client(ip, By::Smb)).transpose()?.flatten();
        let cred = self.identified(cred.clone());
        let may_change = self.lets_change(rule, &cred)?;
        let cred = match self.makes_admin(&cred) {
            true => self.identified(Cred::root()),
            false => self.forced(cred),
        };
        Ok(self.clone().granted(Granted { may_change, cred }))
    }

    /// Returns true if this SMB user is an administrator of the share.
    pub fn makes_admin(&self, cred: &Cred) -> bool {
        let access = self.rules.access.as_ref();
        access.is_some_and(|access| access.is_admin(&self.identified(cred.clone())))
    }

    fn forced(&self, cred: Cred) -> Cred {
        match &self.rules.force {
            Some(force) => {
                let by_ntlm = cred.token.is_by_ntlm();
                let mut cred = force.on(cred);
                if by_ntlm && cred.token.is_none() {
                    cred.token = self.rules.host.for_account();
                }
                self.identified(cred)
            }
            None => cred,
        }
    }

    /// Returns the caller with a token: without a ticket it may be any user of the domain.
    pub fn identified(&self, mut cred: Cred) -> Cred {
        if cred.token.is_none() {
            cred.token = self.rules.host.clone();
        }
        cred
    }

    /// Checks whether listings for this caller show this node. As on Windows a file's own list must grant all of FILE_GENERIC_READ;
    /// every caller has SYNCHRONIZE.
    pub async fn shows(&self, node: &NodeRef, attr: &Attr, cred: &Cred) -> VfsResult<bool> {
        let uses = match node.kind() {
            _ if !self.rules.only_visible => return Ok(true),
            Kind::Dir => Access::READ | Access::LOOKUP,
            Kind::File => Access::READ,
            // A link shows only its name and its target.
            _ => return Ok(true),
        };
        const READS: u32 = mask::FILE_READ & !mask::SYNCHRONIZE;
        if node.kind() == Kind::File
            && let Some(acl) = node.acl(attr).await?
        {
            let allowed = acl.allowed(cred, Owner::of(attr)) & node.bounds(cred).await?;
            return Ok(allowed & READS == READS);
        }
        match node.access(cred, Access(uses), attr).await {
            Ok(granted) => Ok(granted.0 & uses != 0),
            // The node was removed meanwhile, or its attributes cannot be read.
            Err(VfsError::NotFound | VfsError::Stale | VfsError::Access) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Looks up a name that `reader` has read in a directory, for a listing that `cred` asked for. `None`: the share does not show
    /// it, it was removed meanwhile, or only its name may be shown.
    pub async fn listed(
        &self,
        dir: &NodeRef,
        reader: &Cred,
        name: &[u8],
        cred: &Cred,
    ) -> VfsResult<Option<(NodeRef, Attr)>> {
        match dir.lookup(reader, name).await {
            Ok((node, attr)) => {
                let shown = self.shows(&node, &attr, cred).await?;
                Ok(shown.then_some((node, attr)))
            }
            Err(VfsError::NotFound | VfsError::Stale | VfsError::Access) => Ok(None),
            Err(VfsError::Invalid | VfsError::BadName) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Lists names of a directory like [`Node::readdir`](crate::Node::readdir), without those that the share hides from this
    /// caller: until it finds one, or the directory ends. A name includes its attributes if the share had to read the file's. A
    /// folder with only hidden names may be of any length, so the listing yields to other tasks of this thread after every
    /// [`LOOKS_AT_ONCE`] names.
    pub async fn readdir(
        &self,
        dir: &NodeRef,
        cred: &Cred,
        mut cookie: u64,
        entries_max: usize,
    ) -> VfsResult<(Vec<Listed>, bool)> {
        if !self.rules.only_visible {
            let (entries, end) = dir.readdir(cred, cookie, entries_max).await?;
            let listed = entries.into_iter().map(|entry| Listed { entry, found: None });
            return Ok((listed.collect(), end));
        }
        loop {
            let (entries, end) = dir.readdir(cred, cookie, entries_max.min(LOOKS_AT_ONCE)).await?;
            let Some(last) = entries.last().map(|entry| entry.cookie) else {
                return Ok((Vec::new(), end));
            };
            let (mut shown, mut since) = (Vec::new(), Instant::now());
            for entry in entries {
                // Lists may have thousands of entries each.
                if since.elapsed() > LOOKS_TIME {
                    tokio::task::yield_now().await;
                    since = Instant::now();
                }
                if let Some(found) = self.listed(dir, cred, &entry.name, cred).await? {
                    shown.push(Listed { entry, found: Some(found) });
                }
            }
            tokio::task::yield_now().await;
            if end || !shown.is_empty() {
                return Ok((shown, end));
            }
            cookie = last;
        }
    }

    /// Returns what a caller without permission sees when it mounts the share: attributes of its root, as the anonymous user.
    pub fn from_outside(self: &Arc<Self>) -> Entered {
        Entered { share: self.reader(), cred: self.identified(anonymous((ANONYMOUS, ANONYMOUS))) }
    }

    fn lets_change(&self, rule: Option<&ClientRule>, cred: &Cred) -> Result<bool, Refusal> {
        if self.is_elsewhere() {
            return Err(Refusal::Elsewhere);
        }
        if self.rules.unresolved {
            return Err(Refusal::Unresolved);
        }
        let access = self.rules.access.as_ref();
        let right = access.map_or(Ok(Right::Write), |access| access.right(cred))?;
        Ok(right == Right::Write && rule.is_none_or(|rule| !rule.read_only))
    }

    /// Returns this share for callers with read permission only.
    pub fn reader(self: &Arc<Self>) -> Arc<Self> {
        if self.read_only {
            return self.clone();
        }
        let make = || {
            Arc::new(Self {
                name: self.name.clone(),
                id: self.id,
                backend: self.backend.clone(),
                protocols: self.protocols,
                read_only: true,
                squash: self.squash,
                nfs_locks: self.nfs_locks,
                clients: self.clients.clone(),
                rules: self.rules.clone(),
            })
        };
        self.rules.reader.0.get_or_init(make).clone()
    }
}

fn anonymous((uid, gid): (u32, u32)) -> Cred {
    Cred { uid, gid, groups: NO_GROUPS.clone(), token: crate::Token::NONE }
}

/// Returns the credentials of a caller under this rule.
fn squashed(rule: Squash, to: (u32, u32), cred: Cred) -> Cred {
    match rule {
        Squash::None => cred,
        Squash::All => anonymous(to),
        Squash::Root if cred.uid == 0 => anonymous(to),
        Squash::Root if cred.gid == 0 || cred.groups.contains(&0) => {
            let map = |g: u32| if g == 0 { to.1 } else { g };
            Cred {
                uid: cred.uid,
                gid: map(cred.gid),
                groups: cred.groups.iter().copied().map(map).collect(),
                token: cred.token,
            }
        }
        Squash::Root => cred,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Acting;
    use crate::client_names::{ClientFacts, ClientNames};
    use crate::mem::MemBackend;
    use crate::share_access::PrincipalSet;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 2, 3));

    fn cred(uid: u32, groups: &[u32]) -> Cred {
        Cred { uid, gid: uid, groups: groups.into(), token: crate::Token::NONE }
    }

    /// A caller without a token could not be denied anything by its identities.
    #[test]
    fn callers_in_domain_have_tokens() {
        let domain = crate::Domain::new(None);
        let sid = "S-1-5-21-1-2-3-1103".parse().unwrap();
        let ticket = Token::of_ticket(&domain, sid, []);
        let host = Token::of_host(&domain);
        for (squash, force) in [
            (Squash::None, None),
            (Squash::Root, None),
            (Squash::All, None),
            (Squash::None, Some(Force::User(cred(7, &[])))),
            (Squash::None, Some(Force::Group(7))),
        ] {
            let is_forced = matches!(force, Some(Force::User(_)));
            let rules = Rules { host: host.clone(), force, ..Rules::default() };
            let share = share(squash, ShareAccess::default());
            let share = Arc::new(Share { rules, ..Arc::into_inner(share).unwrap() });
            for uid in [0, 5, ANONYMOUS] {
                let by_number = cred(uid, &[0, 9]);
                let by_ticket = Cred { token: ticket.clone(), ..by_number.clone() };
                let entered = [
                    share.enter_nfs(PEER, &by_number),
                    share.enter_smb(Some(PEER), &by_number),
                    Ok(share.from_outside()),
                ];
                for entered in entered {
                    assert!(!entered.unwrap().cred.token.is_none(), "{squash:?} {uid}");
                }
                let now = share.enter_smb(None, &by_ticket).unwrap().cred.token;
                assert_eq!(now, *if is_forced { &host } else { &ticket }, "{uid}");
                let now = share.enter_nfs(PEER, &by_ticket).unwrap().cred.token;
                let acts_as_itself =
                    squash != Squash::All && (squash == Squash::None || uid != 0) && !is_forced;
                assert_eq!(now, *if acts_as_itself { &ticket } else { &host }, "{uid}");
            }
        }
    }

    fn share(squash: Squash, access: ShareAccess) -> Arc<Share> {
        Arc::new(Share {
            name: "team".into(),
            id: Share::id_of("team"),
            backend: MemBackend::new(1 << 20).unwrap(),
            protocols: Protocols::Both,
            read_only: false,
            squash,
            nfs_locks: Enforce::Smb,
            clients: None,
            rules: Rules { access: Some(access), ..Rules::default() },
        })
    }

    fn access(read: &[u32], write: &[u32]) -> ShareAccess {
        let principals = |users: &[u32]| PrincipalSet::new(users.to_vec(), Vec::new());
        ShareAccess { read: principals(read), write: principals(write), ..ShareAccess::default() }
    }

    #[test]
    fn reader_is_read_only_share() {
        let team = share(Squash::Root, access(&[5], &[6]));
        let reader = team.enter_nfs(PEER, &cred(5, &[])).unwrap();
        assert!(reader.share.read_only && reader.cred.uid == 5);
        assert!(Arc::ptr_eq(&reader.share.backend, &team.backend));
        let again = team.enter_smb(Some(PEER), &cred(5, &[])).unwrap();
        assert!(Arc::ptr_eq(&again.share, &reader.share), "it is made once");
        assert!(Arc::ptr_eq(&reader.share.reader(), &reader.share));
        let writer = team.enter_nfs(PEER, &cred(6, &[])).unwrap();
        assert!(Arc::ptr_eq(&writer.share, &team));
        assert_eq!(team.enter_nfs(PEER, &cred(7, &[])).err(), Some(Refusal::NotNamed));
    }

    #[tokio::test]
    async fn sparse_listing_yields_to_others() {
        let team = share(Squash::None, access(&[5], &[6]));
        let rules = Rules { only_visible: true, ..Rules::default() };
        let backend = team.backend.clone();
        let team = Share { name: "team".into(), backend, clients: None, rules, ..*team };
        let root = team.backend.root();
        for n in 0..500 {
            let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
            let (how, name) = (crate::types::CreateHow::Guarded, format!("f{n}"));
            root.create(Acting::caller(&Cred::root()), name.as_bytes(), how, set).await.unwrap();
        }
        let caller = cred(5, &[]);
        let mut listing = std::pin::pin!(team.readdir(&root, &caller, 0, 1000));
        let (mut turns, waker) = (0, std::task::Waker::noop());
        let mut cx = std::task::Context::from_waker(waker);
        let (shown, end) = loop {
            match listing.as_mut().poll(&mut cx) {
                std::task::Poll::Ready(done) => break done.unwrap(),
                std::task::Poll::Pending => turns += 1,
            }
        };
        assert!(shown.is_empty() && end);
        assert!(turns >= 500 / LOOKS_AT_ONCE, "{turns}");
    }

    #[test]
    fn nfs_access_checked_after_squash() {
        let named = share(Squash::All, access(&[5], &[]));
        assert_eq!(named.enter_nfs(PEER, &cred(5, &[])).err(), Some(Refusal::NotNamed));
        let logged_on = named.enter_smb(Some(PEER), &cred(5, &[])).unwrap();
        assert_eq!(logged_on.cred.uid, 5, "`squash` is of NFS");
        let anonymous = share(Squash::All, access(&[ANONYMOUS], &[]));
        assert!(anonymous.enter_nfs(PEER, &cred(5, &[])).is_ok());
        assert!(anonymous.enter_smb(Some(PEER), &cred(5, &[])).is_err());
        // A client's root is squashed, so it does not have the number 0.
        let root = share(Squash::Root, access(&[0], &[]));
        assert!(root.enter_nfs(PEER, &cred(0, &[])).is_err());
    }

    /// Each line: squash, the lists `admin` and `deny`, the user that acts for uid 5 and for guests. NFS gains nothing.
    #[test]
    fn smb_administrators_act_as_root() {
        let of = |users: &[u32]| PrincipalSet::new(users.to_vec(), Vec::new());
        for squash in [Squash::None, Squash::Root, Squash::All] {
            for (admin, deny, wanted) in [
                (of(&[5]), of(&[]), [Some(0), Some(ANONYMOUS)]),
                (of(&[5]), of(&[5]), [None, Some(ANONYMOUS)]),
                (of(&[7]), of(&[]), [Some(5), Some(ANONYMOUS)]),
                (PrincipalSet::everyone(), of(&[]), [Some(0), Some(ANONYMOUS)]),
            ] {
                let write = PrincipalSet::everyone();
                let share = share(squash, ShareAccess { admin, write, deny, ..Default::default() });
                let forced = Rules {
                    force: Some(Force::User(cred(9, &[]))),
                    access: share.rules.access.clone(),
                    ..Rules::default()
                };
                for (uid, wanted) in [5, ANONYMOUS].into_iter().zip(wanted) {
                    let entered = share.enter_smb(Some(PEER), &cred(uid, &[]));
                    assert_eq!(entered.ok().map(|e| e.cred.uid), wanted, "{squash:?} {uid}");
                    let by_nfs = share.enter_nfs(PEER, &cred(uid, &[])).ok().map(|e| e.cred.uid);
                    assert_ne!(by_nfs, Some(0), "{squash:?} {uid}");
                }
                let backend = share.backend.clone();
                let name = "team".to_owned();
                let share =
                    Arc::new(Share { name, backend, clients: None, rules: forced, ..*share });
                let entered = share.enter_smb(Some(PEER), &cred(5, &[])).ok();
                let wanted = wanted[0].map(|uid| if uid == 0 { 0 } else { 9 });
                assert_eq!(entered.map(|e| e.cred.uid), wanted, "before `force`");
            }
        }
        let only = share(Squash::None, ShareAccess { admin: of(&[5]), ..Default::default() });
        assert!(!only.enter_smb(None, &cred(5, &[])).unwrap().share.read_only, "it may write");
        assert_eq!(only.enter_nfs(PEER, &cred(5, &[])).unwrap().cred.uid, 5);
    }

    #[test]
    fn longest_matching_prefix_counts() {
        let range = |addr: [u8; 4], bits| ClientRule::from(Cidr { addr: addr.into(), bits });
        let lab = ClientRule { read_only: true, ..range([10, 1, 0, 0], 16) };
        let host = ClientRule {
            squash: Some(Squash::All),
            anonymous: (1000, 1001),
            ..range([10, 1, 2, 3], 32)
        };
        let share = Arc::new(Share {
            name: "team".into(),
            id: 1,
            backend: MemBackend::new(1 << 20).unwrap(),
            protocols: Protocols::Both,
            read_only: false,
            squash: Squash::Root,
            nfs_locks: Enforce::Smb,
            clients: Some(vec![range([10, 0, 0, 0], 8), host, lab]),
            rules: Rules::default(),
        });
        let from = |last: [u8; 3]| IpAddr::from([10, last[0], last[1], last[2]]);
        let seen = |last, uid| {
            let entered = share.enter_nfs(from(last), &cred(uid, &[0])).unwrap();
            (entered.share.read_only, entered.cred.uid, entered.cred.gid)
        };
        assert_eq!(seen([9, 9, 9], 5), (false, 5, 5));
        assert_eq!(seen([9, 9, 9], 0), (false, ANONYMOUS, ANONYMOUS));
        assert_eq!(seen([1, 9, 9], 5), (true, 5, 5));
        assert_eq!(seen([1, 2, 3], 5), (false, 1000, 1001), "the range around it says nothing");
        let by_smb = |last| share.enter_smb(Some(from(last)), &cred(5, &[])).unwrap();
        assert!(by_smb([1, 9, 9]).share.read_only);
        assert_eq!((by_smb([1, 2, 3]).share.read_only, by_smb([1, 2, 3]).cred.uid), (false, 5));
        let refused = |by| share.client([11, 0, 0, 1].into(), by).err();
        assert_eq!([refused(By::Nfs), refused(By::Smb)], [Some(Refusal::Address); 2]);
        assert!(share.client(from([0, 0, 1]), By::Smb).is_ok());
    }

    /// Returns a share whose own squash is `Squash::Root`, with these clients.
    fn of_clients(clients: Vec<ClientRule>) -> Arc<Share> {
        let old = share(Squash::Root, access(&[], &[]));
        let (rules, backend) = (Rules::default(), old.backend.clone());
        Arc::new(Share { name: "team".into(), backend, clients: Some(clients), rules, ..*old })
    }

    fn range(text: &str, bits: u8) -> ClientRule {
        ClientRule::from(Cidr { addr: text.parse().unwrap(), bits })
    }

    /// Names of clients, and the table with the answers about them.
    struct Names(Arc<ClientNames>);

    impl Names {
        fn of(&self, kind: NameKind, name: &str) -> ClientRule {
            let named = HostName { name: name.into(), kind, known: self.0.clone() };
            ClientRule { from: Whom::Name(named), ..range("::", 0) }
        }

        /// Stores that PEER has this name and is in this netgroup.
        fn learn(&self, name: &str, groups: &[(&str, bool)]) {
            self.0.set_host(name.into(), vec![PEER], Instant::now());
            let netgroups =
                groups.iter().map(|(name, is_in)| ((*name).into(), Some(*is_in))).collect();
            let facts = ClientFacts { names: vec![name.into()], netgroups };
            self.0.set_client(PEER, facts, Instant::now());
        }
    }

    #[test]
    fn names_take_precedence_like_exports() {
        let names = Names(Arc::default());
        names.learn("ws.lab", &[("hosts", true), ("others", false)]);
        let host = names.of(NameKind::Host, "ws.lab");
        let pattern = names.of(NameKind::Pattern, "*.lab");
        let group = names.of(NameKind::Netgroup, "hosts");
        let other = names.of(NameKind::Netgroup, "others");
        let all = [
            range("0.0.0.0", 0),
            group.clone(),
            pattern.clone(),
            range("10.0.0.0", 8),
            range("10.1.0.0", 16),
            host.clone(),
        ];
        for n in 1..=all.len() {
            for order in [all[..n].to_vec(), all[..n].iter().rev().cloned().collect()] {
                let share = of_clients(order);
                let counts = share.client(PEER, By::Nfs).unwrap().unwrap();
                assert_eq!(counts.from, all[n - 1].from, "{n}");
            }
        }
        let whole = ClientRule { read_only: true, ..range("10.1.2.3", 32) };
        for (clients, wanted) in
            [([whole.clone(), host.clone()], &whole), ([host.clone(), whole.clone()], &host)]
        {
            let share = of_clients(clients.to_vec());
            assert_eq!(share.client(PEER, By::Nfs).unwrap(), Some(wanted), "of a kind, the first");
        }
        assert_eq!(of_clients(vec![other]).client(PEER, By::Nfs), Err(Refusal::Address));
    }

    #[test]
    fn unknown_name_grants_nothing_and_restricts() {
        let names = Names(Arc::default());
        let with = |kind, read_only, squash| {
            let rule = names.of(kind, "away.lab");
            ClientRule { read_only, squash, ..rule }
        };
        let near = || range("10.0.0.0", 8);
        let told = |clients: Vec<ClientRule>| {
            of_clients(clients).client(PEER, By::Nfs).map(|rule| rule.cloned())
        };
        let unknown = Err(Refusal::NameUnknown);
        use NameKind::{Host, Netgroup, Pattern};
        for kind in [Host, Pattern, Netgroup] {
            assert_eq!(told(vec![with(kind, false, None)]), unknown, "{kind:?}");
            let everybody = || range("0.0.0.0", 0);
            assert_eq!(told(vec![everybody(), with(kind, true, None)]), unknown, "less by name");
            let more = with(kind, false, Some(Squash::None));
            assert_eq!(told(vec![more, everybody()]), Ok(Some(everybody())), "more by name");
        }
        assert_eq!(told(vec![near(), with(Host, false, Some(Squash::All))]), unknown);
        let other_user = ClientRule { anonymous: (7, 7), ..with(Host, false, None) };
        assert_eq!(told(vec![near(), other_user]), unknown);
        assert_eq!(
            told(vec![near(), with(Pattern, true, None)]),
            Ok(Some(near())),
            "it counts first"
        );
        names.learn("other.lab", &[("away.lab", false)]);
        names.0.set_host("away.lab".into(), vec![], Instant::now());
        for kind in [Host, Pattern, Netgroup] {
            assert_eq!(told(vec![with(kind, false, None)]), Err(Refusal::Address));
            assert_eq!(told(vec![near(), with(kind, true, None)]), Ok(Some(near())));
        }
    }

    #[test]
    fn client_rule_applies_per_protocol() {
        let of = |protocols, rule| ClientRule { protocols, ..rule };
        let share = of_clients(vec![
            of(Protocols::Smb, range("10.0.0.0", 8)),
            of(Protocols::Nfs, ClientRule { read_only: true, ..range("10.1.0.0", 16) }),
        ]);
        let read_only =
            |ip: [u8; 4], by| share.client(ip.into(), by).map(|rule| rule.unwrap().read_only);
        assert_eq!(read_only([10, 1, 2, 3], By::Smb), Ok(false));
        assert_eq!(read_only([10, 1, 2, 3], By::Nfs), Ok(true));
        assert_eq!(read_only([10, 9, 9, 9], By::Nfs), Err(Refusal::Address));
        let user = cred(5, &[]);
        assert!(!share.enter_smb(Some(PEER), &user).unwrap().share.read_only);
        assert!(share.enter_nfs(PEER, &user).unwrap().share.read_only);
        assert!(share.enter_nfs([10, 9, 9, 9].into(), &user).is_err());
    }

    #[test]
    fn masks_limit_and_set_mode_bits() {
        let masks = Masks { file: Some(0o660), folder: Some(0o2770) };
        let new = |mode, umask, kind, smb| {
            let set = SetAttr { mode, umask, ..SetAttr::default() };
            let new = masks.of_new(set, kind, smb);
            (new.set.mode.unwrap_or(0), new.set.umask)
        };
        assert_eq!(new(Some(0o4777), 0o022, Kind::File, false), (0o660, 0o022));
        assert_eq!(new(Some(0o600), 0, Kind::File, false), (0o600, 0));
        assert_eq!(new(None, 0, Kind::File, false), (0o600, 0));
        assert_eq!(new(Some(0o666), 0o022, Kind::File, true), (0o660, 0));
        assert_eq!(new(Some(0o755), 0, Kind::Dir, false), (0o2750, 0));
        assert_eq!(new(Some(0o777), 0o022, Kind::Dir, true), (0o2770, 0));
        assert_eq!(new(None, 0, Kind::Dir, false), (0o2700, 0));
        assert_eq!(new(Some(0o777), 0, Kind::Symlink, false), (0o777, 0));
        let set = SetAttr { mode: Some(0o666), umask: 0o022, ..SetAttr::default() };
        let new = NewMode { set, inherited_max: Some(0o666), given_max: None };
        assert_eq!(Masks::default().of_new(set, Kind::File, true), new);
        let most = |mode, kind| {
            let new = masks.of_new(SetAttr { mode, ..SetAttr::default() }, kind, false);
            (new.inherited_max.unwrap_or(0), new.given_max.unwrap_or(0))
        };
        assert_eq!(most(Some(0o640), Kind::File), (0o640, 0o660));
        assert_eq!(most(None, Kind::File), (0o660, 0o660), "no mode is asked for, so none limits");
        assert_eq!(most(None, Kind::Dir), (0o2770, 0o2770));
    }

    #[test]
    fn admitted_caller_acts_as_forced_user() {
        let with = |force| {
            let team = share(Squash::Root, access(&[5], &[6]));
            let rules = Rules { force: Some(force), ..team.rules.clone() };
            let backend = team.backend.clone();
            Arc::new(Share { name: "team".into(), backend, clients: None, rules, ..*team })
        };
        let user = with(Force::User(cred(1000, &[7, 8])));
        let entered = user.enter_nfs(PEER, &cred(5, &[])).unwrap();
        assert_eq!((entered.share.read_only, entered.cred), (true, cred(1000, &[7, 8])));
        assert_eq!(user.enter_smb(None, &cred(6, &[])).unwrap().cred.uid, 1000);
        // Access is checked for the caller, not for the user who replaces it.
        assert!(user.enter_smb(None, &cred(1000, &[])).is_err());
        let group = with(Force::Group(70)).enter_nfs(PEER, &cred(5, &[9])).unwrap().cred;
        assert_eq!((group.uid, group.gid, &*group.groups), (5, 70, &[5, 9][..]));
        assert_eq!(cred(5, &[9, 70]).with_first_group(70).groups[..], [5, 9]);
        assert_eq!(cred(5, &[9]).with_first_group(5), cred(5, &[9]));
    }

    #[test]
    fn every_refusal_name_is_listed() {
        use Refusal::{
            Address, Certificate, Denied, Elsewhere, Flavor, NameUnknown, NotNamed, Tls,
            Unresolved, Unsure,
        };
        let of_access = [NotNamed, Denied, Unsure(crate::token::Unsure::Unanswered), Unresolved];
        let all = [&[Address, NameUnknown][..], &of_access, &[Flavor, Tls, Certificate, Elsewhere]];
        let all: Vec<Refusal> = all.concat();
        let all: Vec<&str> = all.into_iter().map(Refusal::name).collect();
        assert_eq!(all, Refusal::NAMES);
    }
}
