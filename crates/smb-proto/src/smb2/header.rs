//! The header of every message (MS-SMB2 sections 2.2.1.1 and 2.2.1.2).

use wire::{Parser, bytes, le_u16, le_u32, le_u64};

use super::{HEADER_LEN, Parsed};
use crate::parse::{constant, whole};

/// The first four bytes of an unencrypted message.
pub const PROTOCOL_ID: [u8; 4] = *b"\xfeSMB";

/// A command (MS-SMB2 section 2.2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
#[allow(missing_docs)] // The names are the specification's.
pub enum Command {
    Negotiate = 0,
    SessionSetup = 1,
    Logoff = 2,
    TreeConnect = 3,
    TreeDisconnect = 4,
    Create = 5,
    Close = 6,
    Flush = 7,
    Read = 8,
    Write = 9,
    Lock = 10,
    Ioctl = 11,
    Cancel = 12,
    Echo = 13,
    QueryDirectory = 14,
    ChangeNotify = 15,
    QueryInfo = 16,
    SetInfo = 17,
    OplockBreak = 18,
}

impl Command {
    /// All commands in the order of their numbers.
    pub const ALL: [Self; 19] = [
        Self::Negotiate,
        Self::SessionSetup,
        Self::Logoff,
        Self::TreeConnect,
        Self::TreeDisconnect,
        Self::Create,
        Self::Close,
        Self::Flush,
        Self::Read,
        Self::Write,
        Self::Lock,
        Self::Ioctl,
        Self::Cancel,
        Self::Echo,
        Self::QueryDirectory,
        Self::ChangeNotify,
        Self::QueryInfo,
        Self::SetInfo,
        Self::OplockBreak,
    ];

    /// Returns the specification's name, without `SMB2`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Negotiate => "NEGOTIATE",
            Self::SessionSetup => "SESSION_SETUP",
            Self::Logoff => "LOGOFF",
            Self::TreeConnect => "TREE_CONNECT",
            Self::TreeDisconnect => "TREE_DISCONNECT",
            Self::Create => "CREATE",
            Self::Close => "CLOSE",
            Self::Flush => "FLUSH",
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::Lock => "LOCK",
            Self::Ioctl => "IOCTL",
            Self::Cancel => "CANCEL",
            Self::Echo => "ECHO",
            Self::QueryDirectory => "QUERY_DIRECTORY",
            Self::ChangeNotify => "CHANGE_NOTIFY",
            Self::QueryInfo => "QUERY_INFO",
            Self::SetInfo => "SET_INFO",
            Self::OplockBreak => "OPLOCK_BREAK",
        }
    }

    /// Returns the counter name for this number; [`Command::ALL`]`.len()` counts unknown commands.
    pub fn name_of(number: u8) -> &'static str {
        Self::from_number(number.into()).map_or("UNKNOWN", Self::name)
    }

    /// Returns the command with this number.
    pub fn from_number(n: u16) -> Option<Self> {
        Self::ALL.get(usize::from(n)).copied()
    }
}

/// The `Flags` of a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// SMB2_FLAGS_SERVER_TO_REDIR: a response, or a notice of the server.
    pub const RESPONSE: u32 = 0x1;
    /// SMB2_FLAGS_ASYNC_COMMAND: `AsyncId` replaces the tree.
    pub const ASYNC: u32 = 0x2;
    /// SMB2_FLAGS_RELATED_OPERATIONS: uses session, tree and file of the previous message in the chain.
    pub const RELATED: u32 = 0x4;
    /// SMB2_FLAGS_SIGNED
    pub const SIGNED: u32 = 0x8;
    /// SMB2_FLAGS_PRIORITY_MASK
    pub const PRIORITY: u32 = 0x70;
    /// SMB2_FLAGS_DFS_OPERATIONS
    pub const DFS: u32 = 0x1000_0000;
    /// SMB2_FLAGS_REPLAY_OPERATION
    pub const REPLAY: u32 = 0x2000_0000;

    /// Checks that all of these bits are set.
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Credits that this message costs; 0 counts as 1. Always 0 in dialect 2.0.2.
    pub credit_charge: u16,
    /// Status of a response. In a request of 3.x: `ChannelSequence` in the low 16 bits.
    pub status: u32,
    /// Number of the command; the server also replies to unknown ones.
    pub command: u16,
    /// Credits requested or granted.
    pub credits: u16,
    /// Flags.
    pub flags: Flags,
    /// Offset of the next message of the chain from this header; 0 in the last.
    pub next: u32,
    /// Number of the message.
    pub message_id: u64,
    /// `Reserved` and `TreeId`, or `AsyncId` if [`Flags::ASYNC`] is set.
    pub tree_or_async: u64,
    /// The session.
    pub session_id: u64,
    /// The signature, or zeros.
    pub signature: [u8; 16],
}

impl Header {
    /// Position of the signature.
    pub const SIGNATURE: std::ops::Range<usize> = 48..64;
    /// Position of `NextCommand`.
    pub const NEXT: std::ops::Range<usize> = 20..24;

    /// Parses the header at the start of `message`.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        whole(message, |i| {
            let (i, ()) = constant("ProtocolId", bytes("ProtocolId"), PROTOCOL_ID)(i)?;
            let (i, ()) = constant("StructureSize", le_u16("StructureSize"), 64)(i)?;
            let (i, (credit_charge, status, command, credits)) = (
                le_u16("CreditCharge"),
                le_u32("Status"),
                le_u16("Command"),
                le_u16("CreditRequest"),
            )
                .parse(i)?;
            let (i, (flags, next)) = (le_u32("Flags"), le_u32("NextCommand")).parse(i)?;
            let (i, (message_id, tree_or_async, session_id)) =
                (le_u64("MessageId"), le_u64("TreeId"), le_u64("SessionId")).parse(i)?;
            let (i, signature) = bytes("Signature")(i)?;
            let flags = Flags(flags);
            Ok((
                i,
                Self {
                    credit_charge,
                    status,
                    command,
                    credits,
                    flags,
                    next,
                    message_id,
                    tree_or_async,
                    session_id,
                    signature,
                },
            ))
        })
    }

    /// Serializes it.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[..4].copy_from_slice(&PROTOCOL_ID);
        out[4..6].copy_from_slice(&64_u16.to_le_bytes());
        out[6..8].copy_from_slice(&self.credit_charge.to_le_bytes());
        out[8..12].copy_from_slice(&self.status.to_le_bytes());
        out[12..14].copy_from_slice(&self.command.to_le_bytes());
        out[14..16].copy_from_slice(&self.credits.to_le_bytes());
        out[16..20].copy_from_slice(&self.flags.0.to_le_bytes());
        out[Self::NEXT].copy_from_slice(&self.next.to_le_bytes());
        out[24..32].copy_from_slice(&self.message_id.to_le_bytes());
        out[32..40].copy_from_slice(&self.tree_or_async.to_le_bytes());
        out[40..48].copy_from_slice(&self.session_id.to_le_bytes());
        out[Self::SIGNATURE].copy_from_slice(&self.signature);
        out
    }

    /// Returns the command, if it is known.
    pub fn command(&self) -> Option<Command> {
        Command::from_number(self.command)
    }

    /// Returns the tree, the high half of the field, if the message is not asynchronous.
    pub fn tree_id(&self) -> u32 {
        let b = self.tree_or_async.to_le_bytes();
        u32::from_le_bytes([b[4], b[5], b[6], b[7]])
    }

    /// Returns a tree number in the format of the field.
    pub fn of_tree(id: u32) -> u64 {
        u64::from(id) << 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip() {
        let h = Header {
            credit_charge: 1,
            status: 0xc000_0022,
            command: 5,
            credits: 33,
            flags: Flags(Flags::RESPONSE | Flags::SIGNED),
            next: 152,
            message_id: 0x0102_0304_0506_0708,
            tree_or_async: Header::of_tree(7),
            session_id: 0x1122,
            signature: *b"0123456789abcdef",
        };
        assert_eq!(Header::parse(&h.emit()), Ok(h));
        assert_eq!((h.tree_id(), h.command()), (7, Some(Command::Create)));
    }

    #[test]
    fn invalid_header_names_field() {
        let said = |bytes: &[u8]| Header::parse(bytes).map_err(|fault| fault.to_string());
        assert_eq!(said(&[0; 64]), Err("ProtocolId invalid at 0".into()));
        let mut bytes = [0; 64];
        bytes[..4].copy_from_slice(&PROTOCOL_ID);
        assert_eq!(said(&bytes), Err("StructureSize invalid at 4".into()));
        bytes[4] = 64;
        assert!(Header::parse(&bytes).is_ok());
        assert_eq!(said(&bytes[..60]), Err("Signature truncated at 48".into()));
    }
}
