//! Messages to the service manager: `READY`, `RELOADING`, `STOPPING`, and signs of life.
//!
//! *Operation.* A separate thread sends the messages in order: a send to the manager's socket blocks until the manager reads,
//! and a manager that does not read must not delay a reload or the end of the process. At its end the process waits for the
//! last message at most [`LAST`], and not for the thread.
//!
//! *Memory.* [`WAITING_MAX`] messages. When the queue is full, the newest message replaces all: the manager misses those in
//! between. A sign of life is queued only if no other message waits.
//!
//! *Errors.* The process may not have been started by a service manager, so failed sends are ignored. A manager that does not
//! read is reported in the log, once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mutex::locked;
use sd_notify::NotifyState;
use tokio::sync::watch;

/// A message that was not sent after this time is logged as late.
const LATE: Duration = Duration::from_secs(5);

/// Time that the end of the process waits for the last message. The gateway requests two seconds more than `drain` from the
/// manager.
const LAST: Duration = Duration::from_secs(1);

/// Maximum number of queued messages.
const WAITING_MAX: usize = 16;

type Message = Vec<NotifyState<'static>>;

/// Queue of messages to the service manager.
#[derive(Debug)]
pub(crate) struct Manager {
    line: Arc<Line>,
    /// Number of the last message that was sent, or whose send failed.
    sent: watch::Receiver<u64>,
    /// The log already reports that the manager does not read.
    is_known: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Line {
    waiting: Mutex<Waiting>,
    comes: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    messages: VecDeque<(u64, Message)>,
    /// Number of the last queued message.
    said: u64,
}

impl Waiting {
    fn push(&mut self, message: Message) {
        if self.messages.len() >= WAITING_MAX {
            self.messages.clear();
        }
        self.said += 1;
        self.messages.push_back((self.said, message));
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        locked(&self.waiting)
    }

    fn next(&self) -> (u64, Message) {
        let mut waiting = self.lock();
        loop {
            if let Some(next) = waiting.messages.pop_front() {
                return next;
            }
            waiting = self.comes.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Manager {
    /// Starts the thread.
    pub(crate) fn start() -> Result<Self, String> {
        let line = Arc::new(Line::default());
        let (sender, sent) = watch::channel(0);
        let takes = line.clone();
        let send = move || {
            loop {
                let (number, message) = takes.next();
                // There may be no manager, or it may have ended.
                let _ = sd_notify::notify(&message);
                sender.send_replace(number);
            }
        };
        std::thread::Builder::new()
            .name("manager".into())
            .spawn(send)
            .map_err(|e| format!("cannot start a thread: {e}"))?;
        Ok(Self { line, sent, is_known: Arc::default() })
    }

    /// Queues a message after the earlier ones.
    pub(crate) fn tell(&self, message: Message) {
        let number = {
            let mut waiting = self.line.lock();
            waiting.push(message);
            waiting.said
        };
        self.line.comes.notify_one();
        let (sent, is_known) = (self.sent.clone(), self.is_known.clone());
        tokio::spawn(async move { taken(sent, number, LATE, &is_known).await });
    }

    /// Queues a sign of life, unless another message waits.
    pub(crate) fn is_alive(&self) {
        let mut waiting = self.line.lock();
        if waiting.said == *self.sent.borrow() {
            waiting.push(vec![NotifyState::Watchdog]);
            self.line.comes.notify_one();
        }
    }

    /// Waits for the last message to be sent, for a limited time.
    pub(crate) async fn last(&self) {
        let number = self.line.lock().said;
        taken(self.sent.clone(), number, LAST, &self.is_known).await;
    }
}

/// Waits until this message was sent; if that takes longer than `limit`, logs that the manager does not read.
async fn taken(
    mut sent: watch::Receiver<u64>,
    number: u64,
    limit: Duration,
    is_known: &AtomicBool,
) {
    let wait = tokio::time::timeout(limit, sent.wait_for(|n| *n >= number)).await;
    if wait.is_err() && !is_known.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            ?limit,
            "the service manager does not read its socket (NOTIFY_SOCKET), so it does not learn the state of \
             this gateway; serving continues"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_takes_the_place_of_those_that_nobody_took() {
        let mut waiting = Waiting::default();
        (0..WAITING_MAX).for_each(|_| waiting.push(vec![NotifyState::Reloading]));
        assert_eq!(waiting.messages.len(), WAITING_MAX);
        waiting.push(vec![NotifyState::Stopping]);
        let left: Vec<u64> = waiting.messages.iter().map(|(number, _)| *number).collect();
        assert_eq!(left, [WAITING_MAX as u64 + 1]);
    }
}
