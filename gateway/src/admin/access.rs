//! Who may read what the admin address tells.
//!
//! *Operation.* On this host root and the user that the gateway runs as; from elsewhere the ranges of `admin_clients`, which may
//! name loopback too, for all users of this host. `/healthz`, `/livez` and `/readyz` tell everybody that the gateway is there, as
//! the probes of an orchestrator need it, or why it is not ready, and nothing more.
//!
//! The user at the other end of a loopback connection is the owner of its socket, as the kernel's table of TCP connections shows it
//! (`/proc/net/tcp`, proc_net_tcp(5)). The row must have both addresses of the connection and be established: a socket that its
//! process has closed shows as root's.
//!
//! A page of another site in a browser on this host must not read it either: a name that resolves to a loopback address makes a
//! browser think that it is of one origin with that page. So a request from this host has to name an address, or `localhost`.
//!
//! *Memory.* The table is read line by line, once for a connection, at most [`LOOKUPS_MAX`] times at once.
//!
//! *Errors.* A peer whose user is not found is refused. Each refusal is one line in the log.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use config::Cidr;
use tokio::sync::{OnceCell, Semaphore};
use vfs::namespace::Cidr as Range;

/// Readings of the kernel's table at once; others wait.
const LOOKUPS_MAX: usize = 2;
/// The kernel's tables of TCP connections, IPv4 and IPv6.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// The state of an established connection in them.
const ESTABLISHED: &str = "01";

static LOOKUPS: Semaphore = Semaphore::const_new(LOOKUPS_MAX);

/// The two ends of a connection to the admin address.
#[derive(Clone, Debug)]
pub struct Peer {
    from: SocketAddr,
    local: SocketAddr,
    /// The user at the other end, once that was asked.
    user: Arc<OnceCell<u32>>,
}

impl Peer {
    /// A connection from `from` to `local`.
    pub(super) fn new(from: SocketAddr, local: SocketAddr) -> Self {
        Self { from, local, user: Arc::default() }
    }

    /// The user whose socket the other end is, which is on this host. The error says why that is not known.
    async fn user(&self) -> io::Result<u32> {
        let look = || async {
            let _turn = LOOKUPS.acquire().await.map_err(io::Error::other)?;
            let (from, local) = (self.from, self.local);
            tokio::task::spawn_blocking(move || owner(from, local))
                .await
                .map_err(io::Error::other)?
        };
        self.user.get_or_try_init(look).await.copied()
    }
}

/// Why somebody may not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// `admin_clients` does not name the address.
    Address,
    /// The request names a host that is no address of this one.
    Host,
    /// The user on this host is another.
    User,
}

impl Refused {
    fn told(self) -> &'static str {
        match self {
            Self::Address => "this address may not see that: `admin_clients` says who may\n",
            Self::Host => "ask for 127.0.0.1 or localhost\n",
            Self::User => {
                "only root and the user that the gateway runs as may see that; `admin_clients: 127.0.0.1` lets every user of \
                 this host\n"
            }
        }
    }
}

/// The rule.
#[derive(Clone, Debug)]
pub struct Access {
    ranges: Arc<[Range]>,
    /// The user that the gateway runs as.
    own: u32,
}

impl Access {
    /// Root and this process's user on this host, and these ranges.
    pub fn new(ranges: &[Cidr]) -> Self {
        let ranges = ranges.iter().map(|c| Range { addr: c.addr, bits: c.bits }).collect();
        Self { ranges, own: rustix::process::geteuid().as_raw() }
    }

    async fn admit(&self, peer: &Peer, host: Option<&str>) -> Result<(), Refused> {
        let from = peer.from.ip().to_canonical();
        let is_named = self.ranges.iter().any(|range| range.contains(from));
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
                tracing::warn!(peer = %peer.from, %error, "the user of a connection from this host is not known");
                Err(Refused::User)
            }
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

/// The owner of the socket on this host that is connected from `from` to `to`.
fn owner(from: SocketAddr, to: SocketAddr) -> io::Result<u32> {
    for table in TABLES {
        let file = match File::open(table) {
            // A host without IPv6 has no table of it.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        if let Some(user) = owner_in(BufReader::new(file), from, to)? {
            return Ok(user);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "the kernel shows no such connection"))
}

fn owner_in(table: impl BufRead, from: SocketAddr, to: SocketAddr) -> io::Result<Option<u32>> {
    let same = |a: SocketAddr, b: SocketAddr| {
        (a.ip().to_canonical(), a.port()) == (b.ip().to_canonical(), b.port())
    };
    for line in table.lines().skip(1) {
        let line = line?;
        let Some((local, remote, user)) = row(&line) else { continue };
        if same(local, from) && same(remote, to) {
            return Ok(Some(user));
        }
    }
    Ok(None)
}

/// Both ends and the owner of a row that shows an established connection with a socket (an inode).
fn row(line: &str) -> Option<(SocketAddr, SocketAddr, u32)> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (end(fields.next()?)?, end(fields.next()?)?);
    if fields.next()? != ESTABLISHED {
        return None;
    }
    let user = fields.nth(3)?.parse().ok()?;
    let inode: u64 = fields.nth(1)?.parse().ok()?;
    (inode != 0).then_some((local, remote, user))
}

/// An address of the table: words of hexadecimal digits in the machine's byte order, and a port.
fn end(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| {
        let hex = ip.get(8 * at..8 * at + 8)?;
        u32::from_str_radix(hex, 16).ok().map(u32::to_ne_bytes)
    };
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(words.as_flattened()).ok()?))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// Lets a request through or refuses it.
pub(super) async fn check(
    State(access): State<Access>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let host = request.headers().get(header::HOST).map(|h| h.to_str().unwrap_or(""));
    match access.admit(&peer, host).await {
        Ok(()) => next.run(request).await,
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

    /// Of a connection from this host, whose user is known to be this one.
    async fn admits(
        access: &Access,
        from: &str,
        user: u32,
        host: Option<&str>,
    ) -> Result<(), Refused> {
        let from = SocketAddr::new(from.parse().unwrap(), 40_000);
        let peer = Peer::new(from, HERE.parse().unwrap());
        peer.user.set(user).unwrap();
        access.admit(&peer, host).await
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

    #[test]
    fn only_the_row_of_the_very_connection_that_is_established_tells_its_owner() {
        if cfg!(target_endian = "big") {
            return;
        }
        let row = |local: &str, remote: &str, state: &str, user: u32, inode: u32| {
            format!(
                "   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000  {user}        0 {inode} 1 0\n"
            )
        };
        let (ours, theirs) = ("0100007F:24F8", "0100007F:9C40");
        let from: SocketAddr = "127.0.0.1:40000".parse().unwrap();
        let to: SocketAddr = HERE.parse().unwrap();
        let seen = |rows: &[String]| {
            owner_in(format!("head\n{}", rows.concat()).as_bytes(), from, to).unwrap()
        };
        assert_eq!(seen(&[row(theirs, ours, "01", 1000, 7)]), Some(1000));
        assert_eq!(seen(&[row(ours, theirs, "01", 0, 7)]), None, "the gateway's own end");
        assert_eq!(seen(&[row(theirs, "0100007F:24F9", "01", 0, 7)]), None, "to another port");
        assert_eq!(seen(&[row(theirs, ours, "06", 0, 0)]), None, "closed: it shows as root's");
        assert_eq!(seen(&[row(theirs, ours, "01", 0, 0)]), None, "without a socket");
        assert_eq!(seen(&["broken\n".into(), "1: x:y 0:0 01\n".into()]), None);
        let mapped = "0000000000000000FFFF00000100007F:";
        let six = row(&format!("{mapped}9C40"), &format!("{mapped}24F8"), "01", 5, 7);
        assert_eq!(seen(&[six]), Some(5), "an IPv6 socket to an IPv4 address");
    }

    #[test]
    fn the_kernel_tells_the_owner_of_a_connection_of_either_family() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = std::net::TcpListener::bind(at) else { continue };
            let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (from, to) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
            assert_eq!(owner(from, to).unwrap(), rustix::process::geteuid().as_raw());
            drop(client);
            assert!(owner(from, to).is_err(), "it is closed");
        }
    }
}
