//! What a node does for a service: its gateway, its addresses.

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
use crate::program::{COMMAND_MAX, Told, command, run};
use crate::{Address, LEAVE, LEAVE_MAX, environment};

/// How long a gateway may take until it listens.
const READY_MAX: Duration = Duration::from_secs(60);
/// The line that says so.
const READY: &str = "headgate ready";

/// A gateway that was started. It may write until it has ended, whether it listens or not, and whoever has it ends it.
#[derive(Debug)]
pub(crate) struct Gateway {
    child: Child,
    /// Its command, for people.
    shown: String,
    /// Tells it to leave, once.
    leave: Option<oneshot::Sender<()>>,
}

impl Gateway {
    /// Starts it. It is told until when it may serve.
    pub(crate) fn start(
        words: &[String],
        told: &Told,
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
        // What it prints later goes on to the log; a full pipe would stop it.
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                tracing::info!("{line}");
            }
        });
        Ok(())
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Has it end its sessions with the storage, then ends it. For the former there is as much time as it may still serve.
    pub(crate) async fn leave(&mut self, left: Duration) -> Result<(), String> {
        if let Some(leave) = self.leave.take()
            && !left.is_zero()
            && leave.send(()).is_ok()
        {
            let _ = timeout(LEAVE_MAX.min(left), self.child.wait()).await;
        }
        self.kill().await
    }

    /// Ends it at once. It is gone when this returns, or the kernel does not let go of it.
    pub(crate) async fn kill(&mut self) -> Result<(), String> {
        let _ = self.child.start_kill();
        match timeout(COMMAND_MAX, self.child.wait()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(e)) => Err(format!("its gateway cannot be waited for: {e}")),
            Err(_) => Err(format!("its gateway does not end within {COMMAND_MAX:?} after SIGKILL")),
        }
    }
}

/// Writes until when a gateway may serve, a line for each renewal, to its standard input. It ends with the gateway, and with the
/// owner that renews: what is closed then says that nobody does. Or it is the last line that says to leave.
async fn tell_until(
    mut input: ChildStdin,
    mut hold: watch::Receiver<Hold>,
    mut leave: oneshot::Receiver<()>,
) {
    loop {
        let line = format!("{}\n", hold.borrow_and_update().until().as_nanos());
        // A gateway that stands still takes nothing once the pipe is full; what it reads when it wakes is too old.
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

/// Takes or lets go of an address.
async fn ip(verb: &str, address: &Address, extra: &[&str]) -> Result<(), String> {
    let Address { ip, prefix, device } = address;
    let mut words: Vec<String> = ["ip", "address", verb].map(str::to_owned).into();
    words.extend([format!("{ip}/{prefix}"), "dev".into(), device.clone()]);
    words.extend(extra.iter().map(|word| (*word).to_owned()));
    run(&words, &Told(Vec::new())).await
}

/// Are these addresses nobody else's? What stands in `fenced` are hardware addresses of a node that was fenced: where its
/// storage alone was taken from it, its kernel may still answer.
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

/// As it is usually written.
fn hardware(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// The hardware addresses of the devices of these addresses.
pub(crate) fn hardware_of(addresses: &[Address]) -> Vec<String> {
    let of = |address: &Address| Some(hardware(interface(&address.device).ok()?.1));
    addresses.iter().filter_map(of).collect()
}

/// Ends what TCP connections of an address this host's kernel still has, without a word to their peers: the address is not here.
///
/// A connection whose program has closed it waits for minutes for the acknowledgement of its end (FIN-WAIT-1). A client that
/// takes the same port again, as the kernel's NFS 3 client does, finds it when the service is back within that time: it is
/// answered from a state of the connection that is long over, and hears of nothing that ends its own.
async fn end_connections(address: &Address) {
    let Address { ip, .. } = address;
    let source = if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
    let words = ["ss", "--kill", "--tcp", "--no-header", "state", "connected", "src", &source];
    if let Err(why) = run(&words.map(str::to_owned), &Told(Vec::new())).await {
        tracing::warn!(
            address = %ip,
            "connections of an address that is not here were not ended; clients that come back to this node in the next minutes \
             may wait: {why}"
        );
    }
}

/// Takes the addresses and tells the neighbours. They stay until `kept` ends, and are then to be released.
pub(crate) async fn take(
    addresses: &[Address],
    hold: &watch::Receiver<Hold>,
    renewals: &Renewals,
    kept: &mut JoinSet<()>,
) -> Result<(), String> {
    let seconds = lifetime::LIFETIME.to_string();
    let metric = lifetime::ROUTE_METRIC.to_string();
    for address in addresses {
        // A run before this one may have been killed.
        end_connections(address).await;
        let mut extra = vec!["valid_lft", &*seconds, "preferred_lft", &*seconds];
        if address.ip.is_ipv6() {
            // Nobody else has it, which was asked before ([`free`]). The kernel's own test for duplicates would take a second.
            extra.extend(["nodad", "metric", &*metric]);
        }
        ip("replace", address, &extra).await?;
        // Each from here on: those that follow may take longer than it lives.
        renewals.keep(address, hold, kept);
    }
    for address in addresses {
        if let Err(why) = announce(address.ip, &address.device) {
            tracing::warn!(address = %address.ip, "the address could not be announced on its subnet: {why}");
        }
    }
    Ok(())
}

/// Lets go of the addresses, as far as they are here. `kept` is what [`take`] has filled.
pub(crate) async fn release(addresses: &[Address], kept: &mut JoinSet<()>) -> Result<(), String> {
    let mut failed = Ok(());
    // No renewal after the one that is under way.
    if timeout(COMMAND_MAX, kept.shutdown()).await.is_err() {
        failed = Err(format!("the kernel has not renewed an address within {COMMAND_MAX:?}"));
    }
    for address in addresses {
        if let Err(why) = ip("delete", address, &[]).await
            // It is not here, or neither is its device.
            && !["Cannot assign", "not found", "Cannot find device"].iter().any(|it| why.contains(it))
        {
            failed = Err(why);
            continue;
        }
        end_connections(address).await;
    }
    failed
}

/// What programs are told of a service.
pub(crate) fn told(cluster: &str, node: &str, service: &str, epoch: u64) -> Told {
    Told(vec![
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
    async fn a_gateway_that_is_not_told_to_leave_hears_that_nobody_renews() {
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
