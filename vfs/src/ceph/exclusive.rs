//! Exclusive creates that outlive the gateway.
//!
//! *Operation.* The verifier of an exclusive create is kept as the file's times ([`crate::creation`]), which are set by a second
//! call: the cluster makes a file with the time of its own clock, and the library keeps a change of times to itself for a while. A
//! gateway that dies in between leaves a file that its client asks for again. So the one call that makes the file gives it a number
//! as well: that of a device, which the MDS keeps with every inode and nobody looks at of a regular file. As long as the times are
//! those of the making, that number tells whose file it is, and the repetition does what is left to do.
//!
//! *Errors.* None of its own. The number has 32 bits, as many as the MDS keeps: one create of another client in 2^32 is taken for a
//! repetition, and only of a file whose maker's gateway died.

use ceph_sys::ffi::CEPH_STATX_BTIME;

use crate::error::VfsResult;
use crate::fnv::fnv;
use crate::types::*;

use super::node::CephNode;
use super::stat::Stat;

/// The number of what this user makes so; zero for what is no exclusive create.
pub(super) fn number(how: CreateHow, uid: u32) -> u32 {
    let CreateHow::Exclusive(verifier) = how else { return 0 };
    let [a, b, c, d, e, f, g, h] = fnv(verifier.iter().chain(&uid.to_be_bytes())).to_be_bytes();
    u32::from_be_bytes([a ^ e, b ^ f, c ^ g, d ^ h]).max(1)
}

/// Nothing has set the times of this file since it was made.
fn has_first_times(stat: &Stat) -> bool {
    let [made, read, written] =
        [stat.stx_btime, stat.stx_atime, stat.stx_mtime].map(|t| (t.tv_sec, t.tv_nsec));
    stat.stx_mask & CEPH_STATX_BTIME != 0 && made == read && made == written
}

impl CephNode {
    /// The attributes of a file that an exclusive create of this number has made for this user, if that was not finished.
    pub(super) fn unfinished(&self, number: u32, uid: u32) -> VfsResult<Option<Stat>> {
        if number == 0 || self.kind != Kind::File {
            return Ok(None);
        }
        let stat = self.volume.done(self.inode().getattr(&self.volume.process))?;
        // What a list permits belongs to the superuser until it is given away.
        let is_its = stat.stx_rdev == u64::from(number) && [0, uid].contains(&stat.stx_uid);
        let is_its = is_its && stat.stx_size == 0;
        Ok((is_its && has_first_times(&stat)).then_some(stat))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_of_one_verifier_and_one_user() {
        let mine = CreateHow::Exclusive(*b"verifier");
        assert_eq!(number(mine, 1), number(mine, 1));
        assert_ne!(number(mine, 1), number(mine, 2));
        assert_ne!(number(mine, 1), number(CreateHow::Exclusive(*b"Verifier"), 1));
        assert_eq!(number(CreateHow::Guarded, 1), 0);
    }
}
