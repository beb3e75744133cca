//! Carries users of Samba in an LDAP directory over: `passdb backend = ldapsam:...`. The keys of the directory are written as a
//! comment, since the password of the gateway is not in smb.conf.

use std::net::IpAddr;

use super::write::quoted;

/// The directory of `[global]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OfLdap {
    /// The servers, as `users_from` names them, if the users are in a directory.
    servers: Option<Vec<String>>,
    base: Option<String>,
    name: Option<String>,
}

/// Returns a server with encryption, unless it is this host.
fn server(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let rest = rest.split('/').next()?;
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => (host, Some(port)),
        _ => (rest, None),
    };
    let host = if host.is_empty() || host == "localhost" { "127.0.0.1" } else { host };
    let is_here = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    match (scheme.to_lowercase().as_str(), is_here) {
        ("ldap", true) => {
            Some(port.map_or(format!("ldap://{host}"), |p| format!("ldap://{host}:{p}")))
        }
        // StartTLS has the port of unencrypted connections.
        ("ldap", false) => Some(format!("ldaps://{host}")),
        ("ldaps", _) => {
            Some(port.map_or(format!("ldaps://{host}"), |p| format!("ldaps://{host}:{p}")))
        }
        ("ldapi", _) => Some("ldap://127.0.0.1".to_owned()),
        _ => None,
    }
}

impl OfLdap {
    /// Takes over a line about a directory with users; returns what became of it.
    pub(super) fn line(&mut self, key: &str, value: &str) -> Option<&'static str> {
        let value = value.trim();
        match key {
            "passdbbackend" => {
                let (kind, at) = value.split_once(':').unwrap_or((value, "ldap://localhost"));
                if !kind.eq_ignore_ascii_case("ldapsam") {
                    return None;
                }
                let urls = at.trim().trim_matches('"').split_whitespace();
                self.servers = Some(urls.filter_map(server).collect());
                Some(
                    "carried over as the comment `users_from`: set its password file, which is not in smb.conf, and remove the `#`",
                )
            }
            "ldapsuffix" => {
                self.base = Some(value.trim_matches('"').to_owned());
                Some("carried over as `base` of `users_from`, if `passdb backend` is `ldapsam`")
            }
            "ldapadmindn" => {
                self.name = Some(value.trim_matches('"').to_owned());
                Some("carried over as `bind_dn` of `users_from`, if `passdb backend` is `ldapsam`")
            }
            _ => None,
        }
    }

    /// Returns the lines of the comment; empty without such a directory.
    pub(super) fn yaml(&self) -> String {
        let Some(servers) = &self.servers else { return String::new() };
        let list: Vec<String> = servers.iter().map(|server| quoted(server)).collect();
        let base = self.base.as_deref().unwrap_or("dc=example,dc=org");
        let name = self.name.as_deref().unwrap_or("cn=headgate,dc=example,dc=org");
        format!(
            "# Samba's users are in an LDAP directory. A name that may only read their hashes is enough for `bind_dn`.\n\
             # Write its password into the file, `chmod 600` it, and remove each `#` below.\n\
             #users_from:\n\
             #  ldap: [{}]\n\
             #  base: {}\n\
             #  bind_dn: {}\n\
             #  bind_password_file: \"/etc/headgate/ldap-password\"\n",
            list.join(", "),
            quoted(base),
            quoted(name)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_get_encryption() {
        for (url, wanted) in [
            ("ldap://ldap.example.org", Some("ldaps://ldap.example.org")),
            ("ldap://ldap.example.org:389/", Some("ldaps://ldap.example.org")),
            ("ldaps://ldap.example.org:1636", Some("ldaps://ldap.example.org:1636")),
            ("ldap://localhost", Some("ldap://127.0.0.1")),
            ("ldap://[::1]:3890", Some("ldap://[::1]:3890")),
            ("ldapi:///", Some("ldap://127.0.0.1")),
            ("ldap.example.org", None),
        ] {
            let found = server(url);
            assert_eq!(found.as_deref(), wanted, "{url}");
            assert!(found.is_none_or(|it| it.parse::<config::LdapServer>().is_ok()), "{url}");
        }
    }

    #[test]
    fn directory_is_written_as_comment() {
        let mut of = OfLdap::default();
        assert_eq!(of.line("passdbbackend", "tdbsam"), None);
        assert_eq!(of.line("ldapdebuglevel", "1"), None);
        assert!(of.line("ldapsuffix", "dc=lab").is_some() && of.yaml().is_empty());
        assert!(of.line("passdbbackend", "ldapsam:\"ldap://a ldaps://b\"").is_some());
        assert!(of.line("ldapadmindn", "cn=samba,dc=lab").is_some());
        let text = of.yaml();
        assert!(text.lines().all(|line| line.starts_with('#')), "{text}");
        // Removing the signs gives the configuration.
        let text: String = text.lines().skip(2).map(|line| format!("{}\n", &line[1..])).collect();
        let read: serde_yaml::Value = serde_yaml::from_str(&text).unwrap();
        let from = &read["users_from"];
        assert_eq!(from["ldap"][0], "ldaps://a");
        assert_eq!(
            (&from["base"], &from["bind_dn"]),
            (&"dc=lab".into(), &"cn=samba,dc=lab".into())
        );
    }
}
