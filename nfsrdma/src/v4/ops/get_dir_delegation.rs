//! GET_DIR_DELEGATION (RFC 8881 section 18.39): a delegation of the current directory, which is recalled when somebody else is
//! about to change it. No notifications are sent, so none are promised, whatever the client asks for.

use crate::v4::attrs::Bitmap;
use crate::v4::compound::{Compound, Object};
use crate::v4::deleg::delegate_directory;
use crate::v4::status::Status;
use crate::v4::wire::VERIFIER_SIZE;

/// `gddrnf4_status`.
const GDD4_OK: u32 = 0;
const GDD4_UNAVAIL: u32 = 1;

pub(in crate::v4) async fn get_dir_delegation(cx: &mut Compound<'_>) -> Result<(), Status> {
    let _signal_when_available = cx.args.bool()?;
    let _notification_types = Bitmap::decode(&mut cx.args)?;
    for _delay in ["of children", "of the directory"] {
        let (_seconds, _nanoseconds) = (cx.args.i64()?, cx.args.u32()?);
    }
    for _attributes in ["of children", "of the directory"] {
        Bitmap::decode(&mut cx.args)?;
    }
    // Above the shares nothing is delegated: it changes when the configuration does.
    let at = match cx.object()? {
        Object::Root => None,
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
        cx.out.u32(GDD4_UNAVAIL);
        cx.out.bool(false);
        return Ok(());
    };
    cx.out.u32(GDD4_OK);
    // The verifier of READDIR's cookies, which are good for as long as the directory is there.
    cx.out.fixed(&[0; VERIFIER_SIZE]);
    stateid.encode(&mut cx.out);
    (0..3).for_each(|_| Bitmap::EMPTY.encode(&mut cx.out));
    cx.current_stateid = Some(stateid);
    Ok(())
}
