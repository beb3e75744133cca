//! NEGOTIATE in all its forms.

use smb_proto::smb2::negotiate::{
    CAP_DIRECTORY_LEASING, CAP_ENCRYPTION, CAP_LARGE_MTU, CAP_LEASING, CAP_MULTI_CHANNEL, Dialect,
    Request, Response, SIGNING_ENABLED, SIGNING_REQUIRED,
};
use smb_proto::smb2::negotiate_context::{NegotiateContext, SHA_512};
use smb_proto::smb2::{Command, Header};
use smbd_core::settings::Encryption;
use smbd_core::status::Status;

use crate::peer::{Answer, Offer, Peer, answers, server};

async fn negotiate(offer: &Offer) -> Answer {
    Peer::connect(&server(|_| {})).negotiate(offer).await
}

async fn with_contexts(contexts: Vec<NegotiateContext<'_>>) -> Result<Vec<u8>, Status> {
    let capabilities = u32::MAX;
    let body =
        Request { dialects: vec![0x0311], capabilities, contexts, ..Request::default() }.emit();
    let mut peer = Peer::connect(&server(|_| {}));
    let answer = peer.ask(Command::Negotiate, &body).await;
    if answer.status() == Status::SUCCESS { Ok(answer.bytes) } else { Err(answer.status()) }
}

fn preauth() -> NegotiateContext<'static> {
    NegotiateContext::Preauth { algorithms: vec![SHA_512], salt: &[9; 32] }
}

#[tokio::test]
async fn the_highest_dialect_in_common_is_chosen() {
    for dialect in Dialect::ALL {
        let offer = Offer {
            dialects: Dialect::ALL
                .iter()
                .filter(|d| **d <= dialect)
                .map(|d| d.number())
                .chain([0x0333, 0x0100])
                .collect(),
            ..Offer::default()
        };
        let answer = negotiate(&offer).await;
        let told = Response::parse(&answer.bytes).unwrap();
        assert_eq!(told.dialect, dialect.number());
        assert_eq!(told.security_mode, SIGNING_ENABLED | SIGNING_REQUIRED);
        let has = |bits: u32| told.capabilities & bits == bits;
        assert_eq!(has(CAP_LEASING | CAP_LARGE_MTU), dialect >= Dialect::V210);
        assert_eq!(has(CAP_MULTI_CHANNEL), dialect.is_3());
        assert_eq!(has(CAP_ENCRYPTION), dialect.is_3() && dialect < Dialect::V311);
        let largest = match dialect {
            Dialect::V202 => 64 << 10,
            Dialect::V210 => 1 << 20,
            _ => 8 << 20,
        };
        assert_eq!([told.read_max, told.write_max, told.transact_max], [largest; 3]);
        assert_eq!(told.contexts.is_empty(), dialect < Dialect::V311);
        assert!(!told.token.is_empty());
    }
    let none = Offer { dialects: vec![0x0100, 0x0333], ..Offer::default() };
    assert_eq!(negotiate(&none).await.status(), Status::NOT_SUPPORTED);
}

#[tokio::test]
async fn the_range_of_dialects_is_kept() {
    let server = server(|s| s.dialects = (Dialect::V300, Dialect::V302));
    let answer = Peer::connect(&server).negotiate(&Offer::default()).await;
    assert_eq!(Response::parse(&answer.bytes).unwrap().dialect, 0x0302);
    let answer = Peer::connect(&server).negotiate(&Offer::of(Dialect::V210)).await;
    assert_eq!(answer.status(), Status::NOT_SUPPORTED);
}

#[tokio::test]
async fn contexts_are_judged_one_by_one() {
    let ok = with_contexts(vec![preauth()]).await.unwrap();
    let told = Response::parse(&ok).unwrap();
    let [NegotiateContext::Preauth { algorithms, salt }] = &told.contexts[..] else {
        panic!("{:?}", told.contexts)
    };
    assert_eq!((&algorithms[..], salt.len()), (&[SHA_512][..], 32));

    assert_eq!(with_contexts(vec![]).await, Err(Status::INVALID_PARAMETER), "no hash");
    let twice = with_contexts(vec![preauth(), preauth()]).await;
    assert_eq!(twice, Err(Status::INVALID_PARAMETER));
    let other = NegotiateContext::Preauth { algorithms: vec![7], salt: &[] };
    let other = with_contexts(vec![other]).await;
    assert_eq!(other, Err(Status::SMB_NO_PREAUTH_INTEGRITY_HASH_OVERLAP));
    // Some clients that do not encrypt list no cipher.
    let empty = with_contexts(vec![preauth(), NegotiateContext::Encryption(vec![])]).await.unwrap();
    assert_eq!(Response::parse(&empty).unwrap().contexts.len(), 1, "no cipher, no answer to it");
    let empty = with_contexts(vec![preauth(), NegotiateContext::Signing(vec![])]).await;
    assert_eq!(empty, Err(Status::INVALID_PARAMETER));

    let all = with_contexts(vec![
        NegotiateContext::Netname("here".into()),
        NegotiateContext::Encryption(vec![9, 1, 4]),
        preauth(),
        NegotiateContext::Compression { flags: 1, algorithms: vec![1, 2, 3] },
        NegotiateContext::Transport(1),
        NegotiateContext::RdmaTransform(vec![1, 2]),
        NegotiateContext::Signing(vec![0, 1]),
        NegotiateContext::Posix,
        NegotiateContext::Other(0x4444),
    ])
    .await
    .unwrap();
    let told = Response::parse(&all).unwrap().contexts;
    assert!(told.contains(&NegotiateContext::Encryption(vec![4])), "{told:?}");
    assert!(told.contains(&NegotiateContext::Signing(vec![1])));
    assert!(told.contains(&NegotiateContext::Posix));
    assert!(told.contains(&NegotiateContext::RdmaTransform(vec![1, 2])));
    let compression = NegotiateContext::Compression { flags: 1, algorithms: vec![1, 2, 3] };
    assert!(told.contains(&compression));
    assert_eq!(told.len(), 6, "what is not served is ignored");

    // A compression context must not be empty or repeated, although it is ignored here; Netname may be repeated.
    let empty = NegotiateContext::Compression { flags: 0, algorithms: vec![] };
    let told = with_contexts(vec![preauth(), empty]).await;
    assert_eq!(told, Err(Status::INVALID_PARAMETER), "compression without an algorithm");
    let some = NegotiateContext::Compression { flags: 0, algorithms: vec![2] };
    let twice = with_contexts(vec![preauth(), some.clone(), some]).await;
    assert_eq!(twice, Err(Status::INVALID_PARAMETER));
    let name = NegotiateContext::Netname("here".into());
    assert!(with_contexts(vec![preauth(), name.clone(), name]).await.is_ok());

    let none = with_contexts(vec![preauth(), NegotiateContext::Signing(vec![9])]).await.unwrap();
    let told = Response::parse(&none).unwrap().contexts;
    assert!(told.contains(&NegotiateContext::Signing(vec![1])), "AES-CMAC without one in common");

    let none = with_contexts(vec![preauth(), NegotiateContext::Encryption(vec![9])]).await.unwrap();
    let told = Response::parse(&none).unwrap().contexts;
    assert!(told.contains(&NegotiateContext::Encryption(vec![0])), "no cipher in common");
}

#[tokio::test]
async fn encryption_that_is_off_is_not_offered() {
    let server = server(|s| {
        s.encryption = Encryption::Off;
        s.shares.clear();
    });
    let mut peer = Peer::connect(&server);
    peer.negotiate(&Offer::default()).await;
    assert_eq!(peer.cipher, None);
    let mut peer = Peer::connect(&server);
    peer.negotiate(&Offer::of(Dialect::V302)).await;
    assert_eq!(peer.cipher, None);
}

#[tokio::test]
async fn a_second_negotiate_ends_the_connection() {
    let mut peer = Peer::connect(&server(|_| {}));
    peer.negotiate(&Offer::default()).await;
    let again = peer.message(Command::Negotiate, &Offer::default().emit());
    assert_eq!(peer.raw(&again).await, None);
    assert!(peer.ended());
}

fn smb1(dialects: &[&str]) -> Vec<u8> {
    let list: Vec<u8> =
        dialects.iter().flat_map(|d| [b"\x02", d.as_bytes(), b"\0"].concat()).collect();
    let mut out = vec![0; 32];
    out[..5].copy_from_slice(b"\xffSMB\x72");
    out.push(0);
    out.extend(u16::try_from(list.len()).unwrap().to_le_bytes());
    out.extend(list);
    out
}

#[tokio::test]
async fn old_clients_come_in_by_smb1() {
    let server = server(|_| {});
    let mut peer = Peer::connect(&server);
    let bytes = peer.raw(&smb1(&["NT LM 0.12", "SMB 2.002", "SMB 2.???"])).await.unwrap();
    let answer = answers(&bytes).remove(0);
    assert_eq!((answer.header.message_id, answer.header.credits), (0, 1));
    assert_eq!(Response::parse(&answer.bytes).unwrap().dialect, Dialect::WILDCARD);
    peer.next_id = 1;
    peer.negotiate(&Offer::default()).await;
    assert_eq!(peer.log_on("alice", "pw").await, Status::SUCCESS, "the hash begins with SMB2");

    let mut peer = Peer::connect(&server);
    let bytes = peer.raw(&smb1(&["SMB 2.002"])).await.unwrap();
    assert_eq!(Response::parse(&bytes).unwrap().dialect, 0x0202);
    peer.next_id = 1;
    assert_eq!(peer.log_on("alice", "pw").await, Status::SUCCESS);

    let mut peer = Peer::connect(&server);
    assert_eq!(peer.raw(&smb1(&["SMB 2.002"])[..34]).await, None);
    assert!(peer.ended());
    let mut peer = Peer::connect(&server);
    peer.negotiate(&Offer::default()).await;
    assert_eq!(peer.raw(&smb1(&["SMB 2.???"])).await, None, "SMB1 comes first or never");
    assert!(peer.ended());
}

/// MS-CIFS section 2.2.4.52.2: a client that waits for an answer to its offer gets one, and then the connection ends.
#[tokio::test]
async fn client_of_smb1_only_is_refused() {
    let server = server(|_| {});
    for dialects in [&["NT LM 0.12"][..], &["PC NETWORK PROGRAM 1.0", "LANMAN1.0"], &[]] {
        let mut peer = Peer::connect(&server);
        let mut asked = smb1(dialects);
        // Process and multiplex identifiers, a signature, flags.
        asked[26..28].copy_from_slice(&[1, 2]);
        asked[30..32].copy_from_slice(&[3, 4]);
        asked[14..22].fill(9);
        asked[9] = 0x18;
        let answer = peer.raw(&asked).await.unwrap();
        let mut want = asked[..32].to_vec();
        want[14..22].fill(0);
        want[9] = 0x98;
        want.extend([1, 0xff, 0xff, 0, 0]);
        assert_eq!(answer, want, "{dialects:?}");
        assert!(peer.ended());
    }
    let rows = rdma_transport::refused::list();
    assert!(rows.iter().any(|row| row.refused.remedy.contains("SMB 1 only")), "{rows:?}");
}

#[tokio::test]
async fn a_signed_negotiate_is_refused() {
    let mut peer = Peer::connect(&server(|_| {}));
    let mut header = peer.header(Command::Negotiate);
    header.flags.0 |= smb_proto::smb2::Flags::SIGNED;
    let bytes = [&header.emit()[..], &Offer::default().emit()].concat();
    let bytes = peer.raw(&bytes).await.unwrap();
    assert_eq!(Status::of(&Header::parse(&bytes).unwrap()), Status::INVALID_PARAMETER);
}

/// Linux, recognized by its context, shows stale listings if it has a lease on a directory.
#[tokio::test]
async fn linux_gets_no_directory_leases() {
    let others = with_contexts(vec![preauth()]).await.unwrap();
    let linux = with_contexts(vec![preauth(), NegotiateContext::Posix]).await.unwrap();
    for (answer, offered) in [(others, true), (linux, false)] {
        let told = Response::parse(&answer).unwrap().capabilities;
        assert_eq!(told & CAP_DIRECTORY_LEASING != 0, offered);
        assert_ne!(told & CAP_LEASING, 0, "files are leased all the same");
    }
}

#[tokio::test]
async fn directory_leases_that_are_off_are_not_offered() {
    for on in [true, false] {
        let mut peer = Peer::connect(&server(|s| s.directory_leases = on));
        for dialect in [0x0300, 0x0302, 0x0311] {
            let contexts = if dialect == 0x0311 { vec![preauth()] } else { vec![] };
            let capabilities = u32::MAX;
            let body =
                Request { dialects: vec![dialect], capabilities, contexts, ..Request::default() };
            let answer = peer.ask(Command::Negotiate, &body.emit()).await;
            let told = Response::parse(&answer.bytes).unwrap().capabilities;
            assert_eq!(told & CAP_DIRECTORY_LEASING != 0, on, "{dialect:x}");
            assert_ne!(told & CAP_LEASING, 0);
            peer = Peer::connect(&server(|s| s.directory_leases = on));
        }
    }
}
