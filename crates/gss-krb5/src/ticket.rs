//! Authorization data of a ticket (RFC 4120 sections 5.2.6, 5.3 and 5.5.1), which the library hides from an acceptor.
//!
//! *Operation.* [`mandatory_types`] decrypts the ticket in a client's first token again, with the keys of the service, and returns
//! the types of its authorization data outside of AD-IF-RELEVANT. A service must refuse a ticket with a type that it does not know.
//!
//! *Errors.* `None` if the token has no ticket that one of the keys decrypts: an older encryption type, or no AP-REQ.

use zeroize::Zeroizing;

use crate::cts;
use crate::enctype::{BLOCK, Enctype, UsageKeys};

/// Key usage of the encrypted part of a ticket (RFC 4120 section 7.5.1).
const USAGE_TICKET: u32 = 2;
/// Longest list that is read; each element has at least nine bytes.
const ELEMENTS_MAX: usize = 1024;
/// Most keys that are tried.
const KEYS_MAX: usize = 256;

const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const OID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;

/// Returns the constructed tag `[n]`.
const fn context(n: u8) -> u8 {
    0xa0 | n
}

/// Returns the constructed tag `[APPLICATION n]`.
const fn application(n: u8) -> u8 {
    0x60 | n
}

/// Elements of DER (ITU-T X.690) with definite lengths and single-byte tags.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// Takes the next element: its tag and its contents.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk::<2>()?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit)), rest)
            }
            _ => return None,
        };
        let (contents, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, contents))
    }

    /// Takes the next element, which must have this tag.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, contents)| contents)
    }

    /// Skips elements to the one with this tag.
    fn find(&mut self, tag: u8) -> Option<&'a [u8]> {
        std::iter::from_fn(|| self.next()).find(|(found, _)| *found == tag).map(|(_, inner)| inner)
    }
}

/// Returns the contents of the only element in `bytes`, which must have this tag.
fn inner(bytes: &[u8], tag: u8) -> Option<&[u8]> {
    Der(bytes).take(tag)
}

fn integer(bytes: &[u8]) -> Option<i32> {
    let digits = inner(bytes, INTEGER)?;
    let negative = digits.first()? & 0x80 != 0;
    let start = if negative { -1 } else { 0 };
    (digits.len() <= 4).then(|| digits.iter().fold(start, |n, digit| n << 8 | i32::from(*digit)))
}

/// The encrypted part of a ticket.
struct Encrypted<'a> {
    enctype: i32,
    cipher: &'a [u8],
}

/// Finds the ticket in a client's first token, with or without the frame of RFC 4121 section 4.1.
fn ticket(token: &[u8]) -> Option<Encrypted<'_>> {
    const AP_REQ: [u8; 2] = [1, 0];
    let message = match Der(token).next()? {
        (tag, framed) if tag == application(0) => {
            let mut frame = Der(framed);
            frame.take(OID)?;
            frame.0.strip_prefix(&AP_REQ)?
        }
        _ => token,
    };
    let request = inner(inner(message, application(14))?, SEQUENCE)?;
    let ticket = inner(inner(Der(request).find(context(3))?, application(1))?, SEQUENCE)?;
    let mut encrypted = Der(inner(Der(ticket).find(context(3))?, SEQUENCE)?);
    let enctype = integer(encrypted.find(context(0))?)?;
    let cipher = inner(encrypted.find(context(2))?, OCTETS)?;
    Some(Encrypted { enctype, cipher })
}

/// Decrypts with this key.
fn decrypted(enctype: Enctype, key: &[u8], cipher: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let body = cipher.len().checked_sub(enctype.tag_len()).filter(|len| *len >= BLOCK)?;
    let (body, tag) = cipher.split_at_checked(body)?;
    let keys = UsageKeys::derive(enctype, key, USAGE_TICKET).ok()?;
    let mut plain = Zeroizing::new(body.to_vec());
    cts::decrypt(&keys, &mut [&mut plain], tag).ok()?;
    plain.drain(..BLOCK);
    Some(plain)
}

/// Returns the types in the authorization data of the encrypted part.
fn types(plain: &[u8]) -> Option<Vec<i32>> {
    let mut part = Der(inner(inner(plain, application(3))?, SEQUENCE)?);
    let Some(list) = part.find(context(10)) else { return Some(Vec::new()) };
    let mut list = Der(inner(list, SEQUENCE)?);
    let mut found = Vec::new();
    while !list.0.is_empty() {
        let element = list.take(SEQUENCE)?;
        if found.len() == ELEMENTS_MAX {
            return None;
        }
        found.push(integer(inner(element, context(0))?)?);
    }
    Some(found)
}

/// Returns the types of the authorization data of the ticket in a client's first token, outside of AD-IF-RELEVANT. `keys` are
/// numbers of encryption types with keys of the service.
pub fn mandatory_types<'a>(
    token: &[u8],
    keys: impl IntoIterator<Item = (u16, &'a [u8])>,
) -> Option<Vec<i32>> {
    const IF_RELEVANT: i32 = 1;
    let ticket = ticket(token)?;
    let enctype = Enctype::from_number(ticket.enctype)?;
    let same = |(number, _): &(u16, &[u8])| i32::from(*number) == ticket.enctype;
    let mut keys = keys.into_iter().filter(same).take(KEYS_MAX);
    let plain = keys.find_map(|(_, key)| decrypted(enctype, key, ticket.cipher))?;
    let mut found = types(&plain)?;
    found.retain(|of| *of != IF_RELEVANT);
    Some(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn element(tag: u8, contents: &[u8]) -> Vec<u8> {
        let len = contents.len();
        let head = match len {
            0..=0x7f => vec![tag, u8::try_from(len).unwrap()],
            _ => vec![tag, 0x82, u8::try_from(len >> 8).unwrap(), len.to_be_bytes()[7]],
        };
        [head, contents.to_vec()].concat()
    }

    fn number(n: i32) -> Vec<u8> {
        element(INTEGER, &n.to_be_bytes())
    }

    fn field(n: u8, contents: &[u8]) -> Vec<u8> {
        element(context(n), contents)
    }

    /// The token of a client whose ticket has authorization data of these types.
    fn token(enctype: Enctype, key: &[u8], types: Option<&[i32]>, framed: bool) -> Vec<u8> {
        let one = |of: &i32| {
            let data = field(1, &element(OCTETS, &[7; 300]));
            element(SEQUENCE, &[field(0, &number(*of)), data].concat())
        };
        let list = types.map(|types| {
            field(10, &element(SEQUENCE, &types.iter().flat_map(one).collect::<Vec<_>>()))
        });
        // Flags and key come first; optional fields may be absent.
        let part = [field(0, &[3, 5, 0, 0, 0, 0, 0]), field(7, &[24, 0]), list.unwrap_or_default()];
        let part = element(application(3), &element(SEQUENCE, &part.concat()));
        let mut plain = [vec![9; BLOCK], part].concat();
        let keys = UsageKeys::derive(enctype, key, USAGE_TICKET).unwrap();
        let tag = cts::encrypt(&keys, &mut [&mut plain]).unwrap();
        plain.extend_from_slice(&tag);
        let encrypted = [
            field(0, &number(enctype as i32)),
            field(1, &number(3)),
            field(2, &element(OCTETS, &plain)),
        ];
        let encrypted = element(SEQUENCE, &encrypted.concat());
        let ticket = [field(0, &number(5)), field(1, &[27, 1, b'R']), field(3, &encrypted)];
        let ticket = element(application(1), &element(SEQUENCE, &ticket.concat()));
        let request =
            [field(0, &number(5)), field(1, &number(14)), field(3, &ticket), field(4, &[])];
        let request = element(application(14), &element(SEQUENCE, &request.concat()));
        match framed {
            true => {
                element(application(0), &[element(OID, &[42, 3]), vec![1, 0], request].concat())
            }
            false => request,
        }
    }

    #[test]
    fn types_outside_if_relevant_are_found() {
        for enctype in Enctype::ALL {
            let key = vec![5; enctype.key_len()];
            let keys = || [(23, &b"other"[..]), (enctype as u16, &key[..])];
            for (types, wanted) in [
                (None, vec![]),
                (Some(&[][..]), vec![]),
                (Some(&[1]), vec![]),
                (Some(&[1, 128, 1, -7]), vec![128, -7]),
                (Some(&[99]), vec![99]),
            ] {
                for framed in [true, false] {
                    let token = token(enctype, &key, types, framed);
                    assert_eq!(mandatory_types(&token, keys()), Some(wanted.clone()), "{types:?}");
                }
            }
        }
    }

    #[test]
    fn other_keys_show_nothing() {
        let (enctype, key) = (Enctype::Aes256Sha1, [5; 32]);
        let token = token(enctype, &key, Some(&[99]), true);
        assert_eq!(mandatory_types(&token, [(18, &[6; 32][..])]), None, "another key");
        assert_eq!(mandatory_types(&token, [(17, &key[..])]), None, "of another type");
        assert_eq!(mandatory_types(&token, [(18, &key[..16])]), None, "of another length");
        assert_eq!(mandatory_types(&token, [(18, &[6; 32][..]), (18, &key[..])]), Some(vec![99]));
        for end in 0..token.len() {
            assert_eq!(mandatory_types(&token[..end], [(18, &key[..])]), None, "{end}");
        }
    }

    #[test]
    fn integers_have_at_most_four_bytes() {
        assert_eq!(integer(&[2, 1, 0x80]), Some(-128));
        assert_eq!(integer(&[2, 2, 0, 0x80]), Some(128));
        assert_eq!(
            (integer(&[2, 0]), integer(&[2, 5, 0, 0, 0, 0, 1]), integer(&[4, 1, 1])),
            (None, None, None)
        );
    }

    proptest! {
        #[test]
        fn arbitrary_tokens_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at: usize, byte: u8) {
            let _ = mandatory_types(&bytes, [(18, &[0; 32][..])]);
            let _ = types(&bytes);
            let mut token = token(Enctype::Aes128Sha1, &[5; 16], Some(&[99]), true);
            let at = at % token.len();
            token[at] = byte;
            let _ = mandatory_types(&token, [(17, &[5; 16][..])]);
        }
    }
}
