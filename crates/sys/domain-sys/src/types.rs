//! Answers of a service about its domain.

use std::ffi::c_int;

use wire::Sid;

/// The machine's names in its domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Details {
    /// NetBIOS name of the machine, whose account is the name and `$`.
    pub machine: String,
    /// NetBIOS name of the domain; empty while it is unknown.
    pub domain: String,
    /// DNS name of the domain; empty without Active Directory.
    pub dns_domain: String,
    /// Version of the service; empty if it is unknown.
    pub version: String,
}

/// Names and identifier of a domain that the service knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainNames {
    /// NetBIOS name.
    pub name: String,
    /// DNS name; may be empty.
    pub dns: String,
    pub sid: Sid,
}

/// The number of an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    Uid(u32),
    Gid(u32),
    /// A uid and a gid with the same value.
    Both(u32),
}

/// The kind of a named identifier (`SID_NAME_USE`, MS-SAMR section 2.2.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    User,
    /// A group of a domain.
    Group,
    Domain,
    /// A local group of a domain or of a machine.
    Alias,
    WellKnown,
    Computer,
    /// Deleted, invalid or unknown.
    Other,
}

impl Kind {
    pub(crate) fn of(kind: c_int) -> Self {
        match kind {
            1 => Self::User,
            2 => Self::Group,
            3 => Self::Domain,
            4 => Self::Alias,
            5 => Self::WellKnown,
            9 => Self::Computer,
            _ => Self::Other,
        }
    }
}

/// The name of an identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// NetBIOS name of its domain.
    pub domain: String,
    pub name: String,
    pub kind: Kind,
}
