//! The user information in a PAC of Active Directory: `KERB_VALIDATION_INFO` (MS-PAC section 2.5), in NDR with the headers of type
//! serialization 1 (MS-RPCE section 2.2.6).
//!
//! *Operation.* Pure. The Kerberos library has verified the origin before: it returns only a PAC signed with the service's own key.
//!
//! *Errors.* The field that breaks a rule. Every count is compared with its limit before memory is allocated.

use wire::{Parser, Rule, le_u8, le_u16, le_u32, le_u64, pad, reject, take, times};

use crate::dtyp::Sid;
use crate::parse::{Parsed, constant, size, text, whole};

/// Maximum number of groups in each list; a Windows token holds 1,024 in total.
pub const GROUPS_MAX: u32 = 1024;
/// Maximum length of a name, in characters.
const NAME_CHARS_MAX: u32 = 1024;
/// `SE_GROUP_ENABLED`
const ENABLED: u32 = 4;
/// `UserFlags`: `ExtraSids` and `ResourceGroupIds` are valid.
const EXTRA_SIDS: u32 = 0x20;
const RESOURCE_GROUPS: u32 = 0x200;

/// The fields that the gateway uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogonInfo {
    /// `EffectiveName`
    pub name: String,
    /// `LogonDomainName`
    pub domain: String,
    /// `LogonDomainId`
    pub domain_id: Sid,
    /// `UserId`, a RID in that domain.
    pub user: u32,
    /// `PrimaryGroupId`
    pub primary_group: u32,
    /// Enabled `GroupIds`: RIDs in that domain.
    pub groups: Vec<u32>,
    /// Enabled `ExtraSids` and resource groups.
    pub others: Vec<Sid>,
}

impl LogonInfo {
    /// Returns the RIDs of all groups in the user's domain without duplicates, the primary group first.
    pub fn rids(&self) -> Vec<u32> {
        let mut all = vec![self.primary_group];
        let others = self.others.iter().filter_map(|sid| sid.rid_in(&self.domain_id));
        for rid in self.groups.iter().copied().chain(others) {
            if !all.contains(&rid) {
                all.push(rid);
            }
        }
        all
    }

    /// The identifier of the user. Without a RID it is the first of the extra ones (MS-PAC section 2.5 `UserId`).
    pub fn user_sid(&self) -> Option<Sid> {
        match self.user {
            0 => self.others.first().cloned(),
            rid => self.domain_id.child(rid),
        }
    }

    /// Identifiers of all groups, and those that the domain gives the user beside.
    pub fn group_sids(&self) -> impl Iterator<Item = Sid> {
        let groups = std::iter::once(&self.primary_group).chain(&self.groups);
        groups.filter_map(|rid| self.domain_id.child(*rid)).chain(self.others.iter().cloned())
    }

    /// Parses one.
    pub fn parse(info: &[u8]) -> Parsed<Self> {
        whole(info, |i| {
            let (i, ()) = headers(i)?;
            let (i, fixed) = FixedPart::parse(i)?;
            let (i, (name, domain, domain_id, groups, others)) = referents(i, info.len(), &fixed)?;
            let Some(domain_id) = domain_id else {
                return Err(reject("LogonDomainId", Rule::Value, i));
            };
            let (user, primary_group) = (fixed.user, fixed.primary_group);
            Ok((i, Self { name, domain, domain_id, user, primary_group, groups, others }))
        })
    }
}

/// Parses the common header, the private header and the pointer to the structure.
fn headers(i: &[u8]) -> wire::Parsed<'_, ()> {
    let (i, ()) = constant("Version", le_u8("Version"), 1)(i)?;
    let (i, ()) = constant("Endianness", le_u8("Endianness"), 0x10)(i)?;
    let (i, ()) = constant("CommonHeaderLength", le_u16("CommonHeaderLength"), 8)(i)?;
    let (i, _) = (le_u32("Filler"), le_u32("ObjectBufferLength"), le_u32("Filler")).parse(i)?;
    let (i, pointer) = le_u32("LogonInfo")(i)?;
    if pointer == 0 { Err(reject("LogonInfo", Rule::Value, i)) } else { Ok((i, ())) }
}

/// An `RPC_UNICODE_STRING` without its text: length in bytes, and whether the text exists.
type Head = (u16, bool);

fn head<'a>(field: &'static str) -> impl Fn(&'a [u8]) -> wire::Parsed<'a, Head> + Copy {
    move |i| {
        let (i, (length, _, pointer)) = (le_u16(field), le_u16(field), le_u32(field)).parse(i)?;
        Ok((i, (length, pointer != 0)))
    }
}

/// The used fields of the fixed part.
struct FixedPart {
    /// `EffectiveName` and five more.
    names: Vec<Head>,
    user: u32,
    primary_group: u32,
    groups: (u32, bool),
    flags: u32,
    server: Head,
    domain: Head,
    domain_id: bool,
    extra: (u32, bool),
    resource_domain: bool,
    resource_groups: (u32, bool),
}

impl FixedPart {
    fn parse(i: &[u8]) -> wire::Parsed<'_, Self> {
        let (i, _) = take(6 * 8, "LogonTime")(i)?;
        let (i, names) = times(6, head("EffectiveName"))(i)?;
        let (i, _) = (le_u16("LogonCount"), le_u16("BadPasswordCount")).parse(i)?;
        let (i, (user, primary_group)) = (le_u32("UserId"), le_u32("PrimaryGroupId")).parse(i)?;
        let (i, groups) = listed("GroupCount")(i)?;
        let (i, flags) = le_u32("UserFlags")(i)?;
        let (i, _) = take(16, "UserSessionKey")(i)?;
        let (i, (server, domain)) = (head("LogonServer"), head("LogonDomainName")).parse(i)?;
        let (i, domain_id) = le_u32("LogonDomainId")(i)?;
        let (i, _) = (le_u64("Reserved1"), le_u32("UserAccountControl"), le_u32("SubAuthStatus"))
            .parse(i)?;
        let (i, _) = take(2 * 8, "LastSuccessfulILogon")(i)?;
        let (i, _) = (le_u32("FailedILogonCount"), le_u32("Reserved3")).parse(i)?;
        let (i, extra) = listed("SidCount")(i)?;
        let (i, resource_domain) = le_u32("ResourceGroupDomainSid")(i)?;
        let (i, resource_groups) = listed("ResourceGroupCount")(i)?;
        let fixed = Self {
            names,
            user,
            primary_group,
            groups,
            flags,
            server,
            domain,
            domain_id: domain_id != 0,
            extra,
            resource_domain: resource_domain != 0,
            resource_groups,
        };
        Ok((i, fixed))
    }
}

/// Parses a count within the limit, and whether the list exists.
fn listed<'a>(field: &'static str) -> impl Fn(&'a [u8]) -> wire::Parsed<'a, (u32, bool)> + Copy {
    move |i| {
        let (rest, (count, pointer)) = (le_u32(field), le_u32(field)).parse(i)?;
        if count > GROUPS_MAX {
            return Err(reject(field, Rule::OverLimit { max: size(GROUPS_MAX) }, i));
        }
        Ok((rest, (count, pointer != 0)))
    }
}

type Referents = (String, String, Option<Sid>, Vec<u32>, Vec<Sid>);

/// Parses the referents of the pointers in order, each aligned to four bytes.
fn referents<'a>(i: &'a [u8], total: usize, fixed: &FixedPart) -> wire::Parsed<'a, Referents> {
    let mut names = Vec::with_capacity(fixed.names.len());
    let mut i = i;
    for name in &fixed.names {
        let found;
        (i, found) = string(i, total, *name, "EffectiveName")?;
        names.push(found);
    }
    let (i, groups) = rids(i, total, fixed.groups, "GroupIds")?;
    let (i, _) = string(i, total, fixed.server, "LogonServer")?;
    let (i, domain) = string(i, total, fixed.domain, "LogonDomainName")?;
    let (i, domain_id) = optional_sid(i, total, fixed.domain_id, "LogonDomainId")?;
    let (i, extra) = sids(i, total, fixed.extra)?;
    let (i, resource_domain) =
        optional_sid(i, total, fixed.resource_domain, "ResourceGroupDomainSid")?;
    let (i, resource_rids) = rids(i, total, fixed.resource_groups, "ResourceGroupIds")?;
    let mut others = Vec::new();
    if fixed.flags & EXTRA_SIDS != 0 {
        others.extend(extra);
    }
    if let Some(domain) = resource_domain.filter(|_| fixed.flags & RESOURCE_GROUPS != 0) {
        let Some(found) =
            resource_rids.iter().map(|rid| domain.child(*rid)).collect::<Option<Vec<_>>>()
        else {
            return Err(reject("ResourceGroupDomainSid", Rule::Value, i));
        };
        others.extend(found);
    }
    let name = names.into_iter().next().unwrap_or_default();
    Ok((i, (name, domain, domain_id, groups, others)))
}

/// Skips to the next multiple of four.
fn aligned<'a>(i: &'a [u8], total: usize, field: &'static str) -> wire::Parsed<'a, ()> {
    let (i, _) = take(pad(total - i.len()), field)(i)?;
    Ok((i, ()))
}

fn string<'a>(
    i: &'a [u8],
    total: usize,
    (length, is_there): Head,
    field: &'static str,
) -> wire::Parsed<'a, String> {
    if !is_there {
        return Ok((i, String::new()));
    }
    let (i, ()) = aligned(i, total, field)?;
    let (rest, (_, offset, actual)) = (le_u32(field), le_u32(field), le_u32(field)).parse(i)?;
    if offset != 0 || actual > NAME_CHARS_MAX || size(actual) != usize::from(length / 2) {
        return Err(reject(field, Rule::Value, i));
    }
    let (rest, found) = take(2 * size(actual), field)(rest)?;
    Ok((rest, text(found, field)?))
}

/// Parses the length of a conformant array, which must equal the count parsed before.
fn array<'a>(i: &'a [u8], total: usize, count: u32, field: &'static str) -> wire::Parsed<'a, ()> {
    let (i, ()) = aligned(i, total, field)?;
    constant(field, le_u32(field), count)(i)
}

/// Parses `GROUP_MEMBERSHIP`s and returns the enabled ones.
fn rids<'a>(
    i: &'a [u8],
    total: usize,
    (count, is_there): (u32, bool),
    field: &'static str,
) -> wire::Parsed<'a, Vec<u32>> {
    if !is_there {
        return Ok((i, Vec::new()));
    }
    let (i, ()) = array(i, total, count, field)?;
    let (i, all) = times(size(count), (le_u32(field), le_u32(field)))(i)?;
    let enabled = all.into_iter().filter(|(_, attributes)| attributes & ENABLED != 0);
    Ok((i, enabled.map(|(rid, _)| rid).collect()))
}

/// Parses `KERB_SID_AND_ATTRIBUTES` and returns the enabled ones.
fn sids<'a>(
    i: &'a [u8],
    total: usize,
    (count, is_there): (u32, bool),
) -> wire::Parsed<'a, Vec<Sid>> {
    const FIELD: &str = "ExtraSids";
    if !is_there {
        return Ok((i, Vec::new()));
    }
    let (i, ()) = array(i, total, count, FIELD)?;
    let (mut i, heads) = times(size(count), (le_u32(FIELD), le_u32(FIELD)))(i)?;
    let mut found = Vec::new();
    for (pointer, attributes) in heads {
        let one;
        (i, one) = optional_sid(i, total, pointer != 0, FIELD)?;
        found.extend(one.filter(|_| attributes & ENABLED != 0));
    }
    Ok((i, found))
}

fn optional_sid<'a>(
    i: &'a [u8],
    total: usize,
    is_there: bool,
    field: &'static str,
) -> wire::Parsed<'a, Option<Sid>> {
    if !is_there {
        return Ok((i, None));
    }
    let (i, ()) = aligned(i, total, field)?;
    let (rest, (told, sid)) = (le_u32(field), Sid::field).parse(i)?;
    if size(told) != sid.subs().len() {
        return Err(reject(field, Rule::Value, i));
    }
    Ok((rest, Some(sid)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DOMAIN: [u32; 4] = [21, 1, 2, 3];

    fn string(text: &str, out: &mut Vec<u8>) {
        let chars = u32::try_from(text.encode_utf16().count()).unwrap();
        for n in [chars, 0, chars] {
            out.extend(n.to_le_bytes());
        }
        out.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
        out.resize(out.len().next_multiple_of(4), 0xaa);
    }

    fn sid(authority: u8, subs: &[u32], out: &mut Vec<u8>) {
        let count = u8::try_from(subs.len()).unwrap();
        out.extend(u32::from(count).to_le_bytes());
        out.extend([1, count, 0, 0, 0, 0, 0, authority]);
        out.extend(subs.iter().flat_map(|n| n.to_le_bytes()));
    }

    /// Follows the table of MS-PAC section 2.5, with values of a domain controller: two groups of the domain, an extra SID of an
    /// authority, one of the domain, a disabled one, and a resource group.
    fn sample(flags: u32) -> Vec<u8> {
        let mut out = vec![1, 0x10, 8, 0, 0xcc, 0xcc, 0xcc, 0xcc];
        out.extend([0; 8]); // The private header; its length is put in last.
        let word = |n: u32, out: &mut Vec<u8>| out.extend(n.to_le_bytes());
        word(0x0002_0000, &mut out);
        out.extend([0x11; 48]);
        let (name, domain) = ("alice", "AD");
        for (n, text) in [name, "Alice A", "", "", "", ""].into_iter().enumerate() {
            let bytes = u16::try_from(2 * text.len()).unwrap();
            out.extend([bytes.to_le_bytes(), bytes.to_le_bytes()].concat());
            word(0x0002_0004 + 4 * u32::try_from(n).unwrap(), &mut out);
        }
        word(3, &mut out); // Logons.
        for n in [0x44f, 0x201, 2, 0x0002_0020, flags] {
            word(n, &mut out);
        }
        out.extend([0; 16]);
        for (text, pointer) in [("DC", 0x0002_0024), (domain, 0x0002_0028)] {
            let bytes = u16::try_from(2 * text.len()).unwrap();
            out.extend([bytes.to_le_bytes(), bytes.to_le_bytes()].concat());
            word(pointer, &mut out);
        }
        word(0x0002_002c, &mut out);
        out.extend([0; 40]);
        for n in [3, 0x0002_0030, 0x0002_0034, 1, 0x0002_0038] {
            word(n, &mut out);
        }
        assert_eq!(out.len(), 236, "where the table has the first referent");
        for text in [name, "Alice A", "", "", "", ""] {
            string(text, &mut out);
        }
        for n in [2, 513, 7, 1104, 7] {
            word(n, &mut out);
        }
        string("DC", &mut out);
        string(domain, &mut out);
        sid(5, &DOMAIN, &mut out);
        for n in [3, 0x0002_003c, 7, 0x0002_0040, 7, 0x0002_0044, 0x10] {
            word(n, &mut out);
        }
        sid(18, &[1], &mut out);
        sid(5, &[21, 1, 2, 3, 1200], &mut out);
        sid(5, &[21, 1, 2, 3, 1201], &mut out);
        sid(5, &DOMAIN, &mut out);
        for n in [1, 1300, 0x2000_0007] {
            word(n, &mut out);
        }
        let length = u32::try_from(out.len() - 16).unwrap().to_le_bytes();
        out[8..12].copy_from_slice(&length);
        out
    }

    #[test]
    fn groups_of_every_kind_are_read() {
        let info = LogonInfo::parse(&sample(EXTRA_SIDS | RESOURCE_GROUPS)).unwrap();
        assert_eq!((info.name.as_str(), info.domain.as_str()), ("alice", "AD"));
        assert_eq!(
            (info.user, info.primary_group, &info.groups[..]),
            (0x44f, 513, &[513, 1104][..])
        );
        assert_eq!(info.domain_id.to_string(), "S-1-5-21-1-2-3");
        let others: Vec<String> = info.others.iter().map(ToString::to_string).collect();
        assert_eq!(others, ["S-1-18-1", "S-1-5-21-1-2-3-1200", "S-1-5-21-1-2-3-1300"]);
        assert_eq!(info.rids(), [513, 1104, 1200, 1300]);
    }

    /// From a ticket that a Samba 4.17 domain controller issued to `alice`, who is in one additional group.
    const OF_SAMBA: &str = "\
        01100800cccccccca00100000000000000000200ecfbee0e547ddd01ffffffffffffff7fffffffffffffff7ffae1300b547ddd01faa19a35\
        1d7edd01fa618a00559edd010a000a00040002000000000008000200000000000c0002000000000010000200000000001400020000000000\
        18000200010000004e04000001020000020000001c0002002000000000000000000000000000000000000000040006002000020004000600\
        240002002800020000000000000000001000000000000000000000000000000000000000000000000000000000000000010000002c000200\
        00000000000000000000000005000000000000000500000061006c0069006300650000000000000000000000000000000000000000000000\
        000000000000000000000000000000000000000000000000000000000000000000000000000000000200000001020000070000004f040000\
        0700000003000000000000000200000044004300030000000000000002000000410044000400000001040000000000051500000001aac990\
        1d4dc971eb7e01f80100000030000200070000000100000001010000000000120100000000000000";

    #[test]
    fn samba_pac_is_read() {
        let byte = |at| u8::from_str_radix(&OF_SAMBA[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..OF_SAMBA.len()).step_by(2).map(byte).collect();
        assert_eq!(bytes.len(), 432);
        let info = LogonInfo::parse(&bytes).unwrap();
        assert_eq!((info.name.as_str(), info.domain.as_str(), info.user), ("alice", "AD", 1102));
        assert_eq!(info.domain_id.to_string(), "S-1-5-21-2429135361-1909017885-4160847595");
        assert_eq!(info.rids(), [513, 1103]);
    }

    #[test]
    fn unflagged_lists_are_ignored() {
        assert_eq!(LogonInfo::parse(&sample(0)).unwrap().others, []);
        assert_eq!(LogonInfo::parse(&sample(0)).unwrap().rids(), [513, 1104]);
    }

    #[test]
    fn rids_exclude_other_domains() {
        let domain = Sid::new(5, &DOMAIN).unwrap();
        let of = |authority, subs: &[u32]| Sid::new(authority, subs).unwrap().rid_in(&domain);
        assert_eq!(of(5, &[21, 1, 2, 3, 9]), Some(9));
        for (authority, subs) in [
            (5, &[21, 1, 2, 4, 9][..]),
            (4, &[21, 1, 2, 3, 9]),
            (5, &DOMAIN),
            (5, &[21, 1, 2, 3, 9, 9]),
            (5, &[]),
        ] {
            assert_eq!(of(authority, subs), None, "{subs:?}");
        }
    }

    #[test]
    fn truncated_pac_names_its_field() {
        let good = sample(EXTRA_SIDS | RESOURCE_GROUPS);
        for end in 0..good.len() {
            assert!(LogonInfo::parse(&good[..end]).is_err(), "{end}");
        }
        let told = |at: usize, value: u32| {
            let mut bad = good.clone();
            bad[at..at + 4].copy_from_slice(&value.to_le_bytes());
            LogonInfo::parse(&bad).unwrap_err().to_string()
        };
        for (at, value, field) in [
            (0, 2, "Version"),
            (16, 0, "LogonInfo"),
            (128, GROUPS_MAX + 1, "GroupCount"),
            (128, 3, "GroupIds"),
            (172, 0, "ExtraSids"),
            (216, u32::MAX, "SidCount"),
            (228, 2, "ResourceGroupIds"),
            (244, 6, "EffectiveName"),
        ] {
            let why = told(at, value);
            assert!(why.starts_with(field), "{at}: {why}");
        }
    }

    proptest! {
        #[test]
        fn changed_pac_never_panics(at in 0..420_usize, byte: u8, end in 0..600_usize) {
            let mut info = sample(EXTRA_SIDS | RESOURCE_GROUPS);
            let at = at % info.len();
            info[at] = byte;
            info.truncate(end);
            if let Ok(info) = LogonInfo::parse(&info) {
                prop_assert!(info.rids().len() <= 1 + 3 * GROUPS_MAX as usize);
            }
        }
    }
}
