//! Calls from the server to programs on a client's host (lock manager, status monitor), located through its rpcbind.
//!
//! *Operation.* [`Route::call`] asks the host's rpcbind for the port of a program, remembers it, and makes one call over a new TCP
//! connection, or over UDP if the program does not offer TCP. Such calls are rare: a granted lock, a restart.
//!
//! *Memory.* A reply of at most [`REPLY_MAX`] bytes.
//!
//! *Errors.* [`CallFailed`] says whether the host may have received the call.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use iobuf::Buf;
use mutex::locked;
use nfs_proto::oncrpc::{AcceptStat, CallHead, OpaqueAuth, ReplyBody, ReplyHead};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::time::timeout;

use super::callee::{Callee, Carrier};
use crate::portmap::address;

/// Largest accepted reply, in bytes.
pub const REPLY_MAX: usize = 4096;
/// Limit on connecting.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Limit on the answer over a connection.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// UDP attempts per call; each waits `ANSWER_MAX / DATAGRAMS_MAX`.
const DATAGRAMS_MAX: u32 = 3;

/// The reason why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallFailed {
    /// The host did not receive it: it is unreachable, or the program is not registered.
    Unreached(String),
    /// The host may have received it, but sent no valid answer.
    Unanswered(String),
}

impl std::fmt::Display for CallFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreached(why) => write!(f, "not reached: {why}"),
            Self::Unanswered(why) => write!(f, "not answered: {why}"),
        }
    }
}

/// The route to a host.
#[derive(Debug)]
pub struct Route {
    to: IpAddr,
    from: Mutex<IpAddr>,
    known: Mutex<Option<(Callee, Carrier, u16)>>,
}

impl Route {
    /// Creates the route from a local address. It must be the one that the client called, by which it identifies its server.
    pub fn new(to: IpAddr, from: IpAddr) -> Self {
        Self { to, from: Mutex::new(from), known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Option<(Callee, Carrier, u16)>> {
        locked(&self.known)
    }

    /// The local address that the host knows.
    pub fn from(&self) -> IpAddr {
        *locked(&self.from)
    }

    /// Changes the local address after the host has called another one.
    pub fn set_from(&self, from: IpAddr) {
        *locked(&self.from) = from;
    }

    /// Makes one call and returns the results. `rpcbind_port` is the port of the host's rpcbind.
    pub async fn call(
        &self,
        rpcbind_port: u16,
        callee: Callee,
        args: &[u8],
    ) -> Result<Buf, CallFailed> {
        let remembered = self.known().filter(|(c, ..)| *c == callee);
        if let Some((_, carrier, port)) = remembered {
            match self.call_at(carrier, port, callee, args).await {
                // The program may have another port after a restart.
                Err(CallFailed::Unreached(_)) => *self.known() = None,
                other => return other,
            }
        }
        let (carrier, port) = self.find(rpcbind_port, callee).await?;
        let answer = self.call_at(carrier, port, callee, args).await;
        if answer.is_ok() {
            *self.known() = Some((callee, carrier, port));
        }
        answer
    }

    async fn call_at(
        &self,
        carrier: Carrier,
        port: u16,
        callee: Callee,
        args: &[u8],
    ) -> Result<Buf, CallFailed> {
        let (xid, call) = message(callee, args);
        let (from, to) = (SocketAddr::new(self.from(), 0), SocketAddr::new(self.to, port));
        let reply = match carrier {
            Carrier::Stream => by_stream(from, to, &call).await?,
            Carrier::Datagrams => by_datagrams(from, to, xid, &call).await?,
        };
        let reply = Buf::from(reply);
        match results(xid, &reply) {
            Some(at) => Ok(reply.slice(at..reply.len())),
            None => Err(CallFailed::Unanswered(format!("{to} refused the call"))),
        }
    }

    /// Finds transport and port of a program.
    async fn find(&self, rpcbind_port: u16, callee: Callee) -> Result<(Carrier, u16), CallFailed> {
        let mut why = String::new();
        for ask_by in [Carrier::Stream, Carrier::Datagrams] {
            for carrier in [Carrier::Stream, Carrier::Datagrams] {
                let (question, args) = address::question(self.to, callee, carrier);
                match self.call_at(ask_by, rpcbind_port, question, &args).await {
                    Ok(answer) => match address::port_in_answer(self.to, &answer) {
                        Some(port) => return Ok((carrier, port)),
                        None => why = format!("{} has no program {}", self.to, callee.program),
                    },
                    Err(e) => {
                        why = format!("rpcbind of {}: {e}", self.to);
                        break;
                    }
                }
            }
        }
        Err(CallFailed::Unreached(why))
    }
}

/// Encodes a call without a credential; returns its transaction id and the message.
pub(crate) fn message(callee: Callee, args: &[u8]) -> (u32, Vec<u8>) {
    static NEXT: AtomicU32 = AtomicU32::new(0x4847_0001);
    let xid = NEXT.fetch_add(1, Ordering::Relaxed);
    let Callee { program, version, procedure } = callee;
    let (cred, verf) = (OpaqueAuth::NONE, OpaqueAuth::NONE);
    let mut call = Vec::new();
    CallHead { xid, program, version, procedure, cred, verf }.emit(&mut call);
    call.extend_from_slice(args);
    (xid, call)
}

/// Offset of the results in the reply to this call; `None` if the call was refused or the reply belongs to another one.
pub(crate) fn results(xid: u32, reply: &[u8]) -> Option<usize> {
    let (results, head) = wire::decode(reply, ReplyHead::parse).ok()?;
    let done = matches!(head.body, ReplyBody::Accepted(_, AcceptStat::Success));
    (done && head.xid == xid).then(|| reply.len() - results.len())
}

fn unreached(to: SocketAddr) -> impl Fn(io::Error) -> CallFailed {
    move |e| CallFailed::Unreached(format!("{to}: {e}"))
}

fn unanswered(to: SocketAddr) -> impl Fn(io::Error) -> CallFailed {
    move |e| CallFailed::Unanswered(format!("{to}: {e}"))
}

async fn by_stream(from: SocketAddr, to: SocketAddr, call: &[u8]) -> Result<Vec<u8>, CallFailed> {
    let connect = async {
        let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.bind(from)?;
        socket.connect(to).await
    };
    let connected = timeout(CONNECT_MAX, connect).await;
    let mut stream = connected
        .map_err(|_| CallFailed::Unreached(format!("{to}: no answer")))?
        .map_err(unreached(to))?;
    let exchange = exchange(&mut stream, call, REPLY_MAX);
    let done = timeout(ANSWER_MAX, exchange).await;
    done.map_err(|_| CallFailed::Unanswered(format!("{to}: no answer")))?.map_err(unanswered(to))
}

/// Sends a call as one record, and receives its reply of at most `max` bytes (RFC 5531 section 11).
pub(crate) async fn exchange(
    stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin),
    call: &[u8],
    max: usize,
) -> io::Result<Vec<u8>> {
    const LAST: u32 = 0x8000_0000;
    let too_long = || io::Error::new(io::ErrorKind::InvalidData, "too long");
    let mark = u32::try_from(call.len()).map_err(|_| too_long())? | LAST;
    let record = [&mark.to_be_bytes()[..], call].concat();
    stream.write_all(&record).await?;
    let mut reply = Vec::new();
    loop {
        let mark = stream.read_u32().await?;
        let length = usize::try_from(mark & !LAST).map_err(|_| too_long())?;
        if length > max - reply.len() {
            return Err(too_long());
        }
        let at = reply.len();
        reply.resize(at + length, 0);
        stream.read_exact(&mut reply[at..]).await?;
        if mark & LAST != 0 {
            return Ok(reply);
        }
        if length == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a piece of nothing"));
        }
    }
}

async fn by_datagrams(
    from: SocketAddr,
    to: SocketAddr,
    xid: u32,
    call: &[u8],
) -> Result<Vec<u8>, CallFailed> {
    let socket = UdpSocket::bind(from).await.map_err(unreached(to))?;
    // A connected socket receives only from its peer, and reports a closed port as an error.
    socket.connect(to).await.map_err(unreached(to))?;
    let mut reply = vec![0; REPLY_MAX];
    for _ in 0..DATAGRAMS_MAX {
        socket.send(call).await.map_err(unreached(to))?;
        let answer = async {
            loop {
                let length = socket.recv(&mut reply).await?;
                if reply[..length].starts_with(&xid.to_be_bytes()) {
                    return Ok::<_, io::Error>(length);
                }
            }
        };
        match timeout(ANSWER_MAX / DATAGRAMS_MAX, answer).await {
            Ok(Ok(length)) => {
                reply.truncate(length);
                return Ok(reply);
            }
            Ok(Err(e)) if e.kind() == io::ErrorKind::ConnectionRefused => {
                return Err(unreached(to)(e));
            }
            Ok(Err(e)) => return Err(unanswered(to)(e)),
            Err(_) => {}
        }
    }
    Err(CallFailed::Unanswered(format!("{to}: no answer")))
}
