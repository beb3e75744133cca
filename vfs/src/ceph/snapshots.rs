//! Lists the snapshots of a directory with their times.
//!
//! *Operation.* The MDS reports with each inode of an existing snapshot when it was taken (`ceph.snap.btime`). The snapshots of a
//! directory are the names in its `.snap`, including snapshots of its ancestors.
//!
//! *Memory.* [`SNAPSHOTS_MAX`] for one directory.
//!
//! *Errors.* Those of look-ups.

use ceph_sys::ffi::CEPH_NOSNAP;
use ceph_sys::{Inode, Name, Perm};

use crate::backend::{NodeRef, Snapshot};
use crate::error::{VfsError, VfsResult};
use crate::perm;
use crate::types::*;

use super::node::CephNode;

/// Maximum snapshots listed for one directory. The MDS keeps 100 by default for each directory (`mds_max_snaps_per_dir`).
const SNAPSHOTS_MAX: usize = 4096;

/// The time of the snapshot that contains this inode; `None` if there is no such snapshot.
pub(super) fn taken(inode: &Inode, process: &Perm) -> Option<Time> {
    let name = Name::new(b"ceph.snap.btime").ok()?;
    parsed(&inode.getxattr(&name, process).ok()?)
}

/// Parses seconds, a point, and nine digits.
fn parsed(value: &[u8]) -> Option<Time> {
    let text = std::str::from_utf8(value).ok()?.trim_end_matches('\0');
    let (sec, nsec) = text.split_once('.').unwrap_or((text, "0"));
    Some(Time { sec: sec.parse().ok()?, nsec: nsec.parse().ok().filter(|n| *n < 1_000_000_000)? })
}

impl CephNode {
    pub(super) fn do_snapshots(&self, cred: &Cred) -> VfsResult<Vec<Snapshot>> {
        self.names()?;
        if self.vino.snap != CEPH_NOSNAP {
            // Snapshots have no snapshots.
            return Ok(Vec::new());
        }
        self.permitted_now(cred, perm::EXECUTE)?;
        let (all, _) = self.find(b".snap")?;
        let mut found = Vec::new();
        let mut list = self.volume.done(all.inode().opendir(&self.volume.process))?;
        while let Some(entry) = self.volume.done(list.read())? {
            if *entry.name == *b"." || *entry.name == *b".." {
                continue;
            }
            let node = match all.find(&entry.name) {
                Ok((node, _)) => node,
                // The snapshot was removed meanwhile.
                Err(VfsError::NotFound) => continue,
                Err(e) => return Err(e),
            };
            if let Some(taken) = taken(node.inode(), &self.volume.process) {
                found.push(Snapshot { taken, node: node as NodeRef });
            }
            if found.len() == SNAPSHOTS_MAX {
                break;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_time_is_parsed() {
        let time = |text: &str| parsed(text.as_bytes()).map(|t| (t.sec, t.nsec));
        assert_eq!(time("1764151620.012345678"), Some((1_764_151_620, 12_345_678)));
        assert_eq!(time("1764151620.012345678\0"), Some((1_764_151_620, 12_345_678)));
        assert_eq!(time("7"), Some((7, 0)));
        for bad in ["", "x.1", "1.x", "1.1000000000"] {
            assert_eq!(time(bad), None, "{bad}");
        }
    }
}
