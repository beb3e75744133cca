//! Simulates power cuts: after each answered change the bytes that have reached a device are copied and mounted elsewhere, where
//! the change must be visible.
//!
//! The device is a loop device with direct I/O over a file in memory, so that file contains exactly what the file system has
//! issued. If that cannot be made (no root, no loop devices, no `mkfs.ext4`) the test prints the reason and leaves the check to
//! `durability.rs`, which checks the system calls. `HEADGATE_POWER_CUTS` is the number of changes to check.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use vfs::local::{LocalBackend, LocalConfig};
use vfs::namespace::{Enforce, Namespace, Protocols, Rules, Share, Squash};
use vfs::wastebasket::Wastebasket;
use vfs::{Backend, CreateHow, Cred, SetAttr, Special};

fn run(program: &str, args: &[&str]) -> Result<String, String> {
    let done = Command::new(program).args(args).output().map_err(|e| format!("{program}: {e}"))?;
    if !done.status.success() {
        return Err(format!("{program}: {}", String::from_utf8_lossy(&done.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

/// A file system on a device whose issued writes are all in a file.
struct Device {
    folder: tempfile::TempDir,
    name: String,
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

impl Device {
    fn new() -> Result<Self, String> {
        let folder = tempfile::tempdir_in("/dev/shm").map_err(|e| format!("/dev/shm: {e}"))?;
        let image = folder.path().join("image");
        let made = std::fs::File::create(&image).and_then(|f| f.set_len(16 << 20));
        made.map_err(|e| e.to_string())?;
        run(
            "mkfs.ext4",
            &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", text(&image)],
        )?;
        for name in ["mount", "cut"] {
            std::fs::create_dir(folder.path().join(name)).map_err(|e| e.to_string())?;
        }
        let name = run("losetup", &["--direct-io=on", "--show", "-f", text(&image)])?;
        let device = Self { folder, name };
        // The file system makes no commit on its own meanwhile.
        run("mount", &["-o", "commit=300", &device.name, text(&device.mount())])?;
        Ok(device)
    }

    fn mount(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    /// Runs `look` on the state after a power cut at this moment.
    ///
    /// Each copy is a separate file: while any program on the machine still uses the loop device of the previous copy, `mount`
    /// would use that device again for the same file, with cached old bytes.
    fn after_cut<T>(&self, look: impl FnOnce(&Path) -> T) -> T {
        let at = self.folder.path().join("cut");
        let copy = tempfile::NamedTempFile::new_in(self.folder.path()).unwrap();
        std::fs::copy(self.folder.path().join("image"), copy.path()).unwrap();
        run("mount", &["-o", "loop", text(copy.path()), text(&at)]).unwrap();
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| look(&at)));
        run("umount", &[text(&at)]).unwrap();
        seen.unwrap_or_else(|why| std::panic::resume_unwind(why))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // A failure of either cannot be repaired here.
        let _ = run("umount", &[text(&self.mount())]);
        let _ = run("losetup", &["-d", &self.name]);
    }
}

fn namespace(device: &Device, strict: bool, has_basket: bool) -> Namespace {
    let backend = LocalBackend::open(LocalConfig::new(device.mount())).unwrap();
    backend.set_strict(strict, false);
    let basket = Wastebasket::new(std::time::Duration::from_secs(1000), None, Vec::new());
    Namespace::new(vec![Share {
        name: "data".into(),
        id: Share::id_of("data"),
        backend,
        read_only: false,
        protocols: Protocols::Both,
        squash: Squash::None,
        nfs_locks: Enforce::Smb,
        clients: None,
        rules: Rules { wastebasket: has_basket.then(|| basket.into()), ..Rules::default() },
    }])
}

/// Makes one change, and returns the check for it: the kinds take turns, each on names of its round.
async fn change(ns: &Namespace, i: usize) -> Box<dyn FnOnce(&Path) -> bool> {
    let (share, c, set) = (ns.shares()[0].clone(), Cred::root(), SetAttr::default());
    let (file_ops, top) = (ns.by(None), share.backend.root());
    let round = i / KINDS;
    let name = |kind: &str| format!("{kind}{round}");
    let (f, d, l) = (name("f"), name("d"), name("l"));
    let find = async |name: &str| top.lookup(&c, name.as_bytes()).await.unwrap().0;
    let there = |path: &Path| path.symlink_metadata().is_ok();
    match i % KINDS {
        0 => {
            let set = SetAttr { mode: Some(0o640), ..set };
            file_ops.create(&share, &top, &c, f.as_bytes(), CreateHow::Guarded, set).await.unwrap();
            Box::new(move |at| at.join(f).metadata().is_ok_and(|m| m.mode() & 0o777 == 0o640))
        }
        1 => {
            file_ops.mkdir(&share, &top, &c, d.as_bytes(), set).await.unwrap();
            Box::new(move |at| at.join(d).is_dir())
        }
        2 => {
            let set = SetAttr { mode: Some(0o601), ..set };
            file_ops.setattr(&share, &find(&f).await, &c, set, false).await.unwrap();
            Box::new(move |at| at.join(f).metadata().is_ok_and(|m| m.mode() & 0o777 == 0o601))
        }
        3 => {
            file_ops.symlink(&share, &top, &c, l.as_bytes(), b"target", set).await.unwrap();
            Box::new(move |at| at.join(l).read_link().is_ok_and(|t| t == Path::new("target")))
        }
        4 => {
            let p = name("p");
            file_ops.mknod(&share, &top, &c, p.as_bytes(), Special::Fifo, set).await.unwrap();
            Box::new(move |at| at.join(p).metadata().is_ok_and(|m| m.file_type().is_fifo()))
        }
        5 => {
            let dir = find(&d).await;
            file_ops.link(&share, &find(&f).await, &c, &dir, b"second").await.unwrap();
            Box::new(move |at| at.join(d).join("second").metadata().is_ok_and(|m| m.nlink() == 2))
        }
        6 => {
            let dir = find(&d).await;
            file_ops.rename(&share, &top, &c, f.as_bytes(), &dir, b"moved").await.unwrap();
            Box::new(move |at| !there(&at.join(f)) && there(&at.join(d).join("moved")))
        }
        7 => {
            let dir = find(&d).await;
            file_ops.unlink(&share, &dir, &c, b"second").await.unwrap();
            Box::new(move |at| there(&at.join(&d)) && !there(&at.join(d).join("second")))
        }
        8 => {
            let dir = find(&d).await;
            file_ops.unlink(&share, &dir, &c, b"moved").await.unwrap();
            Box::new(move |at| there(&at.join(&d)) && !there(&at.join(d).join("moved")))
        }
        _ => {
            file_ops.rmdir(&share, &top, &c, d.as_bytes()).await.unwrap();
            Box::new(move |at| !there(&at.join(d)))
        }
    }
}

/// Number of kinds of change.
const KINDS: usize = 10;

#[test]
fn answered_change_survives_power_cut() {
    let cuts = std::env::var("HEADGATE_POWER_CUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for strict in [true, false] {
        let device = match Device::new() {
            Ok(device) => device,
            Err(why) => {
                return eprintln!("no power cuts, the system calls are looked at alone: {why}");
            }
        };
        let ns = namespace(&device, strict, false);
        let mut lost = Vec::new();
        for i in 0..if strict { cuts } else { KINDS } {
            let seen = runtime.block_on(change(&ns, i));
            if !device.after_cut(seen) {
                lost.push(i);
            }
        }
        if strict {
            assert!(lost.is_empty(), "answered and lost: {lost:?} of {cuts}");
        } else {
            // Otherwise this test could not fail.
            assert!(!lost.is_empty(), "a relaxed share keeps everything");
        }
    }
}

/// Lists the files in the wastebasket of a copy.
fn kept(at: &Path) -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![at.join(".headgate/wastebasket")], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    files
}

/// An answered removal has moved the file to the wastebasket; before the answer the file is in one of the two places.
#[test]
fn removed_file_is_in_the_wastebasket_after_power_cut() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let device = match Device::new() {
        Ok(device) => device,
        Err(why) => return eprintln!("no power cuts: {why}"),
    };
    let ns = namespace(&device, true, true);
    let (share, c, set) = (ns.shares()[0].clone(), Cred::root(), SetAttr::default());
    let (file_ops, top) = (ns.by(None), share.backend.root());
    for round in 0..6 {
        let (name, other) = (format!("f{round}"), format!("g{round}"));
        for name in [&name, &other] {
            let name = name.as_bytes();
            let made = file_ops.create(&share, &top, &c, name, CreateHow::Guarded, set);
            runtime.block_on(made).unwrap();
        }
        let before = device.after_cut(|at| kept(at).len());
        match round % 2 {
            0 => {
                let removal = file_ops.unlink(&share, &top, &c, name.as_bytes());
                runtime.block_on(removal).unwrap();
            }
            _ => {
                let (from, to) = (other.as_bytes(), name.as_bytes());
                runtime.block_on(file_ops.rename(&share, &top, &c, from, &top, to)).unwrap();
            }
        }
        device.after_cut(|at| {
            let files = kept(at);
            assert_eq!(files.len(), before + 1, "{round}");
            assert!(files.iter().all(|file| file.metadata().unwrap().nlink() == 1), "{round}");
            assert_eq!(at.join(&name).exists(), round % 2 == 1, "{round}");
        });
    }
}
