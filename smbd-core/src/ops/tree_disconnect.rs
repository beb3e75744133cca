//! TREE_DISCONNECT (MS-SMB2 section 3.3.5.8): closes all opens of the tree.

use crate::answer::Answer;
use crate::request_context::RequestContext;
use crate::status::Status;
use crate::teardown::{TeardownReason, lose};
use crate::wire::simple;

pub(crate) async fn call(cx: &RequestContext) -> Result<Answer, Status> {
    cx.parse(simple::parse)?;
    let (session, id) = (cx.session()?, cx.tree()?.id);
    let tree = session.remove_tree(id).ok_or(Status::NETWORK_NAME_DELETED)?;
    session.tell_tree_end(&tree, "disconnect");
    lose(&cx.server, session.id, Some(id), TeardownReason::GivenUp).await;
    Ok(Answer::ok(simple::BODY.to_vec()))
}
