//! Which crate may depend on which: an edge that is not in this table is a mistake.

use std::fs;

use crate::sh::{Result, Tally};

/// The only edges allowed. Leaves know none of ours; a request walks the graph down once and up once.
const ALLOWED: [(&str, &[&str]); 11] = [
    ("iobuf", &[]),
    ("state", &[]),
    ("config", &[]),
    ("vfs", &["iobuf", "state"]),
    ("rdma-transport", &["iobuf"]),
    ("nfsrdma", &["iobuf", "state", "vfs", "rdma-transport"]),
    ("smbd-core", &["iobuf", "state", "vfs", "rdma-transport"]),
    ("client", &["iobuf", "rdma-transport", "nfsrdma", "smbd-core"]),
    (
        "gateway",
        &["iobuf", "state", "vfs", "rdma-transport", "nfsrdma", "smbd-core", "config", "client"],
    ),
    (
        "tests",
        &[
            "iobuf",
            "state",
            "vfs",
            "rdma-transport",
            "nfsrdma",
            "smbd-core",
            "config",
            "client",
            "gateway",
        ],
    ),
    ("xtask", &[]),
];

/// Crates whose core must build without a runtime.
const WITHOUT_TOKIO: [&str; 3] = ["iobuf", "state", "config"];

/// Checks every member's manifest against the table.
pub(crate) fn check() -> Result<Tally> {
    let mut tally = Tally::default();
    let members = fs::read_to_string("Cargo.toml").map_err(|e| format!("Cargo.toml: {e}"))?;
    for (name, allowed) in ALLOWED {
        let path = format!("{name}/Cargo.toml");
        let manifest = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        tally.count(&path, edges(name, allowed, &manifest));
    }
    let missing = member_names(&members).find(|m| !ALLOWED.iter().any(|(name, _)| name == m));
    let unknown =
        missing.map_or(Ok(()), |m| Err(format!("member {m} is not in xtask/src/graph.rs")));
    tally.count("members", unknown);
    Ok(tally)
}

fn edges(name: &str, allowed: &[&str], manifest: &str) -> Result<()> {
    for dependency in dependencies(manifest) {
        let ours = ALLOWED.iter().any(|(other, _)| *other == dependency);
        if ours && dependency != name && !allowed.contains(&dependency.as_str()) {
            return Err(format!("{name} must not depend on {dependency}"));
        }
        if dependency == "tokio" && WITHOUT_TOKIO.contains(&name) {
            return Err(format!("{name} must build without tokio"));
        }
    }
    Ok(())
}

/// The names in `[dependencies]` and in `[target.*.dependencies]`; what only tests use may be anything.
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

fn member_names(manifest: &str) -> impl Iterator<Item = &str> {
    let list = manifest.lines().find(|l| l.starts_with("members")).unwrap_or("");
    list.split('"').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_upwards_is_found() {
        let manifest = "[dependencies]\niobuf.workspace = true\nnfsrdma = { path = \"x\" }\n";
        assert!(edges("vfs", &["iobuf", "state"], manifest).is_err());
        assert_eq!(edges("client", &["iobuf", "nfsrdma"], manifest), Ok(()));
    }

    #[test]
    fn tests_may_use_anything() {
        let manifest = "[dependencies]\n\n[dev-dependencies]\nnfsrdma.workspace = true\n";
        assert_eq!(edges("iobuf", &[], manifest), Ok(()));
    }

    #[test]
    fn a_runtime_in_a_core_is_found() {
        assert!(edges("state", &[], "[dependencies]\ntokio.workspace = true\n").is_err());
    }
}
