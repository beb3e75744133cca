//! The decision for every address, from what the host has and what the configuration wants. Pure.
//!
//! A RoCE or InfiniBand device has ports of its own, so on its address the iWARP of user space listens beside it for clients with
//! an iWARP adapter. An iWARP card takes its ports from the same space as TCP and serves the same clients: where it serves, our
//! own iWARP does not listen.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use config::Rdma;
use rdma_transport::devices::{Fabric, Served};

use super::host::{CM_NODE, Host};
use crate::check::netdev::Address;

/// Devices that were tried at an address and failed, by address and incarnation, with the reason.
pub(crate) type Refused = BTreeMap<(IpAddr, u64), String>;

/// What a client gets at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddressOffer {
    /// The address.
    pub(crate) ip: IpAddr,
    /// Its network device, where it is known.
    pub(crate) netdev: Option<String>,
    /// The device that serves it; `Ok(None)`: none belongs to it; or why one that does is not used.
    pub(crate) verbs: Result<Option<Served>, String>,
    /// iWARP in user space listens here; or why not.
    pub(crate) iwarp: Result<(), String>,
}

impl AddressOffer {
    /// The device that is used.
    pub(crate) fn device(&self) -> Option<&Served> {
        self.verbs.as_ref().ok().and_then(Option::as_ref)
    }

    /// Somebody else than this host can come by RDMA: soft devices refuse the loopback device.
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
    // One that is not of this host is tried all the same: the attempt says what is wrong.
    for ip in bind.iter().filter(|ip| !ip.is_unspecified()) {
        if !places.iter().any(|a| a.ip == *ip) {
            places.push(Address { ip: *ip, device: None });
        }
    }
    places.into_iter().map(|place| offer(mode, place, host, refused)).collect()
}

/// Who listens at `at` is reached at `ip`: the unspecified address of version 6 stands for those of version 4, too.
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

/// The device that serves an address; nothing is asked of a host without one.
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

/// `rdma: verbs` is a demand: every address that is named has a device, or at least one where none is named.
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

/// Who listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum By {
    /// A device of this fabric.
    Verbs(Fabric),
    /// iWARP in user space.
    Iwarp,
}

impl By {
    /// Its ports are those of TCP. RoCE and InfiniBand have ports of their own.
    pub(crate) fn shares_tcp_ports(self) -> bool {
        matches!(self, Self::Iwarp | Self::Verbs(Fabric::Iwarp))
    }
}

/// The fabrics whose clients dial a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fabrics {
    /// All of them.
    All,
    /// RoCE and InfiniBand: the port of SMB itself, since no TCP listener is in the way there (MS-SMBD section 1.9).
    RoceAndInfiniBand,
    /// iWARP, which shares its ports with TCP. Linux before 7.0 also dials this port on every other device first.
    Iwarp,
}

impl Fabrics {
    /// Clients of this fabric dial the port.
    pub(crate) fn dial(self, by: By) -> bool {
        match self {
            Self::All => true,
            Self::RoceAndInfiniBand => !by.shares_tcp_ports(),
            Self::Iwarp => by.shares_tcp_ports(),
        }
    }

    /// A listener opens here: where the fabric's clients dial, and for old Linux clients.
    pub(crate) fn open(self, by: By) -> bool {
        self.dial(by) || self == Self::Iwarp
    }
}

/// The ports of SMB Direct: `smb` is the port of SMB over TCP, `direct` the one for iWARP.
pub(crate) fn smb_direct_ports(smb: u16, direct: u16) -> Vec<(u16, Fabrics)> {
    match smb == direct && smb != 0 {
        true => vec![(smb, Fabrics::All)],
        false => vec![(smb, Fabrics::RoceAndInfiniBand), (direct, Fabrics::Iwarp)],
    }
}

/// A listener that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListenEndpoint {
    /// Who listens.
    pub(crate) by: By,
    /// Where.
    pub(crate) ip: IpAddr,
    /// Of the device; 0 for iWARP in user space.
    pub(crate) incarnation: u64,
}

/// The listeners that these offers want. iWARP in user space listens on all addresses at once where it may, so that it needs to
/// follow nothing; and alone on each where a card has the port of some.
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
pub(super) mod tests;
