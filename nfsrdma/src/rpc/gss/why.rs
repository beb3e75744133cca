//! Why a token makes no context: what the log says, what the client is told, and what to change.

use gss_sys::Cause;

/// GSS_S_DEFECTIVE_TOKEN, GSS_S_CREDENTIALS_EXPIRED and GSS_S_FAILURE (RFC 2744 section 3.9.1).
const DEFECTIVE: u32 = 9 << 16;
const EXPIRED: u32 = 11 << 16;
const FAILURE: u32 = 13 << 16;

/// Why there is no context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The library is not there.
    NoLibrary,
    /// The keytab cannot be read, or holds no key.
    Keytab,
    /// The keytab has no key for the ticket.
    NoKey,
    /// The ticket was made with another key than that of the keytab.
    WrongKey,
    /// Clocks differ.
    Clock,
    /// The ticket has run out.
    Expired,
    /// The very same message has come before.
    Replay,
    /// No message of Kerberos.
    Malformed,
    /// Longer than a ticket gets.
    TooLong,
    /// The client wants an exchange of three messages (DCE_STYLE).
    Exchange,
    /// For another service than `nfs`.
    Service,
    /// The name service does not say who the principal is.
    NameService,
    /// The encryption type of the session is none that is served.
    Enctype,
    /// The library refuses it for another reason.
    Other,
}

impl Why {
    /// Each of them.
    pub const ALL: [Self; 14] = [
        Self::NoLibrary,
        Self::Keytab,
        Self::NoKey,
        Self::WrongKey,
        Self::Clock,
        Self::Expired,
        Self::Replay,
        Self::Malformed,
        Self::TooLong,
        Self::Exchange,
        Self::Service,
        Self::NameService,
        Self::Enctype,
        Self::Other,
    ];

    /// The major status that the client is told (RFC 2203 section 5.2.3.1).
    pub fn major(self) -> u32 {
        match self {
            Self::Malformed | Self::TooLong => DEFECTIVE,
            Self::Expired => EXPIRED,
            _ => FAILURE,
        }
    }

    /// For the log.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NoLibrary => "MIT's Kerberos library cannot be used",
            Self::Keytab => "the keytab cannot be used",
            Self::NoKey => "the keytab has no key for the ticket",
            Self::WrongKey => "the ticket was made with another key than that of the keytab",
            Self::Clock => "the clocks of client and server differ",
            Self::Expired => "the ticket has run out",
            Self::Replay => "the same message of Kerberos has come before",
            Self::Malformed => "no message of Kerberos",
            Self::TooLong => "longer than 48 KiB",
            Self::Exchange => "an exchange of three messages",
            Self::Service => "a ticket for another service",
            Self::NameService => "this host's name service does not say who the user is",
            Self::Enctype => "an encryption type that is not served",
            Self::Other => "Kerberos refuses the ticket",
        }
    }

    /// What to change where the client is to be let in.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::NoLibrary => "install MIT's Kerberos library (Debian: libgssapi-krb5-2)",
            Self::Keytab => "look at the keytab: `headgate check` says what it lacks",
            Self::NoKey => {
                "put the key of `nfs/NAME` into the keytab; after a new key the client logs on again"
            }
            Self::WrongKey => "make the keytab anew: its key is not the one that the KDC has",
            Self::Clock => {
                "synchronize the clocks of client and server: they differ by more than five minutes"
            }
            Self::Expired => "the client's ticket has run out; `kinit` gets a new one",
            Self::Replay => {
                "let the client mount again; if this persists, somebody replays its messages"
            }
            Self::Malformed => {
                "mount by a client that sends tickets of Kerberos 5, and no other tokens"
            }
            Self::TooLong => "take its user out of groups of the domain: a ticket names them all",
            Self::Exchange => "mount by a client that needs no DCE_STYLE, as Linux' does",
            Self::Service => {
                "the ticket is for another service: mount by the name that `nfs/NAME` of the keytab has"
            }
            Self::NameService => {
                "the name service did not say who the user is; look whether its directory server answers"
            }
            Self::Enctype => {
                "the encryption type of the session is too old; give client and keytab keys of AES"
            }
            Self::Other => "look at krb5.conf of client and server",
        }
    }
}

impl From<Cause> for Why {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::NoLibrary => Self::NoLibrary,
            Cause::Keytab => Self::Keytab,
            Cause::NoKey => Self::NoKey,
            Cause::WrongKey => Self::WrongKey,
            Cause::Clock => Self::Clock,
            Cause::Expired => Self::Expired,
            Cause::Replay => Self::Replay,
            Cause::Malformed => Self::Malformed,
            Cause::Mic | Cause::Other => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_has_a_reason_and_a_remedy_of_its_own() {
        let reasons: BTreeSet<&str> = Why::ALL.iter().map(|why| why.reason()).collect();
        let remedies: BTreeSet<&str> = Why::ALL.iter().map(|why| why.remedy()).collect();
        assert_eq!((reasons.len(), remedies.len()), (Why::ALL.len(), Why::ALL.len()));
    }
}
