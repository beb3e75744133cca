//! The listeners: those that the configuration requests, those that are open, and the change from one set to the other.
//!
//! *Operation.* [`Listeners::prepare`] opens new listeners, which do not accept yet, and leaves the others unchanged.
//! [`Listeners::commit`] starts to accept and closes the listeners that are no longer configured. A listener whose
//! configuration is unchanged continues, with the connections queued in it. RDMA listeners are in [`crate::rdma::listeners`],
//! which follows devices too and receives each change.
//!
//! *Errors.* An address that cannot be opened leaves everything unchanged. If a new listener needs the address of a removed
//! one (all addresses become single ones), the old one is closed first, and reopened if the new one fails.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, RwLock};

use config::{Portmap, Settings};
use mutex::{reading, writing};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::accept::{self, ProtocolServer, Shared};
use crate::admin::protocol::Protocol;
use crate::listen::{RdmaPort, addresses, listen_tcp};
use crate::port;
use crate::rdma::listeners::{self as rdma, BoundAddresses};
use crate::rdma::plan::{Fabrics, smb_direct_ports};

/// Protocol and transport served at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// NFS over TCP.
    Nfs,
    /// NFS over RPC-over-RDMA.
    NfsRdma,
    /// SMB over TCP.
    Smb,
    /// SMB Direct.
    SmbDirect,
    /// The port mapper (RFC 1833) over TCP.
    Portmap,
}

impl Service {
    /// Returns the service of a connection.
    pub fn of(protocol: Protocol, is_rdma: bool) -> Self {
        match (protocol, is_rdma) {
            (Protocol::Nfs, false) => Self::Nfs,
            (Protocol::Nfs, true) => Self::NfsRdma,
            (Protocol::Smb, false) => Self::Smb,
            (Protocol::Smb, true) => Self::SmbDirect,
        }
    }

    /// Returns the name for the line that reports that the daemon is ready.
    pub fn short(self) -> &'static str {
        match self {
            Self::Nfs => "nfs",
            Self::NfsRdma => "nfs-rdma",
            Self::Smb => "smb",
            Self::SmbDirect => "smb-direct",
            Self::Portmap => "portmap",
        }
    }

    /// Returns the name for messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nfs => "NFS over TCP",
            Self::NfsRdma => "NFS over RDMA",
            Self::Smb => "SMB over TCP",
            Self::SmbDirect => "SMB Direct",
            Self::Portmap => "port mapper",
        }
    }

    fn option(self) -> &'static str {
        match self {
            Self::Nfs => "--nfs-port",
            Self::NfsRdma => "--nfs-rdma-port",
            Self::Smb => "--smb-port",
            Self::SmbDirect => "--smb-direct-port",
            Self::Portmap => port::PORTMAP_OPTION,
        }
    }

    fn port(self, settings: &Settings) -> u16 {
        match self {
            Self::Nfs => settings.nfs_port,
            Self::NfsRdma => settings.nfs_rdma_port,
            Self::Smb => settings.smb.port,
            Self::SmbDirect => settings.smb.direct_port,
            Self::Portmap => nfsrdma::portmap::PORT,
        }
    }
}

/// Addresses at which each service listens; changes with the configuration, and for RDMA with the devices.
#[derive(Debug, Default)]
pub struct Served {
    tcp: RwLock<BTreeMap<Service, Vec<SocketAddr>>>,
    rdma: BoundAddresses,
}

impl Served {
    /// Returns every address of a service.
    pub fn at(&self, service: Service) -> Vec<SocketAddr> {
        if matches!(service, Service::NfsRdma | Service::SmbDirect) {
            return self.rdma.at(service.name());
        }
        let served = reading(&self.tcp);
        served.get(&service).cloned().unwrap_or_default()
    }

    /// Returns the addresses at which clients look for a service. The ports of RDMA are only those that clients of the
    /// listener's fabric dial.
    pub fn dialled_at(&self, service: Service) -> Vec<SocketAddr> {
        match service {
            Service::NfsRdma | Service::SmbDirect => self.rdma.dialled_at(service.name()),
            _ => self.at(service),
        }
    }

    /// Returns the ports that clients dial for a service; empty if it is not served.
    pub fn ports(&self, service: Service) -> Vec<u16> {
        let ports: BTreeSet<u16> = self.dialled_at(service).iter().map(SocketAddr::port).collect();
        ports.into_iter().collect()
    }

    /// Returns true if the service still listens at the local address of a connection.
    pub fn covers(&self, service: Service, local: SocketAddr) -> bool {
        let ip = local.ip().to_canonical();
        let same = |at: &SocketAddr| at.ip().is_unspecified() || at.ip().to_canonical() == ip;
        // Connections to the port mapper are counted as NFS.
        let mapper = if service == Service::Nfs { self.at(Service::Portmap) } else { Vec::new() };
        let all = self.at(service).into_iter().chain(mapper);
        all.filter(|at| at.port() == local.port()).any(|at| same(&at))
    }

    fn list(&self) -> Vec<(Service, SocketAddr)> {
        use Service::{Nfs, NfsRdma, Portmap, Smb, SmbDirect};
        let all = [Nfs, NfsRdma, Smb, SmbDirect, Portmap];
        all.into_iter().flat_map(|s| self.at(s).into_iter().map(move |at| (s, at))).collect()
    }

    fn set(&self, listeners: &[Listening]) {
        let mut served: BTreeMap<Service, Vec<SocketAddr>> = BTreeMap::new();
        for listening in listeners {
            served.entry(listening.wanted.service).or_default().push(listening.local);
        }
        *writing(&self.tcp) = served;
    }
}

/// A listener for byte streams that the configuration requests.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    service: Service,
    /// Port 0 means any free port.
    at: SocketAddr,
}

/// Returns all listeners that the configuration requests.
fn wanted(settings: &Settings, with_smb: bool) -> Vec<Wanted> {
    let maps = settings.by_nfs() && settings.portmap == Portmap::Own;
    let nfs = settings.by_nfs().then_some(Service::Nfs);
    let smb = with_smb.then_some(Service::Smb);
    let services = [nfs, smb, maps.then_some(Service::Portmap)];
    let each = |service: Service| {
        let all = addresses(&settings.bind, service.port(settings)).into_iter();
        all.map(move |at| Wanted { service, at })
    };
    services.into_iter().flatten().flat_map(each).collect()
}

fn open(wanted: &Wanted, settings: &Settings) -> Result<Opened, String> {
    let Wanted { service, at } = *wanted;
    let refused = |e| port::refused(service.name(), at, &e, service.option());
    let socket = listen_tcp(at, settings).map_err(refused)?;
    let local = socket.local_addr().map_err(refused)?;
    Ok(Opened { wanted: wanted.clone(), local, socket })
}

fn open_all(wanted: &[&Wanted], settings: &Settings) -> Result<Vec<Opened>, String> {
    wanted.iter().map(|one| open(one, settings)).collect()
}

/// An open listener from which no task accepts yet.
struct Opened {
    wanted: Wanted,
    local: SocketAddr,
    socket: TcpListener,
}

/// A prepared change.
pub struct Step {
    opened: Vec<Opened>,
    /// Listeners that were closed to make room for those in `opened`.
    closed: Vec<Wanted>,
}

struct Listening {
    wanted: Wanted,
    local: SocketAddr,
    task: JoinHandle<()>,
}

impl Listening {
    /// Returns true if the other listener cannot be opened while this one is open.
    fn stands_in_the_way(&self, other: &Wanted) -> bool {
        let (a, b) = (self.local.ip(), other.at.ip());
        self.local.port() == other.at.port()
            && (a.is_unspecified() || b.is_unspecified() || a.to_canonical() == b.to_canonical())
    }

    async fn close(mut self) {
        self.task.abort();
        // The socket is closed only when the task has ended.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A change of the listeners, by service and address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    pub opened: Vec<(Service, SocketAddr)>,
    pub closed: Vec<(Service, SocketAddr)>,
}

pub struct Listeners {
    shared: Arc<Shared>,
    nfs: ProtocolServer,
    smb: ProtocolServer,
    open: Vec<Listening>,
    /// Settings with which they were opened.
    settings: Settings,
    rdma: rdma::ListenerReconciler,
    served: Arc<Served>,
}

impl Listeners {
    /// Starts without listeners. RDMA devices are used as `at_start` says until the process ends.
    pub fn new(
        shared: Arc<Shared>,
        nfs: ProtocolServer,
        smb: ProtocolServer,
        at_start: &Settings,
    ) -> Self {
        let rdma = rdma::ListenerReconciler::new(&shared, at_start);
        let served = Arc::new(Served { rdma: rdma.bound(), ..Served::default() });
        let settings = Settings::default();
        Self { shared, nfs, smb, open: Vec::new(), settings, rdma, served }
    }

    /// Returns the addresses of each service.
    pub fn served(&self) -> &Arc<Served> {
        &self.served
    }

    /// Opens the listeners of these settings that are not open yet. The error is one line for the user, and then nothing has
    /// changed.
    pub async fn prepare(&mut self, settings: &Settings, with_smb: bool) -> Result<Step, String> {
        let wanted = wanted(settings, with_smb);
        let is_open = |w: &Wanted| self.open.iter().any(|d| d.wanted == *w);
        let goes = |d: &Listening| !wanted.contains(&d.wanted);
        let in_the_way = |d: &Listening, w: &Wanted| goes(d) && d.stands_in_the_way(w);
        let (later, now): (Vec<&Wanted>, Vec<&Wanted>) = wanted
            .iter()
            .filter(|w| !is_open(w))
            .partition(|w| self.open.iter().any(|d| in_the_way(d, w)));
        let mut step = Step { opened: open_all(&now, settings)?, closed: Vec::new() };
        let blocking = |d: &Listening| later.iter().any(|w| in_the_way(d, w));
        let (closing, staying) = std::mem::take(&mut self.open).into_iter().partition(blocking);
        self.open = staying;
        for listening in closing {
            step.closed.push(listening.wanted.clone());
            listening.close().await;
        }
        let rest = match open_all(&later, settings) {
            Ok(more) => {
                step.opened.extend(more);
                let by_rdma = self.by_rdma(settings, with_smb, &step);
                self.rdma.change(settings, by_rdma).await
            }
            Err(why) => Err(why),
        };
        match rest {
            Ok(()) => Ok(step),
            Err(why) => {
                self.open_again(step);
                Err(why)
            }
        }
    }

    fn by_rdma(
        &self,
        settings: &Settings,
        with_smb: bool,
        step: &Step,
    ) -> Vec<(RdmaPort, ProtocolServer)> {
        let port = |service: Service, number, fabrics| {
            let named = (service.name(), service.option(), number);
            RdmaPort { named, fabrics }
        };
        let mut all = Vec::new();
        if settings.by_nfs() {
            let nfs = port(Service::NfsRdma, settings.nfs_rdma_port, Fabrics::All);
            all.push((nfs, self.nfs.clone()));
        }
        if with_smb {
            let over_tcp = self.smb_port(settings, step);
            for (number, fabrics) in smb_direct_ports(over_tcp, settings.smb.direct_port) {
                let direct = match fabrics {
                    Fabrics::RoceAndInfiniBand => {
                        let named = (Service::SmbDirect.name(), Service::Smb.option(), number);
                        RdmaPort { named, fabrics }
                    }
                    _ => port(Service::SmbDirect, number, fabrics),
                };
                all.push((direct, self.smb.clone()));
            }
        }
        all
    }

    /// Returns the port of SMB over TCP, also if the configuration allows any free port.
    fn smb_port(&self, settings: &Settings, step: &Step) -> u16 {
        let opened = step.opened.iter().map(|o| (&o.wanted, o.local));
        let mut all = opened.chain(self.open.iter().map(|d| (&d.wanted, d.local)));
        let asked = |w: &Wanted| w.service == Service::Smb && w.at.port() == settings.smb.port;
        all.find(|(wanted, _)| asked(wanted)).map_or(settings.smb.port, |(_, at)| at.port())
    }

    /// Reopens the listeners that a failed step had closed.
    fn open_again(&mut self, step: Step) {
        drop(step.opened);
        for wanted in &step.closed {
            match open(wanted, &self.settings) {
                Ok(opened) => self.enter(opened),
                Err(error) => tracing::error!(%error, "a listener could not be opened again"),
            }
        }
    }

    /// Starts to accept at the opened listeners, and closes those that these settings do not request.
    pub async fn commit(
        &mut self,
        settings: &Settings,
        with_smb: bool,
        step: Step,
        before: &[(Service, SocketAddr)],
    ) -> Moved {
        let wanted = wanted(settings, with_smb);
        for one in step.opened {
            self.enter(one);
        }
        let (staying, closing) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|d: &Listening| wanted.contains(&d.wanted));
        self.open = staying;
        // Keep the order of the configuration.
        self.open.sort_by_key(|d| wanted.iter().position(|w| *w == d.wanted));
        for listening in closing {
            listening.close().await;
        }
        self.settings = settings.clone();
        self.served.set(&self.open);
        let after = self.list();
        let new = |list: &[(Service, SocketAddr)], other: &[(Service, SocketAddr)]| {
            list.iter().filter(|a| !other.contains(a)).copied().collect()
        };
        Moved { opened: new(&after, before), closed: new(before, &after) }
    }

    /// Returns every listener with its service.
    pub fn list(&self) -> Vec<(Service, SocketAddr)> {
        self.served.list()
    }

    fn enter(&mut self, opened: Opened) {
        let Opened { wanted, local, socket } = opened;
        let front = match (wanted.service, &self.nfs) {
            (Service::Smb, _) => self.smb.clone(),
            (Service::Portmap, ProtocolServer::Nfs(server)) => {
                ProtocolServer::Portmap(server.clone())
            }
            _ => self.nfs.clone(),
        };
        let task = tokio::spawn(accept::tcp(socket, self.shared.clone(), front));
        self.open.push(Listening { wanted, local, task });
    }

    /// Closes all listeners, so that no new connection arrives.
    pub async fn close(&mut self) {
        for listening in std::mem::take(&mut self.open) {
            listening.close().await;
        }
        self.rdma.close().await;
    }
}
