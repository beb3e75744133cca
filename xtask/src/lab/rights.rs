//! Setup of the job `rights`: shares that restrict and map users, and those users. The guest's side is tests/lab/guest/rights.py.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use super::gateway::LAB_USER;
use crate::sh::{Result, output};

/// Users of SMB by name and number, and whether they are in [`GROUP`].
const USERS: [(&str, u32, bool); 4] = [
    ("reader", 2001, true),
    ("writer", 2002, true),
    ("denied", 2003, true),
    ("stranger", 2004, false),
];
const GROUP: u32 = 2100;
/// Size in bytes of the file `kept` in each share.
const KEPT: &str = "1048577";

/// Shares, each with a world-writable folder of its name, and their options.
const SHARES: [(&str, &str); 6] = [
    ("team", "squash: none, access: {read: [reader, \"@2100\"], write: [writer], deny: [denied]}"),
    ("forced", "squash: none, force: {user: writer, group: \"@2100\"}"),
    ("masked", "squash: none, masks: {file: 0660, folder: 2770}"),
    ("old", "squash: none, export: /srv/nfs/old"),
    ("addresses", "squash: none, clients: [10.77.0.0/16, {from: 10.77.1.0/24, read_only: true}]"),
    ("home", "squash: none"),
];

/// Makes folders and a configuration of them in `dir`; returns the option that names it.
pub(super) fn shares(dir: &Path) -> Result<[String; 2]> {
    let failed = |e: std::io::Error| format!("{}: {e}", dir.display());
    let mut text = String::from("shares:\n");
    for (name, says) in SHARES {
        let folder = dir.join(name);
        fs::create_dir_all(folder.join("deeper/still")).map_err(failed)?;
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).map_err(failed)?;
        fs::write(folder.join("deeper/still/file"), "deep\n").map_err(failed)?;
        let kept = folder.join("kept");
        let file = kept.display().to_string();
        output(&["python3", "tests/lab/share.py", "pattern", &file, "kept", KEPT])?;
        fs::set_permissions(&kept, Permissions::from_mode(0o666)).map_err(failed)?;
        let path = folder.display();
        let of_each = if name == "home" { "/{user}" } else { "" };
        text += &format!("  - {{name: {name}, path: \"{path}{of_each}\", {says}}}\n");
    }
    // Home folders are created when their users log on.
    let homes = dir.join("home");
    fs::remove_dir_all(&homes).and_then(|()| fs::create_dir(&homes)).map_err(failed)?;
    fs::set_permissions(&homes, Permissions::from_mode(0o755)).map_err(failed)?;
    chown(&homes, Some(0), Some(0)).map_err(failed)?;
    let password = dir.join("rights.password");
    fs::write(&password, LAB_USER.1).map_err(failed)?;
    fs::set_permissions(&password, Permissions::from_mode(0o600)).map_err(failed)?;
    text += "users:\n";
    for (name, id, is_member) in USERS {
        let groups = if is_member { GROUP.to_string() } else { String::new() };
        let file = password.display();
        text += &format!(
            "  - {{name: {name}, password_file: {file}, uid: {id}, gid: {id}, groups: [{groups}]}}\n"
        );
    }
    let file = dir.join("rights.yaml");
    fs::write(&file, text).map_err(failed)?;
    Ok(["--config".into(), file.display().to_string()])
}
