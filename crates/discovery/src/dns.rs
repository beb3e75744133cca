//! Messages of DNS, as mDNS and LLMNR use them. The library `simple-dns` parses and writes them; what it would take memory for is
//! checked before.

use simple_dns::header_buffer as head;
use simple_dns::rdata::RData;
use simple_dns::{Name, Packet, ResourceRecord};

/// Largest message that is read, in bytes: what a frame of Ethernet carries. RFC 6762 section 17 allows 9,000, but the work for the
/// compressed names of a message grows with the square of its length.
pub const MESSAGE_MAX: usize = 1500;
/// Most questions of a message. Hosts ask for a few names at once.
const QUESTIONS_MAX: u16 = 64;
/// Most records of a message: as many as fit in one that hosts send.
const RECORDS_MAX: u16 = 128;

/// Parses a message.
///
/// # Errors
/// Names what is wrong, for a counter.
pub fn parse(bytes: &[u8]) -> Result<Packet<'_>, &'static str> {
    if bytes.len() > MESSAGE_MAX {
        return Err("size");
    }
    let count = |read: fn(&[u8]) -> simple_dns::Result<u16>| read(bytes).map_err(|_| "header");
    let (questions, answers) = (count(head::questions)?, count(head::answers)?);
    let records = answers
        .saturating_add(count(head::name_servers)?)
        .saturating_add(count(head::additional_records)?);
    // The library takes memory for these numbers before it looks at the records.
    if questions > QUESTIONS_MAX || records > RECORDS_MAX {
        return Err("counts");
    }
    Packet::parse(bytes).map_err(|_| "message")
}

/// Returns a name of labels that dots separate. Names of this crate have valid labels; others would be cut.
pub(crate) fn name(text: &str) -> Name<'_> {
    Name::new_unchecked(text)
}

/// Returns the data of a record in bytes, without compression, for comparison (RFC 6762 section 8.2).
pub(crate) fn raw(data: &RData<'_>) -> Vec<u8> {
    /// Header of a message, the name of the root, and type, class, time to live and length of a record.
    const BEFORE: usize = 12 + 1 + 10;
    let mut packet = Packet::new_reply(0);
    packet.answers.push(ResourceRecord::new(name("."), simple_dns::CLASS::IN, 0, data.clone()));
    let mut bytes = packet.build_bytes_vec().unwrap_or_default();
    bytes.drain(..BEFORE.min(bytes.len()));
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use simple_dns::rdata::{A, PTR};
    use simple_dns::{CLASS, QCLASS, QTYPE, Question, TYPE};

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn damaged_messages_are_parsed_or_refused(at in 0_usize..200, to in any::<u8>()) {
            let mut packet = Packet::new_query(0);
            for n in ["gw.local", "_smb._tcp.local", "gw._smb._tcp.local"] {
                let question = Question::new(name(n), QTYPE::TYPE(TYPE::PTR), QCLASS::CLASS(CLASS::IN), false);
                packet.questions.push(question);
                packet.answers.push(ResourceRecord::new(name("_smb._tcp.local"), CLASS::IN, 9, RData::PTR(PTR(name(n)))));
            }
            let mut bytes = packet.build_bytes_vec_compressed().unwrap();
            let at = at % bytes.len();
            bytes[at] = to;
            let _ = parse(&bytes);
        }
    }

    #[test]
    fn numbers_in_a_header_take_no_memory() {
        let with = |questions: u16, answers: u16| {
            let mut bytes = [0_u8; 12];
            bytes[4..6].copy_from_slice(&questions.to_be_bytes());
            bytes[6..8].copy_from_slice(&answers.to_be_bytes());
            parse(&bytes).map(drop)
        };
        assert_eq!(with(0, 0), Ok(()));
        assert_eq!(with(u16::MAX, 0), Err("counts"));
        assert_eq!(with(0, u16::MAX), Err("counts"));
        assert_eq!(with(1, 0), Err("message"));
        assert_eq!(parse(&[0; 11]).map(drop), Err("header"));
        assert_eq!(parse(&vec![0; MESSAGE_MAX + 1]).map(drop), Err("size"));
    }

    #[test]
    fn raw_data_is_without_what_surrounds_it() {
        assert_eq!(raw(&RData::A(A { address: 0xC000_0207 })), [192, 0, 2, 7]);
        assert_eq!(raw(&RData::PTR(PTR(name("a.b")))), [1, b'a', 1, b'b', 0]);
    }
}
