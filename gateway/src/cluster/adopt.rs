//! `headgate cluster adopt`: raises the epochs of etcd above the epoch of the records.
//!
//! *Operation.* A gateway refuses records of a later epoch than its own, because another gateway may have served since. An etcd
//! that was restored from a backup, or created again, would elect in smaller epochs forever. This command makes the records' epoch
//! the base for future ones ([`election::adopt`]). etcd cannot know that no gateway serves them, so the administrator confirms it.
//!
//! *Errors.* Fails for a service that a node owns, for records of another service, and for a state folder that a gateway of this
//! node uses.

use ::cluster::election::{self, Keys, Term, owner_of};
use ::cluster::etcd::Etcd;
use config::Settings;

use crate::boot;

/// Adopts the records of a service, given its name and settings.
pub(super) async fn run(
    etcd: &Etcd,
    keys: &Keys,
    (service, settings): (&str, &Settings),
    nobody_serves: bool,
) -> Result<(), String> {
    let said = |e: ::cluster::etcd::Error| e.to_string();
    let owned = |node: String| {
        format!(
            "{service} is served by {node}, so its records cannot be of a later epoch; nothing was changed"
        )
    };
    let (entries, now) = etcd.below_at(&keys.all).await.map_err(said)?;
    let entry = |key: &str| entries.iter().find(|it| it.key == key);
    if let Some(owner) = entry(&keys.owner) {
        return Err(owned(owner_of(&owner.value)));
    }
    if !nobody_serves {
        return Err(format!(
            "a gateway that etcd has forgotten may still serve the records of {service}: in CephFS it would be cut off from \
             them, on other storage it would write at the same time as the next one; stop `headgate cluster run` on every node \
             that is not in this etcd, attach the storage here, and give `--nobody-serves`"
        ));
    }
    let settings = settings.clone();
    let read = tokio::task::spawn_blocking(move || boot::whose(&settings)).await;
    let (other, epoch) = read.map_err(|e| e.to_string())??;
    if let Some(other) = other.filter(|other| other != service) {
        return Err(format!("these are the records of {other}, not of {service}"));
    }
    let Some(epoch) = epoch else {
        return Err(format!("no node of a cluster has served the records of {service} yet"));
    };
    let next = Term::of(now, entry(&keys.base).map(|it| &*it.value)).map_or(0, |term| term.epoch);
    if epoch <= next {
        say!(
            "the records of {service} are of epoch {epoch}, and the next epoch is above {next}: nothing to do"
        );
        return Ok(());
    }
    match election::adopt(etcd, keys, epoch).await.map_err(said)? {
        true => {
            say!(
                "the next epochs of {service} are above {epoch}, the epoch of its records: any node may serve it"
            );
            Ok(())
        }
        false => Err(owned("a node that was elected meanwhile".into())),
    }
}
