//! TLS for NFS over TCP (RFC 9289).

use std::path::PathBuf;

use policy::words;

use crate::reader::{Origin, Set};

/// The TLS files. Read at start and at each reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Certificate of this gateway in PEM, followed by the intermediate certificates.
    pub certificate: PathBuf,
    /// Private key in PEM.
    pub key: PathBuf,
    /// Authorities for client certificates, which are requested only if this is set.
    pub ca: Option<PathBuf>,
    /// Authorities for certificates of administrators on other hosts.
    pub admin_ca: Option<PathBuf>,
    /// File whose first line is the bearer token of such an administrator.
    pub admin_token: Option<PathBuf>,
}

impl Tls {
    /// Checks whether administrators on other hosts must authenticate, which requires TLS at the admin address.
    pub fn is_for_admin(&self) -> bool {
        self.admin_ca.is_some() || self.admin_token.is_some()
    }
}

/// The required protection of a share's NFS clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShareTls {
    /// TLS is optional.
    #[default]
    Offered,
    /// TLS is required.
    Required,
    /// TLS with a client certificate is required.
    Mutual,
}

words!(
    ShareTls,
    "is not a TLS mode",
    "offered" => Offered, "required" => Required, "mutual" => Mutual
);

/// TLS settings from the file and the options, before checking.
#[derive(Clone, Debug, Default)]
pub(crate) struct DraftTls {
    pub(crate) certificate: Option<Set<PathBuf>>,
    pub(crate) key: Option<Set<PathBuf>>,
    pub(crate) ca: Option<Set<PathBuf>>,
    pub(crate) admin_ca: Option<Set<PathBuf>>,
    pub(crate) admin_token: Option<Set<PathBuf>>,
}

impl DraftTls {
    /// Lets options override the values of the file.
    pub(crate) fn lay_over(&mut self, options: [(Option<PathBuf>, &'static str); 3]) {
        let places = [&mut self.certificate, &mut self.key, &mut self.ca];
        for (place, (value, name)) in places.into_iter().zip(options) {
            if let Some(value) = value {
                *place = Some(Set { value, origin: Origin::Option(name) });
            }
        }
    }
}
