//! CLOSE (MS-SMB2 section 3.3.5.10): returns the final attributes and [ends](crate::teardown) the open.
//!
//! *Errors.* If storage lost data that the open wrote without a flush, fails to set the last-write time, or does not remove a file
//! that the close should, the open still ends and the response reports the error.

use vfs::VfsError;

use crate::answer::Answer;
use crate::file_info;
use crate::open::{File, Open};
use crate::request_context::RequestContext;
use crate::status::Status;
use crate::symlinks::LinkFacts;
use crate::teardown;
use crate::wire::close::{Basics, POSTQUERY_ATTRIB, Request, Response};

pub(crate) async fn call(cx: &RequestContext) -> Result<Answer, Status> {
    let r = cx.parse(Request::parse)?;
    let open = cx.open(r.file)?;
    let dated = super::held_times::at_close(cx, &open).await;
    let basics = match open.file() {
        Ok(file) if r.flags & POSTQUERY_ATTRIB != 0 => basics(cx, &open, file).await,
        _ => None,
    };
    let lost = open.file().is_ok_and(|file| open.open_state.take_lost(file.node().losses()));
    open.caching.give_back();
    let remains = teardown::end_open(&cx.server, &open).await;
    if lost {
        return Err(VfsError::Io.into());
    }
    dated?;
    if let Some(why) = remains {
        return Err(why.into());
    }
    Ok(Answer::ok(Response { basics }.emit()))
}

async fn basics(cx: &RequestContext, open: &Open, file: &File) -> Option<Basics> {
    let by_macos = open.open_state.by_macos;
    let mut facts = file_info::of_file(&cx.file_ops(open), file, by_macos).await.ok()?;
    if let Some(link) = LinkFacts::of_open(cx, open, file).await {
        link.add_to(&mut facts);
    }
    let n = facts.network_open();
    Some(Basics {
        times: [n.creation.0, n.last_access.0, n.last_write.0, n.change.0],
        allocation_size: n.allocation,
        end_of_file: n.end_of_file,
        attributes: n.attributes,
    })
}
