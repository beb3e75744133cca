//! GETATTR (RFC 8881 section 18.7).

use crate::v4::attrs::{Bitmap, ObjectAttrs, is_write_only};
use crate::v4::compound::Compound;
use crate::v4::status::Status;

pub(in crate::v4) async fn getattr(cx: &mut Compound<'_>) -> Result<(), Status> {
    let want = cx.args.value::<Bitmap>()?;
    if is_write_only(&want) {
        return Err(Status::Inval);
    }
    // A client whose machine releases state repeats the request without attributes if the share requires better protection.
    let object = match cx.is_for_user_next(&mut cx.args.clone()) {
        true if !cx.protects_as_much() => return Err(Status::Access),
        true => cx.current.as_ref().ok_or(Status::NoFileHandle)?,
        false => cx.described(&want)?,
    };
    let facts = ObjectAttrs::of(cx, object, &want).await?;
    cx.found_again(facts.nlink()).await?;
    facts.encode(&want, cx.out.head());
    Ok(())
}
