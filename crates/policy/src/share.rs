//! What is said of a share by one word.

use crate::words;

/// By which protocols a share is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocols {
    /// NFS, of any version.
    Nfs,
    /// SMB.
    Smb,
    /// NFS and SMB.
    #[default]
    Both,
}

words!(Protocols, "is not a protocol", "nfs" => Nfs, "smb" => Smb, "both" => Both);

impl Protocols {
    /// NFS is among them.
    pub fn nfs(self) -> bool {
        self != Self::Smb
    }

    /// SMB is among them.
    pub fn smb(self) -> bool {
        self != Self::Nfs
    }
}

/// Which users a share maps to the anonymous one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Squash {
    /// Nobody: root is root.
    None,
    /// The superuser and its group.
    #[default]
    Root,
    /// Everybody.
    All,
}

words!(Squash, "is not a squash mode", "root" => Root, "all" => All, "none" => None);

/// A flavor of RPC as a share sees it (RFC 2623 section 2.2.1), by its name in mount(8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Flavor {
    /// AUTH_SYS and AUTH_NONE: users are numbers that the client says.
    Sys = 1,
    /// Kerberos: callers prove who they are.
    Krb5 = 2,
    /// And what they send and are told cannot be changed on its way.
    Krb5i = 4,
    /// Nor read.
    Krb5p = 8,
}

words!(
    Flavor,
    "is not a flavor",
    "sys" => Sys, "krb5" => Krb5, "krb5i" => Krb5i, "krb5p" => Krb5p
);

impl Flavor {
    /// All of them, the one that protects most first.
    pub const ALL: [Self; 4] = [Self::Krb5p, Self::Krb5i, Self::Krb5, Self::Sys];

    /// It takes a keytab.
    pub fn is_kerberos(self) -> bool {
        self != Self::Sys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_read_from_the_word_that_it_is_shown_by() {
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
