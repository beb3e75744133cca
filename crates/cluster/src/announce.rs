//! Announces the new location of an address to the network: ARP (RFC 826, RFC 5227 section 3) and neighbour advertisements (RFC
//! 4861 section 7.2.6).
//!
//! Otherwise neighbours keep sending to the previous node as long as their cached entry seems to work, which can take minutes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pnet_datalink::{Channel, Config, NetworkInterface};

/// An Ethernet hardware address.
pub(crate) type Mac = [u8; 6];

/// Finds a network device by name, and its hardware address.
pub(crate) fn interface(device: &str) -> io::Result<(NetworkInterface, Mac)> {
    let is_it = |interface: &NetworkInterface| interface.name == device;
    let interface = pnet_datalink::interfaces()
        .into_iter()
        .find(is_it)
        .ok_or_else(|| io::Error::other(format!("there is no device {device}")))?;
    let mac = interface.mac.map(|mac| mac.octets());
    let mac = mac.ok_or_else(|| io::Error::other(format!("{device} has no hardware address")))?;
    Ok((interface, mac))
}

/// Announces that the address is on this device. Sends both an ARP request and a reply, because some hosts process only one of
/// them.
pub(crate) fn announce(ip: IpAddr, device: &str) -> io::Result<()> {
    let (interface, mac) = interface(device)?;
    let frames = match ip {
        IpAddr::V4(ip) => [REQUEST, REPLY].map(|it| arp_announcement(mac, ip, it).to_vec()).into(),
        IpAddr::V6(ip) => vec![advertisement(mac, ip)],
    };
    let Channel::Ethernet(mut sender, _) = pnet_datalink::channel(&interface, Config::default())?
    else {
        return Err(io::Error::other(format!("{device} is no Ethernet")));
    };
    for frame in frames {
        sender.send_to(&frame, None).unwrap_or(Ok(()))?;
    }
    Ok(())
}

const REQUEST: u16 = 1;
const REPLY: u16 = 2;
pub(crate) const TO_ALL: Mac = [0xff; 6];

/// Builds an ARP packet whose sender and target are the address itself.
pub(crate) fn arp_announcement(mac: Mac, ip: Ipv4Addr, operation: u16) -> [u8; 42] {
    let mut frame = [0; 42];
    frame[..6].copy_from_slice(&TO_ALL);
    frame[6..12].copy_from_slice(&mac);
    // EtherType of ARP; hardware type Ethernet, protocol IPv4, their address lengths.
    frame[12..20].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4]);
    frame[20..22].copy_from_slice(&operation.to_be_bytes());
    frame[22..28].copy_from_slice(&mac);
    frame[28..32].copy_from_slice(&ip.octets());
    if operation == REPLY {
        frame[32..38].copy_from_slice(&TO_ALL);
    }
    frame[38..42].copy_from_slice(&ip.octets());
    frame
}

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Protocol number of ICMPv6 in the IPv6 header.
const ICMPV6: u8 = 58;
/// Builds an unsolicited neighbour advertisement with the override flag.
pub(crate) fn advertisement(mac: Mac, ip: Ipv6Addr) -> Vec<u8> {
    const ADVERTISEMENT: u8 = 136;
    const OVERRIDE: u8 = 0x20;
    let head = [ADVERTISEMENT, 0, 0, 0, OVERRIDE, 0, 0, 0];
    // Option: target link-layer address, length in units of eight bytes.
    let message = [&head[..], &ip.octets(), &[2, 1], &mac].concat();
    // The multicast address of all nodes (RFC 2464 section 7).
    icmp_frame((mac, [0x33, 0x33, 0, 0, 0, 1]), (ip, ALL_NODES), &message)
}

/// Builds a frame with an ICMPv6 message and fills in its checksum. `ends`: sender and receiver.
pub(crate) fn icmp_frame(
    (from_mac, to_mac): (Mac, Mac),
    (from, to): (Ipv6Addr, Ipv6Addr),
    message: &[u8],
) -> Vec<u8> {
    let len = u8::try_from(message.len()).unwrap_or(0);
    let mut frame = [&to_mac[..], &from_mac, &[0x86, 0xdd, 0x60, 0, 0, 0]].concat();
    // Payload length, next header, and the hop limit that RFC 4861 section 7.1.2 requires.
    frame.extend_from_slice(&[0, len, ICMPV6, 255]);
    for ip in [from, to] {
        frame.extend_from_slice(&ip.octets());
    }
    frame.extend_from_slice(message);
    // The checksum covers the pseudo-header (RFC 8200 section 8.1); the checksum field is zero.
    let sum = internet_checksum(&[&frame[22..], &[0, len, 0, ICMPV6]]);
    frame[56..58].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Computes the checksum of IP, TCP and ICMP (RFC 1071) over pieces of even length.
pub(crate) fn internet_checksum(pieces: &[&[u8]]) -> u16 {
    let words = pieces.iter().flat_map(|piece| piece.chunks_exact(2));
    let mut sum: u32 = words.map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = [2, 0, 0, 0, 0, 0xa];

    #[test]
    fn arp_announcement_has_equal_addresses() {
        let frame = arp_announcement(MAC, Ipv4Addr::new(192, 0, 2, 10), REQUEST);
        assert_eq!(
            frame,
            [
                0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 0xa, 8, 6, 0, 1, 8, 0, 6, 4, 0,
                1, 2, 0, 0, 0, 0, 0xa, 192, 0, 2, 10, 0, 0, 0, 0, 0, 0, 192, 0, 2, 10,
            ]
        );
        let reply = arp_announcement(MAC, Ipv4Addr::new(192, 0, 2, 10), REPLY);
        assert_eq!((reply[21], &reply[32..38]), (2, &TO_ALL[..]));
    }

    #[test]
    fn advertisement_has_valid_checksum() {
        let ip: Ipv6Addr = "2001:db8::10".parse().unwrap();
        let frame = advertisement(MAC, ip);
        assert_eq!((frame[54], frame[21], frame[58]), (136, 255, 0x20));
        // The checksum over the frame including its checksum field is zero.
        assert_eq!(internet_checksum(&[&frame[22..], &[0, 32, 0, 58]]), 0);
        assert_eq!(&frame[62..78], &ip.octets());
    }
}
