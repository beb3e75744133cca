//! The networks that this host is attached to, and what of them is served.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Most links that are announced on. A host of containers has hundreds of virtual devices.
pub const LINKS_MAX: usize = 8;
/// Name of the limit for links.
pub const LINKS: &str = "discovery-links";
/// Most addresses of a link that are announced.
pub const ADDRESSES_MAX: usize = 8;
/// Most shares for backups that macOS is told of.
pub const BACKUPS_MAX: usize = 8;
/// Longest name of such a share, in bytes: all names fit in a message.
const BACKUP_NAME_MAX: usize = 100;

/// An address of this host with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Bits of the prefix.
    pub bits: u8,
}

impl Address {
    /// Returns true if the other address is in the network of this one.
    fn reaches(&self, other: IpAddr) -> bool {
        match (self.ip, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask =
                    u32::MAX.checked_shl(32_u32.saturating_sub(self.bits.into())).unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask =
                    u128::MAX.checked_shl(128_u32.saturating_sub(self.bits.into())).unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            _ => false,
        }
    }
}

/// A network device and its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Name of the device.
    pub name: String,
    /// The kernel's number of the device.
    pub index: u32,
    /// Its addresses, sorted.
    pub addresses: Vec<Address>,
}

impl Link {
    /// Returns true if a packet with this source can come from a host of this link: its address is link-local, or in a network of
    /// one of the link's addresses. A default route of a tunnel, a prefix of no bits, attaches to no network.
    pub fn is_attached(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        if peer.is_unspecified() || peer.is_multicast() || peer.is_loopback() {
            return false;
        }
        let near = matches!(peer, IpAddr::V6(ip) if ip.is_unicast_link_local());
        near && self.addresses.iter().any(|own| own.ip.is_ipv6())
            || self.addresses.iter().any(|own| own.bits > 0 && own.reaches(peer))
    }
}

/// Returns the devices of this host that have addresses, except loopback and point-to-point devices, which have no neighbours.
///
/// # Errors
/// The kernel's list cannot be read.
pub fn read() -> io::Result<Vec<Link>> {
    let mut links: BTreeMap<u32, Link> = BTreeMap::new();
    for found in if_addrs::get_if_addrs()? {
        let (Some(index), false) = (found.index, found.is_loopback() || found.is_p2p()) else {
            continue;
        };
        let bits = match &found.addr {
            if_addrs::IfAddr::V4(four) => four.prefixlen,
            if_addrs::IfAddr::V6(six) => six.prefixlen,
        };
        let new = || Link { name: found.name.clone(), index, addresses: Vec::new() };
        links.entry(index).or_insert_with(new).addresses.push(Address { ip: found.ip(), bits });
    }
    let mut links: Vec<Link> = links.into_values().collect();
    links.iter_mut().for_each(|link| link.addresses.sort());
    Ok(links)
}

/// What macOS is told of the SMB server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Macos {
    /// The model, by which it chooses an icon.
    pub model: String,
    /// The shares to which Time Machine may back up.
    backups: Vec<String>,
}

impl Default for Macos {
    fn default() -> Self {
        Self::new("RackMac", std::iter::empty())
    }
}

impl Macos {
    /// Takes the first [`BACKUPS_MAX`] of these shares. A comma would end a name.
    pub fn new<'a>(model: &str, backups: impl Iterator<Item = &'a str>) -> Self {
        let fits = |name: &&str| name.len() <= BACKUP_NAME_MAX && !name.contains(',');
        let backups = backups.filter(fits).take(BACKUPS_MAX).map(str::to_owned).collect();
        Self { model: model.to_owned(), backups }
    }

    /// Returns the shares for backups.
    pub fn backups(&self) -> &[String] {
        &self.backups
    }
}

/// Addresses at which the gateway listens for each protocol; an unspecified address means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listening {
    /// SMB over TCP.
    pub smb: Vec<SocketAddr>,
    /// NFS over TCP.
    pub nfs: Vec<SocketAddr>,
    /// What macOS is told with SMB.
    pub macos: Macos,
}

/// The services on one link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Addresses at which something is served.
    pub addresses: Vec<IpAddr>,
    /// Port of SMB.
    pub smb: Option<u16>,
    /// Port of NFS.
    pub nfs: Option<u16>,
    /// What macOS is told with SMB.
    pub macos: Macos,
}

impl Offer {
    /// Returns the services on a link. Returns an empty offer if the gateway serves no address of the link, or only link-local
    /// addresses of IPv6, as on virtual devices of containers.
    pub fn of(link: &Link, listening: &Listening) -> Self {
        let port = |list: &[SocketAddr], ip: IpAddr| {
            let covers = |at: &&SocketAddr| {
                at.ip().to_canonical() == ip
                    || at.ip().is_unspecified() && (at.is_ipv6() || ip.is_ipv4())
            };
            list.iter().find(covers).map(SocketAddr::port)
        };
        let mut offer = Self::default();
        for ip in link.addresses.iter().map(|own| own.ip).filter(|ip| !ip.is_loopback()) {
            let (smb, nfs) = (port(&listening.smb, ip), port(&listening.nfs, ip));
            if (smb.is_some() || nfs.is_some()) && offer.addresses.len() < ADDRESSES_MAX {
                offer.addresses.push(ip);
                offer.smb = offer.smb.or(smb);
                offer.nfs = offer.nfs.or(nfs);
            }
        }
        if offer.smb.is_some() {
            offer.macos = listening.macos.clone();
        }
        let near = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        if offer.addresses.iter().all(near) { Self::default() } else { offer }
    }

    /// Returns true if the gateway serves no address of the link.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }
}

/// Returns the links on which something is served, at most [`LINKS_MAX`], and the names of those beyond. The kernel numbers devices
/// in the order in which they came: devices of containers and virtual machines come after those of the host, and are left out.
pub fn served(links: &[Link], listening: &Listening) -> (Vec<(Link, Offer)>, Vec<String>) {
    let offers = links.iter().map(|link| (link.clone(), Offer::of(link, listening)));
    let mut all: Vec<_> = offers.filter(|(_, offer)| !offer.is_empty()).collect();
    all.sort_by_key(|(link, _)| link.index);
    let beyond = all.split_off(all.len().min(LINKS_MAX));
    (all, beyond.into_iter().map(|(link, _)| link.name).collect())
}

/// Returns a line for the links that are left out; `None` if there are none.
pub fn left_out_line(names: &[String]) -> Option<String> {
    const SHOWN: usize = 8;
    let (first, more) = (names.first()?, names.len().saturating_sub(SHOWN));
    let mut list =
        names.iter().take(SHOWN).skip(1).fold(first.clone(), |list, name| list + ", " + name);
    if more > 0 {
        list += &format!(" and {more} more");
    }
    Some(format!(
        "not announced on {list}: the limit is {LINKS_MAX} links, the first by their number; choose addresses with `bind`, or set \
         `discovery: off`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(addresses: &[(&str, u8)]) -> Link {
        let addresses = addresses
            .iter()
            .map(|(ip, bits)| Address { ip: ip.parse().unwrap(), bits: *bits })
            .collect();
        Link { name: "eth0".into(), index: 2, addresses }
    }

    fn at(text: &str) -> Vec<SocketAddr> {
        text.split_whitespace().map(|at| at.parse().unwrap()).collect()
    }

    #[test]
    fn peers_outside_of_the_networks_of_a_link_are_not_attached() {
        let both = link(&[("192.0.2.7", 24), ("2001:db8::7", 64), ("fe80::7", 64)]);
        for near in ["192.0.2.1", "192.0.2.254", "2001:db8::9", "fe80::1", "::ffff:192.0.2.9"] {
            assert!(both.is_attached(near.parse().unwrap()), "{near}");
        }
        for far in [
            "192.0.3.1",
            "10.0.0.1",
            "2001:db8:1::1",
            "0.0.0.0",
            "127.0.0.1",
            "::1",
            "224.0.0.251",
            "::",
        ] {
            assert!(!both.is_attached(far.parse().unwrap()), "{far}");
        }
        assert!(
            !link(&[("192.0.2.7", 24)]).is_attached("fe80::1".parse().unwrap()),
            "no IPv6 here"
        );
        let odd = link(&[("192.0.2.7", 0), ("192.0.2.8", 32), ("2001:db8::7", 0)]);
        assert!(
            !odd.is_attached("198.51.100.1".parse().unwrap()),
            "a prefix of no bits is no network"
        );
        assert!(!odd.is_attached("192.0.2.9".parse().unwrap()));
    }

    #[test]
    fn an_offer_has_the_addresses_that_serve() {
        let all = link(&[("192.0.2.7", 24), ("198.51.100.7", 24), ("2001:db8::7", 64)]);
        let of = |smb: &str, nfs: &str| {
            let offer =
                Offer::of(&all, &Listening { smb: at(smb), nfs: at(nfs), ..Listening::default() });
            (offer.addresses.len(), offer.smb, offer.nfs)
        };
        assert_eq!(of("[::]:445", ""), (3, Some(445), None));
        assert_eq!(of("0.0.0.0:445", "198.51.100.7:2049"), (2, Some(445), Some(2049)));
        assert_eq!(of("192.0.2.7:4450", ""), (1, Some(4450), None));
        assert_eq!(
            of("127.0.0.1:445", "[::1]:2049"),
            (0, None, None),
            "loopback is announced nowhere"
        );
        assert_eq!(of("", ""), (0, None, None));
        let bridge = link(&[("fe80::7", 64)]);
        let all_addresses = Listening { smb: at("[::]:445"), ..Listening::default() };
        assert!(Offer::of(&bridge, &all_addresses).is_empty());
    }

    #[test]
    fn links_beyond_the_limit_are_counted() {
        let device = |n| Link {
            index: n,
            name: format!("veth{n}"),
            ..link(&[(&format!("10.0.{n}.1"), 24)])
        };
        let links: Vec<Link> = (0..40).rev().map(device).collect();
        let listening = Listening { smb: at("[::]:445"), ..Listening::default() };
        let (served, left_out) = served(&links, &listening);
        assert_eq!((served.len(), left_out.len()), (LINKS_MAX, 40 - LINKS_MAX));
        assert!(served.iter().all(|(link, _)| (link.index as usize) < LINKS_MAX), "the first stay");
        let line = left_out_line(&left_out).unwrap();
        assert!(line.contains(" veth8, veth9,") && line.contains(" and 24 more"), "{line}");
        assert!(left_out_line(&left_out[..1]).unwrap().contains("on veth8: the limit is 8"));
        assert_eq!(left_out_line(&[]), None);
        let many: Vec<(String, u8)> = (0..200).map(|n| (format!("10.0.0.{n}"), 24)).collect();
        let many: Vec<(&str, u8)> = many.iter().map(|(ip, bits)| (ip.as_str(), *bits)).collect();
        assert_eq!(Offer::of(&link(&many), &listening).addresses.len(), ADDRESSES_MAX);
    }

    #[test]
    fn loopback_is_no_link_of_this_host() {
        let links = read().unwrap();
        assert!(
            links.iter().all(|link| link.addresses.iter().all(|own| !own.ip.is_loopback())),
            "{links:?}"
        );
    }
}
