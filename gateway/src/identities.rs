//! Resolves the users and groups of the configuration to numbers.
//!
//! *Operation.* An account of the gateway takes precedence over the host's user with the same name. A group becomes its
//! number, which NFS calls carry and SMB logons look up, and the users that the host's group database lists as its members:
//! an NFS call carries at most 16 groups (RFC 5531 section 8.2), so its list may be incomplete. A number stays a number, even
//! if an account has it as its name. The gateway queries the host once when it reads a configuration ([`Settings::on_host`]),
//! and at each reload; no call waits for a name. A user or group of the domain is an identifier, or a name that a ticket proves.
//!
//! *Errors.* One line for the user: the name is unknown, the account has no uid of its own, or the name service fails or does
//! not answer within [`PATIENCE`]. A failing name service never drops an entry from a list: a user dropped from `deny` would
//! get access.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use config::{Access, Member, Names, OnHost, Settings, Squash, Who};
use domain_sys::Number;
use rdma_transport::count;
use smbd_core::privileges::Holders;
use vfs::acl::Sid;
use vfs::namespace::{Force, OfDomain, PrincipalSet, ShareAccess};
use vfs::token::DOMAIN_GROUPS;
use vfs::{Cred, DomainIdentity, accounts};

use by_service::{ByService, Meaning};
#[cfg(test)]
pub(crate) use domain_user::domain_user_with;
pub(crate) use domain_user::{DomainUser, by_password, by_ticket, domain_user, learn_numbers};

use crate::{domain, users};

mod by_service;
mod domain_user;
mod of_directory;

/// Time that the host's name service has for all names of a configuration.
const PATIENCE: Duration = Duration::from_secs(10);

/// Looks up the credential of an account, and whether the host or the configuration confirms that it is this account.
pub(crate) type Accounts<'a> = &'a dyn Fn(&str) -> Option<(Cred, bool)>;

/// Answer of the name service: `None` if the name does not exist, `Err` if the service failed.
type Answer<T> = Result<Option<T>, String>;

/// Results of the look-ups on the host; names that were not looked up are missing.
pub(crate) type Found = BTreeMap<Who, Option<OnHost>>;

/// A group's number and the names of its members.
type Group = (u32, Vec<String>);

/// Look-up functions of the host's name service. Each may block.
#[derive(Clone, Copy)]
struct Service {
    user: fn(&str) -> io::Result<Option<Cred>>,
    uid: fn(&str) -> io::Result<Option<u32>>,
    name: fn(u32) -> io::Result<Option<String>>,
    group: fn(&str) -> io::Result<Option<Group>>,
    group_of: fn(u32) -> io::Result<Option<Group>>,
    shows_group: fn(&str) -> bool,
}

const HOST: Service = Service {
    user: accounts::by_name,
    uid: accounts::uid_of,
    name: accounts::name_of,
    group: accounts::members_of,
    group_of: accounts::members_of_gid,
    shows_group: |name| accounts::Directory::is_group(&accounts::Host, name),
};

/// Users and groups of a share's settings, as numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rights {
    pub(crate) access: Option<ShareAccess>,
    pub(crate) force: Option<Force>,
    /// Some user or group cannot be resolved, so that the share waits.
    pub(crate) unresolved: bool,
}

impl Rights {
    /// Returns true if every caller with access to the share acts as root.
    pub(crate) fn makes_root(&self) -> bool {
        matches!(&self.force, Some(Force::User(cred)) if cred.uid == 0)
    }

    /// Returns the squash of the NFS clients with the most rights, over all keys.
    pub(crate) fn weakest_squash(&self, share: &config::Share) -> Squash {
        if self.makes_root() { Squash::None } else { share.weakest_squash() }
    }
}

/// Returns true if some share lets a caller act as root, also if `force` names a user whose look-up fails. Blocks for a
/// limited time.
pub(crate) fn make_root(settings: &Settings) -> bool {
    if settings.shares.iter().any(|share| share.weakest_squash() == Squash::None) {
        return true;
    }
    if settings.shares.iter().all(|share| share.force.user.is_none()) {
        return false;
    }
    let Ok(accounts) = users::accounts(settings) else { return true };
    let account = |name: &str| accounts.get(&name.to_lowercase()).cloned();
    rights_of_each(settings, &account).iter().any(|r| r.as_ref().map_or(true, Rights::makes_root))
}

/// Looks up these users and groups on the host and returns the results in the same order. Blocks for a limited time.
pub(crate) fn of_host(names: &[Who]) -> Result<Vec<Option<OnHost>>, String> {
    let names = names.to_vec();
    within(move || names.iter().map(|who| look_up(who, HOST)).collect())?
}

/// Returns the rights of each share, in the order of the shares. Blocks for a limited time.
pub(crate) fn rights(settings: &Settings, accounts: Accounts<'_>) -> Result<Vec<Rights>, String> {
    rights_by(settings, accounts, HOST).into_iter().collect()
}

/// Like [`rights`], with a result for each share.
pub(crate) fn rights_of_each(
    settings: &Settings,
    accounts: Accounts<'_>,
) -> Vec<Result<Rights, String>> {
    rights_by(settings, accounts, HOST)
}

/// The data from which users and groups are resolved.
#[derive(Clone, Copy)]
pub(crate) struct Resolver<'a> {
    accounts: Accounts<'a>,
    found: &'a Found,
    domain: Option<&'a InDomain>,
}

impl<'a> Resolver<'a> {
    pub(crate) fn new(
        accounts: Accounts<'a>,
        found: &'a Found,
        domain: Option<&'a InDomain>,
    ) -> Self {
        Self { accounts, found, domain }
    }
}

/// The domain whose tickets the gateway accepts.
pub(crate) struct InDomain {
    /// The realm, whose name in DNS is the same without regard to case; `None`: only SIDs identify users.
    realm: Option<String>,
    /// Its identifier and names, after the first ticket.
    identity: Option<DomainIdentity>,
    /// Its users are those of this host with the same names.
    by_names: bool,
    /// Answers of the service about names of these settings.
    by_service: ByService,
}

/// Returns the domain of these settings; `None` without `kerberos` and a service. Blocks for some seconds at most.
pub(crate) fn in_domain(settings: &Settings) -> Option<InDomain> {
    in_domain_with(settings, None)
}

fn in_domain_with(settings: &Settings, one: Option<&Who>) -> Option<InDomain> {
    let kerberos = settings.kerberos.as_ref();
    if kerberos.is_none() && !domain::has_service(settings) {
        return None;
    }
    let realm = kerberos.and_then(|k| k.realm.as_ref()).map(ToString::to_string);
    let by_names = kerberos.is_some_and(|k| k.map == config::KerberosMap::Names);
    let by_service = ByService::of(settings, one);
    let domain = domain::of(settings);
    if let Some(domain) = &domain {
        by_service.tell(domain);
    }
    let identity = domain.and_then(|domain| domain.identity().cloned());
    Some(InDomain { realm, identity, by_names, by_service })
}

/// Returns the holders of privileges. Blocks for a limited time.
pub(crate) fn holders(settings: &Settings, accounts: Accounts<'_>) -> Result<Holders, String> {
    let (known, unanswered) = of_directory::known(settings, accounts, HOST);
    let found = found(settings, known, accounts, HOST)?;
    if let Some(why) = unanswered.of(settings.privileges.principals(), &found) {
        return Err(format!("privileges: {why}"));
    }
    let domain = in_domain(settings);
    let names = Resolver::new(accounts, &found, domain.as_ref());
    let [backup, restore, security, take_ownership] =
        settings.privileges.lists().map(|(key, list)| {
            principals(list, names).map_err(|why| format!("privileges: {key}: {why}"))
        });
    Ok(Holders {
        backup: backup?,
        restore: restore?,
        security: security?,
        take_ownership: take_ownership?,
    })
}

fn rights_by(
    settings: &Settings,
    accounts: Accounts<'_>,
    host: Service,
) -> Vec<Result<Rights, String>> {
    let (known, unanswered) = of_directory::known(settings, accounts, host);
    let (found, failed) = match found(settings, known.clone(), accounts, host) {
        Ok(found) => (found, None),
        Err(why) => (known, Some(why)),
    };
    let domain = in_domain(settings);
    let names = Resolver::new(accounts, &found, domain.as_ref());
    let of_share = |s: &config::Share| {
        let told = |key: &'static str| move |why| format!("share {}: {key}: {why}", s.name);
        let access = s.access.as_ref().map(|a| share_access(a, names));
        let access = access.transpose().map_err(told("access"))?;
        let force = force(&s.force, accounts, &found).map_err(told("force"))?;
        Ok(Rights { access, force, unresolved: false })
    };
    // A name that was not looked up is no name that does not exist, and a number without the members of its group denies them
    // nothing.
    let of_share = |s: &config::Share| match (&failed, unanswered.of(named(s), &found)) {
        (_, Some(why)) => Err(format!("share {}: {why}", s.name)),
        (Some(why), None) if needs_host(s, &found, accounts) => Err(why.clone()),
        _ => of_share(s),
    };
    settings.shares.iter().map(of_share).collect()
}

/// Returns true if the host must be asked about a user or group that is not among those found.
fn is_asked(who: &Who, found: &Found, accounts: Accounts<'_>) -> bool {
    match who {
        _ if found.contains_key(who) => false,
        Who::Everyone => false,
        _ if who.sid().is_some() => false,
        Who::User(name) => who.number().is_some() || accounts(name).is_none(),
        Who::Group(_) => true,
    }
}

/// Returns true if the share names a user or group about which the host must be asked.
fn needs_host(share: &config::Share, found: &Found, accounts: Accounts<'_>) -> bool {
    named(share).any(|who| is_asked(who, found, accounts))
}

/// Returns the users and groups that a share names.
fn named(share: &config::Share) -> impl Iterator<Item = &Who> {
    let named = share.access.as_ref().into_iter().flat_map(Access::principals);
    named.chain([&share.force.user, &share.force.group].into_iter().flatten())
}

/// Looks up on the host all users and groups that these settings name. Blocks for a limited time.
pub(crate) fn on_host(settings: &Settings, accounts: Accounts<'_>) -> Result<Found, String> {
    let (known, _) = of_directory::known(settings, accounts, HOST);
    found(settings, known, accounts, HOST)
}

/// Returns the host's data about all users and groups that these settings name: the earlier answer for those that are known, a new
/// look-up for the others.
fn found(
    settings: &Settings,
    known: Found,
    accounts: Accounts<'_>,
    host: Service,
) -> Result<Found, String> {
    let mut found = known;
    let is_asked = |who: &&Who| is_asked(who, &found, accounts);
    let shares = || settings.shares.iter();
    let named = shares().filter_map(|s| s.access.as_ref()).flat_map(Access::principals);
    let forced = shares().flat_map(|s| [&s.force.user, &s.force.group]).flatten();
    // Tickets map `alice@example.org` to the user `alice` of this host, where names map.
    let plain = |who: &Who| match (who, who.in_domain()) {
        (Who::User(_), Some((name, _))) => Some(Who::User(name.to_owned())),
        _ => None,
    };
    let privileged = settings.privileges.principals();
    let named: Vec<&Who> = named.chain(forced).chain(privileged).collect();
    let plain: Vec<Who> = named.iter().filter_map(|who| plain(who)).collect();
    let named = named.into_iter().chain(&plain);
    let asked: BTreeSet<Who> = named.filter(is_asked).cloned().collect();
    if settings.names == Names::Own || asked.is_empty() {
        return Ok(found);
    }
    let now = move || {
        let found = |who: Who| look_up(&who, host).map(|found| (who, found));
        asked.into_iter().map(found).collect::<Result<Vec<_>, String>>()
    };
    found.extend(within(now)??);
    Ok(found)
}

/// Entry of `access` that decides about a caller.
pub(crate) struct Reason {
    /// The list: `deny`, `admin`, `write` or `read`.
    pub(crate) list: &'static str,
    /// Entry in the list.
    pub(crate) who: Who,
    /// Index of the entry, from 0.
    pub(crate) entry: usize,
}

/// Returns the entry of the share's `access` that decides about this caller; `None` if no entry names the caller.
pub(crate) fn reason(
    share: &config::Share,
    names: Resolver<'_>,
    cred: &Cred,
) -> Result<Option<Reason>, String> {
    let Some(access) = &share.access else { return Ok(None) };
    let lists = [
        ("deny", &access.deny),
        ("admin", &access.admin),
        ("write", &access.write),
        ("read", &access.read),
    ];
    for (list, all) in lists {
        for (entry, who) in all.iter().enumerate() {
            let set = principals(std::slice::from_ref(who), names)?;
            if if list == "deny" { set.may_have(cred) } else { set.has(cred) } {
                return Ok(Some(Reason { list, who: who.clone(), entry }));
            }
        }
    }
    Ok(None)
}

/// Resolves a user to an account, a user of the host, or a number. The groups of a number may be unknown.
pub(crate) fn user_of(
    name: &str,
    settings: &Settings,
    accounts: Accounts<'_>,
) -> Result<Cred, String> {
    let who = Who::User(name.to_owned());
    if let (None, Some((cred, _))) = (who.number(), accounts(name)) {
        return if users::is_nobody(&cred) {
            Err(format!("`{name}` cannot log on: {}", users::why_nobody(name)))
        } else {
            Ok(cred)
        };
    }
    let mut found = settings.on_host.clone();
    if settings.names == Names::Host && !found.contains_key(&who) {
        let asked = who.clone();
        found.insert(who.clone(), within(move || look_up(&asked, HOST))??);
    }
    Ok(match user(&who, accounts, &found)? {
        Meant::User(cred) => cred,
        Meant::Number(uid) => Cred { uid, gid: uid, groups: Arc::new([]), token: vfs::Token::NONE },
    })
}

/// Result of resolving a user of the configuration.
enum Meant {
    User(Cred),
    /// A number whose groups are unknown.
    Number(u32),
}

impl Meant {
    fn uid(&self) -> u32 {
        match self {
            Self::User(cred) => cred.uid,
            Self::Number(uid) => *uid,
        }
    }
}

/// Resolves a user of the configuration.
fn user(who: &Who, accounts: Accounts<'_>, found: &Found) -> Result<Meant, String> {
    let of_host = match found.get(who) {
        Some(Some(OnHost::User { uid, gid, groups, .. })) => Some(Cred {
            uid: *uid,
            gid: *gid,
            groups: groups.clone().into(),
            token: vfs::Token::NONE,
        }),
        _ => None,
    };
    if let Some(uid) = who.number() {
        return Ok(of_host.filter(|c| c.uid == uid).map_or(Meant::Number(uid), Meant::User));
    }
    let name = who.to_string();
    match (accounts(&name), of_host) {
        (Some((cred, true)), _) => Ok(Meant::User(cred)),
        (Some((_, false)), _) => Err(stranger(&name)),
        (None, Some(cred)) => Ok(Meant::User(cred)),
        (None, None) => Err(no_user(&name)),
    }
}

/// Returns the number of the group, and its members as far as the host lists them.
fn group<'a>(who: &Who, found: &'a Found) -> Result<(u32, &'a [Member]), String> {
    match (found.get(who), who.number()) {
        (Some(Some(OnHost::Group { gid, members })), _) => Ok((*gid, members)),
        (_, Some(gid)) => Ok((gid, &[])),
        _ => Err(no_group(who.name())),
    }
}

fn no_user(name: &str) -> String {
    format!(
        "there is no user `{name}`, on this host or in `headgate user list`; a user of the domain is written like \
         `alice@example.org`, with `kerberos.realm` set"
    )
}

fn no_group(name: &str) -> String {
    format!(
        "there is no group `{name}`; a group of the domain that this host does not know is written by its SID, as in \
         `\"@S-1-5-21-1-2-3-1114\"`"
    )
}

/// Returns the credential that all operations on the share use. A user given only as a number has no group except the one in
/// the setting.
fn force(
    force: &config::Force,
    accounts: Accounts<'_>,
    found: &Found,
) -> Result<Option<Force>, String> {
    let first = force.group.as_ref().map(|who| group(who, found)).transpose()?;
    let first = first.map(|(gid, _)| gid);
    let Some(who) = &force.user else { return Ok(first.map(Force::Group)) };
    let cred = match (user(who, accounts, found)?, first) {
        (Meant::User(cred), None) => cred,
        (Meant::User(cred), Some(gid)) => cred.with_first_group(gid),
        (Meant::Number(uid), Some(gid)) => {
            Cred { uid, gid, groups: Arc::new([]), token: vfs::Token::NONE }
        }
        (Meant::Number(uid), None) => {
            return Err(format!("the groups of the user {uid} are unknown; set `group` too"));
        }
    };
    Ok(Some(Force::User(cred)))
}

fn share_access(access: &Access, names: Resolver<'_>) -> Result<ShareAccess, String> {
    let principals = |list: &[Who]| principals(list, names);
    let write =
        if access.only_denies() { PrincipalSet::everyone() } else { principals(&access.write)? };
    Ok(ShareAccess {
        admin: principals(&access.admin)?,
        read: principals(&access.read)?,
        write,
        deny: principals(&access.deny)?,
    })
}

/// Numbers and identities of users and groups.
#[derive(Default)]
struct Parts {
    users: Vec<u32>,
    groups: Vec<u32>,
    sids: Vec<Sid>,
    of_domain: Vec<OfDomain>,
}

fn principals(list: &[Who], names: Resolver<'_>) -> Result<PrincipalSet, String> {
    let mut parts = Parts::default();
    for who in list {
        if *who == Who::Everyone {
            return Ok(PrincipalSet::everyone());
        }
        match who.sid() {
            Some(text) => parts.add_sid(text, names.domain)?,
            None => parts.add(who, names)?,
        }
    }
    let Parts { users, groups, sids, of_domain } = parts;
    Ok(PrincipalSet::new(users, groups).with_identities(sids, of_domain))
}

impl Parts {
    /// Adds a SID: of a user or group of the domain or of this host, or of an alias with known members.
    fn add_sid(&mut self, text: &str, domain: Option<&InDomain>) -> Result<(), String> {
        const NT: u64 = 5;
        const DOMAIN: u32 = 21;
        const ALIAS: u32 = 32;
        let sid: Sid = text.parse().map_err(|_| format!("`{text}` is not a SID"))?;
        if let Some(uid) = sid.as_unix_user() {
            self.users.push(uid);
        } else if let Some(gid) = sid.as_unix_group() {
            self.groups.push(gid);
        } else {
            let is_known = match (sid.authority(), sid.subs()) {
                (NT, [DOMAIN, _, _, _, _]) if domain.is_none() => {
                    return Err(format!("`{sid}` is of a domain, and `kerberos` is not set"));
                }
                (NT, [DOMAIN, _, _, _, _] | [ALIAS, 544..=546] | [11]) => true,
                _ => false,
            };
            if !is_known {
                return Err(format!(
                    "the gateway does not know the members of `{sid}`; write the SID of a user or group of the domain"
                ));
            }
            self.sids.push(sid);
        }
        Ok(())
    }

    /// Adds a name, of this host, of an account, or of the domain.
    fn add(&mut self, who: &Who, names: Resolver<'_>) -> Result<(), String> {
        if let Some(domain) = names.domain
            && let Some(done) = self.add_by_service(who, names, &domain.by_service)
        {
            return done;
        }
        let of_domain = of_domain(who, names.domain);
        let is_found = match who {
            Who::User(_) => self.add_user(who, names, of_domain.is_some()),
            _ => self.add_group(who, names),
        };
        match (is_found, of_domain) {
            (Err(why), None) => {
                let by_service = names.domain.map(|domain| &domain.by_service);
                Err(by_service.and_then(|service| service.unknown_domain(who)).unwrap_or(why))
            }
            (_, of_domain) => {
                self.of_domain.extend(of_domain);
                Ok(())
            }
        }
    }

    /// Adds a name that the service knows, and returns `Some` if the host need not be looked at.
    fn add_by_service(
        &mut self,
        who: &Who,
        names: Resolver<'_>,
        by_service: &ByService,
    ) -> Option<Result<(), String>> {
        let is_of_domain = of_domain(who, names.domain).is_some();
        // A group of this host takes precedence over one of the domain without a domain in front. It may be the same.
        let on_host = who.in_domain().is_none().then(|| group(who, names.found).ok()).flatten();
        match (by_service.meaning(who), on_host) {
            (Ok(Meaning::Missing), _) if who.in_domain().is_some() && is_of_domain => {
                Some(Err(by_service.unknown(who)))
            }
            (Ok(Meaning::Nothing | Meaning::Missing), _) => None,
            (Ok(Meaning::Identity(sid, number)), Some((gid, _))) => {
                if matches!(number, Some(Number::Gid(n) | Number::Both(n)) if n == gid) {
                    self.sids.push(sid);
                }
                None
            }
            (Ok(Meaning::Identity(sid, _)), None) => {
                self.sids.push(sid);
                Some(Ok(()))
            }
            (Err(_), Some(_)) => None,
            (Err(why), None) => Some(Err(why)),
        }
    }

    fn add_user(
        &mut self,
        who: &Who,
        names: Resolver<'_>,
        is_of_domain: bool,
    ) -> Result<(), String> {
        let its = user(who, names.accounts, names.found).map(|user| user.uid());
        let by_names = names.domain.is_some_and(|domain| domain.by_names);
        let plain = who.in_domain().filter(|_| is_of_domain && by_names);
        let plain = plain.map(|(name, _)| Who::User(name.to_owned()));
        // An account without a uid of its own has no files, and must not stand for others.
        let same = plain.and_then(|who| user(&who, names.accounts, names.found).ok());
        self.users.extend(same.map(|user| user.uid()));
        let uid = its?;
        self.users.push(uid);
        // The host shows a group of a domain as this user: the name means the members of the group.
        if let Some(Some(OnHost::User { gid, shows_group: true, .. })) = names.found.get(who)
            && *gid == uid
        {
            self.groups.push(*gid);
        }
        Ok(())
    }

    fn add_group(&mut self, who: &Who, names: Resolver<'_>) -> Result<(), String> {
        let (gid, members) = group(who, names.found)?;
        self.groups.push(gid);
        for (member, on_host) in members {
            self.users.extend(self::member(who.name(), member, names.accounts, on_host)?);
        }
        Ok(())
    }
}

/// Returns the identity of a name of the domain: `alice@example.org`, `EXAMPLE\alice`, or a group that every domain has. `None` if
/// the name is only of this host.
fn of_domain(who: &Who, domain: Option<&InDomain>) -> Option<OfDomain> {
    let Some(InDomain { realm: Some(realm), identity, .. }) = domain else { return None };
    let well_known = |name: &str| {
        let mut all = DOMAIN_GROUPS.iter();
        let found = all.find(|(_, known)| known.eq_ignore_ascii_case(name));
        found.map(|(rid, _)| OfDomain::Rid(*rid))
    };
    let Some((name, of)) = who.in_domain() else {
        let group = Some(who).filter(|who| matches!(who, Who::Group(_)));
        return group.and_then(|who| well_known(who.name()));
    };
    let is_ours = of.eq_ignore_ascii_case(realm)
        || identity.as_ref().is_some_and(|its| of.eq_ignore_ascii_case(&its.name));
    match who {
        Who::User(_) if is_ours => Some(OfDomain::User(name.to_lowercase().into())),
        Who::Group(_) if is_ours => well_known(name),
        // The host may know users and groups of further domains.
        _ => None,
    }
}

/// Returns the number of a member of a group. A name in the group database whose user was deleted has no number.
fn member(
    group: &str,
    name: &str,
    accounts: Accounts<'_>,
    on_host: &Answer<u32>,
) -> Result<Option<u32>, String> {
    match (accounts(name), on_host) {
        (Some((cred, true)), _) => Ok(Some(cred.uid)),
        (Some((_, false)), Ok(Some(uid))) => Ok(Some(*uid)),
        (Some((_, false)), _) => Err(stranger(name)),
        (None, Ok(known)) => {
            if known.is_none() {
                tracing::warn!(group, member = name, "a member of the group is not a user");
            }
            Ok(*known)
        }
        (None, Err(why)) => Err(why.clone()),
    }
}

/// Returns the error for an account without its own uid: it shares its number with every unknown user, so an entry for it
/// would admit any of them.
fn stranger(name: &str) -> String {
    format!(
        "the account `{name}` has no uid; give it one, as in `headgate user add {name} --uid 1000`"
    )
}

/// Looks up a name on the host. May block.
fn look_up(who: &Who, host: Service) -> Answer<OnHost> {
    match who {
        Who::Everyone => Ok(None),
        Who::User(name) => {
            let by_number = match who.number() {
                Some(uid) => (host.name)(uid).map_err(unanswered(who))?,
                None => None,
            };
            let user = (host.user)(by_number.as_deref().unwrap_or(name));
            let found = user.map_err(unanswered(who))?;
            Ok(found.map(|c| OnHost::User {
                uid: c.uid,
                gid: c.gid,
                groups: c.groups.to_vec(),
                shows_group: who.number().is_none() && (host.shows_group)(name),
            }))
        }
        Who::Group(name) => {
            let group = match who.number() {
                Some(gid) => (host.group_of)(gid),
                None => (host.group)(name),
            };
            let Some((gid, members)) = group.map_err(unanswered(who))? else { return Ok(None) };
            let known = |name: String| {
                let uid = (host.uid)(&name).map_err(unanswered(&name));
                (name, uid)
            };
            let members = members.into_iter().map(known).collect();
            Ok(Some(OnHost::Group { gid, members }))
        }
    }
}

fn unanswered(name: impl std::fmt::Display) -> impl FnOnce(io::Error) -> String {
    move |e| format!("this host's name service (passwd, group) cannot look up `{name}`: {e}")
}

/// Most threads that wait for a name service which does not answer.
const THREADS_MAX: usize = 8;
/// Threads that look names up.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// One of [`THREADS`], also if it could not be started or broke down.
struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs `work` on a separate thread, which is abandoned when it takes too long.
fn within<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    if THREADS.fetch_add(1, Ordering::Relaxed) >= THREADS_MAX {
        THREADS.fetch_sub(1, Ordering::Relaxed);
        count::limit_met("name-service");
        return Err(
            "this host's name service (passwd, group) does not answer earlier look-ups".into()
        );
    }
    let counted = Counted;
    let (tell, told) = mpsc::channel();
    let look_up = move || {
        let _counted = counted;
        drop(tell.send(work()));
    };
    let asking = thread::Builder::new().name("names".into()).spawn(look_up);
    asking.map_err(|e| format!("cannot look up users and groups: {e}"))?;
    told.recv_timeout(PATIENCE).map_err(|_| {
        count::limit_met("name-service");
        let seconds = PATIENCE.as_secs();
        format!("this host's name service (passwd, group) did not answer within {seconds} s")
    })
}

#[cfg(test)]
mod in_domain_tests;
#[cfg(test)]
mod tests {
    use vfs::namespace::Right;

    use super::*;

    fn rights(share: config::Share, names: Names) -> Result<Rights, String> {
        rights_by(share, names, HOST)
    }

    fn rights_by(share: config::Share, names: Names, host: Service) -> Result<Rights, String> {
        let settings = Settings { shares: vec![share], names, ..Settings::default() };
        let cred = |uid, groups: &[u32]| Cred {
            uid,
            gid: uid,
            groups: groups.into(),
            token: vfs::Token::NONE,
        };
        let accounts = |name: &str| match name {
            "alice" => Some((cred(5, &[50]), true)),
            "root" => Some((cred(6, &[]), true)),
            "stranger" => Some((cred(65_534, &[]), false)),
            _ => None,
        };
        super::rights_by(&settings, &accounts, host).remove(0)
    }

    fn resolved(access: Access, names: Names) -> Result<ShareAccess, String> {
        let mut share = config::Share::new("team", config::Source::Memory);
        share.access = Some(access);
        rights(share, names).map(|rights| rights.access.unwrap())
    }

    fn forced(user: Option<&str>, group: Option<&str>) -> Result<Option<Force>, String> {
        let mut share = config::Share::new("team", config::Source::Memory);
        let group = group.map(|name| Who::Group(name.into()));
        share.force = config::Force { user: user.map(|name| name.parse().unwrap()), group };
        rights(share, Names::Host).map(|rights| rights.force)
    }

    #[test]
    fn a_forced_user_has_its_groups_and_the_group_that_is_said() {
        let user = |uid, gid, groups: &[u32]| {
            Ok(Some(Force::User(Cred { uid, gid, groups: groups.into(), token: vfs::Token::NONE })))
        };
        assert_eq!(forced(None, None), Ok(None));
        assert_eq!(forced(Some("alice"), None), user(5, 5, &[50]));
        assert_eq!(forced(Some("alice"), Some("12")), user(5, 12, &[5, 50]));
        assert_eq!(forced(Some("4294967000"), Some("12")), user(4_294_967_000, 12, &[]));
        assert!(forced(Some("4294967000"), None).unwrap_err().contains("set `group` too"));
        assert_eq!(forced(None, Some("root")), Ok(Some(Force::Group(0))));
        let nobody = vfs::accounts::by_name("nobody").unwrap().unwrap();
        assert_eq!(forced(Some("nobody"), None), Ok(Some(Force::User(nobody))));
        for (user, group) in [(Some("stranger"), None), (Some("nobody-has-this-name"), None)] {
            assert!(forced(user, group).unwrap_err().starts_with("share team: force: "));
        }
        assert!(forced(None, Some("nobody-has-this-name")).is_err());
    }

    fn who(names: &[&str]) -> Vec<Who> {
        names.iter().map(|n| n.parse().unwrap()).collect()
    }

    fn right(access: &ShareAccess, uid: u32, groups: &[u32]) -> Option<Right> {
        access
            .right(&Cred { uid, gid: 70_000, groups: groups.into(), token: vfs::Token::NONE })
            .ok()
    }

    #[test]
    fn an_account_stands_before_the_hosts_user_and_numbers_are_numbers() {
        let access = Access {
            read: who(&["alice", "7", "@0"]),
            write: who(&["root", "@12"]),
            deny: who(&["9"]),
            ..Access::default()
        };
        let access = resolved(access, Names::Host).unwrap();
        assert_eq!([5, 7, 6, 9].map(|uid| right(&access, uid, &[])), {
            use Right::{Read, Write};
            [Some(Read), Some(Read), Some(Write), None]
        });
        assert_eq!(right(&access, 8, &[0]), Some(Right::Read));
        assert_eq!(right(&access, 8, &[12]), Some(Right::Write));
        assert_eq!(right(&access, 0, &[]), None, "the account has another number than the host's");
    }

    #[test]
    fn the_hosts_users_and_groups_are_found_by_name() {
        let access = Access { read: who(&["nobody", "@root"]), ..Access::default() };
        let found = resolved(access, Names::Host).unwrap();
        assert_eq!(right(&found, 65_534, &[]), Some(Right::Read));
        assert_eq!(right(&found, 8, &[0]), Some(Right::Read));
        for name in ["nobody-has-this-name", "@nobody-has-this-name"] {
            let access = Access { deny: who(&[name]), ..Access::default() };
            let why = resolved(access, Names::Host).unwrap_err();
            assert!(why.starts_with("share team: access: there is no "), "{why}");
        }
        let access = Access { deny: who(&["@root"]), ..Access::default() };
        assert!(resolved(access, Names::Own).is_err(), "the host is not asked");
        let there = of_host(&who(&["root", "@root", "nobody-has-this-name", "@0"])).unwrap();
        assert_eq!([0, 1, 2, 3].map(|n| there[n].is_some()), [true, true, false, true]);
    }

    #[test]
    fn an_account_that_is_anybody_cannot_be_named() {
        for access in [
            Access { read: who(&["stranger"]), ..Access::default() },
            Access { deny: who(&["stranger"]), ..Access::default() },
        ] {
            let why = resolved(access, Names::Host).unwrap_err();
            assert!(why.contains("`stranger` has no uid;"), "{why}");
        }
    }

    #[test]
    fn where_only_some_are_denied_all_others_may_write() {
        let access = Access { deny: who(&["alice"]), ..Access::default() };
        let found = resolved(access, Names::Host).unwrap();
        assert_eq!((right(&found, 5, &[]), right(&found, 8, &[])), (None, Some(Right::Write)));
    }

    /// A host whose directory server answers for groups, but not for their member `bob`.
    const HALF_AWAY: Service = Service {
        user: |_| Ok(None),
        uid: |name| match name {
            "bob" => Err(io::ErrorKind::ConnectionRefused.into()),
            "alice" => Ok(Some(1000)),
            _ => Ok(None),
        },
        name: |_| Ok(None),
        group: |name| {
            Ok(Some(match name {
                "staff" => (50, vec!["alice".into(), "bob".into()]),
                "own" => (51, vec!["alice".into(), "gone".into()]),
                "away" => return Err(io::ErrorKind::TimedOut.into()),
                _ => return Ok(None),
            }))
        },
        group_of: |gid| match gid {
            7 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(None),
        },
        shows_group: |_| false,
    };

    fn denied(name: &str) -> Result<ShareAccess, String> {
        let mut share = config::Share::new("team", config::Source::Memory);
        share.access = Some(Access { deny: who(&[name]), ..Access::default() });
        rights_by(share, Names::Host, HALF_AWAY).map(|rights| rights.access.unwrap())
    }

    #[test]
    fn a_name_service_that_fails_lets_nobody_in_who_is_denied() {
        for name in ["@staff", "@away", "@7"] {
            let why = denied(name).unwrap_err();
            assert!(why.contains("cannot look up"), "{name}: {why}");
        }
        assert!(denied("@8").is_ok(), "a number that the host does not know is a number");
    }

    /// A name service that shows the group `sales` of a domain as a user, and `carol` with a private group.
    #[test]
    fn name_of_group_shown_as_user_means_its_members() {
        let names = Service {
            user: |name| {
                let uid = if name == "sales" { 3001 } else { 1000 };
                let token = vfs::Token::NONE;
                Ok(Some(Cred { uid, gid: uid, groups: [].into(), token }))
            },
            shows_group: |name| name == "sales",
            ..HALF_AWAY
        };
        let mut share = config::Share::new("team", config::Source::Memory);
        share.access = Some(Access { deny: who(&["sales", "carol"]), ..Access::default() });
        let rights = rights_by(share, Names::Host, names).unwrap().access.unwrap();
        let of = |uid, groups: &[u32]| right(&rights, uid, groups);
        assert_eq!([of(7, &[3001]), of(3001, &[]), of(1000, &[])], [None; 3]);
        assert_eq!(of(7, &[1000]), Some(Right::Write));
    }

    /// A host that must not be queried.
    const SILENT: Service = Service {
        user: |name| panic!("asked of {name}"),
        uid: |name| panic!("asked of {name}"),
        name: |uid| panic!("asked of {uid}"),
        group: |name| panic!("asked of {name}"),
        group_of: |gid| panic!("asked of {gid}"),
        shows_group: |name| panic!("asked of {name}"),
    };

    #[test]
    fn the_host_is_asked_once_for_a_configuration() {
        let mut share = config::Share::new("team", config::Source::Memory);
        share.access = Some(Access { deny: who(&["@own", "bob", "9"]), ..Access::default() });
        share.force.user = Some(Who::User("9".into()));
        let mut settings = Settings { shares: vec![share], ..Settings::default() };
        let user = |uid| Some(OnHost::User { uid, gid: 4, groups: vec![5], shows_group: false });
        settings.on_host = [
            (Who::User("bob".into()), user(8)),
            (Who::User("9".into()), user(9)),
            (Who::Group("own".into()), Some(OnHost::Group { gid: 7, members: Vec::new() })),
        ]
        .into();
        let rights = super::rights_by(&settings, &|_| None, SILENT).remove(0).unwrap();
        let access = rights.access.unwrap();
        assert_eq!(
            [7, 8, 9, 10].map(|uid| right(&access, uid, &[]).is_some()),
            [true, false, false, true]
        );
        assert_eq!(right(&access, 10, &[7]), None);
        let forced = Cred { uid: 9, gid: 4, groups: [5].into(), token: vfs::Token::NONE };
        assert_eq!(rights.force, Some(Force::User(forced)));
    }

    #[test]
    fn who_acts_as_root_by_force_is_not_squashed() {
        let root = |user: Option<&str>, squash| {
            let mut share =
                config::Share { squash, ..config::Share::new("team", config::Source::Memory) };
            share.force.user = user.map(|name| Who::User(name.into()));
            let nowhere = std::path::PathBuf::from("/nonexistent");
            let mut settings =
                Settings { shares: vec![share], state: nowhere, ..Settings::default() };
            settings.on_host.insert(
                Who::User("toor".into()),
                Some(OnHost::User { uid: 0, gid: 0, groups: Vec::new(), shows_group: false }),
            );
            settings.on_host.insert(
                Who::User("team".into()),
                Some(OnHost::User { uid: 9, gid: 9, groups: Vec::new(), shows_group: false }),
            );
            make_root(&settings)
        };
        assert!(root(None, Squash::None) && !root(None, Squash::Root));
        assert!(root(Some("toor"), Squash::All) && !root(Some("team"), Squash::All));
        assert!(root(Some("root"), Squash::All) && root(Some("0"), Squash::All));
    }

    #[test]
    fn a_number_is_the_same_user_in_each_key() {
        let mut share = config::Share::new("team", config::Source::Memory);
        share.access = Some(Access { deny: who(&["4294967000"]), ..Access::default() });
        share.force = config::Force {
            user: Some("4294967000".parse().unwrap()),
            group: Some(Who::Group("7".into())),
        };
        let settings = Settings { shares: vec![share], ..Settings::default() };
        // An account with that number as its name is another user.
        let account = |name: &str| {
            let cred = Cred { uid: 5, gid: 5, groups: [].into(), token: vfs::Token::NONE };
            (name == "4294967000").then_some((cred, true))
        };
        let rights = super::rights_by(&settings, &account, HOST).remove(0).unwrap();
        let access = rights.access.unwrap();
        assert_eq!([5, 4_294_967_000].map(|uid| right(&access, uid, &[]).is_some()), [true, false]);
        let forced =
            Cred { uid: 4_294_967_000, gid: 7, groups: [].into(), token: vfs::Token::NONE };
        assert_eq!(rights.force, Some(Force::User(forced)));
        assert_eq!(user_of("4294967000", &settings, &account).unwrap().uid, 4_294_967_000);
    }

    #[test]
    fn a_member_of_a_group_is_the_account_of_its_name_first() {
        let access = denied("@own").unwrap();
        assert_eq!(right(&access, 5, &[]), None);
        assert_eq!(right(&access, 1000, &[]), Some(Right::Write), "the host's user is another");
    }
}
