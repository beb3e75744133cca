//! MOUNT version 3 (RFC 1813 section 5): gets the file handle of a share.

use nfs_proto::mount::procedure::{EXPORT, MNT, UMNT};
use nfs_proto::mount::{Dirpath, Exports, Mountres3Ok, VERSION};
use nfs_proto::oncrpc::program;

use crate::error::{Error, Result};
use crate::nfs3::Fh;
use crate::rpc::{CallArgs, Credential, ResultPlace, Rpc, results, status};

const OK: u32 = 0;

fn head(procedure: u32, cred: &Credential) -> CallArgs {
    Rpc::head(program::MOUNT, VERSION, procedure, cred)
}

/// MNT: returns the handle of a share's root.
pub async fn mount(rpc: &Rpc, cred: &Credential, path: &str) -> Result<Fh> {
    let mut w = head(MNT, cred);
    w.value(&Dirpath { dirpath: path.as_bytes() });
    let answer = rpc.call(w, ResultPlace::SHORT).await?;
    let mut r = results(&answer)?;
    status(&mut r, OK, Error::Mount)?;
    Ok(Fh::new(r.value::<Mountres3Ok<'_>>()?.fhandle))
}

/// UMNT: reports that the client no longer uses the share.
pub async fn unmount(rpc: &Rpc, cred: &Credential, path: &str) -> Result<()> {
    let mut w = head(UMNT, cred);
    w.value(&Dirpath { dirpath: path.as_bytes() });
    let answer = rpc.call(w, ResultPlace::SHORT).await?;
    results(&answer).map(drop)
}

/// EXPORT: returns the paths of the shares.
pub async fn exports(rpc: &Rpc, cred: &Credential) -> Result<Vec<String>> {
    let answer = rpc.call(head(EXPORT, cred), ResultPlace::long(64 << 10)).await?;
    let list: Exports<'_> = results(&answer)?.value()?;
    let path = |dir: &[u8]| String::from_utf8_lossy(dir).into_owned();
    Ok(list.exports.0.iter().map(|export| path(export.ex_dir)).collect())
}
