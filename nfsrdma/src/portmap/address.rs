//! Where a program is: the question to rpcbind, its answer, and addresses as it writes them.

use std::net::{IpAddr, SocketAddr};

use iobuf::Buf;

use super::{GETADDR, GETPORT, TCP, UDP};
use crate::rpc::outgoing::{Callee, Carrier, RPCBIND};
use crate::xdr::{Reader, Writer};

/// Bytes of a universal address, a network id or an owner's name.
pub const STRING_MAX: usize = 256;

/// The network id of a carrier (RFC 5665 section 4).
pub fn netid(ip: IpAddr, carrier: Carrier) -> &'static str {
    match (ip, carrier) {
        (IpAddr::V4(_), Carrier::Stream) => "tcp",
        (IpAddr::V4(_), Carrier::Datagrams) => "udp",
        (IpAddr::V6(_), Carrier::Stream) => "tcp6",
        (IpAddr::V6(_), Carrier::Datagrams) => "udp6",
    }
}

/// A universal address (RFC 5665 section 5.2): the two bytes of the port stand behind the host's address.
pub fn universal(at: SocketAddr) -> String {
    let [high, low] = at.port().to_be_bytes();
    format!("{}.{high}.{low}", at.ip())
}

/// Reads a universal address.
pub fn parse(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let (rest, low) = text.rsplit_once('.')?;
    let (ip, high) = rest.rsplit_once('.')?;
    let port = u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?]);
    Some(SocketAddr::new(ip.parse().ok()?, port))
}

/// The question where a program of a host is: by version 2, which knows IPv4 alone and which everybody speaks, or by version 4.
pub(crate) fn question(ip: IpAddr, callee: Callee, carrier: Carrier) -> (Callee, Vec<u8>) {
    let mut w = Writer::new();
    w.u32(callee.program);
    w.u32(callee.version);
    let (version, procedure) = match ip {
        IpAddr::V4(_) => {
            w.u32(if carrier == Carrier::Stream { TCP } else { UDP });
            w.u32(0);
            (2, GETPORT)
        }
        IpAddr::V6(_) => {
            w.opaque(netid(ip, carrier).as_bytes());
            w.opaque(universal(SocketAddr::new(ip, 0)).as_bytes());
            w.opaque(b"");
            (4, GETADDR)
        }
    };
    (Callee { program: RPCBIND, version, procedure }, w.into_reply().head)
}

/// The port in the answer; `None` when the program is not there.
pub(crate) fn port_in_answer(ip: IpAddr, answer: &Buf) -> Option<u16> {
    let mut r = Reader::new(answer, &[]);
    let port = match ip {
        IpAddr::V4(_) => u16::try_from(r.u32().ok()?).ok()?,
        IpAddr::V6(_) => parse(r.opaque(STRING_MAX).ok()?)?.port(),
    };
    (port != 0).then_some(port)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn universal_addresses_of_the_specification() {
        let at = |s: &str| s.parse::<SocketAddr>().unwrap();
        assert_eq!(universal(at("10.77.0.1:2049")), "10.77.0.1.8.1");
        assert_eq!(universal(at("[fe80::1]:111")), "fe80::1.0.111");
        for wrong in ["", "1.2", "10.0.0.1.8", "10.0.0.1.8.256", "10.0.0.1.-1.1", "x.8.1"] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(parse(b"\xff.8.1"), None);
    }

    #[test]
    fn a_program_that_is_not_there_has_port_zero_or_no_address() {
        let answer = |bytes: &[u8]| Buf::from(bytes.to_vec());
        let (v4, v6) = (IpAddr::from([10, 0, 0, 1]), "::1".parse().unwrap());
        assert_eq!(port_in_answer(v4, &answer(&[0, 0, 8, 1])), Some(2049));
        assert_eq!(port_in_answer(v4, &answer(&[0, 0, 0, 0])), None);
        assert_eq!(port_in_answer(v4, &answer(&[0, 1, 0, 0])), None);
        assert_eq!(port_in_answer(v4, &answer(&[])), None);
        assert_eq!(port_in_answer(v6, &answer(b"\0\0\0\x07::1.8.1\0")), Some(2049));
        assert_eq!(port_in_answer(v6, &answer(&[0, 0, 0, 0])), None);
    }

    proptest! {
        #[test]
        fn every_address_is_read_as_it_was_written(ip in any::<IpAddr>(), port in any::<u16>()) {
            let at = SocketAddr::new(ip, port);
            prop_assert_eq!(parse(universal(at).as_bytes()), Some(at));
        }
    }
}
