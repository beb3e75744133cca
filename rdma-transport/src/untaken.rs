//! Tells a connection's reads how far its peer lags behind in taking replies.

use std::sync::Arc;
use std::time::Instant;

use crate::channel::Info;
use crate::{count, limits};

/// Bytes sent before the next report, so that small replies need not report one by one.
const TOLD_AT_ONCE: usize = 1 << 20;

/// The reporting side of a channel; dropping it ends the wait of every read.
pub(crate) struct Untaken {
    info: Arc<Info>,
    is_blocked: bool,
    /// Bytes sent and not reported yet.
    left: usize,
    /// Bytes that the peer took since it last stalled.
    taken: usize,
}

impl Untaken {
    pub(crate) fn new(info: Arc<Info>) -> Self {
        Self { info, is_blocked: false, left: 0, taken: 0 }
    }

    /// Reports that `left` bytes were sent since the last call, and `waiting` bytes wait for the peer, of which `useful` keep the
    /// connection busy.
    pub(crate) fn tell(&mut self, left: usize, waiting: usize, useful: usize) {
        self.left += left;
        self.taken = self.taken.saturating_add(left);
        let earned = (self.taken / limits::UNTAKEN_EARNED_BY).min(limits::UNTAKEN_MORE);
        let is_blocked = waiting > useful + earned;
        let is_news = is_blocked != self.is_blocked || is_blocked && left > 0;
        if !is_news && self.left < TOLD_AT_ONCE {
            return;
        }
        self.is_blocked = is_blocked;
        let left = std::mem::take(&mut self.left);
        if self.info.backpressure.moved(left, is_blocked, Instant::now()) {
            self.taken = 0;
            count::limit_met(limits::UNTAKEN);
        }
    }
}

impl Drop for Untaken {
    fn drop(&mut self) {
        if self.info.backpressure.end(Instant::now()) {
            count::limit_met(limits::UNTAKEN);
        }
    }
}
