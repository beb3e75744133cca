//! Shares that a server refers to other servers (RFC 8881 section 11).

use nfs_proto::nfs4::attrs::{Bitmap4, Fattr4, Pathname4, Value};
use nfs_proto::nfs4::{attr, op};

use super::compound::Results;
use super::session::Nfs4;
use crate::error::{Error, Result};

/// A server that has a share, according to a referral.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Name or address of the server.
    pub server: String,
    /// Path of the share on that server, with its first slash.
    pub path: String,
}

fn path(names: &Pathname4<'_>) -> String {
    let name =
        |c: &nfs_proto::nfs4::ops::Component4<'_>| format!("/{}", String::from_utf8_lossy(c.name));
    names.components.iter().map(name).collect()
}

impl Nfs4 {
    /// GETATTR of `fs_locations` at a path from the server's root: returns the servers of a referred share.
    ///
    /// # Errors
    ///
    /// Errors of walking the path, or [`Error::Protocol`] if the server lacks the attribute there.
    pub async fn locations(&self, at: &str) -> Result<Vec<Location>> {
        let names: Vec<&str> = at.split('/').filter(|name| !name.is_empty()).collect();
        let mut compound = self.compound().putrootfh();
        for name in &names {
            compound = compound.lookup(name.as_bytes());
        }
        let asked = Bitmap4::of(&[attr::FS_LOCATIONS]);
        let answer = self.call(compound.getattr_of(asked)).await?;
        let mut results = Results::new(&answer)?;
        results.sequence()?;
        results.next::<()>(op::PUTROOTFH)?;
        for _ in &names {
            results.next::<()>(op::LOOKUP)?;
        }
        let told: Fattr4<'_> = results.next(op::GETATTR)?;
        let values = told.values().map_or_else(|_| Vec::new(), |(_, values)| values);
        let [Value::FsLocations(told)] = &values[..] else {
            return Err(Error::Protocol(format!("no fs_locations of {at}")));
        };
        let mut all = Vec::new();
        for location in &told.locations {
            let path = path(&location.rootpath);
            let server = |c: &nfs_proto::nfs4::ops::Component4<'_>| Location {
                server: String::from_utf8_lossy(c.name).into_owned(),
                path: path.clone(),
            };
            all.extend(location.server.iter().map(server));
        }
        Ok(all)
    }
}
