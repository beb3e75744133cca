//! Rules that a peer can violate, each with a stable name, its Terminate message and a process-wide counter.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::wire::terminate::Cause;

macro_rules! violations {
    ($($(#[$doc:meta])* $variant:ident $name:literal $layer:literal/$etype:literal/$code:literal,)*) => {
        /// A rule that the peer violated, with the section that defines it; [`Violation::name`] is stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Violation {
            $($(#[$doc])* $variant,)*
        }

        impl Violation {
            /// All rules, in order of their names.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// A stable name for logs, counters and `Down`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The cause in the Terminate message.
            pub fn cause(self) -> Cause {
                match self { $(Self::$variant => Cause::new($layer, $etype, $code),)* }
            }
        }
    };
}

violations! {
    /// The CRC field does not match the FPDU (RFC 5044 section 4.4).
    CrcMismatch "iwarp_crc_mismatch" 2/0/0x02,
    /// A tagged segment of another DDP version (RFC 5041 section 7.1).
    DdpVersionTagged "iwarp_ddp_version_tagged" 1/1/0x04,
    /// An untagged segment of another DDP version (RFC 5041 section 7.2).
    DdpVersionUntagged "iwarp_ddp_version_untagged" 1/2/0x06,
    /// Send with Invalidate of an STag that is not registered and valid here (RFC 5040 section 5.3).
    InvalidateStag "iwarp_invalidate_stag" 0/1/0x09,
    /// A Send that does not fit the Receive that was posted for it (RFC 5041 section 7.2).
    MessageTooLong "iwarp_message_too_long" 1/2/0x05,
    /// A segment of a Send that does not continue where the one before it ended (RFC 5041 section 7.2).
    MoInvalid "iwarp_mo_invalid" 1/2/0x04,
    /// The responder requests more concurrent RDMA Reads than this side offered (RFC 6581 section 9.2).
    MpaIrdInsufficient "iwarp_mpa_ird_insufficient" 2/0/0x06,
    /// The connection does not begin with an MPA request or reply (RFC 5044 section 7.1.1).
    MpaKey "iwarp_mpa_key" 2/0/0x04,
    /// Private data above 512 bytes, or too short for enhanced mode (RFC 5044 section 7.1.1, RFC 6581 section 9.1).
    MpaPrivateData "iwarp_mpa_private_data" 2/0/0x04,
    /// A revision other than 1 and 2, or other than the requested one (RFC 6581 section 6).
    MpaRevision "iwarp_mpa_revision" 2/0/0x04,
    /// Peer-to-peer mode without a kind of RTR frame that both support (RFC 6581 section 9.2).
    MpaRtrUnmatched "iwarp_mpa_rtr_unmatched" 2/0/0x07,
    /// The start frames did not arrive in time (RFC 5044 section 7.1.2).
    MpaTimeout "iwarp_mpa_timeout" 2/0/0x04,
    /// A message number that is not the next of its queue (RFC 5041 section 7.2).
    MsnInvalid "iwarp_msn_invalid" 1/2/0x03,
    /// A Send for which no Receive is posted (RFC 5041 section 7.2).
    NoReceive "iwarp_no_receive" 1/2/0x02,
    /// A tagged opcode in an untagged segment, or vice versa (RFC 5040 section 4.1).
    OpcodeTagging "iwarp_opcode_tagging" 0/2/0x06,
    /// An undefined opcode, or a different one in the middle of a message (RFC 5040 section 4.1).
    OpcodeUnexpected "iwarp_opcode_unexpected" 0/2/0x06,
    /// An untagged message on the wrong queue (RFC 5041 section 7.2, RFC 5040 section 4.2).
    QueueNumber "iwarp_queue_number" 1/2/0x01,
    /// Another RDMAP version (RFC 5040 section 4.1).
    RdmapVersion "iwarp_rdmap_version" 0/2/0x05,
    /// RDMA Read of a region that the peer may not read (RFC 5040 section 5.4).
    ReadRequestAccess "iwarp_read_request_access" 0/1/0x02,
    /// RDMA Read outside of a region (RFC 5040 section 5.4).
    ReadRequestBounds "iwarp_read_request_bounds" 0/1/0x01,
    /// More concurrent RDMA Reads than the negotiated IRD (RFC 5040 section 5.2.1, RFC 5041 section 7.2).
    ReadRequestLimit "iwarp_read_request_limit" 1/2/0x02,
    /// A Read Request message that is not exactly one header of 28 bytes in one segment (RFC 5040 section 4.4).
    ReadRequestSize "iwarp_read_request_size" 0/2/0xff,
    /// RDMA Read of an STag that is not registered and valid here (RFC 5040 section 5.4).
    ReadRequestStag "iwarp_read_request_stag" 0/1/0x00,
    /// RDMA Read beyond the end of the tagged offsets (RFC 5040 section 5.4).
    ReadRequestWrap "iwarp_read_request_wrap" 0/1/0x04,
    /// A Read Response that does not continue at the current position of the Read (RFC 5041 section 7.1).
    ReadResponseBounds "iwarp_read_response_bounds" 1/1/0x01,
    /// A Read Response that is longer or shorter than requested (RFC 5040 section 5.5).
    ReadResponseLength "iwarp_read_response_length" 1/1/0x01,
    /// A Read Response with an STag other than the oldest outstanding Read's (RFC 5041 section 7.1).
    ReadResponseStag "iwarp_read_response_stag" 1/1/0x00,
    /// A Read Response while no Read is outstanding (RFC 5040 section 5.5).
    ReadResponseUnexpected "iwarp_read_response_unexpected" 0/2/0x06,
    /// A Terminate message that is shorter than its flags announce, or too long (RFC 5040 section 4.8).
    TerminateMalformed "iwarp_terminate_malformed" 0/2/0xff,
    /// A ULPDU that is too short for its headers (RFC 5044 section 4.1).
    UlpduLength "iwarp_ulpdu_length" 2/0/0x03,
    /// RDMA Write to a region that the peer may not write (RFC 5040 section 5.4).
    WriteAccess "iwarp_write_access" 0/1/0x02,
    /// RDMA Write outside of a region (RFC 5041 section 7.1).
    WriteBounds "iwarp_write_bounds" 1/1/0x01,
    /// RDMA Write to an STag that is not registered and valid here (RFC 5041 section 7.1).
    WriteStag "iwarp_write_stag" 1/1/0x00,
    /// RDMA Write beyond the end of the tagged offsets (RFC 5041 section 7.1).
    WriteWrap "iwarp_write_wrap" 1/1/0x03,
}

static COUNTS: [AtomicU64; Violation::ALL.len()] =
    [const { AtomicU64::new(0) }; Violation::ALL.len()];

impl Violation {
    pub(crate) fn count(self) {
        COUNTS[self as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for Violation {}

/// The number of violations of each rule since the process began, in order of names, including zeros.
pub fn violations() -> Vec<(&'static str, u64)> {
    Violation::ALL.iter().map(|v| (v.name(), COUNTS[*v as usize].load(Ordering::Relaxed))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_in_order() {
        assert!(Violation::ALL.is_sorted_by(|a, b| a.name() < b.name()));
        assert!(Violation::ALL.iter().enumerate().all(|(i, v)| *v as usize == i));
    }

    #[test]
    fn violation_count_is_reported() {
        let of = |name| violations().into_iter().find(|(n, _)| *n == name).unwrap().1;
        let before = of("iwarp_write_wrap");
        Violation::WriteWrap.count();
        assert!(of("iwarp_write_wrap") > before);
    }
}
