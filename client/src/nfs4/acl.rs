//! The attribute `acl` (RFC 8881 section 6.2.1).

use nfs_proto::nfs4::{Stateid4 as Stateid, attr, op};
use nfsrdma::xdr::{Reader, Writer};

use super::Fh;
use super::attrs::{put_bitmap, read_bitmap};
use super::compound::Results;
use super::session::Nfs4;
use crate::error::{Error, Result};

/// Entries that are taken.
const ACES_MAX: usize = 1_024;
const WHO_MAX: usize = 1_024;

/// `nfsace4`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ace {
    /// `ACE4_ACCESS_ALLOWED_ACE_TYPE` and so on.
    pub kind: u32,
    /// Flags.
    pub flags: u32,
    /// Rights.
    pub mask: u32,
    /// Whom it is about.
    pub who: String,
}

fn put(w: &mut Writer, list: &[Ace]) {
    w.count(list.len());
    for ace in list {
        [ace.kind, ace.flags, ace.mask].into_iter().for_each(|n| w.u32(n));
        w.opaque(ace.who.as_bytes());
    }
}

fn read(r: &mut Reader<'_>) -> Result<Vec<Ace>> {
    let count = r.count(ACES_MAX)?;
    let mut list = Vec::new();
    for _ in 0..count {
        let (kind, flags, mask) = (r.u32()?, r.u32()?, r.u32()?);
        let who = String::from_utf8_lossy(r.opaque(WHO_MAX)?).into_owned();
        list.push(Ace { kind, flags, mask, who });
    }
    Ok(list)
}

impl Nfs4 {
    /// The access control list of a file; `None` where the server has none to show.
    pub async fn acl(&self, fh: &Fh) -> Result<Option<Vec<Ace>>> {
        let answer = self.call(self.compound().putfh(fh).getattr_of(&[attr::ACL])).await?;
        let mut results = Results::new(&answer)?;
        results.sequence()?;
        results.next(op::PUTFH)?;
        let r = results.next(op::GETATTR)?;
        let bits = read_bitmap(r)?;
        r.u32()?;
        match bits[..] {
            [] => Ok(None),
            [attr::ACL] => read(r).map(Some),
            _ => Err(Error::Protocol("attributes that were not asked for".into())),
        }
    }

    /// Sets it.
    pub async fn set_acl(&self, fh: &Fh, list: &[Ace]) -> Result<()> {
        let mut values = Writer::new();
        put(&mut values, list);
        let mut c = self.compound().putfh(fh);
        let w = c.op(op::SETATTR);
        w.value(&Stateid::ANONYMOUS);
        put_bitmap(w, &[attr::ACL]);
        w.opaque(values.bytes());
        self.plain(c, &[op::PUTFH, op::SETATTR]).await
    }
}
