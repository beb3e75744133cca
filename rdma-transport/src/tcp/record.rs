//! Record marks (RFC 5531 section 11). No I/O.

use crate::limits;

/// Bytes of a mark.
pub const MARK_LEN: usize = 4;
const LAST: u32 = 1 << 31;

/// The four bytes before each fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The fragment ends its record.
    pub last: bool,
    /// Bytes of the fragment.
    pub len: u32,
}

impl Mark {
    pub fn parse(bytes: [u8; MARK_LEN]) -> Self {
        let word = u32::from_be_bytes(bytes);
        Self { last: word & LAST != 0, len: word & !LAST }
    }

    /// Encodes a mark. Lengths above 31 bits are truncated.
    pub fn emit(self) -> [u8; MARK_LEN] {
        let last = if self.last { LAST } else { 0 };
        (last | (self.len & !LAST)).to_be_bytes()
    }
}

/// A violated rule of record marking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A record is longer than [`limits::RPC_RECORD_MAX`].
    TooLong(usize),
    /// A record shorter than a transaction id and a message type (RFC 5531 section 9).
    TooShort(usize),
    /// A record has more than [`limits::RECORD_FRAGMENTS_MAX`] fragments.
    Fragments,
    /// A record has more than [`limits::RECORD_EMPTY_FRAGMENTS_MAX`] empty fragments.
    EmptyFragments,
}

crate::rule_names!(Violation {
    Violation::TooLong(_) => "rpc.record.too-long",
    Violation::TooShort(_) => "rpc.record.too-short",
    Violation::Fragments => "rpc.record.fragments",
    Violation::EmptyFragments => "rpc.record.empty-fragments",
});

impl Violation {
    /// Details for the log.
    pub fn detail(self) -> String {
        match self {
            Self::TooLong(n) => format!("record of {n} bytes, at most {}", limits::RPC_RECORD_MAX),
            Self::TooShort(n) => format!("record of {n} bytes"),
            Self::Fragments => format!("over {} fragments", limits::RECORD_FRAGMENTS_MAX),
            Self::EmptyFragments => {
                format!("over {} empty fragments", limits::RECORD_EMPTY_FRAGMENTS_MAX)
            }
        }
    }
}

/// Follows the fragments of one record.
#[derive(Debug, Default)]
pub struct Fragments {
    count: usize,
    empty: usize,
    total: usize,
}

impl Fragments {
    /// Begins the next fragment. Returns the length of the record up to its end, in bytes.
    pub fn begin(&mut self, mark: Mark) -> Result<usize, Violation> {
        self.count += 1;
        if mark.len == 0 {
            self.empty += 1;
        }
        // 31 bits fit `usize` on all supported targets; saturation keeps the comparison correct on any.
        self.total = self.total.saturating_add(usize::try_from(mark.len).unwrap_or(usize::MAX));
        if self.total > limits::RPC_RECORD_MAX {
            return Err(Violation::TooLong(self.total));
        }
        if self.count > limits::RECORD_FRAGMENTS_MAX {
            return Err(Violation::Fragments);
        }
        if self.empty > limits::RECORD_EMPTY_FRAGMENTS_MAX {
            return Err(Violation::EmptyFragments);
        }
        if mark.last && self.total < limits::RPC_MESSAGE_MIN {
            return Err(Violation::TooShort(self.total));
        }
        Ok(self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(last: bool, len: u32) -> Mark {
        Mark { last, len }
    }

    #[test]
    fn marks_round_trip() {
        for (bytes, m) in [
            ([0x80, 0, 0, 40], mark(true, 40)),
            ([0, 0, 1, 0], mark(false, 256)),
            ([0xff, 0xff, 0xff, 0xff], mark(true, 0x7fff_ffff)),
        ] {
            assert_eq!(Mark::parse(bytes), m);
            assert_eq!(m.emit(), bytes);
        }
    }

    #[test]
    fn every_rule_can_be_broken() {
        let long = u32::try_from(limits::RPC_RECORD_MAX).unwrap();
        assert_eq!(Fragments::default().begin(mark(true, long)), Ok(limits::RPC_RECORD_MAX));
        assert!(matches!(
            Fragments::default().begin(mark(true, long + 1)),
            Err(Violation::TooLong(_))
        ));
        // The limit applies to the record, not to the fragment.
        let mut f = Fragments::default();
        assert!(f.begin(mark(false, long)).is_ok());
        assert!(matches!(f.begin(mark(true, 1)), Err(Violation::TooLong(_))));

        assert_eq!(Fragments::default().begin(mark(true, 7)), Err(Violation::TooShort(7)));
        assert_eq!(Fragments::default().begin(mark(false, 7)), Ok(7));

        let mut f = Fragments::default();
        for _ in 0..limits::RECORD_FRAGMENTS_MAX {
            f.begin(mark(false, 1)).unwrap();
        }
        assert_eq!(f.begin(mark(true, 1)), Err(Violation::Fragments));

        let mut f = Fragments::default();
        for _ in 0..limits::RECORD_EMPTY_FRAGMENTS_MAX {
            f.begin(mark(false, 0)).unwrap();
        }
        assert_eq!(f.begin(mark(false, 0)), Err(Violation::EmptyFragments));
    }
}
