//! Measures the gateway and other servers. The figures are only recorded: a rate on a shared machine does not decide whether a test
//! passes.
//!
//! Every run has a separate network and mount namespace, so that it touches no port and no rpcbind of the host, and every process
//! ends with it. Both servers keep their files on tmpfs, and the same client measures them alternately.

mod beside;
mod domain;
mod durability;
mod earlier;
mod failover;
mod neighbours;
mod protected;
mod slow;
mod smb;
mod yardstick;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::lab::gateway;
use crate::sh::{Outcome, Result, output, run};
use crate::{packages, sh};

const OURS: u16 = 22049;
const OURS_RDMA: u16 = 22050;
const GANESHA: u16 = 12049;
const GANESHA_MOUNT: u16 = 12050;
/// Longest time for a server to answer after its start.
const START_MAX: Duration = Duration::from_secs(30);
/// What the figures of [`table`] are.
const UNITS: &str = "Rates are MB/s for 1 MiB, and operations a second otherwise. CPU is the server's, in seconds for a GiB, and \
                     in microseconds\nfor an operation otherwise.";
const INSIDE: &str = "--inside";
const DOCUMENT: &str = "docs/benchmarks.md";

/// The parts of the document after the first begin with these lines; each is written without a change to the others.
const SMB_PART: &str = "# SMB\n";
const PROTECTED_PART: &str = "# SMB, signed and encrypted\n";
const DEVICES_PART: &str = "# RDMA devices\n";
const NFS_PROTECTED_PART: &str = "# NFS by Kerberos and by TLS\n";
const DURABILITY_PART: &str = "# Durability\n";
const NEIGHBOURS_PART: &str = "# Neighbours\n";
const SLOW_PART: &str = "# SMB over slow links\n";
const DOMAIN_PART: &str = "# A member of a domain\n";
const EARLIER_PART: &str = "# An earlier build\n";

/// `cargo xtask bench [smb|protected|nfs-protected|devices|durability|neighbours|slow|domain] [--rounds N] [--size SIZE]`,
/// `earlier PROGRAM`, or `failover [--runs N]`.
pub(crate) fn command(args: &[String]) -> Result<Outcome> {
    if args.first().is_some_and(|a| a == INSIDE) {
        return inside(&args[1..]).map(|()| Outcome::Passed);
    }
    if let Some(("failover", rest)) = args.split_first().map(|(a, rest)| (&**a, rest)) {
        return failover::command(rest);
    }
    let is_durability = args.first().is_some_and(|a| a == "durability");
    if args.first().is_some_and(|a| a == "neighbours") {
        // Other servers are left out where they cannot be had.
        for had in [packages::install(&["bench"]), smb::unpack_samba()] {
            had.unwrap_or_else(|why| println!("another server is left out: {why}"));
        }
    } else {
        let is_slow = args.first().is_some_and(|a| a == "slow");
        packages::install(&[if is_durability || is_slow { "disks" } else { "bench" }])?;
    }
    if args.first().is_some_and(|a| a == "nfs-protected") {
        // The realm and the certificates of guests.
        packages::install(&["lab"])?;
    }
    if args.first().is_some_and(|a| a == "smb") {
        smb::unpack_samba()?;
    }
    gateway::build()?;
    if is_durability {
        durability::build()?;
    }
    if args.first().is_some_and(|a| a == "slow") {
        slow::build()?;
    }
    if args.first().is_some_and(|a| ["devices", "nfs-protected", "domain"].contains(&&**a)) {
        // Guests have separate networks, and their packages must be downloaded.
        return inside(args).map(|()| Outcome::Passed);
    }
    let me = std::env::current_exe().map_err(|e| e.to_string())?.display().to_string();
    let mut words = vec!["unshare", "--net", "--mount", "--", &me, "bench", INSIDE];
    words.extend(args.iter().map(String::as_str));
    run(&words)?;
    println!("written to {DOCUMENT}");
    Ok(Outcome::Passed)
}

/// A server process that is ended when this value is dropped.
struct Server(Child);

impl Server {
    fn start(mut command: Command, what: &str) -> Result<Self> {
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        child.map(Self).map_err(|e| format!("cannot start {what}: {e}"))
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have ended before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_for(port: u16, what: &str) -> Result<()> {
    let until = Instant::now() + START_MAX;
    while Instant::now() < until {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok(());
        }
        sleep(Duration::from_millis(50));
    }
    Err(format!("{what} does not answer on port {port}"))
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(path: &str) -> Result<Self> {
        // Removes leftovers of an interrupted run.
        let _ = fs::remove_dir_all(path);
        fs::create_dir_all(path).map_err(|e| format!("{path}: {e}"))?;
        Ok(Self(path.into()))
    }

    fn join(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn ganesha(folder: &Folder, files: &Folder) -> Result<Server> {
    let state = folder.join("recovery");
    fs::create_dir_all(&state).map_err(|e| format!("{state}: {e}"))?;
    let text = format!(
        "NFS_CORE_PARAM {{ NFS_Port = {GANESHA}; MNT_Port = {GANESHA_MOUNT}; NLM_Port = 12051; Rquota_Port = 12052; \
         Protocols = 3,4; Mount_Path_Pseudo = true; Enable_UDP = false; Enable_NLM = false; \
         Enable_RQUOTA = false; NSM_Use_Caller_Name = false; Plugins_Dir = /usr/lib/x86_64-linux-gnu/ganesha; }}\n\
         NFSv4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = {state}; Minor_Versions = 0,1,2; \
         Allow_Numeric_Owners = true; Only_Numeric_Owners = true; }}\n\
         EXPORT {{ Export_Id = 1; Path = {files}; Pseudo = /share; Access_Type = RW; Squash = No_Root_Squash; \
         SecType = sys; Protocols = 3,4; Transports = TCP; FSAL {{ Name = VFS; }} }}\n\
         LOG {{ Default_Log_Level = WARN; }}\n",
        files = files.0.display()
    );
    let conf = folder.join("ganesha.conf");
    fs::write(&conf, text).map_err(|e| format!("{conf}: {e}"))?;
    let mut command = Command::new("ganesha.nfsd");
    let (log, pid) = (folder.join("ganesha.log"), folder.join("ganesha.pid"));
    command.args(["-F", "-f", &conf, "-L", &log, "-p", &pid]);
    let server = Server::start(command, "nfs-ganesha")?;
    wait_for(GANESHA, "nfs-ganesha")?;
    Ok(server)
}

fn ours(folder: &Folder, files: &Folder) -> Result<Server> {
    let mut command = Command::new(gateway::program());
    let share = format!("share={},squash=none", files.0.display());
    let (tcp, rdma, state) = (OURS.to_string(), OURS_RDMA.to_string(), folder.join("state"));
    command.args([
        "serve",
        "--share",
        &share,
        "--bind",
        "127.0.0.1",
        "--state",
        &state,
        "--portmap",
        "off",
    ]);
    command.args(["--nfs-port", &tcp, "--nfs-rdma-port", &rdma]);
    let server = Server::start(command, "headgate")?;
    wait_for(OURS, "headgate")?;
    Ok(server)
}

/// One comparison: its heading, the two targets and the processes that serve them.
struct Pair<'a> {
    title: &'a str,
    first: (&'a str, String, &'a Server),
    second: (&'a str, String, &'a Server),
}

fn target(port: u16, mount: u16, version: &str, transport: &str) -> String {
    format!(
        "nfs://127.0.0.1:{port}/share?version={version}&transport={transport}&mountport={mount}"
    )
}

/// Measures one part of the document and replaces the old one.
fn inside(args: &[String]) -> Result<()> {
    let old = fs::read_to_string(DOCUMENT).unwrap_or_default();
    let (start, text) = match args.split_first() {
        Some((what, rest)) if what == "smb" => (Some(SMB_PART), smb::inside(rest)?),
        Some((what, rest)) if what == "protected" => {
            (Some(PROTECTED_PART), protected::inside(rest)?)
        }
        Some((what, _)) if what == "devices" => (Some(DEVICES_PART), beside::by_device()?),
        Some((what, _)) if what == "nfs-protected" => {
            (Some(NFS_PROTECTED_PART), beside::protected()?)
        }
        Some((what, _)) if what == "domain" => (Some(DOMAIN_PART), domain::measure()?),
        Some((what, _)) if what == "slow" => (Some(SLOW_PART), slow::inside()?),
        Some((what, _)) if what == "neighbours" => (Some(NEIGHBOURS_PART), neighbours::inside()?),
        Some((what, rest)) if what == "earlier" => (Some(EARLIER_PART), earlier::inside(rest)?),
        Some((what, _)) if what == "durability" => (Some(DURABILITY_PART), durability::inside()?),
        _ => (None, nfs_part(args)?),
    };
    let new = with_part(&old, start, &text);
    fs::write(DOCUMENT, new).map_err(|e| format!("{DOCUMENT}: {e}"))
}

/// Returns the document with a new text for the part that begins with this line, or for the first part. Parts written by hand stay
/// unchanged.
fn with_part(document: &str, start: Option<&str>, text: &str) -> String {
    let at = |line: &str| document.find(&format!("\n{line}")).map(|at| at + 1);
    let begins = start.map_or(Some(0), at).unwrap_or(document.len());
    let next = document[begins..].find("\n# ").map_or(document.len(), |at| begins + at + 1);
    let parts = [&document[..begins], text, &document[next..]];
    let parts: Vec<&str> = parts.into_iter().map(str::trim_end).filter(|p| !p.is_empty()).collect();
    parts.join("\n\n") + "\n"
}

fn nfs_part(args: &[String]) -> Result<String> {
    run(&["ip", "link", "set", "lo", "up"])?;
    // rpcbind and its callers use a socket in /run.
    run(&["mount", "-t", "tmpfs", "tmpfs", "/run"])?;
    let folder = Folder::new("/tmp/headgate-bench")?;
    let (files, theirs) =
        (Folder::new("/dev/shm/headgate-bench-1")?, Folder::new("/dev/shm/headgate-bench-2")?);
    let mut command = Command::new("rpcbind");
    command.args(["-f", "-i"]);
    let _rpcbind = Server::start(command, "rpcbind")?;
    wait_for(111, "rpcbind")?;
    let peer = ganesha(&folder, &theirs)?;
    let us = ours(&folder, &files)?;
    let mut text = preface()?;
    for version in ["3", "4.1"] {
        let (tcp, rdma) =
            (target(OURS, OURS, version, "tcp"), target(OURS_RDMA, OURS, version, "rdma"));
        let other = target(GANESHA, GANESHA_MOUNT, version, "tcp");
        let plain = format!("{rdma}&crc=off");
        let pairs = [
            Pair {
                title: "over TCP, beside nfs-ganesha",
                first: ("headgate", tcp.clone(), &us),
                second: ("nfs-ganesha", other, &peer),
            },
            Pair {
                title: "over RDMA (iWARP in user space, CRC on), beside TCP",
                first: ("RDMA", rdma, &us),
                second: ("TCP", tcp.clone(), &us),
            },
            Pair {
                title: "over RDMA without CRC, beside TCP",
                first: ("RDMA", plain, &us),
                second: ("TCP", tcp, &us),
            },
        ];
        for pair in pairs {
            section(&mut text, &format!("NFS {version}"), &pair, args)?;
        }
    }
    text.push_str(&beside::by_iwarp()?);
    Ok(text)
}

fn measure(pair: &Pair<'_>, args: &[String]) -> Result<Value> {
    let program = gateway::program().display().to_string();
    let (a, b) = (pair.first.2.pid(), pair.second.2.pid());
    let mut words = vec![
        program.as_str(),
        "bench",
        &pair.first.1,
        "--compare",
        &pair.second.1,
        "--server-pid",
        &a,
        "--server-pid",
        &b,
        "--json",
    ];
    words.extend(args.iter().map(String::as_str));
    serde_json::from_str(&sh::output(&words)?).map_err(|e| e.to_string())
}

fn section(text: &mut String, protocol: &str, pair: &Pair<'_>, args: &[String]) -> Result<()> {
    println!("{protocol} {}", pair.title);
    let measured = measure(pair, args)?;
    // Writing to a string does not fail.
    let _ = write!(text, "\n## {protocol} {}\n", pair.title);
    table(text, [pair.first.0, pair.second.0], &measured)
}

/// Writes the results of `headgate bench --compare` on two servers, in [`UNITS`].
fn table(text: &mut String, [first, second]: [&str; 2], measured: &Value) -> Result<()> {
    let _ = write!(
        text,
        "\n| load | {first} | {second} | ratio | CPU: {first} | {second} | ratio |\n|---|---:|---:|---:|---:|---:|---:|\n",
    );
    rows(text, "", measured)
}

/// Writes a row for each load, with these cells in front.
fn rows(text: &mut String, cells: &str, measured: &Value) -> Result<()> {
    let loads =
        |i: usize| measured["targets"][i]["loads"].as_array().ok_or("no loads were measured");
    for (a, b) in loads(0)?.iter().zip(loads(1)?) {
        let of = |load: &Value, key: &str| load[key].as_f64().unwrap_or(f64::NAN);
        let rate = |l: &Value| of(l, "rate");
        let micros = |l: &Value| of(l, "server_cpu_us");
        let cpu = |l: &Value| match a["cpu_per"] == "GiB" {
            true => format!("{:.2}", micros(l) / 1e6),
            false => format!("{:.1}", micros(l)),
        };
        let _ = writeln!(
            text,
            "|{cells} {} | {:.0} | {:.0} | **{:.2}** | {} | {} | **{:.2}** |",
            words(a),
            rate(a),
            rate(b),
            rate(a) / rate(b),
            cpu(a),
            cpu(b),
            micros(a) / micros(b),
        );
    }
    Ok(())
}

fn words(load: &Value) -> String {
    let what = match load["load"].as_str().unwrap_or_default() {
        "write" => "write 1 MiB, a new file",
        "read" => "read 1 MiB",
        "random-read" => "random read 4 KiB",
        "random-write" => "random write 4 KiB",
        "mixed" => "random 4 KiB, 7 read to 3 written",
        "getattr" => "GETATTR",
        "open" => "open, query, close",
        "create" => "create, close, unlink",
        other => other,
    };
    format!("{what}, depth {}", load["depth"])
}

/// Describes what was measured and where.
fn preface() -> Result<String> {
    let peer = output(&["dpkg-query", "-W", "-f", "${Version}", "nfs-ganesha"])?;
    Ok(format!(
        "# Benchmarks\n\n\
         Written by `cargo xtask bench`. Absolute figures say more about the machine than about the servers; read the ratios. \
         Both\n\
         servers keep their files on tmpfs and are reached over loopback by the same client (`headgate bench`: one connection, \
         one\n\
         thread). They are measured in turns; each figure is the best round, each CPU time the lowest.\n{UNITS}\n\n{}",
        table_of_the_machine(&format!("nfs-ganesha {peer}, FSAL VFS"))?
    ))
}

/// Describes the machine, the day and the two servers.
fn table_of_the_machine(peer: &str) -> Result<String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|l| l.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let cpu = field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".into());
    let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned();
    let date = output(&["date", "--utc", "+%Y-%m-%d"])?;
    let commit = if Path::new(".git").exists() {
        output(&["git", "describe", "--always", "--dirty"])?
    } else {
        "unknown".into()
    };
    let kernel = read("/proc/sys/kernel/osrelease");
    Ok(format!(
        "| | |\n|---|---|\n\
         | date | {date} |\n\
         | headgate | {commit} |\n\
         | peer | {peer} |\n\
         | processor | {cpu}, {cores} cores |\n\
         | memory | {memory} |\n\
         | kernel | {kernel} |\n\
         | load at the start | {load} |\n",
        date = date.trim(),
        commit = commit.trim(),
        kernel = kernel.trim(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_replaced_and_others_stay() {
        let all = format!(
            "# Benchmarks\n\nnfs\n\n{SMB_PART}\nsmb\n\n## b\n\n# By hand\n\nx\n\n{DEVICES_PART}\ndevices\n"
        );
        let new = with_part(&all, Some(SMB_PART), &format!("{SMB_PART}\nnew\n"));
        assert_eq!(new, all.replace("\nsmb\n\n## b\n", "\nnew\n"));
        let new = with_part(&all, None, "# Benchmarks\n\nnew\n");
        assert_eq!(new, all.replace("\nnfs\n", "\nnew\n"));
        let without =
            with_part("# Benchmarks\n\nnfs\n", Some(DEVICES_PART), "# RDMA devices\n\nx\n");
        assert_eq!(without, "# Benchmarks\n\nnfs\n\n# RDMA devices\n\nx\n");
    }
}
