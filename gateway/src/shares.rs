//! Opens the shares of a configuration.

use std::sync::Arc;

use config::{Settings, Source};
use vfs::Backend;
use vfs::local::{LocalBackend, LocalConfig};
use vfs::mem::MemBackend;
use vfs::namespace::{Cidr, Share, Squash};

/// Every share, in the order of the configuration. The error is one line for the user.
pub fn shares(settings: &Settings) -> Result<Vec<Share>, String> {
    let open = |s: &config::Share| {
        let backend: Arc<dyn Backend> = match &s.source {
            Source::Memory => MemBackend::with(memory_volume_max(), s.read_only)
                .map_err(|e| format!("share {}: {e}", s.name))?,
            Source::Folder(path) => {
                let mut local = LocalConfig::new(path.clone());
                local.read_only = s.read_only;
                LocalBackend::open(local)
                    .map_err(|e| format!("share {}: {}: {e}", s.name, path.display()))?
            }
        };
        let ranges =
            |c: &Vec<config::Cidr>| c.iter().map(|c| Cidr { addr: c.addr, bits: c.bits }).collect();
        Ok(Share {
            name: s.name.clone(),
            id: Share::id_of(&s.name),
            backend,
            read_only: s.read_only,
            squash: match s.squash {
                config::Squash::None => Squash::None,
                config::Squash::Root => Squash::Root,
                config::Squash::All => Squash::All,
            },
            clients: s.clients.as_ref().map(ranges),
        })
    };
    settings.shares.iter().map(open).collect()
}

/// Bytes of a volume in memory: half of the machine's, as with tmpfs.
fn memory_volume_max() -> u64 {
    let kib = |text: String| {
        let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    let total = std::fs::read_to_string("/proc/meminfo").ok().and_then(kib);
    total.map_or(1 << 30, |kib| kib * 512)
}
