//! MOUNT versions 1 and 3 (RFC 1813 section 5): translates a path to a file handle.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use mutex::locked;
use nfs_proto::mount::{
    Dirpath, Exportnode, Groupnode, Mountbody, Mountres3, Mountres3Ok, Mountstat3,
};
use nfs_proto::oncrpc::{AUTH_NONE, AUTH_SYS};
use nfs_proto::xdr::Chain;
use vfs::namespace::{Flavor, Flavors, Refusal, Share};
use vfs::{Cred, Kind, NodeRef, VfsError};

use crate::context::{CallContext, Conn, Outcome};
use crate::limits::{MOUNT_LINKS_MAX, MOUNTS_MAX, MOUNTS_OF_ADDRESS_MAX};
use crate::server_state::ServerState;
use crate::status::Failed;
use nfs_proto::nfs3::Nfsstat3;
use rdma_transport::channel::host_of;
use rdma_transport::turn;
use rdma_transport::xdr::{Reader, Writer, XdrResult};

/// Lowest and highest version served.
pub const VERSIONS: (u32, u32) = (1, 3);

pub use nfs_proto::mount::procedure;

const RPC_AUTH_GSS_KRB5: u32 = 390_003;
const RPC_AUTH_GSS_KRB5I: u32 = 390_004;
const RPC_AUTH_GSS_KRB5P: u32 = 390_005;

/// The clients' mounts, as they reported them. The list is informational, for DUMP.
#[derive(Debug, Default)]
pub struct Mounts {
    list: Mutex<VecDeque<(IpAddr, Vec<u8>)>>,
}

impl Mounts {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(IpAddr, Vec<u8>)>> {
        locked(&self.list)
    }

    fn add(&self, who: IpAddr, path: &[u8]) {
        let mut list = self.lock();
        if list.iter().any(|(w, p)| *w == who && p == path) {
            return;
        }
        let host = host_of(who);
        let mut own = list.iter().enumerate().filter(|(_, (w, _))| host_of(*w) == host);
        let oldest =
            own.next().map(|(at, _)| at).filter(|_| own.count() + 1 >= MOUNTS_OF_ADDRESS_MAX);
        if oldest.is_some() || list.len() >= MOUNTS_MAX {
            // An address at its limit replaces one of its own entries, not an entry of another address.
            list.remove(oldest.unwrap_or(0));
        }
        list.push_back((who, path.to_vec()));
    }

    fn remove(&self, who: IpAddr, path: Option<&[u8]>) {
        self.lock().retain(|(w, p)| *w != who || path.is_some_and(|path| p != path));
    }
}

/// Executes one call of MOUNT.
pub async fn serve(
    core: &ServerState,
    mounts: &Mounts,
    (conn, call): (&Conn, &CallContext),
    (version, number): (u32, u32),
    args: &mut Reader<'_>,
    out: &mut Writer,
) -> XdrResult<Outcome> {
    let who = conn.info.peer.ip();
    match number {
        procedure::NULL => {}
        // The 32-byte handles of version 1 cannot hold ours.
        procedure::MNT if version == 3 => {
            let Dirpath { dirpath: path } = args.value()?;
            if mnt(core, conn, call, path, out).await {
                mounts.add(who, path);
            }
        }
        procedure::DUMP => dump(core, conn, mounts, out),
        procedure::UMNT => {
            let path = args.value::<Dirpath<'_>>()?.dirpath;
            mounts.remove(who, Some(path));
            unmounted(conn, call, path);
        }
        procedure::UMNTALL => {
            mounts.remove(who, None);
            unmounted(conn, call, b"");
        }
        procedure::EXPORT => export(core, conn, out),
        _ => return Ok(Outcome::NoProcedure),
    }
    Ok(Outcome::Repeatable)
}

/// Records an unmount for the audit trail, except for a datagram, whose sender address may be forged.
fn unmounted(conn: &Conn, call: &CallContext, path: &[u8]) {
    if !conn.is_datagram() {
        audit::record(|| audit::Event::Unmount {
            peer: conn.peer_ip(),
            party: call.party(),
            path: audit::RecordText::of(path),
        });
    }
}

/// Answers MNT. True when a handle was returned.
async fn mnt(
    core: &ServerState,
    conn: &Conn,
    call: &CallContext,
    path: &[u8],
    out: &mut Writer,
) -> bool {
    // If auditing is mandatory and the record cannot be written, the mount fails.
    let permit = audit::permit();
    let found = match &permit {
        Ok(_) => find(core, conn, call, path).await,
        Err(_) => Err(Nfsstat3::Serverfault.into()),
    };
    match found {
        Ok((share, node)) => {
            if let Ok(permit) = permit {
                core.mounted((conn, call), permit, &share, "3", path);
            }
            let fh = core.handles.of_node(&share, &node.handle());
            let (fhandle, auth_flavors) = (fh.as_bytes(), flavors(share.rules.sec));
            out.value(&Mountres3::Ok(Mountres3Ok { fhandle, auth_flavors }));
            true
        }
        Err(Failed(status)) => {
            let status = match status {
                Nfsstat3::Stale => Mountstat3::Noent,
                // The statuses of MOUNT are a subset of the NFS ones, with the same numbers.
                other => Mountstat3::from_u32(other as u32).unwrap_or(Mountstat3::Serverfault),
            };
            out.value(&Mountres3::Err(status));
            false
        }
    }
}

/// The flavors of a share, strongest first. Kerberos is listed as pseudo flavors (RFC 2623 section 2.2.1).
fn flavors(sec: Flavors) -> Vec<u32> {
    let numbers = |flavor| match flavor {
        Flavor::Krb5p => vec![RPC_AUTH_GSS_KRB5P],
        Flavor::Krb5i => vec![RPC_AUTH_GSS_KRB5I],
        Flavor::Krb5 => vec![RPC_AUTH_GSS_KRB5],
        Flavor::Sys => vec![AUTH_SYS, AUTH_NONE],
    };
    sec.iter().flat_map(numbers).collect()
}

pub(crate) type Found = (Arc<Share>, NodeRef);

/// Finds the directory of a path. Symbolic links are followed if they are relative and stay inside their share.
pub(crate) async fn find(
    core: &ServerState,
    conn: &Conn,
    call: &CallContext,
    path: &[u8],
) -> Result<Found, Failed> {
    let mut names = components(path);
    let Some((share, own)) = share_of(core, &names) else {
        if !names.is_empty() {
            core.unknown_share(conn, call, &names.make_contiguous().join(&b'/'));
        }
        return Err(Nfsstat3::Noent.into());
    };
    names.drain(..own);
    if let Some(why) = core.why_not(conn, &share) {
        core.refused(conn, call, &share, why);
        return Err(Nfsstat3::Acces.into());
    }
    if share.is_elsewhere() {
        // NFSv3 has no status for a referral, so the location goes to the log. NOTSUPP would give a Linux user an error without a
        // name.
        core.refused(conn, call, &share, Refusal::Elsewhere);
        return Err(Nfsstat3::Acces.into());
    }
    // Any client whose address may use a share may mount its root; paths below the root need the user's permissions.
    let cred = match names.is_empty() {
        true => None,
        false => Some(walks_as(core, conn, call, &share)?),
    };
    let mut node = share.backend.root();
    let mut above = Vec::new();
    let mut links = 0;
    while let (Some(name), Some(cred)) = (names.pop_front(), &cred) {
        if name == b".." {
            node = above.pop().ok_or(Nfsstat3::Inval)?;
            continue;
        }
        turn::pause().await;
        let (next, _) = node.lookup(cred, &name).await?;
        if share.rules.links.find(&node, &name, &next).await?.is_some() {
            core.refused(conn, call, &share, Refusal::Elsewhere);
            return Err(Nfsstat3::Acces.into());
        }
        if next.kind() != Kind::Symlink {
            above.push(std::mem::replace(&mut node, next));
            continue;
        }
        let target = next.readlink(cred).await?;
        links += 1;
        if links > MOUNT_LINKS_MAX || target.starts_with(b"/") {
            return Err(Nfsstat3::Noent.into());
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

/// Returns the identity used to walk below a share's root: the caller, if the share would accept other calls with this credential.
/// Mount daemons call as the superuser; then folders behind one that the caller may not search would be protected by their own mode
/// only. Clients send MNT as AUTH_SYS without TLS whatever the mount uses: where the share refuses such calls, the walk uses the
/// anonymous user.
fn walks_as(
    core: &ServerState,
    conn: &Conn,
    call: &CallContext,
    share: &Arc<Share>,
) -> Result<Cred, Failed> {
    core.enter_by_any(conn, call, share.clone()).map_err(|_| Nfsstat3::Acces)?;
    let entered = match core.judge(conn, call, share) {
        Ok(granted) => share.clone().granted(granted),
        Err(_) => share.from_outside(),
    };
    Ok(entered.cred)
}

/// The share that contains a path, and the number of path components up to its root.
fn share_of(core: &ServerState, names: &VecDeque<Vec<u8>>) -> Option<(Arc<Share>, usize)> {
    let shares = core.namespace.shares();
    let mut by_nfs = shares.iter().filter(|share| share.protocols.nfs());
    by_nfs.find_map(|share| {
        let own = share.nfs_path().split('/');
        let (length, mut both) = (own.clone().count(), own.zip(names));
        let leads = names.len() >= length && both.all(|(own, name)| own.as_bytes() == name);
        leads.then(|| (share.clone(), length))
    })
}

/// The share that contains a path.
pub(crate) fn share_at(core: &ServerState, path: &[u8]) -> Option<Arc<Share>> {
    share_of(core, &components(path)).map(|(share, _)| share)
}

fn components(path: &[u8]) -> VecDeque<Vec<u8>> {
    path.split(|&b| b == b'/').filter(|n| !n.is_empty() && *n != b".").map(<[u8]>::to_vec).collect()
}

/// Lists the recorded mounts of shares that the peer may mount. DUMP hides other shares as EXPORT does.
fn dump(core: &ServerState, conn: &Conn, mounts: &Mounts, out: &mut Writer) {
    let is_told = |path: &[u8]| {
        share_at(core, path).is_some_and(|share| !share.rules.hidden && core.may_use(conn, &share))
    };
    for (who, path) in mounts.lock().iter().filter(|(_, path)| is_told(path)) {
        let host = who.to_string();
        out.value(&true);
        out.value(&Mountbody { ml_hostname: host.as_bytes(), ml_directory: path });
    }
    out.value(&false);
}

/// Lists the shares that the peer may mount. SMB hides the others in the same way.
fn export(core: &ServerState, conn: &Conn, out: &mut Writer) {
    let is_told = |s: &&Arc<Share>| !s.rules.hidden && !s.is_elsewhere() && core.may_use(conn, s);
    for share in core.namespace.shares().iter().filter(is_told) {
        let clients = share.clients.as_deref().unwrap_or_default();
        let by_nfs = clients.iter().filter(|c| c.protocols.nfs());
        let names: Vec<String> = by_nfs.map(|c| c.from.to_string()).collect();
        let groups = names.iter().map(|name| Groupnode { gr_name: name.as_bytes() }).collect();
        let dir = format!("/{}", share.nfs_path());
        out.value(&true);
        out.value(&Exportnode { ex_dir: dir.as_bytes(), ex_groups: Chain(groups) });
    }
    out.value(&false);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_others_stay_listed() {
        let mounts = Mounts::default();
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        mounts.add(at("192.0.2.1"), b"/data");
        for n in 0..10_000_u32 {
            mounts.add(at("192.0.2.2"), format!("/data/{n}").as_bytes());
            mounts.add(at(&format!("2001:db8::{:x}", n % 0xffff)), b"/data");
        }
        let of = |host: &str| {
            let list = mounts.lock();
            list.iter().filter(|(who, _)| host_of(*who) == host_of(at(host))).count()
        };
        assert_eq!(of("192.0.2.1"), 1, "the oldest of all");
        assert_eq!(
            (of("192.0.2.2"), of("2001:db8::")),
            (MOUNTS_OF_ADDRESS_MAX, MOUNTS_OF_ADDRESS_MAX)
        );
        assert_eq!(mounts.lock().back().map(|(_, path)| path.clone()), Some(b"/data".to_vec()));
        for n in 0..100_000_u32 {
            let [_, a, b, c] = n.to_be_bytes();
            mounts.add([10, a, b, c].into(), b"/data");
        }
        assert_eq!(mounts.lock().len(), MOUNTS_MAX);
    }
}
