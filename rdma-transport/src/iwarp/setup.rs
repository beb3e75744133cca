//! Creates queue pairs: sockets and MPA start-up.
//!
//! *Operation.* [`Iwarp`] listens and connects; both ends exchange start frames within one time limit, and the socket becomes part
//! of a queue pair.
//!
//! *Memory.* First the fixed part of a start frame is read, then its private data of at most 512 bytes.
//!
//! *Errors.* `io::Error` with the violated rule as its source, counted; a refusal of the peer is `ConnectionRefused` with its
//! private data as text.

use std::io::{self, Error, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::IwarpConfig;
use super::connect::{self, Agreed, Heard};
use super::driver::IwarpPair;
use super::pair::Pair;
use super::tx::{FpduSize, Framing, Mark, Tx};
use super::violation::Violation;
use super::wire::mpa;
use super::wire::terminate::Terminate;
use crate::limits::{IWARP_BACKLOG, IWARP_REGIONS_MAX, IWARP_SEND_PIECES_MAX, UNTAKEN_MAX};
use crate::verbs::{BoxFuture, ConnectParams, Connected, Incoming, Limits, Listener, Provider};

/// The provider `iwarp`.
#[derive(Clone, Debug)]
pub struct Iwarp {
    config: Arc<IwarpConfig>,
}

impl Iwarp {
    /// Creates a provider with this configuration.
    pub fn new(config: IwarpConfig) -> Self {
        Self { config: Arc::new(config) }
    }
}

/// Counts and reports a violation during start-up, when there is no channel yet to report it.
fn broken(v: Violation) -> Error {
    v.count();
    crate::count::broken_again(v.name());
    Error::new(ErrorKind::InvalidData, v)
}

fn too_long(_: connect::TooLong) -> Error {
    Error::new(ErrorKind::InvalidInput, "private data above the limit of an MPA start frame")
}

async fn in_time<T>(limit: Duration, f: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(limit, f).await {
        Ok(result) => result,
        Err(_) => Err(broken(Violation::MpaTimeout)),
    }
}

/// Reads exactly one start frame; FPDUs follow it.
async fn hear(stream: &mut TcpStream, reply: bool) -> io::Result<Heard> {
    let mut fixed = [0; mpa::START_LEN];
    stream.read_exact(&mut fixed).await?;
    let start = connect::check_start(&fixed, reply).map_err(broken)?;
    let mut private_data = vec![0; usize::from(start.private_len)];
    stream.read_exact(&mut private_data).await?;
    connect::hear(start, Bytes::from(private_data)).map_err(broken)
}

fn connected(
    stream: TcpStream,
    config: &Arc<IwarpConfig>,
    initiator: bool,
    agreed: &Agreed,
    params: &ConnectParams,
) -> io::Result<Connected> {
    let mss = SockRef::from(&stream).tcp_mss().unwrap_or(0);
    let mss = usize::try_from(mss).unwrap_or(0);
    let size = FpduSize::new(mss, agreed.large_fpdus, agreed.markers);
    let limits = Limits {
        recvs_max: params.recvs,
        sends_max: params.sends,
        send_pieces_max: IWARP_SEND_PIECES_MAX,
        reads_in_flight_max: agreed.ord,
        regions_max: IWARP_REGIONS_MAX,
        // Filled in when the socket is part of a queue pair.
        backlog_useful: UNTAKEN_MAX,
    };
    let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
    let pair = Pair::new(initiator, agreed, size, limits);
    let delay = if initiator { config.first_fpdu_delay } else { Duration::ZERO };
    let qp = Box::new(IwarpPair::new(stream, pair, delay, config.close_time_max));
    Ok(Connected { qp, private_data: agreed.private_data.clone(), peer, local })
}

/// Informs the responder of the error in its reply (RFC 6581 section 9.2).
async fn send_terminate(stream: &mut TcpStream, framing: Framing, v: Violation) {
    let mut tx = Tx::new(framing, FpduSize::new(0, false, framing.markers));
    let cause = v.cause();
    tx.terminate(&Terminate { cause, segment_len: None, ddp: None, read_request: None });
    let frame: Vec<u8> = tx.slices().iter().flat_map(|s| s.iter().copied()).collect();
    tx.wrote(frame.len(), |_: Mark| ());
    // An error does not matter: the connection ends anyway.
    let _ = stream.write_all(&frame).await;
    let _ = stream.shutdown().await;
}

async fn dial(
    config: Arc<IwarpConfig>,
    to: SocketAddr,
    params: ConnectParams,
) -> io::Result<Connected> {
    let request = connect::request(&config, &params).map_err(too_long)?;
    let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    config.class.mark(&socket, to.is_ipv6());
    let mut stream = socket.connect(to).await?;
    crate::socket::tune(&stream)?;
    stream.write_all(&request).await?;
    let heard = hear(&mut stream, true).await?;
    if heard.start.reject {
        let text = String::from_utf8_lossy(&heard.private_data).into_owned();
        let why = format!("{to} refused the RDMA connection ({text:?})");
        return Err(Error::new(ErrorKind::ConnectionRefused, why));
    }
    match connect::conclude(&config, &params, &heard) {
        Ok(agreed) => connected(stream, &config, true, &agreed, &params),
        Err(v) => {
            let mpa::Start { crc, markers, .. } = heard.start;
            let framing = Framing { crc: config.crc || crc, markers, aligns: false };
            send_terminate(&mut stream, framing, v).await;
            Err(broken(v))
        }
    }
}

impl Iwarp {
    /// The name of the provider.
    pub const NAME: &'static str = "iwarp";
}

impl Provider for Iwarp {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn listen(&self, at: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let socket = if at.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            socket.set_reuseaddr(true)?;
            crate::tcp::before_bind(&socket, at)?;
            socket.bind(at)?;
            let listener = socket.listen(IWARP_BACKLOG)?;
            let local = listener.local_addr()?;
            let config = self.config.clone();
            Ok(Box::new(IwarpListener { listener, local, config }) as Box<dyn Listener>)
        })
    }

    fn connect(
        &self,
        to: SocketAddr,
        params: ConnectParams,
    ) -> BoxFuture<'_, io::Result<Connected>> {
        let config = self.config.clone();
        let limit = config.handshake_time_max;
        Box::pin(in_time(limit, dial(config, to, params)))
    }
}

struct IwarpListener {
    listener: TcpListener,
    local: SocketAddr,
    config: Arc<IwarpConfig>,
}

impl Listener for IwarpListener {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Incoming>>> {
        Box::pin(async move {
            let (stream, peer) = self.listener.accept().await?;
            crate::socket::tune(&stream)?;
            self.config.class.mark(&stream, self.local.is_ipv6());
            let config = self.config.clone();
            Ok(Box::new(IwarpIncoming { stream, peer, config, heard: None }) as Box<dyn Incoming>)
        })
    }
}

struct IwarpIncoming {
    stream: TcpStream,
    peer: SocketAddr,
    config: Arc<IwarpConfig>,
    heard: Option<Heard>,
}

impl IwarpIncoming {
    async fn heard(&mut self) -> io::Result<&Heard> {
        if self.heard.is_none() {
            let limit = self.config.handshake_time_max;
            self.heard = Some(in_time(limit, hear(&mut self.stream, false)).await?);
        }
        self.heard.as_ref().ok_or_else(|| ErrorKind::UnexpectedEof.into())
    }

    async fn answer(&mut self, reply: &[u8]) -> io::Result<()> {
        in_time(self.config.handshake_time_max, self.stream.write_all(reply)).await
    }
}

impl Incoming for IwarpIncoming {
    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn request(&mut self) -> BoxFuture<'_, io::Result<Bytes>> {
        Box::pin(async move { Ok(self.heard().await?.private_data.clone()) })
    }

    fn accept(
        mut self: Box<Self>,
        params: ConnectParams,
    ) -> BoxFuture<'static, io::Result<Connected>> {
        Box::pin(async move {
            let config = self.config.clone();
            let heard = self.heard().await?;
            match connect::accept(&config, &params, heard) {
                Ok(answer) => {
                    let (reply, agreed) = answer.map_err(too_long)?;
                    self.answer(&reply).await?;
                    connected(self.stream, &config, false, &agreed, &params)
                }
                Err(v) => {
                    let reply = connect::reject(heard, &[]);
                    // An error does not matter: the connection ends anyway.
                    let _ = self.answer(&reply).await;
                    let _ = self.stream.shutdown().await;
                    Err(broken(v))
                }
            }
        })
    }

    fn reject(mut self: Box<Self>, private_data: Bytes) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Ok(heard) = self.heard().await else { return };
            let reply = connect::reject(heard, &private_data);
            // An error does not matter: the connection ends anyway.
            let _ = self.answer(&reply).await;
            let _ = self.stream.shutdown().await;
        })
    }
}
