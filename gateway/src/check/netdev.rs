//! Addresses of this host and their network devices, from `/proc` and `/sys`.

use std::fs;
use std::net::IpAddr;

use crate::networks;

/// An address that clients can reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) ip: IpAddr,
    /// The network device, if known.
    pub(crate) device: Option<String>,
}

/// Properties of a network device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) mtu: Option<u32>,
    /// Speed in Mbit/s, if the device reports it.
    pub(crate) speed: Option<u32>,
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns all addresses except link-local ones, which clients cannot write in a mount command.
pub(crate) fn addresses() -> Vec<Address> {
    let mut all = v4(&read("/proc/self/net/fib_trie"), &read("/proc/self/net/route"));
    all.extend(v6(&read("/proc/self/net/if_inet6")));
    // Loopback last: only this host can reach it.
    all.sort_by_key(|a| a.ip.is_loopback());
    all
}

/// Returns the IPv4 addresses, with the devices of their networks.
fn v4(fib_trie: &str, route: &str) -> Vec<Address> {
    let device_of = |ip: IpAddr| match ip.is_loopback() {
        true => Some("lo".to_owned()),
        false => networks::routes(route)
            .filter(|on| on.network.contains(ip))
            .max_by_key(|on| on.network.bits)
            .map(|on| on.device.to_owned()),
    };
    // A local route to a whole network is not an address to mount from.
    let single = networks::local4(fib_trie).into_iter().filter(|own| own.bits == 32);
    single.map(|own| Address { ip: own.addr, device: device_of(own.addr) }).collect()
}

/// Returns the IPv6 addresses with their devices.
fn v6(if_inet6: &str) -> Vec<Address> {
    let is_near = |ip: IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    networks::addresses6(if_inet6)
        .filter(|on| !is_near(on.network.addr))
        .map(|on| Address { ip: on.network.addr, device: Some(on.device.to_owned()) })
        .collect()
}

/// Reads the properties of a device from `/sys`.
pub(crate) fn device(name: &str) -> Device {
    let number =
        |file: &str| read(&format!("/sys/class/net/{name}/{file}")).trim().parse::<i64>().ok();
    let sensible = |n: i64| u32::try_from(n).ok().filter(|n| *n > 0);
    Device {
        mtu: number("mtu").and_then(sensible),
        // Virtual devices report -1 or cannot be read.
        speed: number("speed").and_then(sensible),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn addresses_of_version_4() {
        let text = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     |-- 127.0.0.1\n        \
            /32 host LOCAL\n     |-- 192.0.2.2\n        /32 host LOCAL\n     |-- 192.0.2.255\n        /32 link BROADCAST\n\
            Local:\n     |-- 192.0.2.2\n        /32 host LOCAL\n";
        let expected: Vec<Ipv4Addr> = vec![[127, 0, 0, 1].into(), [192, 0, 2, 2].into()];
        let found = v4(text, "");
        assert_eq!(found.iter().map(|a| a.ip).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn addresses_of_version_6() {
        let text = "fd000000000000000000000000000002 04 40 00 82     eth0\n\
            fe8000000000000000fc00fffe000001 04 40 20 80     eth0\nbroken\n";
        let eth0 = Some("eth0".to_owned());
        assert_eq!(v6(text), [Address { ip: "fd00::2".parse().unwrap(), device: eth0 }]);
    }

    #[test]
    fn an_address_is_on_the_device_of_the_narrowest_network() {
        if cfg!(target_endian = "big") {
            return;
        }
        let own = "Local:\n  |-- 10.0.0.0\n  /16 host LOCAL\n  |-- 10.1.0.7\n  /32 host LOCAL\n";
        let routes = "head\nwide 0000000A 00000000 1 0 0 0 000000FF 0\nnear 0000010A 00000000 1 0 0 0 0000FFFF 0\n";
        let near = Some("near".to_owned());
        assert_eq!(v4(own, routes), [Address { ip: "10.1.0.7".parse().unwrap(), device: near }]);
    }

    #[test]
    fn this_host_has_a_loopback_address() {
        assert!(addresses().iter().any(|a| a.ip.is_loopback()));
        assert!(device("lo").mtu.is_some());
        assert_eq!(device("no-such-device"), Device::default());
    }
}
