//! Ports below 1024, and whose claims need one.
//!
//! A caller by AUTH_SYS says who it is, and a caller of the lock manager whose locks it means: both are believed because only the
//! superuser of the client's host can send them. Where another user can, the port tells: one below 1024 takes CAP_NET_BIND_SERVICE
//! on the host that the call comes from. This host's own users are in that place whatever the network is, so that calls from its
//! addresses are asked by default (RFC 2623 section 2.1 describes the practice and its limits).
//!
//! *Operation.* Asked of TCP and UDP, for each call that claims something ([`claim`]). RDMA has no such ports; but iWARP in user
//! space is a TCP connection of any user, so that the owner of one from this host is looked at ([`Info::is_local_user`]).
//!
//! *Errors.* A call is refused with AUTH_TOOWEAK, as FreeBSD and Solaris do, and a MOUNT with MNT3ERR_ACCES, as mountd does;
//! clients make EACCES of both.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{PoisonError, RwLock};

use nfs_proto::mount::{self, Dirpath, Mountres3, Mountstat3};
use nfs_proto::nfs3::NfsFh3;
use nfs_proto::oncrpc::{AcceptStat, AuthStat, CallHead, ReplyBody, ReplyHead, program};
use nfs_proto::{nlm, nsm};
use rdma_transport::channel::{Info, Reply, Transport};
use rdma_transport::refused::Refused;
use vfs::namespace::Cidr;

use crate::context::{Conn, ServerState};
use crate::fh::Named;
use crate::rpc::Flavor;
use rdma_transport::xdr::{Reader, Writer};

/// The rule by which a call is refused.
pub const RULE: &str = "rpc-source-port";

/// The first port that takes no privilege.
pub const FIRST_UNPRIVILEGED: u16 = 1024;

/// Who must call from a port below 1024.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Asked {
    /// Callers from this host's own addresses.
    #[default]
    Local,
    /// Everybody.
    All,
    /// Nobody.
    Nobody,
}

/// The rule and this host's addresses. Both can change while calls are served.
#[derive(Debug, Default)]
pub struct SourcePorts {
    asked: AtomicU8,
    own: RwLock<Vec<Cidr>>,
}

impl SourcePorts {
    /// Asks these from now on.
    pub fn ask(&self, whom: Asked) {
        self.asked.store(whom as u8, Ordering::Relaxed);
    }

    /// What the host's users can call from; loopback need not be among them.
    pub fn set_own(&self, addresses: Vec<Cidr>) {
        *self.own.write().unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    /// What this peer claims is to be believed, as far as the port says.
    pub fn believe(&self, info: &Info) -> bool {
        if info.peer.port() < FIRST_UNPRIVILEGED {
            return true;
        }
        let asked = self.asked.load(Ordering::Relaxed);
        if asked == Asked::Nobody as u8 {
            return true;
        }
        match info.transport {
            Transport::Rdma(_) => !info.is_local_user,
            Transport::Tcp => {
                asked == Asked::Local as u8 && !self.is_own(info.peer.ip(), info.local.ip())
            }
        }
    }

    /// A peer of this address, connected to `local`, is on this host.
    pub fn is_own(&self, peer: IpAddr, local: IpAddr) -> bool {
        let peer = peer.to_canonical();
        peer.is_loopback()
            || peer == local.to_canonical()
            || self
                .own
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .iter()
                .any(|own| own.contains(peer))
    }
}

/// What a call claims, as far as it is the superuser's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// Nothing: it asks for no rights, or as the anonymous user.
    None,
    /// To be a user, or to speak for what a client or host holds.
    Made,
    /// To be a user who mounts.
    Mount,
}

/// What this call claims.
fn claim(head: &CallHead<'_>, flavor: Flavor) -> Claim {
    match (head.program, head.procedure, flavor) {
        (_, 0, _) => Claim::None,
        // By name of host and owner, whatever the credential.
        (program::NLM, number, _) if number <= nlm::procedure::FREE_ALL => Claim::Made,
        (program::NSM, nsm::procedure::NOTIFY, _) => Claim::Made,
        // A ticket proves who it is, from whatever port.
        (_, _, Flavor::Gss(_)) => Claim::None,
        // By the names of clients, and by stateids, which can be guessed.
        (program::NFS, _, _) if head.version == 4 => Claim::Made,
        (program::NFS | program::NFSACL, _, Flavor::Sys) => Claim::Made,
        (program::MOUNT, mount::procedure::MNT, Flavor::Sys) => Claim::Mount,
        _ => Claim::None,
    }
}

/// The refusal of a call whose port makes nobody believe it, if it claims something. `args` stands at its arguments.
pub(crate) fn refuse(
    core: &ServerState,
    conn: &Conn,
    head: &CallHead<'_>,
    flavor: Flavor,
    args: &Reader<'_>,
) -> Option<Reply> {
    let mut out = Writer::new();
    match claim(head, flavor) {
        Claim::None => return None,
        Claim::Made => {
            let body = ReplyBody::AuthError(AuthStat::TooWeak);
            ReplyHead { xid: head.xid, body }.emit(out.head());
        }
        Claim::Mount => {
            ReplyHead::accepted(head.xid, AcceptStat::Success).emit(out.head());
            out.value(&Mountres3::Err(Mountstat3::Acces));
        }
    }
    conn.refused(Refused {
        peer: conn.info.peer.ip(),
        // What the call says of its user is what is not believed.
        user: String::new(),
        share: share(core, head, args.clone()).unwrap_or_default(),
        rule: RULE,
        remedy: "mount as root: its port is not below 1024, so that any user may have sent the call; or say \
                 `privileged_ports: off`",
    });
    Some(out.into_reply())
}

/// The share that a call names, where that is said at its beginning.
fn share(core: &ServerState, head: &CallHead<'_>, mut args: Reader<'_>) -> Option<String> {
    match (head.program, head.version) {
        (program::NFS, 3) | (program::NFSACL, _) => {
            match core.handles.open(&core.namespace, args.value::<NfsFh3<'_>>().ok()?.data) {
                Ok(Named::Node(share, _)) => Some(share.name.clone()),
                _ => None,
            }
        }
        (program::MOUNT, _) => {
            let Dirpath { dirpath: path } = args.value().ok()?;
            crate::mount::share_at(core, path).map(|share| share.name.clone())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use iobuf::{Pool, PoolLimits};
    use nfs_proto::oncrpc::OpaqueAuth;

    use nfs_proto::rpcsec_gss::GssService;

    use super::*;

    fn believes(ports: &SourcePorts, peer: &str, transport: Transport) -> bool {
        let pool = Pool::new(PoolLimits { buffers_max: [1, 1, 1] });
        let (peer, local) = (peer.parse().unwrap(), "192.0.2.1:2049".parse().unwrap());
        ports.believe(&Info::new(peer, local, transport, pool))
    }

    const OWN: [&str; 5] = [
        "127.0.0.1:1024",
        "[::1]:65535",
        "192.0.2.1:50000",
        "[::ffff:127.9.9.9]:50000",
        "[2001:db8::1]:50000",
    ];
    const FAR: [&str; 2] = ["192.0.2.2:1024", "[2001:db8::2]:50000"];

    #[test]
    fn this_hosts_users_are_asked_for_a_port_that_takes_a_privilege() {
        let ports = SourcePorts::default();
        ports.set_own(vec![Cidr { addr: "2001:db8::1".parse().unwrap(), bits: 128 }]);
        for at in OWN {
            assert!(!believes(&ports, at, Transport::Tcp), "{at}");
            assert!(believes(&ports, at, Transport::Rdma("verbs")), "{at}");
        }
        for at in FAR.into_iter().chain(["127.0.0.1:1023", "[::1]:1"]) {
            assert!(believes(&ports, at, Transport::Tcp), "{at}");
        }
    }

    #[test]
    fn a_user_of_this_host_by_iwarp_is_not_believed_either() {
        let ports = SourcePorts::default();
        let pool = Pool::new(PoolLimits { buffers_max: [1, 1, 1] });
        let (peer, local) =
            ("127.0.0.1:50000".parse().unwrap(), "127.0.0.1:20049".parse().unwrap());
        let mut info = Info::new(peer, local, Transport::Rdma("iwarp"), pool);
        info.is_local_user = true;
        for (asked, believed) in [(Asked::Local, false), (Asked::All, false), (Asked::Nobody, true)]
        {
            ports.ask(asked);
            assert_eq!(ports.believe(&info), believed, "{asked:?}");
        }
    }

    #[test]
    fn everybody_is_asked_or_nobody() {
        let ports = SourcePorts::default();
        ports.ask(Asked::All);
        for at in OWN.into_iter().chain(FAR) {
            assert!(!believes(&ports, at, Transport::Tcp), "{at}");
            assert!(believes(&ports, at, Transport::Rdma("verbs")), "{at}");
        }
        assert!(believes(&ports, "192.0.2.2:1023", Transport::Tcp));
        ports.ask(Asked::Nobody);
        for at in OWN.into_iter().chain(FAR) {
            assert!(believes(&ports, at, Transport::Tcp), "{at}");
        }
    }

    #[test]
    fn the_anonymous_user_and_questions_claim_nothing() {
        let said = OpaqueAuth { flavor: 1, body: &[] };
        let call = |program, version, procedure| CallHead {
            xid: 1,
            program,
            version,
            procedure,
            cred: said,
            verf: said,
        };
        let claimed = |program, procedure, flavor| claim(&call(program, 3, procedure), flavor);
        use Flavor::{None as Anonymous, Sys};
        assert_eq!(claim(&call(program::NFS, 4, 1), Anonymous), Claim::Made);
        for program in [program::NFS, program::NFSACL] {
            assert_eq!(claimed(program, 0, Sys), Claim::None);
            assert_eq!(claimed(program, 1, Sys), Claim::Made);
            assert_eq!(claimed(program, 1, Anonymous), Claim::None);
        }
        assert_eq!(claimed(program::MOUNT, mount::procedure::MNT, Sys), Claim::Mount);
        assert_eq!(claimed(program::MOUNT, mount::procedure::EXPORT, Sys), Claim::None);
        for flavor in [Anonymous, Sys, Flavor::Gss(GssService::None)] {
            assert_eq!(claimed(program::NLM, nlm::procedure::UNLOCK, flavor), Claim::Made);
            assert_eq!(claimed(program::NLM, nlm::procedure::FREE_ALL, flavor), Claim::Made);
            assert_eq!(claimed(program::NSM, nsm::procedure::NOTIFY, flavor), Claim::Made);
            assert_eq!(claimed(program::NSM, nsm::procedure::STAT, flavor), Claim::None);
            assert_eq!(claimed(program::PORTMAP, 3, flavor), Claim::None);
        }
        assert_eq!(claimed(program::NFS, 1, Flavor::Gss(GssService::None)), Claim::None);
    }
}
