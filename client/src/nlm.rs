//! Locks of NFS version 3: NLM version 4 (RFC 1813 appendix II). Locks are asked for without waiting.

use nfsrdma::xdr::Writer;

use crate::error::{Error, Result};
use crate::nfs3::Fh;
use crate::rpc::{Credential, ResultPlace, Rpc, results};

const PROGRAM: u32 = 100_021;
const VERSION: u32 = 4;
const NLMPROC4_LOCK: u32 = 2;
const NLMPROC4_UNLOCK: u32 = 4;
const COOKIE_MAX: usize = 1024;
/// The one process of this host that locks.
const SVID: u32 = 1;

/// A host that locks files.
#[derive(Clone)]
pub struct Nlm {
    rpc: Rpc,
    cred: Credential,
    host: String,
}

impl Nlm {
    /// By this connection, under this name.
    pub fn new(rpc: Rpc, cred: Credential, host: &str) -> Self {
        Self { rpc, cred, host: host.into() }
    }

    fn head(&self, procedure: u32) -> Writer {
        let mut w = Rpc::head(PROGRAM, VERSION, procedure, &self.cred);
        w.opaque(b"");
        w
    }

    /// `nlm4_lock`.
    fn alock(&self, w: &mut Writer, fh: &Fh, (offset, length): (u64, u64)) {
        w.opaque(self.host.as_bytes());
        w.opaque(fh.as_bytes());
        w.opaque(self.host.as_bytes());
        w.u32(SVID);
        w.u64(offset);
        w.u64(length);
    }

    async fn call(&self, w: Writer) -> Result<()> {
        let answer = self.rpc.call(w, ResultPlace::SHORT).await?;
        let mut r = results(&answer)?;
        r.opaque(COOKIE_MAX)?;
        match r.u32()? {
            0 => Ok(()),
            status => Err(Error::Nlm(status)),
        }
    }

    /// LOCK: these bytes (offset, length), or the reason why not at once.
    pub async fn lock(&self, fh: &Fh, range: (u64, u64), exclusive: bool) -> Result<()> {
        let mut w = self.head(NLMPROC4_LOCK);
        w.bool(false);
        w.bool(exclusive);
        self.alock(&mut w, fh, range);
        // No reclaim, and the number of this run of the host.
        w.bool(false);
        w.u32(1);
        self.call(w).await
    }

    /// UNLOCK.
    pub async fn unlock(&self, fh: &Fh, range: (u64, u64)) -> Result<()> {
        let mut w = self.head(NLMPROC4_UNLOCK);
        self.alock(&mut w, fh, range);
        self.call(w).await
    }
}
