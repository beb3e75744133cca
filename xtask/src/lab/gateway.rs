//! The gateway as a guest's server: starts it, kills it, starts it again on the same state, and reads its log.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::container;
use super::net::{Net, host_address, second_address, tap};
use super::{kerberos, rights, tls};
use crate::ceph::{Cluster, FILE_SYSTEM};
use crate::sh::{Result, output, run, target_dir};

const READY_SECONDS_MAX: u64 = 60;

/// The folders that it serves, and its state.
const FOLDERS: [(&str, u32); 8] = [
    ("share", 0o755),
    ("ro", 0o755),
    ("squashed", 0o755),
    ("squashed/open", 0o777),
    ("squashed/closed", 0o700),
    ("small", 0o755),
    ("vanishing", 0o755),
    ("state", 0o700),
];

/// Shares by name, with their options.
const SHARES: [(&str, &str); 5] = [
    ("data", ",squash=none"),
    ("ro", ",ro,squash=none"),
    ("squashed", ""),
    ("small", ",squash=none"),
    ("vanishing", ",squash=none"),
];

/// The lab's SMB user is root, like NFS's there, and smbtorture has two users; with their passwords.
pub(super) const LAB_USER: (&str, &str) = ("root", "pass");
const USERS: [(&str, &str); 2] = [("user", "pass"), ("user2", "pass2")];

/// Each start has separate mounts, which end with it: this file system is soon full, and has another one inside.
const SMALL: &str = "mount -t tmpfs -o size=16M small \"$0/small\" && mkdir \"$0/small/inner\" && \
                     mount -t tmpfs -o size=4M inner \"$0/small/inner\" && ";
/// Selects the realm of the scenario.
const REALM: &str = "export KRB5_CONFIG=\"$0/krb5/krb5.conf\" && ";
/// Selects the Ceph cluster of the scenario.
const CLUSTER: &str = "export CEPH_CONF=\"$0/ceph/ceph.conf\" && ";

/// User and group `games`, who has a ticket in the realm of a scenario: the same numbers on every Debian.
const GAMES: (u32, u32) = (5, 60);

/// User number on the host of the first of smbtorture's users.
pub(crate) const USER_ID: u32 = 1001;
/// smbtorture's share that is continuously available.
pub(crate) const LASTING_SHARE: &str = "lasting";
/// smbtorture's share whose files may share blocks.
pub(crate) const BLOCK_SHARE: &str = "xfs";
/// Address of the gateway that requires signatures, for smbtorture.
pub(crate) const STRICT_ADDRESS: &str = "127.0.0.2";
/// Mounts the file system of that share, made by [`make_block_share`].
const BLOCK_MOUNT: &str =
    "mount -t xfs -o loop \"$0/xfs.img\" \"$0/xfs\" && chmod 0777 \"$0/xfs\" && ";
/// Smallest size that XFS accepts.
const BLOCK_BYTES: u64 = 300 << 20;

/// Requirements for clients of the gateway's first share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demands {
    pub(crate) tls: Option<&'static str>,
    pub(crate) kerberos: bool,
    /// True if it has further shares that restrict users.
    pub(crate) rights: bool,
    /// True if it has further shares that refer to [another](Gateway::elsewhere) gateway.
    pub(crate) refers: bool,
    /// True if its first share is in CephFS, on the cluster below this folder.
    pub(crate) ceph: bool,
    /// Clients of its first share should compress.
    pub(crate) compress: bool,
    /// Clients of its first share follow links: Linux before SMB 3.1.1 does not announce that it can.
    pub(crate) symlinks_by_client: bool,
}

impl Demands {
    fn of_share(self) -> String {
        let tls = self.tls.map_or(String::new(), |tls| format!(",tls={tls}"));
        let sec = if self.kerberos { ",sec=krb5:krb5i:krb5p" } else { "" };
        let compress = if self.compress { ",compress" } else { "" };
        tls + sec + compress + if self.symlinks_by_client { ",symlinks=client" } else { "" }
    }
}

/// The transports of guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guests {
    Nfs,
    /// SMB, or both protocols.
    Smb,
    /// SMB over TCP, with several connections for one session.
    SmbChannels,
}

/// A gateway and the folder of its state and log.
#[derive(Debug)]
pub(crate) struct Gateway<'a> {
    net: &'a Net,
    dir: PathBuf,
    /// Shell commands that run before it.
    prelude: String,
    /// The command that runs `serve`, and its options.
    words: Vec<String>,
    child: Option<Child>,
}

/// Returns the profile of programs that this command runs: benchmarks measure what users get.
pub(crate) fn profile() -> &'static str {
    if std::env::args().nth(1).is_some_and(|command| command == "bench") {
        "release"
    } else {
        "tested"
    }
}

/// The program: from `HEADGATE`, if set, or built by [`build`].
pub(crate) fn program() -> PathBuf {
    let built = || target_dir().join(profile()).join("headgate");
    std::env::var_os("HEADGATE").map_or_else(built, PathBuf::from)
}

/// Builds the program, unless another one is set.
pub(crate) fn build() -> Result<()> {
    if std::env::var_os("HEADGATE").is_some() {
        return Ok(());
    }
    let words = ["--quiet", "--package", "gateway", "--bin", "headgate"];
    run(&[&["cargo", "build", "--profile", profile()], &words[..]].concat())
}

/// Checks whether this machine's kernel can mount an XFS image file.
pub(crate) fn has_block_share() -> bool {
    // A kernel that can load the module lists it only after loading.
    let _ = output(&["modprobe", "-q", "xfs"]);
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known.split_whitespace().any(|name| name == "xfs") && Path::new("/dev/loop-control").exists()
}

/// Makes the file system of [`BLOCK_SHARE`].
fn make_block_share(dir: &Path) -> Result<()> {
    let image = dir.join("xfs.img");
    let failed = |e| format!("{}: {e}", image.display());
    File::create(&image).and_then(|file| file.set_len(BLOCK_BYTES)).map_err(failed)?;
    output(&["mkfs.xfs", "-q", "-m", "reflink=1", &image.display().to_string()]).map(drop)
}

impl<'a> Gateway<'a> {
    /// Starts it with an empty share and new state below `dir`: `dir/share` as `data`, and shares of other kinds. It listens on
    /// these taps. `demands`: what it requires of clients of its first share, from files in `dir`.
    pub(crate) fn start(
        net: &'a Net,
        dir: &Path,
        taps: &[usize],
        guests: Guests,
        demands: Demands,
    ) -> Result<Gateway<'a>> {
        for (folder, mode) in FOLDERS {
            make_folder(&dir.join(folder), mode)?;
        }
        if demands.kerberos {
            make_folder(&dir.join("share/everybody"), 0o777)?;
            let own = dir.join("share/everybody/of-games");
            make_folder(&own, 0o700)?;
            std::os::unix::fs::chown(&own, Some(GAMES.0), Some(GAMES.1))
                .map_err(|e| format!("{}: {e}", own.display()))?;
        }
        fs::write(dir.join("ro/readme"), "to be read\n").map_err(|e| format!("readme: {e}"))?;
        let share = dir.join("share").display().to_string();
        output(&["python3", "tests/lab/share.py", "populate", &share])?;
        // Short times, so that a restart does not delay the tier. The kernel's device does not request a CRC by default; the
        // gateway in the guest shows that case.
        let mut args: Vec<String> =
            ["--lease", "10s", "--grace", "10s", "--rdma-crc", "always"].map(str::to_owned).into();
        // Guests look for MOUNT and locks of version 3 on port 111 of this network, which has no rpcbind.
        args.extend(["--portmap", "own"].map(str::to_owned));
        for n in taps.iter().copied() {
            args.extend(["--bind".into(), host_address(n)]);
        }
        // Guests ask for what `status` reports about them.
        args.extend(["--admin".into(), format!("{}:9464", host_address(0))]);
        args.extend(["--admin-clients", "10.77.0.0/16"].map(str::to_owned));
        for (share, options) in SHARES {
            let folder = dir.join(if share == "data" { "share" } else { share });
            let demanded = if share == "data" { demands.of_share() } else { String::new() };
            let options = options.to_owned() + &demanded;
            let source = match share == "data" && demands.ceph {
                true => format!("ceph:{FILE_SYSTEM}/"),
                false => folder.display().to_string(),
            };
            args.extend(["--share".into(), format!("{share}={source}{options}")]);
        }
        if demands.tls.is_some() {
            args.extend(tls::options(dir));
        }
        if demands.kerberos {
            args.extend(kerberos::options(dir));
            // The guest's root mounts and works by a ticket, which is the superuser's only with an account.
            args.extend(user(dir, LAB_USER)?);
        }
        if demands.rights {
            args.extend(rights::shares(dir)?);
        }
        if demands.refers {
            args.extend(["--config".into(), referring(dir)?]);
        }
        if guests != Guests::Nfs {
            // A signing Linux client gives up RDMA Write and Read; clients that should sign request it themselves.
            args.extend(["--smb-signing".into(), "offered".into()]);
            if !demands.kerberos {
                args.extend(user(dir, LAB_USER)?);
            }
        }
        if guests == Guests::SmbChannels {
            // This client makes one connection to an address whose device has one queue, and no TCP connection to an address with
            // RDMA.
            for n in taps.iter().copied() {
                net.ip(&format!("addr replace {}/24 dev {}", second_address(n), tap(n)))?;
                args.extend(["--bind".into(), second_address(n)]);
            }
            args.extend(["--rdma".into(), "off".into()]);
        }
        let realm = if demands.kerberos { REALM } else { "" };
        let ceph = if demands.ceph { CLUSTER } else { "" };
        Gateway::new(net, dir, format!("{SMALL}{realm}{ceph}"), args)
    }

    /// Starts a second gateway at the second address of the first tap, which serves `dir/archive`.
    pub(crate) fn elsewhere(net: &'a Net, dir: &Path) -> Result<Gateway<'a>> {
        for (folder, mode) in [("archive", 0o755), ("state", 0o700)] {
            make_folder(&dir.join(folder), mode)?;
        }
        let readme = dir.join("archive/readme");
        fs::write(&readme, "kept there\n").map_err(|e| format!("{}: {e}", readme.display()))?;
        net.ip(&format!("addr replace {}/24 dev {}", second_address(0), tap(0)))?;
        let share = format!("archive={},squash=none", dir.join("archive").display());
        let words = ["--bind", &second_address(0), "--share", &share, "--admin", "off"];
        let words = words.into_iter().chain(["--lease", "10s", "--grace", "10s"]);
        let words = words.chain(["--smb-signing", "offered"]).map(str::to_owned);
        Gateway::new(net, dir, String::new(), words.chain(user(dir, LAB_USER)?).collect())
    }

    /// Starts it as in the container image: with its root file system, its user, its configuration.
    pub(crate) fn in_container(net: &'a Net, dir: &Path) -> Result<Gateway<'a>> {
        fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let mut words = container::make(dir)?;
        // A container gets a secret as a file.
        user(&dir.join("root/etc/headgate"), LAB_USER)?;
        words.extend(["--user", "root=/etc/headgate/root.password"].map(str::to_owned));
        let password = dir.join("root/etc/headgate/root.password");
        output(&["chmod", "0644", &password.display().to_string()])?;
        words.extend(["--smb-signing", "offered", "--lease", "10s"].map(str::to_owned));
        let prelude = String::new();
        let mut gateway = Gateway { net, dir: dir.to_owned(), prelude, words, child: None };
        gateway.spawn()?;
        Ok(gateway)
    }

    /// Starts it on loopback for smbtorture: these folders as shares of the same names, and [`BLOCK_SHARE`] if this machine
    /// [supports](has_block_share) it. If a cluster is given, all folders but that one are in CephFS.
    pub(crate) fn for_smbtorture(
        net: &'a Net,
        dir: &Path,
        folders: &[PathBuf],
        cluster: Option<&Cluster>,
    ) -> Result<Gateway<'a>> {
        let source = |folder: &Path| match cluster {
            Some(cluster) => cluster.source(folder),
            None => folder.display().to_string(),
        };
        let top = cluster.map_or(dir, Cluster::mount);
        make_folder(&dir.join("state"), 0o700)?;
        // Samba offers signing and leaves the choice to the client, and some tests run without signing.
        let mut args: Vec<String> =
            ["--bind", "127.0.0.1", "--portmap", "off", "--smb-signing", "offered"]
                .map(str::to_owned)
                .into();
        let has_blocks = cluster.is_none() && has_block_share();
        let block_share = has_blocks.then(|| dir.join(BLOCK_SHARE));
        if block_share.is_some() {
            make_block_share(dir)?;
        }
        for folder in folders.iter().chain(&block_share) {
            make_folder(folder, 0o777)?;
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            args.extend(["--share".into(), format!("{name}={}", source(folder))]);
        }
        // One share that its users may not list, and one whose handles survive a restart of the server.
        for (name, mode, options) in [("noperm", 0o700, ""), (LASTING_SHARE, 0o777, ",ca")] {
            let folder = top.join(name);
            make_folder(&folder, mode)?;
            args.extend(["--share".into(), format!("{name}={}{options}", source(&folder))]);
        }
        args.extend(visible_share(dir)?);
        for name in USERS {
            args.extend(user(dir, name)?);
        }
        let block_mount = if block_share.is_some() { BLOCK_MOUNT } else { "" };
        let ceph = if cluster.is_some() { CLUSTER } else { "" };
        Gateway::new(net, dir, format!("{block_mount}{ceph}"), args)
    }

    /// Starts a second gateway on loopback for smbtorture, which requires signatures: an empty share of each of these names.
    pub(crate) fn strict_for_smbtorture(
        net: &'a Net,
        dir: &Path,
        names: &[PathBuf],
    ) -> Result<Gateway<'a>> {
        make_folder(&dir.join("state"), 0o700)?;
        let words = ["--bind", STRICT_ADDRESS, "--portmap", "off", "--admin", "off"];
        let mut args: Vec<String> = words.map(str::to_owned).into();
        args.extend(["--smb-signing", "required"].map(str::to_owned));
        for name in names.iter().filter_map(|name| name.file_name()) {
            make_folder(&dir.join(name), 0o777)?;
            let folder = dir.join(name).display().to_string();
            args.extend(["--share".into(), format!("{}={folder}", name.to_string_lossy())]);
        }
        args.extend(user(dir, USERS[0])?);
        Gateway::new(net, dir, String::new(), args)
    }

    fn new(net: &'a Net, dir: &Path, prelude: String, args: Vec<String>) -> Result<Gateway<'a>> {
        let start = [program(), "serve".into(), "--state".into(), dir.join("state")];
        let mut words: Vec<String> = start.iter().map(|w| w.display().to_string()).collect();
        words.extend(args);
        let mut gateway = Gateway { net, dir: dir.to_owned(), prelude, words, child: None };
        gateway.spawn()?;
        Ok(gateway)
    }

    /// Returns the folder that is served.
    pub(crate) fn share(&self) -> PathBuf {
        self.dir.join("share")
    }

    /// Returns its complete log.
    pub(crate) fn log(&self) -> String {
        fs::read(self.dir.join("headgate.log"))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Checks that it is still running.
    pub(crate) fn is_running(&mut self) -> Result<()> {
        match self.child.as_mut().map(Child::try_wait) {
            Some(Ok(None)) => Ok(()),
            Some(Ok(Some(status))) => Err(format!("it ended with {status}")),
            Some(Err(e)) => Err(e.to_string()),
            None => Err("it was not started".into()),
        }
    }

    /// Kills it by SIGKILL, waits a moment, and starts it on the same state.
    fn kill_and_restart(&mut self) -> Result<()> {
        self.kill();
        sleep(Duration::from_secs(2));
        self.spawn()
    }

    /// Stops it as a container engine stops a container, and starts it again.
    fn stop_and_restart(&mut self) -> Result<()> {
        let mut child = self.child.take().ok_or("it was not started")?;
        container::stop(&mut child)?;
        sleep(Duration::from_secs(1));
        self.spawn()
    }

    /// Cuts every connection: both ends see a reset, without any notice to the programs.
    fn cut_connections(&self) -> Result<()> {
        self.cut("( sport = :2049 or sport = :20049 or sport = :445 or sport = :5445 )")
    }

    /// Cuts the newest connection of a client.
    fn cut_one_channel(&self) -> Result<()> {
        let found = self.net.output(&["ss", "-Htn", "state", "established", "sport = :445"])?;
        let clients = found.lines().filter_map(|l| l.split_whitespace().nth(3));
        let ports = clients.filter_map(|peer| peer.rsplit_once(':')?.1.parse::<u16>().ok());
        let last = ports.max().ok_or("no connection to port 445")?;
        self.cut(&format!("dport = :{last}"))
    }

    fn cut(&self, filter: &str) -> Result<()> {
        self.net.output(&["ss", "-K", "-t", "state", "established", filter]).map(drop)
    }

    /// Gives the running gateway an administrator's order, and passes its answer to the guest in this file.
    fn order(&self, answer: &str, words: &[&str]) -> Result<()> {
        let (program, state) = (program(), self.dir.join("state"));
        let (program, state) = (program.display().to_string(), state.display().to_string());
        let said = output(&[&[&*program], words, &["--state", &*state]].concat())?;
        let file = self.dir.join("scratch").join(answer);
        let part = file.with_extension("part");
        let written = fs::write(&part, said).and_then(|()| fs::rename(&part, &file));
        written.map_err(|e| format!("{answer}: {e}"))
    }

    /// Carries out a guest's request.
    pub(crate) fn obey(&mut self, words: &str) -> Result<()> {
        if let ["order", answer, words @ ..] = &*words.split(' ').collect::<Vec<_>>() {
            return self.order(answer, words);
        }
        match words {
            "kill-gateway" => self.kill_and_restart(),
            "stop-container" => self.stop_and_restart(),
            "cut-connections" => self.cut_connections(),
            "cut-one-channel" => self.cut_one_channel(),
            "unmount inner" => self.mounts(&["umount", "--lazy"]),
            "mount inner" => self.mounts(&["mount", "-t", "tmpfs", "-o", "size=4M", "inner"]),
            "remove vanishing" => fs::remove_dir_all(self.dir.join("vanishing"))
                .map_err(|e| format!("vanishing: {e}")),
            _ => Err("the host does not know how".into()),
        }
    }

    /// Runs this command on the mount point inside a share, among the mounts of the running gateway.
    fn mounts(&self, command: &[&str]) -> Result<()> {
        let pid = self.child.as_ref().ok_or("it was not started")?.id().to_string();
        let at = self.dir.join("small/inner").display().to_string();
        output(&[&["nsenter", "--target", &*pid, "--mount"], command, &[&*at]].concat()).map(drop)
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // The process may have ended before.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn spawn(&mut self) -> Result<()> {
        let ready_before = self.ready_lines();
        let log = |e| format!("headgate.log: {e}");
        let file: File = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.join("headgate.log"))
            .map_err(log)?;
        let mut command = self.net.command("sh");
        command.args(["-c", &format!("{}exec \"$@\"", self.prelude)]).arg(&self.dir);
        command.args(&self.words);
        command.stdout(file.try_clone().map_err(log)?).stderr(file);
        self.child = Some(command.spawn().map_err(|e| format!("cannot start headgate: {e}"))?);
        self.wait_until_ready(ready_before)
    }

    fn wait_until_ready(&mut self, before: usize) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(READY_SECONDS_MAX);
        while self.ready_lines() == before {
            let ended = self.child.as_mut().and_then(|c| c.try_wait().ok().flatten());
            if let Some(status) = ended {
                return Err(format!("headgate ended with {status}:\n{}", self.log()));
            }
            if Instant::now() > end {
                return Err(format!(
                    "headgate is not ready after {READY_SECONDS_MAX} s:\n{}",
                    self.log()
                ));
            }
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn ready_lines(&self) -> usize {
        self.log().matches("headgate ready").count()
    }
}

/// Writes the file with shares at the second address, one of which does not exist at the first, and with a share some of whose
/// folders are there. Returns its path.
fn referring(dir: &Path) -> Result<String> {
    let (first, second) = (host_address(0), second_address(0));
    let linked = dir.join("linked");
    make_folder(&linked, 0o777)?;
    let samba = linked.join("samba");
    std::os::unix::fs::symlink(format!("msdfs:{second}\\archive"), &samba)
        .map_err(|e| format!("{}: {e}", samba.display()))?;
    let text = format!(
        "shares:\n  - {{name: archive, refer: '{second}:/archive'}}\n  \
         - {{name: spare, refer: ['{first}:/none', '{second}:/archive']}}\n  \
         - {{name: linked, path: '{}', squash: none, links: [msdfs, {{at: far/Old, to: '{second}:/archive'}}]}}\n",
        linked.display()
    );
    let file = dir.join("refer.yaml");
    fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(file.display().to_string())
}

/// Returns the option that defines this user.
fn user(dir: &Path, (name, password): (&str, &str)) -> Result<[String; 2]> {
    let file = dir.join(format!("{name}.password"));
    let failed = |e| format!("{}: {e}", file.display());
    fs::write(&file, password).map_err(failed)?;
    fs::set_permissions(&file, Permissions::from_mode(0o600)).map_err(failed)?;
    // The machine need not know these users.
    let id = match name {
        "root" => 0,
        "user" => USER_ID,
        _ => 1002,
    };
    Ok(["--user".into(), format!("{name}={},uid={id},gid={id}", file.display())])
}

pub(super) fn make_folder(path: &Path, mode: u32) -> Result<()> {
    let failed = |e| format!("{}: {e}", path.display());
    fs::create_dir_all(path).map_err(failed)?;
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed)
}

impl Drop for Gateway<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Tests of what macOS expects want the model that Samba shows itself as.
const MODEL: &str = "smb: {model: MacSamba}\n";

/// Returns a file with [`MODEL`], and with a share whose listings show only what a user may use: neither has an option.
fn visible_share(dir: &Path) -> Result<[String; 2]> {
    let (folder, file) = (dir.join("hideunread"), dir.join("hideunread.yaml"));
    make_folder(&folder, 0o777)?;
    let share = format!("{{name: hideunread, path: {}, list: visible}}", folder.display());
    let text = format!("shares: [{share}]\n{MODEL}");
    fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(["--config".into(), file.display().to_string()])
}
