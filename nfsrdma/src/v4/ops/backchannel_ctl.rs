//! BACKCHANNEL_CTL (RFC 8881 section 18.33): another program number or credential for callbacks.

use crate::v4::compound::Compound;
use crate::v4::session::decode_callback_creds;
use crate::v4::status::Status;

pub(in crate::v4) async fn backchannel_ctl(cx: &mut Compound<'_>) -> Result<(), Status> {
    let program = cx.args.u32()?;
    let cred = decode_callback_creds(&mut cx.args)?;
    let slot = cx.slot.as_ref().ok_or(Status::OpNotInSession)?;
    if cred.is_none() {
        // None that this server can use.
        return Err(Status::Inval);
    }
    let mut back = slot.session.back();
    back.program = program;
    back.cred = cred;
    Ok(())
}
