//! Ports below 1024, and whose claims need one.
//!
//! A caller by AUTH_SYS says who it is, and a caller of the lock manager whose locks it means: both are believed because only the
//! superuser of the client's host can send them. Where another user can, the port tells: one below 1024 takes CAP_NET_BIND_SERVICE
//! on the host that the call comes from. This host's own users are in that place whatever the network is, so that calls from its
//! addresses are asked by default (RFC 2623 section 2.1 describes the practice and its limits).
//!
//! *Operation.* Asked of TCP and UDP, for each call that claims something (`claim`). RDMA has no such ports; but iWARP in user
//! space is a TCP connection of any user, so that the owner of one from this host is looked at ([`Info::is_local_user`]).
//!
//! *Errors.* A call is refused with AUTH_TOOWEAK, as FreeBSD and Solaris do, and a MOUNT with MNT3ERR_ACCES, as mountd does;
//! clients make EACCES of both.

use std::net::IpAddr;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU8, Ordering};

use mutex::{reading, writing};
use rdma_transport::channel::{Info, Transport};
use vfs::namespace::Cidr;

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
        *writing(&self.own) = addresses;
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
}
