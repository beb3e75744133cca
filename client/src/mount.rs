//! MOUNT version 3 (RFC 1813 section 5): from the name of a share to its file handle.

use nfsrdma::xdr::Writer;

use crate::error::{Error, Result};
use crate::nfs3::Fh;
use crate::rpc::{Credential, ResultPlace, Rpc, results};

pub(crate) const PROGRAM: u32 = 100_005;
pub(crate) const VERSION: u32 = 3;
const FHSIZE: usize = 64;
const PATH_MAX: usize = 1024;
/// Entries of one answer that are taken.
const ENTRIES_MAX: usize = 4096;

fn head(procedure: u32, cred: &Credential) -> Writer {
    Rpc::head(PROGRAM, VERSION, procedure, cred)
}

/// MNT: the handle of the root of a share, by its path.
pub async fn mount(rpc: &Rpc, cred: &Credential, path: &str) -> Result<Fh> {
    let mut w = head(1, cred);
    w.opaque(path.as_bytes());
    let answer = rpc.call(w, ResultPlace::SHORT).await?;
    let mut r = results(&answer)?;
    match r.u32()? {
        0 => Ok(Fh::new(r.opaque(FHSIZE)?)),
        status => Err(Error::Mount(status)),
    }
}

/// UMNT: says that the client no longer uses the share.
pub async fn unmount(rpc: &Rpc, cred: &Credential, path: &str) -> Result<()> {
    let mut w = head(3, cred);
    w.opaque(path.as_bytes());
    let answer = rpc.call(w, ResultPlace::SHORT).await?;
    results(&answer).map(drop)
}

/// EXPORT: the paths of the shares.
pub async fn exports(rpc: &Rpc, cred: &Credential) -> Result<Vec<String>> {
    let answer = rpc.call(head(5, cred), ResultPlace::long(64 << 10)).await?;
    let mut r = results(&answer)?;
    let mut paths = Vec::new();
    while r.bool()? {
        paths.push(String::from_utf8_lossy(r.opaque(PATH_MAX)?).into_owned());
        while r.bool()? {
            r.opaque(PATH_MAX)?;
        }
        if paths.len() > ENTRIES_MAX {
            return Err(Error::Protocol("the list of exports has no end".into()));
        }
    }
    Ok(paths)
}
