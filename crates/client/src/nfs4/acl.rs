//! The attribute `acl` (RFC 8881 section 6.2.1).

use nfs_proto::nfs4::attrs::{Acl, Bitmap4, Fattr4, Nfsace4, Value};
use nfs_proto::nfs4::{Stateid4 as Stateid, attr, op};

use super::Fh;
use super::attrs::{Fattr, unasked, values};
use super::compound::Results;
use super::session::Nfs4;
use crate::error::Result;

/// `nfsace4`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ace {
    /// `ACE4_ACCESS_ALLOWED_ACE_TYPE` and so on.
    pub kind: u32,
    pub flags: u32,
    /// Access mask.
    pub mask: u32,
    /// The user or group of the entry.
    pub who: String,
}

impl From<&Nfsace4<'_>> for Ace {
    fn from(ace: &Nfsace4<'_>) -> Self {
        let who = String::from_utf8_lossy(ace.who).into_owned();
        Self { kind: ace.acetype, flags: ace.flag, mask: ace.access_mask, who }
    }
}

impl<'a> From<&'a Ace> for Nfsace4<'a> {
    fn from(ace: &'a Ace) -> Self {
        let who = ace.who.as_bytes();
        Self { acetype: ace.kind, flag: ace.flags, access_mask: ace.mask, who }
    }
}

impl Nfs4 {
    /// Returns the access control list of a file; `None` if the server has none.
    pub async fn acl(&self, fh: &Fh) -> Result<Option<Vec<Ace>>> {
        let c = self.compound().putfh(fh).getattr_of(Bitmap4::of(&[attr::ACL]));
        let answer = self.call(c).await?;
        let fattr: Fattr4<'_> = Results::behind_putfh(&answer)?.next(op::GETATTR)?;
        match values(&fattr)?.as_slice() {
            [] => Ok(None),
            [Value::Acl(acl)] => Ok(Some(acl.aces.iter().map(Ace::from).collect())),
            _ => Err(unasked()),
        }
    }

    /// Sets the access control list of a file.
    pub async fn set_acl(&self, fh: &Fh, list: &[Ace]) -> Result<()> {
        let acl = Acl { aces: list.iter().map(Nfsace4::from).collect() };
        let fattr = Fattr::of(&[attr::ACL], &[Value::Acl(acl)]);
        let c = self.compound().putfh(fh).setattr(Stateid::ANONYMOUS, &fattr);
        self.plain(c, &[op::PUTFH, op::SETATTR]).await
    }
}
