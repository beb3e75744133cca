//! Connects to a listener: address, route, request, reply.

use std::ffi::c_int;
use std::io::{self, Error, ErrorKind};
use std::net::SocketAddr;

use rdma_sys::rdma_cm_event_type::{self, *};

use super::VerbsConfig;
use super::cm::{Event, Events, Id, Terms};
use super::device::Devices;
use super::unconnected::{pair, reads};
use crate::verbs::{ConnectParams, Connected};

async fn expect(
    events: &Events,
    kind: rdma_cm_event_type::Type,
    to: SocketAddr,
) -> io::Result<Event> {
    let event = events.next().await?;
    if event.kind == kind {
        return Ok(event);
    }
    if event.kind == RDMA_CM_EVENT_REJECTED {
        let text = String::from_utf8_lossy(&event.private_data);
        let text = text.trim_end_matches('\0');
        let why = format!("{to} refused the RDMA connection ({text:?})");
        return Err(Error::new(ErrorKind::ConnectionRefused, why));
    }
    let why = format!("{to}: {} ({})", event.name(), event.status);
    Err(Error::new(ErrorKind::NotConnected, why))
}

fn milliseconds(config: &VerbsConfig) -> c_int {
    c_int::try_from(config.handshake_time_max.as_millis()).unwrap_or(c_int::MAX)
}

/// Binds `id` to the device that reaches the address.
async fn resolve(events: &Events, id: &Id, to: SocketAddr, milliseconds: c_int) -> io::Result<()> {
    id.resolve_addr(to, milliseconds)?;
    expect(events, RDMA_CM_EVENT_ADDR_RESOLVED, to).await.map(drop)
}

/// True if the device that reaches the address uses iWARP.
pub(super) async fn by_iwarp(config: &VerbsConfig, to: SocketAddr) -> io::Result<bool> {
    let events = Events::new()?;
    // Declared after its events, so that an early return drops it before them.
    let id = Id::new(&events)?;
    resolve(&events, &id, to, milliseconds(config)).await?;
    id.is_iwarp().ok_or_else(|| Error::other(format!("no RDMA device reaches {to}")))
}

pub(super) async fn dial(
    config: &VerbsConfig,
    devices: &Devices,
    to: SocketAddr,
    params: ConnectParams,
) -> io::Result<Connected> {
    let milliseconds = milliseconds(config);
    let events = Events::new()?;
    // Declared after its events, so that an early return drops it before them.
    let id = Id::new(&events)?;
    id.set_class(&config.class)?;
    resolve(&events, &id, to, milliseconds).await?;
    let _ = id.set_ack_timeout(config.ack_timeout);
    id.resolve_route(milliseconds)?;
    expect(&events, RDMA_CM_EVENT_ROUTE_RESOLVED, to).await?;
    let device = devices.of(&id, config)?;
    let terms = Terms {
        private_data: &params.private_data,
        reads_in: reads(params.reads_in, device.attr.max_qp_rd_atom),
        reads_out: reads(params.reads_out, device.attr.max_qp_init_rd_atom),
    };
    let pair = pair(events, id, device, &params, terms.reads_out, config)?;
    let hw = pair.hardware().ok_or(ErrorKind::NotConnected)?;
    hw.id.connect(&terms)?;
    let established = expect(&hw.events, RDMA_CM_EVENT_ESTABLISHED, to).await?;
    let (local, peer) = (hw.id.local(), hw.id.peer());
    let private_data = established.private_data;
    Ok(Connected { qp: Box::new(pair), private_data, peer, local })
}
