//! A client of etcd, version 3.4 or later.
//!
//! *Operation.* Uses etcd's JSON API over HTTP, the alternative to gRPC, so that building needs no protocol buffer compiler. Each
//! request uses a new connection: a node sends one every TTL/3. Endpoints are tried in order, starting with the one that replied
//! last.
//!
//! *Memory.* A reply, and each message of a watch, has at most 1 MiB; long lists are read in pages. [`Pace`] bounds the number of
//! concurrent requests.
//!
//! *Errors.* [`Error`] names the failed endpoint and the error. etcd may have executed a request whose reply was lost, or may
//! execute it later; callers must check ([`crate::election`]).

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

const ANSWER_MAX: usize = 1 << 20;

/// Maximum number of keys in one reply to a range request.
const PAGE: usize = 200;

const NO_ENDPOINT: &str = "no endpoint is named";

/// Maximum length of a non-JSON reply in messages, in bytes.
const REASON_MAX: usize = 120;

/// Tells a member to fail requests while it has no leader: otherwise a watch on an isolated member would stay silent forever.
const HAS_LEADER: &str = "Grpc-Metadata-hasleader";

/// The address of an etcd member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Use TLS.
    pub tls: bool,
    /// Host name, or address without brackets.
    pub host: String,
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}

/// The reason why a request failed.
#[derive(Debug)]
pub enum Error {
    /// No endpoint replied in time; has the error of the last one.
    Unreachable(String),
    /// etcd refused the request.
    Refused(String),
    /// The reply is not valid for etcd.
    Malformed(&'static str),
    /// A watch lost changes: etcd compacted them, restarted its revisions, or sent more than the limit.
    Missed,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "etcd does not answer: {why}"),
            Self::Refused(why) => write!(f, "etcd refuses: {why}"),
            Self::Malformed(what) => write!(f, "etcd's answer has no `{what}`"),
            Self::Missed => write!(f, "etcd no longer has all changes since the last look"),
        }
    }
}

impl std::error::Error for Error {}

type EtcdResult<T> = Result<T, Error>;

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub value: Vec<u8>,
    /// Revision of the store at which the key was created.
    pub created: u64,
    /// Lease with which the key ends; 0: no lease.
    pub lease: u64,
}

/// A change of a key.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Sets the key to this value, without a lease.
    Put(&'a str, &'a [u8]),
    /// Deletes the key.
    Delete(&'a str),
}

/// Limits the concurrent requests of this client, except for leases and releases of services; the limit is lower while etcd is
/// slow.
///
/// After an outage of etcd, the services of all nodes read keys and campaign at once. If requests waited in etcd for
/// longer than their senders do, they would be sent again, renewals would be late, leases would be lost, and all nodes would start
/// over, without end.
struct Pace {
    places: Semaphore,
    most: AtomicUsize,
}

impl Pace {
    const MAX: usize = 16;

    fn new() -> Self {
        Self { places: Semaphore::new(1), most: AtomicUsize::new(1) }
    }

    /// Records the duration of a request.
    fn took(&self, place: SemaphorePermit<'_>, time: Duration, patience: Duration) {
        let change = |to: fn(usize) -> Option<usize>| {
            self.most.fetch_update(Ordering::Relaxed, Ordering::Relaxed, to).is_ok()
        };
        if time > patience / 8 {
            if change(|most| (most > 1).then(|| most - 1)) {
                place.forget();
            }
        } else if time < patience / 20 && change(|most| (most < Self::MAX).then(|| most + 1)) {
            self.places.add_permits(1);
        }
    }
}

/// The members of an etcd and the settings for accessing them.
pub struct Etcd {
    endpoints: Vec<Endpoint>,
    tls: Option<TlsConnector>,
    user: Option<(String, String)>,
    token: Mutex<Option<String>>,
    patience: Duration,
    best: AtomicUsize,
    pace: Pace,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Etcd {
    /// Uses these members; each has `patience` to reply before the next is tried.
    pub fn new(endpoints: Vec<Endpoint>, patience: Duration) -> Self {
        let (token, best) = (Mutex::default(), AtomicUsize::new(0));
        Self { endpoints, tls: None, user: None, token, patience, best, pace: Pace::new() }
    }

    /// Uses these certificates for `https`.
    pub fn with_tls(mut self, config: rustls::ClientConfig) -> Self {
        self.tls = Some(Arc::new(config).into());
        self
    }

    /// Authenticates as this etcd user.
    pub fn with_user(mut self, name: String, password: String) -> Self {
        self.user = Some((name, password));
        self
    }

    async fn stream(&self, at: &Endpoint) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect((at.host.as_str(), at.port)).await?;
        stream.set_nodelay(true)?;
        if !at.tls {
            return Ok(Box::new(stream));
        }
        let tls = self.tls.as_ref().ok_or_else(|| io::Error::other("no certificates are named"))?;
        let name = ServerName::try_from(at.host.clone()).map_err(io::Error::other)?;
        Ok(Box::new(tls.connect(name, stream).await?))
    }

    /// Sends one request to one member; returns when the header of the reply has arrived.
    async fn ask(
        &self,
        at: &Endpoint,
        path: &str,
        body: &Value,
        token: Option<&str>,
    ) -> io::Result<hyper::Response<Incoming>> {
        let stream = self.stream(at).await?;
        let shake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = shake.await.map_err(io::Error::other)?;
        // Ends with the request, because only the request holds the sender.
        tokio::spawn(connection);
        let mut request = Request::post(path)
            .header(HOST, format!("{}:{}", at.host, at.port))
            .header(CONTENT_TYPE, "application/json")
            .header(HAS_LEADER, "true");
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Full::new(Bytes::from(body.to_string())));
        let request = request.map_err(io::Error::other)?;
        sender.send_request(request).await.map_err(io::Error::other)
    }

    /// Iterates over all members, starting with the one that replied last.
    fn in_turn(&self) -> impl Iterator<Item = (usize, &Endpoint)> {
        let first = self.best.load(Ordering::Relaxed);
        let all = self.endpoints.iter().enumerate();
        all.clone().skip(first).chain(all.take(first))
    }

    /// Returns the first complete reply of any member.
    async fn once(&self, path: &str, body: &Value, token: Option<&str>) -> EtcdResult<Value> {
        let mut why = NO_ENDPOINT.to_owned();
        for (number, at) in self.in_turn() {
            let answer = timeout(self.patience, async {
                let answer = self.ask(at, path, body, token).await?;
                let status = answer.status();
                let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
                let body = body.map_err(io::Error::other)?.to_bytes();
                io::Result::Ok((status, body))
            })
            .await;
            let (status, body) = match answer {
                Ok(Ok(answer)) => answer,
                Ok(Err(e)) => {
                    why = format!("{at}: {e}{}", remedy(&e, at));
                    continue;
                }
                Err(_) => {
                    why = self.silent(at);
                    continue;
                }
            };
            let said: Value = serde_json::from_slice(&body).unwrap_or_default();
            let is_of_etcd = [&said, &said["result"]].iter().any(|it| it["header"].is_object());
            if status.is_success() && !is_of_etcd {
                why = format!("{at}: what answers there is no etcd");
                continue;
            }
            if status.is_success() {
                self.best.store(number, Ordering::Relaxed);
                return Ok(said);
            }
            // A server that is not etcd, or accepts only TLS, replies with a line of text.
            let text = String::from_utf8_lossy(&body[..body.len().min(REASON_MAX)]);
            let reason = said["message"].as_str().or(said["error"].as_str()).unwrap_or(text.trim());
            // A member without a leader fails, but another member may have one.
            if status.is_server_error() {
                why = format!("{at}: {reason}");
                continue;
            }
            return Err(Error::Refused(format!("{reason} ({at}, {status})")));
        }
        Err(Error::Unreachable(why))
    }

    fn silent(&self, at: &Endpoint) -> String {
        format!("{at}: no answer in {:?}", self.patience)
    }

    async fn call(&self, path: &str, body: Value) -> EtcdResult<Value> {
        let place = self.pace.places.acquire().await;
        let began = Instant::now();
        let done = self.call_now(path, body).await;
        // The semaphore is never closed.
        if let Ok(place) = place {
            self.pace.took(place, began.elapsed(), self.patience);
        }
        done
    }

    /// Sends a request regardless of the limit.
    async fn call_now(&self, path: &str, body: Value) -> EtcdResult<Value> {
        if self.user.is_none() {
            return self.once(path, &body, None).await;
        }
        let mut token = self.token.lock().await.clone();
        // A token expires; the second one is new.
        for _ in 0..2 {
            if let Some(token) = &token {
                match self.once(path, &body, Some(token)).await {
                    Err(Error::Refused(why)) if is_of_token(&why) => {}
                    done => return done,
                }
            }
            token = self.login().await?;
        }
        self.once(path, &body, token.as_deref()).await
    }

    /// Gets a token for all further requests; `None` without a user.
    async fn login(&self) -> EtcdResult<Option<String>> {
        let Some((name, password)) = &self.user else { return Ok(None) };
        let login = json!({"name": name, "password": password});
        let answer = self.once("/v3/auth/authenticate", &login, None).await?;
        let token = Some(answer["token"].as_str().ok_or(Error::Malformed("token"))?.to_owned());
        (*self.token.lock().await).clone_from(&token);
        Ok(token)
    }

    /// Creates a lease that ends `ttl` (whole seconds) after its last renewal; returns its number.
    pub async fn grant(&self, ttl: Duration) -> EtcdResult<u64> {
        let answer =
            self.call_now("/v3/lease/grant", json!({"TTL": ttl.as_secs().to_string()})).await?;
        number(&answer, "ID")
    }

    /// Renews a lease; returns false if it has ended.
    pub async fn keep_alive(&self, lease: u64) -> EtcdResult<bool> {
        let answer = self.call_now("/v3/lease/keepalive", json!({"ID": lease.to_string()})).await?;
        // The reply for an ended lease has no TTL.
        number(&answer["result"], "ID")?;
        Ok(number(&answer["result"], "TTL").is_ok_and(|left| left > 0))
    }

    /// Ends a lease and deletes its keys.
    pub async fn revoke(&self, lease: u64) -> EtcdResult<()> {
        self.call_now("/v3/lease/revoke", json!({"ID": lease.to_string()})).await.map(drop)
    }

    /// Creates a key with this lease unless it exists. Returns all keys with the prefix `prefix` afterwards, read in the same
    /// transaction.
    pub async fn create(
        &self,
        key: &str,
        value: &[u8],
        lease: u64,
        prefix: &str,
    ) -> EtcdResult<Vec<Entry>> {
        let put = json!({"requestPut": {
            "key": coded(key), "value": STANDARD.encode(value), "lease": lease.to_string(),
        }});
        let look = json!({"requestRange": {"key": coded(prefix), "range_end": coded_end(prefix)}});
        let transaction =
            json!({"compare": [is_made_at(key, 0)], "success": [put, look], "failure": [look]});
        let answer = self.call("/v3/kv/txn", transaction).await?;
        let looked = answer["responses"].as_array().and_then(|all| all.last());
        entries(&looked.ok_or(Error::Malformed("responses"))?["response_range"])
    }

    /// Applies changes in one transaction if the key `owner` was created at the revision `created` (0: if it does not exist);
    /// returns false if nothing was changed.
    pub async fn change_while(
        &self,
        owner: &str,
        created: u64,
        changes: &[Change<'_>],
    ) -> EtcdResult<bool> {
        let answer = self.call("/v3/kv/txn", changed_while(owner, created, changes)).await?;
        Ok(answer["succeeded"].as_bool() == Some(true))
    }

    /// Like [`Etcd::change_while`], regardless of the limit.
    pub(crate) async fn change_now_while(
        &self,
        owner: &str,
        created: u64,
        changes: &[Change<'_>],
    ) -> EtcdResult<bool> {
        let answer = self.call_now("/v3/kv/txn", changed_while(owner, created, changes)).await?;
        Ok(answer["succeeded"].as_bool() == Some(true))
    }

    /// Replaces the value `from` of a key, regardless of the limit; returns false if the key has another value.
    pub(crate) async fn replace(&self, key: &str, from: &[u8], to: &[u8]) -> EtcdResult<bool> {
        let has_it = json!({
            "key": coded(key), "target": "VALUE", "result": "EQUAL", "value": STANDARD.encode(from),
        });
        let body = json!({"compare": [has_it], "success": [Change::Put(key, to).request()]});
        let answer = self.call_now("/v3/kv/txn", body).await?;
        Ok(answer["succeeded"].as_bool() == Some(true))
    }

    /// Sets a key.
    pub async fn put(&self, key: &str, value: &[u8]) -> EtcdResult<()> {
        let body = json!({"key": coded(key), "value": STANDARD.encode(value)});
        self.call("/v3/kv/put", body).await.map(drop)
    }

    /// Deletes a key.
    pub async fn delete(&self, key: &str) -> EtcdResult<()> {
        self.call("/v3/kv/deleterange", json!({"key": coded(key)})).await.map(drop)
    }

    /// Returns all keys with this prefix, and the revision at which they were read.
    pub async fn below_at(&self, prefix: &str) -> EtcdResult<(Vec<Entry>, u64)> {
        let end = coded_end(prefix);
        let (mut from, mut revision, mut found) = (coded(prefix), 0, Vec::new());
        loop {
            let body = json!({
                "key": from, "range_end": end, "limit": PAGE.to_string(), "revision": revision.to_string(),
            });
            let answer = self.call("/v3/kv/range", body).await?;
            if revision == 0 {
                revision = number(&answer["header"], "revision")?;
            }
            found.extend(entries(&answer)?);
            let last = answer["kvs"].as_array().and_then(|page| page.last());
            let Some(last) = last.filter(|_| answer["more"].as_bool() == Some(true)) else {
                return Ok((found, revision));
            };
            // The key immediately after the last one.
            from = STANDARD.encode([bytes(last, "key")?, vec![0]].concat());
        }
    }

    /// Returns a key.
    pub async fn get(&self, key: &str) -> EtcdResult<Option<Entry>> {
        Ok(self.range(json!({"key": coded(key)})).await?.into_iter().next())
    }

    /// Returns all keys with this prefix.
    pub async fn below(&self, prefix: &str) -> EtcdResult<Vec<Entry>> {
        Ok(self.below_at(prefix).await?.0)
    }

    async fn range(&self, body: Value) -> EtcdResult<Vec<Entry>> {
        entries(&self.call("/v3/kv/range", body).await?)
    }

    /// Watches all keys with this prefix from the revision `from`; 0: from now. Returns once the watch is active.
    pub async fn watch(&self, prefix: &str, from: u64) -> EtcdResult<Watch> {
        let create = json!({"create_request": {
            "key": coded(prefix), "range_end": coded_end(prefix), "start_revision": from.to_string(),
        }});
        let mut token = self.token.lock().await.clone();
        if token.is_none() {
            token = self.login().await?;
        }
        // A token may have expired unnoticed, because an idle node otherwise sends only renewals of its lease.
        match self.watch_as(token.as_deref(), &create).await {
            Err(Error::Refused(_)) if self.user.is_some() => {}
            done => return done,
        }
        let token = self.login().await?;
        self.watch_as(token.as_deref(), &create).await
    }

    async fn watch_as(&self, token: Option<&str>, create: &Value) -> EtcdResult<Watch> {
        let mut failed = Error::Unreachable(NO_ENDPOINT.into());
        for (_, at) in self.in_turn() {
            let begin = async {
                let answer = self.ask(at, "/v3/watch", create, token).await;
                let answer = answer.map_err(|e| no_answer(at, &e))?;
                if answer.status() == StatusCode::UNAUTHORIZED {
                    return Err(Error::Refused(format!("{at}: {}", answer.status())));
                }
                if !answer.status().is_success() {
                    return Err(no_answer(at, &answer.status()));
                }
                let answer = answer.into_body();
                let mut watch = Watch { at: at.clone(), answer, bytes: Vec::new(), began: 0 };
                let said = watch.message().await?;
                watch.began = number(&said["header"], "revision")?;
                Ok(watch)
            };
            match timeout(self.patience, begin).await {
                Ok(Ok(watch)) => return Ok(watch),
                Ok(Err(e @ (Error::Missed | Error::Refused(_)))) => return Err(e),
                Ok(Err(e)) => failed = e,
                Err(_) => failed = Error::Unreachable(self.silent(at)),
            }
        }
        Err(failed)
    }
}

/// A watch of keys on one member, which ends it when it has no leader.
#[derive(Debug)]
pub struct Watch {
    at: Endpoint,
    answer: Incoming,
    /// The incomplete next message.
    bytes: Vec<u8>,
    began: u64,
}

/// Changes reported together by a watch.
#[derive(Debug)]
pub struct Changes {
    /// Revision of the last change: all changes up to it were reported.
    pub revision: u64,
    /// Keys that were set or deleted.
    pub keys: Vec<String>,
}

impl Watch {
    /// Returns the revision of the store when the watch began.
    pub fn began(&self) -> u64 {
        self.began
    }

    /// Waits for the next changes.
    pub async fn next(&mut self) -> EtcdResult<Changes> {
        loop {
            let said = self.message().await?;
            let Some(events) = said["events"].as_array() else { continue };
            let mut changes = Changes { revision: 0, keys: Vec::new() };
            for event in events {
                let revision = number(&event["kv"], "mod_revision")?;
                changes.revision = changes.revision.max(revision);
                changes.keys.push(text(&event["kv"], "key")?);
            }
            return Ok(changes);
        }
    }

    /// Returns the next message, a line of JSON.
    async fn message(&mut self) -> EtcdResult<Value> {
        let end = loop {
            if let Some(end) = self.bytes.iter().position(|b| *b == b'\n') {
                break end;
            }
            if self.bytes.len() > ANSWER_MAX {
                return Err(Error::Missed);
            }
            let Some(frame) = self.answer.frame().await else {
                return Err(Error::Unreachable(format!("{}: the watch ended", self.at)));
            };
            let frame = frame.map_err(|e| no_answer(&self.at, &e))?;
            self.bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        };
        let mut said: Value = serde_json::from_slice(&self.bytes[..end]).unwrap_or_default();
        self.bytes.drain(..=end);
        let result = said.get_mut("result").map(Value::take).unwrap_or_default();
        // etcd keeps the connection of a cancelled watch open.
        if said["error"].is_null() && result["canceled"].as_bool() != Some(true) {
            return Ok(result);
        }
        if number(&result, "compact_revision").is_ok_and(|revision| revision > 0) {
            return Err(Error::Missed);
        }
        let reason = result["cancel_reason"].as_str().or(said["error"]["message"].as_str());
        let reason = reason.unwrap_or("it gives no reason");
        let why = format!("{}: it does not watch: {reason}", self.at);
        Err(if is_of_token(reason) { Error::Refused(why) } else { Error::Unreachable(why) })
    }
}

impl Change<'_> {
    fn request(&self) -> Value {
        match self {
            Self::Put(key, value) => {
                json!({"requestPut": {"key": coded(key), "value": STANDARD.encode(value)}})
            }
            Self::Delete(key) => json!({"requestDeleteRange": {"key": coded(key)}}),
        }
    }
}

fn no_answer(at: &Endpoint, e: &dyn fmt::Display) -> Error {
    Error::Unreachable(format!("{at}: {e}"))
}

/// Checks whether the error concerns the token: unknown, or outdated because users or roles changed.
fn is_of_token(reason: &str) -> bool {
    reason.contains("auth token") || reason.contains("revision of auth store is old")
}

/// Checks whether the peer closed the connection after the request, like a server that accepts only TLS.
fn is_cut_short(e: &io::Error) -> bool {
    let inner = e.get_ref().and_then(|inner| inner.downcast_ref::<hyper::Error>());
    inner.is_some_and(hyper::Error::is_incomplete_message)
}

/// Suggests a remedy for a failed connection.
fn remedy(e: &io::Error, at: &Endpoint) -> String {
    let inner = e.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(_)) => format!(
            "; `ca` has to name the authority of etcd's certificate, and that certificate the host {}",
            at.host
        ),
        Some(rustls::Error::AlertReceived(_)) => {
            "; etcd may want `certificate` and `key` of an authority that it trusts".into()
        }
        Some(rustls::Error::InvalidMessage(_)) => "; does that port speak TLS?".into(),
        _ if !at.tls && is_cut_short(e) => "; does that port want `https`?".into(),
        // A server without TLS closes the connection with unread data, which causes a reset.
        _ if at.tls
            && matches!(
                e.kind(),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
            ) =>
        {
            "; does that port speak TLS?".into()
        }
        _ => String::new(),
    }
}

/// Builds the condition that a key was created at this revision; 0: that it does not exist.
fn is_made_at(key: &str, created: u64) -> Value {
    json!({
        "key": coded(key), "target": "CREATE", "result": "EQUAL", "create_revision": created.to_string(),
    })
}

fn changed_while(owner: &str, created: u64, changes: &[Change<'_>]) -> Value {
    let changes: Vec<Value> = changes.iter().map(Change::request).collect();
    json!({"compare": [is_made_at(owner, created)], "success": changes})
}

fn coded(key: &str) -> String {
    STANDARD.encode(key)
}

/// Returns the end of the range of all keys with this prefix.
fn coded_end(prefix: &str) -> String {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    STANDARD.encode(end)
}

/// Parses a 64-bit number, which JSON represents as a string for the sake of programs without such numbers.
fn number(of: &Value, field: &'static str) -> EtcdResult<u64> {
    of[field].as_str().and_then(|n| n.parse().ok()).ok_or(Error::Malformed(field))
}

fn entries(of: &Value) -> EtcdResult<Vec<Entry>> {
    match of["kvs"].as_array() {
        Some(list) => list.iter().map(entry).collect(),
        None => Ok(Vec::new()),
    }
}

fn bytes(of: &Value, field: &'static str) -> EtcdResult<Vec<u8>> {
    STANDARD.decode(of[field].as_str().unwrap_or_default()).map_err(|_| Error::Malformed(field))
}

fn text(of: &Value, field: &'static str) -> EtcdResult<String> {
    Ok(String::from_utf8_lossy(&bytes(of, field)?).into_owned())
}

fn entry(of: &Value) -> EtcdResult<Entry> {
    Ok(Entry {
        key: text(of, "key")?,
        value: bytes(of, "value")?,
        created: number(of, "create_revision")?,
        lease: number(of, "lease").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_adapts_to_etcd_speed() {
        let (pace, patience) = (Pace::new(), Duration::from_secs(1));
        let most = |time: u64, times: usize| {
            for _ in 0..times {
                let place = pace.places.try_acquire().expect("one is always left");
                pace.took(place, Duration::from_millis(time), patience);
            }
            (pace.most.load(Ordering::Relaxed), pace.places.available_permits())
        };
        assert_eq!(most(1, 3), (4, 4));
        assert_eq!(most(100, 100), (4, 4));
        assert_eq!(most(1, 100), (Pace::MAX, Pace::MAX));
        assert_eq!(most(200, 10), (Pace::MAX - 10, Pace::MAX - 10));
        assert_eq!(most(3000, 100), (1, 1));
        assert_eq!(most(1, 1), (2, 2));
    }
}
