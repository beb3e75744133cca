//! What Kerberos proves of a client, as SPNEGO and SESSION_SETUP need it. Nothing here waits; the library of Kerberos, which may,
//! is asked by the caller.

use gss_krb5::Cause;

use super::SessionKey;

/// A context that both ends share, for what is left to do with it.
pub trait Context: Send {
    /// Signs a message as the server; `None` where the library refuses.
    fn sign(&mut self, message: &[u8]) -> Option<Vec<u8>>;
    /// Whether this is the client's signature of the message.
    fn verify(&mut self, message: &[u8], mic: &[u8]) -> bool;
    /// When its ticket runs out, in seconds since 1970; `None` where the library refuses. It is the last that is asked of it.
    fn ends(self: Box<Self>) -> Option<u64>;
}

/// A ticket that lets its client in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket<U> {
    /// Of which principal, as `kinit` writes it: `alice@LAB.TEST`.
    pub principal: String,
    /// The user that it is here.
    pub user: U,
    /// When it runs out, in seconds since 1970.
    pub ends: u64,
}

/// A client that has proved who it is.
pub struct Proof<U> {
    /// Its principal, as `kinit` writes it: `alice@LAB.TEST`.
    pub principal: String,
    /// For which service of ours its ticket was: `cifs/server.lab.test@LAB.TEST`.
    pub service: String,
    /// The user that it is here.
    pub user: U,
    /// The key that both ends share, of 16 or 32 bytes.
    pub key: SessionKey,
    /// Goes to the client, an AP-REP; empty where it did not ask for one.
    pub token: Vec<u8>,
    /// Signs and verifies the list of mechanisms.
    pub context: Box<dyn Context>,
}

impl<U> std::fmt::Debug for Proof<U> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proof({:?})", self.principal)
    }
}

/// Why a ticket does not let its client in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The library refuses it.
    Kerberos(Cause),
    /// For another service than `cifs` and `host`.
    Service,
    /// Its principal is nobody here.
    NoUser,
    /// It has no PAC, or one that says nothing of use.
    Pac,
    /// Its principal is the superuser here, and no configuration says that it may be.
    Superuser,
    /// Its principal would have the uid of guests and of squashed users of NFS.
    NoIdentity,
    /// This host's name service does not say who it is.
    NameService,
}

/// A ticket that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub why: Why,
    /// Whom it is of, where that is known; else empty.
    pub principal: String,
    /// More about it: the words of the library, the name of the service.
    pub detail: String,
}

impl Refused {
    /// Of a ticket that nobody could read.
    pub fn unread(why: Why, detail: impl Into<String>) -> Self {
        Self { why, principal: String::new(), detail: detail.into() }
    }
}

impl Why {
    /// For the log.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Kerberos(cause) => cause.reason(),
            Self::Service => "a ticket for another service",
            Self::NoUser => "no user here is this principal",
            Self::Pac => "the ticket does not say who the user is in its domain",
            Self::Superuser => "this principal would be the superuser",
            Self::NoIdentity => "this principal would have the uid of guests",
            Self::NameService => "this host's name service does not say who the user is",
        }
    }
}
