//! Who may read what the admin address tells.
//!
//! *Operation.* This host always, and the ranges of `admin_clients`. Everybody else is told by `/healthz` and `/readyz` that the
//! gateway is there, as the probes of an orchestrator need it, and nothing more.
//!
//! A page of somebody else in a browser on this host must not read it either: a name that resolves to a loopback address makes a
//! browser think that it is of one origin with that page. So a request from this host has to name an address, or `localhost`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use config::Cidr;
use vfs::namespace::Cidr as Range;

/// The two ends of a connection to the admin address.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// The client's.
    pub from: SocketAddr,
    /// This side's.
    pub local: SocketAddr,
}

impl Peer {
    pub(super) fn new(from: SocketAddr, local: SocketAddr) -> Self {
        Self { from, local }
    }
}

/// The rule.
#[derive(Clone, Debug, Default)]
pub struct Access(Arc<[Range]>);

impl Access {
    /// This host and these ranges.
    pub fn new(ranges: &[Cidr]) -> Self {
        Self(ranges.iter().map(|c| Range { addr: c.addr, bits: c.bits }).collect())
    }

    /// A client of this address that asked for this host may read.
    pub fn admits(&self, from: IpAddr, host: Option<&str>) -> bool {
        match from.to_canonical().is_loopback() {
            true => host.is_none_or(names_an_address),
            false => self.0.iter().any(|range| range.contains(from)),
        }
    }
}

/// `Host` is an address or `localhost`, with or without a port.
fn names_an_address(host: &str) -> bool {
    let Ok(uri) = host.parse::<Uri>() else { return false };
    let Some(name) = uri.host() else { return false };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

/// Lets a request through or refuses it.
pub(super) async fn check(
    State(access): State<Access>,
    ConnectInfo(Peer { from, .. }): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let host = request.headers().get(header::HOST).map(|h| h.to_str().unwrap_or(""));
    if access.admits(from.ip(), host) {
        return next.run(request).await;
    }
    tracing::info!(peer = %from, path = request.uri().path(), "the admin address was asked by somebody who may not see it");
    (StatusCode::FORBIDDEN, "this address may not see that: `admin_clients` says who may\n")
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_and_the_ranges_that_were_named_may_read() {
        let access = Access::new(&["192.0.2.0/24".parse().unwrap()]);
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(access.admits(ip("127.0.0.1"), Some("127.0.0.1:9464")));
        assert!(access.admits(ip("::1"), Some("[::1]:9464")));
        assert!(access.admits(ip("::ffff:127.0.0.1"), None));
        assert!(access.admits(ip("192.0.2.9"), Some("gateway.example:9464")));
        assert!(access.admits(ip("::ffff:192.0.2.9"), Some("gateway.example")));
        assert!(!access.admits(ip("198.51.100.1"), Some("127.0.0.1")));
        assert!(!access.admits(ip("2001:db8::1"), None));
        assert!(!Access::default().admits(ip("192.0.2.9"), None));
    }

    #[test]
    fn a_page_of_somebody_else_in_a_browser_here_may_not() {
        let here: IpAddr = [127, 0, 0, 1].into();
        for host in
            ["evil.example:9464", "localhost.evil.example", "", "127.0.0.1.nip.example", "\\"]
        {
            assert!(!Access::default().admits(here, Some(host)), "{host}");
        }
        assert!(Access::default().admits(here, Some("LocalHost:9464")));
    }
}
