//! The RDMA listeners: opened according to the plan, and opened and closed as devices and addresses appear and disappear.
//!
//! *Operation.* A task reads the state of the host every [`LOOK_EVERY`] and adjusts the listeners to the plan
//! ([`Listeners::follow`]). [`ListenerReconciler::change`] sends it the configuration, at the start and at each reload.
//! Accepted connections are not affected: they end with their device.
//!
//! *Errors.* At the start and at a reload, a configured listener that cannot be opened is one line for the user. Under `rdma:
//! auto` a device that refuses is not tried again for [`REFUSED_FOR`], with one line in the log, and the next best provider
//! serves its address. A device that listens on one port and refuses another keeps the first, and the second is tried again
//! after that time.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use config::{Rdma, RdmaCrc, RelaxedOrdering, Settings};
use mutex::{reading, writing};
use rdma_transport::devices::Fabric;
use rdma_transport::ibverbs::{self, Verbs, VerbsConfig};
use rdma_transport::iwarp::{Iwarp, IwarpConfig};
use rdma_transport::traffic_class::TrafficClass;
use rdma_transport::verbs::Provider;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::host::{Host, Watcher};
use super::plan::{self, AddressOffer, By, ListenEndpoint, Refused};
use crate::accept::{self, ProtocolServer, Shared, Way};
use crate::listen::{Named, RdmaPort, listen_rdma};
use crate::port;

/// Time between two looks at the host.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Time for which a device that refused is not tried again.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// Returns the provider that uses RDMA devices, if available.
fn hardware(settings: &Settings, class: &TrafficClass) -> Option<Arc<dyn Provider>> {
    ibverbs::available().ok()?;
    let usual = VerbsConfig::default();
    let spin_max = settings.rdma_spin.unwrap_or(usual.spin_max);
    let relaxed_ordering = settings.rdma_relaxed_ordering == RelaxedOrdering::On;
    let class = class.clone();
    Some(Arc::new(Verbs::new(VerbsConfig { spin_max, relaxed_ordering, class, ..usual })))
}

/// An open listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    /// Service of the listener.
    what: &'static str,
    at: SocketAddr,
    /// Clients of its fabric dial this port.
    is_dialled: bool,
}

/// Addresses that are listened on now; shared with the code that reports them to clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct BoundAddresses(Arc<RwLock<Vec<Bound>>>);

impl BoundAddresses {
    /// Returns the addresses of one service, each once.
    pub(crate) fn at(&self, what: &str) -> Vec<SocketAddr> {
        self.those(|b| b.what == what)
    }

    /// Returns the addresses of one service at which clients of the listener's own fabric look for it.
    pub(crate) fn dialled_at(&self, what: &str) -> Vec<SocketAddr> {
        self.those(|b| b.what == what && b.is_dialled)
    }

    fn those(&self, which: impl Fn(&Bound) -> bool) -> Vec<SocketAddr> {
        let all = reading(&self.0);
        let its: BTreeSet<SocketAddr> = all.iter().filter(|b| which(b)).map(|b| b.at).collect();
        its.into_iter().collect()
    }
}

/// Reads the state of the host.
type Look = Arc<dyn Fn(&Settings) -> Host + Send + Sync>;

/// Every listener of RDMA.
pub(crate) struct Listeners {
    settings: Settings,
    look: Look,
    iwarp: Arc<dyn Provider>,
    /// `None` if the libraries are missing; then the plan requests no devices.
    verbs: Option<Arc<dyn Provider>>,
    shared: Arc<Shared>,
    listeners: Vec<Listening>,
    refused: Refused,
    /// Ports that a device refused while it listens on others.
    refused_ports: BTreeSet<(ListenEndpoint, u16)>,
    refused_at: Instant,
    /// The latest messages about each address and about listeners, so that each is logged once.
    told: BTreeMap<IpAddr, String>,
    complaints: BTreeSet<String>,
    bound: BoundAddresses,
}

/// The port of one protocol, with its listeners.
struct Listening {
    /// Port as configured.
    asked: RdmaPort,
    /// Port with the number in use, if the configuration allows any.
    named: Named,
    front: ProtocolServer,
    open: BTreeMap<ListenEndpoint, Open>,
    /// Added by the change in progress.
    is_new: bool,
}

impl Listening {
    fn new((asked, front): (RdmaPort, ProtocolServer)) -> Self {
        Self { asked, named: asked.named, front, open: BTreeMap::new(), is_new: true }
    }

    fn bound(&self) -> impl Iterator<Item = Bound> {
        let one = |(spot, open): (&ListenEndpoint, &Open)| Bound {
            what: self.named.0,
            at: open.at,
            is_dialled: self.asked.fabrics.dial(spot.by),
        };
        self.open.iter().map(one)
    }

    /// Closes the listeners for which `which` returns true.
    async fn close(&mut self, which: impl Fn(&ListenEndpoint, &Open) -> bool) {
        let gone: Vec<ListenEndpoint> =
            self.open.iter().filter(|(s, o)| which(s, o)).map(|(s, _)| *s).collect();
        for spot in gone {
            if let Some(mut open) = self.open.remove(&spot) {
                open.task.abort();
                // The socket is closed only when the task has ended; the result is always "aborted".
                let _ = (&mut open.task).await;
            }
        }
    }
}

/// A listener and its task. Dropping it ends the task.
struct Open {
    at: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The wanted configuration, and the sender for the result.
type Change = (Settings, Vec<(RdmaPort, ProtocolServer)>, oneshot::Sender<Result<(), String>>);

/// Handle of the task that follows the host and the configuration.
pub(crate) struct ListenerReconciler {
    changes: mpsc::Sender<Change>,
    task: JoinHandle<()>,
    bound: BoundAddresses,
}

impl ListenerReconciler {
    /// Starts without wanted listeners. Devices are used as `at_start` says until the process ends.
    pub(crate) fn new(shared: &Arc<Shared>, at_start: &Settings) -> Self {
        let settings = Settings { rdma: Rdma::Off, ..Settings::default() };
        let watcher = Watcher::default();
        let look = Arc::new(move |settings: &Settings| watcher.look(settings));
        let verbs = hardware(at_start, &shared.class);
        let listeners = Listeners::new(&settings, shared, Vec::new(), verbs, look);
        let bound = listeners.bound.clone();
        let (changes, asked) = mpsc::channel(1);
        Self { changes, task: tokio::spawn(listeners.follow(asked)), bound }
    }

    /// Returns the addresses at which they listen.
    pub(crate) fn bound(&self) -> BoundAddresses {
        self.bound.clone()
    }

    /// Opens the listeners of these settings and closes the rest. The error is one line for standard error, and then nothing has
    /// changed.
    pub(crate) async fn change(
        &self,
        settings: &Settings,
        fronts: Vec<(RdmaPort, ProtocolServer)>,
    ) -> Result<(), String> {
        let gone = || "the task that manages the RDMA listeners has ended".to_owned();
        let (answer, wait) = oneshot::channel();
        self.changes.send((settings.clone(), fronts, answer)).await.map_err(|_| gone())?;
        wait.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Closes all listeners.
    pub(crate) async fn close(&mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for ListenerReconciler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn own_iwarp(settings: &Settings, class: &TrafficClass) -> IwarpConfig {
    let crc = settings.rdma_crc == RdmaCrc::Always;
    let usual = IwarpConfig::default();
    let handshake_time_max = usual.handshake_time_max.min(settings.limits.introduction);
    IwarpConfig { crc, handshake_time_max, class: class.clone(), ..usual }
}

impl Listeners {
    fn new(
        settings: &Settings,
        shared: &Arc<Shared>,
        fronts: Vec<(RdmaPort, ProtocolServer)>,
        verbs: Option<Arc<dyn Provider>>,
        look: Look,
    ) -> Self {
        Self {
            settings: settings.clone(),
            look,
            iwarp: Arc::new(Iwarp::new(own_iwarp(settings, &shared.class))),
            verbs,
            shared: shared.clone(),
            listeners: fronts.into_iter().map(Listening::new).collect(),
            refused: Refused::new(),
            refused_ports: BTreeSet::new(),
            refused_at: Instant::now(),
            told: BTreeMap::new(),
            complaints: BTreeSet::new(),
            bound: BoundAddresses::default(),
        }
    }

    async fn begin(&mut self) -> Result<(), String> {
        if self.settings.rdma == Rdma::Off {
            self.close_others(&BTreeSet::new()).await;
            self.tell_where();
            return Ok(());
        }
        let host = self.host().await;
        let offers = plan::offers(self.settings.rdma, &self.settings.bind, &host, &self.refused);
        plan::demanded(self.settings.rdma, &self.settings.bind, &offers)?;
        match self.make_so(&host).await.into_iter().next() {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    /// Applies these settings. A listener with an unchanged port continues; if the port or its checksums change, it is reopened. An
    /// iWARP card takes the traffic class of connections from their listener, so that listener is reopened if the class changes.
    async fn change(
        &mut self,
        settings: Settings,
        fronts: Vec<(RdmaPort, ProtocolServer)>,
    ) -> Result<(), String> {
        let class = &self.shared.class;
        let other_iwarp = own_iwarp(&settings, class) != own_iwarp(&self.settings, class);
        let other_class = settings.rdma_dscp != self.settings.rdma_dscp;
        let is_reopened = |spot: &ListenEndpoint| match spot.by {
            By::Iwarp => other_iwarp,
            By::Verbs(Fabric::Iwarp) => other_class,
            By::Verbs(_) => false,
        };
        let stays = |d: &Listening| {
            let wanted = |(port, _): &(RdmaPort, ProtocolServer)| *port == d.asked;
            fronts.iter().any(wanted) && !d.open.keys().any(is_reopened)
        };
        let mut old = std::mem::take(&mut self.listeners);
        old.iter_mut().for_each(|d| d.is_new = false);
        let (mut kept, mut going): (Vec<Listening>, Vec<Listening>) =
            old.into_iter().partition(stays);
        for (port, front) in fronts {
            let at = kept.iter().position(|d| d.asked == port);
            let listening =
                at.map_or_else(|| Listening::new((port, front)), |at| kept.swap_remove(at));
            self.listeners.push(listening);
        }
        // A new listener may need the address of one that is removed.
        for listening in &mut going {
            listening.close(|_, _| true).await;
        }
        let before = std::mem::replace(&mut self.settings, settings);
        self.set_class();
        let iwarp = match other_iwarp {
            true => {
                let other = Arc::new(Iwarp::new(own_iwarp(&self.settings, &self.shared.class)));
                std::mem::replace(&mut self.iwarp, other)
            }
            false => self.iwarp.clone(),
        };
        let done = self.begin().await;
        if done.is_err() {
            for listening in self.listeners.iter_mut().filter(|d| d.is_new) {
                listening.close(|_, _| true).await;
            }
            self.listeners.retain(|d| !d.is_new);
            self.listeners.append(&mut going);
            (self.settings, self.iwarp) = (before, iwarp);
            self.set_class();
            if let Err(lost) = self.begin().await {
                tracing::error!("a listener could not be opened again: {lost}");
            }
        }
        done
    }

    /// Applies the traffic class to connections from now on.
    fn set_class(&self) {
        self.shared.class.set(self.settings.rdma_dscp.map(|dscp| dscp.0));
    }

    /// Follows the host and the configuration while the daemon runs.
    async fn follow(mut self, mut asked: mpsc::Receiver<Change>) {
        loop {
            tokio::select! {
                change = asked.recv() => match change {
                    Some((settings, fronts, answer)) => {
                        // The caller may have stopped waiting.
                        let _ = answer.send(self.change(settings, fronts).await);
                    }
                    None => return,
                },
                () = tokio::time::sleep(LOOK_EVERY), if self.settings.rdma != Rdma::Off => {
                    self.look_again().await;
                }
            }
        }
    }

    async fn look_again(&mut self) {
        if self.refused_at.elapsed() > REFUSED_FOR {
            self.refused.clear();
            self.refused_ports.clear();
        }
        let host = self.host().await;
        let complaints: BTreeSet<String> = self.make_so(&host).await.into_iter().collect();
        for new in complaints.difference(&self.complaints) {
            tracing::warn!("{new}");
        }
        self.complaints = complaints;
    }

    /// Reads the state of the host on a blocking thread: sysfs may wait for a driver.
    async fn host(&self) -> Host {
        let (look, settings) = (self.look.clone(), self.settings.clone());
        match tokio::task::spawn_blocking(move || look(&settings)).await {
            Ok(host) => host,
            // Only a panic of the closure ends it.
            Err(e) => std::panic::resume_unwind(e.into_panic()),
        }
    }

    /// Closes unwanted listeners and opens wanted ones. Returns one line for each that could not be opened.
    async fn make_so(&mut self, host: &Host) -> Vec<String> {
        loop {
            let mode = self.settings.rdma;
            let offers = plan::offers(mode, &self.settings.bind, host, &self.refused);
            let wanted = plan::spots(mode, &self.settings.bind, &offers);
            self.tell(&offers);
            self.close_others(&wanted).await;
            let mut failed = self.open_missing(&wanted, &offers).await;
            self.tell_where();
            if mode != Rdma::Verbs {
                self.leave_ports(&mut failed, host);
            }
            let refusals = self.refusals(&failed, &offers, host);
            // Each round refuses at least one more device, so the loop ends.
            if refusals.is_empty() || mode == Rdma::Verbs {
                return failed.iter().map(|f| self.complaint(f, host)).collect();
            }
            self.refused_at = Instant::now();
            self.refused.extend(refusals);
        }
    }

    fn tell_where(&self) {
        *writing(&self.bound.0) = self.listeners.iter().flat_map(Listening::bound).collect();
    }

    /// Removes those failures that affect only one port of a device that listens on another. An iWARP card shares its ports with
    /// TCP, so there user-space iWARP may serve the port that the card cannot.
    fn leave_ports(&mut self, failed: &mut Vec<Failed>, host: &Host) {
        let listens = |spot: &ListenEndpoint| {
            !spot.by.shares_tcp_ports() && self.listeners.iter().any(|d| d.open.contains_key(spot))
        };
        let (ports, rest): (Vec<_>, Vec<_>) = failed.drain(..).partition(|f| listens(&f.spot));
        *failed = rest;
        for f in ports {
            tracing::warn!("{}", self.complaint(&f, host));
            self.refused_at = Instant::now();
            self.refused_ports.insert((f.spot, f.named.2));
        }
    }

    /// Returns the failures that count as a device's refusal.
    fn refusals(&self, failed: &[Failed], offers: &[AddressOffer], host: &Host) -> Refused {
        let device = |f: &Failed| {
            let offer = offers.iter().find(|o| o.ip == f.spot.ip)?;
            offer.device().map(|d| d.device.clone())
        };
        let of_devices = failed.iter().filter(|f| f.spot.by != By::Iwarp);
        let one = |f: &Failed| {
            let name = device(f).unwrap_or_default();
            let why = format!("{name} refused: {}", self.complaint(f, host));
            ((f.spot.ip, f.spot.incarnation), why)
        };
        of_devices.map(one).collect()
    }

    /// Returns one line about a listener that could not be opened. An iWARP device shares its ports with TCP, so the holder of
    /// the TCP port has both.
    fn complaint(&self, f: &Failed, host: &Host) -> String {
        let (what, option, number) = f.named;
        let at = SocketAddr::new(f.spot.ip, number);
        let line = port::refused(what, at, &f.error, option);
        let netdev =
            host.addresses.iter().find(|a| a.ip == f.spot.ip).and_then(|a| a.device.as_deref());
        let served = netdev.and_then(|n| host.devices.at(f.spot.ip, n).ok().flatten());
        match served {
            Some(s) if s.fabric == Fabric::Iwarp && f.error.kind() == io::ErrorKind::AddrInUse => {
                format!(
                    "{line} ({} is an iWARP device: it shares its ports with TCP, so a kernel server on the device, a program \
                     and this gateway exclude each other)",
                    s.device
                )
            }
            _ => line,
        }
    }

    fn tell(&mut self, offers: &[AddressOffer]) {
        self.told.retain(|ip, _| offers.iter().any(|o| o.ip == *ip));
        for o in offers {
            let words = match (&o.verbs, &o.iwarp) {
                (Ok(Some(d)), Ok(())) => format!("RDMA over {d}, and over iWARP in user space"),
                (Ok(Some(d)), Err(_)) => format!("RDMA over {d}"),
                (Ok(None), _) => String::new(),
                (Err(why), Ok(())) => format!("RDMA over iWARP in user space: {why}"),
                (Err(why), Err(_)) => format!("no RDMA: {why}"),
            };
            let before = self.told.insert(o.ip, words.clone()).unwrap_or_default();
            let modest = self.settings.rdma == Rdma::Iwarp;
            match &o.verbs {
                _ if before == words || modest => {}
                Ok(Some(_)) => tracing::info!(address = %o.ip, "{words}"),
                Ok(None) => {
                    tracing::info!(address = %o.ip, "the RDMA device of this address is gone")
                }
                Err(_) => tracing::warn!(address = %o.ip, "{words}"),
            }
        }
    }

    async fn close_others(&mut self, wanted: &BTreeSet<ListenEndpoint>) {
        for listening in &mut self.listeners {
            let over = |spot: &ListenEndpoint, open: &Open| {
                !wanted.contains(spot) || open.task.is_finished()
            };
            listening.close(over).await;
        }
    }

    async fn open_missing(
        &mut self,
        wanted: &BTreeSet<ListenEndpoint>,
        offers: &[AddressOffer],
    ) -> Vec<Failed> {
        let mut failed = Vec::new();
        for listening in &mut self.listeners {
            for spot in wanted.iter().filter(|spot| listening.asked.fabrics.open(spot.by)) {
                let refused = self.refused_ports.contains(&(*spot, listening.named.2));
                if refused || listening.open.contains_key(spot) {
                    continue;
                }
                let provider = match spot.by {
                    By::Iwarp => Some(&self.iwarp),
                    By::Verbs(_) => self.verbs.as_ref(),
                };
                let Some(provider) = provider else { continue };
                let at = SocketAddr::new(spot.ip, listening.named.2);
                match listen_rdma(provider.as_ref(), at, &self.settings).await {
                    Ok(listener) => {
                        let at = listener.local_addr();
                        // If any free port will do, all listeners of a protocol use the port of the first.
                        listening.named.2 = at.port();
                        let (shared, front) = (self.shared.clone(), listening.front.clone());
                        let way = Way { provider: provider.name(), device: device(spot, offers) };
                        let task = tokio::spawn(accept::rdma(way, listener, shared, front));
                        listening.open.insert(*spot, Open { at, task });
                    }
                    Err(error) => {
                        failed.push(Failed { spot: *spot, named: listening.named, error })
                    }
                }
            }
        }
        failed
    }
}

/// Returns a description of a listener's device.
fn device(spot: &ListenEndpoint, offers: &[AddressOffer]) -> Option<String> {
    let offer = offers.iter().find(|o| spot.by != By::Iwarp && o.ip == spot.ip)?;
    offer.device().map(ToString::to_string)
}

/// A listener that could not be opened.
struct Failed {
    spot: ListenEndpoint,
    named: Named,
    error: io::Error,
}

#[cfg(test)]
pub(crate) mod tests;
