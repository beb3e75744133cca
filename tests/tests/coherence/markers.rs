//! Files that are changed outside the gateway after the cell's file, and that the first client caches: a notice of one of them
//! proves that all notices of earlier changes have arrived.
//!
//! Two, one after the other: the gateway handles events reported together in any order, but not events that arrive after a notice
//! of the first marker was sent.

use std::time::Duration;

use client::nfs4::Recall;
use client::smb::Break;

use crate::kinds::{Kind, R};
use crate::side::{Hold, LEN, Side};

/// Limit for kernel and gateway to report a change, on any machine.
pub(crate) const TOLD_MAX: Duration = Duration::from_secs(60);

/// A file to change, and the first client's holding of it.
pub(crate) struct Marker {
    name: String,
    hold: Hold,
}

/// The remaining markers, the next one last.
pub(crate) struct Markers(Vec<Marker>);

impl Markers {
    /// Creates the markers and has the first client cache them over SMB; the last one with a delegation if the cell's file has one,
    /// since protocols are notified independently.
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

    /// Changes the next marker, if any.
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

    /// Releases and removes the markers.
    pub(crate) async fn leave(mut self, a: &Side) {
        a.leave(&mut self.hold).await.unwrap();
        std::fs::remove_file(a.folder.join(&self.name)).unwrap();
    }
}
