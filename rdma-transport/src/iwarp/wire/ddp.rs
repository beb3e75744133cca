//! DDP segment headers (RFC 5041 section 4).

use super::field;

/// Bytes of a tagged header.
pub const TAGGED_LEN: usize = 14;
/// Bytes of an untagged header.
pub const UNTAGGED_LEN: usize = 18;
/// The only DDP version that is supported.
pub const VERSION: u8 = 1;

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const VERSION_MASK: u8 = 0x03;

/// Untagged queues that RDMAP uses (RFC 5040 section 4.2).
pub mod queue {
    pub const SEND: u32 = 0;
    /// Queue number for RDMA Read Requests.
    pub const READ_REQUEST: u32 = 1;
    pub const TERMINATE: u32 = 2;
}

/// True if the control octet marks a tagged segment, which determines the length of the header.
pub fn is_tagged(control: u8) -> bool {
    control & TAGGED != 0
}

/// The DDP version in the control octet.
pub fn version(control: u8) -> u8 {
    control & VERSION_MASK
}

/// A tagged segment: the header contains the destination of its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// L: the last segment of its message.
    pub last: bool,
    /// RsvdULP: the RDMAP control octet.
    pub ulp: u8,
    pub stag: u32,
    /// TO: tagged offset of the first byte.
    pub to: u64,
}

impl Tagged {
    /// Parses a header whose control octet is tagged.
    pub fn parse(b: &[u8; TAGGED_LEN]) -> Self {
        Self {
            last: b[0] & LAST != 0,
            ulp: b[1],
            stag: u32::from_be_bytes(field(b, 2)),
            to: u64::from_be_bytes(field(b, 6)),
        }
    }

    /// The bytes of the header.
    pub fn emit(&self) -> [u8; TAGGED_LEN] {
        let mut b = [0; TAGGED_LEN];
        b[0] = TAGGED | if self.last { LAST } else { 0 } | VERSION;
        b[1] = self.ulp;
        b[2..6].copy_from_slice(&self.stag.to_be_bytes());
        b[6..].copy_from_slice(&self.to.to_be_bytes());
        b
    }
}

/// An untagged segment: its data belongs to the next buffer of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untagged {
    /// L: the last segment of its message.
    pub last: bool,
    /// RsvdULP, first octet: the RDMAP control octet.
    pub ulp: u8,
    /// RsvdULP, further 32 bits: the STag of a Send with Invalidate.
    pub ulp_word: u32,
    /// QN.
    pub queue: u32,
    /// MSN, counted from 1 on each queue.
    pub msn: u32,
    /// MO: offset of the first byte in the message.
    pub mo: u32,
}

impl Untagged {
    /// Parses a header whose control octet is untagged.
    pub fn parse(b: &[u8; UNTAGGED_LEN]) -> Self {
        let word = |at| u32::from_be_bytes(field(b, at));
        Self {
            last: b[0] & LAST != 0,
            ulp: b[1],
            ulp_word: word(2),
            queue: word(6),
            msn: word(10),
            mo: word(14),
        }
    }

    /// The bytes of the header.
    pub fn emit(&self) -> [u8; UNTAGGED_LEN] {
        let mut b = [0; UNTAGGED_LEN];
        b[0] = if self.last { LAST } else { 0 } | VERSION;
        b[1] = self.ulp;
        for (at, word) in [(2, self.ulp_word), (6, self.queue), (10, self.msn), (14, self.mo)] {
            b[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        b
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The first FPDU of a Linux NFS client, from its DDP control octet on.
    #[test]
    fn linux_first_send() {
        let b = [0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        assert!(!is_tagged(b[0]));
        assert_eq!(version(b[0]), VERSION);
        let u = Untagged::parse(&b);
        let want = Untagged { last: true, ulp: 0x43, ulp_word: 0, queue: 0, msn: 1, mo: 0 };
        assert_eq!(u, want);
        assert_eq!(u.emit(), b);
    }

    #[test]
    fn tagged_and_last() {
        let t = Tagged { last: true, ulp: 0x40, stag: 0x0102_0304, to: 0xff11_0000_0000_0008 };
        let b = [0xc1, 0x40, 1, 2, 3, 4, 0xff, 0x11, 0, 0, 0, 0, 0, 8];
        assert_eq!(t.emit(), b);
        assert!(is_tagged(b[0]));
        assert_eq!(Tagged::parse(&b), t);
    }

    proptest! {
        #[test]
        fn round_trips(last: bool, ulp: u8, a: u32, b: u32, c: u32, d: u32, to: u64) {
            let t = Tagged { last, ulp, stag: a, to };
            prop_assert_eq!(Tagged::parse(&t.emit()), t);
            let u = Untagged { last, ulp, ulp_word: a, queue: b, msn: c, mo: d };
            prop_assert_eq!(Untagged::parse(&u.emit()), u);
            prop_assert!(is_tagged(t.emit()[0]) && !is_tagged(u.emit()[0]));
        }
    }
}
