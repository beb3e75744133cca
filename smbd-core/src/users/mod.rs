//! The interface to the accounts of users.

pub mod accounts;
pub mod database;
pub mod logon_throttle;

use std::sync::Arc;

use vfs::accounts::{Directory, Host};
use vfs::{Cred, Domain, DomainIdentity, Token};
use zeroize::Zeroizing;

use crate::auth::{Look, LookedUp, NtHash, Secrets};
use crate::domain_engine::Engine;

#[derive(Clone)]
pub struct Account {
    /// The name in its original spelling.
    pub name: String,
    /// MD4 of the password in UTF-16 (MS-NLMP section 3.3.1 `NTOWFv1`).
    pub nt_hash: Zeroizing<[u8; 16]>,
    /// The user's identity for the file system, with the token of a logon with the password.
    pub cred: Cred,
    /// Last part of its SID.
    pub rid: u32,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Account({}, {:?})", self.name, self.cred)
    }
}

/// A user that logged on with a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticketed {
    pub name: String,
    /// The user's identity for the file system.
    pub cred: Cred,
    /// Last part of its SID.
    pub rid: u32,
    /// True if it is an account rather than only a user of this host.
    pub named: bool,
}

/// The reason why a password stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unchanged {
    /// The new password has fewer characters than [`Users::password_length`].
    Short,
    /// The new password is easily guessed; continues "the password".
    Weak(String),
    /// Only an administrator can change it: where it is kept.
    Elsewhere(String),
    /// It was changed meanwhile.
    Replaced,
    /// It cannot be stored.
    Failed(String),
}

pub trait Users: Send + Sync + 'static {
    /// Returns the account of this name, ignoring case.
    fn find(&self, name: &str) -> Option<Account>;

    /// Returns the account of this name, as [`Users::find`] does, unless it is one of a directory.
    fn find_own(&self, name: &str) -> Option<Account> {
        self.find(name)
    }

    /// Returns the account of this name, as [`Users::find`] does, for the password of a logon: an earlier answer of a directory may
    /// be too old for one, while sessions go on.
    fn find_for_logon(&self, name: &str) -> Option<Account> {
        self.find(name)
    }

    /// Returns the user of the host, or the account, of this name, for a client that has proved this identity with a ticket. May
    /// wait.
    ///
    /// # Errors
    /// The name service does not answer.
    fn by_ticket(&self, name: &str) -> Result<Option<Ticketed>, String> {
        Ok(self.find(name).map(|a| Ticketed {
            name: a.name,
            cred: Cred { token: Token::NONE, ..a.cred },
            rid: a.rid,
            named: true,
        }))
    }

    /// Returns whether an account has the groups that the host gives it, which may have changed since they were looked up.
    fn has_groups_of_host(&self, _name: &str) -> bool {
        false
    }

    /// Looks up the groups of an account again, before a logon to it. May wait.
    fn look_again(&self, _name: &str) {}

    /// Returns whether accounts may be in a directory that is asked at logons.
    fn has_directory(&self) -> bool {
        false
    }

    /// Returns whether the directory must be asked about this name for this reason. Does not wait.
    fn must_look_up(&self, _name: &str, _why: Look) -> bool {
        false
    }

    /// Asks the directory about this name, for [`Users::find`]. May wait.
    fn look_up(&self, _name: &str) -> LookedUp {
        LookedUp::Answered
    }

    /// Stores the identity of a user that logged on with a ticket and is neither an account nor a user of the host.
    fn remember(&self, _user: &Ticketed) {}

    /// Returns the domain whose tickets are accepted.
    fn domain(&self) -> Option<Arc<Domain>> {
        None
    }

    /// Returns the service that knows the users of the domain, if the configuration names one.
    fn engine(&self) -> Option<Arc<dyn Engine>> {
        None
    }

    /// Stores the identity of the domain, learned from its first ticket. May wait.
    fn keep_domain(&self, _identity: &DomainIdentity) {}

    /// Stores the users of the domain whose tickets were accepted, soon and outside of this call.
    fn keep_identities(&self) {}

    /// Returns the present identity of the account of this name; for other users the identity at the last logon with a ticket. Does
    /// not wait.
    fn cred(&self, name: &str) -> Option<Cred> {
        self.find(name).map(|a| a.cred)
    }

    /// Returns the fewest characters of a new password.
    fn password_length(&self) -> u16 {
        0
    }

    /// Replaces the password of an account, unless its hash is no longer `old`. The new password holds for all logons that begin
    /// after the call, and after a restart. May wait.
    ///
    /// # Errors
    /// The password stays as it is.
    fn change_password(&self, _name: &str, _old: &NtHash, _new: &str) -> Result<(), Unchanged> {
        Err(Unchanged::Elsewhere("this server stores no passwords".to_owned()))
    }

    /// Returns an account with this uid.
    fn by_uid(&self, _uid: u32) -> Option<Account> {
        None
    }

    /// Calls `each` with the name and the credentials of every account that may log on, in any order.
    fn each(&self, _each: &mut dyn FnMut(&str, &Cred)) {}

    /// Returns the identity of guests and anonymous users for the file system.
    fn guest(&self) -> Cred;

    /// Returns the directory of names other than accounts.
    fn others(&self) -> &dyn Directory {
        &Host
    }
}

impl Secrets for dyn Users {
    fn nt_hash(&self, _: &str, user: &str) -> Option<NtHash> {
        self.find_for_logon(user).map(|a| NtHash(a.nt_hash))
    }
}

/// Returns the RID of accounts with this uid. It depends only on the uid, so that files keep their owner when an account is made
/// again. Even numbers are users, odd ones would be groups; those below 1000 are reserved by Windows.
pub fn rid_of_uid(uid: u32) -> u32 {
    uid.wrapping_mul(2).wrapping_add(1000)
}

/// Returns the uid of a user's RID; `None` for other RIDs.
pub fn uid_of_rid(rid: u32) -> Option<u32> {
    rid.checked_sub(1000).filter(|n| n % 2 == 0).map(|n| n / 2)
}

/// Returns the RID of a group of the host.
pub fn rid_of_gid(gid: u32) -> u32 {
    gid.wrapping_mul(2).wrapping_add(1001)
}

/// Returns the gid of a group's RID; `None` for other RIDs.
pub fn gid_of_rid(rid: u32) -> Option<u32> {
    rid.checked_sub(1001).filter(|n| n % 2 == 0).map(|n| n / 2)
}
