//! A gateway that `headgate cluster run` has started.

use std::env;

use cluster::environment::{EPOCH, PARENT};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// The epoch of the service that this gateway serves; `None`: it is of no cluster.
pub(crate) fn epoch() -> Option<u64> {
    // By itself it is no word of a cluster, and would be kept in the records for ever.
    env::var_os(PARENT)?;
    env::var(EPOCH).ok()?.parse().ok()
}

/// Ends this process with the one that decides whether it may serve, and lets it listen on addresses that come when it is ready.
/// Does nothing where no cluster has started it.
pub(crate) fn join() -> Result<(), String> {
    let Ok(parent) = env::var(PARENT) else { return Ok(()) };
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| format!("cannot end with `headgate cluster run`: {e}"))?;
    // It may have ended before that.
    let parent: Option<i32> = parent.parse().ok();
    if getppid().map(Pid::as_raw_pid) != parent || epoch().is_none() {
        return Err("this gateway is of a cluster, and `headgate cluster run` has ended".into());
    }
    rdma_transport::tcp::listen_before_addresses_come();
    Ok(())
}
