//! A node's name is its own: the key of it in etcd, under the lease of the node.
//!
//! *Operation.* A runner registers before it stands for anything, with what tells its machine from others. A second run on
//! the same machine is the same node. Another machine that has the name keeps it: whoever comes later ends and says so, and
//! so does a node whose registration ended, where another took the name meanwhile. The runner looks again when the key changes and
//! when the node has another lease.
//!
//! *Errors.* While etcd does not answer the registration is tried again; nothing is served without it anyway.

use std::fs;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::Plan;
use crate::etcd::{Error, Etcd};
use crate::flags::Flag;
use crate::hold::now;
use crate::lease::Leased;
use crate::outage;

/// What tells this machine from others: `/etc/machine-id`, empty where there is none.
pub(crate) fn machine() -> String {
    fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().to_owned()
}

/// What tells this boot of the machine from others.
pub(crate) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The key of a node.
pub(crate) fn key(cluster: &str, node: &str) -> String {
    format!("/{cluster}/nodes/{node}/here")
}

/// What a node says of itself. Machines that were copied from one image may have one `machine-id`; they were not started at once.
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

/// Without it nothing may be served.
const NO_RENEWALS: &str = "the thread that renews the lease has ended";

/// How a registration was tried.
enum Tried {
    /// The key is this machine's.
    Own,
    /// Another machine has the name.
    Other(Identity),
}

/// Registers, and calls `registered` when the name is this machine's. Returns when another machine has it, with what to do.
pub(crate) async fn keep(
    plan: &Plan,
    etcd: &Etcd,
    mut leased: Leased,
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
    // Since when each look has found another.
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
            Ok(Tried::Own) => {
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
            // This machine may have been started again: what it was before has a lease that ends, and that counts anew where etcd
            // was started again too, or restored.
            Ok(Tried::Other(other))
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
            Ok(Tried::Other(other)) => {
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

/// Makes the key of the node where there is none.
async fn once(plan: &Plan, etcd: &Etcd, own: &Identity, lease: u64) -> Result<Tried, Error> {
    let key = key(&plan.name, &plan.node);
    let entries = etcd.create(&key, &own.to_bytes(), lease, &key).await?;
    let entry = entries.iter().find(|entry| entry.key == key).ok_or(Error::Malformed("here"))?;
    let registered = Identity::parse(&entry.value);
    // That of a run before this one, or beside it, is this machine's as well.
    Ok(if registered == *own { Tried::Own } else { Tried::Other(registered) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read_as_it_was_written() {
        let one = Identity { machine: "m".into(), boot: "b".into() };
        assert_eq!(Identity::parse(&one.to_bytes()), one);
        assert_ne!(Identity::parse(b"{}"), one);
        assert_ne!(Identity::parse(&[0xff]), one);
    }
}
