//! LOGOFF (MS-SMB2 section 3.3.5.6): ends the session on all its connections.

use crate::cx::{Answer, Cx};
use crate::dispatch::{Loss, end_session};
use crate::status::Status;
use crate::wire::simple;

pub(crate) async fn call(cx: &Cx) -> Result<Answer, Status> {
    cx.parse(simple::parse)?;
    end_session(&cx.server, cx.session()?, Loss::Connection, "logoff").await;
    Ok(Answer::ok(simple::BODY.to_vec()))
}
