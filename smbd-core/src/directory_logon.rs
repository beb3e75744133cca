//! Look-ups of accounts in a directory: before the check of the password at a logon, and again for the groups.
//!
//! *Operation.* A query runs on one of [`TURNS_MAX`] threads.
//!
//! *Errors.* [`LookedUp::Busy`] if no thread or no answer came in time: only a fresh answer decides. Clients keep threads with
//! invented names, and must not make an old password valid by that.

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
        LookedUp::Busy
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Mutex;
    use std::sync::mpsc::{self, Receiver};

    use mutex::locked;
    use vfs::Cred;

    use super::*;
    use crate::users::Account;

    /// A directory that answers when the test lets it.
    struct Slow(Mutex<Receiver<()>>);

    impl Users for Slow {
        fn find(&self, _: &str) -> Option<Account> {
            None
        }

        fn look_up(&self, _: &str) -> LookedUp {
            let _ = locked(&self.0).recv();
            LookedUp::Answered
        }

        fn guest(&self) -> Cred {
            Cred::root()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn look_up_without_a_turn_is_no_silence_of_the_directory() {
        let (answers, waits) = mpsc::channel();
        let users: Arc<dyn Users> = Arc::new(Slow(Mutex::new(waits)));
        // Other tests of this process ask for the loopback address.
        let from = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 77));
        let look = |name: &str| tokio::spawn(look_up(from, users.clone(), name.to_owned()));
        let all = [look("one"), look("two"), look("three")];
        tokio::task::yield_now().await;
        tokio::time::advance(WAIT_MAX * 3).await;
        for one in all {
            assert_eq!(one.await.unwrap(), LookedUp::Busy);
        }
        drop(answers);
    }
}
