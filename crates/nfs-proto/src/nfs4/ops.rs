//! Arguments and results of every operation, named as in RFC 8881 and RFC 7862 without their common prefixes.

use wire::Parsed;

use super::attrs::{Bitmap4, Fattr4, Nfsace4};
use super::{
    ChangeInfo4, LIST_MAX, LockType4, NETADDR_MAX, Netaddr4, Nfsstat4, Nfstime4, OPAQUE_LIMIT,
    SESSIONID_SIZE, Specdata4, StableHow4, StateOwner4, Stateid4, UNLIMITED, VERIFIER_SIZE,
};
use crate::oncrpc::AuthSys;
use crate::xdr::{Bulk, Chain, Xdr, choice, structs, union};

mod pnfs;
mod session;

pub use super::{Component4, NfsFh4};
pub use pnfs::*;
pub use session::*;

/// Maximum length of an extended attribute's value, in bytes.
const XATTR_VALUE_MAX: usize = 1 << 24;

structs! {
    /// `ACCESS4resok`.
    #[derive(Copy)]
    pub struct Accessed {
        supported: u32,
        access: u32,
    }

    /// `CLOSE4args`.
    #[derive(Copy)]
    pub struct Close {
        seqid: u32,
        open_stateid: Stateid4,
    }

    /// `COMMIT4args`.
    #[derive(Copy)]
    pub struct Commit {
        offset: u64,
        count: u32,
    }

    /// `CREATE4args`.
    #[derive(Copy)]
    pub struct Create<'a> {
        objtype: Createtype4<'a>,
        objname: &'a [u8] as UNLIMITED,
        createattrs: Fattr4<'a>,
    }

    /// `CREATE4resok`.
    #[derive(Copy)]
    pub struct Created {
        cinfo: ChangeInfo4,
        attrset: Bitmap4,
    }

    /// `open_to_lock_owner4`.
    #[derive(Copy)]
    pub struct OpenToLockOwner4<'a> {
        open_seqid: u32,
        open_stateid: Stateid4,
        lock_seqid: u32,
        lock_owner: StateOwner4<'a>,
    }

    /// `exist_lock_owner4`.
    #[derive(Copy)]
    pub struct ExistLockOwner4 {
        lock_stateid: Stateid4,
        lock_seqid: u32,
    }

    /// `LOCK4args`.
    #[derive(Copy)]
    pub struct Lock<'a> {
        locktype: LockType4,
        reclaim: bool,
        offset: u64,
        length: u64,
        locker: Locker4<'a>,
    }

    /// `LOCK4denied`.
    #[derive(Copy)]
    pub struct LockDenied<'a> {
        offset: u64,
        length: u64,
        locktype: LockType4,
        owner: StateOwner4<'a>,
    }

    /// `LOCKT4args`.
    #[derive(Copy)]
    pub struct Lockt<'a> {
        locktype: LockType4,
        offset: u64,
        length: u64,
        owner: StateOwner4<'a>,
    }

    /// `LOCKU4args`.
    #[derive(Copy)]
    pub struct Locku {
        locktype: LockType4,
        seqid: u32,
        lock_stateid: Stateid4,
        offset: u64,
        length: u64,
    }

    /// `creatverfattr`.
    #[derive(Copy)]
    pub struct Creatverfattr<'a> {
        cva_verf: [u8; VERIFIER_SIZE],
        cva_attrs: Fattr4<'a>,
    }

    /// `open_claim_delegate_cur4`.
    #[derive(Copy)]
    pub struct ClaimDelegateCur<'a> {
        delegate_stateid: Stateid4,
        file: &'a [u8] as UNLIMITED,
    }

    /// `OPEN4args`.
    #[derive(Copy)]
    pub struct Open<'a> {
        seqid: u32,
        share_access: u32,
        share_deny: u32,
        owner: StateOwner4<'a>,
        openhow: Openflag4<'a>,
        claim: OpenClaim4<'a>,
    }

    /// `open_read_delegation4`.
    #[derive(Copy)]
    pub struct ReadDelegation<'a> {
        stateid: Stateid4,
        recall: bool,
        permissions: Nfsace4<'a>,
    }

    /// `nfs_modified_limit4`.
    #[derive(Copy)]
    pub struct ModifiedLimit4 {
        num_blocks: u32,
        bytes_per_block: u32,
    }

    /// `open_write_delegation4`.
    #[derive(Copy)]
    pub struct WriteDelegation<'a> {
        stateid: Stateid4,
        recall: bool,
        space_limit: SpaceLimit4,
        permissions: Nfsace4<'a>,
    }

    /// `OPEN4resok`.
    #[derive(Copy)]
    pub struct Opened<'a> {
        stateid: Stateid4,
        cinfo: ChangeInfo4,
        rflags: u32,
        attrset: Bitmap4,
        delegation: OpenDelegation4<'a>,
    }

    /// `OPEN_CONFIRM4args`.
    #[derive(Copy)]
    pub struct OpenConfirm {
        open_stateid: Stateid4,
        seqid: u32,
    }

    /// `OPEN_DOWNGRADE4args`.
    #[derive(Copy)]
    pub struct OpenDowngrade {
        open_stateid: Stateid4,
        seqid: u32,
        share_access: u32,
        share_deny: u32,
    }

    /// `READ4args`, also the arguments of READ_PLUS.
    #[derive(Copy)]
    pub struct Read {
        stateid: Stateid4,
        offset: u64,
        count: u32,
    }

    /// `READ4resok`, up to its data.
    #[derive(Copy)]
    pub struct ReadDone {
        eof: bool,
        data: Bulk as UNLIMITED,
    }

    /// `READDIR4args`.
    #[derive(Copy)]
    pub struct Readdir {
        cookie: u64,
        cookieverf: [u8; VERIFIER_SIZE],
        dircount: u32,
        maxcount: u32,
        attr_request: Bitmap4,
    }

    /// `entry4`.
    #[derive(Copy)]
    pub struct Entry4<'a> {
        cookie: u64,
        name: &'a [u8] as UNLIMITED,
        attrs: Fattr4<'a>,
    }

    /// `READDIR4resok` with `dirlist4`.
    pub struct Listing<'a> {
        cookieverf: [u8; VERIFIER_SIZE],
        entries: Chain<Entry4<'a>> as LIST_MAX,
        eof: bool,
    }

    /// `READLINK4resok`, up to the link's target.
    #[derive(Copy)]
    pub struct ReadlinkDone {
        link: Bulk as UNLIMITED,
    }

    /// `RENAME4args`.
    #[derive(Copy)]
    pub struct Rename<'a> {
        oldname: &'a [u8] as UNLIMITED,
        newname: &'a [u8] as UNLIMITED,
    }

    /// `RENAME4resok`.
    #[derive(Copy)]
    pub struct Renamed {
        source_cinfo: ChangeInfo4,
        target_cinfo: ChangeInfo4,
    }

    /// `rpcsec_gss_info`.
    #[derive(Copy)]
    pub struct RpcsecGssInfo<'a> {
        oid: &'a [u8] as OPAQUE_LIMIT,
        qop: u32,
        service: u32,
    }

    /// `SECINFO4resok`.
    pub struct Secinfos<'a> {
        secinfo: Vec<Secinfo4<'a>> as LIST_MAX,
    }

    /// `SETATTR4args`.
    #[derive(Copy)]
    pub struct Setattr<'a> {
        stateid: Stateid4,
        obj_attributes: Fattr4<'a>,
    }

    /// `SETATTR4res`: contains the attributes that were set even on failure.
    #[derive(Copy)]
    pub struct SetattrDone {
        status: Nfsstat4,
        attrsset: Bitmap4,
    }

    /// `SETCLIENTID4args`.
    #[derive(Copy)]
    pub struct Setclientid<'a> {
        verifier: [u8; VERIFIER_SIZE],
        id: &'a [u8] as OPAQUE_LIMIT,
        cb_program: u32,
        cb_location: Netaddr4<'a>,
        callback_ident: u32,
    }

    /// `SETCLIENTID4resok`, and the arguments of SETCLIENTID_CONFIRM.
    #[derive(Copy)]
    pub struct ClientidConfirm {
        clientid: u64,
        confirm: [u8; VERIFIER_SIZE],
    }

    /// `WRITE4args`, up to its data.
    #[derive(Copy)]
    pub struct Write {
        stateid: Stateid4,
        offset: u64,
        stable: StableHow4,
        data: Bulk as UNLIMITED,
    }

    /// `WRITE4resok`.
    #[derive(Copy)]
    pub struct Written {
        count: u32,
        committed: StableHow4,
        writeverf: [u8; VERIFIER_SIZE],
    }

    /// `TEST_STATEID4args`.
    pub struct TestStateid {
        stateids: Vec<Stateid4> as UNLIMITED,
    }

    /// `TEST_STATEID4resok`.
    pub struct Tested {
        status_codes: Vec<Nfsstat4> as UNLIMITED,
    }

    /// `ALLOCATE4args`, `DEALLOCATE4args`.
    #[derive(Copy)]
    pub struct Allocate {
        stateid: Stateid4,
        offset: u64,
        length: u64,
    }

    /// `COPY4args`.
    pub struct Copy4<'a> {
        src_stateid: Stateid4,
        dst_stateid: Stateid4,
        src_offset: u64,
        dst_offset: u64,
        count: u64,
        consecutive: bool,
        synchronous: bool,
        source_server: Vec<Netloc4<'a>> as LIST_MAX,
    }

    /// `write_response4`.
    pub struct WriteResponse4 {
        callback_id: Vec<Stateid4> as 1,
        count: u64,
        committed: StableHow4,
        writeverf: [u8; VERIFIER_SIZE],
    }

    /// `copy_requirements4`.
    #[derive(Copy)]
    pub struct CopyRequirements4 {
        consecutive: bool,
        synchronous: bool,
    }

    /// `COPY4resok`.
    pub struct Copied {
        response: WriteResponse4,
        requirements: CopyRequirements4,
    }

    /// `COPY_NOTIFY4args`.
    #[derive(Copy)]
    pub struct CopyNotify<'a> {
        src_stateid: Stateid4,
        destination_server: Netloc4<'a>,
    }

    /// `COPY_NOTIFY4resok`.
    pub struct CopyNotified<'a> {
        lease_time: Nfstime4,
        stateid: Stateid4,
        source_server: Vec<Netloc4<'a>> as LIST_MAX,
    }

    /// `IO_ADVISE4args`.
    #[derive(Copy)]
    pub struct IoAdvise {
        stateid: Stateid4,
        offset: u64,
        count: u64,
        hints: Bitmap4,
    }

    /// `OFFLOAD_STATUS4resok`.
    pub struct OffloadStatus {
        count: u64,
        complete: Vec<Nfsstat4> as 1,
    }

    /// `data4`.
    #[derive(Copy)]
    pub struct Data4<'a> {
        offset: u64,
        data: &'a [u8] as UNLIMITED,
    }

    /// `data_info4`: a hole.
    #[derive(Copy)]
    pub struct Hole4 {
        offset: u64,
        length: u64,
    }

    /// `read_plus_res4`.
    pub struct ReadPlusDone<'a> {
        eof: bool,
        contents: Vec<ReadPlusContent<'a>> as LIST_MAX,
    }

    /// `SEEK4args`.
    #[derive(Copy)]
    pub struct Seek {
        stateid: Stateid4,
        offset: u64,
        /// NFS4_CONTENT_DATA or NFS4_CONTENT_HOLE.
        what: u32,
    }

    /// `seek_res4`.
    #[derive(Copy)]
    pub struct Sought {
        eof: bool,
        offset: u64,
    }

    /// `app_data_block4`.
    #[derive(Copy)]
    pub struct AppDataBlock4<'a> {
        offset: u64,
        block_size: u64,
        block_count: u64,
        reloff_blocknum: u64,
        block_num: u32,
        reloff_pattern: u64,
        pattern: &'a [u8] as UNLIMITED,
    }

    /// `WRITE_SAME4args`.
    #[derive(Copy)]
    pub struct WriteSame<'a> {
        stateid: Stateid4,
        stable: StableHow4,
        adb: AppDataBlock4<'a>,
    }

    /// `CLONE4args`.
    #[derive(Copy)]
    pub struct Clone4 {
        src_stateid: Stateid4,
        dst_stateid: Stateid4,
        src_offset: u64,
        dst_offset: u64,
        count: u64,
    }

    /// `GETXATTR4resok`.
    #[derive(Copy)]
    pub struct Xattr<'a> {
        value: &'a [u8] as XATTR_VALUE_MAX,
    }

    /// `SETXATTR4args`.
    #[derive(Copy)]
    pub struct Setxattr<'a> {
        /// SETXATTR4_EITHER, _CREATE or _REPLACE.
        option: u32,
        key: &'a [u8] as UNLIMITED,
        value: &'a [u8] as UNLIMITED,
    }

    /// `LISTXATTRS4args`.
    #[derive(Copy)]
    pub struct Listxattrs {
        cookie: u64,
        maxcount: u32,
    }

    /// `LISTXATTRS4resok`.
    pub struct Xattrs<'a> {
        cookie: u64,
        names: Vec<Component4<'a>> as LIST_MAX,
        eof: bool,
    }
}

union! {
    /// `locker4`.
    #[derive(Copy)]
    pub enum Locker4<'a> switch "new_lock_owner" {
        0 => Exist(ExistLockOwner4),
        1 => Open(OpenToLockOwner4<'a>),
    }

    /// `createhow4`.
    #[derive(Copy)]
    pub enum Createhow4<'a> switch "createmode4" {
        0 => Unchecked(Fattr4<'a>),
        1 => Guarded(Fattr4<'a>),
        2 => Exclusive([u8; VERIFIER_SIZE]),
        3 => Exclusive41(Creatverfattr<'a>),
    }

    /// `openflag4`.
    #[derive(Copy)]
    pub enum Openflag4<'a> switch "opentype" {
        0 => Nocreate,
        1 => Create(Createhow4<'a>),
    }

    /// `open_claim4`.
    #[derive(Copy)]
    pub enum OpenClaim4<'a> switch "claim" {
        0 => Null(&'a [u8] as UNLIMITED),
        1 => Previous(u32),
        2 => DelegateCur(ClaimDelegateCur<'a>),
        3 => DelegatePrev(&'a [u8] as UNLIMITED),
        4 => Fh,
        5 => DelegCurFh(Stateid4),
        6 => DelegPrevFh,
    }

    /// `nfs_space_limit4`.
    #[derive(Copy)]
    pub enum SpaceLimit4 switch "limitby" {
        1 => Size(u64),
        2 => Blocks(ModifiedLimit4),
    }

    /// `open_none_delegation4`: the reason why no delegation was granted.
    #[derive(Copy)]
    pub enum NoneDelegation4 switch "ond_why" {
        0 => NotWanted,
        1 => Contention(bool),
        2 => Resource(bool),
        3 => NotSuppFtype,
        4 => WriteDelegNotSuppFtype,
        5 => NotSuppUpgrade,
        6 => NotSuppDowngrade,
        7 => Cancelled,
        8 => IsDir,
    }

    /// `open_delegation4`, including delegations of attributes (RFC 9754).
    #[derive(Copy)]
    pub enum OpenDelegation4<'a> switch "delegation_type" {
        0 => None,
        1 => Read(ReadDelegation<'a>),
        2 => Write(WriteDelegation<'a>),
        3 => NoneExt(NoneDelegation4),
        4 => ReadAttrs(ReadDelegation<'a>),
        5 => WriteAttrs(WriteDelegation<'a>),
    }

    /// `netloc4`.
    #[derive(Copy)]
    pub enum Netloc4<'a> switch "nl_type" {
        1 => Name(&'a [u8] as UNLIMITED),
        2 => Url(&'a [u8] as UNLIMITED),
        3 => Netaddr(Netaddr4<'a>),
    }

    /// `read_plus_content`.
    #[derive(Copy)]
    pub enum ReadPlusContent<'a> switch "rpc_content" {
        0 => Data(Data4<'a>),
        1 => Hole(Hole4),
    }
}

/// Declares a union of the specifications in which all other numbers have an empty arm.
macro_rules! with_default {
    ($(
        $(#[$meta:meta])*
        pub enum $name:ident<$lt:lifetime> switch $tag:literal {
            $( $number:literal => $variant:ident $(($ty:ty $(as $max:expr)?))? ),* $(,)?
        }
    )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // Names from the specification.
        pub enum $name<$lt> {
            $( $variant $(($ty))?, )*
            /// Another number, which has no data.
            Other(u32),
        }

        impl<'a> Xdr<'a> for $name<'a> {
            #[inline]
            fn field(_: &'static str, input: &'a [u8]) -> Parsed<'a, Self> {
                let (rest, number) = u32::field($tag, input)?;
                match number {
                    $( $number => union!(@parse rest, $variant $(, $ty $(, $max)?)?), )*
                    other => Ok((rest, Self::Other(other))),
                }
            }

            #[inline]
            fn emit(&self, out: &mut Vec<u8>) {
                match self {
                    $( union!(@pattern value, $variant $(, $ty)?) => {
                        u32::emit(&$number, out);
                        $( union!(@emit value, out, $ty $(, $max)?); )?
                    } )*
                    Self::Other(number) => number.emit(out),
                }
            }
        }

        #[cfg(test)]
        impl<'a> crate::xdr::sample::Sample<'a> for $name<'a> {
            fn sample(seed: &mut crate::xdr::sample::Seed<'a>) -> Self {
                const NUMBERS: &[u32] = &[$($number,)* 77];
                match NUMBERS[seed.below(NUMBERS.len())] {
                    $( $number => union!(@sample seed, $variant $(, $ty $(, $max)?)?), )*
                    other => Self::Other(other),
                }
            }
        }
    )* };
}

with_default! {
    /// `createtype4`: the type of object that CREATE creates.
    pub enum Createtype4<'a> switch "type" {
        2 => Dir,
        3 => Blk(Specdata4),
        4 => Chr(Specdata4),
        5 => Lnk(&'a [u8] as UNLIMITED),
        6 => Sock,
        7 => Fifo,
    }

    /// `secinfo4`: a security flavor.
    pub enum Secinfo4<'a> switch "flavor" {
        6 => RpcsecGss(RpcsecGssInfo<'a>),
    }
}

/// The result of most operations: NFS4_OK with its data, or an error status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Res<T> {
    /// NFS4_OK.
    Ok(T),
    /// The error status.
    Err(Nfsstat4),
}

/// The result of an operation with one error that has data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResWith<T, F, const STATUS: u32> {
    /// NFS4_OK.
    Ok(T),
    /// The error with this status.
    With(F),
    /// Another error.
    Err(Nfsstat4),
}

impl<'a, T: Xdr<'a>> Xdr<'a> for Res<T> {
    #[inline]
    fn field(name: &'static str, input: &'a [u8]) -> Parsed<'a, Self> {
        match Nfsstat4::field("status", input)? {
            (rest, Nfsstat4::Ok) => T::field(name, rest).map(|(rest, ok)| (rest, Self::Ok(ok))),
            (rest, status) => Ok((rest, Self::Err(status))),
        }
    }

    #[inline]
    fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ok(ok) => {
                Nfsstat4::Ok.emit(out);
                ok.emit(out);
            }
            Self::Err(status) => status.emit(out),
        }
    }
}

impl<'a, T: Xdr<'a>, F: Xdr<'a>, const STATUS: u32> Xdr<'a> for ResWith<T, F, STATUS> {
    #[inline]
    fn field(name: &'static str, input: &'a [u8]) -> Parsed<'a, Self> {
        match Nfsstat4::field("status", input)? {
            (rest, Nfsstat4::Ok) => T::field(name, rest).map(|(rest, ok)| (rest, Self::Ok(ok))),
            (rest, status) if status as u32 == STATUS => {
                F::field(name, rest).map(|(rest, with)| (rest, Self::With(with)))
            }
            (rest, status) => Ok((rest, Self::Err(status))),
        }
    }

    #[inline]
    fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ok(ok) => {
                Nfsstat4::Ok.emit(out);
                ok.emit(out);
            }
            Self::With(with) => {
                STATUS.emit(out);
                with.emit(out);
            }
            Self::Err(status) => status.emit(out),
        }
    }
}

const DENIED: u32 = Nfsstat4::Denied as u32;
const CLID_INUSE: u32 = Nfsstat4::ClidInUse as u32;
const TOOSMALL: u32 = Nfsstat4::TooSmall as u32;
const TRYLATER: u32 = Nfsstat4::LayoutTryLater as u32;
const NO_REQS: u32 = Nfsstat4::OffloadNoReqs as u32;

choice! {
    /// Arguments, selected by the operation number.
    pub enum Args<'a> {
        3 => Access(u32),
        4 => Close(Close),
        5 => Commit(Commit),
        6 => Create(Create<'a>),
        7 => Delegpurge(u64),
        8 => Delegreturn(Stateid4),
        9 => Getattr(Bitmap4),
        10 => Getfh,
        11 => Link(Component4<'a>),
        12 => Lock(Lock<'a>),
        13 => Lockt(Lockt<'a>),
        14 => Locku(Locku),
        15 => Lookup(Component4<'a>),
        16 => Lookupp,
        17 => Nverify(Fattr4<'a>),
        18 => Open(Open<'a>),
        19 => Openattr(bool),
        20 => OpenConfirm(OpenConfirm),
        21 => OpenDowngrade(OpenDowngrade),
        22 => Putfh(NfsFh4<'a>),
        23 => Putpubfh,
        24 => Putrootfh,
        25 => Read(Read),
        26 => Readdir(Readdir),
        27 => Readlink,
        28 => Remove(Component4<'a>),
        29 => Rename(Rename<'a>),
        30 => Renew(u64),
        31 => Restorefh,
        32 => Savefh,
        33 => Secinfo(Component4<'a>),
        34 => Setattr(Setattr<'a>),
        35 => Setclientid(Setclientid<'a>),
        36 => SetclientidConfirm(ClientidConfirm),
        37 => Verify(Fattr4<'a>),
        38 => Write(Write),
        39 => ReleaseLockowner(StateOwner4<'a>),
        40 => BackchannelCtl(BackchannelCtl<'a>),
        41 => BindConnToSession(BindConnToSession),
        42 => ExchangeId(ExchangeId<'a>),
        43 => CreateSession(CreateSession<'a>),
        44 => DestroySession([u8; SESSIONID_SIZE]),
        45 => FreeStateid(Stateid4),
        46 => GetDirDelegation(GetDirDelegation),
        47 => Getdeviceinfo(Getdeviceinfo),
        48 => Getdevicelist(Getdevicelist),
        49 => Layoutcommit(Layoutcommit<'a>),
        50 => Layoutget(Layoutget),
        51 => Layoutreturn(Layoutreturn<'a>),
        52 => SecinfoNoName(u32),
        53 => Sequence(Sequence),
        54 => SetSsv(SetSsv<'a>),
        55 => TestStateid(TestStateid),
        56 => WantDelegation(WantDelegation),
        57 => DestroyClientid(u64),
        58 => ReclaimComplete(bool),
        59 => Allocate(Allocate),
        60 => Copy(Copy4<'a>),
        61 => CopyNotify(CopyNotify<'a>),
        62 => Deallocate(Allocate),
        63 => IoAdvise(IoAdvise),
        64 => Layouterror(Layouterror),
        65 => Layoutstats(Layoutstats<'a>),
        66 => OffloadCancel(Stateid4),
        67 => OffloadStatus(Stateid4),
        68 => ReadPlus(Read),
        69 => Seek(Seek),
        70 => WriteSame(WriteSame<'a>),
        71 => Clone(Clone4),
        72 => Getxattr(Component4<'a>),
        73 => Setxattr(Setxattr<'a>),
        74 => Listxattrs(Listxattrs),
        75 => Removexattr(Component4<'a>),
    }

    /// Results, selected by the operation number.
    pub enum Results<'a> {
        /// Results with only a status.
        7 | 8 | 15 | 16 | 17 | 19 | 22 | 23 | 24 | 30 | 31 | 32 | 36 | 37 | 39 | 40 | 44 | 45 | 57 | 58 | 59 | 62
            | 64 | 65 | 66 | 71 | 10044 => Status(Nfsstat4),
        3 => Access(Res<Accessed>),
        4 | 14 | 20 | 21 => Stateid(Res<Stateid4>),
        5 => Commit(Res<[u8; VERIFIER_SIZE]>),
        6 => Create(Res<Created>),
        9 => Getattr(Res<Fattr4<'a>>),
        10 => Getfh(Res<NfsFh4<'a>>),
        11 | 28 | 73 | 75 => ChangeInfo(Res<ChangeInfo4>),
        12 => Lock(ResWith<Stateid4, LockDenied<'a>, DENIED>),
        13 => Lockt(ResWith<(), LockDenied<'a>, DENIED>),
        18 => Open(Res<Opened<'a>>),
        25 => Read(Res<ReadDone>),
        26 => Readdir(Res<Listing<'a>>),
        27 => Readlink(Res<ReadlinkDone>),
        29 => Rename(Res<Renamed>),
        33 | 52 => Secinfo(Res<Secinfos<'a>>),
        34 => Setattr(SetattrDone),
        35 => Setclientid(ResWith<ClientidConfirm, Netaddr4<'a>, CLID_INUSE>),
        38 => Write(Res<Written>),
        41 => BindConnToSession(Res<BindConnToSession>),
        42 => ExchangeId(Res<Exchanged<'a>>),
        43 => CreateSession(Res<SessionCreated>),
        46 => GetDirDelegation(Res<DirDelegation4>),
        47 => Getdeviceinfo(ResWith<Deviceinfo<'a>, u32, TOOSMALL>),
        48 => Getdevicelist(Res<Devicelist>),
        49 => Layoutcommit(Res<Option<u64>>),
        50 => Layoutget(ResWith<Layouts<'a>, bool, TRYLATER>),
        51 => Layoutreturn(Res<Option<Stateid4>>),
        53 => Sequence(Res<Sequenced>),
        54 => SetSsv(Res<Digest<'a>>),
        55 => TestStateid(Res<Tested>),
        56 => WantDelegation(Res<OpenDelegation4<'a>>),
        60 => Copy(ResWith<Copied, CopyRequirements4, NO_REQS>),
        61 => CopyNotify(Res<CopyNotified<'a>>),
        63 => IoAdvise(Res<Bitmap4>),
        67 => OffloadStatus(Res<OffloadStatus>),
        68 => ReadPlus(Res<ReadPlusDone<'a>>),
        69 => Seek(Res<Sought>),
        70 => WriteSame(Res<WriteResponse4>),
        72 => Getxattr(Res<Xattr<'a>>),
        74 => Listxattrs(Res<Xattrs<'a>>),
    }
}

/// Parses an operation of a COMPOUND: its number and its arguments, `None` for an unknown operation.
///
/// # Errors
///
/// The first field that breaks a rule.
#[inline]
pub fn argop(input: &[u8]) -> Parsed<'_, (u32, Option<Args<'_>>)> {
    let (rest, number) = u32::field("argop", input)?;
    let (rest, args) = Args::parse(number, rest)?;
    Ok((rest, (number, args)))
}
