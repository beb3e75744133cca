//! An MIT krb5 KDC for one test: its database, configuration and port are in a separate folder, and it ends with the test's
//! process. Needs the Debian packages krb5-kdc, krb5-admin-server and krb5-user.
//!
//! *Errors.* Panics with the output of the programs.
#![allow(clippy::expect_used)]

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io::Write, thread};

pub const REALM: &str = "LAB.TEST";
/// Limit for the KDC to start listening.
const START_MAX: Duration = Duration::from_secs(20);

/// Returns an unused port.
///
/// # Panics
/// If there is none.
pub fn free_port() -> u16 {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr());
    free.expect("a free port").port()
}

/// Waits until a KDC listens at this port.
///
/// # Panics
/// If it does not; includes its log.
pub fn until_it_listens(port: u16, log: &dyn Fn() -> String) {
    let began = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        assert!(began.elapsed() < START_MAX, "the KDC does not listen: {}", log());
        thread::sleep(Duration::from_millis(20));
    }
}

pub struct Kdc {
    dir: tempfile::TempDir,
    running: Option<Child>,
}

impl Default for Kdc {
    fn default() -> Self {
        Self::start()
    }
}

impl Kdc {
    /// Starts a KDC with an empty database.
    ///
    /// # Panics
    /// If a program is missing or fails.
    pub fn start() -> Self {
        let port = free_port();
        let mut kdc = Self::elsewhere(port);
        let at = kdc.dir().display();
        let profile = format!(
            "[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n[realms]\n {REALM} = {{\n  \
             database_name = {at}/principal\n  key_stash_file = {at}/stash\n  max_life = 10h\n }}\n[logging]\n \
             kdc = FILE:{at}/kdc.log\n"
        );
        fs::write(kdc.dir().join("kdc.conf"), profile).expect("kdc.conf");
        kdc.run("kdb5_util", &["create", "-r", REALM, "-s", "-P", "master"]);
        kdc.resume();
        until_it_listens(port, &|| kdc.log());
        kdc
    }

    /// The configuration of clients for a KDC that is another program on this port.
    ///
    /// # Panics
    /// If no folder can be created.
    pub fn elsewhere(port: u16) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let conf = format!(
            "[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n rdns = false\n \
             dns_canonicalize_hostname = false\n udp_preference_limit = 1\n[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n \
             }}\n[domain_realm]\n localhost = {REALM}\n"
        );
        fs::write(dir.path().join("krb5.conf"), conf).expect("krb5.conf");
        Self { dir, running: None }
    }

    /// Starts it again after [`Kdc::stop`]. It ends with this process, because its shell's input ends then.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn resume(&mut self) {
        let script = "krb5kdc -n & pid=$!; cat >/dev/null; kill $pid; wait $pid";
        let child = self
            .command("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.running = Some(child.expect("a KDC"));
    }

    /// Stops it; issued tickets stay valid.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.running.take() {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The path for `KRB5_CONFIG`.
    pub fn config(&self) -> PathBuf {
        self.dir().join("krb5.conf")
    }

    /// The content of its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir().join("kdc.log")).unwrap_or_default()
    }

    /// The environment variables of a program that uses this KDC.
    pub fn environment(&self) -> [(&'static str, String); 3] {
        let at = |name: &str| self.dir().join(name).display().to_string();
        [
            ("KRB5_CONFIG", at("krb5.conf")),
            ("KRB5_KDC_PROFILE", at("kdc.conf")),
            ("KRB5RCACHENAME", format!("file2:{}", at("replays"))),
        ]
    }

    /// Prepares a program that uses this KDC.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/sbin")).envs(self.environment());
        command
    }

    fn run(&self, program: &str, args: &[&str]) -> String {
        let done = self.command(program).args(args).output();
        let done = done.unwrap_or_else(|e| panic!("{program}: {e}; install krb5-kdc"));
        let said = [done.stdout, done.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(done.status.success(), "{program} {args:?}: {said}");
        said
    }

    /// Queries the database directly.
    ///
    /// # Panics
    /// If the query fails.
    pub fn admin(&self, query: &str) -> String {
        let said = self.run("kadmin.local", &["-r", REALM, "-q", query]);
        assert!(!said.contains("while "), "kadmin.local {query}: {said}");
        said
    }

    /// Adds a user with a password.
    pub fn user(&self, name: &str, password: &str) {
        self.admin(&format!("addprinc -pw {password} {name}"));
    }

    /// Adds a service with random keys, or changes its keys, and writes them to a keytab, created with mode 0600.
    pub fn service(&self, name: &str, keytab: &Path) {
        let known = self.admin("listprincs");
        let full = format!("{name}@{REALM}");
        if !known.lines().any(|line| line == full) {
            self.admin(&format!("addprinc -randkey {name}"));
        }
        self.admin(&format!("ktadd -k {} {name}", keytab.display()));
    }

    /// Obtains tickets of a user in this cache; `more`: options of kinit(1).
    ///
    /// # Panics
    /// If the KDC refuses.
    pub fn kinit(&self, name: &str, password: &str, cache: &Path, more: &[&str]) {
        let mut command = self.command("kinit");
        command.args(["-c", &cache.display().to_string()]).args(more).arg(name);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("kinit");
        let mut input = child.stdin.take().expect("its input");
        writeln!(input, "{password}").expect("a password");
        drop(input);
        let done = child.wait_with_output().expect("kinit");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "kinit {name}: {said}{}", self.log());
    }
}

impl Drop for Kdc {
    fn drop(&mut self) {
        self.stop();
    }
}
