//! The control socket: a Unix socket in the state folder, by which `headgate reload`, `drain`, `log`, `files`, `close` and
//! `disconnect` tell the daemon what to do, and `status` and `top` ask what it is doing.
//!
//! *Operation.* HTTP/1.1 with one path for each order. An order goes to the daemon's main loop, which does one after the other; the
//! answer says how it went. What it is doing is told beside all of them. Not the admin address: whoever may look at figures must
//! not thereby change what is served, and an address can be reached by more than those who may.
//!
//! Only the user that the gateway runs as and the superuser are listened to; the kernel says who is there (`SO_PEERCRED`).
//!
//! *Memory.* One order waits at most; others wait in the socket.
//!
//! *Errors.* A socket that cannot be made is done without, with a line in the log: signals do the same.

pub mod client;
pub mod ending;
pub mod files;

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use axum::Router;
use axum::body::Bytes;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::post;
use axum::serve::IncomingStream;
use config::LogFilter;
use serde::{Deserialize, Serialize};
use tokio::net::{UnixListener, UnixStream, unix};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::admin::snapshot::SharedSource;
use crate::reload::{Changes, Refusal};
use ending::{Client, Disconnected, What};
use files::{HeldFile, HeldFiles};

/// Bytes of an order at most: a choice of log levels, or the path of a file and the name of its share.
const ORDER_MAX: usize = 8192;

/// Where the socket is.
pub fn path(state: &Path) -> PathBuf {
    state.join("control")
}

/// How a drain went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// Connections that were open when it began.
    pub connections: usize,
    /// Connections that were cut because they took too long.
    pub cut: usize,
}

/// What the daemon is told to do, and where the answer goes.
#[derive(Debug)]
pub enum Order {
    /// Read the configuration again.
    Reload(oneshot::Sender<Result<Changes, Refusal>>),
    /// Finish what is under way and end.
    Drain(oneshot::Sender<Drained>),
    /// Log other lines; answered when that holds.
    Log(LogFilter, oneshot::Sender<()>),
    /// Tell who holds which file.
    Files(oneshot::Sender<HeldFiles>),
    /// Close what is held so; answered with what that was.
    Close(What, oneshot::Sender<HeldFiles>),
    /// End a client; answered with what it lost.
    Disconnect(Client, oneshot::Sender<Disconnected>),
}

/// The socket, open as long as this is.
#[derive(Debug)]
pub struct Control {
    /// What to do next.
    pub orders: mpsc::Receiver<Order>,
    /// Of the socket; `None` when there is none.
    listening: Option<(PathBuf, JoinHandle<()>)>,
    /// Kept, so that a control without a socket waits for ever.
    _sender: mpsc::Sender<Order>,
}

impl Control {
    /// Listens in this state folder, whose lock is held: a socket that is there is one that nobody serves.
    pub fn open(folder: Option<&Path>, source: SharedSource) -> Self {
        let (sender, orders) = mpsc::channel(1);
        let listening = folder.map(path).and_then(|path| match listen(&path) {
            Ok(listener) => Some((path, tokio::spawn(serve(listener, sender.clone(), source)))),
            Err(error) => {
                tracing::warn!(
                    path = %path.display(), %error,
                    "no control socket: `headgate reload`, `drain` and `log` do not reach this daemon; SIGHUP and SIGTERM do"
                );
                None
            }
        });
        Self { orders, listening, _sender: sender }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Some((path, task)) = &self.listening {
            task.abort();
            // The next run removes what stays.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Gives those connections only that come from this user or the superuser.
struct Own {
    listener: UnixListener,
    uid: u32,
}

impl axum::serve::Listener for Own {
    type Io = UnixStream;
    type Addr = unix::SocketAddr;

    async fn accept(&mut self) -> (UnixStream, unix::SocketAddr) {
        loop {
            let (stream, address) = axum::serve::Listener::accept(&mut self.listener).await;
            match stream.peer_cred() {
                Ok(peer) if peer.uid() == self.uid || peer.uid() == 0 => return (stream, address),
                Ok(peer) => {
                    tracing::warn!(uid = peer.uid(), "an order of somebody else is not heard")
                }
                Err(error) => tracing::warn!(%error, "an order of nobody known is not heard"),
            }
        }
    }

    fn local_addr(&self) -> io::Result<unix::SocketAddr> {
        self.listener.local_addr()
    }
}

async fn serve(listener: UnixListener, orders: mpsc::Sender<Order>, source: SharedSource) {
    let status = post(|State(source): State<SharedSource>| async move { Json(source.snapshot()) });
    let routes = Router::new()
        .route("/reload", post(reload))
        .route("/drain", post(drain))
        .route("/log", post(log))
        .route("/files", post(files))
        .route("/close", post(close))
        .route("/disconnect", post(disconnect))
        .layer(DefaultBodyLimit::max(ORDER_MAX))
        .with_state(orders)
        .merge(Router::new().route("/status", status).with_state(source));
    // `/proc/self` belongs to the effective user.
    let uid = std::fs::metadata("/proc/self").map_or(0, |m| m.uid());
    let routes = routes.into_make_service_with_connect_info::<Caller>();
    if let Err(error) = axum::serve(Own { listener, uid }, routes).await {
        tracing::error!(%error, "the control socket is no longer served");
    }
}

/// Who gives an order, for the log.
#[derive(Clone, Copy, Debug, Default)]
struct Caller {
    uid: u32,
    pid: i32,
}

impl Connected<IncomingStream<'_, Own>> for Caller {
    fn connect_info(stream: IncomingStream<'_, Own>) -> Self {
        // Who cannot be named was not let in.
        stream.io().peer_cred().map_or_else(
            |_| Self::default(),
            |peer| Self { uid: peer.uid(), pid: peer.pid().unwrap_or_default() },
        )
    }
}

type Orders = State<mpsc::Sender<Order>>;

fn ending() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "error: the daemon is about to end").into_response()
}

async fn reload(State(orders): Orders) -> Response {
    let (answer, wait) = oneshot::channel();
    if orders.send(Order::Reload(answer)).await.is_err() {
        return ending();
    }
    match wait.await {
        Ok(Ok(changes)) => Json(changes).into_response(),
        Ok(Err(refusal @ Refusal::Failed(_))) => {
            (StatusCode::CONFLICT, refusal.to_string()).into_response()
        }
        Ok(Err(refusal)) => (StatusCode::UNPROCESSABLE_ENTITY, refusal.to_string()).into_response(),
        Err(_) => ending(),
    }
}

async fn drain(State(orders): Orders) -> Response {
    let (answer, wait) = oneshot::channel();
    if orders.send(Order::Drain(answer)).await.is_err() {
        return ending();
    }
    match wait.await {
        Ok(drained) => Json(drained).into_response(),
        Err(_) => ending(),
    }
}

async fn files(State(orders): Orders) -> Response {
    let (answer, wait) = oneshot::channel();
    if orders.send(Order::Files(answer)).await.is_err() {
        return ending();
    }
    match wait.await {
        Ok(held) => Json(held).into_response(),
        Err(_) => ending(),
    }
}

fn wrong(why: String) -> Response {
    (StatusCode::UNPROCESSABLE_ENTITY, format!("error: {why}")).into_response()
}

fn nothing(why: String) -> Response {
    (StatusCode::NOT_FOUND, format!("error: {why}")).into_response()
}

async fn close(
    State(orders): Orders,
    ConnectInfo(Caller { uid, pid }): ConnectInfo<Caller>,
    body: Bytes,
) -> Response {
    let what: What = match String::from_utf8_lossy(&body).parse() {
        Ok(what) => what,
        Err(why) => return wrong(why),
    };
    let (answer, wait) = oneshot::channel();
    if orders.send(Order::Close(what.clone(), answer)).await.is_err() {
        return ending();
    }
    match wait.await {
        Ok(HeldFiles { files, .. }) if files.is_empty() => {
            nothing(format!("nobody holds {what}\n  = `headgate files` names what is held"))
        }
        Ok(closed) => {
            for HeldFile { share, path, protocol, client, how, .. } in &closed.files {
                tracing::warn!(
                    uid, pid, share, path = ?path, protocol, client, how,
                    "closed by order of an administrator"
                );
            }
            Json(closed).into_response()
        }
        Err(_) => ending(),
    }
}

async fn disconnect(
    State(orders): Orders,
    ConnectInfo(Caller { uid, pid }): ConnectInfo<Caller>,
    body: Bytes,
) -> Response {
    let client: Client = match String::from_utf8_lossy(&body).parse() {
        Ok(client) => client,
        Err(why) => return wrong(why),
    };
    let (answer, wait) = oneshot::channel();
    if orders.send(Order::Disconnect(client.clone(), answer)).await.is_err() {
        return ending();
    }
    match wait.await {
        Ok(gone) if gone == Disconnected::default() => nothing(format!(
            "no client {client} is here\n  = `headgate status` and `headgate files` name those who are"
        )),
        Ok(gone) => {
            tracing::warn!(uid, pid, %client, ?gone, "disconnected by order of an administrator");
            Json(gone).into_response()
        }
        Err(_) => ending(),
    }
}

async fn log(State(orders): Orders, body: Bytes) -> Response {
    match String::from_utf8_lossy(&body).parse::<LogFilter>() {
        Ok(filter) => {
            let (answer, wait) = oneshot::channel();
            if orders.send(Order::Log(filter, answer)).await.is_err() {
                return ending();
            }
            match wait.await {
                Ok(()) => StatusCode::NO_CONTENT.into_response(),
                Err(_) => ending(),
            }
        }
        Err(why) => wrong(why),
    }
}
