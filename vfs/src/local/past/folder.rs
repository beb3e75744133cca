//! The folder of snapshots that each folder of a share has under the name `.snapshot`.

use std::any::Any;
use std::sync::Arc;

use iobuf::Buf;
use policy::{gmt_name, gmt_time};

use super::{FOLDER, NAME, marked};
use crate::authority::Acting;
use crate::backend::{BoxFuture, Made, Node, NodeRef, ReadInto, ready};
use crate::error::{VfsError, VfsResult};
use crate::fnv::fnv;
use crate::local::node::LocalNode;
use crate::perm;
use crate::shared_file::{FileKey, Generation, SharedFile};
use crate::types::*;

/// Set in the number of a folder of snapshots, which no file system on Linux gives.
const NUMBER: u64 = 1 << 63;

/// The snapshots of a folder, by time.
pub(in crate::local) struct Versions {
    /// The folder of the share.
    top: Arc<LocalNode>,
    dir: Arc<LocalNode>,
    shared: Arc<SharedFile>,
}

fn no_change<'a, T: Send + 'a>() -> BoxFuture<'a, VfsResult<T>> {
    ready(Err(VfsError::ReadOnly))
}

impl Versions {
    /// The snapshots of a folder in the share with this root.
    pub(super) fn of(top: &Arc<LocalNode>, dir: Arc<LocalNode>) -> Arc<Self> {
        let shared =
            SharedFile::of(FileKey::Versions(dir.dev, dir.ino), Generation::only(Kind::Dir));
        Arc::new(Self { top: top.clone(), dir, shared })
    }

    /// The same folder, for a thread.
    fn again(&self) -> Arc<Self> {
        let (top, dir, shared) = (self.top.clone(), self.dir.clone(), self.shared.clone());
        Arc::new(Self { top, dir, shared })
    }

    /// The folder of the share.
    pub(in crate::local) fn live(&self) -> &Arc<LocalNode> {
        &self.top
    }

    /// The number of this entry, unless it is a snapshot's.
    fn number(&self, sec: Option<i64>) -> u64 {
        let of = fnv(&[self.dir.ino.to_be_bytes(), sec.unwrap_or(-1).to_be_bytes()].concat());
        NUMBER | of
    }

    /// Attributes of the folder, changed last by the latest snapshot.
    pub(super) fn attr(&self) -> VfsResult<Attr> {
        let dir = self.dir.attr()?;
        let list = self.top.volume.border.snapshots.list(&self.top.volume)?;
        let all: Vec<u8> = list.times().flat_map(i64::to_be_bytes).collect();
        let changed = Time { sec: list.times().next().unwrap_or(0), nsec: 0 };
        Ok(Attr {
            mode: dir.mode & 0o555,
            nlink: 2,
            size: 0,
            used: 0,
            fileid: self.number(None),
            atime: changed,
            mtime: changed,
            ctime: changed,
            btime: None,
            change: fnv(&all),
            sealed: true,
            ..dir
        })
    }

    fn find(&self, cred: &Cred, name: &[u8]) -> VfsResult<(NodeRef, Attr)> {
        if name == b".." {
            self.dir.permitted_now(cred, perm::EXECUTE)?;
            return Ok((self.dir.clone(), self.dir.attr()?));
        }
        self.dir.permitted_now(cred, perm::EXECUTE)?;
        let sec = std::str::from_utf8(name).ok().and_then(gmt_time).ok_or(VfsError::NotFound)?;
        let node = self.dir.past(&self.top, cred, sec)?.ok_or(VfsError::NotFound)?;
        let node = node.entered(self.number(Some(sec)));
        let attr = node.attr()?;
        Ok((node, attr))
    }

    fn list(&self, cred: &Cred, cookie: u64, most: usize) -> VfsResult<(Vec<DirEntry>, bool)> {
        self.dir.permitted_now(cred, perm::READ)?;
        let mut times = self.dir.times(&self.top, cred, None)?;
        times.sort_unstable();
        let cookie_of =
            |sec: i64| u64::try_from(sec).unwrap_or(0).saturating_add(DirEntry::COOKIE_MIN);
        let mut rest = times
            .into_iter()
            .filter(|sec| cookie < DirEntry::COOKIE_MIN || cookie_of(*sec) > cookie);
        let entry = |sec: i64| {
            let name = gmt_name(sec)?.into_bytes().into();
            let (fileid, cookie, kind) = (self.number(Some(sec)), cookie_of(sec), Some(Kind::Dir));
            Some(DirEntry { name, fileid, cookie, kind })
        };
        let found = rest.by_ref().take(most).filter_map(entry).collect();
        let is_end = rest.next().is_none();
        Ok((found, is_end))
    }
}

impl LocalNode {
    /// This folder in the snapshot of this time, as the caller; `None` if the snapshot does not have it.
    pub(super) fn past(
        self: &Arc<Self>,
        top: &Arc<LocalNode>,
        cred: &Cred,
        sec: i64,
    ) -> VfsResult<Option<Arc<super::PastNode>>> {
        if !Arc::ptr_eq(&self.volume, &top.volume) {
            // A file system that is mounted in the share is in no snapshot of it.
            return Ok(None);
        }
        let path = self.do_path()?;
        let found = match top.volume.border.snapshots.open(top, sec) {
            Err(VfsError::NotFound | VfsError::NotDir | VfsError::Symlink) => return Ok(None),
            past => past?.dir(cred, &path),
        };
        match found {
            Ok(node) if node.kind() == Kind::Dir => Ok(Some(node)),
            Ok(_) | Err(VfsError::NotFound | VfsError::NotDir | VfsError::Symlink) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The times of the snapshots that have this folder, or this name in it, and let the caller see it.
    pub(super) fn times(
        self: &Arc<Self>,
        top: &Arc<LocalNode>,
        cred: &Cred,
        name: Option<&[u8]>,
    ) -> VfsResult<Vec<i64>> {
        if !Arc::ptr_eq(&self.volume, &top.volume) {
            return Ok(Vec::new());
        }
        let list = top.volume.border.snapshots.list(&top.volume)?;
        if self.is_root() && name.is_none() {
            return Ok(list.times().collect());
        }
        let has = |sec: i64| {
            let folder = self.past(top, cred, sec)?;
            Ok(match (folder, name) {
                (None, _) => false,
                (Some(_), None) => true,
                (Some(folder), Some(name)) => folder.find(cred, name).is_ok(),
            })
        };
        let mut found = Vec::new();
        for sec in list.times() {
            match has(sec) {
                Ok(true) => found.push(sec),
                // The caller has no right there, or the snapshot is going away.
                Ok(false)
                | Err(VfsError::Access | VfsError::Stale | VfsError::NotFound | VfsError::Io) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(found)
    }
}

impl Node for Versions {
    fn id(&self) -> NodeId {
        self.shared.id
    }

    fn handle(&self) -> Handle {
        marked(&self.dir.handle, FOLDER)
    }

    fn kind(&self) -> Kind {
        Kind::Dir
    }

    fn as_any(&self) -> &(dyn Any + Send + Sync) {
        self
    }

    fn is_beside(&self, other: &dyn Node) -> bool {
        self.top.is_beside(other)
    }

    fn is_cacheable(&self) -> bool {
        false
    }

    fn getattr(&self) -> BoxFuture<'_, VfsResult<Attr>> {
        let me = self.again();
        self.top.volume.with_list(move || me.attr())
    }

    fn setattr<'a>(
        &'a self,
        _: &'a Cred,
        _: SetAttr,
        _: bool,
    ) -> BoxFuture<'a, VfsResult<(Attr, Attr)>> {
        no_change()
    }

    fn access<'a>(
        &'a self,
        cred: &'a Cred,
        wanted: Access,
        _: &'a Attr,
    ) -> BoxFuture<'a, VfsResult<Access>> {
        const READS: u32 = Access::READ | Access::LOOKUP | Access::EXECUTE;
        let wanted = Access(wanted.0 & READS);
        self.top.volume.patient(move || self.dir.do_access(cred, wanted, &self.dir.attr()?))
    }

    fn may<'a>(&'a self, _: &'a Cred, intent: Intent<'a>) -> BoxFuture<'a, VfsResult<()>> {
        match intent {
            Intent::Read => ready(Err(VfsError::IsDir)),
            _ => no_change(),
        }
    }

    fn may_date<'a>(&'a self, _: &'a Cred, _: &'a Attr) -> BoxFuture<'a, VfsResult<bool>> {
        ready(Ok(false))
    }

    fn lookup<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(NodeRef, Attr)>> {
        // This may open a snapshot, and looks up each name of the folder's path there and today.
        let (me, cred, name) = (self.again(), cred.clone(), name.to_vec());
        let volume = &self.top.volume;
        volume.steps(volume.patient_apart(move || me.find(&cred, &name)))
    }

    fn readdir<'a>(
        &'a self,
        cred: &'a Cred,
        cookie: u64,
        entries_max: usize,
    ) -> BoxFuture<'a, VfsResult<(Vec<DirEntry>, bool)>> {
        let (me, cred) = (self.again(), cred.clone());
        Box::pin(async move {
            let volume = self.top.volume.clone();
            volume.patient_apart(move || me.list(&cred, cookie, entries_max)).await
        })
    }

    fn create<'a>(
        &'a self,
        _: Acting<'a>,
        _: &'a [u8],
        _: CreateHow,
        _: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>> {
        no_change()
    }

    fn mkdir<'a>(
        &'a self,
        _: Acting<'a>,
        _: &'a [u8],
        _: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>> {
        no_change()
    }

    fn symlink<'a>(
        &'a self,
        _: &'a Cred,
        _: &'a [u8],
        _: &'a [u8],
        _: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>> {
        no_change()
    }

    fn mknod<'a>(
        &'a self,
        _: &'a Cred,
        _: &'a [u8],
        _: Special,
        _: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>> {
        no_change()
    }

    fn remove<'a>(
        &'a self,
        _: Acting<'a>,
        _: &'a [u8],
        _: bool,
    ) -> BoxFuture<'a, VfsResult<DirChange>> {
        no_change()
    }

    fn rename<'a>(
        &'a self,
        _: Acting<'a>,
        _: &'a [u8],
        _: &'a dyn Node,
        _: &'a [u8],
        _: bool,
    ) -> BoxFuture<'a, VfsResult<(DirChange, DirChange)>> {
        no_change()
    }

    fn open<'a>(&'a self, _: &'a Cred, _: bool, _: bool) -> BoxFuture<'a, VfsResult<Attr>> {
        ready(Err(VfsError::IsDir))
    }

    fn read<'a>(
        &'a self,
        _: Option<&'a Cred>,
        _: u64,
        _: usize,
        _: &'a ReadInto,
    ) -> BoxFuture<'a, VfsResult<ReadData>> {
        ready(Err(VfsError::IsDir))
    }

    fn write<'a>(
        &'a self,
        _: WriteBy<'a>,
        _: u64,
        _: Vec<Buf>,
        _: Stable,
    ) -> BoxFuture<'a, VfsResult<Written>> {
        ready(Err(VfsError::IsDir))
    }

    fn path(&self) -> BoxFuture<'_, VfsResult<Vec<u8>>> {
        self.top.volume.at_once(move || {
            let mut path = self.dir.do_path()?;
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(NAME);
            Ok(path)
        })
    }
}
