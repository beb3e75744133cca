//! WRITE (RFC 8881 section 18.32). The data is the request's own buffers.

use iobuf::Buf;
use vfs::Stable;

use crate::v4::compound::Compound;
use crate::v4::io_right::{IoAccess, check_io, file_of};
use crate::v4::limits::IO_MAX;
use crate::v4::status::Status;
use crate::v4::wire::Stateid;
use crate::xdr::at_most;

pub(in crate::v4) async fn write(cx: &mut Compound<'_>) -> Result<(), Status> {
    let stateid = Stateid::decode(&mut cx.args)?;
    let offset = cx.args.u64()?;
    let stable = match cx.args.u32()? {
        0 => Stable::Unstable,
        1 => Stable::Data,
        2 => Stable::File,
        _ => return Err(Status::BadXdr),
    };
    let data = cx.args.bulk(usize::MAX)?;
    // Of more than `maxwrite` the first bytes are written, as the count in the result says (RFC 8881 section 18.32.3).
    let given: usize = data.iter().map(Buf::len).sum();
    let data = if given > IO_MAX { at_most(data, IO_MAX) } else { data };
    let at = file_of(cx, stateid).await?;
    let right = check_io(cx, &at, stateid, IoAccess::Write).await?;
    let door = cx.nfs.core.namespace.by(right.who).opened_by(&at.cred);
    let done = door.write(&at.share, &at.node, right.cred(&at), offset, data, stable).await?;
    cx.moved = done.count as u64;
    cx.out.count(done.count);
    cx.out.u32(stable_how(done.stable));
    cx.out.fixed(&cx.nfs.core.write_verifier(done.verifier));
    Ok(())
}

/// `stable_how4`.
pub(super) fn stable_how(stable: Stable) -> u32 {
    match stable {
        Stable::Unstable => 0,
        Stable::Data => 1,
        Stable::File => 2,
    }
}
