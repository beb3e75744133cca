//! Runs the fuzz targets, each for its time, two at once. They are built like cargo-fuzz builds them, but without it: libFuzzer is
//! a crate, coverage and the address sanitizer come with the toolchain.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::programs::example;
use crate::sh::{Result, Tally, in_turns, lowest_priority, output, workspace};

const TARGET: &str = "x86_64-unknown-linux-gnu";
const AT_ONCE: usize = 2;
/// Time limit for one input; a target that needs longer has found a fault.
const SECONDS_PER_INPUT_MAX: u32 = 5;
const MEMORY_MIB_MAX: u32 = 1024;

/// How the targets are run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runs {
    /// Run time of each target.
    pub(crate) seconds: u32,
    /// Seed of libFuzzer's random numbers: a second run with the same seed tries almost the same inputs.
    pub(crate) seed: u32,
}

/// The flags that cargo-fuzz passes to rustc.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address --cfg fuzzing -Ccodegen-units=1";

/// Runs the targets whose name contains one of `only`: one check for each.
pub(crate) fn tier(only: &[String], runs: Runs, verbose: bool) -> Result<Tally> {
    let mut targets = names()?;
    targets.retain(|t| only.is_empty() || only.iter().any(|o| t.contains(o.as_str())));
    // The targets run at the same time as a tier that mostly waits.
    lowest_priority();
    build()?;
    seed_corpora()?;
    let mut tally = Tally::default();
    for (target, result) in in_turns(targets, AT_ONCE, |target| {
        let result = fuzz(&target, runs, verbose);
        (target, result)
    }) {
        tally.count(&target, result);
    }
    Ok(tally)
}

/// Returns the programs of the fuzz workspace.
fn names() -> Result<Vec<String>> {
    let failed = |e| format!("fuzz/fuzz_targets: {e}");
    let listing = fs::read_dir("fuzz/fuzz_targets").map_err(failed)?;
    let stem = |e: fs::DirEntry| Some(e.path().file_stem()?.to_str()?.to_owned());
    let mut names: Vec<String> = listing.flatten().filter_map(stem).collect();
    names.sort();
    Ok(names)
}

/// Builds all targets.
fn build() -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo
        .args([
            "build",
            "--quiet",
            "--release",
            "--manifest-path",
            "fuzz/Cargo.toml",
            "--target",
            TARGET,
        ])
        .arg("--target-dir")
        .arg(target_dir())
        .env("RUSTFLAGS", FLAGS)
        // The sanitizer is part of the stable toolchain; the flag that enables it is not stable.
        .env("RUSTC_BOOTSTRAP", "1");
    let status = cargo.status().map_err(|e| format!("cannot run cargo: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("the fuzz targets do not build: {status}")) }
}

fn target_dir() -> PathBuf {
    workspace().join("fuzz/target")
}

/// Writes the seeds, which tests/src/fuzz/seeds.rs contains as code, to files.
fn seed_corpora() -> Result<()> {
    let writer = example("fuzz-seeds")?.display().to_string();
    let dir = workspace().join("fuzz/corpus").display().to_string();
    output(&[&writer, &dir]).map(drop)
}

fn fuzz(target: &str, Runs { seconds, seed }: Runs, verbose: bool) -> Result<()> {
    let fuzz = workspace().join("fuzz");
    let artifacts = fuzz.join("artifacts").join(target);
    fs::create_dir_all(&artifacts).map_err(|e| format!("{}: {e}", artifacts.display()))?;
    let done = Command::new(target_dir().join(TARGET).join("release").join(target))
        .arg(fuzz.join("corpus").join(target))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-seed={seed}"))
        .arg(format!("-timeout={SECONDS_PER_INPUT_MAX}"))
        .arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args(["-print_final_stats=1", "-use_value_profile=1", "-max_len=4096"])
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("cannot run it: {e}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    if verbose {
        println!("{said}");
    }
    let runs = said.lines().find_map(|l| l.strip_prefix("stat::number_of_executed_units:"));
    println!("   {target}: {} runs", runs.map_or("?", str::trim));
    if done.status.success() {
        return Ok(());
    }
    Err(format!("{}, see {}:\n{}", done.status, artifacts.display(), tail(&said)))
}

/// Returns the text of a panic, and the end of the output, which contains the finding.
fn tail(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    let (before, end) = lines.split_at(lines.len().saturating_sub(40));
    let panic = before.iter().skip_while(|l| !l.contains("panicked at")).take(2);
    panic.chain(end).copied().collect::<Vec<_>>().join("\n")
}
