//! `sec` of a share: by which flavors of RPC clients of NFS use it.

use std::fmt;
use std::str::FromStr;

use crate::words::words;

/// A flavor, by its name in mount(8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sec {
    /// Users are numbers that the client says (AUTH_SYS).
    Sys,
    /// Users prove by tickets who they are.
    Krb5,
    /// And what travels is signed.
    Krb5i,
    /// And encrypted.
    Krb5p,
}

words!(Sec, "is not a flavor", "sys" => Sys, "krb5" => Krb5, "krb5i" => Krb5i, "krb5p" => Krb5p);

impl Sec {
    /// It takes a keytab.
    pub fn is_kerberos(self) -> bool {
        self != Self::Sys
    }
}

/// Those of a share, in the order in which they are said; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secs(Vec<Sec>);

impl Default for Secs {
    fn default() -> Self {
        Self(vec![Sec::Sys])
    }
}

impl Secs {
    /// These; `None` where there is none.
    pub(crate) fn of(secs: Vec<Sec>) -> Option<Self> {
        (!secs.is_empty()).then_some(Self(secs))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Sec> {
        self.0.iter().copied()
    }

    /// One of them takes a keytab.
    pub fn want_kerberos(&self) -> bool {
        self.iter().any(Sec::is_kerberos)
    }
}

impl fmt::Display for Secs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.iter().map(|sec| sec.to_string()).collect();
        f.write_str(&words.join(":"))
    }
}

/// With colons, as exports(5) has them.
impl FromStr for Secs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let secs: Result<Vec<Sec>, String> = text.split(':').map(str::parse).collect();
        Ok(Self(secs?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flavors_are_read_as_exports_has_them() {
        let secs: Secs = "krb5p:krb5i:sys".parse().unwrap();
        assert_eq!(secs.iter().collect::<Vec<_>>(), [Sec::Krb5p, Sec::Krb5i, Sec::Sys]);
        assert_eq!(secs.to_string(), "krb5p:krb5i:sys");
        assert!(secs.want_kerberos() && !Secs::default().want_kerberos());
        let why = "`none` is not a flavor; write `sys`, `krb5`, `krb5i` or `krb5p`";
        assert_eq!("sys:none".parse::<Secs>(), Err(why.into()));
        assert!("".parse::<Secs>().is_err() && "krb5:".parse::<Secs>().is_err());
    }
}
