//! Values of MS-DTYP and of the Windows security model that several formats share, pure: times, security identifiers, access
//! masks, security descriptors, and the check of a descriptor against a user.
//!
//! *Errors.* [`Malformed`](crate::wire::Malformed) names the field that does not fit; nothing here takes memory by a number
//! that a peer sent, only by bytes that are there.

pub mod acl;
pub mod check;
pub mod descriptor;
pub mod sid;
pub mod time;

pub use descriptor::{Ace, Acl, SecurityDescriptor};
pub use sid::Sid;
pub use time::FileTime;
pub use vfs::acl::mask;

#[cfg(test)]
mod tests {
    use smb_proto::smb2::create::access;

    use super::mask;

    /// The bits that are kept in lists are those that CREATE asks for.
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
