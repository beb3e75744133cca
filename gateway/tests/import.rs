//! Tests `headgate import` on two realistic files, and compares the complete result.

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
    // Enables the commented shares too.
    let text = text.replace("  # - name", "  - name").replace("  #   ", "    ");
    for share in ["data", "secret", "public", "nfs/scratch", "kerberos"] {
        std::fs::create_dir_all(folder.path().join("srv").join(share)).unwrap();
    }
    std::fs::create_dir_all(folder.path().join("home")).unwrap();
    let text = text.replace("/srv/", &format!("{}/", path("srv")));
    let text = text.replace("/home/", &format!("{}/", path("home")));
    // Replaces names by names that exist on this host.
    let text = text.replace("alice", "root").replace("@staff", "@root");
    assert!(text.matches("- name").count() == 6, "{text}");
    std::fs::write(path("gw.yaml"), text).unwrap();
    let o = Command::new(env!("CARGO_BIN_EXE_headgate"))
        .args(["check", "--config", &path("gw.yaml"), "--state", &path("state")])
        .output()
        .unwrap();
    // The ports may be in use; only invalid configurations end with 2.
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

/// Imports a text; returns the exit code, the configuration and the messages.
fn said_of(name: &str, text: &str) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, text).unwrap();
    let o = import(&[&file]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (o.status.code(), text(&o.stdout), text(&o.stderr))
}

/// Returns the names of the served shares.
fn served(yaml: &str) -> Vec<&str> {
    yaml.lines().filter_map(|line| line.strip_prefix("  - name: ")).collect()
}

const DATA: &str = "[data]\npath = /srv/data\nread only = no\nvalid users = kim\n";

#[test]
fn lists_without_entries_restrict_no_client() {
    let (_, out, err) = said_of("smb.conf", &format!("{DATA}veto files = //\nhide files = /\n"));
    assert_eq!(served(&out), ["data"], "{out}{err}");
    assert!(!err.contains("LOST"), "{err}");
}

#[test]
fn interfaces_are_carried_or_shares_wait() {
    for (list, only, wanted) in [
        ("lo eth1", "yes", None),
        ("192.0.2.0/24", "yes", None),
        ("lo eth1", "no", Some("")),
        ("lo 192.0.2.7/24", "yes", Some("bind: [\"127.0.0.1\", \"192.0.2.7\"]\n")),
    ] {
        let text = format!("[global]\ninterfaces = {list}\nbind interfaces only = {only}\n{DATA}");
        let (_, out, err) = said_of("smb.conf", &text);
        match wanted {
            None => {
                assert!(served(&out).is_empty(), "{out}");
                assert!(err.contains("LOST: `bind` takes addresses"), "{err}");
            }
            Some(bind) => {
                assert_eq!(served(&out), ["data"], "{out}");
                assert!(out.ends_with(bind) && out.contains("bind:") != bind.is_empty(), "{out}");
            }
        }
    }
}

#[test]
fn a_dialect_that_restricts_is_carried() {
    for (keys, is_served) in [
        ("server min protocol = SMB2", true),
        ("server min protocol = SMB3", false),
        ("server min protocol = SMB3\nsmb encrypt = required", true),
        ("min protocol = SMB3_11\nsmb encrypt = required", false),
    ] {
        let (_, out, _) = said_of("smb.conf", &format!("[global]\n{keys}\n{DATA}"));
        assert_eq!(!served(&out).is_empty(), is_served, "{keys}: {out}");
    }
    let own =
        format!("[global]\nmin protocol = SMB3\n{DATA}smb encrypt = required\n[b]\npath = /b\n");
    assert_eq!(served(&said_of("smb.conf", &own).1), ["data"]);
}

#[test]
fn old_forms_of_kerberos_have_their_reason() {
    let (_, out, err) = said_of("exports", "/srv/nfs4 gss/krb5i(rw,sync)\n");
    assert!(out.contains("`gss/krb5i` requires Kerberos; set `sec: [krb5i]`"), "{out}");
    assert!(served(&out).is_empty() && !out.contains("read_only"), "{out}");
    assert!(!err.contains("wildcards"), "{err}");
    let (_, out, _) = said_of("exports", "/srv gss/other(rw)\n");
    assert!(out.contains("headgate has no flavor `other`"), "{out}");
}

#[test]
fn options_of_bsd_keep_shares_from_being_served() {
    for (line, reasons) in [
        (
            "\"/Users\" 192.168.99.101 -alldirs -mapall=501:20",
            &[
                "`alldirs`: exports(5) has no such option, macOS and BSD have",
                "`anonuid: 501`, `anongid: 20`",
            ][..],
        ),
        ("/Users -mapall=501 10.0.0.1", &["`squash: all`"]),
        (
            "/Users -alldirs -maproot=root -network 10.0.0.0 -mask 255.0.0.0",
            &["alldirs", "maproot", "network", "mask"],
        ),
        ("/Users 10.0.0.1 -ro", &["`-ro` follows the clients"]),
        ("/Users -alldirs", &["alldirs"]),
    ] {
        let (_, out, _) = said_of("exports", &format!("{line}\n"));
        assert!(served(&out).is_empty(), "{line}: {out}");
        assert!(reasons.iter().all(|reason| out.contains(reason)), "{line}: {out}");
    }
    let (_, out, _) = said_of("exports", "/srv -ro,sync 10.0.0.1 -rw 10.0.0.2\n");
    assert_eq!(served(&out), ["srv"]);
}

#[test]
fn other_forms_are_named_in_one_sentence() {
    for (text, told) in [
        ("NFS_CORE_PARAM { Protocols = 3, 4; }\nEXPORT {\n  Path = /a;\n}\n", "NFS-Ganesha"),
        ("/mnt /etc/auto.nfs\n", "autofs"),
        ("services:\n  nas:\n    image: samba\n", "compose"),
    ] {
        let (code, out, err) = said_of("file", text);
        assert_eq!((code, out.as_str(), err.lines().count()), (Some(1), "", 1), "{err}");
        assert!(err.contains(told), "{err}");
    }
}

#[test]
fn accounts_of_samba_log_on_with_their_password() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (file, state) = (folder.path().join("passdb"), folder.path().join("state"));
    let line = |name: &str, uid: u32, flags: &str| {
        format!(
            "{name}:{uid}:{:X<32}:8846F7EAEE8FB117AD06BDD830B7586C:[{flags:11}]:LCT-5F000000:\n",
            ""
        )
    };
    std::fs::write(&file, line("kim-of-samba", 4242, "U") + &line("old", 4243, "UD")).unwrap();
    let run = |words: &[&str]| {
        let mut order = Command::new(env!("CARGO_BIN_EXE_headgate"));
        let o = order.arg("user").args(words).arg("--state").arg(&state).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (o.status.success(), text(&o.stdout), text(&o.stderr))
    };
    let order = ["import", file.to_str().unwrap()];
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let (done, _, err) = run(&order);
    assert!(!done && err.contains("`chmod 600 "), "{err}");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let (done, out, err) = run(&order);
    assert!(done && out.contains("added kim-of-samba: uid 4242"), "{out}{err}");
    assert!(err.contains("old is not taken over: it is disabled"), "{err}");
    // The host's user with this name has the uid of guests.
    let all = std::fs::read_to_string(&file).unwrap() + &line("nobody", 65534, "U");
    std::fs::write(&file, all).unwrap();
    let (done, _, err) = run(&order);
    assert!(done && err.contains("nobody is not taken over: uid 65534"), "{err}");
    let (done, out, err) = run(&order);
    assert!(done && out.contains("0 of 2") && err.contains("--replace"), "{out}{err}");
    let database = std::fs::read_to_string(state.join("smb-users")).unwrap();
    assert!(database.contains("kim-of-samba:8846f7eaee8fb117ad06bdd830b7586c:4242:"), "{database}");
    assert!(import(&[&file]).stderr.windows(20).any(|w| w == b"headgate user import"));
}
