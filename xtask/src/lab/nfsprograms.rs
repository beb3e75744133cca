//! Runs NFS clients of other projects, each by its own library: tests/third/nfs_programs.py controls them, in a network namespace
//! where the gateway has port 111 as well.

use std::fs;

use super::{gateway, smbprograms};
use crate::packages;
use crate::sh::{Result, Tally, output};

/// One image tool and its block drivers, of one version.
const QEMU: [&str; 2] = ["qemu-utils/bookworm", "qemu-block-extra/bookworm"];

/// Returns the results of each client.
pub(crate) fn all() -> Result<Tally> {
    gateway::build()?;
    packages::install(&["third"])?;
    let root = smbprograms::prepare()?;
    let (work, qemu) = (root.join("nfs-work"), root.join("qemu"));
    let _ = fs::remove_dir_all(&work);
    packages::unpack_all(&QEMU, &qemu, "usr/bin/qemu-img")?;
    let paths = [&gateway::program(), &work, &qemu].map(|path| path.display().to_string());
    let root = format!("THIRD_ROOT={}", root.display());
    let alone = ["timeout", "300", "unshare", "-n", "-m", "-p", "-f", "--kill-child", "env"];
    let script = [root.as_str(), "python3", "tests/third/nfs_programs.py"];
    let said = output(&[&alone[..], &script, &paths.each_ref().map(String::as_str)].concat())?;
    let mut tally = read(&said)?;
    tally.count("nfs-programs/table", smbprograms::documented("nfs-programs", &said));
    Ok(tally)
}

/// Reads the lines that a script prints for its checks.
pub(super) fn read(said: &str) -> Result<Tally> {
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
