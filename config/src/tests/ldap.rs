//! The directory with users and groups.

use super::*;
use crate::UsersFrom;

const SHARES: &str = "shares: [{name: d, memory: true}]\n";
const FROM: &str = "ldap: ldaps://ldap.example.org, base: \"dc=example,dc=org\"";

fn of(text: &str) -> UsersFrom {
    let settings = read(&format!("{SHARES}users_from: {{{text}}}\n"));
    settings.unwrap_or_else(|why| panic!("{why:?}")).users_from.unwrap()
}

fn fault(text: &str) -> String {
    told(&format!("{SHARES}users_from: {{{text}}}\n"))
}

#[test]
fn directory_is_read_with_its_defaults() {
    let from = of(FROM);
    assert_eq!(from.ldap, ["ldaps://ldap.example.org:636".parse().unwrap()]);
    assert_eq!((&*from.base, &from.bind, &from.ca), ("dc=example,dc=org", &None, &None));
    let documented = |name: &str| {
        let group = crate::keys::GROUPS.iter().find(|group| group.name == "users_from").unwrap();
        group.keys.iter().find(|key| key.name == name).unwrap().default
    };
    assert_eq!(from.filter, documented("filter"));
    assert_eq!(crate::Span(from.keep).to_string(), documented("keep"));
    assert_eq!(read(SHARES).unwrap().users_from, None);
}

#[test]
fn every_key_of_directory_is_accepted() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display();
    let from = of(&format!(
        "ldap: [ldaps://a, \"ldap://127.0.0.1:3890\"], base: o=b, bind_dn: cn=gw, bind_password_file: {path}, ca: /ca.pem, \
         filter: (uid=*), keep: 2h"
    ));
    assert_eq!(from.ldap.len(), 2);
    assert_eq!(from.bind, Some(("cn=gw".to_owned(), file.path().to_owned())));
    assert_eq!((from.ca, &*from.filter), (Some("/ca.pem".into()), "(uid=*)"));
    assert_eq!(from.keep, Duration::from_secs(7200));
}

#[test]
fn faults_of_directory_are_told_with_remedies() {
    for (text, wanted) in [
        ("base: o=b", "names no server of a directory"),
        ("ldap: [], base: o=b", "the list of servers is empty"),
        ("ldap: ldaps://a", "add `base: \"dc=example,dc=org\"`"),
        ("ldap: ldap://ldap.example.org, base: o=b", "write `ldaps://ldap.example.org`"),
        ("ldap: [ldaps://a, ldaps://b, ldaps://c, ldaps://d, ldaps://e], base: o=b", "more than 4"),
        (&format!("{FROM}, bind_dn: cn=gw"), "add `bind_password_file: FILE`"),
        (&format!("{FROM}, bind_password_file: /nowhere"), "add `bind_dn: "),
        (&format!("{FROM}, bind_dn: cn=gw, bind_password_file: /nowhere"), "there is no password"),
        (&format!("{FROM}, filter: uid"), "write one in parentheses"),
        (&format!("{FROM}, keep: 721h"), "choose at most 720h"),
        (&format!("{FROM}, scope: sub"), "no key `scope`"),
    ] {
        let why = fault(text);
        assert!(why.contains(wanted), "{text}: {why}");
    }
    let off = told(&format!(
        "{SHARES}users_from: {{{FROM}}}\nsmb: {{ntlm: off}}\nkerberos: {{keytab: /with-keys}}"
    ));
    assert!(off.contains("users of `users_from` log on with passwords"), "{off}");
}

/// The directory may know names that this host does not.
#[test]
fn names_of_directory_are_no_faults() {
    let shares = "shares: [{name: d, memory: true, access: {write: [\"@crew\", dana]}}]\n";
    let why = told(&format!("state: /with-users\n{shares}"));
    assert!(why.contains("no group `crew`") && why.contains("no user `dana`"), "{why}");
    assert!(read(&format!("{shares}users_from: {{{FROM}}}\n")).is_ok());
}

#[test]
fn password_of_gateway_is_outside_of_shares() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    std::fs::write(folder.path().join("password"), "secret\n").unwrap();
    let why = told(&format!(
        "shares: [{{name: d, path: {at}}}]\n\
         users_from: {{{FROM}, bind_dn: cn=gw, bind_password_file: {at}/password}}\n"
    ));
    assert!(why.contains("is inside the share `d`"), "{why}");
}
