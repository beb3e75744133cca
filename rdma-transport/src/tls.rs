//! TLS below RPC (RFC 9289): what a connection could have, and what it has.
//!
//! *Operation.* Who listens gives each connection the configuration of that moment; the protocol asks [`Tls::is_offered`] when its
//! client proposes TLS, and [`Tls::peer`] as who the client proved itself.
//!
//! *Errors.* A handshake that fails ends its connection as a broken rule. Where a certificate is why, that is a refusal as well,
//! with what to change.

use std::io;
use std::sync::{Arc, OnceLock};

use rustls::{AlertDescription, CertificateError, Connection, ServerConfig, ServerConnection};

/// The rule by which a client is refused whose certificate proves nothing, or that takes this server's for none.
pub const CERTIFICATE: &str = "tls-certificate";

/// What to change where a certificate is why a handshake failed; `None`: it failed for another reason.
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

/// What a handshake agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The suite of ciphers, by its name in RFC 8446.
    pub suite: String,
    /// The client proved itself by a certificate that a trusted authority signed: its first DNS name, or `certificate` where it
    /// has none.
    pub name: Option<String>,
}

impl Tls {
    /// The client may have it, by this certificate and these rules. To be said when the connection is new.
    pub fn offer(&self, server: Arc<ServerConfig>) {
        // Said a second time, the first counts.
        let _ = self.server.set(server);
    }

    /// A client that asks for TLS gets it.
    pub fn is_offered(&self) -> bool {
        self.server.get().is_some() && self.peer.get().is_none()
    }

    /// Who the client is; `None`: there is no TLS.
    pub fn peer(&self) -> Option<&Peer> {
        self.peer.get()
    }

    pub(crate) fn begin(&self) -> Result<ServerConnection, rustls::Error> {
        let server = self.server.get().ok_or(rustls::Error::HandshakeNotComplete)?;
        ServerConnection::new(server.clone())
    }

    /// Keeps what was agreed on; as people read it.
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
