//! Who may log on: asked of whoever keeps the accounts.

pub mod accounts;
pub mod database;
pub mod logon_throttle;

use std::sync::Arc;

use vfs::accounts::{Directory, Host};
use vfs::{Cred, Domain, DomainIdentity};
use zeroize::Zeroizing;

use crate::auth::{NtHash, Secrets};

/// An account.
#[derive(Clone)]
pub struct Account {
    /// Its name, as it was written when it was made.
    pub name: String,
    /// MD4 of the password in UTF-16 (MS-NLMP section 3.3.1 `NTOWFv1`).
    pub nt_hash: Zeroizing<[u8; 16]>,
    /// Who it is to the file system.
    pub cred: Cred,
    /// Last part of its SID.
    pub rid: u32,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Account({}, {:?})", self.name, self.cred)
    }
}

/// A user who came by a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticketed {
    /// Its name.
    pub name: String,
    /// Who it is to the file system.
    pub cred: Cred,
    /// Last part of its SID.
    pub rid: u32,
    /// It is an account, and not only a user of this host.
    pub named: bool,
}

/// The accounts.
pub trait Users: Send + Sync + 'static {
    /// The account of this name, whatever the case of its letters.
    fn find(&self, name: &str) -> Option<Account>;

    /// Who this user of the host is, or the account of this name, for a client that has proved by a ticket to be it. May wait.
    ///
    /// # Errors
    /// The name service does not say.
    fn by_ticket(&self, name: &str) -> Result<Option<Ticketed>, String> {
        Ok(self.find(name).map(|a| Ticketed {
            name: a.name,
            cred: a.cred,
            rid: a.rid,
            named: true,
        }))
    }

    /// Keeps who a user is who came by a ticket and is neither an account nor a user of the host.
    fn remember(&self, _user: &Ticketed) {}

    /// The domain whose tickets are taken.
    fn domain(&self) -> Option<Arc<Domain>> {
        None
    }

    /// Keeps how the domain is known, which a ticket has told for the first time. May wait.
    fn keep_domain(&self, _identity: &DomainIdentity) {}

    /// Who the account of this name is now, or was at the last logon by a ticket, if it is no account. Does not wait.
    fn cred(&self, name: &str) -> Option<Cred> {
        self.find(name).map(|a| a.cred)
    }

    /// An account that has this uid.
    fn by_uid(&self, _uid: u32) -> Option<Account> {
        None
    }

    /// Calls `each` with the name and the credentials of every account that may log on, in no order.
    fn each(&self, _each: &mut dyn FnMut(&str, &Cred)) {}

    /// Who guests and anonymous users are to the file system.
    fn guest(&self) -> Cred;

    /// Whose names are known beside those of accounts.
    fn others(&self) -> &dyn Directory {
        &Host
    }
}

impl Secrets for dyn Users {
    fn nt_hash(&self, _: &str, user: &str) -> Option<NtHash> {
        self.find(user).map(|a| NtHash(a.nt_hash))
    }
}

/// Last part of the SID of the account that has this uid: the same for every account of it, whenever it was made, so that files
/// keep their owner. Even numbers are users, odd ones would be groups; those below 1000 are Windows' own.
pub fn rid_of_uid(uid: u32) -> u32 {
    uid.wrapping_mul(2).wrapping_add(1000)
}

/// The uid of such a number; `None` for those that are no user of ours.
pub fn uid_of_rid(rid: u32) -> Option<u32> {
    rid.checked_sub(1000).filter(|n| n % 2 == 0).map(|n| n / 2)
}

/// Returns the last part of the SID of a group of the host.
pub fn rid_of_gid(gid: u32) -> u32 {
    gid.wrapping_mul(2).wrapping_add(1001)
}

/// Returns the gid of such a number; `None` for other RIDs.
pub fn gid_of_rid(rid: u32) -> Option<u32> {
    rid.checked_sub(1001).filter(|n| n % 2 == 0).map(|n| n / 2)
}
