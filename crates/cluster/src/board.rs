//! What a node knows of its services, for its metrics and for `headgate cluster status`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use mutex::locked;
use serde_json::{Value, json};

use crate::hold::{Hold, now};

/// A service that a node took over, as the key `takeover` in etcd says, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Takeover {
    /// The node.
    pub node: String,
    /// In which epoch.
    pub epoch: u64,
    /// The node that it fenced.
    pub fenced: Option<String>,
    /// Seconds since 1970, when it served.
    pub at: u64,
    /// How long the fence took.
    pub fence: Duration,
    /// How long the storage took to be attached.
    pub attach: Duration,
    /// From the election until it served.
    pub total: Duration,
}

impl Takeover {
    /// As it stands in etcd: times in milliseconds.
    pub fn to_bytes(&self) -> Vec<u8> {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let said = json!({
            "node": self.node, "epoch": self.epoch, "fenced": self.fenced, "at": self.at,
            "fence_ms": ms(self.fence), "attach_ms": ms(self.attach), "total_ms": ms(self.total),
        });
        said.to_string().into_bytes()
    }

    /// What stands in etcd. `None` where it is something else.
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

/// Why a node could not serve a service, as its key in etcd says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What was wrong.
    pub why: String,
    /// Seconds since 1970, when it was.
    pub at: u64,
}

impl Trouble {
    /// As it stands in etcd.
    pub fn to_bytes(&self) -> Vec<u8> {
        json!({"why": self.why, "at": self.at}).to_string().into_bytes()
    }

    /// What stands in etcd. `None` where it is something else.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let said: Value = serde_json::from_slice(bytes).ok()?;
        Some(Self { why: said["why"].as_str()?.into(), at: said["at"].as_u64()? })
    }
}

/// A service, as this node sees it.
#[derive(Clone, Debug, Default)]
pub struct ServiceState {
    /// The epoch in which this node owns it.
    pub epoch: Option<u64>,
    /// Its gateway runs, and its addresses are here.
    pub serves: bool,
    /// The lease by which it is owned.
    pub hold: Option<Hold>,
    /// How often this node took it over.
    pub takeovers: u64,
    /// The last of them.
    pub last: Option<Takeover>,
    /// How often its lease was not renewed in time.
    pub lost: u64,
    /// How often its gateway ended by itself.
    pub ended: u64,
    /// How often this node was elected and could not serve it.
    pub failed: u64,
    /// Why this node may not or cannot take it over at present.
    pub trouble: Option<String>,
}

impl ServiceState {
    /// How long this node may still serve it.
    pub fn left(&self) -> Duration {
        self.hold.map_or(Duration::ZERO, |hold| hold.left(now()))
    }
}

/// The services of this node.
#[derive(Debug, Default)]
pub struct Board(Mutex<BTreeMap<String, ServiceState>>);

impl Board {
    /// All of them, by name.
    pub fn services(&self) -> BTreeMap<String, ServiceState> {
        locked(&self.0).clone()
    }

    /// How many of them this node serves.
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
    fn what_stands_in_etcd_is_read_as_it_was_written() {
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
