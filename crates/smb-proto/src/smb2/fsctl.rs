//! The buffers of IOCTL: MS-SMB2 sections 2.2.31.1 to 2.2.32.6, MS-FSCC section 2.3.

use std::net::IpAddr;

use wire::{
    Malformed, Parser, Rule, bytes, known, le_u8, le_u16, le_u32, le_u64, reject, take, times,
};

use super::{FileId, Parsed, put_utf16};
use crate::parse::{constant, size, text, u16s, whole};

/// Control codes (MS-SMB2 section 2.2.31, MS-FSCC section 2.3).
#[allow(missing_docs)] // The names are the specifications', without FSCTL_.
pub mod code {
    pub const DFS_GET_REFERRALS: u32 = 0x0006_0194;
    pub const DFS_GET_REFERRALS_EX: u32 = 0x0006_01b0;
    pub const IS_PATHNAME_VALID: u32 = 0x0009_002c;
    pub const GET_COMPRESSION: u32 = 0x0009_003c;
    pub const FILESYSTEM_GET_STATISTICS: u32 = 0x0009_0060;
    pub const GET_NTFS_VOLUME_DATA: u32 = 0x0009_0064;
    pub const GET_OBJECT_ID: u32 = 0x0009_009c;
    pub const SET_REPARSE_POINT: u32 = 0x0009_00a4;
    pub const GET_REPARSE_POINT: u32 = 0x0009_00a8;
    pub const DELETE_REPARSE_POINT: u32 = 0x0009_00ac;
    pub const CREATE_OR_GET_OBJECT_ID: u32 = 0x0009_00c0;
    pub const SET_SPARSE: u32 = 0x0009_00c4;
    pub const QUERY_ALLOCATED_RANGES: u32 = 0x0009_40cf;
    pub const SET_ZERO_DATA: u32 = 0x0009_80c8;
    pub const FILE_LEVEL_TRIM: u32 = 0x0009_8208;
    pub const DUPLICATE_EXTENTS_TO_FILE: u32 = 0x0009_8344;
    pub const SET_COMPRESSION: u32 = 0x0009_c040;
    pub const PIPE_WAIT: u32 = 0x0011_0018;
    pub const PIPE_PEEK: u32 = 0x0011_400c;
    pub const PIPE_TRANSCEIVE: u32 = 0x0011_c017;
    pub const REFS_STREAM_SNAPSHOT_MANAGEMENT: u32 = 0x0009_0440;
    pub const SRV_REQUEST_RESUME_KEY: u32 = 0x0014_0078;
    pub const LMR_REQUEST_RESILIENCY: u32 = 0x0014_01d4;
    pub const QUERY_NETWORK_INTERFACE_INFO: u32 = 0x0014_01fc;
    pub const VALIDATE_NEGOTIATE_INFO: u32 = 0x0014_0204;
    pub const SRV_ENUMERATE_SNAPSHOTS: u32 = 0x0014_4064;
    pub const SRV_COPYCHUNK: u32 = 0x0014_40f2;
    pub const SRV_READ_HASH: u32 = 0x0014_41bb;
    pub const SRV_COPYCHUNK_WRITE: u32 = 0x0014_80f2;
}

/// SRV_SNAPSHOT_ARRAY (MS-SMB2 section 2.2.32.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshots {
    /// NumberOfSnapShots
    pub count: u32,
    /// SnapShotArraySize: length of all names in bytes, even if they do not fit.
    pub size: u32,
    /// SnapShots: all of them ([`gmt`](crate::dtyp::gmt)), or empty if they do not fit.
    pub names: Vec<String>,
}

impl Snapshots {
    /// Minimum length of a response, in bytes (MS-SMB2 section 3.3.5.15.1).
    pub const LEN: u32 = 16;

    /// Builds a response with these names, of at most `room` bytes.
    pub fn new(mut names: Vec<String>, room: u32) -> Self {
        let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
        let units: usize = names.iter().map(|name| name.len() + 1).sum();
        let size = u32::try_from(units * 2 + 2).unwrap_or(u32::MAX);
        if size.saturating_add(12) > room {
            names.clear();
        }
        Self { count, size, names }
    }

    /// Parses it.
    pub fn parse(output: &[u8]) -> Parsed<Self> {
        whole(output, |i| {
            let (i, (count, returned, size)) = (
                le_u32("NumberOfSnapShots"),
                le_u32("NumberOfSnapShotsReturned"),
                le_u32("SnapShotArraySize"),
            )
                .parse(i)?;
            let all = text(i, "SnapShots")?;
            let names = all.split('\0').filter(|name| !name.is_empty()).map(str::to_owned);
            let names: Vec<_> = names.collect();
            if u32::try_from(names.len()) != Ok(returned) {
                return Err(reject("NumberOfSnapShotsReturned", Rule::Value, i));
            }
            Ok((&i[i.len()..], Self { count, size, names }))
        })
    }

    /// Serializes it.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = self.count.to_le_bytes().to_vec();
        out.extend(u32::try_from(self.names.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(self.size.to_le_bytes());
        for name in &self.names {
            put_utf16(&mut out, name);
            out.extend([0; 2]);
        }
        // The terminator of the list; Windows sends at least 16 bytes.
        out.extend([0; 2]);
        out.resize(out.len().max(16), 0);
        out
    }
}

/// VALIDATE_NEGOTIATE_INFO of a client (MS-SMB2 section 2.2.31.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidateNegotiate {
    /// Capabilities
    pub capabilities: u32,
    /// Guid
    pub guid: [u8; 16],
    /// SecurityMode
    pub security_mode: u16,
    /// Dialects
    pub dialects: Vec<u16>,
}

impl ValidateNegotiate {
    /// Parses it. The input bounds the number of dialects.
    pub fn parse(input: &[u8]) -> Parsed<Self> {
        whole(input, |i| {
            let (i, (capabilities, guid, security_mode, count)) = (
                le_u32("Capabilities"),
                bytes("Guid"),
                le_u16("SecurityMode"),
                le_u16("DialectCount"),
            )
                .parse(i)?;
            let (i, dialects) = u16s(count.into(), "Dialects")(i)?;
            Ok((i, Self { capabilities, guid, security_mode, dialects }))
        })
    }

    /// Serializes it.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = self.capabilities.to_le_bytes().to_vec();
        out.extend(self.guid);
        out.extend(self.security_mode.to_le_bytes());
        out.extend(u16::try_from(self.dialects.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend(self.dialects.iter().flat_map(|d| d.to_le_bytes()));
        out
    }
}

/// VALIDATE_NEGOTIATE_INFO of a server (MS-SMB2 section 2.2.32.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validated {
    /// Capabilities
    pub capabilities: u32,
    /// Guid
    pub guid: [u8; 16],
    /// SecurityMode
    pub security_mode: u16,
    /// Dialect
    pub dialect: u16,
}

impl Validated {
    /// Length in bytes.
    pub const LEN: u32 = 24;

    /// Parses it.
    pub fn parse(output: &[u8]) -> Parsed<Self> {
        whole(output, |i| {
            let (i, (capabilities, guid, security_mode, dialect)) =
                (le_u32("Capabilities"), bytes("Guid"), le_u16("SecurityMode"), le_u16("Dialect"))
                    .parse(i)?;
            Ok((i, Self { capabilities, guid, security_mode, dialect }))
        })
    }

    /// Serializes it.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = self.capabilities.to_le_bytes().to_vec();
        out.extend(self.guid);
        out.extend(self.security_mode.to_le_bytes());
        out.extend(self.dialect.to_le_bytes());
        out
    }
}

/// Identifies the source of a server-side copy (MS-SMB2 section 2.2.32.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumeKey(pub [u8; 24]);

impl ResumeKey {
    /// Length of the response in bytes: the key, `ContextLength`, and four bytes of `Context`.
    pub const ANSWER_LEN: u32 = 32;

    /// Returns the key of an open, which contains its identifier.
    pub fn of(file: FileId) -> Self {
        let mut key = [0; 24];
        key[..FileId::LEN].copy_from_slice(&file.emit());
        Self(key)
    }

    /// Returns the open that the key identifies; `None` if this server did not issue the key.
    pub fn file(self) -> Option<FileId> {
        let (rest, file) = FileId::parse(&self.0).ok()?;
        rest.iter().all(|b| *b == 0).then_some(file)
    }

    /// Serializes the response.
    pub fn emit(self) -> Vec<u8> {
        let mut out = self.0.to_vec();
        out.extend([0; 8]);
        out
    }

    /// Parses the response.
    pub fn parse(output: &[u8]) -> Parsed<Self> {
        whole(output, |i| bytes("ResumeKey").map(Self).parse(i))
    }
}

/// A range to copy (SRV_COPYCHUNK, MS-SMB2 section 2.2.31.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// SourceOffset
    pub from: u64,
    /// TargetOffset
    pub to: u64,
    /// Length
    pub len: u32,
}

impl Chunk {
    fn parse(i: &[u8]) -> wire::Parsed<'_, Self> {
        let (i, (from, to, len, _)) =
            (le_u64("SourceOffset"), le_u64("TargetOffset"), le_u32("Length"), le_u32("Reserved"))
                .parse(i)?;
        Ok((i, Self { from, to, len }))
    }
}

/// SRV_COPYCHUNK_COPY (MS-SMB2 section 2.2.31.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyChunks {
    /// SourceKey
    pub key: ResumeKey,
    /// ChunkCount as sent by the client.
    pub count: u32,
    /// The chunks that the input contains.
    pub chunks: Vec<Chunk>,
}

impl CopyChunks {
    const CHUNK: usize = 24;

    /// Parses it; if there are more chunks than `chunks_max`, only their number.
    pub fn parse(input: &[u8], chunks_max: u32) -> Parsed<Self> {
        whole(input, |i| {
            let (i, (key, count, _)) =
                (bytes("SourceKey"), le_u32("ChunkCount"), le_u32("Reserved")).parse(i)?;
            let there =
                if count <= chunks_max { size(count).min(i.len() / Self::CHUNK) } else { 0 };
            let (i, chunks) = times(there, Chunk::parse)(i)?;
            Ok((i, Self { key: ResumeKey(key), count, chunks }))
        })
    }

    /// Serializes it.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = self.key.0.to_vec();
        out.extend(self.count.to_le_bytes());
        out.extend([0; 4]);
        for c in &self.chunks {
            out.extend(c.from.to_le_bytes());
            out.extend(c.to.to_le_bytes());
            out.extend(c.len.to_le_bytes());
            out.extend([0; 4]);
        }
        out
    }
}

/// SRV_COPYCHUNK_RESPONSE (MS-SMB2 section 2.2.32.1): the result or, with STATUS_INVALID_PARAMETER, the server's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// ChunksWritten
    pub chunks: u32,
    /// ChunkBytesWritten: bytes of the failed chunk that were written.
    pub chunk_bytes: u32,
    /// TotalBytesWritten
    pub total: u32,
}

impl Copied {
    /// Length in bytes.
    pub const LEN: u32 = 12;

    /// Parses it.
    pub fn parse(output: &[u8]) -> Parsed<Self> {
        whole(output, |i| {
            let (i, (chunks, chunk_bytes, total)) =
                (le_u32("ChunksWritten"), le_u32("ChunkBytesWritten"), le_u32("TotalBytesWritten"))
                    .parse(i)?;
            Ok((i, Self { chunks, chunk_bytes, total }))
        })
    }

    /// Serializes it.
    pub fn emit(&self) -> Vec<u8> {
        [self.chunks, self.chunk_bytes, self.total].iter().flat_map(|n| n.to_le_bytes()).collect()
    }
}

/// DUPLICATE_EXTENTS_DATA (MS-FSCC section 2.3.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateExtents {
    /// SourceFileID
    pub source: FileId,
    /// SourceFileOffset
    pub from: u64,
    /// TargetFileOffset
    pub to: u64,
    /// ByteCount
    pub count: u64,
}

impl DuplicateExtents {
    /// Parses it.
    pub fn parse(input: &[u8]) -> Parsed<Self> {
        whole(input, |i| {
            let (i, (source, from, to, count)) = (
                FileId::parse,
                le_u64("SourceFileOffset"),
                le_u64("TargetFileOffset"),
                le_u64("ByteCount"),
            )
                .parse(i)?;
            Ok((i, Self { source, from, to, count }))
        })
    }

    /// Serializes it.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = self.source.emit().to_vec();
        for n in [self.from, self.to, self.count] {
            out.extend(n.to_le_bytes());
        }
        out
    }
}

/// Two offsets, or an offset and a length, of 63 bits each: FILE_ZERO_DATA_INFORMATION and FILE_ALLOCATED_RANGE_BUFFER (MS-FSCC
/// sections 2.3.67 and 2.3.52).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// FileOffset
    pub at: u64,
    /// BeyondFinalZero, or Length
    pub other: u64,
}

impl Span {
    /// Length in bytes.
    pub const LEN: usize = 16;

    /// Parses one; refuses negative numbers.
    pub fn parse(input: &[u8]) -> Parsed<Self> {
        whole(input, Self::field)
    }

    fn field(i: &[u8]) -> wire::Parsed<'_, Self> {
        let positive = |n: u64| i64::try_from(n).is_ok().then_some(n);
        let (i, at) = known("FileOffset", le_u64("FileOffset"), positive)(i)?;
        let (i, other) = known("Length", le_u64("Length"), positive)(i)?;
        Ok((i, Self { at, other }))
    }

    /// Serializes it.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..8].copy_from_slice(&self.at.to_le_bytes());
        out[8..].copy_from_slice(&self.other.to_le_bytes());
        out
    }
}

/// FILE_LEVEL_TRIM (MS-FSCC section 2.3.73): offsets and lengths of unneeded ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trim {
    /// Ranges
    pub ranges: Vec<Span>,
}

impl Trim {
    /// Parses it. The input bounds the number of ranges.
    pub fn parse(input: &[u8]) -> Parsed<Self> {
        whole(input, |i| {
            let (i, ()) = constant("Key", le_u32("Key"), 0)(i)?;
            let (rest, count) = le_u32("NumRanges")(i)?;
            let count = size(count);
            if count > rest.len() / Span::LEN {
                return Err(reject("NumRanges", Rule::OutOfBounds, i));
            }
            let (i, ranges) = times(count, Span::field)(rest)?;
            Ok((i, Self { ranges }))
        })
    }

    /// Serializes it.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        out.extend(u32::try_from(self.ranges.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(self.ranges.iter().flat_map(Span::emit));
        out
    }
}

/// FSCTL_PIPE_WAIT of a client (MS-FSCC section 2.3.49).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipeWait {
    /// Timeout in units of 100 ns; `None`: the default of the pipe applies (TimeoutSpecified).
    pub timeout: Option<u64>,
    /// Name, without `\pipe\`.
    pub name: String,
}

impl PipeWait {
    /// Parses it.
    pub fn parse(input: &[u8]) -> Parsed<Self> {
        whole(input, |i| {
            let (i, (timeout, len, specified, _)) = (
                le_u64("Timeout"),
                le_u32("NameLength"),
                le_u8("TimeoutSpecified"),
                le_u8("Padding"),
            )
                .parse(i)?;
            let (i, name) = take(size(len), "Name")(i)?;
            let name = text(name, "Name")?;
            Ok((i, Self { timeout: (specified != 0).then_some(timeout), name }))
        })
    }

    /// Serializes it.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = self.timeout.unwrap_or(0).to_le_bytes().to_vec();
        out.extend([0; 4]);
        out.extend([u8::from(self.timeout.is_some()), 0]);
        let len = put_utf16(&mut out, &self.name);
        out[8..12].copy_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
        out
    }
}

/// NETWORK_RESILIENCY_REQUEST (MS-SMB2 section 2.2.31.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resiliency {
    /// Timeout, in milliseconds.
    pub timeout_ms: u32,
}

impl Resiliency {
    /// Parses it.
    pub fn parse(input: &[u8]) -> Parsed<Self> {
        whole(input, |i| {
            let (i, (timeout_ms, _)) = (le_u32("Timeout"), le_u32("Reserved")).parse(i)?;
            Ok((i, Self { timeout_ms }))
        })
    }

    /// Serializes it.
    pub fn emit(&self) -> Vec<u8> {
        [self.timeout_ms, 0].map(u32::to_le_bytes).concat()
    }
}

/// Parses the `CompressionState` of FSCTL_SET_COMPRESSION (MS-FSCC section 2.3.57).
pub fn compression_state(input: &[u8]) -> Parsed<u16> {
    whole(input, le_u16("CompressionState"))
}

/// An address of a network interface (MS-SMB2 section 2.2.32.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Number of the interface.
    pub index: u32,
    /// An address at which the server is reachable.
    pub addr: IpAddr,
    /// Bits per second.
    pub link_speed: u64,
    /// Receive-side scaling: the interface has several receive queues.
    pub rss: bool,
    /// SMB Direct is served on this address.
    pub rdma: bool,
}

/// Length of a NETWORK_INTERFACE_INFO, in bytes (MS-SMB2 section 2.2.32.5).
pub const INTERFACE_LEN: usize = 152;

const RSS_CAPABLE: u32 = 1;
const RDMA_CAPABLE: u32 = 2;
/// Address family numbers of Windows.
const AF_INET: u16 = 2;
const AF_INET6: u16 = 23;

/// Serializes the list of interfaces.
pub fn emit_interfaces(list: &[Interface]) -> Vec<u8> {
    let mut out = Vec::with_capacity(list.len() * INTERFACE_LEN);
    for (n, i) in list.iter().enumerate() {
        let end = (n + 1) * INTERFACE_LEN;
        let next = if n + 1 == list.len() { 0 } else { INTERFACE_LEN };
        let rss = if i.rss { RSS_CAPABLE } else { 0 };
        let rdma = if i.rdma { RDMA_CAPABLE } else { 0 };
        out.extend(u32::try_from(next).unwrap_or(0).to_le_bytes());
        out.extend(i.index.to_le_bytes());
        out.extend((rss | rdma).to_le_bytes());
        out.extend([0; 4]);
        out.extend(i.link_speed.to_le_bytes());
        // SOCKADDR_STORAGE: the family, the port (0), and the address at its place in `sockaddr_in` or `sockaddr_in6`.
        match i.addr {
            IpAddr::V4(a) => {
                out.extend(AF_INET.to_le_bytes());
                out.extend([0; 2]);
                out.extend(a.octets());
            }
            IpAddr::V6(a) => {
                out.extend(AF_INET6.to_le_bytes());
                out.extend([0; 6]);
                out.extend(a.octets());
            }
        }
        out.resize(end, 0);
    }
    out
}

/// Parses the list. Skips addresses of other families.
pub fn parse_interfaces(output: &[u8]) -> Parsed<Vec<Interface>> {
    whole(output, |mut i| {
        let mut out = Vec::new();
        loop {
            let (next, found) = interface(i)?;
            out.extend(found);
            match next {
                0 => return Ok((&[], out)),
                // Records do not overlap, so the list ends.
                INTERFACE_LEN.. if next <= i.len() => i = &i[next..],
                _ => return Err(reject("Next", Rule::Value, i)),
            }
        }
    })
}

/// Parses a record and returns the distance to the next; `None` for an unknown address family.
fn interface(i: &[u8]) -> Result<(usize, Option<Interface>), nom::Err<Malformed<'_>>> {
    let (i, (next, index, capability, _, link_speed)) = (
        le_u32("Next"),
        le_u32("IfIndex"),
        le_u32("Capability"),
        le_u32("Reserved"),
        le_u64("LinkSpeed"),
    )
        .parse(i)?;
    let (i, family) = le_u16("Family")(i)?;
    // The address follows a port and, for IPv6, the flow information.
    let addr = match family {
        AF_INET => {
            let (_, (_, a)) = (take(2, "Port"), bytes::<4>("IPv4Address")).parse(i)?;
            Some(IpAddr::from(a))
        }
        AF_INET6 => {
            let (_, (_, a)) = (take(6, "Port"), bytes::<16>("IPv6Address")).parse(i)?;
            Some(IpAddr::from(a))
        }
        _ => None,
    };
    let (rss, rdma) = (capability & RSS_CAPABLE != 0, capability & RDMA_CAPABLE != 0);
    let found = addr.map(|addr| Interface { index, addr, link_speed, rss, rdma });
    Ok((size(next), found))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::smb2::test_harness::{named, unhex};

    fn file() -> impl Strategy<Value = FileId> {
        any::<(u64, u64)>().prop_map(|(persistent, volatile)| FileId { persistent, volatile })
    }

    fn span() -> impl Strategy<Value = Span> {
        (0..=i64::MAX.unsigned_abs(), 0..=i64::MAX.unsigned_abs())
            .prop_map(|(at, other)| Span { at, other })
    }

    proptest! {
        #[test]
        fn all_values_round_trip(
            capabilities: u32, guid: [u8; 16], security_mode: u16,
            dialects in prop::collection::vec(any::<u16>(), 0..8), file in file(),
            chunks in prop::collection::vec(any::<(u64, u64, u32)>(), 0..5),
            spans in prop::collection::vec(span(), 0..5), n: [u32; 3],
        ) {
            let v = ValidateNegotiate { capabilities, guid, security_mode, dialects };
            prop_assert_eq!(ValidateNegotiate::parse(&v.emit()), Ok(v));
            let names: Vec<_> = chunks.iter().map(|c| crate::dtyp::gmt(c.2.into())).collect();
            for room in [Snapshots::LEN, u32::MAX] {
                let s = Snapshots::new(names.clone(), room);
                prop_assert_eq!(s.names.is_empty(), room == Snapshots::LEN || names.is_empty());
                prop_assert_eq!(Snapshots::parse(&s.emit()), Ok(s));
            }
            let v = Validated { capabilities, guid, security_mode, dialect: 0x302 };
            prop_assert_eq!(Validated::parse(&v.emit()), Ok(v));
            let key = ResumeKey::of(file);
            prop_assert_eq!(key.file(), Some(file));
            prop_assert_eq!(ResumeKey::parse(&key.emit()), Ok(key));
            let chunks: Vec<_> =
                chunks.into_iter().map(|(from, to, len)| Chunk { from, to, len }).collect();
            let count = u32::try_from(chunks.len()).unwrap();
            let c = CopyChunks { key, count, chunks };
            prop_assert_eq!(CopyChunks::parse(&c.emit(), 5), Ok(c));
            let c = Copied { chunks: n[0], chunk_bytes: n[1], total: n[2] };
            prop_assert_eq!(Copied::parse(&c.emit()), Ok(c));
            let d = DuplicateExtents { source: file, from: 1, to: 2, count: 3 };
            prop_assert_eq!(DuplicateExtents::parse(&d.emit()), Ok(d));
            let timeout = (capabilities % 2 == 0).then_some(d.count);
            let wait = PipeWait { timeout, name: format!("srv{capabilities}") };
            prop_assert_eq!(PipeWait::parse(&wait.emit()), Ok(wait));
            let r = Resiliency { timeout_ms: capabilities };
            prop_assert_eq!(Resiliency::parse(&r.emit()), Ok(r));
            let t = Trim { ranges: spans };
            let bytes = t.emit();
            prop_assert_eq!(Trim::parse(&bytes), Ok(t));
            if bytes.len() > 8 {
                prop_assert!(Trim::parse(&bytes[..bytes.len() - 1]).is_err());
            }
        }

        #[test]
        fn interfaces_round_trip(list in prop::collection::vec(
            (any::<u32>(), any::<IpAddr>(), any::<u64>(), any::<bool>(), any::<bool>()), 1..5,
        )) {
            let list: Vec<_> = list
                .into_iter()
                .map(|(index, addr, link_speed, rss, rdma)| {
                    Interface { index, addr, link_speed, rss, rdma }
                })
                .collect();
            let bytes = emit_interfaces(&list);
            prop_assert_eq!(bytes.len(), list.len() * INTERFACE_LEN);
            prop_assert_eq!(parse_interfaces(&bytes), Ok(list));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = ValidateNegotiate::parse(&bytes);
            let _ = CopyChunks::parse(&bytes, 256);
            let _ = Trim::parse(&bytes);
            let _ = PipeWait::parse(&bytes);
            let _ = parse_interfaces(&bytes);
        }
    }

    #[test]
    fn windows_interface_list_is_parsed() {
        let i = Interface {
            index: 14,
            addr: IpAddr::from([192, 168, 56, 10]),
            link_speed: 10_000_000_000,
            rss: true,
            rdma: true,
        };
        let head = unhex("00000000 0e000000 03000000 00000000 00e40b5402000000 0200 0000 c0a8380a");
        let bytes = emit_interfaces(&[i]);
        assert_eq!(bytes[..head.len()], head);
        assert!(bytes[head.len()..].iter().all(|b| *b == 0));
    }

    #[test]
    fn endless_interface_list_is_refused() {
        let i = Interface {
            index: 1,
            addr: IpAddr::from([1; 16]),
            link_speed: 0,
            rss: false,
            rdma: false,
        };
        let mut bytes = emit_interfaces(&[i, i]);
        bytes[152..156].copy_from_slice(&0_u32.wrapping_sub(152).to_le_bytes());
        assert!(parse_interfaces(&bytes).is_err());
        bytes[0] = 8;
        assert_eq!(named(parse_interfaces(&bytes)), Err("Next"));
    }

    #[test]
    fn negative_numbers_are_refused() {
        for bad in [Span { at: 1 << 63, other: 0 }, Span { at: 0, other: u64::MAX }] {
            assert!(Span::parse(&bad.emit()).is_err());
            assert!(Trim::parse(&Trim { ranges: vec![bad] }.emit()).is_err());
        }
        let many = CopyChunks { key: ResumeKey([1; 24]), count: u32::MAX, chunks: Vec::new() };
        assert_eq!(CopyChunks::parse(&many.emit(), 256), Ok(many));
        assert_eq!(ResumeKey([1; 24]).file(), None);
    }
}
