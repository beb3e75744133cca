//! MOUNT versions 1 and 3 (RFC 1813 section 5): from a path to a file handle.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vfs::namespace::{Cidr, Share};
use vfs::{Cred, Kind, NodeRef, VfsError};

use crate::context::{Conn, Core, Outcome};
use crate::limits::{MOUNT_LINKS_MAX, MOUNT_PATH_MAX, MOUNTS_MAX};
use crate::rpc::auth::{AUTH_NONE, AUTH_SYS};
use crate::status::Nfsstat3;
use crate::xdr::{Reader, Writer, XdrResult};

/// Versions that are served.
pub const VERSIONS: (u32, u32) = (1, 3);

/// Procedure numbers (RFC 1813 section 5.2).
#[allow(missing_docs)] // The names are the specification's own, without MOUNTPROC3_.
pub mod procedure {
    pub const NULL: u32 = 0;
    pub const MNT: u32 = 1;
    pub const DUMP: u32 = 2;
    pub const UMNT: u32 = 3;
    pub const UMNTALL: u32 = 4;
    pub const EXPORT: u32 = 5;
}

/// Who has mounted what, as far as clients tell. It decides nothing; DUMP shows it.
#[derive(Debug, Default)]
pub struct Mounts {
    list: Mutex<VecDeque<(IpAddr, Vec<u8>)>>,
}

impl Mounts {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(IpAddr, Vec<u8>)>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, who: IpAddr, path: &[u8]) {
        let mut list = self.lock();
        if list.iter().any(|(w, p)| *w == who && p == path) {
            return;
        }
        if list.len() >= MOUNTS_MAX {
            list.pop_front();
        }
        list.push_back((who, path.to_vec()));
    }

    fn remove(&self, who: IpAddr, path: Option<&[u8]>) {
        self.lock().retain(|(w, p)| *w != who || path.is_some_and(|path| p != path));
    }
}

/// Does one call of MOUNT.
pub async fn serve(
    core: &Core,
    mounts: &Mounts,
    conn: &Conn,
    (version, number): (u32, u32),
    args: &mut Reader<'_>,
    out: &mut Writer,
) -> XdrResult<Outcome> {
    let who = conn.info.peer.ip().to_canonical();
    match number {
        procedure::NULL => {}
        // The 32-byte handles of version 1 cannot hold ours.
        procedure::MNT if version == 3 => {
            let path = args.opaque(MOUNT_PATH_MAX)?;
            if mnt(core, conn, path, out).await {
                mounts.add(who, path);
            }
        }
        procedure::DUMP => dump(mounts, out),
        procedure::UMNT => mounts.remove(who, Some(args.opaque(MOUNT_PATH_MAX)?)),
        procedure::UMNTALL => mounts.remove(who, None),
        procedure::EXPORT => export(core, out),
        _ => return Ok(Outcome::NoProcedure),
    }
    Ok(Outcome::Repeatable)
}

/// True when the path was given out.
async fn mnt(core: &Core, conn: &Conn, path: &[u8], out: &mut Writer) -> bool {
    match find(core, conn, path).await {
        Ok((share, node)) => {
            out.u32(0);
            out.opaque(core.handles.of_node(&share, &node.handle()).as_bytes());
            out.count(2);
            out.u32(AUTH_SYS);
            out.u32(AUTH_NONE);
            true
        }
        // The statuses of MOUNT (`mountstat3`) are a part of those of NFS, with the same numbers.
        Err(status) => {
            let status = match status {
                Nfsstat3::Perm
                | Nfsstat3::Noent
                | Nfsstat3::Io
                | Nfsstat3::Acces
                | Nfsstat3::Notdir
                | Nfsstat3::Inval
                | Nfsstat3::Nametoolong
                | Nfsstat3::Notsupp => status,
                Nfsstat3::Stale => Nfsstat3::Noent,
                _ => Nfsstat3::Serverfault,
            };
            out.u32(status as u32);
            false
        }
    }
}

type Found = (std::sync::Arc<Share>, NodeRef);

/// The directory that a path means. Symbolic links on the way are followed if they are relative and stay in their share.
async fn find(core: &Core, conn: &Conn, path: &[u8]) -> Result<Found, Nfsstat3> {
    let mut names = components(path);
    let first = names.pop_front().ok_or(Nfsstat3::Noent)?;
    let share = core.namespace.share_named(&first).filter(|s| s.protocols.nfs());
    let share = share.ok_or(Nfsstat3::Noent)?;
    if !core.may_use(conn, &share) {
        return Err(Nfsstat3::Acces);
    }
    let mut node = share.backend.root();
    let mut above = Vec::new();
    let mut links = 0;
    while let Some(name) = names.pop_front() {
        if name == b".." {
            node = above.pop().ok_or(Nfsstat3::Inval)?;
            continue;
        }
        // As the superuser, like any mount daemon: a handle opens nothing that its bearer may not open, and the directory
        // of a user can be mounted by the client's root, who may not search the way to it.
        let (next, _) = node.lookup(&Cred::root(), &name).await?;
        if next.kind() != Kind::Symlink {
            above.push(std::mem::replace(&mut node, next));
            continue;
        }
        let target = next.readlink(&Cred::root()).await?;
        links += 1;
        if links > MOUNT_LINKS_MAX || target.starts_with(b"/") {
            return Err(Nfsstat3::Noent);
        }
        let mut further = components(&target);
        further.append(&mut names);
        names = further;
    }
    match node.kind() {
        Kind::Dir => Ok((share, node)),
        _ => Err(VfsError::NotDir.into()),
    }
}

fn components(path: &[u8]) -> VecDeque<Vec<u8>> {
    path.split(|&b| b == b'/').filter(|n| !n.is_empty() && *n != b".").map(<[u8]>::to_vec).collect()
}

fn dump(mounts: &Mounts, out: &mut Writer) {
    for (who, path) in mounts.lock().iter() {
        out.bool(true);
        out.opaque(who.to_string().as_bytes());
        out.opaque(path);
    }
    out.bool(false);
}

fn export(core: &Core, out: &mut Writer) {
    for share in core.namespace.shares().iter().filter(|s| s.protocols.nfs()) {
        out.bool(true);
        out.opaque(format!("/{}", share.name).as_bytes());
        for Cidr { addr, bits } in share.clients.as_deref().unwrap_or_default() {
            out.bool(true);
            out.opaque(format!("{addr}/{bits}").as_bytes());
        }
        out.bool(false);
    }
    out.bool(false);
}
