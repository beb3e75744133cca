//! The state machine against packets as other hosts send them. [`Net`] is a link with a host of ours and a clock.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use simple_dns::rdata::{A, PTR, RData, SRV};
use simple_dns::{CLASS, Packet, PacketFlag, QCLASS, QTYPE, Question, ResourceRecord, TYPE};

use super::super::{Family, Out, To};
use super::Responder;
use crate::dice::Dice;
use crate::dns::{self, name};
use crate::guard::reply_max;
use crate::links::Offer;
use crate::name::HostName;

const OURS: &str = "192.0.2.7";
const PEER: &str = "192.0.2.9:5353";
const STUB: &str = "192.0.2.9:40000";

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn offer() -> Offer {
    let addresses = [OURS, "2001:db8::7"].map(|ip| ip.parse().unwrap()).into();
    Offer { addresses, smb: Some(445), nfs: Some(2049), ..Offer::default() }
}

struct Net {
    now: Instant,
    host: Responder,
}

/// A received message, as its lines `section name type ttl`.
fn lines(bytes: &[u8]) -> Vec<String> {
    let packet = dns::parse(bytes).unwrap();
    let line = |section: &str, r: &ResourceRecord<'_>| {
        let flush = if r.cache_flush { " flush" } else { "" };
        format!("{section} {} {:?} {}{flush}", r.name, r.rdata.type_code(), r.ttl)
    };
    let questions = packet.questions.iter().map(|q| format!("asks {} {:?}", q.qname, q.qtype));
    let answers = packet.answers.iter().map(|r| line("answer", r));
    let more = packet.additional_records.iter().map(|r| line("more", r));
    questions.chain(answers).chain(more).collect()
}

impl Net {
    fn new() -> Self {
        let now = Instant::now();
        let own = offer().addresses;
        let host = Responder::new(HostName::of("gw"), offer(), own, now, Dice::seeded(1));
        Self { now, host }
    }

    /// Returns a link on which the host has announced itself.
    fn settled() -> Self {
        let mut net = Self::new();
        net.pass(ms(40_000));
        assert_eq!(net.host.owned_label(), Some("gw"));
        net
    }

    /// Lets time pass; returns the messages sent over IPv4.
    fn pass(&mut self, time: Duration) -> Vec<Vec<u8>> {
        let until = self.now + time;
        let mut all = Vec::new();
        while let Some(wake) = self.host.wake().filter(|wake| *wake <= until) {
            self.now = self.now.max(wake);
            all.extend(self.host.tick(self.now));
        }
        self.now = until;
        all.into_iter().filter(|out| out.to == To::Group(Family::V4)).map(|out| out.bytes).collect()
    }

    fn send(&mut self, packet: &Packet<'_>, from: &str) -> Vec<Out> {
        let bytes = packet.build_bytes_vec_compressed().unwrap();
        let parsed = dns::parse(&bytes).unwrap();
        self.host.receive(self.now, &parsed, bytes.len(), from.parse().unwrap())
    }
}

fn query(of: &[(&'static str, TYPE)], unicast: bool) -> Packet<'static> {
    let mut packet = Packet::new_query(0);
    let question = |(asked, kind): &(&'static str, TYPE)| {
        Question::new(name(asked), QTYPE::TYPE(*kind), QCLASS::CLASS(CLASS::IN), unicast)
    };
    packet.questions = of.iter().map(question).collect();
    packet
}

fn a(of: &'static str, ip: &str) -> ResourceRecord<'static> {
    let IpAddr::V4(ip) = ip.parse().unwrap() else { panic!() };
    ResourceRecord::new(name(of), CLASS::IN, 120, RData::A(A { address: ip.to_bits() }))
}

fn response(records: Vec<ResourceRecord<'static>>) -> Packet<'static> {
    let mut packet = Packet::new_reply(0);
    packet.answers = records;
    packet
}

#[test]
fn a_name_is_probed_for_and_announced_twice() {
    let mut net = Net::new();
    let began = net.now;
    let mut probes = Vec::new();
    while net.host.owned_label().is_none() {
        probes.extend(net.pass(ms(1)));
    }
    let first = probes.pop().unwrap();
    assert_eq!(probes.len(), 3, "the last message is an announcement");
    assert!(net.now - began >= ms(750) && net.now - began <= ms(1001));
    let asked = lines(&probes[0]);
    for wanted in [
        "asks gw.local ANY",
        "asks gw.local TYPE(A)",
        "asks gw.local TYPE(AAAA)",
        "asks gw._smb._tcp.local ANY",
        "asks gw._nfs._tcp.local ANY",
    ] {
        assert!(asked.iter().any(|line| line == wanted), "{wanted} in {asked:?}");
    }
    let probe = dns::parse(&probes[0]).unwrap();
    assert!(!probe.name_servers.is_empty() && probe.questions.iter().all(|q| !q.unicast_response));
    assert_eq!(net.pass(ms(990)).len(), 0);
    assert_eq!(net.pass(ms(20)), std::slice::from_ref(&first), "a second later");
    let all = lines(&first);
    for wanted in [
        "answer gw.local A 120 flush",
        "answer gw.local AAAA 120 flush",
        "answer 7.2.0.192.in-addr.arpa PTR 120 flush",
        "answer _smb._tcp.local PTR 4500",
        "answer gw._smb._tcp.local SRV 120 flush",
        "answer gw._smb._tcp.local TXT 4500 flush",
        "answer _services._dns-sd._udp.local PTR 4500",
    ] {
        assert!(all.iter().any(|line| line == wanted), "{wanted} in {all:?}");
    }
    assert!(
        dns::parse(&first)
            .unwrap()
            .has_flags(PacketFlag::RESPONSE | PacketFlag::AUTHORITATIVE_ANSWER)
    );
    assert_eq!(net.pass(ms(600_000)).len(), 0);
}

#[test]
fn a_name_of_another_host_gets_a_number() {
    let mut net = Net::new();
    net.pass(ms(300));
    net.send(&response(vec![a("GW.local", "192.0.2.99")]), PEER);
    net.pass(ms(5000));
    assert_eq!((net.host.owned_label(), net.host.conflicts()), (Some("gw-2"), 1));
    let answers = net.send(&query(&[("gw-2.local", TYPE::A)], false), PEER);
    assert_eq!(lines(&answers[0].bytes)[0], "answer gw-2.local A 120 flush");
    assert_eq!(net.send(&query(&[("gw.local", TYPE::A)], false), PEER), []);
}

#[test]
fn a_later_conflict_is_probed_for_before_the_name_changes() {
    let mut net = Net::settled();
    net.send(&response(vec![a("gw.local", "192.0.2.99")]), PEER);
    assert_eq!(net.host.owned_label(), None);
    net.pass(ms(5000));
    assert_eq!(net.host.owned_label(), Some("gw"), "the other host did not answer");
}

#[test]
fn records_of_this_host_are_no_conflict() {
    let mut net = Net::new();
    net.pass(ms(300));
    net.send(&response(vec![a("gw.local", OURS)]), PEER);
    let mut gone = a("gw.local", "192.0.2.99");
    gone.ttl = 0;
    net.send(&response(vec![gone]), PEER);
    net.send(&response(vec![a("other.local", "192.0.2.99")]), PEER);
    // A response from another port is forged.
    net.send(&response(vec![a("gw.local", "192.0.2.99")]), STUB);
    net.pass(ms(5000));
    assert_eq!((net.host.owned_label(), net.host.conflicts()), (Some("gw"), 0));
}

#[test]
fn of_two_probes_the_later_records_win() {
    let probe = |ip: &str| {
        let mut probe = query(&[("gw.local", TYPE::A)], true);
        probe.name_servers.push(a("gw.local", ip));
        probe
    };
    for (theirs, waits) in [("192.0.2.1", false), ("192.0.2.200", true)] {
        let mut net = Net::new();
        net.pass(ms(260));
        net.send(&probe(theirs), PEER);
        net.pass(ms(1000));
        assert_eq!(net.host.owned_label().is_none(), waits, "{theirs}");
        net.pass(ms(1000));
        assert_eq!((net.host.owned_label(), net.host.conflicts()), (Some("gw"), 0));
    }
}

#[test]
fn conflicts_without_end_are_slow() {
    let mut net = Net::new();
    for _ in 0..60 {
        net.pass(ms(1000));
        let label = "gw.local";
        net.send(&response(vec![a(label, "192.0.2.99"), a("gw-2.local", "192.0.2.99")]), PEER);
        for n in 3..20 {
            let label: &'static str = format!("gw-{n}.local").leak();
            net.send(&response(vec![a(label, "192.0.2.99")]), PEER);
        }
    }
    assert!(net.host.conflicts() > 15);
    // Now each try waits for five seconds.
    net.send(
        &response(vec![a(format!("gw-{}.local", net.host.conflicts() + 1).leak(), "192.0.2.99")]),
        PEER,
    );
    let before = net.now;
    assert!(net.host.wake().is_none_or(|wake| wake >= before));
}

#[test]
fn services_are_found_with_all_that_belongs_to_them() {
    let mut net = Net::settled();
    assert_eq!(
        net.send(&query(&[("_smb._tcp.local", TYPE::PTR)], false), PEER),
        [],
        "others may answer too"
    );
    let answers = net.pass(ms(130));
    let all = lines(&answers[0]);
    assert_eq!(all[0], "answer _smb._tcp.local PTR 4500");
    for wanted in [
        "more gw._smb._tcp.local SRV 120 flush",
        "more gw._smb._tcp.local TXT 4500 flush",
        "more gw.local A 120 flush",
    ] {
        assert!(all.iter().any(|line| line == wanted), "{wanted} in {all:?}");
    }
    net.pass(ms(5000));
    net.send(&query(&[("_services._dns-sd._udp.local", TYPE::PTR)], false), PEER);
    let types = net.pass(ms(130));
    assert_eq!(lines(&types[0]).iter().filter(|line| line.starts_with("answer")).count(), 3);
}

#[test]
fn known_answers_are_left_out() {
    let mut net = Net::settled();
    let known = |ttl| {
        let mut known = query(&[("_smb._tcp.local", TYPE::PTR)], false);
        let ptr = RData::PTR(PTR(name("gw._smb._tcp.local")));
        known.answers.push(ResourceRecord::new(name("_smb._tcp.local"), CLASS::IN, ttl, ptr));
        known
    };
    net.send(&known(4000), PEER);
    assert_eq!(net.pass(ms(700)).len(), 0);
    net.send(&known(2000), PEER);
    assert_eq!(net.pass(ms(700)).len(), 1, "less than half of its time is left");
    // More known answers follow in another packet.
    net.pass(ms(5000));
    let mut first = query(&[("_smb._tcp.local", TYPE::PTR)], false);
    first.set_flags(PacketFlag::TRUNCATION);
    net.send(&first, PEER);
    let mut rest = known(4000);
    rest.questions.clear();
    net.pass(ms(100));
    net.send(&rest, "192.0.2.44:5353");
    net.send(&rest, PEER);
    assert_eq!(net.pass(ms(700)).len(), 0);
}

#[test]
fn a_storm_of_questions_has_one_answer_in_a_second() {
    let mut net = Net::settled();
    let mut answers = 0;
    for n in 0..1000 {
        let from = format!("192.0.2.{}:5353", 10 + n % 200);
        let out = net
            .send(&query(&[("gw.local", TYPE::A), ("_smb._tcp.local", TYPE::PTR)], false), &from);
        answers += out.len() + net.pass(ms(2)).len();
    }
    assert!((2..=6).contains(&answers), "{answers} in two seconds");
}

#[test]
fn a_simple_resolver_gets_its_own_reply() {
    let mut net = Net::settled();
    let mut asked = query(&[("gw.local", TYPE::A)], false);
    asked.set_id(4711);
    let out = net.send(&asked, STUB);
    assert_eq!(out[0].to, To::Host(STUB.parse().unwrap()));
    let reply = dns::parse(&out[0].bytes).unwrap();
    assert_eq!((reply.id(), reply.questions.len(), reply.answers.len()), (4711, 1, 1));
    assert!(reply.answers.iter().all(|r| r.ttl <= 10 && !r.cache_flush));
}

#[test]
fn one_host_that_asks_for_it_gets_a_reply_while_others_know() {
    let mut net = Net::settled();
    let asked = query(&[("gw.local", TYPE::A)], true);
    let first = net.send(&asked, PEER);
    assert_eq!(first[0].to, To::Group(Family::V4), "not multicast for a while");
    let second = net.send(&asked, PEER);
    assert_eq!(second[0].to, To::Host(PEER.parse().unwrap()));
}

#[test]
fn a_type_that_the_host_does_not_have_is_denied() {
    let mut net = Net::settled();
    let four = Offer { addresses: vec![OURS.parse().unwrap()], ..offer() };
    net.host.offer(four.clone(), four.addresses, net.now);
    net.pass(ms(5000));
    let out = net.send(&query(&[("gw.local", TYPE::AAAA)], false), PEER);
    assert_eq!(lines(&out[0].bytes)[0], "answer gw.local NSEC 120 flush");
    assert_eq!(net.send(&query(&[("gw.local", TYPE::MX)], false), PEER), []);
}

#[test]
fn what_goes_is_withdrawn() {
    let mut net = Net::settled();
    let less = Offer { nfs: None, addresses: vec![OURS.parse().unwrap()], ..offer() };
    let out = net.host.offer(less.clone(), less.addresses.clone(), net.now);
    let all = lines(&out[0].bytes);
    assert!(all.iter().any(|line| line == "answer _nfs._tcp.local PTR 0"), "{all:?}");
    assert!(all.iter().any(|line| line == "answer gw.local AAAA 0 flush"), "{all:?}");
    assert!(!all.iter().any(|line| line.contains("_smb") && line.ends_with(" 0")), "{all:?}");
    assert_eq!(net.pass(ms(5000)).len(), 2, "the rest is announced again");
    assert_eq!(net.host.offer(less.clone(), less.addresses, net.now), []);
    let bye = net.host.goodbye();
    let all: Vec<String> = bye.iter().flat_map(|out| lines(&out.bytes)).collect();
    assert!(all.iter().all(|line| line.contains(" 0")) && all.len() > 8, "{all:?}");
    assert_eq!(Net::new().host.goodbye(), [], "nothing was announced");
}

#[test]
fn a_service_that_comes_is_probed_for() {
    let mut net = Net::settled();
    let more = Offer { nfs: None, ..offer() };
    net.host.offer(more.clone(), more.addresses, net.now);
    net.pass(ms(5000));
    net.host.offer(offer(), offer().addresses, net.now);
    assert_eq!(net.host.owned_label(), None);
    net.pass(ms(5000));
    assert_eq!(net.host.owned_label(), Some("gw"));
}

proptest! {
    /// Any question gets a reply within the limit that its size sets.
    #[test]
    fn replies_do_not_amplify(asked in proptest::collection::vec((0_usize..6, any::<bool>()), 1..64), port in any::<bool>()) {
        const NAMES: [(&str, TYPE); 6] = [
            ("gw.local", TYPE::A), ("_smb._tcp.local", TYPE::PTR), ("_services._dns-sd._udp.local", TYPE::PTR),
            ("gw._smb._tcp.local", TYPE::SRV), ("gw._nfs._tcp.local", TYPE::TXT), ("7.2.0.192.in-addr.arpa", TYPE::PTR),
        ];
        let mut net = Net::settled();
        let of: Vec<_> = asked.iter().map(|(n, _)| NAMES[*n]).collect();
        let packet = query(&of, asked[0].1);
        let size = packet.build_bytes_vec_compressed().unwrap().len();
        for _ in 0..2 {
            for out in net.send(&packet, if port { PEER } else { STUB }) {
                match out.to {
                    To::Host(_) => prop_assert!(out.bytes.len() <= reply_max(size)),
                    To::Group(_) => prop_assert!(out.bytes.len() <= 1440),
                }
            }
        }
    }

    #[test]
    fn any_packet_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300), from in any::<u16>()) {
        let mut net = Net::settled();
        if let Ok(packet) = dns::parse(&bytes) {
            net.host.receive(net.now, &packet, bytes.len(), SocketAddr::new("192.0.2.9".parse().unwrap(), from));
        }
        net.pass(ms(10_000));
    }
}

#[test]
fn another_service_of_the_same_name_is_a_conflict() {
    let mut net = Net::settled();
    let srv = RData::SRV(SRV { priority: 0, weight: 0, port: 445, target: name("other.local") });
    net.send(
        &response(vec![ResourceRecord::new(name("gw._smb._tcp.local"), CLASS::IN, 120, srv)]),
        PEER,
    );
    assert_eq!(net.host.conflicts(), 1);
}
