//! Actions of an administrator on the status page: close a file, disconnect a client, add a user, add a share.
//!
//! *Operation.* Each action is one POST, which is carried out like an order over the control socket ([`Orders`]) or like the
//! command `headgate user add`. It must meet all of these conditions; each one has a rule that counts refusals ([`RULES`]):
//!
//! * both ends of the connection are on this host, so that no other host can see or change the traffic (`ssh -L` brings a browser
//!   here);
//! * the browser says that a page of this very address sent the request (`Origin`, `Sec-Fetch-Site`), and its content type is one
//!   that no form sends (JSON);
//! * it carries both secrets of a live session ([`Logins`]) that the same user of this host began. The cookie is `HttpOnly` and
//!   `SameSite=Strict`, and its name contains the port, because cookies apply to all ports of a host.
//!
//! Only a session sees the names of files and users.
//!
//! *Memory.* [`ACTIONS_MAX`] actions at once, of [`BODY_MAX`] bytes each.
//!
//! *Errors.* The response to a refused request says why; the refusal is counted, logged and listed in `headgate status`. An action
//! that takes longer than [`ACTION_LIFE`] continues in the background and is counted as the limit `admin-action`, as is one beyond
//! [`ACTIONS_MAX`].

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Extension, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::post;
use config::{Identity, NewShare, user_name};
use rdma_transport::{count, refused};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::access::Peer;
use super::logins::{Logins, SESSION_LIFE};
use crate::changes::Changes;
use crate::control::ending::Disconnected;
use crate::control::files::HeldFiles;
use crate::control::{NotDone, Orders};
use crate::records::ServiceFiles;
use crate::trail::{self, By};
use crate::user::{self, Done};
use crate::users::UserDb;

/// Actions that run at the same time.
pub const ACTIONS_MAX: usize = 4;
/// Longest time that a request waits for its action.
pub const ACTION_LIFE: Duration = Duration::from_secs(50);
/// Largest request body, in bytes.
const BODY_MAX: usize = 16 << 10;
/// The limit that counts both too many and too slow actions.
const LIMIT: &str = "admin-action";
/// The header with the second secret of a session.
const SESSION: &str = "x-headgate-session";

/// Rules that refuse an action, as named in `headgate_refusals_total`.
pub(super) const RULES: [&str; 4] = ["admin-away", "admin-origin", "admin-token", "admin-session"];

/// Origin of these orders, for the log.
const WAY: &str = "status page";

/// Why an action is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Denied {
    /// The connection is not from this host.
    Away,
    /// The request does not come from a page of this address.
    Origin,
    /// The token is missing, wrong or expired.
    Token,
    /// The request has no live session, or one of another user of this host.
    Session,
}

impl Denied {
    fn rule(self) -> &'static str {
        RULES[self as usize]
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::Away => {
                "open the status page on the gateway's host, at a loopback address, or through `ssh -L 9464:127.0.0.1:9464`"
            }
            Self::Origin => "use the status page itself, at the address that the browser shows",
            Self::Token => {
                "get a new token with `headgate admin-token`; it is valid for ten minutes and one session"
            }
            Self::Session => "log in at the status page with a token of `headgate admin-token`",
        }
    }
}

/// Shared state of all actions.
#[derive(Clone)]
pub struct Actions {
    orders: Orders,
    logins: Arc<Logins>,
    book: Arc<UserDb>,
    /// Path of the user database, if there is one.
    files: Option<ServiceFiles>,
    room: Arc<Semaphore>,
}

impl Actions {
    /// Returns actions that use these orders, and that add users to the database in `files`, if given.
    pub(crate) fn new(
        orders: Orders,
        logins: Arc<Logins>,
        book: Arc<UserDb>,
        files: Option<ServiceFiles>,
    ) -> Self {
        Self { orders, logins, book, files, room: Arc::new(Semaphore::new(ACTIONS_MAX)) }
    }

    /// Returns all routes, each with its checks.
    pub(super) fn routes(self) -> Router {
        let guarded = Router::new()
            .route("/action/look", post(look))
            .route("/action/close", post(close))
            .route("/action/disconnect", post(disconnect))
            .route("/action/user", post(add_user))
            .route("/action/share", post(add_share))
            .route("/logout", post(logout))
            .route_layer(middleware::from_fn_with_state(self.clone(), with_session));
        Router::new()
            .route("/login", post(login))
            .merge(guarded)
            .route_layer(DefaultBodyLimit::max(BODY_MAX))
            .route_layer(middleware::from_fn(by_the_page))
            .with_state(self)
    }

    /// Returns the user of this host that owns the request's session.
    async fn holder(&self, peer: &Peer, headers: &HeaderMap) -> Option<u32> {
        let user = peer.user().await.ok()?;
        let second = text(headers, SESSION)?;
        let name = format!("{}=", cookie_name(headers));
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|c| c.to_str().ok());
        let values =
            cookies.flat_map(|c| c.split(';')).filter_map(|c| c.trim().strip_prefix(&name));
        let now = Instant::now();
        let mut is_held = values.map(|first| self.logins.holds(first, second, user, now));
        is_held.any(|is| is).then_some(user)
    }

    /// Reserves one of [`ACTIONS_MAX`] actions.
    fn room(&self) -> Result<OwnedSemaphorePermit, Failed> {
        place(&self.room)
    }
}

/// Reserves an action, if one is free.
fn place(room: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Failed> {
    room.clone().try_acquire_owned().map_err(|_| {
        count::limit_met(LIMIT);
        let why = "error: too many actions at once; try again";
        Failed(StatusCode::SERVICE_UNAVAILABLE, why.into())
    })
}

/// The response to an action that was not carried out.
struct Failed(StatusCode, String);

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

impl From<NotDone> for Failed {
    fn from(why: NotDone) -> Self {
        let (status, text) = why.told();
        Self(status, text)
    }
}

fn wrong(why: impl std::fmt::Display) -> Failed {
    NotDone::wrong(why).into()
}

/// Waits for an action, at most [`ACTION_LIFE`].
async fn in_time<T>(work: impl Future<Output = Result<T, NotDone>>) -> Result<T, Failed> {
    match tokio::time::timeout(ACTION_LIFE, work).await {
        Ok(done) => Ok(done?),
        Err(_) => {
            count::limit_met(LIMIT);
            let why = format!(
                "error: not done within {ACTION_LIFE:?}; the gateway continues, see the log"
            );
            Err(Failed(StatusCode::GATEWAY_TIMEOUT, why))
        }
    }
}

fn deny(denied: Denied, peer: IpAddr, user: Option<u32>) -> Response {
    let (rule, remedy) = (denied.rule(), denied.remedy());
    let user = user.map(|uid| format!("uid {uid}")).unwrap_or_default();
    let (user, share) = (user.into(), audit::PeerText::default());
    refused::note(refused::Refused { peer, user, share, rule, remedy: remedy.into() });
    (StatusCode::FORBIDDEN, format!("error: refused by the rule `{rule}`: {remedy}"))
        .into_response()
}

fn text(headers: &HeaderMap, name: impl header::AsHeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Names the cookie after the port in the browser's request, which differs from the gateway's port if it is forwarded.
fn cookie_name(headers: &HeaderMap) -> String {
    let host = text(headers, header::HOST).and_then(|h| h.parse::<Uri>().ok());
    let port = host.and_then(|h| h.port_u16()).unwrap_or(80);
    format!("headgate-{port}")
}

/// Returns whether a page of the requested address made this request, and no form did.
fn is_of_the_page(headers: &HeaderMap) -> bool {
    let Some(host) = text(headers, header::HOST) else { return false };
    let has = |name: header::HeaderName, wanted: &str| {
        text(headers, name).is_some_and(|value| value.eq_ignore_ascii_case(wanted))
    };
    let site = headers.get("sec-fetch-site");
    has(header::ORIGIN, &format!("http://{host}"))
        && site.is_none_or(|site| site == "same-origin")
        && has(header::CONTENT_TYPE, "application/json")
}

/// Passes on requests that the page on this host made.
async fn by_the_page(
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    if !peer.is_here() {
        return deny(Denied::Away, peer.from(), None);
    }
    if !is_of_the_page(request.headers()) {
        return deny(Denied::Origin, peer.from(), peer.user().await.ok());
    }
    let mut answer = next.run(request).await;
    answer
        .headers_mut()
        .insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    answer
}

/// Passes on requests of a session, and adds the user that gives the order.
async fn with_session(
    State(actions): State<Actions>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    match actions.holder(&peer, request.headers()).await {
        Some(uid) => {
            let by = By { way: WAY, uid: Some(uid), pid: None };
            request.extensions_mut().insert(by);
            next.run(request).await
        }
        None => deny(Denied::Session, peer.from(), peer.user().await.ok()),
    }
}

fn body<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Failed> {
    serde_json::from_slice(bytes).map_err(|e| wrong(format_args!("the request is malformed: {e}")))
}

#[derive(Deserialize)]
struct Login {
    token: String,
}

/// The session data that the page keeps.
#[derive(Serialize)]
struct LoggedIn {
    session: String,
    seconds: u64,
}

async fn login(
    State(actions): State<Actions>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Response, Failed> {
    let Login { token } = body(&bytes)?;
    let Ok(uid) = peer.user().await else {
        return Ok(deny(Denied::Token, peer.from(), None));
    };
    let begun = actions.logins.begin(token.trim(), uid, Instant::now());
    let Some(begun) = begun.map_err(|e| NotDone::Failed(format!("error: {e}")))? else {
        return Ok(deny(Denied::Token, peer.from(), Some(uid)));
    };
    tracing::warn!(uid, "an administrator has logged in at the status page");
    let by = By { way: WAY, uid: Some(uid), pid: None };
    trail::act("page-login", by, "", &Ok::<_, String>(()));
    let seconds = SESSION_LIFE.as_secs();
    let cookie = format!(
        "{}={}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict",
        cookie_name(&headers),
        begun.cookie.as_str()
    );
    let told = LoggedIn { session: begun.header.as_str().to_owned(), seconds };
    Ok(([(header::SET_COOKIE, cookie)], Json(told)).into_response())
}

async fn logout(State(actions): State<Actions>, headers: HeaderMap) -> StatusCode {
    actions.logins.end(text(&headers, SESSION).unwrap_or_default());
    StatusCode::NO_CONTENT
}

/// Data that only a session may see.
#[derive(Serialize)]
struct Seen {
    #[serde(flatten)]
    held: HeldFiles,
    /// Users that may log on over SMB.
    accounts: Vec<String>,
}

async fn look(State(actions): State<Actions>) -> Result<Json<Seen>, Failed> {
    let _room = actions.room()?;
    let held = in_time(actions.orders.files()).await?;
    Ok(Json(Seen { held, accounts: actions.book.names().into_iter().collect() }))
}

#[derive(Deserialize)]
struct Which {
    what: String,
}

async fn close(
    State(actions): State<Actions>,
    Extension(by): Extension<By>,
    bytes: Bytes,
) -> Result<Json<HeldFiles>, Failed> {
    let what = body::<Which>(&bytes)?.what.parse().map_err(wrong)?;
    let _room = actions.room()?;
    in_time(actions.orders.close(what, by)).await.map(Json)
}

async fn disconnect(
    State(actions): State<Actions>,
    Extension(by): Extension<By>,
    bytes: Bytes,
) -> Result<Json<Disconnected>, Failed> {
    let client = body::<Which>(&bytes)?.what.parse().map_err(wrong)?;
    let _room = actions.room()?;
    in_time(actions.orders.disconnect(client, by)).await.map(Json)
}

#[derive(Deserialize)]
struct NewUser {
    name: String,
    password: String,
    uid: Option<u32>,
}

async fn add_user(
    State(actions): State<Actions>,
    Extension(by): Extension<By>,
    bytes: Bytes,
) -> Result<Json<Done>, Failed> {
    let new: NewUser = body(&bytes)?;
    let password = zeroize::Zeroizing::new(new.password);
    let name = user_name(&new.name).map_err(wrong)?;
    if password.contains(['\n', '\r']) {
        return Err(wrong("a password is one line"));
    }
    let password = tools::password::first_line(password.as_bytes()).map_err(wrong)?;
    user::check_strength(
        (&name, &password),
        actions.book.password_least(),
        "choose a longer one, or use `headgate user add --weak`",
    )
    .map_err(wrong)?;
    let Some(files) = actions.files.clone() else {
        return Err(wrong(
            "the database of users needs a state folder, and this gateway has none; give --state DIR",
        ));
    };
    let room = actions.room()?;
    let identity = Identity { uid: new.uid, ..Identity::default() };
    let added = name.clone();
    let work = tokio::task::spawn_blocking(move || {
        // Held for as long as the thread works, however long the request waits for it.
        let _room = room;
        let done = user::put(&files, &added, &password, identity);
        trail::act("add-user", by, &added, &done);
        done
    });
    let done = in_time(async {
        let done = work.await.unwrap_or_else(|e| Err(e.to_string()));
        done.map_err(|e| NotDone::Failed(format!("error: {e}")))
    });
    let done = done.await?;
    let By { way, uid, .. } = by;
    tracing::warn!(
        by = way,
        uid,
        user = name,
        what = done.what,
        "an administrator has added a user"
    );
    Ok(Json(done))
}

#[derive(Deserialize)]
struct AskedShare {
    name: String,
    path: String,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    clients: Vec<String>,
}

async fn add_share(
    State(actions): State<Actions>,
    Extension(by): Extension<By>,
    bytes: Bytes,
) -> Result<Json<Changes>, Failed> {
    let AskedShare { name, path, read_only, clients } = body(&bytes)?;
    let _room = actions.room()?;
    let new = NewShare { name, path, read_only, clients };
    in_time(actions.orders.add_share(new, by)).await.map(Json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_beyond_the_limit_are_refused() {
        let room = Arc::new(Semaphore::new(ACTIONS_MAX));
        let mut begun: Vec<_> = (0..ACTIONS_MAX).map(|_| place(&room).ok().unwrap()).collect();
        let Err(Failed(status, _)) = place(&room) else { panic!("one more than there may be") };
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(count::limits_met().iter().any(|(limit, n)| *limit == LIMIT && *n > 0));
        begun.pop();
        assert!(place(&room).is_ok(), "one has ended");
    }
}
