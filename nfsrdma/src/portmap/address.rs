//! Looks up the address of a program: the query to rpcbind, its answer, and rpcbind's notation of addresses.

use std::net::{IpAddr, SocketAddr};

use nfs_proto::rpcbind::procedure::{GETADDR, GETPORT};
use nfs_proto::rpcbind::{Mapping, Rpcb, TCP, UDP, Uaddr, parse_universal, universal};
use nfs_proto::xdr::{decode, encode};

use crate::rpc::callee::{Callee, Carrier, RPCBIND};

/// The network id of a transport (RFC 5665 section 4).
pub fn netid(ip: IpAddr, carrier: Carrier) -> &'static str {
    match (ip, carrier) {
        (IpAddr::V4(_), Carrier::Stream) => "tcp",
        (IpAddr::V4(_), Carrier::Datagrams) => "udp",
        (IpAddr::V6(_), Carrier::Stream) => "tcp6",
        (IpAddr::V6(_), Carrier::Datagrams) => "udp6",
    }
}

/// Builds the query for a program's address: version 2 for IPv4, which all hosts support, version 4 for IPv6.
pub(crate) fn question(ip: IpAddr, callee: Callee, carrier: Carrier) -> (Callee, Vec<u8>) {
    let (prog, vers) = (callee.program, callee.version);
    let (version, procedure, args) = match ip {
        IpAddr::V4(_) => {
            let prot = if carrier == Carrier::Stream { TCP } else { UDP };
            (2, GETPORT, encode(&Mapping { prog, vers, prot, port: 0 }))
        }
        IpAddr::V6(_) => {
            let at = universal(SocketAddr::new(ip, 0));
            let args = Rpcb {
                r_prog: prog,
                r_vers: vers,
                r_netid: netid(ip, carrier).as_bytes(),
                r_addr: at.as_bytes(),
                r_owner: b"",
            };
            (4, GETADDR, encode(&args))
        }
    };
    (Callee { program: RPCBIND, version, procedure }, args)
}

/// Parses the port in the answer; `None` when the program is not registered.
pub(crate) fn port_in_answer(ip: IpAddr, answer: &[u8]) -> Option<u16> {
    let port = match ip {
        IpAddr::V4(_) => u16::try_from(decode::<u32>(answer).ok()?.1).ok()?,
        IpAddr::V6(_) => parse_universal(decode::<Uaddr<'_>>(answer).ok()?.1.uaddr)?.port(),
    };
    (port != 0).then_some(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unregistered_program_has_no_port() {
        let (v4, v6) = (IpAddr::from([10, 0, 0, 1]), "::1".parse().unwrap());
        assert_eq!(port_in_answer(v4, &[0, 0, 8, 1]), Some(2049));
        assert_eq!(port_in_answer(v4, &[0, 0, 0, 0]), None);
        assert_eq!(port_in_answer(v4, &[0, 1, 0, 0]), None);
        assert_eq!(port_in_answer(v4, &[]), None);
        assert_eq!(port_in_answer(v6, b"\0\0\0\x07::1.8.1\0"), Some(2049));
        assert_eq!(port_in_answer(v6, &[0, 0, 0, 0]), None);
    }
}
