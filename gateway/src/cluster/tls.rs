//! TLS configuration for etcd.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::trust::{check_folders, check_secret};

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong =
        |e: &dyn std::fmt::Display| format!("{}: no certificate in PEM: {e}", file.display());
    let all: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(file).map_err(|e| wrong(&e))?.collect();
    let all = all.map_err(|e| wrong(&e))?;
    if all.is_empty() { Err(wrong(&"the file has none")) } else { Ok(all) }
}

/// Returns a configuration that trusts only these authorities, and presents a certificate if one is given.
pub(super) fn client(ca: &Path, own: Option<&(PathBuf, PathBuf)>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(ca)? {
        roots.add(authority).map_err(|e| format!("{}: {e}", ca.display()))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots);
    let Some((certificate, key)) = own else { return Ok(config.with_no_client_auth()) };
    check_secret("key", key)?;
    check_folders("key", key)?;
    let chain = certificates(certificate)?;
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|e| format!("{}: no private key in PEM: {e}", key.display()))?;
    config
        .with_client_auth_cert(chain, private)
        .map_err(|e| format!("{} and {}: {e}", certificate.display(), key.display()))
}
