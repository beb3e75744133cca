//! Remote procedure calls over the named pipes of SMB.

use std::net::SocketAddr;

use rdma_transport::parts::Limit;
use smb_auth::ntlm::{Acceptor, Credentials, Initiator, Protection};
use smb_auth::password::{Aes, Change, Wrong};
use smb_auth::{Account, Fresh, Identity, NtHash, Policy, Secrets};
use smbd_core::dtyp::Sid;
use smbd_core::parts::Parts;
use smbd_core::pipe::{self, Guard, Host, NotChanged, Pipe, UNREAD_MAX};
use smbd_core::status::Status;
use vfs::Cred;
use vfs::accounts::{Directory, Nobody};

struct Fixed;

impl Secrets for Fixed {
    fn nt_hash(&self, _: &str, user: &str) -> Option<NtHash> {
        (user == "user").then(|| NtHash::of(PASSWORD))
    }
}

impl Guard for Fixed {
    fn acceptor(&self) -> Option<Acceptor> {
        let fresh = Fresh { challenge: [2; 8], key: [2; 16], time: 0 };
        let identity = Identity::standalone("gateway");
        Some(Acceptor::new(identity, fresh, Policy::default(), None))
    }

    fn prove(&self, acceptor: &mut Acceptor, message: &[u8]) -> Option<Protection> {
        acceptor.authenticate_sealed(message, self).ok().map(|(_, protection)| protection)
    }
}

impl Host for Fixed {
    fn computer(&self) -> String {
        "GATEWAY".into()
    }
    fn shares(&self) -> Vec<(String, String)> {
        vec![("data".into(), "comment".into()), ("more".into(), String::new())]
    }
    fn shares_size(&self) -> (usize, usize) {
        (11, 2)
    }
    fn each_account(&self, each: &mut dyn FnMut(&str, &Cred)) {
        each(
            "user",
            &Cred { uid: 1000, gid: 1000, groups: [1001].into(), token: vfs::Token::NONE },
        );
    }
    fn knows_caller(&self) -> bool {
        true
    }
    fn machine(&self) -> Sid {
        Sid::new(5, &[21, 1, 2, 3]).unwrap_or_else(Sid::everyone)
    }
    fn account(&self, name: &str) -> Option<(String, u32)> {
        (name == "user").then(|| (name.to_owned(), 1000))
    }
    fn account_of_uid(&self, uid: u32) -> Option<String> {
        (uid == 1000).then(|| "user".into())
    }
    fn others(&self) -> &dyn Directory {
        &Nobody
    }
    fn caller(&self) -> String {
        "user".into()
    }
    fn times(&self) -> (u64, u64) {
        (1_700_000_000_000, 0)
    }
    fn sessions(&self) -> u32 {
        1
    }
    fn change_password(&self, _: &str, change: &Change) -> Result<(), NotChanged> {
        let wrong = NotChanged { status: Status::WRONG_PASSWORD, reason: 0 };
        // Clients choose how long it takes to derive a key.
        let opened =
            if change.is_slow() { Err(Wrong::Proof) } else { change.open(&NtHash::of(PASSWORD)) };
        match opened {
            Err(Wrong::Proof) => Err(wrong),
            Err(Wrong::Text) => Err(NotChanged { status: Status::PASSWORD_RESTRICTION, reason: 5 }),
            Ok(_) => Ok(()),
        }
    }
}

const PASSWORD: &str = "old password";

/// Name, identifier and version of each interface.
const PIPES: [(&str, [u8; 16], u8); 4] = [
    ("srvsvc", *b"\xc8\x4f\x32\x4b\x70\x16\xd3\x01\x12\x78\x5a\x47\xbf\x6e\xe1\x88", 3),
    ("wkssvc", *b"\x98\xd0\xff\x6b\x12\xa1\x10\x36\x98\x33\x46\xc3\xf8\x7e\x34\x5a", 1),
    ("samr", *b"\x78\x57\x34\x12\x34\x12\xcd\xab\xef\x00\x01\x23\x45\x67\x89\xac", 1),
    ("lsarpc", *b"\x78\x57\x34\x12\x34\x12\xcd\xab\xef\x00\x01\x23\x45\x67\x89\xab", 0),
];
const NDR: [u8; 16] = *b"\x04\x5d\x88\x8a\xeb\x1c\xc9\x11\x9f\xe8\x08\x00\x2b\x10\x48\x60";

fn pdu(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(16 + body.len()).unwrap_or(u16::MAX).to_le_bytes();
    let head = [5, 0, kind, 3, 0x10, 0, 0, 0, len[0], len[1], 0, 0, 1, 0, 0, 0];
    [&head[..], body].concat()
}

/// Returns the handle with this number.
fn handle(number: u32) -> Vec<u8> {
    [&[0; 4][..], &number.to_le_bytes(), b"headgate sam"].concat()
}

/// Opens handles 1 to 6: the server, its domain, an account, the group of all accounts, S-1-5-32, and a local group in it.
fn open_objects(pipe: &Pipe) {
    const ALLOWED: [u8; 4] = [0, 0, 0, 2];
    let rid =
        |domain, rid: u32| [handle(domain), ALLOWED.into(), rid.to_le_bytes().into()].concat();
    let domain = |sid: Sid| {
        let count = u32::try_from(sid.subs().len()).unwrap_or_default();
        [handle(1), ALLOWED.into(), count.to_le_bytes().into(), sid.emit()].concat()
    };
    let builtin = Sid::new(5, &[32]).unwrap_or_else(Sid::everyone);
    for (op, stub) in [
        (57_u16, [vec![0; 4], ALLOWED.into()].concat()),
        (7, domain(Fixed.machine())),
        (34, rid(2, 3000)),
        (19, rid(2, 513)),
        (7, domain(builtin)),
        (27, rid(5, 544)),
    ] {
        let call = [&[0; 6][..], &op.to_le_bytes(), &stub].concat();
        let found = pipe.transceive(&Fixed, &pdu(0, &call), 4280);
        let is_open = found.is_ok_and(|answer| answer.data.ends_with(&[0; 4]));
        assert!(is_open, "operation {op} opens");
    }
}

/// Input: the pipe; then either raw bytes of the pipe (odd), or an operation and its arguments after a valid bind.
pub fn smb_pipe(data: &[u8]) {
    let Some(([which, op], rest)) = data.split_first_chunk() else { return };
    let (name, uuid, version) = PIPES[usize::from(which / 2) % 4];
    let parts = Parts::new([
        Limit::new("pipe-bytes", 8 << 20),
        Limit::new("pipe-bytes-of-address", 8 << 20),
    ]);
    let part = parts.of(SocketAddr::from(([192, 0, 2, 1], 1)));
    let Ok(pipe) = pipe::open(name, part) else { return };
    let context = [1, 0, 0, 0, 0, 0, 1, 0];
    let bind = [
        &[0xb8, 0x10, 0xb8, 0x10, 0, 0, 0, 0][..],
        &context,
        &uuid,
        &[version, 0, 0, 0],
        &NDR,
        &[2, 0, 0, 0],
    ];
    let bound = pipe.transceive(&Fixed, &pdu(11, &bind.concat()), 4280);
    assert!(bound.is_ok_and(|ack| ack.data[2] == 12), "a good bind is acknowledged");
    if which % 2 == 1 {
        for part in rest.chunks(usize::from(*op) + 1) {
            let _ = pipe.write(&Fixed, part);
        }
    } else {
        if name == "samr" {
            open_objects(&pipe);
        }
        let call = [&[0, 0, 0, 0, 0, 0, *op, 0][..], &rest[..rest.len().min(4000)]].concat();
        assert_eq!(pipe.write(&Fixed, &pdu(0, &call)), Ok(()), "a whole call is answered");
        assert!(pipe.waiting().0 >= 24, "by a response or a fault");
    }
    assert!(pipe.waiting().0 <= 2 * UNREAD_MAX);
    while let Ok(piece) = pipe.read(1000) {
        assert!(!piece.data.is_empty());
    }
}

/// A call of each kind.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let words = |n: &[u32]| n.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let call = |which: u8, op: u8, stub: Vec<u8>| [vec![which, op], stub].concat();
    let enumerate = words(&[0, 1, 1, 1, 0, 0, u32::MAX, 1, 0]);
    let name = [words(&[0, 5, 0, 5]), b"d\0a\0t\0a\0\0\0\0\0".to_vec(), words(&[2])].concat();
    let mut sids = b"\0\0\0\0headgate policy\x01".to_vec();
    sids.extend(words(&[1, 1, 1, 1, 2]));
    sids.extend(Sid::unix_user(1000).emit());
    sids.extend(words(&[0, 0, 1, 0, 0, 2]));
    let mut names = b"\0\0\0\0headgate policy\x01".to_vec();
    names.extend(words(&[1, 1, 0x0008_0008, 1, 4, 0, 4]));
    names.extend(b"u\0s\0e\0r\0");
    names.extend(words(&[0, 0, 1, 0, 0, 2]));
    let whole = pdu(0, &[&[0, 0, 0, 0, 0, 0, 15, 0][..], &enumerate].concat());
    vec![
        call(0, 15, enumerate),
        call(0, 16, name),
        call(0, 21, words(&[0, 102])),
        call(0, 28, words(&[0])),
        call(2, 0, words(&[0, 102])),
        call(6, 44, words(&[0; 8])),
        call(6, 46, [&b"\0\0\0\0headgate policy\x01"[..], &[5, 0]].concat()),
        call(6, 57, sids),
        call(6, 68, names),
        call(6, 45, words(&[0, 0, 0])),
        call(1, 40, whole),
        call(4, 13, [handle(2), words(&[0, 0, 0xffff])].concat()),
        call(
            4,
            17,
            [handle(2), words(&[1, 1000, 0, 1, 0x0008_0008, 1, 4, 0, 4]), b"u\0s\0e\0r\0".to_vec()]
                .concat(),
        ),
        call(4, 18, [handle(2), words(&[2, 1000, 0, 2, 3000, 513])].concat()),
        call(4, 36, [handle(3), vec![21, 0]].concat()),
        call(4, 46, [handle(2), vec![11, 0]].concat()),
        call(4, 48, [handle(2), words(&[1, 0, 100, 0xffff])].concat()),
        call(4, 16, [handle(2), words(&[1, 1, 1, 1, 2]), Sid::unix_user(1000).emit()].concat()),
        call(4, 25, handle(4)),
        call(4, 33, handle(6)),
        call(4, 3, [handle(3), words(&[4])].concat()),
        call(4, 64, words(&[0, 0x0200_0000, 1, 1, 3, 0])),
        call(4, 55, by_rc4()),
        call(4, 63, by_rc4()),
        call(4, 73, by_aes()),
        call(5, 255, sealed()),
    ]
}

/// A null name of the server, and the name of the account.
fn named() -> Vec<u8> {
    let mut stub: Vec<u8> =
        [0_u32, 0x0008_0008, 1, 4, 0, 4].iter().flat_map(|w| w.to_le_bytes()).collect();
    stub.extend(b"u\0s\0e\0r\0");
    stub
}

/// Arguments of a change of a password with RC4.
fn by_rc4() -> Vec<u8> {
    let change = Change::seal_rc4(&NtHash::of(PASSWORD), "new password", [7; 512]);
    let Some(Change::Rc4 { password, verifier }) = change else { return Vec::new() };
    [&named()[..], &[1, 0, 0, 0], &password[..], &[1, 0, 0, 0], &verifier, &[0; 16]].concat()
}

/// Arguments of a change of a password with AES.
fn by_aes() -> Vec<u8> {
    let aes = Aes::seal(&NtHash::of(PASSWORD), "new password", [7; 16], 5000);
    let Some(aes) = aes else { return Vec::new() };
    let (auth_data, salt, cipher, iterations) = aes.fields();
    let len = u32::try_from(cipher.len()).unwrap_or_default().to_le_bytes();
    let fixed = [&auth_data[..], salt, &len, &[1, 0, 0, 0], &iterations.to_le_bytes()].concat();
    [&named()[..], &fixed, &len, cipher].concat()
}

/// Raw bytes of a client whose calls NTLM encrypts: a second bind, the proof, and one call.
fn sealed() -> Vec<u8> {
    let of = |n| Fresh { challenge: [n; 8], key: [n; 16], time: 0 };
    let account =
        Account { user: "user".into(), domain: String::new(), workstation: String::new() };
    let credentials =
        Credentials { account, hash: NtHash::of(PASSWORD), target_name: "host/gateway".into() };
    let client = Initiator::new(credentials, of(1));
    let with = |kind: u8, body: &[u8], pad: u8, value: &[u8]| {
        let body = [body, &vec![0; pad.into()], &[10, 6, pad, 0, 0, 0, 0, 0], value].concat();
        let mut out = pdu(kind, &body);
        out[10..12].copy_from_slice(&u16::try_from(value.len()).unwrap_or_default().to_le_bytes());
        out
    };
    let (_, uuid, version) = PIPES[2];
    let head = [0xb8, 0x10, 0xb8, 0x10, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0];
    let bind = [&head[..], &uuid, &[version, 0, 0, 0], &NDR, &[2, 0, 0, 0]].concat();
    let first = client.negotiate();
    let mut stream = with(11, &bind, 0, &first);
    let challenge = Fixed.acceptor().and_then(|mut server| server.negotiate(&first).ok());
    let proof = challenge.and_then(|challenge| client.authenticate_sealed(&challenge).ok());
    let Some((proof, mut protection)) = proof else { return stream };
    stream.extend(with(16, &[0; 4], 0, &proof));
    let mut call = with(0, &[0, 0, 0, 0, 0, 0, 56, 0, 0, 0, 0, 0], 12, &[0; 16]);
    let signed = call.len() - 16;
    let (message, signature) = call.split_at_mut(signed);
    signature.copy_from_slice(&protection.seal(message, 24..40));
    stream.extend(call);
    stream
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_and_their_changes_are_answered() {
        for seed in seeds() {
            smb_pipe(&seed);
            for at in 0..seed.len() {
                smb_pipe(&seed[..at]);
                for value in [0, 1, 0x7f, 0xff] {
                    let mut changed = seed.clone();
                    changed[at] = value;
                    smb_pipe(&changed);
                }
            }
        }
    }
}
