//! NLM version 4 (RFC 1813 appendix II; X/Open XNFS chapter 10 for the parts unchanged since version 3).

use crate::xdr::{Xdr, choice, numbers, structs};

/// Version of the RPC program.
pub const VERSION: u32 = 4;
/// Maximum length of a caller's name, and of an opaque owner or cookie, in bytes (`LM_MAXSTRLEN`, `MAXNETOBJ_SZ`).
pub const STRING_MAX: usize = 1024;
/// Maximum length of a file handle in bytes, the same as in NFS version 3.
pub const FH_MAX: usize = 64;

/// Procedure numbers (RFC 1813 section 6.3).
#[allow(missing_docs)] // Names from the specification, without NLMPROC4_.
pub mod procedure {
    pub const NULL: u32 = 0;
    pub const TEST: u32 = 1;
    pub const LOCK: u32 = 2;
    pub const CANCEL: u32 = 3;
    pub const UNLOCK: u32 = 4;
    pub const GRANTED: u32 = 5;
    pub const TEST_MSG: u32 = 6;
    pub const LOCK_MSG: u32 = 7;
    pub const CANCEL_MSG: u32 = 8;
    pub const UNLOCK_MSG: u32 = 9;
    pub const GRANTED_MSG: u32 = 10;
    pub const TEST_RES: u32 = 11;
    pub const LOCK_RES: u32 = 12;
    pub const CANCEL_RES: u32 = 13;
    pub const UNLOCK_RES: u32 = 14;
    pub const GRANTED_RES: u32 = 15;
    pub const SHARE: u32 = 20;
    pub const UNSHARE: u32 = 21;
    pub const NM_LOCK: u32 = 22;
    pub const FREE_ALL: u32 = 23;
}

numbers! {
    /// `nlm4_stats`.
    pub enum Stat {
        Granted = 0,
        Denied = 1,
        DeniedNolocks = 2,
        Blocked = 3,
        DeniedGracePeriod = 4,
        Deadlck = 5,
        Rofs = 6,
        StaleFh = 7,
        Fbig = 8,
        Failed = 9,
    }

    /// `fsh4_mode`: the access that a share denies.
    pub enum ShMode {
        DenyNone = 0,
        DenyRead = 1,
        DenyWrite = 2,
        DenyReadWrite = 3,
    }

    /// `fsh4_access`: the access that a share requests.
    pub enum ShAccess {
        None = 0,
        Read = 1,
        Write = 2,
        ReadWrite = 3,
    }
}

structs! {
    /// `nlm4_lock`.
    #[derive(Copy)]
    pub struct Lock<'a> {
        /// The client's host, as it names itself.
        caller_name: &'a [u8] as STRING_MAX,
        fh: &'a [u8] as FH_MAX,
        /// The owner on that host.
        oh: &'a [u8] as STRING_MAX,
        /// The process on that host.
        svid: i32,
        l_offset: u64,
        /// 0 extends to the end.
        l_len: u64,
    }

    /// `nlm4_lockargs`. `state` is the number of the caller's status monitor.
    #[derive(Copy)]
    pub struct Lockargs<'a> {
        cookie: &'a [u8] as STRING_MAX,
        block: bool,
        exclusive: bool,
        alock: Lock<'a>,
        reclaim: bool,
        state: i32,
    }

    /// `nlm4_cancargs`.
    #[derive(Copy)]
    pub struct Cancargs<'a> {
        cookie: &'a [u8] as STRING_MAX,
        block: bool,
        exclusive: bool,
        alock: Lock<'a>,
    }

    /// `nlm4_testargs`, also the arguments of GRANTED.
    #[derive(Copy)]
    pub struct Testargs<'a> {
        cookie: &'a [u8] as STRING_MAX,
        exclusive: bool,
        alock: Lock<'a>,
    }

    /// `nlm4_unlockargs`.
    #[derive(Copy)]
    pub struct Unlockargs<'a> {
        cookie: &'a [u8] as STRING_MAX,
        alock: Lock<'a>,
    }

    /// `nlm4_share`.
    #[derive(Copy)]
    pub struct Share<'a> {
        caller_name: &'a [u8] as STRING_MAX,
        fh: &'a [u8] as FH_MAX,
        oh: &'a [u8] as STRING_MAX,
        mode: ShMode,
        access: ShAccess,
    }

    /// `nlm4_shareargs`.
    #[derive(Copy)]
    pub struct Shareargs<'a> {
        cookie: &'a [u8] as STRING_MAX,
        share: Share<'a>,
        reclaim: bool,
    }

    /// `nlm4_notify`.
    #[derive(Copy)]
    pub struct Notify<'a> {
        name: &'a [u8] as STRING_MAX,
        state: i32,
    }

    /// `nlm4_res`.
    #[derive(Copy)]
    pub struct Res<'a> {
        cookie: &'a [u8] as STRING_MAX,
        stat: Stat,
    }

    /// `nlm4_holder`: the lock that conflicts.
    #[derive(Copy)]
    pub struct Holder<'a> {
        exclusive: bool,
        svid: i32,
        oh: &'a [u8] as STRING_MAX,
        l_offset: u64,
        l_len: u64,
    }

    /// `nlm4_testres`.
    #[derive(Copy)]
    pub struct Testres<'a> {
        cookie: &'a [u8] as STRING_MAX,
        stat: Testrply<'a>,
    }

    /// `nlm4_shareres`.
    #[derive(Copy)]
    pub struct Shareres<'a> {
        cookie: &'a [u8] as STRING_MAX,
        stat: Stat,
        sequence: i32,
    }
}

/// `nlm4_testrply`: a status, and for NLM4_DENIED the conflicting lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Testrply<'a> {
    /// NLM4_DENIED.
    Denied(Holder<'a>),
    /// Another status.
    Stat(Stat),
}

impl<'a> Xdr<'a> for Testrply<'a> {
    fn field(name: &'static str, input: &'a [u8]) -> wire::Parsed<'a, Self> {
        match Stat::field(name, input)? {
            (rest, Stat::Denied) => Holder::parse(rest).map(|(rest, h)| (rest, Self::Denied(h))),
            (rest, stat) => Ok((rest, Self::Stat(stat))),
        }
    }

    fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Denied(holder) => {
                Stat::Denied.emit(out);
                holder.emit(out);
            }
            Self::Stat(stat) => stat.emit(out),
        }
    }
}

choice! {
    /// Arguments, selected by the procedure number. A procedure and its asynchronous form have the same arguments; the results of
    /// the latter are the arguments of a call in the other direction.
    pub enum Args<'a> {
        0 => Null,
        1 | 6 => Test(Testargs<'a>),
        /// Also NM_LOCK, which ignores `state`.
        2 | 7 | 22 => Lock(Lockargs<'a>),
        3 | 8 => Cancel(Cancargs<'a>),
        4 | 9 => Unlock(Unlockargs<'a>),
        5 | 10 => Granted(Testargs<'a>),
        11 => TestRes(Testres<'a>),
        12 | 13 | 14 | 15 => Res(Res<'a>),
        20 => Share(Shareargs<'a>),
        21 => Unshare(Shareargs<'a>),
        23 => FreeAll(Notify<'a>),
    }

    /// Results, selected by the procedure number. Asynchronous procedures return void.
    pub enum Results<'a> {
        0 | 6 | 7 | 8 | 9 | 10 | 11 | 12 | 13 | 14 | 15 | 23 => Void,
        1 => Test(Testres<'a>),
        2 | 3 | 4 | 5 | 22 => Res(Res<'a>),
        20 | 21 => Share(Shareres<'a>),
    }
}

#[cfg(test)]
mod tests;
