//! The tiers of `cargo xtask test`, in order. Each prints its own closing line.

use std::process::Stdio;
use std::thread;
use std::time::Instant;

use crate::sh::{Outcome, Result, Tally, command, output, target_dir};
use crate::{ceph, dashboard, fuzz, graph, lab, packages, page, registry, smbtorture, tidy};

const TIERS: [&str; 6] = ["style", "unit", "e2e", "lab", "third", "fuzz"];
/// In-process end-to-end and fault tests: they have a tier of their own.
const E2E_PACKAGE: &str = "headgate-tests";
/// Both tiers in one run.
const UNIT_AND_E2E: &str = "unit and e2e";

/// Of each target, where nothing else is asked for. With the same seed each run tries much the same inputs: this shows what a
/// change broke on known paths; other seeds and longer runs look for new ones.
const FUZZ_SECONDS: u32 = 12;
/// So many tests of a tier that failed are run once more, with nothing beside them. Where more failed, it was no chance.
const UNSTEADY_MAX: usize = 3;
/// Failures that are never forgiven, by what stands in their messages: bytes that were not what they had to be.
const CERTAIN: [&str; 2] = ["differ", "lost"];

/// What the command line asked for.
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
    let mut outcome = Outcome::Passed;
    let mut tallies = Vec::new();
    for together in side_by_side(&names) {
        let counted = thread::scope(|scope| {
            let asked = &asked;
            let run = |tier| (tier, scope.spawn(move || timed(tier, asked)));
            let running: Vec<_> = together.into_iter().map(run).collect();
            let broke_down = |tier: &str| Tally::of(tier, || Err("its thread broke down".into()));
            let ended = |(tier, thread): (_, thread::ScopedJoinHandle<'_, _>)| {
                (tier, thread.join().unwrap_or_else(|_| broke_down(tier)))
            };
            running.into_iter().map(ended).collect::<Vec<_>>()
        });
        for (tier, tally) in counted {
            if tally.report(Some(tier)) == Outcome::Failed {
                outcome = Outcome::Failed;
            }
            tallies.push((tier, tally));
        }
    }
    if tallies.len() > 1 {
        // An hour of output lies above: whoever reads only its end must see how each went.
        println!("== all tiers");
        for (tier, tally) in &tallies {
            tally.report(Some(tier));
        }
    }
    Ok(outcome)
}

/// One tier, with its time.
fn timed(tier: &str, asked: &Asked) -> Tally {
    let began = Instant::now();
    println!("== {tier}");
    let tally = Tally::of(tier, || run_tier(tier, asked));
    println!("   {tier} took {:.0} s", began.elapsed().as_secs_f64());
    tally
}

/// Which of them run at once, in order: `fuzz`, which computes at the lowest priority, beside `third`, whose clients mostly wait.
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

/// The tiers to run: `unit` and `e2e` as one where both are asked for. Cargo chooses the features of dependencies by the packages
/// that it is asked for, and so two commands build most dependencies twice.
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

/// Other people's programs.
fn third_parties(asked: &Asked) -> Result<Tally> {
    let wanted =
        |name: &str| asked.only.is_empty() || asked.only.iter().any(|o| name.contains(o.as_str()));
    let mut tally = Tally::default();
    if wanted("transforms") {
        tally.add(lab::transforms()?);
    }
    tally.add(lab::third_parties(&asked.only, asked.verbose)?);
    if wanted("rdma-core") {
        tally.add(cargo_test(&["--package", "rdma-sys", "--test", "layout"])?);
        tally.count("headgate starts without rdma-core", is_not_linked_with_rdma_core());
    }
    if wanted("kerberos") {
        tally.add(cargo_test(&["--package", "gss-sys", "--test", "kdc"])?);
        smbtorture::unpack()?;
        let dir = target_dir().join("samba-dc");
        packages::unpack_all(packages::DOMAIN_CONTROLLER, &dir, "usr/sbin/samba")?;
        let named = format!("HEADGATE_SAMBA_DC={}", dir.display());
        let of_gateway = ["--package", "gateway", "--test", "kerberos"];
        tally.add(cargo_test_by(&["env", &named], &of_gateway)?);
    }
    if wanted("cluster") {
        tally.add(cargo_test(&["--package", "cluster", "--test", "takeover"])?);
        tally.add(cargo_test(&["--package", "gateway", "--test", "cluster"])?);
    }
    if wanted("ceph") {
        tally.add(ceph::tier()?);
    }
    if wanted("import") {
        tally.add(import_beside_samba()?);
    }
    if wanted("registry") {
        tally.count("the format crates can be published", registry::would_publish());
        let built = registry::builds_with_the_registrys_rdma_sys();
        tally.count("rdma-transport on the registry's rdma-sys", built);
    }
    if wanted("page") {
        tally.add(Tally::of("page", page::tier).once_more("page", page::tier));
    }
    if wanted("dashboard") {
        tally.add(Tally::of("dashboard", dashboard::tier).once_more("dashboard", dashboard::tier));
    }
    if wanted("smbtorture") {
        tally.add(Tally::of("smbtorture", || smbtorture::tier(asked.verbose)));
    }
    Ok(tally)
}

/// What Samba lets its users do by files of other people, and the gateway by what it imports of them. smbclient has brought the
/// libraries of smbd.
fn import_beside_samba() -> Result<Tally> {
    let smbd = packages::unpack("samba", &target_dir().join("samba"), "usr/sbin/smbd")?;
    let named = format!("HEADGATE_SMBD={}", smbd.display());
    cargo_test_by(&["env", &named], &["--package", "gateway", "--test", "import_corpus"])
}

/// The loader must find the program complete where libibverbs and librdmacm are not installed.
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

/// Format, lints, crate graph, and what no compiler checks.
fn style() -> Result<Tally> {
    let mut tally = Tally::default();
    tally.count("cargo fmt", quietly(&["cargo", "fmt", "--all", "--check"]));
    let clippy = ["cargo", "clippy", "--workspace", "--all-targets", "--quiet", "--", "-Dwarnings"];
    tally.count("cargo clippy", quietly(&clippy));
    tally.add(graph::check()?);
    tally.add(tidy::check()?);
    Ok(tally)
}

fn quietly(words: &[&str]) -> Result<()> {
    output(words).map(drop)
}

/// Runs `cargo test` and counts by its own summary lines; what did not compile is one failure.
pub(crate) fn cargo_test(selection: &[&str]) -> Result<Tally> {
    cargo_test_by(&[], selection)
}

/// The same, by a command that runs the one behind its own arguments.
fn cargo_test_by(by: &[&str], selection: &[&str]) -> Result<Tally> {
    let words = [by, &["cargo", "test", "--no-fail-fast"], selection].concat();
    let (mut tally, out, err) = tests_of(&words)?;
    let few = (1..=UNSTEADY_MAX).contains(&tally.failures.len());
    if few && !is_certain(&out) {
        println!("   once more, alone: {}", tally.failures.join(", "));
        let names = tally.failures.iter().map(String::as_str);
        let words: Vec<&str> =
            words.iter().copied().chain(["--", "--exact"]).chain(names).collect();
        let (again, ..) = tests_of(&words)?;
        if again.failures.is_empty() && again.passed >= tally.failures.len() {
            tally.unsteady = std::mem::take(&mut tally.failures);
            tally.passed += tally.unsteady.len();
            // Without the lines that a program would take for failures.
            out.lines().filter(|l| !l.starts_with("test ")).for_each(|l| println!("{l}"));
            return Ok(tally);
        }
    }
    println!("{out}{err}");
    if tally.failures.is_empty() && !err.is_empty() {
        tally.fail(format!("`{}`: not all of it ran", words.join(" ")));
    }
    Ok(tally)
}

/// Some failure is never forgiven. The lines of tests that passed say nothing of that.
fn is_certain(out: &str) -> bool {
    let mut said = out.lines().filter(|l| !l.starts_with("test "));
    said.any(|l| CERTAIN.iter().any(|word| l.contains(word)))
}

/// Runs cargo's tests by these words. If that did not end well: what they said, and what cargo said.
fn tests_of(words: &[&str]) -> Result<(Tally, String, String)> {
    let done = command(words).stdin(Stdio::null()).output();
    let done = done.map_err(|e| format!("cannot run cargo: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let out = text(&done.stdout);
    let tally = count_tests(&out);
    if done.status.success() {
        return Ok((tally, String::new(), String::new()));
    }
    Ok((tally, out, format!("{}{}", text(&done.stderr), done.status)))
}

/// Reads libtest's lines: `test NAME ... ok`, `test NAME ... FAILED`.
fn count_tests(out: &str) -> Tally {
    let mut tally = Tally::default();
    for line in out.lines().filter_map(|l| l.strip_prefix("test ")) {
        if line.ends_with(" ... ok") {
            tally.passed += 1;
        } else if let Some(name) = line.strip_suffix(" ... FAILED") {
            tally.failures.push(name.to_owned());
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_bytes_are_no_chance() {
        let of = |why: &str| {
            format!("test a_lost_handle_is_found ... ok\ntest reads ... FAILED\n{why}\n")
        };
        assert!(is_certain(&of("panicked at tests/x.rs:3:5:\nread 3 differs")));
        assert!(is_certain(&of("record 17 is lost")));
        assert!(!is_certain(&of("index out of bounds")));
    }

    #[test]
    fn libtest_lines_are_counted() {
        let out = "running 3 tests\ntest a::b ... ok\ntest c ... FAILED\ntest d - should panic ... ok\n\
                   test result: FAILED. 2 passed; 1 failed; 0 ignored\n";
        let tally = count_tests(out);
        assert_eq!((tally.passed, tally.failures), (2, vec!["c".to_owned()]));
    }

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
    fn fuzz_runs_beside_the_third_parties() {
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
