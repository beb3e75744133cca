//! Limits of a session's channel (RFC 8881 section 18.36.3).

use nfs_proto::nfs4::ops::ChannelAttrs4;

use super::limits;
use super::status::Status;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChannelAttrs {
    pub(super) request_max: u32,
    pub(super) response_max: u32,
    pub(super) cached_max: u32,
    pub(super) ops_max: u32,
    pub(super) slots: u32,
}

impl ChannelAttrs {
    /// Converts the client's request. Header padding is not used; the transport negotiates the RDMA read depth itself when it
    /// connects.
    pub(super) fn of(asked: &ChannelAttrs4) -> Self {
        Self {
            request_max: asked.maxrequestsize,
            response_max: asked.maxresponsesize,
            cached_max: asked.maxresponsesize_cached,
            ops_max: asked.maxoperations,
            slots: asked.maxrequests,
        }
    }

    /// Converts for the reply.
    pub(super) fn on_wire(&self) -> ChannelAttrs4 {
        ChannelAttrs4 {
            headerpadsize: 0,
            maxrequestsize: self.request_max,
            maxresponsesize: self.response_max,
            maxresponsesize_cached: self.cached_max,
            maxoperations: self.ops_max,
            maxrequests: self.slots,
            rdma_ird: Vec::new(),
        }
    }

    /// Negotiates the fore channel: each limit is the smaller of the client's and the server's (RFC 8881 section 18.36.3).
    pub(super) fn agree_fore(self) -> Result<Self, Status> {
        let max = u32::try_from(limits::REPLY_MAX).unwrap_or(u32::MAX);
        let cached = u32::try_from(limits::REPLY_CACHED_MAX).unwrap_or(u32::MAX);
        let min = u32::try_from(limits::CHANNEL_MIN).unwrap_or(0);
        if self.request_max < min || self.response_max < min || self.ops_max < 2 {
            return Err(Status::TooSmall);
        }
        if self.slots == 0 {
            return Err(Status::Inval);
        }
        Ok(Self {
            request_max: self.request_max.min(max),
            response_max: self.response_max.min(max),
            cached_max: self.cached_max.min(cached),
            ops_max: self.ops_max.min(limits::SESSION_OPS_MAX),
            slots: self.slots.min(limits::SLOTS_MAX),
        })
    }

    /// Negotiates the backchannel, for callbacks of two operations, within the client's limits.
    pub(super) fn agree_back(self) -> Result<Self, Status> {
        let min = u32::try_from(limits::CHANNEL_MIN).unwrap_or(0);
        if self.request_max < min || self.response_max < min / 2 || self.ops_max < 2 {
            return Err(Status::TooSmall);
        }
        Ok(Self { cached_max: 0, slots: self.slots.min(limits::SLOTS_MAX), ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WISH: ChannelAttrs = ChannelAttrs {
        request_max: 1 << 30,
        response_max: 4_096,
        cached_max: 1 << 20,
        ops_max: 8,
        slots: 1_000,
    };

    #[test]
    fn smaller_limit_is_agreed() {
        let a = WISH.agree_fore().unwrap();
        assert_eq!(a.request_max as usize, limits::REPLY_MAX);
        assert_eq!(a.response_max, 4_096);
        assert_eq!(a.cached_max as usize, limits::REPLY_CACHED_MAX);
        assert_eq!((a.ops_max, a.slots), (8, limits::SLOTS_MAX));
    }

    #[test]
    fn useless_channels_are_refused() {
        let with = |change: fn(&mut ChannelAttrs)| {
            let mut a = WISH;
            change(&mut a);
            a.agree_fore()
        };
        assert_eq!(with(|a| a.request_max = 100), Err(Status::TooSmall));
        assert_eq!(with(|a| a.response_max = 0), Err(Status::TooSmall));
        assert_eq!(with(|a| a.ops_max = 1), Err(Status::TooSmall));
        assert_eq!(with(|a| a.slots = 0), Err(Status::Inval));
    }
}
