//! Exclusive creates that survive a crash of the gateway.
//!
//! *Operation.* The verifier of an exclusive create is stored in the file's times ([`crate::creation`]), which needs a second call:
//! the cluster creates a file with the time of the cluster's clock, and the library delays changes of times. If the gateway crashes
//! in between, its client finds an unfinished file when it retries. The create itself therefore also stores a number, as device
//! number, which the MDS keeps for every inode but does not use for regular files. Until the times change after the creation, that
//! number identifies the creator, and a retry completes the create.
//!
//! *Errors.* The number has 32 bits, as many as the MDS stores: one in 2^32 creates of other clients is mistaken for a retry, and
//! only for a file whose gateway crashed.

use ceph_sys::ffi::CEPH_STATX_BTIME;

use crate::error::VfsResult;
use crate::fnv::fnv;
use crate::types::*;

use super::node::CephNode;
use super::stat::Stat;

/// The number for an exclusive create of this user; zero for other creates.
pub(super) fn number(how: CreateHow, uid: u32) -> u32 {
    let CreateHow::Exclusive(verifier) = how else { return 0 };
    let [a, b, c, d, e, f, g, h] = fnv(verifier.iter().chain(&uid.to_be_bytes())).to_be_bytes();
    u32::from_be_bytes([a ^ e, b ^ f, c ^ g, d ^ h]).max(1)
}

/// True if the times of this file have not been set since its creation.
fn has_first_times(stat: &Stat) -> bool {
    let [made, read, written] =
        [stat.stx_btime, stat.stx_atime, stat.stx_mtime].map(|t| (t.tv_sec, t.tv_nsec));
    stat.stx_mask & CEPH_STATX_BTIME != 0 && made == read && made == written
}

impl CephNode {
    /// The attributes of a file that an unfinished exclusive create with this number has made for this user.
    pub(super) fn unfinished(&self, number: u32, uid: u32) -> VfsResult<Option<Stat>> {
        if number == 0 || self.kind != Kind::File {
            return Ok(None);
        }
        let stat = self.volume.done(self.inode().getattr(&self.volume.process))?;
        // A file created by permission of a list belongs to the superuser until it is given to the caller.
        let is_its = stat.stx_rdev == u64::from(number) && [0, uid].contains(&stat.stx_uid);
        let is_its = is_its && stat.stx_size == 0;
        Ok((is_its && has_first_times(&stat)).then_some(stat))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_depends_on_verifier_and_user() {
        let mine = CreateHow::Exclusive(*b"verifier");
        assert_eq!(number(mine, 1), number(mine, 1));
        assert_ne!(number(mine, 1), number(mine, 2));
        assert_ne!(number(mine, 1), number(CreateHow::Exclusive(*b"Verifier"), 1));
        assert_eq!(number(CreateHow::Guarded, 1), 0);
    }
}
