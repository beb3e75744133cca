//! NFS version 3 (RFC 1813): one method per procedure.

use iobuf::Buf;
use nfs_proto::nfs3::acl::{Aclent, Getacl3args, Getacl3resok, Secattr, Setacl3args, mask};
use nfs_proto::nfs3::procedure as p;
use nfs_proto::nfs3::{
    Access3args, Access3resok, Commit3args, Commit3resok, Create3args, Create3resok, Createhow3,
    Devicedata3, Diropargs3, Fattr3, Fsinfo3resok, Fsstat3resok, Getattr3resok, Link3args, LinkWcc,
    Lookup3resok, Mkdir3args, Mknod3args, Mknoddata3, NfsFh3, Nfstime3, Pathconf3resok, PostOpAttr,
    Read3args, Read3resok, Readdir3args, Readdir3resok, Readdirplus3args, Readdirplus3resok,
    Readlink3resok, Rename3args, RenameWcc, Res, Sattr3, SetTime, Setattr3args, Specdata3,
    StableHow, Symlink3args, VERSION, WccData, Write3args, Write3resok, acl,
};
use nfs_proto::oncrpc::{AcceptStat, ReplyBody, ReplyHead, program};
use nfs_proto::xdr::{Bulk, Xdr, decode};
use rdma_transport::caller::{Answer, BulkResult};
use rdma_transport::xdr::Reader;

use crate::error::{Error, Result};
use crate::rpc::{CallArgs, Credential, ResultPlace, Rpc, results, status, within};

const PATH_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fh(Box<[u8]>);

impl Fh {
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// `fattr3`. Times are seconds and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the specification's own.
pub struct Attr {
    pub kind: u32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub used: u64,
    pub rdev: (u32, u32),
    pub fsid: u64,
    pub fileid: u64,
    pub atime: (u32, u32),
    pub mtime: (u32, u32),
    pub ctime: (u32, u32),
}

/// `sattr3`. `None` leaves an attribute unchanged; times are seconds and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the specification's own.
pub struct SetAttr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<(u32, u32)>,
    pub mtime: Option<(u32, u32)>,
}

/// How CREATE treats an existing file (`createhow3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// Opens it.
    Unchecked(SetAttr),
    /// Fails.
    Guarded(SetAttr),
    /// Fails, unless a call with the same verifier created it.
    Exclusive([u8; 8]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Stable {
    /// UNSTABLE
    Unstable = 0,
    /// DATA_SYNC
    Data = 1,
    /// FILE_SYNC
    File = 2,
}

#[derive(Clone, Debug)]
pub struct Read {
    /// The bytes, in pieces.
    pub data: Vec<Buf>,
    /// The end of the file was reached.
    pub eof: bool,
}

impl Read {
    pub fn len(&self) -> usize {
        self.data.iter().map(Buf::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Number of bytes written.
    pub count: u32,
    /// `stable_how` that was reached.
    pub committed: u32,
    /// Changes if unstable data may have been lost.
    pub verifier: [u8; 8],
}

/// An entry of READDIR or READDIRPLUS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of the file.
    pub fileid: u64,
    pub name: Vec<u8>,
    /// Position after this entry.
    pub cookie: u64,
    /// Attributes (READDIRPLUS).
    pub attr: Option<Attr>,
    /// Handle (READDIRPLUS).
    pub fh: Option<Fh>,
}

/// A part of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    pub entries: Vec<Entry>,
    /// Verifier for the next request.
    pub verifier: [u8; 8],
    /// The directory has no further entries.
    pub eof: bool,
}

/// The fields of an FSINFO result that clients use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the specification's own.
pub struct FsInfo {
    pub rtmax: u32,
    pub rtpref: u32,
    pub wtmax: u32,
    pub wtpref: u32,
    pub dtpref: u32,
    pub maxfilesize: u64,
    pub properties: u32,
}

/// The result of FSSTAT: bytes and files, each total, free, and available to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the specification's own.
pub struct FsStat {
    pub tbytes: u64,
    pub fbytes: u64,
    pub abytes: u64,
    pub tfiles: u64,
    pub ffiles: u64,
    pub afiles: u64,
}

fn pair(t: Nfstime3) -> (u32, u32) {
    (t.seconds, t.nseconds)
}

impl From<Fattr3> for Attr {
    fn from(a: Fattr3) -> Self {
        Self {
            kind: a.ftype as u32,
            mode: a.mode,
            nlink: a.nlink,
            uid: a.uid,
            gid: a.gid,
            size: a.size,
            used: a.used,
            rdev: (a.rdev.specdata1, a.rdev.specdata2),
            fsid: a.fsid,
            fileid: a.fileid,
            atime: pair(a.atime),
            mtime: pair(a.mtime),
            ctime: pair(a.ctime),
        }
    }
}

impl From<&SetAttr> for Sattr3 {
    fn from(set: &SetAttr) -> Self {
        let time = |t: Option<(u32, u32)>| match t {
            Some((seconds, nseconds)) => SetTime::SetToClientTime(Nfstime3 { seconds, nseconds }),
            None => SetTime::DontChange,
        };
        let SetAttr { mode, uid, gid, size, atime, mtime } = *set;
        Self { mode, uid, gid, size, atime: time(atime), mtime: time(mtime) }
    }
}

const OK: u32 = 0;

/// Parses the results, or returns the error status.
fn ok<'a, T: Xdr<'a>>(r: &mut Reader<'a>) -> Result<T> {
    status(r, OK, Error::Nfs3)?;
    Ok(r.value()?)
}

/// Returns offset and length of the data after results of this type in a complete reply.
fn locate<'a, T: Xdr<'a>>(reply: &'a [u8], data: fn(T) -> Bulk) -> Option<(usize, usize)> {
    let (rest, head) = wire::decode(reply, ReplyHead::parse).ok()?;
    let ReplyBody::Accepted(_, AcceptStat::Success) = head.body else { return None };
    match decode::<Res<T, PostOpAttr>>(rest).ok()? {
        (rest, Res::Ok(ok)) => Some((reply.len() - rest.len(), data(ok).len)),
        _ => None,
    }
}

fn locate_read(reply: &[u8]) -> Option<(usize, usize)> {
    locate::<Read3resok>(reply, |ok| ok.data)
}

fn locate_readlink(reply: &[u8]) -> Option<(usize, usize)> {
    locate::<Readlink3resok>(reply, |ok| ok.data)
}

/// NFS version 3 over one connection. Clones share it.
#[derive(Clone)]
pub struct Nfs3 {
    rpc: Rpc,
    cred: Credential,
}

/// An entry of an NFSACL list: tag, number, three permission bits.
pub type AclEntry = [u32; 3];

/// Requests both lists.
const ACL_BOTH: u32 = mask::ACL | mask::DFACL;
/// Size of two lists of the maximum length and their framing.
const ACL_REPLY_MAX: usize = 32 * 1024;

fn acl_entries(list: &[Aclent]) -> Vec<AclEntry> {
    list.iter().map(|e| [e.tag, e.id, e.perm]).collect()
}

fn acl_list(entries: &[AclEntry]) -> (u32, Vec<Aclent>) {
    let list: Vec<Aclent> =
        entries.iter().map(|[tag, id, perm]| Aclent { tag: *tag, id: *id, perm: *perm }).collect();
    (u32::try_from(list.len()).unwrap_or(u32::MAX), list)
}

impl Nfs3 {
    /// Uses this connection as this user.
    pub fn new(rpc: Rpc, cred: Credential) -> Self {
        Self { rpc, cred }
    }

    pub fn rpc(&self) -> &Rpc {
        &self.rpc
    }

    pub(crate) fn cred(&self) -> &Credential {
        &self.cred
    }

    fn args<'a>(&self, procedure: u32, args: &impl Xdr<'a>) -> CallArgs {
        let mut w = Rpc::head(program::NFS, VERSION, procedure, &self.cred);
        w.value(args);
        w
    }

    async fn short<'a>(&self, procedure: u32, args: &impl Xdr<'a>) -> Result<Answer> {
        self.rpc.call(self.args(procedure, args), ResultPlace::SHORT).await
    }

    pub async fn null(&self) -> Result<()> {
        let answer = self.short(p::NULL, &()).await?;
        results(&answer).map(drop)
    }

    pub async fn getattr(&self, fh: &Fh) -> Result<Attr> {
        let answer = self.short(p::GETATTR, &NfsFh3 { data: &fh.0 }).await?;
        let done: Getattr3resok = ok(&mut results(&answer)?)?;
        Ok(done.obj_attributes.into())
    }

    /// SETATTR without a guard.
    pub async fn setattr(&self, fh: &Fh, set: &SetAttr) -> Result<()> {
        let args = Setattr3args { object: &fh.0, new_attributes: set.into(), guard: None };
        let answer = self.short(p::SETATTR, &args).await?;
        ok::<WccData>(&mut results(&answer)?).map(drop)
    }

    /// GETACL of NFSACL version 3: returns the node's own list, and a directory's default list. Each entry: tag, number, three
    /// bits.
    pub async fn acl(&self, fh: &Fh) -> Result<(Vec<AclEntry>, Vec<AclEntry>)> {
        let getacl = acl::procedure::GETACL;
        let mut w = Rpc::head(program::NFSACL, acl::VERSION, getacl, &self.cred);
        w.value(&Getacl3args { fh: &fh.0, mask: ACL_BOTH });
        let answer = self.rpc.call(w, ResultPlace::long(ACL_REPLY_MAX)).await?;
        let done: Getacl3resok = ok(&mut results(&answer)?)?;
        Ok((acl_entries(&done.acl.aclent), acl_entries(&done.acl.dfaclent)))
    }

    /// SETACL of NFSACL version 3: sets both lists.
    pub async fn set_acl(&self, fh: &Fh, own: &[AclEntry], default: &[AclEntry]) -> Result<()> {
        let setacl = acl::procedure::SETACL;
        let mut w = Rpc::head(program::NFSACL, acl::VERSION, setacl, &self.cred);
        let ((aclcnt, aclent), (dfaclcnt, dfaclent)) = (acl_list(own), acl_list(default));
        let acl = Secattr { mask: ACL_BOTH, aclcnt, aclent, dfaclcnt, dfaclent };
        w.value(&Setacl3args { fh: &fh.0, acl });
        let answer = self.rpc.call(w, ResultPlace::SHORT).await?;
        ok::<PostOpAttr>(&mut results(&answer)?).map(drop)
    }

    pub async fn lookup(&self, dir: &Fh, name: &[u8]) -> Result<(Fh, Option<Attr>)> {
        let answer = self.short(p::LOOKUP, &at(dir, name)).await?;
        let done: Lookup3resok<'_> = ok(&mut results(&answer)?)?;
        Ok((Fh::new(done.object), done.obj_attributes.map(Attr::from)))
    }

    /// ACCESS: returns which of these `ACCESS3_*` bits the caller has.
    pub async fn access(&self, fh: &Fh, bits: u32) -> Result<u32> {
        let answer = self.short(p::ACCESS, &Access3args { object: &fh.0, access: bits }).await?;
        let done: Access3resok = ok(&mut results(&answer)?)?;
        Ok(done.access)
    }

    pub async fn readlink(&self, fh: &Fh) -> Result<Vec<u8>> {
        let bulk = Some(BulkResult { max: PATH_MAX, locate: locate_readlink });
        let w = self.args(p::READLINK, &NfsFh3 { data: &fh.0 });
        let answer = self.rpc.call(w, ResultPlace { reply_max: 512, bulk }).await?;
        let mut r = results(&answer)?;
        let done: Readlink3resok = ok(&mut r)?;
        Ok(within(&mut r, done.data, PATH_MAX)?.concat_bytes())
    }

    pub async fn read(&self, fh: &Fh, offset: u64, count: u32) -> Result<Read> {
        let w = self.args(p::READ, &Read3args { file: &fh.0, offset, count });
        let max = usize::try_from(count).unwrap_or(usize::MAX);
        let bulk = Some(BulkResult { max, locate: locate_read });
        let answer = self.rpc.call(w, ResultPlace { reply_max: 512, bulk }).await?;
        let mut r = results(&answer)?;
        let done: Read3resok = ok(&mut r)?;
        if usize::try_from(done.count) != Ok(done.data.len) {
            return Err(Error::Protocol("READ: count and length of data differ".into()));
        }
        Ok(Read { data: within(&mut r, done.data, max)?, eof: done.eof })
    }

    pub async fn write(
        &self,
        fh: &Fh,
        offset: u64,
        data: Vec<Buf>,
        stable: Stable,
    ) -> Result<Written> {
        let len = data.iter().map(Buf::len).sum();
        let count = u32::try_from(len).unwrap_or(u32::MAX);
        let stable = match stable {
            Stable::Unstable => StableHow::Unstable,
            Stable::Data => StableHow::DataSync,
            Stable::File => StableHow::FileSync,
        };
        let args = Write3args { file: &fh.0, offset, count, stable, data: Bulk { len } };
        let mut w = self.args(p::WRITE, &args);
        w.attach(data, None);
        let answer = self.rpc.call(w, ResultPlace::SHORT).await?;
        let done: Write3resok = ok(&mut results(&answer)?)?;
        let committed = done.committed as u32;
        Ok(Written { count: done.count, committed, verifier: done.verf })
    }

    /// Returns the handle that CREATE and similar procedures report, or looks it up if the server omitted it.
    async fn made(&self, place: (&Fh, &[u8]), args: CallArgs) -> Result<(Fh, Option<Attr>)> {
        let answer = self.rpc.call(args, ResultPlace::SHORT).await?;
        let done: Create3resok<'_> = ok(&mut results(&answer)?)?;
        match done.obj {
            Some(fh) => Ok((Fh::new(fh), done.obj_attributes.map(Attr::from))),
            None => self.lookup(place.0, place.1).await,
        }
    }

    pub async fn create(
        &self,
        dir: &Fh,
        name: &[u8],
        how: CreateHow,
    ) -> Result<(Fh, Option<Attr>)> {
        let how = match how {
            CreateHow::Unchecked(set) => Createhow3::Unchecked((&set).into()),
            CreateHow::Guarded(set) => Createhow3::Guarded((&set).into()),
            CreateHow::Exclusive(verifier) => Createhow3::Exclusive(verifier),
        };
        let w = self.args(p::CREATE, &Create3args { place: at(dir, name), how });
        self.made((dir, name), w).await
    }

    pub async fn mkdir(&self, dir: &Fh, name: &[u8], mode: u32) -> Result<(Fh, Option<Attr>)> {
        let args = Mkdir3args { place: at(dir, name), attributes: of_mode(mode) };
        self.made((dir, name), self.args(p::MKDIR, &args)).await
    }

    pub async fn symlink(
        &self,
        dir: &Fh,
        name: &[u8],
        target: &[u8],
    ) -> Result<(Fh, Option<Attr>)> {
        let args = Symlink3args {
            place: at(dir, name),
            symlink_attributes: Sattr3::default(),
            symlink_data: Bulk { len: target.len() },
        };
        let mut w = self.args(p::SYMLINK, &args);
        w.fixed(target);
        self.made((dir, name), w).await
    }

    async fn mknod(&self, dir: &Fh, name: &[u8], what: Mknoddata3) -> Result<(Fh, Option<Attr>)> {
        let w = self.args(p::MKNOD, &Mknod3args { place: at(dir, name), what });
        self.made((dir, name), w).await
    }

    /// MKNOD of a named pipe.
    pub async fn mkfifo(&self, dir: &Fh, name: &[u8], mode: u32) -> Result<(Fh, Option<Attr>)> {
        self.mknod(dir, name, Mknoddata3::Fifo(of_mode(mode))).await
    }

    /// MKNOD of a character device.
    pub async fn mkdevice(
        &self,
        dir: &Fh,
        name: &[u8],
        mode: u32,
        (major, minor): (u32, u32),
    ) -> Result<(Fh, Option<Attr>)> {
        let spec = Specdata3 { specdata1: major, specdata2: minor };
        let what = Devicedata3 { dev_attributes: of_mode(mode), spec };
        self.mknod(dir, name, Mknoddata3::Chr(what)).await
    }

    pub async fn remove(&self, dir: &Fh, name: &[u8]) -> Result<()> {
        let answer = self.short(p::REMOVE, &at(dir, name)).await?;
        ok::<WccData>(&mut results(&answer)?).map(drop)
    }

    pub async fn rmdir(&self, dir: &Fh, name: &[u8]) -> Result<()> {
        let answer = self.short(p::RMDIR, &at(dir, name)).await?;
        ok::<WccData>(&mut results(&answer)?).map(drop)
    }

    pub async fn rename(&self, from: &Fh, name: &[u8], to: &Fh, new_name: &[u8]) -> Result<()> {
        let args = Rename3args { from: at(from, name), to: at(to, new_name) };
        let answer = self.short(p::RENAME, &args).await?;
        ok::<RenameWcc>(&mut results(&answer)?).map(drop)
    }

    pub async fn link(&self, file: &Fh, dir: &Fh, name: &[u8]) -> Result<()> {
        let answer = self.short(p::LINK, &Link3args { file: &file.0, link: at(dir, name) }).await?;
        ok::<LinkWcc>(&mut results(&answer)?).map(drop)
    }

    /// READDIR: returns a part of at most `count` bytes.
    pub async fn readdir(
        &self,
        dir: &Fh,
        cookie: u64,
        verifier: [u8; 8],
        count: u32,
    ) -> Result<Listing> {
        let args = Readdir3args { dir: &dir.0, cookie, cookieverf: verifier, count };
        let answer = self.listing(self.args(p::READDIR, &args), count).await?;
        let done: Readdir3resok<'_> = ok(&mut results(&answer)?)?;
        let entries = done.entries.0.iter().map(|e| Entry {
            fileid: e.fileid,
            name: e.name.to_vec(),
            cookie: e.cookie,
            attr: None,
            fh: None,
        });
        Ok(Listing { entries: entries.collect(), verifier: done.cookieverf, eof: done.eof })
    }

    /// READDIRPLUS: returns a part of at most `count` bytes.
    pub async fn readdirplus(
        &self,
        dir: &Fh,
        cookie: u64,
        verifier: [u8; 8],
        count: u32,
    ) -> Result<Listing> {
        let (dir, cookieverf) = (&dir.0, verifier);
        let args = Readdirplus3args { dir, cookie, cookieverf, dircount: count, maxcount: count };
        let answer = self.listing(self.args(p::READDIRPLUS, &args), count).await?;
        let done: Readdirplus3resok<'_> = ok(&mut results(&answer)?)?;
        let entries = done.entries.0.iter().map(|e| Entry {
            fileid: e.fileid,
            name: e.name.to_vec(),
            cookie: e.cookie,
            attr: e.name_attributes.map(Attr::from),
            fh: e.name_handle.map(Fh::new),
        });
        Ok(Listing { entries: entries.collect(), verifier: done.cookieverf, eof: done.eof })
    }

    async fn listing(&self, args: CallArgs, count: u32) -> Result<Answer> {
        let reply_max = usize::try_from(count).unwrap_or(usize::MAX).saturating_add(512);
        self.rpc.call(args, ResultPlace::long(reply_max)).await
    }

    /// Lists a whole directory with READDIRPLUS.
    pub async fn list(&self, dir: &Fh) -> Result<Vec<Entry>> {
        const PART: u32 = 32 << 10;
        let (mut all, mut cookie, mut verifier) = (Vec::new(), 0, [0; 8]);
        loop {
            let part = self.readdirplus(dir, cookie, verifier, PART).await?;
            let Some(last) = part.entries.last() else {
                return match part.eof {
                    true => Ok(all),
                    false => Err(Error::Protocol("READDIRPLUS: no entry and no end".into())),
                };
            };
            (cookie, verifier) = (last.cookie, part.verifier);
            all.extend(part.entries);
            if part.eof {
                return Ok(all);
            }
        }
    }

    pub async fn fsstat(&self, root: &Fh) -> Result<FsStat> {
        let answer = self.short(p::FSSTAT, &NfsFh3 { data: &root.0 }).await?;
        let done: Fsstat3resok = ok(&mut results(&answer)?)?;
        let Fsstat3resok { tbytes, fbytes, abytes, tfiles, ffiles, afiles, .. } = done;
        Ok(FsStat { tbytes, fbytes, abytes, tfiles, ffiles, afiles })
    }

    pub async fn fsinfo(&self, root: &Fh) -> Result<FsInfo> {
        let answer = self.short(p::FSINFO, &NfsFh3 { data: &root.0 }).await?;
        let done: Fsinfo3resok = ok(&mut results(&answer)?)?;
        let Fsinfo3resok { rtmax, rtpref, wtmax, wtpref, dtpref, maxfilesize, properties, .. } =
            done;
        Ok(FsInfo { rtmax, rtpref, wtmax, wtpref, dtpref, maxfilesize, properties })
    }

    /// PATHCONF: returns the maximum number of links to a file and the maximum length of a name.
    pub async fn pathconf(&self, fh: &Fh) -> Result<(u32, u32)> {
        let answer = self.short(p::PATHCONF, &NfsFh3 { data: &fh.0 }).await?;
        let done: Pathconf3resok = ok(&mut results(&answer)?)?;
        Ok((done.linkmax, done.name_max))
    }

    /// COMMIT of a range; a count of 0 means to the end. Returns the write verifier.
    pub async fn commit(&self, fh: &Fh, offset: u64, count: u32) -> Result<[u8; 8]> {
        let answer = self.short(p::COMMIT, &Commit3args { file: &fh.0, offset, count }).await?;
        let done: Commit3resok = ok(&mut results(&answer)?)?;
        Ok(done.verf)
    }
}

/// Builds the argument for a name in a directory.
fn at<'a>(dir: &'a Fh, name: &'a [u8]) -> Diropargs3<'a> {
    Diropargs3 { dir: &dir.0, name }
}

fn of_mode(mode: u32) -> Sattr3 {
    Sattr3 { mode: Some(mode), ..Sattr3::default() }
}

trait ConcatBytes {
    fn concat_bytes(&self) -> Vec<u8>;
}

impl ConcatBytes for Vec<Buf> {
    fn concat_bytes(&self) -> Vec<u8> {
        self.iter().flat_map(|b| b.as_slice()).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(w: &[u32]) -> Vec<u8> {
        w.iter().flat_map(|v| v.to_be_bytes()).collect()
    }

    /// Builds an accepted reply with this status and these words.
    fn reply(status: u32, rest: &[u32]) -> Vec<u8> {
        words(&[&[9, 1, 0, 0, 0, 0, status][..], rest].concat())
    }

    #[test]
    fn unknown_status_keeps_its_number() {
        let answer =
            |status| Answer { body: Buf::from(reply(status, &[])), read_chunks: Vec::new() };
        for status in [70, 4_242] {
            let answer = answer(status);
            let done = ok::<Getattr3resok>(&mut results(&answer).unwrap());
            assert_eq!(done.err(), Some(Error::Nfs3(status)));
        }
    }

    #[test]
    fn read_data_is_located() {
        assert_eq!(locate_read(&reply(0, &[0, 5, 1, 5])), Some((44, 5)));
        let with = [&[1, 1][..], &[0; 20], &[5, 1, 5]].concat();
        assert_eq!(locate_read(&reply(0, &with)), Some((128, 5)));
        // The offset is the position after the length word.
        assert_eq!(reply(0, &with).len(), 128);
        assert_eq!(locate_readlink(&reply(0, &[0, 7])), Some((36, 7)));
    }

    #[test]
    fn missing_read_data_is_not_located() {
        assert_eq!(locate_read(&reply(70, &[0, 0, 0, 0])), None);
        assert_eq!(locate_read(&words(&[9, 1, 1, 0, 2, 2, 0, 0, 0])), None);
        let whole = reply(0, &[0, 5, 1, 5]);
        for end in 0..whole.len() {
            assert_eq!(locate_read(&whole[..end]), None, "{end}");
            assert_eq!(locate_readlink(&whole[..end.min(35)]), None, "{end}");
        }
    }
}
