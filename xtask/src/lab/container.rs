//! Runs the container image as a guest's server, with tools that need no container engine: the root file system from the
//! Containerfile's recipe, read-only, in separate namespaces, by a user without privileges.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Child;

use super::gateway::program;
use crate::sh::{Result, output};

/// User of the image's program: deploy/packaging/Containerfile.
const UID: u32 = 65532;

/// Command before the program in the namespace of the network: it drops root's privileges.
const WITHOUT_PRIVILEGES: [&str; 7] =
    ["setpriv", "--reuid", "65532", "--regid", "65532", "--clear-groups", "--no-new-privs"];

/// Makes the image's root below `dir`, and folders that belong to its user; returns the words that run `serve` in it.
pub(super) fn make(dir: &Path) -> Result<Vec<String>> {
    let root = dir.join("root");
    let (to, headgate) = (root.display().to_string(), program().display().to_string());
    output(&["deploy/packaging/container-root", &to, &headgate])?;
    for folder in ["share", "state"] {
        let folder = dir.join(folder);
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        chown(&folder, Some(UID), Some(UID)).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let at = |name: &str| dir.join(name).display().to_string();
    let mut words: Vec<String> = WITHOUT_PRIVILEGES.map(str::to_owned).into();
    let mounts = [
        ["--ro-bind", &to, "/"],
        ["--bind", &at("share"), "/srv/data"],
        ["--bind", &at("state"), "/state"],
    ];
    words.push("bwrap".into());
    words.extend(mounts.concat().into_iter().map(str::to_owned));
    let user = UID.to_string();
    let own = "--proc /proc --dev /dev --unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup \
               --as-pid-1 --cap-drop ALL --die-with-parent --clearenv";
    words.extend(own.split_whitespace().map(str::to_owned));
    words.extend(["--uid", &user, "--gid", &user].map(str::to_owned));
    words.extend(["/usr/bin/headgate", "serve", "--config"].map(str::to_owned));
    words.push("/etc/headgate/headgate.yaml".into());
    Ok(words)
}

/// Asks the program to end as a container engine does, and waits: it must exit on its own and report success.
pub(super) fn stop(bwrap: &mut Child) -> Result<()> {
    let inside = only_child(bwrap.id())?;
    output(&["kill", "-TERM", &inside.to_string()])?;
    match bwrap.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("after SIGTERM it ended with {status}")),
        Err(e) => Err(e.to_string()),
    }
}

/// Returns the process that bwrap watches: the first of the container.
fn only_child(pid: u32) -> Result<u32> {
    let path = PathBuf::from(format!("/proc/{pid}/task/{pid}/children"));
    let children = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut numbers = children.split_whitespace().filter_map(|n| n.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(one), None) => Ok(one),
        _ => Err(format!("{}: `{}` is not one process", path.display(), children.trim())),
    }
}
