//! Verifies and opens tokens of another implementation (MIT); this crate's tokens have the same form.

use super::*;
use crate::unhex;

fn opened(context: &Context, token: &[u8]) -> (Vec<u8>, bool, u64) {
    let mut work = token.to_vec();
    let mut pieces: Vec<&mut [u8]> = work.chunks_mut(7).collect();
    let done = context.unwrap(&mut pieces).expect("a token of MIT's");
    (work[done.start..done.start + done.len].to_vec(), done.is_sealed, done.sequence)
}

#[test]
fn mit_tokens_are_opened() {
    let (mut contexts, mut seen) = (None, 0);
    for line in include_str!("mit.txt").lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(' ').collect();
        if let ["key", number, key] = fields[..] {
            let enctype = Enctype::from_number(number.parse().unwrap()).unwrap();
            let of = |role| Context::new(enctype, &unhex(key), role, true).unwrap();
            contexts = Some((of(Role::Initiator), of(Role::Acceptor)));
            continue;
        }
        let (initiator, acceptor) = contexts.as_ref().unwrap();
        let [sender, len, mic, sealed, unsealed] = fields[..] else { panic!("{line}") };
        let message: Vec<u8> =
            (0..len.parse().unwrap()).map(|i: u32| u8::try_from(i * 7 % 256).unwrap()).collect();
        let (own, peer) =
            if sender == "initiator" { (initiator, acceptor) } else { (acceptor, initiator) };
        let [mic, sealed, unsealed] = [mic, sealed, unsealed].map(unhex);
        let sequence = peer.verify_mic(&mic, &[&message]).expect("a MIC of MIT's");
        assert_eq!(own.mic(sequence, &[&message])[..], mic, "a MIC has one form only");
        assert_eq!(opened(peer, &sealed), (message.clone(), true, sequence + 1));
        assert_eq!(opened(peer, &unsealed), (message.clone(), false, sequence + 2));
        let ours = own.wrap_unsealed(sequence + 2, &[&message]);
        assert_eq!([ours.head(), &message, ours.tail()].concat(), unsealed);
        seen += 1;
    }
    assert_eq!(seen, 4 * 2 * 6);
}
