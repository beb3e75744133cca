//! Locks of NFS version 3: NLM version 4 (RFC 1813 appendix II). Lock requests do not block.

use nfs_proto::nlm::procedure::{LOCK, UNLOCK};
use nfs_proto::nlm::{Lock, Lockargs, STRING_MAX, Stat, Unlockargs, VERSION};
use nfs_proto::oncrpc::program;
use nfs_proto::xdr::{Bounded, Xdr};

use crate::error::{Error, Result};
use crate::nfs3::Fh;
use crate::rpc::{Credential, ResultPlace, Rpc, results, status};

const GRANTED: u32 = Stat::Granted as u32;
/// Process id of the only locking process on this host.
const SVID: i32 = 1;

/// A host that locks files.
#[derive(Clone)]
pub struct Nlm {
    rpc: Rpc,
    cred: Credential,
    host: String,
}

impl Nlm {
    /// Uses this connection under this host name.
    pub fn new(rpc: Rpc, cred: Credential, host: &str) -> Self {
        Self { rpc, cred, host: host.into() }
    }

    /// Builds the `nlm4_lock` for these bytes (offset, length).
    fn alock<'a>(&'a self, fh: &'a Fh, (l_offset, l_len): (u64, u64)) -> Lock<'a> {
        let host = self.host.as_bytes();
        Lock { caller_name: host, fh: fh.as_bytes(), oh: host, svid: SVID, l_offset, l_len }
    }

    async fn call<'a>(&self, procedure: u32, args: &impl Xdr<'a>) -> Result<()> {
        let mut w = Rpc::head(program::NLM, VERSION, procedure, &self.cred);
        w.value(args);
        let answer = self.rpc.call(w, ResultPlace::SHORT).await?;
        let mut r = results(&answer)?;
        // Parse `nlm4_res` with a numeric status, so that an unknown one can be reported.
        r.parse(|i| <&[u8]>::bounded(STRING_MAX, "cookie", i))?;
        status(&mut r, GRANTED, Error::Nlm)
    }

    /// LOCK: locks these bytes (offset, length), or returns why that is not possible at once.
    pub async fn lock(&self, fh: &Fh, range: (u64, u64), exclusive: bool) -> Result<()> {
        let alock = self.alock(fh, range);
        // `state` is the number of this run of the host.
        let (cookie, state) = (&[][..], 1);
        let args = Lockargs { cookie, block: false, exclusive, alock, reclaim: false, state };
        self.call(LOCK, &args).await
    }

    /// UNLOCK.
    pub async fn unlock(&self, fh: &Fh, range: (u64, u64)) -> Result<()> {
        self.call(UNLOCK, &Unlockargs { cookie: &[], alock: self.alock(fh, range) }).await
    }
}
