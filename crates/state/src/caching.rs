//! The caching rights READ, WRITE and HANDLE, and the operations that break them.
//!
//! The terms come from MS-FSA section 2.1.4.12. An NFS read delegation is READ|HANDLE caching and a write delegation all three,
//! both with the client as the key. An SMB level II oplock is READ, an exclusive one READ|WRITE, a batch one all three. [`Kind`]
//! selects the rules where delegations, oplocks and leases differ.

use crate::access::{Rights, Share};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Caching(u8);

impl Caching {
    /// No caching.
    pub const NONE: Self = Self(0);
    /// The client may read data and attributes from its cache.
    pub const READ: Self = Self(1);
    /// The client may delay sending its changes.
    pub const WRITE: Self = Self(2);
    /// The client may keep or reopen handles without a request to the server.
    pub const HANDLE: Self = Self(4);
    /// The rights of an SMB exclusive oplock.
    pub const READ_WRITE: Self = Self(3);
    /// The rights of an NFS read delegation.
    pub const READ_HANDLE: Self = Self(5);
    /// The rights of an NFS write delegation or an SMB batch oplock.
    pub const ALL: Self = Self(7);

    /// Checks that every right of `other` is included.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the rights that are in both sets.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the rights that are in either set.
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the rights without those of `other`.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Checks that the set is empty.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns the largest subset that a lease may have (MS-SMB2 section 3.3.5.9.8): without READ, a lease has no rights.
    pub fn grantable(self) -> Self {
        if self.has(Self::READ) { self } else { Self::NONE }
    }
}

/// The rules that a grant follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// RFC 8881 section 10.4: recalled as soon as another client opens the file in a conflicting mode, and always returned whole.
    Delegation,
    /// MS-FSA section 2.1.1.10, LEVEL_TWO, LEVEL_ONE and BATCH: belongs to a single open.
    Oplock,
    /// MS-SMB2 section 3.3.1.4 (granular oplocks in MS-FSA): shared by all opens with one lease key and broken step by step.
    Lease,
}

/// A request for an oplock or a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRequest {
    pub kind: Kind,
    pub rights: Caching,
    /// Allocation size of the file in bytes: byte-range locks past it cover no data that could be cached.
    pub allocated: u64,
}

impl CacheRequest {
    /// Builds a request for a file whose allocation size is unknown.
    pub fn new(kind: Kind, rights: Caching) -> Self {
        Self { kind, rights, allocated: u64::MAX }
    }
}

/// An operation that a client is about to perform on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Open the node with this share mode.
    Open(Share),
    /// Open it to read only the security descriptor and attributes: breaks oplocks but no leases (MS-FSA section 2.1.4.12, Case
    /// OPEN).
    Look,
    Read,
    /// Write, truncate or otherwise change data; also an open that overwrites the file.
    Write,
    /// Truncate or extend through an SMB open: a write that ignores byte-range locks (MS-FSA sections 2.1.5.15.4 and 2.1.5.1.2).
    Resize,
    /// Set or clear a byte-range lock that is binding for other clients.
    Lock,
    /// Set a byte-range lock that is advisory for NFS clients but binding for SMB clients, because SMB has only mandatory locks.
    Advise,
    /// Change attributes other than the size.
    Attributes,
    /// Remove it, rename it, rename over it, or add a hard link.
    Names,
    /// Mark it for deletion at its last close.
    Delete,
    /// Retry an open that a share mode refused: handles that clients keep cached may be the cause (OPEN_BREAK_H).
    Handles,
    /// Prepare to change the listing of this directory: recalls its delegations first.
    Entries,
    /// Report that the listing of this directory has changed (PARENT_OBJECT in MS-FSA section 2.1.4.12).
    Contents,
}

/// The effect of another client's operation on a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The rights that the holder keeps.
    pub keep: Caching,
    /// Whether the holder must acknowledge the break. If not, the rights end as soon as the notice is sent.
    pub acknowledge: bool,
    /// Whether the operation waits for that acknowledgement.
    pub wait: bool,
}

/// Returns the effect of another client's `op` on a grant of `rights`; `None` when the grant is unaffected.
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
            // MS-FSA 2.1.4.12: a loss of only READ needs no acknowledgement. An operation waits only if handles must be closed or
            // if the holder may have unsent data.
            let wait = rights.has(Caching::WRITE) || takes.has(Caching::HANDLE);
            (lease(rights, takes), rights != Caching::READ, wait)
        }
    };
    (keep != rights).then_some(Effect { keep, acknowledge, wait })
}

/// RFC 8881 section 10.4: a read delegation remains while no other client has the file open for writing or denies reading; a write
/// delegation remains while no other client has the file open. A directory delegation, which is a read delegation, remains while no
/// other client changes the directory (section 10.9).
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

/// Applies the BreakToTwo and BreakToNone branches of MS-FSA section 2.1.4.12.
fn oplock(rights: Caching, op: Operation) -> Caching {
    match op {
        Operation::Open(_) | Operation::Look | Operation::Read => rights.and(Caching::READ),
        Operation::Write | Operation::Resize | Operation::Lock | Operation::Advise => Caching::NONE,
        Operation::Names if rights.has(Caching::HANDLE) => Caching::NONE,
        // MS-FSA 2.1.5.1.2: only a batch oplock lets a client keep handles open that it may no longer need.
        Operation::Handles if rights.has(Caching::HANDLE) => Caching::READ,
        _ => rights,
    }
}

/// Applies BreakCacheState of MS-FSA section 2.1.4.12.
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
    fn read_delegation_survives_readers_only() {
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
    fn directory_delegation_before_change_is_recalled() {
        let all = Effect { keep: Caching::NONE, acknowledge: true, wait: true };
        for op in [Operation::Entries, Operation::Contents, Operation::Attributes] {
            assert_eq!(effect(Kind::Delegation, RH, op), Some(all), "{op:?}");
        }
        for (kind, rights) in [(Kind::Lease, RH), (Kind::Lease, RWH), (Kind::Oplock, RWH)] {
            assert_eq!(effect(kind, rights, Operation::Entries), None, "told when it has changed");
        }
    }

    #[test]
    fn write_delegation_survives_no_other_open() {
        for op in [open(Rights::READ, Rights::NONE), Operation::Read, Operation::Write] {
            assert_eq!(effect(Kind::Delegation, RWH, op).unwrap().keep, Caching::NONE);
        }
    }

    /// Checks the table behind the Switch over Oplock.State in MS-FSA section 2.1.4.12. Each cell lists the rights that remain, `a`
    /// if the break must be acknowledged and `w` if the operation waits for it.
    #[test]
    fn leases_break_per_ms_fsa_table() {
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
    fn oplocks_break_per_ms_fsa_table() {
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
