//! `headgate check`: checks the configuration, and shows the mount commands for every address.
//!
//! *Operation.* Reads the configuration like `serve`. Then checks the host: its addresses and their devices, whether the ports are
//! free, the capabilities of the shares' file systems, and the rights of this user. It changes no files and serves no clients.
//!
//! *Errors.* A wrong configuration is reported with exit code 2. Conditions that would keep `serve` from starting here and now
//! cause exit code 1; lesser problems are warnings. Ports of a gateway that runs on the same state folder are no conflict.

pub(crate) mod card;
pub(crate) mod files;
mod found;
mod host;
mod kerberos;
mod ldap;
pub mod lists;
pub(crate) mod netdev;
mod service;
mod show;
mod smb;
mod twins;
pub mod user;

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use config::{Portmap, PrivilegedPorts, Rdma, Settings, Share, Source};
use nfsrdma::source_port::FIRST_UNPRIVILEGED;
use rdma_transport::devices::Fabric;
use vfs::Backend;
use vfs::backend::SnapshotsTold;
use vfs::ceph::CephBackend;
use vfs::engine::far::PayloadBudget;
use vfs::local::{LocalBackend, LocalConfig};
use vfs::mem::MemBackend;
use vfs::quota::QuotaKind;

use crate::domain_service::Seen;
use crate::portmap::Chosen;
use crate::rdma;
use crate::rdma::plan::{self, AddressOffer, Refused};
use crate::shares::{open_ceph, open_in_time};
use crate::tls::{Certificate, EXPIRES_SOON};
use crate::writable;
use crate::{client_names, port, portmap, trail};
use netdev::Device;

/// Size of the memory volume whose capabilities are queried; this memory is never used.
const MEM_SIZE_TRIED: u64 = 1 << 20;

/// Results of all checks.
struct Findings<'a> {
    settings: &'a Settings,
    shares: Vec<ShareFacts<'a>>,
    places: Vec<ServedAddress>,
    smb: smb::Smb,
    kerberos: Option<kerberos::KeytabInfo>,
    service: Option<Seen>,
    ldap: Option<ldap::LdapInfo>,
    rights: host::Rights,
    /// User of the process.
    uid: u32,
    /// Certificate of NFS over TLS.
    certificate: Option<Certificate>,
    /// Set if NFSv3 clients can find the lock manager.
    locks_are_found: bool,
    /// The choice for port 111.
    portmap: Chosen,
    /// Set if a gateway runs on the same state folder.
    serves_already: bool,
    /// Announcements on the network.
    announced: Vec<found::Announced>,
    remarks: Remarks,
}

/// Problems in addition to the facts.
#[derive(Debug, Default)]
struct Remarks {
    /// Reasons why `serve` would not start.
    stops: Vec<String>,
    /// Problems that do not keep `serve` from starting.
    warnings: Vec<String>,
}

impl Remarks {
    fn stop(&mut self, what: String) {
        self.stops.push(what);
    }

    fn warn(&mut self, what: String) {
        self.warnings.push(what);
    }
}

/// A share and the capabilities of its file system.
struct ShareFacts<'a> {
    share: &'a Share,
    xattr: bool,
    reflink: bool,
    /// Set if access control lists are stored where a user that may write the file can remove them, but cannot forge others.
    lists_sealed: bool,
    /// How a handle finds its file again after a restart.
    handles: Handles,
    /// Set if names that differ only in case are different; `None`: no name shows it.
    case: Option<bool>,
    /// Kind of the file system.
    kind: Option<String>,
    /// File systems that are mounted inside the share and served.
    crossed: Vec<String>,
    /// Its snapshots; `None`: the configuration names none.
    snapshots: Option<SnapshotsTold>,
    /// The kinds of quotas that its file system counts, and whether it enforces them.
    quotas: Vec<(QuotaKind, bool)>,
}

impl<'a> ShareFacts<'a> {
    /// Returns the facts about a share that cannot be opened.
    fn unknown(share: &'a Share) -> Self {
        Self {
            share,
            xattr: false,
            reflink: false,
            lists_sealed: false,
            handles: Handles::None,
            case: None,
            kind: None,
            crossed: Vec::new(),
            snapshots: None,
            quotas: Vec::new(),
        }
    }
}

/// How a handle finds its file again after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handles {
    /// The kernel's handles find it.
    Kernel,
    /// A search for its inode number finds it.
    Search,
    /// Its inode number in the Ceph cluster finds it.
    Cluster,
    /// It cannot be found: the files do not survive either.
    None,
}

/// An address and its network device.
struct ServedAddress {
    ip: IpAddr,
    device: Option<String>,
    facts: Device,
    /// The RDMA that it offers.
    offer: AddressOffer,
}

impl ServedAddress {
    /// Returns whether only this host can reach the address. A Linux client on this host cannot use its own soft iWARP on the
    /// loopback device (its address resolution refuses).
    fn only_this_host(&self) -> bool {
        self.ip.is_loopback()
    }
}

/// Runs the command on sound settings. Returns false if `serve` would not start here and now.
pub fn run(settings: &Settings, json: bool) -> bool {
    let mut remarks = Remarks::default();
    settings.warnings.iter().for_each(|warning| remarks.warn(warning.to_string()));
    let rights = host::Rights::own();
    let serves_already = host::serves_already(&settings.state);
    let mounts = files::mounts();
    let shares: Vec<ShareFacts<'_>> =
        settings.shares.iter().map(|s| share_facts(s, &mounts, &mut remarks)).collect();
    writable::warnings(settings).into_iter().for_each(|warning| remarks.warn(warning));
    let places: Vec<ServedAddress> = places(settings, &mut remarks);
    state(settings, &mut remarks);
    match client_names::missing(settings) {
        Ok(missing) => missing.into_iter().for_each(|name| {
            remarks.warn(format!(
                "`clients` names the host `{name}`, for which this host's name service has no address: the entry matches no client"
            ));
        }),
        Err(why) => remarks.warn(why),
    }
    match settings.audit.as_ref().map(|audit| (audit.required, trail::prove(audit))) {
        Some((true, Err(why))) => remarks.stop(why),
        Some((false, Err(why))) => {
            remarks.warn(format!("{why}; until it can be written, records are lost"));
        }
        _ => {}
    }
    let smb = smb::facts(settings, &mut remarks);
    let kerberos = kerberos::facts(settings, &mut remarks);
    let service = service::facts(settings, &mut remarks);
    let by_iwarp = |p: &ServedAddress| p.offer.device().is_some_and(|d| d.fabric == Fabric::Iwarp);
    let rdma_is_tcp = match settings.rdma {
        Rdma::Off => false,
        Rdma::Auto | Rdma::Iwarp => true,
        Rdma::Verbs => places.iter().any(by_iwarp),
    };
    ports(settings, smb.served, rdma_is_tcp, serves_already, &mut remarks);
    let announced = found::facts(settings, smb.served, serves_already, &mut remarks);
    if let Some(few) = rights.too_few_files(settings) {
        remarks.warn(few);
    }
    if settings.privileged_ports != PrivilegedPorts::Off
        && settings.by_nfs()
        && let Some(first) =
            host::first_unprivileged_port().filter(|first| *first < FIRST_UNPRIVILEGED)
    {
        remarks.warn(format!(
            "every user of this host may bind ports from {first} up, so that a port below {FIRST_UNPRIVILEGED} does not prove \
             root; run `sysctl net.ipv4.ip_unprivileged_port_start={FIRST_UNPRIVILEGED}`"
        ));
    }
    let certificate = certificate(settings, &mut remarks);
    let uid = own_uid();
    let portmap = match serves_already && port::is_held_by(nfsrdma::portmap::PORT, "headgate") {
        true => Chosen { how: Portmap::Own, why: Some("the gateway answers there now".into()) },
        false => portmap::choose(settings),
    };
    let locks_are_found = portmap::locks_are_found(portmap.how);
    let findings = Findings {
        settings,
        shares,
        places,
        smb,
        kerberos,
        service,
        ldap: ldap::facts(settings, &mut remarks),
        rights,
        uid,
        certificate,
        locks_are_found,
        portmap,
        serves_already,
        announced,
        remarks,
    };
    match json {
        true => show::json(&findings),
        false => show::text(&findings),
    }
    findings.remarks.stops.is_empty()
}

/// Prints the faults of a wrong configuration and their positions as JSON.
pub fn wrong(faults: &config::Faults) {
    say!("{}", show::faults(faults));
}

/// Loads the certificate of NFS over TLS, if one is configured and usable.
fn certificate(settings: &Settings, remarks: &mut Remarks) -> Option<Certificate> {
    let files = settings.tls.as_ref()?;
    let at = files.certificate.display();
    let certificate = match Certificate::load_in_time(files) {
        Ok(certificate) => certificate,
        Err(why) => {
            remarks.stop(why);
            return None;
        }
    };
    let now = SystemTime::now();
    if certificate.begins > now {
        remarks.warn(format!("the certificate {at} is not valid yet: clients refuse it"));
    } else if certificate.ends <= now {
        remarks.warn(format!(
            "the certificate {at} has expired: clients refuse it; replace it and reload"
        ));
    } else if certificate.ends <= now + EXPIRES_SOON {
        let days = certificate.days_left();
        remarks.warn(format!("the certificate {at} expires in {days} days: replace it and reload"));
    }
    if certificate.names.is_empty() {
        remarks.warn(format!(
            "the certificate {at} names no server (subjectAltName): clients compare its names with the one they mount, and \
             refuse it"
        ));
    }
    Some(certificate)
}

fn own_uid() -> u32 {
    std::fs::metadata("/proc/self").map_or(u32::MAX, |m| m.uid())
}

fn share_facts<'a>(
    share: &'a Share,
    mounts: &[files::Mount],
    remarks: &mut Remarks,
) -> ShareFacts<'a> {
    match &share.source {
        Source::Memory => match MemBackend::new(MEM_SIZE_TRIED) {
            Ok(backend) => {
                let caps = backend.capabilities();
                let known = ShareFacts::unknown(share);
                ShareFacts { xattr: caps.xattr, reflink: caps.reflink, case: Some(true), ..known }
            }
            Err(e) => {
                remarks.stop(format!("share `{}`: {e}", share.name));
                ShareFacts::unknown(share)
            }
        },
        Source::Refer(_) => ShareFacts::unknown(share),
        Source::Ceph(ceph) => ceph_facts(share, ceph, remarks),
        Source::Folder(path) => folder_facts(share, path, mounts, remarks),
    }
}

/// Mounts a folder of CephFS, independently of a gateway that may serve it, and tries the operations that the gateway performs
/// there as the superuser.
fn ceph_facts<'a>(share: &'a Share, ceph: &config::Ceph, remarks: &mut Remarks) -> ShareFacts<'a> {
    let read_only = share.read_only;
    let look = move |backend: Arc<CephBackend>| {
        let proven = if read_only { Ok(()) } else { backend.prove() };
        (backend.capabilities(), proven)
    };
    match open_ceph(ceph, (None, PayloadBudget::default()), look) {
        Ok((caps, proven)) => {
            if let Err(e) = proven {
                let user = ceph.user.as_deref().unwrap_or("admin");
                remarks.stop(format!(
                    "share `{}`: client.{user} may not create, mark and remove a file in {ceph} as the superuser ({e}); run \
                     `ceph fs authorize {} client.{user} {} rw`, without `root_squash`, or set `read_only: true`",
                    share.name, ceph.fs, ceph.path
                ));
            }
            ShareFacts {
                xattr: caps.xattr,
                reflink: caps.reflink,
                handles: Handles::Cluster,
                case: Some(true),
                kind: Some("cephfs".into()),
                ..ShareFacts::unknown(share)
            }
        }
        Err(why) => {
            remarks.stop(format!("share `{}` cannot be opened: {why}", share.name));
            ShareFacts::unknown(share)
        }
    }
}

fn folder_facts<'a>(
    share: &'a Share,
    path: &Path,
    mounts: &[files::Mount],
    remarks: &mut Remarks,
) -> ShareFacts<'a> {
    let config = LocalConfig { read_only: share.read_only, ..LocalConfig::new(path) };
    let (its, pattern) = (path.to_owned(), share.snapshots.clone());
    let size = share.size;
    let look = move |backend: Arc<LocalBackend>| {
        let real = std::fs::canonicalize(&its).unwrap_or(its);
        let case = files::tells_case_apart(&real);
        let told = snapshots(&backend, pattern.as_ref());
        let sized = size.map_or(Ok(()), |size| backend.limit_size(size, false));
        let quotas = quotas(&*backend);
        (backend, real, case, told, (sized, quotas))
    };
    let (backend, real, case, told, (sized, quotas)) = match open_in_time(config, look) {
        Ok(found) => found,
        Err(why) => {
            remarks.stop(format!("share `{}` cannot be opened: {why}", share.name));
            return ShareFacts::unknown(share);
        }
    };
    let mount = files::mount_of(mounts, &real);
    if mount.is_some_and(|m| m.read_only) && !share.read_only {
        remarks.warn(format!(
            "share `{}`: its file system is mounted read-only, so clients cannot write; set `read_only: true`",
            share.name
        ));
    }
    let mut crossed = Vec::new();
    for inner in files::inside(mounts, &real) {
        let (name, at, kind) = (&share.name, inner.at.display(), &inner.kind);
        if let Some(why) = inner.hidden(share.cross) {
            remarks.warn(format!("share `{name}`: {at} is another file system ({kind}), {why}"));
        } else {
            crossed.push(inner.at.display().to_string());
        }
    }
    let caps = backend.capabilities();
    if let Some(pattern) = &share.snapshots {
        snapshot_remarks(share, pattern, &told, remarks);
    }
    if let Err(why) = sized {
        remarks.stop(format!("share `{}`: {why}", share.name));
    }
    if case == Some(false) {
        remarks.warn(format!(
            "share `{}`: its file system ignores case in names; NFS clients expect names that differ in case to be two files",
            share.name
        ));
    }
    ShareFacts {
        share,
        xattr: caps.xattr,
        reflink: caps.reflink,
        lists_sealed: !backend.has_trusted_lists(),
        handles: if backend.has_kernel_handles() { Handles::Kernel } else { Handles::Search },
        case,
        kind: mount.map(|m| m.kind.clone()),
        crossed,
        snapshots: told.ok().flatten(),
        quotas,
    }
}

/// Returns the kinds of quotas that the file system of a share counts, and whether it enforces them. Blocks.
fn quotas(backend: &dyn Backend) -> Vec<(QuotaKind, bool)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return Vec::new() };
    let root = backend.root();
    let of = |kind| {
        let state = runtime.block_on(backend.quota_state(&root, kind)).ok()?;
        Some((kind, state.enforces))
    };
    [QuotaKind::User, QuotaKind::Group, QuotaKind::Project].into_iter().filter_map(of).collect()
}

/// Looks for the snapshots of a share. Blocks.
fn snapshots(
    backend: &LocalBackend,
    pattern: Option<&config::SnapshotPattern>,
) -> Result<Option<SnapshotsTold>, String> {
    backend.set_snapshots(pattern);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| e.to_string())?;
    runtime.block_on(backend.snapshots_told()).map_err(|e| e.to_string())
}

/// Says why clients find no snapshots.
fn snapshot_remarks(
    share: &Share,
    pattern: &config::SnapshotPattern,
    told: &Result<Option<SnapshotsTold>, String>,
    remarks: &mut Remarks,
) {
    let (name, base) = (&share.name, pattern.base().display());
    match told {
        Err(why) => remarks.warn(format!("share `{name}`: the folder of snapshots {base} cannot be read: {why}")),
        Ok(Some(SnapshotsTold { distrusted: Some(why), .. })) => {
            remarks.warn(format!("share `{name}`: no snapshot in {base} is told: {why}"));
        }
        Ok(Some(told)) if told.told == 0 => remarks.warn(format!(
            "share `{name}`: no folder in {base} matches `{pattern}`, so clients find no snapshots; compare the names there with \
             the format of the time"
        )),
        Ok(_) => {}
    }
}

/// Returns the addresses that `serve` would listen on.
fn places(settings: &Settings, remarks: &mut Remarks) -> Vec<ServedAddress> {
    let host = rdma::host::look(settings);
    let is_here = |ip: IpAddr| host.addresses.iter().any(|a| a.ip == ip);
    for ip in settings.bind.iter().filter(|ip| !ip.is_unspecified() && !is_here(**ip)) {
        remarks
            .stop(format!("{ip} is not an address of this host; `headgate serve` will not start"));
    }
    if matches!(settings.rdma, Rdma::Auto | Rdma::Verbs) {
        let lines = card::about_host(&host, &card::Kernel::own());
        // What keeps a device from an address is told there.
        let slow = lines.iter().filter(|line| line.is_warning());
        slow.filter_map(card::Line::problem).for_each(|problem| remarks.warn(problem));
    }
    let offers = plan::offers(settings.rdma, &settings.bind, &host, &Refused::new());
    if let Err(why) = plan::demanded(settings.rdma, &settings.bind, &offers) {
        remarks.stop(format!("{why}; `headgate serve` will not start"));
    }
    let place = |offer: AddressOffer| ServedAddress {
        ip: offer.ip,
        device: offer.netdev.clone(),
        facts: offer.netdev.as_deref().map(netdev::device).unwrap_or_default(),
        offer,
    };
    offers.into_iter().filter(|o| is_here(o.ip)).map(place).collect()
}

/// Tries to listen where `serve` would. Ports of RoCE and InfiniBand devices are not TCP ports and cannot be tried here.
fn ports(
    settings: &Settings,
    smb: bool,
    rdma_is_tcp: bool,
    serves_already: bool,
    remarks: &mut Remarks,
) {
    let any = [IpAddr::from([0u16; 8])];
    let bind = if settings.bind.is_empty() { &any[..] } else { &settings.bind };
    let mut wanted = Vec::new();
    if settings.by_nfs() {
        wanted.push(("NFS", settings.nfs_port, "--nfs-port"));
        if rdma_is_tcp {
            wanted.push(("NFS over RDMA", settings.nfs_rdma_port, "--nfs-rdma-port"));
        }
        // The port mapper is optional with `auto`, so a port in use is no problem.
        if settings.portmap == Portmap::Own {
            wanted.push(("port mapper", nfsrdma::portmap::PORT, port::PORTMAP_OPTION));
        }
    }
    if smb {
        wanted.push(("SMB over TCP", settings.smb.port, "--smb-port"));
        if rdma_is_tcp {
            wanted.push(("SMB Direct", settings.smb.direct_port, "--smb-direct-port"));
        }
    }
    for (what, number, option) in wanted.into_iter().filter(|(_, number, _)| *number != 0) {
        for ip in bind {
            let at = SocketAddr::new(*ip, number);
            let Err(e) = std::net::TcpListener::bind(at) else { continue };
            // The address was checked above, and ports that a running gateway holds will be free for its successor.
            let known = e.kind() == std::io::ErrorKind::AddrNotAvailable
                || serves_already && port::is_held_by(number, "headgate");
            if !known {
                remarks.stop(port::refused(what, at, &e, option));
            }
        }
    }
}

/// Checks that the state folder exists or could be created, as far as possible without creating it.
fn state(settings: &Settings, remarks: &mut Remarks) {
    let mut at: &Path = &settings.state;
    while !at.exists() {
        match at.parent() {
            Some(parent) => at = parent,
            None => return,
        }
    }
    let writable = std::fs::metadata(at).is_ok_and(|m| m.is_dir() && own_uid() == 0)
        || tempfile::Builder::new().prefix(".headgate-check.").tempfile_in(at).is_ok();
    if !writable {
        remarks.warn(format!(
            "this user cannot use the state folder {}: file handles and locks would end with the process; give another --state DIR",
            settings.state.display()
        ));
    }
}
