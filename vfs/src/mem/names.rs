//! Names in memory.
//!
//! *Operation.* A change of names holds the volume's lock of names, and the lock of each directory only while that directory
//! changes. The locks of two nodes are held together only under the lock of names, so they need no order.

use std::sync::Arc;

use crate::authority::Acting;
use crate::backend::{Made, Node, check_name};
use crate::engine::limits::ENTRIES_MAX;
use crate::error::{VfsError, VfsResult};
use crate::perm;
use crate::types::*;

use super::attrs::check_owner;
use super::node::{Body, Dir, Entry, Inner, MemNode};
use super::pages::Pages;
use super::{NAME_MAX, ROOT};

impl MemNode {
    /// Returns the node of a name, if the name exists; the caller needs search permission on this directory.
    fn child(&self, cred: &Cred, name: &[u8]) -> VfsResult<Option<Arc<MemNode>>> {
        let mut inner = self.lock();
        inner.dir()?;
        inner.permit(Kind::Dir, cred, perm::EXECUTE)?;
        Ok(inner.dir()?.get(name).cloned())
    }

    /// Like [`MemNode::child`], for a change whose permission is checked later: a caller with a special right needs no search
    /// permission.
    fn child_to_change(&self, by: &Acting<'_>, name: &[u8]) -> VfsResult<Option<Arc<MemNode>>> {
        if by.is_helped() {
            return Ok(self.lock().dir()?.get(name).cloned());
        }
        self.child(by.cred, name)
    }

    pub(super) fn do_lookup(&self, cred: &Cred, name: &[u8]) -> VfsResult<(Arc<MemNode>, Attr)> {
        if name == b".." {
            let above = {
                let mut inner = self.lock();
                let parent = inner.dir()?.parent.clone();
                inner.permit(Kind::Dir, cred, perm::EXECUTE)?;
                // The root has no parent: it is its own.
                parent.upgrade().or_else(|| self.me.upgrade()).ok_or(VfsError::Stale)?
            };
            let attr = above.attr()?;
            return Ok((above, attr));
        }
        self.lock().dir()?;
        check_name(name, NAME_MAX)?;
        let node = self.child(cred, name)?.ok_or(VfsError::NotFound)?;
        let attr = node.attr_of(&node.lock());
        Ok((node, attr))
    }

    pub(super) fn do_readdir(
        &self,
        cred: &Cred,
        cookie: u64,
        entries_max: usize,
    ) -> VfsResult<(Vec<DirEntry>, bool)> {
        let mut inner = self.lock();
        inner.dir()?;
        inner.permit(Kind::Dir, cred, perm::READ)?;
        let dir = inner.dir()?;
        let from = cookie.saturating_add(1).max(DirEntry::COOKIE_MIN);
        let mut rest = dir.entries.range(from..);
        let out = rest
            .by_ref()
            .take(entries_max.min(ENTRIES_MAX))
            .map(|(cookie, e)| DirEntry {
                name: e.name.clone(),
                fileid: e.node.fileid,
                cookie: *cookie,
                kind: Some(e.node.kind),
            })
            .collect();
        Ok((out, rest.next().is_none()))
    }

    /// Checks whether this directory can hold the name.
    fn changeable(&self, name: &[u8]) -> VfsResult<()> {
        self.volume.writable()?;
        self.lock().dir()?;
        check_name(name, NAME_MAX)
    }

    pub(super) fn do_create(
        &self,
        by: &Acting<'_>,
        name: &[u8],
        how: CreateHow,
        set: SetAttr,
    ) -> VfsResult<Made> {
        self.changeable(name)?;
        let names = self.names_lock();
        if let Some(node) = self.child(by.cred, name)? {
            drop(names);
            return self.existing(by, node, how, &set);
        }
        let pages = Pages::new(self.volume.usage.clone());
        let mut inner = Inner::new(set.mode.unwrap_or(0o600), by.cred, Body::File(pages));
        if let CreateHow::Exclusive(verifier) = how {
            inner.verifier = Some(verifier);
        }
        self.add_new(by, name, Kind::File, inner, &set)
    }

    fn existing(
        &self,
        by: &Acting<'_>,
        node: Arc<MemNode>,
        how: CreateHow,
        set: &SetAttr,
    ) -> VfsResult<Made> {
        let created = match how {
            CreateHow::Guarded => return Err(VfsError::Exists),
            CreateHow::Exclusive(verifier) => {
                // A repeated create opens the file without another permission check, because only the user who created the file can
                // repeat.
                let inner = node.lock();
                let maker = by.cred.uid == inner.uid || by.cred.uid == 0;
                if inner.verifier != Some(verifier) || !maker {
                    return Err(VfsError::Exists);
                }
                drop(inner);
                true
            }
            CreateHow::Unchecked => {
                if set.size == Some(0) && node.kind == Kind::File {
                    let cut = SetAttr { size: Some(0), ..SetAttr::default() };
                    node.do_setattr(by.cred, &cut, false)?;
                }
                false
            }
        };
        let here = self.attr()?;
        let dir = DirChange { before: here, after: here, atomic: true };
        let attr = node.attr()?;
        Ok(Made { node, attr, dir, created })
    }

    pub(super) fn do_mkdir(&self, by: &Acting<'_>, name: &[u8], set: SetAttr) -> VfsResult<Made> {
        let body = Body::Dir(Dir::new(self.me.clone()));
        self.make(by, name, Kind::Dir, Inner::new(set.mode.unwrap_or(0o700), by.cred, body), set)
    }

    pub(super) fn do_symlink(
        &self,
        by: &Acting<'_>,
        name: &[u8],
        target: &[u8],
        set: SetAttr,
    ) -> VfsResult<Made> {
        if target.is_empty() || target.contains(&0) {
            self.changeable(name)?;
            return Err(VfsError::Invalid);
        }
        // Linux's PATH_MAX: Linux clients could not read a longer target.
        if target.len() > 4095 {
            return Err(VfsError::NameTooLong);
        }
        let inner = Inner::new(0o777, by.cred, Body::Link(target.into()));
        self.make(by, name, Kind::Symlink, inner, SetAttr { mode: None, ..set })
    }

    pub(super) fn do_mknod(
        &self,
        by: &Acting<'_>,
        name: &[u8],
        what: Special,
        set: SetAttr,
    ) -> VfsResult<Made> {
        what.check()?;
        let rdev = match what {
            Special::Block(a, b) | Special::Char(a, b) => (a, b),
            Special::Fifo | Special::Socket => (0, 0),
        };
        let mut inner = Inner::new(set.mode.unwrap_or(0o600), by.cred, Body::Special);
        inner.rdev = rdev;
        self.make(by, name, what.kind(), inner, set)
    }

    /// Creates a node other than a regular file under a free name.
    fn make(
        &self,
        by: &Acting<'_>,
        name: &[u8],
        kind: Kind,
        inner: Inner,
        set: SetAttr,
    ) -> VfsResult<Made> {
        self.changeable(name)?;
        let _names = self.names_lock();
        if self.child(by.cred, name)?.is_some() {
            return Err(VfsError::Exists);
        }
        if matches!(kind, Kind::Block | Kind::Char) && by.cred.uid != 0 {
            self.permit_names(&self.lock(), by, perm::ADD_FILE)?;
            return Err(VfsError::Perm);
        }
        self.add_new(by, name, kind, inner, &SetAttr { size: None, ..set })
    }

    /// Adds a node under a free name. The caller holds the lock of names.
    fn add_new(
        &self,
        by: &Acting<'_>,
        name: &[u8],
        kind: Kind,
        mut inner: Inner,
        set: &SetAttr,
    ) -> VfsResult<Made> {
        check_owner(set)?;
        let mut here = self.lock();
        here.dir()?;
        self.permit_names(&here, by, perm::adding(kind))?;
        let before = self.attr_of(&here);
        if here.mode & 0o2000 != 0 {
            inner.gid = here.gid;
            if kind == Kind::Dir {
                inner.mode |= 0o2000;
            } else if by.cred.uid != 0 && inner.mode & 0o010 != 0 && !by.cred.in_group(here.gid) {
                inner.mode &= !0o2000;
            }
        }
        if let Some(uid) = set.uid.filter(|_| by.cred.uid == 0) {
            inner.uid = uid;
        }
        if let Some(gid) = set.gid.filter(|g| by.cred.uid == 0 || by.cred.in_group(*g)) {
            inner.gid = gid;
        }
        if let Some(size) = set.size {
            inner.set_size(size)?;
        }
        inner.set_times(set)?;
        let node = MemNode::new(&self.volume, kind, inner)?;
        let entry = Entry::new(&self.volume, name, node.clone())?;
        node.lock().home = (self.me.clone(), name.into());
        here.dir()?.put(entry);
        if kind == Kind::Dir {
            here.nlink += 1;
        }
        here.modified();
        let attr = node.attr_of(&node.lock());
        let dir = DirChange { before, after: self.attr_of(&here), atomic: true };
        Ok(Made { node, attr, dir, created: true })
    }

    pub(super) fn do_remove(
        &self,
        by: &Acting<'_>,
        name: &[u8],
        dir: bool,
    ) -> VfsResult<DirChange> {
        self.changeable(name)?;
        let _names = self.names_lock();
        let victim = self.child_to_change(by, name)?.ok_or(VfsError::NotFound)?;
        let mut here = self.lock();
        let before = self.attr_of(&here);
        {
            let mut inner = victim.lock();
            self.permit_removal(&here, by, (&victim, &inner))?;
            match (dir, victim.kind == Kind::Dir) {
                (true, false) => return Err(VfsError::NotDir),
                (false, true) => return Err(VfsError::IsDir),
                (true, true) if !inner.dir()?.entries.is_empty() => return Err(VfsError::NotEmpty),
                _ => {}
            }
            inner.loses_a_name();
        }
        let entry = here.dir()?.take(name);
        if dir {
            here.nlink = here.nlink.saturating_sub(1);
        }
        here.modified();
        let change = DirChange { before, after: self.attr_of(&here), atomic: true };
        drop(here);
        drop(entry);
        Ok(change)
    }

    pub(super) fn do_link(
        &self,
        by: &Acting<'_>,
        dir: &dyn Node,
        name: &[u8],
    ) -> VfsResult<(Attr, DirChange)> {
        let target = self.same_backend(dir)?;
        target.changeable(name)?;
        if self.kind == Kind::Dir {
            return Err(VfsError::IsDir);
        }
        let me = self.me.upgrade().ok_or(VfsError::Stale)?;
        let _names = self.names_lock();
        if target.child_to_change(by, name)?.is_some() {
            return Err(VfsError::Exists);
        }
        let entry = Entry::new(&self.volume, name, me)?;
        let mut there = target.lock();
        there.dir()?;
        target.permit_names(&there, by, perm::ADD_FILE)?;
        let before = target.attr_of(&there);
        let attr = {
            let mut inner = self.lock();
            if inner.nlink == 0 {
                return Err(VfsError::Stale);
            }
            inner.nlink = inner.nlink.checked_add(1).ok_or(VfsError::TooManyLinks)?;
            inner.touched();
            inner.home = (target.me.clone(), name.into());
            self.attr_of(&inner)
        };
        there.dir()?.put(entry);
        there.modified();
        Ok((attr, DirChange { before, after: target.attr_of(&there), atomic: true }))
    }

    pub(super) fn do_rename(
        &self,
        by: &Acting<'_>,
        from: &[u8],
        to_dir: &dyn Node,
        to: &[u8],
        replace: bool,
    ) -> VfsResult<(DirChange, DirChange)> {
        let target = self.same_backend(to_dir)?;
        self.changeable(from)?;
        target.changeable(to)?;
        let _names = self.names_lock();
        let moved = self.child_to_change(by, from)?;
        let old = target.child_to_change(by, to)?;
        let moved = moved.ok_or(VfsError::NotFound)?;
        if old.is_some() && !replace {
            return Err(VfsError::Exists);
        }
        if old.as_ref().is_some_and(|o| Arc::ptr_eq(o, &moved)) {
            let same = |a| DirChange { before: a, after: a, atomic: true };
            return Ok((same(self.attr()?), same(target.attr()?)));
        }
        self.may_move(by, &moved, target, old.as_deref())?;
        let entry = Entry::new(&self.volume, to, moved.clone())?;
        let same = self.id == target.id;
        // The new name is added before the old one is removed, so that the node is always found under one of them.
        let (to_change, replaced) = target.takes_in(entry, same.then_some(from))?;
        let change = if same { to_change } else { self.lets_go(from)? };
        if let Some(replaced) = &replaced {
            replaced.node.lock().loses_a_name();
        }
        let mut inner = moved.lock();
        if let Body::Dir(dir) = &mut inner.body {
            dir.parent = target.me.clone();
        }
        inner.home = (target.me.clone(), to.into());
        inner.touched();
        Ok((change, to_change))
    }

    pub(super) fn do_exchange(
        &self,
        by: &Acting<'_>,
        here: &[u8],
        other: &dyn Node,
        there: &[u8],
    ) -> VfsResult<(DirChange, DirChange)> {
        let other = self.same_backend(other)?;
        self.changeable(here)?;
        other.changeable(there)?;
        if self.id == other.id {
            // An exchange of two names within one directory is not needed.
            return Err(VfsError::NotSupported);
        }
        let _names = self.names_lock();
        let mine = self.child_to_change(by, here)?.ok_or(VfsError::NotFound)?;
        let its = other.child_to_change(by, there)?.ok_or(VfsError::NotFound)?;
        for (from, node, to) in [(self, &mine, other), (other, &its, self)] {
            from.permit_removal(&from.lock(), by, (node, &node.lock()))?;
            to.permit_names(&to.lock(), by, perm::adding(node.kind))?;
            if node.kind == Kind::Dir {
                if to.is_below(node) {
                    return Err(VfsError::Invalid);
                }
                // A move changes the `..` of the directory.
                node.lock().permit(Kind::Dir, by.cred, perm::CHANGE_PARENT)?;
            }
        }
        let to_there = Entry::new(&self.volume, there, mine.clone())?;
        let to_here = Entry::new(&self.volume, here, its.clone())?;
        let (other_change, _) = other.takes_in(to_there, None)?;
        let (change, _) = self.takes_in(to_here, None)?;
        for (node, dir, name) in [(mine, other, there), (its, self, here)] {
            let mut inner = node.lock();
            if let Body::Dir(body) = &mut inner.body {
                body.parent = dir.me.clone();
            }
            inner.home = (dir.me.clone(), name.into());
            inner.touched();
        }
        Ok((change, other_change))
    }

    /// Performs the half of a rename in the new directory; `gone` is the old name if it is in the same directory.
    fn takes_in(&self, entry: Entry, gone: Option<&[u8]>) -> VfsResult<(DirChange, Option<Entry>)> {
        let mut here = self.lock();
        let before = self.attr_of(&here);
        here.nlink += u32::from(entry.node.kind == Kind::Dir);
        let replaced = here.dir()?.put(entry);
        if let Some(old) = &replaced {
            here.leaves(&old.node);
        }
        if let Some(moved) = gone.and_then(|name| here.dir().ok()?.take(name)) {
            here.leaves(&moved.node);
        }
        here.modified();
        Ok((DirChange { before, after: self.attr_of(&here), atomic: true }, replaced))
    }

    /// Performs the half of a rename in the old directory.
    fn lets_go(&self, name: &[u8]) -> VfsResult<DirChange> {
        let mut here = self.lock();
        let before = self.attr_of(&here);
        if let Some(moved) = here.dir()?.take(name) {
            here.leaves(&moved.node);
        }
        here.modified();
        Ok(DirChange { before, after: self.attr_of(&here), atomic: true })
    }

    /// Checks everything that can forbid a rename.
    fn may_move(
        &self,
        by: &Acting<'_>,
        moved: &Arc<MemNode>,
        target: &MemNode,
        old: Option<&MemNode>,
    ) -> VfsResult<()> {
        self.permit_removal(&self.lock(), by, (moved, &moved.lock()))?;
        let is_dir = moved.kind == Kind::Dir;
        if is_dir && target.is_below(moved) {
            return Err(VfsError::Invalid);
        }
        match old {
            None => target.permit_names(&target.lock(), by, perm::adding(moved.kind))?,
            Some(old) => {
                let there = target.lock();
                let mut inner = old.lock();
                target.permit_removal(&there, by, (old, &inner))?;
                match (is_dir, old.kind == Kind::Dir) {
                    (true, false) => return Err(VfsError::NotDir),
                    (false, true) => return Err(VfsError::IsDir),
                    (true, true) if !inner.dir()?.entries.is_empty() => {
                        return Err(VfsError::NotEmpty);
                    }
                    _ => {}
                }
            }
        }
        if is_dir && self.id != target.id {
            // A move changes the `..` of the directory.
            moved.lock().permit(Kind::Dir, by.cred, perm::CHANGE_PARENT)?;
        }
        Ok(())
    }

    /// Returns the path of this node. The lock of names keeps the path unchanged meanwhile.
    pub(super) fn do_path(&self) -> VfsResult<Vec<u8>> {
        let _names = self.names_lock();
        let mut names = Vec::new();
        let mut at = self.me.upgrade().ok_or(VfsError::Stale)?;
        while at.fileid != ROOT {
            let (above, name) = at.lock().home.clone();
            let above = above.upgrade().ok_or(VfsError::Stale)?;
            let is_there = above.lock().dir()?.get(&name).is_some_and(|n| Arc::ptr_eq(n, &at));
            if !is_there {
                return Err(VfsError::Stale);
            }
            names.push(name);
            at = above;
        }
        names.reverse();
        Ok(names.join(&b'/'))
    }

    /// Checks whether this directory is `top` or below it.
    fn is_below(&self, top: &Arc<MemNode>) -> bool {
        let mut at = self.me.upgrade();
        while let Some(node) = at {
            if Arc::ptr_eq(&node, top) {
                return true;
            }
            at = match &node.lock().body {
                Body::Dir(dir) => dir.parent.upgrade(),
                _ => None,
            };
        }
        false
    }
}

impl Inner {
    fn loses_a_name(&mut self) {
        self.nlink = match self.body {
            Body::Dir(_) => 0,
            _ => self.nlink.saturating_sub(1),
        };
        self.touched();
    }

    /// Updates the link count when a directory leaves, because its `..` linked to this one.
    fn leaves(&mut self, moved: &MemNode) {
        if moved.kind == Kind::Dir {
            self.nlink = self.nlink.saturating_sub(1);
        }
    }
}
