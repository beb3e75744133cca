//! Tests of the service that maps identities of a domain.

use super::*;
use crate::{DomainBy, KerberosMap};

const SHARES: &str = "shares: [{name: d, memory: true}]\n";

fn of(text: &str) -> crate::Settings {
    read(&format!("{SHARES}{text}")).unwrap_or_else(|why| panic!("{why:?}"))
}

fn fault(text: &str) -> String {
    told(&format!("{SHARES}{text}"))
}

#[test]
fn domain_and_map_of_tickets_say_the_same() {
    assert_eq!(of("domain: {by: winbind}").domain_by, Some(DomainBy::Winbind));
    let keytab = "keytab: /with-keys, realm: LAB.TEST";
    for (text, by, map) in [
        ("domain: {by: winbind}", Some(DomainBy::Winbind), KerberosMap::Winbind),
        ("domain: {by: rid}", Some(DomainBy::Rid), KerberosMap::Rid),
        ("domain: {by: sssd}", Some(DomainBy::Sssd), KerberosMap::Sssd),
        ("", None, KerberosMap::Names),
    ] {
        let settings = of(&format!("kerberos: {{{keytab}}}\n{text}"));
        assert_eq!((settings.domain_by, settings.kerberos.unwrap().map), (by, map), "{text}");
    }
    for by in [DomainBy::Winbind, DomainBy::Sssd] {
        let by_map = of(&format!("kerberos: {{{keytab}, map: {by}}}"));
        assert_eq!(by_map.domain_by, Some(by));
    }
    let both = fault(&format!("kerberos: {{{keytab}, map: rid}}\ndomain: {{by: winbind}}"));
    assert!(both.contains("`kerberos.map` is `rid`, and `domain.by` is `winbind`"), "{both}");
}

#[test]
fn what_is_missing_is_told() {
    for by in ["rid", "sssd"] {
        let keytab = fault(&format!("domain: {{by: {by}}}"));
        assert!(keytab.contains("there is no keytab"), "{keytab}");
        let realm = fault(&format!("kerberos: {{keytab: /with-keys}}\ndomain: {{by: {by}}}"));
        assert!(realm.contains("add `realm: EXAMPLE.ORG`"), "{realm}");
    }
    assert!(fault("domain: {by: ldap}").contains("write `winbind`, `sssd` or `rid`"));
    let ntlm = fault("domain: {by: winbind}\nsmb: {ntlm: off}");
    assert!(ntlm.contains("no user could log on over SMB"), "{ntlm}");
}
