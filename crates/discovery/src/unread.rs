//! Hides the data of records that the gateway does not read from the parser of messages, which refuses a whole message for one
//! malformed record. python-zeroconf 0.47 sends such NSEC records beside each address: its answers would be lost, and with them
//! the conflict of names that they tell.

use simple_dns::header_buffer as head;

/// Types of the records that are read: A, PTR, TXT, AAAA, SRV, and OPT, whose class is no class.
const READ: [[u8; 2]; 6] = [[0, 1], [0, 12], [0, 16], [0, 28], [0, 33], [0, 41]];
/// The first type for private use, whose data has no form (RFC 6895 section 3.1).
const HIDDEN: [u8; 2] = [0xff, 0];
/// Length of a header, of a question behind its name, and of a record between its name and its data.
const HEADER: usize = 12;
const ASKED: usize = 4;
const FIXED: usize = 10;

/// Gives records of other types a type without a form, as far as the message can be read.
pub fn hide(message: &mut [u8]) {
    // The parser refuses what is shorter than it says.
    let _ = hide_all(message);
}

fn hide_all(message: &mut [u8]) -> Option<()> {
    let questions = head::questions(message).ok()?;
    let sections = [head::answers, head::name_servers, head::additional_records];
    let mut at = HEADER;
    for _ in 0..questions {
        at = behind_name(message, at)?.checked_add(ASKED)?;
    }
    for section in sections {
        // Each record takes bytes, so that a false count ends with the message.
        for _ in 0..section(message).ok()? {
            at = behind_name(message, at)?;
            let fixed = message.get_mut(at..)?.first_chunk_mut::<FIXED>()?;
            let [high, low, _, _, _, _, _, _, length @ ..] = fixed;
            if !READ.contains(&[*high, *low]) {
                [*high, *low] = HIDDEN;
            }
            at = at.checked_add(FIXED)?.checked_add(u16::from_be_bytes(*length).into())?;
        }
    }
    Some(())
}

/// Returns where the bytes behind a name begin (RFC 1035 sections 3.1 and 4.1.4).
fn behind_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return at.checked_add(1),
            0xc0.. => return at.checked_add(2),
            label @ 1..64 => at = at.checked_add(1)?.checked_add(label.into())?,
            64..0xc0 => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use simple_dns::rdata::RData;
    use simple_dns::{Packet, PacketFlag};

    use super::*;
    use crate::dns;

    /// An answer of python-zeroconf 0.47: an NSEC record whose windows are two bytes, and the address.
    const ANSWER: &[u8] = b"\0\0\x84\0\0\0\0\x02\0\0\0\0\x02gw\x05local\0\0\x2f\x80\x01\0\0\0\x78\0\x0a\xc0\x0c\0\0\0\x04\0\0\0\x08\
        \xc0\x0c\0\x01\x80\x01\0\0\0\x78\0\x04\xc6\x33\x64\x02";

    #[test]
    fn malformed_record_that_is_not_read_costs_no_other() {
        assert_eq!(dns::parse(ANSWER).map(drop), Err("message"));
        let mut answer = ANSWER.to_vec();
        hide(&mut answer);
        let packet = dns::parse(&answer).unwrap();
        assert!(packet.has_flags(PacketFlag::RESPONSE));
        let data: Vec<_> = packet.answers.iter().map(|record| &record.rdata).collect();
        assert!(matches!(data[..], [RData::NULL(..), RData::A(a)] if a.address == 0xC633_6402));
    }

    #[test]
    fn records_that_are_read_stay() {
        let mut packet = Packet::new_reply(0);
        let records = crate::mdns::Record::of_host(
            "gw.local",
            "gw.local",
            &crate::links::Offer {
                addresses: ["192.0.2.7", "2001:db8::7"].map(|ip| ip.parse().unwrap()).into(),
                ..crate::links::Offer::default()
            },
        );
        packet.answers = records.iter().map(|record| record.wire(9, false)).collect();
        let bytes = packet.build_bytes_vec_compressed().unwrap();
        let mut same = bytes.clone();
        hide(&mut same);
        assert_eq!(same, bytes);
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0_usize..90, to: u8) {
            hide(&mut bytes);
            let mut damaged = ANSWER.to_vec();
            let at = at % damaged.len();
            damaged[at] = to;
            hide(&mut damaged);
            let _ = dns::parse(&damaged);
        }
    }
}
