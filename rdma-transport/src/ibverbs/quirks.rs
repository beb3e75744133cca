//! Differences between cards, as data.

/// Vendor of siw, the kernel's software iWARP: "bmt" (`drivers/infiniband/sw/siw/siw.h`).
const SIW: u32 = 0x0062_6d74;

/// Special treatment that a device needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quirks {
    /// The target of an RDMA Read must allow remote writes (RFC 5040 section 5.4: its STag is sent to the peer): it is registered
    /// for each Read, because the key of a slab would give the peer access to the slab.
    pub(super) read_sink_is_remote: bool,
    /// The library rejects inline data together with an invalidation.
    pub(super) invalidates_without_inline: bool,
    /// Requests of at least this many bytes that do not ask for a completion are sent without a copy, and read again if TCP
    /// retransmits: the completion of a later request does not prove that their memory is free. They must therefore check for
    /// completions themselves.
    pub(super) asks_from: usize,
    /// A message that arrives during the accept may remain unread until another one comes: `siw_accept` answers the peer before the
    /// socket's data is routed to the queue pair.
    pub(super) first_may_lie: bool,
}

/// The quirks of a device of this transport and vendor.
pub(super) fn quirks(is_iwarp: bool, vendor: u32) -> Quirks {
    let is_siw = is_iwarp && vendor == SIW;
    Quirks {
        // siw requires only the local write right, and checks that a Response belongs to an outstanding Read.
        read_sink_is_remote: is_iwarp && !is_siw,
        invalidates_without_inline: is_siw,
        // A page (`SENDPAGE_THRESH`), whose size is at least this on every machine.
        asks_from: if is_siw { 4096 } else { usize::MAX },
        first_may_lie: is_siw,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iwarp_read_sink_is_remote() {
        assert!(!quirks(false, 0x02c9).read_sink_is_remote);
        assert!(!quirks(true, SIW).read_sink_is_remote);
        assert!(quirks(true, 0x8086).read_sink_is_remote);
        assert!(quirks(true, SIW).invalidates_without_inline);
    }

    #[test]
    fn siw_completes_large_requests() {
        assert_eq!(quirks(true, SIW).asks_from, 4096);
        assert_eq!(quirks(true, 0x8086).asks_from, usize::MAX);
        assert_eq!(quirks(false, 0x02c9).asks_from, usize::MAX);
    }

    #[test]
    fn siw_needs_first_message_probe() {
        assert!(quirks(true, SIW).first_may_lie);
        assert!(!quirks(true, 0x8086).first_may_lie && !quirks(false, SIW).first_may_lie);
    }
}
