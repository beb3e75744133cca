//! NFS version 3 (RFC 1813). Handles and names are borrowed. The data of READ and WRITE, and the target of a symbolic link, are the
//! last field of their structure ([`Bulk`]).

use wire::{Parsed, Rule, reject};

use crate::xdr::{Bulk, Chain, Xdr, choice, numbers, structs, union};

pub mod acl;

/// Version of the RPC program.
pub const VERSION: u32 = 3;
/// Maximum length of a file handle, in bytes (NFS3_FHSIZE).
pub const FH_MAX: usize = 64;
/// Limit of `filename3` and `nfspath3`, which only the message length bounds.
pub const UNLIMITED: usize = u32::MAX as usize;
/// Maximum number of directory entries that are accepted from one reply.
pub const ENTRIES_MAX: usize = 1 << 16;

/// Procedure numbers (RFC 1813 section 3.3).
#[allow(missing_docs)] // Names from the specification, without NFSPROC3_.
pub mod procedure {
    pub const NULL: u32 = 0;
    pub const GETATTR: u32 = 1;
    pub const SETATTR: u32 = 2;
    pub const LOOKUP: u32 = 3;
    pub const ACCESS: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const READ: u32 = 6;
    pub const WRITE: u32 = 7;
    pub const CREATE: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const SYMLINK: u32 = 10;
    pub const MKNOD: u32 = 11;
    pub const REMOVE: u32 = 12;
    pub const RMDIR: u32 = 13;
    pub const RENAME: u32 = 14;
    pub const LINK: u32 = 15;
    pub const READDIR: u32 = 16;
    pub const READDIRPLUS: u32 = 17;
    pub const FSSTAT: u32 = 18;
    pub const FSINFO: u32 = 19;
    pub const PATHCONF: u32 = 20;
    pub const COMMIT: u32 = 21;
}

numbers! {
    /// `nfsstat3` except NFS3_OK (RFC 1813 section 2.6).
    pub enum Nfsstat3 {
        Perm = 1,
        Noent = 2,
        Io = 5,
        Nxio = 6,
        Acces = 13,
        Exist = 17,
        Xdev = 18,
        Nodev = 19,
        Notdir = 20,
        Isdir = 21,
        Inval = 22,
        Fbig = 27,
        Nospc = 28,
        Rofs = 30,
        Mlink = 31,
        Nametoolong = 63,
        Notempty = 66,
        Dquot = 69,
        Stale = 70,
        Remote = 71,
        Badhandle = 10001,
        NotSync = 10002,
        BadCookie = 10003,
        Notsupp = 10004,
        Toosmall = 10005,
        Serverfault = 10006,
        Badtype = 10007,
        Jukebox = 10008,
    }

    /// `ftype3`.
    pub enum Ftype3 {
        Reg = 1,
        Dir = 2,
        Blk = 3,
        Chr = 4,
        Lnk = 5,
        Sock = 6,
        Fifo = 7,
    }

    /// `stable_how`.
    pub enum StableHow {
        Unstable = 0,
        DataSync = 1,
        FileSync = 2,
    }
}

structs! {
    /// `specdata3`: a device number.
    #[derive(Copy, Default)]
    pub struct Specdata3 {
        specdata1: u32,
        specdata2: u32,
    }

    /// `fattr3`.
    #[derive(Copy)]
    pub struct Fattr3 {
        ftype: Ftype3,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        size: u64,
        used: u64,
        rdev: Specdata3,
        fsid: u64,
        fileid: u64,
        atime: Nfstime3,
        mtime: Nfstime3,
        ctime: Nfstime3,
    }

    /// `wcc_attr`.
    #[derive(Copy)]
    pub struct WccAttr {
        size: u64,
        mtime: Nfstime3,
        ctime: Nfstime3,
    }

    /// `wcc_data`.
    #[derive(Copy, Default)]
    pub struct WccData {
        before: Option<WccAttr>,
        after: Option<Fattr3>,
    }

    /// `sattr3`.
    #[derive(Copy, Default)]
    pub struct Sattr3 {
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: SetTime,
        mtime: SetTime,
    }

    /// `diropargs3`: a name in a directory.
    #[derive(Copy)]
    pub struct Diropargs3<'a> {
        dir: &'a [u8] as FH_MAX,
        name: &'a [u8] as UNLIMITED,
    }

    /// `nfs_fh3`, the only argument of some procedures.
    #[derive(Copy)]
    pub struct NfsFh3<'a> {
        data: &'a [u8] as FH_MAX,
    }

    /// `SETATTR3args`.
    #[derive(Copy)]
    pub struct Setattr3args<'a> {
        object: &'a [u8] as FH_MAX,
        new_attributes: Sattr3,
        guard: Option<Nfstime3>,
    }

    /// `ACCESS3args`.
    #[derive(Copy)]
    pub struct Access3args<'a> {
        object: &'a [u8] as FH_MAX,
        access: u32,
    }

    /// `READ3args`.
    #[derive(Copy)]
    pub struct Read3args<'a> {
        file: &'a [u8] as FH_MAX,
        offset: u64,
        count: u32,
    }

    /// `WRITE3args`, up to its data.
    #[derive(Copy)]
    pub struct Write3args<'a> {
        file: &'a [u8] as FH_MAX,
        offset: u64,
        count: u32,
        stable: StableHow,
        data: Bulk as UNLIMITED,
    }

    /// `CREATE3args`.
    #[derive(Copy)]
    pub struct Create3args<'a> {
        place: Diropargs3<'a>,
        how: Createhow3,
    }

    /// `MKDIR3args`.
    #[derive(Copy)]
    pub struct Mkdir3args<'a> {
        place: Diropargs3<'a>,
        attributes: Sattr3,
    }

    /// `SYMLINK3args`, up to the link's target (`symlink_data`).
    #[derive(Copy)]
    pub struct Symlink3args<'a> {
        place: Diropargs3<'a>,
        symlink_attributes: Sattr3,
        symlink_data: Bulk as UNLIMITED,
    }

    /// `devicedata3`.
    #[derive(Copy)]
    pub struct Devicedata3 {
        dev_attributes: Sattr3,
        spec: Specdata3,
    }

    /// `MKNOD3args`.
    #[derive(Copy)]
    pub struct Mknod3args<'a> {
        place: Diropargs3<'a>,
        what: Mknoddata3,
    }

    /// `RENAME3args`.
    #[derive(Copy)]
    pub struct Rename3args<'a> {
        from: Diropargs3<'a>,
        to: Diropargs3<'a>,
    }

    /// `LINK3args`.
    #[derive(Copy)]
    pub struct Link3args<'a> {
        file: &'a [u8] as FH_MAX,
        link: Diropargs3<'a>,
    }

    /// `READDIR3args`.
    #[derive(Copy)]
    pub struct Readdir3args<'a> {
        dir: &'a [u8] as FH_MAX,
        cookie: u64,
        cookieverf: [u8; 8],
        count: u32,
    }

    /// `READDIRPLUS3args`.
    #[derive(Copy)]
    pub struct Readdirplus3args<'a> {
        dir: &'a [u8] as FH_MAX,
        cookie: u64,
        cookieverf: [u8; 8],
        dircount: u32,
        maxcount: u32,
    }

    /// `COMMIT3args`.
    #[derive(Copy)]
    pub struct Commit3args<'a> {
        file: &'a [u8] as FH_MAX,
        offset: u64,
        count: u32,
    }

    /// `post_op_attr`, the failure result of procedures that change nothing.
    #[derive(Copy, Default)]
    pub struct PostOpAttr {
        attributes: Option<Fattr3>,
    }

    /// `GETATTR3resok`.
    #[derive(Copy)]
    pub struct Getattr3resok {
        obj_attributes: Fattr3,
    }

    /// `LOOKUP3resok`.
    #[derive(Copy)]
    pub struct Lookup3resok<'a> {
        object: &'a [u8] as FH_MAX,
        obj_attributes: Option<Fattr3>,
        dir_attributes: Option<Fattr3>,
    }

    /// `ACCESS3resok`.
    #[derive(Copy)]
    pub struct Access3resok {
        obj_attributes: Option<Fattr3>,
        access: u32,
    }

    /// `READLINK3resok`, up to the target.
    #[derive(Copy)]
    pub struct Readlink3resok {
        symlink_attributes: Option<Fattr3>,
        data: Bulk as UNLIMITED,
    }

    /// `READ3resok`, up to its data.
    #[derive(Copy)]
    pub struct Read3resok {
        file_attributes: Option<Fattr3>,
        count: u32,
        eof: bool,
        data: Bulk as UNLIMITED,
    }

    /// `WRITE3resok`.
    #[derive(Copy)]
    pub struct Write3resok {
        file_wcc: WccData,
        count: u32,
        committed: StableHow,
        verf: [u8; 8],
    }

    /// The result of CREATE, MKDIR, SYMLINK and MKNOD.
    #[derive(Copy)]
    pub struct Create3resok<'a> {
        obj: Option<&'a [u8]> as FH_MAX,
        obj_attributes: Option<Fattr3>,
        dir_wcc: WccData,
    }

    /// The result of RENAME, both on success and on failure.
    #[derive(Copy, Default)]
    pub struct RenameWcc {
        fromdir_wcc: WccData,
        todir_wcc: WccData,
    }

    /// The result of LINK, both on success and on failure.
    #[derive(Copy, Default)]
    pub struct LinkWcc {
        file_attributes: Option<Fattr3>,
        linkdir_wcc: WccData,
    }

    /// `entry3`.
    #[derive(Copy)]
    pub struct Entry3<'a> {
        fileid: u64,
        name: &'a [u8] as UNLIMITED,
        cookie: u64,
    }

    /// `READDIR3resok` with `dirlist3`.
    pub struct Readdir3resok<'a> {
        dir_attributes: Option<Fattr3>,
        cookieverf: [u8; 8],
        entries: Chain<Entry3<'a>> as ENTRIES_MAX,
        eof: bool,
    }

    /// `entryplus3`.
    #[derive(Copy)]
    pub struct Entryplus3<'a> {
        fileid: u64,
        name: &'a [u8] as UNLIMITED,
        cookie: u64,
        name_attributes: Option<Fattr3>,
        name_handle: Option<&'a [u8]> as FH_MAX,
    }

    /// `READDIRPLUS3resok` with `dirlistplus3`.
    pub struct Readdirplus3resok<'a> {
        dir_attributes: Option<Fattr3>,
        cookieverf: [u8; 8],
        entries: Chain<Entryplus3<'a>> as ENTRIES_MAX,
        eof: bool,
    }

    /// `FSSTAT3resok`.
    #[derive(Copy)]
    pub struct Fsstat3resok {
        obj_attributes: Option<Fattr3>,
        tbytes: u64,
        fbytes: u64,
        abytes: u64,
        tfiles: u64,
        ffiles: u64,
        afiles: u64,
        invarsec: u32,
    }

    /// `FSINFO3resok`.
    #[derive(Copy)]
    pub struct Fsinfo3resok {
        obj_attributes: Option<Fattr3>,
        rtmax: u32,
        rtpref: u32,
        rtmult: u32,
        wtmax: u32,
        wtpref: u32,
        wtmult: u32,
        dtpref: u32,
        maxfilesize: u64,
        time_delta: Nfstime3,
        properties: u32,
    }

    /// `PATHCONF3resok`.
    #[derive(Copy)]
    pub struct Pathconf3resok {
        obj_attributes: Option<Fattr3>,
        linkmax: u32,
        name_max: u32,
        no_trunc: bool,
        chown_restricted: bool,
        case_insensitive: bool,
        case_preserving: bool,
    }

    /// `COMMIT3resok`.
    #[derive(Copy)]
    pub struct Commit3resok {
        file_wcc: WccData,
        verf: [u8; 8],
    }
}

union! {
    /// `set_atime` and `set_mtime`.
    #[derive(Copy, Default)]
    pub enum SetTime switch "time_how" {
        #[default]
        0 => DontChange,
        1 => SetToServerTime,
        2 => SetToClientTime(Nfstime3),
    }

    /// `createhow3`.
    #[derive(Copy)]
    pub enum Createhow3 switch "createmode3" {
        0 => Unchecked(Sattr3),
        1 => Guarded(Sattr3),
        2 => Exclusive([u8; 8]),
    }

    /// `mknoddata3`.
    #[derive(Copy)]
    pub enum Mknoddata3 switch "ftype3" {
        1 => Reg,
        2 => Dir,
        3 => Blk(Devicedata3),
        4 => Chr(Devicedata3),
        5 => Lnk,
        6 => Sock(Sattr3),
        7 => Fifo(Sattr3),
    }
}

/// `nfstime3`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nfstime3 {
    /// Seconds since 1970.
    pub seconds: u32,
    /// 0 to 999,999,999.
    pub nseconds: u32,
}

impl<'a> Xdr<'a> for Nfstime3 {
    #[inline]
    fn field(_: &'static str, input: &'a [u8]) -> Parsed<'a, Self> {
        let (behind, seconds) = u32::field("seconds", input)?;
        match u32::field("nseconds", behind)? {
            (rest, nseconds @ 0..=999_999_999) => Ok((rest, Self { seconds, nseconds })),
            _ => Err(reject("nseconds", Rule::Value, behind)),
        }
    }

    #[inline]
    fn emit(&self, out: &mut Vec<u8>) {
        self.seconds.emit(out);
        self.nseconds.emit(out);
    }
}

/// The result of a procedure: NFS3_OK with one structure, or an error status with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Res<T, F> {
    /// NFS3_OK.
    Ok(T),
    /// The error status.
    Err(Nfsstat3, F),
}

impl<'a, T: Xdr<'a>, F: Xdr<'a>> Xdr<'a> for Res<T, F> {
    #[inline]
    fn field(name: &'static str, input: &'a [u8]) -> Parsed<'a, Self> {
        match u32::field("status", input)? {
            (rest, 0) => T::field(name, rest).map(|(rest, ok)| (rest, Self::Ok(ok))),
            _ => {
                let (rest, status) = Nfsstat3::field("status", input)?;
                F::field(name, rest).map(|(rest, fail)| (rest, Self::Err(status, fail)))
            }
        }
    }

    #[inline]
    fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ok(ok) => {
                0u32.emit(out);
                ok.emit(out);
            }
            Self::Err(status, fail) => {
                status.emit(out);
                fail.emit(out);
            }
        }
    }
}

impl<T, F> Res<T, F> {
    /// Returns the structure of NFS3_OK.
    ///
    /// # Errors
    ///
    /// The error status.
    pub fn ok(self) -> Result<T, Nfsstat3> {
        match self {
            Self::Ok(ok) => Ok(ok),
            Self::Err(status, _) => Err(status),
        }
    }
}

choice! {
    /// Arguments, selected by the procedure number.
    #[derive(Copy)]
    pub enum Args<'a> {
        0 => Null,
        1 => Getattr(NfsFh3<'a>),
        2 => Setattr(Setattr3args<'a>),
        3 => Lookup(Diropargs3<'a>),
        4 => Access(Access3args<'a>),
        5 => Readlink(NfsFh3<'a>),
        6 => Read(Read3args<'a>),
        7 => Write(Write3args<'a>),
        8 => Create(Create3args<'a>),
        9 => Mkdir(Mkdir3args<'a>),
        10 => Symlink(Symlink3args<'a>),
        11 => Mknod(Mknod3args<'a>),
        12 => Remove(Diropargs3<'a>),
        13 => Rmdir(Diropargs3<'a>),
        14 => Rename(Rename3args<'a>),
        15 => Link(Link3args<'a>),
        16 => Readdir(Readdir3args<'a>),
        17 => Readdirplus(Readdirplus3args<'a>),
        18 => Fsstat(NfsFh3<'a>),
        19 => Fsinfo(NfsFh3<'a>),
        20 => Pathconf(NfsFh3<'a>),
        21 => Commit(Commit3args<'a>),
    }

    /// Results, selected by the procedure number.
    pub enum Results<'a> {
        0 => Null,
        1 => Getattr(Res<Getattr3resok, ()>),
        2 => Setattr(Res<WccData, WccData>),
        3 => Lookup(Res<Lookup3resok<'a>, PostOpAttr>),
        4 => Access(Res<Access3resok, PostOpAttr>),
        5 => Readlink(Res<Readlink3resok, PostOpAttr>),
        6 => Read(Res<Read3resok, PostOpAttr>),
        7 => Write(Res<Write3resok, WccData>),
        8 => Create(Res<Create3resok<'a>, WccData>),
        9 => Mkdir(Res<Create3resok<'a>, WccData>),
        10 => Symlink(Res<Create3resok<'a>, WccData>),
        11 => Mknod(Res<Create3resok<'a>, WccData>),
        12 => Remove(Res<WccData, WccData>),
        13 => Rmdir(Res<WccData, WccData>),
        14 => Rename(Res<RenameWcc, RenameWcc>),
        15 => Link(Res<LinkWcc, LinkWcc>),
        16 => Readdir(Res<Readdir3resok<'a>, PostOpAttr>),
        17 => Readdirplus(Res<Readdirplus3resok<'a>, PostOpAttr>),
        18 => Fsstat(Res<Fsstat3resok, PostOpAttr>),
        19 => Fsinfo(Res<Fsinfo3resok, PostOpAttr>),
        20 => Pathconf(Res<Pathconf3resok, PostOpAttr>),
        21 => Commit(Res<Commit3resok, WccData>),
    }
}

#[cfg(test)]
mod tests;
