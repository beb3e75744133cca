//! Channel sequences: requests of a lost connection must not be executed after later ones of the same client on another connection
//! (MS-SMB2 sections 3.3.5.2.10 and 3.3.4.1). Pure.
//!
//! *Operation.* A client counts its lost connections and sends the number with every request. An open counts the requests in
//! progress with the latest number, and those with earlier ones. A request that changes a file is refused if it has an earlier
//! number, or if it is a replay while requests with earlier numbers are in progress.

use std::sync::Mutex;

use mutex::locked;

use crate::status::Status;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    /// `Open.ChannelSequence`
    latest: u16,
    /// `Open.OutstandingRequestCount`
    in_work: u32,
    /// `Open.OutstandingPreRequestCount`
    in_work_before: u32,
}

/// An open's view of its client's channel sequence.
#[derive(Debug, Default)]
pub(crate) struct Sequence(Mutex<State>);

/// The number of a request in progress; `None` if it was not counted.
pub(crate) type Counted = Option<u16>;

impl State {
    fn begin(&mut self, number: u16, replay: bool) -> Result<Counted, Status> {
        let ahead = number.wrapping_sub(self.latest);
        if ahead > 0x7fff {
            return Err(Status::FILE_NOT_AVAILABLE);
        }
        if ahead != 0 {
            self.in_work_before += self.in_work;
            self.in_work = 0;
            self.latest = number;
        }
        if replay && self.in_work_before > 0 {
            return Err(Status::FILE_NOT_AVAILABLE);
        }
        self.in_work += 1;
        Ok(Some(number))
    }

    fn end(&mut self, number: u16) {
        let count =
            if number == self.latest { &mut self.in_work } else { &mut self.in_work_before };
        *count = count.saturating_sub(1);
    }
}

impl Sequence {
    /// Starts with the number of the request that made the open.
    pub(crate) fn new(number: u16) -> Self {
        Self(Mutex::new(State { latest: number, ..State::default() }))
    }

    /// Begins a request. `changes`: it is a WRITE, SET_INFO or IOCTL; other requests are accepted with any number.
    pub(crate) fn begin(
        &self,
        number: u16,
        replay: bool,
        changes: bool,
    ) -> Result<Counted, Status> {
        match self.lock().begin(number, replay) {
            Err(_) if !changes => Ok(None),
            other => other,
        }
    }

    /// Ends an answered request.
    pub(crate) fn end(&self, counted: Counted) {
        if let Some(number) = counted {
            self.lock().end(number);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // The state is consistent after every step.
        locked(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: Result<Counted, Status> = Err(Status::FILE_NOT_AVAILABLE);

    #[test]
    fn an_earlier_number_changes_nothing_any_more() {
        let s = Sequence::new(5);
        assert_eq!(s.begin(5, false, true), Ok(Some(5)));
        assert_eq!(s.begin(6, false, true), Ok(Some(6)));
        assert_eq!(s.begin(5, false, true), REFUSED);
        assert_eq!(s.begin(5, false, false), Ok(None), "reading goes on");
        assert_eq!(s.begin(6 + 0x7fff, false, true), Ok(Some(6 + 0x7fff)));
        assert_eq!(s.begin(6, false, true), REFUSED);
    }

    #[test]
    fn numbers_wrap() {
        let s = Sequence::new(0xffff);
        assert_eq!(s.begin(0, false, true), Ok(Some(0)));
        assert_eq!(s.begin(0xffff, false, true), REFUSED);
        assert_eq!(s.begin(0x8000, false, true), REFUSED, "more than half the way");
    }

    #[test]
    fn what_is_sent_again_waits_for_what_was_sent_before() {
        let s = Sequence::new(0);
        let lost = s.begin(0, false, true).unwrap();
        assert_eq!(s.begin(1, true, true), REFUSED, "the first one is still in work");
        s.end(lost);
        assert_eq!(s.begin(1, true, true), Ok(Some(1)));
        assert_eq!(s.begin(1, true, true), Ok(Some(1)), "its own number does not hold it back");
    }
}
