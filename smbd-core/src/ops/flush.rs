//! FLUSH (MS-SMB2 section 3.3.5.11): written data is durable before the response is sent.
//!
//! *Operation.* Slow storage causes an interim response (section 3.3.4.2).

use rates::Kind;
use vfs::VfsError;

use crate::answer::Answer;
use crate::dtyp::mask;
use crate::request_context::RequestContext;
use crate::status::Status;
use crate::wire::flush::{Request, Response};

pub(crate) async fn call(cx: &RequestContext) -> Result<Answer, Status> {
    let r = cx.parse(Request::parse)?;
    let open = cx.open(r.file)?;
    // Data written to a pipe has already been consumed.
    if open.pipe().is_some() {
        return Ok(Answer::ok(Response.emit()));
    }
    cx.in_rates_of(&open, Kind::Other, 0, 0).await?;
    let node = open.node()?;
    // On a directory these bits are the rights to add files and directories (MS-FSA section 2.1.5.7).
    open.check(mask::WRITE_DATA | mask::APPEND_DATA)?;
    if !open.is_dir() {
        let flushing = open.open_state.begin_flush();
        let done = cx.by_storage(node.commit(0, 0)).await?;
        if done.as_ref().err() == Some(&VfsError::Delay) {
            // The sync did not run.
            return Err(VfsError::Delay.into());
        }
        // A FLUSH of another open, or an NFS COMMIT, may have consumed the error for data that this open wrote.
        let lost = flushing.ended(node.losses());
        done?;
        if lost {
            return Err(VfsError::Io.into());
        }
    }
    Ok(Answer::ok(Response.emit()))
}
