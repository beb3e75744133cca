//! Port mapper: gives clients the ports of NFS, NFSACL, MOUNT, NLM, NSM and RQUOTA. It serves version 2 (RFC 1833 section 3), and
//! versions 3 and 4 (RFC 1833 section 2) except the two procedures that translate addresses of the host. Other programs cannot
//! register, and calls are never forwarded: a caller could misuse the gateway's address.
//!
//! The port mapper answers on the NFS port, and on port 111 in place of rpcbind. If the machine runs rpcbind, [`register`]
//! registers the programs there. Answers follow rpcbind: GETPORT and GETADDR find a program even if the requested version is not
//! served, and the caller then learns the served versions from PROG_MISMATCH; GETVERSADDR finds the exact version only.
//!
//! *Memory.* Answers have at most one entry for each program, version and transport. Datagrams from addresses that may use no share
//! get no answer (`Server::datagram`), so the server cannot be abused to flood a third party.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub mod address;
pub mod register;
mod statistics;

use crate::context::{Conn, Outcome};
use crate::rpc::callee::Carrier;
use crate::rpc::program;
use crate::v3::acl;
use nfs_proto::rpcbind::procedure::{
    CALLIT, DUMP, GETADDR, GETADDRLIST, GETPORT, GETSTAT, GETTIME, GETVERSADDR, INDIRECT, NULL,
    SET, UNSET,
};
use nfs_proto::rpcbind::{self, CallArgs, Entry, EntryList, Rpcb, TCP, UDP, Uaddr};
use nfs_proto::xdr::Chain;
use rdma_transport::xdr::{Reader, Writer, XdrResult};
use statistics::Statistics;

pub const VERSIONS: (u32, u32) = (2, 4);
pub const PORT: u16 = 111;

/// Programs and versions served over TCP. All but NFS and NFSACL are served over UDP as well.
const SERVED: [(u32, u32); 9] = [
    (program::NFS, 3),
    (program::NFS, 4),
    (program::NFSACL, acl::VERSION),
    (program::MOUNT, 1),
    (program::MOUNT, 3),
    (program::NLM, 4),
    (program::NSM, 1),
    (program::RQUOTA, 1),
    (program::RQUOTA, 2),
];

/// The ports of this server; 0 for a transport without listener.
#[derive(Debug, Default)]
pub struct Ports {
    tcp: AtomicU16,
    udp: AtomicU16,
    mapper: AtomicU16,
    statistics: Statistics,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub program: u32,
    pub version: u32,
    pub carrier: Carrier,
    pub port: u16,
}

impl Ports {
    /// Sets the port that serves all programs over TCP.
    pub fn set_tcp(&self, port: u16) {
        self.tcp.store(port, Ordering::Relaxed);
    }

    /// Sets the port that serves MOUNT, NLM, NSM and RQUOTA over UDP.
    pub fn set_udp(&self, port: u16) {
        self.udp.store(port, Ordering::Relaxed);
    }

    /// Sets the port on which the port mapper replaces rpcbind.
    pub fn set_mapper(&self, port: u16) {
        self.mapper.store(port, Ordering::Relaxed);
    }

    /// Lists the served programs, except the port mapper itself.
    pub fn served(&self) -> Vec<Mapping> {
        let (tcp, udp) = (self.tcp.load(Ordering::Relaxed), self.udp.load(Ordering::Relaxed));
        let by = |carrier, port: u16| {
            SERVED
                .into_iter()
                .filter(move |(program, _)| {
                    let of_streams = [program::NFS, program::NFSACL].contains(program);
                    port != 0 && (carrier == Carrier::Stream || !of_streams)
                })
                .map(move |(program, version)| Mapping { program, version, carrier, port })
        };
        by(Carrier::Stream, tcp).chain(by(Carrier::Datagrams, udp)).collect()
    }

    fn all(&self) -> Vec<Mapping> {
        let mapper = self.mapper.load(Ordering::Relaxed);
        let own = [2, 3, 4].into_iter().filter(|_| mapper != 0).flat_map(|version| {
            [Carrier::Stream, Carrier::Datagrams].map(|carrier| Mapping {
                program: program::PORTMAP,
                version,
                carrier,
                port: mapper,
            })
        });
        own.chain(self.served()).collect()
    }

    /// Finds this version of a program, or with `any` another version if this one is missing, as rpcbind does.
    fn find(&self, (program, version): (u32, u32), carrier: Carrier, any: bool) -> Option<Mapping> {
        let mut all = self.all();
        all.retain(|m| (m.program, m.carrier) == (program, carrier));
        let exact = all.iter().find(|m| m.version == version);
        exact.or(all.last().filter(|_| any)).copied()
    }
}

/// The transport of a network id (RFC 5665 section 4); `None` if the id is of the other address family. For an unknown id, uses the
/// transport of the call, which RFC 1833 section 2.2.1 prescribes for all cases.
fn carrier_of(netid: &[u8], conn: &Conn) -> Option<Carrier> {
    let carrier = match netid {
        b"tcp" | b"tcp6" => Carrier::Stream,
        b"udp" | b"udp6" => Carrier::Datagrams,
        _ if conn.is_datagram() => return Some(Carrier::Datagrams),
        _ => return Some(Carrier::Stream),
    };
    let own = address::netid(conn.info.local.ip(), carrier);
    (own.as_bytes() == netid).then_some(carrier)
}

fn protocol(carrier: Carrier) -> u32 {
    match carrier {
        Carrier::Stream => TCP,
        Carrier::Datagrams => UDP,
    }
}

/// Executes one call of this version and procedure.
pub fn serve(
    ports: &Ports,
    conn: &Conn,
    (version, number): (u32, u32),
    args: &mut Reader<'_>,
    out: &mut Writer,
) -> XdrResult<Outcome> {
    // The answer names the address that the client called, which it can certainly reach.
    let here = conn.info.local.ip();
    ports.statistics.count(version, number);
    match (version, number) {
        (_, NULL) => {}
        // FALSE: the registration is refused.
        (_, SET | UNSET) => out.value(&false),
        (2, GETPORT) => {
            let wanted: rpcbind::Mapping = args.value()?;
            let carrier = match wanted.prot {
                TCP => Some(Carrier::Stream),
                UDP => Some(Carrier::Datagrams),
                _ => None,
            };
            let program = (wanted.prog, wanted.vers);
            let found = carrier.and_then(|c| ports.find(program, c, true));
            ports.statistics.found(version, found.as_ref());
            out.value(&found.map_or(0, |m| u32::from(m.port)));
        }
        (3, GETADDR) | (4, GETADDR | GETVERSADDR) => {
            let wanted: Rpcb<'_> = args.value()?;
            let program = (wanted.r_prog, wanted.r_vers);
            let found = carrier_of(wanted.r_netid, conn)
                .and_then(|carrier| ports.find(program, carrier, number == GETADDR));
            ports.statistics.found(version, found.as_ref());
            let at = found.map(|m| rpcbind::universal(SocketAddr::new(here, m.port)));
            out.value(&Uaddr { uaddr: at.unwrap_or_default().as_bytes() });
        }
        (4, GETADDRLIST) => {
            let wanted: Rpcb<'_> = args.value()?;
            address_list(ports, (wanted.r_prog, wanted.r_vers), here, out);
        }
        (4, GETSTAT) => out.value(&ports.statistics.by_version(here)),
        (3 | 4, GETTIME) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            out.value(&u32::try_from(now.as_secs()).unwrap_or(u32::MAX));
        }
        (_, DUMP) => dump(&ports.all(), version, here, out),
        // Calls are never forwarded. A failed CALLIT gets no reply (RFC 1833 sections 2.2.1 and 3.2), so that a broadcast is not
        // answered by every host; over TCP, and for INDIRECT, an error is returned.
        (_, CALLIT) | (4, INDIRECT) => {
            let _: CallArgs<'_> = args.value()?;
            let is_silent = number == CALLIT && conn.is_datagram();
            return Ok(if is_silent { Outcome::Drop } else { Outcome::NoProcedure });
        }
        _ => return Ok(Outcome::NoProcedure),
    }
    Ok(Outcome::Repeatable)
}

/// Lists every address of one program version, in the family of the address that was called.
fn address_list(ports: &Ports, program: (u32, u32), here: IpAddr, out: &mut Writer) {
    /// `NC_TPI_CLTS` and `NC_TPI_COTS_ORD` of netconfig(5).
    const CONNECTIONLESS: u32 = 1;
    const CONNECTIONS: u32 = 3;

    let carriers =
        [(Carrier::Stream, CONNECTIONS, "tcp"), (Carrier::Datagrams, CONNECTIONLESS, "udp")];
    let found = carriers.iter().filter_map(|(carrier, semantics, proto)| {
        let mapping = ports.find(program, *carrier, false)?;
        let at = rpcbind::universal(SocketAddr::new(here, mapping.port));
        Some((at, *carrier, *semantics, *proto))
    });
    let found: Vec<_> = found.collect();
    let entries = found.iter().map(|(at, carrier, semantics, proto)| Entry {
        r_maddr: at.as_bytes(),
        r_nc_netid: address::netid(here, *carrier).as_bytes(),
        r_nc_semantics: *semantics,
        r_nc_protofmly: if here.is_ipv4() { b"inet" } else { b"inet6" },
        r_nc_proto: proto.as_bytes(),
    });
    out.value(&EntryList { entries: Chain(entries.collect()) });
}

fn dump(all: &[Mapping], version: u32, here: IpAddr, out: &mut Writer) {
    for m in all {
        let (prog, vers) = (m.program, m.version);
        out.value(&true);
        if version == 2 {
            let (prot, port) = (protocol(m.carrier), m.port.into());
            out.value(&rpcbind::Mapping { prog, vers, prot, port });
        } else {
            let at = rpcbind::universal(SocketAddr::new(here, m.port));
            out.value(&Rpcb {
                r_prog: prog,
                r_vers: vers,
                r_netid: address::netid(here, m.carrier).as_bytes(),
                r_addr: at.as_bytes(),
                r_owner: b"headgate",
            });
        }
    }
    out.value(&false);
}
