//! Tells the reads of a connection how far its peer is behind with its answers.

use std::sync::Arc;
use std::time::Instant;

use crate::channel::Info;
use crate::{count, limits};

/// Bytes that leave before that is told: small answers need not pay for it one by one.
const TOLD_AT_ONCE: usize = 1 << 20;

/// What a channel has told; its drop ends the wait of every read.
pub(crate) struct Untaken {
    info: Arc<Info>,
    is_blocked: bool,
    /// Bytes that left and have not been told.
    left: usize,
    /// Bytes that the peer took since it last took nothing for long.
    taken: usize,
}

impl Untaken {
    pub(crate) fn new(info: Arc<Info>) -> Self {
        Self { info, is_blocked: false, left: 0, taken: 0 }
    }

    /// So many bytes left since this was called last, and so many wait for the peer, of which `useful` keep its way to it busy.
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
