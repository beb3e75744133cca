//! Servers as `SCHEME://HOST[:PORT]`.

use std::fmt;
use std::net::Ipv6Addr;

/// Parses a server: whether the scheme is the first of these two, which uses TLS; the host, an IPv6 address without brackets;
/// and the port, if there is one. Returns `None` for a server of another scheme.
pub(crate) fn parse<'t>(text: &'t str, schemes: [&str; 2]) -> Option<(bool, &'t str, Option<u16>)> {
    /// The longest name of the DNS.
    const HOST_MAX: usize = 255;
    let (scheme, rest) = text.split_once("://")?;
    let at = schemes.iter().position(|it| *it == scheme)?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => {
            host.parse::<Ipv6Addr>().ok()?;
            (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        None => match rest.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        },
    };
    let port = match port {
        Some(port) => Some(port.parse().ok().filter(|port| *port != 0)?),
        None => None,
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
    let is_host = !host.is_empty() && host.len() <= HOST_MAX && host.chars().all(fits);
    is_host.then_some((at == 0, host, port))
}

/// Writes a server so that [`parse`] reads it.
pub(crate) fn write(
    f: &mut fmt::Formatter<'_>,
    scheme: &str,
    host: &str,
    port: u16,
) -> fmt::Result {
    match host.contains(':') {
        true => write!(f, "{scheme}://[{host}]:{port}"),
        false => write!(f, "{scheme}://{host}:{port}"),
    }
}
