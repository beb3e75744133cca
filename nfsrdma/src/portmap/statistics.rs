//! Counts the port mapper's calls, for GETSTAT (RFC 1833 section 2.2.1, `rpcb_stat_byvers`).
//!
//! *Memory.* A counter for each procedure of each version, and one for each served program. Requests for other programs leave no
//! trace.

use std::array;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use nfs_proto::rpcbind::{Addrlist, STAT_HIGHPROC, Stat, StatByvers};
use nfs_proto::xdr::Chain;

use super::address::netid;
use super::{Mapping, SERVED};
use crate::rpc::callee::Carrier;
use crate::rpc::program;

const CARRIERS: [Carrier; 2] = [Carrier::Stream, Carrier::Datagrams];

/// Programs and versions that may appear in answers.
const NAMED: [(u32, u32); SERVED.len() + 3] = {
    let mut all = [(program::PORTMAP, 0); SERVED.len() + 3];
    let mut i = 0;
    while i < SERVED.len() {
        all[i] = SERVED[i];
        i += 1;
    }
    all[i].1 = 2;
    all[i + 1].1 = 3;
    all[i + 2].1 = 4;
    all
};

/// Counters of one version of the port mapper.
#[derive(Debug, Default)]
struct OfVersion {
    calls: [AtomicU32; STAT_HIGHPROC],
    /// Addresses returned to clients.
    found: [[AtomicU32; CARRIERS.len()]; NAMED.len()],
}

impl OfVersion {
    fn stat(&self, here: IpAddr) -> Stat<'static> {
        let numbers: [u32; STAT_HIGHPROC] =
            array::from_fn(|number| self.calls[number].load(Ordering::Relaxed));
        let mut info = [0; 4 * STAT_HIGHPROC];
        for (place, number) in info.chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        let mut given = Vec::new();
        for ((prog, vers), found) in NAMED.iter().zip(&self.found) {
            for (carrier, found) in CARRIERS.iter().zip(found) {
                let success = found.load(Ordering::Relaxed);
                if success > 0 {
                    let success = i32::try_from(success).unwrap_or(i32::MAX);
                    let netid = netid(here, *carrier).as_bytes();
                    let (prog, vers, failure) = (*prog, *vers, 0);
                    given.push(Addrlist { prog, vers, success, failure, netid });
                }
            }
        }
        // SET and UNSET never succeed, and calls are never forwarded.
        let (setinfo, unsetinfo, rmtinfo) = (0, 0, Chain(Vec::new()));
        Stat { info, setinfo, unsetinfo, addrinfo: Chain(given), rmtinfo }
    }
}

/// Counters of versions 2, 3 and 4.
#[derive(Debug, Default)]
pub(super) struct Statistics([OfVersion; 3]);

impl Statistics {
    fn of(&self, version: u32) -> Option<&OfVersion> {
        self.0.get(usize::try_from(version).ok()?.checked_sub(2)?)
    }

    /// Counts a call of a procedure.
    pub(super) fn count(&self, version: u32, number: u32) {
        let calls = self.of(version).zip(usize::try_from(number).ok());
        if let Some(calls) = calls.and_then(|(of, number)| of.calls.get(number)) {
            calls.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts the result of a look-up.
    pub(super) fn found(&self, version: u32, found: Option<&Mapping>) {
        let (Some(of), Some(found)) = (self.of(version), found) else { return };
        let named = NAMED.iter().position(|named| *named == (found.program, found.version));
        let carrier = CARRIERS.iter().position(|carrier| *carrier == found.carrier);
        if let Some((named, carrier)) = named.zip(carrier) {
            of.found[named][carrier].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns all counters for a client that called the address `here`.
    pub(super) fn by_version(&self, here: IpAddr) -> StatByvers<'static> {
        let [version2, version3, version4] = self.0.each_ref().map(|of| of.stat(here));
        StatByvers { version2, version3, version4 }
    }
}
