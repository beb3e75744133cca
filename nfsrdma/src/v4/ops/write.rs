//! WRITE (RFC 8881 section 18.32). The data stays in the request's buffers.

use iobuf::Buf;
use nfs_proto::nfs4::StableHow4;
use nfs_proto::nfs4::ops::{Write, Written};
use vfs::Stable;

use crate::v4::compound::Compound;
use crate::v4::limits::IO_MAX;
use crate::v4::stateid_access::{IoAccess, check_io, file_of};
use crate::v4::status::Status;
use rdma_transport::xdr::at_most;

pub(in crate::v4) async fn write(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Write { stateid, offset, stable, data } = cx.args.value()?;
    let stable = match stable {
        StableHow4::Unstable => Stable::Unstable,
        StableHow4::DataSync => Stable::Data,
        StableHow4::FileSync => Stable::File,
    };
    if cx.args.lacks_data() {
        // RFC 8881 section 15.1.1.3.
        return Err(Status::Delay);
    }
    let data = cx.args.data(data)?;
    // Data beyond `maxwrite` is cut off, and the result has the count (RFC 8881 section 18.32.3).
    let given: usize = data.iter().map(Buf::len).sum();
    let data = if given > IO_MAX { at_most(data, IO_MAX) } else { data };
    let at = file_of(cx, stateid).await?;
    let right = check_io(cx, &at, stateid, IoAccess::Write).await?;
    let file_ops = cx.nfs.core.namespace.by(right.who).opened_by(&at.cred);
    let write = file_ops.write(&at.share, &at.node, right.cred(&at), offset, data, stable);
    let done = cx.recorded(&at, &right, write).await?;
    cx.moved = done.count as u64;
    // Invariant: at most IO_MAX.
    let count = u32::try_from(done.count).unwrap_or(u32::MAX);
    let writeverf = cx.nfs.core.write_verifier(done.verifier);
    cx.out.value(&Written { count, committed: stable_how(done.stable), writeverf });
    Ok(())
}

pub(super) fn stable_how(stable: Stable) -> StableHow4 {
    match stable {
        Stable::Unstable => StableHow4::Unstable,
        Stable::Data => StableHow4::DataSync,
        Stable::File => StableHow4::FileSync,
    }
}
