//! Clients that may use a share without a list of clients: this host and the networks that it is attached to.

use std::net::IpAddr;
use std::sync::RwLock;

use mutex::{reading, writing};
use vfs::namespace::Cidr;

/// The directly attached networks, as of the last refresh.
#[derive(Debug, Default)]
pub struct LocalSubnets {
    networks: RwLock<Vec<Cidr>>,
}

impl LocalSubnets {
    pub fn new(networks: Vec<Cidr>) -> Self {
        Self { networks: RwLock::new(networks) }
    }

    pub fn networks(&self) -> Vec<Cidr> {
        reading(&self.networks).clone()
    }

    /// Replaces the list, when interfaces appear or disappear.
    pub fn set(&self, networks: Vec<Cidr>) {
        *writing(&self.networks) = networks;
    }

    /// True if the address belongs to this host or to a network that it is attached to.
    pub fn contains(&self, ip: IpAddr) -> bool {
        ip.is_loopback() || reading(&self.networks).iter().any(|n| n.contains(ip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_attached_networks_are_neighbours() {
        let n = LocalSubnets::default();
        let ip = |s: &str| s.parse::<IpAddr>().unwrap();
        assert!(n.contains(ip("127.0.0.1")) && n.contains(ip("::1")));
        assert!(!n.contains(ip("10.77.0.2")));
        n.set(vec![Cidr { addr: ip("10.77.0.1"), bits: 24 }]);
        assert!(n.contains(ip("10.77.0.2")) && !n.contains(ip("10.78.0.2")));
    }
}
