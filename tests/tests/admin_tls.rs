//! Accesses the admin address from another host: with TLS and a token or a certificate, as `tls` configures.

#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use config::{Admin, Settings};
use headgate_tests::world::World;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const TOKEN: &str = "a-token-of-the-administrators";
const PATIENCE: Duration = Duration::from_secs(30);

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Issuer {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn issued(issuer: &Issuer, name: &str) -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    (params.signed_by(&key, issuer).unwrap(), key)
}

/// A client that trusts this authority, with a certificate of another one.
fn client(server: &Issuer, own: Option<&Issuer>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(server.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(issuer) => {
            let (certificate, key) = issued(issuer, "admin.test");
            let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
            builder.with_client_auth_cert(vec![certificate.der().clone()], key).unwrap()
        }
    };
    // Sends the request like browsers and Prometheus.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

fn secret(dir: &Path, name: &str, text: &str) -> std::path::PathBuf {
    let at = dir.join(name);
    std::fs::write(&at, text).unwrap();
    std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o600)).unwrap();
    at
}

/// An address of this host other than loopback, from which clients count as another host.
fn elsewhere() -> Option<Ipv4Addr> {
    // No packet is sent; connecting only looks up the route.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(198, 51, 100, 1), 9)).ok()?;
    match socket.local_addr().ok()? {
        SocketAddr::V4(at) if !at.ip().is_loopback() && !at.ip().is_unspecified() => Some(*at.ip()),
        _ => None,
    }
}

/// Requests a path, or the method and path in `path`; returns the response.
async fn ask<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, path: &str, more: &str) -> String {
    let (verb, path) = path.split_once(' ').unwrap_or(("GET", path));
    let request =
        format!("{verb} {path} HTTP/1.1\r\nhost: gw.test\r\nconnection: close\r\n{more}\r\n");
    let mut answer = Vec::new();
    let talk = async {
        stream.write_all(request.as_bytes()).await?;
        stream.read_to_end(&mut answer).await
    };
    // A server that closes without close_notify causes an error after the response.
    let _ = tokio::time::timeout(PATIENCE, talk).await.unwrap();
    String::from_utf8(answer).unwrap()
}

struct Asked {
    at: SocketAddr,
    server: Issuer,
}

impl Asked {
    /// Requests over TLS; `None` if the handshake or the first read fails.
    async fn by_tls(&self, own: Option<&Issuer>, path: &str, more: &str) -> Option<String> {
        let stream = TcpStream::connect(self.at).await.unwrap();
        let connector = TlsConnector::from(client(&self.server, own));
        let name = ServerName::try_from("gw.test").unwrap();
        let stream = connector.connect(name, stream).await.ok()?;
        Some(ask(stream, path, more).await).filter(|answer| !answer.is_empty())
    }

    async fn in_clear(&self, path: &str, more: &str) -> String {
        ask(TcpStream::connect(self.at).await.unwrap(), path, more).await
    }
}

/// Starts a gateway whose admin address has these settings.
async fn gateway(
    change: impl FnOnce(&mut Settings, &mut config::Tls, &Path),
) -> Option<(World, Asked, tempfile::TempDir)> {
    let Some(address) = elsewhere() else {
        println!("skipped: this host has no address but loopback");
        return None;
    };
    let (server, dir) = (authority(), tempfile::tempdir().unwrap());
    let (certificate, key) = issued(&server, "gw.test");
    let world = World::with(|settings| {
        let mut tls = config::Tls {
            certificate: secret(dir.path(), "tls.crt", &certificate.pem()),
            key: secret(dir.path(), "tls.key", &key.serialize_pem()),
            ca: None,
            admin_ca: None,
            admin_token: None,
        };
        settings.admin = Admin::At((Ipv4Addr::UNSPECIFIED, 0).into());
        change(settings, &mut tls, dir.path());
        settings.tls = Some(tls);
    })
    .await;
    let at = (address, world.running.admin.unwrap().port()).into();
    Some((world, Asked { at, server }, dir))
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

fn is_ok(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 200 ")
}

fn counted(rule: &str) -> u64 {
    rdma_transport::refused::counts().iter().find(|(r, _)| *r == rule).map_or(0, |(_, n)| *n)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remote_admin_needs_tls_and_proof() {
    let admins = authority();
    let made = gateway(|_, tls, dir| {
        tls.admin_token = Some(secret(dir, "token", &format!("{TOKEN}\n")));
        tls.admin_ca = Some(secret(dir, "admin-ca.crt", &admins.pem()));
    });
    let Some((world, asked, _dir)) = made.await else { return };
    for path in ["/status", "/metrics", "/history", "/"] {
        let before = counted("admin-proof");
        let refused = asked.by_tls(None, path, "").await.unwrap();
        assert!(refused.starts_with("HTTP/1.1 401 "), "{path}: {refused}");
        assert!(refused.contains("www-authenticate: Bearer"), "{refused}");
        let wrong = asked.by_tls(None, path, &bearer("a-token-of-the-administrator")).await;
        assert!(wrong.unwrap().starts_with("HTTP/1.1 401 "), "{path}");
        // Other tests of this process may be refused at the same time.
        assert!(counted("admin-proof") >= before + 2, "{path}");
        assert!(is_ok(&asked.by_tls(None, path, &bearer(TOKEN)).await.unwrap()), "{path}");
        assert!(is_ok(&asked.by_tls(Some(&admins), path, "").await.unwrap()), "{path}");
    }
    // The health checks need TLS but no proof of identity.
    for path in ["/livez", "/readyz"] {
        assert!(is_ok(&asked.by_tls(None, path, "").await.unwrap()), "{path}");
    }
    let row = rdma_transport::refused::list().into_iter().find(|r| r.refused.rule == "admin-proof");
    assert!(row.unwrap().refused.remedy.contains("`tls.admin_token`"));
    // A certificate of an unknown authority ends the handshake, whatever else is sent.
    let stranger = authority();
    assert_eq!(asked.by_tls(Some(&stranger), "/status", &bearer(TOKEN)).await, None);
    // Requests without TLS get no response, and their tokens are ignored.
    for path in ["/status", "/livez"] {
        let told = asked.in_clear(path, &bearer(TOKEN)).await;
        assert!(!told.contains("HTTP/1.1 200"), "{path}: {told}");
    }
    // On this host plain access still works.
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, asked.at.port()));
    let here = Asked { at: here, ..asked };
    assert!(here.in_clear("/livez", "").await.starts_with("HTTP/1.1 200 "));
    // Actions are only allowed from this host.
    let far = Asked { at: (elsewhere().unwrap(), here.at.port()).into(), ..here };
    let more = format!("{}content-length: 0\r\n", bearer(TOKEN));
    let act = far.by_tls(Some(&admins), "POST /action/look", &more).await.unwrap();
    assert!(act.contains("HTTP/1.1 403") && act.contains("admin-away"), "{act}");
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_addresses_and_proof_both_apply() {
    let made = gateway(|settings, tls, dir| {
        tls.admin_token = Some(secret(dir, "token", &format!("{TOKEN}\n")));
        settings.admin_clients = vec!["198.51.100.0/24".parse().unwrap()];
    });
    let Some((world, asked, _dir)) = made.await else { return };
    let refused = asked.by_tls(None, "/status", &bearer(TOKEN)).await.unwrap();
    assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    world.running.stop().await;

    let made = gateway(|_, tls, dir| {
        tls.admin_token = Some(secret(dir, "token", &format!("{TOKEN}\n")));
    });
    let Some((mut world, asked, dir)) = made.await else { return };
    assert!(is_ok(&asked.by_tls(None, "/status", &bearer(TOKEN)).await.unwrap()));
    const NEXT: &str = "the-token-of-the-next-month";
    secret(dir.path(), "token", &format!("{NEXT}\n"));
    let settings = world.running.settings().clone();
    world.running.reload(settings).await.unwrap();
    let old = asked.by_tls(None, "/status", &bearer(TOKEN)).await.unwrap();
    assert!(old.starts_with("HTTP/1.1 401 "), "{old}");
    assert!(is_ok(&asked.by_tls(None, "/status", &bearer(NEXT)).await.unwrap()));
    world.running.stop().await;
}

#[tokio::test]
async fn invalid_token_file_stops_start() {
    let (server, dir) = (authority(), tempfile::tempdir().unwrap());
    let (certificate, key) = issued(&server, "gw.test");
    let token = secret(dir.path(), "token", "short");
    let tls = config::Tls {
        certificate: secret(dir.path(), "tls.crt", &certificate.pem()),
        key: secret(dir.path(), "tls.key", &key.serialize_pem()),
        ca: None,
        admin_ca: None,
        admin_token: Some(token.clone()),
    };
    let loaded = || gateway::tls::Certificate::load(&tls).map(drop).unwrap_err();
    for text in [
        "short",
        "",
        "has a space in its middle, though",
        "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}",
    ] {
        std::fs::write(&token, text).unwrap();
        assert!(loaded().contains("openssl rand -hex 32"), "{text}: {}", loaded());
    }
    std::fs::write(&token, TOKEN).unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(loaded().contains("chmod 600"), "{}", loaded());
    std::fs::remove_file(&token).unwrap();
    assert!(loaded().contains("token"), "{}", loaded());
}
