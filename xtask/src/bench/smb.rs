//! Measures SMB over TCP against Samba: smbclient moves one large file each way, unprotected, signed and encrypted; the project's
//! own client loads an open file and a folder.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Folder, Pair, Server, UNITS, table_of_the_machine, wait_for, yardstick};
use crate::lab::gateway;
use crate::sh::{Result, output, run, target_dir};

const OURS: Ports = Ports { smb: 22445, direct: 22446, nfs: 22049, nfs_rdma: 22050 };
pub(super) const SAMBA: u16 = 12445;
const DIRECT: &str = "over SMB Direct (iWARP in user space, CRC on), beside TCP";
const ROUNDS: usize = 5;
const BYTES: u64 = 1 << 30;
/// The user of both servers, which every host has and which is not root; the password.
pub(super) const USER: &str = "daemon";
pub(super) const PASSWORD: &str = "pass";
/// smbclient's options for the protection of the connection.
const PROTECTIONS: [(&str, &str); 3] =
    [("off", "unsigned"), ("sign", "signed"), ("encrypt", "encrypted")];

/// The ports where a gateway listens.
#[derive(Clone, Copy)]
pub(super) struct Ports {
    pub(super) smb: u16,
    pub(super) direct: u16,
    pub(super) nfs: u16,
    pub(super) nfs_rdma: u16,
}

/// Lets the user write in this folder.
pub(super) fn give_to_user(place: &Folder) -> Result<()> {
    output(&["chown", USER, &place.0.display().to_string()]).map(drop)
}

/// Measures, and returns the part of the document.
pub(super) fn inside(args: &[String]) -> Result<String> {
    run(&["ip", "link", "set", "lo", "up"])?;
    let folder = Folder::new("/tmp/headgate-bench-smb")?;
    let (files, theirs) =
        (Folder::new("/dev/shm/headgate-bench-1")?, Folder::new("/dev/shm/headgate-bench-2")?);
    give_to_user(&files)?;
    give_to_user(&theirs)?;
    let peer = smbd(&samba(), &folder, &theirs)?;
    let us = ours(Command::new(gateway::program()), &folder, &files, OURS)?;
    let servers = [(OURS.smb, &us), (SAMBA, &peer)];
    let version = output(&["dpkg-query", "-W", "-f", "${Version}", "samba-libs"])?;
    let mut text = format!(
        "# SMB\n\nWritten by `cargo xtask bench smb`, the two servers measured in turns on tmpfs over loopback.\n\
         {UNITS}\n\n{}",
        table_of_the_machine(&format!("Samba {version}, smbd"))?
    );
    text.push_str(&smbclient(&folder, &files, servers)?);
    own_client(&mut text, &us, &peer, args)?;
    // SMB's name for the operation.
    Ok(text.replace("GETATTR", "QUERY_INFO"))
}

/// Unpacks Samba's server instead of installing it, because its package would start it on the ports that it finds. Its libraries
/// are installed. The namespace of the run has no network for a download.
pub(super) fn unpack_samba() -> Result<()> {
    let place = samba();
    if place.join("usr/sbin/smbd").exists() {
        return Ok(());
    }
    fs::create_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    let download = "cd \"$0\" && apt-get download -qq samba && dpkg -x samba_*.deb .";
    output(&["sh", "-c", download, &place.display().to_string()]).map(drop)
}

pub(super) fn samba() -> PathBuf {
    target_dir().join("samba")
}

pub(super) fn smbd(samba: &Path, folder: &Folder, files: &Folder) -> Result<Server> {
    let conf = folder.join("smb.conf");
    let place = |name: &str| folder.join(name);
    let mut text = format!(
        "[global]\nserver role = standalone server\nmap to guest = bad user\n\
         disable netbios = yes\nsmb ports = {SAMBA}\nserver max protocol = SMB3_11\nload printers = no\nprintcap name = /dev/null\n\
         disable spoolss = yes\nlog level = 0\nlog file = {}\npassdb backend = tdbsam:{}\n",
        place("smbd.log"),
        place("passdb.tdb"),
    );
    for key in [
        "private dir",
        "lock directory",
        "state directory",
        "cache directory",
        "pid directory",
        "ncalrpc dir",
    ] {
        let path = place(&key.replace(' ', "-"));
        fs::create_dir_all(&path).map_err(|e| format!("{path}: {e}"))?;
        // Writing to a string does not fail.
        let _ = writeln!(text, "{key} = {path}");
    }
    let _ = write!(text, "[share]\npath = {}\nread only = no\nguest ok = yes\n", files.0.display());
    fs::write(&conf, text).map_err(|e| format!("{conf}: {e}"))?;
    let (programs, libraries) =
        (samba.join("usr/bin:"), samba.join("usr/lib/x86_64-linux-gnu/samba"));
    let path = format!(
        "{}{}/usr/sbin:{}",
        programs.display(),
        samba.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let add =
        format!("printf '%s\\n%s\\n' {PASSWORD} {PASSWORD} | pdbedit -s \"$0\" -a -t -u {USER}");
    let done = Command::new("sh").args(["-c", &add, &conf]).env("PATH", &path).output();
    done.map_err(|e| format!("pdbedit: {e}"))?;
    let mut command = Command::new(samba.join("usr/sbin/smbd"));
    command.args(["-F", "-s", &conf, "--no-process-group"]);
    command.env("PATH", &path).env("LD_LIBRARY_PATH", libraries);
    let server = Server::start(command, "smbd")?;
    wait_for(SAMBA, "smbd")?;
    Ok(server)
}

/// Serves `files` by the program that `command` starts, on loopback and these ports.
pub(super) fn ours(
    command: Command,
    folder: &Folder,
    files: &Folder,
    ports: Ports,
) -> Result<Server> {
    ours_at(&["127.0.0.1"], command, folder, files, ports)
}

/// Like [`ours`], on these addresses, of which one is on loopback.
pub(super) fn ours_at(
    addresses: &[&str],
    command: Command,
    folder: &Folder,
    files: &Folder,
    ports: Ports,
) -> Result<Server> {
    let mut command = command;
    let password = folder.join("password");
    fs::write(&password, PASSWORD).map_err(|e| format!("{password}: {e}"))?;
    output(&["chmod", "600", &password])?;
    let (share, user) = (format!("share={}", files.0.display()), format!("{USER}={password}"));
    command.args(["serve", "--share", &share, "--user", &user]);
    for address in addresses {
        command.args(["--bind", address]);
    }
    command.args(["--portmap", "off", "--smb-signing", "offered"]);
    for (option, port) in [
        ("--smb-port", ports.smb),
        ("--smb-direct-port", ports.direct),
        ("--nfs-port", ports.nfs),
        ("--nfs-rdma-port", ports.nfs_rdma),
    ] {
        command.args([option, &port.to_string()]);
    }
    command.args(["--state", &folder.join(&format!("state-{}", ports.smb))]);
    let server = Server::start(command, "headgate")?;
    wait_for(ports.smb, "headgate")?;
    Ok(server)
}

/// The best of some rounds: bytes per second, and server CPU seconds per GiB.
#[derive(Clone, Copy)]
struct Best {
    rate: f64,
    cpu: f64,
}

impl Best {
    const NONE: Best = Best { rate: 0.0, cpu: f64::INFINITY };

    fn take(&mut self, rate: f64, cpu: f64) {
        self.rate = self.rate.max(rate);
        self.cpu = self.cpu.min(cpu);
    }
}

fn smbclient(folder: &Folder, files: &Folder, servers: [(u16, &Server); 2]) -> Result<String> {
    let source = folder.join("source");
    output(&[
        "dd",
        "if=/dev/urandom",
        &format!("of={source}"),
        "bs=1M",
        &format!("count={}", BYTES >> 20),
    ])?;
    let yardstick = yardstick::measure(&source, &files.join("yardstick"))?;
    let mut text = format!(
        "\n## smbclient, one file of 1 GiB\n\nA yardstick: programs of a few lines that only receive 1 GiB by loopback and write \
         it over a file of this tmpfs,\nor let the kernel send it, unprotected, reach {:.0} MB/s for put and \
         {:.0} MB/s for get.\n\n| load | headgate | smbd | ratio | CPU: headgate | smbd | ratio |\
         \n|---|---:|---:|---:|---:|---:|---:|\n",
        yardstick.put / 1e6,
        yardstick.get / 1e6
    );
    let put = format!("put {source} file");
    for (option, word) in PROTECTIONS {
        let mut best = [[Best::NONE; 2]; 2];
        for (load, command) in [put.as_str(), "get file /dev/null"].iter().enumerate() {
            for _ in 0..ROUNDS {
                for (s, (port, server)) in servers.iter().enumerate() {
                    let before = cpu_seconds(&server.pid())?;
                    let rate = transfer(*port, option, command)?;
                    best[load][s].take(rate, cpu_seconds(&server.pid())? - before);
                }
            }
        }
        for (load, [a, b]) in ["put", "get"].iter().zip(best) {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "| {load}, {word} | {:.0} | {:.0} | **{:.2}** | {:.2} | {:.2} | **{:.2}** |",
                a.rate / 1e6,
                b.rate / 1e6,
                a.rate / b.rate,
                a.cpu,
                b.cpu,
                a.cpu / b.cpu
            );
        }
    }
    Ok(text)
}

/// Makes one transfer; returns the bytes per second that smbclient prints: `... (1234.5 kb/s) ...` or `... KiloBytes/sec`.
fn transfer(port: u16, protection: &str, commands: &str) -> Result<f64> {
    let done = Command::new("smbclient")
        .args(["//127.0.0.1/share", "-p", &port.to_string(), "-U", &format!("{USER}%{PASSWORD}")])
        .args(["-m", "SMB3_11", &format!("--client-protection={protection}"), "-c", commands])
        .output()
        .map_err(|e| format!("smbclient: {e}"))?;
    let said = [done.stdout, done.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let rate =
        said.split('(').nth(1).and_then(|s| s.split_whitespace().next()?.parse::<f64>().ok());
    match rate {
        Some(rate) if done.status.success() => Ok(rate * 1024.0),
        _ => Err(format!("smbclient {commands}: {said}")),
    }
}

/// Returns the CPU seconds of a process and of all its descendants, running or ended. A child that ends between the two readings is
/// missing from the first and included in the second.
fn cpu_seconds(pid: &str) -> Result<f64> {
    let reading = || {
        let own = ticks_of(pid).ok_or_else(|| format!("process {pid} is gone"))?;
        let children =
            fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        Ok(own + children.split_whitespace().filter_map(ticks_of).sum::<f64>())
    };
    let first: Result<f64> = reading();
    Ok(first?.max(reading()?) / 100.0)
}

fn ticks_of(pid: &str) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is followed by state, parent and so on: fields 14 to 17 are the times, including those of ended children.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    fields.get(11..15)?.iter().map(|f| f.parse::<f64>().ok()).sum()
}

/// Runs `headgate bench` on both servers, and on the gateway in other ways.
fn own_client(text: &mut String, us: &Server, peer: &Server, args: &[String]) -> Result<()> {
    let at = |scheme: &str, port: u16, how: &str| {
        format!("{scheme}://{USER}:{PASSWORD}@127.0.0.1:{port}/share{how}")
    };
    let (ours, theirs) = (|how: &str| at("smb", OURS.smb, how), |how: &str| at("smb", SAMBA, how));
    let direct = |how: &str| at("smb+rdma", OURS.direct, how);
    let beside = |title, how: &str| Pair {
        title,
        first: ("headgate", ours(how), us),
        second: ("smbd", theirs(how), peer),
    };
    let alone = |title, first: (&'static str, String), second: (&'static str, String)| Pair {
        title,
        first: (first.0, first.1, us),
        second: (second.0, second.1, us),
    };
    let with = |more: &[&str]| -> Vec<String> {
        let short = ["--time", "500ms"];
        short.iter().chain(more).map(|w| (*w).to_owned()).chain(args.iter().cloned()).collect()
    };
    let (all, bulk) = (with(&[]), with(&["--only", "write,read"]));
    let tcp = || ("TCP", ours(""));
    let without = "over SMB Direct without CRC, beside TCP";
    for (pair, args) in [
        (beside("over TCP, beside smbd", ""), &all),
        (beside("over TCP, signed, beside smbd", "?protect=sign"), &bulk),
        (beside("over TCP, encrypted, beside smbd", "?protect=seal"), &bulk),
        (alone(DIRECT, ("SMB Direct", direct("")), tcp()), &all),
        (alone(without, ("SMB Direct", direct("?crc=off")), tcp()), &all),
    ] {
        super::section(text, "SMB 3.1.1", &pair, args)?;
    }
    Ok(())
}
