//! Security identifiers (MS-DTYP section 2.4.2), as used in SMB messages, tickets, and access lists of files.

use std::fmt;
use std::str::FromStr;

use crate::{Fault, Parsed, bytes, decode, known, le_u8, le_u32, times};

/// The invalid part of an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadSid(pub &'static str);

impl fmt::Display for BadSid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no security identifier: {}", self.0)
    }
}

impl std::error::Error for BadSid {}

/// A security identifier: an authority of 48 bits and up to 15 subauthorities.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sid {
    authority: u64,
    subs: Box<[u32]>,
}

impl Sid {
    /// Maximum number of subauthorities.
    pub const SUBS_MAX: usize = 15;
    /// Maximum length, in bytes.
    pub const LEN_MAX: usize = 8 + 4 * Self::SUBS_MAX;

    /// Builds an identifier; `None` if there are too many subauthorities or the authority has over 48 bits.
    pub fn new(authority: u64, subs: &[u32]) -> Option<Self> {
        (subs.len() <= Self::SUBS_MAX && authority >> 48 == 0)
            .then(|| Self { authority, subs: subs.into() })
    }

    fn fixed(authority: u64, subs: &[u32]) -> Self {
        Self { authority, subs: subs.into() }
    }

    /// S-1-1-0
    pub fn everyone() -> Self {
        Self::fixed(1, &[0])
    }
    /// S-1-3-0: replaced by the owner when an entry is inherited.
    pub fn creator_owner() -> Self {
        Self::fixed(3, &[0])
    }
    /// S-1-3-1: replaced by the primary group when an entry is inherited.
    pub fn creator_group() -> Self {
        Self::fixed(3, &[1])
    }
    /// S-1-3-4: the current owner of the object; such an entry removes the owner's implicit rights.
    pub fn owner_rights() -> Self {
        Self::fixed(3, &[4])
    }
    /// S-1-5-2
    pub fn network() -> Self {
        Self::fixed(5, &[2])
    }
    /// S-1-5-7
    pub fn anonymous() -> Self {
        Self::fixed(5, &[7])
    }
    /// S-1-5-64-10: NTLM Authentication.
    pub fn ntlm() -> Self {
        Self::fixed(5, &[64, 10])
    }
    /// S-1-5-11
    pub fn authenticated_users() -> Self {
        Self::fixed(5, &[11])
    }
    /// S-1-5-18: the operating system.
    pub fn system() -> Self {
        Self::fixed(5, &[18])
    }
    /// S-1-5-32-544
    pub fn administrators() -> Self {
        Self::fixed(5, &[32, 544])
    }
    /// S-1-22-1-UID: a Unix user without another SID.
    pub fn unix_user(uid: u32) -> Self {
        Self::fixed(22, &[1, uid])
    }
    /// S-1-22-2-GID
    pub fn unix_group(gid: u32) -> Self {
        Self::fixed(22, &[2, gid])
    }
    /// S-1-5-88-1-UID: as [`Sid::unix_user`], in entries of lists for clients without the POSIX extensions.
    pub fn nfs_user(uid: u32) -> Self {
        Self::fixed(5, &[88, 1, uid])
    }
    /// S-1-5-88-2-GID: as [`Sid::unix_group`], in such entries.
    pub fn nfs_group(gid: u32) -> Self {
        Self::fixed(5, &[88, 2, gid])
    }
    /// S-1-5-88-3-MODE: contains the mode bits of a file, for clients without the POSIX extensions.
    pub fn unix_mode(mode: u32) -> Self {
        Self::fixed(5, &[88, 3, mode])
    }

    /// Returns the uid of an S-1-22-1 or S-1-5-88-1 identifier.
    pub fn as_unix_user(&self) -> Option<u32> {
        match (self.authority, &*self.subs) {
            (22, [1, uid]) | (5, [88, 1, uid]) => Some(*uid),
            _ => None,
        }
    }

    /// Returns the gid of an S-1-22-2 or S-1-5-88-2 identifier.
    pub fn as_unix_group(&self) -> Option<u32> {
        match (self.authority, &*self.subs) {
            (22, [2, gid]) | (5, [88, 2, gid]) => Some(*gid),
            _ => None,
        }
    }

    /// Returns the mode bits of an S-1-5-88-3 identifier.
    pub fn as_unix_mode(&self) -> Option<u32> {
        match (self.authority, &*self.subs) {
            (5, [88, 3, mode]) => Some(*mode),
            _ => None,
        }
    }

    /// Returns true for an S-1-5-88 identifier, which has a number of NFS.
    pub fn is_of_nfs(&self) -> bool {
        matches!((self.authority, &*self.subs), (5, [88, ..]))
    }

    /// Appends a subauthority.
    pub fn child(&self, sub: u32) -> Option<Self> {
        let mut subs = self.subs.to_vec();
        subs.push(sub);
        Self::new(self.authority, &subs)
    }

    /// Splits off the last subauthority (the RID of a domain's account).
    pub fn split(&self) -> Option<(Self, u32)> {
        let (last, rest) = self.subs.split_last()?;
        Some((Self::fixed(self.authority, rest), *last))
    }

    /// Returns the last subauthority if the rest equals this domain.
    pub fn rid_in(&self, domain: &Self) -> Option<u32> {
        let (rid, subs) = self.subs.split_last()?;
        (self.authority == domain.authority && *subs == *domain.subs).then_some(*rid)
    }

    /// Returns the authority: 48 bits.
    pub fn authority(&self) -> u64 {
        self.authority
    }

    /// Returns the subauthorities.
    pub fn subs(&self) -> &[u32] {
        &self.subs
    }

    /// Returns the length on the wire, in bytes.
    pub fn wire_len(&self) -> usize {
        8 + 4 * self.subs.len()
    }

    /// Parses an identifier at the start of `bytes`; ignores the bytes after it (MS-DTYP section 2.4.2.2).
    ///
    /// # Errors
    ///
    /// The field that breaks a rule, and its offset in `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        decode(bytes, Self::field).map(|(_, sid)| sid).map_err(|why| why.at(bytes))
    }

    /// Parses an identifier inside a message.
    ///
    /// # Errors
    ///
    /// The field that breaks a rule.
    pub fn field(i: &[u8]) -> Parsed<'_, Self> {
        let one = |revision| (revision == 1).then_some(());
        let (i, ()) = known("Revision", le_u8("Revision"), one)(i)?;
        let few = |n: u8| Some(usize::from(n)).filter(|n| *n <= Self::SUBS_MAX);
        let (i, count) = known("SubAuthorityCount", le_u8("SubAuthorityCount"), few)(i)?;
        let (i, authority) = bytes::<6>("IdentifierAuthority")(i)?;
        let (i, subs) = times(count, le_u32("SubAuthority"))(i)?;
        let authority = authority.iter().fold(0, |a, b| a << 8 | u64::from(*b));
        Ok((i, Self { authority, subs: subs.into() }))
    }

    /// Appends its encoding.
    pub fn put(&self, out: &mut Vec<u8>) {
        // Invariant: `SUBS_MAX` fits a byte.
        #[allow(clippy::cast_possible_truncation)]
        out.extend([1, self.subs.len() as u8]);
        out.extend(&self.authority.to_be_bytes()[2..]);
        out.extend(self.subs.iter().flat_map(|s| s.to_le_bytes()));
    }

    /// Encodes it.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.wire_len());
        self.put(&mut out);
        out
    }
}

impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An authority above 32 bits is written in hexadecimal (MS-DTYP section 2.4.2.1).
        if self.authority >> 32 == 0 {
            write!(f, "S-1-{}", self.authority)?;
        } else {
            write!(f, "S-1-{:#014x}", self.authority)?;
        }
        self.subs.iter().try_for_each(|s| write!(f, "-{s}"))
    }
}

impl fmt::Debug for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Sid {
    type Err = BadSid;

    fn from_str(text: &str) -> Result<Self, BadSid> {
        let rest = text.strip_prefix("S-1-").or_else(|| text.strip_prefix("s-1-"));
        let mut parts = rest.ok_or(BadSid("Revision"))?.split('-');
        let authority = parts.next().ok_or(BadSid("IdentifierAuthority"))?;
        let authority = match authority.strip_prefix("0x") {
            Some(hex) if hex.len() == 12 => u64::from_str_radix(hex, 16),
            _ => authority.parse::<u32>().map(u64::from),
        };
        let authority = authority.map_err(|_| BadSid("IdentifierAuthority"))?;
        let subs: Vec<u32> = parts
            .map(|p| p.parse().map_err(|_| BadSid("SubAuthority")))
            .collect::<Result<_, _>>()?;
        Self::new(authority, &subs).ok_or(BadSid("SubAuthorityCount"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_sid() -> impl Strategy<Value = Sid> {
        (0..1_u64 << 48, proptest::collection::vec(any::<u32>(), 0..=15))
            .prop_map(|(a, s)| Sid::new(a, &s).unwrap())
    }

    #[test]
    fn known_identifiers_format_correctly() {
        let s: Sid = "S-1-5-32-544".parse().unwrap();
        assert_eq!(s, Sid::administrators());
        assert_eq!(s.subs(), [32, 544]);
        assert_eq!(s.emit(), [1, 2, 0, 0, 0, 0, 0, 5, 32, 0, 0, 0, 0x20, 2, 0, 0]);
        assert_eq!("S-1-22-1-1000".parse::<Sid>().unwrap().as_unix_user(), Some(1000));
        assert_eq!("S-1-5-88-3-33188".parse::<Sid>().unwrap().as_unix_mode(), Some(0o100_644));
        assert_eq!(Sid::nfs_user(7).to_string(), "S-1-5-88-1-7");
        assert_eq!(Sid::nfs_group(7).to_string(), "S-1-5-88-2-7");
        for (text, wanted) in [("S-1-5-88-9", true), ("S-1-5-88-3-1", true), ("S-1-22-1-7", false)]
        {
            assert_eq!(text.parse::<Sid>().unwrap().is_of_nfs(), wanted, "{text}");
        }
    }

    #[test]
    fn invalid_identifier_names_field() {
        let said = |bytes: &[u8]| Sid::parse(bytes).map_err(|fault| fault.to_string());
        assert_eq!(said(&[2, 0, 0, 0, 0, 0, 0, 0]), Err("Revision invalid at 0".into()));
        assert_eq!(said(&[1, 16, 0, 0, 0, 0, 0, 0]), Err("SubAuthorityCount invalid at 1".into()));
        assert_eq!(said(&[1, 1, 0, 0, 0, 0, 0, 0, 9]), Err("SubAuthority truncated at 8".into()));
        for bad in ["", "S-1", "S-1-", "S-1-x", "S-2-5", "S-1-5-4294967296", "S-1-0x1-1"] {
            assert!(bad.parse::<Sid>().is_err(), "{bad}");
        }
        let long = "S-1-5".to_owned() + &"-1".repeat(16);
        assert_eq!(long.parse::<Sid>(), Err(BadSid("SubAuthorityCount")));
    }

    #[test]
    fn longest_identifier_has_fifteen_subauthorities() {
        let longest = Sid::new(5, &[u32::MAX; 15]).unwrap();
        assert_eq!((longest.wire_len(), Sid::LEN_MAX), (68, 68));
        assert_eq!(Sid::new(5, &[0; 16]), None);
        assert!(Sid::new((1 << 48) - 1, &[]).is_some());
        assert_eq!(Sid::new(1 << 48, &[]), None);
    }

    /// MS-DTYP section 2.4.2.1.
    #[test]
    fn large_authority_is_hexadecimal() {
        for (authority, text) in [
            (5, "S-1-5-21"),
            (0xffff_ffff, "S-1-4294967295-21"),
            (0x1_0000_0000, "S-1-0x000100000000-21"),
            (0xffff_ffff_ffff, "S-1-0xffffffffffff-21"),
        ] {
            let sid = Sid::new(authority, &[21]).unwrap();
            assert_eq!((sid.to_string(), format!("{sid:?}")), (text.into(), text.into()));
            assert_eq!(text.parse(), Ok(sid));
        }
    }

    #[test]
    fn split_separates_domain_and_rid() {
        let domain = Sid::new(5, &[21, 7]).unwrap();
        let account: Sid = "S-1-5-21-7-500".parse().unwrap();
        assert_eq!(domain.child(500), Some(account.clone()));
        assert_eq!(account.split(), Some((domain, 500)));
        assert_eq!(Sid::new(5, &[]).unwrap().split(), None);
        assert_eq!(Sid::new(5, &[1; 15]).unwrap().child(1), None);
    }

    #[test]
    fn unix_ids_require_unix_authority() {
        for (text, user, group, mode) in [
            ("S-1-22-1-7", Some(7), None, None),
            ("S-1-22-2-7", None, Some(7), None),
            ("S-1-5-88-1-7", Some(7), None, None),
            ("S-1-5-88-2-7", None, Some(7), None),
            ("S-1-5-88-3-7", None, None, Some(7)),
            ("S-1-22-3-7", None, None, None),
            ("S-1-5-1-7", None, None, None),
            ("S-1-22-88-1-7", None, None, None),
        ] {
            let sid: Sid = text.parse().unwrap();
            let found = (sid.as_unix_user(), sid.as_unix_group(), sid.as_unix_mode());
            assert_eq!(found, (user, group, mode), "{text}");
        }
    }

    #[test]
    fn parse_error_names_invalid_part() {
        let error = "S-1-5-x".parse::<Sid>().unwrap_err();
        assert_eq!(error.to_string(), "no security identifier: SubAuthority");
    }

    proptest! {
        #[test]
        fn identifiers_round_trip(sid in any_sid(), more: Vec<u8>) {
            let bytes = sid.emit();
            prop_assert_eq!(bytes.len(), sid.wire_len());
            prop_assert_eq!(Sid::parse(&bytes).unwrap(), sid.clone());
            prop_assert_eq!(sid.to_string().parse::<Sid>().unwrap(), sid.clone());
            let longer = [&bytes[..], &more].concat();
            prop_assert_eq!(Sid::field(&longer), Ok((&more[..], sid)));
        }
    }
}
