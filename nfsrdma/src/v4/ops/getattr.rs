//! GETATTR (RFC 8881 section 18.7).

use crate::v4::attrs::{Bitmap, Facts, is_write_only};
use crate::v4::compound::Compound;
use crate::v4::status::Status;

pub(in crate::v4) async fn getattr(cx: &mut Compound<'_>) -> Result<(), Status> {
    let want = cx.args.value::<Bitmap>()?;
    if is_write_only(&want) {
        return Err(Status::Inval);
    }
    // What the share wants protected more is not told, and a client that only wants to give back asks again without attributes.
    if cx.is_for_user_next(&mut cx.args.clone()) {
        return Err(Status::Access);
    }
    let facts = Facts::of(cx, cx.mounted()?, &want).await?;
    cx.found_again(facts.nlink()).await?;
    facts.encode(&want, cx.out.head());
    Ok(())
}
