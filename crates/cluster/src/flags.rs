//! A single watch of the cluster's keys for all tasks of a node.
//!
//! *Operation.* Each task that waits for keys has a [`Flag`], which is raised when one of the keys changes; the task then reads the
//! keys. [`Flags::follow`] watches all keys of the cluster and, if a member of etcd fails, resumes from the last reported revision
//! on another member. It also does so periodically, because a frozen member reports no error.
//!
//! *Memory.* One bit per task. Changes are not stored, so a slow task costs no memory and delays no other.
//!
//! *Errors.* If etcd no longer has all changes since the last revision, every flag is raised.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use crate::etcd::{Error, Etcd};
use crate::outage;

/// Tells one task to read its keys again; stays raised until the task was notified.
pub(crate) type Flag = Arc<Notify>;

/// Lowers a flag: a later read sees all changes so far.
pub(crate) async fn lower(flag: &Flag) {
    tokio::select! {
        biased;
        () = flag.notified() => {}
        () = std::future::ready(()) => {}
    }
}

/// The flags of a node by key.
#[derive(Debug, Default)]
pub(crate) struct Flags(HashMap<String, Flag>);

impl Flags {
    /// Returns a flag that changes of these keys raise.
    pub(crate) fn of(&mut self, keys: &[&str]) -> Flag {
        let flag = Flag::default();
        self.0.extend(keys.iter().map(|key| ((*key).to_owned(), flag.clone())));
        flag
    }

    fn raise_all(&self) {
        self.0.values().for_each(|flag| flag.notify_one());
    }

    fn raise<'a>(&self, keys: impl IntoIterator<Item = &'a String>) {
        keys.into_iter().filter_map(|key| self.0.get(key)).for_each(|flag| flag.notify_one());
    }

    /// Watches all keys with this prefix; renews each watch after `believed`. Never returns.
    pub(crate) async fn follow(&self, etcd: &Etcd, prefix: &str, believed: Duration) {
        let mut told = None;
        loop {
            match self.watch(etcd, prefix, believed, &mut told).await {
                Ok(()) => {}
                Err(Error::Missed) => told = None,
                Err(e) => {
                    if outage::is_news("watch", "") {
                        tracing::warn!("changes in etcd are not seen until a watch succeeds: {e}");
                    }
                    sleep(believed / 20).await;
                }
            }
        }
    }

    /// Runs one watch from the revision `told`, up to which all changes are known.
    async fn watch(
        &self,
        etcd: &Etcd,
        prefix: &str,
        believed: Duration,
        told: &mut Option<u64>,
    ) -> Result<(), Error> {
        let mut watch = etcd.watch(prefix, told.map_or(0, |told| told + 1)).await?;
        match *told {
            // etcd was restored or recreated with lower revisions, and would report no change until it has caught up.
            Some(told) if watch.began() < told => return Err(Error::Missed),
            Some(_) => {}
            None => {
                *told = Some(watch.began());
                self.raise_all();
            }
        }
        let until = Instant::now() + believed;
        while let Ok(changes) = timeout_at(until, watch.next()).await {
            let changes = changes?;
            self.raise(&changes.keys);
            *told = Some(changes.revision);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn is_raised(flag: &Flag) -> bool {
        let notified = std::pin::pin!(flag.notified());
        notified.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn flag_is_raised_once_by_own_keys() {
        let mut flags = Flags::default();
        let (slow, other) = (flags.of(&["/c/a/owner", "/c/a/wanted"]), flags.of(&["/c/b/owner"]));
        let change = |key: &str| flags.raise(&[key.to_owned()]);
        assert!(!is_raised(&slow) && !is_raised(&other));
        for _ in 0..100_000 {
            change("/c/a/owner");
            change("/c/a/wanted");
            change("/c/unknown");
        }
        assert!(!is_raised(&other));
        change("/c/b/owner");
        assert!(is_raised(&other) && !is_raised(&other));
        assert!(is_raised(&slow) && !is_raised(&slow));
        flags.raise_all();
        assert!(is_raised(&slow) && is_raised(&other));
        assert!(!is_raised(&slow), "it has two keys and was raised once");
    }
}
