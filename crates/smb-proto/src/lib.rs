//! The messages of SMB 2 and 3 (MS-SMB2), dialects 2.0.2 to 3.1.1.
//!
//! Start with [`smb2`], which has one module per command with its request and response in both directions. [`fscc`] has the
//! buffers of QUERY_INFO, SET_INFO, QUERY_DIRECTORY and CHANGE_NOTIFY; [`dtyp`] security identifiers, descriptors and times;
//! [`rpce`] and [`ndr`] the remote procedure calls over named pipes; [`spnego`], [`ntlm`] and [`pac`] the tokens of a logon. The
//! crate uses no sockets, files, keys, clock or runtime.
//!
//! A CREATE that queries the maximal access:
//!
//! ```
//! use smb_proto::smb2::create::Request;
//! use smb_proto::smb2::{Command, Header, context, utf16};
//!
//! let message = [
//!     0xfe, b'S', b'M', b'B', 64, 0, 1, 0, 0, 0, 0, 0, 5, 0, 31, 0, // ProtocolId to CreditRequest
//!     0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, // Flags, NextCommand, MessageId
//!     0, 0, 0, 0, 5, 0, 0, 0, 0x11, 0, 0, 0, 0, 0x40, 0, 0, // Reserved, TreeId, SessionId
//!     0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // Signature
//!     57, 0, 0, 9, 2, 0, 0, 0, // StructureSize, SecurityFlags, RequestedOplockLevel, ImpersonationLevel
//!     0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // SmbCreateFlags, Reserved
//!     0x89, 0, 0x12, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, // access, attributes, share, disposition
//!     0x40, 0, 0, 0, 120, 0, 10, 0, 136, 0, 0, 0, 24, 0, 0, 0, // options, Name, CreateContexts
//!     b'a', 0, b'.', 0, b't', 0, b'x', 0, b't', 0, 0, 0, 0, 0, 0, 0, //
//!     0, 0, 0, 0, 16, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, b'M', b'x', b'A', b'c', 0, 0, 0, 0, //
//! ];
//! let header = Header::parse(&message).unwrap();
//! assert_eq!(header.command(), Some(Command::Create));
//! assert_eq!((header.message_id, header.tree_id(), header.credits), (9, 5, 31));
//!
//! let request = Request::parse(&message).unwrap();
//! assert_eq!(utf16(&request.name).unwrap(), "a.txt");
//! let asked = context::Asked::parse(&request.contexts).unwrap();
//! assert_eq!(asked.maximal_access, Some(None));
//!
//! // A truncated message: the fault has the field and the offset.
//! let fault = Request::parse(&message[..130]).unwrap_err();
//! assert_eq!(fault.to_string(), "CreateContexts out of bounds at 112");
//! ```

pub(crate) mod der;
pub mod dtyp;
pub mod fscc;
pub mod ndr;
pub mod ntlm;
pub mod pac;
pub(crate) mod parse;
pub mod rpce;
pub mod samr;
pub mod smb2;
pub mod spnego;
pub mod status;

pub use status::NtStatus;
pub use wire;
