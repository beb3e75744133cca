//! The reasons why a ticket does not establish a context, for any protocol.

/// The cause of a failure, for the administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The library or one of its functions is missing.
    NoLibrary,
    /// The keytab cannot be read, or has no keys.
    Keytab,
    /// The keytab lacks the key of the ticket: the service name, key version or encryption type differs.
    NoKey,
    /// The ticket was encrypted with another key than the keytab's key of that name and version.
    WrongKey,
    /// The clocks of client and server differ by more than `clockskew` in krb5.conf, five minutes by default.
    Clock,
    /// The ticket has expired.
    Expired,
    /// The same message was received before.
    Replay,
    /// The message is not valid Kerberos.
    Malformed,
    /// The MIC does not match context and message.
    Mic,
    /// Another cause, described by the text.
    Other,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 10] = [
        Self::NoLibrary,
        Self::Keytab,
        Self::NoKey,
        Self::WrongKey,
        Self::Clock,
        Self::Expired,
        Self::Replay,
        Self::Malformed,
        Self::Mic,
        Self::Other,
    ];

    /// Returns the reason for the log.
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
            Self::Mic => "a signature that is not of this context and message",
            Self::Other => "Kerberos refuses the ticket",
        }
    }
}
