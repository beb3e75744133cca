//! Orders to the daemon, and the one queue for them, which the control socket and the status page share.
//!
//! *Operation.* Orders are queued to the daemon's main loop, which takes one after the other and starts long work in the
//! background. The log names the user that ended or added something.
//!
//! *Memory.* One order waits for the loop; others wait at their origin.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use config::{LogFilter, NewShare};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::ending::{Client, Disconnected, What};
use super::files::{HeldFile, HeldFiles};
use crate::changes::{Changes, Refusal};
use crate::trail::{self, By};

/// Result of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// Open connections when it began.
    pub connections: usize,
    /// Connections that were cut because they took too long.
    pub cut: usize,
}

/// An order to the daemon, with the sender for its answer.
#[derive(Debug)]
pub enum Order {
    /// Reload the configuration.
    Reload(oneshot::Sender<Result<Changes, Refusal>>),
    /// Finish the requests in work and stop.
    Drain(oneshot::Sender<Drained>),
    /// Change the log levels; answered once they apply.
    Log(LogFilter, oneshot::Sender<()>),
    /// List held files.
    Files(oneshot::Sender<HeldFiles>),
    /// Close the selected state; answered with the closed state.
    Close(What, oneshot::Sender<HeldFiles>),
    /// Disconnect a client; answered with the state that it lost.
    Disconnect(Client, oneshot::Sender<Disconnected>),
    /// Add a share to the configuration file, and reload that.
    AddShare(NewShare, oneshot::Sender<Result<Changes, Refusal>>),
}

/// Reasons why an order was not carried out; the texts are complete, with their `error: `.
#[derive(Debug)]
pub(crate) enum NotDone {
    /// The daemon is stopping.
    Ending,
    /// The order, or the configuration, is wrong.
    Wrong(String),
    /// The work failed.
    Failed(String),
    /// The order names something that does not exist.
    Nothing(String),
}

/// Writes only the first line.
impl std::fmt::Display for NotDone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            Self::Ending => "the daemon is stopping",
            Self::Wrong(text) | Self::Failed(text) | Self::Nothing(text) => text,
        };
        f.write_str(text.lines().next().unwrap_or_default())
    }
}

impl From<Refusal> for NotDone {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Failed(_) => Self::Failed(refusal.to_string()),
            Refusal::Faults(_) | Refusal::Fixed(_) => Self::Wrong(refusal.to_string()),
        }
    }
}

impl NotDone {
    pub(crate) fn wrong(why: impl std::fmt::Display) -> Self {
        Self::Wrong(format!("error: {why}"))
    }

    /// Returns the HTTP response.
    pub(crate) fn told(self) -> (StatusCode, String) {
        match self {
            Self::Ending => {
                (StatusCode::SERVICE_UNAVAILABLE, "error: the daemon is stopping".into())
            }
            Self::Wrong(text) => (StatusCode::UNPROCESSABLE_ENTITY, text),
            Self::Failed(text) => (StatusCode::CONFLICT, text),
            Self::Nothing(text) => (StatusCode::NOT_FOUND, text),
        }
    }
}

impl IntoResponse for NotDone {
    fn into_response(self) -> Response {
        self.told().into_response()
    }
}

/// Sends orders to the daemon's main loop.
#[derive(Clone, Debug)]
pub(crate) struct Orders(mpsc::Sender<Order>);

impl Orders {
    /// Returns the sender and the receiver of orders.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Order>) {
        let (sender, received) = mpsc::channel(1);
        (Self(sender), received)
    }

    async fn ask<T>(&self, order: impl FnOnce(oneshot::Sender<T>) -> Order) -> Result<T, NotDone> {
        let (answer, wait) = oneshot::channel();
        self.0.send(order(answer)).await.map_err(|_| NotDone::Ending)?;
        wait.await.map_err(|_| NotDone::Ending)
    }

    pub(crate) async fn reload(&self, by: By) -> Result<Changes, NotDone> {
        let done = async { Ok(self.ask(Order::Reload).await??) }.await;
        trail::act("reload", by, "", &done);
        done
    }

    /// Recorded before it is carried out, because the audit trail ends with the daemon.
    pub(crate) async fn drain(&self, by: By) -> Result<Drained, NotDone> {
        trail::act("drain", by, "", &Ok::<_, NotDone>(()));
        self.ask(Order::Drain).await
    }

    pub(crate) async fn log(&self, filter: LogFilter, by: By) -> Result<(), NotDone> {
        let on = filter.to_string();
        let done = self.ask(|answer| Order::Log(filter, answer)).await;
        trail::act("log", by, &on, &done);
        done
    }

    pub(crate) async fn files(&self) -> Result<HeldFiles, NotDone> {
        self.ask(Order::Files).await
    }

    pub(crate) async fn close(&self, what: What, by: By) -> Result<HeldFiles, NotDone> {
        let on = what.to_string();
        let done = self.close_as(what, by).await;
        trail::act("close", by, &on, &done);
        done
    }

    async fn close_as(&self, what: What, by: By) -> Result<HeldFiles, NotDone> {
        let closed = self.ask(|answer| Order::Close(what.clone(), answer)).await?;
        if closed.files.is_empty() {
            return Err(NotDone::Nothing(format!(
                "error: no client holds {what}\n  = `headgate files` lists what clients hold"
            )));
        }
        let By { way, uid, pid } = by;
        for HeldFile { share, path, protocol, client, how, .. } in &closed.files {
            let (path, client) = (path.as_deref(), client.as_str());
            tracing::warn!(
                by = way,
                uid,
                pid,
                share,
                path,
                protocol,
                client,
                how,
                "an administrator has closed what was open"
            );
        }
        Ok(closed)
    }

    pub(crate) async fn disconnect(&self, client: Client, by: By) -> Result<Disconnected, NotDone> {
        let on = client.to_string();
        let done = self.disconnect_as(client, by).await;
        trail::act("disconnect", by, &on, &done);
        done
    }

    async fn disconnect_as(&self, client: Client, by: By) -> Result<Disconnected, NotDone> {
        let gone = self.ask(|answer| Order::Disconnect(client.clone(), answer)).await?;
        if gone == Disconnected::default() {
            return Err(NotDone::Nothing(format!(
                "error: there is no client {client}\n  = `headgate status` and `headgate files` list the clients"
            )));
        }
        let By { way, uid, pid } = by;
        tracing::warn!(
            by = way, uid, pid, %client, ?gone,
            "an administrator has disconnected a client"
        );
        Ok(gone)
    }

    pub(crate) async fn add_share(&self, new: NewShare, by: By) -> Result<Changes, NotDone> {
        let on = new.name.clone();
        let done = self.add_share_as(new, by).await;
        trail::act("add-share", by, &on, &done);
        done
    }

    async fn add_share_as(&self, new: NewShare, by: By) -> Result<Changes, NotDone> {
        let changes = self.ask(|answer| Order::AddShare(new.clone(), answer)).await??;
        let By { way, uid, pid } = by;
        let NewShare { name, path, .. } = &new;
        tracing::warn!(
            by = way,
            uid,
            pid,
            share = name,
            path,
            "an administrator has added a share"
        );
        Ok(changes)
    }
}
