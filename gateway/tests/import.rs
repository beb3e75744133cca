//! `headgate import`: two files as people have them, and the whole of what comes of them.

#![allow(clippy::unwrap_used, missing_docs)] // A test that cannot go on says so.

use std::path::Path;
use std::process::{Command, Output};

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/import");

fn import(files: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headgate")).arg("import").args(files).output().unwrap()
}

fn compare(what: &str, told: &[u8], expected: &str) {
    let file = Path::new(FILES).join(expected);
    let told = String::from_utf8(told.to_vec()).unwrap().replace(&format!("{FILES}/"), "");
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(told == expected, "{what} is not {}:\n{told}", file.display());
}

#[test]
fn both_files_become_one_configuration_and_every_line_is_accounted_for() {
    let folder = Path::new(FILES);
    let o = import(&[&folder.join("smb.conf"), &folder.join("exports")]);
    assert_eq!(o.status.code(), Some(0));
    compare("standard output", &o.stdout, "expected.yaml");
    compare("standard error", &o.stderr, "expected.txt");
}

#[test]
fn what_is_written_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let text = std::fs::read_to_string(Path::new(FILES).join("expected.yaml")).unwrap();
    // What waits for a decision is looked at, too.
    let text = text.replace("  # - name", "  - name").replace("  #   ", "    ");
    for share in ["data", "secret", "public", "nfs/scratch", "kerberos"] {
        std::fs::create_dir_all(folder.path().join("srv").join(share)).unwrap();
    }
    std::fs::create_dir_all(folder.path().join("home")).unwrap();
    let text = text.replace("/srv/", &format!("{}/", path("srv")));
    let text = text.replace("/home/", &format!("{}/", path("home")));
    // Whom it names is known here.
    let text = text.replace("alice", "root").replace("@staff", "@root");
    assert!(text.matches("- name").count() == 6, "{text}");
    std::fs::write(path("gw.yaml"), text).unwrap();
    let o = Command::new(env!("CARGO_BIN_EXE_headgate"))
        .args(["check", "--config", &path("gw.yaml"), "--state", &path("state")])
        .output()
        .unwrap();
    // Somebody may have the ports here; only wrong configurations end with 2.
    assert_ne!(o.status.code(), Some(2), "{}", String::from_utf8_lossy(&o.stderr));
    assert!(String::from_utf8_lossy(&o.stdout).contains("The configuration is sound"));
}

#[test]
fn exports_that_ask_for_ports_of_root_become_a_sound_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    std::fs::write(path("exports"), format!("{} 10.0.0.0/8(rw)\n", path("data"))).unwrap();
    let o = import(&[Path::new(&path("exports"))]);
    assert_eq!(String::from_utf8_lossy(&o.stderr), "");
    std::fs::write(path("gw.yaml"), &o.stdout).unwrap();
    let o = Command::new(env!("CARGO_BIN_EXE_headgate"))
        .args(["check", "--json", "--config", &path("gw.yaml"), "--state", &path("state")])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&o.stdout);
    assert_ne!(o.status.code(), Some(2), "{}", String::from_utf8_lossy(&o.stderr));
    assert!(said.contains(r#""privileged_ports":"required""#), "{said}");
}

#[test]
fn a_file_without_shares_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("empty");
    std::fs::write(&file, "# nothing\n").unwrap();
    let o = import(&[&file]);
    assert_eq!(o.status.code(), Some(1));
    assert!(o.stdout.is_empty());
    let o = import(&[&folder.path().join("missing")]);
    assert_eq!(o.status.code(), Some(1));
}
