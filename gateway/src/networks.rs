//! The networks that this host is attached to, as the kernel's tables show them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use vfs::namespace::Cidr;

/// The networks of all interfaces now. What cannot be read counts as none.
pub fn attached() -> Vec<Cidr> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let mut out = routes(&read("/proc/self/net/route"));
    out.extend(addresses6(&read("/proc/self/net/if_inet6")));
    out
}

/// IPv4 routes without a gateway, from the text of `/proc/net/route`: the numbers are in the machine's byte order.
fn routes(text: &str) -> Vec<Cidr> {
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let word = |i: usize| {
            let hex = fields.get(i)?;
            u32::from_str_radix(hex, 16).ok().map(u32::to_ne_bytes)
        };
        let (network, gateway, mask) = (word(1)?, word(2)?, word(7)?);
        let bits = u8::try_from(u32::from_be_bytes(mask).count_ones()).ok()?;
        // A default route without a gateway (a tunnel) attaches nobody.
        (gateway == [0; 4] && bits > 0)
            .then(|| Cidr { addr: IpAddr::V4(Ipv4Addr::from(network)), bits })
    };
    text.lines().skip(1).filter_map(parse).collect()
}

/// IPv6 addresses with the length of their network's prefix, from the text of `/proc/net/if_inet6`.
fn addresses6(text: &str) -> Vec<Cidr> {
    let parse = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let addr = u128::from_str_radix(fields.next()?, 16).ok()?;
        let bits = u8::from_str_radix(fields.nth(1)?, 16).ok()?;
        (bits > 0).then(|| Cidr { addr: IpAddr::V6(Ipv6Addr::from(addr)), bits })
    };
    text.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_without_a_gateway_are_attached_networks() {
        // As a little-endian machine shows them.
        let text = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n\
            eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\n\
            eth0\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\n\
            tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\n\
            tap0\t00004D0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\nbroken\n";
        if cfg!(target_endian = "big") {
            return;
        }
        let networks = routes(text);
        assert_eq!(networks.len(), 2);
        assert!(networks[0].contains("192.168.0.77".parse().unwrap()));
        assert!(networks[1].contains("10.77.0.2".parse().unwrap()));
        assert!(!networks[1].contains("10.78.0.2".parse().unwrap()));
    }

    #[test]
    fn addresses_of_version_6_bring_their_prefix() {
        let text = "00000000000000000000000000000001 01 80 10 80 lo\n\
            fd000000000000000000000000000005 02 40 00 80 eth0\n";
        let networks = addresses6(text);
        assert_eq!(networks.len(), 2);
        assert!(networks[1].contains("fd00::99".parse().unwrap()));
        assert!(!networks[1].contains("fd00:0:0:1::99".parse().unwrap()));
        assert!(!networks[0].contains("::2".parse().unwrap()));
    }
}
