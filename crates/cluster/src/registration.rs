//! Registers a node's name in etcd, under the node's lease, so that no other machine can use it.
//!
//! *Operation.* A runner registers with an identifier of its machine before it campaigns. A second run on the same
//! machine counts as the same node. If another machine has the name, it keeps it: the later one reports this and ends, and so does
//! a node whose registration expired if another machine has taken the name. The runner checks again when the key changes and when
//! the node gets another lease.
//!
//! *Errors.* While etcd does not respond the registration is retried; no service can run without etcd anyway.

use std::fs;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::Plan;
use crate::etcd::{Error, Etcd};
use crate::flags::Flag;
use crate::hold::now;
use crate::lease::LeaseWatch;
use crate::outage;

/// Returns the identifier of this machine: `/etc/machine-id`, or empty if it is missing.
pub(crate) fn machine() -> String {
    fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().to_owned()
}

/// Returns the identifier of this boot of the machine.
pub(crate) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Returns the key of a node.
pub(crate) fn key(cluster: &str, node: &str) -> String {
    format!("/{cluster}/nodes/{node}/here")
}

/// The identity of a node. Machines cloned from one image may have the same `machine-id`, but were not booted at the same moment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    machine: String,
    boot: String,
}

impl Identity {
    fn own() -> Self {
        Self { machine: machine(), boot: boot() }
    }

    fn to_bytes(&self) -> Vec<u8> {
        json!({"machine": self.machine, "boot": self.boot}).to_string().into_bytes()
    }

    fn parse(bytes: &[u8]) -> Self {
        let said: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let text = |field: &str| said[field].as_str().unwrap_or_default().to_owned();
        Self { machine: text("machine"), boot: text("boot") }
    }
}

/// The error that stops all services.
const NO_RENEWALS: &str = "the thread that renews the lease has ended";

/// The result of a registration attempt.
enum Registration {
    /// The key belongs to this machine.
    Own,
    /// Another machine has the name.
    Other(Identity),
}

/// Registers, and calls `registered` once this machine has the name. Returns a remedy if another machine has it.
pub(crate) async fn keep(
    plan: &Plan,
    etcd: &Etcd,
    mut leased: LeaseWatch,
    changed: Flag,
    registered: impl FnOnce(),
) -> String {
    let own = Identity::own();
    if own.machine.is_empty() {
        return "this machine has no /etc/machine-id, which tells nodes of one name apart: \
                run `systemd-machine-id-setup`"
            .into();
    }
    let mut registered = Some(registered);
    // Time since which every check has found another machine.
    let mut other_since = None;
    // Another machine took the name that this one had.
    let is_taken = |other: &Identity| other.machine != own.machine;
    loop {
        let lease = leased.borrow_and_update().map(|lease| lease.id);
        let has_another = leased.wait_for(|now| now.map(|lease| lease.id) != lease);
        let Some(lease) = lease else {
            other_since = None;
            if has_another.await.is_err() {
                return NO_RENEWALS.into();
            }
            continue;
        };
        let pause = match once(plan, etcd, &own, lease).await {
            Ok(Registration::Own) => {
                if let Some(registered) = registered.take() {
                    registered();
                }
                other_since = None;
                tokio::select! {
                    () = changed.notified() => {}
                    has = has_another => if has.is_err() { return NO_RENEWALS.into() },
                }
                continue;
            }
            // This machine may have been rebooted: its earlier registration expires with its lease, whose time starts again if etcd
            // was restarted or restored.
            Ok(Registration::Other(other))
                if !(registered.is_none() && is_taken(&other))
                    && now() < *other_since.get_or_insert_with(now) + 2 * plan.ttl =>
            {
                tracing::warn!(
                    node = plan.node,
                    machine = other.machine,
                    "the name of the node is registered by another machine, or by this one before it was started"
                );
                plan.ttl / 5
            }
            Ok(Registration::Other(other)) => {
                return format!(
                    "two nodes are named {}: the machine {} has registered with that name; give each \
                     node a `node` of its own",
                    plan.node, other.machine
                );
            }
            Err(why) => {
                other_since = None;
                if outage::is_news("registration", "") {
                    tracing::warn!(node = plan.node, "the node is not registered: {why}");
                }
                plan.ttl / 3
            }
        };
        sleep(pause).await;
    }
}

/// Creates the key of the node if it does not exist.
async fn once(plan: &Plan, etcd: &Etcd, own: &Identity, lease: u64) -> Result<Registration, Error> {
    let key = key(&plan.name, &plan.node);
    let entries = etcd.create(&key, &own.to_bytes(), lease, &key).await?;
    let entry = entries.iter().find(|entry| entry.key == key).ok_or(Error::Malformed("here"))?;
    let registered = Identity::parse(&entry.value);
    // A registration by an earlier or parallel run on this machine is also this machine's.
    Ok(if registered == *own { Registration::Own } else { Registration::Other(registered) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_round_trips() {
        let one = Identity { machine: "m".into(), boot: "b".into() };
        assert_eq!(Identity::parse(&one.to_bytes()), one);
        assert_ne!(Identity::parse(b"{}"), one);
        assert_ne!(Identity::parse(&[0xff]), one);
    }
}
