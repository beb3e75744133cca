//! The addresses that SMB clients are told of, so that they can use several at once and find RDMA: those that SMB listens on, with
//! the speed and abilities of their network interfaces as the kernel has them.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use smbd_core::interfaces::Interface;
use smbd_core::server::Server;

use crate::check::netdev;
use crate::doors::{Served, Service};

/// Of an interface that does not say how fast it is: 1 Gbit/s, as Windows assumes.
const SPEED_UNKNOWN: u64 = 1_000_000_000;

/// Tells the server what there is now.
pub fn refresh(server: &Server, at: &Served) {
    let (tcp, direct) = (at.at(Service::Smb), at.at(Service::SmbDirect));
    let served = |list: &[SocketAddr], ip: IpAddr| {
        list.iter()
            .any(|at| at.ip() == ip || at.ip().is_unspecified() && (at.is_ipv6() || ip.is_ipv4()))
    };
    let list = addresses().into_iter().filter(|i| served(&tcp, i.addr));
    // What listens on every address listens on the loopback, too, where soft devices cannot come.
    let rdma = |ip: IpAddr| served(&direct, ip) && !ip.is_loopback();
    let list = list.map(|i| Interface { rdma: rdma(i.addr), ..i });
    server.core().interfaces.set(list.collect());
}

/// Every address of this host but link-local ones.
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

/// Number, bits per second, and whether there are several receive queues.
fn facts(device: &str) -> (u32, u64, bool) {
    let folder = std::path::Path::new("/sys/class/net").join(device);
    let index = std::fs::read_to_string(folder.join("ifindex")).unwrap_or_default();
    let speed = netdev::device(device).speed;
    let speed = speed.map_or(SPEED_UNKNOWN, |megabits| u64::from(megabits) * 1_000_000);
    let queues = std::fs::read_dir(folder.join("queues")).into_iter().flatten().flatten();
    let receive = queues.filter(|q| q.file_name().as_encoded_bytes().starts_with(b"rx-")).count();
    (index.trim().parse().unwrap_or(0), speed, receive > 1)
}
