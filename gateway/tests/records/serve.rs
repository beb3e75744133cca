//! Tests of gateways whose records are in CephFS.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use client::Volume;
use client::connect::Local;
use client::target::Target;
use config::Ceph;
use recovery::FILE;

use crate::world::{alone, conf, folder, open, script};

fn headgate() -> &'static str {
    env!("CARGO_BIN_EXE_headgate")
}

/// Writes the configuration of a gateway on this folder, whose state folder is in `dir`.
fn configure(dir: &Path, ceph: &Ceph) {
    fs::create_dir_all(dir).unwrap();
    let text = format!(
        "shares: [{{name: data, squash: none, ceph: {{filesystem: fs, path: {}, config: {}}}}}]\nrecords: data\n\
         state: {}/state\nadmin: off\nbind: 127.0.0.1\nnfs: {{port: 0, portmap: off}}\nsmb: {{port: 0}}\nrdma: off\n\
         names: own\n",
        ceph.path,
        conf(),
        dir.display()
    );
    fs::write(dir.join("files.yaml"), text).unwrap();
}

struct Gateway(Child, String);

/// Starts a gateway, in this epoch of this service if given; returns it when it is ready, or its output if it ended.
fn start(dir: &Path, term: Option<(&str, &str)>) -> Result<Gateway, Output> {
    let mut gateway = Command::new(headgate());
    gateway.args(["serve", "--config"]).arg(dir.join("files.yaml"));
    if let Some((service, epoch)) = term {
        gateway.env("HEADGATE_PARENT", std::process::id().to_string());
        gateway.envs([("HEADGATE_EPOCH", epoch), ("HEADGATE_CLUSTER", "c")]);
        gateway.env("HEADGATE_SERVICE", service);
    }
    let log = fs::File::create(dir.join("log")).unwrap();
    let mut child =
        gateway.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    if term.is_some() {
        // Renews the lease for a long time.
        writeln!(child.stdin.as_mut().unwrap(), "{}", u64::MAX / 2).unwrap();
    }
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    if line.starts_with("headgate ready") {
        return Ok(Gateway(child, line));
    }
    let mut output = child.wait_with_output().unwrap();
    output.stderr = fs::read(dir.join("log")).unwrap();
    Err(output)
}

fn said(refused: Result<Gateway, Output>) -> String {
    let output = refused.map(|_| "it serves").unwrap_err();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn records_of_another_service_a_later_epoch_or_a_newer_version_are_refused() {
    let _alone = alone();
    let (dir, ceph) = (tempfile::tempdir().unwrap(), folder());
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    configure(&one, &ceph);
    configure(&two, &ceph);
    drop(start(&one, Some(("files", "7"))).map_err(|o| o.stderr).unwrap());
    let why = said(start(&two, Some(("other", "8"))));
    assert!(why.contains("belong to the service c/files, and this is c/other"), "{why}");
    let why = said(start(&two, Some(("files", "6"))));
    assert!(why.contains("are of epoch 7, and this node was elected in epoch 6"), "{why}");
    assert!(why.contains("headgate cluster adopt"), "{why}");
    drop(start(&two, Some(("files", "8"))).map_err(|o| o.stderr).unwrap());
    // A store of a later version.
    let records = open(&ceph);
    let format: redb::TableDefinition<'static, &str, u64> = redb::TableDefinition::new("format");
    let file = recovery::Folder::open(&*records, FILE).unwrap();
    let db = redb::Database::builder().create_with_backend(Any(file)).unwrap();
    let work = db.begin_write().unwrap();
    work.open_table(format).unwrap().insert("version", 2).unwrap();
    work.commit().unwrap();
    drop((db, records));
    let why = said(start(&one, Some(("files", "9"))));
    assert!(why.contains("which a newer headgate has written"), "{why}");
}

#[derive(Debug)]
struct Any(Box<dyn recovery::StorageBackend>);

impl recovery::StorageBackend for Any {
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write(offset, data)
    }
}

#[test]
fn a_gateway_that_is_cut_off_from_its_records_says_so_and_ends() {
    let _alone = alone();
    let (dir, ceph) = (tempfile::tempdir().unwrap(), folder());
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    configure(&one, &ceph);
    configure(&two, &ceph);
    let mut first = start(&one, None).map_err(|o| o.stderr).unwrap();
    let second = start(&two, None).map_err(|o| o.stderr).unwrap();
    for _ in 0..600 {
        if let Some(status) = first.0.try_wait().unwrap() {
            assert!(!status.success());
            let log = fs::read_to_string(one.join("log")).unwrap();
            assert!(log.contains("cut this gateway off from its records"), "{log}");
            drop(second);
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("it serves on");
}

fn user(dir: &Path, words: &[&str], password: &str) -> String {
    let mut command = Command::new(headgate());
    command.arg("user").args(words).arg("--config").arg(dir.join("files.yaml"));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.take().unwrap(), "{password}").unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

async fn logs_on(gateway: &Gateway, who: &str) -> bool {
    let at = gateway.1.split_whitespace().find_map(|word| word.strip_prefix("smb=")).unwrap();
    let target: Target = format!("smb://{who}@{at}/data").parse().unwrap();
    let volume = Volume::open(&target, &Local::default(), client::Credential::sys(0, 0, &[])).await;
    volume.is_ok()
}

/// Returns the number of the cluster's clients.
fn sessions() -> usize {
    let listed = script().args(["ceph", "tell", "mds.a", "session", "ls"]).output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    serde_json::from_slice::<Vec<serde_json::Value>>(&listed.stdout).unwrap().len()
}

#[test]
fn users_move_with_the_records_and_a_gateway_takes_them_while_it_runs() {
    let _alone = alone();
    let (dir, ceph) = (tempfile::tempdir().unwrap(), folder());
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    configure(&one, &ceph);
    configure(&two, &ceph);
    user(&one, &["add", "alice", "--uid", "1000"], "correct-horse-battery");
    assert_eq!(
        sessions(),
        0,
        "a command takes leave of the cluster, or the next waits for a minute"
    );
    assert!(user(&two, &["list"], "").contains("alice"));
    assert_eq!(sessions(), 0);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let gateway = start(&two, None).map_err(|o| o.stderr).unwrap();
    assert!(runtime.block_on(logs_on(&gateway, "alice:correct-horse-battery")));
    user(&one, &["add", "bob", "--uid", "1001"], "staple-of-batteries");
    for _ in 0..600 {
        if runtime.block_on(logs_on(&gateway, "bob:staple-of-batteries")) {
            assert!(!one.join("state/smb-users").exists() && !two.join("state/secret").exists());
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("a user who was added cannot log on");
}
