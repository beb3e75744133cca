//! The certificate of the gateway, for NFS over TLS (RFC 9289) and for the admin address.
//!
//! *Operation.* [`Certificate::load`] reads the files at the start and at each reload; [`Tls`] gives the current one to each
//! new connection. Existing TLS connections keep theirs.
//!
//! *Errors.* One line for the administrator, with the file and the remedy.

use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use config::in_time;
use mutex::{reading, writing};
use rustls::server::{NoServerSessionStorage, WantsServerCert, WebPkiClientVerifier};
use rustls::{ConfigBuilder, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::admin::logins::Secret;
use crate::trust::check_secret;

/// ALPN name of RPC over TLS (RFC 9289 section 8.2). Clients may omit it.
const ALPN: &[u8] = b"sunrpc";
/// ALPN name of the admin address (RFC 7301 section 6).
const HTTP: &[u8] = b"http/1.1";
/// Minimum length of a token in characters.
const TOKEN_CHARS_MIN: usize = 16;
/// `check` and `status` report a certificate that ends within this time.
pub const EXPIRES_SOON: Duration = Duration::from_secs(30 * 24 * 3600);

/// A certificate with its key, and the authorities whose clients it admits.
#[derive(Clone, Debug)]
pub struct Certificate {
    server: Arc<ServerConfig>,
    admin: Option<AdminTls>,
    /// Server names in the certificate, under which clients can reach it.
    pub names: Vec<String>,
    /// Start of its validity.
    pub begins: SystemTime,
    /// End of its validity.
    pub ends: SystemTime,
}

/// TLS of the admin address for readers on other hosts.
#[derive(Clone, Debug)]
pub(crate) struct AdminTls {
    pub(crate) server: Arc<ServerConfig>,
    /// Token that a reader without a certificate must send.
    pub(crate) token: Option<Arc<Secret>>,
}

/// The certificate in force.
#[derive(Debug, Default)]
pub struct Tls(RwLock<Option<Certificate>>);

impl Tls {
    /// Sets the certificate for new connections.
    pub fn set(&self, certificate: Option<Certificate>) {
        if certificate.as_ref().is_some_and(|certificate| certificate.ends <= SystemTime::now()) {
            tracing::error!(
                "the TLS certificate has expired, and clients refuse it: replace it, and run `headgate reload`"
            );
        }
        *writing(&self.0) = certificate;
    }

    /// Returns the TLS configuration for a new connection.
    pub fn server(&self) -> Option<Arc<ServerConfig>> {
        let now = reading(&self.0);
        now.as_ref().map(|certificate| certificate.server.clone())
    }

    /// Returns the TLS of the admin address for readers on other hosts; `None` if they need no TLS.
    pub(crate) fn admin(&self) -> Option<AdminTls> {
        let now = reading(&self.0);
        now.as_ref().and_then(|certificate| certificate.admin.clone())
    }

    /// Returns the end of the certificate's validity.
    pub fn ends(&self) -> Option<SystemTime> {
        let now = reading(&self.0);
        now.as_ref().map(|certificate| certificate.ends)
    }
}

impl Certificate {
    /// Returns the whole days until it ends.
    pub fn days_left(&self) -> u64 {
        let left = self.ends.duration_since(SystemTime::now()).unwrap_or_default();
        left.as_secs() / (24 * 3600)
    }

    /// As [`Certificate::load`], for files on a file system that may not respond.
    ///
    /// # Errors
    ///
    /// As there, or the file system did not respond in time.
    pub fn load_in_time(files: &config::Tls) -> Result<Self, String> {
        let (at, files) = (files.certificate.clone(), files.clone());
        let read = in_time::ask(&at, in_time::LOOK_MAX, move || Self::load(&files));
        read.unwrap_or_else(|_| {
            Err(format!("cannot read {}: its file system does not respond", at.display()))
        })
    }

    /// Reads the files. Blocks.
    ///
    /// # Errors
    ///
    /// A file is unreadable, has no entry of its kind, or can be read by others; or the key belongs to another certificate.
    pub fn load(files: &config::Tls) -> Result<Self, String> {
        let chain = certificates(&files.certificate)?;
        let key = key(&files.key)?;
        let (names, begins, ends) = said(&files.certificate, &chain)?;
        let serve = |ca: Option<&Path>, protocol| {
            let key = key.clone_key();
            let wrong = |e| {
                let (certificate, key) = (files.certificate.display(), files.key.display());
                format!(
                    "the certificate {certificate} and the key {key} do not belong together: {e}"
                )
            };
            let mut server =
                verified_by(ca)?.with_single_cert(chain.clone(), key).map_err(wrong)?;
            server.alpn_protocols = vec![<[u8]>::to_vec(protocol)];
            // A mount keeps its connection, so no client would resume a session with a ticket.
            server.send_tls13_tickets = 0;
            server.session_storage = Arc::new(NoServerSessionStorage {});
            Ok::<_, String>(Arc::new(server))
        };
        let admin = match files.is_for_admin() {
            false => None,
            true => Some(AdminTls {
                server: serve(files.admin_ca.as_deref(), HTTP)?,
                token: files.admin_token.as_deref().map(token).transpose()?,
            }),
        };
        Ok(Self { server: serve(files.ca.as_deref(), ALPN)?, admin, names, begins, ends })
    }
}

/// Returns a builder whose server verifies the certificates that clients present against these authorities.
fn verified_by(ca: Option<&Path>) -> Result<ConfigBuilder<ServerConfig, WantsServerCert>, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| format!("TLS: {e}"))?;
    let Some(ca) = ca else { return Ok(builder.with_no_client_auth()) };
    let mut roots = RootCertStore::empty();
    for root in certificates(ca)? {
        roots.add(root).map_err(|e| format!("{}: {e}", ca.display()))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|e| format!("{}: {e}", ca.display()))?;
    Ok(builder.with_client_cert_verifier(verifier))
}

/// Reads the first line of a file that only the gateway's user can access.
fn token(path: &Path) -> Result<Arc<Secret>, String> {
    check_secret("token", path)?;
    let at = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| format!("{at}: {e}"))?;
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() < TOKEN_CHARS_MIN || !line.chars().all(|c| c.is_ascii_graphic()) {
        return Err(format!(
            "the first line of {at} is not a token: it needs {TOKEN_CHARS_MIN} characters or more, without spaces, like the \
             output of `openssl rand -hex 32`"
        ));
    }
    Ok(Arc::new(Secret::of(line)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let at = path.display();
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let chain: Vec<_> = read.map_err(|e| format!("{at} cannot be read as PEM: {e}"))?;
    if chain.is_empty() {
        return Err(format!("{at} holds no certificate (`-----BEGIN CERTIFICATE-----`)"));
    }
    Ok(chain)
}

/// Reads the private key, which only the gateway's user may access.
fn key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    check_secret("key", path)?;
    PrivateKeyDer::from_pem_file(path)
        .map_err(|e| format!("{} cannot be read as a private key: {e}", path.display()))
}

type Said = (Vec<String>, SystemTime, SystemTime);

/// Returns the names and the validity in the first certificate.
fn said(path: &Path, chain: &[CertificateDer<'_>]) -> Result<Said, String> {
    let wrong = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let first = chain.first().ok_or_else(|| wrong(&"no certificate"))?;
    let (_, parsed) = X509Certificate::from_der(first).map_err(|e| wrong(&e))?;
    let alternative = parsed.subject_alternative_name().map_err(|e| wrong(&e))?;
    let names =
        alternative.map(|names| names.value.general_names.iter().filter_map(name).collect());
    let time = |seconds: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    let validity = parsed.validity();
    let (begins, ends) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    Ok((names.unwrap_or_default(), time(begins), time(ends)))
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(|b| std::net::IpAddr::from(b).to_string());
            let v6 = || <[u8; 16]>::try_from(*bytes).map(|b| std::net::IpAddr::from(b).to_string());
            v4.or_else(|_| v6()).ok()
        }
        _ => None,
    }
}
