//! The metadata by HTTP: one request at a time on a connection, of few clients.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use mutex::locked;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::board::{Board, Outcome};
use crate::links::Link;
use crate::mdns::Family;
use crate::socket::Protocol;
use crate::wsd::{self, Device, request};

/// Connections at once, and of one address.
pub const CONNECTIONS_MAX: usize = 8;
/// See [`CONNECTIONS_MAX`].
pub const CONNECTIONS_OF_ADDRESS_MAX: usize = 2;
/// Seconds that a connection has.
pub const SECONDS_MAX: u64 = 5;
/// Name of the limit for connections of all addresses.
pub const CONNECTIONS: &str = "discovery-connections";
/// Name of the limit for connections of one address.
pub const CONNECTIONS_OF_ADDRESS: &str = "discovery-connections-of-address";
const BACKLOG: u32 = 16;
/// Pause after the kernel gave no connection, as when the process has no descriptor left.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);

/// Connections of all links.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<HashMap<IpAddr, usize>>);

impl Places {
    /// Takes a place for a connection of this address.
    ///
    /// # Errors
    /// Returns the name of the limit that refuses it.
    fn take(self: &Arc<Self>, peer: IpAddr) -> Result<Place, &'static str> {
        let mut all = locked(&self.0);
        if all.values().sum::<usize>() >= CONNECTIONS_MAX {
            return Err(CONNECTIONS);
        }
        let count = all.entry(peer).or_default();
        if *count >= CONNECTIONS_OF_ADDRESS_MAX {
            return Err(CONNECTIONS_OF_ADDRESS);
        }
        *count += 1;
        Ok(Place { places: self.clone(), peer })
    }
}

struct Place {
    places: Arc<Places>,
    peer: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = locked(&self.places.0);
        if let Some(count) = all.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.peer);
            }
        }
    }
}

/// Returns the address at which hosts of this version of IP read the metadata. By IPv6 it is the one that is valid on the link
/// only: messages leave from there, and wsdd takes any other for such a one too.
pub(crate) fn at(addresses: &[IpAddr], family: Family) -> Option<IpAddr> {
    let far = |ip: &IpAddr| !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    addresses.iter().copied().filter(|ip| family.has(*ip)).min_by_key(far)
}

fn bound(at: IpAddr, link: &Link) -> io::Result<TcpSocket> {
    let at = match at {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            SocketAddrV6::new(ip, wsd::HTTP_PORT, 0, link.index).into()
        }
        ip => SocketAddr::new(ip, wsd::HTTP_PORT),
    };
    let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A gateway that was killed can restart at once.
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    Ok(socket)
}

/// Returns a line that says why the metadata cannot be read at an address.
fn refused(at: IpAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "WS-Discovery is left to another program of this host, which holds TCP port {}; stop it, or set `discovery: off`",
            wsd::HTTP_PORT
        ),
        _ => format!("WS-Discovery cannot be used at {at}: {error}"),
    }
}

/// Listens at an address of this host.
fn listen(at: IpAddr, link: &Link) -> Result<TcpListener, String> {
    bound(at, link).and_then(|socket| socket.listen(BACKLOG)).map_err(|error| refused(at, &error))
}

/// Checks that the port is free.
pub(crate) fn tried(at: IpAddr, link: &Link) -> Result<(), String> {
    bound(at, link).map(drop).map_err(|error| refused(at, &error))
}

/// The listeners of a link, by version of IP.
#[derive(Debug, Default)]
pub(crate) struct Listeners([Option<(IpAddr, Link, JoinHandle<()>)>; 2]);

impl Drop for Listeners {
    fn drop(&mut self) {
        self.0.iter().flatten().for_each(|(_, _, task)| task.abort());
    }
}

impl Listeners {
    /// Listens at this address, and no longer at another one.
    ///
    /// # Errors
    /// Says in one line why WS-Discovery is not used.
    pub(crate) async fn open(
        &mut self,
        family: Family,
        at: IpAddr,
        link: &Link,
        (device, board): (Arc<Mutex<Device>>, Arc<Board>),
    ) -> Result<(), String> {
        let open = &self.0[family as usize];
        if open
            .as_ref()
            .is_some_and(|(now, of, task)| (*now, of) == (at, link) && !task.is_finished())
        {
            return Ok(());
        }
        self.close(family).await;
        let listener = listen(at, link)?;
        let task = tokio::spawn(serve(listener, link.clone(), device, board));
        self.0[family as usize] = Some((at, link.clone(), task));
        Ok(())
    }

    pub(crate) async fn close(&mut self, family: Family) {
        if let Some((_, _, task)) = self.0[family as usize].take() {
            task.abort();
            // The socket is closed only when the task has ended.
            let _ = task.await;
        }
    }
}

/// Serves the metadata to hosts of the link.
async fn serve(listener: TcpListener, link: Link, device: Arc<Mutex<Device>>, board: Arc<Board>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_AGAIN).await;
            continue;
        };
        let peer = peer.ip().to_canonical();
        if !link.is_attached(peer) {
            board.count(Protocol::Wsd, Outcome::Far);
            continue;
        }
        let place = match board.places().take(peer) {
            Ok(place) => place,
            Err(limit) => {
                board.limited(limit);
                board.count(Protocol::Wsd, Outcome::Limited);
                continue;
            }
        };
        let (device, board) = (device.clone(), board.clone());
        connections.spawn(async move {
            let _place = place;
            converse(stream, &device, &board).await;
        });
    }
}

/// Answers one request. A client that is slower than [`SECONDS_MAX`] is cut off.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    device: &Mutex<Device>,
    board: &Board,
) {
    let service = service_fn(|request| answer(request, device, board));
    let mut server = http1::Builder::new();
    server.keep_alive(false).max_buf_size(wsd::MESSAGE_MAX * 2);
    let serving = server.serve_connection(TokioIo::new(stream), service);
    let _ = timeout(Duration::from_secs(SECONDS_MAX), serving).await;
}

async fn answer(
    request: Request<Incoming>,
    device: &Mutex<Device>,
    board: &Board,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = locked(device).path();
    let is_ours = request.method() == Method::POST && request.uri().path() == path;
    let text = match is_ours {
        true => Limited::new(request.into_body(), wsd::MESSAGE_MAX).collect().await.ok(),
        false => None,
    };
    let parsed = text.map(|text| request::parse(&text.to_bytes()));
    let metadata = match &parsed {
        Some(Ok(request)) => locked(device).metadata(request),
        _ => None,
    };
    let outcome = match (&parsed, &metadata) {
        (_, Some(_)) => Outcome::Answered,
        (Some(Err(_)), None) => Outcome::Bad,
        _ => Outcome::Ignored,
    };
    board.count(Protocol::Wsd, outcome);
    let status = match outcome {
        Outcome::Answered => StatusCode::OK,
        Outcome::Bad => StatusCode::BAD_REQUEST,
        _ => StatusCode::NOT_FOUND,
    };
    let mut response = Response::new(Full::new(Bytes::from(metadata.unwrap_or_default())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/soap+xml"));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;
    use crate::Identity;
    use crate::links::Address;
    use crate::name::HostName;

    #[test]
    fn connections_of_an_address_leave_room_for_others() {
        let places = Arc::new(Places::default());
        let from = |n: u8| IpAddr::from([192, 0, 2, n]);
        let mut held: Vec<_> = (0..100).filter_map(|_| places.take(from(1)).ok()).collect();
        assert_eq!(held.len(), CONNECTIONS_OF_ADDRESS_MAX);
        assert_eq!(places.take(from(1)).err(), Some(CONNECTIONS_OF_ADDRESS));
        held.extend((2..100).filter_map(|n| places.take(from(n)).ok()));
        assert_eq!(held.len(), CONNECTIONS_MAX);
        assert_eq!(places.take(from(200)).err(), Some(CONNECTIONS));
        drop(held);
        assert!(locked(&places.0).is_empty());
        assert!(places.take(from(1)).is_ok());
    }

    #[test]
    fn metadata_is_at_the_address_from_which_messages_leave() {
        let all = ["198.51.100.1", "198.51.100.2", "2001:db8::1", "fe80::1"]
            .map(|ip| ip.parse().unwrap());
        assert_eq!(at(&all, Family::V4), Some(all[0]));
        assert_eq!(at(&all, Family::V6), Some(all[3]));
        assert_eq!(at(&all[..3], Family::V6), Some(all[2]));
        assert_eq!(at(&all[..2], Family::V6), None);
    }

    const PATH: &str = "/07070707-0707-4707-8707-070707070707";

    fn device() -> Device {
        let name = HostName::of("gw");
        Device::new(&Identity { name, id: [7; 16], instance: 1 })
    }

    fn board() -> Arc<Board> {
        Arc::new(Board::new(|_| ()))
    }

    /// Sends the text on a connection, and returns the answer.
    async fn sent(text: &str) -> String {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let (device, board) = (Mutex::new(device()), board());
        client.write_all(text.as_bytes()).await.unwrap();
        converse(server, &device, &board).await;
        let mut answer = String::new();
        let _ = client.read_to_string(&mut answer).await;
        answer
    }

    fn post(path: &str, body: &str) -> String {
        format!("POST {path} HTTP/1.1\r\nHost: gw\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    fn get() -> String {
        let action = "http://schemas.xmlsoap.org/ws/2004/09/transfer/Get";
        format!(
            "<s:Envelope xmlns:s=\"http://www.w3.org/2003/05/soap-envelope\" \
             xmlns:a=\"http://schemas.xmlsoap.org/ws/2004/08/addressing\"><s:Header><a:To>urn:uuid:{}</a:To>\
             <a:Action>{action}</a:Action><a:MessageID>urn:uuid:1</a:MessageID></s:Header><s:Body/></s:Envelope>",
            &PATH[1..]
        )
    }

    #[tokio::test]
    async fn metadata_is_for_requests_that_name_the_device() {
        let whole = sent(&post(PATH, &get())).await;
        assert!(
            whole.starts_with("HTTP/1.1 200 ") && whole.contains("GW/Workgroup:WORKGROUP"),
            "{whole}"
        );
        assert!(sent(&post("/", &get())).await.starts_with("HTTP/1.1 404 "));
        assert!(sent(&post(PATH, "<a>")).await.starts_with("HTTP/1.1 400 "));
        assert!(
            sent(&post(PATH, &get().replace("urn:uuid:0", "urn:uuid:1")))
                .await
                .starts_with("HTTP/1.1 404 ")
        );
        let large = sent(&post(PATH, &" ".repeat(wsd::MESSAGE_MAX + 1))).await;
        assert!(large.is_empty() || !large.starts_with("HTTP/1.1 200 "), "{large}");
        assert!(
            sent(&format!("GET {PATH} HTTP/1.1\r\nHost: gw\r\n\r\n"))
                .await
                .starts_with("HTTP/1.1 404 ")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_nothing_is_cut_off() {
        let (_client, server) = tokio::io::duplex(100);
        let began = tokio::time::Instant::now();
        converse(server, &Mutex::new(device()), &board()).await;
        assert_eq!(began.elapsed().as_secs(), SECONDS_MAX);
    }

    #[tokio::test]
    async fn hosts_beyond_the_link_get_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        // Loopback is no network of a link.
        let addresses = vec![Address { ip: "127.0.0.1".parse().unwrap(), bits: 8 }];
        let link = Link { name: "test".into(), index: 1, addresses };
        let board = board();
        let task =
            tokio::spawn(serve(listener, link, Arc::new(Mutex::new(device())), board.clone()));
        let mut stream = TcpStream::connect(at).await.unwrap();
        let _ = stream.write_all(post(PATH, &get()).as_bytes()).await;
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        assert_eq!(answer, "");
        assert!(board.packets().contains(&("wsd", "far", 1)));
        task.abort();
    }
}
