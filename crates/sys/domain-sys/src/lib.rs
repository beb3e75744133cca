//! Bindings of the client libraries of services that know a domain, loaded at their first use: winbind's, Samba's
//! `libwbclient.so.0`, and SSSD's, `libsss_nss_idmap.so.0`.
//!
//! *Operation.* Start with [`Source`], which names the service of this host, a member of a domain. Its [`Context`] is a connection.
//! It tells the machine and its domain, maps identifiers to numbers and names and back, and lets winbind ask a domain controller
//! about a password ([`Context::authenticate`]). A call of winbind's library may block for minutes while winbindd or its controller
//! is silent, and one of SSSD's for some seconds, so callers use bounded threads. The libraries reconnect after a restart of the
//! service. The program is not linked with them and starts without them.
//!
//! *Memory.* Answers of the libraries are copied and freed at once. Keys are wiped when dropped.
//!
//! *Errors.* [`Error`] if the service does not answer. Answers are empty for names and identifiers that do not exist. SSSD does
//! not say whether a controller has answered ([`Error::NotTold`]).
//!
//! *Threads.* A context may move between threads but has one user at a time, which `&mut self` and the missing `Sync` ensure.

#![allow(missing_docs, reason = "comments that only repeat a name are left out")]
#![allow(unsafe_code)]

mod error;
mod sssd;
mod text;
mod types;
mod winbind;

use std::time::Instant;

use wire::Sid;

pub use error::Error;
pub use sssd::Member;
pub use types::{Details, DomainNames, Kind, Name, Number};
pub use winbind::{LoggedOn, Refused, Response};

/// The service that knows a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    #[default]
    Winbind,
    /// SSSD, which does not tell of which domain this machine is a member.
    Sssd(Member),
}

impl Source {
    /// Creates a connection, which connects at its first question.
    ///
    /// # Errors
    /// [`Error::NoLibrary`].
    pub fn connect(&self) -> Result<Context, Error> {
        Ok(Context(match self {
            Self::Winbind => Of::Winbind(winbind::Context::new()?),
            Self::Sssd(member) => Of::Sssd(sssd::Context::new(member)?),
        }))
    }

    /// Returns whether the service asks controllers about passwords.
    pub fn checks_passwords(&self) -> bool {
        matches!(self, Self::Winbind)
    }

    /// Returns whether the service says that a controller answers ([`Context::reach_controller`]).
    pub fn tells_of_controllers(&self) -> bool {
        matches!(self, Self::Winbind)
    }

    /// Returns the name by which the configuration calls the service.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Winbind => "winbind",
            Self::Sssd(_) => "sssd",
        }
    }
}

/// A connection to a service.
#[derive(Debug)]
pub struct Context(Of);

#[derive(Debug)]
enum Of {
    Winbind(winbind::Context),
    Sssd(sssd::Context),
}

impl Context {
    /// Asks for the names of the machine, and for names and identifier of its domain, if the service knows them. May block.
    pub fn own(&mut self) -> Result<(Details, Option<DomainNames>), Error> {
        match &mut self.0 {
            Of::Winbind(context) => {
                let details = context.details()?;
                let domain = context.domain(&details.domain)?;
                Ok((details, domain))
            }
            Of::Sssd(context) => context.own(),
        }
    }

    /// Asks for a domain that the machine trusts, by its NetBIOS or DNS name. May block.
    pub fn domain(&mut self, name: &str) -> Result<Option<DomainNames>, Error> {
        match &mut self.0 {
            Of::Winbind(context) => context.domain(name),
            Of::Sssd(context) => context.domain(name),
        }
    }

    /// Asks for all domains that the service knows: the machine's accounts, its domain, trusted domains, if the service has a list
    /// of a known form. Asks no controller, but may block.
    pub fn domains(&mut self) -> Result<Option<Vec<DomainNames>>, Error> {
        match &mut self.0 {
            Of::Winbind(context) => context.domains(),
            Of::Sssd(_) => Ok(None),
        }
    }

    /// Checks that a controller of a domain answers. The default is the machine's domain. While its controllers are silent,
    /// services say that names do not exist. May block.
    ///
    /// # Errors
    /// [`Error::NoController`]; [`Error::NotTold`] by a service that never says so.
    pub fn reach_controller(&mut self, domain: Option<&str>) -> Result<(), Error> {
        match &mut self.0 {
            Of::Winbind(context) => context.reach_controller(domain),
            Of::Sssd(_) => Err(Error::NotTold),
        }
    }

    /// Lets the service log on to a controller with the account of the machine. May block.
    ///
    /// # Errors
    /// [`Error::NoTrust`]; [`Error::NoController`]; [`Error::NotTold`] by SSSD. winbindd does this for root only
    /// ([`Error::NotAvailable`]).
    pub fn check_trust(&mut self) -> Result<(), Error> {
        match &mut self.0 {
            Of::Winbind(context) => context.check_trust(),
            Of::Sssd(_) => Err(Error::NotTold),
        }
    }

    /// Asks for the numbers of these identifiers, which the service may assign now; the results have the same order. Hands over
    /// each answer of a service that takes one question at a time. The last question begins before this time. May block.
    ///
    /// # Errors
    /// [`Error::Unfinished`] after the time.
    pub fn numbers(
        &mut self,
        sids: &[Sid],
        until: Instant,
        tell: impl FnMut(&Sid, Option<Number>),
    ) -> Result<Vec<Option<Number>>, Error> {
        match &mut self.0 {
            Of::Winbind(context) => context.numbers(sids),
            Of::Sssd(context) => context.numbers(sids, until, tell),
        }
    }

    /// Asks for the name of an identifier, if it has one. May block.
    pub fn name_of(&mut self, sid: &Sid) -> Result<Option<Name>, Error> {
        match &mut self.0 {
            Of::Winbind(context) => context.name_of(sid),
            Of::Sssd(context) => context.name_of(sid),
        }
    }

    /// Asks for the identifier of a name, if it exists. May block.
    pub fn sid_of(&mut self, domain: &str, name: &str) -> Result<Option<(Sid, Kind)>, Error> {
        match &mut self.0 {
            Of::Winbind(context) => context.sid_of(domain, name),
            Of::Sssd(context) => context.sid_of(domain, name),
        }
    }

    /// Asks for the names of these identifiers until this time, and hands over each answer as it comes. Only an identifier
    /// that has a name has one there. May block for one question longer.
    ///
    /// # Errors
    /// [`Error::Unfinished`] after the time; other errors need not stop the questions about other domains.
    pub fn names_of(
        &mut self,
        sids: &[Sid],
        until: Instant,
        tell: impl FnMut(&Sid, Option<Name>),
    ) -> Result<(), Error> {
        match &mut self.0 {
            Of::Winbind(context) => context.names_of(sids, until, tell),
            Of::Sssd(context) => context.names_of(sids, until, tell),
        }
    }

    /// Asks for the identifiers of these numbers; the results have the same order. May block for one question longer than until
    /// this time.
    ///
    /// # Errors
    /// [`Error::Unfinished`] after the time.
    pub fn sids_of(
        &mut self,
        numbers: &[Number],
        until: Instant,
    ) -> Result<Vec<Option<Sid>>, Error> {
        match &mut self.0 {
            Of::Winbind(context) => context.sids_of(numbers),
            Of::Sssd(context) => context.sids_of(numbers, until),
        }
    }

    /// Asks for the identifiers of a user, also before its first logon: of the user, of its primary group, and of its other groups
    /// in domains. Returns no list if the service does not find the user, or if its controller is silent. May block.
    ///
    /// # Errors
    /// [`Error::Unfinished`] for an answer about another user, or without a primary group.
    pub fn sids_of_user(&mut self, user: &Sid) -> Result<Option<Vec<Sid>>, Error> {
        match &mut self.0 {
            Of::Winbind(context) => context.sids_of_user(user),
            Of::Sssd(context) => context.sids_of_user(user),
        }
    }

    /// Asks a controller of the user's domain about a response. May block.
    ///
    /// # Errors
    /// [`Error`] if winbindd did not answer: it answers only processes of root or of the group `winbindd_priv`.
    /// [`Error::NoPasswords`] by SSSD.
    pub fn authenticate(
        &mut self,
        response: &Response<'_>,
    ) -> Result<Result<LoggedOn, Refused>, Error> {
        match &mut self.0 {
            Of::Winbind(context) => context.authenticate(response),
            Of::Sssd(_) => Err(Error::NoPasswords),
        }
    }
}
