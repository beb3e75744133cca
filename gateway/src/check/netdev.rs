//! The addresses of this host and the network devices that they are on, as `/proc` and `/sys` show them.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address that clients can reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) ip: IpAddr,
    /// The network device, where it is known.
    pub(crate) device: Option<String>,
}

/// What is known of a network device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Device {
    /// Largest packet, in bytes.
    pub(crate) mtu: Option<u32>,
    /// Speed in Mbit/s, where the device tells one.
    pub(crate) speed: Option<u32>,
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// All addresses but link-local ones, which clients cannot write in a mount command.
pub(crate) fn addresses() -> Vec<Address> {
    let routes = routes(&read("/proc/self/net/route"));
    let device_of = |ip: Ipv4Addr| match ip.is_loopback() {
        true => Some("lo".to_owned()),
        false => routes
            .iter()
            .filter(|r| ip.to_bits() & r.mask == r.network)
            .max_by_key(|r| r.mask)
            .map(|r| r.device.clone()),
    };
    let v4 = local_v4(&read("/proc/self/net/fib_trie")).into_iter();
    let mut all: Vec<Address> =
        v4.map(|ip| Address { ip: ip.into(), device: device_of(ip) }).collect();
    all.extend(local_v6(&read("/proc/self/net/if_inet6")));
    // Loopback is what only this host reaches: last.
    all.sort_by_key(|a| a.ip.is_loopback());
    all
}

struct Route {
    device: String,
    network: u32,
    mask: u32,
}

/// Directly attached IPv4 networks, of `/proc/net/route`.
fn routes(text: &str) -> Vec<Route> {
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let word = |i: usize| {
            let hex = u32::from_str_radix(fields.get(i)?, 16).ok()?;
            Some(u32::from_be_bytes(hex.to_ne_bytes()))
        };
        let (network, gateway, mask) = (word(1)?, word(2)?, word(7)?);
        let device = (*fields.first()?).to_owned();
        (gateway == 0 && mask != 0).then_some(Route { device, network, mask })
    };
    text.lines().skip(1).filter_map(parse).collect()
}

/// Addresses of this host in `/proc/net/fib_trie`: a leaf `|-- ADDRESS` followed by `/32 host LOCAL`.
fn local_v4(text: &str) -> Vec<Ipv4Addr> {
    let mut found: Vec<Ipv4Addr> = Vec::new();
    let mut leaf = None;
    for line in text.lines().map(str::trim) {
        if let Some(ip) = line.strip_prefix("|-- ") {
            leaf = ip.parse().ok();
        } else if line == "/32 host LOCAL"
            && let Some(ip) = leaf
            && !found.contains(&ip)
        {
            found.push(ip);
        }
    }
    found
}

/// Addresses of `/proc/net/if_inet6`.
fn local_v6(text: &str) -> Vec<Address> {
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let ip = Ipv6Addr::from(u128::from_str_radix(fields.first()?, 16).ok()?);
        let device = (*fields.get(5)?).to_owned();
        (!ip.is_unicast_link_local()).then_some(Address { ip: ip.into(), device: Some(device) })
    };
    text.lines().filter_map(parse).collect()
}

/// What `/sys` tells of a device.
pub(crate) fn device(name: &str) -> Device {
    let number =
        |file: &str| read(&format!("/sys/class/net/{name}/{file}")).trim().parse::<i64>().ok();
    let sensible = |n: i64| u32::try_from(n).ok().filter(|n| *n > 0);
    Device {
        mtu: number("mtu").and_then(sensible),
        // Virtual devices say -1, or fail to be read.
        speed: number("speed").and_then(sensible),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_version_4() {
        let text = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     |-- 127.0.0.1\n        \
            /32 host LOCAL\n     |-- 192.0.2.2\n        /32 host LOCAL\n     |-- 192.0.2.255\n        /32 link BROADCAST\n\
            Local:\n     |-- 192.0.2.2\n        /32 host LOCAL\n";
        let expected: Vec<Ipv4Addr> = vec![[127, 0, 0, 1].into(), [192, 0, 2, 2].into()];
        assert_eq!(local_v4(text), expected);
    }

    #[test]
    fn addresses_of_version_6() {
        let text = "fd000000000000000000000000000002 04 40 00 82     eth0\n\
            fe8000000000000000fc00fffe000001 04 40 20 80     eth0\nbroken\n";
        let eth0 = Some("eth0".to_owned());
        assert_eq!(local_v6(text), [Address { ip: "fd00::2".parse().unwrap(), device: eth0 }]);
    }

    #[test]
    fn this_host_has_a_loopback_address() {
        assert!(addresses().iter().any(|a| a.ip.is_loopback()));
        assert!(device("lo").mtu.is_some());
        assert_eq!(device("no-such-device"), Device::default());
    }
}
