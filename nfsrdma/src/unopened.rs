//! Audit records of changes by users who have not opened the file: NFSv3 has no OPEN, and NFSv4 accepts special stateids and those
//! of other users.
//!
//! *Operation.* A user's first change of a file's bytes is recorded like an open; later ones within [`SILENCE`] are not. A failed
//! change is recorded as a failure, also once in that time, and does not suppress the record of a successful one. Only shares with
//! `audit: writes` are recorded.
//!
//! *Memory.* [`WRITERS_MAX`] pairs of user and file. Beyond that the table is cleared, so some changes are recorded again.

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

/// Pairs of user and file remembered.
pub(crate) const WRITERS_MAX: usize = 4096;

/// Share and handle of the file, user id, and client address.
type Writer = (u32, Handle, u32, IpAddr);

/// The last audit record for this user and file.
#[derive(Clone, Copy, Debug)]
struct Told {
    at: Duration,
    /// True if the change succeeded.
    done: bool,
}

/// Recent changes without an open, by writer.
#[derive(Debug, Default)]
pub(crate) struct Writers(Mutex<HashMap<Writer, Told>>);

impl Writers {
    /// True if this change must be recorded; remembers it as recorded.
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

    /// Changes the bytes of a file, and records that if the share asks for it and the user has not opened the file.
    ///
    /// # Errors
    /// *Errors.* [`VfsError::NotRecorded`] before any change, and the errors of `change`.
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
            // The client repeats a change that was delayed, so it is not recorded yet.
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
    fn first_change_within_silence_is_recorded() {
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
    fn failed_change_does_not_suppress_success() {
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
