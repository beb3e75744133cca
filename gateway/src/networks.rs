//! Networks that this host is attached to and its own addresses, read from the kernel's tables.
//!
//! *Operation.* A host can gain addresses at any time. For networks, and for checks that are repeated with each call, the
//! tables are read again when the kernel notifies of a change ([`follow`]). A check that holds for the life of a connection
//! reads them again itself ([`is_own_now`]).
//!
//! *Errors.* Clients at an own address have fewer rights. If a table cannot be read, an address that is missing from the
//! tables is therefore not assumed to belong to another host. The log reports the start and the end of this state.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cluster::netlink::Watch;
use mutex::locked;
use nfsrdma::limits::NEIGHBOURS_REFRESH_SECONDS;
use tokio::time::{sleep, timeout};
use vfs::namespace::Cidr;

use crate::local_user;

/// Folder of the kernel's tables.
const TABLES: &str = "/proc/self/net";
/// All addresses, used where the host's own addresses are unknown.
pub const ALL: [Cidr; 2] = [
    Cidr { addr: IpAddr::V4(Ipv4Addr::UNSPECIFIED), bits: 0 },
    Cidr { addr: IpAddr::V6(Ipv6Addr::UNSPECIFIED), bits: 0 },
];

/// Shortest pause between two readings. A slow reading may take a tenth of the time.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSES: u32 = 9;
/// Longest pause between two readings.
const PAUSE_MAX: Duration = Duration::from_secs(NEIGHBOURS_REFRESH_SECONDS);

/// A network, or an address in it, and the device that it is on.
pub(crate) struct On<'a> {
    pub(crate) network: Cidr,
    pub(crate) device: &'a str,
}

/// Calls `read`, which may block: immediately, at each change of which the kernel notifies, and at least every [`PAUSE_MAX`].
/// Never returns.
pub(crate) async fn follow(read: impl Fn() + Clone + Send + 'static) {
    // Started before the first reading, so that no change in between is missed.
    let mut watch = match Watch::start() {
        Ok(watch) => Some(watch),
        Err(error) => {
            not_told(&error);
            None
        }
    };
    loop {
        let (read, began) = (read.clone(), Instant::now());
        // A failure does not affect the next reading.
        let _ = tokio::task::spawn_blocking(read).await;
        sleep(PAUSE_MIN.max(began.elapsed() * PAUSES).min(PAUSE_MAX)).await;
        let Some(told) = &watch else {
            sleep(PAUSE_MAX).await;
            continue;
        };
        if let Ok(Err(error)) = timeout(PAUSE_MAX, told.changed()).await {
            not_told(&error);
            watch = None;
        }
    }
}

fn not_told(error: &io::Error) {
    tracing::warn!(
        %error,
        "the kernel does not report new addresses (rtnetlink): the gateway looks for them every \
         {NEIGHBOURS_REFRESH_SECONDS} s, and NFS \
         clients of a new network are refused until then"
    );
}

/// Returns the networks of all interfaces now. A table that cannot be read counts as empty.
pub fn attached() -> Vec<Cidr> {
    let read = |table| fs::read_to_string(Path::new(TABLES).join(table)).unwrap_or_default();
    let (four, six) = (read("route"), read("if_inet6"));
    let six = addresses6(&six).map(|on| on.network).filter(|network| network.bits > 0);
    routes(&four).map(|on| on.network).chain(six).collect()
}

/// Returns the addresses from which programs of this host can call: those of its interfaces, and those of local routes. The
/// error names the table that cannot be read.
pub fn own() -> io::Result<Vec<Cidr>> {
    static IS_UNKNOWN: AtomicBool = AtomicBool::new(false);
    let own = own_in(Path::new(TABLES));
    match (&own, IS_UNKNOWN.swap(own.is_err(), Ordering::Relaxed)) {
        (Err(error), false) => tracing::error!(
            %error,
            "this host's own addresses cannot be read: those read before stay in force; without any, NFS over TCP needs a port \
             below 1024 from every client, and iWARP from other addresses is not trusted"
        ),
        (Ok(_), true) => tracing::info!("this host's own addresses can be read again"),
        _ => {}
    }
    own
}

fn own_in(tables: &Path) -> io::Result<Vec<Cidr>> {
    let read = |table| {
        let path = tables.join(table);
        fs::read_to_string(&path)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
    };
    // A host without IPv6 does not have the IPv6 tables.
    let read6 = |table| match read(table) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(String::new()),
        other => other,
    };
    let mut out = local4(&read("fib_trie")?);
    out.extend(local6(&read6("ipv6_route")?));
    // Addresses whose duplicate detection is running have no route yet.
    let tried = read6("if_inet6")?;
    out.extend(addresses6(&tried).map(|on| Cidr { bits: 128, ..on.network }));
    Ok(out)
}

/// Returns true if this address is one of the host's own at the time of the call.
pub(crate) async fn is_own_now(ip: IpAddr) -> io::Result<bool> {
    static LATEST: Latest = Latest(Mutex::new(None));
    let asked = Instant::now();
    local_user::ADDRESSES.read(move || LATEST.has(ip, asked, own)).await
}

/// The latest reading and its start time; callers from before that time share it.
struct Latest(Mutex<Option<(Instant, Vec<Cidr>)>>);

impl Latest {
    fn has(
        &self,
        ip: IpAddr,
        asked: Instant,
        read: impl FnOnce() -> io::Result<Vec<Cidr>>,
    ) -> io::Result<bool> {
        let has = |own: &[Cidr]| own.iter().any(|own| own.contains(ip.to_canonical()));
        let mut latest = locked(&self.0);
        if let Some((began, own)) = &*latest
            && *began >= asked
        {
            return Ok(has(own));
        }
        let (began, own) = (Instant::now(), read()?);
        let found = has(&own);
        *latest = Some((began, own));
        Ok(found)
    }
}

/// Returns local IPv4 addresses from the text of `/proc/net/fib_trie`: a leaf `|-- ADDRESS` followed by `/BITS host LOCAL`.
pub(crate) fn local4(text: &str) -> Vec<Cidr> {
    let mut found: Vec<Cidr> = Vec::new();
    let mut leaf: Option<Ipv4Addr> = None;
    for line in text.lines().map(str::trim) {
        if let Some(ip) = line.strip_prefix("|-- ") {
            leaf = ip.parse().ok();
        } else if let Some(bits) = line.strip_suffix(" host LOCAL")
            && let Some(addr) = leaf
            && let Some(bits) = bits.strip_prefix('/').and_then(|bits| bits.parse().ok())
        {
            // Each entry occurs twice, in the local table and in the main one.
            let own = Cidr { addr: addr.into(), bits };
            if !found.contains(&own) {
                found.push(own);
            }
        }
    }
    found
}

/// Returns local IPv6 addresses from the text of `/proc/net/ipv6_route`.
fn local6(text: &str) -> Vec<Cidr> {
    /// RTF_LOCAL of linux/ipv6_route.h.
    const LOCAL: u32 = 0x8000_0000;
    let parse = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let addr = u128::from_str_radix(fields.next()?, 16).ok()?;
        let bits = u8::from_str_radix(fields.next()?, 16).ok()?;
        let flags = u32::from_str_radix(fields.nth(6)?, 16).ok()?;
        (flags & LOCAL != 0).then(|| Cidr { addr: IpAddr::V6(Ipv6Addr::from(addr)), bits })
    };
    text.lines().filter_map(parse).collect()
}

/// Returns IPv4 routes without a gateway from the text of `/proc/net/route`, whose numbers are in the machine's byte order.
pub(crate) fn routes(text: &str) -> impl Iterator<Item = On<'_>> {
    let parse = |line| {
        let fields: Vec<&str> = str::split_ascii_whitespace(line).collect();
        let word = |i: usize| {
            let hex = fields.get(i)?;
            u32::from_str_radix(hex, 16).ok().map(u32::to_ne_bytes)
        };
        let (device, network, gateway, mask) = (fields.first()?, word(1)?, word(2)?, word(7)?);
        let bits = u8::try_from(u32::from_be_bytes(mask).count_ones()).ok()?;
        let network = Cidr { addr: IpAddr::V4(Ipv4Addr::from(network)), bits };
        // A default route without a gateway (a tunnel) does not attach the host to a network.
        (gateway == [0; 4] && bits > 0).then_some(On { network, device })
    };
    text.lines().skip(1).filter_map(parse)
}

/// Returns IPv6 addresses with the length of their network's prefix, from the text of `/proc/net/if_inet6`.
pub(crate) fn addresses6(text: &str) -> impl Iterator<Item = On<'_>> {
    let parse = |line| {
        let mut fields = str::split_ascii_whitespace(line);
        let addr = u128::from_str_radix(fields.next()?, 16).ok()?;
        let bits = u8::from_str_radix(fields.nth(1)?, 16).ok()?;
        let network = Cidr { addr: IpAddr::V6(Ipv6Addr::from(addr)), bits };
        Some(On { network, device: fields.nth(2)? })
    };
    text.lines().filter_map(parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_without_a_gateway_are_attached_networks() {
        // The text of a little-endian machine.
        let text = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n\
            eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\n\
            eth0\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\n\
            tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\n\
            tap0\t00004D0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\nbroken\n";
        if cfg!(target_endian = "big") {
            return;
        }
        let networks: Vec<_> = routes(text).map(|on| on.network).collect();
        assert_eq!(networks.len(), 2);
        assert!(networks[0].contains("192.168.0.77".parse().unwrap()));
        assert!(networks[1].contains("10.77.0.2".parse().unwrap()));
        assert!(!networks[1].contains("10.78.0.2".parse().unwrap()));
    }

    #[test]
    fn addresses_of_version_6_bring_their_prefix() {
        let text = "00000000000000000000000000000001 01 80 10 80 lo\n\
            fd000000000000000000000000000005 02 40 00 80 eth0\n";
        let networks: Vec<_> =
            addresses6(text).map(|on| (on.network.addr, on.network.bits)).collect();
        let of = |at: &str, bits| (at.parse::<IpAddr>().unwrap(), bits);
        assert_eq!(networks, [of("::1", 128), of("fd00::5", 64)]);
    }

    #[test]
    fn local_routes_are_this_hosts_own() {
        let text = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n\
            \x20    |-- 10.1.0.0\n        /16 host LOCAL\n     |-- 192.0.2.0\n        /24 link UNICAST\n\
            \x20    |-- 192.0.2.7\n        /32 host LOCAL\n     |-- 192.0.2.255\n        /32 link BROADCAST\n\
            Local:\n     |-- 192.0.2.7\n        /32 host LOCAL\n";
        let own = local4(text);
        assert_eq!(own.len(), 2);
        let is_own = |at: &str| own.iter().any(|own| own.contains(at.parse().unwrap()));
        assert!(is_own("10.1.2.3") && is_own("192.0.2.7"));
        assert!(!is_own("192.0.2.8") && !is_own("192.0.2.255"));
        let text = "20010db8000000000000000000000000 40 00000000000000000000000000000000 00 \
            00000000000000000000000000000000 00000100 00000001 00000000 00000001 eth0\n\
            20010db8000000000000000000000007 80 00000000000000000000000000000000 00 \
            00000000000000000000000000000000 00000000 00000003 00000000 80200001 eth0\nbroken\n";
        let own = local6(text);
        assert_eq!(own, [Cidr { addr: "2001:db8::7".parse().unwrap(), bits: 128 }]);
    }

    #[test]
    fn a_table_that_cannot_be_read_is_not_one_without_addresses() {
        let folder = tempfile::tempdir().unwrap();
        let table = |name: &str| folder.path().join(name);
        let why = own_in(folder.path()).unwrap_err();
        assert!(why.to_string().contains("fib_trie"), "{why}");
        fs::write(table("fib_trie"), "Local:\n |-- 192.0.2.7\n /32 host LOCAL\n").unwrap();
        let found = own_in(folder.path()).unwrap();
        assert_eq!(found, [Cidr { addr: "192.0.2.7".parse().unwrap(), bits: 32 }], "no IPv6");
        fs::create_dir(table("ipv6_route")).unwrap();
        assert!(own_in(folder.path()).is_err());
        for at in ["192.0.2.9", "2001:db8::9"] {
            assert!(ALL.iter().any(|own| own.contains(at.parse().unwrap())), "{at}");
        }
    }

    #[test]
    fn who_asks_is_answered_by_what_was_read_after_that() {
        let latest = Latest(Mutex::new(None));
        let ip: IpAddr = "192.0.2.7".parse().unwrap();
        let (none, this) = (|| Ok(Vec::new()), || Ok(vec![Cidr { addr: ip, bits: 32 }]));
        let fails = || Err(io::Error::from(ErrorKind::PermissionDenied));
        let first = Instant::now();
        assert!(!latest.has(ip, first, none).unwrap());
        assert!(!latest.has(ip, first, fails).unwrap(), "asked before that was read");
        while Instant::now() == first {}
        let later = Instant::now();
        assert!(latest.has(ip, later, fails).is_err());
        assert!(latest.has(ip, later, this).unwrap(), "it has come since");
        assert!(latest.has("::ffff:192.0.2.7".parse().unwrap(), later, fails).unwrap());
    }

    #[test]
    fn loopback_is_seen_as_this_hosts_own() {
        let own = own().unwrap();
        assert!(own.iter().any(|own| own.contains([127, 0, 0, 1].into())), "{own:?}");
    }
}
