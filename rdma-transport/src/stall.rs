//! The limit on waiting for a peer that has something half done.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::limits;

/// Notices a peer that makes no progress. The timer is armed once and looked at when it fires, so that progress costs an
/// addition and nothing else.
#[derive(Default)]
pub(crate) struct Stall {
    /// Bytes since the timer was looked at.
    moved: usize,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stall {
    /// So many bytes moved.
    pub(crate) fn progress(&mut self, bytes: usize) {
        self.moved = self.moved.saturating_add(bytes);
    }

    /// Ready when something has been half done for the whole of the limit with too little progress.
    pub(crate) fn poll(&mut self, half_done: bool, cx: &mut Context<'_>) -> Poll<()> {
        if !half_done {
            // An armed timer stays, so that a busy connection does not arm one for every message; it finds this.
            self.moved = usize::MAX;
            if self.timer.is_none() {
                return Poll::Pending;
            }
        }
        let limit = Duration::from_secs(limits::STALL_SECONDS_MAX);
        if self.timer.is_none() {
            self.moved = 0;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        while timer.as_mut().poll(cx).is_ready() {
            if !half_done {
                self.timer = None;
                return Poll::Pending;
            }
            if std::mem::take(&mut self.moved) < limits::STALL_BYTES_MIN {
                return Poll::Ready(());
            }
            timer.as_mut().reset(Instant::now() + limit);
        }
        Poll::Pending
    }
}
