//! NFS version 4 (RFC 8881, RFC 7862): a session of minor version 1 or 2, its operations, its callbacks.

mod acl;
mod attrs;
mod callback;
mod compound;
mod files;
mod referrals;
mod session;

pub use acl::Ace;
pub use attrs::{Attr, Fattr};
pub use callback::{DelegatedAttrs, Keeps, Recall, Recalls};
pub use compound::{Compound, Results};
pub use files::{Delegation, DirEntry, OpenFile, OpenHow, Written};
pub use nfs_proto::nfs4::attrs::Value;
pub use nfs_proto::nfs4::{LockType4, StableHow4, StateOwner4, Stateid4 as Stateid, attr, op, ops};
pub use referrals::Location;
pub use session::{Minor, Nfs4};

pub type Fh = crate::nfs3::Fh;
