//! SETATTR (RFC 8881 section 18.30). Its result has a bitmap whatever the status: of what was set before it failed. The loop writes
//! an empty one where nothing was.
//!
//! Where a volume fails in the middle of several attributes, those that have changed to what was asked are told as set.

use nfs_proto::nfs4::ops::Setattr;
use vfs::{Access, DelegatedTimes, Kind, SetAttr};

use crate::v4::attrs::{Purpose, ToSet, supported};
use crate::v4::compound::Compound;
use crate::v4::deleg::check_keeps_times;
use crate::v4::object::Located;
use crate::v4::stateid_access::{IoAccess, StateidAccess, check_io};
use crate::v4::status::Status;

pub(in crate::v4) async fn setattr(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Setattr { stateid, obj_attributes } = cx.args.value()?;
    let at = cx.node()?.clone();
    let caps = at.share.backend.capabilities_of(&at.node);
    let to_set = cx.to_set(&obj_attributes, &supported(cx.minor, &caps), Purpose::Change).await?;
    to_set.check_list(&at.share, at.node.kind())?;
    // Other attributes than the size change no bytes.
    let mut right = StateidAccess { who: cx.requester(), open_checked: false, is_opener: true };
    if to_set.set.size.is_some() {
        // Only the size needs the stateid; with others it is not looked at (RFC 8881 section 18.30.3).
        let file = cx.file()?;
        right = check_io(cx, &file, stateid, IoAccess::Write).await?;
        if !right.open_checked {
            check_write(&at).await?;
        }
    }
    let set = match to_set.mode_masked {
        Some(_) => to_set.with_mode(at.node.getattr().await?.mode),
        None => to_set.set,
    };
    let mut file_ops = cx.nfs.core.namespace.by(right.who).audited(cx.call);
    if to_set.keeps_list() {
        file_ops = file_ops.keeping_list();
    }
    let kept = to_set.delegated != DelegatedTimes::default();
    if kept {
        let times = to_set.delegated.since(check_keeps_times(cx, &at, stateid)?);
        file_ops.set_delegated_times(&at.share, &at.node, times).await?;
    }
    // First, since a new owner may forbid it.
    let created = to_set.apply_created(&file_ops, &at).await?;
    let is_dated = to_set.created.is_some();
    if set != SetAttr::default() || to_set.acl.is_none() && !kept && !is_dated {
        // One alone is set or not; of several, the first may be when a later one fails.
        let before = match to_set.several() {
            true => Some(at.node.getattr().await?),
            false => None,
        };
        let change = file_ops.setattr(&at.share, &at.node, &at.cred, set, right.open_checked);
        if let Err(e) = cx.recorded(&at, &right, change).await {
            let after = match before {
                Some(_) => at.node.getattr().await.ok(),
                None => None,
            };
            let done = to_set.done_before(&set, before.zip(after).as_ref());
            cx.out.value(&done.or(&created));
            return Err(e.into());
        }
    }
    let set_so_far = to_set.named.without(&ToSet::CREATED).or(&created);
    if let Err(e) = to_set.apply_acl(&file_ops, &at).await {
        // The list is the last to be set.
        cx.out.value(&set_so_far.without(&ToSet::LIST));
        return Err(e.into());
    }
    let done = match at.node.kind() {
        // A link has no permission of its own; the client is told that none was set.
        Kind::Symlink => set_so_far.without(&ToSet::PERMISSION),
        _ => set_so_far,
    };
    cx.out.value(&done);
    Ok(())
}

/// Refuses a change of size without an open that may write, where the mode or the list lets the caller not write. The owner of a
/// file goes on with it after a `chmod` by its opens, which version 3 has not: a client cuts by this stateid what it has open for
/// reading.
async fn check_write(at: &Located) -> Result<(), Status> {
    let attr = at.node.getattr().await?;
    let may = at.node.access(&at.cred, Access(Access::MODIFY), &attr).await?;
    if may.0 & Access::MODIFY == 0 { Err(Status::Access) } else { Ok(()) }
}
