//! Settings of a share that consist of one word.

use crate::words;

/// The protocols that serve a share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocols {
    /// NFS of any version.
    Nfs,
    Smb,
    #[default]
    Both,
}

words!(Protocols, "is not a protocol", "nfs" => Nfs, "smb" => Smb, "both" => Both);

impl Protocols {
    /// Checks whether NFS serves the share.
    pub fn nfs(self) -> bool {
        self != Self::Smb
    }

    /// Checks whether SMB serves the share.
    pub fn smb(self) -> bool {
        self != Self::Nfs
    }
}

/// The users that a share maps to the anonymous user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Squash {
    /// No user; root keeps its rights.
    None,
    /// The superuser and its group.
    #[default]
    Root,
    /// All users.
    All,
}

words!(Squash, "is not a squash mode", "root" => Root, "all" => All, "none" => None);

/// An RPC security flavor of a share (RFC 2623 section 2.2.1), named as in mount(8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Flavor {
    /// AUTH_SYS and AUTH_NONE: the client claims user numbers.
    Sys = 1,
    /// Kerberos: authenticates callers.
    Krb5 = 2,
    /// Kerberos, with integrity protection of calls and replies.
    Krb5i = 4,
    /// Kerberos, with encryption of calls and replies.
    Krb5p = 8,
}

words!(
    Flavor,
    "is not a flavor",
    "sys" => Sys, "krb5" => Krb5, "krb5i" => Krb5i, "krb5p" => Krb5p
);

impl Flavor {
    /// All flavors, the strongest protection first.
    pub const ALL: [Self; 4] = [Self::Krb5p, Self::Krb5i, Self::Krb5, Self::Sys];

    /// Checks whether the flavor needs a keytab.
    pub fn is_kerberos(self) -> bool {
        self != Self::Sys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        for protocols in [Protocols::Nfs, Protocols::Smb, Protocols::Both] {
            assert_eq!(protocols.to_string().parse(), Ok(protocols));
            assert!(protocols.nfs() || protocols.smb());
        }
        for squash in [Squash::None, Squash::Root, Squash::All] {
            assert_eq!(squash.to_string().parse(), Ok(squash));
        }
        for flavor in Flavor::ALL {
            assert_eq!(flavor.to_string().parse(), Ok(flavor));
        }
        let why = "`cifs` is not a protocol; write `nfs`, `smb` or `both`";
        assert_eq!("cifs".parse::<Protocols>(), Err(why.into()));
    }
}
