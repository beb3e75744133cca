//! Who owns a service: the keys of it in etcd, and what stands in them.
//!
//! *Operation.* The owner is whoever made the key `owner`, which ends with the lease of its node ([`crate::lease`]), and before
//! that when the owner deletes it. The revision at which it was made is the epoch, and more by what `base` says where etcd began to
//! count anew ([`adopt`]). `last` outlives it: which node owned the service last, and whether it let go of it with all that it had.
//! Where it did not, the next owner fences it. `wanted` names the node that an administrator chose, `asked` that it is there and
//! waits: an owner leaves for nobody else.
//!
//! *Errors.* A request whose answer was lost may have made the key, or make it later. The key is that of a candidature if it has
//! the lease of the node and the number of the candidature. With the lease and another number it is left over from an earlier one,
//! and is deleted: it must not count as an election that was won, because a request to delete it may still be under way.

use serde_json::{Value, json};

use crate::etcd::{Change, Entry, Error, Etcd};
use crate::lease::Lease;

/// The keys of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Who owns it.
    pub owner: String,
    /// Who owned it last.
    pub last: String,
    /// Who is to own it.
    pub wanted: String,
    /// That node is there and waits for it.
    pub asked: String,
    /// How it was taken over last ([`crate::board::Takeover`]).
    pub takeover: String,
    /// Why nodes could not serve it: this, and the name of the node.
    pub trouble: String,
    /// By how much its epochs are more than etcd's revisions; not there: by nothing.
    pub base: String,
    /// What all of them begin with.
    pub all: String,
}

impl Keys {
    /// Of this service in this cluster.
    pub fn new(cluster: &str, service: &str) -> Self {
        let key = |what| format!("/{cluster}/services/{service}/{what}");
        let (owner, last, wanted, asked) = (key("owner"), key("last"), key("wanted"), key("asked"));
        let (takeover, trouble, base) = (key("takeover"), key("trouble/"), key("base"));
        Self { owner, last, wanted, asked, takeover, trouble, base, all: key("") }
    }
}

/// The key that says that a node is to own nothing.
pub fn drained(cluster: &str, node: &str) -> String {
    format!("/{cluster}/nodes/{node}/drained")
}

/// Who owned a service, as the key `last` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Last {
    /// Name of the node.
    pub node: String,
    /// Names its machine, where two nodes have one name.
    pub machine: String,
    /// In which epoch.
    pub epoch: u64,
    /// It has ended its gateway and let go of the storage.
    pub ended: bool,
    /// It attaches storage, in this boot of its machine; `None`: that has ended, or nothing is attached.
    pub attaching: Option<String>,
    /// Hardware addresses of its devices, where its addresses may still be.
    pub hardware: Vec<String>,
}

impl Last {
    /// As it stands in etcd.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { node, machine, epoch, ended, attaching, hardware } = self;
        let said = json!({
            "node": node, "machine": machine, "epoch": epoch, "ended": ended, "attaching": attaching,
            "hardware": hardware,
        });
        said.to_string().into_bytes()
    }

    /// What stands in etcd. `None` where it is something else.
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

/// What must be done about the owner before.
#[derive(Debug, PartialEq, Eq)]
pub enum Before {
    /// Nothing: there was none, or it has let go.
    Gone,
    /// Nothing: it was a gateway of this machine, which ends with its parent. Not known is whether it has, and what it has left.
    OwnLeft(Last),
    /// It may still write.
    Fence(Last),
    /// A node of another machine has this node's name.
    SameName(Last),
}

impl Before {
    /// For `node` on `machine`, elected after this one.
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
    /// For records and people.
    pub epoch: u64,
    /// For etcd: the revision at which the key `owner` was made.
    pub created: u64,
}

impl Term {
    /// Of an owner whose key was made at this revision, where `base` has this value.
    pub fn of(created: u64, base: Option<&[u8]>) -> Option<Self> {
        let base = match base {
            None => 0,
            Some(text) => std::str::from_utf8(text).ok()?.parse().ok()?,
        };
        Some(Self { epoch: created.checked_add(base)?, created })
    }
}

/// Lets the next epochs of a service be above this one, where etcd has lost what it knew and counts from less. False: a node owns
/// the service.
pub async fn adopt(etcd: &Etcd, keys: &Keys, epoch: u64) -> Result<bool, Error> {
    // Of a key that is not there the revision is zero.
    let base = epoch.to_string();
    etcd.change_while(&keys.owner, 0, &[Change::Put(&keys.base, base.as_bytes())]).await
}

/// The keys of a service at one revision.
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

    /// The name of the node that was chosen.
    pub(crate) fn chosen(&self) -> Option<&[u8]> {
        self.wanted.as_ref().map(|wanted| &*wanted.value)
    }

    /// Another node than this one was chosen, is there and waits.
    pub(crate) fn is_asked_for(&self, node: &str) -> bool {
        let asked = self.asked.as_ref().map(|asked| &*asked.value);
        self.chosen().is_some_and(|chosen| chosen != node.as_bytes()) && self.chosen() == asked
    }
}

/// Looks at a service.
pub(crate) async fn look(etcd: &Etcd, keys: &Keys) -> Result<Look, Error> {
    Ok(Look::of(keys, etcd.below(&keys.all).await?))
}

/// An election that was won.
#[derive(Debug)]
pub(crate) struct Won {
    /// Its number.
    pub(crate) term: Term,
    /// The lease with which it ends.
    pub(crate) lease: Lease,
    /// The key `last`, read with the election: only an owner changes it.
    pub(crate) last: Option<Entry>,
}

/// The name of the node that a key `owner` holds.
pub fn owner_of(value: &[u8]) -> String {
    let said: Value = serde_json::from_slice(value).unwrap_or_default();
    said["node"].as_str().unwrap_or("?").to_owned()
}

/// Says that the node which was chosen is there and waits, for as long as its lease lives: a node that is gone asks for nothing.
/// Whoever owns the service next takes it away, and a node that no longer waits does so itself ([`take_back`]).
pub(crate) async fn ask(etcd: &Etcd, keys: &Keys, node: &str, lease: Lease) -> Result<(), Error> {
    etcd.create(&keys.asked, node.as_bytes(), lease.id, &keys.asked).await.map(drop)
}

/// Takes away what was asked by a node that does not wait for the service; what was asked since then stays.
pub(crate) async fn take_back(etcd: &Etcd, keys: &Keys, asked: &Entry) -> Result<(), Error> {
    etcd.change_while(&keys.asked, asked.created, &[Change::Delete(&keys.asked)]).await.map(drop)
}

/// Stands for election once; `None`: the service has an owner. No other candidature of this node under this lease had this
/// `number`.
pub(crate) async fn stand(
    etcd: &Etcd,
    keys: &Keys,
    (node, number): (&str, u64),
    lease: Lease,
) -> Result<Option<Won>, Error> {
    let value = json!({ "node": node, "candidature": number }).to_string().into_bytes();
    let look = Look::of(keys, etcd.create(&keys.owner, &value, lease.id, &keys.all).await?);
    let owner = look.owner.ok_or(Error::Malformed("owner"))?;
    if owner.lease != lease.id || owner.value != value {
        return Ok(None);
    }
    let term = Term::of(owner.created, look.base.as_ref().map(|entry| &*entry.value));
    let term = term.ok_or(Error::Malformed("base"))?;
    Ok(Some(Won { term, lease, last: look.last }))
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
    fn whoever_did_not_let_go_is_fenced() {
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
    fn epochs_are_counted_from_what_is_said() {
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
    fn what_stands_in_last_is_read_as_it_was_written() {
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
