//! Tests of the daemon from the administrator's view: reload, drain, log levels, signals.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// Fills the socket of a service manager that does not read.
const FILLER: &str = "FILLER";

/// Sends until another send would block.
fn fill(socket: &Path) {
    let sender = UnixDatagram::unbound().unwrap();
    sender.set_nonblocking(true).unwrap();
    while sender.send_to(FILLER.as_bytes(), socket).is_ok() {}
}

struct Daemon {
    child: Child,
    nfs: SocketAddr,
    /// Its ready line.
    ready: String,
    dir: tempfile::TempDir,
    told: UnixDatagram,
}

fn text(shares: &str) -> String {
    format!(
        "shares: [{shares}]\nbind: 127.0.0.1\nadmin: off\nnfs: {{port: 0, rdma_port: 0, portmap: off}}\n"
    )
}

impl Daemon {
    /// Serves a configuration file with this text.
    fn start(text: &str) -> Self {
        Self::start_with(text, |_| ())
    }

    /// Starts the same after running `before` on the service manager's socket.
    fn start_with(text: &str, before: impl FnOnce(&Path)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let told = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        told.set_read_timeout(Some(PATIENCE)).unwrap();
        before(&dir.path().join("notify"));
        std::fs::write(dir.path().join("gw.yaml"), text).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_headgate"))
            .args(["serve", "--config", "gw.yaml", "--state", "state"])
            .current_dir(&dir)
            .env("NOTIFY_SOCKET", dir.path().join("notify"))
            .env("WATCHDOG_USEC", "400000")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let nfs = place("nfs=", &line).parse().unwrap();
        Self { nfs, ready: line, child, dir, told }
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn write(&self, text: &str) {
        std::fs::write(self.dir.path().join("gw.yaml"), text).unwrap();
    }

    fn order(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headgate"));
        command.args(args).arg("--state").arg(self.state()).output().unwrap()
    }

    fn signal(&self, name: &str) {
        // The shell's builtin: a minimal Debian need not have a program of this name.
        let kill = format!("kill {name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Waits for this message to the service manager.
    fn is_told(&self, what: &str) {
        let begin = Instant::now();
        let mut bytes = [0; 1024];
        loop {
            let length = self.told.recv(&mut bytes).unwrap_or_else(|e| panic!("{what}: {e}"));
            if String::from_utf8_lossy(&bytes[..length]).lines().any(|l| l.starts_with(what)) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{what} is never told");
        }
    }

    /// Returns the next message to the service manager, in one word, except for signs of life.
    fn told_next(&self) -> String {
        let mut bytes = [0; 1024];
        loop {
            let length = self.told.recv(&mut bytes).unwrap();
            let text = String::from_utf8_lossy(&bytes[..length]);
            let word = text.split('=').next().unwrap_or_default();
            if word != "WATCHDOG" && word != FILLER {
                return word.into();
            }
        }
    }

    /// Waits for the end and returns the exit code and standard error.
    fn end(mut self) -> (Option<i32>, String) {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < PATIENCE, "the daemon does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (status.code(), text)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns an address of the ready line.
fn place<'a>(what: &str, ready: &'a str) -> &'a str {
    ready.split_whitespace().find_map(|w| w.strip_prefix(what)).expect(ready)
}

fn headgate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headgate")).args(args).output().unwrap()
}

fn out(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned()
}

fn err(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

/// Sends NULL of NFS version 3 over a byte stream.
fn null(stream: &mut TcpStream) {
    let call = [0x8000_0028_u32, 9, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];
    let bytes: Vec<u8> = call.iter().flat_map(|w| w.to_be_bytes()).collect();
    stream.write_all(&bytes).unwrap();
    let mut reply = [0; 28];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..8], [0x80, 0, 0, 24, 0, 0, 0, 9]);
}

#[test]
fn a_reload_says_what_changed_and_a_bad_file_says_what_is_wrong_and_changes_nothing() {
    let daemon = Daemon::start(&text("{name: a, memory: true}"));
    daemon.is_told("READY=1");
    let mut stream = TcpStream::connect(daemon.nfs).unwrap();
    null(&mut stream);
    daemon.write(&text("{name: a, memory: true}, {name: b, memory: true}"));
    let o = daemon.order(&["reload"]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    assert_eq!(out(&o), "the configuration is in force\n  shares added: b\n");
    daemon.is_told("RELOADING=1");
    daemon.is_told("READY=1");
    let o = daemon.order(&["reload", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!(told["shares_added"].as_array().map(Vec::len), Some(0), "{told}");
    assert_eq!(told["connections_ended"], 0);
    // A fault: the caller gets the same text as from `check`.
    daemon.write(&text("{name: c, memroy: true}"));
    let o = daemon.order(&["reload"]);
    assert_eq!(o.status.code(), Some(2));
    let wanted = "error: gw.yaml:1:20: a share has no key `memroy`\n  |\n1 | shares: [{name: c, memroy: true}]\n  \
                  |                    ^\n  = did you mean `memory`?\n";
    assert_eq!(err(&o), wanted);
    // A change that needs a restart.
    daemon.write(&format!("{}log: {{format: json}}\n", text("{name: c, memory: true}")));
    let o = daemon.order(&["reload"]);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("`log.format` cannot change while the gateway runs"), "{}", err(&o));
    null(&mut stream);
    // A reload by a signal has its result in the log.
    daemon.signal("-HUP");
    daemon.is_told("RELOADING=1");
    daemon.is_told("READY=1");
    null(&mut stream);
    daemon.is_told("WATCHDOG=1");
    // Two reloads were applied; a fault and two changes that need a restart were rejected.
    let seen: serde_json::Value =
        serde_json::from_str(&out(&daemon.order(&["status", "--json"]))).unwrap();
    let reloads = &seen["reloads"];
    assert_eq!((&reloads["done"], &reloads["refused"]), (&2.into(), &3.into()), "{reloads}");
    assert!(
        reloads["last_refused"] == true && reloads["last_done"].as_u64() > Some(0),
        "{reloads}"
    );
    daemon.signal("-TERM");
    daemon.is_told("STOPPING=1");
    let (code, log) = daemon.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("the configuration stays as it was: error: `log.format`"), "{log}");
}

#[test]
fn a_service_manager_that_does_not_read_holds_nothing_up() {
    let two = text("{name: a, memory: true}, {name: b, memory: true}");
    let mut daemon = Daemon::start_with(&text("{name: a, memory: true}"), fill);
    daemon.write(&two);
    let o = daemon.order(&["reload"]);
    assert_eq!(out(&o), "the configuration is in force\n  shares added: b\n", "{}", err(&o));
    null(&mut TcpStream::connect(daemon.nfs).unwrap());
    // The log reports the cause while it lasts, once.
    let mut log = String::new();
    let mut lines = BufReader::new(daemon.child.stderr.take().unwrap());
    while !log.contains("the service manager does not read its socket") {
        assert!(lines.read_line(&mut log).unwrap() > 0, "{log}");
    }
    let begin = Instant::now();
    daemon.signal("-TERM");
    lines.read_to_string(&mut log).unwrap();
    // No request is in work, so this is the limit for the last message, plus the delay of a loaded machine.
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}: {log}", begin.elapsed());
    assert_eq!(daemon.child.wait().unwrap().code(), Some(0), "{log}");
    assert_eq!(log.matches("the service manager does not read").count(), 1, "{log}");
}

#[test]
fn a_service_manager_that_reads_late_is_told_all_in_its_order() {
    let daemon = Daemon::start_with(&text("{name: a, memory: true}"), fill);
    for _ in 0..2 {
        let o = daemon.order(&["reload"]);
        assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    }
    let told: Vec<String> = (0..5).map(|_| daemon.told_next()).collect();
    assert_eq!(told, ["READY", "RELOADING", "READY", "RELOADING", "READY"]);
    daemon.is_told("WATCHDOG=1");
    daemon.signal("-TERM");
    assert_eq!(daemon.told_next(), "STOPPING");
    let (code, log) = daemon.end();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn a_drain_ends_the_daemon_and_says_how_it_went() {
    let daemon = Daemon::start(&text("{name: a, memory: true}"));
    let mut stream = TcpStream::connect(daemon.nfs).unwrap();
    null(&mut stream);
    let mode = std::fs::metadata(daemon.state().join("control")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let o = daemon.order(&["drain"]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    assert_eq!(out(&o), "the gateway has stopped; connections that were open: 1\n");
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "an orderly end");
    // The socket outlives the daemon's answer.
    let socket = daemon.state().join("control");
    let late = Instant::now() + Duration::from_secs(60);
    while Path::exists(&socket) {
        assert!(Instant::now() < late, "the socket stays");
        std::thread::sleep(Duration::from_millis(10));
    }
    let o = daemon.order(&["reload"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(err(&o).contains("no daemon listens at"), "{}", err(&o));
    let (code, log) = daemon.end();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn levels_of_the_log_change_at_run_time() {
    let daemon =
        Daemon::start(&format!("{}log: {{level: warn}}\n", text("{name: a, memory: true}")));
    let look = || null(&mut TcpStream::connect(daemon.nfs).unwrap());
    look();
    let o = daemon.order(&["log", "warn,gateway::accept=info"]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    look();
    let o = daemon.order(&["log", "inof"]);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("did you mean `info`?"), "{}", err(&o));
    daemon.signal("-TERM");
    let (_, log) = daemon.end();
    let opened = log.lines().filter(|l| l.contains("connection open")).count();
    assert_eq!(opened, 1, "{log}");
}

/// Neither `status` nor `top` needs an admin address; each finds the daemon through the file in the environment.
#[test]
fn status_and_top_go_by_the_control_socket() {
    let daemon = Daemon::start(&text("{name: a, memory: true}"));
    let seen: serde_json::Value =
        serde_json::from_str(&out(&daemon.order(&["status", "--json"]))).unwrap();
    assert_eq!((&seen["ready"], &seen["connections"]), (&true.into(), &serde_json::json!([])));
    let top = daemon.order(&["top", "--count", "1", "--interval", "100ms"]);
    assert!(top.status.success() && out(&top).contains("headgate"), "{}{}", out(&top), err(&top));

    let state = daemon.state();
    // Outlives the daemon. The file selects this daemon, since another one may use the default address.
    let dir = tempfile::tempdir().unwrap();
    let named = dir.path().join("named.yaml");
    std::fs::write(&named, format!("state: {}\n", state.display())).unwrap();
    let by_environment = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headgate"));
        command.args(words).env("HEADGATE_CONFIG", &named).output().unwrap()
    };
    assert!(out(&by_environment(&["status"])).contains("serving for"));
    assert!(by_environment(&["files"]).status.success());
    let password = daemon.dir.path().join("password");
    std::fs::write(&password, "secret").unwrap();
    let password = password.to_str().unwrap();
    let add = by_environment(&["user", "add", "root", "--weak", "--password-file", password]);
    assert!(add.status.success(), "{}", err(&add));
    assert!(out(&daemon.order(&["user", "list"])).contains("root"));

    drop(daemon);
    let gone = by_environment(&["status"]);
    assert_eq!(gone.status.code(), Some(1), "{}", out(&gone));
}

#[test]
fn who_holds_files_is_told_to_the_administrator() {
    let daemon = Daemon::start(&text("{name: a, memory: true}"));
    let o = daemon.order(&["files"]);
    assert_eq!(
        (o.status.code(), out(&o).as_str()),
        (Some(0), "no client holds a file\n"),
        "{}",
        err(&o)
    );
    let o = daemon.order(&["files", "--json"]);
    assert_eq!(out(&o), "{\"files\":[],\"left_out\":0}\n");
}

#[test]
fn an_administrator_sends_a_client_away_and_the_log_says_who_did() {
    let daemon = Daemon::start(&text("{name: a, memory: true}"));
    for (order, what) in [("close", "/a/b"), ("close", "1"), ("disconnect", "192.0.2.1")] {
        let o = daemon.order(&[order, what]);
        assert_eq!((o.status.code(), out(&o).as_str()), (Some(1), ""), "{order} {what}");
        assert!(err(&o).contains(what) && err(&o).contains("`headgate files`"), "{}", err(&o));
    }
    for (order, what) in [("close", "a/b"), ("disconnect", "127.0.0.1:700"), ("disconnect", "")] {
        let o = daemon.order(&[order, what]);
        assert_eq!(o.status.code(), Some(2), "{order} {what}: {}", err(&o));
    }
    let mut stream = TcpStream::connect(daemon.nfs).unwrap();
    null(&mut stream);
    let o = daemon.order(&["disconnect", "127.0.0.1"]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    assert_eq!(out(&o), "disconnected\n  connections: 1\n");
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "an orderly end");
    // Other clients can still connect.
    null(&mut TcpStream::connect(daemon.nfs).unwrap());
    daemon.signal("-TERM");
    let (_, log) = daemon.end();
    let line = log.lines().find(|l| l.contains("an administrator has disconnected a client"));
    let line = line.unwrap_or_else(|| panic!("{log}"));
    let uid = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap());
    assert!(line.contains(&format!("uid={uid}")) && line.contains("client=127.0.0.1"), "{line}");
}

/// Checks every line of the log after successful and failed logons.
#[test]
fn neither_the_log_nor_what_is_told_holds_a_secret() {
    const PASSWORD: &str = "wachtelkoenig";
    let file = |dir: &Path, name: &str, word: &str| {
        std::fs::write(dir.join(name), word).unwrap();
        dir.join(name).display().to_string()
    };
    let add = |socket: &Path| {
        let dir = socket.parent().unwrap();
        let (state, password) = (dir.join("state"), file(dir, "right", PASSWORD));
        let to = ["user", "--state", state.to_str().unwrap(), "add", "alice", "--uid", "0"];
        let o = headgate(&[&to[..], &["--password-file", &password]].concat());
        assert!(o.status.success(), "{}", err(&o));
    };
    let wanted = text("{name: a, memory: true}").replace("admin: off", "admin: 127.0.0.1:0");
    let smb = "smb: {port: 0, direct_port: 0}\nlog: {level: trace}\n";
    let mut daemon = Daemon::start_with(&(wanted + smb), add);
    let mut lines = daemon.child.stderr.take().unwrap();
    let log = std::thread::spawn(move || {
        let mut log = String::new();
        lines.read_to_string(&mut log).map(|_| log)
    });
    let target = format!("smb://alice@{}/a", place("smb=", &daemon.ready));
    let mut told = String::new();
    for (word, is_right) in [(PASSWORD, true), ("another", false)] {
        let password = file(daemon.dir.path(), "asked", word);
        let how = ["--only", "getattr", "--time", "5ms", "--size", "1MiB"];
        let o = headgate(&[&["bench", &target, "--password-file", &password][..], &how].concat());
        assert_eq!(o.status.success(), is_right, "{}", err(&o));
        told += &(out(&o) + &err(&o));
    }
    let admin = place("admin=", &daemon.ready);
    told += &out(&headgate(&["status", "--json", "--admin", admin]));
    told += &out(&daemon.order(&["reload", "--json"]));
    let mut metrics = TcpStream::connect(admin).unwrap();
    metrics.write_all(b"GET /metrics HTTP/1.0\r\nhost: 127.0.0.1\r\n\r\n").unwrap();
    metrics.read_to_string(&mut told).unwrap();
    let database = std::fs::read_to_string(daemon.state().join("smb-users")).unwrap();
    let is_hash = |word: &&str| word.len() == 32 && word.bytes().all(|b| b.is_ascii_hexdigit());
    let words = database.split(|c: char| !c.is_ascii_alphanumeric());
    let hash = words.into_iter().find(is_hash).expect("the hash of the password").to_lowercase();
    daemon.signal("-TERM");
    assert!(daemon.child.wait().unwrap().success());
    let log = log.join().unwrap().unwrap();
    let says =
        |line: &str| line.contains("connection end") && line.contains("protection=\"signed\"");
    assert!(log.lines().any(says), "{log}");
    told += &log;
    assert!(told.contains("TRACE") && told.contains("headgate_build_info"), "{told}");
    let told = told.to_lowercase();
    assert!(!told.contains(PASSWORD) && !told.contains(&hash), "{told}");
}
