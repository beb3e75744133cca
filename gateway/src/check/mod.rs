//! `headgate check`: is the configuration sound, and what does a client type for every address?
//!
//! *Operation.* The configuration is read as `serve` reads it. Then the host is asked: which addresses there are and on what
//! devices, whether the ports are free, what the file systems of the shares can do, what this user may do. Nothing is
//! changed, and nothing is served.
//!
//! *Errors.* A wrong configuration is told and ends with exit code 2. What would stop or hinder `serve` here and now is a
//! warning.

pub(crate) mod netdev;
mod show;
mod smb;

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use config::{Portmap, Rdma, Settings, Share, Source};
use vfs::Backend;
use vfs::local::{LocalBackend, LocalConfig};
use vfs::mem::MemBackend;

use crate::rdma::host;
use crate::rdma::plan::{self, Offer, Refused};
use crate::{port, portmap};
use netdev::Device;

/// A volume in memory of this size is asked what it can do; nothing of it is used.
const MEM_SIZE_TRIED: u64 = 1 << 20;

/// Everything that was found.
struct Findings<'a> {
    settings: &'a Settings,
    shares: Vec<ShareFacts<'a>>,
    places: Vec<Place>,
    smb: smb::Smb,
    /// The process can act as the user of each call.
    acts_as_caller: bool,
    /// User of the process.
    uid: u32,
    /// Clients of NFS version 3 find the lock manager.
    locks_are_found: bool,
    warnings: Vec<String>,
}

/// A share and what its file system can do.
struct ShareFacts<'a> {
    share: &'a Share,
    xattr: bool,
    reflink: bool,
    /// How a file is found again after a restart.
    handles: Handles,
}

/// How a file is found again after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handles {
    /// By the kernel's own handles.
    Kernel,
    /// By searching for its number.
    Search,
    /// Not at all: the files are gone too.
    None,
}

/// An address and how it is reached.
struct Place {
    ip: IpAddr,
    device: Option<String>,
    facts: Device,
    /// What it offers by RDMA.
    offer: Offer,
}

impl Place {
    /// A Linux client on this host cannot use its own soft iWARP on the loopback device (its address resolution refuses).
    fn only_this_host(&self) -> bool {
        self.ip.is_loopback()
    }
}

/// Runs the command on settings that have been found sound.
pub fn run(settings: &Settings, json: bool) {
    let mut warnings = Vec::new();
    let uid = own_uid();
    let shares: Vec<ShareFacts<'_>> =
        settings.shares.iter().map(|s| share_facts(s, &mut warnings)).collect();
    let places: Vec<Place> = places(settings, &mut warnings);
    state(settings, &mut warnings);
    let smb = smb::facts(settings, &mut warnings);
    ports(settings, smb.served, &mut warnings);
    let acts_as_caller = uid == 0;
    let locks_are_found = portmap::locks_are_found(settings);
    let findings =
        Findings { settings, shares, places, smb, acts_as_caller, uid, locks_are_found, warnings };
    match json {
        true => show::json(&findings),
        false => show::text(&findings),
    }
}

fn own_uid() -> u32 {
    std::fs::metadata("/proc/self").map_or(u32::MAX, |m| m.uid())
}

fn share_facts<'a>(share: &'a Share, warnings: &mut Vec<String>) -> ShareFacts<'a> {
    let of = |caps: vfs::Capabilities, handles| ShareFacts {
        share,
        xattr: caps.xattr,
        reflink: caps.reflink,
        handles,
    };
    match &share.source {
        Source::Memory => match MemBackend::new(MEM_SIZE_TRIED) {
            Ok(backend) => of(backend.capabilities(), Handles::None),
            Err(e) => {
                warnings.push(format!("share `{}`: {e}", share.name));
                ShareFacts { share, xattr: false, reflink: false, handles: Handles::None }
            }
        },
        Source::Folder(path) => {
            let config = LocalConfig { read_only: share.read_only, ..LocalConfig::new(path) };
            match LocalBackend::open(config) {
                Ok(backend) => {
                    let kernel = backend.has_kernel_handles();
                    let handles = if kernel { Handles::Kernel } else { Handles::Search };
                    of(backend.capabilities(), handles)
                }
                Err(e) => {
                    warnings.push(format!(
                        "share `{}`: {} cannot be opened: {e}",
                        share.name,
                        path.display()
                    ));
                    ShareFacts { share, xattr: false, reflink: false, handles: Handles::None }
                }
            }
        }
    }
}

/// The addresses that would be served.
fn places(settings: &Settings, warnings: &mut Vec<String>) -> Vec<Place> {
    let host = host::look(settings);
    let is_here = |ip: IpAddr| host.addresses.iter().any(|a| a.ip == ip);
    for ip in settings.bind.iter().filter(|ip| !ip.is_unspecified() && !is_here(**ip)) {
        warnings
            .push(format!("{ip} is not an address of this host; `headgate serve` will not start"));
    }
    let offers = plan::offers(settings.rdma, &settings.bind, &host, &Refused::new());
    if let Err(why) = plan::demanded(settings.rdma, &settings.bind, &offers) {
        warnings.push(format!("{why}; `headgate serve` will not start"));
    }
    let place = |offer: Offer| Place {
        ip: offer.ip,
        device: offer.netdev.clone(),
        facts: offer.netdev.as_deref().map(netdev::device).unwrap_or_default(),
        offer,
    };
    offers.into_iter().filter(|o| is_here(o.ip)).map(place).collect()
}

/// Tries to listen where `serve` would.
fn ports(settings: &Settings, smb: bool, warnings: &mut Vec<String>) {
    let any = [IpAddr::from([0u16; 8])];
    let bind = if settings.bind.is_empty() { &any[..] } else { &settings.bind };
    let mut wanted = vec![("NFS", settings.nfs_port, "--nfs-port")];
    if settings.rdma != Rdma::Off {
        wanted.push(("NFS over RDMA", settings.nfs_rdma_port, "--nfs-rdma-port"));
    }
    if smb {
        wanted.push(("SMB over TCP", settings.smb.port, "--smb-port"));
        if settings.rdma != Rdma::Off {
            wanted.push(("SMB Direct", settings.smb.direct_port, "--smb-direct-port"));
        }
    }
    if settings.portmap == Portmap::Own {
        wanted.push(("port mapper", nfsrdma::portmap::PORT, portmap::PORT_OPTION));
    }
    for (what, number, option) in wanted.into_iter().filter(|(_, number, _)| *number != 0) {
        for ip in bind {
            let at = SocketAddr::new(*ip, number);
            if let Err(e) = std::net::TcpListener::bind(at)
                && e.kind() != std::io::ErrorKind::AddrNotAvailable
            {
                warnings.push(port::refused(what, at, &e, option));
            }
        }
    }
}

/// The state folder exists or can be made, as far as that can be told without making it.
fn state(settings: &Settings, warnings: &mut Vec<String>) {
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
        warnings.push(format!(
            "the state folder {} cannot be used by this user: handles and locks would end with the process; \
             name another by --state DIR",
            settings.state.display()
        ));
    }
}
