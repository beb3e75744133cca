//! Shares and their users, as data.
//!
//! *Operation.* A task queries the space of the file systems every [`INTERVAL`], not at each request: a device that hangs must not
//! hang `status`. While a query of a share is unanswered, the task sends no further one, and the share's space is unknown.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use audit::PeerText;
use mutex::locked;
use serde::{Deserialize, Serialize};
use smbd_core::session::{Kind, Session};
use tokio::task::JoinSet;
use vfs::namespace::{Namespace, Share};

use crate::stuck::Stuck;

/// Time between two queries of the shares' space.
const INTERVAL: Duration = Duration::from_secs(10);

/// Space of a file system, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// Free for ordinary users.
    pub free_bytes: u64,
    /// In all.
    pub total_bytes: u64,
}

/// One share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareStatus {
    /// Its name.
    pub name: String,
    /// `nfs`, `smb` or `both`.
    pub protocols: String,
    /// No client can write.
    pub read_only: bool,
    /// It is not in lists of shares.
    pub hidden: bool,
    /// Space of its file system; `None` where that does not say.
    pub space: Option<Space>,
    /// Operations that its storage has not answered for some seconds.
    #[serde(default)]
    pub waiting: u64,
    /// Why operations on it fail until a reload opens it again; `None`: they do not.
    #[serde(default)]
    pub ended: Option<String>,
    /// Tree connects by SMB.
    pub trees: u64,
    /// The servers that it is on, with the paths there; empty where it is served here.
    #[serde(default)]
    pub servers: Vec<String>,
}

/// A user with sessions over SMB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserStatus {
    /// The account; empty for one without a name.
    pub name: String,
    /// Logged on as a guest.
    pub guest: bool,
    /// Sessions.
    pub sessions: u64,
    /// Addresses that they come from.
    pub clients: Vec<String>,
    /// Shares that they are connected to.
    pub shares: Vec<String>,
}

/// The space of each share, as of the last query.
#[derive(Debug, Default)]
pub struct Spaces(Mutex<HashMap<u32, Space>>);

impl Spaces {
    fn of(&self, share: &Share) -> Option<Space> {
        locked(&self.0).get(&share.id).copied()
    }

    /// Queries the space for as long as the daemon runs.
    pub async fn keep(self: Arc<Self>, namespace: Arc<Namespace>) {
        let (mut asked, mut looks) = (HashSet::new(), JoinSet::new());
        let mut ticks = tokio::time::interval(INTERVAL);
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    let here = |share: &&Arc<Share>| !share.is_elsewhere() && asked.insert(share.id);
                    for share in namespace.shares().iter().filter(here) {
                        let share = share.clone();
                        looks.spawn(async move { (share.id, share.backend.statfs().await) });
                    }
                }
                Some(Ok((id, seen))) = looks.join_next() => {
                    asked.remove(&id);
                    let mut spaces = locked(&self.0);
                    spaces.retain(|id, _| namespace.share(*id).is_some());
                    match seen {
                        Ok(s) => {
                            let space = Space { free_bytes: s.avail_bytes, total_bytes: s.total_bytes };
                            spaces.insert(id, space);
                        }
                        Err(_) => drop(spaces.remove(&id)),
                    }
                }
            }
        }
    }
}

/// Returns the shares, sorted by name.
pub fn shares(
    namespace: &Namespace,
    (spaces, stuck): (&Spaces, &Stuck),
    sessions: &[Arc<Session>],
) -> Vec<ShareStatus> {
    let mut trees: HashMap<String, u64> = HashMap::new();
    for tree in sessions.iter().flat_map(|session| session.trees()) {
        *trees.entry(tree.name.clone()).or_default() += 1;
    }
    let of = |share: &Arc<Share>| ShareStatus {
        name: share.name.clone(),
        protocols: share.protocols.to_string(),
        read_only: share.read_only,
        hidden: share.rules.hidden,
        space: spaces.of(share).filter(|_| !share.is_elsewhere()),
        waiting: stuck.waiting(&share.name),
        ended: share.backend.ended().map(str::to_owned),
        trees: trees.get(&share.name).copied().unwrap_or_default(),
        servers: share.rules.refers_to.iter().map(ToString::to_string).collect(),
    };
    let mut all: Vec<ShareStatus> = namespace.shares().iter().map(of).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Returns the logged-on users, sorted by name.
pub fn users(sessions: &[Arc<Session>]) -> Vec<UserStatus> {
    let mut all: BTreeMap<(String, bool), UserStatus> = BTreeMap::new();
    for session in sessions {
        let Some(user) = session.user() else { continue };
        let guest = user.kind == Kind::Guest;
        let name = if user.kind == Kind::Anonymous { "" } else { &*user.name };
        let name = PeerText::from(name).into_string();
        let one = all.entry((name.clone(), guest)).or_insert_with(|| UserStatus {
            name,
            guest,
            ..UserStatus::default()
        });
        one.sessions += 1;
        one.clients.extend(session.addresses().iter().map(ToString::to_string));
        let files = session.trees().into_iter().filter(|tree| tree.share().is_some());
        one.shares.extend(files.map(|tree| PeerText::from(&*tree.name).into_string()));
    }
    for one in all.values_mut() {
        for list in [&mut one.clients, &mut one.shares] {
            list.sort();
            list.dedup();
        }
    }
    all.into_values().collect()
}
