//! Negotiation (MS-SMBD sections 3.1.5.2, 3.1.5.3, 3.1.5.6, 3.1.5.7). No I/O.

use wire::decode;

use super::violation::Violation;
use super::wire::{
    NegotiateRequest, NegotiateResponse, STATUS_INSUFFICIENT_RESOURCES, STATUS_NOT_SUPPORTED,
    STATUS_SUCCESS, VERSION, size, wire_size,
};
use crate::limits;

/// The capabilities of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ability {
    /// Receives that it can post, and credits that it requests.
    pub credits: u16,
    /// Largest message it sends.
    pub max_send: usize,
    /// Largest message that it accepts.
    pub max_receive: usize,
    /// Largest fragmented message that it accepts.
    pub max_fragmented_receive: usize,
}

impl Ability {
    /// The capabilities of this program.
    pub const OURS: Self = Self {
        credits: limits::SMBD_CREDITS_MAX,
        max_send: limits::SMBD_SEND_SIZE,
        max_receive: limits::SMBD_RECV_SIZE,
        max_fragmented_receive: limits::SMBD_FRAGMENTED_RECV_MAX,
    };
}

/// Parameters that both sides have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Largest message this side sends, in bytes.
    pub max_send: usize,
    /// Largest message that this side accepts, in bytes.
    pub max_receive: usize,
    /// Largest fragmented message that this side sends, in bytes.
    pub max_fragmented_send: usize,
    /// Largest fragmented message that this side accepts, in bytes.
    pub max_fragmented_receive: usize,
    /// Credits that the peer granted.
    pub granted: u16,
    /// Credits that the peer requests.
    pub wanted: u16,
}

/// An acceptor's decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Post as many Receives as the response grants, then send it.
    Accept(NegotiateResponse, Agreed),
    /// Send this, then end the connection.
    Refuse(NegotiateResponse, Violation),
}

/// Builds the request of a side with these capabilities.
pub fn request(own: Ability) -> NegotiateRequest {
    NegotiateRequest {
        min_version: VERSION,
        max_version: VERSION,
        credits_requested: own.credits,
        preferred_send_size: wire_size(own.max_send),
        max_receive_size: wire_size(own.max_receive),
        max_fragmented_size: wire_size(own.max_fragmented_receive),
    }
}

fn check_sizes(max_receive: u32, max_fragmented: u32) -> Result<(), Violation> {
    if size(max_receive) < limits::SMBD_SIZE_MIN {
        return Err(Violation::NegotiateReceiveSize(max_receive));
    }
    if size(max_fragmented) < limits::SMBD_FRAGMENTED_MIN {
        return Err(Violation::NegotiateFragmentedSize(max_fragmented));
    }
    Ok(())
}

/// Evaluates a request (MS-SMBD section 3.1.5.6). An error ends the connection without a response.
pub fn judge(own: Ability, message: &[u8]) -> Result<Verdict, Violation> {
    let (_, asked) = decode(message, NegotiateRequest::parse)
        .map_err(|why| Violation::NegotiateShort(why.at(message)))?;
    // Both fields have one value in this version of the protocol (section 2.2.1), and Windows accepts no other.
    if (asked.min_version, asked.max_version) != (VERSION, VERSION) {
        let refusal = NegotiateResponse::refusal(STATUS_NOT_SUPPORTED);
        let why = Violation::NegotiateVersion(asked.min_version, asked.max_version);
        return Ok(Verdict::Refuse(refusal, why));
    }
    if asked.credits_requested == 0 {
        return Err(Violation::NegotiateCredits);
    }
    check_sizes(asked.max_receive_size, asked.max_fragmented_size)?;
    let agreed = Agreed {
        // The peer ends the connection if these exceed what it accepts (section 3.1.5.7).
        max_send: own.max_send.min(size(asked.max_receive_size)),
        max_receive: own
            .max_receive
            .min(size(asked.preferred_send_size))
            .max(limits::SMBD_SIZE_MIN),
        max_fragmented_send: size(asked.max_fragmented_size),
        max_fragmented_receive: own.max_fragmented_receive,
        granted: 0,
        wanted: asked.credits_requested,
    };
    let credits_granted = asked.credits_requested.min(own.credits);
    if credits_granted == 0 {
        let refusal = NegotiateResponse::refusal(STATUS_INSUFFICIENT_RESOURCES);
        return Ok(Verdict::Refuse(refusal, Violation::NegotiateCredits));
    }
    let response = NegotiateResponse {
        min_version: VERSION,
        max_version: VERSION,
        negotiated_version: VERSION,
        credits_requested: own.credits,
        credits_granted,
        status: STATUS_SUCCESS,
        max_read_write_size: wire_size(limits::SMB_PAYLOAD_MAX),
        preferred_send_size: wire_size(agreed.max_send),
        max_receive_size: wire_size(agreed.max_receive),
        max_fragmented_size: wire_size(agreed.max_fragmented_receive),
    };
    Ok(Verdict::Accept(response, agreed))
}

/// The reason why an initiator ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The response violates a rule.
    Violation(Violation),
    /// The acceptor refused with this NTSTATUS.
    Refused(u32),
}

/// Evaluates a response (MS-SMBD section 3.1.5.7).
pub fn conclude(own: Ability, message: &[u8]) -> Result<Agreed, Unfit> {
    let (_, answer) = decode(message, NegotiateResponse::parse)
        .map_err(|why| Unfit::Violation(Violation::NegotiateShort(why.at(message))))?;
    if answer.status != STATUS_SUCCESS {
        return Err(Unfit::Refused(answer.status));
    }
    if answer.negotiated_version != VERSION {
        let versions = Violation::NegotiateVersion(answer.min_version, answer.max_version);
        return Err(Unfit::Violation(versions));
    }
    check_sizes(answer.max_receive_size, answer.max_fragmented_size).map_err(Unfit::Violation)?;
    if answer.credits_granted == 0 || answer.credits_requested == 0 {
        return Err(Unfit::Violation(Violation::NegotiateCredits));
    }
    let preferred = size(answer.preferred_send_size);
    if preferred > own.max_receive {
        let too_large = Violation::NegotiateSendSize(answer.preferred_send_size);
        return Err(Unfit::Violation(too_large));
    }
    Ok(Agreed {
        max_send: own.max_send.min(size(answer.max_receive_size)),
        max_receive: own.max_receive.min(preferred).max(limits::SMBD_SIZE_MIN),
        max_fragmented_send: size(answer.max_fragmented_size),
        max_fragmented_receive: own.max_fragmented_receive,
        granted: answer.credits_granted,
        wanted: answer.credits_requested,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINUX: NegotiateRequest = NegotiateRequest {
        min_version: VERSION,
        max_version: VERSION,
        credits_requested: 255,
        preferred_send_size: 1364,
        max_receive_size: 1364,
        max_fragmented_size: 173_910,
    };
    const WINDOWS: NegotiateRequest =
        NegotiateRequest { max_receive_size: 8192, max_fragmented_size: 1 << 20, ..LINUX };

    fn accepted(asked: NegotiateRequest) -> (NegotiateResponse, Agreed) {
        match judge(Ability::OURS, &asked.emit()) {
            Ok(Verdict::Accept(response, agreed)) => (response, agreed),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn response_fits_initiator_limits() {
        let (linux, agreed) = accepted(LINUX);
        assert_eq!((linux.preferred_send_size, linux.max_receive_size), (1364, 1364));
        assert_eq!((linux.credits_requested, linux.credits_granted), (255, 255));
        assert_eq!(agreed.max_fragmented_send, 173_910);
        let (windows, agreed) = accepted(WINDOWS);
        assert_eq!((windows.preferred_send_size, windows.max_receive_size), (8136, 1364));
        assert_eq!(agreed.max_send, 8136, "a sixth of the fragments");
    }

    #[test]
    fn rules_of_the_request_hold() {
        let end = |asked: NegotiateRequest| judge(Ability::OURS, &asked.emit());
        for (min_version, max_version) in [(0, VERSION), (VERSION, 0xffff), (0, 0), (0x200, 0x300)]
        {
            match end(NegotiateRequest { min_version, max_version, ..LINUX }) {
                Ok(Verdict::Refuse(answer, _)) => assert_eq!(answer.status, STATUS_NOT_SUPPORTED),
                other => panic!("{other:?}"),
            }
        }
        let no_credits = NegotiateRequest { credits_requested: 0, ..LINUX };
        assert_eq!(end(no_credits), Err(Violation::NegotiateCredits));
        let small = NegotiateRequest { max_receive_size: 127, ..LINUX };
        assert_eq!(end(small), Err(Violation::NegotiateReceiveSize(127)));
        let few = NegotiateRequest { max_fragmented_size: 131_071, ..LINUX };
        assert_eq!(end(few), Err(Violation::NegotiateFragmentedSize(131_071)));
        let cut = judge(Ability::OURS, &LINUX.emit()[..19]);
        assert_eq!(cut.unwrap_err().to_string(), "MaxFragmentedSize truncated at 16");
    }

    #[test]
    fn rules_of_the_response_hold() {
        let (good, _) = accepted(LINUX);
        let own = Ability { max_receive: 1364, ..Ability::OURS };
        let end = |answer: NegotiateResponse| conclude(own, &answer.emit());
        assert!(end(good).is_ok());
        let broken = |answer, rule| assert_eq!(end(answer), Err(Unfit::Violation(rule)));
        broken(
            NegotiateResponse { negotiated_version: 0x200, ..good },
            Violation::NegotiateVersion(VERSION, VERSION),
        );
        broken(
            NegotiateResponse { max_receive_size: 127, ..good },
            Violation::NegotiateReceiveSize(127),
        );
        broken(
            NegotiateResponse { max_fragmented_size: 9, ..good },
            Violation::NegotiateFragmentedSize(9),
        );
        broken(NegotiateResponse { credits_granted: 0, ..good }, Violation::NegotiateCredits);
        broken(NegotiateResponse { credits_requested: 0, ..good }, Violation::NegotiateCredits);
        broken(
            NegotiateResponse { preferred_send_size: 1365, ..good },
            Violation::NegotiateSendSize(1365),
        );
        let refusal = NegotiateResponse::refusal(STATUS_NOT_SUPPORTED);
        assert_eq!(end(refusal), Err(Unfit::Refused(STATUS_NOT_SUPPORTED)));
        let cut = conclude(own, &good.emit()[..31]);
        let Err(Unfit::Violation(cut)) = cut else { panic!("{cut:?}") };
        assert_eq!(cut.to_string(), "MaxFragmentedSize truncated at 28");
    }

    proptest! {
        /// Every valid initiator accepts our response, and both sides arrive at the same parameters.
        #[test]
        fn two_sides_agree(
            credits in 1u16..,
            max_send in 0usize..1 << 20,
            max_receive in 128usize..1 << 20,
            max_fragmented_receive in 131_072usize..1 << 24,
        ) {
            let peer = Ability { credits, max_send, max_receive, max_fragmented_receive };
            let (response, ours) = accepted(request(peer));
            let theirs = conclude(peer, &response.emit()).unwrap();
            prop_assert_eq!(ours.max_send.max(128), theirs.max_receive);
            prop_assert_eq!(theirs.max_send.max(128), ours.max_receive);
            prop_assert!(response.credits_granted <= credits);
            prop_assert!(response.preferred_send_size <= wire_size(max_receive));
        }
    }
}
