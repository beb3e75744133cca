//! TREE_CONNECT (MS-SMB2 sections 2.2.9 and 2.2.10).

use wire::{Parser, le_u8, le_u16, le_u32};

use super::{HEADER_LEN, Parsed, put_utf16};
use crate::parse::{behind, body, shorts, text};

/// SMB2_TREE_CONNECT_FLAG_CLUSTER_RECONNECT
pub const CLUSTER_RECONNECT: u16 = 1;
/// SMB2_TREE_CONNECT_FLAG_REDIRECT_TO_OWNER
pub const REDIRECT_TO_OWNER: u16 = 2;
/// SMB2_TREE_CONNECT_FLAG_EXTENSION_PRESENT
pub const EXTENSION_PRESENT: u16 = 4;

/// SMB2_SHARE_TYPE_DISK
pub const DISK: u8 = 1;
/// SMB2_SHARE_TYPE_PIPE
pub const PIPE: u8 = 2;

/// SMB2_SHAREFLAG_DFS: the share is part of a DFS tree.
pub const DFS: u32 = 1;
/// SMB2_SHAREFLAG_DFS_ROOT: the share is the root of a DFS tree.
pub const DFS_ROOT: u32 = 2;
/// SMB2_SHAREFLAG_NO_CACHING: clients must not keep files for offline use.
pub const NO_CACHING: u32 = 0x30;
/// SMB2_SHAREFLAG_ACCESS_BASED_DIRECTORY_ENUM: listings show only entries that the user may access.
pub const ACCESS_BASED_ENUM: u32 = 0x800;
/// SMB2_SHAREFLAG_ENCRYPT_DATA
pub const ENCRYPT_DATA: u32 = 0x8000;
/// SMB2_SHAREFLAG_COMPRESS_DATA
pub const COMPRESS_DATA: u32 = 0x0010_0000;

/// SMB2_SHARE_CAP_DFS
pub const CAP_DFS: u32 = 8;
/// SMB2_SHARE_CAP_CONTINUOUS_AVAILABILITY
pub const CONTINUOUS_AVAILABILITY: u32 = 0x10;

/// A TREE_CONNECT request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Flags; reserved before dialect 3.1.1. The contents of an extension are dropped.
    pub flags: u16,
    /// `\\server\share`
    pub path: String,
}

impl Request {
    const FIXED: usize = 8;
    /// Length of the fixed part of the extension, in bytes.
    const EXTENSION: usize = 16;

    /// Parses a message that starts at its header.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        body(message, 9, |i| {
            let (place, flags) = le_u16("Flags")(i)?;
            let (i, (mut at, len)) = shorts("Path")(place)?;
            let mut fixed = Self::FIXED;
            if flags & EXTENSION_PRESENT != 0 {
                // The offset counts from the extension (section 2.2.9.1); the path follows its fields.
                at += HEADER_LEN + Self::FIXED;
                fixed += Self::EXTENSION;
            }
            let path = text(behind(message, fixed, (at, len), "Buffer", place)?, "Buffer")?;
            Ok((i, Self { flags: flags & !EXTENSION_PRESENT, path }))
        })
    }

    /// Serializes the body, always without an extension.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::FIXED + self.path.len() * 2);
        let at = u16::try_from(HEADER_LEN + Self::FIXED).unwrap_or(u16::MAX);
        out.extend(9_u16.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        out.extend(at.to_le_bytes());
        out.extend([0; 2]);
        // This program never sends paths above 64 KiB.
        let len = u16::try_from(put_utf16(&mut out, &self.path)).unwrap_or(u16::MAX);
        out[6..8].copy_from_slice(&len.to_le_bytes());
        out
    }
}

/// A TREE_CONNECT response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// [`DISK`], [`PIPE`].
    pub share_type: u8,
    /// `SMB2_SHAREFLAG_*`.
    pub flags: u32,
    /// `SMB2_SHARE_CAP_*`.
    pub capabilities: u32,
    /// Maximal access of the user: an access mask.
    pub maximal_access: u32,
}

impl Response {
    /// Parses a message that starts at its header.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        body(message, 16, |i| {
            let (i, (share_type, _, flags)) =
                (le_u8("ShareType"), le_u8("Reserved"), le_u32("ShareFlags")).parse(i)?;
            let (i, (capabilities, maximal_access)) =
                (le_u32("Capabilities"), le_u32("MaximalAccess")).parse(i)?;
            Ok((i, Self { share_type, flags, capabilities, maximal_access }))
        })
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        out.extend(16_u16.to_le_bytes());
        out.extend([self.share_type, 0]);
        out.extend(self.flags.to_le_bytes());
        out.extend(self.capabilities.to_le_bytes());
        out.extend(self.maximal_access.to_le_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smb2::Command;
    use crate::smb2::test_harness::message;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn request_and_response_round_trip(path in "\\PC{0,40}", words in any::<[u32; 3]>(), share_type in 1_u8..4) {
            let r = Request { flags: 1, path };
            prop_assert_eq!(Request::parse(&message(Command::TreeConnect, &r.emit())), Ok(r));
            let [flags, capabilities, maximal_access] = words;
            let r = Response { share_type, flags, capabilities, maximal_access };
            prop_assert_eq!(Response::parse(&message(Command::TreeConnect, &r.emit())), Ok(r));
        }

        #[test]
        fn arbitrary_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut bytes = message(Command::TreeConnect, &body);
            for size in [9, 16] {
                if let Some(b) = bytes.get_mut(64) {
                    *b = size;
                }
                let _ = Request::parse(&bytes);
                let _ = Response::parse(&bytes);
            }
        }
    }

    #[test]
    fn extension_moves_the_path() {
        let mut body = Request { flags: EXTENSION_PRESENT, path: "\\\\a\\b".into() }.emit();
        let path = body.split_off(8);
        body[4..6].copy_from_slice(&16_u16.to_le_bytes());
        body.extend([0; 16]);
        body.extend(path);
        let found = Request::parse(&message(Command::TreeConnect, &body)).unwrap();
        assert_eq!(found.path, "\\\\a\\b");
    }
}
