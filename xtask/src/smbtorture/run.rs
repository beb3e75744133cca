//! Tests as processes: each with a limit, in a folder of its own, read by the lines of subunit that it prints.

use std::fmt;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::root::Root;
use super::{Results, held};
use crate::lab::Net;
use crate::lab::gateway::{BLOCK_SHARE, LASTING_SHARE, STRICT_ADDRESS, USER_ID};
use crate::sh::{Result, in_turns_of};

/// Of one test. The longest that passes, smb2.notify.mask, waits for 80 s in all.
const SECONDS_MAX: &str = "120";
const SLOWEST_SHOWN: usize = 12;
/// What `timeout` ends with when it had to.
const TIMED_OUT: [Option<i32>; 2] = [Some(124), Some(137)];
/// What tests are told whose names begin so: a file, an attribute that belongs to the server, and for how many seconds to work.
const TOLD: [(&str, &[&str]); 4] = [
    ("smb2.set-sparse-ioctl", &["filename=told"]),
    ("smb2.zero-data-ioctl", &["filename=told", "offset=4096", "beyond_final_zero=8192"]),
    ("smb2.ea.acl_xattr", &["acl_xattr_name=headgate.acl"]),
    (BENCH, &["timelimit=1", "progress=no"]),
];
/// Tests that do as much as they can, of which nothing may fail.
const BENCH: &str = "smb2.bench.";
/// Opens 65,520 files.
const MANY: &str = "smb2.maxfid";
/// Tests of a server that demands signatures.
const SIGNED: &str = "smb2.session-require-signing.";
/// The one test of persistent handles.
const PERSISTENT: &str = "smb2.replay.replay5";
/// Suites that wait longest begin first.
const SLOW: [&str; 8] = [
    "smb2.notify",
    "smb2.replay",
    "smb2.oplock",
    "smb2.lease",
    "smb2.multichannel",
    "smb2.scan",
    "smb2.secleak",
    "smb2.timestamps",
];

/// Tests cut a connection of their own client by a chain of this system's rules, which they name alike: those of one share get a
/// mark before the name.
///
/// Tests of break notices drop what their client sends by a connection, right after an answer came there, and then want to see a
/// notice come by it. The client's system acknowledges such an answer up to 40 ms late. Where that acknowledgement is dropped as
/// well, the server's system repeats the answer, and sends nothing new by this connection until it is acknowledged (RFC 5681
/// section 3.1: the window after a timeout is one segment): the notice cannot come, whatever the server does. So nothing is dropped
/// before the answer is acknowledged, which `/proc/net/tcp` tells; a connection that does not get there is cut all the same.
const IPTABLES: &str = "#!/bin/sh
is_acknowledged() {
    while read -r _ from to _ queues _; do
        case $from:$to:$queues in
        *:01BD:*:$1:00000000:*) ;;
        *:01BD:*:$1:*) return 1 ;;
        esac
    done < /proc/net/tcp
}
drops= port= before=
for word; do
    shift
    case $word in
    -I) drops=yes ;;
    SMBTORTURE*) word=T-WORKER-${word#SMBTORTURE} ;;
    esac
    case $before in --sport) port=$(printf %04X \"$word\") ;; esac
    before=$word
    set -- \"$@\" \"$word\"
done
looks=0
while [ \"$drops\" ] && [ \"$port\" ] && [ $looks -lt 200 ]; do
    if is_acknowledged \"$port\"; then break; fi
    looks=$((looks + 1))
done
exec iptables-nft \"$@\"
";

/// Who is tested, from where, and the folders behind its shares where they are ours to clean.
#[derive(Debug)]
pub(super) struct Server {
    root: Root,
    inside: Option<String>,
    host: String,
    /// Of the server that demands signatures.
    strict_host: String,
    port: String,
    folders: Vec<PathBuf>,
}

impl Server {
    /// The gateway in this network namespace.
    pub(super) fn gateway(net: &Net, root: Root, folders: Vec<PathBuf>) -> Server {
        let inside = Some(net.name.clone());
        let (host, strict_host) = ("127.0.0.1".into(), STRICT_ADDRESS.into());
        Server { root, inside, host, strict_host, port: "445".into(), folders }
    }

    /// HOST:PORT.
    pub(super) fn elsewhere(text: &str, root: Root) -> Result<Server> {
        let (host, port) = text.rsplit_once(':').ok_or("--server is HOST:PORT")?;
        let (host, port) = (host.to_owned(), port.into());
        Ok(Server { root, inside: None, strict_host: host.clone(), host, port, folders: vec![] })
    }

    /// Each worker has a share, but for tests that want another file system, which take turns.
    fn share(&self, test: &str, worker: usize) -> String {
        match self.inside {
            Some(_) if shares_blocks(test) => BLOCK_SHARE.into(),
            Some(_) if test == PERSISTENT => LASTING_SHARE.into(),
            _ => format!("t{worker}"),
        }
    }

    pub(super) fn command(&self, test: &str, worker: usize) -> Command {
        let mut command = match &self.inside {
            Some(net) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", net, "timeout"]);
                command
            }
            None => Command::new("timeout"),
        };
        command.args(["-k", "5", SECONDS_MAX]).args(self.root.words());
        let host = if test.starts_with(SIGNED) { &self.strict_host } else { &self.host };
        command.arg(format!("//{host}/{}", self.share(test, worker))).args(["-p", &self.port]);
        command.args(["-U", "user%pass", "--format=subunit"]);
        command.args(["--option=torture:use_iptables=yes"]);
        command.arg("--option=torture:iptables_command=/tmp/iptables");
        command.args(["--option=torture:user2name=user2", "--option=torture:user2password=pass2"]);
        command.arg("--option=torture:writetimeupdatedelay=2000000");
        command.args(told(test).map(|option| format!("--option=torture:{option}")));
        // Samba's server makes an interim answer to each READ and WRITE that takes half a millisecond; Windows and we do not.
        command.args(["--option=torture:smbd=no", test]);
        command
    }

    /// A test that is told the name of a file finds it.
    fn prepare(&self, test: &str, worker: usize) {
        let Some(folder) = self.folders.get(worker) else { return };
        if told(test).any(|option| option == "filename=told") {
            let file = folder.join("told");
            // Without it the test fails and says so.
            let _ = fs::write(&file, [1; 16384]);
            let _ = chown(&file, Some(USER_ID), Some(USER_ID));
        }
    }

    /// Tests leave things that are in the way of the next, also those that pass: all take the same numbers at random, and so the
    /// same names.
    fn clean(&self, worker: usize) {
        let Some(folder) = self.folders.get(worker) else { return };
        let Ok(listing) = fs::read_dir(folder) else { return };
        for path in listing.flatten().map(|e| e.path()) {
            let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
        }
    }
}

fn told(test: &str) -> impl Iterator<Item = &'static str> {
    let its = TOLD.into_iter().filter(move |(name, _)| test.starts_with(name));
    its.flat_map(|(_, told)| told.iter().copied())
}

/// FSCTL_DUPLICATE_EXTENTS_TO_FILE.
pub(super) fn shares_blocks(test: &str) -> bool {
    test.starts_with("smb2.ioctl.dup_extents")
}

/// It has a share that there is once, or takes all that the machine has, and others would be late.
pub(super) fn is_alone(test: &str) -> bool {
    shares_blocks(test) || test.starts_with(BENCH) || test == MANY
}

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Success,
    /// The server lacks what it tests.
    Skip(String),
    Failure(String),
    /// It said nothing within its time.
    Hung,
}

impl Verdict {
    pub(super) fn passed(&self) -> bool {
        *self == Verdict::Success
    }

    /// Reads what one test printed.
    fn read(said: &str, timed_out: bool) -> Verdict {
        let mut lines = said.lines();
        while let Some(line) = lines.next() {
            let Some((word, rest)) = line.split_once(": ") else { continue };
            let why = || {
                let more = lines.clone().take_while(|l| *l != "]").find(|l| !l.trim().is_empty());
                more.filter(|_| rest.ends_with('[')).unwrap_or_default().trim().to_owned()
            };
            match word {
                "success" | "successful" => return Verdict::Success,
                "skip" => return Verdict::Skip(why()),
                "failure" | "error" | "xfail" => return Verdict::Failure(why()),
                _ => {}
            }
        }
        if timed_out {
            return Verdict::Hung;
        }
        let last = said.lines().rev().find(|l| !l.starts_with("time: ")).unwrap_or_default();
        Verdict::Failure(format!("broke off: {last}"))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Success => write!(f, "passed"),
            Verdict::Skip(why) => write!(f, "skipped: {why}"),
            Verdict::Failure(why) => write!(f, "{why}"),
            Verdict::Hung => write!(f, "did not end within {SECONDS_MAX} s"),
        }
    }
}

/// Runs them, so many at once.
pub(super) fn all(
    server: &Server,
    names: &[String],
    at_once: usize,
    dir: &Path,
    verbose: bool,
) -> Results {
    let mut order: Vec<&String> = names.iter().collect();
    let rank = |name: &str| SLOW.iter().position(|s| name.starts_with(s)).unwrap_or(SLOW.len());
    order.sort_by_key(|name| rank(name));
    let workers = (0..at_once.min(names.len())).collect();
    let done = in_turns_of(order, workers, |worker, name| {
        let began = Instant::now();
        let verdict = one(server, name, *worker, dir);
        if verbose {
            println!("    {name}: {verdict}");
        }
        (began.elapsed().as_secs(), name.clone(), verdict)
    });
    print_slowest(done.iter().map(|(seconds, name, _)| (*seconds, name.clone())).collect());
    done.into_iter().map(|(_, name, verdict)| (name, verdict)).collect()
}

/// What a run waits for.
fn print_slowest(mut times: Vec<(u64, String)>) {
    if times.len() <= SLOWEST_SHOWN {
        return;
    }
    times.sort_unstable_by(|a, b| b.cmp(a));
    let sum: u64 = times.iter().map(|(seconds, _)| seconds).sum();
    let shown = times[..SLOWEST_SHOWN].iter().map(|(seconds, name)| format!("{name} {seconds} s"));
    let shown: Vec<String> = shown.collect();
    println!("   smbtorture: {sum} s of tests, slowest {}", shown.join(", "));
}

/// What a test finds in its `/tmp`.
pub(super) fn prepare(place: &Path, worker: usize) -> std::io::Result<()> {
    fs::create_dir_all(place)?;
    let iptables = place.join("iptables");
    fs::write(&iptables, IPTABLES.replace("WORKER", &worker.to_string()))?;
    fs::set_permissions(&iptables, fs::Permissions::from_mode(0o755))
}

fn one(server: &Server, name: &str, worker: usize, dir: &Path) -> Verdict {
    let place = dir.join(format!("run-{worker}"));
    server.prepare(name, worker);
    let (verdict, log) = match name {
        held::TEST => held::check(server, worker, &place),
        _ => alone(server.command(name, worker), worker, &place),
    };
    server.clean(worker);
    if !verdict.passed() {
        // The verdict says enough where the log cannot be kept.
        let _ = fs::write(dir.join(format!("{name}.log")), log);
    }
    verdict
}

/// What came of a test, and all that it said. It runs in this folder, which is there for as long.
pub(super) fn alone(mut command: Command, worker: usize, place: &Path) -> (Verdict, String) {
    if let Err(e) = prepare(place, worker) {
        return (Verdict::Failure(format!("{}: {e}", place.display())), String::new());
    }
    let done = match command.current_dir(place).stdin(Stdio::null()).output() {
        Ok(done) => done,
        Err(e) => {
            return (Verdict::Failure(format!("cannot run smbtorture: {e}")), String::new());
        }
    };
    let said = String::from_utf8_lossy(&done.stdout);
    let verdict = Verdict::read(&said, TIMED_OUT.contains(&done.status.code()));
    let _ = fs::remove_dir_all(place);
    (verdict, format!("{said}{}", String::from_utf8_lossy(&done.stderr)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subunit_is_read() {
        let head =
            "smbtorture 4.24.7-Debian\nUsing seed 1\ntime: 2026-11-21 09:26:11.736554\ntest: x\n";
        let read = |tail: &str| Verdict::read(&format!("{head}{tail}"), false);
        assert_eq!(read("0time: 1\nsuccess: x\n"), Verdict::Success);
        let failed = read("failure: x [\n../a.c:207: Expression `ok' failed\n]\n");
        assert_eq!(failed, Verdict::Failure("../a.c:207: Expression `ok' failed".into()));
        assert_eq!(read("skip: x [\nno leases\n]\n"), Verdict::Skip("no leases".into()));
        assert_eq!(Verdict::read(head, true), Verdict::Hung);
        assert_eq!(read("INTERNAL ERROR\n"), Verdict::Failure("broke off: INTERNAL ERROR".into()));
    }
}
