//! Tests of the error messages, word by word: `messages/NAME.yaml` is a configuration with one kind of fault,
//! `messages/NAME.txt` is its message. `HEADGATE_UPDATE=1 cargo test -p gateway --test messages` rewrites the texts; review
//! the difference afterwards.
#![allow(clippy::unwrap_used, missing_docs)] // A test that cannot go on says so.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn messages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages")
}

/// Returns the configurations with their names, in order.
fn broken() -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = std::fs::read_dir(messages())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    all.sort();
    all
}

/// Compares a text with the stored one, or stores it; returns a line that describes the difference.
fn differs(name: &str, text: &str) -> Option<String> {
    let path = messages().join(format!("{name}.txt"));
    if std::env::var_os("HEADGATE_UPDATE").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    (kept != text).then(|| format!("{name}: kept is\n{kept}\nand said was\n{text}"))
}

fn nothing(differences: &[String]) {
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn headgate(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headgate")).args(args).current_dir(dir).output().unwrap()
}

/// Returns the message, with names in place of values that differ from run to run.
fn said(output: &Output, dir: &Path) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    text.replace(dir.to_str().unwrap(), "{dir}")
}

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [("password", "correct horse\n"), ("empty", ""), ("long", &"x".repeat(300))]
    {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

fn write(dir: &Path, text: &str) {
    let text = text.replace("{dir}", dir.to_str().unwrap());
    std::fs::write(dir.join("gw.yaml"), text).unwrap();
}

#[test]
fn every_fault_of_a_configuration_is_told_as_it_always_was() {
    let dir = folder();
    let mut differences = Vec::new();
    let all = broken();
    for (name, text) in &all {
        write(dir.path(), text);
        let output = headgate(dir.path(), &["check", "--config", "gw.yaml"]);
        assert_eq!(output.status.code(), Some(2), "{name}: {}", said(&output, dir.path()));
        assert!(output.stdout.is_empty(), "{name}");
        differences.extend(differs(name, &said(&output, dir.path())));
    }
    nothing(&differences);
    assert!(all.len() >= 60, "the configurations are found");
}

struct Daemon {
    child: Child,
    nfs: SocketAddr,
}

impl Daemon {
    /// Serves this configuration from this folder.
    fn start(dir: &Path, text: &str) -> Self {
        write(dir, text);
        let mut child = Command::new(env!("CARGO_BIN_EXE_headgate"))
            .args(["serve", "--config", "gw.yaml", "--state", "run"])
            .current_dir(dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let nfs = line.split_whitespace().find_map(|w| w.strip_prefix("nfs=")).unwrap();
        Self { nfs: nfs.parse().unwrap(), child }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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

const FINE: &str = "shares: [{name: a, memory: true}]\nbind: 127.0.0.1\nadmin: off\nnfs: {port: 0, rdma_port: 0, portmap: off}\n";

/// A reload gives the same message as `check`, and serving continues unchanged.
#[test]
fn no_broken_file_is_taken_over_by_a_reload() {
    let dir = folder();
    let daemon = Daemon::start(dir.path(), FINE);
    let mut stream = TcpStream::connect(daemon.nfs).unwrap();
    let reload = || headgate(dir.path(), &["reload", "--state", "run"]);
    let mut differences = Vec::new();
    // This case is about an option instead of the file, which has another message.
    let told_by_the_file = broken().into_iter().filter(|(name, _)| name != "state-in-a-share");
    for (name, text) in told_by_the_file {
        write(dir.path(), &text);
        let output = reload();
        assert_eq!(output.status.code(), Some(2), "{name}: {}", said(&output, dir.path()));
        differences.extend(differs(&name, &said(&output, dir.path())));
        null(&mut stream);
    }
    nothing(&differences);
    write(dir.path(), FINE);
    let output = reload();
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(told, "the configuration is in force; nothing has changed\n");
}

/// A valid configuration that cannot be applied on this host: exit code 1, and a message about the obstacle.
#[test]
fn what_cannot_be_had_is_told_as_it_always_was() {
    let dir = folder();
    let mut differences = Vec::new();
    let mut serve = |name: &str, text: &str, change: &dyn Fn(String) -> String| {
        write(dir.path(), text);
        let output = headgate(dir.path(), &["serve", "--config", "gw.yaml", "--state", "run"]);
        let said = change(said(&output, dir.path()));
        assert_eq!(output.status.code(), Some(1), "{name}: {said}");
        differences.extend(differs(name, &said));
    };
    let same = |said: String| said;

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let me = std::fs::read_to_string("/proc/self/comm").unwrap();
    let holder = format!("{} (process {})", me.trim(), std::process::id());
    let named =
        |said: String| said.replace(&holder, "{process}").replace(&format!(":{port}"), ":{port}");
    let on_port = FINE.replace("{port: 0,", &format!("{{port: {port},"));
    serve("a-port-in-use", &on_port, &named);
    serve(
        "an-admin-port-in-use",
        &FINE.replace("admin: off", &format!("admin: 127.0.0.1:{port}")),
        &named,
    );

    // An address in TEST-NET-1 (RFC 5737), which no host has.
    let elsewhere = FINE.replace("127.0.0.1", "192.0.2.1");
    serve("an-address-that-is-not-of-this-host", &elsewhere, &same);

    let secret = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    };

    let database = dir.path().join("run/smb-users");
    std::fs::write(&database, "").unwrap();
    std::fs::set_permissions(&database, std::fs::Permissions::from_mode(0o644)).unwrap();
    serve("a-secret-that-others-can-read", FINE, &same);
    secret("run/smb-users", "nonsense\n");
    serve("a-damaged-database-of-users", FINE, &same);
    std::fs::remove_file(&database).unwrap();

    let running = Daemon::start(dir.path(), FINE);
    serve("a-state-folder-in-use", FINE, &same);
    drop(running);
    nothing(&differences);
}
