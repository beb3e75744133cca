//! A volume in memory returns its memory to the system. A separate process, so that no other test changes its resident memory.

// Helpers of tests are tests too.
#![allow(clippy::unwrap_used)]

use iobuf::{Account, Buf, Pool, PoolLimits};
use vfs::backend::ReadInto;
use vfs::mem::MemBackend;
use vfs::*;

const MIB: u64 = 1 << 20;

/// Bytes that each round fills.
const BYTES: u64 = 256 * MIB;

/// Returns the resident bytes of this process (proc_pid_status(5)).
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Limit of the remaining memory: the heap keeps some pages of small allocations, 28 MiB for 20,000 files.
const LEFT_MAX: u64 = 48 * MIB;

/// Waits for the thread that returns memory.
fn is_returned(start: u64) -> bool {
    let began = std::time::Instant::now();
    while resident() > start + LEFT_MAX {
        if began.elapsed().as_secs() > 60 {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

async fn made(root: &NodeRef, name: &str) -> NodeRef {
    root.create(
        Acting::caller(&Cred::root()),
        name.as_bytes(),
        CreateHow::Guarded,
        SetAttr::default(),
    )
    .await
    .unwrap()
    .node
}

async fn filled(root: &NodeRef, name: &str, bytes: u64, step: usize) -> NodeRef {
    let (file, data) = (made(root, name).await, Buf::from(vec![0x5a; step]));
    for at in (0..bytes).step_by(step) {
        assert_eq!(
            file.write(WriteBy::Open(None), at, vec![data.clone()], Stable::Unstable)
                .await
                .unwrap()
                .count,
            step
        );
    }
    file
}

async fn removed(root: &NodeRef, name: &str) {
    root.unlink(Acting::caller(&Cred::root()), name.as_bytes()).await.unwrap();
}

async fn removed_cut_and_replaced() {
    let volume = MemBackend::new(2 * BYTES).unwrap();
    let root = volume.root();
    let start = resident();
    // Removed, after writes of large and of small pieces.
    for step in [1 << 20, 5000] {
        drop(filled(&root, "f", BYTES, step).await);
        assert!(resident() > start + BYTES / 2, "it is memory that counts");
        removed(&root, "f").await;
        assert!(is_returned(start), "{} of {start} after removal, step {step}", resident());
    }
    // The file is truncated.
    let file = filled(&root, "f", BYTES, 1 << 20).await;
    let cut = SetAttr { size: Some(1), ..SetAttr::default() };
    file.setattr(&Cred::root(), cut, false).await.unwrap();
    assert!(is_returned(start), "{} of {start} after a cut", resident());
    removed(&root, "f").await;
    // The data is replaced by a hole.
    let file = filled(&root, "f", BYTES, 1 << 20).await;
    file.deallocate(None, 0, BYTES).await.unwrap();
    assert!(is_returned(start), "{} of {start} after a hole", resident());
    removed(&root, "f").await;
    // The data is replaced by a clone of a hole.
    let (file, hole) = (filled(&root, "f", BYTES, 1 << 20).await, made(&root, "hole").await);
    let long = SetAttr { size: Some(BYTES), ..SetAttr::default() };
    hole.setattr(&Cred::root(), long, false).await.unwrap();
    file.clone_range(None, hole.as_ref(), 0, 0, BYTES).await.unwrap();
    assert!(is_returned(start), "{} of {start} after a clone", resident());
    removed(&root, "f").await;
    // Many small files, of which every fortieth stays.
    for i in 0..20_000 {
        filled(&root, &format!("s{i}"), 12 << 10, 12 << 10).await;
    }
    assert!(resident() > start + 200 * MIB, "it is memory that counts");
    for i in (0..20_000).filter(|i| i % 40 != 0) {
        removed(&root, &format!("s{i}")).await;
    }
    assert!(is_returned(start), "{} of {start} after small files", resident());
}

/// Bytes that a copy replaces, while a reader is still receiving the old data.
async fn replaced_while_it_is_read() {
    let volume = MemBackend::new(2 * BYTES).unwrap();
    let root = volume.root();
    let start = resident();
    let (file, from) = (
        filled(&root, "f", BYTES / 2, 1 << 20).await,
        filled(&root, "from", 8 * MIB, 1 << 20).await,
    );
    let pool = Pool::new(PoolLimits { buffers_max: [1; 3] });
    let into = ReadInto {
        account: Account::new(),
        pool,
        backpressure: None,
        pages: false,
        attributes: false,
    };
    let seen = file.read(None, 0, 128 << 20, &into).await.unwrap();
    for at in (0..BYTES / 2).step_by(8 << 20) {
        assert_eq!(file.copy_range(None, from.as_ref(), 0, at, 8 * MIB).await.unwrap(), 8 * MIB);
    }
    removed(&root, "f").await;
    removed(&root, "from").await;
    drop((file, from, root, volume));
    assert!(seen.data.iter().all(|d| d.iter().all(|b| *b == 0x5a)));
    drop(seen);
    assert!(is_returned(start), "{} of {start}", resident());
}

/// One test: two at once would see each other's memory.
#[tokio::test]
async fn volume_returns_memory_to_system() {
    removed_cut_and_replaced().await;
    replaced_while_it_is_read().await;
}
