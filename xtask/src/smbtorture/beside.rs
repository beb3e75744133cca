//! Tests leases and oplocks while an NFS client makes, writes, reads and removes other files on the same shares.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::run::{self, Server};
use super::{Asked, Results};
use crate::lab::Net;
use crate::lab::gateway::program;
use crate::sh::Result;

/// Tests that run at once, each on a share with a separate load.
const AT_ONCE: usize = 2;

/// One test of each sort that takes about a second: requested, broken, broken during a break, upgraded, versions, oplocks.
const TESTS: [&str; 16] = [
    "smb2.lease.break",
    "smb2.lease.breaking1",
    "smb2.lease.complex1",
    "smb2.lease.lock1",
    "smb2.lease.multibreak",
    "smb2.lease.nobreakself",
    "smb2.lease.oplock",
    "smb2.lease.request",
    "smb2.lease.upgrade",
    "smb2.lease.v2_complex1",
    "smb2.lease.v2_epoch1",
    "smb2.lease.v2_rename",
    "smb2.oplock.batch1",
    "smb2.oplock.brl1",
    "smb2.oplock.exclusive1",
    "smb2.oplock.levelii500",
];

/// A load that runs until it is dropped.
struct Load(Child);

impl Load {
    /// Starts a load on one share, by NFS 4.2. It must still run when the tests have ended: a load that gave up does not count.
    fn begin(net: &Net, share: usize, dir: &Path) -> Result<Load> {
        let log = dir.join(format!("nfs-{share}.log"));
        let out = std::fs::File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let target = format!("nfs://127.0.0.1/t{share}?version=4.2");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "ip", "netns", "exec", &net.name]);
        command.arg(program()).args(["bench", &target, "--size", "4MiB", "--time", "600s"]);
        command.args(["--only", "mixed", "--depth", "1", "--user", "1001:1001"]);
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(out).spawn();
        Ok(Load(spawned.map_err(|e| format!("cannot start the load: {e}"))?))
    }

    fn runs(&mut self) -> Result<()> {
        match self.0.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!("the NFS load ended with {status}")),
            Err(e) => Err(e.to_string()),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // The process may have ended before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the tests; a failed one is repeated, with the load again.
pub(super) fn nfs(net: &Net, server: &Server, asked: &Asked, dir: &Path) -> Result<Results> {
    let chosen = |t: &&&str| {
        asked.prefixes.is_empty() || asked.prefixes.iter().any(|p| t.starts_with(p.as_str()))
    };
    let names: Vec<String> = TESTS.iter().filter(chosen).map(|t| (*t).to_owned()).collect();
    if names.is_empty() {
        return Ok(Results::new());
    }
    let begin = |share| Load::begin(net, share, dir);
    let mut loads = (0..AT_ONCE).map(begin).collect::<Result<Vec<_>>>()?;
    let mut results = run::all(server, &names, AT_ONCE, dir, asked.verbose);
    let failed = results.iter().filter(|(_, verdict)| !verdict.passed());
    let again: Vec<String> = failed.map(|(name, _)| name.clone()).collect();
    results.extend(run::all(server, &again, 1, dir, asked.verbose));
    loads.iter_mut().try_for_each(Load::runs)?;
    Ok(results)
}
