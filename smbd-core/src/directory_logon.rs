//! Look-ups of accounts in a directory: before the check of the password at a logon, and again for the groups.
//!
//! *Operation.* A query runs on one of [`TURNS_MAX`] threads.
//!
//! *Errors.* [`LookedUp::Away`] if no thread or no answer came in time: earlier answers decide.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use gss_sys::Pool;
use rdma_transport::channel::host_of;

use crate::auth::LookedUp;
use crate::users::Users;

/// Look-ups at the same time; one address has half of them.
pub const TURNS_MAX: usize = 4;
pub const LIMIT: &str = "directory-look-ups";
/// The longest wait for a thread, and again for the answer.
pub const WAIT_MAX: Duration = Duration::from_secs(3);

static TURNS: Pool = Pool::new(TURNS_MAX, WAIT_MAX);

/// Looks up this name for a client at this address.
pub(crate) async fn look_up(from: IpAddr, users: Arc<dyn Users>, name: String) -> LookedUp {
    let asked = TURNS.run(host_of(from), move || users.look_up(&name)).await;
    asked.unwrap_or_else(|_busy| {
        rdma_transport::count::limit_met(LIMIT);
        LookedUp::Away
    })
}
