//! Typed messages of ONC RPC and the programs of NFS, in both directions. Contains no server and performs no I/O.
//!
//! Each type is declared field by field, like in the specification's `.x` file, and has a parser and an encoder ([`xdr::Xdr`]). A
//! fault names the field, the rule that it breaks and the offset.
//!
//! The SM_NOTIFY that a Linux host sends after a restart:
//!
//! ```
//! use nfs_proto::{nsm, oncrpc, wire};
//!
//! let message = [
//!     0x6a, 0x2c, 0x91, 0x0f, 0, 0, 0, 0, 0, 0, 0, 2, // xid, CALL, RPC version 2
//!     0, 1, 0x86, 0xb8, 0, 0, 0, 1, 0, 0, 0, 6, // NSM version 1, SM_NOTIFY
//!     0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // AUTH_NONE twice
//!     0, 0, 0, 6, b'c', b'l', b'i', b'e', b'n', b't', 0, 0, // mon_name
//!     0, 0, 0, 9, // state
//! ];
//!
//! let (arguments, head) = oncrpc::CallHead::decode(&message).unwrap();
//! assert_eq!((head.program, head.version), (oncrpc::program::NSM, nsm::VERSION));
//! let args = wire::decode(arguments, |i| nsm::Args::parse(head.procedure, i));
//! let notify = nsm::StatChge { mon_name: b"client", state: 9 };
//! assert_eq!(args, Ok((&[][..], Some(nsm::Args::Notify(notify)))));
//!
//! // A truncated message: the fault has the field and the offset.
//! let cut = &message[..54];
//! let (arguments, head) = oncrpc::CallHead::decode(cut).unwrap();
//! let fault = wire::decode(arguments, |i| nsm::Args::parse(head.procedure, i)).unwrap_err().at(cut);
//! assert_eq!(fault.to_string(), "state truncated at 52");
//! ```

pub mod mount;
pub mod nfs3;
pub mod nfs4;
pub mod nlm;
pub mod nsm;
pub mod oncrpc;
pub mod rpcbind;
pub mod rpcsec_gss;
pub mod rquota;
pub mod xdr;

pub use wire;
