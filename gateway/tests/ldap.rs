//! Users of an LDAP directory, by Debian's slapd with TLS, log on with Samba's smbclient.
//!
//! It takes root, because files get the numbers of users. The tier `third` unpacks slapd, whose folder is `HEADGATE_SLAPD`.
#![allow(clippy::unwrap_used)] // A test that cannot go on says so.

mod common;

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use client::connect::Local;
use client::target::Target;
use client::{Credential, Volume};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

const BASE: &str = "dc=lab,dc=test";
/// A wrong password, and the groups after a right one, cause a query if the answer is older than 5 s.
const ANSWER_IS_OLD: Duration = Duration::from_millis(5500);
/// Within this time a change must be in force, which the gateway finds without an order.
const FOUND_BY: Duration = Duration::from_secs(30);
/// One logon waits no longer for a silent directory: a turn, and the answer.
const LOGON_MAX: Duration = Duration::from_secs(8);

/// The part of RFC 2307bis, and of Samba's and FreeIPA's schemas, that the entries have.
const SCHEMA: &str = r"
attributetype ( 1.3.6.1.1.1.1.12 NAME 'memberUid' EQUALITY caseExactIA5Match SYNTAX 1.3.6.1.4.1.1466.115.121.1.26 )
attributetype ( 1.3.6.1.4.1.7165.2.1.25 NAME 'sambaNTPassword' EQUALITY caseIgnoreIA5Match SYNTAX 1.3.6.1.4.1.1466.115.121.1.26
  SINGLE-VALUE )
attributetype ( 1.3.6.1.4.1.7165.2.1.26 NAME 'sambaAcctFlags' EQUALITY caseIgnoreIA5Match SYNTAX 1.3.6.1.4.1.1466.115.121.1.26
  SINGLE-VALUE )
attributetype ( 1.3.6.1.4.1.99999.1 NAME 'ipaNTHash' EQUALITY octetStringMatch
  SYNTAX 1.3.6.1.4.1.1466.115.121.1.40 SINGLE-VALUE )
objectclass ( 1.3.6.1.1.1.2.0 NAME 'posixAccount' SUP top AUXILIARY MUST ( uid $ uidNumber $ gidNumber ) )
objectclass ( 1.3.6.1.1.1.2.2 NAME 'posixGroup' SUP top AUXILIARY MUST ( gidNumber ) MAY ( memberUid ) )
objectclass ( 1.3.6.1.4.1.7165.2.2.6 NAME 'sambaSamAccount' SUP top AUXILIARY MUST ( uid )
  MAY ( sambaNTPassword $ sambaAcctFlags $ ipaNTHash ) )
";

fn hex(password: &str) -> String {
    smb_auth::NtHash::of(password).0.iter().map(|byte| format!("{byte:02X}")).collect()
}

fn secret(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Runs a program and returns what it says on both outputs.
fn said(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&all).into_owned()
}

/// A directory, and a gateway with users from it.
struct Lab {
    root: PathBuf,
    home: tempfile::TempDir,
    port: u16,
    slapd: Option<Child>,
    gateway: Option<Child>,
    smb: SocketAddr,
    nfs: SocketAddr,
}

/// Makes an authority and the server's certificate for the host `localhost`.
fn certificates(home: &Path) {
    let mut authority = CertificateParams::new(vec![]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let (server, key) = (
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap(),
        KeyPair::generate().unwrap(),
    );
    let server = server.signed_by(&key, &issuer).unwrap();
    fs::write(home.join("ca.pem"), issuer.pem()).unwrap();
    fs::write(home.join("server.pem"), server.pem()).unwrap();
    secret(&home.join("server.key"), &key.serialize_pem());
}

impl Lab {
    /// Starts a directory with the user `dana`, and no gateway.
    fn new() -> Option<Self> {
        let Some(root) = std::env::var_os("HEADGATE_SLAPD").map(PathBuf::from) else {
            println!("skipped: HEADGATE_SLAPD names no folder with slapd");
            return None;
        };
        if !rustix::process::geteuid().is_root() {
            println!("skipped: it takes root");
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
        for folder in ["db", "data", "crew"] {
            fs::create_dir(at(folder)).unwrap();
        }
        fs::set_permissions(at("data"), Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::chown(at("crew"), Some(0), Some(7000)).unwrap();
        fs::set_permissions(at("crew"), Permissions::from_mode(0o770)).unwrap();
        secret(&at("password"), "of the gateway\n");
        fs::write(at("lab.schema"), SCHEMA).unwrap();
        certificates(home.path());
        let (etc, modules) = (root.join("etc/ldap/schema"), root.join("usr/lib/ldap"));
        let conf = format!(
            "include {etc}/core.schema\ninclude {etc}/cosine.schema\ninclude {home}/lab.schema\n\
             modulepath {modules}\nmoduleload back_mdb\n\
             TLSCertificateFile {home}/server.pem\nTLSCertificateKeyFile {home}/server.key\n\
             database mdb\nmaxsize 33554432\nsuffix \"{BASE}\"\nrootdn \"cn=admin,{BASE}\"\nrootpw of-the-admin\n\
             directory {home}/db\n\
             access to * by dn.exact=\"cn=gateway,{BASE}\" read by anonymous auth by * none\n",
            etc = etc.display(),
            modules = modules.display(),
            home = home.path().display(),
        );
        fs::write(at("slapd.conf"), conf).unwrap();
        let none = SocketAddr::from(([127, 0, 0, 1], 0));
        let port = free_port();
        let mut lab = Self { root, home, port, slapd: None, gateway: None, smb: none, nfs: none };
        lab.start_slapd();
        lab.add(&format!(
            "dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\no: lab\ndc: lab\n\n\
             dn: cn=gateway,{BASE}\nobjectClass: organizationalRole\nobjectClass: simpleSecurityObject\ncn: gateway\n\
             userPassword: of the gateway\n"
        ));
        lab.add_user("dana", 5001, &format!("sambaNTPassword: {}", hex("first")));
        lab.add_group("crew", 7000, "");
        Some(lab)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.root.join(name));
        let libraries = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
        command.env("LD_LIBRARY_PATH", self.root.join(libraries));
        command
    }

    fn start_slapd(&mut self) {
        let at = format!("ldaps://127.0.0.1:{} ldapi://{}", self.port, self.socket());
        let log = File::options().create(true).append(true).open(self.at("slapd.log")).unwrap();
        let mut command = self.program("usr/sbin/slapd");
        command.arg("-f").arg(self.at("slapd.conf")).args(["-h", &at, "-d", "0"]);
        self.slapd = Some(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let log = fs::read_to_string(self.at("slapd.log")).unwrap_or_default();
            assert!(began.elapsed() < FOUND_BY, "slapd does not listen\n{log}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn socket(&self) -> String {
        self.at("ldapi").display().to_string().replace('/', "%2F")
    }

    fn stop_slapd(&mut self) {
        if let Some(mut slapd) = self.slapd.take() {
            slapd.kill().unwrap();
            slapd.wait().unwrap();
        }
    }

    /// Stops the directory without ending its connections, or lets it continue.
    fn freeze_slapd(&self, signal: rustix::process::Signal) {
        let pid = self.slapd.as_ref().unwrap().id();
        let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    fn change(&self, program: &str, ldif: &str) {
        let mut command = self.program(program);
        let by = format!("cn=admin,{BASE}");
        let at = format!("ldapi://{}", self.socket());
        command.args(["-x", "-H", &at, "-D", &by, "-w", "of-the-admin"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(ldif.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{ldif}\n{}", said(&done));
    }

    fn add(&self, ldif: &str) {
        self.change("usr/bin/ldapadd", ldif);
    }

    fn modify(&self, dn: &str, change: &str) {
        self.change(
            "usr/bin/ldapmodify",
            &format!("dn: {dn},{BASE}\nchangetype: modify\n{change}\n"),
        );
    }

    fn add_user(&self, name: &str, uid: u32, more: &str) {
        self.add(&format!(
            "dn: uid={name},{BASE}\nobjectClass: account\nobjectClass: posixAccount\nobjectClass: sambaSamAccount\n\
             uid: {name}\nuidNumber: {uid}\ngidNumber: 5000\n{more}\n"
        ));
    }

    fn add_group(&self, name: &str, gid: u32, more: &str) {
        self.add(&format!(
            "dn: cn={name},{BASE}\nobjectClass: organizationalRole\nobjectClass: posixGroup\ncn: {name}\n\
             gidNumber: {gid}\n{more}\n"
        ));
    }

    fn configuration(&self, more: &str) -> String {
        let home = self.home.path().display();
        format!(
            "bind: 127.0.0.1\nadmin: 127.0.0.1:0\nrdma: off\ndiscovery: off\nprivileged_ports: off\n\
             nfs: {{port: 0, portmap: off}}\nsmb: {{port: 0}}\nstate: {home}/state\n\
             shares:\n  - {{name: data, path: {home}/data}}\n  - {{name: crew, path: {home}/crew, \
             access: {{write: [\"@crew\"]}}}}\n\
             users_from:\n  ldap: ldaps://localhost:{}\n  base: \"{BASE}\"\n  bind_dn: \"cn=gateway,{BASE}\"\n  \
             bind_password_file: {home}/password\n  ca: {home}/ca.pem\n{more}",
            self.port
        )
    }

    fn serve(&mut self) {
        fs::write(self.at("gw.yaml"), self.configuration("")).unwrap();
        let log = File::options().create(true).append(true).open(self.at("log")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_headgate"))
            .args(["serve", "--config", "gw.yaml"])
            .current_dir(&self.home)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let [nfs, smb, _] = common::listening(&mut child, self.home.path());
        (self.nfs, self.smb, self.gateway) = (nfs, smb, Some(child));
    }

    fn stop_gateway(&mut self) {
        if let Some(mut gateway) = self.gateway.take() {
            gateway.kill().unwrap();
            gateway.wait().unwrap();
        }
    }

    fn headgate(&self, args: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headgate"));
        said(&command.args(args).current_dir(&self.home).output().unwrap())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.at("log")).unwrap()
    }

    /// Runs commands of smbclient on a share, and returns what it says.
    fn smbclient(&self, share: &str, user: &str, password: &str, commands: &str) -> String {
        let (share, port) = (format!("//127.0.0.1/{share}"), self.smb.port().to_string());
        let who = format!("{user}%{password}");
        let args = ["60", "smbclient", &share, "-p", &port, "-U", &who, "-c", commands];
        said(&Command::new("timeout").args(args).current_dir(&self.home).output().unwrap())
    }

    /// Returns whether a logon succeeds, which must not take long.
    fn logs_on(&self, user: &str, password: &str) -> bool {
        let began = Instant::now();
        let told = self.smbclient("data", user, password, "ls");
        assert!(began.elapsed() < LOGON_MAX, "{:?}: {told}", began.elapsed());
        let is_in = told.contains("blocks of size");
        assert_ne!(is_in, told.contains("NT_STATUS_LOGON_FAILURE"), "{told}\n{}", self.log());
        is_in
    }

    fn enters(&self, share: &str, user: &str, password: &str) -> bool {
        self.smbclient(share, user, password, "ls").contains("blocks of size")
    }

    fn status(&self) -> serde_json::Value {
        let told = self.headgate(&["status", "--json", "--config", "gw.yaml"]);
        serde_json::from_str(&told).unwrap_or_else(|e| panic!("{e}: {told}"))
    }

    /// Waits for a change that the gateway finds without an order.
    fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < FOUND_BY, "{what}\n{}", self.log());
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn answers(&self) -> bool {
        self.status()["directory"]["answers"] == true
    }

    /// Lists the folder of a share over NFS.
    fn lists_over_nfs(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let target: Target = format!("nfs://{}/data?version=4.1", self.nfs).parse().unwrap();
        let began = Instant::now();
        runtime.block_on(async {
            let cred = Credential::sys(5001, 5000, &[]);
            Volume::open(&target, &Local::default(), cred).await.unwrap();
        });
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for child in [&mut self.slapd, &mut self.gateway].into_iter().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn passwords_and_numbers_are_those_of_the_directory() {
    let Some(mut lab) = Lab::new() else { return };
    lab.add_user("root2", 0, &format!("sambaNTPassword: {}", hex("first")));
    lab.add_user("off", 5002, &format!("sambaNTPassword: {}\nsambaAcctFlags: [UD]", hex("first")));
    lab.add_user("none", 5003, "");
    lab.serve();
    assert!(lab.logs_on("dana", "first"), "{}", lab.log());
    assert!(!lab.logs_on("dana", "second") && !lab.logs_on("nobody-of-this-name", "first"));
    for (name, why) in [
        ("root2", "uidNumber 0, which is that of root"),
        ("off", "has disabled the user"),
        ("none", "has no NT hash"),
        ("d*", "no such user"),
    ] {
        assert!(!lab.logs_on(name, "first"), "{name}");
        assert!(lab.log().contains(why), "{name}: {}", lab.log());
    }
    let told = lab.smbclient("data", "DANA", "first", "put password made; mkdir folder");
    let made = fs::metadata(lab.at("data/made")).unwrap_or_else(|e| panic!("{e}: {told}"));
    assert_eq!((made.uid(), made.gid()), (5001, 5000));
    lab.lists_over_nfs();
    // A password that has just been changed works, and the one before it does not.
    thread::sleep(ANSWER_IS_OLD);
    lab.modify(
        "uid=dana",
        &format!("replace: sambaNTPassword\nsambaNTPassword: {}", hex("second")),
    );
    assert!(lab.logs_on("dana", "second"), "{}", lab.log());
    assert!(!lab.logs_on("dana", "first"));
    // FreeIPA's attribute is binary.
    let hash = smb_auth::NtHash::of("third");
    let file = lab.at("hash");
    fs::write(&file, &hash.0[..]).unwrap();
    thread::sleep(ANSWER_IS_OLD);
    lab.modify(
        "uid=dana",
        &format!(
            "delete: sambaNTPassword\n-\nadd: ipaNTHash\nipaNTHash:< file://{}",
            file.display()
        ),
    );
    assert!(lab.logs_on("dana", "third"), "{}", lab.log());
    // The directory has the password: it is changed there.
    let port = lab.smb.port().to_string();
    let change = [
        "-p",
        &port,
        "127.0.0.1",
        "-U",
        "dana%third",
        "-c",
        "chgpasswd2 dana third 'one more password'",
    ];
    let told = said(&Command::new("rpcclient").args(change).output().unwrap());
    assert!(told.contains("NT_STATUS_ACCOUNT_RESTRICTION"), "{told}\n{}", lab.log());
    assert!(lab.log().contains("the LDAP directory of `users_from` has the password"));
    thread::sleep(ANSWER_IS_OLD);
    lab.change("usr/bin/ldapmodify", &format!("dn: uid=dana,{BASE}\nchangetype: delete\n"));
    assert!(!lab.logs_on("dana", "third"), "it is gone");
    for secret in ["of the gateway", &hex("first"), &hex("second").to_lowercase()] {
        assert!(!lab.log().contains(secret));
    }
}

#[test]
fn silent_directory_locks_no_known_user_out() {
    let Some(mut lab) = Lab::new() else { return };
    lab.add_user("erin", 5004, &format!("sambaNTPassword: {}", hex("first")));
    lab.serve();
    assert!(lab.logs_on("dana", "first"), "{}", lab.log());
    lab.until("the answer is kept", || lab.at("state/ldap-users").exists());
    assert_eq!(fs::metadata(lab.at("state/ldap-users")).unwrap().mode() & 0o777, 0o600);
    lab.stop_slapd();
    thread::sleep(ANSWER_IS_OLD);
    for _ in 0..2 {
        assert!(lab.logs_on("dana", "first") && !lab.logs_on("dana", "second"));
        assert!(!lab.logs_on("erin", "first"), "it is not known");
    }
    assert!(lab.log().contains("the directory that may know the user does not answer"));
    assert!(!lab.answers());
    assert!(lab.headgate(&["status", "--config", "gw.yaml"]).contains("LDAP: ldaps://localhost"));
    // The answers survive the gateway.
    lab.stop_gateway();
    lab.serve();
    assert!(lab.logs_on("dana", "first"), "{}", lab.log());
    lab.start_slapd();
    lab.until("the directory answers again", || lab.answers());
    assert!(lab.logs_on("erin", "first"), "{}", lab.log());
    // A directory that takes connections and never answers.
    lab.freeze_slapd(rustix::process::Signal::STOP);
    thread::sleep(ANSWER_IS_OLD);
    assert!(lab.logs_on("erin", "first") && lab.logs_on("dana", "first"), "{}", lab.log());
    lab.lists_over_nfs();
    lab.freeze_slapd(rustix::process::Signal::CONT);
    lab.until("it goes on", || lab.answers());
}

#[test]
fn groups_of_directory_count_from_the_next_logon() {
    let Some(mut lab) = Lab::new() else { return };
    lab.stop_slapd();
    lab.serve();
    // No answer is kept: the share that names the group waits, and no other.
    assert!(lab.log().contains("share crew: `@crew`: the directory of users does not answer"));
    lab.start_slapd();
    lab.until("the directory answers", || lab.answers());
    lab.until("the group is resolved", || lab.log().contains("can be resolved: it is served"));
    assert!(lab.logs_on("dana", "first") && !lab.enters("crew", "dana", "first"));
    lab.modify("cn=crew", "add: memberUid\nmemberUid: dana");
    thread::sleep(ANSWER_IS_OLD);
    assert!(lab.enters("crew", "dana", "first"), "{}", lab.log());
    let told = lab.headgate(&["check", "--config", "gw.yaml", "--user", "dana"]);
    assert!(told.contains("its groups in the LDAP directory: crew (7000)"), "{told}");
    assert!(told.contains("dana: user 5001, groups 5000 7000"), "{told}");
    lab.modify("cn=crew", "delete: memberUid");
    thread::sleep(ANSWER_IS_OLD);
    assert!(!lab.enters("crew", "dana", "first"), "{}", lab.log());
    // Members by the names of their entries.
    lab.change("usr/bin/ldapmodify", &format!("dn: cn=crew,{BASE}\nchangetype: delete\n"));
    lab.add(&format!(
        "dn: cn=crew,{BASE}\nobjectClass: groupOfNames\nobjectClass: posixGroup\ncn: crew\ngidNumber: 7000\n\
         member: uid=dana,{BASE}\n"
    ));
    thread::sleep(ANSWER_IS_OLD);
    assert!(lab.enters("crew", "dana", "first"), "{}", lab.log());
}

#[test]
fn faults_are_told_and_settings_change_live() {
    let Some(mut lab) = Lab::new() else { return };
    lab.add_user("erin", 5004, &format!("sambaNTPassword: {}", hex("first")));
    lab.serve();
    assert!(lab.logs_on("dana", "first") && lab.logs_on("erin", "first"), "{}", lab.log());
    let text = lab.configuration("  filter: (uid=dana)\n");
    fs::write(lab.at("gw.yaml"), text).unwrap();
    let told = lab.headgate(&["reload", "--state", "state"]);
    assert!(told.contains("users_from"), "{told}");
    assert!(lab.logs_on("dana", "first") && !lab.logs_on("erin", "first"), "{}", lab.log());
    let check = |lab: &Lab, from: &str, to: &str| {
        let text = lab.configuration("");
        assert!(text.contains(from), "{from}");
        fs::write(lab.at("other.yaml"), text.replace(from, to)).unwrap();
        lab.headgate(&["check", "--config", "other.yaml"])
    };
    let sound = check(&lab, "data, ", "data, ");
    assert!(
        sound.contains("LDAP: 1 of 1 servers answer") && !sound.contains("LDAP: ldaps"),
        "{sound}"
    );
    let (port, other) = (lab.port.to_string(), free_port().to_string());
    secret(&lab.at("wrong"), "another\n");
    fs::copy(lab.at("server.pem"), lab.at("no-authority.pem")).unwrap();
    for (from, to, wanted) in [
        (port.as_str(), other.as_str(), "it cannot be connected"),
        ("localhost", "127.0.0.1", "TLS fails"),
        ("ca.pem", "no-authority.pem", "TLS fails"),
        ("/password", "/wrong", "refuses `bind_dn` or its password: invalidCredentials"),
        ("base: \"dc=lab", "base: \"dc=other", "does not show `base`"),
    ] {
        let told = check(&lab, from, to);
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
    lab.modify("uid=dana", "delete: sambaNTPassword");
    lab.modify("uid=erin", "delete: sambaNTPassword");
    let told = check(&lab, "data, ", "data, ");
    assert!(told.contains("no user with an NT hash"), "{told}");
    fs::set_permissions(lab.at("password"), Permissions::from_mode(0o644)).unwrap();
    let told = check(&lab, "data, ", "data, ");
    assert!(told.contains("can be read by others"), "{told}");
}
