//! NEGOTIATE (MS-SMB2 sections 3.3.5.3 and 3.3.5.4).

use rdma_transport::channel::Facts;
use smb_compress::message::Agreed;

use crate::answer::{Answer, Hash};
use crate::auth;
use crate::conn::{Conn, Negotiated};
use crate::crypto::seal::Cipher;
use crate::crypto::sign::Algorithm;
use crate::limits::{IO_BYTES_MAX, IO_BYTES_MAX_2, IO_BYTES_MAX_SINGLE};
use crate::ops::ioctl::dfs;
use crate::refusal::Rule;
use crate::request_context::RequestContext;
use crate::server_state::ServerState;
use crate::settings::Encryption;
use crate::status::Status;
use crate::violation::Fatal;
use crate::wire::compression::CAPABILITY_CHAINED;
use crate::wire::compression::algorithm::NONE;
use crate::wire::negotiate::{
    CAP_DFS, CAP_DIRECTORY_LEASING, CAP_ENCRYPTION, CAP_LARGE_MTU, CAP_LEASING, CAP_MULTI_CHANNEL,
    CAP_PERSISTENT_HANDLES, Dialect, Request, Response, SIGNING_ENABLED, SIGNING_REQUIRED,
};
use crate::wire::negotiate_context::{NegotiateContext, SHA_512};
use crate::wire::rdma::Protection;
use crate::wire::{Command, Flags, Header, smb1};

/// Strongest and fastest first. The server's order decides.
const CIPHERS: [Cipher; 4] =
    [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Aes128Ccm, Cipher::Aes256Ccm];
const SIGNERS: [Algorithm; 3] = [Algorithm::AesGmac, Algorithm::AesCmac, Algorithm::HmacSha256];
const SALT_LEN: usize = 32;

/// Answers NEGOTIATE. The outer error closes the connection.
pub(crate) async fn call(cx: &RequestContext) -> Result<Result<Answer, Status>, Fatal> {
    if cx.header.flags.has(Flags::SIGNED) || cx.header.flags.has(Flags::ASYNC) {
        return Ok(Err(Status::INVALID_PARAMETER));
    }
    Ok(negotiate(cx))
}

fn negotiate(cx: &RequestContext) -> Result<Answer, Status> {
    let request = cx.parse(Request::parse)?;
    let Some(dialect) = cx.server.greatest_common(&request.dialects) else {
        Rule::Dialect.note(&cx.conn, "", "");
        return Err(Status::NOT_SUPPORTED);
    };
    let mut contexts = Vec::new();
    let mut salt = [0; SALT_LEN];
    getrandom::fill(&mut salt).map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
    let chosen = if dialect == Dialect::V311 {
        cx.with_pieces(|pieces| cx.conn.hash(pieces));
        let compresses = cx.server.settings().compression && !cx.conn.info.transport.is_rdma();
        let mut chosen = choose(&cx.server, &request, &mut contexts, &salt)?;
        if compresses {
            chosen.compression = compression(&request, chosen.posix, &mut contexts)?;
        }
        chosen
    } else {
        Chosen::before_311(&cx.server, &request, dialect)
    };
    let negotiated = settle(&cx.server, dialect, &request, chosen);
    let token = auth::hint(cx.server.settings().mechs());
    let response = response(&cx.server, &negotiated, dialect.number(), &token, contexts);
    let hash = (dialect == Dialect::V311).then_some(Hash::Connection);
    note(cx, &negotiated, &request);
    // Cannot be set already: the commands of one connection are processed one after the other.
    let _ = cx.conn.negotiated.set(negotiated);
    Ok(Answer { hash, ..Answer::ok(response.emit()) })
}

/// Records the result for `status`.
fn note(cx: &RequestContext, n: &Negotiated, request: &Request<'_>) {
    let facts = &cx.conn.info.facts;
    facts.note(Facts::DIALECT, n.dialect.name());
    let multichannel = n.dialect.is_3() && request.capabilities & CAP_MULTI_CHANNEL != 0;
    facts.note(Facts::MULTICHANNEL, if multichannel { "yes" } else { "no" });
    // Clients of dialect 2.0.2 have no identifier.
    if request.client_guid != [0; 16] {
        let id: String = request.client_guid.iter().map(|b| format!("{b:02x}")).collect();
        facts.note(Facts::CLIENT_ID, id);
    }
    facts.note("signing algorithm", format!("{:?}", n.signing));
    let cipher = n.cipher.map_or_else(|| "none".into(), |c| format!("{c:?}"));
    facts.note("cipher", cipher);
    let transforms = match &n.transforms[..] {
        [] => "none".into(),
        some => some.iter().map(|p| format!("{p:?}")).collect::<Vec<_>>().join(", "),
    };
    facts.note(Facts::RDMA_TRANSFORMS, transforms);
}

/// The results of the 3.1.1 negotiate contexts, or their defaults for older dialects.
struct Chosen {
    signing: Algorithm,
    cipher: Option<Cipher>,
    transforms: Vec<Protection>,
    compression: Agreed,
    posix: bool,
}

impl Chosen {
    fn before_311(core: &ServerState, request: &Request<'_>, dialect: Dialect) -> Self {
        let wanted = request.capabilities & CAP_ENCRYPTION != 0;
        let offered = core.settings().offers_encryption();
        Self {
            signing: if dialect.is_3() { Algorithm::AesCmac } else { Algorithm::HmacSha256 },
            cipher: (dialect.is_3() && wanted && offered).then_some(Cipher::Aes128Ccm),
            transforms: Vec::new(),
            compression: Agreed::default(),
            posix: false,
        }
    }
}

/// Processes the negotiate contexts of 3.1.1 (MS-SMB2 section 3.3.5.4) and appends the response contexts to `out`.
fn choose<'a>(
    core: &ServerState,
    request: &Request<'_>,
    out: &mut Vec<NegotiateContext<'a>>,
    salt: &'a [u8],
) -> Result<Chosen, Status> {
    /// Contexts that may occur only once. Other contexts may repeat and are ignored.
    const ONCE: [u16; 5] = [1, 2, 3, 7, 8];
    let mut seen = Vec::with_capacity(ONCE.len());
    let (signing, cipher, transforms) = (Algorithm::AesCmac, None, Vec::new());
    let compression = Agreed::default();
    let mut chosen = Chosen { signing, cipher, transforms, compression, posix: false };
    let mut offered_transforms: Option<&[u16]> = None;
    let mut preauth = false;
    for context in &request.contexts {
        let number = context.number();
        if ONCE.contains(&number) {
            if seen.contains(&number) {
                return Err(Status::INVALID_PARAMETER);
            }
            seen.push(number);
        }
        match context {
            NegotiateContext::Preauth { algorithms, .. } => {
                if !algorithms.contains(&SHA_512) {
                    return Err(Status::SMB_NO_PREAUTH_INTEGRITY_HASH_OVERLAP);
                }
                preauth = true;
                out.push(NegotiateContext::Preauth { algorithms: vec![SHA_512], salt });
            }
            // A client that lists no cipher gets an unencrypted connection, as smbd does.
            NegotiateContext::Encryption(offered)
                if core.settings().offers_encryption() && !offered.is_empty() =>
            {
                chosen.cipher = CIPHERS.into_iter().find(|c| offered.contains(&(*c as u16)));
                let number = chosen.cipher.map_or(0, |c| c as u16);
                out.push(NegotiateContext::Encryption(vec![number]));
            }
            NegotiateContext::Signing(offered) => {
                // If the lists share no algorithm, select AES-CMAC and return it.
                let common = SIGNERS.into_iter().find(|a| offered.contains(&(*a as u16)));
                chosen.signing = common.unwrap_or(Algorithm::AesCmac);
                out.push(NegotiateContext::Signing(vec![chosen.signing as u16]));
            }
            NegotiateContext::Posix => {
                chosen.posix = true;
                out.push(NegotiateContext::Posix);
            }
            NegotiateContext::RdmaTransform(offered) => offered_transforms = Some(offered),
            // An empty or truncated list. Servers that support transforms must refuse it.
            NegotiateContext::Other(7) if core.settings().rdma_transforms => {
                return Err(Status::INVALID_PARAMETER);
            }
            // The server name of the client is ignored. Compression is processed after all other contexts. Transport security is
            // not supported, and such a server ignores its context.
            _ => {}
        }
    }
    if let Some(offered) = offered_transforms.filter(|_| core.settings().rdma_transforms) {
        // Sent on every transport: a client negotiates before it knows which connection will carry its data. Processed last,
        // because the cipher context may come after this one.
        chosen.transforms = transforms_in_common(offered, chosen.cipher);
        let answer = match &chosen.transforms[..] {
            [] => vec![Protection::NONE],
            common => common.iter().map(|p| *p as u16).collect(),
        };
        out.push(NegotiateContext::RdmaTransform(answer));
    }
    if preauth { Ok(chosen) } else { Err(Status::INVALID_PARAMETER) }
}

/// Selects the compression algorithms common to client and server, in the client's order; replies with NONE if the lists share no
/// algorithm (MS-SMB2 section 3.3.5.4).
fn compression(
    request: &Request<'_>,
    posix: bool,
    out: &mut Vec<NegotiateContext<'_>>,
) -> Result<Agreed, Status> {
    let (flags, offered) = match request.contexts.iter().find(|context| context.number() == 3) {
        Some(NegotiateContext::Compression { flags, algorithms }) => (flags, algorithms),
        Some(_) => return Err(Status::INVALID_PARAMETER),
        None => return Ok(Agreed::default()),
    };
    let mut agreed = Agreed::of_offer(offered, flags & CAPABILITY_CHAINED != 0);
    if posix && !agreed.chained {
        // Linux clients, recognized by the POSIX context, compress no message if the response lists several algorithms (6.12).
        agreed.algorithms.truncate(1);
    }
    let algorithms = match &agreed.algorithms[..] {
        [] => vec![NONE],
        some => some.to_vec(),
    };
    let flags = if agreed.chained { CAPABILITY_CHAINED } else { 0 };
    out.push(NegotiateContext::Compression { flags, algorithms });
    Ok(agreed)
}

/// Returns the RDMA transforms that the server also supports, without duplicates and in the client's order. Encryption needs a
/// cipher.
fn transforms_in_common(offered: &[u16], cipher: Option<Cipher>) -> Vec<Protection> {
    let mut common = Vec::new();
    for protection in offered.iter().filter_map(|n| Protection::from_number(*n)) {
        let able = protection == Protection::Signing || cipher.is_some();
        if able && !common.contains(&protection) {
            common.push(protection);
        }
    }
    common
}

fn settle(
    core: &ServerState,
    dialect: Dialect,
    request: &Request<'_>,
    chosen: Chosen,
) -> Negotiated {
    let settings = core.settings();
    let largest = match dialect {
        Dialect::V202 => IO_BYTES_MAX_SINGLE,
        Dialect::V210 => IO_BYTES_MAX_2,
        _ => IO_BYTES_MAX,
    };
    // Clients request DFS referrals only if the server sets this capability.
    let mut capabilities = if dfs::is_capable(&core.namespace) { CAP_DFS } else { 0 };
    if dialect >= Dialect::V210 {
        capabilities |= CAP_LEASING | CAP_LARGE_MTU;
    }
    if dialect.is_3() {
        // Announce persistent handles only if some share offers them: clients rely on the capability.
        let persistent = settings.shares.values().any(|s| core.is_continuous(s));
        // Linux, recognized by the POSIX context, reopens a directory with a new lease after removing a name in it, but shows the
        // old listing, so that `rm -r` fails (6.1 to 7.3).
        let leases_directories = settings.directory_leases && !chosen.posix;
        let directory_leases = if leases_directories { CAP_DIRECTORY_LEASING } else { 0 };
        let ours = CAP_MULTI_CHANNEL
            | directory_leases
            | if persistent { CAP_PERSISTENT_HANDLES } else { 0 };
        // Return only capabilities that the client has too (MS-SMB2 section 3.3.5.4): some clients misread others as supported by
        // both.
        capabilities |= ours & request.capabilities;
        // In 3.1.1 the encryption context replaces this flag.
        let says = dialect != Dialect::V311 && chosen.cipher.is_some();
        capabilities |= if says { CAP_ENCRYPTION } else { 0 };
    }
    Negotiated {
        dialect,
        client_guid: request.client_guid,
        client_capabilities: request.capabilities,
        client_security_mode: request.security_mode,
        client_dialects: request.dialects.clone(),
        capabilities,
        security_mode: core.security_mode(),
        read_max: settings.read_max.min(largest),
        write_max: settings.write_max.min(largest),
        transact_max: settings.transact_max.min(largest),
        signing: chosen.signing,
        cipher: chosen.cipher,
        transforms: chosen.transforms,
        compression: chosen.compression,
        posix: chosen.posix,
    }
}

fn response<'a>(
    core: &ServerState,
    n: &Negotiated,
    dialect: u16,
    token: &'a [u8],
    contexts: Vec<NegotiateContext<'a>>,
) -> Response<'a> {
    Response {
        security_mode: n.security_mode,
        dialect,
        server_guid: core.settings().server_guid,
        capabilities: n.capabilities,
        transact_max: n.transact_max,
        read_max: n.read_max,
        write_max: n.write_max,
        system_time: core.filetime(),
        // Zero since Windows 10. No client needs the server's start time.
        start_time: 0,
        token,
        contexts,
    }
}

/// Answers an SMB1 NEGOTIATE: with SMB2 if the client offers it (MS-SMB2 section 3.3.5.3), else with the SMB1 refusal, after which
/// the connection closes; without a response the client would wait for a long time. `None` is a protocol violation.
pub(crate) async fn from_smb1(core: &ServerState, conn: &Conn, message: &[u8]) -> Option<Vec<u8>> {
    if conn.negotiated().is_some() || !conn.take_ids(0, 1) {
        return None;
    }
    let offer = smb1::parse(message).ok()?;
    let (low, high) = core.settings().dialects;
    let request = Request::default();
    let (dialect, number) = if offer.later && high >= Dialect::V210 {
        (Dialect::V210, Dialect::WILDCARD)
    } else if offer.v202 && low == Dialect::V202 {
        (Dialect::V202, Dialect::V202.number())
    } else {
        let speaks_smb2 = offer.v202 || offer.later;
        let rule = if speaks_smb2 { Rule::Dialect } else { Rule::Smb1 };
        rule.note(conn, "", "");
        conn.handle.shutdown().await;
        return Some(smb1::no_dialect(message));
    };
    let mut negotiated =
        settle(core, dialect, &request, Chosen::before_311(core, &request, dialect));
    // The client offered this one alone, as its FSCTL_VALIDATE_NEGOTIATE_INFO says.
    negotiated.client_dialects = vec![dialect.number()];
    let token = auth::hint(core.settings().mechs());
    let body = response(core, &negotiated, number, &token, Vec::new()).emit();
    if number == Dialect::V202.number() {
        // After the wildcard response the client sends an SMB2 NEGOTIATE, which selects the dialect.
        let _ = conn.negotiated.set(negotiated);
    }
    let header = Header {
        credit_charge: 0,
        status: 0,
        command: Command::Negotiate as u16,
        credits: conn.grant(1),
        flags: Flags(Flags::RESPONSE),
        next: 0,
        message_id: 0,
        tree_or_async: 0,
        session_id: 0,
        signature: [0; 16],
    };
    let mut head = header.emit().to_vec();
    head.extend_from_slice(&body);
    Some(head)
}

impl ServerState {
    /// Returns the greatest dialect number in `offered` that the server supports.
    pub(crate) fn greatest_common(&self, offered: &[u16]) -> Option<Dialect> {
        let (low, high) = self.settings().dialects;
        let known = offered.iter().filter_map(|n| Dialect::from_number(*n));
        known.filter(|d| (low..=high).contains(d)).max()
    }

    /// Returns `SecurityMode` for NEGOTIATE responses.
    pub(crate) fn security_mode(&self) -> u16 {
        let required = self.settings().signing_required;
        SIGNING_ENABLED | if required { SIGNING_REQUIRED } else { 0 }
    }
}

impl crate::settings::Settings {
    fn offers_encryption(&self) -> bool {
        self.encryption != Encryption::Off || self.shares.values().any(|s| s.encrypt)
    }
}
