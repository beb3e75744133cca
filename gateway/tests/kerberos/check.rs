//! Tests of `headgate check` with a KDC: each wrong state of the keytab has its own warning.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{HOST, World, kdc};

/// The account of the computer.
const ACCOUNT: &str = "GW$";

/// Creates a KDC and a keytab with the keys of the account and of its service.
fn joined() -> World {
    let world = World::new();
    world.kdc.service(ACCOUNT, &world.at("keytab"));
    world
}

/// Runs the command through another that ends with the program's name, and returns its warnings about tickets.
fn check_by(world: &World, names: &str, under: &[&str]) -> (Value, Vec<String>) {
    let text = format!(
        "bind: 127.0.0.1\nrdma: off\nnfs: {{port: 0, portmap: off}}\nsmb: {{port: 0}}\n\
         shares: [{{name: data, path: {}}}]\nkerberos: {{keytab: {}, names: [{names}]}}\n",
        world.at("data").display(),
        world.at("keytab").display()
    );
    fs::write(world.at("check.yaml"), text).unwrap();
    let words: Vec<&str> = [under, &[env!("CARGO_BIN_EXE_headgate")]].concat();
    let done = world
        .kdc
        .command(words[0])
        .args(&words[1..])
        .args(["check", "--json", "--config", "check.yaml", "--state", "state"])
        .current_dir(&world.home)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let told: Value = serde_json::from_str(&said).unwrap_or_else(|why| panic!("{why}: {said}"));
    assert_eq!(
        told["would_start"], true,
        "no state of a KDC keeps the gateway from starting: {said}"
    );
    let is_ours = |text: &&str| {
        text.contains("KDC")
            || text.contains("keytab")
            || text.contains("clocks")
            || text.contains("ticket")
    };
    let warnings = told["warnings"].as_array().unwrap().iter().filter_map(Value::as_str);
    let warnings = warnings.filter(is_ours).map(str::to_owned).collect();
    (told, warnings)
}

/// Checks that only one warning about tickets exists, and contains all of these words.
fn warns(world: &World, names: &str, under: &[&str], wanted: &[&str]) {
    let (told, warnings) = check_by(world, names, under);
    let kerberos = &told["kerberos"];
    let [one] = &warnings[..] else { panic!("{warnings:#?} {kerberos}") };
    assert!(wanted.iter().all(|word| one.contains(word)), "{wanted:?}: {one} {kerberos}");
}

/// Makes a keytab with the current keys of these principals.
fn keytab(world: &World, principals: &[&str]) {
    let at = world.at("keytab");
    let _ = fs::remove_file(&at);
    principals.iter().for_each(|principal| world.kdc.service(principal, Path::new(&at)));
}

#[test]
fn check_tells_states_of_keytab_apart() {
    let mut world = joined();
    let cifs = format!("cifs/{HOST}");
    let (told, warnings) = check_by(&world, HOST, &[]);
    assert!(warnings.is_empty(), "{warnings:#?}");
    assert_eq!(told["kerberos"]["asked_as"], format!("{ACCOUNT}@{}", kdc::REALM));
    assert_eq!(told["kerberos"]["asked_for"][0]["kdc"], "good", "{told}");

    // Active Directory requires pre-authentication; without it the client cannot decrypt the reply.
    let account = format!("{ACCOUNT}@{} (version", kdc::REALM);
    for preauth in ["-requires_preauth", "+requires_preauth"] {
        world.kdc.admin(&format!("modprinc {preauth} {ACCOUNT}"));
        world.kdc.admin(&format!("cpw -randkey {ACCOUNT}"));
        warns(
            &world,
            HOST,
            &[],
            &["older than the key of its account", &account, "net ads keytab create"],
        );
        keytab(&world, &[ACCOUNT, &cifs]);
        assert_eq!(check_by(&world, HOST, &[]).1, [""; 0], "{preauth}");
    }

    // Only the key of the service is old.
    world.kdc.admin(&format!("cpw -randkey {cifs}"));
    warns(&world, HOST, &[], &["makes tickets for cifs/", "does not have", "setspn -Q"]);
    // Its account is the service itself.
    keytab(&world, &[&cifs]);
    assert_eq!(check_by(&world, HOST, &[]).1, [""; 0]);
    world.kdc.admin(&format!("cpw -randkey {cifs}"));
    warns(&world, HOST, &[], &["older than the key of its account", &cifs]);

    keytab(&world, &[ACCOUNT, &cifs]);
    warns(
        &world,
        "other.lab.test",
        &[],
        &["no name cifs/other.lab.test", "net ads setspn add cifs/other.lab.test"],
    );
    warns(
        &world,
        HOST,
        &["faketime", "-f", "+20m"],
        &["clocks of this host and of the KDC", "timedatectl"],
    );
    world.kdc.admin(&format!("modprinc -allow_tix {ACCOUNT}"));
    warns(&world, HOST, &[], &["refuses the account `GW$`", "enable it"]);
    world.kdc.admin(&format!("delprinc -force {ACCOUNT}"));
    warns(&world, HOST, &[], &["has no account `GW$`", "join this host again"]);

    // The keytab has no account that may ask.
    keytab(&world, &["host/old.lab.test"]);
    world.kdc.admin("delprinc -force host/old.lab.test");
    let (_, warnings) = check_by(&world, "old.lab.test", &[]);
    assert!(
        warnings
            .iter()
            .any(|told| told.contains("no key of the account itself (`HOST$@LAB.TEST`)")),
        "{warnings:#?}"
    );

    keytab(&world, &[&cifs]);
    world.kdc.stop();
    warns(&world, HOST, &[], &["no KDC of LAB.TEST answers", "unknown whether"]);
}
