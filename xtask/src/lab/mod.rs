//! The lab: a stock Linux kernel as the client, the gateway as its server.
//!
//! A scenario boots one guest or two (tests/lab/build-kernel makes the kernel) in a separate network namespace. The gateway runs on
//! the host's side of the guests' tap devices, or in the guest itself. tests/lab/guest contains the guests' jobs; the host
//! afterwards compares the files that they left in the share.

mod container;
mod counters;
mod failover;
pub(crate) mod gateway;
mod guest;
mod kerberos;
mod net;
pub(crate) mod nfsprograms;
mod nodes;
mod posix;
mod pulse;
mod rights;
mod run;
mod scenarios;
mod smbclients;
pub(crate) mod smbprograms;
mod takeover;
mod third;
mod tls;
mod transforms;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

pub(crate) use gateway::Gateway;
pub(crate) use net::Net;
use run::Place;
pub(crate) use scenarios::Linux;
use scenarios::{
    BESIDE, BESIDE_BY_DEVICE, BESIDE_ON_EXT4, BESIDE_PROTECTED, CAPTURED, FAILOVERS, Kind, MOVES,
    ON_CEPH, PJDFSTEST, SCENARIOS, Scenario, TAKEOVERS, TAKEOVERS_ON_CEPH,
};

use crate::packages;
use crate::sh::{Outcome, Result, Tally, in_turns_of, output, target_dir};

/// Number of scenarios that run at once on two processors, each in a separate network. One guest keeps half a processor busy, and a
/// third of them mostly wait.
const AT_ONCE: usize = 4;

/// How often a scenario is repeated because its guest lost its network. That happened on machines with more work than processors.
const DEAD_MAX: usize = 2;

/// Largest number of failed scenarios of a tier that are repeated, without other scenarios at the same time. More failures than
/// this are not accidental.
const UNSTEADY_MAX: usize = 4;

/// Data that all scenarios of one run share.
#[derive(Debug)]
struct Lab {
    source_tree: PathBuf,
    dir: PathBuf,
    verbose: bool,
    /// Measurements of guests: load, the rate of the gateway and of the other server, separated by bars.
    figures: Mutex<Vec<String>>,
}

/// `cargo xtask lab`.
pub(crate) fn command(args: &[String]) -> Result<Outcome> {
    let of_devices = || BESIDE_BY_DEVICE.iter().chain(BESIDE_ON_EXT4);
    let beside = || BESIDE.iter().chain(of_devices()).chain(BESIDE_PROTECTED);
    let clusters = || TAKEOVERS.iter().chain(TAKEOVERS_ON_CEPH).chain(MOVES).chain(&FAILOVERS);
    let apart = || CAPTURED.iter().chain(ON_CEPH).chain(PJDFSTEST);
    let all = || SCENARIOS.iter().chain(apart()).chain(clusters()).chain(beside());
    let verbose = args.iter().any(|a| a == "-v");
    let given = |option| args.iter().find_map(|a| a.strip_prefix(option)).map(str::to_owned);
    // Leaked until the end of this short-lived program.
    let given = |option| given(option).map(|text| &*text.leak());
    let (jobs, provider, options) = (given("--jobs="), given("--rdma="), given("--options="));
    let runs = match given("--runs=") {
        Some(text) => Some(text.parse().map_err(|e| format!("--runs={text}: {e}"))?),
        None => None,
    };
    let names: Vec<&String> = args.iter().filter(|a| !a.starts_with('-')).collect();
    let names: Vec<String> = match args.iter().any(|a| a == "--takeovers") {
        true => TAKEOVERS.iter().map(|s| s.name.to_owned()).collect(),
        false if names.iter().any(|name| *name == posix::JOB) => {
            PJDFSTEST.iter().map(|s| s.name.to_owned()).collect()
        }
        false => names.into_iter().cloned().collect(),
    };
    if args.iter().any(|a| a == "--list") || names.is_empty() {
        all().for_each(|s| println!("{:16} {}", s.name, s.jobs));
        return Ok(Outcome::Passed);
    }
    if let Some(unknown) = names.iter().find(|n| !all().any(|s| s.name == **n)) {
        return Err(format!("no scenario {unknown}; --list shows them"));
    }
    let chosen: Vec<Scenario> = all()
        .filter(|s| names.iter().any(|n| *n == s.name))
        .map(|s| {
            let (jobs, provider) = (jobs.unwrap_or(s.jobs), provider.unwrap_or(s.provider));
            let options = options.unwrap_or(s.options);
            Scenario { jobs, provider, options, runs: runs.or(s.runs), ..*s }
        })
        .collect();
    packages::install(&["lab"])?;
    Ok(sum(Lab::new(verbose)?.run_all(chosen, 1)?).report(Some("lab")))
}

/// Runs the kernel's clients on a share in CephFS.
pub(crate) fn on_ceph(verbose: bool) -> Result<Tally> {
    Ok(sum(Lab::new(verbose)?.run_all(ON_CEPH.to_vec(), 1)?))
}

/// Runs the kernel's clients while a service in CephFS moves from node to node.
pub(crate) fn takeovers_on_ceph(verbose: bool) -> Result<Tally> {
    packages::install(&["third"])?;
    Ok(sum(Lab::new(verbose)?.run_all(TAKEOVERS_ON_CEPH.to_vec(), 1)?))
}

/// Runs the tier `lab`: every scenario that is not a reference.
pub(crate) fn tier(only: &[String], verbose: bool) -> Result<Tally> {
    let is_of_tier = |s: &&Scenario| match only {
        [] => !s.is_reference() && !s.linux.may_not_boot(),
        _ => !s.is_reference() && wanted(only, s.name),
    };
    let of_tier = SCENARIOS.iter().filter(is_of_tier);
    let lab = Lab::new(verbose)?;
    let mut all = lab.run_all(of_tier.copied().collect(), AT_ONCE)?;
    lab.look_again(&mut all);
    Ok(sum(all))
}

fn sum(all: Vec<(Scenario, Tally)>) -> Tally {
    all.into_iter().fold(Tally::default(), |mut sum, (_, tally)| {
        sum.add(tally);
        sum
    })
}

/// Runs the tier `third`: clients and decoders of other projects.
pub(crate) fn third_parties(only: &[String], verbose: bool) -> Result<Tally> {
    let lab = Lab::new(verbose)?;
    gateway::build()?;
    let mut tally = Tally::default();
    if wanted(only, "libnfs") {
        let run = || third::libnfs(&Net::new()?, &lab.dir.join("libnfs"));
        tally.add(Tally::of("libnfs", run).once_more("libnfs", run));
    }
    if wanted(only, "smbclients") {
        let run = || smbclients::all(&Net::new()?, &lab.dir.join("smbclients"));
        tally.add(Tally::of("smbclients", run).once_more("smbclients", run));
    }
    // Run sequentially: a capture must not miss a packet.
    let captured = CAPTURED.iter().filter(|s| wanted(only, s.name));
    let mut captured = lab.run_all(captured.copied().collect(), 1)?;
    lab.look_again(&mut captured);
    tally.add(sum(captured));
    Ok(tally)
}

/// Runs the part of the tier `third` without a guest, in which a foreign decoder reads encrypted and signed messages.
pub(crate) fn transforms() -> Result<Tally> {
    let run = || transforms::all(&Net::new()?);
    Ok(Tally::of("transforms", run).once_more("transforms", run))
}

/// Measurements in one guest: the scenario's version and device, and its lines: load, the gateway's figure, the other server's, and
/// both for each second of the guest's processor.
pub(crate) struct Beside {
    pub(crate) version: &'static str,
    pub(crate) options: &'static str,
    pub(crate) device: &'static str,
    pub(crate) is_smb: bool,
    pub(crate) figures: Vec<String>,
}

/// Makes one of two servers fail, in each way and this many times. Returns for each measurement the number of its scenario and its
/// lines: the name, and figures in seconds.
pub(crate) fn failovers(runs: u32) -> Result<Vec<(usize, Vec<String>)>> {
    let mut all = Vec::new();
    for (n, scenario) in (0..runs).flat_map(|_| FAILOVERS.iter().enumerate()) {
        let lab = Lab::new(false)?;
        // Recorded only after a successful run; the reason of a failure was printed before.
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        lab.note(&format!("load | {}", load.split(' ').next().unwrap_or_default()))?;
        if sum(lab.run_all(vec![*scenario], 1)?).failures.is_empty() {
            all.push((n, lab.figures.lock().map_err(|e| e.to_string())?.clone()));
        }
    }
    Ok(all)
}

/// Measurements that compare the gateway with the kernel's own server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measured {
    /// Data by RDMA: the gateway by iWARP in user space.
    ByIwarp,
    /// Data by RDMA: both by a device.
    ByDevice,
    /// Changes of names on ext4, over TCP.
    Changes,
    /// Data over TCP: with Kerberos and with TLS.
    Protected,
}

/// Measures the gateway and the kernel's server.
pub(crate) fn beside_the_kernel(what: Measured) -> Result<Vec<Beside>> {
    let measure = |scenario: &Scenario| {
        let lab = Lab::new(false)?;
        let tally = sum(lab.run_all(vec![*scenario], 1)?);
        if let Some(why) = tally.failures.first() {
            return Err(why.clone());
        }
        let figures = lab.figures.lock().map_err(|e| e.to_string())?.clone();
        let Scenario { vers: version, options, device, kind, .. } = *scenario;
        Ok(Beside { version, options, device, is_smb: kind == Kind::Cifs, figures })
    };
    let scenarios = match what {
        Measured::ByIwarp => BESIDE,
        Measured::ByDevice => BESIDE_BY_DEVICE,
        Measured::Changes => BESIDE_ON_EXT4,
        Measured::Protected => BESIDE_PROTECTED,
    };
    on_one_processor(|| scenarios.iter().map(measure).collect())?
}

/// Runs `work`, and the processes that it starts, on one processor of this machine. A guest has one processor; when its kernel and
/// its programs are on two, each system call wakes the other, and the time for that varies from run to run.
fn on_one_processor<T>(work: impl FnOnce() -> T) -> Result<T> {
    let own = std::process::id().to_string();
    let told = output(&["taskset", "-cp", &own])?;
    let all = told.rsplit(' ').next().unwrap_or_default().trim();
    let first = all.split([',', '-']).next().unwrap_or_default();
    output(&["taskset", "-cp", first, &own])?;
    let done = work();
    output(&["taskset", "-cp", all, &own])?;
    Ok(done)
}

fn wanted(only: &[String], name: &str) -> bool {
    only.is_empty() || only.iter().any(|o| name.contains(o.as_str()))
}

/// A kernel of guests.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) program: PathBuf,
    /// The folder of its modules, if the kernel has any.
    pub(crate) modules: Option<PathBuf>,
    /// An archive of the source tree that jobs unpack; only Linux 6.12 has one.
    source_tree: Option<PathBuf>,
}

/// Builds or unpacks a kernel; only once.
pub(crate) fn build_kernel(linux: Linux) -> Result<Kernel> {
    // The build takes minutes, so its messages are shown.
    let built = Command::new("tests/lab/build-kernel")
        .arg(linux.name())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("build-kernel: {e}"))?;
    let built = String::from_utf8_lossy(&built.stdout);
    let mut lines = built.lines().map(PathBuf::from);
    let program =
        lines.next().ok_or_else(|| format!("build-kernel made no kernel {}", linux.name()))?;
    let beside = lines.next();
    let (modules, source_tree) = match linux {
        Linux::V6_1 => (beside, None),
        Linux::V6_12 | Linux::V7 => (None, beside),
    };
    Ok(Kernel { program, modules, source_tree })
}

impl Lab {
    fn new(verbose: bool) -> Result<Lab> {
        let source_tree = build_kernel(Linux::V6_12)?.source_tree;
        let source_tree = source_tree.ok_or("build-kernel made no source tree")?;
        let dir = target_dir().join(format!("lab/{}", std::process::id()));
        fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        Ok(Lab { source_tree, dir, verbose, figures: Mutex::default() })
    }

    /// Stores a measurement of a guest.
    fn note(&self, figure: &str) -> Result<()> {
        println!("   {figure}");
        self.figures.lock().map_err(|e| e.to_string())?.push(figure.to_owned());
        Ok(())
    }

    /// Repeats the failed scenarios one by one, if they are few.
    fn look_again(&self, all: &mut [(Scenario, Tally)]) {
        let failed = || all.iter().filter(|(_, tally)| !tally.failures.is_empty());
        if failed().count() > UNSTEADY_MAX {
            return;
        }
        for (scenario, tally) in all {
            let again = || Ok(run_one(&Place { lab: self, net: Net::new()? }, scenario));
            *tally = std::mem::take(tally).once_more(scenario.name, again);
        }
    }

    fn run_all(&self, scenarios: Vec<Scenario>, at_once: usize) -> Result<Vec<(Scenario, Tally)>> {
        if scenarios.iter().any(|s| !s.is_reference()) {
            gateway::build()?;
        }
        // Before any guest runs: guests stand still beside compilers.
        for linux in Linux::ALL {
            if scenarios.iter().any(|s| s.linux == linux) {
                build_kernel(linux)?;
            }
        }
        let nets = (0..at_once.min(scenarios.len())).map(|_| Net::new());
        let places = nets.map(|net| Ok(Place { lab: self, net: net? })).collect::<Result<_>>()?;
        let one = |place: &Place<'_>, scenario| (scenario, run_one(place, &scenario));
        Ok(in_turns_of(spread(scenarios), places, one))
    }
}

/// Spreads the scenarios that mostly wait evenly among those that compute, so that both kinds always run at once.
fn spread(scenarios: Vec<Scenario>) -> Vec<Scenario> {
    let (waiting, computing): (Vec<_>, Vec<_>) =
        scenarios.into_iter().partition(Scenario::mostly_waits);
    let share = |n: usize, of: usize| (2 * n + 1) as f64 / (2 * of) as f64;
    let placed = |all: Vec<Scenario>| {
        let of = all.len();
        all.into_iter().enumerate().map(move |(n, scenario)| (share(n, of), scenario))
    };
    let mut all: Vec<_> = placed(waiting).chain(placed(computing)).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all.into_iter().map(|(_, scenario)| scenario).collect()
}

fn run_one(place: &Place<'_>, scenario: &Scenario) -> Tally {
    let began = Instant::now();
    let run = || Tally::of(scenario.name, || place.run(scenario));
    let mut tally = run();
    // Repeated only for this error: a guest without a network does not test the server. A guest that answers and hangs has failed.
    for _ in 0..DEAD_MAX {
        if !tally.failures.iter().any(|f| f.contains(guest::NETWORK_DEAD)) {
            break;
        }
        println!("   {}: {}; once more", scenario.name, guest::NETWORK_DEAD);
        tally = run();
    }
    let (good, bad, name) = (tally.passed, tally.failures.len(), scenario.name);
    println!("   {name:16} {good} ok, {bad} not, {:.0} s", began.elapsed().as_secs_f64());
    tally
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Removed only if it is empty, without files of a failure.
        let _ = fs::remove_dir(&self.dir);
    }
}
