//! CLOSE (MS-SMB2 section 3.3.5.10), and the end of opens by other ways.
//!
//! *Operation.* An open leaves the table first, so nobody can use it any more; then what it held is given back; last, names that
//! waited for it are removed (MS-FSA section 2.1.5.5).
//!
//! *Errors.* A name that cannot be removed stays; nobody is left to be told.

use std::sync::Arc;

use state::Who;
use vfs::Kind;

use crate::cx::{Answer, Cx};
use crate::facts;
use crate::open::{File, Open};
use crate::server::Core;
use crate::status::Status;
use crate::wire::close::{Basics, POSTQUERY_ATTRIB, Request, Response};

/// Answers CLOSE.
pub(crate) async fn call(cx: &Cx) -> Result<Answer, Status> {
    let r = Request::parse(&cx.message)?;
    let open = cx.open(r.file)?;
    super::set_info::at_close(cx, &open).await;
    let basics = match open.file() {
        Ok(file) if r.flags & POSTQUERY_ATTRIB != 0 => basics(file).await,
        _ => None,
    };
    end(&cx.server, &open).await;
    Ok(Answer::ok(Response { basics }.emit()))
}

async fn basics(file: &File) -> Option<Basics> {
    let facts = facts::of_file(file).await.ok()?;
    let n = facts.network_open();
    Some(Basics {
        times: [n.creation.0, n.last_access.0, n.last_write.0, n.change.0],
        allocation_size: n.allocation,
        end_of_file: n.end_of_file,
        attributes: n.attributes,
    })
}

/// Ends an open: by CLOSE, or because its tree, session or connection has ended.
pub(crate) async fn end(core: &Core, open: &Arc<Open>) {
    let Some(ripe) = core.opens.remove(open) else { return };
    if let Ok(file) = open.file() {
        core.namespace.keeper().close(file.node.id(), open.party.holder);
    }
    crate::lease::closed(core, open);
    crate::durable::closed(core, open);
    for doomed in &ripe {
        if let Ok(file) = doomed.file()
            && let Err(why) = remove(core, doomed, file).await
        {
            tracing::debug!(path = file.place().path, "a name could not be removed: {why:?}");
        }
    }
    core.opens.removed(&ripe);
    crate::persist::forget(core, open).await;
}

/// Removes the name of an open that was the last of it.
async fn remove(core: &Core, open: &Open, file: &File) -> Result<(), Status> {
    let place = file.place();
    let who = Who { client: open.party.client(), holder: None };
    let door = core.namespace.by(Some(who));
    if let Some(stream) = &file.stream {
        return Ok(door.stream_remove(&file.share, &file.base, stream).await?);
    }
    let (node, attr) = place.dir.lookup(&open.cred, &place.name).await?;
    // Somebody may have put another file there by other ways.
    if node.id() != file.base.id() {
        return Ok(());
    }
    if attr.kind == Kind::Dir {
        door.rmdir(&file.share, &place.dir, &open.cred, &place.name).await?;
    } else {
        door.unlink(&file.share, &place.dir, &open.cred, &place.name).await?;
    }
    Ok(())
}
