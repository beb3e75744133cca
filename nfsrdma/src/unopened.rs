//! Writes to files that nobody has opened, for the audit trail: NFS 3 has no OPEN, and version 4 takes a stateid of nobody.
//!
//! *Operation.* The first write of a user to a file is recorded like an open; further ones within [`SILENCE`] are not. Only shares
//! with `audit: writes` are looked at.
//!
//! *Memory.* [`WRITERS_MAX`] users of files; beyond them all are forgotten, so that some are told of again.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use audit::Files;
use vfs::audited::{Actor, Opening, opening};
use vfs::namespace::Share;
use vfs::{Handle, NodeRef, VfsResult};

use crate::context::CallContext;

/// For how long a user that has written a file is not told of again.
pub(crate) const SILENCE: Duration = Duration::from_secs(600);
/// Users of files that are remembered.
pub(crate) const WRITERS_MAX: usize = 4096;

/// The file, by share and handle; the user and its address.
type Writer = (u32, Handle, u32, IpAddr);

/// Who has written what lately.
#[derive(Debug, Default)]
pub(crate) struct Writers(Mutex<HashMap<Writer, Duration>>);

impl Writers {
    /// It is the first time within [`SILENCE`], and remembered.
    fn is_first(&self, writer: Writer, now: Duration) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.get(&writer).is_some_and(|last| now.saturating_sub(*last) < SILENCE) {
            return false;
        }
        if known.len() >= WRITERS_MAX {
            known.clear();
        }
        known.insert(writer, now);
        true
    }

    /// Begins the record of a write by somebody who has not opened the file; `None`: there is none to make.
    ///
    /// # Errors
    /// [`vfs::VfsError::NotRecorded`].
    pub(crate) fn begin<'s>(
        &self,
        share: &'s Share,
        node: &NodeRef,
        call: &CallContext,
    ) -> VfsResult<Option<Opening<'s>>> {
        if !share.rules.audit.has(Files::WRITES) || !audit::is_on() {
            return Ok(None);
        }
        let record = opening(share, (false, true), || call.acting())?;
        let is_first = self.is_first((share.id, node.handle(), call.cred.uid, call.peer), call.now);
        Ok(is_first.then_some(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_write_of_each_in_ten_minutes_counts() {
        let writers = Writers::default();
        let peer: IpAddr = [192, 0, 2, 1].into();
        let of = |file: u32, uid| (1, Handle::new(&file.to_be_bytes()).unwrap(), uid, peer);
        let at = Duration::from_secs;
        assert!(writers.is_first(of(1, 7), at(0)));
        assert!(!writers.is_first(of(1, 7), at(599)));
        assert!(writers.is_first(of(1, 8), at(1)) && writers.is_first(of(2, 7), at(1)));
        assert!(writers.is_first(of(1, 7), at(600)));
        for n in 0..2 * u32::try_from(WRITERS_MAX).unwrap() {
            writers.is_first(of(n, 9), at(601));
        }
        assert!(writers.0.lock().unwrap().len() <= WRITERS_MAX);
    }
}
