//! The addresses that SMB clients receive, so that they can use several at once and find RDMA: those on which SMB listens,
//! with the speed and abilities of their network interfaces from the kernel.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use smbd_core::interfaces::Interface;
use smbd_core::server::Server;

use crate::check::netdev;
use crate::listeners::{Served, Service};

/// Default speed of an interface: 1 Gbit/s, as Windows assumes.
const SPEED_UNKNOWN: u64 = 1_000_000_000;

/// Updates the server's list of addresses.
pub fn refresh(server: &Server, at: &Served) {
    let list = told(addresses(), &at.at(Service::Smb), &at.dialled_at(Service::SmbDirect));
    server.core().interfaces.set(list);
}

/// Returns the entries for those of `addresses` on which SMB listens (`tcp`), with RDMA where SMB Direct listens (`direct`:
/// only listeners on the ports that clients of their fabric dial).
fn told(addresses: Vec<Interface>, tcp: &[SocketAddr], direct: &[SocketAddr]) -> Vec<Interface> {
    let served = |list: &[SocketAddr], ip: IpAddr| {
        list.iter()
            .any(|at| at.ip() == ip || at.ip().is_unspecified() && (at.is_ipv6() || ip.is_ipv4()))
    };
    let list = addresses.into_iter().filter(|i| served(tcp, i.addr));
    // A listener on all addresses also listens on loopback, which soft devices cannot reach.
    let rdma = |ip: IpAddr| served(direct, ip) && !ip.is_loopback();
    list.map(|i| Interface { rdma: rdma(i.addr), ..i }).collect()
}

/// Returns every address of this host except link-local ones.
fn addresses() -> Vec<Interface> {
    let mut known: HashMap<String, (u32, u64, bool)> = HashMap::new();
    let one = |a: netdev::Address| {
        let device = a.device?;
        let (index, link_speed, rss) =
            *known.entry(device).or_insert_with_key(|device| facts(device));
        Some(Interface { index, addr: a.ip, link_speed, rss, rdma: false })
    };
    netdev::addresses().into_iter().filter_map(one).collect()
}

/// Returns the number of the interface, its bits per second, and whether it has several receive queues.
fn facts(device: &str) -> (u32, u64, bool) {
    let folder = std::path::Path::new("/sys/class/net").join(device);
    let index = std::fs::read_to_string(folder.join("ifindex")).unwrap_or_default();
    let speed = netdev::device(device).speed;
    let speed = speed.map_or(SPEED_UNKNOWN, |megabits| u64::from(megabits) * 1_000_000);
    let queues = std::fs::read_dir(folder.join("queues")).into_iter().flatten().flatten();
    let receive = queues.filter(|q| q.file_name().as_encoded_bytes().starts_with(b"rx-")).count();
    (index.trim().parse().unwrap_or(0), speed, receive > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: &str = "127.0.0.1";
    const FAST: &str = "192.0.2.1";
    const SLOW: &str = "198.51.100.1";
    const SIX: &str = "2001:db8::1";

    /// Returns the addresses that clients receive, and whether each has RDMA.
    fn told_of(tcp: &[&str], direct: &[&str]) -> Vec<(String, bool)> {
        let one = |ip: &&str| {
            let addr = ip.parse().unwrap();
            Interface { index: 1, addr, link_speed: SPEED_UNKNOWN, rss: false, rdma: false }
        };
        let all = [LOOPBACK, FAST, SLOW, SIX].iter().map(one).collect();
        let at = |list: &[&str]| -> Vec<SocketAddr> {
            list.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 445)).collect()
        };
        let list = told(all, &at(tcp), &at(direct));
        list.into_iter().map(|i| (i.addr.to_string(), i.rdma)).collect()
    }

    fn list(of: &[(&str, bool)]) -> Vec<(String, bool)> {
        of.iter().map(|(ip, rdma)| ((*ip).to_owned(), *rdma)).collect()
    }

    #[test]
    fn rdma_is_told_of_exactly_where_smb_direct_is_heard() {
        // A device, or iWARP in user space, serves one of them.
        let one = list(&[(LOOPBACK, false), (FAST, true), (SLOW, false)]);
        assert_eq!(told_of(&["0.0.0.0"], &[FAST]), one);
        // All addresses are served, but RDMA does not reach loopback.
        let all = list(&[(LOOPBACK, false), (FAST, true), (SLOW, true), (SIX, true)]);
        assert_eq!(told_of(&["::"], &["::"]), all);
        let four = list(&[(LOOPBACK, false), (FAST, true), (SLOW, true), (SIX, false)]);
        assert_eq!(told_of(&["::"], &["0.0.0.0"]), four);
        // `rdma: off`, or the device was removed.
        let none = list(&[(LOOPBACK, false), (FAST, false), (SLOW, false)]);
        assert_eq!(told_of(&["0.0.0.0"], &[]), none);
    }

    #[test]
    fn an_address_where_smb_is_not_heard_is_not_told_of() {
        assert_eq!(told_of(&[SLOW], &["0.0.0.0"]), list(&[(SLOW, true)]));
        assert_eq!(told_of(&[], &["0.0.0.0"]), []);
    }
}
