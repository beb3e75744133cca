//! DESTROY_SESSION (RFC 8881 section 18.37).

use crate::v4::compound::Compound;
use crate::v4::session::SessionId;
use crate::v4::status::Status;

pub(in crate::v4) async fn destroy_session(cx: &mut Compound<'_>) -> Result<(), Status> {
    let id: SessionId = cx.args.value()?;
    let clients = &cx.nfs.clients;
    let session = clients.sessions.get(&id).map(|s| s.clone()).ok_or(Status::BadSession)?;
    cx.may_manage(&session.client)?;
    // RFC 8881 section 18.37.3, where the client asked for state protection; like Linux' server not of other clients, which end a
    // session over whatever connection they still have.
    if !session.takes_calls_of(cx.conn.id) {
        return Err(Status::ConnNotBoundToSession);
    }
    // Its own session may only be ended by the last operation of a COMPOUND.
    let own = cx.slot.as_ref().is_some_and(|s| s.session.id == id);
    if own && cx.index + 1 != cx.count {
        return Err(Status::NotOnlyOp);
    }
    // Requests on other slots have not been answered: their replies would have nowhere to be kept.
    if session.slots().busy() > usize::from(own) {
        return Err(Status::Delay);
    }
    session.kill();
    clients.sessions.remove(&id);
    session.client.sessions().retain(|s| s.id != id);
    Ok(())
}
