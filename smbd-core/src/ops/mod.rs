//! Command handlers, one file per command. `call` parses the request, executes it through [`vfs::namespace`], and returns the
//! [`crate::answer::Answer`].

use crate::request_context::RequestContext;
use crate::status::Status;

mod bytes;
pub(crate) mod change_notify;
pub(crate) mod close;
pub(crate) mod create;
pub(crate) mod echo;
pub(crate) mod flush;
mod held_times;
pub(crate) mod ioctl;
pub(crate) mod lock;
pub(crate) mod logoff;
pub(crate) mod negotiate;
pub(crate) mod oplock_break;
mod password;
mod pipe;
mod pipe_host;
pub(crate) mod query_directory;
pub(crate) mod query_info;
mod quota;
pub(crate) mod read;
mod remote;
mod rename;
pub(crate) mod room;
pub(crate) mod session_setup;
pub(crate) mod set_info;
mod stream_notice;
pub(crate) mod tree_connect;
pub(crate) mod tree_disconnect;
pub(crate) mod write;

#[cfg(test)]
mod tests;

/// Limits the output of QUERY_INFO, QUERY_DIRECTORY and CHANGE_NOTIFY (MS-SMB2 sections 3.3.5.18 to 20).
fn check_output(cx: &RequestContext, len: u32) -> Result<(), Status> {
    let max = cx.conn.negotiated().map_or(0, |n| n.transact_max);
    if len > max { Err(Status::INVALID_PARAMETER) } else { Ok(()) }
}

/// Refuses POSIX information classes unless the client has negotiated the extensions.
fn check_posix(cx: &RequestContext) -> Result<(), Status> {
    let agreed = cx.conn.negotiated().is_some_and(|n| n.posix);
    if agreed { Ok(()) } else { Err(Status::INVALID_INFO_CLASS) }
}
