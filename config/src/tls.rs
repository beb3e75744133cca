//! TLS below NFS over TCP (RFC 9289).

use std::path::PathBuf;

use policy::words;

use crate::reader::{Origin, Set};

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
