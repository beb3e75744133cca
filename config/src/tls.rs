//! TLS below NFS over TCP (RFC 9289).

use std::path::PathBuf;

use crate::file::Draft;
use crate::reader::{Origin, Report, Set};
use crate::words::words;

/// The files that TLS needs. They are read when the gateway starts and at each reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate of this gateway, in PEM, with those that lead to an authority behind it.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
    /// Authorities that sign the certificates of clients; `None`: clients are not asked for any.
    pub ca: Option<PathBuf>,
    /// Authorities that sign the certificates of administrators of other hosts.
    pub admin_ca: Option<PathBuf>,
    /// The file whose first line such an administrator gives as a bearer token.
    pub admin_token: Option<PathBuf>,
}

impl Tls {
    /// Whoever asks at the admin address from another host proves that it may, and is answered by TLS.
    pub fn is_for_admin(&self) -> bool {
        self.admin_ca.is_some() || self.admin_token.is_some()
    }
}

/// How the NFS clients of a share must be protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShareTls {
    /// As they like.
    #[default]
    Offered,
    /// By TLS.
    Required,
    /// By TLS with a certificate of their own.
    Mutual,
}

words!(
    ShareTls,
    "is not a TLS mode",
    "offered" => Offered, "required" => Required, "mutual" => Mutual
);

/// What file and options say of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct DraftTls {
    pub(crate) certificate: Option<Set<PathBuf>>,
    pub(crate) key: Option<Set<PathBuf>>,
    pub(crate) ca: Option<Set<PathBuf>>,
    pub(crate) admin_ca: Option<Set<PathBuf>>,
    pub(crate) admin_token: Option<Set<PathBuf>>,
}

/// What TLS is to be, where the files that belong together are all named and every share can have what it demands.
pub(crate) fn check(draft: &Draft, report: &mut Report) -> Option<Tls> {
    let DraftTls { certificate, key, ca, admin_ca, admin_token } = &draft.tls;
    if let Some(set) = certificate.as_ref().filter(|_| key.is_none()) {
        report.add(set.origin, "the certificate needs its private key: set `tls.key` to its file");
    }
    if let Some(set) = key.as_ref().filter(|_| certificate.is_none()) {
        report.add(
            set.origin,
            "the private key needs its certificate: set `tls.certificate` to its file",
        );
    }
    let others = [ca, admin_ca, admin_token].into_iter().find_map(Option::as_ref);
    if let Some(set) = others.filter(|_| certificate.is_none() && key.is_none()) {
        let help = "set `tls.certificate` and `tls.key`, too";
        report.add_help(set.origin, "TLS needs a certificate of the gateway", help);
    }
    let tls = match (certificate, key) {
        (Some(certificate), Some(key)) => Some(Tls {
            certificate: certificate.value.clone(),
            key: key.value.clone(),
            ca: ca.as_ref().map(|ca| ca.value.clone()),
            admin_ca: admin_ca.as_ref().map(|ca| ca.value.clone()),
            admin_token: admin_token.as_ref().map(|token| token.value.clone()),
        }),
        _ => None,
    };
    for draft in &draft.shares {
        let (share, at) = (&draft.share, draft.tls_at.unwrap_or(draft.name_at));
        let demand = share.tls;
        if demand == ShareTls::Offered {
            continue;
        }
        if !share.protocols.nfs() {
            report.add_help(at, "`tls` is for NFS, and this share is served by SMB only", SMB);
        } else if certificate.is_none() && key.is_none() {
            let what = format!("`tls: {demand}` needs a certificate of the gateway");
            report.add_help(at, what, "set `certificate` and `key` in the group `tls`");
        } else if demand == ShareTls::Mutual && ca.is_none() {
            let what = "`tls: mutual` needs the authorities that sign the certificates of clients";
            report.add_help(at, what, "set `tls.ca` to their file");
        }
    }
    tls
}

const SMB: &str = "for SMB use `encrypt: true`";

impl DraftTls {
    /// What options say stands before what the file says.
    pub(crate) fn lay_over(&mut self, options: [(Option<PathBuf>, &'static str); 3]) {
        let places = [&mut self.certificate, &mut self.key, &mut self.ca];
        for (place, (value, name)) in places.into_iter().zip(options) {
            if let Some(value) = value {
                *place = Some(Set { value, origin: Origin::Option(name) });
            }
        }
    }
}
