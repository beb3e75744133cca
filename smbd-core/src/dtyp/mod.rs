//! Converts values of MS-DTYP ([`smb_proto::dtyp`]) for this server: descriptors to the lists stored with files, and times of
//! files.

pub mod acl;
pub mod check;
pub mod time;

pub use smb_proto::dtyp::{Ace, Acl, FileTime, SecurityDescriptor, Sid, descriptor};
pub use vfs::acl::mask;

#[cfg(test)]
mod tests {
    use smb_proto::smb2::create::access;
    use vfs::acl::{control, flag, kind};

    use super::{descriptor, mask};

    /// Lists use the types and control bits of descriptors unchanged.
    #[test]
    fn messages_and_lists_have_the_same_types_and_bits() {
        let kinds = [kind::ALLOWED, kind::DENIED, kind::AUDIT, kind::ALARM, kind::MANDATORY_LABEL];
        use descriptor::kind as told;
        assert_eq!(
            kinds,
            [told::ALLOWED, told::DENIED, told::AUDIT, told::ALARM, told::MANDATORY_LABEL]
        );
        let flags = [
            (flag::PASSING_ON, descriptor::flag::PASSING_ON),
            (flag::INHERITED, descriptor::flag::INHERITED),
        ];
        assert!(flags.iter().all(|(kept, told)| kept == told));
        let bits = [
            (control::DACL_PRESENT, descriptor::control::DACL_PRESENT),
            (control::DACL_DEFAULTED, descriptor::control::DACL_DEFAULTED),
            (control::DACL_AUTO_INHERITED, descriptor::control::DACL_AUTO_INHERITED),
            (control::DACL_PROTECTED, descriptor::control::DACL_PROTECTED),
        ];
        assert!(bits.iter().all(|(kept, told)| kept == told));
    }

    /// Lists use the same access bits as CREATE.
    #[test]
    fn messages_and_lists_have_the_same_rights() {
        let specific = access::READ_DATA
            | access::WRITE_DATA
            | access::APPEND_DATA
            | access::READ_EA
            | access::WRITE_EA
            | access::EXECUTE
            | access::DELETE_CHILD
            | access::READ_ATTRIBUTES
            | access::WRITE_ATTRIBUTES;
        let standard = access::DELETE
            | access::READ_CONTROL
            | access::WRITE_DAC
            | access::WRITE_OWNER
            | access::SYNCHRONIZE;
        assert_eq!(specific | standard, mask::FILE_ALL);
        let generic = access::GENERIC_ALL
            | access::GENERIC_EXECUTE
            | access::GENERIC_WRITE
            | access::GENERIC_READ;
        let more = access::MAXIMUM_ALLOWED | access::ACCESS_SYSTEM_SECURITY;
        assert_eq!(mask::FILE_ALL | generic | more, mask::VALID);
    }
}
