//! The programs behind every connection: NFS versions 3 and 4, NFSACL, MOUNT, NLM, NSM, RQUOTA, and a minimal port mapper.
//!
//! *Operation.* The serve loop passes each request to [`Service::call`] of the connection's [`Session`]. It decodes the head and
//! the credential, and awaits the procedure in place; requests get no task here. Calls that are not idempotent pass through
//! [`Replay`].
//!
//! *Memory.* A reply is built in one [`Writer`]; bulk data is passed through in the buffers of the pool.
//!
//! *Errors.* Unreadable calls get the matching RPC error, counted and logged once per connection ([`Violation`]). A message that is
//! not a call is dropped.

use std::sync::Arc;
use std::time::Instant;

use iobuf::Buf;
use mutex::locked;
use nfs_proto::oncrpc::{
    AUTH_TLS, AcceptStat, AuthStat, CallError, CallHead, RPC_VERSION, ReplyBody, ReplyHead,
};
use rdma_transport::channel::{BoxFuture, Handle, Info, ReadChunkData, Reply, Service, boxed};
use rdma_transport::refused::Refused;
use rdma_transport::turn;
use vfs::Cred;

use crate::context::{CallContext, Conn, LastCred, Outcome, Version};
use crate::limits::REPLAY_BYTES_MAX;
use crate::mount::{self, Mounts};
use crate::nlm::{self, Nlm};
use crate::portmap::Ports;
use crate::replay::{Begin, CallKey, Pending, Replay};
use crate::rpc::gss::Admitted;
use crate::rpc::reply::{auth_error, refusal};
use crate::rpc::{Flavor, decode_call, decode_cred, program};
use crate::served_programs::ServedPrograms;
use crate::server_state::ServerState;
use crate::v4::Nfs4;
use crate::violation::Violation;
use crate::{claim, nsm, portmap, rquota, tls, v3, v4};
use nfs_proto::nfs3::Nfsstat3;
use nfs_proto::nfs4;
use nfs_proto::rpcsec_gss::RPCSEC_GSS;
use rdma_transport::xdr::{Reader, Writer, XdrResult};

/// The NFS server, shared by all connections.
pub struct Server {
    core: Arc<ServerState>,
    v4: Nfs4,
    nlm: Arc<Nlm>,
    mounts: Mounts,
    replay: Arc<Replay>,
    ports: Ports,
}

impl Server {
    /// Builds a server for these shares without a state directory, so that no client state survives a restart. `replay_key` is
    /// random.
    pub fn new(core: ServerState, replay_key: [u8; 16]) -> Arc<Self> {
        // Invariant: only reading the state directory can fail, and this server has no state directory.
        #[allow(clippy::expect_used)]
        Self::with_v4(core, replay_key, v4::Options::default()).expect("no state directory")
    }

    /// Builds a server for these shares. Fails if the state of the previous run cannot be read.
    pub fn with_v4(
        core: ServerState,
        replay_key: [u8; 16],
        v4: v4::Options,
    ) -> std::io::Result<Arc<Self>> {
        Self::with(core, replay_key, v4, nlm::Options::default())
    }

    /// Like [`Server::with_v4`], with options for the lock manager.
    pub fn with(
        core: ServerState,
        replay_key: [u8; 16],
        v4: v4::Options,
        nlm: nlm::Options,
    ) -> std::io::Result<Arc<Self>> {
        let core = Arc::new(core);
        let store = v4.store.clone();
        let v4 = Nfs4::with(core.clone(), v4)?;
        Ok(Arc::new(Self {
            nlm: Nlm::new(core.clone(), v4.clients.clone(), store, nlm)?,
            v4,
            core,
            mounts: Mounts::default(),
            replay: Replay::new(replay_key),
            ports: Ports::default(),
        }))
    }

    /// The state shared by all connections.
    pub fn core(&self) -> &Arc<ServerState> {
        &self.core
    }

    pub fn v4(&self) -> &Nfs4 {
        &self.v4
    }

    pub fn nlm(&self) -> &Arc<Nlm> {
        &self.nlm
    }

    /// Sets the memory for cached replies, in bytes: at most a quarter is for calls without a session, the rest for sessions.
    pub fn set_replies_max(&self, bytes: usize) {
        let calls = (bytes / 4).min(REPLAY_BYTES_MAX);
        self.replay.set_bytes_max(calls);
        self.v4.clients.set_replies_max(bytes - calls);
    }

    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Starts serving a new connection.
    pub fn session(self: &Arc<Self>, info: Arc<Info>, handle: Handle) -> Session {
        self.session_of(info, handle, ServedPrograms::All)
    }

    /// Starts serving a new connection to a port that serves only these programs.
    pub fn session_of(
        self: &Arc<Self>,
        info: Arc<Info>,
        handle: Handle,
        offer: ServedPrograms,
    ) -> Session {
        Session { server: self.clone(), conn: Arc::new(Conn::new(info, handle)), offer }
    }

    /// Handles one datagram. Addresses that may use no share get no reply, because the sender address may be forged.
    pub async fn datagram(
        self: &Arc<Self>,
        info: Arc<Info>,
        body: Buf,
        offer: ServedPrograms,
    ) -> Option<Reply> {
        let conn = Arc::new(Conn::datagram(info));
        if !self.core.may_use_any(&conn) {
            self.nlm.counters.strangers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            return None;
        }
        self.clone().serve(conn, offer, body, Vec::new()).await
    }

    /// Handles one message. It owns its arguments, so that the future is moved only once.
    async fn serve(
        self: Arc<Self>,
        conn: Arc<Conn>,
        offer: ServedPrograms,
        body: Buf,
        read_chunks: Vec<ReadChunkData>,
    ) -> Option<Reply> {
        let conn = &conn;
        let mut args = Reader::new(&body, &read_chunks);
        let mut out = Writer::new();
        let head = match decode_call(&mut args) {
            Ok(head) => head,
            Err(e) => return not_a_call(conn, e, out),
        };
        if head.cred.flavor == AUTH_TLS {
            return Some(tls::answer(conn, &head, offer));
        }
        if head.cred.flavor == RPCSEC_GSS && self.core.gss.is_served() {
            return Box::pin(self.serve_gss(conn, offer, body, read_chunks)).await;
        }
        // If the transport had to read data for the call, the time taken at the turn's begin is too old.
        let began = if read_chunks.is_empty() { turn::began() } else { Instant::now() };
        let ((flavor, cred), is_learned) = match caller(conn, &head, began) {
            Ok(meant) => meant,
            Err(stat) => {
                match stat {
                    AuthStat::TooWeak => flavor_not_served(conn),
                    _ => Violation::Credential.note(conn, "body"),
                }
                auth_error(&mut out, head.xid, stat);
                return Some(out.into_reply());
            }
        };
        let now = self.core.clock.at(began);
        let peer = conn.peer_ip();
        // A claim that the source port does not prove is refused, and asks no service.
        if !is_learned && flavor == Flavor::Sys && self.core.source_ports.believe(&conn.info) {
            if let Some(asking) = self.core.ask_about(conn, &cred) {
                asking.await;
            }
            conn.note_learned(&cred, began);
        }
        let call = CallContext { xid: head.xid, flavor, principal: 0, peer, cred, began, now };
        self.perform(conn, offer, &head, &call, args, (&body, 0)).await
    }

    /// Handles a Kerberos call: unprotects it, executes it like any other, and protects the reply.
    async fn serve_gss(
        &self,
        conn: &Arc<Conn>,
        offer: ServedPrograms,
        body: Buf,
        read_chunks: Vec<ReadChunkData>,
    ) -> Option<Reply> {
        // As in `serve`. In a virtual machine without a paravirtual clock, each reading of the clock may be a system call.
        let began = if read_chunks.is_empty() { turn::began() } else { Instant::now() };
        let now = self.core.clock.at(began);
        let gss = match self.core.gss.admit(conn, body, read_chunks, now).await {
            Admitted::Answered(reply) => return Some(reply),
            Admitted::Dropped => return None,
            Admitted::Call(call) => call,
        };
        let mut args = Reader::new(&gss.body, &gss.read_chunks);
        args.skip_to(gss.body.get(gss.at..).unwrap_or_default());
        let (head, context) = (&gss.head, &gss.context);
        // A retransmission has a new sequence number in its credential, so the key covers sender and arguments only.
        let call = CallContext {
            xid: head.xid,
            flavor: Flavor::Gss(gss.service),
            principal: context.fingerprint,
            peer: conn.peer_ip(),
            cred: context.cred.clone(),
            began,
            now,
        };
        let what = u64::from(head.program) << 32
            | u64::from(head.version) << 16
            | u64::from(head.procedure);
        let told_by = (args.rest(), context.principal_id ^ what);
        let reply = self.perform(conn, offer, head, &call, args, told_by).await?;
        Some(gss.protect(reply))
    }

    /// Executes a call of a known caller. `args` is positioned at the arguments; `told_by` distinguishes retransmissions from other
    /// calls: the bytes sent, plus the sender if those do not name it.
    async fn perform(
        &self,
        conn: &Arc<Conn>,
        offer: ServedPrograms,
        head: &CallHead<'_>,
        call: &CallContext,
        mut args: Reader<'_>,
        told_by: (&[u8], u64),
    ) -> Option<Reply> {
        let mut out = Writer::new();
        if !offer.has(head.program) {
            return Some(refusal(head.xid, AcceptStat::ProgUnavail));
        }
        if !self.core.source_ports.believe(&conn.info)
            && let Some(refused) = claim::refuse(&self.core, conn, head, call.flavor, &args)
        {
            return Some(refused);
        }
        let mut pending = None;
        if must_happen_once(head, &args) {
            let checksum = self.replay.checksum(told_by.0) ^ told_by.1;
            match self.replay.begin(call_key(conn, head, checksum), call.now) {
                Begin::New(p) => pending = Some(p),
                Begin::InProgress => return None,
                Begin::Done(reply) => {
                    return Some(Reply::of(reply.to_vec()));
                }
            }
        }
        ReplyHead::accepted(head.xid, AcceptStat::Success).emit(out.head());
        let results = out.len();
        let is_whole = args.is_whole();
        let done = self.dispatch(conn, head, call, &mut args, &mut out).await;
        if !conn.info.introduction.is_done()
            && is_whole
            && self.introduces(conn, head, &out, results)
            && matches!(done, Ok(Ok(Outcome::Repeatable | Outcome::Once)))
        {
            conn.info.introduction.note();
        }
        match done {
            Ok(Ok(Outcome::Repeatable)) => Some(out.into_reply()),
            Ok(Ok(Outcome::Once)) => Some(keep(pending, out)),
            Ok(Ok(Outcome::Drop)) => None,
            Ok(Ok(Outcome::TooWeak)) => {
                let mut out = Writer::new();
                auth_error(&mut out, head.xid, AuthStat::TooWeak);
                Some(out.into_reply())
            }
            Ok(Ok(Outcome::NoProcedure)) => Some(refusal(head.xid, AcceptStat::ProcUnavail)),
            Ok(Err(fault)) => {
                let (program, number) = (head.program, head.procedure);
                let what = format!("program {program} procedure {number}: {fault}");
                Violation::Arguments.note(conn, &what);
                Some(refusal(head.xid, AcceptStat::GarbageArgs))
            }
            Err(stat) => Some(refusal(head.xid, stat)),
        }
    }

    /// True if the reply proves that a share admitted the peer to a file, folder or NFSv4 state. NULL calls, refusals and unknown
    /// names do not prove that. `results` is the offset of the results in the reply.
    fn introduces(&self, conn: &Conn, head: &CallHead<'_>, out: &Writer, results: usize) -> bool {
        const REFUSALS: [Nfsstat3; 5] = [
            Nfsstat3::Perm,
            Nfsstat3::Acces,
            Nfsstat3::Stale,
            Nfsstat3::Badhandle,
            Nfsstat3::Serverfault,
        ];
        let status = out.word_at(results);
        let is_granted = match (head.program, head.procedure) {
            (_, 0) => false,
            // COMPOUND4res (RFC 8881 section 16.2.2): status, tag, then the number of operations done.
            (program::NFS, 1) if head.version == 4 => {
                let tag = out.word_at(results + 4).map_or(0, |n| usize::try_from(n).unwrap_or(0));
                let done = tag.checked_next_multiple_of(4).and_then(|n| n.checked_add(results + 8));
                let done = done.and_then(|at| out.word_at(at));
                // More than one operation: the first one (SEQUENCE, or one that chose a file) succeeded.
                done.is_some_and(|n| n > u32::from(status != Some(0)))
            }
            (program::NFS | program::NFSACL, _) => {
                status.is_some_and(|s| REFUSALS.iter().all(|refusal| *refusal as u32 != s))
            }
            (program::MOUNT, mount::procedure::MNT) => status == Some(0),
            // NLM results begin with a cookie, not a status. Lock managers of clients use separate connections.
            (program::NLM, _) => true,
            _ => false,
        };
        is_granted && self.core.may_use_any(conn)
    }

    /// Finds the program and executes the procedure. The outer error is an RPC error.
    async fn dispatch(
        &self,
        conn: &Arc<Conn>,
        head: &CallHead<'_>,
        call: &CallContext,
        args: &mut Reader<'_>,
        out: &mut Writer,
    ) -> Result<XdrResult<Outcome>, AcceptStat> {
        let (version, number) = (head.version, head.procedure);
        match (head.program, version) {
            (program::NFS, 3) => {
                conn.calls(Version::V3);
                Ok(boxed(|| v3::serve(&self.core, conn, call, number, args, out)).await)
            }
            (program::NFS, 4) => match number {
                0 => Ok(Ok(Outcome::Repeatable)),
                1 => Ok(boxed(|| self.v4.compound(conn, call, args, out)).await),
                _ => Err(AcceptStat::ProcUnavail),
            },
            (program::NFS, _) => Err(AcceptStat::ProgMismatch(3, 4)),
            (program::NFSACL, v3::acl::VERSION) => {
                Ok(Box::pin(v3::serve_acl(&self.core, conn, call, number, args, out)).await)
            }
            (program::NFSACL, _) => {
                Err(AcceptStat::ProgMismatch(v3::acl::VERSION, v3::acl::VERSION))
            }
            (program::MOUNT, 1 | 3) => {
                let which = (version, number);
                let done = mount::serve(&self.core, &self.mounts, (conn, call), which, args, out);
                Ok(Box::pin(done).await)
            }
            (program::MOUNT, _) => {
                Err(AcceptStat::ProgMismatch(mount::VERSIONS.0, mount::VERSIONS.1))
            }
            (program::NLM, nlm::VERSION) => {
                Ok(Box::pin(self.nlm.serve(conn, call, number, args, out)).await)
            }
            (program::NLM, _) => Err(AcceptStat::ProgMismatch(nlm::VERSION, nlm::VERSION)),
            (program::NSM, nsm::VERSION) => Ok(nsm::serve(&self.nlm, conn, number, args, out)),
            (program::NSM, _) => Err(AcceptStat::ProgMismatch(nsm::VERSION, nsm::VERSION)),
            (program::RQUOTA, 1 | 2) => {
                let which = (version, number);
                Ok(Box::pin(rquota::serve(&self.core, (conn, call), which, args, out)).await)
            }
            (program::RQUOTA, _) => {
                Err(AcceptStat::ProgMismatch(rquota::VERSIONS.0, rquota::VERSIONS.1))
            }
            (program::PORTMAP, 2..=4) => {
                Ok(portmap::serve(&self.ports, conn, (version, number), args, out))
            }
            (program::PORTMAP, _) => {
                Err(AcceptStat::ProgMismatch(portmap::VERSIONS.0, portmap::VERSIONS.1))
            }
            _ => Err(AcceptStat::ProgUnavail),
        }
    }
}

fn call_key(conn: &Conn, head: &CallHead<'_>, checksum: u64) -> CallKey {
    let peer = conn.info.peer;
    let port = if conn.info.transport.is_rdma() { 0 } else { peer.port() };
    CallKey { ip: peer.ip(), port, xid: head.xid, checksum }
}

/// The reply to a message that is not a call that can be served.
fn not_a_call(conn: &Conn, e: CallError, mut out: Writer) -> Option<Reply> {
    let rule = match e {
        CallError::NotACall => Violation::NotACall,
        CallError::RpcMismatch { xid } => {
            let body = ReplyBody::RpcMismatch(RPC_VERSION, RPC_VERSION);
            ReplyHead { xid, body }.emit(out.head());
            Violation::RpcVersion
        }
        CallError::Auth { xid, stat } => {
            auth_error(&mut out, xid, stat);
            Violation::Credential
        }
        CallError::Short { xid } => {
            ReplyHead::accepted(xid, AcceptStat::GarbageArgs).emit(out.head());
            Violation::ShortCall
        }
    };
    rule.note(conn, "head of a call");
    (!out.is_empty()).then(|| out.into_reply())
}

/// Caches the reply for retransmissions, if the call is cached and the reply allows it.
fn keep(pending: Option<Pending>, out: Writer) -> Reply {
    let reply = out.into_reply();
    if let Some(pending) = pending
        && reply.payloads.is_empty()
    {
        pending.finish(&reply.head);
    }
    reply
}

/// True if a retransmission must get the first reply again. NFSv4.1 has sessions for that, so of version 4 only minor version 0
/// counts; `args` is positioned at the arguments.
fn must_happen_once(head: &CallHead<'_>, args: &Reader<'_>) -> bool {
    match (head.program, head.version, head.procedure) {
        (program::NFS, 3, number) => v3::is_once(number),
        (program::NLM, nlm::VERSION, number) => nlm::is_once(number),
        (program::NFS, 4, 1) => {
            let compound = args.clone().value::<nfs4::Compound<'_>>();
            compound.is_ok_and(|compound| compound.minorversion == 0)
        }
        _ => false,
    }
}

/// Decodes the caller's identity. The credential is usually the same as in the previous call. Returns also whether its numbers need
/// no question to the service of a domain.
fn caller(
    conn: &Conn,
    head: &CallHead<'_>,
    now: Instant,
) -> Result<((Flavor, Cred), bool), AuthStat> {
    let lock = || locked(&conn.last_cred);
    if let Some(last) = lock().as_ref()
        && last.flavor == head.cred.flavor
        && *last.body == *head.cred.body
    {
        return Ok((last.meant.clone(), last.is_learned(now)));
    }
    let meant = decode_cred(head.cred)?;
    let (flavor, body) = (head.cred.flavor, head.cred.body.into());
    *lock() = Some(LastCred { flavor, body, meant: meant.clone(), learned: None });
    Ok((meant, false))
}

/// The configuration does not allow this flavor: a refusal, not a violation.
fn flavor_not_served(conn: &Conn) {
    conn.refused(Refused {
        peer: conn.info.peer.ip(),
        user: Default::default(),
        share: Default::default(),
        rule: Violation::Credential.name(),
        remedy: "mount with `sec=sys`: Kerberos is not served, as there is no `kerberos` in the configuration"
            .into(),
    });
}

/// The server's view of one connection.
pub struct Session {
    server: Arc<Server>,
    conn: Arc<Conn>,
    offer: ServedPrograms,
}

impl Service for Session {
    fn call(
        &self,
        body: Buf,
        read_chunks: Vec<ReadChunkData>,
    ) -> BoxFuture<'static, Option<Reply>> {
        let (server, conn, offer) = (self.server.clone(), self.conn.clone(), self.offer);
        boxed(|| server.serve(conn, offer, body, read_chunks))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.server.v4.connection_closed(&self.conn);
    }
}
