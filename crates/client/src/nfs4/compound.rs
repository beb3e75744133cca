//! A COMPOUND and its results (RFC 8881 section 16.2).

use iobuf::Buf;
use nfs_proto::nfs4::attrs::{Bitmap4, Fattr4, Value};
use nfs_proto::nfs4::ops::{
    Close, Commit, Component4, Create, Createhow4, Createtype4, NfsFh4, Open, OpenClaim4,
    Openflag4, Read, ReadDone, Readdir, Rename, Res, Sequence, Sequenced, Setattr, Write,
};
use nfs_proto::nfs4::{
    self, Compounded, Nfsstat4, PROC_COMPOUND, StableHow4, StateOwner4, Stateid4 as Stateid,
    VERSION, op,
};
use nfs_proto::oncrpc::program::NFS as PROGRAM;
use nfs_proto::oncrpc::{AcceptStat, ReplyBody, ReplyHead};
use nfs_proto::xdr::{Bulk, Xdr, decode, encode};
use rdma_transport::caller::{Answer, BulkResult};
use rdma_transport::xdr::Reader;

use super::attrs::{Fattr, WANTED, values};
use super::{Fh, OpenHow};
use crate::error::{Error, Result};
use crate::rpc::{CallArgs, Credential, ResultPlace, Rpc, results, within};

/// Maximum length of the reply to a COMPOUND of small operations, in bytes.
const SMALL_REPLY: usize = 1000;

/// Builds a COMPOUND by appending operations.
#[derive(Debug)]
pub struct Compound {
    w: CallArgs,
    count_at: usize,
    count: u32,
    /// SEQUENCE, and the position of its arguments.
    sequence: Option<(usize, Sequence)>,
    place: ResultPlace,
}

impl Compound {
    /// Starts a COMPOUND of this minor version.
    pub fn new(cred: &Credential, minorversion: u32) -> Self {
        let mut w = Rpc::head(PROGRAM, VERSION, PROC_COMPOUND, cred);
        w.value(&nfs4::Compound { tag: b"", minorversion, argarray: 0 });
        // The count of operations is the last word.
        let count_at = w.len() - 4;
        let place = ResultPlace::long(SMALL_REPLY);
        Self { w, count_at, count: 0, sequence: None, place }
    }

    /// Appends an operation with its arguments.
    pub fn op<'v>(mut self, op: u32, args: &impl Xdr<'v>) -> Self {
        self.count += 1;
        self.w.value(&op);
        self.w.value(args);
        self
    }

    /// Sets the maximum size of the reply.
    pub fn expect(mut self, place: ResultPlace) -> Self {
        self.place = place;
        self
    }

    pub(super) fn finish(mut self) -> (CallArgs, ResultPlace) {
        self.w.patch_u32(self.count_at, self.count);
        (self.w, self.place)
    }

    /// Sets the numbers of SEQUENCE, if present.
    pub(super) fn number(&mut self, sequenceid: u32, slotid: u32, highest_slotid: u32) {
        if let Some((at, args)) = self.sequence {
            let args = encode(&Sequence { sequenceid, slotid, highest_slotid, ..args });
            if let Some(place) = self.w.head().get_mut(at..at + args.len()) {
                place.copy_from_slice(&args);
            }
        }
    }

    /// Appends SEQUENCE; its numbers are set when a slot is known. The server caches the reply only if `keep`.
    pub(super) fn sequence(self, session: [u8; 16], keep: bool) -> Self {
        let args = Sequence {
            sessionid: session,
            sequenceid: 0,
            slotid: 0,
            highest_slotid: 0,
            cachethis: keep,
        };
        let mut c = self.op(op::SEQUENCE, &());
        c.sequence = Some((c.w.len(), args));
        c.w.value(&args);
        c
    }

    pub fn putfh(self, fh: &Fh) -> Self {
        self.op(op::PUTFH, &NfsFh4 { object: fh.as_bytes() })
    }

    pub fn putrootfh(self) -> Self {
        self.op(op::PUTROOTFH, &())
    }

    pub fn lookup(self, name: &[u8]) -> Self {
        self.op(op::LOOKUP, &Component4 { name })
    }

    pub fn getfh(self) -> Self {
        self.op(op::GETFH, &())
    }

    pub fn savefh(self) -> Self {
        self.op(op::SAVEFH, &())
    }

    pub fn restorefh(self) -> Self {
        self.op(op::RESTOREFH, &())
    }

    /// GETATTR of the attributes in [`super::Attr`].
    pub fn getattr(self) -> Self {
        self.getattr_of(WANTED)
    }

    /// GETATTR of these attributes.
    pub fn getattr_of(self, attributes: Bitmap4) -> Self {
        self.op(op::GETATTR, &attributes)
    }

    pub fn setattr(self, stateid: Stateid, fattr: &Fattr) -> Self {
        self.op(op::SETATTR, &Setattr { stateid, obj_attributes: fattr.as_fattr4() })
    }

    pub fn access(self, bits: u32) -> Self {
        self.op(op::ACCESS, &bits)
    }

    /// OPEN of a name in the current directory (CLAIM_NULL) for an owner of this client.
    pub fn open(self, clientid: u64, owner: &[u8], name: &[u8], how: OpenHow) -> Self {
        let attributes = Fattr::mode_and_size(how.create, how.truncate.then_some(0));
        let attributes = attributes.as_fattr4();
        let openhow = match how.create {
            None => Openflag4::Nocreate,
            Some(_) if how.guarded => Openflag4::Create(Createhow4::Guarded(attributes)),
            Some(_) => Openflag4::Create(Createhow4::Unchecked(attributes)),
        };
        self.op_open(StateOwner4 { clientid, owner }, how, openhow, OpenClaim4::Null(name))
    }

    /// OPEN of the current file, which this client had open before the server restarted (CLAIM_PREVIOUS), with a delegation of this
    /// type (`open_delegation_type4`).
    pub(super) fn reclaim(
        self,
        clientid: u64,
        owner: &[u8],
        how: OpenHow,
        delegation: u32,
    ) -> Self {
        let (owner, claim) = (StateOwner4 { clientid, owner }, OpenClaim4::Previous(delegation));
        self.op_open(owner, how, Openflag4::Nocreate, claim)
    }

    fn op_open(
        self,
        owner: StateOwner4<'_>,
        how: OpenHow,
        openhow: Openflag4<'_>,
        claim: OpenClaim4<'_>,
    ) -> Self {
        let (share_access, share_deny) = (how.access | how.want, how.deny);
        self.op(op::OPEN, &Open { seqid: 0, share_access, share_deny, owner, openhow, claim })
    }

    pub fn close(self, open_stateid: Stateid) -> Self {
        self.op(op::CLOSE, &Close { seqid: 0, open_stateid })
    }

    /// READ, the last operation except for small ones after it.
    pub fn read(self, stateid: Stateid, offset: u64, count: u32) -> Self {
        let mut c = self.op(op::READ, &Read { stateid, offset, count });
        let max = usize::try_from(count).unwrap_or(usize::MAX);
        c.place.bulk = Some(BulkResult { max, locate: locate_read });
        c
    }

    pub fn write(self, stateid: Stateid, offset: u64, data: Vec<Buf>, stable: StableHow4) -> Self {
        let len = data.iter().map(Buf::len).sum();
        let mut c = self.op(op::WRITE, &Write { stateid, offset, stable, data: Bulk { len } });
        c.w.attach(data, None);
        c
    }

    pub fn commit(self, offset: u64, count: u32) -> Self {
        self.op(op::COMMIT, &Commit { offset, count })
    }

    pub fn remove(self, name: &[u8]) -> Self {
        self.op(op::REMOVE, &Component4 { name })
    }

    /// RENAME from the saved directory to the current one.
    pub fn rename(self, oldname: &[u8], newname: &[u8]) -> Self {
        self.op(op::RENAME, &Rename { oldname, newname })
    }

    /// LINK of the saved file in the current directory.
    pub fn link(self, name: &[u8]) -> Self {
        self.op(op::LINK, &Component4 { name })
    }

    /// CREATE of an object with this mode.
    pub fn create(self, name: &[u8], objtype: Createtype4<'_>, mode: u32) -> Self {
        let attributes = Fattr::mode_and_size(Some(mode), None);
        let createattrs = attributes.as_fattr4();
        self.op(op::CREATE, &Create { objtype, objname: name, createattrs })
    }

    /// CREATE of a directory.
    pub fn mkdir(self, name: &[u8], mode: u32) -> Self {
        self.create(name, Createtype4::Dir, mode)
    }

    /// CREATE of a symbolic link.
    pub fn symlink(self, name: &[u8], target: &[u8]) -> Self {
        self.create(name, Createtype4::Lnk(target), 0o777)
    }

    /// READDIR with the attributes of [`super::Attr`].
    pub fn readdir(self, cookie: u64, cookieverf: [u8; 8], count: u32) -> Self {
        let (dircount, maxcount) = (count, count);
        let args = Readdir { cookie, cookieverf, dircount, maxcount, attr_request: WANTED };
        let mut c = self.op(op::READDIR, &args);
        let most = usize::try_from(count).unwrap_or(usize::MAX);
        c.place.reply_max = most.saturating_add(SMALL_REPLY);
        c
    }

    pub fn delegreturn(self, stateid: Stateid) -> Self {
        self.op(op::DELEGRETURN, &stateid)
    }
}

/// Locates the data of the READ in successful results of SEQUENCE, PUTFH and READ.
fn locate_read(reply: &[u8]) -> Option<(usize, usize)> {
    /// Bounds a loop over numbers from the server.
    const OPERATIONS_MAX: u32 = 8;
    let (rest, head) = wire::decode(reply, ReplyHead::parse).ok()?;
    let ReplyBody::Accepted(_, AcceptStat::Success) = head.body else { return None };
    let (mut rest, done) = decode::<Compounded<'_>>(rest).ok()?;
    if done.status != Nfsstat4::Ok {
        return None;
    }
    for _ in 0..done.resarray.min(OPERATIONS_MAX) {
        let (result, number) = decode::<u32>(rest).ok()?;
        rest = match number {
            op::SEQUENCE => good::<Sequenced>(result)?.0,
            op::PUTFH | op::PUTROOTFH => good::<()>(result)?.0,
            op::READ => {
                let (data, read) = good::<ReadDone>(result)?;
                return Some((reply.len() - data.len(), read.data.len));
            }
            _ => return None,
        };
    }
    None
}

/// Parses a successful result and returns the remaining bytes.
fn good<'a, T: Xdr<'a>>(result: &'a [u8]) -> Option<(&'a [u8], T)> {
    match decode::<Res<T>>(result).ok()? {
        (rest, Res::Ok(value)) => Some((rest, value)),
        _ => None,
    }
}

/// Parses the results of a COMPOUND, operation by operation.
pub struct Results<'a> {
    r: Reader<'a>,
    status: u32,
    left: u32,
}

impl<'a> Results<'a> {
    /// Parses the header of the results.
    pub fn new(answer: &'a Answer) -> Result<Self> {
        let mut r = results(answer)?;
        // Keep the status as a number, so that an unknown one can be reported.
        let status = r.value()?;
        let (_tag, left) = (r.value::<Component4<'_>>()?, r.value()?);
        Ok(Self { r, status, left })
    }

    /// Returns the status of the COMPOUND, which is the status of the last executed operation.
    pub fn status(&self) -> u32 {
        self.status
    }

    /// Parses the result of the next operation, which must be `op` and successful.
    pub fn next<T: Xdr<'a>>(&mut self, op: u32) -> Result<T> {
        if self.left == 0 {
            // The server ended the COMPOUND before the first operation, for a reason that concerns all of it.
            return Err(Error::Nfs4(op, self.status));
        }
        self.left -= 1;
        let (number, status) = (self.r.value::<u32>()?, self.r.value::<u32>()?);
        if number != op && status == 0 {
            let (want, have) = (op::name(op), op::name(number));
            return Err(Error::Protocol(format!("the result of {have} where {want} belongs")));
        }
        if status != 0 {
            return Err(Error::Nfs4(number, status));
        }
        Ok(self.r.value()?)
    }

    /// Parses the result of SEQUENCE and ignores its fields.
    pub fn sequence(&mut self) -> Result<()> {
        self.next::<Sequenced>(op::SEQUENCE).map(drop)
    }

    /// Parses the results of SEQUENCE and PUTFH.
    pub(super) fn behind_putfh(answer: &'a Answer) -> Result<Self> {
        let mut results = Self::new(answer)?;
        results.sequence()?;
        results.next::<()>(op::PUTFH)?;
        Ok(results)
    }

    pub fn getfh(&mut self) -> Result<Fh> {
        Ok(Fh::new(self.next::<NfsFh4<'_>>(op::GETFH)?.object))
    }

    /// Parses the result of [`Compound::getattr`].
    pub fn getattr(&mut self) -> Result<super::Attr> {
        super::Attr::of(&self.next::<Fattr4<'_>>(op::GETATTR)?)
    }

    /// Parses a GETATTR of `space_avail`, which a server need not support.
    pub(super) fn space_avail(&mut self) -> Result<Option<u64>> {
        let found = self.next::<Fattr4<'_>>(op::GETATTR)?;
        Ok(values(&found)?.into_iter().find_map(|value| match value {
            Value::SpaceAvail(bytes) => Some(bytes),
            _ => None,
        }))
    }

    /// Returns the data of the previous result, for which at most `max` bytes were requested.
    pub(super) fn data(&mut self, data: Bulk, max: usize) -> Result<Vec<Buf>> {
        within(&mut self.r, data, max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(w: &[u32]) -> Vec<u8> {
        w.iter().flat_map(|v| v.to_be_bytes()).collect()
    }

    /// Results of SEQUENCE, PUTFH and READ of five bytes, up to the length word.
    fn good() -> Vec<u32> {
        let head = [9, 1, 0, 0, 0, 0, 0, 0, 3];
        let sequence = [&[op::SEQUENCE, 0][..], &[7; 9]].concat();
        [&head[..], &sequence, &[op::PUTFH, 0, op::READ, 0, 1, 5]].concat()
    }

    #[test]
    fn read_data_is_located() {
        let reply = words(&good());
        assert_eq!(locate_read(&reply), Some((reply.len(), 5)));
        for end in 0..reply.len() {
            assert_eq!(locate_read(&reply[..end]), None, "{end}");
        }
    }

    #[test]
    fn failed_read_data_is_not_located() {
        let changed = |at: usize, to: u32| {
            let mut w = good();
            w[at] = to;
            locate_read(&words(&w))
        };
        // The status of the COMPOUND, of PUTFH, of READ; another operation; a tag.
        let end = good().len();
        for (at, to) in [(6, 70), (end - 5, 70), (end - 3, 70), (end - 6, op::GETATTR), (7, 4)] {
            assert_eq!(changed(at, to), None, "{at}");
        }
    }

    #[test]
    fn results_must_match_operations() {
        let answer = |w: &[u32]| Answer { body: Buf::from(words(w)), read_chunks: Vec::new() };
        let head = [9, 1, 0, 0, 0, 0];
        let other = answer(&[&head[..], &[0, 0, 1, op::GETFH, 0]].concat());
        assert!(matches!(
            Results::new(&other).unwrap().next::<()>(op::PUTFH),
            Err(Error::Protocol(_))
        ));
        let failed = answer(&[&head[..], &[70, 0, 1, op::PUTFH, 70]].concat());
        assert_eq!(
            Results::new(&failed).unwrap().next::<()>(op::PUTFH).err(),
            Some(Error::Nfs4(op::PUTFH, 70))
        );
        // Ended before the first operation.
        let none = answer(&[&head[..], &[10021, 0, 0]].concat());
        assert_eq!(
            Results::new(&none).unwrap().next::<()>(op::PUTFH).err(),
            Some(Error::Nfs4(op::PUTFH, 10021))
        );
        assert!(Results::new(&answer(&[9, 1, 1, 0, 2, 2])).is_err());
        assert!(Results::new(&answer(&[&head[..5], &[4]].concat())).is_err());
    }
}
