//! DESTROY_SESSION (RFC 8881 section 18.37).

use crate::v4::compound::Compound;
use crate::v4::session::SessionId;
use crate::v4::status::Status;

pub(in crate::v4) async fn destroy_session(cx: &mut Compound<'_>) -> Result<(), Status> {
    let id: SessionId = cx.args.value()?;
    let clients = &cx.nfs.clients;
    let session = clients.sessions.get(&id).map(|s| s.clone()).ok_or(Status::BadSession)?;
    cx.may_manage(&session.client)?;
    // RFC 8881 section 18.37.3, if the client requested state protection. Like Linux' server, other clients may end a session over
    // any remaining connection.
    if !session.takes_calls_of(cx.conn.id) {
        return Err(Status::ConnNotBoundToSession);
    }
    // A session may be ended from within only by the last operation of a COMPOUND.
    let own = cx.slot.as_ref().is_some_and(|s| s.session.id == id);
    if own && cx.index + 1 != cx.count {
        return Err(Status::NotOnlyOp);
    }
    // Requests on other slots are in progress and need the session to store their replies.
    if session.slots().busy() > usize::from(own) {
        return Err(Status::Delay);
    }
    session.kill();
    clients.sessions.remove(&id);
    session.client.sessions().retain(|s| s.id != id);
    Ok(())
}
