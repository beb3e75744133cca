//! Groups of an account, looked up again before each logon to it, so that a change of them needs no reload.
//!
//! *Operation.* The name service of the host is asked on one of [`TURNS_MAX`] threads.
//!
//! *Errors.* Without an answer in time the logon continues with the groups that are known: a directory that is down locks no user
//! out.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use gss_sys::Pool;
use rdma_transport::channel::host_of;

use crate::users::Users;

/// Look-ups at the same time; one address has half of them.
pub const TURNS_MAX: usize = 8;
pub const LIMIT: &str = "logon-groups";
/// The longest wait for a thread, and again for the answer.
pub const WAIT_MAX: Duration = Duration::from_secs(2);

static TURNS: Pool = Pool::new(TURNS_MAX, WAIT_MAX);

/// Looks up the groups of this account for a client at this address.
pub(crate) async fn look_again(from: IpAddr, users: Arc<dyn Users>, name: String) {
    if TURNS.run(host_of(from), move || users.look_again(&name)).await.is_err() {
        rdma_transport::count::limit_met(LIMIT);
    }
}
