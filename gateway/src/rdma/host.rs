//! Finds the RDMA equipment of this host, and the rights of this process to use it.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use config::{Settings, Size};
use iobuf::{CLASS_SIZES, PoolLimits, Slab};
use mutex::locked;
use rdma_transport::devices::{Devices, Watch};
use rdma_transport::ibverbs;

use crate::check::netdev::{self, Address};
use crate::pools::{payload_limits, rdma_recv_limits};

/// Folder of the RDMA character devices.
const DEV: &str = "/dev/infiniband";
/// Device of the connection manager.
pub(crate) const CM_NODE: &str = "rdma_cm";
/// The kernel's RDMA class, which appears with the first device's module.
const KERNEL_CLASS: &str = "/sys/class/infiniband";
/// `CAP_IPC_LOCK` of capabilities(7), which allows locking any amount of memory.
const CAP_IPC_LOCK: u32 = 14;

/// Equipment and rights that were found.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    /// Addresses that clients can reach.
    pub(crate) addresses: Vec<Address>,
    /// RDMA devices.
    pub(crate) devices: Devices,
    /// Whether rdma-core's libraries are usable, or why not.
    pub(crate) library: Result<(), String>,
    /// Character devices that are not usable, with the reason.
    pub(crate) closed: BTreeMap<String, String>,
    /// Whether this process may lock enough memory, or why not.
    pub(crate) memlock: Result<(), String>,
}

/// Reads the state repeatedly and tracks changes.
#[derive(Debug, Default)]
pub(crate) struct Watcher(Mutex<Watch<Vec<Address>>>);

impl Watcher {
    /// Reads the current state from files without changing anything.
    pub(crate) fn look(&self, settings: &Settings) -> Host {
        let addresses = netdev::addresses();
        // The state of the last look is consistent at every step, so a poisoned lock is no problem.
        let mut watch = locked(&self.0);
        let devices = watch.look(Path::new("/sys"), addresses.clone());
        drop(watch);
        host(settings, addresses, devices)
    }
}

/// Reads the state once.
pub(crate) fn look(settings: &Settings) -> Host {
    Watcher::default().look(settings)
}

/// Returns whether devices were usable at the first call, which happens before files are opened, whether or not a device
/// exists yet: threads that have acted as a caller cannot use devices any more ([`vfs::local::LocalConfig::callers_apart`]).
pub(crate) fn usable_at_start() -> &'static Result<(), String> {
    static USABLE: OnceLock<Result<(), String>> = OnceLock::new();
    USABLE.get_or_init(|| with_kernel(ibverbs::available(), Path::new(KERNEL_CLASS)))
}

/// Returns whether devices are usable: the libraries are installed and the kernel has its RDMA class.
pub(super) fn with_kernel(libraries: Result<(), String>, class: &Path) -> Result<(), String> {
    libraries?;
    match class.exists() {
        true => Ok(()),
        false => Err(format!(
            "the kernel had not loaded its RDMA modules (there was no {})",
            class.display()
        )),
    }
}

/// Returns whether this process can use devices now.
fn usable() -> Result<(), String> {
    usable_since(usable_at_start(), ibverbs::available())
}

/// Equipment that appeared after the start is usable only after a restart.
pub(super) fn usable_since(
    at_start: &Result<(), String>,
    now: Result<(), String>,
) -> Result<(), String> {
    match (at_start, now) {
        (Err(why), Ok(())) => Err(format!("when headgate started, {why}; restart it")),
        (_, now) => now,
    }
}

fn host(settings: &Settings, addresses: Vec<Address>, devices: Devices) -> Host {
    let nodes = devices.list.iter().filter_map(|d| d.node.as_deref());
    let closed = match devices.list.is_empty() {
        true => BTreeMap::new(),
        false => closed(Path::new(DEV), nodes.chain([CM_NODE])),
    };
    Host {
        addresses,
        devices,
        library: usable(),
        closed,
        memlock: memlock(registered_max(settings), lock_limit()),
    }
}

/// Returns the devices that cannot be opened for reading and writing.
fn closed<'a>(folder: &Path, names: impl Iterator<Item = &'a str>) -> BTreeMap<String, String> {
    let why = |name: &str| {
        let path = folder.join(name);
        let error = OpenOptions::new().read(true).write(true).open(&path).err()?;
        let path = path.display();
        Some(match error.kind() {
            ErrorKind::NotFound => format!(
                "there is no {path}: load the module (`modprobe {}`), or give the container `--device {path}`",
                if name == CM_NODE { "rdma_ucm" } else { "ib_uverbs" }
            ),
            ErrorKind::PermissionDenied => format!(
                "no permission to use {path}: give this user read and write access (`chmod` or a udev rule for the group \
                 `rdma`), or the container `--device {path}`"
            ),
            _ => format!("cannot open {path}: {error}"),
        })
    };
    names.filter_map(|name| Some((name.to_owned(), why(name)?))).collect()
}

/// Returns the number of bytes that this process may lock; `None` means unlimited.
fn lock_limit() -> Option<u64> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    if may_lock_all(&read("/proc/self/status"), &read("/proc/self/uid_map")) {
        return None;
    }
    rustix::process::getrlimit(rustix::process::Resource::Memlock).current
}

/// Returns true if the process has the capability in the initial user namespace, the only one in which it counts. There the
/// map is the identity; a kernel without user namespaces has no map.
fn may_lock_all(status: &str, uid_map: &str) -> bool {
    let effective = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    let map: Vec<&str> = uid_map.split_ascii_whitespace().collect();
    bits & (1 << CAP_IPC_LOCK) != 0 && (map.is_empty() || map == ["0", "0", "4294967295"])
}

/// Returns the maximum number of bytes that one device registers: payload, receive buffers, and buffers that gather small
/// pieces.
fn registered_max(settings: &Settings) -> u64 {
    let [small, _, _] = rdma_recv_limits(settings).buffers_max;
    let recvs = PoolLimits { buffers_max: [small, 0, 0] };
    [payload_limits(settings), recvs, ibverbs::GATHER].iter().map(bytes).sum()
}

/// Returns the bytes of a full pool: buffers are registered in whole slabs of one size each.
fn bytes(limits: &PoolLimits) -> u64 {
    let sizes = limits.buffers_max.iter().zip(CLASS_SIZES);
    sizes.map(|(n, size)| (n * size).next_multiple_of(Slab::LEN) as u64).sum()
}

/// Checks the limit on locked memory. Devices read and write this memory, so the kernel pins it.
fn memlock(needed: u64, limit: Option<u64>) -> Result<(), String> {
    match limit.filter(|l| *l < needed) {
        None => Ok(()),
        Some(limit) => Err(format!(
            "this process may lock {} of memory, and RDMA devices need {}: raise the limit by `ulimit -l {}`, `LimitMEMLOCK=` \
             of systemd or `--ulimit memlock={needed}` of a container, or write a smaller `memory:` or `connections:`",
            Size(limit),
            Size(needed),
            needed.div_ceil(1024)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_not_there_or_closed_is_said_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("uverbs0"), "").unwrap();
        fs::create_dir(folder.path().join("uverbs1")).unwrap();
        let found = closed(folder.path(), ["uverbs0", "uverbs1", CM_NODE].into_iter());
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[CM_NODE].contains("modprobe rdma_ucm"), "{found:?}");
        assert!(found["uverbs1"].contains("cannot open"), "{found:?}");
    }

    #[test]
    fn too_little_memory_to_lock_is_said_with_the_number_needed() {
        assert_eq!(memlock(256 << 20, None), Ok(()));
        assert_eq!(memlock(256 << 20, Some(256 << 20)), Ok(()));
        let why = memlock(256 << 20, Some(8 << 20)).unwrap_err();
        for part in ["8MiB", "256MiB", "ulimit -l 262144", "LimitMEMLOCK", "memlock=268435456"] {
            assert!(why.contains(part), "{part} in {why}");
        }
    }

    #[test]
    fn all_that_a_device_registers_is_counted() {
        let settings =
            |memory, connections| Settings { memory, connections, ..Settings::default() };
        let mib =
            |memory: u64, connections| registered_max(&settings(memory << 20, connections)) >> 20;
        // Not registered: an eighth for kept replies, an eighth for large messages, a sixteenth for names and a sixteenth for
        // data received over TCP. Registered: the rest, with an eighth for receives, and 48 for gathering.
        assert_eq!(mib(256, 512), 128 + 48 + 32);
        assert_eq!(mib(512, 512) - mib(256, 512), 160);
        assert_eq!(mib(256, 2048), mib(256, 512));
    }

    #[test]
    fn root_of_a_container_has_not_the_right_of_root() {
        let root = "Name:\tx\nCapEff:\t000001ffffffffff\n";
        let all = "         0          0 4294967295\n";
        assert!(may_lock_all(root, all));
        assert!(may_lock_all(root, ""));
        assert!(!may_lock_all(root, "         0     100000      65536\n"));
        assert!(!may_lock_all("CapEff:\t0000000000000000\n", all));
        assert!(!may_lock_all("", ""));
    }
}
