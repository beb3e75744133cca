//! An index of the opens below each folder, so that a query does not visit all opens.
//!
//! *Operation.* Each open is listed in the folder of its name, and each listed folder is linked to the one above it. The links come
//! from the walk that found a name ([`Above`]), and renames through the gateway update them. A folder that was not reached by a
//! walk (an open of an earlier run of the server, a rename by another protocol) has an unknown place until [`Folders::link`] sets
//! it. A host process that moves a folder changes no link: callers check results against the file system, and an open that a host
//! process has moved below a folder is found there only after a client walks to its folder again.
//!
//! *Memory.* An entry for each folder that has opens or listed folders in it, and one for each open. A folder with a known place
//! keeps no node.

use ahash::{HashMap, HashSet};
use std::sync::Arc;

use vfs::NodeId;

/// A folder and those above it, up to where a walk began.
#[derive(Debug)]
pub struct Above<N> {
    pub id: NodeId,
    /// The folder's node.
    pub node: N,
    /// The folder above; `None` at the start of the walk.
    pub parent: Option<Arc<Self>>,
}

/// A folder of a share.
type Key = (u32, NodeId);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parent {
    Folder(NodeId),
    /// No folder above it is relevant: the root of a share, or a removed folder.
    Top,
    Unknown,
}

#[derive(Debug)]
struct Folder<N> {
    /// Needed to look the place up; kept only while it is unknown.
    node: Option<N>,
    parent: Parent,
    /// Opens of names in it.
    opens: HashSet<u64>,
    /// Listed folders in it.
    folders: HashSet<NodeId>,
}

/// The index. Opens are identified by number.
#[derive(Debug)]
pub(crate) struct Folders<N> {
    folders: HashMap<Key, Folder<N>>,
    /// The folder in which each open is listed.
    opens: HashMap<u64, Key>,
    /// Folders with an unknown place.
    unknown: HashSet<Key>,
}

impl<N> Default for Folders<N> {
    fn default() -> Self {
        Self { folders: HashMap::default(), opens: HashMap::default(), unknown: HashSet::default() }
    }
}

impl<N: Clone> Folders<N> {
    fn entry(&mut self, (share, id): Key, node: &N) -> &mut Folder<N> {
        let Self { folders, unknown, .. } = self;
        folders.entry((share, id)).or_insert_with(|| {
            unknown.insert((share, id));
            let (opens, folders) = (HashSet::default(), HashSet::default());
            Folder { node: Some(node.clone()), parent: Parent::Unknown, opens, folders }
        })
    }

    /// Lists an open in a folder. `above`: that folder, if a walk has led to it.
    pub(crate) fn add(
        &mut self,
        share: u32,
        open: u64,
        (id, node): (NodeId, &N),
        above: Option<&Arc<Above<N>>>,
    ) {
        self.entry((share, id), node).opens.insert(open);
        self.opens.insert(open, (share, id));
        if let Some(above) = above {
            self.link(share, above);
        }
    }

    /// Removes an open from the index.
    pub(crate) fn remove(&mut self, open: u64) {
        if let Some(key) = self.opens.remove(&open)
            && let Some(folder) = self.folders.get_mut(&key)
        {
            folder.opens.remove(&open);
            self.tidy(key);
        }
    }

    /// Moves an open to another folder, if it is listed.
    pub(crate) fn shift(
        &mut self,
        share: u32,
        open: u64,
        to: (NodeId, &N),
        above: Option<&Arc<Above<N>>>,
    ) {
        if let Some(from) = self.opens.get(&open).copied() {
            if from != (share, to.0) {
                self.remove(open);
            }
            self.add(share, open, to, above);
        }
    }

    /// Links the listed folders among these as a walk has found them.
    pub(crate) fn link(&mut self, share: u32, above: &Arc<Above<N>>) {
        let mut at = above;
        while let Some(parent) = &at.parent {
            self.place(share, at.id, (parent.id, &parent.node));
            at = parent;
        }
    }

    /// Links a folder to its parent. Has no effect on a folder that is not listed.
    pub(crate) fn place(&mut self, share: u32, id: NodeId, (parent, node): (NodeId, &N)) {
        let to = Parent::Folder(parent);
        if self.folders.get(&(share, id)).is_some_and(|f| f.parent != to) && parent != id {
            self.entry((share, parent), node).folders.insert(id);
            self.set_parent((share, id), to);
        }
    }

    /// Marks a folder as having no relevant folder above it.
    pub(crate) fn is_top(&mut self, share: u32, id: NodeId) {
        if self.folders.contains_key(&(share, id)) {
            self.set_parent((share, id), Parent::Top);
        }
    }

    fn set_parent(&mut self, key: Key, parent: Parent) {
        let Some(folder) = self.folders.get_mut(&key) else { return };
        let old = std::mem::replace(&mut folder.parent, parent);
        match parent {
            Parent::Unknown => drop(self.unknown.insert(key)),
            Parent::Folder(_) | Parent::Top => {
                folder.node = None;
                self.unknown.remove(&key);
            }
        }
        if old != parent {
            self.leave(key, old);
        }
    }

    /// Unlinks a folder from its former parent.
    fn leave(&mut self, (share, id): Key, old: Parent) {
        if let Parent::Folder(old) = old
            && let Some(folder) = self.folders.get_mut(&(share, old))
        {
            folder.folders.remove(&id);
            self.tidy((share, old));
        }
    }

    /// Removes a folder without entries, and then each parent that has become empty.
    fn tidy(&mut self, mut key: Key) {
        while let Some(folder) = self.folders.get(&key)
            && folder.opens.is_empty()
            && folder.folders.is_empty()
        {
            let parent = folder.parent;
            self.folders.remove(&key);
            self.unknown.remove(&key);
            let Parent::Folder(parent) = parent else { return };
            let above = (key.0, parent);
            if let Some(folder) = self.folders.get_mut(&above) {
                folder.folders.remove(&key.1);
            }
            key = above;
        }
    }

    /// Returns the folders of a share whose place is unknown.
    pub(crate) fn unknown(&self, share: u32) -> Vec<(NodeId, N)> {
        let own = self.unknown.iter().filter(|key| key.0 == share);
        own.filter_map(|key| Some((key.1, self.folders.get(key)?.node.clone()?))).collect()
    }

    /// Returns the opens listed in this folder and in all folders below it.
    pub(crate) fn below(&self, share: u32, id: NodeId) -> Vec<u64> {
        // Links of folders that were swapped may form a cycle.
        let (mut seen, mut left, mut below) = (HashSet::default(), vec![id], Vec::new());
        while let Some(id) = left.pop() {
            if seen.insert(id)
                && let Some(folder) = self.folders.get(&(share, id))
            {
                below.extend(&folder.opens);
                left.extend(&folder.folders);
            }
        }
        below
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const SHARE: u32 = 3;
    /// Folder 0 is the root.
    const FOLDERS: usize = 8;

    fn id(n: usize) -> NodeId {
        NodeId(n as u64)
    }

    /// The true state: the parent of each folder, and the folder of each open.
    #[derive(Default)]
    struct Model {
        above: [usize; FOLDERS],
        opens: HashMap<u64, usize>,
    }

    impl Model {
        fn chain(&self, folder: usize) -> Arc<Above<()>> {
            let parent = (folder != 0).then(|| self.chain(self.above[folder]));
            Arc::new(Above { id: id(folder), node: (), parent })
        }

        fn is_below(&self, mut folder: usize, top: usize) -> bool {
            while folder != top && folder != 0 {
                folder = self.above[folder];
            }
            folder == top
        }

        fn below(&self, top: usize) -> BTreeSet<u64> {
            self.opens.iter().filter(|(_, f)| self.is_below(**f, top)).map(|(o, _)| *o).collect()
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Open {
            open: u64,
            folder: usize,
            walked: bool,
        },
        Close(u64),
        Shift {
            open: u64,
            folder: usize,
            walked: bool,
        },
        /// Renames a folder into another one.
        Move {
            folder: usize,
            to: usize,
        },
        /// Looks up the unknown places.
        Resolve,
    }

    fn step() -> impl Strategy<Value = Step> {
        let (open, folder) = (0..6_u64, 0..FOLDERS);
        prop_oneof![
            4 => (open.clone(), folder.clone(), any::<bool>())
                .prop_map(|(open, folder, walked)| Step::Open { open, folder, walked }),
            2 => open.clone().prop_map(Step::Close),
            1 => (open, folder.clone(), any::<bool>())
                .prop_map(|(open, folder, walked)| Step::Shift { open, folder, walked }),
            2 => (1..FOLDERS, folder).prop_map(|(folder, to)| Step::Move { folder, to }),
            1 => Just(Step::Resolve),
        ]
    }

    fn resolve(index: &mut Folders<()>, model: &Model) {
        for (folder, ()) in index.unknown(SHARE) {
            let folder = usize::try_from(folder.0).unwrap();
            let chain = model.chain(folder);
            index.link(SHARE, &chain);
            index.is_top(SHARE, id(0));
        }
    }

    #[test]
    fn nodes_are_kept_while_unknown() {
        let nodes: Vec<Arc<()>> = (0..4).map(|_| Arc::default()).collect();
        let mut chain = None;
        for (n, node) in nodes.iter().enumerate() {
            chain = Some(Arc::new(Above { id: id(n), node: node.clone(), parent: chain }));
        }
        let mut index = Folders::default();
        index.add(SHARE, 1, (id(3), &nodes[3]), chain.as_ref());
        drop(chain);
        let kept = || nodes.iter().map(|n| Arc::strong_count(n) - 1).collect::<Vec<_>>();
        assert_eq!(kept(), [1, 0, 0, 0], "the walk began somewhere");
        index.is_top(SHARE, id(0));
        assert_eq!(kept(), [0; 4]);
    }

    proptest! {
        /// Every sequence of opens, closes and renames, with and without walks.
        #[test]
        fn opens_below_are_those_of_the_model(steps in proptest::collection::vec(step(), 0..60)) {
            let (mut index, mut model) = (Folders::default(), Model::default());
            for step in steps {
                match step {
                    Step::Open { open, folder, walked } => {
                        let chain = model.chain(folder);
                        index.remove(open);
                        index.add(SHARE, open, (id(folder), &()), walked.then_some(&chain));
                        model.opens.insert(open, folder);
                    }
                    Step::Close(open) => {
                        index.remove(open);
                        model.opens.remove(&open);
                    }
                    Step::Shift { open, folder, walked } => {
                        let chain = model.chain(folder);
                        index.shift(SHARE, open, (id(folder), &()), walked.then_some(&chain));
                        model.opens.entry(open).and_modify(|f| *f = folder);
                    }
                    Step::Move { folder, to } if !model.is_below(to, folder) => {
                        model.above[folder] = to;
                        index.place(SHARE, id(folder), (id(to), &()));
                    }
                    Step::Move { .. } => {}
                    Step::Resolve => resolve(&mut index, &model),
                }
            }
            resolve(&mut index, &model);
            for top in 0..FOLDERS {
                let found: BTreeSet<u64> = index.below(SHARE, id(top)).into_iter().collect();
                prop_assert_eq!(found, model.below(top), "below {}", top);
            }
            for open in 0..6 {
                index.remove(open);
            }
            prop_assert!(index.folders.is_empty() && index.opens.is_empty());
            prop_assert!(index.unknown.is_empty());
        }
    }
}
