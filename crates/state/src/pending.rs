//! Pending deletes: names that a client has marked for removal at the last close (MS-FSA sections 2.1.5.5 and 2.1.5.15.3). The SMB
//! front end records them. All front ends check them before they open a name or change the data behind it.
//!
//! *Memory.* One entry per marked name; the front end marks at most one name per open of the node.

use crate::id::NodeId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub dir: NodeId,
    /// The name as the file system stores it.
    pub name: Box<[u8]>,
}

impl Name {
    /// Checks that this is the given directory and name.
    pub fn is(&self, (dir, name): (NodeId, &[u8])) -> bool {
        self.dir == dir && *self.name == *name
    }
}

/// The names of one node that are marked for removal.
#[derive(Debug, Default)]
pub(crate) struct PendingDeletes(Vec<Name>);

impl PendingDeletes {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces all marked names; duplicates count once.
    pub(crate) fn set(&mut self, names: Vec<Name>) {
        self.0.clear();
        for name in names {
            if !self.0.contains(&name) {
                self.0.push(name);
            }
        }
    }

    /// Checks whether an access concerns a file about to be deleted: either `name` is marked, or all `links` names of the node are,
    /// in which case the name does not matter.
    pub(crate) fn dooms(&self, name: Option<(NodeId, &[u8])>, links: u32) -> bool {
        let all_go = u32::try_from(self.0.len()).is_ok_and(|n| n > 0 && n >= links);
        all_go || name.is_some_and(|name| self.0.iter().any(|n| n.is(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Limits;
    use crate::recall::Deadlines;
    use crate::table::Table;

    fn name(dir: u64, name: &str) -> Name {
        Name { dir: NodeId(dir), name: name.as_bytes().into() }
    }

    /// Creates, marks and removes names at random; the slow model keeps the whole folder and scans every name of the node.
    #[test]
    fn pending_deletes_match_the_slow_model() {
        let t = Table::new(Deadlines::new(10, 20).unwrap(), Limits::default(), 0);
        let all: Vec<Name> = (0..2).flat_map(|d| ["a", "b", "c"].map(|n| name(d, n))).collect();
        // For each name: the node that it refers to, if any, and whether it is marked.
        let mut folder: Vec<Option<(u64, bool)>> = vec![None; all.len()];
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut roll = |n: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 33) as usize % n
        };
        let mut doomed_seen = 0;
        for _ in 0..20_000 {
            let at = roll(all.len());
            folder[at] = match roll(4) {
                0 => None,
                1 => Some((roll(2) as u64, false)),
                _ => folder[at].map(|(node, _)| (node, roll(2) == 0)),
            };
            for node in 0..2 {
                let of = |marked: bool| {
                    let is = move |e: &Option<(u64, bool)>| {
                        e.is_some_and(|(n, m)| n == node && (m || !marked))
                    };
                    folder.iter().zip(&all).filter(move |(e, _)| is(e)).map(|(_, n)| n.clone())
                };
                t.set_pending_deletes(NodeId(node), of(true).collect());
                let links = of(false).count();
                for (entry, n) in folder.iter().zip(&all).filter(|(e, _)| e.is_some()) {
                    let by = Some((n.dir, &n.name[..]));
                    let mine = entry.is_some_and(|(n, _)| n == node);
                    let marked = entry.is_some_and(|(_, m)| m);
                    let none_stays = links > 0 && of(true).count() == links;
                    let links = u32::try_from(links).unwrap();
                    let says = t.is_delete_pending(NodeId(node), by, links);
                    assert_eq!(says, mine && marked || none_stays, "{n:?} of {node}");
                    assert_eq!(t.is_delete_pending(NodeId(node), None, links), none_stays);
                    doomed_seen += u32::from(says);
                }
            }
        }
        assert!(doomed_seen > 1_000);
        (0..2).for_each(|node| t.set_pending_deletes(NodeId(node), Vec::new()));
        assert_eq!((t.pending_deletes(), t.nodes()), (0, 0), "nothing is left");
    }
}
