//! `times.md` in this folder: how long the second client waits for its result, and when the first is notified, if the first answers
//! at once. Written together with the matrix, one cell at a time, and never compared, because durations depend on the machine.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use headgate_tests::world::smb::with_alice;

use crate::cell::{self, Pace, Took};
use crate::kinds::{ALL, Kind};
use crate::side::{DATA, Side, Way};

/// Runs of each cell; the median is reported.
const RUNS: usize = 3;
/// How often a run disturbed by a busy machine is repeated.
const TRIES: usize = 5;

const HEAD: &str = "\
# How long one client waits for another

The test of [the matrix](table.md) writes this page and compares it with no other figures: read them as magnitudes on one
machine. The first client, at the left, holds something; then the second, at the top, comes. The first answers breaks and recalls at
once and sends its cached data. Times are in milliseconds, medians of three runs, over the loopback device. `A > B`: the first was
notified after A, and the second had its answer after B. The second does more than one request: it opens, and reads, writes or
locks. Other work on the machine makes the times longer.

An NFS client that would wait longer than a tenth of a second gets an error and must retry; the clients of this test retry after 5
milliseconds.
";

/// Each cell, in the order of [`ALL`].
pub(crate) struct Times {
    way: Way,
    took: Vec<Took>,
}

/// Runs all cells, one after the other.
pub(crate) async fn measure(way: Way) -> Times {
    let (world, _dir) = with_alice(|_| ()).await;
    let (mut a, b) = (crate::side(&world, way, DATA).await, crate::side(&world, way, DATA).await);
    let mut took = Vec::new();
    for (n, pair) in pairs().enumerate() {
        let mut runs = Vec::new();
        for run in 0..RUNS {
            runs.push(time((&mut a, &b), pair, &format!("cell-{n}-{run}")).await);
        }
        runs.sort();
        took.push(runs[RUNS / 2]);
    }
    world.running.stop().await;
    Times { way, took }
}

/// One run in which the first client got its holding and no error occurred.
async fn time((a, b): (&mut Side, &Side), pair: (Kind, Kind), name: &str) -> Took {
    let mut faults = Vec::new();
    for n in 0..TRIES {
        // Some rows do not use NFSv4 on one side, and its lease would lapse (RFC 8881 section 8.3).
        for side in [&*a, b] {
            side.nfs4.call(side.nfs4.compound()).await.unwrap();
        }
        let (seen, took) = cell::run((a, b), pair, &format!("{name}-{n}"), Pace::PROMPT).await;
        if seen.faults.is_empty() {
            return took;
        }
        faults = seen.faults;
    }
    panic!("{}, then {}: {faults:?}", pair.0.name(), pair.1.name());
}

fn pairs() -> impl Iterator<Item = (Kind, Kind)> {
    ALL.iter().flat_map(|a| ALL.iter().map(|b| (*a, *b)))
}

fn shown(took: &Took) -> String {
    let ms = |d: Duration| format!("{:.1}", d.as_secs_f64() * 1e3);
    match took.told {
        Some(told) => format!("{} > {}", ms(told), ms(took.answered)),
        None => ms(took.answered),
    }
}

/// Writes the document.
pub(crate) fn write(all: &[Times]) {
    let mut out = HEAD.to_owned();
    if cfg!(debug_assertions) {
        out.push_str("\nThis is a debug build of the gateway and of its clients, which is slower than what users install.\n");
    }
    for Times { way, took } in all {
        let title = match way {
            Way::Tcp => "By TCP",
            Way::Rdma => "By RDMA (iWARP in user space)",
        };
        let _ = write!(out, "\n## {title}\n\n| the first holds |");
        for kind in ALL {
            let _ = write!(out, " {} |", kind.name());
        }
        let _ = write!(out, "\n|---|{}\n", "---:|".repeat(ALL.len()));
        for (first, row) in ALL.iter().zip(took.chunks(ALL.len())) {
            let _ = write!(out, "| {} |", first.name());
            for one in row {
                let _ = write!(out, " {} |", shown(one));
            }
            out.push('\n');
        }
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/coherence/times.md");
    std::fs::write(path, out).unwrap();
}
