//! Directory entries in QUERY_DIRECTORY responses (MS-FSCC section 2.4, and level 100 of the POSIX extensions).

use wire::{Parser, le_u32, le_u64, take};

use super::file::FileInfo;
use super::{attribute, mac};
use crate::NtStatus;
use crate::dtyp::{FileTime, Sid};
use crate::parse::{Parsed, put_utf16, size, text, whole};

/// An information level of directory entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The names are the specification's.
pub enum Level {
    Directory,
    FullDirectory,
    BothDirectory,
    Names,
    IdBothDirectory,
    IdFullDirectory,
    IdExtdDirectory,
    Id64ExtdDirectory,
    Id64ExtdBothDirectory,
    IdAllExtdDirectory,
    IdAllExtdBothDirectory,
    Posix,
}

impl Level {
    /// All variants.
    pub const ALL: [Self; 12] = [
        Self::Directory,
        Self::FullDirectory,
        Self::BothDirectory,
        Self::Names,
        Self::IdBothDirectory,
        Self::IdFullDirectory,
        Self::IdExtdDirectory,
        Self::Id64ExtdDirectory,
        Self::Id64ExtdBothDirectory,
        Self::IdAllExtdDirectory,
        Self::IdAllExtdBothDirectory,
        Self::Posix,
    ];

    /// Returns the number on the wire.
    pub fn number(self) -> u8 {
        match self {
            Self::Directory => 1,
            Self::FullDirectory => 2,
            Self::BothDirectory => 3,
            Self::Names => 12,
            Self::IdBothDirectory => 37,
            Self::IdFullDirectory => 38,
            Self::IdExtdDirectory => 60,
            Self::Id64ExtdDirectory => 78,
            Self::Id64ExtdBothDirectory => 79,
            Self::IdAllExtdDirectory => 80,
            Self::IdAllExtdBothDirectory => 81,
            Self::Posix => 100,
        }
    }

    /// Returns the level with this number.
    pub fn from_number(n: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|l| l.number() == n)
    }

    /// Returns the length before the name, in bytes; for [`Level::Posix`], before the owner.
    pub fn fixed_len(self) -> usize {
        match self {
            Self::Directory => 64,
            Self::FullDirectory => 68,
            Self::BothDirectory => 94,
            Self::Names => 12,
            Self::IdBothDirectory => 104,
            Self::IdFullDirectory => 80,
            Self::IdExtdDirectory => 88,
            Self::Id64ExtdDirectory => 80,
            Self::Id64ExtdBothDirectory => 106,
            Self::IdAllExtdDirectory => 96,
            Self::IdAllExtdBothDirectory => 122,
            Self::Posix => 88,
        }
    }

    /// Checks whether the entry contains the size of the extended attributes.
    pub fn tells_ea_size(self) -> bool {
        !matches!(self, Self::Directory | Self::Names | Self::Posix)
    }

    /// Serializes an entry with `NextEntryOffset` zero. The level Names uses no facts.
    pub fn entry(self, name: &str, index: u32, facts: &FileInfo) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.fixed_len() + 2 * name.len());
        out.extend([0; 4]);
        out.extend(index.to_le_bytes());
        let units = name.encode_utf16().count() * 2;
        let name_len = u32::try_from(units).unwrap_or(u32::MAX).to_le_bytes();
        if self == Self::Names {
            out.extend(name_len);
            put_utf16(&mut out, name);
            return out;
        }
        let (b, s) = (&facts.basic, &facts.standard);
        for t in [b.creation, b.last_access, b.last_write, b.change] {
            out.extend(t.0.to_le_bytes());
        }
        out.extend(s.end_of_file.to_le_bytes());
        out.extend(s.allocation.to_le_bytes());
        out.extend(b.attributes.to_le_bytes());
        if self == Self::Posix {
            facts.posix.put(facts, &mut out);
            facts.posix.owner.put(&mut out);
            facts.posix.group.put(&mut out);
            out.extend(name_len);
            put_utf16(&mut out, name);
            return out;
        }
        out.extend(name_len);
        self.put_rest(facts, &mut out);
        put_utf16(&mut out, name);
        out
    }

    /// Serializes the fields between the name's length and the name.
    fn put_rest(self, facts: &FileInfo, out: &mut Vec<u8>) {
        // For a reparse point the field contains the tag (MS-FSCC section 2.4.8).
        let ea = if facts.reparse_tag != 0 { facts.reparse_tag } else { facts.ea_size };
        /// ShortNameLength and, after a reserved byte, ShortName, both empty.
        const NO_SHORT_NAME: [u8; 26] = [0; 26];
        match self {
            Self::FullDirectory => out.extend(ea.to_le_bytes()),
            Self::BothDirectory => {
                out.extend(ea.to_le_bytes());
                out.extend(NO_SHORT_NAME);
            }
            Self::IdFullDirectory => {
                out.extend(ea.to_le_bytes());
                out.extend([0; 4]);
                out.extend(facts.file_id.to_le_bytes());
            }
            Self::IdBothDirectory => {
                match &facts.mac {
                    Some(entry) => entry.put(out),
                    None => {
                        out.extend(ea.to_le_bytes());
                        out.extend(NO_SHORT_NAME);
                        out.extend([0; 2]);
                    }
                }
                out.extend(facts.file_id.to_le_bytes());
            }
            Self::IdExtdDirectory
            | Self::Id64ExtdDirectory
            | Self::Id64ExtdBothDirectory
            | Self::IdAllExtdDirectory
            | Self::IdAllExtdBothDirectory => {
                out.extend(facts.ea_size.to_le_bytes());
                out.extend(facts.reparse_tag.to_le_bytes());
                out.extend(facts.file_id.to_le_bytes());
                if matches!(self, Self::IdAllExtdDirectory | Self::IdAllExtdBothDirectory) {
                    out.extend(facts.file_id.to_le_bytes());
                }
                let is_64 = matches!(self, Self::Id64ExtdDirectory | Self::Id64ExtdBothDirectory);
                if !is_64 {
                    // The upper half of the 128-bit number.
                    out.extend([0; 8]);
                }
                if matches!(self, Self::Id64ExtdBothDirectory | Self::IdAllExtdBothDirectory) {
                    out.extend(NO_SHORT_NAME);
                }
            }
            Self::Directory | Self::Names | Self::Posix => {}
        }
    }

    /// Parses the name and facts of an entry, as the client does. Facts that the level lacks are zero.
    pub fn parse(self, entry: &[u8]) -> Parsed<(String, FileInfo)> {
        whole(entry, |i| {
            let (i, _) = (le_u32("NextEntryOffset"), le_u32("FileIndex")).parse(i)?;
            let mut facts = FileInfo::default();
            let mut i = i;
            if self != Self::Names {
                i = parse_basics(i, &mut facts)?.0;
            }
            if self == Self::Posix {
                i = parse_posix(i, &mut facts)?.0;
            }
            let (i, len) = le_u32("FileNameLength")(i)?;
            let (i, ()) = self.parse_rest(i, &mut facts)?;
            let (i, name) = take(size(len), "FileName")(i)?;
            Ok((i, (text(name, "FileName")?, facts)))
        })
    }

    /// Parses an entry of FileIdBothDirectoryInformation as a client does that agreed on READ_DIR_ATTR.
    pub fn parse_for_mac(entry: &[u8]) -> Parsed<(String, FileInfo)> {
        whole(entry, |i| {
            let (i, _) = (le_u32("NextEntryOffset"), le_u32("FileIndex")).parse(i)?;
            let mut facts = FileInfo::default();
            let (i, ()) = parse_basics(i, &mut facts)?;
            let (i, (len, mac, id)) =
                (le_u32("FileNameLength"), mac::Entry::parse, le_u64("FileId")).parse(i)?;
            (facts.mac, facts.file_id) = (Some(mac), id);
            let (i, name) = take(size(len), "FileName")(i)?;
            Ok((i, (text(name, "FileName")?, facts)))
        })
    }

    /// Parses the fields between the name's length and the name.
    fn parse_rest<'a>(self, i: &'a [u8], facts: &mut FileInfo) -> wire::Parsed<'a, ()> {
        const SHORT_NAME: usize = 26;
        if !self.tells_ea_size() {
            return Ok((i, ()));
        }
        let (i, ea) = le_u32("EaSize")(i)?;
        let is_reparse = facts.basic.attributes & attribute::REPARSE_POINT != 0;
        if !is_reparse {
            facts.ea_size = ea;
        }
        let before_id = match self {
            Self::FullDirectory => 0,
            Self::BothDirectory => SHORT_NAME,
            Self::IdBothDirectory => SHORT_NAME + 2,
            // Reserved, or ReparsePointTag.
            _ => 4,
        };
        let (i, _) = take(before_id, "ShortName")(i)?;
        if matches!(self, Self::FullDirectory | Self::BothDirectory) {
            return Ok((i, ()));
        }
        let (i, id) = le_u64("FileId")(i)?;
        facts.file_id = id;
        // The upper half of a 128-bit number, or the whole 128-bit number in addition to the 64-bit one; a short name.
        let more = match self {
            Self::IdExtdDirectory => 8,
            Self::Id64ExtdBothDirectory => SHORT_NAME,
            Self::IdAllExtdDirectory => 16,
            Self::IdAllExtdBothDirectory => 16 + SHORT_NAME,
            _ => 0,
        };
        let (i, _) = take(more, "FileId128")(i)?;
        Ok((i, ()))
    }
}

fn parse_basics<'a>(i: &'a [u8], facts: &mut FileInfo) -> wire::Parsed<'a, ()> {
    let time = |name| le_u64(name).map(FileTime);
    let (i, (creation, last_access, last_write, change)) =
        (time("CreationTime"), time("LastAccessTime"), time("LastWriteTime"), time("ChangeTime"))
            .parse(i)?;
    let (i, (end_of_file, allocation, attributes)) =
        (le_u64("EndOfFile"), le_u64("AllocationSize"), le_u32("FileAttributes")).parse(i)?;
    facts.basic = super::file::Basic { creation, last_access, last_write, change, attributes };
    (facts.standard.end_of_file, facts.standard.allocation) = (end_of_file, allocation);
    Ok((i, ()))
}

fn parse_posix<'a>(i: &'a [u8], facts: &mut FileInfo) -> wire::Parsed<'a, ()> {
    let (i, (id, device, _, links)) =
        (le_u64("Inode"), le_u32("DeviceId"), le_u32("Zero"), le_u32("HardLinks")).parse(i)?;
    let (i, (tag, mode, owner, group)) =
        (le_u32("ReparseTag"), le_u32("Mode"), Sid::field, Sid::field).parse(i)?;
    (facts.file_id, facts.reparse_tag) = (id, tag);
    facts.posix = super::file::Posix { device, links, mode, owner, group };
    Ok((i, ()))
}

/// Returns the level of a request, or the status that Windows returns for other classes.
pub fn level(class: u8) -> Result<Level, NtStatus> {
    Level::from_number(class).ok_or(NtStatus::INVALID_INFO_CLASS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn name_offset_matches_fixed_length() {
        for level in Level::ALL {
            let e = level.entry("x", 0, &FileInfo::default());
            // The well-known SID "Everyone" twice, and the length of the name.
            let more = if level == Level::Posix { 12 + 12 + 4 } else { 0 };
            assert_eq!(e.len(), level.fixed_len() + more + 2, "{level:?}");
            assert_eq!(Level::from_number(level.number()), Some(level));
        }
        for none in [4, 50, 63, 82] {
            assert_eq!(level(none), Err(NtStatus::INVALID_INFO_CLASS));
        }
    }

    #[test]
    fn entries_for_macos_round_trip() {
        let mac = mac::Entry {
            access: 0x1f_01ff,
            resource: 3,
            finder: *b"SMB,OLE!........",
            mode: 0o100_644,
        };
        let facts = FileInfo { mac: Some(mac), file_id: 7, ..FileInfo::default() };
        let entry = Level::IdBothDirectory.entry("a", 0, &facts);
        assert_eq!(entry.len(), Level::IdBothDirectory.fixed_len() + 2);
        // ShortNameLength, then the length of the resource fork, then FinderInfo.
        assert_eq!(entry[68..70], [24, 0]);
        assert_eq!((entry[70], &entry[78..86]), (3, &b"SMB,OLE!"[..]));
        let (name, read) = Level::parse_for_mac(&entry).unwrap();
        assert_eq!((&name[..], read.mac, read.file_id), ("a", Some(mac), 7));
        for cut in 0..entry.len() {
            assert!(Level::parse_for_mac(&entry[..cut]).is_err(), "{cut}");
        }
        for level in Level::ALL.into_iter().filter(|level| *level != Level::IdBothDirectory) {
            let plain = FileInfo { mac: None, ..facts.clone() };
            assert_eq!(level.entry("a", 0, &facts), level.entry("a", 0, &plain), "{level:?}");
        }
    }

    proptest! {
        #[test]
        fn entries_round_trip(name in ".{0,20}", size: u64, attributes: u32, id: u64, change: u64, ea_size: u32) {
            let attributes = attributes & !attribute::REPARSE_POINT;
            let mut facts = FileInfo { file_id: id, ea_size, ..FileInfo::default() };
            facts.standard.end_of_file = size;
            facts.basic.attributes = attributes;
            facts.basic.change.0 = change;
            for level in Level::ALL {
                let (n, f) = level.parse(&level.entry(&name, 7, &facts)).unwrap();
                prop_assert_eq!(&n, &name);
                if level != Level::Names {
                    prop_assert_eq!(f.basic, facts.basic);
                    prop_assert_eq!(f.standard, facts.standard);
                }
                let has_id = !matches!(level, Level::Names | Level::Directory | Level::FullDirectory | Level::BothDirectory);
                prop_assert_eq!(f.file_id, if has_id { id } else { 0 });
                prop_assert_eq!(f.ea_size, if level.tells_ea_size() { ea_size } else { 0 });
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..160)) {
            for level in Level::ALL {
                let _ = level.parse(&bytes);
            }
        }
    }
}
