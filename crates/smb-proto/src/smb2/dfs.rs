//! Referrals to other servers: FSCTL_DFS_GET_REFERRALS and FSCTL_DFS_GET_REFERRALS_EX (MS-DFSC section 2.2).
//!
//! *Operation.* Supports responses about paths. Those of versions 1 and 2 are emitted for clients that accept no later version, and
//! are not parsed; nor are name lists, which domain controllers send.

use wire::{Parser, Rule, bytes, le_u16, le_u32, reject, take};

use super::{Parsed, put_utf16};
use crate::parse::{Rejected, size, text, whole};

/// ReferralServers: the targets are root servers that also return referrals.
pub const REFERRAL_SERVERS: u32 = 1;
/// StorageServers: the targets have the files.
pub const STORAGE_SERVERS: u32 = 2;

/// Flag of an entry with a name list.
const NAME_LIST: u16 = 2;
/// Flag of a version 4 entry: the first of a set of equivalent targets.
const SET_BOUNDARY: u16 = 4;

/// Length of the header of a response, and of the fields of an entry of version 1, of version 2, and of version 3 or 4.
const HEAD_LEN: usize = 8;
const ENTRY_1_LEN: usize = 8;
const ENTRY_2_LEN: usize = 22;
const ENTRY_LEN: usize = 34;

/// Decodes text up to its terminator, or to the end.
fn terminated<'a>(bytes: &'a [u8], field: &'static str) -> Result<String, Rejected<'a>> {
    let (units, _) = bytes.as_chunks::<2>();
    let end = units.iter().position(|unit| *unit == [0, 0]).map_or(bytes.len(), |n| n * 2);
    text(&bytes[..end], field)
}

/// Appends text and its terminator.
fn terminate(out: &mut Vec<u8>, text: &str) {
    put_utf16(out, text);
    out.extend([0; 2]);
}

/// REQ_GET_DFS_REFERRAL and REQ_GET_DFS_REFERRAL_EX: queries the targets of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferralRequest {
    /// MaxReferralLevel: the highest version that the client accepts.
    pub max_level: u16,
    /// RequestFileName: `\server\share\...`, or empty, or a single name for queries to domain controllers.
    pub path: String,
    /// SiteName: the site of the client, if sent.
    pub site: Option<String>,
}

impl ReferralRequest {
    /// SiteName, a bit of RequestFlags.
    const SITE: u16 = 1;

    /// Parses REQ_GET_DFS_REFERRAL.
    pub fn parse(input: &[u8]) -> Parsed<Self> {
        whole(input, |i| {
            let (i, max_level) = le_u16("MaxReferralLevel")(i)?;
            let path = terminated(i, "RequestFileName")?;
            Ok((&[], Self { max_level, path, site: None }))
        })
    }

    /// Parses REQ_GET_DFS_REFERRAL_EX.
    pub fn parse_ex(input: &[u8]) -> Parsed<Self> {
        whole(input, |i| {
            let (i, (max_level, flags, len)) =
                (le_u16("MaxReferralLevel"), le_u16("RequestFlags"), le_u32("RequestDataLength"))
                    .parse(i)?;
            let (i, data) = take(size(len), "RequestData")(i)?;
            let named = |i, (length, field): (_, &'static str)| {
                let (i, len) = le_u16(length)(i)?;
                let (i, name) = take(len.into(), field)(i)?;
                Ok((i, terminated(name, field)?))
            };
            let (data, path) = named(data, ("RequestFileNameLength", "RequestFileName"))?;
            let site = match flags & Self::SITE {
                0 => None,
                _ => Some(named(data, ("SiteNameLength", "SiteName"))?.1),
            };
            Ok((i, Self { max_level, path, site }))
        })
    }

    /// Serializes REQ_GET_DFS_REFERRAL, which cannot contain a site.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = self.max_level.to_le_bytes().to_vec();
        put_utf16(&mut out, &self.path);
        out.extend([0; 2]);
        out
    }

    /// Serializes REQ_GET_DFS_REFERRAL_EX. This program never sends names above 64 KiB.
    pub fn emit_ex(&self) -> Vec<u8> {
        let mut data = Vec::new();
        for name in [Some(&self.path), self.site.as_ref()].into_iter().flatten() {
            let at = data.len();
            data.extend([0; 2]);
            let len = put_utf16(&mut data, name);
            let len = u16::try_from(len).unwrap_or(u16::MAX);
            data[at..at + 2].copy_from_slice(&len.to_le_bytes());
        }
        let flags = if self.site.is_some() { Self::SITE } else { 0 };
        let mut out = [self.max_level, flags].map(u16::to_le_bytes).concat();
        out.extend(u32::try_from(data.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(data);
        out
    }
}

/// The version of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// DFS_REFERRAL_V1
    V1 = 1,
    /// DFS_REFERRAL_V2
    V2 = 2,
    /// DFS_REFERRAL_V3
    V3 = 3,
    /// DFS_REFERRAL_V4
    V4 = 4,
}

impl Version {
    /// Returns the highest version that a client accepts; `None` if it supports none.
    pub fn of_level(max_level: u16) -> Option<Self> {
        match max_level {
            0 => None,
            1 => Some(Self::V1),
            2 => Some(Self::V2),
            3 => Some(Self::V3),
            _ => Some(Self::V4),
        }
    }

    /// Bytes of the fields of an entry.
    fn entry_len(self) -> usize {
        match self {
            Self::V1 => ENTRY_1_LEN,
            Self::V2 => ENTRY_2_LEN,
            Self::V3 | Self::V4 => ENTRY_LEN,
        }
    }
}

/// RESP_GET_DFS_REFERRAL about one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferralResponse {
    /// Version of all entries.
    pub version: Version,
    /// PathConsumed: length of the request path that the targets replace, in bytes.
    pub path_consumed: u16,
    /// ReferralHeaderFlags
    pub flags: u32,
    /// ServerType: the targets are root servers.
    pub is_root: bool,
    /// TimeToLive, in seconds.
    pub ttl: u32,
    /// The path that the targets replace, `\server\share`.
    pub dfs_path: String,
    /// Targets `\server\share` in order of preference.
    pub targets: Vec<String>,
}

impl ReferralResponse {
    /// Parses a response. All entries must have the same version and path.
    pub fn parse(output: &[u8]) -> Parsed<Self> {
        whole(output, |i| {
            let (at, (path_consumed, count, flags)) = (
                le_u16("PathConsumed"),
                le_u16("NumberOfReferrals"),
                le_u32("ReferralHeaderFlags"),
            )
                .parse(i)?;
            let mut told: Option<Self> = None;
            let mut at = at;
            for _ in 0..count {
                let (behind, entry) = Entry::parse(at)?;
                let one = told.get_or_insert_with(|| Self {
                    version: entry.version,
                    path_consumed,
                    flags,
                    is_root: entry.is_root,
                    ttl: entry.ttl,
                    dfs_path: entry.dfs_path.clone(),
                    targets: Vec::new(),
                });
                let is_alike = entry.version == one.version
                    && entry.is_root == one.is_root
                    && entry.ttl == one.ttl
                    && entry.dfs_path == one.dfs_path;
                if !is_alike {
                    return Err(reject("VersionNumber", Rule::Value, at));
                }
                one.targets.push(entry.target);
                at = behind;
            }
            told.map(|told| (at, told)).ok_or_else(|| reject("NumberOfReferrals", Rule::Value, i))
        })
    }

    /// Serializes it in at most `max` bytes with as many targets as fit; `None` if no target fits.
    pub fn emit(&self, max: usize) -> Option<Vec<u8>> {
        (1..=self.targets.len()).rev().find_map(|n| {
            let out = self.emit_some(&self.targets[..n])?;
            (out.len() <= max).then_some(out)
        })
    }

    fn head(&self, targets: &[String]) -> Option<Vec<u8>> {
        let mut out = self.path_consumed.to_le_bytes().to_vec();
        out.extend(u16::try_from(targets.len()).ok()?.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        Some(out)
    }

    fn emit_some(&self, targets: &[String]) -> Option<Vec<u8>> {
        if self.version == Version::V1 {
            return self.emit_first(targets);
        }
        let entry_len = self.version.entry_len();
        let strings_at = HEAD_LEN + targets.len() * entry_len;
        let mut strings = Vec::new();
        let mut put = |text: &str| {
            let at = strings_at + strings.len();
            terminate(&mut strings, text);
            at
        };
        // There are no short names. Some decoders read each string where the one before it ends, so that each is written.
        let (path_at, alternate_at) = (put(&self.dfs_path), put(&self.dfs_path));
        let places: Vec<usize> = targets.iter().map(|target| put(target)).collect();
        let mut out = self.head(targets)?;
        for (n, target_at) in places.into_iter().enumerate() {
            // Offsets count from the entry.
            let start = out.len();
            let offset = |at: usize| u16::try_from(at - start).ok();
            let is_first = n == 0 && self.version == Version::V4;
            let len = u16::try_from(entry_len).ok()?;
            let places = [offset(path_at)?, offset(alternate_at)?, offset(target_at)?];
            let flags = if is_first { SET_BOUNDARY } else { 0 };
            let head = [self.version as u16, len, u16::from(self.is_root), flags];
            out.extend(head.map(u16::to_le_bytes).concat());
            if self.version == Version::V2 {
                // Proximity
                out.extend([0; 4]);
            }
            out.extend(self.ttl.to_le_bytes());
            out.extend(places.map(u16::to_le_bytes).concat());
            if self.version != Version::V2 {
                // ServiceSiteGuid
                out.extend([0; 16]);
            }
        }
        out.extend(strings);
        Some(out)
    }

    /// Version 1: each entry is followed by its target, and nothing tells how long it may be kept.
    fn emit_first(&self, targets: &[String]) -> Option<Vec<u8>> {
        let mut out = self.head(targets)?;
        for target in targets {
            let mut share = Vec::new();
            terminate(&mut share, target);
            let len = u16::try_from(ENTRY_1_LEN + share.len()).ok()?;
            let head = [self.version as u16, len, u16::from(self.is_root), 0];
            out.extend(head.map(u16::to_le_bytes).concat());
            out.extend(share);
        }
        Some(out)
    }
}

/// A version 3 or 4 entry about a path.
struct Entry {
    version: Version,
    is_root: bool,
    ttl: u32,
    dfs_path: String,
    target: String,
}

impl Entry {
    /// Parses an entry and returns the bytes after it.
    fn parse(entry: &[u8]) -> wire::Parsed<'_, Self> {
        let (i, number) = le_u16("VersionNumber")(entry)?;
        let version = match number {
            3 => Version::V3,
            4 => Version::V4,
            _ => return Err(reject("VersionNumber", Rule::Value, entry)),
        };
        let (at_type, len) = le_u16("Size")(i)?;
        let (at_flags, server_type) = le_u16("ServerType")(at_type)?;
        if server_type > 1 {
            return Err(reject("ServerType", Rule::Value, at_type));
        }
        let (rest, flags) = le_u16("ReferralEntryFlags")(at_flags)?;
        if flags & NAME_LIST != 0 {
            return Err(reject("ReferralEntryFlags", Rule::Value, at_flags));
        }
        let (rest, ttl) = le_u32("TimeToLive")(rest)?;
        let (_, (path, _, target, _)) = (
            le_u16("DFSPathOffset"),
            le_u16("DFSAlternatePathOffset"),
            le_u16("NetworkAddressOffset"),
            bytes::<16>("ServiceSiteGuid"),
        )
            .parse(rest)?;
        let named = |offset: u16, field| {
            let from = entry.get(offset.into()..);
            terminated(from.ok_or_else(|| reject(field, Rule::OutOfBounds, rest))?, field)
        };
        let (dfs_path, target) =
            (named(path, "DFSPathOffset")?, named(target, "NetworkAddressOffset")?);
        // An entry shorter than its fields would be parsed again and again.
        let behind = entry.get(len.into()..).filter(|_| usize::from(len) >= ENTRY_LEN);
        let behind = behind.ok_or_else(|| reject("Size", Rule::OutOfBounds, i))?;
        Ok((behind, Self { version, is_root: server_type == 1, ttl, dfs_path, target }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn response(version: Version, targets: &[&str]) -> ReferralResponse {
        ReferralResponse {
            version,
            path_consumed: 6,
            flags: STORAGE_SERVERS,
            is_root: false,
            ttl: 300,
            dfs_path: r"\g\a".into(),
            targets: targets.iter().map(|&t| t.into()).collect(),
        }
    }

    /// Follows MS-DFSC sections 2.2.4 and 2.2.5.4 field by field.
    #[test]
    fn response_matches_specification() {
        let mut wanted = vec![6, 0, 1, 0, 2, 0, 0, 0];
        // VersionNumber, Size, ServerType, ReferralEntryFlags, TimeToLive.
        wanted.extend([4, 0, 34, 0, 0, 0, 4, 0, 0x2c, 1, 0, 0]);
        // The path, the alternate one and the target, from the entry on; ServiceSiteGuid.
        wanted.extend([34, 0, 44, 0, 54, 0]);
        wanted.extend([0; 16]);
        wanted.extend(b"\\\0g\0\\\0a\0\0\0\\\0g\0\\\0a\0\0\0\\\0h\0\\\0b\0\0\0");
        let told = response(Version::V4, &[r"\h\b"]);
        assert_eq!(told.emit(usize::MAX), Some(wanted.clone()));
        assert_eq!(ReferralResponse::parse(&wanted), Ok(told));
        let third = response(Version::V3, &[r"\h\b"]).emit(usize::MAX).unwrap();
        assert_eq!((third[8], third[14]), (3, 0), "version 3 has no sets");
    }

    /// MS-DFSC sections 2.2.5.1 and 2.2.5.2, field by field.
    #[test]
    fn early_versions_match_specification() {
        let head = [6, 0, 1, 0, 2, 0, 0, 0];
        let target = b"\\\0h\0\\\0b\0\0\0";
        let first = [&head[..], &[1, 0, 18, 0, 0, 0, 0, 0], target].concat();
        assert_eq!(response(Version::V1, &[r"\h\b"]).emit(usize::MAX), Some(first));
        // Proximity, TimeToLive, and the three places.
        let mut second =
            [&head[..], &[2, 0, 22, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x2c, 1, 0, 0]].concat();
        second.extend([22, 0, 32, 0, 42, 0]);
        second.extend(b"\\\0g\0\\\0a\0\0\0\\\0g\0\\\0a\0\0\0");
        second.extend(target);
        assert_eq!(response(Version::V2, &[r"\h\b"]).emit(usize::MAX), Some(second));
        let two = response(Version::V1, &[r"\h\b", r"\i\b"]);
        assert_eq!(two.emit(usize::MAX).unwrap().len(), 8 + 2 * 18);
        assert_eq!(two.emit(8 + 2 * 18 - 1).unwrap().len(), 8 + 18);
        for (level, version) in [(0, None), (1, Some(Version::V1)), (2, Some(Version::V2))] {
            assert_eq!(Version::of_level(level), version);
        }
    }

    #[test]
    fn target_without_room_is_omitted() {
        let two = response(Version::V4, &[r"\h\b", r"\i\b"]);
        let all = two.emit(usize::MAX).unwrap().len();
        let one = two.emit(all - 1).unwrap();
        assert_eq!(ReferralResponse::parse(&one), Ok(response(Version::V4, &[r"\h\b"])));
        assert_eq!(two.emit(one.len() - 1), None);
        assert_eq!(response(Version::V4, &[]).emit(usize::MAX), None);
        // A 16-bit offset does not reach the last target.
        let long = format!(r"\{}\b", "h".repeat(20_000));
        let far = response(Version::V4, &[&long, &long]);
        assert_eq!(
            ReferralResponse::parse(&far.emit(usize::MAX).unwrap()).unwrap().targets.len(),
            2
        );
        let farther = response(Version::V4, &[&long, &long, &long]);
        let some = farther.emit(usize::MAX).unwrap();
        assert_eq!(ReferralResponse::parse(&some).unwrap().targets.len(), 2);
    }

    #[test]
    fn request_round_trips_with_site() {
        let asked = ReferralRequest { max_level: 4, path: r"\g\a".into(), site: None };
        assert_eq!(asked.emit(), b"\x04\0\\\0g\0\\\0a\0\0\0");
        assert_eq!(ReferralRequest::parse(b"\x04\0\\\0g\0\\\0a\0"), Ok(asked.clone()), "no end");
        assert_eq!(ReferralRequest::parse_ex(&asked.emit_ex()), Ok(asked.clone()));
        let sited = ReferralRequest { site: Some("Berlin".into()), ..asked };
        assert_eq!(ReferralRequest::parse_ex(&sited.emit_ex()), Ok(sited));
        let why = |bytes: &[u8]| ReferralRequest::parse_ex(bytes).unwrap_err().to_string();
        assert_eq!(why(&[4, 0, 0, 0, 9, 0, 0, 0, 0, 0]), "RequestData truncated at 8");
        assert_eq!(why(&[4, 0, 0, 0, 2, 0, 0, 0, 4, 0]), "RequestFileName truncated at 10");
        assert!(ReferralRequest::parse(&[4, 0, 0, 0xd8]).is_err(), "half a pair");
    }

    #[test]
    fn empty_entry_is_refused() {
        let mut bytes = response(Version::V4, &[r"\h\b", r"\i\b"]).emit(usize::MAX).unwrap();
        bytes[10] = 0;
        let why = ReferralResponse::parse(&bytes).unwrap_err().to_string();
        assert_eq!(why, "Size out of bounds at 10");
    }

    proptest! {
        #[test]
        fn request_and_response_round_trip(
            path in "[^\\x00]{0,20}",
            targets in prop::collection::vec("[^\\x00]{0,20}", 1..5),
            site in prop::option::of("[^\\x00]{0,10}"),
            (max_level, path_consumed, flags, ttl, is_root, four) in
                any::<(u16, u16, u32, u32, bool, bool)>(),
        ) {
            let asked = ReferralRequest { max_level, path: path.clone(), site };
            prop_assert_eq!(ReferralRequest::parse_ex(&asked.emit_ex()), Ok(asked.clone()));
            let bare = ReferralRequest { site: None, ..asked };
            prop_assert_eq!(ReferralRequest::parse(&bare.emit()), Ok(bare));
            let version = if four { Version::V4 } else { Version::V3 };
            let dfs_path = path;
            let told = ReferralResponse { version, path_consumed, flags, is_root, ttl, dfs_path, targets };
            prop_assert_eq!(ReferralResponse::parse(&told.emit(usize::MAX).unwrap()), Ok(told));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = ReferralRequest::parse(&bytes);
            let _ = ReferralRequest::parse_ex(&bytes);
            let _ = ReferralResponse::parse(&bytes);
            let mut entry = vec![0, 0, 2, 0, 0, 0, 0, 0, 3, 0, 34, 0, 0, 0, 0, 0];
            entry.extend(bytes);
            let _ = ReferralResponse::parse(&entry);
        }
    }
}
