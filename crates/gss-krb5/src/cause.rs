//! Why a ticket makes no context, whichever protocol it came by.

/// What an administrator looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The library or a function of it is not there.
    NoLibrary,
    /// The keytab cannot be read, or holds no key.
    Keytab,
    /// The keytab has no key for the ticket: another service's name, key version or encryption type.
    NoKey,
    /// The ticket was made with another key than the keytab's of that name and version.
    WrongKey,
    /// The clocks of client and server differ by more than `clockskew` of krb5.conf, five minutes.
    Clock,
    /// The ticket has run out.
    Expired,
    /// The very same message has come before.
    Replay,
    /// No message of Kerberos.
    Malformed,
    /// A MIC that is not of this context and message.
    Mic,
    /// Something else, as the text says.
    Other,
}

impl Cause {
    /// Each of them.
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
            Self::Mic => "a signature that is not of this context and message",
            Self::Other => "Kerberos refuses the ticket",
        }
    }
}
