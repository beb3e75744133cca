//! The traffic class of packets that this process sends, by which switches choose a queue.
//!
//! *Operation.* A [`TrafficClass`] is shared by all providers and listeners of a process. Each connection reads it when it is set
//! up, because an RDMA connection cannot change its class later. *Errors.* None: a system that refuses the class sends packets in
//! its own.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::socket;

/// No class is set: larger than any class.
const UNSET: u16 = u16::MAX;

/// The class of new connections. Clones share it.
#[derive(Clone, Debug)]
pub struct TrafficClass(Arc<AtomicU16>);

impl Default for TrafficClass {
    fn default() -> Self {
        Self(Arc::new(AtomicU16::new(UNSET)))
    }
}

/// True for clones of one another.
impl PartialEq for TrafficClass {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for TrafficClass {}

impl TrafficClass {
    /// Sets the code point of connections from now on; `None`: the system's default. Only the lower six bits count.
    pub fn set(&self, dscp: Option<u8>) {
        self.0.store(dscp.map_or(UNSET, |dscp| u16::from(dscp) & 0x3f), Ordering::Relaxed);
    }

    /// Returns the byte of IP headers: the code point, and below it the bits of ECN as zeros, which the system sets (RFC 3168
    /// section 5).
    pub fn byte(&self) -> Option<u8> {
        u8::try_from(self.0.load(Ordering::Relaxed)).ok().map(|dscp| dscp << 2)
    }

    /// Applies the class to a TCP socket. `is_ipv6`: the socket's family, whoever its peer is.
    pub fn mark(&self, socket: &impl AsFd, is_ipv6: bool) {
        if let Some(byte) = self.byte() {
            socket::set_class(socket, is_ipv6, byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_is_shared_by_clones_and_may_be_unset() {
        let class = TrafficClass::default();
        let other = class.clone();
        assert_eq!(other.byte(), None);
        for (dscp, byte) in
            [(Some(26), Some(0x68)), (Some(0), Some(0)), (Some(63), Some(0xfc)), (None, None)]
        {
            class.set(dscp);
            assert_eq!(other.byte(), byte, "{dscp:?}");
        }
        assert!(class == other && class != TrafficClass::default());
    }
}
