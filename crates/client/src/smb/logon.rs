//! NEGOTIATE and SESSION_SETUP, client side (MS-SMB2 sections 3.2.4.2.2 and 3.2.4.2.3).

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use smb_auth::ntlm::Credentials;
use smb_auth::spnego::Initiator;
use smb_auth::{Account, Fresh, NtHash};
use smb_compress::message::Agreed as AgreedCompression;
use smb_crypto::kdf::{Context, Keys, session_key};
use smb_crypto::preauth::Preauth;
use smb_crypto::seal::Cipher;
use smb_crypto::sign::{Algorithm, Sender, Signer};
use smb_proto::NtStatus;
use smb_proto::smb2::compression::CAPABILITY_CHAINED;
use smb_proto::smb2::compression::algorithm::NONE;
use smb_proto::smb2::negotiate::{self, Dialect};
use smb_proto::smb2::negotiate_context::{NegotiateContext, SHA_512};
use smb_proto::smb2::rdma::Protection;
use smb_proto::smb2::{Command, session_setup};

use super::compressed::Compressing;
use super::link::{Answer, Link, Request, RequestBody, malformed};
use super::secure::{Secure, Uses};
use super::{Agreed, Compression, Options, User};
use crate::error::{Error, Result};

/// Supported protection of payload that is placed through RDMA.
const TRANSFORMS: [Protection; 2] = [Protection::Encryption, Protection::Signing];
/// Seconds between 1601 and 1970.
const EPOCH: u64 = 11_644_473_600;

pub(super) struct Logon {
    pub(super) session: u64,
    pub(super) agreed: Agreed,
}

/// An existing session to bind to a further connection, and its keys.
#[derive(Clone, Copy)]
pub(super) struct Binding<'a> {
    pub(super) session: u64,
    pub(super) secure: &'a Secure,
}

pub(super) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| Error::Connect(e.to_string()))?;
    Ok(bytes)
}

fn filetime() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_secs() + EPOCH) * 10_000_000 + u64::from(now.subsec_nanos()) / 100
}

/// The parameters that the server selected.
struct Negotiated {
    dialect: Dialect,
    algorithm: Algorithm,
    cipher: Option<Cipher>,
    signing_required: bool,
    read_max: u32,
    write_max: u32,
    multi_credit: bool,
    transforms: Vec<Protection>,
    compression: Compressing,
}

async fn ask(
    link: &Link,
    command: Command,
    session: u64,
    body: Vec<u8>,
    signer: Option<Arc<Signer>>,
) -> Result<Answer> {
    let ask = RequestBody::Plain(body, Vec::new());
    let (tree, charge, sequence, replays) = (0, 1, 0, false);
    link.ask(Request { command, tree, session, charge, sequence, replays, signer, ask }).await
}

fn contexts(salt: &[u8], options: Options) -> Vec<NegotiateContext<'_>> {
    let mut all = vec![
        NegotiateContext::Preauth { algorithms: vec![SHA_512], salt },
        NegotiateContext::Encryption(options.ciphers.iter().map(|c| *c as u16).collect()),
        NegotiateContext::Signing(options.signing.iter().map(|a| *a as u16).collect()),
    ];
    if options.rdma_transforms {
        all.push(NegotiateContext::RdmaTransform(TRANSFORMS.map(|p| p as u16).to_vec()));
    }
    if let Some(Compression { algorithms, chained }) = options.compression {
        let flags = if chained { CAPABILITY_CHAINED } else { 0 };
        all.push(NegotiateContext::Compression { flags, algorithms: algorithms.to_vec() });
    }
    all
}

async fn negotiate(link: &Link, options: Options, preauth: &mut Preauth) -> Result<Negotiated> {
    let offered = Dialect::ALL.into_iter().filter(|d| *d <= options.dialect);
    let dialects: Vec<u16> = offered.map(Dialect::number).collect();
    let salt = random::<32>()?;
    let required = if options.sign { negotiate::SIGNING_REQUIRED } else { 0 };
    let multichannel = if options.multichannel { negotiate::CAP_MULTI_CHANNEL } else { 0 };
    let request = negotiate::Request {
        security_mode: negotiate::SIGNING_ENABLED | required,
        capabilities: negotiate::CAP_LARGE_MTU
            | negotiate::CAP_ENCRYPTION
            | negotiate::CAP_PERSISTENT_HANDLES
            | multichannel,
        client_guid: match options.machine {
            Some(guid) => guid,
            None => random()?,
        },
        dialects,
        contexts: match options.dialect {
            Dialect::V311 => contexts(&salt, options),
            _ => Vec::new(),
        },
    };
    let answer = ask(link, Command::Negotiate, 0, request.emit(), None).await?;
    if answer.header.status != 0 {
        return Err(Error::Smb(Command::Negotiate, NtStatus::of(&answer.header)));
    }
    preauth.update(&[&answer.sent]);
    preauth.update(&[&answer.message]);
    let r = negotiate::Response::parse(&answer.message).map_err(malformed)?;
    let dialect = Dialect::from_number(r.dialect)
        .filter(|d| *d <= options.dialect)
        .ok_or_else(|| Error::Protocol(format!("dialect {:#06x} was not offered", r.dialect)))?;
    let mut algorithm = if dialect.is_3() { Algorithm::AesCmac } else { Algorithm::HmacSha256 };
    let encrypts = r.capabilities & negotiate::CAP_ENCRYPTION != 0;
    let mut cipher = (dialect.is_3() && encrypts).then_some(Cipher::Aes128Ccm);
    if dialect == Dialect::V311 {
        cipher = None;
    }
    let mut transforms = Vec::new();
    let mut compression = None;
    for context in &r.contexts {
        match context {
            NegotiateContext::RdmaTransform(ids) => {
                let is_first = transforms.is_empty() && options.rdma_transforms;
                let known = ids.iter().map(|n| Protection::from_number(*n)).collect::<Option<_>>();
                transforms = match &ids[..] {
                    [Protection::NONE] if is_first => Vec::new(),
                    _ => known.filter(|_| is_first).ok_or_else(|| {
                        Error::Protocol(format!("RDMA transforms {ids:?} were not offered"))
                    })?,
                };
            }
            NegotiateContext::Signing(a) => {
                let found = a.first().and_then(|a| Algorithm::from_number(*a));
                algorithm = found.unwrap_or(algorithm);
            }
            NegotiateContext::Compression { flags, algorithms } => {
                compression = Some(agreed_compression(options, *flags, algorithms)?);
            }
            NegotiateContext::Encryption(c) => {
                cipher = c.first().and_then(|c| Cipher::from_number(*c));
            }
            _ => {}
        }
    }
    Ok(Negotiated {
        dialect,
        algorithm,
        cipher,
        signing_required: r.security_mode & negotiate::SIGNING_REQUIRED != 0,
        read_max: r.read_max,
        write_max: r.write_max,
        multi_credit: dialect != Dialect::V202 && r.capabilities & negotiate::CAP_LARGE_MTU != 0,
        transforms,
        compression: Compressing {
            agreed: compression.unwrap_or_default(),
            largest: r.read_max.max(r.write_max).max(r.transact_max),
        },
    })
}

/// What of the offer a server has chosen; NONE alone is nothing.
fn agreed_compression(
    options: Options,
    flags: u32,
    algorithms: &[u16],
) -> Result<AgreedCompression> {
    let chained = flags & CAPABILITY_CHAINED != 0;
    let offered = options.compression.filter(|offer| offer.chained || !chained);
    let is_offered = |offer: Compression| match algorithms {
        [NONE] => true,
        some => some.iter().all(|n| offer.algorithms.contains(n)),
    };
    if !offered.is_some_and(is_offered) {
        return Err(Error::Protocol(format!("compression {algorithms:?} was not offered")));
    }
    Ok(AgreedCompression::of_offer(algorithms, chained))
}

fn initiator(server: &str, user: &User) -> Result<Initiator> {
    let credentials = Credentials {
        account: Account {
            user: user.name.clone(),
            domain: user.domain.clone(),
            workstation: "HEADGATE".into(),
        },
        hash: NtHash::of(&user.password),
        target_name: format!("cifs/{server}"),
    };
    let fresh = Fresh { challenge: random()?, key: random()?, time: filetime() };
    Ok(Initiator::new(credentials, fresh))
}

/// Logs on; binds an existing session to this connection if one is given.
pub(super) async fn run(
    link: &Link,
    server: &str,
    user: &User,
    options: Options,
    bound: Option<Binding<'_>>,
) -> Result<Logon> {
    let mut preauth = Preauth::new();
    let chosen = negotiate(link, options, &mut preauth).await?;
    link.multi_credit(chosen.multi_credit);
    link.compresses(chosen.compression);
    let sign = options.sign || chosen.signing_required;
    let mut initiator = initiator(server, user)?;
    let setup = |token: &[u8]| {
        let mode = negotiate::SIGNING_ENABLED | if sign { negotiate::SIGNING_REQUIRED } else { 0 };
        let request = session_setup::Request {
            flags: if bound.is_some() { session_setup::BINDING } else { 0 },
            security_mode: u8::try_from(mode).unwrap_or(1),
            capabilities: 0,
            previous_session: if bound.is_some() { 0 } else { options.previous_session },
            token,
        };
        request.emit()
    };
    let refused = |r: smb_auth::Refusal| Error::Protocol(format!("logon: {}", r.reason()));
    let signer = || bound.map(|b| b.secure.of_session().clone());
    let session = bound.map_or(0, |b| b.session);
    let body = setup(&initiator.first());
    let first = ask(link, Command::SessionSetup, session, body, signer()).await?;
    if NtStatus::of(&first.header) != NtStatus::MORE_PROCESSING_REQUIRED {
        return Err(Error::Smb(Command::SessionSetup, NtStatus::of(&first.header)));
    }
    preauth.update(&[&first.sent]);
    preauth.update(&[&first.message]);
    let session = first.header.session_id;
    let token = session_setup::Response::parse(&first.message).map_err(malformed)?.token;
    let (token, key) = initiator.second(token).map_err(refused)?;
    let last = ask(link, Command::SessionSetup, session, setup(&token), signer()).await?;
    if last.header.status != 0 {
        return Err(Error::Smb(Command::SessionSetup, NtStatus::of(&last.header)));
    }
    preauth.update(&[&last.sent]);
    let answer = session_setup::Response::parse(&last.message).map_err(malformed)?;
    initiator.finish(answer.token).map_err(refused)?;
    let seal = options.seal || answer.flags & session_setup::ENCRYPT_DATA != 0;
    let hash = *preauth.value();
    let keys = chosen.dialect.is_3().then(|| {
        let context = match chosen.dialect {
            Dialect::V311 => Context::V311(&hash),
            _ => Context::V30,
        };
        Keys::derive(&key, context, chosen.cipher.unwrap_or(Cipher::Aes128Ccm))
    });
    let signing = keys.as_ref().map_or_else(|| session_key(&key), |k| k.signing.clone());
    let is_anonymous = answer.flags & (session_setup::IS_GUEST | session_setup::IS_NULL) != 0;
    if chosen.dialect == Dialect::V311 && !is_anonymous {
        verify_negotiation(chosen.algorithm, &signing, &last.message)?;
    }
    let sealing = keys.as_ref().zip(chosen.cipher);
    let sign = sign && !is_anonymous;
    let transforms = chosen.transforms;
    link.secure(match bound {
        Some(bound) => bound.secure.on(chosen.algorithm, &signing, transforms)?,
        None => {
            let uses = Uses { sign, seal, can_sign: !is_anonymous, transforms };
            Secure::new(session, chosen.algorithm, &signing, sealing, uses)?
        }
    });
    let limit = if chosen.multi_credit { u32::MAX } else { 65_536 };
    let agreed = Agreed {
        dialect: chosen.dialect,
        read_max: chosen.read_max.min(limit),
        write_max: chosen.write_max.min(limit),
        signed: sign && !seal,
        sealed: seal,
    };
    Ok(Logon { session, agreed })
}

/// Verifies the signature of the last response: without this check an attacker could have modified the negotiation.
fn verify_negotiation(algorithm: Algorithm, key: &[u8; 16], message: &[u8]) -> Result<()> {
    let signer =
        Signer::new(algorithm, key).map_err(|_| Error::Protocol("no signing key".into()))?;
    let verified = signer.verify(Sender::Server, &[message]);
    verified.map_err(|_| Error::Protocol("the negotiation was tampered with".into()))
}
