//! Creates a queue pair before its connection is established.

use std::io::{self, Error, ErrorKind};
use std::sync::Arc;

use super::VerbsConfig;
use super::cm::{Events, Id};
use super::device::Device;
use super::hardware::{Depth, Hardware};
use super::keys::Keys;
use super::pair::VerbsPair;
use crate::limits::{
    VERBS_EARLY_RECVS, VERBS_RECVS_MIN, VERBS_REGIONS_MAX, VERBS_SEND_PIECES_MAX, VERBS_UNTAKEN_MAX,
};
use crate::verbs::{ConnectParams, Limits};

/// The requested number of Reads, limited by the device.
pub(super) fn reads(wished: u16, device: i32) -> u8 {
    let most = u16::try_from(device).unwrap_or(u16::MAX);
    u8::try_from(wished.min(most)).unwrap_or(u8::MAX)
}

/// Creates an unconnected queue pair. The order of the arguments matters as in [`Hardware::new`].
pub(super) fn pair(
    events: Events,
    id: Id,
    device: Arc<Device>,
    params: &ConnectParams,
    reads_out: u8,
    config: &VerbsConfig,
) -> io::Result<VerbsPair> {
    let most = u32::try_from(device.attr.max_qp_wr).unwrap_or(u32::MAX);
    let wanted = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    if most < VERBS_RECVS_MIN {
        let name = &device.name;
        let why = format!(
            "RDMA device {name} posts {most} receives at most, and {VERBS_RECVS_MIN} are needed"
        );
        return Err(Error::new(ErrorKind::Unsupported, why));
    }
    let recvs = wanted(params.recvs + VERBS_EARLY_RECVS).min(most);
    let depth = Depth { recvs, sends: wanted(params.sends).clamp(1, most) };
    let keys = Keys { slabs: device.slabs()?, device };
    let hw = Hardware::new(events, id, (keys.device.clone(), keys.slabs.clone()), depth)?;
    let depth = hw.depth;
    // Less is granted to the peer then.
    let recvs = usize::try_from(depth.recvs).unwrap_or(usize::MAX);
    let limits = Limits {
        recvs_max: recvs.saturating_sub(VERBS_EARLY_RECVS).min(params.recvs),
        sends_max: params.sends,
        send_pieces_max: VERBS_SEND_PIECES_MAX,
        reads_in_flight_max: usize::from(reads_out),
        regions_max: VERBS_REGIONS_MAX,
        backlog_useful: VERBS_UNTAKEN_MAX,
    };
    Ok(VerbsPair::new(hw, keys, limits, depth.sends, config.spin_max, config.close_time_max))
}
