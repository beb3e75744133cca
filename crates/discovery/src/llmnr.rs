//! LLMNR: the host's name for Windows (RFC 4795, [MS-LLMNRP]).
//!
//! The name is the one that mDNS claimed on the link, so that its uniqueness is already verified.

use std::net::{Ipv4Addr, Ipv6Addr};

use simple_dns::rdata::RData;
use simple_dns::{CLASS, OPCODE, Packet, PacketFlag, QCLASS, QTYPE, ResourceRecord, TYPE};

use crate::dns::name;
use crate::guard::reply_max;
use crate::links::Offer;
use crate::mdns::Record;

/// UDP port of LLMNR.
pub const PORT: u16 = 5355;
/// Groups of LLMNR (RFC 4795 section 2).
pub const GROUP4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 252);
/// See [`GROUP4`].
pub const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 3);
/// Seconds for which an answer may be kept (RFC 4795 section 2.8).
const TTL: u32 = 30;
/// The bit that in LLMNR says that the sender has received several answers (RFC 4795 section 2.1.1). In DNS it has another meaning.
const CONFLICT: PacketFlag = PacketFlag::AUTHORITATIVE_ANSWER;

/// Returns the reply to a packet of `size` bytes, if it asks about this host (RFC 4795 section 2.3).
pub fn answer(label: &str, offer: &Offer, packet: &Packet<'_>, size: usize) -> Option<Vec<u8>> {
    let is_query = packet.opcode() == OPCODE::StandardQuery
        && !packet.has_flags(PacketFlag::RESPONSE)
        && !packet.has_flags(CONFLICT)
        && packet.answers.is_empty()
        && packet.name_servers.is_empty();
    let [question] = packet.questions.as_slice() else { return None };
    if !is_query || !matches!(question.qclass, QCLASS::ANY | QCLASS::CLASS(CLASS::IN)) {
        return None;
    }
    let records = Record::of_host(label, label, offer);
    let is_kind = |record: &RData<'_>| match question.qtype {
        QTYPE::ANY => true,
        QTYPE::TYPE(kind) => record.type_code() == kind,
        _ => false,
    };
    let of_name: Vec<&Record> =
        records.iter().filter(|record| question.qname == name(&record.name)).collect();
    let is_told =
        matches!(question.qtype, QTYPE::ANY | QTYPE::TYPE(TYPE::A | TYPE::AAAA | TYPE::PTR));
    if of_name.is_empty() || !is_told {
        return None;
    }
    let mut reply = Packet::new_reply(packet.id());
    reply.questions.push(question.clone());
    let found = of_name.into_iter().filter(|record| is_kind(&record.rdata()));
    let wire = |record: &Record| {
        ResourceRecord::new(question.qname.clone(), CLASS::IN, TTL, record.rdata().into_owned())
    };
    reply.answers = found.map(wire).collect();
    // As many as fit, as [MS-LLMNRP] section 3.2.5 says.
    loop {
        let bytes = reply.build_bytes_vec_compressed().ok()?;
        if bytes.len() <= reply_max(size) {
            return Some(bytes);
        }
        reply.answers.pop()?;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use simple_dns::Question;

    use super::*;
    use crate::dns;

    fn offer() -> Offer {
        let addresses =
            ["192.0.2.7", "192.0.2.8", "2001:db8::7"].map(|ip| ip.parse().unwrap()).into();
        Offer { addresses, smb: Some(445), ..Offer::default() }
    }

    fn query(asked: &'static str, kind: QTYPE) -> Packet<'static> {
        let mut packet = Packet::new_query(4711);
        packet.questions.push(Question::new(name(asked), kind, QCLASS::CLASS(CLASS::IN), false));
        packet
    }

    fn answers(packet: &Packet<'_>) -> Option<Vec<String>> {
        let size = packet.build_bytes_vec().unwrap().len();
        let bytes = answer("gw", &offer(), packet, size)?;
        let reply = dns::parse(&bytes).unwrap();
        assert_eq!((reply.id(), reply.questions.len()), (4711, 1));
        assert!(reply.has_flags(PacketFlag::RESPONSE));
        assert!(
            !reply.has_flags(CONFLICT) && !reply.has_flags(PacketFlag::RECURSION_DESIRED),
            "C and T"
        );
        let line =
            |r: &ResourceRecord<'_>| format!("{} {:?} {}", r.name, r.rdata.type_code(), r.ttl);
        Some(reply.answers.iter().map(line).collect())
    }

    #[test]
    fn the_own_name_has_its_addresses() {
        let of = |asked, kind| answers(&query(asked, QTYPE::TYPE(kind)));
        assert_eq!(of("GW", TYPE::A).unwrap(), ["GW A 30", "GW A 30"], "as it was asked for");
        assert_eq!(of("gw", TYPE::AAAA).unwrap(), ["gw AAAA 30"]);
        assert_eq!(answers(&query("gw", QTYPE::ANY)).unwrap().len(), 3);
        assert_eq!(
            of("7.2.0.192.in-addr.arpa", TYPE::PTR).unwrap(),
            ["7.2.0.192.in-addr.arpa PTR 30"]
        );
        assert_eq!(
            of("gw", TYPE::PTR).unwrap(),
            Vec::<String>::new(),
            "the name has no such record"
        );
        for (asked, kind) in
            [("other", TYPE::A), ("gw.local", TYPE::A), ("gw", TYPE::MX), ("", TYPE::A)]
        {
            assert_eq!(of(asked, kind), None, "{asked}");
        }
    }

    #[test]
    fn what_is_no_question_has_no_answer() {
        let sound = query("gw", QTYPE::TYPE(TYPE::A));
        assert!(answers(&sound).is_some());
        let mut conflict = sound.clone();
        conflict.set_flags(CONFLICT);
        let mut response = sound.clone();
        response.set_flags(PacketFlag::RESPONSE);
        let mut two = sound.clone();
        two.questions.push(two.questions[0].clone());
        let mut answered = sound.clone();
        answered.answers.push(ResourceRecord::new(
            name("gw"),
            CLASS::IN,
            1,
            RData::A(simple_dns::rdata::A { address: 1 }),
        ));
        let mut update = sound.clone();
        *update.opcode_mut() = OPCODE::Update;
        let mut none = sound;
        none.questions.clear();
        for packet in [conflict, response, two, answered, update, none] {
            assert_eq!(answers(&packet), None, "{packet:?}");
        }
    }

    proptest! {
        #[test]
        fn any_packet_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(packet) = dns::parse(&bytes)
                && let Some(reply) = answer("gw", &offer(), &packet, bytes.len())
            {
                prop_assert!(reply.len() <= reply_max(bytes.len()));
            }
        }
    }
}
