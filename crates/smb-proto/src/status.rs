//! NTSTATUS (MS-ERREF section 2.3.1): the values in responses of SMB2 servers.

use std::fmt;

use wire::Fault;

use crate::smb2::Header;

/// An NTSTATUS.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct NtStatus(pub u32);

/// Passes all names and values to the macro `$each`: `$each! { SUCCESS = 0, ... }`, so that a wrapper of [`NtStatus`] can have the
/// same names.
#[macro_export]
macro_rules! nt_statuses {
    ($each:ident) => {
        $each! {
            SUCCESS = 0x0000_0000,
            PENDING = 0x0000_0103,
            NOTIFY_CLEANUP = 0x0000_010b,
            NOTIFY_ENUM_DIR = 0x0000_010c,
            BUFFER_OVERFLOW = 0x8000_0005,
            NO_MORE_FILES = 0x8000_0006,
            NO_MORE_ENTRIES = 0x8000_001a,
            NO_EAS_ON_FILE = 0xc000_0052,
            EA_TOO_LARGE = 0xc000_0050,
            NONEXISTENT_EA_ENTRY = 0xc000_0051,
            INVALID_EA_NAME = 0x8000_0013,
            EA_LIST_INCONSISTENT = 0x8000_0014,
            STOPPED_ON_SYMLINK = 0x8000_002d,
            UNSUCCESSFUL = 0xc000_0001,
            INVALID_INFO_CLASS = 0xc000_0003,
            INFO_LENGTH_MISMATCH = 0xc000_0004,
            INVALID_VIEW_SIZE = 0xc000_001f,
            IO_REPARSE_DATA_INVALID = 0xc000_0278,
            IO_REPARSE_TAG_INVALID = 0xc000_0276,
            IO_REPARSE_TAG_MISMATCH = 0xc000_0277,
            INVALID_HANDLE = 0xc000_0008,
            INVALID_PARAMETER = 0xc000_000d,
            NO_SUCH_FILE = 0xc000_000f,
            INVALID_DEVICE_REQUEST = 0xc000_0010,
            END_OF_FILE = 0xc000_0011,
            MORE_PROCESSING_REQUIRED = 0xc000_0016,
            NO_MEMORY = 0xc000_0017,
            INVALID_LOCK_SEQUENCE = 0xc000_001e,
            ACCESS_DENIED = 0xc000_0022,
            BUFFER_TOO_SMALL = 0xc000_0023,
            OBJECT_TYPE_MISMATCH = 0xc000_0024,
            OBJECT_NAME_INVALID = 0xc000_0033,
            OBJECT_NAME_NOT_FOUND = 0xc000_0034,
            OBJECT_NAME_COLLISION = 0xc000_0035,
            OBJECT_PATH_INVALID = 0xc000_0039,
            OBJECT_PATH_NOT_FOUND = 0xc000_003a,
            OBJECT_PATH_SYNTAX_BAD = 0xc000_003b,
            SHARING_VIOLATION = 0xc000_0043,
            QUOTA_EXCEEDED = 0xc000_0044,
            EAS_NOT_SUPPORTED = 0xc000_004f,
            FILE_LOCK_CONFLICT = 0xc000_0054,
            LOCK_NOT_GRANTED = 0xc000_0055,
            DELETE_PENDING = 0xc000_0056,
            PRIVILEGE_NOT_HELD = 0xc000_0061,
            WRONG_PASSWORD = 0xc000_006a,
            PASSWORD_RESTRICTION = 0xc000_006c,
            LOGON_FAILURE = 0xc000_006d,
            ACCOUNT_RESTRICTION = 0xc000_006e,
            RANGE_NOT_LOCKED = 0xc000_007e,
            DISK_FULL = 0xc000_007f,
            ALLOTTED_SPACE_EXCEEDED = 0xc000_0099,
            INSUFFICIENT_RESOURCES = 0xc000_009a,
            MEDIA_WRITE_PROTECTED = 0xc000_00a2,
            FILE_IS_A_DIRECTORY = 0xc000_00ba,
            NOT_SUPPORTED = 0xc000_00bb,
            NETWORK_NAME_DELETED = 0xc000_00c9,
            NETWORK_ACCESS_DENIED = 0xc000_00ca,
            BAD_NETWORK_NAME = 0xc000_00cc,
            REQUEST_NOT_ACCEPTED = 0xc000_00d0,
            NOT_SAME_DEVICE = 0xc000_00d4,
            FILE_RENAMED = 0xc000_00d5,
            INVALID_LOCK_RANGE = 0xc000_01a1,
            INVALID_OPLOCK_PROTOCOL = 0xc000_00e3,
            INTERNAL_ERROR = 0xc000_00e5,
            UNEXPECTED_IO_ERROR = 0xc000_00e9,
            DIRECTORY_NOT_EMPTY = 0xc000_0101,
            REQUEST_OUT_OF_SEQUENCE = 0xc000_042a,
            NOT_A_DIRECTORY = 0xc000_0103,
            NAME_TOO_LONG = 0xc000_0106,
            TOO_MANY_OPENED_FILES = 0xc000_011f,
            CANNOT_DELETE = 0xc000_0121,
            FILE_CLOSED = 0xc000_0128,
            CANCELLED = 0xc000_0120,
            PIPE_DISCONNECTED = 0xc000_00b0,
            PIPE_NOT_AVAILABLE = 0xc000_00ac,
            PIPE_BUSY = 0xc000_00ae,
            PIPE_EMPTY = 0xc000_00d9,
            PIPE_BROKEN = 0xc000_014b,
            USER_SESSION_DELETED = 0xc000_0203,
            NOT_FOUND = 0xc000_0225,
            ACCOUNT_LOCKED_OUT = 0xc000_0234,
            TOO_MANY_LINKS = 0xc000_0265,
            PATH_NOT_COVERED = 0xc000_0257,
            NETWORK_SESSION_EXPIRED = 0xc000_035c,
            DUPLICATE_OBJECTID = 0xc000_022a,
            INVALID_DEVICE_STATE = 0xc000_0184,
            IO_REPARSE_TAG_NOT_HANDLED = 0xc000_0279,
            NOT_A_REPARSE_POINT = 0xc000_0275,
            REPARSE_ATTRIBUTE_CONFLICT = 0xc000_02b2,
            FILE_NOT_AVAILABLE = 0xc000_0467,
            SHORT_NAMES_NOT_ENABLED_ON_VOLUME = 0xc000_019f,
            FS_DRIVER_REQUIRED = 0xc000_019c,
            SMB_NO_PREAUTH_INTEGRITY_HASH_OVERLAP = 0xc05d_0000,
            SMB_BAD_CLUSTER_DIALECT = 0xc05d_0001,
            HASH_NOT_SUPPORTED = 0xc000_a100,
            INVALID_SIGNATURE = 0xc000_a000,
            AUTH_TAG_MISMATCH = 0xc000_a002,
            INVALID_ACL = 0xc000_0077,
            INVALID_SID = 0xc000_0078,
            INVALID_SECURITY_DESCR = 0xc000_0079,
            INVALID_OWNER = 0xc000_005a,
            NONE_MAPPED = 0xc000_0073,
            AUDIT_FAILED = 0xc000_0244,
            NO_SUCH_DOMAIN = 0xc000_00df,
            NO_SUCH_USER = 0xc000_0064,
            NO_SUCH_GROUP = 0xc000_0066,
            NO_SUCH_ALIAS = 0xc000_0151,
            MORE_ENTRIES = 0x0000_0105,
            SOME_NOT_MAPPED = 0x0000_0107,
            FILE_FORCED_CLOSED = 0xc000_00b6,
            BAD_IMPERSONATION_LEVEL = 0xc000_00a5,
            FILE_TOO_LARGE = 0xc000_0904,
        }
    };
}

macro_rules! define {
    ($($name:ident = $value:literal,)*) => {
        #[allow(missing_docs)] // The names are those of MS-ERREF.
        impl NtStatus { $(pub const $name: Self = Self($value);)* }
        impl fmt::Debug for NtStatus {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($value => f.write_str(stringify!($name)),)*
                    other => write!(f, "{other:#010x}"),
                }
            }
        }
    };
}

nt_statuses!(define);

impl NtStatus {
    /// Returns the status in the header of a response.
    pub fn of(header: &Header) -> Self {
        Self(header.status)
    }

    /// Checks that the value is neither a success nor a warning: the two high bits are set (MS-ERREF section 2.3).
    pub fn is_error(self) -> bool {
        self.0 >> 30 == 3
    }
}

/// Returns the status for a message that the server cannot parse (MS-SMB2 section 3.3.5).
impl From<Fault> for NtStatus {
    fn from(_: Fault) -> Self {
        Self::INVALID_PARAMETER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_shows_name_and_severity() {
        assert_eq!(format!("{:?}", NtStatus::ACCESS_DENIED), "ACCESS_DENIED");
        assert_eq!(format!("{:?}", NtStatus(0xc123_4567)), "0xc1234567");
        assert!(NtStatus::ACCESS_DENIED.is_error());
        assert!(!NtStatus::BUFFER_OVERFLOW.is_error() && !NtStatus::PENDING.is_error());
    }
}
