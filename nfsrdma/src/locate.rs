//! Finds the data of a WRITE in the first bytes of a call, so that the transport can read it straight into place.

use nfs_proto::oncrpc::CallHead;
use rdma_transport::channel::Locate;

use crate::fh::FH_MAX;
use crate::rpc::program;
use crate::v3::procedure;
use crate::xdr::pad;

/// Knows the calls of NFS.
#[derive(Clone, Copy, Debug, Default)]
pub struct NfsLocate;

impl Locate for NfsLocate {
    fn bulk(&self, head: &[u8], total: usize) -> Option<(usize, usize)> {
        let (at, len) = call(head)?;
        // A length that the message cannot hold is left to the decoder, which refuses it.
        let end = at.checked_add(len)?.checked_add(pad(len))?;
        (len > 0 && end <= total).then_some((at, len))
    }
}

struct Peek<'a> {
    head: &'a [u8],
    at: usize,
}

impl Peek<'_> {
    fn skip(&mut self, n: usize) -> Option<()> {
        self.at = self.at.checked_add(n)?;
        (self.at <= self.head.len()).then_some(())
    }

    fn u32(&mut self) -> Option<u32> {
        let word = self.head.get(self.at..)?.first_chunk()?;
        self.at += 4;
        Some(u32::from_be_bytes(*word))
    }

    fn opaque(&mut self, max: usize) -> Option<()> {
        let n = usize::try_from(self.u32()?).ok().filter(|n| *n <= max)?;
        self.skip(n + pad(n))
    }

    fn data(&mut self) -> Option<(usize, usize)> {
        let len = usize::try_from(self.u32()?).ok()?;
        Some((self.at, len))
    }

    /// The operations that clients put before a WRITE. Anything else means that the message is read as a whole.
    fn compound(&mut self) -> Option<(usize, usize)> {
        const TAG_MAX: usize = 1024;
        const PUTFH: u32 = 22;
        const SAVEFH: u32 = 32;
        const WRITE: u32 = 38;
        const SEQUENCE: u32 = 53;
        self.opaque(TAG_MAX)?;
        self.skip(4)?;
        // A handful of operations at most precede a WRITE.
        for _ in 0..self.u32()?.min(8) {
            match self.u32()? {
                SEQUENCE => self.skip(16 + 4 * 4)?,
                PUTFH => self.opaque(128)?,
                SAVEFH => {}
                WRITE => {
                    self.skip(16 + 8 + 4)?;
                    return self.data();
                }
                _ => return None,
            }
        }
        None
    }
}

fn call(head: &[u8]) -> Option<(usize, usize)> {
    let (arguments, call) = CallHead::decode(head).ok()?;
    if call.program != program::NFS {
        return None;
    }
    let mut p = Peek { head, at: head.len() - arguments.len() };
    match (call.version, call.procedure) {
        (3, procedure::WRITE) => {
            p.opaque(FH_MAX)?;
            p.skip(8 + 4 + 4)?;
            p.data()
        }
        (4, 1) => p.compound(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::Writer;

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
    fn the_data_of_a_version_3_write_is_found_from_its_head() {
        let (bytes, at) = write3(5001);
        assert_eq!(NfsLocate.bulk(&bytes[..at], bytes.len()), Some((at, 5001)));
        for short in 0..at {
            assert_eq!(NfsLocate.bulk(&bytes[..short], bytes.len()), None);
        }
        // A length beyond the end of the message.
        assert_eq!(NfsLocate.bulk(&bytes[..at], bytes.len() - 4), None);
    }

    #[test]
    fn the_data_of_a_compound_write_is_found_behind_its_usual_company() {
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
