//! Passwords that a controller of the client's domain decides about (NTLM pass-through, MS-APDS section 3.1). This module never
//! blocks; the caller asks the controller, which may.

use zeroize::Zeroizing;

use crate::Account;

/// The part of an exchange that a controller needs to check a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Names as the client sent them: they are part of the proof.
    pub account: Account,
    /// The challenge of this exchange.
    pub challenge: [u8; 8],
    /// The response of NTLM version 2. That of LM is not passed on: a controller may accept it instead, and then the flag of the
    /// MIC in this one is unproven.
    pub nt: Vec<u8>,
    pub account_here: AccountHere,
}

/// What the accounts of this server say about a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountHere {
    /// None has the name.
    Unknown,
    /// The password is not that of the account.
    WrongPassword,
    Proved,
}

/// Answer to a question.
pub enum Answer<U> {
    /// No domain has the user: the accounts of this server decide.
    Local,
    /// The password is right.
    Proved {
        user: U,
        /// `SessionBaseKey` (MS-NLMP section 3.3.2).
        key: Zeroizing<[u8; 16]>,
    },
    Refused(Refused),
}

/// Why a user of a domain is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The controller knows no such user, or the password is wrong.
    WrongPassword,
    /// The controller refuses the account: it is disabled, locked, expired, or its password must be changed.
    Account,
    /// The service of this host or its controllers do not answer.
    Away,
    /// The service of this host checks no passwords.
    NoPasswords,
    /// The user or one of its groups has no number on this host.
    NoNumber,
    /// The user would be the superuser of this host, or share the uid of guests.
    Number,
}

/// A refused user of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub why: Why,
    /// Details for the log, such as the controller's status.
    pub detail: String,
}

impl Why {
    /// Returns the reason for the log.
    pub fn reason(self) -> &'static str {
        match self {
            Self::WrongPassword => "the domain knows no such user with this password",
            Self::Account => "the domain refuses the account",
            Self::Away => "the domain cannot be asked now",
            Self::NoPasswords => "passwords of the domain need winbind",
            Self::NoNumber => "the user, or a group of it, has no number on this host",
            Self::Number => "the user would have the number of the superuser or of guests",
        }
    }
}
