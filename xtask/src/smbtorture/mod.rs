//! Runs Samba's own conformance suite, smbtorture, against one gateway. Each test is a separate process with a separate time limit;
//! several run at once, each on a separate share, because most of them wait.
//!
//! `tests/smbtorture/passes.txt` lists the tests that pass: it only grows, and a listed test that fails is a failure.
//! `tests/smbtorture/known.txt` lists tests that fail or are not run, each with its reason; `elsewhere.txt` those that pass in
//! other programs of the tier, which have the realm or the snapshots that they need.

mod beside;
mod held;
mod lists;
mod root;
mod run;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use lists::Lists;
use root::Root;
use run::{Server, Verdict};

use crate::ceph::Cluster;
use crate::lab::{Gateway, Net};
use crate::sh::{Outcome, Result, Tally, output, target_dir};
use crate::{lab, packages};

/// How names of tests begin: of SMB, and of what macOS expects, which Samba tests of its module `fruit`.
const SUITES: [&str; 2] = ["smb2.", "vfs.fruit."];
/// Tests that run at once.
const AT_ONCE: usize = 8;
/// A listed test that failed while others ran is repeated without them, if there are no more than this.
const AGAIN_MAX: usize = 40;

const USAGE: &str = "\
usage: cargo xtask smbtorture [--server HOST:PORT[,OPTION...] | --ceph] [--jobs N] [--write] [PREFIX]...

  runs those tests of smbtorture whose name begins with one of PREFIX (all without one), against a gateway of its own or
  against a server that runs already: shares t0 ... t7, users user%pass and user2%pass2
  --ceph    on shares in CephFS, of a cluster of its own
  --write   adds new passes to tests/smbtorture/passes.txt
";

/// The options of the command line.
#[derive(Debug, Default)]
struct Asked {
    server: Option<String>,
    on_ceph: bool,
    jobs: usize,
    write: bool,
    verbose: bool,
    prefixes: Vec<String>,
}

/// `cargo xtask smbtorture`.
pub(crate) fn command(args: &[String]) -> Result<Outcome> {
    let asked = parse(args)?;
    packages::install(if asked.on_ceph { &["smbtorture", "ceph"] } else { &["smbtorture"] })?;
    Ok(suite(&asked)?.report(Some("smbtorture")))
}

/// Unpacks the suite for other programs, if it is missing.
pub(crate) fn unpack() -> Result<()> {
    Root::get().map(drop)
}

/// Runs the part of the tier `third`.
pub(crate) fn tier(verbose: bool) -> Result<Tally> {
    suite(&Asked { jobs: AT_ONCE, verbose, ..Asked::default() })
}

fn parse(args: &[String]) -> Result<Asked> {
    let mut asked = Asked { jobs: AT_ONCE, ..Asked::default() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cloned().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--server" => asked.server = Some(value()?),
            "--jobs" => {
                asked.jobs = value()?.parse().map_err(|e| format!("{arg}: {e}"))?;
                asked.jobs = asked.jobs.clamp(1, AT_ONCE);
            }
            "--ceph" => asked.on_ceph = true,
            "--write" => asked.write = true,
            "-v" => asked.verbose = true,
            prefix if !prefix.starts_with('-') => asked.prefixes.push(prefix.into()),
            _ => return Err(USAGE.into()),
        }
    }
    // The list is for local disks.
    if asked.on_ceph && (asked.write || asked.server.is_some()) {
        Err(USAGE.into())
    } else {
        Ok(asked)
    }
}

/// Runs the suite on CephFS.
pub(crate) fn on_ceph(verbose: bool) -> Result<Tally> {
    suite(&Asked { jobs: AT_ONCE, on_ceph: true, verbose, ..Asked::default() })
}

/// Runs the requested tests and compares the results with the lists.
fn suite(asked: &Asked) -> Result<Tally> {
    let began = Instant::now();
    let lists = if asked.on_ceph { Lists::read_for_ceph()? } else { Lists::read()? };
    let root = Root::get()?;
    let all = all_tests(&root)?;
    let chosen =
        |n: &String| asked.prefixes.is_empty() || asked.prefixes.iter().any(|p| n.starts_with(p));
    let mut names: Vec<String> =
        all.iter().filter(|n| lists.is_run(n) && chosen(n)).cloned().collect();
    if asked.on_ceph {
        // CephFS shares no blocks.
        names.retain(|n| !run::shares_blocks(n));
    } else if asked.server.is_none() && !lab::gateway::has_block_share() {
        println!(
            "   smbtorture: this kernel has no XFS or no loop device: dup_extents is left out"
        );
        names.retain(|n| !run::shares_blocks(n));
    }
    let dir = target_dir().join(format!("smbtorture/{}", std::process::id()));
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let (results, beside_nfs) = match &asked.server {
        Some(server) => {
            let server = Server::elsewhere(server, root.clone())?;
            (run_on(&server, asked, &lists, &names, &dir), Results::new())
        }
        None => with_gateway(asked, &root, &lists, &names, &dir)?,
    };
    let mut tally = judge(asked, &root, &lists, &results)?;
    if root.is_of_the_lists() {
        lists
            .without_a_test(&all)
            .for_each(|name| tally.fail(format!("{name}: there is no such test")));
    }
    for (name, verdict) in &beside_nfs {
        let passed = if verdict.passed() { Ok(()) } else { Err(verdict.to_string()) };
        tally.count(&format!("{name} beside NFS"), passed);
    }
    println!("   smbtorture: {} tests beside an NFS client", beside_nfs.len());
    println!("   smbtorture: {} tests took {:.0} s", results.len(), began.elapsed().as_secs_f64());
    if tally.failures.is_empty() {
        // The folder of a failed run is kept for examination.
        let _ = fs::remove_dir_all(&dir);
    } else {
        println!("    see {}", dir.display());
    }
    Ok(tally)
}

/// Returns every test, by the name that runs it: the listing repeats the last part.
fn all_tests(root: &Root) -> Result<Vec<String>> {
    let words = root.words();
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    words.push("--list");
    let listed = output(&words)?;
    let names =
        listed.lines().map(str::trim).filter(|l| SUITES.iter().any(|suite| l.starts_with(suite)));
    let mut names: Vec<String> =
        names.filter_map(|l| Some(l.rsplit_once('.')?.0.to_owned())).collect();
    names.dedup();
    if names.is_empty() { Err("smbtorture lists no test".into()) } else { Ok(names) }
}

type Results = BTreeMap<String, Verdict>;

/// Returns the results of the tests, and of some while an NFS client works.
fn with_gateway(
    asked: &Asked,
    root: &Root,
    lists: &Lists,
    names: &[String],
    dir: &Path,
) -> Result<(Results, Results)> {
    lab::gateway::build()?;
    let net = Net::new()?;
    let cluster = match asked.on_ceph {
        true => Some(Cluster::start(&net, dir, &dir.join("cephfs"))?),
        false => None,
    };
    let top = cluster.as_ref().map_or(dir, Cluster::mount);
    let shares: Vec<PathBuf> = (0..AT_ONCE).map(|n| top.join(format!("t{n}"))).collect();
    let mut gateway = Gateway::for_smbtorture(&net, dir, &shares, cluster.as_ref())?;
    let mut strict = Gateway::strict_for_smbtorture(&net, &dir.join("strict"), &shares)?;
    let server = Server::gateway(&net, root.clone(), shares);
    let results = run_on(&server, asked, lists, names, dir);
    let beside_nfs = beside::nfs(&net, &server, asked, dir)?;
    for gateway in [&mut gateway, &mut strict] {
        gateway.is_running()?;
        if let Some(line) = gateway.log().lines().find(|l| l.contains("panicked")) {
            return Err(format!("the gateway panicked: {line}"));
        }
    }
    Ok((results, beside_nfs))
}

fn run_on(server: &Server, asked: &Asked, lists: &Lists, names: &[String], dir: &Path) -> Results {
    let (alone, beside): (Vec<String>, Vec<String>) =
        names.iter().cloned().partition(|name| run::is_alone(name));
    let mut results = run::all(server, &beside, asked.jobs, dir, asked.verbose);
    results.extend(run::all(server, &alone, 1, dir, asked.verbose));
    let lost = |(name, verdict): (&String, &Verdict)| {
        (lists.passes(name) && !verdict.passed()).then(|| name.clone())
    };
    let again: Vec<String> = results.iter().filter_map(lost).collect();
    if again.len() <= AGAIN_MAX {
        results.extend(run::all(server, &again, 1, dir, asked.verbose));
    }
    results
}

/// Compares the results with the lists.
fn judge(asked: &Asked, root: &Root, lists: &Lists, results: &Results) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut new = Vec::new();
    for (name, verdict) in results {
        match (lists.passes(name), verdict.passed()) {
            (true, true) => tally.passed += 1,
            (false, true) => new.push(name.clone()),
            (true, false) => tally.fail(format!("{name}: {verdict}")),
            (false, false) if lists.is_known(name) => {}
            (false, false) if !root.is_of_the_lists() => {
                let version = root.version();
                println!("   smbtorture: {name}: {verdict}; it may be new in {version}");
            }
            (false, false) => tally.fail(format!("{name}: {verdict}; no list names it")),
        }
    }
    let known = results.len() - tally.passed - tally.failures.len() - new.len();
    println!("   smbtorture: {} of the list pass, {known} known not to", tally.passed);
    for (program, count) in lists.elsewhere().iter().filter(|_| asked.prefixes.is_empty()) {
        println!("   smbtorture: {count} more pass by `cargo test -p gateway --test {program}`");
    }
    for name in &new {
        println!("   smbtorture: {name} passes and is not in the list");
    }
    if asked.write {
        lists.add(&new)?;
    }
    tally.passed += new.len();
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_checked() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(parse(&words("--nonsense")).is_err());
        assert!(parse(&words("--jobs")).is_err());
        let asked = parse(&words("--jobs 99 smb2.lease --write")).unwrap();
        assert_eq!((asked.jobs, asked.write), (AT_ONCE, true));
        assert_eq!(asked.prefixes, ["smb2.lease"]);
    }
}
