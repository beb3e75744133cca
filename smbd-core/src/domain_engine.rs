//! The interface to the service of this host that knows the users of its domain: winbind or SSSD.

use zeroize::Zeroizing;

use crate::auth::Identity;
use crate::auth::relay::{Question, Refused};
use crate::dtyp::Sid;

/// The numbers of a domain user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    pub uid: u32,
    /// Of the primary group.
    pub gid: u32,
    /// Of those other groups that have one.
    pub groups: Vec<u32>,
}

/// A user whom a controller has confirmed.
#[derive(Clone)]
pub struct Confirmed {
    /// Name and NetBIOS domain in the directory's spelling.
    pub name: String,
    pub domain: String,
    pub user: Sid,
    pub primary_group: Sid,
    pub groups: Vec<Sid>,
    /// `SessionBaseKey` (MS-NLMP section 3.3.2).
    pub key: Zeroizing<[u8; 16]>,
}

/// What a controller answers.
pub enum Verdict {
    /// Neither the domain of this machine nor a trusted one has the name.
    NoDomain,
    Confirmed(Box<Confirmed>),
    Refused(Refused),
}

/// The kind of a named identity (`SID_NAME_USE`, MS-LSAT section 2.2.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedKind {
    User,
    Group,
    Domain,
    /// A local group of a domain.
    Alias,
    WellKnown,
    Computer,
}

/// An identity with its name, in the directory's spelling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub sid: Sid,
    pub kind: NamedKind,
    /// NetBIOS name of its domain.
    pub domain: String,
    pub name: String,
}

/// The answer about one name or SID; `Ok(None)` if it does not exist.
pub type Lookup = Result<Option<Named>, Refused>;

/// The service of this host that knows the domain.
pub trait Engine: Send + Sync + 'static {
    /// Returns the names of this machine in its domain, which a controller expects in a client's response; `None` before they are
    /// known. Does not wait.
    fn machine(&self) -> Option<Identity>;

    /// Returns whether this is the name of a domain: that of this machine or a trusted one. `None` if the service must be asked.
    /// Does not wait.
    fn knows_domain(&self, name: &str) -> Option<bool>;

    /// As [`Self::knows_domain`], but may wait.
    ///
    /// # Errors
    /// The service has not said which domains there are.
    fn is_domain(&self, name: &str) -> Result<bool, Refused>;

    /// Asks about a password. May wait.
    fn ask(&self, question: &Question) -> Verdict;

    /// Returns the numbers of a user, of its primary group and of its other groups. May wait.
    ///
    /// # Errors
    /// The service does not answer, or has no number for the user or its primary group.
    fn numbers(&self, user: &Sid, primary: &Sid, groups: &[Sid]) -> Result<Numbers, Refused>;

    /// Returns the names of these SIDs, in their order. May wait for some seconds over all.
    fn names(&self, sids: &[Sid]) -> Vec<Lookup>;

    /// Returns the identities of these names, each with the NetBIOS or DNS name of its domain, in their order. An empty domain
    /// means that of this machine, or the one in `name@domain`. May wait for some seconds over all.
    fn identities(&self, names: &[(&str, &str)]) -> Vec<Lookup>;

    /// Returns whether the SIDs of these users and groups are known, or are known not to exist. Does not wait.
    fn knows_owners(&self, users: &[u32], groups: &[u32]) -> bool;

    /// Asks for the SIDs of these users and groups, and tells the domain of this server. May wait for some seconds over all.
    fn learn_owners(&self, users: &[u32], groups: &[u32]);

    /// Asks for the numbers of a user and of a group, and tells the domain of this server. May wait for some seconds over all.
    /// Returns whether the service has answered about both.
    fn learn_numbers(&self, user: Option<&Sid>, group: Option<&Sid>) -> bool;
}
