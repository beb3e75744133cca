//! The lab: a stock Linux kernel as the client, the gateway as its server.
//!
//! A scenario boots one guest or two (tests/lab/build-kernel makes the kernel) in a network namespace of its own. The
//! gateway runs on the host's side of the guests' tap devices, or in the guest itself. tests/lab/guest holds what
//! guests do; what they leave in the share is compared on the host afterwards.

mod gateway;
mod guest;
mod net;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use gateway::Gateway;
use guest::Guest;
use net::{FIRST_GUEST, Net};

use crate::sh::{Outcome, Result, Tally, output, target_dir};

/// What every version has to show.
const FILES: &str = "sizes,tree,untar,semantics,locks,v42";

/// Where the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    /// The gateway on the host's side of the tap.
    Host,
    /// In the guest: the gateway, on this file system.
    Guest(&'static str),
    /// In the guest: the kernel's own server, a reference for the jobs. Not part of a tier.
    Knfsd,
}

/// One run of one guest, or of two at once.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    name: &'static str,
    vers: &'static str,
    proto: &'static str,
    jobs: &'static str,
    server: Server,
    seconds_max: u32,
}

impl Scenario {
    const fn files(name: &'static str, vers: &'static str, proto: &'static str) -> Scenario {
        Scenario { name, vers, proto, jobs: FILES, server: Server::Host, seconds_max: 240 }
    }

    const fn jobs(self, jobs: &'static str) -> Scenario {
        Scenario { jobs, ..self }
    }

    const fn on(self, server: Server) -> Scenario {
        Scenario { server, ..self }
    }
}

const SCENARIOS: &[Scenario] = &[
    Scenario::files("v3-rdma", "3", "rdma"),
    Scenario::files("v3-tcp", "3", "tcp"),
    Scenario::files("v4.0-rdma", "4.0", "rdma"),
    Scenario::files("v4.0-tcp", "4.0", "tcp"),
    Scenario::files("v4.1-rdma", "4.1", "rdma"),
    Scenario::files("v4.1-tcp", "4.1", "tcp"),
    Scenario::files("v4.2-rdma", "4.2", "rdma"),
    Scenario::files("v4.2-tcp", "4.2", "tcp"),
    Scenario::files("xfs-v4.2-rdma", "4.2", "rdma").jobs("v42").on(Server::Guest("xfs")),
    Scenario::files("knfsd-v3-rdma", "3", "rdma").on(Server::Knfsd),
    Scenario::files("knfsd-v3-tcp", "3", "tcp").on(Server::Knfsd),
    Scenario::files("knfsd-v4.0-rdma", "4.0", "rdma").on(Server::Knfsd),
    Scenario::files("knfsd-v4.1-rdma", "4.1", "rdma").on(Server::Knfsd),
    Scenario::files("knfsd-v4.2-rdma", "4.2", "rdma").on(Server::Knfsd),
    Scenario::files("knfsd-v4.2-tcp", "4.2", "tcp").on(Server::Knfsd),
];

/// What all scenarios of one run share.
#[derive(Debug)]
struct Lab {
    kernel: PathBuf,
    source_tree: PathBuf,
    net: Net,
    dir: PathBuf,
    verbose: bool,
}

/// `cargo xtask lab`.
pub(crate) fn command(args: &[String]) -> Result<Outcome> {
    let verbose = args.iter().any(|a| a == "-v");
    let jobs = args.iter().find_map(|a| a.strip_prefix("--jobs="));
    let names: Vec<String> = args.iter().filter(|a| !a.starts_with('-')).cloned().collect();
    if args.iter().any(|a| a == "--list") || names.is_empty() {
        SCENARIOS.iter().for_each(|s| println!("{:16} {}", s.name, s.jobs));
        return Ok(Outcome::Passed);
    }
    let chosen: Vec<Scenario> = SCENARIOS
        .iter()
        .filter(|s| names.iter().any(|n| n == s.name))
        .map(|s| Scenario { jobs: jobs.map_or(s.jobs, |j| j.to_owned().leak()), ..*s })
        .collect();
    if chosen.is_empty() {
        return Err(format!("no scenario {}; --list shows them", names.join(", ")));
    }
    run_all(&chosen, verbose).map(|tally| tally.report(Some("lab")))
}

/// The tier `lab`: every scenario that is not a reference.
pub(crate) fn tier(only: &[String], verbose: bool) -> Result<Tally> {
    let wanted =
        |s: &&Scenario| only.is_empty() || only.iter().any(|o| s.name.contains(o.as_str()));
    let of_tier = SCENARIOS.iter().filter(|s| s.server != Server::Knfsd);
    let chosen: Vec<Scenario> = of_tier.filter(wanted).copied().collect();
    run_all(&chosen, verbose)
}

/// The tier `third`: other people's clients and decoders.
pub(crate) fn third_parties(_only: &[String], _verbose: bool) -> Result<Tally> {
    Ok(Tally::default())
}

fn run_all(scenarios: &[Scenario], verbose: bool) -> Result<Tally> {
    let mut tally = Tally::default();
    if scenarios.is_empty() {
        return Ok(tally);
    }
    if scenarios.iter().any(|s| s.server != Server::Knfsd) {
        gateway::build()?;
    }
    let lab = Lab::new(verbose)?;
    for scenario in scenarios {
        let began = Instant::now();
        let mut one = Tally::default();
        match lab.run(scenario) {
            Ok(counted) => one = counted,
            Err(why) => one.fail(format!("{}: {why}", scenario.name)),
        }
        let (good, bad) = (one.passed, one.failures.len());
        println!(
            "   {:16} {good} ok, {bad} not, {:.0} s",
            scenario.name,
            began.elapsed().as_secs_f64()
        );
        tally.add(one);
    }
    Ok(tally)
}

impl Lab {
    fn new(verbose: bool) -> Result<Lab> {
        let built = output(&["tests/lab/build-kernel"])?;
        let mut lines = built.lines().map(PathBuf::from);
        let kernel = lines.next().ok_or("build-kernel named no kernel")?;
        let source_tree = lines.next().ok_or("build-kernel named no source tree")?;
        let dir = target_dir().join(format!("lab/{}", std::process::id()));
        fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        Ok(Lab { kernel, source_tree, net: Net::new()?, dir, verbose })
    }

    fn run(&self, scenario: &Scenario) -> Result<Tally> {
        let dir = self.dir.join(scenario.name);
        let scratch = dir.join("scratch");
        fs::create_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
        fs::copy(&self.source_tree, scratch.join("source-tree.tar.gz"))
            .map_err(|e| format!("{}: {e}", self.source_tree.display()))?;
        let tally = match scenario.server {
            Server::Host => self.against_host(scenario, &dir)?,
            Server::Guest(fs) => self.against_guest(scenario, &scratch, "headgate", fs)?,
            Server::Knfsd => self.against_guest(scenario, &scratch, "knfsd", "ext4")?,
        };
        if tally.failures.is_empty() {
            // What passed is of no further interest; what failed stays to be looked at.
            let _ = fs::remove_dir_all(&dir);
        } else {
            println!("    see {}", dir.display());
        }
        Ok(tally)
    }

    fn guest(&self, scenario: &Scenario, taps: &'static [usize], scratch: &Path) -> Guest<'_> {
        Guest {
            kernel: &self.kernel,
            net: &self.net,
            taps,
            scratch: scratch.to_owned(),
            memory: "1G",
            seconds_max: scenario.seconds_max,
            env: vec![
                ("VERS", scenario.vers.into()),
                ("PROTO", scenario.proto.into()),
                ("LABEL", scenario.name.into()),
                ("JOBS", scenario.jobs.into()),
            ],
            verbose: self.verbose,
        }
    }

    fn against_host(&self, scenario: &Scenario, dir: &Path) -> Result<Tally> {
        let mut gateway = Gateway::start(&self.net, dir)?;
        let scratch = dir.join("scratch");
        let guest = self.guest(scenario, &FIRST_GUEST, &scratch);
        let mut tally = guest.run(scenario.name, |words| match words {
            "kill-gateway" => gateway.kill_and_restart(),
            "cut-connections" => gateway.cut_connections(),
            _ => Err("the host does not know how".into()),
        })?;
        compare(&scratch, &gateway.share(), &mut tally)?;
        Ok(tally)
    }

    fn against_guest(
        &self,
        scenario: &Scenario,
        scratch: &Path,
        backend: &str,
        fs_kind: &str,
    ) -> Result<Tally> {
        let mut guest = self.guest(scenario, &[], scratch);
        guest.memory = "2G";
        guest.env.push(("BACKEND", backend.into()));
        guest.env.push(("FS", fs_kind.into()));
        guest.env.push(("SERVER", "10.88.0.1".into()));
        if backend == "headgate" {
            let program = target_dir().join("release/headgate");
            fs::copy(&program, scratch.join("headgate")).map_err(|e| format!("headgate: {e}"))?;
        }
        guest.run(scenario.name, |_| Err("the server is in the guest".into()))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Only if nothing was left there to be looked at.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Compares the manifests that guests left with the share's folder.
fn compare(scratch: &Path, share: &Path, tally: &mut Tally) -> Result<()> {
    let Ok(listing) = fs::read_dir(scratch.join("manifests")) else { return Ok(()) };
    for manifest in listing.flatten() {
        let paths = [share.display().to_string(), manifest.path().display().to_string()];
        let result = output(&["python3", "tests/lab/share.py", "compare", &paths[0], &paths[1]]);
        tally.count(&manifest.file_name().to_string_lossy(), result.map(drop));
    }
    Ok(())
}
