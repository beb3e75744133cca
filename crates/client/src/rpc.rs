//! Asynchronous ONC RPC over a [`Caller`].
//!
//! *Operation.* One task drives the connection. [`Rpc::call`] numbers a call, queues it and waits; calls that are queued before the
//! driver runs are sent together. Callbacks go to [`Callbacks`].
//!
//! *Memory.* A call owns its arguments until they are sent; a reply consists of views of receive buffers.
//!
//! *Errors.* The end of the connection ends every call in progress, and every later one, with the same error. A server that sends
//! no reply for a minute while calls wait counts as lost.

use std::collections::HashMap;
use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{self, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use gss_krb5::Enctype;
use iobuf::Buf;
use mutex::locked;
use nfs_proto::oncrpc::{
    AUTH_SYS, AcceptStat, AuthStat, AuthSys, CallHead, OpaqueAuth, ReplyBody, ReplyHead,
};
use nfs_proto::rpcsec_gss::RPCSEC_GSS;
use nfs_proto::xdr::{Bulk, encode};
use rdma_transport::caller::{Answer, BulkResult, Call, Caller, Event};
use rdma_transport::channel::{ChannelError, Info, Reply};
use rdma_transport::xdr::{Reader, Writer};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};

use crate::context::Context;
use crate::error::{Error, Result};

/// Seconds without any reply after which a connection with pending calls is closed.
const ANSWER_SECONDS_MAX: u64 = 60;
/// Maximum number of calls in progress per connection.
const CALLS_MAX: usize = 4096;
/// Number of events handled before the driver yields to other tasks.
const EVENTS_PER_TURN: usize = 64;

/// Handles calls from the server to its client (NFSv4 callbacks).
pub trait Callbacks: Send + Sync + 'static {
    /// Handles a complete RPC call and returns a complete RPC reply; `None` sends no reply.
    fn call(&self, message: &Buf) -> Option<Vec<u8>>;
}

/// Refuses all callbacks.
#[derive(Debug)]
pub struct NoCallbacks;

impl Callbacks for NoCallbacks {
    fn call(&self, _message: &Buf) -> Option<Vec<u8>> {
        None
    }
}

/// Authenticates the caller: the same credential for every call, encoded once (RFC 5531 section 8.2), or an RPCSEC_GSS context that
/// computes one per call.
#[derive(Clone, Debug)]
pub struct Credential {
    flavor: u32,
    body: Arc<[u8]>,
    context: Option<Arc<Context>>,
}

impl Credential {
    /// Builds AUTH_SYS for this user.
    pub fn sys(uid: u32, gid: u32, groups: &[u32]) -> Self {
        let gids = groups.to_vec();
        let body = encode(&AuthSys { stamp: 0, machinename: b"headgate", uid, gid, gids });
        Self::plain(AUTH_SYS, &body)
    }

    /// Builds AUTH_NONE.
    pub fn none() -> Self {
        Self::plain(OpaqueAuth::NONE.flavor, &[])
    }

    /// Builds a credential that is the same for every call.
    pub(crate) fn plain(flavor: u32, body: &[u8]) -> Self {
        Self { flavor, body: body.into(), context: None }
    }

    /// Returns the encryption type of a Kerberos context.
    pub fn enctype(&self) -> Option<Enctype> {
        self.context.as_ref().map(|context| context.enctype())
    }

    pub(crate) fn of_context(context: Context) -> Self {
        Self { context: Some(Arc::new(context)), ..Self::plain(RPCSEC_GSS, &[]) }
    }

    /// Returns the RPCSEC_GSS context, if this is one.
    pub(crate) fn context(&self) -> Option<&Context> {
        self.context.as_deref()
    }
}

/// A call under construction: its header and arguments, or only the arguments if a context will protect them.
#[derive(Debug)]
pub struct CallArgs {
    w: Writer,
    /// Program, version and procedure.
    numbers: (u32, u32, u32),
    context: Option<Arc<Context>>,
}

impl Deref for CallArgs {
    type Target = Writer;

    fn deref(&self) -> &Writer {
        &self.w
    }
}

impl DerefMut for CallArgs {
    fn deref_mut(&mut self) -> &mut Writer {
        &mut self.w
    }
}

/// Position and maximum size of a reply's bulk data.
#[derive(Clone, Copy, Debug)]
pub struct ResultPlace {
    /// Maximum length of the reply without bulk data, in bytes.
    pub reply_max: usize,
    /// Bulk data, if the procedure returns any.
    pub bulk: Option<BulkResult>,
}

impl ResultPlace {
    /// A reply that fits the smallest message of every transport.
    pub const SHORT: Self = Self { reply_max: 512, bulk: None };

    /// A reply of at most this many bytes without bulk data.
    pub fn long(reply_max: usize) -> Self {
        Self { reply_max, bulk: None }
    }
}

type Waiting = oneshot::Sender<std::result::Result<Answer, ChannelError>>;

struct Queue {
    calls: Vec<Call>,
    waiting: HashMap<u32, Waiting>,
    next_xid: u32,
    ended: Option<ChannelError>,
}

struct Shared {
    queue: Mutex<Queue>,
    driver: AtomicWaker,
    info: Arc<Info>,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        locked(&self.queue)
    }
}

/// Ends the driver when the last handle is dropped.
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.queue().ended.get_or_insert(ChannelError::Closed("by this side".into()));
        self.0.driver.wake();
    }
}

/// Calls over one connection. Clones share it; dropping the last one closes it.
#[derive(Clone)]
pub struct Rpc(Arc<Handle>);

impl Rpc {
    /// Starts a task on the current runtime that drives the connection.
    pub fn over(caller: Box<dyn Caller>, callbacks: Arc<dyn Callbacks>) -> Self {
        // Start at a random number, so that a server's reply cache does not mistake a new call for one of an earlier connection.
        let first = getrandom::u32().unwrap_or(1);
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue {
                calls: Vec::new(),
                waiting: HashMap::new(),
                next_xid: first,
                ended: None,
            }),
            driver: AtomicWaker::new(),
            info: caller.info().clone(),
        });
        let mut driver =
            Driver { shared: shared.clone(), caller, callbacks, quiet: SilenceTimer::default() };
        tokio::spawn(async move {
            let why = poll_fn(|cx| driver.poll(cx)).await;
            driver.end(why);
        });
        Self(Arc::new(Handle(shared)))
    }

    /// Returns information about the connection.
    pub fn info(&self) -> &Arc<Info> {
        &self.0.0.info
    }

    /// Sends a call and waits for the reply.
    pub async fn call(&self, args: CallArgs, place: ResultPlace) -> Result<Answer> {
        let (xid, CallArgs { w, numbers, context }) = (self.next_xid(), args);
        let Some(context) = context else {
            let mut call = w.into_reply();
            if let Some(place) = call.head.first_chunk_mut() {
                *place = xid.to_be_bytes();
            }
            return self.exchange(xid, call, place).await;
        };
        let numbered = context.number().await?;
        let call = numbered.protect(xid, numbers, w)?;
        let bulk = place.bulk.filter(|_| !context.protects_results());
        let place = ResultPlace { bulk, ..place };
        numbered.open(self.exchange(xid, call, place).await?)
    }

    /// Returns the number of the next call.
    pub(crate) fn next_xid(&self) -> u32 {
        let mut queue = self.0.0.queue();
        let xid = queue.next_xid;
        queue.next_xid = xid.wrapping_add(1);
        xid
    }

    /// Sends a complete call with this number and waits for the reply.
    pub(crate) async fn exchange(
        &self,
        xid: u32,
        message: Reply,
        place: ResultPlace,
    ) -> Result<Answer> {
        let Reply { head, payloads, .. } = message;
        let call = Call { head, payloads, reply_max: place.reply_max, bulk: place.bulk };
        let (answer, wait) = oneshot::channel();
        {
            let mut queue = self.0.0.queue();
            if let Some(why) = &queue.ended {
                return Err(why.clone().into());
            }
            if queue.waiting.len() >= CALLS_MAX {
                return Err(Error::Rpc(format!("{CALLS_MAX} calls are under way already")));
            }
            queue.waiting.insert(xid, answer);
            queue.calls.push(call);
        }
        self.0.0.driver.wake();
        match wait.await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(ChannelError::Closed("the connection is gone".into()).into()),
        }
    }

    /// Starts a call: its header up to the arguments (RFC 5531 section 9). [`Rpc::call`] sets the xid.
    pub fn head(program: u32, version: u32, procedure: u32, cred: &Credential) -> CallArgs {
        let mut w = Writer::new();
        if cred.context.is_none() {
            let (xid, verf) = (0, OpaqueAuth::NONE);
            let cred = OpaqueAuth { flavor: cred.flavor, body: &cred.body };
            CallHead { xid, program, version, procedure, cred, verf }.emit(w.head());
        }
        CallArgs { w, numbers: (program, version, procedure), context: cred.context.clone() }
    }
}

/// Parses the status at the start of results. If it is not `good`, `error` converts it, even if it has no name.
pub(crate) fn status(r: &mut Reader<'_>, good: u32, error: fn(u32) -> Error) -> Result<()> {
    let status = r.value::<u32>()?;
    if status == good { Ok(()) } else { Err(error(status)) }
}

/// Parses the header of a reply; the results remain (RFC 5531 section 9).
pub(crate) fn results(answer: &Answer) -> Result<Reader<'_>> {
    let mut r = Reader::new(&answer.body, &answer.read_chunks);
    let stat = match r.parse(ReplyHead::parse)?.body {
        ReplyBody::Accepted(_, stat) => stat,
        ReplyBody::RpcMismatch(..) => {
            return Err(Error::Rpc("it speaks another version of RPC".into()));
        }
        // RFC 5531 section 9: "rejected for security reasons"; this is the most frequent one.
        ReplyBody::AuthError(AuthStat::TooWeak) => {
            let why = "authentication error 5, AUTH_TOOWEAK: it may want a port below 1024, which takes root, or another `sec`";
            return Err(Error::Rpc(why.into()));
        }
        ReplyBody::AuthError(
            stat @ (AuthStat::RpcsecGssCredproblem | AuthStat::RpcsecGssCtxproblem),
        ) => {
            let why = "the server no longer has the context of Kerberos, or the ticket has run out";
            return Err(Error::Kerberos(format!("{why} (authentication error {})", stat as u32)));
        }
        ReplyBody::AuthError(stat) => {
            return Err(Error::Rpc(format!("authentication error {}", stat as u32)));
        }
    };
    let why = match stat {
        AcceptStat::Success => return Ok(r),
        AcceptStat::ProgUnavail => "it does not serve this program".into(),
        AcceptStat::ProgMismatch(low, high) => {
            format!("it serves versions {low} to {high} of this program")
        }
        AcceptStat::ProcUnavail => "it does not have this procedure".into(),
        AcceptStat::GarbageArgs => "it cannot read the arguments".into(),
        AcceptStat::SystemErr => "it failed (SYSTEM_ERR)".into(),
    };
    Err(Error::Rpc(why))
}

/// Returns the bulk data of a reply, for which at most `max` bytes were requested.
pub(crate) fn within(r: &mut Reader<'_>, data: Bulk, max: usize) -> Result<Vec<Buf>> {
    match data.len {
        len if len <= max => Ok(r.data(data)?),
        len => Err(Error::Protocol(format!("{len} bytes where {max} were asked for"))),
    }
}

/// Detects a server that is silent while calls wait. The timer is checked only when it fires, so that a reply costs one store.
#[derive(Default)]
pub(crate) struct SilenceTimer {
    pub(crate) heard: bool,
    timer: Option<Pin<Box<Sleep>>>,
}

impl SilenceTimer {
    pub(crate) fn poll(&mut self, waiting: bool, cx: &mut task::Context<'_>) -> Poll<()> {
        if !waiting && self.timer.is_none() {
            return Poll::Pending;
        }
        let limit = Duration::from_secs(ANSWER_SECONDS_MAX);
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        while timer.as_mut().poll(cx).is_ready() {
            if !waiting {
                self.timer = None;
                return Poll::Pending;
            }
            if !std::mem::take(&mut self.heard) {
                return Poll::Ready(());
            }
            timer.as_mut().reset(Instant::now() + limit);
        }
        Poll::Pending
    }
}

struct Driver {
    shared: Arc<Shared>,
    caller: Box<dyn Caller>,
    callbacks: Arc<dyn Callbacks>,
    quiet: SilenceTimer,
}

impl Driver {
    /// Ready when the connection has ended.
    fn poll(&mut self, cx: &mut task::Context<'_>) -> Poll<ChannelError> {
        self.shared.driver.register(cx.waker());
        let (calls, ended) = {
            let mut queue = self.shared.queue();
            (std::mem::take(&mut queue.calls), queue.ended.clone())
        };
        for call in calls {
            self.caller.call(call);
        }
        if let Some(why) = ended {
            return Poll::Ready(why);
        }
        for _ in 0..EVENTS_PER_TURN {
            match self.caller.poll_event(cx) {
                Poll::Ready(Ok(Event::Answer(xid, answer))) => {
                    self.quiet.heard = true;
                    let waiting = self.shared.queue().waiting.remove(&xid);
                    if let Some(waiting) = waiting {
                        // The caller may have given up.
                        let _ = waiting.send(Ok(answer));
                    }
                }
                Poll::Ready(Ok(Event::Refused(xid, why))) => {
                    self.quiet.heard = true;
                    let waiting = self.shared.queue().waiting.remove(&xid);
                    if let Some(waiting) = waiting {
                        let _ = waiting.send(Err(why));
                    }
                }
                Poll::Ready(Ok(Event::Callback(message))) => {
                    if let Some(reply) = self.callbacks.call(&message) {
                        self.caller.answer(reply);
                    }
                }
                Poll::Ready(Err(why)) => return Poll::Ready(why),
                Poll::Pending => {
                    let waiting = !self.shared.queue().waiting.is_empty();
                    return self.quiet.poll(waiting, cx).map(|()| {
                        ChannelError::Closed(format!("no answer for {ANSWER_SECONDS_MAX} s"))
                    });
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn end(&mut self, why: ChannelError) {
        let waiting = {
            let mut queue = self.shared.queue();
            queue.ended = Some(why.clone());
            std::mem::take(&mut queue.waiting)
        };
        for (_, waiting) in waiting {
            let _ = waiting.send(Err(why.clone()));
        }
    }
}
