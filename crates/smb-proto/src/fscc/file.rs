//! Information about an open file (MS-FSCC section 2.4), as QUERY_INFO returns it.
//!
//! *Operation.* [`FileInfo`] has the facts of all classes; [`query`] selects and orders them. [`Class::fixed_len`] and [`fit`]
//! decide how much fits into the client's buffer, and which status is returned if not all does.

use super::{attribute, fixed, mac};
use crate::NtStatus;
use crate::dtyp::{FileTime, Sid};
use crate::parse::put_utf16;
use crate::smb2::create::access::{READ_ATTRIBUTES, READ_EA};

macro_rules! classes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $fixed:expr, $needs:expr;)*) => {
        /// A class of information about a file (MS-FSCC section 2.4).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)] // The names are the specification's.
        pub enum Class { $($(#[$doc])* $name,)* }
        impl Class {
            /// All variants.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
            /// Returns the class with this number.
            pub fn from_number(n: u8) -> Option<Self> {
                match n { $($number => Some(Self::$name),)* _ => None }
            }
            /// Returns the number on the wire.
            pub fn number(self) -> u8 {
                match self { $(Self::$name => $number,)* }
            }
            /// Minimum length of the response's buffer, in bytes: the whole length of a class of fixed size.
            pub fn fixed_len(self) -> usize {
                match self { $(Self::$name => $fixed,)* }
            }
            /// Returns the access right that the open must have (MS-SMB2 section 3.3.5.20.1).
            pub fn needs(self) -> u32 {
                match self { $(Self::$name => $needs,)* }
            }
        }
    };
}

classes! {
    Basic = 4, Basic::LEN, READ_ATTRIBUTES;
    Standard = 5, Standard::LEN, 0;
    Internal = 6, 8, 0;
    Ea = 7, 4, 0;
    Access = 8, 4, 0;
    Position = 14, 8, 0;
    FullEa = 15, 0, READ_EA;
    Mode = 16, 4, 0;
    Alignment = 17, 4, 0;
    All = 18, 104, READ_ATTRIBUTES;
    AlternateName = 21, 8, 0;
    Stream = 22, 32, 0;
    Pipe = 23, 8, READ_ATTRIBUTES;
    PipeLocal = 24, 40, READ_ATTRIBUTES;
    PipeRemote = 25, 16, READ_ATTRIBUTES;
    Compression = 28, 16, 0;
    NetworkOpen = 34, NetworkOpen::LEN, READ_ATTRIBUTES;
    AttributeTag = 35, 8, READ_ATTRIBUTES;
    NormalizedName = 48, 8, 0;
    Id = 59, 24, 0;
    Posix = 100, 80, READ_ATTRIBUTES;
}

impl Class {
    /// Checks whether the response contains the path of the open.
    pub fn has_name(self) -> bool {
        matches!(self, Self::All | Self::NormalizedName)
    }
}

/// Returns the status for a class that QUERY_INFO does not support (MS-SMB2 section 3.3.5.20.1 and its notes on Windows):
/// NOT_SUPPORTED for classes that MS-FSCC section 2.4 defines for other uses, except for directory listings and change notices.
pub fn refusal(class: u8) -> NtStatus {
    match class {
        9
        | 26
        | 27
        | 29
        | 32
        | 33
        | 36
        | 41
        | 43..=47
        | 49..=51
        | 53
        | 54
        | 60
        | 64
        | 65
        | 78..=81 => NtStatus::NOT_SUPPORTED,
        _ => NtStatus::INVALID_INFO_CLASS,
    }
}

fixed! {
    /// FileBasicInformation (MS-FSCC section 2.4.7), in both directions.
    Basic (40) {
        creation: FileTime = "CreationTime",
        last_access: FileTime = "LastAccessTime",
        last_write: FileTime = "LastWriteTime",
        change: FileTime = "ChangeTime",
        attributes: u32 = "FileAttributes",
        ; 4
    }
    /// FileStandardInformation (section 2.4.47).
    Standard (24) {
        allocation: u64 = "AllocationSize",
        end_of_file: u64 = "EndOfFile",
        links: u32 = "NumberOfLinks",
        delete_pending: u8 = "DeletePending",
        directory: u8 = "Directory",
        ; 2
    }
    /// FileNetworkOpenInformation (section 2.4.34).
    NetworkOpen (56) {
        creation: FileTime = "CreationTime",
        last_access: FileTime = "LastAccessTime",
        last_write: FileTime = "LastWriteTime",
        change: FileTime = "ChangeTime",
        allocation: u64 = "AllocationSize",
        end_of_file: u64 = "EndOfFile",
        attributes: u32 = "FileAttributes",
        ; 4
    }
}

/// All facts about an open file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileInfo {
    /// Times and attributes.
    pub basic: Basic,
    /// Sizes, links, and whether a delete is pending.
    pub standard: Standard,
    /// Number of the file on its volume.
    pub file_id: u64,
    /// Number of the volume.
    pub volume: u64,
    /// Size of the extended attributes as directory entries report it, in bytes.
    pub ea_size: u32,
    /// Access rights of the open.
    pub access: u32,
    /// Current position of the open.
    pub position: u64,
    /// Mode of the open.
    pub mode: u32,
    /// Path from the share's root with `\` separators and a leading `\`; NORMALIZED_NAME omits the leading one.
    pub name: String,
    /// The 8.3 name, if one exists; only [`Class::AlternateName`] uses it.
    pub short_name: Option<String>,
    /// Reparse tag and its attribute.
    pub reparse_tag: u32,
    /// Facts for the POSIX extensions.
    pub posix: Posix,
    /// What macOS gets in a directory entry, if it agreed on that.
    pub mac: Option<mac::Entry>,
}

/// Facts that only clients with the POSIX extensions get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posix {
    /// Device number of the volume.
    pub device: u32,
    /// Number of links to the node itself; a directory may have more than one.
    pub links: u32,
    /// Mode, including the file type.
    pub mode: u32,
    /// Owner.
    pub owner: Sid,
    /// Group.
    pub group: Sid,
}

impl Default for Posix {
    fn default() -> Self {
        Self { device: 0, links: 0, mode: 0, owner: Sid::everyone(), group: Sid::everyone() }
    }
}

impl Posix {
    /// Appends the fields that queries and directory entries share: from the inode to the mode.
    pub(crate) fn put(&self, facts: &FileInfo, out: &mut Vec<u8>) {
        out.extend(facts.file_id.to_le_bytes());
        out.extend(self.device.to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.links.to_le_bytes());
        out.extend(facts.reparse_tag.to_le_bytes());
        out.extend(self.mode.to_le_bytes());
    }
}

impl FileInfo {
    /// Returns the FileNetworkOpenInformation.
    pub fn network_open(&self) -> NetworkOpen {
        let (b, s) = (&self.basic, &self.standard);
        NetworkOpen {
            creation: b.creation,
            last_access: b.last_access,
            last_write: b.last_write,
            change: b.change,
            allocation: s.allocation,
            end_of_file: s.end_of_file,
            attributes: b.attributes,
        }
    }

    /// Returns `EaSize` of FileEaInformation, which includes the header of the list (MS-FSA section 2.1.5.12.10).
    fn ea_information(&self) -> u32 {
        const HEADER: u32 = 4;
        if self.ea_size == 0 { 0 } else { self.ea_size.saturating_add(HEADER) }
    }

    fn put_all(&self, out: &mut Vec<u8>) {
        self.basic.put(out);
        self.standard.put(out);
        out.extend(self.file_id.to_le_bytes());
        out.extend(self.ea_information().to_le_bytes());
        out.extend(self.access.to_le_bytes());
        out.extend(self.position.to_le_bytes());
        out.extend(self.mode.to_le_bytes());
        out.extend([0; 4]);
        put_name(out, &self.name);
    }

    fn put_posix(&self, out: &mut Vec<u8>) {
        let (b, s) = (&self.basic, &self.standard);
        for t in [b.creation, b.last_access, b.last_write, b.change] {
            out.extend(t.0.to_le_bytes());
        }
        out.extend(s.end_of_file.to_le_bytes());
        out.extend(s.allocation.to_le_bytes());
        out.extend(b.attributes.to_le_bytes());
        self.posix.put(self, out);
        self.posix.owner.put(out);
        self.posix.group.put(out);
    }
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    let at = out.len();
    out.extend([0; 4]);
    let len = put_utf16(out, name);
    out[at..at + 4].copy_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
}

/// Serializes a class. Streams and extended attributes have separate writers.
pub fn query(class: Class, facts: &FileInfo) -> Result<Vec<u8>, NtStatus> {
    let mut out = Vec::with_capacity(class.fixed_len());
    match class {
        Class::Basic => facts.basic.put(&mut out),
        Class::Standard => facts.standard.put(&mut out),
        Class::Internal => out.extend(facts.file_id.to_le_bytes()),
        Class::Ea => out.extend(facts.ea_information().to_le_bytes()),
        Class::Access => out.extend(facts.access.to_le_bytes()),
        Class::NormalizedName => put_name(&mut out, facts.name.trim_start_matches('\\')),
        Class::Position => out.extend(facts.position.to_le_bytes()),
        Class::Mode => out.extend(facts.mode.to_le_bytes()),
        // FILE_BYTE_ALIGNMENT
        Class::Alignment => out.extend([0; 4]),
        Class::All => facts.put_all(&mut out),
        Class::AlternateName => match &facts.short_name {
            Some(name) => put_name(&mut out, name),
            None => return Err(NtStatus::OBJECT_NAME_NOT_FOUND),
        },
        Class::Compression => {
            out.extend(facts.standard.end_of_file.to_le_bytes());
            // COMPRESSION_FORMAT_NONE, and zero units.
            out.extend([0; 8]);
        }
        Class::NetworkOpen => facts.network_open().put(&mut out),
        Class::AttributeTag => {
            out.extend(facts.basic.attributes.to_le_bytes());
            out.extend(facts.reparse_tag.to_le_bytes());
        }
        Class::Id => {
            out.extend(facts.volume.to_le_bytes());
            out.extend(facts.file_id.to_le_bytes());
            out.extend([0; 8]);
        }
        Class::Posix => facts.put_posix(&mut out),
        // Only pipes support these classes; a file on a disk does not (MS-FSA section 2.1.5.12).
        Class::Pipe | Class::PipeLocal | Class::PipeRemote => {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Class::Stream | Class::FullEa => return Err(NtStatus::INTERNAL_ERROR),
    }
    Ok(out)
}

/// Fits a response to the client's buffer: a class of fixed size must fit completely (`INFO_LENGTH_MISMATCH`), one with a trailing
/// name is truncated with `BUFFER_OVERFLOW` (MS-SMB2 section 3.3.5.20.1).
pub fn fit(
    mut bytes: Vec<u8>,
    fixed: usize,
    limit: usize,
) -> Result<(NtStatus, Vec<u8>), NtStatus> {
    if limit < fixed {
        return Err(NtStatus::INFO_LENGTH_MISMATCH);
    }
    if bytes.len() <= limit {
        return Ok((NtStatus::SUCCESS, bytes));
    }
    bytes.truncate(limit);
    Ok((NtStatus::BUFFER_OVERFLOW, bytes))
}

/// Returns the attributes as clients see them: NORMAL only if no other attribute is set.
pub fn shown_attributes(attributes: u32) -> u32 {
    match attributes & !attribute::NORMAL {
        0 => attribute::NORMAL,
        a => a,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_class_has_expected_length() {
        let facts = FileInfo { name: "\\a".into(), ..FileInfo::default() };
        for class in Class::ALL {
            let Ok(bytes) = query(*class, &facts) else { continue };
            let want = match class {
                Class::All => 100 + 4,
                Class::NormalizedName => 4 + 2,
                // The well-known SID "Everyone" twice.
                Class::Posix => 80 + 24,
                c => c.fixed_len(),
            };
            assert_eq!(bytes.len(), want, "{class:?}");
            assert_eq!(Class::from_number(class.number()), Some(*class));
        }
        assert_eq!(query(Class::AlternateName, &facts), Err(NtStatus::OBJECT_NAME_NOT_FOUND));
        assert_eq!(Class::from_number(1), None, "a class of directories");
        assert_eq!(
            (refusal(1), refusal(255)),
            (NtStatus::INVALID_INFO_CLASS, NtStatus::INVALID_INFO_CLASS)
        );
        assert_eq!((refusal(9), refusal(46)), (NtStatus::NOT_SUPPORTED, NtStatus::NOT_SUPPORTED));
    }

    #[test]
    fn oversized_response_is_cut_or_refused() {
        let bytes = query(Class::All, &FileInfo { name: "\\abcdef".into(), ..FileInfo::default() })
            .unwrap();
        let fixed = Class::All.fixed_len();
        assert_eq!(fit(bytes.clone(), fixed, fixed - 1), Err(NtStatus::INFO_LENGTH_MISMATCH));
        let cut = fit(bytes.clone(), fixed, fixed).unwrap();
        assert_eq!((cut.0, cut.1.len()), (NtStatus::BUFFER_OVERFLOW, fixed));
        assert_eq!(fit(bytes.clone(), fixed, 1024), Ok((NtStatus::SUCCESS, bytes)));
    }

    proptest! {
        #[test]
        fn fixed_classes_round_trip(t in any::<[u64; 4]>(), allocation: u64, end_of_file: u64, links: u32, attributes: u32) {
            let [creation, last_access, last_write, change] = t.map(FileTime);
            let b = Basic { creation, last_access, last_write, change, attributes };
            prop_assert_eq!(Basic::parse(&b.emit()).unwrap(), b);
            prop_assert!(Basic::parse(&b.emit()[..39]).is_err());
            let s = Standard { allocation, end_of_file, links, delete_pending: 1, directory: 0 };
            prop_assert_eq!(Standard::parse(&s.emit()).unwrap(), s);
            let n = FileInfo { basic: b, standard: s, ..FileInfo::default() }.network_open();
            prop_assert_eq!(NetworkOpen::parse(&n.emit()).unwrap(), n);
        }
    }
}
