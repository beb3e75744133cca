//! What macOS keeps with a file, in named streams, and what directory entries have of it for a client that agreed on that
//! ([`crate::smb2::aapl`]). Apple describes the entries in `smb_2.h` of its client smbfs. The stream has the form that its
//! servers, Samba and netatalk give it.

use wire::{Parser, be_u32, bytes, le_u16, le_u32, le_u64, take};

use crate::parse::{Parsed, constant, whole};

/// Name of the stream with an [`AfpInfo`].
pub const AFP_INFO: &str = "AFP_AfpInfo";
/// Name of the stream that is a file's resource fork.
pub const AFP_RESOURCE: &str = "AFP_Resource";

/// "AFP" and a zero.
const SIGNATURE: u32 = 0x4146_5000;
const VERSION: u32 = 0x0000_0100;
/// A time that is not set.
const NO_TIME: u32 = 0x8000_0000;

/// The FinderInfo of a file or folder, as its stream has it. All numbers are big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AfpInfo {
    /// Reserved1
    pub reserved: [u8; 4],
    /// BackupTime, in seconds since 2000.
    pub backup: u32,
    /// FinderInfo: type and creator, flags, extended flags.
    pub finder: [u8; 32],
    /// ProDosInfo
    pub prodos: [u8; 6],
    /// Reserved2
    pub reserved2: [u8; 6],
}

impl Default for AfpInfo {
    /// Returns what a file without FinderInfo has.
    fn default() -> Self {
        Self {
            reserved: [0; 4],
            backup: NO_TIME,
            finder: [0; 32],
            prodos: [0; 6],
            reserved2: [0; 6],
        }
    }
}

impl AfpInfo {
    /// Length in bytes.
    pub const LEN: usize = 60;
    /// Offset of the FinderInfo.
    pub const FINDER_AT: usize = 16;

    /// Parses it.
    pub fn parse(data: &[u8]) -> Parsed<Self> {
        whole(data, |i| {
            let (i, ((), (), reserved, backup)) = (
                constant("Signature", be_u32("Signature"), SIGNATURE),
                constant("Version", be_u32("Version"), VERSION),
                bytes("Reserved1"),
                be_u32("BackupTime"),
            )
                .parse(i)?;
            let (i, (finder, prodos, reserved2)) =
                (bytes("FinderInfo"), bytes("ProDosInfo"), bytes("Reserved2")).parse(i)?;
            Ok((i, Self { reserved, backup, finder, prodos, reserved2 }))
        })
    }

    /// Serializes it.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::LEN);
        out.extend(SIGNATURE.to_be_bytes());
        out.extend(VERSION.to_be_bytes());
        out.extend(self.reserved);
        out.extend(self.backup.to_be_bytes());
        out.extend(self.finder);
        out.extend(self.prodos);
        out.extend(self.reserved2);
        out
    }

    /// Returns true if it has nothing that Finder would show.
    pub fn is_empty(&self) -> bool {
        self.finder.iter().all(|byte| *byte == 0)
    }
}

/// Seconds from 1970 to 2000, from when AFP counts.
const EPOCH: i64 = 946_684_800;

/// Returns the short form of FinderInfo that directory entries have. `info`: what the file has, if anything; `created`: its
/// creation time in seconds since 1970. A folder has no type and no creator.
pub fn compressed(info: Option<&AfpInfo>, is_dir: bool, created: i64) -> [u8; 16] {
    let mut out = [0; 16];
    let mut added = NO_TIME;
    if let Some(info) = info {
        if !is_dir {
            out[..8].copy_from_slice(&info.finder[..8]);
        }
        // Flags and extended flags.
        out[8..10].copy_from_slice(&info.finder[8..10]);
        out[10..12].copy_from_slice(&info.finder[24..26]);
        // Two's complement, as times before 2000 are.
        let seconds = created.saturating_sub(EPOCH);
        added = i32::try_from(seconds).map_or(NO_TIME, |seconds| seconds.cast_unsigned());
    }
    out[12..].copy_from_slice(&added.to_be_bytes());
    out
}

/// The fields of a FileIdBothDirectoryInformation that have another meaning for a client that agreed on READ_DIR_ATTR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// In place of EaSize: the most access that the user may get.
    pub access: u32,
    /// In place of the short name: the length of the resource fork,
    pub resource: u64,
    /// and FinderInfo ([`compressed`]).
    pub finder: [u8; 16],
    /// In place of a reserved field: type and mode.
    pub mode: u16,
}

impl Entry {
    /// ShortNameLength. Apple's header says 0, and clients ignore it; servers send the length.
    const SHORT_NAME_LEN: u16 = 24;

    /// Appends the fields between the name's length and the file's number.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.access.to_le_bytes());
        out.extend(Self::SHORT_NAME_LEN.to_le_bytes());
        out.extend(self.resource.to_le_bytes());
        out.extend(self.finder);
        out.extend(self.mode.to_le_bytes());
    }

    pub(super) fn parse(i: &[u8]) -> wire::Parsed<'_, Self> {
        let (i, (access, _, resource)) =
            (le_u32("MaxAccess"), take(2, "ShortNameLength"), le_u64("RsrcForkLen")).parse(i)?;
        let (i, (finder, mode)) = (bytes("CompressedFinderInfo"), le_u16("UnixMode")).parse(i)?;
        Ok((i, Self { access, resource, finder, mode }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_round_trips_and_has_the_layout_of_macos() {
        let empty = AfpInfo::default().emit();
        assert_eq!(empty.len(), AfpInfo::LEN);
        assert_eq!(empty[..16], *b"AFP\0\0\0\x01\0\0\0\0\0\x80\0\0\0");
        assert!(empty[16..].iter().all(|byte| *byte == 0));
        assert!(AfpInfo::default().is_empty());
        let mut info =
            AfpInfo { backup: 7, prodos: [3; 6], reserved2: [4; 6], ..AfpInfo::default() };
        info.finder[..8].copy_from_slice(b"TEXTttxt");
        assert_eq!(AfpInfo::parse(&info.emit()), Ok(info));
        assert_eq!(info.emit()[AfpInfo::FINDER_AT..][..8], *b"TEXTttxt");
        assert!(!info.is_empty());
    }

    #[test]
    fn other_signatures_versions_and_lengths_are_refused() {
        let good = AfpInfo::default().emit();
        for cut in 0..AfpInfo::LEN {
            assert!(AfpInfo::parse(&good[..cut]).is_err(), "{cut}");
        }
        for at in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(AfpInfo::parse(&bad).is_err(), "{at}");
        }
    }

    #[test]
    fn short_form_has_type_creator_and_flags() {
        let finder = std::array::from_fn(|at| u8::try_from(at).unwrap() + 1);
        let info = AfpInfo { finder, ..AfpInfo::default() };
        let file = compressed(Some(&info), false, EPOCH + 0x0102_0304);
        assert_eq!(file, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 25, 26, 1, 2, 3, 4]);
        let folder = compressed(Some(&info), true, EPOCH - 1);
        assert_eq!(folder, [0, 0, 0, 0, 0, 0, 0, 0, 9, 10, 25, 26, 255, 255, 255, 255]);
        let none = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0];
        assert_eq!(compressed(None, false, EPOCH), none);
        for far in [i64::MIN, i64::MAX] {
            assert_eq!(compressed(Some(&AfpInfo::default()), false, far), none, "{far}");
        }
    }
}
