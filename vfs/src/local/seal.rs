//! Seals for access control lists in attributes that local users can write.
//!
//! *Operation.* Without `CAP_SYS_ADMIN` a list is kept in a `user.` attribute, which any user with write access to the file can
//! set. The gateway therefore stores with the list an HMAC-SHA-256, under a key of the gateway, over the inode's identity and the
//! list. The identity is the inode number with the time of birth, which no user can set; where the file system has no time of
//! birth, it is the kernel's handle. The identity leaves out the number of the file system: that number may change with the kernel
//! and the order of devices, and then every list of the share would be void. `trusted.` attributes need no seal.
//!
//! *Errors.* A list without a valid seal is ignored; it is counted, and logged once for each file.

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

/// Length of a seal in bytes.
pub(super) const LEN: usize = 32;
/// Prefix of the sealed data, so that a tag made for another purpose under the same key is not a valid seal of a list.
const PURPOSE: &[u8] = b"headgate access control list 1\0";
/// Largest number of files for which the log remembers that it reported them.
const NAMED_MAX: usize = 4096;

static REFUSED: AtomicU64 = AtomicU64::new(0);
static NAMED: LazyLock<Mutex<HashSet<(u64, u64)>>> = LazyLock::new(Mutex::default);

/// Returns how many lists were ignored because of an invalid seal since this process started.
pub fn refused() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// Key of the seals. It must be the same in every run: lists sealed under another key are ignored.
#[derive(Clone)]
pub struct SealKey(Key);

impl SealKey {
    /// Creates the key from secret bytes.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(Key::new(HMAC_SHA256, secret))
    }

    /// Derives the key from a secret that has other uses, so that a secret learned from one use does not reveal the other.
    pub fn derived(secret: &[u8]) -> Self {
        let tag = sign(&Key::new(HMAC_SHA256, secret), PURPOSE);
        Self(Key::new(HMAC_SHA256, tag.as_ref()))
    }

    /// Returns a name for `what` that only this key yields, the same in every run: 32 hexadecimal digits.
    pub fn name_of(&self, what: &str) -> String {
        let tag = sign(&self.0, &[b"headgate session name 1\0", what.as_bytes()].concat());
        tag.as_ref()[..16].iter().map(|b| format!("{b:02x}")).collect()
    }

    /// Creates a random key for one run.
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

/// Returns the bytes that a seal covers. Each part except the last has a fixed length.
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
    /// Returns the record with its seal in front.
    pub(super) fn seal(&self, record: &[u8]) -> VfsResult<Vec<u8>> {
        let tag = sign(&self.volume.seal.0, &sealed(self.fd(), record)?);
        Ok([tag.as_ref(), record].concat())
    }

    /// Returns the record after checking its seal; `None` when the seal was made with another key or for another file.
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
                "an access control list, or a record of the wastebasket, is ignored: this gateway did not write it for this file"
            );
        }
        Ok(None)
    }
}
