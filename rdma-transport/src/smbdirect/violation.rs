//! Rules of MS-SMBD that a peer can violate.

use std::fmt;

use wire::{Fault, Rule};

use crate::limits;

/// A field that must not be 0.
pub(super) const CREDITS_REQUESTED: &str = "CreditsRequested";

/// A violated rule of MS-SMBD; one variant for each rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A negotiate request or response that is cut short (3.1.5.6, 3.1.5.7).
    NegotiateShort(Fault),
    /// A version range without the only existing version (3.1.5.6): answered by a refusal.
    NegotiateVersion(u16, u16),
    /// A peer that requests no credits, or grants none (3.1.5.6, 3.1.5.7).
    NegotiateCredits,
    /// A peer that does not accept messages of 128 bytes (3.1.5.6, 3.1.5.7).
    NegotiateReceiveSize(u32),
    /// A peer that accepts less than 131,072 bytes in fragments (3.1.5.6, 3.1.5.7).
    NegotiateFragmentedSize(u32),
    /// A response with a send size above what we accept (3.1.5.7).
    NegotiateSendSize(u32),
    /// A message shorter than a header (3.1.5.8).
    DataShort(Fault),
    /// A message of this size, which exceeds the negotiated one.
    DataTooLong(usize),
    /// A message that requests no credits (3.1.5.8).
    DataCredits(Fault),
    /// Data at an offset that is not a multiple of eight (3.1.5.8).
    DataAlignment(Fault),
    /// Data beyond the end of the message (3.1.5.8).
    DataBounds(Fault),
    /// A fragmented message larger than negotiated (3.1.5.8).
    DataFragmented(Fault),
    /// A fragment that announces the first number of remaining bytes where the second is correct (3.1.5.8).
    DataRemaining(u64, usize),
    /// A fragmented message of this size from a peer that has not logged on.
    FragmentedBeforeLogon(usize),
    /// A message without a credit (3.1.5.1).
    CreditsOverrun,
}

crate::rule_names!(Violation {
    Violation::NegotiateShort(_) => "smbd.negotiate.short",
    Violation::NegotiateVersion(..) => "smbd.negotiate.version",
    Violation::NegotiateCredits => "smbd.negotiate.credits",
    Violation::NegotiateReceiveSize(_) => "smbd.negotiate.receive-size",
    Violation::NegotiateFragmentedSize(_) => "smbd.negotiate.fragmented-size",
    Violation::NegotiateSendSize(_) => "smbd.negotiate.send-size",
    Violation::DataShort(_) => "smbd.data.short",
    Violation::DataTooLong(_) => "smbd.data.too-long",
    Violation::DataCredits(_) => "smbd.data.credits",
    Violation::DataAlignment(_) => "smbd.data.alignment",
    Violation::DataBounds(_) => "smbd.data.bounds",
    Violation::DataFragmented(_) => "smbd.data.fragmented",
    Violation::DataRemaining(..) => "smbd.data.remaining",
    Violation::FragmentedBeforeLogon(_) => "smbd.fragmented-before-logon",
    Violation::CreditsOverrun => "smbd.credits.overrun",
});

impl Violation {
    /// The rule that the header of a data transfer message violates.
    pub(super) fn of_data(fault: Fault) -> Self {
        match fault.rule {
            Rule::Truncated => Self::DataShort(fault),
            Rule::OutOfBounds => Self::DataBounds(fault),
            Rule::OverLimit { .. } => Self::DataFragmented(fault),
            Rule::Value if fault.field == CREDITS_REQUESTED => Self::DataCredits(fault),
            Rule::Value => Self::DataAlignment(fault),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NegotiateShort(fault)
            | Self::DataShort(fault)
            | Self::DataCredits(fault)
            | Self::DataAlignment(fault)
            | Self::DataBounds(fault)
            | Self::DataFragmented(fault) => write!(f, "{fault}"),
            Self::NegotiateVersion(min, max) => write!(f, "versions {min:#06x} to {max:#06x}"),
            Self::NegotiateCredits => f.write_str("no credits"),
            Self::NegotiateReceiveSize(n) => write!(f, "receives {n} bytes"),
            Self::NegotiateFragmentedSize(n) => write!(f, "receives {n} bytes in fragments"),
            Self::NegotiateSendSize(n) => write!(f, "wants to send {n} bytes"),
            Self::DataTooLong(n) => write!(f, "message of {n} bytes"),
            Self::DataRemaining(n, left) => write!(f, "{n} bytes to come where {left} are left"),
            Self::FragmentedBeforeLogon(n) => {
                let most = limits::SMBD_FRAGMENTED_STRANGER_MAX;
                write!(f, "a message of {n} bytes before a logon, at most {most}")
            }
            Self::CreditsOverrun => f.write_str("a message beyond the credits granted"),
        }
    }
}
