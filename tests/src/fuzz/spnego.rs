//! SPNEGO with Kerberos and NTLM on the server side, with all possible results of the Kerberos library.

use gss_krb5::Cause;
use smb_auth::ticket::{Context, Proof, Refused, Why};
use smb_auth::{Acceptor, Fresh, Identity, Mechs, NtHash, Policy, Secrets, Step, Who};

/// Tokens of one client.
const TOKENS_MAX: usize = 8;
/// The signature that the library makes and verifies.
const MIC: &[u8] = b"a mic";

/// A context whose signatures are all equal.
struct Alike;

impl Context for Alike {
    fn sign(&mut self, _message: &[u8]) -> Option<Vec<u8>> {
        Some(MIC.to_vec())
    }

    fn verify(&mut self, _message: &[u8], mic: &[u8]) -> bool {
        mic == MIC
    }

    fn ends(self: Box<Self>) -> Option<u64> {
        Some(77)
    }
}

struct OneUser;

impl Secrets for OneUser {
    fn nt_hash(&self, _domain: &str, user: &str) -> Option<NtHash> {
        (user == "user").then(|| NtHash::of("pass"))
    }
}

fn proof() -> Proof<&'static str> {
    Proof {
        principal: "alice@LAB.TEST".into(),
        service: "cifs/gw@LAB.TEST".into(),
        user: "alice",
        key: vec![3; 32].into(),
        token: b"AP-REP".to_vec(),
        context: Box::new(Alike),
    }
}

/// Input: a byte that selects the mechanisms and whether tickets are valid; then tokens, each after a 16-bit length. A ticket never
/// admits a client if the library was not called or refused it, or if tickets are disabled.
pub fn spnego_tickets(data: &[u8]) {
    let Some((how, mut rest)) = data.split_first() else { return };
    let mechs = Mechs { kerberos: how & 1 != 0, ntlm: how & 2 != 0 };
    let is_good = how & 4 != 0;
    let fresh = Fresh { challenge: [7; 8], key: [8; 16], time: 0 };
    let mut acceptor = Acceptor::new(Identity::standalone("gw"), fresh, Policy::default(), mechs);
    let mut asked = false;
    for _ in 0..TOKENS_MAX {
        let Some((len, more)) = rest.split_first_chunk() else { return };
        let (token, more) = more.split_at(usize::from(u16::from_le_bytes(*len)).min(more.len()));
        rest = more;
        let mut step = acceptor.step(token, &OneUser);
        if let Step::Prove(ticket) = &step {
            assert!(mechs.kerberos, "tickets are not served");
            let is_sent = ticket.is_empty() || token.windows(ticket.len()).any(|w| w == ticket);
            assert!(is_sent, "what the client sent");
            assert!(!asked, "one ticket of a client is looked at");
            asked = true;
            let refused = || Refused::unread(Why::Kerberos(Cause::WrongKey), "another key");
            step = acceptor.proved(is_good.then(proof).ok_or_else(refused));
        }
        match step {
            Step::Continue(token) => {
                assert!(!token.is_empty(), "a client that has to go on hears what")
            }
            Step::Prove(_) => panic!("asked again for what was told"),
            Step::Ask(_) | Step::LookUp(..) => panic!("no domain and no directory is served"),
            Step::Done { who: Who::Ticket(ticket), key, .. } => {
                assert!(asked && is_good && key.is_some(), "{ticket:?} without a proof");
                return;
            }
            Step::Done { .. } | Step::Refused(_) => return,
        }
    }
}

/// One element of DER, of less than 64 KiB.
fn element(tag: u8, value: &[u8]) -> Vec<u8> {
    let len = value.len();
    let [high, low] = u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
    let head = if len < 128 { vec![tag, low] } else { vec![tag, 0x82, high, low] };
    [head, value.to_vec()].concat()
}

/// A ticket in the first token, as its first and as its second mechanism; raw; and together with NTLM (RFC 4178 section 4.2).
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let krb5: &[u8] = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02";
    let ms_krb5: &[u8] = b"\x2a\x86\x48\x82\xf7\x12\x01\x02\x02";
    let ntlm: &[u8] = b"\x2b\x06\x01\x04\x01\x82\x37\x02\x02\x0a";
    let ap_req = element(0x60, &[&element(6, krb5), &[1, 0][..], b"an AP-REQ"].concat());
    let first = |mechs: &[&[u8]], token: &[u8]| {
        let list: Vec<u8> = mechs.iter().flat_map(|mech| element(6, mech)).collect();
        let list = element(0xa0, &element(0x30, &list));
        let token = element(0xa2, &element(4, token));
        let init = element(0xa0, &element(0x30, &[list, token].concat()));
        element(0x60, &[element(6, b"\x2b\x06\x01\x05\x05\x02"), init].concat())
    };
    let further = |token: &[u8], mic: &[u8]| {
        let (token, mic) = (element(0xa2, &element(4, token)), element(0xa3, &element(4, mic)));
        element(0xa1, &element(0x30, &[token, mic].concat()))
    };
    let with = |how: u8, tokens: &[Vec<u8>]| {
        let sent = tokens.iter().flat_map(|token| {
            let len = u16::try_from(token.len()).unwrap_or(0).to_le_bytes();
            [len.to_vec(), token.clone()].concat()
        });
        [how].into_iter().chain(sent).collect::<Vec<u8>>()
    };
    let mut seeds = Vec::new();
    for how in 0..8 {
        seeds.push(with(how, &[first(&[krb5, ntlm], &ap_req)]));
        seeds.push(with(how, &[first(&[ms_krb5, krb5], &ap_req), further(&ap_req, MIC)]));
        seeds.push(with(
            how,
            &[first(&[ntlm, krb5], b"NTLMSSP\0"), further(&ap_req, MIC), further(b"", MIC)],
        ));
        seeds.push(with(how, std::slice::from_ref(&ap_req)));
    }
    seeds
}
