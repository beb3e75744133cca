//! What joins this workspace to the registry: the crates that could be published there, and `rdma-transport` on the registry's
//! `rdma-sys` in the place of the workspace's own, which keeps the names and types of the two the same. The registry's makes its
//! bindings from the installed headers, with libclang 14.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::sh::{Result, command, output, target_dir, workspace};

/// Crates that others' programs can use by themselves; each is packed, and built from its package.
pub(crate) const PUBLISHABLE: [&str; 3] = ["wire", "nfs-proto", "smb-proto"];

/// Whether the registry would take them, without sending anything.
pub(crate) fn would_publish() -> Result<()> {
    // Cargo takes what it built from a registry for the same for ever: a crate that was packed once would stay as it was.
    let fresh = target_dir().join("publish");
    let _ = fs::remove_dir_all(&fresh);
    let fresh = fresh.display().to_string();
    let mut publish = vec!["cargo", "publish", "--dry-run", "--quiet", "--allow-dirty"];
    publish.extend(["--target-dir", &fresh]);
    publish.extend(PUBLISHABLE.iter().flat_map(|name| ["--package", name]));
    output(&publish).map(drop)
}

const LIBCLANG: &str = "/usr/lib/llvm-14/lib";

/// Builds and tests it in a copy of the workspace in which only that one crate is another.
pub(crate) fn builds_with_the_registrys_rdma_sys() -> Result<()> {
    if !Path::new(LIBCLANG).join("libclang-14.so.1").exists() {
        println!("no libclang 14 here: the registry's rdma-sys was not tried");
        return Ok(());
    }
    let copy = copied()?;
    let done = command(&["cargo", "test", "--quiet", "--package", "rdma-transport", "--lib"])
        .current_dir(&copy)
        .env("LIBCLANG_PATH", LIBCLANG)
        .env("CARGO_TARGET_DIR", target_dir())
        .output()
        .map_err(|e| format!("cargo: {e}"))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let tail: Vec<&str> = said.lines().rev().take(30).collect();
    Err(tail.into_iter().rev().collect::<Vec<_>>().join("\n"))
}

fn copied() -> Result<PathBuf> {
    let (from, to) = (workspace(), target_dir().join("registry-rdma-sys"));
    let told = |what: &Path, e: std::io::Error| format!("{}: {e}", what.display());
    if to.exists() {
        fs::remove_dir_all(&to).map_err(|e| told(&to, e))?;
    }
    fs::create_dir_all(&to).map_err(|e| told(&to, e))?;
    for name in ["Cargo.toml", "Cargo.lock"] {
        fs::copy(from.join(name), to.join(name)).map_err(|e| told(&to, e))?;
    }
    for entry in fs::read_dir(&from).map_err(|e| told(&from, e))? {
        let entry = entry.map_err(|e| told(&from, e))?;
        let mut source = entry.path();
        if !source.join("Cargo.toml").exists() {
            continue;
        }
        if entry.file_name() == "rdma-sys" {
            source.push("registry");
        }
        let link = to.join(entry.file_name());
        symlink(&source, &link).map_err(|e| told(&link, e))?;
    }
    Ok(to)
}
