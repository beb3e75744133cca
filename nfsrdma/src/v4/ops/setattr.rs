//! SETATTR (RFC 8881 section 18.30). The result always contains a bitmap of the attributes set, even after a failure. The caller
//! writes an empty bitmap if this operation wrote no bitmap.
//!
//! If the volume fails after setting some of several attributes, those that have the requested value now are reported as set.

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
    // Attributes other than the size do not change file data.
    let mut right = StateidAccess { who: cx.requester(), open_checked: false, is_opener: true };
    if to_set.set.size.is_some() {
        // Only the size needs the stateid; otherwise it is ignored (RFC 8881 section 18.30.3).
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
    // Set first, since a new owner may lose the permission.
    let created = to_set.apply_created(&file_ops, &at).await?;
    let is_dated = to_set.created.is_some();
    if set != SetAttr::default() || to_set.acl.is_none() && !kept && !is_dated {
        // A single attribute is either set or not; of several, some may be set when a later one fails.
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
        // The list is set last.
        cx.out.value(&set_so_far.without(&ToSet::LIST));
        return Err(e.into());
    }
    let done = match at.node.kind() {
        // Symbolic links have no permissions: they are reported as not set.
        Kind::Symlink => set_so_far.without(&ToSet::PERMISSION),
        _ => set_so_far,
    };
    cx.out.value(&done);
    Ok(())
}

/// Checks write permission for a change of size without an open for writing. In NFSv4 an owner continues after a `chmod` through
/// its opens (in NFSv3 it has none), and a stateid of an open for reading does not allow truncation. What takes no changes at all,
/// such as a snapshot, refuses the change itself, with the status for that.
async fn check_write(at: &Located) -> Result<(), Status> {
    let attr = at.node.getattr().await?;
    if at.share.read_only || attr.sealed {
        return Ok(());
    }
    let may = at.node.access(&at.cred, Access(Access::MODIFY), &attr).await?;
    if may.0 & Access::MODIFY == 0 { Err(Status::Access) } else { Ok(()) }
}
