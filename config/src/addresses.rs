//! Addresses of this host, and ranges of those of clients.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::reader::shown;

/// One address to bind. Names are not looked up: what they mean changes, and finding out may take long.
pub fn address(text: &str) -> Result<IpAddr, String> {
    // One of IPv4 in IPv6's clothes is IPv4's: nobody shows it otherwise.
    text.parse().map(|ip: IpAddr| ip.to_canonical()).map_err(|_| {
        let text = shown(text);
        let in_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if text.chars().all(in_name) && text.contains(|c: char| c.is_ascii_alphabetic()) {
            format!(
                "`{text}` is a name; write an address of this host, like `192.0.2.1` (`getent ahosts {text}` shows its own)"
            )
        } else {
            format!("`{text}` is not an address of this host; write one like `192.0.2.1`")
        }
    })
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// First address of the range.
    pub addr: IpAddr,
    /// Leading bits that count.
    pub bits: u8,
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
                format!("`{text}` has a prefix that is too long; the longest is /{most}")
            })?,
        };
        // As above.
        let (addr, bits) = match (addr.to_canonical(), bits) {
            (v4 @ IpAddr::V4(_), 96..) if addr.is_ipv6() => (v4, bits - 96),
            _ => (addr, bits),
        };
        let first = first_of(addr, bits);
        if first != addr {
            return Err(format!("`{text}` names a host inside a range; write `{first}/{bits}`"));
        }
        Ok(Self { addr, bits })
    }
}

/// The first address of the range that `addr` is in.
fn first_of(addr: IpAddr, bits: u8) -> IpAddr {
    let bits = u32::from(bits);
    match addr {
        IpAddr::V4(a) => {
            let keep = u32::MAX.checked_shl(32 - bits.min(32)).unwrap_or(0);
            IpAddr::V4((a.to_bits() & keep).into())
        }
        IpAddr::V6(a) => {
            let keep = u128::MAX.checked_shl(128 - bits.min(128)).unwrap_or(0);
            IpAddr::V6((a.to_bits() & keep).into())
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.bits)
    }
}
