//! NSM version 1 (X/Open XNFS chapter 11): who is told of a restart, and who tells us of one.
//!
//! *Operation.* A host that locks is entered in a durable list of the lock manager before it gets its first lock. At the next start
//! every host of the list is told by SM_NOTIFY, so that it reclaims within the grace period, or knows that it has lost something.
//! When a host tells us by SM_NOTIFY that it has been restarted, what it held is released. Anybody could say so: see
//! [`Nlm::rebooted`] for who is believed.
//!
//! This monitor works for the lock manager in this process alone. Another one on this machine (the kernel's, when the machine is
//! an NFS client itself) has another life than this process, so SM_MON is answered by STAT_FAIL.
//!
//! *Memory.* One short record per host that locks.
//!
//! *Errors.* A notice from an address that no share lets in, or that its host did not lock from, or with a number that is no
//! news, is ignored and counted.

mod notify;

use std::sync::atomic::Ordering;

use nfs_proto::nsm::{Args, Res, SmStat, SmStatRes};

use crate::context::{Conn, Outcome};
use crate::nlm::Nlm;
use rdma_transport::xdr::{Reader, Writer, XdrResult};

pub use nfs_proto::nsm::{VERSION, procedure};

/// Does one call.
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
        // This monitor can reach whoever can reach it; whether it would is the lock manager's business.
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
