//! Announces the gateway on the networks that it serves, so that other hosts find it and its name resolves.
//!
//! *Operation.* [`Discovery::set`] takes the services to announce; each link with a served address has a separate task ([`link`]).
//! State machines and parsers are pure: packets and time come as arguments. The gateway serves clients even if it cannot be
//! announced; then the log and the status name the reason.
//!
//! *Memory.* One buffer for a packet on each link, at most [`links::LINKS_MAX`]; answers that wait are numbers of own records.
//!
//! *Errors.* Packets of hosts outside of the link's networks, of senders with too many, and those that are no messages are
//! dropped and counted ([`board`]).

pub mod board;
pub mod dice;
pub mod dns;
pub mod guard;
pub mod link;
pub mod links;
pub mod llmnr;
pub mod mdns;
pub mod metadata;
pub mod name;
pub mod socket;
pub mod unread;
pub mod wsd;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mutex::locked;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use board::Board;
use link::Wanted;
use links::{Link, Listening};
use name::HostName;

/// Longest time for the messages that withdraw what was announced.
const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// A link's task. Dropping the sender ends it, after it has withdrawn what it announced.
#[derive(Debug)]
struct Running {
    wanted: watch::Sender<Wanted>,
    task: JoinHandle<()>,
}

/// Distinguishes this host from others.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The name that it wants.
    pub name: HostName,
    /// Lasts for as long as the host's state.
    pub id: [u8; 16],
    /// Greater after each start.
    pub instance: u64,
}

/// Announcements on all links.
#[derive(Debug)]
pub struct Discovery {
    identity: Identity,
    board: Arc<Board>,
    /// Links beyond the limit.
    left_out: Mutex<Vec<String>>,
    /// Tasks by the number of their link. Missing after [`Discovery::close`].
    links: Mutex<Option<BTreeMap<u32, Running>>>,
}

impl Discovery {
    /// Announces nothing yet.
    pub fn new(identity: Identity, board: Arc<Board>) -> Self {
        Self {
            identity,
            board,
            left_out: Mutex::default(),
            links: Mutex::new(Some(BTreeMap::new())),
        }
    }

    /// Returns counters and status.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Announces the services of these links, and withdraws the rest. The caller must run in a Tokio runtime.
    pub fn set(&self, links: &[Link], listening: &Listening) {
        let (served, left_out) = links::served(links, listening);
        if std::mem::replace(&mut *locked(&self.left_out), left_out.clone()) != left_out
            && let Some(line) = links::left_out_line(&left_out)
        {
            self.board.limited(links::LINKS);
            tracing::warn!("{line}");
        }
        let own: Vec<_> = links.iter().flat_map(|link| &link.addresses).map(|own| own.ip).collect();
        let mut running = locked(&self.links);
        let Some(running) = &mut *running else { return };
        // Dropped senders end their tasks.
        running.retain(|index, _| served.iter().any(|(link, _)| link.index == *index));
        for (link, offer) in served {
            let wanted = Wanted { link, offer, own: own.clone() };
            match running.get(&wanted.link.index) {
                Some(link) if !link.task.is_finished() => {
                    link.wanted.send_if_modified(|now| {
                        let differs = *now != wanted;
                        *now = wanted;
                        differs
                    });
                }
                _ => {
                    let index = wanted.link.index;
                    let (sender, receiver) = watch::channel(wanted);
                    let task = link::run(self.identity.clone(), self.board.clone(), receiver);
                    running.insert(index, Running { wanted: sender, task: tokio::spawn(task) });
                }
            }
        }
    }

    /// Withdraws all announcements, and ignores later calls of [`Discovery::set`].
    pub async fn close(&self) {
        let Some(running) = locked(&self.links).take() else { return };
        let tasks: Vec<_> = running.into_values().map(|link| link.task).collect();
        let all = async {
            for task in tasks {
                let _ = task.await;
            }
        };
        if timeout(GOODBYE_MAX, all).await.is_err() {
            tracing::debug!("what was announced could not be withdrawn in time");
        }
    }
}
