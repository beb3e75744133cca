//! CREATE (MS-SMB2 sections 2.2.13 and 2.2.14). [`super::context`] has the formats of the contexts.

use std::borrow::Cow;

use wire::{Parser, Rule, le_u8, le_u16, le_u32, reject, take};

use super::close::Basics;
use super::{FileId, HEADER_LEN, Parsed};
use crate::parse::{Rejected, body, longs, range, shorts, size};

/// `DesiredAccess` (MS-SMB2 sections 2.2.13.1.1 and 2.2.13.1.2).
pub mod access {
    #![allow(missing_docs)] // The names are the specification's.
    pub const READ_DATA: u32 = 0x0000_0001;
    pub const WRITE_DATA: u32 = 0x0000_0002;
    pub const APPEND_DATA: u32 = 0x0000_0004;
    pub const READ_EA: u32 = 0x0000_0008;
    pub const WRITE_EA: u32 = 0x0000_0010;
    /// FILE_EXECUTE of a file, FILE_TRAVERSE of a directory.
    pub const EXECUTE: u32 = 0x0000_0020;
    pub const DELETE_CHILD: u32 = 0x0000_0040;
    pub const READ_ATTRIBUTES: u32 = 0x0000_0080;
    pub const WRITE_ATTRIBUTES: u32 = 0x0000_0100;
    pub const DELETE: u32 = 0x0001_0000;
    pub const READ_CONTROL: u32 = 0x0002_0000;
    pub const WRITE_DAC: u32 = 0x0004_0000;
    pub const WRITE_OWNER: u32 = 0x0008_0000;
    pub const SYNCHRONIZE: u32 = 0x0010_0000;
    pub const ACCESS_SYSTEM_SECURITY: u32 = 0x0100_0000;
    pub const MAXIMUM_ALLOWED: u32 = 0x0200_0000;
    pub const GENERIC_ALL: u32 = 0x1000_0000;
    pub const GENERIC_EXECUTE: u32 = 0x2000_0000;
    pub const GENERIC_WRITE: u32 = 0x4000_0000;
    pub const GENERIC_READ: u32 = 0x8000_0000;
}

/// `ShareAccess`.
pub mod share {
    #![allow(missing_docs)] // The names are the specification's.
    pub const READ: u32 = 1;
    pub const WRITE: u32 = 2;
    pub const DELETE: u32 = 4;
}

/// `CreateOptions`.
pub mod option {
    #![allow(missing_docs)] // The names are the specification's.
    pub const DIRECTORY_FILE: u32 = 0x1;
    pub const WRITE_THROUGH: u32 = 0x2;
    pub const SEQUENTIAL_ONLY: u32 = 0x4;
    pub const NO_INTERMEDIATE_BUFFERING: u32 = 0x8;
    pub const SYNCHRONOUS_IO_ALERT: u32 = 0x10;
    pub const SYNCHRONOUS_IO_NONALERT: u32 = 0x20;
    pub const NON_DIRECTORY_FILE: u32 = 0x40;
    pub const COMPLETE_IF_OPLOCKED: u32 = 0x100;
    pub const NO_EA_KNOWLEDGE: u32 = 0x200;
    pub const OPEN_REMOTE_INSTANCE: u32 = 0x400;
    pub const RANDOM_ACCESS: u32 = 0x800;
    pub const DELETE_ON_CLOSE: u32 = 0x1000;
    pub const OPEN_BY_FILE_ID: u32 = 0x2000;
    pub const OPEN_FOR_BACKUP_INTENT: u32 = 0x4000;
    pub const NO_COMPRESSION: u32 = 0x8000;
    pub const OPEN_REQUIRING_OPLOCK: u32 = 0x1_0000;
    pub const DISALLOW_EXCLUSIVE: u32 = 0x2_0000;
    pub const RESERVE_OPFILTER: u32 = 0x10_0000;
    pub const OPEN_REPARSE_POINT: u32 = 0x20_0000;
    pub const OPEN_NO_RECALL: u32 = 0x40_0000;
    pub const OPEN_FOR_FREE_SPACE_QUERY: u32 = 0x80_0000;
    /// All defined bits.
    pub const ALL: u32 = 0x00ff_ffff;
}

/// `CreateDisposition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Disposition {
    /// Replaces an existing file, or creates it.
    Supersede = 0,
    /// Opens an existing file, or fails.
    Open = 1,
    /// Creates a new file, or fails.
    Create = 2,
    /// Opens an existing file, or creates it.
    OpenIf = 3,
    /// Truncates an existing file, or fails.
    Overwrite = 4,
    /// Truncates an existing file, or creates it.
    OverwriteIf = 5,
}

impl Disposition {
    /// Returns the disposition with this number.
    pub fn from_number(n: u32) -> Option<Self> {
        use Disposition::*;
        [Supersede, Open, Create, OpenIf, Overwrite, OverwriteIf]
            .get(usize::try_from(n).ok()?)
            .copied()
    }

    /// Checks whether an existing file is truncated.
    pub fn cuts(self) -> bool {
        matches!(self, Self::Supersede | Self::Overwrite | Self::OverwriteIf)
    }

    /// Checks whether a missing file is created.
    pub fn makes(self) -> bool {
        !matches!(self, Self::Open | Self::Overwrite)
    }
}

/// `CreateAction`.
pub mod action {
    #![allow(missing_docs)] // The names are the specification's.
    pub const SUPERSEDED: u32 = 0;
    pub const OPENED: u32 = 1;
    pub const CREATED: u32 = 2;
    pub const OVERWRITTEN: u32 = 3;
}

/// `OplockLevel`.
pub mod oplock {
    #![allow(missing_docs)] // The names are the specification's.
    pub const NONE: u8 = 0;
    pub const II: u8 = 1;
    pub const EXCLUSIVE: u8 = 8;
    pub const BATCH: u8 = 9;
    pub const LEASE: u8 = 0xff;
}

/// One create context (MS-SMB2 section 2.2.13.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context<'a> {
    /// Four letters, or a 16-byte GUID.
    pub name: Cow<'a, [u8]>,
    /// Contents of the context.
    pub data: Cow<'a, [u8]>,
}

impl Context<'static> {
    /// Builds a context.
    pub fn new(name: &'static [u8], data: Vec<u8>) -> Self {
        Self { name: Cow::Borrowed(name), data: Cow::Owned(data) }
    }
}

/// Maximum number of contexts in a request; 15 are defined.
pub const CONTEXTS_MAX: usize = 64;

/// Parses all contexts in `message` at the offset and length in the fields at `place`.
fn contexts<'a>(
    message: &'a [u8],
    named: (usize, usize),
    place: &'a [u8],
) -> Result<Vec<Context<'a>>, Rejected<'a>> {
    let mut rest = range(message, named, "CreateContexts", place)?;
    let mut found = Vec::new();
    while !rest.is_empty() {
        if found.len() == CONTEXTS_MAX {
            let rule = Rule::OverLimit { max: CONTEXTS_MAX };
            return Err(reject("CreateContexts", rule, rest));
        }
        let (behind, context) = Context::parse(rest)?;
        found.push(context);
        rest = behind;
    }
    Ok(found)
}

impl<'a> Context<'a> {
    /// Parses the first context of a chain.
    fn parse(start: &'a [u8]) -> wire::Parsed<'a, Self> {
        let (i, next) = le_u32("Next")(start)?;
        let (place, (name_at, name_len)) = shorts("Name")(i)?;
        let (_, (_, data_at, data_len)) =
            (le_u16("Reserved"), le_u16("DataOffset"), le_u32("DataLength")).parse(place)?;
        let next = size(next);
        // Require an aligned offset after the fixed part and inside the message, so that a chain cannot loop.
        if next != 0 && (!next.is_multiple_of(8) || next < 16 || next > start.len()) {
            return Err(reject("Next", Rule::Value, start));
        }
        let (this, behind) = start.split_at(if next == 0 { start.len() } else { next });
        let (data_at, data_len) = (usize::from(data_at), size(data_len));
        if name_len < 4 || name_at < 16 {
            return Err(reject("Name", Rule::Value, i));
        }
        if data_len != 0 && data_at < name_at + name_len {
            return Err(reject("DataOffset", Rule::Value, place));
        }
        let name = range(this, (name_at, name_len), "Name", i)?.into();
        let data = range(this, (data_at, data_len), "Data", place)?.into();
        Ok((behind, Self { name, data }))
    }
}

/// Appends contexts at an offset that is a multiple of 8 from the header.
fn put_contexts(out: &mut Vec<u8>, contexts: &[Context<'_>]) {
    let pad = |n: usize| n.next_multiple_of(8) - n;
    for (i, c) in contexts.iter().enumerate() {
        let data_at = if c.data.is_empty() { 0 } else { 16 + c.name.len().next_multiple_of(8) };
        let len = data_at.max(16 + c.name.len()) + c.data.len();
        let last = i + 1 == contexts.len();
        let word = |n: usize| u32::try_from(n).unwrap_or(0).to_le_bytes();
        let half = |n: usize| u16::try_from(n).unwrap_or(0).to_le_bytes();
        let from = out.len();
        out.extend(word(if last { 0 } else { len.next_multiple_of(8) }));
        out.extend(half(16));
        out.extend(half(c.name.len()));
        out.extend([0; 2]);
        out.extend(half(data_at));
        out.extend(word(c.data.len()));
        out.extend_from_slice(&c.name);
        if !c.data.is_empty() {
            out.resize(from + data_at, 0);
            out.extend_from_slice(&c.data);
        }
        if !last {
            out.resize(out.len() + pad(len), 0);
        }
    }
}

/// A CREATE request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// One of [`oplock`].
    pub oplock_level: u8,
    /// Anonymous 0, identification 1, impersonation 2, delegate 3.
    pub impersonation: u32,
    /// Bits of [`access`].
    pub access: u32,
    /// FILE_ATTRIBUTE bits for a new file.
    pub attributes: u32,
    /// Bits of [`share`].
    pub share: u32,
    /// A [`Disposition`].
    pub disposition: u32,
    /// Bits of [`option`].
    pub options: u32,
    /// The name, relative to the share, in UTF-16.
    pub name: Cow<'a, [u8]>,
    /// The create contexts.
    pub contexts: Vec<Context<'a>>,
}

impl<'a> Request<'a> {
    /// Length of the fixed part of the body, in bytes.
    const FIXED: usize = 56;

    /// Parses a message that starts at its header.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        body(message, 57, |i| {
            let (i, (_, oplock_level, impersonation, _)) = (
                le_u8("SecurityFlags"),
                le_u8("RequestedOplockLevel"),
                le_u32("ImpersonationLevel"),
                take(16, "SmbCreateFlags"),
            )
                .parse(i)?;
            let (name_place, (access, attributes, share, disposition, options)) = (
                le_u32("DesiredAccess"),
                le_u32("FileAttributes"),
                le_u32("ShareAccess"),
                le_u32("CreateDisposition"),
                le_u32("CreateOptions"),
            )
                .parse(i)?;
            let (place, (name_at, name_len)) = shorts("Name")(name_place)?;
            let (i, named) = longs("CreateContexts")(place)?;
            // MS-SMB2 section 3.3.5.9: the name must follow the fixed part and have whole characters.
            let is_inside = name_at >= HEADER_LEN + Self::FIXED;
            if !name_len.is_multiple_of(2) || name_len != 0 && !is_inside {
                return Err(reject("Name", Rule::Value, name_place));
            }
            let is_behind = named.0 >= HEADER_LEN + Self::FIXED && named.0.is_multiple_of(8);
            if named.1 != 0 && !is_behind {
                return Err(reject("CreateContextsOffset", Rule::Value, place));
            }
            let name = range(message, (name_at, name_len), "Name", name_place)?.into();
            let contexts = contexts(message, named, place)?;
            let value = Self {
                oplock_level,
                impersonation,
                access,
                attributes,
                share,
                disposition,
                options,
                name,
                contexts,
            };
            Ok((i, value))
        })
    }

    /// Serializes the body. The name has at most 65,535 bytes.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::FIXED + self.name.len() + 8);
        out.extend(57_u16.to_le_bytes());
        out.extend([0, self.oplock_level]);
        out.extend(self.impersonation.to_le_bytes());
        out.extend([0; 16]);
        for word in [self.access, self.attributes, self.share, self.disposition, self.options] {
            out.extend(word.to_le_bytes());
        }
        out.extend(u16::try_from(HEADER_LEN + Self::FIXED).unwrap_or(0).to_le_bytes());
        out.extend(u16::try_from(self.name.len()).unwrap_or(0).to_le_bytes());
        let contexts_at = Self::FIXED + self.name.len().next_multiple_of(8);
        let fields = out.len();
        out.extend([0; 8]);
        out.extend_from_slice(&self.name);
        // The structure has at least one byte of buffer.
        out.resize(out.len().max(Self::FIXED + 1), 0);
        if !self.contexts.is_empty() {
            out.resize(contexts_at.max(Self::FIXED + 8), 0);
            finish_contexts(&mut out, fields, &self.contexts);
        }
        out
    }
}

/// Appends the contexts and writes their offset and length to the two fields at `fields`.
fn finish_contexts(out: &mut Vec<u8>, fields: usize, contexts: &[Context<'_>]) {
    let at = out.len();
    put_contexts(out, contexts);
    let word = |n: usize| u32::try_from(n).unwrap_or(0).to_le_bytes();
    let len = out.len() - at;
    out[fields..fields + 4].copy_from_slice(&word(HEADER_LEN + at));
    out[fields + 4..fields + 8].copy_from_slice(&word(len));
}

/// A CREATE response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response<'a> {
    /// One of [`oplock`].
    pub oplock_level: u8,
    /// SMB2_CREATE_FLAG_REPARSEPOINT
    pub flags: u8,
    /// One of [`action`].
    pub action: u32,
    /// The file's attributes.
    pub basics: Basics,
    /// The open file.
    pub file: FileId,
    /// Its contexts.
    pub contexts: Vec<Context<'a>>,
}

impl<'a> Response<'a> {
    /// Length of the fixed part of the body in bytes: a multiple of 8.
    const FIXED: usize = 88;

    /// Parses a message that starts at its header.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        body(message, 89, |i| {
            let (i, (oplock_level, flags, action)) =
                (le_u8("OplockLevel"), le_u8("Flags"), le_u32("CreateAction")).parse(i)?;
            let (place, (basics, _, file)) =
                (Basics::parse, le_u32("Reserved2"), FileId::parse).parse(i)?;
            let (i, named) = longs("CreateContexts")(place)?;
            let contexts = contexts(message, named, place)?;
            Ok((i, Self { oplock_level, flags, action, basics, file, contexts }))
        })
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::FIXED + 64 * self.contexts.len());
        out.extend(89_u16.to_le_bytes());
        out.extend([self.oplock_level, self.flags]);
        out.extend(self.action.to_le_bytes());
        self.basics.emit(&mut out);
        out.extend([0; 4]);
        out.extend(self.file.emit());
        let fields = out.len();
        out.extend([0; 8]);
        if !self.contexts.is_empty() {
            finish_contexts(&mut out, fields, &self.contexts);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::smb2::test_harness::{message, named};
    use crate::smb2::{Command, put_utf16};

    fn some(name: &str, contexts: Vec<Context<'static>>) -> Request<'static> {
        let mut utf16 = Vec::new();
        put_utf16(&mut utf16, name);
        Request {
            oplock_level: oplock::BATCH,
            impersonation: 2,
            access: access::MAXIMUM_ALLOWED,
            attributes: 0x80,
            share: share::READ | share::WRITE,
            disposition: Disposition::OpenIf as u32,
            options: option::NON_DIRECTORY_FILE,
            name: utf16.into(),
            contexts,
        }
    }

    #[test]
    fn requests_round_trip() {
        let contexts = || {
            vec![
                Context::new(b"MxAc", vec![]),
                Context::new(b"RqLs", vec![7; 32]),
                Context::new(b"0123456789abcdef", vec![1, 2, 3]),
            ]
        };
        for name in ["", "a", "ab", "abcd", "dir\\file.txt", "name:stream"] {
            for r in [some(name, vec![]), some(name, contexts())] {
                let m = message(Command::Create, &r.emit());
                assert!(m.len() >= 64 + 57);
                assert_eq!(Request::parse(&m), Ok(r), "{name}");
            }
        }
    }

    #[test]
    fn responses_round_trip() {
        let r = Response {
            oplock_level: oplock::LEASE,
            flags: 0,
            action: action::CREATED,
            basics: Basics { times: [1, 2, 3, 4], attributes: 0x20, ..Basics::default() },
            file: FileId { persistent: 1, volatile: 2 },
            contexts: vec![Context::new(b"MxAc", vec![0; 8]), Context::new(b"QFid", vec![1; 32])],
        };
        assert_eq!(Response::parse(&message(Command::Create, &r.emit())), Ok(r.clone()));
        let bare = Response { contexts: vec![], ..r };
        let body = bare.emit();
        assert_eq!(body.len(), 88);
        assert_eq!(Response::parse(&message(Command::Create, &body)), Ok(bare));
    }

    /// Contexts with an empty name, or with an offset into their own fixed part, outside the chain, or backwards.
    #[test]
    fn malformed_chains_are_refused() {
        let good =
            some("x", vec![Context::new(b"AAAA", vec![9; 8]), Context::new(b"BBBB", vec![])]);
        let m = message(Command::Create, &good.emit());
        let at = 64 + 64;
        assert_eq!(m[at..at + 4], [32, 0, 0, 0], "the first context is here");
        for (field, value) in [
            (0, 12_u8), // Next: unaligned
            (0, 8),     // Next: into itself
            (0, 248),   // Next: outside
            (4, 8),     // NameOffset: into the fixed part
            (6, 3),     // NameLength: too short
            (6, 40),    // NameLength: outside
            (10, 17),   // DataOffset: into the name
            (12, 9),    // DataLength: into the next one
        ] {
            let mut bad = m.clone();
            bad[at + field] = value;
            assert!(Request::parse(&bad).is_err(), "{field}: {value}");
        }
        let mut bad = m;
        bad[64 + 48] += 4;
        assert_eq!(named(Request::parse(&bad)), Err("CreateContextsOffset"));
    }

    #[test]
    fn number_of_contexts_is_limited() {
        let many = |n| some("x", vec![Context::new(b"AAAA", vec![]); n]);
        assert!(Request::parse(&message(Command::Create, &many(CONTEXTS_MAX).emit())).is_ok());
        let m = message(Command::Create, &many(CONTEXTS_MAX + 1).emit());
        assert_eq!(named(Request::parse(&m)), Err("CreateContexts"));
    }

    #[test]
    fn name_outside_message_is_refused() {
        let m = message(Command::Create, &some("abc", vec![]).emit());
        assert_eq!(named(Request::parse(&m[..m.len() - 1])), Err("Name"));
        // NameOffset, and the length after it.
        for (field, value) in [(44, 112), (46, 5)] {
            let mut bad = m.clone();
            bad[64 + field] = value;
            assert_eq!(named(Request::parse(&bad)), Err("Name"), "{field}");
        }
        for cut in 64..64 + 56 {
            assert!(Request::parse(&m[..cut]).is_err());
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(
            body in proptest::collection::vec(any::<u8>(), 0..200),
            flip in any::<prop::sample::Index>(),
            bit in 0..8_u8,
        ) {
            let m = message(Command::Create, &body);
            let _ = Request::parse(&m).is_ok();
            let _ = Response::parse(&m).is_ok();
            let mut near = message(
                Command::Create,
                &some("dir\\x", vec![Context::new(b"MxAc", vec![]), Context::new(b"RqLs", body)])
                    .emit(),
            );
            let i = 64 + flip.index(near.len() - 64);
            near[i] ^= 1 << bit;
            let _ = Request::parse(&near).is_ok();
        }
    }
}
