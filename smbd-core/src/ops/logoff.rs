//! LOGOFF (MS-SMB2 section 3.3.5.6): ends the session on all its connections.

use crate::answer::Answer;
use crate::request_context::RequestContext;
use crate::status::Status;
use crate::teardown::{TeardownReason, end_session};
use crate::wire::simple;

pub(crate) async fn call(cx: &RequestContext) -> Result<Answer, Status> {
    cx.parse(simple::parse)?;
    end_session(&cx.server, cx.session()?, TeardownReason::Connection, "logoff").await;
    Ok(Answer::ok(simple::BODY.to_vec()))
}
