//! Changes of passwords, and calls that NTLM encrypts. The tier `third` (passwords) does the same with other implementations.

use std::sync::Mutex;

use smb_proto::rpce::{HEADER_LEN, Pdu, Verifier};

use super::samr::Asker;
use super::*;
use crate::auth::ntlm::{self, Credentials, Initiator, Protection};
use crate::auth::password::{Aes, Change};
use crate::auth::{Account, Fresh, Identity, NtHash, Policy, Secrets};

const OLD: &str = "old password";

/// A host with the account `alice`.
struct Keeper {
    knows_caller: bool,
    /// The present password.
    password: Mutex<String>,
}

impl Keeper {
    fn new() -> Self {
        Self { knows_caller: true, password: Mutex::new(OLD.to_owned()) }
    }

    fn password(&self) -> String {
        locked(&self.password).clone()
    }
}

impl Secrets for Keeper {
    fn nt_hash(&self, _: &str, user: &str) -> Option<NtHash> {
        (user == "alice").then(|| NtHash::of(&self.password()))
    }
}

impl Guard for Keeper {
    fn acceptor(&self) -> Option<ntlm::Acceptor> {
        let (identity, fresh) = (Identity::standalone("gate"), fresh(2));
        Some(ntlm::Acceptor::new(identity, fresh, Policy::default(), None))
    }

    fn prove(&self, acceptor: &mut ntlm::Acceptor, message: &[u8]) -> Option<Protection> {
        acceptor.authenticate_sealed(message, self).ok().map(|(_, protection)| protection)
    }
}

impl Host for Keeper {
    fn computer(&self) -> String {
        Fake.computer()
    }
    fn shares(&self) -> Vec<(String, String)> {
        Fake.shares()
    }
    fn shares_size(&self) -> (usize, usize) {
        Fake.shares_size()
    }
    fn machine(&self) -> Sid {
        Fake.machine()
    }
    fn account(&self, name: &str) -> Option<(String, u32)> {
        Fake.account(name)
    }
    fn account_of_uid(&self, uid: u32) -> Option<String> {
        Fake.account_of_uid(uid)
    }
    fn each_account(&self, each: &mut dyn FnMut(&str, &Cred)) {
        Fake.each_account(each);
    }
    fn knows_caller(&self) -> bool {
        self.knows_caller
    }
    fn others(&self) -> &dyn Directory {
        &Fake
    }
    fn caller(&self) -> String {
        Fake.caller()
    }
    fn times(&self) -> (u64, u64) {
        Fake.times()
    }
    fn sessions(&self) -> u32 {
        Fake.sessions()
    }
    fn password_length(&self) -> u16 {
        9
    }
    fn change_password(&self, name: &str, change: &Change) -> Result<(), NotChanged> {
        assert!(["alice", "user"].contains(&name), "{name}");
        let mut password = locked(&self.password);
        match change.open(&NtHash::of(&password)) {
            Err(_) => Err(NotChanged { status: Status::WRONG_PASSWORD, reason: 0 }),
            Ok(new) if new.len() < 9 => {
                Err(NotChanged { status: Status::PASSWORD_RESTRICTION, reason: 1 })
            }
            Ok(new) => {
                (*new).clone_into(&mut password);
                Ok(())
            }
        }
    }
}

fn fresh(n: u8) -> Fresh {
    Fresh { challenge: [n; 8], key: [n; 16], time: 0 }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|d| u8::try_from(d[0] << 4 | d[1]).unwrap()).collect()
}

/// Arguments of SamrUnicodeChangePasswordUser2 as impacket 0.10 sends them, for `user`.
fn by_impacket() -> Vec<u8> {
    unhex(include_str!("impacket55.hex"))
}

/// Arguments of SamrUnicodeChangePasswordUser4 as Samba 4.17 sends them, for `alice`.
fn by_samba() -> Vec<u8> {
    unhex(include_str!("samba73.hex"))
}

/// A null name of the server, and the name of the account.
fn named() -> Vec<u8> {
    let mut stub = words_of(&[0, 0x000a_000a, 1, 5, 0, 5]);
    put_utf16(&mut stub, "alice");
    stub.extend([0, 0]);
    stub
}

fn words_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Arguments of methods 55 and 63.
fn with_rc4(old: &str, new: &str) -> Vec<u8> {
    let change = Change::seal_rc4(&NtHash::of(old), new, [7; 512]);
    let Some(Change::Rc4 { password, verifier }) = change else { panic!("too long") };
    let mut stub = named();
    stub.extend(words_of(&[1]));
    stub.extend(&password[..]);
    stub.extend(words_of(&[1]));
    stub.extend(verifier);
    stub.extend(words_of(&[0, 0, 0, 0]));
    stub
}

/// Arguments of method 73 with this number of rounds on the wire.
fn with_aes(old: &str, new: &str, iterations: u64) -> Vec<u8> {
    let aes = Aes::seal(&NtHash::of(old), new, [7; 16], 5000).unwrap();
    let (auth_data, salt, cipher, _) = aes.fields();
    let mut stub = named();
    stub.resize(stub.len().next_multiple_of(8), 0);
    stub.extend(auth_data);
    stub.extend(salt);
    let len = u32::try_from(cipher.len()).unwrap();
    stub.extend(words_of(&[len, 1]));
    stub.extend(iterations.to_le_bytes());
    stub.extend(words_of(&[len]));
    stub.extend(cipher);
    stub
}

fn status(found: &[u8]) -> Status {
    Status(*words(found).last().unwrap())
}

#[test]
fn calls_of_other_clients_change_a_password() {
    for (op, stub, new) in
        [(55, by_impacket(), "new p\u{e4}ssword"), (73, by_samba(), "new p\u{e4}ssword \u{1f511}")]
    {
        let host = Keeper::new();
        let asker = Asker::of(&host);
        assert_eq!(asker.ask(op, &stub), Ok(vec![0; 4]), "{op}");
        assert_eq!(host.password(), new);
        assert_eq!(asker.ask(op, &stub).map(|found| status(&found)), Ok(Status::WRONG_PASSWORD));
        assert_eq!(host.password(), new);
    }
}

#[test]
fn refused_change_returns_status_and_rule() {
    let host = Keeper::new();
    let asker = Asker::of(&host);
    let ask = |op, stub: &[u8]| asker.ask(op, stub).unwrap();
    for (op, stub) in [(55, with_rc4(OLD, "short")), (73, with_aes(OLD, "short", 5000))] {
        assert_eq!(ask(op, &stub), words_of(&[Status::PASSWORD_RESTRICTION.0]));
    }
    let found = words(&ask(63, &with_rc4(OLD, "short")));
    // The least length, the properties, and two times; then the reason and an empty name.
    assert_eq!((found[1], found[2], found[8], found[9]), (9, 1, 1, 0));
    assert_eq!((found.len(), found[11]), (12, Status::PASSWORD_RESTRICTION.0));
    let wrong = ask(63, &with_rc4("other", "long enough"));
    assert_eq!(words(&wrong), [0, 0, Status::WRONG_PASSWORD.0]);
    assert_eq!(host.password(), OLD);
    assert_eq!(words(&ask(63, &with_rc4(OLD, "long enough"))), [0, 0, 0]);
    assert_eq!(host.password(), "long enough");
    assert_eq!(words(&ask(73, &with_aes("long enough", "even longer", 5000))), [0]);
    assert_eq!(host.password(), "even longer");
}

#[test]
fn arguments_that_break_the_rules_are_refused() {
    const BAD_STUB: u32 = 0x6f7;
    let host = Keeper::new();
    let asker = Asker::of(&host);
    let ask = |op, stub: &[u8]| asker.ask(op, stub).map(|found| status(&found));
    for iterations in [0, 4999, 1_000_001, 1 << 32, u64::MAX] {
        let stub = with_aes(OLD, "long enough", iterations);
        assert_eq!(ask(73, &stub), Ok(Status::INVALID_PARAMETER), "{iterations}");
    }
    for missing in
        [words_of(&[0, 0, 0, 0, 0]), [words_of(&[1]), vec![0; 516], words_of(&[0])].concat()]
    {
        let stub = [named(), missing].concat();
        assert_eq!(ask(55, &stub), Ok(Status::INVALID_PARAMETER));
    }
    for (op, whole) in
        [(55, with_rc4(OLD, "long enough")), (73, with_aes(OLD, "long enough", 5000))]
    {
        // The hashes of LAN Manager at the end are not read.
        let end = if op == 55 { whole.len() - 16 } else { whole.len() };
        for len in 0..end {
            assert_eq!(ask(op, &whole[..len]), Err(BAD_STUB), "{op} {len}");
        }
    }
    // The cipher's length is there twice.
    let mut stub = with_aes(OLD, "long enough", 5000);
    let at = stub.len() - 528 - 4;
    stub[at] ^= 1;
    assert_eq!(ask(73, &stub), Err(BAD_STUB));
    // A cipher that is longer than any client's.
    (stub[at], stub[at - 16]) = (0x10, 0x10);
    (stub[at + 1], stub[at - 15]) = (0xff, 0xff);
    assert_eq!(ask(73, &stub), Err(BAD_STUB));
    assert_eq!(host.password(), OLD);
    let stranger = Keeper { knows_caller: false, ..Keeper::new() };
    let refused = Asker::of(&stranger).ask(55, &with_rc4(OLD, "long enough"));
    assert_eq!(refused.map(|found| status(&found)), Ok(Status::ACCESS_DENIED));
    assert_eq!(stranger.password(), OLD);
    for op in [38, 52, 54, 58] {
        assert_eq!(asker.ask(op, &[0; 600]), Err(5), "{op} stays refused");
    }
}

#[test]
fn rules_of_passwords_are_told() {
    let host = Keeper::new();
    let asker = Asker::of(&host);
    assert_eq!(asker.ask(56, &words_of(&[0])), Ok(words_of(&[9, 1, 0])));
    let domain = asker.machine();
    let level = [&domain[..], &[1, 0]].concat();
    let found = words(&asker.ask(8, &level).unwrap());
    assert_eq!((found[2], found[3], found.last()), (9, 1, Some(&0)));
    let open = [&domain[..], &words_of(&[0x0200_0000, 3000])].concat();
    let (user, opened) = asker.open(34, &open);
    assert_eq!(opened, Status::SUCCESS);
    assert_eq!(asker.ask(44, &user), Ok(words_of(&[9, 1, 0])));
}

/// A client whose calls NTLM encrypts.
struct Sealer {
    pipe: Pipe,
    protection: Protection,
}

/// Builds a fragment that ends with this verifier.
fn with_verifier(kind: u8, flags: u8, mut body: Vec<u8>, verifier: Verifier<'_>) -> Vec<u8> {
    verifier.put(&mut body);
    let auth_len = u16::try_from(verifier.value.len()).unwrap();
    Pdu { version: (5, 0), kind, flags, call_id: 2, auth_len, body: &body }.emit()
}

const PRIVACY: Verifier<'_> = Verifier { kind: 10, level: 6, pad: 0, context: 77, value: &[] };

/// Binds with this verifier's provider and level, and returns the pipe and the answer.
fn bind_sealed(interface: Interface, verifier: Verifier<'_>, host: &dyn Host) -> (Pipe, Vec<u8>) {
    let name = ["srvsvc", "wkssvc", "lsarpc", "samr"][interface as usize];
    let pipe = open(name, part()).unwrap();
    let body = bind(interface, 4280)[HEADER_LEN..].to_vec();
    let answer = pipe.transceive(host, &with_verifier(11, 3 | 4, body, verifier), 4280).unwrap();
    (pipe, answer.data)
}

fn initiator(password: &str) -> Initiator {
    let account =
        Account { user: "alice".into(), domain: "GATE".into(), workstation: String::new() };
    let hash = NtHash::of(password);
    let credentials = Credentials { account, hash, target_name: "host/gate".into() };
    Initiator::new(credentials, fresh(1))
}

impl Sealer {
    fn new(host: &dyn Host, password: &str) -> Self {
        let client = initiator(password);
        let first = client.negotiate();
        let verifier = Verifier { value: &first, ..PRIVACY };
        let (pipe, answer) = bind_sealed(Interface::Samr, verifier, host);
        assert_eq!((answer[2], answer[3]), (12, 3 | 4), "signed headers are confirmed");
        let (ack, _) = Pdu::parse(&answer, 4280).unwrap().unwrap();
        let (_, verifier) = ack.split_verifier().unwrap().unwrap();
        assert_eq!((verifier.kind, verifier.level, verifier.context), (10, 6, 77));
        let (proof, protection) = client.authenticate_sealed(verifier.value).unwrap();
        let proof = Verifier { value: &proof, ..PRIVACY };
        pipe.write(host, &with_verifier(16, 3, vec![0; 4], proof)).unwrap();
        assert_eq!(pipe.read(10), Err(Status::PIPE_EMPTY), "a proof has no answer");
        Self { pipe, protection }
    }

    /// Builds an encrypted call.
    fn request(&mut self, op: u16, stub: &[u8]) -> Vec<u8> {
        let mut body = request(3, op, stub)[HEADER_LEN..].to_vec();
        let pad = stub.len().next_multiple_of(16) - stub.len();
        let verifier = Verifier { pad: u8::try_from(pad).unwrap(), ..PRIVACY };
        verifier.put(&mut body);
        body.extend([0; 16]);
        let pdu = Pdu { version: (5, 0), kind: 0, flags: 3, call_id: 2, auth_len: 16, body: &body };
        let mut out = pdu.emit();
        let signed = out.len() - 16;
        let (message, signature) = out.split_at_mut(signed);
        signature.copy_from_slice(&self.protection.seal(message, 24..24 + stub.len() + pad));
        out
    }

    /// Calls, and returns the decrypted results.
    fn ask(&mut self, host: &dyn Host, op: u16, stub: &[u8]) -> Vec<u8> {
        let request = self.request(op, stub);
        let mut pieces = vec![self.pipe.transceive(host, &request, 4280).unwrap().data];
        while pieces.last().is_some_and(|last| last[3] & 2 == 0) {
            pieces.push(self.pipe.read(4280).unwrap().data);
        }
        let mut results = Vec::new();
        for mut piece in pieces {
            assert_eq!((piece[2], &piece[10..12]), (2, &[16, 0][..]), "a signed response");
            let signature = piece.split_off(piece.len() - 16);
            let stub = 24..piece.len() - 8;
            assert!(self.protection.unseal(&mut piece, stub.clone(), &signature));
            let pad = usize::from(piece[stub.end + 2]);
            results.extend(&piece[stub.start..stub.end - pad]);
        }
        results
    }
}

#[test]
fn encrypted_calls_are_answered_encrypted() {
    let host = Keeper::new();
    let mut client = Sealer::new(&host, OLD);
    let stub = with_rc4(OLD, "long enough");
    assert_eq!(client.ask(&host, 55, &stub), [0; 4]);
    assert_eq!(host.password(), "long enough");
    assert_eq!(client.ask(&host, 56, &words_of(&[0])), words_of(&[9, 1, 0]));
    // An answer in several fragments.
    let many = samr::Other { knows_caller: true, accounts: 500 };
    let open = client.ask(&many, 57, &words_of(&[0, 0x0200_0000]));
    let sid = many.machine();
    let mut stub = [&open[..20], &words_of(&[0x0200_0000, 4])].concat();
    sid.put(&mut stub);
    let domain = client.ask(&many, 7, &stub)[..20].to_vec();
    let users = client.ask(&many, 13, &[domain, words_of(&[0, 0, 0xffff])].concat());
    assert!(users.len() > 3 * 4280);
    assert_eq!(words(&users)[2], 500);
}

#[test]
fn calls_without_the_right_signature_end_the_pipe() {
    let host = Keeper::new();
    let stub = words_of(&[0]);
    let mut client = Sealer::new(&host, OLD);
    let good = client.request(56, &stub);
    // The header, the encrypted stub, the verifier and the signature.
    for at in [12, 20, 24, good.len() - 24, good.len() - 20, good.len() - 1] {
        let mut client = Sealer::new(&host, OLD);
        let mut changed = client.request(56, &stub);
        assert_eq!(changed, good);
        changed[at] ^= 1;
        assert_eq!(client.pipe.write(&host, &changed), Err(Status::PIPE_DISCONNECTED), "{at}");
    }
    let client = Sealer::new(&host, OLD);
    assert_eq!(client.pipe.write(&host, &good), Ok(()));
    assert_eq!(client.pipe.write(&host, &good), Err(Status::PIPE_DISCONNECTED), "sent again");
    let client = Sealer::new(&host, OLD);
    let plain = request(3, 56, &stub);
    assert_eq!(client.pipe.write(&host, &plain), Err(Status::PIPE_DISCONNECTED), "not signed");
}

#[test]
fn wrong_password_of_a_bind_gives_no_call_a_result() {
    let host = Keeper::new();
    let mut client = Sealer::new(&host, "wrong");
    for request in [client.request(56, &words_of(&[0])), request(3, 56, &words_of(&[0]))] {
        let answer = client.pipe.transceive(&host, &request, 4280).unwrap().data;
        assert_eq!((answer[2], words(&answer[24..])[0]), (3, 5), "ERROR_ACCESS_DENIED");
    }
}

#[test]
fn other_providers_levels_and_pipes_are_not_offered() {
    let host = Keeper::new();
    let first = initiator(OLD).negotiate();
    for (interface, kind, level, value) in [
        (Interface::Samr, 9, 6, &first[..]),
        (Interface::Samr, 10, 5, &first),
        (Interface::Samr, 10, 2, &first),
        (Interface::Samr, 10, 6, b"NTLMSSP"),
        (Interface::Srvsvc, 10, 6, &first),
        (Interface::Lsarpc, 10, 6, &first),
    ] {
        let verifier = Verifier { kind, level, value, ..PRIVACY };
        let (_, answer) = bind_sealed(interface, verifier, &host);
        // bind_nak, authentication_type_not_recognized.
        assert_eq!((answer[2], answer[16]), (13, 8), "{interface:?} {kind} {level}");
    }
    let (_, answer) = bind_sealed(Interface::Samr, Verifier { value: &first, ..PRIVACY }, &Fake);
    assert_eq!(answer[2], 13, "without passwords");
    let (pipe, _) = bind_sealed(Interface::Samr, Verifier { value: &first, ..PRIVACY }, &host);
    let early = request(3, 56, &words_of(&[0]));
    assert_eq!(pipe.write(&host, &early), Err(Status::PIPE_DISCONNECTED), "before the proof");
}
