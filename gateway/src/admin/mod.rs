//! The admin address: health, metrics, status, and the status page.
//!
//! *Operation.* Serves HTTP/1.1 on a separate address, by default only on this host. `/healthz` and `/livez` answer while the
//! process works; `/readyz` answers while it accepts connections and can write its state folder, and otherwise says why not;
//! [`listener`] bounds the connections. The other paths require the access that [`access`] checks: `/` is a page, `/status` its
//! data in JSON, `/history` the last fifteen minutes, `/metrics` the text format of Prometheus. Values are read at each request;
//! the data path only pays for its counters. [`actions`] describes the page's actions and their users.
//!
//! *Memory.* One snapshot for each request under way, of which there are at most [`REQUESTS_MAX`]. The history has a fixed size.
//!
//! *Errors.* A configured address that cannot be bound stops the start, like every other address. Without the default address the
//! gateway starts anyway: serving files matters more than figures.

pub mod access;
pub mod actions;
pub mod daemon;
pub mod history;
pub mod limits;
pub mod listener;
pub mod logins;
pub mod metrics;
pub mod operations;
mod page;
pub mod process;
pub mod protocol;
pub mod reloads;
mod rules;
pub mod show;
pub mod snapshot;
#[cfg(test)]
mod status_page;
#[cfg(test)]
pub(crate) mod testing;
pub mod usage;
pub mod why;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use config::Admin;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use access::Access;
use actions::Actions;
use history::History;
use metrics::text_format;
use snapshot::SharedSource;

use crate::tls::Tls;

/// Requests answered at the same time; further ones get an error and must retry.
pub const REQUESTS_MAX: usize = 16;

static ROOM: Semaphore = Semaphore::const_new(REQUESTS_MAX);

/// Binds the admin address. Returns `None` if it is switched off, or if the default address cannot be bound.
pub async fn listen(admin: Admin) -> Result<Option<TcpListener>, String> {
    match admin {
        Admin::Off => Ok(None),
        Admin::At(at) => {
            let listener = TcpListener::bind(at).await;
            let refused =
                |e| crate::port::refused("the admin page", at, &e, "--admin ADDRESS:PORT");
            listener.map(Some).map_err(refused)
        }
        Admin::Usual => match TcpListener::bind(Admin::USUAL).await {
            Ok(listener) => Ok(Some(listener)),
            Err(error) => {
                let at = Admin::USUAL;
                tracing::warn!(%at, %error, "health, metrics and status are not served; give --admin ADDR:PORT");
                Ok(None)
            }
        },
    }
}

/// Serves requests until the task is ended, and keeps the history.
pub async fn serve(
    listener: TcpListener,
    source: SharedSource,
    (access, tls): (Access, Arc<Tls>),
    actions: Actions,
) {
    let history = Arc::new(History::default());
    let past = history.clone();
    let guarded = Router::new()
        .route("/", get(page::html))
        .route("/page.css", get(page::css))
        .route("/page.js", get(page::js))
        .route("/metrics", get(metrics))
        .route("/status", get(status))
        .route("/history", get(move || async move { Json(past.points()).into_response() }))
        .with_state(source.clone())
        .merge(actions.routes())
        .layer(axum::middleware::from_fn_with_state(access, access::check));
    let routes = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(source.clone())
        .merge(guarded);
    tokio::select! {
        () = listener::serve(listener, routes, tls) => {}
        () = history::keep(source, history) => {}
    }
}

async fn ready(State(source): State<SharedSource>) -> Response {
    match source.unready() {
        None => match source.impaired() {
            None => "ready\n".into_response(),
            Some(what) => format!("ready\n{what}\n").into_response(),
        },
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

async fn status(State(source): State<SharedSource>) -> Response {
    with_room(|| Json(source.snapshot()).into_response())
}

async fn metrics(State(source): State<SharedSource>, headers: HeaderMap) -> Response {
    let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let accepts: Vec<&str> = accepts.collect();
    let is_open = text_format::asks_for_open_metrics(&accepts.join(","));
    with_room(|| match metrics::encode(source.snapshot()) {
        Ok(text) => {
            let (kind, text) = match is_open {
                true => (text_format::OPEN_METRICS, text),
                false => (text_format::TEXT, text_format::of_open_metrics(&text)),
            };
            let head = [(header::CONTENT_TYPE, kind), (header::VARY, "accept")];
            (head, text).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    })
}

fn with_room(answer: impl FnOnce() -> Response) -> Response {
    match ROOM.try_acquire() {
        Ok(_place) => answer(),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "too many requests at once\n").into_response(),
    }
}
