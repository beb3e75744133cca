//! A gateway that `headgate cluster run` has started.
//!
//! *Operation.* The runner writes the end of the lease to the standard input of its gateway: a line for each renewal, in
//! nanoseconds of `CLOCK_BOOTTIME`. A thread reads the lines ([`Lease::follow`]); operations that must not happen after that time
//! check it themselves ([`rdma_transport::lease`]). The line [`LEAVE`] ends the sessions with CephFS and then the process, so that
//! the next owner need not evict them; clients are not notified.
//!
//! *Errors.* An expired lease, the end of the input and an invalid line end the process at once: it may not serve.

use std::env;
use std::io::{self, Stdin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::environment::{CLUSTER, EPOCH, NODE, PARENT, SERVICE};
use cluster::{LEAVE, LEAVE_MAX};
use rdma_transport::lease;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::admin::snapshot::ServiceStatus;

/// Longest wait for the first lease of the runner.
const FIRST_MAX: Duration = Duration::from_secs(10);
/// Bytes of one read: two thousand renewals.
const READ_MAX: usize = 16 << 10;

/// Returns the epoch of this gateway's service, if it belongs to a cluster.
pub(crate) fn epoch() -> Option<u64> {
    // If no parent is named, the variable does not come from a cluster, and the records would keep its value forever.
    env::var_os(PARENT)?;
    env::var(EPOCH).ok()?.parse().ok()
}

/// Set if this gateway may serve records of a cluster's service although no cluster started it.
static OUTSIDE: AtomicBool = AtomicBool::new(false);

/// Lets this process serve records of a cluster's service, as its administrator requested.
pub(crate) fn serve_outside() {
    OUTSIDE.store(true, Ordering::Relaxed);
}

/// Returns whether [`serve_outside`] was called.
pub(crate) fn is_outside() -> bool {
    OUTSIDE.load(Ordering::Relaxed)
}

/// Returns this gateway's service with its cluster, if it belongs to one.
pub(crate) fn service() -> Option<String> {
    env::var_os(PARENT)?;
    Some(format!("{}/{}", env::var(CLUSTER).ok()?, env::var(SERVICE).ok()?))
}

/// Returns the name of that service.
pub(crate) fn service_name() -> Option<String> {
    env::var_os(PARENT)?;
    env::var(SERVICE).ok()
}

/// Returns the status of that service.
pub(crate) fn standing() -> Option<ServiceStatus> {
    let left = lease::left()?.as_millis();
    Some(ServiceStatus {
        name: service()?,
        node: env::var(NODE).ok()?,
        epoch: epoch()?,
        lease_left_ms: u64::try_from(left).unwrap_or(u64::MAX),
    })
}

/// Ends this process if its runner ends, and allows it to listen on addresses that are only assigned once it is ready. Afterwards
/// it may serve for the time that the runner grants. Has no effect if no cluster started it.
pub(crate) fn join() -> Result<Option<Lease>, String> {
    let Ok(parent) = env::var(PARENT) else { return Ok(None) };
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| format!("cannot tie this process to `headgate cluster run`: {e}"))?;
    // The runner may have ended before the signal was set.
    let parent: Option<i32> = parent.parse().ok();
    if getppid().map(Pid::as_raw_pid) != parent || epoch().is_none() {
        return Err(
            "this gateway belongs to a cluster, and its `headgate cluster run` has ended".into()
        );
    }
    let mut lease = Lease { input: io::stdin(), rest: Vec::new() };
    match lease.next(FIRST_MAX) {
        Ok(Some(Word::Until(until))) => lease::serve_until(until),
        Ok(Some(Word::Leave) | None) | Err(_) => {
            return Err("`headgate cluster run` does not say until when this gateway may serve: \
                        are the two of one version?"
                .into());
        }
    }
    rdma_transport::tcp::listen_before_addresses_come();
    Ok(Some(lease))
}

/// Reads the lease from the runner.
#[derive(Debug)]
pub(crate) struct Lease {
    input: Stdin,
    /// An incomplete line.
    rest: Vec<u8>,
}

impl Lease {
    /// Follows the lease on a separate thread, which ends the process when the lease expires.
    pub(crate) fn follow(mut self) -> Result<(), String> {
        let follow = move || loop {
            let left = lease::left().unwrap_or_default();
            match self.next(left) {
                Ok(Some(Word::Until(until))) => lease::serve_until(until),
                Ok(Some(Word::Leave)) => leave(),
                Ok(None) => lease::check(),
                Err(_) => lease::end(),
            }
        };
        let thread = std::thread::Builder::new().name("lease".into()).spawn(follow);
        thread.map(drop).map_err(|e| format!("cannot start a thread for the lease: {e}"))
    }

    /// Waits at most `wait_policy` for input, and returns the newest command, if one arrived.
    fn next(&mut self, wait_policy: Duration) -> io::Result<Option<Word>> {
        let mut bytes = [0; READ_MAX];
        // Add a millisecond, so that the lease has certainly expired at a timeout.
        let wait_policy = wait_policy.saturating_add(Duration::from_millis(1));
        let wait_policy =
            Timespec::try_from(wait_policy).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut fds = [PollFd::new(&self.input, PollFlags::IN)];
        // Retry after a signal that another thread handles.
        if retry_on_intr(|| poll(&mut fds, Some(&wait_policy)))? == 0 {
            return Ok(None);
        }
        let n = retry_on_intr(|| rustix::io::read(&self.input, &mut bytes))?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.rest.extend_from_slice(&bytes[..n]);
        newest(&mut self.rest)
    }
}

/// A command of the runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Until(Duration),
    /// End the sessions and the process.
    Leave,
}

/// Ends the sessions with CephFS, and then this process. If the cluster hangs, the process ends in time without closing them.
fn leave() -> ! {
    let left = lease::left().unwrap_or_default().min(LEAVE_MAX);
    // Lease checks end here.
    lease::leave();
    let end_in_time = move || {
        std::thread::sleep(left);
        lease::end();
    };
    if std::thread::Builder::new().name("leave".into()).spawn(end_in_time).is_ok() {
        vfs::ceph::leave();
    }
    lease::end()
}

/// Removes all complete lines and returns the last one's command.
fn newest(lines: &mut Vec<u8>) -> io::Result<Option<Word>> {
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let Some(end) = lines.iter().rposition(|b| *b == b'\n') else {
        return if lines.len() < READ_MAX { Ok(None) } else { Err(wrong()) };
    };
    let text = std::str::from_utf8(&lines[..end]).map_err(|_| wrong())?;
    let last = text.rsplit('\n').next().unwrap_or_default();
    let word = match last {
        LEAVE => Word::Leave,
        nanos => Word::Until(Duration::from_nanos(nanos.parse().map_err(|_| wrong())?)),
    };
    lines.drain(..=end);
    Ok(Some(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_whole_line_counts() {
        let read = |text: &str| {
            let mut bytes = text.as_bytes().to_vec();
            let found = newest(&mut bytes).map_err(|e| e.kind());
            (found, String::from_utf8(bytes).unwrap())
        };
        let at = |nanos| Ok(Some(Word::Until(Duration::from_nanos(nanos))));
        assert_eq!(read("7\n"), (at(7), String::new()));
        assert_eq!(read("7\n8\n9"), (at(8), "9".into()));
        assert_eq!(read("70"), (Ok(None), "70".into()));
        assert_eq!(read("7\nleave\n"), (Ok(Some(Word::Leave)), String::new()));
        assert_eq!(read("7\nleav"), (at(7), "leav".into()));
        let wrong = io::ErrorKind::InvalidData;
        for text in ["\n", "x\n", "-1\n", "7\n\n", "99999999999999999999\n"] {
            assert_eq!(read(text).0, Err(wrong), "{text:?}");
        }
        assert_eq!(read(&"7".repeat(READ_MAX)).0, Err(wrong), "a line without an end");
    }
}
