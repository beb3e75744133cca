//! Findings of `check` about winbind: whether it answers, and the names of machine and domain.

use config::Settings;
use serde_json::{Value, json};

use super::Remarks;
use crate::domain;
use crate::winbind::{self, Seen};

/// Asks winbind, if the configuration does. Blocks for some seconds at most.
pub(super) fn facts(settings: &Settings, remarks: &mut Remarks) -> Option<Seen> {
    if !domain::has_winbind(settings) {
        return None;
    }
    let seen = winbind::seen_now();
    if let Some(why) = &seen.away {
        remarks.warn(format!(
            "winbind does not answer ({why}): users of the domain cannot log on with passwords, and with tickets only those \
             whose numbers are known; see that the package winbind is installed and this host has joined (`net ads join`, \
             `wbinfo -p`, `wbinfo -t`)"
        ));
    }
    Some(seen)
}

/// Formats the findings for people.
pub(super) fn words(seen: &Seen) -> Vec<String> {
    let Some(of) = &seen.machine else { return Vec::new() };
    let dns =
        if of.dns_domain.is_empty() { String::new() } else { format!(" ({})", of.dns_domain) };
    let line = format!(
        "winbind {} answers: this machine is {} of the domain {}{dns}",
        of.version, of.machine, of.domain
    );
    vec![line]
}

/// Formats the findings as JSON.
pub(super) fn json(seen: Option<&Seen>) -> Value {
    let Some(seen) = seen else { return Value::Null };
    let of = |get: fn(&wbclient_sys::Details) -> &String| seen.machine.as_ref().map(get);
    json!({
        "by": "winbind",
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

    #[test]
    fn names_are_told_and_silence_is_no_name() {
        let details = wbclient_sys::Details {
            machine: "GW".into(),
            domain: "LAB".into(),
            dns_domain: "lab.test".into(),
            version: "4.17".into(),
        };
        let seen = Seen { machine: Some(details), away: None };
        assert_eq!(
            words(&seen),
            ["winbind 4.17 answers: this machine is GW of the domain LAB (lab.test)"]
        );
        let told = json(Some(&seen));
        assert_eq!((&told["answers"], &told["dns_domain"]), (&json!(true), &json!("lab.test")));
        let away = Seen { machine: None, away: Some("winbindd does not answer".into()) };
        assert!(words(&away).is_empty());
        assert_eq!(json(Some(&away))["answers"], json!(false));
    }
}
