//! Snapshots of a share's folder: previous versions by smbclient, `.snapshot` by libnfs, and the rights by every protocol.
#![allow(clippy::unwrap_used)] // A test that cannot go on says so.

mod common;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::connect::Local;
use client::nfs3::{CreateHow, SetAttr, Stable};
use client::target::Target;
use client::{Credential, Error, Volume};
use iobuf::Buf;
use vfs::Backend;
use vfs::acl::{Ace, Acl, Who, mask};
use vfs::local::{LocalBackend, LocalConfig};

const PASSWORD: &str = "secret";
const MONDAY: (&str, &str) = ("2023-11-27_080000", "@GMT-2023.11.27-08.00.00");
const FRIDAY: (&str, &str) = ("2023-12-01_080000", "@GMT-2023.12.01-08.00.00");
const LATEST: &str = "@GMT-2023.12.01-08.00.00";

/// `nfsstat3` (RFC 1813 section 2.6), which NFS 4 has with the same numbers.
const ROFS: u32 = 30;
const STALE: u32 = 70;

/// A gateway with the share `data`, whose snapshots are beside its folder.
struct Gateway {
    child: Child,
    home: tempfile::TempDir,
    nfs: std::net::SocketAddr,
    smb: std::net::SocketAddr,
}

impl Gateway {
    /// Starts a gateway after the folders were filled.
    fn new(fill: impl FnOnce(&Path, &dyn Fn(&str) -> PathBuf)) -> Self {
        let home = tempfile::tempdir().unwrap();
        let folder = |path: &Path| {
            fs::create_dir_all(path).unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        };
        let (share, all) = (home.path().join("share"), home.path().join("snapshots"));
        [home.path(), &share, &all].into_iter().for_each(folder);
        let snapshot = |name: &str| {
            let path = all.join(name);
            folder(&path);
            path
        };
        fill(&share, &snapshot);
        let password = home.path().join("password");
        fs::write(&password, PASSWORD).unwrap();
        fs::set_permissions(&password, Permissions::from_mode(0o600)).unwrap();
        let text = format!(
            "bind: 127.0.0.1\nadmin: 127.0.0.1:0\nrdma: off\ndiscovery: off\nnfs: {{port: 0, portmap: off}}\n\
             smb: {{port: 0}}\nprivileged_ports: off\n\
             users: [{{name: alice, password_file: {}, uid: 1000, gid: 1000}}]\nshares:\n  \
             - {{name: data, squash: none, path: {}, snapshots: \"{}/{{time:%Y-%m-%d_%H%M%S}}\"}}\n",
            password.display(),
            share.display(),
            all.display()
        );
        fs::write(home.path().join("gw.yaml"), text).unwrap();
        let (child, [nfs, smb]) = Self::serve(home.path());
        Self { child, home, nfs, smb }
    }

    fn serve(home: &Path) -> (Child, [std::net::SocketAddr; 2]) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_headgate"))
            .args(["serve", "--config", "gw.yaml", "--state", "state"])
            .current_dir(home)
            .stdout(Stdio::piped())
            .stderr(File::create(home.join("log")).unwrap())
            .spawn()
            .unwrap();
        let [nfs, smb, _] = common::listening(&mut child, home);
        (child, [nfs, smb])
    }

    fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let (child, [nfs, smb]) = Self::serve(self.home.path());
        (self.child, self.nfs, self.smb) = (child, nfs, smb);
    }

    /// Runs a program and returns what it says.
    async fn run(&self, program: &str, args: &[&str]) -> String {
        let mut command = tokio::process::Command::new(program);
        let done = command.args(args).current_dir(&self.home).output().await.unwrap();
        String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
    }

    async fn smbclient(&self, words: &str) -> String {
        let (port, user) = (self.smb.port().to_string(), format!("alice%{PASSWORD}"));
        let args = ["//127.0.0.1/data", "-p", &port, "-U", &user, "-c", words];
        self.run("smbclient", &args).await
    }

    async fn versions(&self, name: &str) -> Vec<String> {
        let told = self.smbclient(&format!("allinfo {name}")).await;
        told.lines().filter(|line| line.starts_with("@GMT-")).map(str::to_owned).collect()
    }

    /// A URL for the programs of libnfs.
    fn url(&self, path: &str) -> String {
        let port = self.nfs.port();
        format!("nfs://127.0.0.1/data/{path}?nfsport={port}&mountport={port}&uid=1000&gid=1000")
    }

    async fn volume(&self, by: &str) -> Volume {
        let (nfs, smb) = (self.nfs, self.smb);
        let at = match by {
            "smb" => format!("smb://alice:{PASSWORD}@{smb}/data"),
            version => format!("nfs://{nfs}/data?version={version}&mountport={}", nfs.port()),
        };
        let target: Target = at.parse().unwrap();
        Volume::open(&target, &Local::default(), Credential::sys(1000, 1000, &[])).await.unwrap()
    }

    fn headgate(&self, args: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headgate"));
        let done = command.args(args).current_dir(&self.home).output().unwrap();
        String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn bytes(data: &[Buf]) -> Vec<u8> {
    data.iter().flat_map(|buf| buf.iter().copied()).collect()
}

/// Reads a file of a snapshot by one protocol, by its path in the share.
async fn read(volume: &Volume, when: &str, path: &str) -> Result<Vec<u8>, Error> {
    let nfs_path = [&[".snapshot", when], &path.split('/').collect::<Vec<_>>()[..]].concat();
    match volume {
        Volume::V3(nfs, root) => {
            let mut at = root.clone();
            for name in nfs_path {
                at = nfs.lookup(&at, name.as_bytes()).await?.0;
            }
            Ok(bytes(&nfs.read(&at, 0, 4096).await?.data))
        }
        Volume::V4(nfs, root) => {
            let mut at = root.clone();
            let (last, dirs) = nfs_path.split_last().unwrap();
            for name in dirs {
                at = nfs.lookup(&at, name.as_bytes()).await?.0;
            }
            let how = client::nfs4::OpenHow::READ;
            let open = nfs.open(&at, last.as_bytes(), b"owner", how).await?;
            assert!(open.delegation.is_none(), "nothing of a snapshot is delegated");
            let read = nfs.read(&open.fh, open.stateid, 0, 4096).await;
            nfs.close(&open).await?;
            Ok(bytes(&read?.0))
        }
        // The time as a part of the path, and not in a context as smbclient has it.
        Volume::Smb(smb) => {
            let file = smb.find(&format!("{}\\{when}", path.replace('/', "\\"))).await?;
            let data = smb.read(&file, 0, 4096).await;
            smb.close(file).await?;
            Ok(bytes(&data?))
        }
    }
}

fn tree(top: &Path, text: &str) {
    fs::create_dir_all(top.join("d/empty")).unwrap();
    fs::write(top.join("d/f"), text).unwrap();
    fs::write(top.join("d/long"), text.repeat(100_000)).unwrap();
    fs::write(top.join("d/späte Grüße"), "x").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn smbclient_finds_previous_versions() {
    let gateway = Gateway::new(|share, snapshot| {
        tree(&snapshot(MONDAY.0), "monday");
        tree(&snapshot(FRIDAY.0), "friday");
        fs::write(snapshot(FRIDAY.0).join("d/late"), "late").unwrap();
        fs::create_dir(share.join("d")).unwrap();
        fs::write(share.join("d/f"), "today").unwrap();
        fs::set_permissions(share.join("d"), Permissions::from_mode(0o777)).unwrap();
    });
    assert_eq!(gateway.versions("d\\f").await, [FRIDAY.1, MONDAY.1], "latest first");
    assert_eq!(gateway.versions("d").await, [FRIDAY.1, MONDAY.1]);
    let got = async |name: &str| {
        let told = gateway.smbclient(&format!("get \"{name}\" got")).await;
        let data = fs::read_to_string(gateway.home.path().join("got")).map_err(|_| told);
        let _ = fs::remove_file(gateway.home.path().join("got"));
        data
    };
    assert_eq!(got("d\\f").await.unwrap(), "today");
    assert_eq!(got(&format!("{}\\d\\f", MONDAY.1)).await.unwrap(), "monday");
    assert_eq!(got(&format!("{}\\d\\late", FRIDAY.1)).await.unwrap(), "late", "gone today");
    for never in [format!("{}\\d\\late", MONDAY.1), "@GMT-2001.01.01-00.00.00\\d\\f".into()] {
        let told = got(&never).await.unwrap_err();
        assert!(told.contains("NT_STATUS_OBJECT_NAME_NOT_FOUND"), "{told}");
    }
    // A tree, byte for byte.
    let words = format!("prompt off; recurse on; cd \"{}\\d\"; lcd restored; mget *", MONDAY.1);
    fs::create_dir(gateway.home.path().join("restored")).unwrap();
    let told = gateway.smbclient(&words).await;
    let monday = gateway.home.path().join("snapshots").join(MONDAY.0).join("d");
    let differs = gateway.run("diff", &["-r", "restored", monday.to_str().unwrap()]).await;
    assert_eq!(differs, "", "{told}");
    // Nothing changes there.
    fs::write(gateway.home.path().join("new"), "new").unwrap();
    for change in [
        "del \"@\\d\\f\"",
        "put new \"@\\d\\f\"",
        "put new \"@\\d\\new\"",
        "mkdir \"@\\d\\n\"",
        "rename \"@\\d\\f\" g",
        "rmdir \"@\\d\\empty\"",
    ] {
        let told = gateway.smbclient(&change.replace('@', MONDAY.1)).await;
        assert!(told.contains("NT_STATUS_"), "{change}: {told}");
    }
    let differs = gateway.run("diff", &["-r", "restored", monday.to_str().unwrap()]).await;
    assert_eq!(differs, "");
    // Gone while the gateway has it open.
    fs::rename(
        gateway.home.path().join("snapshots").join(MONDAY.0),
        gateway.home.path().join("gone"),
    )
    .unwrap();
    let began = Instant::now();
    loop {
        match got(&format!("{}\\d\\f", MONDAY.1)).await {
            Ok(_) => assert!(began.elapsed() < Duration::from_secs(10)),
            Err(told) => break assert!(told.contains("NT_STATUS_OBJECT_NAME_NOT_FOUND"), "{told}"),
        }
    }
    assert_eq!(gateway.versions("d\\f").await, [FRIDAY.1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn libnfs_finds_the_folder_of_snapshots() {
    let mut gateway = Gateway::new(|share, snapshot| {
        tree(&snapshot(MONDAY.0), "monday");
        symlink("/etc/passwd", snapshot(MONDAY.0).join("link")).unwrap();
        fs::create_dir(snapshot(FRIDAY.0).join("d")).unwrap();
        fs::create_dir(share.join("d")).unwrap();
    });
    let listed = gateway.run("nfs-ls", &[&gateway.url(".snapshot")]).await;
    assert!(listed.contains(MONDAY.1) && listed.contains(FRIDAY.1), "{listed}");
    let listed = gateway.run("nfs-ls", &[&gateway.url("")]).await;
    assert!(listed.contains(" d") && !listed.contains(".snapshot"), "{listed}");
    for path in [format!(".snapshot/{}/d/f", MONDAY.1), format!("d/.snapshot/{}/f", MONDAY.1)] {
        assert_eq!(gateway.run("nfs-cat", &[&gateway.url(&path)]).await, "monday");
    }
    let long = format!(".snapshot/{}/d/long", MONDAY.1);
    let told = gateway.run("nfs-cp", &[&gateway.url(&long), "copy"]).await;
    let monday = gateway.home.path().join("snapshots").join(MONDAY.0);
    let differs = gateway.run("cmp", &["copy", monday.join("d/long").to_str().unwrap()]).await;
    assert_eq!(differs, "", "{told}");
    // By handles: changes, a restart, and the end of the snapshot.
    let Volume::V3(nfs, root) = gateway.volume("3").await else { unreachable!() };
    let mut at = root.clone();
    let mut all = Vec::new();
    for name in [".snapshot", MONDAY.1, "d", "f"] {
        at = nfs.lookup(&at, name.as_bytes()).await.unwrap().0;
        all.push(at.clone());
    }
    let (d, f) = (&all[2], &all[3]);
    let fsid = async |fh| nfs.getattr(fh).await.unwrap().fsid;
    assert_ne!(fsid(&root).await, fsid(d).await);
    assert_eq!(fsid(&root).await, fsid(&all[0]).await);
    assert_eq!(fsid(d).await, fsid(f).await);
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let refused = [
        nfs.create(d, b"n", CreateHow::Unchecked(set)).await.map(drop),
        nfs.mkdir(d, b"n", 0o755).await.map(drop),
        nfs.mkdir(&all[0], b"n", 0o755).await.map(drop),
        nfs.remove(d, b"f").await,
        nfs.setattr(f, &set).await,
        nfs.write(f, 0, Vec::new(), Stable::File).await.map(drop),
        nfs.rename(d, b"f", &all[0], b"g").await,
    ];
    for one in refused {
        assert!(matches!(one, Err(Error::Nfs3(ROFS))), "{one:?}");
    }
    gateway.restart();
    let Volume::V3(nfs, _) = gateway.volume("3").await else { unreachable!() };
    assert_eq!(bytes(&nfs.read(f, 0, 100).await.unwrap().data), b"monday");
    let names: Vec<_> = nfs.list(&all[0]).await.unwrap().into_iter().map(|e| e.name).collect();
    assert!(names.contains(&MONDAY.1.as_bytes().to_vec()), "{names:?}");
    fs::rename(&monday, gateway.home.path().join("gone")).unwrap();
    let began = Instant::now();
    loop {
        match nfs.read(f, 0, 100).await {
            Ok(_) => assert!(began.elapsed() < Duration::from_secs(10)),
            Err(e) => break assert!(matches!(e, Error::Nfs3(STALE)), "{e:?}"),
        }
    }
}

/// What others may do with a file: read it, nothing, or for one of them what its list says; `None`: it is not there.
const RIGHTS: [Option<u32>; 4] = [Some(0o604), Some(0o600), Some(LISTED), None];

/// A file of mode 0600 whose list lets the caller of the tests read it.
const LISTED: u32 = 0o600 | 1 << 16;

/// Gives a file in this folder a list by which the caller reads it.
fn list(folder: &Path, name: &str) {
    let (folder, name) = (folder.to_owned(), name.to_owned());
    let set = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let backend = LocalBackend::open(LocalConfig::new(folder)).unwrap();
            let top = backend.root();
            let (file, _) = top.lookup(&vfs::Cred::root(), name.as_bytes()).await.unwrap();
            let reads = mask::READ_DATA | mask::READ_EA | mask::READ_ATTRIBUTES;
            let rights = reads | mask::READ_CONTROL | mask::SYNCHRONIZE;
            let all = Acl::new(vec![Ace::allow(Who::User(1000), rights, 0)]);
            file.acl_set(&all, 0o600).await.unwrap();
        });
    };
    std::thread::spawn(set).join().unwrap();
}

/// A file's name, and its mode then and today.
type ThenAndNow = (String, Option<u32>, Option<u32>);

/// The table: rights then, rights today, protocol. The slow model is the last line.
#[tokio::test(flavor = "multi_thread")]
async fn rights_are_those_of_then_and_of_today() {
    let files: Vec<(String, Option<u32>, Option<u32>)> = RIGHTS
        .iter()
        .flat_map(|then| RIGHTS.iter().map(|now| (*then, *now)))
        .enumerate()
        .map(|(n, (then, now))| (format!("f{n}"), then, now))
        .collect();
    // The folder of each file: may others pass it then, and today?
    let folders: [(&str, u32, Option<u32>); 5] = [
        ("open", 0o755, Some(0o755)),
        ("closed-then", 0o700, Some(0o755)),
        ("closed-today", 0o755, Some(0o700)),
        ("closed", 0o700, Some(0o700)),
        ("gone-today", 0o755, None),
    ];
    let gateway = Gateway::new(|share, snapshot| {
        let put = |top: &Path, folder: &str, mode: u32, of: fn(&ThenAndNow) -> Option<u32>| {
            let folder = top.join(folder);
            fs::create_dir(&folder).unwrap();
            for file in &files {
                if let Some(mode) = of(file) {
                    fs::write(folder.join(&file.0), "x").unwrap();
                    fs::set_permissions(folder.join(&file.0), Permissions::from_mode(mode & 0o777))
                        .unwrap();
                    if mode == LISTED {
                        list(&folder, &file.0);
                    }
                }
            }
            fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
        };
        for (folder, then, now) in folders {
            put(&snapshot(FRIDAY.0), folder, then, |file| file.1);
            if let Some(now) = now {
                put(share, folder, now, |file| file.2);
            }
        }
    });
    for by in ["3", "4.1", "4.2", "smb"] {
        let volume = gateway.volume(by).await;
        for (folder, dir_then, dir_now) in folders {
            for (file, then, now) in &files {
                let got = read(&volume, LATEST, &format!("{folder}/{file}")).await;
                let reads = |mode: u32| mode & 4 != 0 || mode == LISTED;
                let passes = |mode: u32| mode & 1 != 0;
                let today =
                    dir_now.is_none_or(passes) && (dir_now.is_none() || now.is_none_or(reads));
                let want = passes(dir_then) && then.is_some_and(reads) && today;
                assert_eq!(got.is_ok(), want, "{by} {folder}/{file} {then:?} {now:?}: {got:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_adds_and_removes_snapshots() {
    let gateway = Gateway::new(|_, snapshot| tree(&snapshot(FRIDAY.0), "friday"));
    let file = gateway.home.path().join("gw.yaml");
    let with = fs::read_to_string(&file).unwrap();
    let at = with.find(", snapshots:").unwrap();
    let without = format!("{}}}\n", &with[..at]);
    let Volume::V3(nfs, root) = gateway.volume("3").await else { unreachable!() };
    let (all, _) = nfs.lookup(&root, b".snapshot").await.unwrap();
    let (top, _) = nfs.lookup(&all, LATEST.as_bytes()).await.unwrap();
    for (text, is_there) in [(&without, false), (&with, true)] {
        fs::write(&file, text).unwrap();
        let told = gateway.headgate(&["reload", "--state", "state"]);
        assert_eq!(nfs.lookup(&root, b".snapshot").await.is_ok(), is_there, "{told}");
        for fh in [&all, &top] {
            let got = nfs.getattr(fh).await;
            let is_stale = matches!(got, Err(Error::Nfs3(STALE)));
            assert!(if is_there { got.is_ok() } else { is_stale }, "{got:?}");
        }
        let read = read(&gateway.volume("smb").await, LATEST, "d/f").await;
        assert_eq!(read.is_ok(), is_there, "{read:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_and_status_tell_of_snapshots() {
    let gateway = Gateway::new(|_, snapshot| {
        tree(&snapshot(MONDAY.0), "monday");
        tree(&snapshot(FRIDAY.0), "friday");
    });
    let checked = gateway.headgate(&["check", "--config", "gw.yaml", "--state", "other"]);
    assert!(checked.contains("2 snapshots"), "{checked}");
    let began = Instant::now();
    loop {
        let status = gateway.headgate(&["status", "--state", "state"]);
        if status.contains("snapshots of") && status.contains(LATEST) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{status}");
    }
    let all = gateway.home.path().join("snapshots");
    fs::set_permissions(&all, Permissions::from_mode(0o777)).unwrap();
    let checked = gateway.headgate(&["check", "--config", "gw.yaml", "--state", "other"]);
    assert!(checked.contains("give it to root with mode 0755"), "{checked}");
    fs::set_permissions(&all, Permissions::from_mode(0o755)).unwrap();
    fs::remove_dir_all(all.join(MONDAY.0)).unwrap();
    fs::rename(all.join(FRIDAY.0), all.join("x")).unwrap();
    let checked = gateway.headgate(&["check", "--config", "gw.yaml", "--state", "other"]);
    assert!(checked.contains("so clients find no snapshots"), "{checked}");
    let text = fs::read_to_string(gateway.home.path().join("gw.yaml")).unwrap();
    fs::write(gateway.home.path().join("gw.yaml"), text.replace("%Y-%m-%d_", "")).unwrap();
    let checked = gateway.headgate(&["check", "--config", "gw.yaml", "--state", "other"]);
    assert!(checked.contains("year, month and day cannot be read"), "{checked}");
}
