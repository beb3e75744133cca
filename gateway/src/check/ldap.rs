//! Findings of `check` about the directory with users: whether each server answers, and shows hashes.

use config::Settings;
use serde_json::{Value, json};

use super::Remarks;
use crate::ldap;

/// Answers of the servers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LdapInfo {
    /// Number of servers.
    servers: usize,
    /// A line for each that does not answer.
    faults: Vec<String>,
    base: String,
}

/// Asks each server of the directory, if the configuration names one. Blocks for some seconds.
pub(super) fn facts(settings: &Settings, remarks: &mut Remarks) -> Option<LdapInfo> {
    let from = settings.users_from.as_ref()?;
    let directory = match ldap::of(settings) {
        Ok(directory) => directory?,
        Err(why) => {
            remarks.stop(why);
            return None;
        }
    };
    let (faults, has_hash) = directory.probe();
    for fault in &faults {
        remarks.warn(format!("LDAP: {fault}"));
    }
    if has_hash == Some(false) {
        let who = from.bind.as_ref().map_or("the anonymous gateway", |(dn, _)| dn);
        remarks.warn(format!(
            "LDAP: the directory shows {who} no user with an NT hash (sambaNTPassword or ipaNTHash) below {}, so that none can log \
             on; let `bind_dn` read these attributes, and set passwords where the directory makes such hashes",
            from.base
        ));
    }
    Some(LdapInfo { servers: from.ldap.len(), faults, base: from.base.clone() })
}

/// Formats the findings for people.
pub(super) fn words(info: &LdapInfo) -> Vec<String> {
    let answer = info.servers.saturating_sub(info.faults.len());
    vec![format!("LDAP: {answer} of {} servers answer, users below {}", info.servers, info.base)]
}

/// Formats the findings as JSON.
pub(super) fn json(info: Option<&LdapInfo>) -> Value {
    let Some(info) = info else { return Value::Null };
    json!({ "servers": info.servers, "faults": info.faults, "base": info.base })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_answer_are_counted() {
        let info = LdapInfo { servers: 2, faults: vec!["x".into()], base: "o=lab".into() };
        assert_eq!(words(&info), ["LDAP: 1 of 2 servers answer, users below o=lab"]);
        assert_eq!(json(Some(&info))["faults"], json!(["x"]));
        assert_eq!(json(None), Value::Null);
        assert_eq!(facts(&Settings::default(), &mut Remarks::default()), None);
    }
}
