//! Refusals of clients before they have a share, or because of a share's protection: the rule, and the remedy.

use std::net::IpAddr;

use gss_sys::Cause;
use rdma_transport::refused::{self, Refused};

use crate::auth::ticket::Why;
use crate::auth::{self, relay};
use crate::conn::Conn;

/// A refusal that is not a protocol error of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A failed logon (MS-SMB2 section 3.3.5.5.3); the remedy.
    Logon(&'static str),
    /// A password that a client wanted to change; the remedy.
    PasswordChange(&'static str),
    /// The share admits no guests or anonymous users.
    Guest,
    /// The server requires encryption, and the client does not encrypt.
    Encryption,
    /// The share requires encryption, and the client does not encrypt.
    EncryptionOfShare,
    /// The server requires signing, and the client does not sign.
    Signing,
    /// Client and server have no dialect in common.
    Dialect,
    /// The client speaks SMB 1 only.
    Smb1,
}

impl Rule {
    /// The names of all rules.
    pub const NAMES: &[&str] = &[
        "logon",
        "password-change",
        "share-guest",
        "smb-encryption",
        "smb-signing",
        "smb-dialect",
    ];

    /// Returns the stable name for logs and counters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Logon(_) => "logon",
            Self::PasswordChange(_) => "password-change",
            Self::Guest => "share-guest",
            Self::Encryption | Self::EncryptionOfShare => "smb-encryption",
            Self::Signing => "smb-signing",
            Self::Dialect | Self::Smb1 => "smb-dialect",
        }
    }

    /// Returns what to change to admit the client.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Logon(remedy) | Self::PasswordChange(remedy) => remedy,
            Self::Guest => "log on as a user, or say `guest: true` for the share",
            Self::Encryption => {
                "let the client encrypt (SMB 3, and no guest), or say `smb.encryption: offered`"
            }
            Self::EncryptionOfShare => {
                "let the client encrypt (SMB 3, and no guest), or do not say `encrypt` for the share"
            }
            Self::Signing => "let the client sign, or say `smb.signing: offered`",
            Self::Dialect => "let the client use SMB 2.0.2 or newer",
            Self::Smb1 => {
                "turn SMB 2 or newer on in it, or update it: this device speaks SMB 1 only, which is never served"
            }
        }
    }

    /// Counts the refusal, stores it for `headgate status` and logs it at most once a minute. `share` is empty if there was none.
    pub(crate) fn note(self, conn: &Conn, user: &str, share: &str) {
        refused::note(self.refused(conn.info.peer.ip(), user, share));
    }

    /// As [`Rule::note`], for a client at this address and no share.
    pub(crate) fn note_at(self, peer: IpAddr, user: &str) {
        refused::note(self.refused(peer, user, ""));
    }

    /// As [`Rule::note`], for a logon that was refused for this reason.
    pub(crate) fn note_logon(self, conn: &Conn, user: &str, reason: &'static str) {
        self.note_logon_at(conn.info.peer.ip(), user, reason);
    }

    /// As [`Rule::note_logon`], for a client at this address.
    pub(crate) fn note_logon_at(self, peer: IpAddr, user: &str, reason: &'static str) {
        refused::note_logon(self.refused(peer, user, ""), reason);
    }

    fn refused(self, peer: IpAddr, user: &str, share: &str) -> Refused {
        Refused {
            peer,
            user: user.into(),
            share: share.into(),
            rule: self.name(),
            remedy: self.remedy().into(),
        }
    }
}

/// Maps a refusal by authentication to its rule.
impl From<&auth::Refusal> for Rule {
    fn from(why: &auth::Refusal) -> Self {
        use auth::Refusal;
        Self::Logon(match why {
            Refusal::UnknownUser(_) => {
                "log on as a user of `users`, of `users_from` or of `headgate user add`, or add this one there; a user of a domain \
                 logs on as `DOMAIN\\user`"
            }
            Refusal::WrongPassword(_) => {
                "log on with the password of the user; `password_file` or `headgate user add` has it"
            }
            Refusal::DirectoryAway(_) => {
                "see why the LDAP servers of `users_from` do not answer; `headgate check` says what it knows"
            }
            Refusal::DirectoryBusy(_) => {
                "log on again; if that happens often, see which clients log on with invented names, and how fast the LDAP servers \
                 of `users_from` answer"
            }
            Refusal::NoIdentity(_) => GIVE_UID,
            Refusal::OfDomain(_, refused) => of_domain(refused.why),
            Refusal::NoTurn(_) => {
                "log on from an address that this user has logged on from before, or wait until the wrong passwords for it stop"
            }
            Refusal::Anonymous => "log on by a name, or say `guest: true` for a share",
            Refusal::NoPassword(_) => {
                "give the client the password of the user, or say `guest: true` for a share, which users without an account then \
                 use"
            }
            Refusal::OldResponse(_) | Refusal::TooOld => {
                "let the client log on by NTLM version 2, which needs no domain"
            }
            Refusal::NoMechanism => {
                "let the client log on by NTLM version 2, or give the server a keytab for Kerberos (`kerberos: {keytab: FILE}`)"
            }
            Refusal::NoPasswords => {
                "let the client log on by Kerberos, by a name for which the keytab has a key, or say `smb: {ntlm: on}`"
            }
            Refusal::Ticket(refused) => of_ticket(refused.why),
            _ => "the log line `logon refused` says what was wrong with the messages of the client",
        })
    }
}

/// Remedy for an account without a uid.
const GIVE_UID: &str = "give the user a uid that guests and squashed users of NFS do not have: set `uid` in `users`, \
     repeat `headgate user add` with `--uid NUMBER`, or add the user to the host";

/// Returns the remedy for a user of the domain whom no controller has confirmed, or who has no number.
fn of_domain(why: relay::Why) -> &'static str {
    match why {
        relay::Why::WrongPassword => {
            "log on as `DOMAIN\\user` with the password of the domain, or name this server as the domain for one of its accounts"
        }
        relay::Why::Account => {
            "the log line `logon refused` has the status that the controller gave"
        }
        relay::Why::Away => {
            "see whether winbind (`wbinfo -p`, `wbinfo -t`) or sssd (`sssctl domain-status`) answers on this host and a controller \
             is reachable; `headgate check` says what it knows"
        }
        relay::Why::NoPasswords => {
            "log on with a ticket (`kinit`, or a client in the domain that uses the name of the server, no address); passwords \
             of the domain need a host that winbind has joined (`domain: {by: winbind}`)"
        }
        relay::Why::NoNumber => {
            "give the user and its primary group numbers: with winbind `idmap config` in smb.conf of this host (`wbinfo \
             --sid-to-uid SID`), with SSSD `ldap_id_mapping` in sssd.conf, or uidNumber and gidNumber in the directory"
        }
        relay::Why::Number => {
            "give the user another number in the domain, or log on as another user"
        }
    }
}

/// Returns the remedy for a ticket that does not admit its client.
fn of_ticket(why: Why) -> &'static str {
    match why {
        Why::Kerberos(Cause::NoLibrary) => {
            "install MIT's Kerberos library (Debian: libgssapi-krb5-2); `headgate check` says what it lacks"
        }
        Why::Kerberos(Cause::Keytab) => "`headgate check` says what is wrong with the keytab",
        Why::Kerberos(Cause::NoKey | Cause::WrongKey) => {
            "put the current keys of the name that the client uses (cifs/NAME) into the keytab, and let the client get a new \
             ticket (`kdestroy`, `klist purge`)"
        }
        Why::Kerberos(Cause::Clock) => {
            "synchronize the clocks of client and server: they may differ by five minutes"
        }
        Why::Kerberos(Cause::Expired) => "let the client get a new ticket (`kinit`, `klist purge`)",
        Why::Kerberos(Cause::Replay) => {
            "let the client connect again; if this persists, somebody replays its messages"
        }
        Why::Service => "let the client ask for a ticket for cifs/NAME or host/NAME",
        Why::NoUser => {
            "make the user on this host, name it in `users`, or say `kerberos.realm`, or `auth_to_local` in krb5.conf, for its \
             realm"
        }
        Why::Pac => {
            "only tickets of Active Directory have numbers (a PAC): say `kerberos: {map: names}` for other domains"
        }
        Why::Superuser => "log on as another user, or name this one in `users`",
        Why::NoIdentity => GIVE_UID,
        Why::Domain => of_domain(relay::Why::Away),
        Why::NoNumber => of_domain(relay::Why::NoNumber),
        Why::NameService => "find out why `getent passwd USER` fails on this host",
        Why::Kerberos(Cause::Malformed | Cause::Mic | Cause::Other) => {
            "the log line `logon refused` says what Kerberos says"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_its_name_in_the_list() {
        use Rule::{
            Dialect, Encryption, EncryptionOfShare, Guest, Logon, PasswordChange, Signing, Smb1,
        };
        let all = [
            Logon(""),
            PasswordChange(""),
            Guest,
            Encryption,
            EncryptionOfShare,
            Signing,
            Dialect,
            Smb1,
        ];
        let mut names = all.map(Rule::name).to_vec();
        names.dedup();
        assert_eq!(names, Rule::NAMES);
    }

    #[test]
    fn a_remedy_is_about_what_is_wrong() {
        let of = |cause| of_ticket(Why::Kerberos(cause));
        assert!(
            of(Cause::NoLibrary).contains("library") && !of(Cause::NoLibrary).contains("keytab")
        );
        assert!(of(Cause::Keytab).contains("keytab"));
    }
}
