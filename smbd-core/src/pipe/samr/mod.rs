//! Accounts and groups of this server, read-only except for passwords (MS-SAMR): for the object picker of Windows, `net user` and
//! `net localgroup`, and for users who change their passwords ([`change`]).
//!
//! *Operation.* A machine outside a domain has two domains. The first has the accounts of the gateway, their groups of the host as
//! local groups ([`lists`]), and a group of all accounts. The second is S-1-5-32. Handles have rights to read ([`handles`]); every
//! other change is refused.
//!
//! *Memory.* An answer has at most a page of entries or [`MEMBERS_MAX`] members; [`price`] bounds the memory that it takes.
//!
//! *Errors.* STATUS_ACCESS_DENIED for guests and anonymous callers, as from Windows with `RestrictAnonymous`; a fault for an
//! unknown operation.

mod change;
pub(crate) mod handles;
mod info;
mod lists;

use smb_proto::dtyp::descriptor::control;
use smb_proto::ndr::{Later, Reader, Writer};

use super::rpc::{Fault, Read, Syntax};
use super::{Host, PRICE_MIN};
use crate::dtyp::{Ace, Acl, SecurityDescriptor, Sid};
use crate::status::Status;
use handles::{Domain, Handles, Named, Object, put};
use info::{ACCOUNT_CONTROL, GROUP_ATTRIBUTES};
pub(crate) use lists::{ALL_USERS, ALL_USERS_NAME};
use lists::{BUILTIN, Groups, PAGE_MAX, Page};

/// 12345778-1234-abcd-ef00-0123456789ac, version 1.0.
pub(crate) const SYNTAX: Syntax = Syntax {
    uuid: [
        0x78, 0x57, 0x34, 0x12, 0x34, 0x12, 0xcd, 0xab, 0xef, 0x00, 0x01, 0x23, 0x45, 0x67, 0x89,
        0xac,
    ],
    version: 1,
};

/// Names or numbers in one call (MS-SAMR section 3.1.5.11).
const LOOKUPS_MAX: u32 = 1000;
/// DOMAIN_PASSWORD_COMPLEX: passwords that are easily guessed are refused (MS-SAMR section 2.2.3.10).
const PASSWORD_PROPERTIES: u32 = 1;
/// Members of a group: the answer has no continuation.
const MEMBERS_MAX: usize = 8192;
/// Bytes of a list: a page of entries or all members, twice in results, and the RIDs of all accounts.
const PRICE_OF_LIST: usize = 3 << 20;

/// SID_NAME_USE (MS-SAMR section 2.2.2.3).
mod kind {
    pub(super) const USER: u32 = 1;
    pub(super) const GROUP: u32 = 2;
    pub(super) const ALIAS: u32 = 4;
    pub(super) const UNKNOWN: u32 = 8;
}

/// Rights that operations need of a handle (MS-SAMR section 2.2.1).
mod right {
    pub(super) const ENUMERATE_DOMAINS: u32 = 0x10;
    pub(super) const LOOKUP_DOMAIN: u32 = 0x20;
    pub(super) const READ_OTHER_PARAMETERS: u32 = 0x04;
    pub(super) const GET_ALIAS_MEMBERSHIP: u32 = 0x80;
    pub(super) const LIST_ACCOUNTS: u32 = 0x100;
    pub(super) const LOOKUP: u32 = 0x200;
    pub(super) const GROUP_READ_INFORMATION: u32 = 0x01;
    pub(super) const GROUP_LIST_MEMBERS: u32 = 0x10;
    pub(super) const ALIAS_LIST_MEMBERS: u32 = 0x04;
    pub(super) const ALIAS_READ_INFORMATION: u32 = 0x08;
    pub(super) const USER_READ_ACCOUNT: u32 = 0x10;
    pub(super) const USER_LIST_GROUPS: u32 = 0x100;
    pub(super) const READ_CONTROL: u32 = 0x0002_0000;
}

/// Returns the most bytes that an answer takes ([`Interface::price`](super::Interface::price)).
pub(super) fn price(op: u16, stub: &[u8]) -> usize {
    /// The shortest name or number is a word.
    const ARGUMENT_MIN: usize = 4;
    /// The result of one, and its copy in fragments.
    const FOUND_MAX: usize = 3 << 10;
    match op {
        // Lists, and levels with counts of them.
        8 | 46 | 11 | 13 | 15 | 20 | 25 | 28 | 33 | 40 | 48 | 51 => PRICE_OF_LIST,
        16..=18 => {
            let most = usize::try_from(LOOKUPS_MAX).unwrap_or(usize::MAX);
            PRICE_MIN + FOUND_MAX * most.min(stub.len() / ARGUMENT_MIN)
        }
        _ => PRICE_MIN,
    }
}

/// Runs one operation.
pub(crate) fn call(
    host: &dyn Host,
    handles: &mut Handles,
    op: u16,
    stub: &[u8],
) -> Result<Vec<u8>, Fault> {
    let mut r = Reader::new(stub);
    let r = &mut r;
    match op {
        // SamrConnect, 2, 3, 4 and 5
        0 | 57 | 61 | 62 | 64 => connect(host, handles, op, r),
        1 => close(handles, r),
        3 => query_security(handles, r),
        5 => lookup_domain(host, handles, r),
        6 => enumerate_domains(host, handles, r),
        7 => open_domain(host, handles, r),
        // SamrQueryInformationDomain, 2
        8 | 46 => query_domain(host, handles, r),
        // SamrEnumerateGroupsInDomain, Users, Aliases
        11 | 13 | 15 => enumerate(host, handles, op, r),
        16 => alias_membership(host, handles, r),
        17 => lookup_names(host, handles, r),
        18 => lookup_ids(host, handles, r),
        // SamrOpenGroup, Alias, User
        19 | 27 | 34 => open(host, handles, op, r),
        20 => query_group(host, handles, r),
        25 => members_of_group(host, handles, r),
        28 => query_alias(host, handles, r),
        33 => members_of_alias(host, handles, r),
        // SamrQueryInformationUser, 2
        36 | 47 => query_user(host, handles, r),
        39 => groups_of_user(handles, r),
        // SamrQueryDisplayInformation, 2 and 3
        40 | 48 | 51 => display(host, handles, r),
        44 => user_password_rules(host, handles, r),
        // SamrUnicodeChangePasswordUser2, 3 and 4
        55 | 63 | 73 => change::password(host, op, r),
        56 => password_rules(host, r),
        65 => rid_to_sid(host, handles, r),
        // Changes of objects, and of passwords by methods that store or send weak hashes.
        2
        | 4
        | 9
        | 10
        | 12
        | 14
        | 21..=24
        | 26
        | 29..=32
        | 35
        | 37
        | 38
        | 45
        | 50
        | 52..=54
        | 58
        | 66 => Err(Fault::ACCESS_DENIED),
        _ => Err(Fault::NO_OPERATION),
    }
}

/// Writes a structure behind its pointer, or a null pointer; then the status.
fn pointed(found: Result<Writer, Status>) -> Vec<u8> {
    let (mut w, status) = match found {
        Ok(w) => (w, Status::SUCCESS),
        Err(status) => {
            let mut w = Writer::default();
            w.null();
            (w, status)
        }
    };
    w.u32(status.0);
    w.finish()
}

/// Writes an opened handle, or zeros; then the status.
fn opened(mut w: Writer, number: Result<u32, Status>) -> Vec<u8> {
    put(&mut w, number.ok());
    w.u32(number.err().unwrap_or(Status::SUCCESS).0);
    w.finish()
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Writes a count, a pointer to an array or null, and the head of the array.
fn counted(w: &mut Writer, n: usize) {
    w.u32(count(n));
    if n == 0 {
        return w.null();
    }
    w.pointer();
    w.u32(count(n));
}

/// SAMPR_ULONG_ARRAY
fn words(w: &mut Writer, words: &[u32]) {
    counted(w, words.len());
    words.iter().for_each(|word| w.u32(*word));
}

/// SamrConnect and its successors (MS-SAMR section 3.1.5.1.1).
fn connect(host: &dyn Host, handles: &mut Handles, op: u16, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    if op == 0 {
        // One character, not a string.
        if r.pointer()? {
            r.u16()?;
        }
    } else {
        r.unique_text()?;
    }
    if matches!(op, 61 | 62) {
        r.u32()?;
    }
    let access = r.u32()?;
    let mut w = Writer::default();
    if op == 64 {
        /// The client may encrypt passwords with AES (section 2.2.7.15).
        const AES: u32 = 0x10;
        let (version, switch) = (r.u32()?, r.u32()?);
        if (version, switch) != (1, 1) {
            return Err(Fault::BAD_STUB);
        }
        r.u32()?;
        r.u32()?;
        // SAMPR_REVISION_INFO_V1: revision 3.
        [1, 1, 3, AES].into_iter().for_each(|word| w.u32(word));
    }
    let may = if host.knows_caller() { Ok(()) } else { Err(Status::ACCESS_DENIED) };
    Ok(opened(w, may.and_then(|()| handles.open(Object::Server, access))))
}

/// SamrCloseHandle (section 3.1.5.13.1)
fn close(handles: &mut Handles, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    let closed = handles.close(Named::read(r)?);
    let mut w = Writer::default();
    put(&mut w, None);
    w.u32(closed.err().unwrap_or(Status::SUCCESS).0);
    Ok(w.finish())
}

/// SamrQuerySecurityObject (section 3.1.5.12.2): rights to read for Everyone, and all for Administrators.
fn query_security(handles: &Handles, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    const FULL: u32 = 0x000f_07ff;
    let object = handles.get(Named::read(r)?, right::READ_CONTROL);
    r.u32()?;
    Ok(pointed(object.map(|object| {
        let [read, execute] = object.rights();
        let aces = vec![
            Ace::allow(Sid::everyone(), read | execute, 0),
            Ace::allow(Sid::administrators(), FULL, 0),
        ];
        let sd = SecurityDescriptor {
            control: control::SELF_RELATIVE | control::DACL_PRESENT,
            dacl: Some(Acl::new(aces)),
            ..SecurityDescriptor::default()
        };
        let bytes = sd.emit();
        let mut w = Writer::default();
        w.pointer();
        counted(&mut w, bytes.len());
        w.bytes(&bytes);
        w
    })))
}

fn builtin() -> Sid {
    // Invariant: one number.
    Sid::new(5, &[32]).unwrap_or_else(Sid::everyone)
}

fn sid_of(host: &dyn Host, domain: Domain) -> Sid {
    match domain {
        Domain::Machine => host.machine(),
        Domain::Builtin => builtin(),
    }
}

fn pointed_sid(sid: Sid) -> Writer {
    let mut w = Writer::default();
    w.pointer();
    w.later(vec![Later::Sid(sid)]);
    w
}

fn is_server(object: Object) -> Option<()> {
    (object == Object::Server).then_some(())
}

fn domain_of(object: Object) -> Option<Domain> {
    if let Object::Domain(domain) = object { Some(domain) } else { None }
}

fn user_of(object: Object) -> Option<u32> {
    if let Object::User(rid) = object { Some(rid) } else { None }
}

fn is_group(object: Object) -> Option<()> {
    (object == Object::Group).then_some(())
}

fn alias_of(object: Object) -> Option<(Domain, u32)> {
    if let Object::Alias(domain, rid) = object { Some((domain, rid)) } else { None }
}

fn same(a: &str, b: &str) -> bool {
    a.to_lowercase() == b.to_lowercase()
}

/// SamrLookupDomainInSamServer (section 3.1.5.11.1)
fn lookup_domain(host: &dyn Host, handles: &Handles, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    let held = handles.of(Named::read(r)?, right::LOOKUP_DOMAIN, is_server);
    let name = if r.string_head()? { r.text()? } else { String::new() };
    Ok(pointed(held.and_then(|()| match &name {
        name if same(name, &host.computer()) => Ok(pointed_sid(host.machine())),
        name if same(name, "Builtin") => Ok(pointed_sid(builtin())),
        _ => Err(Status::NO_SUCH_DOMAIN),
    })))
}

/// Writes the answer of an enumeration. `next` makes the handle to continue with from the last number.
fn listed(found: Result<Page, Status>, resume: u32, next: impl Fn(u32) -> u32) -> Vec<u8> {
    let mut w = Writer::default();
    let (entries, status) = match found {
        Ok((entries, true)) => (entries, Status::MORE_ENTRIES),
        Ok((entries, false)) => (entries, Status::SUCCESS),
        Err(status) => {
            w.u32(resume);
            w.null();
            w.u32(0);
            w.u32(status.0);
            return w.finish();
        }
    };
    w.u32(entries.last().map_or(resume, |(number, _)| next(*number)));
    w.pointer();
    let len = count(entries.len());
    counted(&mut w, entries.len());
    let mut later = Vec::new();
    for (number, name) in entries {
        w.u32(number);
        w.string_head(&name);
        later.push(Later::Counted(name));
    }
    w.later(later);
    w.u32(len);
    w.u32(status.0);
    w.finish()
}

/// SamrEnumerateDomainsInSamServer (section 3.1.5.2.1)
fn enumerate_domains(host: &dyn Host, handles: &Handles, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    let held = handles.of(Named::read(r)?, right::ENUMERATE_DOMAINS, is_server);
    let (resume, _max) = (r.u32()?, r.u32()?);
    let domains = [(0, host.computer()), (1, "Builtin".to_owned())];
    let rest = domains.into_iter().filter(|(n, _)| *n >= resume).collect();
    Ok(listed(held.map(|()| (rest, false)), resume, |n| n + 1))
}

/// SamrOpenDomain (section 3.1.5.1.5)
fn open_domain(host: &dyn Host, handles: &mut Handles, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    let held = handles.of(Named::read(r)?, right::LOOKUP_DOMAIN, is_server);
    let (access, sid) = (r.u32()?, r.sid()?);
    let domain = match &sid {
        sid if *sid == host.machine() => Ok(Domain::Machine),
        sid if *sid == builtin() => Ok(Domain::Builtin),
        _ => Err(Status::NO_SUCH_DOMAIN),
    };
    let found = held.and(domain);
    let number = found.and_then(|domain| handles.open(Object::Domain(domain), access));
    Ok(opened(Writer::default(), number))
}

/// SamrQueryInformationDomain, 2 (section 3.1.5.5.1)
fn query_domain(host: &dyn Host, handles: &Handles, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    let held = handles.of(Named::read(r)?, right::READ_OTHER_PARAMETERS, domain_of);
    let level = r.u16()?;
    Ok(pointed(held.and_then(|domain| info::domain(host, domain, level))))
}

/// SamrEnumerateGroupsInDomain, Users, Aliases (sections 3.1.5.2.2 to 4): continues behind the last RID.
fn enumerate(host: &dyn Host, handles: &Handles, op: u16, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    const GROUPS: u16 = 11;
    const USERS: u16 = 13;
    let held = handles.of(Named::read(r)?, right::LIST_ACCOUNTS, domain_of);
    let after = r.u32()?;
    let controls = if op == USERS { r.u32()? } else { 0 };
    r.u32()?;
    let constant = |all: &[(u32, &str)]| -> Page {
        let rest = all.iter().filter(|(rid, _)| *rid > after);
        (rest.map(|(rid, name)| (*rid, (*name).to_owned())).collect(), false)
    };
    let page = |domain| match (domain, op) {
        (Domain::Machine, GROUPS) => constant(&[(ALL_USERS, ALL_USERS_NAME)]),
        (Domain::Machine, USERS) if controls == 0 || controls & ACCOUNT_CONTROL != 0 => {
            lists::users_after(host, after)
        }
        (Domain::Builtin, GROUPS | USERS) | (_, USERS) => (Vec::new(), false),
        (Domain::Machine, _) => Groups::of(host).after(after),
        (Domain::Builtin, _) => constant(&BUILTIN),
    };
    Ok(listed(held.map(page), after, |rid| rid))
}

/// SamrGetAliasMembership (section 3.1.5.9.2)
fn alias_membership(host: &dyn Host, handles: &Handles, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    let held = handles.of(Named::read(r)?, right::GET_ALIAS_MEMBERSHIP, domain_of);
    let len = r.u32()?;
    let mut sids = Vec::new();
    if r.pointer()? {
        if len > LOOKUPS_MAX || r.u32()? != len {
            return Err(Fault::BAD_STUB);
        }
        let there = (0..len).map(|_| r.pointer()).collect::<Result<Vec<_>, _>>()?;
        for _ in there.into_iter().filter(|there| *there) {
            sids.push(r.sid()?);
        }
    }
    let rids = |domain| lists::groups_of(host, &sids, domain == Domain::Builtin);
    let mut w = Writer::default();
    words(&mut w, &held.map(rids).unwrap_or_default());
    w.u32(held.err().unwrap_or(Status::SUCCESS).0);
    Ok(w.finish())
}

/// Returns the status of a lookup.
fn mapped(found: usize, of: usize) -> Status {
    match found {
        n if n == of => Status::SUCCESS,
        0 => Status::NONE_MAPPED,
        _ => Status::SOME_NOT_MAPPED,
    }
}

/// SamrLookupNamesInDomain (section 3.1.5.11.2)
fn lookup_names(host: &dyn Host, handles: &Handles, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    let held = handles.of(Named::read(r)?, right::LOOKUP, domain_of);
    let len = r.u32()?;
    if r.varying(LOOKUPS_MAX)? != len {
        return Err(Fault::BAD_STUB);
    }
    let there = (0..len).map(|_| r.string_head()).collect::<Result<Vec<_>, _>>()?;
    let mut names = Vec::new();
    for there in there {
        names.push(if there { r.text()? } else { String::new() });
    }
    let groups = Groups::of(host);
    let machine = |name: &String| {
        let user = host.account(name).map(|(_, uid)| (crate::users::rid_of_uid(uid), kind::USER));
        let all = || same(name, ALL_USERS_NAME).then_some((ALL_USERS, kind::GROUP));
        let group = || groups.rid(name).map(|rid| (rid, kind::ALIAS));
        user.or_else(all).or_else(group)
    };
    let constant = |name: &String| {
        let known = BUILTIN.iter().find(|(_, known)| same(known, name));
        known.map(|(rid, _)| (*rid, kind::ALIAS))
    };
    let found: Vec<Option<(u32, u32)>> = match held {
        Ok(Domain::Machine) => names.iter().map(machine).collect(),
        Ok(Domain::Builtin) => names.iter().map(constant).collect(),
        Err(_) => Vec::new(),
    };
    let mut w = Writer::default();
    let pairs = found.iter().map(|f| f.unwrap_or((0, kind::UNKNOWN)));
    let (rids, kinds): (Vec<u32>, Vec<u32>) = pairs.unzip();
    words(&mut w, &rids);
    words(&mut w, &kinds);
    let status = held.map(|_| mapped(found.iter().flatten().count(), found.len()));
    w.u32(status.unwrap_or_else(|why| why).0);
    Ok(w.finish())
}

/// SamrLookupIdsInDomain (section 3.1.5.11.3)
fn lookup_ids(host: &dyn Host, handles: &Handles, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    let held = handles.of(Named::read(r)?, right::LOOKUP, domain_of);
    let len = r.u32()?;
    if r.varying(LOOKUPS_MAX)? != len {
        return Err(Fault::BAD_STUB);
    }
    let rids = (0..len).map(|_| r.u32()).collect::<Result<Vec<_>, _>>()?;
    let found: Vec<Option<(String, u32)>> = match held {
        Ok(Domain::Machine) => {
            let (users, groups) = (lists::names(host, &rids), Groups::of(host));
            let one = |rid: &u32| {
                let user = users.get(rid).map(|name| (name.clone(), kind::USER));
                let all = || (*rid == ALL_USERS).then(|| (ALL_USERS_NAME.to_owned(), kind::GROUP));
                let group = || groups.name(*rid).map(|name| (name, kind::ALIAS));
                user.or_else(all).or_else(group)
            };
            rids.iter().map(one).collect()
        }
        Ok(Domain::Builtin) => rids.iter().map(builtin_alias).collect(),
        Err(_) => Vec::new(),
    };
    let status = held.map(|_| mapped(found.iter().flatten().count(), found.len()));
    let mut w = Writer::default();
    counted(&mut w, found.len());
    let (mut later, mut kinds) = (Vec::new(), Vec::new());
    for one in found {
        let (name, kind) = one.unwrap_or((String::new(), kind::UNKNOWN));
        w.string_head(&name);
        later.push(Later::Counted(name));
        kinds.push(kind);
    }
    w.later(later);
    words(&mut w, &kinds);
    w.u32(status.unwrap_or_else(|why| why).0);
    Ok(w.finish())
}

fn builtin_alias(rid: &u32) -> Option<(String, u32)> {
    let known = BUILTIN.iter().find(|(known, _)| known == rid);
    known.map(|(_, name)| ((*name).to_owned(), kind::ALIAS))
}

/// SamrOpenGroup, Alias, User (sections 3.1.5.1.7 to 9)
fn open(host: &dyn Host, handles: &mut Handles, op: u16, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    let held = handles.of(Named::read(r)?, right::LOOKUP, domain_of);
    let (access, rid) = (r.u32()?, r.u32()?);
    let found = held.and_then(|domain| match (op, domain) {
        (19, Domain::Machine) if rid == ALL_USERS => Ok(Object::Group),
        (19, _) => Err(Status::NO_SUCH_GROUP),
        (34, Domain::Machine) if lists::names(host, &[rid]).contains_key(&rid) => {
            Ok(Object::User(rid))
        }
        (34, _) => Err(Status::NO_SUCH_USER),
        (_, domain) => {
            let known = alias(host, domain, rid).map(|_| Object::Alias(domain, rid));
            known.ok_or(Status::NO_SUCH_ALIAS)
        }
    });
    let number = found.and_then(|object| handles.open(object, access));
    Ok(opened(Writer::default(), number))
}

/// Returns the name of a local group.
fn alias(host: &dyn Host, domain: Domain, rid: u32) -> Option<String> {
    match domain {
        Domain::Machine => Groups::of(host).name(rid),
        Domain::Builtin => builtin_alias(&rid).map(|(name, _)| name),
    }
}

/// SamrQueryInformationGroup (section 3.1.5.5.3)
fn query_group(host: &dyn Host, handles: &Handles, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    let held = handles.of(Named::read(r)?, right::GROUP_READ_INFORMATION, is_group);
    let level = r.u16()?;
    Ok(pointed(held.and_then(|()| info::group(count(lists::users(host).len()), level))))
}

/// SamrGetMembersInGroup (section 3.1.5.8.3)
fn members_of_group(host: &dyn Host, handles: &Handles, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    let held = handles.of(Named::read(r)?, right::GROUP_LIST_MEMBERS, is_group);
    let members = held.map(|()| lists::users(host)).and_then(|rids| match rids.len() {
        n if n > MEMBERS_MAX => Err(Status::INSUFFICIENT_RESOURCES),
        _ => Ok(rids),
    });
    Ok(pointed(members.map(|rids| {
        let mut w = Writer::default();
        w.pointer();
        w.u32(count(rids.len()));
        w.pointer();
        w.pointer();
        w.u32(count(rids.len()));
        rids.iter().for_each(|rid| w.u32(*rid));
        w.u32(count(rids.len()));
        rids.iter().for_each(|_| w.u32(GROUP_ATTRIBUTES));
        w
    })))
}

/// Returns the members of a local group, unless an answer has no room for them.
fn members(host: &dyn Host, (domain, rid): (Domain, u32)) -> Result<Vec<u32>, Status> {
    let is_builtin = domain == Domain::Builtin;
    let members = lists::members(host, rid, is_builtin, MEMBERS_MAX + 1);
    if members.len() > MEMBERS_MAX { Err(Status::INSUFFICIENT_RESOURCES) } else { Ok(members) }
}

/// SamrQueryInformationAlias (section 3.1.5.5.4)
fn query_alias(host: &dyn Host, handles: &Handles, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    let held = handles.of(Named::read(r)?, right::ALIAS_READ_INFORMATION, alias_of);
    let level = r.u16()?;
    Ok(pointed(held.and_then(|(domain, rid)| {
        let name = alias(host, domain, rid).ok_or(Status::NO_SUCH_ALIAS)?;
        let members = members(host, (domain, rid)).map_or(u32::MAX, |rids| count(rids.len()));
        info::alias(&name, members, level)
    })))
}

/// SamrGetMembersInAlias (section 3.1.5.8.4)
fn members_of_alias(host: &dyn Host, handles: &Handles, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    let held = handles.of(Named::read(r)?, right::ALIAS_LIST_MEMBERS, alias_of);
    let found = held.and_then(|of| members(host, of));
    let machine = host.machine();
    let sids: Vec<Sid> = found.iter().flatten().filter_map(|rid| machine.child(*rid)).collect();
    let mut w = Writer::default();
    counted(&mut w, sids.len());
    sids.iter().for_each(|_| w.pointer());
    w.later(sids.into_iter().map(Later::Sid).collect());
    w.u32(found.err().unwrap_or(Status::SUCCESS).0);
    Ok(w.finish())
}

/// SamrQueryInformationUser, 2 (section 3.1.5.5.5)
fn query_user(host: &dyn Host, handles: &Handles, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    let held = handles.of(Named::read(r)?, right::USER_READ_ACCOUNT, user_of);
    let level = r.u16()?;
    Ok(pointed(held.and_then(|rid| {
        // The account may be gone since the handle was opened.
        let mut names = lists::names(host, &[rid]);
        let name = names.remove(&rid).ok_or(Status::NO_SUCH_USER)?;
        info::user(rid, &name, level)
    })))
}

/// SamrGetGroupsForUser (section 3.1.5.9.1): the group of all accounts.
fn groups_of_user(handles: &Handles, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    let held = handles.of(Named::read(r)?, right::USER_LIST_GROUPS, user_of);
    Ok(pointed(held.map(|_| {
        let mut w = Writer::default();
        w.pointer();
        counted(&mut w, 1);
        w.u32(ALL_USERS);
        w.u32(GROUP_ATTRIBUTES);
        w
    })))
}

/// SamrQueryDisplayInformation, 2 and 3 (section 3.1.5.3.1): users, machines, groups, and users and groups in ASCII.
fn display(host: &dyn Host, handles: &Handles, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    /// Bytes of the client's buffer that one entry counts.
    const ENTRY_BYTES: u32 = 32;
    let held = handles.of(Named::read(r)?, right::LIST_ACCOUNTS, domain_of);
    let (level, start) = (r.u16()?, r.u32()?);
    let (most, room) = (r.u32()?, r.u32()?);
    let machine = held == Ok(Domain::Machine);
    let rids = match level {
        1 | 4 if machine => lists::users(host),
        3 | 5 if machine => vec![ALL_USERS],
        1..=5 => Vec::new(),
        _ => return Err(Fault::BAD_STUB),
    };
    let wanted = usize::try_from(most.min((room / ENTRY_BYTES).max(1))).unwrap_or(PAGE_MAX);
    let start = usize::try_from(start).unwrap_or(usize::MAX).min(rids.len());
    let rest = &rids[start..];
    let page = &rest[..rest.len().min(wanted).min(PAGE_MAX)];
    let mut names = lists::names(host, page);
    let name = |rid: &u32| match *rid {
        ALL_USERS => (ALL_USERS, ALL_USERS_NAME.to_owned()),
        rid => (rid, names.remove(&rid).unwrap_or_default()),
    };
    let found: Vec<(u32, String)> = page.iter().map(name).collect();
    let status = match held {
        Err(why) => why,
        Ok(_) if page.len() < rest.len() => Status::MORE_ENTRIES,
        Ok(_) => Status::SUCCESS,
    };
    let mut w = Writer::default();
    w.u32(count(rids.len()).saturating_mul(ENTRY_BYTES));
    w.u32(count(page.len()).saturating_mul(ENTRY_BYTES));
    w.u16(level);
    w.align(4);
    put_entries(&mut w, level, start, found);
    w.u32(status.0);
    Ok(w.finish())
}

/// Writes the arm of SAMPR_DISPLAY_INFO_BUFFER for this level (section 2.2.8.13).
fn put_entries(w: &mut Writer, level: u16, start: usize, found: Vec<(u32, String)>) {
    counted(w, found.len());
    let mut later = Vec::new();
    for (n, (rid, name)) in found.into_iter().enumerate() {
        w.u32(count(start + n + 1));
        if level > 3 {
            let ascii = |c: char| u8::try_from(c).ok().filter(u8::is_ascii).unwrap_or(b'?');
            let ascii: Vec<u8> = name.chars().map(ascii).collect();
            let bytes = u16::try_from(ascii.len()).unwrap_or(u16::MAX);
            w.u16(bytes);
            w.u16(bytes);
            w.pointer();
            later.push(Later::Bytes { most: u32::from(bytes), bytes: ascii });
            continue;
        }
        w.u32(rid);
        w.u32(if level == 3 { GROUP_ATTRIBUTES } else { ACCOUNT_CONTROL });
        // The comment, and of a user the full name.
        let empty = if level == 1 { 2 } else { 1 };
        for text in [name].into_iter().chain(std::iter::repeat_n(String::new(), empty)) {
            w.string_head(&text);
            later.push(Later::Counted(text));
        }
    }
    w.later(later);
}

/// SamrGetUserDomainPasswordInformation (section 3.1.5.13.2)
fn user_password_rules(host: &dyn Host, handles: &Handles, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    let held = handles.of(Named::read(r)?, right::USER_READ_ACCOUNT, user_of);
    Ok(rules(held.map(|_| host.password_length())))
}

/// SamrGetDomainPasswordInformation (section 3.1.5.13.3)
fn password_rules(host: &dyn Host, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    if r.pointer()? && r.string_head()? {
        r.text()?;
    }
    let may = if host.knows_caller() { Ok(()) } else { Err(Status::ACCESS_DENIED) };
    Ok(rules(may.map(|()| host.password_length())))
}

/// USER_DOMAIN_PASSWORD_INFORMATION: the least length of a password.
fn rules(length: Result<u16, Status>) -> Vec<u8> {
    let mut w = Writer::default();
    w.u16(length.unwrap_or_default());
    w.u32(if length.is_ok() { PASSWORD_PROPERTIES } else { 0 });
    w.u32(length.err().unwrap_or(Status::SUCCESS).0);
    w.finish()
}

/// SamrRidToSid (section 3.1.5.13.5)
fn rid_to_sid(host: &dyn Host, handles: &Handles, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    let held = handles.get(Named::read(r)?, 0).and_then(|object| match object {
        Object::Domain(domain) | Object::Alias(domain, _) => Ok(domain),
        Object::User(_) | Object::Group => Ok(Domain::Machine),
        Object::Server => Err(Status::INVALID_HANDLE),
    });
    let rid = r.u32()?;
    Ok(pointed(held.and_then(|domain| {
        sid_of(host, domain).child(rid).map(pointed_sid).ok_or(Status::INVALID_SID)
    })))
}
