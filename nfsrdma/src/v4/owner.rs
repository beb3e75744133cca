//! Open owners and lock owners, and the sequence numbers by which minor version 0 keeps their requests in order (RFC 7530
//! section 9.1.7). Pure.

use std::sync::Arc;

use vfs::Handle;

use super::status::Status;

/// The last reply to an owner, to be given again to a repetition.
#[derive(Clone)]
pub(super) struct Kept {
    /// Which operation it was.
    pub(super) opcode: u32,
    /// How the operation ended.
    pub(super) status: Status,
    /// The body of its result.
    pub(super) body: Arc<[u8]>,
    /// The file that an OPEN made the current one: the number of its share, and its handle there. Nothing of the first caller is
    /// kept, because the repetition may be another's, or the first caller's after it lost a right.
    pub(super) current: Option<(u32, Handle)>,
}

/// The order of the requests of one owner. Clients of minor version 1 and up have slots instead and never touch it.
#[derive(Default)]
pub(super) struct OpenOwnerSeqid {
    last: Option<u32>,
    busy: bool,
    kept: Option<Kept>,
}

/// What a request of an owner is.
pub(super) enum SeqidCheck {
    /// The next one: do it, then [`OpenOwnerSeqid::finish`].
    Next,
    /// A repetition of the last one.
    Again(Kept),
}

impl OpenOwnerSeqid {
    /// A request has come. An owner that is not known yet may begin anywhere. Another operation under the last number is no
    /// repetition.
    pub(super) fn begin(&mut self, seqid: u32, opcode: u32) -> Result<SeqidCheck, Status> {
        if self.busy {
            // The original is being executed; the client's patience is not lost by asking again.
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

    /// A lock owner begins or goes on with this number, in a request that is counted for its open owner.
    pub(super) fn start(&mut self, seqid: u32) {
        self.last = Some(seqid);
        self.kept = None;
    }

    /// The request has been done. Some errors leave the number as it was: the client does not count them.
    pub(super) fn finish(&mut self, kept: Kept) {
        self.busy = false;
        if counts(kept.status) {
            self.kept = Some(kept);
        } else {
            self.last = self.last.map(|n| n.wrapping_sub(1));
            self.kept = None;
        }
    }

    /// Its client has slots: no request was ever counted here.
    pub(super) fn is_unused(&self) -> bool {
        self.last.is_none()
    }

    /// This number would be the next request's.
    pub(super) fn is_next(&self, seqid: u32) -> bool {
        !self.busy && self.last.is_none_or(|last| seqid == last.wrapping_add(1))
    }

    /// This is the number of the last request, which succeeded.
    pub(super) fn is_last_success(&self, seqid: u32) -> bool {
        self.last == Some(seqid) && self.kept.as_ref().is_some_and(|k| k.status == Status::Ok)
    }

    /// A request is being executed.
    pub(super) fn is_busy(&self) -> bool {
        self.busy
    }
}

/// RFC 7530 section 9.1.7: the errors after which the client does not count the request.
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
    fn requests_come_in_order_and_the_last_may_be_repeated() {
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
    fn some_errors_are_not_counted() {
        let mut o = OpenOwnerSeqid::default();
        assert!(next(&mut o, 1));
        o.finish(kept(Status::Ok, 1));
        assert!(next(&mut o, 2));
        o.finish(kept(Status::BadStateId, 2));
        assert!(next(&mut o, 2), "the same number again is the next request");
    }
}
