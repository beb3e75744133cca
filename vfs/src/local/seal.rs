//! Seals of access control lists that are kept where others may write.
//!
//! *Operation.* Without `CAP_SYS_ADMIN` a list stands in a `user.` attribute, which whoever may write the file can set. So it
//! carries an HMAC-SHA-256 by a key of the gateway over the inode's identity and the list. The identity is the inode number with
//! the time of birth, which nobody sets; where the file system has none, the kernel's handle. It does not name the file system:
//! its number may change with the kernel and the order of devices, and the lists of a whole share would be void. `trusted.`
//! attributes need no seal.
//!
//! *Errors.* A record without a good seal counts as none; it is counted, and logged once for a file.

use std::collections::HashSet;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign, verify};
use mutex::locked;

use crate::error::{VfsError, VfsResult};

use super::node::LocalNode;
use super::{stat, sys};

/// Bytes of a seal.
const LEN: usize = 32;
/// What is sealed, so that a seal of something else under the same key says nothing about a list.
const PURPOSE: &[u8] = b"headgate access control list 1\0";
/// Files of which the log remembers that it named them.
const NAMED_MAX: usize = 4096;

static REFUSED: AtomicU64 = AtomicU64::new(0);
static NAMED: LazyLock<Mutex<HashSet<(u64, u64)>>> = LazyLock::new(Mutex::default);

/// Records that counted as none because their seal was not ours, since this process began.
pub fn refused() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// The key of the seals: the same in every run, or the lists of earlier runs count as none.
#[derive(Clone)]
pub struct SealKey(Key);

impl SealKey {
    /// From secret bytes.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(Key::new(HMAC_SHA256, secret))
    }

    /// From a secret that has other uses: what is known of one use says nothing about the other.
    pub fn derived(secret: &[u8]) -> Self {
        let tag = sign(&Key::new(HMAC_SHA256, secret), PURPOSE);
        Self(Key::new(HMAC_SHA256, tag.as_ref()))
    }

    /// A name that only this key gives to `what`, the same in every run: 32 hexadecimal digits.
    pub fn name_of(&self, what: &str) -> String {
        let tag = sign(&self.0, &[b"headgate session name 1\0", what.as_bytes()].concat());
        tag.as_ref()[..16].iter().map(|b| format!("{b:02x}")).collect()
    }

    /// For one run.
    pub(super) fn random() -> VfsResult<Self> {
        let mut secret = [0; LEN];
        getrandom::fill(&mut secret).map_err(|_| VfsError::Resources)?;
        Ok(Self::new(&secret))
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey")
    }
}

/// What a seal is made of. Each part has a fixed length but the last.
fn sealed(fd: BorrowedFd<'_>, record: &[u8]) -> VfsResult<Vec<u8>> {
    let stat = stat::of_fd(fd)?;
    let mut out = PURPOSE.to_vec();
    out.extend(stat.ino.to_be_bytes());
    match stat.attr.btime {
        Some(birth) => {
            out.push(1);
            out.extend(birth.sec.to_be_bytes());
            out.extend(birth.nsec.to_be_bytes());
        }
        None => {
            out.push(0);
            let handle = sys::name_to_handle(fd).map(|h| h.bytes).unwrap_or_default();
            out.extend((handle.len() as u64).to_be_bytes());
            out.extend(&handle);
        }
    }
    out.extend(record);
    Ok(out)
}

impl LocalNode {
    /// The record with its seal in front.
    pub(super) fn seal(&self, record: &[u8]) -> VfsResult<Vec<u8>> {
        let tag = sign(&self.volume.seal.0, &sealed(self.fd(), record)?);
        Ok([tag.as_ref(), record].concat())
    }

    /// The record behind a seal of ours; `None` when the seal is another's or another file's.
    pub(super) fn unseal(&self, value: &[u8]) -> VfsResult<Option<Vec<u8>>> {
        if let Some((tag, record)) = value.split_at_checked(LEN)
            && verify(&self.volume.seal.0, &sealed(self.fd(), record)?, tag).is_ok()
        {
            return Ok(Some(record.to_vec()));
        }
        REFUSED.fetch_add(1, Ordering::Relaxed);
        let mut named = locked(&NAMED);
        if named.len() < NAMED_MAX && named.insert((self.dev, self.ino)) {
            drop(named);
            let path = self.do_path().unwrap_or_default();
            tracing::warn!(
                folder = %self.volume.folder.display(),
                path = %path.escape_ascii(),
                inode = self.ino,
                "an access control list is ignored: this gateway did not write it for this file"
            );
        }
        Ok(None)
    }
}
