//! CLOSE (MS-SMB2 sections 2.2.15 and 2.2.16).

use wire::{Parser, le_u16, le_u32, le_u64};

use super::{FileId, Parsed};
use crate::parse::body;

/// SMB2_CLOSE_FLAG_POSTQUERY_ATTRIB: the response contains the attributes.
pub const POSTQUERY_ATTRIB: u16 = 1;

/// A CLOSE request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// [`POSTQUERY_ATTRIB`] or 0.
    pub flags: u16,
    /// The open file.
    pub file: FileId,
}

impl Request {
    /// Parses a message that starts at its header.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        body(message, 24, |i| {
            let (i, (flags, _, file)) =
                (le_u16("Flags"), le_u32("Reserved"), FileId::parse).parse(i)?;
            Ok((i, Self { flags, file }))
        })
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24);
        out.extend(24_u16.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.file.emit());
        out
    }
}

/// The attributes in responses to CREATE and CLOSE (MS-FSCC section 2.4.29 without its reserved field).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Basics {
    /// FILETIMEs: creation, last access, last write, change.
    pub times: [u64; 4],
    /// Allocated size in bytes.
    pub allocation_size: u64,
    /// Size in bytes.
    pub end_of_file: u64,
    /// FILE_ATTRIBUTE bits.
    pub attributes: u32,
}

impl Basics {
    pub(super) fn parse(i: &[u8]) -> wire::Parsed<'_, Self> {
        let (i, (created, accessed, written, changed)) = (
            le_u64("CreationTime"),
            le_u64("LastAccessTime"),
            le_u64("LastWriteTime"),
            le_u64("ChangeTime"),
        )
            .parse(i)?;
        let times = [created, accessed, written, changed];
        let (i, (allocation_size, end_of_file, attributes)) =
            (le_u64("AllocationSize"), le_u64("EndofFile"), le_u32("FileAttributes")).parse(i)?;
        Ok((i, Self { times, allocation_size, end_of_file, attributes }))
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        for time in self.times {
            out.extend(time.to_le_bytes());
        }
        out.extend(self.allocation_size.to_le_bytes());
        out.extend(self.end_of_file.to_le_bytes());
        out.extend(self.attributes.to_le_bytes());
    }
}

/// A CLOSE response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The attributes, if the request asked for them.
    pub basics: Option<Basics>,
}

impl Response {
    /// Parses a message that starts at its header.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        body(message, 60, |i| {
            let (i, (flags, _, basics)) =
                (le_u16("Flags"), le_u32("Reserved"), Basics::parse).parse(i)?;
            let told = flags & POSTQUERY_ATTRIB != 0;
            Ok((i, Self { basics: told.then_some(basics) }))
        })
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(60);
        out.extend(60_u16.to_le_bytes());
        out.extend(self.basics.map_or(0, |_| POSTQUERY_ATTRIB).to_le_bytes());
        out.extend([0; 4]);
        self.basics.unwrap_or_default().emit(&mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smb2::Command;
    use crate::smb2::test_harness::{message, named};

    #[test]
    fn requests_round_trip() {
        let r = Request { flags: 1, file: FileId { persistent: 3, volatile: 4 } };
        let m = message(Command::Close, &r.emit());
        assert_eq!(Request::parse(&m), Ok(r));
        for cut in 64..m.len() {
            assert!(Request::parse(&m[..cut]).is_err());
        }
        let mut wrong = m;
        wrong[64] = 25;
        assert_eq!(named(Request::parse(&wrong)), Err("StructureSize"));
    }

    #[test]
    fn responses_round_trip() {
        let basics =
            Basics { times: [1, 2, 3, 4], allocation_size: 5, end_of_file: 6, attributes: 0x20 };
        for r in [Response { basics: Some(basics) }, Response { basics: None }] {
            let body = r.emit();
            assert_eq!(body.len(), 60);
            assert_eq!(Response::parse(&message(Command::Close, &body)), Ok(r));
        }
    }
}
