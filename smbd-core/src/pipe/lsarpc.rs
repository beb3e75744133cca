//! The local security authority (MS-LSAD, MS-LSAT): the machine's domain, and translation between names and SIDs.
//!
//! An account of the gateway owns files under the SID of its uid, S-1-22-1-UID. This is the SID of the account's name, and it is
//! shown under that name. S-1-5-21-MACHINE-RID means the same account, for SIDs that clients have stored.

use smb_proto::ndr::{Later, Reader, Writer};
use vfs::token::DOMAIN_GROUPS;

use crate::dtyp::Sid;
use crate::status::Status;
use crate::users::{gid_of_rid, uid_of_rid};

use super::rpc::{Fault, Read, Syntax};
use super::samr::{ALL_USERS, ALL_USERS_NAME};
use super::{Host, PRICE_MIN};
use domain_names::DomainNames;

mod domain_names;

/// 12345778-1234-abcd-ef00-0123456789ab, version 0.0.
pub(crate) const SYNTAX: Syntax = Syntax {
    uuid: [
        0x78, 0x57, 0x34, 0x12, 0x34, 0x12, 0xcd, 0xab, 0xef, 0x00, 0x01, 0x23, 0x45, 0x67, 0x89,
        0xab,
    ],
    version: 0,
};

/// Most names or SIDs in one call.
const LOOKUPS_MAX: u32 = 1000;
/// Characters of a name; a longer name from a directory is ignored.
const NAME_MAX: usize = 256;
/// The only policy handle: it gives every client the same access.
const HANDLE: [u8; 20] = *b"\0\0\0\0headgate policy\x01";

/// SID_NAME_USE (MS-LSAT section 2.2.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    User = 1,
    Group = 2,
    Domain = 3,
    Alias = 4,
    WellKnown = 5,
    Unknown = 8,
    Computer = 9,
}

/// A translated name with its domain.
struct Found {
    kind: Use,
    name: String,
    /// Name and SID of the domain.
    domain: (String, Sid),
    sid: Sid,
}

/// Returns the most bytes that an answer takes ([`Interface::price`](super::Interface::price)).
pub(super) fn price(stub: &[u8]) -> usize {
    /// The shortest name or SID is a pointer.
    const ARGUMENT_MIN: usize = 4;
    /// The result for one name with its domain, and its copy in fragments.
    const FOUND_MAX: usize = 4 << 10;
    let most = usize::try_from(LOOKUPS_MAX).unwrap_or(usize::MAX);
    PRICE_MIN + FOUND_MAX * most.min(stub.len() / ARGUMENT_MIN)
}

/// Returns the name unless it is too long.
fn told(name: String) -> Option<String> {
    (name.chars().count() <= NAME_MAX).then_some(name)
}

/// Runs one operation.
pub(crate) fn call(host: &dyn Host, op: u16, stub: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut r = Reader::new(stub);
    match op {
        0 => close(&mut r),
        // LsarOpenPolicy, LsarOpenPolicy2: every caller that can open the pipe may translate names.
        6 | 44 => Ok([&HANDLE[..], &[0; 4]].concat()),
        7 => query_policy(host, &mut r),
        // LsarQueryInformationPolicy2. Not offered outside a domain, as with smbd there: smbcacls uses it to query the domain's SID
        // and crashes if the answer has none.
        46 if host.domain().is_some_and(|domain| domain.identity().is_some()) => {
            query_policy(host, &mut r)
        }
        14 => lookup_names(host, &mut r, Names { handle: true, long: false, sids: false }),
        15 => lookup_sids(host, &mut r, Sids { handle: true, long: false }),
        45 => get_user_name(host, &mut r),
        57 => lookup_sids(host, &mut r, Sids { handle: true, long: true }),
        58 => lookup_names(host, &mut r, Names { handle: true, long: true, sids: false }),
        68 => lookup_names(host, &mut r, Names { handle: true, long: true, sids: true }),
        76 => lookup_sids(host, &mut r, Sids { handle: false, long: true }),
        77 => lookup_names(host, &mut r, Names { handle: false, long: true, sids: true }),
        _ => Err(Fault::NO_OPERATION),
    }
}

fn close(r: &mut Reader<'_>) -> Read<Vec<u8>> {
    r.bytes(HANDLE.len())?;
    Ok(vec![0; 24])
}

fn handle(r: &mut Reader<'_>) -> Read<Result<(), Status>> {
    Ok(if r.bytes(HANDLE.len())? == HANDLE { Ok(()) } else { Err(Status::INVALID_HANDLE) })
}

/// LsarQueryInformationPolicy (MS-LSAD section 3.1.4.4.4).
fn query_policy(host: &dyn Host, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    let held = handle(r)?;
    let class = r.u16()?;
    let mut w = Writer::default();
    let mut later = Vec::new();
    let mut text = |w: &mut Writer, text: String| {
        w.string_head(&text);
        later.push(Later::Counted(text));
    };
    let known = held.and(if matches!(class, 3 | 5 | 6 | 12) {
        Ok(())
    } else {
        Err(Status::INVALID_PARAMETER)
    });
    if let Err(status) = known {
        w.null();
        w.u32(status.0);
        return Ok(w.finish());
    }
    w.pointer();
    w.u16(class);
    // All arms of a union have the alignment of the most aligned one (C706 section 14.3.2); here it contains times.
    w.align(8);
    let domain = host.domain();
    let member = domain.as_ref().and_then(|domain| domain.identity());
    match (class, member) {
        // PolicyPrimaryDomainInformation
        (3, Some(domain)) => {
            text(&mut w, domain.name.clone());
            w.pointer();
            later.push(Later::Sid(domain.sid.clone()));
        }
        (3, None) => {
            text(&mut w, "WORKGROUP".into());
            w.null();
        }
        // PolicyAccountDomainInformation
        (5, _) => {
            text(&mut w, host.computer());
            w.pointer();
            later.push(Later::Sid(host.machine()));
        }
        // PolicyLsaServerRoleInformation: PolicyServerRolePrimary
        (6, _) => w.u16(3),
        // PolicyDnsDomainInformation. Tickets contain neither the forest nor the GUID of the domain.
        (_, Some(domain)) => {
            text(&mut w, domain.name.clone());
            text(&mut w, domain.dns.clone());
            text(&mut w, domain.dns.clone());
            w.bytes(&[0; 16]);
            w.pointer();
            later.push(Later::Sid(domain.sid.clone()));
        }
        (_, None) => {
            text(&mut w, "WORKGROUP".into());
            text(&mut w, String::new());
            text(&mut w, String::new());
            w.bytes(&[0; 16]);
            w.null();
        }
    }
    w.later(later);
    w.u32(0);
    Ok(w.finish())
}

/// LsarGetUserName (MS-LSAT section 3.1.4.2).
fn get_user_name(host: &dyn Host, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    let skip = |r: &mut Reader<'_>| -> Read<()> {
        if r.pointer()? && r.string_head()? {
            r.text()?;
        }
        Ok(())
    };
    r.unique_text()?;
    skip(r)?;
    let domain = r.pointer()?;
    if domain {
        skip(r)?;
    }
    let mut w = Writer::default();
    let put = |w: &mut Writer, text: String| {
        w.pointer();
        w.string_head(&text);
        w.later(vec![Later::Counted(text)]);
    };
    put(&mut w, host.caller());
    if domain {
        w.pointer();
        put(&mut w, host.computer());
    } else {
        w.null();
    }
    w.u32(0);
    Ok(w.finish())
}

/// Variant of an operation that translates SIDs.
#[derive(Clone, Copy)]
struct Sids {
    handle: bool,
    /// True if the operation has `Flags`.
    long: bool,
}

/// LsarLookupSids, 2 and 3 (MS-LSAT sections 3.1.4.9 to 11).
fn lookup_sids(host: &dyn Host, r: &mut Reader<'_>, shape: Sids) -> Read<Vec<u8>> {
    let held = if shape.handle { handle(r)? } else { Ok(()) };
    let count = r.u32()?;
    let mut sids = Vec::new();
    if count > LOOKUPS_MAX {
        return Err(Fault::BAD_STUB);
    }
    if r.pointer()? {
        if r.u32()? != count {
            return Err(Fault::BAD_STUB);
        }
        let there = (0..count).map(|_| r.pointer()).collect::<Result<Vec<_>, _>>()?;
        for there in there {
            sids.push(if there { Some(r.sid()?) } else { None });
        }
    }
    let mut domains = Domains::default();
    let mut w = Writer::default();
    let found: Vec<_> = match held {
        Ok(()) => {
            let asked = DomainNames::of_sids(host, sids.iter().flatten());
            sids.iter().map(|s| s.as_ref().and_then(|s| name_of(host, s, &asked))).collect()
        }
        Err(_) => Vec::new(),
    };
    let indices: Vec<u32> = found.iter().map(|f| domains.index(f.as_ref())).collect();
    domains.write(&mut w);
    w.u32(u32::try_from(found.len()).unwrap_or(u32::MAX));
    w.pointer();
    w.u32(u32::try_from(found.len()).unwrap_or(u32::MAX));
    let mut later = Vec::new();
    for ((found, index), sid) in found.iter().zip(&indices).zip(&sids) {
        let (kind, name) = match found {
            Some(f) => (f.kind, f.name.clone()),
            None => (Use::Unknown, sid.as_ref().map(ToString::to_string).unwrap_or_default()),
        };
        w.u16(kind as u16);
        w.string_head(&name);
        later.push(Later::Counted(name));
        w.u32(*index);
        if shape.long {
            w.u32(0);
        }
    }
    w.later(later);
    finish(w, held, &found)
}

/// Variant of an operation that translates names.
#[derive(Clone, Copy)]
struct Names {
    handle: bool,
    /// True if the operation has `Flags`.
    long: bool,
    /// True if it returns whole SIDs rather than RIDs.
    sids: bool,
}

/// LsarLookupNames, 2, 3 and 4 (MS-LSAT sections 3.1.4.5 to 8).
fn lookup_names(host: &dyn Host, r: &mut Reader<'_>, shape: Names) -> Read<Vec<u8>> {
    let held = if shape.handle { handle(r)? } else { Ok(()) };
    let count = r.u32()?;
    if count > LOOKUPS_MAX || r.u32()? != count {
        return Err(Fault::BAD_STUB);
    }
    let there = (0..count).map(|_| r.string_head()).collect::<Result<Vec<_>, _>>()?;
    let mut names = Vec::new();
    for there in there {
        names.push(if there { r.text()? } else { String::new() });
    }
    let mut domains = Domains::default();
    let mut w = Writer::default();
    let found: Vec<_> = match held {
        Ok(()) => {
            let asked = DomainNames::of_names(host, &names);
            names.iter().map(|n| sid_of(host, n, &asked)).collect()
        }
        Err(_) => Vec::new(),
    };
    let indices: Vec<u32> = found.iter().map(|f| domains.index(f.as_ref())).collect();
    domains.write(&mut w);
    w.u32(u32::try_from(found.len()).unwrap_or(u32::MAX));
    w.pointer();
    w.u32(u32::try_from(found.len()).unwrap_or(u32::MAX));
    let mut later = Vec::new();
    for (found, index) in found.iter().zip(&indices) {
        w.align(4);
        w.u16(found.as_ref().map_or(Use::Unknown, |f| f.kind) as u16);
        match (found, shape.sids) {
            (Some(f), true) => {
                w.pointer();
                later.push(Later::Sid(f.sid.clone()));
            }
            (None, true) => w.null(),
            // A domain has no RID.
            (Some(f), false) if f.kind == Use::Domain => w.u32(u32::MAX),
            (Some(f), false) => w.u32(f.sid.split().map_or(0, |(_, rid)| rid)),
            (None, false) => w.u32(0),
        }
        w.u32(*index);
        if shape.long {
            w.u32(0);
        }
    }
    w.later(later);
    finish(w, held, &found)
}

fn finish(mut w: Writer, held: Result<(), Status>, found: &[Option<Found>]) -> Read<Vec<u8>> {
    let mapped = found.iter().flatten().count();
    w.u32(u32::try_from(mapped).unwrap_or(u32::MAX));
    let status = match held {
        Err(status) => status,
        Ok(()) if mapped == found.len() => Status::SUCCESS,
        Ok(()) if mapped == 0 => Status::NONE_MAPPED,
        Ok(()) => Status::SOME_NOT_MAPPED,
    };
    w.u32(status.0);
    Ok(w.finish())
}

/// LSAPR_REFERENCED_DOMAIN_LIST
#[derive(Default)]
struct Domains(Vec<(String, Sid)>);

impl Domains {
    fn index(&mut self, found: Option<&Found>) -> u32 {
        let Some(found) = found else { return u32::MAX };
        let at = self.0.iter().position(|d| *d == found.domain).unwrap_or_else(|| {
            self.0.push(found.domain.clone());
            self.0.len() - 1
        });
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    fn write(self, w: &mut Writer) {
        let count = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        w.pointer();
        w.u32(count);
        if count == 0 {
            w.null();
            return w.u32(0);
        }
        w.pointer();
        w.u32(32.max(count));
        w.u32(count);
        let mut later = Vec::new();
        for (name, sid) in self.0 {
            w.string_head(&name);
            w.pointer();
            later.extend([Later::Counted(name), Later::Sid(sid)]);
        }
        w.later(later);
    }
}

const UNIX_USER: &str = "Unix User";
const UNIX_GROUP: &str = "Unix Group";

/// SIDs known to every Windows machine (MS-DTYP section 2.4.2.4): authority and numbers, kind, domain, name.
const WELL_KNOWN: [(u64, &[u32], Use, &str, &str); 12] = [
    (1, &[0], Use::WellKnown, "", "Everyone"),
    (3, &[0], Use::WellKnown, "", "CREATOR OWNER"),
    (3, &[1], Use::WellKnown, "", "CREATOR GROUP"),
    (3, &[4], Use::WellKnown, "", "OWNER RIGHTS"),
    (5, &[2], Use::WellKnown, "NT AUTHORITY", "NETWORK"),
    (5, &[7], Use::WellKnown, "NT AUTHORITY", "ANONYMOUS LOGON"),
    (5, &[11], Use::WellKnown, "NT AUTHORITY", "Authenticated Users"),
    (5, &[18], Use::WellKnown, "NT AUTHORITY", "SYSTEM"),
    (5, &[19], Use::WellKnown, "NT AUTHORITY", "LOCAL SERVICE"),
    (5, &[32, 544], Use::Alias, "BUILTIN", "Administrators"),
    (5, &[32, 545], Use::Alias, "BUILTIN", "Users"),
    (5, &[32, 546], Use::Alias, "BUILTIN", "Guests"),
];

fn well_known(n: usize) -> Option<Found> {
    let (authority, subs, kind, domain, name) = WELL_KNOWN.get(n)?;
    let sid = Sid::new(*authority, subs)?;
    let (above, _) = sid.split()?;
    Some(Found { kind: *kind, name: (*name).into(), domain: ((*domain).into(), above), sid })
}

/// Translates a SID to a name.
fn name_of(host: &dyn Host, sid: &Sid, asked: &DomainNames) -> Option<Found> {
    let known = (0..WELL_KNOWN.len()).filter_map(well_known).find(|f| f.sid == *sid);
    if known.is_some() {
        return known;
    }
    let machine = host.machine();
    let (above, rid) = sid.split()?;
    let found = |kind, name, domain: &str| {
        Some(Found { kind, name, domain: (domain.into(), above.clone()), sid: sid.clone() })
    };
    if *sid == machine {
        let domain = (host.computer(), machine.clone());
        return Some(Found { kind: Use::Domain, name: host.computer(), domain, sid: machine });
    }
    if let Some(found) = asked.name_of(sid).or_else(|| of_domain(host, sid)) {
        return Some(found);
    }
    if above == machine {
        if rid == ALL_USERS {
            return found(Use::Group, ALL_USERS_NAME.into(), &host.computer());
        }
        if let Some(gid) = gid_of_rid(rid) {
            let name = host.others().group(gid).and_then(told)?;
            return found(Use::Alias, name, &host.computer());
        }
        let name = host.account_of_uid(uid_of_rid(rid)?).and_then(told)?;
        return found(Use::User, name, &host.computer());
    }
    if let Some(uid) = sid.as_unix_user() {
        return match host.account_of_uid(uid).and_then(told) {
            Some(name) => found(Use::User, name, &host.computer()),
            None => {
                let name = host.others().user(uid).and_then(told);
                let name = name.unwrap_or_else(|| uid.to_string());
                found(Use::User, name, UNIX_USER)
            }
        };
    }
    if let Some(gid) = sid.as_unix_group() {
        let name = host.others().group(gid).and_then(told).unwrap_or_else(|| gid.to_string());
        return found(Use::Group, name, UNIX_GROUP);
    }
    None
}

/// Translates a SID of the domain, using names learned from tickets.
fn of_domain(host: &dyn Host, sid: &Sid) -> Option<Found> {
    let domain = host.domain()?;
    let identity = domain.identity()?;
    let found = |kind, name: &str| {
        let above = (identity.name.clone(), identity.sid.clone());
        Some(Found { kind, name: name.to_owned(), domain: above, sid: sid.clone() })
    };
    if *sid == identity.sid {
        return found(Use::Domain, &identity.name);
    }
    let rid = sid.rid_in(&identity.sid)?;
    if let Some(name) = domain.user_name(sid).and_then(told) {
        return found(Use::User, &name);
    }
    let (_, name) = DOMAIN_GROUPS.iter().find(|(known, _)| *known == rid)?;
    found(Use::Group, name)
}

/// Returns the SID of a name in the domain. `by_tickets`: of a user, the name in its last ticket counts.
fn sid_in_domain(host: &dyn Host, (of, name): (&str, &str), by_tickets: bool) -> Option<Sid> {
    let domain = host.domain()?;
    let identity = domain.identity()?;
    let same = |a: &str, b: &str| a.to_lowercase() == b.to_lowercase();
    // `name@domain` takes no other domain in front.
    let (name, of) = match name.rsplit_once('@') {
        Some((name, at)) if of.is_empty() => (name, at),
        _ => (name, of),
    };
    if !of.is_empty() && !same(of, &identity.name) && !same(of, &identity.dns) {
        return None;
    }
    if of.is_empty() && same(name, &identity.name) {
        return Some(identity.sid.clone());
    }
    let group = || DOMAIN_GROUPS.iter().find(|(_, known)| same(known, name));
    let user = if by_tickets { domain.user_named(name) } else { None };
    user.or_else(|| identity.sid.child(group()?.0))
}

/// Splits a name into the domain in front, which may be empty, and the rest.
fn parts_of(name: &str) -> (&str, &str) {
    name.split_once('\\').unwrap_or(("", name))
}

/// Translates a name, with or without a domain in front, to a SID. An account translates to the SID of its uid, which files use.
fn sid_of(host: &dyn Host, name: &str, asked: &DomainNames) -> Option<Found> {
    let (domain, plain) = parts_of(name);
    let name_of = |host, sid: &Sid| name_of(host, sid, asked);
    let same = |a: &str, b: &str| a.to_lowercase() == b.to_lowercase();
    let computer = host.computer();
    let ours = domain.is_empty() || same(domain, &computer);
    if same(name, &computer) {
        return name_of(host, &host.machine());
    }
    if ours && let Some((written, uid)) = host.account(plain) {
        // Use the SID that files use; an access list entry with another SID would match no user.
        let sid = Sid::unix_user(uid);
        let domain = (computer, sid.split()?.0);
        return Some(Found { kind: Use::User, name: written, domain, sid });
    }
    // Names made of a number, as shown for ids that the host has no name for.
    if let Ok(n) = plain.parse() {
        if same(domain, UNIX_USER) {
            return name_of(host, &Sid::unix_user(n));
        }
        if same(domain, UNIX_GROUP) {
            return name_of(host, &Sid::unix_group(n));
        }
    }
    let of = |known: &str| domain.is_empty() || same(domain, known);
    let known = (0..WELL_KNOWN.len())
        .filter_map(well_known)
        .find(|f| same(&f.name, plain) && of(&f.domain.0));
    if known.is_some() {
        return known;
    }
    // The domain comes before users of the host: a name service may show users and groups of the domain under the same names, and a
    // group as a user.
    if let Some(found) = asked.sid_of(name) {
        return Some(found);
    }
    let by_tickets = !asked.is_unknown(name);
    let in_domain = || of_domain(host, &sid_in_domain(host, (domain, plain), by_tickets)?);
    if !domain.is_empty()
        && let Some(found) = in_domain()
    {
        return Some(found);
    }
    let user = || host.others().uid(plain).map(Sid::unix_user);
    let group = || host.others().gid(plain).map(Sid::unix_group);
    let (may_be_user, may_be_group) = (of(UNIX_USER), of(UNIX_GROUP));
    let user = may_be_user.then(user).flatten();
    // Names that no user has are asked about once.
    let user = user.filter(|_| !may_be_group || !host.others().is_group(plain));
    let other = user.or_else(|| may_be_group.then(group).flatten());
    match other {
        Some(sid) => name_of(host, &sid),
        None => in_domain(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vfs::accounts::{Directory, Nobody};
    use vfs::{Domain, DomainIdentity};

    use super::*;
    use crate::auth::relay::{Question, Refused, Why};
    use crate::domain_engine::{Engine, Lookup, Named, NamedKind, Numbers, Verdict};

    /// A member of a domain, whose winbind has this answer for each name and SID.
    struct Member(Arc<Domain>, Option<Arc<Winbind>>);

    /// `None`: it does not answer.
    struct Winbind(Option<Vec<Named>>);

    impl Winbind {
        fn found(&self, is: impl Fn(&Named) -> bool) -> Lookup {
            match &self.0 {
                Some(all) => Ok(all.iter().find(|one| is(one)).cloned()),
                None => Err(Refused { why: Why::Away, detail: String::new() }),
            }
        }
    }

    impl Engine for Winbind {
        fn machine(&self) -> Option<crate::auth::Identity> {
            None
        }
        fn knows_domain(&self, _: &str) -> Option<bool> {
            None
        }
        fn is_domain(&self, _: &str) -> Result<bool, Refused> {
            Ok(false)
        }
        fn ask(&self, _: &Question) -> Verdict {
            Verdict::NoDomain
        }
        fn numbers(&self, user: &Sid, _: &Sid, _: &[Sid]) -> Result<Numbers, Refused> {
            Err(Refused { why: Why::NoNumber, detail: user.to_string() })
        }
        fn knows_owners(&self, _: &[u32], _: &[u32]) -> bool {
            true
        }
        fn learn_owners(&self, _: &[u32], _: &[u32]) {}
        fn learn_numbers(&self, _: Option<&Sid>, _: Option<&Sid>) -> bool {
            true
        }
        fn names(&self, sids: &[Sid]) -> Vec<Lookup> {
            sids.iter().map(|sid| self.found(|one| one.sid == *sid)).collect()
        }
        fn identities(&self, names: &[(&str, &str)]) -> Vec<Lookup> {
            let is = |one: &Named, domain: &str, name: &str| {
                one.name.eq_ignore_ascii_case(name)
                    && (domain.is_empty() || one.domain.eq_ignore_ascii_case(domain))
            };
            names.iter().map(|(domain, name)| self.found(|one| is(one, domain, name))).collect()
        }
    }

    impl crate::pipe::Guard for Member {}

    impl Host for Member {
        fn computer(&self) -> String {
            "GATE".into()
        }
        fn shares(&self) -> Vec<(String, String)> {
            Vec::new()
        }
        fn shares_size(&self) -> (usize, usize) {
            (0, 0)
        }
        fn machine(&self) -> Sid {
            Sid::new(5, &[21, 7, 7, 7]).unwrap()
        }
        fn account(&self, name: &str) -> Option<(String, u32)> {
            (name == "carol").then(|| ("carol".into(), 1001))
        }
        fn account_of_uid(&self, uid: u32) -> Option<String> {
            (uid == 1001).then(|| "carol".into())
        }
        fn each_account(&self, each: &mut dyn FnMut(&str, &vfs::Cred)) {
            each("carol", &vfs::Cred { uid: 1001, gid: 1001, ..vfs::Cred::root() });
        }
        fn knows_caller(&self) -> bool {
            true
        }
        fn domain(&self) -> Option<Arc<Domain>> {
            Some(self.0.clone())
        }
        fn engine(&self) -> Option<Arc<dyn Engine>> {
            Some(self.1.clone()?)
        }
        fn others(&self) -> &dyn Directory {
            match self.1 {
                Some(_) => &NameService,
                None => &Nobody,
            }
        }
        fn caller(&self) -> String {
            String::new()
        }
        fn times(&self) -> (u64, u64) {
            (0, 0)
        }
        fn sessions(&self) -> u32 {
            0
        }
    }

    fn sid(text: &str) -> Sid {
        text.parse().unwrap()
    }

    fn member() -> Member {
        let domain = Domain::new(None);
        let of = sid("S-1-5-21-1-2-3");
        domain.know(DomainIdentity { sid: of, name: "LAB".into(), dns: "lab.test".into() });
        domain.know_user(1001, &sid("S-1-5-21-1-2-3-1103"), "Alice");
        domain.know_user(1002, &sid("S-1-5-21-1-2-3-1104"), "carol");
        Member(domain, None)
    }

    /// Shows groups of the domain as users, as that of winbind does.
    struct NameService;

    impl Directory for NameService {
        fn uid(&self, name: &str) -> Option<u32> {
            ["sales", "staff"].contains(&name).then_some(101_114)
        }
        fn gid(&self, name: &str) -> Option<u32> {
            self.uid(name)
        }
        fn user(&self, _: u32) -> Option<String> {
            None
        }
        fn group(&self, _: u32) -> Option<String> {
            None
        }
        fn is_group(&self, name: &str) -> bool {
            name == "staff"
        }
    }

    #[test]
    fn winbind_says_kinds_and_names_of_all_domains() {
        let named = |text: &str, kind, domain: &str, name: &str| Named {
            sid: sid(text),
            kind,
            domain: domain.into(),
            name: name.into(),
        };
        let all = vec![
            named("S-1-5-21-1-2-3-1103", NamedKind::User, "LAB", "alice.new"),
            named("S-1-5-21-1-2-3-1114", NamedKind::Group, "LAB", "sales"),
            named("S-1-5-21-1-2-3-1115", NamedKind::Alias, "LAB", "printers"),
            named("S-1-5-21-1-2-3-1120", NamedKind::User, "LAB", "carol"),
            named("S-1-5-21-4-5-6-1103", NamedKind::User, "OTHER", "bob"),
            named("S-1-5-21-4-5-6", NamedKind::Domain, "OTHER", ""),
            // A winbind with a fault: names of this machine are not for it to say.
            named("S-1-5-32-544", NamedKind::Alias, "BUILTIN", "fault"),
        ];
        let mut member = member();
        member.1 = Some(Arc::new(Winbind(Some(all))));
        let told = |member: &Member, name: &str| {
            let names = [name.to_owned()];
            let asked = DomainNames::of_names(member, &names);
            let found = sid_of(member, name, &asked)?;
            let back = DomainNames::of_sids(member, [&found.sid].into_iter());
            let back = name_of(member, &found.sid, &back)?;
            assert_eq!((back.kind, &back.domain), (found.kind, &found.domain), "{name}");
            Some((found.sid.to_string(), found.kind, format!(r"{}\{}", back.domain.0, back.name)))
        };
        for (name, wanted, kind, shown) in [
            (r"LAB\sales", "S-1-5-21-1-2-3-1114", Use::Group, r"LAB\sales"),
            ("sales", "S-1-5-21-1-2-3-1114", Use::Group, r"LAB\sales"),
            (r"lab\PRINTERS", "S-1-5-21-1-2-3-1115", Use::Alias, r"LAB\printers"),
            (r"OTHER\bob", "S-1-5-21-4-5-6-1103", Use::User, r"OTHER\bob"),
            (r"LAB\alice.new", "S-1-5-21-1-2-3-1103", Use::User, r"LAB\alice.new"),
            ("carol", "S-1-22-1-1001", Use::User, r"GATE\carol"),
            (r"LAB\carol", "S-1-5-21-1-2-3-1120", Use::User, r"LAB\carol"),
            ("Administrators", "S-1-5-32-544", Use::Alias, r"BUILTIN\Administrators"),
            // The name service alone knows it, as a user and as a group.
            ("staff", "S-1-22-2-101114", Use::Group, r"Unix Group\101114"),
        ] {
            let wanted = (wanted.to_owned(), kind, shown.to_owned());
            assert_eq!(told(&member, name), Some(wanted), "{name}");
        }
        // Alice was renamed after her ticket.
        for unknown in [r"LAB\nobody", r"LAB\alice", "alice@lab.test", "fault", r"GATE\sales"] {
            assert_eq!(told(&member, unknown), None, "{unknown}");
        }
        let asked = DomainNames::of_sids(&member, [&sid("S-1-5-21-4-5-6")].into_iter());
        let found = name_of(&member, &sid("S-1-5-21-4-5-6"), &asked).unwrap();
        assert_eq!((found.kind, &*found.name, found.domain.1), (Use::Domain, "OTHER", found.sid));
        // While it is silent, users with tickets keep their names.
        member.1 = Some(Arc::new(Winbind(None)));
        let kept = told(&member, r"LAB\alice").unwrap();
        assert_eq!(kept.2, r"LAB\Alice");
        assert_eq!(told(&member, r"OTHER\bob"), None);
    }

    /// MS-LSAT sections 3.1.4.5 and 3.1.4.9.
    #[test]
    fn identities_of_the_domain_have_names_both_ways() {
        let member = member();
        for (name, wanted, shown) in [
            (r"LAB\alice", "S-1-5-21-1-2-3-1103", r"LAB\Alice"),
            (r"lab.test\ALICE", "S-1-5-21-1-2-3-1103", r"LAB\Alice"),
            ("alice@lab.test", "S-1-5-21-1-2-3-1103", r"LAB\Alice"),
            ("alice", "S-1-5-21-1-2-3-1103", r"LAB\Alice"),
            (r"LAB\carol", "S-1-5-21-1-2-3-1104", r"LAB\carol"),
            (r"LAB\Domain Admins", "S-1-5-21-1-2-3-512", r"LAB\Domain Admins"),
            // The gateway's own account takes precedence over the user of the domain.
            ("carol", "S-1-22-1-1001", r"GATE\carol"),
            ("LAB", "S-1-5-21-1-2-3", r"LAB\LAB"),
        ] {
            let found =
                sid_of(&member, name, &DomainNames::default()).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(found.sid, sid(wanted), "{name}");
            let back = name_of(&member, &found.sid, &DomainNames::default()).unwrap();
            assert_eq!(format!(r"{}\{}", back.domain.0, back.name), shown);
        }
        for unknown in [r"LAB\nobody", r"OTHER\alice", "alice@other.test", r"GATE\alice"] {
            assert!(sid_of(&member, unknown, &DomainNames::default()).is_none(), "{unknown}");
        }
        assert!(name_of(&member, &sid("S-1-5-21-1-2-3-1999"), &DomainNames::default()).is_none());
        assert!(name_of(&member, &sid("S-1-5-21-9-9-9-512"), &DomainNames::default()).is_none());
    }

    /// MS-LSAD section 3.1.4.4.4, on a member of a domain.
    #[test]
    fn policies_name_the_domain() {
        let member = member();
        for class in [3_u16, 12] {
            let stub = [&HANDLE[..], &class.to_le_bytes()].concat();
            let Ok(answer) = call(&member, 7, &stub) else { panic!("{class}") };
            let name: Vec<u8> = "LAB".encode_utf16().flat_map(u16::to_le_bytes).collect();
            assert!(answer.windows(name.len()).any(|part| part == name), "{class}");
            let known = sid("S-1-5-21-1-2-3").emit();
            assert!(answer.windows(known.len()).any(|part| part == known), "{class}");
        }
    }
}
