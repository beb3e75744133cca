//! Changes of files by users who have not opened them, for the audit trail: NFS 3 has no OPEN, and version 4 takes a stateid of
//! nobody, or that of another user.
//!
//! *Operation.* The first change of a file's bytes by a user is recorded like an open; further ones within [`SILENCE`] are not.
//! What fails is recorded as that, once in the same time, and silences no change that is done. Only shares with `audit: writes`
//! are looked at.
//!
//! *Memory.* [`WRITERS_MAX`] users of files; beyond them all are forgotten, so that some are told of again.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use audit::Files;
use mutex::locked;
use vfs::audited::{Actor, Opening, opening};
use vfs::namespace::Share;
use vfs::{Handle, NodeRef, VfsError, VfsResult};

use crate::context::CallContext;
use crate::mounted::SILENCE;

/// Users of files that are remembered.
pub(crate) const WRITERS_MAX: usize = 4096;

/// The file, by share and handle; the user and its address.
type Writer = (u32, Handle, u32, IpAddr);

/// What was recorded of a user of a file last.
#[derive(Clone, Copy, Debug)]
struct Told {
    at: Duration,
    /// The change was done.
    done: bool,
}

/// Who has changed what lately.
#[derive(Debug, Default)]
pub(crate) struct Writers(Mutex<HashMap<Writer, Told>>);

impl Writers {
    /// A change that has ended is to be recorded, and is remembered as that.
    fn is_news(&self, writer: Writer, done: bool, now: Duration) -> bool {
        let mut known = locked(&self.0);
        let is_lately = |told: &&Told| now.saturating_sub(told.at) < SILENCE;
        if known.get(&writer).filter(is_lately).is_some_and(|told| told.done || !done) {
            return false;
        }
        if known.len() >= WRITERS_MAX {
            known.clear();
        }
        known.insert(writer, Told { at: now, done });
        true
    }

    /// Changes the bytes of a file; recorded where its user has not opened it, and the share asks for that.
    ///
    /// # Errors
    /// [`VfsError::NotRecorded`], before anything is done, and those of `change`.
    pub(crate) async fn recorded<T>(
        &self,
        is_opener: bool,
        (share, node): (&Share, &NodeRef),
        call: &CallContext,
        change: impl Future<Output = VfsResult<T>>,
    ) -> VfsResult<T> {
        let is_on = !is_opener && share.rules.audit.has(Files::WRITES) && audit::is_on();
        let record = match is_on {
            true => Some(opening(share, (false, true), || call.acting())?),
            false => None,
        };
        let done = change.await;
        if let Some(record) = record.filter(Opening::is_on) {
            // What is to be tried again is not told of yet.
            let is_over = !matches!(done, Err(VfsError::Delay | VfsError::Cancelled));
            let writer = (share.id, node.handle(), call.cred.uid, call.peer);
            if is_over && self.is_news(writer, done.is_ok(), call.now) {
                record.ended(node, &done).await;
            }
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_change_of_each_in_ten_minutes_counts() {
        let writers = Writers::default();
        let peer: IpAddr = [192, 0, 2, 1].into();
        let of = |file: u32, uid| (1, Handle::new(&file.to_be_bytes()).unwrap(), uid, peer);
        let at = Duration::from_secs;
        assert!(writers.is_news(of(1, 7), true, at(0)));
        assert!(!writers.is_news(of(1, 7), true, at(599)));
        assert!(writers.is_news(of(1, 8), true, at(1)) && writers.is_news(of(2, 7), true, at(1)));
        assert!(writers.is_news(of(1, 7), true, at(600)));
        for n in 0..2 * u32::try_from(WRITERS_MAX).unwrap() {
            writers.is_news(of(n, 9), true, at(601));
        }
        assert!(writers.0.lock().unwrap().len() <= WRITERS_MAX);
    }

    #[test]
    fn a_change_that_fails_silences_none_that_is_done() {
        let writers = Writers::default();
        let file = Handle::new(&[1]).unwrap();
        let news = |done, seconds| {
            let writer = (1, file.clone(), 7, [192, 0, 2, 1].into());
            writers.is_news(writer, done, Duration::from_secs(seconds))
        };
        assert!(news(false, 0) && !news(false, 1));
        assert!(news(true, 2), "it was denied, and is done now");
        assert!(!news(true, 3) && !news(false, 4));
        assert!(news(false, 602));
    }
}
