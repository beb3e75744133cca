//! Tests logons of Samba's smbclient and smbtorture with tickets of a real KDC, and NFS contexts that use them. Needs
//! krb5-kdc, krb5-admin-server, krb5-user, smbclient, faketime and the suite that `cargo xtask smbtorture` unpacks; the tier
//! `third` provides them and runs this test. `HEADGATE_SMBCLIENT` names another smbclient; `tests/krb5/build-smbclient`
//! builds one with MIT's library.
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs)] // A test that cannot go on says so.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use gateway::admin::show::fetch;
use gateway::admin::snapshot::{RefusedStatus, Snapshot};

#[path = "kerberos/check.rs"]
mod check;
#[path = "kerberos/domain.rs"]
mod domain;
#[path = "../../tests/src/kdc.rs"]
#[allow(dead_code)]
mod kdc;
#[path = "kerberos/nfs.rs"]
mod nfs;
#[path = "kerberos/own.rs"]
mod own;
#[path = "kerberos/people.rs"]
mod people;
mod smbtorture;
#[path = "kerberos/winbind.rs"]
mod winbind;

use kdc::Kdc;

/// Time limit for every answer.
const SOON: Duration = Duration::from_secs(30);
/// Name of the gateway for clients, which also get its address.
const HOST: &str = "gw.lab.test";
const PASSWORD: &str = "secret";

/// A KDC, a gateway with a keytab from it, and a share that every user may write.
struct World {
    kdc: Kdc,
    home: tempfile::TempDir,
    daemon: Option<Daemon>,
}

struct Daemon {
    child: Child,
    smb: SocketAddr,
    nfs: SocketAddr,
    admin: SocketAddr,
    /// Held while it listens at the usual port, which only one can have.
    _usual_port: Option<MutexGuard<'static, ()>>,
}

static USUAL_PORT: Mutex<()> = Mutex::new(());

impl Drop for Daemon {
    fn drop(&mut self) {
        // The gateway is a child of faketime.
        let group = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.child.wait();
    }
}

impl World {
    /// Creates the KDC and its files; `nobody` is a user of every host.
    fn new() -> Self {
        let world = Self::by(Kdc::start(), tempfile::tempdir().unwrap());
        world.kdc.service(&format!("cifs/{HOST}"), &world.at("keytab"));
        world.kdc.user("nobody", PASSWORD);
        world
    }

    /// Creates only the files.
    fn by(kdc: Kdc, home: tempfile::TempDir) -> Self {
        fs::set_permissions(&home, Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(home.path().join("data")).unwrap();
        fs::set_permissions(home.path().join("data"), Permissions::from_mode(0o777)).unwrap();
        fs::write(home.path().join("smb.conf"), "[global]\n").unwrap();
        Self { kdc, home, daemon: None }
    }

    /// Creates the same with a gateway that is ready.
    fn start() -> Self {
        let mut world = Self::new();
        world.serve("", &[]);
        world
    }

    fn at(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Serves with these additional lines, through a command that ends with the program's name.
    fn serve(&mut self, more: &str, under: &[&str]) {
        self.daemon = None;
        let is_usual = more.contains(domain::AT_USUAL_PORT);
        let usual_port = is_usual.then(|| mutex::locked(&USUAL_PORT));
        let text = format!(
            "bind: 127.0.0.1\nadmin: 127.0.0.1:0\nrdma: off\nnfs: {{port: 0, portmap: off}}\n\
             shares:\n  - name: data\n    path: {}\n{more}\n",
            self.at("data").display()
        );
        let smb = if more.contains("smb:") { "" } else { "smb: {port: 0}\n" };
        let keytab = format!("kerberos: {{keytab: {}}}\n", self.at("keytab").display());
        let kerberos = if more.contains("kerberos:") { "" } else { &keytab };
        fs::write(self.at("gw.yaml"), format!("{text}{smb}{kerberos}")).unwrap();
        let words: Vec<&str> = [under, &[env!("CARGO_BIN_EXE_headgate")]].concat();
        let mut child = self
            .kdc
            .command(words[0])
            .args(&words[1..])
            .args(["serve", "--config", "gw.yaml", "--state", "state"])
            .current_dir(&self.home)
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(File::create(self.at("log")).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = |name: &str| -> SocketAddr {
            let word = line.split_whitespace().find_map(|w| w.strip_prefix(name));
            let at: SocketAddr =
                word.unwrap_or_else(|| panic!("`{line}`\n{}", self.log())).parse().unwrap();
            (Ipv4Addr::LOCALHOST, at.port()).into()
        };
        let (smb, nfs, admin) = (port("smb="), port("nfs="), port("admin="));
        self.daemon = Some(Daemon { child, smb, nfs, admin, _usual_port: usual_port });
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.at("log")).unwrap_or_default()
    }

    /// Gets tickets for this user into a separate cache.
    fn tickets(&self, user: &str, more: &[&str]) -> PathBuf {
        let cache = self.at(&format!("tickets-{}", user.replace('/', "-")));
        self.kdc.kinit(user, PASSWORD, &cache, more);
        cache
    }

    fn smbclient(&self, cache: &Path, options: &[&str]) -> Command {
        self.smbclient_in("data", cache, options)
    }

    fn smbclient_in(&self, share: &str, cache: &Path, options: &[&str]) -> Command {
        // Uses another build instead of the installed one.
        let program = std::env::var("HEADGATE_SMBCLIENT");
        let mut command = self.kdc.command(program.as_deref().unwrap_or("smbclient"));
        command
            .arg(format!("//{HOST}/{share}"))
            .args(["-I", "127.0.0.1", "-p", &self.daemon().smb.port().to_string()])
            .args(["-s", &self.at("smb.conf").display().to_string(), "--use-kerberos=required"])
            .args(options)
            .env("KRB5CCNAME", format!("FILE:{}", cache.display()))
            .current_dir(&self.home)
            .stdin(Stdio::null());
        command
    }

    /// Returns the output of smbclient, whether or not it succeeded.
    fn said(&self, cache: &Path, options: &[&str], commands: &str) -> String {
        self.said_in("data", cache, options, commands)
    }

    fn said_in(&self, share: &str, cache: &Path, options: &[&str], commands: &str) -> String {
        let done =
            self.smbclient_in(share, cache, options).args(["-c", commands]).output().unwrap();
        String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
    }

    /// Writes a file, lists it and reads it back.
    fn works(&self, cache: &Path, options: &[&str]) {
        let text = format!("written with {options:?}");
        fs::write(self.at("sent"), &text).unwrap();
        let _ = fs::remove_file(self.at("back"));
        let said = self.said(cache, options, "put sent there; ls; get there back; rm there");
        let back = fs::read_to_string(self.at("back")).unwrap_or_default();
        assert_eq!(back, text, "{options:?}: {said}\n{}", self.log());
    }

    /// Checks that the logon fails with this status, one log line with all of these parts, and a row in `headgate status`.
    fn is_refused(&self, cache: &Path, user: &str, reason: &str, remedy: &str) {
        let said = self.said(cache, &[], "ls");
        assert!(said.contains("NT_STATUS_LOGON_FAILURE"), "{said}\n{}", self.log());
        let log = self.log();
        let lines: Vec<&str> = log.lines().filter(|l| l.contains("logon refused")).collect();
        let [line] = lines[..] else { panic!("{log}") };
        for part in [&format!("user=\"{user}\""), reason, remedy] {
            assert!(line.contains(part), "{part}: {line}");
        }
        let row = self.refused().pop().unwrap();
        assert_eq!((&*row.rule, &*row.user, row.count), ("logon", user, 1));
        assert!(row.remedy.contains(remedy), "{row:?}");
    }

    /// Reloads and returns the output.
    fn reload(&self) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headgate"));
        command.args(["reload", "--state", "state"]).current_dir(&self.home);
        let done = command.output().unwrap();
        String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
    }

    fn refused(&self) -> Vec<RefusedStatus> {
        self.status().refused
    }

    fn status(&self) -> Snapshot {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let text = runtime.block_on(fetch(self.daemon().admin, "/status")).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

#[test]
fn a_user_of_this_host_reads_and_writes_by_every_dialect_and_cipher() {
    let world = World::start();
    let cache = world.tickets("nobody", &[]);
    for dialect in ["SMB2_02", "SMB2_10", "SMB3_00", "SMB3_02", "SMB3_11"] {
        world.works(&cache, &["-m", dialect, "--client-protection=sign"]);
    }
    world.works(&cache, &["-m", "SMB3_00", "--client-protection=encrypt"]);
    for cipher in ["AES-128-GCM", "AES-256-GCM", "AES-128-CCM", "AES-256-CCM"] {
        let cipher = format!("--option=client smb3 encryption algorithms={cipher}");
        world.works(&cache, &["-m", "SMB3_11", "--client-protection=encrypt", &cipher]);
    }
    assert!(!world.log().contains("refused"), "{}", world.log());
    // The user owns the files, and the client needs no new ticket while the KDC is stopped.
    let mut world = world;
    world.kdc.stop();
    world.said(&cache, &[], "put smb.conf its");
    let nobody = fs::metadata(world.at("data/its")).unwrap();
    assert_eq!(nobody.uid(), 65534);
    world.works(&cache, &[]);
}

/// The server accepts only sealed messages.
#[test]
fn files_of_every_size_are_listed_and_come_back_sealed() {
    let mut world = World::new();
    world.serve("smb: {port: 0, ntlm: off, encryption: required}", &[]);
    let cache = world.tickets("nobody", &[]);
    for size in [0, 1, 4095, 65_536, (1 << 20) + 1, (9 << 20) + 3] {
        let sent: Vec<u8> =
            (0..size).map(|at: u32| ((at % 251) ^ (at >> 16)).to_le_bytes()[0]).collect();
        fs::write(world.at("sent"), &sent).unwrap();
        let _ = fs::remove_file(world.at("back"));
        let commands = "put sent there; ls; get there back; rm there";
        let said = world.said(&cache, &["-m", "SMB3_11", "--client-protection=encrypt"], commands);
        let listed = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.first() == Some(&"there") && words.contains(&&*size.to_string())
        };
        assert!(said.lines().any(listed), "{size}: {said}\n{}", world.log());
        let back = fs::read(world.at("back")).unwrap_or_default();
        assert!(back == sent, "{size}: {said}\n{}", world.log());
    }
}

#[test]
fn without_a_ticket_there_is_no_session() {
    let mut world = World::new();
    world.serve("smb: {port: 0, ntlm: off}", &[]);
    let of_a_user = format!("nobody%{PASSWORD}");
    let none = world.at("no-tickets");
    for options in [&["-N"][..], &["--use-kerberos=off", "-U", &of_a_user]] {
        let done = world.smbclient(&none, options).args(["-c", "ls"]).output().unwrap();
        let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
        assert!(
            !done.status.success() && !said.contains("blocks available"),
            "{options:?}: {said}"
        );
        assert!(said.contains("NT_STATUS_"), "{options:?}: {said}");
    }
    // The server still accepts users with a ticket.
    world.works(&world.tickets("nobody", &[]), &[]);
}

/// Tickets of RFC 8009; names in `users` take precedence over those of the host.
#[test]
fn a_named_user_with_a_newer_encryption_type() {
    let mut world = World::new();
    fs::remove_file(world.at("keytab")).unwrap();
    let (keytab, host) = (world.at("keytab"), format!("cifs/{HOST}"));
    let new = "-e aes256-cts-hmac-sha384-192:normal";
    world.kdc.admin(&format!("ktadd -k {} {new} {host}", keytab.display()));
    world.kdc.user("alice", PASSWORD);
    fs::write(world.at("password"), "another one").unwrap();
    fs::set_permissions(world.at("password"), Permissions::from_mode(0o600)).unwrap();
    let file = world.at("password").display().to_string();
    let alice = format!("users: [{{name: alice, password_file: {file}, uid: 4711, gid: 4712}}]");
    world.serve(&alice, &[]);
    let cache = world.tickets("alice", &[]);
    world.works(&cache, &["--client-protection=encrypt"]);
    world.said(&cache, &[], "put smb.conf its");
    assert_eq!(fs::metadata(world.at("data/its")).unwrap().uid(), 4711);
    // Logs on with the password too, while passwords are accepted.
    let by_password = |world: &World| {
        let mut command = world.smbclient(Path::new("/none"), &["-c", "ls"]);
        let options = ["--use-kerberos=off", "-U", "alice%another one"];
        command.args(options).output().unwrap().status.success()
    };
    assert!(by_password(&world), "{}", world.log());
    world.serve(&format!("{alice}\nsmb: {{port: 0, ntlm: off}}"), &[]);
    assert!(!by_password(&world));
    world.works(&cache, &[]);
}

#[test]
fn keys_that_changed_need_no_restart_and_old_tickets_a_new_one() {
    let world = World::start();
    let cache = world.tickets("nobody", &[]);
    world.works(&cache, &[]);
    // Tickets of both work if the keytab has new keys next to the old ones.
    world.kdc.service(&format!("cifs/{HOST}"), &world.at("keytab"));
    world.works(&cache, &[]);
    let new = world.tickets("nobody", &[]);
    world.works(&new, &[]);
    // The keytab has only the new keys.
    fs::remove_file(world.at("keytab")).unwrap();
    world.kdc.service(&format!("cifs/{HOST}"), &world.at("keytab"));
    world.is_refused(&new, "", "the keytab has no key for the ticket", "put the current keys");
    world.works(&world.tickets("nobody", &[]), &[]);
}

#[test]
fn a_keytab_that_is_gone_lets_nobody_in() {
    let world = World::start();
    let cache = world.tickets("nobody", &[]);
    fs::remove_file(world.at("keytab")).unwrap();
    world.is_refused(&cache, "", "the keytab cannot be used", "`headgate check` says");
}

#[test]
fn another_server_s_keys_of_the_same_name_open_nothing() {
    let world = World::start();
    let cache = world.tickets("nobody", &[]);
    world.works(&cache, &[]);
    world.kdc.admin(&format!("delprinc -force cifs/{HOST}"));
    fs::remove_file(world.at("keytab")).unwrap();
    world.kdc.service(&format!("cifs/{HOST}"), &world.at("keytab"));
    world.is_refused(&cache, "", "made with another key", "put the current keys");
}

#[test]
fn clocks_that_differ() {
    let mut world = World::new();
    world.serve("", &["faketime", "-f", "+10m"]);
    let cache = world.tickets("nobody", &[]);
    world.is_refused(&cache, "", "the clocks of client and server differ", "five minutes");
}

#[test]
fn a_principal_who_is_nobody_here_is_no_guest_either() {
    let mut world = World::new();
    world.kdc.user("nobody/admin", PASSWORD);
    world.kdc.user("surely-no-user", PASSWORD);
    world.serve("  - {name: open, memory: true, guest: true}", &[]);
    let cache = world.tickets("surely-no-user", &[]);
    let user = "surely-no-user@LAB.TEST";
    world.is_refused(&cache, user, "no user here is this principal", "make the user on this host");
    world.serve("", &[]);
    let cache = world.tickets("nobody/admin", &[]);
    let user = "nobody/admin@LAB.TEST";
    world.is_refused(&cache, user, "no user here is this principal", "make the user on this host");
}

#[test]
fn the_superuser_does_not_come_by_a_ticket() {
    let world = World::start();
    world.kdc.user("root", PASSWORD);
    let cache = world.tickets("root", &[]);
    let reason = "this principal would be the superuser";
    world.is_refused(&cache, "root@LAB.TEST", reason, "name this one in `users`");
}

/// The session ends with the ticket, during the client's operations (MS-SMB2 section 3.3.5.2.9).
#[test]
fn a_session_ends_with_its_ticket() {
    let world = World::start();
    let cache = world.tickets("nobody", &["-l", "8s"]);
    // It would take the first line for a password without `-N`.
    let mut child = world
        .smbclient(&cache, &["-N"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (heard, lines) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            let _ = heard.send(line);
        }
    });
    let began = Instant::now();
    let mut all = String::new();
    let mut listed = 0;
    while !all.contains("NT_STATUS_NETWORK_SESSION_EXPIRED") {
        assert!(began.elapsed() < SOON, "{all}\n{}", world.log());
        if writeln!(input, "ls").is_err() {
            break;
        }
        // A result has several lines, an error has one.
        while let Ok(line) = lines.recv_timeout(Duration::from_millis(300)) {
            listed += usize::from(line.contains("blocks available"));
            all += &line;
            all.push('\n');
        }
    }
    drop(input);
    let _ = child.wait();
    reader.join().unwrap();
    let expired = all.contains("NT_STATUS_NETWORK_SESSION_EXPIRED");
    assert!(listed > 0 && expired, "{listed}: {all}{}", world.log());
    // A new ticket starts a new session.
    world.works(&world.tickets("nobody", &[]), &[]);
}

/// An expired ticket is rejected, although the library would accept it for five more minutes.
#[test]
fn a_ticket_that_has_run_out_begins_no_session() {
    let world = World::start();
    let cache = world.tickets("nobody", &["-l", "20s"]);
    world.works(&cache, &[]);
    let mut world = world;
    world.serve("", &["faketime", "-f", "+60s"]);
    let reason = "the ticket has run out";
    world.is_refused(&cache, "nobody@LAB.TEST", reason, "let the client get a new ticket");
}

/// A configuration without Kerberos ends the sessions that used tickets.
#[test]
fn tickets_that_are_not_taken_any_more() {
    let world = World::start();
    let cache = world.tickets("nobody", &[]);
    world.works(&cache, &[]);
    let text = fs::read_to_string(world.at("gw.yaml")).unwrap();
    let without: String =
        text.lines().filter(|l| !l.starts_with("kerberos:")).map(|l| format!("{l}\n")).collect();
    fs::write(world.at("gw.yaml"), without).unwrap();
    let said = world.reload();
    assert!(said.contains("kerberos.keytab none"), "{said}");
    assert!(!world.said(&cache, &[], "ls").contains("blocks available"));
}

/// Runs Samba's smbtorture with tickets: the tests that only run with tickets, and those of connections that join a session.
#[test]
fn smbtorture_of_sessions() {
    let mut world = World::new();
    world.serve("smb: {port: 0, signing: offered}", &[]);
    let suite = smbtorture::suite();
    let tests = smbtorture::of("kerberos").into_iter().chain(TORTURE);
    let failures: Vec<String> = std::thread::scope(|scope| {
        let begin = |test| {
            let (world, suite) = (&world, &suite);
            scope.spawn(move || torture(world, suite, test))
        };
        let running: Vec<_> = tests.map(begin).collect();
        running.into_iter().filter_map(|run| run.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Tests that pass with passwords too.
const TORTURE: [&str; 4] =
    ["smb2.session.bind1", "smb2.session.bind2", "smb2.session.reauth1", "smb2.session.reconnect1"];

/// Runs a test and returns its output if it failed.
fn torture(world: &World, suite: &Path, test: &str) -> Option<String> {
    let dir = world.at(&format!("torture-{test}"));
    fs::create_dir_all(dir.join("etc")).unwrap();
    fs::write(dir.join("etc/hosts"), format!("127.0.0.1 {HOST}\n")).unwrap();
    fs::copy(world.kdc.config(), dir.join("krb5.conf")).unwrap();
    let port = world.daemon().smb.port().to_string();
    let user = format!("nobody@{}%{PASSWORD}", kdc::REALM);
    let mut command = smbtorture::command(suite, &dir);
    command.args([&format!("//{HOST}/data"), "-p", &port, "-U", &user, "--use-kerberos=required"]);
    command.env("KRB5_CONFIG", "/tmp/krb5.conf");
    smbtorture::failure(command, test)
}
