//! Reloads that are asked for, one after the other, beside the daemon's main loop.
//!
//! *Operation.* The file is read, folders are looked at and opened by a task: one of them may lie on a file system that gives no
//! answer, and signals and other orders are heard meanwhile. What was read is put in force by the main loop, which alone changes
//! what is served.
//!
//! *Memory.* One reload is under way and [`WAITING_MAX`] wait; signals that come meanwhile are one.
//!
//! *Errors.* Whoever asks for one more is told so.

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

/// Orders of reloads that wait for the one under way.
const WAITING_MAX: usize = 16;

/// Who wants it, and where the answer goes.
pub(crate) enum Cause {
    /// SIGHUP.
    Signal,
    /// `headgate reload`.
    Order(oneshot::Sender<Result<Changes, Refusal>>),
    /// One more share, which is written into the file first.
    Share(NewShare, oneshot::Sender<Result<Changes, Refusal>>),
    /// The database of users, by itself.
    Users,
}

impl Cause {
    /// One of this kind that has not begun will do for both.
    fn is_like(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Signal, Self::Signal) | (Self::Users, Self::Users))
    }
}

/// What was read.
struct Read {
    sound: Result<Sound, Refusal>,
    /// The file that was written for it, to be put back where nothing comes of it.
    replaced: Option<Replaced>,
}

impl From<Refusal> for Read {
    fn from(why: Refusal) -> Self {
        Self { sound: Err(why), replaced: None }
    }
}

/// A reload that waits to be put in force.
pub(crate) struct Step {
    pub(crate) cause: Cause,
    pub(crate) read: Result<Sound, Refusal>,
    /// See [`Read::replaced`].
    pub(crate) replaced: Option<Replaced>,
}

/// The reload under way, and those that wait.
#[derive(Default)]
pub(crate) struct Reloads {
    under_way: Option<(Cause, JoinHandle<Read>)>,
    waiting: VecDeque<Cause>,
}

impl Reloads {
    /// Asks for one more.
    pub(crate) fn ask(&mut self, cause: Cause) {
        if self.waiting.iter().any(|waiting| waiting.is_like(&cause)) {
            return;
        }
        match cause {
            Cause::Order(answer) | Cause::Share(_, answer) if self.waiting.len() >= WAITING_MAX => {
                let why = format!("{WAITING_MAX} reloads are waiting already; try again later");
                // Whoever asked may have gone.
                let _ = answer.send(Err(Refusal::Failed(why)));
            }
            cause => self.waiting.push_back(cause),
        }
    }

    /// Begins the next if none is under way, and waits until one has been read. Dropping the future loses nothing.
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
            // Whom its shares name is looked up anew, too.
            let same = Settings { on_host: Default::default(), ..running.settings.clone() };
            return tokio::spawn(
                async move { Read { sound: reader.read(same).await, replaced: None } },
            );
        }
        Cause::Share(new, _) => Some(new.clone()),
        Cause::Signal | Cause::Order(_) => None,
    };
    // systemd wants both lines in one message (sd_notify(3), RELOADING=1).
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
