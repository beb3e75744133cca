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

/// A directory may be away when a gateway starts: the share waits, and the others are served.
#[test]
fn unknown_names_are_warnings_at_start() {
    let text = "state: /with-users\nshares:\n  - {name: a, memory: true, access: {deny: slow}}\n\
                privileges: {backup: zoe}\n";
    let known = Known { is_start: true, ..KNOWN };
    let settings = settle(Path::new("gw.yaml"), text, Options::default(), known).unwrap();
    assert!(settings.on_host.is_empty(), "the service failed, so that it is asked again");
    assert!(settings.warnings[0].to_string().contains("the name service is slow"));
    let text = text.replace("slow", "[alice, eve]").replace("zoe", "bob");
    let settings = settle(Path::new("gw.yaml"), &text, Options::default(), known).unwrap();
    let told: Vec<String> = settings.warnings.iter().map(ToString::to_string).collect();
    assert!(told[0].contains("there is no user `eve`") && told[1].contains("`bob`"), "{told:?}");
    assert!(settle(Path::new("gw.yaml"), &text, Options::default(), KNOWN).is_err());
}

#[test]
fn privileges_and_administrators_are_named() {
    let settings = told_of_access(
        r#"{admin: [alice, "@staff"]}"#,
        "privileges: {backup: [alice, 7], restore: \"@staff\"}",
    );
    let settings = settings.unwrap();
    let access = settings.shares[0].access.as_ref().unwrap();
    assert_eq!((access.admin.len(), access.only_denies()), (2, true));
    assert_eq!(settings.privileges.to_string(), "backup: alice, 7; restore: @staff");
    assert_eq!(crate::Privileges::default().to_string(), "none");
    for (access, rest) in
        [(r#"{admin: "*"}"#, ""), ("{read: alice}", "privileges: {security: \"*\"}")]
    {
        let told = told_of_access(access, rest).unwrap_err();
        assert!(told.contains("`*` cannot be here"), "{told}");
    }
    let told = told_of_access("{read: alice}", "privileges: {restore: eve}").unwrap_err();
    assert!(told.contains("there is no user `eve`"), "{told}");
}

/// The gateway resolves names of the domain, which the configuration cannot check.
#[test]
fn names_of_domain_need_its_realm() {
    let access =
        r#"{read: ["alice@example.org", "@Domain Admins"], deny: ["S-1-5-21-1-2-3-1104"]}"#;
    let realm = "kerberos: {keytab: /with-keys, realm: EXAMPLE.ORG}";
    let told = told_of_access(access, "").unwrap_err();
    assert!(told.contains("there is no user `alice@example.org`"), "{told}");
    let told = told_of_access(access, realm).map(|_| ()).err().unwrap_or_default();
    assert!(!told.contains("alice") && !told.contains("Admins"), "{told}");
    let who = |text: &str| text.parse::<Who>().unwrap();
    assert_eq!(who("alice@example.org").in_domain(), Some(("alice", "example.org")));
    assert_eq!(who(r"@LAB\Domain Users").in_domain(), Some(("Domain Users", "LAB")));
    assert_eq!((who("alice").in_domain(), who("@a@").in_domain()), (None, None));
    assert_eq!(who("@s-1-5-21-1-2-3-9").sid(), Some("s-1-5-21-1-2-3-9"));
    assert_eq!((who("S-1-").sid(), who("é").sid()), (None, None));
}
