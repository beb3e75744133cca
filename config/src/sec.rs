//! `sec` of a share: the RPC security flavors that NFS clients may use.

use std::fmt;
use std::str::FromStr;

use policy::Flavor;

/// The flavors of a share in the configured order; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secs(Vec<Flavor>);

impl Default for Secs {
    fn default() -> Self {
        Self(vec![Flavor::Sys])
    }
}

impl Secs {
    /// Builds the list; `None` if it is empty.
    pub(crate) fn of(secs: Vec<Flavor>) -> Option<Self> {
        (!secs.is_empty()).then_some(Self(secs))
    }

    pub fn iter(&self) -> impl Iterator<Item = Flavor> {
        self.0.iter().copied()
    }

    /// Checks whether a flavor needs a keytab.
    pub fn want_kerberos(&self) -> bool {
        self.iter().any(Flavor::is_kerberos)
    }
}

impl fmt::Display for Secs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.iter().map(|sec| sec.to_string()).collect();
        f.write_str(&words.join(":"))
    }
}

/// Parses a list separated by colons, as in exports(5).
impl FromStr for Secs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let secs: Result<Vec<Flavor>, String> = text.split(':').map(str::parse).collect();
        Ok(Self(secs?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sec_parses_exports_syntax() {
        let secs: Secs = "krb5p:krb5i:sys".parse().unwrap();
        assert_eq!(secs.iter().collect::<Vec<_>>(), [Flavor::Krb5p, Flavor::Krb5i, Flavor::Sys]);
        assert_eq!(secs.to_string(), "krb5p:krb5i:sys");
        assert!(secs.want_kerberos() && !Secs::default().want_kerberos());
        let why = "`none` is not a flavor; write `sys`, `krb5`, `krb5i` or `krb5p`";
        assert_eq!("sys:none".parse::<Secs>(), Err(why.into()));
        assert!("".parse::<Secs>().is_err() && "krb5:".parse::<Secs>().is_err());
    }
}
