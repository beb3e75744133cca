//! NSM version 1 (X/Open XNFS chapter 11): who is told of a restart, and who tells us of one.
//!
//! *Operation.* A host that locks is entered in a durable list (`monitors`) before it gets its first lock. At the next start
//! every host of the list is told by SM_NOTIFY, so that it reclaims within the grace period, or knows that it has lost something.
//! When a host tells us by SM_NOTIFY that it has been restarted, what it held is released. Anybody could say so: see
//! [`Nlm::rebooted`] for who is believed.
//!
//! This monitor works for the lock manager in this process alone. Another one on this machine (the kernel's, when the machine is
//! an NFS client itself) has another life than this process, so SM_MON is answered by STAT_FAIL.
//!
//! *Memory.* One short record per host that locks.
//!
//! *Errors.* A notice from an address that no share lets in, or that its host did not lock from, or with a number that is no
//! news, is ignored and counted.

mod monitors;
mod notify;

pub(crate) use monitors::{Monitored, Monitors};

use std::sync::atomic::Ordering;

use crate::context::{Conn, Outcome};
use crate::nlm::Nlm;
use crate::nlm::wire::STRING_MAX;
use crate::xdr::{Reader, Writer, XdrResult};

/// The version that is served.
pub const VERSION: u32 = 1;

/// Procedure numbers (X/Open XNFS section 11.2).
#[allow(missing_docs)] // The names are the specification's own, without SM_.
pub mod procedure {
    pub const NULL: u32 = 0;
    pub const STAT: u32 = 1;
    pub const MON: u32 = 2;
    pub const UNMON: u32 = 3;
    pub const UNMON_ALL: u32 = 4;
    pub const SIMU_CRASH: u32 = 5;
    pub const NOTIFY: u32 = 6;
}

/// The arguments of one call, as far as they mean something here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the specification's own.
pub enum Args<'a> {
    Null,
    Stat { name: &'a [u8] },
    Mon { name: &'a [u8] },
    Unmon { name: &'a [u8] },
    UnmonAll,
    SimuCrash,
    Notify { name: &'a [u8], state: i32 },
}

/// Reads the arguments of a procedure; `None` when there is no such procedure.
pub fn decode_args<'a>(number: u32, r: &mut Reader<'a>) -> XdrResult<Option<Args<'a>>> {
    use procedure as p;
    let args = match number {
        p::NULL => Args::Null,
        p::STAT => Args::Stat { name: r.opaque(STRING_MAX)? },
        p::MON => {
            let name = r.opaque(STRING_MAX)?;
            my_id(r)?;
            r.fixed::<16>()?;
            Args::Mon { name }
        }
        p::UNMON => {
            let name = r.opaque(STRING_MAX)?;
            my_id(r)?;
            Args::Unmon { name }
        }
        p::UNMON_ALL => {
            my_id(r)?;
            Args::UnmonAll
        }
        p::SIMU_CRASH => Args::SimuCrash,
        p::NOTIFY => Args::Notify { name: r.opaque(STRING_MAX)?, state: r.i32()? },
        _ => return Ok(None),
    };
    Ok(Some(args))
}

/// `my_id`: who wants to be called back, and how.
fn my_id(r: &mut Reader<'_>) -> XdrResult<()> {
    r.opaque(STRING_MAX)?;
    for _program_version_procedure in 0..3 {
        r.u32()?;
    }
    Ok(())
}

/// Does one call.
pub fn serve(
    nlm: &Nlm,
    conn: &Conn,
    number: u32,
    args: &mut Reader<'_>,
    out: &mut Writer,
) -> XdrResult<Outcome> {
    const STAT_SUCC: u32 = 0;
    const STAT_FAIL: u32 = 1;
    let Some(args) = decode_args(number, args)? else { return Ok(Outcome::NoProcedure) };
    match args {
        Args::Null | Args::SimuCrash => {}
        // This monitor can reach whoever can reach it; whether it would is the lock manager's business.
        Args::Stat { .. } => {
            out.u32(STAT_SUCC);
            out.i32(nlm.state_number());
        }
        Args::Mon { .. } => {
            out.u32(STAT_FAIL);
            out.i32(nlm.state_number());
        }
        Args::Unmon { .. } | Args::UnmonAll => out.i32(nlm.state_number()),
        Args::Notify { name, state } => {
            if nlm.core().may_use_any(conn) {
                nlm.rebooted(name, conn.info.peer.ip().to_canonical(), Some(state));
            } else {
                nlm.counters.strangers.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    Ok(Outcome::Repeatable)
}

#[cfg(test)]
mod tests {
    use iobuf::Buf;

    use super::*;
    use crate::xdr::XdrError;

    fn of(number: u32, w: &[u32], check: impl FnOnce(XdrResult<Option<Args<'_>>>, bool)) {
        let body = Buf::from(w.iter().flat_map(|v| v.to_be_bytes()).collect::<Vec<_>>());
        let mut r = Reader::new(&body, &[]);
        let read = decode_args(number, &mut r);
        let end = r.is_at_end();
        check(read, end);
    }

    #[test]
    fn every_procedure_has_the_words_of_the_specification() {
        let name: &[u8] = b"host";
        let host = [4, 0x686f_7374];
        let id = [2, 0x6d65_0000, 100_021, 4, 16];
        let cases: [(u32, Vec<u32>, Args<'_>); 7] = [
            (0, vec![], Args::Null),
            (1, host.to_vec(), Args::Stat { name }),
            (2, [&host[..], &id, &[1, 2, 3, 4]].concat(), Args::Mon { name }),
            (3, [&host[..], &id].concat(), Args::Unmon { name }),
            (4, id.to_vec(), Args::UnmonAll),
            (5, vec![], Args::SimuCrash),
            (6, [&host[..], &[7]].concat(), Args::Notify { name, state: 7 }),
        ];
        for (number, body, wanted) in cases {
            of(number, &body, |read, end| {
                assert_eq!(read, Ok(Some(wanted)));
                assert!(end, "procedure {number}");
            });
            if let Some((_, short)) = body.split_last() {
                of(number, short, |read, _| assert_eq!(read, Err(XdrError::Short)));
            }
        }
        of(7, &[0; 9], |read, _| assert_eq!(read, Ok(None)));
        let long = [&[1025][..], &[0; 300]].concat();
        of(6, &long, |read, _| assert_eq!(read, Err(XdrError::TooLong)));
    }
}
