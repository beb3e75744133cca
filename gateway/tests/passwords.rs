//! Users change their passwords with Samba's smbpasswd and rpcclient, and with impacket; and their groups change on the host.
//!
//! It takes root, because smbpasswd knows only port 445, which the gateway has in a network namespace of its own, as it has its own
//! list of groups. The tier `third` installs the programs.
#![allow(clippy::unwrap_used)] // A test that cannot go on says so.

mod common;

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const HOST: &str = "127.0.0.1";
const FIRST: &str = "correct horse battery";
/// The number of a group that the host does not have.
const TEAM: u32 = 54_321;
const KEPT: &str = "kept in a file of carol";

/// Python: changes a password as impacket's own example does, with encrypted calls or without.
const IMPACKET: &str = r#"
import sys
from impacket.dcerpc.v5 import samr, transport
from impacket.dcerpc.v5.rpcrt import RPC_C_AUTHN_LEVEL_PKT_PRIVACY
user, old, new, sealed = sys.argv[1:]
at = transport.SMBTransport("127.0.0.1", filename=r"\samr", username=user, password=old)
dce = at.get_dce_rpc()
if sealed == "sealed":
    dce.set_auth_level(RPC_C_AUTHN_LEVEL_PKT_PRIVACY)
dce.connect()
dce.bind(samr.MSRPC_UUID_SAMR)
rules = samr.hSamrGetDomainPasswordInformation(dce)["PasswordInformation"]
print("least", rules["MinPasswordLength"])
try:
    print("status", samr.hSamrUnicodeChangePasswordUser2(dce, "\0", user, old, new)["ErrorCode"])
except Exception as why:
    print(why)
"#;

/// A gateway with the accounts `alice`, `bob` and `daemon` in its database, and `carol` with a password file.
struct Gateway {
    child: Child,
    home: tempfile::TempDir,
}

fn secret(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

impl Gateway {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        secret(&at("carol"), KEPT);
        secret(&at("first"), FIRST);
        fs::copy("/etc/group", at("group")).unwrap();
        fs::create_dir(at("team")).unwrap();
        std::os::unix::fs::chown(at("team"), Some(0), Some(TEAM)).unwrap();
        for (path, mode) in [(home.path(), 0o755), (&at("team"), 0o770)] {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        let config = format!(
            "bind: {HOST}\nadmin: off\nrdma: off\ndiscovery: off\nnfs: {{portmap: off}}\n\
             shares: [{{name: data, memory: true}}, {{name: team, path: {}}}]\n\
             audit: {{to: {}}}\nusers: [{{name: carol, password_file: {}, uid: 1003}}]\n",
            at("team").display(),
            at("trail").display(),
            at("carol").display(),
        );
        fs::write(at("gw.yaml"), config).unwrap();
        for (user, uid) in [("alice", "1001"), ("bob", "1002"), ("daemon", "1")] {
            let args =
                ["user", "add", user, "--uid", uid, "--password-file", "first", "--state", "state"];
            let mut command = Command::new(env!("CARGO_BIN_EXE_headgate"));
            assert!(command.args(args).current_dir(&home).status().unwrap().success());
        }
        let child = Self::serve(home.path());
        Self { child, home }
    }

    fn serve(home: &Path) -> Child {
        let own = env!("CARGO_BIN_EXE_headgate");
        let script = "mount --bind group /etc/group && ip link set lo up && \
                      exec \"$0\" serve --config gw.yaml --state state";
        let log = File::options().create(true).append(true).open(home.join("log")).unwrap();
        let mut child = Command::new("unshare")
            .args(["-n", "-m", "sh", "-c", script, own])
            .current_dir(home)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut line = String::new();
        let ready = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(ready), &mut line).unwrap();
        let log = || fs::read_to_string(home.join("log")).unwrap();
        assert!(line.contains("smb="), "{line}\n{}", log());
        child
    }

    /// Ends the gateway as a crash does, and starts it again.
    fn crash(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = Self::serve(self.home.path());
    }

    /// Runs a program at the gateway's host and returns what it says.
    fn run(&self, args: &[&str], input: &str) -> String {
        let pid = self.child.id().to_string();
        let mut child = Command::new("nsenter")
            .args(["-t", &pid, "-n", "timeout", "60"])
            .args(args)
            .current_dir(&self.home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
    }

    fn smbpasswd(&self, user: &str, old: &str, new: &str) -> String {
        let input = format!("{old}\n{new}\n{new}\n");
        self.run(&["smbpasswd", "-s", "-r", HOST, "-U", user], &input)
    }

    fn rpcclient(&self, user: &str, password: &str, call: &str) -> String {
        self.run(&["rpcclient", "-U", &format!("{user}%{password}"), HOST, "-c", call], "")
    }

    /// Changes a password by one of rpcclient's calls, in a session of this user.
    fn chgpasswd(&self, call: &str, by: (&str, &str), user: &str, old: &str, new: &str) -> String {
        self.rpcclient(by.0, by.1, &format!("{call} {user} '{old}' '{new}'"))
    }

    fn impacket(&self, user: &str, old: &str, new: &str, how: &str) -> String {
        self.run(&["/usr/bin/python3", "-c", IMPACKET, user, old, new, how], "")
    }

    fn opens(&self, user: &str, password: &str) -> bool {
        let share = format!("//{HOST}/data");
        let told =
            self.run(&["smbclient", &share, "-U", &format!("{user}%{password}"), "-c", "ls"], "");
        assert_ne!(
            told.contains("blocks of size"),
            told.contains("NT_STATUS_LOGON_FAILURE"),
            "{told}"
        );
        told.contains("blocks of size")
    }

    /// Checks that exactly the new password opens a session.
    fn has_changed(&self, user: &str, old: &str, new: &str) {
        assert!(self.opens(user, new), "{user} with {new}\n{}", self.log());
        assert!(!self.opens(user, old), "{user} with {old}");
    }

    fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap()
    }

    /// Results of the changes of this account in the audit trail.
    fn results(&self, account: &str) -> Vec<String> {
        let trail = fs::read_to_string(self.home.path().join("trail")).unwrap();
        let records = trail.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap());
        let of = |r: &serde_json::Value| r["event"] == "password-change" && r["account"] == account;
        let results = records.filter(of).map(|r| r["result"].as_str().unwrap().to_owned());
        results.collect()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_root() -> bool {
    let is = rustix::process::geteuid().is_root();
    if !is {
        println!("skipped: it takes root and namespaces");
    }
    is
}

#[test]
fn smbpasswd_changes_passwords_of_users_at_once_and_a_crash_loses_none() {
    if !is_root() {
        return;
    }
    let mut gateway = Gateway::new();
    let told = gateway.smbpasswd("alice", FIRST, "staple of a horse");
    assert!(told.contains("Password changed for user alice"), "{told}\n{}", gateway.log());
    gateway.has_changed("alice", FIRST, "staple of a horse");
    assert!(gateway.opens("bob", FIRST), "nothing else has changed");
    gateway.crash();
    gateway.has_changed("alice", FIRST, "staple of a horse");
    std::thread::scope(|scope| {
        for (user, old) in [("alice", "staple of a horse"), ("bob", FIRST)] {
            let gateway = &gateway;
            scope.spawn(move || {
                let told = gateway.smbpasswd(user, old, &format!("{user} at the same time"));
                assert!(told.contains("Password changed"), "{told}\n{}", gateway.log());
            });
        }
    });
    gateway.crash();
    gateway.has_changed("alice", "staple of a horse", "alice at the same time");
    gateway.has_changed("bob", FIRST, "bob at the same time");
    let told = gateway.smbpasswd("alice", "alice at the same time", "short");
    assert!(!told.contains("Password changed"), "{told}");
    assert!(gateway.opens("alice", "alice at the same time"));
    let told = gateway.smbpasswd("carol", KEPT, "another one of carol");
    assert!(!told.contains("Password changed"), "{told}");
    assert!(gateway.opens("carol", KEPT));
    assert_eq!(gateway.results("alice"), ["ok", "ok", "too short"]);
    assert_eq!(gateway.results("carol"), ["not kept here"]);
    let log = gateway.log();
    assert!(log.contains("the configuration gives this user a password file"), "{log}");
    for secret in [FIRST, KEPT, "staple of", "at the same time", "another one"] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[test]
fn rpcclient_changes_passwords_by_each_method_and_wrong_ones_count() {
    if !is_root() {
        return;
    }
    let gateway = Gateway::new();
    let bob = ("bob", FIRST);
    let told = gateway.rpcclient("bob", FIRST, "getdompwinfo");
    assert!(told.contains("min_password_length: 12"), "{told}");
    let mut old = FIRST.to_owned();
    for call in ["chgpasswd2", "chgpasswd3", "chgpasswd4"] {
        let told = gateway.chgpasswd(call, bob, "alice", "wrong password", "never the new one");
        assert!(told.contains("NT_STATUS_WRONG_PASSWORD"), "{call}: {told}");
        let told = gateway.chgpasswd(call, bob, "alice", &old, "short");
        assert!(told.contains("NT_STATUS_PASSWORD_RESTRICTION"), "{call}: {told}");
        assert!(gateway.opens("alice", &old));
        let new = format!("set through {call}");
        let told = gateway.chgpasswd(call, bob, "alice", &old, &new);
        assert!(!told.contains("NT_STATUS"), "{call}: {told}\n{}", gateway.log());
        gateway.has_changed("alice", &old, &new);
        old = new;
    }
    let told = gateway.chgpasswd("chgpasswd4", bob, "carol", KEPT, "another one of carol");
    assert!(told.contains("NT_STATUS_ACCOUNT_RESTRICTION"), "{told}");
    let told = gateway.chgpasswd("chgpasswd4", bob, "nobody", FIRST, "another password");
    assert!(told.contains("NT_STATUS_WRONG_PASSWORD"), "{told}");
    let told = gateway.chgpasswd("chgpasswd4", ("", ""), "alice", &old, "another password");
    assert!(told.contains("NT_STATUS_ACCESS_DENIED"), "an anonymous client: {told}");
    assert!(gateway.opens("alice", &old));
    let expected = ["wrong password", "too short", "ok"].repeat(3);
    assert_eq!(gateway.results("alice"), expected);
    assert_eq!(gateway.results("nobody"), ["no such user"]);
    // Four wrong passwords here, and those of `has_changed`.
    let log = gateway.log();
    assert!(
        log.contains("wrong_in_a_minute=7") && log.contains("rule=\"password-change\""),
        "{log}"
    );
}

#[test]
fn impacket_changes_passwords_with_encrypted_calls_and_without() {
    if !is_root() {
        return;
    }
    let gateway = Gateway::new();
    let mut old = FIRST.to_owned();
    for how in ["plain", "sealed"] {
        let told = gateway.impacket("alice", &old, "short", how);
        assert!(
            told.contains("least 12\n") && told.contains("STATUS_PASSWORD_RESTRICTION"),
            "{told}\n{}",
            gateway.log()
        );
        let new = format!("set by impacket {how}");
        let told = gateway.impacket("alice", &old, &new, how);
        assert!(told.contains("status 0\n"), "{told}\n{}", gateway.log());
        gateway.has_changed("alice", &old, &new);
        old = new;
    }
    assert_eq!(gateway.results("alice"), ["too short", "ok", "too short", "ok"]);
}

#[test]
fn membership_of_a_group_counts_from_the_next_logon() {
    if !is_root() {
        return;
    }
    let gateway = Gateway::new();
    let list = || {
        let (share, user) = (format!("//{HOST}/team"), format!("daemon%{FIRST}"));
        gateway.run(&["smbclient", &share, "-U", &user, "-c", "ls"], "")
    };
    let groups = gateway.home.path().join("group");
    let before = fs::read_to_string(&groups).unwrap();
    let told = list();
    assert!(told.contains("NT_STATUS_ACCESS_DENIED"), "{told}");
    // The file keeps its inode, which is mounted.
    fs::write(&groups, format!("{before}team:x:{TEAM}:daemon\n")).unwrap();
    let told = list();
    assert!(told.contains("blocks of size"), "{told}\n{}", gateway.log());
    fs::write(&groups, before).unwrap();
    let told = list();
    assert!(told.contains("NT_STATUS_ACCESS_DENIED"), "{told}");
}
