//! READ, WRITE and HANDLE caching, and what takes them away.
//!
//! The vocabulary is that of MS-FSA section 2.1.4.12: an NFS read delegation is READ|HANDLE caching, a write delegation is all
//! three, both with the client as the key; an SMB level II oplock is READ, an exclusive one READ|WRITE, a batch one all three.
//! Where the families differ, [`Kind`] says which rule holds.

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
    /// An SMB exclusive oplock.
    pub const READ_WRITE: Self = Self(3);
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

    /// What is in either.
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What remains without `other`.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Nothing.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The nearest set that a lease may have (MS-SMB2 section 3.3.5.9.8): nothing without READ.
    pub fn grantable(self) -> Self {
        if self.has(Self::READ) { self } else { Self::NONE }
    }
}

/// Whose rules a grant follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// RFC 8881 section 10.4: broken already when another opens in a way that the client could not know of, and returned whole.
    Delegation,
    /// MS-FSA section 2.1.1.10, LEVEL_TWO, LEVEL_ONE and BATCH: of one open.
    Oplock,
    /// MS-SMB2 section 3.3.1.4, the granular oplocks of MS-FSA: of all opens with one key, and broken step by step.
    Lease,
}

/// An oplock or lease that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRequest {
    /// Which of the two.
    pub kind: Kind,
    /// What its holder wants to cache.
    pub rights: Caching,
    /// Bytes that are allocated for the file: locks behind them lock nothing that could be cached.
    pub allocated: u64,
}

impl CacheRequest {
    /// Of a file of unknown size.
    pub fn new(kind: Kind, rights: Caching) -> Self {
        Self { kind, rights, allocated: u64::MAX }
    }
}

/// What somebody is about to do to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Open it in this way.
    Open(Share),
    /// Open it to read its security descriptor and attributes: leases stand, oplocks do not (MS-FSA section 2.1.4.12, Case OPEN).
    Look,
    /// Read data.
    Read,
    /// Write or truncate, whatever changes data; an open that overwrites.
    Write,
    /// Truncate or extend through an SMB open: a write that byte-range locks do not hinder (MS-FSA sections 2.1.5.15.4 and
    /// 2.1.5.1.2).
    Resize,
    /// Set or clear a byte-range lock that binds others.
    Lock,
    /// Set a byte-range lock that is advice to clients of NFS, and binds those of SMB, who know no other.
    Advise,
    /// Change attributes other than the size.
    Attributes,
    /// Remove it, rename it, rename over it, or give it a further name.
    Names,
    /// Mark it to be removed with its last close.
    Delete,
    /// Open it against a share mode, which cached handles may be the reason of (OPEN_BREAK_H).
    Handles,
    /// About to change what a listing of this directory shows: delegations of it come back first.
    Entries,
    /// What a listing of this directory shows has changed (the PARENT_OBJECT of MS-FSA section 2.1.4.12).
    Contents,
}

/// What an operation by somebody else does to a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// What the holder may keep.
    pub keep: Caching,
    /// It must say that it gave the rest back; otherwise the rights are gone when it is told.
    pub acknowledge: bool,
    /// The operation waits for that.
    pub wait: bool,
}

/// What `op` by somebody else does to a grant of `rights`; `None` when it stands.
pub fn effect(kind: Kind, rights: Caching, op: Operation) -> Option<Effect> {
    if rights.is_none() {
        return None;
    }
    let (keep, acknowledge, wait) = match kind {
        Kind::Delegation => (delegation(rights, op), true, true),
        Kind::Oplock => {
            let exclusive = rights.has(Caching::WRITE);
            (oplock(rights, op), exclusive, exclusive)
        }
        Kind::Lease => {
            let takes = taken(op);
            // MS-FSA 2.1.4.12: READ alone is lost without a word; only an operation that must have handles closed, or for which
            // data may be kept back, waits.
            let wait = rights.has(Caching::WRITE) || takes.has(Caching::HANDLE);
            (lease(rights, takes), rights != Caching::READ, wait)
        }
    };
    (keep != rights).then_some(Effect { keep, acknowledge, wait })
}

/// RFC 8881 section 10.4: a read delegation stands as long as nobody else has the file open for writing or denies reading, a
/// write delegation as long as nobody else has it open at all. That of a directory, which is for reading, stands as long as nobody
/// else changes it (section 10.9).
fn delegation(rights: Caching, op: Operation) -> Caching {
    match op {
        Operation::Look | Operation::Advise => rights,
        Operation::Read | Operation::Handles if !rights.has(Caching::WRITE) => rights,
        Operation::Open(share) if !rights.has(Caching::WRITE) => {
            let harmless = !share.access.has(Rights::WRITE) && !share.deny.has(Rights::READ);
            if harmless { rights } else { Caching::NONE }
        }
        _ => Caching::NONE,
    }
}

/// The BreakToTwo and BreakToNone branches of MS-FSA section 2.1.4.12.
fn oplock(rights: Caching, op: Operation) -> Caching {
    match op {
        Operation::Open(_) | Operation::Look | Operation::Read => rights.and(Caching::READ),
        Operation::Write | Operation::Resize | Operation::Lock | Operation::Advise => Caching::NONE,
        Operation::Names if rights.has(Caching::HANDLE) => Caching::NONE,
        // MS-FSA 2.1.5.1.2: only a batch oplock stands for handles that the client may not need.
        Operation::Handles if rights.has(Caching::HANDLE) => Caching::READ,
        _ => rights,
    }
}

/// BreakCacheState of MS-FSA section 2.1.4.12.
fn taken(op: Operation) -> Caching {
    match op {
        Operation::Open(_) | Operation::Read => Caching::WRITE,
        Operation::Write
        | Operation::Resize
        | Operation::Lock
        | Operation::Advise
        | Operation::Contents => Caching::READ_WRITE,
        Operation::Names | Operation::Delete | Operation::Handles => Caching::HANDLE,
        Operation::Attributes | Operation::Look | Operation::Entries => Caching::NONE,
    }
}

fn lease(rights: Caching, takes: Caching) -> Caching {
    if rights.and(takes).is_none() { rights } else { rights.without(takes).grantable() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: Caching = Caching::READ;
    const RW: Caching = Caching::READ_WRITE;
    const RH: Caching = Caching::READ_HANDLE;
    const RWH: Caching = Caching::ALL;

    fn open(access: Rights, deny: Rights) -> Operation {
        Operation::Open(Share::new(access, deny))
    }

    #[test]
    fn a_read_delegation_stands_beside_readers_only() {
        let keep = |op| effect(Kind::Delegation, RH, op).is_none();
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
            let all = Effect { keep: Caching::NONE, acknowledge: true, wait: true };
            assert_eq!(effect(Kind::Delegation, RH, op), Some(all), "{op:?}");
        }
    }

    #[test]
    fn a_delegation_of_a_directory_comes_back_before_it_changes() {
        let all = Effect { keep: Caching::NONE, acknowledge: true, wait: true };
        for op in [Operation::Entries, Operation::Contents, Operation::Attributes] {
            assert_eq!(effect(Kind::Delegation, RH, op), Some(all), "{op:?}");
        }
        for (kind, rights) in [(Kind::Lease, RH), (Kind::Lease, RWH), (Kind::Oplock, RWH)] {
            assert_eq!(effect(kind, rights, Operation::Entries), None, "told when it has changed");
        }
    }

    #[test]
    fn a_write_delegation_stands_alone() {
        for op in [open(Rights::READ, Rights::NONE), Operation::Read, Operation::Write] {
            assert_eq!(effect(Kind::Delegation, RWH, op).unwrap().keep, Caching::NONE);
        }
    }

    /// MS-FSA section 2.1.4.12, the table that its Switch over Oplock.State amounts to: what is kept, with `a` when it is to be
    /// acknowledged and `w` when the operation waits for that.
    #[test]
    fn leases_break_as_ms_fsa_says() {
        let shown = |rights, op| {
            effect(Kind::Lease, rights, op).map(|e| {
                (
                    e.keep,
                    match (e.acknowledge, e.wait) {
                        (true, true) => "aw",
                        (true, false) => "a",
                        (false, false) => "",
                        (false, true) => panic!("nothing to wait for"),
                    },
                )
            })
        };
        let plain = open(Rights::READ, Rights::NONE);
        for op in [plain, Operation::Read] {
            assert_eq!(shown(RWH, op), Some((RH, "aw")));
            assert_eq!(shown(RW, op), Some((R, "aw")));
            assert_eq!(shown(RH, op), None);
            assert_eq!(shown(R, op), None);
        }
        for op in [Operation::Write, Operation::Lock, Operation::Contents] {
            assert_eq!(shown(RWH, op), Some((Caching::NONE, "aw")));
            assert_eq!(shown(RW, op), Some((Caching::NONE, "aw")));
            assert_eq!(shown(RH, op), Some((Caching::NONE, "a")));
            assert_eq!(shown(R, op), Some((Caching::NONE, "")));
        }
        for op in [Operation::Names, Operation::Delete, Operation::Handles] {
            assert_eq!(shown(RWH, op), Some((RW, "aw")));
            assert_eq!(shown(RW, op), None);
            assert_eq!(shown(RH, op), Some((R, "aw")));
            assert_eq!(shown(R, op), None);
        }
        assert_eq!(shown(RWH, Operation::Attributes), None);
    }

    #[test]
    fn oplocks_break_as_ms_fsa_says() {
        let keep = |rights, op| effect(Kind::Oplock, rights, op).map(|e| (e.keep, e.wait));
        let plain = open(Rights::READ, Rights::NONE);
        assert_eq!(keep(RWH, plain), Some((R, true)));
        assert_eq!(keep(RW, plain), Some((R, true)));
        assert_eq!(keep(R, plain), None);
        assert_eq!(keep(RWH, Operation::Look), Some((R, true)));
        assert_eq!(effect(Kind::Lease, RWH, Operation::Look), None);
        assert_eq!(keep(R, Operation::Write), Some((Caching::NONE, false)));
        assert_eq!(keep(RWH, Operation::Write), Some((Caching::NONE, true)));
        assert_eq!(keep(RWH, Operation::Handles), Some((R, true)));
        assert_eq!(keep(RW, Operation::Handles), None);
        assert_eq!(keep(RWH, Operation::Names), Some((Caching::NONE, true)));
        assert_eq!(keep(RW, Operation::Names), None);
        assert_eq!(keep(RWH, Operation::Delete), None);
    }
}
