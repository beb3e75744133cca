//! The programs behind every connection: NFS versions 3 and 4, MOUNT, and a minimal port mapper.
//!
//! *Operation.* The serve loop hands each request to [`Service::call`] of the connection's [`Session`]. The head of the call
//! is read, its credential understood, its procedure awaited in place; there is no task per request here.
//!
//! *Memory.* The reply is built in one [`Writer`]; bulk data is passed through as it came from the pool.
//!
//! *Errors.* What cannot be read is answered by the RPC error that says so. A message that is no call at all is dropped.

use std::sync::{Arc, PoisonError};

use iobuf::Buf;
use rdma_transport::channel::{BoxFuture, Handle, Info, Pulled, Reply, Service};
use vfs::Cred;

use crate::context::{CallContext, Conn, Core, LastCred, Outcome};
use crate::rpc::auth::AuthStat;
use crate::rpc::reply::{self, AcceptStat};
use crate::rpc::{CallError, CallHead, Flavor, decode_call, decode_cred, program};
use crate::v4::Nfs4;
use crate::xdr::{Reader, Writer, XdrResult};

/// The NFS server: what all connections share.
pub struct Server {
    core: Arc<Core>,
    v4: Nfs4,
}

impl Server {
    /// Over these shares.
    pub fn new(core: Core) -> Arc<Self> {
        let core = Arc::new(core);
        Arc::new(Self { v4: Nfs4::new(core.clone()), core })
    }

    /// What all connections share.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// A new connection.
    pub fn session(self: &Arc<Self>, info: Arc<Info>, handle: Handle) -> Session {
        Session { server: self.clone(), conn: Arc::new(Conn::new(info, handle)) }
    }

    async fn serve(&self, conn: &Arc<Conn>, body: Buf, pulled: Vec<Pulled>) -> Option<Reply> {
        let mut args = Reader::new(&body, &pulled);
        let mut out = Writer::new();
        let head = match decode_call(&mut args) {
            Ok(head) => head,
            Err(CallError::NotACall) => return None,
            Err(CallError::RpcMismatch { xid }) => {
                reply::rpc_mismatch(&mut out, xid);
                return Some(out.into_reply());
            }
            Err(CallError::Auth { xid, stat }) => {
                reply::auth_error(&mut out, xid, stat);
                return Some(out.into_reply());
            }
            Err(CallError::Short { xid }) => {
                reply::accepted(&mut out, xid, AcceptStat::GarbageArgs);
                return Some(out.into_reply());
            }
        };
        let (flavor, cred) = match caller(conn, &head) {
            Ok(meant) => meant,
            Err(stat) => {
                reply::auth_error(&mut out, head.xid, stat);
                return Some(out.into_reply());
            }
        };
        let call = CallContext { xid: head.xid, flavor, cred, now: self.core.clock.now() };
        reply::accepted(&mut out, head.xid, AcceptStat::Success);
        let refused = match self.dispatch(conn, &head, &call, &mut args, &mut out).await {
            Ok(Ok(Outcome::Repeatable | Outcome::Once)) => return Some(out.into_reply()),
            Ok(Ok(Outcome::Drop)) => return None,
            Ok(Ok(Outcome::NoProcedure)) => AcceptStat::ProcUnavail,
            Ok(Err(_garbage)) => AcceptStat::GarbageArgs,
            Err(stat) => stat,
        };
        let mut out = Writer::new();
        reply::accepted(&mut out, head.xid, refused);
        Some(out.into_reply())
    }

    /// Finds the program and does the procedure. The outer error is the RPC layer's own.
    async fn dispatch(
        &self,
        conn: &Arc<Conn>,
        head: &CallHead<'_>,
        call: &CallContext,
        args: &mut Reader<'_>,
        out: &mut Writer,
    ) -> Result<XdrResult<Outcome>, AcceptStat> {
        match (head.program, head.version) {
            (program::NFS, 4) => match head.procedure {
                0 => Ok(Ok(Outcome::Repeatable)),
                1 => Ok(self.v4.compound(conn, call, args, out).await),
                _ => Err(AcceptStat::ProcUnavail),
            },
            (program::NFS, _) => Err(AcceptStat::ProgMismatch(4, 4)),
            _ => Err(AcceptStat::ProgUnavail),
        }
    }
}

/// Who calls: by the credential of the call, which is mostly that of the call before.
fn caller(conn: &Conn, head: &CallHead<'_>) -> Result<(Flavor, Cred), AuthStat> {
    let lock = || conn.last_cred.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(last) = lock().as_ref()
        && last.flavor == head.flavor
        && *last.body == *head.cred
    {
        return Ok(last.meant.clone());
    }
    let meant = decode_cred(head.flavor, head.cred)?;
    let last = LastCred { flavor: head.flavor, body: head.cred.into(), meant: meant.clone() };
    *lock() = Some(Arc::new(last));
    Ok(meant)
}

/// The server as one connection sees it.
pub struct Session {
    server: Arc<Server>,
    conn: Arc<Conn>,
}

impl Service for Session {
    fn call(&self, body: Buf, pulled: Vec<Pulled>) -> BoxFuture<'static, Option<Reply>> {
        let (server, conn) = (self.server.clone(), self.conn.clone());
        Box::pin(async move { server.serve(&conn, body, pulled).await })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.server.v4.connection_closed(&self.conn);
    }
}
