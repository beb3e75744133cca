//! RPCSEC_GSS version 1 (RFC 2203) with the krb5 mechanism (RFC 4121): calls whose caller has proved by a ticket who it is.
//!
//! *Operation.* [`Gss::admit`] takes every call with such a credential. One that makes a context is answered here, by what
//! [`Accept`] says of its token; one that ends a context as well. Of all others the header is verified, the number is taken
//! ([`window`]), the arguments are verified or decrypted ([`open`]), and the call goes on like any other. Its plain reply is
//! protected by [`protect`] in the same way, so that whatever keeps replies keeps plain ones: a call that is sent again has
//! another number, and its answer another verifier.
//!
//! *Memory.* Contexts are bounded ([`table`]). Payload is decrypted and encrypted where it lies; what others read as well is
//! copied first. A call that is not protected (`krb5`) leaves its bulk data to RDMA; the others have all of it inside the message
//! (RFC 8166 section 3.4.1).
//!
//! *Errors.* As Linux' server: a number that was seen or is too old is dropped without an answer (RFC 2203 section 5.3.3.1), an
//! unknown or expired context and a wrong verifier are RPCSEC_GSS_CREDPROBLEM, a context at its end RPCSEC_GSS_CTXPROBLEM, a
//! body that does not verify GARBAGE_ARGS.

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
use crate::violation::Violation;

pub use kerberos::{Kerberos, LIMIT, NoUser, Principals};
use table::{Context, HANDLE, Met, Table};
pub use why::Why;
use window::{WINDOW, Window};

/// The rule by which a token is refused.
pub const RULE: &str = "rpc-kerberos";
/// Bytes of a token: as large as a ticket gets that names all groups of a user (MaxTokenSize of Windows, 48,000 bytes).
pub const TOKEN_MAX: usize = 48 << 10;

/// What a principal is known by in records that survive a restart: of no use to find its name by, and no two are known to have one
/// (the first half of SHA-256).
pub fn fingerprint(principal: &str) -> u128 {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, principal.as_bytes());
    digest.as_ref().iter().take(16).fold(0, |sum, byte| sum << 8 | u128::from(*byte))
}

/// Says who a token's sender is.
pub trait Accept: Send + Sync + 'static {
    /// Takes the first token of a context of a client at this address. May wait, within a limit of its own.
    fn accept(&self, token: Buf, from: IpAddr)
    -> BoxFuture<'static, Result<Accepted, NotAccepted>>;
}

/// A sender that has proved who it is.
pub struct Accepted {
    /// Goes back to it.
    pub token: Vec<u8>,
    /// The keys that both have.
    pub keys: gss_krb5::Context,
    /// Number of the first token from here.
    pub sequence: u64,
    /// Its name.
    pub principal: String,
    /// As whom it acts on files.
    pub cred: Cred,
    /// How long its ticket lasts.
    pub lifetime: Duration,
}

/// Why there is no context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAccepted {
    /// Nobody has looked at the token in time.
    Busy,
    /// The token was looked at.
    Refused {
        /// Why it makes no context.
        why: Why,
        /// Goes back to the sender.
        token: Vec<u8>,
        /// Its name, where it is known.
        principal: String,
        /// More about it for the log: the words of the library, the name of the service.
        detail: String,
    },
}

/// What a call with a credential of RPCSEC_GSS comes to.
pub(crate) enum Admitted {
    /// This is its whole answer.
    Answered(Reply),
    /// It has none.
    Dropped,
    /// It is a call like others, once it is unpacked.
    Call(Box<Call>),
}

/// A call that was verified, with its arguments in plain.
pub(crate) struct Call {
    /// Its numbers; credential and verifier have done their work.
    pub(crate) head: CallHead<'static>,
    /// The context that it came by.
    pub(crate) context: Arc<Context>,
    /// How it is protected, and how its answer is.
    pub(crate) service: GssService,
    /// Its sequence number.
    number: u32,
    /// The message, up to the end of the arguments.
    pub(crate) body: Buf,
    /// Where the arguments begin.
    pub(crate) at: usize,
    /// Bulk data.
    pub(crate) read_chunks: Vec<ReadChunkData>,
}

impl Call {
    /// The reply as the caller can verify it.
    pub(crate) fn protect(&self, reply: Reply) -> Reply {
        protect::protect(&self.context, self.number, self.service, reply)
    }
}

/// Counts a token that makes no context, keeps it for `headgate status`, and says in one line of the log what was wrong with it,
/// unless that was told within the last minute: whoever sends such tokens without end fills no log.
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
    /// Grows when contexts are forgotten.
    generation: AtomicU64,
    names: SipHasher13,
}

impl Gss {
    /// With contexts for those whom `accept` knows; `key` is random.
    pub fn new(accept: Option<Arc<dyn Accept>>, key: [u8; 16]) -> Self {
        Self {
            accept: RwLock::new(accept),
            table: Table::default(),
            generation: AtomicU64::new(0),
            names: SipHasher13::new_with_key(&key),
        }
    }

    /// The flavor is served.
    pub fn is_served(&self) -> bool {
        reading(&self.accept).is_some()
    }

    /// From now on contexts are made for those whom `accept` knows; those that were made before are gone.
    pub fn set(&self, accept: Option<Arc<dyn Accept>>) {
        *writing(&self.accept) = accept;
        self.forget();
    }

    /// Users may be others than before: all contexts are gone, also those that are being made, and clients make new ones by the
    /// tickets that they have (RFC 2203 section 5.3.3.3).
    pub fn forget(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.table.clear();
    }

    /// Contexts that are kept.
    pub fn contexts(&self) -> usize {
        self.table.len()
    }

    /// Takes a call whose head was read before, and whose credential is of RPCSEC_GSS.
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
            // RFC 2203 section 5.2.2: by the NULL procedure. One token is all that krb5 takes, so that none is continued.
            GssProc::Init | GssProc::ContinueInit if head.procedure != 0 => {
                refused(head.xid, AuthStat::BadCred)
            }
            GssProc::ContinueInit => refused(head.xid, AuthStat::RpcsecGssCredproblem),
            GssProc::Init if head.verf.flavor != AUTH_NONE => refused(head.xid, AuthStat::BadVerf),
            GssProc::Init => {
                let token = match xdr::decode::<GssInitArg<'_>>(arguments) {
                    // Behind its length, and kept where it is.
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

    /// Makes a context, or says why not.
    async fn init(&self, conn: &Conn, xid: u32, token: Buf, now: Duration) -> Reply {
        let generation = self.generation.load(Ordering::Acquire);
        let accept = reading(&self.accept).clone();
        let Some(accept) = accept else { return plain(xid, AcceptStat::SystemErr) };
        // What must be recorded and cannot be is not done.
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
        // It may be of a user as it was. Its client finds that it is gone, and makes another.
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

    /// The context of a call whose header verifies; `None` where its number was taken before.
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

    /// RFC 2203 section 5.4: the context is forgotten once the answer is made.
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

/// Where the body of a credential begins in a call: behind six words, its flavor and its length.
const CREDENTIAL_AT: usize = 32;

/// The arguments in plain, or GARBAGE_ARGS (RFC 2203 section 5.3.3.2). Arguments that cannot be verified, because there was no
/// memory for their data, are answered SYSTEM_ERR (RFC 5531 section 9) and not looked at.
fn unpacked(conn: &Conn, call: Call) -> Admitted {
    let Call { head, context, service, number, body, at, read_chunks } = call;
    if service != GssService::None && read_chunks.iter().any(ReadChunkData::is_missing) {
        let reply = plain(head.xid, AcceptStat::SystemErr);
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

/// The memory itself where it is nobody else's, or a copy.
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

fn made(xid: u32, verf: OpaqueAuth<'_>, results: &GssInitRes<'_>) -> Reply {
    let mut out = Vec::new();
    ReplyHead { xid, body: ReplyBody::Accepted(verf, AcceptStat::Success) }.emit(&mut out);
    results.emit(&mut out);
    Reply::of(out)
}

/// RFC 2203 section 5.2.3.1: without a handle.
fn not_made(xid: u32, major: u32, token: &[u8]) -> Reply {
    let results =
        GssInitRes { handle: &[], gss_major: major, gss_minor: 0, seq_window: 0, gss_token: token };
    made(xid, OpaqueAuth::NONE, &results)
}

impl Context {
    /// Number of the next token.
    pub(super) fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }
}
