//! Reads [`Devices`] from files of sysfs.

use std::fs;
use std::io::Read;
use std::net::Ipv6Addr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Device, Devices, Fabric, Gid, GidType, Netdev, Port};

/// Bytes of an Ethernet address, which an iWARP device uses as its GID.
const MAC_LEN: usize = 6;
/// Bytes of an IP-over-InfiniBand address: flags and queue pair number, then the port's GID (RFC 4391 section 9.1.1).
const IPOIB_LEN: usize = 20;

/// Source of the GID tables.
#[derive(Clone, Copy)]
pub(super) enum Tables<'a> {
    Read,
    /// Tables read before, for devices that existed then.
    As(&'a Devices),
}

impl Tables<'_> {
    /// Returns the table of a port, which has this folder.
    fn of(self, device: (&str, u64), port: u32, folder: &Path) -> Vec<Gid> {
        let Tables::As(known) = self else { return gids(folder) };
        let same = known.list.iter().find(|d| (d.name.as_str(), d.incarnation) == device);
        let same = same.and_then(|d| d.ports.iter().find(|p| p.number == port));
        same.map_or_else(|| gids(folder), |p| p.gids.clone())
    }
}

/// Reads the devices below this folder, which is `/sys` outside of tests.
pub fn read(sys: &Path) -> Devices {
    read_with(sys, Tables::Read)
}

pub(super) fn read_with(sys: &Path, tables: Tables<'_>) -> Devices {
    let nets = sys.join("class/net");
    let netdevs: Vec<(Netdev, Vec<u8>)> =
        entries(&nets).into_iter().map(|name| netdev(&nets.join(&name), name)).collect();
    let all = sys.join("class/infiniband");
    let modes = sys.join("kernel/config/rdma_cm");
    let nodes = nodes(&sys.join("class/infiniband_verbs"));
    let list = entries(&all).into_iter().map(|name| {
        let folder = all.join(&name);
        let node = nodes.iter().find(|(device, _)| *device == name).map(|(_, node)| node.clone());
        // The kernel assigns a new inode in sysfs to each new device.
        let incarnation = fs::metadata(&folder).map_or(0, |m| m.ino());
        let table = |port, folder: &Path| tables.of((&name, incarnation), port, folder);
        let mode = |port: u32| roce_mode(&modes.join(&name).join(format!("ports/{port}")));
        let ports = ports(&folder, &netdevs, table, mode);
        Device { name, node, incarnation, ports }
    });
    Devices { list: list.collect(), netdevs: netdevs.into_iter().map(|(n, _)| n).collect() }
}

/// Returns the names in a folder, sorted.
fn entries(folder: &Path) -> Vec<String> {
    let all = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = all.filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Reads a file without its line end; empty if it cannot be read. A sysfs file is at most a page and comes with the first read; a
/// GID table has a thousand of them.
fn text(path: PathBuf) -> String {
    let mut room = [0; 4096];
    let n = fs::File::open(path).and_then(|mut file| file.read(&mut room)).unwrap_or(0);
    String::from_utf8_lossy(&room[..n]).trim().to_owned()
}

/// Maps devices to their `uverbsN`.
fn nodes(folder: &Path) -> Vec<(String, String)> {
    let all = entries(folder).into_iter().filter(|name| name.starts_with("uverbs"));
    all.map(|node| (text(folder.join(&node).join("ibdev")), node)).collect()
}

/// Reads a network device and its link-layer address.
fn netdev(folder: &Path, name: String) -> (Netdev, Vec<u8>) {
    let byte = |hex| u8::from_str_radix(hex, 16).ok();
    let address: Option<Vec<u8>> = text(folder.join("address")).split(':').map(byte).collect();
    let below = entries(folder).into_iter();
    let lower = below.filter_map(|e| e.strip_prefix("lower_").map(str::to_owned)).collect();
    let mtu = text(folder.join("mtu")).parse().unwrap_or(0);
    (Netdev { name, mtu, lower }, address.unwrap_or_default())
}

fn ports(
    device: &Path,
    netdevs: &[(Netdev, Vec<u8>)],
    table: impl Fn(u32, &Path) -> Vec<Gid>,
    mode: impl Fn(u32) -> Option<GidType>,
) -> Vec<Port> {
    let node_type = text(device.join("node_type"));
    let folder = device.join("ports");
    let numbers = entries(&folder).into_iter().filter_map(|name| name.parse().ok());
    let one = |number: u32| {
        let folder = folder.join(number.to_string());
        let fabric = fabric(&node_type, &text(folder.join("link_layer")))?;
        let gids = table(number, &folder);
        let mut netdevs = netdevs_of(fabric, &gids, netdevs);
        if netdevs.is_empty() && fabric == Fabric::Roce {
            netdevs = netdevs_below(device, number);
        }
        let state = text(folder.join("state"));
        let state = state.split_once(": ").map_or(state.as_str(), |(_, word)| word).to_owned();
        let speed = speed(&text(folder.join("rate")));
        let roce_mode = mode(number).filter(|_| fabric == Fabric::Roce);
        Some(Port { number, fabric, state, speed, gids, roce_mode, netdevs })
    };
    let mut ports: Vec<Port> = numbers.filter_map(one).collect();
    ports.sort_by_key(|p| p.number);
    ports
}

/// Reads the mode of a port from its folder in configfs.
fn roce_mode(folder: &Path) -> Option<GidType> {
    match text(folder.join("default_roce_mode")).as_str() {
        "RoCE v2" => Some(GidType::V2),
        "IB/RoCE v1" => Some(GidType::V1),
        _ => None,
    }
}

/// The fabric of a port; `None` for a device without reliable connections over IP, such as usNIC.
fn fabric(node_type: &str, link_layer: &str) -> Option<Fabric> {
    match (node_type.split_once(": ").map_or(node_type, |(_, word)| word), link_layer) {
        ("RNIC", _) => Some(Fabric::Iwarp),
        ("CA", "InfiniBand") => Some(Fabric::InfiniBand),
        ("CA", "Ethernet") => Some(Fabric::Roce),
        _ => None,
    }
}

/// Parses a speed such as `100 Gb/sec (4X EDR)` or `2.5 Gb/sec (1X SDR)` to Mbit/s.
fn speed(text: &str) -> Option<u32> {
    let (number, _) = text.split_once(" Gb/sec")?;
    let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
    let (whole, tenth) = (whole.parse::<u32>().ok()?, tenth.get(..1)?.parse::<u32>().ok()?);
    whole.checked_mul(1000)?.checked_add(tenth * 100).filter(|s| *s > 0)
}

/// Reads the valid entries. An empty entry reads as zeros and has no type.
fn gids(port: &Path) -> Vec<Gid> {
    let folder = port.join("gids");
    let numbers = entries(&folder).into_iter().filter_map(|name| name.parse().ok());
    let one = |index: u32| {
        let name = index.to_string();
        let gid: Ipv6Addr = text(folder.join(&name)).parse().ok()?;
        if gid.is_unspecified() {
            return None;
        }
        let kind = match text(port.join("gid_attrs/types").join(&name)).as_str() {
            "RoCE v2" => GidType::V2,
            _ => GidType::V1,
        };
        let netdev = Some(text(port.join("gid_attrs/ndevs").join(&name)));
        Some(Gid { index, gid, kind, netdev: netdev.filter(|n| !n.is_empty()) })
    };
    let mut gids: Vec<Gid> = numbers.filter_map(one).collect();
    gids.sort_by_key(|g| g.index);
    gids
}

/// Finds the network devices of a RoCE port whose table names none, because they are switched off. A software device names its
/// parent; a card has its network devices in the same folder, each with its port number, from 0.
fn netdevs_below(device: &Path, port: u32) -> Vec<String> {
    let parent = text(device.join("parent"));
    if !parent.is_empty() {
        return vec![parent];
    }
    let nets = device.join("device/net");
    let is_its = |name: &String| {
        let number = text(nets.join(name).join("dev_port")).parse::<u32>();
        number.is_ok_and(|n| n.checked_add(1) == Some(port))
    };
    entries(&nets).into_iter().filter(is_its).collect()
}

/// Finds the network devices of a port: the table names them for RoCE, and for iWARP since Linux 6.4; otherwise the GID contains
/// the network device's address (iWARP), or the address contains the GID (InfiniBand).
fn netdevs_of(fabric: Fabric, gids: &[Gid], netdevs: &[(Netdev, Vec<u8>)]) -> Vec<String> {
    let mut names: Vec<String> = gids.iter().filter_map(|g| g.netdev.clone()).collect();
    if names.is_empty() {
        let is_its = |address: &[u8], gid: &[u8; 16]| match fabric {
            Fabric::Iwarp => address.len() == MAC_LEN && gid.starts_with(address),
            Fabric::InfiniBand => address.len() == IPOIB_LEN && address.ends_with(gid),
            Fabric::Roce => false,
        };
        let its = |(_, address): &&(Netdev, Vec<u8>)| {
            gids.iter().any(|g| is_its(address, &g.gid.octets()))
        };
        names = netdevs.iter().filter(its).map(|(n, _)| n.name.clone()).collect();
    }
    names.sort();
    names.dedup();
    names
}
