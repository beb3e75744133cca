//! `nfsstat4`: the values of NFS 4.0, 4.1 and 4.2, and the one translation of [`VfsError`] to them.

use nfs_proto::nfs4::Nfsstat4;
use vfs::VfsError;

use wire::Fault;

macro_rules! statuses {
    ($($name:ident = $value:literal, $doc:literal;)*) => {
        /// The status of an operation (RFC 7530 section 13, RFC 8881 section 15, RFC 7862 section 11, RFC 8276
        /// section 8.1).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Status { $(#[doc = $doc] $name = $value,)* }

        impl Status {
            /// The status of this number.
            pub fn from_u32(value: u32) -> Option<Self> {
                match value { $($value => Some(Self::$name),)* _ => None }
            }
        }
    };
}

statuses! {
    Ok = 0, "NFS4_OK";
    Perm = 1, "NFS4ERR_PERM";
    NoEnt = 2, "NFS4ERR_NOENT";
    Io = 5, "NFS4ERR_IO";
    Nxio = 6, "NFS4ERR_NXIO";
    Access = 13, "NFS4ERR_ACCESS";
    Exist = 17, "NFS4ERR_EXIST";
    Xdev = 18, "NFS4ERR_XDEV";
    NotDir = 20, "NFS4ERR_NOTDIR";
    IsDir = 21, "NFS4ERR_ISDIR";
    Inval = 22, "NFS4ERR_INVAL";
    FBig = 27, "NFS4ERR_FBIG";
    NoSpc = 28, "NFS4ERR_NOSPC";
    RoFs = 30, "NFS4ERR_ROFS";
    MLink = 31, "NFS4ERR_MLINK";
    NameTooLong = 63, "NFS4ERR_NAMETOOLONG";
    NotEmpty = 66, "NFS4ERR_NOTEMPTY";
    DQuot = 69, "NFS4ERR_DQUOT";
    Stale = 70, "NFS4ERR_STALE";
    BadHandle = 10001, "NFS4ERR_BADHANDLE";
    BadCookie = 10003, "NFS4ERR_BAD_COOKIE";
    NotSupp = 10004, "NFS4ERR_NOTSUPP";
    TooSmall = 10005, "NFS4ERR_TOOSMALL";
    ServerFault = 10006, "NFS4ERR_SERVERFAULT";
    BadType = 10007, "NFS4ERR_BADTYPE";
    Delay = 10008, "NFS4ERR_DELAY";
    Same = 10009, "NFS4ERR_SAME";
    Denied = 10010, "NFS4ERR_DENIED";
    Expired = 10011, "NFS4ERR_EXPIRED";
    Locked = 10012, "NFS4ERR_LOCKED";
    Grace = 10013, "NFS4ERR_GRACE";
    FhExpired = 10014, "NFS4ERR_FHEXPIRED";
    ShareDenied = 10015, "NFS4ERR_SHARE_DENIED";
    WrongSec = 10016, "NFS4ERR_WRONGSEC";
    ClidInUse = 10017, "NFS4ERR_CLID_INUSE";
    Resource = 10018, "NFS4ERR_RESOURCE: not of minor versions above 0";
    Moved = 10019, "NFS4ERR_MOVED";
    NoFileHandle = 10020, "NFS4ERR_NOFILEHANDLE";
    MinorVersMismatch = 10021, "NFS4ERR_MINOR_VERS_MISMATCH";
    StaleClientId = 10022, "NFS4ERR_STALE_CLIENTID";
    StaleStateId = 10023, "NFS4ERR_STALE_STATEID";
    OldStateId = 10024, "NFS4ERR_OLD_STATEID";
    BadStateId = 10025, "NFS4ERR_BAD_STATEID";
    BadSeqId = 10026, "NFS4ERR_BAD_SEQID";
    NotSame = 10027, "NFS4ERR_NOT_SAME";
    LockRange = 10028, "NFS4ERR_LOCK_RANGE";
    Symlink = 10029, "NFS4ERR_SYMLINK";
    RestoreFh = 10030, "NFS4ERR_RESTOREFH";
    LeaseMoved = 10031, "NFS4ERR_LEASE_MOVED";
    AttrNotSupp = 10032, "NFS4ERR_ATTRNOTSUPP";
    NoGrace = 10033, "NFS4ERR_NO_GRACE";
    ReclaimBad = 10034, "NFS4ERR_RECLAIM_BAD";
    ReclaimConflict = 10035, "NFS4ERR_RECLAIM_CONFLICT";
    BadXdr = 10036, "NFS4ERR_BADXDR";
    LocksHeld = 10037, "NFS4ERR_LOCKS_HELD";
    OpenMode = 10038, "NFS4ERR_OPENMODE";
    BadOwner = 10039, "NFS4ERR_BADOWNER";
    BadChar = 10040, "NFS4ERR_BADCHAR";
    BadName = 10041, "NFS4ERR_BADNAME";
    BadRange = 10042, "NFS4ERR_BAD_RANGE";
    LockNotSupp = 10043, "NFS4ERR_LOCK_NOTSUPP";
    OpIllegal = 10044, "NFS4ERR_OP_ILLEGAL";
    Deadlock = 10045, "NFS4ERR_DEADLOCK";
    FileOpen = 10046, "NFS4ERR_FILE_OPEN";
    AdminRevoked = 10047, "NFS4ERR_ADMIN_REVOKED";
    CbPathDown = 10048, "NFS4ERR_CB_PATH_DOWN";
    BadIoMode = 10049, "NFS4ERR_BADIOMODE";
    BadLayout = 10050, "NFS4ERR_BADLAYOUT";
    BadSessionDigest = 10051, "NFS4ERR_BAD_SESSION_DIGEST";
    BadSession = 10052, "NFS4ERR_BADSESSION";
    BadSlot = 10053, "NFS4ERR_BADSLOT";
    CompleteAlready = 10054, "NFS4ERR_COMPLETE_ALREADY";
    ConnNotBoundToSession = 10055, "NFS4ERR_CONN_NOT_BOUND_TO_SESSION";
    DelegAlreadyWanted = 10056, "NFS4ERR_DELEG_ALREADY_WANTED";
    BackChanBusy = 10057, "NFS4ERR_BACK_CHAN_BUSY";
    LayoutTryLater = 10058, "NFS4ERR_LAYOUTTRYLATER";
    LayoutUnavailable = 10059, "NFS4ERR_LAYOUTUNAVAILABLE";
    NoMatchingLayout = 10060, "NFS4ERR_NOMATCHING_LAYOUT";
    RecallConflict = 10061, "NFS4ERR_RECALLCONFLICT";
    UnknownLayoutType = 10062, "NFS4ERR_UNKNOWN_LAYOUTTYPE";
    SeqMisordered = 10063, "NFS4ERR_SEQ_MISORDERED";
    SequencePos = 10064, "NFS4ERR_SEQUENCE_POS";
    ReqTooBig = 10065, "NFS4ERR_REQ_TOO_BIG";
    RepTooBig = 10066, "NFS4ERR_REP_TOO_BIG";
    RepTooBigToCache = 10067, "NFS4ERR_REP_TOO_BIG_TO_CACHE";
    RetryUncachedRep = 10068, "NFS4ERR_RETRY_UNCACHED_REP";
    UnsafeCompound = 10069, "NFS4ERR_UNSAFE_COMPOUND";
    TooManyOps = 10070, "NFS4ERR_TOO_MANY_OPS";
    OpNotInSession = 10071, "NFS4ERR_OP_NOT_IN_SESSION";
    HashAlgUnsupp = 10072, "NFS4ERR_HASH_ALG_UNSUPP";
    ClientIdBusy = 10074, "NFS4ERR_CLIENTID_BUSY";
    PnfsIoHole = 10075, "NFS4ERR_PNFS_IO_HOLE";
    SeqFalseRetry = 10076, "NFS4ERR_SEQ_FALSE_RETRY";
    BadHighSlot = 10077, "NFS4ERR_BAD_HIGH_SLOT";
    DeadSession = 10078, "NFS4ERR_DEADSESSION";
    EncrAlgUnsupp = 10079, "NFS4ERR_ENCR_ALG_UNSUPP";
    PnfsNoLayout = 10080, "NFS4ERR_PNFS_NO_LAYOUT";
    NotOnlyOp = 10081, "NFS4ERR_NOT_ONLY_OP";
    WrongCred = 10082, "NFS4ERR_WRONG_CRED";
    WrongType = 10083, "NFS4ERR_WRONG_TYPE";
    DirDelegUnavail = 10084, "NFS4ERR_DIRDELEG_UNAVAIL";
    RejectDeleg = 10085, "NFS4ERR_REJECT_DELEG";
    ReturnConflict = 10086, "NFS4ERR_RETURNCONFLICT";
    DelegRevoked = 10087, "NFS4ERR_DELEG_REVOKED";
    PartnerNotSupp = 10088, "NFS4ERR_PARTNER_NOTSUPP";
    PartnerNoAuth = 10089, "NFS4ERR_PARTNER_NO_AUTH";
    UnionNotSupp = 10090, "NFS4ERR_UNION_NOTSUPP";
    OffloadDenied = 10091, "NFS4ERR_OFFLOAD_DENIED";
    WrongLfs = 10092, "NFS4ERR_WRONG_LFS";
    BadLabel = 10093, "NFS4ERR_BADLABEL";
    OffloadNoReqs = 10094, "NFS4ERR_OFFLOAD_NO_REQS";
    NoXattr = 10095, "NFS4ERR_NOXATTR";
    Xattr2Big = 10096, "NFS4ERR_XATTR2BIG";
}

impl Status {
    /// The number on the wire.
    pub fn to_u32(self) -> u32 {
        self as u32
    }
}

impl From<Fault> for Status {
    fn from(_: Fault) -> Self {
        Self::BadXdr
    }
}

impl From<Status> for Nfsstat4 {
    fn from(status: Status) -> Self {
        // Invariant: both have the same numbers, as a test says.
        Self::from_u32(status.to_u32()).unwrap_or(Self::ServerFault)
    }
}

impl From<Nfsstat4> for Status {
    fn from(status: Nfsstat4) -> Self {
        // Invariant: as above.
        Self::from_u32(status as u32).unwrap_or(Self::ServerFault)
    }
}

impl From<VfsError> for Status {
    fn from(e: VfsError) -> Self {
        match e {
            VfsError::Access => Self::Access,
            VfsError::Perm => Self::Perm,
            VfsError::NotFound => Self::NoEnt,
            VfsError::Exists => Self::Exist,
            VfsError::NotDir => Self::NotDir,
            VfsError::IsDir => Self::IsDir,
            VfsError::NotEmpty => Self::NotEmpty,
            VfsError::Symlink => Self::Symlink,
            // An operation on an object of the wrong type is INVAL in 4.0; the operations that name WRONG_TYPE in 4.1
            // check the type before they ask the volume.
            VfsError::WrongType | VfsError::Invalid => Self::Inval,
            VfsError::NameTooLong => Self::NameTooLong,
            VfsError::BadName => Self::BadChar,
            VfsError::TooBig => Self::FBig,
            VfsError::NoSpace => Self::NoSpc,
            VfsError::Quota => Self::DQuot,
            VfsError::ReadOnly => Self::RoFs,
            VfsError::CrossDevice => Self::Xdev,
            VfsError::TooManyLinks => Self::MLink,
            VfsError::Stale => Self::Stale,
            VfsError::BadHandle => Self::BadHandle,
            VfsError::BadCookie => Self::BadCookie,
            VfsError::NotSupported => Self::NotSupp,
            VfsError::NoXattr => Self::NoXattr,
            VfsError::XattrTooBig => Self::Xattr2Big,
            VfsError::NoMoreData => Self::Nxio,
            // RESOURCE exists in 4.0 only; DELAY tells every client to come back.
            VfsError::Delay | VfsError::Resources | VfsError::Cancelled => Self::Delay,
            VfsError::ShareDenied => Self::ShareDenied,
            VfsError::Locked => Self::Locked,
            // RFC 8881 section 15.1.4.3: for an operation on names that an open by another protocol forbids.
            VfsError::InUse => Self::FileOpen,
            VfsError::Io => Self::Io,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_one_on_the_wire_and_the_other_way_round() {
        for n in 0..11_000 {
            let (ours, wires) = (Status::from_u32(n), Nfsstat4::from_u32(n));
            assert_eq!(ours.map(Nfsstat4::from), wires, "{n}");
            assert_eq!(wires.map(Status::from), ours, "{n}");
        }
    }

    #[test]
    fn numbers_are_those_of_the_specifications() {
        assert_eq!(Status::Stale.to_u32(), 70);
        assert_eq!(Status::OpIllegal.to_u32(), 10044);
        assert_eq!(Status::DelegRevoked.to_u32(), 10087);
        assert_eq!(Status::Xattr2Big.to_u32(), 10096);
        // 19 was used by NFSv3 only, 10073 is unused.
        assert_eq!(Status::from_u32(19), None);
        assert_eq!(Status::from_u32(10073), None);
        for n in (0..200).chain(10_000..10_200) {
            assert!(Status::from_u32(n).is_none_or(|s| s.to_u32() == n));
        }
    }
}
