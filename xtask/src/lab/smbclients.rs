//! SMB clients of other projects: Samba's smbclient and rpcclient, and impacket.

use std::fs;
use std::path::{Path, PathBuf};

use super::gateway::{Demands, Gateway, Guests, LAB_USER};
use super::net::{FIRST_GUEST, Net, host_address};
use super::third::names;
use crate::sh::{Result, Tally, output};

/// Dialects by smbclient's names, and the protections that each supports.
const DIALECTS: [(&str, &[&str]); 5] = [
    ("SMB2_02", &["off", "sign"]),
    ("SMB2_10", &["off", "sign"]),
    ("SMB3_00", &["off", "sign", "encrypt"]),
    ("SMB3_02", &["off", "sign", "encrypt"]),
    ("SMB3_11", &["off", "sign", "encrypt"]),
];

/// Calls of rpcclient about accounts and groups, and a part of what each prints of the lab's user, whose uid is 0.
const ACCOUNTS: [(&str, &str); 14] = [
    ("enumdomains", "name:[Builtin]"),
    ("enumdomusers", "user:[root] rid:[0x3e8]"),
    ("enumdomgroups", "group:[None] rid:[0x201]"),
    ("enumalsgroups builtin", "group:[Administrators] rid:[0x220]"),
    ("queryuser root", "user_rid :\t0x3e8"),
    ("querygroup 513", "Group Name:\tNone"),
    ("querygroupmem 513", "rid:[0x3e8]"),
    ("queryusergroups 1000", "group rid:[0x201]"),
    ("queryaliasmem builtin 544", "-1000]"),
    ("samlookupnames domain root", "name root: 0x3e8 (1)"),
    ("samlookuprids domain 1000", "rid 0x3e8: root (1)"),
    ("querydominfo", "Domain Server State:\t0x1"),
    ("querydispinfo", "Account: root"),
    ("lookupnames root", "S-1-22-1-0 (User: 1)"),
];

/// A gateway, and the network where its clients run.
struct Visit<'a> {
    net: &'a Net,
    dir: PathBuf,
    share: PathBuf,
    host: String,
    credentials: String,
}

/// Runs all of them, one after the other.
pub(super) fn all(net: &Net, dir: &Path) -> Result<Tally> {
    let demands = Demands { refers: true, ..Demands::default() };
    let mut gateway = Gateway::start(net, dir, &FIRST_GUEST, Guests::Smb, demands)?;
    let mut other = Gateway::elsewhere(net, &dir.join("other"))?;
    let visit = Visit {
        net,
        dir: dir.to_owned(),
        share: gateway.share(),
        host: host_address(0),
        credentials: format!("{}%{}", LAB_USER.0, LAB_USER.1),
    };
    let mut tally = Tally::default();
    for (dialect, protections) in DIALECTS {
        for protection in protections {
            let label = format!("smbclient/{dialect}-{protection}");
            tally.count(&label, visit.round_trip(dialect, protection));
            let label = format!("smbclient/elsewhere-{dialect}-{protection}");
            tally.count(&label, visit.goes_there("archive", "", dialect, protection));
            // Links below a share: of the configuration, in another case, and of Samba.
            for (link, name) in [("FAR\\old", "link"), ("samba", "msdfs")] {
                let label = format!("smbclient/{name}-{dialect}-{protection}");
                tally.count(&label, visit.goes_there("linked", link, dialect, protection));
            }
        }
    }
    tally.count("smbclient/list-of-shares", visit.shares_are_listed());
    tally.count("smbclient/wrong-password", visit.wrong_password());
    tally.count("rpcclient/srvinfo", visit.rpc("srvinfo", "platform_id"));
    tally.count("rpcclient/netshareenum", visit.rpc("netshareenum", "netname: data"));
    tally.count("rpcclient/netshareenumall", visit.rpc("netshareenumall", "netname: IPC$"));
    for (call, wanted) in ACCOUNTS {
        tally.count(&format!("rpcclient/{call}"), visit.rpc(call, wanted));
    }
    tally.count(
        "rpcclient/createdomuser",
        visit.rpc_is_denied(&visit.credentials, "createdomuser x"),
    );
    tally.count("rpcclient/anonymous", visit.rpc_is_denied("%", "enumdomusers"));
    tally.count("net/rpc-user", visit.net(&["rpc", "user"], "root"));
    tally.count("net/rpc-user-info", visit.net(&["rpc", "user", "info", "root"], "None"));
    tally.count("net/rpc-group", visit.net(&["rpc", "group", "list"], "Administrators"));
    visit.impacket(&mut tally)?;
    tally.count("smbclients/gateway-runs", gateway.is_running());
    tally.count("smbclients/other-gateway-runs", other.is_running());
    Ok(tally)
}

impl Visit<'_> {
    fn run(&self, words: &[&str]) -> Result<String> {
        self.net.output(&[&["timeout", "120"], words].concat())
    }

    /// Runs smbclient with these options and its own commands.
    fn smbclient(&self, options: &[&str], commands: &str) -> Result<String> {
        let target = format!("//{}/data", self.host);
        let head = ["smbclient", &target, "-U", &self.credentials];
        self.run(&[&head[..], options, &["-c", commands]].concat())
    }

    /// Uploads a tree, downloads it, and removes it; compares the files on the server's disk and here.
    fn round_trip(&self, dialect: &str, protection: &str) -> Result<()> {
        let least = format!("--option=client min protocol={dialect}");
        let protect = format!("--client-protection={protection}");
        let options = ["-m", dialect, &least, &protect];
        let name = format!("from-{dialect}-{protection}");
        let (tree, back) = (self.dir.join(&name), self.dir.join(format!("{name}-back")));
        let made = self.share.join("made-by-host");
        for folder in [&tree, &tree.join("inner"), &back] {
            fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        for (n, file) in names(&made)?.iter().enumerate() {
            let to = if n % 2 == 0 { tree.join(file) } else { tree.join("inner").join(file) };
            fs::copy(made.join(file), &to).map_err(|e| format!("{}: {e}", to.display()))?;
        }
        let put = format!("lcd {}; recurse on; prompt off; mput {name}", self.dir.display());
        self.smbclient(&options, &put)?;
        same_tree(&tree, &self.share.join(&name))?;
        let get = format!("lcd {}; recurse on; prompt off; mget {name}", back.display());
        self.smbclient(&options, &get)?;
        same_tree(&tree, &back.join(&name))?;
        let listed = self.smbclient(&options, &format!("ls {name}\\inner\\*; deltree {name}"))?;
        if let Some(missing) = names(&tree.join("inner"))?.iter().find(|n| !listed.contains(*n)) {
            return Err(format!("{missing} is not listed"));
        }
        let gone = !self.share.join(&name).exists();
        gone.then_some(()).ok_or_else(|| format!("{name} is still there"))
    }

    /// Opens a share of another gateway through the referring gateway, by a share or by a link below one, and checks that an
    /// uploaded file arrives there.
    fn goes_there(&self, share: &str, link: &str, dialect: &str, protection: &str) -> Result<()> {
        let least = format!("--option=client min protocol={dialect}");
        let protect = format!("--client-protection={protection}");
        let there = self.dir.join("other/archive");
        let made = self.share.join("made-by-host");
        let file = names(&made)?.into_iter().next().ok_or("nothing was made")?;
        let name = format!("{share}-{}-{dialect}-{protection}", link.replace('\\', "-"));
        let back = self.dir.join("back");
        let (from, target) = (made.join(file), format!("//{}/{share}", self.host));
        let below = if link.is_empty() { String::new() } else { format!("{link}\\") };
        let commands = format!(
            "get {below}readme {back}; put {from} {below}{name}; ls {below}*",
            back = back.display(),
            from = from.display()
        );
        let head = ["smbclient", &target, "-U", &self.credentials, "-m", dialect, &least, &protect];
        let said = self.run(&[&head[..], &["-c", &commands]].concat())?;
        if !said.contains("readme") || !said.contains(&name) {
            return Err(format!("not listed:\n{said}"));
        }
        let cmp = |a: &Path, b: &Path| {
            output(&["cmp", &a.display().to_string(), &b.display().to_string()]).map(drop)
        };
        cmp(&there.join("readme"), &back)?;
        cmp(&from, &there.join(&name))
    }

    fn shares_are_listed(&self) -> Result<()> {
        let said = self.run(&["smbclient", "-L", &self.host, "-U", &self.credentials])?;
        let missing =
            ["data", "ro", "archive", "IPC$"].into_iter().find(|name| !said.contains(name));
        missing.map_or(Ok(()), |name| Err(format!("{name} is not listed:\n{said}")))
    }

    fn wrong_password(&self) -> Result<()> {
        let target = format!("//{}/data", self.host);
        match self.run(&["smbclient", &target, "-U", "root%wrong", "-c", "ls"]) {
            Ok(said) => Err(format!("let in:\n{said}")),
            Err(said) if said.contains("NT_STATUS_LOGON_FAILURE") => Ok(()),
            Err(said) => Err(said),
        }
    }

    fn rpc(&self, call: &str, wanted: &str) -> Result<()> {
        let said = self.run(&["rpcclient", "-U", &self.credentials, &self.host, "-c", call])?;
        if said.contains(wanted) { Ok(()) } else { Err(format!("no {wanted} in:\n{said}")) }
    }

    /// The call fails, as the server refuses it.
    fn rpc_is_denied(&self, credentials: &str, call: &str) -> Result<()> {
        match self.run(&["rpcclient", "-U", credentials, &self.host, "-c", call]) {
            Ok(said) => Err(format!("it was served:\n{said}")),
            Err(said) if said.contains("NT_STATUS_ACCESS_DENIED") => Ok(()),
            Err(said) => Err(said),
        }
    }

    fn net(&self, words: &[&str], wanted: &str) -> Result<()> {
        let who = ["-U", &self.credentials, "-S", &self.host];
        let said = self.run(&[&["net"][..], words, &who].concat())?;
        let is_there = said.lines().any(|line| line.trim() == wanted);
        if is_there { Ok(()) } else { Err(format!("no {wanted} in:\n{said}")) }
    }

    fn impacket(&self, tally: &mut Tally) -> Result<()> {
        let (user, password) = LAB_USER;
        let words = ["tests/lab/impacket-client.py", &self.host, "445", user, password, "data"];
        // The program exits with 1 after a failed check; its lines tell which.
        let said = self.run(&words).unwrap_or_else(|said| said);
        let mut checks = 0;
        for line in said.lines() {
            if let Some(name) = line.strip_prefix("ok ") {
                tally.count(&format!("impacket/{name}"), Ok(()));
            } else if let Some(what) = line.split("not ok ").nth(1) {
                tally.fail(format!("impacket/{what}"));
            } else {
                continue;
            }
            checks += 1;
        }
        if checks > 0 { Ok(()) } else { Err(format!("impacket: {said}")) }
    }
}

/// Checks that both trees have the same names and contents, at least one level of folders deep.
fn same_tree(a: &Path, b: &Path) -> Result<()> {
    output(&["diff", "-r", &a.display().to_string(), &b.display().to_string()]).map(drop)
}
