//! Shares: a folder under a name, and who uses it how.
//!
//! *Operation.* Every protocol asks [`Share::enter_nfs`] or [`Share::enter_smb`] as whom a caller acts and which share it sees. Who
//! may only read sees its [`Share::reader`], so that each place where a read-only share refuses a change refuses that caller's too.
//!
//! *Errors.* [`Refusal`]: the rule that keeps the caller away.

use std::sync::{Arc, LazyLock, OnceLock};

use state::Enforce;

use crate::backend::Backend;
use crate::cidr::Cidr;
use crate::share_access::{Right, ShareAccess};
use crate::types::Cred;

/// Which users a share maps to the anonymous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squash {
    /// Nobody: root is root.
    None,
    /// The superuser and its group.
    Root,
    /// Everybody.
    All,
}

/// Shared, so that to squash a caller takes no memory.
static NO_GROUPS: LazyLock<Arc<[u32]>> = LazyLock::new(|| Arc::new([]));

/// The user and group that squashed callers become.
pub const ANONYMOUS: u32 = 65534;

/// By which protocols a share is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocols {
    /// NFS, of any version.
    Nfs,
    /// SMB.
    Smb,
    /// NFS and SMB.
    #[default]
    Both,
}

impl Protocols {
    /// NFS is among them.
    pub fn nfs(self) -> bool {
        self != Self::Smb
    }

    /// SMB is among them.
    pub fn smb(self) -> bool {
        self != Self::Nfs
    }
}

/// A folder that is served under a name.
pub struct Share {
    /// Its name: clients see `/NAME`.
    pub name: String,
    /// Number in file handles; derived from the name, so that it survives restarts and reordering.
    pub id: u32,
    /// Where its files live.
    pub backend: Arc<dyn Backend>,
    /// To whom it exists at all.
    pub protocols: Protocols,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Who is mapped to the anonymous user.
    pub squash: Squash,
    /// Whom locks of NFS clients bind.
    pub nfs_locks: Enforce,
    /// Who may come; `None`: directly attached networks and this host, which the front end judges.
    pub clients: Option<Vec<Cidr>>,
    /// What else is said of those who come.
    pub rules: Rules,
}

/// What a share says of those who use it. By default nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Which users may do what; `None`: all of them everything.
    pub access: Option<ShareAccess>,
    /// The same share for those who may only read.
    pub reader: Reader,
}

/// A share of which nothing may be changed, made when it is first wanted. It says nothing of a share by itself: all are equal, and
/// a copy has none yet.
#[derive(Default)]
pub struct Reader(OnceLock<Arc<Share>>);

impl Clone for Reader {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reader")
    }
}

impl PartialEq for Reader {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Reader {}

/// A share as one caller uses it.
pub struct Entered {
    /// The share, or its [`Share::reader`].
    pub share: Arc<Share>,
    /// As whom the caller acts.
    pub cred: Cred,
}

/// Why a caller may not use a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No range of `clients` has its address.
    Address,
    /// `access` names it neither in `read` nor in `write`.
    NotNamed,
    /// `access` names it in `deny`.
    Denied,
}

impl Refusal {
    /// The names of all of them.
    pub const NAMES: &[&str] = &["share-clients", "share-access", "share-access-deny"];

    /// Stable name, for logs and counters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Address => "share-clients",
            Self::NotNamed => "share-access",
            Self::Denied => "share-access-deny",
        }
    }

    /// What to change in the configuration where the caller is to be let in.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Address => "add its address to `clients` of the share",
            Self::NotNamed => "name the user, or a group of it, in `access` of the share",
            Self::Denied => "take the user, or its group, out of `deny` in `access` of the share",
        }
    }
}

impl Share {
    /// The number of a share of this name (FNV-1a, 32 bits). The configuration refuses two names with one number.
    pub fn id_of(name: &str) -> u32 {
        name.bytes().fold(0x811c_9dc5, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
    }

    /// Applies the squash rule to a caller.
    pub fn squash(&self, cred: Cred) -> Cred {
        match self.squash {
            Squash::None => cred,
            Squash::All => anonymous(),
            Squash::Root if cred.uid == 0 => anonymous(),
            Squash::Root if cred.gid == 0 || cred.groups.contains(&0) => {
                let map = |g: u32| if g == 0 { ANONYMOUS } else { g };
                Cred {
                    uid: cred.uid,
                    gid: map(cred.gid),
                    groups: cred.groups.iter().copied().map(map).collect(),
                }
            }
            Squash::Root => cred,
        }
    }

    /// The share as a caller of NFS uses it, whose address has been judged: `access` asks for whom the caller is after it was
    /// squashed, since a share that squashes believes no other claim.
    pub fn enter_nfs(self: &Arc<Self>, cred: &Cred) -> Result<Entered, Refusal> {
        let cred = self.squash(cred.clone());
        Ok(Entered { share: self.seen_by(&cred)?, cred })
    }

    /// The share as a user of SMB uses it, whose address has been judged: `access` asks for who has logged on.
    pub fn enter_smb(self: &Arc<Self>, cred: &Cred) -> Result<Entered, Refusal> {
        Ok(Entered { share: self.seen_by(cred)?, cred: self.squash(cred.clone()) })
    }

    /// What a caller sees who may not use the share and still mounts it: attributes of its root, as the anonymous user.
    pub fn from_outside(self: &Arc<Self>) -> Entered {
        Entered { share: self.reader(), cred: anonymous() }
    }

    fn seen_by(self: &Arc<Self>, cred: &Cred) -> Result<Arc<Self>, Refusal> {
        let right =
            self.rules.access.as_ref().map_or(Ok(Right::Write), |access| access.right(cred))?;
        Ok(if right == Right::Read { self.reader() } else { self.clone() })
    }

    /// This share for those who may only read.
    pub fn reader(self: &Arc<Self>) -> Arc<Self> {
        if self.read_only {
            return self.clone();
        }
        let make = || {
            Arc::new(Self {
                name: self.name.clone(),
                id: self.id,
                backend: self.backend.clone(),
                protocols: self.protocols,
                read_only: true,
                squash: self.squash,
                nfs_locks: self.nfs_locks,
                clients: self.clients.clone(),
                rules: self.rules.clone(),
            })
        };
        self.rules.reader.0.get_or_init(make).clone()
    }
}

fn anonymous() -> Cred {
    Cred { uid: ANONYMOUS, gid: ANONYMOUS, groups: NO_GROUPS.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::MemBackend;
    use crate::share_access::People;

    fn cred(uid: u32, groups: &[u32]) -> Cred {
        Cred { uid, gid: uid, groups: groups.into() }
    }

    fn share(squash: Squash, access: ShareAccess) -> Arc<Share> {
        Arc::new(Share {
            name: "team".into(),
            id: Share::id_of("team"),
            backend: MemBackend::new(1 << 20).unwrap(),
            protocols: Protocols::Both,
            read_only: false,
            squash,
            nfs_locks: Enforce::Smb,
            clients: None,
            rules: Rules { access: Some(access), ..Rules::default() },
        })
    }

    fn access(read: &[u32], write: &[u32]) -> ShareAccess {
        let people = |users: &[u32]| People::new(users.to_vec(), Vec::new());
        ShareAccess { read: people(read), write: people(write), deny: People::default() }
    }

    #[test]
    fn a_reader_sees_the_same_share_read_only() {
        let team = share(Squash::Root, access(&[5], &[6]));
        let reader = team.enter_nfs(&cred(5, &[])).unwrap();
        assert!(reader.share.read_only && reader.cred.uid == 5);
        assert!(Arc::ptr_eq(&reader.share.backend, &team.backend));
        let again = team.enter_smb(&cred(5, &[])).unwrap();
        assert!(Arc::ptr_eq(&again.share, &reader.share), "it is made once");
        assert!(Arc::ptr_eq(&reader.share.reader(), &reader.share));
        let writer = team.enter_nfs(&cred(6, &[])).unwrap();
        assert!(Arc::ptr_eq(&writer.share, &team));
        assert_eq!(team.enter_nfs(&cred(7, &[])).err(), Some(Refusal::NotNamed));
    }

    #[test]
    fn nfs_is_asked_after_the_squash_and_smb_before() {
        let named = share(Squash::All, access(&[5], &[]));
        assert_eq!(named.enter_nfs(&cred(5, &[])).err(), Some(Refusal::NotNamed));
        let logged_on = named.enter_smb(&cred(5, &[])).unwrap();
        assert_eq!(logged_on.cred.uid, ANONYMOUS);
        let anonymous = share(Squash::All, access(&[ANONYMOUS], &[]));
        assert!(anonymous.enter_nfs(&cred(5, &[])).is_ok());
        assert!(anonymous.enter_smb(&cred(5, &[])).is_err());
        // A client's root is not the user of number 0.
        let root = share(Squash::Root, access(&[0], &[]));
        assert!(root.enter_nfs(&cred(0, &[])).is_err());
    }

    #[test]
    fn every_refusal_has_its_name_in_the_list() {
        let all = [Refusal::Address, Refusal::NotNamed, Refusal::Denied];
        assert_eq!(all.map(Refusal::name), *Refusal::NAMES);
    }
}
