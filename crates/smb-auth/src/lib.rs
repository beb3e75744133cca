//! Authentication with SPNEGO (RFC 4178, MS-SPNG): NTLM version 2 (MS-NLMP) on both sides and Kerberos on the server side. Pure.
//!
//! Start with [`Acceptor`]: it takes the security buffers of SESSION_SETUP requests and returns the responses; [`Initiator`] is the
//! client side. Time and random numbers are arguments ([`Fresh`]). [`Secrets`] supplies passwords as NT hashes, for known names
//! only. [`smb_proto::spnego`] and [`smb_proto::ntlm`] have the message formats. The caller verifies Kerberos tickets; `U` is its
//! type for the user of a ticket.
//!
//! *Errors.* [`Refusal`], intended for the server's log; the client gets only [`Refusal::status`]. No input causes a panic.

#![allow(missing_docs, reason = "comments that only repeat a name are left out")]

pub mod ntlm;
pub mod password;
pub mod relay;
pub mod spnego;
pub mod ticket;
mod version;

use md4::{Digest, Md4};
use smb_proto::NtStatus;
use smb_proto::wire::{Fault, Rule};
use zeroize::Zeroizing;

pub use spnego::{Acceptor, Initiator, Mechs, hint};

/// The stored form of a password: MD4 of its UTF-16 (MS-NLMP section 3.3.1, `NTOWFv1`). The hash suffices to log on, so it is as
/// sensitive as the password here, but it does not reveal the password for use elsewhere.
#[derive(Clone, PartialEq, Eq)]
pub struct NtHash(pub Zeroizing<[u8; 16]>);

impl NtHash {
    /// Computes the hash of a password.
    pub fn of(password: &str) -> Self {
        let wide: Zeroizing<Vec<u8>> =
            Zeroizing::new(password.encode_utf16().flat_map(u16::to_le_bytes).collect());
        Self(Zeroizing::new(Md4::digest(&wide).into()))
    }
}

impl std::fmt::Debug for NtHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NtHash(..)")
    }
}

/// The key that client and server share after authentication; 16 bytes with NTLM.
pub type SessionKey = Zeroizing<Vec<u8>>;

/// The store of account secrets.
pub trait Secrets {
    /// Returns the NT hash of this user, if the user exists. User names compare case-insensitively, like on Windows; the domain is
    /// the client's text and often meaningless.
    fn nt_hash(&self, domain: &str, user: &str) -> Option<NtHash>;

    /// Returns whether the exchange needs a look-up of this user before it continues ([`Step::LookUp`]).
    fn must_look_up(&self, _user: &str, _why: Look) -> bool {
        false
    }
}

/// The reason for a look-up in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// It is not known, or its last look-up is too old.
    Unknown,
    /// The proof does not match the known password, which may have changed.
    Wrong,
    /// The proof matches; the groups may have changed. Not asked by an [`Acceptor`].
    Proved,
}

/// The end of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookedUp {
    /// The store has what the directory answered.
    Answered,
    /// The directory does not answer; the store may have an earlier answer, which decides.
    Away,
    /// The directory may answer, but had no time for this look-up. Only an answer with which [`Secrets::must_look_up`] is content
    /// decides: a client that keeps all turns must not make an old password valid.
    Busy,
}

/// The account that a client named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// User name as sent.
    pub user: String,
    /// Domain as sent; may be empty.
    pub domain: String,
    /// Name of the client machine, for logs.
    pub workstation: String,
}

/// The authenticated identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who<U> {
    /// A user who proved the password.
    User(Account),
    /// A user with a Kerberos ticket.
    Ticket(Box<ticket::Ticket<U>>),
    /// A user who proved the password to a controller of its domain.
    OfDomain {
        /// The account as the client named it.
        account: Account,
        user: Box<U>,
    },
    /// An unknown name without proof, accepted because guests are allowed. No session key exists.
    Guest(Account),
    /// No user name was given.
    Anonymous,
}

/// The logons that need no proof.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Accept unknown names as [`Who::Guest`].
    pub guest: bool,
    /// Accept a missing name as [`Who::Anonymous`].
    pub anonymous: bool,
    /// Relay names of domains other than this machine's to the caller ([`Step::Ask`]).
    pub domain: bool,
    /// Let the caller look up users as [`Secrets::must_look_up`] says ([`Step::LookUp`]).
    pub look_up: bool,
}

/// Names of the server in its NTLM challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// NetBIOS name of the machine, at most 15 characters, upper case.
    pub computer: String,
    /// NetBIOS name of the domain; the machine's name if it is in no domain.
    pub domain: String,
    /// DNS name of the machine.
    pub dns_computer: String,
    /// DNS name of the domain; may be empty.
    pub dns_domain: String,
}

impl Identity {
    /// Builds the identity of a machine in no domain from its host name.
    pub fn standalone(host: &str) -> Self {
        let first = host.split('.').next().unwrap_or_default();
        let mut computer: String = first.to_uppercase().chars().take(15).collect();
        if computer.is_empty() {
            computer = "HEADGATE".to_owned();
        }
        Self {
            domain: computer.clone(),
            computer,
            dns_computer: host.to_lowercase(),
            dns_domain: host.split_once('.').map(|(_, d)| d.to_lowercase()).unwrap_or_default(),
        }
    }
}

/// Inputs that must be new in every authentication.
#[derive(Clone)]
pub struct Fresh {
    /// Random: the challenge of this side.
    pub challenge: [u8; 8],
    /// Random: the session key that an initiator proposes. An acceptor does not use it.
    pub key: [u8; 16],
    /// Current time as FILETIME: 100 ns units since 1601.
    pub time: u64,
}

/// The next action after a token was processed by an [`Acceptor`].
#[derive(Debug)]
pub enum Step<U> {
    /// Respond STATUS_MORE_PROCESSING_REQUIRED with this token.
    Continue(Vec<u8>),
    /// Verify this Kerberos token, then call [`Acceptor::proved`].
    Prove(Vec<u8>),
    /// Let a controller of the domain decide about this response, then call [`Acceptor::answered`].
    Ask(Box<relay::Question>),
    /// Look this account up for the store of secrets, then call [`Acceptor::looked_up`]. At most once for each reason.
    LookUp(Account, Look),
    /// Authentication succeeded.
    Done {
        /// Token for the final response; may be empty.
        token: Vec<u8>,
        /// The authenticated identity.
        who: Who<U>,
        /// Source of `Session.SessionKey`; `None` for a guest, whose messages are never signed.
        key: Option<SessionKey>,
    },
    /// Authentication failed; drop the session.
    Refused(Refusal),
}

/// The reason why authentication failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A token violates its format; names the part.
    Malformed(&'static str),
    /// A token is out of sequence, such as a response before the challenge.
    OutOfTurn,
    /// The client offered no supported mechanism.
    NoMechanism,
    /// The client offered only passwords, which are disabled.
    NoPasswords,
    /// The ticket was refused.
    Ticket(Box<ticket::Refused>),
    /// The client supports no Unicode, or its flags lack NTLM.
    TooOld,
    /// The client named a user but sent no response.
    NoPassword(Account),
    /// The client sent an LM or NTLM version 1 response.
    OldResponse(Account),
    /// The user does not exist.
    UnknownUser(Account),
    /// NTProofStr differs.
    WrongPassword(Account),
    /// A controller of the domain refused the password, or the user has no number on this host.
    OfDomain(Account, relay::Refused),
    /// No account has the name, and the directory that may know the user does not answer.
    DirectoryAway(Account),
    /// The directory had no time for the look-up of the user, and its last answer is too old to decide.
    DirectoryBusy(Account),
    /// The password is correct, but the account has no uid except the uid of guests and squashed NFS users.
    NoIdentity(Account),
    /// Many addresses are guessing passwords of this account, and this attempt was rejected whatever its password.
    NoTurn(Account),
    /// Messages were modified in transit: the MIC of the exchange or of the mechanism list is wrong or missing.
    Tampered(&'static str),
    /// The client gave no name, and anonymous logons are not allowed.
    Anonymous,
    /// The server refused; returned by an initiator.
    Rejected,
}

impl Refusal {
    /// Returns the status for the client; MS-SMB2 section 3.3.5.5.3 allows no further detail.
    pub fn status(&self) -> NtStatus {
        match self {
            Self::Malformed(_) | Self::OutOfTurn => NtStatus::INVALID_PARAMETER,
            Self::Anonymous => NtStatus::ACCESS_DENIED,
            _ => NtStatus::LOGON_FAILURE,
        }
    }

    /// Returns the account that the client tried, if it gave a name.
    pub fn account(&self) -> Option<&Account> {
        match self {
            Self::OldResponse(a)
            | Self::NoPassword(a)
            | Self::UnknownUser(a)
            | Self::WrongPassword(a)
            | Self::NoIdentity(a)
            | Self::OfDomain(a, _)
            | Self::DirectoryAway(a)
            | Self::DirectoryBusy(a)
            | Self::NoTurn(a) => Some(a),
            _ => None,
        }
    }

    /// Returns the name of the account or principal; empty if the client gave no name.
    pub fn user(&self) -> &str {
        match self {
            Self::Ticket(refused) => &refused.principal,
            _ => self.account().map_or("", |account| &account.user),
        }
    }

    /// Returns details for the log in addition to [`Refusal::reason`]; may be empty.
    pub fn detail(&self) -> &str {
        match self {
            Self::Ticket(refused) => &refused.detail,
            Self::OfDomain(_, refused) => &refused.detail,
            _ => "",
        }
    }

    /// Checks whether the attempt counts as guessing a password.
    pub fn is_guess(&self) -> bool {
        match self {
            Self::UnknownUser(_) | Self::WrongPassword(_) | Self::Tampered(_) => true,
            Self::OfDomain(_, refused) => refused.why == relay::Why::WrongPassword,
            _ => false,
        }
    }

    /// Returns the reason for the log; contains no secrets.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(part) => part,
            Self::OutOfTurn => "a token that does not belong here",
            Self::NoMechanism => "no mechanism in common",
            Self::NoPasswords => "passwords are not taken here",
            Self::Ticket(refused) => refused.why.reason(),
            Self::TooOld => "no character set or no NTLM",
            Self::NoPassword(_) => "a user without a password",
            Self::OldResponse(_) => "an LM or NTLM version 1 response; only version 2 is accepted",
            Self::UnknownUser(_) => "no such user",
            Self::WrongPassword(_) => "wrong password",
            Self::OfDomain(_, refused) => refused.why.reason(),
            Self::DirectoryAway(_) => "the directory that may know the user does not answer",
            Self::DirectoryBusy(_) => {
                "the directory that may know the user could not be asked in time"
            }
            Self::NoIdentity(_) => "the account has no uid but the one of guests",
            Self::NoTurn(_) => "too many wrong passwords for this account, from other addresses",
            Self::Tampered(part) => part,
            Self::Anonymous => "anonymous sessions are not allowed",
            Self::Rejected => "the server refused",
        }
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        match (fault.field, fault.rule) {
            ("MessageType", Rule::Value) => Self::OutOfTurn,
            (field, _) => Self::Malformed(field),
        }
    }
}

#[cfg(test)]
mod kerberos_tests;
#[cfg(test)]
mod look_up_tests;
#[cfg(test)]
mod relay_tests;
#[cfg(test)]
mod tests;
