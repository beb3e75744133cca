//! Makes the verifier of an exclusive create unique to its client.

use std::hash::Hasher;
use std::net::IpAddr;

use siphasher::sip::SipHasher13;

/// Returns the verifier combined with the client's name (version 4) or address (version 3). Clients that booted at the same moment
/// send equal verifiers (Linux uses time since boot and the process id), and each would mistake the other's file for its own.
pub(crate) fn of_client(verifier: &[u8; 8], name: &[u8]) -> [u8; 8] {
    // The hash has a fixed key: the result must be the same after a restart, and a client gains no advantage by predicting it.
    let mut hash = SipHasher13::new();
    hash.write(verifier);
    hash.write(name);
    hash.finish().to_be_bytes()
}

/// Combines the verifier with the address of a version 3 client.
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
    fn equal_verifiers_of_two_clients_differ() {
        let v = [7; 8];
        assert_eq!(of_client(&v, b"a"), of_client(&v, b"a"));
        assert_ne!(of_client(&v, b"a"), of_client(&v, b"b"));
        assert_ne!(of_client(&v, b"a"), of_client(&[8; 8], b"a"));
    }

    #[test]
    fn mapped_and_plain_address_are_equal() {
        let v = [7; 8];
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(of_address(&v, ip("10.0.0.1")), of_address(&v, ip("::ffff:10.0.0.1")));
        assert_ne!(of_address(&v, ip("10.0.0.1")), of_address(&v, ip("10.0.0.2")));
    }
}
