//! Compares the access that smbclient gets from smbd with a file, and from the gateway with the imported file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::world::{USERS, World, folders};
use crate::{files, imported, kept, name_of};

const PASSWORD: &str = "correct horse";
/// Users that try to connect; the empty name is a guest.
const WHO: [&str; 5] = ["alice", "bob", "carol", "eve", ""];
/// Time limit for the start of a server.
const SOON: Duration = Duration::from_secs(30);
/// Hosts that are probed at once.
const WORKERS: usize = 3;

/// Rights of a user on a share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct May {
    list: bool,
    read: bool,
    write: bool,
}

impl May {
    fn is_within(self, other: Self) -> bool {
        (!self.list || other.list) && (!self.read || other.read) && (!self.write || other.write)
    }
}

/// Returns Samba's server, if it is installed: `HEADGATE_SMBD` names it.
fn smbd() -> Option<PathBuf> {
    let named = std::env::var_os("HEADGATE_SMBD").map(PathBuf::from);
    named.into_iter().chain(["/usr/sbin/smbd".into()]).find(|path| path.exists())
}

/// A server that ends on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Creates users with passwords for Samba, once for each host.
fn passwords(world: &World) {
    fs::create_dir_all(world.at("private")).unwrap();
    let config = world.at("passwords.conf");
    let backend = format!("tdbsam:{}", world.at("private/passdb.tdb").display());
    let folder = world.path().display();
    fs::write(
        &config,
        format!("[global]\nprivate dir = {folder}/private\npassdb backend = {backend}\n"),
    )
    .unwrap();
    for (user, _) in USERS {
        let mut command = world.command("smbpasswd");
        command.arg("-c").arg(&config).args(["-s", "-a", user]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let twice = format!("{PASSWORD}\n{PASSWORD}\n");
        child.stdin.take().unwrap().write_all(twice.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "smbpasswd of {user}");
        fs::write(world.at(&format!("{user}.password")), PASSWORD).unwrap();
    }
}

fn samba(world: &World, smbd: &Path, file: &Path) -> (Running, u16) {
    let port = free_port();
    let folder = world.path().display();
    // Its cached identities of the previous file would be wrong for this one.
    let _ = fs::remove_dir_all(world.at("samba"));
    for name in ["run", "cache", "state"] {
        fs::create_dir_all(world.at(&format!("samba/{name}"))).unwrap();
    }
    let config = world.at("smb.conf");
    fs::write(&config, without_modules(&fs::read_to_string(file).unwrap())).unwrap();
    let mut command = world.command(smbd.to_str().unwrap());
    command
        .args(["--foreground", "--no-process-group", "--debug-stdout", "--configfile"])
        .arg(&config);
    for option in [
        format!("smb ports={port}"),
        format!("private dir={folder}/private"),
        format!("passdb backend=tdbsam:{folder}/private/passdb.tdb"),
        format!("pid directory={folder}/samba/run"),
        format!("lock directory={folder}/samba/run"),
        format!("state directory={folder}/samba/state"),
        format!("cache directory={folder}/samba/cache"),
        format!("ncalrpc dir={folder}/samba/run/ncalrpc"),
        "security=user".to_owned(),
        "server role=standalone server".to_owned(),
        "realm=".to_owned(),
        "clustering=no".to_owned(),
        "load printers=no".to_owned(),
        "disable spoolss=yes".to_owned(),
        "interfaces=lo".to_owned(),
        "bind interfaces only=yes".to_owned(),
        "restrict anonymous=0".to_owned(),
    ] {
        command.arg(format!("--option={option}"));
    }
    let log = File::create(world.at("smbd.log")).unwrap();
    let child =
        command.stdout(log.try_clone().unwrap()).stderr(log).stdin(Stdio::null()).spawn().unwrap();
    let mut running = Running(child);
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        let ended = running.0.try_wait().unwrap();
        let log = || fs::read_to_string(world.at("smbd.log")).unwrap_or_default();
        assert!(ended.is_none() && began.elapsed() < SOON, "smbd {}: {}", name_of(file), log());
        std::thread::yield_now();
    }
    (running, port)
}

/// Removes lines that need a module: smbd refuses all clients if one is not installed. Restricting modules turn a share into
/// a comment, which is not probed.
fn without_modules(text: &str) -> String {
    let needs = |line: &&str| {
        let key = line.split('=').next().unwrap_or_default().trim().to_lowercase();
        ["vfs objects", "vfs object", "wide links"].contains(&&*key)
    };
    text.lines().filter(|line| !needs(line)).map(|line| format!("{line}\n")).collect()
}

fn gateway(world: &World, file: &Path) -> (Running, u16) {
    let _ = fs::remove_dir_all(world.at("gateway"));
    let mut command = world.headgate();
    command.args(["serve", "--config"]).arg(file).arg("--state").arg(world.at("gateway"));
    command.args(
        "--bind 127.0.0.1 --admin off --portmap off --rdma off --nfs-port 0 --smb-port 0"
            .split(' '),
    );
    for (user, _) in USERS {
        command.arg(format!("--user={user}={}", world.at(&format!("{user}.password")).display()));
    }
    let log = File::create(world.at("gateway.log")).unwrap();
    let mut child =
        command.stdout(Stdio::piped()).stderr(log).stdin(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let running = Running(child);
    let at = line.split_whitespace().find_map(|word| word.strip_prefix("smb=127.0.0.1:"));
    let log = || fs::read_to_string(world.at("gateway.log")).unwrap_or_default();
    let port = at.unwrap_or_else(|| panic!("{}: {line}{}", name_of(file), log())).parse().unwrap();
    (running, port)
}

/// Returns the rights of a user on a share with the folder `real`.
fn probe(world: &World, port: u16, share: &str, who: &str, real: &Path) -> May {
    let (mark, out) = (world.at("mark"), world.at("out"));
    fs::write(&mark, "new").unwrap();
    let _ = fs::remove_file(&out);
    let user = if who.is_empty() { "%".to_owned() } else { format!("{who}%{PASSWORD}") };
    let work = format!("ls; get probe {}; put {} new", out.display(), mark.display());
    let mut command = Command::new("smbclient");
    command.arg(format!("//127.0.0.1/{share}")).args([
        "-p",
        &port.to_string(),
        "-U",
        &user,
        "-c",
        &work,
    ]);
    if who.is_empty() {
        command.arg("-N");
    }
    let o = command.stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&o.stdout);
    let list = told.lines().any(|line| line.trim_start().starts_with("probe "));
    let write = fs::remove_file(real.join("new")).is_ok();
    May { list, read: out.exists(), write }
}

/// Returns the rights of each user on each share of a server.
fn probes(
    world: &World,
    port: u16,
    shares: &[(String, PathBuf)],
) -> BTreeMap<(String, &'static str), May> {
    let mut all = BTreeMap::new();
    for (share, real) in shares {
        for who in WHO {
            let real = if share == "homes" { real.join(who) } else { real.clone() };
            all.insert((share.clone(), who), probe(world, port, share, who, &real));
        }
    }
    all
}

/// Runs both servers with one file and records whether they grant the same rights, fewer, or more.
fn compare(world: &World, smbd: &Path, file: &Path, told: &Mutex<[Vec<String>; 3]>) {
    let yaml = imported(file);
    if kept(&yaml).is_empty() {
        return;
    }
    let config = world.at("gw.yaml");
    fs::write(&config, &yaml).unwrap();
    let read: serde_yaml::Value = serde_yaml::from_str(&yaml).unwrap();
    let names = read["shares"].as_sequence().unwrap().iter();
    let names = names.map(|share| share["name"].as_str().unwrap().to_owned());
    let of = |(name, path): (String, String)| {
        world.make(&path);
        let real = world.real(&path).unwrap();
        (name, real)
    };
    let shares: Vec<(String, PathBuf)> = names.zip(folders(&yaml)).map(of).collect();
    let was = {
        let (_running, port) = samba(world, smbd, file);
        probes(world, port, &shares)
    };
    let is = {
        let (_running, port) = gateway(world, &config);
        probes(world, port, &shares)
    };
    let mut told = told.lock().unwrap();
    for (at, is) in is {
        let was = was[&at];
        let kind = if is == was { 0 } else { 2 - usize::from(is.is_within(was)) };
        told[kind].push(format!("{} {} {:?}: {is:?}, was {was:?}", name_of(file), at.0, at.1));
    }
}

#[test]
fn nobody_may_do_more_by_the_result_than_by_samba() {
    let has_client = Command::new("smbclient").arg("--version").output().is_ok();
    let Some(smbd) = smbd().filter(|_| has_client) else {
        println!(
            "skipped: it takes smbclient and smbd (package samba; HEADGATE_SMBD names another place)"
        );
        return;
    };
    let queue: Mutex<Vec<PathBuf>> =
        Mutex::new(files().into_iter().filter(|f| f.extension().unwrap() == "conf").collect());
    let told: Mutex<[Vec<String>; 3]> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let Some(world) = World::new() else { return };
                passwords(&world);
                loop {
                    let next = queue.lock().unwrap().pop();
                    let Some(file) = next else { return };
                    compare(&world, &smbd, &file, &told);
                }
            });
        }
    });
    let [same, fewer, more] = told.into_inner().unwrap();
    if same.is_empty() {
        println!("skipped: it takes root and mount namespaces");
        return;
    }
    println!("{} the same, {} fewer:\n{}", same.len(), fewer.len(), fewer.join("\n"));
    assert!(more.is_empty(), "{}", more.join("\n"));
    // Fewer rights come from hosts that Samba admits without being configured to, and similar cases.
    assert!(fewer.len() * 10 <= same.len(), "{} of {}", fewer.len(), same.len());
}
