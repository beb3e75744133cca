//! A node's name is its own: the key of it in etcd, under a lease.
//!
//! *Operation.* A runner registers before it stands for anything, with what tells its machine from others. A second run on
//! the same machine is the same node. Another machine that has the name keeps it: whoever comes later ends and says so, and
//! so does a node whose registration ended, where another took the name meanwhile.
//!
//! *Errors.* While etcd does not answer the registration is tried again; nothing is served without it anyway.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::Plan;
use crate::etcd::{Error, Etcd};
use crate::hold::now;

/// What tells this machine from others: `/etc/machine-id`, empty where there is none.
pub(crate) fn machine() -> String {
    fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().to_owned()
}

/// The key of a node.
fn key(cluster: &str, node: &str) -> String {
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
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self { machine: machine(), boot: boot.trim().to_owned() }
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

/// How a registration was tried.
enum Tried {
    /// The key is this machine's.
    Own,
    /// Another machine has the name.
    Other(Identity),
}

/// Registers, once; the name is told by `registered` when it is this machine's. Returns when another has it, and says why
/// that is wrong.
pub(crate) async fn keep(plan: &Plan, etcd: &Etcd, registered: impl FnOnce()) -> String {
    let own = Identity::own();
    if own.machine.is_empty() {
        return "this machine has no /etc/machine-id, which tells nodes of one name apart: \
                run `systemd-machine-id-setup`"
            .into();
    }
    let mut registered = Some(registered);
    let mut lease = None;
    // This machine may have been started again: what it was before has a lease that ends.
    let mut patience_until = now() + 2 * plan.ttl;
    loop {
        let pause = match once(plan, etcd, &own, &mut lease).await {
            Ok(Tried::Own) => {
                if let Some(registered) = registered.take() {
                    registered();
                }
                // Another that has the name later took it.
                patience_until = Duration::ZERO;
                plan.ttl / 3
            }
            Ok(Tried::Other(other)) if now() >= patience_until => {
                return format!(
                    "two nodes are named {}: the machine {} has registered with that name; give each \
                     node a `node` of its own",
                    plan.node, other.machine
                );
            }
            Ok(Tried::Other(_)) => plan.ttl / 5,
            Err(why) => {
                tracing::warn!(node = plan.node, "the node is not registered: {why}");
                plan.ttl / 3
            }
        };
        sleep(pause).await;
    }
}

/// Renews the registration, or makes it where there is none.
async fn once(
    plan: &Plan,
    etcd: &Etcd,
    own: &Identity,
    lease: &mut Option<u64>,
) -> Result<Tried, Error> {
    let key = key(&plan.name, &plan.node);
    let id = match *lease {
        Some(id) if etcd.keep_alive(id).await? => id,
        _ => etcd.grant(plan.ttl).await?,
    };
    *lease = Some(id);
    let entry = match etcd.create(&key, &own.to_bytes(), id).await? {
        Ok(_) => return Ok(Tried::Own),
        Err((entry, _)) => entry,
    };
    if entry.lease == id {
        return Ok(Tried::Own);
    }
    let other = Identity::parse(&entry.value);
    if other != *own {
        return Ok(Tried::Other(other));
    }
    // A run before this one, or beside it.
    Ok(Tried::Own)
}

/// Ends the registration of a node that ends in order.
pub(crate) async fn end(plan: &Plan, etcd: &Etcd) {
    let key = key(&plan.name, &plan.node);
    if let Ok(Some(entry)) = etcd.get(&key).await
        && Identity::parse(&entry.value) == Identity::own()
    {
        let _ = etcd.delete(&key).await;
    }
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
