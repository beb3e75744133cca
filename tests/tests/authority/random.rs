//! Mode bits at random: what NFS 3 answers is what the kernel says.

use crate::shape::Shape;
use crate::{Caller, Cell, Op, is_root, kernel, nfs, world};

const SEEDS: u64 = 1000;

fn roll(state: &mut u64, n: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % n
}

/// What NFS has that the kernel has not: the owner's data, and programs.
fn is_of_nfs(op: Op, caller: Caller, mode: u32) -> bool {
    let data = matches!(op, Op::Read | Op::Write | Op::Truncate) && caller == Caller::Owner;
    data || op == Op::Read && mode & 0o111 != 0
}

#[tokio::test(flavor = "multi_thread")]
async fn modes_at_random_are_the_kernels() {
    if !is_root() {
        return;
    }
    let (world, _dir) = world().await;
    let top = world.folder();
    let mut clients = Vec::new();
    for caller in Caller::ALL {
        clients.push(nfs::Nfs::connect(&world, caller).await);
    }
    let (mut faults, mut compared) = (Vec::new(), 0);
    for seed in 0..SEEDS {
        let mut dice = seed;
        let mut bits = |special: u64| {
            let permits = roll(&mut dice, 0o1000);
            u32::try_from(permits | special & roll(&mut dice, 8) << 9).unwrap()
        };
        let (dir, file) = (bits(0o3000), bits(0o6000));
        let shape = Shape::modes("random", dir, file);
        let which = usize::try_from(roll(&mut dice, 5)).unwrap();
        let caller = Caller::ALL[which];
        let op = Op::ALL[usize::try_from(roll(&mut dice, 20)).unwrap()];
        if matches!(op, Op::SetList | Op::LinkReplace) || is_of_nfs(op, caller, file) {
            continue;
        }
        let new = |of: &str| Cell::new(&top, &format!("{of}-{seed}"), caller, &shape);
        let want = kernel::may(&new("kernel"), op, caller);
        let cell = new("nfs");
        let done = clients[which].by_3(&cell, op, caller).await.unwrap();
        compared += 1;
        if done != want || done && !cell.shows(op, caller) {
            faults.push(format!(
                "seed {seed}: {op:?} by {caller:?}, {dir:o} {file:o}: {done}, kernel {want}"
            ));
        }
    }
    world.running.stop().await;
    assert!(compared > SEEDS / 2, "{compared}");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
