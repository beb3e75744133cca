//! Questions to a server of the directory: connection, TLS, bind and searches.
//!
//! *Operation.* Each question opens a separate connection. Its time limit covers all servers, which are tried one
//! after another, each for its part of the time that is left. The LDAP library reads the messages that [`Guard`] lets pass, over a
//! pair of sockets. A look-up of a server's name that the host's resolver does not end keeps its thread, and no question waits
//! for it.
//!
//! *Memory.* At most [`RESOLVING_MAX`] threads for names of servers.
//!
//! *Errors.* A [`Fault`] for each server.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use config::LdapServer;
use ldap3::{
    Ldap, LdapConnAsync, LdapConnSettings, LdapError, Scope, SearchEntry, SearchOptions, StdStream,
};
use mutex::locked;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::entry::Row;
use super::guard::{Guard, MESSAGE_MAX, Refused};

/// Result codes (RFC 4511 appendix A).
const TIME_LIMIT: u32 = 3;
const SIZE_LIMIT: u32 = 4;
const REFERRAL: u32 = 10;
const ADMIN_LIMIT: u32 = 11;
const NO_SUCH_OBJECT: u32 = 32;
/// Most look-ups of names of servers that have not returned.
const RESOLVING_MAX: usize = 16;
/// Those look-ups.
static RESOLVING: AtomicUsize = AtomicUsize::new(0);
/// The least time for a server.
const SERVER_MIN: Duration = Duration::from_millis(100);

/// Why a server gives no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The server cannot be connected.
    Unreachable(String),
    /// TLS cannot be agreed on, or the certificate is not accepted.
    Tls(String),
    /// The server does not answer in time.
    Late,
    /// The messages of the server are not read further.
    Messages(String),
    /// The password or name of the gateway is refused.
    Bind(String),
    /// The base does not exist, or the gateway may not read it.
    NoBase(String),
    /// The search is refused.
    Search(String),
    /// The search meets a limit of the server, or leads to another one.
    Limit(String),
    /// The search takes the server too long at present: no answer, and nothing about the entries.
    Loaded(String),
    /// The gateway is bound, and the answer to a search is too large.
    TooLarge(String),
    /// The password of the gateway cannot be read.
    Own(String),
}

/// The fault of each server.
pub(super) type Faults = Vec<(LdapServer, Fault)>;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "it cannot be connected: {why}"),
            Self::Tls(why) => write!(f, "TLS fails: {why}"),
            Self::Late => f.write_str("it does not answer in time"),
            Self::Messages(why) => f.write_str(why),
            Self::Bind(why) => write!(f, "it refuses `bind_dn` or its password: {why}"),
            Self::NoBase(why) => write!(f, "it does not show `base`: {why}"),
            Self::Search(why) | Self::Limit(why) | Self::Loaded(why) => {
                write!(f, "it refuses to search: {why}")
            }
            Self::TooLarge(why) => f.write_str(why),
            Self::Own(why) => f.write_str(why),
        }
    }
}

impl Fault {
    /// Returns the fault of a search that each user needs: no other one has an answer either.
    pub(super) fn of_all(self) -> Self {
        match self {
            Self::Loaded(why) => Self::Limit(why),
            fault => fault,
        }
    }

    /// Returns what to do.
    pub(super) fn remedy(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => {
                "see that the host and port in `ldap` are right, and that no firewall is between"
            }
            Self::Tls(_) => {
                "set `ca` to the authorities that signed the certificate, and write the host in `ldap` as the certificate names \
                 it; the server must speak TLS 1.3"
            }
            Self::Late => "look at the load of the server and the network to it",
            Self::Messages(_) => "see that the port in `ldap` is that of an LDAP server",
            Self::Bind(_) => "correct `bind_dn` or the first line of `bind_password_file`",
            Self::NoBase(_) => "correct `base`, or let `bind_dn` read it",
            Self::Search(_) => "see the log of the directory server",
            Self::Limit(_) | Self::Loaded(_) => {
                "let the server search without limits for `bind_dn`, with an index for each attribute, and a `base` below which \
                 it refers to no other server"
            }
            Self::TooLarge(_) => "see which entries below `base` are so large",
            Self::Own(_) => "correct the file, `bind_password_file`",
        }
    }
}

/// Returns the TLS of connections to servers whose certificates these authorities sign; `None`: the authorities of the system.
/// Blocks.
///
/// # Errors
/// One line: the file is unreadable or has no certificate, or the system has no authorities.
pub(super) fn tls(ca: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(ca) => {
            let at = ca.display();
            let read = CertificateDer::pem_file_iter(ca).and_then(Iterator::collect);
            let all: Vec<CertificateDer<'_>> =
                read.map_err(|e| format!("users_from: ca: {at} cannot be read as PEM: {e}"))?;
            for one in all {
                roots.add(one).map_err(|e| format!("users_from: ca: {at}: {e}"))?;
            }
            if roots.is_empty() {
                return Err(format!("users_from: ca: {at} has no certificate"));
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err("users_from: this system has no authorities for certificates; install them (Debian: ca-certificates), \
                            or set `ca`"
                    .into());
            }
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| format!("users_from: TLS: {e}"))?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

/// The parameters of every connection.
#[derive(Clone)]
pub(super) struct Access {
    pub(super) tls: Option<Arc<ClientConfig>>,
    /// Name and password of the gateway; empty: anonymous.
    pub(super) bind: (String, zeroize::Zeroizing<String>),
    pub(super) resolver: Resolver,
}

/// Looks up the addresses of a host with this port. Blocks, perhaps for long.
pub(super) type Resolver = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// Asks the resolver of this host.
pub(super) fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

/// One of [`RESOLVING`].
struct Resolving;

impl Drop for Resolving {
    fn drop(&mut self) {
        RESOLVING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the addresses of a server.
async fn addresses(server: &LdapServer, resolver: Resolver) -> Result<Vec<SocketAddr>, Fault> {
    if let Ok(ip) = server.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, server.port)]);
    }
    let before = RESOLVING.fetch_add(1, Ordering::Relaxed);
    let counted = Resolving;
    if before >= RESOLVING_MAX {
        let why = "this host's resolver of names does not answer earlier look-ups";
        return Err(Fault::Unreachable(why.into()));
    }
    let (host, port) = (server.host.clone(), server.port);
    let asked = tokio::task::spawn_blocking(move || {
        let _counted = counted;
        resolver(&host, port)
    });
    let found = asked.await.map_err(|e| Fault::Unreachable(e.to_string()))?;
    found.map_err(|e| Fault::Unreachable(e.to_string()))
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection on which the gateway is bound.
pub(super) struct Session {
    ldap: Ldap,
    /// Why messages were not read further.
    trouble: Arc<Mutex<Option<Fault>>>,
    began: Instant,
    _tasks: JoinSet<()>,
}

/// Asks the servers, beginning with the one of index `first`, until one answers. Returns the index of that one. Blocks for `limit`.
/// Not for threads of an asynchronous runtime's workers.
///
/// # Errors
/// What the first server said, for each server one line.
pub(super) fn ask<T>(
    (servers, first): (&[LdapServer], usize),
    access: &Access,
    limit: Duration,
    question: impl AsyncFn(&mut Session) -> Result<T, Fault>,
) -> Result<(T, usize), Faults> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(e) => {
            let fault = Fault::Unreachable(e.to_string());
            return Err(servers.iter().map(|server| (server.clone(), fault.clone())).collect());
        }
    };
    let asked = ask_each(&runtime, (servers, first), access, limit, question);
    // Otherwise the end of the runtime waits for the resolver.
    runtime.shutdown_background();
    asked
}

fn ask_each<T>(
    runtime: &runtime::Runtime,
    (servers, first): (&[LdapServer], usize),
    access: &Access,
    limit: Duration,
    question: impl AsyncFn(&mut Session) -> Result<T, Fault>,
) -> Result<(T, usize), Faults> {
    let until = Instant::now() + limit;
    let mut faults = Vec::new();
    for n in 0..servers.len() {
        let index = (first + n) % servers.len();
        let Some(server) = servers.get(index) else { break };
        let others = u32::try_from(servers.len() - n).unwrap_or(1);
        let part = until.saturating_duration_since(Instant::now()) / others;
        let asked = async {
            let asked = async {
                let mut session = Session::begin(server, access).await?;
                let answer = question(&mut session).await;
                answer.map_err(|fault| session.trouble().unwrap_or(fault))
            };
            timeout(part.max(SERVER_MIN), asked).await.unwrap_or(Err(Fault::Late))
        };
        match runtime.block_on(asked) {
            Ok(answer) => return Ok((answer, index)),
            Err(fault) => faults.push((server.clone(), fault)),
        }
    }
    Err(faults)
}

async fn connect(server: &LdapServer, access: &Access) -> Result<Box<dyn Stream>, Fault> {
    let unreachable = |e: io::Error| Fault::Unreachable(e.to_string());
    let found = addresses(server, access.resolver).await?;
    let stream = TcpStream::connect(&found[..]).await.map_err(unreachable)?;
    // Each message is small and waits for its answer.
    stream.set_nodelay(true).map_err(unreachable)?;
    let tls = match (&access.tls, server.tls) {
        (Some(tls), true) => TlsConnector::from(tls.clone()),
        (None, true) => return Err(Fault::Tls("there are no authorities".into())),
        (_, false) => return Ok(Box::new(stream)),
    };
    let name = ServerName::try_from(server.host.clone());
    let name = name.map_err(|_| Fault::Tls(format!("`{}` is no server name", server.host)))?;
    let connected = tls.connect(name, stream).await;
    Ok(Box::new(connected.map_err(|e| Fault::Tls(e.to_string()))?))
}

impl Session {
    async fn begin(server: &LdapServer, access: &Access) -> Result<Self, Fault> {
        let began = Instant::now();
        let stream = connect(server, access).await?;
        let own = |e: io::Error| Fault::Unreachable(e.to_string());
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(own)?;
        ours.set_nonblocking(true).map_err(own)?;
        let ours = UnixStream::from_std(ours).map_err(own)?;
        let settings = LdapConnSettings::new().set_std_stream(StdStream::Unix(theirs));
        let opened = LdapConnAsync::with_settings(settings, "ldapi:///").await;
        let (library, ldap) = opened.map_err(|e| Fault::Unreachable(e.to_string()))?;
        let trouble = Arc::<Mutex<Option<Fault>>>::default();
        let mut tasks = JoinSet::new();
        let (from_server, to_server) = tokio::io::split(stream);
        let (from_library, mut to_library) = tokio::io::split(ours);
        tasks.spawn(forward(from_library, to_server));
        let its = trouble.clone();
        tasks.spawn(async move {
            if let Err(fault) = guard(from_server, &mut to_library).await {
                locked(&its).get_or_insert(fault);
            }
            // The library learns the end of the connection; the other half of the pair stays open.
            let _ = to_library.shutdown().await;
        });
        tasks.spawn(async move { drop(library.drive().await) });
        let mut session = Self { ldap, trouble, began, _tasks: tasks };
        session.bind(access).await.map_err(|fault| session.trouble().unwrap_or(fault))?;
        Ok(session)
    }

    fn trouble(&self) -> Option<Fault> {
        locked(&self.trouble).clone()
    }

    /// Returns the time since the connection was begun.
    pub(super) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns whether the messages of the server are not read further.
    pub(super) fn is_over(&self) -> bool {
        locked(&self.trouble).is_some()
    }

    async fn bind(&mut self, access: &Access) -> Result<(), Fault> {
        let (name, password) = &access.bind;
        let answer = self.ldap.simple_bind(name, password).await.map_err(lost)?;
        match answer.rc {
            0 => Ok(()),
            code => Err(Fault::Bind(said(code, &answer.text))),
        }
    }

    /// Returns the entries that match, at most `most` and one more.
    ///
    /// # Errors
    /// [`Fault::TooLarge`], [`Fault::Limit`] and [`Fault::Loaded`] may be those of this search alone.
    pub(super) async fn search(
        &mut self,
        base: &str,
        scope: Scope,
        filter: &str,
        attributes: &[&str],
        most: usize,
    ) -> Result<Vec<Row>, Fault> {
        // One more tells that there are too many.
        let limit = i32::try_from(most + 1).unwrap_or(i32::MAX);
        self.ldap.with_search_options(SearchOptions::new().sizelimit(limit).timelimit(3));
        let attributes = attributes.to_vec();
        let found = self.ldap.search(base, scope, filter, attributes).await;
        let found = found.map_err(|e| self.trouble().unwrap_or_else(|| lost(e)))?;
        let (entries, result) = (found.0, found.1);
        match result.rc {
            0 => {}
            // The entries up to the limit have arrived.
            SIZE_LIMIT if entries.len() > most => {}
            NO_SUCH_OBJECT => return Err(Fault::NoBase(said(result.rc, &result.text))),
            code @ (TIME_LIMIT | ADMIN_LIMIT) => {
                return Err(Fault::Loaded(said(code, &result.text)));
            }
            code @ (SIZE_LIMIT | REFERRAL) => {
                return Err(Fault::Limit(said(code, &result.text)));
            }
            code => return Err(Fault::Search(said(code, &result.text))),
        }
        Ok(entries.into_iter().map(|entry| row(SearchEntry::construct(entry))).collect())
    }
}

fn row(entry: SearchEntry) -> Row {
    let texts = entry.attrs.into_iter().map(|(name, values)| {
        (name, values.into_iter().map(String::into_bytes).collect::<Vec<_>>())
    });
    let mut row = Row { dn: entry.dn, ..Row::default() };
    // The library sorts values by whether they are text.
    for (name, values) in texts.chain(entry.bin_attrs) {
        row.values.entry(name.to_lowercase()).or_default().extend(values);
    }
    row
}

/// Formats a result. The text is the server's, and may be long.
fn said(code: u32, text: &str) -> String {
    let name = match code {
        3 => "timeLimitExceeded",
        4 => "sizeLimitExceeded",
        10 => "referral",
        11 => "adminLimitExceeded",
        32 => "noSuchObject",
        34 => "invalidDNSyntax",
        49 => "invalidCredentials",
        50 => "insufficientAccessRights",
        53 => "unwillingToPerform",
        _ => "result",
    };
    let text: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
    if text.is_empty() { format!("{name} {code}") } else { format!("{name} {code}, {text}") }
}

fn lost(e: LdapError) -> Fault {
    match e {
        LdapError::FilterParsing => {
            Fault::Search("`filter` is no filter that the library reads".into())
        }
        _ => Fault::Messages("it has closed the connection".into()),
    }
}

async fn forward(mut from: ReadHalf<UnixStream>, mut to: WriteHalf<Box<dyn Stream>>) {
    // The end of either is the end of the session.
    let _ = tokio::io::copy(&mut from, &mut to).await;
    let _ = to.shutdown().await;
}

fn refused(guard: &Guard, why: Refused) -> Fault {
    match why {
        Refused::Refers => Fault::Limit(why.to_string()),
        Refused::TooLarge if guard.is_bound() => Fault::TooLarge(why.to_string()),
        _ => Fault::Messages(why.to_string()),
    }
}

/// Passes the messages of a server on as [`Guard`] says.
async fn guard(
    mut from: ReadHalf<Box<dyn Stream>>,
    to: &mut WriteHalf<UnixStream>,
) -> Result<(), Fault> {
    let (mut guard, mut bytes) = (Guard::default(), Vec::new());
    loop {
        while let Some(length) = guard.message_length(&bytes).map_err(|e| refused(&guard, e))? {
            let Some(message) = bytes.get(..length) else { break };
            let passed = guard.pass(message).map_err(|e| refused(&guard, e))?;
            bytes.drain(..length);
            if let Some(passed) = passed
                && to.write_all(&passed).await.is_err()
            {
                return Ok(());
            }
        }
        let mut some = [0; 4096];
        // A message that is not whole is no longer than its limit.
        debug_assert!(bytes.len() <= MESSAGE_MAX, "lengths are checked");
        match from.read(&mut some).await {
            Ok(0) | Err(_) => return Ok(()),
            Ok(read) => bytes.extend_from_slice(some.get(..read).unwrap_or_default()),
        }
    }
}
