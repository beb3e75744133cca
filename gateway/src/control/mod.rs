//! The control socket: a Unix socket in the state folder. `headgate reload`, `drain`, `log`, `files`, `close` and `disconnect` send
//! orders to the daemon over it, `status` and `top` query its status, and `admin-token` requests a token for the status page.
//!
//! *Operation.* HTTP/1.1 with one path for each order. Orders are queued to the daemon's main loop, which carries out one after the
//! other; the response contains the result. The status is read without the loop. The status page sends some of these orders through
//! the same queue ([`orders`]), with a token from this socket: a reader of metrics must not be able to change the service.
//!
//! Only the gateway's user and the superuser may connect; the kernel identifies the peer (`SO_PEERCRED`).
//!
//! *Memory.* One order waits at most; others wait in the socket.
//!
//! *Errors.* If the socket cannot be created, the log has a warning and the gateway runs without it: signals do the same.

pub(crate) mod adding;
pub mod client;
pub mod ending;
pub mod files;
pub mod orders;

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::Json;
use axum::routing::post;
use axum::serve::IncomingStream;
use config::LogFilter;
use serde::{Deserialize, Serialize};
use tokio::net::{UnixListener, UnixStream, unix};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use vfs::accounts::Directory;

use crate::admin::logins::{Logins, TOKEN_LIFE};
use crate::admin::snapshot::SharedSource;
use crate::changes::Changes;
use crate::servers::Servers;
use crate::trail::{self, By};
use crate::wastebasket::{Act, Answer, Refused, Request, perform};
use ending::{Client, Disconnected, What};
use files::HeldFiles;
pub use orders::{Drained, Order};
pub(crate) use orders::{NotDone, Orders};

/// Largest order, in bytes: log levels, or the path of a file and the name of its share.
const ORDER_MAX: usize = 8192;

/// Returns the path of the socket.
pub fn path(state: &Path) -> PathBuf {
    state.join("control")
}

/// Everything that the routes of the socket need.
#[derive(Clone)]
pub(crate) struct Desk {
    /// Source of the daemon's status.
    pub(crate) source: SharedSource,
    /// The servers, for work that the main loop does not wait for.
    pub(crate) servers: Arc<Servers>,
    /// Queue to the main loop.
    pub(crate) orders: Orders,
    /// Sessions of the status page.
    pub(crate) logins: Arc<Logins>,
    /// Address of the status page, if it is served.
    pub(crate) page: Option<SocketAddr>,
}

/// The socket, which is open until this is dropped, if it could be created.
#[derive(Debug)]
pub struct Control(Option<(PathBuf, JoinHandle<()>)>);

impl Control {
    /// Listens in this state folder, whose lock this process holds: an existing socket was left by an earlier run.
    pub(crate) fn open(folder: Option<&Path>, desk: Desk) -> Self {
        Self(folder.map(path).and_then(|path| match listen(&path) {
            Ok(listener) => Some((path, tokio::spawn(serve(listener, desk)))),
            Err(error) => {
                tracing::warn!(
                    path = %path.display(), %error,
                    "no control socket: `headgate reload`, `drain` and `log` do not reach this daemon; SIGHUP and SIGTERM do"
                );
                None
            }
        }))
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Some((path, task)) = &self.0 {
            task.abort();
            // If this fails, the next run removes the socket.
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

/// A listener that only accepts connections of this user and the superuser.
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
                    tracing::warn!(
                        uid = peer.uid(),
                        "control request rejected: not from this user or root"
                    )
                }
                Err(error) => {
                    tracing::warn!(%error, "control request rejected: peer credentials unavailable")
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<unix::SocketAddr> {
        self.listener.local_addr()
    }
}

async fn serve(listener: UnixListener, desk: Desk) {
    let Desk { source, orders, .. } = desk.clone();
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
        .merge(Router::new().route("/status", status).with_state(source))
        .merge(Router::new().route("/wastebasket", post(wastebasket)).with_state(Basket::of(&desk)))
        .merge(Router::new().route("/admin-token", post(admin_token)).with_state(desk));
    // `/proc/self` belongs to the effective user.
    let uid = std::fs::metadata("/proc/self").map_or(0, |m| m.uid());
    let routes = routes.into_make_service_with_connect_info::<Caller>();
    if let Err(error) = axum::serve(Own { listener, uid }, routes).await {
        tracing::error!(%error, "the control socket has failed");
    }
}

/// The user and process at the other end.
#[derive(Clone, Copy, Debug)]
struct Caller(By);

impl Connected<IncomingStream<'_, Own>> for Caller {
    fn connect_info(stream: IncomingStream<'_, Own>) -> Self {
        let way = "control socket";
        // The listener has already refused peers without credentials.
        Self(stream.io().peer_cred().map_or_else(
            |_| By { way, ..By::default() },
            |peer| By { way, uid: Some(peer.uid()), pid: peer.pid() },
        ))
    }
}

/// A token for the status page, as `headgate admin-token` receives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdminToken {
    /// Begins one session.
    pub token: String,
    /// Seconds within which the token must be used.
    pub seconds: u64,
    /// Address of the status page.
    pub page: SocketAddr,
}

async fn reload(
    State(orders): State<Orders>,
    ConnectInfo(Caller(by)): ConnectInfo<Caller>,
) -> Result<Json<Changes>, NotDone> {
    orders.reload(by).await.map(Json)
}

async fn drain(
    State(orders): State<Orders>,
    ConnectInfo(Caller(by)): ConnectInfo<Caller>,
) -> Result<Json<Drained>, NotDone> {
    orders.drain(by).await.map(Json)
}

async fn files(State(orders): State<Orders>) -> Result<Json<HeldFiles>, NotDone> {
    orders.files().await.map(Json)
}

async fn close(
    State(orders): State<Orders>,
    ConnectInfo(Caller(by)): ConnectInfo<Caller>,
    body: Bytes,
) -> Result<Json<HeldFiles>, NotDone> {
    let what: What = String::from_utf8_lossy(&body).parse().map_err(NotDone::wrong)?;
    orders.close(what, by).await.map(Json)
}

async fn disconnect(
    State(orders): State<Orders>,
    ConnectInfo(Caller(by)): ConnectInfo<Caller>,
    body: Bytes,
) -> Result<Json<Disconnected>, NotDone> {
    let client: Client = String::from_utf8_lossy(&body).parse().map_err(NotDone::wrong)?;
    orders.disconnect(client, by).await.map(Json)
}

/// State of the route of wastebaskets.
#[derive(Clone)]
struct Basket {
    servers: Arc<Servers>,
    /// Held by the one request in progress.
    turn: Arc<Semaphore>,
}

impl Basket {
    fn of(desk: &Desk) -> Self {
        Self { servers: desk.servers.clone(), turn: Arc::new(Semaphore::new(1)) }
    }
}

async fn wastebasket(
    State(Basket { servers, turn }): State<Basket>,
    ConnectInfo(Caller(by)): ConnectInfo<Caller>,
    body: Bytes,
) -> Result<Json<Answer>, NotDone> {
    let request: Request = serde_json::from_slice(&body).map_err(NotDone::wrong)?;
    let (act, on) = (request.act, request.on());
    let _turn = turn.acquire_owned().await.map_err(|_| NotDone::Ending)?;
    let book = servers.book.clone();
    let name_of = Arc::new(move |uid| book.user(uid));
    let done = perform(&servers.namespace.shares(), request, name_of).await;
    let done = done.map_err(|why| match why {
        Refused::Wrong(why) => NotDone::wrong(why),
        Refused::Nothing(why) => NotDone::Nothing(format!("error: {why}")),
    });
    match act {
        Act::List => {}
        Act::Restore => trail::act("wastebasket-restore", by, &on, &done),
        Act::Empty => trail::act("wastebasket-empty", by, &on, &done),
    }
    done.map(Json)
}

async fn log(
    State(orders): State<Orders>,
    ConnectInfo(Caller(by)): ConnectInfo<Caller>,
    body: Bytes,
) -> Result<StatusCode, NotDone> {
    let filter: LogFilter = String::from_utf8_lossy(&body).parse().map_err(NotDone::wrong)?;
    orders.log(filter, by).await.map(|()| StatusCode::NO_CONTENT)
}

async fn admin_token(
    State(desk): State<Desk>,
    ConnectInfo(Caller(by)): ConnectInfo<Caller>,
) -> Result<Json<AdminToken>, NotDone> {
    let By { uid, pid, .. } = by;
    let Some(page) = desk.page else {
        let why =
            "error: there is no status page: `admin` is off, or its address was taken at the start";
        return Err(NotDone::Failed(why.into()));
    };
    let token = desk.logins.token(Instant::now());
    trail::act("admin-token", by, "", &token.as_ref().map(drop));
    let token = token.map_err(|why| NotDone::Failed(format!("error: {why}")))?.as_str().to_owned();
    tracing::warn!(uid, pid, "an administrator has requested a token for the status page");
    Ok(Json(AdminToken { token, seconds: TOKEN_LIFE.as_secs(), page }))
}
