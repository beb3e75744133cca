//! SMB2 RDMA transforms (MS-SMB2 sections 2.2.43, 3.3.5.12 and 3.3.5.13): valid requests, and the errors for invalid ones. The
//! cases come from Microsoft's test suite for signing and encryption and from the text of the specification.

use rdma_transport::channel::{Place, RemoteSeg, Transport};
use smb_crypto::sign::{Algorithm, Sender};
use smb_proto::smb2::negotiate::Dialect;
use smb_proto::smb2::negotiate_context::NegotiateContext;
use smb_proto::smb2::rdma::{Channel, Protection, Transform};
use smb_proto::smb2::{Command, FileId, HEADER_LEN, Header, negotiate, read, transform, write};
use smbd_core::settings::Settings;
use smbd_core::status::Status;

use crate::peer::{Answer, Offer, Peer, answers, create, file, server};

const RDMA: Transport = Transport::Rdma("test");
const BOTH: [u16; 2] = [1, 2];

/// A client that is ready to send the request of a test case.
struct World {
    peer: Peer,
    file: FileId,
    sealed: bool,
}

fn offer(signing: u16, cipher: u16, transforms: &[u16]) -> Offer {
    Offer {
        dialects: vec![Dialect::V311.number()],
        signing: vec![signing],
        ciphers: vec![cipher],
        // An empty list is malformed.
        transforms: (!transforms.is_empty()).then(|| transforms.to_vec()),
        ..Offer::default()
    }
}

/// Logs on over RDMA and opens a file with these bytes, on a share with or without encryption.
async fn world(offer: &Offer, sealed: bool, data: &[u8]) -> World {
    world_of(offer, sealed, data, |_| {}).await
}

async fn world_of(
    offer: &Offer,
    sealed: bool,
    data: &[u8],
    change: impl FnOnce(&mut Settings),
) -> World {
    let mut peer = Peer::connect_by(&server(change), RDMA);
    peer.negotiate(offer).await;
    assert_eq!(peer.log_on("alice", "pw").await, Status::SUCCESS);
    assert_eq!(peer.connect_tree(if sealed { "secret" } else { "data" }).await, Status::SUCCESS);
    let answer = match sealed {
        true => peer.ask_sealed(Command::Create, &create("f", 0)).await,
        false => peer.ask(Command::Create, &create("f", 0)).await,
    };
    let mut w = World { peer, file: file(&answer), sealed };
    if !data.is_empty() {
        let r = write::Request {
            data_offset: write::Request::DATA_OFFSET,
            length: data.len() as u32,
            remaining: 0,
            channel: Some(Channel::None),
            descriptors: vec![],
            transform: None,
            ..w.write_of(1, Channel::None)
        };
        let (answer, _) = w.ask(Command::Write, &[&r.emit()[..], data].concat(), b"").await;
        assert_eq!(answer.status(), Status::SUCCESS);
    }
    w
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

impl World {
    fn secrets(&self) -> crate::peer::Secrets {
        self.peer.secrets.clone().unwrap()
    }

    /// The header of the next command, with credits for 64 KiB.
    fn header(&mut self, command: Command) -> Header {
        self.peer.header(command)
    }

    /// Sends a request, signed or encrypted as the world requires. Returns the answer and the bytes written to the client's memory.
    async fn ask(&mut self, command: Command, body: &[u8], memory: &[u8]) -> (Answer, Vec<u8>) {
        let header = self.header(command);
        self.ask_by(header, body, memory).await
    }

    async fn ask_by(&mut self, header: Header, body: &[u8], memory: &[u8]) -> (Answer, Vec<u8>) {
        let (answer, placed, _) = self.ask_whole(header, body, memory).await;
        (answer, placed)
    }

    async fn ask_whole(
        &mut self,
        header: Header,
        body: &[u8],
        memory: &[u8],
    ) -> (Answer, Vec<u8>, Option<u32>) {
        let message = match self.sealed {
            true => self.peer.seal(&[&header.emit()[..], body].concat()),
            false => self.peer.sign(header, body),
        };
        self.send(&message, memory).await
    }

    async fn send(&mut self, message: &[u8], memory: &[u8]) -> (Answer, Vec<u8>, Option<u32>) {
        let mut reply = self.peer.raw_reply(message, memory).await.expect("an answer");
        let mut placed = Vec::new();
        reply.payloads.retain(|p| match p.place {
            Place::Remote(_) => {
                p.data.iter().for_each(|d| placed.extend_from_slice(d));
                false
            }
            _ => true,
        });
        let bytes: Vec<u8> = reply.pieces().flatten().copied().collect();
        let is_sealed = bytes.starts_with(&transform::PROTOCOL_ID);
        assert_eq!(is_sealed, self.sealed);
        let answer = match is_sealed {
            true => answers(&self.peer.open(&bytes)).remove(0),
            false => self.peer.check(&bytes),
        };
        (answer, placed, reply.invalidate)
    }

    /// Builds a READ of the whole file into memory of the client.
    fn read_of(&self, length: u32) -> read::Request {
        read::Request {
            padding: 0,
            flags: 0,
            length,
            offset: 0,
            file: self.file,
            minimum_count: 0,
            channel: Some(Channel::RdmaV1),
            remaining: 0,
            descriptors: vec![seg(7, length)],
        }
    }

    /// Builds a WRITE of this many bytes from memory of the client, without a transform yet.
    fn write_of(&self, length: u32, channel: Channel) -> write::Request {
        write::Request {
            data_offset: 0,
            length: 0,
            offset: 0,
            file: self.file,
            channel: Some(channel),
            remaining: length,
            flags: 0,
            descriptors: vec![seg(7, length)],
            transform: None,
        }
    }

    /// Protects data for the WRITE with this message id. Returns the transform and the bytes for the client's memory.
    fn protect(&self, id: u64, data: &[u8]) -> (Transform, Vec<u8>) {
        let secrets = self.secrets();
        let channel = Channel::RdmaV1;
        if self.sealed {
            let sealer = secrets.sealer.unwrap();
            let nonce = sealer.nonce();
            let mut bytes = data.to_vec();
            let tag = sealer.seal_in_place(&nonce, &[], &mut [&mut bytes]).unwrap();
            let nonce = nonce[..sealer.cipher().nonce_len()].to_vec();
            let protection = Protection::Encryption;
            return (Transform { channel, protection, signature: tag.to_vec(), nonce }, bytes);
        }
        let (tag, nonce) = secrets.signer.sign_payload(Sender::Client, id, &[data]).unwrap();
        let protection = Protection::Signing;
        (Transform { channel, protection, signature: tag.to_vec(), nonce }, data.to_vec())
    }

    /// Writes `data` with a transform that `change` may alter and raw channel information that `spoil` may alter.
    async fn write_spoilt(
        &mut self,
        data: &[u8],
        change: impl FnOnce(&mut Transform, &mut Vec<u8>),
        spoil: impl FnOnce(&mut Vec<u8>),
    ) -> Status {
        let header = self.header(Command::Write);
        let (mut t, mut memory) = self.protect(header.message_id, data);
        change(&mut t, &mut memory);
        let r = write::Request {
            transform: Some(t),
            ..self.write_of(data.len() as u32, Channel::RdmaTransform)
        };
        let mut body = r.emit();
        spoil(&mut body);
        self.ask_by(header, &body, &memory).await.0.status()
    }

    /// MultipleEncryptionStructure and EncryptionAndSigningStructure, and the same for signing: a second complete structure of
    /// either type comes before or after the right one. `TransformCount` includes it or not, or includes it although it is missing.
    async fn refuse_two_structures(&mut self, data: &[u8]) {
        // In the body: the offset of the structures, and the bytes of one with its padding.
        const AT: usize = 0x70 - HEADER_LEN;
        const ONE: usize = 40;
        for (second, count) in [(1, 2), (2, 2), (1, 1), (2, 1)] {
            for at in [AT + 16, AT + 16 + ONE] {
                let add = |body: &mut Vec<u8>| {
                    let mut structure = body[AT + 16..AT + 16 + ONE].to_vec();
                    structure[0] = second;
                    body.splice(at..at, structure);
                    // RdmaDescriptorOffset, TransformCount, WriteChannelInfoLength.
                    body[AT] += 40;
                    body[AT + 8] = count;
                    body[42] += 40;
                };
                let status = self.write_spoilt(data, |_, _| {}, add).await;
                assert_eq!(status, Status::INVALID_PARAMETER, "{count} with one of type {second}");
            }
        }
    }

    async fn write(&mut self, data: &[u8]) -> Status {
        self.write_spoilt(data, |_, _| {}, |_| {}).await
    }

    /// Returns the content of the file, read inline.
    async fn holds(&mut self, length: u32) -> Vec<u8> {
        let inside = read::Request {
            channel: Some(Channel::None),
            descriptors: vec![],
            ..self.read_of(length)
        };
        let (answer, _) = self.ask(Command::Read, &inside.emit(), b"").await;
        let told = read::Response::parse(&answer.bytes).unwrap();
        told.data(&answer.bytes).unwrap().to_vec()
    }
}

fn seg(handle: u32, len: u32) -> RemoteSeg {
    RemoteSeg { handle, len, offset: u64::from(handle) << 32 }
}

/// Returns the transform of a READ's answer.
fn described(answer: &Answer) -> (read::Response, Transform) {
    assert_eq!(answer.status(), Status::SUCCESS);
    let told = read::Response::parse(&answer.bytes).unwrap();
    assert_eq!(told.flags, read::RESPONSE_TRANSFORM);
    assert_eq!(told.data_offset, 80);
    let (t, segs) = Transform::parse(told.data(&answer.bytes).unwrap()).unwrap();
    assert_eq!((t.channel, segs.len()), (Channel::None, 0));
    (told, t)
}

#[tokio::test]
async fn what_both_can_do_is_agreed_on_by_every_transport() {
    let cases: [(&[u16], &[u16]); 6] = [
        (&[1, 2], &[1, 2]),
        (&[2, 1], &[2, 1]),
        (&[2], &[2]),
        (&[1, 9], &[1]),
        (&[9], &[0]),
        (&[0], &[0]),
    ];
    for (offered, expected) in cases {
        for transport in [RDMA, Transport::Tcp] {
            let mut peer = Peer::connect_by(&server(|_| {}), transport);
            let answer = peer.negotiate(&offer(2, 2, offered)).await;
            let told = negotiate::Response::parse(&answer.bytes).unwrap();
            let found = told.contexts.iter().find_map(|c| match c {
                NegotiateContext::RdmaTransform(ids) => Some(ids.clone()),
                _ => None,
            });
            assert_eq!(found.as_deref(), Some(expected), "{offered:?}");
        }
    }
}

#[tokio::test]
async fn without_a_cipher_nothing_is_encrypted_and_an_old_dialect_knows_none() {
    let ids = |bytes: &[u8]| {
        let told = negotiate::Response::parse(bytes).unwrap();
        told.contexts.iter().find_map(|c| match c {
            NegotiateContext::RdmaTransform(ids) => Some(ids.clone()),
            _ => None,
        })
    };
    let mut peer = Peer::connect(&server(|_| {}));
    let none = Offer { ciphers: vec![], ..offer(2, 2, &BOTH) };
    assert_eq!(ids(&peer.negotiate(&none).await.bytes), Some(vec![2]));
    let mut peer = Peer::connect(&server(|s| s.rdma_transforms = false));
    assert_eq!(ids(&peer.negotiate(&offer(2, 2, &BOTH)).await.bytes), None, "switched off");
    let mut peer = Peer::connect(&server(|_| {}));
    assert_eq!(ids(&peer.negotiate(&Offer::default()).await.bytes), None, "not asked");
}

/// MS-SMB2 section 3.3.5.4: two contexts, an empty one, a truncated one.
#[tokio::test]
async fn malformed_offers_are_refused_unless_transforms_are_switched_off() {
    let preauth = Offer { ciphers: vec![], signing: vec![], ..offer(2, 2, &[]) };
    let twice = |all: &mut Vec<NegotiateContext<'static>>| {
        all.push(NegotiateContext::RdmaTransform(vec![1]));
        all.push(NegotiateContext::RdmaTransform(vec![2]));
    };
    let empty = |all: &mut Vec<NegotiateContext<'static>>| {
        all.push(NegotiateContext::RdmaTransform(vec![]));
    };
    let cut = |all: &mut Vec<NegotiateContext<'static>>| all.push(NegotiateContext::Other(7));
    type Change = fn(&mut Vec<NegotiateContext<'static>>);
    let cases: [(Change, bool); 3] = [(twice, false), (empty, true), (cut, true)];
    for (i, (change, fine_when_off)) in cases.into_iter().enumerate() {
        for on in [true, false] {
            let mut contexts = Offer { transforms: None, ..preauth.clone() }.contexts();
            change(&mut contexts);
            let dialects = vec![Dialect::V311.number()];
            let body = negotiate::Request { dialects, contexts, ..Default::default() }.emit();
            let mut peer = Peer::connect(&server(|s| s.rdma_transforms = on));
            let status = peer.ask(Command::Negotiate, &body).await.status();
            let is_fine = !on && fine_when_off;
            assert_eq!(status == Status::SUCCESS, is_fine, "case {i}, on: {on}: {status:?}");
            assert!(is_fine || status == Status::INVALID_PARAMETER);
        }
    }
}

/// Read GMAC, Read CMAC, and HMAC: the answer's lengths, and a signature over only the data.
#[tokio::test]
async fn a_signed_read_places_its_data_and_signs_it() {
    let data = pattern(30_000);
    for (algorithm, nonce, len) in
        [(Algorithm::AesGmac, 12, 56), (Algorithm::AesCmac, 0, 40), (Algorithm::HmacSha256, 0, 40)]
    {
        let mut w = world(&offer(algorithm as u16, 2, &BOTH), false, &data).await;
        let r = w.read_of(30_000).emit();
        let (answer, placed) = w.ask(Command::Read, &r, b"").await;
        let (told, t) = described(&answer);
        assert_eq!((told.data_length, told.data_remaining), (len, 30_000));
        assert_eq!((t.protection, t.nonce.len()), (Protection::Signing, nonce));
        assert!(placed == data, "in clear, by RDMA Write");
        w.secrets().signer.verify_payload(&t.nonce, &[&placed], &t.signature).unwrap();
    }
}

/// Read with each of the four ciphers: ciphertext of the same length, with the session's counter of nonces.
#[tokio::test]
async fn an_encrypted_read_places_ciphertext() {
    let data = pattern(30_000);
    for cipher in 1..=4 {
        let mut w = world(&offer(2, cipher, &BOTH), true, &data).await;
        let opener = w.secrets().opener.unwrap();
        let mut nonces = Vec::new();
        for _ in 0..64 {
            let r = w.read_of(30_000).emit();
            let (answer, mut placed) = w.ask(Command::Read, &r, b"").await;
            let (told, t) = described(&answer);
            assert_eq!((told.data_length, told.data_remaining), (56, 30_000));
            assert_eq!(t.protection, Protection::Encryption);
            assert_eq!(t.nonce.len(), opener.cipher().nonce_len());
            assert!(placed != data, "nothing in clear");
            assert!(!nonces.contains(&t.nonce), "a nonce came twice");
            nonces.push(t.nonce.clone());
            let mut nonce = [0; 16];
            nonce[..t.nonce.len()].copy_from_slice(&t.nonce);
            let tag = *t.signature.first_chunk::<16>().unwrap();
            opener.open_in_place(&nonce, &[], &mut [&mut placed], &tag).unwrap();
            assert!(placed == data);
        }
    }
}

/// The flag, the structure and the encryption depend on what was negotiated and on how the request came.
#[tokio::test]
async fn a_read_is_answered_as_it_was_asked() {
    let data = pattern(5000);
    // A READ without negotiated signing transforms is answered as before.
    let mut w = world(&offer(2, 2, &[1]), false, &data).await;
    let r = w.read_of(5000).emit();
    let (answer, placed) = w.ask(Command::Read, &r, b"").await;
    let told = read::Response::parse(&answer.bytes).unwrap();
    assert_eq!((told.flags, told.data_length, told.data_remaining), (0, 0, 5000));
    assert!(placed == data);
    // The same without signing, where that is allowed.
    let both = offer(2, 2, &BOTH);
    let mut w = world_of(&both, false, &data, |s| s.signing_required = false).await;
    let header = w.header(Command::Read);
    let message = [&header.emit()[..], &w.read_of(5000).emit()].concat();
    let (answer, placed, _) = w.send(&message, b"").await;
    let told = read::Response::parse(&answer.bytes).unwrap();
    assert_eq!((told.flags, told.data_length, told.data_remaining), (0, 0, 5000));
    assert!(placed == data);
    // Encrypted, without a negotiated encryption transform: no data leaves unencrypted.
    for transforms in [&[2][..], &[]] {
        let mut w = world(&offer(2, 2, transforms), true, &data).await;
        let r = w.read_of(5000).emit();
        let (answer, placed) = w.ask(Command::Read, &r, b"").await;
        assert_eq!((answer.status(), placed.len()), (Status::INVALID_PARAMETER, 0));
    }
    // READ supports no transform channel (MS-SMB2 section 3.3.5.12).
    let mut w = world(&offer(2, 2, &BOTH), false, &data).await;
    let r = read::Request { channel: Some(Channel::RdmaTransform), ..w.read_of(5000) }.emit();
    let (answer, _) = w.ask(Command::Read, &r, b"").await;
    assert_eq!(answer.status(), Status::INVALID_PARAMETER);
}

/// Write GMAC, CMAC, HMAC, and with each of four ciphers, also 64 of them.
#[tokio::test]
async fn protected_writes_are_fetched_and_checked() {
    let data = pattern(30_000);
    for (signing, cipher, sealed) in [
        (2, 2, false),
        (1, 2, false),
        (0, 2, false),
        (2, 1, true),
        (2, 2, true),
        (2, 3, true),
        (2, 4, true),
    ] {
        let mut w = world(&offer(signing, cipher, &BOTH), sealed, b"").await;
        for round in 0..if sealed { 64 } else { 4 } {
            assert_eq!(
                w.write(&data[round..]).await,
                Status::SUCCESS,
                "{signing} {cipher} {round}"
            );
        }
        assert!(w.holds(29_000).await == data[if sealed { 63 } else { 3 }..][..29_000]);
    }
}

/// FlagsSignedNotSet, SigningStructure_EncryptionId, NoTransformIds, and an encryption structure in a message that is signed.
#[tokio::test]
async fn a_write_is_protected_as_its_message_and_as_agreed() {
    const BAD: Status = Status::INVALID_PARAMETER;
    let data = pattern(4096);
    let both = offer(2, 2, &BOTH);
    let mut w = world_of(&both, false, b"", |s| s.signing_required = false).await;
    let header = w.header(Command::Write);
    let (t, memory) = w.protect(header.message_id, &data);
    let r = write::Request { transform: Some(t), ..w.write_of(4096, Channel::RdmaTransform) };
    let message = [&header.emit()[..], &r.emit()].concat();
    assert_eq!(w.send(&message, &memory).await.0.status(), BAD, "not signed");
    let of_type = |protection| move |t: &mut Transform, _: &mut Vec<u8>| t.protection = protection;
    let to_encryption = of_type(Protection::Encryption);
    assert_eq!(w.write_spoilt(&data, to_encryption, |_| {}).await, BAD, "in clear, says encrypted");
    for transforms in [&[][..], &[1]] {
        let mut w = world(&offer(2, 2, transforms), false, b"").await;
        assert_eq!(w.write(&data).await, BAD, "signing not agreed on");
    }
    for transforms in [&[][..], &[2]] {
        let mut w = world(&offer(2, 2, transforms), true, b"").await;
        assert_eq!(w.write(&data).await, BAD, "encryption not agreed on");
    }
    // Signed inside an encrypted message: the message itself carries no signature.
    let mut w = world(&both, true, b"").await;
    assert_eq!(w.write_spoilt(&data, of_type(Protection::Signing), |_| {}).await, BAD);
    // An encrypted message must not bring data in clear.
    let plain = w.write_of(4096, Channel::RdmaV1).emit();
    assert_eq!(w.ask(Command::Write, &plain, &data).await.0.status(), BAD);
    // Over TCP a client has no memory to name.
    let server = server(|_| {});
    let mut peer = Peer::connect(&server);
    peer.negotiate(&both).await;
    peer.log_on("alice", "pw").await;
    peer.connect_tree("data").await;
    let file = file(&peer.ask(Command::Create, &create("f", 0)).await);
    let mut w = World { peer, file, sealed: false };
    assert_eq!(w.write(&data).await, BAD);
}

/// ZeroTransformCount, MultipleEncryptionStructure, EncryptionAndSigningStructure, BufferNotAligned, and lengths that do not fit.
#[tokio::test]
async fn structures_that_are_not_as_they_must_be_are_refused() {
    const BAD: Status = Status::INVALID_PARAMETER;
    // Where the structure begins in the body of a WRITE.
    const AT: usize = 0x70 - HEADER_LEN;
    let data = pattern(4096);
    for sealed in [false, true] {
        let mut w = world(&offer(2, 2, &BOTH), sealed, b"before").await;
        type Spoil = fn(&mut Vec<u8>);
        let spoils: [(&str, Spoil); 10] = [
            ("no structure", |b| b[AT + 8] = 0),
            ("two structures", |b| b[AT + 8] = 2),
            ("a type that is not defined", |b| b[AT + 16] = 3),
            ("type none", |b| b[AT + 16] = 0),
            ("descriptors not at a multiple of 8", |b| b[AT] += 4),
            ("descriptors behind the end", |b| b[AT] += 8),
            ("half a descriptor", |b| b[AT + 2] = 8),
            ("no descriptor", |b| b[AT + 2] = 0),
            ("shorter than the structure", |b| b[42] = 15),
            ("too little memory", |b| b[AT + 56 + 12..AT + 56 + 16].copy_from_slice(&[1, 0, 0, 0])),
        ];
        for (what, spoil) in spoils {
            assert_eq!(w.write_spoilt(&data, |_, _| {}, spoil).await, BAD, "{what}");
        }
        w.refuse_two_structures(&data).await;
        for (what, change) in [
            (
                "data in both places",
                (|r| (r.length, r.data_offset) = (1, 0x70)) as fn(&mut write::Request),
            ),
            ("no bytes", |r| r.remaining = 0),
            ("an empty first descriptor", |r| r.descriptors.insert(0, seg(6, 0))),
            ("more than a WRITE takes", |r| {
                r.remaining = (8 << 20) + 1;
                r.descriptors[0].len = u32::MAX;
            }),
        ] {
            let header = w.header(Command::Write);
            let (t, memory) = w.protect(header.message_id, &data);
            let mut r =
                write::Request { transform: Some(t), ..w.write_of(4096, Channel::RdmaTransform) };
            change(&mut r);
            assert_eq!(w.ask_by(header, &r.emit(), &memory).await.0.status(), BAD, "{what}");
        }
        assert_eq!(w.peer.pulls, 0, "nothing of it was fetched");
        assert_eq!(w.holds(6).await, b"before", "nothing of it was written");
    }
}

/// InvalidSignature, IncreaseSignatureLength, IncreaseNonceLength, DecreaseNonceLength, each cipher; the connection continues.
#[tokio::test]
async fn data_that_is_not_what_was_protected_is_refused() {
    type Change = fn(&mut Transform, &mut Vec<u8>);
    let changes: [(&str, Change); 7] = [
        ("one bit of the signature", |t, _| t.signature[0] ^= 1),
        ("one bit of the data", |_, memory| memory[2048] ^= 1),
        ("one bit of the last byte", |_, memory| *memory.last_mut().unwrap() ^= 0x80),
        ("a longer signature", |t, _| t.signature.push(0)),
        ("a shorter signature", |t, _| t.signature.truncate(15)),
        ("a longer nonce", |t, _| t.nonce.push(0)),
        ("a shorter nonce", |t, _| t.nonce.truncate(t.nonce.len().saturating_sub(1))),
    ];
    let data: Vec<u8> = (0..4096_u32).map(|i| (i * i / 7) as u8).collect();
    for (signing, cipher, sealed) in [
        (2, 2, false),
        (1, 2, false),
        (0, 2, false),
        (2, 1, true),
        (2, 2, true),
        (2, 3, true),
        (2, 4, true),
    ] {
        let expected = if sealed { Status::AUTH_TAG_MISMATCH } else { Status::INVALID_SIGNATURE };
        let mut w = world(&offer(signing, cipher, &BOTH), sealed, b"before").await;
        for (what, change) in changes {
            if signing != 2 && what == "a shorter nonce" {
                // Only AES-GMAC has a nonce.
                continue;
            }
            let found = w.write_spoilt(&data, change, |_| {}).await;
            assert_eq!(found, expected, "{what}, {signing} {cipher}");
        }
        assert_eq!(w.holds(6).await, b"before", "nothing of it was written");
        assert_eq!(w.write(&data).await, Status::SUCCESS, "the connection lives");
    }
}

/// The token of the first descriptor is sent with the answer if the inner channel requests that, even with a failure.
#[tokio::test]
async fn the_inner_channel_says_what_is_invalidated() {
    let data = pattern(4096);
    for sealed in [false, true] {
        for (inner, wrong) in [
            (Channel::RdmaV1, false),
            (Channel::RdmaV1Invalidate, false),
            (Channel::RdmaV1Invalidate, true),
        ] {
            let mut w = world(&offer(2, 2, &BOTH), sealed, b"").await;
            let header = w.header(Command::Write);
            let (mut t, memory) = w.protect(header.message_id, &data);
            t.channel = inner;
            t.signature[3] ^= u8::from(wrong);
            let r =
                write::Request { transform: Some(t), ..w.write_of(4096, Channel::RdmaTransform) };
            let (answer, _, invalidated) = w.ask_whole(header, &r.emit(), &memory).await;
            assert_eq!(answer.status() == Status::SUCCESS, !wrong);
            assert_eq!(invalidated, (inner == Channel::RdmaV1Invalidate).then_some(7));
            let r = read::Request { channel: Some(inner), ..w.read_of(64) };
            let header = w.header(Command::Read);
            let (_, _, invalidated) = w.ask_whole(header, &r.emit(), b"").await;
            assert_eq!(invalidated, (inner == Channel::RdmaV1Invalidate).then_some(7));
        }
    }
}
