//! Authentication by SPNEGO (RFC 4178, MS-SPNG), by NTLM version 2 (MS-NLMP) at both ends and by Kerberos at the server's, pure.
//!
//! *Operation.* An [`Acceptor`] is fed with the security buffers of SESSION_SETUP requests and says what to answer; an
//! [`Initiator`] is the client's end. The clock and random numbers are arguments ([`Fresh`]); passwords come from
//! [`Secrets`], as NT hashes, and only when a name is known. The messages themselves are [`smb_proto::spnego`]'s and
//! [`smb_proto::ntlm`]'s. What an acceptor knows of a client with a ticket, the type `U`, is its caller's, who asks Kerberos.
//!
//! *Errors.* [`Refusal`], which is for our log; a client is told no more than [`Refusal::status`]. Whatever bytes come, nothing
//! panics.

pub mod ntlm;
pub mod spnego;
pub mod ticket;
mod version;

use md4::{Digest, Md4};
use smb_proto::NtStatus;
use smb_proto::wire::{Fault, Rule};
use zeroize::Zeroizing;

pub use spnego::{Acceptor, Initiator, Mechs, hint};

/// What is kept of a password: MD4 of its UTF-16 (MS-NLMP section 3.3.1, `NTOWFv1`). Whoever has it can log on with it, so it is
/// worth as much as the password here, though not where the same password is used elsewhere.
#[derive(Clone, PartialEq, Eq)]
pub struct NtHash(pub Zeroizing<[u8; 16]>);

impl NtHash {
    /// Of a password.
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

/// The key that both ends share after authentication; 16 bytes with NTLM.
pub type SessionKey = Zeroizing<Vec<u8>>;

/// Where the secrets of accounts are.
pub trait Secrets {
    /// The NT hash of this user, if there is one. Names compare without regard to case, as Windows compares them; the domain is
    /// what the client wrote and often means nothing.
    fn nt_hash(&self, domain: &str, user: &str) -> Option<NtHash>;
}

/// A name that a client gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The user, as written.
    pub user: String,
    /// The domain, as written; may be empty.
    pub domain: String,
    /// The name that the client gives itself, for logs.
    pub workstation: String,
}

/// Whom a client turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who<U> {
    /// A user with the right password.
    User(Account),
    /// A user with a ticket.
    Ticket(Box<ticket::Ticket<U>>),
    /// A name that is not known, let in without a proof because guests are allowed. There is no key that both ends share.
    Guest(Account),
    /// Somebody without a name.
    Anonymous,
}

/// Who is let in without a proof.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Unknown names become [`Who::Guest`].
    pub guest: bool,
    /// No name becomes [`Who::Anonymous`].
    pub anonymous: bool,
}

/// Names of a server, as its NTLM challenge tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// NetBIOS name of the machine, at most 15 characters, upper case.
    pub computer: String,
    /// NetBIOS name of the domain; that of the machine when it is in none.
    pub domain: String,
    /// DNS name of the machine.
    pub dns_computer: String,
    /// DNS name of the domain; may be empty.
    pub dns_domain: String,
}

impl Identity {
    /// A machine in no domain, by its host name.
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

/// What must be new in every authentication.
#[derive(Clone)]
pub struct Fresh {
    /// Random: the challenge of whoever uses it.
    pub challenge: [u8; 8],
    /// Random: the session key that an initiator proposes. An acceptor does not use it.
    pub key: [u8; 16],
    /// The time as FILETIME: 100 ns since 1601.
    pub time: u64,
}

/// What an [`Acceptor`] says to a token.
#[derive(Debug)]
pub enum Step<U> {
    /// Answer STATUS_MORE_PROCESSING_REQUIRED with this token.
    Continue(Vec<u8>),
    /// Kerberos is to be asked about this token; then goes [`Acceptor::proved`].
    Prove(Vec<u8>),
    /// Authentication is over.
    Done {
        /// Goes into the final answer; may be empty.
        token: Vec<u8>,
        /// Whom it is.
        who: Who<U>,
        /// `Session.SessionKey` comes from this; `None` for a guest, whose messages are never signed.
        key: Option<SessionKey>,
    },
    /// Authentication failed; the session is given up.
    Refused(Refusal),
}

/// Why authentication failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A token that does not follow its format; names the part.
    Malformed(&'static str),
    /// A token that does not belong here, such as an answer before the challenge.
    OutOfTurn,
    /// The client offered no mechanism that is known.
    NoMechanism,
    /// Only passwords were offered, and they are not taken.
    NoPasswords,
    /// What came of a ticket.
    Ticket(Box<ticket::Refused>),
    /// A client without Unicode or without NTLM among its flags.
    TooOld,
    /// The client named a user, and sent no response at all.
    NoPassword(Account),
    /// An LM or NTLM version 1 response.
    OldResponse(Account),
    /// No such user.
    UnknownUser(Account),
    /// NTProofStr differs.
    WrongPassword(Account),
    /// The password is right, and the account has no uid but the one of guests and of squashed users of NFS.
    NoIdentity(Account),
    /// The account is guessed at from many addresses, and this one got no turn: whatever its password was.
    NoTurn(Account),
    /// Somebody changed the messages on their way: the MIC of the exchange, or that of the list of mechanisms, differs or is
    /// missing where it must be.
    Tampered(&'static str),
    /// No name was given, and that is not allowed.
    Anonymous,
    /// The other end refused, as an initiator learns.
    Rejected,
}

impl Refusal {
    /// What the client is told: MS-SMB2 section 3.3.5.5.3 has no more than that.
    pub fn status(&self) -> NtStatus {
        match self {
            Self::Malformed(_) | Self::OutOfTurn => NtStatus::INVALID_PARAMETER,
            Self::Anonymous => NtStatus::ACCESS_DENIED,
            _ => NtStatus::LOGON_FAILURE,
        }
    }

    /// The account that was tried, if a name was given.
    pub fn account(&self) -> Option<&Account> {
        match self {
            Self::OldResponse(a)
            | Self::NoPassword(a)
            | Self::UnknownUser(a)
            | Self::WrongPassword(a)
            | Self::NoIdentity(a)
            | Self::NoTurn(a) => Some(a),
            _ => None,
        }
    }

    /// The name that was tried: of an account, or of a principal; empty where none was given.
    pub fn user(&self) -> &str {
        match self {
            Self::Ticket(refused) => &refused.principal,
            _ => self.account().map_or("", |account| &account.user),
        }
    }

    /// More than [`Refusal::reason`] says, for the log; may be empty.
    pub fn detail(&self) -> &str {
        match self {
            Self::Ticket(refused) => &refused.detail,
            _ => "",
        }
    }

    /// A guess at a password, for those who count them.
    pub fn is_guess(&self) -> bool {
        matches!(self, Self::UnknownUser(_) | Self::WrongPassword(_) | Self::Tampered(_))
    }

    /// For the log; holds nothing secret.
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
mod tests;
