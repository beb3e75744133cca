//! GET_DIR_DELEGATION (RFC 8881 section 18.39): a delegation of the current directory, which is recalled when somebody else is
//! about to change it. No notifications are sent, so none are promised, whatever the client asks for.

use crate::v4::attrs::Bitmap;
use crate::v4::compound::Compound;
use crate::v4::deleg::delegate_directory;
use crate::v4::object::Object;
use crate::v4::status::Status;
use crate::v4::wire::VERIFIER_SIZE;
use nfs_proto::nfs4::ops::{DirDelegated, DirDelegation4, GetDirDelegation};

pub(in crate::v4) async fn get_dir_delegation(cx: &mut Compound<'_>) -> Result<(), Status> {
    let _: GetDirDelegation = cx.args.value()?;
    // Above the shares nothing is delegated: it changes when the configuration does.
    let at = match cx.object()? {
        Object::Above(_) => None,
        Object::Node(_) => Some(cx.directory()?),
    };
    let given = match (&at, cx.client.clone()) {
        (Some(at), Some(client)) if !cx.nfs.clients.in_grace() => {
            cx.nfs.clients.enter(&client).await?;
            // Looked at before: a change after this look either waits for the delegation or prevents it.
            let change = at.node.getattr().await?.change;
            delegate_directory(cx, &client, at, change)
        }
        _ => None,
    };
    let Some(stateid) = given else {
        cx.out.value(&DirDelegation4::Unavail(false));
        return Ok(());
    };
    cx.out.value(&DirDelegation4::Ok(DirDelegated {
        // Of READDIR's cookies, which are good for as long as the directory is there.
        cookieverf: [0; VERIFIER_SIZE],
        stateid,
        notification: Bitmap::EMPTY,
        child_attributes: Bitmap::EMPTY,
        dir_attributes: Bitmap::EMPTY,
    }));
    cx.current_stateid = Some(stateid);
    Ok(())
}
