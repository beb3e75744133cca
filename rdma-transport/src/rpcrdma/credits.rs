//! Counts granted credits and requests in progress. No I/O. RFC 8166 section 3.3.1, RFC 8167 section 4.1.

use super::check::Violation;

/// The granting side.
#[derive(Debug)]
pub(super) struct Granting {
    granted: usize,
    in_work: usize,
}

impl Granting {
    /// Grants `granted` credits. A Receive must be posted for each that is not in use.
    pub(super) fn new(granted: u16) -> Self {
        Self { granted: usize::from(granted.max(1)), in_work: 0 }
    }

    /// Raises the grant; it never decreases.
    pub(super) fn raise(&mut self, granted: u16) {
        self.granted = self.granted.max(usize::from(granted));
    }

    /// The grant to put into replies.
    pub(super) fn granted(&self) -> u32 {
        u32::try_from(self.granted).unwrap_or(u32::MAX)
    }

    /// Requests received and not answered.
    pub(super) fn in_work(&self) -> usize {
        self.in_work
    }

    /// Counts a received request.
    pub(super) fn begin(&mut self) -> Result<(), Violation> {
        if self.in_work == self.granted {
            return Err(Violation::CreditsOverrun);
        }
        self.in_work += 1;
        Ok(())
    }

    /// Counts an answered or dropped request.
    pub(super) fn end(&mut self) {
        debug_assert!(self.in_work > 0, "each request ends once");
        self.in_work = self.in_work.saturating_sub(1);
    }
}

/// The requesting side.
#[derive(Debug)]
pub(super) struct Asking {
    wanted: usize,
    granted: usize,
    under_way: usize,
}

impl Asking {
    /// Wants `wanted` concurrent requests; may send one until the peer announces its grant.
    pub(super) fn new(wanted: u16) -> Self {
        Self { wanted: usize::from(wanted.max(1)), granted: 1, under_way: 0 }
    }

    /// The number to put into calls.
    pub(super) fn wanted(&self) -> u32 {
        u32::try_from(self.wanted).unwrap_or(u32::MAX)
    }

    /// True if another call may be sent.
    pub(super) fn has_room(&self) -> bool {
        self.under_way < self.granted
    }

    /// Counts a sent call.
    pub(super) fn begin(&mut self) {
        self.under_way += 1;
    }

    /// Counts a reply with its grant. A grant of zero would block the connection, so at least one is assumed.
    pub(super) fn end(&mut self, granted: u32) {
        self.under_way = self.under_way.saturating_sub(1);
        self.granted = usize::try_from(granted).unwrap_or(usize::MAX).clamp(1, self.wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceeding_granted_credits_is_violation() {
        let mut c = Granting::new(2);
        assert_eq!(c.granted(), 2);
        c.begin().unwrap();
        c.begin().unwrap();
        assert_eq!(c.begin(), Err(Violation::CreditsOverrun));
        c.end();
        c.begin().unwrap();
        assert_eq!(c.in_work(), 2);
        assert_eq!(Granting::new(0).granted(), 1, "never 0");
    }

    #[test]
    fn requester_starts_with_one_credit() {
        let mut c = Asking::new(8);
        c.begin();
        assert!(!c.has_room());
        c.end(4);
        for _ in 0..4 {
            assert!(c.has_room());
            c.begin();
        }
        assert!(!c.has_room());
        c.end(0);
        c.end(0);
        c.end(0);
        assert!(!c.has_room(), "a grant of 0 counts as 1, and one is under way");
        c.end(1000);
        (0..8).for_each(|_| {
            assert!(c.has_room());
            c.begin();
        });
        assert!(!c.has_room(), "never more than wanted");
    }
}
