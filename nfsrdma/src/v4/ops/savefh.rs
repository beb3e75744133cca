//! SAVEFH (RFC 8881 section 18.28).

use crate::v4::compound::Compound;
use crate::v4::status::Status;

pub(in crate::v4) async fn savefh(cx: &mut Compound<'_>) -> Result<(), Status> {
    cx.saved = Some(cx.named()?.clone());
    cx.saved_stateid = cx.current_stateid;
    Ok(())
}
