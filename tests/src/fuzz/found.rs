//! Packets by which hosts look for others: mDNS and LLMNR, and WS-Discovery.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use discovery::dice::Dice;
use discovery::guard::reply_max;
use discovery::links::{Macos, Offer};
use discovery::mdns::{Out, Responder, To};
use discovery::name::HostName;
use discovery::wsd::{Device, request};
use discovery::{Identity, dns, llmnr};

const ASKING: ([u8; 4], u16) = ([192, 0, 2, 9], 40_000);

fn offer() -> Offer {
    let addresses =
        vec![IpAddr::from([192, 0, 2, 7]), IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 7])];
    Offer {
        addresses,
        smb: Some(445),
        nfs: Some(2049),
        macos: Macos::new("RackMac", ["backups", "more"].into_iter()),
    }
}

/// A link on which the gateway has announced itself gets two packets, from a simple resolver and from another responder; the first
/// byte chooses where they are cut.
pub fn discovery_dns(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else { return };
    let mut now = Instant::now();
    let (name, own) = (HostName::of("gw"), offer().addresses);
    let mut host = Responder::new(name, offer(), own, now, Dice::seeded(1));
    while let Some(wake) = host.wake() {
        now = wake;
        host.tick(now);
    }
    let (first, second) = data.split_at(data.len().min(usize::from(*cut) * 4));
    for (bytes, from) in
        [(first, SocketAddr::from(ASKING)), (second, SocketAddr::from((ASKING.0, 5353)))]
    {
        let mut shown = bytes.to_vec();
        discovery::unread::hide(&mut shown);
        let Ok(packet) = dns::parse(&shown) else { continue };
        let small = |out: &Out| match out.to {
            To::Host(_) => out.bytes.len() <= reply_max(bytes.len()),
            To::Group(_) => out.bytes.len() <= 1440,
        };
        assert!(host.receive(now, &packet, bytes.len(), from).iter().all(small));
        now += Duration::from_secs(1);
        assert!(host.tick(now).iter().all(small));
        if let Some(reply) = llmnr::answer("gw", &offer(), &packet, bytes.len()) {
            assert!(reply.len() <= reply_max(bytes.len()) && dns::parse(&reply).is_ok());
        }
    }
}

/// Any text is read or refused, and an answer is small beside it.
pub fn discovery_wsd(data: &[u8]) {
    let Ok(request) = request::parse(data) else { return };
    let mut device = Device::new(&Identity { name: HostName::of("gw"), id: [7; 16], instance: 1 });
    if let Some(answer) = device.answer(&request, data.len(), [192, 0, 2, 7].into()) {
        assert!(answer.len() <= reply_max(data.len()));
        assert!(request::parse(answer.as_bytes()).is_ok());
    }
    if let Some(metadata) = device.metadata(&request) {
        assert!(request::parse(metadata.as_bytes()).is_ok());
    }
}

/// Questions for a name and for services, a probe, and a response.
pub(super) fn dns_seeds() -> Vec<Vec<u8>> {
    let names = [&b"\x02gw\x05local\0"[..], b"\x04_smb\x04_tcp\x05local\0", b"\x02gw\0"];
    let question = |name: &[u8], kind: u8| [name, &[0, kind, 0, 1]].concat();
    let head = |flags: u8, counts: [u8; 4]| {
        let counts = counts.into_iter().flat_map(|n| [0, n]);
        [0, 7, flags, 0].into_iter().chain(counts).collect::<Vec<u8>>()
    };
    let asked =
        |name: &[u8], kind| [vec![255], head(0, [1, 0, 0, 0]), question(name, kind)].concat();
    let address = [names[0], &[0, 1, 0, 1, 0, 0, 0, 120, 0, 4, 192, 0, 2, 99]].concat();
    let mut all =
        vec![asked(names[0], 1), asked(names[0], 28), asked(names[1], 12), asked(names[2], 255)];
    all.push([vec![0], head(0x84, [0, 1, 0, 0]), address.clone()].concat());
    all.push([vec![0], head(0, [1, 0, 1, 0]), question(names[0], 255), address].concat());
    all
}

/// A Probe, a Resolve and a Get.
pub(super) fn wsd_seeds() -> Vec<Vec<u8>> {
    let uuid = "urn:uuid:07070707-0707-4707-8707-070707070707";
    let discovery = "http://schemas.xmlsoap.org/ws/2005/04/discovery";
    let message = |to: &str, action: &str, body: &str| {
        format!(
            "<?xml version=\"1.0\"?><s:Envelope xmlns:s=\"http://www.w3.org/2003/05/soap-envelope\" \
             xmlns:a=\"http://schemas.xmlsoap.org/ws/2004/08/addressing\" xmlns:d=\"{discovery}\" \
             xmlns:p=\"http://schemas.xmlsoap.org/ws/2006/02/devprof\"><s:Header><a:To>{to}</a:To><a:Action>{action}</a:Action>\
             <a:MessageID>urn:uuid:1&#x41;</a:MessageID></s:Header><s:Body>{body}</s:Body></s:Envelope>"
        )
        .into_bytes()
    };
    let endpoint =
        format!("<a:EndpointReference><a:Address>{uuid}</a:Address></a:EndpointReference>");
    vec![
        message(
            "urn:all",
            &format!("{discovery}/Probe"),
            "<d:Probe><d:Types>p:Device</d:Types></d:Probe>",
        ),
        message(
            "urn:all",
            &format!("{discovery}/Resolve"),
            &format!("<d:Resolve>{endpoint}</d:Resolve>"),
        ),
        message(uuid, "http://schemas.xmlsoap.org/ws/2004/09/transfer/Get", ""),
    ]
}
