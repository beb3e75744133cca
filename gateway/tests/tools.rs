//! Tests that `demo` and `bench` leave no files behind, however they end.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn headgate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headgate"));
    command.args(args).stdin(Stdio::null());
    command
}

fn err(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

struct Daemon {
    child: Child,
    home: tempfile::TempDir,
    nfs: u16,
    smb: u16,
}

impl Daemon {
    fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("data")).unwrap();
        fs::write(home.path().join("password"), "correct horse").unwrap();
        let share = format!("data={},squash=none", home.path().join("data").display());
        let user = format!("ann={},uid=0,gid=0", home.path().join("password").display());
        let ports = [
            "--nfs-port",
            "0",
            "--nfs-rdma-port",
            "0",
            "--smb-port",
            "0",
            "--smb-direct-port",
            "0",
        ];
        let others = [
            "--bind",
            "127.0.0.1",
            "--admin",
            "off",
            "--portmap",
            "off",
            "--privileged-ports",
            "off",
        ];
        let mut child = headgate(&["serve", "--share", &share, "--user", &user, "--state"])
            .arg(home.path().join("state"))
            .args(ports)
            .args(others)
            .stdout(Stdio::piped())
            .stderr(fs::File::create(home.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let port = |name: &str| {
            let at = ready.split_whitespace().find_map(|w| w.strip_prefix(name)).expect(&ready);
            at.rsplit_once(':').unwrap().1.parse().unwrap()
        };
        let (nfs, smb) = (port("nfs="), port("smb="));
        Self { child, home, nfs, smb }
    }

    fn targets(&self) -> [String; 3] {
        let (nfs, smb) = (self.nfs, self.smb);
        [
            format!("nfs://127.0.0.1:{nfs}/data?version=3&mountport={nfs}"),
            format!("nfs://127.0.0.1:{nfs}/data?version=4.2"),
            format!("smb://ann@127.0.0.1:{smb}/data"),
        ]
    }

    fn bench(&self, target: &str, args: &[&str]) -> Command {
        let mut command = headgate(&["bench", target, "--password-file"]);
        command.arg(self.home.path().join("password")).args(args);
        command
    }

    fn files(&self) -> Vec<PathBuf> {
        of(&self.home.path().join("data"), "headgate-bench")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn of(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let names = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    names.filter(|p| p.file_name().unwrap().to_string_lossy().starts_with(prefix)).collect()
}

fn until(what: &str, is: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(child: &Child, name: &str) {
    let kill = format!("kill {name} {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

#[test]
fn bench_is_interrupted_and_leaves_nothing_by_any_protocol() {
    let daemon = Daemon::start();
    for (n, target) in daemon.targets().iter().enumerate() {
        let args = ["--size", "2MiB", "--time", "60s", "--only", "open"];
        let child = daemon
            .bench(target, &args)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        until("it never begins", || daemon.files().len() > 3);
        signal(&child, ["-INT", "-TERM", "-HUP"][n]);
        let o = child.wait_with_output().unwrap();
        assert_eq!(o.status.code(), Some(1), "{target}: {}", err(&o));
        assert!(err(&o).contains("interrupted") && !err(&o).contains("stay"), "{}", err(&o));
        assert_eq!(daemon.files(), [""; 0].map(PathBuf::from), "{target}");
    }
}

#[test]
fn several_benches_at_once_on_one_share_do_not_meet() {
    let daemon = Daemon::start();
    let runs: Vec<Child> = daemon
        .targets()
        .iter()
        .chain(&daemon.targets())
        .map(|target| {
            let args = ["--size", "2MiB", "--time", "200ms", "--json"];
            daemon
                .bench(target, &args)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for run in runs {
        let o = run.wait_with_output().unwrap();
        assert!(o.status.success(), "{}", err(&o));
    }
    assert!(daemon.files().is_empty());
}

#[test]
fn a_file_that_does_not_fit_is_refused_before_it_is_begun() {
    let daemon = Daemon::start();
    for target in daemon.targets() {
        let o = daemon.bench(&target, &["--size", "1000GiB"]).output().unwrap();
        assert_eq!(o.status.code(), Some(1));
        assert!(err(&o).contains("give a smaller --size"), "{target}: {}", err(&o));
        assert!(daemon.files().is_empty());
    }
    let there = tempfile::tempdir().unwrap();
    // A fixed size, independent of the machine's free space.
    let script = "mount -t tmpfs -o size=4M small \"$TMPDIR\" && \"$0\" demo --size 8MiB; code=$?; \
                  find \"$TMPDIR\" -mindepth 1; exit $code";
    let mut alone = Command::new("unshare");
    alone.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_headgate")]);
    let o = alone.env("TMPDIR", there.path()).stdin(Stdio::null()).output().unwrap();
    assert_eq!(o.status.code(), Some(1), "{}", err(&o));
    assert!(err(&o).contains("TMPDIR"), "{}", err(&o));
    assert!(o.stdout.is_empty(), "left: {}", String::from_utf8_lossy(&o.stdout));
}

#[test]
fn the_spread_of_a_comparison_is_told() {
    let daemon = Daemon::start();
    let [first, second, _] = daemon.targets();
    let plot = daemon.home.path().join("plot.svg");
    let args = [
        "--compare",
        &second,
        "--rounds",
        "3",
        "--size",
        "1MiB",
        "--time",
        "50ms",
        "--only",
        "getattr",
    ];
    let o = daemon.bench(&first, &args).arg("--json").arg("--svg").arg(&plot).output().unwrap();
    assert!(o.status.success(), "{}", err(&o));
    let told: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!(told["targets"][0]["loads"][0]["rates"].as_array().unwrap().len(), 3, "{told}");
    let ratio = &told["ratios"][0];
    let of = |key: &str| ratio[key].as_f64().unwrap();
    assert!(of("rate_lowest") > 0.0 && of("rate_lowest") <= of("rate_highest"), "{ratio}");
    assert!(fs::read_to_string(plot).unwrap().contains(">100 us</text>"), "the axis");
    let o = daemon.bench(&first, &args).output().unwrap();
    let text = String::from_utf8_lossy(&o.stdout).into_owned();
    assert!(text.contains("of all rounds") && text.contains("round by round"), "{text}");
}

#[test]
fn demo_is_interrupted_and_leaves_nothing() {
    let there = tempfile::tempdir().unwrap();
    let child = headgate(&["demo", "--size", "512MiB"])
        .env("TMPDIR", there.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = || of(there.path(), "headgate-demo").iter().any(|d| d.join("share").is_dir());
    until("it never begins", begun);
    signal(&child, "-INT");
    let o = child.wait_with_output().unwrap();
    assert_eq!(o.status.code(), Some(1), "{}", err(&o));
    assert!(err(&o).contains("interrupted"), "{}", err(&o));
    assert!(of(there.path(), "headgate-demo").is_empty(), "{:?}", fs::read_dir(there.path()));
}

/// Every command ends with an exit code instead of a panic if its output has no reader, as in `2>&1 | head`.
#[test]
fn a_reader_that_goes_away_ends_no_command_in_a_panic() {
    let there = tempfile::tempdir().unwrap();
    let state = there.path().join("state");
    let state = state.to_str().unwrap();
    let help = String::from_utf8(headgate(&["--help"]).output().unwrap().stdout).unwrap();
    let listed = help.split("Commands:").nth(1).unwrap().lines().skip(1);
    let words =
        listed.take_while(|l| !l.trim().is_empty()).filter_map(|l| l.split_whitespace().next());
    let known: Vec<String> = words
        .filter(|w| w.chars().all(|c| c.is_ascii_lowercase() || c == '-'))
        .map(str::to_owned)
        .collect();
    assert!(known.len() >= 14, "{known:?}");
    let conf = there.path().join("smb.conf");
    fs::write(&conf, "[a]\npath = /srv/a\n").unwrap();
    let conf = conf.to_str().unwrap();
    let mut runs: Vec<Vec<&str>> = vec![
        vec!["--version"],
        vec!["no-such-command"],
        vec!["check", "--share", "a=mem:"],
        vec!["check", "--share", "a=/no/such"],
        vec!["serve", "--share", "a=/no/such"],
        vec!["demo", "--size", "1MiB"],
        vec!["demo", "--size", "1MiB", "--json"],
        vec!["bench", "nfs://127.0.0.1:1/x"],
        vec!["user", "list", "--state", state],
        vec!["user", "remove", "nobody", "--state", state],
        vec!["import", conf],
        vec!["top", "--state", state, "--count", "1"],
        vec!["log", "debug", "--state", state],
        vec!["close", "1", "--state", state],
        vec!["disconnect", "192.0.2.1", "--state", state],
        vec!["generate", there.path().to_str().unwrap()],
    ];
    for command in ["status", "files", "reload", "drain", "admin-token"] {
        runs.push(vec![command, "--state", state]);
    }
    for command in &known {
        runs.push(vec![command, "--help"]);
        let is_run = runs.iter().any(|run| run[0] == *command);
        assert!(is_run || command == "help", "{command} is not tried");
    }
    for run in runs {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut command = headgate(&run);
        command.stdout(writer.try_clone().unwrap()).stderr(writer);
        let mut child = command.spawn().unwrap();
        drop((reader, command));
        let status = child.wait().unwrap();
        assert!(status.code().is_some_and(|code| code != 101), "{run:?}: {status}");
    }
}

#[test]
fn a_daemon_whose_log_nobody_reads_serves_on() {
    let there = tempfile::tempdir().unwrap();
    let state = there.path().join("state");
    let state = state.to_str().unwrap();
    let mut child = headgate(&[
        "serve",
        "--share",
        "a=mem:",
        "--bind",
        "127.0.0.1",
        "--admin",
        "off",
        "--state",
        state,
    ])
    .args(["--nfs-port", "0", "--nfs-rdma-port", "0", "--portmap", "off", "--log", "trace"])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    drop(child.stderr.take());
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert!(ready.starts_with("headgate ready"), "{ready}");
    for _ in 0..3 {
        let o = headgate(&["status", "--state", state]).output().unwrap();
        assert!(o.status.success(), "{}", err(&o));
    }
    signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut rest = String::new();
    assert!(child.stdout.take().is_none_or(|mut out| out.read_to_string(&mut rest).is_ok()));
}
