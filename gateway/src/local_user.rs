//! Finds the local user at the other end of a TCP connection.
//!
//! *Operation.* The user is the owner of the peer's socket in the kernel's table of TCP connections (`/proc/net/tcp`,
//! proc_net_tcp(5)). The row must have both addresses of the connection and be established: a socket that its process has
//! closed appears as root's.
//!
//! *Memory.* Reads the table line by line, at most [`READINGS_MAX`] times at once for each purpose. [`IWARP`], [`ADDRESSES`]
//! and [`ADMIN`] have separate limits, so many connections of one kind cannot delay the others.
//!
//! *Errors.* A caller that waits longer than [`TURN_WAIT`] gets an error, counted as the limit that the purpose names.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use rdma_transport::count;
use tokio::sync::Semaphore;

/// Concurrent readings of the kernel's tables for one purpose; further ones wait.
const READINGS_MAX: usize = 2;
/// Longest wait for a reading.
const TURN_WAIT: Duration = Duration::from_secs(5);
/// The kernel's tables of TCP connections, IPv4 and IPv6.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// The state of an established connection in them.
const ESTABLISHED: &str = "01";

/// Readings for user-space iWARP connections, which any user of this host can make.
pub(crate) static IWARP: Readings = Readings::new("rdma-local-user");
/// Readings of this host's addresses for user-space iWARP connections from any host.
pub(crate) static ADDRESSES: Readings = Readings::new("rdma-own-addresses");
/// Readings for connections to the admin address.
pub(crate) static ADMIN: Readings = Readings::new("admin-local-user");

/// Error: no reading could start within [`TURN_WAIT`]. Has the name of the limit.
#[derive(Debug)]
struct NoTurn(&'static str);

impl fmt::Display for NoTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "too many look-ups of owners of connections (`{}`)", self.0)
    }
}

impl std::error::Error for NoTurn {}

/// Returns the name of the limit that prevented a reading, if the error is [`NoTurn`].
pub(crate) fn no_turn(error: &io::Error) -> Option<&'static str> {
    error.get_ref()?.downcast_ref::<NoTurn>().map(|no_turn| no_turn.0)
}

/// Readings of the kernel's tables for one purpose.
#[derive(Debug)]
pub(crate) struct Readings {
    turns: Semaphore,
    limit: &'static str,
}

impl Readings {
    const fn new(limit: &'static str) -> Self {
        Self { turns: Semaphore::const_new(READINGS_MAX), limit }
    }

    /// Returns the user whose socket on this host is connected from `from` to `to`. The error says why the user is unknown.
    pub(crate) async fn owner(&'static self, from: SocketAddr, to: SocketAddr) -> io::Result<u32> {
        self.read(move || owner(from, to)).await
    }

    /// Takes all permits, so that every other reading must wait.
    #[cfg(test)]
    pub(crate) async fn all_turns(&'static self) -> tokio::sync::SemaphorePermit<'static> {
        self.turns.acquire_many(u32::try_from(READINGS_MAX).unwrap()).await.unwrap()
    }

    /// Waits for a permit and runs `work` on a thread that may block.
    pub(crate) async fn read<T: Send + 'static>(
        &'static self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let Ok(turn) = tokio::time::timeout(TURN_WAIT, self.turns.acquire()).await else {
            count::limit_met(self.limit);
            return Err(io::Error::new(io::ErrorKind::TimedOut, NoTurn(self.limit)));
        };
        let turn = turn.map_err(io::Error::other)?;
        // The permit is held for the whole reading, even if its caller is gone.
        let reading = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        reading.await.map_err(io::Error::other)?
    }
}

/// Returns the owner of the socket on this host that is connected from `from` to `to`.
fn owner(from: SocketAddr, to: SocketAddr) -> io::Result<u32> {
    for table in TABLES {
        let file = match File::open(table) {
            // A host without IPv6 does not have this table.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        if let Some(user) = owner_in(BufReader::new(file), from, to)? {
            return Ok(user);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "the kernel does not list this connection"))
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

/// Returns both ends and the owner of a row, if it is an established connection with a socket (an inode).
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

/// Parses an address of the table: words of hexadecimal digits in the machine's byte order, and a port.
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let to: SocketAddr = "127.0.0.1:9464".parse().unwrap();
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

    #[tokio::test(start_paused = true)]
    async fn readings_for_one_purpose_take_no_turns_of_another() {
        static CROWDED: Readings = Readings::new("crowded");
        static OTHER: Readings = Readings::new("other");
        let held = CROWDED.turns.acquire_many(u32::try_from(READINGS_MAX).unwrap()).await.unwrap();
        let began = tokio::time::Instant::now();
        let refused = CROWDED.read(|| Ok(())).await.unwrap_err();
        assert_eq!((refused.kind(), began.elapsed()), (io::ErrorKind::TimedOut, TURN_WAIT));
        let met = count::limits_met();
        let of = |limit| met.iter().find(|(name, _)| *name == limit).map_or(0, |(_, n)| *n);
        assert_eq!((of("crowded"), of("other")), (1, 0));
        OTHER.read(|| Ok(())).await.unwrap();
        drop(held);
        CROWDED.read(|| Ok(())).await.unwrap();
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
