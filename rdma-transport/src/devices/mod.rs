//! The RDMA devices that the kernel has, as its sysfs shows them: who serves which address, and what hinders it.
//!
//! *Operation.* [`read`] looks at `class/infiniband` and `class/net` below a folder (`/sys`, or one that a test made) and gives
//! a [`Devices`]. [`Devices::at`] answers for one address of one network device. Nothing is opened and no library is used, so
//! this works on a machine without rdma-core.
//!
//! *Errors.* A device may go while it is looked at. What cannot be read counts as not there.

mod read;
#[cfg(test)]
mod tests;
mod watch;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

pub use read::read;
pub use watch::Watch;

/// Headers that RoCE may put around the data of a packet, in bytes: GRH or IP 40, UDP 8, BTH 12, XRC 4, atomic 28, ICRC 4.
const ROCE_HEADERS: u32 = 96;
/// What a path of InfiniBand or RoCE may carry in one packet (InfiniBand architecture section 9.7.2), in bytes, largest first.
const PATH_MTUS: [u32; 5] = [4096, 2048, 1024, 512, 256];

/// What a port speaks.
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

/// How an entry of a port's table of addresses is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GidType {
    /// On RoCE ports version 1, directly over Ethernet; on others the only kind.
    V1,
    /// RoCE version 2, over UDP.
    V2,
}

/// An entry of a port's table of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Its place in the table.
    pub index: u32,
    /// 128 bits. On RoCE ports an IP address, an IPv4 one as `::ffff:a.b.c.d`.
    pub gid: Ipv6Addr,
    /// How it is used.
    pub kind: GidType,
    /// The network device that it belongs to, if it is told.
    pub netdev: Option<String>,
}

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// From 1.
    pub number: u32,
    /// What it speaks.
    pub fabric: Fabric,
    /// The kernel's word for the state: `ACTIVE`, `DOWN`, `INIT`, `ARMED`.
    pub state: String,
    /// Link speed in Mbit/s, if it is told.
    pub speed: Option<u32>,
    /// Entries of its table that are set.
    pub gids: Vec<Gid>,
    /// The network devices of this port.
    pub netdevs: Vec<String>,
}

impl Port {
    /// It takes part in traffic.
    pub fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }

    /// The entry that serves an address. On RoCE the newest version of the address's own; on InfiniBand and iWARP the first.
    fn gid(&self, ip: IpAddr) -> Option<&Gid> {
        let wanted = match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        match self.fabric {
            Fabric::Roce => self.gids.iter().filter(|g| g.gid == wanted).max_by_key(|g| g.kind),
            Fabric::InfiniBand | Fabric::Iwarp => self.gids.first(),
        }
    }
}

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// As `rdma link` shows it: `mlx5_0`, `rxe0`.
    pub name: String,
    /// Its character device below `/dev/infiniband`: `uverbs0`.
    pub node: Option<String>,
    /// Another number means another device, although the name may be the same again.
    pub incarnation: u64,
    /// In the order of their numbers.
    pub ports: Vec<Port>,
}

/// A network device, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Netdev {
    name: String,
    /// Largest packet, in bytes.
    mtu: u32,
    /// Those that it stands on: a VLAN on its carrier, a bond on its members.
    lower: Vec<String>,
}

/// All RDMA devices, and what is known of the network devices beside them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    /// By name.
    pub list: Vec<Device>,
    netdevs: Vec<Netdev>,
}

/// The device that serves an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Its name.
    pub device: String,
    /// Its character device below `/dev/infiniband`.
    pub node: Option<String>,
    /// See [`Device::incarnation`].
    pub incarnation: u64,
    pub port: u32,
    /// What it speaks.
    pub fabric: Fabric,
    /// The kernel's word for the state of the port.
    pub state: String,
    /// Link speed in Mbit/s, if it is told.
    pub speed: Option<u32>,
    /// Place in the port's table of addresses.
    pub gid_index: u32,
    /// How that place is used.
    pub gid_type: GidType,
    /// Bytes of data in one packet; `None` on iWARP, where TCP decides, and on InfiniBand, where the path decides.
    pub path_mtu: Option<u32>,
}

impl Served {
    /// The kind of address for people: `RoCE v2`, `IB`, `iWARP`.
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
    /// `mlx5_0 port 1, RoCE v2`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} port {}, {}", self.device, self.port, self.gid_words())
    }
}

/// Why a device that belongs to an address does not serve it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// The port is in this state, not active.
    NotActive {
        /// Name of the device.
        device: String,
        port: u32,
        /// The kernel's word.
        state: String,
        /// The network device that would bring it up.
        netdev: String,
    },
    /// The port's table of addresses has none for this one.
    NoGid {
        /// Name of the device.
        device: String,
        port: u32,
        /// The network device that has the address.
        netdev: String,
    },
}

impl fmt::Display for Hindrance {
    /// What is wrong, and what to do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotActive { device, port, state, netdev } => write!(
                f,
                "port {port} of {device} is {state}, not ACTIVE: bring the link up (`ip link set {netdev} up`, cable, switch, \
                 subnet manager)"
            ),
            Self::NoGid { device, port, netdev } => write!(
                f,
                "port {port} of {device} has no GID for this address: look at `rdma link` and at \
                 /sys/class/infiniband/{device}/ports/{port}/gids; taking {netdev} down and up fills the table anew"
            ),
        }
    }
}

impl Devices {
    /// Which device serves this address, which is on this network device. `Ok(None)`: none belongs to it.
    pub fn at(&self, ip: IpAddr, netdev: &str) -> Result<Option<Served>, Hindrance> {
        let known = self.netdevs.iter().find(|n| n.name == netdev);
        let lower = known.map_or(&[][..], |n| &n.lower);
        let is_ours = |name: &String| name == netdev || lower.contains(name);
        let mut hindrance = None;
        for device in &self.list {
            for port in device.ports.iter().filter(|p| p.netdevs.iter().any(is_ours)) {
                match port.gid(ip) {
                    Some(gid) if port.is_active() => {
                        let path_mtu = known.and_then(|n| path_mtu(port.fabric, n.mtu));
                        return Ok(Some(served(device, port, gid, path_mtu)));
                    }
                    gid => {
                        hindrance.get_or_insert_with(|| hindered(device, port, gid, netdev));
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

fn hindered(device: &Device, port: &Port, gid: Option<&Gid>, netdev: &str) -> Hindrance {
    let (device, number, netdev) = (device.name.clone(), port.number, netdev.to_owned());
    match gid {
        // A port that is down has an empty table on some devices: the state is the cause.
        None if port.is_active() => Hindrance::NoGid { device, port: number, netdev },
        _ => Hindrance::NotActive { device, port: number, state: port.state.clone(), netdev },
    }
}

/// What fits into one packet of RoCE on a network device, as the kernel's connection manager counts it.
fn path_mtu(fabric: Fabric, netdev_mtu: u32) -> Option<u32> {
    let room = netdev_mtu.checked_sub(ROCE_HEADERS)?;
    let fits = PATH_MTUS.into_iter().find(|m| *m <= room);
    fits.filter(|_| fabric == Fabric::Roce)
}
