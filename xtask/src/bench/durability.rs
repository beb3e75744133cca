//! Measures the cost of having a change of names on stable storage before its answer: both settings of `durability` by NFS 3,
//! compared with a short program that makes the same system calls.
//!
//! The file systems are images that are made here and mounted in the mount namespace of the run; their files are unlinked at once,
//! so they disappear however the run ends.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::{
    DURABILITY_PART, Folder, OURS, Server, beside, table_of_the_machine, target, wait_for,
};
use crate::lab::gateway;
use crate::sh::{Result, output, run, target_dir};

/// In the order in which each file goes through them.
const LOADS: [&str; 5] = ["create", "setattr", "rename", "mkdir", "remove"];
const WORDS: [&str; 5] = ["CREATE", "SETATTR of a mode", "RENAME in a folder", "MKDIR", "REMOVE"];
const CLIENTS: [usize; 2] = [1, 16];
const ROUNDS: usize = 4;
/// Seconds of each round in which files are made; the other changes apply to as many files.
const SECONDS: &str = "1";
/// Largest number of files made by all clients of a round together, so that the file system can hold them.
const FILES_MAX: usize = 8000;
const DISK_BYTES: u64 = 4 << 30;

/// Builds the client, which is a separate program.
pub(super) fn build() -> Result<()> {
    run(&["cargo", "build", "--release", "--locked", "-p", "client", "--example", "names"])
}

/// Operations per second, and CPU seconds for 1000 of them.
#[derive(Clone, Copy)]
struct Price {
    rate: f64,
    cpu: f64,
}

impl Price {
    const NONE: Self = Self { rate: 0.0, cpu: f64::INFINITY };

    fn better(self, other: Self) -> Self {
        Self { rate: self.rate.max(other.rate), cpu: self.cpu.min(other.cpu) }
    }
}

/// Prices by server, number of clients, and load.
type Prices = BTreeMap<(&'static str, usize, &'static str), Price>;

pub(super) fn inside() -> Result<String> {
    run(&["ip", "link", "set", "lo", "up"])?;
    let mut text = format!(
        "{DURABILITY_PART}\nWritten by `cargo xtask bench durability`. Changes of names by NFS 3 over TCP on shares with \
         `durability: strict`, where each is on\nstable storage before the answer, and `relaxed`. Each client has a separate \
         connection and folder and waits for each answer. The limit\nis a program of a few lines with as many threads, which \
         makes the same system calls without any server, with an fsync of what\nchanged for `strict`. All in turns, the best \
         of {ROUNDS} rounds; CPU in seconds for 1000 operations. Read the ratios: an fsync here\ncosts what the disk of this \
         machine takes for it. Where the load at the start is not near 0, rates with an fsync differ several\ntimes from run \
         to run: read CPU and the columns without an fsync.\n\n{}",
        table_of_the_machine("none")?
    );
    for kind in ["ext4", "xfs", "tmpfs"] {
        println!("{kind}");
        let folder = Folder::new("/tmp/headgate-bench")?;
        let at = folder.join("disk");
        fs::create_dir(&at).map_err(|e| format!("{at}: {e}"))?;
        // Writing to a string does not fail.
        let _ = match mount(kind, &folder, &at) {
            Ok(()) => write!(text, "\n## {kind}\n\n{}", table(&measure(&folder, &at)?)),
            Err(why) => write!(text, "\n## {kind}\n\nNot measured: {why}\n"),
        };
        // A failed mount need not be unmounted.
        let _ = run(&["umount", &at]);
    }
    println!("beside the kernel's server");
    text.push_str(&beside::changes()?);
    Ok(text)
}

fn mount(kind: &str, folder: &Folder, at: &str) -> Result<()> {
    if kind == "tmpfs" {
        return run(&["mount", "-t", "tmpfs", "tmpfs", at]);
    }
    let image = folder.join("image");
    let made = File::create(&image).and_then(|f| f.set_len(DISK_BYTES));
    made.map_err(|e| format!("{image}: {e}"))?;
    let (mkfs, force) = (format!("mkfs.{kind}"), if kind == "xfs" { "-f" } else { "-F" });
    run(&[&mkfs, "-q", force, &image])?;
    let mounted = run(&["mount", "-t", kind, "-o", "loop", &image, at]);
    // The loop device keeps the file until it is unmounted, which the end of the namespace does too.
    fs::remove_file(&image).map_err(|e| format!("{image}: {e}"))?;
    mounted
}

/// Starts one gateway with a share of each kind in folders of that file system.
fn serve(folder: &Folder, at: &str) -> Result<Server> {
    let mut text = format!(
        "bind: [127.0.0.1]\nrdma: off\nnfs: {{port: {OURS}, portmap: off}}\nstate: {}\nshares:\n",
        folder.join("state")
    );
    for kind in ["strict", "relaxed"] {
        let path = format!("{at}/{kind}");
        fs::create_dir(&path).map_err(|e| format!("{path}: {e}"))?;
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "  - name: {kind}\n    path: {path}\n    squash: none\n    durability: {kind}\n"
        );
    }
    let conf = folder.join("headgate.yaml");
    fs::write(&conf, text).map_err(|e| format!("{conf}: {e}"))?;
    let mut command = Command::new(gateway::program());
    command.args(["serve", "--config", &conf]);
    let server = Server::start(command, "headgate")?;
    wait_for(OURS, "headgate")?;
    Ok(server)
}

fn measure(folder: &Folder, at: &str) -> Result<Prices> {
    let server = serve(folder, at)?;
    let mut prices = Prices::new();
    let mut note = |what, clients, load, price: Price| {
        let best = prices.entry((what, clients, load)).or_insert(Price::NONE);
        *best = best.better(price);
    };
    for round in 0..ROUNDS {
        for clients in CLIENTS {
            for (share, limit, sync) in [("strict", "synced", true), ("relaxed", "unsynced", false)]
            {
                for (load, price) in by_nfs(&server, share, clients)? {
                    note(share, clients, load, price);
                }
                empty(&format!("{at}/{share}"))?;
                let own = format!("{at}/{limit}-{clients}-{round}");
                let reached = by_hand(Path::new(&own), clients, sync);
                for (load, price) in reached.map_err(|e| format!("{own}: {e}"))? {
                    note(limit, clients, load, price);
                }
                empty(&own)?;
            }
        }
    }
    Ok(prices)
}

/// Removes the files of a round from a folder.
fn empty(folder: &str) -> Result<()> {
    let emptied = fs::read_dir(folder)
        .and_then(|mut left| left.try_for_each(|entry| fs::remove_dir_all(entry?.path())));
    emptied.map_err(|e| format!("{folder}: {e}"))?;
    // The write-back of these files must not count for the next round.
    run(&["sync", "-f", folder])
}

fn by_nfs(server: &Server, share: &str, clients: usize) -> Result<Vec<(&'static str, Price)>> {
    let program = target_dir().join("release/examples/names").display().to_string();
    let to = target(OURS, OURS, "3", "tcp").replace("/share?", &format!("/{share}?"));
    let said = output(&[
        &program,
        &to,
        &clients.to_string(),
        SECONDS,
        &FILES_MAX.to_string(),
        &server.pid(),
    ])?;
    let lines = said.lines().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let load = LOADS.into_iter().find(|l| Some(l) == words.first());
        let number = |n: usize| words.get(n)?.parse::<f64>().ok();
        Some((load?, Price { rate: number(1)?, cpu: number(2)? }))
    });
    lines.collect::<Option<Vec<_>>>().ok_or_else(|| format!("names said: {said}"))
}

/// Makes the same system calls by as many threads, each in a separate folder.
fn by_hand(own: &Path, threads: usize, sync: bool) -> io::Result<Vec<(&'static str, Price)>> {
    let folders: Vec<PathBuf> = (0..threads).map(|n| own.join(n.to_string())).collect();
    folders.iter().try_for_each(fs::create_dir_all)?;
    let seconds = Duration::from_secs(SECONDS.parse().map_err(io::Error::other)?);
    let mut counts = vec![FILES_MAX.div_ceil(threads); threads];
    let mut prices = Vec::new();
    for load in LOADS {
        let began = Instant::now();
        let until = (load == "create").then_some(began + seconds);
        let done = thread::scope(|scope| {
            let mut running = Vec::new();
            for (folder, count) in folders.iter().zip(&counts) {
                running.push(scope.spawn(move || changes(load, folder, *count, until, sync)));
            }
            let ended = || io::Error::other("a thread ended");
            let done = running.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(ended())));
            done.collect::<io::Result<Vec<(usize, f64)>>>()
        })?;
        let took = began.elapsed().as_secs_f64();
        counts = done.iter().map(|(n, _)| *n).collect();
        #[allow(clippy::cast_precision_loss)] // Far below 2^52.
        let changes = counts.iter().sum::<usize>() as f64;
        let cpu = done.iter().map(|(_, cpu)| cpu).sum::<f64>() / changes * 1000.0;
        prices.push((load, Price { rate: changes / took, cpu }));
    }
    Ok(prices)
}

/// Makes this many changes, or fewer when the time runs out: returns the number made, and the CPU seconds of the thread.
fn changes(
    load: &str,
    folder: &Path,
    count: usize,
    until: Option<Instant>,
    sync: bool,
) -> io::Result<(usize, f64)> {
    let dir = File::open(folder)?;
    let mut n = 0;
    while n < count && until.is_none_or(|until| Instant::now() < until) {
        change(load, folder, &dir, n, sync)?;
        n += 1;
    }
    Ok((n, cpu()?))
}

fn change(load: &str, folder: &Path, dir: &File, n: usize, sync: bool) -> io::Result<()> {
    let path = |kind: char| folder.join(format!("{kind}{n}"));
    let synced = |file: &File| if sync { file.sync_all() } else { Ok(()) };
    match load {
        "create" => synced(&OpenOptions::new().write(true).create_new(true).open(path('f'))?)?,
        "setattr" => {
            let file = File::open(path('f'))?;
            file.set_permissions(Permissions::from_mode(0o600))?;
            return synced(&file);
        }
        "rename" => fs::rename(path('f'), path('g'))?,
        "mkdir" => {
            fs::create_dir(path('d'))?;
            synced(&File::open(path('d'))?)?;
        }
        _ => fs::remove_file(path('g'))?,
    }
    synced(dir)
}

/// CPU seconds of this thread so far. `/proc/self/stat` counts in ticks, and a short load takes less than one.
fn cpu() -> io::Result<f64> {
    let stat = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    Ok(nanoseconds.unwrap_or(f64::NAN) / 1e9)
}

fn table(prices: &Prices) -> String {
    let mut text = String::from(
        "| change | clients | strict | limit | ratio | relaxed | limit | ratio | relaxed to strict | CPU: strict | limit | \
         relaxed | limit |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for (load, words) in LOADS.into_iter().zip(WORDS) {
        for clients in CLIENTS {
            let of = |what| prices.get(&(what, clients, load)).copied().unwrap_or(Price::NONE);
            let (strict, synced) = (of("strict"), of("synced"));
            let (relaxed, unsynced) = (of("relaxed"), of("unsynced"));
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "| {words} | {clients} | {:.0}/s | {:.0}/s | **{:.2}** | {:.0}/s | {:.0}/s | **{:.2}** | {:.1} | {:.3} | {:.3} | \
                 {:.3} | {:.3} |",
                strict.rate,
                synced.rate,
                strict.rate / synced.rate,
                relaxed.rate,
                unsynced.rate,
                relaxed.rate / unsynced.rate,
                relaxed.rate / strict.rate,
                strict.cpu,
                synced.cpu,
                relaxed.cpu,
                unsynced.cpu,
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_program_makes_every_change() {
        let own = std::env::temp_dir().join(format!("headgate-by-hand-{}", std::process::id()));
        fs::create_dir_all(&own).unwrap();
        let dir = File::open(&own).unwrap();
        let names = || {
            let mut names: Vec<_> = fs::read_dir(&own)
                .unwrap()
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        let left: [&[&str]; 5] = [&["f0"], &["f0"], &["g0"], &["d0", "g0"], &["d0"]];
        for (load, left) in LOADS.into_iter().zip(left) {
            change(load, &own, &dir, 0, true).unwrap();
            assert_eq!(names(), left, "{load}");
        }
        fs::remove_dir_all(&own).unwrap();
    }
}
