//! Tests that packages and the documentation agree with the program and with each other.

#![allow(clippy::unwrap_used, missing_docs)] // A test that cannot go on says so.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_yaml::Value;

/// Uid of the program in a container.
const CONTAINER_UID: u64 = 65532;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

fn headgate(args: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_headgate")).args(args).output().unwrap()
}

/// Users in the documentation, and ids that replace them: a host need not have these users.
const PEOPLE: [(&str, &str); 9] = [
    ("alice@example.org", "1001"),
    ("alice", "1001"),
    ("bob", "1002"),
    ("eve", "1003"),
    ("team", "1004"),
    ("@staff", "@root"),
    ("@Domain Users", "@root"),
    ("@Domain Admins", "@root"),
    ("@Backup", "@root"),
];

/// Checks a configuration from the documentation, with existing folders and files.
fn must_be_sound(what: &str, text: &str) {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().display().to_string();
    let mut out = String::new();
    for line in text.lines() {
        let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
        let rest = rest.strip_prefix("- ").map_or((rest, ""), |r| (r, "- "));
        let (rest, dash) = rest;
        let made = |path: &str, dir: bool| {
            let path = path.split(" #").next().unwrap_or(path).trim();
            let place = format!("{here}{path}");
            fs::create_dir_all(Path::new(&place).parent().unwrap()).unwrap();
            match dir {
                true => fs::create_dir_all(&place).unwrap(),
                false => fs::write(&place, "secret").unwrap(),
            }
            place
        };
        let line = if let Some(path) = rest.strip_prefix("path: ") {
            format!("{indent}{dash}path: {}", made(path, true))
        } else if let Some(path) = rest.strip_prefix("password_file: ") {
            format!("{indent}{dash}password_file: {}", made(path, false))
        } else if let Some(path) = rest.strip_prefix("bind_password_file: ") {
            format!("{indent}bind_password_file: {}", made(path, false))
        } else if rest.starts_with("ldap: ") {
            // No server of the documentation is asked.
            format!("{indent}ldap: ldaps://127.0.0.1:1")
        } else if let Some(path) = rest.strip_prefix("keytab: ") {
            let place = made(path, false);
            fs::write(&place, keytab()).unwrap();
            fs::set_permissions(&place, fs::Permissions::from_mode(0o600)).unwrap();
            format!("{indent}{dash}keytab: {place}")
        } else if ["access: ", "force: ", "backup: ", "restore: ", "take_ownership: "]
            .iter()
            .any(|key| rest.starts_with(key))
        {
            PEOPLE.iter().fold(line.to_owned(), |l, (name, of_host)| l.replace(name, of_host))
        } else {
            line.to_owned()
        };
        out += &line;
        out.push('\n');
    }
    let file = folder.path().join("headgate.yaml");
    fs::write(&file, out).unwrap();
    let state = folder.path().join("state").display().to_string();
    let o = headgate(&["check", "--state", &state, "--config", &file.display().to_string()]);
    // The ports may be in use; only invalid configurations end with 2.
    assert_ne!(o.status.code(), Some(2), "{what}: {}", String::from_utf8_lossy(&o.stderr));
    assert!(String::from_utf8_lossy(&o.stdout).contains("The configuration is sound"), "{what}");
}

/// Returns a keytab with a key of zeros for each protocol (MIT krb5, "The keytab file format").
fn keytab() -> Vec<u8> {
    let mut all = vec![5, 2];
    for service in ["cifs", "nfs"] {
        let mut entry = 2u16.to_be_bytes().to_vec();
        for part in ["EXAMPLE.ORG", service, "gw.example.org"] {
            entry.extend(u16::try_from(part.len()).unwrap().to_be_bytes());
            entry.extend(part.as_bytes());
        }
        // Type of the name, time, version, and AES-256 with its length.
        entry.extend([0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 18, 0, 32]);
        entry.extend([0; 32]);
        all.extend(u32::try_from(entry.len()).unwrap().to_be_bytes());
        all.extend(entry);
    }
    all
}

#[test]
fn every_configuration_in_the_documentation_is_sound() {
    let mut pages: Vec<PathBuf> = vec![root().join("README.md")];
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|e| e.unwrap().path());
    pages.extend(docs.filter(|p| p.extension().is_some_and(|e| e == "md")));
    let mut found = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for block in text.split("```yaml\n").skip(1) {
            let block = block.split("```").next().unwrap();
            must_be_sound(&page.display().to_string(), block);
            found += 1;
        }
    }
    assert!(found >= 3, "{found} examples found");
}

/// Returns the settings `key: word` in the text of a page, outside of fenced blocks.
fn settings_in(page: &str) -> Vec<(String, String)> {
    let prose = page.split("```").step_by(2);
    let code =
        prose.flat_map(|text| text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)));
    let is_key = |key: &str| {
        !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c == '.')
    };
    code.filter_map(|code| code.split_once(": "))
        .filter(|(key, value)| is_key(key) && value.chars().all(|c| c.is_ascii_lowercase()))
        .map(|(key, value)| (key.rsplit('.').next().unwrap_or(key).to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn settings_in_the_text_of_pages_exist() {
    // Settings of a mount shown by rpcdebug, and of Prometheus.
    const OF_OTHERS: [(&str, &str); 2] = [("xprt", "rdma"), ("scheme", "https")];
    let reference = read("docs/configuration.md");
    let takes = |key: &str, value: &str| {
        let row = format!("| `{key}` | ");
        let of_key =
            reference.lines().filter_map(|line| line.strip_prefix(&row)?.split(" | ").next());
        of_key.into_iter().any(|values| {
            let is_free = values.contains("name") || values.contains("path");
            values.contains(&format!("`{value}`")) || is_free && !["true", "false"].contains(&value)
        })
    };
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|e| e.unwrap().path());
    let (mut found, mut wrong) = (0, Vec::new());
    for page in
        docs.filter(|p| p.extension().is_some_and(|e| e == "md") && !p.ends_with("status.md"))
    {
        for (key, value) in settings_in(&fs::read_to_string(&page).unwrap()) {
            found += 1;
            if !takes(&key, &value) && !OF_OTHERS.contains(&(&key, &value)) {
                wrong.push(format!("{}: `{key}: {value}`", page.display()));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert!(found > 20, "{found} settings found");
}

#[test]
fn the_configurations_of_packages_are_sound() {
    for file in ["deploy/packaging/container.yaml", "deploy/packaging/headgate.yaml"] {
        must_be_sound(file, &read(file));
    }
    for file in ["deploy/packaging/kubernetes.yaml", "deploy/packaging/kubernetes-rdma.yaml"] {
        let map = documents(file).into_iter().find(|d| d["kind"] == "ConfigMap").unwrap();
        must_be_sound(file, map["data"]["headgate.yaml"].as_str().unwrap());
    }
}

fn documents(file: &str) -> Vec<Value> {
    let text = read(file);
    text.split("\n---\n").map(|d| serde_yaml::from_str(d).unwrap()).collect()
}

/// Returns the number of a port, also of a UDP port.
fn port(text: &str) -> u64 {
    text.trim_end_matches("/udp").parse().unwrap()
}

/// Returns the ports on which the program listens with a configuration, defaults included.
fn ports_of(configuration: &str) -> BTreeSet<u64> {
    let file: Value = serde_yaml::from_str(configuration).unwrap();
    let or = |value: &Value, default| value.as_u64().unwrap_or(default);
    let admin = file["admin"].as_str().unwrap_or("127.0.0.1:9464");
    let admin = admin.rsplit_once(':').unwrap().1.parse().unwrap();
    [
        or(&file["nfs"]["port"], 2049),
        or(&file["nfs"]["rdma_port"], 20049),
        or(&file["smb"]["port"], 445),
        or(&file["smb"]["direct_port"], 5445),
        admin,
    ]
    .into()
}

#[test]
fn the_containerfile_keeps_to_its_recipe() {
    let text = read("deploy/packaging/Containerfile");
    let instruction = |word: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|l| l.strip_prefix(&format!("{word} ")));
        lines.map(str::to_owned).collect()
    };
    // The image contains exactly the files that deploy/packaging/container-root creates.
    assert_eq!(instruction("FROM").last().unwrap(), "scratch");
    assert_eq!(instruction("COPY").last().unwrap(), "--from=build /image /");
    let recipe = "deploy/packaging/container-root /image target/release/headgate \"$VERBS\"";
    assert!(instruction("RUN").iter().any(|r| r == recipe), "{text}");
    let user = format!("{CONTAINER_UID}:{CONTAINER_UID}");
    assert_eq!(instruction("USER"), [user]);
    let exposed: BTreeSet<u64> = instruction("EXPOSE").join(" ").split(' ').map(port).collect();
    assert!(instruction("EXPOSE").join(" ").contains("2049/udp"));
    assert_eq!(exposed, ports_of(&read("deploy/packaging/container.yaml")));
    assert!(exposed.iter().all(|port| *port > 1024), "{exposed:?}");
    assert!(instruction("CMD").iter().any(|c| c.contains("/etc/headgate/headgate.yaml")));
}

#[test]
fn compose_runs_it_without_root_and_without_a_writable_root() {
    let service = &documents("deploy/packaging/compose.yaml")[0]["services"]["headgate"];
    assert_eq!(service["user"], format!("{CONTAINER_UID}:{CONTAINER_UID}").as_str());
    assert_eq!(service["read_only"], true);
    assert_eq!(service["cap_drop"][0], "ALL");
    let inside: BTreeSet<u64> = service["ports"]
        .as_sequence()
        .unwrap()
        .iter()
        .map(|p| port(p.as_str().unwrap().rsplit_once(':').unwrap().1))
        .collect();
    assert!(service["ports"].as_sequence().unwrap().contains(&"2049:2049/udp".into()));
    assert_eq!(inside, ports_of(&read("deploy/packaging/container.yaml")));
}

#[test]
fn kubernetes_runs_it_without_root_and_without_a_writable_root() {
    for (file, rdma) in [
        ("deploy/packaging/kubernetes.yaml", false),
        ("deploy/packaging/kubernetes-rdma.yaml", true),
    ] {
        let all = documents(file);
        let of_kind = |kind: &str| all.iter().find(|d| d["kind"] == kind);
        let pod = &of_kind("StatefulSet").unwrap()["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{file}");
        assert_eq!(pod["securityContext"]["runAsUser"].as_u64(), Some(CONTAINER_UID), "{file}");
        let container = &pod["containers"][0];
        let security = &container["securityContext"];
        assert_eq!(security["readOnlyRootFilesystem"], true, "{file}");
        assert_eq!(security["allowPrivilegeEscalation"], false, "{file}");
        assert_eq!(security["capabilities"]["drop"][0], "ALL", "{file}");
        // A capability would have no effect: a non-root process gets only ambient ones (capabilities(7)), which Kubernetes does
        // not set.
        assert!(security["capabilities"]["add"].is_null(), "{file}");
        assert_eq!(read(file).contains("LimitMEMLOCK=infinity"), rdma, "{file}: locked memory");
        let ports: BTreeSet<u64> = container["ports"]
            .as_sequence()
            .unwrap()
            .iter()
            .map(|p| p["containerPort"].as_u64().unwrap())
            .collect();
        let configuration = of_kind("ConfigMap").unwrap()["data"]["headgate.yaml"].as_str();
        assert_eq!(ports, ports_of(configuration.unwrap()), "{file}");
        let mut listed = container["ports"].as_sequence().unwrap().iter();
        let udp = listed.find(|p| p["protocol"] == "UDP").unwrap();
        assert_eq!(udp["containerPort"], 2049, "{file}");
        let device = container["resources"]["limits"]
            .as_mapping()
            .unwrap()
            .keys()
            .any(|k| k.as_str().unwrap().starts_with("rdma/"));
        assert_eq!(device, rdma, "{file}");
        assert_eq!(pod["hostNetwork"] == true, rdma, "{file}");
    }
}

/// The package installs only generated and existing files.
#[test]
fn the_debian_package_names_files_that_are_made() {
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().display().to_string();
    assert_eq!(headgate(&["generate", &made]).status.code(), Some(0));
    let manifest = read("gateway/Cargo.toml");
    let mut generated = 0;
    for line in manifest.lines().map(str::trim).filter(|l| l.starts_with("[\"")) {
        let source = line.split('"').nth(1).unwrap();
        if let Some(name) = source.strip_prefix("../target/packaging/") {
            let (dir, pattern) = name.split_once('/').unwrap();
            let (start, end) = pattern.split_once('*').unwrap_or((pattern, ""));
            let mut names = fs::read_dir(folder.path().join(dir))
                .unwrap()
                .map(|e| e.unwrap().file_name().into_string().unwrap());
            assert!(names.any(|n| n.starts_with(start) && n.ends_with(end)), "{source}");
            generated += 1;
        } else if !source.starts_with("target/") {
            let there = source.split('*').next().unwrap();
            assert!(root().join("gateway").join(there).exists(), "{source}");
        }
    }
    assert!(generated >= 4, "{generated}");
    // Every man page, and only files that have a page.
    let pages = fs::read_dir(folder.path().join("man")).unwrap().count();
    assert!(pages > 8, "{pages}");
}

/// The unit waits longer for the end than the program itself, and starts the installed program.
#[test]
fn the_unit_fits_the_program() {
    let unit = read("deploy/packaging/headgate.service");
    let value = |key: &str| unit.lines().find_map(|l| l.strip_prefix(key)).unwrap().to_owned();
    assert_eq!(value("Type="), "notify");
    assert!(value("ExecStart=").starts_with("/usr/bin/headgate serve --config /etc/headgate/"));
    let file = value("ExecStart=").rsplit_once(' ').unwrap().1.to_owned();
    assert_eq!(value("ExecReload="), format!("/usr/bin/headgate reload --config {file}"));
    let stop: u64 = value("TimeoutStopSec=").parse().unwrap();
    assert!(stop > config::Settings::default().drain.as_secs());
    assert!(value("SystemCallFilter=").contains("open_by_handle_at"));
    for capability in ["CAP_SETUID", "CAP_SETGID", "CAP_DAC_READ_SEARCH", "CAP_NET_BIND_SERVICE"] {
        assert!(value("CapabilityBoundingSet=").contains(capability), "{capability}");
    }
}
