//! What cards do differently from each other, as data.

/// Vendor of siw, the kernel's software iWARP: "bmt" (`drivers/infiniband/sw/siw/siw.h`).
const SIW: u32 = 0x0062_6d74;

/// What to mind with one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quirks {
    /// The target of an RDMA Read has to allow writes of the peer (RFC 5040 section 5.4: its STag goes over the wire): it is
    /// registered for this Read alone, since the key of a slab would open it to the peer.
    pub(super) read_sink_is_remote: bool,
    /// The library takes no inline data with an invalidation.
    pub(super) invalidates_without_inline: bool,
    /// From so many bytes on, what asks for no completion leaves without a copy, and is read again when TCP sends it again: the
    /// completion of what comes after it does not prove that its memory may be used for something else. It has to ask itself.
    pub(super) asks_from: usize,
    /// What the peer sends while its connection is being accepted may lie unread until more comes: `siw_accept` answers the peer
    /// before it lets data of the socket come to the queue pair.
    pub(super) first_may_lie: bool,
}

/// What to mind with a device of this transport and vendor.
pub(super) fn quirks(is_iwarp: bool, vendor: u32) -> Quirks {
    let is_siw = is_iwarp && vendor == SIW;
    Quirks {
        // siw asks for the right to write locally, and checks that the Response belongs to a Read of this side.
        read_sink_is_remote: is_iwarp && !is_siw,
        invalidates_without_inline: is_siw,
        // A page (`SENDPAGE_THRESH`), and no machine has smaller ones.
        asks_from: if is_siw { 4096 } else { usize::MAX },
        first_may_lie: is_siw,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_iwarp_cards_open_the_sink_of_a_read() {
        assert!(!quirks(false, 0x02c9).read_sink_is_remote);
        assert!(!quirks(true, SIW).read_sink_is_remote);
        assert!(quirks(true, 0x8086).read_sink_is_remote);
        assert!(quirks(true, SIW).invalidates_without_inline);
    }

    #[test]
    fn siw_is_asked_about_all_that_it_sends_without_a_copy() {
        assert_eq!(quirks(true, SIW).asks_from, 4096);
        assert_eq!(quirks(true, 0x8086).asks_from, usize::MAX);
        assert_eq!(quirks(false, 0x02c9).asks_from, usize::MAX);
    }

    #[test]
    fn only_siw_leaves_a_first_message_lying() {
        assert!(quirks(true, SIW).first_may_lie);
        assert!(!quirks(true, 0x8086).first_may_lie && !quirks(false, SIW).first_may_lie);
    }
}
