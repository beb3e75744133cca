//! ECHO (MS-SMB2 section 3.3.5.17).

use crate::answer::Answer;
use crate::request_context::RequestContext;
use crate::status::Status;
use crate::wire::simple;

pub(crate) async fn call(cx: &RequestContext) -> Result<Answer, Status> {
    cx.parse(simple::parse)?;
    Ok(Answer::ok(simple::BODY.to_vec()))
}
