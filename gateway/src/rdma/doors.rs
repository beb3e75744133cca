//! The listeners of RDMA: opened by the plan, and opened and closed anew as devices and addresses come and go.
//!
//! *Operation.* [`Doors::open`] looks at the host and opens what is wanted. [`Doors::follow`] looks again every [`LOOK_EVERY`] and
//! makes what listens equal to what is wanted. Connections that were accepted are not touched by that: they end with their device.
//!
//! *Errors.* At the start, what the configuration names and cannot be had is one line for the user. A device that refuses under
//! `rdma: auto` is left alone for [`REFUSED_FOR`], with one line in the log, and its address is served by the next best way.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use config::{Rdma, RdmaCrc, Settings};
use rdma_transport::devices::Fabric;
use rdma_transport::ibverbs::{self, Verbs, VerbsConfig};
use rdma_transport::iwarp::{Iwarp, IwarpConfig};
use rdma_transport::verbs::Provider;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::host::{self, Host};
use super::plan::{self, By, Offer, Refused, Spot};
use crate::accept::{self, Front, Shared, Way};
use crate::listen::{Named, listen_rdma};
use crate::port;

/// How often the host is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long a device that refused is left alone.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// The provider that uses RDMA devices, or why there is none.
pub(crate) fn hardware() -> Result<Arc<dyn Provider>, String> {
    ibverbs::available()?;
    Ok(Arc::new(Verbs::new(VerbsConfig::default())))
}

/// Where something listens now; shared with those who tell clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard(Arc<RwLock<Vec<(&'static str, SocketAddr)>>>);

impl Heard {
    /// The addresses of one protocol's port, each once.
    pub(crate) fn at(&self, what: &str) -> Vec<SocketAddr> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let its: BTreeSet<SocketAddr> =
            all.iter().filter(|(name, _)| *name == what).map(|(_, at)| *at).collect();
        its.into_iter().collect()
    }
}

/// What asks the host.
type Look = Arc<dyn Fn() -> Host + Send + Sync>;

/// Every listener of RDMA.
pub(crate) struct Doors {
    settings: Settings,
    look: Look,
    iwarp: Arc<dyn Provider>,
    /// None where the libraries are missing; then the plan wants none.
    verbs: Option<Arc<dyn Provider>>,
    shared: Arc<Shared>,
    doors: Vec<Door>,
    refused: Refused,
    refused_at: Instant,
    /// What was said of each address last, and what of listeners, so that it is said once.
    told: BTreeMap<IpAddr, String>,
    complaints: BTreeSet<String>,
    heard: Heard,
}

/// One protocol's port.
struct Door {
    named: Named,
    front: Front,
    open: BTreeMap<Spot, Open>,
}

/// A listener and its task, which ends with this.
struct Open {
    at: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Doors {
    /// Opens what is wanted now. The error is one line for standard error.
    pub(crate) async fn open(
        settings: &Settings,
        shared: &Arc<Shared>,
        fronts: Vec<(Named, Front)>,
    ) -> Result<Self, String> {
        let crc = settings.rdma_crc == RdmaCrc::Always;
        let iwarp = Arc::new(Iwarp::new(IwarpConfig { crc, ..IwarpConfig::default() }));
        let own = settings.clone();
        let look = Arc::new(move || host::look(&own));
        let mut doors = Self::new(settings, shared, fronts, (iwarp, hardware().ok()), look);
        doors.begin().await?;
        Ok(doors)
    }

    fn new(
        settings: &Settings,
        shared: &Arc<Shared>,
        fronts: Vec<(Named, Front)>,
        (iwarp, verbs): (Arc<dyn Provider>, Option<Arc<dyn Provider>>),
        look: Look,
    ) -> Self {
        let door = |(named, front)| Door { named, front, open: BTreeMap::new() };
        Self {
            settings: settings.clone(),
            look,
            iwarp,
            verbs,
            shared: shared.clone(),
            doors: fronts.into_iter().map(door).collect(),
            refused: Refused::new(),
            refused_at: Instant::now(),
            told: BTreeMap::new(),
            complaints: BTreeSet::new(),
            heard: Heard::default(),
        }
    }

    async fn begin(&mut self) -> Result<(), String> {
        if self.settings.rdma == Rdma::Off {
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

    /// Where they listen.
    pub(crate) fn heard(&self) -> Heard {
        self.heard.clone()
    }

    /// Follows the host for as long as the daemon runs.
    pub(crate) async fn follow(mut self) {
        if self.settings.rdma == Rdma::Off {
            return;
        }
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.look_again().await;
        }
    }

    async fn look_again(&mut self) {
        if self.refused_at.elapsed() > REFUSED_FOR {
            self.refused.clear();
        }
        let host = self.host().await;
        let complaints: BTreeSet<String> = self.make_so(&host).await.into_iter().collect();
        for new in complaints.difference(&self.complaints) {
            tracing::warn!("{new}");
        }
        self.complaints = complaints;
    }

    /// Reading sysfs may wait for a driver.
    async fn host(&self) -> Host {
        let look = self.look.clone();
        match tokio::task::spawn_blocking(move || look()).await {
            Ok(host) => host,
            // Only a panic of ours ends it.
            Err(e) => std::panic::resume_unwind(e.into_panic()),
        }
    }

    /// Closes what is not wanted, opens what is; gives what could not be opened, a line each.
    async fn make_so(&mut self, host: &Host) -> Vec<String> {
        loop {
            let mode = self.settings.rdma;
            let offers = plan::offers(mode, &self.settings.bind, host, &self.refused);
            let wanted = plan::spots(mode, &self.settings.bind, &offers);
            self.tell(&offers);
            self.close_others(&wanted).await;
            let failed = self.open_missing(&wanted, &offers).await;
            let refusals = self.refusals(&failed, &offers, host);
            let heard = self.doors.iter().flat_map(|d| d.open.values().map(|o| (d.named.0, o.at)));
            *self.heard.0.write().unwrap_or_else(PoisonError::into_inner) = heard.collect();
            // Each turn refuses one device more at least, so this ends.
            if refusals.is_empty() || mode == Rdma::Verbs {
                return failed.iter().map(|f| self.complaint(f, host)).collect();
            }
            self.refused_at = Instant::now();
            self.refused.extend(refusals);
        }
    }

    /// Those of the failures that are a device's.
    fn refusals(&self, failed: &[Failed], offers: &[Offer], host: &Host) -> Refused {
        let device = |f: &Failed| {
            let offer = offers.iter().find(|o| o.ip == f.spot.ip)?;
            offer.device().map(|d| d.device.clone())
        };
        let of_devices = failed.iter().filter(|f| f.spot.by == By::Verbs);
        let one = |f: &Failed| {
            let name = device(f).unwrap_or_default();
            let why = format!("{name} refused: {}", self.complaint(f, host));
            ((f.spot.ip, f.spot.incarnation), why)
        };
        of_devices.map(one).collect()
    }

    /// One line about a listener that could not be opened. Ports of an iWARP device are TCP's: whoever has one, has it of both.
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
                    "{line} ({} is an iWARP device: its ports and TCP's are the same, so a kernel server that listens by it, a \
                 program and this gateway exclude each other)",
                    s.device
                )
            }
            _ => line,
        }
    }

    fn tell(&mut self, offers: &[Offer]) {
        self.told.retain(|ip, _| offers.iter().any(|o| o.ip == *ip));
        for o in offers {
            let words = match (&o.verbs, &o.iwarp) {
                (Ok(Some(d)), Ok(())) => format!("RDMA by {d}, and by iWARP in user space"),
                (Ok(Some(d)), Err(_)) => format!("RDMA by {d}"),
                (Ok(None), _) => String::new(),
                (Err(why), Ok(())) => format!("RDMA by iWARP in user space: {why}"),
                (Err(why), Err(_)) => format!("no RDMA: {why}"),
            };
            let before = self.told.insert(o.ip, words.clone()).unwrap_or_default();
            let modest = self.settings.rdma == Rdma::Iwarp;
            match &o.verbs {
                _ if before == words || modest => {}
                Ok(Some(_)) => tracing::info!(address = %o.ip, "{words}"),
                Ok(None) => tracing::info!(address = %o.ip, "no RDMA device any more"),
                Err(_) => tracing::warn!(address = %o.ip, "{words}"),
            }
        }
    }

    async fn close_others(&mut self, wanted: &BTreeSet<Spot>) {
        for door in &mut self.doors {
            let over = |spot: &Spot, open: &Open| !wanted.contains(spot) || open.task.is_finished();
            let gone: Vec<Spot> =
                door.open.iter().filter(|(s, o)| over(s, o)).map(|(s, _)| *s).collect();
            for spot in gone {
                if let Some(mut open) = door.open.remove(&spot) {
                    open.task.abort();
                    // Its socket is closed when the task is gone; that it was aborted is no news.
                    let _ = (&mut open.task).await;
                }
            }
        }
    }

    async fn open_missing(&mut self, wanted: &BTreeSet<Spot>, offers: &[Offer]) -> Vec<Failed> {
        let mut failed = Vec::new();
        for door in &mut self.doors {
            for spot in wanted {
                if door.open.contains_key(spot) {
                    continue;
                }
                let provider = match spot.by {
                    By::Iwarp => Some(&self.iwarp),
                    By::Verbs => self.verbs.as_ref(),
                };
                let Some(provider) = provider else { continue };
                let at = SocketAddr::new(spot.ip, door.named.2);
                match listen_rdma(provider.as_ref(), at, &self.settings).await {
                    Ok(listener) => {
                        let at = listener.local_addr();
                        // Where any port will do, all listeners of a protocol take that of the first.
                        door.named.2 = at.port();
                        let (shared, front) = (self.shared.clone(), door.front.clone());
                        let way = Way { provider: provider.name(), device: device(spot, offers) };
                        let task = tokio::spawn(accept::rdma(way, listener, shared, front));
                        door.open.insert(*spot, Open { at, task });
                    }
                    Err(error) => failed.push(Failed { spot: *spot, named: door.named, error }),
                }
            }
        }
        failed
    }
}

/// The device of a listener, in words.
fn device(spot: &Spot, offers: &[Offer]) -> Option<String> {
    let offer = offers.iter().find(|o| spot.by == By::Verbs && o.ip == spot.ip)?;
    offer.device().map(ToString::to_string)
}

/// A listener that could not be opened.
struct Failed {
    spot: Spot,
    named: Named,
    error: io::Error,
}

#[cfg(test)]
mod tests;
