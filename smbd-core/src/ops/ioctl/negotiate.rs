//! FSCTL_VALIDATE_NEGOTIATE_INFO (MS-SMB2 section 3.3.5.15.12): detects tampering with the negotiation.

use std::borrow::Cow;

use crate::answer::Answer;
use crate::request_context::RequestContext;
use crate::status::Status;
use crate::violation::Violation;
use crate::wire::FileId;
use crate::wire::fsctl::{ValidateNegotiate, Validated};
use crate::wire::ioctl::{Request, Response};
use crate::wire::negotiate::Dialect;

/// Confirms the negotiated parameters. If they differ from the client's, closes the connection, since an attacker has changed them.
pub(super) async fn validate(cx: &RequestContext, r: &Request<'_>) -> Result<Answer, Status> {
    match check(cx, r) {
        Ok(validated) => {
            let output = validated.emit();
            let response = Response { code: r.code, file: FileId::PREVIOUS, output: &output };
            Ok(Answer::ok(response.emit()))
        }
        Err(why) => {
            Violation::Downgrade.note(&cx.conn, &why);
            cx.conn.handle.shutdown().await;
            Err(Status::ACCESS_DENIED)
        }
    }
}

fn check(cx: &RequestContext, r: &Request<'_>) -> Result<Validated, Cow<'static, str>> {
    let n = cx.conn.negotiated().ok_or("nothing was negotiated")?;
    if n.dialect == Dialect::V311 {
        return Err("dialect 3.1.1 needs no validation".into());
    }
    if r.output_max < Validated::LEN {
        return Err("no room for the answer".into());
    }
    let v = ValidateNegotiate::parse(r.input).map_err(|fault| fault.to_string())?;
    // Equal lists give the same greatest common dialect.
    if v.dialects != n.client_dialects {
        return Err("Dialects".into());
    }
    if v.guid != n.client_guid {
        return Err("Guid".into());
    }
    if v.security_mode != n.client_security_mode {
        return Err("SecurityMode".into());
    }
    if v.capabilities != n.client_capabilities {
        return Err("Capabilities".into());
    }
    Ok(Validated {
        capabilities: n.capabilities,
        guid: cx.server.settings().server_guid,
        security_mode: n.security_mode,
        dialect: n.dialect.number(),
    })
}
