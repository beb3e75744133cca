//! Ranges of addresses.

use std::net::IpAddr;

/// A range of addresses in CIDR form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// An address of the range.
    pub addr: IpAddr,
    /// Leading bits that count.
    pub bits: u8,
}

impl Cidr {
    /// The address is in the range. An IPv4 address that came mapped into IPv6 counts as IPv4.
    pub fn contains(&self, ip: IpAddr) -> bool {
        fn same(a: &[u8], b: &[u8], bits: u8) -> bool {
            let (whole, rest) = (usize::from(bits / 8), bits % 8);
            let mask = !(0xff_u8.checked_shr(u32::from(rest)).unwrap_or(0));
            a.len() == b.len()
                && whole <= a.len()
                && a[..whole] == b[..whole]
                && (rest == 0 || whole < a.len() && a[whole] & mask == b[whole] & mask)
        }
        match (self.addr, ip.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(&a.octets(), &b.octets(), self.bits),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(&a.octets(), &b.octets(), self.bits),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_count_leading_bits() {
        let c = |s: &str, bits| Cidr { addr: s.parse().unwrap(), bits };
        let ip = |s: &str| s.parse::<IpAddr>().unwrap();
        assert!(c("10.1.2.3", 8).contains(ip("10.9.9.9")));
        assert!(!c("10.1.2.3", 8).contains(ip("11.0.0.1")));
        assert!(c("192.168.4.0", 22).contains(ip("192.168.7.255")));
        assert!(!c("192.168.4.0", 22).contains(ip("192.168.8.0")));
        assert!(c("0.0.0.0", 0).contains(ip("255.1.1.1")));
        assert!(!c("0.0.0.0", 0).contains(ip("::1")));
        assert!(c("10.0.0.1", 32).contains(ip("::ffff:10.0.0.1")));
        assert!(!c("10.0.0.1", 200).contains(ip("10.0.0.1")));
    }
}
