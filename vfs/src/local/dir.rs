//! Lists local directories.
//!
//! *Operation.* Uses `getdents64` with the file system's cookies, shifted by [`DirEntry::COOKIE_MIN`]. On every file system that
//! can be exported they are stable when names are added or removed. A directory keeps one open listing with entries fetched ahead,
//! so that continuing needs neither a seek nor another fetch; entries older than a second are fetched again.
//!
//! *Errors.* An invalid cookie is [`VfsError::BadCookie`].

use std::collections::VecDeque;
use std::os::fd::AsFd;

use mutex::locked;
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};

use crate::engine::limits::{ENTRIES_MAX, LISTING};
use crate::error::{VfsError, VfsResult};
use crate::types::*;

use super::descriptors::Fd;
use super::held::Listing;
use super::node::LocalNode;
use super::stat;

/// How long fetched entries are valid, in milliseconds.
const FRESH_MS: u64 = 1000;

/// Bytes of a typical entry, and of the smallest fetch, which holds several of the longest entries.
const ENTRY_USUAL: usize = 48;
const LISTING_MIN: usize = 2048;

impl LocalNode {
    pub(super) fn do_readdir(
        &self,
        cred: &Cred,
        cookie: u64,
        entries_max: usize,
    ) -> VfsResult<(Vec<DirEntry>, bool)> {
        let dir = self.dir_fd()?;
        // This also detects a removed directory, which would list as empty.
        self.permitted_now(cred, crate::perm::READ)?;
        let entries_max = entries_max.min(ENTRIES_MAX);
        let mut kept = locked(&self.listing);
        let mut listing = match kept.take() {
            Some(l) => l,
            None => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let fd = self
                    .volume
                    .cache
                    .with_room(|| Ok(rustix::fs::openat(dir, c".", flags, Mode::empty())?))?;
                Listing {
                    fd: Fd::new(fd),
                    at: u64::MAX,
                    ahead: VecDeque::new(),
                    end: false,
                    fetched: 0,
                }
            }
        };
        let now = self.volume.now();
        if !listing.continues(cookie, now) {
            listing.go_to(cookie)?;
        }
        while listing.ahead.len() <= entries_max && !listing.end {
            listing.fetch(now, entries_max, |name| self.hides(name))?;
        }
        let n = listing.ahead.len().min(entries_max);
        let out: Vec<DirEntry> = listing.ahead.drain(..n).collect();
        if let Some(last) = out.last() {
            listing.at = last.cookie;
        }
        let end = listing.end && listing.ahead.is_empty();
        *kept = Some(listing);
        Ok((out, end))
    }
}

impl Listing {
    /// True if the next entry is the one after `cookie`, and is still valid.
    fn continues(&self, cookie: u64, now: u64) -> bool {
        cookie >= DirEntry::COOKIE_MIN
            && self.at == cookie
            && !self.ahead.is_empty()
            && now.saturating_sub(self.fetched) < FRESH_MS
    }

    fn go_to(&mut self, cookie: u64) -> VfsResult<()> {
        // Cookies below the minimum mean the start, `.` and `..`.
        let offset = cookie.saturating_sub(DirEntry::COOKIE_MIN);
        if i64::try_from(offset).is_err() {
            return Err(VfsError::BadCookie);
        }
        self.ahead.clear();
        self.end = false;
        self.at = cookie;
        rustix::fs::seek(self.fd.as_fd(), SeekFrom::Start(offset))
            .map_err(|_| VfsError::BadCookie)?;
        Ok(())
    }

    /// Fetches about `wanted` entries: a small request must not make us keep many.
    fn fetch(&mut self, now: u64, wanted: usize, hides: impl Fn(&[u8]) -> bool) -> VfsResult<()> {
        let bytes = wanted.saturating_mul(ENTRY_USUAL).clamp(LISTING_MIN, LISTING);
        let mut room: Vec<u8> = Vec::with_capacity(bytes);
        let mut raw = RawDir::new(self.fd.as_fd(), room.spare_capacity_mut());
        if self.ahead.is_empty() {
            self.fetched = now;
        }
        loop {
            match raw.next() {
                None => {
                    self.end = true;
                    return Ok(());
                }
                Some(entry) => {
                    let entry = entry?;
                    let name = entry.file_name().to_bytes();
                    if name != b"." && name != b".." && !hides(name) {
                        self.ahead.push_back(DirEntry {
                            name: name.into(),
                            fileid: entry.ino(),
                            cookie: entry.next_entry_cookie().saturating_add(DirEntry::COOKIE_MIN),
                            kind: stat::kind_of(entry.file_type()),
                        });
                    }
                }
            }
            // The next iteration would call the kernel again.
            if raw.is_buffer_empty() {
                return Ok(());
            }
        }
    }
}
