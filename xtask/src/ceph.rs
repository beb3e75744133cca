//! Runs the tests that need a Ceph cluster.
//!
//! *Operation.* `tests/ceph/cluster` starts a cluster of one node, made of ordinary processes, and ends it whatever the result of
//! the tests. In the lab the cluster is in the scenario's network. There ceph-fuse, a client of the cluster from another project,
//! shows the same files by a path.

use std::fs;
use std::path::{Path, PathBuf};

use crate::lab::{self, Net};
use crate::programs::{one_test, test_program};
use crate::sh::{Outcome, Result, Tally, output, run, target_dir};
use crate::{packages, smbtorture};

const CLUSTER: &str = "tests/ceph/cluster";
/// The file system of the cluster.
pub(crate) const FILE_SYSTEM: &str = "fs";
/// The jobs of the lab write twice as much data as the tests of crates.
const OSD_BYTES: &str = "OSD_BYTES=2147483648";

const USAGE: &str = "\
usage: cargo xtask ceph [-v] [lab|smbtorture|authority|takeovers]...

  the lab's jobs, smbtorture and the table of who may do what on shares in CephFS, and a service in CephFS that two nodes hand over
  to each other, or some of the four; 35 minutes in all
";

/// A cluster in a network of the lab, with its file system mounted at a path.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// The start of each command: it enters that network and names that cluster.
    before: Vec<String>,
    mount: PathBuf,
}

impl Cluster {
    /// Starts a cluster below `dir`, and mounts its file system.
    pub(crate) fn start(net: &Net, dir: &Path, mount: &Path) -> Result<Cluster> {
        Self::start_at("127.0.0.1", net, dir, mount)
    }

    /// Like [`Cluster::start`], at this address of the network.
    pub(crate) fn start_at(ip: &str, net: &Net, dir: &Path, mount: &Path) -> Result<Cluster> {
        let at = dir.join("ceph");
        // `ip netns exec` would make a mount that is visible only in that namespace.
        let before = vec![
            "nsenter".into(),
            format!("--net=/run/netns/{}", net.name),
            "env".into(),
            format!("CEPH_AT={}", at.display()),
            format!("CEPH_IP={ip}"),
            format!("CEPH_CONF={}", at.join("ceph.conf").display()),
            OSD_BYTES.into(),
        ];
        let cluster = Cluster { before, mount: mount.to_owned() };
        cluster.call(&[CLUSTER, "up"])?;
        fs::create_dir_all(mount).map_err(|e| format!("{}: {e}", mount.display()))?;
        cluster.call(&[
            "ceph-fuse",
            "--id=admin",
            "--client_fs",
            FILE_SYSTEM,
            // Access control lists decide, and the cluster evaluates them instead of this kernel.
            "--client_acl_type=posix_acl",
            "--fuse_default_permissions=false",
            &mount.display().to_string(),
        ])?;
        Ok(cluster)
    }

    /// Returns the mount point of its file system.
    pub(crate) fn mount(&self) -> &Path {
        &self.mount
    }

    /// Returns the name of a folder of the mount in the gateway's configuration.
    pub(crate) fn source(&self, folder: &Path) -> String {
        let inside = folder.strip_prefix(&self.mount).unwrap_or(folder);
        format!("ceph:{FILE_SYSTEM}/{}", inside.display())
    }

    /// Runs a command with this cluster.
    pub(crate) fn call(&self, words: &[&str]) -> Result<()> {
        let before = self.before.iter().map(String::as_str);
        output(&before.chain(words.iter().copied()).collect::<Vec<_>>()).map(drop)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Leftovers of either only prevent the removal of this folder.
        let _ = output(&["umount", "--lazy", &self.mount.display().to_string()]);
        let _ = self.call(&[CLUSTER, "down"]);
    }
}

/// `cargo xtask ceph`.
pub(crate) fn command(args: &[String]) -> Result<Outcome> {
    const PARTS: [&str; 4] = ["lab", "smbtorture", "authority", "takeovers"];
    let verbose = args.iter().any(|a| a == "-v");
    let named: Vec<&str> = args.iter().map(String::as_str).filter(|a| *a != "-v").collect();
    if named.iter().any(|name| !PARTS.contains(name)) {
        return Err(USAGE.into());
    }
    packages::install(&["lab", "smbtorture", "ceph"])?;
    let mut tally = Tally::default();
    for part in PARTS.into_iter().filter(|part| named.is_empty() || named.contains(part)) {
        println!("== {part}");
        tally.add(Tally::of(part, || match part {
            "lab" => lab::on_ceph(verbose),
            "smbtorture" => smbtorture::on_ceph(verbose),
            "takeovers" => lab::takeovers_on_ceph(verbose),
            _ => authority(),
        }));
    }
    Ok(tally.report(Some("ceph")))
}

/// Tests permission on CephFS as another client of the cluster sees it.
fn authority() -> Result<Tally> {
    let program = test_program("headgate-tests", "authority")?.display().to_string();
    let net = Net::new()?;
    let dir = target_dir().join(format!("ceph/{}", std::process::id()));
    let cluster = Cluster::start(&net, &dir, &dir.join("cephfs"))?;
    let mount = format!("HEADGATE_ON_CEPH={}", cluster.mount().display());
    let words = cluster.before.iter().map(String::as_str).chain([&*mount, &*program]);
    let tested = run(&words.chain(["--test-threads=1"]).collect::<Vec<_>>());
    drop(cluster);
    let _ = fs::remove_dir_all(&dir);
    let mut tally = Tally::default();
    tally.count("authority", tested);
    Ok(tally)
}

/// Runs all tests of the tier `third` that need a cluster.
pub(crate) fn tier() -> Result<Tally> {
    let mut tally = Tally::default();
    tally.add(one_test("ceph-sys", "layout", &[])?);
    smbtorture::unpack()?;
    run(&[CLUSTER, "up"])?;
    let tests = [("vfs", "ceph"), ("gateway", "ceph"), ("gateway", "records")];
    let tested = tests.map(|(of, test)| {
        // Sessions left open by the tests before would delay these for a minute.
        run(&[CLUSTER, "evict"])?;
        one_test(of, test, &[])
    });
    run(&[CLUSTER, "down"])?;
    for part in tested {
        tally.add(part?);
    }
    Ok(tally)
}
