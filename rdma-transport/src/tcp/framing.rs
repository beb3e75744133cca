//! Framing of messages on a byte stream. No I/O.

use super::record::{Fragments, MARK_LEN, Mark};
use super::{direct, record};
use crate::limits;

/// The kind of framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// RPC record marks (RFC 5531 section 11). Bulk data is XDR: padded to four bytes.
    Record,
    /// SMB's Direct TCP transport (MS-SMB2 section 2.1).
    Direct,
}

/// A violated rule of the framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A violated rule of record marking.
    Record(record::Violation),
    /// A violated rule of Direct TCP.
    Direct(direct::Violation),
}

impl Violation {
    /// Stable name, for logs and counters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Record(v) => v.name(),
            Self::Direct(v) => v.name(),
        }
    }

    /// Details for the log.
    pub fn detail(self) -> String {
        match self {
            Self::Record(v) => v.detail(),
            Self::Direct(v) => v.detail(),
        }
    }
}

/// The meaning of four bytes between messages.
#[derive(Debug)]
pub(super) enum Next {
    /// A message of this size, in one piece.
    Whole(usize),
    /// A record in several fragments, with the mark of the first.
    Fragment(Mark),
    /// The bytes contain no message and are skipped.
    Skip,
}

impl Framing {
    pub(super) fn next(self, four: [u8; MARK_LEN]) -> Result<Next, Violation> {
        match self {
            Self::Record => {
                let mark = Mark::parse(four);
                let total = Fragments::default().begin(mark).map_err(Violation::Record)?;
                Ok(if mark.last { Next::Whole(total) } else { Next::Fragment(mark) })
            }
            Self::Direct => match direct::Prefix::parse(four).map_err(Violation::Direct)? {
                direct::Prefix::Message(total) => Ok(Next::Whole(total)),
                direct::Prefix::KeepAlive => Ok(Next::Skip),
            },
        }
    }

    /// Encodes the bytes before a message of this length; `None` if it is too long.
    pub(super) fn before(self, len: usize) -> Option<[u8; MARK_LEN]> {
        match self {
            Self::Record => {
                let len = u32::try_from(len).ok().filter(|len| len >> 31 == 0)?;
                Some(Mark { last: true, len }.emit())
            }
            Self::Direct => direct::Prefix::emit(len),
        }
    }

    /// Bytes of padding after bulk data of this length.
    pub(super) fn pad(self, bulk: usize) -> usize {
        match self {
            Self::Record => bulk.wrapping_neg() % 4,
            Self::Direct => 0,
        }
    }

    /// Largest bulk data read directly into place. An encrypted SMB message consists of bulk data entirely, as do the arguments of
    /// a krb5p call.
    pub(super) fn bulk_max(self) -> usize {
        match self {
            Self::Record => limits::RPC_RECORD_MAX,
            Self::Direct => limits::SMB_MESSAGE_MAX,
        }
    }

    /// Bytes to be paid for before a message of this (or unknown) length is assembled on the heap.
    pub(super) fn price(self, total: Option<usize>) -> usize {
        match self {
            Self::Record => total.unwrap_or(limits::RPC_RECORD_MAX),
            Self::Direct => total.unwrap_or(limits::SMB_MESSAGE_MAX),
        }
    }
}
