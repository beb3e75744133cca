//! Locates the data of a WRITE from the first bytes of a call, so that the transport can read the data directly into a buffer. The
//! operation parsers stop at that point.

use nfs_proto::nfs3::{self, Write3args, procedure};
use nfs_proto::nfs4::{self, op, ops};
use nfs_proto::oncrpc::{CallHead, OpaqueAuth};
use nfs_proto::rpcsec_gss::{GssCred, GssInteg, GssPriv, GssProc, GssService, RPCSEC_GSS};
use nfs_proto::xdr::{Bulk, decode};
use rdma_transport::channel::PayloadLocator;
use wire::pad;

use crate::rpc::program;

/// Locates WRITE data in calls of NFS.
#[derive(Clone, Copy, Debug, Default)]
pub struct NfsLocate;

impl PayloadLocator for NfsLocate {
    fn bulk(&self, head: &[u8], total: usize) -> Option<(usize, usize)> {
        let (at, len) = call(head)?;
        // If the length exceeds the message, the decoder reads and refuses the call.
        let end = at.checked_add(len)?.checked_add(pad(len))?;
        (len > 0 && end <= total).then_some((at, len))
    }

    /// Arguments that Kerberos protects must be verified or decrypted as one piece. The head of a call is verified by itself, which
    /// is enough to refuse a WRITE of NFS 3.
    fn is_sealed(&self, head: &[u8]) -> bool {
        let Ok((_, call)) = CallHead::decode(head) else { return true };
        protection(&call.cred) != Some(GssService::None) && !is_write_of_version_3(&call)
    }
}

/// True for a WRITE of NFS 3, whose refusal needs nothing of its arguments.
pub(crate) fn is_write_of_version_3(call: &CallHead<'_>) -> bool {
    (call.program, call.version, call.procedure) == (program::NFS, nfs3::VERSION, procedure::WRITE)
}

fn call(head: &[u8]) -> Option<(usize, usize)> {
    let (arguments, call) = CallHead::decode(head).ok()?;
    let arguments = match protection(&call.cred)? {
        GssService::None => arguments,
        GssService::Integrity => decode::<GssInteg>(arguments).ok()?.0,
        // RFC 2203 section 5.3.2.3: all arguments are in one token, which is decrypted in place.
        GssService::Privacy => {
            let (token, GssPriv { databody_priv }) = decode::<GssPriv>(arguments).ok()?;
            return Some((head.len() - token.len(), databody_priv.len));
        }
    };
    let (at, len) = of_arguments(&call, arguments)?;
    Some((head.len() - arguments.len() + at, len))
}

/// The RPCSEC_GSS service of a call; `None` for other flavors.
fn protection(cred: &OpaqueAuth<'_>) -> Option<GssService> {
    if cred.flavor != RPCSEC_GSS {
        return Some(GssService::None);
    }
    let cred = decode::<GssCred<'_>>(cred.body).ok()?.1;
    Some(if cred.gss_proc == GssProc::Data { cred.service } else { GssService::None })
}

/// Returns offset and length of the WRITE data within the arguments, if their first bytes contain it.
pub(crate) fn of_arguments(call: &CallHead<'_>, arguments: &[u8]) -> Option<(usize, usize)> {
    if call.program != program::NFS {
        return None;
    }
    let (rest, data) = match (call.version, call.procedure) {
        (nfs3::VERSION, procedure::WRITE) => {
            decode::<Write3args<'_>>(arguments).map(|(rest, args)| (rest, args.data)).ok()?
        }
        (nfs4::VERSION, nfs4::PROC_COMPOUND) => compound(arguments)?,
        _ => return None,
    };
    Some((arguments.len() - rest.len(), data.len))
}

/// Finds the WRITE of a COMPOUND and returns the bytes there. Clients put only a few kinds of operations in front of it; after any
/// other the message is read as a whole.
fn compound(arguments: &[u8]) -> Option<(&[u8], Bulk)> {
    const BEFORE_MAX: u32 = 8;
    let (mut rest, compound) = decode::<nfs4::Compound<'_>>(arguments).ok()?;
    for _ in 0..compound.argarray.min(BEFORE_MAX) {
        let (arguments, number) = decode::<u32>(rest).ok()?;
        rest = match number {
            op::SEQUENCE => decode::<ops::Sequence>(arguments).ok()?.0,
            op::PUTFH => decode::<ops::NfsFh4<'_>>(arguments).ok()?.0,
            op::SAVEFH => arguments,
            op::WRITE => {
                let (data, write) = decode::<ops::Write>(arguments).ok()?;
                return Some((data, write.data));
            }
            _ => return None,
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdma_transport::xdr::Writer;

    fn head(version: u32, number: u32) -> Writer {
        let mut w = Writer::new();
        [9, 0, 2, program::NFS, version, number, 1].into_iter().for_each(|v| w.u32(v));
        w.opaque(&[0; 20]);
        w.u32(0);
        w.opaque(&[]);
        w
    }

    fn write3(data: usize) -> (Vec<u8>, usize) {
        let mut w = head(3, procedure::WRITE);
        w.opaque(&[1; 33]);
        w.u64(4096);
        w.count(data);
        w.u32(2);
        w.count(data);
        let at = w.len();
        w.fixed(&vec![7; data]);
        (w.into_reply().head, at)
    }

    #[test]
    fn v3_write_data_is_located() {
        let (bytes, at) = write3(5001);
        assert_eq!(NfsLocate.bulk(&bytes[..at], bytes.len()), Some((at, 5001)));
        assert!(!NfsLocate.is_sealed(&bytes[..at]));
        for short in 0..at {
            assert_eq!(NfsLocate.bulk(&bytes[..short], bytes.len()), None);
        }
        // The length exceeds the end of the message.
        assert_eq!(NfsLocate.bulk(&bytes[..at], bytes.len() - 4), None);
    }

    /// RFC 2203 section 5.3.2: with krb5 the arguments are in their usual place, with krb5i eight bytes later; with krb5p they are
    /// one token.
    #[test]
    fn kerberos_write_data_is_located() {
        let of = |service: u32, front: &[u32]| {
            let mut w = Writer::new();
            [9, 0, 2, program::NFS, 3, procedure::WRITE, 6].into_iter().for_each(|v| w.u32(v));
            w.u32(24);
            [1, 0, 7, service, 4, 5].into_iter().for_each(|v| w.u32(v));
            w.u32(6);
            w.opaque(&[7; 28]);
            front.iter().for_each(|v| w.u32(*v));
            w.opaque(&[1; 33]);
            w.u64(4096);
            [5001, 0, 5001].into_iter().for_each(|v| w.u32(v));
            let at = w.len();
            let head = w.into_reply().head;
            assert!(!NfsLocate.is_sealed(&head), "its head is enough to refuse it");
            let mut of_version_4 = head.clone();
            of_version_4[16..24].copy_from_slice(&[0, 0, 0, 4, 0, 0, 0, 1]);
            assert_eq!(NfsLocate.is_sealed(&of_version_4), service != 1);
            (NfsLocate.bulk(&head, at + 5004 + 32), at)
        };
        let (found, at) = of(1, &[]);
        assert_eq!(found, Some((at, 5001)));
        let (found, at) = of(2, &[5072, 7]);
        assert_eq!(found, Some((at, 5001)));
        let (found, at) = of(3, &[5096]);
        assert_eq!(found, Some((at - 60, 5096)));
    }

    #[test]
    fn compound_write_data_is_located() {
        let mut w = head(4, 1);
        w.opaque(b"");
        w.u32(1);
        w.u32(3);
        w.u32(53);
        w.fixed(&[0; 32]);
        w.u32(22);
        w.opaque(&[1; 40]);
        w.u32(38);
        w.fixed(&[0; 16]);
        w.u64(0);
        w.u32(0);
        w.count(100);
        let at = w.len();
        let head = w.into_reply().head;
        assert_eq!(NfsLocate.bulk(&head, at + 100), Some((at, 100)));
    }

    #[test]
    fn other_calls_have_no_bulk_data() {
        let w = head(3, procedure::GETATTR);
        let bytes = w.into_reply().head;
        assert_eq!(NfsLocate.bulk(&bytes, 1000), None);
    }
}
