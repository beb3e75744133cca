//! RPCSEC_GSS version 1 (RFC 2203) with the krb5 mechanism (RFC 4121): calls authenticated by a Kerberos ticket.
//!
//! *Operation.* [`Gss::admit`] handles every call with such a credential. It answers calls that create a context (after [`Accept`]
//! has checked the token) or destroy one. For all others it verifies the header, checks the sequence number ([`window`]), and
//! verifies or decrypts the arguments ([`open`]); the call is then executed like any other. [`protect`] protects its plain reply.
//! Caches keep plain replies, because a retransmission has a new sequence number and needs a new verifier.
//!
//! *Memory.* The number of contexts is bounded ([`table`]). Payload is encrypted and decrypted in place; shared memory is copied
//! first. Unprotected calls (`krb5`) leave bulk data to RDMA; protected ones carry all data inside the message (RFC 8166 section
//! 3.4.1).
//!
//! *Errors.* As in Linux' server: a repeated or too old sequence number is dropped without a reply (RFC 2203 section 5.3.3.1), an
//! unknown or expired context and a wrong verifier get RPCSEC_GSS_CREDPROBLEM, a context at its last sequence number gets
//! RPCSEC_GSS_CTXPROBLEM, a body that does not verify gets GARBAGE_ARGS.

mod kerberos;
mod open;
mod protect;
pub mod table;
mod why;
mod window;

use std::hash::Hasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use audit::PeerText;
use iobuf::{Buf, BufMut};
use mutex::{reading, writing};
use nfs_proto::nfs3::Nfsstat3;
use nfs_proto::oncrpc::{
    AUTH_NONE, AcceptStat, AuthStat, CallHead, OpaqueAuth, ReplyBody, ReplyHead,
};
use nfs_proto::rpcsec_gss::{
    GssCred, GssInitArg, GssInitRes, GssProc, GssService, MAXSEQ, RPCSEC_GSS, VERSION_1,
};
use nfs_proto::xdr::{self, Xdr};
use rdma_transport::channel::{BoxFuture, ReadChunkData, Reply};
use rdma_transport::count;
use rdma_transport::refused::{self, Refused};
use siphasher::sip::SipHasher13;
use vfs::Cred;

use crate::context::Conn;
use crate::locate;
use crate::violation::Violation;

pub use kerberos::{Kerberos, LIMIT, NoUser, Principals};
use table::{Context, HANDLE, Met, Table};
pub use why::Why;
use window::{WINDOW, Window};

/// The name of the rule in reports of refused tokens.
pub const RULE: &str = "rpc-kerberos";
/// Largest token, in bytes: a ticket that lists all groups of a user (MaxTokenSize of Windows, 48,000 bytes).
pub const TOKEN_MAX: usize = 48 << 10;

/// Identifies a principal in records that survive a restart: the first half of its SHA-256. The name cannot be recovered, and no
/// two names with the same value are known.
pub fn fingerprint(principal: &str) -> u128 {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, principal.as_bytes());
    digest.as_ref().iter().take(16).fold(0, |sum, byte| sum << 8 | u128::from(*byte))
}

/// Authenticates the sender of a token.
pub trait Accept: Send + Sync + 'static {
    /// Checks the first token of a context from a client at this address. May wait, up to its own limit.
    fn accept(&self, token: Buf, from: IpAddr)
    -> BoxFuture<'static, Result<Accepted, NotAccepted>>;
}

/// The authenticated sender of a call, with its session keys.
pub struct Accepted {
    /// The token to return.
    pub token: Vec<u8>,
    /// The session keys of the context.
    pub keys: gss_krb5::Context,
    /// Sequence number of the first token that the server sends.
    pub sequence: u64,
    /// The name of the principal.
    pub principal: String,
    /// The identity for file access.
    pub cred: Cred,
    /// Remaining lifetime of the ticket.
    pub lifetime: Duration,
}

/// The reason why no context was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAccepted {
    /// The token waited too long for a thread.
    Busy,
    /// The token was checked and refused.
    Refused {
        why: Why,
        /// The error token to return.
        token: Vec<u8>,
        /// The name of the principal, if known.
        principal: String,
        /// Details for the log: the library's message, the name of the service.
        detail: String,
    },
}

/// The result for a call with an RPCSEC_GSS credential.
pub(crate) enum Admitted {
    /// The call is complete, with this reply.
    Answered(Reply),
    /// The call gets no reply.
    Dropped,
    /// The call is verified and ready for execution.
    Call(Box<Call>),
}

/// A verified call with plain arguments.
pub(crate) struct Call {
    /// The numbers of the call, without credential and verifier.
    pub(crate) head: CallHead<'static>,
    pub(crate) context: Arc<Context>,
    /// The protection of the call and of its reply.
    pub(crate) service: GssService,
    number: u32,
    /// The message, up to the end of the arguments.
    pub(crate) body: Buf,
    /// Offset of the arguments.
    pub(crate) at: usize,
    /// The bulk data that the transport has located in the call.
    pub(crate) read_chunks: Vec<ReadChunkData>,
}

impl Call {
    /// Protects the reply as the caller expects it.
    pub(crate) fn protect(&self, reply: Reply) -> Reply {
        protect::protect(&self.context, self.number, self.service, reply)
    }
}

/// Counts a refused token, keeps it for `headgate status` and logs it, at most once a minute for the same reason: a flood of bad
/// tokens must not fill the log.
fn note_refused(conn: &Conn, why: Why, principal: String, detail: &str) {
    refused::count(RULE);
    let (reason, remedy) = (why.reason(), why.remedy());
    let (share, rule) = (PeerText::default(), RULE);
    let user: PeerText = principal.as_str().into();
    let one = Refused { peer: conn.peer_ip(), user, share, rule, remedy: remedy.into() };
    if !conn.is_datagram() && refused::record(one) {
        tracing::warn!(peer = %conn.info.peer, principal, reason, detail, remedy, "ticket of NFS refused");
    }
}

/// The contexts of all clients.
#[derive(Default)]
pub struct Gss {
    accept: RwLock<Option<Arc<dyn Accept>>>,
    table: Table,
    /// Incremented when all contexts are dropped.
    generation: AtomicU64,
    names: SipHasher13,
}

impl Gss {
    /// Creates contexts for principals that `accept` authenticates; `key` is random.
    pub fn new(accept: Option<Arc<dyn Accept>>, key: [u8; 16]) -> Self {
        Self {
            accept: RwLock::new(accept),
            table: Table::default(),
            generation: AtomicU64::new(0),
            names: SipHasher13::new_with_key(&key),
        }
    }

    /// True if Kerberos is configured.
    pub fn is_served(&self) -> bool {
        reading(&self.accept).is_some()
    }

    /// Replaces the authenticator and drops all contexts.
    pub fn set(&self, accept: Option<Arc<dyn Accept>>) {
        *writing(&self.accept) = accept;
        self.forget();
    }

    /// Drops all contexts, including those in creation, because the mapping of users may have changed. Clients create new ones with
    /// the tickets that they hold (RFC 2203 section 5.3.3.3).
    pub fn forget(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.table.clear();
    }

    pub fn contexts(&self) -> usize {
        self.table.len()
    }

    /// Handles a call with an RPCSEC_GSS credential, whose head is decoded already.
    pub(crate) async fn admit(
        &self,
        conn: &Conn,
        body: Buf,
        read_chunks: Vec<ReadChunkData>,
        now: Duration,
    ) -> Admitted {
        let Ok((arguments, head)) = CallHead::decode(&body) else { return Admitted::Dropped };
        let at = body.len() - arguments.len();
        let cred = match xdr::decode::<GssCred<'_>>(head.cred.body) {
            Ok(([], cred)) if cred.vers == VERSION_1 => cred,
            _ => {
                Violation::Credential.note(conn, "body");
                return refused(head.xid, AuthStat::BadCred);
            }
        };
        match cred.gss_proc {
            // RFC 2203 section 5.2.2: contexts are created with the NULL procedure. krb5 needs only one token, so there is no
            // continuation.
            GssProc::Init | GssProc::ContinueInit if head.procedure != 0 => {
                refused(head.xid, AuthStat::BadCred)
            }
            GssProc::ContinueInit => refused(head.xid, AuthStat::RpcsecGssCredproblem),
            GssProc::Init if head.verf.flavor != AUTH_NONE => refused(head.xid, AuthStat::BadVerf),
            GssProc::Init => {
                let token = match xdr::decode::<GssInitArg<'_>>(arguments) {
                    // The token follows its length and is not copied.
                    Ok(([], args)) if args.gss_token.len() <= TOKEN_MAX => {
                        body.slice(at + 4..at + 4 + args.gss_token.len())
                    }
                    Ok(([], args)) => {
                        let detail = format!("{} bytes", args.gss_token.len());
                        note_refused(conn, Why::TooLong, String::new(), &detail);
                        return Admitted::Answered(plain(head.xid, AcceptStat::GarbageArgs));
                    }
                    Err(_) | Ok(_) => {
                        Violation::Arguments.note(conn, "token of a context");
                        return Admitted::Answered(plain(head.xid, AcceptStat::GarbageArgs));
                    }
                };
                Admitted::Answered(self.init(conn, head.xid, token, now).await)
            }
            GssProc::Data | GssProc::Destroy => {
                let context = match self.verified(conn, &head, &cred, &body, now) {
                    Ok(Some(context)) => context,
                    Ok(None) => return Admitted::Dropped,
                    Err(stat) => return refused(head.xid, stat),
                };
                let (service, number) = (cred.service, cred.seq_num);
                let ends = (cred.gss_proc == GssProc::Destroy).then(|| cred.handle.to_vec());
                let none = OpaqueAuth::NONE;
                let CallHead { xid, program, version, procedure, .. } = head;
                let head = CallHead { xid, program, version, procedure, cred: none, verf: none };
                if let Some(handle) = ends {
                    return self.destroy(&context, &head, number, &handle);
                }
                unpacked(conn, Call { head, context, service, number, body, at, read_chunks })
            }
        }
    }

    /// Creates a context, or reports the reason for refusal.
    async fn init(&self, conn: &Conn, xid: u32, token: Buf, now: Duration) -> Reply {
        let generation = self.generation.load(Ordering::Acquire);
        let accept = reading(&self.accept).clone();
        let Some(accept) = accept else { return plain(xid, AcceptStat::SystemErr) };
        // If auditing is mandatory and the record cannot be written, the context is refused.
        let Ok(permit) = audit::permit() else { return plain(xid, AcceptStat::SystemErr) };
        let accepted = match accept.accept(token, conn.peer_ip()).await {
            Ok(accepted) => accepted,
            Err(NotAccepted::Busy) => {
                count::limited(LIMIT, kerberos::WAIT_S, conn.info.peer);
                return plain(xid, AcceptStat::SystemErr);
            }
            Err(NotAccepted::Refused { why, token, principal, detail }) => {
                note_refused(conn, why, principal, &detail);
                return not_made(xid, why.major(), &token);
            }
        };
        let mut handle = [0; HANDLE];
        if getrandom::fill(&mut handle).is_err() {
            return plain(xid, AcceptStat::SystemErr);
        }
        let Accepted { token, keys, sequence, principal, cred, lifetime } = accepted;
        let mut id = self.names;
        id.write(principal.as_bytes());
        let context = Arc::new(Context {
            keys,
            sequence: AtomicU64::new(sequence),
            window: Window::new(),
            principal_id: id.finish(),
            fingerprint: fingerprint(&principal),
            cred,
            until: now + lifetime,
        });
        match self.table.insert(handle, conn.peer_ip(), context.clone(), now) {
            Met::None => {}
            Met::OfAddress => count::limited(
                "gss-contexts-of-address",
                table::CONTEXTS_OF_ADDRESS_MAX,
                conn.info.peer,
            ),
            Met::All => count::limited("gss-contexts", table::CONTEXTS_MAX, conn.info.peer),
        }
        permit.record(|| audit::Event::Context {
            peer: conn.peer_ip(),
            party: audit::Party::named(principal, context.cred.uid),
            seconds: lifetime.as_secs(),
        });
        // The context may have an outdated user. The client finds it missing and creates another.
        if self.generation.load(Ordering::Acquire) != generation {
            self.table.remove(&handle);
        }
        // RFC 2203 section 5.2.3.1: the verifier of a complete context is a MIC of the window.
        let mic = protect::verifier(&context, WINDOW);
        let verf = OpaqueAuth { flavor: RPCSEC_GSS, body: &mic };
        let results = GssInitRes {
            handle: &handle,
            gss_major: 0,
            gss_minor: 0,
            seq_window: WINDOW,
            gss_token: &token,
        };
        made(xid, verf, &results)
    }

    /// Returns the context of a call whose header verifies; `None` if its sequence number was used before.
    fn verified(
        &self,
        conn: &Conn,
        head: &CallHead<'_>,
        cred: &GssCred<'_>,
        body: &[u8],
        now: Duration,
    ) -> Result<Option<Arc<Context>>, AuthStat> {
        let problem = AuthStat::RpcsecGssCredproblem;
        let context = self.table.find(cred.handle, now).ok_or(problem)?;
        // RFC 2203 section 5.3.1: of the header from the xid to the end of the credential.
        let end = CREDENTIAL_AT + head.cred.body.len().next_multiple_of(4);
        let header = body.get(..end).unwrap_or_default();
        let verifies = head.verf.flavor == RPCSEC_GSS
            && context.keys.verify_mic(head.verf.body, &[header]).is_ok();
        if !verifies {
            Violation::GssVerifier.note(conn, "of a call");
            return Err(problem);
        }
        if cred.seq_num > MAXSEQ {
            return Err(AuthStat::RpcsecGssCtxproblem);
        }
        Ok(context.window.take(cred.seq_num).then_some(context))
    }

    /// Destroys the context after building the reply (RFC 2203 section 5.4).
    fn destroy(
        &self,
        context: &Context,
        head: &CallHead<'_>,
        number: u32,
        handle: &[u8],
    ) -> Admitted {
        if head.procedure != 0 {
            return refused(head.xid, AuthStat::BadCred);
        }
        self.table.remove(handle);
        let reply = plain(head.xid, AcceptStat::Success);
        Admitted::Answered(protect::protect(context, number, GssService::None, reply))
    }
}

/// Offset of the credential's body in a call: after six words, the flavor and the length.
const CREDENTIAL_AT: usize = 32;

/// Unprotects the arguments; GARBAGE_ARGS if that fails (RFC 2203 section 5.3.3.2). If there was no memory for their data, they
/// cannot be verified: a WRITE of NFS 3 is refused by its verified head alone (RFC 1813 section 2.6), any other call gets
/// SYSTEM_ERR (RFC 5531 section 9).
fn unpacked(conn: &Conn, call: Call) -> Admitted {
    let Call { head, context, service, number, body, at, read_chunks } = call;
    if service != GssService::None && read_chunks.iter().any(ReadChunkData::is_missing) {
        let reply = match locate::is_write_of_version_3(&head) {
            true => refused_write(head.xid),
            false => plain(head.xid, AcceptStat::SystemErr),
        };
        return Admitted::Answered(protect::protect(&context, number, service, reply));
    }
    let opened = match service {
        GssService::None => Some(open::Opened { body, at, read_chunks }),
        GssService::Integrity => open::integrity(&context, number, body, at, read_chunks),
        GssService::Privacy => open::privacy(&context, &head, number, body, at, read_chunks),
    };
    let Some(open::Opened { body, at, read_chunks }) = opened else {
        Violation::GssBody.note(conn, "arguments");
        let reply = plain(head.xid, AcceptStat::GarbageArgs);
        return Admitted::Answered(protect::protect(&context, number, service, reply));
    };
    Admitted::Call(Box::new(Call { head, context, service, number, body, at, read_chunks }))
}

/// Returns the memory for writing if it has no other owner, or a copy.
fn writable(data: Buf) -> BufMut {
    data.try_mut().unwrap_or_else(|shared| {
        let mut own = BufMut::heap(shared.len());
        own.append(&shared);
        own
    })
}

fn refused(xid: u32, stat: AuthStat) -> Admitted {
    let mut out = Vec::new();
    ReplyHead { xid, body: ReplyBody::AuthError(stat) }.emit(&mut out);
    Admitted::Answered(Reply::of(out))
}

fn plain(xid: u32, stat: AcceptStat) -> Reply {
    let mut out = Vec::new();
    ReplyHead::accepted(xid, stat).emit(&mut out);
    Reply::of(out)
}

/// `WRITE3resfail` that makes the client retry, without attributes.
fn refused_write(xid: u32) -> Reply {
    let mut reply = plain(xid, AcceptStat::Success);
    let no_attributes = [0; 2];
    for word in [Nfsstat3::Jukebox as u32].into_iter().chain(no_attributes) {
        word.emit(&mut reply.head);
    }
    reply
}

fn made(xid: u32, verf: OpaqueAuth<'_>, results: &GssInitRes<'_>) -> Reply {
    let mut out = Vec::new();
    ReplyHead { xid, body: ReplyBody::Accepted(verf, AcceptStat::Success) }.emit(&mut out);
    results.emit(&mut out);
    Reply::of(out)
}

/// The reply to a refused token, without a handle (RFC 2203 section 5.2.3.1).
fn not_made(xid: u32, major: u32, token: &[u8]) -> Reply {
    let results =
        GssInitRes { handle: &[], gss_major: major, gss_minor: 0, seq_window: 0, gss_token: token };
    made(xid, OpaqueAuth::NONE, &results)
}

impl Context {
    /// The sequence number of the next token.
    pub(super) fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }
}
