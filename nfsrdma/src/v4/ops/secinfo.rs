//! SECINFO and SECINFO_NO_NAME (RFC 8881 sections 18.29 and 18.45): every share takes AUTH_SYS and AUTH_NONE.

use super::lookup::child;
use super::lookupp::parent;
use crate::v4::compound::{Compound, component};
use crate::v4::status::Status;
use nfs_proto::nfs4::ops::{Component4, Secinfo4, Secinfos};
use nfs_proto::oncrpc::{AUTH_NONE, AUTH_SYS};

const SECINFO_STYLE4_CURRENT_FH: u32 = 0;
const SECINFO_STYLE4_PARENT: u32 = 1;

pub(in crate::v4) async fn secinfo(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Component4 { name } = cx.args.value()?;
    cx.object()?;
    child(cx, component(name)?).await?;
    answer(cx);
    Ok(())
}

pub(in crate::v4) async fn secinfo_no_name(cx: &mut Compound<'_>) -> Result<(), Status> {
    let style: u32 = cx.args.value()?;
    cx.mounted()?;
    match style {
        SECINFO_STYLE4_CURRENT_FH => {}
        SECINFO_STYLE4_PARENT => {
            parent(cx).await?;
        }
        _ => return Err(Status::BadXdr),
    }
    answer(cx);
    Ok(())
}

/// The flavors, best first. RFC 8881 section 2.6.3.1.1.8: the current file handle is consumed.
fn answer(cx: &mut Compound<'_>) {
    let secinfo = [AUTH_SYS, AUTH_NONE].map(Secinfo4::Other).into();
    cx.out.value(&Secinfos { secinfo });
    if cx.minor > 0 {
        cx.current = None;
        cx.current_stateid = None;
    }
}
