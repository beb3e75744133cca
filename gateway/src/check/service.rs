//! Findings of `check` about the service that knows the domain: whether it answers, and the names of machine and domain.

use config::{Ntlm, Settings};
use domain_sys::Error;
use serde_json::{Value, json};

use super::{Remarks, twins};
use crate::domain_service::{self, Seen};

/// Steps of an administrator while the service does not answer.
const OF_WINBIND: &str = "the package winbind is installed and this host has joined (`net ads join`, `wbinfo -p`, `wbinfo -t`)";
const OF_SSSD: &str = "the packages sssd-ad and libsss-nss-idmap0 are installed, this host has joined (`realm list`), and sssd \
     runs with `services = nss` (`sssctl domain-status DOMAIN`)";

/// Asks the service, if the configuration does. Blocks for some seconds at most.
pub(super) fn facts(settings: &Settings, remarks: &mut Remarks) -> Option<Seen> {
    let service = domain_service::of(settings)?;
    let seen = service.seen_now();
    if let Some(why) = &seen.away {
        remarks.warn(away(&seen, settings.kerberos.is_some(), why));
        return Some(seen);
    }
    if let Some(machine) = &seen.machine {
        unnamed(machine).into_iter().for_each(|why| remarks.warn(why));
        other_realm(machine, settings).into_iter().for_each(|why| remarks.warn(why));
        let (trust, reached) = (service.check_trust(), service.reach_controller());
        match (trust, reached) {
            (Err(Error::NoTrust(status)), _) => remarks.warn(refused(&seen, machine, &status)),
            // The service itself has just answered.
            (_, Err(Error::NoController | Error::NotAvailable)) => {
                remarks.warn(alone(&seen, machine, &Error::NoController.to_string()));
            }
            (_, Err(error)) => remarks.warn(alone(&seen, machine, &error.to_string())),
            // Without rights for the first question, the second one decides.
            (_, Ok(())) => {}
        }
    }
    twins::facts(settings, remarks);
    Some(seen)
}

fn away(seen: &Seen, by_ticket: bool, why: &str) -> String {
    let by = seen.by;
    let by_ticket = match by_ticket {
        true => ", except by tickets if a running gateway has kept their uid",
        false => "",
    };
    let look = if seen.checks_passwords { OF_WINBIND } else { OF_SSSD };
    // The usual reason says no more.
    let why = if why.ends_with("does not answer") { String::new() } else { format!(" ({why})") };
    format!(
        "{by} does not answer{why}: users of the domain cannot log on{by_ticket}; see that {look}"
    )
}

/// Says that the domain does not accept the account of this machine.
fn refused(seen: &Seen, of: &domain_sys::Details, status: &str) -> String {
    let (by, domain_sys::Details { machine, domain, .. }) = (seen.by, of);
    format!(
        "the domain {domain} does not accept the account `{machine}$` of this machine ({status}): it was deleted, disabled or got \
         another password. Passwords of the domain are refused, and users whom {by} has not cached cannot log on. Enable it in \
         the directory, or join again by `net ads join -U Administrator`, restart winbindd, and only then make the keytab anew, \
         which other gateways of this account need a copy of"
    )
}

/// Says that the service has no controller.
fn alone(seen: &Seen, of: &domain_sys::Details, why: &str) -> String {
    let (by, dns) = (seen.by, of.dns_domain.to_lowercase());
    format!(
        "{by} answers, but {why}: passwords of the domain are refused, and users whom {by} has not cached cannot log on; see that \
         `host -t SRV _ldap._tcp.{dns}` names the controllers and that this host reaches them"
    )
}

/// Says that tickets and names are of two domains.
fn other_realm(of: &domain_sys::Details, settings: &Settings) -> Option<String> {
    let realm = settings.kerberos.as_ref()?.realm.as_ref()?.to_string();
    let dns = &of.dns_domain;
    (!dns.is_empty() && !dns.eq_ignore_ascii_case(&realm)).then(|| {
        format!(
            "`kerberos.realm` is {realm}, but this machine is a member of {dns}, so that tickets and names are of two domains; set \
             `realm: {}`",
            dns.to_uppercase()
        )
    })
}

/// Says that the service does not know the names of its domain.
fn unnamed(of: &domain_sys::Details) -> Option<String> {
    let domain_sys::Details { machine, domain, dns_domain, .. } = of;
    domain.is_empty().then(|| {
        format!(
            "sssd tells neither SID nor NetBIOS name of the domain {dns_domain}: it finds neither `{machine}$@{dns_domain}` nor \
             `krbtgt` under both names of the domain. The gateway learns them from the first ticket of a user; if no ticket is \
             accepted either, see that sssd.conf has this domain (`sssctl domain-list`)"
        )
    })
}

/// Says how users of the domain log on over SMB.
fn ways(seen: &Seen, settings: &Settings) -> &'static str {
    let by_password = settings.smb.ntlm == Ntlm::On;
    match (seen.checks_passwords, by_password, settings.kerberos.is_some()) {
        (true, true, true) => "its users log on with tickets and with passwords",
        (true, true, false) => {
            "its users log on with passwords, and without `kerberos` not with tickets"
        }
        (true, false, true) => {
            "its users log on with tickets, since `smb: {ntlm: off}` refuses passwords"
        }
        (false, _, true) => {
            "its users log on with tickets, since passwords of the domain need winbind"
        }
        (_, _, false) => {
            "its users cannot log on: `smb: {ntlm: off}` refuses passwords, and `kerberos` is not set"
        }
    }
}

/// Formats the findings for people.
pub(super) fn words(seen: &Seen, settings: &Settings) -> Vec<String> {
    let Some(of) = &seen.machine else { return Vec::new() };
    let dns =
        if of.dns_domain.is_empty() { String::new() } else { format!(" ({})", of.dns_domain) };
    let version = if of.version.is_empty() { String::new() } else { format!(" {}", of.version) };
    let domain = if of.domain.is_empty() { "unknown NetBIOS name" } else { &of.domain };
    let (by, machine, ways) = (seen.by, &of.machine, ways(seen, settings));
    vec![format!(
        "{by}{version} answers: this machine is {machine} of the domain {domain}{dns}; {ways}"
    )]
}

/// Formats the findings as JSON.
pub(super) fn json(seen: Option<&Seen>) -> Value {
    let Some(seen) = seen else { return Value::Null };
    let of = |get: fn(&domain_sys::Details) -> &String| seen.machine.as_ref().map(get);
    json!({
        "by": seen.by,
        "answers": seen.away.is_none(),
        "why_not": seen.away,
        "machine": of(|details| &details.machine),
        "domain": of(|details| &details.domain),
        "dns_domain": of(|details| &details.dns_domain),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(domain: &str, version: &str) -> Option<domain_sys::Details> {
        Some(domain_sys::Details {
            machine: "GW".into(),
            domain: domain.into(),
            dns_domain: "lab.test".into(),
            version: version.into(),
        })
    }

    fn seen_by(by: &'static str, machine: Option<domain_sys::Details>) -> Seen {
        Seen { by, checks_passwords: by == "winbind", machine, away: None }
    }

    fn settings(ntlm: Ntlm, has_keytab: bool) -> Settings {
        let mut settings = Settings {
            kerberos: has_keytab.then(|| config::Kerberos::new("keytab")),
            ..Settings::default()
        };
        settings.smb.ntlm = ntlm;
        settings
    }

    #[test]
    fn names_and_ways_are_told() {
        let gw = |by: &str, version: &str| {
            format!("{by}{version} answers: this machine is GW of the domain LAB (lab.test); ")
        };
        for (by, version, ntlm, has_keytab, ways) in [
            ("winbind", "4.17", Ntlm::On, true, "its users log on with tickets and with passwords"),
            (
                "winbind",
                "",
                Ntlm::On,
                false,
                "its users log on with passwords, and without `kerberos` not with tickets",
            ),
            (
                "winbind",
                "",
                Ntlm::Off,
                true,
                "its users log on with tickets, since `smb: {ntlm: off}` refuses passwords",
            ),
            (
                "winbind",
                "",
                Ntlm::Off,
                false,
                "its users cannot log on: `smb: {ntlm: off}` refuses passwords, and `kerberos` is not set",
            ),
            (
                "sssd",
                "",
                Ntlm::On,
                true,
                "its users log on with tickets, since passwords of the domain need winbind",
            ),
        ] {
            let seen = seen_by(by, of("LAB", version));
            let version = if version.is_empty() { String::new() } else { format!(" {version}") };
            assert_eq!(words(&seen, &settings(ntlm, has_keytab)), [gw(by, &version) + ways]);
        }
        let seen = seen_by("winbind", of("LAB", "4.17"));
        let told = json(Some(&seen));
        assert_eq!((&told["answers"], &told["dns_domain"]), (&json!(true), &json!("lab.test")));
        assert_eq!(told["by"], json!("winbind"));
    }

    #[test]
    fn silence_is_no_name() {
        let away = Seen { away: Some("silent".into()), ..seen_by("winbind", None) };
        assert!(words(&away, &Settings::default()).is_empty());
        assert_eq!(json(Some(&away))["answers"], json!(false));
    }

    /// Silence of the service, silence of controllers and a wrong realm have different remarks.
    #[test]
    fn states_of_service_are_told_apart() {
        for (by, named) in [("winbind", "wbinfo -t"), ("sssd", "sssctl domain-status")] {
            let why = away(&seen_by(by, None), false, "no library");
            let begin = format!(
                "{by} does not answer (no library): users of the domain cannot log on; see that"
            );
            assert!(why.starts_with(&begin) && why.contains(named), "{why}");
            let why = away(&seen_by(by, None), true, "the service of the domain does not answer");
            let begin = format!(
                "{by} does not answer: users of the domain cannot log on, except by tickets"
            );
            assert!(why.starts_with(&begin), "{why}");
        }
        let gw = of("LAB", "").unwrap();
        let why = alone(&seen_by("winbind", None), &gw, "no domain controller answers");
        assert!(why.starts_with("winbind answers, but no domain controller answers"), "{why}");
        assert!(why.contains("_ldap._tcp.lab.test"), "{why}");
        let why = refused(&seen_by("winbind", None), &gw, "NT_STATUS_ACCESS_DENIED");
        assert!(why.starts_with("the domain LAB does not accept the account `GW$`"), "{why}");
        assert!(
            ["(NT_STATUS_ACCESS_DENIED)", "Enable it", "`net ads join", "other gateways"]
                .iter()
                .all(|text| why.contains(text)),
            "{why}"
        );
        let mut settings = settings(Ntlm::On, true);
        assert_eq!(other_realm(&gw, &settings), None);
        for (realm, is_other) in [("LAB.TEST", false), ("OTHER.TEST", true)] {
            if let Some(kerberos) = &mut settings.kerberos {
                kerberos.realm = Some(realm.parse().unwrap());
            }
            let why = other_realm(&gw, &settings);
            assert_eq!(
                why.is_some_and(|why| why.contains("set `realm: LAB.TEST`")),
                is_other,
                "{realm}"
            );
        }
        let details = |domain: &str| unnamed(&of(domain, "").unwrap());
        assert!(details("").unwrap().contains("`GW$@lab.test`"));
        assert_eq!(details("LAB"), None);
    }
}
