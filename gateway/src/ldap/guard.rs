//! Checks the messages of a server (RFC 4511 section 4, BER with definite lengths) before the LDAP library reads them: the library
//! trusts their structure and keeps messages of any size. Pure.
//!
//! *Operation.* [`Guard::pass`] rewrites each message with the parts that a look-up needs: the result of the bind, entries, and
//! results of searches. Controls, referrals of results and intermediate messages are left out; no look-up asks for them. A
//! reference to another server ends the connection: without the entries there, the user would be in too few groups.
//!
//! *Memory.* A message has at most [`MESSAGE_MAX`] bytes, all messages of a look-up [`TOTAL_MAX`].

use std::fmt;

/// Most bytes of a message.
pub(super) const MESSAGE_MAX: usize = 64 << 10;
/// Most bytes of all messages of a look-up.
pub(super) const TOTAL_MAX: usize = 256 << 10;

const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const ENUMERATED: u8 = 0x0a;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// `[APPLICATION n]` of BindResponse, SearchResultEntry, SearchResultDone, SearchResultReference, ExtendedResponse,
/// IntermediateResponse (RFC 4511 appendix B).
const BIND: u8 = 0x61;
const ENTRY: u8 = 0x64;
const DONE: u8 = 0x65;
const REFERENCE: u8 = 0x73;
const EXTENDED: u8 = 0x78;
const INTERMEDIATE: u8 = 0x79;

/// Why the messages of a server are not read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Names what is wrong.
    Malformed(&'static str),
    TooLarge,
    /// The server has no whole answer: another one may have entries below the base (SearchResultReference).
    Refers,
    /// The server ends the connection (RFC 4511 section 4.4.1).
    Disconnects,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(what) => write!(f, "its answer is not LDAP: {what}"),
            Self::TooLarge => write!(
                f,
                "its answer is larger than {} KiB, or has a message of more than {} KiB",
                TOTAL_MAX >> 10,
                MESSAGE_MAX >> 10
            ),
            Self::Refers => f.write_str("it refers to another server for entries below `base`"),
            Self::Disconnects => f.write_str("it ends the connection"),
        }
    }
}

/// An element and the bytes after it.
struct Element<'a> {
    tag: u8,
    value: &'a [u8],
    rest: &'a [u8],
}

/// Returns the lengths of header and value, once enough bytes have arrived.
fn lengths(bytes: &[u8]) -> Result<Option<(usize, usize)>, Refused> {
    let [tag, first, more @ ..] = bytes else { return Ok(None) };
    if tag & 0x1f == 0x1f {
        return Err(Refused::Malformed("a tag of several bytes"));
    }
    match first {
        0..=0x7f => Ok(Some((2, usize::from(*first)))),
        // RFC 4511 section 5.1: only definite lengths. Three bytes are enough for every message that is read.
        0x81..=0x84 => {
            let count = usize::from(first & 0x7f);
            let Some(length) = more.get(..count) else { return Ok(None) };
            let value = length.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
            let value = usize::try_from(value).map_err(|_| Refused::TooLarge)?;
            Ok(Some((2 + count, value)))
        }
        _ => Err(Refused::Malformed("a length")),
    }
}

fn element<'a>(bytes: &'a [u8], what: &'static str) -> Result<Element<'a>, Refused> {
    let short = Refused::Malformed(what);
    let (header, length) = lengths(bytes)?.ok_or(short)?;
    let rest = bytes.get(header..).ok_or(short)?;
    let (value, rest) = rest.split_at_checked(length).ok_or(short)?;
    Ok(Element { tag: *bytes.first().ok_or(short)?, value, rest })
}

/// Returns the value of an element with this tag, and the bytes after it.
fn expect<'a>(
    bytes: &'a [u8],
    tag: u8,
    what: &'static str,
) -> Result<(&'a [u8], &'a [u8]), Refused> {
    let found = element(bytes, what)?;
    if found.tag == tag { Ok((found.value, found.rest)) } else { Err(Refused::Malformed(what)) }
}

fn text<'a>(bytes: &'a [u8], what: &'static str) -> Result<(&'a [u8], &'a [u8]), Refused> {
    let (value, rest) = expect(bytes, OCTETS, what)?;
    if std::str::from_utf8(value).is_err() {
        return Err(Refused::Malformed(what));
    }
    Ok((value, rest))
}

fn number<'a>(
    bytes: &'a [u8],
    tag: u8,
    what: &'static str,
) -> Result<(&'a [u8], &'a [u8]), Refused> {
    let (value, rest) = expect(bytes, tag, what)?;
    if (1..=4).contains(&value.len()) { Ok((value, rest)) } else { Err(Refused::Malformed(what)) }
}

fn put(out: &mut Vec<u8>, tag: u8, value: &[u8]) {
    let length = (value.len() as u64).to_be_bytes();
    out.push(tag);
    match value.len() {
        0..=0x7f => out.push(length[7]),
        _ => {
            out.push(0x84);
            out.extend_from_slice(&length[4..]);
        }
    }
    out.extend_from_slice(value);
}

/// LDAPResult (section 4.1.9), without referrals.
fn result(op: &[u8]) -> Result<Vec<u8>, Refused> {
    let (code, rest) = number(op, ENUMERATED, "resultCode")?;
    let (matched, rest) = text(rest, "matchedDN")?;
    let (message, _) = text(rest, "diagnosticMessage")?;
    let mut out = Vec::new();
    put(&mut out, ENUMERATED, code);
    put(&mut out, OCTETS, matched);
    put(&mut out, OCTETS, message);
    Ok(out)
}

/// SearchResultEntry (section 4.5.2).
fn entry(op: &[u8]) -> Result<Vec<u8>, Refused> {
    let (name, rest) = text(op, "objectName")?;
    let (mut attributes, _) = expect(rest, SEQUENCE, "attributes")?;
    let mut all = Vec::new();
    while !attributes.is_empty() {
        let (attribute, rest) = expect(attributes, SEQUENCE, "PartialAttribute")?;
        attributes = rest;
        let (kind, rest) = text(attribute, "AttributeDescription")?;
        let (mut values, _) = expect(rest, SET, "vals")?;
        let mut set = Vec::new();
        while !values.is_empty() {
            let (value, rest) = expect(values, OCTETS, "AttributeValue")?;
            values = rest;
            put(&mut set, OCTETS, value);
        }
        let mut one = Vec::new();
        put(&mut one, OCTETS, kind);
        put(&mut one, SET, &set);
        put(&mut all, SEQUENCE, &one);
    }
    let mut out = Vec::new();
    put(&mut out, OCTETS, name);
    put(&mut out, SEQUENCE, &all);
    Ok(out)
}

/// The messages of one connection, on which a bind comes first and searches follow.
#[derive(Debug, Default)]
pub(super) struct Guard {
    total: usize,
    is_bound: bool,
}

impl Guard {
    /// Returns whether the answer to the bind has passed.
    pub(super) fn is_bound(&self) -> bool {
        self.is_bound
    }

    /// Returns the length of the message that begins with these bytes, once enough bytes have arrived.
    pub(super) fn message_length(&self, bytes: &[u8]) -> Result<Option<usize>, Refused> {
        if bytes.first().is_some_and(|tag| *tag != SEQUENCE) {
            return Err(Refused::Malformed("LDAPMessage"));
        }
        let Some((header, value)) = lengths(bytes)? else { return Ok(None) };
        let length = header.saturating_add(value);
        if length > MESSAGE_MAX || self.total.saturating_add(length) > TOTAL_MAX {
            return Err(Refused::TooLarge);
        }
        Ok(Some(length))
    }

    /// Rewrites a whole message for the library, if the library needs it.
    pub(super) fn pass(&mut self, message: &[u8]) -> Result<Option<Vec<u8>>, Refused> {
        self.total = self.total.saturating_add(message.len());
        let (message, _) = expect(message, SEQUENCE, "LDAPMessage")?;
        let (id, rest) = number(message, INTEGER, "messageID")?;
        let op = element(rest, "protocolOp")?;
        let value = match op.tag {
            BIND if !self.is_bound => {
                self.is_bound = true;
                result(op.value)?
            }
            DONE if self.is_bound => result(op.value)?,
            ENTRY if self.is_bound => entry(op.value)?,
            REFERENCE if self.is_bound => return Err(Refused::Refers),
            INTERMEDIATE if self.is_bound => return Ok(None),
            EXTENDED => return Err(Refused::Disconnects),
            _ => return Err(Refused::Malformed("protocolOp")),
        };
        let mut body = Vec::new();
        put(&mut body, INTEGER, id);
        put(&mut body, op.tag, &value);
        let mut out = Vec::new();
        put(&mut out, SEQUENCE, &body);
        Ok(Some(out))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, tag, &parts.concat());
        out
    }

    pub(in super::super) fn message(id: u8, op: &[u8]) -> Vec<u8> {
        tlv(SEQUENCE, &[&tlv(INTEGER, &[&[id]]), op])
    }

    pub(in super::super) fn result_of(tag: u8, code: u8, text: &str) -> Vec<u8> {
        let code = tlv(ENUMERATED, &[&[code]]);
        tlv(tag, &[&code, &tlv(OCTETS, &[]), &tlv(OCTETS, &[text.as_bytes()])])
    }

    /// Returns the answer to a bind, with this code.
    pub(in super::super) fn bound(code: u8) -> Vec<u8> {
        message(1, &result_of(BIND, code, "no reason"))
    }

    /// Returns the end of a search, with this code.
    pub(in super::super) fn done(id: u8, code: u8) -> Vec<u8> {
        message(id, &result_of(DONE, code, ""))
    }

    /// Returns an entry with these attributes.
    pub(in super::super) fn entry_of(id: u8, dn: &str, attributes: &[(&str, &[u8])]) -> Vec<u8> {
        let attribute = |(kind, value): &(&str, &[u8])| {
            let values = tlv(SET, &[&tlv(OCTETS, &[value])]);
            tlv(SEQUENCE, &[&tlv(OCTETS, &[kind.as_bytes()]), &values])
        };
        let all: Vec<Vec<u8>> = attributes.iter().map(attribute).collect();
        let all: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        let op = tlv(ENTRY, &[&tlv(OCTETS, &[dn.as_bytes()]), &tlv(SEQUENCE, &all)]);
        message(id, &op)
    }

    /// Returns a reference to another server.
    pub(in super::super) fn reference(id: u8) -> Vec<u8> {
        message(id, &tlv(REFERENCE, &[&tlv(OCTETS, &[b"ldap://other/ou=far,o=lab"])]))
    }

    fn bound_guard() -> Guard {
        let mut guard = Guard::default();
        assert!(guard.pass(&bound(0)).unwrap().is_some());
        guard
    }

    #[test]
    fn sound_messages_pass_unchanged() {
        let mut guard = bound_guard();
        for sound in [
            entry_of(2, "uid=dana,o=lab", &[("uid", b"dana"), ("ipaNTHash", &[0xff; 16])]),
            entry_of(2, "", &[]),
            done(2, 32),
        ] {
            assert_eq!(guard.message_length(&sound), Ok(Some(sound.len())));
            assert_eq!(guard.pass(&sound), Ok(Some(sound.clone())));
        }
    }

    #[test]
    fn needless_parts_are_left_out() {
        let mut guard = bound_guard();
        let control = tlv(0xa0, &[&tlv(SEQUENCE, &[&tlv(OCTETS, &[b"1.2.3"])])]);
        let op = result_of(DONE, 0, "");
        let with = tlv(SEQUENCE, &[&tlv(INTEGER, &[&[2]]), &op, &control]);
        assert_eq!(guard.pass(&with), Ok(Some(done(2, 0))));
        assert_eq!(guard.pass(&message(2, &tlv(INTERMEDIATE, &[&[1, 2, 3]]))), Ok(None));
        assert_eq!(guard.pass(&reference(2)), Err(Refused::Refers));
        assert_eq!(guard.pass(&message(0, &tlv(EXTENDED, &[]))), Err(Refused::Disconnects));
    }

    #[test]
    fn messages_out_of_turn_and_of_other_structure_are_refused() {
        let refused = |guard: &mut Guard, message: &[u8]| {
            matches!(guard.pass(message), Err(Refused::Malformed(_)))
        };
        assert!(refused(&mut Guard::default(), &done(1, 0)), "before the bind");
        assert!(refused(&mut bound_guard(), &bound(0)), "twice");
        for op in [
            tlv(0x42, &[]),
            tlv(DONE, &[]),
            tlv(DONE, &[&tlv(INTEGER, &[&[0]])]),
            tlv(DONE, &[&tlv(ENUMERATED, &[&[0; 5]])]),
            tlv(DONE, &[&tlv(ENUMERATED, &[&[0]]), &tlv(OCTETS, &[&[0xff]]), &tlv(OCTETS, &[])]),
            tlv(ENTRY, &[&tlv(OCTETS, &[b"o=lab"])]),
            tlv(ENTRY, &[&tlv(OCTETS, &[b"o=lab"]), &tlv(SEQUENCE, &[&tlv(OCTETS, &[])])]),
            vec![DONE, 0x80],
            vec![DONE, 0x05, 0],
            vec![0x7f, 0x01, 0],
        ] {
            assert!(refused(&mut bound_guard(), &message(2, &op)), "{op:x?}");
        }
        assert!(refused(&mut bound_guard(), &tlv(SEQUENCE, &[])));
    }

    #[test]
    fn sizes_are_known_before_messages_are_read() {
        let guard = Guard::default();
        let length = |bytes: &[u8]| guard.message_length(bytes);
        assert_eq!([length(&[]), length(&[0x30]), length(&[0x30, 0x82, 1])], [Ok(None); 3]);
        assert_eq!(length(&[0x30, 5]), Ok(Some(7)));
        assert_eq!(length(&[0x30, 0x84, 0, 0, 1, 0]), Ok(Some(6 + 256)));
        assert_eq!(length(&[0x30, 0x83, 1, 0, 0]), Err(Refused::TooLarge));
        assert_eq!(length(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), Err(Refused::TooLarge));
        assert!(matches!(length(b"HTTP/1.1 200"), Err(Refused::Malformed(_))));
        let used = Guard { total: TOTAL_MAX - 6, is_bound: true };
        assert_eq!(used.message_length(&[0x30, 4]), Ok(Some(6)));
        assert_eq!(used.message_length(&[0x30, 5]), Err(Refused::TooLarge));
    }

    proptest! {
        #[test]
        fn no_message_causes_a_panic(bytes: Vec<u8>, at: prop::sample::Index, byte: u8) {
            let guard = Guard::default();
            let _ = (guard.message_length(&bytes), Guard::default().pass(&bytes));
            let mut message = entry_of(2, "uid=dana,o=lab", &[("uid", b"dana"), ("cn", &bytes)]);
            let at = at.index(message.len());
            message[at] = byte;
            // A message that passes is sound: it passes again unchanged.
            if let Ok(Some(passed)) = bound_guard().pass(&message) {
                prop_assert_eq!(bound_guard().pass(&passed), Ok(Some(passed.clone())));
            }
        }
    }
}
