//! Announces the gateway on the networks that it serves, as the crate `discovery` does it.
//!
//! *Operation.* What is announced follows the addresses of the listeners and of the host: after each reload, and whenever the
//! kernel reports a change of the network. In a cluster the service has the name, which moves with it.
//!
//! *Errors.* Nothing here keeps the gateway from serving: the log and `headgate status` say what cannot be announced.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use config::{Discovery as Mode, Settings};
use discovery::board::Board;
use discovery::links::{self, Listening, Macos};
use discovery::name::HostName;
use discovery::{Discovery, Identity};
use mutex::locked;
use rdma_transport::count;

use crate::boot::Run;
use crate::cluster::member;
use crate::host_name;
use crate::listeners::{Served, Service};

/// Returns the name under which this gateway is found: the service's in a cluster, else the host's.
pub(crate) fn name() -> HostName {
    HostName::of(&member::service_name().unwrap_or_else(host_name::kernels))
}

/// Says what is announced.
#[derive(Debug)]
pub(crate) struct Announcer {
    discovery: Discovery,
    served: Arc<Served>,
    wanted: Mutex<Wanted>,
}

/// The announced part of the settings.
#[derive(Clone, Debug, Default)]
struct Wanted {
    smb: bool,
    nfs: bool,
    macos: Macos,
}

/// Returns the announcement for macOS: the model, and the shares for its backups. Hidden shares are not announced.
pub(crate) fn macos(settings: &Settings) -> Macos {
    let backups = settings.by_smb().filter(|s| s.time_machine.is_some() && !s.hidden);
    Macos::new(&settings.smb.model.to_string(), backups.map(|s| s.name.as_str()))
}

impl Announcer {
    pub(crate) fn new(served: Arc<Served>, run: &Run) -> Self {
        let board = Arc::new(Board::new(count::limit_met));
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let identity = Identity { name: name(), id: run.server_guid, instance: began.as_secs() };
        Self { discovery: Discovery::new(identity, board), served, wanted: Mutex::default() }
    }

    /// Returns counters and status.
    pub(crate) fn board(&self) -> &Arc<Board> {
        self.discovery.board()
    }

    /// Announces what these settings serve. To be called in a runtime.
    pub(crate) fn set(&self, settings: &Settings) {
        let is_on = settings.discovery == Mode::On;
        *locked(&self.wanted) = Wanted {
            smb: is_on && settings.by_smb().next().is_some(),
            nfs: is_on && settings.by_nfs(),
            macos: macos(settings),
        };
        self.refresh();
    }

    /// Follows the addresses of listeners and host. To be called in a runtime.
    pub(crate) fn refresh(&self) {
        let Wanted { smb, nfs, macos } = locked(&self.wanted).clone();
        let at =
            |is_wanted: bool, service| if is_wanted { self.served.at(service) } else { Vec::new() };
        let listening = Listening { smb: at(smb, Service::Smb), nfs: at(nfs, Service::Nfs), macos };
        let links = match links::read() {
            Ok(links) => links,
            Err(error) => {
                tracing::warn!(%error, "the addresses of this host cannot be read: what is announced stays as it was");
                return;
            }
        };
        self.discovery.set(&links, &listening);
    }

    /// Withdraws everything.
    pub(crate) async fn close(&self) {
        self.discovery.close().await;
    }
}
