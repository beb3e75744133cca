//! Shares whose folders overlap: two of one folder, or one inside another.
//!
//! *Operation.* Locks, opens and caches need no list of them, because they belong to the file ([`NodeId`](crate::NodeId)). What
//! goes by paths, which are the share's, does: a change is reported to the watchers of each share that shows it, and the rename of
//! a folder concerns the files that are open below it through each of them. The list is made when the shares change: a folder that
//! a process of the host has moved since counts at its former place until the next time.
//!
//! *Memory.* One entry for each pair of overlapping shares, in both directions.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use mutex::{reading, writing};

use crate::backend::NodeRef;
use crate::share::Share;

type ByShare = HashMap<u32, Vec<Arc<Share>>>;

/// For each share the others that overlap it.
#[derive(Default)]
pub struct Overlaps(RwLock<Arc<ByShare>>);

impl Overlaps {
    /// Finds the overlapping pairs among these shares.
    pub(crate) fn set(&self, shares: &[Arc<Share>]) {
        *writing(&self.0) = Arc::new(pairs(shares));
    }

    /// Returns the shares that overlap this one.
    pub fn of(&self, share: u32) -> Vec<Arc<Share>> {
        let by_share = reading(&self.0).clone();
        by_share.get(&share).cloned().unwrap_or_default()
    }

    /// Returns true if any two shares overlap.
    pub fn exist(&self) -> bool {
        !reading(&self.0).is_empty()
    }

    /// Returns true if this holds for any share that overlaps this one.
    pub(crate) fn any(&self, share: u32, holds: impl Fn(u32) -> bool) -> bool {
        let by_share = reading(&self.0);
        by_share.get(&share).is_some_and(|others| others.iter().any(|o| holds(o.id)))
    }
}

/// A share with its place.
struct Placed<'a> {
    tree: u64,
    names: Vec<u8>,
    share: &'a Arc<Share>,
}

fn pairs(shares: &[Arc<Share>]) -> ByShare {
    let mut found = ByShare::new();
    let mut note = |one: &Arc<Share>, other: &Arc<Share>| {
        for (one, other) in [(one, other), (other, one)] {
            let others = found.entry(one.id).or_default();
            if !others.iter().any(|known| known.id == other.id) {
                others.push(other.clone());
            }
        }
    };
    let placed = shares.iter().filter_map(|share| {
        let place = share.backend.place()?;
        Some(Placed { tree: place.tree, names: place.names(), share })
    });
    let mut placed: Vec<Placed<'_>> = placed.collect();
    placed.sort_by(|a, b| (a.tree, &a.names).cmp(&(b.tree, &b.names)));
    let mut around: Vec<&Placed<'_>> = Vec::new();
    for one in &placed {
        around.retain(|outer| outer.tree == one.tree && one.names.starts_with(&outer.names));
        around.iter().for_each(|outer| note(outer.share, one.share));
        around.push(one);
    }
    // A folder that is mounted at two places.
    let mut by_root: HashMap<crate::NodeId, Vec<&Arc<Share>>> = HashMap::new();
    for share in placed.iter().map(|one| one.share) {
        let same = by_root.entry(share.backend.root().id()).or_default();
        same.iter().for_each(|other| note(other, share));
        same.push(share);
    }
    found
}

/// Returns the path of a node of any share from the root of this one; `None` if this share does not show it.
pub async fn path_in(share: &Share, node: &NodeRef) -> Option<Vec<u8>> {
    let here = share.backend.counterpart(node).await.ok().flatten()?;
    here.path().await.ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::backend::{Backend, BoxFuture};
    use crate::mem::MemBackend;
    use crate::namespace::{Enforce, Protocols, Rules, Squash};
    use crate::place::Place;
    use crate::types::{Capabilities, FsStat, Handle};
    use crate::{NodeRef, VfsResult};

    /// A volume in memory at a place.
    struct At(Arc<MemBackend>, Option<Place>);

    impl Backend for At {
        fn root(&self) -> NodeRef {
            self.0.root()
        }

        fn resolve<'a>(&'a self, handle: &'a Handle) -> BoxFuture<'a, VfsResult<NodeRef>> {
            self.0.resolve(handle)
        }

        fn capabilities(&self) -> Capabilities {
            self.0.capabilities()
        }

        fn statfs(&self) -> BoxFuture<'_, VfsResult<FsStat>> {
            self.0.statfs()
        }

        fn place(&self) -> Option<Place> {
            self.1.clone()
        }
    }

    fn share(id: u32, place: Option<Place>) -> Arc<Share> {
        Arc::new(Share {
            name: format!("s{id}"),
            id,
            backend: Arc::new(At(MemBackend::new(1 << 20).unwrap(), place)),
            protocols: Protocols::Both,
            read_only: false,
            squash: Squash::None,
            nfs_locks: Enforce::Smb,
            clients: None,
            rules: Rules::default(),
        })
    }

    /// Compares each path with each other one, name by name.
    fn model(places: &[Option<Place>]) -> BTreeSet<(u32, u32)> {
        let names = |place: &Place| -> Vec<Vec<u8>> {
            place.path.split(|b| *b == b'/').filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect()
        };
        let mut all = BTreeSet::new();
        for (a, one) in (0..).zip(places) {
            for (b, other) in (0..).zip(places) {
                let (Some(one), Some(other)) = (one, other) else { continue };
                let (x, y) = (names(one), names(other));
                let n = x.len().min(y.len());
                if a != b && one.tree == other.tree && x[..n] == y[..n] {
                    all.insert((a, b));
                }
            }
        }
        all
    }

    #[test]
    fn overlaps_are_those_of_the_model() {
        let paths = ["/", "/srv", "/srv/team", "/srv/team/a", "/srv/team-b", "/srv/tea", "/srv2"];
        let mut all = vec![None];
        for tree in [Place::HOST, 9] {
            all.extend(paths.iter().map(|p| Some(Place { tree, path: p.as_bytes().to_vec() })));
        }
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut seen = 0;
        for _ in 0..500 {
            let places: Vec<_> = (0..6)
                .map(|_| {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    all[(random >> 33) as usize % all.len()].clone()
                })
                .collect();
            let shares: Vec<_> = (0..).zip(&places).map(|(n, p)| share(n, p.clone())).collect();
            let overlaps = Overlaps::default();
            overlaps.set(&shares);
            let found: BTreeSet<_> = (0..6_u32)
                .flat_map(|n| overlaps.of(n).into_iter().map(move |other| (n, other.id)))
                .collect();
            assert_eq!(found, model(&places), "{places:?}");
            assert_eq!(overlaps.exist(), !found.is_empty());
            assert!(found.iter().all(|(a, b)| overlaps.any(*a, |o| o == *b)));
            seen += found.len();
        }
        assert!(seen > 1000);
    }

    #[test]
    fn folder_mounted_twice_overlaps_itself() {
        let volume = MemBackend::new(1 << 20).unwrap();
        let at = |id, path: &str| {
            let place = Some(Place { tree: Place::HOST, path: path.into() });
            let mut share = Arc::into_inner(share(id, None)).unwrap();
            share.backend = Arc::new(At(volume.clone(), place));
            Arc::new(share)
        };
        let overlaps = Overlaps::default();
        overlaps.set(&[at(1, "/srv/a"), at(2, "/mnt/b")]);
        assert!(overlaps.any(1, |o| o == 2) && overlaps.any(2, |o| o == 1));
    }
}
