//! Operations on files, one COMPOUND each.

use iobuf::Buf;
use nfs_proto::nfs4::attrs::{Bitmap4, Value};
use nfs_proto::nfs4::ops::{
    self, Created, DirDelegation4, GetDirDelegation, Listing, Lock, Locker4, Locku,
    OpenDelegation4, OpenToLockOwner4, Opened, ReadDone,
};
use nfs_proto::nfs4::{
    LockType4, Nfstime4, StableHow4, StateOwner4, Stateid4 as Stateid, attr, op,
};

use super::Fh;
use super::attrs::{Attr, Fattr};
use super::compound::{Compound, Results};
use super::session::Nfs4;
use crate::error::{Error, Result};

/// The number of the attribute `space_avail`.
const SPACE_AVAIL: u32 = 42;

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenHow {
    /// `OPEN4_SHARE_ACCESS_*`: 1 read, 2 write, 3 both.
    pub access: u32,
    /// `OPEN4_SHARE_DENY_*`
    pub deny: u32,
    /// `OPEN4_SHARE_ACCESS_WANT_*`
    pub want: u32,
    /// Create a missing file with this mode.
    pub create: Option<u32>,
    /// Fail if the file exists.
    pub guarded: bool,
    /// Truncate an existing file.
    pub truncate: bool,
}

impl OpenHow {
    /// Opens for reading.
    pub const READ: Self =
        Self { access: 1, deny: 0, want: 0, create: None, guarded: false, truncate: false };
    /// Opens for reading and writing.
    pub const WRITE: Self = Self { access: 3, ..Self::READ };

    /// `OPEN4_SHARE_ACCESS_WANT_NO_DELEG`
    pub const WANT_NO_DELEG: u32 = 0x400;
    /// `OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS` (RFC 9754)
    pub const WANT_DELEG_TIMESTAMPS: u32 = 0x0010_0000;
    /// `OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION` (RFC 9754)
    pub const WANT_OPEN_XOR_DELEGATION: u32 = 0x0020_0000;

    /// Opens for reading and writing; creates a missing file, truncates an existing one.
    pub fn create(mode: u32) -> Self {
        Self { access: 3, create: Some(mode), truncate: true, ..Self::READ }
    }
}

/// An open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFile {
    pub fh: Fh,
    /// Stateid of the open; the anonymous stateid if a delegation replaces the open.
    pub stateid: Stateid,
    /// The delegation that the server granted.
    pub delegation: Option<Delegation>,
}

impl OpenFile {
    /// Checks whether an open exists that must be closed.
    pub fn is_open(&self) -> bool {
        self.stateid != Stateid::ANONYMOUS
    }

    /// Returns the stateid for reads and writes.
    pub fn io(&self) -> Stateid {
        match self.delegation {
            Some(d) if !self.is_open() => d.stateid,
            _ => self.stateid,
        }
    }
}

/// A granted `open_delegation4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delegation {
    pub stateid: Stateid,
    /// OPEN_DELEGATE_WRITE.
    pub write: bool,
    /// OPEN_DELEGATE_WRITE_ATTRS_DELEG: includes the times of the file.
    pub times: bool,
}

impl Delegation {
    /// Returns the `open_delegation_type4`.
    fn sort(self) -> u32 {
        match self {
            Self { write: false, .. } => 1,
            Self { times: false, .. } => 2,
            Self { .. } => 5,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Number of bytes written.
    pub count: u32,
    /// `stable_how4` that was reached.
    pub committed: u32,
    /// Changes if unstable data may have been lost.
    pub verifier: [u8; 8],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Position after this entry.
    pub cookie: u64,
    pub name: Vec<u8>,
    pub attr: Attr,
}

impl Delegation {
    fn of(given: &OpenDelegation4<'_>) -> Option<Self> {
        let (stateid, write, times) = match given {
            OpenDelegation4::None | OpenDelegation4::NoneExt(_) => return None,
            OpenDelegation4::Read(d) => (d.stateid, false, false),
            OpenDelegation4::ReadAttrs(d) => (d.stateid, false, true),
            OpenDelegation4::Write(d) => (d.stateid, true, false),
            OpenDelegation4::WriteAttrs(d) => (d.stateid, true, true),
        };
        Some(Self { stateid, write, times })
    }
}

impl Nfs4 {
    /// Returns the handle of a path from the server's root.
    pub async fn walk(&self, path: &str) -> Result<Fh> {
        let names: Vec<&str> = path.split('/').filter(|n| !n.is_empty()).collect();
        let mut c = self.compound().putrootfh();
        for name in &names {
            c = c.lookup(name.as_bytes());
        }
        let answer = self.call(c.getfh()).await?;
        let mut results = Results::new(&answer)?;
        results.sequence()?;
        results.next::<()>(op::PUTROOTFH)?;
        for _ in &names {
            results.next::<()>(op::LOOKUP)?;
        }
        results.getfh()
    }

    pub async fn lookup(&self, dir: &Fh, name: &[u8]) -> Result<(Fh, Attr)> {
        let answer = self.call(self.compound().putfh(dir).lookup(name).getfh().getattr()).await?;
        let mut results = Results::behind_putfh(&answer)?;
        results.next::<()>(op::LOOKUP)?;
        Ok((results.getfh()?, results.getattr()?))
    }

    pub async fn getattr(&self, fh: &Fh) -> Result<Attr> {
        let answer = self.call(self.compound().putfh(fh).getattr()).await?;
        let mut results = Results::behind_putfh(&answer)?;
        results.getattr()
    }

    /// GETATTR of `space_avail` (RFC 8881 section 5.8.2.35): free bytes for this caller; `None` if the server lacks the attribute.
    pub async fn free(&self, fh: &Fh) -> Result<Option<u64>> {
        let asked = Bitmap4::of(&[SPACE_AVAIL]);
        let answer = self.call(self.compound().putfh(fh).getattr_of(asked)).await?;
        let mut results = Results::behind_putfh(&answer)?;
        results.space_avail()
    }

    /// SETATTR of mode and size.
    pub async fn setattr(
        &self,
        fh: &Fh,
        stateid: Stateid,
        mode: Option<u32>,
        size: Option<u64>,
    ) -> Result<()> {
        let c = self.compound().putfh(fh).setattr(stateid, &Fattr::mode_and_size(mode, size));
        self.plain(c, &[op::PUTFH, op::SETATTR]).await
    }

    /// OPEN of a name for `owner`.
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

    /// OPEN of a file that this client had open before the server restarted (CLAIM_PREVIOUS), with its delegation.
    pub async fn reclaim(&self, file: &OpenFile, owner: &[u8], how: OpenHow) -> Result<OpenFile> {
        let delegation = file.delegation.map_or(0, Delegation::sort);
        let c = self.compound().putfh(&file.fh);
        self.opened(c.reclaim(self.clientid(), owner, how, delegation).getfh()).await
    }

    async fn opened(&self, c: Compound) -> Result<OpenFile> {
        let answer = self.call(c).await?;
        let mut results = Results::behind_putfh(&answer)?;
        let opened: Opened<'_> = results.next(op::OPEN)?;
        let (stateid, delegation) = (opened.stateid, Delegation::of(&opened.delegation));
        Ok(OpenFile { fh: results.getfh()?, stateid, delegation })
    }

    pub async fn close(&self, file: &OpenFile) -> Result<()> {
        let c = self.compound().putfh(&file.fh).close(file.stateid);
        self.plain(c, &[op::PUTFH, op::CLOSE]).await
    }

    /// LOCK of bytes of an open file for an `owner` without locks on it.
    pub async fn lock(
        &self,
        file: &OpenFile,
        owner: &[u8],
        locktype: LockType4,
        (offset, length): (u64, u64),
    ) -> Result<Stateid> {
        let locker = Locker4::Open(OpenToLockOwner4 {
            open_seqid: 0,
            open_stateid: file.stateid,
            lock_seqid: 0,
            lock_owner: StateOwner4 { clientid: self.clientid(), owner },
        });
        self.lock_by(&file.fh, Lock { locktype, reclaim: false, offset, length, locker }).await
    }

    /// LOCK
    pub async fn lock_by(&self, fh: &Fh, args: Lock<'_>) -> Result<Stateid> {
        let answer = self.call(self.compound().putfh(fh).op(op::LOCK, &args)).await?;
        Results::behind_putfh(&answer)?.next(op::LOCK)
    }

    /// LOCKU
    pub async fn unlock(
        &self,
        fh: &Fh,
        stateid: Stateid,
        locktype: LockType4,
        (offset, length): (u64, u64),
    ) -> Result<()> {
        let args = Locku { locktype, seqid: 0, lock_stateid: stateid, offset, length };
        let c = self.compound().putfh(fh).op(op::LOCKU, &args);
        self.plain(c, &[op::PUTFH, op::LOCKU]).await
    }

    /// READ: returns the bytes in pieces, and whether the end of the file was reached.
    pub async fn read(
        &self,
        fh: &Fh,
        stateid: Stateid,
        offset: u64,
        count: u32,
    ) -> Result<(Vec<Buf>, bool)> {
        let answer = self.call(self.compound().putfh(fh).read(stateid, offset, count)).await?;
        let mut results = Results::behind_putfh(&answer)?;
        let ReadDone { eof, data } = results.next(op::READ)?;
        Ok((results.data(data, usize::try_from(count).unwrap_or(usize::MAX))?, eof))
    }

    pub async fn write(
        &self,
        fh: &Fh,
        stateid: Stateid,
        offset: u64,
        data: Vec<Buf>,
        stable: StableHow4,
    ) -> Result<Written> {
        let c = self.compound().putfh(fh).write(stateid, offset, data, stable);
        let answer = self.call(c).await?;
        let ops::Written { count, committed, writeverf } =
            Results::behind_putfh(&answer)?.next(op::WRITE)?;
        Ok(Written { count, committed: committed as u32, verifier: writeverf })
    }

    /// COMMIT of a range; a count of 0 means to the end. Returns the write verifier.
    pub async fn commit(&self, fh: &Fh, offset: u64, count: u32) -> Result<[u8; 8]> {
        let answer = self.call(self.compound().putfh(fh).commit(offset, count)).await?;
        Results::behind_putfh(&answer)?.next(op::COMMIT)
    }

    pub async fn remove(&self, dir: &Fh, name: &[u8]) -> Result<()> {
        let c = self.compound().putfh(dir).remove(name);
        self.plain(c, &[op::PUTFH, op::REMOVE]).await
    }

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
        let mut results = Results::behind_putfh(&answer)?;
        results.next::<Created>(op::CREATE)?;
        results.getfh()
    }

    pub async fn delegreturn(&self, fh: &Fh, stateid: Stateid) -> Result<()> {
        let c = self.compound().putfh(fh).delegreturn(stateid);
        self.plain(c, &[op::PUTFH, op::DELEGRETURN]).await
    }

    /// SETATTR of the times that the holder of a delegation kept: last read and last change, each in seconds and nanoseconds.
    pub async fn set_delegated_times(
        &self,
        fh: &Fh,
        delegation: Stateid,
        (access, modify): ((i64, u32), (i64, u32)),
    ) -> Result<()> {
        let time = |(seconds, nseconds)| Nfstime4 { seconds, nseconds };
        let fattr = Fattr::of(
            &[attr::TIME_DELEG_ACCESS, attr::TIME_DELEG_MODIFY],
            &[Value::TimeDelegAccess(time(access)), Value::TimeDelegModify(time(modify))],
        );
        let c = self.compound().putfh(fh).setattr(delegation, &fattr);
        self.plain(c, &[op::PUTFH, op::SETATTR]).await
    }

    /// GET_DIR_DELEGATION without notifications; `None` if the server grants no delegation.
    pub async fn get_dir_delegation(&self, dir: &Fh) -> Result<Option<Stateid>> {
        let args = GetDirDelegation {
            signal_deleg_avail: false,
            notification_types: Bitmap4::EMPTY,
            child_attr_delay: Nfstime4::default(),
            dir_attr_delay: Nfstime4::default(),
            child_attributes: Bitmap4::EMPTY,
            dir_attributes: Bitmap4::EMPTY,
        };
        let c = self.compound().putfh(dir).op(op::GET_DIR_DELEGATION, &args);
        let answer = self.call(c).await?;
        match Results::behind_putfh(&answer)?.next(op::GET_DIR_DELEGATION)? {
            DirDelegation4::Ok(given) => Ok(Some(given.stateid)),
            DirDelegation4::Unavail(_) => Ok(None),
        }
    }

    /// Lists a whole directory with READDIR.
    pub async fn list(&self, dir: &Fh) -> Result<Vec<DirEntry>> {
        const PART: u32 = 32 << 10;
        let (mut all, mut cookie, mut verifier) = (Vec::<DirEntry>::new(), 0, [0; 8]);
        loop {
            let c = self.compound().putfh(dir).readdir(cookie, verifier, PART);
            let answer = self.call(c).await?;
            let done: Listing<'_> = Results::behind_putfh(&answer)?.next(op::READDIR)?;
            verifier = done.cookieverf;
            let before = all.len();
            for entry in &done.entries.0 {
                let (name, attr) = (entry.name.to_vec(), Attr::of(&entry.attrs)?);
                all.push(DirEntry { cookie: entry.cookie, name, attr });
            }
            if done.eof {
                return Ok(all);
            }
            match all.last() {
                Some(last) if all.len() > before => cookie = last.cookie,
                _ => return Err(Error::Protocol("READDIR: no entry and no end".into())),
            }
        }
    }
}
