//! Measures how long a client waits while other clients try to use up a server: each attack with each victim, compared with
//! NFS-Ganesha and Samba.
//!
//! The clients are bare sockets with as much NFS 3, SMB and iWARP as they need. Attackers use separate addresses.

mod rdma;
mod smb;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::smb as samba;
use super::{
    Folder, GANESHA, GANESHA_MOUNT, NEIGHBOURS_PART, OURS, OURS_RDMA, Server, ganesha, wait_for,
};
use crate::lab::gateway;
use crate::sh::{Result, output, run};

const OURS_SMB: u16 = 22445;
const OURS_DIRECT: u16 = 22446;
/// How long each attack is measured, and how long it runs before that.
const MEASURED: Duration = Duration::from_secs(5);
const BEGINS: Duration = Duration::from_secs(1);
/// Pause between two requests of the victim, and between two of its connections.
const PAUSE: Duration = Duration::from_millis(5);
const CONNECTION_EVERY: usize = 20;
/// Longest wait for an answer; a longer one counts as this.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Connections that the gateway admits in this setup.
const CONNECTIONS: usize = 256;
/// Files of the folder that is listed.
const FILES: usize = 3000;
const MIB: u32 = 1 << 20;
/// Pause between two calls on a connection that an attacker only holds: less than the time after which it counts as idle.
const USED_EVERY: Duration = Duration::from_secs(1);
/// Prefix of the attackers' addresses.
const NETWORK: &str = "10.77.0.";
const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

/// A server and its address.
#[derive(Clone, Copy)]
struct Target {
    nfs: u16,
    mount: u16,
    smb: Option<u16>,
    rdma: Option<u16>,
}

/// File handles and addresses that attackers need.
#[derive(Clone)]
struct Handles {
    target: Target,
    root: Vec<u8>,
    many: Vec<u8>,
    large: Vec<u8>,
}

type Stop = Arc<AtomicBool>;
type Attackers = io::Result<Vec<JoinHandle<()>>>;

/// By which protocol an attack comes.
#[derive(Clone, Copy)]
enum Attack {
    Nfs(fn(&Handles, &Stop) -> Attackers),
    Smb(fn(u16, &Stop) -> Attackers),
    Rdma(fn(&Handles, &Stop) -> Attackers),
}

const ATTACKS: [(&str, Attack); 13] = [
    ("nothing", Attack::Nfs(|_, _| Ok(Vec::new()))),
    ("240 READDIRPLUS on 2 connections", Attack::Nfs(|h, s| listings(h, s, 2, 120))),
    ("240 READDIRPLUS on 8 connections", Attack::Nfs(|h, s| listings(h, s, 8, 30))),
    ("80 connections that take no answers and send 8 NULL a second", Attack::Nfs(deaf)),
    ("80 connections with half a WRITE of 1 MiB", Attack::Nfs(half_records)),
    ("2 addresses that open connections without end and use each", Attack::Nfs(connections)),
    (
        "SMB: 8 connections that name one extended attribute 8,000 times",
        Attack::Smb(smb::attributes),
    ),
    ("SMB: logons without end on 64 connections", Attack::Smb(smb::sessions)),
    ("SMB: renames of a folder with 1,500 open files", Attack::Smb(smb::renames)),
    (
        "SMB: opens of missing names in a folder of 3,000, 8 connections",
        Attack::Smb(smb::missing_names),
    ),
    ("SMB: 120 connections of 2 addresses that do not log on", Attack::Smb(smb::silent)),
    (
        "RPC-over-RDMA: 20 connections of 2 addresses that answer no RDMA Read",
        Attack::Rdma(rdma::unanswered_reads),
    ),
    ("RPC-over-RDMA: 200 idle connections of 2 addresses", Attack::Rdma(rdma::idle)),
];

fn word(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut out = [&word(len)[..], bytes].concat();
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// Builds a call by root with its record mark.
fn call(program: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let head = [7, 0, 2, program, 3, procedure, 1, 20, 0, 0, 0, 0, 0, 0, 0];
    let body = [&head.map(word).concat(), args].concat();
    let mark = 0x8000_0000 | u32::try_from(body.len()).unwrap_or(0);
    [&word(mark)[..], &body].concat()
}

/// Reads the results of one reply.
fn answer(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let mut body = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut body)?;
    Ok(body.split_off(24.min(body.len())))
}

fn dial(port: u16) -> io::Result<TcpStream> {
    dial_at("127.0.0.1", port)
}

/// Connects from an attacker's address to the same address, which the kernel then uses as the source as well.
fn dial_from(last: u8, port: u16) -> io::Result<TcpStream> {
    dial_at(&format!("{NETWORK}{last}"), port)
}

fn dial_at(address: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((address, port))?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Reads the handle at the start of successful results.
fn handle(results: &[u8]) -> io::Result<Vec<u8>> {
    let is_ok = results.starts_with(&[0; 4]);
    let len = results.get(4..8).and_then(|w| w.first_chunk()).map(|w| u32::from_be_bytes(*w));
    let found = len.filter(|_| is_ok).and_then(|len| results.get(8..8 + len as usize));
    found.map(<[u8]>::to_vec).ok_or_else(|| io::Error::other("no handle"))
}

fn look_up(target: Target) -> io::Result<Handles> {
    let mut mount = dial(target.mount)?;
    mount.write_all(&call(MOUNT, 1, &opaque(b"/share")))?;
    let root = handle(&answer(&mut mount)?)?;
    let mut nfs = dial(target.nfs)?;
    let mut find = |name: &[u8]| {
        nfs.write_all(&call(NFS, 3, &[opaque(&root), opaque(name)].concat()))?;
        handle(&answer(&mut nfs)?)
    };
    let (many, large) = (find(b"many")?, find(b"large")?);
    Ok(Handles { target, root, many, large })
}

fn until(stop: &Stop, mut step: impl FnMut() -> io::Result<()>) {
    // When the server closes the connection, this attacker ends.
    while !stop.load(Ordering::Relaxed) && step().is_ok() {}
}

/// Opens connections that each keep this many listings outstanding.
fn listings(
    h: &Handles,
    stop: &Stop,
    connections: usize,
    asked: usize,
) -> io::Result<Vec<JoinHandle<()>>> {
    let list = [opaque(&h.many), vec![0; 16], [MIB, MIB].map(word).concat()].concat();
    let list = call(NFS, 17, &list);
    let one = |_| {
        let (mut stream, list, stop) = (dial_from(2, h.target.nfs)?, list.clone(), stop.clone());
        stream.write_all(&list.repeat(asked))?;
        Ok(thread::spawn(move || {
            until(&stop, || answer(&mut stream).and_then(|_| stream.write_all(&list)));
        }))
    };
    (0..connections).map(one).collect()
}

/// Opens connections that ask for large answers, never read them and continue to call.
fn deaf(h: &Handles, stop: &Stop) -> io::Result<Vec<JoinHandle<()>>> {
    let read = [opaque(&h.large), [0, 0, MIB].map(word).concat()].concat();
    let read = call(NFS, 6, &read);
    let one = |_| {
        let (mut stream, stop) = (dial_from(2, h.target.nfs)?, stop.clone());
        stream.write_all(&read.repeat(24))?;
        Ok(thread::spawn(move || {
            until(&stop, || {
                thread::sleep(Duration::from_millis(125));
                stream.write_all(&call(NFS, 0, &[]))
            });
        }))
    };
    (0..80).map(one).collect()
}

/// Opens connections that stop inside a WRITE.
fn half_records(h: &Handles, stop: &Stop) -> io::Result<Vec<JoinHandle<()>>> {
    let args =
        [opaque(&h.large), [0, 0, MIB, 0].map(word).concat(), opaque(&vec![0; MIB as usize])];
    let half = call(NFS, 7, &args.concat())[..100_000].to_vec();
    let one = |_| {
        let (mut stream, stop) = (dial_from(2, h.target.nfs)?, stop.clone());
        stream.write_all(&half)?;
        Ok(thread::spawn(move || {
            until(&stop, || {
                thread::sleep(Duration::from_millis(100));
                Ok(())
            });
            drop(stream);
        }))
    };
    (0..80).map(one).collect()
}

/// Opens as many connections as the server admits, from two addresses; each starts with a GETATTR and repeats it.
fn connections(h: &Handles, stop: &Stop) -> io::Result<Vec<JoinHandle<()>>> {
    let get = call(NFS, 1, &opaque(&h.root));
    let one = |from: u8| {
        let (target, get, stop) = (h.target, get.clone(), stop.clone());
        thread::spawn(move || {
            let mut all: Vec<(TcpStream, Instant)> = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                if let Ok(mut stream) = dial_from(from, target.nfs)
                    && stream.write_all(&get).is_ok()
                {
                    all.push((stream, Instant::now()));
                }
                // Drops closed connections and uses the open ones.
                all.retain_mut(|(stream, used)| {
                    let is_due = used.elapsed() >= USED_EVERY;
                    if is_due {
                        *used = Instant::now();
                    }
                    !is_due || stream.write_all(&get).is_ok()
                });
                thread::sleep(Duration::from_millis(2));
            }
        })
    };
    let all = vec![one(2), one(3)];
    // Wait until the attackers have all the connections that they can get.
    thread::sleep(BEGINS * 2);
    Ok(all)
}

/// Times of a victim, sorted.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn shown(&self) -> String {
        let at = |per_mille: usize| {
            let last = self.0.len().saturating_sub(1);
            self.0.get((self.0.len() * per_mille / 1000).min(last)).copied().unwrap_or_default()
        };
        let ms = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
        match self.0.is_empty() {
            true => "-".into(),
            false => format!("{} / {} / {}", ms(at(500)), ms(at(990)), ms(at(1000))),
        }
    }
}

/// Sends requests on one connection, and from time to time on a new one, for the whole measurement.
fn victim(
    port: u16,
    ask: &[u8],
    first: impl Fn(&mut TcpStream) -> io::Result<()>,
    answered: impl Fn(&mut TcpStream) -> io::Result<()>,
) -> [Times; 2] {
    let (mut known, mut new) = (Vec::new(), Vec::new());
    let ends = Instant::now() + MEASURED;
    let mut stream = None;
    let mut count = 0;
    while Instant::now() < ends {
        let began = Instant::now();
        let is_new = stream.is_none();
        let done = (|| {
            let mut open = match stream.take() {
                Some(open) => open,
                None => {
                    let mut open = dial(port)?;
                    first(&mut open)?;
                    open
                }
            };
            open.write_all(ask)?;
            answered(&mut open)?;
            Ok::<_, io::Error>(open)
        })();
        // A refused connection counts as the longest possible wait.
        let took = if done.is_ok() { began.elapsed() } else { ANSWER_MAX };
        if is_new { &mut new } else { &mut known }.push(took);
        count += 1;
        stream = done.ok().filter(|_| count % CONNECTION_EVERY != 0);
        thread::sleep(PAUSE);
    }
    [known, new].map(|mut times| {
        times.sort_unstable();
        Times(times)
    })
}

/// Measures one row for one server: GETATTR on an existing connection and on new ones, and NEGOTIATE.
fn row(target: Target, attack: Attack) -> Result<[String; 3]> {
    let failed = |e: io::Error| e.to_string();
    let handles = look_up(target).map_err(failed)?;
    let stop = Stop::default();
    let attackers = match attack {
        Attack::Nfs(attack) | Attack::Rdma(attack) => attack(&handles, &stop),
        Attack::Smb(attack) => target.smb.map_or(Ok(Vec::new()), |port| attack(port, &stop)),
    };
    let attackers = attackers.map_err(failed)?;
    thread::sleep(BEGINS);
    let smb = target.smb.map(|port| thread::spawn(move || smb::victim(port)));
    let get = call(NFS, 1, &opaque(&handles.root));
    let [known, new] = victim(target.nfs, &get, |_| Ok(()), |s| answer(s).map(drop));
    let smb = smb.and_then(|times| times.join().ok()).unwrap_or_default();
    end(&stop, attackers);
    Ok([known, new, smb].map(|times| times.shown()))
}

/// The same for a server of SMB alone.
fn row_of_smb(port: u16, attack: Attack) -> Result<String> {
    let stop = Stop::default();
    let attackers = match attack {
        Attack::Smb(attack) => attack(port, &stop).map_err(|e| e.to_string())?,
        Attack::Nfs(_) | Attack::Rdma(_) => Vec::new(),
    };
    thread::sleep(BEGINS);
    let times = smb::victim(port);
    end(&stop, attackers);
    Ok(times.shown())
}

fn end(stop: &Stop, attackers: Vec<JoinHandle<()>>) {
    stop.store(true, Ordering::Relaxed);
    for attacker in attackers {
        // An attacker that panicked has printed the reason.
        let _ = attacker.join();
    }
}

fn files(folder: &Folder) -> Result<()> {
    let failed = |e: io::Error| e.to_string();
    fs::create_dir(folder.join("many")).map_err(failed)?;
    for n in 0..FILES {
        File::create(folder.join(&format!("many/file-{n:05}"))).map_err(failed)?;
    }
    // Guests of SMB make files.
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(&folder.0, open).map_err(failed)?;
    File::create(folder.join("large")).and_then(|f| f.set_len(32 << 20)).map_err(failed)
}

fn ours(folder: &Folder, files: &Folder) -> Result<Server> {
    let text = format!(
        "shares: [{{name: share, path: {}, squash: none, guest: true}}]\nbind: [127.0.0.1, {NETWORK}2, {NETWORK}3]\nadmin: off\n\
         privileged_ports: off\nrdma: iwarp\nconnections: {CONNECTIONS}\nnfs: {{port: {OURS}, rdma_port: {OURS_RDMA}, portmap: \
         off}}\n\
         smb: {{port: {OURS_SMB}, direct_port: {OURS_DIRECT}}}\n",
        files.0.display()
    );
    let conf = folder.join("gw.yaml");
    fs::write(&conf, text).map_err(|e| format!("{conf}: {e}"))?;
    let mut command = Command::new(gateway::program());
    command.args(["serve", "--config", &conf, "--state", &folder.join("state")]);
    let server = Server::start(command, "headgate")?;
    wait_for(OURS, "headgate")?;
    Ok(server)
}

/// Returns the path of the program after the folder that tells how it was built.
fn built_as() -> String {
    let program = gateway::program();
    let built = program.parent().and_then(|folder| folder.file_name()).unwrap_or_default();
    format!("{}/headgate", built.display())
}

pub(super) fn inside() -> Result<String> {
    run(&["ip", "link", "set", "lo", "up"])?;
    for last in [2, 3] {
        run(&["ip", "addr", "add", &format!("{NETWORK}{last}/32"), "dev", "lo"])?;
    }
    let load = output(&["cat", "/proc/loadavg"])?;
    let folder = Folder::new("/tmp/headgate-neighbours")?;
    let (own, theirs) = (
        Folder::new("/dev/shm/headgate-neighbours-1")?,
        Folder::new("/dev/shm/headgate-neighbours-2")?,
    );
    files(&own)?;
    files(&theirs)?;
    let us = Target { nfs: OURS, mount: OURS, smb: Some(OURS_SMB), rdma: Some(OURS_RDMA) };
    let them = Target { nfs: GANESHA, mount: GANESHA_MOUNT, smb: None, rdma: None };
    let mut text = format!(
        "{NEIGHBOURS_PART}\nWritten by `cargo xtask bench neighbours`. How long a client waits beside clients that try to take all \
         of a server: milliseconds,\nmedian / 99 of 100 / longest. The clients share the processors with the server; {} of them, \
         load at the start {}.\nThe program: `{}`. The gateway lets in {CONNECTIONS} connections. Another server is left out \
         where it is not installed.\n\n\
         | attack | GETATTR | GETATTR, new connection | SMB NEGOTIATE, new connection | nfs-ganesha: GETATTR | new connection | \
         Samba: NEGOTIATE, new connection |\n\
         |---|---:|---:|---:|---:|---:|---:|\n",
        thread::available_parallelism().map_or(0, std::num::NonZero::get),
        load.split_whitespace().next().unwrap_or("unknown"),
        built_as(),
    );
    for (what, attack) in ATTACKS {
        println!("{what}");
        let server = ours(&folder, &own)?;
        let [known, new, smb] = row(us, attack).unwrap_or_else(|why| [why, "-".into(), "-".into()]);
        drop(server);
        let is_usual = what == "nothing";
        let [their_known, their_new, _] = match (attack, ganesha(&folder, &theirs)) {
            (Attack::Nfs(_), Ok(_server)) => {
                row(them, attack).unwrap_or_else(|why| [why, "-".into(), String::new()])
            }
            _ => ["-".into(), "-".into(), String::new()],
        };
        let by_samba = match (attack, samba::smbd(&samba::samba(), &folder, &theirs)) {
            (attack, Ok(_server)) if is_usual || matches!(attack, Attack::Smb(_)) => {
                row_of_smb(samba::SAMBA, attack).unwrap_or_else(|why| why)
            }
            _ => "-".into(),
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {what} | {known} | {new} | {smb} | {their_known} | {their_new} | {by_samba} |"
        );
    }
    Ok(text)
}
