//! GET_DIR_DELEGATION (RFC 8881 section 18.39): a delegation of the current directory, recalled before another client changes it.
//! Notifications are not supported, so none are granted, whatever the client requests.
//!
//! *Operation.* Changes of the directory wait for the holder of a delegation, so only users who may list the directory (as for
//! READDIR) get one. Others get GDD4_UNAVAIL rather than NFS4ERR_ACCESS: Linux sends the request in the COMPOUND of a GETATTR,
//! which must continue.

use crate::v4::attrs::Bitmap;
use crate::v4::compound::Compound;
use crate::v4::deleg::delegate_directory;
use crate::v4::object::{Located, Object};
use crate::v4::status::Status;
use crate::v4::wire::VERIFIER_SIZE;
use nfs_proto::nfs4::ops::{DirDelegated, DirDelegation4, GetDirDelegation};
use vfs::{Access, Attr};

pub(in crate::v4) async fn get_dir_delegation(cx: &mut Compound<'_>) -> Result<(), Status> {
    let _: GetDirDelegation = cx.args.value()?;
    // Pseudo folders have no delegations: they change with the configuration.
    let at = match cx.object()? {
        Object::Above(_) => None,
        Object::Node(_) => Some(cx.directory()?),
    };
    let given = match (&at, cx.client.clone()) {
        (Some(at), Some(client)) if !cx.nfs.clients.in_grace() => {
            cx.nfs.clients.enter(&client).await?;
            // Read before the grant: a later change either waits for the delegation or prevents it.
            let attr = at.node.getattr().await?;
            let may = may_list(at, &attr).await?;
            may.then(|| delegate_directory(cx, &client, at, attr.change)).flatten()
        }
        _ => None,
    };
    let Some(stateid) = given else {
        cx.out.value(&DirDelegation4::Unavail(false));
        return Ok(());
    };
    cx.out.value(&DirDelegation4::Ok(DirDelegated {
        // The cookies of READDIR never become invalid.
        cookieverf: [0; VERIFIER_SIZE],
        stateid,
        notification: Bitmap::EMPTY,
        child_attributes: Bitmap::EMPTY,
        dir_attributes: Bitmap::EMPTY,
    }));
    cx.current_stateid = Some(stateid);
    Ok(())
}

async fn may_list(at: &Located, attr: &Attr) -> Result<bool, Status> {
    let granted = at.node.access(&at.cred, Access(Access::READ), attr).await?;
    Ok(granted.0 & Access::READ != 0)
}
