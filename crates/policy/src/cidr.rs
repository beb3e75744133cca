//! Address ranges.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// An address range in CIDR form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// An address in the range.
    pub addr: IpAddr,
    /// Length of the prefix in bits.
    pub bits: u8,
}

impl Cidr {
    /// Returns the range of this prefix length that contains an address.
    pub fn around(addr: IpAddr, bits: u8) -> Self {
        let cut = u32::from(bits);
        let first = match addr {
            IpAddr::V4(a) => {
                let keep = u32::MAX.checked_shl(32 - cut.min(32)).unwrap_or(0);
                IpAddr::V4((a.to_bits() & keep).into())
            }
            IpAddr::V6(a) => {
                let keep = u128::MAX.checked_shl(128 - cut.min(128)).unwrap_or(0);
                IpAddr::V6((a.to_bits() & keep).into())
            }
        };
        Self { addr: first, bits }
    }

    /// Checks that this range contains every address of the other.
    pub fn covers(&self, other: &Self) -> bool {
        self.bits <= other.bits && self.contains(other.addr)
    }

    /// Checks whether the address is in the range. Treats IPv4-mapped IPv6 addresses as IPv4.
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

impl FromStr for Cidr {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (addr, bits) = match text.split_once('/') {
            Some((addr, bits)) => (addr, Some(bits)),
            None => (text, None),
        };
        let addr: IpAddr = addr.parse().map_err(|_| {
            format!(
                "`{text}` is not a range of addresses; write one like `10.0.0.0/8` or `fd00::/8`"
            )
        })?;
        let most = if addr.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => bits.parse().ok().filter(|b| *b <= most).ok_or_else(|| {
                match bits.parse().ok().and_then(length_of_mask) {
                    Some(length) => format!("`{text}` has a mask; write `{addr}/{length}`"),
                    None => {
                        format!("`{text}` has a prefix that is too long; the longest is /{most}")
                    }
                }
            })?,
        };
        // Treat IPv4-mapped IPv6 addresses as IPv4.
        let (addr, bits) = match (addr.to_canonical(), bits) {
            (v4 @ IpAddr::V4(_), 96..) if addr.is_ipv6() => (v4, bits - 96),
            _ => (addr, bits),
        };
        let range = Self::around(addr, bits);
        if range.addr != addr {
            return Err(format!("`{text}` names a host inside a range; write `{range}`"));
        }
        Ok(range)
    }
}

/// Returns the length of the prefix that a mask selects: 24 for 255.255.255.0.
fn length_of_mask(mask: Ipv4Addr) -> Option<u32> {
    let bits = mask.to_bits();
    (bits.leading_ones() + bits.trailing_zeros() == 32).then(|| bits.leading_ones())
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contains_compares_prefix_bits() {
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

    #[test]
    fn address_ranges_parse() {
        assert_eq!("10.0.0.0/8".parse(), Ok(Cidr { addr: [10, 0, 0, 0].into(), bits: 8 }));
        assert_eq!("::/0".parse::<Cidr>().unwrap().to_string(), "::/0");
        assert_eq!("192.0.2.7".parse::<Cidr>().unwrap().to_string(), "192.0.2.7/32");
        assert_eq!(
            "10.1.2.3/8".parse::<Cidr>().unwrap_err(),
            "`10.1.2.3/8` names a host inside a range; write `10.0.0.0/8`"
        );
        assert_eq!(
            "10.0.0.0/33".parse::<Cidr>().unwrap_err(),
            "`10.0.0.0/33` has a prefix that is too long; the longest is /32"
        );
        assert_eq!(
            "10.0.0.0/255.255.255.0".parse::<Cidr>().unwrap_err(),
            "`10.0.0.0/255.255.255.0` has a mask; write `10.0.0.0/24`"
        );
        for text in ["", "/", "ten", "10.0.0/8", "10.0.0.0/-1", "10.0.0.0/", "fd00::/129"] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
    }

    #[test]
    fn range_covers_its_subranges() {
        let c = |s: &str| s.parse::<Cidr>().unwrap();
        assert!(c("10.0.0.0/8").covers(&c("10.1.0.0/16")) && c("::/0").covers(&c("fd00::/8")));
        assert!(!c("10.1.0.0/16").covers(&c("10.0.0.0/8")), "wider");
        assert!(!c("10.0.0.0/8").covers(&c("11.0.0.0/8")), "beside it");
        assert!(!c("0.0.0.0/0").covers(&c("fd00::/8")), "of the other version");
        let around = |ip: &str, bits| Cidr::around(ip.parse().unwrap(), bits).to_string();
        assert_eq!(around("192.0.2.77", 26), "192.0.2.64/26");
        assert_eq!(around("192.0.2.77", 0), "0.0.0.0/0");
        assert_eq!(around("fd00::77", 128), "fd00::77/128");
    }
}
