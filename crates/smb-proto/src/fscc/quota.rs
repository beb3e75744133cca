//! Quotas of users: FILE_QUOTA_INFORMATION and FILE_GET_QUOTA_INFORMATION (MS-FSCC sections 2.4.41 and 2.4.41.1), and the request
//! for them (MS-SMB2 section 2.2.37.1).

use wire::{Parser, Rule, Sid, le_u8, le_u16, le_u32, le_u64, reject, take};

use super::{Chain, entries};
use crate::dtyp::FileTime;
use crate::parse::{Parsed, size, whole};

/// `QuotaThreshold` and `QuotaLimit` of a user without a limit.
pub const NO_LIMIT: u64 = u64::MAX;
/// `QuotaLimit` in a SET_INFO that deletes the entry.
pub const DELETED: u64 = u64::MAX - 1;

/// Bits of `FileSystemControlFlags` (MS-FSCC section 2.5.2).
#[allow(missing_docs)] // The names are the specification's.
pub mod control {
    pub const QUOTA_TRACK: u32 = 0x1;
    pub const QUOTA_ENFORCE: u32 = 0x2;
    pub const LOG_QUOTA_THRESHOLD: u32 = 0x10;
    pub const LOG_QUOTA_LIMIT: u32 = 0x20;
}

/// FILE_QUOTA_INFORMATION.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Time of the last change; zero if unknown.
    pub changed: FileTime,
    /// Bytes in use.
    pub used: u64,
    /// Bytes from which the user is warned.
    pub threshold: u64,
    /// Bytes that the user may use.
    pub limit: u64,
    /// The user.
    pub sid: Sid,
}

impl Quota {
    /// Length of an entry without its identifier, in bytes.
    pub const FRAME: usize = 40;

    /// Serializes an entry with `NextEntryOffset` zero.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::FRAME + self.sid.wire_len());
        out.extend([0; 4]);
        put_length(&self.sid, &mut out);
        for n in [self.changed.0, self.used, self.threshold, self.limit] {
            out.extend(n.to_le_bytes());
        }
        self.sid.put(&mut out);
        out
    }

    fn parse(i: &[u8]) -> wire::Parsed<'_, Self> {
        let place = i;
        let (i, (len, changed)) = (le_u32("SidLength"), le_u64("ChangeTime")).parse(i)?;
        let (i, (used, threshold, limit)) =
            (le_u64("QuotaUsed"), le_u64("QuotaThreshold"), le_u64("QuotaLimit")).parse(i)?;
        let (i, sid) = sid(len, place, i)?;
        Ok((i, Self { changed: FileTime(changed), used, threshold, limit, sid }))
    }

    /// Parses a list: the buffer of a SET_INFO, or of the response to a QUERY_INFO.
    pub fn parse_list(bytes: &[u8]) -> Parsed<Vec<Self>> {
        entries(bytes, Self::parse)
    }

    /// Serializes a list, each entry at a multiple of 8.
    pub fn emit_list(list: &[Self]) -> Vec<u8> {
        let mut chain = Chain::new(usize::MAX);
        for quota in list {
            chain.push(&quota.emit());
        }
        chain.into_bytes()
    }
}

/// Appends the length of an identifier.
fn put_length(sid: &Sid, out: &mut Vec<u8>) {
    out.extend(u32::try_from(sid.wire_len()).unwrap_or_default().to_le_bytes());
}

/// Parses an identifier that fills the length that the peer sent at `place`.
fn sid<'a>(len: u32, place: &'a [u8], i: &'a [u8]) -> wire::Parsed<'a, Sid> {
    let (i, bytes) = take(size(len), "Sid")(i)?;
    let (_, sid) = Sid::field(bytes)?;
    if sid.wire_len() != bytes.len() {
        return Err(reject("SidLength", Rule::Value, place));
    }
    Ok((i, sid))
}

/// Parses a list of FILE_GET_QUOTA_INFORMATION.
pub fn parse_sids(bytes: &[u8]) -> Parsed<Vec<Sid>> {
    entries(bytes, |place| {
        let (i, len) = le_u32("SidLength")(place)?;
        sid(len, place, i)
    })
}

/// Serializes a list of FILE_GET_QUOTA_INFORMATION, each entry at a multiple of 4.
pub fn emit_sids(sids: &[Sid]) -> Vec<u8> {
    let mut chain = Chain::aligned(usize::MAX, 4);
    for sid in sids {
        let mut entry = vec![0; 4];
        put_length(sid, &mut entry);
        sid.put(&mut entry);
        chain.push(&entry);
    }
    chain.into_bytes()
}

/// The users whose quotas a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// All, or those after the last answer.
    All,
    /// All from this one on.
    From(Sid),
    /// These.
    Of(Vec<Sid>),
}

/// SMB2_QUERY_QUOTA_INFO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// At most one entry is wanted.
    pub single: bool,
    /// The enumeration begins again.
    pub restarts: bool,
    /// The users.
    pub asked: Asked,
}

impl Query {
    /// Length of the fixed part, in bytes.
    const FIXED: usize = 16;

    /// Parses the input of a QUERY_INFO. A list of identifiers wins over a first identifier (MS-SMB2 section 3.3.5.20.4).
    pub fn parse(bytes: &[u8]) -> Parsed<Self> {
        whole(bytes, |i| {
            let (i, (single, restarts, _)) =
                (le_u8("ReturnSingle"), le_u8("RestartScan"), le_u16("Reserved")).parse(i)?;
            let place = i;
            let (i, (list, start_len, start_at)) =
                (le_u32("SidListLength"), le_u32("StartSidLength"), le_u32("StartSidOffset"))
                    .parse(i)?;
            let out_of_bounds = |field| reject(field, Rule::OutOfBounds, place);
            let asked = if list != 0 {
                let list = i.get(..size(list)).ok_or_else(|| out_of_bounds("SidListLength"))?;
                let sids = parse_sids(list).map_err(|fault| {
                    let at = list.get(fault.offset..).unwrap_or_default();
                    reject(fault.field, fault.rule, at)
                })?;
                Asked::Of(sids)
            } else if start_len != 0 {
                let from = i.get(size(start_at)..);
                let start = from.ok_or_else(|| out_of_bounds("StartSidOffset"))?;
                Asked::From(sid(start_len, place, start)?.1)
            } else {
                Asked::All
            };
            Ok((&[], Self { single: single != 0, restarts: restarts != 0, asked }))
        })
    }

    /// Serializes the input.
    pub fn emit(&self) -> Vec<u8> {
        let (buffer, is_list) = match &self.asked {
            Asked::All => (Vec::new(), false),
            Asked::From(sid) => (sid.emit(), false),
            Asked::Of(sids) => (emit_sids(sids), true),
        };
        let len = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        let mut out = Vec::with_capacity(Self::FIXED + buffer.len());
        out.extend([u8::from(self.single), u8::from(self.restarts), 0, 0]);
        let (list, start) = if is_list { (len, 0) } else { (0, len) };
        for n in [list, start, 0] {
            out.extend(n.to_le_bytes());
        }
        out.extend(buffer);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smb2::test_harness::named;
    use proptest::prelude::*;

    fn alice() -> Sid {
        Sid::unix_user(1000)
    }

    /// S-1-22-1-1000, as smbcquotas of Samba 4.17 sends it.
    const ALICE: [u8; 16] = [1, 2, 0, 0, 0, 0, 0, 22, 1, 0, 0, 0, 0xe8, 3, 0, 0];

    #[test]
    fn entry_has_bytes_of_specification() {
        let quota = Quota {
            changed: FileTime(0),
            used: 0x1234,
            threshold: 0x2000,
            limit: NO_LIMIT,
            sid: alice(),
        };
        let mut wanted = vec![0, 0, 0, 0, 16, 0, 0, 0];
        wanted.extend([0; 8]);
        wanted.extend([0x34, 0x12, 0, 0, 0, 0, 0, 0]);
        wanted.extend([0, 0x20, 0, 0, 0, 0, 0, 0]);
        wanted.extend([0xff; 8]);
        wanted.extend(ALICE);
        assert_eq!(quota.emit(), wanted);
        assert_eq!(Quota::parse_list(&wanted), Ok(vec![quota.clone()]));
        // The second entry begins at a multiple of 8.
        let two = Quota::emit_list(&[quota.clone(), quota.clone()]);
        assert_eq!((two[0], two.len()), (56, 112));
        assert_eq!(Quota::parse_list(&two), Ok(vec![quota.clone(), quota]));
    }

    #[test]
    fn query_has_bytes_of_specification() {
        let mut bytes = vec![1, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend([0, 0, 0, 0, 16, 0, 0, 0]);
        bytes.extend(ALICE);
        let query = Query { single: true, restarts: false, asked: Asked::Of(vec![alice()]) };
        assert_eq!(query.emit(), bytes);
        assert_eq!(Query::parse(&bytes), Ok(query));
        let mut bytes = vec![0, 1, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 4, 0, 0, 0, 9, 9, 9, 9];
        bytes.extend(ALICE);
        let query = Query { single: false, restarts: true, asked: Asked::From(alice()) };
        assert_eq!(Query::parse(&bytes), Ok(query));
        let all = Query { single: false, restarts: true, asked: Asked::All };
        assert_eq!(Query::parse(&all.emit()), Ok(all));
    }

    #[test]
    fn malformed_lengths_are_refused() {
        let query = Query { single: false, restarts: false, asked: Asked::Of(vec![alice()]) };
        let good = query.emit();
        let bad = |at: usize, to: u8| {
            let mut bytes = good.clone();
            bytes[at] = to;
            named(Query::parse(&bytes))
        };
        assert_eq!(bad(4, 25), Err("SidListLength"), "longer than the input");
        assert_eq!(bad(4, 23), Err("Sid"), "cut");
        assert_eq!(bad(20, 12), Err("SubAuthority"));
        assert_eq!(bad(20, 17), Err("Sid"));
        assert_eq!(bad(24, 2), Err("Revision"));
        assert_eq!(bad(16, 200), Err("NextEntryOffset"));
        assert_eq!(named(Query::parse(&good[..15])), Err("StartSidOffset"));
        let start = Query { single: false, restarts: false, asked: Asked::From(alice()) }.emit();
        let bad = |at: usize, to: u8| {
            let mut bytes = start.clone();
            bytes[at] = to;
            named(Query::parse(&bytes))
        };
        assert_eq!(bad(12, 1), Err("Sid"));
        assert_eq!(bad(15, 255), Err("StartSidOffset"));
        assert_eq!(bad(8, 255), Err("Sid"));
        let mut longer =
            Quota { changed: FileTime(0), used: 0, threshold: 0, limit: 0, sid: alice() }.emit();
        longer[4] = 20;
        longer.extend([0; 4]);
        assert_eq!(named(Quota::parse_list(&longer)), Err("SidLength"));
    }

    proptest! {
        #[test]
        fn lists_round_trip(
            list in proptest::collection::vec((any::<[u64; 4]>(), any::<u32>()), 0..6), single: bool, restarts: bool,
        ) {
            let quotas: Vec<Quota> = list
                .iter()
                .map(|([changed, used, threshold, limit], uid)| Quota {
                    changed: FileTime(*changed),
                    used: *used,
                    threshold: *threshold,
                    limit: *limit,
                    sid: Sid::unix_user(*uid),
                })
                .collect();
            prop_assert_eq!(Quota::parse_list(&Quota::emit_list(&quotas)).unwrap(), quotas);
            let sids: Vec<Sid> = list.iter().map(|(_, uid)| Sid::unix_user(*uid)).collect();
            prop_assert_eq!(&parse_sids(&emit_sids(&sids)).unwrap(), &sids);
            let asked = if sids.is_empty() { Asked::All } else { Asked::Of(sids) };
            let query = Query { single, restarts, asked };
            prop_assert_eq!(Query::parse(&query.emit()).unwrap(), query);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Query::parse(&bytes);
            let _ = Quota::parse_list(&bytes);
            let _ = parse_sids(&bytes);
        }
    }
}
