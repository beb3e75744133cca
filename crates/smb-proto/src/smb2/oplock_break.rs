//! OPLOCK_BREAK (MS-SMB2 sections 2.2.23 to 2.2.25): notices, acknowledgements and their responses for oplocks and leases,
//! distinguished by their size.

use wire::{Parser, Rule, bytes, le_u8, le_u16, le_u32, le_u64, reject, take};

use super::{FileId, HEADER_LEN, Parsed};
use crate::parse::whole;

/// SMB2_NOTIFY_BREAK_LEASE_FLAG_ACK_REQUIRED
pub const ACK_REQUIRED: u32 = 1;

const OPLOCK_SIZE: u16 = 24;
const LEASE_SIZE: u16 = 36;
const LEASE_NOTICE_SIZE: u16 = 44;

/// Break of an oplock: notice, acknowledgement and response have the same format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oplock {
    /// The new or acknowledged level: one of [`super::create::oplock`].
    pub level: u8,
    /// The open file.
    pub file: FileId,
}

impl Oplock {
    fn parse(i: &[u8]) -> wire::Parsed<'_, Self> {
        let (i, (level, _, file)) =
            (le_u8("OplockLevel"), take(5, "Reserved"), FileId::parse).parse(i)?;
        Ok((i, Self { level, file }))
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(usize::from(OPLOCK_SIZE));
        out.extend(OPLOCK_SIZE.to_le_bytes());
        out.extend([self.level, 0, 0, 0, 0, 0]);
        out.extend(self.file.emit());
        out
    }
}

/// Break of a lease: acknowledgement and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// `LeaseKey`.
    pub key: [u8; 16],
    /// The remaining `LeaseState`.
    pub state: u32,
}

impl Lease {
    fn parse(i: &[u8]) -> wire::Parsed<'_, Self> {
        let (i, (_, key, state, _)) =
            (take(6, "Reserved"), bytes("LeaseKey"), le_u32("LeaseState"), le_u64("LeaseDuration"))
                .parse(i)?;
        Ok((i, Self { key, state }))
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(usize::from(LEASE_SIZE));
        out.extend(LEASE_SIZE.to_le_bytes());
        out.extend([0; 6]);
        out.extend(self.key);
        out.extend(self.state.to_le_bytes());
        out.extend([0; 8]);
        out
    }
}

/// Break notice of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseNotice {
    /// `NewEpoch`; 0 for a lease of version 1.
    pub epoch: u16,
    /// The client must acknowledge it.
    pub acknowledge: bool,
    /// `LeaseKey`.
    pub key: [u8; 16],
    /// The current state.
    pub from: u32,
    /// The remaining state.
    pub to: u32,
}

impl LeaseNotice {
    fn parse(i: &[u8]) -> wire::Parsed<'_, Self> {
        let (i, (epoch, flags, key)) =
            (le_u16("NewEpoch"), le_u32("Flags"), bytes("LeaseKey")).parse(i)?;
        let (i, (from, to, _)) =
            (le_u32("CurrentLeaseState"), le_u32("NewLeaseState"), take(12, "BreakReason"))
                .parse(i)?;
        Ok((i, Self { epoch, acknowledge: flags & ACK_REQUIRED != 0, key, from, to }))
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(usize::from(LEASE_NOTICE_SIZE));
        out.extend(LEASE_NOTICE_SIZE.to_le_bytes());
        out.extend(self.epoch.to_le_bytes());
        out.extend(if self.acknowledge { ACK_REQUIRED } else { 0 }.to_le_bytes());
        out.extend(self.key);
        out.extend(self.from.to_le_bytes());
        out.extend(self.to.to_le_bytes());
        // BreakReason, AccessMaskHint, ShareMaskHint
        out.extend([0; 12]);
        out
    }
}

/// Parses the size that identifies the format, then the format.
fn by_size<T>(message: &[u8], of: impl Fn(u16, &[u8]) -> Option<wire::Parsed<'_, T>>) -> Parsed<T> {
    whole(message, |message| {
        let start = message.get(HEADER_LEN..).unwrap_or_default();
        let (i, size) = le_u16("StructureSize")(start)?;
        of(size, i).unwrap_or_else(|| Err(reject("StructureSize", Rule::Value, start)))
    })
}

/// An acknowledgement of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Acknowledges the break of an oplock.
    Oplock(Oplock),
    /// Acknowledges the break of a lease.
    Lease(Lease),
}

impl Request {
    /// Parses a message that starts at its header.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        by_size(message, |size, i| match size {
            OPLOCK_SIZE => Some(Oplock::parse.map(Self::Oplock).parse(i)),
            LEASE_SIZE => Some(Lease::parse.map(Self::Lease).parse(i)),
            _ => None,
        })
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        match self {
            Self::Oplock(o) => o.emit(),
            Self::Lease(l) => l.emit(),
        }
    }
}

/// A response or a notice of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// The break of an oplock: a notice, or the response to an acknowledgement.
    Oplock(Oplock),
    /// The response to the acknowledgement of a lease break.
    Lease(Lease),
    /// The break notice of a lease.
    LeaseNotice(LeaseNotice),
}

impl Response {
    /// Parses a message that starts at its header.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        by_size(message, |size, i| match size {
            OPLOCK_SIZE => Some(Oplock::parse.map(Self::Oplock).parse(i)),
            LEASE_SIZE => Some(Lease::parse.map(Self::Lease).parse(i)),
            LEASE_NOTICE_SIZE => Some(LeaseNotice::parse.map(Self::LeaseNotice).parse(i)),
            _ => None,
        })
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        match self {
            Self::Oplock(o) => o.emit(),
            Self::Lease(l) => l.emit(),
            Self::LeaseNotice(n) => n.emit(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smb2::Command;
    use crate::smb2::test_harness::{message, named};

    #[test]
    fn structure_size_identifies_format() {
        let oplock = Oplock { level: 1, file: FileId { persistent: 5, volatile: 6 } };
        let lease = Lease { key: [7; 16], state: 3 };
        let notice = LeaseNotice { epoch: 2, acknowledge: true, key: [8; 16], from: 7, to: 3 };
        assert_eq!(oplock.emit().len(), 24);
        assert_eq!(lease.emit().len(), 36);
        assert_eq!(notice.emit().len(), 44);
        assert_eq!(notice.emit()[..8], [44, 0, 2, 0, 1, 0, 0, 0]);
        for r in [Response::Oplock(oplock), Response::Lease(lease), Response::LeaseNotice(notice)] {
            let m = message(Command::OplockBreak, &r.emit());
            assert_eq!(Response::parse(&m), Ok(r));
            assert!(Response::parse(&m[..m.len() - 1]).is_err());
        }
        for r in [Request::Oplock(oplock), Request::Lease(lease)] {
            let m = message(Command::OplockBreak, &r.emit());
            assert_eq!(Request::parse(&m), Ok(r));
            assert!(Request::parse(&m[..m.len() - 1]).is_err());
        }
        let wrong = message(Command::OplockBreak, &notice.emit());
        assert_eq!(named(Request::parse(&wrong)), Err("StructureSize"));
    }
}
