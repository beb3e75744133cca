//! Failures of questions.

use std::fmt;

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The library is not installed, or too old; the loader's message.
    NoLibrary(String),
    /// winbindd does not run, or this process may not ask it.
    NotAvailable,
    /// No controller of the machine's domain answers winbindd.
    NoController,
    /// The limit on questions is reached.
    Busy,
    /// The answer is not complete in time, or contradicts itself.
    Unfinished,
    /// A text of the client has a zero byte.
    Invalid,
    /// The `wbcErr` of another failure.
    Failed(i32),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLibrary(why) => f.write_str(why),
            Self::NotAvailable => f.write_str("winbindd does not answer"),
            Self::NoController => f.write_str("no domain controller answers winbindd"),
            Self::Busy => f.write_str("too many questions to winbindd"),
            Self::Unfinished => f.write_str("the answer of winbindd is not complete"),
            Self::Invalid => f.write_str("a name with a zero byte"),
            Self::Failed(code) => write!(f, "winbindd fails (wbcErr {code})"),
        }
    }
}

impl std::error::Error for Error {}
