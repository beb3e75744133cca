//! Open owners and lock owners, with the sequence numbers that order their requests in minor version 0 (RFC 7530 section 9.1.7). No
//! I/O.

use std::sync::Arc;

use vfs::Handle;

use super::status::Status;

/// The last reply to an owner, for a retransmission.
#[derive(Clone)]
pub(super) struct Kept {
    /// Number of the operation that the owner called.
    pub(super) opcode: u32,
    pub(super) status: Status,
    pub(super) body: Arc<[u8]>,
    /// The file that an OPEN made current: share number and handle. The original caller's rights are not cached, because the
    /// retransmission may come from another user, or after a loss of rights.
    pub(super) current: Option<(u32, Handle)>,
}

/// The sequence of one owner's requests. Clients of minor version 1 and up use slots instead.
#[derive(Default)]
pub(super) struct OpenOwnerSeqid {
    last: Option<u32>,
    busy: bool,
    kept: Option<Kept>,
}

/// How a request relates to the sequence.
pub(super) enum SeqidCheck {
    /// The next request: execute it, then call [`OpenOwnerSeqid::finish`].
    Next,
    /// A retransmission of the last request.
    Again(Kept),
}

impl OpenOwnerSeqid {
    /// Checks a request. The first request of an owner may have any number. A different operation with the last number is not a
    /// retransmission.
    pub(super) fn begin(&mut self, seqid: u32, opcode: u32) -> Result<SeqidCheck, Status> {
        if self.busy {
            // The original is in progress; DELAY makes the client retry.
            return Err(if self.last == Some(seqid) { Status::Delay } else { Status::BadSeqId });
        }
        match self.last {
            Some(last) if seqid == last => {
                let kept = self.kept.as_ref().filter(|kept| kept.opcode == opcode);
                kept.cloned().map(SeqidCheck::Again).ok_or(Status::BadSeqId)
            }
            Some(last) if seqid != last.wrapping_add(1) => Err(Status::BadSeqId),
            _ => {
                self.last = Some(seqid);
                self.busy = true;
                Ok(SeqidCheck::Next)
            }
        }
    }

    /// Starts or continues a lock owner's sequence with this number, in a request that is counted for its open owner.
    pub(super) fn start(&mut self, seqid: u32) {
        self.last = Some(seqid);
        self.kept = None;
    }

    /// Ends a request. After some errors the number is not advanced, because the client does not count them.
    pub(super) fn finish(&mut self, kept: Kept) {
        self.busy = false;
        if counts(kept.status) {
            self.kept = Some(kept);
        } else {
            self.last = self.last.map(|n| n.wrapping_sub(1));
            self.kept = None;
        }
    }

    /// True if no request was counted, as for clients with slots.
    pub(super) fn is_unused(&self) -> bool {
        self.last.is_none()
    }

    /// True if this number is next.
    pub(super) fn is_next(&self, seqid: u32) -> bool {
        !self.busy && self.last.is_none_or(|last| seqid == last.wrapping_add(1))
    }

    /// True if this is the number of the last request, and it succeeded.
    pub(super) fn is_last_success(&self, seqid: u32) -> bool {
        self.last == Some(seqid) && self.kept.as_ref().is_some_and(|k| k.status == Status::Ok)
    }

    /// True while a request is in progress.
    pub(super) fn is_busy(&self) -> bool {
        self.busy
    }
}

/// RFC 7530 section 9.1.7: false for errors after which the client does not count the request.
fn counts(status: Status) -> bool {
    !matches!(
        status,
        Status::StaleClientId
            | Status::StaleStateId
            | Status::BadStateId
            | Status::BadSeqId
            | Status::BadXdr
            | Status::Resource
            | Status::NoFileHandle
            | Status::Moved
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(status: Status, n: u8) -> Kept {
        Kept { opcode: 1, status, body: Arc::from([n]), current: None }
    }

    fn next(o: &mut OpenOwnerSeqid, seqid: u32) -> bool {
        matches!(o.begin(seqid, 1), Ok(SeqidCheck::Next))
    }

    #[test]
    fn owner_sequence_allows_last_retransmission() {
        let mut o = OpenOwnerSeqid::default();
        assert!(next(&mut o, 40), "a new owner begins anywhere");
        assert_eq!(o.begin(40, 1).err(), Some(Status::Delay));
        assert_eq!(o.begin(41, 1).err(), Some(Status::BadSeqId));
        o.finish(kept(Status::Ok, 1));
        assert!(matches!(o.begin(40, 1), Ok(SeqidCheck::Again(k)) if *k.body == [1]));
        assert_eq!(o.begin(40, 2).err(), Some(Status::BadSeqId), "another operation");
        assert_eq!(o.begin(42, 1).err(), Some(Status::BadSeqId));
        assert_eq!(o.begin(39, 1).err(), Some(Status::BadSeqId));
        assert!(next(&mut o, 41));
        o.finish(kept(Status::Denied, 2));
        assert!(matches!(o.begin(41, 1), Ok(SeqidCheck::Again(k)) if k.status == Status::Denied));
    }

    #[test]
    fn some_errors_keep_sequence_number() {
        let mut o = OpenOwnerSeqid::default();
        assert!(next(&mut o, 1));
        o.finish(kept(Status::Ok, 1));
        assert!(next(&mut o, 2));
        o.finish(kept(Status::BadStateId, 2));
        assert!(next(&mut o, 2), "the same number again is the next request");
    }
}
