//! Why a token makes no context: what the log says, what the client is told, and what to change.

use gss_krb5::Cause;

/// GSS_S_DEFECTIVE_TOKEN, GSS_S_CREDENTIALS_EXPIRED and GSS_S_FAILURE (RFC 2744 section 3.9.1).
const DEFECTIVE: u32 = 9 << 16;
const EXPIRED: u32 = 11 << 16;
const FAILURE: u32 = 13 << 16;

/// Why there is no context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The library refuses it.
    Kerberos(Cause),
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
}

impl Why {
    /// The major status that the client is told (RFC 2203 section 5.2.3.1).
    pub fn major(self) -> u32 {
        match self {
            Self::Kerberos(Cause::Malformed) | Self::TooLong => DEFECTIVE,
            Self::Kerberos(Cause::Expired) => EXPIRED,
            _ => FAILURE,
        }
    }

    /// For the log.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Kerberos(cause) => cause.reason(),
            Self::TooLong => "longer than 48 KiB",
            Self::Exchange => "an exchange of three messages",
            Self::Service => "a ticket for another service",
            Self::NameService => "this host's name service does not say who the user is",
            Self::Enctype => "an encryption type that is not served",
        }
    }

    /// What to change where the client is to be let in.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Kerberos(cause) => of_library(cause),
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
        }
    }
}

/// Where the library refuses it.
fn of_library(cause: Cause) -> &'static str {
    match cause {
        Cause::NoLibrary => "install MIT's Kerberos library (Debian: libgssapi-krb5-2)",
        Cause::Keytab => "look at the keytab: `headgate check` says what it lacks",
        Cause::NoKey => {
            "put the key of `nfs/NAME` into the keytab; after a new key the client logs on again"
        }
        Cause::WrongKey => "make the keytab anew: its key is not the one that the KDC has",
        Cause::Clock => {
            "synchronize the clocks of client and server: they differ by more than five minutes"
        }
        Cause::Expired => "the client's ticket has run out; `kinit` gets a new one",
        Cause::Replay => {
            "let the client mount again; if this persists, somebody replays its messages"
        }
        Cause::Malformed => {
            "mount by a client that sends tickets of Kerberos 5, and no other tokens"
        }
        Cause::Mic | Cause::Other => "look at krb5.conf of client and server",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_has_a_reason_and_a_remedy_of_its_own() {
        let own =
            [Why::TooLong, Why::Exchange, Why::Service, Why::NameService, Why::Enctype].into_iter();
        let all: Vec<Why> = own.chain(Cause::ALL.map(Why::Kerberos)).collect();
        let reasons: BTreeSet<&str> = all.iter().map(|why| why.reason()).collect();
        let remedies: BTreeSet<&str> = all.iter().map(|why| why.remedy()).collect();
        // Of a signature that does not verify nothing else can be said than of what the library does not name.
        assert_eq!((reasons.len(), remedies.len()), (all.len(), all.len() - 1));
    }
}
