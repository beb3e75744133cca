//! RESTOREFH (RFC 8881 section 18.27).

use crate::v4::compound::Compound;
use crate::v4::status::Status;

pub(in crate::v4) async fn restorefh(cx: &mut Compound<'_>) -> Result<(), Status> {
    // RFC 8881 section 18.27.3 specifies NOFILEHANDLE; RFC 7530 section 16.27.4 a separate error.
    let missing = if cx.minor == 0 { Status::RestoreFh } else { Status::NoFileHandle };
    let saved = cx.saved.clone().ok_or(missing)?;
    cx.current = Some(saved);
    cx.current_stateid = cx.saved_stateid;
    Ok(())
}
