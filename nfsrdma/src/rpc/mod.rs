//! ONC RPC version 2 (RFC 5531): the heads of calls and replies, pure; and calls of ours to a client's host ([`outgoing`]).

pub mod auth;
pub mod call;
pub mod outgoing;
pub mod reply;

pub use auth::{AuthStat, Flavor, decode_cred};
pub use call::{CallError, CallHead, decode_call};

/// The only version of the RPC protocol (RFC 5531 section 9).
pub const RPC_VERSION: u32 = 2;
/// Most bytes of the body of a credential or verifier (RFC 5531 section 8.2).
pub const AUTH_BODY_MAX: usize = 400;

/// Program numbers.
pub mod program {
    /// The port mapper (RFC 1833).
    pub const PORTMAP: u32 = 100_000;
    /// NFS (RFC 1813, RFC 8881).
    pub const NFS: u32 = 100_003;
    /// MOUNT (RFC 1813 section 5).
    pub const MOUNT: u32 = 100_005;
    /// The lock manager, NLM (RFC 1813 appendix II).
    pub const NLM: u32 = 100_021;
    /// The status monitor, NSM.
    pub const NSM: u32 = 100_024;
    /// Lists of POSIX.1e beside NFS version 3.
    pub const NFSACL: u32 = 100_227;
}
