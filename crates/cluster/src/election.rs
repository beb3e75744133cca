//! Ownership of a service: its keys in etcd and their values.
//!
//! *Operation.* The node that created the key `owner` owns the service. The key disappears with the lease of its node
//! ([`crate::lease`]), or earlier if the owner deletes it. The epoch is the revision at which the key was created, plus the value
//! of `base`, which compensates for an etcd that restarted its revisions ([`adopt`]). The key `last` survives: it names the last
//! owner and says whether it released everything. If it did not, the next owner fences it. The key `wanted` names the node that an
//! administrator prefers, and `asked` says that this node is running and waiting; an owner leaves for no other node.
//!
//! *Errors.* A request without a reply may have created the key, or may create it later. A key belongs to a candidature if it has
//! the node's lease and the candidature's number. A key with the lease and another number remains from an earlier candidature and
//! is deleted. It must not count as a won election, because a request to delete it may still be in progress.

use serde_json::{Value, json};

use crate::etcd::{Change, Entry, Error, Etcd};
use crate::lease::Lease;

/// The keys of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The current owner.
    pub owner: String,
    /// The last owner.
    pub last: String,
    /// The preferred node.
    pub wanted: String,
    /// The preferred node is running and waits for the service.
    pub asked: String,
    /// The last takeover ([`crate::board::Takeover`]).
    pub takeover: String,
    /// Prefix of the keys with the reasons why nodes could not run it; the node name follows.
    pub trouble: String,
    /// Offset of its epochs from etcd's revisions; missing: zero.
    pub base: String,
    /// Common prefix of all keys.
    pub all: String,
}

impl Keys {
    /// Builds the keys of a service in a cluster.
    pub fn new(cluster: &str, service: &str) -> Self {
        let key = |what| format!("/{cluster}/services/{service}/{what}");
        let (owner, last, wanted, asked) = (key("owner"), key("last"), key("wanted"), key("asked"));
        let (takeover, trouble, base) = (key("takeover"), key("trouble/"), key("base"));
        Self { owner, last, wanted, asked, takeover, trouble, base, all: key("") }
    }
}

/// Returns the key that marks a node as drained: it must own no service.
pub fn drained(cluster: &str, node: &str) -> String {
    format!("/{cluster}/nodes/{node}/drained")
}

/// The last owner of a service, stored under the key `last`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Last {
    pub node: String,
    /// Identifies its machine, in case two nodes have the same name.
    pub machine: String,
    /// Epoch of its ownership.
    pub epoch: u64,
    /// The owner has stopped its gateway and released the storage.
    pub ended: bool,
    /// Boot identifier of its machine while it attaches storage; `None`: attaching has finished, or the service attaches none.
    pub attaching: Option<String>,
    /// Hardware addresses of its devices, which may still have its addresses.
    pub hardware: Vec<String>,
}

impl Last {
    /// Serializes it for etcd.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { node, machine, epoch, ended, attaching, hardware } = self;
        let said = json!({
            "node": node, "machine": machine, "epoch": epoch, "ended": ended, "attaching": attaching,
            "hardware": hardware,
        });
        said.to_string().into_bytes()
    }

    /// Parses the value in etcd; `None` if it has another format.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let said: Value = serde_json::from_slice(bytes).ok()?;
        Some(Self {
            node: said["node"].as_str()?.into(),
            machine: said["machine"].as_str()?.into(),
            epoch: said["epoch"].as_u64()?,
            ended: said["ended"].as_bool()?,
            attaching: said["attaching"].as_str().map(str::to_owned),
            hardware: said["hardware"]
                .as_array()
                .map(|list| list.iter().filter_map(|it| Some(it.as_str()?.to_owned())).collect())
                .unwrap_or_default(),
        })
    }
}

/// How to deal with the previous owner.
#[derive(Debug, PartialEq, Eq)]
pub enum Before {
    /// No action: there was no owner, or it has released the service.
    Gone,
    /// No action: it was a gateway of this machine, which ends with its parent process. It may still be ending and may have left
    /// resources.
    OwnLeft(Last),
    /// Fence it, because it may still write.
    Fence(Last),
    /// Another machine uses this node's name.
    SameName(Last),
}

impl Before {
    /// Decides for `node` on `machine`, which was elected after `last`.
    pub fn of(last: Option<Last>, node: &str, machine: &str) -> Self {
        match last {
            None => Self::Gone,
            Some(last) if last.ended => Self::Gone,
            Some(last) if last.node != node => Self::Fence(last),
            Some(last) if last.machine != machine => Self::SameName(last),
            Some(last) => Self::OwnLeft(last),
        }
    }
}

/// The number of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// Shown in records and to administrators.
    pub epoch: u64,
    /// For etcd: the revision at which the key `owner` was created.
    pub created: u64,
}

impl Term {
    /// Computes the term of an owner whose key was created at this revision, with this value of `base`.
    pub fn of(created: u64, base: Option<&[u8]>) -> Option<Self> {
        let base = match base {
            None => 0,
            Some(text) => std::str::from_utf8(text).ok()?.parse().ok()?,
        };
        Some(Self { epoch: created.checked_add(base)?, created })
    }
}

/// Raises the next epochs of a service above `epoch`, after etcd lost its data and its revisions restarted. Returns false if a node
/// owns the service.
pub async fn adopt(etcd: &Etcd, keys: &Keys, epoch: u64) -> Result<bool, Error> {
    // The revision of a missing key is zero.
    let base = epoch.to_string();
    etcd.change_while(&keys.owner, 0, &[Change::Put(&keys.base, base.as_bytes())]).await
}

/// The keys of a service, read at one revision.
#[derive(Debug, Default)]
pub(crate) struct Look {
    pub(crate) owner: Option<Entry>,
    pub(crate) last: Option<Entry>,
    pub(crate) wanted: Option<Entry>,
    pub(crate) asked: Option<Entry>,
    base: Option<Entry>,
}

impl Look {
    fn of(keys: &Keys, entries: Vec<Entry>) -> Self {
        let mut look = Self::default();
        for entry in entries {
            let place = match &entry.key {
                key if *key == keys.owner => &mut look.owner,
                key if *key == keys.last => &mut look.last,
                key if *key == keys.wanted => &mut look.wanted,
                key if *key == keys.asked => &mut look.asked,
                key if *key == keys.base => &mut look.base,
                _ => continue,
            };
            *place = Some(entry);
        }
        look
    }

    /// Returns the name of the preferred node.
    pub(crate) fn chosen(&self) -> Option<&[u8]> {
        self.wanted.as_ref().map(|wanted| &*wanted.value)
    }

    /// Checks whether another node is preferred, running and waiting.
    pub(crate) fn is_asked_for(&self, node: &str) -> bool {
        let asked = self.asked.as_ref().map(|asked| &*asked.value);
        self.chosen().is_some_and(|chosen| chosen != node.as_bytes()) && self.chosen() == asked
    }
}

/// Reads the keys of a service.
pub(crate) async fn look(etcd: &Etcd, keys: &Keys) -> Result<Look, Error> {
    Ok(Look::of(keys, etcd.below(&keys.all).await?))
}

/// A won election.
#[derive(Debug)]
pub(crate) struct WonElection {
    /// The number of the election.
    pub(crate) term: Term,
    /// The lease with which the ownership ends.
    pub(crate) lease: Lease,
    /// The key `last`, read with the election; only an owner changes it.
    pub(crate) last: Option<Entry>,
}

/// Returns the node name in the value of a key `owner`.
pub fn owner_of(value: &[u8]) -> String {
    let said: Value = serde_json::from_slice(value).unwrap_or_default();
    said["node"].as_str().unwrap_or("?").to_owned()
}

/// Records that the preferred node is running and waits, for as long as its lease lives, so that a dead node requests no service.
/// The next owner deletes the key; a node that stops waiting deletes it itself ([`take_back`]).
pub(crate) async fn ask(etcd: &Etcd, keys: &Keys, node: &str, lease: Lease) -> Result<(), Error> {
    etcd.create(&keys.asked, node.as_bytes(), lease.id, &keys.asked).await.map(drop)
}

/// Deletes the request of a node that no longer waits; keeps a newer request.
pub(crate) async fn take_back(etcd: &Etcd, keys: &Keys, asked: &Entry) -> Result<(), Error> {
    etcd.change_while(&keys.asked, asked.created, &[Change::Delete(&keys.asked)]).await.map(drop)
}

/// Tries once to become owner; `None` if the service has an owner. `number` must be unique among this node's candidatures under
/// this lease.
pub(crate) async fn stand(
    etcd: &Etcd,
    keys: &Keys,
    (node, number): (&str, u64),
    lease: Lease,
) -> Result<Option<WonElection>, Error> {
    let value = json!({ "node": node, "candidature": number }).to_string().into_bytes();
    let look = Look::of(keys, etcd.create(&keys.owner, &value, lease.id, &keys.all).await?);
    let owner = look.owner.ok_or(Error::Malformed("owner"))?;
    if owner.lease != lease.id || owner.value != value {
        return Ok(None);
    }
    let term = Term::of(owner.created, look.base.as_ref().map(|entry| &*entry.value));
    let term = term.ok_or(Error::Malformed("base"))?;
    Ok(Some(WonElection { term, lease, last: look.last }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(node: &str, machine: &str, ended: bool) -> Last {
        let hardware = vec!["02:00:00:00:00:0a".into()];
        let attaching = Some("b1".into());
        Last { node: node.into(), machine: machine.into(), epoch: 7, ended, attaching, hardware }
    }

    #[test]
    fn unreleased_owner_is_fenced() {
        let before = |last| Before::of(last, "gw1", "m1");
        assert_eq!(before(None), Before::Gone);
        for (node, machine) in [("gw1", "m1"), ("gw1", "m2"), ("gw2", "m2")] {
            assert_eq!(before(Some(last(node, machine, true))), Before::Gone);
        }
        let own = last("gw1", "m1", false);
        assert_eq!(before(Some(own.clone())), Before::OwnLeft(own));
        let other = last("gw2", "m2", false);
        assert_eq!(before(Some(other.clone())), Before::Fence(other));
        let twin = last("gw1", "m2", false);
        assert_eq!(before(Some(twin.clone())), Before::SameName(twin));
    }

    #[test]
    fn base_offsets_epochs() {
        let epoch = |base: Option<&[u8]>| Term::of(7, base).map(|term| term.epoch);
        assert_eq!(
            (epoch(None), epoch(Some(b"0")), epoch(Some(b"100"))),
            (Some(7), Some(7), Some(107))
        );
        for wrong in [&b""[..], b"-1", b"x", b"18446744073709551615", b"18446744073709551609\n"] {
            assert_eq!(epoch(Some(wrong)), None);
        }
    }

    #[test]
    fn last_owner_round_trips() {
        let one = last("gw1", "m1", true);
        for one in [Last { attaching: None, ..one.clone() }, one] {
            assert_eq!(Last::parse(&one.to_bytes()), Some(one));
        }
        for other in
            [&b"gw1"[..], b"{}", b"{\"node\":\"a\",\"machine\":\"b\",\"epoch\":-1,\"ended\":true}"]
        {
            assert_eq!(Last::parse(other), None);
        }
    }
}
