//! `headgate status`, `reload`, `drain`, `log`, `files`, `close`, `disconnect` and `admin-token`: sends one order to the running
//! daemon.

use std::io;
use std::path::Path;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use tokio::net::UnixStream;

use super::ending::{Client, Disconnected, What};
use super::files::HeldFiles;
use super::{AdminToken, Drained};
use crate::changes::Changes;
use crate::http;
use crate::wastebasket::{Answer, Request as OfWastebasket};

/// Slightly more than the longest drain that the configuration allows.
const ANSWER_MAX: Duration = Duration::from_secs(660);

/// Reasons why an order was not carried out; the texts are complete, with their `error: `.
#[derive(Debug)]
pub enum Refused {
    /// The configuration or the order is wrong.
    Wrong(String),
    /// The order failed, or no daemon received it.
    Failed(String),
}

/// Explains that no daemon answers.
fn nobody(state: &Path, why: &dyn std::fmt::Display) -> String {
    let path = super::path(state);
    if std::os::unix::net::UnixStream::connect(&path)
        .is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
    {
        return format!(
            "{}: permission denied\n  = run the command as the daemon's user or as root",
            path.display()
        );
    }
    format!(
        "no daemon listens at {}: {why}\n  = is it running with this state folder, and are you its user or \
         root? Name its folder with `--state DIR`, or its file with `--config FILE`",
        path.display()
    )
}

async fn order(state: &Path, order: &str, body: String) -> Result<String, Refused> {
    let nobody =
        |why: &dyn std::fmt::Display| Refused::Failed(format!("error: {}", nobody(state, why)));
    let stream = UnixStream::connect(super::path(state)).await.map_err(|e| nobody(&e))?;
    let request = Request::post(format!("/{order}"))
        .header("host", "headgate")
        .body(Full::new(Bytes::from(body)))
        .map_err(|e| nobody(&e))?;
    let answer = tokio::time::timeout(ANSWER_MAX, http::ask(stream, request)).await;
    let (status, text) = match answer {
        Ok(Ok(answer)) => answer,
        Ok(Err(e)) => return Err(nobody(&e)),
        Err(_) => return Err(nobody(&"it does not answer")),
    };
    match status {
        status if status.is_success() => Ok(text),
        StatusCode::UNPROCESSABLE_ENTITY => Err(Refused::Wrong(text)),
        _ => Err(Refused::Failed(text)),
    }
}

fn parsed<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Refused> {
    serde_json::from_str(text).map_err(|e| {
        let what = "error: the daemon did not answer as a headgate of this version";
        Refused::Failed(format!("{what}: {e}"))
    })
}

/// Returns true if no daemon listens on the control socket of this state folder; false also if this user may not access it.
pub async fn is_deserted(state: &Path) -> bool {
    let none = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
    UnixStream::connect(super::path(state)).await.is_err_and(|e| none.contains(&e.kind()))
}

/// Returns the daemon's status as JSON. The error is a text for people.
pub async fn status(state: &Path) -> Result<String, String> {
    order(state, "status", String::new()).await.map_err(|refused| match refused {
        Refused::Wrong(text) | Refused::Failed(text) => {
            text.strip_prefix("error: ").unwrap_or(&text).to_owned()
        }
    })
}

/// Makes the daemon reload its configuration, and returns the output.
pub async fn reload(state: &Path, json: bool) -> Result<String, Refused> {
    let text = order(state, "reload", String::new()).await?;
    let changes: Changes = parsed(&text)?;
    Ok(if json { text } else { changes.to_string() })
}

/// Makes the daemon finish its requests and stop, and returns the output.
pub async fn drain(state: &Path, json: bool) -> Result<String, Refused> {
    let text = order(state, "drain", String::new()).await?;
    if json {
        return Ok(text);
    }
    let Drained { connections, cut } = parsed(&text)?;
    let ended = format!("the gateway has stopped; connections that were open: {connections}");
    Ok(match cut {
        0 => ended,
        cut => {
            format!("{ended}; closed with requests in progress, because these took too long: {cut}")
        }
    })
}

/// Returns the list of held files, as output.
pub async fn files(state: &Path, json: bool) -> Result<String, Refused> {
    let text = order(state, "files", String::new()).await?;
    let held: HeldFiles = parsed(&text)?;
    Ok(if json { text } else { held.to_string() })
}

/// Closes the files that `what` selects, and returns the output.
pub async fn close(state: &Path, what: &What, json: bool) -> Result<String, Refused> {
    let text = order(state, "close", what.to_string()).await?;
    let closed: HeldFiles = parsed(&text)?;
    Ok(if json { text } else { format!("closed:\n{closed}") })
}

/// Disconnects a client, and returns the output.
pub async fn disconnect(state: &Path, client: &Client, json: bool) -> Result<String, Refused> {
    let text = order(state, "disconnect", client.to_string()).await?;
    let gone: Disconnected = parsed(&text)?;
    Ok(if json { text } else { gone.to_string() })
}

/// Sends a request about wastebaskets.
pub(crate) async fn wastebasket(state: &Path, request: &OfWastebasket) -> Result<Answer, Refused> {
    let body = serde_json::to_string(request).map_err(|e| Refused::Failed(e.to_string()))?;
    parsed(&order(state, "wastebasket", body).await?)
}

/// Requests a token for actions on the status page.
pub async fn admin_token(state: &Path) -> Result<AdminToken, Refused> {
    parsed(&order(state, "admin-token", String::new()).await?)
}

/// Changes the daemon's log levels.
pub async fn log(state: &Path, filter: &config::LogFilter) -> Result<(), Refused> {
    order(state, "log", filter.to_string()).await.map(drop)
}
