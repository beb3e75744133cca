//! PUTROOTFH and PUTPUBFH (RFC 8881 sections 18.20 and 18.21): the public file handle is the root.

use crate::v4::above::Above;
use crate::v4::compound::Compound;
use crate::v4::object::Object;
use crate::v4::status::Status;

pub(in crate::v4) async fn putrootfh(cx: &mut Compound<'_>) -> Result<(), Status> {
    cx.set_current(Object::Above(Above::root()));
    Ok(())
}
