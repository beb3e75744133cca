//! The state of a node's services, for its metrics and for `headgate cluster status`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use mutex::locked;
use serde_json::{Value, json};

use crate::hold::{Hold, now};

/// A takeover of a service; also stored in etcd under the key `takeover`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Takeover {
    pub node: String,
    /// Epoch of the takeover.
    pub epoch: u64,
    /// The node that was fenced.
    pub fenced: Option<String>,
    /// Time at which the service ran, in seconds since 1970.
    pub at: u64,
    /// Duration of the fence.
    pub fence: Duration,
    /// Duration of attaching the storage.
    pub attach: Duration,
    /// Time from the election until the service ran.
    pub total: Duration,
}

impl Takeover {
    /// Serializes it for etcd; times are in milliseconds.
    pub fn to_bytes(&self) -> Vec<u8> {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let said = json!({
            "node": self.node, "epoch": self.epoch, "fenced": self.fenced, "at": self.at,
            "fence_ms": ms(self.fence), "attach_ms": ms(self.attach), "total_ms": ms(self.total),
        });
        said.to_string().into_bytes()
    }

    /// Parses the value in etcd; `None` if it has another format.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let said: Value = serde_json::from_slice(bytes).ok()?;
        let ms = |field: &str| said[field].as_u64().map(Duration::from_millis);
        Some(Self {
            node: said["node"].as_str()?.into(),
            epoch: said["epoch"].as_u64()?,
            fenced: said["fenced"].as_str().map(str::to_owned),
            at: said["at"].as_u64()?,
            fence: ms("fence_ms")?,
            attach: ms("attach_ms")?,
            total: ms("total_ms")?,
        })
    }
}

/// The reason why a node could not run a service; stored in etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Describes the error.
    pub why: String,
    /// Time of the error, in seconds since 1970.
    pub at: u64,
}

impl Trouble {
    /// Serializes it for etcd.
    pub fn to_bytes(&self) -> Vec<u8> {
        json!({"why": self.why, "at": self.at}).to_string().into_bytes()
    }

    /// Parses the value in etcd; `None` if it has another format.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let said: Value = serde_json::from_slice(bytes).ok()?;
        Some(Self { why: said["why"].as_str()?.into(), at: said["at"].as_u64()? })
    }
}

/// The state of a service on this node.
#[derive(Clone, Debug, Default)]
pub struct ServiceState {
    /// The epoch in which this node owns it.
    pub epoch: Option<u64>,
    /// Its gateway runs, and its addresses are on this node.
    pub serves: bool,
    /// The time for which the owner's lease is valid.
    pub hold: Option<Hold>,
    /// Number of takeovers by this node.
    pub takeovers: u64,
    /// The most recent takeover.
    pub last: Option<Takeover>,
    /// How often the lease was not renewed in time.
    pub lost: u64,
    /// How often its gateway exited unexpectedly.
    pub ended: u64,
    /// How often this node won the election but could not run the service.
    pub failed: u64,
    /// The reason why this node may not or cannot take it over at present.
    pub trouble: Option<String>,
}

impl ServiceState {
    /// Returns how long this node may still run it.
    pub fn left(&self) -> Duration {
        self.hold.map_or(Duration::ZERO, |hold| hold.left(now()))
    }
}

/// The services of this node.
#[derive(Debug, Default)]
pub struct Board(Mutex<BTreeMap<String, ServiceState>>);

impl Board {
    /// Returns all services by name.
    pub fn services(&self) -> BTreeMap<String, ServiceState> {
        locked(&self.0).clone()
    }

    /// Returns the number of services that this node runs.
    pub fn served(&self) -> usize {
        let services = locked(&self.0);
        services.values().filter(|it| it.serves).count()
    }

    pub(crate) fn note(&self, service: &str, change: impl FnOnce(&mut ServiceState)) {
        let mut services = locked(&self.0);
        change(services.entry(service.to_owned()).or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcd_values_round_trip() {
        let takeover = Takeover {
            node: "gw1".into(),
            epoch: 7,
            fenced: Some("gw2".into()),
            at: 1_700_000_000,
            fence: Duration::from_millis(5),
            attach: Duration::ZERO,
            total: Duration::from_secs(1),
        };
        assert_eq!(Takeover::parse(&takeover.to_bytes()), Some(takeover.clone()));
        let other = Takeover { fenced: None, ..takeover };
        assert_eq!(Takeover::parse(&other.to_bytes()), Some(other));
        let trouble = Trouble { why: "no \"fence\"".into(), at: 3 };
        assert_eq!(Trouble::parse(&trouble.to_bytes()), Some(trouble));
        for bytes in [&b""[..], b"{}", b"[]", b"{\"why\":1,\"at\":-1}"] {
            assert_eq!((Takeover::parse(bytes), Trouble::parse(bytes)), (None, None));
        }
    }
}
