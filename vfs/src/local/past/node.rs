//! A file in a snapshot: the record of its volume, with the rights of today.

use std::any::Any;
use std::os::fd::AsFd;
use std::sync::Arc;

use iobuf::Buf;
use policy::gmt_name;

use super::way::Way;
use super::{NAME, PAST, Past, Versions, marked};
use crate::acl::posix::{Change, Lists};
use crate::acl::{Acl, mask};
use crate::authority::Acting;
use crate::backend::{BoxFuture, Made, Node, NodeRef, ReadInto, ready};
use crate::dos::Dos;
use crate::error::{VfsError, VfsResult};
use crate::local::Volume;
use crate::local::node::LocalNode;
use crate::perm::{self, Need};
use crate::types::*;

/// The rights in a snapshot that mode bits never withhold.
const ALWAYS: u32 = mask::READ_ATTRIBUTES | mask::READ_CONTROL | mask::SYNCHRONIZE;
/// The rights in a snapshot that no list can give more of.
const READS: u32 = ALWAYS | mask::READ_DATA | mask::READ_EA | mask::EXECUTE;

/// A file in a snapshot.
pub(in crate::local) struct PastNode {
    past: Arc<Past>,
    node: Arc<LocalNode>,
    /// `None` for the root of the snapshot.
    way: Option<Arc<Way>>,
    /// The number of the entry in the folder of snapshots by which it was reached.
    entry: Option<u64>,
}

fn no_change<'a, T: Send + 'a>() -> BoxFuture<'a, VfsResult<T>> {
    ready(Err(VfsError::ReadOnly))
}

/// The attributes of a file that cannot change.
fn sealed(attr: Attr) -> Attr {
    Attr { sealed: true, ..attr }
}

impl PastNode {
    /// The root of a snapshot.
    pub(super) fn root(past: &Arc<Past>) -> Arc<Self> {
        Arc::new(Self { past: past.clone(), node: past.root.clone(), way: None, entry: None })
    }

    /// The file of this record, at the path that it has.
    pub(super) fn of(past: &Arc<Past>, node: Arc<LocalNode>) -> VfsResult<Arc<Self>> {
        let path = match node.do_path() {
            Err(VfsError::Stale) if node.kind != Kind::Dir => {
                // The kernel has opened a file by its handle without looking for its name.
                let volume = &past.volume;
                let find = || volume.find_by_number(node.ino, &node.handle);
                let named = volume.cache.with_room(find)?;
                let root = volume.path_of(volume.root.as_fd())?;
                let path = volume.path_of(named.as_fd())?;
                path.strip_prefix(&root[..]).ok_or(VfsError::Stale)?.to_vec()
            }
            path => path?,
        };
        Ok(Arc::new(Self { past: past.clone(), node, way: Way::of(&path)?, entry: None }))
    }

    /// The same file, reached by an entry of the folder of snapshots with this number.
    pub(super) fn entered(&self, number: u64) -> Arc<Self> {
        self.by(Some(number))
    }

    /// The same file, for a thread.
    fn again(&self) -> Arc<Self> {
        self.by(self.entry)
    }

    fn by(&self, entry: Option<u64>) -> Arc<Self> {
        let (past, node, way) = (self.past.clone(), self.node.clone(), self.way.clone());
        Arc::new(Self { past, node, way, entry })
    }

    pub(in crate::local) fn volume(&self) -> &Arc<Volume> {
        &self.past.volume
    }

    /// The folder of the share.
    pub(in crate::local) fn live(&self) -> &Arc<LocalNode> {
        &self.past.live
    }

    /// Returns what `f` says of the file that has this path in the share today, if it is of the same kind; `None` if there is
    /// none. Fails if the caller cannot reach it.
    fn today<T>(
        &self,
        cred: &Cred,
        f: impl FnOnce(&LocalNode) -> VfsResult<T>,
    ) -> VfsResult<Option<T>> {
        let live = &self.past.live;
        live.volume.visited(|| {
            let node = match &self.way {
                None => Some(live.clone()),
                Some(way) => way.today(live, cred)?,
            };
            node.filter(|node| node.kind == self.node.kind).map(|node| f(&node)).transpose()
        })
    }

    /// Checks that the file of today gives the caller what it needs.
    fn needs(&self, cred: &Cred, need: Need) -> VfsResult<()> {
        self.today(cred, |node| node.permitted_now(cred, need)).map(drop)
    }

    /// Looks a name up, as the caller.
    pub(super) fn find(&self, cred: &Cred, name: &[u8]) -> VfsResult<(Arc<Self>, Attr)> {
        self.needs(cred, perm::EXECUTE)?;
        let (node, attr) = self.node.do_lookup(cred, name)?;
        let way = Some(Way::to(self.way.as_ref(), name)?);
        Ok((Arc::new(Self { past: self.past.clone(), node, way, entry: None }), sealed(attr)))
    }

    pub(super) fn attr(&self) -> VfsResult<Attr> {
        self.node.attr().map(sealed)
    }

    fn parent(&self, cred: &Cred) -> VfsResult<(NodeRef, Attr)> {
        let Some(way) = &self.way else {
            let folder = Versions::of(&self.past.live, self.past.live.clone());
            let attr = folder.attr()?;
            return Ok((folder, attr));
        };
        self.needs(cred, perm::EXECUTE)?;
        let (node, attr) = self.node.do_lookup(cred, b"..")?;
        let parent = Self { past: self.past.clone(), node, way: way.above().cloned(), entry: None };
        Ok((Arc::new(parent), sealed(attr)))
    }

    fn may_open(&self, cred: &Cred, read: bool) -> VfsResult<Attr> {
        let attr = self.node.do_open(cred, read, false)?;
        if read {
            self.today(cred, |node| node.do_open(cred, true, false))?;
        }
        Ok(sealed(attr))
    }

    fn may_read(&self, cred: &Cred) -> VfsResult<()> {
        self.node.do_may(cred, Intent::Read)?;
        self.today(cred, |node| node.do_may(cred, Intent::Read)).map(drop)
    }

    fn accessed(&self, cred: &Cred, wanted: Access, attr: &Attr) -> VfsResult<Access> {
        let then = self.node.do_access(cred, wanted, attr)?;
        match self.today(cred, |node| node.do_access(cred, wanted, &node.attr()?)) {
            Ok(None) => Ok(then),
            Ok(Some(now)) => Ok(Access(then.0 & now.0)),
            Err(VfsError::Access) => Ok(Access(0)),
            Err(e) => Err(e),
        }
    }

    fn listed(
        &self,
        cred: &Cred,
        cookie: u64,
        entries_max: usize,
    ) -> VfsResult<(Vec<DirEntry>, bool)> {
        self.needs(cred, perm::READ)?;
        self.node.do_readdir(cred, cookie, entries_max)
    }

    /// The most that a list of the snapshot may give the caller.
    fn bounded(&self, cred: &Cred) -> VfsResult<u32> {
        let rights = |node: &LocalNode| {
            let attr = node.attr()?;
            if let Some(allowed) = node.by_list(cred, &attr)? {
                return Ok(allowed & READS);
            }
            let asked = Access(Access::READ | Access::LOOKUP | Access::EXECUTE);
            let can = node.do_access(cred, asked, &attr)?.0;
            let reads = if can & Access::READ != 0 { mask::READ_DATA | mask::READ_EA } else { 0 };
            let passes = can & (Access::LOOKUP | Access::EXECUTE) != 0;
            // What can be read can be executed, as far as a client of SMB is concerned.
            let runs = passes || node.kind != Kind::Dir && reads != 0;
            Ok(ALWAYS | reads | if runs { mask::EXECUTE } else { 0 })
        };
        match self.today(cred, rights) {
            Ok(None) => Ok(READS),
            Ok(Some(rights)) => Ok(rights),
            Err(VfsError::Access) => Ok(0),
            Err(e) => Err(e),
        }
    }
}

impl Node for PastNode {
    fn id(&self) -> NodeId {
        self.node.shared.id
    }

    fn handle(&self) -> Handle {
        marked(&self.node.handle, PAST)
    }

    fn kind(&self) -> Kind {
        self.node.kind
    }

    fn as_any(&self) -> &(dyn Any + Send + Sync) {
        self
    }

    fn is_beside(&self, other: &dyn Node) -> bool {
        self.past.live.is_beside(other)
    }

    fn mounted_on(&self) -> Option<u64> {
        self.entry
    }

    fn is_cacheable(&self) -> bool {
        false
    }

    fn bounds<'a>(&'a self, cred: &'a Cred) -> BoxFuture<'a, VfsResult<u32>> {
        self.volume().patient(move || self.bounded(cred))
    }

    fn getattr(&self) -> BoxFuture<'_, VfsResult<Attr>> {
        self.volume().at_once(move || self.attr())
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
        attr: &'a Attr,
    ) -> BoxFuture<'a, VfsResult<Access>> {
        self.volume().patient(move || self.accessed(cred, wanted, attr))
    }

    fn may_date<'a>(&'a self, _: &'a Cred, _: &'a Attr) -> BoxFuture<'a, VfsResult<bool>> {
        ready(Ok(false))
    }

    fn may<'a>(&'a self, cred: &'a Cred, intent: Intent<'a>) -> BoxFuture<'a, VfsResult<()>> {
        match intent {
            Intent::Read => self.volume().patient(move || self.may_read(cred)),
            _ => no_change(),
        }
    }

    fn lookup<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(NodeRef, Attr)>> {
        if name == b".." {
            let (me, cred) = (self.again(), cred.clone());
            // This may read the list of snapshots.
            return self.volume().steps(self.volume().patient_apart(move || me.parent(&cred)));
        }
        let find = move || self.find(cred, name).map(|(node, attr)| (node as NodeRef, attr));
        self.volume().patient(find)
    }

    fn readdir<'a>(
        &'a self,
        cred: &'a Cred,
        cookie: u64,
        entries_max: usize,
    ) -> BoxFuture<'a, VfsResult<(Vec<DirEntry>, bool)>> {
        if self.node.apart_if_large().is_none() {
            return self.volume().patient(move || self.listed(cred, cookie, entries_max));
        }
        let (me, cred) = (self.again(), cred.clone());
        let list = move || me.listed(&cred, cookie, entries_max);
        self.volume().steps(self.volume().patient_apart(list))
    }

    fn readlink<'a>(&'a self, _: &'a Cred) -> BoxFuture<'a, VfsResult<Vec<u8>>> {
        self.volume().at_once(move || self.node.do_readlink())
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

    fn link<'a>(
        &'a self,
        _: Acting<'a>,
        _: &'a dyn Node,
        _: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(Attr, DirChange)>> {
        ready(Err(VfsError::CrossDevice))
    }

    fn open<'a>(
        &'a self,
        cred: &'a Cred,
        read: bool,
        write: bool,
    ) -> BoxFuture<'a, VfsResult<Attr>> {
        if write {
            return no_change();
        }
        self.volume().patient(move || self.may_open(cred, read))
    }

    fn read<'a>(
        &'a self,
        cred: Option<&'a Cred>,
        at: u64,
        count: usize,
        into: &'a ReadInto,
    ) -> BoxFuture<'a, VfsResult<ReadData>> {
        Box::pin(async move {
            if let Some(cred) = cred {
                self.volume().patient(move || self.may_read(cred)).await?;
            }
            let read = self.node.read(None, at, count, into).await?;
            Ok(ReadData { attr: read.attr.map(sealed), ..read })
        })
    }

    fn write<'a>(
        &'a self,
        _: WriteBy<'a>,
        _: u64,
        _: Vec<Buf>,
        _: Stable,
    ) -> BoxFuture<'a, VfsResult<Written>> {
        no_change()
    }

    fn append<'a>(
        &'a self,
        _: Option<&'a Cred>,
        _: AppendAt,
        _: Vec<Buf>,
        _: Stable,
    ) -> BoxFuture<'a, VfsResult<Appended>> {
        no_change()
    }

    fn seek(&self, at: u64, what: Seek) -> BoxFuture<'_, VfsResult<u64>> {
        self.node.seek(at, what)
    }

    fn allocate<'a>(&'a self, _: Option<&'a Cred>, _: u64, _: u64) -> BoxFuture<'a, VfsResult<()>> {
        no_change()
    }

    fn deallocate<'a>(
        &'a self,
        _: Option<&'a Cred>,
        _: u64,
        _: u64,
    ) -> BoxFuture<'a, VfsResult<()>> {
        no_change()
    }

    fn xattr_get<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<Vec<u8>>> {
        self.volume().patient(move || {
            self.needs(cred, perm::READ_XATTR)?;
            self.node.do_xattr_get(cred, name)
        })
    }

    fn xattr_set<'a>(
        &'a self,
        _: &'a Cred,
        _: &'a [u8],
        _: &'a [u8],
        _: XattrHow,
    ) -> BoxFuture<'a, VfsResult<(Attr, Attr)>> {
        no_change()
    }

    fn xattr_remove<'a>(
        &'a self,
        _: &'a Cred,
        _: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(Attr, Attr)>> {
        no_change()
    }

    fn xattr_list<'a>(&'a self, cred: &'a Cred) -> BoxFuture<'a, VfsResult<Vec<Vec<u8>>>> {
        self.volume().patient(move || {
            self.needs(cred, perm::READ_XATTR)?;
            self.node.do_xattr_list(cred)
        })
    }

    fn side_get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, VfsResult<Option<Vec<u8>>>> {
        self.node.side_get(name)
    }

    fn side_set<'a>(&'a self, _: &'a str, _: Option<&'a [u8]>) -> BoxFuture<'a, VfsResult<()>> {
        no_change()
    }

    fn acl<'a>(&'a self, attr: &'a Attr) -> BoxFuture<'a, VfsResult<Option<Arc<Acl>>>> {
        self.node.acl(attr)
    }

    fn acl_shown<'a>(&'a self, attr: &'a Attr) -> BoxFuture<'a, VfsResult<Arc<Acl>>> {
        self.node.acl_shown(attr)
    }

    fn acl_set<'a>(&'a self, _: &'a Acl, _: u32) -> BoxFuture<'a, VfsResult<()>> {
        no_change()
    }

    fn posix<'a>(&'a self, attr: &'a Attr) -> BoxFuture<'a, VfsResult<Lists>> {
        self.node.posix(attr)
    }

    fn posix_set<'a>(&'a self, _: &'a Change) -> BoxFuture<'a, VfsResult<()>> {
        no_change()
    }

    fn dos<'a>(&'a self, attr: &'a Attr) -> BoxFuture<'a, VfsResult<Dos>> {
        self.node.dos(attr)
    }

    fn xattr_sizes<'a>(&'a self, attr: &'a Attr) -> BoxFuture<'a, VfsResult<XattrSizes>> {
        self.node.xattr_sizes(attr)
    }

    fn path(&self) -> BoxFuture<'_, VfsResult<Vec<u8>>> {
        let mut path = [NAME, b"/"].concat();
        path.extend(gmt_name(self.past.sec).unwrap_or_default().bytes());
        if let Some(way) = &self.way {
            way.append_to(&mut path);
        }
        ready(Ok(path))
    }
}
