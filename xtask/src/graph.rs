//! Checks the dependencies between crates against a table. Also refuses a dependency that no file uses, new dependency cycles
//! between the files of a crate, and messages that are parsed by hand.

mod by_hand;
mod circles;
mod unused;

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::sh::{Result, Tally, output};

/// The only edges allowed. Leaves depend on no other crate of the project; a request passes through the graph down once and up
/// once.
const ALLOWED: [(&str, &[&str]); 31] = [
    ("mutex", &[]),
    ("wire", &[]),
    ("policy", &[]),
    ("rates", &["policy"]),
    ("nfs-proto", &["wire"]),
    ("smb-proto", &["wire"]),
    ("smb-crypto", &["smb-proto"]),
    ("smb-compress", &["smb-proto"]),
    ("smb-auth", &["smb-proto", "gss-krb5"]),
    ("iobuf", &[]),
    ("state", &[]),
    ("recovery", &[]),
    ("audit", &[]),
    ("config", &["policy"]),
    ("cluster", &[]),
    ("discovery", &[]),
    ("ceph-sys", &["dylib"]),
    ("vfs", &["wire", "policy", "rates", "iobuf", "audit", "state", "ceph-sys"]),
    ("dylib", &[]),
    ("rdma-sys", &["dylib"]),
    ("gss-sys", &["dylib", "gss-krb5"]),
    ("domain-sys", &["dylib", "wire"]),
    ("rdma-transport", &["wire", "iobuf", "audit", "rdma-sys"]),
    ("gss-krb5", &[]),
    (
        "nfsrdma",
        &[
            "wire",
            "nfs-proto",
            "iobuf",
            "state",
            "recovery",
            "audit",
            "rates",
            "vfs",
            "gss-sys",
            "gss-krb5",
            "rdma-transport",
        ],
    ),
    (
        "smbd-core",
        &[
            "smb-proto",
            "smb-crypto",
            "smb-compress",
            "smb-auth",
            "iobuf",
            "state",
            "recovery",
            "audit",
            "rates",
            "vfs",
            "gss-sys",
            "rdma-transport",
        ],
    ),
    (
        "client",
        &[
            "wire",
            "nfs-proto",
            "smb-proto",
            "smb-crypto",
            "smb-compress",
            "iobuf",
            "rdma-transport",
            "smb-auth",
            "gss-sys",
            "gss-krb5",
        ],
    ),
    ("tools", &["iobuf", "audit", "config", "client"]),
    (
        "gateway",
        &[
            "smb-proto",
            "smb-auth",
            "iobuf",
            "state",
            "recovery",
            "audit",
            "rates",
            "vfs",
            "ceph-sys",
            "domain-sys",
            "gss-sys",
            "gss-krb5",
            "rdma-transport",
            "nfsrdma",
            "smbd-core",
            "config",
            "cluster",
            "discovery",
            "tools",
        ],
    ),
    (
        "tests",
        &[
            "wire",
            "nfs-proto",
            "smb-proto",
            "smb-crypto",
            "smb-compress",
            "smb-auth",
            "iobuf",
            "discovery",
            "state",
            "recovery",
            "audit",
            "rates",
            "vfs",
            "rdma-transport",
            "gss-krb5",
            "nfsrdma",
            "smbd-core",
            "config",
            "client",
            "gateway",
        ],
    ),
    ("xtask", &[]),
];

/// Crates that any crate may depend on: about threads, and independent of what the gateway does.
const EVERYWHERE: [&str; 1] = ["mutex"];

/// Crates whose core must build without a runtime.
const WITHOUT_TOKIO: [&str; 15] = [
    "mutex",
    "policy",
    "audit",
    "gss-krb5",
    "wire",
    "nfs-proto",
    "smb-proto",
    "smb-crypto",
    "smb-compress",
    "smb-auth",
    "iobuf",
    "state",
    "config",
    "dylib",
    "rdma-sys",
];

/// Checks every member's manifest against the table.
pub(crate) fn check() -> Result<Tally> {
    let mut tally = Tally::default();
    let members = fs::read_to_string("Cargo.toml").map_err(|e| format!("Cargo.toml: {e}"))?;
    for (name, allowed) in ALLOWED {
        let folder = folder_of(name, &members)?;
        let path = format!("{folder}/Cargo.toml");
        let manifest = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        tally.count(&path, edges(name, allowed, &manifest));
        tally.count(&format!("{path}, what is used"), unused::check(folder, &manifest));
        tally.count(&format!("{name}, what is read by hand"), by_hand::check(folder));
    }
    for (name, known) in circles::CLEARED {
        let source = Path::new(folder_of(name, &members)?).join("src");
        tally.count(&format!("circles of {name}"), circles::check(&source, known));
    }
    let missing =
        member_folders(&members).find(|m| !ALLOWED.iter().any(|(name, _)| *name == last(m)));
    let unknown =
        missing.map_or(Ok(()), |m| Err(format!("member {m} is not in xtask/src/graph.rs")));
    tally.count("members", unknown);
    let metadata =
        output(&["cargo", "metadata", "--no-deps", "--offline", "--format-version", "1"]);
    tally.count("cargo run", metadata.and_then(|text| one_program(&text)));
    Ok(tally)
}

/// Checks that `cargo run` starts `headgate`, as the README says: no default member has another program.
fn one_program(metadata: &str) -> Result<()> {
    let told: Value = serde_json::from_str(metadata).map_err(|e| format!("cargo metadata: {e}"))?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let default = list(&told["workspace_default_members"]);
    let mut programs = Vec::new();
    for package in list(&told["packages"]).iter().filter(|p| default.contains(&p["id"])) {
        let targets = list(&package["targets"]);
        let bins = targets.iter().filter(|t| list(&t["kind"]).contains(&"bin".into()));
        programs.extend(bins.filter_map(|t| Some(t["name"].as_str()?.to_owned())));
    }
    match programs.as_slice() {
        [one] if one == "headgate" => Ok(()),
        _ => {
            Err(format!("it finds {}; make what is not `headgate` an example", programs.join(", ")))
        }
    }
}

fn edges(name: &str, allowed: &[&str], manifest: &str) -> Result<()> {
    for dependency in dependencies(manifest) {
        let ours = ALLOWED.iter().any(|(other, _)| *other == dependency);
        let allowed = [allowed, &EVERYWHERE].concat();
        if ours && dependency != name && !allowed.contains(&dependency.as_str()) {
            return Err(format!("{name} must not depend on {dependency}"));
        }
        if dependency == "tokio" && WITHOUT_TOKIO.contains(&name) {
            return Err(format!("{name} must build without tokio"));
        }
    }
    Ok(())
}

/// Returns the names in `[dependencies]` and in `[target.*.dependencies]`; dependencies of tests only are not restricted.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut inside = false;
    let mut names = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line == "[dependencies]" || line.ends_with(".dependencies]");
        } else if inside && !line.starts_with('#') {
            let name = line.split(['=', '.', ' ']).next().unwrap_or("");
            if !name.is_empty() {
                names.push(name.to_owned());
            }
        }
    }
    names
}

/// Returns the folder of a member, from the list of members.
fn folder_of<'a>(name: &str, manifest: &'a str) -> Result<&'a str> {
    member_folders(manifest)
        .find(|folder| last(folder) == name)
        .ok_or_else(|| format!("Cargo.toml has no member {name}"))
}

/// Returns the name of the crate in this folder.
fn last(folder: &str) -> &str {
    folder.rsplit('/').next().unwrap_or(folder)
}

fn member_folders(manifest: &str) -> impl Iterator<Item = &str> {
    let list = manifest.lines().find(|l| l.starts_with("members")).unwrap_or("");
    list.split('"').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upward_edge_is_found() {
        let manifest = "[dependencies]\niobuf.workspace = true\nnfsrdma = { path = \"x\" }\n";
        assert!(edges("vfs", &["iobuf", "state"], manifest).is_err());
        assert_eq!(edges("client", &["wire", "nfs-proto", "iobuf", "nfsrdma"], manifest), Ok(()));
    }

    /// No crate that `client` depends on is a server: other projects' programs use the client without one.
    #[test]
    fn client_depends_on_no_server() {
        let mut below = vec!["client"];
        let mut seen = Vec::new();
        while let Some(name) = below.pop() {
            seen.push(name);
            let (_, knows) = ALLOWED.iter().find(|(other, _)| *other == name).unwrap();
            below.extend(knows.iter().filter(|other| !seen.contains(*other)));
        }
        for server in ["nfsrdma", "smbd-core", "gateway", "vfs", "state", "recovery"] {
            assert!(!seen.contains(&server), "{server}");
        }
    }

    /// The daemon has no client of its own, and the tools have nothing of the daemon but its configuration.
    #[test]
    fn daemon_and_tools_are_apart() {
        let knows = |of: &str| ALLOWED.iter().find(|(name, _)| *name == of).unwrap().1;
        assert!(!knows("gateway").contains(&"client"));
        for server in ["nfsrdma", "smbd-core", "gateway", "vfs", "state", "recovery", "cluster"] {
            assert!(!knows("tools").contains(&server), "{server}");
        }
    }

    #[test]
    fn second_program_is_found() {
        let with = |names: &[&str]| {
            let bin = |name: &&str| format!(r#"{{"kind":["bin"],"name":"{name}"}}"#);
            let bins: Vec<String> = names.iter().map(bin).collect();
            let package = format!(r#"{{"id":"a","targets":[{}]}}"#, bins.join(","));
            let other = r#"{"id":"b","targets":[{"kind":["bin"],"name":"xtask"}]}"#;
            format!(r#"{{"packages":[{package},{other}],"workspace_default_members":["a"]}}"#)
        };
        assert_eq!(one_program(&with(&["headgate"])), Ok(()));
        assert!(one_program(&with(&["headgate", "second"])).is_err());
        assert!(one_program(&with(&[])).is_err());
    }

    #[test]
    fn tests_may_use_anything() {
        let manifest = "[dependencies]\n\n[dev-dependencies]\nnfsrdma.workspace = true\n";
        assert_eq!(edges("iobuf", &[], manifest), Ok(()));
    }

    #[test]
    fn runtime_in_core_is_found() {
        assert!(edges("state", &[], "[dependencies]\ntokio.workspace = true\n").is_err());
    }
}
