//! Chooses the records that answer a question, their receivers and their messages.

use std::collections::BTreeSet;

use simple_dns::{CLASS, Packet, PacketFlag, QCLASS, QTYPE, Question, TYPE};

use super::records::{Data, Record};
use crate::guard::reply_max;

/// Most bytes of a message that is sent: it fits in a frame of Ethernet (RFC 6762 section 17).
const SENT_MAX: usize = 1440;
const HEADER: usize = 12;
/// Longest time to live in an answer to a simple resolver, in seconds (RFC 6762 section 6.7).
const TTL_LEGACY_MAX: u32 = 10;

/// Numbers of records of this host.
pub(super) type Chosen = BTreeSet<usize>;

/// Returns the records that answer a question.
fn of_question(records: &[Record], question: &Question<'_>) -> Chosen {
    if !matches!(question.qclass, QCLASS::ANY | QCLASS::CLASS(CLASS::IN)) {
        return Chosen::new();
    }
    let matching = |kind| -> Chosen {
        let numbered = records.iter().enumerate();
        numbered.filter(|(_, r)| r.answers(&question.qname, kind)).map(|(n, _)| n).collect()
    };
    let found = matching(question.qtype);
    // The host has no address of that type (RFC 6762 section 6.1).
    match (found.is_empty(), question.qtype) {
        (true, QTYPE::TYPE(TYPE::A | TYPE::AAAA)) => matching(QTYPE::TYPE(TYPE::NSEC)),
        _ => found,
    }
}

/// Returns the records that answer a packet, without those that its sender has.
pub(super) fn of_packet(records: &[Record], packet: &Packet<'_>, is_legacy: bool) -> Chosen {
    let mut all = Chosen::new();
    for question in &packet.questions {
        all.append(&mut of_question(records, question));
    }
    if !is_legacy {
        all.retain(|n| !is_known(&records[*n], packet));
    }
    all
}

/// Returns true if the sender of a packet has the record for at least half of its time (RFC 6762 section 7.1).
pub(super) fn is_known(record: &Record, packet: &Packet<'_>) -> bool {
    let enough =
        |known: &&simple_dns::ResourceRecord<'_>| known.ttl.saturating_mul(2) >= record.ttl;
    record.is_any(packet.answers.iter().filter(enough))
}

/// Returns the records that a receiver of these will ask for next (RFC 6763 section 12).
pub(super) fn additional(records: &[Record], answers: &Chosen) -> Chosen {
    let mut all = Chosen::new();
    // The first round goes from the service to its host, the second from the host to its addresses.
    for _ in 0..2 {
        let known: Vec<usize> = answers.iter().chain(&all).copied().collect();
        for n in known {
            let next = match &records[n].data {
                Data::Ptr(to) | Data::Srv { target: to, .. } => to,
                Data::A(_) | Data::Aaaa(_) => &records[n].name,
                Data::Txt(_) | Data::Nsec(_) => continue,
            };
            let of_name = records.iter().enumerate().filter(|(_, r)| r.name == *next);
            all.extend(of_name.filter(|(_, r)| !matches!(r.data, Data::Nsec(_))).map(|(n, _)| n));
        }
    }
    &all - answers
}

fn packet() -> Packet<'static> {
    let mut packet = Packet::new_reply(0);
    packet.set_flags(PacketFlag::AUTHORITATIVE_ANSWER);
    packet
}

fn written(packet: &Packet<'_>) -> Option<Vec<u8>> {
    packet.build_bytes_vec_compressed().ok()
}

/// Returns the messages that multicast these records; a time to live of zero withdraws them (RFC 6762 section 10.1). Additional
/// records are left out where they do not fit.
pub(super) fn multicast(
    records: &[Record],
    answers: &Chosen,
    more: &Chosen,
    ttl: Option<u32>,
) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    let (mut current, mut size) = (packet(), HEADER);
    for record in answers.iter().map(|n| &records[*n]) {
        if size + record.size() > SENT_MAX && !current.answers.is_empty() {
            messages.extend(written(&current));
            (current, size) = (packet(), HEADER);
        }
        size += record.size();
        current.answers.push(record.wire(ttl.unwrap_or(record.ttl), true));
    }
    for record in more.iter().map(|n| &records[*n]) {
        size += record.size();
        if size > SENT_MAX {
            break;
        }
        current.additional_records.push(record.wire(ttl.unwrap_or(record.ttl), true));
    }
    if !current.answers.is_empty() {
        messages.extend(written(&current));
    }
    messages
}

/// Returns the reply to one host, unless it would exceed the limit that the size of the request sets ([`reply_max`]). A simple
/// resolver gets its question and number back (RFC 6762 section 6.7).
pub(super) fn unicast(
    records: &[Record],
    (asked, size): (&Packet<'_>, usize),
    (answers, more): (&Chosen, &Chosen),
    is_legacy: bool,
) -> Option<Vec<u8>> {
    let most = reply_max(size).min(SENT_MAX);
    let with = |more: &Chosen| {
        let mut reply = packet();
        if is_legacy {
            reply.set_id(asked.id());
            reply.questions = asked.questions.iter().take(1).cloned().collect();
            reply.questions.iter_mut().for_each(|question| question.unicast_response = false);
        }
        let wire = |n: &usize| {
            let record = &records[*n];
            let ttl = if is_legacy { record.ttl.min(TTL_LEGACY_MAX) } else { record.ttl };
            record.wire(ttl, !is_legacy)
        };
        reply.answers = answers.iter().map(wire).collect();
        reply.additional_records = more.iter().map(wire).collect();
        written(&reply).filter(|bytes| bytes.len() <= most)
    };
    with(more).or_else(|| with(&Chosen::new()))
}
