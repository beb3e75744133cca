//! RDMA devices as sysfs shows them: which device serves which address, and why one does not.
//!
//! *Operation.* [`read`] reads `class/infiniband` and `class/net` below a folder (`/sys`, or one that a test made) into
//! [`Devices`]. [`Devices::at`] answers for one address of one network device. It opens no device and needs no library, so it works
//! on a machine without rdma-core.
//!
//! *Errors.* A device may disappear while it is read. Unreadable files count as missing.

mod read;
#[cfg(test)]
mod tests;
mod watch;

use std::cmp::Reverse;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

pub use read::read;
pub use watch::{Watch, note_change};

/// Folder of the connection manager's settings. `mkdir` of a device's name in it makes the settings of that device.
pub const CONFIGFS: &str = "/sys/kernel/config/rdma_cm";
/// Largest headers of RoCE around the data of a packet, in bytes: GRH or IP 40, UDP 8, BTH 12, XRC 4, atomic 28, ICRC 4.
const ROCE_HEADERS: u32 = 96;
/// Path MTUs of InfiniBand and RoCE (InfiniBand architecture section 9.7.2), in bytes, largest first.
const PATH_MTUS: [u32; 5] = [4096, 2048, 1024, 512, 256];

/// The protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fabric {
    InfiniBand,
    /// RDMA over Converged Ethernet.
    Roce,
    /// iWARP: RDMA over TCP.
    Iwarp,
}

impl fmt::Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::Roce => "RoCE",
            Self::Iwarp => "iWARP",
        })
    }
}

/// The type of a GID table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GidType {
    /// RoCE version 1, directly over Ethernet; on other fabrics the only type.
    V1,
    /// RoCE version 2, over UDP.
    V2,
}

/// An entry of a port's GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Index in the table.
    pub index: u32,
    /// The 128-bit GID. On RoCE ports an IP address, IPv4 as `::ffff:a.b.c.d`.
    pub gid: Ipv6Addr,
    pub kind: GidType,
    /// The network device that it belongs to, if known.
    pub netdev: Option<String>,
}

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Port number, from 1.
    pub number: u32,
    pub fabric: Fabric,
    /// The kernel's name of the state: `ACTIVE`, `DOWN`, `INIT`, `ARMED`.
    pub state: String,
    /// Link speed in Mbit/s, if known.
    pub speed: Option<u32>,
    /// Valid entries of its GID table.
    pub gids: Vec<Gid>,
    /// The version of RoCE that configfs prescribes for this port (`default_roce_mode`), if it prescribes one.
    pub roce_mode: Option<GidType>,
    /// The network devices of this port.
    pub netdevs: Vec<String>,
}

impl Port {
    pub fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }

    /// Finds the GID that the kernel's connection manager takes for an address of this network device. On RoCE it has the version
    /// that the port's mode prescribes, without one the newest that the port has, whatever else the address has; on InfiniBand and
    /// iWARP it is the first.
    fn gid(&self, ip: IpAddr, netdev: &str) -> Option<&Gid> {
        if self.fabric != Fabric::Roce {
            return self.gids.first();
        }
        let mode = self.mode();
        let of_mode = self.gids_of(ip).filter(|g| Some(g.kind) == mode);
        of_mode.max_by_key(|g| (g.netdev.as_deref() == Some(netdev), Reverse(g.index)))
    }

    /// Returns the version of RoCE that connections of this port use.
    fn mode(&self) -> Option<GidType> {
        self.roce_mode.or_else(|| self.gids.iter().map(|g| g.kind).max())
    }

    /// Returns the GIDs of an address on a RoCE port.
    fn gids_of(&self, ip: IpAddr) -> impl Iterator<Item = &Gid> {
        let wanted = match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        self.gids.iter().filter(move |g| g.gid == wanted)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Name as in `rdma link`: `mlx5_0`, `rxe0`.
    pub name: String,
    /// Name of its character device below `/dev/infiniband`: `uverbs0`.
    pub node: Option<String>,
    /// Differs between a removed device and a new one of the same name.
    pub incarnation: u64,
    /// In order of port number.
    pub ports: Vec<Port>,
}

/// The relevant properties of a network device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Netdev {
    name: String,
    /// Largest packet, in bytes.
    mtu: u32,
    /// The devices below it: the carrier of a VLAN, the members of a bond.
    lower: Vec<String>,
}

/// All RDMA devices, with the network devices that belong to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    /// The devices, sorted by name.
    pub list: Vec<Device>,
    netdevs: Vec<Netdev>,
}

/// The device that serves an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    pub device: String,
    /// Name of its character device below `/dev/infiniband`.
    pub node: Option<String>,
    /// See [`Device::incarnation`].
    pub incarnation: u64,
    pub port: u32,
    pub fabric: Fabric,
    /// The kernel's name of the port's state.
    pub state: String,
    /// Link speed in Mbit/s, if known.
    pub speed: Option<u32>,
    /// Index in the port's GID table.
    pub gid_index: u32,
    pub gid_type: GidType,
    /// Bytes of data in one packet; `None` on iWARP, where TCP decides, and on InfiniBand, where the path decides.
    pub path_mtu: Option<u32>,
}

impl Served {
    /// The kind of address for display: `RoCE v2`, `IB`, `iWARP`.
    pub fn gid_words(&self) -> &'static str {
        match (self.fabric, self.gid_type) {
            (Fabric::Roce, GidType::V1) => "RoCE v1",
            (Fabric::Roce, GidType::V2) => "RoCE v2",
            (Fabric::InfiniBand, _) => "IB",
            (Fabric::Iwarp, _) => "iWARP",
        }
    }
}

impl fmt::Display for Served {
    /// Formats as `mlx5_0 port 1, RoCE v2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} port {}, {}", self.device, self.port, self.gid_words())
    }
}

/// The reason why a device does not serve an address that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// The port is in this state instead of active.
    NotActive {
        device: String,
        port: u32,
        /// The kernel's name of the state.
        state: String,
        /// The network device that must be brought up.
        netdev: String,
    },
    /// The port's mode prescribes a version of RoCE in which the address has no GID.
    OtherMode {
        device: String,
        port: u32,
        /// The version that the mode prescribes.
        mode: GidType,
    },
    /// The port's GID table has no entry for the address.
    NoGid {
        device: String,
        port: u32,
        /// The network device with the address.
        netdev: String,
    },
}

impl fmt::Display for Hindrance {
    /// Describes the problem and the remedy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotActive { device, port, state, netdev } => write!(
                f,
                "port {port} of {device} is {state}, not ACTIVE: bring the link up (`ip link set {netdev} up`, cable, switch, \
                 subnet manager)"
            ),
            Self::OtherMode { device, port, mode } => {
                let (has, word) = match mode {
                    GidType::V1 => ("IB/RoCE v1", "RoCE v2"),
                    GidType::V2 => ("RoCE v2", "IB/RoCE v1"),
                };
                write!(
                    f,
                    "port {port} of {device} uses `{has}`, and this address has no GID of that version: `mkdir -p \
                     {CONFIGFS}/{device}; echo '{word}' >{CONFIGFS}/{device}/ports/{port}/default_roce_mode` changes it"
                )
            }
            Self::NoGid { device, port, netdev } => write!(
                f,
                "port {port} of {device} has no GID for this address: look at `rdma link` and at \
                 /sys/class/infiniband/{device}/ports/{port}/gids; taking {netdev} down and up fills the table anew"
            ),
        }
    }
}

impl Devices {
    /// Finds the device that serves this address of this network device. `Ok(None)`: no RDMA device belongs to it.
    pub fn at(&self, ip: IpAddr, netdev: &str) -> Result<Option<Served>, Hindrance> {
        let known = self.netdevs.iter().find(|n| n.name == netdev);
        let lower = known.map_or(&[][..], |n| &n.lower);
        let is_ours = |name: &String| name == netdev || lower.contains(name);
        let mut hindrance = None;
        for device in &self.list {
            for port in device.ports.iter().filter(|p| p.netdevs.iter().any(is_ours)) {
                match port.gid(ip, netdev) {
                    Some(gid) if port.is_active() => {
                        let path_mtu = known.and_then(|n| path_mtu(port.fabric, n.mtu));
                        return Ok(Some(served(device, port, gid, path_mtu)));
                    }
                    gid => {
                        hindrance.get_or_insert_with(|| hindered(device, port, gid, (ip, netdev)));
                    }
                }
            }
        }
        hindrance.map_or(Ok(None), Err)
    }
}

fn served(device: &Device, port: &Port, gid: &Gid, path_mtu: Option<u32>) -> Served {
    Served {
        device: device.name.clone(),
        node: device.node.clone(),
        incarnation: device.incarnation,
        port: port.number,
        fabric: port.fabric,
        state: port.state.clone(),
        speed: port.speed,
        gid_index: gid.index,
        gid_type: gid.kind,
        path_mtu,
    }
}

fn hindered(
    device: &Device,
    port: &Port,
    gid: Option<&Gid>,
    (ip, netdev): (IpAddr, &str),
) -> Hindrance {
    let (device, number, netdev) = (device.name.clone(), port.number, netdev.to_owned());
    let has_another = port.fabric == Fabric::Roce && port.gids_of(ip).next().is_some();
    match gid {
        None if port.is_active() && has_another => {
            // The address has a GID, so the port has a mode.
            let mode = port.mode().unwrap_or(GidType::V2);
            Hindrance::OtherMode { device, port: number, mode }
        }
        // Some devices have an empty table while the port is down: then the state is the cause.
        None if port.is_active() => Hindrance::NoGid { device, port: number, netdev },
        _ => Hindrance::NotActive { device, port: number, state: port.state.clone(), netdev },
    }
}

/// Bytes that fit into one RoCE packet on a network device, computed like the kernel's connection manager.
fn path_mtu(fabric: Fabric, netdev_mtu: u32) -> Option<u32> {
    let room = netdev_mtu.checked_sub(ROCE_HEADERS)?;
    let fits = PATH_MTUS.into_iter().find(|m| *m <= room);
    fits.filter(|_| fabric == Fabric::Roce)
}
