//! Who may come when a share does not say: this host and the networks that it is attached to.

use std::net::IpAddr;
use std::sync::RwLock;

use vfs::namespace::Cidr;

/// What counts as one client where a share of something is given to each: an address, of IPv6 the /64 that a host usually has.
pub fn network_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

/// The directly attached networks, as last told.
#[derive(Debug, Default)]
pub struct Neighbours {
    networks: RwLock<Vec<Cidr>>,
}

impl Neighbours {
    /// These networks.
    pub fn new(networks: Vec<Cidr>) -> Self {
        Self { networks: RwLock::new(networks) }
    }

    /// Replaces them, when interfaces come and go.
    pub fn set(&self, networks: Vec<Cidr>) {
        *self.networks.write().unwrap_or_else(std::sync::PoisonError::into_inner) = networks;
    }

    /// The address is this host's own, or of a network that it is attached to.
    pub fn contains(&self, ip: IpAddr) -> bool {
        ip.is_loopback()
            || self
                .networks
                .read()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .iter()
                .any(|n| n.contains(ip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_counts_by_its_address_or_its_network_of_ipv6() {
        let of = |s: &str| network_of(s.parse().unwrap()).to_string();
        assert_eq!(of("192.0.2.7"), "192.0.2.7");
        assert_eq!(of("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    }

    #[test]
    fn loopback_and_attached_networks_are_neighbours() {
        let n = Neighbours::default();
        let ip = |s: &str| s.parse::<IpAddr>().unwrap();
        assert!(n.contains(ip("127.0.0.1")) && n.contains(ip("::1")));
        assert!(!n.contains(ip("10.77.0.2")));
        n.set(vec![Cidr { addr: ip("10.77.0.1"), bits: 24 }]);
        assert!(n.contains(ip("10.77.0.2")) && !n.contains(ip("10.78.0.2")));
    }
}
