//! Rules for the TLS files and the TLS requirements of shares.

use crate::file::Draft;
use crate::reader::Report;
use crate::tls::{DraftTls, ShareTls, Tls};

/// Returns the TLS settings after checking that the files are complete and that every share's requirement can be met.
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
            report.add_help(at, "`tls` is for NFS, and this share is served over SMB only", SMB);
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
