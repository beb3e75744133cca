//! Directory entries, as QUERY_DIRECTORY answers them (MS-FSCC section 2.4, and level 100 of the POSIX extensions).

use super::attribute;
use super::file::Facts;
use crate::status::Status;
use crate::wire::{Fields, Malformed, Parsed, put_utf16, utf16};

/// What an entry says.
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
    /// All of them.
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

    /// Its number.
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

    /// The level of this number.
    pub fn from_number(n: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|l| l.number() == n)
    }

    /// Bytes before the name; of [`Level::Posix`] those before the owner.
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

    /// An entry tells how much the extended attributes are.
    pub fn tells_ea_size(self) -> bool {
        !matches!(self, Self::Directory | Self::Names | Self::Posix)
    }

    /// The entry of a name, with `NextEntryOffset` zero. Names asks for no facts.
    pub fn entry(self, name: &str, index: u32, facts: &Facts) -> Vec<u8> {
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

    /// What stands between the length of the name and the name.
    fn put_rest(self, facts: &Facts, out: &mut Vec<u8>) {
        // Of a reparse point the field holds the tag (MS-FSCC section 2.4.8).
        let ea = if facts.reparse_tag != 0 { facts.reparse_tag } else { facts.ea_size };
        /// ShortNameLength and, behind a reserved byte, ShortName: there are none.
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
                out.extend(ea.to_le_bytes());
                out.extend(NO_SHORT_NAME);
                out.extend([0; 2]);
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
                    // The upper half of the number of 128 bits.
                    out.extend([0; 8]);
                }
                if matches!(self, Self::Id64ExtdBothDirectory | Self::IdAllExtdBothDirectory) {
                    out.extend(NO_SHORT_NAME);
                }
            }
            Self::Directory | Self::Names | Self::Posix => {}
        }
    }

    /// Reads name and facts of an entry, as our own client does. What a level does not say is zero.
    pub fn parse(self, entry: &[u8]) -> Parsed<(String, Facts)> {
        let mut f = Fields::new(entry, 8);
        let mut facts = Facts::default();
        if self != Self::Names {
            for t in [
                &mut facts.basic.creation,
                &mut facts.basic.last_access,
                &mut facts.basic.last_write,
                &mut facts.basic.change,
            ] {
                t.0 = f.u64("Time")?;
            }
            facts.standard.end_of_file = f.u64("EndOfFile")?;
            facts.standard.allocation = f.u64("AllocationSize")?;
            facts.basic.attributes = f.u32("FileAttributes")?;
        }
        if self == Self::Posix {
            facts.file_id = f.u64("Inode")?;
            facts.posix.device = f.u32("DeviceId")?;
            f.skip(4);
            facts.posix.links = f.u32("HardLinks")?;
            facts.reparse_tag = f.u32("ReparseTag")?;
            facts.posix.mode = f.u32("Mode")?;
            facts.posix.owner = crate::dtyp::sid::read(&mut f)?;
            facts.posix.group = crate::dtyp::sid::read(&mut f)?;
        }
        let len = usize::try_from(f.u32("FileNameLength")?).unwrap_or(usize::MAX);
        match self {
            Self::IdBothDirectory => facts.file_id = Fields::new(entry, 96).u64("FileId")?,
            Self::IdFullDirectory => facts.file_id = Fields::new(entry, 72).u64("FileId")?,
            Self::IdExtdDirectory
            | Self::Id64ExtdDirectory
            | Self::Id64ExtdBothDirectory
            | Self::IdAllExtdDirectory
            | Self::IdAllExtdBothDirectory => {
                facts.file_id = Fields::new(entry, 72).u64("FileId")?;
            }
            _ => {}
        }
        let is_reparse = facts.basic.attributes & attribute::REPARSE_POINT != 0;
        if self.tells_ea_size() && !is_reparse {
            facts.ea_size = Fields::new(entry, 64).u32("EaSize")?;
        }
        if self != Self::Posix {
            f = Fields::new(entry, self.fixed_len());
        }
        let name = utf16(f.bytes(len, "FileName")?).ok_or(Malformed("FileName"))?;
        Ok((name, facts))
    }
}

/// The level of a request, or the status that Windows gives for others.
pub fn level(class: u8) -> Result<Level, Status> {
    Level::from_number(class).ok_or(Status::INVALID_INFO_CLASS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_stand_where_they_should() {
        for level in Level::ALL {
            let e = level.entry("x", 0, &Facts::default());
            // Everyone, twice, and the length of the name.
            let more = if level == Level::Posix { 12 + 12 + 4 } else { 0 };
            assert_eq!(e.len(), level.fixed_len() + more + 2, "{level:?}");
            assert_eq!(Level::from_number(level.number()), Some(level));
        }
        for none in [4, 50, 63, 82] {
            assert_eq!(level(none), Err(Status::INVALID_INFO_CLASS));
        }
    }

    proptest! {
        #[test]
        fn entries_round_trip(name in ".{0,20}", size: u64, attributes: u32, id: u64, change: u64, ea_size: u32) {
            let attributes = attributes & !attribute::REPARSE_POINT;
            let mut facts = Facts { file_id: id, ea_size, ..Facts::default() };
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
        fn any_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..160)) {
            for level in Level::ALL {
                let _ = level.parse(&bytes);
            }
        }
    }
}
