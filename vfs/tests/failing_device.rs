//! A device that fails during write-back: every caller that has written learns of it, in whatever order they ask.
//!
//! The device is a loop device over a sparse file in a memory file system that is full: a write to a hole fails. If that cannot be
//! made (no root, no loop devices, no `mkfs.ext4`) the test prints the reason and leaves the check to `durability.rs`, whose device
//! is simulated. The answers of NFS and SMB follow from the values checked here: COMMIT from the verifier (`nfsrdma`,
//! `tests/durability.rs`), FLUSH and CLOSE from the count of losses (`smbd-core`, `ops/tests/data.rs`).

#![allow(clippy::unwrap_used)]
#![allow(unsafe_code)]

use std::path::Path;
use std::process::Command;

use iobuf::Buf;
use rustix::thread::UnshareFlags;
use vfs::Acting;
use vfs::WriteBy;
use vfs::local::{LocalBackend, LocalConfig};
use vfs::{AppendAt, Backend, CreateHow, Cred, NodeRef, SetAttr, Stable, VfsError, Written};

const MIB: usize = 1 << 20;

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let done = Command::new(program).args(args).output().map_err(|e| format!("{program}: {e}"))?;
    let why = || format!("{program}: {}", String::from_utf8_lossy(&done.stderr).trim());
    if done.status.success() { Ok(()) } else { Err(why()) }
}

/// Mounts a file system whose device accepts only blocks that the file system itself has already written. It uses a mount namespace
/// of this thread, so no mount remains.
fn mounted(folder: &Path) -> Result<std::path::PathBuf, String> {
    // SAFETY: only this thread gets a new namespace; it shares no descriptor table or memory map by this.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS | UnshareFlags::NEWNS) }
        .map_err(|e| format!("no mount namespace: {e}"))?;
    run("mount", &["--make-rprivate", "/"])?;
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (memory, mount) = (folder.join("memory"), folder.join("mount"));
    for dir in [&memory, &mount] {
        std::fs::create_dir(dir).map_err(|e| e.to_string())?;
    }
    run("mount", &["-t", "tmpfs", "-o", "size=8m", "tmpfs", &text(&memory)])?;
    let image = memory.join("image");
    let made = std::fs::File::create(&image).and_then(|f| f.set_len(64 * MIB as u64));
    made.map_err(|e| e.to_string())?;
    run("mkfs.ext4", &["-q", "-F", "-O", "^has_journal", &text(&image)])?;
    run("mount", &["-o", "loop", &text(&image), &text(&mount)])?;
    Ok(mount)
}

/// Fills the memory that the device has left.
fn fill(folder: &Path) {
    let ballast = std::fs::write(folder.join("memory/ballast"), vec![1; 16 * MIB]);
    assert!(ballast.is_err(), "it is full");
}

async fn file(backend: &LocalBackend, name: &[u8]) -> NodeRef {
    let set = SetAttr { mode: Some(0o644), ..SetAttr::default() };
    let made =
        backend.root().create(Acting::caller(&Cred::root()), name, CreateHow::Guarded, set).await;
    made.unwrap().node
}

async fn write(node: &NodeRef, at: usize, stable: Stable) -> Result<Written, VfsError> {
    node.write(WriteBy::Open(None), at as u64, vec![Buf::from(vec![7; MIB])], stable).await
}

async fn everybody_learns(folder: &Path, mount: &Path) {
    let backend = LocalBackend::open(LocalConfig::new(mount)).unwrap();
    let (f, other) = (file(&backend, b"f").await, file(&backend, b"other").await);
    let added = file(&backend, b"added").await;
    for node in [&f, &other, &added] {
        write(node, 0, Stable::Unstable).await.unwrap();
        node.commit(0, 0).await.unwrap();
    }
    fill(folder);
    let (losses, mut verifiers) = (f.losses(), Vec::new());
    for i in 1..8 {
        verifiers.push(write(&f, i * MIB, Stable::Unstable).await.unwrap().verifier);
        verifiers.push(write(&other, i * MIB, Stable::Unstable).await.unwrap().verifier);
    }
    // Two clients at once; the kernel reports the error to one of them.
    let (a, b) = tokio::join!(f.commit(0, 0), f.commit(0, 0));
    assert!(a.is_err() || b.is_err(), "{a:?} {b:?}");
    assert!(verifiers.iter().all(|v| *v != f.verifier()), "whoever has written sends it again");
    assert!(
        f.losses() > losses,
        "by which each open of SMB learns of it when it flushes or closes"
    );
    // A stable write reports the error as well, and so does the other file's own sync.
    let stable = write(&f, 9 * MIB, Stable::Data).await;
    assert!(matches!(stable, Err(VfsError::Io | VfsError::NoSpace)), "{stable:?}");
    assert!(other.commit(0, 0).await.is_err());
    assert_eq!(backend.losses().count, f.losses() + other.losses());
    // A durable append after a hole does not take the error report for which another caller's commit waits.
    let before = write(&added, MIB, Stable::Unstable).await.unwrap().verifier;
    let data = vec![Buf::from(vec![7; MIB])];
    let done = added.append(None, AppendAt::Offset(8 * MIB as u64), data, Stable::Data).await;
    assert!(matches!(done, Err(VfsError::Io | VfsError::NoSpace)), "{done:?}");
    assert_ne!(added.verifier(), before);
    assert!(added.commit(0, 0).await.is_err());
    assert_eq!(added.losses(), 2);
}

#[test]
fn every_writer_learns_of_device_failure() {
    let thread = std::thread::spawn(|| {
        let folder = tempfile::tempdir().unwrap();
        let mount = match mounted(folder.path()) {
            Ok(mount) => mount,
            Err(why) => return println!("skipped: {why}"),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(everybody_learns(folder.path(), &mount));
    });
    thread.join().unwrap();
}
