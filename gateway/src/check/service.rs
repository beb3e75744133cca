//! Findings of `check` about the service that knows the domain: whether it answers, and the names of machine and domain.

use config::Settings;
use serde_json::{Value, json};

use super::Remarks;
use crate::domain_service::{self, Seen};

/// Steps of an administrator while the service does not answer.
const OF_WINBIND: &str = "the package winbind is installed and this host has joined (`net ads join`, `wbinfo -p`, `wbinfo -t`)";
const OF_SSSD: &str = "the packages sssd-ad and libsss-nss-idmap0 are installed, this host has joined (`realm list`), and sssd \
     runs with `services = nss` (`sssctl domain-status DOMAIN`)";

/// Asks the service, if the configuration does. Blocks for some seconds at most.
pub(super) fn facts(settings: &Settings, remarks: &mut Remarks) -> Option<Seen> {
    let seen = domain_service::of(settings)?.seen_now();
    match &seen.away {
        Some(why) => remarks.warn(away(&seen, why)),
        None => {
            seen.machine.as_ref().and_then(unnamed).into_iter().for_each(|why| remarks.warn(why))
        }
    }
    Some(seen)
}

fn away(seen: &Seen, why: &str) -> String {
    let by = seen.by;
    let (what, look) = match seen.checks_passwords {
        true => (
            "cannot log on with passwords, and with tickets only those whose numbers are known",
            OF_WINBIND,
        ),
        false => ("log on only where their numbers are known", OF_SSSD),
    };
    format!("{by} does not answer ({why}): users of the domain {what}; see that {look}")
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

/// Formats the findings for people.
pub(super) fn words(seen: &Seen) -> Vec<String> {
    let Some(of) = &seen.machine else { return Vec::new() };
    let dns =
        if of.dns_domain.is_empty() { String::new() } else { format!(" ({})", of.dns_domain) };
    let version = if of.version.is_empty() { String::new() } else { format!(" {}", of.version) };
    let domain = if of.domain.is_empty() { "unknown NetBIOS name" } else { &of.domain };
    let tickets = match seen.checks_passwords {
        true => "",
        false => "; its users log on with tickets, since passwords of the domain need winbind",
    };
    let (by, machine) = (seen.by, &of.machine);
    vec![format!(
        "{by}{version} answers: this machine is {machine} of the domain {domain}{dns}{tickets}"
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

    #[test]
    fn names_are_told_and_silence_is_no_name() {
        let seen = seen_by("winbind", of("LAB", "4.17"));
        assert_eq!(
            words(&seen),
            ["winbind 4.17 answers: this machine is GW of the domain LAB (lab.test)"]
        );
        let told = json(Some(&seen));
        assert_eq!((&told["answers"], &told["dns_domain"]), (&json!(true), &json!("lab.test")));
        let away = Seen { away: Some("silent".into()), ..seen_by("winbind", None) };
        assert!(words(&away).is_empty());
        assert_eq!(json(Some(&away))["answers"], json!(false));
    }

    #[test]
    fn passwords_need_winbind() {
        let seen = seen_by("sssd", of("LAB", ""));
        assert_eq!(
            words(&seen),
            [
                "sssd answers: this machine is GW of the domain LAB (lab.test); its users log on with tickets, since passwords of \
              the domain need winbind"
            ]
        );
        assert_eq!(json(Some(&seen))["by"], json!("sssd"));
        for (by, named) in [("winbind", "wbinfo -t"), ("sssd", "sssctl domain-status")] {
            let why = away(&seen_by(by, None), "silent");
            assert!(why.starts_with(&format!("{by} does not answer (silent)")), "{why}");
            assert!(why.contains(named), "{why}");
            assert_eq!(why.contains("passwords"), by == "winbind", "{why}");
        }
        let details = |domain: &str| unnamed(&of(domain, "").unwrap());
        assert!(details("").unwrap().contains("`GW$@lab.test`"));
        assert_eq!(details("LAB"), None);
    }
}
