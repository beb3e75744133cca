//! Access control of the admin address.
//!
//! *Operation.* On this host, root and the user that the gateway runs as have access; from elsewhere, the ranges of
//! `admin_clients`, which may include loopback to admit all users of this host. `/healthz`, `/livez` and `/readyz` answer any
//! client, because the probes of an orchestrator need them; they only say that the gateway runs, or why it is not ready.
//!
//! If `tls` names authorities or a token for the admin address, clients of other hosts must use TLS and present a certificate of
//! these authorities or the token (RFC 6750 section 2.1); any address may then connect unless `admin_clients` lists some. Loopback
//! connections stay HTTP: no other host can see them.
//!
//! The user at the other end of a loopback connection is the owner of its socket ([`local_user`]).
//!
//! A page of another site in a browser on this host must not gain access either: if its name resolves to a loopback address, the
//! browser treats the gateway as the same origin as that page. Therefore a request from this host must name an address or
//! `localhost` in `Host`.
//!
//! *Errors.* A peer whose user cannot be found is refused. Each refusal is one line in the log.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use audit::PeerText;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use config::Cidr;
use rdma_transport::channel::canonical;
use rdma_transport::refused;
use tokio::sync::OnceCell;

use super::logins::Secret;
use crate::local_user;

/// The two ends of a connection to the admin address.
#[derive(Clone, Debug)]
pub struct Peer {
    from: SocketAddr,
    local: SocketAddr,
    /// The user at the other end, once it is known.
    user: Arc<OnceCell<u32>>,
    /// The TLS state, if the connection uses TLS.
    tls: Option<ByTls>,
}

/// TLS state of a reader on another host.
#[derive(Clone, Debug)]
pub(super) struct ByTls {
    /// The reader presented a certificate that was verified.
    pub(super) has_certificate: bool,
    /// The token that proves access without a certificate.
    pub(super) token: Option<Arc<Secret>>,
}

impl ByTls {
    /// Returns whether the reader proved that it may read.
    fn is_proved(&self, authorization: Option<&str>) -> bool {
        let given = authorization.and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        let is_known = |token: &Arc<Secret>| given.is_some_and(|given| token.is(given));
        self.has_certificate || self.token.as_ref().is_some_and(is_known)
    }
}

/// The rule that refuses readers on other hosts without a token or certificate.
pub(super) const RULE: &str = "admin-proof";
const REMEDY: &str = "send the token of `tls.admin_token` (`Authorization: Bearer ...`), or use a certificate of `tls.admin_ca`";

impl Peer {
    /// Returns a connection from `from` to `local`, without TLS.
    pub(super) fn new(from: SocketAddr, local: SocketAddr) -> Self {
        Self { from: canonical(from), local, user: Arc::default(), tls: None }
    }

    /// Returns the connection with this TLS state.
    pub(super) fn by_tls(self, tls: ByTls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    pub(super) fn from(&self) -> IpAddr {
        self.from.ip()
    }

    /// Returns whether both ends are loopback addresses, so that no other host can see or change the traffic.
    pub(super) fn is_here(&self) -> bool {
        self.from.ip().is_loopback() && self.local.ip().to_canonical().is_loopback()
    }

    /// Returns the user on this host that owns the other end's socket. The error says why the lookup failed.
    pub(super) async fn user(&self) -> io::Result<u32> {
        self.user.get_or_try_init(|| local_user::ADMIN.owner(self.from, self.local)).await.copied()
    }
}

/// Reasons to refuse a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// `admin_clients` does not name the address.
    Address,
    /// The request names a host other than an address or `localhost`.
    Host,
    /// The user on this host has no access.
    User,
    /// The reader sent neither a token nor a certificate.
    Proof,
}

impl Refused {
    fn told(self) -> &'static str {
        match self {
            Self::Address => {
                "this address may not read that; `admin_clients` lists the addresses that may\n"
            }
            Self::Host => "use 127.0.0.1 or localhost as host\n",
            Self::User => {
                "only root and the user that the gateway runs as may read that; `admin_clients: 127.0.0.1` lets every user of \
                 this host\n"
            }
            Self::Proof => {
                "this needs the token of `tls.admin_token`, or a certificate of `tls.admin_ca`\n"
            }
        }
    }
}

/// Addresses and users that have access.
#[derive(Clone, Debug)]
pub struct Access {
    ranges: Arc<[Cidr]>,
    /// The user that the gateway runs as.
    own: u32,
}

impl Access {
    /// Grants access to root and this process's user on this host, and to these ranges.
    pub fn new(ranges: &[Cidr]) -> Self {
        Self { ranges: ranges.into(), own: rustix::process::geteuid().as_raw() }
    }

    async fn admit(
        &self,
        peer: &Peer,
        host: Option<&str>,
        authorization: Option<&str>,
    ) -> Result<(), Refused> {
        let from = peer.from.ip().to_canonical();
        let is_named = self.ranges.iter().any(|range| range.contains(from));
        if let Some(tls) = &peer.tls {
            return match is_named || self.ranges.is_empty() {
                false => Err(Refused::Address),
                true if tls.is_proved(authorization) => Ok(()),
                true => Err(Refused::Proof),
            };
        }
        if !from.is_loopback() {
            return is_named.then_some(()).ok_or(Refused::Address);
        }
        if !host.is_none_or(names_an_address) {
            return Err(Refused::Host);
        }
        if is_named {
            return Ok(());
        }
        match peer.user().await {
            Ok(user) if user == 0 || user == self.own => Ok(()),
            Ok(_) => Err(Refused::User),
            Err(error) => {
                tracing::warn!(peer = %peer.from, %error, "the user of a connection from this host cannot be determined");
                Err(Refused::User)
            }
        }
    }
}

/// Returns whether `Host` is an address or `localhost`, with or without a port.
fn names_an_address(host: &str) -> bool {
    let Ok(uri) = host.parse::<Uri>() else { return false };
    let Some(name) = uri.host() else { return false };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

/// Passes on a request of a reader that has access, and refuses others.
pub(super) async fn check(
    State(access): State<Access>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let said = |name| headers.get(name).map(|value| value.to_str().unwrap_or(""));
    let (host, authorization) = (said(header::HOST), said(header::AUTHORIZATION));
    match access.admit(&peer, host, authorization).await {
        Ok(()) => next.run(request).await,
        Err(Refused::Proof) => {
            let (user, share) = (PeerText::default(), PeerText::default());
            refused::note(refused::Refused {
                peer: peer.from(),
                user,
                share,
                rule: RULE,
                remedy: REMEDY.into(),
            });
            let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
            (StatusCode::UNAUTHORIZED, challenge, Refused::Proof.told()).into_response()
        }
        Err(why) => {
            let path = request.uri().path();
            tracing::info!(peer = %peer.from, path, ?why, "request to the admin address refused");
            (StatusCode::FORBIDDEN, why.told()).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "127.0.0.1:9464";

    /// Checks a request over a connection whose user on this host is already known.
    async fn admits(
        access: &Access,
        from: &str,
        user: u32,
        host: Option<&str>,
    ) -> Result<(), Refused> {
        let from = SocketAddr::new(from.parse().unwrap(), 40_000);
        let peer = Peer::new(from, HERE.parse().unwrap());
        peer.user.set(user).unwrap();
        access.admit(&peer, host, None).await
    }

    #[tokio::test]
    async fn root_the_gateways_user_and_the_ranges_that_were_named_may_read() {
        let access = |ranges: &[&str]| {
            let ranges: Vec<Cidr> = ranges.iter().map(|r| r.parse().unwrap()).collect();
            Access { own: 990, ..Access::new(&ranges) }
        };
        let one = access(&["192.0.2.0/24"]);
        let here = Some("127.0.0.1:9464");
        assert_eq!(admits(&one, "127.0.0.1", 0, here).await, Ok(()));
        assert_eq!(admits(&one, "::1", 990, Some("[::1]:9464")).await, Ok(()));
        assert_eq!(admits(&one, "::ffff:127.0.0.1", 0, None).await, Ok(()));
        assert_eq!(admits(&one, "127.0.0.1", 1000, here).await, Err(Refused::User));
        assert_eq!(admits(&one, "192.0.2.9", 1000, Some("gateway.example:9464")).await, Ok(()));
        assert_eq!(admits(&one, "::ffff:192.0.2.9", 1000, Some("gateway.example")).await, Ok(()));
        assert_eq!(admits(&one, "198.51.100.1", 0, here).await, Err(Refused::Address));
        assert_eq!(admits(&one, "2001:db8::1", 0, None).await, Err(Refused::Address));
        assert_eq!(admits(&access(&[]), "192.0.2.9", 0, None).await, Err(Refused::Address));
        let all_users = access(&["127.0.0.1"]);
        assert_eq!(admits(&all_users, "127.0.0.1", 1000, here).await, Ok(()));
        assert_eq!(
            admits(&all_users, "127.0.0.1", 1000, Some("evil.example")).await,
            Err(Refused::Host)
        );
    }

    #[tokio::test]
    async fn who_comes_by_tls_proves_that_it_may_read() {
        let token = Some(Arc::new(Secret::of("0123456789abcdef")));
        let admits = async |ranges: &[&str], has_certificate: bool, said: Option<&str>| {
            let ranges: Vec<Cidr> = ranges.iter().map(|r| r.parse().unwrap()).collect();
            let from = SocketAddr::new([192, 0, 2, 9].into(), 40_000);
            let peer = Peer::new(from, "192.0.2.1:9464".parse().unwrap());
            let peer = peer.by_tls(ByTls { has_certificate, token: token.clone() });
            Access::new(&ranges).admit(&peer, Some("gw.example:9464"), said).await
        };
        let right = Some("Bearer 0123456789abcdef");
        assert_eq!(admits(&[], false, right).await, Ok(()));
        assert_eq!(admits(&[], false, Some("bearer  0123456789abcdef ")).await, Ok(()));
        assert_eq!(admits(&[], true, None).await, Ok(()));
        for wrong in [
            None,
            Some(""),
            Some("Bearer"),
            Some("Bearer "),
            Some("Bearer 0123456789abcde"),
            Some("Bearer 0123456789abcdef0"),
            Some("Basic 0123456789abcdef"),
            Some("0123456789abcdef"),
        ] {
            assert_eq!(admits(&[], false, wrong).await, Err(Refused::Proof), "{wrong:?}");
        }
        // Listed addresses are required in addition to the proof.
        assert_eq!(admits(&["192.0.2.0/24"], false, right).await, Ok(()));
        assert_eq!(admits(&["192.0.2.0/24"], false, None).await, Err(Refused::Proof));
        assert_eq!(admits(&["198.51.100.0/24"], true, right).await, Err(Refused::Address));
    }

    #[tokio::test]
    async fn a_page_of_another_site_in_a_browser_here_may_not() {
        let access = Access::new(&[]);
        for host in
            ["evil.example:9464", "localhost.evil.example", "", "127.0.0.1.nip.example", "\\"]
        {
            let seen = admits(&access, "127.0.0.1", 0, Some(host)).await;
            assert_eq!(seen, Err(Refused::Host), "{host}");
        }
        assert_eq!(admits(&access, "127.0.0.1", 0, Some("LocalHost:9464")).await, Ok(()));
    }
}
