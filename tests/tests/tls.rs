//! NFS over TLS (RFC 9289), with this workspace's client behind a relay that adds TLS as a kernel's `tlshd` does, and with peers
//! that violate its rules.

#![allow(clippy::unwrap_used)]

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use client::connect::Local;
use client::target::{Transport, Version};
use client::{Credential, Error, Volume};
use config::{PrivilegedPorts, ShareTls};
use headgate_tests::world::{World, pattern, read_all, write_all};
use nfs_proto::oncrpc::{
    AUTH_TLS, AcceptStat, AuthStat, CallHead, OpaqueAuth, ReplyBody, ReplyHead, STARTTLS, program,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Sizes around every threshold of records and buffers.
const SIZES: [usize; 14] =
    [0, 1, 1023, 1024, 4095, 4096, 4097, 16_383, 16_384, 16_385, 65_536, 65_537, 1 << 20, 3 << 20];
const PATIENCE: Duration = Duration::from_secs(30);

type Issuer = CertifiedIssuer<'static, KeyPair>;

/// A certificate authority and its certificates.
struct Authority {
    issuer: Issuer,
}

impl Authority {
    fn new() -> Self {
        Self::of("lab")
    }

    /// Creates an authority with this name.
    fn of(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer }
    }

    /// A certificate of this name, and its key.
    fn issue(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        self.issue_with(name, |_| ())
    }

    /// Like `issue`, with a change before signing.
    fn issue_with(
        &self,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// The files of a gateway with a certificate of this authority, which also trusts its clients.
    fn gateway(&self, dir: &Path) -> config::Tls {
        let file = |name: &str, text: String| {
            let at = dir.join(name);
            std::fs::write(&at, text).unwrap();
            std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o600)).unwrap();
            at
        };
        let (certificate, key) = self.issue("gw.test");
        config::Tls {
            certificate: file("tls.crt", certificate.pem()),
            key: file("tls.key", key.serialize_pem()),
            ca: Some(file("ca.crt", self.issuer.pem())),
            admin_ca: None,
            admin_token: None,
        }
    }

    /// The configuration of a client, with a certificate of this name if given.
    fn client(&self, name: Option<&str>) -> Arc<ClientConfig> {
        self.client_with(name.map(|name| self.issue(name)))
    }

    /// Uses this certificate without a check of its signer.
    fn client_with(&self, own: Option<(rcgen::Certificate, KeyPair)>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
                let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        Arc::new(config)
    }
}

/// A gateway whose share `data` requires this of its clients.
async fn gateway(authority: &Authority, demand: ShareTls) -> (World, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let tls = authority.gateway(dir.path());
    let world = World::with(|settings| {
        settings.tls = Some(tls);
        settings.shares[0].tls = demand;
        // The relay uses any port.
        settings.privileged_ports = PrivilegedPorts::Off;
    })
    .await;
    (world, dir)
}

/// A NULL call that requests TLS, with its record mark.
fn proposal(change: impl FnOnce(&mut CallHead<'_>)) -> Vec<u8> {
    let mut head = CallHead {
        xid: 9,
        program: program::NFS,
        version: 3,
        procedure: 0,
        cred: OpaqueAuth { flavor: AUTH_TLS, body: &[] },
        verf: OpaqueAuth::NONE,
    };
    change(&mut head);
    let mut call = Vec::new();
    head.emit(&mut call);
    let mark = 0x8000_0000 | u32::try_from(call.len()).unwrap();
    [mark.to_be_bytes().to_vec(), call].concat()
}

/// The next reply in clear.
async fn reply(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let len = (stream.read_u32().await? & 0x7fff_ffff) as usize;
    let mut body = vec![0; len];
    stream.read_exact(&mut body).await?;
    Ok(body)
}

/// The reply to a request for TLS.
async fn proposed(
    stream: &mut TcpStream,
    change: impl FnOnce(&mut CallHead<'_>),
) -> io::Result<Vec<u8>> {
    stream.write_all(&proposal(change)).await?;
    reply(stream).await
}

fn accepted(verifier: &'static [u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let verifier = OpaqueAuth { flavor: 0, body: verifier };
    let body = ReplyBody::Accepted(verifier, AcceptStat::Success);
    ReplyHead { xid: 9, body }.emit(&mut out);
    out
}

fn refused(stat: AuthStat) -> Vec<u8> {
    let mut out = Vec::new();
    ReplyHead { xid: 9, body: ReplyBody::AuthError(stat) }.emit(&mut out);
    out
}

/// Adds TLS for clients without it.
struct Relay {
    at: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Relay {
    async fn to(server: SocketAddr, config: Arc<ClientConfig>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let config = config.clone();
                open.spawn(async move {
                    let Ok(mut server) = dial(server, config).await else { return };
                    // Either end may close first.
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { at, _tasks: tasks }
    }

    async fn client(&self, world: &World, share: &str, version: Version) -> Result<Volume, Error> {
        let mut target = world.target(share, (version, Transport::Tcp));
        target.port = self.at.port();
        if let client::target::Protocol::Nfs { mount_port, .. } = &mut target.protocol {
            *mount_port = Some(self.at.port());
        }
        Volume::open(&target, &Local::default(), Credential::sys(0, 0, &[])).await
    }
}

async fn dial(
    server: SocketAddr,
    config: Arc<ClientConfig>,
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut stream = TcpStream::connect(server).await?;
    let answer = proposed(&mut stream, |_| ()).await?;
    assert_eq!(answer, accepted(STARTTLS));
    let name = ServerName::try_from("gw.test").unwrap();
    TlsConnector::from(config).connect(name, stream).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_survive_tls_transfer() {
    let authority = Authority::new();
    let (world, _dir) = gateway(&authority, ShareTls::Required).await;
    let relay = Relay::to(world.running.nfs[0], authority.client(None)).await;
    for version in [Version::V3, Version::V41, Version::V42] {
        for share in ["data", "mem"] {
            let volume = relay.client(&world, share, version).await.unwrap();
            for size in SIZES {
                let name = format!("{version:?}-{size}");
                let data = pattern(&name, size);
                write_all(&volume, &name, &data).await.unwrap();
                assert!(read_all(&volume, &name).await.unwrap() == data, "{share} {name}");
            }
        }
    }
    for size in SIZES {
        let name = format!("{:?}-{size}", Version::V42);
        assert!(std::fs::read(world.folder().join(&name)).unwrap() == pattern(&name, size));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn share_refuses_less_protected_clients() {
    let authority = Authority::new();
    for (demand, in_clear, in_tls) in [
        (ShareTls::Offered, true, true),
        (ShareTls::Required, false, true),
        (ShareTls::Mutual, false, false),
    ] {
        let (world, _dir) = gateway(&authority, demand).await;
        let server = world.running.nfs[0];
        let anonymous = Relay::to(server, authority.client(None)).await;
        let known = Relay::to(server, authority.client(Some("alice.test"))).await;
        for version in [Version::V3, Version::V41, Version::V42] {
            let clear = world.client("data", (version, Transport::Tcp)).await;
            let clear = match clear {
                Ok(volume) => volume.create("clear").await.is_ok(),
                Err(_) => false,
            };
            assert_eq!(clear, in_clear, "{demand} {version:?} in clear");
            let by_rdma = match world.client("data", (version, Transport::Rdma)).await {
                Ok(volume) => volume.create("clear").await.is_ok(),
                Err(_) => false,
            };
            assert_eq!(by_rdma, in_clear, "{demand} {version:?} by RDMA");
            let tls = match anonymous.client(&world, "data", version).await {
                Ok(volume) => volume.create("tls").await.is_ok(),
                Err(_) => false,
            };
            assert_eq!(tls, in_tls, "{demand} {version:?} by TLS");
            let mutual = known.client(&world, "data", version).await.unwrap();
            mutual.create("mutual").await.unwrap();
            // A share without a requirement is available to all.
            world.client("mem", (version, Transport::Tcp)).await.unwrap();
        }
        let rules: Vec<_> = rdma_transport::refused::list()
            .into_iter()
            .filter(|row| row.refused.share == "data")
            .map(|row| row.refused.rule)
            .collect();
        assert!(rules.contains(&"share-tls") || demand == ShareTls::Offered, "{rules:?}");
        if demand == ShareTls::Mutual {
            assert!(rules.contains(&"share-tls-certificate"), "{rules:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn untrusted_certificate_is_refused() {
    let (authority, stranger) = (Authority::new(), Authority::of("a stranger"));
    let (world, _dir) = gateway(&authority, ShareTls::Mutual).await;
    let expired = |params: &mut CertificateParams| params.not_after = date_time_ymd(2020, 1, 1);
    let early = |params: &mut CertificateParams| params.not_before = date_time_ymd(4000, 1, 1);
    let of_server = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    };
    for (config, remedy) in [
        // The client trusts the gateway and presents an untrusted certificate.
        (authority.client_with(Some(stranger.issue("alice.test"))), "sign the client's"),
        (authority.client_with(Some(authority.issue_with("alice.test", expired))), "run out"),
        (authority.client_with(Some(authority.issue_with("alice.test", early))), "not valid yet"),
        (authority.client_with(Some(authority.issue_with("alice.test", of_server))), "for clients"),
        // The client does not trust the gateway.
        (stranger.client(None), "trust who signed `tls.certificate`"),
    ] {
        let ended = async {
            let mut stream = dial(world.running.nfs[0], config).await?;
            // The client's handshake completes before the server has checked its certificate.
            stream.read_u8().await
        };
        assert!(timeout(PATIENCE, ended).await.unwrap().is_err(), "{remedy}");
        // The server may notice it later than the client.
        let told = async {
            let is_told = || {
                let rows = rdma_transport::refused::list();
                let mut of_rule = rows.iter().filter(|row| row.refused.rule == "tls-certificate");
                of_rule.any(|row| row.refused.remedy.contains(remedy))
            };
            while !is_told() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(timeout(PATIENCE, told).await.is_ok(), "no reason: {remedy}");
    }
    // A client without a certificate completes the handshake but cannot use the share.
    let anonymous = Relay::to(world.running.nfs[0], authority.client(None)).await;
    assert!(anonymous.client(&world, "mem", Version::V42).await.is_ok());
}

/// One address starts as many handshakes as allowed and never completes them; another address is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_handshakes_block_no_other_address() {
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let tls = authority.gateway(dir.path());
    let world = World::with(|settings| {
        settings.tls = Some(tls);
        settings.shares[0].tls = ShareTls::Required;
        settings.privileged_ports = PrivilegedPorts::Off;
        settings.connections = 64;
    })
    .await;
    let server = world.running.nfs[0];
    let mut held = Vec::new();
    for n in 0..200 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 9], 0).into()).unwrap();
        // Later ones may be closed at once, or replace earlier ones.
        let Ok(mut stream) = socket.connect(server).await else { continue };
        let Ok(Ok(answer)) = timeout(PATIENCE, proposed(&mut stream, |_| ())).await else {
            continue;
        };
        assert_eq!(answer, accepted(STARTTLS), "{n}");
        // Half of a ClientHello.
        if stream.write_all(&[22, 3, 1, 2, 0, 1, 0]).await.is_ok() {
            held.push(stream);
        }
    }
    assert!(held.len() >= 8, "{} handshakes", held.len());
    let relay = Relay::to(server, authority.client(None)).await;
    let volume = timeout(PATIENCE, relay.client(&world, "data", Version::V42)).await.unwrap();
    write_all(&volume.unwrap(), "beside", b"served").await.unwrap();
    assert_eq!(std::fs::read(world.folder().join("beside")).unwrap(), b"served");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_tls_requests_are_refused() {
    let authority = Authority::new();
    let (world, _dir) = gateway(&authority, ShareTls::Offered).await;
    let without = World::start().await;
    let at = world.running.nfs[0];
    let connect = |at| async move { TcpStream::connect(at).await.unwrap() };
    // A non-empty body in the credential; a verifier; a procedure other than NULL.
    let mut stream = connect(at).await;
    let body = OpaqueAuth { flavor: AUTH_TLS, body: &[0; 4] };
    let answer = proposed(&mut stream, |head| head.cred = body).await.unwrap();
    assert_eq!(answer, refused(AuthStat::BadCred));
    let mut stream = connect(at).await;
    let verifier = OpaqueAuth { flavor: 1, body: &[] };
    let answer = proposed(&mut stream, |head| head.verf = verifier).await.unwrap();
    assert_eq!(answer, refused(AuthStat::BadVerf));
    let mut stream = connect(at).await;
    let answer = proposed(&mut stream, |head| head.procedure = 1).await.unwrap();
    assert_eq!(answer, refused(AuthStat::BadCred));
    // Not the first call: TLS is not started, and the connection continues.
    let answer = proposed(&mut stream, |_| ()).await.unwrap();
    assert_eq!(answer, accepted(b""));
    assert_eq!(
        proposed(&mut stream, |head| head.cred = OpaqueAuth::NONE).await.unwrap(),
        accepted(b"")
    );
    // The port mapper is always called in clear.
    let mut stream = connect(at).await;
    let answer = proposed(&mut stream, |head| (head.program, head.version) = (program::PORTMAP, 2));
    assert_eq!(answer.await.unwrap(), accepted(b""));
    // A gateway without a certificate.
    let mut stream = connect(without.running.nfs[0]).await;
    assert_eq!(proposed(&mut stream, |_| ()).await.unwrap(), accepted(b""));
    // A second request inside TLS.
    let mut stream = dial(at, authority.client(None)).await.unwrap();
    stream.write_all(&proposal(|_| ())).await.unwrap();
    let len = (stream.read_u32().await.unwrap() & 0x7fff_ffff) as usize;
    let mut body = vec![0; len];
    stream.read_exact(&mut body).await.unwrap();
    assert_eq!(body, refused(AuthStat::BadCred));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_handshake_ends_connection() {
    let authority = Authority::new();
    let (world, _dir) = gateway(&authority, ShareTls::Offered).await;
    let at = world.running.nfs[0];
    let null = || proposal(|head| head.cred = OpaqueAuth::NONE);
    // A call in clear after the reply, and one that was sent before the reply arrived.
    let mut behind = TcpStream::connect(at).await.unwrap();
    assert_eq!(proposed(&mut behind, |_| ()).await.unwrap(), accepted(STARTTLS));
    behind.write_all(&null()).await.unwrap();
    let mut pipelined = TcpStream::connect(at).await.unwrap();
    pipelined.write_all(&[proposal(|_| ()), null()].concat()).await.unwrap();
    assert_eq!(reply(&mut pipelined).await.unwrap(), accepted(STARTTLS));
    for mut stream in [behind, pipelined] {
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap();
        // At most an alert (RFC 8446 section 6): content type 21.
        assert!(ended.is_err() || rest.is_empty() || rest[0] == 21, "{rest:?}");
    }
    assert!(count_of("tls-handshake") >= 2);
    let row = || {
        let mut rows = rdma_transport::refused::list().into_iter();
        rows.any(|row| row.refused.rule == "tls-handshake")
    };
    let told = async {
        while !row() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(PATIENCE, told).await.is_ok(), "it is not in `headgate status`");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_handshake_ends_in_time() {
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let tls = authority.gateway(dir.path());
    let world = World::with(|settings| {
        settings.tls = Some(tls);
        settings.privileged_ports = PrivilegedPorts::Off;
        settings.limits.introduction = Duration::from_secs(4);
    })
    .await;
    let mut stream = TcpStream::connect(world.running.nfs[0]).await.unwrap();
    assert_eq!(proposed(&mut stream, |_| ()).await.unwrap(), accepted(STARTTLS));
    // Only the head of a record with a ClientHello (RFC 8446 section 5.1).
    stream.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap();
    // At most close_notify, a warning (RFC 8446 section 6.1).
    assert!(ended.is_err() || rest.is_empty() || rest == [21, 3, 3, 0, 2, 1, 0], "{rest:?}");
}

fn count_of(rule: &str) -> u64 {
    let counted = rdma_transport::count::broken_rules();
    counted.into_iter().find(|(name, _)| *name == rule).map_or(0, |(_, n)| n)
}
