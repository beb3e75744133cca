//! Files that are changed past the gateway after that of the cell, and that the first caches: when it is told of one of them, it
//! was told of what was changed before.
//!
//! Two, one after the other: the gateway takes what the kernel has told at once in any order, but not what comes when the first of
//! them was told of already.

use std::time::Duration;

use client::nfs4::Recall;
use client::smb::Break;

use crate::kinds::{Kind, R};
use crate::side::{Hold, LEN, Side};

/// The kernel and the gateway tell of a change within this time, on any machine.
pub(crate) const TOLD_MAX: Duration = Duration::from_secs(60);

/// A file that is changed, and how the first holds it.
pub(crate) struct Marker {
    name: String,
    hold: Hold,
}

/// Those that are still to be changed, the next one last.
pub(crate) struct Markers(Vec<Marker>);

impl Markers {
    /// Makes them, and has the first cache them: by SMB, and the last of them as what it holds of the cell's file where that is a
    /// delegation, since another protocol tells in its own time.
    pub(crate) async fn set(a: &Side, first: Kind, cell: &str) -> Self {
        let by_v4 = matches!(first, Kind::ReadDelegation | Kind::WriteDelegation);
        let last = if by_v4 { Kind::ReadDelegation } else { Kind::Lease(R) };
        let mut all = Vec::new();
        for (n, kind) in [last, Kind::Lease(R)].into_iter().enumerate() {
            let name = format!("{cell}-marker{n}");
            std::fs::write(a.folder.join(&name), vec![b'm'; LEN as usize]).unwrap();
            let taken = a.take(kind, &name, b"").await;
            assert_eq!(taken.hold.caches, kind.caches(), "{name}: {}", taken.outcome);
            all.push(Marker { name, hold: taken.hold });
        }
        Self(all)
    }

    /// Changes the next one, if there is one.
    pub(crate) async fn change_next(&mut self, a: &Side) -> Option<Marker> {
        let marker = self.0.pop()?;
        let changed = a.take(Kind::LocalWrite, &marker.name, b"later").await;
        assert!(changed.good, "{}", changed.outcome);
        Some(marker)
    }
}

impl Marker {
    pub(crate) fn is_told_by_break(&self, told: &Break) -> bool {
        matches!(told, Break::LeaseNotice(n) if n.key == self.hold.key && self.hold.smb.is_some())
    }

    pub(crate) fn is_told_by_recall(&self, recall: &Recall) -> bool {
        self.hold.delegation.as_ref().is_some_and(|(_, d)| d.stateid == recall.stateid)
    }

    /// Gives it back and removes it.
    pub(crate) async fn leave(mut self, a: &Side) {
        a.leave(&mut self.hold).await.unwrap();
        std::fs::remove_file(a.folder.join(&self.name)).unwrap();
    }
}
