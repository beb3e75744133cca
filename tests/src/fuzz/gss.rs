//! Tokens of Kerberos contexts, by somebody without the key and by somebody with it.

use gss_krb5::{Context, Enctype, Role};

/// The contexts of both ends, and how the input is cut: its first two bytes.
fn ends(kind: u8) -> Option<[Context; 2]> {
    let enctype = Enctype::ALL[usize::from(kind % 4)];
    let key = vec![kind; enctype.key_len()];
    let of = |role| Context::new(enctype, &key, role, kind & 4 != 0).ok();
    Some([of(Role::Initiator)?, of(Role::Acceptor)?])
}

/// What the other end makes of a token that came in pieces.
fn opened(context: &Context, token: &[u8], size: usize) -> Option<(bool, Vec<u8>)> {
    let mut work = token.to_vec();
    let mut pieces: Vec<&mut [u8]> = work.chunks_mut(size).collect();
    let done = context.unwrap(&mut pieces).ok()?;
    let plain = work.get(done.start..done.start + done.len);
    assert!(plain.is_some(), "the plaintext is inside of the token");
    Some((done.is_sealed, plain?.to_vec()))
}

/// Encryption type, bytes of a piece, then a rotation (two bytes), then a token, which is also a message.
pub fn gss_tokens(data: &[u8]) {
    let [kind, size, r0, r1, data @ ..] = data else { return };
    let (size, rotation) = (usize::from(*size) + 1, u16::from_be_bytes([*r0, *r1]));
    let Some([initiator, acceptor]) = ends(*kind) else { return };
    assert_eq!(opened(&acceptor, data, size), None, "opened without its key");
    assert!(acceptor.verify_mic(data, &[data]).is_err(), "verified without its key");

    let mut message = data.to_vec();
    let mut pieces: Vec<&mut [u8]> = message.chunks_mut(size).collect();
    let Ok(wrapped) = initiator.wrap(1, &mut pieces) else { return };
    let mut token = [wrapped.head(), &message, wrapped.tail()].concat();
    token[6..8].copy_from_slice(&rotation.to_be_bytes());
    let rest = token[16..].len();
    token[16..].rotate_right(usize::from(rotation) % rest);
    assert_eq!(opened(&acceptor, &token, size), Some((true, data.to_vec())));
    let last = token.len() - 1;
    token[last] ^= 1;
    assert_eq!(opened(&acceptor, &token, size), None, "a bit of it was changed");
}

/// A token of each kind, with its header as it should be.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let header = |kind: u8, first: [u8; 4]| {
        [&[kind, 8, 0, 28][..], &first, &[0, 0, 0, 28], &[0; 8], &[9; 61]].concat()
    };
    vec![
        header(4, [5, 4, 6, 0xff]),
        header(5, [5, 4, 6, 0xff]),
        header(6, [5, 4, 4, 0xff]),
        header(7, [5, 4, 6, 0xff]),
        header(3, [4, 4, 0, 0xff]),
    ]
}
