//! Kills an MDS and an OSD during commits, in a separate cluster whose OSD keeps acknowledged data.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use recovery::Store;

use crate::world::{contents, expected, folder_of, judge, open, script, transaction};

/// The cluster, which ends on drop.
struct Own {
    at: tempfile::TempDir,
}

impl Own {
    fn script(&self, args: &[&str]) -> Command {
        let mut command = script();
        command.args(args).env("CEPH_AT", self.at.path()).env("OSD_STORE", "bluestore");
        // A port other than the shared cluster's.
        command.env("CEPH_PORT", "23399");
        command
    }

    fn tell(&self, args: &[&str]) {
        let done = self.script(args).output().unwrap();
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn new() -> Self {
        // Paths of sockets must be short.
        let own =
            Self { at: tempfile::Builder::new().prefix("hgr").tempdir_in("/var/tmp").unwrap() };
        own.tell(&["up"]);
        own
    }

    fn conf(&self) -> &Path {
        self.at.path()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.script(&["down"]).status();
    }
}

#[test]
fn a_daemon_that_is_killed_in_the_middle_is_waited_for() {
    let own = Own::new();
    let conf = own.conf().join("ceph.conf").display().to_string();
    let ceph = folder_of(&conf);
    let store = Store::open_in(open(&ceph)).unwrap();
    let mut there = 0;
    for daemon in ["mds", "osd", "mds"] {
        let (began, before) = (Instant::now(), there);
        std::thread::scope(|scope| {
            let killed = scope.spawn(|| {
                own.tell(&["stop", daemon]);
                std::thread::sleep(Duration::from_millis(300));
                own.tell(&["start", daemon]);
            });
            while !killed.is_finished() || there < before + 20 {
                store
                    .commit_blocking(transaction(there))
                    .unwrap_or_else(|e| panic!("{daemon}: {e}"));
                there += 1;
                assert!(began.elapsed() < Duration::from_secs(150), "{daemon} does not come back");
            }
            killed.join().unwrap();
        });
        println!("{daemon}: {} commits meanwhile, {:?}", there - before, began.elapsed());
    }
    // Repeats it without a daemon that could answer the MDS: the client ends first.
    drop(store);
    own.tell(&["stop", "mds"]);
    own.tell(&["stop", "osd"]);
    own.tell(&["start", "osd"]);
    own.tell(&["start", "mds"]);
    let store = Store::open_in(open(&ceph)).unwrap();
    assert_eq!(judge(&store, there, "after both were killed"), there);
    store.commit_blocking(transaction(there)).unwrap();
    assert!(contents(&store) == expected(there + 1));
}
