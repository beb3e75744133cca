//! Checks the workspace against the package registry: the crates that could be published there, and `rdma-transport` on the
//! registry's `rdma-sys` in place of the workspace's own crate, so that both keep the same names and types. The registry's crate
//! generates its bindings from the installed headers, with libclang 14.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::sh::{Result, command, output, target_dir, workspace};

/// Crates that other projects can use separately; each is packed, and built from its package.
pub(crate) const PUBLISHABLE: [&str; 3] = ["wire", "nfs-proto", "smb-proto"];

/// Checks that the registry would accept them, without an upload.
pub(crate) fn would_publish() -> Result<()> {
    // Cargo assumes that a registry crate never changes: it would reuse the first packed version for ever.
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
/// Name of the tests of that crate's library as a separate target. For the library of one package cargo would choose other features
/// of dependencies than for the workspace, and build most of them again; a test with a name can be requested for the whole
/// workspace.
const LIBRARY_AS_TEST: &str = "registry-rdma-sys";

/// Builds and tests it in a copy of the workspace in which only that one crate differs.
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

/// Makes a package of links to the files of another, with one additional target: [`LIBRARY_AS_TEST`].
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

/// Returns the entries of a folder, with their names.
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
