//! FLUSH (MS-SMB2 section 3.3.5.11): what was written is durable when it is answered.
//!
//! *Operation.* Storage that takes its time makes an interim answer (section 3.3.4.2).

use vfs::VfsError;

use crate::answer::Answer;
use crate::dtyp::mask;
use crate::request_context::RequestContext;
use crate::status::Status;
use crate::wire::flush::{Request, Response};

/// Answers FLUSH.
pub(crate) async fn call(cx: &RequestContext) -> Result<Answer, Status> {
    let r = cx.parse(Request::parse)?;
    let open = cx.open(r.file)?;
    // What is written to a pipe has been taken.
    if open.pipe().is_some() {
        return Ok(Answer::ok(Response.emit()));
    }
    let node = open.node()?;
    // Of a directory these bits are the rights to add files and directories (MS-FSA section 2.1.5.7).
    open.check(mask::WRITE_DATA | mask::APPEND_DATA)?;
    if !open.is_dir() {
        let flushing = open.open_state.begin_flush();
        let done = cx.by_storage(node.commit(0, 0)).await?;
        if done.as_ref().err() == Some(&VfsError::Delay) {
            // Nothing was synced.
            return Err(VfsError::Delay.into());
        }
        // Another open's FLUSH, or a COMMIT of NFS, may have had the error of what this one has written.
        let lost = flushing.ended(node.losses());
        done?;
        if lost {
            return Err(VfsError::Io.into());
        }
    }
    Ok(Answer::ok(Response.emit()))
}
