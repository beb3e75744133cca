//! Lists CephFS directories.
//!
//! *Operation.* Cookies are the library's positions, which follow the hashes of names and so stay valid when names are added or
//! removed, and across restarts. A directory keeps one open listing, so that continuing needs no repeated requests to the cluster.
//!
//! *Errors.* An invalid cookie is [`VfsError::BadCookie`].

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
        // This also detects a removed directory, which would list as empty.
        self.permitted_now(cred, crate::perm::READ)?;
        // Cookies below the minimum mean the start, `.` and `..`.
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
            // Reads one entry more than requested, to report the end with the last entry.
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

    /// The next entry visible to clients.
    fn next_of(&self, listing: &mut Listing) -> VfsResult<Option<DirEntry>> {
        if let Some(entry) = listing.ahead.take() {
            return Ok(Some(entry));
        }
        while let Some(entry) = self.volume.done(listing.dir.read())? {
            if *entry.name == *b"." || *entry.name == *b".." || Self::hides(&entry.name) {
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
