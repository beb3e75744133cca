//! A COMPOUND and its results (RFC 8881 section 16.2), operation by operation.

use iobuf::Buf;
use nfs_proto::nfs4::{PROC_COMPOUND, Stateid4 as Stateid, VERSION, op};
use nfs_proto::oncrpc::program::NFS as PROGRAM;
use nfsrdma::xdr::{Reader, Writer};
use rdma_transport::caller::{Answer, BulkResult};

use super::attrs::{WANTED, put_bitmap, put_mode_and_size};
use super::{Fh, OpenHow};
use crate::error::{Error, Result};
use crate::rpc::{Credential, ResultPlace, Rpc, results};

const TAG_MAX: usize = 1024;
/// Most bytes of the reply to a COMPOUND of small operations.
const SMALL_REPLY: usize = 1000;

/// A COMPOUND that is being put together. Operations are appended in order.
#[derive(Debug)]
pub struct Compound {
    w: Writer,
    count_at: usize,
    count: u32,
    /// Where SEQUENCE's sequence number, slot and highest slot stand.
    pub(super) sequence_at: Option<usize>,
    place: ResultPlace,
}

impl Compound {
    /// Without operations, of this minor version.
    pub fn new(cred: &Credential, minor: u32) -> Self {
        let mut w = Rpc::head(PROGRAM, VERSION, PROC_COMPOUND, cred);
        w.opaque(b"");
        w.u32(minor);
        let count_at = w.len();
        w.u32(0);
        Self { w, count_at, count: 0, sequence_at: None, place: ResultPlace::long(SMALL_REPLY) }
    }

    /// Appends an operation; its arguments are written to what this returns.
    pub fn op(&mut self, op: u32) -> &mut Writer {
        self.count += 1;
        self.w.u32(op);
        &mut self.w
    }

    /// Says how large the reply may become.
    pub fn expect(mut self, place: ResultPlace) -> Self {
        self.place = place;
        self
    }

    pub(super) fn finish(mut self) -> (Writer, ResultPlace) {
        self.w.patch_u32(self.count_at, self.count);
        (self.w, self.place)
    }

    pub(super) fn patch_sequence(&mut self, sequence: u32, slot: u32, highest: u32) {
        if let Some(at) = self.sequence_at {
            self.w.patch_u32(at, sequence);
            self.w.patch_u32(at + 4, slot);
            self.w.patch_u32(at + 8, highest);
        }
    }

    /// SEQUENCE; its numbers are filled in when a slot is known. The reply is not asked to be kept, unless `keep`.
    pub(super) fn sequence(mut self, session: &[u8; 16], keep: bool) -> Self {
        let w = self.op(op::SEQUENCE);
        w.fixed(session);
        let at = w.len();
        (0..3).for_each(|_| w.u32(0));
        w.bool(keep);
        self.sequence_at = Some(at);
        self
    }

    /// PUTFH
    pub fn putfh(mut self, fh: &Fh) -> Self {
        self.op(op::PUTFH).opaque(fh.as_bytes());
        self
    }

    /// PUTROOTFH
    pub fn putrootfh(mut self) -> Self {
        self.op(op::PUTROOTFH);
        self
    }

    /// LOOKUP
    pub fn lookup(mut self, name: &[u8]) -> Self {
        self.op(op::LOOKUP).opaque(name);
        self
    }

    /// GETFH
    pub fn getfh(mut self) -> Self {
        self.op(op::GETFH);
        self
    }

    /// SAVEFH
    pub fn savefh(mut self) -> Self {
        self.op(op::SAVEFH);
        self
    }

    /// RESTOREFH
    pub fn restorefh(mut self) -> Self {
        self.op(op::RESTOREFH);
        self
    }

    /// GETATTR of what [`super::Attr`] holds.
    pub fn getattr(mut self) -> Self {
        put_bitmap(self.op(op::GETATTR), WANTED);
        self
    }

    /// GETATTR of these attributes.
    pub fn getattr_of(mut self, bits: &[u32]) -> Self {
        put_bitmap(self.op(op::GETATTR), bits);
        self
    }

    /// SETATTR of mode and size.
    pub fn setattr(mut self, stateid: Stateid, mode: Option<u32>, size: Option<u64>) -> Self {
        let w = self.op(op::SETATTR);
        w.value(&stateid);
        put_mode_and_size(w, mode, size);
        self
    }

    /// ACCESS
    pub fn access(mut self, bits: u32) -> Self {
        self.op(op::ACCESS).u32(bits);
        self
    }

    /// OPEN of a name in the current directory (CLAIM_NULL), as an owner of this client.
    pub fn open(mut self, clientid: u64, owner: &[u8], name: &[u8], how: OpenHow) -> Self {
        let w = self.op(op::OPEN);
        w.u32(0);
        w.u32(how.access | how.want);
        w.u32(how.deny);
        w.u64(clientid);
        w.opaque(owner);
        match how.create {
            None => w.u32(0),
            Some(mode) => {
                w.u32(1);
                w.u32(if how.guarded { 1 } else { 0 });
                put_mode_and_size(w, Some(mode), how.truncate.then_some(0));
            }
        }
        // CLAIM_NULL
        w.u32(0);
        w.opaque(name);
        self
    }

    /// CLOSE
    pub fn close(mut self, stateid: Stateid) -> Self {
        let w = self.op(op::CLOSE);
        w.u32(0);
        w.value(&stateid);
        self
    }

    /// READ, the last operation but for small ones behind it.
    pub fn read(mut self, stateid: Stateid, offset: u64, count: u32) -> Self {
        let w = self.op(op::READ);
        w.value(&stateid);
        w.u64(offset);
        w.u32(count);
        let max = usize::try_from(count).unwrap_or(usize::MAX);
        self.place.bulk = Some(BulkResult { max, locate: locate_read });
        self
    }

    /// WRITE; `stable` is `stable_how4`.
    pub fn write(mut self, stateid: Stateid, offset: u64, data: Vec<Buf>, stable: u32) -> Self {
        let w = self.op(op::WRITE);
        w.value(&stateid);
        w.u64(offset);
        w.u32(stable);
        w.bulk(data);
        self
    }

    /// COMMIT
    pub fn commit(mut self, offset: u64, count: u32) -> Self {
        let w = self.op(op::COMMIT);
        w.u64(offset);
        w.u32(count);
        self
    }

    /// REMOVE
    pub fn remove(mut self, name: &[u8]) -> Self {
        self.op(op::REMOVE).opaque(name);
        self
    }

    /// RENAME from the saved directory to the current one.
    pub fn rename(mut self, from: &[u8], to: &[u8]) -> Self {
        let w = self.op(op::RENAME);
        w.opaque(from);
        w.opaque(to);
        self
    }

    /// LINK of the saved file in the current directory.
    pub fn link(mut self, name: &[u8]) -> Self {
        self.op(op::LINK).opaque(name);
        self
    }

    /// CREATE of a directory.
    pub fn mkdir(mut self, name: &[u8], mode: u32) -> Self {
        const NF4DIR: u32 = 2;
        let w = self.op(op::CREATE);
        w.u32(NF4DIR);
        w.opaque(name);
        put_mode_and_size(w, Some(mode), None);
        self
    }

    /// CREATE of a symbolic link.
    pub fn symlink(mut self, name: &[u8], target: &[u8]) -> Self {
        const NF4LNK: u32 = 5;
        let w = self.op(op::CREATE);
        w.u32(NF4LNK);
        w.opaque(target);
        w.opaque(name);
        put_mode_and_size(w, Some(0o777), None);
        self
    }

    /// READDIR with the attributes of [`super::Attr`].
    pub fn readdir(mut self, cookie: u64, verifier: [u8; 8], count: u32) -> Self {
        let w = self.op(op::READDIR);
        w.u64(cookie);
        w.fixed(&verifier);
        w.u32(count);
        w.u32(count);
        put_bitmap(w, WANTED);
        let most = usize::try_from(count).unwrap_or(usize::MAX);
        self.place.reply_max = most.saturating_add(SMALL_REPLY);
        self
    }

    /// DELEGRETURN
    pub fn delegreturn(mut self, stateid: Stateid) -> Self {
        self.op(op::DELEGRETURN).value(&stateid);
        self
    }
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_be_bytes(*word)).ok()
}

/// The data of the READ in the results of SEQUENCE, PUTFH and READ, all of them good.
fn locate_read(reply: &[u8]) -> Option<(usize, usize)> {
    const REPLY_HEAD: usize = 24;
    const SEQUENCE_OK: usize = 36;
    // Accepted, no verifier, SUCCESS, NFS4_OK, an empty tag.
    if reply.get(8..REPLY_HEAD + 8)?.iter().any(|b| *b != 0) {
        return None;
    }
    let operations = word(reply, REPLY_HEAD + 8)?;
    let mut at = REPLY_HEAD + 12;
    // A bound for a loop over the server's own words.
    for _ in 0..operations.min(8) {
        let (number, status) = (word(reply, at)?, word(reply, at + 4)?);
        let number = u32::try_from(number).ok()?;
        if status != 0 {
            return None;
        }
        at += 8;
        match number {
            op::SEQUENCE => at += SEQUENCE_OK,
            op::PUTFH | op::PUTROOTFH => {}
            op::READ => return Some((at + 8, word(reply, at + 4)?)),
            _ => return None,
        }
    }
    None
}

/// The results of a COMPOUND, taken operation by operation.
pub struct Results<'a> {
    r: Reader<'a>,
    status: u32,
    left: u32,
}

impl<'a> Results<'a> {
    /// Reads the head.
    pub fn new(answer: &'a Answer) -> Result<Self> {
        let mut r = results(answer)?;
        let status = r.u32()?;
        r.opaque(TAG_MAX)?;
        let left = r.u32()?;
        Ok(Self { r, status, left })
    }

    /// The status of the whole: that of the last operation that was done.
    pub fn status(&self) -> u32 {
        self.status
    }

    /// The result of the next operation, which must be this one and good. What it gives is read from what this returns.
    pub fn next(&mut self, op: u32) -> Result<&mut Reader<'a>> {
        if self.left == 0 {
            // The server ended the COMPOUND before its first operation, for a reason that concerns all of it.
            return Err(Error::Nfs4(op, self.status));
        }
        self.left -= 1;
        let (number, status) = (self.r.u32()?, self.r.u32()?);
        if number != op && status == 0 {
            let (want, have) = (op::name(op), op::name(number));
            return Err(Error::Protocol(format!("the result of {have} where {want} belongs")));
        }
        if status != 0 {
            return Err(Error::Nfs4(number, status));
        }
        Ok(&mut self.r)
    }

    /// SEQUENCE, of which nothing is needed.
    pub fn sequence(&mut self) -> Result<()> {
        let r = self.next(op::SEQUENCE)?;
        r.fixed::<36>()?;
        Ok(())
    }

    /// GETFH
    pub fn getfh(&mut self) -> Result<Fh> {
        Ok(Fh::new(self.next(op::GETFH)?.opaque(128)?))
    }

    /// GETATTR of [`Compound::getattr`].
    pub fn getattr(&mut self) -> Result<super::Attr> {
        Ok(super::Attr::read(self.next(op::GETATTR)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(w: &[u32]) -> Vec<u8> {
        w.iter().flat_map(|v| v.to_be_bytes()).collect()
    }

    /// SEQUENCE, PUTFH and READ of five bytes, up to the length word.
    fn good() -> Vec<u32> {
        let head = [9, 1, 0, 0, 0, 0, 0, 0, 3];
        let sequence = [&[op::SEQUENCE, 0][..], &[7; 9]].concat();
        [&head[..], &sequence, &[op::PUTFH, 0, op::READ, 0, 1, 5]].concat()
    }

    #[test]
    fn the_data_of_a_read_is_found() {
        let reply = words(&good());
        assert_eq!(locate_read(&reply), Some((reply.len(), 5)));
        for end in 0..reply.len() {
            assert_eq!(locate_read(&reply[..end]), None, "{end}");
        }
    }

    #[test]
    fn no_data_is_found_behind_an_error_or_an_unknown_operation() {
        let changed = |at: usize, to: u32| {
            let mut w = good();
            w[at] = to;
            locate_read(&words(&w))
        };
        // The status of the whole, of PUTFH, of READ; another operation; a tag.
        let end = good().len();
        for (at, to) in [(6, 70), (end - 5, 70), (end - 3, 70), (end - 6, op::GETATTR), (7, 4)] {
            assert_eq!(changed(at, to), None, "{at}");
        }
    }

    #[test]
    fn results_must_be_those_of_the_operations() {
        let answer = |w: &[u32]| Answer { body: Buf::from(words(w)), pulled: Vec::new() };
        let head = [9, 1, 0, 0, 0, 0];
        let other = answer(&[&head[..], &[0, 0, 1, op::GETFH, 0]].concat());
        assert!(matches!(Results::new(&other).unwrap().next(op::PUTFH), Err(Error::Protocol(_))));
        let failed = answer(&[&head[..], &[70, 0, 1, op::PUTFH, 70]].concat());
        assert_eq!(
            Results::new(&failed).unwrap().next(op::PUTFH).err(),
            Some(Error::Nfs4(op::PUTFH, 70))
        );
        // Ended before the first operation.
        let none = answer(&[&head[..], &[10021, 0, 0]].concat());
        assert_eq!(
            Results::new(&none).unwrap().next(op::PUTFH).err(),
            Some(Error::Nfs4(op::PUTFH, 10021))
        );
        assert!(Results::new(&answer(&[9, 1, 1, 0, 2, 2])).is_err());
        assert!(Results::new(&answer(&[&head[..5], &[4]].concat())).is_err());
    }
}
