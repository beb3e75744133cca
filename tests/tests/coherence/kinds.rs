//! The holdings and operations of a client: rows and columns of the matrix.

use client::smb::{Caching, OpenHow};
use smb_proto::smb2::create::{access, oplock, share};

/// Bits of `LeaseState`.
pub(crate) const R: u32 = 1;
pub(crate) const H: u32 = 2;
pub(crate) const W: u32 = 4;

/// A holding or operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Lease(u32),
    Oplock(u8),
    ShareDeny,
    RangeLock,
    ReadDelegation,
    WriteDelegation,
    V4Deny,
    V4Lock,
    NlmLock,
    V3Read,
    V3Write,
    LocalRead,
    LocalWrite,
}

use Kind::*;

/// All kinds, in the order of the document.
pub(crate) const ALL: [Kind; 18] = [
    Lease(R),
    Lease(R | H),
    Lease(R | W),
    Lease(R | W | H),
    Oplock(oplock::II),
    Oplock(oplock::EXCLUSIVE),
    Oplock(oplock::BATCH),
    ShareDeny,
    RangeLock,
    ReadDelegation,
    WriteDelegation,
    V4Deny,
    V4Lock,
    NlmLock,
    V3Read,
    V3Write,
    LocalRead,
    LocalWrite,
];

/// The letters of a `LeaseState`.
pub(crate) fn letters(state: u32) -> String {
    let all = [(R, 'R'), (W, 'W'), (H, 'H')];
    let set: String = all.iter().filter(|(bit, _)| state & bit != 0).map(|(_, l)| *l).collect();
    if set.is_empty() { "no caching".into() } else { set }
}

/// The name of an `OplockLevel`.
pub(crate) fn level(level: u8) -> &'static str {
    match level {
        oplock::II => "level II",
        oplock::EXCLUSIVE => "exclusive",
        oplock::BATCH => "batch",
        _ => "no caching",
    }
}

impl Kind {
    /// Returns the name of the kind in the document.
    pub(crate) fn name(self) -> String {
        match self {
            Lease(state) => format!("SMB lease {}", letters(state)),
            Oplock(of) => format!("SMB oplock {}", level(of)),
            ShareDeny => "SMB open without sharing".into(),
            RangeLock => "SMB byte-range lock".into(),
            ReadDelegation => "NFSv4 read delegation".into(),
            WriteDelegation => "NFSv4 write delegation".into(),
            V4Deny => "NFSv4 open that denies both".into(),
            V4Lock => "NFSv4 lock".into(),
            NlmLock => "NLM lock".into(),
            V3Read => "NFSv3 read".into(),
            V3Write => "NFSv3 write".into(),
            LocalRead => "local read".into(),
            LocalWrite => "local write".into(),
        }
    }

    /// Returns the lease bits for what the holder may cache.
    pub(crate) fn caches(self) -> u32 {
        match self {
            Lease(state) => state,
            Oplock(oplock::II) => R,
            Oplock(oplock::EXCLUSIVE) => R | W,
            Oplock(oplock::BATCH) => R | W | H,
            ReadDelegation => R | H,
            WriteDelegation => R | W | H,
            _ => 0,
        }
    }

    /// True if it changes data.
    pub(crate) fn writes(self) -> bool {
        matches!(self, V3Write | LocalWrite)
    }

    /// True if it bypasses the gateway.
    pub(crate) fn is_local(self) -> bool {
        matches!(self, LocalRead | LocalWrite)
    }

    /// The SMB open for it; `None` for other protocols.
    pub(crate) fn smb(self, key: [u8; 16]) -> Option<OpenHow> {
        let writes = self.caches() & W != 0;
        let how = if writes { OpenHow::WRITE } else { OpenHow::READ };
        match self {
            Lease(state) => Some(how.cached(Caching::Lease(key, state))),
            Oplock(level) => Some(how.cached(Caching::Oplock(level))),
            ShareDeny => Some(OpenHow { share: 0, ..OpenHow::READ }),
            RangeLock => {
                let share = share::READ | share::WRITE | share::DELETE;
                let access = OpenHow::WRITE.access | access::DELETE;
                Some(OpenHow { share, access, ..OpenHow::WRITE })
            }
            _ => None,
        }
    }
}
