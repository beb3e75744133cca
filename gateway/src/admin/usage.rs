//! Shares and their users, as data.
//!
//! *Operation.* A task queries the space of the file systems every [`INTERVAL`], not at each request: a device that hangs must not
//! hang `status`. While a query of a share is unanswered, the task sends no further one, and the share's space is unknown.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use audit::PeerText;
use mutex::locked;
use serde::{Deserialize, Serialize};
use smbd_core::session::{Kind, Session};
use tokio::task::JoinSet;
use vfs::VfsError;
use vfs::backend::SnapshotsTold;
use vfs::links::Link;
use vfs::namespace::{Namespace, Share, gmt_name};
use vfs::refer::Referral;

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
    /// Space of its file system, if that says so.
    pub space: Option<Space>,
    /// Operations that its storage has not answered for some seconds.
    #[serde(default)]
    pub waiting: u64,
    /// Why operations on it fail until a reload opens it again.
    #[serde(default)]
    pub ended: Option<String>,
    /// SMB tree connects.
    pub trees: u64,
    /// The servers that it is on, with the paths there; empty where it is served here.
    #[serde(default)]
    pub servers: Vec<String>,
    /// Its folders that are on other servers.
    #[serde(default)]
    pub links: Vec<LinkStatus>,
    /// Symbolic links in the style of Samba are such folders, too.
    #[serde(default)]
    pub msdfs: bool,
    /// Referrals that clients got for links.
    #[serde(default)]
    pub referred: Referrals,
    /// Its snapshots, where the configuration names them.
    #[serde(default)]
    pub snapshots: Option<SnapshotStatus>,
    /// Contents of its wastebasket, as of the last look.
    #[serde(default)]
    pub wastebasket: Option<WastebasketStatus>,
}

/// The files in a wastebasket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WastebasketStatus {
    /// Number of files.
    pub files: u64,
    /// Their storage.
    pub bytes: u64,
}

/// A folder that is on other servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Its path in the share.
    pub at: String,
    /// The servers, with the paths there.
    pub to: Vec<String>,
}

/// Referrals by protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Referrals {
    /// By DFS.
    pub smb: u64,
    /// By NFS 4.
    pub nfs: u64,
}

/// A user with sessions over SMB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserStatus {
    /// The account; empty for one without a name.
    pub name: PeerText,
    /// Logged on as a guest.
    pub guest: bool,
    /// Sessions.
    pub sessions: u64,
    /// Addresses that they come from.
    pub clients: Vec<String>,
    /// Shares that they are connected to.
    pub shares: Vec<PeerText>,
}

/// Snapshots of a share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotStatus {
    /// The number that clients find.
    pub told: u64,
    /// The latest, by the name under which clients find it.
    pub latest: Option<String>,
    /// The number that is open.
    pub open: u64,
    /// The reason why clients find no snapshot although there may be some.
    #[serde(default)]
    pub trouble: Option<String>,
}

impl SnapshotStatus {
    /// Returns the status by what the backend told.
    pub(crate) fn of(told: &SnapshotsTold) -> Self {
        Self {
            told: u64::try_from(told.told).unwrap_or(u64::MAX),
            latest: told.last.and_then(gmt_name),
            open: u64::try_from(told.open).unwrap_or(u64::MAX),
            trouble: told.distrusted.map(str::to_owned),
        }
    }

    fn lost(why: VfsError) -> Self {
        Self { trouble: Some(why.to_string()), ..Self::default() }
    }
}

/// The last known state of a share's storage.
#[derive(Clone, Debug, Default)]
struct Seen {
    space: Option<Space>,
    snapshots: Option<SnapshotStatus>,
}

/// The space and snapshots of each share, as of the last query.
#[derive(Debug, Default)]
pub struct Spaces(Mutex<HashMap<u32, Seen>>);

impl Spaces {
    fn of(&self, share: &Share) -> Seen {
        locked(&self.0).get(&share.id).cloned().unwrap_or_default()
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
                        looks.spawn(async move {
                            let space = share.backend.statfs().await;
                            (share.id, space, share.backend.snapshots_told().await)
                        });
                    }
                }
                Some(Ok((id, space, snapshots))) = looks.join_next() => {
                    asked.remove(&id);
                    let mut spaces = locked(&self.0);
                    spaces.retain(|id, _| namespace.share(*id).is_some());
                    let space = space.ok();
                    let space = space.map(|s| Space { free_bytes: s.avail_bytes, total_bytes: s.total_bytes });
                    let snapshots = match snapshots {
                        Ok(told) => told.map(|told| SnapshotStatus::of(&told)),
                        Err(why) => Some(SnapshotStatus::lost(why)),
                    };
                    spaces.insert(id, Seen { space, snapshots });
                }
            }
        }
    }
}

fn shown(targets: &[Referral]) -> Vec<String> {
    targets.iter().map(ToString::to_string).collect()
}

fn link_status(link: &Link) -> LinkStatus {
    LinkStatus { at: link.path.to_string(), to: shown(&link.targets) }
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
    let status = |share: &Arc<Share>, seen: Seen| ShareStatus {
        name: share.name.clone(),
        protocols: share.protocols.to_string(),
        read_only: share.read_only,
        hidden: share.rules.hidden,
        space: seen.space.filter(|_| !share.is_elsewhere()),
        snapshots: seen.snapshots,
        waiting: stuck.waiting(&share.name),
        ended: share.backend.ended().map(str::to_owned),
        trees: trees.get(&share.name).copied().unwrap_or_default(),
        servers: shown(&share.rules.refers_to),
        links: share.rules.links.all().iter().map(|link| link_status(link)).collect(),
        msdfs: share.rules.links.msdfs,
        referred: Referrals {
            smb: share.rules.links.referred.smb.load(Ordering::Relaxed),
            nfs: share.rules.links.referred.nfs.load(Ordering::Relaxed),
        },
        wastebasket: share.rules.wastebasket.as_ref().map(|rules| WastebasketStatus {
            files: rules.files.load(Ordering::Relaxed),
            bytes: rules.bytes.load(Ordering::Relaxed),
        }),
    };
    let of = |share: &Arc<Share>| status(share, spaces.of(share));
    let mut all: Vec<ShareStatus> = namespace.shares().iter().map(of).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Returns the logged-on users, sorted by name.
pub fn users(sessions: &[Arc<Session>]) -> Vec<UserStatus> {
    let mut all: BTreeMap<(PeerText, bool), UserStatus> = BTreeMap::new();
    for session in sessions {
        let Some(user) = session.user() else { continue };
        let guest = user.kind == Kind::Guest;
        let name = if user.kind == Kind::Anonymous { "" } else { &*user.name };
        let name = PeerText::from(name);
        let one = all.entry((name.clone(), guest)).or_insert_with(|| UserStatus {
            name,
            guest,
            ..UserStatus::default()
        });
        one.sessions += 1;
        one.clients.extend(session.addresses().iter().map(ToString::to_string));
        let files = session.trees().into_iter().filter(|tree| tree.share().is_some());
        one.shares.extend(files.map(|tree| PeerText::from(&*tree.name)));
    }
    for one in all.values_mut() {
        one.clients.sort();
        one.clients.dedup();
        one.shares.sort();
        one.shares.dedup();
    }
    all.into_values().collect()
}
