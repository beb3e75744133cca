//! Tells the neighbours of a network where an address is now: ARP (RFC 826, RFC 5227 section 3) and neighbour advertisements
//! (RFC 4861 section 7.2.6).
//!
//! Without it a neighbour sends to the node before for as long as its own entry seems to work: minutes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pnet_datalink::{Channel, Config, NetworkInterface};

type Mac = [u8; 6];

/// Announces that the address is at this device. Sent twice: a request and a reply of ARP, since some hosts hear one of them only.
pub(crate) fn announce(ip: IpAddr, device: &str) -> io::Result<()> {
    let is_it = |interface: &NetworkInterface| interface.name == device;
    let interface = pnet_datalink::interfaces()
        .into_iter()
        .find(is_it)
        .ok_or_else(|| io::Error::other(format!("there is no device {device}")))?;
    let Some(mac) = interface.mac.map(|mac| mac.octets()) else {
        return Err(io::Error::other(format!("{device} has no hardware address")));
    };
    let frames = match ip {
        IpAddr::V4(ip) => vec![arp(mac, ip, REQUEST).to_vec(), arp(mac, ip, REPLY).to_vec()],
        IpAddr::V6(ip) => vec![advertisement(mac, ip).to_vec()],
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
const TO_ALL: Mac = [0xff; 6];

/// An ARP packet whose sender and target are the address itself.
fn arp(mac: Mac, ip: Ipv4Addr, operation: u16) -> [u8; 42] {
    let mut frame = [0; 42];
    frame[..6].copy_from_slice(&TO_ALL);
    frame[6..12].copy_from_slice(&mac);
    // Ethernet type of ARP; hardware type Ethernet, protocol IPv4, their lengths.
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
/// ICMPv6 in the IPv6 header.
const ICMPV6: u8 = 58;
/// Bytes of the advertisement with its option.
const ICMP_LEN: u8 = 32;

/// An unsolicited neighbour advertisement with the override flag.
fn advertisement(mac: Mac, ip: Ipv6Addr) -> [u8; 86] {
    let mut frame = [0; 86];
    // The multicast address of all nodes (RFC 2464 section 7).
    frame[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
    frame[6..12].copy_from_slice(&mac);
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    frame[14] = 0x60;
    // Payload length, next header, and the hop limit that RFC 4861 section 7.1.2 demands.
    frame[18..22].copy_from_slice(&[0, ICMP_LEN, ICMPV6, 255]);
    frame[22..38].copy_from_slice(&ip.octets());
    frame[38..54].copy_from_slice(&ALL_NODES.octets());
    // Neighbour advertisement; override, not solicited.
    frame[54] = 136;
    frame[58] = 0x20;
    frame[62..78].copy_from_slice(&ip.octets());
    // Option: target link-layer address, in units of eight bytes.
    frame[78..80].copy_from_slice(&[2, 1]);
    frame[80..86].copy_from_slice(&mac);
    let sum = icmp_checksum(&frame);
    frame[56..58].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Of the ICMPv6 message, with its pseudo-header (RFC 8200 section 8.1). The field itself is zero.
fn icmp_checksum(frame: &[u8; 86]) -> u16 {
    internet_checksum(&[&frame[22..], &[0, ICMP_LEN, 0, ICMPV6]])
}

/// The sum of IP, TCP and ICMP (RFC 1071) of pieces with even lengths.
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
    fn an_arp_announcement_names_the_address_as_sender_and_target() {
        let frame = arp(MAC, Ipv4Addr::new(192, 0, 2, 10), REQUEST);
        assert_eq!(
            frame,
            [
                0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 0xa, 8, 6, 0, 1, 8, 0, 6, 4, 0,
                1, 2, 0, 0, 0, 0, 0xa, 192, 0, 2, 10, 0, 0, 0, 0, 0, 0, 192, 0, 2, 10,
            ]
        );
        let reply = arp(MAC, Ipv4Addr::new(192, 0, 2, 10), REPLY);
        assert_eq!((reply[21], &reply[32..38]), (2, &TO_ALL[..]));
    }

    #[test]
    fn an_advertisement_has_a_sum_that_any_receiver_accepts() {
        let ip: Ipv6Addr = "2001:db8::10".parse().unwrap();
        let frame = advertisement(MAC, ip);
        assert_eq!((frame[54], frame[21], frame[58]), (136, 255, 0x20));
        // With the sum in place the whole comes to nothing.
        assert_eq!(icmp_checksum(&frame), 0);
        assert_eq!(&frame[62..78], &ip.octets());
    }
}
