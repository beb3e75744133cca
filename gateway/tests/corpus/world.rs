//! A host as the files expect it: users, groups, names and folders, in the test's private mount namespaces.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Users with their groups.
pub(super) const USERS: [(&str, u32); 7] = [
    ("alice", 3001),
    ("bob", 3002),
    ("carol", 3003),
    ("dave", 3004),
    ("eve", 3005),
    ("scanner", 3006),
    ("team", 3007),
];
const GROUPS: [(&str, u32, &str); 4] = [
    ("staff", 50, "alice,bob"),
    ("media", 3101, "alice"),
    ("finance", 3102, "bob"),
    ("lab", 3103, "alice,carol"),
];
pub(super) const HOSTS: &str = "127.0.0.1 localhost\n192.168.178.20 desktop\n192.168.10.5 admin.office.example.org\n\
    192.168.10.6 ws6.office.example.org\n192.168.1.50 scanner.office.example.org\n10.1.0.2 head1.cluster.local\n\
    10.1.0.3 login1.cluster.local\n10.1.2.3 ws1.example.org\n10.3.3.3 ws3.example.org\n10.20.1.1 spec.lab.example.org\n";
pub(super) const NETGROUPS: &str = "engineering (ws6.office.example.org,,)\nsales (admin.office.example.org,,)\n\
    instruments (spec,,)\ntrusted (ws3.example.org,,)\n";

/// Script that enters the namespaces before every process.
const ENTER: &str = "mount --bind \"$0/etc\" /etc && mount --bind \"$0/srv\" /srv && mount --bind \"$0/home\" /home && exec \"$@\"";

pub(super) struct World {
    folder: tempfile::TempDir,
}

impl World {
    /// Creates the host; `None` without root or mount namespaces.
    pub(super) fn new() -> Option<Self> {
        let folder = tempfile::tempdir().ok()?;
        let world = Self { folder };
        let copied = Command::new("cp").arg("-a").arg("/etc").arg(world.at("etc")).output().ok()?;
        if !rustix::process::geteuid().is_root() || !copied.status.success() {
            return None;
        }
        fs::set_permissions(world.path(), fs::Permissions::from_mode(0o755)).ok()?;
        fs::create_dir(world.at("srv")).ok()?;
        fs::create_dir(world.at("home")).ok()?;
        // The program itself may be in /home, which is replaced.
        let program = env!("CARGO_BIN_EXE_headgate");
        fs::hard_link(program, world.at("headgate"))
            .or_else(|_| fs::copy(program, world.at("headgate")).map(drop))
            .ok()?;
        world.people();
        world.edit("hosts", |_| HOSTS.to_owned());
        world.edit("netgroup", |_| NETGROUPS.to_owned());
        world.edit("nsswitch.conf", |text| {
            let others =
                text.lines().filter(|l| !l.starts_with("netgroup") && !l.starts_with("hosts"));
            others.chain(["netgroup: files", "hosts: files"]).collect::<Vec<_>>().join("\n") + "\n"
        });
        let works = world.command("true").status().ok()?.success();
        works.then_some(world)
    }

    fn people(&self) {
        let named = |line: &str, name: &str| line.split(':').next() == Some(name);
        let is_user = |line: &str| USERS.iter().any(|(name, _)| named(line, name));
        let is_group = |line: &str| GROUPS.iter().any(|(name, ..)| named(line, name));
        self.edit("passwd", |text| {
            let others = text.lines().filter(|line| !is_user(line)).map(|line| format!("{line}\n"));
            let user = |(name, id)| format!("{name}:x:{id}:{id}::/home/{name}:/bin/sh\n");
            others.chain(USERS.map(user)).collect()
        });
        self.edit("group", |text| {
            let others = text.lines().filter(|line| !is_user(line) && !is_group(line));
            let others = others.map(|line| format!("{line}\n"));
            let groups = GROUPS.map(|(name, id, members)| format!("{name}:x:{id}:{members}\n"));
            let own = USERS.map(|(name, id)| format!("{name}:x:{id}:\n"));
            others.chain(groups).chain(own).collect()
        });
        for (name, id) in USERS {
            let home = self.at("home").join(name);
            fs::create_dir(&home).unwrap();
            self.fill(&home);
            chown(&home, Some(id), Some(id)).unwrap();
            fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(super) fn edit(&self, name: &str, change: impl FnOnce(String) -> String) {
        let file = self.at("etc").join(name);
        let text = fs::read_to_string(&file).unwrap_or_default();
        fs::write(file, change(text)).unwrap();
    }

    /// Returns the real location of a path of the host; `None` if it is outside of this world.
    pub(super) fn real(&self, path: &str) -> Option<PathBuf> {
        let inside = ["/srv/", "/home/"].iter().any(|top| path.starts_with(top)) || path == "/home";
        inside.then(|| self.path().join(&path[1..]))
    }

    /// Creates a folder of the host that every user may write, with a file in it.
    pub(super) fn make(&self, path: &str) {
        let Some(real) = self.real(path).filter(|real| !real.exists()) else { return };
        fs::create_dir_all(&real).unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o777)).unwrap();
        self.fill(&real);
    }

    fn fill(&self, folder: &Path) {
        let probe = folder.join("probe");
        fs::write(&probe, "x").unwrap();
        fs::set_permissions(probe, fs::Permissions::from_mode(0o666)).unwrap();
    }

    /// Returns a command that runs on the host.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", ENTER]).arg(self.path()).arg(program);
        command
    }

    /// Returns a command for the gateway's program.
    pub(super) fn headgate(&self) -> Command {
        self.command(self.at("headgate").to_str().unwrap())
    }
}

/// Returns the folders that a configuration of the gateway names.
pub(super) fn folders(yaml: &str) -> Vec<String> {
    let read: serde_yaml::Value = serde_yaml::from_str(yaml).unwrap();
    let shares = read["shares"].as_sequence().cloned().unwrap_or_default();
    // A share on other servers has none.
    let path = |share: &serde_yaml::Value| share["path"].as_str().map(str::to_owned);
    shares.iter().filter_map(path).map(|path| path.trim_end_matches("/{user}").to_owned()).collect()
}
