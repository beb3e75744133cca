//! The verifier of an exclusive create, as no other client has it.

use std::hash::Hasher;
use std::net::IpAddr;

use siphasher::sip::SipHasher13;

/// Clients that were started together make the same verifiers (Linux takes its clock since boot and the process id), and each
/// would take the other's file for its own. So the name of the client goes in: of version 4 its own, of version 3 its address.
pub(crate) fn of_client(verifier: &[u8; 8], name: &[u8]) -> [u8; 8] {
    // No key: it must be the same after a restart, and nobody gains by choosing it.
    let mut hash = SipHasher13::new();
    hash.write(verifier);
    hash.write(name);
    hash.finish().to_be_bytes()
}

/// For a client that is known by its address only.
pub(crate) fn of_address(verifier: &[u8; 8], peer: IpAddr) -> [u8; 8] {
    match peer.to_canonical() {
        IpAddr::V4(ip) => of_client(verifier, &ip.octets()),
        IpAddr::V6(ip) => of_client(verifier, &ip.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_verifier_of_two_clients_is_not_the_same() {
        let v = [7; 8];
        assert_eq!(of_client(&v, b"a"), of_client(&v, b"a"));
        assert_ne!(of_client(&v, b"a"), of_client(&v, b"b"));
        assert_ne!(of_client(&v, b"a"), of_client(&[8; 8], b"a"));
    }

    #[test]
    fn an_address_is_one_client_however_it_is_written() {
        let v = [7; 8];
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(of_address(&v, ip("10.0.0.1")), of_address(&v, ip("::ffff:10.0.0.1")));
        assert_ne!(of_address(&v, ip("10.0.0.1")), of_address(&v, ip("10.0.0.2")));
    }
}
