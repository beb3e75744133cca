//! The port mapper: tells clients that ask where NFS, NFSACL, MOUNT, NLM and NSM are. Version 2 (RFC 1833 section 3), and of
//! versions 3 and 4 (RFC 1833 section 2) what clients use: NULL, GETADDR, GETVERSADDR, DUMP. Nothing can be registered from
//! outside.
//!
//! It answers on the NFS port, and on port 111 when it stands in for rpcbind. Where the machine has an rpcbind, [`register`] tells
//! that one.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

pub mod address;
pub mod register;

use crate::context::{Conn, Outcome};
use crate::rpc::callee::Carrier;
use crate::rpc::program;
use crate::v3::acl;
use nfs_proto::rpcbind::procedure::{DUMP, GETADDR, GETPORT, GETVERSADDR, NULL, SET, UNSET};
use nfs_proto::rpcbind::{self, Rpcb, TCP, UDP, Uaddr};
use rdma_transport::xdr::{Reader, Writer, XdrResult};

/// Versions that are served.
pub const VERSIONS: (u32, u32) = (2, 4);
/// Where clients look for it.
pub const PORT: u16 = 111;

/// What is served over TCP: program, version. By datagrams all but NFS and NFSACL.
const SERVED: [(u32, u32); 7] = [
    (program::NFS, 3),
    (program::NFS, 4),
    (program::NFSACL, acl::VERSION),
    (program::MOUNT, 1),
    (program::MOUNT, 3),
    (program::NLM, 4),
    (program::NSM, 1),
];

/// The ports of this server; 0 where it does not listen.
#[derive(Debug, Default)]
pub struct Ports {
    tcp: AtomicU16,
    udp: AtomicU16,
    mapper: AtomicU16,
}

/// A program that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Program.
    pub program: u32,
    /// Version.
    pub version: u32,
    /// How.
    pub carrier: Carrier,
    /// Where.
    pub port: u16,
}

impl Ports {
    /// Everything is served over TCP here.
    pub fn set_tcp(&self, port: u16) {
        self.tcp.store(port, Ordering::Relaxed);
    }

    /// MOUNT, NLM and NSM are served by datagrams here.
    pub fn set_udp(&self, port: u16) {
        self.udp.store(port, Ordering::Relaxed);
    }

    /// The port mapper stands in for rpcbind here.
    pub fn set_mapper(&self, port: u16) {
        self.mapper.store(port, Ordering::Relaxed);
    }

    /// What is served, but for the port mapper itself.
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

    fn find(&self, program: u32, version: u32, carrier: Carrier) -> Option<u16> {
        let wanted = (program, version, carrier);
        let all = self.all();
        all.iter().find(|m| (m.program, m.version, m.carrier) == wanted).map(|m| m.port)
    }
}

fn protocol(carrier: Carrier) -> u32 {
    match carrier {
        Carrier::Stream => TCP,
        Carrier::Datagrams => UDP,
    }
}

/// Does one call of this version and number.
pub fn serve(
    ports: &Ports,
    conn: &Conn,
    (version, number): (u32, u32),
    args: &mut Reader<'_>,
    out: &mut Writer,
) -> XdrResult<Outcome> {
    // What the client reached is an address that it can reach.
    let here = conn.info.local.ip();
    match (version, number) {
        (_, NULL) => {}
        // Refused, in so many words: FALSE.
        (_, SET | UNSET) => out.value(&false),
        (2, GETPORT) => {
            let wanted: rpcbind::Mapping = args.value()?;
            let carrier = match wanted.prot {
                TCP => Some(Carrier::Stream),
                UDP => Some(Carrier::Datagrams),
                _ => None,
            };
            let port = carrier.and_then(|c| ports.find(wanted.prog, wanted.vers, c));
            out.value(&port.map_or(0, u32::from));
        }
        (3, GETADDR) | (4, GETADDR | GETVERSADDR) => {
            let wanted: Rpcb<'_> = args.value()?;
            let carrier = [Carrier::Stream, Carrier::Datagrams]
                .into_iter()
                .find(|c| address::netid(here, *c).as_bytes() == wanted.r_netid);
            let port = carrier.and_then(|c| ports.find(wanted.r_prog, wanted.r_vers, c));
            let at = port.map(|port| rpcbind::universal(SocketAddr::new(here, port)));
            out.value(&Uaddr { uaddr: at.unwrap_or_default().as_bytes() });
        }
        (_, DUMP) => dump(&ports.all(), version, here, out),
        _ => return Ok(Outcome::NoProcedure),
    }
    Ok(Outcome::Repeatable)
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
