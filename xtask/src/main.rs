//! Developer commands: `cargo xtask test` runs all tests, the other commands are parts of it.

mod bench;
mod browser;
mod ceph;
mod cleanroot;
mod dashboard;
mod deb;
mod fuzz;
mod grafana;
mod graph;
mod lab;
mod packages;
mod page;
mod programs;
mod prose;
mod registry;
mod sh;
mod smbtorture;
mod soak;
mod tidy;
mod tiers;
mod trixie;
mod unit;

use std::process::ExitCode;

use sh::Outcome;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [--tier NAME]... [--only TEXT]... [--fuzz-seconds N] [--fuzz-seed N] [-v]
                 every tier in order, each ending in a line `tier: N passed, N failed`; tiers: style, unit, e2e, lab,
                 third, fuzz. --only: lab scenarios and fuzz targets whose name holds TEXT
  prepush        style and unit
  graph          checks which crate may depend on which
  tidy           checks line, function and file lengths, words and paths
  prose [PATH]   counts wordings in comments and documentation that readers stumble over; with PATH lists the sentences
  commit-msg F   checks the subject of the message in file F, for the hook of Git in .githooks
  lab [-v] [--list] [--jobs=A,B] [--options=A,B] [--runs=N] NAME... | --takeovers
                 boots the lab's kernel and runs these scenarios; -v shows what the guest says, --jobs runs some only,
                 --options mounts by these, --runs is how often the job `counting` counts
  smbtorture [PREFIX]...
                 these tests of Samba's suite, or all, against a gateway; --help shows more
  ceph [-v] [lab|smbtorture|authority]...
                 the lab's jobs, smbtorture and the table of who may do what on shares in CephFS
  page [--write] the status page with a thousand connections in a real browser; --write makes the
                 documentation's picture
  dashboard [--write]
                 deploy/grafana.json by Grafana's own types; --write draws docs/images/dashboard.png; takes node and npm
  clean-root [--full] [--keep] [--package FILE]
                 the README's commands and the Debian package in a Debian root with nothing but a Rust toolchain; without
                 --full only the tiers style, unit and e2e; --package: only this package, which is built already
  deb            builds the Debian package
  soak [--minutes N] [--seed N]
                 clients of every protocol work, go and are cut off for 30 minutes; then descriptors, memory and whatever is
                 kept for clients must be back where they were
  bench [ARG]... figures beside other servers, written to docs/benchmarks.md; `bench durability`: the price of stable names;
                 `bench neighbours`: what a client waits for beside attackers;
                 `bench nfs-protected`: Kerberos and TLS beside the kernel's server; `bench failover [--runs N]`: what clients
                 wait for when a server goes, beside NFS-Ganesha, written to docs/dev/takeovers.md
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match args.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    // Every path below is relative to the workspace.
    if let Err(e) = std::env::set_current_dir(sh::workspace()) {
        eprintln!("xtask: cannot enter the workspace: {e}");
        return ExitCode::from(2);
    }
    let done = match command {
        "test" => tiers::test(rest),
        "prepush" => tiers::prepush(),
        "graph" => graph::check().map(|tally| tally.report(None)),
        "tidy" => tidy::check().map(|tally| tally.report(None)),
        "prose" => match rest {
            [] => prose::check().map(|tally| tally.report(None)),
            [path, ..] => prose::list(path).map(|()| Outcome::Passed),
        },
        "commit-msg" => match rest {
            [file] => prose::check_message(file).map(|()| Outcome::Passed),
            _ => Err("cargo xtask commit-msg FILE".into()),
        },
        "lab" => lab::command(rest),
        "page" => page::command(rest),
        "dashboard" => grafana::command(rest),
        "smbtorture" => smbtorture::command(rest),
        "ceph" => ceph::command(rest),
        "soak" => soak::main(rest),
        "bench" => bench::command(rest),
        "clean-root" => cleanroot::main(rest),
        "deb" => deb::main(),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(Outcome::Passed) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::from(1),
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::from(2)
        }
    }
}
