//! OPLOCK_BREAK (MS-SMB2 sections 2.2.23 to 2.2.25): notices, acknowledgements and their answers, of oplocks and of leases, told
//! apart by their size.

use super::{Fields, FileId, Malformed, Parsed};

/// SMB2_NOTIFY_BREAK_LEASE_FLAG_ACK_REQUIRED
pub const ACK_REQUIRED: u32 = 1;

const OPLOCK_SIZE: u16 = 24;
const LEASE_SIZE: u16 = 36;
const LEASE_NOTICE_SIZE: u16 = 44;

/// Of an oplock: notice, acknowledgement and answer have the same format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oplock {
    /// What it is broken to, or was acknowledged as: one of [`super::create::oplock`].
    pub level: u8,
    /// The open.
    pub file: FileId,
}

impl Oplock {
    fn fields(f: &mut Fields<'_>) -> Parsed<Self> {
        let level = f.u8("OplockLevel")?;
        f.skip(5);
        Ok(Self { level, file: FileId::parse(f)? })
    }

    /// Writes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(usize::from(OPLOCK_SIZE));
        out.extend(OPLOCK_SIZE.to_le_bytes());
        out.extend([self.level, 0, 0, 0, 0, 0]);
        out.extend(self.file.emit());
        out
    }
}

/// Of a lease: acknowledgement and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// `LeaseKey`.
    pub key: [u8; 16],
    /// `LeaseState` that remains.
    pub state: u32,
}

impl Lease {
    fn fields(f: &mut Fields<'_>) -> Parsed<Self> {
        f.skip(6);
        let key = f.array("LeaseKey")?;
        let state = f.u32("LeaseState")?;
        f.u64("LeaseDuration")?;
        Ok(Self { key, state })
    }

    /// Writes the body.
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

/// Notice that a lease is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseNotice {
    /// `NewEpoch`; 0 for a lease of version 1.
    pub epoch: u16,
    /// The client must acknowledge it.
    pub acknowledge: bool,
    /// `LeaseKey`.
    pub key: [u8; 16],
    /// What it has.
    pub from: u32,
    /// What it may keep.
    pub to: u32,
}

impl LeaseNotice {
    /// Writes the body.
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

/// What a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// It acknowledges the break of an oplock.
    Oplock(Oplock),
    /// It acknowledges the break of a lease.
    Lease(Lease),
}

impl Request {
    /// Reads it from a message that starts at its header.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        let mut f = Fields::new(message, super::HEADER_LEN);
        match f.u16("StructureSize")? {
            OPLOCK_SIZE => Oplock::fields(&mut f).map(Self::Oplock),
            LEASE_SIZE => Lease::fields(&mut f).map(Self::Lease),
            _ => Err(Malformed("StructureSize")),
        }
    }

    /// Writes the body.
    pub fn emit(&self) -> Vec<u8> {
        match self {
            Self::Oplock(o) => o.emit(),
            Self::Lease(l) => l.emit(),
        }
    }
}

/// What a server answers, or sends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// The break of an oplock: a notice, or the answer to an acknowledgement.
    Oplock(Oplock),
    /// The answer to the acknowledgement of a lease.
    Lease(Lease),
    /// The notice of a lease.
    LeaseNotice(LeaseNotice),
}

impl Response {
    /// Reads it from a message that starts at its header.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        let mut f = Fields::new(message, super::HEADER_LEN);
        match f.u16("StructureSize")? {
            OPLOCK_SIZE => Oplock::fields(&mut f).map(Self::Oplock),
            LEASE_SIZE => Lease::fields(&mut f).map(Self::Lease),
            LEASE_NOTICE_SIZE => {
                let epoch = f.u16("NewEpoch")?;
                let flags = f.u32("Flags")?;
                let key = f.array("LeaseKey")?;
                let (from, to) = (f.u32("CurrentLeaseState")?, f.u32("NewLeaseState")?);
                f.bytes(12, "BreakReason")?;
                let acknowledge = flags & ACK_REQUIRED != 0;
                Ok(Self::LeaseNotice(LeaseNotice { epoch, acknowledge, key, from, to }))
            }
            _ => Err(Malformed("StructureSize")),
        }
    }

    /// Writes the body.
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
    use crate::smb2::test_kit::message;

    #[test]
    fn each_has_the_size_that_names_it() {
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
        assert_eq!(Request::parse(&wrong), Err(Malformed("StructureSize")));
    }
}
