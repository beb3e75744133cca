//! `headgate bench`: measures a server over NFS or SMB, over TCP or RDMA, and the CPU time of both ends.
//!
//! *Operation.* Uses one client thread, one or more connections, and a fixed number of operations in flight. Two servers are
//! measured alternately (A B A B), so that a slow minute of the machine affects both; the best round of each counts.
//!
//! *Memory.* All writes send the same buffer; data that was read stays in pool buffers until the next operation.
//!
//! *Errors.* The first failed operation ends the measurement, and so does a signal. Files of a run have unique names, and are
//! removed in any case.

mod load;
mod plot;
mod report;
mod sample;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use client::Target;
use client::target::Protocol;

use load::Loads;
use sample::Sample;

/// Options of `headgate bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// What to measure: nfs://HOST[:PORT]/SHARE[?version=3|4.1|4.2&transport=tcp|rdma&mountport=PORT&crc=on|off&device=on|off],
    /// with sec=krb5|krb5i|krb5p&keytab=PATH for Kerberos, or
    /// smb://USER@HOST[:PORT]/SHARE[?dialect=3.1.1&transport=tcp|rdma&protect=sign|seal&transforms=on|off&crc=on|off&device=on|off]
    #[arg(value_name = "TARGET", required = true)]
    target: Target,
    /// Measure this one too, in turns, and print ratios of the first to it
    #[arg(long, value_name = "TARGET")]
    compare: Option<Target>,
    /// Process of the server, if it runs here, to measure its CPU time. With --compare: first of TARGET, then of the other
    #[arg(long, value_name = "PID")]
    server_pid: Vec<u32>,
    /// Only these loads: write, read, random-read, random-write, mixed, getattr, open, create; or the groups sequential, random,
    /// metadata
    #[arg(long, value_name = "LOAD", value_delimiter = ',')]
    only: Vec<Loads>,
    /// Rounds; the best counts [default: 1, with --compare: 5]
    #[arg(long, value_name = "N", value_parser = within::<1000>)]
    rounds: Option<usize>,
    /// Size of the file that is written and read
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    size: config::Size,
    /// Bytes of each operation of write and read
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = block)]
    block: u32,
    /// Bytes of each operation of random-read, random-write and mixed
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = block)]
    random_block: u32,
    /// How long each load runs, except write and read
    #[arg(long, value_name = "TIME", default_value = "1s")]
    time: config::Span,
    /// User and group of the calls
    #[arg(long, value_name = "UID:GID", default_value = "0:0", value_parser = user)]
    user: (u32, u32),
    /// Password of the user that a target of SMB names: the first line of FILE; `-` is standard input. Default: prompt for it.
    /// USER:PASSWORD in the target is for tests: others on this host see it
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Operations in flight [default: 8 of write and read, 32 of the others]; create is always one after the other
    #[arg(long, value_name = "N", value_parser = within::<1024>)]
    depth: Option<usize>,
    /// Connections to spread them over
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within::<256>)]
    connections: usize,
    /// Write a plot of rates and latency to this file as well
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn user(text: &str) -> Result<(u32, u32), String> {
    let wrong = || format!("`{text}` is not UID:GID, like `1000:1000`");
    let (uid, gid) = text.split_once(':').ok_or_else(wrong)?;
    Ok((uid.parse().map_err(|_| wrong())?, gid.parse().map_err(|_| wrong())?))
}

/// Parses a block size; one operation moves at most one buffer of this client.
fn block(text: &str) -> Result<u32, String> {
    let size: config::Size = text.parse()?;
    let possible = u32::try_from(size.0).ok().filter(|n| (512..=1 << 20).contains(n));
    possible.ok_or_else(|| format!("an operation moves 512 bytes to 1MiB, not {size}"))
}

/// Parses a number from 1 to `MOST`.
fn within<const MOST: usize>(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|n| (1..=MOST).contains(n));
    number.ok_or_else(|| format!("write a number from 1 to {MOST}"))
}

/// Checks the folder before the measurement, so that minutes of results are not lost because it is missing.
fn can_be_written(path: &Path) -> Result<(), String> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match folder.is_dir() {
        true => Ok(()),
        false => Err(format!("{}: there is no folder {}", path.display(), folder.display())),
    }
}

/// Adds the password of a user that the target names without one.
fn complete(target: &mut Target, file: Option<&Path>) -> Result<(), String> {
    let Protocol::Smb { user, .. } = &mut target.protocol else { return Ok(()) };
    if user.name.is_empty() || !user.password.is_empty() {
        return Ok(());
    }
    let password = match file {
        Some(path) => crate::password::given(path)?,
        None if std::io::stdin().is_terminal() => {
            crate::password::prompt(&format!("Password for {}: ", user.name))?
        }
        None => {
            let name = &user.name;
            return Err(format!("no password for {name}; name its file with --password-file FILE"));
        }
    };
    user.password.clone_from(&password);
    Ok(())
}

/// A server and its best figures.
struct Peer {
    target: Target,
    pid: Option<u32>,
    best: Vec<Sample>,
    /// Rates of all rounds, for each load in the order of `best`.
    rates: Vec<Vec<f64>>,
}

impl Peer {
    fn take(&mut self, round: Vec<Sample>) {
        self.rates.resize(round.len(), Vec::new());
        self.rates.iter_mut().zip(&round).for_each(|(rates, sample)| rates.push(sample.rate));
        merge(&mut self.best, round);
    }
}

/// Runs the command. The error is one line for standard error.
pub fn run(args: BenchArgs) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("cannot start: {e}"))?;
    let kinds = Loads::asked_for(&args.only);
    let rounds = args.rounds.unwrap_or(if args.compare.is_some() { 5 } else { 1 });
    let plan = load::Plan {
        kinds,
        size: args.size.0.clamp(1 << 20, 1 << 40),
        time: args.time.0.clamp(Duration::from_millis(50), Duration::from_secs(3600)),
        user: args.user,
        depth: args.depth,
        blocks: (args.block, args.random_block),
        connections: args.connections,
        names: load::Names::new()?,
    };
    args.svg.as_deref().map_or(Ok(()), can_be_written)?;
    let (mut target, mut compare) = (args.target, args.compare);
    for target in std::iter::once(&mut target).chain(&mut compare) {
        complete(target, args.password_file.as_deref())?;
    }
    let mut pids = args.server_pid.into_iter();
    let mut peers: Vec<Peer> = std::iter::once(target)
        .chain(compare)
        .map(|target| Peer { target, pid: pids.next(), best: Vec::new(), rates: Vec::new() })
        .collect();
    if let Some(pid) = peers.iter().filter_map(|p| p.pid).find(|pid| crate::cpu::of(*pid).is_none())
    {
        return Err(format!("there is no process {pid}"));
    }
    let progress = report::Progress::new(rounds * peers.len() * plan.kinds.len());
    for _ in 0..rounds {
        for peer in &mut peers {
            progress.target(&peer.target);
            let samples = runtime
                .block_on(load::round(&peer.target, peer.pid, &plan, &progress))
                .map_err(|e| format!("{}: {e}", peer.target))?;
            peer.take(samples);
        }
    }
    progress.done();
    if let Some(path) = &args.svg {
        std::fs::write(path, plot::svg(&peers)).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    match args.json {
        true => report::json(&peers),
        false => report::tables(&peers, rounds),
    }
    Ok(())
}

/// Keeps the better rate and the lower cost of each kind.
fn merge(best: &mut Vec<Sample>, round: Vec<Sample>) {
    for sample in round {
        match best.iter_mut().find(|b| b.kind == sample.kind) {
            None => best.push(sample),
            Some(b) => {
                let client_cpu = b.client_cpu.min(sample.client_cpu);
                let server_cpu = match (b.server_cpu, sample.server_cpu) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
                if sample.rate > b.rate {
                    *b = sample;
                }
                (b.client_cpu, b.server_cpu) = (client_cpu, server_cpu);
            }
        }
    }
}
