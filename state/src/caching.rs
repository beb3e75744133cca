//! READ, WRITE and HANDLE caching, and what takes them away.
//!
//! The vocabulary is that of MS-FSA section 2.1.4.12: an NFS read delegation is READ|HANDLE caching, a write delegation is all
//! three, both with the client as the key. Where the two families differ, [`Kind`] says which rule holds.

use crate::access::{Rights, Share};

/// A set of caching rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Caching(u8);

impl Caching {
    /// Nothing may be cached.
    pub const NONE: Self = Self(0);
    /// Data and attributes may be read from the client's cache.
    pub const READ: Self = Self(1);
    /// Changes may be kept back.
    pub const WRITE: Self = Self(2);
    /// Opens may be kept or made without telling the server.
    pub const HANDLE: Self = Self(4);
    /// An NFS read delegation.
    pub const READ_HANDLE: Self = Self(5);
    /// An NFS write delegation, an SMB batch oplock.
    pub const ALL: Self = Self(7);

    /// Has all of `other`.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// What is in both.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// What remains without `other`.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Nothing.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Whose rules a grant follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// RFC 8881 section 10.4: broken already when another opens in a way that the client could not know of, and returned whole.
    Delegation,
    /// MS-SMB2 section 3.3.1.4, MS-FSA: broken by the access itself, and step by step.
    Lease,
}

/// What somebody is about to do to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Open it in this way.
    Open(Share),
    /// Read data.
    Read,
    /// Write or truncate, whatever changes data.
    Write,
    /// Change attributes other than the size.
    Attributes,
    /// Remove it, rename it, rename over it, or give it a further name.
    Names,
}

/// What a grant of `rights` to somebody else may keep while `op` is done.
pub fn left(kind: Kind, rights: Caching, op: Operation) -> Caching {
    match (kind, op) {
        // RFC 8881 section 10.4: a read delegation stands as long as nobody else has the file open for writing or denies reading,
        // a write delegation as long as nobody else has it open at all.
        (Kind::Delegation, Operation::Open(share)) => {
            let harmless = !share.access.has(Rights::WRITE) && !share.deny.has(Rights::READ);
            if rights.has(Caching::WRITE) || !harmless { Caching::NONE } else { rights }
        }
        (Kind::Delegation, Operation::Read) if !rights.has(Caching::WRITE) => rights,
        (Kind::Delegation, _) => Caching::NONE,
        // MS-FSA section 2.1.5.1.2 and 2.1.5.3: another open or read takes WRITE caching.
        (Kind::Lease, Operation::Open(_) | Operation::Read) => rights.without(Caching::WRITE),
        // MS-FSA section 2.1.5.4: a write leaves nothing.
        (Kind::Lease, Operation::Write) => Caching::NONE,
        (Kind::Lease, Operation::Attributes) => rights,
        // MS-FSA section 2.1.5.15.11: a rename or deletion must be able to close cached handles.
        (Kind::Lease, Operation::Names) => rights.without(Caching::HANDLE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(access: Rights, deny: Rights) -> Operation {
        Operation::Open(Share::new(access, deny))
    }

    #[test]
    fn a_read_delegation_stands_beside_readers_only() {
        let keep = |op| left(Kind::Delegation, Caching::READ_HANDLE, op) == Caching::READ_HANDLE;
        assert!(keep(open(Rights::READ, Rights::NONE)));
        assert!(keep(open(Rights::READ, Rights::WRITE)));
        assert!(keep(Operation::Read));
        for op in [
            open(Rights::WRITE, Rights::NONE),
            open(Rights::READ, Rights::READ),
            Operation::Write,
            Operation::Attributes,
            Operation::Names,
        ] {
            assert!(!keep(op), "{op:?}");
            assert_eq!(left(Kind::Delegation, Caching::READ_HANDLE, op), Caching::NONE);
        }
    }

    #[test]
    fn a_write_delegation_stands_alone() {
        for op in [open(Rights::READ, Rights::NONE), Operation::Read, Operation::Write] {
            assert_eq!(left(Kind::Delegation, Caching::ALL, op), Caching::NONE);
        }
    }

    #[test]
    fn a_lease_goes_step_by_step() {
        assert_eq!(left(Kind::Lease, Caching::ALL, Operation::Read), Caching::READ_HANDLE);
        assert_eq!(left(Kind::Lease, Caching::READ_HANDLE, Operation::Names), Caching::READ);
        assert_eq!(left(Kind::Lease, Caching::READ, Operation::Write), Caching::NONE);
    }
}
