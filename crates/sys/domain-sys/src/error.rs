//! Failures of questions.

use std::fmt;

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The library is not installed, or too old; the loader's message.
    NoLibrary(String),
    /// The service does not run, or this process may not ask it.
    NotAvailable,
    /// No controller of the machine's domain answers the service.
    NoController,
    /// Controllers refuse the account of the machine, or the machine has lost its password; the name of the status.
    NoTrust(String),
    /// The service does not say whether a controller answers.
    NotTold,
    /// The service checks no passwords.
    NoPasswords,
    /// The limit on questions is reached.
    Busy,
    /// The answer is not complete in time, or contradicts itself.
    Unfinished,
    /// A text of the client has a zero byte.
    Invalid,
    /// The code of another failure: winbind's `wbcErr`, or SSSD's errno.
    Failed(i32),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLibrary(why) => f.write_str(why),
            Self::NotAvailable => f.write_str("the service of the domain does not answer"),
            Self::NoController => f.write_str("no domain controller answers"),
            Self::NoTrust(status) => {
                write!(f, "the domain does not accept the account of this machine ({status})")
            }
            Self::NotTold => f.write_str("it is not known whether a domain controller answers"),
            Self::NoPasswords => f.write_str("the service of the domain checks no passwords"),
            Self::Busy => f.write_str("too many questions to the service of the domain"),
            Self::Unfinished => f.write_str("the answer about the domain is not complete"),
            Self::Invalid => f.write_str("a name with a zero byte"),
            Self::Failed(code) => write!(f, "the service of the domain fails (code {code})"),
        }
    }
}

impl std::error::Error for Error {}
