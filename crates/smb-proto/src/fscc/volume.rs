//! Information about a volume (MS-FSCC section 2.5), and level 100 of the POSIX extensions.

use super::fixed;
use crate::NtStatus;
use crate::dtyp::FileTime;
use crate::parse::put_utf16;

/// A class of information about a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The names are the specification's.
pub enum Class {
    Volume,
    Size,
    Device,
    Attribute,
    Control,
    FullSize,
    ObjectId,
    SectorSize,
    Posix,
}

impl Class {
    /// All variants.
    pub const ALL: [Self; 9] = [
        Self::Volume,
        Self::Size,
        Self::Device,
        Self::Attribute,
        Self::Control,
        Self::FullSize,
        Self::ObjectId,
        Self::SectorSize,
        Self::Posix,
    ];

    /// Returns the number on the wire.
    pub fn number(self) -> u8 {
        match self {
            Self::Volume => 1,
            Self::Size => 3,
            Self::Device => 4,
            Self::Attribute => 5,
            Self::Control => 6,
            Self::FullSize => 7,
            Self::ObjectId => 8,
            Self::SectorSize => 11,
            Self::Posix => 100,
        }
    }

    /// Returns the class with this number.
    pub fn from_number(n: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.number() == n)
    }

    /// Returns the status for an unsupported class: NOT_SUPPORTED for classes that MS-FSCC section 2.5 defines for local use
    /// (MS-SMB2 sections 3.3.5.20.2 and 3.3.5.21.2).
    pub fn refusal(n: u8) -> NtStatus {
        match n {
            2 | 9 | 10 => NtStatus::NOT_SUPPORTED,
            _ => NtStatus::INVALID_INFO_CLASS,
        }
    }

    /// Minimum length of the response's buffer, in bytes.
    pub fn fixed_len(self) -> usize {
        match self {
            Self::Volume => 24,
            Self::Size => Size::LEN,
            Self::Device => 8,
            Self::Attribute => 16,
            Self::Control => Control::LEN,
            Self::FullSize => FullSize::LEN,
            Self::ObjectId => 64,
            Self::SectorSize => 28,
            Self::Posix => Posix::LEN,
        }
    }
}

/// FileSystemAttributes (MS-FSCC section 2.5.1).
#[allow(missing_docs)] // The names are the specification's.
pub mod attribute {
    pub const CASE_SENSITIVE_SEARCH: u32 = 0x0000_0001;
    pub const CASE_PRESERVED_NAMES: u32 = 0x0000_0002;
    pub const UNICODE_ON_DISK: u32 = 0x0000_0004;
    pub const PERSISTENT_ACLS: u32 = 0x0000_0008;
    pub const VOLUME_QUOTAS: u32 = 0x0000_0020;
    pub const SUPPORTS_SPARSE_FILES: u32 = 0x0000_0040;
    pub const SUPPORTS_REPARSE_POINTS: u32 = 0x0000_0080;
    pub const SUPPORTS_OBJECT_IDS: u32 = 0x0001_0000;
    pub const NAMED_STREAMS: u32 = 0x0004_0000;
    pub const READ_ONLY_VOLUME: u32 = 0x0008_0000;
    pub const SUPPORTS_EXTENDED_ATTRIBUTES: u32 = 0x0080_0000;
    pub const SUPPORTS_HARD_LINKS: u32 = 0x0040_0000;
    pub const SUPPORTS_BLOCK_REFCOUNTING: u32 = 0x0800_0000;
}

fixed! {
    /// FileFsSizeInformation (section 2.5.8).
    Size (24) {
        total: u64 = "TotalAllocationUnits",
        available: u64 = "AvailableAllocationUnits",
        sectors_per_unit: u32 = "SectorsPerAllocationUnit",
        bytes_per_sector: u32 = "BytesPerSector",
    }
    /// FileFsFullSizeInformation (section 2.5.4).
    FullSize (32) {
        total: u64 = "TotalAllocationUnits",
        caller_available: u64 = "CallerAvailableAllocationUnits",
        available: u64 = "ActualAvailableAllocationUnits",
        sectors_per_unit: u32 = "SectorsPerAllocationUnit",
        bytes_per_sector: u32 = "BytesPerSector",
    }
    /// FileFsControlInformation (section 2.5.2).
    Control (48) {
        start_filtering: u64 = "FreeSpaceStartFiltering",
        threshold: u64 = "FreeSpaceThreshold",
        stop_filtering: u64 = "FreeSpaceStopFiltering",
        default_threshold: u64 = "DefaultQuotaThreshold",
        default_limit: u64 = "DefaultQuotaLimit",
        flags: u32 = "FileSystemControlFlags",
        ; 4
    }
    /// FS_POSIX_INFORMATION of the POSIX extensions.
    Posix (56) {
        optimal_transfer: u32 = "OptimalTransferSize",
        block_size: u32 = "BlockSize",
        total_blocks: u64 = "TotalBlocks",
        blocks_available: u64 = "BlocksAvail",
        user_blocks_available: u64 = "UserBlocksAvail",
        total_nodes: u64 = "TotalFileNodes",
        free_nodes: u64 = "FreeFileNodes",
        id: u64 = "FsIdentifier",
    }
}

/// Sector size reported to clients, in bytes.
pub const SECTOR: u32 = 512;

/// All facts about a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Creation time.
    pub created: FileTime,
    /// Serial number.
    pub serial: u32,
    /// Label.
    pub label: String,
    /// Size of an allocation unit in bytes; a multiple of [`SECTOR`].
    pub unit: u32,
    /// Allocation units: total, free, free for the caller.
    pub units: (u64, u64, u64),
    /// Nodes: total and free.
    pub nodes: (u64, u64),
    /// Attributes.
    pub attributes: u32,
    /// Length of the longest name in bytes; reported as characters.
    pub name_max: u32,
    /// Permanent identifier of the volume.
    pub id: [u8; 16],
    /// Number of the volume on the host.
    pub fsid: u64,
    /// The volume frees the storage of trimmed ranges.
    pub trims: bool,
    /// Limits of users without own quotas, and what the volume does with quotas.
    pub control: Control,
}

/// Serializes a class.
pub fn query(class: Class, f: &VolumeInfo) -> Result<Vec<u8>, NtStatus> {
    let sectors_per_unit = f.unit / SECTOR;
    let (total, free, available) = f.units;
    let mut out = Vec::with_capacity(class.fixed_len());
    match class {
        Class::Volume => {
            out.extend(f.created.0.to_le_bytes());
            out.extend(f.serial.to_le_bytes());
            out.extend([0; 4]);
            // SupportsObjects, and a reserved byte.
            out.extend([0, 0]);
            let len = put_utf16(&mut out, &f.label);
            out[12..16].copy_from_slice(&u32::try_from(len).unwrap_or(0).to_le_bytes());
        }
        Class::Size => {
            Size { total, available, sectors_per_unit, bytes_per_sector: SECTOR }.put(&mut out);
        }
        Class::Device => {
            /// FILE_DEVICE_DISK
            const DISK: u32 = 7;
            /// FILE_DEVICE_IS_MOUNTED
            const MOUNTED: u32 = 0x20;
            out.extend(DISK.to_le_bytes());
            out.extend(MOUNTED.to_le_bytes());
        }
        Class::Attribute => {
            out.extend(f.attributes.to_le_bytes());
            out.extend(f.name_max.to_le_bytes());
            out.extend([0; 4]);
            // Clients assume support of streams, access lists and links only with this name.
            let len = put_utf16(&mut out, "NTFS");
            out[8..12].copy_from_slice(&u32::try_from(len).unwrap_or(0).to_le_bytes());
        }
        Class::Control => f.control.put(&mut out),
        Class::FullSize => FullSize {
            total,
            caller_available: available,
            available: free,
            sectors_per_unit,
            bytes_per_sector: SECTOR,
        }
        .put(&mut out),
        Class::ObjectId => {
            out.extend(f.id);
            out.resize(64, 0);
        }
        Class::SectorSize => {
            /// SSINFO_FLAGS_ALIGNED_DEVICE, SSINFO_FLAGS_PARTITION_ALIGNED_ON_DEVICE
            const ALIGNED: u32 = 3;
            /// SSINFO_FLAGS_TRIM_ENABLED
            const TRIM_ENABLED: u32 = 8;
            // Logical, physical for atomicity, physical for performance, effective for atomicity.
            for n in [SECTOR, f.unit, f.unit, f.unit] {
                out.extend(n.to_le_bytes());
            }
            let flags = ALIGNED | if f.trims { TRIM_ENABLED } else { 0 };
            out.extend(flags.to_le_bytes());
            out.extend([0; 8]);
        }
        Class::Posix => Posix {
            optimal_transfer: f.unit,
            block_size: f.unit,
            total_blocks: total,
            blocks_available: free,
            user_blocks_available: available,
            total_nodes: f.nodes.0,
            free_nodes: f.nodes.1,
            id: f.fsid,
        }
        .put(&mut out),
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_class_has_expected_length() {
        let facts = VolumeInfo { unit: 4096, label: "a".into(), ..VolumeInfo::default() };
        for class in Class::ALL {
            let len = query(class, &facts).unwrap().len();
            let want = match class {
                Class::Volume => 18 + 2,
                Class::Attribute => 12 + 8,
                c => c.fixed_len(),
            };
            assert_eq!(len, want, "{class:?}");
            assert_eq!(Class::from_number(class.number()), Some(class));
        }
        assert_eq!(Class::from_number(2), None);
    }

    #[test]
    fn trimming_volume_sets_flag() {
        let flags = |trims| {
            let facts = VolumeInfo { unit: 4096, trims, ..VolumeInfo::default() };
            query(Class::SectorSize, &facts).unwrap()[16]
        };
        assert_eq!((flags(false), flags(true)), (3, 11));
    }

    proptest! {
        #[test]
        fn sizes_round_trip(total: u64, caller_available: u64, available: u64, sectors_per_unit: u32) {
            let s = FullSize { total, caller_available, available, sectors_per_unit, bytes_per_sector: SECTOR };
            prop_assert_eq!(FullSize::parse(&s.emit()).unwrap(), s);
            prop_assert!(FullSize::parse(&s.emit()[..31]).is_err());
        }
    }
}
