//! What the service manager is told: `READY`, `RELOADING`, `STOPPING`, and that the gateway is alive.
//!
//! *Operation.* Messages go in their order by a thread of their own: a send to the manager's socket waits until the manager reads,
//! and a manager that does not must not keep anybody from a reload or from the end. The process does not wait for the thread when
//! it ends, only [`LAST`] for what was said.
//!
//! *Memory.* [`WAITING_MAX`] messages. When they are that many, the newest takes the place of all: the manager has missed what was
//! in between. That the gateway is alive is only said when nothing else waits.
//!
//! *Errors.* Whoever started this program may not be a service manager, so what cannot be sent is passed over. A manager that does
//! not read is named in the log, once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mutex::locked;
use sd_notify::NotifyState;
use tokio::sync::watch;

/// After this time without a taker a message is late, and the log says so.
const LATE: Duration = Duration::from_secs(5);

/// So long the end of the process waits for the last message to be taken. The gateway has asked for two seconds more than `drain`.
const LAST: Duration = Duration::from_secs(1);

/// Messages that wait at most.
const WAITING_MAX: usize = 16;

type Message = Vec<NotifyState<'static>>;

/// The way to the service manager.
#[derive(Debug)]
pub(crate) struct Manager {
    line: Arc<Line>,
    /// The number of the last message that was sent, or could not be.
    sent: watch::Receiver<u64>,
    /// The log knows that it does not read.
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
    /// The number of the last that was said.
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
                // There may be no manager, or one that is gone.
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

    /// Says this after what was said before.
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

    /// Says that the gateway is alive, unless something waits to be said already.
    pub(crate) fn is_alive(&self) {
        let mut waiting = self.line.lock();
        if waiting.said == *self.sent.borrow() {
            waiting.push(vec![NotifyState::Watchdog]);
            self.line.comes.notify_one();
        }
    }

    /// Gives what was said last its time.
    pub(crate) async fn last(&self) {
        let number = self.line.lock().said;
        taken(self.sent.clone(), number, LAST, &self.is_known).await;
    }
}

/// Waits until this message was taken, and says whose fault it is when that takes longer than this.
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
            "the service manager does not read its socket (NOTIFY_SOCKET), so it does not learn the state of this gateway; \
             serving goes on"
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
