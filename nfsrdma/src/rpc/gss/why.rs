//! Reasons for refusing a token: the message for the log, the status for the client, and the remedy.

use gss_krb5::Cause;

/// GSS_S_DEFECTIVE_TOKEN, GSS_S_CREDENTIALS_EXPIRED and GSS_S_FAILURE (RFC 2744 section 3.9.1).
const DEFECTIVE: u32 = 9 << 16;
const EXPIRED: u32 = 11 << 16;
const FAILURE: u32 = 13 << 16;

/// The reason for refusing a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The Kerberos library refuses it.
    Kerberos(Cause),
    /// The token is longer than any valid ticket.
    TooLong,
    /// The client wants an exchange of three messages (DCE_STYLE).
    Exchange,
    /// The ticket is for a service other than `nfs`.
    Service,
    /// The name service could not map the principal.
    NameService,
    /// The encryption type of the session is not supported.
    Enctype,
}

impl Why {
    /// The major status sent to the client (RFC 2203 section 5.2.3.1).
    pub fn major(self) -> u32 {
        match self {
            Self::Kerberos(Cause::Malformed) | Self::TooLong => DEFECTIVE,
            Self::Kerberos(Cause::Expired) => EXPIRED,
            _ => FAILURE,
        }
    }

    /// The message for the log.
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

    /// The change that would admit the client.
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

/// The remedy for errors of the library.
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
    fn reasons_and_remedies_differ() {
        let own =
            [Why::TooLong, Why::Exchange, Why::Service, Why::NameService, Why::Enctype].into_iter();
        let all: Vec<Why> = own.chain(Cause::ALL.map(Why::Kerberos)).collect();
        let reasons: BTreeSet<&str> = all.iter().map(|why| why.reason()).collect();
        let remedies: BTreeSet<&str> = all.iter().map(|why| why.remedy()).collect();
        // A signature that does not verify and an unnamed error of the library share one remedy.
        assert_eq!((reasons.len(), remedies.len()), (all.len(), all.len() - 1));
    }
}
