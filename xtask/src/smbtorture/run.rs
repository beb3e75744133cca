//! Runs tests as processes: each with a time limit, in a separate folder; the result comes from the subunit lines that it prints.

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

/// Time limit of one test. The longest that passes, smb2.notify.mask, waits for 80 s in all.
const SECONDS_MAX: &str = "120";
const SLOWEST_SHOWN: usize = 12;
/// Exit codes of `timeout` after it ended the test.
const TIMED_OUT: [Option<i32>; 2] = [Some(124), Some(137)];
/// Options for tests whose names begin like this: a file, an attribute that belongs to the server, and the number of seconds to
/// work.
const TOLD: [(&str, &[&str]); 4] = [
    ("smb2.set-sparse-ioctl", &["filename=told"]),
    ("smb2.zero-data-ioctl", &["filename=told", "offset=4096", "beyond_final_zero=8192"]),
    ("smb2.ea.acl_xattr", &["acl_xattr_name=headgate.acl"]),
    (BENCH, &["timelimit=1", "progress=no"]),
];
/// Load tests, in which no operation may fail.
const BENCH: &str = "smb2.bench.";
/// The test that opens 65,520 files.
const MANY: &str = "smb2.maxfid";
/// Tests of a server that requires signatures.
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

/// Tests cut a connection of their own client by a chain in this system's firewall, all with the same chain names: each share adds
/// its own mark before the name.
///
/// Tests of break notices drop the packets of their client on a connection right after an answer arrived there, and then expect a
/// notice on it. The client's system acknowledges such an answer up to 40 ms late. If that acknowledgement is dropped as well, the
/// server's system repeats the answer, and sends no new data on this connection until it is acknowledged (RFC 5681 section 3.1: the
/// window after a timeout is one segment): the notice cannot arrive, whatever the server does. So the script drops packets only
/// after the answer is acknowledged, which `/proc/net/tcp` shows; a connection that never gets there is cut nevertheless.
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

/// The server under test, the network to reach it from, and the folders of its shares if this program should clean them.
#[derive(Debug)]
pub(super) struct Server {
    root: Root,
    inside: Option<String>,
    host: String,
    /// Address of the server that requires signatures.
    strict_host: String,
    port: String,
    folders: Vec<PathBuf>,
}

impl Server {
    /// Returns the gateway in this network namespace.
    pub(super) fn gateway(net: &Net, root: Root, folders: Vec<PathBuf>) -> Server {
        let inside = Some(net.name.clone());
        let (host, strict_host) = ("127.0.0.1".into(), STRICT_ADDRESS.into());
        Server { root, inside, host, strict_host, port: "445".into(), folders }
    }

    /// Returns a server at this `HOST:PORT`, with further options.
    pub(super) fn elsewhere(text: &str, root: Root) -> Result<Server> {
        let (host, port) = text.rsplit_once(':').ok_or("--server is HOST:PORT")?;
        let (host, port) = (host.to_owned(), port.into());
        Ok(Server { root, inside: None, strict_host: host.clone(), host, port, folders: vec![] })
    }

    /// Returns the share of a worker, except for tests that need another file system, which run one at a time.
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
        // Samba's server sends an interim answer to each READ and WRITE that takes half a millisecond; Windows and the gateway do
        // not.
        command.args(["--option=torture:smbd=no", test]);
        command
    }

    /// Creates the file for a test that expects its name as an option.
    fn prepare(&self, test: &str, worker: usize) {
        let Some(folder) = self.folders.get(worker) else { return };
        if told(test).any(|option| option == "filename=told") {
            let file = folder.join("told");
            // If this fails, the test fails and reports it.
            let _ = fs::write(&file, [1; 16384]);
            let _ = chown(&file, Some(USER_ID), Some(USER_ID));
        }
    }

    /// Removes files that tests leave, also those that pass: all tests use the same random numbers, and so the same names.
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

/// Returns true for tests of FSCTL_DUPLICATE_EXTENTS_TO_FILE.
pub(super) fn shares_blocks(test: &str) -> bool {
    test.starts_with("smb2.ioctl.dup_extents")
}

/// Returns true if a test must run separately: it uses the only share of its kind, or the whole machine, so that others would miss
/// their deadlines.
pub(super) fn is_alone(test: &str) -> bool {
    shares_blocks(test) || test.starts_with(BENCH) || test == MANY
}

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Success,
    /// The server lacks the tested feature.
    Skip(String),
    Failure(String),
    /// The test printed no result within its time limit.
    Hung,
}

impl Verdict {
    pub(super) fn passed(&self) -> bool {
        *self == Verdict::Success
    }

    /// Reads the output of one test.
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

/// Runs the tests, this many at once.
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

/// Prints the tests that a run waited for longest.
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

/// Creates the contents of a test's `/tmp`.
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
        // The verdict is enough if the log cannot be written.
        let _ = fs::write(dir.join(format!("{}.log", name.replace('/', "-"))), log);
    }
    verdict
}

/// Returns the result of a test, and its whole output. The test runs in this folder, which exists only that long.
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
