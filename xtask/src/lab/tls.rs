//! Setup of a guest and the gateway for NFS over TLS: `tlshd`, which does the handshakes of Linux' client, and certificates.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::net::{INSIDE, host_address};
use crate::sh::{Result, output};
use crate::trixie;

/// The package of `tlshd`.
const PACKAGE: &str = "ktls-utils";

/// Returns a folder with `tlshd` and its libraries, made once in the lab's cache.
pub(super) fn tlshd() -> Result<PathBuf> {
    let cache = trixie::cache();
    let failed = |e| format!("{}: {e}", cache.display());
    fs::create_dir_all(&cache).map_err(failed)?;
    let lock = File::create(cache.join("tlshd.lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let tree = cache.join("tlshd");
    if tree.exists() {
        return Ok(tree);
    }
    // Renamed to its final name only when it is complete.
    let scratch = cache.join(format!("building-tlshd-{}", std::process::id()));
    let built = trixie::download(&scratch.join("apt"), &[PACKAGE]).and_then(|packages| {
        let root = scratch.join("root");
        fs::create_dir_all(&root).map_err(failed)?;
        for package in &packages {
            output(&["dpkg-deb", "--extract", package, &root.display().to_string()])?;
        }
        fs::rename(&root, &tree).map_err(failed)
    });
    let _ = fs::remove_dir_all(&scratch);
    built.map(|()| tree)
}

/// Makes an authority in `dir`, the gateway's certificate there, and in `guest`, which is `/scratch/tls` there, a client's
/// certificate with the configuration of `tlshd`.
pub(super) fn certificates(dir: &Path, guest: &Path) -> Result<()> {
    let failed = |e| format!("{}: {e}", guest.display());
    fs::create_dir_all(guest).map_err(failed)?;
    let at = |dir: &Path, name: &str| dir.join(name).display().to_string();
    let (ca, ca_key) = (at(dir, "ca.crt"), at(dir, "ca.key"));
    const NEW: [&str; 11] = [
        "openssl",
        "req",
        "-x509",
        "-nodes",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-days",
        "2",
        "-subj",
    ];
    let made = |words: &[&str]| output(&[&NEW[..], words].concat()).map(drop);
    made(&["/CN=lab", "-keyout", &ca_key, "-out", &ca])?;
    // A second authority, which neither side trusts.
    let (other, other_key) = (at(guest, "other.crt"), at(guest, "other.key"));
    made(&["/CN=other", "-keyout", &other_key, "-out", &other])?;
    let signed = |(ca, ca_key): (&str, &str), dir: &Path, name: &str, subject: &str| {
        let (key, file) = (at(dir, &format!("{name}.key")), at(dir, &format!("{name}.crt")));
        let name = format!("subjectAltName={subject}");
        made(&[
            "/CN=lab",
            "-CA",
            ca,
            "-CAkey",
            ca_key,
            "-addext",
            &name,
            "-addext",
            "basicConstraints=CA:FALSE",
            "-keyout",
            &key,
            "-out",
            &file,
        ])
    };
    let own = (&*ca, &*ca_key);
    signed(own, dir, "gateway", &format!("IP:{},IP:{INSIDE}", host_address(0)))?;
    signed(own, guest, "client", "DNS:guest.lab")?;
    signed((&other, &other_key), guest, "stranger", "DNS:guest.lab")?;
    if dir != guest {
        fs::copy(&ca, guest.join("ca.crt")).map_err(failed)?;
    }
    // The second section is for the kernel's own server, when both servers are measured.
    let conf = "[authenticate.client]\nx509.truststore = /scratch/tls/ca.crt\nx509.certificate = /scratch/tls/client.crt\n\
                x509.private_key = /scratch/tls/client.key\n[authenticate.server]\nx509.truststore = /scratch/tls/ca.crt\n\
                x509.certificate = /scratch/tls/gateway.crt\nx509.private_key = /scratch/tls/gateway.key\n";
    fs::write(guest.join("tlshd.conf"), conf).map_err(failed)
}

/// Returns the options of `serve` for the certificates.
pub(super) fn options(dir: &Path) -> [String; 6] {
    let file = |name: &str| dir.join(name).display().to_string();
    [
        "--tls-cert".into(),
        file("gateway.crt"),
        "--tls-key".into(),
        file("gateway.key"),
        "--tls-ca".into(),
        file("ca.crt"),
    ]
}
