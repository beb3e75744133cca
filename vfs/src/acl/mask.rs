//! Access mask bits (MS-DTYP section 2.4.3, MS-SMB2 section 2.2.13.1) and the generic mapping of files.

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

/// FILE_ALL_ACCESS: the meaning of GENERIC_ALL for a file.
pub const FILE_ALL: u32 = 0x001f_01ff;
/// FILE_GENERIC_READ.
pub const FILE_READ: u32 = READ_DATA | READ_EA | READ_ATTRIBUTES | READ_CONTROL | SYNCHRONIZE;
/// FILE_GENERIC_WRITE.
pub const FILE_WRITE: u32 =
    WRITE_DATA | APPEND_DATA | WRITE_EA | WRITE_ATTRIBUTES | READ_CONTROL | SYNCHRONIZE;
/// FILE_GENERIC_EXECUTE.
pub const FILE_EXECUTE: u32 = EXECUTE | READ_ATTRIBUTES | READ_CONTROL | SYNCHRONIZE;
/// The generic bits.
pub const GENERIC: u32 = GENERIC_ALL | GENERIC_EXECUTE | GENERIC_WRITE | GENERIC_READ;
/// Every bit that a request may contain (MS-SMB2 section 3.3.5.9: others are refused).
pub const VALID: u32 = FILE_ALL | GENERIC | MAXIMUM_ALLOWED | ACCESS_SYSTEM_SECURITY;

/// Replaces the generic bits by their meaning for files and directories.
pub fn map_generic(mask: u32) -> u32 {
    let mut out = mask & !GENERIC;
    for (generic, means) in [
        (GENERIC_READ, FILE_READ),
        (GENERIC_WRITE, FILE_WRITE),
        (GENERIC_EXECUTE, FILE_EXECUTE),
        (GENERIC_ALL, FILE_ALL),
    ] {
        if mask & generic != 0 {
            out |= means;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generic_rights_are_the_documented_ones() {
        assert_eq!(map_generic(GENERIC_READ), 0x0012_0089);
        assert_eq!(map_generic(GENERIC_WRITE), 0x0012_0116);
        assert_eq!(map_generic(GENERIC_EXECUTE), 0x0012_00a0);
        assert_eq!(map_generic(GENERIC_ALL | MAXIMUM_ALLOWED), 0x021f_01ff);
        assert_eq!(map_generic(READ_EA), READ_EA);
    }

    /// MS-SMB2 section 2.2.13.1: bits named neither in the mask of files nor in the mask of directories have no meaning in a
    /// request.
    #[test]
    fn unnamed_bits_are_not_valid() {
        assert_eq!(!VALID, 0x0ce0_fe00);
    }
}
