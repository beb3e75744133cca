//! Calls from the server to programs on a client's host (lock manager, status monitor), located through its rpcbind.
//!
//! *Operation.* [`Route::call`] asks the host's rpcbind for the port of a program, remembers it, and makes one call over a new TCP
//! connection, or over UDP if the program does not offer TCP. Such calls are rare: a granted lock, a restart.
//!
//! *Memory.* A reply of at most [`REPLY_MAX`] bytes. [`CALLS_MAX`] calls at once, a part of them to one address; their sockets
//! count with the files that clients hold ([`vfs::local::HeldDescriptors`]).
//!
//! *Errors.* [`CallFailed`] says whether the host may have received the call, and whether the gateway itself made none: a limit or
//! a lack of sockets of this host says nothing about the other one.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use iobuf::Buf;
use mutex::locked;
use nfs_proto::oncrpc::{AcceptStat, CallHead, OpaqueAuth, ReplyBody, ReplyHead};
use rdma_transport::parts::Limit;
use rdma_transport::turns::Turns;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::time::timeout;
use vfs::local::HeldDescriptors;

use super::callee::{Callee, Carrier};
use crate::portmap::address;

/// Largest accepted reply, in bytes.
pub const REPLY_MAX: usize = 4096;
/// Calls under way at once.
pub const CALLS_MAX: usize = 256;
/// Calls under way to one address, or IPv6 network of 64 bits: it may not answer.
pub const CALLS_TO_ADDRESS_MAX: usize = CALLS_MAX / 4;
/// Limit on connecting.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Limit on the answer over a connection.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// UDP attempts per call; each waits `ANSWER_MAX / DATAGRAMS_MAX`.
const DATAGRAMS_MAX: u32 = 3;

static CALLS: LazyLock<Arc<Turns>> = LazyLock::new(|| {
    Turns::new([
        Limit::new("calls-to-hosts", CALLS_MAX),
        Limit::new("calls-to-hosts-of-address", CALLS_TO_ADDRESS_MAX),
    ])
});

/// The reason why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallFailed {
    /// The gateway made no call: it had too many under way, or got no socket. The host is not to blame.
    NotMade(String),
    /// The host did not receive it: it is unreachable, or the program is not registered.
    Unreached(String),
    /// The host may have received it, but sent no valid answer.
    Unanswered(String),
}

impl std::fmt::Display for CallFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotMade(why) => write!(f, "not made: {why}"),
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
        let turn = CALLS.take(self.to, 1, ANSWER_MAX).await;
        let _turn = turn.ok_or_else(|| CallFailed::NotMade(format!("{to}: too many calls")))?;
        let _socket = HeldDescriptors::count(1);
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
                    Err(e @ CallFailed::NotMade(_)) => return Err(e),
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

fn not_made(to: SocketAddr) -> impl Fn(io::Error) -> CallFailed {
    move |e| CallFailed::NotMade(format!("{to}: {e}"))
}

/// Returns why a connection failed: the kernel may have no port for it, or may not have the local address yet.
fn not_connected(to: SocketAddr) -> impl Fn(io::Error) -> CallFailed {
    move |e| match e.kind() {
        io::ErrorKind::AddrNotAvailable => not_made(to)(e),
        _ => unreached(to)(e),
    }
}

fn unreached(to: SocketAddr) -> impl Fn(io::Error) -> CallFailed {
    move |e| CallFailed::Unreached(format!("{to}: {e}"))
}

fn unanswered(to: SocketAddr) -> impl Fn(io::Error) -> CallFailed {
    move |e| CallFailed::Unanswered(format!("{to}: {e}"))
}

async fn by_stream(from: SocketAddr, to: SocketAddr, call: &[u8]) -> Result<Vec<u8>, CallFailed> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let socket = socket.map_err(not_made(to))?;
    socket.bind(from).map_err(not_made(to))?;
    let connected = timeout(CONNECT_MAX, socket.connect(to)).await;
    let mut stream = connected
        .map_err(|_| CallFailed::Unreached(format!("{to}: no answer")))?
        .map_err(not_connected(to))?;
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
    let socket = UdpSocket::bind(from).await.map_err(not_made(to))?;
    // A connected socket receives only from its peer, and reports a closed port as an error.
    socket.connect(to).await.map_err(not_connected(to))?;
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const CALLEE: Callee = Callee { program: 100_021, version: 4, procedure: 0 };

    /// A host that accepts and never answers has its part of the calls; another host is called meanwhile.
    #[tokio::test]
    async fn calls_to_silent_address_leave_others_theirs() {
        let [silent, other] = [[127, 0, 0, 2], [127, 0, 0, 3]].map(IpAddr::from);
        let deaf = tokio::net::TcpListener::bind((silent, 0)).await.unwrap();
        let port = deaf.local_addr().unwrap().port();
        let calls: Vec<_> = (0..CALLS_TO_ADDRESS_MAX + 16)
            .map(|_| {
                let route = Route::new(silent, [127, 0, 0, 1].into());
                let call = async move { route.call_at(Carrier::Stream, port, CALLEE, &[]).await };
                tokio::spawn(call)
            })
            .collect();
        let mut heard = Vec::new();
        while heard.len() < CALLS_TO_ADDRESS_MAX {
            heard.push(timeout(ANSWER_MAX, deaf.accept()).await.unwrap().unwrap());
        }
        let more = timeout(Duration::from_millis(200), deaf.accept()).await;
        assert!(more.is_err(), "more than its part");
        assert!(vfs::local::descriptors_held() >= CALLS_TO_ADDRESS_MAX, "sockets are files");

        let answers = tokio::net::TcpListener::bind((other, 0)).await.unwrap();
        let at = answers.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = answers.accept().await.unwrap();
            let mut call = [0; 44];
            stream.read_exact(&mut call).await.unwrap();
            let xid = [call[4], call[5], call[6], call[7]];
            let reply = [&[0x80, 0, 0, 24][..], &xid, &[0, 0, 0, 1], &[0; 16]].concat();
            stream.write_all(&reply).await.unwrap();
        });
        let route = Route::new(other, [127, 0, 0, 1].into());
        let call = route.call_at(Carrier::Stream, at, CALLEE, &[]);
        assert!(timeout(Duration::from_secs(1), call).await.unwrap().is_ok());

        calls.iter().for_each(tokio::task::JoinHandle::abort);
    }

    /// A call that the gateway's limit stops is not the host's silence, and its known port is kept.
    #[tokio::test(start_paused = true)]
    async fn calls_beyond_own_limit_are_not_made() {
        let host = IpAddr::from([127, 0, 0, 5]);
        let _all = CALLS.take(host, CALLS_TO_ADDRESS_MAX, ANSWER_MAX).await.unwrap();
        let route = Route::new(host, [127, 0, 0, 1].into());
        let port = Some((CALLEE, Carrier::Stream, 9));
        for known in [None, port] {
            *route.known() = known;
            let failed = route.call(9, CALLEE, &[]).await;
            assert!(matches!(failed, Err(CallFailed::NotMade(_))), "{failed:?}");
            assert_eq!(*route.known(), known);
        }
    }

    /// A socket that this host cannot have is not the other host's fault, by either carrier.
    #[tokio::test]
    async fn missing_local_address_is_own_fault() {
        // No interface has this address (RFC 5737).
        let route = Route::new([127, 0, 0, 4].into(), [192, 0, 2, 200].into());
        for carrier in [Carrier::Stream, Carrier::Datagrams] {
            let failed = route.call_at(carrier, 9, CALLEE, &[]).await;
            assert!(matches!(failed, Err(CallFailed::NotMade(_))), "{carrier:?}: {failed:?}");
        }
        let failed = route.call(9, CALLEE, &[]).await;
        assert!(matches!(failed, Err(CallFailed::NotMade(_))), "{failed:?}");
    }
}
