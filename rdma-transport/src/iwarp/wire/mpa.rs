//! MPA: start frames (RFC 5044 section 7.1, RFC 6581) and the frame around each ULPDU (RFC 5044 section 4).

use crc_fast::{CrcAlgorithm, Digest};

use super::field;

/// First 16 bytes of a request.
pub const REQUEST_KEY: &[u8; 16] = b"MPA ID Req Frame";
/// First 16 bytes of a reply.
pub const REPLY_KEY: &[u8; 16] = b"MPA ID Rep Frame";
/// Bytes of a start frame without private data.
pub const START_LEN: usize = 20;
/// Largest private data of a start frame, including [`Enhanced`], in bytes (RFC 5044 section 7.1.1).
pub const PRIVATE_DATA_MAX: usize = 512;
/// Bytes of [`Enhanced`].
pub const ENHANCED_LEN: usize = 4;
/// Largest valid IRD or ORD.
pub const DEPTH_MAX: u16 = 0x3ffe;
/// IRD or ORD of a sender that does not specify it (RFC 6581 section 9.1).
pub const DEPTH_UNSAID: u16 = 0x3fff;

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;
const ENHANCED: u8 = 0x10;
const LARGE_FPDUS: u8 = 0x08;

/// A request or reply frame without its private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    pub reply: bool,
    /// M: the sender wants to receive markers.
    pub markers: bool,
    /// C: the sender wants a CRC in every FPDU.
    pub crc: bool,
    /// R: the connection is refused.
    pub reject: bool,
    /// S: the private data begins with [`Enhanced`].
    pub enhanced: bool,
    /// siw's experimental bit: the sender accepts FPDUs larger than the path's MSS.
    pub large_fpdus: bool,
    /// 1 (RFC 5044) or 2 (RFC 6581).
    pub revision: u8,
    /// Bytes of private data that follow.
    pub private_len: u16,
}

impl Start {
    /// Parses a frame; `None` if it has neither key. The revision is not checked.
    pub fn parse(b: &[u8; START_LEN]) -> Option<Self> {
        let reply = match &field::<16>(b, 0) {
            REQUEST_KEY => false,
            REPLY_KEY => true,
            _ => return None,
        };
        let flags = b[16];
        Some(Self {
            reply,
            markers: flags & MARKERS != 0,
            crc: flags & CRC != 0,
            reject: flags & REJECT != 0,
            enhanced: flags & ENHANCED != 0,
            large_fpdus: flags & LARGE_FPDUS != 0,
            revision: b[17],
            private_len: u16::from_be_bytes(field(b, 18)),
        })
    }

    /// The bytes of the frame.
    pub fn emit(&self) -> [u8; START_LEN] {
        let mut b = [0; START_LEN];
        b[..16].copy_from_slice(if self.reply { REPLY_KEY } else { REQUEST_KEY });
        for (set, bit) in [
            (self.markers, MARKERS),
            (self.crc, CRC),
            (self.reject, REJECT),
            (self.enhanced, ENHANCED),
            (self.large_fpdus, LARGE_FPDUS),
        ] {
            b[16] |= if set { bit } else { 0 };
        }
        b[17] = self.revision;
        b[18..].copy_from_slice(&self.private_len.to_be_bytes());
        b
    }
}

/// Frames with which the initiator may let the responder send (RFC 6581 section 9.1, flags B, C and D).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rtr {
    /// B: a Send without data.
    pub send: bool,
    /// C: an RDMA Write without data.
    pub write: bool,
    /// D: an RDMA Read without data.
    pub read: bool,
}

/// The first four bytes of private data in enhanced mode (RFC 6581 section 9.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enhanced {
    /// Concurrent RDMA Reads that the sender accepts, 14 bits.
    pub ird: u16,
    /// Concurrent RDMA Reads that the sender wants to issue, 14 bits.
    pub ord: u16,
    /// A: either side may send first, after the initiator's RTR frame.
    pub peer_to_peer: bool,
    /// B, C, D.
    pub rtr: Rtr,
}

impl Enhanced {
    pub fn parse(b: &[u8; ENHANCED_LEN]) -> Self {
        let (i, o) = (u16::from_be_bytes(field(b, 0)), u16::from_be_bytes(field(b, 2)));
        Self {
            ird: i & DEPTH_UNSAID,
            ord: o & DEPTH_UNSAID,
            peer_to_peer: i & 0x8000 != 0,
            rtr: Rtr { send: i & 0x4000 != 0, write: o & 0x8000 != 0, read: o & 0x4000 != 0 },
        }
    }

    /// The bytes of the words.
    pub fn emit(&self) -> [u8; ENHANCED_LEN] {
        let bit = |set: bool, bit: u16| if set { bit } else { 0 };
        let i =
            self.ird & DEPTH_UNSAID | bit(self.peer_to_peer, 0x8000) | bit(self.rtr.send, 0x4000);
        let o = self.ord & DEPTH_UNSAID | bit(self.rtr.write, 0x8000) | bit(self.rtr.read, 0x4000);
        let ([a, b], [c, d]) = (i.to_be_bytes(), o.to_be_bytes());
        [a, b, c, d]
    }
}

/// Bytes of the length field in front of each ULPDU.
pub const LENGTH_LEN: usize = 2;
/// Bytes of the CRC field after each ULPDU; it is present, and zero, even without CRC.
pub const CRC_LEN: usize = 4;

/// Bytes of a marker.
pub const MARKER_LEN: usize = 4;
/// Distance of markers in the stream of FPDUs, the first of which is in front of the first FPDU (RFC 5044 section 4.3).
pub const MARKER_INTERVAL: usize = 512;

/// The marker at a distance of `back` bytes after the length field of its FPDU; 0 if it is in front of that field.
pub fn marker(back: u64) -> [u8; MARKER_LEN] {
    // Invariant: an FPDU with its markers is shorter than 64 KiB ([`ULPDU_MAX`]).
    let [high, low] = u16::try_from(back).unwrap_or(0).to_be_bytes();
    [0, 0, high, low]
}

/// Largest ULPDU that this side sends (RFC 5044 section 4.1); received ones may have up to 65,535 bytes.
pub const ULPDU_MAX: usize = 64_768;

/// Zero bytes between a ULPDU of `ulpdu_len` bytes and its CRC field.
pub fn pad(ulpdu_len: usize) -> usize {
    (LENGTH_LEN + ulpdu_len).wrapping_neg() % 4
}

/// CRC32C of an FPDU from its length field to its padding, computed incrementally.
pub struct Crc(Option<Digest>);

impl Crc {
    /// `on`: the connection uses CRCs; otherwise the field is zero.
    pub fn new(on: bool) -> Self {
        Self(on.then(|| Digest::new(CrcAlgorithm::Crc32Iscsi)))
    }

    /// Resets the CRC at the start of an FPDU.
    pub fn start(&mut self) {
        if let Some(d) = &mut self.0 {
            d.reset();
        }
    }

    /// Adds these bytes to the CRC.
    pub fn update(&mut self, bytes: &[u8]) {
        if let Some(d) = &mut self.0 {
            d.update(bytes);
        }
    }

    /// The CRC field of the FPDU, least significant byte first, as in iSCSI (RFC 5044 section 4.4).
    pub fn field(&self) -> [u8; CRC_LEN] {
        // The algorithm has 32 bits; the upper half of the result is zero.
        #[allow(clippy::cast_possible_truncation)]
        self.0.as_ref().map_or([0; CRC_LEN], |d| (d.finalize() as u32).to_le_bytes())
    }

    /// True if `field` is correct. Every value is accepted if CRCs are not in use.
    pub fn matches(&self, field: [u8; CRC_LEN]) -> bool {
        self.0.is_none() || self.field() == field
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hex(s: &str) -> Vec<u8> {
        let s: String = s.split_whitespace().collect();
        (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).unwrap()).collect()
    }

    /// The request of a Linux 6.12 NFS client on siw.
    #[test]
    fn linux_nfs_request() {
        let b = hex("4d504120494420526571204672616d65 10 02 000c 0080 0000 f6ab0e18 01 01 03 03");
        let s = Start::parse(&field(&b, 0)).unwrap();
        let want = Start {
            reply: false,
            markers: false,
            crc: false,
            reject: false,
            enhanced: true,
            large_fpdus: false,
            revision: 2,
            private_len: 12,
        };
        assert_eq!(s, want);
        assert_eq!(s.emit(), b[..20]);
        let e = Enhanced::parse(&field(&b, 20));
        assert_eq!(e, Enhanced { ird: 128, ord: 0, ..Enhanced::default() });
        assert_eq!(e.emit(), b[20..24]);
    }

    /// The reply of knfsd on siw, and one that enables the CRC.
    #[test]
    fn linux_replies() {
        let b = hex("4d504120494420526570204672616d65 10 02 000c 0000 0080 f6ab0e18 01 00 03 03");
        let s = Start::parse(&field(&b, 0)).unwrap();
        assert!(s.reply && s.enhanced && !s.crc && !s.reject);
        assert_eq!(Enhanced::parse(&field(&b, 20)).ord, 128);
        assert_eq!(s.emit(), b[..20]);
        let crc = Start { crc: true, ..s };
        assert_eq!(crc.emit()[16], 0x50);
    }

    #[test]
    fn flags_of_enhanced_mode() {
        let all = Rtr { send: true, write: true, read: true };
        let e = Enhanced { ird: 1, ord: 2, peer_to_peer: true, rtr: all };
        assert_eq!(e.emit(), [0xc0, 0x01, 0xc0, 0x02]);
        assert_eq!(Enhanced::parse(&e.emit()), e);
    }

    #[test]
    fn no_key_is_no_frame() {
        assert_eq!(Start::parse(b"GET / HTTP/1.1\r\n\r\n  "), None);
    }

    #[test]
    fn frames_are_whole_words() {
        for n in 0..32 {
            assert_eq!((LENGTH_LEN + n + pad(n) + CRC_LEN) % 4, 0);
            assert!(pad(n) < 4);
        }
    }

    /// The check value of CRC-32C is 0xe3069283.
    #[test]
    fn crc_bytes_in_order() {
        let mut c = Crc::new(true);
        c.update(b"garbage");
        c.start();
        c.update(b"1234");
        c.update(b"56789");
        assert_eq!(c.field(), [0x83, 0x92, 0x06, 0xe3]);
        assert!(c.matches([0x83, 0x92, 0x06, 0xe3]) && !c.matches([0; 4]));
        let off = Crc::new(false);
        assert_eq!(off.field(), [0; 4]);
        assert!(off.matches([1, 2, 3, 4]));
    }

    proptest! {
        #[test]
        fn start_round_trip(flags: u8, revision: u8, private_len: u16, reply: bool) {
            let mut b = [0; START_LEN];
            b[..16].copy_from_slice(if reply { REPLY_KEY } else { REQUEST_KEY });
            b[16] = flags & 0xf8;
            b[17] = revision;
            b[18..].copy_from_slice(&private_len.to_be_bytes());
            prop_assert_eq!(Start::parse(&b).unwrap().emit(), b);
        }

        #[test]
        fn enhanced_round_trip(b: [u8; 4]) {
            prop_assert_eq!(Enhanced::parse(&b).emit(), b);
        }
    }
}
