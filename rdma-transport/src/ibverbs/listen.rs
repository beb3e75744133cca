//! The provider, its listeners and incoming connections.
//!
//! *Operation.* A listener serves one address, or all addresses of every present and future device. If its device is removed, it
//! listens again as soon as the device returns. *Memory.* A pending connection costs an identifier. *Errors.* `io::Error` with the
//! remedy.

use std::io::{self, Error, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rdma_sys::rdma_cm_event_type;

use super::VerbsConfig;
use super::cm::{Event, Events, Id, Terms};
use super::device::Devices;
use super::hardware::used_up;
use super::unconnected::{pair, reads};
use crate::devices;
use crate::limits::{VERBS_BACKLOG, VERBS_EARLY_RECVS};
use crate::traffic_class::TrafficClass;
use crate::verbs::{BoxFuture, ConnectParams, Connected, Incoming, Listener, Provider};

/// Interval of attempts to listen again after a device was removed.
const AGAIN: Duration = Duration::from_secs(1);

/// The provider `verbs`.
#[derive(Clone)]
pub struct Verbs {
    config: Arc<VerbsConfig>,
    devices: Arc<Devices>,
}

impl Verbs {
    /// Creates a provider with this configuration. [`super::available`] tells whether it can work.
    pub fn new(config: VerbsConfig) -> Self {
        Self { config: Arc::new(config), devices: Arc::default() }
    }
}

impl Provider for Verbs {
    fn name(&self) -> &'static str {
        "verbs"
    }

    fn listen(&self, at: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            super::available().map_err(|why| Error::new(ErrorKind::Unsupported, why))?;
            let bound = Bound::new(at, &self.config.class)?;
            let local = bound.id.local();
            let provider = self.clone();
            Ok(Box::new(VerbsListener { local, bound: Some(bound), provider }) as Box<dyn Listener>)
        })
    }

    fn connect(
        &self,
        to: SocketAddr,
        params: ConnectParams,
    ) -> BoxFuture<'_, io::Result<Connected>> {
        let provider = self.clone();
        Box::pin(async move {
            super::available().map_err(|why| Error::new(ErrorKind::Unsupported, why))?;
            let limit = provider.config.handshake_time_max;
            match tokio::time::timeout(
                limit,
                super::dial::dial(&provider.config, &provider.devices, to, params),
            )
            .await
            {
                Ok(result) => result,
                Err(_) => Err(Error::new(ErrorKind::TimedOut, format!("{to} does not answer"))),
            }
        })
    }

    fn shares_tcp_ports(&self, to: SocketAddr) -> BoxFuture<'_, io::Result<bool>> {
        Box::pin(async move {
            super::available().map_err(|why| Error::new(ErrorKind::Unsupported, why))?;
            let limit = self.config.handshake_time_max;
            tokio::time::timeout(limit, super::dial::by_iwarp(&self.config, to))
                .await
                .map_err(|_| Error::new(ErrorKind::TimedOut, format!("{to} is not found")))?
        })
    }
}

struct Bound {
    // Dropped before its events.
    id: Id,
    events: Arc<Events>,
}

impl Bound {
    fn new(at: SocketAddr, class: &TrafficClass) -> io::Result<Self> {
        let events = Arc::new(Events::new().map_err(|e| explain(at, &e))?);
        let id = Id::new(&events).map_err(|e| explain(at, &e))?;
        // A library without this option does not need it.
        let _ = id.reuse_address();
        // An iWARP card answers clients in the listener's class.
        id.set_class(class).map_err(|e| explain(at, &e))?;
        id.bind(at).and_then(|()| id.listen(VERBS_BACKLOG)).map_err(|e| explain(at, &e))?;
        Ok(Self { id, events })
    }
}

fn explain(at: SocketAddr, e: &Error) -> Error {
    let why = match e.raw_os_error() {
        Some(libc::ENODEV | libc::EADDRNOTAVAIL) => {
            format!("no RDMA device serves {at}: {e} (`rdma link` lists devices and their state)")
        }
        Some(libc::EACCES | libc::EPERM | libc::ENOENT) => format!(
            "cannot listen for RDMA on {at}: {e}; this user needs read and write access to /dev/infiniband, and the kernel \
             its module rdma_ucm"
        ),
        Some(libc::EADDRINUSE) => format!(
            "{at} is taken for RDMA: {e}; an iWARP card shares its ports with TCP, so nothing else may listen there"
        ),
        _ => format!("cannot listen for RDMA on {at}: {e}"),
    };
    Error::new(e.kind(), why)
}

struct VerbsListener {
    local: SocketAddr,
    /// `None` while its device is removed.
    bound: Option<Bound>,
    provider: Verbs,
}

impl VerbsListener {
    /// Returns the connection that an event brings, if any.
    fn on_event(&mut self, event: Event) -> Option<Box<dyn Incoming>> {
        use rdma_cm_event_type::{RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_DEVICE_REMOVAL};
        let why = match event.kind {
            RDMA_CM_EVENT_DEVICE_REMOVAL => "its RDMA device went",
            RDMA_CM_EVENT_ADDR_CHANGE => "the address moved to another port or device",
            _ => "",
        };
        if !why.is_empty() {
            tracing::warn!(at = %self.local, why, "listening for RDMA again when a device is there");
            devices::note_change();
            self.bound = None;
            return None;
        }
        let Event { new, private_data, reads_in, reads_out, .. } = event;
        let id = new?;
        let events = self.bound.as_ref()?.events.clone();
        let peer = id.peer();
        Some(Box::new(VerbsIncoming {
            id: Some(id),
            peer,
            private_data,
            reads: (reads_in, reads_out),
            provider: self.provider.clone(),
            _events: events,
        }))
    }
}

impl Listener for VerbsListener {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Incoming>>> {
        Box::pin(async move {
            loop {
                let Some(bound) = &self.bound else {
                    self.bound = Bound::new(self.local, &self.provider.config.class).ok();
                    match self.bound {
                        Some(_) => tracing::info!(at = %self.local, "listening for RDMA again"),
                        None => tokio::time::sleep(AGAIN).await,
                    }
                    continue;
                };
                let event = bound.events.next().await?;
                if let Some(incoming) = self.on_event(event) {
                    return Ok(incoming);
                }
            }
        })
    }
}

struct VerbsIncoming {
    id: Option<Id>,
    peer: SocketAddr,
    private_data: Bytes,
    /// RDMA Reads that the peer may send and accept.
    reads: (u8, u8),
    provider: Verbs,
    // Dropped after the identifier, which uses the listener's channel until it is accepted; the listener may be dropped first.
    _events: Arc<Events>,
}

impl Drop for VerbsIncoming {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            id.reject(&[]);
        }
    }
}

impl Incoming for VerbsIncoming {
    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn request(&mut self) -> BoxFuture<'_, io::Result<Bytes>> {
        Box::pin(async move { Ok(self.private_data.clone()) })
    }

    fn accept(
        mut self: Box<Self>,
        params: ConnectParams,
    ) -> BoxFuture<'static, io::Result<Connected>> {
        Box::pin(async move { self.accepted(&params) })
    }

    fn reject(mut self: Box<Self>, private_data: Bytes) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if let Some(id) = self.id.take() {
                id.reject(&private_data);
            }
        })
    }
}

impl VerbsIncoming {
    fn accepted(&mut self, params: &ConnectParams) -> io::Result<Connected> {
        let taken = || Error::from(ErrorKind::NotConnected);
        let Verbs { config, devices } = &self.provider;
        let device = devices.of(self.id.as_ref().ok_or_else(taken)?, config)?;
        let events = Events::new()
            .map_err(|e| used_up(&device.name, "event channel", device.attr.max_qp, &e))?;
        self.id.as_ref().ok_or_else(taken)?.migrate(&events)?;
        let id = self.id.take().ok_or_else(taken)?;
        let (local, peer) = (id.local(), id.peer());
        let terms = Terms {
            private_data: &params.private_data,
            reads_in: reads(params.reads_in, device.attr.max_qp_rd_atom).min(self.reads.0),
            reads_out: reads(params.reads_out, device.attr.max_qp_init_rd_atom).min(self.reads.1),
        };
        // Not options of every library; the first is nothing to iWARP, and RoCE answers in the class of the client's request.
        let _ = id.set_ack_timeout(config.ack_timeout);
        let _ = id.set_class(&config.class);
        let mut pair = pair(events, id, device, params, terms.reads_out, config)?;
        pair.post_early(VERBS_EARLY_RECVS, params.recv_size)?;
        let hw = pair.hardware().ok_or_else(taken)?;
        hw.id.accept(&terms)?;
        pair.accepted();
        Ok(Connected { qp: Box::new(pair), private_data: self.private_data.clone(), peer, local })
    }
}
