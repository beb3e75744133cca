//! Finds other machines with the same address: ARP probes (RFC 5227 section 2.1.1) and neighbour solicitations of duplicate address
//! detection (RFC 4862 section 5.4).
//!
//! *Operation.* Sends probes at intervals of [`PAUSE`]; a machine with the address usually replies within a millisecond. Runs in
//! parallel with the start of the gateway, so a takeover takes longer only if that start is shorter than [`LISTEN`].
//!
//! *Errors.* If a device does not support probes (not Ethernet), this is logged and the address is used.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use pnet_datalink::{Channel, Config, NetworkInterface};

use crate::announce::{Mac, TO_ALL, icmp_frame, interface};

/// Interval of probes.
const PAUSE: Duration = Duration::from_millis(80);
/// Time to wait for replies, from the first probe.
const LISTEN: Duration = Duration::from_millis(250);

/// Returns the hardware address of another machine with this address; `None` if there is no reply. Blocks for [`LISTEN`].
///
/// # Errors
///
/// The device does not support probes.
pub(crate) fn other_owner(ip: IpAddr, device: &str) -> io::Result<Option<Mac>> {
    let (device, mac) = interface(device)?;
    let probe = match ip {
        IpAddr::V4(ip) => arp_probe(mac, ip).to_vec(),
        IpAddr::V6(ip) => solicitation(mac, ip),
    };
    let own: Vec<Mac> =
        pnet_datalink::interfaces().iter().filter_map(|it| Some(it.mac?.octets())).collect();
    ask(&device, &probe, |frame| answer(frame, ip).filter(|other| !own.contains(other)))
}

fn ask(
    device: &NetworkInterface,
    probe: &[u8],
    answer: impl Fn(&[u8]) -> Option<Mac>,
) -> io::Result<Option<Mac>> {
    let config = Config { read_timeout: Some(PAUSE / 4), ..Config::default() };
    let Channel::Ethernet(mut sender, mut frames) = pnet_datalink::channel(device, config)? else {
        return Err(io::Error::other("it is not an Ethernet device"));
    };
    let began = Instant::now();
    let mut due = Duration::ZERO;
    while began.elapsed() < LISTEN {
        if began.elapsed() >= due {
            due += PAUSE;
            sender.send_to(probe, None).unwrap_or(Ok(()))?;
        }
        match frames.next() {
            Ok(frame) => {
                if let Some(other) = answer(frame) {
                    return Ok(Some(other));
                }
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

/// Builds a request for an address, from a sender without an address.
fn arp_probe(mac: Mac, ip: Ipv4Addr) -> [u8; 42] {
    let mut frame = [0; 42];
    frame[..6].copy_from_slice(&TO_ALL);
    frame[6..12].copy_from_slice(&mac);
    // EtherType of ARP; hardware type Ethernet, protocol IPv4, their address lengths; a request.
    frame[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame[22..28].copy_from_slice(&mac);
    frame[38..42].copy_from_slice(&ip.octets());
    frame
}

/// Builds a neighbour solicitation for an address, from a sender without an address (RFC 4861 section 4.3).
fn solicitation(mac: Mac, ip: Ipv6Addr) -> Vec<u8> {
    const SOLICITATION: u8 = 135;
    let last = &ip.octets()[13..];
    let to: Ipv6Addr = {
        let mut to = [0; 16];
        to[..13].copy_from_slice(&[0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff]);
        to[13..].copy_from_slice(last);
        to.into()
    };
    let group = [0x33, 0x33, 0xff, last[0], last[1], last[2]];
    let message = [&[SOLICITATION, 0, 0, 0, 0, 0, 0, 0][..], &ip.octets()].concat();
    icmp_frame((mac, group), (Ipv6Addr::UNSPECIFIED, to), &message)
}

/// Returns the sender of a frame that claims this address.
fn answer(frame: &[u8], ip: IpAddr) -> Option<Mac> {
    const ARP: [u8; 2] = [8, 6];
    const IPV6: [u8; 2] = [0x86, 0xdd];
    const ADVERTISEMENT: u8 = 136;
    let says = match ip {
        // The sender uses the address, whatever the operation.
        IpAddr::V4(ip) => frame.get(12..14)? == ARP && frame.get(28..32)? == ip.octets(),
        IpAddr::V6(ip) => {
            frame.get(12..14)? == IPV6
                && *frame.get(20)? == 58
                && *frame.get(54)? == ADVERTISEMENT
                && frame.get(62..78)? == ip.octets()
        }
    };
    if !says {
        return None;
    }
    frame.get(6..12)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::announce::{advertisement, arp_announcement, internet_checksum};

    const MAC: Mac = [2, 0, 0, 0, 0, 0xa];
    const OTHER: Mac = [2, 0, 0, 0, 0, 0xb];

    #[test]
    fn probe_has_no_sender_address() {
        let frame = arp_probe(MAC, Ipv4Addr::new(192, 0, 2, 10));
        assert_eq!((&frame[28..32], &frame[38..]), (&[0; 4][..], &[192, 0, 2, 10][..]));
        assert_eq!(answer(&frame, "192.0.2.10".parse().unwrap()), None, "a probe is no answer");
        assert_eq!(answer(&frame, "0.0.0.0".parse().unwrap()), Some(MAC));
        let frame = solicitation(MAC, "2001:db8::1:2:3".parse().unwrap());
        assert_eq!(frame[..6], [0x33, 0x33, 0xff, 2, 0, 3]);
        assert_eq!((frame[21], frame[54], frame.len()), (255, 135, 78));
        assert_eq!(internet_checksum(&[&frame[22..], &[0, 24, 0, 58]]), 0);
    }

    #[test]
    fn claiming_frame_names_other_owner() {
        let ip: Ipv4Addr = "192.0.2.10".parse().unwrap();
        let frame = arp_announcement(OTHER, ip, 2);
        assert_eq!(answer(&frame, ip.into()), Some(OTHER));
        assert_eq!(answer(&frame, "192.0.2.11".parse().unwrap()), None);
        let ip: Ipv6Addr = "2001:db8::10".parse().unwrap();
        let frame = advertisement(OTHER, ip);
        assert_eq!(answer(&frame, ip.into()), Some(OTHER));
        assert_eq!(answer(&frame, "2001:db8::11".parse().unwrap()), None);
        for cut in 0..frame.len() - 8 {
            assert_eq!(answer(&frame[..cut], ip.into()), None, "cut at {cut}");
        }
    }
}
