//! Runs NFS clients of other projects, each by its own library: tests/third/nfs_programs.py controls them, in a network namespace
//! where the gateway has port 111 as well.

use std::fs;
use std::path::PathBuf;

use super::gateway;
use crate::packages;
use crate::sh::{Result, Tally, output, target_dir};

/// Python clients, from the registry.
const MODULES: [&str; 1] = ["pyNfsClient==0.1.5"];
/// One image tool and its block drivers, of one version.
const QEMU: [&str; 2] = ["qemu-utils/bookworm", "qemu-block-extra/bookworm"];

/// Returns the results of each client.
pub(crate) fn all() -> Result<Tally> {
    gateway::build()?;
    packages::install(&["third"])?;
    let dir = target_dir().join("nfs-programs");
    let work = dir.join("work");
    let _ = fs::remove_dir_all(&work);
    let (modules, qemu) = (modules(dir.join("python"))?, dir.join("qemu"));
    packages::unpack_all(&QEMU, &qemu, "usr/bin/qemu-img")?;
    let program = gateway::program();
    let paths = [&program, &work, &modules, &qemu].map(|path| path.display().to_string());
    let [program, work, modules, qemu] = paths.each_ref().map(String::as_str);
    let script = "tests/third/nfs_programs.py";
    let alone = ["timeout", "300", "unshare", "-n", "-m", "-p", "-f", "--kill-child"];
    let words = [&alone[..], &["python3", script, program, work, modules, qemu]].concat();
    read(&output(&words)?)
}

fn modules(dir: PathBuf) -> Result<PathBuf> {
    if !dir.exists() {
        let shown = dir.display().to_string();
        let pip = ["python3", "-m", "pip", "install", "--quiet", "--target", &shown];
        output(&[&pip[..], &MODULES].concat())?;
    }
    Ok(dir)
}

fn read(said: &str) -> Result<Tally> {
    let mut tally = Tally::default();
    for line in said.lines() {
        if let Some(name) = line.strip_prefix("ok ") {
            tally.count(name, Ok(()));
        } else if let Some(what) = line.strip_prefix("not ok ") {
            tally.fail(what.to_owned());
        }
    }
    match tally.passed + tally.failures.len() {
        0 => Err(format!("no client said anything: {said}")),
        _ => Ok(tally),
    }
}
