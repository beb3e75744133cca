//! Decides for every address, from the state of the host and the configuration. Has no side effects.
//!
//! A RoCE or InfiniBand device has its own ports, so user-space iWARP also listens on its address, for clients with an iWARP
//! adapter. An iWARP card shares its ports with TCP and serves the same clients: where a card serves, user-space iWARP does
//! not listen.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use config::Rdma;
use rdma_transport::devices::{Fabric, Served};

use super::host::{CM_NODE, Host};
use crate::check::netdev::Address;

/// Devices that failed at an address, by address and incarnation, with the reason.
pub(crate) type Refused = BTreeMap<(IpAddr, u64), String>;

/// RDMA service offered at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddressOffer {
    pub(crate) ip: IpAddr,
    /// Its network device, if known.
    pub(crate) netdev: Option<String>,
    /// The device that serves it; `Ok(None)` if no device belongs to it; an error if its device is not used.
    pub(crate) verbs: Result<Option<Served>, String>,
    /// Whether user-space iWARP listens here, or why not.
    pub(crate) iwarp: Result<(), String>,
}

impl AddressOffer {
    /// Returns the device in use.
    pub(crate) fn device(&self) -> Option<&Served> {
        self.verbs.as_ref().ok().and_then(Option::as_ref)
    }

    /// Returns true if other hosts can connect over RDMA: soft devices refuse the loopback device.
    pub(crate) fn rdma(&self) -> bool {
        self.device().is_some() || self.iwarp.is_ok() && !self.ip.is_loopback()
    }
}

/// Decides for every address that would be served.
pub(crate) fn offers(
    mode: Rdma,
    bind: &[IpAddr],
    host: &Host,
    refused: &Refused,
) -> Vec<AddressOffer> {
    let bound = |a: &&Address| bind.is_empty() || bind.iter().any(|b| covers(*b, a.ip));
    let mut places: Vec<Address> = host.addresses.iter().filter(bound).cloned().collect();
    // An address that is missing on this host is tried anyway: the attempt reports the error.
    for ip in bind.iter().filter(|ip| !ip.is_unspecified()) {
        if !places.iter().any(|a| a.ip == *ip) {
            places.push(Address { ip: *ip, device: None });
        }
    }
    places.into_iter().map(|place| offer(mode, place, host, refused)).collect()
}

/// Returns true if a listener at `at` is reached at `ip`: the unspecified IPv6 address includes the IPv4 addresses.
fn covers(at: IpAddr, ip: IpAddr) -> bool {
    at == ip || at.is_unspecified() && (at.is_ipv6() || ip.is_ipv4())
}

fn offer(mode: Rdma, place: Address, host: &Host, refused: &Refused) -> AddressOffer {
    let Address { ip, device: netdev } = place;
    let verbs = match mode {
        Rdma::Off => Err("RDMA is switched off (`rdma: off`)".into()),
        Rdma::Iwarp => Err("devices are not used (`rdma: iwarp`)".into()),
        Rdma::Auto | Rdma::Verbs => device(ip, netdev.as_deref(), host, refused),
    };
    let iwarp = match (mode, &verbs) {
        (Rdma::Off, _) => Err("RDMA is switched off (`rdma: off`)".into()),
        (Rdma::Verbs, _) => Err("iWARP in user space is not used (`rdma: verbs`)".into()),
        (_, Ok(Some(s))) if s.fabric == Fabric::Iwarp => {
            Err(format!("{} serves iWARP clients, and shares its ports with TCP", s.device))
        }
        _ => Ok(()),
    };
    AddressOffer { ip, netdev, verbs, iwarp }
}

/// Returns the device that serves an address; does not check libraries or rights on a host without devices.
fn device(
    ip: IpAddr,
    netdev: Option<&str>,
    host: &Host,
    refused: &Refused,
) -> Result<Option<Served>, String> {
    let Some(netdev) = netdev else { return Ok(None) };
    let Some(served) = host.devices.at(ip, netdev).map_err(|h| h.to_string())? else {
        return Ok(None);
    };
    let name = &served.device;
    host.library.as_ref().map_err(|why| format!("{name} cannot be used: {why}"))?;
    let Some(node) = &served.node else {
        return Err(format!(
            "{name} has no character device: it is being removed, or `modprobe ib_uverbs` is missing"
        ));
    };
    for node in [node.as_str(), CM_NODE] {
        if let Some(why) = host.closed.get(node) {
            return Err(format!("{name} cannot be used: {why}"));
        }
    }
    host.memlock.as_ref().map_err(|why| format!("{name} cannot be used: {why}"))?;
    match refused.get(&(ip, served.incarnation)) {
        Some(why) => Err(why.clone()),
        None => Ok(Some(served)),
    }
}

/// Checks the requirement `rdma: verbs`: every address in `bind` has a device, or at least one address if `bind` is empty.
pub(crate) fn demanded(mode: Rdma, bind: &[IpAddr], offers: &[AddressOffer]) -> Result<(), String> {
    if mode != Rdma::Verbs {
        return Ok(());
    }
    let without = |o: &&AddressOffer| o.device().is_none();
    let named = |o: &&AddressOffer| bind.contains(&o.ip);
    let missing: Vec<&AddressOffer> = match bind.iter().any(|b| !b.is_unspecified()) {
        true => offers.iter().filter(named).filter(without).collect(),
        false if offers.iter().any(|o| o.device().is_some()) => return Ok(()),
        false => offers.iter().filter(|o| !o.ip.is_loopback()).collect(),
    };
    if missing.is_empty() && !offers.is_empty() {
        return Ok(());
    }
    let reasons: BTreeSet<String> = missing.into_iter().map(no_device).collect();
    let reasons = Vec::from_iter(reasons).join("; ");
    Err(format!("`--rdma verbs` needs an RDMA device: {reasons}. `--rdma auto` serves without one"))
}

fn no_device(offer: &AddressOffer) -> String {
    let AddressOffer { ip, netdev, verbs, .. } = offer;
    match (verbs, netdev) {
        (Err(why), _) => format!("{ip}: {why}"),
        (Ok(_), Some(netdev)) => format!(
            "{ip}: no RDMA device belongs to {netdev} (`rdma link` lists the devices; `rdma link add rxe0 type rxe netdev \
             {netdev}` makes one in software)"
        ),
        (Ok(_), None) => format!(
            "{ip} is not an address of this host, or its network device is down (`ip -brief address` shows both)"
        ),
    }
}

/// Provider of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum By {
    /// A device of this fabric.
    Verbs(Fabric),
    /// iWARP in user space.
    Iwarp,
}

impl By {
    /// Returns true if its ports are those of TCP. RoCE and InfiniBand have their own ports.
    pub(crate) fn shares_tcp_ports(self) -> bool {
        matches!(self, Self::Iwarp | Self::Verbs(Fabric::Iwarp))
    }
}

/// The fabrics whose clients dial a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fabrics {
    All,
    /// RoCE and InfiniBand: the port of SMB itself, since no TCP listener conflicts with it there (MS-SMBD section 1.9).
    RoceAndInfiniBand,
    /// iWARP, which shares its ports with TCP. Linux before 7.0 also dials this port on every other device first.
    Iwarp,
}

impl Fabrics {
    /// Returns true if clients of this fabric dial the port.
    pub(crate) fn dial(self, by: By) -> bool {
        match self {
            Self::All => true,
            Self::RoceAndInfiniBand => !by.shares_tcp_ports(),
            Self::Iwarp => by.shares_tcp_ports(),
        }
    }

    /// Returns true if a listener opens here: clients of the fabric dial it, or old Linux clients do.
    pub(crate) fn open(self, by: By) -> bool {
        self.dial(by) || self == Self::Iwarp
    }
}

/// Returns the ports of SMB Direct: `smb` is the port of SMB over TCP, `direct` the one for iWARP.
pub(crate) fn smb_direct_ports(smb: u16, direct: u16) -> Vec<(u16, Fabrics)> {
    match smb == direct && smb != 0 {
        true => vec![(smb, Fabrics::All)],
        false => vec![(smb, Fabrics::RoceAndInfiniBand), (direct, Fabrics::Iwarp)],
    }
}

/// A wanted listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListenEndpoint {
    pub(crate) by: By,
    pub(crate) ip: IpAddr,
    /// Incarnation of the device; 0 for user-space iWARP.
    pub(crate) incarnation: u64,
}

/// Returns the listeners for these offers. User-space iWARP listens on the unspecified address where it may, and then needs
/// no updates; if a card uses the port on some addresses, it listens on each of the others separately.
pub(crate) fn spots(
    mode: Rdma,
    bind: &[IpAddr],
    offers: &[AddressOffer],
) -> BTreeSet<ListenEndpoint> {
    let any = [IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    let bind = if bind.is_empty() { &any[..] } else { bind };
    let mut spots: BTreeSet<ListenEndpoint> = offers
        .iter()
        .filter_map(|o| Some((o.ip, o.device()?)))
        .map(|(ip, d)| ListenEndpoint { by: By::Verbs(d.fabric), ip, incarnation: d.incarnation })
        .collect();
    let iwarp = |ip| ListenEndpoint { by: By::Iwarp, ip, incarnation: 0 };
    if !matches!(mode, Rdma::Auto | Rdma::Iwarp) {
        return spots;
    }
    for at in bind.iter().copied() {
        let here = || offers.iter().filter(|o| covers(at, o.ip));
        if here().all(|o| o.iwarp.is_ok()) && (here().next().is_some() || at.is_unspecified()) {
            spots.insert(iwarp(at));
        } else {
            spots.extend(here().filter(|o| o.iwarp.is_ok()).map(|o| iwarp(o.ip)));
        }
    }
    spots
}

#[cfg(test)]
pub(crate) mod tests;
