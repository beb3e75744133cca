//! NSM version 1 (X/Open XNFS chapter 11): notifies hosts of our restart, and receives notices of theirs.
//!
//! *Operation.* A host is entered in the lock manager's durable list before it gets its first lock. At the next start every host of
//! the list is notified with SM_NOTIFY, so that it reclaims its locks within the grace period or learns that they are lost. When a
//! host reports its own restart with SM_NOTIFY, its locks are released. Any host could send such a notice: [`Nlm::rebooted`]
//! decides which ones to accept.
//!
//! This monitor serves only the lock manager in this process. The kernel's lock manager (used when the machine is an NFS client
//! itself) restarts at other times than this process, so SM_MON gets STAT_FAIL.
//!
//! *Memory.* One short record for each host that locks.
//!
//! *Errors.* A notice is ignored and counted if its address may use no share, if its host did not lock from that address, or if its
//! number is no news.

mod notify;

use std::sync::atomic::Ordering;

use nfs_proto::nsm::{Args, Res, SmStat, SmStatRes};

use crate::context::{Conn, Outcome};
use crate::nlm::Nlm;
use rdma_transport::xdr::{Reader, Writer, XdrResult};

pub use nfs_proto::nsm::{VERSION, procedure};

/// Executes one call.
pub fn serve(
    nlm: &Nlm,
    conn: &Conn,
    number: u32,
    args: &mut Reader<'_>,
    out: &mut Writer,
) -> XdrResult<Outcome> {
    let args = args.parse(|i| Args::parse(number, i))?;
    let Some(args) = args else { return Ok(Outcome::NoProcedure) };
    let state = nlm.state_number();
    match args {
        Args::Null | Args::SimuCrash => {}
        // The monitor can reach any host that can reach it; monitoring one is the lock manager's decision.
        Args::Stat(_) => out.value(&SmStatRes { res_stat: Res::StatSucc, state }),
        Args::Mon(_) => out.value(&SmStatRes { res_stat: Res::StatFail, state }),
        Args::Unmon(_) | Args::UnmonAll(_) => out.value(&SmStat { state }),
        Args::Notify(change) => {
            if nlm.core().may_use_any(conn) {
                let ip = conn.info.peer.ip();
                nlm.rebooted(change.mon_name, ip, Some(change.state));
            } else {
                nlm.counters.strangers.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    Ok(Outcome::Repeatable)
}
