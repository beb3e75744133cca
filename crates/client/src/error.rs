//! Errors of calls.

use std::fmt;

use nfs_proto::nfs4::Nfsstat4;
use rdma_transport::channel::ChannelError;
use wire::Fault;

pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The connection could not be established.
    Connect(String),
    /// The connection was lost.
    Down(ChannelError),
    /// The server did not accept the call (RFC 5531 section 9).
    Rpc(String),
    /// No Kerberos context exists with the server (RFC 2203), or a reply does not belong to it.
    Kerberos(String),
    /// The reply violates its format.
    Reply(Fault),
    /// MOUNT returned this error (`mountstat3`, RFC 1813 section 5).
    Mount(u32),
    /// NFS version 3 returned this error (`nfsstat3`).
    Nfs3(u32),
    /// NLM returned this error (`nlm4_stats`).
    Nlm(u32),
    /// An operation of a COMPOUND returned this error: operation number, `nfsstat4`.
    Nfs4(u32, u32),
    /// SMB returned this NTSTATUS for a command.
    Smb(smb_proto::smb2::Command, smb_proto::NtStatus),
    /// The reply violates the protocol.
    Protocol(String),
}

impl From<Fault> for Error {
    fn from(e: Fault) -> Self {
        Self::Reply(e)
    }
}

impl From<ChannelError> for Error {
    fn from(e: ChannelError) -> Self {
        Self::Down(e)
    }
}

/// Returns the name of an `nlm4_stats` (RFC 1813 section 6.1.1).
fn nlm_name(status: u32) -> &'static str {
    match status {
        1 => "NLM4_DENIED",
        2 => "NLM4_DENIED_NOLOCKS",
        3 => "NLM4_BLOCKED",
        4 => "NLM4_DENIED_GRACE_PERIOD",
        5 => "NLM4_DEADLCK",
        6 => "NLM4_ROFS",
        7 => "NLM4_STALE_FH",
        8 => "NLM4_FBIG",
        9 => "NLM4_FAILED",
        _ => "an unknown status of NLM",
    }
}

/// Returns the name of an `nfsstat3` (RFC 1813 section 2.6).
fn nfs3_name(status: u32) -> &'static str {
    match status {
        1 => "NFS3ERR_PERM",
        2 => "NFS3ERR_NOENT",
        5 => "NFS3ERR_IO",
        6 => "NFS3ERR_NXIO",
        13 => "NFS3ERR_ACCES",
        17 => "NFS3ERR_EXIST",
        18 => "NFS3ERR_XDEV",
        19 => "NFS3ERR_NODEV",
        20 => "NFS3ERR_NOTDIR",
        21 => "NFS3ERR_ISDIR",
        22 => "NFS3ERR_INVAL",
        27 => "NFS3ERR_FBIG",
        28 => "NFS3ERR_NOSPC",
        30 => "NFS3ERR_ROFS",
        31 => "NFS3ERR_MLINK",
        63 => "NFS3ERR_NAMETOOLONG",
        66 => "NFS3ERR_NOTEMPTY",
        69 => "NFS3ERR_DQUOT",
        70 => "NFS3ERR_STALE",
        10001 => "NFS3ERR_BADHANDLE",
        10002 => "NFS3ERR_NOT_SYNC",
        10003 => "NFS3ERR_BAD_COOKIE",
        10004 => "NFS3ERR_NOTSUPP",
        10005 => "NFS3ERR_TOOSMALL",
        10006 => "NFS3ERR_SERVERFAULT",
        10007 => "NFS3ERR_BADTYPE",
        10008 => "NFS3ERR_JUKEBOX",
        _ => "an unknown status",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(why) => write!(f, "cannot connect: {why}"),
            Self::Down(why) => why.fmt(f),
            Self::Rpc(why) => write!(f, "the server refused the call: {why}"),
            Self::Kerberos(why) => write!(f, "Kerberos: {why}"),
            Self::Reply(why) => write!(f, "the reply cannot be read: {why}"),
            Self::Mount(2) => f.write_str("MOUNT: the server has no such share"),
            Self::Mount(13) => f.write_str(
                "MOUNT: the server does not let this client in, or wants a port below 1024, which takes root",
            ),
            Self::Mount(status) => write!(f, "MOUNT refused with status {status}"),
            Self::Nfs3(status) => write!(f, "{} ({status})", nfs3_name(*status)),
            Self::Nlm(status) => write!(f, "{} ({status})", nlm_name(*status)),
            Self::Nfs4(op, status) => {
                let op = nfs_proto::nfs4::op::name(*op);
                match Nfsstat4::from_u32(*status) {
                    Some(name @ Nfsstat4::WrongSec) => {
                        write!(f, "{op}: {name:?} ({status}): the share wants another `sec`")
                    }
                    Some(name) => write!(f, "{op}: {name:?} ({status})"),
                    None => write!(f, "{op}: status {status}"),
                }
            }
            Self::Smb(command, status) => {
                write!(f, "{command:?}: STATUS_{status:?} ({:#010x})", status.0)
            }
            Self::Protocol(what) => write!(f, "the server breaks the protocol: {what}"),
        }
    }
}

impl std::error::Error for Error {}
