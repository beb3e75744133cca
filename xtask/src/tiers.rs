//! The tiers of `cargo xtask test`, in order. Each prints its own closing line.

use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use crate::programs::{cargo_test, one_test};
use crate::sh::{Outcome, Result, Tally, in_turns, lowest_priority, output, target_dir};
use crate::{
    ceph, dashboard, fuzz, graph, lab, packages, page, programs, prose, registry, smbtorture, tidy,
};

const TIERS: [&str; 6] = ["style", "unit", "e2e", "lab", "third", "fuzz"];
/// In-process end-to-end and fault tests: they are a separate tier.
const E2E_PACKAGE: &str = "headgate-tests";
/// Both tiers in one run.
const UNIT_AND_E2E: &str = "unit and e2e";

/// Default run time of each target. With the same seed each run tries almost the same inputs: this shows what a change broke on
/// known paths; other seeds and longer runs look for new ones.
const FUZZ_SECONDS: u32 = 3;
/// The options of the command line.
#[derive(Debug)]
struct Asked {
    tiers: Vec<String>,
    only: Vec<String>,
    fuzz: fuzz::Runs,
    verbose: bool,
}

/// `cargo xtask test`.
pub(crate) fn test(args: &[String]) -> Result<Outcome> {
    let asked = parse(args)?;
    packages::install(&asked.tiers.iter().map(String::as_str).collect::<Vec<_>>())?;
    let names = built_once(&asked.tiers);
    let began = Instant::now();
    let mut tallies = Vec::new();
    thread::scope(|scope| {
        let asked = &asked;
        for together in side_by_side(&names) {
            if together.contains(&UNIT_AND_E2E) {
                scope.spawn(|| prepare(&asked.tiers));
            }
            let run = |tier| (tier, scope.spawn(move || timed(tier, asked)));
            let running: Vec<_> = together.into_iter().map(run).collect();
            let broke_down = |tier: &str| Tally::of(tier, || Err("its thread broke down".into()));
            for (tier, thread) in running {
                let tally = thread.join().unwrap_or_else(|_| broke_down(tier));
                tallies.push((tier, tally.report(Some(tier)), tally));
            }
        }
    });
    if tallies.len() > 1 {
        // A run prints an hour of output: a reader of its end must see the result of each tier.
        println!("== all tiers, {:.0} s", began.elapsed().as_secs_f64());
        for (tier, _, tally) in &tallies {
            tally.report(Some(tier));
        }
    }
    let failed = tallies.iter().any(|(_, outcome, _)| *outcome == Outcome::Failed);
    Ok(if failed { Outcome::Failed } else { Outcome::Passed })
}

/// Runs one tier, and measures its time.
fn timed(tier: &str, asked: &Asked) -> Tally {
    let began = Instant::now();
    println!("== {tier}");
    let tally = Tally::of(tier, || run_tier(tier, asked));
    println!("   {tier} took {:.0} s", began.elapsed().as_secs_f64());
    tally
}

/// Groups the tiers that run at once, in order: `fuzz`, which computes at the lowest priority, together with `third`, whose clients
/// mostly wait.
fn side_by_side<'a>(names: &[&'a str]) -> Vec<Vec<&'a str>> {
    let mut groups: Vec<Vec<&str>> =
        names.iter().filter(|n| **n != "fuzz").map(|n| vec![*n]).collect();
    if names.contains(&"fuzz") {
        match groups.iter_mut().find(|g| g.contains(&"third")) {
            Some(third) => third.push("fuzz"),
            None => groups.push(vec!["fuzz"]),
        }
    }
    groups
}

/// Returns the tiers to run: `unit` and `e2e` as one if both are requested. Cargo chooses the features of dependencies by the
/// requested packages, so two commands would build most dependencies twice.
fn built_once(asked: &[String]) -> Vec<&str> {
    let mut names: Vec<&str> = asked.iter().map(String::as_str).collect();
    if let (Some(unit), Some(e2e)) =
        (names.iter().position(|n| *n == "unit"), names.iter().position(|n| *n == "e2e"))
    {
        names[unit.min(e2e)] = UNIT_AND_E2E;
        names.remove(unit.max(e2e));
    }
    names
}

fn run_tier(tier: &str, asked: &Asked) -> Result<Tally> {
    match tier {
        "style" => style(),
        "unit" => cargo_test(&["--workspace", "--exclude", E2E_PACKAGE]),
        "e2e" => cargo_test(&["--package", E2E_PACKAGE]),
        UNIT_AND_E2E => cargo_test(&["--workspace"]),
        "lab" => lab::tier(&asked.only, asked.verbose),
        "third" => third_parties(asked),
        _ => fuzz::tier(&asked.only, asked.fuzz, asked.verbose),
    }
}

/// `cargo xtask prepush`.
pub(crate) fn prepush() -> Result<Outcome> {
    test(&["--tier".into(), "style".into(), "--tier".into(), "unit".into()])
}

fn parse(args: &[String]) -> Result<Asked> {
    let fuzz = fuzz::Runs { seconds: FUZZ_SECONDS, seed: 1 };
    let mut asked = Asked { tiers: vec![], only: vec![], fuzz, verbose: false };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cloned().ok_or_else(|| format!("{arg} needs a value"));
        let number = |v: String| v.parse::<u32>().map_err(|e| format!("{arg}: {e}"));
        match arg.as_str() {
            "--tier" => asked.tiers.push(value()?),
            "--only" => asked.only.push(value()?),
            "--fuzz-seconds" => asked.fuzz.seconds = number(value()?)?,
            "--fuzz-seed" => asked.fuzz.seed = number(value()?)?,
            "-v" => asked.verbose = true,
            _ => return Err(format!("unknown option {arg}")),
        }
    }
    if let Some(unknown) = asked.tiers.iter().find(|t| !TIERS.contains(&t.as_str())) {
        return Err(format!("no tier {unknown}; there are {}", TIERS.join(", ")));
    }
    if asked.tiers.is_empty() {
        asked.tiers = TIERS.map(str::to_owned).to_vec();
    }
    Ok(asked)
}

/// Runs programs of other projects, four at once, because most of them wait.
fn third_parties(asked: &Asked) -> Result<Tally> {
    let lanes = vec![
        vec![cephfs as Part],
        vec![smbtorture],
        vec![domain, members, trust, sssd, winbind_faults, cluster],
        CLIENTS.to_vec(),
    ];
    let run = |lane: Vec<Part>| {
        let mut tally = Tally::default();
        for part in lane {
            tally.add(Tally::of("third", || part(asked)));
        }
        tally
    };
    let at_once = lanes.len();
    let mut tally = Tally::default();
    in_turns(lanes, at_once, run).into_iter().for_each(|of_lane| tally.add(of_lane));
    Ok(tally)
}

/// A part of the tier `third`; an empty tally if it was not requested.
type Part = fn(&Asked) -> Result<Tally>;

/// The parts that use much CPU time.
const CLIENTS: [Part; 15] = [
    transforms,
    nfs_programs,
    smb_programs,
    smb_compression,
    msdfs_links,
    |asked| lab::third_parties(&asked.only, asked.verbose),
    rdma_core,
    found,
    snapshots,
    passwords,
    ldap,
    import,
    registries,
    in_a_browser,
    dashboards,
];

fn transforms(asked: &Asked) -> Result<Tally> {
    asked.part("transforms", lab::transforms)
}

fn nfs_programs(asked: &Asked) -> Result<Tally> {
    let run = lab::nfsprograms::all;
    let name = "nfs-programs";
    asked.part(name, || Ok(Tally::of(name, run).once_more(name, run)))
}

fn smb_programs(asked: &Asked) -> Result<Tally> {
    let run = lab::smbprograms::all;
    let name = "smb-programs";
    asked.part(name, || Ok(Tally::of(name, run).once_more(name, run)))
}

fn smb_compression(asked: &Asked) -> Result<Tally> {
    asked.part("smb-compression", lab::smbprograms::compression)
}

fn msdfs_links(asked: &Asked) -> Result<Tally> {
    let run = lab::smbprograms::msdfs_links;
    let name = "msdfs-links";
    asked.part(name, || Ok(Tally::of(name, run).once_more(name, run)))
}

/// Lets programs of other projects look for the gateway. PyPI has one of them; Debian has what it needs.
fn found(asked: &Asked) -> Result<Tally> {
    asked.part("found", || {
        let folder = target_dir().join("third-programs/wsdiscovery");
        if !folder.join("wsdiscovery").exists() {
            let dir = folder.to_string_lossy();
            let pip = ["python3", "-m", "pip", "install", "--quiet", "--no-deps", "--target", &dir];
            output(&[&pip[..], &["WSDiscovery==2.1.2"]].concat())?;
        }
        let run = || one_test("gateway", "found", &[&format!("PYTHONPATH={}", folder.display())]);
        Ok(Tally::of("found", run).once_more("found", run))
    })
}

/// Lets programs of other projects look for previous versions.
fn snapshots(asked: &Asked) -> Result<Tally> {
    asked.part("snapshots", || one_test("gateway", "snapshots", &[]))
}

/// Lets programs of other projects change passwords of users.
fn passwords(asked: &Asked) -> Result<Tally> {
    asked.part("passwords", || one_test("gateway", "passwords", &[]))
}

/// Lets users of a directory log on.
fn ldap(asked: &Asked) -> Result<Tally> {
    asked.part("ldap", || {
        let dir = target_dir().join("slapd");
        packages::unpack_all(packages::DIRECTORY, &dir, "usr/sbin/slapd")?;
        one_test("gateway", "ldap", &[&format!("HEADGATE_SLAPD={}", dir.display())])
    })
}

fn rdma_core(asked: &Asked) -> Result<Tally> {
    asked.part("rdma-core", || {
        let mut tally = one_test("rdma-sys", "layout", &[])?;
        tally.count("headgate starts without rdma-core", is_not_linked_with_rdma_core());
        Ok(tally)
    })
}

/// Runs the tests with MIT's KDC and Samba's domain controller.
fn domain(asked: &Asked) -> Result<Tally> {
    asked.part("kerberos", || {
        let mut tally = one_test("gss-sys", "kdc", &[])?;
        let dir = domain_controller()?;
        let named = format!("HEADGATE_SAMBA_DC={}", dir.display());
        tally.add(one_test("gateway", "kerberos", &[&named])?);
        Ok(tally)
    })
}

/// Compares the gateway with Samba's server as members of one domain.
fn members(asked: &Asked) -> Result<Tally> {
    let run = || lab::smbprograms::domain_members(&domain_controller()?);
    asked.part("domain-members", || {
        Ok(Tally::of("domain-members", run).once_more("domain-members", run))
    })
}

/// Compares them where two domains trust each other.
fn trust(asked: &Asked) -> Result<Tally> {
    let run = || lab::smbprograms::domain_trust(&domain_controller()?);
    let name = "domain-trust";
    asked.part(name, || Ok(Tally::of(name, run).once_more(name, run)))
}

/// Lets SSSD join the gateway's host to a domain.
fn sssd(asked: &Asked) -> Result<Tally> {
    let run = || {
        let dir = target_dir().join("sssd");
        let last = format!("usr/lib/{}-linux-gnu/sssd/libsss_ad.so", std::env::consts::ARCH);
        packages::unpack_all(packages::SSSD, &dir, &last)?;
        lab::smbprograms::domain_sssd(&domain_controller()?, &dir)
    };
    asked.part("domain-sssd", || Ok(Tally::of("domain-sssd", run).once_more("domain-sssd", run)))
}

fn winbind_faults(asked: &Asked) -> Result<Tally> {
    let run = lab::smbprograms::winbind_faults;
    let name = "winbind-faults";
    asked.part(name, || Ok(Tally::of(name, run).once_more(name, run)))
}

/// Returns the folder of the domain controller, together with the libraries of the suite.
pub(crate) fn domain_controller() -> Result<PathBuf> {
    smbtorture::unpack()?;
    let dir = target_dir().join("samba-dc");
    let last = format!("lib/{}-linux-gnu/libnss_winbind.so.2", std::env::consts::ARCH);
    packages::unpack_all(packages::DOMAIN_CONTROLLER, &dir, &last)?;
    Ok(dir)
}

/// Runs the tests with etcd.
fn cluster(asked: &Asked) -> Result<Tally> {
    asked.part("cluster", || {
        let mut tally = one_test("cluster", "takeover", &[])?;
        tally.add(one_test("gateway", "cluster", &[])?);
        Ok(tally)
    })
}

fn cephfs(asked: &Asked) -> Result<Tally> {
    asked.part("ceph", ceph::tier)
}

fn import(asked: &Asked) -> Result<Tally> {
    asked.part("import", import_beside_samba)
}

fn registries(asked: &Asked) -> Result<Tally> {
    asked.part("registry", || {
        let mut tally = Tally::default();
        tally.count("the format crates can be published", registry::would_publish());
        let built = registry::builds_with_the_registrys_rdma_sys();
        tally.count("rdma-transport on the registry's rdma-sys", built);
        Ok(tally)
    })
}

fn in_a_browser(asked: &Asked) -> Result<Tally> {
    asked.part("page", || Ok(Tally::of("page", page::tier).once_more("page", page::tier)))
}

fn dashboards(asked: &Asked) -> Result<Tally> {
    let run = || Tally::of("dashboard", dashboard::tier);
    asked.part("dashboard", || Ok(run().once_more("dashboard", dashboard::tier)))
}

fn smbtorture(asked: &Asked) -> Result<Tally> {
    asked.part("smbtorture", || smbtorture::tier(asked.verbose))
}

impl Asked {
    /// Returns the tally of one part of a tier, and prints its time.
    fn part(&self, name: &str, run: impl FnOnce() -> Result<Tally>) -> Result<Tally> {
        if !self.only.is_empty() && !self.only.iter().any(|o| name.contains(o.as_str())) {
            return Ok(Tally::default());
        }
        let began = Instant::now();
        let tally = Tally::of(name, run);
        println!("   {name} took {:.0} s", began.elapsed().as_secs_f64());
        Ok(tally)
    }
}

/// Builds what the next tiers need while tests of the first ones wait: with empty caches that is a kernel, a release build, and
/// programs of other projects. A step that fails here is repeated, and reported, by the tier that needs it. The fuzz targets are
/// not included: guests hang while compilers run, whatever the priority of those.
fn prepare(tiers: &[String]) {
    lowest_priority();
    let wanted = |tier: &str| tiers.iter().any(|t| t == tier);
    let mut made = Vec::new();
    if wanted("lab") || wanted("third") {
        made.push(lab::gateway::build());
        let kernels = lab::Linux::ALL.into_iter().filter(|linux| !linux.may_not_boot());
        made.extend(kernels.map(|linux| lab::build_kernel(linux).map(drop)));
    }
    if wanted("third") {
        made.push(domain_controller().map(drop));
        made.push(lab::smbprograms::prepare().map(drop));
    }
    made.into_iter().filter_map(Result::err).for_each(|why| println!("   {why}"));
}

/// Compares the access that Samba gives its users to files of other users with the access that the gateway gives after an import.
/// The libraries of smbd came with smbclient.
fn import_beside_samba() -> Result<Tally> {
    let smbd = packages::unpack("samba", &target_dir().join("samba"), "usr/sbin/smbd")?;
    let named = format!("HEADGATE_SMBD={}", smbd.display());
    one_test("gateway", "import_corpus", &[&named])
}

/// Checks that the program loads on systems without libibverbs and librdmacm.
fn is_not_linked_with_rdma_core() -> Result<()> {
    lab::gateway::build()?;
    let program = lab::gateway::program();
    let dynamic = output(&["readelf", "--dynamic", "--wide", &program.display().to_string()])?;
    let mut needed = dynamic.lines().filter(|l| l.contains("(NEEDED)")).peekable();
    if needed.peek().is_none() {
        return Err("readelf tells of no library at all".into());
    }
    match needed.find(|l| l.contains("ibverbs") || l.contains("rdmacm")) {
        Some(line) => Err(format!("{}: {}", program.display(), line.trim())),
        None => Ok(()),
    }
}

/// Checks format, lints, crate graph, and rules that no compiler checks.
fn style() -> Result<Tally> {
    let mut tally = Tally::default();
    tally.count("cargo fmt", quietly(&["cargo", "fmt", "--all", "--check"]));
    tally.count("cargo clippy", clippy(&["--all-targets".into()]));
    // "All" excludes what `cargo test` excludes.
    let named = programs::built_by_name_alone()?;
    let named = named.into_iter().flat_map(|test| ["--test".to_owned(), test]).collect::<Vec<_>>();
    tally.count("cargo clippy of tests that a tier builds by name", clippy(&named));
    tally.add(graph::check()?);
    tally.add(tidy::check()?);
    tally.add(prose::check()?);
    Ok(tally)
}

fn clippy(targets: &[String]) -> Result<()> {
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    let words = ["cargo", "clippy", "--workspace", "--quiet"];
    quietly(&[&words[..], &targets, &["--", "-Dwarnings"]].concat())
}

fn quietly(words: &[&str]) -> Result<()> {
    output(words).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_and_e2e_are_one_build() {
        let of = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            built_once(&of(&["style", "unit", "e2e", "lab"])),
            ["style", UNIT_AND_E2E, "lab"]
        );
        assert_eq!(built_once(&of(&["e2e", "fuzz", "unit"])), [UNIT_AND_E2E, "fuzz"]);
        assert_eq!(built_once(&of(&["e2e", "lab"])), ["e2e", "lab"]);
    }

    #[test]
    fn fuzz_runs_with_third_parties() {
        let all = ["style", UNIT_AND_E2E, "lab", "third", "fuzz"];
        let alone = |name| vec![name];
        let expected =
            vec![alone("style"), alone(UNIT_AND_E2E), alone("lab"), vec!["third", "fuzz"]];
        assert_eq!(side_by_side(&all), expected);
        assert_eq!(side_by_side(&["fuzz", "lab"]), [["lab"], ["fuzz"]]);
    }

    #[test]
    fn the_command_line_is_checked() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(parse(&words("--tier nonsense")).is_err());
        assert!(parse(&words("--fuzz-seconds x")).is_err());
        assert!(parse(&words("--tier")).is_err());
        let asked = parse(&words("--tier lab --only v3 -v")).unwrap();
        assert_eq!((asked.tiers, asked.only), (vec!["lab".to_owned()], vec!["v3".to_owned()]));
        assert_eq!(parse(&[]).unwrap().tiers.len(), TIERS.len());
    }
}
