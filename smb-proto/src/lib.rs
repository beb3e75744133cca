//! The messages of SMB 2 and 3 (MS-SMB2), dialects 2.0.2 to 3.1.1.
//!
//! [`smb2`] has one module for each command, with its request and its response, both directions. Nothing here knows sockets, files,
//! keys, a clock or a runtime.
//!
//! The header of a FLUSH, as a client sends it:
//!
//! ```
//! use smb_proto::smb2::{Command, Header};
//!
//! let message = [
//!     0xfe, b'S', b'M', b'B', 64, 0, 1, 0, 0, 0, 0, 0, 7, 0, 31, 0, // ProtocolId to CreditRequest
//!     0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, // Flags, NextCommand, MessageId
//!     0, 0, 0, 0, 5, 0, 0, 0, 0x11, 0, 0, 0, 0, 0x40, 0, 0, // Reserved, TreeId, SessionId
//!     0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // Signature
//! ];
//! let header = Header::parse(&message).unwrap();
//! assert_eq!(header.command(), Some(Command::Flush));
//! assert_eq!((header.message_id, header.tree_id(), header.credits), (9, 5, 31));
//! let fault = Header::parse(&message[..50]).unwrap_err();
//! assert_eq!(fault.to_string(), "Signature truncated at 48");
//! ```

pub(crate) mod parse;
pub mod smb2;

pub use wire;
