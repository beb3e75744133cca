//! Changes of a file by SET_INFO (MS-FSCC section 2.4), parsed from the request's buffer.
//!
//! *Errors.* A buffer shorter than its class fails with `STATUS_INFO_LENGTH_MISMATCH` (MS-SMB2 section 3.3.5.21.1), invalid
//! contents with `STATUS_INVALID_PARAMETER`.

use wire::{Parser, le_u8, le_u32, le_u64, take};

use super::file::Basic;
use crate::NtStatus;
use crate::parse::{put_utf16, size, utf16, whole};

/// Flags of FileDispositionInformationEx (MS-FSCC section 2.4.12).
#[allow(missing_docs)] // The names are the specification's.
pub mod disposition {
    pub const DELETE: u32 = 0x1;
    pub const POSIX_SEMANTICS: u32 = 0x2;
    pub const FORCE_IMAGE_SECTION_CHECK: u32 = 0x4;
    pub const ON_CLOSE: u32 = 0x8;
    pub const IGNORE_READONLY_ATTRIBUTE: u32 = 0x10;
    /// All variants.
    pub const ALL: u32 = 0x1f;
}

/// Flags of FileRenameInformationEx (MS-FSCC section 2.4.43).
#[allow(missing_docs)] // The names are the specification's.
pub mod rename {
    pub const REPLACE_IF_EXISTS: u32 = 0x1;
    pub const POSIX_SEMANTICS: u32 = 0x2;
    pub const IGNORE_READONLY_ATTRIBUTE: u32 = 0x40;
}

/// The new name of a rename or link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewName {
    /// Flags of [`rename`].
    pub flags: u32,
    /// Must be 0 over a network.
    pub root: u64,
    /// Path from the share's root, or `:stream`.
    pub name: String,
}

/// A change requested by SET_INFO.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the specification's.
pub enum Set {
    Basic(Basic),
    Rename(NewName),
    Link(NewName),
    /// Flags of [`disposition`]; `ex` if the client sent flags rather than a boolean.
    Disposition {
        flags: u32,
        ex: bool,
    },
    Position(u64),
    /// A list of extended attributes, not parsed yet.
    FullEa(Vec<u8>),
    Mode(u32),
    Allocation(u64),
    EndOfFile(u64),
    ValidDataLength(u64),
    ShortName(String),
}

/// Length before the name in the SMB2 form, in bytes (MS-FSCC section 2.4.42.2).
const NAME_FIXED: usize = 20;

impl NewName {
    fn parse(b: &[u8], ex: bool) -> Result<Self, NtStatus> {
        if b.len() < NAME_FIXED {
            return Err(NtStatus::INFO_LENGTH_MISMATCH);
        }
        let (flags, root, name) = whole(b, |i| {
            let (i, (flags, _, root, len)) = (
                le_u32("Flags"),
                le_u32("Reserved"),
                le_u64("RootDirectory"),
                le_u32("FileNameLength"),
            )
                .parse(i)?;
            let (i, name) = take(size(len), "FileName")(i)?;
            Ok((i, (flags, root, name)))
        })?;
        let flags = if ex { flags } else { u32::from(flags & 0xff != 0) };
        // MS-FSA section 2.1.5.15.12: whole characters inside the buffer, relative to the root of the share.
        if name.is_empty() || !name.len().is_multiple_of(2) || root != 0 {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let name = utf16(name).ok_or(NtStatus::OBJECT_NAME_INVALID)?;
        Ok(Self { flags, root, name })
    }

    fn emit(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.flags.to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.root.to_le_bytes());
        out.extend([0; 4]);
        let len = put_utf16(&mut out, &self.name);
        out[16..20].copy_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
        // Windows rejects a buffer that is shorter than its own structure.
        out.resize(out.len().max(24), 0);
        out
    }
}

impl Set {
    /// Parses the buffer of a class.
    pub fn parse(class: u8, b: &[u8]) -> Result<Self, NtStatus> {
        let short = |_| NtStatus::INFO_LENGTH_MISMATCH;
        let word = || whole(b, le_u32("Flags")).map_err(short);
        let long = || whole(b, le_u64("Length")).map_err(short);
        // Lengths are signed on the wire.
        let length = || match long()? {
            n if n > i64::MAX.cast_unsigned() => Err(NtStatus::INVALID_PARAMETER),
            n => Ok(n),
        };
        Ok(match class {
            4 => Self::Basic(Basic::parse(b).map_err(short)?),
            10 => Self::Rename(NewName::parse(b, false)?),
            11 => Self::Link(NewName::parse(b, false)?),
            13 => {
                let delete = whole(b, le_u8("DeletePending")).map_err(short)?;
                Self::Disposition { flags: u32::from(delete != 0), ex: false }
            }
            14 => Self::Position(length()?),
            15 => Self::FullEa(b.to_vec()),
            16 => Self::Mode(word()?),
            19 => Self::Allocation(length()?),
            20 => Self::EndOfFile(length()?),
            39 => Self::ValidDataLength(length()?),
            40 => {
                let name = whole(b, |i| {
                    let (i, len) = le_u32("FileNameLength")(i)?;
                    take(size(len), "FileName")(i)
                });
                let name = name.map_err(short)?;
                Self::ShortName(utf16(name).ok_or(NtStatus::INVALID_PARAMETER)?)
            }
            64 => Self::Disposition { flags: word()?, ex: true },
            65 => Self::Rename(NewName::parse(b, true)?),
            72 => Self::Link(NewName::parse(b, true)?),
            // Windows supports the other classes; quotas use a separate type (MS-SMB2 section 3.3.5.21.1 and its note).
            29 | 30 | 32 | 41 | 42 | 43 | 44 => return Err(NtStatus::NOT_SUPPORTED),
            // These classes can only be queried, or are unknown.
            _ => return Err(NtStatus::INVALID_INFO_CLASS),
        })
    }

    /// Returns the class and the buffer, as the client sends them.
    pub fn emit(&self) -> (u8, Vec<u8>) {
        match self {
            Self::Basic(b) => (4, b.emit()),
            Self::Rename(n) if n.flags <= 1 => (10, n.emit()),
            Self::Rename(n) => (65, n.emit()),
            Self::Link(n) if n.flags <= 1 => (11, n.emit()),
            Self::Link(n) => (72, n.emit()),
            Self::Disposition { flags, ex: false } => (13, vec![u8::from(*flags != 0)]),
            Self::Disposition { flags, ex: true } => (64, flags.to_le_bytes().to_vec()),
            Self::Position(n) => (14, n.to_le_bytes().to_vec()),
            Self::FullEa(list) => (15, list.clone()),
            Self::Mode(mode) => (16, mode.to_le_bytes().to_vec()),
            Self::Allocation(n) => (19, n.to_le_bytes().to_vec()),
            Self::EndOfFile(n) => (20, n.to_le_bytes().to_vec()),
            Self::ValidDataLength(n) => (39, n.to_le_bytes().to_vec()),
            Self::ShortName(name) => {
                let mut out = vec![0; 4];
                let len = put_utf16(&mut out, name);
                out[..4].copy_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
                (40, out)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtyp::FileTime;
    use proptest::prelude::*;

    fn any_set() -> impl Strategy<Value = Set> {
        let size = 0..=i64::MAX.cast_unsigned();
        let name = ("[a-z\\\\:é]{1,12}", prop_oneof![0..2_u32, Just(3_u32), Just(0x41)]);
        let name = name.prop_map(|(name, flags)| NewName { flags, root: 0, name });
        prop_oneof![
            (any::<[u64; 4]>(), any::<u32>()).prop_map(|(t, attributes)| Set::Basic(Basic {
                creation: FileTime(t[0]),
                last_access: FileTime(t[1]),
                last_write: FileTime(t[2]),
                change: FileTime(t[3]),
                attributes,
            })),
            name.clone().prop_map(Set::Rename),
            name.prop_map(Set::Link),
            (0..2_u32).prop_map(|flags| Set::Disposition { flags, ex: false }),
            any::<u32>().prop_map(|flags| Set::Disposition { flags, ex: true }),
            size.clone().prop_map(Set::Position),
            size.clone().prop_map(Set::Allocation),
            size.clone().prop_map(Set::EndOfFile),
            size.prop_map(Set::ValidDataLength),
            any::<u32>().prop_map(Set::Mode),
            "[A-Z]{0,8}".prop_map(Set::ShortName),
        ]
    }

    #[test]
    fn malformed_buffers_are_refused() {
        use NtStatus as S;
        for class in [4, 10, 11, 13, 14, 16, 19, 20, 39, 40, 64, 65, 72] {
            assert_eq!(Set::parse(class, &[]), Err(S::INFO_LENGTH_MISMATCH), "{class}");
        }
        for class in [0, 5, 6, 18, 34, 255] {
            assert_eq!(Set::parse(class, &[0; 64]), Err(S::INVALID_INFO_CLASS), "{class}");
        }
        assert_eq!(Set::parse(20, &[0xff; 8]), Err(S::INVALID_PARAMETER), "a negative size");
        let mut name = [0; 24];
        assert_eq!(Set::parse(10, &name), Err(S::INVALID_PARAMETER), "no name");
        name[16] = 5;
        assert_eq!(Set::parse(10, &name), Err(S::INVALID_PARAMETER), "beyond the end");
        name[16] = 3;
        assert_eq!(Set::parse(10, &name), Err(S::INVALID_PARAMETER), "half a character");
        name[16] = 4;
        name[8] = 1;
        assert_eq!(Set::parse(10, &name), Err(S::INVALID_PARAMETER), "relative to a handle");
        assert_eq!(Set::parse(40, &[0xff; 8]), Err(S::INFO_LENGTH_MISMATCH));
    }

    proptest! {
        #[test]
        fn every_class_round_trips(set in any_set()) {
            let (class, bytes) = set.emit();
            prop_assert_eq!(Set::parse(class, &bytes).unwrap(), set);
        }

        #[test]
        fn arbitrary_bytes_never_panic(class: u8, bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Set::parse(class, &bytes);
        }
    }
}
