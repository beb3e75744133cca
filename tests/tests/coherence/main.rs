//! Every pair of holdings of one file, over all protocols: the first client's holding, the second client's operation, and the
//! notices to each. The results are compared with `table.md` in this folder.
//!
//! `HEADGATE_UPDATE=1 cargo test --release -p headgate-tests --test coherence the_matrix` rewrites the table, and
//! `times.md` with the durations.

#![allow(clippy::unwrap_used)]

mod borders;
mod cell;
mod deletes;
mod directories;
mod document;
mod histories;
mod kinds;
mod markers;
mod mute;
mod names;
mod notify;
mod overlap;
mod removed;
mod reparse_points;
mod rules;
mod side;
mod times;
mod turns;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use cell::{Pace, Seen};
use headgate_tests::world::World;
use headgate_tests::world::smb::alice;
use kinds::{ALL, Kind};
use side::{At, DATA, Side, Way};

/// Number of cells that run at once.
const WORKERS: usize = 12;

/// One cell and its results.
type Cell = ((Kind, Kind), Seen);

async fn worker(
    (mut a, b): (Side, Side),
    todo: Arc<Mutex<VecDeque<(Kind, Kind)>>>,
    known: Arc<document::Known>,
) -> Vec<Cell> {
    let mut done = Vec::new();
    loop {
        let next = todo.lock().unwrap().pop_front();
        let Some(pair) = next else { return done };
        let name = |run: &str| {
            let (x, y) = (pair.0.name(), pair.1.name());
            format!("{run} {x} {y}").replace(' ', "-").replace('/', "")
        };
        let (mut seen, _) = cell::run((&mut a, &b), pair, &name("first"), Pace::BRISK).await;
        // A busy machine can look like an unresponsive peer: unexpected results are repeated with more time.
        let agrees = || is_update() || known.agrees(pair, &seen);
        if !seen.faults.is_empty() || !agrees() {
            (seen, _) = cell::run((&mut a, &b), pair, &name("again"), Pace::CALM).await;
        }
        done.push((pair, seen));
    }
}

/// True if the document must be rewritten.
fn is_update() -> bool {
    std::env::var_os("HEADGATE_UPDATE").is_some()
}

/// Runs all cells; the clients of each reach the file by one of the `ways` to it.
async fn all(way: Way, known: &Arc<document::Known>, ways: &[(At, At)]) -> Vec<Cell> {
    let (world, _dir) = overlap::world().await;
    let pairs = ALL.iter().flat_map(|a| ALL.iter().map(|b| (*a, *b)));
    let todo = Arc::new(Mutex::new(pairs.collect::<VecDeque<_>>()));
    let mut workers = Vec::new();
    for (_, (a, b)) in (0..WORKERS).zip(ways.iter().cycle()) {
        let sides = (side(&world, way, *a).await, side(&world, way, *b).await);
        workers.push(tokio::spawn(worker(sides, todo.clone(), known.clone())));
    }
    let mut seen = Vec::new();
    for worker in workers {
        seen.extend(worker.await.unwrap());
    }
    let place = |k: Kind| ALL.iter().position(|x| *x == k);
    seen.sort_by_key(|(pair, _)| (place(pair.0), place(pair.1)));
    world.running.stop().await;
    seen
}

async fn side(world: &World, way: Way, at: At) -> Side {
    Side::connect_at(world, &alice(), way, at).await.unwrap()
}

/// The cells whose results differ from the document.
fn not_as_known(cells: &[Cell], known: &document::Known) -> Vec<String> {
    let differs = |(pair, seen): &&Cell| !known.agrees(*pair, seen);
    let shown = |((a, b), seen): &Cell| format!("{}, then {}: {seen:?}", a.name(), b.name());
    cells.iter().filter(differs).map(shown).collect()
}

/// The pairs of clients again, each on different shares that have the file: nothing changes.
#[tokio::test(flavor = "multi_thread")]
async fn matrix_of_overlapping_shares_is_the_same() {
    let known = Arc::new(document::Known::read());
    let cells = all(Way::Tcp, &known, &overlap::DIFFERENT).await;
    assert_eq!(cells.len(), ALL.len() * ALL.len());
    let faulty = |(pair, seen): &Cell| match seen.faults.is_empty() {
        true => None,
        false => Some(format!("{}, then {}: {seen:?}", pair.0.name(), pair.1.name())),
    };
    let mut faults: Vec<String> = cells.iter().filter_map(faulty).collect();
    faults.extend(not_as_known(&cells, &known));
    assert!(faults.is_empty() || is_update(), "{}", faults.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn matrix_matches_document() {
    let known = Arc::new(document::Known::read());
    let tcp = all(Way::Tcp, &known, &[(DATA, DATA)]).await;
    let rdma = all(Way::Rdma, &known, &[(DATA, DATA)]).await;
    let mut faults = Vec::new();
    for ((pair, tcp), (_, rdma)) in tcp.iter().zip(&rdma) {
        let of = format!("{}, then {}", pair.0.name(), pair.1.name());
        faults.extend(tcp.faults.iter().map(|f| format!("{of} (TCP): {f}; {tcp:?}")));
        faults.extend(rdma.faults.iter().map(|f| format!("{of} (RDMA): {f}; {rdma:?}")));
        if tcp != rdma {
            faults.push(format!("{of}: TCP {tcp:?}, RDMA {rdma:?}"));
        }
    }
    assert_eq!(tcp.len(), ALL.len() * ALL.len());
    if is_update() {
        document::write(&tcp);
        times::write(&[times::measure(Way::Tcp).await, times::measure(Way::Rdma).await]);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let stale = not_as_known(&tcp, &known);
    let update = is_update();
    assert!(
        update || stale.is_empty(),
        "tests/tests/coherence/table.md says otherwise:\n{}",
        stale.join("\n")
    );
    assert!(
        update || known.text == document::text(&tcp),
        "tests/tests/coherence/table.md is out of date"
    );
}
