//! Shares: a folder under a name, and who uses it how.
//!
//! *Operation.* Every protocol asks [`Share::enter_nfs`] or [`Share::enter_smb`] as whom a caller acts and which share it sees. Who
//! may only read sees its [`Share::reader`], so that each place where a read-only share refuses a change refuses that caller's too.
//!
//! *Errors.* [`Refusal`]: the rule that keeps the caller away.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Instant;

use policy::{Cidr, Flavor, Protocols, Squash};
use state::Enforce;

use crate::acl::{Owner, mask};
use crate::backend::{Backend, NodeRef};
use crate::client_names::{HostName, NameKind};
use crate::error::{VfsError, VfsResult};
use crate::refer::Referral;
pub use crate::refusal::Refusal;
use crate::share_access::{Right, ShareAccess};
use crate::types::{ANONYMOUS, Access, Attr, Cred, DirEntry, Kind, SetAttr};

/// Shared, so that to squash a caller takes no memory.
static NO_GROUPS: LazyLock<Arc<[u32]>> = LazyLock::new(|| Arc::new([]));

/// A folder that is served under a name.
pub struct Share {
    /// Its name: clients see `/NAME`.
    pub name: String,
    /// Number in file handles; derived from the name, so that it survives restarts and reordering.
    pub id: u32,
    /// Where its files live.
    pub backend: Arc<dyn Backend>,
    /// To whom it exists at all.
    pub protocols: Protocols,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Who is mapped to the anonymous user.
    pub squash: Squash,
    /// Whom locks of NFS clients bind.
    pub nfs_locks: Enforce,
    /// Who may come; `None`: directly attached networks and this host, which the front end judges.
    pub clients: Option<Vec<ClientRule>>,
    /// What else is said of those who come.
    pub rules: Rules,
}

/// By which protocol a client comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Nfs,
    Smb,
}

/// Which clients an entry of `clients` is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    /// Those of these addresses.
    Range(Cidr),
    /// Those of a name.
    Name(HostName),
}

impl Whom {
    /// The client is one of them; `None`: that is not known.
    fn has(&self, ip: IpAddr, now: &mut Option<Instant>) -> Option<bool> {
        match self {
            Self::Range(range) => Some(range.contains(ip)),
            // The time is looked at once for all, and not where there are ranges alone.
            Self::Name(name) => name.has(ip, *now.get_or_insert_with(Instant::now)),
        }
    }

    /// Of several that have a client, the highest counts: as in exports(5) a host by its name or whole address, then ranges, here
    /// the longest prefix first, then patterns of names, then netgroups, then everybody.
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

/// How a share is used by some clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRule {
    /// The clients.
    pub from: Whom,
    /// By which protocols they are meant. To a client of another one the rule does not exist.
    pub protocols: Protocols,
    /// Nothing may be changed from there.
    pub read_only: bool,
    /// NFS: which users become the anonymous one; `None`: as the share says.
    pub squash: Option<Squash>,
    /// NFS: the user and group that these become.
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

/// What a share says of those who use it. By default nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// In no list of shares: whoever knows its name finds it.
    pub hidden: bool,
    /// The path that NFS clients mount, without the first slash; `None`: its name.
    pub export: Option<Box<str>>,
    /// Which users may do what; `None`: all of them everything.
    pub access: Option<ShareAccess>,
    /// As whom they act then; `None`: as themselves.
    pub force: Option<Force>,
    /// Most that something new gets of its mode.
    pub masks: Masks,
    /// Listings of folders leave out what the user can neither read nor enter.
    pub only_visible: bool,
    /// NFS: by which flavors of RPC it may be used.
    pub sec: Flavors,
    /// SMB: each user has a folder of its name in the share, and sees that alone
    /// ([`FileOps::home`](crate::namespace::FileOps::home)).
    pub homes: bool,
    /// NFS: how its clients must be protected.
    pub tls: Protection,
    /// Which operations on its files are in the audit trail.
    pub audit: audit::Files,
    /// The gateway takes tickets of a domain: lists that deny something to identities of the domain are refused
    /// ([`Acl::unknown_denied`](crate::acl::Acl::unknown_denied)).
    pub has_domain: bool,
    /// The servers that it is on; empty where it is served here.
    pub refers_to: Arc<[Referral]>,
    /// The same share for those who may only read.
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
    /// This one is among them.
    pub fn has(self, flavor: Flavor) -> bool {
        self.0 & flavor as u8 != 0
    }

    /// Those that are among them, the one that protects most first.
    pub fn iter(self) -> impl Iterator<Item = Flavor> {
        Flavor::ALL.into_iter().filter(move |flavor| self.has(*flavor))
    }
}

/// What protects the calls of a client on their way (RFC 9289), or what a share demands. By default nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protection {
    /// Nothing.
    #[default]
    None,
    /// TLS: the server has proved itself.
    Tls,
    /// TLS, and the client has proved itself by a certificate.
    Mutual,
}

/// As whom everything is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Force {
    User(Cred),
    /// As oneself, with this group before all that one is in.
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

/// Most that something new gets of its mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Masks {
    /// Of what is no directory and no symbolic link.
    pub file: Option<u32>,
    /// Of a directory. Set-group-id and the sticky bit are set where they are in it.
    pub folder: Option<u32>,
}

impl Masks {
    /// The mode that something new is made with. SMB asks for no mode of its own: it gets all that may be had, of which nothing
    /// goes by the umask that stands in for one elsewhere. Who asks for none by NFS has the file for itself, unless its directory
    /// passes a list on, of which the mask alone takes away.
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

/// What the mode of something new says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewMode {
    /// The attributes that it is made with.
    pub(crate) set: SetAttr,
    /// Most that owner, group and others get of a list that its directory passes on; `None`: all of it.
    pub(crate) inherited_max: Option<u32>,
    /// Most that they get of a list that its maker gives it, which counts in place of the mode that came with it (RFC 8881 section
    /// 6.4.1.3); `None`: all of it.
    pub(crate) given_max: Option<u32>,
}

/// A share of which nothing may be changed, made when it is first wanted. It says nothing of a share by itself: all are equal, and
/// a copy has none yet.
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
    /// What the directory says.
    pub entry: DirEntry,
    /// The file as it was looked up for the listing, where it was.
    pub found: Option<(NodeRef, Attr)>,
}

/// Names that a listing looks up before others get a turn, and files that it holds at a time.
pub const LOOKS_AT_ONCE: usize = 64;

/// A share as one caller uses it.
pub struct Entered {
    /// The share, or its [`Share::reader`].
    pub share: Arc<Share>,
    /// As whom the caller acts.
    pub cred: Cred,
}

/// What a caller may do with a share.
pub struct Granted {
    may_change: bool,
    cred: Cred,
}

impl Share {
    /// It is on other servers, and has no files here.
    pub fn is_elsewhere(&self) -> bool {
        !self.rules.refers_to.is_empty()
    }

    /// A client of NFS whose calls are so protected may use it.
    pub fn check_protection(&self, has: Protection) -> Result<(), Refusal> {
        match self.rules.tls {
            demanded if has >= demanded => Ok(()),
            Protection::Mutual if has == Protection::Tls => Err(Refusal::Certificate),
            _ => Err(Refusal::Tls),
        }
    }

    /// The number of a share of this name (FNV-1a, 32 bits). The configuration refuses two names with one number.
    pub fn id_of(name: &str) -> u32 {
        name.bytes().fold(0x811c_9dc5, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
    }

    /// The path that NFS clients mount, without the first slash.
    pub fn nfs_path(&self) -> &str {
        self.rules.export.as_deref().unwrap_or(&self.name)
    }

    /// What is said of a client of this address and protocol: of several entries the one that counts ([`Whom`]); `None`: the
    /// share has no `clients`. A name of which it is not known whether it is the client's refuses it, unless what counts without
    /// that name gives no more than the name would.
    pub fn client(&self, ip: IpAddr, by: By) -> Result<Option<&ClientRule>, Refusal> {
        let Some(rules) = self.clients.as_deref() else { return Ok(None) };
        let is_meant = |rule: &&ClientRule| match by {
            By::Nfs => rule.protocols.nfs(),
            By::Smb => rule.protocols.smb(),
        };
        let (mut best, mut unknown): (Option<&ClientRule>, Vec<&ClientRule>) = (None, Vec::new());
        let mut now = None;
        for rule in rules.iter().filter(is_meant) {
            // Of equals the first counts.
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

    /// The one rule gives nothing that the other does not.
    fn is_within(&self, rule: &ClientRule, other: &ClientRule) -> bool {
        let squash = |rule: &ClientRule| rule.squash.unwrap_or(self.squash) as u8;
        (rule.read_only || !other.read_only)
            && squash(rule) >= squash(other)
            && rule.anonymous == other.anonymous
    }

    /// Applies the share's own squash rule to a user.
    pub fn squash(&self, cred: Cred) -> Cred {
        squashed(self.squash, (ANONYMOUS, ANONYMOUS), cred)
    }

    /// Who a caller of NFS from this address is.
    pub fn squash_from(&self, peer: IpAddr, cred: Cred) -> Cred {
        self.squash_by(self.client(peer, By::Nfs).ok().flatten(), cred)
    }

    fn squash_by(&self, rule: Option<&ClientRule>, cred: Cred) -> Cred {
        match rule {
            Some(rule) => squashed(rule.squash.unwrap_or(self.squash), rule.anonymous, cred),
            None => self.squash(cred),
        }
    }

    /// The share as a caller of NFS uses it, who is near where the share has no `clients`: `access` asks for whom the caller is
    /// after it was squashed, since a share that squashes believes no other claim.
    pub fn enter_nfs(self: &Arc<Self>, peer: IpAddr, cred: &Cred) -> Result<Entered, Refusal> {
        Ok(self.clone().granted(self.right_nfs(self.client(peer, By::Nfs)?, cred)?))
    }

    /// As [`Share::enter_nfs`], where [`Share::client`] was asked already.
    pub fn right_nfs(&self, rule: Option<&ClientRule>, cred: &Cred) -> Result<Granted, Refusal> {
        let cred = self.squash_by(rule, cred.clone());
        Ok(Granted { may_change: self.lets_change(rule, &cred)?, cred: self.forced(cred) })
    }

    /// The share as it is used with these rights.
    pub fn granted(self: Arc<Self>, granted: Granted) -> Entered {
        let Granted { may_change, cred } = granted;
        Entered { share: if may_change { self } else { self.reader() }, cred }
    }

    /// The share as a user of SMB uses it, from an address where that is known: `access` asks for who has logged on.
    pub fn enter_smb(
        self: &Arc<Self>,
        peer: Option<IpAddr>,
        cred: &Cred,
    ) -> Result<Entered, Refusal> {
        let rule = peer.map(|ip| self.client(ip, By::Smb)).transpose()?.flatten();
        let may_change = self.lets_change(rule, cred)?;
        let cred = self.forced(self.squash(cred.clone()));
        Ok(self.clone().granted(Granted { may_change, cred }))
    }

    fn forced(&self, cred: Cred) -> Cred {
        match &self.rules.force {
            Some(force) => force.on(cred),
            None => cred,
        }
    }

    /// A listing for this caller shows this node. A list of the file's own has to give all of FILE_GENERIC_READ, as with Windows;
    /// SYNCHRONIZE is everybody's.
    pub async fn shows(&self, node: &NodeRef, attr: &Attr, cred: &Cred) -> VfsResult<bool> {
        let uses = match node.kind() {
            _ if !self.rules.only_visible => return Ok(true),
            Kind::Dir => Access::READ | Access::LOOKUP,
            Kind::File => Access::READ,
            // It tells nothing but its name and where it leads.
            _ => return Ok(true),
        };
        const READS: u32 = mask::FILE_READ & !mask::SYNCHRONIZE;
        if node.kind() == Kind::File
            && let Some(acl) = node.acl(attr).await?
        {
            return Ok(acl.allowed(cred, Owner::of(attr)) & READS == READS);
        }
        match node.access(cred, Access(uses), attr).await {
            Ok(granted) => Ok(granted.0 & uses != 0),
            // It went meanwhile, or nothing is known of it.
            Err(VfsError::NotFound | VfsError::Stale | VfsError::Access) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// A name that `reader` has read in a directory, as it is looked up for a listing that `cred` asked for. `None`: the share does
    /// not show it, it went meanwhile, or nothing but its name may be known.
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

    /// Lists names of a directory as [`Node::readdir`](crate::Node::readdir), without those that the share does not show this
    /// caller: until there is one, or the directory is at its end. Whoever wants a name's attributes has them where the share had
    /// to look at the file. A folder in which nothing is shown may be of any length, so that others on this thread get a turn after
    /// every [`LOOKS_AT_ONCE`] names.
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
            let mut shown = Vec::new();
            for entry in entries {
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

    /// What a caller sees who may not use the share and still mounts it: attributes of its root, as the anonymous user.
    pub fn from_outside(self: &Arc<Self>) -> Entered {
        Entered { share: self.reader(), cred: anonymous((ANONYMOUS, ANONYMOUS)) }
    }

    fn lets_change(&self, rule: Option<&ClientRule>, cred: &Cred) -> Result<bool, Refusal> {
        if self.is_elsewhere() {
            return Err(Refusal::Elsewhere);
        }
        let access = self.rules.access.as_ref();
        let right = access.map_or(Ok(Right::Write), |access| access.right(cred))?;
        Ok(right == Right::Write && rule.is_none_or(|rule| !rule.read_only))
    }

    /// This share for those who may only read.
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
    Cred { uid, gid, groups: NO_GROUPS.clone() }
}

/// Who a caller is by this rule.
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
        Cred { uid, gid: uid, groups: groups.into() }
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
        ShareAccess {
            read: principals(read),
            write: principals(write),
            deny: PrincipalSet::default(),
        }
    }

    #[test]
    fn a_reader_sees_the_same_share_read_only() {
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
    async fn a_listing_that_shows_little_gives_others_a_turn() {
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
    fn nfs_is_asked_after_the_squash_and_smb_before() {
        let named = share(Squash::All, access(&[5], &[]));
        assert_eq!(named.enter_nfs(PEER, &cred(5, &[])).err(), Some(Refusal::NotNamed));
        let logged_on = named.enter_smb(Some(PEER), &cred(5, &[])).unwrap();
        assert_eq!(logged_on.cred.uid, ANONYMOUS);
        let anonymous = share(Squash::All, access(&[ANONYMOUS], &[]));
        assert!(anonymous.enter_nfs(PEER, &cred(5, &[])).is_ok());
        assert!(anonymous.enter_smb(Some(PEER), &cred(5, &[])).is_err());
        // A client's root is not the user of number 0.
        let root = share(Squash::Root, access(&[0], &[]));
        assert!(root.enter_nfs(PEER, &cred(0, &[])).is_err());
    }

    #[test]
    fn of_several_ranges_the_longest_prefix_counts_alone() {
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

    /// A share whose own squash is `Squash::Root`, of these clients.
    fn of_clients(clients: Vec<ClientRule>) -> Arc<Share> {
        let old = share(Squash::Root, access(&[], &[]));
        let (rules, backend) = (Rules::default(), old.backend.clone());
        Arc::new(Share { name: "team".into(), backend, clients: Some(clients), rules, ..*old })
    }

    fn range(text: &str, bits: u8) -> ClientRule {
        ClientRule::from(Cidr { addr: text.parse().unwrap(), bits })
    }

    /// Names of clients, and the table that knows them.
    struct Names(Arc<ClientNames>);

    impl Names {
        fn of(&self, kind: NameKind, name: &str) -> ClientRule {
            let named = HostName { name: name.into(), kind, known: self.0.clone() };
            ClientRule { from: Whom::Name(named), ..range("::", 0) }
        }

        /// PEER has this name and is in this netgroup.
        fn learn(&self, name: &str, groups: &[(&str, bool)]) {
            self.0.set_host(name.into(), vec![PEER], Instant::now());
            let netgroups =
                groups.iter().map(|(name, is_in)| ((*name).into(), Some(*is_in))).collect();
            let facts = ClientFacts { names: vec![name.into()], netgroups };
            self.0.set_client(PEER, facts, Instant::now());
        }
    }

    #[test]
    fn names_count_in_the_order_of_exports() {
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
    fn a_name_that_cannot_be_looked_up_gives_nothing_and_takes_what_it_would() {
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
    fn a_client_of_one_protocol_is_none_of_the_other() {
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
    fn masks_limit_what_is_asked_for_and_set_what_they_name() {
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
    fn whoever_is_let_in_acts_as_the_user_that_is_forced() {
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
        // It is asked who comes, not as whom that one will act.
        assert!(user.enter_smb(None, &cred(1000, &[])).is_err());
        let group = with(Force::Group(70)).enter_nfs(PEER, &cred(5, &[9])).unwrap().cred;
        assert_eq!((group.uid, group.gid, &*group.groups), (5, 70, &[5, 9][..]));
        assert_eq!(cred(5, &[9, 70]).with_first_group(70).groups[..], [5, 9]);
        assert_eq!(cred(5, &[9]).with_first_group(5), cred(5, &[9]));
    }

    #[test]
    fn every_refusal_has_its_name_in_the_list() {
        use Refusal::{
            Address, Certificate, Denied, Elsewhere, Flavor, NameUnknown, NotNamed, Tls,
        };
        let all = [Address, NameUnknown, NotNamed, Denied, Flavor, Tls, Certificate, Elsewhere];
        assert_eq!(all.map(Refusal::name), *Refusal::NAMES);
    }
}
