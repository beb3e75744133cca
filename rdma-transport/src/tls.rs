//! TLS below RPC (RFC 9289): the offered configuration and the state of a connection.
//!
//! *Operation.* The listener gives each connection the current configuration; the protocol checks [`Tls::is_offered`] when its
//! client requests TLS, and [`Tls::peer`] for the identity that the client proved.
//!
//! *Errors.* A failed handshake ends its connection as a violation. If a certificate is the cause, it is also recorded as a refusal
//! with a remedy.

use std::io;
use std::sync::{Arc, OnceLock};

use rustls::{AlertDescription, CertificateError, Connection, ServerConfig, ServerConnection};

/// The rule that refuses a client with an untrusted certificate, or one that rejects this server's.
pub const CERTIFICATE: &str = "tls-certificate";

/// The remedy if a certificate caused the failure of a handshake; `None` for another cause.
pub(crate) fn remedy(error: &io::Error) -> Option<&'static str> {
    use CertificateError as Of;
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(why) => Some(match why {
            Of::UnknownIssuer | Of::BadSignature => {
                "have an authority in `tls.ca` sign the client's certificate: none of them has"
            }
            Of::Expired | Of::ExpiredContext { .. } => {
                "renew the client's certificate: it has run out"
            }
            Of::NotValidYet | Of::NotValidYetContext { .. } => {
                "synchronize the clocks of client and server: the client's certificate is not valid yet"
            }
            Of::InvalidPurpose | Of::InvalidPurposeContext { .. } => {
                "make the client's certificate for clients (extended key usage clientAuth)"
            }
            _ => "look at the client's certificate: it cannot be used",
        }),
        rustls::Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::UnsupportedCertificate,
        ) => Some(
            "have the client trust who signed `tls.certificate`, and mount by a name in it: it refused the gateway's",
        ),
        _ => None,
    }
}

/// TLS of one connection.
#[derive(Debug, Default)]
pub struct Tls {
    server: OnceLock<Arc<ServerConfig>>,
    peer: OnceLock<Peer>,
}

/// The result of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The cipher suite, by its name in RFC 8446.
    pub suite: String,
    /// The identity of a client with a certificate of a trusted authority: its first DNS name, or `certificate` if it has none.
    pub name: Option<String>,
}

impl Tls {
    /// Offers TLS with this configuration. Called once, when the connection is new.
    pub fn offer(&self, server: Arc<ServerConfig>) {
        // A second call has no effect.
        let _ = self.server.set(server);
    }

    /// True if a client that requests TLS gets it.
    pub fn is_offered(&self) -> bool {
        self.server.get().is_some() && self.peer.get().is_none()
    }

    /// The result of the handshake; `None` without TLS.
    pub fn peer(&self) -> Option<&Peer> {
        self.peer.get()
    }

    pub(crate) fn begin(&self) -> Result<ServerConnection, rustls::Error> {
        let server = self.server.get().ok_or(rustls::Error::HandshakeNotComplete)?;
        ServerConnection::new(server.clone())
    }

    /// Stores the result of the handshake, and returns it as text.
    pub(crate) fn agreed(&self, done: &Connection) -> String {
        let suite = done.negotiated_cipher_suite().and_then(|s| s.suite().as_str());
        let name = done.peer_certificates().and_then(<[_]>::first).map(|certificate| {
            let parsed = webpki::EndEntityCert::try_from(certificate).ok();
            let name = parsed.as_ref().and_then(|c| c.valid_dns_names().next());
            name.unwrap_or("certificate").to_owned()
        });
        let shown = match &name {
            Some(name) => format!("TLS 1.3 ({name})"),
            None => "TLS 1.3".to_owned(),
        };
        let _ = self.peer.set(Peer { suite: suite.unwrap_or_default().to_owned(), name });
        shown
    }
}
