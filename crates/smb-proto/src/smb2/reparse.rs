//! Reparse data: symbolic links and the special files of Linux (MS-FSCC sections 2.1.2.2, 2.1.2.4 and 2.1.2.6).

use wire::{Parser, le_u16, le_u32, le_u64, take};

use super::{Parsed, put_utf16};
use crate::parse::{range, text, whole};

/// IO_REPARSE_TAG_SYMLINK
pub const TAG_SYMLINK: u32 = 0xa000_000c;
/// IO_REPARSE_TAG_NFS
pub const TAG_NFS: u32 = 0x8000_0014;

/// SYMLINK_FLAG_RELATIVE
pub const RELATIVE: u32 = 1;
/// Length before the data of every tag, in bytes.
const HEAD: usize = 8;

/// `Type` of the NFS tag: eight characters.
const NFS_LINK: u64 = u64::from_le_bytes(*b"LNK\x01\0\0\0\0");
const NFS_CHAR: u64 = u64::from_le_bytes(*b"CHR\0\0\0\0\0");
const NFS_BLOCK: u64 = u64::from_le_bytes(*b"BLK\0\0\0\0\0");
const NFS_FIFO: u64 = u64::from_le_bytes(*b"FIFO\0\0\0\0");
const NFS_SOCKET: u64 = u64::from_le_bytes(*b"SOCK\0\0\0\0");

/// The contents of a reparse point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reparse {
    /// A Windows symbolic link; names are separated by `\`.
    Symlink {
        /// Target of the link.
        target: String,
        /// The target is relative to the link's directory.
        relative: bool,
    },
    /// A POSIX symbolic link; names are separated by `/`.
    NfsLink(String),
    /// A character device: major and minor number.
    NfsChar(u32, u32),
    /// A block device.
    NfsBlock(u32, u32),
    /// A named pipe.
    NfsFifo,
    /// A socket.
    NfsSocket,
}

impl Reparse {
    /// Parses reparse data; `Ok(None)` for an unknown tag.
    pub fn parse(bytes: &[u8]) -> Parsed<Option<Self>> {
        whole(bytes, |i| {
            let (i, (tag, len, _)) =
                (le_u32("ReparseTag"), le_u16("ReparseDataLength"), le_u16("Reserved")).parse(i)?;
            let (i, data) = take(len.into(), "DataBuffer")(i)?;
            let value = match tag {
                TAG_SYMLINK => Some(symlink(data)?.1),
                TAG_NFS => nfs(data)?.1,
                _ => None,
            };
            Ok((i, value))
        })
    }

    /// Parses the tag of reparse data; DELETE_REPARSE_POINT contains only the tag.
    pub fn tag(bytes: &[u8]) -> Parsed<u32> {
        whole(bytes, le_u32("ReparseTag"))
    }

    /// Serializes one.
    pub fn emit(&self) -> Vec<u8> {
        let mut data = Vec::new();
        let nfs = |kind: u64, data: &mut Vec<u8>| data.extend(kind.to_le_bytes());
        match self {
            Self::Symlink { target, relative } => emit_symlink(target, *relative, &mut data),
            Self::NfsLink(target) => {
                nfs(NFS_LINK, &mut data);
                put_utf16(&mut data, target);
            }
            Self::NfsChar(major, minor) | Self::NfsBlock(major, minor) => {
                let char = matches!(self, Self::NfsChar(..));
                nfs(if char { NFS_CHAR } else { NFS_BLOCK }, &mut data);
                data.extend(major.to_le_bytes());
                data.extend(minor.to_le_bytes());
            }
            Self::NfsFifo => nfs(NFS_FIFO, &mut data),
            Self::NfsSocket => nfs(NFS_SOCKET, &mut data),
        }
        let tag = if matches!(self, Self::Symlink { .. }) { TAG_SYMLINK } else { TAG_NFS };
        let mut out = Vec::with_capacity(HEAD + data.len());
        out.extend(tag.to_le_bytes());
        out.extend(u16::try_from(data.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend([0; 2]);
        out.extend(data);
        out
    }
}

/// Parses the fields after the head of a symbolic link in a reparse point or an error response: the substitute name and the flags.
pub(super) fn substitute_name(place: &[u8]) -> wire::Parsed<'_, (String, u32)> {
    let (i, (at, len, _, flags)) = (
        le_u16("SubstituteNameOffset"),
        le_u16("SubstituteNameLength"),
        le_u32("PrintName"),
        le_u32("Flags"),
    )
        .parse(place)?;
    let target = range(i, (at.into(), len.into()), "PathBuffer", place)?;
    Ok((&[], (text(target, "PathBuffer")?, flags)))
}

fn symlink(data: &[u8]) -> wire::Parsed<'_, Reparse> {
    let link = |(target, flags)| Reparse::Symlink { target, relative: flags & RELATIVE != 0 };
    substitute_name.map(link).parse(data)
}

fn nfs(data: &[u8]) -> wire::Parsed<'_, Option<Reparse>> {
    let (i, kind) = le_u64("Type")(data)?;
    let device = (le_u32("Major"), le_u32("Minor"));
    let (i, special) = match kind {
        NFS_LINK => (&[][..], Reparse::NfsLink(text(i, "DataBuffer")?)),
        NFS_CHAR => device.map(|(major, minor)| Reparse::NfsChar(major, minor)).parse(i)?,
        NFS_BLOCK => device.map(|(major, minor)| Reparse::NfsBlock(major, minor)).parse(i)?,
        NFS_FIFO => (i, Reparse::NfsFifo),
        NFS_SOCKET => (i, Reparse::NfsSocket),
        _ => return Ok((i, None)),
    };
    Ok((i, Some(special)))
}

/// Substitute name and print name are equal, so both are written.
fn emit_symlink(target: &str, relative: bool, data: &mut Vec<u8>) {
    let mut path = Vec::new();
    let len = u16::try_from(put_utf16(&mut path, target)).unwrap_or(u16::MAX);
    put_utf16(&mut path, target);
    for n in [0, len, len, len] {
        data.extend(n.to_le_bytes());
    }
    data.extend(if relative { RELATIVE } else { 0 }.to_le_bytes());
    data.extend(path);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn all_values_round_trip(target in "\\PC{1,20}", relative: bool, dev: (u32, u32)) {
            for r in [
                Reparse::Symlink { target: target.clone(), relative },
                Reparse::NfsLink(target),
                Reparse::NfsChar(dev.0, dev.1),
                Reparse::NfsBlock(dev.0, dev.1),
                Reparse::NfsFifo,
                Reparse::NfsSocket,
            ] {
                let bytes = r.emit();
                prop_assert!(Reparse::parse(&bytes[..bytes.len() - 1]).is_err());
                prop_assert_eq!(Reparse::parse(&bytes), Ok(Some(r)));
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(data in prop::collection::vec(any::<u8>(), 0..60)) {
            for tag in [TAG_SYMLINK, TAG_NFS, 1] {
                let mut bytes = tag.to_le_bytes().to_vec();
                bytes.extend(u16::try_from(data.len()).unwrap().to_le_bytes());
                bytes.extend([0; 2]);
                bytes.extend(&data);
                let _ = Reparse::parse(&bytes);
            }
        }
    }
}
