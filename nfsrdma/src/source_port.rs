//! Source ports below 1024, and the callers that must use one.
//!
//! AUTH_SYS callers state their own user id, and lock managers state the owner of a lock; the server trusts them because only the
//! superuser of the client's host can send such calls. Where other users could send them, the port tells: binding one below 1024
//! takes CAP_NET_BIND_SERVICE on the sending host. Users of this host can always reach the server, so by default calls from its own
//! addresses must use such a port (RFC 2623 section 2.1 describes the practice and its limits).
//!
//! *Operation.* Applies to TCP and UDP, for each call that claims an identity (`claim`). RDMA has no privileged ports; but
//! user-space iWARP is a TCP connection that any user can open, so for local iWARP peers the owner of the socket is checked
//! ([`Info::is_local_user`]).
//!
//! *Errors.* A refused call gets AUTH_TOOWEAK, as from FreeBSD and Solaris, and a MOUNT gets MNT3ERR_ACCES, as from mountd; clients
//! turn both into EACCES.

use std::net::IpAddr;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU8, Ordering};

use mutex::{reading, writing};
use rdma_transport::channel::{Info, Transport};
use vfs::namespace::Cidr;

/// The name of the rule in reports of refused calls.
pub const RULE: &str = "rpc-source-port";

/// The first port that needs no privilege.
pub const FIRST_UNPRIVILEGED: u16 = 1024;

/// Callers that must use a port below 1024.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Asked {
    /// Callers from this host's own addresses.
    #[default]
    Local,
    /// All callers.
    All,
    Nobody,
}

/// The rule and this host's addresses. Both may change while calls are served.
#[derive(Debug, Default)]
pub struct SourcePorts {
    asked: AtomicU8,
    own: RwLock<Vec<Cidr>>,
}

impl SourcePorts {
    /// Sets which callers must use a privileged port.
    pub fn ask(&self, whom: Asked) {
        self.asked.store(whom as u8, Ordering::Relaxed);
    }

    /// Sets the addresses from which local users can call; loopback may be omitted.
    pub fn set_own(&self, addresses: Vec<Cidr>) {
        *writing(&self.own) = addresses;
    }

    /// True if the source port supports the peer's claims.
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

    /// True if a peer of this address, connected to `local`, is on this host.
    pub fn is_own(&self, peer: IpAddr, local: IpAddr) -> bool {
        let peer = peer.to_canonical();
        peer.is_loopback()
            || peer == local.to_canonical()
            || reading(&self.own).iter().any(|own| own.contains(peer))
    }
}

#[cfg(test)]
mod tests {
    use iobuf::{Pool, PoolLimits};

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
    fn local_callers_need_privileged_port() {
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
    fn local_iwarp_user_is_refused() {
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
    fn rule_applies_to_all_or_none() {
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
}
