//! Tells the reads of a connection how far its peer is behind with its answers.

use std::sync::Arc;
use std::time::Instant;

use crate::channel::Info;
use crate::{count, limits};

/// What a channel has told; its drop ends the wait of every read.
pub(crate) struct Untaken {
    info: Arc<Info>,
    is_blocked: bool,
}

impl Untaken {
    pub(crate) fn new(info: Arc<Info>) -> Self {
        Self { info, is_blocked: false }
    }

    /// So many bytes left since this was called last, and more waits for the peer than may or not.
    pub(crate) fn tell(&mut self, left: usize, is_blocked: bool) {
        if left == 0 && is_blocked == self.is_blocked {
            return;
        }
        self.is_blocked = is_blocked;
        if self.info.backpressure.moved(left, is_blocked, Instant::now()) {
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
