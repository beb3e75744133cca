//! The basic parsers of all formats.

use ::wire::{
    Bulk, Parsed, Parser, be_u32, be_u64, bulk, decode, emit, list, opaque, optional, take,
};

/// Longest opaque and longest list, so that inputs of a fuzzer reach both sides of the limit.
const MAX: usize = 64;

/// Number, pairs, name, optional bytes, and the position of bulk data.
type Whole<'a> = (u32, Vec<(u32, u64)>, &'a [u8], Option<&'a [u8]>, Bulk<'a>);

fn whole(i: &[u8]) -> Parsed<'_, Whole<'_>> {
    let (number, pairs) = (be_u32("number"), list(MAX, "pairs", (be_u32("a"), be_u64("b"))));
    let (name, maybe) = (opaque(MAX, "name"), optional("maybe", take(8, "maybe")));
    (number, pairs, name, maybe, bulk(MAX, "data")).parse(i)
}

/// A value of each kind in the order of an XDR structure; every input is a valid one, or has an error located inside it.
pub fn wire_leaves(data: &[u8]) {
    match decode(data, whole) {
        Ok((rest, (number, pairs, name, maybe, place))) => {
            let mut out = Vec::new();
            emit::be_u32(&mut out, number);
            emit::count(&mut out, pairs.len());
            for (a, b) in &pairs {
                emit::be_u32(&mut out, *a);
                emit::be_u64(&mut out, *b);
            }
            emit::opaque(&mut out, name);
            emit::be_u32(&mut out, u32::from(maybe.is_some()));
            out.extend_from_slice(maybe.unwrap_or_default());
            emit::count(&mut out, place.len);
            assert_eq!((out.len(), rest.len()), (place.at(data), data.len() - out.len()));
            let again = decode(&out, whole).map(|(rest, read)| (rest.len(), read.1));
            assert_eq!(again, Ok((0, pairs)), "what was written is read");
        }
        Err(why) => faulty(data, why.at(data)),
    }
}

fn faulty(data: &[u8], fault: ::wire::Fault) {
    assert!(fault.offset <= data.len(), "{fault}");
    assert_ne!(fault.field, "message", "a leaf names its field");
}

/// One valid value that uses each of its parts.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    [7, 1, 8].into_iter().for_each(|v| emit::be_u32(&mut out, v));
    emit::be_u64(&mut out, 9);
    emit::opaque(&mut out, b"a name");
    emit::be_u32(&mut out, 1);
    emit::be_u64(&mut out, 10);
    emit::count(&mut out, 5);
    out.extend_from_slice(b"bytes\0\0\0");
    vec![out]
}
