use proptest::prelude::*;

use super::*;

fn pair(enctype: Enctype) -> [Context; 2] {
    let key: Vec<u8> = (7..).take(enctype.key_len()).collect();
    [Role::Initiator, Role::Acceptor].map(|role| Context::new(enctype, &key, role, true).unwrap())
}

/// Splits `bytes` into pieces of at most `size`.
fn pieces(bytes: &mut [u8], size: usize) -> Vec<&mut [u8]> {
    bytes.chunks_mut(size).collect()
}

fn sealed(from: &Context, plain: &[u8], size: usize) -> Vec<u8> {
    let mut work = plain.to_vec();
    let wrapped = from.wrap(77, &mut pieces(&mut work, size)).unwrap();
    let (before, behind) = from.seal_overhead();
    assert_eq!((wrapped.head().len(), wrapped.tail().len()), (before, behind));
    [wrapped.head(), &work, wrapped.tail()].concat()
}

fn unsealed(from: &Context, plain: &[u8]) -> Vec<u8> {
    let wrapped = from.wrap_unsealed(78, &[plain]);
    [wrapped.head(), plain, wrapped.tail()].concat()
}

/// Rotates a token as a sender may (RFC 4121 section 4.2.5).
fn rotate(token: &mut [u8], count: u16) {
    token[6..8].copy_from_slice(&count.to_be_bytes());
    let rest = &mut token[HEADER..];
    rest.rotate_right(usize::from(count) % rest.len());
}

fn opened(to: &Context, token: &[u8], size: usize) -> Result<(Unwrapped, Vec<u8>), Failed> {
    let mut work = token.to_vec();
    let done = to.unwrap(&mut pieces(&mut work, size))?;
    Ok((done, work[done.start..done.start + done.len].to_vec()))
}

fn enctypes() -> impl Strategy<Value = Enctype> {
    prop::sample::select(&Enctype::ALL[..])
}

proptest! {
    #[test]
    fn sealed_message_opens_after_rotation(
        enctype in enctypes(),
        plain in prop::collection::vec(any::<u8>(), 0..10_000),
        sizes in (1usize..700, 1usize..700),
        rotation: u16,
    ) {
        let [initiator, acceptor] = pair(enctype);
        for (from, to) in [(&initiator, &acceptor), (&acceptor, &initiator)] {
            let mut token = sealed(from, &plain, sizes.0);
            rotate(&mut token, rotation);
            let (done, got) = opened(to, &token, sizes.1).unwrap();
            prop_assert_eq!((done.sequence, done.is_sealed), (77, true));
            prop_assert_eq!(&got, &plain);
            prop_assert_eq!(opened(from, &token, sizes.1), Err(Failed), "opened by its own sender");
        }
    }

    #[test]
    fn unsealed_message_verifies_after_rotation(
        enctype in enctypes(), plain: Vec<u8>, size in 1usize..50, rotation: u16,
    ) {
        let [initiator, acceptor] = pair(enctype);
        let mut token = unsealed(&initiator, &plain);
        rotate(&mut token, rotation);
        let (done, got) = opened(&acceptor, &token, size).unwrap();
        prop_assert_eq!((done.sequence, done.is_sealed), (78, false));
        prop_assert_eq!(got, plain);
    }

    #[test]
    fn changed_bit_is_detected(
        enctype in enctypes(), plain in prop::collection::vec(any::<u8>(), 0..100), at: prop::sample::Index, bit in 0u8..8,
    ) {
        let [initiator, acceptor] = pair(enctype);
        for mut token in [sealed(&initiator, &plain, 100), unsealed(&initiator, &plain)] {
            let at = at.index(token.len());
            token[at] ^= 1 << bit;
            // A rotation by the whole length does not change the token's meaning.
            let same = (6..8).contains(&at) && opened(&acceptor, &token, 64).is_ok_and(|(_, got)| got == plain);
            prop_assert!(same || opened(&acceptor, &token, 64).is_err(), "byte {}", at);
        }
        let mut mic = initiator.mic(5, &[&plain]).to_vec();
        let at = at.index(mic.len());
        mic[at] ^= 1 << bit;
        prop_assert_eq!(acceptor.verify_mic(&mic, &[&plain]), Err(Failed));
    }

    #[test]
    fn arbitrary_bytes_never_panic(enctype in enctypes(), mut bytes: Vec<u8>, size in 1usize..40) {
        let [_, acceptor] = pair(enctype);
        let header = [5, 4, SEALED | ACCEPTOR_SUBKEY, 0xff];
        for (slot, byte) in bytes.iter_mut().zip(header) {
            *slot = byte;
        }
        prop_assert_eq!(opened(&acceptor, &bytes, size), Err(Failed));
        prop_assert_eq!(acceptor.verify_mic(&bytes, &[]), Err(Failed));
    }

    #[test]
    fn mic_binds_message_and_direction(
        enctype in enctypes(), message: Vec<u8>, sequence: u64, cut: prop::sample::Index,
    ) {
        let [initiator, acceptor] = pair(enctype);
        let mic = initiator.mic(sequence, &[&message]);
        prop_assert_eq!(mic.len(), initiator.mic_len());
        let (a, b) = message.split_at(cut.index(message.len() + 1));
        prop_assert_eq!(acceptor.verify_mic(&mic, &[a, b]), Ok(sequence));
        prop_assert_eq!(acceptor.verify_mic(&mic, &[a, b, &[0]]), Err(Failed));
        prop_assert_eq!(initiator.verify_mic(&mic, &[&message]), Err(Failed));
        prop_assert_eq!(acceptor.verify_mic(&mic[..mic.len() - 1], &[&message]), Err(Failed));
    }
}

/// Windows adds filler after the plaintext (EC, MS-KILE section 3.4.5.4.1); a sender may add any number of bytes.
#[test]
fn filler_is_not_plaintext() {
    let [initiator, acceptor] = pair(Enctype::Aes256Sha1);
    let mut header = initiator.wrap_header(9, SEALED, 16);
    let (mut work, mut last) = ([vec![0; 16], b"plain".to_vec(), vec![0; 16]].concat(), header);
    let tag = cts::encrypt(&initiator.own_seal, &mut [&mut work, &mut last]).unwrap();
    let token = [&header[..], &work, &last, &tag].concat();
    assert_eq!(opened(&acceptor, &token, 1000).unwrap().1, b"plain");
    // EC is part of the encrypted header.
    header[5] = 15;
    let token = [&header[..], &work, &last, &tag].concat();
    assert_eq!(opened(&acceptor, &token, 1000), Err(Failed));
}

#[test]
fn token_without_acceptor_subkey_differs() {
    let key = [3; 16];
    let enctype = Enctype::Aes128Sha2;
    let with = Context::new(enctype, &key, Role::Acceptor, true).unwrap();
    let without = Context::new(enctype, &key, Role::Initiator, false).unwrap();
    assert_eq!(with.verify_mic(&without.mic(1, &[]), &[]), Err(Failed));
    assert_eq!(opened(&with, &sealed(&without, b"x", 1), 9), Err(Failed));
}

#[test]
fn confounders_are_unique() {
    let [initiator, _] = pair(Enctype::Aes256Sha2);
    assert_ne!(sealed(&initiator, b"same", 4), sealed(&initiator, b"same", 4));
}
