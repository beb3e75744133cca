//! `headgate check --rdma`: walks all that RDMA clients need on this host, and tells of each what it found and the remedy.
//!
//! *Operation.* [`about_host`] and [`about_addresses`] judge what was read from the host; both are pure. Then each provider that
//! would serve an address transfers a megabyte to itself by an RDMA Write ([`proof`]). Nothing on the host changes.
//!
//! *Errors.* A finding that keeps clients from RDMA is [`Verdict::Bad`] and makes the exit code 1. One that only makes RDMA slower
//! or rarer is a warning.

mod firewall;
mod proof;

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::sync::Arc;

use config::{Rdma, Settings};
use rdma_transport::devices::{CONFIGFS, Fabric, GidType, Port};
use rdma_transport::ibverbs::{Verbs, VerbsConfig};
use rdma_transport::iwarp::{Iwarp, IwarpConfig};
use rdma_transport::verbs::Provider;
use serde::Serialize;
use serde_json::json;

use super::netdev;
use crate::rdma::host::{self, Host};
use crate::rdma::plan::{self, AddressOffer, Refused};

/// The path MTU with which InfiniBand and RoCE are fastest, in bytes, and the MTU of Ethernet that it needs.
const PATH_MTU_BEST: u32 = 4096;
const MTU_WANTED: u32 = 4200;
/// The first kernel that copies memory registered at a device when a process forks, instead of sharing it with the child.
const COPIES_ON_FORK: (u32, u32) = (5, 12);

/// How good a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Good,
    Warning,
    Bad,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    /// The step: a word that stays the same.
    step: &'static str,
    verdict: Verdict,
    found: String,
    remedy: Option<String>,
}

impl Line {
    fn good(step: &'static str, found: String) -> Self {
        Self { step, verdict: Verdict::Good, found, remedy: None }
    }

    fn warning(step: &'static str, found: String, remedy: String) -> Self {
        Self { step, verdict: Verdict::Warning, found, remedy: Some(remedy) }
    }

    fn bad(step: &'static str, found: String, remedy: String) -> Self {
        Self { step, verdict: Verdict::Bad, found, remedy: Some(remedy) }
    }

    pub(super) fn is_warning(&self) -> bool {
        self.verdict == Verdict::Warning
    }

    /// Returns a finding that is a problem, as one sentence.
    pub(super) fn problem(&self) -> Option<String> {
        self.remedy.as_ref().map(|remedy| format!("{}; {remedy}", self.found))
    }
}

/// Properties of the kernel that affect memory of devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kernel {
    /// Version, if known.
    version: Option<(u32, u32)>,
    /// libibverbs keeps registered memory out of children (`RDMAV_FORK_SAFE`).
    fork_safe: bool,
    /// Modes of huge pages, the current one in brackets; empty: the kernel has none.
    huge_pages: String,
}

impl Kernel {
    /// Reads them from this host.
    pub(super) fn own() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let is_set = |name| std::env::var_os(name).is_some();
        Self {
            version: version(&read("/proc/sys/kernel/osrelease")),
            fork_safe: is_set("RDMAV_FORK_SAFE") || is_set("IBV_FORK_SAFE"),
            huge_pages: read("/sys/kernel/mm/transparent_hugepage/enabled").trim().to_owned(),
        }
    }
}

/// Parses a release such as `6.12.48-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Judges devices and the memory that they need, whatever addresses they serve.
pub(super) fn about_host(host: &Host, kernel: &Kernel) -> Vec<Line> {
    let mut lines = Vec::new();
    for device in &host.devices.list {
        for port in &device.ports {
            lines.push(link(&device.name, port));
        }
    }
    if lines.is_empty() {
        let found = "no RDMA device: iWARP in user space serves clients that speak iWARP";
        return vec![Line::good("link", found.into())];
    }
    if let Err(why) = &host.library {
        let remedy = "without the libraries no device is used".into();
        lines.push(Line::bad("library", why.clone(), remedy));
    }
    for (node, why) in &host.closed {
        // The text has the remedy.
        let remedy =
            format!("a container needs `--device` for {node} and each other node of its devices");
        lines.push(Line::bad("node", why.clone(), remedy));
    }
    lines.push(match &host.memlock {
        Ok(()) => {
            Line::good("memlock", "this process may lock the memory that devices need".into())
        }
        Err(why) => Line::bad("memlock", why.clone(), "a device is not used until then".into()),
    });
    lines.push(fork(kernel));
    lines.push(huge_pages(kernel));
    lines
}

fn link(device: &str, port: &Port) -> Line {
    let name = format!("{device} port {}", port.number);
    let speed = port.speed.map_or(String::new(), |mbit| format!(", {} Gb/s", mbit / 1000));
    if port.netdevs.is_empty() {
        return Line::warning(
            "link",
            format!("{name} ({}) belongs to no network device here, so it serves no address", port.fabric),
            "if this is a container that sees all devices of its host: give it the network device as well (host network, macvlan, \
             an SR-IOV function), or hide the others by `rdma system set netns exclusive` and `rdma dev set DEVICE netns NAME`; \
             InfiniBand needs IP over InfiniBand (`modprobe ib_ipoib`)"
                .into(),
        );
    }
    let on = port.netdevs.join(", ");
    match port.is_active() {
        true => Line::good("link", format!("{name} is ACTIVE: {}{speed}, on {on}", port.fabric)),
        false => Line::bad(
            "link",
            format!("{name} on {on} is {}", port.state),
            format!("bring the link up: `ip link set {on} up`, cable, switch, subnet manager"),
        ),
    }
}

fn fork(kernel: &Kernel) -> Line {
    match kernel.version {
        Some(version) if version < COPIES_ON_FORK && !kernel.fork_safe => Line::warning(
            "fork",
            format!(
                "Linux {}.{} shares memory of devices with child processes, which can separate the device from its data",
                version.0, version.1
            ),
            "use Linux 5.12 or newer, or set RDMAV_FORK_SAFE=1 and RDMAV_HUGEPAGES_SAFE=1 in the gateway's environment".into(),
        ),
        _ => Line::good("fork", "child processes get copies of the memory of devices".into()),
    }
}

fn huge_pages(kernel: &Kernel) -> Line {
    match kernel.huge_pages.contains("[never]") || kernel.huge_pages.is_empty() {
        true => Line::warning(
            "pages",
            "the kernel gives no huge pages, so a device needs 512 entries for each 2 MiB of memory".into(),
            "`echo madvise >/sys/kernel/mm/transparent_hugepage/enabled`".into(),
        ),
        false => Line::good("pages", "the kernel gives huge pages on request".into()),
    }
}

/// Judges what each address offers. `mtu` returns the MTU of a network device.
fn about_addresses(
    settings: &Settings,
    offers: &[AddressOffer],
    mtu: impl Fn(&str) -> Option<u32>,
) -> Vec<Line> {
    let mut lines = Vec::new();
    for offer in offers.iter().filter(|offer| !offer.ip.is_loopback()) {
        let ip = offer.ip;
        match &offer.verbs {
            Ok(Some(served)) => {
                let netdev = offer.netdev.as_deref().unwrap_or("its network device");
                lines.push(match (served.fabric, served.gid_type) {
                    (Fabric::Roce, GidType::V1) => Line::warning(
                        "gid",
                        format!(
                            "{ip}: GID {} of {served}, which no router passes and clients of version 2 cannot reach",
                            served.gid_index
                        ),
                        format!(
                            "`mkdir -p {CONFIGFS}/{0}; echo 'RoCE v2' >{CONFIGFS}/{0}/ports/{1}/default_roce_mode`",
                            served.device, served.port
                        ),
                    ),
                    _ => Line::good("gid", format!("{ip}: GID {} of {served}", served.gid_index)),
                });
                if served.fabric == Fabric::Roce {
                    lines.push(packets(ip, served.path_mtu, netdev, mtu(netdev)));
                }
            }
            Ok(None) if offer.iwarp.is_ok() => {
                lines.push(Line::good("gid", format!("{ip}: no device; iWARP in user space")));
            }
            Ok(None) => lines.push(Line::warning(
                "gid",
                format!("{ip}: no RDMA"),
                "`rdma link` lists devices; `rdma: auto` serves over iWARP in user space as well"
                    .into(),
            )),
            Err(why) if settings.rdma == Rdma::Off => lines.push(Line::warning(
                "gid",
                format!("{ip}: {why}"),
                "remove `rdma: off`".into(),
            )),
            Err(why) if settings.rdma == Rdma::Iwarp => {
                lines.push(Line::good("gid", format!("{ip}: iWARP in user space; {why}")));
            }
            Err(why) => lines.push(Line::bad(
                "gid",
                format!("{ip}: {why}"),
                "then `headgate reload`, or wait two seconds".into(),
            )),
        }
    }
    lines.extend(class(settings, offers));
    lines
}

fn packets(ip: IpAddr, path_mtu: Option<u32>, netdev: &str, mtu: Option<u32>) -> Line {
    let mtu = mtu.map_or("?".to_owned(), |mtu| mtu.to_string());
    match path_mtu {
        Some(PATH_MTU_BEST) => {
            Line::good("mtu", format!("{ip}: {PATH_MTU_BEST} bytes in a packet (MTU {mtu})"))
        }
        Some(bytes) => Line::warning(
            "mtu",
            format!("{ip}: {bytes} bytes in a packet, because the MTU of {netdev} is {mtu}"),
            format!(
                "an MTU of {MTU_WANTED} or more on both hosts and each switch between gives {PATH_MTU_BEST}: \
                 `ip link set {netdev} mtu 9000`"
            ),
        ),
        None => Line::bad(
            "mtu",
            format!("{ip}: the MTU of {netdev}, {mtu}, has no room for a packet of RoCE"),
            format!("`ip link set {netdev} mtu 1500`, or 9000"),
        ),
    }
}

/// Judges the traffic class. Only RoCE depends on it.
fn class(settings: &Settings, offers: &[AddressOffer]) -> Option<Line> {
    let fabrics: BTreeSet<Fabric> =
        offers.iter().filter_map(|o| Some(o.device()?.fabric)).collect();
    let is_roce = fabrics.contains(&Fabric::Roce);
    Some(match settings.rdma_dscp {
        None if is_roce => Line::warning(
            "dscp",
            "no DSCP is set, so switches put packets of RoCE into the queue of all others, where they are dropped in a jam".into(),
            "`rdma: {dscp: 26}`, the same at clients, and a queue with PFC or ECN for it at each switch (docs/rdma.md)".into(),
        ),
        None => return None,
        Some(dscp) => Line::good("dscp", format!("packets carry DSCP {dscp}; on RoCE clients must set it, too")),
    })
}

/// Judges the ports of TCP on which iWARP listens, by cards and in user space.
fn ports(settings: &Settings, offers: &[AddressOffer], serves_already: bool) -> Vec<Line> {
    let by_card = |o: &AddressOffer| o.device().is_some_and(|d| d.fabric == Fabric::Iwarp);
    if !offers.iter().any(|o| o.iwarp.is_ok() || by_card(o)) {
        return Vec::new();
    }
    let wanted = tcp_ports(settings);
    let mut lines: Vec<Line> = wanted
        .iter()
        .map(|(what, port)| match std::net::TcpListener::bind((IpAddr::from([0u16; 8]), *port)) {
            Ok(_) => Line::good("port", format!("TCP port {port} is free for {what} with iWARP")),
            Err(_) if serves_already && crate::port::is_held_by(*port, "headgate") => Line::good(
                "port",
                format!("the gateway serves {what} with iWARP at TCP port {port}"),
            ),
            Err(e) => Line::bad(
                "port",
                format!("TCP port {port} cannot be used for {what} with iWARP: {e}"),
                "stop what listens there (`ss -tlnp`), or choose another port".into(),
            ),
        })
        .collect();
    let numbers: Vec<u16> = wanted.iter().map(|(_, port)| *port).collect();
    lines.push(firewall::line(&firewall::read(), &numbers));
    lines
}

/// Returns the ports of TCP that iWARP clients dial.
fn tcp_ports(settings: &Settings) -> Vec<(&'static str, u16)> {
    let nfs = settings.by_nfs().then_some(("NFS", settings.nfs_rdma_port));
    let smb = settings.by_smb().next().map(|_| ("SMB Direct", settings.smb.direct_port));
    nfs.into_iter().chain(smb).filter(|(_, port)| *port != 0).collect()
}

/// A provider, and an address that it serves.
type Proven = (Arc<dyn Provider>, IpAddr, String);

/// Returns the addresses to try: each device at one of its addresses, and iWARP in user space once.
fn to_prove(settings: &Settings, offers: &[AddressOffer]) -> Vec<Proven> {
    let mut all: Vec<Proven> = Vec::new();
    let mut seen = BTreeSet::new();
    if settings.rdma != Rdma::Iwarp {
        let verbs: Arc<dyn Provider> = Arc::new(Verbs::new(VerbsConfig::default()));
        for offer in offers {
            if let Some(served) = offer.device().filter(|d| seen.insert(d.device.clone())) {
                all.push((verbs.clone(), offer.ip, served.to_string()));
            }
        }
    }
    let own = offers.iter().find(|o| o.iwarp.is_ok());
    let iwarp = || Arc::new(Iwarp::new(IwarpConfig::default()));
    all.extend(own.map(|o| (iwarp() as Arc<dyn Provider>, o.ip, "iWARP in user space".to_owned())));
    all
}

async fn proofs(all: Vec<Proven>) -> Vec<Line> {
    let mut lines = Vec::new();
    for (provider, ip, name) in all {
        lines.push(match proof::write_once(&*provider, ip).await {
            Ok(time) => Line::good(
                "write",
                format!("{name}: an RDMA Write placed 1 MiB at {ip}, in {:.1} ms with its set-up", time.as_secs_f64() * 1e3),
            ),
            Err(e) => Line::bad(
                "write",
                format!("{name}: no RDMA Write at {ip}: {e}"),
                format!("compare with `rping -s -a {ip} -v` and `rping -c -a {ip} -v`; `dmesg` may say more"),
            ),
        });
    }
    lines
}

/// Runs the command. Returns true if nothing keeps clients from RDMA.
pub(crate) async fn run(settings: &Settings, is_json: bool) -> bool {
    let host = host::look(settings);
    let offers = plan::offers(settings.rdma, &settings.bind, &host, &Refused::new());
    let serves_already = super::host::serves_already(&settings.state);
    let mut lines = about_host(&host, &Kernel::own());
    lines.extend(about_addresses(settings, &offers, |netdev| netdev::device(netdev).mtu));
    lines.extend(ports(settings, &offers, serves_already));
    lines.extend(proofs(to_prove(settings, &offers)).await);
    let is_good = lines.iter().all(|line| line.verdict != Verdict::Bad);
    match is_json {
        true => say!("{}", json!({"ready": is_good, "steps": lines})),
        false => text(&lines),
    }
    is_good
}

fn text(lines: &[Line]) {
    for Line { step, verdict, found, remedy } in lines {
        let word = match verdict {
            Verdict::Good => "ok",
            Verdict::Warning => "warning",
            Verdict::Bad => "not ok",
        };
        say!("{word:<8} {step:<9} {found}");
        if let Some(remedy) = remedy {
            say!("{:<18} {remedy}", "");
        }
    }
}

#[cfg(test)]
mod tests;
