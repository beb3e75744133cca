//! Runs requested reloads one after the other, next to the daemon's main loop.
//!
//! *Operation.* A task reads the file and opens folders, because one of them may be on a file system that does not respond,
//! while the loop continues to handle signals and other orders. The main loop then applies the result; only it changes what
//! is served.
//!
//! *Memory.* One reload runs and [`WAITING_MAX`] are queued; signals received meanwhile count as one.
//!
//! *Errors.* A request beyond the queue is rejected with an error.

use std::collections::VecDeque;

use config::{NewShare, Settings};
use sd_notify::NotifyState;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::changes::{Changes, Refusal};
use crate::control::adding::{self, Replaced};
use crate::load::{Load, warn};
use crate::manager::Manager;
use crate::reload::Sound;
use crate::serve::Running;

/// Maximum number of reloads queued behind the running one.
const WAITING_MAX: usize = 16;

/// Source of the request, with the sender for the result.
pub(crate) enum Cause {
    /// SIGHUP.
    Signal,
    /// `headgate reload`.
    Order(oneshot::Sender<Result<Changes, Refusal>>),
    /// Adds a share, which is first written into the file.
    Share(NewShare, oneshot::Sender<Result<Changes, Refusal>>),
    /// Only the database of users changed, or names of the host have to be resolved again.
    Users,
}

impl Cause {
    /// Returns true if one queued request of this kind serves both.
    fn is_like(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Signal, Self::Signal) | (Self::Users, Self::Users))
    }
}

/// Result of reading.
struct Read {
    sound: Result<Sound, Refusal>,
    /// The file that was written for it, to be restored if the reload fails.
    replaced: Option<Replaced>,
}

impl From<Refusal> for Read {
    fn from(why: Refusal) -> Self {
        Self { sound: Err(why), replaced: None }
    }
}

/// A reload that is ready to be applied.
pub(crate) struct Step {
    pub(crate) cause: Cause,
    pub(crate) read: Result<Sound, Refusal>,
    /// See [`Read::replaced`].
    pub(crate) replaced: Option<Replaced>,
}

/// The running reload and the queued ones.
#[derive(Default)]
pub(crate) struct Reloads {
    under_way: Option<(Cause, JoinHandle<Read>)>,
    waiting: VecDeque<Cause>,
}

impl Reloads {
    /// Queues a reload.
    pub(crate) fn ask(&mut self, cause: Cause) {
        if self.waiting.iter().any(|waiting| waiting.is_like(&cause)) {
            return;
        }
        match cause {
            Cause::Order(answer) | Cause::Share(_, answer) if self.waiting.len() >= WAITING_MAX => {
                let why = format!("{WAITING_MAX} reloads are waiting already; try again later");
                // The client that sent the order may have disconnected.
                let _ = answer.send(Err(Refusal::Failed(why)));
            }
            cause => self.waiting.push_back(cause),
        }
    }

    /// Starts the next reload unless one is running, and waits until one has been read. The future may be dropped at any time.
    pub(crate) async fn next(&mut self, running: &Running, load: &Load, manager: &Manager) -> Step {
        if self.under_way.is_none()
            && let Some(cause) = self.waiting.pop_front()
        {
            let reading = begin(&cause, running, load, manager);
            self.under_way = Some((cause, reading));
        }
        let Some((_, reading)) = &mut self.under_way else { return std::future::pending().await };
        let read = reading.await.unwrap_or_else(|e| Refusal::Failed(e.to_string()).into());
        let cause = self.under_way.take().map_or(Cause::Signal, |(cause, _)| cause);
        Step { cause, read: read.sound, replaced: read.replaced }
    }
}

fn begin(cause: &Cause, running: &Running, load: &Load, manager: &Manager) -> JoinHandle<Read> {
    let (reader, load) = (running.reader(), load.clone());
    let new = match cause {
        Cause::Users => {
            // Empties the look-ups, so that the host's users in shares are resolved again.
            let same = Settings { on_host: Default::default(), ..running.settings.clone() };
            return tokio::spawn(
                async move { Read { sound: reader.read(same).await, replaced: None } },
            );
        }
        Cause::Share(new, _) => Some(new.clone()),
        Cause::Signal | Cause::Order(_) => None,
    };
    // systemd requires both lines in one message (sd_notify(3), RELOADING=1).
    let time = NotifyState::monotonic_usec_now();
    manager.tell([Some(NotifyState::Reloading), time.ok()].into_iter().flatten().collect());
    tokio::spawn(async move {
        let loaded = tokio::task::spawn_blocking(move || {
            let replaced = new.map(|new| adding::write(&load, &new)).transpose()?;
            Ok::<_, Refusal>((load.now(), replaced))
        });
        match loaded.await {
            Ok(Ok((Ok(settings), replaced))) => {
                warn(&settings);
                Read { sound: reader.read(settings).await, replaced }
            }
            Ok(Ok((Err(faults), replaced))) => {
                Read { sound: Err(Refusal::Faults(faults)), replaced }
            }
            Ok(Err(why)) => Read::from(why),
            Err(e) => Refusal::Failed(e.to_string()).into(),
        }
    })
}
