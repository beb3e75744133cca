//! NFS through TLS (RFC 9289): the record has the name in the client's certificate.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use nfs_proto::oncrpc::{AUTH_TLS, CallHead, OpaqueAuth, program};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::World;

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn issued(issuer: &Issuer, name: &str) -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    (params.signed_by(&key, issuer).unwrap(), key)
}

/// Proposes TLS and completes it with a certificate for this name.
async fn dial(world: &World, issuer: &Issuer, name: Option<&str>) {
    let mut roots = RootCertStore::empty();
    roots.add(issuer.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match name.map(|name| issued(issuer, name)) {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
            builder.with_client_auth_cert(vec![certificate.der().clone()], key).unwrap()
        }
    };
    let mut stream = TcpStream::connect(world.daemon.nfs).await.unwrap();
    let (cred, verf) = (OpaqueAuth { flavor: AUTH_TLS, body: &[] }, OpaqueAuth::NONE);
    let mut call = Vec::new();
    CallHead { xid: 9, program: program::NFS, version: 3, procedure: 0, cred, verf }
        .emit(&mut call);
    stream.write_u32(0x8000_0000 | u32::try_from(call.len()).unwrap()).await.unwrap();
    stream.write_all(&call).await.unwrap();
    let len = stream.read_u32().await.unwrap() & 0x7fff_ffff;
    stream.read_exact(&mut vec![0; len as usize]).await.unwrap();
    let host = ServerName::try_from("gw.test").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(host, stream).await.unwrap();
    stream.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_with_tls_are_recorded_with_the_name_of_the_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let at = folder.path().join(name);
        fs::write(&at, text).unwrap();
        fs::set_permissions(&at, Permissions::from_mode(0o600)).unwrap();
        at.display().to_string()
    };
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let (certificate, key) = issued(&issuer, "gw.test");
    let (certificate, key) = (file("crt", &certificate.pem()), file("key", &key.serialize_pem()));
    let ca = file("ca", &issuer.pem());
    let tls = format!("tls: {{certificate: {certificate}, key: {key}, ca: {ca}}}");
    let shares = "shares: [{name: team, memory: true, tls: offered}]";
    let world = World::start("", &format!("{tls}\n{shares}"));
    dial(&world, &issuer, None).await;
    world.event("tls", &[("name", ""), ("peer", "127.0.0.1")]);
    dial(&world, &issuer, Some("alice.test")).await;
    world.event("tls", &[("name", "alice.test"), ("peer", "127.0.0.1")]);
}
