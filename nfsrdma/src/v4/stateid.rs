//! The format of a stateid: the client's number and the number of the state, 12 bytes in all.
//!
//! The client's number begins with the number of this server run, so that a stateid from before a restart is recognized (RFC 7530
//! section 9.1.4.2 requires NFS4ERR_STALE_STATEID).

use state::ClientId;

use super::status::Status;
use super::wire::Stateid;

/// Combines the number of this server run and a counter.
pub(super) fn client_id(instance: u32, count: u32) -> ClientId {
    ClientId(u64::from(instance) << 32 | u64::from(count))
}

/// The server run that assigned this client number.
pub(super) fn instance_of(client: ClientId) -> u32 {
    // Invariant: 32 bits remain.
    #[allow(clippy::cast_possible_truncation)]
    let instance = (client.0 >> 32) as u32;
    instance
}

/// Builds a stateid from the client's number, the state's number and the seqid.
pub(super) fn compose(client: ClientId, number: u32, seqid: u32) -> Stateid {
    let mut other = [0; 12];
    other[..8].copy_from_slice(&client.0.to_be_bytes());
    other[8..].copy_from_slice(&number.to_be_bytes());
    Stateid { seqid, other }
}

/// Splits a stateid that is not special into client and number.
pub(super) fn parts(stateid: Stateid) -> (ClientId, u32) {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = stateid.other;
    let client = ClientId(u64::from_be_bytes([a, b, c, d, e, f, g, h]));
    (client, u32::from_be_bytes([i, j, k, l]))
}

/// True for all zeros or all ones, which never identify an open, a lock or a delegation (RFC 8881 section 8.2.3).
pub(super) fn is_special(stateid: Stateid) -> bool {
    stateid.other == [0; 12] || stateid.other == [0xff; 12]
}

/// The next seqid, without 0, which means "the newest" (RFC 8881 section 8.2.2).
pub(super) fn next(seqid: u32) -> u32 {
    match seqid.wrapping_add(1) {
        0 => 1,
        n => n,
    }
}

/// Compares a seqid from a request with the current one (RFC 8881 section 8.2.2, RFC 7530 section 9.1.4.2).
pub(super) fn check_seqid(sent: u32, current: u32, minor: u32) -> Result<(), Status> {
    if sent == current || (sent == 0 && minor > 0) {
        Ok(())
    } else if current.wrapping_sub(sent) < 1 << 31 {
        Err(Status::OldStateId)
    } else {
        Err(Status::BadStateId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stateid_parts_round_trip() {
        let c = client_id(7, 9);
        assert_eq!(instance_of(c), 7);
        let s = compose(c, 0xabcd, 3);
        assert_eq!(parts(s), (c, 0xabcd));
        assert!(!is_special(s));
        assert!(is_special(Stateid::ANONYMOUS) && is_special(Stateid::READ_BYPASS));
        assert!(is_special(Stateid::CURRENT) && is_special(Stateid::INVALID));
    }

    #[test]
    fn seqid_is_compared_with_wraparound() {
        assert_eq!(check_seqid(3, 3, 1), Ok(()));
        assert_eq!(check_seqid(0, 3, 1), Ok(()));
        assert_eq!(check_seqid(0, 3, 0), Err(Status::OldStateId));
        assert_eq!(check_seqid(2, 3, 1), Err(Status::OldStateId));
        assert_eq!(check_seqid(4, 3, 1), Err(Status::BadStateId));
        assert_eq!(check_seqid(u32::MAX, 1, 1), Err(Status::OldStateId));
        assert_eq!(next(u32::MAX), 1);
    }
}
