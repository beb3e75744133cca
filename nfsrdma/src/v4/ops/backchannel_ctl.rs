//! BACKCHANNEL_CTL (RFC 8881 section 18.33): another program number or credential for callbacks.

use crate::v4::compound::Compound;
use crate::v4::session::CallbackCred;
use crate::v4::status::Status;
use nfs_proto::nfs4::ops::BackchannelCtl;

pub(in crate::v4) async fn backchannel_ctl(cx: &mut Compound<'_>) -> Result<(), Status> {
    let BackchannelCtl { cb_program, sec_parms } = cx.args.value()?;
    let cred = CallbackCred::first_of(&sec_parms);
    let slot = cx.slot.as_ref().ok_or(Status::OpNotInSession)?;
    if cred.is_none() {
        // The list has no flavor that this server can use.
        return Err(Status::Inval);
    }
    let mut back = slot.session.back();
    back.program = cb_program;
    back.cred = cred;
    Ok(())
}
