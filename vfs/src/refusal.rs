//! Why a caller may not use a share.

use crate::token::Unsure;

/// Why a caller may not use a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No entry of `clients` contains its address.
    Address,
    /// The server does not know whether a name in `clients` is the client's; that entry might forbid access.
    NameUnknown,
    /// `access` names it neither in `read` nor in `write`.
    NotNamed,
    /// `access` names it in `deny`.
    Denied,
    /// `deny` of `access` names an identity of the domain, which the caller may have.
    Unsure(Unsure),
    /// A name in `access` or `force` cannot be resolved: it might be of the caller.
    Unresolved,
    /// `sec` does not contain the flavor of its call.
    Flavor,
    /// `tls` requires TLS, which its connection does not use.
    Tls,
    /// `tls` requires a certificate, which it has not presented.
    Certificate,
    /// `refer` names the servers that have the share: it cannot be used here.
    Elsewhere,
}

impl Refusal {
    /// The names of all variants.
    pub const NAMES: &[&str] = &[
        "share-clients",
        "share-clients-name",
        "share-access",
        "share-access-deny",
        "share-access-deny-unsure",
        "share-access-unresolved",
        "share-sec",
        "share-tls",
        "share-tls-certificate",
        "share-elsewhere",
    ];

    /// Returns true if the client's address is refused, for any user.
    pub fn is_of_client(self) -> bool {
        matches!(self, Self::Address | Self::NameUnknown)
    }

    /// Returns a stable name, for logs and counters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Address => "share-clients",
            Self::NameUnknown => "share-clients-name",
            Self::NotNamed => "share-access",
            Self::Denied => "share-access-deny",
            Self::Unsure(_) => "share-access-deny-unsure",
            Self::Unresolved => "share-access-unresolved",
            Self::Flavor => "share-sec",
            Self::Tls => "share-tls",
            Self::Certificate => "share-tls-certificate",
            Self::Elsewhere => "share-elsewhere",
        }
    }

    /// Returns what to change in the configuration to admit the caller.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Address => {
                "add its address, or a name that leads to it, to the list `clients` of the share; where it has none, the list \
                 replaces the attached networks"
            }
            Self::NameUnknown => {
                "see why this host cannot look up the names in `clients` of the share (`getent hosts ADDRESS`), or write addresses"
            }
            Self::NotNamed => {
                "name the user, or a group that it is in, in `access` of the share; where it has joined a group just now: \
                 `headgate reload`, and let it connect again"
            }
            Self::Flavor => {
                "mount with a `sec` of the share (`sec=krb5` and so on), or add that of the client to it"
            }
            Self::Denied => "take the user, or its group, out of `deny` in `access` of the share",
            Self::Unsure(Unsure::Member) => {
                "`deny` of the share names a user or group of the domain, and the caller has the number of a user of the domain, \
                 whose groups only a logon shows: let it come with a ticket (`sec=krb5`), or with the password of the domain"
            }
            Self::Unsure(Unsure::Unanswered) => {
                "`deny` of the share names a user or group of the domain, and the service of the domain has not said whether the \
                 numbers of the caller are of one: see why it does not answer (`headgate check`); SSSD never says it of calls with \
                 AUTH_SYS, nor any service of calls with 16 groups: let these come with a ticket (`sec=krb5`)"
            }
            Self::Unsure(Unsure::NoService) => {
                "`deny` of the share names a user or group of the domain, and without a ticket the caller may be any of its users: \
                 let it come with a ticket, or say `domain: {by: winbind}`, which tells numbers of the domain from others"
            }
            Self::Unresolved => {
                "see in the log of the gateway which user, group or link of the share is not available; then the share is served"
            }
            Self::Tls => "mount by TCP with `xprtsec=tls`: RDMA has no TLS",
            Self::Certificate => {
                "mount by TCP with `xprtsec=mtls` and a certificate that `tls.ca` has signed"
            }
            Self::Elsewhere => {
                "mount it from a server that `refer` or `links` of the share names, or by NFS 4, whose clients go there by \
                 themselves"
            }
        }
    }

    /// Returns true if the call's protection is refused, for any caller.
    pub fn is_of_protection(self) -> bool {
        matches!(self, Self::Flavor | Self::Tls | Self::Certificate)
    }
}
