//! Numbers and small types of NFS 4.0 (RFC 7531), 4.1 (RFC 5662), 4.2 (RFC 7863) and of the attributes added by RFC 8275,
//! RFC 8276 and RFC 9754.

use crate::xdr::{Reader, Writer, XdrResult};

/// The RPC program.
pub const PROGRAM: u32 = 100_003;
/// The RPC version.
pub const VERSION: u32 = 4;
/// NFSPROC4_COMPOUND; the only other procedure is NULL.
pub const PROC_COMPOUND: u32 = 1;
/// The highest minor version.
pub const MINOR_MAX: u32 = 2;

/// Largest file handle, in bytes.
pub const FHSIZE: usize = 128;
/// Bytes of a verifier.
pub const VERIFIER_SIZE: usize = 8;
/// Largest opaque identity of a client or owner, in bytes.
pub const OPAQUE_LIMIT: usize = 1024;
/// Bytes of a session id.
pub const SESSIONID_SIZE: usize = 16;

/// Bytes of `stateid4`.
pub const STATEID_SIZE: usize = 16;

/// `data_content4`: data.
pub const NFS4_CONTENT_DATA: u32 = 0;
/// `data_content4`: a hole.
pub const NFS4_CONTENT_HOLE: u32 = 1;

/// Operation numbers (`nfs_opnum4`).
pub mod op {
    macro_rules! ops {
        ($($name:ident = $value:literal;)*) => {
            $(#[doc = concat!("OP_", stringify!($name))] pub const $name: u32 = $value;)*

            /// The name of an operation, for logs and counters.
            pub fn name(op: u32) -> &'static str {
                match op { $($value => stringify!($name),)* _ => "ILLEGAL" }
            }
        };
    }

    ops! {
        ACCESS = 3;
        CLOSE = 4;
        COMMIT = 5;
        CREATE = 6;
        DELEGPURGE = 7;
        DELEGRETURN = 8;
        GETATTR = 9;
        GETFH = 10;
        LINK = 11;
        LOCK = 12;
        LOCKT = 13;
        LOCKU = 14;
        LOOKUP = 15;
        LOOKUPP = 16;
        NVERIFY = 17;
        OPEN = 18;
        OPENATTR = 19;
        OPEN_CONFIRM = 20;
        OPEN_DOWNGRADE = 21;
        PUTFH = 22;
        PUTPUBFH = 23;
        PUTROOTFH = 24;
        READ = 25;
        READDIR = 26;
        READLINK = 27;
        REMOVE = 28;
        RENAME = 29;
        RENEW = 30;
        RESTOREFH = 31;
        SAVEFH = 32;
        SECINFO = 33;
        SETATTR = 34;
        SETCLIENTID = 35;
        SETCLIENTID_CONFIRM = 36;
        VERIFY = 37;
        WRITE = 38;
        RELEASE_LOCKOWNER = 39;
        BACKCHANNEL_CTL = 40;
        BIND_CONN_TO_SESSION = 41;
        EXCHANGE_ID = 42;
        CREATE_SESSION = 43;
        DESTROY_SESSION = 44;
        FREE_STATEID = 45;
        GET_DIR_DELEGATION = 46;
        GETDEVICEINFO = 47;
        GETDEVICELIST = 48;
        LAYOUTCOMMIT = 49;
        LAYOUTGET = 50;
        LAYOUTRETURN = 51;
        SECINFO_NO_NAME = 52;
        SEQUENCE = 53;
        SET_SSV = 54;
        TEST_STATEID = 55;
        WANT_DELEGATION = 56;
        DESTROY_CLIENTID = 57;
        RECLAIM_COMPLETE = 58;
        ALLOCATE = 59;
        COPY = 60;
        COPY_NOTIFY = 61;
        DEALLOCATE = 62;
        IO_ADVISE = 63;
        LAYOUTERROR = 64;
        LAYOUTSTATS = 65;
        OFFLOAD_CANCEL = 66;
        OFFLOAD_STATUS = 67;
        READ_PLUS = 68;
        SEEK = 69;
        WRITE_SAME = 70;
        CLONE = 71;
        GETXATTR = 72;
        SETXATTR = 73;
        LISTXATTRS = 74;
        REMOVEXATTR = 75;
        ILLEGAL = 10_044;
    }
}

/// Attribute numbers (`FATTR4_*`).
pub mod attr {
    macro_rules! attrs {
        ($($name:ident = $value:literal;)*) => {
            $(#[doc = concat!("FATTR4_", stringify!($name))] pub const $name: u32 = $value;)*
        };
    }

    attrs! {
        SUPPORTED_ATTRS = 0;
        TYPE = 1;
        FH_EXPIRE_TYPE = 2;
        CHANGE = 3;
        SIZE = 4;
        LINK_SUPPORT = 5;
        SYMLINK_SUPPORT = 6;
        NAMED_ATTR = 7;
        FSID = 8;
        UNIQUE_HANDLES = 9;
        LEASE_TIME = 10;
        RDATTR_ERROR = 11;
        ACL = 12;
        ACLSUPPORT = 13;
        ARCHIVE = 14;
        CANSETTIME = 15;
        CASE_INSENSITIVE = 16;
        CASE_PRESERVING = 17;
        CHOWN_RESTRICTED = 18;
        FILEHANDLE = 19;
        FILEID = 20;
        FILES_AVAIL = 21;
        FILES_FREE = 22;
        FILES_TOTAL = 23;
        FS_LOCATIONS = 24;
        HIDDEN = 25;
        HOMOGENEOUS = 26;
        MAXFILESIZE = 27;
        MAXLINK = 28;
        MAXNAME = 29;
        MAXREAD = 30;
        MAXWRITE = 31;
        MIMETYPE = 32;
        MODE = 33;
        NO_TRUNC = 34;
        NUMLINKS = 35;
        OWNER = 36;
        OWNER_GROUP = 37;
        QUOTA_AVAIL_HARD = 38;
        QUOTA_AVAIL_SOFT = 39;
        QUOTA_USED = 40;
        RAWDEV = 41;
        SPACE_AVAIL = 42;
        SPACE_FREE = 43;
        SPACE_TOTAL = 44;
        SPACE_USED = 45;
        SYSTEM = 46;
        TIME_ACCESS = 47;
        TIME_ACCESS_SET = 48;
        TIME_BACKUP = 49;
        TIME_CREATE = 50;
        TIME_DELTA = 51;
        TIME_METADATA = 52;
        TIME_MODIFY = 53;
        TIME_MODIFY_SET = 54;
        MOUNTED_ON_FILEID = 55;
        DACL = 58;
        MODE_SET_MASKED = 74;
        SUPPATTR_EXCLCREAT = 75;
        FS_CHARSET_CAP = 76;
        CLONE_BLKSIZE = 77;
        SPACE_FREED = 78;
        CHANGE_ATTR_TYPE = 79;
        SEC_LABEL = 80;
        MODE_UMASK = 81;
        XATTR_SUPPORT = 82;
        TIME_DELEG_ACCESS = 84;
        TIME_DELEG_MODIFY = 85;
        OPEN_ARGUMENTS = 86;
    }
}

/// `stateid4` (RFC 8881 section 8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stateid {
    /// Counts changes of the state; 0 in a request of minor version 1 and up means the newest.
    pub seqid: u32,
    /// Names the state.
    pub other: [u8; 12],
}

impl Stateid {
    /// No open: READ, WRITE and SETATTR by themselves.
    pub const ANONYMOUS: Self = Self { seqid: 0, other: [0; 12] };
    /// No open, and READ may pass share deny modes.
    pub const READ_BYPASS: Self = Self { seqid: u32::MAX, other: [0xff; 12] };
    /// The current stateid of the COMPOUND (minor version 1 and up).
    pub const CURRENT: Self = Self { seqid: 1, other: [0; 12] };
    /// Never valid (minor version 1 and up).
    pub const INVALID: Self = Self { seqid: u32::MAX, other: [0; 12] };

    /// From the stream.
    pub fn decode(r: &mut Reader<'_>) -> XdrResult<Self> {
        Ok(Self { seqid: r.u32()?, other: r.fixed()? })
    }

    /// To the stream.
    pub fn encode(&self, w: &mut Writer) {
        w.u32(self.seqid);
        w.fixed(&self.other);
    }
}
