//! Shares of the cluster's other services, read from the configurations of their gateways.

use std::path::Path;

use policy::Protocols;

use crate::export::Export;
use crate::fault::Faults;
use crate::file::{DraftShare, draft};
use crate::reader::{Report, Set};
use crate::refer::{Refer, ReferHost, TARGETS_MAX};
use crate::settings::{Rdma, Settings, Share, Source};
use crate::text;
use crate::units::Port;

/// The shares of another service of the cluster.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    /// Name of the service.
    pub(crate) service: String,
    /// Its shares, as shares that refer clients to another server; the error explains why they are unknown.
    pub(crate) shares: Result<Vec<Share>, String>,
}

impl Elsewhere {
    /// Reads the gateway configuration of the service `service`, which clients reach at `hosts`. Does not access its folders,
    /// because its storage may be attached to another node.
    pub fn of(service: &str, file: &Path, hosts: &[ReferHost]) -> Self {
        let faults = |faults: Faults| match faults.0.first() {
            Some(fault) => format!("{}: {}", file.display(), fault.what),
            None => format!("cannot read {}", file.display()),
        };
        let shares = text::text_of(file).and_then(|text| of_text(file, &text, hosts));
        Self { service: service.to_owned(), shares: shares.map_err(faults) }
    }
}

fn of_text(file: &Path, text: &str, hosts: &[ReferHost]) -> Result<Vec<Share>, Faults> {
    let root = text::root(file, text)?;
    let mut report = Report::default();
    let draft = draft(&root, &mut report);
    if !report.0.is_empty() {
        return Err(text::faults(file, text, report));
    }
    let usual = Settings::default();
    // A referral names no port, so the service must use the standard ones.
    let by_port =
        |port: &Option<Set<Port>>, usual| port.as_ref().is_none_or(|p| p.value.0 == usual);
    let by_nfs = by_port(&draft.nfs_port, usual.nfs_port);
    let by_smb = by_port(&draft.smb_port, usual.smb.port);
    let rdma = draft.rdma.as_ref().is_none_or(|rdma| rdma.value != Rdma::Off)
        && by_port(&draft.nfs_rdma_port, usual.nfs_rdma_port);
    let of = |DraftShare { share, .. }: DraftShare| {
        let protocols = match (by_nfs && share.protocols.nfs(), by_smb && share.protocols.smb()) {
            (true, true) => Protocols::Both,
            (true, false) => Protocols::Nfs,
            (false, true) => Protocols::Smb,
            (false, false) => return None,
        };
        let path: Export = format!("/{}", share.nfs_path()).parse().ok()?;
        let target = |host: &ReferHost| Refer {
            host: host.clone(),
            path: path.clone(),
            share: Some(share.name.clone()),
            rdma,
            namespace: false,
        };
        // A share that itself refers to a third server keeps that target.
        let source = match share.source {
            Source::Refer(targets) => Source::Refer(targets),
            _ => Source::Refer(hosts.iter().take(TARGETS_MAX).map(target).collect()),
        };
        let export = share.export.filter(|_| protocols.nfs());
        let (clients, hidden, comment) = (share.clients, share.hidden, share.comment);
        let bare = Share::new(share.name, source);
        Some(Share { protocols, clients, hidden, export, comment, ..bare })
    };
    Ok(draft.shares.into_iter().filter_map(of).collect())
}
