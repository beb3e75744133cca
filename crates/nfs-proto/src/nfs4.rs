//! NFS version 4: minor versions 0 (RFC 7531), 1 (RFC 5662) and 2 (RFC 7863), with the additions of RFC 8275, RFC 8276 and RFC
//! 9754.
//!
//! A COMPOUND is a [`Compound`] followed by operations, each an opcode and its [`ops::Args`]; its reply is a [`Compounded`]
//! followed by opcodes and [`ops::Results`]. Operations are parsed one by one, because the data of a WRITE or READ may be outside
//! of the message.

use crate::xdr::{numbers, structs};

pub mod attrs;
pub mod cb;
pub mod ops;

/// Version of the RPC program.
pub const VERSION: u32 = 4;
/// NFSPROC4_COMPOUND; the only other procedure is NULL.
pub const PROC_COMPOUND: u32 = 1;
/// The highest minor version.
pub const MINOR_MAX: u32 = 2;
/// Maximum length of a file handle, in bytes.
pub const FHSIZE: usize = 128;
/// Length of a verifier, in bytes.
pub const VERIFIER_SIZE: usize = 8;
/// Maximum length of the opaque identity of a client or owner, in bytes.
pub const OPAQUE_LIMIT: usize = 1024;
/// Length of a session id, in bytes.
pub const SESSIONID_SIZE: usize = 16;
/// Length of `stateid4`, in bytes.
pub const STATEID_SIZE: usize = 16;
/// Maximum length of a network id or universal address, in bytes.
pub const NETADDR_MAX: usize = 256;
/// Limit of `component4`, `linktext4`, tags and data, which only the message length bounds.
pub const UNLIMITED: usize = u32::MAX as usize;
/// Maximum number of elements accepted in lists without a specific limit.
pub const LIST_MAX: usize = 1 << 16;

/// Operation numbers (`nfs_opnum4`).
pub mod op {
    macro_rules! ops {
        ($($name:ident = $value:literal;)*) => {
            $(#[doc = concat!("OP_", stringify!($name))] pub const $name: u32 = $value;)*

            /// Returns the name of an operation, for logs and counters.
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
        FS_STATUS = 61;
        FS_LOCATIONS_INFO = 67;
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

/// Calls a macro with the names, numbers and documentation of [`Nfsstat4`](crate::nfs4::Nfsstat4), so that a server can define its
/// own type with the same values.
#[macro_export]
macro_rules! nfsstat4s {
    ($callback:ident) => {
        $callback! {
            /// NFS4_OK
            Ok = 0,
            /// NFS4ERR_PERM
            Perm = 1,
            /// NFS4ERR_NOENT
            NoEnt = 2,
            /// NFS4ERR_IO
            Io = 5,
            /// NFS4ERR_NXIO
            Nxio = 6,
            /// NFS4ERR_ACCESS
            Access = 13,
            /// NFS4ERR_EXIST
            Exist = 17,
            /// NFS4ERR_XDEV
            Xdev = 18,
            /// NFS4ERR_NOTDIR
            NotDir = 20,
            /// NFS4ERR_ISDIR
            IsDir = 21,
            /// NFS4ERR_INVAL
            Inval = 22,
            /// NFS4ERR_FBIG
            FBig = 27,
            /// NFS4ERR_NOSPC
            NoSpc = 28,
            /// NFS4ERR_ROFS
            RoFs = 30,
            /// NFS4ERR_MLINK
            MLink = 31,
            /// NFS4ERR_NAMETOOLONG
            NameTooLong = 63,
            /// NFS4ERR_NOTEMPTY
            NotEmpty = 66,
            /// NFS4ERR_DQUOT
            DQuot = 69,
            /// NFS4ERR_STALE
            Stale = 70,
            /// NFS4ERR_BADHANDLE
            BadHandle = 10001,
            /// NFS4ERR_BAD_COOKIE
            BadCookie = 10003,
            /// NFS4ERR_NOTSUPP
            NotSupp = 10004,
            /// NFS4ERR_TOOSMALL
            TooSmall = 10005,
            /// NFS4ERR_SERVERFAULT
            ServerFault = 10006,
            /// NFS4ERR_BADTYPE
            BadType = 10007,
            /// NFS4ERR_DELAY
            Delay = 10008,
            /// NFS4ERR_SAME
            Same = 10009,
            /// NFS4ERR_DENIED
            Denied = 10010,
            /// NFS4ERR_EXPIRED
            Expired = 10011,
            /// NFS4ERR_LOCKED
            Locked = 10012,
            /// NFS4ERR_GRACE
            Grace = 10013,
            /// NFS4ERR_FHEXPIRED
            FhExpired = 10014,
            /// NFS4ERR_SHARE_DENIED
            ShareDenied = 10015,
            /// NFS4ERR_WRONGSEC
            WrongSec = 10016,
            /// NFS4ERR_CLID_INUSE
            ClidInUse = 10017,
            /// NFS4ERR_RESOURCE: only in minor version 0
            Resource = 10018,
            /// NFS4ERR_MOVED
            Moved = 10019,
            /// NFS4ERR_NOFILEHANDLE
            NoFileHandle = 10020,
            /// NFS4ERR_MINOR_VERS_MISMATCH
            MinorVersMismatch = 10021,
            /// NFS4ERR_STALE_CLIENTID
            StaleClientId = 10022,
            /// NFS4ERR_STALE_STATEID
            StaleStateId = 10023,
            /// NFS4ERR_OLD_STATEID
            OldStateId = 10024,
            /// NFS4ERR_BAD_STATEID
            BadStateId = 10025,
            /// NFS4ERR_BAD_SEQID
            BadSeqId = 10026,
            /// NFS4ERR_NOT_SAME
            NotSame = 10027,
            /// NFS4ERR_LOCK_RANGE
            LockRange = 10028,
            /// NFS4ERR_SYMLINK
            Symlink = 10029,
            /// NFS4ERR_RESTOREFH
            RestoreFh = 10030,
            /// NFS4ERR_LEASE_MOVED
            LeaseMoved = 10031,
            /// NFS4ERR_ATTRNOTSUPP
            AttrNotSupp = 10032,
            /// NFS4ERR_NO_GRACE
            NoGrace = 10033,
            /// NFS4ERR_RECLAIM_BAD
            ReclaimBad = 10034,
            /// NFS4ERR_RECLAIM_CONFLICT
            ReclaimConflict = 10035,
            /// NFS4ERR_BADXDR
            BadXdr = 10036,
            /// NFS4ERR_LOCKS_HELD
            LocksHeld = 10037,
            /// NFS4ERR_OPENMODE
            OpenMode = 10038,
            /// NFS4ERR_BADOWNER
            BadOwner = 10039,
            /// NFS4ERR_BADCHAR
            BadChar = 10040,
            /// NFS4ERR_BADNAME
            BadName = 10041,
            /// NFS4ERR_BAD_RANGE
            BadRange = 10042,
            /// NFS4ERR_LOCK_NOTSUPP
            LockNotSupp = 10043,
            /// NFS4ERR_OP_ILLEGAL
            OpIllegal = 10044,
            /// NFS4ERR_DEADLOCK
            Deadlock = 10045,
            /// NFS4ERR_FILE_OPEN
            FileOpen = 10046,
            /// NFS4ERR_ADMIN_REVOKED
            AdminRevoked = 10047,
            /// NFS4ERR_CB_PATH_DOWN
            CbPathDown = 10048,
            /// NFS4ERR_BADIOMODE
            BadIoMode = 10049,
            /// NFS4ERR_BADLAYOUT
            BadLayout = 10050,
            /// NFS4ERR_BAD_SESSION_DIGEST
            BadSessionDigest = 10051,
            /// NFS4ERR_BADSESSION
            BadSession = 10052,
            /// NFS4ERR_BADSLOT
            BadSlot = 10053,
            /// NFS4ERR_COMPLETE_ALREADY
            CompleteAlready = 10054,
            /// NFS4ERR_CONN_NOT_BOUND_TO_SESSION
            ConnNotBoundToSession = 10055,
            /// NFS4ERR_DELEG_ALREADY_WANTED
            DelegAlreadyWanted = 10056,
            /// NFS4ERR_BACK_CHAN_BUSY
            BackChanBusy = 10057,
            /// NFS4ERR_LAYOUTTRYLATER
            LayoutTryLater = 10058,
            /// NFS4ERR_LAYOUTUNAVAILABLE
            LayoutUnavailable = 10059,
            /// NFS4ERR_NOMATCHING_LAYOUT
            NoMatchingLayout = 10060,
            /// NFS4ERR_RECALLCONFLICT
            RecallConflict = 10061,
            /// NFS4ERR_UNKNOWN_LAYOUTTYPE
            UnknownLayoutType = 10062,
            /// NFS4ERR_SEQ_MISORDERED
            SeqMisordered = 10063,
            /// NFS4ERR_SEQUENCE_POS
            SequencePos = 10064,
            /// NFS4ERR_REQ_TOO_BIG
            ReqTooBig = 10065,
            /// NFS4ERR_REP_TOO_BIG
            RepTooBig = 10066,
            /// NFS4ERR_REP_TOO_BIG_TO_CACHE
            RepTooBigToCache = 10067,
            /// NFS4ERR_RETRY_UNCACHED_REP
            RetryUncachedRep = 10068,
            /// NFS4ERR_UNSAFE_COMPOUND
            UnsafeCompound = 10069,
            /// NFS4ERR_TOO_MANY_OPS
            TooManyOps = 10070,
            /// NFS4ERR_OP_NOT_IN_SESSION
            OpNotInSession = 10071,
            /// NFS4ERR_HASH_ALG_UNSUPP
            HashAlgUnsupp = 10072,
            /// NFS4ERR_CLIENTID_BUSY
            ClientIdBusy = 10074,
            /// NFS4ERR_PNFS_IO_HOLE
            PnfsIoHole = 10075,
            /// NFS4ERR_SEQ_FALSE_RETRY
            SeqFalseRetry = 10076,
            /// NFS4ERR_BAD_HIGH_SLOT
            BadHighSlot = 10077,
            /// NFS4ERR_DEADSESSION
            DeadSession = 10078,
            /// NFS4ERR_ENCR_ALG_UNSUPP
            EncrAlgUnsupp = 10079,
            /// NFS4ERR_PNFS_NO_LAYOUT
            PnfsNoLayout = 10080,
            /// NFS4ERR_NOT_ONLY_OP
            NotOnlyOp = 10081,
            /// NFS4ERR_WRONG_CRED
            WrongCred = 10082,
            /// NFS4ERR_WRONG_TYPE
            WrongType = 10083,
            /// NFS4ERR_DIRDELEG_UNAVAIL
            DirDelegUnavail = 10084,
            /// NFS4ERR_REJECT_DELEG
            RejectDeleg = 10085,
            /// NFS4ERR_RETURNCONFLICT
            ReturnConflict = 10086,
            /// NFS4ERR_DELEG_REVOKED
            DelegRevoked = 10087,
            /// NFS4ERR_PARTNER_NOTSUPP
            PartnerNotSupp = 10088,
            /// NFS4ERR_PARTNER_NO_AUTH
            PartnerNoAuth = 10089,
            /// NFS4ERR_UNION_NOTSUPP
            UnionNotSupp = 10090,
            /// NFS4ERR_OFFLOAD_DENIED
            OffloadDenied = 10091,
            /// NFS4ERR_WRONG_LFS
            WrongLfs = 10092,
            /// NFS4ERR_BADLABEL
            BadLabel = 10093,
            /// NFS4ERR_OFFLOAD_NO_REQS
            OffloadNoReqs = 10094,
            /// NFS4ERR_NOXATTR
            NoXattr = 10095,
            /// NFS4ERR_XATTR2BIG
            Xattr2Big = 10096,
        }
    };
}

macro_rules! declare {
    ($($(#[$doc:meta])* $name:ident = $number:literal),* $(,)?) => {
        numbers! {
            /// `nfsstat4` (RFC 7530 section 13, RFC 8881 section 15, RFC 7862 section 11, RFC 8276 section 8.1).
            pub enum Nfsstat4 { $($(#[$doc])* $name = $number),* }
        }
    };
}

nfsstat4s!(declare);

numbers! {
    /// `stable_how4`.
    pub enum StableHow4 {
        Unstable = 0,
        DataSync = 1,
        FileSync = 2,
    }

    /// `nfs_lock_type4`.
    pub enum LockType4 {
        Read = 1,
        Write = 2,
        /// READW_LT: the client wants to wait.
        ReadWait = 3,
        /// WRITEW_LT.
        WriteWait = 4,
    }
}

structs! {
    /// `component4`, the only argument of some operations, and any other `utf8string` that is a value.
    #[derive(Copy)]
    pub struct Component4<'a> {
        name: &'a [u8] as UNLIMITED,
    }

    /// `nfs_fh4`: PUTFH, GETFH, the attribute.
    #[derive(Copy)]
    pub struct NfsFh4<'a> {
        object: &'a [u8] as FHSIZE,
    }

    /// `stateid4` (RFC 8881 section 8.2).
    #[derive(Copy, Hash)]
    pub struct Stateid4 {
        /// Counts changes of the state; 0 in a request of minor version 1 or later means the newest.
        seqid: u32,
        /// Identifies the state.
        other: [u8; 12],
    }

    /// `change_info4`.
    #[derive(Copy)]
    pub struct ChangeInfo4 {
        atomic: bool,
        before: u64,
        after: u64,
    }

    /// `nfstime4`. Each operation must refuse nanoseconds above 999,999,999 (NFS4ERR_INVAL).
    #[derive(Copy, Default)]
    pub struct Nfstime4 {
        seconds: i64,
        nseconds: u32,
    }

    /// `fsid4`.
    #[derive(Copy)]
    pub struct Fsid4 {
        major: u64,
        minor: u64,
    }

    /// `specdata4`: a device number.
    #[derive(Copy)]
    pub struct Specdata4 {
        specdata1: u32,
        specdata2: u32,
    }

    /// `netaddr4`, also `clientaddr4`.
    #[derive(Copy)]
    pub struct Netaddr4<'a> {
        na_r_netid: &'a [u8] as NETADDR_MAX,
        na_r_addr: &'a [u8] as NETADDR_MAX,
    }

    /// `open_owner4`, `lock_owner4`: a state owner, named by the client.
    #[derive(Copy)]
    pub struct StateOwner4<'a> {
        clientid: u64,
        owner: &'a [u8] as OPAQUE_LIMIT,
    }

    /// `COMPOUND4args` up to the `argarray` operations.
    #[derive(Copy)]
    pub struct Compound<'a> {
        tag: &'a [u8] as UNLIMITED,
        minorversion: u32,
        argarray: u32,
    }

    /// `COMPOUND4res` up to the `resarray` results.
    #[derive(Copy)]
    pub struct Compounded<'a> {
        status: Nfsstat4,
        tag: &'a [u8] as UNLIMITED,
        resarray: u32,
    }
}

impl Stateid4 {
    /// READ, WRITE and SETATTR without an open.
    pub const ANONYMOUS: Self = Self { seqid: 0, other: [0; 12] };
    /// Without an open; READ may ignore share deny modes.
    pub const READ_BYPASS: Self = Self { seqid: u32::MAX, other: [0xff; 12] };
    /// The current stateid of the COMPOUND (minor version 1 or later).
    pub const CURRENT: Self = Self { seqid: 1, other: [0; 12] };
    /// Never valid (minor version 1 or later).
    pub const INVALID: Self = Self { seqid: u32::MAX, other: [0; 12] };
}

#[cfg(test)]
mod tests;
