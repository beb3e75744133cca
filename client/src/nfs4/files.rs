//! What clients do with files, one COMPOUND each.

use iobuf::Buf;
use nfs_proto::nfs4::{Stateid4 as Stateid, attr, op};
use nfsrdma::xdr::{Reader, XdrError, XdrResult};

use super::Fh;
use super::attrs::{Attr, put_bitmap, read_bitmap};
use super::compound::{Compound, Results};
use super::session::Nfs4;
use crate::error::{Error, Result};

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenHow {
    /// `OPEN4_SHARE_ACCESS_*`: 1 read, 2 write, 3 both.
    pub access: u32,
    /// `OPEN4_SHARE_DENY_*`
    pub deny: u32,
    /// `OPEN4_SHARE_ACCESS_WANT_*`
    pub want: u32,
    /// Make it with this mode if it is not there.
    pub create: Option<u32>,
    /// It is an error if it is there.
    pub guarded: bool,
    /// Empty it.
    pub truncate: bool,
}

impl OpenHow {
    /// To read.
    pub const READ: Self =
        Self { access: 1, deny: 0, want: 0, create: None, guarded: false, truncate: false };
    /// To read and write.
    pub const WRITE: Self = Self { access: 3, ..Self::READ };

    /// `OPEN4_SHARE_ACCESS_WANT_NO_DELEG`
    pub const WANT_NO_DELEG: u32 = 0x400;
    /// `OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS` (RFC 9754)
    pub const WANT_DELEG_TIMESTAMPS: u32 = 0x0010_0000;
    /// `OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION` (RFC 9754)
    pub const WANT_OPEN_XOR_DELEGATION: u32 = 0x0020_0000;

    /// To read and write, made if it is not there, emptied if it is.
    pub fn create(mode: u32) -> Self {
        Self { access: 3, create: Some(mode), truncate: true, ..Self::READ }
    }
}

/// An open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFile {
    /// The file.
    pub fh: Fh,
    /// The open; the anonymous stateid where a delegation stands for it.
    pub stateid: Stateid,
    /// The delegation that came with it.
    pub delegation: Option<Delegation>,
}

impl OpenFile {
    /// There is an open, to be closed.
    pub fn is_open(&self) -> bool {
        self.stateid != Stateid::ANONYMOUS
    }

    /// What to read and write by.
    pub fn io(&self) -> Stateid {
        match self.delegation {
            Some(d) if !self.is_open() => d.stateid,
            _ => self.stateid,
        }
    }
}

/// `open_delegation4`, when there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delegation {
    /// Its name.
    pub stateid: Stateid,
    /// OPEN_DELEGATE_WRITE.
    pub write: bool,
    /// OPEN_DELEGATE_WRITE_ATTRS_DELEG: with the times of the file.
    pub times: bool,
}

impl Delegation {
    /// `open_delegation_type4`
    fn sort(self) -> u32 {
        match self {
            Self { write: false, .. } => 1,
            Self { times: false, .. } => 2,
            Self { .. } => 5,
        }
    }
}

/// The result of WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes taken.
    pub count: u32,
    /// `stable_how4` that was reached.
    pub committed: u32,
    /// Changes when unstable data may be lost.
    pub verifier: [u8; 8],
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Where to go on behind it.
    pub cookie: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// Its attributes.
    pub attr: Attr,
}

/// `open_delegation4`
fn delegation(r: &mut Reader<'_>) -> XdrResult<Option<Delegation>> {
    fn ace(r: &mut Reader<'_>) -> XdrResult<()> {
        let _ = (r.u32()?, r.u32()?, r.u32()?);
        r.opaque(1024).map(drop)
    }
    match r.u32()? {
        0 => Ok(None),
        1 => {
            let stateid = r.value::<Stateid>()?;
            r.bool()?;
            ace(r)?;
            Ok(Some(Delegation { stateid, write: false, times: false }))
        }
        sort @ (2 | 5) => {
            let stateid = r.value::<Stateid>()?;
            r.bool()?;
            // NFS_LIMIT_SIZE and NFS_LIMIT_BLOCKS both hold eight bytes.
            let _ = (r.u32()?, r.u64()?);
            ace(r)?;
            Ok(Some(Delegation { stateid, write: true, times: sort == 5 }))
        }
        3 => {
            // WND4_CONTENTION and WND4_RESOURCE say whether the server will tell when that changes.
            if matches!(r.u32()?, 1 | 2) {
                r.bool()?;
            }
            Ok(None)
        }
        _ => Err(XdrError::BadValue),
    }
}

impl Nfs4 {
    /// The handle of a path from the root of the server.
    pub async fn walk(&self, path: &str) -> Result<Fh> {
        let names: Vec<&str> = path.split('/').filter(|n| !n.is_empty()).collect();
        let mut c = self.compound().putrootfh();
        for name in &names {
            c = c.lookup(name.as_bytes());
        }
        let answer = self.call(c.getfh()).await?;
        let mut results = Results::new(&answer)?;
        results.sequence()?;
        results.next(op::PUTROOTFH)?;
        for _ in &names {
            results.next(op::LOOKUP)?;
        }
        results.getfh()
    }

    /// LOOKUP
    pub async fn lookup(&self, dir: &Fh, name: &[u8]) -> Result<(Fh, Attr)> {
        let answer = self.call(self.compound().putfh(dir).lookup(name).getfh().getattr()).await?;
        let mut results = Results::new(&answer)?;
        results.sequence()?;
        results.next(op::PUTFH)?;
        results.next(op::LOOKUP)?;
        Ok((results.getfh()?, results.getattr()?))
    }

    /// GETATTR
    pub async fn getattr(&self, fh: &Fh) -> Result<Attr> {
        let answer = self.call(self.compound().putfh(fh).getattr()).await?;
        let mut results = Results::new(&answer)?;
        results.sequence()?;
        results.next(op::PUTFH)?;
        results.getattr()
    }

    /// SETATTR of mode and size.
    pub async fn setattr(
        &self,
        fh: &Fh,
        stateid: Stateid,
        mode: Option<u32>,
        size: Option<u64>,
    ) -> Result<()> {
        let c = self.compound().putfh(fh).setattr(stateid, mode, size);
        self.plain(c, &[op::PUTFH, op::SETATTR]).await
    }

    /// OPEN of a name, as `owner`.
    pub async fn open(
        &self,
        dir: &Fh,
        name: &[u8],
        owner: &[u8],
        how: OpenHow,
    ) -> Result<OpenFile> {
        self.opened(self.compound().putfh(dir).open(self.clientid(), owner, name, how).getfh())
            .await
    }

    /// OPEN of what this client had open before the server restarted (CLAIM_PREVIOUS), with the delegation that came with it.
    pub async fn reclaim(&self, file: &OpenFile, owner: &[u8], how: OpenHow) -> Result<OpenFile> {
        let mut c = self.compound().putfh(&file.fh);
        let w = c.op(op::OPEN);
        for word in [0, how.access | how.want, how.deny] {
            w.u32(word);
        }
        w.u64(self.clientid());
        w.opaque(owner);
        // OPEN4_NOCREATE, CLAIM_PREVIOUS.
        for word in [0, 1, file.delegation.map_or(0, Delegation::sort)] {
            w.u32(word);
        }
        self.opened(c.getfh()).await
    }

    async fn opened(&self, c: Compound) -> Result<OpenFile> {
        let answer = self.call(c).await?;
        let mut results = Results::new(&answer)?;
        results.sequence()?;
        results.next(op::PUTFH)?;
        let r = results.next(op::OPEN)?;
        let stateid = r.value::<Stateid>()?;
        // change_info4 and rflags.
        let _ = (r.bool()?, r.u64()?, r.u64()?, r.u32()?);
        read_bitmap(r)?;
        let delegation = delegation(r)?;
        Ok(OpenFile { fh: results.getfh()?, stateid, delegation })
    }

    /// CLOSE
    pub async fn close(&self, file: &OpenFile) -> Result<()> {
        let c = self.compound().putfh(&file.fh).close(file.stateid);
        self.plain(c, &[op::PUTFH, op::CLOSE]).await
    }

    /// LOCK of bytes of an open file by `owner`, who has none of it yet; `kind` is `nfs_lock_type4`: 1 to read, 2 to write.
    pub async fn lock(
        &self,
        file: &OpenFile,
        owner: &[u8],
        kind: u32,
        (offset, length): (u64, u64),
    ) -> Result<Stateid> {
        let mut c = self.compound().putfh(&file.fh);
        let w = c.op(op::LOCK);
        w.u32(kind);
        w.bool(false);
        w.u64(offset);
        w.u64(length);
        // A new lock owner: open_seqid, the open, lock_seqid, and whose it is.
        w.bool(true);
        w.u32(0);
        w.value(&file.stateid);
        w.u32(0);
        w.u64(self.clientid());
        w.opaque(owner);
        let answer = self.call(c).await?;
        let mut results = Results::new(&answer)?;
        results.sequence()?;
        results.next(op::PUTFH)?;
        Ok(results.next(op::LOCK)?.value()?)
    }

    /// LOCKU
    pub async fn unlock(
        &self,
        fh: &Fh,
        stateid: Stateid,
        kind: u32,
        (offset, length): (u64, u64),
    ) -> Result<()> {
        let mut c = self.compound().putfh(fh);
        let w = c.op(op::LOCKU);
        w.u32(kind);
        w.u32(0);
        w.value(&stateid);
        w.u64(offset);
        w.u64(length);
        self.plain(c, &[op::PUTFH, op::LOCKU]).await
    }

    /// READ: the bytes, in pieces, and whether the end of the file is reached.
    pub async fn read(
        &self,
        fh: &Fh,
        stateid: Stateid,
        offset: u64,
        count: u32,
    ) -> Result<(Vec<Buf>, bool)> {
        let answer = self.call(self.compound().putfh(fh).read(stateid, offset, count)).await?;
        let mut results = Results::new(&answer)?;
        results.sequence()?;
        results.next(op::PUTFH)?;
        let r = results.next(op::READ)?;
        let eof = r.bool()?;
        Ok((r.bulk(usize::try_from(count).unwrap_or(usize::MAX))?, eof))
    }

    /// WRITE; `stable` is `stable_how4`: 0 unstable, 1 data, 2 file.
    pub async fn write(
        &self,
        fh: &Fh,
        stateid: Stateid,
        offset: u64,
        data: Vec<Buf>,
        stable: u32,
    ) -> Result<Written> {
        let c = self.compound().putfh(fh).write(stateid, offset, data, stable);
        let answer = self.call(c).await?;
        let mut results = Results::new(&answer)?;
        results.sequence()?;
        results.next(op::PUTFH)?;
        let r = results.next(op::WRITE)?;
        Ok(Written { count: r.u32()?, committed: r.u32()?, verifier: r.fixed()? })
    }

    /// COMMIT of a range; a count of 0 reaches to the end. Gives the write verifier.
    pub async fn commit(&self, fh: &Fh, offset: u64, count: u32) -> Result<[u8; 8]> {
        let answer = self.call(self.compound().putfh(fh).commit(offset, count)).await?;
        let mut results = Results::new(&answer)?;
        results.sequence()?;
        results.next(op::PUTFH)?;
        Ok(results.next(op::COMMIT)?.fixed()?)
    }

    /// REMOVE
    pub async fn remove(&self, dir: &Fh, name: &[u8]) -> Result<()> {
        let c = self.compound().putfh(dir).remove(name);
        self.plain(c, &[op::PUTFH, op::REMOVE]).await
    }

    /// RENAME
    pub async fn rename(&self, from: &Fh, name: &[u8], to: &Fh, new_name: &[u8]) -> Result<()> {
        let c = self.compound().putfh(from).savefh().putfh(to).rename(name, new_name);
        self.plain(c, &[op::PUTFH, op::SAVEFH, op::PUTFH, op::RENAME]).await
    }

    /// LINK of a file.
    pub async fn link(&self, file: &Fh, dir: &Fh, name: &[u8]) -> Result<()> {
        let c = self.compound().putfh(file).savefh().putfh(dir).link(name);
        self.plain(c, &[op::PUTFH, op::SAVEFH, op::PUTFH, op::LINK]).await
    }

    /// CREATE of a directory.
    pub async fn mkdir(&self, dir: &Fh, name: &[u8], mode: u32) -> Result<Fh> {
        let answer = self.call(self.compound().putfh(dir).mkdir(name, mode).getfh()).await?;
        let mut results = Results::new(&answer)?;
        results.sequence()?;
        results.next(op::PUTFH)?;
        let r = results.next(op::CREATE)?;
        // change_info4, then the attributes that were set.
        let _ = (r.bool()?, r.u64()?, r.u64()?);
        read_bitmap(r)?;
        results.getfh()
    }

    /// DELEGRETURN
    pub async fn delegreturn(&self, fh: &Fh, stateid: Stateid) -> Result<()> {
        let c = self.compound().putfh(fh).delegreturn(stateid);
        self.plain(c, &[op::PUTFH, op::DELEGRETURN]).await
    }

    /// SETATTR of the times that the holder of a delegation has kept: of the last read and of the last change, each in seconds and
    /// nanoseconds.
    pub async fn set_delegated_times(
        &self,
        fh: &Fh,
        delegation: Stateid,
        (access, modify): ((i64, u32), (i64, u32)),
    ) -> Result<()> {
        let mut c = self.compound().putfh(fh);
        let w = c.op(op::SETATTR);
        w.value(&delegation);
        put_bitmap(w, &[attr::TIME_DELEG_ACCESS, attr::TIME_DELEG_MODIFY]);
        w.u32(24);
        for (sec, nsec) in [access, modify] {
            w.i64(sec);
            w.u32(nsec);
        }
        self.plain(c, &[op::PUTFH, op::SETATTR]).await
    }

    /// GET_DIR_DELEGATION without notifications; `None` when there is none to be had.
    pub async fn get_dir_delegation(&self, dir: &Fh) -> Result<Option<Stateid>> {
        let mut c = self.compound().putfh(dir);
        let w = c.op(op::GET_DIR_DELEGATION);
        w.bool(false);
        put_bitmap(w, &[]);
        for _ in 0..2 {
            w.i64(0);
            w.u32(0);
        }
        put_bitmap(w, &[]);
        put_bitmap(w, &[]);
        let answer = self.call(c).await?;
        let mut results = Results::new(&answer)?;
        results.sequence()?;
        results.next(op::PUTFH)?;
        let r = results.next(op::GET_DIR_DELEGATION)?;
        if r.u32()? != 0 {
            return Ok(None);
        }
        r.fixed::<8>()?;
        Ok(Some(r.value::<Stateid>()?))
    }

    /// The whole of a directory, by READDIR.
    pub async fn list(&self, dir: &Fh) -> Result<Vec<DirEntry>> {
        const PART: u32 = 32 << 10;
        let (mut all, mut cookie, mut verifier) = (Vec::<DirEntry>::new(), 0, [0; 8]);
        loop {
            let c = self.compound().putfh(dir).readdir(cookie, verifier, PART);
            let answer = self.call(c).await?;
            let mut results = Results::new(&answer)?;
            results.sequence()?;
            results.next(op::PUTFH)?;
            let r = results.next(op::READDIR)?;
            verifier = r.fixed()?;
            let before = all.len();
            while r.bool()? {
                let (cookie, name) = (r.u64()?, r.opaque(4096)?.to_vec());
                all.push(DirEntry { cookie, name, attr: Attr::read(r)? });
            }
            if r.bool()? {
                return Ok(all);
            }
            match all.last() {
                Some(last) if all.len() > before => cookie = last.cookie,
                _ => return Err(Error::Protocol("READDIR: no entry and no end".into())),
            }
        }
    }
}
