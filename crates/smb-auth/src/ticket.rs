//! The results of Kerberos that SPNEGO and SESSION_SETUP need. This module never blocks; the caller uses the Kerberos library,
//! which may.

use gss_krb5::Cause;

use super::SessionKey;

/// An established security context, for its remaining uses.
pub trait Context: Send {
    /// Signs a message as the server; `None` if the library fails.
    fn sign(&mut self, message: &[u8]) -> Option<Vec<u8>>;
    /// Verifies the client's signature of a message.
    fn verify(&mut self, message: &[u8], mic: &[u8]) -> bool;
    /// Returns the expiry of the ticket in seconds since 1970; `None` if the library fails. Consumes the context.
    fn ends(self: Box<Self>) -> Option<u64>;
}

/// An accepted ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket<U> {
    /// The principal in `kinit` notation: `alice@LAB.TEST`.
    pub principal: String,
    /// The local user of the principal.
    pub user: U,
    /// Expiry in seconds since 1970.
    pub ends: u64,
}

/// An authenticated client.
pub struct Proof<U> {
    /// The principal in `kinit` notation: `alice@LAB.TEST`.
    pub principal: String,
    /// The service of the ticket: `cifs/server.lab.test@LAB.TEST`.
    pub service: String,
    /// The local user of the principal.
    pub user: U,
    /// The shared key, of 16 or 32 bytes.
    pub key: SessionKey,
    /// AP-REP for the client; empty if it did not request one.
    pub token: Vec<u8>,
    /// Signs and verifies the mechanism list.
    pub context: Box<dyn Context>,
}

impl<U> std::fmt::Debug for Proof<U> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proof({:?})", self.principal)
    }
}

/// The reason why a ticket was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The library refused it.
    Kerberos(Cause),
    /// It is for a service other than `cifs` and `host`.
    Service,
    /// Its principal has no local user.
    NoUser,
    /// It has no PAC, or one without usable data.
    Pac,
    /// Its principal is the local superuser, which no configuration allows.
    Superuser,
    /// Its principal would have the uid of guests and squashed NFS users.
    NoIdentity,
    /// This host's name service failed to look up the user.
    NameService,
    /// The service of this host that knows the domain does not answer.
    Domain,
    /// That service has no number for the user or its primary group.
    NoNumber,
}

/// A refused ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub why: Why,
    /// The principal, if known; otherwise empty.
    pub principal: String,
    /// Details: the library's message or the service name.
    pub detail: String,
}

impl Refused {
    /// Builds the refusal of a ticket whose principal is unknown.
    pub fn unread(why: Why, detail: impl Into<String>) -> Self {
        Self { why, principal: String::new(), detail: detail.into() }
    }
}

impl Why {
    /// Returns the reason for the log.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Kerberos(cause) => cause.reason(),
            Self::Service => "a ticket for another service",
            Self::NoUser => "no user here is this principal",
            Self::Pac => "the ticket does not say who the user is in its domain",
            Self::Superuser => "this principal would be the superuser",
            Self::NoIdentity => "this principal would have the uid of guests",
            Self::Domain => "the service that knows the domain does not answer",
            Self::NoNumber => "the user, or its primary group, has no number on this host",
            Self::NameService => "this host's name service does not say who the user is",
        }
    }
}
