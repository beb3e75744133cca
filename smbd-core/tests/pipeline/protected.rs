//! Signatures and encryption.

use iobuf::{Buf, BufMut};
use rdma_transport::channel::ReadChunkData;
use smb_proto::smb2::negotiate::Dialect;
use smb_proto::smb2::{Command, Flags, Header, read, simple, transform, write};
use smbd_core::settings::Encryption;
use smbd_core::status::Status;

use crate::peer::{Offer, Peer, answers, chain, create, file, server};

#[tokio::test]
async fn a_signature_that_is_wrong_or_missing_is_refused() {
    let server = server(|_| {});
    for dialect in Dialect::ALL {
        let mut peer = Peer::ready(&server, &Offer::of(dialect)).await;
        for byte in [0, 14, 48, 63, 65] {
            let mut message = peer.message(Command::TreeDisconnect, &simple::BODY);
            message[byte] ^= 0x40;
            if byte == 0 {
                continue;
            }
            if let Some(bytes) = peer.raw(&message).await {
                let status = answers(&bytes)[0].status();
                assert!(
                    matches!(status, Status::ACCESS_DENIED | Status::INVALID_PARAMETER),
                    "{dialect:?} byte {byte}: {status:?}"
                );
            }
        }
        let header = peer.header(Command::TreeDisconnect);
        let message = [&header.emit()[..], &simple::BODY].concat();
        let bytes = peer.raw(&message).await.unwrap();
        assert_eq!(peer.check(&bytes).status(), Status::ACCESS_DENIED);
        // The tree still exists.
        let answer = peer.ask(Command::TreeDisconnect, &simple::BODY).await;
        assert_eq!(answer.status(), Status::SUCCESS);
    }
}

#[tokio::test]
async fn where_signing_is_offered_answers_are_signed_as_requests_are() {
    let server = server(|s| s.signing_required = false);
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let answer = peer.ask(Command::Echo, &simple::BODY).await;
    assert!(answer.header.flags.has(Flags::SIGNED));
    let header = peer.header(Command::Echo);
    let message = [&header.emit()[..], &simple::BODY].concat();
    let bytes = peer.raw(&message).await.unwrap();
    let answer = answers(&bytes).remove(0);
    assert_eq!(answer.status(), Status::SUCCESS);
    assert!(!answer.header.flags.has(Flags::SIGNED));
    assert_eq!(answer.header.signature, [0; 16]);
}

#[tokio::test]
async fn a_tree_is_connected_in_clear_by_nobody() {
    let server = server(|s| s.signing_required = false);
    let mut peer = Peer::connect(&server);
    peer.negotiate(&Offer::default()).await;
    assert_eq!(peer.log_on("alice", "pw").await, Status::SUCCESS);
    peer.secrets = None;
    let body = smb_proto::smb2::tree_connect::Request { flags: 0, path: r"\\h\data".into() }.emit();
    let message = peer.message(Command::TreeConnect, &body);
    assert_eq!(peer.raw(&message).await, None);
    assert!(peer.ended());
}

async fn write_and_read(peer: &mut Peer, sealed: bool, len: usize) {
    let answer = match sealed {
        true => peer.ask_sealed(Command::Create, &create("big", 0)).await,
        false => peer.ask(Command::Create, &create("big", 0)).await,
    };
    let id = file(&answer);
    let data: Vec<u8> = (0..len).map(|i| u8::try_from(i % 251).unwrap()).collect();
    let request = write::Request {
        data_offset: write::Request::DATA_OFFSET,
        length: u32::try_from(len).unwrap(),
        offset: 0,
        file: id,
        channel: Some(smb_proto::smb2::rdma::Channel::None),
        remaining: 0,
        flags: 0,
        descriptors: Vec::new(),
        transform: None,
    };
    let charge = u16::try_from(len.div_ceil(65536).max(1)).unwrap();
    let charged = |peer: &mut Peer, command| {
        let mut header = peer.header(command);
        header.credit_charge = charge;
        header.credits = 512;
        peer.next_id += u64::from(charge) - 1;
        header
    };
    let header = charged(peer, Command::Write);
    let body = [&request.emit()[..], &data].concat();
    let bytes = if sealed {
        let message = peer.seal(&[&header.emit()[..], &body].concat());
        // As from the transport: the ciphertext in its own pool buffers.
        let pieces = message[transform::LEN..].chunks(1 << 20).map(|c| {
            let mut own = BufMut::heap(c.len());
            own.append(c);
            own.freeze()
        });
        let read_chunks = vec![ReadChunkData { at: transform::LEN, data: pieces.collect() }];
        peer.raw_with(&message[..transform::LEN], read_chunks).await.unwrap()
    } else {
        let message = peer.sign(header, &body);
        let at = Header::SIGNATURE.end + 48;
        let pieces = message[at..].chunks(1 << 20).map(|c| Buf::from(c.to_vec())).collect();
        let read_chunks = vec![ReadChunkData { at, data: pieces }];
        peer.raw_with(&message[..at], read_chunks).await.unwrap()
    };
    let bytes = if sealed { peer.open(&bytes) } else { bytes };
    let answer = peer.check(&bytes);
    assert_eq!(answer.status(), Status::SUCCESS, "{len}");
    assert_eq!(write::Response::parse(&answer.bytes).unwrap().count, request.length);

    let header = charged(peer, Command::Read);
    let mut body = vec![0; 48];
    body[0] = 49;
    body[4..8].copy_from_slice(&request.length.to_le_bytes());
    body[16..32].copy_from_slice(&id.emit());
    body.push(0);
    let message = [&header.emit()[..], &body].concat();
    let bytes = if sealed {
        let bytes = peer.raw(&peer.seal(&message)).await.unwrap();
        peer.open(&bytes)
    } else {
        let message = peer.sign(header, &body);
        peer.raw(&message).await.unwrap()
    };
    let answer = peer.check(&bytes);
    assert_eq!(answer.status(), Status::SUCCESS);
    let told = read::Response::parse(&answer.bytes).unwrap();
    let at = usize::from(told.data_offset);
    assert!(answer.bytes[at..] == data[..], "{len} bytes differ");
}

#[tokio::test]
async fn data_of_every_size_is_signed() {
    let server = server(|_| {});
    for dialect in Dialect::ALL {
        let mut peer = Peer::ready(&server, &Offer::of(dialect)).await;
        for len in [1, 4096, 65536] {
            write_and_read(&mut peer, false, len).await;
        }
    }
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let mut header = peer.header(Command::Echo);
    header.credits = 256;
    let echo = peer.sign(header, &simple::BODY);
    peer.raw(&echo).await.unwrap();
    write_and_read(&mut peer, false, (8 << 20) - 3).await;
}

/// A WRITE without its data cannot be verified. It has no effect, its answer is signed, and the session continues.
#[tokio::test]
async fn signed_write_without_data_is_refused() {
    for required in [false, true] {
        let server = server(|s| s.signing_required = required);
        let mut peer = Peer::ready(&server, &Offer::default()).await;
        let id = file(&peer.ask(Command::Create, &create("big", 0)).await);
        let request = write::Request {
            data_offset: write::Request::DATA_OFFSET,
            length: 5000,
            offset: 0,
            file: id,
            channel: Some(smb_proto::smb2::rdma::Channel::None),
            remaining: 0,
            flags: 0,
            descriptors: Vec::new(),
            transform: None,
        };
        for signed in [true, false] {
            let header = peer.header(Command::Write);
            let whole = [&request.emit()[..], &[7; 5000]].concat();
            let message = match signed {
                true => peer.sign(header, &whole),
                false => [&header.emit()[..], &whole].concat(),
            };
            let at = usize::from(write::Request::DATA_OFFSET);
            let missing = vec![ReadChunkData { at, data: Vec::new() }];
            let bytes = peer.raw_with(&message[..at], missing).await.unwrap();
            let answer = answers(&bytes).remove(0);
            assert_eq!(answer.header.flags.has(Flags::SIGNED), signed || required);
            let expected = match !signed && required {
                true => Status::ACCESS_DENIED,
                false => Status::INSUFFICIENT_RESOURCES,
            };
            assert_eq!(answer.status(), expected, "signed: {signed}, required: {required}");
            if signed {
                peer.check(&bytes);
            }
        }
        let mut body = vec![0; 49];
        body[0] = 49;
        body[4] = 1;
        body[16..32].copy_from_slice(&id.emit());
        assert_eq!(peer.ask(Command::Read, &body).await.status(), Status::END_OF_FILE);
        write_and_read(&mut peer, false, 5000).await;
        assert!(!peer.ended());
    }
}

#[tokio::test]
async fn data_of_every_size_is_encrypted() {
    let server = server(|_| {});
    for cipher in 1..=4 {
        let offer = Offer { ciphers: vec![cipher], ..Offer::default() };
        let mut peer = Peer::ready(&server, &offer).await;
        for len in [1, 4096, 65537, (1 << 20) - 112, 1 << 20, (2 << 20) + 5, 8 << 20] {
            write_and_read(&mut peer, true, len).await;
        }
    }
}

#[tokio::test]
async fn an_encrypted_message_that_does_not_open_ends_the_connection() {
    let server = server(|_| {});
    let breaks: [fn(&mut Vec<u8>); 7] = [
        |b| b[4] ^= 1,
        |b| b[20] ^= 1,
        |b| b[36] ^= 1,
        |b| b[42] = 2,
        |b| b[44] ^= 1,
        |b| *b.last_mut().unwrap() ^= 1,
        |b| b.truncate(transform::LEN),
    ];
    for (i, change) in breaks.into_iter().enumerate() {
        let mut peer = Peer::ready(&server, &Offer::default()).await;
        let header = peer.header(Command::Echo);
        let mut bytes = peer.seal(&[&header.emit()[..], &simple::BODY].concat());
        change(&mut bytes);
        assert_eq!(peer.raw(&bytes).await, None, "{i}");
        assert!(peer.ended(), "{i}");
    }
    // A message of another session inside.
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let mut header = peer.header(Command::Echo);
    header.session_id ^= 1;
    let bytes = peer.seal(&[&header.emit()[..], &simple::BODY].concat());
    assert_eq!(peer.raw(&bytes).await, None);
    assert!(peer.ended());
}

/// MS-SMB2 section 3.3.5.2.1.1: the keys of one session give no access to another, wherever a chain names it.
#[tokio::test]
async fn an_encrypted_chain_is_of_one_session() {
    let server = server(|_| {});
    let no_change: fn(usize, &mut Header) = |_, _| {};
    let another: fn(usize, &mut Header) = |i, h| h.session_id ^= u64::from(i == 1);
    let related: fn(usize, &mut Header) = |i, h| {
        h.flags.0 |= Flags::RELATED;
        h.session_id ^= u64::from(i == 1);
    };
    let after: fn(usize, &mut Header) = |i, h| {
        if i == 1 {
            h.flags.0 |= Flags::RELATED;
            h.session_id = u64::MAX;
        }
    };
    for (change, is_fine) in [(no_change, true), (another, false), (related, false), (after, true)]
    {
        let mut peer = Peer::ready(&server, &Offer::default()).await;
        let two = (0..2).map(|i| {
            let mut header = peer.header(Command::Echo);
            change(i, &mut header);
            [&header.emit()[..], &simple::BODY].concat()
        });
        let message = chain(two.collect());
        let answer = peer.raw(&peer.seal(&message)).await;
        assert_eq!((answer.is_some(), peer.ended()), (is_fine, !is_fine));
    }
}

#[tokio::test]
async fn what_encrypts_is_not_served_in_clear() {
    let open = server(|_| {});
    let mut peer = Peer::ready(&open, &Offer::default()).await;
    assert_eq!(peer.connect_tree("secret").await, Status::SUCCESS);
    assert_eq!(peer.ask(Command::Create, &create("a", 0)).await.status(), Status::ACCESS_DENIED);
    let answer = peer.ask_sealed(Command::Create, &create("a", 0)).await;
    assert_eq!(answer.status(), Status::SUCCESS);
    // A client without encryption cannot connect.
    for offer in [
        Offer::of(Dialect::V210),
        Offer { capabilities: 0, ..Offer::of(Dialect::V300) },
        Offer { ciphers: vec![], ..Offer::default() },
    ] {
        let mut peer = Peer::ready(&open, &offer).await;
        assert_eq!(peer.connect_tree("secret").await, Status::ACCESS_DENIED);
    }

    let closed = server(|s| s.encryption = Encryption::Required);
    for offer in [Offer::of(Dialect::V210), Offer { ciphers: vec![], ..Offer::default() }] {
        let mut peer = Peer::connect(&closed);
        peer.negotiate(&offer).await;
        assert_eq!(peer.log_on("alice", "pw").await, Status::ACCESS_DENIED);
    }
    let mut peer = Peer::connect(&closed);
    peer.negotiate(&Offer::default()).await;
    assert_eq!(peer.log_on("alice", "pw").await, Status::SUCCESS);
    assert_eq!(peer.connect_tree("data").await, Status::ACCESS_DENIED, "signed is not enough");
    let body = smb_proto::smb2::tree_connect::Request { flags: 0, path: r"\\h\data".into() }.emit();
    let answer = peer.ask_sealed(Command::TreeConnect, &body).await;
    assert_eq!(answer.status(), Status::SUCCESS);
}

#[tokio::test]
async fn chains_are_signed_each_and_encrypted_whole() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let echo = |peer: &mut Peer| [&peer.header(Command::Echo).emit()[..], &simple::BODY].concat();
    let message = chain(vec![echo(&mut peer), echo(&mut peer), echo(&mut peer)]);
    let bytes = peer.raw(&peer.seal(&message)).await.unwrap();
    let opened = answers(&peer.open(&bytes));
    assert_eq!(opened.len(), 3);
    assert!(opened.iter().all(|a| a.status() == Status::SUCCESS));
    assert!(opened.iter().all(|a| !a.header.flags.has(Flags::SIGNED)));
    let counts = opened.iter().map(|a| a.bytes.len() % 8).sum::<usize>();
    assert_eq!(counts, 0, "each is padded");
}
