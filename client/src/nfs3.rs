//! NFS version 3 (RFC 1813): one method per procedure.

use iobuf::Buf;
use nfsrdma::xdr::{Reader, Writer, XdrResult};
use rdma_transport::caller::{Answer, BulkResult};

use crate::error::{Error, Result};
use crate::rpc::{Credential, ResultPlace, Rpc, results};

const PROGRAM: u32 = 100_003;
const VERSION: u32 = 3;
/// NFS3_FHSIZE
const FHSIZE: usize = 64;
const NAME_MAX: usize = 1024;
const PATH_MAX: usize = 4096;
/// Bytes of `post_op_attr` with attributes.
const POST_OP_ATTR: usize = 88;
/// Bytes of the head of an accepted reply with an empty verifier.
const REPLY_HEAD: usize = 24;

/// A file handle.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fh(Box<[u8]>);

impl Fh {
    /// Of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// The bytes.
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

/// `sattr3`. What is `None` stays as it is; times are seconds and nanoseconds.
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

/// How CREATE treats a file that is there (`createhow3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// It is taken.
    Unchecked(SetAttr),
    /// It is an error.
    Guarded(SetAttr),
    /// It is an error unless it was made by a call with the same verifier.
    Exclusive([u8; 8]),
}

/// `stable_how`.
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

/// The result of READ.
#[derive(Clone, Debug)]
pub struct Read {
    /// The bytes, in pieces.
    pub data: Vec<Buf>,
    /// The end of the file is reached.
    pub eof: bool,
}

impl Read {
    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.data.iter().map(Buf::len).sum()
    }

    /// No bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The result of WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes taken.
    pub count: u32,
    /// `stable_how` that was reached.
    pub committed: u32,
    /// Changes when unstable data may be lost.
    pub verifier: [u8; 8],
}

/// An entry of READDIR or READDIRPLUS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of the file.
    pub fileid: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// Where to go on behind it.
    pub cookie: u64,
    /// Its attributes (READDIRPLUS).
    pub attr: Option<Attr>,
    /// Its handle (READDIRPLUS).
    pub fh: Option<Fh>,
}

/// A part of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The entries.
    pub entries: Vec<Entry>,
    /// For the next part.
    pub verifier: [u8; 8],
    /// There is no next part.
    pub eof: bool,
}

/// The result of FSINFO, as far as clients use it.
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

/// The result of FSSTAT: bytes and files, total, free, and available to the caller.
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

fn time(r: &mut Reader<'_>) -> XdrResult<(u32, u32)> {
    Ok((r.u32()?, r.u32()?))
}

fn fattr(r: &mut Reader<'_>) -> XdrResult<Attr> {
    Ok(Attr {
        kind: r.u32()?,
        mode: r.u32()?,
        nlink: r.u32()?,
        uid: r.u32()?,
        gid: r.u32()?,
        size: r.u64()?,
        used: r.u64()?,
        rdev: (r.u32()?, r.u32()?),
        fsid: r.u64()?,
        fileid: r.u64()?,
        atime: time(r)?,
        mtime: time(r)?,
        ctime: time(r)?,
    })
}

fn post_op_attr(r: &mut Reader<'_>) -> XdrResult<Option<Attr>> {
    if r.bool()? { fattr(r).map(Some) } else { Ok(None) }
}

fn post_op_fh(r: &mut Reader<'_>) -> XdrResult<Option<Fh>> {
    if r.bool()? { Ok(Some(Fh::new(r.opaque(FHSIZE)?))) } else { Ok(None) }
}

/// `wcc_data`; gives the attributes afterwards.
fn wcc_data(r: &mut Reader<'_>) -> XdrResult<Option<Attr>> {
    if r.bool()? {
        r.fixed::<24>()?;
    }
    post_op_attr(r)
}

fn put_sattr(w: &mut Writer, set: &SetAttr) {
    for v in [set.mode, set.uid, set.gid] {
        w.bool(v.is_some());
        if let Some(v) = v {
            w.u32(v);
        }
    }
    w.bool(set.size.is_some());
    if let Some(size) = set.size {
        w.u64(size);
    }
    for t in [set.atime, set.mtime] {
        // SET_TO_CLIENT_TIME
        w.u32(if t.is_some() { 2 } else { 0 });
        if let Some((sec, nsec)) = t {
            w.u32(sec);
            w.u32(nsec);
        }
    }
}

/// The status, or the error it is.
fn status(r: &mut Reader<'_>) -> Result<()> {
    match r.u32()? {
        0 => Ok(()),
        status => Err(Error::Nfs3(status)),
    }
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_be_bytes(*word)).ok()
}

/// The data of a READ3resok behind a reply head with an empty verifier.
fn locate_read(reply: &[u8]) -> Option<(usize, usize)> {
    // Accepted, no verifier, SUCCESS, NFS3_OK.
    if reply.get(8..REPLY_HEAD + 4)?.iter().any(|b| *b != 0) {
        return None;
    }
    let attr = if word(reply, REPLY_HEAD + 4)? == 0 { 4 } else { POST_OP_ATTR };
    let length_at = REPLY_HEAD + 4 + attr + 8;
    Some((length_at + 4, word(reply, length_at)?))
}

/// The target of a READLINK3resok.
fn locate_readlink(reply: &[u8]) -> Option<(usize, usize)> {
    if reply.get(8..REPLY_HEAD + 4)?.iter().any(|b| *b != 0) {
        return None;
    }
    let attr = if word(reply, REPLY_HEAD + 4)? == 0 { 4 } else { POST_OP_ATTR };
    let length_at = REPLY_HEAD + 4 + attr;
    Some((length_at + 4, word(reply, length_at)?))
}

/// NFS version 3 over one connection. Clones share it.
#[derive(Clone)]
pub struct Nfs3 {
    rpc: Rpc,
    cred: Credential,
}

/// An entry of a list of NFSACL: tag, number, three bits.
pub type AclEntry = [u32; 3];

/// The program beside NFS that has lists; its version is the same.
const NFSACL: u32 = 100_227;
/// NFS_ACL and NFS_DFACL.
const ACL_BOTH: u32 = 5;
const ACL_ENTRIES_MAX: usize = 1024;
/// Two lists of that size, and what stands around them.
const ACL_REPLY_MAX: usize = 32 * 1024;

fn acl_entries(r: &mut Reader<'_>) -> Result<Vec<AclEntry>> {
    r.u32()?;
    let count = r.count(ACL_ENTRIES_MAX)?;
    (0..count).map(|_| Ok([r.u32()?, r.u32()?, r.u32()?])).collect()
}

impl Nfs3 {
    /// Over this connection, as this user.
    pub fn new(rpc: Rpc, cred: Credential) -> Self {
        Self { rpc, cred }
    }

    /// The connection.
    pub fn rpc(&self) -> &Rpc {
        &self.rpc
    }

    fn head(&self, procedure: u32) -> Writer {
        Rpc::head(PROGRAM, VERSION, procedure, &self.cred)
    }

    fn on(&self, procedure: u32, fh: &Fh) -> Writer {
        let mut w = self.head(procedure);
        w.opaque(&fh.0);
        w
    }

    fn at(&self, procedure: u32, dir: &Fh, name: &[u8]) -> Writer {
        let mut w = self.on(procedure, dir);
        w.opaque(name);
        w
    }

    async fn short(&self, args: Writer) -> Result<Answer> {
        self.rpc.call(args, ResultPlace::SHORT).await
    }

    /// A call whose result is only a status.
    async fn plain(&self, args: Writer) -> Result<()> {
        let answer = self.short(args).await?;
        status(&mut results(&answer)?)
    }

    /// NULL
    pub async fn null(&self) -> Result<()> {
        let answer = self.short(self.head(0)).await?;
        results(&answer).map(drop)
    }

    /// GETATTR
    pub async fn getattr(&self, fh: &Fh) -> Result<Attr> {
        let answer = self.short(self.on(1, fh)).await?;
        let mut r = results(&answer)?;
        status(&mut r)?;
        Ok(fattr(&mut r)?)
    }

    /// SETATTR, without a guard.
    pub async fn setattr(&self, fh: &Fh, set: &SetAttr) -> Result<()> {
        let mut w = self.on(2, fh);
        put_sattr(&mut w, set);
        w.bool(false);
        self.plain(w).await
    }

    /// GETACL of NFSACL version 3: the node's own list, and a directory's default list. Each entry: tag, number, three bits.
    pub async fn acl(&self, fh: &Fh) -> Result<(Vec<AclEntry>, Vec<AclEntry>)> {
        let mut w = Rpc::head(NFSACL, VERSION, 1, &self.cred);
        w.opaque(&fh.0);
        w.u32(ACL_BOTH);
        let answer = self.rpc.call(w, ResultPlace::long(ACL_REPLY_MAX)).await?;
        let mut r = results(&answer)?;
        status(&mut r)?;
        post_op_attr(&mut r)?;
        r.u32()?;
        Ok((acl_entries(&mut r)?, acl_entries(&mut r)?))
    }

    /// SETACL of NFSACL version 3, of both lists.
    pub async fn set_acl(&self, fh: &Fh, own: &[AclEntry], default: &[AclEntry]) -> Result<()> {
        let mut w = Rpc::head(NFSACL, VERSION, 2, &self.cred);
        w.opaque(&fh.0);
        w.u32(ACL_BOTH);
        for list in [own, default] {
            w.count(list.len());
            w.count(list.len());
            list.iter().flatten().for_each(|n| w.u32(*n));
        }
        self.plain(w).await
    }

    /// LOOKUP
    pub async fn lookup(&self, dir: &Fh, name: &[u8]) -> Result<(Fh, Option<Attr>)> {
        let answer = self.short(self.at(3, dir, name)).await?;
        let mut r = results(&answer)?;
        status(&mut r)?;
        Ok((Fh::new(r.opaque(FHSIZE)?), post_op_attr(&mut r)?))
    }

    /// ACCESS: which of these `ACCESS3_*` bits the caller has.
    pub async fn access(&self, fh: &Fh, bits: u32) -> Result<u32> {
        let mut w = self.on(4, fh);
        w.u32(bits);
        let answer = self.short(w).await?;
        let mut r = results(&answer)?;
        status(&mut r)?;
        post_op_attr(&mut r)?;
        Ok(r.u32()?)
    }

    /// READLINK
    pub async fn readlink(&self, fh: &Fh) -> Result<Vec<u8>> {
        let bulk = Some(BulkResult { max: PATH_MAX, locate: locate_readlink });
        let answer = self.rpc.call(self.on(5, fh), ResultPlace { reply_max: 512, bulk }).await?;
        let mut r = results(&answer)?;
        status(&mut r)?;
        post_op_attr(&mut r)?;
        Ok(r.bulk(PATH_MAX)?.concat_bytes())
    }

    /// READ
    pub async fn read(&self, fh: &Fh, offset: u64, count: u32) -> Result<Read> {
        let mut w = self.on(6, fh);
        w.u64(offset);
        w.u32(count);
        let max = usize::try_from(count).unwrap_or(usize::MAX);
        let bulk = Some(BulkResult { max, locate: locate_read });
        let answer = self.rpc.call(w, ResultPlace { reply_max: 512, bulk }).await?;
        let mut r = results(&answer)?;
        status(&mut r)?;
        post_op_attr(&mut r)?;
        let told = r.u32()?;
        let eof = r.bool()?;
        let read = Read { data: r.bulk(max)?, eof };
        if u32::try_from(read.len()) != Ok(told) {
            return Err(Error::Protocol("READ: count and length of data differ".into()));
        }
        Ok(read)
    }

    /// WRITE
    pub async fn write(
        &self,
        fh: &Fh,
        offset: u64,
        data: Vec<Buf>,
        stable: Stable,
    ) -> Result<Written> {
        let mut w = self.on(7, fh);
        w.u64(offset);
        w.count(data.iter().map(Buf::len).sum());
        w.u32(stable as u32);
        w.bulk(data);
        let answer = self.short(w).await?;
        let mut r = results(&answer)?;
        status(&mut r)?;
        wcc_data(&mut r)?;
        Ok(Written { count: r.u32()?, committed: r.u32()?, verifier: r.fixed()? })
    }

    /// The handle that CREATE and its siblings give, looked up when the server left it out.
    async fn made(&self, dir: &Fh, name: &[u8], args: Writer) -> Result<(Fh, Option<Attr>)> {
        let answer = self.short(args).await?;
        let mut r = results(&answer)?;
        status(&mut r)?;
        match (post_op_fh(&mut r)?, post_op_attr(&mut r)?) {
            (Some(fh), attr) => Ok((fh, attr)),
            (None, _) => self.lookup(dir, name).await,
        }
    }

    /// CREATE
    pub async fn create(
        &self,
        dir: &Fh,
        name: &[u8],
        how: CreateHow,
    ) -> Result<(Fh, Option<Attr>)> {
        let mut w = self.at(8, dir, name);
        match how {
            CreateHow::Unchecked(set) => {
                w.u32(0);
                put_sattr(&mut w, &set);
            }
            CreateHow::Guarded(set) => {
                w.u32(1);
                put_sattr(&mut w, &set);
            }
            CreateHow::Exclusive(verifier) => {
                w.u32(2);
                w.fixed(&verifier);
            }
        }
        self.made(dir, name, w).await
    }

    /// MKDIR
    pub async fn mkdir(&self, dir: &Fh, name: &[u8], mode: u32) -> Result<(Fh, Option<Attr>)> {
        let mut w = self.at(9, dir, name);
        put_sattr(&mut w, &SetAttr { mode: Some(mode), ..SetAttr::default() });
        self.made(dir, name, w).await
    }

    /// SYMLINK
    pub async fn symlink(
        &self,
        dir: &Fh,
        name: &[u8],
        target: &[u8],
    ) -> Result<(Fh, Option<Attr>)> {
        let mut w = self.at(10, dir, name);
        put_sattr(&mut w, &SetAttr::default());
        w.opaque(target);
        self.made(dir, name, w).await
    }

    /// MKNOD of a named pipe.
    pub async fn mkfifo(&self, dir: &Fh, name: &[u8], mode: u32) -> Result<(Fh, Option<Attr>)> {
        const NF3FIFO: u32 = 7;
        let mut w = self.at(11, dir, name);
        w.u32(NF3FIFO);
        put_sattr(&mut w, &SetAttr { mode: Some(mode), ..SetAttr::default() });
        self.made(dir, name, w).await
    }

    /// MKNOD of a character device.
    pub async fn mkdevice(
        &self,
        dir: &Fh,
        name: &[u8],
        mode: u32,
        (major, minor): (u32, u32),
    ) -> Result<(Fh, Option<Attr>)> {
        const NF3CHR: u32 = 4;
        let mut w = self.at(11, dir, name);
        w.u32(NF3CHR);
        put_sattr(&mut w, &SetAttr { mode: Some(mode), ..SetAttr::default() });
        w.u32(major);
        w.u32(minor);
        self.made(dir, name, w).await
    }

    /// REMOVE
    pub async fn remove(&self, dir: &Fh, name: &[u8]) -> Result<()> {
        self.plain(self.at(12, dir, name)).await
    }

    /// RMDIR
    pub async fn rmdir(&self, dir: &Fh, name: &[u8]) -> Result<()> {
        self.plain(self.at(13, dir, name)).await
    }

    /// RENAME
    pub async fn rename(&self, from: &Fh, name: &[u8], to: &Fh, new_name: &[u8]) -> Result<()> {
        let mut w = self.at(14, from, name);
        w.opaque(&to.0);
        w.opaque(new_name);
        self.plain(w).await
    }

    /// LINK
    pub async fn link(&self, file: &Fh, dir: &Fh, name: &[u8]) -> Result<()> {
        let mut w = self.on(15, file);
        w.opaque(&dir.0);
        w.opaque(name);
        self.plain(w).await
    }

    /// READDIR, one part of at most `count` bytes.
    pub async fn readdir(
        &self,
        dir: &Fh,
        cookie: u64,
        verifier: [u8; 8],
        count: u32,
    ) -> Result<Listing> {
        let mut w = self.on(16, dir);
        w.u64(cookie);
        w.fixed(&verifier);
        w.u32(count);
        self.listing(w, count, false).await
    }

    /// READDIRPLUS, one part of at most `count` bytes.
    pub async fn readdirplus(
        &self,
        dir: &Fh,
        cookie: u64,
        verifier: [u8; 8],
        count: u32,
    ) -> Result<Listing> {
        let mut w = self.on(17, dir);
        w.u64(cookie);
        w.fixed(&verifier);
        w.u32(count);
        w.u32(count);
        self.listing(w, count, true).await
    }

    async fn listing(&self, args: Writer, count: u32, plus: bool) -> Result<Listing> {
        let reply_max = usize::try_from(count).unwrap_or(usize::MAX).saturating_add(512);
        let answer = self.rpc.call(args, ResultPlace::long(reply_max)).await?;
        let mut r = results(&answer)?;
        status(&mut r)?;
        post_op_attr(&mut r)?;
        let verifier = r.fixed()?;
        let mut entries = Vec::new();
        while r.bool()? {
            let (fileid, name, cookie) = (r.u64()?, r.opaque(NAME_MAX)?.to_vec(), r.u64()?);
            let (attr, fh) = match plus {
                true => (post_op_attr(&mut r)?, post_op_fh(&mut r)?),
                false => (None, None),
            };
            entries.push(Entry { fileid, name, cookie, attr, fh });
        }
        Ok(Listing { entries, verifier, eof: r.bool()? })
    }

    /// The whole of a directory, by READDIRPLUS.
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

    /// FSSTAT
    pub async fn fsstat(&self, root: &Fh) -> Result<FsStat> {
        let answer = self.short(self.on(18, root)).await?;
        let mut r = results(&answer)?;
        status(&mut r)?;
        post_op_attr(&mut r)?;
        Ok(FsStat {
            tbytes: r.u64()?,
            fbytes: r.u64()?,
            abytes: r.u64()?,
            tfiles: r.u64()?,
            ffiles: r.u64()?,
            afiles: r.u64()?,
        })
    }

    /// FSINFO
    pub async fn fsinfo(&self, root: &Fh) -> Result<FsInfo> {
        let answer = self.short(self.on(19, root)).await?;
        let mut r = results(&answer)?;
        status(&mut r)?;
        post_op_attr(&mut r)?;
        let (rtmax, rtpref, _rtmult) = (r.u32()?, r.u32()?, r.u32()?);
        let (wtmax, wtpref, _wtmult) = (r.u32()?, r.u32()?, r.u32()?);
        let (dtpref, maxfilesize) = (r.u32()?, r.u64()?);
        let _time_delta = time(&mut r)?;
        Ok(FsInfo { rtmax, rtpref, wtmax, wtpref, dtpref, maxfilesize, properties: r.u32()? })
    }

    /// PATHCONF: most links to a file, longest name.
    pub async fn pathconf(&self, fh: &Fh) -> Result<(u32, u32)> {
        let answer = self.short(self.on(20, fh)).await?;
        let mut r = results(&answer)?;
        status(&mut r)?;
        post_op_attr(&mut r)?;
        Ok((r.u32()?, r.u32()?))
    }

    /// COMMIT of a range; a count of 0 reaches to the end. Gives the write verifier.
    pub async fn commit(&self, fh: &Fh, offset: u64, count: u32) -> Result<[u8; 8]> {
        let mut w = self.on(21, fh);
        w.u64(offset);
        w.u32(count);
        let answer = self.short(w).await?;
        let mut r = results(&answer)?;
        status(&mut r)?;
        wcc_data(&mut r)?;
        Ok(r.fixed()?)
    }
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

    /// An accepted reply with this status, then these words.
    fn reply(status: u32, rest: &[u32]) -> Vec<u8> {
        words(&[&[9, 1, 0, 0, 0, 0, status][..], rest].concat())
    }

    #[test]
    fn the_data_of_a_read_is_found_with_and_without_attributes() {
        assert_eq!(locate_read(&reply(0, &[0, 5, 1, 5])), Some((44, 5)));
        let with = [&[1][..], &[0; 21], &[5, 1, 5]].concat();
        assert_eq!(locate_read(&reply(0, &with)), Some((128, 5)));
        // The offset is that of the byte behind the length word.
        assert_eq!(reply(0, &with).len(), 128);
        assert_eq!(locate_readlink(&reply(0, &[0, 7])), Some((36, 7)));
    }

    #[test]
    fn no_data_is_found_where_there_is_none() {
        assert_eq!(locate_read(&reply(70, &[0, 0, 0, 0])), None);
        assert_eq!(locate_read(&words(&[9, 1, 1, 0, 2, 2, 0, 0, 0])), None);
        let whole = reply(0, &[0, 5, 1, 5]);
        for end in 0..whole.len() {
            assert_eq!(locate_read(&whole[..end]), None, "{end}");
            assert_eq!(locate_readlink(&whole[..end.min(35)]), None, "{end}");
        }
    }

    #[test]
    fn attributes_are_read_as_the_specification_orders_them() {
        let mut w = Writer::new();
        put_sattr(
            &mut w,
            &SetAttr {
                mode: Some(0o640),
                size: Some(7),
                mtime: Some((1, 2)),
                ..SetAttr::default()
            },
        );
        // mode, no uid, no gid, size, atime DONT_CHANGE, mtime SET_TO_CLIENT_TIME (RFC 1813 section 2.6).
        assert_eq!(w.bytes(), words(&[1, 0o640, 0, 0, 1, 0, 7, 0, 2, 1, 2]));
    }
}
