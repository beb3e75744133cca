//! A client of etcd, version 3.4 or later.
//!
//! *Operation.* etcd serves its API as JSON over HTTP beside gRPC; that needs no compiler of protocol buffers where this is built.
//! One request is one connection: an owner sends one every TTL/3. Endpoints are tried in turn, the one that answered last first.
//!
//! *Memory.* An answer has at most 1 MiB.
//!
//! *Errors.* [`Error`] says which endpoint failed and how. A request whose answer was lost may have been done: the caller looks
//! ([`crate::election`]).

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

const ANSWER_MAX: usize = 1 << 20;

/// Bytes of an answer that is no JSON which are shown.
const REASON_MAX: usize = 120;

/// Tells a member to end what it cannot answer truly: a watch on one that lost the others would be silent, whoever dies.
const HAS_LEADER: &str = "Grpc-Metadata-hasleader";

/// Where a member of etcd answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// By TLS.
    pub tls: bool,
    /// Host name, or address without brackets.
    pub host: String,
    /// Port.
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

/// Why etcd did not do what it was asked.
#[derive(Debug)]
pub enum Error {
    /// No endpoint answered in time; the last one's reason.
    Unreachable(String),
    /// It answered that it will not.
    Refused(String),
    /// It answered what no etcd does.
    Malformed(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "etcd does not answer: {why}"),
            Self::Refused(why) => write!(f, "etcd refuses: {why}"),
            Self::Malformed(what) => write!(f, "etcd's answer has no `{what}`"),
        }
    }
}

impl std::error::Error for Error {}

type Done<T> = Result<T, Error>;

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// The revision of the store when the key was made.
    pub created: u64,
    /// The lease with which it ends; 0: with none.
    pub lease: u64,
}

/// The members of an etcd, and how to talk to them.
pub struct Etcd {
    endpoints: Vec<Endpoint>,
    tls: Option<TlsConnector>,
    user: Option<(String, String)>,
    token: Mutex<Option<String>>,
    patience: Duration,
    best: AtomicUsize,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Etcd {
    /// These members; one has `patience` to answer before the next is asked.
    pub fn new(endpoints: Vec<Endpoint>, patience: Duration) -> Self {
        let (token, best) = (Mutex::default(), AtomicUsize::new(0));
        Self { endpoints, tls: None, user: None, token, patience, best }
    }

    /// With these certificates, for `https`.
    pub fn with_tls(mut self, config: rustls::ClientConfig) -> Self {
        self.tls = Some(Arc::new(config).into());
        self
    }

    /// As this user of etcd.
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

    /// One request to one member; the answer's head has come.
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
        // Ends with the request: nobody else holds the sender.
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

    /// The first answer of a member, whole.
    async fn once(&self, path: &str, body: &Value, token: Option<&str>) -> Done<Value> {
        let mut why = "no endpoint is named".to_owned();
        let first = self.best.load(Ordering::Relaxed);
        for i in 0..self.endpoints.len() {
            let number = (first + i) % self.endpoints.len();
            let at = &self.endpoints[number];
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
                    why = format!("{at}: no answer in {:?}", self.patience);
                    continue;
                }
            };
            let said: Value = serde_json::from_slice(&body).unwrap_or_default();
            if status.is_success() {
                self.best.store(number, Ordering::Relaxed);
                return Ok(said);
            }
            // What is no etcd, or speaks TLS alone, answers with a line of text.
            let text = String::from_utf8_lossy(&body[..body.len().min(REASON_MAX)]);
            let reason = said["message"].as_str().or(said["error"].as_str()).unwrap_or(text.trim());
            // Without a leader, another member may have one.
            if status.is_server_error() {
                why = format!("{at}: {reason}");
                continue;
            }
            return Err(Error::Refused(format!("{reason} ({at}, {status})")));
        }
        Err(Error::Unreachable(why))
    }

    async fn call(&self, path: &str, body: Value) -> Done<Value> {
        let Some((name, password)) = &self.user else { return self.once(path, &body, None).await };
        let mut token = self.token.lock().await.clone();
        // A token ends; the second is new.
        for _ in 0..2 {
            if let Some(token) = &token {
                match self.once(path, &body, Some(token)).await {
                    Err(Error::Refused(why)) if why.contains("token") => {}
                    done => return done,
                }
            }
            let login = json!({"name": name, "password": password});
            let answer = self.once("/v3/auth/authenticate", &login, None).await?;
            token = Some(answer["token"].as_str().ok_or(Error::Malformed("token"))?.to_owned());
            (*self.token.lock().await).clone_from(&token);
        }
        self.once(path, &body, token.as_deref()).await
    }

    /// A new lease that ends `ttl` (whole seconds) after its last renewal; its number.
    pub async fn grant(&self, ttl: Duration) -> Done<u64> {
        let answer =
            self.call("/v3/lease/grant", json!({"TTL": ttl.as_secs().to_string()})).await?;
        number(&answer, "ID")
    }

    /// Renews a lease; false: it has ended.
    pub async fn keep_alive(&self, lease: u64) -> Done<bool> {
        let answer = self.call("/v3/lease/keepalive", json!({"ID": lease.to_string()})).await?;
        Ok(number(&answer["result"], "TTL").is_ok_and(|left| left > 0))
    }

    /// Ends a lease, and the keys that have it.
    pub async fn revoke(&self, lease: u64) -> Done<()> {
        self.call("/v3/lease/revoke", json!({"ID": lease.to_string()})).await.map(drop)
    }

    /// Makes a key that is not there: the revision at which it was made. Where there is one: that, and the revision of the answer.
    pub async fn create(
        &self,
        key: &str,
        value: &[u8],
        lease: u64,
    ) -> Done<Result<u64, (Entry, u64)>> {
        let put =
            json!({"key": coded(key), "value": STANDARD.encode(value), "lease": lease.to_string()});
        let answer = self.call("/v3/kv/txn", transaction(key, 0, &put)).await?;
        let revision = number(&answer["header"], "revision")?;
        if answer["succeeded"].as_bool() == Some(true) {
            return Ok(Ok(revision));
        }
        let other = &answer["responses"][0]["response_range"]["kvs"][0];
        Ok(Err((entry(other)?, revision)))
    }

    /// Sets a key for as long as `owner` has the revision `created`; false: it has not.
    pub async fn put_while(
        &self,
        owner: &str,
        created: u64,
        key: &str,
        value: &[u8],
    ) -> Done<bool> {
        let put = json!({"key": coded(key), "value": STANDARD.encode(value)});
        let answer = self.call("/v3/kv/txn", transaction(owner, created, &put)).await?;
        Ok(answer["succeeded"].as_bool() == Some(true))
    }

    /// Sets a key.
    pub async fn put(&self, key: &str, value: &[u8]) -> Done<()> {
        let body = json!({"key": coded(key), "value": STANDARD.encode(value)});
        self.call("/v3/kv/put", body).await.map(drop)
    }

    /// Removes a key.
    pub async fn delete(&self, key: &str) -> Done<()> {
        self.call("/v3/kv/deleterange", json!({"key": coded(key)})).await.map(drop)
    }

    /// All keys that begin with this, and the revision at which that was so.
    pub async fn below_at(&self, prefix: &str) -> Done<(Vec<Entry>, u64)> {
        let body = json!({"key": coded(prefix), "range_end": coded_end(prefix)});
        let answer = self.call("/v3/kv/range", body).await?;
        Ok((entries(&answer)?, number(&answer["header"], "revision")?))
    }

    /// A key.
    pub async fn get(&self, key: &str) -> Done<Option<Entry>> {
        Ok(self.range(json!({"key": coded(key)})).await?.into_iter().next())
    }

    /// All keys that begin with this.
    pub async fn below(&self, prefix: &str) -> Done<Vec<Entry>> {
        Ok(self.below_at(prefix).await?.0)
    }

    async fn range(&self, body: Value) -> Done<Vec<Entry>> {
        entries(&self.call("/v3/kv/range", body).await?)
    }

    /// Waits until something happens to a key that begins with this after the revision `since`, at most as long as `most`. A member
    /// that ends sooner ends the wait as well: who waits looks again.
    pub async fn wait(&self, prefix: &str, since: u64, most: Duration) -> Done<()> {
        let (key, end) = (coded(prefix), coded_end(prefix));
        let from = since.saturating_add(1).to_string();
        let watch =
            json!({"create_request": {"key": key, "range_end": end, "start_revision": from}});
        let token = self.token.lock().await.clone();
        let number = self.best.load(Ordering::Relaxed);
        let at = self.endpoints.get(number).ok_or(Error::Malformed("endpoint"))?;
        let waited = timeout(most, async {
            let mut answer = self.ask(at, "/v3/watch", &watch, token.as_deref()).await?.into_body();
            let mut line = Vec::new();
            while let Some(frame) = answer.frame().await {
                let frame = frame.map_err(io::Error::other)?;
                line.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                while let Some(end) = line.iter().position(|b| *b == b'\n') {
                    let said: Value = serde_json::from_slice(&line[..end]).unwrap_or_default();
                    let result = &said["result"];
                    if result["events"].is_array() {
                        return Ok(());
                    }
                    // etcd keeps a connection open whose watch it has cancelled.
                    if !said["error"].is_null() || result["canceled"].as_bool() == Some(true) {
                        let reason = result["cancel_reason"].as_str().unwrap_or("");
                        return Err(io::Error::other(format!("it does not watch: {reason}")));
                    }
                    line.drain(..=end);
                }
                if line.len() > ANSWER_MAX {
                    break;
                }
            }
            io::Result::Ok(())
        });
        match waited.await {
            Ok(Err(e)) => Err(Error::Unreachable(format!("{at}: {e}"))),
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }
}

/// The peer took the request and closed the connection, as one that speaks TLS alone does.
fn is_cut_short(e: &io::Error) -> bool {
    let inner = e.get_ref().and_then(|inner| inner.downcast_ref::<hyper::Error>());
    inner.is_some_and(hyper::Error::is_incomplete_message)
}

/// What to do about a connection that failed.
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
        _ if at.tls && e.kind() == io::ErrorKind::UnexpectedEof => {
            "; does that port speak TLS?".into()
        }
        _ => String::new(),
    }
}

/// `put` where the key `of` was made at the revision `created` (0: is not there), and what is there where it was not.
fn transaction(of: &str, created: u64, put: &Value) -> Value {
    let compare = json!({
        "key": coded(of), "target": "CREATE", "result": "EQUAL", "create_revision": created.to_string(),
    });
    json!({
        "compare": [compare],
        "success": [{"requestPut": put}],
        "failure": [{"requestRange": {"key": coded(of)}}],
    })
}

fn coded(key: &str) -> String {
    STANDARD.encode(key)
}

/// What comes after all keys that begin with this.
fn coded_end(prefix: &str) -> String {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    STANDARD.encode(end)
}

/// 64-bit numbers are strings in JSON, for the sake of programs that have no such numbers.
fn number(of: &Value, field: &'static str) -> Done<u64> {
    of[field].as_str().and_then(|n| n.parse().ok()).ok_or(Error::Malformed(field))
}

fn entries(of: &Value) -> Done<Vec<Entry>> {
    match of["kvs"].as_array() {
        Some(list) => list.iter().map(entry).collect(),
        None => Ok(Vec::new()),
    }
}

fn entry(of: &Value) -> Done<Entry> {
    let bytes = |field: &'static str| {
        STANDARD.decode(of[field].as_str().unwrap_or_default()).map_err(|_| Error::Malformed(field))
    };
    Ok(Entry {
        key: String::from_utf8_lossy(&bytes("key")?).into_owned(),
        value: bytes("value")?,
        created: number(of, "create_revision")?,
        lease: number(of, "lease").unwrap_or(0),
    })
}
