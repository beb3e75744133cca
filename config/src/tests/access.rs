//! `access`: users and groups that a share names.

use super::*;

/// Returns the faults of a share's `access`, on a host with a user `alice` and a group `staff`, and an account `Carol`.
pub(super) fn told_of_access(access: &str, rest: &str) -> Result<Settings, String> {
    let text = format!(
        "state: /with-users\n{rest}\nshares:\n  - {{name: a, memory: true, access: {access}}}\n"
    );
    read(&text).map_err(|e| e.to_string())
}

#[test]
fn access_names_must_exist() {
    assert!(
        told_of_access(r#"{read: [alice, "@staff"], write: [carol, "7"], deny: "@8"}"#, "").is_ok()
    );
    assert!(
        told_of_access("{deny: dave}", "users: [{name: Dave, uid: 4, password_file: /etc/passwd}]")
            .is_ok()
    );
    assert_eq!(
        told_of_access("{deny: [alice, eve]}", "").unwrap_err(),
        "\
error: gw.yaml:4:52: there is no user `eve`
  |
4 |   - {name: a, memory: true, access: {deny: [alice, eve]}}
  |                                                    ^
  = write a user of this host, of `users` or of `headgate user add`, or a number; groups begin with `@`"
    );
    let told = told_of_access(r#"{read: ["@stuff"]}"#, "").unwrap_err();
    assert!(told.contains("gw.yaml:4:45: this host has no group `stuff`"), "{told}");
    let told = told_of_access("{read: slow}", "").unwrap_err();
    assert!(told.contains(": the name service is slow"), "{told}");
    let told = told_of_access(r#"{read: [alice, "@staff", carol]}"#, "names: own").unwrap_err();
    assert!(told.contains("the user `alice` is not known: with `names: own`"), "{told}");
    assert!(
        told.contains("the group `staff` is not known") && !told.contains("carol` is"),
        "{told}"
    );
}

#[test]
fn name_service_answers_are_kept() {
    let access = r#"{read: [alice, "@staff"], write: [carol, "7"], deny: ["@8"]}"#;
    let kept = told_of_access(access, "").unwrap().on_host;
    let shown = kept.iter().map(|(who, found)| format!("{who} {}", found.is_some()));
    let shown: Vec<String> = shown.collect();
    assert_eq!(shown, ["7 false", "alice true", "@8 false", "@staff true"]);
    assert!(told_of_access(r#"{read: "7"}"#, "names: own").unwrap().on_host.is_empty());
}
