//! What joins this workspace to the registry: the crates that could be published there, and `rdma-transport` on the registry's
//! `rdma-sys` in the place of the workspace's own, which keeps the names and types of the two the same. The registry's makes its
//! bindings from the installed headers, with libclang 14.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

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

/// The crate that is built on the registry's.
const BUILT_ON_IT: &str = "rdma-transport";
/// The tests of that crate's library as a target of its own. Asked for the library of one package, cargo chooses other features of
/// dependencies than for the workspace, and builds most of them once more; a test with a name can be asked for with the workspace.
const LIBRARY_AS_TEST: &str = "registry-rdma-sys";

/// Builds and tests it in a copy of the workspace in which only that one crate is another.
pub(crate) fn builds_with_the_registrys_rdma_sys() -> Result<()> {
    if !Path::new(LIBCLANG).join("libclang-14.so.1").exists() {
        println!("no libclang 14 here: the registry's rdma-sys was not tried");
        return Ok(());
    }
    let copy = copied()?;
    let done = command(&["cargo", "test", "--quiet", "--workspace", "--test", LIBRARY_AS_TEST])
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
    if to.exists() {
        fs::remove_dir_all(&to).map_err(|e| told(&to, e))?;
    }
    fs::create_dir_all(&to).map_err(|e| told(&to, e))?;
    for name in ["Cargo.toml", "Cargo.lock"] {
        fs::copy(from.join(name), to.join(name)).map_err(|e| told(&to, e))?;
    }
    link_members(&from, &to)?;
    Ok(to)
}

/// Links the members below a folder, and makes the folders of members.
fn link_members(from: &Path, to: &Path) -> Result<()> {
    for (name, mut source) in entries(from)? {
        let target = to.join(&name);
        if name == "crates" || name == "sys" {
            fs::create_dir(&target).map_err(|e| told(&target, e))?;
            link_members(&source, &target)?;
            continue;
        }
        if !source.join("Cargo.toml").exists() {
            continue;
        }
        if name == "rdma-sys" {
            source.push("registry");
        }
        if name == BUILT_ON_IT {
            copy_with_named_tests(&source, &target)?;
        } else {
            link(&source, &target)?;
        }
    }
    Ok(())
}

/// A package of links to the files of another, which has one target more: [`LIBRARY_AS_TEST`].
fn copy_with_named_tests(from: &Path, to: &Path) -> Result<()> {
    const MANIFEST: &str = "Cargo.toml";
    fs::create_dir(to).map_err(|e| told(to, e))?;
    for (name, source) in entries(from)?.into_iter().filter(|(name, _)| name != MANIFEST) {
        link(&source, &to.join(name))?;
    }
    let manifest = from.join(MANIFEST);
    let targets = fs::read_to_string(&manifest).map_err(|e| told(&manifest, e))?;
    let target = format!("\n[[test]]\nname = \"{LIBRARY_AS_TEST}\"\npath = \"src/lib.rs\"\n");
    fs::write(to.join(MANIFEST), targets + &target).map_err(|e| told(to, e))
}

/// What is in a folder, with its name there.
fn entries(dir: &Path) -> Result<Vec<(OsString, PathBuf)>> {
    let named = |e: io::Result<fs::DirEntry>| e.map(|e| (e.file_name(), e.path()));
    let listing = fs::read_dir(dir).map_err(|e| told(dir, e))?;
    listing.map(named).collect::<io::Result<_>>().map_err(|e| told(dir, e))
}

fn link(source: &Path, link: &Path) -> Result<()> {
    symlink(source, link).map_err(|e| told(link, e))
}

fn told(what: &Path, e: io::Error) -> String {
    format!("{}: {e}", what.display())
}
