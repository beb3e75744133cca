//! Leaves for [nom] parsers of binary network protocols, whose errors name field, rule and offset.
//!
//! A parser is a function from `&[u8]` to [`Parsed`]. The leaves of this crate are given the name of their field; nom's own
//! combinators and tuples put them together. [`decode`] runs a parser, and [`Malformed::at`] turns its error into a [`Fault`],
//! which says where in the message the parser stopped.
//!
//! A NULL call to the port mapper, as RFC 5531 lays it out:
//!
//! ```
//! use wire::{Fault, Parser, Rule, be_u32, decode, opaque};
//!
//! let call = [
//!     0x5c, 0x0e, 0x14, 0x52, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0x86, 0xa0, 0, 0, 0, 2, 0, 0, 0, 0, // RFC 5531 section 9
//!     0, 0, 0, 0, 0, 0, 0, 0, // credential: AUTH_NONE
//!     0, 0, 0, 0, 0, 0, 0, 0, // verifier: AUTH_NONE
//! ];
//! let head = (be_u32("xid"), be_u32("mtype"), be_u32("rpcvers"), be_u32("prog"), be_u32("vers"), be_u32("proc"));
//! let auth = |body| (be_u32("flavor"), opaque(400, body));
//! let mut whole = (head, auth("cred.body"), auth("verf.body"));
//!
//! let (rest, ((xid, _, rpcvers, prog, ..), cred, _)) = decode(&call, |i| whole.parse(i)).unwrap();
//! assert_eq!((xid, rpcvers, prog), (0x5c0e_1452, 2, 100_000));
//! assert_eq!(cred, (0, &[][..]));
//! assert!(rest.is_empty());
//!
//! let fault: Fault = decode(&call[..38], |i| whole.parse(i)).unwrap_err().at(&call);
//! assert_eq!((fault.field, fault.rule, fault.offset), ("verf.body", Rule::Truncated, 36));
//! assert_eq!(fault.to_string(), "verf.body truncated at 36");
//! ```

pub mod emit;
mod error;
mod leaf;
mod remote;
mod sid;
pub mod xdr;

pub use error::{Fault, Malformed, Parsed, Rule, decode, reject};
pub use leaf::{
    Bulk, be_u32, be_u64, bool, bulk, bytes, known, le_u8, le_u16, le_u32, le_u64, list, opaque,
    optional, pad, take, times,
};
pub use nom::Parser;
pub use remote::RemoteSeg;
pub use sid::{BadSid, Sid};
