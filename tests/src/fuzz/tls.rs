//! Connections that request TLS (RFC 9289), and then send arbitrary bytes in place of a handshake.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use iobuf::{Buf, Pool, PoolLimits};
use nfs_proto::oncrpc::{AUTH_TLS, CallHead, OpaqueAuth, program};
use nfsrdma::clock::Clock;
use nfsrdma::fh::Handles;
use nfsrdma::locate::NfsLocate;
use nfsrdma::served_programs::ServedPrograms;
use nfsrdma::server::{Server, Session};
use nfsrdma::server_state::{Boot, ServerState};
use rdma_transport::channel::{BoxFuture, Channel, Info, ReadChunkData, Reply, Service, Transport};
use rdma_transport::serve::serve;
use rdma_transport::tcp::{Framing, TcpChannel};
use rustls::server::NoServerSessionStorage;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use rustls_pki_types::{PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use vfs::namespace::Namespace;

use super::share;

/// A connection ends within this time after its client has sent everything.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

thread_local! {
    #[allow(clippy::expect_used)]
    static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    static SERVER: (Arc<Server>, Arc<ServerConfig>) = (server(), tls());
}

fn server() -> Arc<Server> {
    let (share, _) = RUNTIME.with(|runtime| share(1 << 20, runtime));
    let (handles, boot) = (Handles::new([1; 16]), Boot { write_verifier: 1, instance: 1 });
    let namespace = Arc::new(Namespace::new(vec![share]));
    Server::new(ServerState::new(namespace, handles, boot, Clock::Manual(0.into())), [2; 16])
}

#[allow(clippy::expect_used)]
fn tls() -> Arc<ServerConfig> {
    let own =
        rcgen::generate_simple_self_signed(vec!["gw.test".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).expect("its key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)
        .expect("a certificate and its key");
    server.send_tls13_tickets = 0;
    server.session_storage = Arc::new(NoServerSessionStorage {});
    Arc::new(server)
}

/// Counts calls that reach the service.
struct Counted {
    session: Session,
    calls: AtomicUsize,
}

impl Service for Counted {
    fn call(
        &self,
        body: Buf,
        read_chunks: Vec<ReadChunkData>,
    ) -> BoxFuture<'static, Option<Reply>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.session.call(body, read_chunks)
    }
}

/// The request for TLS, with its record mark.
fn proposal() -> Vec<u8> {
    let cred = OpaqueAuth { flavor: AUTH_TLS, body: &[] };
    let (verf, program) = (OpaqueAuth::NONE, program::NFS);
    let mut call = Vec::new();
    CallHead { xid: 9, program, version: 4, procedure: 0, cred, verf }.emit(&mut call);
    let mark = 0x8000_0000 | u32::try_from(call.len()).unwrap_or(0);
    [mark.to_be_bytes().to_vec(), call].concat()
}

/// Input: the bytes after the request, in two pieces: the first byte is the size of the first. No input can complete a handshake,
/// which depends on random values of the server; so no call reaches the service, and the connection ends.
pub fn tls_handshake(data: &[u8]) {
    let Some((first, data)) = data.split_first() else { return };
    let at = usize::from(*first).min(data.len());
    // Created outside of the runtime, because it uses the runtime itself.
    let made = SERVER.with(Clone::clone);
    let conversation = connection(made, data.split_at(at));
    let calls = RUNTIME.with(|runtime| {
        runtime.block_on(async { tokio::time::timeout(ENDS_WITHIN, conversation).await })
    });
    match calls {
        Ok(Some(calls)) => assert_eq!(calls, 1, "the proposal, and nothing behind it"),
        // This machine has no more ports or descriptors.
        Ok(None) => {}
        Err(_) => panic!("the connection does not end"),
    }
}

/// The number of calls that reached the service.
async fn connection(
    (server, tls): (Arc<Server>, Arc<ServerConfig>),
    (first, second): (&[u8], &[u8]),
) -> Option<usize> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.ok()?;
    let mut client = TcpStream::connect(listener.local_addr().ok()?).await.ok()?;
    let (stream, peer) = listener.accept().await.ok()?;
    let local = stream.local_addr().ok()?;
    let pool = || Pool::new(PoolLimits { buffers_max: [8, 4, 4] });
    let info = Arc::new(Info::new(peer, local, Transport::Tcp, pool()));
    info.tls.offer(tls);
    let channel =
        TcpChannel::new(stream, info.clone(), pool(), Arc::new(NfsLocate), Framing::Record).ok()?;
    let session = server.session_of(info, channel.handle(), ServedPrograms::All);
    let service = Arc::new(Counted { session, calls: AtomicUsize::new(0) });
    let serving = serve(Box::new(channel), service.clone());
    let speaking = async {
        // The server may have ended the connection in the middle.
        let _ = client.write_all(&[&proposal(), first].concat()).await;
        tokio::task::yield_now().await;
        let _ = client.write_all(second).await;
        let _ = client.shutdown().await;
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest).await;
    };
    tokio::join!(serving, speaking);
    Some(service.calls.load(Ordering::Relaxed))
}

/// A ClientHello as rustls makes it, whole, split in the middle, and twice; an alert; a call in clear.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map(|builder| {
        builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth()
    });
    let name = ServerName::try_from("gw.test");
    let (Ok(config), Ok(name)) = (config, name) else { return vec![vec![]] };
    let mut hello = Vec::new();
    let made = ClientConnection::new(Arc::new(config), name);
    // Into memory, which cannot fail.
    let _ = made.map(|mut client| client.write_tls(&mut hello));
    let with = |first: u8, bytes: &[u8]| [&[first], bytes].concat();
    vec![
        with(255, &hello),
        with(40, &hello),
        with(255, &[&hello[..], &hello].concat()),
        with(255, &hello[..hello.len() / 2]),
        with(0, &[21, 3, 3, 0, 2, 2, 40]),
        with(0, &proposal()),
    ]
}
