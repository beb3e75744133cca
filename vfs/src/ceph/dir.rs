//! Listing a directory.
//!
//! *Operation.* By the library's own places in a list of names, which follow the names' hashes and so hold while others come and
//! go, from one run to the next. A directory keeps one open listing, so that reading on asks the cluster for nothing twice.
//!
//! *Errors.* A cookie that cannot be one is [`VfsError::BadCookie`].

use mutex::locked;

use crate::engine::limits::ENTRIES_MAX;
use crate::error::{VfsError, VfsResult};
use crate::types::*;

use super::held::Listing;
use super::node::CephNode;

fn kind_of(kind: u8) -> Option<Kind> {
    Some(match kind {
        libc::DT_REG => Kind::File,
        libc::DT_DIR => Kind::Dir,
        libc::DT_LNK => Kind::Symlink,
        libc::DT_BLK => Kind::Block,
        libc::DT_CHR => Kind::Char,
        libc::DT_FIFO => Kind::Fifo,
        libc::DT_SOCK => Kind::Socket,
        _ => return None,
    })
}

impl CephNode {
    pub(super) fn do_readdir(
        &self,
        cred: &Cred,
        cookie: u64,
        entries_max: usize,
    ) -> VfsResult<(Vec<DirEntry>, bool)> {
        self.names()?;
        // This also finds out whether the directory is gone: a removed one would list as empty.
        self.permitted_now(cred, crate::perm::READ)?;
        // The cookies below the minimum stand for the start, `.` and `..`.
        let offset = i64::try_from(cookie.saturating_sub(DirEntry::COOKIE_MIN))
            .map_err(|_| VfsError::BadCookie)?;
        let entries_max = entries_max.min(ENTRIES_MAX);
        let mut kept = locked(&self.listing);
        let mut listing = match kept.take() {
            Some(listing) if cookie != 0 && listing.at == cookie => listing,
            _ => {
                let opened = self.inode().opendir(&self.volume.process);
                let mut dir = self.volume.done(opened)?;
                if offset != 0 {
                    dir.seek(offset);
                }
                Listing { dir, at: cookie, ahead: None }
            }
        };
        let mut out = Vec::new();
        loop {
            // One more than wanted is looked at: the end is told with the last entry.
            let Some(entry) = self.next_of(&mut listing)? else { return Ok((out, true)) };
            if out.len() == entries_max {
                listing.ahead = Some(entry);
                break;
            }
            listing.at = entry.cookie;
            out.push(entry);
        }
        *kept = Some(listing);
        Ok((out, false))
    }

    /// The next entry that clients see.
    fn next_of(&self, listing: &mut Listing) -> VfsResult<Option<DirEntry>> {
        if let Some(entry) = listing.ahead.take() {
            return Ok(Some(entry));
        }
        while let Some(entry) = self.volume.done(listing.dir.read())? {
            if *entry.name == *b"." || *entry.name == *b".." || self.hides(&entry.name) {
                continue;
            }
            let next = u64::try_from(entry.next).map_err(|_| VfsError::Io)?;
            return Ok(Some(DirEntry {
                name: entry.name,
                fileid: entry.ino,
                cookie: next.saturating_add(DirEntry::COOKIE_MIN),
                kind: kind_of(entry.kind),
            }));
        }
        Ok(None)
    }
}
