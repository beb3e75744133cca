//! Reparse points (MS-FSCC section 2.1.2): the buffer around the data of any tag, and the data of links, junctions and the special
//! files of Linux (sections 2.1.2.4 to 2.1.2.6).
//!
//! *Errors.* The statuses with which Windows refuses a buffer, in its order (MS-FSCC sections 2.3.6 and 2.3.82, MS-FSA sections
//! 2.1.5.10.3 and 2.1.5.10.37).

use wire::{Parser, le_u16, le_u32, le_u64, take};

use super::{Parsed, put_utf16};
use crate::NtStatus;
use crate::parse::{range, text, whole};

/// IO_REPARSE_TAG_SYMLINK
pub const TAG_SYMLINK: u32 = 0xa000_000c;
/// IO_REPARSE_TAG_NFS
pub const TAG_NFS: u32 = 0x8000_0014;
/// IO_REPARSE_TAG_MOUNT_POINT, the tag of a junction.
pub const TAG_MOUNT_POINT: u32 = 0xa000_0003;
/// IO_REPARSE_TAG_LX_SYMLINK
pub const TAG_LX_SYMLINK: u32 = 0xa000_001d;
/// IO_REPARSE_TAG_RESERVED_TWO: this tag and the lower ones belong to no reparse point.
const TAG_RESERVED: u32 = 2;
/// Bits of a tag that may be set.
const TAG_BITS: u32 = 0xf000_ffff;
/// Set in the tags of Microsoft, which identify the owner without a GUID.
const TAG_OF_MICROSOFT: u32 = 0x8000_0000;

/// SYMLINK_FLAG_RELATIVE
pub const RELATIVE: u32 = 1;
/// Length of REPARSE_DATA_BUFFER without its data, in bytes.
const HEAD: usize = 8;
/// Length of REPARSE_GUID_DATA_BUFFER without its data, in bytes.
const GUID_HEAD: usize = 24;
/// Largest buffer in bytes, with its head (MAXIMUM_REPARSE_DATA_BUFFER_SIZE).
const BUFFER_MAX: usize = 16 << 10;
/// Version of the data of [`TAG_LX_SYMLINK`].
const LX_VERSION: u32 = 2;

/// `Type` of the NFS tag: eight characters.
const NFS_LINK: u64 = u64::from_le_bytes(*b"LNK\x01\0\0\0\0");
const NFS_CHAR: u64 = u64::from_le_bytes(*b"CHR\0\0\0\0\0");
const NFS_BLOCK: u64 = u64::from_le_bytes(*b"BLK\0\0\0\0\0");
const NFS_FIFO: u64 = u64::from_le_bytes(*b"FIFO\0\0\0\0");
const NFS_SOCKET: u64 = u64::from_le_bytes(*b"SOCK\0\0\0\0");

/// A reparse point of any tag: REPARSE_DATA_BUFFER, or REPARSE_GUID_DATA_BUFFER if the tag is not one of Microsoft's (MS-FSCC
/// sections 2.1.2.2 and 2.1.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer<'a> {
    /// Owner of the reparse point.
    pub tag: u32,
    /// The owner's GUID; `None` for a tag of Microsoft.
    pub guid: Option<[u8; 16]>,
    /// The owner's data.
    pub data: &'a [u8],
}

impl<'a> Buffer<'a> {
    /// Parses the input of FSCTL_SET_REPARSE_POINT.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, NtStatus> {
        if bytes.len() > BUFFER_MAX {
            return Err(NtStatus::IO_REPARSE_DATA_INVALID);
        }
        let buffer = Self::of_any_length(bytes)?;
        if !is_valid(buffer.tag) {
            return Err(NtStatus::IO_REPARSE_TAG_INVALID);
        }
        let has_guid = bytes.len() != HEAD + buffer.data.len();
        if matches!(buffer.tag, TAG_SYMLINK | TAG_MOUNT_POINT) && has_guid {
            return Err(NtStatus::IO_REPARSE_DATA_INVALID);
        }
        Ok(buffer)
    }

    /// Parses the input of FSCTL_DELETE_REPARSE_POINT, which has no data.
    pub fn parse_without_data(bytes: &'a [u8]) -> Result<Self, NtStatus> {
        if ![HEAD, GUID_HEAD].contains(&bytes.len()) {
            return Err(NtStatus::IO_REPARSE_DATA_INVALID);
        }
        let tag = whole(bytes, le_u32("ReparseTag"));
        if !tag.is_ok_and(is_valid) {
            return Err(NtStatus::IO_REPARSE_TAG_INVALID);
        }
        let buffer = Self::of_any_length(bytes)?;
        if buffer.data.is_empty() { Ok(buffer) } else { Err(NtStatus::IO_REPARSE_DATA_INVALID) }
    }

    /// Parses a buffer whose length tells whether it has a GUID. The buffer of a link of the host may be longer than clients may
    /// set.
    ///
    /// # Errors
    /// IO_REPARSE_DATA_INVALID.
    pub fn of_any_length(bytes: &'a [u8]) -> Result<Self, NtStatus> {
        let invalid = NtStatus::IO_REPARSE_DATA_INVALID;
        let head = whole(bytes, |i| {
            let head = (le_u32("ReparseTag"), le_u16("ReparseDataLength"), le_u16("Reserved"));
            head.map(|(tag, len, _)| (tag, usize::from(len))).parse(i)
        });
        let (tag, len) = head.map_err(|_| invalid)?;
        let at = bytes.len().checked_sub(len).ok_or(invalid)?;
        let guid = match at {
            HEAD => None,
            GUID_HEAD => bytes.get(HEAD..).and_then(|rest| rest.first_chunk().copied()),
            _ => return Err(invalid),
        };
        let is_of_microsoft = tag & TAG_OF_MICROSOFT != 0;
        let guid = match guid {
            Some(guid) if !is_of_microsoft && guid != [0; 16] => Some(guid),
            _ if is_of_microsoft => None,
            _ => return Err(invalid),
        };
        Ok(Self { tag, guid, data: bytes.get(at..).unwrap_or_default() })
    }

    /// Returns the length before the data, in bytes.
    pub fn head_len(&self) -> usize {
        if self.guid.is_some() { GUID_HEAD } else { HEAD }
    }

    /// Serializes it, as FSCTL_GET_REPARSE_POINT returns it.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.head_len() + self.data.len());
        out.extend(self.tag.to_le_bytes());
        out.extend(u16::try_from(self.data.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend([0; 2]);
        out.extend(self.guid.iter().flatten());
        out.extend(self.data);
        out
    }

    /// Checks that this buffer may change a reparse point of the same owner.
    pub fn check_owner(&self, there: &Buffer<'_>) -> Result<(), NtStatus> {
        if self.tag != there.tag {
            return Err(NtStatus::IO_REPARSE_TAG_MISMATCH);
        }
        if self.guid == there.guid { Ok(()) } else { Err(NtStatus::REPARSE_ATTRIBUTE_CONFLICT) }
    }
}

/// Checks that a tag is neither reserved nor has a reserved bit.
fn is_valid(tag: u32) -> bool {
    tag & !TAG_BITS == 0 && tag > TAG_RESERVED
}

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
    /// A junction: the absolute path of a folder.
    MountPoint(String),
    /// A symbolic link of the Windows Subsystem for Linux; names are separated by `/`.
    LxLink(String),
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
            Ok((i, of_tag(tag, data)?.1))
        })
    }

    /// Parses the data of a tag; `Ok(None)` for an unknown one.
    pub fn parse_data(tag: u32, data: &[u8]) -> Parsed<Option<Self>> {
        whole(data, |data| of_tag(tag, data))
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
            Self::MountPoint(target) => emit_mount_point(target, &mut data),
            Self::LxLink(target) => {
                data.extend(LX_VERSION.to_le_bytes());
                data.extend(target.as_bytes());
            }
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
        let tag = match self {
            Self::Symlink { .. } => TAG_SYMLINK,
            Self::MountPoint(_) => TAG_MOUNT_POINT,
            Self::LxLink(_) => TAG_LX_SYMLINK,
            _ => TAG_NFS,
        };
        Buffer { tag, guid: None, data: &data }.emit()
    }
}

fn of_tag(tag: u32, data: &[u8]) -> wire::Parsed<'_, Option<Reparse>> {
    match tag {
        TAG_SYMLINK => symlink.map(Some).parse(data),
        TAG_MOUNT_POINT => mount_point.map(Some).parse(data),
        TAG_LX_SYMLINK => Ok((&[], lx_link(data))),
        TAG_NFS => nfs(data),
        _ => Ok((data, None)),
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

/// Parses the data of a junction (MS-FSCC section 2.1.2.5): that of a symbolic link without flags.
fn mount_point(data: &[u8]) -> wire::Parsed<'_, Reparse> {
    let (i, (at, len, print_at, print_len)) = (
        le_u16("SubstituteNameOffset"),
        le_u16("SubstituteNameLength"),
        le_u16("PrintNameOffset"),
        le_u16("PrintNameLength"),
    )
        .parse(data)?;
    let target = range(i, (at.into(), len.into()), "PathBuffer", data)?;
    range(i, (print_at.into(), print_len.into()), "PathBuffer", data)?;
    Ok((&[], Reparse::MountPoint(text(target, "PathBuffer")?)))
}

/// Parses a symbolic link of the Windows Subsystem for Linux: a version and UTF-8. `None` for another version.
fn lx_link(data: &[u8]) -> Option<Reparse> {
    let (version, target) = data.split_first_chunk()?;
    let is_known = u32::from_le_bytes(*version) == LX_VERSION;
    let target = std::str::from_utf8(target).ok().filter(|_| is_known)?;
    Some(Reparse::LxLink(target.to_owned()))
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

/// Writes the path as both names, each with the NUL after it that Windows demands.
fn emit_mount_point(target: &str, data: &mut Vec<u8>) {
    let mut path = Vec::new();
    let len = put_utf16(&mut path, target);
    path.extend([0; 2]);
    put_utf16(&mut path, target);
    path.extend([0; 2]);
    for n in [0, len, len + 2, len] {
        data.extend(u16::try_from(n).unwrap_or(u16::MAX).to_le_bytes());
    }
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
                Reparse::MountPoint(target.clone()),
                Reparse::LxLink(target.clone()),
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
            let _ = Buffer::parse(&data);
            let _ = Buffer::parse_without_data(&data);
            for tag in [TAG_SYMLINK, TAG_NFS, TAG_MOUNT_POINT, TAG_LX_SYMLINK, 1] {
                let mut bytes = tag.to_le_bytes().to_vec();
                bytes.extend(u16::try_from(data.len()).unwrap().to_le_bytes());
                bytes.extend([0; 2]);
                bytes.extend(&data);
                let _ = Reparse::parse(&bytes);
            }
        }

        #[test]
        fn buffers_of_all_owners_round_trip(
            tag in 3_u32..=0xffff,
            flags in 0_u32..16,
            guid in any::<[u8; 16]>().prop_filter("not zero", |guid| *guid != [0; 16]),
            data in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let tag = tag | flags << 28;
            prop_assume!(tag != TAG_SYMLINK && tag != TAG_MOUNT_POINT);
            let guid = Some(guid).filter(|_| tag & TAG_OF_MICROSOFT == 0);
            let buffer = Buffer { tag, guid, data: &data };
            let bytes = buffer.emit();
            prop_assert_eq!(bytes.len(), buffer.head_len() + data.len());
            prop_assert_eq!(Buffer::parse(&bytes), Ok(buffer));
            let none = Buffer { data: &[], ..buffer };
            let bytes = none.emit();
            prop_assert_eq!(Buffer::parse_without_data(&bytes), Ok(none));
        }
    }

    /// A tag of Microsoft in REPARSE_GUID_DATA_BUFFER is returned in the form that belongs to it (MS-FSA section 2.1.5.10.14).
    #[test]
    fn guid_of_a_tag_of_microsoft_is_dropped() {
        let bytes = [&[0x13, 0, 0, 0x80, 2, 0, 0, 0][..], &[5; 16], &[1, 2]].concat();
        let buffer = Buffer::parse(&bytes).unwrap();
        assert_eq!((buffer.guid, buffer.data), (None, &[1, 2][..]));
        let link = [&TAG_SYMLINK.to_le_bytes()[..], &[2, 0, 0, 0], &[5; 16], &[1, 2]].concat();
        assert_eq!(Buffer::parse(&link), Err(NtStatus::IO_REPARSE_DATA_INVALID));
    }
}
