//! Operations of a node for a service: its gateway and its addresses.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::announce::{Mac, announce, interface};
use crate::hold::Hold;
use crate::lifetime::{self, Renewals};
use crate::probe::other_owner;
use crate::program::{COMMAND_MAX, ProgramEnvironment, command, run};
use crate::{Address, LEAVE, LEAVE_MAX, environment};

/// Time limit for a gateway to start listening.
const READY_MAX: Duration = Duration::from_secs(60);
/// Line with which a gateway reports that it listens.
const READY: &str = "headgate ready";

/// A started gateway. It may write until it has ended, whether or not it listens, so the holder of this value must end it.
#[derive(Debug)]
pub(crate) struct Gateway {
    child: Child,
    /// Its command, for messages.
    shown: String,
    /// Sends the command to leave, once.
    leave: Option<oneshot::Sender<()>>,
}

impl Gateway {
    /// Starts a gateway, and keeps it informed of the time until which it may serve.
    pub(crate) fn start(
        words: &[String],
        told: &ProgramEnvironment,
        hold: watch::Receiver<Hold>,
    ) -> Result<Self, String> {
        let shown = words.join(" ");
        let mut command = command(words, told).map_err(|e| e.to_string())?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("`{shown}`: {e}"))?;
        let Some(input) = child.stdin.take() else { return Err("no standard input".into()) };
        let (leave, told_to_leave) = oneshot::channel();
        tokio::spawn(tell_until(input, hold, told_to_leave));
        Ok(Self { child, shown, leave: Some(leave) })
    }

    /// Waits until it listens.
    pub(crate) async fn ready(&mut self) -> Result<(), String> {
        let Some(out) = self.child.stdout.take() else { return Err("no standard output".into()) };
        let mut lines = BufReader::new(out).lines();
        let ready = async {
            while let Ok(Some(line)) = lines.next_line().await {
                tracing::info!("{line}");
                if line.starts_with(READY) {
                    return true;
                }
            }
            false
        };
        let why = match timeout(READY_MAX, ready).await {
            Ok(true) => None,
            Ok(false) => Some("ended before it was ready".to_owned()),
            Err(_) => Some(format!("was not ready in {READY_MAX:?}")),
        };
        if let Some(why) = why {
            return Err(format!("`{}` {why}; its log says more", self.shown));
        }
        // Copy further output to the log; a full pipe would block the gateway.
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                tracing::info!("{line}");
            }
        });
        Ok(())
    }

    /// Waits until it exits.
    pub(crate) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Makes it end its sessions with the storage, within the time that it may still serve, and then kills it.
    pub(crate) async fn leave(&mut self, left: Duration) -> Result<(), String> {
        if let Some(leave) = self.leave.take()
            && !left.is_zero()
            && leave.send(()).is_ok()
        {
            let _ = timeout(LEAVE_MAX.min(left), self.child.wait()).await;
        }
        self.kill().await
    }

    /// Kills it. When this returns it is gone, or the kernel cannot end it.
    pub(crate) async fn kill(&mut self) -> Result<(), String> {
        let _ = self.child.start_kill();
        match timeout(COMMAND_MAX, self.child.wait()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(e)) => Err(format!("its gateway cannot be waited for: {e}")),
            Err(_) => Err(format!("its gateway does not end within {COMMAND_MAX:?} after SIGKILL")),
        }
    }
}

/// Writes the time until which a gateway may serve to its standard input, one line per renewal. Ends with the gateway, or with the
/// owner that renews; the closed pipe then tells the gateway that renewals have stopped. The last line may instead be the command
/// to leave.
async fn tell_until(
    mut input: ChildStdin,
    mut hold: watch::Receiver<Hold>,
    mut leave: oneshot::Receiver<()>,
) {
    loop {
        let line = format!("{}\n", hold.borrow_and_update().until().as_nanos());
        // A frozen gateway stops reading once the pipe is full; the lines that it reads later are too old to be useful.
        if input.write_all(line.as_bytes()).await.is_err() {
            return;
        }
        let is_to_leave = tokio::select! {
            changed = hold.changed() => if changed.is_ok() { false } else { return },
            told = &mut leave => if told.is_ok() { true } else { return },
        };
        if is_to_leave {
            let _ = input.write_all(format!("{LEAVE}\n").as_bytes()).await;
            return;
        }
    }
}

/// Adds or removes an address.
async fn ip(verb: &str, address: &Address, extra: &[&str]) -> Result<(), String> {
    let Address { ip, prefix, device } = address;
    let mut words: Vec<String> = ["ip", "address", verb].map(str::to_owned).into();
    words.extend([format!("{ip}/{prefix}"), "dev".into(), device.clone()]);
    words.extend(extra.iter().map(|word| (*word).to_owned()));
    run(&words, &ProgramEnvironment(Vec::new())).await
}

/// Checks that no other machine has these addresses. `fenced` has the hardware addresses of a fenced node: if only its storage was
/// cut off, its kernel may still respond.
pub(crate) async fn free(addresses: &[Address], fenced: &[String]) -> Result<(), String> {
    let mut asked = JoinSet::new();
    for Address { ip, device, .. } in addresses.iter().cloned() {
        asked.spawn_blocking(move || {
            let other = other_owner(ip, &device);
            (ip, device, other)
        });
    }
    let mut taken = Ok(());
    while let Some(done) = asked.join_next().await {
        match done {
            Ok((_, _, Ok(None))) => {}
            Ok((ip, device, Ok(Some(mac)))) if fenced.contains(&hardware(mac)) => {
                tracing::warn!(
                    address = %ip, device, mac = hardware(mac),
                    "the fenced node still answers for the address, and hosts of its subnet may send to it: \
                     have the fence power it off"
                );
            }
            Ok((ip, device, Ok(Some(mac)))) => {
                taken = Err(format!(
                    "another machine has the address {ip}: {} answers for it on {device}; take it \
                     away there, or give the service another",
                    hardware(mac)
                ));
            }
            Ok((ip, device, Err(why))) => {
                tracing::warn!(address = %ip, device, "whether another machine has the address is not known: {why}");
            }
            Err(why) => {
                tracing::warn!("whether another machine has an address is not known: {why}")
            }
        }
    }
    taken
}

/// Formats a hardware address in the usual notation.
fn hardware(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Returns the hardware addresses of these addresses' devices.
pub(crate) fn hardware_of(addresses: &[Address]) -> Vec<String> {
    let of = |address: &Address| Some(hardware(interface(&address.device).ok()?.1));
    addresses.iter().filter_map(of).collect()
}

/// Removes this host's TCP connections of an address silently, because the address is not on this host.
///
/// A connection closed by its program may wait for minutes for the acknowledgement of its end (FIN-WAIT-1). A client that reuses
/// the same port, like the kernel's NFS version 3 client, meets that connection if the service returns within this time. It then
/// gets replies from the old connection's state, and never learns that its own ended.
async fn end_connections(address: &Address) {
    let Address { ip, .. } = address;
    let source = if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
    let words = ["ss", "--kill", "--tcp", "--no-header", "state", "connected", "src", &source];
    if let Err(why) = run(&words.map(str::to_owned), &ProgramEnvironment(Vec::new())).await {
        tracing::warn!(
            address = %ip,
            "connections of an address that is not here were not ended; clients that come back to this node in the next minutes \
             may wait: {why}"
        );
    }
}

/// Adds the addresses and announces them. They stay until `kept` ends, and must then be released.
pub(crate) async fn take(
    addresses: &[Address],
    hold: &watch::Receiver<Hold>,
    renewals: &Renewals,
    kept: &mut JoinSet<()>,
) -> Result<(), String> {
    let seconds = lifetime::LIFETIME.to_string();
    let metric = lifetime::ROUTE_METRIC.to_string();
    for address in addresses {
        // An earlier run may have been killed.
        end_connections(address).await;
        let mut extra = vec!["valid_lft", &*seconds, "preferred_lft", &*seconds];
        if address.ip.is_ipv6() {
            // [`free`] has checked before that no other machine has it. The kernel's duplicate detection would take a second.
            extra.extend(["nodad", "metric", &*metric]);
        }
        ip("replace", address, &extra).await?;
        // Renew each address from here on, because adding the others may take longer than its lifetime.
        renewals.keep(address, hold, kept);
    }
    for address in addresses {
        if let Err(why) = announce(address.ip, &address.device) {
            tracing::warn!(address = %address.ip, "the address could not be announced on its subnet: {why}");
        }
    }
    Ok(())
}

/// Removes the addresses that are on this host. `kept` was filled by [`take`].
pub(crate) async fn release(addresses: &[Address], kept: &mut JoinSet<()>) -> Result<(), String> {
    let mut failed = Ok(());
    // No renewal may follow the one in progress.
    if timeout(COMMAND_MAX, kept.shutdown()).await.is_err() {
        failed = Err(format!("the kernel has not renewed an address within {COMMAND_MAX:?}"));
    }
    for address in addresses {
        if let Err(why) = ip("delete", address, &[]).await
            // The address or its device does not exist.
            && !["Cannot assign", "not found", "Cannot find device"].iter().any(|it| why.contains(it))
        {
            failed = Err(why);
            continue;
        }
        end_connections(address).await;
    }
    failed
}

/// Returns the environment of programs for a service.
pub(crate) fn told(cluster: &str, node: &str, service: &str, epoch: u64) -> ProgramEnvironment {
    ProgramEnvironment(vec![
        (environment::CLUSTER, cluster.to_owned()),
        (environment::NODE, node.to_owned()),
        (environment::SERVICE, service.to_owned()),
        (environment::EPOCH, epoch.to_string()),
        (environment::PARENT, std::process::id().to_string()),
    ])
}

#[cfg(test)]
mod tests {
    use tokio::process::Command;

    use super::*;

    #[tokio::test]
    async fn gateway_without_renewals_sees_closed_input() {
        let mut child = Command::new("cat");
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let hold = watch::Sender::new(Hold::new(Duration::from_secs(2), Duration::from_secs(7)));
        let (leave, told_to_leave) = oneshot::channel();
        drop(leave);
        tell_until(child.stdin.take().unwrap(), hold.subscribe(), told_to_leave).await;
        // It reads to the end.
        let said = child.wait_with_output().await.unwrap().stdout;
        assert_eq!(String::from_utf8(said).unwrap(), "8000000000\n");
    }
}
